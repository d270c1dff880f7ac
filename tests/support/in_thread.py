"""Work in a thread of its own, which has a graph of its own."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    """What work() returns, or raises, in a thread of its own."""
    out: list[Any] = []

    def run() -> None:
        try:
            out.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - handed over
            out.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    result, error = out[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def with_new_graph(test: Callable[..., None]) -> Callable[..., None]:
    """The test, on a graph and a cache of plans that no test before it has used."""

    @functools.wraps(test)
    def call(**fixtures: Any) -> None:
        in_thread(lambda: test(**fixtures))

    return call
