"""The emulation's search for accesses that nothing orders: kernels with and without such, and our own."""

from __future__ import annotations

import pytest
from support import fake_gpu
from support.kernel_programs import KernelProgram

pytestmark = pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")
SETTINGS = [f"processors=4,order={order}" for order in ("forward", "backward")]
SETTINGS += [f"processors=4,order=random,seed={seed}" for seed in range(1, 6)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> KernelProgram:
    return KernelProgram(tmp_path_factory.mktemp("races"), "emulation_cases", races=True)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    "case", ["neighbours", "dynamic", "sums", "shuffles", "relay", "handed_on_nothing",
             "left_in_a_warp_true", "written_by_all_true", "copied_false"])  # fmt: skip
def test_what_is_ordered_is_no_race(program: KernelProgram, case: str, settings: str) -> None:
    done = program(case, settings=settings)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    ("case", "threads"),
    [("neighbours_too_early", "thread"), ("handed_on_first_meeting", "block"),
     ("handed_on_first_fence", "block"), ("handed_on_second_fence", "block"),
     ("handed_on_second_meeting", "block"), ("left_in_a_warp_false", "thread 0"),
     ("written_by_all_false", "thread"),
     ("copied_true", "thread"),
     ("next_block_too_early", "block")])  # fmt: skip
def test_a_race_is_found_in_any_order(program: KernelProgram, case: str, threads: str, settings: str) -> None:
    """Also where the values happen to be right: what counts is that nothing orders the accesses."""
    told = program(case, settings=settings)
    assert told.returncode == 1 and "a race: thread" in told.stdout and threads in told.stdout, told.stdout
    assert "and nothing orders the two" in told.stdout


def kernels(folder: pytest.TempPathFactory, cases: str, sources: list[str], *options: str) -> KernelProgram:
    names = [f"cuda/{name}.cc" for name in sources]
    return KernelProgram(folder.mktemp(cases), cases, names, *options, races=True)


def test_no_race_in_products(tmp_path_factory: pytest.TempPathFactory) -> None:
    sources = ["driver/matmul_variants", "emulation/other_kernels"]
    program = kernels(tmp_path_factory, "product_cases", sources)
    for kernel, kind in [("few_columns", "wx"), ("few_columns", "wdy"), ("product", "wx"), ("product", "wdy"),
                         ("product", "dyx"), ("small_product", "wx"), ("small_product", "wdy"),
                         ("small_product", "dyx"), ("large_product", "wx"),
                         ("large_product", "dyx")]:  # fmt: skip
        done = program(kernel, kind, "7", "15", settings="processors=4,order=random,seed=3")
        assert done.returncode == 0 and not done.stdout, done.stdout[:2000] + done.stderr
    for kind, precision in [("wx", "tf32"), ("wdy", "bf16"), ("dyx", "bf16")]:
        done = program(
            "large_product", kind, "7", "15", precision, settings="processors=4,order=random,seed=3"
        )
        assert done.returncode == 0 and not done.stdout, done.stdout[:2000] + done.stderr


def test_no_race_in_kept_weights(tmp_path_factory: pytest.TempPathFactory) -> None:
    program = kernels(tmp_path_factory, "persistent_weights_cases", ["emulation/persistent"])
    done = program(settings="processors=8,order=random,seed=2", timeout=300)
    assert done.stdout == "300\n", done.stdout[:2000] + done.stderr
