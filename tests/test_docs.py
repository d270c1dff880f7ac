"""Every public op function has a docstring whose example runs."""

from __future__ import annotations

import doctest
import re
from typing import Any

import numpy as np
import pytest
from ops.cases import CASES
from support.subject import IS_REFERENCE

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
)


def run_examples(dy: Any, name: str, doc: str) -> int:
    """Execute the examples of one docstring; fails with doctest's own report."""
    dy.renew_cg()
    dy.reset_random_seed(1)
    parsed = doctest.DocTestParser().get_doctest(doc, {"dy": dy, "np": np}, name, None, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(parsed, out=report.append)
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
