"""Names of other libraries that DyNet does not have, and what its programs write instead."""

from __future__ import annotations

__all__ = ["missing"]

_INSTEAD = {
    "Adam": "AdamTrainer(collection)",
    "AdamW": "AdamWTrainer(collection)",
    "SGD": "SimpleSGDTrainer(collection)",
    "Embedding": "collection.add_lookup_parameters((rows, size))",
    "embedding": "table[i], table.batch(ids)",
    "GRU": "GRUBuilder(layers, input_dim, hidden_dim, collection)",
    "LSTM": "VanillaLSTMBuilder(layers, input_dim, hidden_dim, collection)",
    "Linear": "affine_transform([b, W, x]) with Parameters b and W",
    "Module": "a class of your own with a ParameterCollection",
    "cat": "concatenate(xs)",
    "clip_grad_norm_": "trainer.set_clip_threshold(5.0)",
    "cross_entropy": "pickneglogsoftmax(x, i)",
    "einsum": "`*`, contract3d_1d, cmult and sum_dim",
    "from_numpy": "inputTensor(array)",
    "leaky_relu": "bmax(x, 0.01 * x)",
    "linear": "affine_transform([b, W, x])",
    "manual_seed": "reset_random_seed(seed)",
    "matmul": "x * y",
    "maximum": "bmax(x, y)",
    "mean": "mean_elems(x), mean_dim(x, [0], False), average(xs)",
    "minimum": "bmin(x, y)",
    "mul": "cmult(x, y)",
    "nn": "the builders, such as VanillaLSTMBuilder, and functions of expressions",
    "nll_loss": "pickneglogsoftmax(x, i), or -pick(log_softmax(x), i)",
    "no_grad": "nothing: only loss.backward() computes gradients; nobackprop(x) stops them",
    "optim": "the trainers, such as AdamTrainer",
    "permute": "transpose(x, dims)",
    "rand": "random_uniform(dim, 0, 1)",
    "randn": "random_normal(dim)",
    "stack": "concatenate_cols(xs)",
    "sum": "sum_elems(x), sum_dim(x, [0]), esum(xs)",
    "swish": "silu(x)",
    "zero_grad": "nothing: trainer.update() clears the gradients",
}


def missing(module: str, name: str) -> str:
    """The message of the AttributeError for a name that the package does not have."""
    text = f"module {module!r} has no attribute {name!r}"
    return f"{text}; in DyNet one writes {_INSTEAD[name]}" if name in _INSTEAD else text
