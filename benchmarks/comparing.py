"""How many times as long as the script itself `compare` takes, in processor time.

    python benchmarks/comparing.py [--reads N] [--reference-python PATH] [-- OPTIONS]

The script records small graphs and reads every value of them, which is the dearest kind: each read is written
down. Its time is that of one run on each side; OPTIONS go to `compare`. Wanted: at most 5.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import dynet as dy
pc = dy.ParameterCollection()
W, E = pc.add_parameters((8, 8)), pc.add_lookup_parameters((100, 8))
trainer = dy.SimpleSGDTrainer(pc, 0.01)
total = 0.0
for graph in range({graphs}):
    dy.renew_cg()
    values = [dy.pick(E[i % 100], i % 8) for i in range(1000)]
    for value in values:
        total += value.value()
    if graph % 10 == 0:
        dy.squared_norm(W * E[graph % 100]).backward()
        trainer.update()
"""


def seconds(command: list[str], folder: str) -> float:
    """Processor time of a command and of all that it starts."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return spent() - before


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reads", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--reference-python", metavar="PATH", help="a Python that has DyNet; default: none")
    parser.add_argument("options", nargs="*", help="of compare")
    args = parser.parse_args(argv)
    ours = [sys.executable, "-m", "dynet_compat"]
    reference = args.reference_python
    sides = [[*ours, "run", "reads.py"], [reference, "reads.py"] if reference else [*ours, "run", "reads.py"]]
    which = ["--reference-python", reference] if reference else ["--reference", "self:none"]
    compare = [*ours, "compare", *which, "--no-report", *args.options, "reads.py"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "reads.py").write_text(SCRIPT.format(graphs=args.reads // 1000))
        rounds = [[seconds(command, folder) for command in (*sides, compare)] for _ in range(args.repeats)]
    least = [min(times) for times in zip(*rounds)]
    plain, compared = sum(least[:2]), least[2]
    print(
        f"{args.reads} reads: {plain:.2f} s on both sides, {compared:.2f} s compared, {compared / plain:.2f}x"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
