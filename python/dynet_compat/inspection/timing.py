"""The time that each kind of launch takes, in DyNet's form (`--dynet-profiling`)."""

from __future__ import annotations

from .. import _core


def timing_lines() -> list[str]:
    """The time of each kind of launch so far, in DyNet's form; empty if nothing was timed."""
    times = []
    for name, (forward, forwards, backward, backwards) in _core._op_times().items():
        times += [(forward, f"FWD {name}")] * bool(forwards) + [(backward, f"BWD {name}")] * bool(backwards)
    if not times:
        return []
    total = sum(seconds for seconds, _ in times)
    lines = ["Timing Info:"]
    for seconds, kind in [*sorted(times), (total, "(total time)")]:
        lines.append(f"{1000 * seconds:>11.4g}\t{100 * seconds / (total or 1.0):.4g}%\t{kind}")
    return lines


def print_timing() -> None:
    """Print `timing_lines`; with `--dynet-profiling` this happens when the program ends."""
    for line in timing_lines():
        print(line)
