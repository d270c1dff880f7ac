"""What hints take when a script starts: processor time of rewriting its functions, per 1,000 lines.

    python benchmarks/starts.py [FILE...] [--repeats N] [--allowed MS] [--output FILE]

Each file is loaded as a module (default: the programs of written/) and rewritten as in the mode `auto`, the
first time apart, which also imports the rewriter. Printed are the milliseconds, and how many times they fit
into what is allowed: 30 for 1,000 lines.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]

from dynet_compat.hints.rewrite.rewriter import Rewriter  # noqa: E402


def seconds(path: Path, repeats: int) -> float:
    """The least of the repeats; code objects are made, and no function is changed."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        Rewriter(path.read_bytes(), str(path), vars(module)).codes()
        found.append(time.process_time() - begin)
    return min(found)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=sorted((HERE / "written").glob("*.py")))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--allowed", type=float, default=30.0, help="milliseconds for 1,000 lines")
    parser.add_argument("--output", type=Path, metavar="FILE", help="writes the table as JSON")
    args = parser.parse_args(argv)
    print(f"{'':24}{'lines':>7}{'ms':>8}{'ms/1000':>9}{'allowed x':>11}")
    rows = []
    for path in args.files:
        rows.append((path.stem, len(path.read_bytes().splitlines()), 1e3 * seconds(path, args.repeats)))
    for name, lines, ms in [*rows, ("all", sum(row[1] for row in rows), sum(row[2] for row in rows))]:
        each = 1e3 * ms / lines
        print(f"{name:24}{lines:7}{ms:8.1f}{each:9.1f}{args.allowed / each:11.2f}")
    if args.output:
        args.output.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
