"""A NumPy for traced functions: creation functions that return traced arrays.

In:  a Python function. Out: a copy of it whose global ``np`` is a stand-in.

72 of NumPy's functions never dispatch on their arguments (``np.zeros``, ``np.asarray``,
``np.arange`` ...). A buffer from ``np.zeros`` is a real array, and writing a traced value into it
cannot be recorded. So ``trace`` runs a copy of the function, with the same code but with other
globals. In them a stand-in replaces ``numpy``, and the other functions of the module are copied,
too. The user's module is left as it is.

The same copying serves functions of NumPy that have no handler. Most are written in Python on top
of others (``np.gradient``, ``np.cross``, ``np.kron``). They can be traced once their own
``asarray`` lets a traced array through.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import re
import types
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TraceError
from .array import (
    FUNCTIONS,
    OUTSIDE,
    TracedArray,
    answers,
    as_numpy_raises,
    cast,
    common_dtype,
    constant,
    fresh,
    handles,
    iota,
    is_traced,
    lies_in_rows,
    lift,
    method,
    operand,
    record,
    settle,
    strides_of,
)
from .methods import members
from .numbers import MATH, Number, plain
from .recorder import current, refuse, user_file
from .refusals import AGAIN, APART, ASK, COUNT, DRAWN, LOST, REMEDIES
from .shapes import shape_of
from .tree import flatten, unflatten

if TYPE_CHECKING:
    from .outside import Outside

OVERRIDES: dict[Callable, Callable] = {}  # NumPy's function -> what a traced function sees instead


def replaces(*functions: Callable) -> Callable[[Callable], Callable]:
    """Register the stand-in of functions that never dispatch."""
    def register(stand_in: Callable) -> Callable:
        OVERRIDES.update(dict.fromkeys(functions, answers(functions[0])(stand_in)))
        return stand_in
    return register


# ---------------------------------------------------------------- creation
@replaces(np.full)
def full(shape, fill_value, dtype=None, order="C", *, device=None, like=None):
    """A buffer with one value: an array, not a scalar, so that it can be written to."""
    value = operand(fill_value)
    dtype = common_dtype(value) if dtype is None else dtype
    return fresh(settle(value, dtype, shape_of(shape)).node, lies_in_rows(order), scalar=False)


@handles(np.empty_like)
def empty_like(prototype, dtype=None, order="K", subok=True, shape=None, *, device=None):
    like = lift(prototype)
    empty = constant(0, like.shape if shape is None else shape_of(shape), dtype or like.dtype)
    # an unknown layout counts as rows, which it nearly always is
    unknown = order in ("A", "K") and like.strides_in_elements is None
    return fresh(empty.node, unknown or lies_in_rows(order, like), scalar=False)


@replaces(np.zeros, np.empty)
def zeros(shape, dtype=None, order="C", *, device=None, like=None):
    return full(shape, 0, dtype or float, order)


@replaces(np.ones)
def ones(shape, dtype=None, order="C", *, device=None, like=None):
    return full(shape, 1, dtype or float, order)


def _diagonals(op: str, N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C", **options: Any) -> TracedArray:
    """Ones where ``row + k op column``."""
    shape = shape_of((N, N if M is None else M))
    rows, columns = iota(shape, 0), iota(shape, 1)
    return cast(record(op, rows + k if k else rows, columns), dtype or float)


replaces(np.eye)(functools.partial(_diagonals, "eq"))
replaces(np.tri)(functools.partial(_diagonals, "ge"))
replaces(np.identity)(lambda n, dtype=float, *, like=None: _diagonals("eq", n, dtype=dtype))


@replaces(np.arange)
def arange(*args, dtype=None, device=None, like=None, **named):
    """Integers become an iota, scaled and shifted if needed. Other numbers are NumPy's array."""
    args, named, dtype = tuple(map(plain, args)), {key: plain(each) for key, each in named.items()}, plain(dtype)
    if any(map(is_traced, (*args, *named.values()))):
        raise refuse("np.arange with a traced number", "its length depends on values",
                     "Pass the number as a Python int, n and not np.int64(n): "
                     "it is part of the program then")
    values = np.arange(*args, dtype=dtype, **named)
    if values.dtype.kind not in "iu" or values.size < 2:
        return values
    start, step = int(values[0]), int(values[1]) - int(values[0])
    result = iota(values.shape, 0, values.dtype.name)
    if step != 1:
        # -1 wraps in an unsigned dtype
        result = record("mul", result, constant(np.int64(step), values.shape, values.dtype))
    return record("add", result, constant(start, values.shape, values.dtype)) if start else result


@replaces(np.array)
def array(object, dtype=None, *, copy=True, order="K", subok=False, ndmin=0, like=None):
    """A copy of a traced array, or a stack of a list with one in it. Otherwise NumPy's array."""
    object = _said(object)
    if not is_traced(object):
        return np.array(object, dtype=dtype, copy=copy, order=order, subok=subok, ndmin=ndmin)
    result = lift(object) if dtype is None else cast(lift(object), dtype)
    if result is not object or copy or result.is_scalar:
        result = fresh(result.node, lies_in_rows(order, result), scalar=False)
    elif result.ndim and order in ("C", "F"):
        result = asfortranarray(result) if order == "F" else ascontiguousarray(result)
    if copy is False and result is not object:
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    return np.reshape(result, (1,) * (ndmin - result.ndim) + result.shape) if result.ndim < ndmin else result


def _said(value: Any) -> Any:
    """What an object of the user's says that it is as an array, which may be a traced one."""
    method = inspect.unwrap(getattr(type(value), "__array__", _said))
    return value.__array__() if isinstance(method, types.FunctionType) and user_file(method.__code__.co_filename) else value


@replaces(np.ascontiguousarray)
def ascontiguousarray(a, dtype=None, *, like=None):
    """The array itself if it is known to be in C order, else a copy. At least one axis."""
    if not is_traced(a):
        return np.ascontiguousarray(a, dtype)
    return _laid_out(lift(a) if dtype is None else cast(lift(a), dtype), strides_of(np.shape(a)))


@replaces(np.asfortranarray)
def asfortranarray(a, dtype=None, *, like=None):
    """The array itself if it is known to be in Fortran's order, else a copy. At least one axis."""
    if not is_traced(a):
        return np.asfortranarray(a, dtype)
    return _laid_out(lift(a) if dtype is None else cast(lift(a), dtype), strides_of(np.shape(a)[::-1])[::-1])


def _laid_out(x: TracedArray, strides: tuple[int, ...]) -> Any:
    mine = x.strides_in_elements
    lies = mine is not None and all(a == b for a, b, n in zip(mine, strides, x.shape, strict=True) if n != 1)
    given = x
    if not (x.ndim and lies):
        given = fresh(x.node, scalar=False)
        given.strides_in_elements = strides
    x.recorder.by_layout(x, given)
    return given if given.ndim else np.reshape(given, 1)


@replaces(np.asarray, np.asanyarray)
def asarray(a, dtype=None, order=None, *, copy=None, device=None, like=None):
    """A traced array stays as it is, unless another order is asked for."""
    a = _said(a)
    return array(a, dtype, copy=copy, order=order) if is_traced(a) else np.asarray(a, dtype, order, copy=copy)


class Converter(tuple):
    """``_array_converter``: the arrays among the arguments of NumPy's own code."""

    def __new__(cls, *arrays: Any) -> Converter:
        return super().__new__(cls, map(asarray, arrays))

    def as_arrays(self, **options: Any) -> Converter:
        return self

    def result_type(self, *, ensure_inexact: bool = False, **options: Any) -> np.dtype:
        return common_dtype(*self, *([0.0] if ensure_inexact else []))

    def wrap(self, result: Any, **options: Any) -> Any:
        return result


OVERRIDES[np._core._multiarray_umath._array_converter] = Converter
# the one that ``np.block`` calls, which does not dispatch
OVERRIDES[np.concatenate.__wrapped__] = np.concatenate


@replaces(np.broadcast)
class broadcast:
    """``np.broadcast``: the shape, and tuples of the elements, traced where the array is."""

    def __init__(self, *arrays: Any) -> None:
        self._arrays = [x if isinstance(x, TracedArray) else np.asarray(x) for x in arrays]
        self.shape = np.broadcast_shapes(*(each.shape for each in self._arrays))
        self.nd = self.ndim = len(self.shape)
        self.size, self.numiter = math.prod(self.shape), len(arrays)

    def __iter__(self) -> Any:
        wide: list[Any] = [np.broadcast_to(each, self.shape) for each in self._arrays]
        return (tuple(each[index] for each in wide) for index in np.ndindex(self.shape))

    def __getattr__(self, name: str) -> Any:
        raise refuse(f"np.broadcast(...).{name}", "it goes through an array's memory", "Write a loop over np.ndindex(shape)")


def _quiet(function: Callable) -> Callable:
    """``np.errstate`` or ``np.seterr`` without what a call cannot do: raise, print, log."""
    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        asked = {x for x in (*args, *kwargs.values()) if isinstance(x, str)} - {"ignore", "warn"}
        if asked:
            raise refuse(f"np.{function.__name__}(... {min(asked)!r})",
                         "kernels divide by zero in silence", "Check the result outside the traced "
                         "function, as with np.isfinite(y).all()")
        return function(*args, **kwargs)
    return checked


OVERRIDES.update({each: _quiet(each) for each in (np.errstate, np.seterr)})


@replaces(np.isscalar)
def isscalar(element):
    return element.is_scalar if isinstance(element, TracedArray) else np.isscalar(element)


def _stacking(function: Callable) -> Callable:
    """A reduction that also takes a list of traced arrays.

    NumPy does not dispatch ``np.mean([a, b])``, since its argument is a list.
    """
    @functools.wraps(function)
    def of_a_list(a: Any, *args: Any, **kwargs: Any) -> Any:
        return function(lift(a) if is_traced(a) else a, *args, **kwargs)
    return of_a_list


for _reduction in (np.sum, np.prod, np.mean, np.var, np.std, np.max, np.min, np.any, np.all, np.argmax, np.argmin):
    OVERRIDES[_reduction] = _stacking(_reduction)


@replaces(np.take)
def take(a, indices, axis=None, out=None, mode="raise"):
    """NumPy does not dispatch on the indices."""
    return np.take(lift(a) if is_traced(indices) else a, indices, axis, out, mode)


OVERRIDES.update(MATH)


# ---------------------------------------------------------------- what cannot be recorded
DATA_DEPENDENT = (np.nonzero, np.argwhere, np.flatnonzero, np.unique, np.extract, np.compress,
                  np.union1d, np.intersect1d, np.setdiff1d, np.trim_zeros)


def _refusing(seen: str, reason: str, remedy: str) -> Callable:
    def handler(*args: Any, **kwargs: Any) -> Any:
        raise refuse(seen, reason, remedy)
    return handler


for _function in DATA_DEPENDENT:
    handles(_function)(_refusing(
        f"np.{_function.__name__}", "the shape of its result depends on values",
        "Keep a mask of the full shape and use np.where(mask, a, b), np.count_nonzero or where="))
for _function, _what in ((np.histogram, "where its bins lie depends"), (np.bincount, "how many counts it has depends")):
    handles(_function)(_refusing(
        f"np.{_function.__name__}", f"{_what} on values",
        "Choose n bins, and the bin of each value: counts = np.zeros(n, np.int64), "
        "then np.add.at(counts, bin, 1)"))


for _function in (np.fromfile, np.loadtxt):
    replaces(_function)(_refusing(f"np.{_function.__name__}", AGAIN, ASK))


# ---------------------------------------------------------------- the stand-in module
class _MakesArrays(type):
    """What a traced function sees as ``np.ndarray``."""

    def __hash__(cls) -> int:
        return hash(np.ndarray)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is np.ndarray

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, np.ndarray)

    def __getattr__(cls, name: str) -> Any:
        return getattr(np.ndarray, name)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """A new array is ``np.empty``'s, so that traced values can be stored in it.

        A view of a buffer stays NumPy's.
        """
        new = len(args) <= 2 and options.keys() <= {"shape", "dtype", "order"}
        return OVERRIDES[np.empty](*args, **options) if new else np.ndarray(*args, **options)


OVERRIDES[np.ndarray] = _MakesArrays("ndarray", (), {"__module__": "numpy", "__doc__": np.ndarray.__doc__})


class StandIn(types.ModuleType):
    """A module of NumPy as a traced function sees it: NumPy's, except for ``OVERRIDES``."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return stand_in(getattr(self.__dict__["_module"], name))  # read anew: it may be patched

    def __setattr__(self, name: str, value: Any) -> None:
        raise refuse(f"a new {self.__name__}.{name}", LOST, "Set it outside the traced function")


class TypeStandIn:
    """``type`` as a traced function sees it: traced arrays and numbers are NumPy's and Python's."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        asks = len(args) == 1 and type(args[0]) in (Number, TracedArray)
        found = args[0].__class__ if asks else type(*args, **named)
        return OVERRIDES[np.ndarray] if found is np.ndarray else found

    __getattr__ = staticmethod(functools.partial(getattr, type))
    __instancecheck__ = staticmethod(lambda value: isinstance(value, type))
    __mro_entries__ = staticmethod(lambda bases: (type,))


def _of_identity(function: Callable[[Any], int]) -> Callable[[Any], int]:
    """``id`` or ``hash`` in a traced function: refused for an outside object, which is a copy."""
    def asked(value: Any) -> int:
        if (function is id or type(value).__hash__ is object.__hash__) and current().outside.is_outside(value):
            raise refuse(f"{function.__name__}() of an object outside of the program",
                         "the program sees a copy of it", "Compare objects with `is`, or compute "
                         "the number outside and pass it in as an argument")
        return function(value)
    return asked


class RandomStandIn(StandIn):
    """``np.random``: the global generator is refused, seeded ones are allowed."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_module"], name)
        if not isinstance(getattr(found, "__self__", None), np.random.RandomState):
            return stand_in(found)
        return _refusing(f"np.random.{name}", "the numbers drawn now would be part of the program, "
                         "the same at every call", DRAWN)


def stand_in(value: Any) -> Any:
    """What a traced function sees in place of a value of its globals.

    Most values stay as they are.
    """
    if isinstance(value, types.ModuleType):
        return _module(value) if value.__name__.partition(".")[0] in ("numpy", "math") else value
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType) and str(value.__module__).startswith("numpy"):
        return OVERRIDES[value] if value in OVERRIDES else _guarded(value)
    try:
        return OVERRIDES.get(value, value)
    except (TypeError, ValueError):  # not hashable
        return value


@functools.cache
def _module(module: types.ModuleType) -> types.ModuleType:
    # by name: NumPy imports it late
    return RandomStandIn(module) if module.__name__ == "numpy.random" else StandIn(module)


# ---------------------------------------------------------------- copies of functions
class Rebinder:
    """Copies functions so that they see stand-ins. The globals of each module are copied once."""

    def __init__(self, belongs: Callable[[str], bool], outside: Outside | None = None) -> None:
        self._belongs = belongs  # whether functions of a source file are copied
        self._outside = outside
        self.copies: dict[int, dict[str, Any]] = {}
        self._functions: dict[types.FunctionType, types.FunctionType] = {}

    def globals(self, original: dict[str, Any]) -> dict[str, Any]:
        """A module's globals with stand-ins, and with copies of its functions."""
        if id(original) not in self.copies:
            # else a warning would make a new global in the copy
            original.setdefault("__warningregistry__", {})
            copied = self.copies[id(original)] = dict(original)
            copied.update({name: self.seen(value) for name, value in [*original.items()]})
            copied.setdefault("type", TypeStandIn())
            copied.update({each.__name__: _of_identity(each) for each in (id, hash) if each.__name__ not in copied})
            if self._outside:
                self._outside.keep("", copied)
        return self.copies[id(original)]

    def seen(self, value: Any) -> Any:
        """What a copied function sees in place of a value of its globals or closure."""
        if self._outside:
            return self._outside.seen(value)
        return self.function(value) if isinstance(value, types.FunctionType) else stand_in(value)

    stand_in = staticmethod(stand_in)

    def _wraps_users(self, fn: types.FunctionType) -> bool:
        """Whether a library's decorator made this of a user's function."""
        held = [cell.cell_contents for cell in fn.__closure__ or () if cell != types.CellType()]
        return any(isinstance(each, types.FunctionType) and self._belongs(each.__code__.co_filename)
                   for each in held)

    def function(self, fn: types.FunctionType) -> Callable:
        """A copy of a function, a stand-in, or the function itself if it is not the user's."""
        if fn in OVERRIDES:
            return OVERRIDES[fn]
        if not self._belongs(fn.__code__.co_filename) and not (self._outside and self._wraps_users(fn)):
            return stand_in(fn)
        if fn in self._functions:
            return self._functions[fn]
        outside, cells = self._outside, fn.__closure__ or ()
        mine = tuple(map(outside.cell, cells)) if outside else cells
        spaces = self.globals(fn.__globals__) if self._belongs(fn.__code__.co_filename) else fn.__globals__
        copied = types.FunctionType(fn.__code__, spaces, fn.__name__, fn.__defaults__, mine)
        # before its closure is filled: that may hold functions that call this one
        self._functions[fn] = copied
        if outside:
            for name, cell in zip(fn.__code__.co_freevars, cells, strict=True):
                outside.fill(cell, name)
        copied.__defaults__, copied.__kwdefaults__ = self.seen(fn.__defaults__), self.seen(fn.__kwdefaults__)
        copied.__dict__.update({key: self.seen(each) for key, each in [*fn.__dict__.items()]})
        for name in ("__qualname__", "__module__", "__doc__", "__annotations__"):
            setattr(copied, name, getattr(fn, name))
        if outside:
            outside.keep(fn.__name__, copied)
        return copied


def rebind(fn: Callable) -> Callable:
    """The function as the trace runs it. Methods and callable objects keep their ``self``."""
    outside = current().outside
    rebinder = outside.rebinder = outside.rebinder or Rebinder(lambda path: bool(user_file(path)), outside)
    if isinstance(fn, functools.partial):
        named = {name: outside.seen(each) for name, each in fn.keywords.items()}
        return functools.partial(rebind(fn.func), *map(outside.seen, fn.args), **named)
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return types.MethodType(rebinder.function(fn.__func__), outside.seen(fn.__self__))
    if isinstance(fn, types.FunctionType):
        return rebinder.function(fn)
    call = members(type(fn)).get("__call__")
    if isinstance(call, types.FunctionType) and user_file(call.__code__.co_filename):
        return types.MethodType(rebinder.function(call), outside.seen(fn))
    return fn


# ---------------------------------------------------------------- NumPy's own Python code
_opened = Rebinder(lambda path: "numpy" in path and not user_file(path))


@functools.cache
def opened(func: Callable) -> Any:
    """NumPy's own Python source of a function, seeing stand-ins. None if it is written in C."""
    inner = getattr(func, "__wrapped__", func)
    return _opened.function(inner) if isinstance(inner, types.FunctionType) else None


HIDDEN = "its source does something that cannot be recorded"
LAPACK = ("solve tensorsolve inv tensorinv pinv cholesky qr svd svdvals eig eigh eigvals eigvalsh "
          "det slogdet lstsq cond matrix_rank")
for _name in LAPACK.split():
    handles(getattr(np.linalg, _name))(_refusing(
        f"np.linalg.{_name}", "LAPACK computes it, and the graph has no operation for that", APART))


def _of_numbers(x: Number, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
    """NumPy's protocol for a ``Number``. Shape functions need no value.

    Beside a traced array, that array handles the call. Otherwise NumPy computes with the values,
    also beside its own arrays.
    """
    if func in (np.shape, np.ndim, np.size):
        return func(0.0)
    if any(kind not in (Number, np.ndarray) for kind in types):
        return NotImplemented
    numbers, tree = flatten((args, kwargs), lambda value: type(value) is Number)
    positional, named = unflatten(tree, [each.now() for each in numbers])
    return func(*positional, **named)


Number.__array_function__ = _of_numbers


@method
def __array_function__(x: TracedArray, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
    """NumPy's protocol: call the handler if it takes the call, else trace NumPy's own source.

    A call that cannot be recorded is computed now, if all its values are known. Raises TraceError
    if they are not.
    """
    refused = len(current().refused)
    try:
        return _recorded(func, args, kwargs)
    except TraceError as error:
        values = flatten((args, kwargs), lambda value: isinstance(value, TracedArray))
        known = [each.recorder.known(each.node, asks=True) for each in values[0]]
        if OUTSIDE in str(error) or any(each is None for each in known):
            raise
        del current().refused[refused:]
        positional, named = unflatten(values[1], known)
        return func(*positional, **named)


def _recorded(func: Callable, args: tuple, kwargs: dict) -> Any:
    if func in FUNCTIONS:
        result = FUNCTIONS[func](*args, **{k: v for k, v in kwargs.items() if v is not np._NoValue})
        if result is not NotImplemented:
            return result
    return _traced_source(func, args, kwargs)


def _traced_source(func: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Trace a function of NumPy that has no handler. Raises TraceError, or NumPy's own error."""
    name = f"{func.__module__}.{func.__qualname__}".replace("numpy", "np", 1)
    part = f"{func.__module__}.".split(".")[1]
    remedy = REMEDIES.get(part if part in ("ma", "fft", "linalg") else func.__name__,
                          "Write it with arithmetic, reductions, np.where, slices and products")
    source = None if part == "ma" else opened(func)
    if source is None:
        raise refuse(name, "the graph has no operation for it", remedy)
    try:
        with current().composite(func.__name__):
            return source(*args, **kwargs)
    except TraceError as error:
        if OUTSIDE in str(error):
            raise
        # the line is given once; the remedy is ours
        why = re.sub(r"^[^:]*:\d+: ", "", str(error)).partition(". ")[0]
        # the reason of the innermost function
        why = why.partition(f"{HIDDEN} (")[2].removesuffix(")") or why
        raise refuse(name, f"{HIDDEN} ({why})", COUNT if str(error).endswith(COUNT) else remedy) from error
    except Exception as error:
        raise as_numpy_raises(func, args, kwargs, error) from error


@functools.cache
def _guarded(func: Callable) -> Callable:
    """A function of NumPy that does not dispatch. Given a traced array, its own source is traced.

    If it has none, the call is refused.
    """
    @functools.wraps(func)
    def guard(*args: Any, **kwargs: Any) -> Any:
        if any(is_traced(each) and type(each) is not Number for each in (*args, *kwargs.values())):
            return _traced_source(func, args, kwargs)
        return func(*map(plain, args), **{key: plain(each) for key, each in kwargs.items()})
    return guard


@functools.wraps(np.fromiter)
def _fromiter(values: Iterable[Any], dtype: Any, count: int = -1, **like: Any) -> Any:
    """NumPy takes an element that is a traced array for a sequence, and asks it nothing."""
    values = [*values] if count < 0 else [*itertools.islice(values, count)]
    return _traced_source(np.fromiter, (), {}) if any(map(is_traced, values)) else np.fromiter(values, dtype, count, **like)


OVERRIDES[np.fromiter] = _fromiter
for _class in (np.finfo, np.iinfo, np.nditer):
    OVERRIDES[_class] = _guarded(_class)


class Ufunc:
    """A ufunc as a traced function sees it. It handles ``out=...``, which asks for an array.

    NumPy does not pass that on to arrays. Nor does it dispatch ``np.maximum.reduce([a, b])``.
    """

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc

    def __call__(self, *args: Any, **options: Any) -> Any:
        if options.get("out") is Ellipsis and any(map(is_traced, args)):
            options["out"] = (Ellipsis,) * self._ufunc.nout
        return self._ufunc(*args, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ufunc, name)
        return _stacking(found) if name == "reduce" else found


class RandomStates:
    """``np.random.RandomState`` as a traced function sees it: one with a seed draws no other."""

    def __call__(self, seed: Any = None) -> np.random.RandomState:
        seed = plain(seed)
        made = np.random.RandomState(np.random.MT19937(0) if isinstance(seed, int | list) else seed)
        if isinstance(seed, int | list):
            made.seed(seed)
        return made

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, np.random.RandomState)


OVERRIDES[np.random.RandomState] = RandomStates()
OVERRIDES.update({u: Ufunc(u) for u in vars(np).values() if isinstance(u, np.ufunc)})
OVERRIDES[np.asarray_chkfinite] = _guarded(np.asarray_chkfinite)
