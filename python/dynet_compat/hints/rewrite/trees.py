"""Syntax trees: their nodes, functions and suites, and how new nodes are made."""

from __future__ import annotations

import ast
import bisect
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional, TypeVar, Union

_Node = TypeVar("_Node", bound=ast.AST)

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
WITH_NAMES_OF_THEIR_OWN = (*DEFINITIONS, ast.Lambda)
WAITS = (ast.Yield, ast.YieldFrom, ast.Await)

# Fields of nodes that hold no other ones, or none that anything here asks for.
_NO_PARTS = frozenset(
    "ctx op ops id arg attr name module level kind type_comment asname simple rest is_async".split()
)
_LEAVES = (ast.Name, ast.Constant)
# Of a kind of node: the other fields.
_fields: Callable[[Any], tuple[str, ...]] = functools.cache(
    lambda kind: tuple(f for f in kind._fields if f not in _NO_PARTS)
)
# Fields that hold nodes, lists of nodes or nothing, in all kinds of nodes but one.
_OF_NODES = frozenset(
    "annotation args bases body comparators decorator_list defaults elt elts exc finalbody func generators"
    " handlers ifs items iter keywords kwarg kwonlyargs left lower operand optional_vars orelse posonlyargs"
    " returns right slice step target targets test upper value values vararg".split()
)
_fields_and_kinds: Callable[[Any], tuple[tuple[str, bool], ...]] = functools.cache(
    lambda kind: tuple((f, f in _OF_NODES and kind.__name__ != "MatchSingleton") for f in _fields(kind))
)


def nodes_of(node: ast.AST, closed: tuple[type[ast.AST], ...] = ()) -> list[ast.AST]:
    """The node and all nodes in it except operators and contexts; like ast.walk(), but faster.

    closed: kinds of nodes that are not entered.
    """
    found = [node]
    for n in found:  # which grows
        kind = type(n)
        if kind is ast.Attribute:
            found.append(n.value)  # type: ignore[attr-defined]
        elif kind not in _LEAVES and (kind not in closed or n is node):
            for name, of_nodes in _fields_and_kinds(kind):
                part = getattr(n, name, None)
                if not part:
                    continue
                if type(part) is list:
                    found += part if of_nodes else [p for p in part if isinstance(p, ast.AST)]
                elif of_nodes or isinstance(part, ast.AST):
                    found.append(part)
    return found


def locate(node: _Node, at: ast.AST) -> _Node:
    """The new node with the position of `at`, and all nodes in it that have none."""
    lines = {name: getattr(at, name) for name in at._attributes}
    todo: list[ast.AST] = [node]
    for n in todo:  # which grows
        if n._attributes:
            vars(n).update(lines)
        for name in _fields(type(n)):
            part = getattr(n, name, None)
            for p in part if type(part) is list else (part,):
                if isinstance(p, ast.AST) and not hasattr(p, "lineno"):
                    todo.append(p)
    return node


_NO_PLACE = ast.Pass(lineno=-1, end_lineno=-1, col_offset=-1, end_col_offset=-1)
KNOWS_NO_PLACE = sys.version_info >= (3, 10)


def without_place(node: _Node) -> _Node:
    """The new statement, which tracers do not see: it has the line of what runs before it, as the end of a
    function has. Before Python 3.10 it gets none and needs another one."""
    return locate(node, _NO_PLACE) if KNOWS_NO_PLACE else node


def copied(node: Any) -> Any:
    """A copy of the node and all in it."""
    kind: Any = type(node)
    new = kind.__new__(kind)
    for name, part in vars(node).items():
        if isinstance(part, list):
            part = [copied(p) if isinstance(p, ast.AST) else p for p in part]
        setattr(new, name, copied(part) if isinstance(part, ast.AST) else part)
    return new


def own_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes of a function without those of the functions and classes inside it."""
    return nodes_of(node, WITH_NAMES_OF_THEIR_OWN)[1:]


def is_generator(node: ast.AST) -> bool:
    """Does the function itself, not one inside it, yield or wait?"""
    return any(isinstance(n, WAITS) for n in own_nodes(node))


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, Optional[str]]]:
    """All functions of the module: qualified name, node, and name of the class of a method of a class of the
    module."""

    def inside(
        node: ast.AST, prefix: str, owner: Optional[str]
    ) -> Iterator[tuple[str, ast.FunctionDef, Optional[str]]]:
        for child in statements_in(node):
            if isinstance(child, ast.FunctionDef):
                yield prefix + child.name, child, owner
                yield from inside(child, f"{prefix}{child.name}.<locals>.", None)
            elif isinstance(child, ast.ClassDef):
                yield from inside(child, f"{prefix}{child.name}.", child.name if child in tree.body else None)
            elif isinstance(child, ast.AsyncFunctionDef):
                yield from inside(child, f"{prefix}{child.name}.<locals>.", None)
            elif suite_fields(type(child)):
                yield from inside(child, prefix, None)

    return inside(tree, "", None)


# Fields of a kind of statement that hold statements, or handlers and cases, which hold them.
suite_fields: Callable[[Any], tuple[str, ...]] = functools.cache(
    lambda kind: tuple(f for f in ("body", "orelse", "finalbody", "handlers", "cases") if f in kind._fields)
)


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """The statements, handlers and cases directly inside a statement."""
    for name in suite_fields(type(node)):
        yield from getattr(node, name)


def suites(node: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    """The lists of statements of a function, those inside loops and branches included."""
    inside: list[ast.AST] = [node]
    for n in inside:  # which grows
        for name in suite_fields(type(n)):
            statements = getattr(n, name)
            if statements and name not in ("handlers", "cases"):
                yield n, name, statements
            inside += [s for s in statements if not isinstance(s, WITH_NAMES_OF_THEIR_OWN)]


def own_comprehensions(node: ast.FunctionDef) -> Iterator[ast.ListComp]:
    """Those whose names are the function's own."""
    closed = (*WITH_NAMES_OF_THEIR_OWN, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    roots: list[ast.AST] = [ast.Module(node.body, [])]
    for root in roots:  # which grows
        for n in nodes_of(root, closed):
            if isinstance(n, ast.ListComp):
                yield n
                roots.append(ast.Expr(n.generators[0].iter))


_LOOKING = ("locals", "vars", "eval", "exec", "dir")
# Words that may keep a function unchanged.
ODD_WORDS = (b"locals", b"vars", b"eval", b"exec", b"dir", b"global", b"nonlocal", b"yield", b"await")


def lines_with(text: bytes, *words: bytes) -> list[int]:
    """Numbers of the lines that may hold one of the words, also in other letters."""
    found = [word for word in words if word in text]
    if not found and text.isascii():
        return []
    lines = enumerate(text.splitlines(), 1)
    return [i for i, line in lines if not line.isascii() or any(word in line for word in found)]


def any_in(lines: list[int], node: ast.stmt) -> bool:
    """Is one of the lines in the statement?"""
    at = bisect.bisect_left(lines, node.lineno)
    return at < len(lines) and lines[at] <= (node.end_lineno or node.lineno)


def may_change(node: ast.FunctionDef) -> bool:
    return not node.decorator_list and keeps_names(node)


def keeps_names(node: ast.FunctionDef) -> bool:
    """Does the function neither access its local names as a dict, nor bind names of others, nor wait?"""
    nodes = nodes_of(node)
    if any(isinstance(n, ast.Name) and n.id in _LOOKING for n in nodes) or is_generator(node):
        return False
    return all(only_reads(node, n) for n in nodes if isinstance(n, (ast.Global, ast.Nonlocal)))


def only_reads(node: ast.FunctionDef, declared: Union[ast.Global, ast.Nonlocal]) -> bool:
    """Does the function, with those inside it, bind none of the names that it declares to be others'?"""
    for n in nodes_of(node):
        bound = getattr(n, "id", "") if not isinstance(getattr(n, "ctx", ast.Load()), ast.Load) else ""
        other = (getattr(n, field, None) for field in ("name", "asname", "rest", "arg"))
        if {bound, *(name.split(".")[0] for name in other if isinstance(name, str))} & set(declared.names):
            return False
    return True


def first_line(node: ast.FunctionDef) -> int:
    """The line that the function's code begins on."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def root_of(e: ast.expr) -> Optional[str]:
    """The name that a dotted name begins with."""
    while isinstance(e, ast.Attribute):
        e = e.value
    return e.id if isinstance(e, ast.Name) else None


def dotted(e: ast.expr) -> str:
    """How a dotted name is written; "" for anything else."""
    if isinstance(e, ast.Name):
        return e.id
    owner = dotted(e.value) if isinstance(e, ast.Attribute) else ""
    return f"{owner}.{e.attr}" if owner else ""  # type: ignore[attr-defined]


def joined(e: ast.JoinedStr) -> Optional[list[ast.expr]]:
    """What a formatted text joins; None: some of it is formatted in another way than by str()."""
    formatted = [part for part in e.values if isinstance(part, ast.FormattedValue)]
    if any(part.conversion != -1 or part.format_spec for part in formatted):
        return None
    return [part.value if isinstance(part, ast.FormattedValue) else part for part in e.values]


# ---------------------------------------------------------------- new nodes


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([store(name)], value)


def delete(*names: str) -> ast.Delete:
    return ast.Delete([ast.Name(name, ast.Del()) for name in names])


def arguments(parameters: Sequence[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, [])


def passed_on(placeholder: str, name: str, value: ast.expr) -> ast.Call:
    """placeholder(name=value), which passes the value on. Unlike a call of a method it needs no level of
    recursion. The object is where the value begins to be evaluated: Python 3.11 may read both by one
    instruction, which has the place of the first."""
    asked = ast.Constant(placeholder)
    if hasattr(value, "lineno"):
        locate(asked, _evaluated_first(value))
    return ast.Call(asked, [], [ast.keyword(name, value)])


def _evaluated_first(e: ast.expr) -> ast.expr:
    """What the expression evaluates first, of what has a place; a plain call begins with its function."""
    while True:
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute):
            inner: Optional[ast.expr] = e.func.value
        else:
            inner = e.func if isinstance(e, ast.Call) else _first_part(e)
        if inner is None or not hasattr(inner, "lineno"):
            return e
        if isinstance(e, ast.Call) and inner is e.func:
            return inner
        e = inner


def _first_part(e: ast.expr) -> Optional[ast.expr]:
    if isinstance(e, ast.DictComp):
        return None
    for name in ("value", "left", "operand", "test", "keys", "values", "elts"):
        part = getattr(e, name, None)
        part = part[0] if isinstance(part, list) and part else part
        if isinstance(part, ast.expr):
            return part
    return None


def call_method(owner: ast.expr, method: str, *values: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(owner, method, ast.Load()), list(values), [])
