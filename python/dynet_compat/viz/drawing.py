"""The drawing itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

from .nodes import Expression, SimpleConcreteDim, VizDim, graphviz_items


class GVNode:
    """A node of the drawing."""

    def __init__(
        self,
        name: str,
        input_dim: Any,
        label: str,
        output_dim: VizDim,
        children: Iterable[str],
        features: Sequence[str],
        node_type: str,
        expr_name: Optional[str],
    ) -> None:
        self.name, self.input_dim, self.label, self.output_dim = name, input_dim, label, output_dim
        self.children, self.features, self.node_type = list(children), list(features), node_type
        self.expr_name = expr_name

    def __iter__(self) -> Iterator[Any]:
        return iter(
            (self.name, self.input_dim, self.label, self.output_dim, self.children, self.features,
             self.node_type, self.expr_name)
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"GVNode({', '.join(map(str, self))})"

    def __str__(self) -> str:
        return repr(self)

    def __lt__(self, other: GVNode) -> bool:
        return self.name < other.name


def shape_str(e_dim: VizDim) -> str:
    """Sizes as a label shows them: {3} or {3,4}; {?} if inferred or invalid ones are unknown."""
    if not isinstance(e_dim, SimpleConcreteDim):
        return "{" + str(e_dim) + "}"
    return f"{{{e_dim.nrows}}}" if e_dim.ncols == 1 else f"{{{e_dim.nrows},{e_dim.ncols}}}"


def _name_of(e: Expression) -> str:
    return f"N{e.vindex}"


def _label_of(e: Expression, compact: bool, names: dict[Any, str], lookup_names: dict[Any, Any]) -> str:
    if e.name in ("parameters", "lookup_parameters"):
        return names.get(e, e.name)
    if e.state_of is not None:
        return str(e.state_of.whoami())
    plain = [a for a in e.args if not isinstance(a, Expression)]
    if e.name.startswith("lookup") and e.args[0] in lookup_names:
        words: Any = lookup_names[e.args[0]]
        plain = [words[plain[0]]] if isinstance(plain[0], int) else [[words[i] for i in plain[0]]]
    if compact or not plain:
        return e.name
    return f"{e.name}({', '.join(str(a) for a in plain)})"


def make_network_graph(
    compact: bool, expression_names: Optional[dict[Any, str]], lookup_names: Optional[dict[Any, Any]]
) -> list[GVNode]:
    """The nodes of the present graph, parameters included. `compact`: labels without numbers."""
    names, words = expression_names or {}, lookup_names or {}
    found: dict[int, GVNode] = {}

    def visit(e: Expression) -> None:
        if e.vindex in found:
            return
        arguments = [a for a in e.args if isinstance(a, Expression)]
        for argument in arguments:
            visit(argument)
        kind = "param" if e.name.endswith("parameters") else "rnn" if e.state_of is not None else "op"
        features = ["invalid"] * e.dim.invalid()
        found[e.vindex] = GVNode(
            _name_of(e), [a.dim for a in arguments], _label_of(e, compact, names, words), e.dim,
            [_name_of(a) for a in arguments], features, kind, names.get(e),
        )  # fmt: skip

    for item in graphviz_items:
        visit(item)
    return [found[index] for index in sorted(found)]


def parents_of(n: GVNode, nodes: Iterable[GVNode]) -> list[GVNode]:
    """The nodes that have n as an argument."""
    return [node for node in nodes if n.name in node.children]


def collapse_birnn_states(nodes: list[GVNode], compact: bool) -> list[GVNode]:
    """The two states of a position of a bidirectional network, and what joins them, as one node."""
    by_name = {node.name: node for node in nodes}
    merged: dict[str, str] = {}
    gone: set[str] = set()
    for node in nodes:
        states = [by_name[c] for c in node.children if by_name[c].node_type == "rnn"]
        if node.label != "concatenate" or len(states) != 2 or len(node.children) != 2:
            continue
        if any(len([p for p in parents_of(s, nodes) if p.node_type != "rnn"]) != 1 for s in states):
            continue
        inputs = [c for s in states for c in s.children if by_name[c].node_type != "rnn"]
        node.children = list(dict.fromkeys(inputs))
        node.label, node.node_type = "birnn" if compact else f"Bi{states[0].label}", "rnn"
        gone.update(s.name for s in states)
        merged.update({s.name: node.name for s in states})
    kept = [node for node in nodes if node.name not in gone]
    for node in kept:
        node.children = [merged.get(c, c) for c in node.children if merged.get(c) != node.name]
    return kept


_SHAPES = {"param": "shape=ellipse", "rnn": "shape=box,peripheries=2", "op": "shape=box"}


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
    nodes = make_network_graph(compact, expression_names, lookup_names)
    if collapse_birnns:
        nodes = collapse_birnn_states(nodes, compact)
    kinds = {node.name: node.node_type for node in nodes}
    print("digraph G {\n  rankdir=BT;\n  nodesep=.05;")
    for node in nodes:
        label = node.label if node.expr_name in (None, node.label) else f"{node.expr_name}: {node.label}"
        if show_dims:
            label += f"\\n{shape_str(node.output_dim)}"
        label = label.replace('"', '\\"')
        color = ",style=filled,fillcolor=red" if "invalid" in node.features else ""
        print(f'  {node.name} [label="{label}",{_SHAPES[node.node_type]}{color}];')
        for child in node.children:
            dotted = " [style=dotted]" if node.node_type == kinds[child] == "rnn" else ""
            print(f"  {child} -> {node.name}{dotted};")
    print("}")
