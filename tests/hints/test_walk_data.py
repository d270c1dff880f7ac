"""Numbers of the script that functions recorded by one call copy into nodes: dy.inputVector()."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

import numpy as np
import pytest
from support.walks import TIMES, hits, learn, model_of, refusals, remembered

MODEL = """
import numpy as np
LOOKS = []

class Number:
    def __init__(self, x):
        self.x = x
    def __float__(self):
        LOOKS.append(self.x)
        return self.x

class Double(np.float64):
    def __float__(self):
        LOOKS.append("double")
        return 3.5

class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.W = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.data = [(MAKE(i), i) for i in range(5)]

    def layer(self, x):
        return dy.tanh(self.W * x + self.b)

    def run(self, instance):
        x = INPUT(instance[0])
        for _ in range(1 + instance[1] % 2):
            x = self.layer(x)
        return dy.pick(x, instance[1] % 3)
"""
KINDS = {"list": "[0.5 * i, 1, -2.0]", "tuple": "(0.5 * i, 1.0, -2.0)"}
OTHERS = {
    "array": "np.array([i, 1.0, 2.0])",
    "small numbers": "np.array([i, 1.0, 2.0], dtype=np.float16)",
    "whole numbers": "np.array([i, 1, 2])",
    "NumPy's numbers": "list(np.array([i, 1.0, 2.0]))",
    "lists": "[[i], [1.0], [2.0]]",
}


def use(module: ModuleType) -> list:
    model = model_of(module)
    results: list = []
    for instance in model.data:
        try:
            results.append(model.run(instance))
        except (TypeError, ValueError) as error:
            results.append(str(error))
    return [*results, list(module.LOOKS)]


def make(pair: Callable, data: str, function: str = "dy.inputVector", source: str = MODEL) -> Any:
    return pair(source.replace("INPUT", function).replace("MAKE(i)", data))


def change_numbers(module: ModuleType) -> list:
    for numbers, i in model_of(module).data:
        numbers[0] = 7 + i
    return use(module)


def learned(pair: Callable, kind: str) -> Any:
    p = make(pair, KINDS[kind])
    learn(p, use)
    return p


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_copied_as_they_are_then(pair: Callable, kind: str) -> None:
    """Remembered calls do not compare them."""
    p = learned(pair, kind)
    before = remembered(p)
    if kind == "list":
        p.agree(change_numbers)
    p.agree(use)
    assert remembered(p) >= before + 5, refusals(p)


@pytest.mark.parametrize("function", ["dy.inputVector", "dy.inputTensor"])
@pytest.mark.parametrize("kind", OTHERS)
def test_arrays(pair: Callable, kind: str, function: str) -> None:
    """Copying them may warn, or let another thread run: no walk does it."""
    p = make(pair, OTHERS[kind], function)
    for _ in range(TIMES):
        p.agree(use)
    assert hits(p) == 0, refusals(p)
    if kind != "lists":
        p.agree(change_numbers)
    p.agree(use)


@pytest.mark.parametrize(
    "change",
    [
        "x[1] = module.Number(2.5)",  # whose float() is seen
        "x[1] = module.Double(2.5)",
        "x[1] = np.float32(2.5)",
        "x[1] = np.complex64(1)",
        "x[1] = True",
        "x[1] = 2**70",
        "x[1] = 2**2000",
        "x[1] = 'text'",
        "x[1] = None",
        "x[1] = x",
        "x[1] = dy.scalarInput(1.0)",
        "x[1] = float('nan')",
        "x.append(1.0)",
        "x.clear()",
        "model.data[0] = (np.array([1.0, module.Number(2.5), 3.0]), 0)",
        "model.data[0] = (np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0]), 0)",
        "model.data[0] = (np.array(['1', '2', '3']), 0)",
        "model.data[0] = (np.ones((3, 1)), 0)",
        "model.data[0] = (np.float64(1), 0)",
        "module.dy = type('Api', (), {**vars(dy), 'inputVector': staticmethod(lambda x: dy.zeros(3))})",
    ],
)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_other_data(pair: Callable, change: str) -> None:
    p = learned(pair, "list")

    def changed(module: ModuleType) -> list:
        import dynet_compat as dy

        model = model_of(module)
        exec(change, {"x": model.data[0][0], "model": model, "module": module, "np": np, "dy": dy})
        return use(module)

    p.agree(changed)
    for _ in range(TIMES):
        p.agree(use)


def test_a_list_that_the_function_appends_to(pair: Callable) -> None:
    source = MODEL.replace("        x = INPUT", "        instance[0].append(1.0)\n        x = INPUT")
    p = make(pair, "[1.0, 2.0]", source=source)

    def clear(module: ModuleType) -> list:
        for numbers, _ in model_of(module).data:
            del numbers[2:]
        return use(module)

    for _ in range(TIMES):
        p.agree(clear)
