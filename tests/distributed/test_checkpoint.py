"""A job that is killed at any moment and started again ends with the bits of one that was not."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import SCRIPTS, descendants, distribute, job

KILLS = int(os.environ.get("DYNET_COMPAT_KILLS", "3"))
UPDATES = 600
KILLED = -signal.SIGKILL, signal.SIGKILL  # what mpiexec returns
OPTIONS = ("--seed", 7, "--every", 10)


def arguments(out: Path) -> list[Any]:
    return ["train.py", "tree", "AdamTrainer", 6, UPDATES, out]


def start(folder: Path, out: Path, overlap: str = "no") -> subprocess.Popen[str]:
    options = (*OPTIONS, "--checkpoint", folder, "--overlap", overlap)
    words, env = distribute(arguments(out), options=options)
    return subprocess.Popen(
        words, env=env, cwd=out.parent, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """Not the manager of MPI between them and mpiexec."""
    every = descendants(process.pid).items()
    return [pid for pid, args in every if "train.py" in args and args.startswith(sys.executable)]


def resumes(errors: str) -> bool:
    """From a checkpoint on the way, not from the end of a job that nothing has killed."""
    found = re.search(r"resuming after update (\d+)", errors)
    return found is not None and int(found[1]) < UPDATES


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the ranks with ps")
def test_killed_jobs_resume_to_the_same_bits(tmp_path: Path) -> None:
    options = (*OPTIONS, "--checkpoint", tmp_path / "a")
    begin = time.monotonic()
    whole = job(arguments(tmp_path / "whole"), options=options, cwd=tmp_path)
    seconds = time.monotonic() - begin
    assert whole.returncode == 0, whole.stderr
    wanted = np.load(tmp_path / "whole0.npy")
    rng, kills, resumed = random.Random(KILLS), 0, False
    for _ in range(20 * KILLS + 20):
        if kills >= KILLS and resumed:
            break
        begin, fresh = time.monotonic(), not (tmp_path / "b" / "checkpoint").exists()
        process = start(tmp_path / "b", tmp_path / "killed", rng.choice(["yes", "no"]))
        try:
            process.wait(timeout=rng.uniform(0.3, 1.0) * seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(IndexError, ProcessLookupError):  # it has ended meanwhile
                os.kill(rng.choice(ranks_of(process)), signal.SIGKILL)
                kills += 1
        _, errors = process.communicate(timeout=30)  # mpiexec ends the other rank
        resumed = resumed or resumes(errors)
        if process.returncode:
            assert process.returncode in KILLED, errors
            continue
        if fresh:  # the load of the machine changes
            seconds = time.monotonic() - begin
        got = np.load(tmp_path / "killed0.npy")
        assert (got == wanted).all(), f"after {kills} kills it differs by {np.abs(got - wanted).max()}"
        if kills < KILLS:  # the next one from the start
            for file in (tmp_path / "b").iterdir():
                file.unlink()
    assert kills >= KILLS and resumed, f"{kills} kills, resumed: {resumed}"
    process = start(tmp_path / "b", tmp_path / "killed")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert (np.load(tmp_path / "killed0.npy") == wanted).all()


def test_one_process_has_checkpoints_too(tmp_path: Path) -> None:
    def run(updates: int, out: str, folder: str) -> None:
        begin = ["-m", "dynet_compat", "distribute", *OPTIONS, "--checkpoint", tmp_path / folder]
        words = [*begin, SCRIPTS / "train.py", "tagger", "AdamTrainer", 5, updates, tmp_path / out]
        result = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr

    run(60, "whole", "a")
    run(35, "first", "b")  # the checkpoint is that of update 30
    run(60, "second", "b")
    assert (np.load(tmp_path / "whole0.npy") == np.load(tmp_path / "second0.npy")).all()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    first = job(arguments(tmp_path / "x"), options=(*OPTIONS, "--checkpoint", folder), cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    result = job(arguments(tmp_path / "x"), ranks=3, options=(*OPTIONS, "--checkpoint", folder), cwd=tmp_path)
    assert result.returncode != 0 and "written by 2 ranks" in result.stderr, result.stderr
    (folder / "checkpoint").write_bytes(b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    result = job(arguments(tmp_path / "x"), options=(*OPTIONS, "--checkpoint", folder), cwd=tmp_path)
    assert result.returncode != 0 and "os.system" in result.stderr, result.stderr


def resumed(
    folder: Path, script: str, *options: Any, ranks: int = 2, mpi: str = "mpich"
) -> list[subprocess.CompletedProcess[str]]:
    """The script after 7 updates of 10, after 10 with the checkpoint of update 6, and after 10 without."""
    (folder / "script.py").write_text(script)
    runs = []
    for updates, saved in ((7, "a"), (10, "a"), (10, "b")):
        words = ["--every", 3, "--checkpoint", folder / saved, *options]
        runs.append(job([folder / "script.py", updates], ranks, mpi, tuple(words), folder))
    return runs


COUNTING = """
import dynet as dy, sys
pc = dy.ParameterCollection(); p = pc.add_parameters(3, init=1); t = dy.AdamTrainer(pc)
for k in range(int(sys.argv[1])):
    {before}
    batch = dy.distributed.shard([1, 2, 3])
    dy.renew_cg(); dy.esum([dy.squared_norm(dy.dropout(p, 0.3) - x) for x in batch]).backward(); t.update()
print(*p.npvalue().view("u4"))
"""


def same_in_the_end(runs: list[subprocess.CompletedProcess[str]]) -> None:
    assert [run.returncode for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    assert "resuming after update 6" in runs[1].stderr
    assert runs[1].stdout.splitlines()[-1] == runs[2].stdout.splitlines()[-1]


def test_after_the_last_update(tmp_path: Path) -> None:
    """Killed then, and started again when it has finished: the updates since the checkpoint are done again, N
    where the last one is an N-th. Logs go on, too."""
    end = "if not os.path.exists('again') and dy.distributed.rank: os.kill(os.getpid(), 9)\n"
    end += "dy.distributed.sum(1); pc.save('saved'); print('from here on'); print(*p"
    script = COUNTING.format(before="print(k)").replace("print(*p", "import os\n" + end)
    (tmp_path / "script.py").write_text(script)
    options = ("--every", 3, "--seed", 7, "--timeout", 5)
    kept, words = (*options, "--checkpoint", tmp_path / "a"), [tmp_path / "script.py", 9]
    killed = job(words, options=kept, cwd=tmp_path)
    assert killed.returncode != 0 and not (tmp_path / "saved").exists()
    (tmp_path / "again").touch()
    whole = job(words, options=(*options, "--logs", "whole"), cwd=tmp_path)
    saved = (tmp_path / "saved").read_bytes()
    (tmp_path / "saved").unlink()
    for _ in range(2):
        again = job(words, options=kept, cwd=tmp_path)
        assert again.returncode == 0 and "resuming after update 6" in again.stderr, again.stderr
        assert again.stdout.splitlines() == whole.stdout.splitlines()[7:]
        assert (tmp_path / "saved").read_bytes() == saved
        (tmp_path / "saved").unlink()
    assert re.findall(r"^\d$", (tmp_path / "rank1.log").read_text(), re.M) == [*"012345678", *"7878"]


def test_results_are_kept_as_they_were(tmp_path: Path) -> None:
    """The script changes what it got."""
    before = """
    got, mine = dy.distributed.broadcast([k]), dy.distributed.shard([0])
    part = dy.distributed.gather([k for _ in mine], of=mine)
    if (got, part) != ([k], [k]): raise SystemExit(f'{got} and {part} in update {k}')
    got.append(1); part.append(2)
"""
    same_in_the_end(resumed(tmp_path, COUNTING.format(before=before), "--seed", 7, ranks=1))


def test_results_that_cannot_be_read_back_are_refused_at_once(tmp_path: Path) -> None:
    for item in ("datetime.date(2020, 1, 1)", "Own()"):
        before = "import datetime; Own = type('Own', (), {}); globals().update(Own=Own); "
        before += f"dy.distributed.broadcast({item})"
        first, *_ = resumed(tmp_path, COUNTING.format(before=before), ranks=1)
        assert first.returncode != 0, first.stdout
        assert "a checkpoint cannot hold the result" in first.stderr, first.stderr


def test_the_drawn_seed_and_the_feedback_are_kept(tmp_path: Path) -> None:
    """Without --seed: only the first run draws one. The whole run is given that one."""
    script = COUNTING.format(before="") + "print(dy.distributed.state.job.seed)\n"
    script = script.replace("print(*p", "p.as_array(); print(*p")
    (tmp_path / "script.py").write_text(script)
    options = ("--every", 3, "--checkpoint", tmp_path / "a", "--compress", "float16")
    first, second = (job([tmp_path / "script.py", n], options=options, cwd=tmp_path) for n in (7, 10))
    seed = first.stdout.split()[-1]
    assert second.stdout.split()[-1] == seed, second.stdout + second.stderr
    whole = job([tmp_path / "script.py", 10], options=("--seed", seed, "--compress", "float16"), cwd=tmp_path)
    assert second.stdout.splitlines()[-2:] == whole.stdout.splitlines()[-2:], whole.stderr
    other = job([tmp_path / "script.py", 10], options=(*options, "--seed", int(seed) + 1), cwd=tmp_path)
    assert other.returncode != 0 and f"of a run with seed {seed}" in other.stderr, other.stderr


# Its loss cannot take an empty shard, reads values and gradients on the way, and draws from three generators,
# of which ranks of unequal shards draw unequally; two trainers share a loss that is read after their updates,
# and one adds noise first.
STRICT = """
import random, sys
import dynet as dy
import numpy as np

pc = dy.ParameterCollection()
E = pc.add_lookup_parameters((9, 3))
qc = dy.ParameterCollection()
W = qc.add_parameters((2, 3))
trainers = [dy.AdamTrainer(pc), dy.MomentumSGDTrainer(qc)]
noise = np.random.default_rng(8)
trainers[1].before_update.append(lambda t: W.set_gradient(W.grad_as_array() + noise.normal(0, 0.1, (2, 3))))
order, own, total = random.Random(3), np.random.default_rng(5), 0.0
for k in range((int(sys.argv[1]) + 1) // 2):
    batch = dy.distributed.shard(order.sample(range(9), 5))
    dy.renew_cg()
    words = [w if random.random() < 0.7 else np.random.randint(9) for w in batch]
    xs = dy.dropout(dy.lookup_batch(E, words), 0.3)
    moved = xs + dy.inputVector(own.normal(0, 0.1, 3 + len(batch))[:3])
    first = dy.sum_batches(dy.squared_norm(moved))
    first.backward()
    direction = moved.gradient()
    scaled = direction / math.sqrt((direction**2).sum())
    hs = [W * (E[w] + dy.inputVector(scaled[:, i])) for i, w in enumerate(words)]
    loss = dy.squared_norm(dy.concatenate(hs))
    loss.backward()
    for trainer in trainers:
        trainer.update()
    total += dy.distributed.sum(loss.value())
print(total.hex(), *E.as_array().ravel().tolist(), *W.as_array().ravel().tolist())
""".replace("import random", "import math, random", 1)

# Five items on two ranks are shared once; the loop has no shard(). The number drawn by the loss is read after
# the update, as is the loss.
ONCE = """
import random, sys
import dynet as dy

pc = dy.ParameterCollection(); p = pc.add_parameters(3, init=1); t = dy.AdamTrainer(pc)
data = dy.distributed.shard([1.0, 2.0, 3.0, 4.0, 5.0])
for k in range(int(sys.argv[1])):
    dy.renew_cg()
    losses = dy.concatenate([dy.squared_norm(dy.dropout(p, 0.3) - x * random.random()) for x in data])
    loss = dy.sum_elems(losses)
    loss.backward()
    t.update()
    losses.npvalue()
print(*p.npvalue().view("u4"))
"""


@pytest.mark.parametrize(
    ("script", "mpi"), [(STRICT, "mpich"), (STRICT, "openmpi"), (ONCE, "mpich")],
    ids=["strict", "openmpi", "once"],
)  # fmt: skip
def test_a_script_catches_up_with_its_usual_shards(tmp_path: Path, script: str, mpi: str) -> None:
    runs = resumed(tmp_path, script, "--seed", 7, mpi=mpi)
    assert [run.returncode for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    assert re.search(r"resuming after update [467]\n", runs[1].stderr), runs[1].stderr
    assert "not drawn" not in runs[1].stderr
    assert runs[1].stdout == runs[2].stdout != runs[0].stdout


def test_nothing_is_computed_while_catching_up(tmp_path: Path) -> None:
    """Where the sum over ranks gets the loss itself."""
    script = COUNTING.format(before="print(dy.distributed.state.job._catching_up, nodes(), file=log)")
    script = script.replace("pc =", COUNTED + "pc =").replace(").backward()", "); loss.backward()")
    script = script.replace("dy.esum(", "loss = dy.esum(")
    script = script.replace("t.update()", "t.update(); dy.distributed.sum(loss)")
    same_in_the_end(resumed(tmp_path, script, "--seed", 7))
    lines = [line.split() for line in (tmp_path / "computed.txt").read_text().splitlines()]
    before = [int(n) for skips, n in lines if skips == "True"]
    assert len(before) == 7 and before[-1] == 0 < int(lines[-1][1]), lines


COUNTED = """
from dynet_compat import _core
nodes = lambda: int(_core.timing()["launches"])
log = open("computed.txt", "a") if dy.distributed.is_main else sys.stderr
"""


def test_others_wait_for_a_checkpoint_that_takes_long(tmp_path: Path) -> None:
    """As large ones on slow drives do."""
    slow = """
import time
from dynet_compat.distributed.checkpoint import Checkpoints
write = Checkpoints._write
Checkpoints._write = lambda *these: (time.sleep(4), write(*these))
"""
    (tmp_path / "slow.py").write_text(slow + COUNTING.format(before=""))
    options = ("--every", 3, "--timeout", 2, "--checkpoint", tmp_path / "a")
    result = job([tmp_path / "slow.py", 5], options=options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_sum_of_vectors_is_the_same_again(tmp_path: Path) -> None:
    """Expressions of several elements, of which nothing is computed on the way."""
    after = "t.update(); total = dy.distributed.sum(dy.concatenate([loss, loss])); assert len(total) == 2"
    script = COUNTING.format(before="").replace("dy.esum(", "loss = dy.esum(").replace(").backward()", ")")
    script = script.replace("; t.update()", f"; loss.backward(); {after}")
    same_in_the_end(resumed(tmp_path, script, "--seed", 7))


def test_numbers_drawn_by_values_are_said(tmp_path: Path) -> None:
    """On rank 1 only: what it draws depends on a parameter."""
    draws = "random.random() for _ in range(int(1e4 * p.npvalue()[0]) * dy.distributed.rank)"
    before = f"import random; [{draws}]"
    *_, errors = (run.stderr for run in resumed(tmp_path, COUNTING.format(before=before), "--seed", 7)[:2])
    assert "on rank 1 Python's or NumPy's random numbers were not drawn as in the run before" in errors


# A trainer that updates every second minibatch keeps gradients over checkpoints.
SELDOM = """
import sys
import dynet as dy

pc, qc = dy.ParameterCollection(), dy.ParameterCollection()
p, E = pc.add_parameters(3, init=1), qc.add_lookup_parameters((5, 3), init=1)
often, seldom = dy.AdamTrainer(pc), dy.MomentumSGDTrainer(qc)
updates, k = int(sys.argv[1]), 0
while updates > 0:
    batch = dy.distributed.shard(range(k, k + 3))
    dy.renew_cg()
    dy.esum([dy.squared_norm(p - E[x % 5] * x) for x in batch]).backward()
    often.update()
    updates -= 1
    if k % 2 and updates > 0:
        seldom.update()
        updates -= 1
    k += 1
print(*p.npvalue().view("u4"), pc.values_hash(), qc.values_hash(), often.state_hash(), seldom.state_hash())
"""


def test_gradients_that_wait_for_their_update_are_kept(tmp_path: Path) -> None:
    """The checkpoint is written between the two minibatches of an update."""
    runs = resumed(tmp_path, SELDOM, "--seed", 7, "--every", 4)
    assert [run.returncode for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    assert "resuming after update 4" in runs[1].stderr
    assert runs[1].stdout == runs[2].stdout
