"""``TracedArray``: what a traced program sees in place of an array.

It records instead of computing.

In:  the operators, ufuncs, functions and methods of an unmodified NumPy program.
Out: nodes in the graph of the trace's ``Recorder``.

Graphs have no assignment, but NumPy programs use it everywhere. So an array is a *storage* seen
through a chain of *moves*. The storage is what NumPy would call the memory: it names the node with
the present contents::

    u = U[1:-1]      u: slice of U              %1 = slice %0
    u += f           the storage of U changes   %2 = add %1 %f;  %3 = update %0 %2
    U.sum()          U now reads %3

This file holds storage, views, and the helpers that insert casts and broadcasts. The functions
behind NumPy's names are in neighbouring files. ``handles`` puts them into the table ``FUNCTIONS``
and makes them methods.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import FunctionType
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..errors import TraceError
from ..graph import TensorType
from .recorder import ACTIVE, Recorder, check_dtype, current, refuse, user_file
from .refusals import LOST, REMEDIES, refuse_value
from .scalars import Number, fitting, plain
from .tree import refuse_other_meanings

# NumPy's function -> handler; NumPy's own source is traced for others
FUNCTIONS: dict[Callable, Callable] = {}

Like = tuple["TracedArray", ...] | bool  # see ``fresh``
traced: Any = np  # NumPy's functions return traced arrays here, which their annotations cannot say

# what only an array of NumPy can answer
OF_MEMORY = "resize base strides data ctypes setflags".split()
OUTSIDE = "the program puts what it computed into"


# ---------------------------------------------------------------- errors in NumPy's words
def as_numpy_raises(function: Callable, args: Sequence[Any], options: dict[str, Any], error: Exception) -> Exception:
    """The error to raise for a call that failed here.

    It is NumPy's own if NumPy raises one, else a TraceError. To find out, NumPy is called with real
    arrays of the same shapes and dtypes: with known values where they are known, else with ones.
    """
    try:
        real = [*map(_real, args)], {name: _real(value) for name, value in options.items()}
    except ValueError:
        return error
    try:
        with np.errstate(all="ignore"):
            function(*real[0], **real[1])
    except Exception as own:
        return own.with_traceback(None)
    said = getattr(function, "__qualname__", function.__name__)
    name = f"{getattr(function, '__module__', 0) or 'np'}.{said}".removeprefix("_").replace("numpy", "np", 1)
    return refuse(f"{name} of these arguments", f"it cannot be recorded ({error})",
                  "Write it with arithmetic, reductions, np.where, slices and products")


def _real(value: Any) -> Any:
    """An argument for NumPy's function, to see whether it raises.

    Raises ValueError for an argument that would run the user's code.
    """
    if isinstance(value, TracedArray):
        known = value.recorder.known(value.node)
        made = np.ones(value.shape, value.dtype) if known is None else known.copy()
        made.flags.writeable = not any(move.op == "broadcast" or ("mode", "read-only") in move.attrs for move in value.path())
        return made[()] if value.is_scalar else made
    if isinstance(value, list | tuple):
        return [*map(_real, value)] if isinstance(value, list) else tuple(map(_real, value))
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, FunctionType | NDArrayOperatorsMixin):
        raise ValueError("it is a function, or knows no shape")
    return plain(value)


def answered(function: Callable, handler: Callable, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """A handler's result.

    It raises the error that NumPy's function raises, or refuses the arguments.
    """
    try:
        return handler(*args, **options)
    except TraceError:
        raise
    except Exception as error:
        raise as_numpy_raises(function, args, options, error) from error


def answers(function: Callable) -> Callable[[Callable], Callable]:
    """``answered``, as a decorator."""
    return lambda handler: wraps(handler)(lambda *args, **options: answered(function, handler, args, options))


def require(takes: bool) -> None:
    """Raise an error where NumPy raises one.

    ``answers`` then asks NumPy, which says what is wrong.
    """
    if not takes:
        raise ValueError("NumPy does not take it")


@dataclass(frozen=True)
class Move:
    """How a view reads its parent: a *move* op with attributes, or ``alias`` for all of it."""

    op: str
    attrs: tuple[tuple[str, Any], ...] = ()
    indices: tuple[int, ...] = ()  # of a gather: the nodes of its indices

    def take(self, recorder: Recorder, parent: int) -> int:
        """The view's node, from the parent's."""
        if self.op == "alias":
            return parent
        attrs = {name: value for name, value in self.attrs if name != "mode"}
        return recorder.add(self.op, (parent, *self.indices), **attrs)

    def put(self, parent: TracedArray, value: int) -> int:
        """The parent's node after the view is set to ``value``: the inverse of ``take``."""
        recorder, attrs = parent.recorder, dict(self.attrs)
        if self.op == "slice":
            return recorder.add("update", (parent.node, value), start=attrs["start"], step=attrs["step"])
        if self.op == "transpose":
            return recorder.add("transpose", (value,), perm=inverse(attrs["perm"]))
        if self.op == "reshape":
            return recorder.add("reshape", (value,), shape=parent.shape)
        if self.op == "gather" and attrs["mode"] != "read-only":
            return recorder.add("scatter", (parent.node, value, *self.indices), **attrs)
        if self.op in ("broadcast", "gather"):
            raise ValueError("assignment destination is read-only")
        return value


class Storage:
    """What NumPy would call the memory of an array.

    ``node`` holds its contents, and ``version`` counts writes. ``scalar``: NumPy would have made a
    scalar here, which nothing changes in place. ``swapped``: the storage of an argument whose bytes
    are in the other order than this machine's, or of a copy of it. ``layout``: the inputs that
    decide in which order it is. They are taken to be in C order.
    """

    __slots__ = ("layout", "node", "scalar", "swapped", "version")

    def __init__(self, node: int, scalar: bool = False, layout: frozenset[int] = frozenset()) -> None:
        self.node, self.scalar, self.layout, self.swapped, self.version = node, scalar, layout, False, 0

    def write(self, node: int) -> None:
        self.node = node
        self.version += 1


class OutsideStorage(Storage):
    """The memory of a real array from outside of the program. It becomes an input when it is read.

    ``name`` is how the program refers to it.
    """

    __slots__ = ("array", "name", "recorder", "type")

    def __init__(self, recorder: Recorder, array: np.ndarray, name: str) -> None:
        self.recorder, self.array, self.name, self.type = recorder, array, name, TensorType(array.shape, array.dtype.name)
        super().__init__(-1, False, frozenset([id(array)]))

    node = property(lambda self: self.recorder.capture(self.array), lambda self, node: None)  # type: ignore[assignment]

    def write(self, node: int) -> None:
        raise refuse(f"{OUTSIDE} {self.name}, outside of it", LOST,
                     "Pass the array in as an argument, which may be changed in place; make a "
                     "buffer inside, with np.zeros(shape, dtype) or np.zeros_like(x)")


class Flags:
    """``x.flags``. The layout is known or refused. Ownership and write access are refused."""

    def __init__(self, array: TracedArray) -> None:
        self._array = array

    def __getattr__(self, name: str) -> bool:
        if self._array.strides_in_elements is None or name not in ("c_contiguous", "f_contiguous", "contiguous", "fnc", "forc"):
            raise refuse(f"x.flags.{name}", "the array has no memory while the program is traced", "Ask the result, outside")
        self._array.recorder.by_layout(self._array)
        return bool(getattr(stand_in(self._array).flags, name))

    def __getitem__(self, name: str) -> bool:
        return getattr(self, name.lower())


def fixed(name: str) -> Callable[[TracedArray, Any], None]:
    """The setter of an attribute that NumPy can set."""
    def refuse_to_set(x: TracedArray, value: Any) -> None:
        raise refuse(f"x.{name} = ...", "views of x would not follow", "Write x = x.reshape(...), or x = x.astype(...)")
    return refuse_to_set


class TracedArray(NDArrayOperatorsMixin):
    """An array of a program being traced: a shape and a dtype, but no values."""

    __slots__ = ("_move", "_node", "_parent", "_seen", "_storage", "recorder", "strides_in_elements", "type")
    __array_priority__ = 1000
    __getitem__: Callable[..., Any]  # in indexing
    __array_ufunc__: Callable[..., Any]  # in ufuncs; __array_function__ is in creation

    def __init__(self, recorder: Recorder, storage: Storage, type: TensorType, *, parent: TracedArray | None = None,
                 move: Move | None = None, strides: tuple[int, ...] | None = None) -> None:
        self.recorder = recorder
        self.type = type
        self.strides_in_elements = strides  # NumPy's strides over the itemsize; None: unknown
        self._storage = storage
        self._parent = parent
        self._move = move
        self._node = self._seen = -1  # and the storage's version that it belongs to

    # isinstance(x, np.ndarray) is true
    __class__ = property(lambda self: self.dtype.type if self.is_scalar else np.ndarray)  # type: ignore[assignment]

    # ------------------------------------------------------------ storage and views
    @property
    def node(self) -> int:
        """The id of the node with this array's present contents."""
        version = self._storage.version
        chain, array = [], self
        while array._seen != version and array._parent is not None:
            chain.append(array)
            array = array._parent
        if array._parent is None:
            array._node, array._seen = array._storage.node, version
        for array in reversed(chain):
            if array._seen >= 0:
                array._require_layout("read after its source changed")
            array._node, array._seen = array._move.take(self.recorder, array._parent._node), version
        return self._node

    def write(self, value: int) -> None:
        """Replace the whole contents by a node of the same type, in all views up to the storage."""
        array: TracedArray = self
        node = value
        while array._parent is not None:
            array._require_layout("written to")
            node = array._move.put(array._parent, node)
            array = array._parent
        self._storage.write(node)
        self._node, self._seen = value, self._storage.version

    def _require_layout(self, happened: str) -> None:
        """Raise TraceError for a reshape that may be a view or a copy, as the layout is unknown."""
        mode, parent = dict(self._move.attrs).get("mode"), self._parent
        same = only_ones_differ(self.shape, parent.shape)
        if self._move.op == "reshape" and (mode == "unsure" or (self.strides_in_elements is None and not same)):
            raise refuse(f"a reshape of a transposed result is {happened}",
                         "whether NumPy makes it a view or a copy depends on the memory layout, which is not traced",
                         "Write .reshape(...).copy(), or assign to the array before it is reshaped")
        always = mode == "flat" or parent.ndim == 1 or same
        if self._move.op == "reshape" and (mode == "ravel" or not always):
            self.recorder.by_layout(self)  # this view of an argument might be a copy

    def path(self) -> tuple[Move, ...]:
        """The moves from this array up to its storage."""
        moves, array = [], self
        while array._parent is not None:
            moves += [array._move] if array._move.op != "alias" else []
            array = array._parent
        return tuple(moves)

    @property
    def row_major(self) -> bool:
        """Whether NumPy would give the result of elementwise work on this array C order."""
        if self.strides_in_elements is None:
            return False
        strides = [s for s, n in zip(self.strides_in_elements, self.shape, strict=True) if n != 1]
        return all(a >= b for a, b in zip(strides, strides[1:], strict=False)) and (not strides or strides[-1] > 0)

    @property
    def is_scalar(self) -> bool:
        """Whether NumPy would have made this a scalar rather than an array of shape ()."""
        return self._storage.scalar and self._parent is None

    # ------------------------------------------------------------ what an ndarray knows
    shape = property(lambda self: self.type.shape, fixed("shape"))
    dtype = property(lambda self: dtype_of(self.type.dtype, self._storage.swapped), fixed("dtype"))
    ndim = property(lambda self: self.type.rank)
    size = property(lambda self: self.type.size)
    itemsize = property(lambda self: self.type.itemsize)
    nbytes = property(lambda self: self.type.nbytes)
    T = property(lambda self: traced.transpose(self))
    mT = property(answers(lambda x: x.mT)(lambda self: traced.matrix_transpose(self)))
    real = property(lambda self: self, lambda self, value: self.fill(value))
    flags = property(Flags)
    # All elements in C order, for reading and writing in any layout. A reshape might copy.
    flat = property(lambda self: view(self, "reshape", shape=(self.type.size,), strides=(1,), mode="flat"),
                    lambda self, value: self.put(np.arange(self.size), value))

    __len__ = answers(len)(lambda self: self.shape[0])
    __iter__ = answers(iter)(lambda self: (self[i] for i in range(self.shape[0])))
    __delitem__ = answers(operator.delitem)(lambda self, index: require(False))

    @property
    def imag(self) -> TracedArray:
        """Zeros: no traced value is complex. An array of them is read-only, as NumPy's."""
        zeros = constant(0, self.shape, self.dtype)
        return zeros if self.is_scalar else view(zeros, "broadcast", shape=self.shape, strides=self.strides_in_elements)

    @property
    def strides(self) -> tuple[int, ...]:
        """They depend on the layout of the arguments."""
        if self.strides_in_elements is None or isinstance(self._storage, OutsideStorage):
            self.__getattr__("strides")  # refused
        self.recorder.by_layout(self)
        return tuple(step * self.itemsize for step in self.strides_in_elements)

    imag, strides = imag.setter(fixed("imag")), strides.setter(fixed("strides"))

    def __repr__(self) -> str:
        # the program asks, or a library that prints
        recorder, frame = ACTIVE.get(), sys._getframe(1)
        asks = recorder and (recorder.called or (user_file(frame.f_code.co_filename) and repr))
        if asks and asks is not print and not isinstance(asks, FunctionType):
            return repr(self.known("repr")[() if self.is_scalar else ...])
        self.recorder.shown.add(text := f"Array({self.type})")
        return text

    # ------------------------------------------------------------ what asks for values
    def known(self, seen: str, remedy: str = "") -> np.ndarray:
        """The value, if it depends on no argument and at most on small arrays from outside.

        Raises TraceError otherwise. Without a remedy, ``seen`` is one of ``PROTOCOLS``.
        """
        value = self.recorder.known(self.node, asks=True)
        if value is None:
            raise refuse_value(seen, self.type, remedy, self.recorder[self.node].op == "input")
        return value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.known("array"), dtype=dtype)

    @answers(operator.index)
    def __index__(self) -> int:
        require(self.dtype.kind in "iu")
        return int(self.known("index"))

    @answers(hash)
    def __hash__(self) -> int:
        require(self.is_scalar)
        return hash(self.known("hash")[()])

    # ------------------------------------------------------------ methods unlike NumPy's functions
    def __eq__(self, other: Any) -> Any:
        return False if other is None and self.is_scalar else np.equal(self, other)

    def __ne__(self, other: Any) -> Any:
        return True if other is None and self.is_scalar else np.not_equal(self, other)

    @answers(operator.contains)
    def __contains__(self, value: Any) -> bool:
        require(not self.is_scalar)
        return bool(np.any(self == value))

    def __array_namespace__(self, **version: Any) -> Any:
        return np.empty(0).__array_namespace__(**version)

    def __matmul__(self, other: Any) -> Any:
        return NotImplemented if self.is_scalar else np.matmul(self, other)

    def __mul__(self, other: Any) -> Any:
        if self.is_scalar and isinstance(other, list | tuple | str | bytes):  # a sequence, repeated
            return other * operator.index(self)
        return super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return self * other if isinstance(other, list | tuple | str | bytes) else np.multiply(other, self)

    def reshape(self, *shape, order="C", copy=None):
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)

    def transpose(self, *axes):
        return np.transpose(self, axes[0] if len(axes) == 1 else (axes or None))

    @answers(lambda x, *others: x.dot(*others))
    def dot(self, b, out=None):
        require(not self.is_scalar)
        return np.dot(self, b, out)  # type: ignore[call-overload]

    def flatten(self, order="C"):
        return np.ravel(self, order=order).copy()

    def conj(self):
        return self

    conjugate = conj

    def copy(self, order="C"):
        made = fresh(self.node, lies_in_rows(order, self), self.is_scalar)
        made._storage.swapped = self._storage.swapped
        return made

    __copy__ = copy
    __deepcopy__ = lambda self, memo: self.copy()  # noqa: E731

    @answers(np.ndarray.astype)
    def astype(self, dtype, order="K", casting="unsafe", subok=True, copy=True):
        target = np.dtype(dtype)
        require(np.can_cast(self.dtype, target, casting))
        if target == self.dtype and not copy:
            return self
        return fresh(cast(self, target).node, lies_in_rows(order, self), self.is_scalar)

    def sort(self, axis=-1, kind=None, order=None, stable=None):
        self.write(np.sort(self, operator.index(axis), kind, order, stable=stable).node)

    def fill(self, value):
        self[...] = value

    def __getattr__(self, name: str) -> Any:
        real = self.dtype.type if self.is_scalar else np.ndarray
        # NumPy's C code asks for an __array_interface__, and tries something else if there is none
        if not name.startswith("_") and hasattr(real, name):
            value = self.recorder.known(self.node, asks=True)
            if value is not None and name not in OF_MEMORY:
                return getattr(value, name)
            raise refuse(f"{real.__name__}.{name}", "a traced array has no such method",
                         REMEDIES.get(name, "Use NumPy functions on the whole array"))
        raise AttributeError(f"'numpy.{real.__name__}' object has no attribute {name!r}")


TracedArray.__name__ = "traced array"  # errors of C code show this name


def _asking(seen: str, of_value: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: of_value(self.known(seen), *args)


for _name, _seen, _of_value in (
        ("__bool__", "bool", bool), ("__int__", "int", int),
        ("__float__", "float", float), ("__complex__", "complex", complex), ("__str__", "str", str),
        ("__bytes__", "memory", bytes), ("__buffer__", "memory", lambda value, flags: memoryview(value)),
        ("__format__", "format", lambda value, spec: format(value[()], spec)),
        ("__reduce_ex__", "pickle", np.ndarray.__reduce_ex__),
        ("__round__", "round", lambda value, *digits: round(value.item(), *digits)),
        ("__trunc__", "int", lambda value: math.trunc(value.item())), ("tolist", "tolist", np.ndarray.tolist)):
    setattr(TracedArray, _name, _asking(_seen, _of_value))


def item(x: TracedArray, *index: int) -> Any:
    """A Python number: the value if it is known, else a ``Number``, which has none now."""
    value = x.recorder.known(x.node, asks=True)
    if value is not None:
        return value.item(*index)
    if index or x.size != 1 or x.dtype.kind not in "fiu":
        return x.known("item")  # which is refused
    kind = float if x.dtype.kind == "f" else int
    return Number(x.recorder, cast(reshaped(x, ()), np.float64 if kind is float else np.int64).node, kind)


TracedArray.item = item  # type: ignore[attr-defined]


def _in_place(name: str) -> None:
    """Let ``s *= 2`` of a scalar be ``s = s * 2``: NumPy's scalars do not change."""
    change, make = getattr(TracedArray, f"__i{name}__"), getattr(TracedArray, f"__{name}__")
    setattr(TracedArray, f"__i{name}__", lambda self, other: (make if self.is_scalar else change)(self, other))


for _name in "add sub mul matmul truediv floordiv mod lshift rshift and xor or".split():
    _in_place(_name)


def dtype_of(name: str, swapped: bool) -> np.dtype:
    """NumPy's dtype of this name, or the one with its bytes in the other order."""
    return np.dtype(name).newbyteorder("S") if swapped else np.dtype(name)


# ---------------------------------------------------------------- functions behind NumPy's names
def method(function: Callable) -> Callable:
    """Make a function a method of ``TracedArray``, under its name."""
    setattr(TracedArray, function.__name__, function)
    return function


def handles(*functions: Callable, via: bool = False) -> Callable[[Callable], Callable]:
    """Register the handler of a NumPy function, and of the method of that name.

    A method that ``TracedArray`` defines itself stays. ``via``: its nodes carry the function's
    name.
    """
    name = functions[0].__name__

    def register(handler: Callable) -> Callable:
        @wraps(handler)
        def named(*args: Any, **options: Any) -> Any:
            with current().composite(name):
                return answered(functions[0], handler, args, options)
        made = named if via else answers(functions[0])(handler)
        FUNCTIONS.update(dict.fromkeys(functions, made))
        if hasattr(np.ndarray, name) and name not in vars(TracedArray):
            setattr(TracedArray, name, made)
        return made
    return register


composite = partial(handles, via=True)  # for a function that becomes several nodes


# ---------------------------------------------------------------- making arrays
def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """C-order strides, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def stand_in(x: TracedArray) -> np.ndarray:
    """An array with the shape and strides of ``x`` to ask NumPy about views. It has no memory."""
    if x.strides_in_elements is None:
        return np.broadcast_to(np.int8(0), x.shape)
    return np.lib.stride_tricks.as_strided(np.empty(1, np.int8), x.shape, x.strides_in_elements)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The inverse permutation."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def only_ones_differ(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes differ only by axes of length one."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def lies_in_rows(order: str | None, like: TracedArray | None = None) -> Like:
    """What an array that NumPy makes in this ``order`` lies like."""
    if order == "C" or (like is None and order != "F"):
        return ()
    return like is not None and (order == "K" or (order != "F" and like.row_major)) and (like,)


def kept_order(like: Sequence[TracedArray], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides, in elements, of NumPy's elementwise result, if it is known: it is asked."""
    if all(x.row_major for x in like):
        return strides_of(shape)
    if any(x.strides_in_elements is None for x in like) or np.broadcast_shapes(*(x.shape for x in like)) != shape:
        return None
    return np.nditer([*map(stand_in, like), None], ["zerosize_ok"]).operands[-1].strides


def fresh(node: int, like: Like = True, scalar: bool | None = None) -> TracedArray:
    """A new array with memory of its own.

    ``like``: the arrays in whose order it is, True for C order, or False for an unknown one. An
    array with one axis has only one order. A result of shape () is a scalar unless ``scalar`` is
    False.
    """
    recorder = current()
    type = recorder.type(node)
    storage = Storage(node, type.shape == () if scalar is None else scalar)
    strides = strides_of(type.shape) if like or type.rank < 2 else None
    if isinstance(like, tuple) and type.rank > 1:
        strides = kept_order(like, type.shape)
        storage.layout = frozenset().union(*(x._storage.layout for x in like if sum(n != 1 for n in x.shape) > 1))
    elif recorder[node].op == "input":
        storage.layout = frozenset([node])
    return TracedArray(recorder, storage, type, strides=strides)


def record(op: str, *operands: TracedArray, like: Like | None = None, **attrs: Any) -> TracedArray:
    """Append one node that reads ``operands``. Its result has memory of its own."""
    node = operands[0].recorder.add(op, [operand.node for operand in operands], **attrs)
    if like is None:
        like = all(x.row_major for x in operands) and operands
    return fresh(node, like)


def view(parent: TracedArray, op: str, *indices: int, strides: tuple[int, ...] | None = None,
         shape: tuple[int, ...], **attrs: Any) -> TracedArray:
    """Another view of ``parent``. Nothing is recorded until it is read.

    Writes go through to the parent. A view of a scalar is a copy.
    """
    if parent.is_scalar:
        parent = fresh(parent.node, scalar=False)
    if op in ("reshape", "broadcast"):
        attrs["shape"] = shape
    return TracedArray(parent.recorder, parent._storage, TensorType(shape, parent.type.dtype), parent=parent,
                 move=Move(op, tuple(sorted(attrs.items())), indices), strides=strides)


def constant(value: Any, shape: Sequence[int], dtype: Any) -> TracedArray:
    """An array with one value everywhere.

    Raises OverflowError, as NumPy does, when a Python integer does not fit the dtype.
    """
    dtype = np.dtype(dtype)
    check_dtype(dtype)
    if dtype.kind == "f":
        held: Weak = float(value)
    else:
        first = dtype if type(value) in (bool, int) and dtype.kind in "iu" else np.int64 if value.__class__ is int else None
        with np.errstate(all="ignore"):
            held = np.asarray(value, first).astype(dtype).item()
    return fresh(current().add("constant", type=TensorType(tuple(shape), dtype.name), value=held))


def iota(shape: Sequence[int], axis: int, dtype: str = "int64") -> TracedArray:
    """The index along ``axis``."""
    recorder = current()
    node = recorder.add("iota", type=TensorType(tuple(shape), dtype), axis=axis)
    recorder.nonnegative.add(node)
    return fresh(node)


def splat(x: TracedArray) -> Any:
    """The value of an array that is one constant everywhere, else None."""
    node = x.recorder[x.node]
    return node.attr("value") if node.op == "constant" else None


# ---------------------------------------------------------------- operands of a NumPy call
Weak = bool | int | float  # a Python scalar: it takes the dtype of the other operand (NEP 50)


def is_weak(value: object) -> bool:
    """Whether it is a Python scalar. To Python ``np.float64`` is a ``float``, but not to NumPy."""
    return isinstance(value, int | float) and not isinstance(value, np.generic)


def lift(value: Any) -> TracedArray:
    """Any operand as a traced array.

    Real arrays become inputs, scalars become constants, and lists of arrays are stacked.
    """
    if isinstance(value, TracedArray):
        value.recorder.require_running()
        return value
    if value.__class__ is int:
        value = fitting(value, np.dtype(np.int64))
    if type(value) is Number:
        return fresh(value.recorder.number(value, "float64" if value.__class__ is float else "int64"))
    require(value is not None)
    if is_traced(value):
        return traced.stack([lift(each) for each in value])
    refuse_other_meanings(value)
    array = np.asarray(value)
    check_dtype(array.dtype)
    if not isinstance(value, np.ndarray) and not array.shape:
        return constant(array.item(), (), array.dtype)
    return fresh(current().capture(array), bool(array.flags.c_contiguous))


def is_traced(value: Any) -> bool:
    """Whether it is a traced array, or a nested list with one in it."""
    return isinstance(value, TracedArray | Number) or (isinstance(value, list | tuple) and any(map(is_traced, value)))


def operand(value: Any) -> TracedArray | Weak:
    """``lift``, but a Python scalar stays one, so that it can adapt."""
    return value if is_weak(value) else lift(value)


@handles(np.result_type)
def common_dtype(*operands: Any) -> np.dtype:
    """NumPy's result dtype of arrays and Python scalars."""
    return np.result_type(*(o.dtype if isinstance(o, TracedArray) else o.__class__() if type(o) is Number else o for o in operands))


# ---------------------------------------------------------------- casts and broadcasts
def cast(x: TracedArray, dtype: Any) -> TracedArray:
    """``x`` in another dtype. A constant is rewritten.

    A number as bool is whether it is not zero.
    """
    target = np.dtype(dtype)
    if target == x.dtype:
        return x
    check_dtype(target, "a conversion (astype or dtype=) to", how="outside the function")
    value = splat(x)
    if value is not None:
        with np.errstate(all="ignore"):
            return constant(np.asarray(value, x.dtype).astype(target).item(), x.shape, target)
    return record("ne", x, constant(0, x.shape, x.dtype)) if target.kind == "b" else record("cast", x, dtype=target.name)


def broadcast(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """``x`` stretched to ``shape``, with leading axes of one added first.

    A constant is rewritten.
    """
    shape = tuple(shape)
    if x.shape == shape:
        return x
    require(np.broadcast_shapes(x.shape, shape) == shape)
    value = splat(x)
    if value is not None:
        return constant(value, shape, x.dtype)
    x = reshaped(x, (1,) * (len(shape) - x.ndim) + x.shape)
    return x if x.shape == shape else record("broadcast", x, shape=shape)


def reshaped(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """A copy of ``x`` in another shape, for inner use."""
    shape = tuple(shape)
    if shape == x.shape:
        return x
    value = splat(x)
    return record("reshape", x, shape=shape) if value is None else constant(value, shape, x.dtype)


def permuted(x: TracedArray, perm: Sequence[int]) -> TracedArray:
    """A copy of ``x`` with its axes permuted, for inner use."""
    perm = tuple(perm)
    return x if perm == tuple(range(x.ndim)) else record("transpose", x, like=False, perm=perm)


def settle(value: TracedArray | Weak, dtype: Any, shape: Sequence[int]) -> TracedArray:
    """An operand in its final dtype and shape. It is cast before it is broadcast."""
    if type(value) is Number and np.dtype(dtype).kind == "f":
        value = fresh(value.recorder.number(value))
    return broadcast(cast(value, dtype), shape) if isinstance(value, TracedArray) else constant(plain(value), shape, dtype)


def choose(condition: Any, a: TracedArray | Weak, b: TracedArray | Weak, dtype: Any, shape: Sequence[int]) -> TracedArray:
    """``select``, with its operands settled."""
    return record("select", settle(lift(condition), bool, shape), settle(a, dtype, shape), settle(b, dtype, shape))


def bools(where: Any) -> TracedArray:
    """``where=`` of a NumPy call, which is no array of numbers."""
    if not is_traced(where) and not isinstance(where, np.ndarray):
        where = np.asarray(where, bool)[()]
    require(where.dtype.kind == "b" or getattr(where, "is_scalar", False))
    return lift(where)


def no_bool(value: Any) -> Any:
    """A side, an axis or a count. Raises TypeError, as NumPy does, for a bool."""
    require(not isinstance(value, bool | np.bool_))
    return value


def shape_of(shape: Any) -> tuple[int, ...]:
    """``shape=`` of a NumPy call: a sequence of integers, or one."""
    return tuple(operator.index(no_bool(n)) for n in (shape if np.iterable(shape) else (shape,)))


def normal_axis(axis: Any, rank: int) -> int:
    """``axis=`` of one axis, not negative. Raises NumPy's errors."""
    return normalize_axis_index(no_bool(axis), rank)


def normal_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """``axis=`` of a reduction as ascending non-negative axes. None means all."""
    axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(normalize_axis_tuple(tuple(map(no_bool, axes)), rank)))
