"""Calls that read values and are independent: with hints they run side by side, and no program sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
from dynet_compat.hints import cli  # noqa: E402
from dynet_compat.hints.compiler import independent_calls  # noqa: E402
from dynet_compat.hints.rewrite import batch_map  # noqa: E402

if not batch_map.possible():
    pytest.skip("needs greenlet", allow_module_level=True)

MODEL = """
import random
import sys
import numpy as np
import dynet_compat as dy
import dynet_compat.hints.parallel_loops

dynet_compat.hints.parallel_loops._WORTH = 0  # so small a model is not worth it
H = 6
seen = []


def show(x):
    print(x)


class Generator:
    calls = 0

    def __init__(self, model):
        self.W, self.L, self.R = (model.add_parameters((H, H)) for _ in range(3))
        self.s = model.add_parameters((1, H))

    def ends(self, x, depth):
        return depth == 4 or (self.s * x).scalar_value() < -0.7

    def down(self, x, side):
        return dy.tanh((self.R if side else self.L) * x) + x

    def expand(self, h, depth):
        x = dy.tanh(self.W * h)
        if self.ends(x, depth):
            return []
        a, b = self.down(x, 0), self.down(x, 1)
        BODY


def main(turns=5):
    rng = np.random.RandomState(1)
    data = [rng.normal(0, 1, H) for _ in range(6)]
    generator = Generator(dy.ParameterCollection())
    for turn in range(turns):
        dy.renew_cg()
        dy._core.reset_timing()
        print(dy.batch_map(lambda v: generator.expand(dy.inputTensor(v), 0), data))
        print("flushes", dy._core.timing()["flushes"], file=sys.stderr)
    print(seen, generator.calls, float(dy.random_uniform(1, 0, 1).value()))


dy.renew_cg()
main()
"""

TOGETHER = {
    "statements": "left = self.expand(a, depth + 1)\nright = self.expand(b, depth + 1)\nreturn [left, right]",
    "apart by others": (
        "left = self.expand(a, depth + 1)\nn = len(left)\nright = self.expand(b, depth=depth + 1)\n"
        "return [n, left, right]"
    ),
    "a pair": "return [self.expand(a, depth + 1), self.expand(b, depth + 1)]",
    "a sum": "return [0] + self.expand(a, depth + 1) + self.expand(b, depth + 1)",
    "targets": "(p, *q), r = [0] + self.expand(a, depth + 1), self.expand(b, depth + 1)\nreturn [p, q, r]",
    "nested": "return list(zip(self.expand(a, depth + 1), [depth] + self.expand(b, depth + 1)))",
    "children": "return [self.expand(c, depth + 1) for c in (a, b)]",
    "lists of children": "children = [a, b]\nreturn [depth, [self.expand(c, depth + 1) for c in children]]",
}
APART = {
    "comes from the call before": "a = self.expand(a, depth + 1)\n"
    "b = self.expand(b, depth + 1 + 0 * len(a))\nreturn [a, b]",
    "show(): it calls print()": "show(depth)\nleft = self.expand(a, depth + 1)\n"
    "right = self.expand(b, depth + 1)\nreturn [left, right]",
    "changes self": "self.calls += 1\nleft = self.expand(a, depth + 1)\n"
    "right = self.expand(b, depth + 1)\nreturn [left, right]",
    "seen is changed by append()": "seen.append(depth)\nleft = self.expand(a, depth + 1)\n"
    "right = self.expand(b, depth + 1)\nreturn [left, right]",
    "draws random numbers": "n = random.random()\nleft = self.expand(a, depth + 1)\n"
    "right = self.expand(b, depth + 1)\nreturn [left, right]",
    "dropout() draws random numbers": "a = dy.dropout(a, 0.5)\nleft = self.expand(a, depth + 1)\n"
    "right = self.expand(b, depth + 1)\nreturn [left, right]",
    "a lambda": "left = self.expand((lambda: a)(), depth + 1)\nright = self.expand(b, depth + 1)\n"
    "return [left, right]",
}


def program(folder: Path, body: str) -> Path:
    script = folder / "program.py"
    script.write_text(MODEL.replace("BODY", body.replace("\n", "\n        ")))
    return script


def run(script: Path, hints: bool) -> tuple[str, list[int]]:
    """The output, and the flushes of each turn."""
    environment = {k: v for k, v in os.environ.items() if k != "DYNET_COMPAT_HINTS"}
    if not hints:
        environment["DYNET_COMPAT_HINTS"] = "off"
    done = subprocess.run(
        [sys.executable, str(script), "--dynet-seed", "3"],
        capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, [int(s.split()[1]) for s in done.stderr.splitlines() if s.startswith("flushes")]


@pytest.mark.parametrize("body", TOGETHER.values(), ids=list(TOGETHER))
def test_a_flush_per_level(tmp_path: Path, body: str) -> None:
    script = program(tmp_path, body)
    plain, before = run(script, hints=False)
    assert cli.main([str(script)]) == 0
    hinted, after = run(script, hints=True)
    assert hinted == plain
    assert after[-1] == 4 < before[-1]


@pytest.mark.parametrize("reason", APART)
def test_left_as_they_are(tmp_path: Path, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = program(tmp_path, APART[reason])
    assert not independent_calls(analysed_file(script))
    assert cli.main([str(script), "--explain"]) == 0
    text = capsys.readouterr().out
    assert "one after another" in text
    assert reason in text, text


def analysed_file(script: Path) -> object:
    from dynet_compat.hints.analysis.script import ScriptAnalysis

    return ScriptAnalysis(str(script))


def test_code_stays_when_its_regions_are_given_up(tmp_path: Path) -> None:
    import dynet_compat
    from dynet_compat.hints.rewrite import linking, patch, rewriter

    script = program(tmp_path, TOGETHER["statements"])
    [record] = independent_calls(analysed_file(script))
    decider = object()
    new = rewriter.Rewriter(script.read_text(), str(script), {"dy": dynet_compat}, None, [(record, decider)])
    linked = linking.link(new.rewritten(), new.constants)
    [code] = [code for _, code in linked.codes.values() if code.co_name == "expand"]
    assert decider in list(patch._added(code))


# Proved, but what they do at run time stops them: the calls are made again as they are written.
STOPPED = {
    "an error": "if depth == 3:\n    1 / (3 - depth)\nleft = self.expand(a, depth + 1)\n"
    "right = self.expand(b, depth + 1)\nreturn [left, right]",
}


@pytest.mark.parametrize("body", STOPPED.values(), ids=list(STOPPED))
def test_stopped(tmp_path: Path, body: str) -> None:
    script = program(tmp_path, body)
    text = script.read_text().replace("print(dy.batch_map(", "print(attempt(", 1)
    text = text.replace("def main(", "def attempt(f, data):\n    try:\n        return dy.batch_map(f, data)\n"
                        "    except ZeroDivisionError as e:\n        return e.instance, len(e.others)\n\n\n"
                        "def main(", 1)  # fmt: skip
    script.write_text(text)
    plain, _ = run(script, hints=False)
    assert cli.main([str(script)]) == 0
    assert run(script, hints=True)[0] == plain
