"""Programs changed at random: the compile step neither fails nor hangs, and what it writes can be read."""

from __future__ import annotations

import ast
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat.hints import hints_file  # noqa: E402
from dynet_compat.hints.analysis.script import ScriptAnalysis  # noqa: E402
from dynet_compat.hints.compiler import hints_of  # noqa: E402
from sources import EXAMPLES, SCRIPTS, explained  # noqa: E402

COUNT = 120
SOURCES = sorted([*EXAMPLES.glob("*.py"), *SCRIPTS.glob("*.py")])
WORDS = (
    "self dy W [] ( ) : = + * for in if else return yield lambda None 0 'i' . , await with try: del".split()
)


def check(path: Path) -> ScriptAnalysis:
    found = ScriptAnalysis(str(path))
    hints = hints_of(found)
    assert hints_file.parse(hints_file.to_text(hints).encode()) == hints
    assert all("\n" not in line for line in explained(found).lines())
    return found


def test_random_text(tmp_path: Path, fuzz_count: int) -> None:
    """Tokens put in, taken out, exchanged; most results cannot be parsed."""
    rng = random.Random(21)
    for _ in range(fuzz_count or COUNT):
        lines = rng.choice(SOURCES).read_text(encoding="utf-8").splitlines()
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(lines))
            what = rng.randrange(4)
            if what == 0:
                words = lines[at].split(" ")
                words[rng.randrange(len(words))] = rng.choice(WORDS)
                lines[at] = " ".join(words)
            elif what == 1:
                del lines[at]
            elif what == 2:
                lines.insert(at, lines[rng.randrange(len(lines))])
            else:
                lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        path = tmp_path / "x.py"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        check(path)


class Mutator(ast.NodeTransformer):
    """Exchanges parts of a syntax tree for others of the same sort: the result is a program."""

    def __init__(self, rng: random.Random, tree: ast.AST, rate: float) -> None:
        self.rng, self.rate = rng, rate
        self.expressions = [n for n in ast.walk(tree) if isinstance(n, ast.expr) and not hasattr(n, "ctx")]
        self.expressions += [n for n in ast.walk(tree) if isinstance(getattr(n, "ctx", None), ast.Load)]
        self.statements = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
        self.depth = 0

    def visit(self, node: Any) -> Any:
        if self.rng.random() < self.rate and self.depth < 1:
            if isinstance(node, ast.expr) and (not hasattr(node, "ctx") or isinstance(node.ctx, ast.Load)):
                return self.rng.choice(self.expressions)
            if isinstance(node, ast.stmt):
                return self.rng.choice(self.statements)
        return self.generic_visit(node)


def test_random_trees(tmp_path: Path, fuzz_count: int) -> None:
    rng = random.Random(22)
    sites = 0
    for _ in range(fuzz_count or COUNT):
        tree = ast.parse(rng.choice(SOURCES).read_text(encoding="utf-8"))
        other = ast.parse(rng.choice(SOURCES).read_text(encoding="utf-8"))
        mutator = Mutator(rng, rng.choice([tree, other]), rng.choice([0.002, 0.01, 0.05]))
        try:
            text = ast.unparse(ast.fix_missing_locations(mutator.visit(tree)))
        except (RecursionError, ValueError, TypeError, AttributeError):
            continue  # it does not stand for a program
        path = tmp_path / "x.py"
        path.write_text(text, encoding="utf-8")
        sites += len(check(path).facts.ops)
    assert sites > 100


def test_random_bytes(tmp_path: Path, fuzz_count: int) -> None:
    rng = random.Random(23)
    path = tmp_path / "x.py"
    for _ in range((fuzz_count or COUNT) // 2):
        data = bytearray(rng.choice(SOURCES).read_bytes())
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data))
        check(path)
