"""Nested arguments and results: take them apart into arrays, and put them together again.

In:  a nest of tuples, lists and dicts, and of their subclasses. Out: its array leaves in order, and
a ``Tree``: the nest with a position in place of each array. Trees are frozen, hashable and
picklable. A tree is half of a compile cache's key, and the leaves' ``TensorType``s are the other
half.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import BuiltinMethodType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy as np

from ..graph import TensorType
from .recorder import refuse


@dataclass(frozen=True)
class Leaf:
    """The array at ``position`` of the flat list. ``scalar``: it is a NumPy scalar.

    ``number``: if a Python number is there instead, its type.
    """

    position: int
    scalar: bool = False
    number: str = ""


@dataclass(frozen=True)
class Static:
    """A value that is part of the program: a Python scalar, None, a string, a function ...

    ``key`` distinguishes what ``==`` does not (1 from True, 0.0 from -0.0), and makes nan equal
    itself.
    """

    value: Any = field(compare=False)
    key: Hashable


@dataclass(frozen=True)
class Branch:
    """A container: its class, a dict's keys, its children, and an object's attributes.

    ``told`` distinguishes keys that are equal, such as 2 and 2.0.
    """

    container: type
    keys: tuple[Hashable, ...]
    children: tuple[Tree, ...]
    attributes: tuple[str, ...] = ()  # their values are the last children
    told: tuple[Hashable, ...] = ()

    def build(self, parts: Sequence[Any]) -> Any:
        """A container of this kind with other children."""
        values = parts[:len(parts) - len(self.attributes)]
        if issubclass(self.container, dict):
            made = self.container.__new__(self.container)
            put = OrderedDict.__setitem__ if isinstance(made, OrderedDict) else dict.__setitem__
            for key, value in zip(self.keys, values, strict=True):
                put(made, key, value)
        elif issubclass(self.container, list):
            made = self.container.__new__(self.container)
            list.extend(made, values)
        else:
            made = getattr(self.container, "_make", self._new)(values)
        for name, value in zip(self.attributes, parts[len(values):], strict=True):
            setattr(made, name, value)
        return made

    def _new(self, values: Sequence[Any]) -> Any:
        try:
            return self.container.__new__(self.container, values)
        except TypeError as error:
            raise refuse(f"a {self.container.__name__}", f"it cannot be made again with other elements ({error})",
                         "Pass a plain tuple, or give the class a method _make") from None


Tree = Leaf | Static | Branch
METHODS = (MethodType, MethodWrapperType, BuiltinMethodType)
MOST = 1 << 63  # larger ints have no dtype


def is_array(value: object) -> bool:
    """Whether a value becomes an input: NumPy arrays and scalars, types, arrays of devices (CuPy, PyTorch, Numba).

    Raises TraceError for what only looks like an array, such as a column of pandas: its operators
    and methods are its own.
    """
    if isinstance(value, np.ndarray | np.generic | TensorType):
        return True
    if isinstance(value, type | ModuleType | dict | list | tuple) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return False
    if hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"):
        return True
    if type(value).__module__.startswith(__name__.partition(".")[0]):
        return False
    name = type(value).__name__
    raise refuse(f"a {name} among the arguments", "it is no array, and its operators and methods are its own",
                 "Pass it as an array: value.to_numpy() of pandas, value.toarray() of a sparse matrix")


@dataclass
class Numbers:
    """Which Python numbers among the arguments are inputs, by their places in ``flatten``'s order.

    Floats are inputs, except those in ``fixed``, whose values the program asks for. Ints are part
    of the program until they have ``varied``.
    """

    fixed: set[int] = field(default_factory=set)
    varied: Container[int] = frozenset()


class Inputs:
    """Decides which values become inputs: arrays, and the numbers in ``numbers``.

    To be called once for each value, in order.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers, self._count = numbers, 0
        self.places: list[int] = []  # the places of numbers that become inputs

    def __call__(self, value: object) -> bool:
        if type(value) is not float and type(value) is not int:
            return is_array(value)
        place, self._count = self._count, self._count + 1
        is_input = isinstance(value, float) or (place in self.numbers.varied and -MOST <= value < MOST)
        takes = is_input and place not in self.numbers.fixed
        if takes:
            self.places.append(place)
        return takes


def refuse_other_meanings(array: Any) -> None:
    """Raise TraceError for an array of a subclass, such as a masked array or a matrix.

    Its operators may mean something else, and results would be of its class. A memory-mapped array
    is fine: it computes as an array, and gives plain arrays.
    """
    if issubclass(type(array), np.ndarray) and type(array) not in (np.ndarray, np.memmap):
        raise refuse(f"a {type(array).__name__} among the arrays", "its operators differ from an "
                     "array's, and only plain arrays are compiled",
                     "Pass np.asarray(it), and a mask as an array of its own")


def type_of(leaf: Any) -> TensorType:
    """Shape and dtype of an array leaf, also of one that is not NumPy's (CuPy, Torch, Numba)."""
    if isinstance(leaf, TensorType):
        return leaf
    if isinstance(leaf, float) and not isinstance(leaf, np.generic):
        return TensorType((), "float64")
    if type(leaf) is int:
        return TensorType((), "int64")
    dtype = leaf.dtype if isinstance(leaf.dtype, np.dtype) else str(leaf.dtype).removeprefix("torch.")
    try:
        return TensorType(tuple(map(int, leaf.shape)), np.dtype(dtype).name)
    except TypeError:  # for example bfloat16
        raise refuse(f"an array of {dtype}", "NumPy does not know it", "Convert it first, to float32 for example") from None


def is_argument(value: object) -> bool:
    """Whether a value becomes an input: arrays, and Python floats."""
    return type(value) is float or is_array(value)


def flatten(value: Any, is_leaf: Callable[[object], bool] = is_argument) -> tuple[list[Any], Tree]:
    """The array leaves in order (dicts in insertion order), and the tree that holds them.

    ``(x, {"w": w}, 3)``  ->  ``[x, w]``, ``(Leaf(0), {"w": Leaf(1)}, Static(3))``
    """
    leaves: list[Any] = []
    return leaves, _tree(value, is_leaf, leaves)


def require_end(args: Sequence[Any], kwargs: Mapping[str, Any], what: str = "argument ",
                is_leaf: Callable[[object], bool] = is_argument) -> None:
    """Raise TraceError for a nest that holds itself, or has more levels than Python can follow."""
    for name, part in (*enumerate(args, 1), *kwargs.items()):
        try:
            flatten(part, is_leaf)
        except RecursionError:
            raise refuse(f"{what}{name}, a {type(part).__name__}",
                         "it holds itself, or has too many levels", "Take a list, tuple or dict of "
                         "arrays, or of a few levels of them") from None


def _tree(value: Any, is_leaf: Callable[[object], bool], leaves: list[Any]) -> Tree:
    if is_leaf(value):
        leaves.append(value)
        number = value.__class__.__name__ if value.__class__ in (float, int) else ""
        return Leaf(len(leaves) - 1, getattr(value, "is_scalar", isinstance(value, np.generic)), number)
    if not isinstance(value, dict | list | tuple):
        return Static(value, _static_key(value))
    keys = _keys(value) if isinstance(value, dict) else []
    parts = [dict.__getitem__(value, key) for key in keys] if isinstance(value, dict) else value
    own = {} if type(value) in (dict, list, tuple) else _attributes(value)
    children = tuple(_tree(part, is_leaf, leaves) for part in (*parts, *own.values()))
    return Branch(type(value), tuple(keys), children, tuple(own), told(keys))


def _keys(value: dict[Any, Any]) -> list[Any]:
    """The keys in the order of the dict's own protocol:

    ``OrderedDict.move_to_end`` changes only that.
    """
    return [*OrderedDict.keys(value)] if isinstance(value, OrderedDict) else [*dict.keys(value)]


def told(keys: Sequence[Any]) -> tuple[Hashable, ...]:
    """What distinguishes keys that are equal: 2, 2.0 and True. Texts need nothing."""
    return () if {*map(type, keys)} <= {str} else tuple((type(key), repr(key) if isinstance(key, float | complex | tuple) else "")
                                                         for key in keys)


def _attributes(value: Any) -> dict[str, Any]:
    """What an object of a subclass of dict, list or tuple holds besides its elements."""
    names = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    made = {"default_factory": value.default_factory} if isinstance(value, defaultdict) else {}
    return made | slots | getattr(value, "__dict__", {})


def _static_key(value: Any) -> Hashable:
    kind = type(value)
    if kind in (bool, int, float, complex):
        return kind, repr(value)
    if isinstance(value, np.ndarray):
        return kind, value.shape, value.dtype.str, value.tobytes()
    if kind is slice:
        return kind, _static_key(value.start), _static_key(value.stop), _static_key(value.step)
    try:
        hash(value)
    # A model object with __eq__, a set: the same object is the same program.
    except (TypeError, ValueError):
        return kind, id(value)
    if kind in (str, *METHODS) or kind.__hash__ is object.__hash__:  # nothing else is equal
        return value
    # equal values may differ in what the program reads of them
    own = getattr(value, "__dict__", {})
    held = {name: id(x) if hasattr(x, "__dict__") else _static_key(x) for name, x in own.items()}
    told = repr(value) if isinstance(value, float | complex) or not own else ""
    return kind, value, told, *held.items()


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The nest with ``leaves`` in the places of its arrays: the inverse of ``flatten``.

    An array that is part of the program is copied, so that no caller sees what another one does to
    it. A value that NumPy has as a scalar is a scalar.
    """
    if isinstance(tree, Leaf):
        leaf = leaves[tree.position]
        if tree.number and isinstance(leaf, np.ndarray | np.generic):
            return leaf.item()
        return leaf[()] if tree.scalar and isinstance(leaf, np.ndarray) else leaf
    if isinstance(tree, Static):
        return tree.value.copy() if isinstance(tree.value, np.ndarray) else tree.value
    return tree.build([unflatten(child, leaves) for child in tree.children])


def named_parts(tree: Tree, name: str = "") -> Iterator[tuple[str, Leaf | Static]]:
    """Each leaf and each static value in order, with its path."""
    if not isinstance(tree, Branch):
        yield name, tree
        return
    held = len(tree.children) - len(tree.attributes)
    keys: Sequence[Any] = tree.keys or getattr(tree.container, "_fields", ()) or range(held)
    for key, child in zip((*keys, *tree.attributes), tree.children, strict=True):
        yield from named_parts(child, f"{name}.{key}" if name else str(key))


def with_statics(tree: Tree, of: Callable[[Any], Any]) -> Tree:
    """The same nest, with ``of(value)`` in place of each static value."""
    if isinstance(tree, Branch):
        return replace(tree, children=tuple(with_statics(child, of) for child in tree.children))
    if isinstance(tree, Leaf) or (value := of(tree.value)) is tree.value:
        return tree
    return Static(value, _static_key(value))
