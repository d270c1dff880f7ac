# ruff: noqa: E501, F401, UP031 - the expressions use what is imported here
"""What programs do with the classes themselves: make, subclass, copy, compare, hash, pickle, patch.

Each line of CASES is an expression; it runs for every class of DyNet, `C`, and two objects of it, `o` and `p`.
Others are about one name. Under the real DyNet this records the answers, as record_classes.py does:

    python class_cases.py --library dynet --out classes.npz
"""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import importlib
import inspect
import json
import os
import pickle
import re
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
for folder in (str(HERE), str(HERE.parent)):
    if folder not in sys.path:
        sys.path.insert(0, folder)

import protocol  # noqa: E402
from support import records  # noqa: E402

RNN = "SimpleRNN GRU VanillaLSTM SparseLSTM CompactVanillaLSTM CoupledLSTM FastLSTM".split()
TRAINERS = "SimpleSGD MomentumSGD Adagrad Adadelta RMSProp Adam Amsgrad".split()
# Class -> an expression that makes an object.
CLASSES = {
    "Expression": "dy.inputVector([1, 2]) * 2",
    "_inputExpression": "dy.scalarInput(1)",
    "_vecInputExpression": "dy.inputVector([1, 2])",
    "_tensorInputExpression": "dy.inputTensor([1.0, 2.0])",
    "inputTensorTranspose": "dy.inputTensorTranspose([1, 2])",
    "_lookupExpression": "pc.add_lookup_parameters((3, 2))[1]",
    "_lookupBatchExpression": "pc.add_lookup_parameters((3, 2)).batch([1, 2])",
    "_pickerExpression": "dy.pick(dy.inputVector([1, 2]), 1)",
    "_pickerBatchExpression": "dy.pick_batch(dy.inputVector([1, 2]), [1])",
    "Parameters": "pc.add_parameters((2, 2))",
    "LookupParameters": "pc.add_lookup_parameters((3, 2))",
    "ParameterCollection": "C()",
    "ComputationGraph": "dy.cg()",
    "RNNState": "dy.GRUBuilder(1, 2, 2, pc).initial_state().add_input(dy.ones(2))",
    "Tensor": "dy.ones(3).tensor_value()",
    "DynetParams": "C()",
    "BiRNNBuilder": "C(1, 2, 2, pc, dy.GRUBuilder)",
    "UnsignedValue": "C(1)",
    "FloatValue": "C(1)",
    "UnsignedVectorValue": "C([1])",
    "FloatVectorValue": "C([1.0])",
    "ConstInitializer": "C(1)",
    "UniformInitializer": "C(1)",
    "NormalInitializer": "C()",
    "GlorotInitializer": "C()",
    "IdentityInitializer": "C()",
    "SaxeInitializer": "C()",
    "NumpyInitializer": "C(np.ones(2))",
    "PyInitializer": "dy.ConstInitializer(1)",
    "CyclicalSGDTrainer": "C(pc, 0.1, 0.2)",
    "Trainer": "C()",
    "_RNNBuilder": "C()",
    "StandardSoftmaxBuilder": "C(2, 3, pc)",
    "SoftmaxBuilder": "C()",
    "DeviceInfo": "C('CPU', 0, 0)",
}
CLASSES.update({"%sBuilder" % kind: "C(1, 2, 2, pc)" for kind in RNN})
CLASSES.update({"%sTrainer" % kind: "C(pc)" for kind in TRAINERS})

CASES = r"""
C().__class__.__name__
C.__new__(C).__class__.__name__
C.__name__, C.__qualname__, C.__module__, repr(C)
type('S', (C,), {}).__mro__[1].__name__
type('S', (C,), {'__slots__': ('q',)}).__name__
type('S', (C,), {'x': 1}).x
type('S', (type('Mixin', (), {'hello': 3}), C), {}).hello
isinstance(o, C), type(o).__mro__[-1] is object
type(copy.copy(o)).__name__
type(copy.deepcopy(o)).__name__
copy.deepcopy({'class': C})['class'] is C
pickle.dumps(C, 2)
pickle.dumps(o, 0)[:9]
pickle.dumps(o, 1)[:9]
pickle.dumps(o, 2)[:9]
len(o.__reduce__())
len(o.__reduce_ex__(0))
isinstance(hash(o), int), hash(o) == hash(o), {o: 1}[o], o in {o}, [0, o].index(o), {o, o, p} == {o, p}
o == o, o != o, o == p, o != p, o == None, o == 0, o == 'a', o == C, o in [p, o]
o < p
o <= 1
sorted([o, p])
bool(o), not o
len(o)
callable(o), hasattr(o, '__float__'), hasattr(o, '__enter__')
isinstance(o, collections.abc.Hashable)
o.__dict__
setattr(o, 'zz', 5)
delattr(o, 'no_such_attribute')
o.no_such_attribute
weakref.ref(o)() is o
o()
int(o)
[1, 2][o]
round(o)
o @ o
o // 2
o % 2
~o
o & o
(o + 1).__class__.__name__
(1 - o).__class__.__name__
(-o).__class__.__name__
(o * 2).__class__.__name__
sum([o, o]).__class__.__name__
functools.reduce(lambda a, b: a + b, [o, p]).__class__.__name__
json.dumps(o)
inspect.isclass(C), inspect.isclass(o)
o.__init__()
super(C, o).__init__()
C.__init__(o)
make(type('S', (C,), {})).__class__.__mro__[1].__name__
setattr(make(type('S', (C,), {})), 'zz', 1)
(lambda s: (setattr(s, 'zz', 1), s.zz))(make(type('S', (C,), {})))
(lambda s: (s == s, hash(s) == hash(s), {s: 1}[s], isinstance(s, C)))(make(type('S', (C,), {})))
make(type('S', (C,), {'__init__': lambda self, *args: setattr(self, 'mine', 5)})).mine
make(type('S', (C,), {'__init__': lambda self, *args: C.__init__(self)})).__class__.__name__
make(type('S', (C,), {'__str__': lambda self: 'shown'})).__str__()
""".strip().split("\n")

# Of single names.
OTHERS = r"""
str(dy.Expression()), bool(dy.Expression()), dy.Expression() == dy.Expression()
dy.Expression(1, 2), dy.Expression(g=1)
dy.Expression().value()
dy.Expression().dim()
dy.Expression().backward()
dy.ones(1) + dy.Expression()
dy.esum([dy.Expression()])
type('S', (dy.Expression,), {'value': lambda self: 5})(1, 2).value()
type('S', (dy.Expression,), {'__init__': lambda self, q: None})(1).__class__.__name__
type('S', (dy.Parameters,), {'hello': lambda self: 5})().hello()
type('S', (dy.Trainer,), {'update': lambda self: 5})(pc).update()
type('S', (dy.AdamTrainer,), {'__init__': lambda self, m, x: None})(pc, 0.5).learning_rate
type('S', (dy.AdamTrainer,), {'__init__': lambda self, m, x: dy.AdamTrainer.__init__(self)})(pc, 0.5).learning_rate
type('S', (base,), {'initial_state': lambda self: 5})().initial_state()
type('S', (base,), {'__init__': lambda self, q: base.__init__(self)})(1).__class__.__name__
type('S', (dy.GRUBuilder,), {'__init__': lambda s, *a: dy.GRUBuilder.__init__(s)})(1, 2, 3, pc).initial_state().add_input(dy.ones(2)).output().dim()
base.__init__(dy.LSTMBuilder(1, 2, 2, pc))
dy.PyInitializer.__init__(dy.ConstInitializer(1))
dy.ConstInitializer.__init__(dy.GlorotInitializer(), 1)
dy.LSTMBuilder.__init__(3)
dy.tanh.__module__, dy.inputTensor.__module__, dy.zeros.__module__, dy.save.__module__, dy.renew_cg.__module__
[pickle.dumps(getattr(dy, name), 2) for name in ('tanh', 'esum', 'inputTensor', 'lookup', 'dropout', 'conv2d', 'parameter', 'random_normal', 'LSTMBuilder', 'BiRNNBuilder', 'StackedRNNState', 'AdamTrainer', 'Model')]
[pickle.loads(pickle.dumps(getattr(dy, name))) is getattr(dy, name) for name in ('tanh', 'inputTensor', 'LSTMBuilder', 'zeroes')]
copy.deepcopy(dy.tanh) is dy.tanh
functools.partial(dy.tanh)(dy.zeros(1)).value()
type('Layer', (), {'act': dy.tanh})().act(dy.zeros(1)).value()
type('Layer', (), {'make': dy.zeros})().make(2).value()
np.array([dy.ones(2), dy.ones(2)]).dtype.name, np.array([dy.ones(2), dy.ones(2)]).shape
""".strip().split("\n")


def all_cases() -> dict[str, tuple[str, str]]:
    """Name -> (class, expression)."""
    cases = {"%s: %s" % (name, code): (name, code) for name in CLASSES for code in CASES}
    cases.update({code: ("", code) for code in OTHERS})
    return cases


def answer(dy: Any, inner: Any, name: str, code: str) -> str:
    """The value of an expression as text, or the name of its exception."""
    scope = dict(globals(), dy=dy, pc=dy.ParameterCollection(), base=inner._RNNBuilder)
    try:
        if name:
            scope["C"] = getattr(dy, name, None) or getattr(inner, name)
            made = CLASSES[name] if CLASSES[name].startswith("C(") else "C()"
            scope["make"] = lambda S: eval(made, dict(scope, C=S))  # noqa: S307 - our own text
            if re.search(r"\b[op]\b", code):
                scope["o"], scope["p"] = eval(CLASSES[name], scope), eval(CLASSES[name], scope)  # noqa: S307
        return re.sub(r" at 0x[0-9a-f]+", "", repr(eval(code, scope)))  # noqa: S307 - our own text
    except Exception as error:
        return "raises " + type(error).__name__


def main() -> None:
    """Record the answers of the real DyNet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", dest="module", default="dynet")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    dy, inner = importlib.import_module(options.module), importlib.import_module("_dynet")
    answers = {}
    for case, (name, code) in all_cases().items():
        dy.renew_cg()
        answers[case] = protocol.in_child(lambda name=name, code=code: answer(dy, inner, name, code))
    records.save(options.out, {"answers": records.text(json.dumps(answers))})
    print("%d answers" % len(answers))


if __name__ == "__main__":
    main()
