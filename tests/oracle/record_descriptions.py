# ruff: noqa: UP031
"""Record what the real DyNet's print_text_graphviz calls the result of each op case.

    PYTHON_WITH_DYNET tests/oracle/record_descriptions.py

writes tests/oracle/data/descriptions.json: the case -> its result in words, every argument written out.
Addresses are left out. Runs under Python 3.8; `words_of` also serves the test, under any Python.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

TARGET = HERE / "data" / "descriptions.json"


def printed(dy: Any) -> str:
    """What print_text_graphviz writes on stderr, below Python."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            dy.print_text_graphviz()
            sys.stderr.flush()
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        return file.read().decode()


def key_of(case: Any) -> str:
    return "  # ".join([case.expr, *(spec.label() for spec in case.inputs)])


def words_of(dy: Any, case: Any, printed: Callable[[Any], str] = printed) -> str:
    """The last node that the case's expression makes, in words."""
    import numpy as np

    dy.renew_cg()
    pc = dy.ParameterCollection()
    x = []
    for number, spec in enumerate(case.inputs):
        values = spec.values(number + 1)
        if spec.kind == "param":
            x.append(pc.parameters_from_numpy(values[..., 0]))
        elif spec.kind == "lookup":
            x.append(pc.lookup_parameters_from_numpy(values[..., 0]))
        elif spec.batch > 1:
            x.append(dy.inputTensor(values, batched=True))
        else:
            x.append(dy.inputTensor(values[..., 0]))
    eval(case.expr, {"dy": dy, "np": np, "x": x, "k": 1, "pc": pc})  # noqa: S307 - our own text
    words: dict[int, str] = {}
    last = ""
    for number, label in re.findall(r'label="v(\d+) = (.*)"\]', printed(dy)):
        label = re.sub(r" ?@ .*| ?\(MEM.*", "", label)  # parameters: an address there, a name here
        label = re.sub(r"scalar_constant\(.*\)", "constant({1})", label)
        label = re.sub(r"Poisson\([^;]*;", "Poisson(;", label)
        label = label.replace("sparse_constant(", "constant(")
        last = re.sub(r"(?<![a-z_])v(\d+)", lambda match: "(%s)" % words[int(match.group(1))], label)
        words[int(number)] = last
    return last


def main() -> None:
    import dynet as dy
    from ops.cases import CASES

    found = {}
    for case in CASES:
        try:
            words = words_of(dy, case)
        except (ValueError, RuntimeError, TypeError, AttributeError, SystemError):
            continue  # what only this package can do
        if len(words) < 400:
            found[key_of(case)] = words
    few: dict[str, int] = {}
    kept = {}
    for expr, words in found.items():  # some of each kind are enough
        kind = re.sub(r"\d+(\.\d+)?", "9", expr.split("  #")[0])
        few[kind] = few.get(kind, 0) + 1
        if few[kind] <= 2:
            kept[expr] = words
    TARGET.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    print("%d of %d" % (len(kept), len(CASES)))


if __name__ == "__main__":
    main()
