"""The error that ends a comparison: one line, with what to do."""

from __future__ import annotations


class CannotCompare(Exception):
    """There is nothing to compare; the message is one line and says what to do. Exit status 2."""

    def __init__(self, problem: str, hint: str, detail: str = "") -> None:
        super().__init__(" ".join(f"{problem}: {hint}".split()))
        self.problem = " ".join(problem.split())
        self.hint = hint
        self.detail = detail  # such as a traceback, for the report
