"""Files are replaced as a whole: a saver that dies at any moment leaves the old model or the new one."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from support import models
from support.models import Tagger, made, values_of
from support.subject import IS_REFERENCE, ON_GPU

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the reference writes into the old file"),
    pytest.mark.skipif(ON_GPU, reason="savers are forked, which CUDA does not survive"),
]

# What a saver calls; it dies before or after the n-th of these calls.
CALLS = ["open", "write", "fsync", "replace", "link", "unlink", "close"]


def dies_at(step: int, after: bool, task: Callable[[], None]) -> bool:
    """Runs the task in a forked child that ends at a step; False if the task came to its end before."""
    child = os.fork()
    if child == 0:
        count = 0

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **keywords: Any) -> Any:
                nonlocal count
                count += 1
                if count == step and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = function(*arguments, **keywords)
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return call

        from dynet_compat import _core

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        _core._write_parameters = counted(_core._write_parameters)
        try:
            task()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def for_each_death(task: Callable[[], None], prepare: Callable[[], None], check: Callable[[], None]) -> int:
    deaths = 0
    for after in (False, True):
        for step in range(1, 60):
            prepare()
            if not dies_at(step, after, task):
                break
            deaths += 1
            check()
    return deaths


def collection(dy: Any, seed: int) -> Any:
    pc = dy.ParameterCollection()
    models.MODELS["parameters"](dy, pc)
    models.fill(pc, seed)
    return pc


def test_text_file_is_old_or_new(dy: Any, tmp_path: Path) -> None:
    path = tmp_path / "f"
    old, new = collection(dy, 1), collection(dy, 2)
    old.save(path)
    before = path.read_bytes()
    new.save(tmp_path / "g")
    after = (tmp_path / "g").read_bytes()
    seen: set[bytes] = set()
    for save, expected in (
        (lambda: new.save(path), {before, after}),
        (lambda: new.save(path, append=True), {before, before + after}),
    ):
        seen.clear()
        deaths = for_each_death(save, lambda: old.save(path), lambda: seen.add(path.read_bytes()))
        assert deaths >= 8 and seen == expected


@pytest.mark.parametrize("change", ["values", "structure", "nothing before", "data before"])
def test_pair_is_old_or_new(dy: Any, tmp_path: Path, change: str) -> None:
    """Whatever files are left: load() gives one model or the other, and the next save works."""
    base = tmp_path / "m"
    olds = made(dy, "GRUBuilder-2" if change == "structure" else "mixed")
    news = made(dy, "mixed")
    models.fill(news[0], 77)
    seen = set()

    def values(pc: Any) -> tuple[bytes, ...]:
        return tuple(values_of(p).tobytes() for p in [*pc.parameters_list(), *pc.lookup_parameters_list()])

    def prepare() -> None:
        for path in tmp_path.iterdir():
            path.unlink()
        if change in ("values", "structure"):
            dy.save(base, olds[1])
        if change == "data before":
            (tmp_path / "m.data").write_text("junk")

    def check() -> None:
        pc = dy.ParameterCollection()
        try:
            dy.load(base, pc)
            seen.add(values(pc))
        except FileNotFoundError:
            assert change in ("nothing before", "data before")
            seen.add(())
        dy.save(base, olds[1])
        pc = dy.ParameterCollection()
        dy.load(base, pc)
        assert values(pc) == values(olds[0])
        assert not list(tmp_path.glob("*.of-*"))

    deaths = for_each_death(lambda: dy.save(base, news[1]), prepare, check)
    assert deaths >= 16
    assert seen == {values(olds[0]) if change in ("values", "structure") else (), values(news[0])}


def steps(monkeypatch: pytest.MonkeyPatch, task: Callable[[], None]) -> list[str]:
    """What a task does that a crash of the machine may lose, and where it waits for the disk."""
    seen: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "replace", "link", "unlink")}
    with monkeypatch.context() as patch:
        for name in real:

            def noted(*arguments: Any, name: str = name) -> None:
                if name == "fsync":
                    kind = "folder" if stat.S_ISDIR(os.fstat(arguments[0]).st_mode) else "file"
                else:
                    kind = os.path.splitext(os.fspath(arguments[-1]))[1].split("-")[0]
                real[name](*arguments)
                if kind != ".lock":
                    seen.append(f"{name} {kind}")

            patch.setattr(os, name, noted)
        task()
    return seen


def test_the_disk_is_waited_for_where_a_crash_could_lose_both(
    dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made(dy, "mixed"), made(dy, "mixed")
    models.fill(second[0], 77)
    written = ["fsync file", "fsync file"]
    save = lambda what: steps(monkeypatch, lambda: dy.save(tmp_path / "m", what[1]))  # noqa: E731
    assert save(first) == [*written, "replace .data", "replace .meta"]
    assert save(second) == [
        *written,
        *("link .of", "fsync folder", "replace .data", "fsync folder", "replace .meta", "fsync folder"),
        "unlink .of",
    ]
    text = steps(monkeypatch, lambda: first[0].save(tmp_path / "f"))
    assert text == ["fsync file", "replace "], "one file is the old one or the new one by itself"


def test_errors_in_the_middle(dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is no death leaves the old pair, and nothing else."""
    base = tmp_path / "m"
    old, new = made(dy, "GRUBuilder-2"), made(dy, "mixed")
    dy.save(base, old[1])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for name in ("replace", "fsync"):
        for failing in range(1, 5):
            count = 0
            real = getattr(os, name)

            def fail(*arguments: Any, real: Any = real, failing: int = failing) -> Any:
                nonlocal count
                count += 1
                if count == failing:
                    raise OSError(5, "Input/output error")
                return real(*arguments)

            monkeypatch.setattr(os, name, fail)
            try:
                dy.save(base, new[1])
            except OSError:
                assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
            monkeypatch.undo()
            dy.save(base, old[1])
            assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_interrupted_by_an_object(dy: Any, tmp_path: Path) -> None:
    """Objects are asked before any file is touched."""
    pc, objects = made(dy, "mixed")
    dy.save(tmp_path / "m", objects)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    tagger = Tagger(pc, 2, 2, None, "ab")
    tagger.spec = (lambda: None,)  # type: ignore[assignment]
    with pytest.raises(Exception, match="lambda"):
        dy.save(tmp_path / "m", [*objects, tagger])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_disk_full(dy: Any, tmp_path: Path) -> None:
    pc = dy.ParameterCollection()
    pc.add_parameters(100000)
    small = collection(dy, 1)
    small.save(tmp_path / "f")
    dy.save(tmp_path / "m", small.parameters_list())
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200000, limits[1]))
    try:
        for append in (False, True):
            with pytest.raises(RuntimeError, match="cannot write .*File too large"):
                pc.save(tmp_path / "f", append=append)
        with pytest.raises(OSError, match="File too large"):
            dy.save(tmp_path / "m", pc.parameters_list())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_trainers_are_saved_as_models_are(dy: Any, tmp_path: Path) -> None:
    """Through links, with the rights of the old file, and into what is no plain file."""
    trainer = dy.AdamTrainer(collection(dy, 1))
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o604)
    (tmp_path / "f.part").write_text("of the user")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to("../f")
    (tmp_path / "again").symlink_to(tmp_path / "folder" / "link")
    trainer.save(tmp_path / "again")
    assert (tmp_path / "again").is_symlink() and (tmp_path / "folder" / "link").is_symlink()
    assert path.read_bytes().startswith(b"#Trainer# ") and stat.S_IMODE(path.stat().st_mode) == 0o604
    trainer.populate(tmp_path / "again")
    (tmp_path / "dangling").symlink_to("new")
    trainer.save(tmp_path / "dangling")
    assert (tmp_path / "new").read_bytes() == path.read_bytes()
    assert (tmp_path / "f.part").read_text() == "of the user"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(RuntimeError, match="cannot write '.*round'"):
        trainer.save(tmp_path / "round")
    assert len(list(tmp_path.iterdir())) == 7 and len(list((tmp_path / "folder").iterdir())) == 1
    read, write = os.pipe()
    trainer.save(f"/dev/fd/{write}")
    os.close(write)
    with os.fdopen(read) as stream:
        assert stream.readline().startswith("#Trainer# ")


def test_rights_and_links(dy: Any, tmp_path: Path) -> None:
    pc = collection(dy, 1)
    path = tmp_path / "f"
    mask = os.umask(0o027)
    try:
        pc.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        pc.save(path)
        pc.save(path, append=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
        (tmp_path / "link").symlink_to("f")
        pc.save(tmp_path / "link", "/k")
        assert (tmp_path / "link").is_symlink() and "/k/W" in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
        (tmp_path / "dangling").symlink_to("new")
        pc.save(tmp_path / "dangling")
        assert (tmp_path / "new").read_bytes().startswith(b"#Parameter# /_0 ")
    finally:
        os.umask(mask)
    assert {p.name for p in tmp_path.iterdir()} == {"f", "link", "dangling", "new"}
    read, write = os.pipe()
    pc.parameters_list()[0].save(f"/dev/fd/{write}")  # a special file is written to
    os.close(write)
    with os.fdopen(read) as stream:
        assert stream.readline().startswith("#Parameter# /_0 {1}")
    pc.save("/dev/null")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_files_without_permission(dy: Any, tmp_path: Path) -> None:
    pc = collection(dy, 1)
    pc.save(tmp_path / "f")
    (tmp_path / "f").chmod(0o444)
    with pytest.raises(RuntimeError, match="Permission denied"):
        pc.save(tmp_path / "f")


def test_relative_and_odd_names(dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pc, objects = made(dy, "mixed")
    for name in ("m", "a b", "[x]*", "é", "n" * 250, "sub/../m2"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        dy.save(name, objects)
        dy.save(name, objects[:2])
        assert len(dy.load(name, dy.ParameterCollection())) == 2
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".dynet")]


def test_killed_while_writing(dy: Any, tmp_path: Path) -> None:
    """A real process, killed at random moments of saving again and again."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import dynet_compat as dy, numpy as np\n"
        "pc = dy.ParameterCollection(); p = pc.add_parameters(20000); n = 0\n"
        "while True:\n"
        "    n += 1; p.set_value(np.full(20000, n))\n"
        "    dy.save(sys.argv[1], [p] * (1 + n % 2)); print(n, flush=True)\n"
    )
    tests = str(Path(__file__).resolve().parent.parent)
    for delay in range(1, 6):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "m"), tests], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(delay):
            last = int(child.stdout.readline())
        child.kill()
        child.wait()
        loaded = dy.load(tmp_path / "m", dy.ParameterCollection())
        values = {float(x) for p in loaded for x in set(values_of(p).tolist())}
        assert len(values) == 1 and min(values) >= last and len(loaded) == 1 + int(min(values)) % 2
        child.stdout.close()
