# ruff: noqa: UP031
"""Record what the real DyNet 2.1.2 does. Run in a Python 3.8 environment that has it:

    python3.8 -m venv .oracle && .oracle/bin/pip install "dynet==2.1.2" "numpy<1.25"
    .oracle/bin/python tests/oracle/record.py [--out FOLDER] [SECTION ...]

Each section is written to data/<section>.npz (see support/records.py). Nothing in the package depends on it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from ops.cases import CASES  # noqa: E402
from support import conversions, examples, records, runner, scenarios  # noqa: E402
from support.errors import ERRORS, outcome  # noqa: E402


def record_ops(dy: Any) -> dict[str, np.ndarray]:
    """Value, dim and gradients of every case the reference gets right."""
    arrays: dict[str, np.ndarray] = {}
    for case in CASES:
        if case.ref is not None:
            continue
        result = runner.evaluate(dy, case)
        arrays[case.id + "|key"] = records.text(case.key)
        arrays[case.id + "|value"] = result.value.astype(np.float32)
        arrays[case.id + "|dim"] = np.array(list(result.dim[0]) + [result.dim[1]], dtype=np.int32)
        for n, grad in enumerate(result.grads):
            if grad is not None:
                arrays["%s|grad%d" % (case.id, n)] = grad.astype(np.float32)
    return arrays


def record_errors(dy: Any) -> dict[str, np.ndarray]:
    """Name of the exception of every bad call that the reference survives."""
    arrays: dict[str, np.ndarray] = {}
    for error in ERRORS:
        if error.kills_reference:
            continue
        arrays[error.id] = records.text(in_child(lambda error=error: outcome(dy, error.code)))
    return arrays


def record_conversions(dy: Any) -> dict[str, np.ndarray]:
    """What each call of support/conversions.py does, as JSON."""
    calls = [call for call in conversions.CALLS if call.differs != conversions.DIES]
    return {call.code: records.text(conversions.outcome(dy, call.code)) for call in calls}


def record_examples(dy: Any) -> dict[str, np.ndarray]:
    """The first losses of every example script, batching off."""
    return {name: np.array(examples.train(name, reference=True)["losses"]) for name in examples.SCRIPTS}


def in_child(task: Callable[[], str]) -> str:
    """Run `task` in a forked child, so that a crash of the reference is a result and not the end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            os.write(writer, task().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read().decode()
    _, status = os.waitpid(child, 0)
    return answer if status == 0 else "died with status %d" % status


def record_scenarios(names: list[str]) -> Callable[[Any], dict[str, np.ndarray]]:
    """A section made of scenarios: each gives named arrays."""

    def run(dy: Any) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {}
        for name in names:
            for key, array in scenarios.ALL[name](dy).items():
                arrays[name + "|" + key] = np.asarray(array)
        return arrays

    return run


SECTIONS: dict[str, Callable[[Any], dict[str, np.ndarray]]] = {
    "ops": record_ops,
    "errors": record_errors,
    "conversions": record_conversions,
    "examples": record_examples,
    **{section: record_scenarios(names) for section, names in scenarios.SECTIONS.items()},
}


def main(argv: Optional[list[str]] = None) -> int:
    """Record the named sections, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE / "data")
    parser.add_argument("sections", nargs="*", default=[], metavar="SECTION", help="default: all")
    options = parser.parse_args(argv)
    import dynet as dy

    if getattr(dy, "__name__", "") != "dynet" or "dynet_compat" in sys.modules:
        raise SystemExit("the recorder must run on the real DyNet")
    options.out.mkdir(parents=True, exist_ok=True)
    for section in options.sections or SECTIONS:
        arrays = SECTIONS[section](dy)
        path = options.out / (section + ".npz")
        records.save(path, arrays)
        print("%s: %d arrays, %d bytes" % (path.name, len(arrays), path.stat().st_size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
