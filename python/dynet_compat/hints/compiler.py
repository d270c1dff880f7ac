"""The hints of one script: the contents of the file, and what is printed about them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Callable, Optional

from .analysis.load import LoadError, load
from .analysis.loops import RECURRENCE
from .analysis.script import ScriptAnalysis
from .explain import Explanation
from .hints_file import Hints, IndependentCalls, IndependentLoop, RecordingFunction, clean, cleaned
from .rewrite import batch_map
from .rewrite.listing import Listing, list_regions


@dataclass
class Compiled:
    """What `compile` has to write and to say.

    Attributes:
        problems: what the analysis could not see through.
        counts: of what was found, for the summary.
        explanation: the lines of --explain.
    """

    hints: Hints
    problems: list[str]
    counts: list[str] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)


def compile_script(
    script: str, output: str, progress: Optional[Callable[[int, int], None]] = None
) -> Compiled:
    """Analyse a script.

    Args:
        script: the Python file.
        output: where the hints will be; the place of the sources is stored relative to it.
        progress: as in ScriptAnalysis.
    Returns:
        What was found. A program that defeats the analysis gives empty hints.
    Raises:
        LoadError: there is no such script.
    """
    folder = os.path.dirname(os.path.abspath(script))
    home = os.path.dirname(os.path.realpath(output))
    try:
        root = os.path.relpath(os.path.realpath(folder), home)
    except ValueError:  # another drive
        root = "."
    try:
        found = ScriptAnalysis(script, progress)
        hints = hints_of(found, root)
        listings = listings_of(found, hints)
        problems = [clean(str(problem)) for problem in sorted(found.program.problems)]
        return Compiled(
            hints, problems, _counts(found, hints, listings), Explanation(found, listings).lines()
        )
    except LoadError:
        raise
    except RecursionError:
        return _failed(script, root, "statements or expressions nested too deeply to be analysed")
    except Exception as error:  # a fault of ours must not cost the user more than the hints
        why = f"the analysis failed ({type(error).__name__}: {error}); please report it"
        return _failed(script, root, why)


def hints_of(found: ScriptAnalysis, root: str = ".") -> Hints:
    """The contents of the hints file; empty lists for a program that cannot be seen through.

    Args:
        found: the analysis.
        root: the script's folder, relative to the hints file's.
    """
    program = found.program
    functions = [program.functions[number] for number in found.recording()]
    return Hints(
        script=program.sources[0].path,
        root=root.replace(os.sep, "/"),
        sources={source.path: source.sha256 for source in program.sources},
        functions=tuple(RecordingFunction(program.path(f.module), f.qualname) for f in functions),
        independent_loops=tuple(independent_loops(found)),
        independent_calls=tuple(independent_calls(found)),
    )


def independent_loops(found: ScriptAnalysis) -> list[IndependentLoop]:
    """The loops whose iterations are proved to be independent."""
    program = found.program
    return [
        IndependentLoop(
            program.path(r.loop.module),
            program.functions[r.loop.function].qualname,
            r.loop.line,
            r.loop.col,
            r.renews,
            cleaned(r.appends),
            cleaned(r.sums),
        )
        for r in (found.independence.proved() if found.usable else [])
        if r.loop.function not in program.opaque
    ]


def independent_calls(found: ScriptAnalysis) -> list[IndependentCalls]:
    """The groups of calls that are proved to be independent."""
    return [
        IndependentCalls(
            found.program.path(g.function.module),
            g.function.qualname,
            g.line,
            tuple(call.end_lineno or 0 for call in g.calls),
            tuple(call.end_col_offset or 0 for call in g.calls),
        )
        for g in (found.concurrent_calls.proved() if found.usable else [])
    ]


def listings_of(found: ScriptAnalysis, hints: Hints) -> dict[str, Listing]:
    """The regions that a run with these hints replaces by calls, by file."""
    loops = hints.concurrent if batch_map.possible() else ()
    return list_regions(found.program.sources, hints.functions, loops)


def _counts(found: ScriptAnalysis, hints: Hints, listings: dict[str, Listing]) -> list[str]:
    """How many of each were found."""
    opaque, owner = found.program.opaque, found.program.owner
    loops = [f for f in found.loops.found.values() if f.loop.function not in opaque and found.usable]
    sites = [node for node in found.facts.ops if owner[node] not in opaque and found.usable]
    calls = len(hints.independent_calls)
    recurrent = sum(facts.kind == RECURRENCE for facts in loops)
    return [
        count(len(sites), "site"),
        f"{count(len(loops), 'loop')} ({recurrent} recurrent)",
        count(sum(len(listing.regions) for listing in listings.values()), "region"),
        count(len(hints.independent_loops), "batch_map loop"),
        *([count(calls, "group") + " of independent calls"] if calls else []),
    ]


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _failed(script: str, root: str, why: str) -> Compiled:
    """Hints that say nothing, and why."""
    sources = load(script).sources
    name = sources[0].path
    hints = Hints(name, root.replace(os.sep, "/"), {source.path: source.sha256 for source in sources})
    problem = clean(f"{name}:1: {why}")
    return Compiled(hints, [problem], explanation=[problem])
