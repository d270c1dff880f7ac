# ruff: noqa: UP031
"""Small calls of every method of builders, trainers, initialisers and weight decay, and what DyNet answers.

The calls are in protocol_cases.txt: lines `name | code`, code that leaves its answer in R. Each runs for
every class of its kind. Run under the real DyNet this records the answers, as record_protocol.py does:

    python protocol.py --library dynet --out protocol.npz
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

import numpy as np

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from support import records  # noqa: E402

BUILDERS = (
    "SimpleRNN",
    "GRU",
    "VanillaLSTM",
    "LSTM",
    "SparseLSTM",
    "CompactVanillaLSTM",
    "CoupledLSTM",
    "FastLSTM",
)
TRAINERS = {
    "SimpleSGD": "",
    "CyclicalSGD": ",0.01,0.3,3,0.9",
    "MomentumSGD": "",
    "Adagrad": "",
    "Adadelta": "",
    "RMSProp": "",
    "Adam": "",
    "Amsgrad": ",.05,.5,.9,.1",
}
RNN = """
pc=dy.ParameterCollection(); rng=np.random.RandomState(3)
def mk(cls=CLS,L=2,I=3,H=4,*a,**k):
    b=cls(L,I,H,pc,*a,**k)
    for p in pc.parameters_list(): p.set_value(0.5*rng.randn(*p.shape()))
    dy.reset_random_seed(7)
    return b
def X(i=0,n=3,b=1):
    r=np.random.RandomState(i+50)
    return dy.inputTensor(r.randn(n,b),batched=True) if b>1 else dy.inputTensor(r.randn(n))
def V(n,h=4): return [dy.inputTensor(np.random.RandomState(90+i).randn(h)) for i in range(n)]
dy.renew_cg(autobatching=False)
"""
TRAINING = """
pc=dy.ParameterCollection()
p=pc.parameters_from_numpy(np.array([1.,2.,-1.])); q=pc.parameters_from_numpy(np.array([[.5,1],[2,3]]))
E=pc.lookup_parameters_from_numpy(np.arange(12.).reshape(4,3)/10)
def loss(k=0):
    dy.renew_cg(autobatching=False)
    return dy.squared_norm(p-k)+dy.sum_elems(q)*0.3*(k+1)+dy.squared_norm(E[k%4]+E[2])
def vals(): return [p.as_array(),q.as_array(),E.as_array()]
def run(t,n=5,**k):
    for i in range(n): l=loss(i); l.value(); l.backward(); t.update()
    return vals()
"""


class Capture:
    """What is written to file descriptor 2 meanwhile."""

    def __enter__(self) -> Capture:
        self.file = tempfile.TemporaryFile()
        self.kept = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self.kept, 2)
        os.close(self.kept)
        self.file.seek(0)
        self.text = self.file.read().decode()


def all_cases() -> dict[str, str]:
    """Name -> code."""
    cases: dict[str, str] = {}
    section = ""
    for line in (HERE / "protocol_cases.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line[1:-1]
            continue
        if not line:
            continue
        name, code = line.split(" | ", 1)
        code = code.replace("\\n", "\n")
        if section == "state":
            for kind in BUILDERS:
                cases["%s %s" % (kind, name)] = (RNN + code).replace("CLS", "dy.%sBuilder" % kind)
        elif section in ("builder", "argument"):
            cases["%s %s" % (section, name)] = RNN.replace("CLS", "dy.GRUBuilder") + code
        elif section == "initialiser":
            few = name in ("glorot", "none", "n1", "s_he")
            for dim in ("(2,3)", "(3,3)", "4", "(2,3,4)", "()", "(2,2,3,4)", "(1,)")[: 7 if few else 4]:
                for add in ("add_parameters", "add_lookup_parameters"):
                    cases["initialiser %s %s %s" % (name, dim, add)] = (
                        "pc=dy.ParameterCollection(); dy.reset_random_seed(3); i=%s; p=pc.%s(%s,init=i); "
                        "R=p.shape(),p.as_array()" % (code, add, dim)
                    )
        elif section == "trainer":
            for kind, options in TRAINERS.items():
                cls = "dy.%sTrainer" % kind
                made = code.replace("MKK", "%s(m=pc)" % cls).replace("MK", "%s(pc%s)" % (cls, options))
                cases["%s %s" % (kind, name)] = TRAINING + made.replace("CLS", cls)
        else:
            cases["decay %s" % name] = TRAINING + code
    return cases


def shown(dy: Any, value: Any) -> Any:
    """An answer as plain data."""
    if isinstance(value, np.ndarray):
        return ["array", list(value.shape), [float(x) for x in value.astype(float).ravel(order="F")[:60]]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [shown(dy, x) for x in value]]
    if isinstance(value, dy.Expression):
        return ["Expression", shown(dy, value.dim()), shown(dy, value.npvalue())]
    if value is None or isinstance(value, (float, int, str, bool)):
        return value
    return type(value).__name__


def answer(dy: Any, code: str, numbers: str) -> Any:
    """What a case leaves in R, or the name of its exception. `numbers`: path of a file of 6 numbers."""
    scope = {"dy": dy, "np": np, "os": os, "Cap": Capture, "numbers": numbers.encode()}
    try:
        exec(code, scope)  # noqa: S102 - our own text
        return shown(dy, scope["R"])
    except Exception as error:
        return "raises " + type(error).__name__


def number_file(folder: str) -> str:
    """The file that cases call `numbers`."""
    path = os.path.join(folder, "numbers.txt")
    with open(path, "w") as stream:
        stream.write("1 2 3\n4 5 6\n")
    return path


def in_child(task: Callable[[], Any]) -> Any:
    """The answer of a forked child; a crash is an answer, too."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        with os.fdopen(writer, "w") as stream:
            stream.write(json.dumps(task()))
            stream.flush()
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    return json.loads(text) if os.waitpid(child, 0)[1] == 0 else "dies"


def main() -> None:
    """Record the answers of the real DyNet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", dest="module", default="dynet")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    dy = importlib.import_module(options.module)
    with tempfile.TemporaryDirectory() as folder:
        path = number_file(folder)
        answers = {
            name: in_child(lambda code=code: answer(dy, code, path)) for name, code in all_cases().items()
        }
    records.save(options.out, {"answers": records.text(json.dumps(answers))})
    print("%d answers" % len(answers))


if __name__ == "__main__":
    main()
