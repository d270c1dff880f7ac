"""`predict`: every line once and in order, whatever is killed, started again or wrong in the input."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dynet_compat.distributed.lines import LineBlock
from dynet_compat.distributed.ray_workers import Pieces
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import command, descendants

KILLS = int(os.environ.get("DYNET_COMPAT_KILLS", "2"))
PREDICTOR = """
import os, time
import dynet_compat as dy

class Predictor:
    def __init__(self):
        self.model = dy.ParameterCollection()
        self.words = self.model.add_lookup_parameters((200, 4), init=1)

    def __call__(self, lines):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        dy.renew_cg()
        if any("bad" in line for line in lines):
            raise KeyError("bad")
        sums = [dy.sum_elems(dy.esum([self.words[len(w)] for w in line.split()])) for line in lines]
        dy.forward(sums)
        return [{"words": s.value() / 4} if i % 2 else f"{s.value() / 4:.0f}" for i, s in enumerate(sums)]
"""


def corpus(folder: Path, lines: int) -> list[str]:
    """Writes predictor and input; returns the result for it."""
    (folder / "model.py").write_text(PREDICTOR)
    rng = random.Random(1)
    counts = [rng.randint(1, 9) for _ in range(lines)]
    (folder / "in.txt").write_text("".join(" ".join(["word"] * n) + "\n" for n in counts))
    return [f'{{"words": {n}.0}}' if i % 7 % 2 else str(n) for i, n in enumerate(counts)]


def words(*options: str) -> list[str]:
    return [sys.executable, "-m", "dynet_compat", "predict", "--batch", "7", "--block", "70", "-o", "out",
            *options, "model.py:Predictor", "in.txt"]  # fmt: skip


def run(folder: Path, *options: str, ranks: int = 1) -> subprocess.CompletedProcess[str]:
    begin, env = ([], dict(os.environ)) if ranks == 1 else command("mpich", ranks)
    every = [*begin, *words(*options)]
    return subprocess.run(every, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def output(folder: Path) -> list[str]:
    return (folder / "out" / "output.txt").read_text().splitlines()


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_line_in_order(tmp_path: Path, ranks: int) -> None:
    wanted = corpus(tmp_path, 500)
    result = run(tmp_path, ranks=ranks)
    assert (result.returncode, output(tmp_path)) == (0, wanted), result.stderr
    assert "500 lines" in result.stderr and ("3 ranks" in result.stderr) == (ranks == 3)


def test_a_killed_job_is_finished_by_the_next(tmp_path: Path) -> None:
    wanted = corpus(tmp_path, 1500)
    begin, env = command("mpich", 2)
    env["PAUSE"] = "0.02"
    rng = random.Random(KILLS)
    for _ in range(KILLS):
        if (tmp_path / "out" / "output.txt").exists():  # it was done: from the start
            shutil.rmtree(tmp_path / "out")
        process = subprocess.Popen([*begin, *words()], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL,
                                   start_new_session=True)  # fmt: skip
        time.sleep(rng.uniform(0.8, 1.6))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    result = run(tmp_path, ranks=2)
    assert (result.returncode, output(tmp_path)) == (0, wanted), result.stderr


def test_bad_lines_cost_themselves_only(tmp_path: Path) -> None:
    wanted = corpus(tmp_path, 200)
    lines = (tmp_path / "in.txt").read_bytes().split(b"\n")
    lines[10], lines[150] = b"a bad line", b"\xff\xfe"
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines))
    result = run(tmp_path)
    assert result.returncode == 1 and "2 could not be predicted" in result.stderr, result.stderr
    errors = (tmp_path / "out" / "errors.txt").read_text().splitlines()
    assert errors[0] == "line 11: KeyError: 'bad'" and errors[1].startswith("line 151: is no UTF-8"), errors
    found = output(tmp_path)
    assert (len(found), found[10], found[150]) == (200, "", "")
    assert found[14:140] == wanted[14:140]


def test_another_input_is_not_mixed_in(tmp_path: Path) -> None:
    corpus(tmp_path, 100)
    assert run(tmp_path).returncode == 0
    corpus(tmp_path, 101)
    result = run(tmp_path)
    assert result.returncode == 2 and "another input" in result.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [("model.py", "wanted module:Class"), ("none.py:P", "no such file"), ("model.py:P", "no P")],
)
def test_a_predictor_that_is_not_there(tmp_path: Path, name: str, says: str) -> None:
    corpus(tmp_path, 10)
    command = [sys.executable, "-m", "dynet_compat", "predict", name, "in.txt", "-o", "out"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2 and says in result.stderr, result.stderr


def test_a_rank_that_fails_ends_the_job(tmp_path: Path) -> None:
    corpus(tmp_path, 300)
    with open(tmp_path / "model.py", "a") as file:  # rank 0 and 2 go on
        file.write("\nif os.environ.get('PMI_RANK') == '1': raise OSError('no such model')\n")
    result = run(tmp_path, ranks=3)
    assert result.returncode != 0
    assert "because of rank 1" in result.stderr and "no such model" in result.stderr, result.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_folder_that_is_a_file(tmp_path: Path, ranks: int) -> None:
    corpus(tmp_path, 300)
    (tmp_path / "out").write_text("")
    result = run(tmp_path, ranks=ranks)
    assert result.returncode != 0 and "-o out: File exists; wanted a folder" in result.stderr, result.stderr


def test_what_the_summary_counts(tmp_path: Path) -> None:
    """Blocks of other ranks were not there before, and old errors of a block go when it is done again."""
    corpus(tmp_path, 700)
    with open(tmp_path / "model.py", "a") as file:
        file.write("\nif os.environ.get('PMI_RANK') == '0': time.sleep(0.5)\n")  # rank 1 is done by then
    result = run(tmp_path, ranks=2)
    assert result.returncode == 0 and "already" not in result.stderr, result.stderr
    (tmp_path / "out" / "errors-000001.txt").write_text("line 71: of a job that was killed\n")
    (tmp_path / "out" / "part-000001.txt").unlink()
    result = run(tmp_path)
    assert result.returncode == 0 and "630 were there already" in result.stderr, result.stderr


def test_how_far_it_is(tmp_path: Path) -> None:
    corpus(tmp_path, 500)
    begin, env = command("mpich", 2)
    env["PAUSE"] = "0.1"
    every = [*begin, *words()]
    result = subprocess.run(every, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    shares = [int(share) for share in re.findall(r"predict: \[#* *\] +(\d+)%, [\d,]+ lines", result.stderr)]
    assert len(shares) > 1 and shares == sorted(shares) and 0 < shares[0] <= shares[-1] <= 100, result.stderr


@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=4), st.randoms(use_true_random=False))
def test_lines_that_end_workers_are_found(n: int, deadly: set[int], rng: random.Random) -> None:
    """Each other line is predicted, also where workers are lost for other reasons."""
    blocks = [LineBlock(k, 1 + 10 * k, [b"%d" % i for i in range(10 * k, min(n, 10 * k + 10))])
              for k in range((n + 9) // 10)]  # fmt: skip
    pieces, finished, lost = Pieces(blocks, 3), {}, 0
    while piece := pieces.next():
        block, losses = piece
        if any(int(line) in deadly for line in block.lines) or (lost < 8 and rng.random() < 0.1):
            done, lost = pieces.lost(block, losses), lost + 1
        else:
            done = pieces.done(block, ([line.decode() for line in block.lines], []))
        if done:
            finished[done[0].number] = done
    assert [finished[k][0] for k in range(len(blocks))] == blocks
    lines = [line for k in range(len(blocks)) for line in finished[k][1][0]]
    wrong = {10 * k + i for k in range(len(blocks)) for i, _ in finished[k][1][1]}
    assert lines == ["" if i in wrong else str(i) for i in range(n)]
    assert {i for i in deadly if i < n} <= wrong and len(wrong - deadly) <= 8 // 3


def ray_workers(driver: int) -> list[int]:
    """Of the Ray that this driver has started: others on the machine have theirs."""
    return [pid for pid, args in descendants(driver).items() if args.startswith("ray::Worker")]


def test_ray_gives_lost_blocks_to_other_workers(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    wanted = corpus(tmp_path, 1500 * KILLS)
    process = subprocess.Popen(
        words("--engine", "ray", "--workers", "2"), cwd=tmp_path, env={**os.environ, "PAUSE": "0.02"},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    rng, kills = random.Random(5), 0
    while process.poll() is None:
        time.sleep(rng.uniform(0.1, 1.5))
        if kills < KILLS and (listed := ray_workers(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(listed), signal.SIGKILL)
                kills += 1
    _, errors = process.communicate()
    assert (process.returncode, kills) == (0, KILLS), errors
    assert output(tmp_path) == wanted


def test_ray_gives_up_on_a_line_that_ends_workers(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    wanted = corpus(tmp_path, 20)
    text = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text(text.replace("dy.renew_cg()", "'deadly' in lines and os._exit(1)"))
    lines = (tmp_path / "in.txt").read_text().splitlines()
    lines[13] = "deadly"
    (tmp_path / "in.txt").write_text("\n".join(lines))
    result = run(tmp_path, "--engine", "ray", "--workers", "2", "--block", "7")
    errors = (tmp_path / "out" / "errors.txt").read_text()
    assert (result.returncode, errors) == (1, "line 14: ends the worker that predicts it\n"), result.stderr
    found = output(tmp_path)
    assert found[:7] + found[14:] == wanted[:7] + wanted[14:] and found.index("") == 13
