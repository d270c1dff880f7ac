"""Contract on machine code: what NVRTC makes of the kernels that programs spend their time in.

Read from the code itself by nvdisasm, so it holds on the GPU, too. A row of CONTRACT is a kernel; a figure
that gets better may be made stricter here.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import NamedTuple

import pytest
from support import nvrtc, sass
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="our kernels"),
    pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC"),
    pytest.mark.skipif(sass.tool() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm"),
]

ARCHITECTURES = (80, 90, 100, 120)
THREADS, REGISTERS = 256, 65536  # of a block; of a multiprocessor
SHARED = {80: 164, 90: 228, 100: 228, 120: 100}  # KB of a multiprocessor
WARPS = {80: 64, 90: 64, 100: 64, 120: 48}
EPILOGUE = "\nusing namespace dyc;\nusing namespace dyc::cuda;\n"


class Rule(NamedTuple):
    """What one kernel must keep to, on each architecture."""

    file: str
    kernel: str  # {tanh}: the number of that op
    blocks: int  # that fit on a multiprocessor, at least
    size: int  # instructions, at most
    share: float = 0.0  # of multiply-adds in the innermost loop, at least
    loads: int = 0  # of 128 bits, from device memory
    shared_loads: int = 0  # of 128 bits in the innermost loop
    generic: int = 0  # loads and stores that ask what memory it is, at most
    frame: int = 0  # bytes of local memory of a thread, at most
    tensor: int = 0  # multiply-adds of tensor cores in the innermost loop, at least
    copies: int = 0  # of 128 bits, from device to shared memory, at least
    begins: int = 1000  # loads from device memory to registers before the first multiply-add, at most


# Products but dy x' have the text of ops that follow them, outside of their loops: 500 to 900 instructions.
SIZES = [("true, false", 0.7), ("false, false", 1), ("true, true", 0)]
CONTRACT = [
    *(Rule("matmul", f"product<{of}>", 2, 1480 + int(1000 * more), 0.8, 8, 16, frame=8, begins=60)
      for of, more in SIZES),
    # Few tiles are as fast as their first element comes: what describes them is copied at once. On sm_100 and
    # later, sums of pairs need moves.
    *(Rule("matmul", f"product<{of}, kSmallTile>", 2, 1040 + int(260 * more), 0.4, copies=2, begins=12)
      for of, more in SIZES),
    *(Rule("large_products", f"large_product<{of}>", 2, 2650 + int(850 * more), 0.8, 6, 12)
      for of, more in SIZES),
    # 32 x 32 x 16 elements of a warp by m16n8k8 or m16n8k16. A few numbers that a tile needs once may wait in
    # memory, outside of the loop.
    *(Rule("large_products", f"large_product<{of}, TensorSums<{number}>>", 2, 2750 + int(800 * more), loads=6,
           shared_loads=8, frame=24, tensor=count) for of, more in SIZES
      for number, count in (("Tf32", 16), ("Bf16", 8))),
    # Its work is to read weights. Columns that are not aligned to 16 bytes go a way of their own, which asks.
    *(Rule("few_columns", f"few_columns<{of}>", 2, 3850, 0.59, 31, generic=30, begins=13)
      for of in ("true", "false")),
    Rule("elementwise", "unary_forward<OpById<{tanh}>>", 6, 2300),
    Rule("elementwise", "unary_backward<OpById<{tanh}>>", 5, 1950),
    Rule("elementwise", "binary_forward<OpById<{cmult}>>", 4, 800),
    Rule("elementwise", "binary_backward<OpById<{cmult}>, 0>", 3, 2300),
    Rule("memory", "add_few", 5, 1150),
    Rule("memory", "add_many", 6, 450),
    Rule("memory", "gather", 6, 330),
    Rule("lookup", "lookup_forward", 6, 200),
    # Arguments of a node are an array, which the op reads by number.
    Rule("per_node", "node_forward<OpById<{lstm_cell}>>", 3, 1500, generic=30, frame=64),
    # Two kinds of memory by one address: all of its steps share the text that reads arguments.
    Rule("persistent", "chain<{links}>", 2, 14000, generic=1400),
    Rule("persistent", "persistent<{walk}>", 2, 10300, 0.59, 40, generic=230, frame=192),
]  # fmt: skip


@cache
def numbers() -> dict[str, str]:
    """Of ops, and of the kernel bodies of LSTM cells and of gates: cuda/abi/persistent.h."""
    rows = importlib.import_module("dynet_compat._core").op_table()
    found = {row["name"]: i for i, row in enumerate(rows)}
    bodies = [*(3 * found[name] for name in ("tanh", "cmult", "lstm_cell")),
              *(3 * len(rows) + other for other in (0, 6, 15))]  # fmt: skip
    links = [3 * found[name] + step for name in ("tanh", "logistic", "add", "cmult")
             for step in range(3 if name in ("add", "cmult") else 2)]  # fmt: skip
    return {**{name: str(i) for name, i in found.items()}, "walk": ", ".join(map(str, bodies)),
            "links": ", ".join(map(str, sorted(links)))}  # fmt: skip


@cache
def compiled(file: str, architecture: int, version: str = "") -> dict[str, tuple[sass.Kernel, nvrtc.Usage]]:
    """The contract's kernels of a file, by their names there."""
    kernels = [rule.kernel.format(**numbers()) for rule in CONTRACT if rule.file == file]
    name = f"cuda/kernels/{file}.cu"
    source = nvrtc.texts()[name] + EPILOGUE
    cubin, lowered, _ = nvrtc.compile_cubin(source, name, f"sm_{architecture}", kernels, version)
    usage, code = nvrtc.usage(cubin), sass.disassemble(cubin)
    return {kernel: (code[lowered[kernel]], usage[lowered[kernel]]) for kernel in kernels}


def blocks_of(used: nvrtc.Usage, architecture: int) -> int:
    """Blocks of 256 threads that fit on a multiprocessor."""
    by_registers = REGISTERS // (THREADS * -(-used.registers // 8) * 8)
    by_shared = SHARED[architecture] * 1024 // max(used.shared + (1024 if architecture == 80 else 0), 1)
    return min(by_registers, by_shared, WARPS[architecture] * 32 // THREADS)


def broken(rule: Rule, code: sass.Kernel, used: nvrtc.Usage, architecture: int) -> list[str]:
    """What of the rule does not hold."""
    loop = code.loop()
    figures = {
        "spills and frame": (used.local, "<=", rule.frame),
        "spilled loads": (code.count("LDL") if not rule.frame else 0, "<=", 0),
        "blocks": (blocks_of(used, architecture), ">=", rule.blocks),
        "instructions": (len(code.code), "<=", rule.size),
        "multiply-adds of the loop": (round(code.share(), 3), ">=", rule.share),
        "128-bit loads": (code.wide("LDG") + code.wide("LD"), ">=", rule.loads),
        "128-bit shared loads": (sum(one.named("LDS") and ".128" in one.op for one in loop), ">=",
                                 rule.shared_loads),
        "generic loads": (code.count("LD", "ST"), "<=", rule.generic),
        "tensor cores in the loop": (sum(one.named("HMMA") for one in loop), ">=", rule.tensor),
        "128-bit copies to shared memory": (code.wide("LDGSTS"), ">=", rule.copies),
        "loads before the first multiply-add": (code.before("FFMA", "LDG", "LD"), "<=", rule.begins),
        "spilled in that loop": (rule.tensor and sum(one.named("LDL", "STL") for one in loop), "<=", 0),
        "64-bit divisions in the loop": (sum(one.named("I2F") and "64" in one.op for one in loop), "<=", 0),
    }  # fmt: skip
    return [f"{what} {value}, wanted {sign} {bound}" for what, (value, sign, bound) in figures.items()
            if not (value <= bound if sign == "<=" else value >= bound)]  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.kernel)
def test_contract(rule: Rule, architecture: int) -> None:
    code, used = compiled(rule.file, architecture)[rule.kernel.format(**numbers())]
    assert not broken(rule, code, used, architecture)


@pytest.mark.parametrize("version", nvrtc.OTHERS)
@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.kernel)
def test_contract_of_other_compilers(rule: Rule, version: str) -> None:
    if nvrtc.found(version) is None:
        pytest.skip(f"NVRTC {version} is not in {sys.prefix}/nvrtc")
    assert nvrtc.subject(version).version == tuple(map(int, version.split(".")))
    code, used = compiled(rule.file, 90, version)[rule.kernel.format(**numbers())]
    assert not broken(rule, code, used, 90)


# ---------------------------------------------------------------- the reading of machine code

LISTING = """
	.section	.text.one,"ax",@progbits
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_2:
        /*0020*/                   FFMA R0, R4, R5, R0 ;
        /*0030*/                   FFMA R0, R6, R7, R0 ;
        /*0040*/              @!P0 BRA `(.L_x_2) ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   EXIT ;
.L_x_3:
        /*0070*/                   BRA `(.L_x_3);
        /*0080*/                   NOP;
	.section	.nv.info,"",@"SHT_CUDA_INFO"
"""


def test_loops_and_counts_are_read() -> None:
    (kernel,) = sass.parse(LISTING).values()
    assert len(kernel.code) == 8 and kernel.loops == [(2, 4)]
    assert kernel.count("FFMA") == 2 and kernel.wide("LDG") == 1 and kernel.share() == pytest.approx(2 / 3)


SLOW = """
namespace dyc::cuda {
__global__ void slow(const LaunchArgs* args) {
  float local[64];
  for (int i = 0; i < 64; ++i) local[i] = args->y[i];
  for (int64_t i = 0; i < args->count; ++i) args->dy[i] = local[args->ids[i] % 64] + args->y[i / args->n];
}
}
"""


def test_what_breaks_the_contract_is_found() -> None:
    name = "cuda/kernels/memory.cu"
    cubin, lowered, _ = nvrtc.compile_cubin(nvrtc.texts()[name] + SLOW + EPILOGUE, name, "sm_90", ["slow"])
    code, used = sass.disassemble(cubin)[lowered["slow"]], nvrtc.usage(cubin)[lowered["slow"]]
    found = "; ".join(broken(Rule("memory", "slow", 9, 20, 0.6, 1, 1, tensor=1), code, used, 90))
    for what in (
        "frame",
        "blocks",
        "instructions",
        "multiply-adds",
        "128-bit loads",
        "128-bit shared",
        "tensor cores",
    ):
        assert what in found, found
