"""Several ranks train to what one process gets on whole minibatches, with the same bits on all ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dynet_compat.distributed import launcher
from support.jobs import alone, command, job, started

TRAINERS = [
    "SimpleSGDTrainer", "CyclicalSGDTrainer", "MomentumSGDTrainer", "AdagradTrainer", "AdadeltaTrainer",
    "RMSPropTrainer", "AdamTrainer", "AmsgradTrainer", "AdamWTrainer", "EGTrainer",
]  # fmt: skip


def parameters(folder: Path, name: str, ranks: int) -> np.ndarray[Any, Any]:
    """Of all ranks, which have the same bits."""
    every = [np.load(folder / f"{name}{rank}.npy") for rank in range(ranks)]
    for rank, values in enumerate(every):
        assert (values == every[0]).all(), f"rank {rank} has other parameters than rank 0"
    return every[0]


def train(
    folder: Path, arguments: list[Any], ranks: int, mpi: str = "mpich", **options: Any
) -> np.ndarray[Any, Any]:
    name = f"{mpi}{ranks}_"
    words = ["train.py", *arguments, folder / name, "--dynet-seed", 9]
    result = job(words, ranks, mpi, cwd=folder, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return parameters(folder, name, ranks)


def train_alone(folder: Path, arguments: list[Any]) -> np.ndarray[Any, Any]:
    result = alone(["train.py", *arguments, folder / "alone", "--dynet-seed", 9], folder)
    assert result.returncode == 0, result.stderr
    return parameters(folder, "alone", 1)


@pytest.mark.parametrize("model", ["tagger", "tree", "seq2seq"])
def test_each_trainer_under_both_mpis(tmp_path: Path, model: str) -> None:
    """Parameters of 100 updates with clipping, and all losses; the ranks compare hashes of trainers."""
    arguments, often = [model, ",".join(TRAINERS), 8, 100], ("--check-every", 10)
    one = train_alone(tmp_path, arguments)
    for ranks in (2, 4):
        several = train(tmp_path, arguments, ranks, options=often)
        for name, row, wanted in zip(TRAINERS, several, one):
            np.testing.assert_allclose(row, wanted, rtol=1e-6, atol=1e-6, err_msg=f"{name}, {ranks} ranks")
        other = train(tmp_path, arguments, ranks, "openmpi", options=often)
        assert (several == other).all(), f"{ranks} ranks: MPICH and Open MPI give different bits"


def test_a_minibatch_smaller_than_the_job(tmp_path: Path) -> None:
    arguments = ["tagger", ",".join(TRAINERS), 3, 40]
    one, four = train_alone(tmp_path, arguments), train(tmp_path, arguments, 4)
    for name, row, wanted in zip(TRAINERS, four, one):
        np.testing.assert_allclose(row, wanted, rtol=1e-6, atol=1e-6, err_msg=name)
    assert (train(tmp_path, arguments, 4, "openmpi") == four).all(), "MPICH and Open MPI give different bits"


def test_rows_with_owners(tmp_path: Path) -> None:
    """From six ranks on, rows are summed by their owners."""
    arguments = ["tagger", "AdamTrainer", 14, 12]
    one, seven = train_alone(tmp_path, arguments), train(tmp_path, arguments, 7)
    np.testing.assert_allclose(seven, one, rtol=1e-6, atol=1e-6)


def test_float16_keeps_ranks_equal_and_stays_near(tmp_path: Path) -> None:
    arguments = ["tree", "SimpleSGDTrainer", 8, 50]
    one = train_alone(tmp_path, arguments)
    two = train(tmp_path, arguments, 2, options=("--compress", "float16"))
    assert 0 < np.abs(two - one).max() < 2e-2, "gradients were not sent as float16, or without error feedback"


def test_means_are_weighted_by_the_sizes_of_shards(tmp_path: Path) -> None:
    """Five instances on two ranks: three and two."""
    script = tmp_path / "mean.py"
    script.write_text(
        "import dynet as dy, sys\n"
        "pc = dy.ParameterCollection(); p = pc.add_parameters(1, init=1)\n"
        "t = dy.SimpleSGDTrainer(pc, 1.0); t.set_clip_threshold(0)\n"
        "batch = dy.distributed.shard([1.0, 2.0, 3.0, 4.0, 10.0])\n"
        "dy.renew_cg(); dy.average([p * x for x in batch]).backward(); t.update()\n"
        "print(round(1 - p.as_array()[0], 5))\n"
    )
    result = job([script], options=("--gradients", "mean"), cwd=tmp_path)
    assert result.stdout.split() == ["4.0"], result.stdout + result.stderr


# Three minibatches before an update, of which some ranks get unequal parts or none, with other data shared in
# between; before the first shard() all ranks have all data.
MEANS = """
import sys
import dynet as dy
import numpy as np

d = getattr(dy, "distributed", None)
shard = d.shard if d else lambda items: items
pc = dy.ParameterCollection()
p, E = pc.add_parameters(3), pc.add_lookup_parameters((9, 3))
t = dy.MomentumSGDTrainer(pc, 0.1)
loss = lambda x: dy.squared_norm(p + E[x % 9] - 0.1 * x) + dy.squared_norm(p) * 0.1
for k in range(5):
    for n in (5, 2, 7) if k else ():
        batch = shard(range(k, k + n))
        dy.renew_cg()
        dy.average([loss(x) for x in batch]).backward()
        shard(range(11))
    if k == 0:
        dy.renew_cg()
        loss(4).backward()
    t.update()
np.save(f"{sys.argv[1]}{d.rank if d else 0}.npy", np.concatenate([p.as_array(), E.as_array().ravel()]))
"""


@pytest.mark.parametrize(("ranks", "mpi"), [(2, "mpich"), (3, "openmpi")])
def test_means_of_several_minibatches(tmp_path: Path, ranks: int, mpi: str) -> None:
    """Each backward() counts for the part that its rank has of the last shard() before."""
    (tmp_path / "means.py").write_text(MEANS)
    assert alone([tmp_path / "means.py", tmp_path / "alone", "--dynet-seed", 3], tmp_path).returncode == 0
    words = [tmp_path / "means.py", tmp_path / "several", "--dynet-seed", 3]
    result = job(words, ranks, mpi, ("--gradients", "mean"), tmp_path)
    assert result.returncode == 0, result.stderr
    one, several = parameters(tmp_path, "alone", 1), parameters(tmp_path, "several", ranks)
    np.testing.assert_allclose(several, one, rtol=1e-6, atol=1e-6)


def with_variable_on_rank_1(
    folder: Path, variable: str, script: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """What `distribute` runs below mpiexec, where the machine of rank 1 is another one."""
    chooser = folder / "choose.py"
    chooser.write_text(
        "import os, sys\n"
        "rank = os.environ.get('PMI_RANK') or os.environ['OMPI_COMM_WORLD_RANK']\n"
        f"if rank == '1': os.environ.update({variable})\n"
        "from dynet_compat.__main__ import main\n"
        "sys.exit(main(['distribute', *sys.argv[1:]]))\n"
    )
    (folder / "script.py").write_text(script)
    start, env = command("mpich", 2)
    env.update(launcher._VARIABLES)
    words = [*start, sys.executable, str(chooser), str(folder / "script.py"), *options]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, cwd=folder)


def test_ranks_of_different_processors_take_one_instruction_set(tmp_path: Path) -> None:
    script = "import dynet as dy\nfrom dynet_compat import _core\n"
    script += "print(dy.distributed.gather([_core.isa()]))\n"
    result = with_variable_on_rank_1(tmp_path, "DYNET_COMPAT_ISA='baseline'", script)
    assert result.stdout.strip() == "['baseline', 'baseline']", result.stdout + result.stderr


MIX = r"unlike devices.*rank 0 on \S+: cpu\n  rank 1 on \S+: emulation"


def test_a_mix_with_the_emulation_of_a_gpu_is_refused(tmp_path: Path) -> None:
    """Before the script begins; where it chooses the device itself, before it trains."""
    result = with_variable_on_rank_1(tmp_path, "DYNET_COMPAT_DEVICE='emulation'", "print('begun')")
    assert result.returncode != 0 and not result.stdout, result.stdout
    assert re.search(MIX, result.stderr, re.S), result.stderr
    (tmp_path / "chooses.py").write_text(
        "import os\n"
        "if os.environ['PMI_RANK'] == '1': os.environ['DYNET_COMPAT_DEVICE'] = 'emulation'\n"
        "import dynet as dy\n"
        "pc = dy.ParameterCollection(); pc.add_parameters(2); print('begun')\n"
        "dy.AdamTrainer(pc); print('trains')\n"
    )
    result = job([tmp_path / "chooses.py"], cwd=tmp_path)
    assert result.returncode != 0 and result.stdout == "begun\n", result.stdout
    assert re.search(MIX, result.stderr, re.S), result.stderr


def test_kernels_that_are_in_use_cannot_be_levelled(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(
        "import os, sys\n"
        "rank = os.environ['PMI_RANK']\n"
        "if rank == '1': os.environ['DYNET_COMPAT_ISA'] = 'baseline'\n"
        "import dynet_compat as dy\n"
        "dy.inputVector([1]).value()\n"
        "dy.tanh(dy.inputVector([1])).value()\n"
        "dy.distributed.start()\n"
    )
    result = started(tmp_path / "late.py")
    assert result.returncode != 0 and "kernels already, and another has baseline at most" in result.stderr


def test_sets_have_one_order_on_all_ranks(tmp_path: Path) -> None:
    """Words numbered by a set would be other rows of a table on each rank."""
    words = (
        "import dynet as dy\nd = dy.distributed\nif d.size == 1: d.start()\n"
        "print(d.gather([hash('a word')]))\n"
    )
    (tmp_path / "words.py").write_text(words)
    result = job([tmp_path / "words.py"], cwd=tmp_path)
    here, there = eval(result.stdout)
    assert here == there and "another order" not in result.stderr
    (tmp_path / "words.py").write_text(words.replace("dynet as", "dynet_compat as"))
    assert "set PYTHONHASHSEED=0" in started(tmp_path / "words.py").stderr


def test_seed_alone_is_that_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "drawn.py").write_text(
        "import random\nimport dynet as dy\nimport numpy as np\n"
        "print(random.random(), np.random.rand(), dy.random_normal(3).value())\n"
    )
    words = ["--seed", "5", str(tmp_path / "drawn.py")]
    of_one = [sys.executable, "-m", "dynet_compat", "distribute", *words]
    one = subprocess.run(of_one, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    several = job([tmp_path / "drawn.py"], options=("--seed", 5), cwd=tmp_path)
    assert one.stdout and one.stdout == several.stdout, one.stderr + several.stderr


def test_module(tmp_path: Path) -> None:
    """As `run -m`: names of packages, and one line where there is no such module."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "data.py").write_text("items = [1, 2]\n")
    text = "import sys, dynet as dy\nfrom .data import items\n"
    text += "print(dy.distributed.shard(items), sys.argv[1:])\n"
    (tmp_path / "package" / "part.py").write_text(text)
    for name, status in {"package.part": 0, "package.none": 1}.items():
        command = [sys.executable, "-m", "dynet_compat", "distribute", "--seed", "5", "-m", name, "-m", "x"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == status, done.stderr
        assert done.stdout == "[1, 2] ['-m', 'x']\n" * (not status)
    assert "no module named package.none" in done.stderr and "Traceback" not in done.stderr


def test_ranks_that_do_not_find_each_other_are_no_jobs_of_one(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("print('trains all')\n")
    env = dict(os.environ, SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2")
    command = [sys.executable, "-m", "dynet_compat", "distribute", str(tmp_path / "alone.py")]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert result.returncode != 0 and not result.stdout
    assert "one of several (SLURM_STEP_NUM_TASKS=2)" in result.stderr and "srun --mpi=pmi2" in result.stderr


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_processes_of_mpiexec_that_do_not_start_a_job_are_warned(tmp_path: Path, mpi: str) -> None:
    script = "import dynet_compat as dy\nfor _ in range(3): assert dy.distributed.shard([1, 2]) == [1, 2]\n"
    (tmp_path / "forgot.py").write_text(script)
    start, env = command(mpi, 2)
    words = [*start, sys.executable, str(tmp_path / "forgot.py")]
    result = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and result.stderr.count("each trains on all data") == 2, result.stderr
    result = subprocess.run([sys.executable, tmp_path / "forgot.py"], capture_output=True, text=True)
    assert result.returncode == 0 and "each trains" not in result.stderr


def test_ranks_draw_different_dropout_masks(tmp_path: Path) -> None:
    """After the first shard(); models are made before."""
    (tmp_path / "drawn.py").write_text(
        "import dynet as dy\n"
        "d, drawn = dy.distributed, lambda: str(dy.dropout(dy.inputVector([1] * 64), 0.5).value())\n"
        "before = len(set(d.gather([drawn()])))\n"
        "d.shard([1, 2, 3])\n"
        "print(before, len(set(d.gather([drawn()]))))\n"
    )
    result = job([tmp_path / "drawn.py"], ranks=3, cwd=tmp_path)
    assert result.stdout == "1 3\n", result.stderr


def test_the_stub_of_the_guide_runs_on_the_real_dynet(tmp_path: Path, oracle_python: str) -> None:
    """The guide's script with the guide's three lines, there and here."""
    guide = (Path(__file__).resolve().parents[2] / "migration_guide" / "distributed.md").read_text()
    blocks = re.findall(r"```(?:python train\.py|text)\n(.*?)```", guide, re.S)
    stub = next(text for text in blocks if "as Alone" in text)
    assert len(stub.splitlines()) == 3
    script = blocks[0].replace("import dynet_compat as dy\n", f"import dynet as dy\n\n{stub}")
    (tmp_path / "train.py").write_text(script)
    printed = []
    for begin in ([oracle_python], [sys.executable, "-m", "dynet_compat", "run"]):
        words = [*begin, "train.py", "2", "--dynet-seed", "1"]
        result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        printed.append(re.findall(r"epoch \d: (\d\.\d+)", result.stdout))
    assert len(printed[0]) == len(printed[1]) == 2


def test_the_slurm_script_of_the_guide(tmp_path: Path) -> None:
    """With mpiexec in the place of srun: a second start goes on where the first one was."""
    guide = (Path(__file__).resolve().parents[2] / "migration_guide" / "distributed.md").read_text()
    for name, begin in (("train.py", "python train.py\nimport"), ("train.sbatch", "text\n#!/bin/bash")):
        found = re.search(rf"```{begin}.*?(?=^```)", guide, re.S | re.M)
        assert found, name
        text = found[0].partition("\n")[2]
        (tmp_path / name).write_text(text.replace("--every 500", "--every 20"))
    start, env = command("mpich", 2)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").write_text(f'python() {{ "{sys.executable}" "$@"; }}\n')
    (tmp_path / "srun").write_text(
        f'#!/bin/bash\n[ "$1 $2" = "--mpi=pmi2 --cpus-per-task=8" ] && [ "$3" = python ] || exit 9\n'
        f'exec {" ".join(start)} {sys.executable} "${{@:4}}"\n'
    )
    (tmp_path / "srun").chmod(0o755)
    env.update(SLURM_SUBMIT_DIR=str(tmp_path), SLURM_CPUS_PER_TASK="8", PATH=f"{tmp_path}:{env['PATH']}")
    printed = []
    for _ in range(2):
        result = subprocess.run(
            ["bash", "train.sbatch"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )
        assert result.returncode == 0, result.stderr
        printed.append(re.findall(r"epoch (\d+)", result.stdout))
    every = [str(i) for i in range(20)]  # of 4 updates each; the checkpoint of the last is never due
    assert printed == [every, every[15:]]
    assert (tmp_path / "logs" / "rank1.log").exists()


# What Slurm sets in the step of a batch script, and in that of a shell which `salloc` starts.
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
SHELL = {**BATCH, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}


@pytest.mark.parametrize("variables", [BATCH, SHELL], ids=["batch", "shell"])
def test_a_process_of_its_own_below_slurm(tmp_path: Path, variables: dict[str, str]) -> None:
    """It was not started by srun as one of several, and needs no MPI."""
    (tmp_path / "mpi4py.py").write_text("raise ImportError('not installed here')\n")
    (tmp_path / "alone.py").write_text("import dynet as dy\nprint(dy.distributed.shard([1, 2]))\n")
    env = {**os.environ, **variables, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "dynet_compat", "distribute", "alone.py"]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "[1, 2]\n"), result.stderr


def test_rank_0_saves_and_others_wait_for_it(tmp_path: Path) -> None:
    script = tmp_path / "save.py"
    script.write_text(
        "import dynet as dy, numpy as np, os, time\n"
        "pc = dy.ParameterCollection(); p = pc.add_parameters((300, 300)); t = dy.AdamTrainer(pc)\n"
        "for k in range(5):\n"
        "    p.set_value(np.full((300, 300), k)); pc.save('m.model'); dy.save('pair', [p]); t.save('t.txt')\n"
        "    q = dy.ParameterCollection(); q.add_parameters((300, 300)); q.populate('m.model')\n"
        "    (r,) = dy.load('pair', dy.ParameterCollection()); t.populate('t.txt')\n"
        "    seen = q.parameters_list()[0].as_array()[0, 0], r.as_array()[0, 0]\n"
        "    assert seen == (k, k), (k, seen, dy.distributed.rank)\n"
        "    dy.distributed.broadcast(None)\n"
        "print(sorted(os.listdir('.')))\n"
    )
    result = job([script], ranks=3, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    names = {"m.model", "pair.data", "pair.meta", "t.txt"}
    listed = set(eval(result.stdout))
    assert names <= listed and not any(".tmp" in name for name in listed), result.stdout


def test_a_save_by_rank_0_alone_is_not_taken_for_the_next(tmp_path: Path) -> None:
    """Rank 0 is slow with the second file, which is there already, of an earlier job."""
    pytest.importorskip("safetensors")
    script = tmp_path / "save.py"
    script.write_text(
        "import dynet as dy, time\n"
        "from dynet_compat.files import atomic\n"
        "pc = dy.ParameterCollection(); p = pc.add_parameters(2, init=1)\n"
        "for load in (pc.populate, lambda name: dy.load_safetensors(name, pc)):\n"
        "    name = 'model' if load == pc.populate else 'tensors'\n"
        "    save = pc.save if load == pc.populate else lambda name: dy.save_safetensors(name, pc)\n"
        "    p.set_value([7, 7])\n"
        "    save(name); dy.distributed.broadcast(None)\n"
        "    if dy.distributed.is_main: save('best')\n"
        "    p.set_value([8, 8])\n"
        "    if dy.distributed.is_main: time.sleep(0.5)\n"
        "    save(name); p.set_value([0, 0]); load(name)\n"
        "    print(dy.distributed.gather(p.as_array().tolist()))\n"
    )
    result = job([script], cwd=tmp_path)
    assert result.stdout.splitlines() == ["[8.0, 8.0, 8.0, 8.0]"] * 2, result.stdout + result.stderr


def test_sums_gathers_and_broadcasts(tmp_path: Path) -> None:
    script = tmp_path / "collect.py"
    script.write_text(
        "import dynet as dy, numpy as np\n"
        "d = dy.distributed\n"
        "words = ['the', 'a', 'conjunction', 'of', 'seven', 'unequal', 'words']\n"
        "for by in (None, len):\n"
        "    mine = d.shard(words, by=by)\n"
        "    assert d.gather([w.upper() for w in mine], of=mine) == [w.upper() for w in words], by\n"
        "part = d.shard(np.arange(7))\n"
        "assert d.gather(part * 10, of=part) == list(range(0, 70, 10))\n"
        "assert d.sum(d.rank) == 3 and d.sum([1, 0.5]) == [3, 1.5] and d.sum(np.ones(2)).tolist() == [3, 3]\n"
        "assert isinstance(d.sum(1), int) and d.sum(dy.inputVector([d.rank]) * 2) == 6\n"
        "assert d.broadcast({'from': d.rank}, root=2) == {'from': 2}\n"
        "assert d.gather([d.rank]) == [0, 1, 2] and d.is_main == (d.rank == 0) and d.size == 3\n"
        "print('ok')\n"
    )
    result = job([script], ranks=3, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


def test_batch_map_needs_no_line(tmp_path: Path) -> None:
    """Losses that are summed are this rank's; a batch_map() inside of an instance is not cut again."""
    script = tmp_path / "mapped.py"
    script.write_text(
        "import dynet as dy, numpy as np, sys\n"
        "pc = dy.ParameterCollection(); w = pc.add_parameters((3, 3)); E = pc.add_lookup_parameters((9, 3))\n"
        "t = dy.SimpleSGDTrainer(pc)\n"
        "def loss(x):\n"
        "    parts = dy.batch_map(lambda i: dy.tanh(w * E[i]), [x, (x + 1) % 9])\n"
        "    if parts[0].npvalue()[0] > 0: parts.append(w * parts[0])\n"
        "    return dy.squared_norm(dy.esum(parts))\n"
        "for step in range(20):\n"
        "    dy.renew_cg(); losses = dy.batch_map(loss, [(step + k) % 9 for k in range(5)])\n"
        "    dy.esum(losses).backward(); t.update()\n"
        "rank = dy.distributed.rank if hasattr(dy, 'distributed') else 0\n"
        "np.save(f'{sys.argv[1]}{rank}.npy', np.concatenate([w.as_array().ravel(), E.as_array().ravel()]))\n"
    )
    assert alone([script, tmp_path / "alone", "--dynet-seed", 3], tmp_path).returncode == 0
    options = ("--shard", "batch_map")
    result = job([script, tmp_path / "two", "--dynet-seed", 3], options=options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    one, two = parameters(tmp_path, "alone", 1), parameters(tmp_path, "two", 2)
    np.testing.assert_allclose(two, one, rtol=1e-6, atol=1e-6)
