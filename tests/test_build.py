"""The build: few units, resumed after an interruption, progress, wheels that fit the sources."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_codebase import ROOT

BIN = Path(sys.executable).parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

needs_tools = pytest.mark.skipif(
    importlib.util.find_spec("pybind11") is None or not (BIN / "ninja").exists(),
    reason="needs the build requirements of requirements-dev.txt",
)


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("build_tool", ROOT / "tools" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def configure(build: Path, pybind11: Path) -> None:
    run(str(BIN / "cmake"), "-S", str(ROOT), "-B", str(build), "-G", "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}", f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={pybind11 / 'share' / 'cmake' / 'pybind11'}")  # fmt: skip


# ---------------------------------------------------------------- units


def test_pybind11_is_in_few_headers() -> None:
    """Its header costs a file four seconds, so a header that others include must not include it."""
    headers = (ROOT / "src").rglob("*.h")
    found = {h.name for h in headers if "#include <pybind11/" in h.read_text(encoding="utf-8")}
    assert found == {"float_arrays.h", "collection_caster.h"}, "use bindings/pybind_names.h for declarations"


@needs_tools
def test_an_interrupted_build_resumes_in_another_environment(tmp_path: Path) -> None:
    """pip makes a new environment for each build; the backend then removes CMake's folder at the top."""
    original = Path(run(sys.executable, "-c", "import pybind11; print(pybind11.__path__[0])").strip())
    build, one = tmp_path / "build", "src/CMakeFiles/dyc_once.dir/bindings/compute.cc.o"
    for i in range(2):
        shutil.copytree(original, tmp_path / f"environment{i}" / "pybind11")
        configure(build, tmp_path / f"environment{i}" / "pybind11")
        said = run(str(BIN / "ninja"), "-C", str(build), one)
        compiled = [c for c in re.findall(r"Building CXX object (\S+)", said)]
        assert compiled == ([] if i else [one]), "objects that were there are compiled again: " + said
        (build / "CMakeCache.txt").unlink()
        shutil.rmtree(build / "CMakeFiles")
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    assert len(commands) <= 60, f"{len(commands)} units: see cmake/DycUnits.cmake"


def test_pip_keeps_objects_and_wheels_are_without_the_emulation() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^build-dir = "build/\{wheel_tag\}"$', project, re.M)
    assert 'cmake.define.DYC_EMULATION = "OFF"' in project
    recipe = re.search(r"^\$\(VENV\)/\.built:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert recipe and "$(EMULATION)" in recipe.group(1), "`make test` would skip tests of GPU kernels"
    assert "DYC_EMULATION=ON" in MAKEFILE


# ---------------------------------------------------------------- what it says


def test_progress(tool: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "EVERY", 0.0)
    steps = "for i in range(1, 5): print(f'  [{i}/40] Building CXX object src/{i}.o', flush=True)"
    assert tool.main([sys.executable, "-c", steps]) == 0
    said = capfd.readouterr().out
    assert "minutes" in said.splitlines()[0] and "  2 of 40 steps, 0:00 passed\n" in said
    assert "  4 of 40 steps, 0:00 passed, about 0:0" in said and "src/" not in said


def test_output_of_a_build_that_fails(tool: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert tool.main([sys.executable, "-c", "print('graph.cc:1: error: no'); raise SystemExit(3)"]) == 3
    assert "graph.cc:1: error: no" in capfd.readouterr().out


# ---------------------------------------------------------------- wheels


@pytest.fixture
def dist(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a wheel for this interpreter, made from the sources of a small tree."""
    tree = tmp_path / "tree"
    for name in ("src/graph.cc", "python/a.py", "cmake/a.cmake", "CMakeLists.txt", "pyproject.toml"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(tool, "ROOT", tree)
    folder = tmp_path / "dist"
    folder.mkdir()
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    shutil.make_archive(str(folder / f"dynet_compat-0.1.0-{tag}-none-any"), "zip", tree)
    (made,) = folder.glob("*.zip")
    made.rename(made.with_suffix(".whl"))
    assert tool.main(["--note", str(folder)]) == 0
    return folder


def test_a_wheel_that_fits_is_installed(tool: Any, dist: Path, capfd: pytest.CaptureFixture[str]) -> None:
    echo = "import sys; print('RUN', *sys.argv[1:])"
    assert tool.main(["--wheels", str(dist), sys.executable, "-c", echo, "install", "."]) == 0
    said = capfd.readouterr().out
    assert f"RUN install --quiet --no-deps --force-reinstall {dist}" in said and "Building" not in said


@pytest.mark.parametrize("change", ["src/graph.cc", "src/new.cc", "pyproject.toml"])
def test_a_wheel_of_other_sources_is_not(tool: Any, dist: Path, change: str) -> None:
    (tool.ROOT / change).write_text("other", encoding="utf-8")
    assert tool.fitting_wheel(dist) is None



def test_a_wheel_of_another_interpreter_is_not(tool: Any, dist: Path) -> None:
    for file in dist.iterdir():
        file.rename(dist / re.sub(r"-cp\d+-", "-cp27-", file.name))
    assert tool.fitting_wheel(dist) is None


def test_a_wheel_without_a_note_is_not(tool: Any, dist: Path) -> None:
    for note in dist.glob("*.sources"):
        note.unlink()
    assert tool.fitting_wheel(dist) is None
