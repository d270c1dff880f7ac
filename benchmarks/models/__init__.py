"""ACRoBat's seven models over a small vocabulary of operations (`ops.py`), for PyTorch and to count work.

../models_in_dynet/ has them as scripts for DyNet.

A model is made of parameters and of a function for one instance; nothing in it batches. Sizes are those of
the paper (Fegade et al., ACRoBat, MLSys 2024). Decisions of the models whose control flow depends on
tensors are drawn with a fixed seed, as there, but the value that would decide is computed and read.
"""

from __future__ import annotations

from .base import Model
from .berxit import Berxit
from .birnn import BiRNN
from .drnn import DRNN
from .mv_rnn import MVRNN
from .nested_rnn import NestedRNN
from .stack_rnn import StackRNN
from .tree_lstm import TreeLSTM

MODELS: tuple[type[Model], ...] = (TreeLSTM, MVRNN, BiRNN, NestedRNN, DRNN, Berxit, StackRNN)

__all__ = ["MODELS", "Model"]
