"""The computation graph as SVG, in colours of the batch plan. No other library, no script, no network."""

from __future__ import annotations

import colorsys
import html
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

from .. import _core
from .._core import Expression
from .batch_plan import BatchPlan, Launch
from .reprs import count, sizes_text

__all__ = ["graph_svg"]

_WIDE, _HIGH, _GAP, _RISE = 124, 36, 14, 40  # boxes, and the room between them
_LEGEND, _ROW = 300, 18  # least width of the legend, height of its lines
_LETTER, _MOST_LETTERS = 5.6, 60  # width of one, and how many a line of the legend has
_SWEEPS = 4  # of ordering the layers
_MOST_LEGEND = 60
_LEAF, _ALIAS = "#f1f5f9", "#ffffff"
_LEAVES = ("input", "constant", "random", "parameter")


@dataclass
class _Box:
    """A node of the drawing: a node of the graph, or a launch."""

    title: str
    below: str
    colour: str
    hint: str
    arguments: list[int]  # boxes
    kind: str = "node"  # of its CSS class: node, leaf, alias
    layer: int = 0
    at: float = 0.0  # place in its layer, then x
    readers: list[int] = field(default_factory=list)


def _colour(number: int) -> str:
    """Colours that differ from those of the numbers around."""
    hue = (0.58 + 0.618034 * number) % 1.0
    light = (0.80, 0.70, 0.86)[number % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, light, 0.62)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


_FORBIDDEN = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _escape(text: str) -> str:
    """Text as XML 1.0 can hold it: names of parameters may contain anything."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _ancestors(number: int) -> list[int]:
    """A node and what it is made of, ascending."""
    found, todo = {number}, [number]
    while todo:
        for argument in _core._graph_node(todo.pop())[1]:
            if argument not in found:
                found.add(argument)
                todo.append(argument)
    return sorted(found)


def _node_boxes(numbers: list[int], launches: dict[int, Launch]) -> list[_Box]:
    place = {number: i for i, number in enumerate(numbers)}
    boxes = []
    for number in numbers:
        name, arguments, sizes, batch, view = _core._graph_node(number)
        launch = launches.get(number)
        dims = sizes_text(sizes, batch)
        parameter = _core._node_parameter(number)
        hint = f"node {number}: {name} {dims}"
        if parameter:
            hint += f", {parameter}"
        if name in _LEAVES:
            kind, colour, below = "leaf", _LEAF, dims
        elif launch is None:  # a view, or equal to a node recorded before
            kind, colour, below = "alias", _ALIAS, dims
            hint += ", in its argument's memory" if view else ", equal to an earlier node"
        else:
            kind, colour, below = "node", _colour(launch.number), f"#{launch.number}  {dims}"
            hint += f", launch {launch.number} of {len(launch.nodes)} nodes"
        title = f"{name} {parameter}" if parameter else name
        boxes.append(_Box(title, below, colour, hint, [place[a] for a in arguments if a in place], kind))
    return boxes


def _launch_boxes(launches: list[Launch]) -> list[_Box]:
    """A box for each launch; leaves are left out."""
    launch_of = {node: i for i, launch in enumerate(launches) for node in launch.nodes}
    behind: list[frozenset[int]] = []  # of each node: its launch, or those of its arguments if it has none
    read: list[set[int]] = [set() for _ in launches]
    for node in range(_core.cg_size()):
        around: frozenset[int] = frozenset().union(*(behind[a] for a in _core._graph_node(node)[1]))
        at = launch_of.get(node)
        behind.append(around if at is None else frozenset([at]))
        if at is not None:
            read[at] |= around
    boxes = []
    for i, launch in enumerate(launches):
        arguments = sorted(a for a in read[i] if a < i)
        hint = f"launch {launch.number}: {launch.op}, {len(launch.nodes)} nodes, {launch.shapes}"
        below = f"#{launch.number}  \u00d7{len(launch.nodes)}  {launch.result}{' ..' if launch.mixed else ''}"
        boxes.append(_Box(launch.op, below, _colour(launch.number), hint, arguments))
    return boxes


def _lay_out(boxes: list[_Box]) -> list[list[int]]:
    """Layers from the top: a box lies below its arguments, right above its first reader if it has one.

    The order inside a layer, and then the places, follow the means of the neighbours, downwards and upwards
    in turn (Sugiyama et al., 1981).
    """
    for i, box in enumerate(boxes):
        for a in box.arguments:
            boxes[a].readers.append(i)
        box.layer = 1 + max((boxes[a].layer for a in box.arguments), default=0)
    for box in reversed(boxes):  # readers come after what they read
        if box.readers:
            box.layer = min(boxes[r].layer for r in box.readers) - 1
    by_layer: dict[int, list[int]] = {}
    for i, box in enumerate(boxes):
        by_layer.setdefault(box.layer, []).append(i)
    layers = [by_layer[number] for number in sorted(by_layer)]
    for number, layer in enumerate(layers):
        for place, i in enumerate(layer):
            boxes[i].layer, boxes[i].at = number, place - (len(layer) - 1) / 2
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            means = []
            for i in layer:
                around = boxes[i].arguments if down else boxes[i].readers
                means.append(sum(boxes[a].at for a in around) / len(around) if around else boxes[i].at)
            if sweep < _SWEEPS:
                order = sorted(range(len(layer)), key=means.__getitem__)
                layer[:] = [layer[place] for place in order]
                means = [place - (len(layer) - 1) / 2 for place in range(len(layer))]
            for i, at in zip(layer, _spaced(means)):
                boxes[i].at = at
    least = min((box.at for box in boxes), default=0.0)
    for box in boxes:
        box.at -= least
    return layers


def _spaced(wanted: list[float]) -> list[float]:
    """Places in the same order, at least 1 apart, near the wanted ones."""
    right, left = list(wanted), list(wanted)
    for i in range(1, len(wanted)):
        right[i] = max(right[i], right[i - 1] + 1)
    for i in range(len(wanted) - 2, -1, -1):
        left[i] = min(left[i], left[i + 1] - 1)
    return [(a + b) / 2 for a, b in zip(left, right)]


_STYLE = (
    "text{font:11px ui-sans-serif,system-ui,sans-serif;fill:#0f172a}.t{font-weight:600}.s{font-size:10px;"
    "fill:#334155}.e{fill:none;stroke:#64748b;stroke-opacity:.6}.w{stroke-opacity:.2}.node{stroke:#334155}.leaf{stroke:#94a3b8}"
    ".alias{stroke:#94a3b8;stroke-dasharray:3 3}.note{font-size:12px}"
)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{_escape(words)}</text>'


def _draw_boxes(boxes: list[_Box], left: float, top: float) -> list[str]:
    def x_of(box: _Box) -> float:
        return left + box.at * (_WIDE + _GAP)

    def y_of(box: _Box) -> float:
        return top + box.layer * (_HIGH + _RISE)

    parts = []
    for box in boxes:
        x, y = x_of(box) + _WIDE / 2, y_of(box)
        for a in box.arguments:
            x0, y0 = x_of(boxes[a]) + _WIDE / 2, y_of(boxes[a]) + _HIGH
            bend = max(_RISE / 2, (y - y0) / 3)
            curve = f"{x0:.1f} {y0 + bend:.1f} {x:.1f} {y - bend:.1f} {x:.1f} {y:.1f}"
            weak = " w" if boxes[a].kind == "leaf" else ""
            parts.append(f'<path class="e{weak}" d="M{x0:.1f} {y0:.1f}C{curve}"/>')
    for box in boxes:
        x, y = x_of(box), y_of(box)
        round_ = 12 if box.kind == "leaf" else 3
        parts.append(
            f'<g><title>{_escape(box.hint)}</title><rect class="{box.kind}" x="{x:.1f}" y="{y:.1f}" '
            f'width="{_WIDE}" height="{_HIGH}" rx="{round_}" fill="{box.colour}"/>'
            + _text(x + _WIDE / 2, y + 15, _short(box.title, 17), "t", "middle")
            + _text(x + _WIDE / 2, y + 29, _short(box.below, 22), "s", "middle")
            + "</g>"
        )
    return parts


def _legend(launches: Iterable[Launch], top: float) -> tuple[list[str], float, float]:
    """What each launch that the drawing shows is, with the width of the text and where it ends."""
    launches = list(launches)
    parts, y = [_text(8, top, "Launches: one colour, computed together", "note")], top + _ROW
    longest = 0
    for launch in launches[:_MOST_LEGEND]:
        words = f"#{launch.number} {launch.op} \u00d7{len(launch.nodes)} {launch.shapes}"
        words += "" if launch.flush else " (pending)"
        colour = _colour(launch.number)
        parts.append(f'<rect class="node" x="8" y="{y - 10:.1f}" width="12" height="12" fill="{colour}"/>')
        lines = textwrap.wrap(words, _MOST_LETTERS, subsequent_indent="\u2003", break_on_hyphens=False)
        texts = "".join(_text(26, y + _ROW * n, line, "s") for n, line in enumerate(lines))
        parts.append(f"<g><title>{_escape(', '.join(launch.operands))}</title>{texts}</g>")
        longest = max(longest, *map(len, lines))
        y += _ROW * len(lines)
    if len(launches) > _MOST_LEGEND:
        parts.append(_text(26, y, f"and {len(launches) - _MOST_LEGEND:,} more launches", "s"))
        y += _ROW
    for kind, colour, words in (("leaf", _LEAF, "inputs and parameters: no launch"),
                                ("alias", _ALIAS, "same memory as another node: no launch")):  # fmt: skip
        parts.append(
            f'<rect class="{kind}" x="8" y="{y - 10:.1f}" width="12" height="12" rx="3" fill="{colour}"/>'
        )
        parts.append(_text(26, y, words, "s"))
        y += _ROW
    return parts, max(_LEGEND, 26 + _LETTER * longest + 16), y


def _svg(parts: list[str], width: float, height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" style="max-width:{width:.0f}px" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img"><title>computation graph</title>'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>'
    )
    return head + "".join(parts) + "</svg>"


def _boxes_and_note(of: Optional[int], plan: BatchPlan, limit: int) -> tuple[list[_Box], list[Launch], str]:
    """What is drawn, of which launches, and what the reader should know of the rest."""
    numbers = list(range(_core.cg_size())) if of is None else _ancestors(of)
    launch_of = {node: launch for launch in plan.launches for node in launch.nodes}
    shown = {launch_of[n].number: launch_of[n] for n in numbers if n in launch_of}
    launches = [shown[number] for number in sorted(shown)]
    note = count(len(numbers), "node", "nodes") + ", " + count(len(launches), "launch", "launches")
    if len(numbers) <= limit:
        return _node_boxes(numbers, launch_of), launches, note
    note += f": more than {limit:,} nodes, so each box is a launch; inputs and parameters are left out"
    rest = launches[limit:]
    if rest:
        nodes = sum(len(launch.nodes) for launch in rest)
        last = count(len(rest), "launch", "launches")
        note += f"; the last {last} with {count(nodes, 'node', 'nodes')} too"
    return _launch_boxes(launches[:limit]), launches[:limit], note


def graph_svg(of: Optional[Expression] = None, limit: int = 300) -> str:
    """See `ComputationGraph.to_svg`."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"to_svg(): expected an int for limit, got {type(limit).__name__}")
    if limit < 1:
        raise ValueError(f"to_svg(): expected limit >= 1, got {limit}")
    plan = BatchPlan(of)
    number: Any = None if of is None else _core._node_number(of)
    boxes, launches, note = _boxes_and_note(number, plan, limit)
    if number is not None:
        note = f"{of!r}; made of {note}"
    if not boxes:
        return _svg([_text(8, 22, "the graph is empty", "note")], 200, 36)
    layers = _lay_out(boxes)
    legend, left, legend_end = _legend(launches, 44)
    drawing = _draw_boxes(boxes, left, 40)
    width = left + (max(box.at for box in boxes) + 1) * (_WIDE + _GAP)
    height = max(legend_end, 40 + len(layers) * (_HIGH + _RISE))
    return _svg([_text(8, 22, note, "note"), *drawing, *legend], max(width, 8 + 7 * len(note)), height)
