"""The files in the folder of a run: `events.bin` (ten int64 of each event), `values.bin` (float32),
`texts.jsonl` (lines, names, traced calls: one list per line).

Runs under Python 3.8 as well; see `recorder.py`.
"""

from __future__ import annotations

import json
import os
from array import array
from typing import Any, Optional

import numpy as np

FULL = 1 << 16  # numbers in a buffer


class EventFiles:
    """What is written while the script runs, and what is in the buffers.

    Attributes:
        rows, numbers: of events, and their values, not written yet.
        written: numbers in values.bin.
        own_code: code objects -> are they the library's or the log's own?
    """

    def __init__(self, out: str) -> None:
        self.out = out
        self.stream: Any = None
        self.rows, self.numbers = array("q"), array("f")
        self.written = 0
        self.names: dict[str, int] = {}
        self.places: dict[tuple[str, int], int] = {}
        self.own_code: dict[Any, bool] = {}

    def begin(self) -> None:
        """The script starts now."""
        self.stream = open(os.path.join(self.out, "texts.jsonl"), "w", encoding="utf-8")
        for name, number in self.names.items():  # of a library that was imported before
            self.write(["name", number, name])

    def write(self, row: list[Any]) -> None:
        """A line of texts.jsonl."""
        self.stream.write(json.dumps(row) + "\n")

    def number_of(self, name: str) -> int:
        """Number of a name in the events."""
        number = self.names.get(name)
        if number is None:
            number = self.names[name] = len(self.names)
            if self.stream:
                self.write(["name", number, name])
        return number

    def is_own(self, code: Any) -> bool:
        """Is this code of the library or of the log, and not the script's?"""
        known = self.own_code.get(code)
        if known is None:
            here = os.path.dirname(os.path.abspath(__file__))
            folder = os.path.dirname(os.path.abspath(code.co_filename))
            library = os.path.dirname(os.path.dirname(code.co_filename)).split(os.sep)[-1:]
            known = folder == here or "site-packages" in code.co_filename or "dynet_compat" in library
            self.own_code[code] = known
        return known

    def place(self, frame: Any) -> int:
        """Number of the line of the script that called the library."""
        while frame is not None and self.is_own(frame.f_code):
            frame = frame.f_back
        key = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("?", 0)
        number = self.places.get(key)
        if number is None:
            number = self.places[key] = len(self.places)
            if self.stream:
                self.write(["place", number, key[0], key[1]])
        return number

    def store(self, numbers: Optional[np.ndarray]) -> int:
        """Appends numbers to those of values.bin; how many; -1 if they are not numbers."""
        if numbers is None:
            return -1
        self.numbers.frombytes(np.ascontiguousarray(numbers, dtype=np.float32).tobytes())
        return int(numbers.size)

    @property
    def next_number(self) -> int:
        """Where the next one will be in values.bin."""
        return self.written + len(self.numbers)

    def flush_full(self) -> None:
        if len(self.rows) > FULL or len(self.numbers) > FULL:
            self.flush()

    def flush(self) -> None:
        """Writes what is in the buffers: what a crash must not lose."""
        self.stream.flush()
        for name, buffer in (("values.bin", self.numbers), ("events.bin", self.rows)):
            with open(os.path.join(self.out, name), "ab") as file:
                buffer.tofile(file)
        self.written += len(self.numbers)
        del self.numbers[:], self.rows[:]
