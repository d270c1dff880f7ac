# ruff: noqa: UP031
"""Write data/{tags,trees,text,classes}.txt: sentences of a small random grammar, always the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

WORDS = {
    "D": ["the", "a", "every", "no"],
    "A": ["small", "old", "green", "quick", "unlikely"],
    "N": ["graph", "node", "batch", "tree", "parser", "word", "kernel", "sentence"],
    "V": ["reads", "builds", "joins", "sees", "drops", "finds"],
    "P": ["near", "under", "with", "before"],
    "B": ["quickly", "twice", "never"],
}
RULES = {
    "S": [["NP", "VP"]],
    "NP": [["D", "N"], ["D", "AN"], ["NP", "PP"]],
    "AN": [["A", "N"], ["A", "AN"]],
    "VP": [["V", "NP"], ["V", "NP"], ["B", "VP"], ["VP", "PP"]],
    "PP": [["P", "NP"]],
}
LABELS = {"S": 4, "VP": 3, "PP": 2, "NP": 1}
COUNT = 60


def grow(rng: random.Random, symbol: str, depth: int) -> tuple[Any, ...]:
    """A tree (symbol, word) or (symbol, left, right)."""
    if symbol in WORDS:
        return symbol, rng.choice(WORDS[symbol])
    rules = RULES[symbol][:1] if depth > 5 else RULES[symbol]
    left, right = rng.choice(rules)
    return symbol, grow(rng, left, depth + 1), grow(rng, right, depth + 1)


def leaves(tree: tuple[Any, ...]) -> list[tuple[str, str]]:
    """(word, tag) from left to right."""
    return [(tree[1], tree[0])] if len(tree) == 2 else leaves(tree[1]) + leaves(tree[2])


def shown(tree: tuple[Any, ...]) -> str:
    """The tree as an s-expression with labels 0 to 4."""
    inside = tree[1] if len(tree) == 2 else shown(tree[1]) + " " + shown(tree[2])
    return "(%d %s)" % (LABELS.get(tree[0], 0), inside)


def main() -> None:
    """Write the four files."""
    rng = random.Random(8)
    trees = [grow(rng, "S", 0) for _ in range(COUNT)]
    folder = Path(__file__).resolve().parent / "data"
    folder.mkdir(exist_ok=True)
    words = [[word for word, _ in leaves(tree)] for tree in trees]
    lines = {
        "tags": [" ".join("{}|{}".format(*pair) for pair in leaves(tree)) for tree in trees],
        "trees": [shown(tree) for tree in trees],
        "text": [" ".join(sentence) for sentence in words],
        "classes": ["%d ||| %s" % (min(4, len(sentence) // 4), " ".join(sentence)) for sentence in words],
    }
    for name, content in lines.items():
        (folder / (name + ".txt")).write_text("\n".join(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
