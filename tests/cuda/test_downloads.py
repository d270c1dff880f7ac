"""Values that are read next come down together, from results too large to be downloaded whole each time."""

from __future__ import annotations

import pytest
from support.emulated import START, program
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

BEGIN = (
    START
    + """
rng = np.random.default_rng(3)
N, SIZE = 16, 2000  # a launch of these is 32,000 floats
given = rng.normal(size=(N, SIZE)).astype(np.float32)
inputs = [dy.inputVector(v) for v in given]
nodes = [-x for x in inputs]

def downloads():
    told = dy._core.timing()
    dy._core.reset_timing()
    return told["device_downloads"], told["device_downloaded_bytes"] // 4
"""
)


@pytest.mark.parametrize("how", ["dy.values(nodes)", "dy.npvalues(nodes)"])
def test_values_of_a_list(how: str) -> None:
    told = program(
        BEGIN
        + f"""
dy.forward(nodes)
downloads()
for _ in range(2):
    assert np.array_equal({how}, -given)
    print(*downloads())
"""
    )
    assert told == "1 32000\n0 0\n"


@pytest.mark.parametrize("order", ["", "[::-1]", "[::2]", "[3:11]"])
def test_values_read_one_by_one(order: str) -> None:
    """Each download brings as many as were read until then; in later graphs, the first brings all."""
    told = program(
        BEGIN
        + f"""
for _ in range(3):
    dy.renew_cg()
    nodes = [-dy.inputVector(v) for v in given]
    dy.forward(nodes)
    downloads()
    for k in range(2):
        assert np.array_equal([x.npvalue() for x in nodes{order}], -given{order})
    print(*downloads())
"""
    )
    first = {"": "5 32000", "[::-1]": "16 32000", "[::2]": "5 26000", "[3:11]": "4 26000"}[order]
    assert told == f"{first}\n" + "1 32000\n" * 2


def test_a_guess_that_was_wrong() -> None:
    """All of a launch was read once; then one result of each."""
    told = program(
        BEGIN
        + """
for n in (16, 1, 1, 2):
    dy.renew_cg()
    nodes = [-dy.inputVector(v) for v in given]
    dy.forward(nodes)
    downloads()
    for i in range(n):
        assert np.array_equal(nodes[5 * i % 16].npvalue(), -given[5 * i % 16])
    print(*downloads())
"""
    )
    assert told.splitlines()[1:] == ["1 32000", "1 2000", "2 6000"]


def test_results_of_many_sizes_read_one_by_one() -> None:
    program(
        BEGIN
        + """
sizes = [1, 7, 900, 8, 5000, 64, 63, 2000, 1, 9000, 3, 3000]
for order in (range(12), range(11, -1, -1), [9, 4, 9, 0, 11, 2, 4]):
    dy.renew_cg()
    vectors = [rng.normal(size=n).astype(np.float32) for n in sizes]
    nodes = [-dy.inputVector(v) for v in vectors]
    dy.forward(nodes)
    for i in order:
        assert np.array_equal(nodes[i].npvalue().ravel(), -vectors[i])
"""
    )


def test_values_read_far_apart() -> None:
    """A program that reads few of many does not download the others."""
    told = program(
        BEGIN
        + """
many = rng.normal(size=(64, SIZE)).astype(np.float32)
for _ in range(2):
    dy.renew_cg()
    nodes = [-dy.inputVector(v) for v in many]
    dy.forward(nodes)
    downloads()
    assert np.array_equal([nodes[i].npvalue() for i in range(0, 60, 10)], -many[:60:10])
    print(*downloads())
"""
    )
    assert told == f"6 {2000 * (1 + 2 + 3 + 4 + 5 + 6)}\n" * 2


def test_parts_of_a_large_result() -> None:
    """The cell and the output of an LSTM step: together, or each alone, and once."""
    told = program(
        BEGIN
        + """
lstm = dy.VanillaLSTMBuilder(1, 4, 16, dy.ParameterCollection())
given = rng.normal(size=(4, 600)).astype(np.float32)
for how in ("dy.npvalues(ends)", "[x.npvalue() for x in ends]"):
    dy.renew_cg()
    ends = lstm.initial_state().add_input(dy.inputTensor(given, batched=True)).s()
    dy.forward(ends)
    downloads()
    found = eval(how)
    print(*downloads())
    assert np.array_equal(found, [x.npvalue() for x in ends]) and downloads() == (0, 0)
    assert np.array_equal(found, dy.npvalues([x * 1 for x in ends]))
"""
    )
    assert told == "1 19200\n2 19200\n"


def test_lists_that_add_to_each_other() -> None:
    """Each value comes down once."""
    told = program(
        BEGIN
        + """
dy.forward(nodes)
downloads()
for i in range(0, N, 2):
    assert np.array_equal(dy.npvalues(nodes[i : i + 2]), -given[i : i + 2])
print(*downloads())
assert np.array_equal(dy.npvalues(nodes), -given)
print(*downloads())
"""
    )
    assert told == "8 32000\n0 0\n"


def test_instances_that_wait_for_values() -> None:
    """Of one step together, also views; the other four are a launch that comes down whole."""
    told = program(
        BEGIN
        + """
def read(i):
    if i % 2:
        return nodes[i].npvalue(), None
    matrix = dy.reshape(nodes[i], (50, 40))
    return matrix.npvalue(), nodes[i].npvalue()

downloads()
found = dy.batch_map(read, range(12))
print(*downloads())
for i, (first, again) in enumerate(found):
    assert np.array_equal(first.T.ravel(), -given[i]) and (i % 2 or np.array_equal(again, -given[i]))
dy.forward(nodes)
downloads()
assert np.array_equal(nodes[13].npvalue(), -given[13])
print(*downloads())
"""
    )
    assert told == "1 24000\n1 8000\n"


def test_parts_of_what_is_read() -> None:
    """A value that begins where a part of it does, which came down before."""
    program(
        BEGIN
        + """
matrices = [dy.reshape(node, (50, 40)) for node in nodes]
columns = [dy.pick(matrix, 0, dim=1) for matrix in matrices]
for batch in (columns, matrices, nodes, columns + nodes):
    assert [v.ravel().tolist()[:9] for v in dy.npvalues(batch)]
    for i in range(N):
        assert np.array_equal(columns[i].npvalue(), -given[i][:50])
        assert np.array_equal(nodes[i].npvalue(), -given[i])

def read(i):
    again = dy.square(nodes[i])
    matrix = dy.reshape(again, (50, 40))
    order = [dy.pick(matrix, 0, dim=1), again] if i % 2 else [again, matrix]
    return [np.array(x.npvalue()) for x in order]

for i, (a, b) in enumerate(dy.batch_map(read, range(N))):
    wanted = given[i] ** 2
    assert np.array_equal(a, wanted[:50] if i % 2 else wanted)
    assert np.array_equal(b, wanted if i % 2 else wanted.reshape(40, 50).T)
"""
    )


def test_values_that_change() -> None:
    program(
        BEGIN
        + """
x = dy.vecInput(SIZE)
nodes = [x * float(k) for k in range(1, N + 1)]
more = []
for step in range(3):
    x.set(given[step])
    assert np.allclose(dy.npvalues(nodes), [given[step] * k for k in range(1, N + 1)])
    assert np.allclose(dy.npvalues(nodes[:3]), [given[step] * k for k in range(1, 4)])
    dy.cg_checkpoint()
    others = [dy.square(node) for node in nodes]
    assert np.allclose(dy.npvalues(others), [(given[step] * k) ** 2 for k in range(1, N + 1)])
    dy.cg_revert()
    again = [dy.cube(node) for node in nodes]
    assert np.allclose(dy.npvalues(again), [(given[step] * k) ** 3 for k in range(1, N + 1)], rtol=1e-5)
    assert np.allclose(dy.npvalues(nodes, recalculate=True), [given[step] * k for k in range(1, N + 1)])
"""
    )


def test_tensors_of_a_launch() -> None:
    """Their memory on the device is their own; what the host reads of them comes down together."""
    told = program(
        BEGIN
        + """
for _ in range(2):
    dy.renew_cg()
    nodes = [-dy.inputVector(v) for v in given]
    dy.forward(nodes)
    tensors = [x.tensor_value() for x in nodes]
    downloads()
    assert np.array_equal([t.as_numpy() for t in tensors], -given)
    print(*downloads())
"""
    )
    assert told == "5 32000\n1 32000\n"


def test_tensors_keep_values_that_change() -> None:
    program(
        BEGIN
        + """
x = dy.vecInput(SIZE)
y = -x
x.set(given[0])
first = y.tensor_value()
x.set(given[1])
second = y.tensor_value()
assert np.array_equal(second.as_numpy(), -given[1]) and np.array_equal(first.as_numpy(), -given[0])
third = y.tensor_value()
x.set(given[2])
assert np.array_equal(third.as_numpy(), -given[1]) and np.array_equal(y.npvalue(), -given[2])
noise = dy.random_normal(SIZE)
before = noise.tensor_value()
after = noise.tensor_value(recalculate=True).as_numpy()
assert not np.array_equal(before.as_numpy(), after) and np.array_equal(noise.npvalue(), after)
table = dy.ParameterCollection().add_lookup_parameters((1, 3), init=1.0)
row = table[0] * 2
later = dy.random_normal(3)
dy.forward([row, later])
row.value(recalculate=True)
read = row.tensor_value()
table.init_row(0, [5.0] * 3)
later.value()  # is drawn now, so all is computed again, from the rows of now
assert read.as_numpy().tolist() == [2.0] * 3 and row.vec_value() == [10.0] * 3
dy.cg_checkpoint()
gone = dy.square(y).tensor_value()
dy.cg_revert()
other = dy.cube(y)
assert np.allclose(other.npvalue(), -given[2] ** 3, rtol=1e-5)
assert np.array_equal(gone.as_numpy(), given[2] ** 2)
kept = y.tensor_value()
dy.renew_cg()
z = -dy.inputVector(given[3])
assert np.array_equal(z.npvalue(), -given[3]) and np.array_equal(kept.as_numpy(), -given[2])
"""
    )


def test_a_download_that_failed_brought_nothing() -> None:
    """The device is lost in the second flush; each read of what it had computed says so."""
    told = program(
        BEGIN
        + """
dy.forward(nodes)
tensor = nodes[9].tensor_value()
reads = [nodes[5].npvalue, lambda: dy.npvalues(nodes[4:8]), tensor.as_numpy]
for read in [dy.tanh(nodes[3]).value, *reads, *reads]:
    try:
        print(read())
    except RuntimeError as e:
        print("the device was lost" in str(e))
""",
        "fail=2",
    )
    assert told == "True\n" * 7
