"""What ACRoBat's models would take on a GPU, estimated without one: counts times a table of constants.

    python benchmarks/gpu_model.py [--models TreeLSTM] [--batches 8 64] [--record NS] [--constants FILE]
    python benchmarks/gpu_model.py --decoders      # transfers for each step of 64 decoders together

The counts are exact: the emulation runs the models, small, with the structure that they have at full size,
and counts steps, products, waits for other blocks, uploads and downloads; operations are counted at full
size. The constants are of H100s 80GB HBM3 with a Xeon of 16 cores (CUDA 13.0, Python 3.12), measured where
it says so, on two machines, whose hosts differed by a third; `--constants` reads others from the report of
`make gpu-check`. A row is one configuration of
inference: milliseconds of the host and of the device, with launches one by one, as a graph and in persistent
kernels, what dominates, and the same for DyNet's way.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

sys.path.insert(0, str(Path(__file__).resolve().parent))
from models import MODELS, Model

# Microseconds but where the name says otherwise. `*`: what the micro-benchmarks of gpu-check measure; `m`:
# the value that was measured, alone or in a sum. The others are guesses.
CONSTANTS: dict[str, float] = {
    "host": 1.3,  # m times of HOST on the host of the H100
    "launch": 3.8,  # * m on the host: a launch
    "graph": 4.0,  # on the host: a launch of a graph
    "describe": 0.5,  # on the host: the arguments of a step
    "upload": 2.0,  # on the host
    "flush": 29.7,  # * m an upload, a short kernel and a download, from call to return
    "kernel": 3.3,  # * m on the device: a small kernel after another
    "graph_kernel": 1.9,  # * m the same in a graph
    "step": 1.3,  # * m a step of a persistent kernel: dependent loads before the first operation
    "barrier": 1.3,  # all blocks wait for each other
    "product": 2.7,  # * m a product of few columns, beyond `kernel`: both together
    "middle_product": 13.0,  # m one of 17 to some hundred columns: it fills few of the processors
    "kept_product": 4.3,  # * m the same in a persistent kernel, with its weights on chip, and a `barrier`
    "elements": 0.3,  # an element-wise step, beyond `kernel`
    "follower": 0.4,  # an element-wise step in the launch of a product: dependent loads, operations
    "link": 1.4,  # * m a step of a chain after another: dependent loads, operations, a barrier of the block
    "dynet_launch": 4.5,  # on the host: DyNet's launch and what it copies for it
    "small_tflops": 8.0,  # of products at hidden size 256, and at 512
    "large_tflops": 12.0,
    "hidden_share": 0.4,  # of the operations of a minibatch of 8 that are not hidden behind latency
}


class HostNs(NamedTuple):
    """Nanoseconds for a node: to record it, with hints and memos, and to plan it; the same in DyNet's way."""

    record: float
    plan: float
    dynet_record: float
    dynet_plan: float


# Least of 60 minibatches of 8 after as many, on an EPYC of the fourth generation: `build` and `plan` of
# gpu.py --device cpu. The last three read values on the way.
HOST = {
    "TreeLSTM": HostNs(23, 15, 87, 134),
    "MV-RNN": HostNs(43, 21, 80, 124),
    "BiRNN": HostNs(68, 23, 117, 99),
    "NestedRNN": HostNs(42, 70, 84, 127),
    "DRNN": HostNs(284, 57, 225, 214),
    "Berxit": HostNs(177, 45, 137, 193),
    "StackRNN": HostNs(308, 57, 173, 216),
}
HIDDEN = 16  # of the models that are counted


class Counts(NamedTuple):
    """Of a minibatch."""

    nodes: float
    flushes: float
    launches: float  # as planned: a level of a recurrence is one
    steps: float  # on the device: launches and copies
    products: float
    kept: float  # products whose weights are on chip
    waits: float  # steps of persistent kernels that wait for all blocks
    uploads: float
    downloads: float
    links: float  # launches that are steps of chains, beyond the first of each
    followers: float = 0.0  # element-wise launches that products compute with their results
    middle: float = 0.0  # products of middling size

    def per_level(self) -> float:
        return self.steps / max(self.launches, 1.0)


def count(model: type[Model], batch: int, like_dynet: bool = False, persistent: bool = False) -> Counts:
    """Counts of a minibatch after others, which have made what stays, as large as it needs it."""
    import dynet_compat as dy
    import gpu

    core = dy._core
    before = core._device_options()["persistent"]
    core._device_options(persistent=persistent)
    try:
        with gpu.DynetSide(model, HIDDEN, like_dynet) as side:
            first, second, *_ = gpu.minibatches(model, HIDDEN, batch)
            for batch_before in (first, second, second):
                side.run(batch_before, False)
            core.reset_timing()
            start = core.timing()
            side.run(second, False)
            end = core.timing()
    finally:
        core._device_options(persistent=before)
    told = {name: float(end[name] - start[name]) for name in end}
    products = sum(told[f"{way}_products"] for way in gpu.WAYS)
    steps = told["device_launches"] + told["device_copies"]
    return Counts(told["recorded_nodes"], told["flushes"], told["launches"], steps, products,
                  told["device_persistent_products"], told["device_grid_syncs"], told["device_uploads"],
                  told["device_downloads"], told["device_links"], told["device_followers"],
                  told["middle_products"])  # fmt: skip


# ---------------------------------------------------------------- decoders

INSTANCES, STEPS, WORDS = 64, 12, 2000


class Decoder:
    """An LSTM over its own words, of many instances that compute together; `choose` decides what is next."""

    def __init__(self) -> None:
        import dynet_compat as dy

        self.dy = dy
        pc = dy.ParameterCollection()
        self.lstm, self.rows = (
            dy.VanillaLSTMBuilder(1, HIDDEN, HIDDEN, pc),
            pc.add_lookup_parameters((WORDS, HIDDEN)),
        )
        self.W, self.b = pc.add_parameters((WORDS, HIDDEN)), pc.add_parameters(WORDS)
        self.softmax = dy.StandardSoftmaxBuilder(HIDDEN, WORDS, pc)
        self.draws = random.Random(1)

    def decode(self, start: int) -> list[int]:
        state, words = self.lstm.initial_state(), [start]
        for _ in range(STEPS):
            state = state.add_input(self.rows[words[-1]])
            word = self.choose(state.output())
            if word < 0:
                break
            words.append(word)
        return words

    def run(self) -> list[int]:
        """How many words each instance has chosen."""
        return [len(words) - 1 for words in self.dy.batch_map(self.decode, list(range(INSTANCES)))]

    def scores(self, h: Any) -> Any:
        return self.dy.affine_transform([self.b, self.W, h])

    def choose(self, h: Any) -> int:
        raise NotImplementedError

    def count(self) -> dict[str, float]:
        """Of the second of two runs."""
        for _ in range(2):
            self.dy.renew_cg()
            self.dy._core.reset_timing()
            start = self.dy._core.timing()
            lengths = self.run()
            end = self.dy._core.timing()
        told = {
            name: float(end[f"device_{name}"] - start[f"device_{name}"]) for name in ("uploads", "downloads")
        }
        return {
            "steps": float(max(lengths)),
            "fewest": float(min(lengths)),
            "flushes": float(end["flushes"] - start["flushes"]),
            **told,
        }


class Greedy(Decoder):
    def choose(self, h: Any) -> int:
        return int(self.scores(h).npvalue().argmax())


class Sampling(Decoder):
    """By the CPU's stream of the instance."""

    def choose(self, h: Any) -> int:
        shares = self.dy.softmax(self.scores(h)).npvalue().cumsum()
        return min(int(shares.searchsorted(self.dy.instance_rng().random() * shares[-1])), WORDS - 1)


class Subtracting(Decoder):
    """As DyNet's tutorials sample."""

    def choose(self, h: Any) -> int:
        return self.draw(self.dy.softmax(self.scores(h)).vec_value())

    def draw(self, shares: list[float]) -> int:
        left = self.draws.random()
        word = 0
        while left > shares[word] and word < WORDS - 1:
            left -= shares[word]
            word += 1
        return word


class Gumbel(Decoder):
    def choose(self, h: Any) -> int:
        return int((self.scores(h) + self.dy.random_gumbel(WORDS)).npvalue().argmax())


class Drawing(Decoder):
    """By the function that the package has for it."""

    def choose(self, h: Any) -> int:
        return int(self.softmax.sample(h))


class Categorical(Decoder):
    """By DyNet's own sampling, of a Tensor."""

    def choose(self, h: Any) -> int:
        tensor = self.dy.log_softmax(self.scores(h)).tensor_value()
        return int(tensor.categorical_sample_log_prob().as_numpy()[0])


class SideBySide(Subtracting):
    """A loop over steps, in each of which loops over instances record, and then read, without batch_map."""

    def run(self) -> list[int]:
        states = [self.lstm.initial_state() for _ in range(INSTANCES)]
        words = list(range(INSTANCES))
        for _ in range(STEPS):
            states = [state.add_input(self.rows[word]) for state, word in zip(states, words)]
            shares = [self.dy.softmax(self.scores(state.output())) for state in states]
            words = [self.draw(each.vec_value()) for each in shares]
        return [STEPS] * INSTANCES


class EarlyExit(Decoder):
    """Ends when a score is high enough, which chance decides."""

    def choose(self, h: Any) -> int:
        share = self.dy.logistic(self.dy.pick(self.scores(h), 0)).value()
        return -1 if share > 1.5 * self.dy.instance_rng().random() else 1


DECODERS: dict[str, type[Decoder]] = {
    "greedy": Greedy, "sampling": Sampling, "subtracting": Subtracting, "gumbel": Gumbel,
    "drawing": Drawing, "categorical": Categorical, "side by side": SideBySide, "early exit": EarlyExit,
}  # fmt: skip


def count_decoders() -> dict[str, dict[str, float]]:
    found = {name: decoder().count() for name, decoder in DECODERS.items()}
    for name, told in found.items():
        print(f"{name:12}" + "".join(f"{what} {n:<6.0f}" for what, n in told.items()), flush=True)
    return found


# ---------------------------------------------------------------- the model


class Estimate(NamedTuple):
    """Milliseconds: recording and planning, then what the device takes in each way, and the whole."""

    host: float
    plain: float
    graph: float
    persistent: float
    total: float
    dominates: str


def compute_us(gigaflops: float, large: bool, batch: int, c: dict[str, float]) -> float:
    whole = gigaflops / c["large_tflops" if large else "small_tflops"] * 1e3
    return whole * (c["hidden_share"] if batch <= 8 else 1.0)


def products_us(n: Counts, c: dict[str, float]) -> float:
    """Beyond what kernels take that do nothing."""
    return n.middle * c["middle_product"] + (n.products - n.middle) * c["product"]


def estimate(n: Counts, walks: Counts, node_ns: float, compute: float, c: dict[str, float]) -> Estimate:
    """`walks`: counts with persistent kernels. `node_ns`: of the host, for a node. Host and device work at
    the same time within a flush."""
    host, transfers = n.nodes * node_ns * 1e-3, n.uploads * c["upload"] + n.flushes * 5.0
    others = n.steps - n.products
    followers = n.followers * c["follower"]
    work = products_us(n, c) + others * c["elements"] + n.links * c["link"] + followers + compute
    described = (n.steps + n.links + n.followers) * c["describe"]
    plain = max(n.steps * c["kernel"] + work,
                n.steps * (c["launch"] - c["describe"]) + described + transfers)  # fmt: skip
    graph = max(n.steps * c["graph_kernel"] + work,
                n.steps * 0.1 + described + n.flushes * c["graph"] + transfers)  # fmt: skip
    products = max(walks.products, n.products)  # a persistent kernel makes them, and links, one by one
    others += n.links
    kept, steps = min(walks.kept, products), others + products
    # A kept product's time is with a wait for all blocks: where there are fewer, it takes less.
    inside = steps * c["step"] + (walks.waits - kept) * c["barrier"] + kept * c["kept_product"] + compute
    inside += (products - kept) * (c["product"] + c["kernel"] - c["step"]) + others * 2 * c["elements"]
    inside += followers + n.middle * (c["middle_product"] - c["product"])
    persistent = max(inside, (steps + n.followers) * c["describe"] + n.flushes * c["launch"] + transfers)
    fixed, device = n.flushes * c["flush"], min(plain, graph, persistent)
    parts = {"recording": host, "flushes": fixed, "operations": compute, "steps": device - compute}
    told = [1e-3 * us for us in (host, plain, graph, persistent, host + fixed + device)]
    return Estimate(*told, max(parts, key=lambda name: parts[name]))


def estimate_dynet(n: Counts, node_ns: float, compute: float, c: dict[str, float]) -> float:
    work = n.steps * (c["kernel"] + 0.5) + n.middle * c["middle_product"] + compute
    device = max(work, n.steps * c["dynet_launch"])
    return 1e-3 * (n.nodes * node_ns * 1e-3 + device + n.flushes * (c["flush"] + 2.0))


def gigaflops(model: type[Model], size: int, batch: int) -> float:
    import gpu

    return gpu.work(model, size, gpu.minibatches(model, size, batch)[:1], False)[0] * 1e-9


def rows(args: argparse.Namespace, constants: dict[str, float]) -> list[dict[str, Any]]:
    found = []
    for model in (one for one in MODELS if one.name in args.models):
        ns = HostNs(*(constants["host"] * each for each in HOST[model.name]))
        record_ns = ns.record if args.record is None else args.record
        for batch in args.batches:
            mine, walks = count(model, batch), count(model, batch, persistent=True)
            theirs = count(model, batch, like_dynet=True)
            for label, size in model.sizes.items():
                if label == "quick":
                    continue
                work = compute_us(gigaflops(model, size, batch), label == "large", batch, constants)
                own = estimate(mine, walks, record_ns + ns.plan, work, constants)
                dynet = estimate_dynet(theirs, ns.dynet_record + ns.dynet_plan, work, constants)
                found.append({"model": model.name, "size": label, "batch": batch, **own._asdict(),
                              "dynet": dynet, "ratio": dynet / own.total, "counts": mine._asdict(),
                              "waits": walks.waits, "dynet_counts": theirs._asdict()})  # fmt: skip
                print(line(found[-1]), flush=True)
    return found


HEAD = (f"{'model':10}{'size':>6}{'batch':>6}{'steps':>7}{'/level':>7}{'flushes':>8}{'up':>5}{'down':>5}"
        f"{'host ms':>9}{'plain':>7}{'graph':>7}{'persist':>8}{'total':>8}{'DyNet':>8}{'ratio':>7}"
        "  dominates")  # fmt: skip


def line(row: dict[str, Any]) -> str:
    n = Counts(**row["counts"])
    return (f"{row['model']:10}{row['size']:>6}{row['batch']:>6}{n.steps:>7.0f}{n.per_level():>7.1f}"
            f"{n.flushes:>8.0f}{n.uploads:>5.0f}{n.downloads:>5.0f}{row['host']:>9.2f}{row['plain']:>7.2f}"
            f"{row['graph']:>7.2f}{row['persistent']:>8.2f}{row['total']:>8.2f}{row['dynet']:>8.2f}"
            f"{row['ratio']:>7.1f}  {row['dominates']}")  # fmt: skip


def print_ratios(what: str, found: list[dict[str, Any]]) -> None:
    ratios = [row["ratio"] for row in found]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{what}: geometric mean {mean:.1f}, least {min(ratios):.1f}")


def constants_of(args: argparse.Namespace) -> dict[str, float]:
    """The constants, and over them what a report of gpu-check has measured, and what the user says."""
    found = dict(CONSTANTS)
    if args.constants:
        report = json.loads(Path(args.constants).read_text(encoding="utf-8"))
        parts = {part["name"]: part["facts"] for part in report.get("parts", [])}
        measured = parts.get("micro", report)
        found.update({name: value for name, value in measured.items() if name in found})
    return found


def write(file: Optional[str], found: Any) -> None:
    if file:
        Path(file).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main(argv: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [model.name for model in MODELS]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--batches", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--record", type=float, metavar="NS", help="nanoseconds for a node with hints")
    parser.add_argument("--constants", metavar="FILE", help="report of gpu-check, or names and numbers")
    parser.add_argument("--decoders", action="store_true", help="count transfers of decoders instead")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    os.environ["DYNET_COMPAT_DEVICE"] = "emulation"
    sys.setrecursionlimit(10000)
    sys.argv = sys.argv[:1]  # the package reads its options there
    if args.decoders:
        write(args.json, count_decoders())
        return 0
    print(HEAD)
    found = rows(args, constants_of(args))
    print_ratios("over DyNet's way", found)
    bound = [("Berxit", 8), ("Berxit", 64), ("NestedRNN", 64)]  # by operations, and by their number of nodes
    others = [row for row in found if (row["model"], row["batch"]) not in bound]
    if 0 < len(others) < len(found):
        print_ratios(f"the {len(others)} without Berxit and NestedRNN of 64", others)
    write(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
