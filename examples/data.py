"""Data of the example scripts: four plain-text formats, one instance per line.

  tags      word|TAG word|TAG ...          one sentence
  trees     (3 (2 It) (4 (2 's) ...))      one binary tree with an integer label at every node
  text      word word word ...             one sentence
  classes   3 ||| word word word           one labelled sentence

Without a file the lines are made from the Python standard library's own source files, which every
machine has: tags from `tokenize`, trees from `ast`, text and classes from the statements' tokens.
Those lines depend on the Python version, so write them to a file to give two interpreters the same
data:  python data.py tags FILE
`python -m dynet_compat compare` gives all runs of a script one folder, DYNET_COMPAT_SHARED: there the
first run leaves its lines for the others.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import keyword
import os
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

MODULES = (
    "argparse", "bisect", "calendar", "configparser", "csv", "difflib", "fnmatch", "getopt", "glob",
    "heapq", "shlex", "statistics", "string", "tarfile", "textwrap", "zipfile",
)  # fmt: skip
LENGTHS = range(3, 41)  # tokens or leaves of the instances that are kept
UNKNOWN = "<unk>"


class Vocab:
    """Words to numbers, in order of first appearance; rare and unseen words are number 0."""

    def __init__(self, words: Iterable[str], min_count: int = 1) -> None:
        counts = Counter(words)
        self.words = [UNKNOWN] + [w for w, n in counts.items() if n >= min_count and w != UNKNOWN]
        self.index = {w: i for i, w in enumerate(self.words)}

    def __getitem__(self, word: str) -> int:
        return self.index.get(word, 0)

    def __contains__(self, word: str) -> bool:
        return word in self.index

    def __len__(self) -> int:
        return len(self.words)


# ---------------------------------------------------------------- lines from the standard library


def sources() -> Iterator[str]:
    """Source text of each module of MODULES that this Python has."""
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        text = spec.loader.get_source(name) if spec and spec.loader else None  # type: ignore[attr-defined]
        if text:
            yield text


def statements(source: str) -> Iterator[list[tuple[str, str]]]:
    """(kind, word) pairs of each logical line; strings and long numbers become placeholders."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    line: list[tuple[str, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if token.type == tokenize.NEWLINE:
            yield line
            line = []
        elif kind == "STRING" or kind.endswith("STRING_START"):
            line.append(("STRING", '"'))
        elif kind == "NUMBER":
            line.append((kind, token.string if len(token.string) == 1 else "N"))
        elif token.type not in skipped and "STRING_" not in kind:
            line.append((kind, token.string))


def tag(line: list[tuple[str, str]], i: int) -> str:
    """Tag of token i: what the token is used for, which depends on its neighbours."""
    kind, word = line[i]
    before = line[i - 1][1] if i else ""
    after = line[i + 1][1] if i + 1 < len(line) else ""
    if kind != "NAME":
        return kind
    if keyword.iskeyword(word):
        return "KEYWORD"
    if before in ("def", "class"):
        return "DEFINED"
    if after == "(":
        return "METHOD" if before == "." else "CALLED"
    if before == ".":
        return "FIELD"
    return "TARGET" if after == "=" else "NAME"


def tag_lines(source: str) -> Iterator[str]:
    for line in statements(source):
        if len(line) in LENGTHS:
            yield " ".join(word + "|" + tag(line, i) for i, (_, word) in enumerate(line))


def text_lines(source: str) -> Iterator[str]:
    for line in statements(source):
        if len(line) in LENGTHS:
            yield " ".join(word for _, word in line)


def class_lines(source: str) -> Iterator[str]:
    """The kind of statement, to be guessed from the words after the first one."""
    kinds = {"if": 1, "elif": 1, "while": 1, "return": 2, "def": 3, "for": 4}
    for line in statements(source):
        if len(line) in LENGTHS:
            words = " ".join(word for _, word in line[1:])
            yield f"{kinds.get(line[0][1], 0)} ||| {words}"


def tree_lines(source: str) -> Iterator[str]:
    simple = (ast.Assign, ast.AugAssign, ast.Return, ast.Expr, ast.Raise, ast.Assert, ast.Delete)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, simple):
            line = tree_line(node)
            if line.count(" (") + 1 in range(2 * LENGTHS[0] - 1, 2 * LENGTHS[-1]):
                yield line


def tree_line(node: ast.AST) -> str:
    """The syntax tree as a binary s-expression; long child lists branch to the right."""
    if isinstance(node, ast.Constant):
        word = node.value if isinstance(node.value, (bool, type(None))) else type(node.value).__name__
        return f"(1 {word})"
    if isinstance(node, ast.stmt):
        label = 4
    elif isinstance(node, (ast.Call, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.keyword)):
        label = 3
    elif isinstance(node, ast.Name) or not isinstance(node, ast.expr):
        label = 0
    else:
        label = 2
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
    kids = [tree_line(kid) for kid in ast.iter_child_nodes(node) if not isinstance(kid, ast.expr_context)]
    if isinstance(name, str):
        kids.append(f"(0 {name})")
    if not kids:
        return f"({label} {type(node).__name__})"
    line = kids.pop()
    while kids:
        line = f"({label} {kids.pop()} {line})"
    return line


MAKERS = {"tags": tag_lines, "trees": tree_lines, "text": text_lines, "classes": class_lines}


# ---------------------------------------------------------------- lines to instances


def read_tags(line: str) -> list[tuple[str, str]]:
    """'word|TAG ...' to [(word, tag), ...]."""
    items = [item.rpartition("|") for item in line.split(" ") if item]
    return [(word, tag) for word, _, tag in items]


def read_tree(line: str) -> tuple:
    """'(3 (2 It) (4 works))' to nested (label, word) and (label, left, right) tuples."""
    stack: list[list[Any]] = [[]]
    for item in re.findall(r"[()]|[^ ()]+", line):
        if item == "(":
            stack.append([])
        elif item == ")":
            node = stack.pop()
            leaf = len(node) == 2 and isinstance(node[1], str)
            if not leaf and [type(kid) for kid in node[1:]] != [tuple, tuple]:
                raise ValueError(f"wanted (label word) or (label tree tree), got {node!r} in {line!r}")
            stack[-1].append((int(node[0]),) + tuple(node[1:]))
        else:
            stack[-1].append(item)
    return stack[0][0]


def read_class(line: str) -> tuple[int, list[str]]:
    """'3 ||| word word' to (3, [word, word])."""
    label, _, words = line.partition("|||")
    return int(label), words.split()


READERS: dict[str, Any] = {"tags": read_tags, "trees": read_tree, "text": str.split, "classes": read_class}


def lines(kind: str, path: str | None = None) -> list[str]:
    """Non-empty lines of the file, or of the standard library when there is no path."""
    if path:
        with open(path, encoding="utf-8") as stream:
            return [line for line in stream.read().split("\n") if line.strip()]
    shared = os.environ.get("DYNET_COMPAT_SHARED")
    if shared and os.path.exists(os.path.join(shared, kind)):
        return lines(kind, os.path.join(shared, kind))
    found = [line for source in sources() for line in MAKERS[kind](source)]
    if shared:
        with open(os.path.join(shared, kind), "w", encoding="utf-8") as stream:
            stream.write("\n".join(found) + "\n")
    return found


def load(kind: str, path: str | None = None, limit: int | None = None) -> list[Any]:
    """Instances of a kind: sentences of (word, tag), nested trees, word lists or (label, words)."""
    return [READERS[kind](line) for line in lines(kind, path)[:limit]]


def dump(kind: str, target: str, path: str | None = None, limit: int | None = None) -> int:
    """Write the lines that `load` would read to a file; returns how many."""
    chosen = lines(kind, path)[:limit]
    with open(target, "w", encoding="utf-8") as stream:
        stream.write("\n".join(chosen) + "\n")
    return len(chosen)


def leaves(tree: tuple) -> list[str]:
    """Words of a tree, left to right."""
    return [tree[1]] if len(tree) == 2 else leaves(tree[1]) + leaves(tree[2])


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the example data to a file.")
    parser.add_argument("kind", choices=sorted(MAKERS))
    parser.add_argument("file")
    parser.add_argument("--limit", type=int)
    args = parser.parse_args(argv)
    print(f"{dump(args.kind, args.file, limit=args.limit)} lines written")


if __name__ == "__main__":
    main()
