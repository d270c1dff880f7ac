"""Pass 10 and 11: op sequences of basic blocks with their wiring, and weights that are applied to one input.

A block is run symbolically: names stand for the op that made them. Calls of straight functions are followed,
so the wiring goes through helpers, and the weights are those that the helper meets from this very call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from .analysis import lattice as lat
from .analysis.interpreter import Analysis
from .analysis.lattice import EMPTY, Atom, Value
from .analysis.loops import text_of
from .analysis.scopes import COMPREHENSIONS, Function
from .sites import Sites
from .straight import STATE_METHODS, Straight

MAX_OPS = 400  # of one block
MAX_CALLS = 6  # helpers within helpers
MIN_OPS = 2
EXTERNAL = -1
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)

# What a name stands for: an op's number, several of them, or something from outside (a text that names it).
Ref = Any


@dataclass
class BlockOp:
    site: int
    op: str
    args: list[int]  # numbers of ops of the block; EXTERNAL: from elsewhere


@dataclass
class Product:
    """A weight times an input."""

    weight: Atom
    name: str
    input: Ref
    line: int


@dataclass
class Block:
    function: Function
    node: ast.AST  # the first statement
    ops: list[BlockOp] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)


class Blocks:
    """All basic blocks that record two ops or more."""

    def __init__(self, analysis: Analysis, sites: Sites, straight: Straight) -> None:
        self.program = analysis.program
        self.facts = analysis.facts
        self.sites = sites
        self.straight = straight
        self.all: list[Block] = []
        for function in self.program.functions:
            for run in self._runs(function):
                block = _Symbolic(self, function, run).block
                if len(block.ops) >= MIN_OPS:
                    self.all.append(block)

    def _runs(self, function: Function) -> Iterator[Sequence[ast.AST]]:
        """Maximal runs of simple statements, and the elements of comprehensions."""
        if isinstance(function.node, ast.Lambda):
            yield [function.node.body]
        bodies: list[Sequence[ast.stmt]] = []
        if not isinstance(function.node, ast.Lambda):
            bodies.append(function.node.body)
        for node in self.program.body_nodes(function):
            for name in ("body", "orelse", "finalbody"):
                part = getattr(node, name, None)
                if isinstance(part, list) and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    bodies.append(part)
            if isinstance(node, COMPREHENSIONS):
                yield [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for body in bodies:
            run: list[ast.AST] = []
            for statement in body:
                if isinstance(statement, SIMPLE):
                    run.append(statement)
                elif run:
                    yield run
                    run = []
            if run:
                yield run

    def groups(self) -> list[tuple[Block, str, list[Product]]]:
        """Per block and input: the different weights that are applied to it."""
        result = []
        for block in self.all:
            by_input: dict[Any, list[Product]] = {}
            for product in block.products:
                by_input.setdefault(product.input, []).append(product)
            for key, products in by_input.items():
                distinct: dict[Atom, Product] = {}
                for product in products:
                    distinct.setdefault(product.weight, product)
                if len(distinct) > 1:
                    name = key if isinstance(key, str) else f"op {key}"
                    result.append((block, name, list(distinct.values())))
        return result


class _Symbolic:
    """Runs one block, or a straight function on its behalf."""

    def __init__(
        self,
        blocks: Blocks,
        function: Function,
        nodes: Sequence[ast.AST],
        block: Optional[Block] = None,
        names: Optional[dict[str, Ref]] = None,
        context: int = 0,
        depth: int = 0,
    ) -> None:
        self.blocks = blocks
        self.facts = blocks.facts
        self.function = function
        self.names: dict[str, Ref] = names or {}
        self.context = context
        self.depth = depth
        self.nesting = 0
        self.versions: dict[str, int] = {}
        first = nodes[0] if nodes else function.node
        self.block = block or Block(function, first)
        self.result: Ref = None
        for node in nodes:
            self._statement(node)

    # ---- statements

    def _statement(self, node: Any) -> None:
        if isinstance(node, ast.Assign):
            value = self.eval(node.value)
            for target in node.targets:
                self._assign(target, value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, self.eval(node.value))
        elif isinstance(node, ast.AugAssign):
            refs = [self._load(node.target), self.eval(node.value)]
            self._assign(node.target, self._record(node, refs) if node in self.facts.ops else None)
        elif isinstance(node, ast.Return):
            self.result = None if node.value is None else self.eval(node.value)
        else:
            self.eval(node.value if isinstance(node, ast.Expr) else node)

    def _assign(self, target: ast.expr, ref: Ref) -> None:
        if isinstance(target, ast.Name):
            self.versions[target.id] = self.versions.get(target.id, 0) + 1
            if ref is None:
                self.names.pop(target.id, None)
            else:
                self.names[target.id] = ref
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(ref, tuple) and len(ref) == len(target.elts)
            for index, element in enumerate(target.elts):
                self._assign(element, ref[index] if same else None)

    # ---- expressions

    def eval(self, node: Optional[ast.AST]) -> Ref:
        self.nesting += 1
        try:
            return None if self.nesting > 60 or len(self.block.ops) >= MAX_OPS else self._eval(node)
        finally:
            self.nesting -= 1

    def _eval(self, node: Any) -> Ref:
        if isinstance(node, ast.Name):
            return self._load(node)
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple(self.eval(element) for element in node.elts)
        if isinstance(node, (*COMPREHENSIONS, ast.Lambda, ast.IfExp, ast.BoolOp)):
            return None  # not sure to run, or a block of its own
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            value = self.eval(node.value)
            self.eval(node.slice)
            if node in self.facts.ops:
                return self._record(node, [value])
            constant = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if (
                isinstance(value, tuple)
                and isinstance(constant, int)
                and -len(value) <= constant < len(value)
            ):
                return value[constant]
            return self._text(node)
        if isinstance(node, ast.Attribute):
            self.eval(node.value)
            return self._text(node)
        refs = [self.eval(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return self._record(node, refs) if node in self.facts.ops else None

    def _load(self, node: ast.AST) -> Ref:
        if not isinstance(node, ast.Name):
            self.eval(node)
            return self._text(node)
        if node.id in self.names:
            return self.names[node.id]
        return self._text(node)

    def _text(self, node: Any) -> Optional[str]:
        """Names an outside value, so that two uses of it are seen to be the same."""
        parts: list[str] = []
        while len(parts) < 12:
            if isinstance(node, ast.Attribute):
                parts.append("." + node.attr)
                node = node.value
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                parts.append(f"[{node.slice.value!r}]")
                node = node.value
            elif isinstance(node, ast.Name):
                version = self.versions.get(node.id, 0)
                name = self.names.get(node.id, node.id)
                mark = f"#{version}" if version else ""
                return "".join([str(name) + mark, *reversed(parts)]) if isinstance(name, str) else None
            else:
                return None
        return None

    def _binary(self, node: ast.BinOp) -> Ref:
        chain = []
        at: ast.AST = node
        while isinstance(at, ast.BinOp):
            chain.append(at)
            at = at.left
        ref = self.eval(at)
        for step in reversed(chain):
            right = self.eval(step.right)
            if step in self.facts.ops:
                if isinstance(step.op, ast.Mult):
                    self._product(step.left, right)
                ref = self._record(step, [ref, right])
            else:
                ref = None
        return ref

    def _call(self, node: ast.Call) -> Ref:
        receiver: Ref = None
        if isinstance(node.func, ast.Attribute):
            receiver = self.eval(node.func.value)
        refs = [self.eval(argument) for argument in node.args]
        keywords = {k.arg: self.eval(k.value) for k in node.keywords}
        if node in self.facts.ops:
            op = self.facts.ops[node]
            if (
                op.name == "affine_transform"
                and node.args
                and isinstance(node.args[0], (ast.List, ast.Tuple))
            ):
                self._affine(node.args[0], refs[0])
            return self._record(node, [receiver, *refs, *keywords.values()])
        targets = self.facts.targets.get(node, set())
        if len(targets) != 1:
            return None
        ((kind, what),) = targets
        if kind == "method" and what.startswith("state.") and what[6:] in STATE_METHODS:
            return receiver
        if kind == "dy" and refs:
            return refs[0]
        return self._follow(node, what, receiver, refs, keywords) if kind == "func" else None

    def _follow(self, node: ast.Call, what: int, receiver: Ref, refs: list[Ref], keywords: Any) -> Ref:
        """Runs a straight function."""
        verdict = self.blocks.straight.verdicts.get(what)
        if verdict is None or not verdict.straight or self.depth >= MAX_CALLS:
            return None
        callee = verdict.function
        names = callee.positional()
        bound = isinstance(node.func, ast.Attribute) and callee.cls is not None
        given = [receiver, *refs] if bound and len(names) == len(refs) + len(keywords) + 1 else refs
        inner = {name: ref for name, ref in zip(names, given) if ref is not None}
        inner.update({name: ref for name, ref in keywords.items() if name and ref is not None})
        body: Any = callee.node.body
        uid = self.blocks.program.uid[node]
        run = _Symbolic(self.blocks, callee, body, self.block, inner, uid, self.depth + 1)
        return run.result

    def _record(self, node: ast.AST, refs: Sequence[Ref]) -> int:
        site = self.blocks.sites.of_node[node]
        self.block.ops.append(BlockOp(site.id, site.op, list(_flat(refs))))
        return len(self.block.ops) - 1

    # ---- weights

    def _affine(self, node: Any, refs: Ref) -> None:
        for index in range(1, len(node.elts) - 1, 2):
            self._product(node.elts[index], refs[index + 1] if isinstance(refs, tuple) else None)

    def _product(self, weight: ast.expr, ref: Ref) -> None:
        if ref is None or isinstance(ref, tuple):
            return
        value: Value = self.facts.in_unit.get((self.function.id, self.context, weight), EMPTY)
        if not value:
            value = self.facts.values.get(weight, EMPTY)
        if len(value) == 1:
            (atom,) = value
            if atom[0] == lat.PARAM:
                name = self._text(weight) or text_of(weight)
                if isinstance(weight, ast.Subscript) and atom[2] is not None:
                    name = f"{text_of(weight.value)}[{atom[2]!r}]"
                self.block.products.append(Product(atom, name, ref, getattr(weight, "lineno", 1)))


def _flat(refs: Sequence[Ref]) -> Iterator[int]:
    """Ops among the arguments; what comes from elsewhere is EXTERNAL, what has no name is left out."""
    for ref in refs:
        if isinstance(ref, tuple):
            yield from _flat(ref)
        elif isinstance(ref, int):
            yield ref
        elif isinstance(ref, str):
            yield EXTERNAL
