"""The emulation of a GPU: threads, barriers, shuffles, memory, and what it finds wrong in a kernel."""

from __future__ import annotations

import pytest
from support import fake_gpu
from support.kernel_programs import KernelProgram as Program

NAN = {"nan", "-nan"}

pytestmark = pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program(tmp_path_factory.mktemp("plain"), "emulation_cases")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("sanitized")
    return Program(folder, "emulation_cases", (), "-fsanitize=address,undefined", "-fno-omit-frame-pointer")


@pytest.fixture(params=["plain", "sanitized"])
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.getfixturevalue(request.param)
    return found


def numbers(program: Program, case: str, settings: str = "") -> list[float]:
    result = program(case, settings=settings)
    assert result.returncode == 0, result.stdout + result.stderr
    return [float(word) for word in result.stdout.split()]


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_a_barrier_shows_what_others_stored(program: Program, order: str) -> None:
    expected = [100.0 * block + (thread - 1) % 16 for block in range(2) for thread in range(16)]
    assert numbers(program, "neighbours", f"order={order}") == expected


def test_a_missing_barrier_shows_in_either_order(plain: Program) -> None:
    for order in ("forward", "backward"):
        assert NAN & set(plain("neighbours_too_early", settings=f"order={order}").stdout.split())


def test_dynamic_shared_memory(program: Program) -> None:
    assert numbers(program, "dynamic") == [*range(7, -1, -1)] * 2


def test_shared_memory_is_not_set(program: Program) -> None:
    assert numbers(program, "fresh") == [0.0] * 8


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_shuffles(program: Program, order: str) -> None:
    lanes = range(8)
    expected = [(i ^ 1) + 300 for i in lanes]
    assert numbers(program, "shuffles", f"order={order}") == expected


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_sums_of_warps(program: Program, order: str) -> None:
    assert numbers(program, "sums", f"order={order}") == [8 * (i // 8) + 3.5 for i in range(32)]


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_blocks_that_run_together_wait_for_each_other(program: Program, order: str) -> None:
    assert numbers(program, "relay", f"order={order}") == [2, 4, 8, 16]


def test_a_block_is_as_far_ahead_as_it_can_be(program: Program) -> None:
    """Else a kernel that does not wait for other blocks could find what they have yet to store."""
    for order, ahead in (("forward", [0, 0, 0, 0, 1, 1, 1, 1]), ("backward", [1, 1, 1, 1, 0, 0, 0, 0])):
        assert numbers(program, "next_block_too_early", f"order={order}")[:8] == ahead


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("relay_apart", "cases: relay: a trap"),
        ("some_wait", "15 of 16, thread 0 of block 0 among them, at a barrier that others have not reached"),
        ("waits_for_nobody", "wait for each other in vain: 2 of 2"),
        ("relay_too_wide", "cannot be launched with 100 blocks of 16 threads"),
        ("too_many_threads", "cannot be launched with 1 blocks of 4096 threads"),
        ("unknown", "the emulation has no kernel nothing of cases.cu"),
    ],
)
def test_errors(program: Program, case: str, message: str) -> None:
    result = program(case)
    assert result.returncode == 1 and message in result.stdout, result.stdout + result.stderr


def test_threads_given_up_do_no_harm(program: Program) -> None:
    first, second, third = program("after_failure").stdout.splitlines()
    assert "in vain" in first and first == third
    assert second.split() == ["3.5"] * 8 + ["11.5"] * 8


def test_memory_ends(program: Program) -> None:
    left, upload = program("memory", settings="memory=1000").stdout.splitlines()
    assert left == "the device has no 500 bytes left: 600 of 1000 are in use"
    assert upload == "cannot upload to 4 bytes that are no device memory"


def test_a_device_is_lost(program: Program) -> None:
    assert program("sums", settings="fail=1").stdout == "cases: sums: the device was lost\n"
    assert program("sums", settings="fail=2").returncode == 0


@pytest.mark.parametrize("settings", ["order=sideways", "speed=3", "memory"])
def test_unknown_settings(program: Program, settings: str) -> None:
    result = program("sums", settings=settings)
    known = settings == "memory"  # no memory at all
    assert result.returncode == 1
    assert ("0 of 0 are in use" if known else "expected memory=BYTES") in result.stdout


def test_writes_behind_memory_are_found(plain: Program) -> None:
    assert plain("behind").stdout == "cases: behind: wrote 0 bytes behind device memory of 64 bytes\n"


@pytest.mark.parametrize(
    ("case", "message"),
    [("behind", "WRITE of size 4"), ("before", "READ of size 4"), ("dynamic_too_small", "WRITE of size 4")],
)
def test_the_sanitizer_names_the_kernel(sanitized: Program, case: str, message: str) -> None:
    result = sanitized(case)
    assert result.returncode != 0
    assert "heap-buffer-overflow" in result.stderr and message in result.stderr
    kernel = case.replace("_too_small", "")
    assert f"in dyc_emulated::cuda::{kernel}(" in result.stderr


def test_a_stack_that_is_too_deep_ends_the_process(plain: Program) -> None:
    """Rather than running into the memory of another thread."""
    assert plain("too_deep").returncode < 0
