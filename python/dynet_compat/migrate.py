"""`python -m dynet_compat migrate script.py`: changes what a DyNet script must or should say.

Imports of DyNet become imports of dynet_compat; renamed functions and arguments get their present names; what
a program must decide for itself is only pointed at. The rest of the file stays as it is, byte for byte: its
encoding, comments and layout included.
"""

from __future__ import annotations

import ast
import codecs
import difflib
import io
import os
import stat
import sys
import tokenize
import warnings
from typing import Any, NamedTuple, Optional

MODULES = {"dynet", "_dynet", "_gdynet"}

# Functions that only changed their names.
RENAMED = {
    "Model": "ParameterCollection",
    "zeroes": "zeros",
    "cwise_multiply": "cmult",
    "LSTMBuilder": "VanillaLSTMBuilder",
}
# Trainer arguments of 1.x and 2.0.
ARGUMENTS = {"e0": "learning_rate", "e0_min": "learning_rate_min", "e0_max": "learning_rate_max"}
TRAINERS = {
    "SimpleSGDTrainer",
    "MomentumSGDTrainer",
    "AdagradTrainer",
    "RMSPropTrainer",
    "CyclicalSGDTrainer",
}
# What the program's author must look at: method or function name -> why.
LOOK_AT = {
    "expr": "a constant since DyNet 2.1: to train it, write the parameter itself or expr(update=True)",
    "update_epoch": "has no effect since DyNet 2.0: set trainer.learning_rate, or call restart()",
    "matInput": "was removed: inputTensor(numpy array)",
    "inputMatrix": "was removed: inputTensor(numpy array)",
    "load_all": "was removed: dy.load(name, collection)",
    "save_all": "was removed: dy.save(name, objects)",
}


class Note(NamedTuple):
    """Something a change cannot decide."""

    line: int
    text: str


class Migration(NamedTuple):
    """What `migrate` made of a source text."""

    old: str
    new: str
    notes: list[Note]

    def diff(self, name: str) -> str:
        """Unified diff, empty when nothing changes."""
        old, new = (text.splitlines(keepends=True) for text in (self.old, self.new))
        lines = difflib.unified_diff(old, new, name, name)
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def migrate(source: str) -> Migration:
    """Change a source text.

    Args:
        source: a Python 3 program that uses DyNet.
    Returns:
        The old and the new text, and notes on what the author must look at.
    Raises:
        SyntaxError: the text is not Python 3, with the line.
    Example:
        >>> from dynet_compat.migrate import migrate
        >>> migrate("import dynet as dy").new
        'import dynet_compat as dy'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the script's own string escapes
            tree = ast.parse(source)
    except SyntaxError as error:
        reason = f"not Python 3 at line {error.lineno or 1}: {error.msg}"
        if "nested" in reason:
            raise SyntaxError(reason) from None
        raise SyntaxError(f"{reason}; convert a Python 2 program first (python-modernize)") from None
    except ValueError as error:  # null bytes
        raise SyntaxError(f"not a Python source: {error}") from None
    except (RecursionError, MemoryError):
        raise SyntaxError("nested too deeply to be parsed by this Python") from None
    changes = _Changes(source)
    changes.collect(tree)
    return Migration(source, changes.apply(), sorted(changes.notes))


class _Changes:
    """Replacements of parts of a text, found in its syntax tree."""

    def __init__(self, source: str) -> None:
        self.data = source.encode("utf-8", "surrogatepass")  # offsets of the tree are in bytes
        self.starts = [0]  # offset of each line, divided as Python divides lines
        at = self.data.find(b"\n")
        returns = b"\r" in self.data.replace(b"\r\n", b"")
        while at >= 0 and not returns:
            self.starts.append(at + 1)
            at = self.data.find(b"\n", at + 1)
        if returns:
            for text in io.StringIO(source, newline=None).readlines():
                end = self.starts[-1] + len(text.encode("utf-8", "surrogatepass"))
                self.starts.append(end + (self.data[end - 1 : end + 1] == b"\r\n"))
        self.edits: list[tuple[int, int, bytes]] = []
        self.notes: list[Note] = []
        self.aliases: set[str] = set()  # names the program has for DyNet
        self.starred = False  # from dynet import *

    def span(self, node: Any) -> tuple[int, int]:
        """Offsets of a node in the text."""
        begin = self.starts[node.lineno - 1] + node.col_offset
        return begin, self.starts[node.end_lineno - 1] + node.end_col_offset

    def collect(self, tree: ast.Module) -> None:
        """Find everything to change; imports first, which give the names."""
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom) and node.module in MODULES and not node.level:
                self._import_from(node)
        for node in nodes:
            if isinstance(node, ast.Attribute):
                if self._is_library(node.value) and node.attr in RENAMED:
                    end = self.span(node)[1]
                    self._replace(end - len(node.attr), end, RENAMED[node.attr])
            elif isinstance(node, ast.Call):
                self._call(node)

    def apply(self) -> str:
        """The changed text."""
        parts, at = [], 0
        for begin, end, text in sorted(self.edits):
            parts += [self.data[at:begin], text]
            at = end
        return b"".join([*parts, self.data[at:]]).decode("utf-8", "surrogatepass")

    def _replace(self, begin: int, end: int, text: str) -> None:
        self.edits.append((begin, end, text.encode()))

    def _is_library(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.aliases

    def _tokens(self, node: ast.stmt) -> list[tuple[str, int, int]]:
        """Tokens of a statement: text and offsets. Nodes of imported names have no position before 3.10."""
        begin, end = self.span(node)
        text = self.data[begin:end].decode("utf-8", "surrogatepass")
        lines = io.StringIO(text).readlines()
        starts = [begin]
        for each in lines:
            starts.append(starts[-1] + len(each.encode("utf-8", "surrogatepass")))
        found: list[tuple[str, int, int]] = []
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NAME, tokenize.OP):
                line, column = token.start
                at = starts[line - 1] + len(lines[line - 1][:column].encode("utf-8", "surrogatepass"))
                found.append((token.string, at, at + len(token.string.encode("utf-8", "surrogatepass"))))
        return found

    def _import(self, node: ast.Import) -> None:
        names = [alias.name for alias in node.names]
        if not MODULES.intersection(names) and "dynet_config" not in names:
            return
        tokens = self._tokens(node)
        if "dynet_config" in names:
            if len(names) > 1:
                text = "import dynet_config in a line of its own, and run migrate again"
                self.notes.append(Note(node.lineno, text))
            else:
                self._replace(tokens[0][1], tokens[0][2], "from dynet_compat import")
        at = 1
        for alias in node.names:
            if alias.name in MODULES:
                local = alias.asname or alias.name
                self.aliases.add(local)
                self._replace(*tokens[at][1:], "dynet_compat" + ("" if alias.asname else f" as {local}"))
            while at < len(tokens) and tokens[at][0] != ",":
                at += 1
            at += 1

    def _import_from(self, node: ast.ImportFrom) -> None:
        tokens = self._tokens(node)
        self._replace(*tokens[1][1:], "dynet_compat")
        if node.names[0].name == "*":
            self.starred = True
            return
        at = 3 + (tokens[3][0] == "(")
        for alias in node.names:
            if alias.name in RENAMED:
                bound = "" if alias.asname else f" as {alias.name}"
                self._replace(*tokens[at][1:], RENAMED[alias.name] + bound)
            at += 4 if alias.asname else 2

    def _call(self, node: ast.Call) -> None:
        function = node.func
        is_method = isinstance(function, ast.Attribute)
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        ours = isinstance(function, ast.Attribute) and self._is_library(function.value)
        if called in TRAINERS and (ours or self.starred):
            self._trainer_arguments(node)
        updates = any(keyword.arg == "update" for keyword in node.keywords)
        if called in LOOK_AT and is_method and not (called == "expr" and updates):
            self.notes.append(Note(node.lineno, f"{called}(): {LOOK_AT[called]}"))
        if ours and called == "parameter" and len(node.args) == 1 and not node.keywords:
            self._unwrap(node)

    def _unwrap(self, node: ast.Call) -> None:
        """dy.parameter(x) becomes x: parameters are expressions."""
        argument = node.args[0]
        if isinstance(argument, ast.Starred):
            return
        (begin, end), (first, last) = self.span(node), self.span(argument)
        simple = isinstance(argument, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Tuple))
        if self.data[first:last].count(b"\n"):
            simple = False  # a line break needs the parentheses
        self._replace(begin, first, "" if simple else "(")
        self._replace(last, end, "" if simple else ")")

    def _trainer_arguments(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg in ARGUMENTS:
                at = self.span(keyword)[0]
                self._replace(at, at + len(keyword.arg), ARGUMENTS[keyword.arg])
            elif keyword.arg == "edecay":
                text = "edecay: set trainer.learning_rate after each epoch instead"
                self.notes.append(Note(node.lineno, text))


def read(path: str) -> tuple[str, str, bool]:
    """A source file: its text, its encoding as Python finds it, and whether it begins with a UTF-8 mark.

    Raises:
        OSError: it cannot be read, or is no regular file (a pipe would be waited for).
        SyntaxError: its encoding is unknown, or the bytes are not of that encoding.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"not a regular file: '{path}'")
    with open(path, "rb") as file:
        data = file.read()
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:
        raise SyntaxError(f"{error}: not utf-8, and the first two lines declare no other") from None
    marked = data.startswith(codecs.BOM_UTF8)
    encoding = "utf-8" if marked else encoding
    try:
        return data[3 * marked :].decode(encoding), encoding, marked
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SyntaxError(f"line {line} is not {encoding}; declare the encoding in the first line") from None


def main(script: str, write: bool, out: Optional[Any] = None) -> int:
    """The command: prints the diff and the notes; with `write` changes the file. Returns the exit status."""
    out = out or sys.stdout
    try:
        text, encoding, marked = read(script)
        result = migrate(text)
        difference = result.diff(script)
        if write and difference:
            data = result.new.encode(encoding)
            with open(script, "wb") as file:
                file.write(codecs.BOM_UTF8 * marked + data)
    except (OSError, SyntaxError) as error:
        print(f"{script}: {error}", file=sys.stderr)
        return 2
    try:
        out.write(difference or f"{script}: nothing to change\n")
        for note in result.notes:
            print(f"{script}:{note.line}: look at this: {note.text}", file=out)
        if write and difference:
            print(f"{script}: written", file=out)
        out.flush()
    except BrokenPipeError:  # `| head` has read enough
        quiet_pipe()
    return 0


def quiet_pipe() -> None:
    """Lets the interpreter end without a word after the reader of its output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
