"""Parameters lie in chunks of huge pages, which go back to the system with the last buffer in them."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("memory of this package", allow_module_level=True)
if not Path("/sys/kernel/mm/transparent_hugepage").is_dir():
    pytest.skip("a system without huge pages for all", allow_module_level=True)

CHUNK = 4 << 20


def huge_bytes() -> int:
    """Of mappings that ask for huge pages; the arenas, which reserve all memory, left out."""
    total = size = 0
    with open("/proc/self/smaps", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if words[0] == "Size:":
                size = int(words[1]) << 10
            elif words[0] == "VmFlags:" and "hg" in words and "nr" not in words:
                total += size
    return total


def drop(dy: Any) -> None:
    dy.renew_cg()
    gc.collect()


def trained(dy: Any, matrices: int, rows: int = 256, updates: int = 3) -> Any:
    """A model that has values, spare values, gradients and the state of a trainer."""
    pc = dy.ParameterCollection()
    weights = [pc.add_parameters((rows, 256)) for _ in range(matrices)]
    trainer = dy.AdamTrainer(pc)
    for _ in range(updates):
        dy.renew_cg()
        dy.esum([dy.squared_norm(w) for w in weights]).backward()
        trainer.update()
    return pc, weights, trainer


def test_a_model_lies_in_huge_pages(dy: Any) -> None:
    drop(dy)
    before = huge_bytes()
    kept = trained(dy, 40)  # 40 matrices of 256 KB, five buffers of each
    assert huge_bytes() - before >= 40 << 20
    assert all(np.isfinite(w.as_array()).all() for w in kept[1])
    w = kept[1][7].as_array()
    del kept
    drop(dy)
    assert huge_bytes() <= before + CHUNK  # the one that is filled next
    assert np.isfinite(w).all()


def test_trainers_and_spare_values_that_come_and_go_leave_nothing(dy: Any) -> None:
    pc, weights, trainer = trained(dy, 10)
    before = huge_bytes()
    for _ in range(20):
        trainer = dy.AdamTrainer(pc)
        for _ in range(3):
            dy.renew_cg()
            dy.esum([dy.squared_norm(w) for w in weights]).backward()
            trainer.update()
        drop(dy)
    del trainer
    drop(dy)
    assert huge_bytes() <= before + 2 * CHUNK


def test_a_small_parameter_does_not_keep_the_memory_of_models_beside_it(dy: Any) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    drop(dy)
    before, kept = resident(), []
    for _ in range(60):
        large = dy.ParameterCollection()
        weights = [large.add_parameters((256, 256)) for _ in range(14)]
        kept.append(dy.ParameterCollection().add_parameters((64, 32), init=dy.ConstInitializer(2.0)))
        del large, weights
    drop(dy)
    assert resident() - before < 40 << 20  # 480 KB are kept, in 60 chunks
    assert all((p.as_array() == 2.0).all() for p in kept)


def test_small_models_and_large_tables_take_none(dy: Any) -> None:
    drop(dy)
    before = huge_bytes()
    pc = dy.ParameterCollection()
    small = [pc.add_parameters((10, 10)) for _ in range(1000)]
    table = pc.add_lookup_parameters((100_000, 100), init=dy.ConstInitializer(0.0))
    assert huge_bytes() == before
    assert table.shape() == (100_000, 100) and len(small) == 1000


def test_processes_forked_meanwhile_go_on(dy: Any) -> None:
    """No lock is held that a child would wait for, whatever other threads are doing."""
    stop = threading.Event()

    def make_models() -> None:
        while not stop.is_set():
            pc = dy.ParameterCollection()
            for _ in range(8):
                pc.add_parameters((64, 256), init=dy.ConstInitializer(1.0))

    threads = [threading.Thread(target=make_models) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                pc = dy.ParameterCollection()
                made = [pc.add_parameters((256, 256), init=dy.ConstInitializer(2.0)) for _ in range(20)]
                os._exit(0 if all((p.as_array() == 2.0).all() for p in made) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for t in threads:
            t.join()
