"""What the compile step finds in whole programs: the examples, and scripts/ in the style of well-known ones.

The scripts say it themselves, at the end of lines: `#: map`, `#: recurrence NAMES`, `#: graph` (loops), with
`instance` and `rewrite`; `#: region` (where one begins); `#: read`. Nothing else may be found.
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
from dynet_compat.hints.analysis.script import ScriptAnalysis  # noqa: E402
from dynet_compat.hints.compiler import hints_of, listings_of  # noqa: E402
from dynet_compat.hints.rewrite.linking import FoundRegion  # noqa: E402
from sources import EXAMPLES, SCRIPTS  # noqa: E402

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))


def wanted(path: Path) -> Counter[tuple[int, str]]:
    """(line, what) of each remark."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for remark in re.findall(r"#: ([^#]*)", line):
            words = remark.split()
            if words[0] in ("region", "read"):
                found[number, words[0]] += 1
                continue
            extra = [w for w in words[1:] if w in ("instance", "rewrite")]
            carried = [w for w in words[1:] if w not in extra]
            found[number, " ".join([words[0], *sorted(carried)])] += 1
            found.update((number, w) for w in extra)
    return found


def regions(found: ScriptAnalysis) -> list[FoundRegion]:
    """Those of the script itself."""
    return listings_of(found, hints_of(found))[found.program.sources[0].path].regions


def reads(found: ScriptAnalysis) -> list[Any]:
    return sorted(found.facts.reads, key=found.program.uid.__getitem__)


def found_in(found: ScriptAnalysis) -> Counter[tuple[int, str]]:
    """The same of what was found."""
    lines: Counter[tuple[int, str]] = Counter()
    for facts in found.loops.found.values():
        lines[facts.loop.line, " ".join([facts.kind, *facts.carried])] += 1
    lines.update((i.loop.line, "instance") for i in found.instances.all if i.kind == "batch")
    lines.update((region.line, "region") for region in regions(found))
    lines.update((node.lineno, "read") for node in reads(found))
    lines.update((r.loop.line, "rewrite") for r in found.independence.proved())
    return lines


@pytest.mark.parametrize("name", NAMES)
def test_script(name: str) -> None:
    path = SCRIPTS / f"{name}.py"
    want, got = wanted(path), found_in(ScriptAnalysis(str(path)))
    assert sum(want.values()) > 4
    assert sorted((want - got).items()) == [], "not found"
    assert sorted((got - want).items()) == [], "found, and not there"


@pytest.mark.parametrize("name", NAMES)
def test_script_runs(name: str) -> None:
    """They are programs, not only texts."""
    command = [sys.executable, "-m", "dynet_compat", "run", str(SCRIPTS / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout


# example -> loops (function, form, kind, carried), loop over instances, regions (form), reads, proved loops
GOLDEN: dict[str, dict[str, str]] = {
    "xor": {
        "loops": "",
        "instance": "",
        "regions": "Xor.__init__",
        "reads": "train_batch.value; predict_batch.value",
        "rewrites": "",
    },
    "mlp": {
        "loops": "train_batch for graph; predict_batch comprehension map; main for graph",
        "instance": "train_batch online",
        "regions": "Perceptron.scores",
        "reads": "train_batch.value; predict_batch.forward; predict_batch.npvalue",
        "rewrites": "",
    },
    "bilstm_tagger": {
        "loops": "Tagger.scores comprehension map; Tagger.scores comprehension map; "
        "Tagger.loss comprehension map; train_batch comprehension map; "
        "predict_batch comprehension map; main for graph",
        "instance": "train_batch batch",
        "regions": "Tagger.scores comprehension",
        "reads": "train_batch.value; predict_batch.forward; predict_batch.npvalue",
        "rewrites": "",
    },
    "bilstm_char_tagger": {
        "loops": "Tagger.word comprehension map; Tagger.word comprehension map; "
        "Tagger.scores comprehension map; Tagger.scores comprehension map; "
        "Tagger.scores comprehension map; Tagger.loss comprehension map; "
        "train_batch comprehension map; predict_batch comprehension map; main for graph",
        "instance": "train_batch batch",
        "regions": "Tagger.scores comprehension; Tagger.scores comprehension",
        "reads": "train_batch.value; predict_batch.forward; predict_batch.npvalue",
        "rewrites": "",
    },
    "treelstm": {
        "loops": "TreeLSTM.loss comprehension map; train_batch comprehension map; predict_batch for map; "
        "main for graph",
        "instance": "train_batch batch",
        "regions": "TreeLSTM.leaf_state; TreeLSTM.gate; TreeLSTM.inner_state; "
        "TreeLSTM.encode; TreeLSTM.encode",
        "reads": "train_batch.value; predict_batch.forward; predict_batch.npvalue",
        "rewrites": "",
    },
    "rnnlm": {
        "loops": "LanguageModel.loss for recurrence state; train_batch comprehension map; "
        "predict_batch comprehension map; main for graph; main comprehension graph",
        "instance": "train_batch batch",
        "regions": "LanguageModel.loss loop",
        "reads": "train_batch.value; predict_batch.forward; predict_batch.value",
        "rewrites": "",
    },
    "seq2seq": {
        "loops": "Translator.encode comprehension map; Translator.encode comprehension map; "
        "Translator.encode comprehension map; Translator.loss for recurrence state; "
        "Translator.generate while recurrence state; train_batch comprehension map; "
        "predict_batch for graph; main for graph",
        "instance": "train_batch batch",
        "regions": "Translator.encode; Translator.step; Translator.loss loop; Translator.generate",
        "reads": "Translator.generate.npvalue; train_batch.value",
        "rewrites": "predict_batch renews outputs",
    },
    "parser": {
        "loops": "Parser.parse comprehension map; Parser.parse while recurrence stack; "
        "train_batch comprehension map; predict_batch for graph; main for graph",
        "instance": "train_batch batch",
        "regions": "Parser.reduce; Parser.parse; Parser.parse",
        "reads": "Parser.parse.value; train_batch.value",
        "rewrites": "train_batch; predict_batch renews outputs",
    },
}


def described(found: ScriptAnalysis) -> dict[str, list[str]]:
    """What was found, in the words of GOLDEN."""

    def name(function: int) -> str:
        return found.program.functions[function].qualname

    loops = sorted(found.loops.found.values(), key=lambda facts: found.program.uid[facts.loop.node])
    instances = sorted(found.instances.all, key=lambda i: (not i.training, i.kind != "batch"))
    return {
        "loops": [" ".join([name(f.loop.function), f.loop.form, f.kind, *f.carried]) for f in loops],
        "instance": [f"{name(i.loop.function)} {i.kind}" for i in instances[:1]],
        "regions": [f"{r.qualname} {r.form}".strip() for r in regions(found)],
        "reads": [f"{name(found.program.owner[node])}.{found.facts.reads[node]}" for node in reads(found)],
        "rewrites": [
            " ".join([r.qualname, *["renews"] * r.renew_first, *r.appends])
            for r in hints_of(found).independent_loops
        ],
    }


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_example(name: str) -> None:
    found = ScriptAnalysis(str(EXAMPLES / f"{name}.py"))
    assert found.state.complete and not found.program.problems
    assert {key: "; ".join(texts) for key, texts in described(found).items()} == GOLDEN[name]
    functions = {f.qualname for f in hints_of(found).functions}
    assert functions >= {read.rsplit(".", 1)[0] for read in described(found)["reads"]}


def test_every_example_is_here() -> None:
    from support.examples import SCRIPTS as RUN

    assert set(RUN) == set(GOLDEN)


def test_the_subtrees_of_a_tree_do_not_need_each_other() -> None:
    found = ScriptAnalysis(str(EXAMPLES / "treelstm.py"))
    (encode,) = (f for f in found.program.functions if f.qualname == "TreeLSTM.encode")
    assert encode.id in found.graph.recursive
    assert [len(group) for group in found.graph.siblings(encode)] == [2]
