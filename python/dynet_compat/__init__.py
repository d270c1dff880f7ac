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
globals().update({k: v for k, v in vars(_core).items() if not k.startswith("_") and k not in _INTERNAL})
globals().update({k: v for k, v in vars(_core).items() if k.endswith(("Expression", "_RNNBuilder"))})
if TYPE_CHECKING:
    from ._core import *  # noqa: F403

from .api import copies, legacy  # noqa: E402, F401
from .api.builders import BiRNNBuilder as BiRNNBuilder  # noqa: E402
from .api.builders import StackedRNNState as StackedRNNState  # noqa: E402
from .api.convolution import *  # noqa: E402, F403
from .api.functions import *  # noqa: E402, F403
from .api.graph import *  # noqa: E402, F403
from .api.hierarchical_softmax import *  # noqa: E402, F403
from .api.legacy import *  # noqa: E402, F403
from .api.softmax import *  # noqa: E402, F403
from .api.tensor import Tensor as Tensor  # noqa: E402
from .api.tree_lstm import *  # noqa: E402, F403
from .api.value_types import *  # noqa: E402, F403
from .fibers import *  # noqa: E402, F403
from .files.objects import load as load  # noqa: E402
from .files.objects import load_generator as load_generator  # noqa: E402
from .files.objects import save as save  # noqa: E402
from .files.state_dicts import load_safetensors as load_safetensors  # noqa: E402
from .files.state_dicts import save_safetensors as save_safetensors  # noqa: E402
from .inspection.profiler import Profile as Profile  # noqa: E402
from .inspection.profiler import profile as profile  # noqa: E402
from .startup import config, devices, shims  # noqa: E402, F401
from .startup.config import ERRMSG as ERRMSG  # noqa: E402
from .startup.config import DynetParams as DynetParams  # noqa: E402
from .startup.config import init as init  # noqa: E402
from .startup.config import init_from_params as init_from_params  # noqa: E402
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
    _params = DynetParams()
    _params.from_config(_CONF)

if not config.script_follows():
    config.prepare_hints()

# Pickles name DyNet's classes by the module they came from there.
sys.modules.setdefault("_dynet", sys.modules[__name__])

# `from dynet_compat import *` gives what `from dynet import *` gives, with the names of older DyNets: no
# module of this package, and nothing else that a script may have its own of.
_OURS = set(
    "annotations TYPE_CHECKING api compare config copies cuda devices fibers files hints info inspection "
    "legacy migrate shims startup profile Profile".split()
)
_NOT_DYNETS = set(
    "batch_map instance_rng install_as_dynet load_safetensors save_safetensors EGTrainer AdamWTrainer "
    "gelu relu sigmoid "
    "HierarchicalSoftmaxBuilder TreeLSTMBuilder NaryTreeLSTMBuilder UnidirectionalTreeLSTMBuilder "
    "BidirectionalTreeLSTMBuilder StaleExpressionError".split()
)
__all__ = [  # noqa: PLE0605
    name for name in globals() if not name.startswith("_") and name not in _OURS | _NOT_DYNETS
]

# Functions and classes name the module they come from in DyNet, so that it reads pickles that name them.
for _name in __all__:
    _module = str(getattr(globals()[_name], "__module__", ""))
    if _module.startswith("dynet_compat."):
        globals()[_name].__module__ = "_dynet"
