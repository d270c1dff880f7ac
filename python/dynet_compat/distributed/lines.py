"""Blocks of lines, and the worker that runs a predictor over them."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

Result = tuple[list[str], list[tuple[int, str]]]  # lines, and what went wrong: (index, message)


class LineBlock(NamedTuple):
    """Consecutive lines of the input."""

    number: int
    first_line: int  # from 1
    lines: list[bytes]
    end: int = 0  # bytes of the input until there, as they are in the file


class UsageError(ValueError):
    """What predict was asked to do cannot be done; the message says why."""


def source_of(name: str) -> str:
    """The file of the class that a name stands for: "module:Class" or "file.py:Class"."""
    place, separator, _ = name.rpartition(":")
    if not separator:
        raise UsageError(f"got {name!r}; wanted module:Class or file.py:Class")
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise UsageError(f"no such file: {place}")
        return place
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(place)
    except ModuleNotFoundError as error:
        if not f"{place}.".startswith(f"{error.name}."):  # one that its package imports
            raise
        spec = None
    if spec is None or spec.origin is None:
        raise UsageError(f"no module {place} in this folder or where Python looks for modules")
    return spec.origin


def predictor_of(name: str) -> Callable[[list[str]], Sequence[Any]]:
    """An object of that class."""
    path = source_of(name)
    place, _, cls = name.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, path)
        assert spec is not None and spec.loader is not None
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    if not hasattr(module, cls):
        raise UsageError(f"{place} has no {cls}")
    return getattr(module, cls)()  # type: ignore[no-any-return]


def blocks(path: str, size: int) -> Iterator[LineBlock]:
    """The input in blocks of `size` lines; what gzip has compressed is read as it was before."""
    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        every = iter(gzip.open(file) if compressed else file)
        number, first = 0, 1
        try:
            while lines := [line.rstrip(b"\r\n") for line in islice(every, size)]:
                yield LineBlock(number, first, lines, file.tell())
                number, first = number + 1, first + len(lines)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{path}: not whole after line {first - 1}: {error}") from error


def _json(result: Any) -> str:
    return json.dumps(result, ensure_ascii=False, default=_plain)


def _plain(x: Any) -> Any:
    """What NumPy has made, as Python's own."""
    if isinstance(x, (np.ndarray, np.generic)):
        return x.tolist()
    raise TypeError(f"got {type(x).__name__} as a result; wanted a text, or what JSON or NumPy has")


class Worker:
    """Runs the predictor over blocks; a line that it cannot take costs that line only."""

    def __init__(self, predictor: str, batch: int) -> None:
        self._predictor, self._batch = predictor, batch
        self._predict: Optional[Callable[[list[str]], Sequence[Any]]] = None  # made for the first block

    def prepare(self) -> None:
        """Makes the predictor."""
        self._predict = self._predict or predictor_of(self._predictor)

    def run(self, block: LineBlock) -> Result:
        self.prepare()
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
        lines = [x if isinstance(x, str) else _json(x) for x in found]
        for line in lines:
            if "\n" in line:
                raise ValueError("the predictor returned a text of several lines; return a list instead")
        return lines
