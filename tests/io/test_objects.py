"""dy.save and dy.load: objects, what is refused, what an error leaves behind, forms of DyNet 1.x."""

from __future__ import annotations

import pickle
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import models
from support.models import Tagger, made, unbind, values_of
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="repairs of ours")


def state_of(pc: Any) -> tuple[Any, ...]:
    """What a failed load must leave as it was: names, values, and the names that come next."""
    ps = [*pc.parameters_list(), *pc.lookup_parameters_list()]
    return [p.name() for p in ps], [values_of(p).tobytes() for p in ps]


def next_names(pc: Any) -> list[str]:
    return [pc.add_parameters(1).name(), pc.add_subcollection("tagger").name(), pc.add_subcollection().name()]


def filled(dy: Any) -> Any:
    pc = dy.ParameterCollection()
    pc.add_parameters((2, 2))
    pc.add_lookup_parameters((2, 3), name="E")
    return pc


@pytest.mark.parametrize("name", models.MODELS)
def test_round_trip(dy: Any, tmp_path: Path, name: str) -> None:
    pc, objects = made(dy, name)
    dy.save(tmp_path / "m", objects)
    other = dy.ParameterCollection()
    loaded = dy.load(str(tmp_path / "m"), other)
    assert [type(x) for x in loaded] == [type(x) for x in objects]
    saved = [p for x in objects for p in parts(dy, x)]
    assert [values_of(p).tobytes() for x in loaded for p in parts(dy, x)] == [
        values_of(p).tobytes() for p in saved
    ]
    assert [p.name() for x in loaded for p in parts(dy, x)] == [p.name() for p in saved]
    assert [x.spec for x in loaded if hasattr(x, "param_collection")] == [
        x.spec for x in objects if hasattr(x, "param_collection")
    ]
    again = list(dy.load_generator(tmp_path / "m", dy.ParameterCollection()))
    assert [type(x) for x in again] == [type(x) for x in objects]


def parts(dy: Any, item: Any) -> list[Any]:
    if isinstance(item, (dy.Parameters, dy.LookupParameters)):
        return [item]
    pc = item.param_collection()
    return [*pc.parameters_list(), *pc.lookup_parameters_list()]


def test_same_outputs(dy: Any, tmp_path: Path) -> None:
    """A loaded builder computes what the saved one did."""
    for name in ("GRUBuilder-2", "SparseLSTMBuilder-2", "BiRNNBuilder-CoupledLSTMBuilder-2"):
        pc = dy.ParameterCollection()
        (builder,) = models.MODELS[name](dy, pc)
        dy.save(tmp_path / "m", [builder])
        (other,) = dy.load(tmp_path / "m", dy.ParameterCollection().add_subcollection("deep"))
        outs = []
        for b in (builder, other):
            dy.renew_cg()
            xs = [dy.inputTensor([0.5 * i, 1.0]) for i in range(3)]
            ys = b.transduce(xs) if name.startswith("BiRNN") else b.initial_state().transduce(xs)
            outs.append([y.npvalue().tolist() for y in ys])
        assert outs[0] == outs[1]


def test_gradients_and_draws(dy: Any, tmp_path: Path) -> None:
    """Gradients come back; from_spec and load_param draw random numbers in the order of the objects."""
    pc, objects = made(dy, "mixed")
    dy.renew_cg()
    dy.sum_elems(objects[0]).backward()
    dy.save(tmp_path / "m", objects)
    dy.reset_random_seed(8)
    loaded = dy.load(tmp_path / "m", dy.ParameterCollection())
    after = dy.ParameterCollection().add_parameters(3).as_array().tolist()
    assert loaded[0].grad_as_array().tolist() == [[1.0, 1.0], [1.0, 1.0]]
    dy.reset_random_seed(8)
    models.MODELS["mixed"](dy, dy.ParameterCollection())
    assert dy.ParameterCollection().add_parameters(3).as_array().tolist() == after


def test_user_class_with_functions(dy: Any, tmp_path: Path) -> None:
    pc = dy.ParameterCollection()
    tagger = Tagger(pc, 3, 2, dy.rectify, ("a", "b"))
    dy.save(tmp_path / "m", iter([tagger]))
    (loaded,) = dy.load(tmp_path / "m", pc)
    assert loaded.activation is dy.rectify and loaded.spec == tagger.spec
    assert loaded.param_collection().name() == "/tagger_1/"
    names = [
        op for op in pickletools.genops((tmp_path / "m.meta").read_bytes()) if op[0].name == "STACK_GLOBAL"
    ]
    assert len(names) == 2 and b"_dynet" in (tmp_path / "m.meta").read_bytes()


SCRIPT = """
import sys
import dynet as dy
import _dynet

class Model:
    def __init__(self, pc, size, activation, builder):
        self.spec = size, activation, builder
        self.pc = pc.add_subcollection("model")
        self.rnn = builder(1, size, size, self.pc)
    def param_collection(self):
        return self.pc
    @staticmethod
    def from_spec(spec, pc):
        return Model(pc, *spec)

class Other:
    pass

pc = dy.ParameterCollection()
dy.save(sys.argv[1], [Model(pc, 2, dy.tanh, dy.GRUBuilder), pc.add_parameters(2)])
model, p = dy.load(sys.argv[1], dy.ParameterCollection())
assert type(model) is Model and model.spec == (2, dy.tanh, dy.GRUBuilder) and p.shape() == (2,)
"""


def test_script_with_a_class_of_its_own(dy: Any, tmp_path: Path) -> None:
    """`python -m dynet_compat run`: the class is in __main__. Another program must have the class, too."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "dynet_compat", "run", "script.py", "m"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with pytest.raises(pickle.UnpicklingError) as raised:
        dy.load(tmp_path / "m", dy.ParameterCollection())
    assert "load(): " in str(raised.value) and "from that_script import Model" in str(raised.value)
    assert "__main__.Model, which does not exist" in str(raised.value)


def test_trusted_names(dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynet_compat.files import written_here

    monkeypatch.chdir(
        tmp_path
    )  # under a tool such as pytest, the modules of the current folder are the program's
    pc = dy.ParameterCollection()
    warning = r"load\(\) of other programs, and in the next run of this one, will refuse object 1: .*"
    warning += rf"{__name__}.Words"
    with pytest.warns(UserWarning, match=warning):
        dy.save(tmp_path / "m", [Tagger(pc, 2, 2, None, Words())])
    (loaded,) = dy.load(tmp_path / "m", dy.ParameterCollection())
    assert loaded.tags.words == ["a", "b"]
    written_here.forget()
    with pytest.raises(pickle.UnpicklingError, match=rf"trusted=\['{__name__}.Words'\]"):
        dy.load(tmp_path / "m", dy.ParameterCollection())
    for trusted in ([Words], [f"{__name__}.Words"]):
        (loaded,) = dy.load(tmp_path / "m", dy.ParameterCollection(), trusted=trusted)
        assert loaded.tags.words == ["a", "b"]
        (loaded,) = dy.load_generator(tmp_path / "m", dy.ParameterCollection(), trusted=trusted)
    with pytest.raises(TypeError):
        dy.load(tmp_path / "m", dy.ParameterCollection(), [Words])
    for name in ("save", "load", "init", "np", "os", "_core", "no_such_name", "renew_cg"):
        (tmp_path / "m.meta").write_bytes(b"c_dynet\n" + name.encode() + b"\n.")
        with pytest.raises(
            pickle.UnpicklingError, match=f"names _dynet.{name}, which is no class or function"
        ):
            dy.load(tmp_path / "m", dy.ParameterCollection())


class Words:
    """Not of the protocol: pickled with its state."""

    def __init__(self) -> None:
        self.words = ["a", "b"]

    def __len__(self) -> int:
        return len(self.words)


def test_object_beside_its_part(dy: Any, tmp_path: Path) -> None:
    """DyNet writes such a file and cannot read it; ours is read by both."""
    tagger = Tagger(dy.ParameterCollection(), 3, 2, dy.tanh, "ab")
    dy.save(tmp_path / "m", [tagger, tagger.lstm, tagger.W, tagger])
    assert (tmp_path / "m.data").read_text().count("#Parameter# /tagger/W ") == 1
    for repeat in (False, True):
        if repeat:
            text = (tmp_path / "m.data").read_text()
            (tmp_path / "m.data").write_text(text + text)
            unbind(tmp_path / "m")
        loaded = dy.load(tmp_path / "m", dy.ParameterCollection())
        assert (
            values_of(loaded[2]).tobytes()
            == values_of(loaded[0].W).tobytes()
            == values_of(tagger.W).tobytes()
        )
    changed = (tmp_path / "m.data").read_text() + "#Parameter# /tagger/W {2,2} 65 ZERO_GRAD\n1 2 3 4\n"
    (tmp_path / "m.data").write_text(changed)
    with pytest.raises(RuntimeError, match="expected .*, found Parameter /tagger/W"):
        dy.load(tmp_path / "m", dy.ParameterCollection())


# ------------------------------------------------------------------------------------- what is refused


def test_what_cannot_be_saved(dy: Any, tmp_path: Path) -> None:
    pc = filled(dy)
    p = pc.parameters_list()[0]
    for wrong in (3, dy.FastLSTMBuilder(1, 2, 2, pc)):
        with pytest.raises(AttributeError, match="object 2 is a .* which has no spec"):
            dy.save(tmp_path / "m", [p, wrong])
    for single in (p, pc.lookup_parameters_list()[0], dy.GRUBuilder(1, 2, 2, pc), 3):
        with pytest.raises(TypeError):
            dy.save(tmp_path / "m", single)
    tagger = Tagger(pc, 2, 2, lambda x: x, "ab")
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        dy.save(tmp_path / "m", [tagger])
    with pytest.raises(ValueError, match="of different collections are both named /_0"):
        dy.save(tmp_path / "m", [p, dy.ParameterCollection().add_parameters(1)])
    tagger.pc = None
    tagger.activation = None
    with pytest.raises(TypeError, match="expected a ParameterCollection"):
        dy.save(tmp_path / "m", [tagger])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="no/m.data"):
        dy.save(tmp_path / "no" / "m", [p])


def test_files_that_are_missing(dy: Any, tmp_path: Path) -> None:
    pc = filled(dy)
    with pytest.raises(FileNotFoundError, match="m.meta"):
        dy.load(tmp_path / "m", pc)
    dy.save(tmp_path / "m", pc.parameters_list())
    (tmp_path / "m.data").unlink()
    with pytest.raises(RuntimeError, match=r"cannot read .*m\.data"):
        dy.load(tmp_path / "m", pc)
    generator = dy.load_generator(tmp_path / "m", pc)
    with pytest.raises(RuntimeError, match=r"cannot read .*m\.data"):
        next(generator)
    with pytest.raises(TypeError, match="ParameterCollection"):
        dy.load(tmp_path / "m", 3)


def write_meta(path: Path, *entries: Any) -> None:
    path.write_bytes(b"".join(pickle.dumps(entry, 4) for entry in entries))


def test_entries_that_do_not_fit(dy: Any, tmp_path: Path) -> None:
    pc = dy.ParameterCollection()
    Tagger(pc, 3, 2, None, "ab")
    pc.add_parameters(2, name="W")
    pc.save(tmp_path / "m.data")
    target = filled(dy)
    before = state_of(target)
    for entries, message in (
        ([("Parameters", "/W"), 7], "object 2: expected .class, spec, name., found a int"),
        ([("Parameters", "/W"), ("Parameters", "/V")], "no Parameter with the key '/V'; it has"),
        ([("Parameters", "/W"), ("Lookups", "/V")], "object 2: expected 'Parameters' or"),
        ([("LookupParameters", "/W")], "'/W': it is a Parameter there"),
        ([("Parameters", b"/W")], "expected .class, spec, name."),
        (
            [("Parameters", "/W"), (Tagger, (3, 2, None, "abc"), "/tagger/")],
            r"expected Parameter .*W \{3,2\}, found",
        ),
        ([("Parameters", "/W"), (Tagger, (3, 2, None, "ab"), "/none/")], "found no more"),
        (
            [("Parameters", "/W"), ("Tagger", (3, 2, None, "ab"), "/tagger/")],
            "with a from_spec.., found str of 6",
        ),
    ):
        write_meta(tmp_path / "m.meta", *entries)
        with pytest.raises(RuntimeError, match=message):
            dy.load(tmp_path / "m", target)
        assert state_of(target) == before
    write_meta(tmp_path / "m.meta", ("Parameters", "/W"), (Tagger, (3, 2), "/tagger/"))
    with pytest.raises(TypeError):  # of the user's own class: as it is
        dy.load(tmp_path / "m", target)
    assert state_of(target) == before and next_names(target) == ["/_1", "/tagger/", "/_0/"]


def test_generator_gives_back_what_failed_only(dy: Any, tmp_path: Path) -> None:
    pc = dy.ParameterCollection()
    Tagger(pc, 3, 2, None, "ab")
    pc.add_parameters(2, name="W")
    pc.save(tmp_path / "m.data")
    write_meta(tmp_path / "m.meta", ("Parameters", "/W"), (Tagger, (3, 2, None, "abc"), "/tagger/"))
    target = dy.ParameterCollection()
    generator = dy.load_generator(tmp_path / "m", target)
    first = next(generator)
    assert values_of(first).tobytes() == values_of(pc.parameters_list()[-1]).tobytes()
    with pytest.raises(RuntimeError, match="expected Parameter /tagger/W"):
        next(generator)
    assert [p.name() for p in target.parameters_list()] == ["/W"] and target.lookup_parameters_list() == []


@pytest.mark.parametrize(
    ("cls", "spec", "message"),
    [
        ("GRUBuilder", (10**9, 2, 2), "the sizes .* of GRUBuilder do not fit"),
        ("GRUBuilder", (1, 2, 2**40), "do not fit"),
        ("GRUBuilder", (1.0, 2, 1e300), "do not fit"),
        ("GRUBuilder", (1, -2, 2), "cannot be made of its spec: OverflowError"),
        ("GRUBuilder", (1, 2), "cannot be made of its spec"),
        ("GRUBuilder", ("1", 2, 3), "cannot be made of its spec"),
        ("GRUBuilder", 7, "expected a tuple as the spec of GRUBuilder, found a int"),
        ("GRUBuilder", [1, 2, 2], "expected a tuple as the spec"),
        ("GRUBuilder", (1, 2, 3), "expected Parameter .*, found Parameter"),
        ("SimpleRNNBuilder", (1, 2, 2), "found"),
        ("BiRNNBuilder", (1, 2, 2, "GRUBuilder", None), "expected a class as the factory"),
        ("BiRNNBuilder", (1, 2, 2, None), "expected a class as the factory|cannot be made"),
        ("BiRNNBuilder", (2, 2, 3, "GRUBuilder!", None), "cannot be made of its spec: AssertionError"),
        ("ParameterCollection", (), "expected a class with a from_spec.., found ParameterCollection"),
        ("FastLSTMBuilder", (1, 2, 2), "expected a class with a from_spec.., found FastLSTMBuilder"),
    ],
)
def test_specs_that_do_not_fit(dy: Any, tmp_path: Path, cls: str, spec: Any, message: str) -> None:
    pc = dy.ParameterCollection()
    dy.save(tmp_path / "m", [dy.GRUBuilder(1, 2, 2, pc)])
    meta = pickle.dumps((Placeholder, spec, "/gru-builder/"), 0).replace(
        b"ctest_objects\nPlaceholder", b"c_dynet\n" + cls.encode()
    )
    assert b"Placeholder" not in meta
    meta = meta.replace(b"VGRUBuilder!\n", b"c_dynet\nGRUBuilder\n")
    (tmp_path / "m.meta").write_bytes(meta)
    target = filled(dy)
    before = state_of(target)
    with pytest.raises(RuntimeError, match=message):
        dy.load(tmp_path / "m", target)
    assert state_of(target) == before and next_names(target)[0] == "/_1"


class Placeholder:
    """Pickled by name; the name is replaced."""

    __module__ = "test_objects"


# -------------------------------------------------------------------------------------- module names


@pytest.mark.parametrize("module", ["_dynet", "dynet", "_gdynet", "dynet_compat", "dynet_compat._core"])
def test_module_names(dy: Any, tmp_path: Path, module: str) -> None:
    pc = dy.ParameterCollection()
    dy.save(tmp_path / "m", [dy.BiRNNBuilder(1, 2, 4, pc, dy.LSTMBuilder)])
    for cls in ("LSTMBuilder", "VanillaLSTMBuilder"):
        meta = f"(c{module}\nBiRNNBuilder\n(I1\nI2\nI4\nc{module}\n{cls}\nNtS'/birnn/'\nt."
        (tmp_path / "m.meta").write_bytes(meta.encode())
        (loaded,) = dy.load(tmp_path / "m", dy.ParameterCollection())
        assert loaded.spec == (1, 2, 4, dy.LSTMBuilder, None)


def test_python_2_meta(dy: Any, tmp_path: Path) -> None:
    """Protocol 0, str of Python 2, a long, a bool of the old form."""
    pc = dy.ParameterCollection()
    dy.save(tmp_path / "m", [pc.add_parameters(2, name="W"), dy.LSTMBuilder(1, 2, 2, pc)])
    meta = b"(S'Parameters'\np0\nS'/W'\np1\ntp2\n."
    meta += b"(c_dynet\nVanillaLSTMBuilder\np0\n(I1\nL2L\nI2\nI00\nF1.0\ntp1\n"
    meta += b"S'/vanilla-lstm-builder/'\np2\ntp3\n."
    (tmp_path / "m.meta").write_bytes(meta)
    W, lstm = dy.load(tmp_path / "m", dy.ParameterCollection())
    assert W.shape() == (2,) and lstm.spec == (1, 2, 2, False, 1.0)


# -------------------------------------------------------------------------------------- DyNet 1.x forms


def test_1x_forms(dy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from dynet_compat.api import legacy

    legacy._warned.clear()
    pc = dy.Model()
    p, lstm = pc.add_parameters((2, 2)), dy.LSTMBuilder(1, 2, 2, pc)
    for _ in range(2):
        pc.save(str(tmp_path / "m"), [p, lstm])
        q, other = dy.Model().load(str(tmp_path / "m"))
        pc.save_all(tmp_path / "all")
        pc.load_all(tmp_path / "all")
        assert pc.load(tmp_path / "all") is None
    assert values_of(q).tobytes() == values_of(p).tobytes() and other.spec == lstm.spec
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4 and all(line.startswith("dynet_compat: Model.") for line in lines)


def test_1x_files_are_explained(dy: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pym").write_bytes(b"x")
    (tmp_path / "m.pyk").write_bytes(b"x")
    for call in (dy.load, lambda f, pc: next(dy.load_generator(f, pc)), lambda f, pc: pc.load(f)):
        with pytest.raises(RuntimeError, match=r"m\.pym and .*m\.pyk are files of Model.save.* of DyNet 1.x"):
            call(tmp_path / "m", dy.Model())
    dy.save(tmp_path / "m", [])
    assert dy.load(tmp_path / "m", dy.Model()) == []


def test_names_are_public(dy: Any) -> None:
    for name in ("save", "load", "load_generator"):
        assert name in dy.__all__ and callable(getattr(dy, name))
    assert not any(name in dy.__all__ for name in ("io", "files", "objects", "unpickler"))
