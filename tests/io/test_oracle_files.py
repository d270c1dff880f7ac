# ruff: noqa: UP031
"""Files of the real DyNet read here, and ours read there; equal values give equal bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import models, oracle
from support.subject import IS_REFERENCE

FILES = oracle.DATA / "files"
RECORDER = oracle.TESTS / "oracle" / "record_files.py"
TEXTS = sorted(path.name for path in FILES.glob("*.txt"))
# DyNet writes this many bytes of a value that is no number, and counts others.
SPECIAL = "special.txt"

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="compares with the reference")


def in_reference(python: str, command: str, folder: Path) -> None:
    done = subprocess.run(
        [python, str(RECORDER), command, str(folder)],
        env=oracle.clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def parsed(path: Path) -> list[tuple[str, str, np.ndarray]]:
    """(kind, key, values) of a file, by nothing but Python."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for header, values in zip(lines, lines[1:]):
        if header.startswith("#"):
            kind, key = header.split()[:2]
            found.append((kind, key, np.array([float(x) for x in values.split()], dtype=np.float32)))
    return found


def in_collection(pc: Any) -> list[np.ndarray]:
    return [models.values_of(p) for p in [*pc.parameters_list(), *pc.lookup_parameters_list()]]


def by_kind(blocks: list[tuple[str, str, np.ndarray]]) -> list[np.ndarray]:
    """In the order of a collection."""
    kinds = ("#Parameter#", "#LookupParameter#")
    return [values for kind in kinds for found, _, values in blocks if found == kind]


def assert_same(left: list[np.ndarray], right: list[np.ndarray]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right):
        assert a.tobytes() == b.tobytes()


def unbound(path: Path) -> bytes:
    """A file's contents, without what binds a .meta to its .data: DyNet does not write that."""
    return models.unbound(path) if path.suffix == ".meta" else path.read_bytes()


def written(dy: Any, folder: Path) -> None:
    for name in models.MODELS:
        dy.save(folder / name, models.made(dy, name)[1])
    models.write_texts(dy, str(folder))


@pytest.mark.parametrize("name", models.MODELS)
def test_recorded_file_loads(dy: Any, name: str) -> None:
    pc = dy.ParameterCollection()
    objects = dy.load(FILES / name, pc)
    _, expected = models.made(dy, name)
    assert [type(item) for item in objects] == [type(item) for item in expected]
    assert [item.spec for item in objects if hasattr(item, "param_collection")] == [
        item.spec for item in expected if hasattr(item, "param_collection")
    ]
    if name != "VanillaLSTMBuilder-ln":  # its layer normalisation is outside the builder's collection
        assert_same(in_collection(pc), by_kind(parsed(FILES / (name + ".data"))))
    names = [p.name() for p in pc.parameters_list()]
    assert names == [p.name() for p in models.made(dy, name)[0].parameters_list()]


@pytest.mark.parametrize("name", models.MODELS)
def test_same_bytes(dy: Any, name: str, tmp_path: Path) -> None:
    """Equal values: equal files, .data and .meta, but for what binds the two."""
    dy.save(tmp_path / name, models.made(dy, name)[1])
    for end in (".data", ".meta"):
        assert unbound(tmp_path / (name + end)) == (FILES / (name + end)).read_bytes()


def test_same_text_bytes(dy: Any, tmp_path: Path) -> None:
    """Keys, appending, gradients, values after an update, weight decay."""
    models.write_texts(dy, str(tmp_path))
    compared = 0
    for name in TEXTS:
        if name != SPECIAL and (tmp_path / name).exists():
            assert (tmp_path / name).read_bytes() == (FILES / name).read_bytes(), name
            compared += 1
    assert compared >= 7


def test_special_values(dy: Any, tmp_path: Path) -> None:
    """DyNet miscounts the bytes of inf and nan, and cannot read them; here the lines count."""
    models.write_special(dy, str(tmp_path))
    ours, theirs = ((folder / SPECIAL).read_bytes().split(b"\n") for folder in (tmp_path, FILES))
    assert ours[1:] == theirs[1:]
    assert ours[0] == theirs[0].replace(b" 65 ", b" 32 ") and int(ours[0].split()[3]) == len(ours[1]) + 1
    for folder in (tmp_path, FILES):
        pc = dy.ParameterCollection()
        pc.add_parameters((2, 2))
        pc.add_parameters(2)
        pc.populate(folder / SPECIAL)
        p, q = pc.parameters_list()
        assert np.array_equal(p.as_array(), [[np.inf, 1.5], [-np.inf, np.nan]], equal_nan=True)
        assert_same([models.values_of(q)], [parsed(FILES / SPECIAL)[1][2]])
        loaded = dy.ParameterCollection().load_param(folder / SPECIAL, "/_1")
        assert_same([models.values_of(loaded)], [models.values_of(q)])


def test_recorded_gradients(dy: Any) -> None:
    """A gradient in a file is a gradient afterwards, but is not saved again."""
    pc, objects = models.made(dy, "mixed")
    pc.populate(FILES / "gradients.txt")
    assert objects[0].grad_as_array().tolist() == [[1.0, 1.0], [1.0, 1.0]]
    rows = objects[2].as_array()
    assert np.allclose(objects[2].grad_as_array(), [[0.0, 0.0], rows[2] + 1, rows[1]])


@pytest.mark.parametrize("name", [n for n in models.COLLECTIONS if (FILES / (n + ".txt")).exists()])
def test_recorded_collection_populates(dy: Any, name: str) -> None:
    if not hasattr(dy, name):
        pytest.skip("this build has no " + name)
    pc = dy.ParameterCollection()
    models.COLLECTIONS[name](dy, pc)
    pc.populate(FILES / (name + ".txt"))
    assert_same(in_collection(pc), by_kind(parsed(FILES / (name + ".txt"))))


@pytest.mark.oracle
def test_reference_reads_ours(dy: Any, oracle_python: str, tmp_path: Path) -> None:
    """The real DyNet loads every file of ours; what it then saves is the same, to the byte."""
    written(dy, tmp_path)
    in_reference(oracle_python, "read", tmp_path)
    names = [n + end for n in models.MODELS for end in (".data", ".meta") if not n.endswith("-ln")]
    names += [n + ".txt" for n in models.COLLECTIONS if hasattr(dy, n)]
    for name in names:
        assert (tmp_path / ("again-" + name)).read_bytes() == unbound(tmp_path / name), name


@pytest.mark.oracle
def test_recordings_are_current(oracle_python: str, tmp_path: Path) -> None:
    in_reference(oracle_python, "record", tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in FILES.iterdir()}
    for path in FILES.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
