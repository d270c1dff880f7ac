"""What data-parallel training on several machines will gain, before they are rented.

    python benchmarks/scaling.py
    mpiexec -n 2 python benchmarks/scaling.py --overhead

One rank per machine, each with its own minibatch of the same size. Measured on this machine: the computation
of a step, and all that an exchange does but sending, which runs as in a job, on a communicator that stands
for n - 1 other ranks, with rows of their own; in processor time, as the machine may do other things, too, but
by the clock with `--threads`. It also writes down every collective; the time of those on a network is
arithmetic: latency, and bytes by bandwidth. Efficiency: a step of one process by one of n ranks. Ranks are
taken to be equally fast, and shards to be cut with `by=len`: stragglers are not in it.

`--overhead`, on real ranks: what a step takes beside computing and waiting; the median, and the tenth
percentile for a machine that does other things, too.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import dynet_compat as dy
import numpy as np
from dynet_compat import _core
from dynet_compat.distributed.exchange import OWNERS_FROM, Exchange, names_of
from dynet_compat.distributed.group import Group
from mpi4py import MPI

Clock = Callable[[], float]


class Network(NamedTuple):
    """A network that gives each machine its full bandwidth."""

    name: str
    latency: float  # seconds
    bandwidth: float  # bytes a second, each way

    def seconds(self, collective: Collective, ranks: int) -> float:
        """Of a collective as MPI libraries do it: in log2 n rounds, an all-to-all of large parts in n - 1."""
        rounds = math.ceil(math.log2(ranks)) * self.latency
        transfer = collective.received / self.bandwidth
        if collective.kind != "alltoall":
            return rounds + transfer
        all_rounds = math.ceil(math.log2(ranks)) / 2  # Bruck's way sends each part half as many times
        return min(rounds + max(1.0, all_rounds) * transfer, (ranks - 1) * self.latency + transfer)


NETWORKS = (Network("10 Gb/s", 25e-6, 1.1e9), Network("100 Gb/s", 3e-6, 11e9))


class Collective(NamedTuple):
    kind: str
    received: float  # bytes, by each rank from the others


class Arrived:
    @staticmethod
    def Test() -> bool:
        return True

    @staticmethod
    def Wait() -> None:
        pass


class OtherRanks:
    """The communicator of rank 0 of a job whose other ranks do what it does, with table rows of their own.

    Args:
        clock: which `inside` is measured by.
    Attributes:
        collectives: what went over the network.
        inside: seconds that playing the others took, which are not the job's.
    """

    def __init__(self, ranks: int, keys: list[np.ndarray], width: int, clock: Clock) -> None:
        self.ranks, self._clock = ranks, clock
        self.collectives: list[Collective] = []
        self.inside = 0.0
        mine = [k[k % ranks == 0] for k in keys[:ranks]]  # of the rows that rank 0 owns
        every = np.unique(np.concatenate(keys[:ranks]))
        owned = [every[every % ranks == owner] for owner in range(ranks)]
        self._dealt = [message(k, width) for k in mine]
        self._joined = [message(k, width) for k in (owned if ranks >= OWNERS_FROM else keys[:ranks])]

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return self.ranks

    def Dup(self) -> OtherRanks:
        return self

    def Iprobe(self, **_: Any) -> bool:
        return False

    def Iallgather(self, mine: Any, every: np.ndarray) -> Arrived:
        def play() -> None:
            if every.dtype == np.int64:
                np.copyto(every, self._sizes(self._joined))
            elif mine is not MPI.IN_PLACE:  # a meeting, which ends with sizes of rows
                np.copyto(every, mine)
                if self.ranks < OWNERS_FROM:
                    every[:, -8:] = self._sizes(self._joined).reshape(-1, 1).view(np.uint8)

        return self._play("allgather", self._of_others(every), play)

    def Ialltoall(self, sent: np.ndarray, received: np.ndarray) -> Arrived:
        new = self._sizes(self._dealt) if received.dtype == np.int64 else sent
        return self._play("alltoall", self._of_others(received), lambda: np.copyto(received, new))

    def Ialltoallv(self, _: Any, received: Any) -> Arrived:
        return self._messages("alltoall", self._dealt, received)

    def Iallgatherv(self, _: Any, received: Any) -> Arrived:
        return self._messages("allgather", self._joined, received)

    def _messages(self, kind: str, messages: list[np.ndarray], received: Any) -> Arrived:
        out, sizes, *_ = received
        return self._play(kind, int(sizes[1:].sum()), lambda: np.copyto(out, np.concatenate(messages)))

    @staticmethod
    def _sizes(messages: list[np.ndarray]) -> np.ndarray:
        return np.array([len(m) for m in messages], np.int64)

    def _of_others(self, array: np.ndarray) -> float:
        return array.nbytes * (self.ranks - 1) / self.ranks

    def _play(self, kind: str, received: float, action: Callable[[], Any]) -> Arrived:
        self.collectives.append(Collective(kind, received))
        self.inside += timed(action, self._clock)
        return Arrived()


def message(keys: np.ndarray, width: int) -> np.ndarray:
    """Rows without values, as they are sent."""
    floats = -(-len(keys) * width // 2)
    return np.concatenate([[len(keys)], keys, np.zeros(floats)]).astype(np.int64).view(np.uint8)


# ------------------------------------------------------------------------------------------ models


class Size(NamedTuple):
    rows: int
    embed: int
    hidden: int
    outputs: int
    layers: int
    batch: int  # sentences of one rank


SIZES = {
    "tagger": {"full": Size(500_000, 100, 385, 17, 2, 32), "quick": Size(400, 8, 8, 5, 1, 4)},
    "seq2seq": {"full": Size(16_000, 256, 1024, 16_000, 2, 32), "quick": Size(60, 8, 8, 60, 1, 4)},
}


class Model:
    """A program for sentences of 5 to 35 words, which are as frequent as those of a language (Zipf)."""

    def __init__(self, size: Size) -> None:
        self.size, self.pc = size, dy.ParameterCollection()
        self.embed = self.pc.add_lookup_parameters((size.rows, size.embed))
        self._random = np.random.default_rng(1)
        weights = 1 / np.arange(1, size.rows + 1)
        self._ends = np.cumsum(weights / weights.sum())

    def sentence(self) -> list[int]:
        words = self._random.random(int(self._random.integers(5, 36)))
        return np.minimum(np.searchsorted(self._ends, words), self.size.rows - 1).tolist()

    def minibatch(self) -> list[list[int]]:
        return [self.sentence() for _ in range(self.size.batch)]

    def loss(self, words: list[int]) -> dy.Expression:
        raise NotImplementedError

    def keys(self, batch: list[list[int]]) -> np.ndarray:
        """Of the rows that a minibatch reads, as an exchange sends them."""
        number = len(self.pc.parameters_list())
        return np.unique([w for words in batch for w in words]) + (np.int64(number) << 32)


class Tagger(Model):
    """A bidirectional LSTM."""

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.rnn = dy.BiRNNBuilder(size.layers, size.embed, 2 * size.hidden, self.pc, dy.VanillaLSTMBuilder)
        self.output = self.pc.add_parameters((size.outputs, 2 * size.hidden))

    def loss(self, words: list[int]) -> dy.Expression:
        hs = self.rnn.transduce([self.embed[w] for w in words])
        scores = [self.output * h for h in hs]
        return dy.esum([dy.pickneglogsoftmax(s, w % self.size.outputs) for s, w in zip(scores, words)])


class Seq2seq(Model):
    """Two LSTMs with attention. The decoder reads the context with each word."""

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        n = size.hidden
        self.encoder = dy.VanillaLSTMBuilder(size.layers, size.embed, n, self.pc)
        self.decoder = dy.VanillaLSTMBuilder(size.layers, size.embed + n, n, self.pc)
        self.join = self.pc.add_parameters((n, 2 * n))
        self.output = self.pc.add_parameters((size.outputs, n))

    def loss(self, words: list[int]) -> dy.Expression:
        hs = dy.concatenate_cols(self.encoder.initial_state().transduce([self.embed[w] for w in words]))
        state, losses, context = self.decoder.initial_state(), [], dy.zeros(self.size.hidden)
        for last, word in zip([0, *words], [*words, 0]):
            state = state.add_input(dy.concatenate([self.embed[last], context]))
            context = hs * dy.softmax(dy.transpose(hs) * state.output())
            h = dy.tanh(self.join * dy.concatenate([state.output(), context]))
            losses.append(dy.pickneglogsoftmax(self.output * h, word))
        return dy.esum(losses)


PROGRAMS: dict[str, Callable[[Size], Model]] = {"tagger": Tagger, "seq2seq": Seq2seq}


def gradients(model: Model, batch: list[list[int]]) -> None:
    """Recording, forward and backward."""
    dy.renew_cg()
    loss = dy.esum([model.loss(words) for words in batch])
    loss.value()
    loss.backward()


def timed(action: Callable[[], Any], clock: Clock = time.process_time) -> float:
    start = clock()
    action()
    return clock() - start


# ------------------------------------------------------------------------------------------- tables


class Measured(NamedTuple):
    """Seconds of a step of `ranks` ranks, and what it sends."""

    ranks: int
    update: float
    exchange: float
    collectives: list[Collective]

    def network(self, network: Network) -> float:
        return sum(network.seconds(collective, self.ranks) for collective in self.collectives)


def measure(
    model: Model, ranks: list[int], repeats: int, compress: bool, clock: Clock
) -> tuple[float, list[Measured]]:
    """Seconds of a step's computation without its update, and what numbers of ranks add; the first is 1."""
    trainer = dy.AdamTrainer(model.pc)
    batch = model.minibatch()
    keys = [model.keys(batch), *(model.keys(model.minibatch()) for _ in range(max(ranks) - 1))]
    gradients(model, batch)
    trainer.update()
    computing, found = [], []
    for n in [1, *ranks]:
        others = OtherRanks(n, keys, model.size.embed, clock)
        group = Group(others if n > 1 else None, timeout=60)
        exchange = Exchange(group, check_every=0, compress=compress, overlap=False)
        exchange.state_of(trainer).compared(names_of(model.pc))
        updates, exchanges = [], []
        for _ in range(repeats + 1):  # the first one gets the memory
            computing.append(timed(partial(gradients, model, batch), clock))
            others.collectives, others.inside = [], 0.0
            start = clock()
            if n > 1:
                exchange.sum_gradients(exchange.begin(trainer, 1.0))
            exchanges.append(clock() - start - others.inside)
            updates.append(timed(trainer.update, clock))
        group.close()
        update, rest = (statistics.median(times[1:]) for times in (updates, exchanges))
        found.append(Measured(n, update, rest, others.collectives))
    return statistics.median(computing), found


def rows_of(
    model: Model, computing: float, found: list[Measured], network: Network, speed: float
) -> list[dict[str, float]]:
    """A table's rows. `speed`: how much faster than here the computation is."""
    one = (computing + found[0].update) / speed
    out = []
    for m in found[1:]:
        sent = m.network(network)
        added = m.exchange + sent + (m.update - found[0].update) / speed
        out.append({
            "ranks": m.ranks, "ms": 1e3 * (one + added), "exchange": 1e3 * m.exchange, "network": 1e3 * sent,
            "megabytes": sum(c.received for c in m.collectives) / 1e6, "efficiency": one / (one + added),
            "sentences": model.size.batch * max(0.0, 9 * added / one),  # a rank's, for 90 %
        })  # fmt: skip
    return out


def show(rows: list[dict[str, float]], head: str) -> None:
    print(f"\n{head}\n ranks  step ms  exchange ms  network ms  MB received  efficiency  90 % from sentences")
    for r in rows:
        print(f"{r['ranks']:6.0f} {r['ms']:8.1f} {r['exchange']:12.2f} {r['network']:11.2f} "
              f"{r['megabytes']:12.2f} {100 * r['efficiency']:9.0f} % {r['sentences']:20.0f}")  # fmt: skip


def tables(args: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    clock = time.process_time if args.threads == 1 else time.perf_counter
    for name in args.model:
        model = PROGRAMS[name](SIZES[name]["quick" if args.quick else "full"])
        dense = sum(p.as_array().size for p in model.pc.parameters_list())
        computing, every = measure(model, args.ranks, args.repeats, args.compress, clock)
        print(f"\n{name}: {dense / 1e6:.2f} M parameters and {model.pc.parameter_count() - dense:,} in rows; "
              f"{model.size.batch} sentences a rank: {1e3 * computing:.0f} ms on this machine, "
              f"update {1e3 * every[0].update:.1f} ms")  # fmt: skip
        for speed in args.speed:
            for network in NETWORKS:
                rows = rows_of(model, computing, every, network, speed)
                faster = "" if speed == 1 else f", computation {speed:g} times as fast"
                show(rows, f"{name}, {network.name}{faster}")
                found.append({"model": name, "network": network.name, "speed": speed, "rows": rows})
    return found


# ----------------------------------------------------------------------------------------- overhead


def overhead(args: argparse.Namespace) -> list[dict[str, float]]:
    """On real ranks: seconds of a step that are neither its computation nor waiting for others."""
    from dynet_compat.distributed import state

    dy.distributed.start(seed=1)
    if state.job is None:
        raise SystemExit("--overhead: start it by mpiexec -n 2 python benchmarks/scaling.py --overhead")
    found = []
    for hidden in (8,) if args.quick else (50, 256):
        found.append(_overhead(state.job, hidden, args))
    return found


class Waiting:
    """A communicator whose ranks wait for each other before each collective, which then takes what it does
    itself."""

    def __init__(self, comm: Any, waiting: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._comm, self._waiting = comm, waiting

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._comm, name)
        return self._waiting(found) if name.lower().lstrip("i").startswith("all") else found


def _overhead(job: Any, hidden: int, args: argparse.Namespace) -> dict[str, float]:
    """Steps of the job in turn with steps of this process alone on the same part, in processor time."""
    size = Size(2080, 128, hidden, 17, 1, 16 if args.quick else 128)
    models = Tagger(size), Tagger(size)
    trainers = [dy.AdamTrainer(model.pc) for model in models]
    comm, waited = job.group.comm, 0.0

    def waiting(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal waited
            waited += timed(comm.Barrier)
            return call(*arguments, **named)

        return run

    def step(k: int, batch: list[list[int]], by: Any = None) -> None:
        gradients(models[k], dy.distributed.shard(batch, by) if by else batch)
        trainers[k].update()

    job.group.comm = Waiting(comm, waiting)
    together, alone = [], []
    for _ in range(args.steps):
        whole = models[0].minibatch()
        part = list(dy.distributed.shard(whole, by=len))
        waited = 0.0
        together.append(timed(partial(step, 0, whole, len)) - waited)
        _core._set_trainer_hooks()
        alone.append(timed(partial(step, 1, part)))
        _core._set_trainer_hooks(**job.trainer_hooks())
    job.group.comm = comm
    row: dict[str, float] = {"hidden": hidden}
    found = together, alone, [a - b for a, b in zip(together, alone)]
    for what, place in (("median", args.steps // 2), ("tenth", args.steps // 10)):
        ms, one, beside = (1e3 * sorted(times)[place] for times in found)
        row.update({f"ms {what}": ms, f"beside {what}": beside})
        if dy.distributed.is_main:
            print(f"tagger, hidden {hidden}, minibatch {size.batch} on {job.group.size} ranks, {what} of "
                  f"{args.steps} steps, processor time: {ms:.2f} ms without waiting; alone on the same "
                  f"part {one:.2f} ms; differences of pairs {beside:.2f} ms, "
                  f"{100 * beside / ms:.1f} %")  # fmt: skip
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=[*PROGRAMS], default=[*PROGRAMS])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 64, 512])
    parser.add_argument("--speed", type=float, nargs="+", default=[1.0, 16.0],
                        help="of the machines to be rented, as a multiple of this one's")  # fmt: skip
    parser.add_argument("--compress", action="store_true", help="as distribute --compress float16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="of --overhead")
    parser.add_argument("--overhead", action="store_true", help="below mpiexec: measure real ranks")
    parser.add_argument("--quick", action="store_true", help="small models")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, too")
    args = parser.parse_args()
    random.seed(1)
    _core.set_threads(args.threads)
    found = overhead(args) if args.overhead else tables(args)
    if args.json and dy.distributed.is_main:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
