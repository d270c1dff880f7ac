"""The notebook of the guide is valid, runs from top to bottom, and teaches what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our documentation")

NOTEBOOK = Path(__file__).resolve().parents[2] / "migration_guide" / "tutorial.ipynb"
# Runs the cells as a notebook does: one namespace, and the value of the last line is shown.
RUNNER = """
import ast, json, sys, traceback
names = {"__name__": "__main__"}
for number, text in enumerate(json.load(sys.stdin), 1):
    try:
        lines = ast.parse(text).body
        last = lines.pop() if isinstance(lines[-1], ast.Expr) else None
        exec(compile(ast.Module(lines, []), f"<code cell {number}>", "exec"), names)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), f"<code cell {number}>", "eval"), names)
            if shown is not None:
                print(shown, getattr(shown, "_repr_svg_", str)())
    except BaseException:
        sys.exit(f"code cell {number} fails:\\n{text}\\n{traceback.format_exc()}")
names["dy"].renew_cg()
facts = ("losses", "accuracy", "beginnings", "predicted", "before", "after")
with open("facts.json", "w") as file:
    json.dump({name: names[name] for name in facts}, file)
"""


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def run(code: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    return subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(code), cwd=folder, env=environment,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_cells_run(tmp_path: Path) -> None:
    result = run(cells("code"), tmp_path)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    facts: dict[str, Any] = json.loads((tmp_path / "facts.json").read_text())
    assert facts["losses"][-1] < facts["losses"][0] / 5, f"the tagger does not learn: {facts['losses']}"
    assert facts["accuracy"] > 0.95, "the tagger does not tag sentences that it has not seen"
    upto = [tags[: tags.index("VERB") + 1] for tags in facts["predicted"]]
    assert facts["beginnings"] == upto, "batch_map finds other tags than the plain loop"
    assert facts["before"] == facts["after"], "the loaded model predicts other tags than the saved one"
    nodes, launches = map(int, re.findall(r"^(\d+) nodes in (\d+) launches$", result.stdout, re.M)[0])
    assert launches * 5 < nodes, f"the minibatch is not computed together: {nodes} nodes, {launches} launches"
    assert result.stdout.splitlines()[0].endswith("{3}"), "the repr of an expression does not show its shape"
    assert "<svg" in result.stdout, "the expression at the end of a cell is not drawn"
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8").startswith("<svg")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_the_failing_cell_is_shown(tmp_path: Path) -> None:
    result = run(["x = 1", "y = x / 0"], tmp_path)
    assert result.returncode == 1
    assert "code cell 2 fails:\ny = x / 0" in result.stderr and "ZeroDivisionError" in result.stderr


def test_notebook_is_valid() -> None:
    """The fields that nbformat 4.5 requires, and no others; no outputs, so that none can be outdated."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook["metadata"]["kernelspec"]) == {"display_name", "language", "name"}
    common = {"cell_type", "id", "metadata", "source"}
    for cell in notebook["cells"]:
        code = cell["cell_type"] == "code"
        assert code or cell["cell_type"] == "markdown", cell
        assert set(cell) == (common | {"execution_count", "outputs"} if code else common), cell
        assert re.fullmatch(r"[\w-]{1,64}", cell["id"]) and cell["metadata"] == {}, cell
        assert cell["source"] and all(isinstance(line, str) for line in cell["source"]), cell
        assert all(line.endswith("\n") for line in cell["source"][:-1]), cell
        assert not code or (cell["execution_count"], cell["outputs"]) == (None, []), cell
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids)), "two cells have the same id"


def test_each_code_cell_is_introduced() -> None:
    kinds = [cell["cell_type"] for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]]
    assert all(before == "markdown" for before, kind in zip(kinds, kinds[1:]) if kind == "code")


def test_nothing_of_one_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    found = re.findall(r"(?<![\w.:/])(?:/\w+/|~/|[A-Z]:\\\\)[^\s\"]*|https?://[^\s\"]+|\b\w+@\w+\b", text)
    assert found == [], f"paths or addresses in the notebook: {found}"
    for target in re.findall(r"\]\(([^)#]+)", "\n".join(cells("markdown"))):
        assert (NOTEBOOK.parent / target).exists(), f"the notebook links to {target}, which does not exist"
