"""What the analysis knows of DyNet's names, and of Python's own."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DYNET_MODULES = _names("dynet _dynet _gdynet dynet_compat")
# Functions of the module that record no op.
PLAIN = _names(
    "init init_from_params reset_random_seed save load load_generator cg_version renew_cg "
    "print_text_graphviz print_graphviz dump_cg cg_checkpoint cg_revert cg available_devices "
    "get_device_info forward npvalues values install_as_dynet load_safetensors save_safetensors batch_map "
    "instance_rng matInput inputMatrix cupy_op set_device_allocator"
)
PARAMETER_FUNCTIONS = _names("parameter const_parameter")
RANDOM_OPS = _names(
    "dropout dropout_batch dropout_dim block_dropout noise random_normal random_bernoulli random_uniform "
    "random_gumbel vanilla_lstm_gates_dropout vanilla_lstm_gates_dropout_concat"
)
# Ops that take numbers of the script as their values.
INPUT_OPS = _names(
    "scalarInput vecInput inputVector inputTensor sparse_inputTensor one_hot inputTensorTranspose"
)
CONSTANT_OPS = _names("zeros zeroes ones constant")
OPS = _names(
    "relu gelu sigmoid "
    "affine_transform exp log sqrt square cube abs sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh logistic log_sigmoid rectify elu selu silu softsign erf lgamma round ceil floor nobackprop "
    "flip_gradient scale_gradient cmult cdiv pow colwise_add bmax bmin pairwise_rank_loss dot_product "
    "trace_of_product squared_distance l1_distance huber_distance binary_log_loss esum average emax "
    "concatenate concatenate_to_batch concatenate_cols pick pick_range pickrange select_rows select_cols "
    "pick_batch pick_batch_elem pick_batch_elems strided_select fold_rows sum_elems sum_dim sum_batches "
    "squared_norm l2_norm cumsum logsumexp logsumexp_dim max_dim min_dim mean_elems mean_dim mean_batches "
    "moment_elems moment_dim moment_batches std_elems std_dim std_batches layer_norm weight_norm softmax "
    "log_softmax sparsemax sparsemax_loss constrained_softmax pickneglogsoftmax pickneglogsoftmax_batch "
    "hinge hinge_batch hinge_dim poisson_loss inverse logdet circ_conv circ_corr contract3d_1d "
    "contract3d_1d_bias contract3d_1d_1d contract3d_1d_1d_bias filter1d_narrow conv2d conv2d_bias "
    "maxpooling2d conv1d_narrow conv1d_wide kmax_pooling kmh_ngram vanilla_lstm_gates "
    "vanilla_lstm_gates_concat vanilla_lstm_c vanilla_lstm_h argmax transpose reshape to_device lookup "
    "lookup_batch cwise_multiply average_cols sum_cols sum_rows dot_product"
)
EXPRESSION_FUNCTIONS = OPS | RANDOM_OPS | INPUT_OPS | CONSTANT_OPS
BUILDERS = _names(
    "SimpleRNNBuilder GRUBuilder LSTMBuilder VanillaLSTMBuilder CoupledLSTMBuilder SparseLSTMBuilder "
    "CompactVanillaLSTMBuilder FastLSTMBuilder"
)
BIRNN = "BiRNNBuilder"
TREE_BUILDERS = _names("UnidirectionalTreeLSTMBuilder BidirectionalTreeLSTMBuilder NaryTreeLSTMBuilder")
SOFTMAX_BUILDERS = _names("StandardSoftmaxBuilder ClassFactoredSoftmaxBuilder HierarchicalSoftmaxBuilder")
COLLECTIONS = _names("ParameterCollection Model")

# Methods of an Expression that compute and return numbers.
READS = _names("value npvalue vec_value scalar_value tensor_value")
MODULE_READS = _names("values npvalues")
STATE_READS = _names("output h s prev b")
STATE_OPS = _names("add_input add_inputs transduce set_h set_s")
BUILDER_OPS = _names("initial_state initial_state_from_raw_vectors add_inputs transduce")
SOFTMAX_OPS = _names("neg_log_softmax neg_log_softmax_batch full_log_distribution full_logits")
TRAINER_UPDATES = _names("update update_subset")

_CLASSES = BUILDERS | TREE_BUILDERS | SOFTMAX_BUILDERS | COLLECTIONS | {BIRNN}

# Python's functions without effects of their own (a callable argument apart).
PURE_BUILTINS = _names(
    "abs all any bool bytes chr complex dict divmod enumerate filter float format frozenset hash hex int "
    "isinstance issubclass len list map max min oct ord pow range repr reversed round set slice sorted "
    "str sum tuple type zip ValueError TypeError KeyError IndexError RuntimeError AssertionError "
    "Exception NotImplementedError object"
)
DYNAMIC_BUILTINS = _names("eval exec compile __import__ globals locals vars setattr delattr getattr")
PURE_MODULES = _names("math cmath itertools functools collections copy string numpy")
IMPURE_PARTS = _names(
    "random save savez savetxt seterr tofile load memmap partial put copyto fill_diagonal place"
)
# Methods that change the container they are called on, and those that do not.
MUTATORS = _names(
    "append extend insert remove clear pop popitem popleft appendleft extendleft sort reverse add update "
    "discard setdefault rotate difference_update intersection_update symmetric_difference_update subtract "
    "fill put resize itemset setflags byteswap"
)
PURE_METHODS = _names(
    "get items keys values index count copy most_common split rsplit splitlines strip lstrip rstrip join "
    "lower upper startswith endswith replace format title capitalize isdigit isalpha isalnum isspace "
    "isupper islower find rfind zfill ljust rjust encode decode union intersection difference issubset "
    "issuperset isdisjoint tolist item argmax argmin argsort max min mean sum std var astype flatten "
    "ravel reshape transpose dot squeeze any all nonzero dim cumsum round clip swapcase casefold total "
    "elements"
)
# Effects that are seen outside, or that depend on the order of calls.
RANDOM_MODULES = _names("random secrets uuid")
OUTPUT_BUILTINS = _names("print input open breakpoint")


def is_name(name: str) -> bool:
    """Whether the module dynet has this function or class."""
    known = EXPRESSION_FUNCTIONS | _CLASSES | PARAMETER_FUNCTIONS | PLAIN
    return name in known or name.endswith(("Trainer", "Initializer"))
