# ruff: noqa: UP031
"""Random programs: lists of instructions with known shapes, made from one seed, run in any library.

A program is made without the library, so batching on and off (or two libraries) run the very same text.
Ops with kinks get only operands whose bits cannot depend on batching (`exact`): otherwise a rounding
difference could flip a gradient and a correct engine would fail one test in a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

# kind -> how it is called: dy, operands a, attributes k
CALLS: dict[str, Callable[[Any, list[Any], Any], Any]] = {
    "tanh": lambda dy, a, k: dy.tanh(a[0]),
    "logistic": lambda dy, a, k: dy.logistic(a[0]),
    "rectify": lambda dy, a, k: dy.rectify(a[0]),
    "abs": lambda dy, a, k: dy.abs(a[0]),
    "sin": lambda dy, a, k: dy.sin(a[0]),
    "softplus": lambda dy, a, k: -dy.log_sigmoid(-a[0]),
    "elu": lambda dy, a, k: dy.elu(a[0], k),
    "erf": lambda dy, a, k: dy.erf(a[0]),
    "neg": lambda dy, a, k: -a[0],
    "scale": lambda dy, a, k: a[0] * k,
    "shift": lambda dy, a, k: k - a[0],
    "square": lambda dy, a, k: dy.square(dy.tanh(a[0])),
    "add": lambda dy, a, k: a[0] + a[1],
    "sub": lambda dy, a, k: a[0] - a[1],
    "cmult": lambda dy, a, k: dy.cmult(a[0], a[1]),
    "cdiv": lambda dy, a, k: dy.cdiv(a[0], dy.square(a[1]) + 1.5),
    "bmax": lambda dy, a, k: dy.bmax(a[0], a[1]),
    "mul": lambda dy, a, k: a[0] * a[1],
    "affine": lambda dy, a, k: dy.affine_transform(a),
    "colwise": lambda dy, a, k: dy.colwise_add(a[0], a[1]),
    "esum": lambda dy, a, k: dy.esum(a),
    "average": lambda dy, a, k: dy.average(a),
    "logsumexp": lambda dy, a, k: dy.logsumexp(a),
    "concatenate": lambda dy, a, k: dy.concatenate(a),
    "columns": lambda dy, a, k: dy.concatenate_cols(a),
    "to_batch": lambda dy, a, k: dy.concatenate_to_batch(a),
    "pick": lambda dy, a, k: a[0][k],
    "pick_range": lambda dy, a, k: dy.pick_range(a[0], *k),
    "pick_dim": lambda dy, a, k: dy.pick(a[0], k[0], k[1]),
    "batch_elem": lambda dy, a, k: dy.pick_batch_elem(a[0], k),
    "select_rows": lambda dy, a, k: dy.select_rows(a[0], list(k)),
    "strided": lambda dy, a, k: dy.strided_select(a[0], [k], [0], []),
    "reshape": lambda dy, a, k: dy.reshape(a[0], k),
    "transpose": lambda dy, a, k: dy.transpose(a[0]),
    "softmax": lambda dy, a, k: dy.softmax(a[0]),
    "log_softmax": lambda dy, a, k: dy.log_softmax(a[0]),
    "attention": lambda dy, a, k: a[0] * dy.softmax(dy.transpose(a[0]) * a[1]),
    "sum_dim": lambda dy, a, k: dy.sum_dim(a[0], [k]),
    "mean_dim": lambda dy, a, k: dy.mean_dim(a[0], [k], False),
    "max_dim": lambda dy, a, k: dy.max_dim(a[0], k),
    "sum_batches": lambda dy, a, k: dy.sum_batches(a[0]),
    "dot": lambda dy, a, k: dy.dot_product(a[0], a[1]),
    "distance": lambda dy, a, k: dy.squared_distance(a[0], a[1]),
    "norm": lambda dy, a, k: dy.l2_norm(a[0]),
    "sum_elems": lambda dy, a, k: dy.sum_elems(a[0]),
    "nll": lambda dy, a, k: dy.pickneglogsoftmax(a[0], k),
    "nll_batch": lambda dy, a, k: dy.pickneglogsoftmax_batch(a[0], list(k)),
    "lookup": lambda dy, a, k: a[0][k],
    "lookup_batch": lambda dy, a, k: dy.lookup_batch(a[0], list(k)),
    "layer_norm": lambda dy, a, k: dy.layer_norm(a[0], a[1], a[2]),
    "dropout": lambda dy, a, k: dy.dropout(a[0], k),
    "noise": lambda dy, a, k: dy.noise(a[0], k),
    "nobackprop": lambda dy, a, k: dy.nobackprop(a[0]),
    "scale_gradient": lambda dy, a, k: dy.scale_gradient(a[0], k),
    "read": lambda dy, a, k: (a[0].npvalue(), a[0])[1],
}
EXACT = {
    "neg", "nobackprop", "rectify", "abs", "pick", "pick_range", "pick_dim", "batch_elem", "select_rows",
    "strided", "reshape", "transpose", "concatenate", "columns", "to_batch", "lookup", "lookup_batch",
    "bmax", "scale_gradient",
}
RANDOM = {"dropout", "noise"}


class Step(NamedTuple):
    """One instruction. Leaves have kind input or param and the values as attribute."""

    kind: str
    args: tuple[int, ...]
    attr: Any
    dims: tuple[int, ...]
    batch: int
    exact: bool
    bound: float  # rough largest magnitude: keeps the soup from growing until rounding is all that is left


SMALL = {"tanh", "logistic", "sin", "erf", "square", "softmax"}  # results within [-1, 1]
MOST = 12.0


def bound_of(kind: str, bounds: Sequence[float], width: int) -> float:
    """Rough bound of a result from those of its operands."""
    if kind in SMALL:
        return 1.0
    if kind in ("cmult", "dot", "mul", "distance", "attention"):
        product = bounds[0] * bounds[1] * (width if kind in ("dot", "distance") else 1)
        return product * (4 if kind == "distance" else 1)
    if kind in ("esum", "add", "sub", "affine", "colwise", "bmax", "concatenate"):
        return sum(bounds)
    if kind in ("sum_dim", "sum_elems", "sum_batches", "norm"):
        return width * bounds[0]
    return max(bounds) + (1.5 if kind in ("shift", "noise", "dropout", "log_softmax", "logsumexp", "nll")
        else 0.0)


class Program:
    """Instructions 0..n-1, and the numbers of those that are summed up to the loss."""

    def __init__(self, seed: int, size: int, pattern: str, random: bool = False) -> None:
        self.seed, self.size, self.pattern = seed, size, pattern
        self.rng = np.random.RandomState(seed)
        self.random = random
        self.steps: list[Step] = []
        self.losses: list[int] = []
        self.hidden = int(self.rng.choice([1, 2, 3, 5, 8, 17]))
        self.classes = int(self.rng.choice([2, 3, 6]))
        self.batch = int(self.rng.choice([2, 3]))
        h = self.hidden
        self.W = [self.leaf("param", (h, h), 0.8 / np.sqrt(h)) for _ in range(4)]
        self.b = [self.leaf("param", (h,)) for _ in range(3)]
        self.out = self.leaf("param", (self.classes, h))
        self.table = self.leaf("lookup", (7, h))
        self.parameters = len(self.steps)
        getattr(self, "make_" + pattern)(size)
        if not self.losses:
            self.loss(len(self.steps) - 1)

    # -- building blocks

    def push(self, kind: str, args: Sequence[int], dims: tuple[int, ...], batch: int = 0,
        attr: Any = None) -> int:
        """Append an instruction; batch 0 = the common one of the operands."""
        operands = [self.steps[i] for i in args]
        batch = batch or max(s.batch for s in operands)
        exact = kind in EXACT and all(s.exact for s in operands)
        bound = bound_of(kind, [s.bound for s in operands], max(operands[0].dims + (operands[0].batch,)))
        self.steps.append(Step(kind, tuple(args), attr, dims, batch, exact, bound))
        return len(self.steps) - 1

    def leaf(self, kind: str, dims: tuple[int, ...], scale: float = 1.0, batch: int = 1) -> int:
        """An input, a parameter or a table."""
        values = (self.rng.randn(*(dims + (batch,))) * scale).astype(np.float32)
        shown = dims if kind != "lookup" else dims[1:] + dims[:1]
        self.steps.append(Step(kind, (), values, shown, batch, True, 2.0))
        return len(self.steps) - 1

    def word(self) -> int:
        """A vector {h}: an input or a row of the table."""
        if self.rng.rand() < 0.5:
            return self.leaf("input", (self.hidden,))
        return self.push("lookup", [self.table], (self.hidden,), attr=int(self.rng.randint(7)))

    def affine(self, terms: Sequence[int]) -> int:
        """b + sum W x with parameters."""
        args = [int(self.rng.choice(self.b))]
        for n, term in enumerate(terms):
            args += [self.W[(n + int(self.rng.randint(2))) % 4], term]
        return self.push("affine", args, (self.hidden,))

    def loss(self, node: int) -> None:
        """Turn a node into one element and put it on the list of losses."""
        step = self.steps[node]
        if step.dims == (self.hidden,) and self.rng.rand() < 0.6:
            scores = self.push("mul", [self.out, node], (self.classes,))
            if step.batch == 1:
                node = self.push("nll", [scores], (1,), attr=int(self.rng.randint(self.classes)))
            else:
                ids = tuple(int(i) for i in self.rng.randint(self.classes, size=step.batch))
                node = self.push("nll_batch", [scores], (1,), attr=ids)
        elif step.dims != (1,):
            node = self.push("sum_elems", [self.push("tanh", [node], step.dims)], (1,))
        if self.steps[node].batch > 1:
            node = self.push("sum_batches", [node], (1,), batch=1)
        self.losses.append(node)

    # -- patterns

    def make_chain(self, size: int) -> None:
        """Several recurrences of unequal lengths with shared weights, some losses on the way."""
        gated = self.rng.rand() < 0.5
        starts = [self.word() for _ in range(1 + size // 12)]
        lengths = self.rng.randint(1, 2 + size // 6, size=len(starts))
        states = list(starts)
        order = [n for n, length in enumerate(lengths) for _ in range(length)]
        if self.rng.rand() < 0.5:
            self.rng.shuffle(order)
        for n in order:
            state = self.push("tanh", [self.affine([self.word(), states[n]])], (self.hidden,))
            if gated:
                gate = self.push("logistic", [self.affine([states[n]])], (self.hidden,))
                kept = self.push("cmult", [gate, states[n]], (self.hidden,))
                new = self.push("cmult", [self.push("shift", [gate], (self.hidden,), attr=1.0), state],
                    (self.hidden,))
                state = self.push("add", [kept, new], (self.hidden,))
            states[n] = state
            if self.rng.rand() < 0.3:
                self.loss(state)
            if self.rng.rand() < 0.04:
                states[n] = self.push("read", [state], (self.hidden,))
        for state in states:
            self.loss(state)

    def make_tree(self, size: int) -> None:
        """Random binary trees over words, losses at some nodes."""
        for _ in range(1 + size // 20):
            roots = [self.word() for _ in range(int(self.rng.randint(2, 3 + size // 6)))]
            while len(roots) > 1:
                at = int(self.rng.randint(len(roots) - 1))
                left, right = roots[at], roots[at + 1]
                shape = self.rng.randint(3)
                if shape == 0:
                    joined = self.push("tanh", [self.affine([left, right])], (self.hidden,))
                elif shape == 1:
                    gate = self.push("logistic", [self.affine([left])], (self.hidden,))
                    joined = self.push("cmult", [gate, self.push("tanh", [right], (self.hidden,))],
                        (self.hidden,))
                else:
                    both = self.push("concatenate", [left, right], (2 * self.hidden,))
                    half = int(self.rng.randint(self.hidden + 1))
                    joined = self.push("pick_range", [both], (self.hidden,), attr=(half, half + self.hidden))
                roots[at:at + 2] = [joined]
                if self.rng.rand() < 0.4:
                    self.loss(joined)
            self.loss(roots[0])

    def make_attend(self, size: int) -> None:
        """Columns of encoded words, attention over them from a decoder's states."""
        h = self.hidden
        for _ in range(1 + size // 15):
            count = int(self.rng.randint(1, 6))
            words = [self.push("tanh", [self.affine([self.word()])], (h,)) for _ in range(count)]
            memory = self.push("columns", words, (h, count))
            state = self.word()
            for _ in range(int(self.rng.randint(1, 4))):
                context = self.push("attention", [memory, state], (h,))
                state = self.push("tanh", [self.affine([context, state])], (h,))
                self.loss(state)

    def make_soup(self, size: int) -> None:
        """Any op on any earlier nodes that fit."""
        for batch in (1, 1, self.batch):
            self.leaf("input", (self.hidden,), batch=batch)
        self.leaf("input", (self.hidden, self.classes))
        self.leaf("input", (self.hidden, self.classes), batch=self.batch)
        first = len(self.steps)
        for _ in range(size):
            self.random_step()
        for node in range(first, len(self.steps)):
            if self.rng.rand() < 0.15:
                self.loss(node)

    def make_minibatch(self, size: int) -> None:
        """Explicit batches through shared weights, next to single instances."""
        for _ in range(1 + size // 12):
            ids = tuple(int(i) for i in self.rng.randint(7, size=self.batch))
            many = self.push("lookup_batch", [self.table], (self.hidden,), batch=self.batch, attr=ids)
            one = self.word()
            for _ in range(int(self.rng.randint(1, 4))):
                many = self.push("tanh", [self.affine([many, one])], (self.hidden,))
                one = self.push("tanh", [self.affine([one])], (self.hidden,))
            self.loss(many)
            self.loss(self.push("dot", [many, one], (1,)))

    # -- one random instruction of the soup

    def some(self, test: Callable[[Step], bool]) -> Optional[int]:
        """A random earlier node, recent ones preferred."""
        fits = [n for n, s in enumerate(self.steps) if s.kind != "lookup" and test(s)]
        if not fits:
            return None
        return fits[max(int(self.rng.randint(len(fits))), int(self.rng.randint(len(fits))))]

    def random_step(self) -> None:
        """Append one op of a random kind (nothing if no operands fit)."""
        kind = SOUP[int(self.rng.randint(len(SOUP)))]
        if kind in RANDOM and not self.random:
            return
        kinky = kind in ("rectify", "abs", "elu", "bmax", "max_dim")
        x = self.some(lambda s: len(s.dims) <= 2 and s.bound <= MOST and (s.exact or not kinky))
        if x is None:
            return
        step = self.steps[x]
        if kind in UNARY:
            self.push(kind, [x], step.dims, attr=self.attribute(kind))
        elif kind in ("add", "sub", "cmult", "cdiv", "bmax", "dot", "distance", "logsumexp"):
            self.two(kind, x, step, kinky)
        elif kind in ("esum", "average"):
            same = [n for n, s in enumerate(self.steps) if s.dims == step.dims and s.batch == step.batch
                    and s.kind != "lookup" and s.bound <= MOST]
            count = int(self.rng.randint(1, 6))
            self.push(kind, [same[int(self.rng.randint(len(same)))] for _ in range(count)], step.dims)
        else:
            self.shaped(kind, x, step)

    def attribute(self, kind: str) -> Any:
        """A random attribute for an elementwise op."""
        return {"elu": 0.7, "scale": float(self.rng.choice([-1.0, 0.5, 1.5])), "shift": 1.25, "dropout": 0.3,
                "noise": 0.1, "scale_gradient": -0.5}.get(kind)

    def two(self, kind: str, x: int, step: Step, kinky: bool) -> None:
        """Ops of two operands of the same dims, batch 1 against B allowed where the op allows it."""
        strict = kind in ("bmax", "cdiv")
        y = self.some(lambda s: s.dims == step.dims and s.bound <= MOST and (s.exact or not kinky)
                      and (s.batch == step.batch or (not strict and 1 in (s.batch, step.batch))))
        if y is None or (kind == "logsumexp" and step.dims[-1] == 1):
            return
        self.push(kind, [x, y], (1,) if kind in ("dot", "distance") else step.dims)

    def shaped(self, kind: str, x: int, step: Step) -> None:
        """Ops that change the shape."""
        dims, rows, push = step.dims, step.dims[0], self.push
        at = int(self.rng.randint(rows))
        if kind == "mul" and rows == self.hidden:
            push("mul", [int(self.rng.choice(self.W)), x], dims)
        elif kind == "affine" and dims == (self.hidden,):
            self.affine([x])
        elif kind == "colwise" and len(dims) == 2 and rows == self.hidden:
            push("colwise", [x, int(self.rng.choice(self.b))], dims)
        elif kind == "concatenate" and len(dims) == 1 and rows < 40:
            push("concatenate", [x, x, self.b[0]], (2 * rows + self.hidden,))
        elif kind == "pick":
            push("pick", [x], dims[1:] or (1,), attr=at)
        elif kind == "pick_range":
            push("pick_range", [x], (rows - at,) + dims[1:], attr=(at, rows))
        elif kind == "pick_dim" and len(dims) == 2:
            push("pick_dim", [x], dims[:1], attr=(int(self.rng.randint(dims[1])), 1))
        elif kind == "batch_elem" and step.batch > 1:
            push("batch_elem", [x], dims, batch=1, attr=int(self.rng.randint(step.batch)))
        elif kind == "to_batch" and step.batch == 1:
            push("to_batch", [x, x], dims, batch=2) if self.batch == 2 else None
        elif kind == "select_rows":
            push("select_rows", [x], (2,) + dims[1:], attr=(at, rows - 1))
        elif kind == "strided" and rows > 1:
            push("strided", [x], (-(-rows // 2),) + dims[1:], attr=2)
        elif kind == "reshape":
            size = int(np.prod(dims))
            push("reshape", [x], (1, size) if len(dims) == 1 else (size,), attr=(1, size) if len(dims) == 1
                else (size,))
        elif kind == "transpose" and len(dims) == 2:
            push("transpose", [x], dims[::-1])
        elif kind in ("softmax", "log_softmax"):
            push(kind, [x], dims)
        elif kind in ("sum_dim", "mean_dim", "max_dim") and len(dims) == 2:
            dim = int(self.rng.randint(2))
            push(kind, [x], dims[1:] if dim == 0 else dims[:1], attr=dim)
        elif kind == "norm" and step.kind in ("input", "param", "tanh", "logistic"):
            push("norm", [x], (1,))
        elif kind == "layer_norm" and dims == (self.hidden,) and self.hidden > 2 and step.kind in ("input",
            "affine"):
            push("layer_norm", [x, self.b[0], self.b[1]], dims)
        elif kind == "nll" and dims == (self.hidden,) and step.batch == 1:
            push("nll", [x], (1,), attr=at)
        elif kind == "sum_batches" and step.batch > 1:
            push("sum_batches", [x], dims, batch=1)

    # -- for messages

    def text(self, node: int) -> str:
        """The instructions that `node` depends on."""
        wanted, lines = {node}, []
        for n in range(node, -1, -1):
            if n not in wanted:
                continue
            step = self.steps[n]
            wanted.update(step.args)
            attr = "" if step.attr is None or isinstance(step.attr, np.ndarray) else f" {step.attr!r}"
            lines.append("  v%d = %s(%s)%s  {%s}x%d" % (n, step.kind,
                ", ".join("v%d" % i for i in step.args), attr,
                                                        ",".join(map(str, step.dims)), step.batch))
        return "\n".join(reversed(lines))


UNARY = ("tanh", "logistic", "rectify", "abs", "sin", "softplus", "elu", "erf", "neg", "scale", "shift",
    "square",
         "dropout", "noise", "nobackprop", "scale_gradient", "read")
SOUP = (
    "tanh", "tanh", "logistic", "logistic", "rectify", "abs", "sin", "softplus", "elu", "erf", "neg",
    "scale", "shift", "square", "add", "add", "sub", "cmult", "cmult", "cdiv", "bmax", "dot", "distance",
    "logsumexp", "esum", "average", "mul", "mul", "affine", "affine", "colwise", "concatenate", "pick",
    "pick_range", "pick_dim", "batch_elem", "to_batch", "select_rows", "strided", "reshape", "transpose",
    "softmax", "log_softmax", "sum_dim", "mean_dim", "max_dim", "norm", "layer_norm", "nll",
    "sum_batches", "dropout", "noise", "nobackprop", "scale_gradient",
)
PATTERNS = ("soup", "chain", "tree", "attend", "minibatch")


class Outcome(NamedTuple):
    """Everything a program computes."""

    loss: float
    values: list[np.ndarray]
    dims: list[tuple[tuple[int, ...], int]]
    grads: dict[int, np.ndarray]  # of parameters, tables and inputs


def leaf_of(dy: Any, pc: Any, step: Step, reusable: bool = False) -> Any:
    """The expression of a leaf."""
    if step.kind == "param":
        return pc.parameters_from_numpy(step.attr[..., 0])
    if step.kind == "lookup":
        return pc.lookup_parameters_from_numpy(step.attr[..., 0])
    if step.batch > 1:
        return dy.inputTensor(step.attr, batched=True, reusable_expr=reusable)
    return dy.inputTensor(step.attr[..., 0], reusable_expr=reusable)


def build(
    dy: Any,
    pc: Any,
    program: Program,
    made: list[Any],
    until: int,
    reusable: bool = False,
    reads: bool = False,
) -> None:
    """Append the expressions of steps len(made) .. until-1 to `made`; `reads` reads every fifth value."""
    for step in program.steps[len(made) : until]:
        if step.args:
            made.append(CALLS[step.kind](dy, [made[i] for i in step.args], step.attr))
        else:
            made.append(leaf_of(dy, pc, step, reusable))
        if reads and len(made) % 5 == 0:
            made[-1].npvalue()


def gradients(program: Program, made: list[Any]) -> dict[int, np.ndarray]:
    """Gradients of all leaves after a backward(full=True)."""
    leaves = [(n, s) for n, s in enumerate(program.steps[: len(made)]) if not s.args]
    found = {n: made[n].gradient() if s.kind == "input" else made[n].grad_as_array() for n, s in leaves}
    return {n: np.array(grad) for n, grad in found.items()}


def model_of(dy: Any, program: Program) -> tuple[Any, list[Any]]:
    """The program's parameters alone, to be used in many graphs; they are its first steps."""
    pc = dy.ParameterCollection()
    made: list[Any] = []
    build(dy, pc, program, made, program.parameters)
    return pc, made


def train(dy: Any, program: Program, model: list[Any]) -> float:
    """Forward and backward of one graph over parameters that exist."""
    dy.renew_cg(autobatching=True)
    made = list(model)
    build(dy, None, program, made, len(program.steps))
    loss = dy.esum([made[n] for n in program.losses])
    value = float(loss.value())
    loss.backward()
    return value


class Models:
    """Parameter objects that programs of the same sizes share: each program gets its own values."""

    def __init__(self, dy: Any) -> None:
        self.dy = dy
        self.known: dict[tuple[int, int], tuple[Any, list[Any]]] = {}

    def leaves(self, program: Program) -> list[Any]:
        """The program's parameters, with its values and no gradient."""
        sizes = (program.hidden, program.classes)
        if sizes not in self.known:
            self.known[sizes] = model_of(self.dy, program)
        made = self.known[sizes][1]
        for p, step in zip(made, program.steps):
            p.scale_gradient(0)
            if step.kind == "lookup":
                p.init_from_array(step.attr[..., 0])
            else:
                p.set_value(step.attr[..., 0])
        return list(made)


def run(
    dy: Any,
    program: Program,
    autobatching: bool,
    every_value: bool = True,
    models: Models | None = None,
    **renew: Any,
) -> Outcome:
    """Build, forward, backward, with parameters of its own or of `models`."""
    dy.renew_cg(autobatching=autobatching, **renew)
    dy.reset_random_seed(1 + program.seed % 1000)
    pc = dy.ParameterCollection()
    made = models.leaves(program) if models else []
    build(dy, pc, program, made, len(program.steps))
    loss = dy.esum([made[n] for n in program.losses])
    total = float(loss.value())
    loss.backward(full=True)
    grads = gradients(program, made)
    nodes = [(e, s) for e, s in zip(made, program.steps) if s.args] if every_value else []
    return Outcome(total, [np.asarray(e.npvalue()) for e, _ in nodes], [e.dim() for e, _ in nodes], grads)


def run_in_parts(dy: Any, program: Program, autobatching: bool, cuts: int, reads: bool = False) -> Outcome:
    """Build piece by piece; after each piece a forward and a backward of the losses so far.

    Parameter gradients add up over the backward calls, input gradients are those of the last.
    """
    dy.renew_cg(autobatching=autobatching)
    dy.reset_random_seed(1 + program.seed % 1000)
    pc = dy.ParameterCollection()
    made: list[Any] = []
    total = 0.0
    for piece in range(1, cuts + 1):
        build(dy, pc, program, made, len(program.steps) * piece // cuts, reads=reads)
        losses = [made[n] for n in program.losses if n < len(made)]
        if losses:
            loss = dy.esum(losses)
            total += float(loss.value())
            loss.backward(full=True)
    nodes = [(e, s) for e, s in zip(made, program.steps) if s.args]
    grads = gradients(program, made)
    return Outcome(total, [np.asarray(e.npvalue()) for e, _ in nodes], [e.dim() for e, _ in nodes], grads)


def run_again(dy: Any, program: Program, autobatching: bool) -> Outcome:
    """Compute with other input values first, then set() the program's own and compute again."""
    dy.renew_cg(autobatching=autobatching)
    pc = dy.ParameterCollection()
    made: list[Any] = []
    other = Program(program.seed, program.size, program.pattern)
    other.steps = [s._replace(attr=-s.attr) if s.kind == "input" else s for s in program.steps]
    build(dy, pc, other, made, len(program.steps), reusable=True)
    loss = dy.esum([made[n] for n in program.losses])
    loss.value()
    for step, e in zip(program.steps, made):
        if step.kind == "input":
            e.set(step.attr.ravel(order="F").tolist())
    total = float(loss.value())
    loss.backward(full=True)
    nodes = [(e, s) for e, s in zip(made, program.steps) if s.args]
    values = [np.asarray(e.npvalue()) for e, _ in nodes]
    return Outcome(total, values, [e.dim() for e, _ in nodes], gradients(program, made))
