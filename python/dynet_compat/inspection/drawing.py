"""Drawing mode: with `--dynet-viz` a program draws its graph instead of computing it.

The program runs on the real API: ops and builders record into the graph, and nothing is computed. What one
call of the API records is one box of the drawing, with the edges of the graph: parameters are ellipses, ops
boxes, states of RNNs double boxes with dotted edges along the sequence. A call whose sizes do not fit is red;
the program continues with an expression of unknown size, and what is made of that is red as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any, Optional

import numpy as np

from .. import _core
from .._core import Expression, LookupParameters, Parameters, StaleExpressionError
from ..compare.instrument import OP, kind_of_function, patch
from .reprs import sizes_text

_OPERATORS = {  # method -> name of the op with an expression, with a number
    "__add__": ("add", "cadd"), "__radd__": ("add", "cadd"), "__sub__": ("sub", "cadd"),
    "__rsub__": ("sub", "scalarsub"), "__mul__": ("mul", "cmul"), "__rmul__": ("mul", "cmul"),
    "__matmul__": ("mul", "mul"), "__neg__": ("neg", "neg"), "__truediv__": ("cdiv", "cdiv"),
    "__rtruediv__": ("cdiv", "cdiv"), "__pow__": ("pow", "pow"), "__rpow__": ("pow", "pow"),
}  # fmt: skip
_SOFTMAX = frozenset(
    "neg_log_softmax neg_log_softmax_batch full_log_distribution full_logits class_logits "
    "class_log_distribution subclass_logits subclass_log_distribution".split()
)
# Methods and functions that do nothing: as in DyNet's drawing mode no value is computed, no parameter is
# trained, and no model file is read or written.
_FILES = "save save_all write_to_textfile load load_all populate populate_from_textfile"
_CONSTANT = {
    "Expression": "value npvalue tensor_value gradient forward backward scalar_value vec_value",
    "ComputationGraph": "forward inc_forward backward forward_scalar inc_forward_scalar forward_vec "
    "inc_forward_vec",
    "Trainer": "update update_subset update_epoch status " + _FILES,
    "ParameterCollection": _FILES,
    "Parameters": _FILES,
    "LookupParameters": "scalar_value " + _FILES,
}
_CONSTANT_FUNCTIONS = "forward save save_safetensors values npvalues"
_NO_OPS = frozenset({"batch_map", "instance_rng", "install_as_dynet", "profile", "parameter"})
_SHAPES = {"param": "shape=ellipse", "rnn": "shape=box,peripheries=2"}  # others: shape=box
_MOST_LETTERS = 40  # of an argument in a label


@dataclass(eq=False)
class _Call:
    """A call of the API, and the nodes start .. end - 1 that it recorded."""

    name: str
    arguments: list[Any]
    kind: str  # op, rnn, layer; setup: not drawn. All but op are of builders, whose parameters are not drawn.
    start: int
    end: int = 0
    invalid: str = ""  # why the sizes do not fit
    result: Optional[int] = None  # a node

    def expressions(self) -> list[Expression]:
        return [a for a in _flat(self.arguments) if isinstance(a, Expression)]


@dataclass(eq=False)
class _Box:
    """A node of the drawing."""

    kind: str
    label: str
    sizes: str
    red: bool = False
    arguments: list[_Box] = field(default_factory=list)


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


def _word(argument: Any) -> str:
    if isinstance(argument, slice):
        return f"{argument.start or 0}, {argument.stop}" + (f", {argument.step}" if argument.step else "")
    text = str(argument)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


# ---------------------------------------------------------------- recording


class _Recording:
    """The calls of the present graph."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.unknown: dict[int, tuple[Expression, _Call]] = {}  # by id: expressions of unknown size
        self.version = -1
        self.inside = False  # a call of the API: what it calls is part of it

    def begin(self) -> int:
        """The number of nodes; forgets the calls of earlier graphs, and those that were reverted."""
        if self.version != _core.cg_version():
            self.calls, self.unknown, self.version = [], {}, _core.cg_version()
        size = _core.cg_size()
        while self.calls and self.calls[-1].end > size:
            self.calls.pop()
        return size

    def run(self, call: _Call, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """The result of the function, or an expression of unknown size where sizes do not fit."""
        call.invalid = "InvalidDim" if any(id(e) in self.unknown for e in call.expressions()) else ""
        self.inside = True
        try:
            try:
                made = None if call.invalid else function(*args, **kwargs)
            except StaleExpressionError:
                raise
            except ValueError:
                call.invalid = _misfit(call)
            if call.invalid and args and hasattr(args[0], "add_input"):
                # A state continues from an input that fits.
                made = function(args[0], _core.zeros((args[0].b().spec[1],)))
            elif call.invalid:
                made = Expression()
                self.unknown[id(made)] = made, call
        finally:
            self.inside = False
        call.end = _core.cg_size()
        output: Any = made
        if call.kind == "rnn" and hasattr(output, "output"):
            output = output.output()
        if isinstance(output, Expression) and not (call.invalid and output is made):
            call.result = _core._node_number(output)
        if call.end > call.start or call.invalid:  # else the result is one of the arguments
            self.calls.append(call)
        return made


_recording = _Recording()


def _misfit(call: _Call) -> str:
    """DyNet's words for sizes that do not fit."""
    sizes = [e.shape() if isinstance(e, Parameters) else e.dim()[0] for e in call.expressions()]
    texts = [f"Dim({','.join(map(str, (*s, 1) if len(s) == 1 else s))})" for s in sizes]
    return f"InvalidDim({', '.join(texts)})"


def _drawn(function: Callable[..., Any], name: str, kind: str = "op") -> Callable[..., Any]:
    """The function, whose calls are boxes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _recording.inside:
            return function(*args, **kwargs)
        args = tuple(list(a) if hasattr(a, "__next__") else a for a in args)
        title, shown = name, [*args, *kwargs.values()]
        if kind != "op":
            shown = shown[1:]
        if kind == "rnn":
            builder = args[0].b() if hasattr(args[0], "b") else args[0]
            title = type(builder).__name__.replace("Vanilla", "")  # LSTMBuilder is the same class
        elif name in _OPERATORS:
            with_number = len(args) > 1 and isinstance(args[1], (int, float, np.number))
            title = _OPERATORS[name][with_number]
            shown = [args[0], -args[1]] if name == "__sub__" and with_number else shown
        elif name == "__getitem__":
            title = "pickrange" if isinstance(args[1], slice) else "pick"
            title = "lookup" if isinstance(args[0], LookupParameters) else title
        return _recording.run(_Call(title, shown, kind, _recording.begin()), function, args, kwargs)

    return call


# ---------------------------------------------------------------- the drawing mode


def turn_on(namespace: dict[str, Any]) -> None:
    """From now on the API draws: functions are replaced in `namespace`, methods in their classes."""
    if namespace.get("print_graphviz") is print_graphviz:
        return
    for name, item in list(namespace.items()):
        is_function = isinstance(item, (FunctionType, BuiltinFunctionType))
        if is_function and kind_of_function(name) == OP and name not in _NO_OPS:
            namespace[name] = _drawn(item, name)
    namespace.update({name: _constant(name) for name in _CONSTANT_FUNCTIONS.split()})
    namespace["print_graphviz"] = print_graphviz
    for owner, methods in _CONSTANT.items():
        for name in vars(namespace[owner]).keys() & methods.split():
            patch(namespace[owner], name, _constant(name))
    for name in _OPERATORS:
        _draw(Expression, name)
    for cls in (Expression, LookupParameters):
        _draw(cls, "__getitem__")
    _draw(LookupParameters, "batch", "lookup_batch")
    dim = Expression.dim
    patch(Expression, "dim", lambda self: ((1,), 1) if id(self) in _recording.unknown else dim(self))
    _draw_builders(namespace)


def _draw_builders(namespace: dict[str, Any]) -> None:
    """A step of an RNN or a tree is one box, and so is a call of a softmax builder."""
    state = namespace["RNNState"]
    _draw(state, "add_input", kind="rnn")
    patch(state, "add_inputs", _add_inputs)
    patch(state, "transduce", lambda self, xs: [s.output() for s in _add_inputs(self, xs)])
    for name in ("initial_state", "initial_state_from_raw_vectors"):
        _draw(namespace["_RNNBuilder"], name, kind="setup")
    for cls in {base for item in namespace.values() if isinstance(item, type) for base in item.__mro__}:
        if issubclass(cls, namespace["SoftmaxBuilder"]):
            for name in vars(cls).keys() & _SOFTMAX:
                _draw(cls, name, kind="layer")
            patch(cls, "sample", lambda *args: 0)
        elif cls.__name__ == "_TreeBuilder":
            _draw(cls, "add_input", kind="rnn")


def _draw(cls: type, name: str, title: str = "", kind: str = "op") -> None:
    patch(cls, name, _drawn(vars(cls)[name], title or name, kind))


def _constant(name: str) -> Callable[..., Any]:
    """Returns 0, [] or None, by the name of the function that it stands for."""
    kind: Any = float if "scalar" in name else list if name.endswith(("vec", "vec_value", "values")) else None
    return lambda *args, **kwargs: kind() if kind else None


def _add_inputs(state: Any, xs: Iterable[Any]) -> list[Any]:
    states = []
    for x in xs:
        state = state.add_input(x)
        states.append(state)
    return states


# ---------------------------------------------------------------- from calls to boxes


class _Drawing:
    """The boxes of the present graph, in the order in which they were recorded."""

    def __init__(self, compact: bool, names: dict[Any, str], words: dict[Any, Any]) -> None:
        self.compact, self.words = compact, {table.name(): listed for table, listed in words.items()}
        self.names: dict[Any, str] = {_key(item): name for item, name in names.items()}
        self.boxes: list[_Box] = []
        self.parameters: dict[str, _Box] = {}
        self.of_node: dict[int, _Box] = {}
        self.of_call: dict[int, _Box] = {}
        size, done = _recording.begin(), 0
        for call in [*_recording.calls, _Call("", [], "setup", size, size)]:
            for number in range(done, call.start):  # nodes that no call of the API recorded, each for itself
                self._add(_Call(_core._graph_node(number)[0], [], "op", number, number + 1))
            self._add(call)
            done = call.end

    def _parameter(self, name: str, sizes: str, kind: str = "parameters") -> _Box:
        box = self.parameters.get(name)
        if box is None:
            box = self.parameters[name] = _Box("param", self.names.get(name, kind), sizes)
            self.boxes.append(box)
        return box

    def _add(self, call: _Call) -> None:
        given = {e.name() for e in call.expressions() if isinstance(e, Parameters)}
        arguments: list[_Box] = []
        numbers = []
        for number in range(call.start, call.end):
            op, inputs, sizes, batch, _ = _core._graph_node(number)
            name = str(_core._node_parameter(number))
            if op == "parameter":
                if call.kind == "op" or name in given:
                    self.of_node[number] = self._parameter(name, sizes_text(sizes, batch))
                continue
            if op == "lookup" and call.kind == "op":
                arguments.append(self._parameter(name, sizes_text(sizes, 1), "lookup_parameters"))
            arguments += [self.of_node[i] for i in inputs if i in self.of_node]
            numbers.append(number)
        if call.kind == "setup" or not (numbers or call.invalid):
            return
        if call.invalid:
            given_boxes = [box for box in map(self._box_of, call.expressions()) if box]
            arguments = given_boxes + (arguments if call.kind == "rnn" else [])
        box = _Box(call.kind, self._label(call), self._sizes(call, numbers), bool(call.invalid))
        box.arguments = arguments if len(numbers) < 2 else list(dict.fromkeys(arguments))
        self.of_node.update(dict.fromkeys(numbers, box))
        self.of_call[id(call)] = box
        self.boxes.append(box)

    def _box_of(self, e: Expression) -> Optional[_Box]:
        """The box of an argument."""
        if id(e) in _recording.unknown:
            return self.of_call.get(id(_recording.unknown[id(e)][1]))
        if isinstance(e, Parameters):
            return self._parameter(e.name(), sizes_text(e.shape(), 1))
        if isinstance(e, LookupParameters):
            return self._parameter(e.name(), sizes_text(e.shape()[1:], 1), "lookup_parameters")
        number = _core._node_number(e)
        return None if number is None else self.of_node.get(number)

    def _label(self, call: _Call) -> str:
        words = [a for a in call.arguments if not isinstance(a, Expression) and not any(
            isinstance(item, Expression) for item in _flat([a]))]  # fmt: skip
        table = next((a for a in call.arguments if isinstance(a, LookupParameters)), None)
        if table is not None and table.name() in self.words and words:
            listed = self.words[table.name()]
            rows = words[0]
            words = [[listed[i] for i in rows] if isinstance(rows, (list, tuple)) else listed[rows]]
        words = [] if self.compact or call.kind == "rnn" or call.name.startswith("input") else words
        label = f"{call.name}({', '.join(map(_word, words))})" if words else call.name
        name = self.names.get(call if call.result is None else call.result)
        return f"{name}: {label}" if name else label

    @staticmethod
    def _sizes(call: _Call, numbers: list[int]) -> str:
        if call.invalid:
            return f"{{{call.invalid}}}"
        return sizes_text(*_core._graph_node(numbers[-1] if call.result is None else call.result)[2:4])

    def join_directions(self) -> None:
        """The two states of a position of a bidirectional network, and what joins them, become one box."""
        joined: dict[_Box, _Box] = {}
        for box in self.boxes:
            states = box.arguments
            if not box.label.startswith("concatenate") or [s.kind for s in states] != ["rnn", "rnn"]:
                continue
            readers = [[b for b in self.boxes if s in b.arguments and b.kind != "rnn"] for s in states]
            if readers == [[box], [box]]:
                joined.update(dict.fromkeys(states, box))
                box.label = "birnn" if self.compact else f"Bi{states[0].label}"
        for box in set(joined.values()):
            box.kind, states = "rnn", box.arguments
            box.arguments = list(dict.fromkeys(a for s in states for a in s.arguments if a.kind != "rnn"))
        self.boxes = [box for box in self.boxes if box not in joined]
        for box in self.boxes:
            box.arguments = [joined.get(a, a) for a in box.arguments if joined.get(a) is not box]


def _key(item: Any) -> Any:
    """What expressions and parameters are found by: the name, the number of the node, or the call whose sizes
    do not fit."""
    if isinstance(item, (Parameters, LookupParameters)):
        return item.name()
    return _recording.unknown[id(item)][1] if id(item) in _recording.unknown else _core._node_number(item)


def print_graphviz(
    compact: bool = False,
    show_dims: bool = True,
    expression_names: Optional[dict[Any, str]] = None,
    lookup_names: Optional[dict[Any, Any]] = None,
    collapse_birnns: bool = False,
) -> None:
    """Print the graph on stdout, in the language of Graphviz.

    Args:
        compact: labels without numbers.
        show_dims: sizes in the labels.
        expression_names: names of expressions, shown in their labels.
        lookup_names: for a table the words of its rows, shown instead of their numbers.
        collapse_birnns: draw a position of a bidirectional network as one node.
    """
    drawing = _Drawing(compact, expression_names or {}, lookup_names or {})
    if collapse_birnns:
        drawing.join_directions()
    names = {box: f"N{number}" for number, box in enumerate(drawing.boxes)}
    print("digraph G {\n  rankdir=BT;\n  nodesep=.05;")
    for box, name in names.items():
        label = (f"{box.label}\\n{box.sizes}" if show_dims else box.label).replace('"', '\\"')
        shape = _SHAPES.get(box.kind, "shape=box")
        colour = ",style=filled,fillcolor=red" if box.red else ""
        print(f'  {name} [label="{label}",{shape}{colour}];')
        for argument in box.arguments:
            dotted = " [style=dotted]" if box.kind == argument.kind == "rnn" else ""
            print(f"  {names[argument]} -> {name}{dotted};")
    print("}")
