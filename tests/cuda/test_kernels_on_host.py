"""The CUDA kernels' own text, compiled by the host's compiler, run on a small grid thread after thread."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
SRC = HERE.parents[1] / "src"
COMPILER = os.environ.get("CXX", "g++")

pytestmark = pytest.mark.skipif(shutil.which(COMPILER.split()[0]) is None, reason=f"no compiler {COMPILER}")

SHARED, CONTIGUOUS, STRIDED, INDEXED = range(4)
MAX_AXES = 8
Array = np.ndarray


class Place(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("index", ctypes.c_void_p), ("stride", ctypes.c_int64),
                ("kind", ctypes.c_uint32), ("repeats", ctypes.c_bool)]  # fmt: skip


class Divisor(ctypes.Structure):
    _fields_ = [("multiplier", ctypes.c_uint32), ("shift", ctypes.c_uint32)]


class Extents(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint32), ("size", ctypes.c_int64), ("starts", ctypes.c_void_p),
                ("total", ctypes.c_int64), ("largest", ctypes.c_int64), ("by_size", Divisor)]  # fmt: skip


class Axes(ctypes.Structure):
    _fields_ = [("n", ctypes.c_uint32), ("extent", ctypes.c_uint32 * MAX_AXES),
                ("x", ctypes.c_uint32 * MAX_AXES), ("y", ctypes.c_uint32 * MAX_AXES),
                ("by_extent", Divisor * MAX_AXES)]  # fmt: skip


Attrs = ctypes.c_float * 4


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    options = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{SRC}"]
    emulation = SRC / "cuda" / "emulation"
    sources = [str(file) for file in (HERE / "host_grid.cc", emulation / "grid.cc", emulation / "races.cc")]
    command = [*COMPILER.split(), *options, *sources, "-o", str(library)]
    subprocess.run(command, check=True, timeout=300)
    return ctypes.CDLL(str(library))


class Layout:
    """Sizes of nodes, and the offset of an argument of each in an arena of floats."""

    def __init__(self, kind: int, sizes: list[int], seed: int, repeats: bool = False) -> None:
        random = np.random.default_rng(seed)
        self.kind, self.sizes = kind, sizes
        count, largest = len(sizes), max(sizes)
        self.repeats = repeats or kind == SHARED
        ends = np.cumsum(sizes)
        if kind == SHARED:
            self.offsets = np.zeros(count, np.int64)
        elif kind == CONTIGUOUS:
            self.offsets = ends - sizes
        elif kind == STRIDED:
            self.offsets = np.arange(count) * (largest + 3)
        else:
            slots = random.permutation(2 * count)[:count]
            if repeats:
                slots[::2] = slots[0]
            self.offsets = slots * largest
        self.offsets = np.ascontiguousarray(self.offsets, np.int64)
        self.arena = random.uniform(0.5, 2.0, int(self.offsets.max()) + largest).astype(np.float32)

    def place(self, arena: Array) -> Place:
        uniform = len(set(self.sizes)) == 1
        stride = {STRIDED: max(self.sizes) + 3, CONTIGUOUS: self.sizes[0] if uniform else 0}.get(self.kind, 0)
        return Place(arena.ctypes.data, self.offsets.ctypes.data, stride, self.kind, self.repeats)

    def part(self, arena: Array, member: int) -> Array:
        return arena[self.offsets[member] :][: self.sizes[member]]


def divisor(by: int) -> Divisor:
    log = (by - 1).bit_length()
    return Divisor((1 << 31 + log) // by + 1, 31 + log)


def test_division_by_multiplication() -> None:
    """cuda/abi/operands.h: of all numbers below 2^31."""
    random = np.random.default_rng(5)
    for by in [*range(1, 70), 641, 65535, 65536, 65537, (1 << 31) - 1, *random.integers(1, 1 << 31, 50)]:
        numbers = random.integers(0, 1 << 31, 1000, dtype=np.uint64)
        numbers[:100] = numbers[:100] // np.uint64(by) * np.uint64(by)
        numbers[100:200] = np.maximum(numbers[:100], 1) - 1
        numbers[200] = (1 << 31) - 1
        d = divisor(int(by))
        found = numbers * np.uint64(d.multiplier) >> np.uint64(d.shift)
        assert np.array_equal(found, numbers // np.uint64(by))


def extents(sizes: list[int]) -> tuple[Extents, Array]:
    """Also the array that must stay alive."""
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    uniform = len(set(sizes)) == 1
    pointer = None if uniform else starts.ctypes.data
    size = sizes[0] if uniform else 0
    return Extents(len(sizes), size, pointer, int(starts[-1]), max(sizes), divisor(size or 1)), starts


def pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def close(actual: Array, expected: Array) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6)


UNARY: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "elu": (lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), lambda x: np.where(x > 0, 1, 0.5 * np.exp(x))),
}
LAYOUTS = [
    pytest.param(SHARED, False, [5] * 7, id="shared"),
    pytest.param(SHARED, False, [5, 2, 4], id="shared-ragged"),
    pytest.param(CONTIGUOUS, False, [5] * 7, id="contiguous"),
    pytest.param(CONTIGUOUS, False, [3, 1, 6, 2], id="contiguous-ragged"),
    pytest.param(STRIDED, False, [4] * 6, id="strided"),
    pytest.param(STRIDED, False, [4, 9, 1], id="strided-ragged"),
    pytest.param(INDEXED, False, [4] * 6, id="indexed"),
    pytest.param(INDEXED, False, [4, 1, 7, 2], id="indexed-ragged"),
    pytest.param(INDEXED, True, [4] * 6, id="indexed-repeating"),
    pytest.param(INDEXED, True, [3, 5, 2, 5, 1], id="indexed-repeating-ragged"),
]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(("kind", "repeats", "sizes"), LAYOUTS)
def test_unary(kernels: ctypes.CDLL, name: str, kind: int, repeats: bool, sizes: list[int]) -> None:
    f, df = UNARY[name]
    x = Layout(kind, sizes, 1, repeats)
    x.arena[::3] *= -1
    results, starts = extents(sizes)
    y, dy = np.full(sum(sizes) + 1, 7, np.float32), np.linspace(-1, 1, sum(sizes), dtype=np.float32)
    dx = np.linspace(0, 1, len(x.arena), dtype=np.float32)
    expected_y, expected_dx = y.copy(), dx.copy()
    for i, start in enumerate(starts[:-1]):
        part = x.part(x.arena, i)
        expected_y[start : start + sizes[i]] = f(part)
        x.part(expected_dx, i)[:] += dy[start : start + sizes[i]] * df(part)
    attrs, places = Attrs(0.5), (x.place(x.arena), x.place(dx))
    getattr(kernels, f"{name}_forward")(ctypes.byref(places[0]), pointer(y), ctypes.byref(results), attrs)
    close(y, expected_y)
    getattr(kernels, f"{name}_backward")(ctypes.byref(places[0]), pointer(y), pointer(dy),
                                         ctypes.byref(places[1]), ctypes.byref(results), attrs)  # fmt: skip
    close(dx, expected_dx)


BINARY: dict[str, tuple[Callable[..., Array], Callable[..., Array], Callable[..., Array]]] = {
    "add": (lambda x, y: x + y, lambda x, y: np.ones_like(x + y), lambda x, y: np.ones_like(x + y)),
    "cmult": (lambda x, y: x * y, lambda x, y: y + 0 * x, lambda x, y: x + 0 * y),
    "cdiv": (lambda x, y: x / y, lambda x, y: 1 / y + 0 * x, lambda x, y: -x / (y * y)),
}
# Extents of x and y per member, batch last.
SHAPES = [
    pytest.param([((5,), (5,))] * 6, id="equal"),
    pytest.param([((5,), (5,)), ((2,), (2,)), ((7,), (7,))], id="equal-ragged"),
    pytest.param([((3, 4), (3, 1))] * 5, id="column"),
    pytest.param([((1, 4), (3, 4))] * 5, id="row"),
    pytest.param([((2, 3, 1), (2, 1, 4))] * 5, id="batch"),
    pytest.param([((1,), (6,))] * 5, id="scalar"),
    pytest.param([((2, 3), (2, 1)), ((4, 1), (1, 5)), ((3, 2), (3, 2)), ((1, 1), (2, 2))], id="each-its-own"),
]


def axes_of(x: tuple[int, ...], y: tuple[int, ...]) -> Axes:
    """As a launcher would make them; n = 0 for equal extents."""
    axes, x_size, y_size = Axes(), 1, 1
    if x == y:
        return axes
    axes.n = len(x)
    for k, (a, b) in enumerate(zip(x, y)):
        axes.extent[k] = max(a, b)
        axes.x[k], axes.y[k] = (x_size if a > 1 else 0), (y_size if b > 1 else 0)
        axes.by_extent[k] = divisor(max(a, b))
        x_size, y_size = x_size * a, y_size * b
    return axes


def reduced(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sums the gradient over the axes along which an argument of `shape` is repeated; flat."""
    axes = tuple(k for k, n in enumerate(shape) if n == 1)
    return gradient.sum(axis=axes, keepdims=True).reshape(-1, order="F")


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("x_kind", "y_kind"), [(CONTIGUOUS, INDEXED), (STRIDED, SHARED), (INDEXED, STRIDED)])
@pytest.mark.parametrize("shapes", SHAPES)
def test_binary(kernels: ctypes.CDLL, name: str, x_kind: int, y_kind: int, shapes: list) -> None:
    f, *slopes = BINARY[name]
    uniform = len(set(shapes)) == 1
    if not uniform and x_kind == CONTIGUOUS and any(x != y for x, y in shapes):
        x_kind = INDEXED  # contiguous members of several sizes are as large as their results
    sizes = [[int(np.prod(shape[arg])) for shape in shapes] for arg in (0, 1)]
    layouts = [Layout(x_kind, sizes[0], 1), Layout(y_kind, sizes[1], 2, repeats=y_kind == INDEXED)]
    out = [int(np.prod(np.maximum(x, y))) for x, y in shapes]
    results, starts = extents(out)
    z, dz = np.zeros(sum(out), np.float32), np.linspace(-1, 1, sum(out), dtype=np.float32)
    gradients = [np.linspace(0, 1, len(side.arena), dtype=np.float32) for side in layouts]
    expected_z, expected = z.copy(), [gradient.copy() for gradient in gradients]
    for i, shape in enumerate(shapes):
        values = [side.part(side.arena, i).reshape(shape[arg], order="F") for arg, side in enumerate(layouts)]
        value = f(*values)
        expected_z[starts[i] : starts[i + 1]] = value.reshape(-1, order="F")
        flow = dz[starts[i] : starts[i + 1]].reshape(value.shape, order="F")
        for arg, side in enumerate(layouts):
            side.part(expected[arg], i)[:] += reduced(flow * slopes[arg](*values), shape[arg])

    axes = (Axes * len(shapes))(*(axes_of(x, y) for x, y in shapes))
    attrs, each_own = Attrs(), ctypes.c_bool(not uniform)
    x, y = (side.place(side.arena) for side in layouts)
    places = (ctypes.byref(x), ctypes.byref(y))
    getattr(kernels, f"{name}_forward")(*places, pointer(z), ctypes.byref(results), axes, each_own, attrs)
    close(z, expected_z)
    for arg, side in enumerate(layouts):
        target, (own, kept) = side.place(gradients[arg]), extents(sizes[arg])
        getattr(kernels, f"{name}_backward_{arg}")(
            *places, pointer(z), pointer(dz), ctypes.byref(target), ctypes.byref(results), ctypes.byref(own),
            axes, each_own, attrs)  # fmt: skip
        close(gradients[arg], expected[arg])
        del kept
