"""The program as tables: functions, classes, loops, the body each node is in, where each name is bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from .load import Loaded, Problem, Source

MAX_NAME = 500  # characters of a qualified name; functions with longer ones get no hints
FunctionNode = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.AsyncFor, ast.While, *COMPREHENSIONS)


@dataclass(eq=False)
class Function:
    """A function, method, lambda, or the body of a module."""

    id: int
    module: int
    qualname: str
    node: FunctionNode
    parent: Optional[int] = None  # the function around it
    cls: Optional[int] = None  # the class it is a method of
    bound: set[str] = field(default_factory=set)  # names that belong to it
    loads: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)  # of its names, those that inner functions use
    rebound: set[str] = field(default_factory=set)  # of these, those that inner functions assign to
    generator: bool = False

    @property
    def name(self) -> str:
        return self.qualname.rsplit(".", 1)[-1]

    @property
    def is_module(self) -> bool:
        return isinstance(self.node, ast.Module)

    @property
    def is_async(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef)

    @property
    def decorators(self) -> list[ast.expr]:
        return getattr(self.node, "decorator_list", [])

    @property
    def is_static(self) -> bool:
        return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.decorators)

    @property
    def is_class_method(self) -> bool:
        return any(isinstance(d, ast.Name) and d.id == "classmethod" for d in self.decorators)

    @property
    def is_property(self) -> bool:
        names = (getattr(d, "id", getattr(d, "attr", "")) for d in self.decorators)
        return any(name in ("property", "cached_property") for name in names)

    @property
    def statements(self) -> Sequence[ast.AST]:
        """The body; of a lambda, its expression."""
        return [self.node.body] if isinstance(self.node, ast.Lambda) else self.node.body

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)

    @property
    def arguments(self) -> Optional[ast.arguments]:
        return getattr(self.node, "args", None)

    def positional(self) -> list[str]:
        """Names of the parameters that a positional argument can fill."""
        arguments = self.arguments
        return [a.arg for a in arguments.posonlyargs + arguments.args] if arguments else []

    def parameters(self) -> list[str]:
        """Names of all parameters."""
        arguments = self.arguments
        if arguments is None:
            return []
        rest = [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
        return self.positional() + [a.arg for a in arguments.kwonlyargs] + rest


@dataclass(eq=False)
class Class:
    id: int
    module: int
    qualname: str
    node: ast.ClassDef
    function: int  # whose body it is in


@dataclass(eq=False)
class Loop:
    """A for or while statement, or a comprehension."""

    id: int
    module: int
    function: int
    node: ast.AST

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)

    @property
    def col(self) -> int:
        return getattr(self.node, "col_offset", 0)

    @property
    def form(self) -> str:
        if isinstance(self.node, (ast.For, ast.AsyncFor)):
            return "for"
        return "while" if isinstance(self.node, ast.While) else "comprehension"

    @property
    def iterables(self) -> list[ast.expr]:
        """What is iterated over; nothing for `while`."""
        if isinstance(self.node, COMPREHENSIONS):
            return [generator.iter for generator in self.node.generators]
        return [self.node.iter] if isinstance(self.node, (ast.For, ast.AsyncFor)) else []

    @property
    def targets(self) -> list[ast.expr]:
        """What each iteration assigns to; nothing for `while`."""
        if isinstance(self.node, COMPREHENSIONS):
            return [generator.target for generator in self.node.generators]
        return [self.node.target] if isinstance(self.node, (ast.For, ast.AsyncFor)) else []

    @property
    def results(self) -> list[ast.expr]:
        """What a comprehension evaluates in each iteration."""
        node: Any = self.node
        return [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]


# ---- parts of the syntax, as text


def name_of(node: ast.AST) -> str:
    """The last name in what is written, or in what a call calls."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else "a call"


def text_of(node: ast.AST) -> str:
    """Source text of a short expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 8:
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "...")
    return ".".join(reversed(parts))


def receiver_of(node: Any) -> ast.AST:
    """The object of a store or of a method call."""
    if isinstance(node, ast.Call):
        node = node.func
    inner: ast.AST = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else node
    return inner


class Program:
    """Everything the analyses look up: a table for each question, filled once. So it has 17 fields.

    Built without recursion, so that depth of nesting does not matter.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.sources: list[Source] = loaded.sources
        self.problems: list[Problem] = loaded.problems
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.loops: list[Loop] = []
        self.function_of: dict[ast.AST, int] = {}  # of a def or lambda: itself
        self.class_of: dict[ast.AST, int] = {}
        self.loop_of: dict[ast.AST, int] = {}
        self.owner: dict[ast.AST, int] = {}  # function whose body a node is in
        self.loops_around: dict[ast.AST, tuple[int, ...]] = {}  # in that function, outermost first
        self.uid: dict[ast.AST, int] = {}  # small numbers for nodes, in the order of the text
        self.nodes: list[ast.AST] = []
        self.opaque: set[int] = set()  # functions that get no hints
        self.tops: list[Optional[int]] = []  # function number of each module's body
        self._extent: dict[int, tuple[int, int]] = {}  # function -> numbers of the nodes below it
        self.uid[ast.Pass()] = 0  # 0 stands for no node
        self.nodes.append(ast.Pass())
        for index, source in enumerate(self.sources):
            self.tops.append(None if source.tree is None else self._index(index, source.tree))
        self._capture()
        self.end = self._ends()  # node numbers from uid[node] to end[uid[node]] are the node and all below it

    # ---- where things are

    def path(self, module: int) -> str:
        return self.sources[module].path

    def where(self, node: ast.AST) -> tuple[str, int]:
        """(path, line) of a node."""
        return self.path(self.functions[self.owner[node]].module), getattr(node, "lineno", 1)

    def problem(self, node: ast.AST, text: str, scope: str = "") -> None:
        """Notes something that cannot be seen through; `scope` as in Problem."""
        path, line = self.where(node)
        found = Problem(path, line, text, scope)
        if scope == "function":
            self.opaque.add(self.owner[node])
        if found not in self.problems and len(self.problems) < 1000:
            self.problems.append(found)

    def body_nodes(self, function: Function) -> Iterator[ast.AST]:
        """The nodes of a function's own body, in the order of the text, inner functions left out."""
        start, end = self._extent[function.id]
        for uid in range(start, end):
            node = self.nodes[uid]
            if self.owner[node] == function.id:
                yield node

    # ---- building

    def _index(self, module: int, tree: ast.Module) -> int:
        top = self._new_function(module, tree, "<module>", None, None)
        _Indexer(self, module).run(tree, top)
        return top

    def _new_function(
        self, module: int, node: FunctionNode, qualname: str, parent: Optional[int], cls: Optional[int]
    ) -> int:
        function = Function(len(self.functions), module, qualname, node, parent, cls)
        self.functions.append(function)
        if len(qualname) > MAX_NAME:
            self.opaque.add(function.id)
        self.function_of[node] = function.id
        function.bound.update(function.parameters())
        return function.id

    def _ends(self) -> list[int]:
        end = list(range(1, len(self.nodes) + 1))
        for uid in range(len(self.nodes) - 1, 0, -1):
            for child in ast.iter_child_nodes(self.nodes[uid]):
                end[uid] = max(end[uid], end[self.uid.get(child, 0)])
        return end

    def _capture(self) -> None:
        """Names that inner functions take from outer ones."""
        for function in self.functions:
            function.bound -= function.globals | function.nonlocals
            if function.is_module:
                function.captured = set(function.bound)
        for function in self.functions:
            for name in (function.loads - function.bound) | function.nonlocals:
                outer = function.parent
                while outer is not None:
                    if name in self.functions[outer].bound:
                        self.functions[outer].captured.add(name)
                        if name in function.nonlocals:
                            self.functions[outer].rebound.add(name)
                        break
                    outer = self.functions[outer].parent
            for name in function.globals:
                top = self.tops[function.module]
                if top is not None:
                    self.functions[top].captured.add(name)
                    self.functions[top].bound.add(name)


@dataclass
class _Context:
    function: int
    prefix: str  # of qualified names
    loops: tuple[int, ...] = ()
    cls: Optional[int] = None  # directly in the body of this class
    targets: bool = False  # in the target of a comprehension, whose names are its own


class _Indexer:
    """Visits one module in the order of the text."""

    def __init__(self, program: Program, module: int) -> None:
        self.p = program
        self.module = module
        self.stack: list[tuple[str, Any, _Context]] = []

    def run(self, tree: ast.Module, top: int) -> None:
        p = self.p
        start = len(p.nodes)
        context = _Context(top, "")
        for statement in reversed(tree.body):
            self.stack.append(("node", statement, context))
        p.owner[tree] = top
        open_functions: list[tuple[int, int]] = [(top, start)]
        while self.stack:
            what, node, context = self.stack.pop()
            if what == "end":
                function, begun = open_functions.pop()
                p._extent[function] = (begun, len(p.nodes))
                continue
            if isinstance(node, (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)):
                continue
            p.uid[node] = len(p.nodes)
            p.nodes.append(node)
            p.owner[node] = context.function
            p.loops_around[node] = context.loops
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                self._function(node, context, open_functions)
            elif isinstance(node, ast.ClassDef):
                self._class(node, context)
            elif isinstance(node, LOOPS):
                self._loop(node, context)
            else:
                self._names(node, context)
                self._push(list(ast.iter_child_nodes(node)), context)
        p._extent[top] = (start, len(p.nodes))

    def _push(self, children: Sequence[ast.AST], context: _Context) -> None:
        for child in reversed(children):
            self.stack.append(("node", child, context))

    def _function(self, node: Any, context: _Context, open_functions: list[tuple[int, int]]) -> None:
        p = self.p
        name = getattr(node, "name", "<lambda>")
        if name != "<lambda>" and context.cls is None:
            p.functions[context.function].bound.add(name)
        qualname = context.prefix + name
        function = p._new_function(self.module, node, qualname, context.function, context.cls)
        a = node.args
        annotations = [x.annotation for x in a.posonlyargs + a.args + a.kwonlyargs if x.annotation]
        outside = [*getattr(node, "decorator_list", []), *a.defaults, *[d for d in a.kw_defaults if d]]
        outside += [*annotations, *([node.returns] if getattr(node, "returns", None) else [])]
        inner = _Context(function, f"{qualname}.<locals>.")
        body = node.body if isinstance(node.body, list) else [node.body]
        self.stack.append(("end", None, inner))
        self._push(body, inner)
        self._push(outside, context)
        open_functions.append((function, len(p.nodes)))

    def _class(self, node: ast.ClassDef, context: _Context) -> None:
        p = self.p
        if context.cls is None:
            p.functions[context.function].bound.add(node.name)
        cls = Class(len(p.classes), self.module, context.prefix + node.name, node, context.function)
        p.classes.append(cls)
        p.class_of[node] = cls.id
        inner = _Context(context.function, cls.qualname + ".", context.loops, cls.id)
        self._push(list(node.body), inner)
        outside = [*node.decorator_list, *node.bases, *[k.value for k in node.keywords]]
        self._push(outside, context)

    def _loop(self, node: Any, context: _Context) -> None:
        p = self.p
        loop = Loop(len(p.loops), self.module, context.function, node)
        p.loops.append(loop)
        p.loop_of[node] = loop.id
        inside = _Context(context.function, context.prefix, (*context.loops, loop.id), context.cls)
        if isinstance(node, ast.While):
            self._push(list(node.orelse), context)
            self._push([node.test, *node.body], inside)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._push(list(node.orelse), context)
            self._push([node.target, *node.body], inside)
            self._push([node.iter], context)
        else:
            self._comprehension(node, context, inside)

    def _comprehension(self, node: Any, context: _Context, inside: _Context) -> None:
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        targets = _Context(inside.function, inside.prefix, inside.loops, inside.cls, targets=True)
        self._push(parts, inside)
        for index, generator in reversed(list(enumerate(node.generators))):
            self._push(list(generator.ifs), inside)
            self._push([generator.target], targets)
            self._push([generator.iter], inside if index else context)

    def _names(self, node: ast.AST, context: _Context) -> None:
        function = self.p.functions[context.function]
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                function.loads.add(node.id)
            elif context.cls is None and not context.targets:
                function.bound.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if context.cls is None:
                names = (alias.asname or alias.name.split(".")[0] for alias in node.names)
                function.bound.update(name for name in names if name != "*")
        elif isinstance(node, ast.Global):
            function.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            function.nonlocals.update(node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            function.bound.add(node.name)
        elif isinstance(node, (ast.Yield, ast.YieldFrom)):
            function.generator = True
        else:
            self._pattern(node, context)

    def _pattern(self, node: ast.AST, context: _Context) -> None:
        """Names bound by the patterns of `match` (Python 3.10)."""
        form = type(node).__name__
        name = None
        if form in ("MatchAs", "MatchStar"):
            name = getattr(node, "name", None)
        elif form == "MatchMapping":
            name = getattr(node, "rest", None)
        if name and context.cls is None:
            self.p.functions[context.function].bound.add(name)
