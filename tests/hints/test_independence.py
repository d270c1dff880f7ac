"""Which loops over instances are proved to be independent, and the reason where one is not.

Every program here reads numbers inside the loop. The wrong ones must not be proved: a proof is taken as leave
to run the iterations together.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat.hints.compiler import independent_loops  # noqa: E402
from sources import analysed  # noqa: E402

PREDICT = """
def predict(words):
    s = rnn.initial_state()
    out = []
    for w in words:
        s = s.add_input(E[w])
        out.append(s.output().npvalue())
    return out
"""

PROVED = {
    "appends": "for x in batch:\n    results.append(predict(x))",
    "several appends": "for x in batch:\n    results.append(predict(x))\n    more.append(len(x))",
    "append in a branch": "for x in batch:\n    p = predict(x)\n    if p:\n        results.append(p)",
    "sums": "for x in batch:\n    total += (W * E[x[0]]).npvalue()[0]",
    "long sums": "for x in batch:\n    total = total + dy.sum_elems(W * E[x[0]]).value()",
    "own list": "for x in batch:\n    mine = []\n    mine.append(predict(x))\n    results.append(mine)",
    "own names": "for x in batch:\n    a = predict(x)\n    b2 = a[0]\n    results.append(b2)",
    "continue": "for x in batch:\n    if not x:\n        continue\n    results.append(predict(x))",
    "inner break": "for x in batch:\n    p = predict(x)\n    for y in p:\n        break\n"
    "    results.append(p)",
    "pairs": "for x, y in zip(batch, batch):\n    results.append(predict(x) + y)",
    "numbered": "for i, x in enumerate(batch):\n    results.append((i, predict(x)))",
    "comprehension": "results2 = [predict(x) for x in batch]",
    "renew first": "for x in batch:\n    dy.renew_cg()\n    results.append(predict(x))",
    "nothing kept": "for x in batch:\n    predict(x)",
    "helper changes what is given": (
        "def fill(into, x):\n    into.append(predict(x))\n"
        "for x in batch:\n    mine = []\n    fill(mine, x)\n    results.append(mine)"
    ),
    "recursion": (
        "def walk(n):\n    if n < 1:\n        return [(W * E[0]).npvalue()]\n    return walk(n - 1)\n"
        "for x in batch:\n    results.append(walk(x[0]))"
    ),
    "own object": (
        "class Box:\n    def __init__(self):\n        self.items = 0\n"
        "for x in batch:\n    box = Box()\n    box.items = predict(x)\n    results.append(box)"
    ),
    "settings are shown": "for k, v in vars(pc).items():\n    print(k, v)\nfor x in batch:\n    predict(x)",
    "subclass": (
        "class A:\n    def __init__(self):\n        self.n = 1\n"
        "class B(A):\n    def __init__(self):\n        super().__init__()\n        self.m = 2\n"
        "for x in batch:\n    mine = B()\n    mine.n = predict(x)\n    results.append(mine)"
    ),
    "mutual recursion without effects": (
        "def a(n):\n    return b2(n - 1) if n else (W * E[0]).npvalue()\ndef b2(n):\n    return a(n)\n"
        "for x in batch:\n    results.append(a(1))"
    ),
    "numpy": "import numpy as np\nfor x in batch:\n    results.append(np.argmax(predict(x)[0]))",
}

# program -> a word of the reason
REFUSED = {
    "carried name": ("last = 0\nfor x in batch:\n    last = predict(x)[0][0] + last", "last"),
    "carried tensor": ("h = E[0]\nfor x in batch:\n    h = dy.tanh(W * h)\n    h.npvalue()", "recurrence"),
    "looked at": ("for x in batch:\n    results.append(predict(x))\n    len(results)", "results"),
    "looked at by a function": (
        "def peek():\n    return len(results)\nfor x in batch:\n    results.append(predict(x[:peek()]))",
        "results",
    ),
    "second name": (
        "other = results\nfor x in batch:\n    results.append(predict(x))\n    len(other)",
        "results",
    ),
    "sum looked at": ("for x in batch:\n    total += predict(x)[0][0]\n    results.append(total)", "total"),
    "sum looked at by a function": (
        "def peek():\n    return int(total)\nfor x in batch:\n    total += predict(x[peek():])[0][0]",
        "total",
    ),
    "sum of lists from the left": ("for x in batch:\n    results = predict(x) + results", "results"),
    "product": ("for x in batch:\n    total *= predict(x)[0][0]", "total"),
    "print": ("for x in batch:\n    print(predict(x))", "print"),
    "print in a function": ("def show(x):\n    print(x)\nfor x in batch:\n    show(predict(x))", "print"),
    "file": ("f = open('x', 'w')\nfor x in batch:\n    f.write(str(predict(x)))", "write"),
    "random": (
        "import random\nfor x in batch:\n    results.append(predict(x)[random.randrange(1)])",
        "random",
    ),
    "numpy random": (
        "import numpy as np\nfor x in batch:\n    results.append(predict(x)[0] + np.random.rand())",
        "random",
    ),
    "random by name": (
        "from random import shuffle\nfor x in batch:\n    p = predict(x)\n    shuffle(p)",
        "random",
    ),
    "dropout": ("for x in batch:\n    results.append(dy.dropout(W * E[x[0]], 0.5).npvalue())", "dropout"),
    "dropout of a builder": (
        "rnn.set_dropout(0.5)\nfor x in batch:\n    results.append(predict(x))",
        "dropout",
    ),
    "noise in a function": (
        "def noisy(x):\n    return dy.noise(W * E[x], 0.1).npvalue()\nfor x in batch:\n"
        "    results.append(noisy(x[0]))",
        "noise",
    ),
    "break": ("for x in batch:\n    if predict(x):\n        break", "break"),
    "return": ("def f():\n    for x in batch:\n        return predict(x)\nf()", "return"),
    "yield": ("def f():\n    for x in batch:\n        yield predict(x)\nlist(f())", "yield"),
    "attribute": (
        "class Keep:\n    last = None\nkeep = Keep()\nfor x in batch:\n    keep.last = predict(x)",
        "keep.last",
    ),
    "attribute in a method": (
        "class Keep:\n    def put(self, p):\n        self.last = p\n"
        "keep = Keep()\nfor x in batch:\n    keep.put(predict(x))",
        "keep",
    ),
    "item": ("table = {}\nfor x in batch:\n    table[x[0]] = predict(x)", "table"),
    "item of a parameter": (
        "def note(t, x):\n    t[x[0]] = predict(x)\ntable = {}\nfor x in batch:\n    note(table, x)",
        "table",
    ),
    "renamed parameter": (
        "shared = []\ndef note(t, x):\n    t = shared\n    t.append(predict(x))\n"
        "for x in batch:\n    mine = []\n    note(mine, x)",
        "t ",
    ),
    "default list": (
        "def note(x, seen=[]):\n    seen.append(x)\n    return predict(x)\nfor x in batch:\n    note(x)",
        "an argument",
    ),
    "global": (
        "count = 0\ndef note(x):\n    global count\n    count += 1\n    return predict(x)\n"
        "for x in batch:\n    note(x)",
        "global",
    ),
    "closure": (
        "def outer():\n    n = 0\n    def inner(x):\n        nonlocal n\n        n += 1\n"
        "        return predict(x)\n"
        "    for x in batch:\n        inner(x)\nouter()",
        "nonlocal",
    ),
    "memory": (
        "cache = {}\ndef get(x):\n    if x[0] not in cache:\n        cache[x[0]] = predict(x)\n"
        "    return cache[x[0]]\n"
        "for x in batch:\n    results.append(get(x))",
        "cache",
    ),
    "alias of an attribute": (
        "class Keep:\n    def __init__(self):\n        self.all = []\nkeep = Keep()\n"
        "for x in batch:\n    them = keep.all\n    them.append(predict(x))",
        "them",
    ),
    "shared inner list": (
        "shared = [[]]\nfor x in batch:\n    for y in shared:\n        y.append(predict(x))",
        "y",
    ),
    "fresh once": (
        "shared = [[]]\nfor x in batch:\n    y = []\n    for y in shared:\n        y.append(predict(x))",
        "y",
    ),
    "unknown call": ("import somewhere\nfor x in batch:\n    somewhere.act(predict(x))", "act"),
    "unknown object": ("def f(thing):\n    for x in batch:\n        thing.act(predict(x))", "act"),
    "callable argument": ("def f(act):\n    for x in batch:\n        act(predict(x))", "act"),
    "used afterwards": ("for x in batch:\n    p = predict(x)\nprint(p)", "p "),
    "used in another function": ("for x in batch:\n    p = predict(x)\ndef later():\n    return p", "p "),
    "renew later": ("for x in batch:\n    y = predict(x)\n    dy.renew_cg()", "renew_cg"),
    "renew in a function": (
        "def f(x):\n    dy.renew_cg()\n    return predict(x)\nfor x in batch:\n    f(x)",
        "renew_cg",
    ),
    "checkpoint": ("for x in batch:\n    dy.cg_checkpoint()\n    predict(x)", "cg_checkpoint"),
    "with": (
        "import threading\nlock = threading.Lock()\nfor x in batch:\n    with lock:\n        predict(x)",
        "with",
    ),
    "try": ("for x in batch:\n    try:\n        predict(x)\n    except ValueError:\n        pass", "try"),
    "generator": (
        "def source():\n    for x in batch:\n        print(x)\n        yield x\nfor x in source():\n"
        "    predict(x)",
        "generator",
    ),
    "pop of the batch": ("for x in batch:\n    predict(batch.pop())", "batch"),
    "popped in a function": (
        "def take():\n    return predict(batch.pop())\nfor x in batch:\n    take()",
        "batch",
    ),
    "weights change": ("for x in batch:\n    predict(x)\n    W.set_value([[0]])", "set_value"),
    "input is set": ("inp = dy.vecInput(4)\nfor x in batch:\n    inp.set(x)\n    (W * inp).npvalue()", "set"),
    "decorated": (
        "import functools\n@functools.lru_cache\ndef f(x):\n    return (W * E[x]).npvalue()\n"
        "for x in batch:\n    f(x[0])",
        "f()",
    ),
    "operator": (
        "class N:\n    def __init__(self):\n        self.n = 0\n    def __add__(self, o):\n"
        "        self.n += 1\n"
        "        return self\nn = N()\nfor x in batch:\n    predict(x)\n    n + 1",
        "N.__add__",
    ),
    "out=": (
        "import numpy as np\na = np.zeros(4)\nfor x in batch:\n    np.add(predict(x)[0], 1, out=a)",
        "out=",
    ),
    "sort": ("for x in batch:\n    x.sort()\n    predict(x)", "x"),
    "else": ("for x in batch:\n    predict(x)\nelse:\n    pass", "else"),
    "filtered": ("r = [predict(x) for x in batch if x]", "comprehension"),
    "starred": (
        "def fill(a, into):\n    into.append(predict(a))\n"
        "for x in batch:\n    mine = []\n    fill(*[x, results])",
        "an argument",
    ),
    "property": (
        "class K:\n    n = 0\n    @property\n    def p(self):\n        self.n += 1\n        return self.n\n"
        "k = K()\nfor x in batch:\n    predict(x)\n    k.p",
        "K.p",
    ),
    "class attribute": (
        "class K:\n    n = 0\n    def __init__(self):\n        K.n += 1\n"
        "for x in batch:\n    predict(x)\n    K()",
        "K.n",
    ),
    "setattr": (
        "class K:\n    pass\nk = K()\nfor x in batch:\n    setattr(k, 'p', predict(x))",
        "names that",
    ),
    "augmented list": ("for x in batch:\n    results += [predict(x)]", "results"),
    "worklist": ("for x in results:\n    results.append(predict(x))", "results"),
    "worklist of pairs": ("for i, x in enumerate(results):\n    results.append(predict(x))", "results"),
    "worklist by iterator": (
        "them = iter(results)\nfor x in them:\n    results.append(predict(x))",
        "iterator",
    ),
    "worklist by another name": ("them = results\nfor x in them:\n    results.append(predict(x))", "results"),
    "mutual recursion": (
        "def a(n):\n    if n:\n        b2(n - 1)\n    print(n)\n"
        "def b2(n):\n    return a(n)\na(0)\nfor x in batch:\n    b2(1)\n    predict(x)",
        "print",
    ),
    "changes through recursion": (
        "def a(n, to):\n    if n:\n        b2(n - 1, to)\n"
        "def b2(n, to):\n    to.append(n)\n    a(n, to)\na(0, [])\n"
        "for x in batch:\n    a(1, more)\n    predict(x)",
        "more",
    ),
    "method by another name": (
        "class K:\n    def __init__(self):\n        self.n = 0\n    def put(self, to):\n        self.n += 1\n"
        "k = K()\nput = k.put\nfor x in batch:\n    mine = []\n    put(mine)\n    predict(x)",
        "an argument",
    ),
    "method of the class": (
        "class K:\n    def put(self, to):\n        to.append(1)\n"
        "for x in batch:\n    mine = K()\n    K.put(mine, more)\n    predict(x)",
        "an argument",
    ),
    "called back": (
        "def grow(y):\n    y.append(1)\n    return 0\n"
        "for x in batch:\n    mine = [more]\n    sorted(mine, key=grow)\n    predict(x)",
        "an argument",
    ),
    "item assignment that prints": (
        "class K:\n    def __setitem__(self, k, v):\n        print(k)\n"
        "for x in batch:\n    mine = K()\n    mine[0] = predict(x)",
        "K.__setitem__",
    ),
    "computed attributes": (
        "class K:\n    def p(self, x):\n        return predict(x)\n"
        "def louder(self, x):\n    print(x)\nfor n in input():\n    setattr(K, n, louder)\n"
        "k = K()\nfor x in batch:\n    k.p(x)",
        "names that",
    ),
    "attributes by their table": (
        "class K:\n    def p(self, x):\n        return predict(x)\nk = K()\nk.__dict__.update(p=print)\n"
        "for x in batch:\n    k.p(x)",
        "names that",
    ),
    "dynet changed": ("dy.tanh = print\nfor x in batch:\n    predict(x)", "another module"),
    "patched method": (
        "class K:\n    def p(self, x):\n        return predict(x)\ndef louder(self, x):\n    print(x)\n"
        "K.p = louder\nk = K()\nfor x in batch:\n    k.p(x)",
        "print",
    ),
    "shared iterator": (
        "source = iter([1, 2, 3])\nfor x in batch:\n    for y in source:\n        predict(x)\n        break",
        "iterator",
    ),
    "shared generator": (
        "def numbers():\n    yield 1\nsource = numbers()\n"
        "for x in batch:\n    for y in source:\n        predict(x)",
        "generator",
    ),
    "body of a class": ("class K:\n    for x in batch:\n        p = predict(x)\nK.p", "class"),
    "nested appends": ("for x in batch:\n    results[0].append(predict(x))", "append"),
}
SETUP = "batch = [[1, 2], [3]]\nresults = []\nmore = []\ntotal = 0.0\n"


@pytest.mark.parametrize("text", PROVED.values(), ids=list(PROVED))
def test_proved(tmp_path: Path, text: str) -> None:
    found = analysed(tmp_path, PREDICT + SETUP + text).independence
    assert [r.reason for r in found.all] == [""]
    assert len(found.proved()) == 1


@pytest.mark.parametrize(("text", "word"), REFUSED.values(), ids=list(REFUSED))
def test_refused(tmp_path: Path, text: str, word: str) -> None:
    found = analysed(tmp_path, PREDICT + SETUP + text).independence
    assert found.proved() == []
    if word == "recurrence":
        assert found.all == [] and found.loops.found[found.program.loops[-1].id].kind == word
    else:
        assert found.all and any(word in r.reason for r in found.all), [r.reason for r in found.all]


def test_what_is_kept(tmp_path: Path) -> None:
    text = (
        "for x in batch:\n    dy.renew_cg()\n    p = predict(x)\n    results.append(p)\n    total += len(p)"
    )
    (loop,) = independent_loops(analysed(tmp_path, PREDICT + SETUP + text))
    assert (loop.renew_first, loop.appends, loop.sums) == (True, ("results",), ("total",))


def test_training_loops_are_left_alone(tmp_path: Path) -> None:
    text = """
        trainer = dy.AdamTrainer(pc)
        for x in batch:
            loss = dy.sum_elems(W * E[x[0]])
            results.append(loss.value())
            loss.backward()
            trainer.update()
    """
    import textwrap

    assert analysed(tmp_path, PREDICT + SETUP + textwrap.dedent(text)).independence.all == []


def test_unfinished_analysis_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynet_compat.hints.analysis import interpreter

    text = PREDICT + SETUP + PROVED["appends"]
    assert analysed(tmp_path, text).independence.proved()
    monkeypatch.setattr(interpreter, "MAX_STEPS", 50)
    found = analysed(tmp_path, text)
    assert not found.state.complete and independent_loops(found) == []
