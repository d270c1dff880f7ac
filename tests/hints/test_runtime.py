"""A program with its hints beside it: found, checked, used; and the same results whatever the file says."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from dynet_compat.hints import cli

SCRIPT = """
import sys
import dynet_compat as dy
from helper import Scorer


class Tagger:
    def __init__(self, model):
        self.embed = model.add_lookup_parameters((30, 8))
        self.rnn = dy.GRUBuilder(1, 8, 8, model)
        self.scorer = Scorer(model)

    def loss(self, words):
        state, losses = self.rnn.initial_state(), []
        for word in words:
            state = state.add_input(self.embed[word])
            losses.append(dy.pickneglogsoftmax(self.scorer.score(state.output()), word % 4))
        return dy.esum(losses)


def main():
    model = dy.ParameterCollection()
    tagger, trainer = Tagger(model), dy.AdamTrainer(model)
    for i in range(30):
        dy.renew_cg()
        sentences = [[1, 2, 3 + i % 5], [4, 5], [6, 7, 8, 9, i % 30], [11, 12]]
        loss = dy.esum([tagger.loss(words) for words in sentences])
        print("%.6f" % loss.value())
        loss.backward()
        trainer.update()
    if "--hits" in sys.argv:
        runtime = sys.modules.get("dynet_compat.hints.runtime")
        active = runtime and runtime.active()
        print("hits", sum(t["hits"] for t in active.regions()) if active else None)


if __name__ == "__main__":
    main()
"""
HELPER = """
import dynet_compat as dy


class Scorer:
    def __init__(self, model):
        self.W, self.U = model.add_parameters((6, 8)), model.add_parameters((4, 6))
        self.b = model.add_parameters(6)

    def score(self, h):
        z = dy.affine_transform([self.b, self.W, h])
        return self.U * dy.tanh(z)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    script = tmp_path / "tagger.py"
    script.write_text(SCRIPT)
    return script


def run(script: Path, *command: str, **environment: str) -> tuple[list[str], str]:
    """Lines of output but the last, which is what --hits prints, that line, and what was logged."""
    env = {k: v for k, v in os.environ.items() if k != "DYNET_COMPAT_HINTS"}
    words = [sys.executable, *(command or [str(script)]), "--dynet-seed", "5", "--hits"]
    env.update(environment)
    done = subprocess.run(words, env=env, cwd=script.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    log = [line for line in done.stderr.splitlines() if "hints" in line]
    lines = done.stdout.splitlines()
    run.hits = lines[-1]  # type: ignore[attr-defined]
    return lines[:-1], "\n".join(log)


def hits() -> int:
    word = run.hits.split()[1]  # type: ignore[attr-defined]
    return 0 if word == "None" else int(word)


def test_hints_beside_the_script(program: Path, capsys: pytest.CaptureFixture) -> None:
    plain, log = run(program)
    assert run.hits == "hits None" and not log  # type: ignore[attr-defined]
    assert cli.main([str(program)]) == 0
    hinted, log = run(program)
    assert hinted == plain and not log and hits() > 200
    assert run(program, "-m", "dynet_compat", "run", str(program))[0] == plain and hits() > 200
    assert run(program, DYNET_COMPAT_HINTS="off")[0] == plain and hits() == 0
    elsewhere = program.parent / "elsewhere.dyhints"
    (program.parent / "tagger.dyhints").rename(elsewhere)
    assert run(program, DYNET_COMPAT_HINTS=str(elsewhere))[0] == plain and hits() > 200


def test_every_function_without_hints(program: Path) -> None:
    plain, _ = run(program)
    assert run(program, DYNET_COMPAT_HINTS="eager")[0] == plain and hits() > 200


OLD = '{"format": "dynet_compat hints", "version": 2, "sites": []}'


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "foreign"}', "\0\1\2", "x" * 1000, OLD])
def test_damaged_or_foreign(program: Path, text: str) -> None:
    plain, _ = run(program)
    (program.parent / "tagger.dyhints").write_text(text)
    lines, log = run(program)
    assert lines == plain and hits() == 0
    assert log.count("hints not used") == 1 and len(log.splitlines()) == 1


def test_stale(program: Path) -> None:
    plain, _ = run(program)
    assert cli.main([str(program)]) == 0
    helper = program.parent / "helper.py"
    helper.write_text(helper.read_text() + "\n# changed\n")
    lines, log = run(program)
    assert lines == plain and hits() == 0 and "helper.py has changed" in log


def test_file_that_is_named_is_not_there(program: Path) -> None:
    _, log = run(program, DYNET_COMPAT_HINTS="/nowhere/x.dyhints")
    assert "is not there" in log and len(log.splitlines()) == 1


def mutated(hints: dict, rng: random.Random) -> dict:
    """Valid in form, wrong in content: names exchanged, loops that are none."""
    hints = json.loads(json.dumps(hints))
    names = sorted({f["qualname"] for f in hints["functions"]} | {"main", "Tagger.__init__", "nothing"})
    for function in hints["functions"]:
        if rng.random() < 0.6:
            function["qualname"] = rng.choice(names)
    for _ in range(rng.randint(0, 5)):
        loop = {"file": hints["script"], "qualname": rng.choice(names), "line": rng.randint(1, 50)}
        loop.update(col=4, renew_first=rng.random() < 0.5, appends=["losses"], sums=["total"])
        hints["independent_loops"].append(loop)
    if rng.random() < 0.3:
        hints["functions"] = []
    return hints


def test_hints_that_lie(program: Path, fuzz_count: int) -> None:
    plain, _ = run(program)
    assert cli.main([str(program)]) == 0
    path = program.parent / "tagger.dyhints"
    hints = json.loads(path.read_text())
    for seed in range(fuzz_count // 1000 or 4):
        path.write_text(json.dumps(mutated(hints, random.Random(seed))))
        assert run(program)[0] == plain, seed
