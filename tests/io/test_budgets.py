"""Small .meta files that ask for much memory or time are refused; large models are not."""

from __future__ import annotations

import collections
import pickle
import resource
import struct
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.models import unbind
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("the reference has no such reader", allow_module_level=True)

from dynet_compat.files import unpickler
from dynet_compat.files.pickle_names import Names
from dynet_compat.files.unpickler import load_all

MEGABYTE = b"B" + struct.pack("<I", 10**6) + b"x" * 10**6 + b"q\x000"
TEXT = b"X" + struct.pack("<I", 10**6) + b"x" * 10**6 + b"q\x000"
PRIME = 2**61 - 1  # integers that differ by it have one hash


def read(data: bytes) -> Any:
    return load_all(data, Names(lambda module, name: None, "from_spec", (), "load()"))


def calls(name: str, argument: bytes, times: int) -> bytes:
    module, function = name.rsplit(".", 1)
    return f"c{module}\n{function}\n".encode() + b"q\x010" + (b"h\x01" + argument + b"R") * times


def long_int(n: int) -> bytes:
    raw = n.to_bytes(10, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def array_state(count: int) -> bytes:
    """Arrays of the bytes in memo 0."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntC\x01btR"
    state = b"(I1\n(I1000000\ntcnumpy\ndtype\n(Vu1\ntRI00\nh\x00tb"
    return (array + state) * count


MEMORY: dict[str, Callable[[], bytes]] = {
    "bytearray": lambda: MEGABYTE + b"(" + calls("builtins.bytearray", b"h\x00\x85", 3000) + b"l.",
    "encode": lambda: (
        TEXT + b"(" + calls("_codecs.encode", b"h\x00X\x06\x00\x00\x00latin1\x86", 3000) + b"l."
    ),
    "arrays": lambda: MEGABYTE + b"(" + array_state(300) + b"l.",
    "lists": lambda: (
        b"(" + b"K\x01" * 500000 + b"lq\x000(" + calls("builtins.list", b"h\x00\x85", 3000) + b"l."
    ),
}


def same_hash(count: int, end: bytes) -> bytes:
    return b"".join(long_int(i * PRIME) + end for i in range(count))


def complex_number(i: int) -> bytes:
    return b"h\x00G" + struct.pack(">d", -1000003.0 * i) + b"G" + struct.pack(">d", float(i)) + b"\x86RN"


OTHER_TEXT = TEXT.replace(b"q\x00", b"q\x01")
ITEMS = b"(" + b"K\x01" * 500000 + b"lq\x000("
NUMBERED = b"}(" + b"".join(b"J" + struct.pack("<i", i) + b"N" for i in range(100000)) + b"uq\x000("
LONG = b"\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b"q\x000"
TIME: dict[str, Callable[[], bytes]] = {
    "tuples": lambda: ITEMS + calls("builtins.tuple", b"h\x00\x85", 3000) + b"l.",
    "sets": lambda: ITEMS + calls("builtins.set", b"h\x00\x85", 1000) + b"l.",
    "dictionaries": lambda: NUMBERED + calls("collections.Counter", b"h\x00\x85", 1000) + b"l.",
    "heavy keys": lambda: b"(" + b"K\x01" * 99990 + b"tq\x000}(" + b"h\x00N" * 60000 + b"u.",
    "keys of one hash": lambda: b"}(" + same_hash(50000, b"N") + b"u.",
    "members of one hash": lambda: b"\x80\x04\x8f(" + same_hash(50000, b"") + b"\x90.",
    "frozen set of one hash": lambda: b"\x80\x04(" + same_hash(50000, b"") + b"\x91.",
    "tuples of one hash": lambda: b"}(" + same_hash(50000, b"\x85N") + b"u.",
    "complex numbers of one hash": lambda: (
        b"cbuiltins\ncomplex\nq\x000}(" + b"".join(map(complex_number, range(40000))) + b"u."
    ),
    "long equal texts": lambda: TEXT + OTHER_TEXT + b"}(h\x00N" + b"h\x01N" * 300000 + b"u.",
    "long numbers as keys": lambda: LONG + b"}(" + b"h\x00N" * 300000 + b"u.",
}


@pytest.mark.parametrize("name", [*MEMORY, *TIME])
def test_bombs_are_refused_soon(name: str) -> None:
    data = (MEMORY.get(name) or TIME[name])()
    assert len(data) < 4e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    what = "copies of more than" if name in MEMORY else "steps with containers"
    with pytest.raises(pickle.UnpicklingError, match=rf"the file has .* asks for .*{what}|nested too deeply"):
        read(data)
    seconds = time.process_time() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert seconds < 10, f"{len(data)} bytes took {seconds:.1f} s"
    assert grown < 300_000, f"{len(data)} bytes took {grown} KB"


def test_usual_models_are_far_from_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what each byte allows will do, without what is free."""
    monkeypatch.setattr(unpickler, "_FREE_STEPS", 1000)
    monkeypatch.setattr(unpickler, "_FREE_MEMORY", 1000)
    monkeypatch.setattr(unpickler, "_STEPS_PER_BYTE", unpickler._STEPS_PER_BYTE // 2)
    monkeypatch.setattr(unpickler, "_MEMORY_PER_BYTE", unpickler._MEMORY_PER_BYTE // 2)
    rng = np.random.RandomState(1)
    words = [f"word{i}" for i in range(4000)]
    pairs = rng.randint(0, 3000, (4000, 2)).tolist()
    items = [
        {word: i for i, word in enumerate(words)},
        collections.Counter(tuple(pair) for pair in pairs),
        {(words[a], words[b], (a, b)): 1.0 for a, b in pairs},
        {frozenset(pair): 1 for pair in pairs},
        [{(1, 2), (3, 4), i} for i in range(2000)],
        {a * 2**62 + b: 1 for a, b in pairs},
        {np.int64(a): np.float32(b) for a, b in pairs},
        {complex(a, b): 1 for a, b in pairs},
        {a + b / 3000: 1 for a, b in pairs},
        rng.randn(30, 1000),
        [bytearray(b"x" * 10000)] * 100,
        b"\xff" * 10**6,
        [(0, 1)] * 3000,
        [{"a": (1, 2)} for _ in range(2000)],
    ]
    for protocol in (2, 4):
        for item in items:
            data = pickle.dumps(item, protocol)
            (found,) = read(data)
            assert len(found) == len(item)


def test_copies_of_parameters(dy: Any, tmp_path: Path) -> None:
    """A .meta file may name a parameter again and again, but not fill the memory with it."""
    pc = dy.ParameterCollection()
    p = pc.add_parameters(10**6)
    dy.save(tmp_path / "m", [p] * 3)
    assert len(dy.load(tmp_path / "m", dy.ParameterCollection())) == 3
    dy.save(tmp_path / "m", [p] * 60)
    target = dy.ParameterCollection()
    with pytest.raises(
        RuntimeError, match="object 33: the objects up to this one copy the numbers .* more than 16 times"
    ):
        dy.load(tmp_path / "m", target)
    assert target.parameters_list() == []


def test_sizes_of_builders(dy: Any, tmp_path: Path) -> None:
    """Layers count, too: the sizes of a file must not make more numbers than it has."""
    builder = dy.GRUBuilder(1, 100, 100, dy.ParameterCollection())
    dy.save(tmp_path / "m", [builder])
    unbind(tmp_path / "m")
    meta = (tmp_path / "m.meta").read_bytes()
    spec = pickle.dumps((1, 100, 100), 4)[11:-2]
    assert spec in meta
    (tmp_path / "m.meta").write_bytes(meta.replace(spec, spec.replace(b"K\x01", b"K\xff")))
    with pytest.raises(
        RuntimeError, match=r"GRUBuilder of the sizes \(255, 100, 100\) has more than 60300 numbers"
    ):
        dy.load(tmp_path / "m", dy.ParameterCollection())
