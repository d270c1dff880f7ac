"""What hints take when a script starts: processor time beyond that without hints, per 1,000 lines.

    python benchmarks/starts.py [FILE...] [--repeats N] [--allowed MS] [--output FILE]

Each file (default: the programs of written/), and a script of all of them, is started in processes of its
own, as a module that the script imports, and the graph is renewed 300 times:

    start    mode `auto`, the first start after the text has changed: hints wait
    kept     mode `eager`, with what an earlier run has kept; `auto` does this, and what follows, once the
             process has used 50 times as much
    looked   mode `eager`, when the text has changed

Printed are milliseconds for 1,000 lines; `allowed x` is how many times they fit into what is allowed, 30.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPT = """
import importlib, sys, time
import dynet_compat as dy
for name in sys.argv[1:]:
    importlib.import_module(name)
begin = time.process_time()
for _ in range(300):
    dy.renew_cg()
print(time.process_time() - begin)
"""
COLUMNS = ("start", "kept", "looked")


def seconds(files: Sequence[Path], repeats: int) -> list[float]:
    """Of a script that imports the files, by column: the least of the repeats, less that without hints."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.py").write_text(SCRIPT, encoding="utf-8")
        for file in files:
            shutil.copy(file, folder)
        names = [file.stem for file in files]

        def start(hints: str, cache: str) -> float:
            environment = {**os.environ, "DYNET_COMPAT_HINTS": hints, "DYNET_COMPAT_CACHE": cache}
            environment["PYTHONPATH"] = str(HERE.parent / "examples")
            command = [sys.executable, "main.py", *names]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
            return float(done.stdout)

        kept = os.path.join(folder, "cache")
        start("eager", kept)
        sides = [("off", ""), ("auto", ""), ("eager", kept), ("eager", "")]
        times = [[start(*side) for side in sides] for _ in range(repeats)]
    plain, *hinted = map(min, zip(*times))
    return [max(taken - plain, 0.0) for taken in hinted]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=sorted((HERE / "written").glob("*.py")))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--allowed", type=float, default=30.0, help="milliseconds for 1,000 lines")
    parser.add_argument("--output", type=Path, metavar="FILE", help="writes the table as JSON")
    args = parser.parse_args(argv)
    print(f"{'':24}{'lines':>7}" + "".join(f"{column:>9}{'allowed x':>11}" for column in COLUMNS))
    rows = []
    for files in [*([path] for path in args.files), args.files]:
        name = files[0].stem if len(files) == 1 else "all"
        lines = sum(len(path.read_bytes().splitlines()) for path in files)
        found = seconds(files, args.repeats)
        rows.append((name, lines, *found))
        each = [1e6 * taken / lines for taken in found]
        print(
            f"{name:24}{lines:7}" + "".join(f"{ms:9.1f}{args.allowed / max(ms, 1e-3):11.2f}" for ms in each),
            flush=True,
        )
    if args.output:
        args.output.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
