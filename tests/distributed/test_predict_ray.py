"""`predict --engine ray`: workers and machines that are lost, and machines that come later."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dynet_compat.distributed.lines import UsageError
from dynet_compat.distributed.ray_workers import RayWorker
from support.jobs import descendants
from support.predictions import corpus, output, words

ray = pytest.importorskip("ray", reason="ray is not installed (requirements-dev.txt)")
KILLS = int(os.environ.get("DYNET_COMPAT_KILLS", "2"))
SMALL: dict[str, Any] = {"object_store_memory": 80 << 20, "include_dashboard": False}
# A predictor that says that it has lines, and keeps them until it may go on.
HOLD = """
        open(f"busy-{os.getpid()}", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.05)
        dy.renew_cg()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of one core, which does not know the folder of any job."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **SMALL})
    yield made
    made.shutdown()


def job(
    folder: Path, address: str, *options: str, predictor: str = "model.py:Predictor", path: str = ""
) -> subprocess.Popen[str]:
    variables = {"RAY_ADDRESS": address, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": path}
    every = words("--engine", "ray", *options, predictor=predictor)
    return subprocess.Popen(
        every, cwd=folder, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Status and errors."""
    try:
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, errors


def workers(driver: int) -> list[int]:
    """Of the Ray that this driver has started: others on the machine have theirs."""
    return [pid for pid, args in descendants(driver).items() if args.startswith("ray::RayWorker")]


def test_lost_blocks_go_to_other_workers(tmp_path: Path) -> None:
    wanted = corpus(tmp_path, 1500 * KILLS, pause=0.02)
    process = job(tmp_path, "local", "--workers", "2")
    rng, kills = random.Random(5), 0
    while process.poll() is None:
        time.sleep(rng.uniform(0.1, 1.5))
        if kills < KILLS and (listed := workers(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(listed), signal.SIGKILL)
                kills += 1
    status, errors = ended(process)
    assert (status, kills) == (0, KILLS), errors
    assert output(tmp_path) == wanted


def test_machines_come_and_go(tmp_path: Path, cluster: Any) -> None:
    """Without --workers: one for each core that the cluster has at that time."""
    wanted = corpus(tmp_path, 500)
    text = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text(text.replace("\n        dy.renew_cg()\n", HOLD))
    process = job(tmp_path, cluster.address)

    def wait_for(count: int) -> None:
        while len(list(tmp_path.glob("busy-*"))) < count:
            assert process.poll() is None, ended(process)
            time.sleep(0.1)

    wait_for(1)
    later = cluster.add_node(num_cpus=2, **SMALL)
    wait_for(3)
    cluster.remove_node(later, allow_graceful=False)
    (tmp_path / "go").touch()
    status, errors = ended(process)
    assert status == 0 and "3 Ray workers on 2 machines" in errors, errors
    assert output(tmp_path) == wanted


def test_a_line_that_ends_workers_is_given_up(tmp_path: Path, cluster: Any) -> None:
    wanted = corpus(tmp_path, 20)
    text = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text(text.replace("dy.renew_cg()", "'deadly' in lines and os._exit(1)"))
    lines = (tmp_path / "in.txt").read_text().splitlines()
    lines[13] = "deadly"
    (tmp_path / "in.txt").write_text("\n".join(lines))
    status, text = ended(job(tmp_path, cluster.address, "--block", "7"))
    errors = (tmp_path / "out" / "errors.txt").read_text()
    assert (status, errors) == (1, "line 14: ends the worker that predicts it\n"), text
    found = output(tmp_path)
    assert found[:7] + found[14:] == wanted[:7] + wanted[14:] and found.index("") == 13


@pytest.mark.parametrize("name", ["model.py:Predictor", "model:Predictor"])
def test_files_are_found_as_in_one_process(tmp_path: Path, cluster: Any, name: str) -> None:
    """Modules beside the predictor, files it opens and what PYTHONPATH names."""
    wanted = corpus(tmp_path, 30)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "far.py").write_text("")
    (tmp_path / "near.py").write_text("")
    (tmp_path / "weights.txt").write_text("")
    with open(tmp_path / "model.py", "a") as file:
        file.write("\nimport far, near\nopen('weights.txt').close()\n")
    process = job(tmp_path, cluster.address, predictor=name, path=str(tmp_path / "lib"))
    status, errors = ended(process)
    assert status == 0 and output(tmp_path) == wanted, errors


def test_a_predictor_that_cannot_be_made(tmp_path: Path, cluster: Any) -> None:
    """An error of the program shows where it was raised on the other machine."""
    corpus(tmp_path, 10)
    text = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text(text.replace("init=1", "init='one'"))
    status, errors = ended(job(tmp_path, cluster.address))
    assert status == 1 and 'model.py", line 10, in __init__' in errors, errors
    dying = text.replace("        self.model =", "        os._exit(3)\n        self.model =")
    (tmp_path / "model.py").write_text(dying)
    status, errors = ended(job(tmp_path, cluster.address, "-o", "out1"))
    lost = re.search(r"(\d+) workers were lost before one loaded the predictor", errors)
    assert status == 1 and lost, errors
    assert int(lost[1]) >= 3, errors  # how many there were: machines of other tests leave meanwhile
    (tmp_path / "model.py").write_text(text.replace("class Predictor", "class Other"))
    status, errors = ended(job(tmp_path, cluster.address, "-o", "out2"))
    assert status == 2 and errors.endswith("model.py has no Predictor\n"), errors


def test_a_machine_without_the_folder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNET_COMPAT_THREADS", "1")  # this process keeps its own
    worker = RayWorker("model.py:Predictor", 1, str(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot enter .*none, where predict was started"):
        worker.load()
