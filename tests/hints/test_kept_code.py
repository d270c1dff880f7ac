"""Rewritten code that an earlier run of the script has kept."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat.files import cache
from dynet_compat.hints.rewrite import kept, patch, rewriter
from support.modules import load

SOURCE = textwrap.dedent("""
    import numpy as np
    import dynet_compat as dy
    W = dy.ParameterCollection().add_parameters((3, 3), init=0.5)
    tanh = dy.tanh
    class Tree:
        def __init__(self, *children): self.children = children
        def cell(self, x, h):
            return tanh(W * x) + h
        def state(self, x):
            h = x
            for child in list(self.children):
                h = self.cell(child.state(x), h)
            y = tanh(h)
            return y + x
    def chain(x, n=0.5):
        parts = [tanh(W * x) + x for _ in range(3)]
        for h in parts:
            x = tanh(W * x + h) * n
        return x
    def best(x):
        z = tanh(x)
        return int(np.argmax((z + x).npvalue()))
    def use():
        x = dy.inputVector([1.0, -1.0, 2.0])
        state = Tree(Tree(Tree()), Tree(Tree(), Tree())).state(x)
        return [state.npvalue(), chain(x).npvalue(), best(x)]
    """)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNET_COMPAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rewritten"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were looked at."""
    seen: list[str] = []

    class Counting(rewriter.Rewriter):
        def __init__(self, source: Any, filename: str, *rest: Any) -> None:
            seen.append(Path(filename).name)
            super().__init__(source, filename, *rest)

    monkeypatch.setattr(rewriter, "Rewriter", Counting)
    return seen


@pytest.fixture
def rewritten(tmp_path: Path) -> Callable[..., tuple[ModuleType, patch.LinkedModule]]:
    """A module of this text, and what becomes of it."""

    def make(source: str = SOURCE, **options: Any) -> tuple[ModuleType, patch.LinkedModule]:
        path = tmp_path / "script.py"
        path.write_text(source)
        module = load(path)
        return module, patch.rewrite_module(module, source.encode(), kept=True, **options)

    return make


def test_a_second_run_does_the_same_without_looking(rewritten: Any, looks: list[str]) -> None:
    plain = [(module, linked) for module, linked in [rewritten(), rewritten()]]
    assert looks == ["script.py"]
    assert set(plain[0][1].codes) == set(plain[1][1].codes) and len(plain[0][1].codes) >= 4
    assert plain[0][1].found == plain[1][1].found and plain[0][1].refused == plain[1][1].refused
    assert plain[0][1].argmax_calls == plain[1][1].argmax_calls == 1
    results, statistics = [], []
    for module, linked in plain:
        for _ in range(40):
            dy.renew_cg()
            values = module.use()
        results.append(values)
        objects = [*linked.regions.values(), *linked.walked_functions.values()]
        statistics.append([(o.statistics()["name"], o.statistics()["hits"]) for o in objects])
    assert statistics[0] == statistics[1] and sum(hits > 0 for _, hits in statistics[0]) > 2
    for a, b in zip(*results):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "change",
    [
        {"source": SOURCE + "\n"},
        {"source": SOURCE.replace("tanh = dy.tanh", "tanh = lambda x: dy.tanh(x)")},
        {"wanted": {"chain"}},
    ],
    ids=["text", "text and meaning", "wanted"],
)
def test_other_texts_are_looked_at(rewritten: Any, looks: list[str], change: dict[str, Any]) -> None:
    rewritten()
    rewritten(**change)
    rewritten(**change)
    assert len(looks) == 2


def test_names_must_mean_the_same(rewritten: Any, looks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text, where a name of another module is something else this time."""
    source = SOURCE.replace("tanh = dy.tanh", "from others import tanh")
    others = ModuleType("others")
    monkeypatch.setitem(sys.modules, "others", others)
    others.tanh = dy.tanh  # type: ignore[attr-defined]
    first = rewritten(source)[1]
    others.tanh = lambda x: dy.tanh(x)  # type: ignore[attr-defined]
    second = rewritten(source)[1]
    assert len(looks) == 2 and len(first.regions) > len(second.regions)


def test_loops_side_by_side_are_not_kept(rewritten: Any, looks: list[str], folder: Path) -> None:
    from dynet_compat.hints.hints_file import IndependentCalls

    record = IndependentCalls("script.py", "chain", 1, (1,), (1,))
    rewritten(loops=[(record, object())])
    assert looks and not list(folder.glob("*"))


def test_another_rewriter(rewritten: Any, looks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten()
    monkeypatch.setattr(kept, "_rewriter", lambda: "another")
    rewritten()
    assert len(looks) == 2


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other kind", "writable by others", "a link"])
def test_what_is_not_whole_or_not_the_users_own(
    rewritten: Any, looks: list[str], folder: Path, damage: str, tmp_path: Path
) -> None:
    rewritten()
    [file] = folder.iterdir()
    data = file.read_bytes()
    if damage == "cut":
        file.write_bytes(data[:-10])
    elif damage == "bit":
        file.write_bytes(data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "other kind":
        cache.write(str(file), kept._KIND, b"i\1\0\0\0")
    elif damage == "writable by others":
        file.chmod(0o666)
    else:
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    rewritten()
    assert len(looks) == 2
    rewritten()
    assert len(looks) == 2, "the file was not written again"


SHAPES = {
    "meanings": lambda key, meanings, fields: (key, list(meanings), fields),
    "fewer fields": lambda key, meanings, fields: (key, meanings, fields[:-2]),
    "fewer parts": lambda key, meanings, fields: (key, meanings),
    "no code": lambda key, meanings, fields: (key, meanings, ("a", "b", *fields[2:])),
    "no region": lambda key, meanings, fields: (key, meanings, (*fields[:2], {"r": ()}, *fields[3:])),
    "no source": lambda key, meanings, fields: (key, meanings, (*fields[:2], {"r": (1, 2, 3)}, *fields[3:])),
    "no heads": lambda key, meanings, fields: (key, meanings, (*fields[:3], {}, *fields[4:])),
    "no programs": lambda key, meanings, fields: (
        key, meanings, (*fields[:4], [(p, (), h) for p, _, h in fields[4]], *fields[5:])
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_whole_but_of_another_shape(
    rewritten: Any, looks: list[str], folder: Path, shape: str
) -> None:
    first = rewritten()[1]
    [file] = folder.iterdir()
    data = cache.read(str(file), kept._KIND)
    assert data
    cache.write(str(file), kept._KIND, marshal.dumps(SHAPES[shape](*marshal.loads(data))))
    assert set(rewritten()[1].codes) == set(first.codes) and len(looks) == 2
    rewritten()
    assert len(looks) == 2, "the file was not written again"


def with_other_names(code: CodeType) -> CodeType:
    """The code, and that of the functions in it, by a compiler that names free names otherwise."""
    constants = tuple(with_other_names(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_consts=constants, co_names=tuple(name + "_" for name in code.co_names))


def test_code_that_fits_no_function(rewritten: Any, looks: list[str], folder: Path) -> None:
    """As another compiler makes it of the same text."""
    module, first = rewritten()
    [file] = folder.iterdir()
    data = cache.read(str(file), kept._KIND)
    assert data
    key, meanings, (old, *fields) = marshal.loads(data)
    names = tuple(name + "_" for name in old.co_names)
    cache.write(str(file), kept._KIND, marshal.dumps((key, meanings, (old.replace(co_names=names), *fields))))
    rewritten()
    assert len(looks) == 1, "the functions are the same"
    cache.write(str(file), kept._KIND, marshal.dumps((key, meanings, (with_other_names(old), *fields))))
    module, again = rewritten()
    assert len(looks) == 2 and set(again.codes) == set(first.codes)
    assert any(module.chain.__code__ is new for _, new in again.codes.values())
    rewritten()
    assert len(looks) == 2, "the file was not written again"


def test_a_file_that_cannot_be_read(rewritten: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is kept where the package's own files cannot be looked at, or there is no working folder."""

    def fails(_: str) -> None:
        raise OSError("no such device")

    kept._rewriter.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(kept.os, "scandir", fails)
        assert rewritten()[1].codes
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("DYNET_COMPAT_CACHE", "relative")
    assert rewritten()[1].codes
    assert cache.own_folder("kernels") == ""


def test_a_cache_of_another_user(
    rewritten: Any, looks: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    rewritten()
    [file] = folder.iterdir()
    before = file.stat().st_mtime_ns
    user = os.geteuid() + 1
    monkeypatch.setattr(cache.os, "geteuid", lambda: user)
    for _ in range(2):
        assert rewritten()[1].codes
    assert len(looks) == 3 and file.stat().st_mtime_ns == before and not caplog.records


def test_another_version_or_another_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files of packages may all have the same time."""
    own = kept._rewriter.__wrapped__
    first = own()
    with monkeypatch.context() as patched:
        patched.setattr(kept, "__compat_version__", "another")
        assert own() != first
    text = Path(kept.api.__file__).read_bytes()
    for name, content in {"same.py": text, "api.py": text[:-1] + b" "}.items():
        path = tmp_path / name
        path.write_bytes(content)
        os.utime(path, ns=(os.stat(kept.api.__file__).st_mtime_ns,) * 2)
        monkeypatch.setattr(kept.api, "__file__", str(path))
        assert (own() == first) == (content == text)


def test_nowhere_to_keep_it(rewritten: Any, looks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("", "/proc/nowhere"):
        monkeypatch.setenv("DYNET_COMPAT_CACHE", place)
        assert rewritten()[1].codes
    assert len(looks) == 2


def test_files_are_limited(
    rewritten: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept, "_MOST_FILES", 3)
    for i in range(5):
        path = tmp_path / f"script{i}.py"
        path.write_text(SOURCE)
        patch.rewrite_module(load(path), SOURCE.encode(), kept=True)
        for age, file in enumerate(sorted(folder.iterdir(), key=os.path.getmtime, reverse=True)):
            os.utime(file, (1e9 - age, 1e9 - age))
    assert len(list(folder.iterdir())) == 3


def test_what_cannot_be_removed_stays_alone(tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    for i in range(4):
        (tmp_path / f"{i}.code").write_bytes(b"")
    for age, name in enumerate(["3.code", "2.code", "1.code", "0.code", "a folder"]):
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    cache.remove_oldest(str(tmp_path), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.code", "3.code", "a folder"]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """Files that a process may be writing stay."""
    for name in ("x.code.1-aa.tmp", "x.code.2-bb.tmp", "y.code"):
        (tmp_path / name).write_bytes(b"")
    for name in ("x.code.1-aa.tmp", "y.code"):
        os.utime(tmp_path / name, (1e9, 1e9))
    assert cache.write(str(tmp_path / "x.code"), b"kind", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.code", "x.code.2-bb.tmp", "y.code"]
    cache.remove_oldest(str(tmp_path), 2)
    assert len(list(tmp_path.iterdir())) == 3, "what is being written is none of the files that count"


def test_in_processes(tmp_path: Path) -> None:
    """The second run of a script does what the first did, and loads no rewriter."""
    script = tmp_path / "main.py"
    loaded = "import sys\nprint('dynet_compat.hints.rewrite.rewriter' in sys.modules)\n"
    script.write_text(SOURCE + "for _ in range(5):\n    dy.renew_cg(); print(use())\n" + loaded)
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "eager", "DYNET_COMPAT_REPORT": "1"}
    runs = [
        subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    outputs = [run.stdout.splitlines() for run in runs]
    assert outputs[0][:-1] == outputs[1][:-1] and [o[-1] for o in outputs] == ["True", "False"]
    assert all("recorded" in run.stderr for run in runs)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code that knows columns came with Python 3.11")
def test_a_run_without_columns_in_between(tmp_path: Path) -> None:
    """Its code differs from that of other runs, which it leaves alone."""
    script = tmp_path / "main.py"
    script.write_text(SOURCE + "for _ in range(5):\n    dy.renew_cg(); print(use())\n")
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "eager", "DYNET_COMPAT_REPORT": "1"}
    for options in (["-X", "no_debug_ranges"], [], ["-X", "no_debug_ranges"], []):
        command = [sys.executable, *options, script]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert "by one call" in run.stderr and "no region" not in run.stderr, (options, run.stderr)
    assert len(list((tmp_path / "cache" / "rewritten").iterdir())) == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code that knows columns came with Python 3.11")
def test_modules_that_were_compiled_without_columns_are_looked_at_once(tmp_path: Path) -> None:
    """Their functions stay as they are, which another look would not change."""
    (tmp_path / "helper.py").write_text(SOURCE)
    script = tmp_path / "main.py"
    script.write_text(
        "import sys, helper, dynet_compat as dy\ndy.renew_cg()\nhelper.use()\n"
        "print('dynet_compat.hints.rewrite.rewriter' in sys.modules)\n"
    )
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "eager"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    outputs = []
    for options in (["-X", "no_debug_ranges"], [], []):
        command = [sys.executable, *options, script]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        outputs.append(run.stdout)
    assert outputs == ["True\n", "True\n", "False\n"]
