"""Runs a command that builds the package and says in one line every few seconds how far it is.

    python tools/build.py [--wheels FOLDER] COMMAND...
    python tools/build.py --note FOLDER

The command is pip with --verbose, whose own output is shown only if it fails. With --wheels, a wheel in
FOLDER that was made from these sources is installed instead. --note writes beside each new wheel what it was
made from.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EVERY = float(os.environ.get("DYNET_COMPAT_BUILD_EVERY", "10"))  # seconds
STEP = re.compile(r"\[(\d+)/(\d+)\] (?:Building|Linking|Generating)")


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def progress(done: int, total: int, passed: float) -> str:
    """One line; the rest is estimated once a tenth is done."""
    line = f"  {done} of {total} steps, {clock(passed)} passed"
    return line + (f", about {clock(passed / done * (total - done))} to go" if done * 10 >= total else "")


def build(command: list[str]) -> int:
    print("Building the core: 2 to 5 minutes on two cores the first time. It resumes if interrupted,")
    print("and later builds compile only what has changed.", flush=True)
    started = said = time.monotonic()
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            output.append(line)
            step = STEP.search(line)
            now = time.monotonic()
            if step and now - said >= EVERY:
                said = now
                print(progress(int(step[1]), int(step[2]), now - started), flush=True)
    if process.returncode:
        sys.stdout.write("".join(output))
        return process.returncode
    done = "Built and installed" if "install" in command else "Built"
    print(f"{done} in {clock(time.monotonic() - started)}.", flush=True)
    return 0


def digest() -> str:
    """Of everything that a wheel is made from."""
    files = [ROOT / name for name in ("CMakeLists.txt", "pyproject.toml")]
    for folder in ("src", "python", "cmake"):
        files += [f for f in (ROOT / folder).rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def sources_of(wheel: Path) -> Path:
    """Where `make wheel` notes what a wheel was made from."""
    return wheel.with_name(wheel.name + ".sources")


def fitting_wheel(folder: Path) -> Path | None:
    """A wheel for this interpreter that was made from the sources as they are now."""
    from packaging.tags import sys_tags
    from packaging.utils import parse_wheel_filename

    wheels = [w for w in sorted(folder.glob("dynet_compat-*.whl")) if sources_of(w).exists()]
    if not wheels:
        return None
    now, tags = digest(), set(sys_tags())
    for wheel in wheels:
        if sources_of(wheel).read_text(encoding="utf-8").strip() != now:
            print(f"{wheel} was made from other sources.", flush=True)
        elif parse_wheel_filename(wheel.name)[3] & tags and zipfile.is_zipfile(wheel):
            return wheel
    return None


def install(wheel: Path, command: list[str]) -> int:
    print(f"Installing {wheel}, which was made from these sources. Remove it to compile them.", flush=True)
    pip = command[: command.index("install") + 1]
    return subprocess.run([*pip, "--quiet", "--no-deps", "--force-reinstall", str(wheel)]).returncode


def main(arguments: list[str]) -> int:
    if arguments[0] == "--note":  # what the wheels of a folder were made from
        for wheel in Path(arguments[1]).glob("dynet_compat-*.whl"):
            if not sources_of(wheel).exists() or wheel.stat().st_mtime > sources_of(wheel).stat().st_mtime:
                sources_of(wheel).write_text(digest() + "\n", encoding="utf-8")
        return 0
    if arguments[0] == "--wheels":
        wheel = fitting_wheel(Path(arguments[1]))
        arguments = arguments[2:]
        if wheel:
            return install(wheel, arguments)
    return build(arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
