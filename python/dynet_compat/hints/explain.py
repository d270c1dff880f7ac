"""`compile --explain`: what prevents batching in a script, with file and line, and what to do about it.

Only what the analysis is sure of is said; where a place may be reached or not, the text says "when it runs".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .analysis import api
from .analysis.independence import LoopIndependence
from .analysis.instances import BATCH, ONLINE
from .analysis.liveness import Liveness
from .analysis.loops import GRAPH, MAP, RECURRENCE
from .analysis.scopes import COMPREHENSIONS, Function, Loop, receiver_of, text_of
from .analysis.script import ScriptAnalysis
from .rewrite.batch_map import is_possible
from .rewrite.listing import Listing
from .rewrite.region import LEAST_OPS
from .rewrite.trees import may_change

# What costs most comes first.
COSTLY = ("renew", "inner", "immediate", "read", "update", "loss", "parameters", "input")

# What to write instead of that which keeps a function from being recorded by one call.
ADVICE = (
    (r"a comparison$|a branch$", "put the ops of each branch into a function of its own"),
    (r"try$|with$|an inner |a lambda$", "put the ops into a function that is called there"),
    (r"it is", "record in a plain function that this one calls"),
    (r".* any number of arguments", "name its arguments"),
    (r"it calls (value|scalar_value|vec_value|npvalue|tensor_value)\(", "read it in the caller"),
    (r"it calls ", "do that before or after the ops, or in the caller"),
    (r"code after return", "return at the end only"),
    (r"it (assigns to|changes) an attribute", "return the expression and store it in the caller"),
    (r"a single op|it records a single op", "one op costs less than the call that would record it"),
)


# A function that does one of these is not recorded: it trains.
TRAINING = (("dy", "renew_cg"), ("method", "expr.backward"), ("method", "trainer.update"))
_FORMS = {"loop": "each iteration of the loop", "comprehension": "each element of the comprehension"}


@dataclass(frozen=True, order=True)
class Finding:
    """One line for people. code: a short name for tests and searches; call: what is called there, if any."""

    file: str
    line: int
    code: str
    text: str
    call: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.call}{self.text}"


def _grouped(findings: Iterable[Finding]) -> list[str]:
    """A line for all findings of a file that say the same, the most costly first."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.file, finding.code, finding.text), []).append(finding)
    order = sorted(groups.values(), key=lambda group: (COSTLY.index(group[0].code), -len(group), group[0]))
    lines = []
    for group in order:
        numbers = ", ".join(str(n) for n in sorted({finding.line for finding in group}))
        calls = ", ".join(sorted({finding.call for finding in group}))
        lines.append(f"{group[0].file}:{numbers}: {calls}{group[0].text}")
    return lines


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _refusal(function: Function, listing: Listing, ops: Sequence[int]) -> str:
    """Why a function that records these ops has no region."""
    if function.qualname in listing.unchanged:
        return "it is decorated, a generator, or looks at its own names" + _advice("it is")
    if not isinstance(function.node, ast.FunctionDef):
        return "it is async, or a lambda" + _advice("it is")
    for refused in listing.refused:
        if refused.qualname == function.qualname and any(
            refused.line <= line <= refused.last_line for line in ops
        ):
            where = f"line {refused.reason_line}: " if refused.reason_line != function.line else ""
            return where + refused.reason + _advice(refused.reason)
    return "its ops are in functions inside it, or in conditions"


def _advice(reason: str) -> str:
    """What to write instead, or ""."""
    return next((f"; {advice}" for pattern, advice in ADVICE if re.match(pattern, reason)), "")


class Explanation:
    """What `--explain` prints.

    Attributes:
        hindrances: what prevents batching, and what to do.
        loops, regions, maps: what was found.

    Args:
        listings: what the rewriter finds, by file.
    """

    def __init__(self, analysis: ScriptAnalysis, listings: dict[str, Listing]) -> None:
        self.analysis = analysis
        self.program = analysis.program
        self.facts = analysis.facts
        self.listings = listings
        found: dict[tuple[str, int, str, str], Finding] = {}
        for finding in self._hindrances():
            found.setdefault((finding.file, finding.line, finding.code, finding.call), finding)
        self.hindrances = sorted(found.values())
        self.loops = sorted(set(self._loops()))
        self.regions = sorted(set(self._regions()))
        self.maps = sorted(set(self._maps()))
        self.calls = sorted(set(self._calls()))

    def lines(self) -> list[str]:
        """The text, line by line."""
        result: list[str] = []
        if not self.analysis.usable:
            return [str(problem) for problem in sorted(self.program.problems)]
        sections: tuple[tuple[str, Sequence[object], str], ...] = (
            ("what prevents batching", _grouped(self.hindrances), "nothing that can be seen"),
            ("loops", self.loops, "none that records ops"),
            ("regions, each recorded by one call", self.regions, "none"),
            ("loops over instances that read numbers (batch_map)", self.maps, "none"),
        )
        if self.calls:
            sections += (("calls that read numbers, next to one another", self.calls, ""),)
        for title, findings, none in sections:
            result.append(f"{title}:")
            result += [f"  {finding}" for finding in findings] or [f"  {none}"]
        notes = [str(problem) for problem in sorted(self.program.problems)]
        return result + (["not seen through:"] + [f"  {note}" for note in notes] if notes else [])

    def _at(self, node: ast.AST, code: str, text: str, call: str = "") -> Finding:
        file, line = self.program.where(node)
        return Finding(file, line, code, text, call)

    def _place(self, loop: Loop) -> str:
        return f"{self.program.path(loop.module)}:{loop.line}"

    # ---- hindrances

    def _hindrances(self) -> Iterator[Finding]:
        for instance in self.analysis.instances.all:
            if instance.kind == BATCH:
                yield from self._reads_in_batch(instance.loop, instance.training)
            elif instance.kind == ONLINE:
                yield from self._online(instance.loop)
        yield from self._reads_in_refused_loops()
        yield from self._inner_renewals()
        yield from self._parameters_in_loops()
        yield from self._constant_inputs()
        yield from self._immediate()

    def _reads_in_batch(self, loop: Loop, training: bool) -> Iterator[Finding]:
        for node in self.analysis.loops.everything(loop):
            method = self.facts.reads.get(node)
            if method is not None and not self._is_trained_on(node):
                text = (
                    f" in the loop over instances ({self._place(loop)}): when it runs, what is "
                    "recorded after it cannot join the other instances; "
                )
                text += (
                    "read after the loop with dy.values()"
                    if training
                    else "collect, then read with dy.values()"
                )
                text += ", or run the instances with dy.batch_map()"
                yield self._at(node, "read", text, f"{method}()")

    def _is_trained_on(self, node: ast.AST) -> bool:
        """Whether what is read here is what backward() is called on: the graph ends there anyway."""
        function = self.program.functions[self.program.owner[node]]
        calls = self.facts.calls_in(self.program.body_nodes(function), ("method", "expr.backward"))
        return text_of(receiver_of(node)) in {text_of(receiver_of(call)) for call in calls}

    def _reads_in_refused_loops(self) -> Iterator[Finding]:
        for rewrite in self.analysis.independence.all:
            if rewrite.proved:
                continue
            for node in self.analysis.loops.everything(rewrite.loop):
                method = self.facts.reads.get(node)
                if method is not None:
                    text = (
                        f" in a loop ({self._place(rewrite.loop)}) whose iterations may be "
                        "instances: they are computed one at a time; see batch_map below"
                    )
                    yield self._at(node, "read", text, f"{method}()")

    def _online(self, loop: Loop) -> Iterator[Finding]:
        inside = self.analysis.loops.sure(loop)
        for node in self.facts.calls_in(inside, ("dy", "renew_cg")):
            text = f"renew_cg() for each instance ({self._place(loop)}): each graph is computed on its own; "
            yield self._at(node, "renew", text + "record a minibatch in one graph, dy.esum() the losses")
        updates = [("method", f"trainer.{name}") for name in sorted(api.TRAINER_UPDATES)]
        for node in self.facts.calls_in(inside, *updates):
            text = "update() after each instance: a minibatch of 1; add up several losses, update once"
            yield self._at(node, "update", text)
        backward = {self.program.owner[n] for n in self.facts.calls_in(inside, ("method", "expr.backward"))}
        for node in inside:
            if node in self.facts.reads and self.program.owner[node] in backward:
                text = " of each instance's loss: read one sum for a minibatch"
                yield self._at(node, "loss", text, f"{self.facts.reads[node]}()")

    def _inner_renewals(self) -> Iterator[Finding]:
        """renew_cg() in a loop inside the one whose backward() it serves, without a backward() of its own."""
        nodes = list(self.facts.targets)
        backward = list(self.facts.calls_in(nodes, ("method", "expr.backward")))
        for node in self.facts.calls_in(nodes, ("dy", "renew_cg")):
            here, owner = self.program.loops_around[node], self.program.owner[node]
            around = [self.program.loops_around[b] for b in backward if self.program.owner[b] == owner]
            if not here or any(other[: len(here)] == here for other in around):
                continue
            if any(here[: len(other)] == other for other in around):
                text = "renew_cg() in an inner loop: what was recorded before it in the outer loop is lost"
                yield self._at(node, "inner", text + "; renew once per backward()")

    def _parameters_in_loops(self) -> Iterator[Finding]:
        makers = [("method", f"coll.{name}") for name in ("add_parameters", "add_lookup_parameters")]
        makers += [("dy", name) for name in sorted(api.BUILDERS)]
        instance = {i.loop.id for i in self.analysis.instances.all}
        for facts in self.analysis.loops.found.values():
            if facts.kind == GRAPH and facts.loop.id not in instance:
                continue  # training several models is no fault
            for node in self.facts.calls_in(self.analysis.loops.everything(facts.loop), *makers):
                text = f"parameters are made in a loop that records ops ({self._place(facts.loop)}): "
                yield self._at(node, "parameters", text + "make them once, before it")

    def _constant_inputs(self) -> Iterator[Finding]:
        """Inputs whose numbers are the same in each iteration of a loop."""
        for facts in self.analysis.loops.found.values():
            if facts.kind == GRAPH:
                continue  # each graph needs its own
            changing = _assigned(facts.loop)
            for node in self.analysis.loops.body(facts.loop):
                op = self.facts.ops.get(node)
                if op not in api.INPUT_OPS or not isinstance(node, ast.Call):
                    continue
                parts = [n for argument in node.args for n in ast.walk(argument)]
                fixed = not any(isinstance(n, (ast.Call, *COMPREHENSIONS, ast.Attribute)) for n in parts)
                names = {n.id for n in parts if isinstance(n, ast.Name)}
                if fixed and not names & changing and not self._mutated(names, facts.loop):
                    text = f"{op}() of the same numbers in each iteration ({self._place(facts.loop)}): "
                    yield self._at(node, "input", text + "make it once, before the loop")

    def _mutated(self, names: set[str], loop: Loop) -> bool:
        """Whether the loop may change a list of one of these names."""
        for node in self.analysis.loops.body(loop):
            base: Any = node
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                base = node.func.value
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                base = node.value
            if base is not node and isinstance(base, ast.Name) and base.id in names:
                return True
        return False

    def _immediate(self) -> Iterator[Finding]:
        for node in self.facts.calls_in(list(self.facts.targets), ("dy", "renew_cg")):
            for keyword in getattr(node, "keywords", []):
                value = keyword.value
                if keyword.arg in ("immediate_compute", "check_validity"):
                    if isinstance(value, ast.Constant) and value.value:
                        text = f"{keyword.arg}=True computes every op when it is recorded: nothing is batched"
                        yield self._at(node, "immediate", text + "; it is for finding faults")

    # ---- what was found

    def _loops(self) -> Iterator[Finding]:
        instances = {i.loop.id: i for i in self.analysis.instances.all}
        for facts in self.analysis.loops.found.values():
            loop = facts.loop
            if facts.kind == RECURRENCE:
                text = f"recurrence: each iteration needs {', '.join(facts.carried)} of the one before"
            elif facts.kind == MAP:
                text = "map: its iterations are batched together"
            else:
                text = "graphs begin in its iterations"
            instance = instances.get(loop.id)
            if instance is not None:
                text += "; the loop over instances"
                text += ", a graph for each" if instance.kind == ONLINE else ""
            yield Finding(self.program.path(loop.module), loop.line, facts.kind, f"{loop.form}: {text}")
        for number in sorted(self.analysis.graph.recursive):
            function = self.program.functions[number]
            if self.analysis.loops.is_recorder(number):
                groups = self.analysis.graph.siblings(function)
                text = f"{function.qualname}() is recursive"
                text += ": its calls in one body are batched together" if groups else ", call after call"
                path = self.program.path(function.module)
                yield Finding(path, function.line, "recursion", text)

    def _regions(self) -> Iterator[Finding]:
        for path, listing in self.listings.items():
            for found in listing.regions:
                what = _FORMS.get(found.form) or _lines(found.line, found.last_line)
                yield Finding(path, found.line, "region", f"{found.qualname}(): {what}")
        for function in self.program.functions:
            listing = self.listings.get(self.program.path(function.module), Listing())
            if function.is_module or any(found.qualname == function.qualname for found in listing.regions):
                continue
            nodes = list(self.program.body_nodes(function))
            ops = [getattr(node, "lineno", 0) for node in nodes if node in self.facts.ops]
            if len(ops) >= LEAST_OPS and not any(self.facts.calls_in(nodes, *TRAINING)):
                reason = _refusal(function, listing, ops)
                text = f"{function.qualname}() has none: {reason}"
                yield Finding(self.program.path(function.module), function.line, "none", text)

    def _maps(self) -> Iterator[Finding]:
        complete = self.analysis.state.complete
        for rewrite in self.analysis.independence.all:
            path = self.program.path(rewrite.loop.module)
            if rewrite.proved and complete:
                yield Finding(path, rewrite.loop.line, "map", self._run_together(rewrite))
            else:
                where = f"line {rewrite.line}: " if rewrite.line != rewrite.loop.line else ""
                why = rewrite.reason or "the analysis was not finished"
                yield Finding(path, rewrite.loop.line, "no map", f"left as it is: {where}{why}")

    def _calls(self) -> Iterator[Finding]:
        complete = self.analysis.state.complete
        for group in self.analysis.concurrent_calls.all:
            function: Any = group.function
            names = ", ".join(f"{text_of(call.func)}()" for call in group.calls)
            where = f"line {group.line}: " if group.line != group.calls[0].lineno else ""
            why = group.reason or ("" if complete else "the analysis was not finished")
            if not why and not may_change(function.node):
                why = f"{function.qualname}() is decorated, a generator, or looks at its own names"
            text = f"{names}: " + (
                f"one after another: {where}{why}"
                if why
                else "independent: with hints and greenlet they run side by side, as by dy.batch_map()"
            )
            path = self.program.path(function.module)
            yield Finding(path, group.calls[0].lineno, "apart" if why else "concurrent", text)

    def _run_together(self, rewrite: LoopIndependence) -> str:
        """Whether the hints alone make the iterations of a loop run together."""
        function: Any = self.program.functions[rewrite.loop.function]
        node: Any = rewrite.loop.node
        if function.is_module:
            reason = "the loop is not in a function"
        elif not isinstance(function.node, ast.FunctionDef) or not may_change(function.node):
            reason = f"{function.qualname}() is decorated, a generator, or looks at its own names"
        elif not is_possible(node):
            reason = "its body cannot be a function of its own"
        else:
            return "iterations are independent: with hints and greenlet they run together, by dy.batch_map()"
        return (
            "iterations are independent: dy.batch_map() can run them together, in one graph "
            f"(hints alone do not: {reason})"
        )


def _assigned(loop: Loop) -> set[str]:
    """Names that differ from one iteration to the next."""
    node: Any = loop.node
    if isinstance(node, COMPREHENSIONS):
        return {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    names = Liveness()
    if not isinstance(node, ast.While):
        names.target(node.target)
    names.block(node.body)
    return names.assigned
