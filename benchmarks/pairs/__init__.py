"""Six programs, each written for this package and for PyTorch, that compute the same from the same start.

Three are models of ../models; three are written here as users write them (`ours.py`). PyTorch's versions
(`with_torch.py`, `torch_models.py`, `torch_programs.py`) have two forms: one that computes each instance of a
minibatch by itself, and one that is batched by hand. A side has the functions of a script of examples/:
`load`, `build` and `train_batch`.
"""

from __future__ import annotations

from typing import Any

from .data import PROGRAMS

SIDES = ("ours", "loop", "batched")


def load_side(program: str, side: str, hidden: int) -> Any:
    """One of SIDES of a program; only the library that it uses is imported."""
    if side == "ours":
        from .ours import OurSide

        return OurSide(program, hidden)
    from .with_torch import TorchSide

    return TorchSide(program, hidden, batched=side == "batched")


__all__ = ["PROGRAMS", "SIDES", "load_side"]
