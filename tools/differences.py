"""Where dynet_compat does not do what DyNet 2.1.2 does: the source of migration_guide/differences.md.

Each entry names what it is about, DyNet's behaviour, ours, and where it can, an expression and what it gives
here. `tools/make_differences.py` writes the page; a test evaluates the expressions.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """One entry: names, DyNet's behaviour, ours, an expression over `dy` and `np`, its repr or its error."""

    names: str
    dynet: str
    here: str
    example: str = ""
    gives: str = ""


GRAPH = [
    Difference(
        "batching",
        "off unless --dynet-autobatch is given; it changes the order of random draws",
        "on unless --dynet-autobatch 0 is given; values, gradients and random draws do not depend on it",
    ),
    Difference(
        "value(), npvalue(), ...",
        "computes every earlier node, so that an error in an unrelated one shows",
        "computes what the expression needs; forward() computes everything up to it",
    ),
    Difference(
        "expressions of an earlier graph",
        "value(): RuntimeError; first operands are not checked: another node's value, or a crash",
        "StaleExpressionError at every use: a ValueError and a RuntimeError",
        "old_expression() + 1",
        "StaleExpressionError",
    ),
    Difference(
        "expressions and states that cg_revert() took back",
        "the value of the node that has their number now, or a crash",
        "StaleExpressionError",
    ),
    Difference(
        "cg_checkpoint(), cg_revert()",
        "die on an empty graph, with batching, and for parameters first used after the checkpoint",
        "work",
    ),
    Difference(
        "graph and threads",
        "one graph for the process",
        "one for each thread; an expression of another thread's graph is a ValueError",
    ),
    Difference(
        "cg().forward(i), i out of range",
        "segmentation fault",
        "IndexError",
        "dy.cg().forward(10**6)",
        "IndexError",
    ),
    Difference(
        "check_validity",
        "'NaN or Inf detected'",
        "the error names the first bad node, its op, the ranges of its inputs and the script's line",
    ),
    Difference(
        "a forgotten renew_cg()",
        "memory and time grow until the process dies",
        "one RuntimeWarning when a graph has grown before each of more than ten updates",
    ),
    Difference(
        "an error of backward() or update() that no try or with of the script could catch",
        "raised by that call",
        "with two cores or more perhaps shown by the next one that computes or reads a parameter, which ends "
        "the script by SystemExit; its traceback has one line, that of the call that failed",
    ),
    Difference("dump_cg()", "leaves out the last node", "all nodes; errors of single nodes are shown"),
    Difference(
        "--dynet-viz, dynet_viz",
        "a second API of 70 ops draws; others are missing; sizes have two dimensions at most",
        "the whole API draws what it records: all sizes are shown, x - y is one node, defaults are not; "
        "after `import dynet_viz` the process draws",
    ),
    Difference("print_text_graphviz()", "addresses of parameters", "their names"),
    Difference(
        "scalar_value() of several elements",
        "the process dies",
        "RuntimeError",
        "dy.zeros(2).scalar_value()",
        "RuntimeError",
    ),
    Difference(
        "autobatch levels 2, 3 and above",
        "other schedulers",
        "any level but 0 is on (DYNET_COMPAT_SCHEDULER selects)",
    ),
    Difference(
        "options with bad values", "the process dies", "ValueError that names the option and what it may be"
    ),
    Difference("device names", "bytes under Python 3", "str", "dy.available_devices()[-1]", "'CPU'"),
    Difference(
        "several devices",
        "each node is computed on a device; to_device copies between them",
        "a process computes on one device, names are checked; to_device is the value itself",
    ),
    Difference(
        "--dynet-gpus=1, --dynet-devices=GPU:0 where there is no GPU",
        "without CUDA the first is ignored, the second a ValueError",
        "RuntimeError that says what is missing, as in the forms without =",
    ),
    Difference(
        "dynet_config.set_gpu(), requested_gpus where there is no GPU",
        "without CUDA ignored",
        "one line on stderr says what is missing, and the CPU computes",
    ),
    Difference(
        "operations on the GPU",
        "RuntimeError for inverse, logdet, sparsemax, circ_conv and others; other random numbers",
        "all operations; the same seed draws the same numbers on both devices",
    ),
    Difference(
        "arrays of CuPy, PyTorch and others",
        "TypeError",
        "inputs, set_value() and rows of tables take them, on the GPU without a way through the host",
        "dy.inputTensor(dy.inputTensor([[1.0, 2.0]]).tensor_value()).npvalue().tolist()",
        "[[1.0, 2.0]]",
    ),
    Difference(
        "--dynet-mem",
        "size of the memory pools",
        "checked, otherwise without effect: memory grows as needed and is kept",
    ),
]

ARGUMENTS = [
    Difference(
        "lists",
        "exactly list in many places",
        "any sequence",
        "dy.esum((dy.ones(1), dy.ones(1))).value()",
        "2.0",
    ),
    Difference(
        "dims",
        "a list, or more than 7 sizes: an error is printed and a scalar results",
        "lists are accepted; more than 7 sizes: ValueError",
        "dy.zeros([2, 3]).dim()",
        "((2, 3), 1)",
    ),
    Difference(
        "one-argument functions", "refuse keywords", "accept them", "dy.exp(x=dy.zeros(1)).value()", "1.0"
    ),
    Difference(
        "NumPy scalars as operands",
        "np.float32 and np.int64 on the right: NotImplementedError",
        "numbers",
        "(dy.ones(1) * np.float32(2)).value()",
        "2.0",
    ),
    Difference(
        "arrays as operands",
        "NotImplementedError, or NumPy loops over the elements",
        "an input with the array's values; * is the matrix product",
        "(dy.ones(2) + np.ones(2)).value()",
        "[2.0, 2.0]",
    ),
    Difference("None as an expression", "the process dies", "TypeError", "dy.exp(None)", "TypeError"),
    Difference(
        "operators with other objects (W + None, W + 'a', W * [1, 2])",
        "NotImplementedError",
        "TypeError, as Python has it",
        "dy.ones(1) + 'a'",
        "TypeError",
    ),
    Difference("parameter()", "the first call prints three lines on stdout", "one line in the log"),
    Difference(
        "a / b of expressions, 1 / a",
        "NotImplementedError",
        "cdiv; division of a constant",
        "(1 / dy.constant(1, 4)).value()",
        "0.25",
    ),
    Difference(
        "negative slice bounds",
        "ValueError",
        "Python's meaning",
        "dy.inputVector([1, 2, 3])[-2:].value()",
        "[2.0, 3.0]",
    ),
    Difference(
        "e[i] with NumPy's integers",
        "AssertionError",
        "accepted",
        "dy.inputVector([1, 2, 3])[np.int64(1)].value()",
        "2.0",
    ),
    Difference(
        "unequal batch sizes",
        "unchecked in most operations: memory of others is read",
        "ValueError when recorded",
        "dy.esum([dy.zeros(1, batch_size=2), dy.zeros(1, batch_size=3)])",
        "ValueError",
    ),
    Difference(
        "indices out of range, negative sizes",
        "one_hot gives zeros or corrupts memory; zeros(-1) dies",
        "ValueError, OverflowError",
        "dy.one_hot(3, 5)",
        "ValueError",
    ),
    Difference(
        "operations on expressions of size 0",
        "concatenate: ValueError, max_dim: -inf, log_softmax: the process dies",
        "the value where there is one (sums are 0, results of size 0 are empty), else ValueError",
        "(dy.zeros((2, 0)) * dy.zeros(0)).value(), dy.tanh(dy.zeros(0)).value()",
        "([0.0, 0.0], [])",
    ),
    Difference(
        "Python functions as attributes of a class (class A: f = dy.inputTensor)",
        "a.f(x) is inputTensor(x)",
        "for conv2d, inputTensor, one_hot, save, load and the like a.f(x) is inputTensor(a, x): write "
        "f = staticmethod(dy.inputTensor)",
    ),
    Difference(
        "complex arrays",
        "the imaginary part is dropped",
        "TypeError",
        "dy.inputTensor(np.ones(2) * 1j)",
        "TypeError",
    ),
]

OPERATIONS = [
    Difference("round, ceil, floor", "the gradient mode is not kept", "gradient as the mode says"),
    Difference("silu, beta other than 1", "wrong gradient", "right gradient"),
    Difference("poisson_loss", "gradient ignores what comes after it", "right gradient"),
    Difference(
        "batched: two products with one computed matrix (attention), in two instances",
        "wrong gradient of the matrix",
        "right gradient",
    ),
    Difference("average of batched and unbatched", "wrong gradient of the unbatched", "right gradient"),
    Difference("binary_log_loss, second argument", "meaningless gradient", "the derivative"),
    Difference(
        "logsumexp_dim(x, 1) of tall matrices",
        "rows beyond the columns are not computed",
        "the definition",
        "dy.logsumexp_dim(dy.zeros((3, 1)), 1).value()",
        "[0.0, 0.0, 0.0]",
    ),
    Difference(
        "hinge_dim(x, v, d=1)",
        "checks indices against rows",
        "checks them against columns; one list per batch item, too",
    ),
    Difference("to_device on the CPU", "uninitialised memory", "the value itself"),
    Difference(
        "emax, bmax: ties",
        "gradient to the earliest, or the second",
        "the same",
    ),
    Difference(
        "contract3d_1d without bias",
        "adds to what was in memory",
        "right",
        "dy.contract3d_1d(dy.ones((2, 2, 2)), dy.ones(2)).npvalue().tolist()",
        "[[2.0, 2.0], [2.0, 2.0]]",
    ),
    Difference("contract3d_1d_1d, wrong sizes of y and z", "unchecked", "ValueError"),
    Difference(
        "inverse of a matrix that is not square",
        "garbage or a crash",
        "ValueError",
        "dy.inverse(dy.ones((2, 3)))",
        "ValueError",
    ),
    Difference(
        "operations without batches in DyNet: inverse, logdet, circ_conv, circ_corr, sparsemax, "
        "constrained_softmax, contract3d_1d_1d, fold_rows, kmh_ngram, filter1d_narrow, binary_log_loss and "
        "others",
        "refuse a batch, or use its first item",
        "compute each item",
        "dy.logdet(dy.inputTensor(np.stack([np.eye(2), 2 * np.eye(2)], -1), batched=True)).dim()",
        "((1,), 2)",
    ),
    Difference("constrained_softmax of large numbers", "NaN", "right"),
    Difference(
        "conv2d with a batched filter or bias",
        "the first item's for all",
        "each item's own; unequal batches: ValueError",
    ),
    Difference("conv2d, maxpooling2d: stride or window of 0", "crash", "ValueError"),
    Difference(
        "conv2d with is_valid=False and strides beyond the size of the filter",
        "may give the filter a wrong gradient",
        "right gradient",
    ),
    Difference("filter1d_narrow, filter {r, w, 1}", "loses part of the gradient", "right gradient"),
    Difference("kmh_ngram(x, 0)", "wrong result", "ValueError"),
    Difference(
        "NaN in max_dim, min_dim, emax, bmax, maxpooling2d, pairwise_rank_loss",
        "may be lost: another number",
        "NaN",
        "dy.max_dim(dy.inputVector([float('nan'), 1])).value()",
        "nan",
    ),
    Difference(
        "products after a graph that held infinities, as log_softmax with restrict leaves them",
        "NaN: infinities of the old graph come in",
        "right",
    ),
    Difference(
        "infinity in logsumexp, softmax, log_softmax, pickneglogsoftmax, softsign, binary_log_loss, and in "
        "gradients",
        "NaN in places",
        "the limit where there is one",
        "dy.log_softmax(dy.inputVector([float('inf'), 1, 2])).value()",
        "[0.0, -inf, -inf]",
    ),
    Difference(
        "gradient of layer_norm where all elements of x are equal, such as a row of padding",
        "NaN: the next update stops",
        "0",
    ),
    Difference(
        "sums, means, norms, products and gradients of very many terms",
        "terms are added one by one: sum_elems of a million is off by 1 %",
        "within 1e-6 of the exact sum",
        "round(dy.sum_elems(dy.inputTensor(np.full(10**6, 0.1))).value(), 1)",
        "100000.0",
    ),
    Difference(
        "pickneglogsoftmax of an almost certain row",
        "loss and gradient are off by up to 6e-8, or 0",
        "all digits right",
        "dy.pickneglogsoftmax(dy.inputVector([20, 0]), 0).value() > 2e-9",
        "True",
    ),
    Difference("kmax_pooling with NaN", "zeros or garbage", "NaN counts as -inf"),
    Difference(
        "vanilla_lstm_gates with weight noise",
        "skips the products",
        "uses W + noise and b + noise, drawn at each step",
    ),
    Difference(
        "gradient() of equal expressions",
        "each node its own",
        "the same; equal expressions without random parts are computed once",
    ),
    Difference(
        "lookup tensors of three and more dimensions from NumPy",
        "each row's axes are mixed up",
        "the array as it is given",
    ),
    Difference(
        "iteration over LookupParameters",
        "never ends",
        "ends after the last row",
        "len(list(dy.ParameterCollection().add_lookup_parameters((3, 2))))",
        "3",
    ),
    Difference(
        "Tensor",
        "shows other memory after renew_cg()",
        "a copy of its own",
    ),
    Difference(
        "Tensor.topk", "disorder for more than two; garbage beyond the size", "falling order; ValueError"
    ),
]

MODELS = [
    Difference("add_parameters(())", "a scalar", "ValueError: dims of at least one size"),
    Difference(
        "builders with hidden_dim=0",
        "ValueError at the first input, or states of size 0",
        "ValueError in the constructor",
        "dy.GRUBuilder(1, 4, 0, dy.ParameterCollection())",
        "ValueError",
    ),
    Difference(
        "dy.Expression(), dy.Parameters(), dy.Trainer() and other empty objects",
        "most uses kill the process",
        "every use is a ValueError or RuntimeError",
        "dy.Expression() + 1",
        "StaleExpressionError",
    ),
    Difference(
        "np.array() of Parameters, LookupParameters and Tensors",
        "an array of objects",
        "the values (np.array(list_of_parameters) stacks them where shapes agree)",
        "np.array(dy.ParameterCollection().add_parameters((2, 3))).shape",
        "(2, 3)",
    ),
    Difference(
        "dims of add_parameters",
        "a list gives a scalar",
        "a list is accepted",
        "dy.ParameterCollection().add_parameters([2, 3]).shape()",
        "(2, 3)",
    ),
    Difference(
        "weight decay with a trainer on a sub-collection",
        "no decay, and steps grow",
        "one factor for each root collection",
    ),
    Difference(
        "trainers: e0, edecay, update(s), update_epoch() of 1.x and 2.0",
        "TypeError",
        "accepted with one line in the log; edecay acts as it did",
    ),
    Difference("trainers and collections", "a trainer does not keep its collection alive", "it does"),
    Difference("StackedRNNState", "cannot be made", "works as intended"),
    Difference(
        "set_dropout outside [0, 1], set_sparsity < 0",
        "partly unchecked",
        "ValueError",
        "dy.GRUBuilder(1, 1, 1, dy.ParameterCollection()).set_dropout(2)",
        "ValueError",
    ),
    Difference(
        "initialisers from files and arrays of the wrong size", "truncate, or leave garbage", "ValueError"
    ),
    Difference(
        "softmax builders: update=False", "the latest call counts for the whole graph", "each call for itself"
    ),
    Difference(
        "StandardSoftmaxBuilder.sample without bias",
        "takes raw scores as probabilities",
        "draws from the softmax",
    ),
    Difference(
        "ClassFactoredSoftmaxBuilder.full_logits, full_log_distribution",
        "wrong for classes of several words",
        "log p(class) + log p(word given class)",
    ),
    Difference("cluster files with errors", "the process dies", "ValueError or RuntimeError with the line"),
    Difference(
        "parameters read twice: const_parameter(p)", "a node for each call", "one node; gradient() is the sum"
    ),
]

FILES = [
    Difference(
        "a last line without its end, comment lines",
        "read",
        "refused: the file may be cut off, the line is no parameter",
    ),
    Difference(
        "populate, load of a file that does not fit",
        "some values are assigned before the error",
        "nothing is; the error is a diff with file and line",
    ),
    Difference("saving", "a crash leaves half a file", "the old file or the new one"),
    Difference(
        "gradients in files",
        "zeros (FULL_GRAD) for a parameter that is in the graph but not needed for the loss",
        "ZERO_GRAD for it, where it was not computed",
    ),
    Difference(
        "gradients in files, of tables read by lookup_batch() alone",
        "not written",
        "written, but for tables that are not updated (set_updated(False)): theirs is never cleared",
    ),
    Difference("infinity, NaN, subnormal numbers in files", "unreadable; flushed to zero", "kept"),
    Difference("files of DyNet before 2.1", "misread", "read; files of 1.x are recognised and refused"),
    Difference(
        ".meta files",
        "unpickled: its author's code runs",
        "plain data, our classes, classes with from_spec, objects of the program's own classes without "
        "running their code; trusted=, DYNET_COMPAT_TRUSTED and run --trust name others",
    ),
    Difference(
        "a .data file beside the .meta of another version",
        "loaded, with the wrong values",
        "RuntimeError: our .meta carries size and checksum of its .data, which DyNet ignores",
    ),
    Difference(
        "several processes that save and load one name",
        "mixed files",
        "savers take turns, readers see one version",
    ),
    Difference("the same parameter twice in dy.save", "a file that cannot be loaded", "written once"),
    Difference("keys and file names", "str", "also bytes and pathlib.Path for files; no white space in keys"),
]

ADDITIONS = [
    Difference(
        "x @ y",
        "TypeError",
        "the matrix product, as x * y",
        "(dy.inputTensor([[1, 2], [3, 4]]) @ dy.inputVector([1, 1])).value()",
        "[3.0, 7.0]",
    ),
    Difference(
        "gelu(x), relu(x), sigmoid(x)",
        "not there",
        "a function of its own; other names of rectify and logistic",
        "dy.relu(dy.inputVector([-1, 2])).value(), dy.sigmoid(dy.inputVector([0])).value()",
        "([0.0, 2.0], 0.5)",
    ),
    Difference(
        "x.shape, x.T, x.item(), x.numpy(), x.detach(), x.sum(), x.mean() of expressions",
        "AttributeError",
        "AttributeError that says what to write, so that hasattr() answers as in DyNet",
        "hasattr(dy.inputVector([1]), 'shape')",
        "False",
    ),
    Difference(
        "repr() of expressions, parameters, collections, trainers, builders, states, tensors, ...",
        "a number or an address",
        "sizes and computed values; str() of expressions, parameters and tensors is DyNet's",
        "repr(dy.ParameterCollection().add_parameters((2, 3)))",
        "'Parameter /_0: {2,3}'",
    ),
    Difference(
        "copy and pickle of collections and parameters",
        "TypeError",
        "the whole tree of the collection: names, values, weight decay; not the gradients",
        "__import__('copy').deepcopy(dy.ParameterCollection()).parameter_count()",
        "0",
    ),
    Difference(
        "trainer.state_dict(), load_state_dict(state)", "not there", "the trainer's state as a dict of arrays"
    ),
    Difference(
        "set_gradient() of parameters and tables, set_row_gradients(), touched_rows(), has_gradient()",
        "not there",
        "gradients that the program writes itself (recipes.md)",
    ),
    Difference(
        "gradients_to_vector(), vector_to_gradients() of collections; trainer.before_update",
        "not there",
        "all gradients as one array and back; functions that an update calls first",
    ),
    Difference(
        "values_hash() of collections, state_hash() of trainers",
        "not there",
        "equal for equal bits",
        "dy.ParameterCollection().values_hash() == dy.ParameterCollection().values_hash()",
        "True",
    ),
    Difference("AdamWTrainer", "not there", "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)"),
]

TOPICS = {
    "The graph": GRAPH,
    "Arguments": ARGUMENTS,
    "Operations": OPERATIONS,
    "Models": MODELS,
    "Files": FILES,
    "Additions": ADDITIONS,
}
