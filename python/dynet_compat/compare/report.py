"""The HTML report: one file with everything in it, no network, no script."""

from __future__ import annotations

import html
import platform
import re
import shlex
from collections.abc import Sequence

from . import svg, table
from .side_by_side import KINDS, Result

_TERMS = (
    ("step", "one call of trainer.update(), or of backward() in a script without a trainer"),
    ("launch", "one call of a kernel, which computes one op, or some ops fused, for all nodes of a batch"),
    ("nodes per launch", "how many nodes of the graph a launch computes at once: the size of the batch"),
    ("recording", "the calls that add nodes to the graph, as dy.tanh(x) does; nothing is computed by them"),
    ("forward", "computing values that the script reads, with planning of the batches"),
    ("script's own Python", "the time between the calls of the library"),
    ("start-up", "from the start of the script to the first use of a graph; not part of the steps"),
    (
        "relative difference",
        "largest difference of two arrays, divided by the largest number in the reference's",
    ),
    ("norm", "of each parameter and each gradient, at each update"),
    ("rtol", "the largest relative difference that counts as equal; --rtol sets it"),
)

_STYLE = """
:root{color-scheme:light}
body{font:15px/1.5 system-ui,sans-serif;color:#1c1917;background:#fafaf9;
 max-width:1340px;margin:2em auto;
 padding:0 1.5em}
h1{font-size:1.5em;margin-bottom:.2em}
h2{font-size:1.25em;border-top:1px solid #d6d3d1;padding-top:1em;margin-top:2em}
h3{font-size:1em;margin:1.2em 0 .3em}
code,pre{font:13px/1.45 ui-monospace,monospace}
pre{background:#f5f5f4;border:1px solid #e7e5e4;padding:.7em;overflow:auto;max-height:26em}
table{border-collapse:collapse;margin:.4em 0}
td,th{padding:.2em .9em .2em 0;text-align:left;vertical-align:top}
th{font-weight:600;border-bottom:1px solid #a8a29e}
.num td:not(:first-child),.num th:not(:first-child){text-align:right}
.badge{color:#fff;border-radius:4px;padding:.1em .55em;font-size:.85em}
.equal{background:#15803d}
.different,.crashed{background:#b91c1c}
.failed{background:#a16207}
.skipped{background:#78716c}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));gap:14px}
.plots svg{background:#fff;border:1px solid #e7e5e4;width:100%;height:auto}
svg text{font-family:system-ui,sans-serif;font-size:12px;fill:#44403c}
svg .title{font-size:14px;font-weight:600}
svg .grid{stroke:#e7e5e4}
svg .axis{stroke:#78716c;fill:none}
svg .limit{stroke:#b91c1c;stroke-dasharray:6 4}
.note{background:#fef3c7;border-left:4px solid #d97706;padding:.4em .8em;margin:.5em 0}
.small{color:#78716c;font-size:.87em}
"""


_STEPS = "call of backward()"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: bool = True) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(h)}</th>" for h in headers) if any(headers) else ""
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    kind = ' class="num"' if numeric else ""
    return f"<table{kind}>" + (f"<tr>{head}</tr>" if head else "") + body + "</table>"


def _badge(result: Result) -> str:
    return f'<span class="badge {result.status}">{table.MARKS.get(result.status, result.status)}</span>'


def _with_code(sentence: str) -> str:
    """A sentence whose `code` is shown as such."""
    return re.sub("`(.*?)`", r"<code>\1</code>", html.escape(sentence))


def _plots(result: Result) -> str:
    parts = []
    if any(result.losses):
        series = [(n, [(i + 1.0, v) for i, v in enumerate(ls)]) for n, ls in zip(result.names, result.losses)]
        parts.append(svg.lines("losses", "Loss", _STEPS, "loss", series))
    if result.verdict.per_step:
        points = [(i + 1.0, d) for i, (_, d) in enumerate(result.verdict.per_step)]
        title = "Relative difference of losses (dashed: rtol)"
        series = [("difference", points)]
        parts.append(
            svg.lines(
                "differences", title, _STEPS, "relative difference", series, log=True, limit=result.rtol
            )
        )
    if len(result.costs) == 2:
        kinds = [table.part_name(kind, result) for kind in KINDS]
        rows = []
        for name, cost in zip(result.names, result.costs):
            rows.append((name, [1e3 * cost.parts[kind] / max(1, cost.steps) for kind in KINDS]))
        parts.append(svg.bars("times", "Time per step", "ms", rows, kinds))
        launches = result.costs[1].launches
        if launches:
            title = f"Launches by batch size, {table.steps(result.costs[1].launch_steps)}"
            parts.append(svg.histogram("batches", title, "nodes per launch", "launches", launches))
    return f'<div class="plots">{"".join(parts)}</div>' if parts else ""


def _ops(result: Result) -> str:
    """What was launched, op by op."""
    if len(result.costs) != 2 or not result.costs[1].ops:
        return ""
    ranked = sorted(result.costs[1].ops.items(), key=lambda item: -item[1][1])[:15]
    rows = [[op, str(nodes), str(n), f"{nodes / max(1, n):.1f}"] for op, (nodes, n) in ranked]
    headers = ["op", "nodes", "launches", "nodes per launch"]
    counted = table.steps(result.costs[1].launch_steps)
    return f"<h3>Launches of dynet_compat by op, {counted}</h3>" + _table(headers, rows)


def _section(result: Result) -> str:
    name = html.escape(result.script.rsplit("/", 1)[-1])
    parts = [f"<h2>{name} {_badge(result)}</h2><p>{html.escape(result.message)}</p>"]
    for sentence in (table.speed_line(result), table.hints_line(result)):
        parts += [f"<p><b>{_with_code(sentence)}</b></p>"] if sentence else []
    sides = "; ".join(f"{n}: {v}" for n, v in zip(result.names, result.versions))
    command = shlex.join([result.script, *result.args])
    parts.append(
        f'<p class="small"><code>{html.escape(command)}</code>, seed {result.seed}, {result.steps} steps'
        f"<br>{html.escape(sides)}</p>"
    )
    parts += [f'<p class="note">{html.escape(note)}</p>' for note in result.notes]
    divergence = table.divergence_rows(result)
    if divergence:
        parts.append("<h3>First divergence</h3>" + _table(["", ""], divergence, numeric=False))
    parts.append(_plots(result))
    compared = table.comparison_rows(result)
    if compared:
        parts.append("<h3>Compared</h3>" + _table(["", "number", "largest relative difference"], compared))
    files = table.file_rows(result)
    if files:
        headers = ["", *(f"bytes, {name}" for name in result.names), ""]
        parts.append("<h3>Files that the script wrote (kept apart from yours)</h3>")
        parts.append(_table(headers, files, numeric=False))
    cost = table.cost_rows(result)
    if cost:
        parts.append("<h3>Cost</h3>" + _table(["", *result.names, "ratio"], cost))
        repeats = "; ".join(
            f"{n}: " + ", ".join(f"{s:.3f}" for s in c.repeats) for n, c in zip(result.names, result.costs)
        )
        parts.append(f'<p class="small">seconds of each repeat: {html.escape(repeats)}<br>')
        parts.append(f"{html.escape(table.hook_line(result))}</p>")
    parts.append(_ops(result))
    for side, crash, output in zip(result.names, result.crashes, result.outputs):
        if crash:
            parts.append(
                f"<h3>Traceback of {html.escape(side)}</h3><pre>{html.escape(crash['traceback'])}</pre>"
            )
        if output.strip():
            title = f"end of the output of {html.escape(side)}"
            parts.append(f"<details><summary>{title}</summary><pre>{html.escape(output)}</pre></details>")
    return "".join(parts)


def page(results: Sequence[Result], command: str = "") -> str:
    """The report as HTML text.

    Args:
        results: one or more scripts.
        command: what makes this report, for a shell.
    Returns:
        A complete page that needs no other file.
    """
    from .. import __compat_version__

    machine = f"dynet_compat {__compat_version__}, Python {platform.python_version()}, {platform.platform()}"
    parts = ['<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dynet_compat compare</title>']
    parts.append(f"<style>{_STYLE}</style></head><body><h1>DyNet and dynet_compat, side by side</h1>")
    parts.append(f'<p class="small">{html.escape(machine)}</p>')
    if command:
        parts.append(f"<pre>{html.escape(command)}</pre>")
    if len(results) > 1:
        headers = ["script", "result", "steps", "compared", "largest difference", "speed", ""]
        parts.append(_table(headers, table.summary_rows(list(results)), numeric=False))
    parts += [_section(result) for result in results]
    terms = _table(["", ""], _TERMS, numeric=False)
    parts.append(f"<h2>What the words mean</h2>{terms}</body></html>\n")
    return "".join(parts)
