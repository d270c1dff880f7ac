"""Packages that are imported for a model file: those that a script of the program imports, and no others."""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import test_own_classes
from dynet_compat.files import own_classes
from test_own_classes import OWN, RAN, Folder, G

program = test_own_classes.program  # a fixture

TRAIN = "def main():\n    import net\n"


def plain_of(module: str) -> bytes:
    return b"\x80\x02" + G("Plain", module) + b")\x81."


def test_packages_that_a_script_imports(program: Folder) -> None:
    """A second script need not import what the first one has saved objects of."""
    for package in ("net", "busy", "other"):
        program.write(f"{package}/__init__.py", "print('busy')\n" if package == "busy" else "")
        program.write(f"{package}/model.py", OWN)
    program.write("net/deep/__init__.py", "")
    program.write("net/deep/more.py", OWN)
    program.write("net/loose/far.py", OWN)
    program.write("train.py", "def main():\n    import net.model, os\n    from busy import model\n")
    program.write("models/readme", "")
    program.write("net/models/readme", "")
    for module in ("other.model", "busy.model", "net.loose.far", "net.none", "net.model.x"):
        program.refuses(plain_of(module), "not imported", "models")
    program.refuses(plain_of("net.model"), "not imported", "net/models")
    assert "net" not in sys.modules
    for module in ("net.deep.more", "net.model"):
        found = program.read(plain_of(module), "models")
        assert type(found).__module__ == module and RAN == []


@pytest.mark.parametrize("setter", ["net", "net.sub"])
@pytest.mark.parametrize("where", ["first", "last"])
def test_packages_that_change_where_their_modules_are(
    program: Folder, tmp_path: Path, setter: str, where: str
) -> None:
    """What is imported is the file that was looked at, not one of the same name in a folder of data."""
    program.write("train.py", TRAIN)
    program.write("net/__init__.py", "")
    program.write("net/sub/__init__.py", "")
    program.write("net/sub/model.py", OWN)
    data = str(tmp_path / "data")
    path = f"[{data!r}] + __path__" if where == "first" else f"__path__ + [{data!r}]"
    program.write(setter.replace(".", "/") + "/__init__.py", f"__path__ = {path}\n")
    for name in ("sub/__init__", "sub/model", "model"):
        program.write(f"data/{name}.py", "from test_own_classes import RAN\nRAN.append('data')\n" + OWN)
    for folder in ("data", "models", ""):
        if where == "first" or folder == "data":
            program.refuses(plain_of("net.sub.model"), "not imported", folder)
        else:
            assert type(program.read(plain_of("net.sub.model"), folder)).__module__ == "net.sub.model"
        assert RAN == []


def test_packages_that_another_module_hides(program: Folder, tmp_path: Path) -> None:
    """`import` prefers a compiled module in a folder, and what an earlier folder has."""
    program.write("train.py", TRAIN)
    program.write("net/__init__.py", "")
    program.write("net/sub/model.py", OWN)
    program.write("net/sub/__init__.py", "")
    program.write("net/sub/__init__" + EXTENSION_SUFFIXES[0], "")
    program.write("two/__init__.py", f"__path__.append({str(tmp_path / 'more')!r})\n")
    program.write("two/sub.py", OWN)
    program.write("more/sub/__init__.py", "")
    program.write("more/sub/model.py", OWN)
    program.module("two")
    before = set(sys.modules)
    for module in ("net.sub.model", "two.sub.model"):
        program.refuses(plain_of(module), "not imported", "models")
    assert set(sys.modules) == before


def test_scripts_that_cannot_be_read(
    program: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are passed over, and what the compiler has to say of others is theirs."""
    program.write("net/__init__.py", OWN)
    program.write("net/model.py", OWN)
    (tmp_path / "unreadable.py").symlink_to("/proc/self/mem")  # where there is none, the link leads nowhere
    program.write("again.py", r"pattern = '\d'" + "\nlarge = 1 is 1\n")
    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        program.refuses(plain_of("net.model"), "not imported", "models")

        def no_list(folder: str) -> None:
            raise PermissionError(folder)

        patch.setattr(own_classes.os, "listdir", no_list)
        program.refuses(plain_of("net.model"), "not imported", "models")
    assert seen == [] and "net" not in sys.modules
    program.write("train.py", TRAIN)
    assert type(program.read(plain_of("net.model"), "models")).__module__ == "net.model"
