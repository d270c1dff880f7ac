"""The classes from outside, by class_cases.py: what works in the real DyNet works, and nothing crashes."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, Optional

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import class_cases  # noqa: E402
from support import oracle, records  # noqa: E402
from support.subject import IS_REFERENCE  # noqa: E402

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="compares with recordings of the reference")

CASES = class_cases.all_cases()

# Names of cases (regular expressions) -> what ours give: a text, or None for any value or exception.
DIFFERENCES: dict[str, Optional[str]] = {
    # __init__() of the graph that there is says the same as ComputationGraph()
    r"ComputationGraph: .*__init__\(.*\)": "raises RuntimeError",
    # made in Python here: their __init__ takes what the constructor takes
    r"(Unsigned|Float)VectorValue: .*__init__.*|StandardSoftmaxBuilder: .*__init__.*": "raises TypeError",
    # objects that hold nothing in DyNet: every use ends the process
    r"\w+Initializer: make\(type.*'__init__': lambda self, \*args: setattr.*": "raises TypeError",
    # repr() says more here
    r"dy\.Expression\(1, 2\).*|BiRNNBuilder: o\.__dict__": None,
    r"(PyInitializer|_RNNBuilder): super\(C, o\)\.__init__\(\)": "raises TypeError",
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, str]:
    answers: dict[str, str] = json.loads(records.untext(oracle.recorded("classes")["answers"]))
    return answers


def works(answer: str) -> bool:
    return not answer.startswith(("raises ", "dies"))


@pytest.mark.parametrize("name", ["", *class_cases.CLASSES])
def test_answers(dy: Any, name: str, recorded: dict[str, str]) -> None:
    wrong = []
    for case, (of, code) in CASES.items():
        if of != name:
            continue
        dy.renew_cg()
        got, want = class_cases.answer(dy, dy, of, code), recorded[case]
        if got == want or not works(want):
            continue
        ours = next((v for k, v in DIFFERENCES.items() if re.fullmatch(k, case)), "")
        if ours is not None and got != ours:
            wrong.append(f"{case}\n   here {got[:200]}\n   DyNet {want[:200]}")
    assert not wrong, "\n".join(wrong)


def test_recording_has_every_case(recorded: dict[str, str]) -> None:
    assert set(recorded) == set(CASES), "run tests/oracle/record_classes.py"
    assert sum(works(answer) for answer in recorded.values()) >= 1200


def test_differences_are_of_cases() -> None:
    for pattern in DIFFERENCES:
        assert any(re.fullmatch(pattern, case) for case in CASES), pattern


# ---------------------------------------------------------------- pickles

COMPILED = [
    name
    for name in class_cases.CLASSES
    if name.endswith(("Builder", "Initializer")) and "Softmax" not in name and name != "BiRNNBuilder"
]


@pytest.mark.parametrize("name", COMPILED)
def test_objects_cannot_be_pickled(dy: Any, name: str) -> None:
    """A TypeError in every protocol: 0 and 1 go another way, through the base of pybind11's classes."""
    made = {"dy": dy, "pc": dy.ParameterCollection(), "np": class_cases.np, "C": getattr(dy, name)}
    o = eval(class_cases.CLASSES[name], made)
    calls = [o.__reduce__, lambda: object.__reduce__(o)]
    for call in (*calls, *(lambda p=p: pickle.dumps(o, p) for p in range(pickle.HIGHEST_PROTOCOL + 1))):
        with pytest.raises(TypeError, match="cannot pickle|no default|abstract"):
            call()


def test_the_real_dynet_reads_names(oracle_python: str, dy: Any, tmp_path: Path) -> None:
    """A pickle of functions and classes, as a model's spec holds them."""
    spec = {"act": dy.tanh, "make": dy.LSTMBuilder, "rest": [dy.inputTensor, dy.AdamTrainer, dy.BiRNNBuilder]}
    path = tmp_path / "spec.pickle"
    path.write_bytes(pickle.dumps(spec, 2))
    assert b"dynet_compat" not in path.read_bytes()
    code = (
        "import dynet as dy, pickle, sys; s = pickle.load(open(sys.argv[1], 'rb')); "
        "assert s == {'act': dy.tanh, 'make': dy.LSTMBuilder, "
        "'rest': [dy.inputTensor, dy.AdamTrainer, dy.BiRNNBuilder]}, s"
    )
    command = [oracle_python, "-c", code, str(path)]
    done = subprocess.run(
        command, env=oracle.clean_environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_public_name_is_of_dynets_module(dy: Any) -> None:
    others = {
        name: getattr(dy, name).__module__
        for name in dy.__all__
        if str(getattr(getattr(dy, name), "__module__", "")).startswith("dynet_compat")
    }
    assert not others
    assert dy.batch_map.__module__ == "dynet_compat", "a name that DyNet does not have"
    for name in dy.__all__:
        item = getattr(dy, name)
        if callable(item) and str(item.__module__) == "_dynet":
            assert pickle.loads(pickle.dumps(item)) is item, name


# ---------------------------------------------------------------- empty handles


def test_empty_expression_in_the_place_of_one(dy: Any) -> None:
    """A layer that keeps dy.Expression() until it has an expression."""

    class Layer:
        def __init__(self) -> None:
            self.last = dy.Expression()

        def apply(self, x: Any) -> Any:
            self.last = dy.tanh(x)
            return self.last

    layer = Layer()
    empty = layer.last
    assert isinstance(empty, dy.Expression)
    assert len({empty, dy.Expression()}) == 2
    for use in (empty.value, empty.dim, empty.backward, lambda: empty + 1, lambda: dy.esum([empty])):
        with pytest.raises(ValueError, match="expected expressions of a graph, got an empty one") as caught:
            use()
        assert isinstance(caught.value, RuntimeError)
    assert layer.apply(dy.zeros(2)).value() == [0, 0]
    dy.renew_cg()
    with pytest.raises(ValueError, match="empty"):
        empty.value()


def test_empty_parameters(dy: Any) -> None:
    for empty in (dy.Parameters(), dy.LookupParameters(), type("P", (dy.Parameters,), {})()):
        assert isinstance(empty, dy.Expression) and "empty" in str(empty)
        uses = [empty.shape, empty.as_array, empty.name, empty.is_updated, empty.value, lambda e=empty: e + 1]
        uses += [lambda e=empty: dy.esum([e]), lambda e=empty: e.set_updated(True), empty.zero]
        uses += [lambda e=empty: dy.parameter(e) * 2]
        for use in uses:
            with pytest.raises(ValueError, match="empty"):
                use()
    with pytest.raises(ValueError, match="empty ones, as dynet.LookupParameters"):
        len(dy.LookupParameters())
    with pytest.raises(ValueError, match="empty"):
        dy.LookupParameters()[0]
    with pytest.raises(ValueError, match="empty"):
        list(dy.LookupParameters())


def test_subclasses_die_with_their_objects(dy: Any) -> None:
    """Objects of a subclass take a reference to it, and give exactly that back."""
    for base in (dy.Expression, dy.Parameters, dy.Trainer, dy._RNNBuilder):
        kind = type("Kind", (base,), {})
        before = sys.getrefcount(kind)
        objects = [kind() for _ in range(100)]
        assert sys.getrefcount(kind) == before + 100
        del objects
        assert sys.getrefcount(kind) == before
        gone = weakref.ref(kind)
        del kind
        __import__("gc").collect()
        assert gone() is None, base


# ---------------------------------------------------------------- bases


def test_trainer_of_ones_own(dy: Any) -> None:
    class Sign(dy.Trainer):
        def __init__(self, pc: Any, rate: float) -> None:
            super().__init__()
            self.pc, self.rate = pc, rate

        def update(self) -> None:
            for p in self.pc.parameters_list():
                p.set_value(p.as_array() - self.rate * class_cases.np.sign(p.grad_as_array()))
                p.scale_gradient(0)

    pc = dy.ParameterCollection()
    p = pc.add_parameters(2, init=1)
    trainer = Sign(pc, 0.25)
    dy.dot_product(p, dy.inputVector([3, -3])).backward()
    trainer.update()
    assert p.as_array().tolist() == [0.75, 1.25]
    for use in (trainer.status, lambda: trainer.learning_rate, dy.Trainer().update):
        with pytest.raises(RuntimeError, match="Trainer, the base of all"):
            use()


def test_builder_of_ones_own(dy: Any) -> None:
    class Averaging(dy._RNNBuilder):
        def __init__(self, size: int) -> None:
            self.size = size

        def initial_state(self) -> Any:
            return dy.zeros(self.size)

    assert Averaging(3).initial_state().value() == [0, 0, 0]
    for use in (dy._RNNBuilder().initial_state, Averaging(2).disable_dropout, Averaging(2).param_collection):
        with pytest.raises(RuntimeError, match="got the base of all"):
            use()
    with pytest.raises((ValueError, RuntimeError)):
        dy.RNNState(Averaging(2))


def test_builders_take_the_arguments_of_the_call(dy: Any) -> None:
    """As in DyNet, which makes them before any __init__ runs; the builder can be used inside __init__."""

    class Encoder(dy.GRUBuilder):
        def __init__(self, layers: int, size: int, hidden: int, pc: Any, rate: float = 0.0) -> None:
            inner = dy.GRUBuilder(1, 7, 7, pc)  # another one meanwhile
            super().__init__()
            self.inner = inner
            self.set_dropout(0.25)

    pc = dy.ParameterCollection()
    encoder = Encoder(2, 3, 4, pc)
    assert encoder.spec == (2, 3, 4)
    assert encoder.inner.spec == (1, 7, 7)
    assert len(pc.parameters_list()) == 9 + 18
    with pytest.raises(TypeError):
        dy.GRUBuilder()


def test_one_builder_class_among_the_bases(dy: Any) -> None:
    """As in DyNet. The methods of the second would find no builder of theirs in the object."""

    class Mixin: ...

    class Own(dy.LSTMBuilder, Mixin): ...

    type("Joined", (Own, dy.LSTMBuilder), {})
    for others in ((dy.LSTMBuilder, dy.GRUBuilder), (Own, dy.ConstInitializer)):
        with pytest.raises(TypeError):
            type("Both", others, {})


def test_no_call_of_a_base_ends_the_process(dy: Any) -> None:
    code = """
import dynet_compat as dy
pc = dy.ParameterCollection()
objects = [dy.ConstInitializer(1), dy.LSTMBuilder(1, 2, 2, pc), dy.Expression(), dy.AdamTrainer(pc), 3]
classes = [dy.PyInitializer, dy.GlorotInitializer, dy._RNNBuilder, dy.GRUBuilder, dy.Trainer]
classes += {c for made in (*classes, pc.__class__) for c in made.__mro__ if "pybind" in c.__name__}
for c in classes:
    for o in objects:
        for call in (lambda: c.__init__(o), lambda: c.__init__(o, 1, 2, 2, pc), lambda: c.__new__(type(o)),
                     lambda: c.__new__(c), lambda: c(o), type("Derived", (c,), {}), lambda: c()):
            try: call()
            except (TypeError, AssertionError, RuntimeError, ValueError): pass
print(objects[1].initial_state().add_input(dy.ones(2)).output().dim(), objects[3].learning_rate)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("((2,), 1) 0.001"), done.stdout
