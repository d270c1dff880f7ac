"""Parts of `compare` by themselves: hooks in extension types, tolerances, plots, the command line."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
import types
import xml.dom.minidom
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("for dynet_compat", allow_module_level=True)

from dynet_compat.compare import cli, diff, reading, report, svg, table  # noqa: E402
from dynet_compat.compare.errors import CannotCompare  # noqa: E402
from dynet_compat.compare.side_by_side import KINDS, Cost, Result  # noqa: E402

FOLDER = Path(diff.__file__).resolve().parent

PATCHED = """
import sys
sys.path.insert(0, {folder!r})
import instrument
import numpy as np
T = np.ndarray  # an extension type that cannot be changed
try:
    T.ravel = None
except TypeError:
    pass
else:
    sys.exit("changed without hooks")
flags, log = T.__flags__, []
kept = {{name: T.__dict__[name] for name in ("__add__", "__getitem__", "ravel")}}
for name, original in kept.items():
    def hook(*args, name=name, original=original):
        log.append(name)
        return original(*args)
    instrument.patch(T, name, hook)
x = np.ones(3) + 1
x[0], x.ravel()
assert log == ["__add__", "__getitem__", "ravel"], log
assert T.__flags__ & 0x300 == flags & 0x300, "the type can be changed by anybody now"
for name, original in kept.items():
    instrument.patch(T, name, original)
x + 1, x[0], x.ravel()
assert len(log) == 3
cell = [0.0]
def timed(function):
    def hook(x):
        start = time.perf_counter()
        function(x)
        cell[0] += time.perf_counter() - start
    return hook
import time
added, counted = instrument.cost_per_call(timed, cell)
assert 0 < added < 1e-4 and 0 <= counted <= added, (added, counted)
print("done")
"""


def python_with_numpy() -> list[str]:
    from support import oracle

    return [python for python in (sys.executable, oracle.interpreter()) if python]


@pytest.mark.parametrize("python", python_with_numpy())
def test_hooks_in_extension_types(python: str) -> None:
    """Operators, too; and the type is as it was afterwards. Under Python 3.8 as well where there is one."""
    code = PATCHED.format(folder=str(FOLDER))
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize(
    ("got", "want", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.002], [1.0, 2.0], 0.001),  # relative to the largest
        ([1e-9], [3e-9], 0.0),  # far below what counts
        ([0.5], [0.0], 50.0),  # relative to FLOOR / rtol = 0.01
        ([float("nan"), 1.0], [float("nan"), 1.0], 0.0),
        ([float("inf")], [float("inf")], 0.0),
        ([float("inf")], [1.0], float("inf")),
        ([float("nan")], [1.0], float("inf")),
        ([float("inf")], [-float("inf")], float("inf")),
        ([1.0], [1.0, 2.0], float("inf")),
        ([], [], 0.0),
    ],
)
def test_relative_difference(got: list[float], want: list[float], expected: float) -> None:
    found = diff.relative_difference(np.array(got), np.array(want), 1e-4)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_segments_are_as_single_ones() -> None:
    random = np.random.default_rng(1)
    parts = [random.normal(size=size) for size in (1, 5, 1, 300, 2)] + [np.array([np.nan, np.inf, 1e-9])]
    others = [part * (1 + 1e-3 * random.normal(size=part.size)) for part in parts]
    others[4] = np.array([np.nan, 1.0])
    starts = np.cumsum([0] + [part.size for part in parts[:-1]])
    want, got = np.concatenate(parts), np.concatenate(others)
    found = diff.segment_differences(got, want, starts, 1e-4)
    single = [diff.relative_difference(b, a, 1e-4) for a, b in zip(parts, others)]
    assert found.tolist() == single and found[4] == np.inf


def test_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It doubles its stride while writing is too slow, and the second side takes the same ones."""
    rows: list[list[Any]] = []
    times, files = types.SimpleNamespace(started=0.0, hidden=0.0), types.SimpleNamespace(write=rows.append)
    book = types.SimpleNamespace(spec={}, times=times, files=files)
    first = reading.Sampler("arrays", book)
    monkeypatch.setattr(reading, "_clock", lambda: 0.01 * first.count)
    first.spent = 1.5  # three times what is allowed at the start; from 0.5 s on it is not too much any more
    taken = [first.is_next() for _ in range(200)]
    assert [number for number, is_taken in enumerate(taken, 1) if is_taken] == [64, 128, 192]
    schedule = [row[2:] for row in rows]
    assert schedule == [[2**i, 2 ** (i + 1)] for i in range(6)]
    book.spec = {"sampling": {"arrays": schedule}}
    second = reading.Sampler("arrays", book)
    assert [second.is_next() for _ in range(200)] == taken


def test_norm_and_element_difference() -> None:
    want = np.ones(100)
    got = want.copy()
    got[3] = 1.001  # one element of many: a tenth in the norm
    assert diff.norm_difference(got, want, 1e-4) == pytest.approx(1e-4, rel=1e-6)
    assert diff.norm_difference(np.full(2, np.nan), np.ones(2), 1e-4) == float("inf")
    each = diff.element_difference(np.array([1.0, 2.02, 1e-9]), np.array([1.0, 2.0, 0.0]), 1e-4)
    assert each[0] == 0 and each[1] == pytest.approx(0.01) and each[2] < 1e-4
    assert diff.element_difference(np.array([np.nan]), np.array([1.0]), 1e-4)[0] == np.inf


def test_show() -> None:
    assert diff.show(np.array([0.25])) == "0.25"
    assert diff.show(np.array([1.0, 5.0]), np.array([1.0, 2.0])) == "5 (element 1 of 2)"
    assert diff.show(np.arange(6.0), np.zeros(2)) == "[0, 1, 2, 3, ...] (6 numbers)"
    assert diff.show(np.zeros(0)) == "nothing"


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1.0, 2.0)],
        [(float(i), float(i % 7) - 3) for i in range(5000)],
        [(1.0, float("nan")), (2.0, 1.0)],
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_plots_are_xml(points: Any, log: bool) -> None:
    """Any data give a picture: none, one point, NaN, constants, many."""
    series = [("a <b>", points), ("c", [(x, 3.0) for x, _ in points])]
    drawn = [
        svg.lines("p", "T & t", "x", "y", series, log=log, limit=1e-4),
        svg.bars("p", "t", "ms", [("one", [1.0, 0.0]), ("two", [0.0, 0.0])], ["k", "l"]),
        svg.bars("p", "t", "ms", [], []),
        svg.histogram("p", "t", "x", "y", [[1, 5], [2, 3], [1000, 1]]),
        svg.histogram("p", "t", "x", "y", []),
    ]
    for text in drawn:
        xml.dom.minidom.parseString(text)
        assert "nan" not in text and "inf" not in text
    assert len(drawn[0]) < 60000  # many points are thinned out


def boxes(drawn: str) -> list[tuple[float, float, float, str]]:
    """Left, right and baseline of each text that is not turned."""
    found = []
    for node in xml.dom.minidom.parseString(drawn).getElementsByTagName("text"):
        if node.hasAttribute("transform"):
            continue
        text = node.firstChild.data
        width = len(text) * (7.5 if node.getAttribute("class") == "title" else 6.2)
        x, y = float(node.getAttribute("x")), float(node.getAttribute("y"))
        left = x - {"": 0, "start": 0, "middle": width / 2, "end": width}[node.getAttribute("text-anchor")]
        found.append((left, left + width, y, text))
    return found


NAMES = ["dynet_compat unbatched", "dynet_compat"]
LONG_PLOTS = {
    "times": svg.bars("p", "Time per step", "ms", [(n, [1.5, 22, 3, 4, 5]) for n in NAMES],
                      ["recording", "forward", "backward", "update", "script's own Python"]),
    "losses": svg.lines("p", "Loss", "call of backward()", "loss", [(n, [(1.0, 2.0)]) for n in NAMES]),
    "many steps": svg.lines("p", "Loss", "s", "l", [("a", [(99.0 * i, 1e9 * i) for i in range(1, 1234)])]),
    "equal": svg.lines("p", "Relative difference of losses (dashed: rtol)", "s", "l",
                       [("d", [(float(i), 0.0) for i in range(5000)])], log=True, limit=1e-4),
    **{f"up to 2**{n}": svg.histogram("p", "Launches of dynet_compat by batch size", "x", "y",
                                      [[2**i, 10**i] for i in range(n + 1)]) for n in (1, 7, 12, 25)},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LONG_PLOTS))
def test_labels_do_not_overlap(name: str) -> None:
    placed = boxes(LONG_PLOTS[name])
    for number, (left, right, y, text) in enumerate(placed):
        assert left >= 0 and right <= svg._WIDTH, f"{text!r} leaves the picture"
        for other_left, other_right, other_y, other in placed[:number]:
            apart = right <= other_left or other_right <= left or abs(y - other_y) >= 10
            assert apart, f"{text!r} covers {other!r}"


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9, 17, 100])
def test_steps_are_whole(count: int) -> None:
    series = [("a", [(i + 1.0, 0.5) for i in range(count)]), ("b", [(i + 1.0, 0.5) for i in range(count)])]
    drawn = svg.lines("p", "T", "x", "y", series)
    shown = [text for _, _, y, text in boxes(drawn) if y == svg._HEIGHT - svg._BOTTOM + 16]
    assert len(shown) >= 2 and all(text.isdigit() for text in shown) and len(set(shown)) == len(shown), shown


def test_equal_losses_are_visible() -> None:
    drawn = svg.lines(
        "p", "T", "x", "y", [("d", [(1.0, 0.0), (2.0, 1e-7), (3.0, 0.0)])], log=True, limit=1e-4
    )
    assert drawn.count('class="zero"') == 2 and "exactly equal: 2" in drawn
    assert not set(svg.COLOURS) & set(re.findall("#[0-9a-f]{6}", drawn)), "a difference has no side's colour"


def timed(reference: str, seconds: float, batched: bool = False) -> Result:
    costs = [Cost(seconds=s, steps=10, parts=dict.fromkeys(KINDS, s / 5)) for s in (seconds, 1.0)]
    return Result("s.py", [], names=[reference, "dynet_compat"], costs=costs, is_batched=batched, rtol=1e-4)


SPEEDS = [
    (timed("DyNet", 2.7), "2.7 times as fast as DyNet without autobatching (`--dynet-autobatch 1`"),
    (timed("DyNet", 2.7, True), "2.7 times as fast as DyNet with autobatching: 270.00 ms and 100.00"),
    (timed("DyNet", 0.5, True), "slower than DyNet with autobatching, by a factor of 2: 50.00 ms"),
    (timed("hints off", 1.01), "as fast as hints off: "),
]


@pytest.mark.parametrize(("result", "begins"), SPEEDS)
def test_speed_is_a_sentence(result: Result, begins: str) -> None:
    assert table.speed_line(result).startswith(f"dynet_compat is {begins}")
    assert begins[:20] in report.page([result])


def test_code_in_the_sentence_of_the_report() -> None:
    page = report.page([timed("DyNet", 2.7)], "compare x.py")
    assert "without autobatching (<code>--dynet-autobatch 1</code> after" in page


def test_page_says_what_was_run() -> None:
    result = timed("DyNet", 2.0)
    result.script, result.args = "/a b/s.py", ["--name", "it's"]
    result.versions = [
        "DyNet 2.1.2, Python 3.8.18, NumPy 1.24",
        "dynet_compat 0.1.0, Python 3.11.7, NumPy 2.0",
    ]
    page = report.page([result], "python -m dynet_compat compare 'a b'")
    first_screen = html.unescape(page[: page.index("<svg")])
    assert "python -m dynet_compat compare 'a b'" in first_screen
    assert shlex.join([result.script, *result.args]) in first_screen and "DyNet 2.1.2" in first_screen
    for word in ("launch", "nodes per launch", "recording", "rtol"):
        assert f"<td>{word}</td>" in page[page.index("What the words mean") :]


def test_summary_says_why() -> None:
    results = [
        Result("a.py", [], "skipped", "does not import dynet"),
        Result("b.py", [], "failed", "never trains"),
    ]
    assert [row[-1] for row in table.summary_rows(results)] == ["does not import dynet", "never trains"]


def test_thinning_keeps_extremes() -> None:
    points = [(float(i), 0.0) for i in range(10000)]
    points[7777] = (7777.0, 42.0)
    kept = svg._thin(points)
    assert len(kept) <= 2 * svg._MOST_POINTS and (7777.0, 42.0) in kept and kept == sorted(kept)


@pytest.mark.parametrize(
    ("line", "scripts", "args", "steps"),
    [
        ("s.py", ["s.py"], [], None),
        ("--steps 3 s.py --hidden 8 x", ["s.py"], ["--hidden", "8", "x"], 3),
        ("--steps=3 --plain s.py", ["s.py"], [], 3),
        ("s.py --steps 3 --help", ["s.py"], ["--steps", "3", "--help"], None),
        ("s.py -- --steps 3", ["s.py"], ["--steps", "3"], None),
        ("--steps 3 -- s.py x", ["s.py"], ["x"], 3),
        ("a.py b.py data.txt", ["a.py", "b.py"], ["data.txt"], None),
        ("a.py -- b.py", ["a.py"], ["b.py"], None),
        ("--no-report --no-progress folder --steps 5", ["folder"], ["--steps", "5"], None),
        ("s.py --dynet-seed 4", ["s.py"], ["--dynet-seed", "4"], None),
    ],
)
def test_command_line(line: str, scripts: list[str], args: list[str], steps: Any) -> None:
    chosen, found, rest = cli._split(line.split())
    assert (found, rest, chosen.steps) == (scripts, args, steps)


def test_find_scripts(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text("from dynet import tanh\n")
    (tmp_path / "helper.py").write_text("import numpy  # not dynet\n")
    assert cli.find_scripts([str(tmp_path)]) == ([tmp_path / "uses.py"], [tmp_path / "helper.py"])
    (tmp_path / "export.py").write_text("# dynet_compat compare: skip: trains nothing\nimport dynet\n")
    (tmp_path / "helper.py").unlink()
    assert cli.find_scripts([str(tmp_path)]) == ([tmp_path / "uses.py"], [tmp_path / "export.py"])
    assert cli.why_skipped((tmp_path / "export.py").read_text()) == "trains nothing"
    # A script that is named alone is run, whatever it imports or says.
    for name in ("helper.py", "export.py"):
        (tmp_path / name).touch()
        assert cli.find_scripts([str(tmp_path / name)]) == ([tmp_path / name], [])


def test_json_has_no_infinite_numbers() -> None:
    assert cli._finite({"a": [1.0, float("inf")], "b": (float("nan"), "x")}) == {
        "a": [1.0, None],
        "b": [None, "x"],
    }


def test_main_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The example in the docstring of `compare.main`."""
    from dynet_compat import compare

    assert "no_such_script.py" in (compare.main.__doc__ or "")
    assert compare.main(["no_such_script.py"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_errors_are_one_line() -> None:
    assert str(CannotCompare("it\nbroke", "mend it\n now")) == "it broke: mend it now"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "there" / "report.html"
    with pytest.raises(CannotCompare, match="cannot write the report"):
        cli.write(str(target), "text", "report")
    cli.write(str(tmp_path / "report.html"), "text", "report")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
