"""The command line of `compare`."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ..files.atomic import replacing
from . import reference, report
from .errors import CannotCompare
from .runs import ScriptRunner, Side
from .side_by_side import Result, SideBySide
from .table import Printer, Progress
from .temporary_folder import TemporaryFolder

_USES = re.compile(r"^\s*(import|from)\s+(_?dynet|_gdynet|dynet_compat|dynet_config)\b", re.MULTILINE)
# A comment by which a script that is no program for DyNet stays out of a comparison of several.
_SKIP = re.compile(r"^# dynet_compat compare: skip: (.+?)\s*$", re.MULTILINE)
_EPILOG = """\
Options of compare stand before the script; everything after it goes to the script. Several scripts, or a
folder, give a summary: every argument that ends in .py before the first other one is a script, and one with
the comment `# dynet_compat compare: skip: reason` is left out. The script's --dynet-* options hold on both
sides: `compare script.py --dynet-autobatch 1` compares with DyNet's own batching.

No file of yours is changed: each run works in a copy of the folder, and what it writes is compared.

exit status: 0 equal within --rtol; 1 not equal, or one side crashed; 2 nothing could be compared.
"""


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0 or math.isinf(number):
        raise argparse.ArgumentTypeError(f"expected a number > 0, got {text}")
    return number


def _natural(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number > 0, got {text}")
    return number


def _count(text: str) -> int:
    return 0 if text.strip() == "0" else _natural(text)


def _seed(text: str) -> int:
    number = int(text)
    if not 0 < number < 2**32:
        raise argparse.ArgumentTypeError(f"expected 0 < seed < 2**32, got {text}")
    return number


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m dynet_compat compare",
        usage="%(prog)s [options] script.py [more.py ...] [arguments of the script]",
        description="Runs an unmodified script on DyNet and on dynet_compat and compares them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add(
        "--reference",
        metavar="WHAT",
        default="dynet",
        help="dynet (default), or self:none, our unbatched mode",
    )
    add("--hints", action="store_true", help="compare dynet_compat with hints to dynet_compat without them")
    add("--reference-python", metavar="PATH", help="a Python that has dynet 2.1.2 (default: found, or made)")
    add("--rtol", type=_positive, default=1e-4, help="largest relative difference (default 1e-4)")
    add("--steps", type=_natural, metavar="N", help="stop after N updates")
    repeats = (
        "timed runs per side (default: up to 3, while all takes less than 5 times the script; 0: no times)"
    )
    add("--repeats", type=_count, metavar="N", help=repeats)
    add("--seed", type=_seed, default=1, help="seed, unless the script or --dynet-seed sets one (default 1)")
    add("--timeout", type=_positive, metavar="SECONDS", help="of one run (default: none)")
    add("--report", metavar="FILE", help="the HTML report (default: compare-SCRIPT.html)")
    add("--no-report", action="store_true", help="write no HTML report")
    add("--json", metavar="FILE", help="write everything as JSON; - is stdout, where then no table goes")
    add("--plain", action="store_true", help="plain text, also where rich is installed")
    add(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="bar on stderr (default: on a terminal; elsewhere lines, in runs of more than 5 s)",
    )
    return made


def _split(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """Options, scripts, and arguments of the scripts, which are not looked at."""
    options, rest = _until_script(list(arguments))
    chosen = parser().parse_args(options)
    scripts: list[str] = []
    while rest and not rest[0].startswith("-") and (not scripts or rest[0].endswith(".py")):
        scripts.append(rest.pop(0))
    if not scripts:
        parser().error("expected a script")
    return chosen, scripts, rest[1:] if rest[:1] == ["--"] else rest


def _until_script(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first argument that is no option, nor the value of one; and the rest."""
    with_value = {
        option for action in parser()._actions if action.nargs != 0 for option in action.option_strings
    }
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--":
            return arguments[:at], arguments[at + 1 :]
        at += 2 if arguments[at] in with_value and not arguments[at].startswith("--no-progress") else 1
    return arguments[:at], arguments[at:]


def _strangers(args: Sequence[str]) -> list[str]:
    """Options of compare among the arguments of the script."""
    known = {option for action in parser()._actions for option in action.option_strings} - {"-h", "--help"}
    return [arg for arg in args if arg.split("=")[0] in known]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CannotCompare(f"cannot read {path}: {error.strerror}", "check the path") from None


def why_skipped(text: str) -> str:
    """Why a script among several is not run; empty if it is."""
    asks = _SKIP.search(text)
    if asks:
        return asks.group(1)
    return "" if _USES.search(text) else "does not import dynet"


def find_scripts(named: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Files to run, and files of several that do not use the library or say that they are not to be compared.

    Raises:
        CannotCompare: a file does not exist, or a folder has no script.
    """
    scripts: list[Path] = []
    for name in named:
        path = Path(name)
        if path.is_dir():
            inside = sorted(path.glob("*.py"))
            if not inside:
                raise CannotCompare(f"{name}: no .py file in this folder", "name a script")
            scripts += inside
        elif path.is_file():
            scripts.append(path)
        else:
            raise CannotCompare(f"{name}: no such script", "check the path, from the folder you are in")
    if len(scripts) == 1:
        return [scripts[0].resolve()], []
    using = [path.resolve() for path in scripts if not why_skipped(_text(path))]
    return using, [path.resolve() for path in scripts if path.resolve() not in using]


def _sides(chosen: argparse.Namespace, say: Any) -> tuple[Side, Side]:
    ours = Side("dynet_compat", reference.ours(), "ours")
    if chosen.hints:
        sides = [Side(f"hints {which}", reference.ours(), "ours", hints=which) for which in ("off", "on")]
        return sides[0], sides[1]
    if chosen.reference == reference.SELF:
        unbatched = {"DYNET_COMPAT_SCHEDULER": "none"}
        return Side("dynet_compat unbatched", reference.ours(), "ours", unbatched), ours
    if chosen.reference != "dynet":
        raise CannotCompare(f"--reference {chosen.reference}: unknown", f"expected dynet or {reference.SELF}")
    return Side("DyNet", reference.find(chosen.reference_python, say), "reference"), ours


def write(path: str, text: str, what: str) -> None:
    """Write a file, at once or not at all.

    Raises:
        CannotCompare: the disk is full, the folder is missing, ...
    """
    try:
        with replacing(path) as file:
            file.write(text.encode("utf-8"))
    except OSError as error:
        raise CannotCompare(
            f"cannot write the {what} {path}: {error.strerror or error}",
            "free some space, or name another place (--report FILE, --json FILE)",
        ) from None


def _report_path(chosen: argparse.Namespace, scripts: Sequence[Path]) -> str:
    if chosen.report:
        return str(chosen.report)
    return f"compare-{scripts[0].stem}.html" if len(scripts) == 1 else "compare-report.html"


def _check_place(path: str, what: str) -> None:
    """Refuse a place that cannot be written before the long runs."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise CannotCompare(f"cannot write the {what} {path}", "name a file in a folder that can be written")


def compare_one(
    script: Path, args: list[str], sides: tuple[Side, Side], chosen: argparse.Namespace, watch: Progress
) -> Result:
    """Compare one script; what cannot be compared becomes a result, too."""
    try:
        with TemporaryFolder("dynet_compat-compare-") as folder:
            timeout = chosen.timeout or 0.0
            steps = chosen.steps or 0
            runner = ScriptRunner(str(script), args, chosen.seed, steps, folder.path, timeout, folder.runs)
            both = SideBySide(runner, sides, chosen.rtol, chosen.repeats, watch)
            try:
                return both.run()
            except CannotCompare as error:
                both.result.status, both.result.message = "failed", str(error)
                return both.result
    except OSError as error:
        hint = "free some space there, or set TMPDIR to another disk"
        message = str(
            CannotCompare(f"cannot work in {tempfile.gettempdir()}: {error.strerror or error}", hint)
        )
        return Result(str(script), args, message=message, names=[side.name for side in sides])


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


def _show(results: list[Result], printer: Printer) -> None:
    for result in results:
        if result.status == "failed" and not any(result.verdict.compared.values()):
            continue  # one line on stderr says it
        if result.status != "skipped" and (len(results) == 1 or result.status != "equal"):
            printer.result(result)
    if len(results) > 1:
        printer.summary(results)


def _run(chosen: argparse.Namespace, scripts: list[str], args: list[str], command: str) -> int:
    files, others = find_scripts(scripts)
    if not files:
        raise CannotCompare("none of the files imports dynet", "name a script that does")
    target = "" if chosen.no_report else _report_path(chosen, files)
    for path, what in ((target, "report"), (chosen.json if chosen.json != "-" else "", "JSON file")):
        if path:
            _check_place(path, what)
    printer = Printer(sys.stderr if chosen.json == "-" else sys.stdout, chosen.plain)
    watch = Progress(chosen.progress, chosen.plain)
    strange = _strangers(args)
    if strange:
        print(f"note: {strange[0]} goes to the script; options of compare stand before it", file=sys.stderr)
    results = []
    try:
        sides = _sides(chosen, lambda line: print(line, file=sys.stderr))
        for script in files:
            results.append(compare_one(script, args, sides, chosen, watch))
            if len(files) > 1 and not watch.on:
                printer.line(f"{script.name}: {results[-1].message}")
    except KeyboardInterrupt:
        if not results:
            raise
        print("interrupted: the report has what was done so far", file=sys.stderr)
    finally:
        watch.close()
    results += [Result(str(path), args, "skipped", why_skipped(_text(path))) for path in others]
    _show(results, printer)
    status = _status(results)
    for result in results:
        if result.status == "failed":
            _fail(result.message)
    if chosen.json:
        everything = {"exit_status": status, "results": [r.as_json() for r in results]}
        text = json.dumps(_finite(everything), indent=1, allow_nan=False) + "\n"
        if chosen.json == "-":
            sys.stdout.write(text)
        else:
            write(chosen.json, text, "JSON file")
    if target and any(r.names for r in results):
        write(target, report.page(results, command), "report")
        printer.line(f"report: {target}")
    return status


def _finite(value: Any) -> Any:
    """What JSON can say: NaN and infinite numbers become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _status(results: Sequence[Result]) -> int:
    """Of all scripts: 1 if any differs, else 2 if any could not be compared."""
    each = {result.exit_status for result in results}
    return 1 if 1 in each else 2 if 2 in each else 0


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Parse the command line and compare; returns the exit status."""
    given = sys.argv[2:] if arguments is None else list(arguments)
    chosen, scripts, args = _split(given)
    command = shlex.join(["python", "-m", "dynet_compat", "compare", *given])
    try:
        return _run(chosen, scripts, args, command)
    except CannotCompare as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
