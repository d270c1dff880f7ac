"""Machine code of kernels: what nvdisasm says of a cubin, read into instructions, loops and counts.

nvdisasm is in the wheel nvidia-cuda-nvdisasm; it needs neither a GPU nor a driver.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
LABEL = re.compile(r"(\.L_\w+):")
TARGET = re.compile(r"`\((\.L_\w+)\)")
JUMPS = ("BRA", "JMP")


@cache
def tool() -> Optional[Path]:
    """nvdisasm of a wheel or of the system, or None."""
    packages = Path(sysconfig.get_path("purelib"))
    wheels = sorted(packages.glob("nvidia/*/bin/nvdisasm"))
    system = shutil.which("nvdisasm")
    return wheels[-1] if wheels else Path(system) if system else None


class Instruction(NamedTuple):
    op: str  # with its modifiers: LDG.E.128
    operands: str

    def named(self, *ops: str) -> bool:
        return self.op.split(".")[0] in ops


def multiply_adds(part: list[Instruction]) -> int:
    return sum(one.named("FFMA", "FFMA2") + one.named("FFMA2") for one in part)


class Kernel(NamedTuple):
    """The code of one function."""

    code: list[Instruction]
    loops: list[tuple[int, int]]  # first and last instruction of each backward jump, innermost loops only

    def count(self, *ops: str) -> int:
        return sum(one.named(*ops) for one in self.code)

    def before(self, first: str, *ops: str) -> int:
        """Instructions before the first of a kind."""
        end = next((i for i, one in enumerate(self.code) if one.named(first)), len(self.code))
        return sum(one.named(*ops) for one in self.code[:end])

    def loop(self) -> list[Instruction]:
        """Of the innermost loops, the one with most multiply-adds: of tensor cores, where there are any."""
        parts = [self.code[first : last + 1] for first, last in self.loops]
        order = lambda part: [sum(one.named("HMMA") for one in part), multiply_adds(part)]  # noqa: E731
        return max(parts, key=order, default=[])

    def share(self) -> float:
        """Of multiply-adds among the instructions of that loop."""
        part = self.loop()
        pairs = sum(one.named("FFMA2") for one in part)  # each as two instructions
        return multiply_adds(part) / max(len(part) + pairs, 1)

    def wide(self, op: str) -> int:
        """Instructions of this kind that move 128 bits."""
        return sum(one.named(op) and ".128" in one.op for one in self.code)


def loops_of(code: list[Instruction], labels: dict[str, int]) -> list[tuple[int, int]]:
    """Backward jumps that contain no other one. A jump to itself is the end of the code, not a loop."""
    found = []
    for at, one in enumerate(code):
        target = TARGET.search(one.operands) if one.named(*JUMPS) else None
        if target and labels.get(target[1], at) < at:
            found.append((labels[target[1]], at))
    inside = lambda a, b: a != b and b[0] <= a[0] and a[1] <= b[1]  # noqa: E731
    return [one for one in found if not any(inside(other, one) for other in found)]


def parse(text: str) -> dict[str, Kernel]:
    """Kernels of a disassembly, by the names they have in the cubin."""
    found: dict[str, Kernel] = {}
    for part in re.split(r"^\s*\.section\s+", text, flags=re.M)[1:]:
        name = part.split(",", 1)[0].strip().strip('"')
        if not name.startswith(".text."):
            continue
        code: list[Instruction] = []
        labels: dict[str, int] = {}
        for line in part.splitlines():
            if instruction := LINE.match(line):
                code.append(Instruction(instruction[2], instruction[3].strip()))
            elif label := LABEL.match(line.strip()):
                labels[label[1]] = len(code)
        while code and code[-1].named("NOP"):
            code.pop()
        found[name[len(".text.") :]] = Kernel(code, loops_of(code, labels))
    return found


def disassemble(cubin: bytes) -> dict[str, Kernel]:
    program = tool()
    assert program is not None, "nvdisasm is not installed"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.cubin"
        file.write_bytes(cubin)
        done = subprocess.run([str(program), "-c", str(file)], capture_output=True, text=True, check=True)
    return parse(done.stdout)
