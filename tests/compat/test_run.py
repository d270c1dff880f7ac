"""`python -m dynet_compat run`, the modules it answers, and the drawing mode."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our command")


def run(folder: Path, text: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "dynet_compat", "run", str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert done.returncode == code, done.stderr
    return done


def test_all_modules(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import sys\n"
        "assert 'dynet' not in sys.modules\n"
        "import _gdynet as dy\n"
        "import dynet, _dynet, dynet_config\n"
        "from dynet import *\n"
        "assert dy is dynet is _dynet and dynet_config is dynet.dynet_config\n"
        "assert callable(dynet_config.set_gpu)\n"
        "print(np.ones(2).tolist(), abs(scalarInput(-3)).value(), os.sep, pickle.__name__)\n"
        "print(dynet.__version__)\n"
        "import dynet_viz\n"
        "print(dynet_viz.vecInput(3).value())\n",
    )
    assert done.stdout == "[1.0, 1.0] 3.0 / pickle\n2.1\nNone\n"
    assert done.stderr == ""


def test_main_module(tmp_path: Path) -> None:
    """As `python script.py`: names, path, arguments, a module that stays until the end."""
    (tmp_path / "beside.py").write_text("value = 5\n", encoding="utf-8")
    done = run(
        tmp_path,
        "import atexit, pickle, sys, dynet\n"
        "import __main__, beside\n"
        "class Thing:\n"
        "    pass\n"
        "assert __name__ == '__main__' and __spec__ is None and __file__ == sys.argv[0]\n"
        "assert __main__.Thing is Thing and isinstance(pickle.loads(pickle.dumps(Thing())), Thing)\n"
        "atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Thing()))).__name__, sys.argv[1:]))\n"
        "print(beside.value)\n",
        "a",
        "--dynet-mem",
        "9",
        "--b=c",
        "-d",
    )
    assert done.stdout == "5\nThing ['a', '--dynet-mem', '9', '--b=c', '-d']\n"


def test_exit_status_and_errors(tmp_path: Path) -> None:
    assert run(tmp_path, "import sys\nsys.exit(3)\n", code=3).stdout == ""
    done = run(tmp_path, "import dynet as dy\ndy.tanh(3)\n", code=1)
    assert 'script.py", line 2' in done.stderr
    assert done.stderr.rstrip().split("\n")[-1].startswith("TypeError")
    assert "line 2" in run(tmp_path, "x = 1\nx =\n", code=1).stderr  # SyntaxError
    command = [sys.executable, "-m", "dynet_compat", "run", str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2 and "no such file" in done.stderr


@pytest.mark.parametrize("as_module", [False, True])
def test_tracebacks_begin_at_the_program(tmp_path: Path, as_module: bool) -> None:
    """As those of `python script.py`, also of errors that other errors cause."""
    text = """import dynet as dy

def fails():
    try:
        dy.zeros(3) + dy.zeros(2)
    except ValueError as error:
        raise RuntimeError("later") from error

fails()
"""
    if as_module:
        (tmp_path / "part.py").write_text(text, encoding="utf-8")
        shown = run_module(tmp_path, "-m", "part", code=1).stderr
    else:
        shown = run(tmp_path, text, code=1).stderr
    assert "__main__.py" not in shown and "program.py" not in shown and "runpy" not in shown
    named = [line.split(", ", 1)[1] for line in shown.splitlines() if line.startswith("  File")]
    assert named == ["line 5, in fails", "line 9, in <module>", "line 7, in fails"]
    assert shown.count("Traceback (most recent call last):") == 2 and shown.endswith("RuntimeError: later\n")


def test_programs_that_are_not_python_3(tmp_path: Path) -> None:
    shown = run(tmp_path, "import dynet as dy\nprint 'x'\n", code=1).stderr.splitlines()
    assert shown[0].endswith('script.py", line 2') and shown[1].strip() == "print 'x'"
    assert shown[-2].startswith("SyntaxError: ") and "page on old programs" in shown[-1]
    in_module = "try:\n    eval('1 +')\nexcept SyntaxError as error:\n    raise\n"
    assert "page on old programs" not in run(tmp_path, in_module, code=1).stderr


def test_a_program_s_own_handler_of_errors(tmp_path: Path) -> None:
    text = "import sys\nsys.excepthook = lambda *shown: print('mine', shown[1])\nraise ValueError(3)\n"
    assert run(tmp_path, text, code=1).stdout == "mine 3\n"


def run_module(
    folder: Path, *arguments: str, code: int = 0, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dynet_compat", "run", *options, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert done.returncode == code, done.stderr
    return done


def test_module(tmp_path: Path) -> None:
    """As `python -m package.module`: relative imports, the path, the names of the main module."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import sys, dynet\nfound = sys.argv[0]\n", encoding="utf-8")
    (package / "beside.py").write_text("class Thing:\n    value = 5\n", encoding="utf-8")
    text = (
        "import os, pickle, sys\n"
        "import dynet as dy\n"
        "from . import found\n"
        "from .beside import Thing\n"
        "class Own: pass\n"
        "assert __name__ == '__main__' and __file__ == sys.argv[0]\n"
        "assert __file__ == os.path.join(os.getcwd(), 'package', OWN)\n"
        "assert __package__ == 'package' and found == '-m' and sys.path[0] == os.getcwd()\n"
        "assert isinstance(pickle.loads(pickle.dumps(Own())), Own)\n"
        "print(__spec__.name, dy.scalarInput(Thing.value).value(), sys.argv[1:])\n"
    )
    for name in ("part", "__main__"):
        (package / f"{name}.py").write_text(f"OWN = '{name}.py'\n{text}", encoding="utf-8")
    done = run_module(tmp_path, "package.part", "--dynet-mem", "9", "-m", "x")
    assert done.stdout == "package.part 5.0 ['--dynet-mem', '9', '-m', 'x']\n"
    assert run_module(tmp_path, "package").stdout == "package.__main__ 5.0 []\n"


def test_module_with_hints_and_classes_in_files(tmp_path: Path) -> None:
    """A class of the module's package is the program's own, and hints are made for the module."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    words = "class Words:\n    def __init__(self, n): self.n = n\n"
    (package / "words.py").write_text(words, encoding="utf-8")
    text = (
        "import dynet as dy\n"
        "from .words import Words\n"
        "class Net:\n"
        "    def __init__(self, words, pc):\n"
        "        self.pc = pc.add_subcollection('net')\n"
        "        self.w = self.pc.add_parameters((2, words.n), init=1.0)\n"
        "        self.spec = (words,)\n"
        "    def param_collection(self): return self.pc\n"
        "    from_spec = classmethod(lambda cls, spec, pc: cls(*spec, pc))\n"
        "    def __call__(self, x):\n"
        "        h = dy.tanh(self.w * x)\n"
        "        return dy.sum_elems(dy.cmult(h, h))\n"
        "dy.save('model', [Net(Words(3), dy.ParameterCollection())])\n"
        "net, = dy.load('model', dy.ParameterCollection())\n"
        "for _ in range(3):\n"
        "    dy.renew_cg()\n"
        "    print(round(net(dy.inputVector([.1, .2, .3])).value(), 5))\n"
    )
    (package / "part.py").write_text(text, encoding="utf-8")
    done = run_module(tmp_path, "package.part")
    assert done.stdout == "0.57684\n" * 3
    hinted = run_module(tmp_path, "package.part", options=["--explain"])
    assert hinted.stdout == done.stdout
    assert "1 region recorded" in hinted.stderr and "part.py:17" in hinted.stderr


def test_errors_of_modules(tmp_path: Path) -> None:
    (tmp_path / "needy.py").write_text("import nothing_here\n", encoding="utf-8")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "__init__.py").write_text("import nothing_here\n", encoding="utf-8")
    assert run_module(tmp_path, "none", code=1).stderr == "no module named none\n"
    assert run_module(tmp_path, "none.part", code=1).stderr == "no module named none.part\n"
    for name in ("needy", "deep.part"):
        assert "No module named 'nothing_here'" in run_module(tmp_path, name, code=1).stderr
    assert run_module(tmp_path, "_struct", code=1).stderr.endswith("is not a module of Python code\n")
    for name in (".needy", "..", "", "__main__"):
        assert run_module(tmp_path, name, code=1).stderr == f"{name!r} is not the full name of a module\n"
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "__init__.py").write_text("", encoding="utf-8")
    assert run_module(tmp_path, "bare", code=1).stderr == (
        "bare is a package without a module __main__, so it cannot be executed directly\n"
    )
    for name in ("bare.", "bare..part", "__main__.part"):
        assert run_module(tmp_path, name, code=1).stderr == f"no module named {name}\n"


def test_name_of_a_module_without_a_space(tmp_path: Path) -> None:
    """As `python -mname`; what follows the name is the module's own."""
    (tmp_path / "part.py").write_text("import sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    base = [sys.executable, "-m", "dynet_compat", "run", "--trust", "a.B"]
    for command in (["-mpart", "-mx", "-m"], ["-m", "part", "-mx", "-m"], ["part.py", "-mx", "-m"]):
        done = subprocess.run([*base, *command], capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.stdout == "['-mx', '-m']\n", done.stderr


@pytest.mark.parametrize("name", ["package.part", "package"])
def test_hints_beside_the_file_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Wherever that is, --explain uses what is there."""
    package = tmp_path / "elsewhere" / "package"
    package.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    (package / "__init__.py").write_text("", encoding="utf-8")
    for stem in ("part", "__main__"):
        (package / f"{stem}.py").write_text("import dynet as dy\ndy.renew_cg()\n", encoding="utf-8")
        (package / f"{stem}.dyhints").write_text("no hints", encoding="utf-8")
    assert "hints not used" in run_module(tmp_path, name, options=["--explain"]).stderr


def test_future_of_the_package_is_not_the_script_s(tmp_path: Path) -> None:
    """`from __future__ import annotations` is in our modules, not in the script."""
    text = "import dynet\ndef f(x: 1 + 1): pass\nprint(f.__annotations__)\n"
    assert run(tmp_path, text).stdout == "{'x': 2}\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(tmp_path: Path, method: str) -> None:
    """A process that multiprocessing starts finds the same modules."""
    done = run(
        tmp_path,
        "import multiprocessing, dynet as dy\n"
        "def work(x):\n"
        "    dy.renew_cg()\n"
        "    return (dy.scalarInput(x) * 2).value()\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n"
        "        print(pool.map(work, [1, 2]))\n",
    )
    assert done.stdout == "[2.0, 4.0]\n"


def test_script_of_this_package(tmp_path: Path) -> None:
    """`import dynet_compat` in the script initialises from the command line, too."""
    done = run(
        tmp_path,
        "import dynet_compat as dy\nprint(dy.random_uniform(1, 0, 1).value())\n",
        "--dynet-seed",
        "5",
    )
    again = run(
        tmp_path, "import dynet as dy\nprint(dy.random_uniform(1, 0, 1).value())\n", "--dynet-seed", "5"
    )
    assert done.stdout == again.stdout and done.stderr == again.stderr != ""


def test_no_submodules(tmp_path: Path) -> None:
    """Else they would be loaded a second time, and the process would end badly."""
    done = run(
        tmp_path,
        "import dynet as dy\n"
        "for name in ('dynet.config', 'dynet.graph', '_dynet.legacy'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ModuleNotFoundError as e:\n"
        "        print(e)\n"
        "print(dy.ones(1).value())\n",
    )
    lines = [f"No module named '{n}'; 'dynet' is not a package" for n in ("dynet.config", "dynet.graph")]
    lines += ["No module named '_dynet.legacy'; '_dynet' is not a package", "1.0", ""]
    assert done.stdout == "\n".join(lines)


def test_configuration_after_the_import(tmp_path: Path) -> None:
    """As in DyNet it comes too late, where the script imports `dynet`."""
    script = "import dynet as dy, dynet_config\n%sprint(dy.Model().add_parameters(3).as_array().tolist())\n"
    late = run(tmp_path, script % "dynet_config.set(random_seed=77)\n", "--dynet-seed", "2")
    assert late.stdout == run(tmp_path, script % "", "--dynet-seed", "2").stdout != ""
    assert late.stderr.count("random seed") == 1


def test_star_import(tmp_path: Path) -> None:
    """What DyNet does not have is not bound over what the script has of its own."""
    (tmp_path / "mine.py").write_text("class TreeLSTMBuilder: pass\n", encoding="utf-8")
    script = "from mine import TreeLSTMBuilder\nfrom dynet import *\n"
    script += "import dynet\nprint(TreeLSTMBuilder.__module__)\n"
    script += "print('batch_map' in globals(), callable(dynet.batch_map))\n"
    assert run(tmp_path, script).stdout == "mine\nFalse True\n"


def test_install(tmp_path: Path) -> None:
    """In a notebook: no script, and modules of these names that are there already give way."""
    text = (
        "import sys, types\n"
        "sys.modules['dynet_config'] = types.ModuleType('dynet_config')\n"
        "import dynet_compat\n"
        "dynet_compat.install_as_dynet()\n"
        "dynet_compat.install_as_dynet()\n"
        "import dynet, _dynet, dynet_config\n"
        "assert dynet is _dynet is dynet_compat\n"
        "assert dynet_config.get() is None and dynet._CONF is None\n"
        "import pickle\n"
        "assert pickle.loads(pickle.dumps(dynet.GRUBuilder)) is dynet.GRUBuilder\n"
        "print(dynet.GRUBuilder.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=False, env=os.environ
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "_dynet\n", "")


# ---------------------------------------------------------------- drawing mode

DRAWING = """
import sys
import dynet as dy
m = dy.Model()
E, W, b = m.add_lookup_parameters((10, 4)), m.add_parameters((3, 8)), m.add_parameters(3)
rnn = dy.BiRNNBuilder(1, 4, 8, m, dy.LSTMBuilder)
trainer = dy.AdamTrainer(m)
dy.renew_cg()
hs = rnn.transduce([E[1], E[2]])
losses = [dy.pickneglogsoftmax(W * h + b, 1) for h in hs]
loss = dy.esum(losses)
loss.backward()
trainer.update()
assert loss.value() is None and loss.scalar_value() == 0
W * b
dy.print_graphviz({options})
"""


def test_drawing(tmp_path: Path) -> None:
    done = run(
        tmp_path, DRAWING.format(options="lookup_names={E: 'abc'}, expression_names={W: 'W'}"), "--dynet-viz"
    )
    lines = done.stdout.splitlines()
    assert lines[:3] == ["digraph G {", "  rankdir=BT;", "  nodesep=.05;"] and lines[-1] == "}"
    labels = [line for line in lines if "[label=" in line]
    edges = [line for line in lines if "->" in line]
    assert sum('label="W\\n{3,8}",shape=ellipse' in line for line in labels) == 1
    assert sum('label="LSTMBuilder\\n{4}",shape=box,peripheries=2' in line for line in labels) == 4
    assert sum("lookup(b)" in line or "lookup(c)" in line for line in labels) == 2
    red = [line for line in labels if "fillcolor=red" in line]
    assert len(red) == 1 and "InvalidDim(Dim(3,8), Dim(3,1))" in red[0]
    assert sum("dotted" in line for line in edges) == 2
    assert done.stderr == ""


def test_drawing_of_bidirectional_networks(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        DRAWING.format(options="compact=True, show_dims=False, collapse_birnns=True"),
        "--dynet-viz",
        "--x",
    )
    assert done.stdout.count('label="birnn"') == 2
    assert "LSTMBuilder" not in done.stdout and "{" not in done.stdout.replace("digraph G {", "")


def test_drawing_needs_the_option(tmp_path: Path) -> None:
    text = "import dynet as dy\ndy.print_graphviz(compact=True)\n"
    assert run(tmp_path, text).stdout == "Run with --dynet-viz to get the visualization behavior.\n"


def test_drawing_without_run() -> None:
    """The package itself has the mode."""
    text = "import dynet_compat as dy, sys\nprint(sys.argv, dy.tanh(dy.vecInput(3)).value())\n"
    text += "dy.print_graphviz()\n"
    done = subprocess.run(
        [sys.executable, "-c", text, "--dynet-viz", "a"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.startswith("['-c', 'a'] None\ndigraph G {\n")
    assert '[label="tanh\\n{3}",shape=box];\n  N0 -> N1;\n}' in done.stdout


# ---------------------------------------------------------------- sizes in the drawing

SIZES = [
    ("W * x", "{2}"),
    ("x * W", "?"),
    ("x + x", "{3}"),
    ("x + y", "?"),
    ("x - 2", "{3}"),
    ("1 - x", "{3}"),
    ("2 * x", "{3}"),
    ("x / 2", "{3}"),
    ("-x", "{3}"),
    ("x[1]", "{1}"),
    ("x[0:2]", "{2}"),
    ("dy.concatenate([x, y])", "{5}"),
    ("dy.concatenate_cols([x, x])", "{3,2}"),
    ("dy.concatenate_cols([x, y])", "?"),
    ("dy.affine_transform([y, W, x])", "{2}"),
    ("dy.affine_transform([x, W, x])", "?"),
    ("dy.transpose(W)", "{3,2}"),
    ("dy.sum_cols(W)", "{2}"),
    ("dy.max_dim(W)", "{3}"),
    ("dy.max_dim(W, 1)", "{2}"),
    ("dy.min_dim(W, 5)", "?"),
    ("dy.dot_product(x, x)", "{1}"),
    ("dy.dot_product(x, y)", "?"),
    ("dy.cmult(x, x)", "{3}"),
    ("dy.reshape(W, (3, 2))", "{3,2}"),
    ("dy.reshape(W, (3, 2, 1))", "{3,2,1}"),
    ("dy.fold_rows(W)", "{1,3}"),
    ("dy.fold_rows(x)", "?"),
    ("dy.kmax_pooling(W, 2)", "{2,2}"),
    ("dy.kmh_ngram(W, 2)", "{2,2}"),
    ("dy.kmh_ngram(W, 5)", "?"),
    ("dy.filter1d_narrow(W, dy.transpose(W))", "?"),
    ("dy.filter1d_narrow(W, W)", "{1,1}"),
    ("dy.colwise_add(W, y)", "{2,3}"),
    ("dy.colwise_add(W, x)", "?"),
    ("dy.esum([x, x])", "{3}"),
    ("dy.average([x, y])", "?"),
    ("dy.emax([x, x])", "{3}"),
    ("dy.hinge(x, 1)", "{1}"),
    ("dy.pickneglogsoftmax(x, 1)", "{1}"),
    ("dy.huber_distance(x, y)", "?"),
    ("dy.log_softmax(x, [1])", "{3}"),
    ("dy.dropout(x, 0.5)", "{3}"),
    ("dy.noise(x, 1)", "{3}"),
    ("dy.pickrange(x, 1, 3)", "{2}"),
    ("dy.pickrange(x, 3, 1)", "?"),
    ("dy.pow(x, y)", "?"),
    ("dy.LSTMBuilder(1, 3, 4, m).initial_state().add_input(x).output()", "{4}"),
    ("dy.LSTMBuilder(1, 2, 4, m).initial_state().add_input(x).output()", "?"),
    ("dy.lookup(E, 1)", "{4}"),
    ("E.batch([1, 2])", "{4}x2"),
    ("dy.reshape(W, (4, 2))", "?"),
    ("dy.tanh(x + y) + x", "?"),
    ("dy.esum([x, x + y])", "?"),
    ("x - x", "{3}"),
    ("dy.gelu(x)", "{3}"),
    ("x @ x + y", "?"),
]
LAST_BOXES = """
import sys
import dynet as dy

for code in sys.argv[1:]:
    dy.renew_cg()
    m = dy.Model()
    names = {
        "dy": dy, "m": m, "x": dy.vecInput(3), "y": dy.inputVector([1, 2]),
        "W": m.add_parameters((2, 3)), "E": m.add_lookup_parameters((5, 4)),
    }
    eval(code, names)
    dy.print_graphviz()
"""


def test_sizes(tmp_path: Path) -> None:
    done = run(tmp_path, LAST_BOXES, "--dynet-viz", *[code for code, _ in SIZES])
    found = []
    for drawing in done.stdout.split("digraph G {")[1:]:
        last = [line for line in drawing.splitlines() if "[label=" in line][-1]
        size = last.split("\\n")[1].split('"')[0]
        assert ("InvalidDim" in size) == ("fillcolor=red" in last)
        found.append("?" if "InvalidDim" in size else size)
    assert dict(zip([code for code, _ in SIZES], found)) == dict(SIZES)


def test_programs_go_on_after_sizes_that_do_not_fit(tmp_path: Path) -> None:
    text = """
import dynet as dy
m = dy.Model()
rnn = dy.LSTMBuilder(2, 3, 4, m)
softmax = dy.StandardSoftmaxBuilder(4, 5, m)
states = rnn.initial_state().add_inputs([dy.vecInput(3), dy.vecInput(2), dy.vecInput(3)])
h = states[-1].output()
loss = softmax.neg_log_softmax(h, 2) + softmax.neg_log_softmax(h * dy.vecInput(9), 2)
loss.backward()
dy.AdamTrainer(m).update()
dy.save("model", [rnn])
dy.print_graphviz()
"""
    done = run(tmp_path, text, "--dynet-viz")
    labels = [line for line in done.stdout.splitlines() if "[label=" in line]
    assert [label.split('"')[1] for label in labels if "fillcolor=red" in label] == [
        "LSTMBuilder\\n{InvalidDim(Dim(2,1))}", "mul\\n{InvalidDim(Dim(4,1), Dim(9,1))}",
        "neg_log_softmax(2)\\n{InvalidDim}", "add\\n{InvalidDim}",
    ]  # fmt: skip
    assert sum("neg_log_softmax(2)\\n{1}" in label for label in labels) == 1 and "ellipse" not in done.stdout
    assert not list(tmp_path.glob("model*")), "a drawing writes no file"


def test_names_and_sizes_of_misfits_in_the_drawing(tmp_path: Path) -> None:
    text = """
import dynet as dy
m = dy.Model()
W = m.add_parameters((3, 4))
first, second = W * dy.vecInput(3), dy.vecInput(2) + dy.vecInput(3)
dy.concatenate(es=[first, first], d=0)
print(first.dim(), dy.vecInput(2).dim())
dy.print_graphviz(expression_names={first: "first"})
"""
    lines = run(tmp_path, text, "--dynet-viz").stdout.splitlines()
    assert lines[0] == "((1,), 1) ((2,), 1)"
    assert [line.split('"')[1].partition("\\n")[0] for line in lines if "fillcolor=red" in line] == [
        "first: mul", "add", "concatenate(0)",
    ]  # fmt: skip


def test_stale_expressions_in_the_drawing(tmp_path: Path) -> None:
    text = "import dynet as dy\nx = dy.vecInput(3)\ndy.renew_cg()\ndy.tanh(x)\n"
    assert "StaleExpressionError" in run(tmp_path, text, "--dynet-viz", code=1).stderr


@pytest.mark.skipif(IS_REFERENCE, reason="our command")
def test_the_command_is_the_module(tmp_path: Path) -> None:
    """`dynet-compat run` initialises when the script imports dynet, not before: dynet_config still counts."""
    command = Path(sys.executable).with_name("dynet-compat")
    script = tmp_path / "script.py"
    script.write_text(
        "import dynet_config\ndynet_config.set(random_seed=7)\nimport dynet as dy\nprint(dy.__version__)\n"
    )
    done = subprocess.run(
        [command, "run", script, "--dynet-seed", "3"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "2.1\n"), done.stderr
    assert done.stderr.splitlines()[0] == "[dynet] random seed: 7"
    version = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=300)
    assert version.stdout.startswith("dynet-compat ") and "DyNet 2.1" in version.stdout
    nothing = subprocess.run([command], capture_output=True, text=True, timeout=300)
    assert nothing.returncode == 2 and "compare" in nothing.stdout
