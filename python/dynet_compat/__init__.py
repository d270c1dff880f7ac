"""dynet_compat: the Python API of DyNet 2.1 on an engine that batches while it records.

    import dynet_compat as dy

`python -m dynet_compat run script.py` runs a script that says `import dynet` as it is.
"""

from __future__ import annotations, print_function  # noqa: UP010 - a name that scripts get from dynet

import os  # `from dynet import *` gives os, pickle, sys and np, too
import pickle
import sys

import numpy as np

from . import _core
from ._core import *

globals().update({k: v for k, v in vars(_core).items() if k.endswith(("Expression", "_RNNBuilder"))})

from . import distributed as distributed
from .api import copies, legacy
from .api.batch_map import *
from .api.builders import *
from .api.class_factored_softmax import *
from .api.convolution import *
from .api.device_arrays import *
from .api.functions import *
from .api.gradients import *
from .api.graph import *
from .api.hierarchical_softmax import *
from .api.legacy import *
from .api.softmax import *
from .api.tensor import *
from .api.tree_lstm import *
from .api.user_ops import *
from .api.value_types import *
from .files import methods
from .files.objects import *
from .files.state_dicts import *
from .inspection.profiler import *
from .startup import config, devices, shims
from .startup.config import *
from .startup.shims import dynet_config as dynet_config

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

# `from dynet_compat import *` gives what `from dynet import *` gives, with the names of older DyNets. It is
# written out, as type checkers read it. What DyNet does not have, and a script may have its own of, has to be
# asked for by name.
# fmt: off
__all__ = [
    "abs", "acos", "acosh", "AdadeltaTrainer", "AdagradTrainer", "AdamTrainer", "affine_transform",
    "AmsgradTrainer", "argmax", "asin", "asinh", "atan", "atanh", "available_devices", "average",
    "average_cols", "binary_log_loss", "BiRNNBuilder", "block_dropout", "bmax", "bmin", "cdiv", "ceil",
    "cg", "cg_checkpoint", "cg_revert", "cg_version", "circ_conv", "circ_corr",
    "ClassFactoredSoftmaxBuilder", "cmult", "colwise_add", "CompactVanillaLSTMBuilder",
    "ComputationGraph", "concatenate", "concatenate_cols", "concatenate_to_batch", "const_parameter",
    "constant", "ConstInitializer", "constrained_softmax", "contract3d_1d", "contract3d_1d_1d",
    "contract3d_1d_1d_bias", "contract3d_1d_bias", "conv1d_narrow", "conv1d_wide", "conv2d",
    "conv2d_bias", "cos", "cosh", "CoupledLSTMBuilder", "cube", "cumsum", "cwise_multiply",
    "CyclicalSGDTrainer", "DeviceInfo", "dot_product", "dropout", "dropout_batch", "dropout_dim",
    "dump_cg", "dynet_config", "DynetParams", "elu", "emax", "erf", "ERRMSG", "esum", "exp",
    "Expression", "FastLSTMBuilder", "filter1d_narrow", "flip_gradient", "FloatValue",
    "FloatVectorValue", "floor", "fold_rows", "forward", "FromFileInitializer", "get_device_info",
    "GlorotInitializer", "GRUBuilder", "HAVE_CUDA", "hinge", "hinge_batch", "hinge_dim",
    "huber_distance", "IdentityInitializer", "init", "init_from_params", "inputMatrix", "inputTensor",
    "inputTensorTranspose", "inputVector", "inverse", "kmax_pooling", "kmh_ngram", "l1_distance",
    "l2_norm", "layer_norm", "lgamma", "load", "load_generator", "log", "log_sigmoid", "log_softmax",
    "logdet", "logistic", "logsumexp", "logsumexp_dim", "lookup", "lookup_batch", "LookupParameters",
    "LSTMBuilder", "matInput", "max_dim", "maxpooling2d", "mean_batches", "mean_dim", "mean_elems",
    "min_dim", "Model", "moment_batches", "moment_dim", "moment_elems", "MomentumSGDTrainer",
    "nobackprop", "noise", "NormalInitializer", "np", "npvalues", "NumpyInitializer", "one_hot", "ones",
    "os", "pairwise_rank_loss", "parameter", "ParameterCollection", "Parameters", "pick", "pick_batch",
    "pick_batch_elem", "pick_batch_elems", "pick_range", "pickle", "pickneglogsoftmax",
    "pickneglogsoftmax_batch", "pickrange", "poisson_loss", "pow", "print_function", "print_graphviz",
    "print_text_graphviz", "PyInitializer", "random_bernoulli", "random_gumbel", "random_normal",
    "random_uniform", "rectify", "renew_cg", "reset_random_seed", "reshape", "RMSPropTrainer",
    "RNNState", "round", "save", "Saveable", "SaxeInitializer", "scalarInput", "scale_gradient",
    "select_cols", "select_rows", "selu", "silu", "SimpleRNNBuilder", "SimpleSGDTrainer", "sin", "sinh",
    "softmax", "SoftmaxBuilder", "softsign", "sparse_inputTensor", "SparseLSTMBuilder", "sparsemax",
    "sparsemax_loss", "sqrt", "square", "squared_distance", "squared_norm", "StackedRNNState",
    "StandardSoftmaxBuilder", "std_batches", "std_dim", "std_elems", "strided_select", "sum_batches",
    "sum_cols", "sum_dim", "sum_elems", "sum_rows", "sys", "tan", "tanh", "Tensor", "to_device",
    "trace_of_product", "Trainer", "transpose", "UniformInitializer", "UnsignedValue",
    "UnsignedVectorValue", "values", "vanilla_lstm_c", "vanilla_lstm_gates", "vanilla_lstm_gates_concat",
    "vanilla_lstm_gates_dropout", "vanilla_lstm_gates_dropout_concat", "vanilla_lstm_h",
    "VanillaLSTMBuilder", "vecInput", "weight_norm", "zeroes", "zeros",
]
# fmt: on
_NOT_DYNETS = {
    *(name for name in _core.__all__ if name not in __all__),
    *"cupy_op set_device_allocator".split(),
    *"batch_map instance_rng install_as_dynet load_safetensors save_safetensors profile Profile relu sigmoid "
    "GradientEntry HierarchicalSoftmaxBuilder TreeLSTMBuilder NaryTreeLSTMBuilder "
    "UnidirectionalTreeLSTMBuilder BidirectionalTreeLSTMBuilder".split(),
}

# Functions and classes name the module they come from in DyNet, so that it reads pickles that name them.
for _name in [*__all__, *_NOT_DYNETS]:  # relu and rectify are one function
    _module = str(getattr(globals()[_name], "__module__", ""))
    if _module.startswith("dynet_compat."):
        globals()[_name].__module__ = "dynet_compat" if _name in _NOT_DYNETS else "_dynet"
