"""One side of a comparison: loads a program, prints its first losses, times slices on request.

Runs under Python 3.8 too, where the original dynet lives (--reference). Protocol, one line each:
  at start   {"losses": [...], "startup": seconds}
  request    FIRST COUNT SECONDS     run batches FIRST .. FIRST+COUNT-1, again and again for SECONDS
  answer     {"instances": n, "seconds": s, "cpu": s, "computing": s}     cpu: of all threads; computing: in
             plans and kernels, as far as the library tells
An empty request or the end of input ends the process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
WRITTEN = HERE / "written"


def load_example(name: str) -> Any:
    """The script of examples/ or written/ as a module; its name is changed because Python 3.8 has its own
    `parser`."""
    sys.path.insert(0, str(EXAMPLES))
    folder = WRITTEN if (WRITTEN / (name + ".py")).exists() else EXAMPLES
    spec = importlib.util.spec_from_file_location("example_" + name, str(folder / (name + ".py")))
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_program(name: str, hidden: int, side: str | None = None) -> Any:
    """What has `load`, `build` and `train_batch`: a script of examples/ or written/, or a program of
    programs.py; with a side, that of pairs/."""
    if side:
        from pairs import load_side

        return load_side(name, side, hidden)
    from programs import PROGRAMS, Side

    return Side(name, hidden) if name in PROGRAMS else load_example(name)


def make_batches(instances: list, size: int, most: int) -> list[list]:
    """At most `most` full batches of a fixed shuffle; a small data set is repeated to fill one."""
    order = list(instances)
    random.Random(1).shuffle(order)
    while len(order) < size:
        order += order
    return [order[i : i + size] for i in range(0, len(order) - size + 1, size)][:most]


def computing() -> float:
    """Seconds that this process has spent in plans, forward and backward."""
    core = getattr(sys.modules.get("dynet_compat"), "_core", None)
    told = core.timing() if core else {}
    return sum(told.get(part, 0.0) for part in ("plan", "forward", "backward"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("example", help="of examples/, written/ or programs.py, or of pairs/")
    parser.add_argument("--side", help="of pairs/: ours, loop or batched")
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--mode", choices=("train", "predict"), default="train")
    parser.add_argument("--data")
    parser.add_argument("--pool", type=int, default=400, help="number of batches to choose from")
    parser.add_argument("--losses", type=int, default=10, help="updates before the first answer")
    args = parser.parse_known_args()[0]

    start = time.perf_counter()
    example = load_program(args.example, args.hidden, args.side)
    instances, vocab = example.load(args.data)
    model, trainer = example.build(vocab, args.hidden)
    batches = make_batches(instances, args.batch, args.pool)
    losses = [example.train_batch(model, trainer, batches[i % len(batches)]) for i in range(args.losses)]
    print(json.dumps({"losses": losses, "startup": time.perf_counter() - start}), flush=True)

    for request in sys.stdin:
        if not request.strip():
            break
        first, count, limit = (float(item) for item in request.split())
        chosen = [batches[(int(first) + i) % len(batches)] for i in range(int(count))]
        instances_done = 0
        start, cpu, computed = time.perf_counter(), time.process_time(), computing()
        while True:
            for batch in chosen:
                if args.mode == "train":
                    example.train_batch(model, trainer, batch)
                else:
                    example.predict_batch(model, batch)
                instances_done += len(batch)
            seconds = time.perf_counter() - start
            if seconds >= limit:
                break
        cpu = time.process_time() - cpu
        answer = {"instances": instances_done, "seconds": seconds, "cpu": cpu}
        print(json.dumps({**answer, "computing": computing() - computed}), flush=True)


if __name__ == "__main__":
    main()
