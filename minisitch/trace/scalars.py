"""Python numbers of a program: weakly typed scalars of the graph.

In:  a float argument, or ``x.item()``. Out: a ``Number``, which the program sees in its place.

Beside an array a number takes the array's dtype (NEP 50). Among numbers, ``+ - * / **`` and
``math.sqrt`` are nodes of float64, or of int64 for ints. Where Python would raise, or has more
digits than int64, the call runs the plain function instead. Whatever else asks for the value (``if
lr > 0``, ``int(lr)``, a shape, ``math.log``) gets it: then the number is part of the program, and
another value another program.

Before:  y = x * (1 - lr)
After:   %2 = sub 1 %lr, %3 = mul %x %2
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .recorder import Recorder

WIDE = 1 << 31  # the product of two smaller ints is an int64
NODES = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div",
         operator.pow: "power"}
STATIC = (operator.floordiv, operator.mod, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
          operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


class Number:
    """A Python number that each call has anew. ``node`` is its place in the graph.

    ``value`` is the one of the traced call, and None if only a kernel can tell.
    """

    __slots__ = ("kind", "node", "origins", "recorder", "value")
    __array_ufunc__: Callable[..., Any]  # in ufuncs
    __array_function__: Callable[..., Any]  # in creation

    def __init__(self, recorder: Recorder, node: int, kind: type, value: Any = None,
                 origins: frozenset[int] = frozenset()) -> None:
        self.recorder, self.node, self.kind, self.value = recorder, node, kind, value
        self.origins = origins  # the positions of the arguments that it is computed from

    # isinstance(lr, float) is true
    __class__ = property(lambda self: self.kind)  # type: ignore[assignment]

    def now(self) -> Any:
        """The value. From now on it is part of the program."""
        if self.value is None:
            from .refusals import refuse_value

            raise refuse_value("item", self.recorder.type(self.node))
        self.recorder.fixed |= self.origins
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self.kind, name):
            raise AttributeError(f"'{self.kind.__name__}' object has no attribute '{name}'")
        return getattr(self.now(), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.now(), dtype)

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, memo: Any) -> Number:
        return self


def plain(value: Any) -> Any:
    """The value of a ``Number``. Anything else is returned as it is."""
    return value.now() if type(value) is Number else value


def fitting(value: Any, dtype: np.dtype) -> Any:
    """A ``Number`` as it is, where a float or int64 takes any. Otherwise its value."""
    return value if type(value) is not Number or dtype.kind == "f" or dtype == value.kind else value.now()


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: function(self.now(), *args)


for _function in (float, int, bool, hash, complex, round, math.trunc, math.floor, math.ceil, format,
                  repr, str, operator.index, divmod):
    setattr(Number, f"__{_function.__name__}__", _asking(_function))
Number.__rdivmod__ = lambda self, other: divmod(other, self.now())  # type: ignore[attr-defined]


def computed(function: Callable[..., Any], left: Any, right: Any) -> Any:
    """Python arithmetic of two numbers, as a node.

    What may raise, or be no real number, is guarded.
    """
    first: Number = left if type(left) is Number else right
    recorder, values = first.recorder, [each.value if type(each) is Number else each
                                        for each in (left, right)]
    value, kinds = None, [each.kind if type(each) is Number else type(each)
                          for each in (left, right)]
    kind = float if float in kinds or function is operator.truediv else int
    known = None not in values
    if known:
        value = function(*values)  # with Python's error
    if (known and type(value) is not kind) or (function is operator.pow and float not in kinds) or (
            known and not all(isinstance(each, float) or abs(each) < WIDE for each in values)):
        return function(plain(left), plain(right))
    if function is operator.pow and not (known and values[0] > 0):
        return function(plain(left), plain(right))
    dtype = "float64" if kind is float else "int64"
    nodes = [_node(recorder, each, dtype) for each in (left, right)]
    key = NODES[function], *nodes
    if key not in recorder.scalars:  # a loop computes the same numbers again and again
        recorder.scalars[key] = recorder.add(key[0], nodes)
        _guard(recorder, function, [left, right], nodes, recorder.scalars[key])
    made = recorder.scalars[key]
    origins = frozenset().union(*(each.origins for each in (left, right) if type(each) is Number))
    return Number(recorder, made, kind, value, origins)


def _node(recorder: Recorder, value: Any, dtype: str) -> int:
    from ..graph import TensorType

    if type(value) is Number:
        return recorder.number(value, dtype)
    key = dtype, repr(value)
    if key not in recorder.scalars:
        number = float(value) if dtype == "float64" else int(value)
        recorder.scalars[key] = recorder.add("constant", type=TensorType((), dtype), value=number)
    return recorder.scalars[key]


def sqrt(x: Any, /) -> Any:
    """``math.sqrt``, which is rounded as the graph's is."""
    if type(x) is not Number:
        return math.sqrt(x)
    value, node = None if x.value is None else math.sqrt(x.value), _node(x.recorder, x, "float64")
    x.recorder.unlike(x.recorder.add("lt", (node, _node(x.recorder, 0, "float64"))))
    return Number(x.recorder, x.recorder.add("sqrt", (node,)), float, value, x.origins)


def _guard(recorder: Recorder, function: Callable, operands: list[Any], nodes: list[int],
           made: int) -> None:
    """Where Python's own arithmetic does something else, the plain function runs."""
    def unlike(op: str, *args: int) -> None:
        recorder.unlike(recorder.add(op, args))

    if function is operator.truediv and type(operands[1]) is Number:
        unlike("eq", nodes[1], _node(recorder, 0, recorder.type(nodes[1]).dtype))
    if function is operator.pow:
        if type(operands[0]) is Number:
            unlike("le", nodes[0], _node(recorder, 0, "float64"))
        unlike("not", recorder.add("isfinite", (made,)))
    for each in operands:
        if type(each) is Number and each.kind is int:
            unlike("ge", each.node, _node(recorder, WIDE, "int64"))
            unlike("le", each.node, _node(recorder, -WIDE, "int64"))


def _meets_number(other: Any) -> bool:
    return type(other) in (Number, int, float, bool)


def _arithmetic(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def operate(self: Number, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        if _meets_number(other) and function in NODES:
            return computed(function, *pair)
        array = hasattr(type(other), "__array_ufunc__") and type(other) is not Number
        return NotImplemented if array else function(*map(plain, pair))
    return operate


for _function in (*NODES, *STATIC):
    _name = _function.__name__.strip("_")
    setattr(Number, f"__{_name}__", _arithmetic(_function, False))
    if _name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Number, f"__r{_name}__", _arithmetic(_function, True))
Number.__neg__ = lambda self: computed(operator.mul, -1, self)  # type: ignore[attr-defined]
Number.__pos__ = lambda self: self  # type: ignore[attr-defined]
for _name, _function in {"abs": abs, "invert": operator.invert}.items():
    setattr(Number, f"__{_name}__", functools.partialmethod(lambda self, function: function(self.now()), _function))
