"""Builders that are made of other builders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import _core

__all__ = ["BiRNNBuilder", "StackedRNNState"]


class PythonBuilder:
    """What the builders that are written in Python share."""

    _name = ""
    _sizes = slice(0, 3)  # of `spec`: layers, size of an input, size of an output
    model: Any

    def __repr__(self) -> str:
        from ..inspection.reprs import described

        return described(self)

    def param_collection(self) -> Any:
        """The builder's own part of its model.

        Returns:
            ParameterCollection.
        Source: DyNet 2.1 `BiRNNBuilder.param_collection`; of its tree LSTMs (C++).
        Example:
            >>> birnn = dy.BiRNNBuilder(1, 2, 4, dy.ParameterCollection(), dy.LSTMBuilder)
            >>> birnn.param_collection().name()
            '/birnn/'
        """
        return self.model

    def whoami(self) -> str:
        """Name of the class.

        Returns:
            str.
        Source: DyNet 2.1 `BiRNNBuilder.whoami`.
        Example:
            >>> birnn = dy.BiRNNBuilder(1, 2, 4, dy.ParameterCollection(), dy.LSTMBuilder)
            >>> birnn.whoami()
            'BiRNNBuilder'
        """
        return self._name


class BiRNNBuilder(PythonBuilder):
    """Bidirectional network: in each layer one builder reads forwards and another one backwards.

    Args:
        num_layers: number of layers, at least 1.
        input_dim: size of the inputs.
        hidden_dim: size of the outputs, even: each direction has half of it.
        model: ParameterCollection.
        rnn_builder_factory: such as LSTMBuilder; called as factory(1, inputs, hidden_dim // 2, collection).
        builder_layers: list of (forward, backward) builders to use instead of new ones.

    Raises:
        AssertionError: num_layers or hidden_dim is not as above.
    Source: Schuster and Paliwal, 1997; DyNet 2.1 `BiRNNBuilder`.
    Example:
        >>> birnn = dy.BiRNNBuilder(2, 3, 8, dy.ParameterCollection(), dy.LSTMBuilder)
        >>> [y.dim() for y in birnn.transduce([dy.inputVector([1, 2, 3])] * 2)]
        [((8,), 1), ((8,), 1)]
    """

    _name = "BiRNNBuilder"

    def __init__(
        self,
        num_layers: int,
        input_dim: int,
        hidden_dim: int,
        model: Any,
        rnn_builder_factory: Callable[..., Any],
        builder_layers: list[tuple[Any, Any]] | None = None,
    ) -> None:
        self.spec = (num_layers, input_dim, hidden_dim, rnn_builder_factory, builder_layers)
        self.model = model.add_subcollection("birnn")
        if builder_layers is not None:
            self.builder_layers = builder_layers
            return
        assert num_layers > 0, f"BiRNNBuilder(): expected num_layers of at least 1, got {num_layers}"
        assert hidden_dim % 2 == 0, f"BiRNNBuilder(): expected an even hidden_dim, got {hidden_dim}"
        half = int(hidden_dim) // 2
        self.builder_layers = []
        for layer in range(num_layers):
            size = input_dim if layer == 0 else hidden_dim
            forward = rnn_builder_factory(1, size, half, self.model)
            backward = rnn_builder_factory(1, size, half, self.model)
            self.builder_layers.append((forward, backward))

    @classmethod
    def from_spec(cls, spec: Sequence[Any], model: Any) -> BiRNNBuilder:
        """A new builder like another one, with parameters of its own.

        Args:
            spec: `spec` of the other one.
            model: ParameterCollection of the new one.
        Source: DyNet 2.1 `BiRNNBuilder.from_spec`.
        Example:
            >>> birnn = dy.BiRNNBuilder(1, 2, 4, dy.ParameterCollection(), dy.LSTMBuilder)
            >>> dy.BiRNNBuilder.from_spec(birnn.spec, dy.ParameterCollection()).spec == birnn.spec
            True
        """
        num_layers, input_dim, hidden_dim, rnn_builder_factory, builder_layers = spec
        return cls(num_layers, input_dim, hidden_dim, model, rnn_builder_factory, builder_layers)

    def set_dropout(self, p: float) -> None:
        """Rate of dropout of all builders.

        Args:
            p: the rate, 0 <= p <= 1.
        Raises:
            ValueError: the rate is out of range.
        Source: DyNet 2.1 `BiRNNBuilder.set_dropout`.
        Example:
            >>> birnn = dy.BiRNNBuilder(1, 2, 4, dy.ParameterCollection(), dy.LSTMBuilder)
            >>> birnn.set_dropout(0.5)
        """
        for forward, backward in self.builder_layers:
            forward.set_dropout(p)
            backward.set_dropout(p)

    def disable_dropout(self) -> None:
        """The same as set_dropout(0).

        Source: DyNet 2.1 `BiRNNBuilder.disable_dropout`.
        Example:
            >>> birnn = dy.BiRNNBuilder(1, 2, 4, dy.ParameterCollection(), dy.LSTMBuilder)
            >>> birnn.disable_dropout()
        """
        for forward, backward in self.builder_layers:
            forward.disable_dropout()
            backward.disable_dropout()

    def _lower_layers(self, es: Sequence[_core.Expression]) -> Sequence[_core.Expression]:
        for forward, backward in self.builder_layers[:-1]:
            es = self._both(forward, backward, es)
        return es

    @staticmethod
    def _both(forward: Any, backward: Any, es: Sequence[_core.Expression]) -> list[_core.Expression]:
        outs = forward.initial_state().transduce(es)
        back = backward.initial_state().transduce(list(reversed(es)))
        back.reverse()
        return _core._concatenate_pairs(outs, back)

    def add_inputs(self, es: Sequence[_core.Expression]) -> list[tuple[_core.RNNState, _core.RNNState]]:
        """The (forward, backward) states of the last layer at each position.

        Args:
            es: Expressions {input_dim}xB, a sequence.
        Returns:
            list of pairs of RNNState.
        Raises:
            ValueError: the inputs have another size.
        Source: DyNet 2.1 `BiRNNBuilder.add_inputs`.
        Example:
            >>> birnn = dy.BiRNNBuilder(1, 2, 4, dy.ParameterCollection(), dy.LSTMBuilder)
            >>> states = birnn.add_inputs([dy.inputVector([1, 2]), dy.inputVector([3, 4])])
            >>> len(states), [state.output().dim() for state in states[0]]
            (2, [((2,), 1), ((2,), 1)])
        """
        es = self._lower_layers(es)
        forward, backward = self.builder_layers[-1]
        states = forward.initial_state().add_inputs(es)
        back = backward.initial_state().add_inputs(list(reversed(es)))
        back.reverse()
        return list(zip(states, back))

    def transduce(self, es: Sequence[_core.Expression]) -> list[_core.Expression]:
        """The outputs of the last layer at each position, {hidden_dim}xB: forward above backward.

        Args:
            es: Expressions {input_dim}xB, a sequence.
        Returns:
            list of Expression.
        Raises:
            ValueError: the inputs have another size.
        Source: DyNet 2.1 `BiRNNBuilder.transduce`.
        Example:
            >>> birnn = dy.BiRNNBuilder(1, 2, 4, dy.ParameterCollection(), dy.LSTMBuilder)
            >>> [y.dim() for y in birnn.transduce([dy.inputVector([1, 2]), dy.inputVector([3, 4])])]
            [((4,), 1), ((4,), 1)]
        """
        forward, backward = self.builder_layers[-1]
        return self._both(forward, backward, self._lower_layers(es))


class StackedRNNState:
    """States of several builders, each fed with the output of the one below.

    Args:
        states: the states, lowest first.
        prev: the state before the last input.

    Raises:
        ValueError: no states.

    Example:
        >>> pc = dy.ParameterCollection()
        >>> builders = [dy.GRUBuilder(1, 2, 3, pc), dy.LSTMBuilder(1, 3, 4, pc)]
        >>> state = dy.StackedRNNState([builder.initial_state() for builder in builders])
        >>> state = state.add_input(dy.ones(2))
        >>> state.output().dim(), [len(s) for s in state.s()]
        (((4,), 1), [1, 2])
    """

    def __init__(self, states: Sequence[_core.RNNState], prev: StackedRNNState | None = None) -> None:
        self.states = list(states)
        if not self.states:
            raise ValueError("StackedRNNState(): expected at least one state, got none")
        self._prev = prev

    def add_input(self, x: _core.Expression) -> StackedRNNState:
        """The state after one more input.

        Args:
            x: Expression, an input of the lowest builder.
        Returns:
            StackedRNNState.
        Source: DyNet 2.1 `StackedRNNState.add_input`.
        Example:
            >>> builders = [dy.GRUBuilder(1, n, n + 1, dy.ParameterCollection()) for n in (2, 3)]
            >>> state = dy.StackedRNNState([builder.initial_state() for builder in builders])
            >>> state.add_input(dy.inputVector([1, 2])).prev() is state
            True
        """
        states = []
        for state in self.states:
            state = state.add_input(x)
            states.append(state)
            x = state.output()
        return StackedRNNState(states, self)

    def add_inputs(self, xs: Iterable[_core.Expression]) -> list[StackedRNNState]:
        """The states after each of the inputs.

        Args:
            xs: Expressions, any iterable.
        Returns:
            list of StackedRNNState.
        Source: DyNet 2.1 `StackedRNNState.add_inputs`.
        Example:
            >>> builders = [dy.GRUBuilder(1, n, n + 1, dy.ParameterCollection()) for n in (2, 3)]
            >>> state = dy.StackedRNNState([builder.initial_state() for builder in builders])
            >>> len(state.add_inputs([dy.inputVector([1, 2])] * 3))
            3
        """
        states = []
        state = self
        for x in xs:
            state = state.add_input(x)
            states.append(state)
        return states

    def output(self) -> _core.Expression | Any:  # None before the first input
        """Output of the topmost state; None before the first input.

        Source: DyNet 2.1 `StackedRNNState.output`.
        Example:
            >>> builders = [dy.GRUBuilder(1, n, n + 1, dy.ParameterCollection()) for n in (2, 3)]
            >>> state = dy.StackedRNNState([builder.initial_state() for builder in builders])
            >>> state.output() is None
            True
        """
        return self.states[-1].output()

    def prev(self) -> StackedRNNState | None:
        """The state before the last input; None at the start.

        Source: DyNet 2.1 `StackedRNNState.prev`.
        Example:
            >>> builders = [dy.GRUBuilder(1, n, n + 1, dy.ParameterCollection()) for n in (2, 3)]
            >>> state = dy.StackedRNNState([builder.initial_state() for builder in builders])
            >>> state.prev() is None
            True
        """
        return self._prev

    def h(self) -> list[tuple[_core.Expression, ...]]:
        """h() of each state.

        Source: DyNet 2.1 `StackedRNNState.h`.
        Example:
            >>> builders = [dy.GRUBuilder(1, n, n + 1, dy.ParameterCollection()) for n in (2, 3)]
            >>> state = dy.StackedRNNState([builder.initial_state() for builder in builders])
            >>> [len(h) for h in state.add_input(dy.inputVector([1, 2])).h()]
            [1, 1]
        """
        return [state.h() for state in self.states]

    def s(self) -> list[tuple[_core.Expression, ...]]:
        """s() of each state.

        Source: DyNet 2.1 `StackedRNNState.s`.
        Example:
            >>> builders = [dy.GRUBuilder(1, n, n + 1, dy.ParameterCollection()) for n in (2, 3)]
            >>> state = dy.StackedRNNState([builder.initial_state() for builder in builders])
            >>> [len(s) for s in state.add_input(dy.inputVector([1, 2])).s()]
            [1, 1]
        """
        return [state.s() for state in self.states]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(map(repr, self.states))}>"
