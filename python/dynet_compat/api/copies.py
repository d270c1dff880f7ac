"""Copies and pickles of collections and parameters.

A collection, its sub-collections and all their parameters are one tree, and whatever of it is copied or
pickled takes the whole tree along, once: `copy.deepcopy` of an object that holds a collection, some of its
parameters and a sub-collection gives one that holds theirs of one new tree. Values, names, weight decay and
`set_updated` are copied; gradients are not.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional, Union

import numpy as np

from .. import _core
from .._core import LookupParameters, ParameterCollection, Parameters
from ..files.text_format import parameters_of

__all__: list[str] = []

_Of = Union[ParameterCollection, Parameters, LookupParameters]


class Tree:
    """A root collection with everything below it, as one object of a pickle."""

    __slots__ = ("__weakref__", "made", "root")

    def __init__(self, root: ParameterCollection) -> None:
        self.root = root
        self.made: dict[int, ParameterCollection] = {}  # sub-collections by the numbers in the pickle

    def __reduce__(self) -> tuple[Any, ...]:
        number, _, state, _, _ = _core._collection_state(self.root)
        states = [_core._parameter_state(p) for p in parameters_of(self.root)]
        return restored_tree, (number, state, _core._decay_factor(self.root), states)


_trees: weakref.WeakValueDictionary[int, Tree] = weakref.WeakValueDictionary()


def _tree_of(op: str, item: _Of) -> Tree:
    """The one of the item; equal while a copy or a pickle is being made, which holds it."""
    root, number = _core._root_of(item)
    if root is None:
        raise TypeError(f"{op}: the ParameterCollection of {item} is gone, with which it would be copied")
    tree = _trees.get(number)
    if tree is None:
        _trees[number] = tree = Tree(root)
    return tree


def restored_tree(
    number: int, state: Any, factor: float, parameters: list[tuple[str, Any, Optional[int], bool, np.ndarray]]
) -> Tree:
    """A new tree in a certain state."""
    root = _core._restore_root(state, factor)
    for name, sizes, rows, updated, values in parameters:
        _core._restore_parameter(root, name, sizes, rows, updated, values)
    tree = Tree(root)
    tree.made[number] = root
    return tree


def restored_root(tree: Tree, cls: type) -> Any:
    """The root, as an object of a class."""
    return _core._as_class(cls, tree.root)


def restored_child(tree: Tree, cls: type, number: int, parent: Any, state: Any, *places: Any) -> Any:
    """A sub-collection of the tree."""
    if number not in tree.made:
        tree.made[number] = _core._restore_child(parent, state, *places)
    return _core._as_class(cls, tree.made[number])


def restored_parameter(tree: Tree, lookup: bool, place: int) -> Any:
    """Parameters or LookupParameters of the tree."""
    return _core._parameter_at(tree.root, lookup, place)


def _reduce_collection(self: ParameterCollection) -> tuple[Any, ...]:
    """For copy and pickle: the collection with its whole tree."""
    tree = _tree_of("ParameterCollection", self)
    number, parent, *state = _core._collection_state(self)
    own = getattr(self, "__dict__", None) or None  # of a subclass
    if parent is None:
        return restored_root, (tree, type(self)), own
    return restored_child, (tree, type(self), number, parent, *state), own


def _reduce_parameter(self: Union[Parameters, LookupParameters]) -> tuple[Any, ...]:
    """For copy and pickle: the parameter with the tree of its collection."""
    tree = _tree_of(type(self).__name__, self)
    lookup = isinstance(self, LookupParameters)
    return restored_parameter, (tree, lookup, _core._parameter_index(tree.root, self))


_core._extend(ParameterCollection, "__reduce__", _reduce_collection)
_core._extend(Parameters, "__reduce__", _reduce_parameter)
_core._extend(LookupParameters, "__reduce__", _reduce_parameter)
