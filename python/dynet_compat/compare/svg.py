"""Plots as SVG text: lines over steps, stacked bars, a histogram. No other library, no script, no network."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

COLOURS = ("#c2410c", "#1d4ed8")  # of the two sides, the reference first
PART_COLOURS = ("#0e7490", "#65a30d", "#7e22ce", "#ca8a04", "#78716c")  # of the parts of a step
PLAIN = "#44403c"  # of what belongs to neither side
ZERO = "#15803d"  # of values that do not differ
_CHARACTER = 6.6  # width, in pixels, of 12 px text
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 300, 74, 34, 14, 46
_MOST_ZEROS = 200  # dots for points that are zero
_MOST_POINTS = 800  # of one line; more are thinned out, keeping extremes


def _number(value: float) -> str:
    if value == 0:
        return "0"
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.0e}"


def _short(count: int) -> str:
    """A count in at most five characters, for labels that stand close."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1e3:.0f}k" if count < 1_000_000 else f"{count / 1e6:.0f}M"


def _ticks(low: float, high: float, count: int = 5, whole: bool = False) -> list[float]:
    """Round numbers between two; `whole`: none between two whole ones."""
    span = high - low
    if span <= 0:
        return [low]
    step = 10 ** math.floor(math.log10(span / count))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= count:
            step *= factor
            break
    step = max(1, round(step)) if whole else step
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Fewer points: of each stretch the lowest and the highest."""
    if len(points) <= _MOST_POINTS:
        return points
    size = math.ceil(2 * len(points) / _MOST_POINTS)
    kept = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        low, high = min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])
        kept += sorted({low, high})
    return kept


def _text(x: float, y: float, text: str, kind: str = "tick", anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text class="{kind}" text-anchor="{anchor}" {place}>{html.escape(text)}</text>'


class _Axes:
    """The frame of a plot: from data to pixels, ticks, titles."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], log: bool = False) -> None:
        self.x, self.y, self.log = x, y, log

    def px(self, value: float) -> float:
        low, high = self.x
        return _LEFT + (value - low) / ((high - low) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def py(self, value: float) -> float:
        low, high = (math.log10(v) for v in self.y) if self.log else self.y
        value = math.log10(value) if self.log else value
        return _HEIGHT - _BOTTOM - (value - low) / ((high - low) or 1) * (_HEIGHT - _TOP - _BOTTOM)

    def _y_ticks(self) -> list[float]:
        if not self.log:
            return _ticks(*self.y)
        low, high = (math.log10(v) for v in self.y)
        stride = max(1, round((high - low) / 6))
        return [10.0**e for e in range(math.ceil(low), math.floor(high) + 1, stride)]

    def draw(
        self, title: str, x_title: str, y_title: str, x_ticks: Sequence[tuple[float, str]] = ()
    ) -> list[str]:
        parts = [f'<text class="title" x="{_LEFT}" y="18">{html.escape(title)}</text>']
        for value in self._y_ticks():
            y = self.py(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(_text(_LEFT - 6, y + 4, _number(value), anchor="end"))
        for value, label in x_ticks or [(v, _number(v)) for v in _ticks(*self.x, count=8, whole=True)]:
            x = self.px(value)
            parts.append(_text(x, _HEIGHT - _BOTTOM + 16, label, anchor="middle"))
        bottom = _HEIGHT - _BOTTOM
        parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(_text(middle, _HEIGHT - 10, x_title, "label", "middle"))
        parts.append(
            f'<text class="label" text-anchor="middle" transform="translate(14 {_HEIGHT / 2}) rotate(-90)">'
            f"{html.escape(y_title)}</text>"
        )
        return parts


def _legend(names: Sequence[str], colours: Sequence[str]) -> list[str]:
    parts, x = [], float(_WIDTH - _RIGHT)
    for name, colour in reversed(list(zip(names, colours))):
        x -= _CHARACTER * len(name) + 32
        parts.append(f'<rect x="{x:.0f}" y="8" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text class="tick" x="{x + 17:.0f}" y="18">{html.escape(name)}</text>')
    return parts


def _svg(name: str, parts: Sequence[str], height: int = _HEIGHT) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" viewBox="0 0 {_WIDTH} {height}" role="img">'
    )
    return head + "".join(parts) + "</svg>"


def lines(
    name: str,
    title: str,
    x_title: str,
    y_title: str,
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    log: bool = False,
    limit: float | None = None,
) -> str:
    """Lines over steps.

    Args:
        name: class of the element.
        title: above the plot.
        x_title: below it; the numbers of this axis are whole.
        y_title: at its side.
        series: (name, points) of each line; the first one is drawn broad, so that one below shows.
        log: logarithmic y; zeros are dots at the lower edge.
        limit: a dashed line at this y.
    """
    shown, zeros = [], []
    for label, points in series:
        good = [(x, y) for x, y in points if math.isfinite(y) and (y > 0 or not log)]
        shown.append((label, _thin(good)))
        zeros += [x for x, y in points if log and y == 0]
    every = [p for _, points in shown for p in points]
    ys = [y for _, y in every] + ([limit] if limit else [])
    if not ys:
        ys = [1e-9, 1.0] if log else [0.0, 1.0]
    low, high = min(ys), max(ys)
    if log:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high) + 1e-9)
        high = max(high, low * 10)
    else:
        margin = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
        low, high = low - margin, high + margin
    xs = [x for x, _ in every] + zeros or [0.0, 1.0]
    axes = _Axes((min(xs), max(max(xs), min(xs) + 1)), (low, high), log)
    parts = axes.draw(title, x_title, y_title)
    for number, (_, points) in enumerate(shown):
        width = 5 if number == 0 and len(shown) > 1 else 1.8
        path = " ".join(f"{axes.px(x):.1f},{axes.py(y):.1f}" for x, y in points)
        colour = COLOURS[number] if len(shown) > 1 else PLAIN
        opacity = 0.45 if width > 2 else 1
        if len(points) == 1:
            x, y = points[0]
            parts.append(f'<circle cx="{axes.px(x):.1f}" cy="{axes.py(y):.1f}" r="{width}" fill="{colour}"/>')
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-opacity="{opacity}" stroke-linejoin="round"/>'
        )
    if limit:
        y = axes.py(limit)
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    step = max(1, len(zeros) // _MOST_ZEROS)
    for x in zeros[::step]:
        place = f'cx="{axes.px(x):.1f}" cy="{_HEIGHT - _BOTTOM - 3}"'
        parts.append(f'<circle class="zero" {place} r="2.5" fill="{ZERO}"/>')
    if zeros:
        parts += _legend([f"exactly equal: {len(zeros)}"], [ZERO])
    elif not every:
        parts.append(_text(_LEFT + 20, _HEIGHT / 2, "nothing to show", "label"))
    if len(shown) > 1:
        parts += _legend([label for label, _ in shown], COLOURS)
    return _svg(name, parts)


def bars(
    name: str, title: str, unit: str, rows: Sequence[tuple[str, Sequence[float]]], kinds: Sequence[str]
) -> str:
    """Horizontal stacked bars, one per row; kinds name the parts."""
    height = 64 + 46 * len(rows)
    most = max((sum(values) for _, values in rows), default=0.0) or 1.0
    left = round(max([90.0, *(_CHARACTER * len(label) + 20 for label, _ in rows)]))
    wide = _WIDTH - left - 100
    parts = [f'<text class="title" x="8" y="18">{html.escape(title)}</text>']
    for number, (label, values) in enumerate(rows):
        y, x = 30 + 46 * number, float(left)
        parts.append(
            f'<text class="label" text-anchor="end" x="{left - 8}" y="{y + 20}">{html.escape(label)}</text>'
        )
        for kind, value, colour in zip(kinds, values, PART_COLOURS):
            width = wide * value / most
            hint = f"<title>{html.escape(kind)}: {_number(value)} {unit}</title>"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="30" fill="{colour}">{hint}</rect>'
            )
            x += width
        parts.append(f'<text class="tick" x="{x + 6:.1f}" y="{y + 20}">{_number(sum(values))} {unit}</text>')
    x = 8.0
    for kind, colour in zip(kinds, PART_COLOURS):
        parts.append(f'<rect x="{x:.0f}" y="{height - 22}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text class="tick" x="{x + 16:.0f}" y="{height - 12}">{html.escape(kind)}</text>')
        x += _CHARACTER * len(kind) + 34
    return _svg(name, parts, height)


def histogram(name: str, title: str, x_title: str, y_title: str, counts: Sequence[Sequence[int]]) -> str:
    """Launches by the number of their nodes, in bins that double: 1, 2-3, 4-7, ..."""
    bins: dict[int, int] = {}
    for size, number in counts:
        at = max(1, size).bit_length() - 1
        bins[at] = bins.get(at, 0) + number
    last = max(bins, default=0)
    most = max(bins.values(), default=1)
    axes = _Axes((-0.6, last + 0.6), (0.0, most * 1.08))
    spacing = axes.px(1) - axes.px(0)
    texts = [f"{2**at:,}" if at == 0 else f"{2**at:,}-{2 ** (at + 1) - 1:,}" for at in range(last + 1)]
    if _CHARACTER * len(texts[-1]) > spacing - 6:
        texts = [_short(2**at) + "+" for at in range(last + 1)]
    every = math.ceil((_CHARACTER * len(texts[-1]) + 6) / spacing)
    labels = [(float(at), text) for at, text in enumerate(texts) if (last - at) % every == 0]
    parts = axes.draw(title, x_title, y_title, labels)
    width = 0.8 * spacing
    for at, number in sorted(bins.items()):
        x, y = axes.px(at) - width / 2, axes.py(number)
        hint = f"<title>{number} launches</title>"
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT - _BOTTOM - y:.1f}" '
            f'fill="{COLOURS[1]}">{hint}</rect>'
        )
    return _svg(name, parts)
