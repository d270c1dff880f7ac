"""Every name of DyNet's surface is there, with its signature; and what the names do is what DyNet does."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support import oracle, surface_cases
from support.subject import IS_REFERENCE
from test_docs import run_examples

ROOT = Path(__file__).resolve().parent.parent.parent
SURFACE = Path(__file__).with_name("surface.json")
RECORDED = json.loads((oracle.DATA / "surface.json").read_text(encoding="utf-8"))

sys.path.insert(0, str(ROOT / "tools"))

import check_surface  # noqa: E402

# Where the reference differs on purpose: expression -> what we give.
OURS = {
    "dy.zeroes is dy.zeros": "True",
    # a list of strings, not of bytes; the same attributes
}


def surface() -> check_surface.Surface:
    return check_surface.Surface(json.loads(SURFACE.read_text(encoding="utf-8")))


@pytest.mark.skipif(IS_REFERENCE, reason="our signatures")
def test_nothing_is_missing() -> None:
    checked = surface()
    left = check_surface.undocumented(checked.run())
    assert checked.checked > 900
    assert not left, "\n".join(map(str, left))


@pytest.mark.parametrize(
    ("change", "report"),
    [
        (lambda s: s["functions"]["pick"]["params"].reverse(), "pick: parameter 1 is e, not dim"),
        (lambda s: s["functions"]["pick"]["params"][1].update(default=1), "pick: default of index: 0"),
        (lambda s: s["functions"]["exp"].update(name="exq"), None),
        (lambda s: s["functions"].update(exq=s["functions"]["exp"]), "exq: is missing"),
        (lambda s: s["functions"]["exp"]["params"].pop(), "exp: extra parameter x"),
        (
            lambda s: s["functions"]["exp"]["params"].append({"name": "q", "kind": "var_keyword"}),
            "exp: parameter q is missing",
        ),
        (
            lambda s: s["classes"]["Expression"]["members"]["dim"].update(name="dims"),
            "Expression.dims: is missing",
        ),
        (
            lambda s: s["classes"]["GRUBuilder"].update(base="Expression"),
            "GRUBuilder: is not derived from Expression",
        ),
        (
            lambda s: s["classes"]["GRUBuilder"]["members"]["__init__"]["params"].pop(),
            "GRUBuilder.__init__: extra parameter model",
        ),
        (
            lambda s: s["classes"]["AdamTrainer"]["members"]["__init__"]["params"][2].update(default=0.5),
            "AdamTrainer.__init__: default of alpha: 0.001",
        ),
        (lambda s: s["class_aliases"].update(Model="Expression"), "Model: is not Expression"),
        (lambda s: s["star_import_leaks"].append("scipy"), "scipy: is missing"),
        (
            lambda s: s["dynet_config"]["functions"]["set"]["params"][0].update(default="5"),
            "dynet_config.set: default of mem: '512'",
        ),
        (
            lambda s: s["dynet_viz"]["functions"]["print_graphviz"]["params"].pop(),
            "dynet_viz.print_graphviz: extra parameter collapse_birnns",
        ),
        (lambda s: s["dynet_viz"]["functions"].update(no_op={}), "dynet_viz.no_op: is missing"),
        (lambda s: s["module_aliases"].update(_xdynet=""), "_xdynet: is no module of the shims"),
    ],
)
@pytest.mark.skipif(IS_REFERENCE, reason="our signatures")
def test_tool_sees_changes(change: Any, report: str | None) -> None:
    """A list that is changed in one place is reported to differ there."""
    before = set(map(str, check_surface.undocumented(surface().run())))
    changed = surface()
    change(changed.surface)
    reports = set(map(str, check_surface.undocumented(changed.run()))) - before
    assert reports if report else not reports
    if report:
        assert any(line.startswith(report) for line in reports), reports


def test_command_line_of_the_tool() -> None:
    """The exit status says whether something is left."""
    with tempfile.TemporaryDirectory() as folder:
        listed = json.loads(SURFACE.read_text(encoding="utf-8"))
        listed["functions"]["no_such_function"] = listed["functions"]["exp"]
        path = Path(folder) / "list.json"
        path.write_text(json.dumps(listed), encoding="utf-8")
        command = [sys.executable, str(ROOT / "tools" / "check_surface.py"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "no_such_function: is missing" in done.stdout.splitlines()
    assert "undocumented differences" in done.stdout.splitlines()[-1]


# ---------------------------------------------------------------- arguments are really taken


def callables(dy: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """(name, function or method or class, entry) of everything whose arguments have names."""
    listed = json.loads(SURFACE.read_text(encoding="utf-8"))
    pc = dy.ParameterCollection()
    rnn = dy.VanillaLSTMBuilder(1, 2, 2, pc)
    table = pc.add_lookup_parameters((3, 2))
    x = dy.inputVector([1, 2])
    objects = {
        "DynetParams": dy.DynetParams(),
        "Expression": x,
        "Parameters": pc.add_parameters((2, 2)),
        "LookupParameters": table,
        "ParameterCollection": pc,
        "ComputationGraph": dy.cg(),
        "_inputExpression": dy.scalarInput(1),
        "_vecInputExpression": x,
        "_lookupExpression": table[0],
        "_tensorInputExpression": dy.inputTensor([1.0], reusable_expr=True),
        "_pickerExpression": x[0],
        "_lookupBatchExpression": table.batch([0, 1]),
        "_pickerBatchExpression": dy.pick_batch(x, [0, 1]),
        "SimpleRNNBuilder": dy.SimpleRNNBuilder(1, 2, 2, pc),
        "VanillaLSTMBuilder": rnn,
        "_RNNBuilder": rnn,
        "CompactVanillaLSTMBuilder": dy.CompactVanillaLSTMBuilder(1, 2, 2, pc),
        "SparseLSTMBuilder": dy.SparseLSTMBuilder(1, 2, 2, pc),
        "RNNState": rnn.initial_state(),
        "Trainer": dy.SimpleSGDTrainer(pc),
        "UnsignedValue": dy.UnsignedValue(),
        "FloatVectorValue": dy.FloatVectorValue([1]),
        "BiRNNBuilder": dy.BiRNNBuilder(1, 2, 2, pc, dy.GRUBuilder),
    }
    found = [(name, getattr(dy, name, None), entry) for name, entry in listed["functions"].items()]
    for name, entry in listed["classes"].items():
        found.append((name, getattr(dy, name, None), entry["members"].get("__init__", {"params": []})))
        for member, method in entry["members"].items():
            if name in objects and method["kind"] == "method" and not member.startswith("__"):
                found.append((f"{name}.{member}", getattr(objects[name], member, None), method))
    return [(n, c, e) for n, c, e in found if c is not None]


@pytest.mark.skipif(IS_REFERENCE, reason="the reference refuses some keywords")
def test_keywords_are_taken(dy: Any) -> None:
    """The names in the signature are those that the parser of the arguments knows, and no others."""
    told = []
    tried = 0
    for name, item, entry in callables(dy):
        listed = [p["name"] for p in entry["params"] if p["kind"] == "positional_or_keyword"]
        parameters = [p for p in listed if p not in ("self", "cls")]
        if name.endswith(("init", "init_from_params", "from_args", "LookupParameters.scalar_value")):
            continue  # they would initialise, or raise anyhow
        if not parameters:
            continue
        tried += 1
        for names, wanted in ((parameters, False), ([*parameters, "no_such_name"], True)):
            try:
                item(**dict.fromkeys(names, object()))
                refused = False
            except Exception as error:
                words = str(error)
                refused = any(t in words for t in ("unexpected", "unknown", "at most", "and no more"))
                if "incompatible" in words:  # pybind11 says so of names and of types
                    refused = wanted
            if refused is not wanted:
                told.append((name, names, words))
    assert not told, "\n".join(map(str, told))
    assert tried > 200


# ---------------------------------------------------------------- expressions


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    import dynet_compat

    return surface_cases.namespace(dynet_compat, dynet_compat)


@pytest.mark.parametrize(("code", "wanted"), RECORDED["expressions"], ids=lambda v: str(v)[:40])
@pytest.mark.skipif(IS_REFERENCE, reason="compares with the reference")
def test_expression(names: dict[str, Any], code: str, wanted: str) -> None:
    found = surface_cases.evaluate(names, code)
    wanted = OURS.get(code, wanted)
    assert found.replace("input", "constant") == wanted if "graphviz(" in code[:9] else found == wanted


def test_recordings_are_of_these_cases() -> None:
    assert [code for code, _ in RECORDED["expressions"]] == surface_cases.EXPRESSIONS
    assert [a for a, _ in RECORDED["options"]] == surface_cases.OPTIONS


def test_recordings_are_the_reference(oracle_python: str) -> None:
    """The expressions once more, in the real DyNet."""
    code = (
        "import json, sys; sys.path.insert(0, %r); import dynet, _dynet; "
        "from support import surface_cases as s; n = s.namespace(dynet, _dynet); "
        "found = [[c, s.evaluate(n, c)] for c in s.EXPRESSIONS]; "
        "open(sys.argv[1], 'w').write(json.dumps(found))"
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [oracle_python, "-c", code % str(ROOT / "tests"), str(out)]
        subprocess.run(
            command, env=oracle.clean_environment(), check=True, timeout=300, stdout=subprocess.DEVNULL
        )
        found = json.loads(out.read_text(encoding="utf-8"))
    assert found == RECORDED["expressions"]


# ---------------------------------------------------------------- documentation


def documented() -> list[str]:
    """Functions and classes of the modules that ops/cases.py does not reach."""
    from dynet_compat.api import graph, legacy, value_types
    from dynet_compat.inspection import dump

    return sorted({name for module in (dump, graph, value_types, legacy) for name in module.__all__})


@pytest.mark.parametrize("name", documented())
@pytest.mark.skipif(IS_REFERENCE, reason="our documentation")
def test_examples(dy: Any, name: str) -> None:
    doc = getattr(dy, name).__doc__
    assert doc, f"dy.{name} has no docstring"
    tries = run_examples(dy, name, doc)
    assert tries or name in ("DeviceInfo", "Saveable")
