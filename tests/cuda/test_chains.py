"""Launches that become one: chains, and ops that products compute. The results are the same bits."""

from __future__ import annotations

import pytest
from support.device_nets import NETS
from support.emulated import START, program
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

COMPARE = """
for net in (tree, gru, parts, elements, builders, written, crossed):
    for n in (1, 2, 7, 40):
        plain, before = compute(net, n, persistent=False, chains=False)
        chained, after = compute(net, n, persistent=False, chains=True)
        joined, _ = compute(net, n, persistent=True, chains=True)
        print(net.__name__, n, plain == chained == joined, *before, *after)
"""


@pytest.fixture(scope="module", params=["order=forward", "order=backward", "processors=5,order=random"])
def counts(request: pytest.FixtureRequest) -> dict[tuple[str, int], list[int]]:
    """Launches and links, of a step and of forward alone: without chains, then with them."""
    told = program("SIZE = 40\n" + START + NETS + COMPARE, settings=request.param)
    rows = [line.split() for line in told.splitlines()]
    assert [row[2] for row in rows] == ["True"] * 28, told
    return {(row[0], int(row[1])): [int(word) for word in row[3:]] for row in rows}


@pytest.mark.parametrize("n", [7, 40])
def test_a_level_is_two_launches(n: int) -> None:
    """A product and a chain; backward in the other order."""
    text = f"""
def with_levels(levels):
    told = compute(lambda n: tree(n, levels), {n}, persistent=False, chains=True)[1]
    return told[2], told[0] - told[2]
told = [with_levels(levels) for levels in (2, 3, 4)]
print([[b - a for a, b in zip(*pair)] for pair in zip(told, told[1:])])
"""
    assert program("SIZE = 40\n" + START + NETS + text) == "[[2, 2], [2, 2]]\n"


@pytest.mark.parametrize(
    ("net", "backward"),
    [("builders", 2), ("written", 5)],  # of those: two biases, and two uses of a state
)
def test_a_level_of_a_gru_is_two_launches(net: str, backward: int) -> None:
    """The products of both gates, then that of the candidate; what is between follows in their launches."""
    text = f"""
def with_steps(steps):
    told = compute(lambda n: {net}(n, steps), 8, persistent=False, chains=True)[1]
    return told[2], told[0] - told[2]
told = [with_steps(steps) for steps in (5, 6, 7)]
print([[b - a for a, b in zip(*pair)] for pair in zip(told, told[1:])])
"""
    assert program("SIZE = 40\n" + START + NETS + text) == f"{[[2, backward]] * 2}\n"


@pytest.mark.parametrize("n", [5, 1500])
def test_columns_in_any_order_follow(n: int) -> None:
    """Forward two tanh, and cmult of their results in another order, which backward follows first."""
    text = f"""
def permuted(n):
    order, us = rng.permutation(n), inputs(n, SIZE)
    xs = [dy.tanh(dy.tanh(gate("u", u, u))) for u in us]
    ys = [gate("i", dy.cmult(xs[p], u), u) for p, u in zip(order, us)]
    return [dy.squared_norm(y) for y in ys]
plain, _ = compute(permuted, {n}, persistent=False, chains=False)
apart = dy._core.timing()["device_followers"]
chained, _ = compute(permuted, {n}, persistent=False, chains=True)
print(chained == plain, apart, dy._core.timing()["device_followers"])
"""
    assert program("SIZE = 4\n" + START + NETS + text) == "True 0 6\n"


@pytest.mark.parametrize("net", ["tree", "gru", "parts", "elements"])
def test_there_are_fewer_launches(counts: dict[tuple[str, int], list[int]], net: str) -> None:
    before, after = counts[net, 40][:4], counts[net, 40][4:]
    assert before[1] == before[3] == 0 and after[1] > 0, (before, after)
    assert after[0] < before[0], (before, after)


@pytest.mark.parametrize("matmul", ["few", "middle", "large"])
@pytest.mark.parametrize("size", [5, 33, 130])
def test_activations_and_sums_of_products(matmul: str, size: int) -> None:
    """Of any kernel for products, for sizes that its tiles do not divide; persistent ones make them apart."""
    text = f"""
dy._core._device_options(matmul="{matmul}", keep_weights=False)
for net, n in ((gru, 3), (gru, 37), (crossed, 3), (written, 37)):
    (plain, before), (made, after) = (compute(net, n, persistent=False, chains=on) for on in (False, True))
    print(compute(net, n, persistent=True, chains=False)[0] == plain == made, after[2] < before[2])
"""
    assert program(f"SIZE = {size}\n" + START + NETS + text).splitlines() == ["True True"] * 4
