"""Every public op function has a docstring whose example runs."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ops.cases import CASES
from support.subject import IS_REFERENCE, subject

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our documentation")

# every function that a case calls is an op function
FUNCTIONS = sorted({name for case in CASES for name in re.findall(r"\bdy\.([A-Za-z_0-9]+)\(", case.expr)})
CLASSES = (
    "ParameterCollection",
    "Parameters",
    "LookupParameters",
    "SimpleSGDTrainer",
    "MomentumSGDTrainer",
    "AdagradTrainer",
    "AdamTrainer",
    "SimpleRNNBuilder",
    "VanillaLSTMBuilder",
    "GRUBuilder",
    "BiRNNBuilder",
    "StackedRNNState",
    "StandardSoftmaxBuilder",
    "ClassFactoredSoftmaxBuilder",
    "HierarchicalSoftmaxBuilder",
    "NaryTreeLSTMBuilder",
    "UnidirectionalTreeLSTMBuilder",
    "BidirectionalTreeLSTMBuilder",
    "EGTrainer",
    "AdamWTrainer",
)


def run_examples(dy: Any, name: str, doc: str) -> int:
    """Execute the examples of one docstring, in a folder of their own; fails with doctest's own report."""
    dy.renew_cg()
    dy.reset_random_seed(1)
    parsed = doctest.DocTestParser().get_doctest(doc, {"dy": dy, "np": np}, name, None, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            runner.run(parsed, out=report.append)
        finally:
            os.chdir(before)
    assert runner.failures == 0, "the example of {} fails:\n{}".format(name, "".join(report))
    return runner.tries


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(dy: Any, name: str) -> None:
    doc = getattr(dy, name).__doc__
    assert doc, f"dy.{name} has no docstring"
    assert "Example" in doc and ">>> " in doc, f"the docstring of dy.{name} has no Example block"
    assert run_examples(dy, name, doc) > 0


@pytest.mark.parametrize("name", CLASSES)
def test_class(dy: Any, name: str) -> None:
    """Classes need a docstring; their examples, where there are some, run."""
    doc = getattr(dy, name).__doc__
    assert doc, f"dy.{name} has no docstring"
    run_examples(dy, name, doc)


def test_list_is_long() -> None:
    assert len(FUNCTIONS) > 110


# Attributes that raise AttributeError and say what to write instead.
ADVICE = {f"Expression.{name}" for name in ("T", "detach", "item", "mean", "numpy", "shape", "sum")}


# Classes of the package that are no names of the API, and have methods of those that are.
INNER_BASES = {"PythonBuilder", "_ChainTreeBuilder", "_TreeBuilder", "_WithSpec"}


def documented(dy: Any) -> Iterator[tuple[str, str]]:
    """Name and docstring of every public function, class, method and property of ours."""
    for name in sorted(dir(dy)):
        item = getattr(dy, name)
        module = getattr(item, "__module__", None) or "_dynet"
        if inspect.ismodule(item) or not callable(item) or not module.startswith(("dynet_compat", "_dynet")):
            continue
        if name.startswith("__"):
            continue
        yield name, item.__doc__ or ""
        classes = [item] if inspect.isclass(item) else []
        classes += [c for base in classes for c in base.__mro__[1:] if c.__name__ in INNER_BASES]
        for member, value in ((m, v) for c in classes for m, v in vars(c).items()):
            described = isinstance(value, property) or inspect.isgetsetdescriptor(value)
            if f"{name}.{member}" in ADVICE:
                continue
            if not member.startswith("_") and (described or callable(getattr(item, member))):
                yield f"{name}.{member}", (value if described else getattr(item, member)).__doc__ or ""


def of_jobs(dy: Any) -> Iterator[tuple[str, str]]:
    every = {name: getattr(dy.distributed, name) for name in dy.distributed.__all__}
    yield from ((f"distributed.{name}", item.__doc__ or "") for name, item in every.items() if callable(item))


DOCUMENTED = {} if IS_REFERENCE else dict([*documented(subject()), *of_jobs(subject())])
SECTIONS = ("Args", "Returns", "Raises", "Source", "Example")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented(dy: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    doc = DOCUMENTED[name]
    assert "Example:\n" in doc and ">>> " in doc, f"the docstring of dy.{name} has no Example block"
    places = [match.start() for word in SECTIONS if (match := re.search(rf"^ *{word}:", doc, re.M))]
    assert places == sorted(places), f"dy.{name}: sections in the order {SECTIONS}"
    if name not in FUNCTIONS:
        assert run_examples(dy, name, doc) > 0


def test_documented_list_is_long() -> None:
    assert len(DOCUMENTED) > 370
    for name in ("Tensor.topk", "ParameterCollection.state_dict", "Trainer.learning_rate", "RNNState.h"):
        assert name in DOCUMENTED
