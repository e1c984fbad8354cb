"""Python numbers among the arguments: a new learning rate does not make a new program.

In:  a float argument. Out: a ``Number``, which the program sees in its place, and the lines of
Python that compute with it at each call.

Arithmetic of Python numbers stays Python's: each call runs it, in the reader (see ``reads``). So
its bits, types and errors are Python's. A number beside an array is an input of the graph, and
takes the array's dtype (NEP 50). Code that needs the value (``if lr > 0``, ``int(lr)``, a shape,
``x ** p``) gets it. If a later call has another value there, the function is traced again.

Before:  y = x * (1 - lr)
After:   n1 = 1 - n0 in the reader, and %2 = mul %0 %1 in the graph, where %1 is n1
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

ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
              "pow": "**", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


class Number:
    """A Python number that each call computes anew.

    ``name`` is its name in the reader's lines, and ``node`` its input in the graph, if any.
    """

    __slots__ = ("name", "node", "origins", "recorder", "value")
    __array_ufunc__: Callable[..., Any]  # in ufuncs
    __array_function__: Callable[..., Any]  # in shim

    def __init__(self, recorder: Recorder, name: str, value: float, origins: frozenset[int], node: int | None = None) -> None:
        self.recorder, self.name, self.value, self.node = recorder, name, value, node
        self.origins = origins  # the positions of the arguments that it is computed from

    # isinstance(lr, float) is true
    __class__ = property(lambda self: type(self.value))  # type: ignore[assignment]

    def now(self) -> Any:
        """The value. From now on a call with another value traces again."""
        self.recorder.fixed |= self.origins
        self.recorder.require(self.name, self.value)
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self.__class__, name):
            raise AttributeError(f"'{self.__class__.__name__}' object has no attribute '{name}'")
        return getattr(self.now(), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.now(), dtype)

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, memo: Any) -> Number:
        return self


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: function(self.now(), *args)


for _function in (float, int, bool, hash, complex, round, math.trunc, math.floor, math.ceil, format,
                  repr, str, operator.index, divmod):
    setattr(Number, f"__{_function.__name__}__", _asking(_function))
Number.__rdivmod__ = lambda self, other: divmod(other, self.now())  # type: ignore[attr-defined]


def plain(value: Any) -> Any:
    """The value of a ``Number``. Anything else is returned as it is."""
    return value.now() if type(value) is Number else value


def fitting(value: Any, dtype: np.dtype) -> Any:
    """A ``Number`` as it is, if an integer dtype holds it at this call.

    At a call where it does not, the function is traced again.

    Otherwise its value. Anything else is returned as it is.
    """
    if type(value) is not Number or dtype.kind == "f":
        return value
    holds = np.iinfo(np.int64 if dtype.kind == "b" else dtype)
    return value if int(holds.min) - 1 < value < int(holds.max) + 1 else value.now()


def computed(text: str, function: Callable[..., Any], *operands: Any) -> Any:
    """The result of Python arithmetic on numbers, computed at each call.

    ``text``: the expression, with a place for each operand. Raises Python's errors. A result that
    is not a real number is computed now.
    """
    recorder = next(each.recorder for each in operands if type(each) is Number)
    value = function(*(each.value if type(each) is Number else each for each in operands))
    if type(value) not in (int, float):
        return function(*map(plain, operands))
    named = [each.name if type(each) is Number else recorder.spelled(each) for each in operands]
    origins = frozenset().union(*(each.origins for each in operands if type(each) is Number))
    made = Number(recorder, recorder.line(text.format(*named)), value, origins)
    if function is operator.pow:  # the power of a negative number may be complex
        recorder.require(f"{made.name}.__class__", type(value))
    return made


def _meets_number(other: Any) -> bool:
    return type(other) in (Number, int, float, bool)


def _arithmetic(symbol: str, function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def operate(self: Number, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        if _meets_number(other):
            return computed(f"{{}} {symbol} {{}}", function, *pair)
        return NotImplemented if hasattr(type(other), "__array_ufunc__") else function(*map(plain, pair))
    return operate


def _comparison(symbol: str, function: Callable[..., bool]) -> Callable[..., Any]:
    def compare(self: Number, other: Any) -> Any:
        if not _meets_number(other):
            return NotImplemented if hasattr(type(other), "__array_ufunc__") else function(self.now(), other)
        value = function(self.value, other.value if type(other) is Number else other)
        named = other.name if type(other) is Number else self.recorder.spelled(other)
        self.recorder.require(f"({self.name} {symbol} {named})", value)
        return value
    return compare


for _name, _symbol in ARITHMETIC.items():
    _function = getattr(operator, f"__{_name}__")
    setattr(Number, f"__{_name}__", _arithmetic(_symbol, _function, False))
    setattr(Number, f"__r{_name}__", _arithmetic(_symbol, _function, True))
for _name, _symbol in COMPARISONS.items():
    setattr(Number, f"__{_name}__", _comparison(_symbol, getattr(operator, _name)))
for _name, _symbol in {"neg": "-{}", "pos": "+{}", "invert": "~{}", "abs": "abs({})"}.items():
    setattr(Number, f"__{_name}__", functools.partialmethod(lambda self, text, function: computed(text, function, self),
                                                            _symbol, getattr(operator, _name)))


def of_math(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``math`` that computes with numbers at each call."""
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and Number in map(type, args) and all(map(_meets_number, args)):
            return computed(f"math.{function.__name__}({', '.join('{}' for _ in args)})", function, *args)
        return function(*args, **kwargs)
    return called


MATH = {x: of_math(x) for name, x in vars(math).items() if callable(x) and not name.startswith("_")}
