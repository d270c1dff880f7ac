# ruff: noqa: UP031
"""Running the scripts of examples/ for a few steps on the small data of tests/apps/data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

TESTS = Path(__file__).resolve().parent.parent
EXAMPLES = TESTS.parent / "examples"
STEPS = 10
SEED = 7
# example -> kind of data
SCRIPTS: dict[str, Optional[str]] = {
    "xor": None,
    "mlp": "classes",
    "bilstm_tagger": "tags",
    "bilstm_char_tagger": "tags",
    "treelstm": "trees",
    "rnnlm": "text",
    "seq2seq": "text",
    "parser": "trees",
}


def train(
    name: str,
    reference: bool,
    autobatch: int = 0,
    steps: int = STEPS,
    seed: int = SEED,
    environment: Optional[dict[str, str]] = None,
    command: Optional[list[str]] = None,
    limit: float = 180,
) -> dict[str, Any]:
    """Run one example in a process of its own and return what it writes with --losses."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        arguments = [
            str(EXAMPLES / (name + ".py")),
            "--steps",
            str(steps),
            "--batch",
            "4",
            "--hidden",
            "16",
            "--quiet",
            "--losses",
            str(result),
            "--dynet-seed",
            str(seed),
            "--dynet-autobatch",
            str(autobatch),
        ]
        kind = SCRIPTS[name]
        if kind is not None:
            arguments += ["--data", str(TESTS / "apps" / "data" / (kind + ".txt"))]
        if reference:
            arguments.append("--reference")
        done = subprocess.run(
            [*(command or [sys.executable]), *arguments],
            capture_output=True,
            text=True,
            timeout=limit,
            env={**os.environ, **(environment or {})},
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError("%s ended with %d:\n%s" % (name, done.returncode, done.stderr[-3000:]))
        return json.loads(result.read_text(encoding="utf-8"))
