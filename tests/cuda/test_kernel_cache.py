"""Kernels from source to the disk: NVRTC alone, no GPU takes part."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import nvrtc
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="our kernels"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the NVRTC wheel is for Linux"),
]

TINY = """#include "cuda/device/std.h"
namespace dyc::cuda {
template <int N> __global__ void add(float* x) { x[0] += N; }
}
"""
SOURCES = {"cuda/kernels/tiny.cu": TINY, "cuda/device/std.h": "#pragma once\n"}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kept"
    monkeypatch.setenv("DYNET_COMPAT_CACHE", str(folder))
    return folder


class Counting:
    """NVRTC that counts its compilations."""

    def __init__(self, version: tuple[int, int] = (0, 0)) -> None:
        self.inner = nvrtc.subject()
        self.version = version if version[0] else self.inner.version
        self.architectures = self.inner.architectures
        self.asked: list[list[str]] = []

    def compile(self, source: Any, expressions: list[str]) -> Any:
        self.asked.append(list(expressions))
        return self.inner.compile(source, expressions)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    from dynet_compat.cuda import sources

    monkeypatch.setattr(sources, "embedded", lambda: SOURCES)
    yield Counting()


def compiled(compiler: Counting, *expressions: str, architecture: int = 90) -> list[Any]:
    from dynet_compat.cuda import compile_kernels

    return compile_kernels("tiny", expressions, architecture, nvrtc=compiler)


def entries(kept: Path) -> list[Path]:
    return sorted((kept / "kernels").glob("*/*.kernels"))


def architecture_of(cubin: bytes) -> int:
    assert cubin[:4] == b"\x7fELF"
    return struct.unpack_from("<I", cubin, 48)[0] >> 8 & 0xFF


# ---------------------------------------------------------------- the embedded sources


def test_sources_are_embedded_as_they_are() -> None:
    """All that kernels include, in the module itself: an installed package has no other files."""
    from dynet_compat.cuda import closure, embedded

    texts = embedded()
    kernels = [name for name in texts if name.endswith(".cu")]
    assert kernels == sorted(name for name in nvrtc.texts() if name.endswith(".cu"))
    for name in kernels:
        for header in [name, *closure(name, texts)]:
            assert texts[header] == nvrtc.texts()[header], f"{header}: build the module again"
        included = {h for text in [texts[name], *closure(name, texts).values()]
                    for h in re.findall(r'#include "([^"]+)"', text)}  # fmt: skip
        assert included <= set(texts)


@pytest.mark.parametrize(
    "expression", ["unary_forward<OpById<{tanh}>>", "binary_backward<OpById<{cmult}>, 1>"]
)
def test_a_kernel_of_ours_compiles_by_its_name_inside_the_namespace(expression: str) -> None:
    from dynet_compat import _core
    from dynet_compat.cuda import compile_kernels

    numbers = {row["name"]: number for number, row in enumerate(_core.op_table())}
    name = expression.format(**numbers)
    (entry,) = compile_kernels("elementwise", [name], 80)
    assert architecture_of(entry.cubin) == 80 and entry.lowered[name].encode() in entry.cubin


def test_for_engine(compiler: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynet_compat import cuda

    ((file, cubin, pairs),) = cuda.for_engine([("tiny", "add<1>")], 90, 0)
    assert file == "tiny" and architecture_of(cubin) == 90 and [pair[0] for pair in pairs] == ["add<1>"]


# ---------------------------------------------------------------- what is kept


def test_second_time_nothing_is_compiled(compiler: Counting, kept: Path) -> None:
    first = compiled(compiler, "add<1>", "add<2>")
    assert compiled(compiler, "add<2>", "add<1>", "add<1>") == first
    assert compiler.asked == [["add<1>", "add<2>"]] and len(entries(kept)) == 1


def test_only_what_is_missing_is_compiled(compiler: Counting, kept: Path) -> None:
    compiled(compiler, "add<1>", "add<2>")
    parts = compiled(compiler, "add<2>", "add<3>")
    assert compiler.asked[1:] == [["add<3>"]] and len(entries(kept)) == 2
    assert [set(part.lowered) for part in parts] == [{"add<1>", "add<2>"}, {"add<3>"}]
    assert compiled(compiler, "add<1>", "add<3>") and len(compiler.asked) == 2


def test_key(compiler: Counting, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source, header, architecture, compiler: each of them makes other entries."""
    from dynet_compat.cuda import sources

    compiled(compiler, "add<1>")
    compiled(compiler, "add<1>", architecture=80)
    other = Counting((99, 1))
    compiled(other, "add<1>")
    for changed in ({"cuda/kernels/tiny.cu": TINY + "\n"}, {"cuda/device/std.h": "#pragma once\n// more\n"}):
        monkeypatch.setattr(sources, "embedded", lambda changed=changed: {**SOURCES, **changed})
        compiled(compiler, "add<1>")
    assert len(compiler.asked) == 4 and len(other.asked) == 1
    assert len(entries(kept)) == 5 and len({entry.parent for entry in entries(kept)}) == 5


def test_only_the_owner_can_look_in(compiler: Counting, kept: Path) -> None:
    compiled(compiler, "add<1>")
    (entry,) = entries(kept)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    for folder in (kept, kept / "kernels", entry.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(entry.parent.iterdir()) == [entry], "no temporary file is left"


def test_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dynet_compat.files.cache import root

    assert root() == str(tmp_path / "kept")
    monkeypatch.setenv("DYNET_COMPAT_CACHE", "")
    assert root() is None
    monkeypatch.delenv("DYNET_COMPAT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert root() == str(tmp_path / "dynet_compat")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the XDG specification
    monkeypatch.setenv("HOME", str(tmp_path))
    assert root() == str(tmp_path / ".cache" / "dynet_compat")


# ---------------------------------------------------------------- what is not trusted


def spoiled(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "cut": data[:middle],
        "longer": data + b"\0",
        "empty": b"",
        "other": b"dynet_compat kernels 0\n" + data[23:],
        "bare": b"dynet_compat kernels 1\n",
    }[how]


@pytest.mark.parametrize("how", ["flipped", "cut", "longer", "empty", "other", "bare"])
def test_a_damaged_entry_is_written_again(compiler: Counting, kept: Path, how: str) -> None:
    first = compiled(compiler, "add<1>")
    (entry,) = entries(kept)
    good = entry.read_bytes()
    entry.write_bytes(spoiled(good, how))
    assert compiled(compiler, "add<1>") == first and len(compiler.asked) == 2
    assert entry.read_bytes() == good
    compiled(compiler, "add<1>")
    assert len(compiler.asked) == 2


def with_checksum(body: bytes) -> bytes:
    return b"dynet_compat kernels 1\n" + hashlib.sha256(body).hexdigest().encode() + body


@pytest.mark.parametrize(
    "head", [b"{}", b"[]", b"no json", b'{"key": "other", "lowered": {"add<1>": "x"}}', b""]
)
def test_a_checksum_alone_does_not_make_an_entry(compiler: Counting, kept: Path, head: bytes) -> None:
    compiled(compiler, "add<1>")
    (entry,) = entries(kept)
    entry.write_bytes(with_checksum(head + b"\ncubin"))
    assert compiled(compiler, "add<1>")[0].cubin != b"cubin" and len(compiler.asked) == 2


def test_an_entry_of_another_key_is_not_taken(compiler: Counting, kept: Path) -> None:
    compiled(compiler, "add<1>", architecture=80)
    (old,) = entries(kept)
    content = old.read_bytes()
    compiled(compiler, "add<1>", architecture=90)
    (new,) = set(entries(kept)) - {old}
    new.write_bytes(content)
    (part,) = compiled(compiler, "add<1>", architecture=90)
    assert architecture_of(part.cubin) == 90


def test_an_entry_that_others_may_write_is_not_taken(compiler: Counting, kept: Path) -> None:
    compiled(compiler, "add<1>")
    (entry,) = entries(kept)
    entry.chmod(0o666)
    compiled(compiler, "add<1>")
    assert len(compiler.asked) == 2 and stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_an_entry_of_another_user_is_not_taken(
    compiler: Counting, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(compiler, "add<1>")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    compiled(compiler, "add<1>")
    assert len(compiler.asked) == 2, "neither its folder nor its files are this user's"


def test_a_link_is_not_followed(compiler: Counting, kept: Path, tmp_path: Path) -> None:
    compiled(compiler, "add<1>")
    (entry,) = entries(kept)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    compiled(compiler, "add<1>")
    assert len(compiler.asked) == 2 and not entry.is_symlink()


def test_a_folder_that_others_may_write_is_closed(compiler: Counting, kept: Path) -> None:
    compiled(compiler, "add<1>")
    folder = entries(kept)[0].parent
    folder.chmod(0o777)
    compiled(compiler, "add<1>")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and len(compiler.asked) == 1


# ---------------------------------------------------------------- without a place to keep them


@pytest.mark.parametrize("where", ["file in the way", "link in the way", "nowhere", "no cache"])
def test_works_without_a_cache(
    compiler: Counting, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    if where == "file in the way":
        place.write_text("", encoding="utf-8")
    elif where == "link in the way":
        (tmp_path / "other").mkdir()
        place.mkdir()
        (place / "kernels").symlink_to(tmp_path / "other")
    elif where == "nowhere":
        place = Path("/proc/nowhere/kernels")
    monkeypatch.setenv("DYNET_COMPAT_CACHE", "" if where == "no cache" else str(place))
    first = compiled(compiler, "add<1>")
    assert compiled(compiler, "add<1>") == first and len(compiler.asked) == 2


def test_the_disk_is_full(compiler: Counting, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynet_compat.files import cache

    def full(*names: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    assert compiled(compiler, "add<1>") and entries(kept) == []
    assert list((kept / "kernels").glob("*/*")) == [], "no half of a file is left"


FILL = """
import sys
from dynet_compat.cuda import compile_kernels, sources
sources.embedded = lambda: {sources!r}
for i in range(6):
    parts = compile_kernels("tiny", [f"add<{{i}}>", "add<100>"], 90)
    names = set().union(*(part.lowered for part in parts))
    assert {{f"add<{{i}}>", "add<100>"}} <= names
    assert all(part.cubin[:4] == bytes([127]) + b"ELF" for part in parts)
print("done")
"""


def test_processes_fill_it_at_once(compiler: Counting, kept: Path) -> None:
    command = [sys.executable, "-c", FILL.format(sources=SOURCES)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for child in children:
        out, err = child.communicate(timeout=240)
        assert out == b"done\n", err.decode()
    for i in range(6):
        compiled(compiler, f"add<{i}>", "add<100>")
    assert compiler.asked == [], "all of it is there"
    folder = entries(kept)[0].parent
    assert [path for path in folder.iterdir() if path.suffix != ".kernels"] == []


# ---------------------------------------------------------------- what NVRTC cannot do


def test_architectures(compiler: Counting) -> None:
    """A device runs the cubins of older devices of its generation."""
    known = compiler.architectures
    assert {80, 90, 100} <= set(known)
    unknown = next(one for one in range(91, 100) if one not in known)
    assert architecture_of(compiled(compiler, "add<1>", architecture=unknown)[0].cubin) == 90


@pytest.mark.parametrize(
    ("architecture", "words"), [(35, r"sm_35: it is too old.*nvidia-cuda-nvrtc-cu12"), (990, "update")]
)
def test_unknown_architecture(compiler: Counting, architecture: int, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        compiled(compiler, "add<1>", architecture=architecture)


def test_a_kernel_that_does_not_compile(compiler: Counting, kept: Path) -> None:
    with pytest.raises(RuntimeError, match="(?s)please report.*nothing"):
        compiled(compiler, "nothing<1>")
    with pytest.raises(RuntimeError, match="no file other.cu"):
        from dynet_compat.cuda import compile_kernels

        compile_kernels("other", ["add<1>"], 90)
    assert entries(kept) == [] and compiled(compiler) == []


def test_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    from dynet_compat.cuda import find_nvrtc
    from dynet_compat.cuda import nvrtc as module

    monkeypatch.setattr(module, "libraries", lambda: [])
    monkeypatch.setattr(importlib.import_module("dynet_compat.cuda.libraries"), "bare_names", lambda stem: [])
    with pytest.raises(RuntimeError, match="NVRTC.*nvidia-cuda-nvrtc .*nvidia-cuda-nvrtc-cu12"):
        find_nvrtc()
    monkeypatch.setattr(module, "libraries", lambda: [Path("/nowhere/libnvrtc.so.13")])
    with pytest.raises(RuntimeError, match="not installed"):
        find_nvrtc()


def test_the_compiler_fits_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest whose cubins the driver can load."""
    from dynet_compat.cuda import find_nvrtc
    from dynet_compat.cuda import nvrtc as module

    class Version:
        def __init__(self, path: str) -> None:
            self.version = (int(path[-2:]), 1)

    monkeypatch.setattr(module, "libraries", lambda: [Path("x.so.13"), Path("x.so.12")])
    monkeypatch.setattr(importlib.import_module("dynet_compat.cuda.libraries"), "bare_names", lambda stem: [])
    monkeypatch.setattr(module, "_load", Version)
    assert find_nvrtc(13010).version[0] == find_nvrtc(14000).version[0] == find_nvrtc().version[0] == 13
    assert find_nvrtc(12080).version[0] == 12
    with pytest.raises(RuntimeError, match="CUDA 11.4, and NVRTC 13.1 .* only: update the driver"):
        find_nvrtc(11040)
    monkeypatch.setattr(module, "libraries", lambda: [Path("x.so.13")])
    with pytest.raises(RuntimeError, match=r"CUDA 12.8, and NVRTC 13.1 .*nvidia-cuda-nvrtc-cu12"):
        find_nvrtc(12080)
