"""Sizes, expressions, the graph, models of the drawing mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional, Union

graphviz_items: list[Expression] = []
vindex_count = -1
SECRET = 923148
_version = 0


def new_index() -> int:
    """The number of the next expression."""
    global vindex_count
    vindex_count += 1
    return vindex_count


def init(random_seed: Optional[int] = None) -> None:
    """Nothing: there is nothing to initialise."""


# ---------------------------------------------------------------- sizes


class SimpleConcreteDim:
    """Rows and columns. `inferred`: they follow from something else than the program's text."""

    def __init__(self, nrows: int, ncols: int, inferred: bool) -> None:
        self.nrows, self.ncols, self.inferred = nrows, ncols, inferred

    def __getitem__(self, key: int) -> int:
        return (self.nrows, self.ncols)[key]

    def __iter__(self) -> Iterator[int]:
        return iter((self.nrows, self.ncols))

    def __str__(self) -> str:
        return f"Dim({self.nrows},{self.ncols})"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimpleConcreteDim) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def isvalid(self) -> bool:
        """True."""
        return True

    def invalid(self) -> bool:
        """False."""
        return False


class InvalidConcreteDim:
    """Sizes that do not fit together: those of the arguments, if they are known."""

    def __init__(self, a_dim: Any = None, b_dim: Any = None) -> None:
        self.a_dim, self.b_dim = a_dim, b_dim

    def __getitem__(self, key: int) -> None:
        return None

    def __repr__(self) -> str:
        if self.a_dim is None and self.b_dim is None:
            return "InvalidDim"
        return f"InvalidDim({self.a_dim}, {self.b_dim})"

    def __str__(self) -> str:
        return repr(self)

    def isvalid(self) -> bool:
        """False."""
        return False

    def invalid(self) -> bool:
        """True."""
        return True


InvalidDim = InvalidConcreteDim()
VizDim = Union[SimpleConcreteDim, InvalidConcreteDim]


def make_dim(a: Any, b: Optional[int] = None, inferred: bool = False) -> VizDim:
    """Sizes from two numbers, one number, a tuple of one or two, or sizes."""
    if isinstance(a, (SimpleConcreteDim, InvalidConcreteDim)):
        return a
    if b is not None:
        return SimpleConcreteDim(int(a), int(b), inferred)
    if isinstance(a, (tuple, list)):
        if not 1 <= len(a) <= 2:
            return InvalidDim
        return SimpleConcreteDim(int(a[0]), int(a[1]) if len(a) == 2 else 1, inferred)
    return SimpleConcreteDim(int(a), 1, inferred)


def ensure_freshness(a: Expression) -> None:
    """ValueError if the expression is of an earlier graph."""
    if a.cg_version != _version:
        raise ValueError("Attempt to use a stale expression.")


def copy_dim(a: Expression) -> VizDim:
    """The sizes of an expression."""
    return a.dim


def ensure_same_dim(a: Expression, b: Expression) -> VizDim:
    """The common sizes of two expressions, or invalid ones."""
    if a.dim.invalid() or b.dim.invalid():
        return InvalidDim
    return a.dim if a.dim == b.dim else InvalidConcreteDim(a.dim, b.dim)


def ensure_mul_dim(a: Expression, b: Expression) -> VizDim:
    """The sizes of a matrix product, or invalid ones."""
    x, y = a.dim, b.dim
    if not isinstance(x, SimpleConcreteDim) or not isinstance(y, SimpleConcreteDim):
        return InvalidDim
    if x.ncols != y.nrows:
        return InvalidConcreteDim(x, y)
    return make_dim(x.nrows, y.ncols, True)


def ensure_all_same_dim(xs: Sequence[Expression]) -> VizDim:
    """The common sizes of all expressions, or invalid ones."""
    dim: VizDim = xs[0].dim
    for x in xs[1:]:
        dim = ensure_same_dim(xs[0], x) if dim.isvalid() else dim
    return dim


# ---------------------------------------------------------------- expressions


class Expression:
    """A node: its op, its arguments, its sizes."""

    def __init__(self, name: str, args: Sequence[Any], dim: VizDim) -> None:
        self.name, self.args, self.dim = name, list(args), dim
        self.vindex, self.cg_version = new_index(), _version
        self.state_of: Any = None  # the RNN builder of a state

    def cg(self) -> ComputationGraph:
        """The graph."""
        return cg()

    def get_cg_version(self) -> int:
        """The number of the graph."""
        return self.cg_version

    def get_vindex(self) -> int:
        """The number of the expression."""
        return self.vindex

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(str(a) for a in self.args)})"

    def __getitem__(self, i: Any) -> Expression:
        if isinstance(i, slice):
            return self.__getslice__(i.start or 0, (self.dim[0] or 0) if i.stop is None else i.stop)
        return _op("lookup", self, i) if self.name == "lookup_parameters" else _op("pick", self, i)

    def __getslice__(self, i: int, j: int) -> Expression:
        return _op("pickrange", self, i, j)

    def scalar_value(self, recalculate: bool = False) -> float:
        """0: nothing is computed."""
        return 0.0

    def vec_value(self, recalculate: bool = False) -> list[float]:
        """Nothing is computed."""
        return []

    def npvalue(self, recalculate: bool = False) -> None:
        """Nothing is computed."""

    def value(self, recalculate: bool = False) -> None:
        """Nothing is computed."""

    def forward(self, recalculate: bool = False) -> None:
        """Nothing is computed."""

    def set(self, x: Any) -> None:
        """Nothing to set."""

    def batch(self, i: Iterable[int]) -> Expression:
        """Rows of a table."""
        return _op("lookup_batch", self, i)

    def zero(self) -> Expression:
        """The expression itself."""
        return self

    def backward(self) -> None:
        """Nothing is computed."""

    def __add__(self, other: Any) -> Expression:
        return _add(self, other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Expression:
        return _mul(self, other)

    __rmul__ = __mul__

    def __div__(self, other: Any) -> Expression:
        return _cdiv(self, other)

    __truediv__ = __div__

    def __neg__(self) -> Expression:
        return _neg(self)

    def __sub__(self, other: Any) -> Expression:
        return _add(self, _neg(other)) if isinstance(other, Expression) else _cadd(self, -other)

    def __rsub__(self, other: Any) -> Expression:
        return _scalarsub(other, self)

    def __pow__(self, other: Any) -> Expression:
        return _op("pow", self, other)

    def init_row(self, i: int, row: Any) -> None:
        """Nothing to set."""

    def init_from_array(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to set."""

    def set_updated(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to set."""


def _op(name: str, *arguments: Any) -> Expression:
    from . import ops  # which imports this module

    made: Expression = getattr(ops, name)(*arguments)
    return made


def GVExpr(name: str, args: Sequence[Any], dim: VizDim) -> Expression:
    """A new expression of the graph that will be printed."""
    for argument in args:
        if isinstance(argument, Expression) and not argument.name.endswith("parameters"):
            ensure_freshness(argument)
    e = Expression(name, args, dim)
    graphviz_items.append(e)
    return e


def _add(a: Any, b: Any) -> Expression:
    if not isinstance(b, Expression):
        return _cadd(a, b)
    return GVExpr("add", [a, b], ensure_same_dim(a, b))


def _mul(a: Any, b: Any) -> Expression:
    if not isinstance(b, Expression):
        return _cmul(a, b)
    return GVExpr("mul", [a, b], ensure_mul_dim(a, b))


def _neg(a: Expression) -> Expression:
    return GVExpr("neg", [a], copy_dim(a))


def _scalarsub(a: float, b: Expression) -> Expression:
    return GVExpr("scalarsub", [a, b], copy_dim(b))


def _cadd(a: Expression, b: float) -> Expression:
    return GVExpr("cadd", [a, b], copy_dim(a))


def _cmul(a: Expression, b: float) -> Expression:
    return GVExpr("cmul", [a, b], copy_dim(a))


def _cdiv(a: Expression, b: Any) -> Expression:
    return GVExpr("cdiv", [a, b], copy_dim(a))


# ---------------------------------------------------------------- models


class Model:
    """Parameters, as expressions of every graph."""

    def add_parameters(self, dim: Any, scale: float = 0, *args: Any, **kwargs: Any) -> Expression:
        """New parameters."""
        assert isinstance(dim, (tuple, int)), f"expected an int or a tuple, got {type(dim).__name__}"
        return Expression("parameters", [make_dim(dim)], make_dim(dim))

    def add_lookup_parameters(self, dim: Any, *args: Any, **kwargs: Any) -> Expression:
        """A new table: dim[0] rows."""
        assert isinstance(dim, tuple), f"expected a tuple, got {type(dim).__name__}"
        return Expression("lookup_parameters", [make_dim(dim)], make_dim(dim[1:] or 1))

    def add_subcollection(self, name: Optional[str] = None) -> Model:
        """The model itself."""
        return self

    def save_all(self, fname: str) -> None:
        """Nothing to save."""

    def load_all(self, fname: str) -> None:
        """Nothing to load."""

    def save(self, fname: str) -> None:
        """Nothing to save."""

    def load(self, fname: str) -> None:
        """Nothing to load."""


ParameterCollection = Model  # not in DyNet's module, so that scripts of 2.x can be drawn


class ComputationGraph:
    """The one graph: `cg()` and `renew_cg()` return it."""

    def __init__(self, guard: int = 0) -> None:
        if guard != SECRET:
            raise RuntimeError("ComputationGraph(): there is one graph, and cg() returns it")

    def renew(self, immediate_compute: bool = False, check_validity: bool = False) -> ComputationGraph:
        """An empty graph."""
        global _version
        _version += 1
        graphviz_items.clear()
        return self

    def version(self) -> int:
        """How often the graph was renewed."""
        return _version

    def parameters(self, params: Expression) -> Expression:
        """The parameters in this graph: themselves."""
        return params

    def forward_scalar(self) -> float:
        """0: nothing is computed."""
        return 0.0

    def inc_forward_scalar(self) -> float:
        """0: nothing is computed."""
        return 0.0

    def forward_vec(self) -> list[float]:
        """Nothing is computed."""
        return []

    def inc_forward_vec(self) -> list[float]:
        """Nothing is computed."""
        return []

    def forward(self) -> None:
        """Nothing is computed."""

    def inc_forward(self) -> None:
        """Nothing is computed."""

    def backward(self) -> None:
        """Nothing is computed."""


_cg = ComputationGraph(SECRET)


def cg_version() -> int:
    """How often the graph was renewed."""
    return _version


def renew_cg(immediate_compute: bool = False, check_validity: bool = False) -> ComputationGraph:
    """An empty graph."""
    return _cg.renew(immediate_compute, check_validity)


def cg() -> ComputationGraph:
    """The graph."""
    return _cg


def parameter(p: Expression) -> Expression:
    """The parameters in this graph: themselves."""
    return p
