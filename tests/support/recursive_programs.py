"""Random programs of recursive functions over trees: classes, tuples and lists, as scripts write them."""

from __future__ import annotations

import random
from typing import Any

HEAD = '''import dynet_compat as dy

class Tree:
{slots}    def __init__(self, label, word, kids):
        self.label = label
        self.word = word
        self.kids = kids
        self.left = kids[0] if kids else None
        self.right = kids[-1] if kids else None
    def isleaf(self):
        return {isleaf}
    @property
    def leafy(self):
        return not self.kids
    def size(self):
        return len(self.kids)
    def {tree_method}(self, model, out):
        return model.{entry}(self, out)

class Odd(Tree):
    def isleaf(self):
        return self.word is not None

class Computed(Tree):
    def __getattr__(self, name):
        raise AttributeError(name)

class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((9, 3))
        self.W = pc.add_parameters((3, 3))
        self.U = {{g: pc.add_parameters((3, 3)) for g in "lr"}}
        self.b = pc.add_parameters(3)
        self.V = pc.add_parameters((5, 3))
        self.scores = []
        self.depth = 0
'''


class Generator:
    """Writes one module; `rng` decides everything."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pair = self.rng.random() < 0.5  # are states (h, c)?
        self.losses = self.rng.choice(["", "out", "self.scores"])
        self.two = self.rng.random() < 0.4  # functions that call one another
        self.depth = self.rng.random() < 0.3
        self.names = ["encode", "inner"] if self.two else ["encode"]

    def vector(self, *inputs: str) -> str:
        """An expression of one or more ops."""
        r = self.rng
        x = r.choice(inputs)
        parts = [
            f"self.W * {x}", f"dy.tanh({x})", f"{x} + self.b", f"dy.affine_transform([self.b, self.W, {x}])",
            f"dy.cmult({x}, {r.choice(inputs)})", f"dy.esum([{x}, {r.choice(inputs)}])", f"{x} * 0.5",
            f"self.U['l'] * {x} + self.U['r'] * {r.choice(inputs)}", f"dy.dropout({x}, 0.3)",
        ]  # fmt: skip
        e = r.choice(parts)
        return f"dy.logistic({e})" if r.random() < 0.4 else e

    def leaf_test(self) -> str:
        return self.rng.choice([
            "t.isleaf()", "not t.kids", "len(t.kids) == 0", "t.leafy", "t.left is None", "t.size() < 1",
            "t.isleaf() and True", "t.word is not None and not t.kids", "isinstance(t.word, int)",
            "t.size() == 0",
        ])  # fmt: skip

    def state(self, h: str) -> str:
        return f"({h}, {self.vector(h)})" if self.pair else h

    def record_loss(self) -> list[str]:
        if not self.losses:
            return []
        h = "s[0]" if self.pair else "s"
        test = self.rng.choice([None, None, "if t.label > 1:", "if t.label != 0 or t.kids:", "if depth > 0:"])
        if test and "depth" in test and not self.depth:
            test = None
        line = f"{self.losses}.append(dy.pickneglogsoftmax(self.V * {h}, t.label))"
        return [test, "    " + line] if test else [line]

    def leaf(self) -> list[str]:
        lines = [f"x = {self.rng.choice(['self.E[t.word]', 'dy.lookup(self.E, t.word)', 'self.vec(t)'])}"]
        if self.rng.random() < 0.7:
            lines.append(f"x = {self.vector('x')}")
        if self.rng.random() < 0.3:  # what has been recorded before may decide what is recorded
            test = self.rng.choice([self.losses or "out", "self.scores", "t.kids", "len(self.scores) > 3"])
            lines.append(f"x = {self.vector('x')} if {test} else {self.vector('x')}")
        return [*lines, f"s = {self.state('x')}"]

    def call(self, child: str) -> str:
        depth = ", depth + 1" if self.depth else ""
        name = self.rng.choice(self.names)
        if self.rng.random() < 0.1:
            return f"self.{name}(t={child}, out=out{depth.replace('depth', 'depth=depth', 1)})"
        if not self.depth and self.rng.random() < 0.1:
            return f"{child}.enter(self, out)"
        return f"self.{name}({child}, out{depth})"

    def inner(self) -> list[str]:
        r = self.rng
        h, take = ("{0}[0]", "{0}_h, {0}_c = ") if self.pair else ("{0}", "{0} = ")
        style = r.randrange(8)
        if style == 0:
            lines = [f"l = {self.call('t.kids[0]')}", f"r = {self.call('t.kids[-1]')}"]
            hs = [h.format("l"), h.format("r")]
        elif style == 1:
            lines = [take.format(n) + self.call(f"t.{m}") for n, m in (("l", "left"), ("r", "right"))]
            hs = ["l_h", "r_c"] if self.pair else ["l", "r"]
        elif style == 2:
            lines = [f"ks = [{self.call('k')} for k in t.kids]"]
            if r.random() < 0.3:
                lines[0] = lines[0].replace(" in t.kids", " in t.kids if k.label >= 0")
            hs = [h.format("ks[0]"), h.format("ks[-1]")]
            if self.pair and r.random() < 0.5:
                lines.append("m = dy.esum([h for h, c in ks])")
                hs.append("m")
            elif not self.pair:
                lines.append("m = dy.esum(ks)")
                hs.append("m")
        elif style == 3:
            lines = ["ks = []", "for k in t.kids:", f"    z = {self.call('k')}", "    ks.append(z)"]
            if r.random() < 0.5:
                lines.append("    " + f"ks.append({self.state(self.vector(h.format('z')))})")
            hs = [h.format("ks[0]"), h.format("ks[-1]")]
        elif style == 4:
            lines = [f"a = {self.call('t.kids[0]')}", "for k in t.kids[1:]:", f"    z = {self.call('k')}"]
            join = self.vector(h.format("a"), h.format("z"))
            lines.append(f"    a = {self.state(join)}")
            hs = [h.format("a")]
        elif style == 6:
            zips = ["zip(ks, t.kids)", "zip(reversed_ks, t.kids[:2])"]
            over = r.choice([*zips, "enumerate(ks)", "reversed(ks)"])
            lines = [f"ks = [{self.call('k')} for k in t.kids]", f"a = {h.format('ks[0]')}"]
            if "reversed_ks" in over:
                lines.append("reversed_ks = [k for k in reversed(ks)]")
            names = {"zip(": "for k, y in", "enum": "for i, k in", "reve": "for k in"}[over[:4]]
            lines += [f"{names} {over}:", f"    a = {self.vector('a', h.format('k'))}"]
            if r.random() < 0.2 and "zip(ks" in over:
                lines.append("    ks.append(k)" if r.random() < 0.5 else "    ks = ks + []")
            hs = ["a"]
        elif style == 7:
            lines = [f"a = self.join({self.call('t.kids[0]')}, {self.call('t.kids[-1]')})"]
            hs = [h.format("a")]
        else:
            lines = [
                f"ks = [{self.call('k')} for k in t.kids]", f"gs = [dy.tanh({h.format('k')}) for k in ks]",
                "if len(ks) > 1:", "    m = gs[0] + gs[1]", "else:", "    m = gs[0]",
            ]  # fmt: skip
            hs = ["m", h.format("ks[0]")]
        lines.append(f"x = {self.vector(*hs)}")
        if r.random() < 0.3:
            lines.append(f"x = {self.vector('x', *hs)}")
        return [*lines, f"s = {self.state('x')}"]

    def function(self, name: str) -> str:
        leaf, inner = self.leaf(), self.inner()
        r = self.rng
        loss = self.record_loss()
        end = [*loss, "return s"]
        body = []
        if r.random() < 0.3:
            body += ["if t is None:", "    return None"]
        if r.random() < 0.1:
            body += ["self.depth = t.label"]  # which no program does
        if r.random() < 0.5:
            body += [f"if {self.leaf_test()}:", *indent([*leaf, *end]), *inner, *end]
        else:
            body += [f"if {self.leaf_test()}:", *indent(leaf), "else:", *indent(inner), *end]
        depth = ", depth=0" if self.depth else ""
        return "\n".join([f"def {name}(self, t, out{depth}):", *indent(body)])

    def module(self) -> str:
        r = self.rng
        slots = "    __slots__ = ('label', 'word', 'kids', 'left', 'right')\n" if r.random() < 0.3 else ""
        isleaf = r.choice(["not self.kids", "self.word is not None and not self.kids", "len(self.kids) == 0"])
        source = HEAD.format(slots=slots, isleaf=isleaf, tree_method="enter", entry=self.names[0])
        methods = [self.function(name) for name in self.names]
        methods.append("def vec(self, t):\n    return self.E[t.word]")
        a, b = ("a[0]", "b[1]") if self.pair else ("a", "b")
        methods.append(f"def join(self, a, b):\n    return {self.state(self.vector(a, b))}")
        loss = ["out = []", "s = self.encode(t, out)", "return [s, out]"]
        methods.append("\n".join(["def loss(self, t):", *indent(loss)]))
        return source + "\n".join("\n".join(indent(m.split("\n"))) for m in methods) + "\n"


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def tree(module: Any, rng: random.Random, depth: int, strange: float) -> Any:
    """A random tree; with some chance for each node, something in it is unusual."""
    kind = module.Tree
    if rng.random() < strange:
        kind = rng.choice([module.Odd, module.Computed])
    if depth == 0 or rng.random() < 0.3:
        node = kind(rng.randrange(5), rng.randrange(9), [])
    else:
        n = rng.choice([2, 2, 2, 1, 3])
        kids = [tree(module, rng, depth - 1, strange) for _ in range(n)]
        node = kind(rng.randrange(5), None, kids if rng.random() < 0.9 else tuple(kids))
    if rng.random() < strange:
        name = rng.choice(["word", "label", "kids", "right"])
        value = rng.choice([None, True, -1, "a", 2.0, 99])
        setattr(node, name, value)
    return node
