"""Tree LSTM builders, which DyNet has in C++ only: networks over trees whose nodes come children first.

    builder.start_new_sequence()
    for node, children, x in nodes:  # children before parents
        h = builder.add_input(node, children, x)

or, with nodes numbered 0, 1, ..:  outputs = builder.transduce(children, xs)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from .. import _core
from .._core import Expression, affine_transform, cmult, concatenate, logistic, tanh
from .batch_map import PerInstance, refuse_inside
from .builders import PythonBuilder
from .functions import _int

__all__ = [
    "BidirectionalTreeLSTMBuilder",
    "NaryTreeLSTMBuilder",
    "TreeLSTMBuilder",
    "UnidirectionalTreeLSTMBuilder",
]


class _Sequence:
    """What a builder remembers of the current graph."""

    def __init__(self) -> None:
        self.version = -1
        self.update = True
        self.nodes: dict[Hashable, Any] = {}
        self.masks: list[tuple[Expression, Expression]] = []

    def copy(self) -> _Sequence:
        other = _Sequence()
        other.version, other.update = self.version, self.update
        other.nodes, other.masks = dict(self.nodes), list(self.masks)
        return other


class _TreeBuilder(PythonBuilder):
    """What the tree builders share: the nodes of a tree, by their ids."""

    _input_dim = 0

    def __init__(self, model: Any, collection: str, spec: tuple[Any, ...]) -> None:
        if not isinstance(model, _core.ParameterCollection):
            raise TypeError(
                f"{self._name}(): expected a ParameterCollection for model, got {type(model).__name__}"
            )
        self.spec = spec
        self.model = model.add_subcollection(collection)
        self._sequence = PerInstance(_Sequence())

    @classmethod
    def from_spec(cls, spec: Sequence[Any], model: Any) -> Any:
        """A new builder from another one's `spec`.

        Args:
            spec: all arguments of the constructor but the collection.
            model: ParameterCollection that gets the parameters.
        Returns:
            A builder of this class, with new values.
        Source: ours, for dy.load().
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder.from_spec((2, 1, 3, 4), dy.ParameterCollection())
            >>> builder.spec
            (2, 1, 3, 4)
        """
        make: Any = cls
        return make(*spec, model)

    def set_dropout(self, p: float) -> None:
        raise NotImplementedError

    def disable_dropout(self) -> None:
        """The same as set_dropout(0).

        Source: DyNet 2.1 `TreeLSTMBuilder` (C++).
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> builder.set_dropout(0.5)
            >>> builder.disable_dropout()
        """
        self.set_dropout(0.0)

    def start_new_sequence(self, update: bool = True) -> None:
        """Forgets the nodes, for another tree. Needed after renew_cg(), too.

        Args:
            update: False: no gradient for the builder's parameters; the first call in a graph decides.
        Source: DyNet 2.1 `TreeLSTMBuilder` (C++).
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> builder.start_new_sequence()
            >>> first = builder.add_input("leaf", [], dy.ones(3))
            >>> builder.start_new_sequence()
            >>> second = builder.add_input("leaf", [], dy.zeros(3))
        """
        version = _core.cg_version()
        sequence = self._sequence.get()
        if version != sequence.version:
            sequence.version = version
            sequence.update = bool(update)
            sequence.masks = []
        sequence.nodes = {}

    def add_input(self, id: Hashable, children: Iterable[Hashable], x: Expression | None) -> Expression:
        """Adds a node of the tree.

        Args:
            id: of the new node: a number, or anything that can be a key of a dict.
            children: ids of its children, in order; they have been added before.
            x: Expression {I}xB, the node's own input; None for a node that has children and no input.

        Returns:
            Expression {H}xB, the output at the node.

        Raises:
            ValueError: start_new_sequence() was not called in this graph, there is a node with this id or
                none with a child's, x has another size, or a node has neither children nor input.

        Source: DyNet 2.1 `TreeLSTMBuilder` (C++).
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> builder.start_new_sequence()
            >>> leaf = builder.add_input("leaf", [], dy.ones(3))
            >>> builder.add_input("root", ["leaf"], None).dim()
            ((4,), 1)
        """
        sequence = self._sequence.get()
        if sequence.version != _core.cg_version():
            raise ValueError("add_input(): expected start_new_sequence() before, in the current graph")
        if id in sequence.nodes:
            raise ValueError(f"add_input(): expected the id of a new node, got {id!r} again")
        below = []
        for child in children:
            if child not in sequence.nodes:
                raise ValueError(f"add_input(): expected children that were added before, got {child!r}")
            below.append(sequence.nodes[child])
        if x is None and not below:
            raise ValueError("add_input(): expected children or an input x, got neither")
        if x is not None:
            self._check_input(x)
        sequence.nodes[id] = node = self._compute(below, x)
        return self._output(node)

    def _check_input(self, x: Any) -> None:
        if not isinstance(x, Expression):
            raise TypeError(f"add_input(): expected an Expression for x, got {type(x).__name__}")
        try:
            dims = x.dim()[0]
        except RuntimeError as error:
            raise ValueError(f"add_input(): {error}") from None
        if dims != (self._input_dim,):
            raise ValueError(f"add_input(): expected x of {{{self._input_dim}}}, got {dims}")

    def output(self, id: Hashable) -> Expression:
        """The output at a node that was added before.

        Args:
            id: of the node.
        Returns:
            Expression {H}xB.
        Raises:
            ValueError: no such node in the current graph.
        Source: ours.
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> builder.start_new_sequence()
            >>> leaf = builder.add_input("leaf", [], dy.ones(3))
            >>> np.array_equal(builder.output("leaf").npvalue(), leaf.npvalue())
            True
        """
        return self._output(self._at(id))

    def _at(self, id: Hashable) -> Any:
        sequence = self._sequence.get()
        if sequence.version != _core.cg_version() or id not in sequence.nodes:
            raise ValueError(f"expected the id of a node in the current graph, got {id!r}")
        return sequence.nodes[id]

    def transduce(
        self, children: Sequence[Iterable[int]], xs: Sequence[Expression | None]
    ) -> list[Expression]:
        """The outputs {H}xB at all nodes of a tree, or of several.

        Args:
            children: for each node the numbers of its children, which come before it.
            xs: for each node its input, Expression {I}xB or None.

        Raises:
            ValueError: as add_input(), or lists of different lengths.

        Source: ours.
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> outputs = builder.transduce([[], [], [0, 1]], [dy.ones(3), dy.zeros(3), None])
            >>> [h.dim() for h in outputs]
            [((4,), 1), ((4,), 1), ((4,), 1)]
        """
        if len(children) != len(xs):
            raise ValueError(
                f"transduce(): expected children and xs of one length, got {len(children)} and {len(xs)}"
            )
        sequence = self._sequence.get()
        self.start_new_sequence(sequence.update if sequence.version == _core.cg_version() else True)
        return [self.add_input(n, below, x) for n, (below, x) in enumerate(zip(children, xs))]

    def _compute(self, below: list[Any], x: Expression | None) -> Any:
        raise NotImplementedError

    def _output(self, node: Any) -> Expression:
        raise NotImplementedError


class _NaryLayer:
    """Parameters of one layer: of the gates i, o and the update u, and of a forget gate for each child."""

    def __init__(self, pc: Any, n: int, inputs: int, hidden: int) -> None:
        def square(count: int) -> list[Any]:
            return [pc.add_parameters((hidden, hidden)) for _ in range(count)]

        self.W: dict[str, Any] = {}
        self.U: dict[str, list[Any]] = {}
        self.V: dict[str, list[Any]] = {}
        self.b: dict[str, Any] = {}
        for gate in "ifou":
            self.W[gate] = pc.add_parameters((hidden, inputs))
            self.U[gate] = square(n * n if gate == "f" else n)
            self.V[gate] = [] if gate == "u" else square(n * n if gate == "f" else n)
            self.b[gate] = pc.add_parameters(hidden, init=0)
        self._n = n
        self._known: dict[tuple[str, int, int, bool], list[Any]] = {}

    def bias(self, gate: str, update: bool) -> Any:
        return self.b[gate] if update else _core.const_parameter(self.b[gate])

    def weights(self, gate: str, k: int, count: int, own: bool, update: bool) -> list[Any]:
        """The factors of x (if the node has an own input) and of h_j and c_j of `count` children, in order.

        k: the child that a forget gate is for.
        """
        key = (gate, k, count, own)
        found = self._known.get(key)
        if found is None:
            found = [self.W[gate]] if own else []
            for j in range(count):
                m = min(j, self._n - 1)
                if gate == "f":
                    m = m * self._n + min(k, self._n - 1)
                found.append(self.U[gate][m])
                if gate != "u":
                    found.append(self.V[gate][m])
            self._known[key] = found
        return found if update else [_core.const_parameter(p) for p in found]


class NaryTreeLSTMBuilder(_TreeBuilder):
    """Tree LSTM with weights of their own for each of the first N children, and peepholes.

    With children 1..n of a node, their outputs h_j and cells c_j, and s = logistic:

        i = s(b_i + W_i x + sum_j (U_i^j h_j + V_i^j c_j))
        f_k = s(1 + b_f + W_f x + sum_j (U_f^jk h_j + V_f^jk c_j))
        o = s(b_o + W_o x + sum_j (U_o^j h_j + V_o^j c_j))
        u = tanh(b_u + W_u x + sum_j U_u^j h_j)
        c = i u + sum_k f_k c_k
        h = o tanh(c)

    Children after the Nth have the Nth's weights. A node without input has no terms in x. Tai, Socher and
    Manning, Improved semantic representations from tree-structured long short-term memory networks, 2015.

    Args:
        N: number of children with weights of their own.
        layers: number of layers; each reads the outputs of the one below at the same node.
        input_dim: I, size of x.
        hidden_dim: H, size of the outputs.
        model: ParameterCollection. In its sub-collection "nary-tree-lstm-builder" are, for each layer and for
            i, f, o, u in turn: W, the U in the order of j (f: of j, then k), the V, and b.

    Example:
        >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
        >>> words = [dy.inputVector([1, 0, n]) for n in range(3)]
        >>> outputs = builder.transduce([[], [], [0, 1], [], [2, 3]], words[:2] + [None, words[2], None])
        >>> [out.dim() for out in outputs[3:]]
        [((4,), 1), ((4,), 1)]
        >>> builder.start_new_sequence()
        >>> leaf = builder.add_input("leaf", [], words[0])
        >>> builder.add_input("root", ["leaf"], None).dim()
        ((4,), 1)
    """

    _sizes = slice(1, 4)
    _name = "NaryTreeLSTMBuilder"

    def __init__(self, N: int, layers: int, input_dim: int, hidden_dim: int, model: Any) -> None:
        op = self._name
        self._n = _int(op, "N", N, 1)
        count = _int(op, "layers", layers, 1)
        self._input_dim = _int(op, "input_dim", input_dim, 1)
        self._hidden_dim = _int(op, "hidden_dim", hidden_dim, 1)
        spec = (self._n, count, self._input_dim, self._hidden_dim)
        super().__init__(model, "nary-tree-lstm-builder", spec)
        self._layers = [
            _NaryLayer(self.model, self._n, self._hidden_dim if layer else self._input_dim, self._hidden_dim)
            for layer in range(count)
        ]
        self._rate = 0.0

    def set_dropout(self, p: float) -> None:
        """Rate of dropout of the inputs of the layers and of the children's outputs.

        As in DyNet's LSTMs the masks are drawn at the first node of a graph and kept for all of it.

        Args:
            p: the rate, 0 <= p <= 1.
        Raises:
            ValueError: p is no probability.
        Source: DyNet 2.1 `TreeLSTMBuilder` (C++).
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> builder.set_dropout(0.5)
        """
        rate = float(p)
        if not 0 <= rate <= 1:
            raise ValueError(f"set_dropout(): expected a probability, 0 <= p <= 1, got {p}")
        if rate != self._rate:
            refuse_inside("set_dropout()", "set it before batch_map()")
        self._rate = rate

    def _draw_masks(self, below: list[Any], x: Expression | None) -> None:
        batch = x.dim()[1] if x is not None else below[0][0][0].dim()[1]
        keep = 1 - self._rate
        scale = 1 / keep if keep else float("inf")
        masks = self._sequence.get().masks
        for layer in range(len(self._layers)):
            size = self._hidden_dim if layer else self._input_dim
            first = _core.random_bernoulli(size, keep, scale, batch)
            masks.append((first, _core.random_bernoulli(self._hidden_dim, keep, scale, batch)))

    def _compute(self, below: list[Any], x: Expression | None) -> Any:
        sequence = self._sequence.get()
        if self._rate and not sequence.masks:
            self._draw_masks(below, x)
        count = len(below)
        states = []
        for number, layer in enumerate(self._layers):
            children = [state[number] for state in below]
            inputs = children
            if self._rate:
                mask_x, mask_h = sequence.masks[number]
                x = None if x is None else cmult(x, mask_x)
                inputs = [(cmult(h, mask_h), c) for h, c in children]
            with_cells = [e for state in inputs for e in state]
            without = [h for h, _ in inputs]
            if x is not None:
                with_cells.insert(0, x)
                without.insert(0, x)

            def gate(name: str, k: int, operands: list[Expression], layer: Any = layer) -> Expression:
                terms = [layer.bias(name, sequence.update)]
                own = len(operands) > count * (1 if name == "u" else 2)  # has an input
                for w, e in zip(layer.weights(name, k, count, own, sequence.update), operands):
                    terms.append(w)
                    terms.append(e)
                return affine_transform(terms)

            c = cmult(logistic(gate("i", 0, with_cells)), tanh(gate("u", 0, without)))
            for k, (_, c_k) in enumerate(children):
                c = c + cmult(logistic(gate("f", k, with_cells) + 1.0), c_k)
            h = cmult(logistic(gate("o", 0, with_cells)), tanh(c))
            states.append((h, c))
            x = h
        return states

    def _output(self, node: Any) -> Expression:
        output: Expression = node[-1][0]
        return output

    def h(self, id: Hashable) -> tuple[Expression, ...]:
        """The outputs of all layers at a node.

        Args:
            id: of the node.
        Returns:
            A tuple of Expressions {H}xB, from the lowest layer up.
        Raises:
            ValueError: no such node in the current graph.
        Source: DyNet 2.1 `TreeLSTMBuilder` (C++).
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> builder.start_new_sequence()
            >>> leaf = builder.add_input("leaf", [], dy.ones(3))
            >>> [h.dim() for h in builder.h("leaf")]
            [((4,), 1)]
        """
        return tuple(h for h, _ in self._at(id))

    def c(self, id: Hashable) -> tuple[Expression, ...]:
        """The cells of all layers at a node.

        Args:
            id: of the node.
        Returns:
            A tuple of Expressions {H}xB, from the lowest layer up.
        Raises:
            ValueError: no such node in the current graph.
        Source: DyNet 2.1 `TreeLSTMBuilder` (C++).
        Example:
            >>> builder = dy.NaryTreeLSTMBuilder(2, 1, 3, 4, dy.ParameterCollection())
            >>> builder.start_new_sequence()
            >>> leaf = builder.add_input("leaf", [], dy.ones(3))
            >>> [c.dim() for c in builder.c("leaf")]
            [((4,), 1)]
        """
        return tuple(c for _, c in self._at(id))


TreeLSTMBuilder = NaryTreeLSTMBuilder


class _ChainTreeBuilder(_TreeBuilder):
    """An LSTM, or two, that read a node's input and then the outputs of its children."""

    _halves = 1

    def __init__(self, layers: int, input_dim: int, hidden_dim: int, model: Any) -> None:
        op = self._name
        count = _int(op, "layers", layers, 1)
        self._input_dim = _int(op, "input_dim", input_dim, 1)
        hidden = _int(op, "hidden_dim", hidden_dim, 1)
        if hidden != self._input_dim:
            raise ValueError(
                f"{op}(): expected an input_dim equal to hidden_dim, as the LSTM reads outputs of "
                f"children, too; got {self._input_dim} and {hidden}"
            )
        if hidden % self._halves:
            raise ValueError(f"{op}(): expected an even hidden_dim, got {hidden}")
        super().__init__(model, self._collection, (count, self._input_dim, hidden))
        self._lstms = [
            _core.VanillaLSTMBuilder(count, self._input_dim, hidden // self._halves, self.model)
            for _ in range(self._halves)
        ]

    _collection = ""

    def set_dropout(self, p: float) -> None:
        """Rate of dropout of the LSTM, as its set_dropout().

        Args:
            p: the rate, 0 <= p <= 1.
        Raises:
            ValueError: p is no probability.
        Source: DyNet 2.1 `BidirectionalTreeLSTMBuilder` (C++).
        Example:
            >>> builder = dy.BidirectionalTreeLSTMBuilder(1, 4, 4, dy.ParameterCollection())
            >>> builder.set_dropout(0.5)
        """
        for lstm in self._lstms:
            lstm.set_dropout(p)

    def _compute(self, below: list[Any], x: Expression | None) -> Any:
        outputs = []
        for lstm, children in zip(self._lstms, (below, below[::-1])):
            xs = children if x is None else [x, *children]
            update = self._sequence.get().update
            outputs.append(lstm.initial_state(None, update).transduce(xs)[-1])
        return outputs[0] if len(outputs) == 1 else concatenate(outputs)

    def _output(self, node: Any) -> Expression:
        output: Expression = node
        return output


class UnidirectionalTreeLSTMBuilder(_ChainTreeBuilder):
    """An LSTM reads the node's input and then the outputs of its children in order; its last output is h.

    Args:
        layers: number of layers of the LSTM.
        input_dim: I, size of x, equal to H.
        hidden_dim: H, size of the outputs.
        model: ParameterCollection; the LSTM is in its sub-collection "unidirectional-tree-lstm-builder".

    Raises:
        ValueError: input_dim and hidden_dim differ.

    Example:
        >>> builder = dy.UnidirectionalTreeLSTMBuilder(1, 4, 4, dy.ParameterCollection())
        >>> builder.start_new_sequence()
        >>> a = builder.add_input(0, [], dy.ones(4))
        >>> b = builder.add_input(1, [], dy.zeros(4))
        >>> builder.add_input(2, [0, 1], dy.ones(4)).dim()
        ((4,), 1)
    """

    _name = "UnidirectionalTreeLSTMBuilder"
    _collection = "unidirectional-tree-lstm-builder"


class BidirectionalTreeLSTMBuilder(_ChainTreeBuilder):
    """Two LSTMs of half the size read the node's input and then the outputs of its children, one in their
    order and one in the other; h is the first's last output above the second's.

    Args:
        layers: number of layers of the LSTMs.
        input_dim: I, size of x, equal to H.
        hidden_dim: H, size of the outputs, even.
        model: ParameterCollection; the LSTMs are in its sub-collection "bidirectional-tree-lstm-builder".

    Raises:
        ValueError: input_dim and hidden_dim differ, or are odd.

    Example:
        >>> builder = dy.BidirectionalTreeLSTMBuilder(1, 4, 4, dy.ParameterCollection())
        >>> outputs = builder.transduce([[], [], [0, 1]], [dy.ones(4), dy.zeros(4), dy.ones(4)])
        >>> outputs[2].dim()
        ((4,), 1)
    """

    _name = "BidirectionalTreeLSTMBuilder"
    _collection = "bidirectional-tree-lstm-builder"
    _halves = 2
