"""Nested arguments and results: what is an array in them, and how to put them together again.

In:  a nest of tuples, named tuples, lists and dicts. Out: its array leaves in order, and a ``Tree``:
the nest with a position in place of each array. Trees are frozen, hashable and picklable, so a tree is
half of a compile cache's key; the other half is the ``TensorType`` of each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..graph import TensorType
from .recorder import refuse


@dataclass(frozen=True)
class Leaf:
    """The array at ``position`` of the flat list."""

    position: int


@dataclass(frozen=True)
class Static:
    """A value that is part of the program: a Python scalar, None, a string, a function ...

    ``key`` tells apart what ``==`` does not (1 from True, 0.0 from -0.0) and makes nan equal to itself.
    """

    value: Any = field(compare=False)
    key: Hashable


@dataclass(frozen=True)
class Branch:
    """A container: its class (``tuple``, ``list``, ``dict`` or a named tuple's), a dict's keys, its children."""

    container: type
    keys: tuple[Hashable, ...]
    children: tuple[Tree, ...]


Tree = Leaf | Static | Branch


def is_array(value: object) -> bool:
    """Does a value become an input? NumPy arrays and scalars, abstract types, other libraries' arrays."""
    return isinstance(value, np.ndarray | np.generic | TensorType) or (
        hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type))


def refuse_other_meanings(array: Any) -> None:
    """Raises TraceError for a masked array or a matrix, whose operators do not mean what an array's do."""
    if type(array) is np.ndarray or not isinstance(array, np.ndarray):
        return  # without asking for numpy.ma, which would be imported
    if isinstance(array, np.ma.MaskedArray | np.matrix):
        raise refuse(f"a {type(array).__name__} among the arrays", "its operators mean something else than an array's, which is "
                     "all that is compiled", "Pass np.asarray(it), and a mask as an array of its own")


def type_of(leaf: Any) -> TensorType:
    """Shape and dtype of an array leaf; also of arrays that are not NumPy's (CuPy, Torch, Numba)."""
    if isinstance(leaf, TensorType):
        return leaf
    dtype = leaf.dtype if isinstance(leaf.dtype, np.dtype) else str(leaf.dtype).removeprefix("torch.")
    try:
        return TensorType(tuple(map(int, leaf.shape)), np.dtype(dtype).name)
    except TypeError:  # bfloat16, say
        raise refuse(f"an array of {dtype}", "NumPy does not know it", "Convert it first, to float32 for example") from None


def flatten(value: Any, is_leaf: Callable[[object], bool] = is_array) -> tuple[list[Any], Tree]:
    """The array leaves in order (dicts in insertion order), and the tree they hang on.

    ``(x, {"w": w}, 3)``  ->  ``[x, w]``, ``(Leaf(0), {"w": Leaf(1)}, Static(3))``
    """
    leaves: list[Any] = []
    return leaves, _tree(value, is_leaf, leaves)


def _tree(value: Any, is_leaf: Callable[[object], bool], leaves: list[Any]) -> Tree:
    if is_leaf(value):
        leaves.append(value)
        return Leaf(len(leaves) - 1)
    if isinstance(value, dict):
        return Branch(dict, tuple(value), tuple(_tree(v, is_leaf, leaves) for v in value.values()))
    if isinstance(value, list | tuple):
        return Branch(type(value), (), tuple(_tree(v, is_leaf, leaves) for v in value))
    return Static(value, _static_key(value))


def _static_key(value: Any) -> Hashable:
    if isinstance(value, bool | int | float):
        return type(value).__name__, repr(value)
    try:
        hash(value)
    except TypeError:  # a model object with __eq__, a set: the same object is the same program
        return type(value).__name__, id(value)
    return value


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The nest again, with ``leaves`` in the places of its arrays; the inverse of ``flatten``.

    An array that is part of the program is copied, so that what one caller does to it the next does not see.
    """
    if isinstance(tree, Leaf):
        return leaves[tree.position]
    if isinstance(tree, Static):
        return tree.value.copy() if isinstance(tree.value, np.ndarray) else tree.value
    children = [unflatten(child, leaves) for child in tree.children]
    if tree.container is dict:
        return dict(zip(tree.keys, children, strict=True))
    return tree.container(*children) if hasattr(tree.container, "_fields") else tree.container(children)


def leaf_names(tree: Tree, name: str = "") -> Iterator[str]:
    """A printable path for each leaf in order: ``params.w1``, ``layers.0.bias``."""
    return (path for path, part in named_parts(tree, name) if isinstance(part, Leaf))


def named_parts(tree: Tree, name: str = "") -> Iterator[tuple[str, Leaf | Static]]:
    """Each leaf and each static value in order, with its path."""
    if not isinstance(tree, Branch):
        yield name, tree
        return
    keys: Sequence[Any] = tree.keys or getattr(tree.container, "_fields", ()) or range(len(tree.children))
    for key, child in zip(keys, tree.children, strict=True):
        yield from named_parts(child, f"{name}.{key}" if name else str(key))


def with_statics(tree: Tree, of: Callable[[Any], Any]) -> Tree:
    """The same nest, in which another value stands for each that is part of the program."""
    if isinstance(tree, Branch):
        return replace(tree, children=tuple(with_statics(child, of) for child in tree.children))
    if isinstance(tree, Leaf) or (value := of(tree.value)) is tree.value:
        return tree
    return Static(value, _static_key(value))
