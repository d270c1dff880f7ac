"""Programs of users under mypy --strict: every public name is exported, and its types admit what it takes."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="our own types"),
    pytest.mark.skipif(not importlib.util.find_spec("mypy"), reason="mypy is not installed"),
]

ROOT = Path(__file__).resolve().parents[1]

TAGGER = '''
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import dynet_compat as dy


class Tagger:
    def __init__(self, pc: dy.ParameterCollection, words: int, tags: int) -> None:
        self.pc = pc.add_subcollection("tagger")
        self.E: dy.LookupParameters = self.pc.add_lookup_parameters((words, 8), init="glorot")
        self.lstm = dy.BiRNNBuilder(1, 8, 16, self.pc, dy.VanillaLSTMBuilder)
        self.W: dy.Parameters = self.pc.add_parameters((tags, 16))
        self.b = self.pc.add_parameters(tags, init=dy.ConstInitializer(0))

    def scores(self, sentence: list[int]) -> list[dy.Expression]:
        hs = self.lstm.transduce([self.E[w] for w in sentence])
        return [dy.affine_transform([self.b, self.W, h]) for h in hs]

    def loss(self, sentence: list[int], gold: list[int]) -> dy.Expression:
        loss = dy.scalarInput(0)
        for score, tag in zip(self.scores(sentence), gold):
            loss = loss + dy.pickneglogsoftmax(score, tag)
        return loss


def train(steps: int) -> float:
    pc = dy.ParameterCollection()
    tagger, trainer = Tagger(pc, 10, 3), dy.AdamWTrainer(pc, alpha=0.01)
    trainer.learning_rate *= 0.5
    total = 0.0
    for _ in range(steps):
        dy.renew_cg()
        loss = tagger.loss([1, 2, 3], [0, 1, 2])
        total += loss.scalar_value()
        loss.backward()
        trainer.update()
    assert_type(tagger.scores([1])[0].npvalue(), NDArray[np.float64])
    assert_type(tagger.W.as_array(), NDArray[np.float64])
    assert_type(tagger.W @ tagger.scores([1])[0], dy.Expression)
    assert_type(trainer.state_dict(), dict[str, Any])
    left, right = dy.inputVector([1, 2])
    assert_type([element + left for element in right * tagger.E[0]], list[dy.Expression])
    h: dy.Expression = tagger.E[0]
    state = dy.GRUBuilder(1, 8, 8, pc).initial_state().add_input(dy.gelu(dy.relu(dy.sigmoid(h))))
    output: dy.Expression = state.output()
    print(output.dim(), state.output().dim())
    return total


def files(name: str) -> None:
    pc = dy.ParameterCollection()
    dy.save(name, [pc.add_parameters((2, 3))])
    found = dy.load(name, pc) + list(dy.load_generator(name, pc))
    dy.save_safetensors(name, pc)
    dy.load_safetensors(name, pc, strict=False)
    with dy.profile() as measured:
        tensor: dy.Tensor = dy.inputVector([1, 2]).tensor_value()
    result: dy.Profile = measured
    stacked: type[dy.StackedRNNState] = dy.StackedRNNState
    params = dy.DynetParams()
    params.set_mem(512)
    params.init()
    dy.init()
    dy.init_from_params(params)
    dy.install_as_dynet()
    print(found, tensor.as_numpy(), result.summary(), stacked)
'''


def checked(text: str, folder: Path, *flags: str) -> str:
    """What mypy says of a program; empty: nothing."""
    program = folder / "program.py"
    program.write_text(text, encoding="utf-8")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--config-file=", *flags]
    command += ["--ignore-missing-imports", f"--cache-dir={ROOT / '.mypy_cache' / 'programs'}", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, env=environment)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    return result.stdout


def test_strict_program(tmp_path: Path) -> None:
    said = checked(TAGGER, tmp_path, "--strict")
    assert said == "", f"mypy --strict refuses a correct program:\n{said}"


def test_wrong_programs_are_found(tmp_path: Path) -> None:
    wrong = "import dynet_compat as dy\nx = dy.inputVector([1])\nx.shape\ndy.cat([x])\ndy.lookup(x, 1)\n"
    said = checked(wrong, tmp_path, "--strict")
    for what in ('"shape"', '"cat"', '"lookup" has incompatible type'):
        assert what in said, f"mypy finds no fault with a wrong program: {what} is missing in\n{said}"


def examples(dy: Any) -> Iterator[tuple[str, str]]:
    """The examples of all documented functions and methods."""
    for name, item in sorted(vars(dy).items()):
        if name.startswith("_") or inspect.ismodule(item):
            continue
        members = vars(item).items() if inspect.isclass(item) else ()
        for label, documented in [(name, item), *((f"{name}_{key}", value) for key, value in members)]:
            doc = getattr(documented, "__doc__", None)
            found = doctest.DocTestParser().get_examples(doc) if isinstance(doc, str) else []
            if found and all(example.exc_msg is None for example in found):
                yield label, "".join(example.source for example in found)


def test_examples_of_the_reference(dy: Any, tmp_path: Path) -> None:
    text, seen = "import numpy as np\nimport dynet_compat as dy\n", set()
    for label, source in examples(dy):
        if source in seen:
            continue
        seen.add(source)
        text += f"\ndef {label.strip('_')}_example() -> None:\n{textwrap.indent(source, '    ')}"
    assert len(seen) > 200, "the examples were not found"
    said = checked(text, tmp_path, "--check-untyped-defs")
    lines = text.splitlines()
    shown = [f"{line}\n    {lines[int(line.split(':')[1]) - 1].strip()}" for line in said.splitlines()]
    assert not shown, "mypy refuses what examples of the reference do:\n" + "\n".join(shown)
