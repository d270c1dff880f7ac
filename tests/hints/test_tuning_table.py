"""Ways to run launches: results do not depend on them bit for bit; a profile finds them, hints bring them."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
import pytest
from ops.case import Case
from ops.cases import CASES
from support import runner
from support.programs import PATTERNS, Program, run
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own engine", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat import _core  # noqa: E402
from dynet_compat.hints import hints_file, runtime, tune  # noqa: E402
from sources import EXAMPLES  # noqa: E402

TURNS = 8  # more than the ways of any choice: work within other work is met in some of them only
Line = tuple[str, Sequence[str], Sequence[int], int, str]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def by_the_rules() -> Iterator[None]:
    yield
    _core._measure_variants(False)
    _core._install_tuning([], 1)


def same(got: Any, want: Any, what: str) -> None:
    """The same bits everywhere in two nests of arrays."""
    if isinstance(want, np.ndarray):
        if got.tobytes() == want.tobytes():
            return
        at = tuple(np.argwhere(~((got == want) | (np.isnan(got) & np.isnan(want))))[0])
        raise AssertionError(f"{what}: element {at} is {got[at]!r}, by the rules {want[at]!r}")
    if isinstance(want, dict):
        assert got.keys() == want.keys(), f"{what}: other keys"
        for key in want:
            same(got[key], want[key], f"{what}, {key}")
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), f"{what}: {len(got)} parts, by the rules {len(want)}"
        for number, (a, b) in enumerate(zip(got, want)):
            same(a, b, f"{what}, part {number}")
    else:
        assert got == want, f"{what}: {got!r}, by the rules {want!r}"


def measured() -> list[Line]:
    """Every way of all work that was measured."""
    rows = _core._measurements()
    return [(r["choice"], r["ops"], r["extents"], r["size"], r["way"]) for r in rows]


def in_new_graph(program: Callable[[], Any]) -> Any:
    """What the program results in with a graph that has learned nothing but from it: the order in which a
    planner adds gradients up depends on what it has learned so far."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run_it() -> None:
        try:
            for _ in range(TURNS):
                results[:] = [program()]
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run_it)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def compare(program: Callable[[], Any], table: Sequence[Line], what: str, used: bool = True) -> None:
    """Run a program by the rules and with a table."""
    _core._install_tuning([], 1)
    want = in_new_graph(program)
    assert _core._install_tuning(table, _core.threads()) == 0, f"{what}: {table}"
    before = _core.timing()["variants_taken"]
    got = in_new_graph(program)
    taken = _core.timing()["variants_taken"] > before
    assert not (table and used) or taken, f"{what}: the table {table} is not used"
    same(got, want, f"{what}, with the table {table}")


def in_all_ways(program: Callable[[], Any], what: str) -> set[str]:
    """Run a program with tables that together have all ways of all work; returns what was chosen."""
    _core._measure_variants(True)
    for _ in range(TURNS):
        program()
    _core._measure_variants(False)
    lines = measured()
    ways: dict[str, list[Line]] = {}
    for line in lines:
        ways.setdefault(repr(line[:4]), []).append(line)
    for number in range(max(map(len, ways.values()), default=0)):
        compare(program, [of_work[number % len(of_work)] for of_work in ways.values()], what)
    _core._install_tuning([], 1)
    return {f"{line[0]} {line[4]}" for line in lines}


BY_OP: dict[str, list[Case]] = {}
for _case in CASES:
    BY_OP.setdefault(_case.op, []).append(_case)


@pytest.mark.parametrize("op", sorted(BY_OP))
def test_cases(dy: Any, op: str) -> None:
    """All cases of an op in one graph: values, gradients, draws."""
    cases = BY_OP[op]
    grads = all(case.diff for case in cases)
    in_all_ways(lambda: runner.evaluate_together(dy, [(c, 2) for c in cases], True, grads), op)


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(dy: Any, seed: int) -> None:
    program = Program(seed, 20 + 3 * seed, PATTERNS[seed % len(PATTERNS)], seed % 2 == 1)
    in_all_ways(lambda: run(dy, program, True), f"program {seed}")


def cells(dy: Any, n: int, size: int, steps: int) -> Callable[[], Any]:
    """LSTM cells of two directions, their outputs through a layer, dropout: all that runs in several ways."""
    pc = dy.ParameterCollection()
    forth, back = (dy.VanillaLSTMBuilder(1, size, size, pc) for _ in range(2))
    W, b = pc.add_parameters((23, 2 * size)), pc.add_parameters(23)
    E = pc.add_lookup_parameters((50, size))
    every = [p for p in (*pc.parameters_list(), *pc.lookup_parameters_list())]

    def program() -> Any:
        dy.renew_cg()
        dy.reset_random_seed(4)
        losses = []
        for i in range(n):
            xs = [E[(i * 7 + t) % 50] for t in range(steps - i % 2)]
            hs = forth.initial_state().transduce(xs)
            gs = back.initial_state().transduce(xs[::-1])[::-1]
            for h, g in zip(hs, gs):
                x = dy.dropout(dy.tanh(dy.concatenate([h, g])), 0.3)
                losses.append(dy.pickneglogsoftmax(dy.affine_transform([b, W, dy.rectify(x)]), i % 23))
        loss = dy.esum(losses)
        loss.backward()
        gradients = [np.array(p.grad_as_array()) for p in every]
        value = np.array([loss.scalar_value()])
        for p in every:
            p.scale_gradient(0)
        return value, gradients

    return program


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n, size, steps", [(3, 5, 4), (40, 16, 4), (70, 64, 3), (9, 256, 2), (40, 200, 2)])
def test_cells(dy: Any, n: int, size: int, steps: int, threads: int) -> None:
    kept = _core.threads()
    _core.set_threads(threads)
    try:
        in_all_ways(cells(dy, n, size, steps), f"{n} cells of {size} with {threads} threads")
    finally:
        _core.set_threads(kept)


def test_all_ways_ran(dy: Any) -> None:
    """The programs of this file have met every way of every choice."""
    seen = in_all_ways(cells(dy, 40, 16, 4), "cells")

    def chain() -> Any:
        dy.renew_cg()
        xs = [dy.inputTensor(np.linspace(-1, 1 + i, 300)) for i in range(20)]
        ys = [dy.tanh(dy.exp(dy.sin(x))) for x in xs[:1]] + [dy.logistic(dy.square(x)) for x in xs]
        loss = dy.sum_elems(dy.esum(ys))
        loss.backward(full=True)
        return np.array([loss.scalar_value()]), [np.array(x.gradient()) for x in xs]

    seen |= in_all_ways(chain, "a chain")
    every = {f"{choice} {way}" for choice, ways in _core._variants().items() for way in ways[1:]}
    assert not every - seen, f"ways that no program here has taken: {sorted(every - seen)}"


# ---------------------------------------------------------------- tables that mean no good


def product(pc: Any) -> Callable[[], Any]:
    import dynet_compat as dy

    W, xs = pc.add_parameters((20, 20)), [[float(i)] * 20 for i in range(40)]  # one product, in no block

    def program() -> Any:
        dy.renew_cg()
        ys = [W * dy.inputVector(x) for x in xs]
        dy.esum(ys).forward()
        return [y.npvalue() for y in ys]

    return program


HOSTILE: list[tuple[Any, ...]] = [
    ("no such choice", [], [20, 20], 5, "copy"),
    ("product", [], [20, 20], 5, "no such way"),
    ("product", [], [20, 20], 5, "apart"),  # a way of blocks
    ("product", [], [20, 20], 5, "rule"),
    ("product", ["no such op"], [20, 20], 5, "copy"),
    ("product", [], [-1, 20], 5, "copy"),
    ("product", [], [1 << 62, 20], 5, "copy"),
    ("product", [], [20] * 1000, 5, "copy"),
    ("block", ["tanh"] * 1000, [], 5, "apart"),
    ("product", [], [20, 20], -1, "copy"),
    ("product", [], [20, 20], 1 << 40, "copy"),
    ("", [], [], 0, ""),
]


def test_hostile_lines(dy: Any) -> None:
    program = product(dy.ParameterCollection())
    want = program()
    for line in HOSTILE:
        assert _core._install_tuning([line], 1) == 1, f"{line} was taken"
        same(program(), want, str(line))
    assert _core._install_tuning(HOSTILE, 1) == len(HOSTILE)


def test_random_lines(dy: Any) -> None:
    """Tables of known words at random places change nothing."""
    program = cells(dy, 12, 8, 3)
    rng = random.Random(5)
    ways = _core._variants()
    _core._measure_variants(True)
    for _ in range(TURNS):
        program()
    _core._measure_variants(False)
    known = measured()
    for _ in range(60):
        lines = []
        for choice, ops, extents, size, _way in rng.choices(known, k=20):
            size = max(0, size + rng.choice([0, 0, 0, 1, -1]))
            extents = [max(0, e + rng.choice([0, 0, 0, 0, 1, -1])) for e in extents]
            lines.append((choice, ops, extents, size, rng.choice(ways[choice][1:])))
        compare(program, lines, "cells", used=False)


def test_other_threads(dy: Any) -> None:
    """A table for so many threads is not looked into with others."""
    program = cells(dy, 12, 8, 3)
    in_all_ways(program, "cells")
    _core._measure_variants(True)
    for _ in range(TURNS):
        program()
    _core._measure_variants(False)
    _core._install_tuning(measured(), _core.threads() + 1)
    before = _core.timing()["variants_taken"]
    program()
    assert _core.timing()["variants_taken"] == before


# ---------------------------------------------------------------- from the profile to the next run


def row(way: str, ratio: float, low: float, rounds: int = 50, **more: Any) -> dict[str, Any]:
    common = {"choice": "chain", "ops": ["tanh", "exp"], "extents": [64], "size": 4, "runs": 1000}
    return {**common, "seconds": 1e-5, "way": way, "ratio": ratio, "low": low, "rounds": rounds, **more}


def test_only_what_is_clear_is_kept() -> None:
    assert tune.faster([row("apart", 1.5, 1.01)]) == ()  # not in each third of the run
    assert tune.faster([row("apart", 1.5, 1.4, rounds=3)]) == ()  # too few
    assert tune.faster([]) == ()
    rows = [row("apart", 1.2, 1.1), row("tile_512", 1.3, 1.2), row("tile_1024", 1.4, 0.9)]
    (entry,) = tune.faster(rows)
    assert entry == hints_file.TuningEntry("chain", ("tanh", "exp"), (64,), 4, "tile_512", 130, 50)
    rare = row("apart", 1.5, 1.4, runs=20, size=5)
    often = row("apart", 1.0, 1.0, runs=10**6, size=6)
    assert tune.faster([rare, often]) == ()  # not worth a look before every launch
    assert [w.size for w in tune.faster([rare, *rows])] == [4, 5]  # the most useful first


def test_explanation() -> None:
    entries = tune.faster([row("tile_512", 1.3, 1.2), row("copy", 2, 2, choice="product", ops=[], size=9)])
    lines = tuple(tune.LaunchLine("a.py", line, "tanh", 4) for line in (7, 9))
    found = tune.Profile(1, lines, hints_file.TuningTable("avx2", 2, entries))
    assert tune.explanation(found) == [
        "variants that were faster than the rules' (avx2, 2 threads):",
        "  product 64, 512 to 1023 columns: copy, 2.00 times as fast (50 rounds)",
        "  a.py:7, a.py:9: chain tanh,exp 64, 16 to 31 nodes: tile_512, 1.30 times as fast (50 rounds)",
    ]
    assert "none" in tune.explanation(tune.Profile(1, (), hints_file.TuningTable("avx2", 1, ())))[1]


def command(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(
        p for p in (str(Path(_core.__file__).parents[1]), os.environ.get("PYTHONPATH")) if p
    )
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": path, "DYNET_COMPAT_THREADS": "1", **environment},
    )  # fmt: skip


def with_entries(path: Path, entries: list[dict[str, Any]]) -> None:
    """Replaces the tuning table of a hints file."""
    contents = json.loads(path.read_text())
    contents["tuning"] = {"isa": _core.isa(), "threads": 1, "entries": entries}
    rest = {k: v for k, v in contents.items() if k not in ("format", "version")}
    head = json.dumps({"format": contents["format"], "version": contents["version"]})[:-1]
    path.write_text(head + ", " + json.dumps(rest)[1:])


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An example that was profiled."""
    folder = tmp_path_factory.mktemp("profiled")
    for name in ("rnnlm.py", "common.py", "data.py"):
        (folder / name).write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    arguments = "--hidden 16 --batch 32 --steps 40 --limit 500 --quiet"
    compiled = ("-m", "dynet_compat", "compile", "rnnlm.py", "--explain", "--profile", arguments)
    done = command(*compiled, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "variants that were faster than the rules" in done.stdout
    return folder


ARGUMENTS = "--hidden 16 --batch 32 --steps 12 --limit 500 --quiet --dynet-seed 3 --losses"
RUN = ["-m", "dynet_compat", "run", "rnnlm.py", *ARGUMENTS.split()]


def losses(folder: Path, name: str, hints: str) -> tuple[list[float], str]:
    done = command(*RUN, name, folder=folder, DYNET_COMPAT_HINTS=hints)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / name).read_text())["losses"], done.stderr


def test_a_profile_of_an_example(profiled: Path) -> None:
    hints = hints_file.read(str(profiled / "rnnlm.dyhints"))
    assert hints.tuning is not None
    assert hints.tuning.isa == _core.isa() and hints.tuning.threads == 1
    lines = [(e.knob, e.ops, e.dims, e.size, e.variant) for e in hints.tuning.entries]
    assert _core._install_tuning(lines, 1) == 0, "the table has entries that the engine does not know"
    assert all(e.percent > 100 and e.rounds >= tune.LEAST_ROUNDS for e in hints.tuning.entries)
    assert losses(profiled, "with.json", "rnnlm.dyhints")[0] == losses(profiled, "without.json", "off")[0]


def test_unknown_entries_are_one_line(profiled: Path, tmp_path: Path) -> None:
    path = profiled / "odd.dyhints"
    path.write_text((profiled / "rnnlm.dyhints").read_text())
    entry = {"knob": "product", "ops": ["gone"], "dims": [1], "size": 1, "variant": "copy"}
    entry.update(percent=110, rounds=9)
    with_entries(path, [entry, {**entry, "ops": [], "variant": "gone"}, {**entry, "ops": []}])
    want, _ = losses(profiled, "without.json", "off")
    got, text = losses(profiled, "odd.json", "odd.dyhints")
    assert got == want and text.count("2 of 3 entries of the tuning table are not known") == 1, text
    with_entries(path, [{**entry, "size": "much"}])
    got, text = losses(profiled, "odd.json", "odd.dyhints")
    assert got == want and text.count("hints not used") == 1, text


def test_a_stale_file_brings_no_ways(profiled: Path) -> None:
    path, script = profiled / "stale.dyhints", profiled / "rnnlm.py"
    text = script.read_text()
    path.write_text((profiled / "rnnlm.dyhints").read_text())
    script.write_text(text + "# changed\n")
    try:
        with pytest.raises(hints_file.HintsError, match="stale"):
            hints_file.read(str(path))
        assert "hints not used: stale" in losses(profiled, "stale.json", "stale.dyhints")[1]
    finally:
        script.write_text(text)


def is_tuned(table: Optional[hints_file.TuningTable], program: Callable[[], Any]) -> bool:
    runtime.use_tuning(table)
    before = _core.timing()["variants_taken"]
    program()
    return bool(_core.timing()["variants_taken"] > before)


def test_ways_are_for_one_kind_of_processor(dy: Any, caplog: pytest.LogCaptureFixture) -> None:
    program = product(dy.ParameterCollection())
    entries = (hints_file.TuningEntry("product", (), (20, 20), 5, "alone", 120, 9),)
    here = hints_file.TuningTable(_core.isa(), _core.threads(), entries)
    elsewhere = hints_file.TuningTable("z80", _core.threads(), entries)
    with caplog.at_level(logging.INFO, "dynet_compat"):
        assert not is_tuned(elsewhere, program)
    assert "the tuning table is for z80" in caplog.text
    assert is_tuned(here, program)
    assert not is_tuned(elsewhere, program), "the table of other hints is still in use"
    assert is_tuned(here, program)
    assert not is_tuned(None, program), "the table of hints that were in use before is still in use"
    assert is_tuned(here, program)
    runtime.deactivate()
    before = _core.timing()["variants_taken"]
    program()
    assert _core.timing()["variants_taken"] == before, "hints that are no longer in use still choose"
