"""How many methods and fields the classes of the core and the package have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple


class ClassSize(NamedTuple):
    """Of a class, without what it inherits.

    Attributes:
        methods: each name once, without constructors and (in Python) what is called by operators.
        is_record: it holds data for others, and does little or nothing with it.
        comment: the one above the class, with the one at the head of its file.
    """

    name: str
    line: int
    methods: int
    fields: int
    is_record: bool
    comment: str


_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.S
)
_CLASS = re.compile(
    r"^[ \t]*(?:template[^;{}]*?)?\b(class|struct) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: ?:[^;{}()]*)? ?\{",
    re.M,
)
_NO_MEMBER = re.compile(
    r"(?:using|friend|typedef|static_assert|class|struct|union|enum)\b.*|template (?:class|struct)\b.*|\W*",
    re.S,
)
_METHOD = re.compile(r"(~?\w+|operator\W+)\s*\(\)")
_MOST_OF_RECORD = 4  # methods


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group(0))


def _end(text: str, begin: int) -> int:
    """Of the block whose brace is at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
    return len(text)


def _emptied(text: str, inner: str, by: str) -> str:
    """With all that matches `inner` replaced, from the inside out."""
    before = ""
    while before != text:
        before, text = text, re.sub(inner, by, text)
    return text


def _declarations(body: str) -> Iterator[str]:
    """Of the members: without blocks, initial values and template arguments; arguments as `()`."""
    body = _emptied(body, r"\{[^{}]*\}", "\x01")
    body = _emptied(body, r"\([^()]*\)", "\x02")
    body = _emptied(body, r"<[^<>;]*>", "")
    body = re.sub(r"\[\[[^\]]*\]\]|\b(?:public|private|protected):(?!:)", "", body)
    body = re.sub(r"(?<=[\w\]\x02])\x01|=\s*\x01", "", body)  # values, not blocks
    for declaration in re.sub(r"\x01;?", ";", body).split(";"):
        yield declaration.replace("\x02", "()").strip()


def _count(name: str, body: str) -> tuple[int, int]:
    methods, fields = set(), 0
    for declaration in _declarations(body):
        text = re.sub(r"^template ", "", declaration)
        is_constant = re.match(r"(?:inline )?(?:static )?(?:constexpr|const) [^()]*=", text)
        if _NO_MEMBER.fullmatch(declaration) or (is_constant and "static" in is_constant.group(0)):
            continue
        head = text if "operator" in text else text.partition("=")[0]
        method = _METHOD.search(head)
        if not method or "()()" in head:  # a pointer to a function
            fields += len(head.split(","))
        elif method.group(1).lstrip("~") != name:
            methods.add(method.group(1))
    return len(methods), fields


def _comments(lines: list[str], line: int) -> str:
    """Those above a line, and at the head of the file."""
    head = next((i for i, text in enumerate(lines) if not text.startswith("//")), len(lines))
    first = line
    while first and re.match(r"\s*(?://|template\b)", lines[first - 1]):
        first -= 1
    return " ".join(text.strip().lstrip("/ ") for text in lines[:head] + lines[first:line])


def cpp_classes(source: str) -> Iterator[ClassSize]:
    """Of a header or a source file."""
    code = _TEXT.sub(_blank, source)
    lines = source.splitlines()
    for match in _CLASS.finditer(code):
        kind, name = match.groups()
        begin = match.end() - 1
        methods, fields = _count(name, code[begin + 1 : _end(code, begin)])
        line = code.count("\n", 0, match.start(1))
        is_record = kind == "struct" and methods <= _MOST_OF_RECORD
        yield ClassSize(name, line + 1, methods, fields, is_record, _comments(lines, line))


def _own_attributes(node: ast.ClassDef) -> set[str]:
    found = {
        n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    for n in ast.walk(node):
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name):
            found |= {n.attr} if n.value.id == "self" else set()
    return found


def python_classes(source: str) -> Iterator[ClassSize]:
    """Of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            methods = {n.name for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
            methods = {name for name in methods if not name.startswith("__")}
            bases = " ".join(ast.unparse(n) for n in (*node.decorator_list, *node.bases))
            is_record = not methods or "dataclass" in bases or "NamedTuple" in bases
            yield ClassSize(node.name, node.lineno, len(methods), len(_own_attributes(node)), is_record,
                            ast.get_docstring(node) or "")  # fmt: skip
