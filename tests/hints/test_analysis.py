"""The parts of the analysis one by one, on small programs."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat.hints.analysis import api, lattice  # noqa: E402
from dynet_compat.hints.compiler import hints_of  # noqa: E402
from sources import analysed, explained, written  # noqa: E402

# ---------------------------------------------------------------- names of dynet


def test_every_function_of_dynet_is_known(dy: Any) -> None:
    """Each function of the module is an op, makes parameters enter the graph, or does neither."""
    known = api.EXPRESSION_FUNCTIONS | api.PLAIN | api.PARAMETER_FUNCTIONS
    known |= {"print_function", "dynet_config", "profile"}
    names = {n for n in [*dy.__all__, *dy._NOT_DYNETS] if n[0].islower()} - {"os", "sys", "pickle", "np"}
    assert names - known - api.INPUT_OPS == set()
    assert {n for n in api.OPS | api.RANDOM_OPS | api.CONSTANT_OPS if not hasattr(dy, n)} == set()


def test_every_class_of_dynet_is_known(dy: Any) -> None:
    builders = {n for n in dir(dy) if n.endswith("Builder") and n[0] != "_"}
    known = api.BUILDERS | api.TREE_BUILDERS | api.SOFTMAX_BUILDERS | {api.BIRNN, "SoftmaxBuilder"}
    assert builders - known <= {"TreeLSTMBuilder"}


# ---------------------------------------------------------------- kinds

KINDS = {
    "operator": ("x = W * E[1] + b", "Expr"),
    "state": ("x = rnn.initial_state().add_input(b)", "State"),
    "output": ("x = rnn.initial_state().add_input(b).output()", "Expr"),
    "transduced": ("x = rnn.initial_state().transduce([b])[0]", "Expr"),
    "zip": ("for i, x in zip([1], [W * b]): pass", "Expr"),
    "enumerate": ("for i, x in enumerate([W * b]): pass", "Expr"),
    "index": ("for x, e in enumerate([W * b]): pass", "Int"),
    "reversed": ("for x in reversed([W * b]): pass", "Expr"),
    "dict": ("d = {'a': W}\nx = d['a']", "Param"),
    "items": ("d = {'a': W}\nfor k, x in d.items(): pass", "Param"),
    "append": ("l = []\nl.append(W * b)\nx = l[0]", "Expr"),
    "append in a function": ("l = []\ndef f(to): to.append(W * b)\nf(l)\nx = l[0]", "Expr"),
    "tuple": ("def f(): return W * b, 1\nx, n = f()", "Expr"),
    "number of a tuple": ("def f(): return W * b, 1\nn, x = f()", "Int"),
    "attribute": ("class A:\n    def __init__(self): self.y = W * b\nx = A().y", "Expr"),
    "inherited": ("class A:\n    def m(self): return W * b\nclass B(A): pass\nx = B().m()", "Expr"),
    "super": (
        "class A:\n    def m(self): return W * b\nclass B(A):\n    def m(self): return super().m()\n"
        "x = B().m()",
        "Expr",
    ),
    "static": ("class A:\n    @staticmethod\n    def m(y): return W * y\nx = A().m(b)", "Expr"),
    "class method": ("class A:\n    @classmethod\n    def m(cls, y): return W * y\nx = A.m(b)", "Expr"),
    "property": ("class A:\n    @property\n    def m(self): return W * b\nx = A().m", "Expr"),
    "callable": ("class A:\n    def __call__(self): return W * b\nx = A()()", "Expr"),
    "item method": ("class A:\n    def __getitem__(self, i): return W * b\nx = A()[0]", "Expr"),
    "iterator": ("class A:\n    def __iter__(self): yield W * b\nfor x in A(): pass", "Expr"),
    "lambda": ("f = lambda y: W * y\nx = f(b)", "Expr"),
    "closure": ("def f():\n    z = W * b\n    def g(): return z\n    return g\nx = f()()", "Expr"),
    "nonlocal": (
        "def f():\n    z = 1\n    def g():\n        nonlocal z\n        z = W * b\n    g()\n"
        "    return z\nx = f()",
        "Expr|Int",
    ),
    "generator": ("def f():\n    yield W * b\nfor x in f(): pass", "Expr"),
    "comprehension": ("x = [W * e for e in [b]][0]", "Expr"),
    "dictionary comprehension": ("x = {k: W * b for k in 'ab'}['a']", "Expr"),
    "default": ("def f(y=b): return W * y\nx = f()", "Expr"),
    "keyword": ("def f(*, y): return y\nx = f(y=b)", "Param"),
    "any number": ("def f(*ys): return ys[0]\nx = f(b, W)", "Param"),
    "any keywords": ("def f(**ys): return ys['y']\nx = f(y=b)", "Param"),
    "starred": ("def f(y, z): return z\nx = f(*[b, b])", "Param"),
    "sum": ("x = sum([W * b, b])", "Expr"),
    "read": ("x = (W * b).npvalue()", "Number"),
    "argmax of a read": ("import numpy as np\nx = int(np.argmax((W * b).npvalue()))", "Int|Number"),
    "compared": ("x = (W * b).value() > 0", "Int|Number"),
    "length": ("x = len((W * b).vec_value())", "Int"),
    "conditional": ("x = W * b if rnn else 1", "Expr|Int"),
    "map": ("x = list(map(lambda y: W * y, [b]))[0]", "Expr"),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    y: object\nx = A(W * b).y",
        "Expr",
    ),
    "walrus": ("if (x := W * b): pass", "Expr"),
    "recursion": ("def f(n): return W * f(n - 1) if n else b\nx = f(3)", "Expr|Param"),
    "unknown": ("import torch\nx = torch.thing()", "Unknown"),
    "getattr": ("class A:\n    y = W\nx = getattr(A(), 'y')", "Param"),
}


NAMES = {
    lattice.EXPR: "Expr", lattice.STATE: "State", lattice.PARAM: "Param", lattice.INT: "Int",
    lattice.BOOL: "Int", lattice.READ: "Number",
}  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), KINDS.values(), ids=list(KINDS))
def test_kind(tmp_path: Path, text: str, kind: str) -> None:
    value = analysed(tmp_path, text).state.heap.cell("var", 0, "x").value
    found = "|".join(sorted({NAMES.get(tag, "Unknown") for tag in lattice.tags(value)}))
    assert found in (kind, f"{kind}|Unknown"), value


def test_calls_are_distinct(tmp_path: Path) -> None:
    """What a function returns is what it returns to this call."""
    text = "def f(w): return w\nx = f(W)\ny = f(1)"
    heap = analysed(tmp_path, text).state.heap
    assert [lattice.tags(heap.cell("var", 0, name).value) for name in "xy"] == [{"param"}, {"int"}]


def test_starred_import(tmp_path: Path) -> None:
    text = "from dynet import *\npc = ParameterCollection()\nW = pc.add_parameters((2, 2))\ny = tanh(W * W)\n"
    found = analysed(tmp_path, text, model=False)
    assert sorted(found.facts.ops.values()) == ["mul", "tanh"]


def test_own_modules(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "__init__.py").write_text("from .cell import Cell\n", encoding="utf-8")
    (tmp_path / "net" / "cell.py").write_text(
        "import dynet as dy\nfrom ..other import nothing\nclass Cell:\n    def __init__(self, pc):\n"
        "        self.W = pc.add_parameters((2, 2))\n    def step(self, x):\n"
        "        return dy.tanh(self.W * x)\n",
        encoding="utf-8",
    )
    text = (
        "from net import Cell\nimport net.cell as again\ncell = Cell(pc)\ny = cell.step(b)\n"
        "z = again.Cell(pc)\n"
    )
    found = analysed(tmp_path, text)
    hints = hints_of(found)
    assert sorted(hints.sources) == ["net/__init__.py", "net/cell.py", "script.py"]
    assert [(f.file, f.qualname) for f in hints.functions] == [("net/cell.py", "Cell.step")]


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("x = 1\n", encoding="utf-8")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "helper.py").symlink_to(tmp_path / "outside.py")
    assert list(hints_of(analysed(inner, "import helper\n")).sources) == ["script.py"]


# ---------------------------------------------------------------- loops

LOOPS = {
    "state": ("s = rnn.initial_state()\nfor w in ws: s = s.add_input(E[w])", "recurrence", ["s"]),
    "map": ("for w in ws: y = W * E[w]", "map", []),
    "number carried": ("n = 0\nfor w in ws:\n    y = W * E[n]\n    n = n + w", "map", []),
    "sum": ("t = 0\nfor w in ws: t += W * E[w]", "map", []),
    "sum looked at": ("t = b\nfor w in ws:\n    t += W * E[w]\n    u = W * t", "recurrence", ["t"]),
    "collected": ("l = []\nfor w in ws: l.append(W * E[w])", "map", []),
    "looked back": ("l = [b]\nfor w in ws: l.append(W * l[-1])", "recurrence", ["l"]),
    "stack": ("l = [b]\nfor w in ws:\n    x = l.pop()\n    l.append(W * x)", "recurrence", ["l"]),
    "table": ("d = {0: b}\nfor w in ws: d[w] = W * d[w - 1]", "recurrence", ["d"]),
    "written before read": ("h = b\nfor w in ws:\n    h = E[w]\n    y = W * h", "map", []),
    "only in one branch": (
        "h = b\nfor w in ws:\n    if w: h = E[w]\n    y = W * h",
        "recurrence",
        ["h"],
    ),
    "attribute": (
        "class A:\n    def __init__(self): self.h = b\n    def go(self, x): self.h = W * self.h + x\n"
        "a = A()\nfor w in ws: a.go(E[w])",
        "recurrence",
        ["A.h"],
    ),
    "attribute set first": (
        "class A:\n    def go(self, x):\n        self.h = W * x\n        return self.h\n"
        "a = A()\nfor w in ws: y = a.go(E[w])",
        "map",
        [],
    ),
    "list of an object": (
        "class A:\n    def __init__(self): self.l = [b]\n    def go(self): self.l.append(W * self.l[-1])\n"
        "a = A()\nfor w in ws: a.go()",
        "recurrence",
        ["self.l"],
    ),
    "graphs": ("for w in ws:\n    dy.renew_cg()\n    y = W * E[w]", "graph", []),
    "graphs in a function": (
        "def f(w):\n    dy.renew_cg()\n    y = W * E[w]\nfor w in ws: f(w)",
        "graph",
        [],
    ),
    "while": ("h = b\nwhile dy.cg_version() < 9: h = W * h", "recurrence", ["h"]),
    "comprehension": ("y = [W * E[w] for w in ws]", "map", []),
}


@pytest.mark.parametrize(("text", "kind", "carried"), LOOPS.values(), ids=list(LOOPS))
def test_loop(tmp_path: Path, text: str, kind: str, carried: list[str]) -> None:
    body = "ws = [1, 2]\n" + text
    for program in (body, "def main():\n    " + body.replace("\n", "\n    ") + "\nmain()"):
        loops = analysed(tmp_path, program).loops
        (facts,) = loops.found.values()
        assert (facts.kind, [name.replace("main.<locals>.", "") for name in facts.carried]) == (kind, carried)


# ---------------------------------------------------------------- explanations

EXPLAINED = {
    "read in the loop": (
        """
        def loss(w):
            y = dy.pickneglogsoftmax(W * E[w], 1)
            if y.value() > 1:
                y = y * 2
            return y
        dy.renew_cg()
        total = dy.esum([loss(w) for w in [1, 2]])
        total.backward()
        """,
        {("read", "value()")},
    ),
    "online": (
        """
        trainer = dy.AdamTrainer(pc)
        for w in [1, 2]:
            dy.renew_cg()
            loss = dy.pickneglogsoftmax(W * E[w], 1)
            print(loss.value())
            loss.backward()
            trainer.update()
        """,
        {("renew", "renew_cg()"), ("update", "update()"), ("loss", "value()")},
    ),
    "inner renewal": (
        """
        for batch in [[1, 2]]:
            for w in batch:
                dy.renew_cg()
                loss = W * E[w]
            dy.sum_elems(loss).backward()
        """,
        {("inner", "inner loop")},
    ),
    "parameters": (
        """
        dy.renew_cg()
        losses = []
        for w in [1, 2]:
            U = pc.add_parameters((4, 4))
            losses.append(dy.pickneglogsoftmax(U * E[w], 1))
        dy.esum(losses).backward()
        """,
        {("parameters", "made in a loop")},
    ),
    "builder": (
        """
        dy.renew_cg()
        losses = []
        for w in [1, 2]:
            cell = dy.GRUBuilder(1, 4, 4, pc)
            losses.append(dy.pickneglogsoftmax(cell.initial_state().add_input(E[w]).output(), 1))
        dy.esum(losses).backward()
        """,
        {("parameters", "made in a loop")},
    ),
    "input": (
        """
        dy.renew_cg()
        numbers = [1, 2, 3, 4]
        losses = []
        for w in [1, 2]:
            losses.append(dy.pickneglogsoftmax(W * E[w] + dy.inputVector(numbers), 1))
        dy.esum(losses).backward()
        """,
        {("input", "inputVector()")},
    ),
    "immediate": (
        "dy.renew_cg(immediate_compute=True)\ny = W * b\n",
        {("immediate", "immediate_compute=True")},
    ),
    "nothing": (
        """
        dy.renew_cg()
        losses = []
        for w in [1, 2]:
            losses.append(dy.pickneglogsoftmax(W * E[w] + dy.inputVector([w] * 4), 1))
        loss = dy.esum(losses)
        loss.backward()
        loss.value()
        """,
        set(),
    ),
}


@pytest.mark.parametrize(("text", "want"), EXPLAINED.values(), ids=list(EXPLAINED))
def test_hindrances(tmp_path: Path, text: str, want: set[tuple[str, str]]) -> None:
    found = explained(analysed(tmp_path, text)).hindrances
    assert {f.code for f in found} == {code for code, _ in want}
    for code, words in want:
        assert any(f.code == code and words in f.call + f.text for f in found), [str(f) for f in found]


def test_lines_are_those_of_the_script(tmp_path: Path) -> None:
    text = EXPLAINED["online"][0]
    source = written(tmp_path, text).read_text(encoding="utf-8").splitlines()
    for finding in explained(analysed(tmp_path, text)).hindrances:
        assert (finding.call + finding.text).split("(")[0] in source[finding.line - 1]


def test_explanation_of_regions_and_maps(tmp_path: Path) -> None:
    text = """
        def cell(x): return dy.tanh(W * x)
        def net(x):
            for i in range(3):
                x = dy.tanh(V * x)
            return x
        def predict(w): return (cell(E[w]) + net(b)).npvalue()
        out = [predict(w) for w in [1, 2]]
        for w in [1, 2]:
            print(predict(w))
    """
    lines = "\n".join(explained(analysed(tmp_path, text)).lines())
    assert "script.py:10: cell(): line 10" in lines and "script.py:12: net(): each iteration" in lines
    assert "recurrence: each iteration needs x" in lines
    assert "dy.batch_map() can run them together" in lines and "print(), whose order is seen" in lines


def test_syntax_tree_is_left_as_it_was(tmp_path: Path) -> None:
    found = analysed(tmp_path, "def f(x): return W * x\nf(b)")
    assert ast.dump(found.program.sources[0].tree) == ast.dump(ast.parse(found.program.sources[0].data))


@pytest.mark.skipif(sys.version_info < (3, 10), reason="no match")
def test_match(tmp_path: Path) -> None:
    """Names in patterns, arms, and what a loop surely does."""
    text = """
        def f(x, n):
            match n:
                case [h, *rest]:
                    x = W * x
                case {"a": y, **others}:
                    x = dy.tanh(W * x)
                case _:
                    pass
            return x

        for n in [1, 2]:
            match n:
                case 1:
                    dy.renew_cg()
            loss = dy.sum_elems(f(E[1], n))
            loss.backward()
    """
    found = analysed(tmp_path, text)
    assert sorted(found.facts.ops.values()) == ["lookup", "mul", "mul", "sum_elems", "tanh"]
    assert [i.kind for i in found.instances.all] == ["batch"]  # renew_cg() is not in every iteration


def test_backward_in_a_helper_is_found(tmp_path: Path) -> None:
    """The loop over instances is that of the helper's caller, also when they lie in two modules."""
    (tmp_path / "steps.py").write_text(
        "class Step:\n"
        "    def __init__(self, trainer): self.trainer = trainer\n"
        "    def __call__(self, loss):\n"
        "        number = loss.value()\n"
        "        loss.backward()\n"
        "        self.trainer.update()\n"
        "        return number\n",
        encoding="utf-8",
    )
    text = """
        from steps import Step
        step = Step(dy.SimpleSGDTrainer(pc))
        def loss_of(w): return dy.pickneglogsoftmax(W * E[w], 1)
        for w in [1, 2]:
            dy.renew_cg()
            step(loss_of(w))
        """
    found = [str(f) for f in explained(analysed(tmp_path, text)).hindrances]
    assert [f.split(": ", 1)[1].split(" ")[0] for f in found] == ["renew_cg()", "value()", "update()"], found
    assert [f.split(":")[0] for f in found] == ["script.py", "steps.py", "steps.py"]


def test_loss_summed_in_a_helper_leads_to_its_loop(tmp_path: Path) -> None:
    text = """
        def finish(losses):
            dy.esum(losses).backward()
        dy.renew_cg()
        losses = []
        for w in [1, 2]:
            y = W * E[w]
            y.value()
            losses.append(dy.pickneglogsoftmax(y, 1))
        finish(losses)
        """
    explanation = explained(analysed(tmp_path, text))
    assert [f.code for f in explanation.hindrances] == ["read"]
    assert any("the loop over instances" in f.text for f in explanation.loops)


def test_equal_findings_are_one_line_the_most_costly_first(tmp_path: Path) -> None:
    text = """
        def step(w):
            y = W * E[w]
            y.value()
            y.npvalue()
            dy.tanh(y).value()
            return dy.pickneglogsoftmax(y, 1)
        dy.renew_cg(immediate_compute=True)
        loss = dy.esum([step(w) for w in [1, 2]])
        loss.backward()
        """
    lines = explained(analysed(tmp_path, text)).lines()
    found = lines[1 : lines.index("loops:")]
    assert len(found) == 2, found
    assert "immediate_compute=True" in found[0]
    assert re.match(r"  script\.py:\d+, \d+, \d+: npvalue\(\), value\(\) in the loop over", found[1])


def test_reasons_name_the_file_and_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(
        "import dynet as dy\ndef scores(W, xs): return [dy.tanh(W * dy.exp(x)) for x in xs]\n",
        encoding="utf-8",
    )
    text = """
        from cells import scores
        def net(x):
            y = V * x
            print(y)
            return W * y
        def loss(x): return dy.esum(scores(W, [x])) + dy.sum_elems(W * x)
        loss(net(b))
        """
    lines = "\n".join(explained(analysed(tmp_path, text)).lines())
    assert "cells.py:2: scores(): each element of the comprehension" in lines
    assert "net() has none: line 13: it calls print(); do that before" in lines
