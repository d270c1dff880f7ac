"""An sdist of this tree, unpacked where what was compiled of it is kept from run to run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Without optimisation and for the baseline instruction set only, which takes minutes less.
QUICK = (
    "cmake.build-type=Debug",
    "cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O0",
    "cmake.define.DYC_BASELINE_ONLY=ON",
)


def unpacked_sdist(folder: Path) -> Path:
    code = "import sys, scikit_build_core.build as backend; backend.build_sdist(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(made, folder / "unpacked")
    (tree,) = (folder / "unpacked").iterdir()
    return tree


def kept_folder(name: str, otherwise: Path) -> Path:
    """A folder below build/ for this interpreter; in a tree that is read only, `otherwise`."""
    folder = ROOT / "build" / name / str(sys.implementation.cache_tag)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return otherwise
    return folder


def sync(source: Path, target: Path, changed: Mapping[str, str]) -> None:
    """Make `target` a copy of `source` with other texts for some files. Files that are equal keep their time:
    what was compiled of them is not compiled again.
    """
    wanted = {path.relative_to(source).as_posix(): path for path in source.rglob("*") if path.is_file()}
    for name, path in wanted.items():
        content = changed[name].encode() if name in changed else path.read_bytes()
        copy = target / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    for path in [p for p in target.rglob("*") if p.is_file()]:
        if path.relative_to(target).as_posix() not in wanted:
            path.unlink()
