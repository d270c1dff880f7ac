"""Finding a Python that has the real DyNet, or making an environment with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Optional

from .errors import CannotCompare
from .temporary_folder import TemporaryFolder

PINNED = ("dynet==2.1.2", "numpy<1.25")
SELF = "self:none"
_NAMED = "DYNET_COMPAT_ORACLE"
_PROBE = "import dynet_config, numpy, _dynet; _dynet.DynetParams"
_OTHERWISE = f"or compare with our own unbatched mode: --reference {SELF}"
_TOLD = ("Collecting", "Downloading", "Building", "Installing collected")  # lines of pip that show progress

Say = Callable[[str], None]


def clean_environment(environment: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """The environment without what would lead another interpreter to this one's packages."""
    kept = dict(os.environ if environment is None else environment)
    for name in ("PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"):
        kept.pop(name, None)
    folders = []
    for folder in kept.pop("PYTHONPATH", "").split(os.pathsep):
        strange = ("numpy", "dynet_compat", "dynet")
        if folder and not any((Path(folder) / name).exists() for name in strange):
            folders.append(folder)
    if folders:
        kept["PYTHONPATH"] = os.pathsep.join(folders)
    return kept


def why_not(python: str) -> str:
    """Why an interpreter cannot be the reference, in one line; "" if it can."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            env=clean_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return lines[-1]


def cache_folder() -> Path:
    """Where the environment is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "dynet_compat"


def free_folders() -> list[Path]:
    """Folders of caches, which are nobody's files: compiled kernels."""
    kernels = os.environ.get("DYNET_COMPAT_CACHE")
    return [cache_folder(), Path(os.path.expanduser("~")) / ".nv", *([Path(kernels)] if kernels else [])]


def pythons_38() -> Iterator[str]:
    """Interpreters of Python 3.8 on this machine: on PATH, then pyenv's."""
    found = [shutil.which("python3.8")]
    roots = [os.environ.get("PYENV_ROOT"), os.path.join(os.path.expanduser("~"), ".pyenv")]
    for root in roots:
        if root:
            found += [str(p) for p in sorted(Path(root).glob("versions/3.8*/bin/python3.8"), reverse=True)]
    for python in dict.fromkeys(found):
        if python and _is_38(python):
            yield python


def _is_38(python: str) -> bool:
    """pyenv's shims exist also where they can start nothing."""
    command = [python, "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 8))"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def make_environment(say: Say) -> str:
    """Make an environment with DyNet in the cache folder; returns its interpreter."""
    base = next(pythons_38(), None)
    if base is None:
        raise CannotCompare(
            "no Python 3.8 found, which DyNet 2.1.2 needs",
            f"name one that has DyNet with --reference-python PATH, {_OTHERWISE}",
        )
    final = cache_folder() / "reference-py38"
    say(f"making a reference environment with {' '.join(PINNED)} in {final} (once)")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = TemporaryFolder("reference-", str(final.parent))
    except OSError as error:
        raise CannotCompare(f"cannot make a reference environment: {error}", _OTHERWISE) from None
    with folder:
        python = str(folder.path / "bin" / "python")
        install = [python, "-m", "pip", "install", "--progress-bar", "off", "--disable-pip-version-check"]
        for command in ([base, "-m", "venv", str(folder.path)], [*install, *PINNED]):
            status, errors = _follow(command, folder, say)
            if status:
                last = (errors.strip().splitlines() or ["no message"])[-1]
                raise CannotCompare(
                    f"cannot install {PINNED[0]} for {base}: {last}",
                    f"name a Python that has DyNet with --reference-python PATH, {_OTHERWISE}",
                    errors,
                )
        if not final.exists():
            os.replace(folder.path, final)
    return str(final / "bin" / "python")


def _follow(command: list[str], folder: TemporaryFolder, say: Say) -> tuple[int, str]:
    """Run a command and say what it does; its exit status and its messages."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            command, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        folder.runs(process.pid)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.lstrip().startswith(_TOLD):
                    say("  " + line.strip())
            status = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdout.close()
            folder.runs(0)
        errors.seek(0)
        return status, errors.read()


def find(named: Optional[str], say: Say) -> str:
    """The reference's interpreter.

    Args:
        named: the one the user named, or None: DYNET_COMPAT_ORACLE, then the cached environment, then a
            new one.
        say: takes the lines to show the user.
    Raises:
        CannotCompare: there is none, or it has no DyNet.
    """
    fix = f"install it there with `pip install {PINNED[0]} '{PINNED[1]}'`"
    for path, source in ((named, "--reference-python"), (os.environ.get(_NAMED), _NAMED)):
        if not path:
            continue
        python = shutil.which(path)
        if python is None:
            raise CannotCompare(f"{source} {path}: no such interpreter", f"check the path, {_OTHERWISE}")
        reason = why_not(python)
        if reason:
            raise CannotCompare(f"{source} {path} has no DyNet ({reason})", f"{fix}, {_OTHERWISE}")
        return os.path.abspath(python)
    cached = cache_folder() / "reference-py38" / "bin" / "python"
    if cached.exists() and not why_not(str(cached)):
        return str(cached)
    if cached.exists():
        shutil.rmtree(cached.parent.parent, ignore_errors=True)
    python = make_environment(say)
    reason = why_not(python)
    if reason:
        raise CannotCompare(f"the new environment cannot import DyNet ({reason})", _OTHERWISE.capitalize())
    return python


def ours() -> str:
    """The interpreter that runs dynet_compat: this one."""
    return sys.executable
