"""The drawing of a graph: valid, complete, in colours of the launches."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from support.programs import Program, build
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="not in DyNet")

SVG = "{http://www.w3.org/2000/svg}"


class Drawing:
    """A document, parsed."""

    def __init__(self, text: str) -> None:
        self.root = ET.fromstring(text)
        assert self.root.tag == SVG + "svg"
        self.texts = ["".join(t.itertext()) for t in self.root.iter(SVG + "text")]
        self.edges = [p for p in self.root.iter(SVG + "path")]
        self.boxes: list[tuple[str, str, str]] = []  # hint, class, colour
        self.places: list[tuple[float, float, float, float]] = []
        for group in self.root.iter(SVG + "g"):
            rect = group.find(SVG + "rect")
            hint = group.find(SVG + "title")
            if rect is None or hint is None:
                continue
            self.boxes.append((hint.text or "", rect.get("class") or "", rect.get("fill") or ""))
            x, y, w, h = (float(rect.get(k) or "nan") for k in ("x", "y", "width", "height"))
            self.places.append((x, y, x + w, y + h))

    @property
    def note(self) -> str:
        return self.texts[0]

    def check(self) -> None:
        """No box overlaps another one or is outside."""
        assert self.root.get("width") == "100%" and self.root.get("height") is None, "a fixed size"
        left, top, width, height = map(float, (self.root.get("viewBox") or "").split())
        assert left == top == 0 and f"max-width:{width:.0f}px" in (self.root.get("style") or "")
        places = sorted(self.places, key=lambda p: (p[1], p[0]))
        for x0, y0, x1, y1 in places:
            assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        for a, b in zip(places, places[1:]):
            assert a[1] != b[1] or a[2] <= b[0]


def drawn(dy: Any, *arguments: Any, **options: Any) -> Drawing:
    drawing = Drawing(dy.cg().to_svg(*arguments, **options))
    drawing.check()
    return drawing


@pytest.mark.parametrize("pattern", ["chain", "tree", "attend", "soup", "minibatch"])
@pytest.mark.parametrize("computed", [False, True])
def test_all_nodes_and_edges(dy: Any, pattern: str, computed: bool) -> None:
    for seed in range(6):
        program = Program(seed, 50, pattern, random=True)
        dy.renew_cg()
        made: list[Any] = []
        build(dy, dy.ParameterCollection(), program, made, len(program.steps))
        if computed:
            made[-1].forward()
        nodes = [dy._core._graph_node(i) for i in range(dy._core.cg_size())]
        drawing = drawn(dy, limit=10000)
        assert len(drawing.boxes) == len(nodes)
        assert len(drawing.edges) == sum(len(arguments) for _, arguments, *_ in nodes)
        assert drawing.note.startswith(f"{len(nodes)} nodes")
        hints = [hint for hint, _, _ in drawing.boxes]
        assert all(h.startswith(f"node {i}: {n[0]} ") for i, (h, n) in enumerate(zip(hints, nodes)))
        # one colour per launch
        colours: dict[int, str] = {}
        plan = dy.cg().batch_plan()
        for launch in plan.launches:
            for node in launch.nodes:
                if nodes[node][0] != "parameter":
                    colours[node] = drawing.boxes[node][2]
                    assert colours[node] == drawing.boxes[launch.nodes[0]][2]
                    assert drawing.boxes[node][1] == "node"
                    assert f"launch {launch.number} of" in hints[node]
        for node, (_, kind, _) in enumerate(drawing.boxes):
            assert (kind == "node") == (node in colours)


def test_neighbours_differ_in_colour(dy: Any) -> None:
    dy.renew_cg()
    h = dy.inputVector([1, 2])
    for _ in range(40):
        h = dy.tanh(h)
    colours = [colour for _, kind, colour in drawn(dy).boxes if kind == "node"]
    assert len(set(colours)) == 40


def test_arguments_lie_above(dy: Any) -> None:
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    a = dy.tanh(x)
    b = dy.exp(a)
    dy.esum([a, b, dy.inputVector([3, 4])])
    drawing = drawn(dy)
    y = [place[1] for place in drawing.places]
    assert y[0] < y[1] < y[2] < y[4] and y[3] == y[2]


def test_legend(dy: Any) -> None:
    dy.renew_cg()
    xs = [dy.tanh(dy.inputVector([1, i])) for i in range(3)]
    dy.esum(xs).value()
    dy.exp(xs[0])
    drawing = drawn(dy)
    words = " | ".join(drawing.texts)
    assert "#1 tanh \u00d73 {2} -> {2}" in words and "#3 exp \u00d71 {2} -> {2} (pending)" in words
    assert "inputs and parameters: no launch" in words


def test_names_are_escaped(dy: Any) -> None:
    pc = dy.ParameterCollection()
    name = "<b>&\"'\x01\x1b\ud800]]>\u4e2d"
    try:
        W = pc.add_parameters((2, 2), name=name)
    except UnicodeEncodeError:
        name = name.replace("\ud800", "")
        W = pc.add_parameters((2, 2), name=name)
    dy.renew_cg()
    y = W * dy.inputVector([1, 2])
    for text in (dy.cg().to_svg(), y._repr_svg_()):
        text.encode()
        hints = [hint for hint, _, _ in Drawing(text).boxes]
        assert any("/<b>&\"'\ufffd\ufffd]]>\u4e2d" in hint for hint in hints)
        assert "<b>" not in text and not re.search("[\x00-\x08\x0b-\x1f]", text)


def test_no_reference_outside(dy: Any) -> None:
    dy.renew_cg()
    dy.tanh(dy.inputVector([1]))
    text = dy.cg().to_svg()
    assert not re.search(r"href|url\(|<script|<!DOCTYPE|<!ENTITY", text)
    assert text.count("http") == 1  # the name space


# ---------------------------------------------------------------- large graphs


def sentences(dy: Any, count: int, length: int) -> Any:
    pc = dy.ParameterCollection()
    W = pc.add_parameters((2, 2), name="W")
    dy.renew_cg()
    losses = []
    for i in range(count):
        h = dy.inputVector([1, i])
        for _ in range(length):
            h = dy.tanh(W * h)
        losses.append(dy.sum_elems(h))
    return dy.esum(losses)


def test_launches_instead_of_nodes(dy: Any) -> None:
    sentences(dy, 50, 6)
    size = dy._core.cg_size()
    drawing = drawn(dy)
    assert f"{size} nodes, 14 launches: more than 300 nodes, so each box is a launch" in drawing.note
    assert len(drawing.boxes) == 14 and len(drawing.edges) == 13
    assert all(hint.startswith(f"launch {i}: ") for i, (hint, _, _) in enumerate(drawing.boxes, 1))
    assert "\u00d750" in " ".join(drawing.texts)
    assert len(drawn(dy, limit=size).boxes) == size


def test_too_many_launches(dy: Any) -> None:
    sentences(dy, 30, 20)
    drawing = drawn(dy, limit=5)
    assert len(drawing.boxes) == 5
    assert "; the last 37 launches with 1,081 nodes too" in drawing.note


def test_long_legends_are_cut(dy: Any) -> None:
    sentences(dy, 1, 40)
    assert "and 22 more launches" in drawn(dy).texts


def test_legends_are_whole(dy: Any) -> None:
    dy.renew_cg()
    xs = [dy.inputTensor(np.ones((2 + i, 3 + i, 4 + i))) for i in range(8)]
    y = dy.concatenate([dy.reshape(x, (x.dim()[0][0] * x.dim()[0][1] * x.dim()[0][2],)) for x in xs])
    drawing, plan = drawn(dy, y), dy.cg().batch_plan(y)
    said = "".join("".join(drawing.texts).split())
    for launch in plan.launches:
        assert "".join(launch.shapes.split()) in said, f"the legend cuts off {launch.shapes}"
    assert max(map(len, drawing.texts)) <= 100, "a line of the legend is too long for it"


def test_views_between_launches(dy: Any) -> None:
    """A view has no launch: edges go through it."""
    dy.renew_cg()
    xs = [dy.reshape(dy.tanh(dy.inputVector([1, 2, 3, i])), (2, 2)) for i in range(200)]
    dy.esum([dy.exp(x) for x in xs])
    drawing = drawn(dy)
    assert [hint.split(",")[0] for hint, _, _ in drawing.boxes][0] == "launch 1: tanh"
    assert len(drawing.boxes) == 3 and len(drawing.edges) == 2


# ---------------------------------------------------------------- notebooks


def test_repr_of_the_graph(dy: Any) -> None:
    dy.renew_cg()
    assert "the graph is empty" in Drawing(dy.cg()._repr_svg_()).texts
    dy.tanh(dy.inputVector([1]))
    assert dy.cg()._repr_svg_() == dy.cg().to_svg()


def test_repr_of_an_expression(dy: Any) -> None:
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    y, other = dy.tanh(x), dy.exp(x)
    drawing = Drawing(y._repr_svg_())
    assert [hint.split()[2] for hint, _, _ in drawing.boxes] == ["input", "tanh"]
    assert drawing.note == f"expression 1/{dy.cg_version()}: {{2}}; made of 2 nodes, 1 launch"
    assert Drawing(other._repr_svg_()).note.endswith(" made of 2 nodes, 1 launch")
    y.value()
    assert Drawing(y._repr_svg_()).note.startswith(f"{y}: {{2}}, value [0.7616, 0.964 ]; made of")
    assert str(y) == f"expression 1/{dy.cg_version()}"  # the text stays


def test_repr_of_what_is_no_node(dy: Any) -> None:
    """Notebooks then show the text; and a parameter does not enter the graph by being shown."""
    pc = dy.ParameterCollection()
    p, table = pc.add_parameters(2), pc.add_lookup_parameters((2, 2))
    old = dy.tanh(dy.scalarInput(1))
    dy.renew_cg()
    assert [e._repr_svg_() for e in (p, table, old)] == [None] * 3
    assert dy._core.cg_size() == 0


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)]
)
def test_limit(dy: Any, limit: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="to_svg.*limit"):
        dy.cg().to_svg(limit=limit)


def test_old_expression(dy: Any) -> None:
    x = dy.tanh(dy.scalarInput(1))
    dy.renew_cg()
    with pytest.raises(ValueError, match="earlier"):
        dy.cg().to_svg(x)
