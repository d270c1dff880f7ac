"""An LSTM leaves: its weights go into plain NumPy (and PyTorch, if it is installed) and give equal outputs.

    python examples/export_weights.py [--hidden 16] [--length 7]

`state_dict()` gives the weights as a dict of arrays, `save_safetensors()` the same as a file. What one has to
know about a VanillaLSTMBuilder to compute its outputs elsewhere:

- `_0` is Wx {4H,I}, `_1` is Wh {4H,H}, `_2` is b {4H}; the next layer follows with `_3`, `_4`, `_5`;
- the blocks of H rows belong to the gates i (input), f (forget), o (output), g (candidate), in this order;
- the forget gate is s(a_f + forget_bias), and forget_bias, 1 by default, is not in b.

PyTorch's order is i, f, g, o, and it has two biases, which are added up.
"""

# dynet_compat compare: skip: trains nothing, and DyNet has no state_dict

import argparse

import dynet_compat as dy
import numpy as np


def logistic(a):
    return 1 / (1 + np.exp(-a))


def lstm_in_numpy(weights, inputs, layers, forget_bias=1.0):
    """Outputs of the last layer, one row per input."""
    for layer in range(layers):
        wx, wh, b = (weights[f"_{3 * layer + k}"] for k in range(3))
        h = c = np.zeros(wh.shape[1], dtype=np.float32)
        outputs = []
        for x in inputs:
            i, f, o, g = np.split(wx @ x + wh @ h + b, 4)
            c = logistic(f + forget_bias) * c + logistic(i) * np.tanh(g)
            h = logistic(o) * np.tanh(c)
            outputs.append(h)
        inputs = outputs
    return np.array(inputs)


def lstm_in_pytorch(weights, inputs, layers, forget_bias=1.0):
    """The same with torch.nn.LSTM."""
    import torch

    hidden = weights["_1"].shape[1]
    lstm = torch.nn.LSTM(weights["_0"].shape[1], hidden, layers)
    state = {}
    for layer in range(layers):
        wx, wh, b = (weights[f"_{3 * layer + k}"].copy() for k in range(3))
        b[hidden : 2 * hidden] += forget_bias
        order = np.concatenate([np.arange(hidden) + block * hidden for block in (0, 1, 3, 2)])
        for name, array in (("weight_ih", wx), ("weight_hh", wh), ("bias_ih", b), ("bias_hh", 0 * b)):
            state[f"{name}_l{layer}"] = torch.from_numpy(array[order])
    lstm.load_state_dict(state)
    with torch.no_grad():
        return lstm(torch.from_numpy(inputs))[0].numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--length", type=int, default=7)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--save", metavar="FILE", help="write the weights to this safetensors file, too")
    options = parser.parse_args()

    pc = dy.ParameterCollection()
    builder = dy.LSTMBuilder(options.layers, 8, options.hidden, pc)
    for layer in builder.get_parameters():  # biases start at 0, which would hide a wrong order
        layer[2].set_value(np.linspace(-1, 1, 4 * options.hidden))
    inputs = np.random.RandomState(0).randn(options.length, 8).astype(np.float32)

    dy.renew_cg()
    outputs = builder.initial_state().transduce([dy.inputVector(x) for x in inputs])
    want = np.array(dy.npvalues(outputs))

    weights = builder.param_collection().state_dict()
    if options.save:
        dy.save_safetensors(options.save, builder)
        from safetensors.numpy import load_file

        weights = load_file(options.save)
    print("weights:", {name: array.shape for name, array in weights.items()})
    found = lstm_in_numpy(weights, inputs, options.layers)
    print(f"NumPy: largest difference of {found.size} outputs: {abs(found - want).max():.1e}")
    assert np.allclose(found, want, atol=1e-5)
    try:
        found = lstm_in_pytorch(weights, inputs, options.layers)
    except ImportError:
        print("PyTorch is not installed")
        return
    print(f"PyTorch: largest difference of {found.size} outputs: {abs(found - want).max():.1e}")
    assert np.allclose(found, want, atol=1e-5)


if __name__ == "__main__":
    main()
