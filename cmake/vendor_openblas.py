"""Copies the OpenBLAS of the scipy-openblas32 wheel into a folder, under a library name of our own.

Usage: vendor_openblas.py FOLDER. Prints the include folder, the copied library and its licence, one a line.

The loader keeps one library per SONAME in a process. The wheel's is the name that any other package may
use for its own copy, with its own number of threads, so the copy gets another one. The new name has the old
one's length, and is written over it in the string table: no tool beyond Python is needed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

WHEEL_NAME = b"libscipy_openblas.so"
OUR_NAME = b"libdynet_openblas.so"


def wheel_folder() -> Path:
    """The package's folder, found without importing it: importing would load the library."""
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or spec.origin is None:
        sys.exit("this Python has no scipy-openblas32")
    return Path(spec.origin).parent


def renamed(library: bytes) -> bytes:
    """The library with our SONAME; stops where the name is not there exactly once."""
    old, new = b"\0" + WHEEL_NAME + b"\0", b"\0" + OUR_NAME + b"\0"
    if len(old) != len(new) or library.count(old) != 1:
        sys.exit(f"{WHEEL_NAME.decode()} is not in the library exactly once")
    return library.replace(old, new)


def licence_text() -> str:
    """What the wheel says about redistribution: OpenBLAS and the GCC runtime inside it."""
    for file in importlib.metadata.files("scipy-openblas32") or []:
        if file.name == "LICENSE.txt":
            return Path(str(file.locate())).read_text(encoding="utf-8")
    sys.exit("scipy-openblas32 has no licence file to install with the library")


def write_if_changed(path: Path, content: bytes) -> None:
    """Leaves an equal file alone, so that a second configure does not relink."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def main() -> None:
    if not sys.platform.startswith("linux"):
        sys.exit("vendoring OpenBLAS is written for Linux")
    target = Path(sys.argv[1])
    source = wheel_folder()
    library = source / "lib" / WHEEL_NAME.decode()
    if not library.exists():
        sys.exit(f"scipy-openblas32 has no lib/{WHEEL_NAME.decode()}")
    target.mkdir(parents=True, exist_ok=True)
    write_if_changed(target / OUR_NAME.decode(), renamed(library.read_bytes()))
    write_if_changed(target / "LICENSE.openblas.txt", licence_text().encode())
    print(source / "include", target / OUR_NAME.decode(), target / "LICENSE.openblas.txt", sep="\n")


if __name__ == "__main__":
    main()
