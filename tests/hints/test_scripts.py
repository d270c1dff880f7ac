"""What the compile step finds in whole programs: the examples, and scripts/ in the style of well-known ones.

The scripts say it themselves, at the end of lines: `#: map`, `#: recurrence NAMES`, `#: graph` (loops), with
`instance`, `rewrite` and `sums=NAMES`; `#: template`; `#: read`. Nothing else may be found.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat.hints import hints_file  # noqa: E402
from dynet_compat.hints.passes import Passes  # noqa: E402
from sources import EXAMPLES, SCRIPTS  # noqa: E402

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))


def wanted(path: Path) -> Counter[tuple[int, str]]:
    """(line, what) of each remark."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for remark in re.findall(r"#: ([^#]*)", line):
            words = remark.split()
            if words[0] in ("template", "read"):
                found[number, words[0]] += 1
                continue
            extra = [w for w in words[1:] if w in ("instance", "rewrite") or w.startswith("sums=")]
            carried = [w for w in words[1:] if w not in extra]
            found[number, " ".join([words[0], *sorted(carried)])] += 1
            found.update((number, w) for w in extra)
    return found


def found_in(hints: hints_file.Hints) -> Counter[tuple[int, str]]:
    """The same of what was found."""
    found: Counter[tuple[int, str]] = Counter()
    for loop in hints.loops:
        found[loop.place.line, " ".join([loop.kind, *loop.carried])] += 1
        found.update((loop.place.line, f"sums={name}") for name in loop.sums)
    found.update((i.line, "instance") for i in hints.instance_loops if i.kind == "batch")
    found.update((t.line, "template") for t in hints.templates)
    found.update((s.place.line, "read") for s in hints.sync_points)
    found.update((r.line, "rewrite") for r in hints.independent_loops)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_script(name: str) -> None:
    path = SCRIPTS / f"{name}.py"
    want, got = wanted(path), found_in(Passes(str(path)).hints())
    assert sum(want.values()) > 4
    assert sorted((want - got).items()) == [], "not found"
    assert sorted((got - want).items()) == [], "found, and not there"


@pytest.mark.parametrize("name", NAMES)
def test_script_runs(name: str) -> None:
    """They are programs, not only texts."""
    command = [sys.executable, "-m", "dynet_compat", "run", str(SCRIPTS / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout


# example -> loops (qualname, form, kind, carried), the instance loop, templates (ops), reads, proved loops
GOLDEN: dict[str, dict[str, Any]] = {
    "xor": {
        "loops": [],
        "instance": None,
        "templates": {},
        "reads": ["train_batch.value", "predict_batch.value"],
        "rewrites": [],
    },
    "mlp": {
        "loops": [
            ("train_batch", "for", "graph", ()),
            ("predict_batch", "comprehension", "map", ()),
            ("main", "for", "graph", ()),
        ],
        "instance": ("train_batch", "online"),
        "templates": {},
        "reads": ["train_batch.value", "predict_batch.forward", "predict_batch.npvalue"],
        "rewrites": [],
    },
    "bilstm_tagger": {
        "loops": [
            ("Tagger.scores", "comprehension", "map", ()),
            ("Tagger.scores", "comprehension", "map", ()),
            ("Tagger.loss", "comprehension", "map", ()),
            ("train_batch", "comprehension", "map", ()),
            ("predict_batch", "comprehension", "map", ()),
            ("main", "for", "graph", ()),
        ],
        "instance": ("train_batch", "batch"),
        "templates": {},
        "reads": ["train_batch.value", "predict_batch.forward", "predict_batch.npvalue"],
        "rewrites": [],
    },
    "bilstm_char_tagger": {
        "loops": [
            ("Tagger.word", "comprehension", "map", ()),
            ("Tagger.word", "comprehension", "map", ()),
            ("Tagger.scores", "comprehension", "map", ()),
            ("Tagger.scores", "comprehension", "map", ()),
            ("Tagger.scores", "comprehension", "map", ()),
            ("Tagger.loss", "comprehension", "map", ()),
            ("train_batch", "comprehension", "map", ()),
            ("predict_batch", "comprehension", "map", ()),
            ("main", "for", "graph", ()),
        ],
        "instance": ("train_batch", "batch"),
        "templates": {},
        "reads": ["train_batch.value", "predict_batch.forward", "predict_batch.npvalue"],
        "rewrites": [],
    },
    "treelstm": {
        "loops": [
            ("TreeLSTM.loss", "comprehension", "map", ()),
            ("train_batch", "comprehension", "map", ()),
            ("predict_batch", "for", "map", ()),
            ("main", "for", "graph", ()),
        ],
        "instance": ("train_batch", "batch"),
        "templates": {"TreeLSTM.leaf_state": 10, "TreeLSTM.inner_state": 19},
        "reads": ["train_batch.value", "predict_batch.forward", "predict_batch.npvalue"],
        "rewrites": [],
    },
    "rnnlm": {
        "loops": [
            ("LanguageModel.loss", "for", "recurrence", ("state",)),
            ("train_batch", "comprehension", "map", ()),
            ("predict_batch", "comprehension", "map", ()),
            ("main", "for", "graph", ()),
            ("main", "comprehension", "graph", ()),
        ],
        "instance": ("train_batch", "batch"),
        "templates": {},
        "reads": ["train_batch.value", "predict_batch.forward", "predict_batch.value"],
        "rewrites": [],
    },
    "seq2seq": {
        "loops": [
            ("Translator.encode", "comprehension", "map", ()),
            ("Translator.encode", "comprehension", "map", ()),
            ("Translator.encode", "comprehension", "map", ()),
            ("Translator.loss", "for", "recurrence", ("state",)),
            ("Translator.generate", "while", "recurrence", ("state",)),
            ("train_batch", "comprehension", "map", ()),
            ("predict_batch", "for", "graph", ()),
            ("main", "for", "graph", ()),
        ],
        "instance": ("train_batch", "batch"),
        "templates": {"Translator.step": 11},
        "reads": ["Translator.generate.npvalue", "train_batch.value"],
        "rewrites": [("predict_batch", True, ("outputs",))],
    },
    "parser": {
        "loops": [
            ("Parser.parse", "comprehension", "map", ()),
            ("Parser.parse", "while", "recurrence", ("stack",)),
            ("train_batch", "comprehension", "map", ()),
            ("predict_batch", "for", "graph", ()),
            ("main", "for", "graph", ()),
        ],
        "instance": ("train_batch", "batch"),
        "templates": {"Parser.reduce": 4},
        "reads": ["Parser.parse.value", "train_batch.value"],
        "rewrites": [("train_batch", False, ()), ("predict_batch", True, ("outputs",))],
    },
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_example(name: str) -> None:
    want = GOLDEN[name]
    hints = Passes(str(EXAMPLES / f"{name}.py")).hints()
    assert hints.complete and not hints.problems
    loops = [(x.place.qualname, x.form, x.kind, x.carried) for x in hints.loops]
    assert sorted(loops) == sorted(want["loops"])
    found = hints.instance_loop
    assert (None if found is None else (found.qualname, found.kind)) == want["instance"]
    assert {t.qualname: t.ops for t in hints.templates} == want["templates"]
    assert [f"{s.place.qualname}.{s.method}" for s in hints.sync_points] == want["reads"]
    assert [(r.qualname, r.renew_first, r.appends) for r in hints.independent_loops] == want["rewrites"]


def test_every_example_is_here() -> None:
    from support.examples import SCRIPTS as RUN

    assert set(RUN) == set(GOLDEN)


def test_treelstm_in_detail() -> None:
    """Weights met through a helper, recursion, wiring, phases."""
    hints = Passes(str(EXAMPLES / "treelstm.py")).hints()
    groups = {(g.qualname, g.line): [w.name for w in g.params] for g in hints.param_groups}
    assert ["self.leaf['i']", "self.leaf['o']", "self.leaf['u']"] in groups.values()
    left = [[w.key for w in g.params] for g in hints.param_groups if "self.left['i']" in str(g.params)]
    assert left and all(keys == ["i", "o", "u", "l", "r"] for keys in left)
    (helper,) = hints.helpers
    assert helper.qualname == "TreeLSTM.gate" and len(helper.calls) == 5
    (recursion,) = hints.recursion
    assert recursion.qualname == "TreeLSTM.encode"
    assert [len(group) for group in recursion.siblings] == [2]
    ops = [hints.sites[op.site].op for op in next(b for b in hints.blocks if len(b.ops) == 10).ops]
    assert (
        ops
        == (
            "lookup affine_transform logistic affine_transform logistic affine_transform tanh "
            "cmult tanh cmult"
        ).split()
    )
    roles = {(s.place.qualname, s.op): s.role for s in hints.sites}
    assert roles["TreeLSTM.leaf_state", "lookup"] == "before"
    assert roles["TreeLSTM.gate", "affine_transform"] == "within"
    assert roles["TreeLSTM.loss", "pickneglogsoftmax"] == "after"
    phase = {(s.place.qualname, s.op): s.phase for s in hints.sites}
    assert (
        phase["TreeLSTM.leaf_state", "lookup"]
        < phase["TreeLSTM.gate", "affine_transform"]
        < phase["TreeLSTM.loss", "pickneglogsoftmax"]
    )


def test_positions_are_those_of_the_text() -> None:
    hints = Passes(str(EXAMPLES / "rnnlm.py")).hints()
    lines = (EXAMPLES / "rnnlm.py").read_text(encoding="utf-8").splitlines()
    for site in hints.sites:
        place = site.place
        text = lines[place.line - 1][place.col : place.end_col if place.end_line == place.line else None]
        assert (site.op in text) or (site.op == "lookup" and "[word]" in text)
