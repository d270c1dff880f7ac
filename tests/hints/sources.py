"""Small programs for the tests of the compile step."""

from __future__ import annotations

import random
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = Path(__file__).resolve().parent / "scripts"

MODEL = """
import dynet as dy
pc = dy.ParameterCollection()
W = pc.add_parameters((4, 4))
V = pc.add_parameters((4, 4))
b = pc.add_parameters(4)
E = pc.add_lookup_parameters((10, 4))
rnn = dy.LSTMBuilder(1, 4, 4, pc)
"""


def written(folder: Path, text: str, name: str = "script.py", model: bool = True) -> Path:
    """A script file: the model above, then the text."""
    path = folder / name
    path.write_text((MODEL if model else "") + textwrap.dedent(text), encoding="utf-8")
    return path


def analysed(folder: Path, text: str, model: bool = True) -> Any:
    """What the analysis finds in a text."""
    from dynet_compat.hints.analysis.script import ScriptAnalysis

    return ScriptAnalysis(str(written(folder, text, model=model)))


def explained(analysis: Any) -> Any:
    """What --explain says of it."""
    from dynet_compat.hints.compiler import hints_of, listings_of
    from dynet_compat.hints.explain import Explanation

    return Explanation(analysis, listings_of(analysis, hints_of(analysis)))


def generated(lines: int, seed: int = 0) -> str:
    """A long program of classes, recurrences, branches and calls of one another."""
    rng = random.Random(seed)
    out = MODEL.strip().splitlines()
    k = 0
    while len(out) < lines:
        k += 1
        other = f"f{rng.randrange(1, k)}(batch, m)" if k > 1 else "pass"
        out += textwrap.dedent(f"""
            class M{k}:
                def __init__(self):
                    self.W = pc.add_parameters((4, 4))
                    self.b = pc.add_parameters(4)
                    self.rnn = dy.LSTMBuilder(1, 4, 4, pc)
                def cell(self, x, h):
                    z = dy.tanh(self.W * x + self.b)
                    return dy.cmult(z, h) + z
                def run(self, words, mode):
                    s = self.rnn.initial_state()
                    outs = []
                    for w in words:
                        x = E[w]
                        if mode > 1:
                            x = self.cell(x, x)
                        elif mode > 0:
                            x = x + x
                        s = s.add_input(x)
                        outs.append(s.output())
                    return outs
            def f{k}(batch, m):
                model = M{k}()
                dy.renew_cg()
                losses = []
                for words in batch:
                    hs = model.run(words, m)
                    losses += [dy.pickneglogsoftmax(W * h, 1) for h in hs]
                    {other}
                loss = dy.esum(losses)
                loss.value()
                loss.backward()
                return loss
            f{k}([[1, 2], [3]], {k % 3})
        """).strip().splitlines()  # fmt: skip
    return "\n".join(out) + "\n"
