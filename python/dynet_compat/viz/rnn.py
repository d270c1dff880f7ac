"""RNN builders, trainers and initialisers of the drawing mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

from . import nodes
from .nodes import Expression, GVExpr, InvalidConcreteDim, Model, make_dim
from .ops import concatenate

builder_num = -1


def new_builder_num() -> int:
    """The number of the next RNN builder."""
    global builder_num
    builder_num += 1
    return builder_num


# ---------------------------------------------------------------- RNNs


class _RNNBuilder:
    """What all builders share: layers, sizes, a number."""

    def __init__(self, layers: int, input_dim: int, hidden_dim: int, model: Any) -> None:
        self.layers, self.input_dim, self.hidden_dim = layers, int(input_dim), int(hidden_dim)
        self.model, self.builder_num = model, new_builder_num()
        self._states: list[RNNState] = []
        self._init_state: Optional[RNNState] = None
        self._init_version = -1

    def whoami(self) -> str:
        """Name of the class."""
        return type(self).__name__

    def set_dropout(self, f: float) -> None:
        """Nothing to set."""

    def disable_dropout(self) -> None:
        """Nothing to set."""

    def new_graph(self) -> None:
        """Forget the states of the graph before."""
        self._states, self._init_version = [], nodes._version

    def start_new_sequence(self, es: Optional[Sequence[Expression]] = None) -> None:
        """The next input is the first one."""
        self._init_state = RNNState(self)

    def add_input(self, e: Expression) -> Expression:
        """Output after one more input to the latest state."""
        return self.add_input_to_prev(len(self._states) - 1, e)

    def add_input_to_prev(self, prev: int, e: Expression) -> Expression:
        """Output after one more input to state number `prev`; -1 is the start."""
        before = [self._states[prev].output()] if prev >= 0 else []
        wanted, dim = make_dim(self.input_dim), make_dim(self.hidden_dim, 1, True)
        if e.dim != wanted:
            dim = InvalidConcreteDim(e.dim, wanted)
        out = GVExpr("RNNState", [self.whoami(), e, *before], dim)
        out.state_of = self
        return out

    def rewind_one_step(self) -> None:
        """Forget the latest state."""
        self._states.pop()

    def back(self) -> Expression:
        """Output of the latest state."""
        out: Expression = self._states[-1].output()
        return out

    def final_h(self) -> list[Expression]:
        """Outputs of the latest state."""
        return [self.back()]

    def final_s(self) -> list[Expression]:
        """Outputs of the latest state."""
        return [self.back()]

    def get_h(self, i: int) -> list[Expression]:
        """Outputs of state i."""
        return [self._states[i].output()]

    def get_s(self, i: int) -> list[Expression]:
        """Outputs of state i."""
        return [self._states[i].output()]

    def initial_state(self, vecs: Optional[Sequence[Expression]] = None) -> RNNState:
        """The state before the first input."""
        if self._init_version != nodes._version:
            self.new_graph()
            self.start_new_sequence(vecs)
        assert self._init_state is not None
        return self._init_state

    def initial_state_from_raw_vectors(self, vecs: Optional[Sequence[Any]] = None) -> RNNState:
        """The state before the first input."""
        return self.initial_state()


class SimpleRNNBuilder(_RNNBuilder):
    """A builder; see `_RNNBuilder`."""


class GRUBuilder(_RNNBuilder):
    """A builder; see `_RNNBuilder`."""


class LSTMBuilder(_RNNBuilder):
    """A builder; see `_RNNBuilder`."""


class FastLSTMBuilder(_RNNBuilder):
    """A builder; see `_RNNBuilder`."""


VanillaLSTMBuilder = CoupledLSTMBuilder = LSTMBuilder  # as for ParameterCollection


class BiRNNBuilder:
    """One builder per direction and layer."""

    def __init__(
        self,
        num_layers: int,
        input_dim: int,
        hidden_dim: int,
        model: Any,
        rnn_builder_factory: Callable[..., Any],
    ) -> None:
        assert num_layers > 0 and hidden_dim % 2 == 0
        self.builder_layers = []
        for layer in range(num_layers):
            size = hidden_dim if layer else input_dim
            pair = [rnn_builder_factory(1, size, hidden_dim // 2, model) for _ in range(2)]
            self.builder_layers.append(tuple(pair))

    def whoami(self) -> str:
        """Name of the class."""
        return "BiRNNBuilder"

    def set_dropout(self, p: float) -> None:
        """Nothing to set."""

    def disable_dropout(self) -> None:
        """Nothing to set."""

    def add_inputs(self, es: Sequence[Expression]) -> list[tuple[RNNState, RNNState]]:
        """The states of the last layer at each position."""
        for forward, backward in self.builder_layers[:-1]:
            es = self._both(forward, backward, es)
        forward, backward = self.builder_layers[-1]
        back = backward.initial_state().add_inputs(list(reversed(es)))
        return list(zip(forward.initial_state().add_inputs(es), reversed(back)))

    def transduce(self, es: Sequence[Expression]) -> list[Expression]:
        """The outputs of the last layer at each position."""
        return [concatenate([f.output(), b.output()]) for f, b in self.add_inputs(es)]

    @staticmethod
    def _both(forward: Any, backward: Any, es: Sequence[Expression]) -> list[Expression]:
        back = backward.initial_state().transduce(list(reversed(es)))
        return [concatenate([f, b]) for f, b in zip(forward.initial_state().transduce(es), reversed(back))]


class RNNState:
    """A state of a sequence."""

    def __init__(
        self,
        builder: _RNNBuilder,
        state_idx: int = -1,
        prev_state: Optional[RNNState] = None,
        out: Optional[Expression] = None,
    ) -> None:
        self.builder, self.state_idx, self._prev, self._out = builder, state_idx, prev_state, out

    def add_input(self, x: Expression) -> RNNState:
        """The state after one more input."""
        out = self.builder.add_input_to_prev(self.state_idx, x)
        state = RNNState(self.builder, len(self.builder._states), self, out)
        self.builder._states.append(state)
        return state

    def add_inputs(self, xs: Iterable[Expression]) -> list[RNNState]:
        """The states after each input."""
        states, state = [], self
        for x in xs:
            state = state.add_input(x)
            states.append(state)
        return states

    def transduce(self, xs: Iterable[Expression]) -> list[Expression]:
        """The outputs after each input."""
        return [state.output() for state in self.add_inputs(xs)]

    def output(self) -> Any:
        """The output; None at the start."""
        return self._out

    def h(self) -> tuple[Any, ...]:
        """The output as a tuple."""
        return () if self._out is None else (self._out,)

    s = h

    def prev(self) -> Optional[RNNState]:
        """The state before."""
        return self._prev

    def b(self) -> _RNNBuilder:
        """The builder."""
        return self.builder

    def get_state_idx(self) -> int:
        """The number of the state."""
        return self.state_idx


class StackedRNNState:
    """States of several builders, each fed with the output of the one below."""

    def __init__(self, states: Sequence[RNNState], prev: Optional[StackedRNNState] = None) -> None:
        self.states, self._prev = list(states), prev

    def add_input(self, x: Expression) -> StackedRNNState:
        """The state after one more input."""
        states = []
        for state in self.states:
            states.append(state.add_input(x))
            x = states[-1].output()
        return StackedRNNState(states, self)

    def output(self) -> Any:
        """Output of the topmost state."""
        return self.states[-1].output()

    def prev(self) -> Optional[StackedRNNState]:
        """The state before."""
        return self._prev

    def h(self) -> list[Any]:
        """h() of each state."""
        return [state.h() for state in self.states]

    def s(self) -> list[Any]:
        """s() of each state."""
        return [state.s() for state in self.states]

    def add_inputs(self, xs: Iterable[Expression]) -> list[StackedRNNState]:
        """The states after each input."""
        states, state = [], self
        for x in xs:
            state = state.add_input(x)
            states.append(state)
        return states


# ---------------------------------------------------------------- trainers and initialisers: nothing to do


class Trainer:
    """Trains nothing."""

    learning_rate = 0.0

    def update(self, s: float = 1.0) -> None:
        """Nothing to update."""

    def update_epoch(self, r: float = 1.0) -> None:
        """Nothing to update."""

    def status(self) -> None:
        """Nothing to tell."""

    def set_clip_threshold(self, thr: float) -> None:
        """Nothing to set."""

    def get_clip_threshold(self) -> None:
        """Nothing is set."""


class SimpleSGDTrainer(Trainer):
    """Trains nothing."""

    def __init__(self, m: Model, e0: float = 0.1, *args: Any) -> None: ...


class MomentumSGDTrainer(Trainer):
    """Trains nothing."""

    def __init__(self, m: Model, e0: float = 0.01, mom: float = 0.9, *args: Any) -> None: ...


class AdagradTrainer(Trainer):
    """Trains nothing."""

    def __init__(self, m: Model, e0: float = 0.1, eps: float = 1e-20, *args: Any) -> None: ...


class AdadeltaTrainer(Trainer):
    """Trains nothing."""

    def __init__(self, m: Model, eps: float = 1e-6, rho: float = 0.95, *args: Any) -> None: ...


class AdamTrainer(Trainer):
    """Trains nothing."""

    def __init__(
        self,
        m: Model,
        alpha: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        eps: float = 1e-8,
        *args: Any,
    ) -> None: ...


class Initializer:
    """Initialises nothing."""


class NormalInitializer(Initializer):
    """Initialises nothing."""

    def __init__(self, mean: float = 0, var: float = 1) -> None: ...


class UniformInitializer(Initializer):
    """Initialises nothing."""

    def __init__(self, scale: float) -> None: ...


class ConstInitializer(Initializer):
    """Initialises nothing."""

    def __init__(self, c: float) -> None: ...


class GlorotInitializer(Initializer):
    """Initialises nothing."""

    def __init__(self, is_lookup: bool = False) -> None: ...


class FromFileInitializer(Initializer):
    """Initialises nothing."""

    def __init__(self, fname: str) -> None: ...


class NumpyInitializer(Initializer):
    """Initialises nothing."""

    def __init__(self, array: Any) -> None: ...
