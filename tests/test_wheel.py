"""The wheel in an empty environment with NumPy only, away from the source tree: the examples run, and `info`.

For this interpreter the wheel is made from the objects of `make build`. DYNET_COMPAT_PYTHONS names further
interpreters (`make wheel-check PYTHONS="python3.9 python3.13"`); for each the core is compiled again, with
build requirements and NumPy from the package index.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.jobs import ENVIRONMENT, SCRIPTS, command
from support.sdists import QUICK, kept_folder, sync, unpacked_sdist
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own package", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = [sys.executable, *os.environ.get("DYNET_COMPAT_PYTHONS", "").split()]
NOT_SCRIPTS = {"common.py", "data.py", "demo.py", "export_weights.py"}
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name not in NOT_SCRIPTS)
SOURCES = {".h", ".cc", ".cu", ".inc", ".py", ".pyi", ".cmake", ".md", ".css", ".npz", ".json"}
SMALL = ("--steps", "3", "--hidden", "8", "--batch", "4", "--limit", "300", "--quiet")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("pip", "scikit_build_core", "pybind11")),
        reason="needs pip and the build requirements",
    ),
]


def run(*command: str, cwd: Path = ROOT) -> str:
    """Standard output of a command that must succeed, in an environment without our paths."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DYNET"))}
    result = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=3000
    )
    shown = f"{shlex.join(command)} fails:\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    assert result.returncode == 0, shown
    return result.stdout


def pip(*arguments: str) -> str:
    return run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


@pytest.fixture(scope="module", params=PYTHONS)
def interpreter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def wheel(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel for the interpreter."""
    folder = tmp_path_factory.mktemp("wheel")
    if interpreter == sys.executable:
        pip("wheel", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder),
            "--config-settings=build-dir=build/{wheel_tag}", str(ROOT))  # fmt: skip
    else:
        run(interpreter, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder),
            "--config-settings=build-dir=build/{wheel_tag}", str(ROOT))  # fmt: skip
    (made,) = folder.glob("*.whl")
    return made


def copy_numpy(site: Path) -> None:
    """The NumPy of this environment: no index is asked."""
    base = Path(str(importlib.metadata.distribution("numpy").locate_file("")))
    for top in sorted({file.parts[0] for file in importlib.metadata.files("numpy") or []} - {".."}):
        source = base / top
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, site / top)


def empty_environment(interpreter: str, folder: Path) -> str:
    """The interpreter of an environment without pip; with the NumPy of this environment, if it fits."""
    run(interpreter, "-m", "venv", "--without-pip", str(folder))
    python = str(folder / "bin" / "python")
    if interpreter == sys.executable:
        copy_numpy(Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()))
    return python


@pytest.fixture(scope="module")
def python(interpreter: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment that has the wheel and NumPy, and nothing else."""
    python = empty_environment(interpreter, tmp_path_factory.mktemp("environment"))
    if interpreter == sys.executable:
        pip("--python", python, "install", "--no-index", str(wheel))
    else:
        pip("--python", python, "install", str(wheel))
    return python


def test_environment(python: str, tmp_path: Path) -> None:
    code = "import importlib.metadata as m; print(*sorted(d.metadata['Name'] for d in m.distributions()))"
    assert run(python, "-c", code, cwd=tmp_path).split() == ["dynet-compat", "numpy"]
    pip("--python", python, "check")
    where = run(python, "-c", "import dynet_compat; print(dynet_compat.__file__)", cwd=tmp_path)
    assert where.startswith(str(Path(python).parents[1]))
    found = run(python, "-m", "dynet_compat", "info", cwd=tmp_path)
    version = run(python, "-c", "import platform; print(platform.python_version())").strip()
    assert re.search(rf"^python +{re.escape(version)}$", found, re.M), found


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples away from the source tree, as someone would copy them."""
    return Path(shutil.copytree(ROOT / "examples", tmp_path_factory.mktemp("away") / "examples",
                                ignore=shutil.ignore_patterns("__pycache__")))  # fmt: skip


@pytest.mark.parametrize("script", EXAMPLES)
def test_example(python: str, examples: Path, script: str) -> None:
    losses = examples / f"{script}.json"
    run(python, script, *SMALL, "--losses", str(losses), cwd=examples)
    found = json.loads(losses.read_text(encoding="utf-8"))["losses"]
    assert len(found) == 3 and all(0 < loss < 1e6 for loss in found)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_ranks(interpreter: str, python: str, tmp_path: Path, mpi: str, ranks: int) -> None:
    """They train to what one process gets, and predict; MPI and mpi4py are those of this environment."""
    if interpreter != sys.executable:
        pytest.skip("mpi4py of this environment is for its own interpreter")
    start, env = command(mpi, ranks)
    bindings = importlib.metadata.distribution("mpi4py").locate_file("mpi4py")
    (tmp_path / "mpi4py").symlink_to(str(bindings))
    env = {k: v for k, v in env.items() if not k.startswith(("PYTHON", "DYNET"))}
    env = {"LD_LIBRARY_PATH": str(ENVIRONMENT / "lib"), **env, "PYTHONPATH": str(tmp_path)}
    training = [str(SCRIPTS / "train.py"), "tagger", "SimpleSGDTrainer", "8", "30"]
    tool = [python, "-m", "dynet_compat"]
    run(*tool, "run", *training, str(tmp_path / "one"), "--dynet-seed", "9", cwd=tmp_path)
    predictor = "class Length:\n    def __call__(self, lines): return list(map(len, lines))\n"
    (tmp_path / "model.py").write_text(predictor)
    (tmp_path / "in.txt").write_text("a\nbcd\nef\n")
    for command_line in (
        ["distribute", *training, str(tmp_path / "rank"), "--dynet-seed", "9"],
        ["predict", "--block", "1", "model.py:Length", "in.txt", "-o", "out"],
    ):
        result = subprocess.run([*start, *tool, *command_line], env=env, cwd=tmp_path, capture_output=True,
                                text=True, timeout=300)  # fmt: skip
        assert result.returncode == 0, result.stderr
    names = ["one0", *(f"rank{rank}" for rank in range(ranks))]
    one, *several = (np.load(tmp_path / f"{name}.npy") for name in names)
    assert all((each == several[0]).all() for each in several)
    np.testing.assert_allclose(several[0], one, rtol=1e-6, atol=1e-6)
    assert (tmp_path / "out" / "output.txt").read_text() == "1\n3\n2\n"


def test_list_of_examples() -> None:
    assert len(EXAMPLES) >= 8


def test_wheel_holds_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/", 1)[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dynet_compat"}
    assert {"dynet_compat/py.typed", "dynet_compat/_core.pyi"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def test_sdist_holds_the_sources(tmp_path: Path) -> None:
    """What is tracked is in it, and no build output. tests/guide/test_contributing.py builds from one."""
    code = "import sys, scikit_build_core.build as backend; backend.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", code, str(tmp_path))
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    for folder in ("src", "cmake", "python", "tests", "tools", "examples", "migration_guide", "docs"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in SOURCES]
        wanted = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
        assert wanted and wanted <= names, f"not in the sdist: {sorted(wanted - names)[:10]}"
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile"} <= names
    assert not [name for name in names if name.startswith(("build/", ".venv/", "dist/", ".git/"))]


def test_sdist_in_an_empty_environment(tmp_path: Path) -> None:
    """pip builds it without a network, and an example runs where only that and NumPy are installed."""
    work = kept_folder("sdist", tmp_path)
    sync(unpacked_sdist(tmp_path), work / "tree", {})
    settings = [f"--config-settings={setting}" for setting in (*QUICK, f"build-dir={work / 'objects'}")]
    pip("wheel", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path), *settings,
        str(work / "tree"))  # fmt: skip
    (made,) = tmp_path.glob("*.whl")
    python = empty_environment(sys.executable, tmp_path / "environment")
    pip("--python", python, "install", "--no-index", str(made))
    where = run(python, "-c", "import dynet_compat; print(dynet_compat.__file__)", cwd=tmp_path)
    assert where.startswith(str(tmp_path))
    shutil.copytree(work / "tree" / "examples", tmp_path / "examples")
    run(python, EXAMPLES[0], *SMALL, cwd=tmp_path / "examples")
