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


@pytest.mark.parametrize("how", ["dy.values(nodes)", "dy.npvalues(nodes)", "[x.npvalue() for x in nodes]"])
def test_values_of_a_list(how: str) -> None:
    """Read one by one, each is a download: which others are read next, is not known."""
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
    each = "16 32000\n" if "for" in how else ""
    assert told == (each * 2 or "1 32000\n0 0\n")


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
