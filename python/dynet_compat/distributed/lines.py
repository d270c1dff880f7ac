"""Blocks of lines, and the worker that runs a predictor over them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

Result = tuple[list[str], list[tuple[int, str]]]  # lines, and what went wrong: (index, message)


class LineBlock(NamedTuple):
    """Consecutive lines of the input."""

    number: int
    first_line: int  # from 1
    lines: list[bytes]


def predictor_of(name: str) -> Callable[[list[str]], Sequence[Any]]:
    """An object of the class that a name stands for: "module:Class" or "file.py:Class"."""
    place, separator, cls = name.rpartition(":")
    if not separator:
        raise ValueError(f"predict: got {name!r}; wanted module:Class or file.py:Class")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None or not os.path.isfile(place):
            raise ValueError(f"predict: no such file: {place}")
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(place)
    if not hasattr(module, cls):
        raise ValueError(f"predict: {place} has no {cls}")
    return getattr(module, cls)()  # type: ignore[no-any-return]


def blocks(path: str, size: int) -> Iterator[LineBlock]:
    """The input in blocks of `size` lines."""
    with open(path, "rb") as file:
        lines: list[bytes] = []
        number, first = 0, 1
        for line in file:
            lines.append(line.rstrip(b"\r\n"))
            if len(lines) == size:
                yield LineBlock(number, first, lines)
                number, first, lines = number + 1, first + size, []
        if lines:
            yield LineBlock(number, first, lines)


class Worker:
    """Runs the predictor over blocks; a line that it cannot take costs that line only."""

    def __init__(self, predictor: str, batch: int) -> None:
        self._predictor, self._batch = predictor, batch
        self._predict: Optional[Callable[[list[str]], Sequence[Any]]] = None  # made for the first block

    def run(self, block: LineBlock) -> Result:
        self._predict = self._predict or predictor_of(self._predictor)
        results, wrong = [""] * len(block.lines), []
        texts: list[tuple[int, str]] = []
        for i, line in enumerate(block.lines):
            try:
                texts.append((i, line.decode("utf-8")))
            except UnicodeDecodeError as error:
                wrong.append((i, f"is no UTF-8: {error.reason} at byte {error.start}"))
        for first in range(0, len(texts), self._batch):
            self._some(texts[first : first + self._batch], results, wrong)
        return results, sorted(wrong)

    def _some(self, texts: list[tuple[int, str]], results: list[str], wrong: list[tuple[int, str]]) -> None:
        try:
            lines = self._lines([text for _, text in texts])
        except Exception as error:
            if len(texts) == 1:
                wrong.append((texts[0][0], f"{type(error).__name__}: {error}"))
                return
            for one in texts:  # which line is it?
                self._some([one], results, wrong)
            return
        for (i, _), line in zip(texts, lines):
            results[i] = line

    def _lines(self, texts: list[str]) -> list[str]:
        assert self._predict is not None
        found = list(self._predict(texts))
        if len(found) != len(texts):
            raise ValueError(f"the predictor returned {len(found)} results for {len(texts)} lines")
        lines = [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in found]
        for line in lines:
            if "\n" in line:
                raise ValueError("the predictor returned a text of several lines; return a list instead")
        return lines
