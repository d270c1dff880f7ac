"""A mapping name -> array in one small .npz: one JSON index and one flat buffer per element type.

An .npz entry costs some 200 bytes; the recordings hold thousands of arrays of a few numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Union

import numpy as np

PathLike = Union[str, "os.PathLike[str]"]


def save(path: PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `arrays`; strings are stored as arrays of UTF-8 bytes by the caller (see `text`)."""
    index: dict[str, list] = {}
    flat: dict[str, list[np.ndarray]] = {}
    used: dict[str, int] = {}
    for name, array in arrays.items():
        array = np.asarray(array)
        kind = array.dtype.str
        index[name] = [kind, list(array.shape), used.get(kind, 0)]
        used[kind] = used.get(kind, 0) + array.size
        flat.setdefault(kind, []).append(array.reshape(-1))
    buffers = {"data" + kind: np.concatenate(parts) for kind, parts in flat.items()}
    header = np.frombuffer(json.dumps(index, sort_keys=True).encode(), dtype=np.uint8)
    np.savez_compressed(path, index=header, **buffers)


def load(path: PathLike) -> dict[str, np.ndarray]:
    """Read what `save` wrote."""
    with np.load(path) as stored:
        index = json.loads(stored["index"].tobytes().decode())
        buffers = {kind: stored["data" + kind] for kind in {entry[0] for entry in index.values()}}
    result = {}
    for name, (kind, shape, start) in index.items():
        size = int(np.prod(shape)) if shape else 1
        result[name] = buffers[kind][start : start + size].reshape(shape)
    return result


def text(value: str) -> np.ndarray:
    """A string as an array."""
    return np.frombuffer(value.encode(), dtype=np.uint8).copy()


def untext(array: np.ndarray) -> str:
    """The inverse of `text`."""
    return array.tobytes().decode()
