# ruff: noqa: UP031
"""What is compared with the real DyNet beside ops and builders: command lines, and small expressions.

Run by an interpreter that has the real DyNet, this file writes `data/surface.json`:

    .oracle/bin/python tests/support/surface_cases.py tests/oracle/data/surface.json
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

OPTIONS = [
    line.split(" ") if line else []
    for line in """
--dynet-seed 5
--dynet_seed 5
--dynet-seed=7 --dynet-mem 9
--dynet-memory 9
--dynet-seed -1
--dynet-seed -5
--dynet-seed 99999999999
--dynet-seed 4294967295
--dynet-seed 4294967296
--dynet-seed -4294967295
--dynet-seed -4294967296
--dynet-seed -9999999999999999999999
--dynet-seed +5
--dynet-seed 12abc
--dynet-seed 1e3
--dynet-seed=3=4
--dynet-seedx=9
--dynet-seeds 4
--dynet-seed
--dynet-seed=
--dynet-seed --foo
--dynet-seed 1 --dynet-seed 2
a --dynet-seed 8 b
-dynet-seed 3
---dynet-seed 3
x--dynet-seed 3
--dynet-mem 0
--dynet-mem 3
--dynet-mem 1.5
--dynet-mem 1,2,3,4
--dynet-mem=1,2,3,4
--dynet-mem 1,2
--dynet-mem 1,2,3
--dynet-mem 1,2,3,4,
--dynet-mem 1,2,3,4,5
--dynet-mem 1,,2,3
--dynet-mem=,,
--dynet-mem 1,2,3,x
--dynet-mem 0,1,1,1
--dynet-mem abc
--dynet-mem=
--dynet-mem=512=3
--dynet-mem 99999999999
--dynet_mem=4 --dynet-profiling-x 1
--dynet-weight-decay 0.5
--dynet-weight-decay .25
--dynet-weight-decay=1e-3
--dynet-weight-decay 1e-3x
--dynet-weight-decay x
--dynet-weight-decay 1
--dynet-weight-decay -0.5
--dynet-weight_decay 0.1
--dynet_weight_decay 0.1
--dynet_weight-decay 0.1
--dynet-autobatch 1
--dynet-autobatch 0
--dynet-autobatch 2 --dynet-profiling 0
--dynet-autobatch 3
--dynet-autobatch 101
--dynet-autobatch -1
--dynet-autobatch abc
--dynet-autobatch 1.9
--dynet-autobatch
--dynet-autobatch 1 --dynet-seed 4 --dynet-weight-decay 0.25 --dynet-mem 5
--dynet-profiling -1
--dynet-profiling --dynet-seed 3
--dynet-devices CPU
--dynet-devices=CPU
--dynet-devices cpu
--dynet-devices CPU:1
--dynet-devices CPU,CPU
--dynet-devices FOO
--dynet-devices=GPU:0
--dynet-devices GPU:0
--dynet-gpu
--dynet-gpus 1
--dynet-gpus=1
--dynet-gpu-ids 1
--dynet-l2 4
--dynet-foo
--dynet-viz --dynet-seed 3
""".strip().split("\n")
]

SCRIPT = """
import sys
import dynet as dy
decay = dy.ParameterCollection().get_weight_decay() if hasattr(dy, "reset_random_seed") else -1.0
print(sys.argv[1:], round(decay, 6))
"""

# Expressions that give the same value, or an exception of the same type. `x` is inputVector([1, 2]).
EXPRESSIONS = """
dy.UnsignedValue(3).get()
dy.UnsignedValue().get()
dy.UnsignedValue(2.7).get()
dy.UnsignedValue(-1)
dy.UnsignedValue('a')
dy.FloatValue().get()
dy.FloatValue(0.1).get()
dy.FloatValue('a')
dy.FloatValue(3).set(5)
dy.UnsignedVectorValue([1, 2]).get()
dy.UnsignedVectorValue((1, 2)).get()
dy.UnsignedVectorValue([1, 2]).size()
dy.UnsignedVectorValue([1, -2])
dy.UnsignedVectorValue()
dy.FloatVectorValue([1, 0.1]).get()
dy.FloatVectorValue(np.ones(2)).get()
dy.FloatVectorValue([]).size()
dy.FloatVectorValue(3)
dy.inputTensorTranspose([1, 2, 3, 4], (2, 2)).value()
dy.inputTensorTranspose([1, 2, 3]).value()
dy.inputTensorTranspose([1, 2, 3, 4], (2,), batch_size=2).value()
dy.inputTensorTranspose([1, 2, 3], (2,))
type(dy.inputTensorTranspose([1, 2, 3])).__name__
isinstance(dy.inputTensorTranspose([1, 2, 3]), dy.inputTensorTranspose)
hasattr(dy.inputTensorTranspose([1, 2, 3]), 'set')
dy.cg().inputMatrixLiteral([1, 2, 3, 4], (2, 2)).value()
type(dy.cg().inputMatrixLiteral([1, 2, 3, 4], (2, 2))).__name__
dy.cg().inputSparseTensor([1], [2.0], (3,), 1, 5).value()
type(dy.cg().inputSparseTensor([1], [2.0], (3,))).__name__
type(dy.scalarInput(1)).__name__
type(dy.inputVector([1])).__name__
type(dy.inputTensor([1.0])).__name__
type(dy.pick(x, 1)).__name__
type(dy.pick_batch(x, [1, 0])).__name__
_dynet._inputExpression(dy.cg(), 3).value()
_dynet._inputExpression(3, 4)
_dynet._vecInputExpression(dy.cg(), [1, 2, 3]).value()
_dynet._vecInputExpression(dy.cg(), [1, 2, 3, 4], (2, 2)).value()
_dynet._tensorInputExpression(dy.cg(), [1, 2, 3], (3,)).value()
_dynet._tensorInputExpression(dy.cg(), [1, 2, 3], (3,)).set([4, 5, 6])
_dynet._sparseInputExpression(dy.cg(), [1], [3.0], (3,)).value()
_dynet._pickerExpression(dy.cg(), x, 1).value()
_dynet._pickerBatchExpression(dy.cg(), dy.inputTensor([[1, 2], [3, 4]], batched=True), [1, 0]).value()
dy.parameter()
dy.parameter(1, 2)
dy.parameter(x) is x
dy.const_parameter()
dy.DeviceInfo('a', 1, 2).type
sorted(vars(dy.get_device_info('CPU')))
dy.get_device_info('GPU:7')
dy.ComputationGraph()
dy.cg() is dy.renew_cg()
dy.cg().version() == dy.cg_version()
dy.cg().forward_vec(0)
dy.cg().inc_forward_vec(0)
dy.cg().forward(0)
dy.cg().inc_forward(0)
dy.cg().backward(0)
(dy.cg().forward_scalar(dy_index(dy.sum_elems(x))), dy.cg().inc_forward_scalar(1))
dy.cg().backward(dy_index(dy.sum_elems(x)), True)
dy.cg().checkpoint()
dy.cg().revert()
dy.matInput(2, 3)
dy.inputMatrix([1, 2], (2, 1))
dy.zeroes(2).value()
dy.zeroes is dy.zeros
dy.Model is dy.ParameterCollection
dy.LSTMBuilder is dy.VanillaLSTMBuilder
(dy.__version__, dy.__gitversion__, dy.HAVE_CUDA, dy._CONF)
dy.print_graphviz(show_dims=True)
[n for n in ('np', 'os', 'sys', 'pickle', 'print_function', 'abs', 'pow', 'round', 'exp') if n not in star]
star['np'].ones(1)
star['abs'](dy.scalarInput(-2)).value()
star['pow'](dy.scalarInput(2), dy.scalarInput(3)).value()
dy.dump_cg('', True, False)
dy.dump_cg('', False, True)
dy.dump_cg('', True, True, True)
dump(dy.tanh(dy.inputTensor([[1, -2], [3, 100]])))
dump(dy.concatenate([dy.inputVector([0.001, 12345678.0]), x]))
dump(dy.log(dy.inputVector([0.0, -1.0, 2.0])))
dump(dy.log(dy.inputVector([0.0, -1.0, 2.0])), nan_check_only=True)
dump(dy.sum_elems(dy.tanh(x)), backward=True)
graphviz(dy.tanh(dy.exp(x)))
""".strip().split("\n")


def namespace(dy: Any, native: Any) -> dict[str, Any]:
    """The names that EXPRESSIONS use."""
    import contextlib
    import io
    import tempfile

    import numpy as np

    star: dict[str, Any] = {}
    exec("from %s import *" % dy.__name__, star)

    def dy_index(e: Any) -> int:
        return int(str(e).split()[1].split("/")[0])

    def dump(e: Any, backward: bool = False, **options: Any) -> str:
        """dump_cg() into a file, without the last node: the reference leaves it out."""
        e.forward()
        if backward:
            e.backward(full=True)
        dy.tanh(dy.scalarInput(1))  # the last one
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "dump.txt")
            dy.dump_cg(name, **options)
            with open(name) as file:
                return file.read().split("Node %d\n" % (dy_index(e) + 1))[0]

    def graphviz(e: Any) -> list[str]:
        """Edges of the graph; the reference writes past Python's stderr."""
        with tempfile.TemporaryFile() as file, contextlib.redirect_stderr(io.StringIO()) as ours:
            kept = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                dy.print_text_graphviz()
            finally:
                os.dup2(kept, 2)
                os.close(kept)
            file.seek(0)
            text = file.read().decode() + ours.getvalue()
        return [re.sub(r'\[label="(v\d+ = \w+).*\]', r"\1", line) for line in text.splitlines()]

    return {
        "dy": dy,
        "_dynet": native,
        "np": np,
        "star": star,
        "dump": dump,
        "dy_index": dy_index,
        "graphviz": graphviz,
    }


def evaluate(names: dict[str, Any], code: str) -> str:
    """The value of an expression as text, or the type of its exception."""
    dy = names["dy"]
    dy.renew_cg()
    names["x"] = dy.inputVector([1, 2])
    try:
        value = eval(code, names)  # noqa: S307 - our own text
    except Exception as error:
        return "!" + type(error).__name__
    return repr(value.tolist() if hasattr(value, "tolist") else value)


def start(command: list[str], arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """What a command line does: lines on stderr and stdout, or the type of the error."""
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    if done.returncode:
        last = done.stderr.strip().split("\n")[-1] if done.returncode == 1 else ""
        return {"error": "RuntimeError" if last.startswith("RuntimeError") else "ValueError"}
    lines = [line for line in done.stderr.split("\n") if line.startswith("[dynet]")]
    seeded = any(a.startswith(("--dynet-seed", "--dynet_seed")) for a in arguments)
    return {
        "lines": [line if seeded else re.sub(r"seed: \d+", "seed: *", line) for line in lines],
        "out": done.stdout.strip(),
    }


def main() -> None:
    import _dynet
    import dynet as dy

    script = Path(__file__).with_name("surface_script.tmp.py")
    script.write_text(SCRIPT)
    try:
        options = [[a, start([sys.executable, str(script)], a, dict(os.environ))] for a in OPTIONS]
    finally:
        script.unlink()
    names = namespace(dy, _dynet)
    values = [[code, evaluate(names, code)] for code in EXPRESSIONS]
    with open(sys.argv[1], "w") as file:
        json.dump({"options": options, "expressions": values}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
