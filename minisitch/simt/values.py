"""Numba's scalars in plain Python: what ``np`` and ``math`` mean inside kernel text.

In:  nothing. Out: ``NUMPY`` and ``MATH``, which stand in for the modules, and ``scalar_type``.

Kernel text runs in Python, but must compute as Numba's compiler types it:

- Floats are NumPy scalars. So float32 arithmetic rounds to float32, and ``math.exp`` of a float32
  is a float32. If it overflows, it is infinite, and no exception is raised.
- Integers narrower than 64 bits wrap to their width only in a load, a cast, or a store. Arithmetic
  on them is 64 bits wide, and unsigned if both are. So the stepper finds an emitter that forgets to
  cast ``a + b`` back to int32.
- 64-bit integers wrap: NumPy's do themselves, and ``number`` wraps Python's.
- Booleans are Python's: two of them add up to the integer 2.
- A float literal without a dtype is a float64, and so is a quotient of integers.

Not modelled: in Numba a float32 times an integer is a float64. Here it stays a float32.
"""

import ast
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from operator import and_, floordiv, lshift, mod, or_, rshift, xor
from types import SimpleNamespace
from typing import Any

import numpy as np


def _whole(value: Any, dtype: np.dtype) -> int:
    """``value`` without its fraction. NumPy cuts it off as C does.

    For a value that the type cannot hold (nan, 1e30), C leaves the result open.
    """
    return int(np.asarray(value).astype(dtype)) if isinstance(value, float | np.floating) else int(value)


def _integer(name: str) -> Any:
    """The integer type ``name``. Making one wraps the value to its bits.

    A type narrower than 64 bits is a subclass of ``int``. ``int32(1) + int32(2)`` is an ordinary
    ``int``: as wide as Numba's 64 bits, for all values in kernels.
    """
    info = np.iinfo(name)
    low, mask = int(info.min), (1 << info.bits) - 1

    if info.bits == 64:
        def wide(value: Any = 0) -> Any:
            return info.dtype.type(((_whole(value, info.dtype) - low) & mask) + low)
        wide.__name__ = name
        return wide

    def make(cls: type, value: Any = 0) -> Any:
        return int.__new__(cls, ((_whole(value, info.dtype) - low) & mask) + low)
    wider = {method: _unsigned(getattr(int, method)) for method in ("__add__", "__sub__", "__mul__")} if low == 0 else {}
    return type(name, (int,), {"__new__": make, "__slots__": (), **wider})


def _unsigned(method: Callable[[int, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator that makes a uint64 from two unsigned integers."""
    def call(x: int, y: Any) -> Any:
        both = isinstance(y, np.unsignedinteger) or type(y) in UNSIGNED
        return NUMPY.uint64(method(int(x), int(y))) if both else method(x, y)
    return call


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMPY = SimpleNamespace(float16=np.float16, float32=np.float32, float64=np.float64, bool_=bool,
                        inf=np.inf, nan=np.nan, pi=np.pi,
                        **{name: _integer(name) for name in INTEGERS})
UNSIGNED = {NUMPY.uint8, NUMPY.uint16, NUMPY.uint32}
WIDE = {np.int64, np.uint64}
LEAST, GREATEST = -2**63, 2**63 - 1


def number(value: Any) -> Any:
    """The result of an operation in kernel text. Integers wrap to 64 bits.

    A Python float becomes a float64.
    """
    if type(value) is int and not LEAST <= value <= GREATEST:
        return ((value - LEAST) & (2**64 - 1)) + LEAST
    return np.float64(value) if type(value) is float else value


def whole(operator: Callable[[Any, Any], Any], of_left: bool = False) -> Callable[[Any, Any], Any]:
    """``operator`` of 64-bit integers, computed by Python.

    NumPy refuses uint64 with int64 and gives x // 0 a 0.

    The result is unsigned if an operand is, or (``of_left``) if the left one is.
    """
    def call(x: Any, y: Any) -> Any:
        if {type(x), type(y)} & WIDE and isinstance(x, int | np.integer) and isinstance(y, int | np.integer):
            unsigned = isinstance(x, np.uint64) or (isinstance(y, np.uint64) and not of_left)
            return (NUMPY.uint64 if unsigned else NUMPY.int64)(operator(int(x), int(y)))
        return number(operator(x, y))
    return call


def power(x: Any, y: Any) -> Any:
    """``x ** y`` in kernel text. A power of integers wraps on the way, so it is never long."""
    if isinstance(x, int) and isinstance(y, int) and y >= 0:
        return number(pow(int(x), int(y), 2**64))
    return number(x ** y)


def shifted(x: Any, bits: Any) -> Any:
    """``x << bits`` in kernel text. C leaves open what 64 bits and more give."""
    if bits >= 64:
        raise OverflowError(f"a shift by {bits} bits; an integer has 64")
    return LEFT(x, bits)


LEFT = whole(lshift, of_left=True)
# Python would make some of these integers first, however large, and NumPy refuses some operands.
OPERATORS = {ast.Pow: power, ast.LShift: shifted, ast.RShift: whole(rshift, of_left=True),
             ast.FloorDiv: whole(floordiv), ast.Mod: whole(mod), ast.BitAnd: whole(and_),
             ast.BitOr: whole(or_), ast.BitXor: whole(xor)}


def returns_nothing() -> None:
    """Ends a function that came to its end without a result."""
    raise ValueError("this function ends without a result: write return v on every way through it")


class Endless(Exception):
    """All rounds are taken.

    With ``args``: a loop whose condition reads these names, and nothing in it changes them.
    """


def forever(*names: str) -> None:
    """Begins a loop that nothing in it ends."""
    raise Endless(names)


class Widened(Exception):
    """A variable was an integer and becomes a float.

    ``args``: its name, the integer's line, the float's dtype.
    """


def kept(value: Any, name: str, line: int) -> Any:
    """``value``. A variable that is an integer first, and a float later, is a float64 in Numba."""
    if isinstance(value, np.float32 | np.float16):
        raise Widened(name, line, value.dtype.name)
    return value


class Rounds:
    """Counts the rounds of all loops, and the calls of functions, of all threads of a launch."""

    __slots__ = ("left", "passed", "work")

    def __init__(self) -> None:
        self.left = self.work = 0
        self.passed: Counter[int] = Counter()  # line -> how often its loop or function began

    def __call__(self, line: int, work: int) -> None:
        self.left -= 1
        self.work += work
        self.passed[line] += 1
        if self.left < 0:
            raise Endless


# All that kernel text can call without a module's name, apart from ``math.DEVICE_FUNCTIONS``.
BUILTINS = {"_number": number, "_float64": np.float64, "_kept": kept, "_nothing": returns_nothing, "_forever": forever,
            **{f"_{kind.__name__}": function for kind, function in OPERATORS.items()},
            "__builtins__": {}, "float": np.float64, "range": range, "min": min, "max": max, "abs": abs, "int": int, "bool": bool}


def given(value: Any) -> Any:
    """A number that the launch gives, as kernel text has it. A Python float is a float64."""
    return scalar_type(value.dtype)(value) if isinstance(value, np.generic) else number(value)


@cache
def scalar_type(dtype: np.dtype) -> Callable[[Any], Any]:
    """The function that makes a scalar of ``dtype`` in kernel text.

    It is ``np.float32``, a wrapping ``int32`` ...
    """
    return getattr(NUMPY, "bool_" if dtype.kind == "b" else dtype.name)


def dtype_of(scalar: Any) -> np.dtype:
    """The dtype of kernel text's ``np.int32``, as in ``cuda.shared.array(8, np.int32)``."""
    return np.dtype(scalar.__name__)


def _float_of(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """``function``, which NumPy lacks, with a result of its argument's float type.

    Where Python raises an error, C has an infinity or, for gamma of negative integers, nan.
    """
    def call(x: Any) -> Any:
        made = type(x) if isinstance(x, np.floating) else np.float64
        try:
            return made(function(x))
        except (ValueError, OverflowError) as error:
            undefined = function is math.gamma and isinstance(error, ValueError) and x != 0
            return made(math.nan if undefined else math.inf)
    return call


def _test_of(function: Callable[[Any], Any]) -> Callable[[Any], bool]:
    return lambda x: bool(function(x))


def _pow(x: Any, y: Any) -> Any:
    """A power, computed on arrays.

    For a scalar power of 0.5 NumPy takes the root, and -inf has none. A power of integers is a
    float64.
    """
    base = np.float64(x) if isinstance(x, int | np.integer) and isinstance(y, int | np.integer) else x
    return np.power(np.reshape(base, 1), np.reshape(y, 1))[0]


_OF_NUMPY = ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh",
             "cosh", "tanh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "fabs",
             "floor", "ceil", "trunc", "hypot", "fmod", "copysign")
MATH = SimpleNamespace(
    **{name: getattr(np, name) for name in _OF_NUMPY},
    **{name: _test_of(getattr(np, name)) for name in ("isnan", "isinf", "isfinite")},
    **{name: _float_of(getattr(math, name)) for name in ("erf", "erfc", "gamma", "lgamma")},
    pow=_pow, pi=math.pi, e=math.e, inf=math.inf, nan=math.nan,
)
