"""Pairs of .data and .meta: never mixed while processes save and read them, and nothing is left over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.models import unbind, values_of
from support.subject import IS_REFERENCE, ON_GPU

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the reference writes into the old file"),
    pytest.mark.skipif(ON_GPU, reason="savers are forked, which CUDA does not survive"),
]


def version(dy: Any, number: int) -> list[Any]:
    """Two parameters of one size, in an order and with values that depend on the number."""
    pc = dy.ParameterCollection()
    first, second = ("a", "b") if number % 2 else ("b", "a")
    return [pc.add_parameters(50, init=number, name=first), pc.add_parameters(50, init=number, name=second)]


def loaded(dy: Any, base: Path) -> int:
    """The number of the version in the files, which must be of one version."""
    found = dy.load(base, dy.ParameterCollection())
    numbers = {float(x) for p in found for x in values_of(p)}
    assert len(numbers) == 1, f"the values of versions {numbers} are mixed"
    number = int(numbers.pop())
    order = [p.name() for p in found]
    assert order == [p.name() for p in version(dy, number)], f"another .meta: {order}, {number}"
    return number


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_mixed_pair_is_refused(dy: Any, tmp_path: Path) -> None:
    dy.save(tmp_path / "m", version(dy, 1))
    dy.save(tmp_path / "n", version(dy, 2))
    (tmp_path / "n.data").replace(tmp_path / "m.data")
    pc = dy.ParameterCollection()
    with pytest.raises(RuntimeError, match=r"m\.data is not the file .* saved with .*m\.meta.*populate"):
        dy.load(tmp_path / "m", pc)
    assert pc.parameters_list() == []
    with pytest.raises(RuntimeError, match="is not the file"):
        next(dy.load_generator(tmp_path / "m", pc))
    pc = dy.ParameterCollection()
    pc.add_parameters(50)
    pc.add_parameters(50)
    pc.populate(tmp_path / "m.data")  # the way out that the message names
    assert {float(x) for p in pc.parameters_list() for x in values_of(p)} == {2.0}


def test_one_changed_number_is_noticed(dy: Any, tmp_path: Path) -> None:
    dy.save(tmp_path / "m", version(dy, 1))
    text = (tmp_path / "m.data").read_text()
    (tmp_path / "m.data").write_text(text[:-10] + "1" + text[-9:])
    with pytest.raises(RuntimeError, match="is not the file"):
        dy.load(tmp_path / "m", dy.ParameterCollection())


def test_files_without_binding_load(dy: Any, tmp_path: Path) -> None:
    """Those of DyNet and of earlier versions, also beside another .data."""
    for number in (1, 2):
        dy.save(tmp_path / "m", version(dy, number))
        unbind(tmp_path / "m")
        assert loaded(dy, tmp_path / "m") == number
    dy.save(tmp_path / "m", [])
    assert dy.load(tmp_path / "m", dy.ParameterCollection()) == []


def test_copies_load(dy: Any, tmp_path: Path) -> None:
    """What binds a pair is its contents: other times, names and folders are no matter."""
    dy.save(tmp_path / "m", version(dy, 3))
    (tmp_path / "other").mkdir()
    for end in (".meta", ".data"):
        (tmp_path / "other" / ("copy" + end)).write_bytes((tmp_path / ("m" + end)).read_bytes())
    assert loaded(dy, tmp_path / "other" / "copy") == 3
    (tmp_path / "link.data").symlink_to("m.data")
    (tmp_path / "link.meta").symlink_to("m.meta")
    dy.save(tmp_path / "link", version(dy, 4))
    assert loaded(dy, tmp_path / "m") == loaded(dy, tmp_path / "link") == 4


# ------------------------------------------------------------------------------------------- many processes


def start(body: str, *arguments: Any) -> subprocess.Popen[str]:
    """A process that has this file's functions, and `base`; it waits until `finish` lets it go."""
    code = (
        "import os, sys, time; sys.path[:0] = sys.argv[1:3]\n"
        "from pathlib import Path; import dynet_compat as dy; from test_pairs import *\n"
        "base = Path(sys.argv[3]); print('ready', flush=True); sys.stdin.readline()\n" + body
    )
    here = Path(__file__).resolve()
    command = [sys.executable, "-c", code, str(here.parent.parent), str(here.parent), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def finish(*children: subprocess.Popen[str]) -> list[str]:
    """Lets all go at once, and returns what they print."""
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    outs = []
    for place, child in enumerate(children, 1):
        try:
            out, err = child.communicate(timeout=300)
        finally:
            child.kill()
        assert child.returncode == 0, f"process {place} of {len(children)} failed:\n{err[-3000:]}"
        outs.append(out)
    return outs


SAVE = "n = int(sys.argv[4])\nfor _ in range(40): dy.save(base, version(dy, n)); n += 2"
LOAD = "end = time.time() + 1.5\nwhile time.time() < end: loaded(dy, base)"


def test_savers_and_readers_of_one_name(dy: Any, tmp_path: Path) -> None:
    """Readers see one version or the other, savers take turns, no one gets an error."""
    base = tmp_path / "m"
    dy.save(base, version(dy, 0))
    finish(start(SAVE, base, 1), start(SAVE, base, 2), start(LOAD, base), start(LOAD, base))
    assert loaded(dy, base) in (79, 80)
    assert names_in(tmp_path) == {"m.data", "m.meta"}


def test_two_savers_at_once(dy: Any, tmp_path: Path) -> None:
    """They leave the pair of one of them."""
    children = []
    for _ in range(2):
        for number in (1, 2):
            child = os.fork()
            if child == 0:
                try:
                    for _ in range(40):
                        dy.save(tmp_path / "m", version(dy, number))
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        assert statuses == [0] * len(children), "a saver raised"
        children.clear()
        assert loaded(dy, tmp_path / "m") in (1, 2)


def test_file_systems_without_links_and_locks(dy: Any, tmp_path: Path) -> None:
    """Without links readers wait for the saver between its two files; without locks a saver goes on."""
    slow = "import fcntl, os\nreplace = os.replace\n"
    slow += "def slow(*paths): replace(*paths); time.sleep(0.03)\nos.replace = slow\n"
    slow += "def fail(*arguments): raise OSError(95, 'Operation not supported')\n"
    save = SAVE.replace("40", "10")
    saver = start(f"{slow}os.link = fail\n{save}", tmp_path / "m", 1)
    dy.save(tmp_path / "m", version(dy, 0))
    finish(saver, start(LOAD, tmp_path / "m"))
    finish(start(f"{slow}fcntl.flock = fail\n{save}", tmp_path / "n", 1))
    assert loaded(dy, tmp_path / "m") == loaded(dy, tmp_path / "n") == 19


# --------------------------------------------------------------------------------------- what the dead leave


@pytest.mark.parametrize("call", ["_write_parameters", "link", "replace"])
def test_the_next_save_removes_what_a_killed_saver_left(dy: Any, tmp_path: Path, call: str) -> None:
    base = tmp_path / "m"
    dy.save(base, version(dy, 1))
    child = os.fork()
    if child == 0:
        from dynet_compat import _core

        die = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        setattr(_core if call.startswith("_") else os, call, die)
        dy.save(base, version(dy, 2))
        os._exit(1)
    os.waitpid(child, 0)
    left = names_in(tmp_path)
    assert any(name.endswith(".tmp") for name in left), f"the saver was not killed in its work: {left}"
    assert loaded(dy, base) == 1
    dy.save(base, version(dy, 3))
    assert names_in(tmp_path) == {"m.data", "m.meta"}, "leftovers stay after the next save"
    assert loaded(dy, base) == 3


@pytest.mark.parametrize("kind", ["text", "other name"])
def test_leftovers_go_whatever_is_saved(dy: Any, tmp_path: Path, kind: str) -> None:
    left = [".dynet-4194000-0123456789ab.tmp", ".dynet-0123abcd.lock"]
    others = {".dynet-notes.tmp", "dynet-1-0123456789ab.tmp", "m.tmp"}
    for name in [*left, *others]:
        (tmp_path / name).write_text("x")
    (tmp_path / ".dynet-1-00112233aabb.tmp").mkdir()
    if kind == "text":
        version(dy, 1)[0].save(tmp_path / "x")
    else:
        dy.save(tmp_path / "x", version(dy, 1))
    found = names_in(tmp_path) - {"x", "x.data", "x.meta"}
    assert found == others | {".dynet-1-00112233aabb.tmp"}


def test_a_living_saver_keeps_its_files(dy: Any, tmp_path: Path) -> None:
    from dynet_compat.files.atomic import replacing

    with replacing(str(tmp_path / "slow")) as new:
        new.write(b"half ")
        dy.save(tmp_path / "m", version(dy, 1))
        finish(start("dy.save(base, version(dy, 2))", tmp_path / "m"))
        new.write(b"whole")
    assert (tmp_path / "slow").read_bytes() == b"half whole"
    assert loaded(dy, tmp_path / "m") == 2 and names_in(tmp_path) == {"slow", "m.data", "m.meta"}


def test_a_killed_holder_blocks_nobody(dy: Any, tmp_path: Path) -> None:
    """Not even if it has forked a child that lives on."""
    from dynet_compat.files.atomic import turn

    base = tmp_path / "m"
    dy.save(base, version(dy, 1))
    read, write = os.pipe()
    holder = os.fork()
    if holder == 0:
        with turn(os.path.realpath(base) + ".data"):
            if os.fork() == 0:
                os.close(write)
                os.read(read, 1)  # until the test ends
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(holder, 0)
    os.close(read)
    try:
        finish(start("dy.save(base, version(dy, 2))", base))  # it would wait for ever, and time out
    finally:
        os.close(write)
    assert loaded(dy, base) == 2 and names_in(tmp_path) == {"m.data", "m.meta"}


def test_loading_writes_nothing(dy: Any, tmp_path: Path) -> None:
    """A folder that may only be read will do."""
    dy.save(tmp_path / "m", version(dy, 1))
    watch = (
        "def hook(event, arguments):\n"
        "    if event == 'open' and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or event in (\n"
        "        'os.rename', 'os.remove', 'os.link', 'os.mkdir'): bad.append((event, arguments))\n"
        "bad = []; sys.addaudithook(hook)\n"
    )
    assert finish(start(f"{watch}loaded(dy, base); print(bad)", tmp_path / "m")) == ["[]\n"]


def test_appending_savers_take_turns(dy: Any, tmp_path: Path) -> None:
    """No block is lost where two processes append to one file."""
    body = "for i in range(25):\n    version(dy, 1)[0].save(base, '/%s%d' % (sys.argv[4], i), append=True)"
    finish(*[start(body, tmp_path / "f", letter) for letter in "xy"])
    keys = re.findall(r"#Parameter# (\S+)", (tmp_path / "f").read_text())
    missing = {f"/{letter}{i}" for letter in "xy" for i in range(25)} - set(keys)
    assert not missing, f"lost: {sorted(missing)}"
