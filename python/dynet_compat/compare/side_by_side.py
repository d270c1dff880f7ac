"""All runs of one script on both sides, and what they add up to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Optional

from .diff import DiffResult, Divergence, RunDiff, repeatable
from .errors import CannotCompare
from .locate import OpLocator, focus_of
from .output_files import OutputFile, compare, names_that_vary
from .runs import Run, ScriptRunner, Side

KINDS = ("recording", "forward", "backward", "update", "script")
_MOST_REPEATS = 3  # timed runs of each side, unless the user says how many
_MOST_RUNS, _SOON = 3.5, 30.0  # after so many timed runs of both sides, and seconds, there is no other one
_READ, _MOST_READING = (
    1e-6,
    0.1,
)  # seconds that a hook adds to a read; its most share of what is profiled
Watch = Callable[[str, int, int], None]  # what runs now, steps made, steps in all (0: unknown)


@dataclass
class Cost:
    """What one side cost: medians over the repeats, seconds of the loop from the first graph to the end."""

    seconds: float = 0.0
    startup: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    memory: int = 0
    steps: int = 0
    repeats: list[float] = field(default_factory=list)
    hook_per_call: float = 0.0  # seconds that a hook adds to one call, in the profiled run only
    hook_calls: int = 0
    hook_share: float = 0.0  # of the profiled run's time; taken out of the figures
    launches: list[list[int]] = field(default_factory=list)  # [nodes in a launch, how many launches]
    launch_steps: int = 0  # in which these were counted
    ops: dict[str, list[int]] = field(default_factory=dict)  # op -> [nodes, launches]

    @property
    def per_step(self) -> float:
        """Seconds of one step."""
        return self.seconds / self.steps if self.steps else 0.0


@dataclass
class Result:
    """The comparison of one script."""

    script: str
    args: list[str]
    status: str = "failed"  # "equal", "different", "crashed", "failed" or "skipped"
    message: str = ""
    rtol: float = 0.0
    seed: int = 0
    names: list[str] = field(default_factory=list)  # of the two sides, the reference first
    first: Optional[Divergence] = None  # where the difference comes from
    seen: Optional[Divergence] = None  # where it was seen first
    verdict: DiffResult = field(default_factory=DiffResult)
    notes: list[str] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    steps: int = 0
    costs: list[Cost] = field(default_factory=list)
    crashes: list[Optional[dict[str, Any]]] = field(default_factory=lambda: [None, None])
    outputs: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    files: list[OutputFile] = field(default_factory=list)  # that the script wrote
    sampled: dict[str, list[int]] = field(
        default_factory=dict
    )  # what -> [how many were compared, of how many]
    is_batched: bool = False  # whether the reference ran with autobatching
    hints: Optional[dict[str, Any]] = None  # with --hints: regions in use, and how often they were hit

    @property
    def exit_status(self) -> int:
        """0 equal (or nothing to compare in it, among others), 1 not equal, 2 cannot be compared."""
        return {"equal": 0, "skipped": 0, "different": 1, "crashed": 1}.get(self.status, 2)

    @property
    def tells_recording(self) -> bool:
        """Is the time of recording known, apart from that of the script's own Python?"""
        return self.hints is None and all(cost.hook_calls for cost in self.costs)

    @property
    def speedup(self) -> Optional[float]:
        """Time of the reference divided by ours; None without times."""
        if len(self.costs) == 2 and self.costs[1].seconds > 0 and self.costs[0].seconds > 0:
            return self.costs[0].seconds / self.costs[1].seconds
        return None

    def as_json(self) -> dict[str, Any]:
        """Everything, for --json."""
        kept = asdict(self)
        kept["exit_status"] = self.exit_status
        kept["speedup"] = self.speedup
        return kept


class SideBySide:
    """One script, two sides: `run` makes the `Result`."""

    def __init__(
        self, job: ScriptRunner, sides: tuple[Side, Side], rtol: float, repeats: Optional[int], watch: Watch
    ) -> None:
        self.job, self.rtol, self.repeats, self.watch = job, rtol, repeats, watch
        job.sampling = None
        self.reference, self.ours = sides
        self.unbatched = False  # the reference's autobatching is off while values are checked
        self.steps = job.steps
        self.begun = 0.0
        self.result = Result(
            job.script, job.args, rtol=rtol, seed=job.seed, names=[self.reference.name, self.ours.name]
        )

    def run(self) -> Result:
        """All runs.

        Raises:
            CannotCompare: there is nothing to compare.
        """
        self.begun = time.monotonic()
        ours = self._start(self.ours, "check")
        self.steps = self.steps or ours.steps
        theirs = self._start(self.reference, "check")
        self._remember(theirs, ours)
        self._usable(theirs, ours)
        result = self.result
        result.verdict = RunDiff(theirs, ours, self.rtol).decide()
        if not result.verdict.equal and self._unlike_randomness(theirs, ours):
            theirs = self._start(self.reference, "check")
            self._remember(theirs, ours)
            result.verdict = RunDiff(theirs, ours, self.rtol).decide()
        result.first = result.seen = result.verdict.first
        self._sampled(ours)
        result.files = compare(theirs, ours, self.rtol)
        if any(result.crashes):
            self._crashed(theirs, ours)
            return result
        if result.first is not None:
            self._explain(theirs)
        elif not all(file.is_equal for file in result.files):
            self._explain_files(theirs, ours)
        if result.first is None:
            result.status = "equal"
            result.message = f"equal within {self.rtol:g}"
        if self.repeats != 0:
            self._measure()
        return result

    # ------------------------------------------------------------ runs

    def _start(
        self, side: Side, mode: str, focus: Optional[dict[str, Any]] = None, steps: Optional[int] = None
    ) -> Run:
        unbatched = self.unbatched and not side.is_ours and mode in ("check", "trace")
        words = {
            "check": "checking",
            "trace": "looking for the op",
            "profile": "profiling",
            "light": "timing",
        }
        title = f"{os.path.basename(self.job.script)}: {words[mode]} {side.name}"
        shown = steps or self.steps
        self.watch(title, 0, shown)
        return self.job.start(
            side, mode, lambda done: self.watch(title, done, shown), focus, unbatched, steps
        )

    def _remember(self, theirs: Run, ours: Run) -> None:
        result = self.result
        result.crashes = [theirs.crash, ours.crash]
        result.losses = [run.result["losses"] for run in (theirs, ours)]
        result.steps = min(theirs.steps, ours.steps)
        result.outputs = [run.output + run.errors for run in (theirs, ours)]
        result.is_batched = bool(theirs.result["autobatch"])
        result.hints = ours.result.get("hints")
        result.versions = [
            f"{run.result['library'] or run.side.name}, Python {run.result['python']}, "
            f"NumPy {run.result['numpy']}" for run in (theirs, ours)
        ]  # fmt: skip

    def _usable(self, theirs: Run, ours: Run) -> None:
        """Refuses scripts in which there is nothing to compare."""
        name = os.path.basename(self.job.script)
        for run, other in ((ours, theirs), (theirs, ours)):
            crash = run.crash
            if not crash or run.result["backwards"]:
                continue
            where = f", line {crash['line']}" if crash["line"] else ""
            if not run.result["imported"]:
                raise CannotCompare(
                    f"{name} crashes at import, before it uses the library, on {run.side.name}: "
                    f"{crash['error']}{where}",
                    f"make it run by itself first: {run.side.python} {name}",
                    crash["traceback"],
                )
            if run is theirs or other.crash:
                raise CannotCompare(
                    f"{name} crashes before its first backward() on {run.side.name}: {crash['error']}{where}",
                    f"make it run by itself first: {run.side.python} {name}",
                    crash["traceback"],
                )
        if not theirs.crash and not ours.crash and not theirs.result["backwards"] + ours.result["backwards"]:
            hint = "give it the arguments that make it train, or a script that trains"
            raise CannotCompare(f"{name} never calls backward()", hint)

    def _sampled(self, ours: Run) -> None:
        """Say where not everything was compared."""
        counts = ours.result.get("counts") or {}
        if ours.result["ops"] == ours.result.get("most_calls"):
            self.result.notes.append(
                f"sampled: the first {ours.result['ops']} calls were compared by name, line and whole "
                "numbers; later ones by what the script reads of them"
            )
        for name, shown, what in (
            ("numbers", "numbers", "single numbers"),
            ("arrays", "values", "values that are no single numbers"),
            ("updates", "norms", "updates"),
        ):
            taken, seen = counts.get(name, (0, 0))
            if taken < seen:
                self.result.sampled[shown] = [taken, seen]
                self.result.notes.append(
                    f"sampled: {taken} of {seen} {what} were compared, since writing them all down would "
                    "take longer than the script itself"
                )

    def _explain_files(self, theirs: Run, ours: Run) -> None:
        """Files that differ: from themselves, too, in a second run of the reference?"""
        result = self.result
        again = self._start(self.reference, "check")
        names = names_that_vary(theirs, again, ours)
        result.files = compare(theirs, ours, self.rtol, names)
        others = compare(theirs, again, self.rtol, names_that_vary(theirs, again, again))
        varying = {file.name for file in others if not file.is_equal}
        for file in result.files:
            if not file.is_equal and file.name in varying:
                file.verdict = "varies"
        unlike = [file for file in result.files if not file.is_equal]
        if not unlike:
            return
        file = unlike[0]
        values = ["missing" if size is None else f"{size} bytes" for size in file.sizes]
        relative = None if file.difference in (None, float("inf")) else file.difference
        result.first = result.seen = Divergence(
            "file", step=max(1, result.steps), op="(written by the script)", place=file.name,
            source=file.detail, values=values, relative=relative,
        )  # fmt: skip
        result.status = "different"
        result.message = f"differs: the file {file.name} {file.verdict}" + (
            f": {file.detail}" if file.detail else ""
        )

    def _unlike_randomness(self, theirs: Run, ours: Run) -> bool:
        """Whether the reference drew its random numbers in the order of its batches; says so."""
        ops = list(dict.fromkeys(theirs.result["random_ops"] + ours.result["random_ops"]))
        if not ops or not theirs.result["autobatch"] or self.reference.is_ours:
            return False
        self.unbatched = True
        self.result.notes.append(
            f"randomness: with autobatching DyNet draws the random numbers of {', '.join(ops)} in the order "
            "of its batches, so its values cannot agree with anybody's. Values were checked with the "
            "reference's autobatching off, times were measured with it on."
        )
        return True

    def _explain(self, theirs: Run) -> None:
        """Is it the script's own randomness? If not: the op."""
        result = self.result
        assert result.first is not None
        again = self._start(self.reference, "check")
        own = None if again.crash else repeatable(theirs, again, self.rtol)
        if own is not None:
            raise CannotCompare(
                f"{os.path.basename(self.job.script)} is not repeatable: the reference differs from itself "
                f"in two runs with the same seed (step {own.step}, {own.op}, {own.place})",
                "seed its random numbers, and sort what comes out of sets",
            )
        result.status = "different"
        focus = focus_of(result.first, theirs)
        if focus is not None and not self.ours.hints:
            traces = [self._start(side, "trace", focus) for side in (self.reference, self.ours)]
            result.first = OpLocator(result.first, traces[0], traces[1], self.rtol).origin()
        result.message = "differs: " + result.first.line()
        if result.first.note and result.first.note not in result.message:
            result.notes.append(result.first.note)

    def _crashed(self, theirs: Run, ours: Run) -> None:
        result = self.result
        name = os.path.basename(self.job.script)
        sides = [run for run in (theirs, ours) if run.crash]
        result.status = "crashed"
        parts = []
        for run in sides:
            crash = run.crash
            assert crash is not None
            where = f" (line {crash['line']})" if crash["line"] else ""
            parts.append(f"on {run.side.name} after {run.steps} steps: {crash['error']}{where}")
        result.message = f"{name} crashed " + "; ".join(parts)
        compared = sum(result.verdict.compared.values())
        if result.first is None:
            result.notes.append(f"up to the crash the two sides are equal ({compared} comparisons)")
        if len(sides) == 2 and result.first is None:
            result.status = "failed"
            result.message += f": make it run by itself first: {ours.side.python} {name}"

    # ------------------------------------------------------------ times

    def _measure(self) -> None:
        """Time both sides: once, then the calls in the first half of the steps, then again while a comparison
        takes no more than a few times as long as the script itself."""
        sides = (self.reference, self.ours)
        light: list[list[Run]] = [[], []]
        begun = time.monotonic()
        self._time(light)
        plain = time.monotonic() - begun
        half = (self.steps + 1) // 2 if self.steps > 3 else None
        profiles: list[Run] = []
        if self.repeats or not _reads_much([light[0][0], light[1][0]]):
            profiles = [self._start(side, "profile", steps=half) for side in sides]
        while len(light[0]) < (self.repeats or _MOST_REPEATS) and profiles:
            if not self.repeats and time.monotonic() - self.begun > max(_MOST_RUNS * plain, _SOON):
                break
            self._time(light)
        if self.repeats is None and len(light[0]) < _MOST_REPEATS:
            often = ("once", "twice")[len(light[0]) - 1]
            self.result.notes.append(
                f"timed {often}{'' if profiles else ', without single calls'}: more would take longer than 5 "
                f"runs of the script; --repeats {_MOST_REPEATS} asks for all"
            )
        crashed = [run for run in [*profiles, *light[0], *light[1]] if run.crash]
        if crashed:
            run = crashed[0]
            self.result.notes.append(
                f"no times: a repeat crashed on {run.side.name}: {(run.crash or {})['error']}"
            )
            return
        if self.result.hints is None and light[1] and light[1][0].result.get("hints"):
            self.result.notes.append("the times of dynet_compat are those with hints, as the script has them")
        self.result.costs = [cost_of(profiles[i] if profiles else None, light[i]) for i in range(2)]

    def _time(self, light: list[list[Run]]) -> None:
        """One more timed run of each side, in turns."""
        sides = (self.reference, self.ours)
        for at in (0, 1) if len(light[0]) % 2 == 0 else (1, 0):
            light[at].append(self._start(sides[at], "light"))


def _reads_much(runs: list[Run]) -> bool:
    """Do hooks of reads take more of these runs than they may?"""
    reads = sum(run.result["seconds"].get("forward", [0, 0])[1] for run in runs)
    return bool(reads * _READ > _MOST_READING * sum(run.result.get("processor", 0.0) for run in runs))


def _loop(run: Run) -> float:
    """Seconds from the first graph to the end of the script, without the time of the hooks and of hints that
    rewrite the script."""
    result = run.result
    others = sum(float(result[name]) for name in ("startup", "hidden"))
    return max(1e-9, float(result["wall"]) - others - _rewriting(run))


def _rewriting(run: Run) -> float:
    """Seconds that rewriting the script's functions took."""
    return float((run.result.get("hints") or {"seconds": 0.0})["seconds"])


def _seconds(run: Run, kind: str) -> float:
    return float(run.result["seconds"].get(kind, [0.0, 0])[0])


def cost_of(profile: Optional[Run], repeats: list[Run]) -> Cost:
    """Times of the repeats; the profiled run says how recording and the script share the rest."""
    cost = Cost(steps=repeats[0].steps)
    cost.repeats = [_loop(run) for run in repeats]
    cost.seconds = median(cost.repeats)
    cost.startup = median([float(run.result["startup"]) + _rewriting(run) for run in repeats])
    cost.memory = max(int(run.result["memory"]) for run in repeats)
    parts = {k: median([_seconds(run, k) for run in repeats]) for k in ("forward", "backward", "update")}
    rest = max(0.0, cost.seconds - sum(parts.values()))
    share = _recording(cost, profile) if profile is not None else 0.0
    parts.update(recording=rest * share, script=rest * (1 - share))
    cost.parts = {kind: parts[kind] for kind in KINDS}
    return cost


def _recording(cost: Cost, profile: Run) -> float:
    """The share of recording in what is left of the time beside forward, backward and update; notes what a
    profiled run says besides."""
    result = profile.result
    hook = result["hook"]
    recorded, calls = result["seconds"].get("record", [0.0, 0])
    library = sum(_seconds(profile, kind) for kind in ("forward", "backward", "update"))
    rest = max(1e-9, _loop(profile) - library - calls * hook["per_call"])
    cost.hook_per_call, cost.hook_calls = hook["per_call"], int(calls)
    cost.hook_share = min(1.0, calls * hook["per_call"] / _loop(profile))
    cost.launches = [list(map(int, row)) for row in result.get("launches", [])]
    cost.launch_steps = int(result.get("launch_steps", 0))
    cost.ops = result.get("launched_ops", {})
    share: float = min(1.0, max(0.0, recorded - calls * hook["counted"]) / rest)
    return 0.0 if profile.side.hints else share
