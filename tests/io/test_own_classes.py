"""Objects of the program's own classes load by default, without their code; a file gets nothing else."""

from __future__ import annotations

import codecs
import importlib
import os
import pickle
import random
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("the reference has no such reader", allow_module_level=True)

RAN: list[Any] = []  # what of the program's code was run

OWN = '''
import abc, argparse, collections, enum, subprocess
from test_own_classes import RAN
from subprocess import Popen

def function(*arguments): RAN.append(arguments)

class Meta(type):
    def __call__(cls, *a): RAN.append("call"); return super().__call__(*a)
    def __getattribute__(cls, name): RAN.append(name); return super().__getattribute__(name)
    def __hash__(cls): RAN.append("hash"); return 1
    def __eq__(cls, other): RAN.append("eq"); return True
    def __instancecheck__(cls, other): RAN.append("check"); return True
    __subclasscheck__ = __instancecheck__
    __mro__ = __dict__ = __name__ = __flags__ = property(lambda cls: RAN.append("property"))

class Plain:
    def __init__(self, *a): self.words = list(a)
    def __eq__(self, other): return type(other) is type(self) and vars(self) == vars(other)
    __hash__ = None

class Noisy(metaclass=Meta):
    """All that could run."""
    def __new__(cls, *a): RAN.append("new"); return object.__new__(cls)
    def __init__(self, *a): RAN.append("init"); self.__dict__["value"] = a
    def __setattr__(self, name, value): RAN.append(name)
    def __getattribute__(self, name): RAN.append(name); return object.__getattribute__(self, name)
    def __getattr__(self, name): RAN.append(name); return 1
    @property
    def property(self): RAN.append("get")
    @property.setter
    def property(self, value): RAN.append("set")
    def __reduce__(self): RAN.append("reduce")
    def append(self, x): RAN.append(x)
    extend = add = update = append
    def __setitem__(self, k, v): RAN.append(k)

class Slots:
    __slots__ = ("a", "__b")
    def __init__(self): self.a, self.__b = 1, [2]
    def both(self): return self.a, self.__b

class SlotsAndMore(Slots):
    pass

class Words(dict):
    def __setitem__(self, k, v): RAN.append(k)

class Tags(list):
    def append(self, x): RAN.append(x)
    def extend(self, x): RAN.append(x)

class Labels(set):
    def add(self, x): RAN.append(x)
    update = add

class Frozen(frozenset): pass
class Counts(collections.Counter): pass
class Ordered(collections.OrderedDict): pass
class Default(collections.defaultdict): pass
class Text(str): pass
class Number(int): pass
Pair = collections.namedtuple("Pair", "left right")
class Triple(tuple): pass
class Loud:
    def __len__(self): RAN.append("len"); return 1
    def __iter__(self): RAN.append("iter"); return iter(())
    def __contains__(self, x): RAN.append("in"); return True
    def __repr__(self): RAN.append("repr"); return ""
    def __bool__(self): RAN.append("bool"); return True
    def __eq__(self, other): RAN.append("eq"); return True
    def __hash__(self): RAN.append("hash"); return 1
    def keys(self): RAN.append("keys"); return []
    items = keys
    def __getitem__(self, k): RAN.append("get")
    def __format__(self, f): RAN.append("format"); return ""
    def __getattribute__(self, name): RAN.append(name)
class LoudTuple(Loud, tuple): pass
class LoudText(Loud, str): pass
class LoudDict(Loud, dict): pass
class LoudList(Loud, list): pass
class LoudSet(Loud, frozenset): pass
class LoudInt(Loud, int): pass
class LoudPair(Loud, collections.namedtuple("LoudPair", "a b")): pass
class Colour(enum.Enum):
    RED = 1
    BLUE = "b"
class Base(abc.ABC):
    def __init__(self): self.x = (1,)
class Derived(Base): pass
class Outer:
    class Inner(Plain): pass

class WithState(Plain):
    def __setstate__(self, state): RAN.append(state)
class Dying(Plain):
    def __del__(self): RAN.append("del")
class Reduced(Plain):
    def __reduce__(self): return Reduced, ("x",)
class Key:
    def __init__(self): self.n = 1
    def __hash__(self): RAN.append("hash"); return 1
    def __eq__(self, other): RAN.append("eq"); return True
class ByIdentity: pass
class Error(Exception): pass
class PropertyDict(Plain):
    @property
    def __dict__(self): RAN.append("dict"); return {}
'''


class Folder:
    """A program in a folder of its own, as __main__."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.main = types.ModuleType("__main__")
        self.write("main.py", OWN)
        vars(self.main)["__file__"] = str(path / "main.py")
        patch.setitem(sys.modules, "__main__", self.main)
        patch.syspath_prepend(str(path))

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    def module(self, name: str) -> Any:
        return importlib.import_module(name)

    def read(self, data: bytes, folder: str = "") -> Any:
        """The object of a pickle in a .meta file of this folder."""
        from dynet_compat.files.own_classes import OwnClasses
        from dynet_compat.files.pickle_names import Names
        from dynet_compat.files.unpickler import load_all

        RAN.clear()
        own = OwnClasses(str(self.path / folder))
        (found,) = load_all(data, Names(lambda module, name: None, "from_spec", (), "load()", own))
        return found

    def refuses(self, data: bytes, pattern: str = ".", folder: str = "") -> None:
        with pytest.raises(pickle.UnpicklingError, match=pattern):
            self.read(data, folder)
        assert RAN == [], f"code of the program ran: {RAN}"


@pytest.fixture()
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "test_own_classes", sys.modules[__name__])
    yield Folder(tmp_path, monkeypatch)
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and file.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture()
def own(program: Folder) -> Any:
    program.write("own.py", OWN)
    return program.module("own")


def G(name: str, module: str = "own") -> bytes:  # noqa: N802 - an instruction
    return f"c{module}\n{name}\n".encode()


# ------------------------------------------------------------------------------------- what loads


@pytest.mark.parametrize("protocol", range(6))
def test_objects_come_back_as_they_were(program: Folder, own: Any, protocol: int) -> None:
    nested = own.Plain(own.Plain("a"), {"b": own.Plain()})
    nested.me = nested
    items = [
        own.Plain("a", 1), own.Words(a=1, b=(2,)), own.Tags([1, 2]), own.Labels("xy"), own.Frozen("xy"),
        own.Counts("hello"), own.Ordered(b=1, a=2), own.Default(list, {"x": [1]}),
        own.Text("text"), own.Number(7), own.Pair(1, [2]), own.Triple((1, 2)),
        own.Colour.RED, own.Colour.BLUE, own.Outer.Inner(3) if protocol > 3 else 1,
    ]  # fmt: skip
    items[1].extra, items[2].extra, items[11].extra = 1, 2, [4]
    for item in items:
        found, again = program.read(pickle.dumps((item, item), protocol))
        assert type(found) is type(item) and found == item and found is again
        assert getattr(found, "__dict__", None) == getattr(item, "__dict__", None)
        assert getattr(found, "default_factory", None) is getattr(item, "default_factory", None)
    assert RAN == []
    found = program.read(pickle.dumps(nested, protocol))
    assert found.me is found and found.words[0].words == ["a"] and type(found.words[1]["b"]) is own.Plain
    assert program.read(pickle.dumps(own.Derived(), protocol)).x == (1,)
    if protocol > 1:
        slots = program.read(pickle.dumps(own.Slots(), protocol))
        assert slots.both() == (1, [2])
        more = own.SlotsAndMore()
        more.c = 3
        found = program.read(pickle.dumps(more, protocol))
        assert found.both() == (1, [2]) and found.c == 3
    options = own.argparse.Namespace(a=1, b=[own.Plain()])
    assert program.read(pickle.dumps(options, protocol)).a == 1
    key = own.ByIdentity()
    assert [type(k) for k in program.read(pickle.dumps({key: 1, own.Pair(1, 2): 2}, protocol))] == [
        own.ByIdentity,
        own.Pair,
    ]


DATA = """
import dataclasses
from test_own_classes import RAN
@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    size: int
    words: list = dataclasses.field(default_factory=list)
    limit: dataclasses.InitVar[int] = 3
    def __post_init__(self, limit): RAN.append("init")
@dataclasses.dataclass(frozen=True, slots=True)
class More(Options):
    name: str = ""
class Other(Options): pass
"""


@pytest.mark.skipif(sys.version_info < (3, 10), reason="no data classes with slots")
def test_data_classes_with_slots(program: Folder) -> None:
    """Python gives frozen ones a __setstate__(), which only sets the fields."""
    program.write("slots.py", DATA)
    slots = program.module("slots")
    for item in (slots.Options(1, ["a"]), slots.More(2, [], name="x"), slots.Other(3)):
        for protocol in range(2, 6):
            found = program.read(pickle.dumps(item, protocol))
            assert type(found) is type(item) and found == item and RAN == []
    make = b"\x80\x02" + G("Options", "slots") + b")\x81"
    program.refuses(make + b"](I1\neb.", "has 2 fields")
    program.refuses(make + b"}Vsize\nI1\nsb.", "has 2 fields")


def runs_nothing(program: Folder, data: bytes) -> None:
    """Whether it loads or not."""
    try:
        program.read(data)
    except pickle.UnpicklingError:
        pass
    assert RAN == [], f"{data!r} ran {RAN}"


def test_loud_containers(program: Folder, own: Any) -> None:
    """Classes that override what containers do."""
    for name, contents in (("Tuple", (1,)), ("Text", "x"), ("Int", 3), ("Set", frozenset([1])), ("Pair", 1)):
        arguments = (1, 2) if name == "Pair" else (contents,)
        new = G("Loud" + name) + pickle.dumps(arguments, 2)[2:-1] + b"\x81"
        runs_nothing(program, b"\x80\x02" + new + b".")
        runs_nothing(program, b"\x80\x02" + new + b"}Vx\nI1\nsb.")
        runs_nothing(program, b"\x80\x02" + G("LoudTuple") + new + b"\x85\x85\x81.")
        runs_nothing(program, b"\x80\x02" + G("LoudPair") + new + new + b"\x86\x81.")
        program.refuses(b"\x80\x02}" + new + b"I1\ns.")
        program.refuses(b"\x80\x02}" + new + b"\x85I1\ns.")
    for name in ("LoudDict", "LoudList"):
        new = G(name) + b")\x81"
        for use in (b"(I1\nI2\nu", b"(I1\nI2\ne", b"}b", b"\x85", b"}Vx\nI1\nsb"):
            runs_nothing(program, b"\x80\x02" + new + use + b".")
        runs_nothing(program, b"\x80\x02" + G("Plain") + b")\x81}Vx\n" + new + b"sb.")
        for called in (G("Counts"), G("list", "builtins"), G("Default")):
            runs_nothing(program, b"\x80\x02" + called + new + b"\x85R.")


def test_nothing_of_a_class_runs(program: Folder, own: Any) -> None:
    state = b"}(Vvalue\nI1\nVproperty\nI2\nV__class__\nI3\nub"
    for make in (b"(I1\ni" + b"own\nNoisy\n", G("Noisy") + b")\x81", b"(" + G("Noisy") + b"o",
                 b"ccopyreg\n_reconstructor\n(" + G("Noisy") + b"c__builtin__\nobject\nNtR"):  # fmt: skip
        make = make.replace(b"(I1\ni", b"(i")
        found = program.read(b"\x80\x02" + make + state + b".")
        assert RAN == [], f"{make!r} ran {RAN}"
        assert object.__getattribute__(found, "__class__") is own.Noisy
        assert object.__getattribute__(found, "__dict__") == {"value": 1, "property": 2, "__class__": 3}


# ------------------------------------------------------------------------------- what does not load

REFUSED = {
    "call": G("Noisy") + b")R.",
    "call with arguments": G("Plain") + b"(I1\ntR.",
    "instance with arguments": b"(I1\niown\nNoisy\n.",
    "new object with arguments": b"\x80\x02" + G("Noisy") + b"(I1\nt\x81.",
    "new object with keywords": b"\x80\x04" + G("Plain") + b")}X\x01\x00\x00\x00aK\x01s\x92.",
    "append": b"\x80\x02" + G("Noisy") + b")\x81I1\na.",
    "set item": b"\x80\x02" + G("Noisy") + b")\x81I1\nI2\ns.",
    "add": b"\x80\x04" + G("Noisy") + b")\x81(I1\n\x90.",
    "state of a class": G("Plain") + b"}Vx\nI1\nsb.",
    "state that is no dictionary": b"\x80\x02" + G("Plain") + b")\x81](I1\neb.",
    "attribute without a name": b"\x80\x02" + G("Plain") + b")\x81}I1\nI2\nsb.",
    "slot that is none": b"\x80\x02" + G("Noisy") + b")\x81(N}Vproperty\nI1\nstb.",
    "slot __class__": b"\x80\x02" + G("Plain") + b")\x81(N}V__class__\nI1\nstb.",
    "slot __dict__": b"\x80\x02" + G("Plain") + b")\x81(N}V__dict__\n}stb.",
    "factory": b"\x80\x02" + G("Default") + G("Plain") + b"\x85R.",
    "factory by slot": b"\x80\x02" + G("Default") + b")R(N}Vdefault_factory\n" + G("Plain") + b"stb.",
    "set state": b"\x80\x02" + G("WithState") + b")\x81}b.",
    "finaliser": b"\x80\x02" + G("Dying") + b")\x81.",
    "exception": b"\x80\x02" + G("Error") + b")\x81.",
    "dictionary by property": b"\x80\x02" + G("PropertyDict") + b")\x81}Vx\nI1\nsb.",
    "key": b"\x80\x02}" + G("Key") + b")\x81I1\ns.",
    "key in a tuple": b"\x80\x02}" + G("Key") + b")\x81\x85I1\ns.",
    "key in a set": b"\x80\x04\x8f(" + G("Key") + b")\x81\x90.",
    "class as a key": b"}" + G("Noisy") + b"I1\ns.",
    "class in a key": b"\x80\x02}" + G("Noisy") + b"\x85I1\ns.",
    "function": G("function") + b".",
    "call of a function": G("function") + b")R.",
    "method": b"\x80\x04" + G("Plain.__init__") + b".",
    "module of a module": b"\x80\x04" + G("subprocess.Popen") + b".",
    "class of another module": G("Popen") + b".",
    "list": G("RAN") + b".",
    "metaclass": G("Meta") + b"(Vx\n)}tR.",
    "metaclass as an object": b"\x80\x02" + G("Meta") + b")\x81.",
    "state of a member": b"\x80\x02" + G("Colour") + b"I1\n\x85R}X\x07\x00\x00\x00_value_I99\nsb.",
    "member that is none": b"\x80\x02" + G("Colour") + b"I3\n\x85R.",
    "fields of a named tuple": b"\x80\x02" + G("Pair") + b"I3\n\x85\x81.",
    "text of a number": b"\x80\x02" + G("Text") + b"I3\n\x85\x81.",
    "reconstructor": b"ccopyreg\n_reconstructor\n(" + G("Plain") + b"c__builtin__\nlist\n]tR.",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_refused(program: Folder, own: Any, name: str) -> None:
    before = set(sys.modules)
    program.refuses(REFUSED[name])
    assert set(sys.modules) == before


def test_refusals_say_what_to_do(program: Folder, own: Any) -> None:
    program.refuses(pickle.dumps(own.WithState("a"), 2),
                    r"object of own\.WithState, which has a __setstate__.*trusted=\['own.WithState'\].*"
                    r"DYNET_COMPAT_TRUSTED=own.WithState.*--trust own.WithState")  # fmt: skip
    program.refuses(
        pickle.dumps(own.Reduced("a"), 2), r"own\.Reduced would be called.*trusted=\['own.Reduced'\]"
    )
    program.refuses(pickle.dumps(own.Error("a"), 2), r"own\.Error would be called")
    with pytest.raises(pickle.UnpicklingError) as raised:
        program.read(G("x" * 400000))
    assert len(str(raised.value)) < 3000


def test_what_is_foreign(program: Folder) -> None:
    """Installed packages and virtual environments in the folder are not the program's; `lib` is."""
    places = {"lib/ours": True, ".venv/lib/python3/site-packages/theirs": False, "env/theirs2": False,
              "site-packages/theirs3": False, "conda/theirs4": False}  # fmt: skip
    program.write("env/pyvenv.cfg", "")
    program.write("conda/conda-meta/history", "")
    for path, is_own in places.items():
        file = program.write(f"{path}.py", OWN)
        name = file.stem
        sys.path.insert(0, str(file.parent))
        try:
            data = pickle.dumps(program.module(name).Plain(path), 2)
        finally:
            del sys.path[0]
        if is_own:
            assert program.read(data).words == [path]
        else:
            program.refuses(data, f"{name}.Plain, which is no class with a from_spec")


def test_main_of_other_kinds(
    program: Folder, own: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A notebook, and a tool that runs the program: what the current folder has, if it is imported."""
    data = pickle.dumps(own.Plain("a"), 2)
    program.write("fresh.py", OWN)
    exec(OWN, vars(program.main))
    in_main = G("Plain", "__main__") + b")\x81."
    for file in (
        None,
        "/usr/lib/python3/dist-packages/pytest/__main__.py",
        os.path.join(sys.prefix, "bin", "pytest"),
        os.__file__,
    ):
        vars(program.main).pop("__file__", None)
        if file is not None:
            vars(program.main)["__file__"] = file
        monkeypatch.chdir("/")
        program.refuses(G("Plain", "fresh") + b".", "not imported")
        monkeypatch.chdir(tmp_path)
        assert program.read(data).words == ["a"]
        program.refuses(G("Plain", "fresh") + b".", "not imported")
        if file is None:
            assert type(program.read(b"\x80\x02" + in_main)) is vars(program.main)["Plain"]
        else:
            program.refuses(b"\x80\x02" + in_main, "no class with a from_spec")


# ----------------------------------------------------------------------------------------- imports


def test_modules_of_the_folder_are_imported(program: Folder) -> None:
    program.write(
        "layers.py",
        OWN + "import sys, random\nrandom.seed(1)\nLIMIT = 3\nif __name__ == '__main__': boom()\n",
    )
    found = program.read(b"\x80\x02" + G("Plain", "layers") + b")\x81}Vx\nI1\nsb.")
    assert type(found).__module__ == "layers" and vars(found) == {"x": 1}
    program.write("nets/__init__.py", "")
    program.write("nets/vocabulary.py", OWN)
    program.write("nets/deep/__init__.py", "")
    program.write("nets/deep/x.py", OWN)
    item = b"\x80\x02" + G("Plain", "nets.vocabulary") + b")\x81."
    program.refuses(item, "not imported")  # nothing says that nets is the program's
    assert "nets" not in sys.modules
    program.module("nets")
    program.refuses(item, "not imported", folder="nets/saved")  # may have come with the model
    program.refuses(G("Plain", "nets.deep.x") + b".", "not imported", folder="nets/deep")
    assert "nets.deep" not in sys.modules
    assert program.read(G("Plain", "nets.deep.x") + b".").__module__ == "nets.deep.x"
    assert type(program.read(item)).__module__ == "nets.vocabulary"


SCRIPTS = {
    "call": "main()",
    "loop": "for i in range(3): pass",
    "while": "while False: pass",
    "arguments": "import sys\nname = sys.argv[1]",
    "parser": "import argparse\nargs = argparse.ArgumentParser().parse_args()",
    "with": "with open('x') as f: pass",
    "in a try": "try:\n    main()\nexcept ImportError: pass",
    "in an if": "if 1:\n    import os; os.remove('x')",
    "system": "import os\nx = os.system('true')",
    "not Python": "class",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_not_imported(program: Folder, name: str) -> None:
    """A file must not be able to start another program of the folder."""
    program.write("train.py", OWN + SCRIPTS[name] + "\n")
    data = G("Plain", "train") + b")\x81."
    for _ in range(2):
        program.refuses(
            data, r"module train, which is not imported; .*train\.py (does more than define|cannot be read)"
        )
    assert "train" not in sys.modules


def test_other_modules_are_not_imported(program: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.py").write_text(OWN)
    (program.path / "far.py").symlink_to(elsewhere / "far.py")
    (program.path / "linked").symlink_to(elsewhere)
    program.write("plain.py", "def Plain(): pass\nfrom far import *\n")
    program.write("data/evil.py", OWN)  # came with a model, say
    program.write("pack/__init__.py", OWN)
    program.write("site-packages/inst.py", OWN)
    program.write("empty/readme", "")
    program.write("extended/__init__.py", f"__path__.append({str(elsewhere)!r})\n")
    program.module("extended")
    sys.path.append(str(elsewhere))
    (elsewhere / "outside.py").write_text(OWN)
    modules = """antigravity this far linked.far data.evil pack pack.x ..far .far far. data/evil ../far far.py
        main.Plain site-packages.inst outside extended.far extended.outside empty empty.x zipfile idlelib.idle
        __future__ plain test.autotest distutils.core os.path\0 é PLAIN""".split()
    modules += ["", ".", " ", "a" * 500000, "a." * 100000 + "b"]
    before = set(sys.modules)
    try:
        for module in modules:
            for name in ("Plain", "__path__", "Plain.__init__", ""):
                text = module.encode() + b"\n" + name.encode() + b"\n"
                program.refuses(b"c" + text + b".")
    finally:
        sys.path.remove(str(elsewhere))
    assert set(sys.modules) <= before | {"os.path"}, set(sys.modules) - before


def test_a_module_that_another_one_hides(program: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What `import` would find must be the file in the folder."""
    first = tmp_path_factory.mktemp("first")
    (first / "twice.py").write_text(OWN)
    program.write("twice.py", OWN)
    sys.path.insert(0, str(first))
    try:
        program.refuses(G("Plain", "twice") + b".", "not imported")
    finally:
        sys.path.remove(str(first))
    assert type(program.read(b"\x80\x02" + G("Plain", "twice") + b")\x81.")).__module__ == "twice"


def test_errors_of_a_module_are_its_own(program: Folder) -> None:
    """They are no damage of the file."""
    program.write("broken.py", OWN + "LIMIT = int('x')\n")
    with pytest.raises(ImportError, match=r"broken\.py: ValueError: invalid literal"):
        program.read(G("Plain", "broken") + b".")


def test_random_files(program: Folder, own: Any) -> None:
    """3,000 files of an attacker who knows the program: no code runs, nothing is imported."""
    rng = random.Random(5)
    names = [name for name in vars(own) if not name.startswith("__")]
    program.write("train.py", OWN + "main()\n")
    modules = "own own own train __main__ os subprocess builtins collections sys data.evil".split()
    program.write("data/evil.py", OWN)
    values = [
        b"I1\n",
        b"N",
        b"]",
        b"}",
        b")",
        b"Vx\n",
        b"(I1\nI2\nt",
        b"}Vx\nI1\ns",
        b"(N}Va\nI1\nst",
        b"\x88",
    ]
    changes = [
        b"%s\x85R", b")R", b")\x81", b"%s\x85\x81", b"%sb", b"%sa", b"%s%ss", b"(%s%se", b"(%s%su",
        b"(%s\x90", b"%s\x86", b"\x85", b"\x85\x85", b"2\x86", b"(%so", b")}\x92",
        b"}%s%ss\x92", b"\x8f(2\x90",
    ]  # fmt: skip
    codecs.lookup("raw_unicode_escape")  # Python's own reader imports it
    before, loads = set(sys.modules), 0

    def item() -> bytes:
        made = G(rng.choice(names), rng.choice(modules)) if rng.random() < 0.7 else rng.choice(values)
        return made + (b")\x81" if rng.random() < 0.4 else b"")

    for _ in range(3000):
        parts = [b"\x80\x04", item()]
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            change = rng.choice(changes)
            parts.append(change % tuple(item() for _ in range(change.count(b"%s"))))
        data = b"".join(parts) + b"."
        try:
            program.read(data)
            loads += 1
        except pickle.UnpicklingError:
            pass
        assert RAN == [], f"{data!r} ran {RAN}"
    assert set(sys.modules) == before
    assert loads > 100, "hardly a file was valid: the test tests nothing"


# ----------------------------------------------------------------------------- trusted, and warnings


def test_trusted_by_environment(program: Folder, own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(own.WithState("a"), 2)
    monkeypatch.setenv("DYNET_COMPAT_TRUSTED", "other.Name, own.WithState")
    program.read(data)
    assert RAN == [{"words": ["a"]}]
    for wrong in ("WithState", "own.", ".x", "a..b"):
        monkeypatch.setenv("DYNET_COMPAT_TRUSTED", wrong)
        with pytest.raises(
            ValueError, match="DYNET_COMPAT_TRUSTED: expected names such as 'package.module.Class'"
        ):
            program.read(data)
