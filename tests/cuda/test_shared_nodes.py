"""Large nodes, which several warps compute together: the CPU's results, however many warps there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import emulated
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

# Dimensions and batch size of operands, and what is made of them. Sizes are odd, or less than a warp.
PROGRAM = """
import sys
import numpy as np
import dynet_compat as dy

NETS = {
    "concatenate": ([((301, 13), 1), ((77, 13), 1)], lambda x, k: dy.concatenate(x)),
    "concatenate short": ([((3, 701), 1), ((2, 701), 1)], lambda x, k: dy.concatenate(x)),
    "concatenate_cols": ([((37,), 1)] * 61, lambda x, k: dy.concatenate_cols(x)),
    "concatenate batch": ([((3, 5), 201), ((4, 5), 1)], lambda x, k: dy.concatenate(x)),
    "concatenate same": ([((1501,), 1)], lambda x, k: dy.concatenate([x[0], x[0], x[0]])),
    "concatenate parts": ([((1501,), 1)], lambda x, k: dy.concatenate([x[0][3:1400], x[0], x[0][k:1300]])),
    "concatenate views": ([((1500,), 1)], lambda x, k: dy.concatenate([
        dy.reshape(x[0], (750,), batch_size=2), x[0]])),
    "concatenate_to_batch": ([((41, 13), 3), ((41, 13), 1)], lambda x, k: dy.concatenate_to_batch(x)),
    "pick": ([((31, 7, 53), 1)], lambda x, k: dy.pick(x[0], k % 7, 1)),
    "pick_batch": ([((7, 403), 1)], lambda x, k: dy.pick_batch(x[0], [k, 3, 3, 0, 6])),
    "pick_range": ([((131, 29), 3)], lambda x, k: dy.pick_range(x[0], 5, 110)),
    "strided_select": ([((131, 29), 3)], lambda x, k: x[0][3:130:2, 1:29:3]),
    "transpose": ([((67, 59), 2)], lambda x, k: dy.transpose(x[0])),
    "transpose 3": ([((17, 13, 19), 1)], lambda x, k: dy.transpose(x[0], [2, 0, 1])),
    "select_rows": ([((61, 67), 1)], lambda x, k: dy.select_rows(x[0], [k, 60, 7, 7, 0] * 9)),
    "select_cols": ([((67, 61), 2)], lambda x, k: dy.select_cols(x[0], [k, 60, 7, 7, 0] * 9)),
    "pick_batch_elems": ([((67, 11), 5)], lambda x, k: dy.pick_batch_elems(x[0], [k % 5, 4, 4, 0])),
    "fold_rows": ([((183, 23), 2)], lambda x, k: dy.fold_rows(x[0], 3)),
    "esum": ([((1201,), 2)] * 5, lambda x, k: dy.esum(x)),
    "esum same": ([((1201,), 1), ((1201,), 1)], lambda x, k: dy.esum([x[0], x[1], x[0], x[0]])),
    "esum batch": ([((601,), 3), ((601,), 1), ((601,), 3)], lambda x, k: dy.esum(x)),
    "average": ([((1201,), 2)] * 3, lambda x, k: dy.average(x)),
    "average batch": ([((601,), 3), ((601,), 1), ((601,), 3)], lambda x, k: dy.average(x)),
    "emax": ([((1201,), 2)] * 3, lambda x, k: dy.emax([x[0], x[1], x[0], x[2]])),
    "softmax": ([((29, 131), 1)], lambda x, k: dy.softmax(x[0])),
    "softmax long": ([((1801,), 3)], lambda x, k: dy.softmax(x[0])),
    "softmax short": ([((3, 701), 2)], lambda x, k: dy.softmax(x[0])),
    "softmax rows": ([((403, 11), 2)], lambda x, k: dy.softmax(x[0], d=1)),
    "log_softmax": ([((29, 43), 3)], lambda x, k: dy.log_softmax(x[0])),
    "layer_norm": ([((83,), 51), ((83,), 1), ((83,), 1)], lambda x, k: dy.layer_norm(*x)),
    "layer_norm matrix": ([((31, 11), 7), ((1, 11), 7), ((31, 1), 1)], lambda x, k: dy.layer_norm(*x)),
    "layer_norm row": ([((31, 11), 7), ((1, 11), 1), ((1, 1), 1)], lambda x, k: dy.layer_norm(*x)),
    "layer_norm one x": ([((307,), 1), ((307,), 9), ((307,), 9)], lambda x, k: dy.layer_norm(*x)),
}

def tensor(values):
    return dy.inputTensor(values, batched=True) if values.shape[-1] > 1 else dy.inputTensor(values[..., 0])

def compute(name, copies):
    '''Of each of the copies, which differ: the value, and the gradient of each operand.'''
    specs, make = NETS[name]
    operands, outs, losses = [], [], []
    for k in copies:
        random = np.random.RandomState(100 + k)
        x = [tensor(random.uniform(-2, 2, (*dims, batch)).astype(np.float32)) for dims, batch in specs]
        out = make(x, k)
        dims, batch = out.dim()
        weight = tensor(random.uniform(0.5, 1.5, (*dims, batch)).astype(np.float32))
        operands.append(x)
        outs.append(out)
        losses.append(dy.sum_batches(dy.sum_elems(dy.cmult(out, weight))))
    dy.esum(losses).backward(full=True)
    return [[out.npvalue(), *(one.gradient() for one in x)] for x, out in zip(operands, outs)]

file, how, launched = sys.argv[1:]
if launched != "cpu":
    dy._core._device_options(persistent=launched == "persistent")
found = {}
dy._core.reset_timing()
for name in NETS:
    results = []
    for copies in [[0], [1], [2]] if how == "apart" else [range(3)]:
        dy.renew_cg(autobatching=True)
        results += compute(name, copies)
    for k, arrays in enumerate(results):
        for n, array in enumerate(arrays):
            found[f"{name}, copy {k}, " + (f"gradient {n - 1}" if n else "value")] = array
found["launches"] = dy._core.timing().get("device_launches", 0)
np.savez(file, **found)
"""


def results(
    folder: Path, how: str, settings: str = "", persistent: bool = False, device: str = "emulation"
) -> dict[str, np.ndarray]:
    file = folder / "found.npz"
    launched = "cpu" if device == "cpu" else "persistent" if persistent else "plain"
    done = emulated.on_device("-c", PROGRAM, str(file), how, launched, settings=settings, device=device)
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(file) as found:
        return dict(found)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return results(tmp_path_factory.mktemp("plain"), "apart")


def test_results_are_those_of_the_cpu(plain: dict[str, np.ndarray], tmp_path: Path) -> None:
    wanted = results(tmp_path, "apart", device="cpu")
    assert plain.keys() == wanted.keys() and len(plain) > 200
    for name in wanted.keys() - {"launches"}:
        np.testing.assert_allclose(plain[name], wanted[name], 2e-5, 2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("how", "settings", "persistent"),
    [
        ("together", "processors=1", False),
        ("together", "processors=5,order=random,seed=4", False),
        ("apart", "processors=9,order=backward", False),
        ("apart", "processors=60", True),
    ],
)
def test_any_number_of_warps_makes_the_same(
    plain: dict[str, np.ndarray], tmp_path: Path, how: str, settings: str, persistent: bool
) -> None:
    """Bit for bit, alone and together, also as steps of persistent kernels."""
    found = results(tmp_path, how, settings, persistent)
    assert not persistent or found["launches"] < plain["launches"], "nothing was joined"
    for name in plain.keys() - {"launches"}:
        assert found[name].tobytes() == plain[name].tobytes(), name
