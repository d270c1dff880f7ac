"""Matrix products on the device: each kernel for itself, the rule that chooses, and every way in programs."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import fake_gpu, nvrtc
from support.kernel_programs import KernelProgram
from support.subject import IS_REFERENCE

HERE = Path(__file__).resolve().parent
SRC = HERE.parents[1] / "src"
GPU_BLOCKS = ("-DDYC_EMULATED_WARP=32", "-DDYC_EMULATED_BLOCK=256")
SANITIZER = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
KINDS = ("wx", "wdy", "dyx")
KERNELS = [("few_columns", kind) for kind in KINDS[:2]]
KERNELS += [(kernel, kind) for kernel in ("product", "small_product", "large_product") for kind in KINDS]
WAYS = ("few", "middle", "large", "library")

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our kernels")
compiled = pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")

Program = Callable[..., str]


# ---------------------------------------------------------------- the kernels


def built(folder: Path, *options: str) -> Program:
    sources = ["cuda/driver/matmul_variants.cc", "cuda/emulation/other_kernels.cc"]
    program = KernelProgram(folder, "product_cases", sources, *options)

    def run(kernel: str, kind: str, seed: int, lists: int, *precision: str) -> str:
        done = program(kernel, kind, str(seed), str(lists), *precision, timeout=300)
        return done.stdout + done.stderr + ("" if done.returncode == 0 else f"exit {done.returncode}")

    return run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """In the emulation's blocks of 64 threads."""
    return built(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """In a GPU's: 256 threads in warps of 32."""
    return built(tmp_path_factory.mktemp("large"), *GPU_BLOCKS)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return built(tmp_path_factory.mktemp("sanitized"), *GPU_BLOCKS, *SANITIZER)


@compiled
@pytest.mark.parametrize(("kernel", "kind"), KERNELS)
def test_random_products(small: Program, kernel: str, kind: str) -> None:
    """Lists of products of any shape, over columns that lie anywhere, against sums in double."""
    assert small(kernel, kind, 1, 200) == ""


@compiled
@pytest.mark.parametrize(("kernel", "kind"), KERNELS)
def test_random_products_in_blocks_of_a_gpu(large: Program, kernel: str, kind: str) -> None:
    assert large(kernel, kind, 2, 100) == ""


@compiled
@pytest.mark.parametrize("kind", KINDS)
def test_small_tiles_make_the_same_bits(large: Program, kind: str) -> None:
    """So the size of tiles may depend on what else a launch computes."""
    tiles, small_tiles = (large(kernel, kind, 5, 40, "bits") for kernel in ("product", "small_product"))
    assert tiles == small_tiles != ""


@compiled
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", ["small", "large", "sanitized"])
def test_random_products_by_tensor_cores(
    request: pytest.FixtureRequest, blocks: str, kind: str, precision: str
) -> None:
    """Against sums in double, of rounded factors; within 1.1e-3 (tf32) or 1e-2 (bf16) of those of others."""
    program: Program = request.getfixturevalue(blocks)
    assert program("large_product", kind, 4, 25 if blocks == "sanitized" else 100, precision) == ""


@compiled
@pytest.mark.parametrize(("kernel", "kind"), KERNELS)
def test_nothing_else_is_read_or_written(sanitized: Program, kernel: str, kind: str) -> None:
    assert sanitized(kernel, kind, 3, 25) == ""


@compiled
def test_threads_of_a_warp_ask_for_different_banks(tmp_path: Path) -> None:
    """Of shared memory, in blocks of a GPU: the worst access takes as long as its bytes need."""
    options = (*GPU_BLOCKS, "-fno-tree-sra")  # what moves at once is one access
    done = KernelProgram(tmp_path, "bank_conflicts", (), *options, races=True, device=())()
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    kernels = {(kernel, kind) for kernel, kind, _, _ in rows}
    assert len(kernels) == len(rows) == 15 and all(int(accesses) > 300 for _, _, accesses, _ in rows), rows
    assert [row for row in rows if row[-1] != "1"] == []


REGISTERS = 65536 // 256  # of a thread, where one block is on a multiprocessor
EPILOGUE = "\nusing namespace dyc;\nusing namespace dyc::cuda;\n"
needs_nvrtc = pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC")


def usage(file: str, names: list[str], architecture: int) -> list[nvrtc.Usage]:
    name = f"cuda/kernels/{file}.cu"
    text = (SRC / name).read_text(encoding="utf-8") + EPILOGUE
    cubin, lowered, _ = nvrtc.compile_cubin(text, name, f"sm_{architecture}", names)
    found = nvrtc.usage(cubin)
    return [found[lowered[one]] for one in names]


@needs_nvrtc
def test_a_persistent_kernel_has_the_most_shared_memory_of_its_tasks() -> None:
    """Not the sum, arguments of two steps, records of three; all products together in one kernel."""
    rows = len(importlib.import_module("dynet_compat._core").op_table())
    first = rows * 3  # cuda/abi/persistent.h: tasks of rows come first, three for each; then products
    name = f"persistent<{', '.join(str(first + task) for task in range(11))}>"
    (whole,) = usage("persistent", [name], 90)
    (alone,) = usage("large_products", ["large_product<true, false>"], 90)
    assert alone.shared < whole.shared <= alone.shared + 640 and whole.registers <= REGISTERS // 2, whole


# ---------------------------------------------------------------- the rule

H200 = {"processors": 132, "threads": 256, "library": True}


Facts = tuple[int, int, int, bool, int]  # m, n, inner, plain, gathered


@cache
def library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp())
    sources = [HERE / "matmul_variants.cc", SRC / "cuda" / "driver" / "matmul_variants.cc"]
    return ctypes.CDLL(str(fake_gpu.build(folder / "matmul_variants.so", sources)))


def rule(kind: str, facts: list[Facts], processors: int, threads: int, library_is_there: bool) -> list[str]:
    """The variant of each product."""
    words = [int(word) for one in facts for word in one]
    found = (ctypes.c_int * max(len(facts), 1))()
    library().choose(KINDS.index(kind), (ctypes.c_int64 * len(words))(*words), len(facts), processors,
                     threads, int(library_is_there), found)  # fmt: skip
    return [WAYS[found[i]] for i in range(len(facts))]


def way_of(
    kind: str, m: int, n: int, inner: int, plain: bool = True, gathered: int = 0, **device: Any
) -> str:
    return rule(kind, [(m, n, inner, plain, gathered)], *{**H200, **device}.values())[0]


@pytest.mark.parametrize(
    ("kind", "m", "n", "inner", "way"),
    [("wx", 512, 1, 512, "few"), ("wdy", 512, 16, 512, "few"), ("wx", 512, 17, 512, "middle"),
     ("dyx", 512, 4, 512, "middle"),     # the result is what is large
     ("wx", 2048, 64, 512, "middle"),    # 16 large tiles for 132 multiprocessors
     ("wx", 2048, 512, 128, "large"), ("wx", 2048, 512, 31, "middle"),
     ("dyx", 2048, 512, 256, "large"), ("dyx", 512, 512, 1024, "middle"),
     ("wx", 4096, 256, 1024, "library"), ("wx", 2048, 512, 511, "large"), ("wx", 2048, 512, 512, "library"),
     ("wx", 65536, 17, 4096, "middle"), ("wx", 1 << 20, 63, 1024, "large"),  # too narrow for the library
     ("wx", 0, 4, 5, "few"), ("wx", 5, 0, 5, "few"), ("wx", 64, 64, 0, "middle")],
)  # fmt: skip
def test_the_way_of_a_product(kind: str, m: int, n: int, inner: int, way: str) -> None:
    assert way_of(kind, m, n, inner) == way


def test_the_library_needs_operands_that_it_can_read() -> None:
    size = ("dyx", 2048, 512, 4096)
    assert way_of(*size) == "library"
    assert way_of(*size, library=False) == "large" == way_of(*size, plain=False)
    columns = (2048 + 512) * 4096  # 819 operations for each float of these
    assert way_of(*size, gathered=columns) == "library" == way_of(*size, gathered=columns * 819 // 768)
    assert way_of(*size, gathered=columns * 820 // 768) == "large"


def test_the_way_depends_on_the_device() -> None:
    size = ("wx", 1024, 256, 256)
    assert way_of(*size, processors=132) == "middle" and way_of(*size, processors=30) == "large"


def test_products_of_a_list_share_the_device() -> None:
    """Many of one size are as good as a large one; each finds its own way beside others."""
    one, small = (512, 64, 128, True, 0), (512, 3, 128, True, 0)
    assert rule("wx", [one], *H200.values()) == ["middle"]
    assert rule("wx", [one] * 40, *H200.values()) == ["large"] * 40
    assert rule("wx", [one, small, one], *H200.values()) == ["middle", "few", "middle"]
    assert rule("wx", [], *H200.values()) == []


# ---------------------------------------------------------------- in programs

PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
LIMIT = 1800 if "LD_PRELOAD" in os.environ else 600


def on_device(*command: str, **settings: str) -> str:
    environment = {**os.environ, "DYNET_COMPAT_DEVICE": "emulation", **settings}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True,
                          timeout=LIMIT, cwd=HERE.parents[1], check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("way", WAYS)
def test_every_case_of_products(way: str) -> None:
    """Values and gradients against the recordings of DyNet, with products made this way where that can be."""
    options = ("tests/ops/test_values.py", "-m", "not oracle", "-k", "mul or affine or contract")
    on_device(*PYTEST, *options, DYNET_COMPAT_PRODUCTS=way)


@pytest.mark.parametrize("way", WAYS[2:])
def test_random_graphs(way: str) -> None:
    """The other ways are those that small products go by themselves: test_executor.py."""
    options = ("tests/graph/test_random_graphs.py", "-m", "not oracle and not slow")
    on_device(*PYTEST, *options, DYNET_COMPAT_PRODUCTS=way)


PROGRAM = """
import numpy as np
import dynet_compat as dy
core = dy._core
pc = dy.ParameterCollection()
rng = np.random.default_rng(1)
sizes = ((40, 30), (30, 40), 40)
W, V, b = (pc.parameters_from_numpy(rng.normal(size=s).astype(np.float32) / 6) for s in sizes)
def run(way, count):
    core._device_options(matmul=way)
    core.reset_timing()
    dy.renew_cg()
    losses = []
    for i in range(count):
        h = dy.tanh(dy.affine_transform([b, W, dy.inputVector(np.sin(np.arange(30) + i))]))
        for _ in range(i % 3):  # other columns each time: operands are read through indices
            h = dy.tanh(dy.affine_transform([b, W, V * h]))
        losses.append(dy.squared_norm(h))
    loss = dy.esum(losses)
    value = loss.value()
    loss.backward()
    told = [np.array([value]), *(p.grad_as_array().copy() for p in (W, V, b))]
    for p in (W, V, b):
        p.scale_gradient(0)
    return told, {k[:-9]: v for k, v in core.timing().items() if k.endswith("_products")}
"""


@pytest.mark.parametrize("persistent", ["0", "1"])
def test_ways_give_the_same_numbers_and_are_counted(persistent: str) -> None:
    """Each repetition: many launches, or one graph."""
    text = (
        PROGRAM
        + """
for count in (12, 2):
    first, _ = run("middle", count)
    for way in ("few", "middle", "large", "library", ""):
        for again in range(4):
            numbers, counts = run(way, count)
            for a, b_ in zip(first, numbers):
                assert np.abs(a - b_).max() <= 1e-5 * np.abs(a).max(), (way, count, again)
        print(count, way or "-", *(name for name, n in counts.items() if n))
"""
    )
    told = on_device("-c", text, DYNET_COMPAT_PERSISTENT=persistent)
    kept = ["device_persistent"] if persistent == "1" else []
    assert [line.split() for line in told.splitlines()] == [
        ["12", "few", "few", "middle"],  # the last steps have few columns, gradients of weights more
        ["12", "middle", "middle"],
        ["12", "large", "large"],
        ["12", "library", "few", "library"],  # gradients that are added through an index are not for it
        ["12", "-", *kept, "few", "middle"],
        ["2", "few", "few", "middle"],
        ["2", "middle", "middle"],
        ["2", "large", "large"],
        ["2", "library", "library"],
        ["2", "-", "few", "middle"],
    ]


def test_the_library_is_not_asked_if_the_user_says_so() -> None:
    text = PROGRAM + "print(run('library', 12)[1]['library'], core._device_options()['gemm_library'] or '-')"
    assert on_device("-c", text, DYNET_COMPAT_CUBLAS="0") == "0 emulation\n"
    assert int(on_device("-c", text).split()[0]) > 5


@pytest.mark.parametrize("precision", ["", "tf32", "bf16"])
def test_a_result_is_the_same_in_a_persistent_kernel(precision: str) -> None:
    """Bit for bit: a persistent kernel runs the same tiles, and tensor cores are used beside it."""
    text = (
        PROGRAM
        + """
for way in ("few", "middle", "large"):
    run(way, 12)
    print([n.tobytes().hex() for n in run(way, 12)[0]])
"""
    )
    settings = {"DYNET_COMPAT_PRECISION": precision}
    found = on_device("-c", text, **settings)
    assert found == on_device("-c", text, DYNET_COMPAT_PERSISTENT="0", **settings)
    same = [a == b for a, b in zip(found.splitlines(), on_device("-c", text).splitlines())]
    assert same == [True, True, not precision], "large products, and no others, have the precision"


NO_ROOM = """
import numpy as np
import dynet_compat as dy
W = dy.ParameterCollection().parameters_from_numpy(np.full((300, 300), 0.003, dtype=np.float32))
dy._core._device_options(matmul="library")
dy.renew_cg()
losses = []
for i in range(90):
    h = dy.inputVector(np.sin(np.arange(300) + i))
    for _ in range(1 + i % 3):
        h = dy.tanh(W * h)
    losses.append(dy.squared_norm(h))
loss = dy.esum(losses)
value = loss.value()
loss.backward()
told = dy._core.timing()
print(value, np.abs(W.grad_as_array()).sum(), told["library_products"], told["large_products"])
"""


def test_no_room_for_copies_of_operands() -> None:
    """Columns of W's gradient lie here and there: the library would need 400 kB to have them side by side."""
    much, little = (
        on_device("-c", NO_ROOM, DYNET_COMPAT_EMULATION=f"memory={memory}").split()
        for memory in (9_000_000, 2_750_000)
    )
    assert much[2:] == ["5", "0"] and little[2:] == ["4", "1"], (much, little)
    assert [float(n) for n in little[:2]] == pytest.approx([float(n) for n in much[:2]], rel=1e-5)


JOINED = """
import numpy as np
import dynet_compat as dy
pc = dy.ParameterCollection()
rng = np.random.default_rng(1)
Ws = [pc.parameters_from_numpy(rng.normal(size=(24 + k, 20)).astype(np.float32) / 5) for k in range(4)]
V = pc.parameters_from_numpy(rng.normal(size=(5, 24)).astype(np.float32) / 5)
for columns in (3, 40):
    dy.renew_cg()
    dy._core.reset_timing()
    xs = [dy.inputVector(np.sin(np.arange(20) + i)) for i in range(columns)]
    made = [dy.concatenate([dy.tanh(W * x) for W in Ws] + [V * (Ws[0] * x)]) for x in xs]
    values = dy.concatenate(made).npvalue()
    timing = dy._core.timing()
    print(*(int(timing[f"{way}_products"]) for way in ("few", "middle")), values.tobytes().hex())
"""


def test_products_that_do_not_wait_for_each_other_are_one_launch() -> None:
    """Four weights times the same columns, then one that reads a result; the same bits as by themselves."""
    together = [line.split() for line in on_device("-c", JOINED, DYNET_COMPAT_PERSISTENT="0").splitlines()]
    apart = [line.split() for line in on_device("-c", JOINED).splitlines()]
    assert [counts[:2] for counts in together] == [["2", "0"], ["0", "2"]]
    assert [counts[:2] for counts in apart] == [["5", "0"], ["0", "5"]]
    assert [counts[2] for counts in together] == [counts[2] for counts in apart]
