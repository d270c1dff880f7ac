"""dynet_compat: the Python API of DyNet 2.1 on an engine that batches while it records.

    import dynet_compat as dy

`python -m dynet_compat run script.py` runs a script that says `import dynet` as it is.
"""

from __future__ import annotations, print_function  # noqa: UP010 - a name that scripts get from dynet

import os  # noqa: F401 - `from dynet import *` gives os, pickle, sys and np, too
import pickle  # noqa: F401
import sys  # noqa: F401
from typing import TYPE_CHECKING

import numpy as np  # noqa: F401

from . import _core

# Functions and types of the engine that are names of the API; the rest of it is for this package.
_INTERNAL = frozenset(
    "record doc op_table plan_table cg_size launch_counts timing reset_timing set_scheduler set_batching "
    "set_threads threads isa set_default_weight_decay choose share_parameters".split()
)
_ENGINE = [name for name in vars(_core) if not name.startswith("_") and name not in _INTERNAL]
globals().update({name: getattr(_core, name) for name in _ENGINE})
globals().update({k: v for k, v in vars(_core).items() if k.endswith(("Expression", "_RNNBuilder"))})
if TYPE_CHECKING:
    from ._core import *  # noqa: F403

from . import distributed as distributed  # noqa: E402
from .api import copies, legacy  # noqa: E402, F401
from .api.batch_map import *  # noqa: E402, F403
from .api.builders import *  # noqa: E402, F403
from .api.class_factored_softmax import *  # noqa: E402, F403
from .api.convolution import *  # noqa: E402, F403
from .api.functions import *  # noqa: E402, F403
from .api.graph import *  # noqa: E402, F403
from .api.hierarchical_softmax import *  # noqa: E402, F403
from .api.legacy import *  # noqa: E402, F403
from .api.softmax import *  # noqa: E402, F403
from .api.tensor import *  # noqa: E402, F403
from .api.tree_lstm import *  # noqa: E402, F403
from .api.value_types import *  # noqa: E402, F403
from .files import methods  # noqa: E402, F401
from .files.objects import *  # noqa: E402, F403
from .files.state_dicts import *  # noqa: E402, F403
from .inspection.profiler import *  # noqa: E402, F403
from .startup import config, devices, shims  # noqa: E402, F401
from .startup.config import *  # noqa: E402, F403
from .startup.shims import dynet_config as dynet_config  # noqa: E402

install_as_dynet = shims.install
zeroes = _core.zeros
relu = _core.rectify  # the names that other libraries give them
sigmoid = _core.logistic

__version__ = "2.1"  # of the API: DyNet's
__compat_version__ = "0.1.0"  # of this package
__gitversion__ = "2.1.2"

legacy.extend_classes()
if not config.script_follows() and config.viz_is_asked_for():
    config.initialise_drawing(globals())
else:
    config.initialise_at_import()
HAVE_CUDA = devices.is_gpu()  # this process computes on a GPU
_CONF = config.get()
if _CONF is not None:
    _params = config.DynetParams()
    _params.from_config(_CONF)

if not config.script_follows():
    config.prepare_hints()

# Pickles name DyNet's classes by the module they came from there.
sys.modules.setdefault("_dynet", sys.modules[__name__])

# `from dynet_compat import *` gives what `from dynet import *` gives, with the names of older DyNets. What
# DyNet does not have, and a script may have its own of, has to be asked for by name.
_NOT_DYNETS = frozenset(
    "batch_map instance_rng install_as_dynet load_safetensors save_safetensors profile Profile relu "
    "sigmoid gelu EGTrainer AdamWTrainer HierarchicalSoftmaxBuilder TreeLSTMBuilder NaryTreeLSTMBuilder "
    "UnidirectionalTreeLSTMBuilder BidirectionalTreeLSTMBuilder StaleExpressionError".split()
)
_WRITTEN_IN_PYTHON = (
    "print_function os pickle sys np HAVE_CUDA ERRMSG dynet_config DynetParams init init_from_params "
    "zeroes BiRNNBuilder StackedRNNState SoftmaxBuilder StandardSoftmaxBuilder "
    "ClassFactoredSoftmaxBuilder Tensor FloatValue FloatVectorValue UnsignedValue UnsignedVectorValue "
    "ComputationGraph DeviceInfo Saveable available_devices get_device_info cg forward values npvalues "
    "dump_cg print_graphviz print_text_graphviz inputMatrix inputTensor matInput one_hot "
    "sparse_inputTensor strided_select vanilla_lstm_gates vanilla_lstm_gates_concat "
    "vanilla_lstm_gates_dropout vanilla_lstm_gates_dropout_concat conv2d conv2d_bias maxpooling2d load "
    "load_generator save average_cols conv1d_narrow conv1d_wide cwise_multiply sum_cols sum_rows"
).split()
__all__ = [  # noqa: PLE0605
    *(name for name in _ENGINE if name not in _NOT_DYNETS),
    *_WRITTEN_IN_PYTHON,
]

# Functions and classes name the module they come from in DyNet, so that it reads pickles that name them.
for _name in [*__all__, *_NOT_DYNETS]:  # relu and rectify are one function
    _module = str(getattr(globals()[_name], "__module__", ""))
    if _module.startswith("dynet_compat."):
        globals()[_name].__module__ = "dynet_compat" if _name in _NOT_DYNETS else "_dynet"
