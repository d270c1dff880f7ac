"""`predict`: every line once and in order, whatever is killed, started again or wrong in the input."""

from __future__ import annotations

import gzip
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.jobs import command
from support.predictions import corpus, output, words

KILLS = int(os.environ.get("DYNET_COMPAT_KILLS", "2"))


def run(folder: Path, *options: str, ranks: int = 1) -> subprocess.CompletedProcess[str]:
    begin, env = ([], dict(os.environ)) if ranks == 1 else command("mpich", ranks)
    every = [*begin, *words(*options)]
    return subprocess.run(every, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_line_in_order(tmp_path: Path, ranks: int) -> None:
    wanted = corpus(tmp_path, 500)
    result = run(tmp_path, ranks=ranks)
    assert (result.returncode, output(tmp_path)) == (0, wanted), result.stderr
    assert "500 lines" in result.stderr and ("3 ranks" in result.stderr) == (ranks == 3)


def test_ranks_divide_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNET_COMPAT_THREADS", raising=False)
    corpus(tmp_path, 200)
    (tmp_path / "model.py").write_text(
        "from dynet_compat import _core\n"
        "class Predictor:\n    __call__ = lambda self, lines: [_core.threads() for _ in lines]\n"
    )
    result = run(tmp_path, ranks=2)
    assert result.returncode == 0, result.stderr
    assert set(output(tmp_path)) == {str(max(1, len(os.sched_getaffinity(0)) // 2))}


def test_a_killed_job_is_finished_by_the_next(tmp_path: Path) -> None:
    wanted = corpus(tmp_path, 1500, pause=0.02)
    begin, env = command("mpich", 2)
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
    assert result.stderr.startswith("predict: line 11: KeyError: 'bad'\n"), result.stderr
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
    assert result.returncode == 2 and "has results of another input; remove" in result.stderr, result.stderr


def test_a_changed_predictor_is_not_mixed_in(tmp_path: Path) -> None:
    corpus(tmp_path, 100)
    assert run(tmp_path).returncode == 0
    with open(tmp_path / "model.py", "a") as file:
        file.write("# mended\n")
    result = run(tmp_path, "--block", "71")
    assert "has results of another --block and another predictor; remove" in result.stderr, result.stderr


def test_gzip(tmp_path: Path) -> None:
    wanted = corpus(tmp_path, 500)
    packed = gzip.compress((tmp_path / "in.txt").read_bytes())
    (tmp_path / "in.txt").write_bytes(packed)
    result = run(tmp_path, ranks=2)
    assert (result.returncode, output(tmp_path)) == (0, wanted), result.stderr
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "in.txt").write_bytes(packed[: len(packed) // 2])
    result = run(tmp_path)
    assert result.returncode == 2, result.stderr
    assert re.search(r"in.txt: not whole after line \d+: ", result.stderr), result.stderr


@pytest.mark.parametrize(("lines", "ranks"), [(0, 1), (0, 2), (1, 3)])
def test_fewer_lines_than_ranks(tmp_path: Path, lines: int, ranks: int) -> None:
    wanted = corpus(tmp_path, lines)
    result = run(tmp_path, ranks=ranks)
    assert (result.returncode, output(tmp_path)) == (0, wanted), result.stderr
    assert f"{lines:,} line" in result.stderr


def test_options_of_dynet(tmp_path: Path) -> None:
    corpus(tmp_path, 20)
    run_with = [*words(), "--dynet-seed", "3", "--dynet-mem=100"]
    result = subprocess.run(run_with, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0 and "random seed: 3" in result.stderr, result.stderr
    for wrong in (["--sed", "3"], ["--dynet-mem=100", "3"], ["--engine", "ray", "--dynet-seed", "3"]):
        result = subprocess.run([*words(), *wrong], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 2, (wrong, result.stderr)


def test_results_of_numpy(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import numpy as np\nclass Predictor:\n"
        "    __call__ = lambda self, lines: [np.arange(2), np.float32(0.5), {'best': np.int64(3)}, 'text']\n"
    )
    (tmp_path / "in.txt").write_text("a\nb\nc\nd\n")
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    assert output(tmp_path) == ["[0, 1]", "0.5", '{"best": 3}', "text"]


def test_an_error_of_the_program_shows_where(tmp_path: Path) -> None:
    """A ValueError, too, which is what loading a wrong model raises."""
    corpus(tmp_path, 10)
    text = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text(text.replace("init=1", "init='one'"))
    result = run(tmp_path)
    assert result.returncode == 1 and 'model.py", line 10, in __init__' in result.stderr, result.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [("model.py", "wanted module:Class"), ("none.py:P", "no such file"), ("model.py:P", "no P"),
     ("nothing:P", "no module nothing"), ("no.thing:P", "no module no.thing")],
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
    corpus(tmp_path, 500, pause=0.1)
    begin, env = command("mpich", 2)
    every = [*begin, *words()]
    result = subprocess.run(every, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    shares = [int(share) for share in re.findall(r"predict: \[#* *\] +(\d+)%, [\d,]+ lines", result.stderr)]
    assert len(shares) > 1 and shares == sorted(shares) and 0 < shares[0] <= shares[-1] <= 100, result.stderr


@settings(deadline=None, suppress_health_check=list(HealthCheck))
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
