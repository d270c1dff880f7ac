"""What hints take when a script starts: processor time of rewriting its functions, per 1,000 lines.

    python benchmarks/starts.py [FILE...] [--repeats N] [--allowed MS] [--output FILE]

Each file is loaded as a module (default: the programs of written/) and rewritten as in the mode `auto`: as
when a text is seen for the first time (`new`), and as in every later run, with what the first one has kept
(`kept`). Printed are milliseconds for 1,000 lines, and how many times they fit into what is allowed: 30.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]

from dynet_compat.hints.rewrite.kept import KeptCode  # noqa: E402
from dynet_compat.hints.rewrite.linking import link  # noqa: E402
from dynet_compat.hints.rewrite.rewriter import Rewriter  # noqa: E402


def seconds(path: Path, repeats: int) -> tuple[float, float]:
    """The least of the repeats, new and kept; code objects are made, and no function is changed."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = vars(module)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DYNET_COMPAT_CACHE"] = folder

        def new() -> None:
            text = path.read_bytes()
            rewriter = Rewriter(text, str(path), names)
            code = rewriter.rewritten()
            KeptCode(text, str(path), None).write(code, rewriter.module.meanings)
            link(code, {})

        def kept() -> None:
            code = KeptCode(path.read_bytes(), str(path), None).read(names)
            assert code is not None
            link(code, {})

        return least(new, repeats), least(kept, repeats)


def least(work: Callable[[], None], repeats: int) -> float:
    def once() -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    return min(once() for _ in range(repeats))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=sorted((HERE / "written").glob("*.py")))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--allowed", type=float, default=30.0, help="milliseconds for 1,000 lines")
    parser.add_argument("--output", type=Path, metavar="FILE", help="writes the table as JSON")
    args = parser.parse_args(argv)
    print(f"{'':24}{'lines':>7}{'new':>9}{'allowed x':>11}{'kept':>9}{'allowed x':>11}")
    rows = []
    for path in args.files:
        rows.append((path.stem, len(path.read_bytes().splitlines()), *seconds(path, args.repeats)))
    total = [sum(row[i] for row in rows) for i in (1, 2, 3)]
    for name, lines, *both in [*rows, ("all", *total)]:
        each = [1e6 * taken / lines for taken in both]
        print(f"{name:24}{lines:7}" + "".join(f"{ms:9.1f}{args.allowed / ms:11.2f}" for ms in each))
    if args.output:
        args.output.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
