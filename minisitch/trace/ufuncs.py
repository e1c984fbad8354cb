"""NumPy's ufuncs: which loop they run, and which nodes that loop becomes.

In:  ``__array_ufunc__`` calls (operators arrive here, too). Out: traced arrays. The methods
``reduce`` and ``accumulate`` are here as well: ``np.sum(x)`` and ``x.sum()`` call
``np.add.reduce``.

A ufunc call has three steps, as in NumPy. *Resolve* the loop: NumPy itself is asked for the dtypes,
so promotion is NumPy's. *Settle* the operands: cast and broadcast them. *Apply* the ufunc's rule: a
primitive of ``ops.OPS``, a composition with NumPy's values, or the ``ufunc`` library op.
"""

import math
import operator
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..ops import OPS, kind_of
from .array import (
    TracedArray,
    answered,
    answers,
    bools,
    broadcast,
    cast,
    choose,
    constant,
    fresh,
    is_traced,
    is_weak,
    lift,
    method,
    normal_axes,
    normal_axis,
    operand,
    permuted,
    record,
    require,
    reshaped,
    settle,
    splat,
    traced,
)
from .recorder import current, refuse
from .scalars import Number, fitting, plain

# "__call__", "reduce", ... -> what np.add.reduce(...) does
METHODS: dict[str, Callable[..., Any]] = {}
WHOLE: dict[str, Callable[..., Any]] = {}  # ufunc name -> handler that settles its operands

# ---------------------------------------------------------------- primitives
# ufunc name -> op: the rows of the table whose meaning is a ufunc, and a few other names.
PRIMITIVES = {op.numpy.__name__: op.name for op in OPS.values()
              if op.kind == "map" and isinstance(op.numpy, np.ufunc)}
PRIMITIVES |= {"erf": "erf", "fabs": "abs", "logical_and": "and", "logical_or": "or",
               "logical_xor": "xor", "logical_not": "not"}

# What NumPy's loop does for an operand kind outside a primitive's domain.
ON_BOOL = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "fmax": "or", "fmin": "and"}
ON_INT = {"fmax": "maximum", "fmin": "minimum"}
# On a dtype that no primitive takes, these return their operand.
IDENTITY = {"positive", "conjugate", "floor", "ceil", "trunc", "absolute"}
# The ufunc that np.clip calls, which has no public name: an operand with this method gets it.
CLIP: Any = np.zeros(1).clip(type("", (), {"__array_ufunc__": lambda self, ufunc, *_, **__: ufunc})(), 1)
COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}


def _primitive(ufunc: np.ufunc, *operands: TracedArray) -> TracedArray:
    """One node. For a dtype outside the primitive's domain, an equal of NumPy's loop."""
    name = name_of(ufunc)
    if name.startswith("logical_"):
        operands = tuple(cast(each, bool) for each in operands)
    kind = kind_of(operands[0].type.dtype)
    if kind == "bool" and name in ON_BOOL:
        return record(ON_BOOL[name], *operands)
    op = ON_INT[name] if kind == "int" and name in ON_INT else PRIMITIVES.get(name)
    if op is not None and kind in OPS[op].domain:
        return record(op, *operands)
    if name in IDENTITY:
        return operands[0].copy()
    if name in ("isnan", "isinf", "isfinite"):
        return constant(name == "isfinite", operands[0].shape, bool)
    return _library(ufunc, *operands)


def _library(ufunc: np.ufunc, *operands: TracedArray) -> Any:
    """The ufunc itself, called between kernels. So every real-valued ufunc can be recorded."""
    dtypes = _resolve(ufunc, tuple(o.dtype for o in operands), None, "same_kind")[ufunc.nin:]
    results = tuple(record("ufunc", *operands, name=name_of(ufunc), output=i, dtype=dtype.name)
                    for i, dtype in enumerate(dtypes))
    return results if len(results) > 1 else results[0]


# ---------------------------------------------------------------- compositions
def _log_of_sum(x: TracedArray, y: TracedArray, log_two: float, tail: Callable[[TracedArray], TracedArray]) -> TracedArray:
    """max + tail(-|x - y|), or x + log 2 if both are equal (also infinities), as in NumPy.

    Of equal ones each is half of x, so that each has half of the derivative.
    """
    return np.where(x == y, (0.5 * x + 0.5 * y) + log_two, np.maximum(x, y) + tail(-abs(x - y)))


def _modf(x: TracedArray) -> tuple[TracedArray, TracedArray]:
    whole = np.trunc(x)
    return np.copysign(np.where(np.isinf(x), 0, x - whole), x), whole


def _scaled(x: TracedArray, above: float, below: float) -> TracedArray:
    """x * (above / below). NumPy's factor for float16 is one of float32."""
    wide = x if x.dtype == np.float64 else cast(x, np.float32)
    return cast(wide * (wide.dtype.type(above) / wide.dtype.type(below)), x.dtype)


# ufunc name -> its rule on operands of one float or integer dtype
RULES: dict[str, Callable[..., Any]] = {
    "square": lambda x: record("mul", x, x),
    "reciprocal": lambda x: 1 / x if x.dtype.kind == "f" else _library(np.reciprocal, x),
    "exp2": lambda x: 2 ** x,
    "float_power": lambda x, y: record("power", x, y),
    **dict.fromkeys(("deg2rad", "radians"), lambda x: _scaled(x, math.pi, 180)),
    **dict.fromkeys(("rad2deg", "degrees"), lambda x: _scaled(x, 180, math.pi)),
    "divmod": lambda x, y: (x // y, x % y),
}
# the same for rules of many nodes, which carry the name as ``via``
COMPOSITES: dict[str, Callable[..., Any]] = {
    "heaviside": lambda x, at_zero: np.where(np.isnan(x), x, np.where(x == 0, at_zero, x > 0)),
    "logaddexp": lambda x, y: _log_of_sum(x, y, math.log(2), lambda apart: np.log1p(np.exp(apart))),
    "logaddexp2": lambda x, y: _log_of_sum(x, y, 1.0, lambda apart: np.log1p(2 ** apart) * (1 / math.log(2))),
    "modf": _modf,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
}


# ---------------------------------------------------------------- power and mixed comparisons
def _power(ufunc: np.ufunc, x: TracedArray, exponent: Any, settled: TracedArray, root: bool) -> TracedArray:
    """Small Python exponents become products or roots, as in NumPy's fast path for 2 and 0.5.

    ``root``: NumPy takes the root here. Elsewhere it takes the power: that of -inf is inf, that of
    -0.0 is 0.0.
    """
    if x.dtype.kind in "iu":
        require(exponent >= 0)
        return x * x if exponent == 2 else record("power", x, settled)
    if x.dtype == np.float16 and exponent in (3, 4):  # one power rounds once
        return cast(_power(ufunc, cast(x, np.float32), exponent, settled, root), x.dtype)
    fast = {0: lambda: np.ones_like(x), 1: x.copy, 2: lambda: x * x, 3: lambda: x * x * x,
            4: lambda: np.square(x * x), -1: lambda: 1 / x, 0.5: lambda: np.sqrt(x) if root else choose(
                x == -math.inf, math.inf, np.sqrt(x) + 0.0, x.dtype, x.shape)}
    return fast[exponent]() if x.dtype.kind == "f" and exponent in fast else _primitive(ufunc, x, settled)


def _takes_root(x: Any, exponent: Any, dtype: np.dtype) -> bool:
    """Whether np.power takes the root if the exponent is 0.5.

    That takes one exponent for all elements, and no float16.
    """
    shape = np.shape(exponent)
    return dtype in (np.float32, np.float64) and (not shape or (np.size(exponent) == 1 and np.shape(x) not in ((), shape)))


@method
@answers(operator.pow)
def __pow__(x: TracedArray, exponent: Any) -> Any:
    """``x ** exponent``. Unlike np.power, arrays square bools and take the root of float16."""
    exponent = plain(exponent)
    if x.is_scalar and _is_scalar(exponent):
        return _power_of_scalars(x, exponent)
    if type(exponent) is int and exponent == 2:
        return np.square(x)
    half = type(exponent) is float and exponent == 0.5 and x.dtype.kind == "f"
    return np.sqrt(x) if half else NDArrayOperatorsMixin.__pow__(x, exponent)


@method
@answers(lambda x, base: base ** x)
def __rpow__(x: TracedArray, base: Any) -> Any:
    base = plain(base)
    return _power_of_scalars(base, x) if x.is_scalar and _is_scalar(base) else NDArrayOperatorsMixin.__rpow__(x, base)


@method
@answers(operator.ipow)
def __ipow__(x: TracedArray, exponent: Any) -> Any:
    return x ** exponent if x.is_scalar else deliver(x ** exponent, x)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float | np.generic) or getattr(value, "is_scalar", False)


def _power_of_scalars(base: Any, exponent: Any) -> TracedArray:
    """Scalars take no root."""
    return fresh(elementwise(np.power, [operand(base), operand(exponent)], root=False)[0].node)


def _compare_signs(name: str, x: TracedArray, y: TracedArray) -> TracedArray:
    """int64 with uint64: exact, because a negative number is found first."""
    signed, other = (x, y) if x.dtype.kind == "i" else (y, x)
    if_negative = bool(getattr(np, name)(-1, 0) if signed is x else getattr(np, name)(0, -1))
    negative = signed < 0
    plain = record(PRIMITIVES[name], cast(x, other.dtype), cast(y, other.dtype))
    return record("select", negative, constant(if_negative, x.shape, bool), plain)


def _out_of_range(name: str, operands: list[Any], dtypes: tuple[np.dtype, ...]) -> bool | None:
    """The result of comparing an integer array with a Python integer that its dtype cannot hold.

    It is the same for all elements. None for other operands.
    """
    if name not in COMPARISONS or any(isinstance(o, TracedArray) and o.dtype.kind not in "iu" for o in operands):
        return None
    for value, dtype in zip(operands, dtypes, strict=False):
        if is_weak(value) and dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            sides = [plain(o) if is_weak(o) else np.zeros((), dtype) for o in operands]
            return bool(getattr(np, name)(*sides))
    return None


# ---------------------------------------------------------------- out=
def must_be_traced(target: Any) -> None:
    """Raise TraceError for a write into a real ndarray.

    Its other names would keep the old values.
    """
    require(not isinstance(target, np.generic) and not getattr(target, "is_scalar", False))
    if not isinstance(target, TracedArray):
        raise refuse("out= or an in-place operator on a real ndarray",
                     "the program is only recorded now, so the array and its other names would "
                     "keep their old values", "Write y = x + ... instead of x += ..., start from "
                     "np.zeros_like(x), or pass the array to the traced function as an argument, "
                     "which may be changed in place")


def deliver(result: TracedArray, out: Any, casting: Any = "same_kind", where: Any = True) -> TracedArray:
    """Store a result into ``out=`` if there is one, as NumPy would.

    ``where=`` keeps the old elements of ``out`` at the other places.
    """
    if where is not True and not isinstance(out, TracedArray):
        raise refuse("where= but no traced out=", "the other places would hold no value",
                     "Pass out=np.zeros_like(x), or write np.where(condition, a, b)")
    if out is None:
        return result
    if out is Ellipsis:  # an array, also of shape ()
        return fresh(result.node, (result,), scalar=False)
    must_be_traced(out)
    require(np.can_cast(result.dtype, out.dtype, casting))
    if where is not True:
        shape = np.broadcast_shapes(np.shape(where), result.shape, out.shape)
        result = choose(bools(where), cast(result, out.dtype), out, out.dtype, shape)
    out.write(settle(result, out.dtype, out.shape).node)
    return out


def deliver_whole(result: TracedArray, out: Any, reads: Any = None) -> TracedArray:
    """``deliver`` where ``out=`` is not stretched to, and cast to as with ``astype``.

    ``reads``: the casting rule by which NumPy makes an array of the result's dtype from ``out``.
    """
    if isinstance(out, TracedArray):
        require(out.shape == result.shape and (not reads or np.can_cast(out.dtype, result.dtype, reads)))
    return deliver(result, out, "unsafe")


# ---------------------------------------------------------------- the call
@cache
def _resolve(ufunc: np.ufunc, types: tuple[Any, ...], dtype: np.dtype | None, casting: Any) -> tuple[np.dtype, ...]:
    """The dtypes of the loop NumPy would run: inputs, then outputs. Raises NumPy's TypeErrors."""
    signature = (None,) * ufunc.nin + (dtype,) * ufunc.nout
    return ufunc.resolve_dtypes(types + (None,) * ufunc.nout, signature=signature, casting=casting)


def _loop_type(value: Any) -> Any:
    """An operand as the resolver takes it: a dtype, or ``int``/``float`` for a Python scalar."""
    if isinstance(value, TracedArray):
        return value.dtype
    return np.dtype(bool) if isinstance(value, bool) else float if isinstance(value, float) else int


def name_of(ufunc: np.ufunc) -> str:
    """What graphs call a ufunc: ``add``, ``scipy.special.expit``. Empty if it is another's."""
    name = ufunc.__name__
    if ufunc is CLIP or getattr(np, name, None) is ufunc:
        return name
    special = sys.modules.get("scipy.special")
    found = special and getattr(special, name, None) is ufunc
    return "" if not found else name if name == "erf" else f"scipy.special.{name}"


def resolve(ufunc: np.ufunc, operands: list[Any], dtype: Any = None, casting: str = "same_kind") -> tuple[np.dtype, ...]:
    """``_resolve`` for operands. A dtype that graphs do not have is refused later, on use."""
    if not name_of(ufunc):
        raise refuse(f"the ufunc {ufunc.__name__}", "it is not NumPy's or scipy.special's",
                     "Write it with NumPy functions")
    of_class = isinstance(dtype, type(np.dtype))  # NumPy's source names dtypes by their class
    wanted: Any = dtype if dtype is None else dtype() if of_class else np.dtype(dtype)
    return _resolve(ufunc, tuple(map(_loop_type, operands)), wanted, casting)


@method
def __array_ufunc__(x: TracedArray, ufunc: np.ufunc, kind: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's protocol: operators, ufuncs and their methods arrive here."""
    if any(getattr(each, "__array_priority__", 0) > x.__array_priority__ for each in inputs):
        return NotImplemented  # x beside x[mask]: Masked handles it
    if kind not in METHODS:
        raise refuse(f"np.{ufunc.__name__}.{kind}", "the graph has no operation for it",
                     "Open it up into reductions, np.cumsum or np.add.at")
    if isinstance(out := options.get("out"), tuple) and len(out) == 1:
        options["out"] = out[0]
    return answered(ufunc if kind == "__call__" else getattr(ufunc, kind), partial(METHODS[kind], ufunc), inputs, options)


def call(ufunc: np.ufunc, *inputs: Any, out: Any = None, where: Any = True, dtype: Any = None,
         casting: str = "same_kind", order: str = "K", subok: bool = True) -> Any:
    """``ufunc(*inputs)``."""
    if ufunc.__name__ in WHOLE:
        return deliver(WHOLE[ufunc.__name__](*inputs, dtype=dtype), out, casting)
    if ufunc in (np.equal, np.not_equal) and any(each is None for each in inputs):  # no number is None
        shape = np.broadcast_shapes(*(() if each is None else np.shape(each) for each in inputs))
        results: tuple[TracedArray, ...] = (constant(ufunc is np.not_equal, shape, bool),)
    else:
        results = elementwise(ufunc, [*map(operand, inputs)], dtype, casting)
    outs = out if isinstance(out, tuple) else (out,) * len(results)
    results = tuple(deliver(each, o, casting, where) for each, o in zip(results, outs, strict=True))
    return results if len(results) > 1 else results[0]


def elementwise(ufunc: np.ufunc, operands: list[Any], dtype: Any = None, casting: str = "same_kind",
                root: bool = True) -> tuple[TracedArray, ...]:
    """Resolve, settle, apply. Always returns a tuple of results.

    ``root``: whether a power of 0.5 may be a root.
    """
    if ufunc.__name__ == "power":  # small exponents have rules of their own
        operands = [operands[0], plain(operands[1])]
    dtypes = resolve(ufunc, operands, dtype, casting)
    name, takes, gives = name_of(ufunc), dtypes[:ufunc.nin], dtypes[ufunc.nin:]
    like = tuple(o for o in operands if isinstance(o, TracedArray))
    shape = np.broadcast_shapes(*(o.shape for o in like))
    answer = _out_of_range(name, operands, takes)
    if answer is not None:
        return (constant(answer, shape, bool),)
    settled = [settle(o, t, shape) for o, t in zip(operands, takes, strict=True)]
    if name == "power" and takes[1].kind == "i" and not is_weak(operands[1]) and operands[1].dtype.kind == "i":
        guard(operands[1] < 0)
    root = root and name == "power" and _takes_root(operands[0], operands[1], takes[0])
    if name == "power" and is_weak(operands[1]):
        result: Any = _power(ufunc, settled[0], operands[1], settled[1], root)
    elif root:
        half = settled[1] == 0.5  # elsewhere the root of 1: that of 0 has no derivative
        result = choose(half, np.sqrt(np.where(half, settled[0], 1)), record("power", *settled), takes[0], shape)
    elif name in COMPARISONS and takes[0] != takes[1]:
        result = _compare_signs(name, *settled)
    elif name in RULES and takes[0].kind != "b":
        result = RULES[name](*settled)
    elif name in COMPOSITES:
        with current().composite(name):
            result = COMPOSITES[name](*settled)
    else:
        result = _primitive(ufunc, *settled)
    results = result if isinstance(result, tuple) else (result,)
    return tuple(fresh(cast(r, g).node, like) for r, g in zip(results, gives, strict=True))


def outer(ufunc: np.ufunc, a: Any, b: Any, **options: Any) -> Any:
    """``ufunc.outer(a, b)``: every element of one with every element of the other."""
    left, right = lift(a), lift(b)
    return call(ufunc, np.reshape(left, left.shape + (1,) * right.ndim), right, **options)


Number.__array_ufunc__ = lambda self, ufunc, kind, *inputs, **options: (  # type: ignore[assignment]
    answered(ufunc, partial(call, ufunc), inputs, options) if kind == "__call__"
    else getattr(ufunc, kind)(*map(plain, inputs), **options))


# ---------------------------------------------------------------- errors that depend on values
def assignable(value: Any, dtype: np.dtype, checked: bool = True) -> TracedArray:
    """The right side of ``x[i] = value``. NumPy itself converts a real one, with its own errors.

    ``checked``: NumPy's scalars must fit the dtype. At integer positions and masks only Python's
    must.
    """
    value = fitting(value, dtype)
    if is_traced(value) or isinstance(value, np.ndarray) or (isinstance(value, np.generic) and not checked):
        if checked and dtype.kind == "i" and isinstance(value, TracedArray) and value.is_scalar:
            _guard_range(value, np.iinfo(dtype))
        return lift(value)
    held = np.zeros(np.shape(value), dtype)
    held[...] = value
    return lift(held if held.ndim else held[()])


def _guard_range(value: TracedArray, holds: np.iinfo) -> None:
    """Guard what NumPy checks of a scalar: whether a signed dtype holds it.

    NumPy checks no arrays, and no other dtypes.
    """
    low, high = int(holds.min), int(holds.max)
    if value.dtype.kind == "f":
        whole = np.trunc(value)
        with np.errstate(over="ignore"):
            guard(~((whole >= value.dtype.type(low)) & (whole < value.dtype.type(high + 1))))
    elif value.dtype.kind in "iu" and not np.can_cast(value.dtype, holds.dtype):
        guard((value < low) | (value > high))


def guard(wrong: TracedArray) -> None:
    """NumPy raises if any of these bools holds.

    If they are known, now. Otherwise a call where one holds runs the plain function, which does.
    """
    known = wrong.recorder.known(wrong.node)
    if known is None:
        wrong.recorder.unlike(wrong.node)
    else:
        require(not known.any())


# ---------------------------------------------------------------- products
def matmul(a: Any, b: Any, dtype: Any = None) -> TracedArray:
    """``np.matmul``. The node broadcasts batch axes.

    A vector gets a second axis for the product, and loses it again.
    """
    a, b = lift(a), lift(b)
    require(a.ndim and b.ndim)
    target = resolve(np.matmul, [a, b], dtype)[0]
    left = cast(a if a.ndim > 1 else reshaped(a, (1, a.size)), target)
    right = cast(b if b.ndim > 1 else reshaped(b, (b.size, 1)), target)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, columns = left.shape[-2:-1] if a.ndim > 1 else (), right.shape[-1:] if b.ndim > 1 else ()
    return reshaped(record("matmul", left, right, like=True), (*batch, *rows, *columns))


def _with_axes(a: Any, b: Any, ranks: tuple[int, int], new_a: Any = ..., new_b: Any = ...) -> tuple[TracedArray, TracedArray]:
    """Both operands, indexed so that they get new axes."""
    a, b = lift(a), lift(b)
    require(a.ndim >= ranks[0] and b.ndim >= ranks[1])
    return a[new_a], b[new_b]


def _vecdot(a: Any, b: Any, dtype: Any = None) -> TracedArray:
    a, b = _with_axes(a, b, (1, 1))
    require(a.shape[-1] == b.shape[-1])
    products = np.multiply(a, b, dtype=dtype)
    return np.sum(products, -1, products.dtype)


WHOLE.update({
    "matmul": matmul,
    "vecdot": _vecdot,
    "matvec": lambda a, b, dtype=None: matmul(*_with_axes(a, b, (2, 1), new_b=(..., None)), dtype)[..., 0],
    "vecmat": lambda a, b, dtype=None: matmul(*_with_axes(a, b, (1, 2), new_a=(..., None, slice(None))), dtype)[..., 0, :],
})


# ---------------------------------------------------------------- elementwise, but no ufunc
def erf(x: Any) -> Any:
    """The error function, which NumPy lacks: traced for a traced array, computed for a real one."""
    if isinstance(x, TracedArray):
        return record("erf", x if x.dtype.kind == "f" else cast(x, np.float64))
    x = np.asarray(x)
    result = OPS["erf"].numpy(x if x.dtype.kind == "f" else x.astype(np.float64, casting="same_kind"))
    return result[()]


# ---------------------------------------------------------------- reduce and accumulate
FOLDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}
FOLD_ON_BOOL = {"max": "any", "min": "all", "sum": "any", "prod": "all"}
START = {"sum": -0.0, "prod": 1, "all": True, "any": False}
SCANS = {"add": "cumsum", "multiply": "cumprod"}
# Of any grouping, so two halves are folded into one. Its value on no elements.
GROUPED = {"bitwise_and": -1, "bitwise_or": 0, "bitwise_xor": 0, "logical_xor": False, "gcd": 0}


def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype that NumPy sums in. Small integers and bools widen."""
    return np.result_type(dtype, np.uint64 if dtype.kind == "u" else np.int64) if dtype.kind in "biu" else dtype


def reduce_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
                  keepdims: bool = False, initial: Any = np._NoValue,
                  where: Any = True) -> TracedArray:
    """``ufunc.reduce``: one node, after NumPy's casts and with its defaults."""
    x, name, kept = lift(a), ufunc.__name__, bool(operator.index(keepdims))
    require(out is not Ellipsis)
    if name in ("fmax", "fmin"):
        return _without_nans(np.maximum if name == "fmax" else np.minimum, x, axis, dtype, out, kept, initial, where)
    if name in GROUPED and where is True and initial in (None, np._NoValue):
        return _halved(ufunc, x, axis, dtype, out, kept)
    if name not in FOLDS:
        raise refuse(f"np.{name}.reduce", "the graph has no such reduction",
                     f"Reductions are {', '.join((*FOLDS, 'fmax', 'fmin', *GROUPED))}; "
                     "the last five take no where= and no initial=")
    # a number may be folded along an axis it lacks
    axes = () if not x.ndim and not isinstance(axis, tuple) and axis in (0, -1) else normal_axes(axis, x.ndim)
    op = FOLDS[name]
    require(op not in ("any", "all") or dtype in (None, bool))
    dtype = dtype_with(out, x) if dtype is None else dtype
    starts = op in START if initial is np._NoValue else initial is not None  # else from the first element
    if op in ("any", "all"):
        dtype = bool
    elif op in ("sum", "prod") and dtype is None:
        dtype = accumulator(x.dtype)
    x = x if dtype is None else cast(x, dtype)
    adds, empty = op == "sum" and x.dtype.kind == "f", x.size == 0 and count_of(x, axes) == 0
    if adds and (initial is None or (initial is np._NoValue and not axes)):
        initial = -0.0 if initial is None else 0.0
    first = None if initial is np._NoValue or initial is None else cast(assignable(initial, x.dtype), x.dtype)
    require((starts or (where is True and not empty)) and (first is None or not first.ndim))
    if where is not True:
        mask = bools(where)
        broadcast(mask, x.shape)  # it is not stretched to the mask
        x = choose(mask, x, cast(lift(START.get(op, first)), x.dtype), x.dtype, x.shape)
    if empty and op in ("max", "min"):  # of the initial value alone
        x = broadcast(first, [1 if i in axes else n for i, n in enumerate(x.shape)])
    if x.dtype.kind == "b":
        op = FOLD_ON_BOOL.get(op, op)
    result = record(op, x, axes=axes, keepdims=kept) if axes else fresh(x.node, (x,))
    if first is None:
        return _folded(result, out)
    total = cast(ufunc(result, first), result.dtype)
    # The graph's sum starts from 0.0, which a sum of -0.0 must not.
    if adds and axes and str(splat(first)) in ("-0.0", "None"):
        nothing = record("all", np.signbit(x) & (x == 0), axes=axes, keepdims=kept)
        total = choose(nothing, first, total, total.dtype, total.shape)
    return _folded(total, out)


def _without_nans(ufunc: np.ufunc, x: TracedArray, axis: Any, dtype: Any, out: Any, kept: bool, initial: Any,
                  where: Any) -> TracedArray:
    """``np.fmax.reduce`` with ``np.maximum``: the extreme of the others, or NaN without any."""
    if x.dtype.kind != "f":
        return reduce_method(ufunc, x, axis, dtype, out, kept, initial, where)
    holes, worst = np.isnan(x), -math.inf if ufunc is np.maximum else math.inf
    found = reduce_method(ufunc, np.where(holes, worst, x), axis, dtype or dtype_with(out, x), None, kept, initial, where)
    if initial is np._NoValue:
        nothing = reduce_method(np.logical_and, holes, axis, None, None, kept, True, where)
        found = choose(nothing, math.nan, found, found.dtype, found.shape)
    return _folded(found, out)


def _halved(ufunc: np.ufunc, x: TracedArray, axis: Any, dtype: Any, out: Any, kept: bool) -> TracedArray:
    """A reduction as element-wise work on halves, and halves of the result."""
    axes = normal_axes(axis, x.ndim)
    x = _in_loop(ufunc, x, dtype_with(out, x) if dtype is None and ufunc is not np.logical_xor else dtype)
    others = [a for a in range(x.ndim) if a not in axes]
    rows = reshaped(permuted(x, (*axes, *others)), (count_of(x, axes), *(x.shape[a] for a in others)))
    if not rows.shape[0]:
        rows = cast(constant(GROUPED[ufunc.__name__], (1, *rows.shape[1:]), np.int64), rows.dtype)
    while len(rows) > 1:
        half = len(rows) // 2
        rows = np.concatenate([ufunc(rows[:half], rows[half:2 * half]), rows[2 * half:]])
    return _folded(reshaped(rows, [1 if a in axes else x.shape[a] for a in range(x.ndim) if kept or a not in axes]), out)


def _in_loop(ufunc: np.ufunc, x: TracedArray, dtype: Any) -> TracedArray:
    """The operand in the dtype of the loop that folds it. Raises NumPy's error if there is none."""
    resolve(ufunc, [x, x], dtype)
    logical = ufunc.__name__.startswith("logical")
    require(not logical or dtype in (None, bool))
    return cast(x, bool if logical else x.dtype if dtype is None else dtype)


def _folded(result: TracedArray, out: Any) -> TracedArray:
    """``deliver_whole`` of a fold.

    NumPy folds into ``out`` itself, which must hold each partial result.
    """
    checked = isinstance(out, TracedArray) and result.dtype.kind + out.dtype.kind != "ff"
    if checked and not np.can_cast(result.dtype, out.dtype):
        raise refuse(f"a reduction of {result.dtype} into an out= of {out.dtype}", "NumPy rounds each partial result to it",
                     "Write out[...] = of the reduction")
    return deliver_whole(result, out)


def dtype_with(out: Any, x: TracedArray) -> np.dtype | None:
    """The dtype to sum in if there is an ``out=`` and no ``dtype=``."""
    return np.result_type(out.dtype, x.dtype) if isinstance(out, TracedArray) and not out.is_scalar else None


def count_of(x: TracedArray, axes: Any) -> int:
    """How many elements a reduction over ``axes`` folds into one."""
    return math.prod(x.shape[a] for a in normal_axes(axes, x.ndim))


def accumulate_method(ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> TracedArray:
    """``np.add.accumulate`` and the like. Extremes and bits are scanned in steps of 1, 2, 4 ..."""
    x, name = lift(a), ufunc.__name__
    along = normal_axis(axis, x.ndim)
    require(out is not Ellipsis)  # NumPy's methods say it so
    if name in SCANS:
        summed = cast(x, dtype or dtype_with(out, x) or accumulator(x.dtype))
        return _folded(record(SCANS[name], summed, axis=along), out)
    if name not in (*GROUPED, "maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or"):
        raise refuse(f"np.{name}.accumulate", "the graph has no such scan",
                     "Write np.cumsum, np.cumprod, or a Python loop over the axis")
    rows, step = traced.moveaxis(_in_loop(ufunc, x, dtype), along, 0).copy(), 1
    while step < len(rows):
        rows = np.concatenate([rows[:step], ufunc(rows[:-step], rows[step:])])
        step *= 2
    return _folded(traced.moveaxis(rows, 0, along).copy(), out)


METHODS.update({"__call__": call, "outer": outer, "reduce": reduce_method, "accumulate": accumulate_method})
