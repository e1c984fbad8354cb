"""What a program reads from outside: the contract, and the paths that each call walks again.

In:  what the rewritten program loads while it is traced (``hooks``). Out: ``Paths``.

The contract has three parts, and no other promise is made.

1. *Read again by plain path.* A path begins at a name of a global or of a closure in the program's
   code, and goes on through attributes and items of the user's own objects, classes, modules, and
   of lists, dicts and tuples. A call walks the same paths. An array there is an input: another one of
   the same shape and dtype is simply used. Numbers, texts, flags and None stay equal. Functions,
   classes, modules and other objects stay the same. A name that was asked for and was absent stays
   absent. If something differs, the call is ``Stale``, and the function is traced again.
2. *Refused.* Two traces that differ (``trace`` runs each program twice), a write to an array from
   outside, and a traced array that is left there.
3. *Looked at once.* Everything else that Python can see: what objects of libraries hold, files, the
   clock, what C code reads. ``jit(f, check=True)`` tells whether a call still means what NumPy means.

After, for ``x * net.layers[0].w`` under ``if net.training``, where ``net`` is a global:

    0  a module's globals
    1  name 'net' of 0          the same object
    2  attribute 'training' of 1     equals True
    3  attribute 'layers' of 1  the same object
    4  item 0 of 3              the same object
    5  attribute 'w' of 4       an array f32[4,4]
"""

from __future__ import annotations

import functools
import marshal
import operator
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..errors import MinisitchError
from ..graph import TensorType
from ..ops import SHORT
from .array import OutsideStorage, TracedArray, fresh, strides_of
from .recorder import SMALL, Recorder, refuse, user_file, user_line

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
GROWING = (list, dict, deque)
ERRORS = np._core._ufunc_config._extobj_contextvar  # type: ignore[attr-defined]
INSTEAD = ("Return what is new, and put it there outside of the function. Pass it in as an argument "
           "if it is an array: that may be changed in place")


class Stale(MinisitchError):
    """Something that the program read from outside, at ``line``, has changed.

    It must be traced again.
    """

    def __init__(self, why: str, line: str = "") -> None:
        super().__init__(why)
        self.line = line


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


# ---------------------------------------------------------------- how a step reads
def cell_of(cell: CellType, _: Any) -> Any:
    return ABSENT if cell == CellType() else cell.cell_contents


def name_of(space: dict[str, Any], key: str) -> Any:
    return space.get(key, ABSENT)


def attribute_of(holder: Any, key: str) -> Any:
    """The attribute.

    A method of the holder is its function: Python makes a new method at each look.
    """
    found = getattr(holder, key, ABSENT)
    return found.__func__ if type(found) is MethodType and (found.__self__ is holder or found.__self__ is type(holder)) else found


def class_of(holder: Any, _: Any) -> type:
    return type(holder)


def own_of(holder: Any, key: str) -> Any:
    """The attribute, without what ``__getattr__`` of the class would answer."""
    try:
        found = object.__getattribute__(holder, key)
    except AttributeError:
        return ABSENT
    return found.__func__ if type(found) is MethodType else found


def member_of(kind: type, key: str) -> Any:
    """What a class and its bases hold under a name, as Python looks for a special method."""
    return next((vars(base)[key] for base in kind.__mro__ if key in vars(base)), ABSENT)


def parent_of(holder: Any, key: tuple[type, str]) -> Any:
    """``super().name``."""
    found = getattr(super(key[0], holder), key[1], ABSENT)
    return found.__func__ if type(found) is MethodType else found


def item_of(holder: Any, key: Any) -> Any:
    """The element of a list, tuple or dict."""
    try:
        return holder[key]
    except (LookupError, TypeError):
        return ABSENT


def keys_of(holder: Any, _: Any) -> Any:
    """How many elements, or which keys in which order."""
    return [*holder] if isinstance(holder, dict | set | frozenset) else len(holder)


def plain_of(holder: Any, _: Any) -> Any:
    """The numbers and texts of a container, to the last bit."""
    values = [*(holder.values() if isinstance(holder, dict) else holder)]
    try:
        return marshal.dumps(values, 2)
    except ValueError:  # a number of NumPy
        return repr(values)


def bytes_of(array: Any, _: Any) -> Any:
    """The contents of an array, with what says how they lie."""
    if not isinstance(array, np.ndarray):
        return ABSENT
    # the bytes of objects are their places in memory: held, none is given to another
    held = [*array.flat] if array.dtype == object else ()
    return array.shape, array.dtype, array.strides, array.tobytes(), held


def strides_now(array: Any, _: Any) -> Any:
    return array.strides


def is_alive(reference: Any, _: Any) -> bool:
    return reference() is not None


def raising() -> str:
    """What now makes NumPy raise, print or log an error of floating point, or nothing.

    It is an argument of ``np.errstate``.
    """
    return next((f"{kind}={how!r}" for kind, how in np.geterr().items()
                 if how not in ("ignore", "warn")), "")


CONTENTS = (keys_of, plain_of, bytes_of, strides_now)  # these read what a value holds


def is_plain(value: object) -> bool:
    """Whether a value is a number or text, and so cannot change."""
    return isinstance(value, PLAIN) and type(value).__module__ in ("builtins", "numpy") and type(value) is not np.void


# ---------------------------------------------------------------- how a step compares
def is_other(now: Any, was: Any) -> bool:
    return now is not was


def is_other_plain(now: Any, was: Any) -> bool:
    """0.0 is not -0.0, 1 is not True, and nan is nan."""
    return type(now) is not type(was) or (now != was if now and was == was
                                          else repr(now) != repr(was))


def is_other_array(now: Any, was: tuple[Any, ...]) -> bool:
    """Also one object may get another shape: its kernel would read behind it."""
    return type(now) not in (np.ndarray, np.memmap) or (now.shape, now.dtype) != was


def require_array(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise Stale for another kind of array than the program read during its trace."""
    if is_other_array(array, (shape, dtype)):
        raise Stale(f"{type(array).__name__}{getattr(array, 'shape', '')} is where an array {dtype.name}{[*shape]} was")


def is_other_content(now: Any, was: Any) -> bool:
    return bool(now != was)


@dataclass(eq=False)
class Place:
    """A value from outside, and how a call finds it again: ``get(holder's value, key)``.

    Without a holder it is a root, which stays the same object. A ``weak`` root has a reference in
    place of its value: a program does not keep it alive. ``was`` is what a call compares with.
    """

    value: Any
    holder: Place | None = None
    get: Callable[[Any, Any], Any] = attribute_of
    key: Any = None
    differs: Callable[[Any, Any], bool] = is_other
    was: Any = None
    line: tuple[str, str] = ("", "")
    weak: bool = False

    def now(self) -> Any:
        """What a call finds there. A holder is the one of the trace: another one is found first."""
        holder = self.holder
        if holder.differs is is_other_array and holder.holder:
            return self.get(holder.now(), self.key)
        return self.get(holder.value() if holder.weak else holder.value, self.key)

    def quick(self) -> tuple[Any, Any, Any]:
        """A function and its arguments that find the same, in C if that can be."""
        get, key = QUICK.get(self.get, self.get), "cell_contents" if self.get is cell_of else self.key
        try:
            if get(self.holder.value, key) is self.value:
                return get, self.holder.value, key
        except (LookupError, AttributeError, TypeError, ValueError):
            pass
        return Place.now, self, None


class Paths:
    """The places that a call walks to.

    - ``fixed``: those whose value stays the same object, or an equal number or text.
    - ``inputs``: those of arrays. The first ``count`` are inputs of the graph. Who reads these
      compares their shapes and dtypes, as ``Program.outside`` does. To the others lead more paths.
    - ``others``: those that are compared by what they hold.
    - ``arrays``: for each of the graph's last inputs, its position among ``inputs``, or the array
      itself if no path leads there.
    - ``alike``: if the program depends on which arrays are the same, for each of ``inputs`` and of
      the arguments the first that is this array.
    - ``fn``: the traced function, if it is one.
    """

    def __init__(self, fixed: Sequence[Place] = (), inputs: Sequence[Place] = (), others: Sequence[Place] = (),
                 arrays: Sequence[Any] = (), alike: tuple[int, ...] = (), fn: Any = None) -> None:
        self.fixed, self.inputs, self.others, self.arrays, self.alike = fixed, inputs, others, arrays, alike
        self.fn, self.code, self.errors = fn, getattr(fn, "__code__", None), ERRORS.get()
        self.count = sum(type(each) is int for each in arrays)
        self.quick = [(*each.quick(), each.was) for each in fixed]
        self.walk = [each.quick() for each in inputs]
        self.more = bool(others or alike)
        self.is_bare = bool(fn) and not (fixed or inputs or self.more)

    def __bool__(self) -> bool:
        return bool(self.fn or self.fixed or self.inputs or self.more)

    def read(self, leaves: Sequence[Any]) -> list[Any]:
        """The inputs as they are now. Raises Stale if anything else has changed."""
        if self.fn is not None and self.fn.__code__ is not self.code:
            raise Stale("the function has other code")
        if ERRORS.get() is not self.errors:
            if raising():
                raise Stale(f"np.errstate({raising()})")
            self.errors = ERRORS.get()
        try:
            for get, holder, key, was in self.quick:
                if get(holder, key) is not was:
                    _compared(self.fixed)
                    break
            found = [get(holder, key) for get, holder, key in self.walk] if self.walk else []
        except (LookupError, AttributeError, TypeError, ValueError):  # what was there is absent
            _compared(self.fixed)
            found = _compared(self.inputs)
        if self.more:
            _compared(self.others)
            if self.alike and alike([*found, *leaves]) != self.alike:
                raise Stale("other arrays are the same array, or one is no longer")
            del found[self.count:]
        return found


def _compared(places: Sequence[Place]) -> list[Any]:
    """The values now, each compared in its own way: what is equal need not be the same object."""
    values = []
    for each in places:
        values.append(each.now())
        if each.differs(values[-1], each.was):
            raise Stale(f"{values[-1]!r:.60} is where {each.was!r:.60} was", each.line[0])
    return values


QUICK = {attribute_of: getattr, cell_of: getattr, item_of: operator.getitem, name_of: operator.getitem}


def alike(arrays: Sequence[Any]) -> tuple[int, ...]:
    """For each array the first position where it is. Numbers are not alike."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(each), i) if isinstance(each, np.ndarray) else i for i,
                 each in enumerate(arrays))


# ---------------------------------------------------------------- whose it is
def is_users(kind: type | ModuleType) -> bool:
    """Whether a class or module is one of the user's."""
    if kind is types.SimpleNamespace or (kind.__module__ if isinstance(kind, type)
                                         else kind.__name__) == "__main__":
        return True
    module = sys.modules.get(kind.__module__) if isinstance(kind, type) else kind
    if module is None or (isinstance(module, ModuleType) and module.__spec__ is None):  # made by hand
        return True
    return bool(user_file(getattr(module, "__file__", None) or ""))


def seen_as_traced(value: object) -> bool:
    """Whether a trace can see the array as a traced one."""
    return type(value) in (np.ndarray, np.memmap) and value.dtype.isnative and value.dtype.name in SHORT


class Outside:
    """What one trace has read from outside, and the arguments that it must not mix up with it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.places: dict[int, Place] = {}  # by id of a value: how a call finds it
        self.steps: dict[tuple[int, Any, Any], Place] = {}  # by id of a holder, how, key
        # by id of an array from outside, of an argument, or of a real array that became a traced one
        self.traced: dict[int, TracedArray] = {}
        self.given: Sequence[Any] = ()  # the arguments
        self.leaves: dict[int, int] = {}  # id of an array among the arguments -> its position
        self.made: dict[int, Any] = {}  # by id: the memory of the last kind
        # by id: a view of a real array, the array, the index
        self.views: dict[int, tuple[np.ndarray, np.ndarray, Any]] = {}
        self._whole: set[int] = set()
        # by id: a holder that the program wrote to, what it had, the lines
        self._kept: dict[int, tuple[Any, Any, dict[Any, str]]] = {}
        # attributes, and items of dicts, that the program set: it reads its own there
        self._written: set[tuple[int, bool, Any]] = set()
        self.is_users = functools.cache(is_users)

    # ------------------------------------------------------------ noting what is read
    def root(self, value: Any, name: str = "") -> Place:
        """A place where paths begin. The value stays the same object."""
        return self.places.setdefault(id(value), Place(value, key=name))

    def weak_root(self, value: Any) -> None:
        """The object of a bound method, which a program does not keep alive."""
        if id(value) not in self.places:
            place = self.root(value, "self")
            place.weak = hasattr(type(value), "__weakref__")
            place.value = weakref.ref(value) if place.weak else value

    def referent(self, reference: Any) -> Any:
        """What a weak reference of the user's refers to, or None."""
        found = reference()
        self.note(reference, is_alive, None, found is not None)
        if found is not None and id(reference) in self.places:
            self.weak_root(found)
        return found

    def note(self, holder: Any, get: Any, key: Any, value: Any, where: Place | None = None) -> Any:
        """Note that the program has read ``value`` there. Returns what it gets into its hand."""
        at = where or self.places.get(id(holder))
        if at is None or type(value) is TracedArray or (id(holder), get is item_of, key) in self._written:
            return value
        step = id(holder), get, key if type(key) in (str, int, tuple) else id(key)
        if step in self.steps:
            return value
        plain, array = is_plain(value), seen_as_traced(value)
        if not plain and get not in CONTENTS and self._wrote(value):
            return value
        differs = is_other_plain if plain else is_other_array if array else is_other
        if get in CONTENTS:
            differs = is_other_content
        was = (value.shape, value.dtype) if differs is is_other_array else value
        place = self.steps[step] = Place(value, at, get, key, differs, was, user_line())
        if not plain and value is not ABSENT and differs is not is_other_content:
            if isinstance(value, np.ndarray) and not array:
                self._by_content(value, place)
            self.places.setdefault(id(value), place)
        return value

    def _wrote(self, value: Any) -> bool:
        """Whether the program itself has put an object there: it is not from outside then."""
        pairs = ((slots_of(holder).values(), before.values()) for holder, before, _ in self._kept.values())
        return any(id(value) in map(id, now) and id(value) not in map(id, before) for now, before in pairs)

    def _by_content(self, array: np.ndarray, place: Place) -> None:
        """An array that graphs cannot hold: NumPy computes with it now."""
        if array.nbytes > SMALL:
            raise refuse(f"an array of {array.dtype}, {array.nbytes:,} bytes", "NumPy computes with it while the program is "
                         "traced, so the result would be the same at every call", "Compute with it outside and pass the result in")
        self.note(array, bytes_of, None, bytes_of(array, None), place)

    def kind(self, value: Any) -> type:
        """The class of a value. An object of the user's may get another one."""
        kind = type(value)
        return self.note(value, class_of, "__class__", kind) if self.is_users(kind) else kind

    def names(self, fn: FunctionType, codes: Any) -> None:
        """Note the globals and the closure that a function names."""
        self.root(fn)
        # a notebook may load a function anew into the old one
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            if (held := getattr(fn, part)) is not None:
                self.note(fn, attribute_of, part, held)
                self.taken(held)
        space = self.root(fn.__globals__)
        for name in codes:
            self.note(fn.__globals__, name_of, name, fn.__globals__.get(name, ABSENT), space)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if not name.startswith("_hook_"):
                self.root(cell)
                self.note(cell, cell_of, name, cell_of(cell, None))

    # ------------------------------------------------------------ what the program gets
    def seen(self, value: Any) -> Any:
        """What the program gets into its hand: a traced array for an array from outside."""
        kind = type(value)
        if kind is np.ndarray or kind is np.memmap:
            return self.traced.get(id(value)) if id(value) in self.traced else self._stand_in(value)
        return value

    def taken(self, value: Any) -> Any:
        """What something goes over that reads all elements of a container."""
        if isinstance(value, CONTAINERS) and id(value) in self.places:
            self.whole(value)
        return self.seen(value)

    def _stand_in(self, array: np.ndarray) -> Any:
        place = self.places.get(id(array))
        if id(array if array.base is None else array.base) in self.made:
            if id(array) in self.views:
                return self.adopted(array)
            raise refuse("an array that shares memory with one that got new values", "it was made before they were known",
                         "Take the view anew, after the array has got them")
        if place is None or not seen_as_traced(array):
            return array
        storage = OutsideStorage(self.recorder, array, self.name_of(place))
        strides = strides_of(array.shape) if array.flags.c_contiguous or array.ndim < 2 else None
        made = self.traced[id(array)] = TracedArray(
            self.recorder, storage, TensorType(array.shape, array.dtype.name), strides=strides)
        return made

    def whole(self, value: Any) -> None:
        """Note all elements of a container that the program has in its hand."""
        if id(value) in self._whole:
            return
        self._whole.add(id(value))
        self.note(value, keys_of, None, keys_of(value, None))
        if all(map(is_plain, value.values() if isinstance(value, dict) else value)):
            self.note(value, plain_of, None, plain_of(value, None))
            return
        for key in [] if isinstance(value, set | frozenset) else [*value] if isinstance(value, dict) else range(len(value)):
            self.note(value, item_of, key, value[key])
            if isinstance(value[key], CONTAINERS):
                self.whole(value[key])

    def inside(self, value: Any, deep: int = 99, words: Sequence[str] = ()) -> list[np.ndarray]:
        """Note all that an object from outside holds, or what it has under these names.

        Returns the arrays.
        """
        met, found, waiting = set[int](), list[np.ndarray](), [(value, deep)]
        for each, left in waiting:
            if id(each) in met or id(each) not in self.places:
                continue
            met.add(id(each))
            space = isinstance(each, type | ModuleType)
            if isinstance(each, np.ndarray):
                found.append(each)
            elif isinstance(each, CONTAINERS):
                self.whole(each)
                waiting += [(one, left) for one in (each.values() if isinstance(each, dict) else each)]
            elif left and (words or not space) and self.is_users(each if space else type(each)):
                for name in words or slots_of(each):
                    waiting.append((self.note(each, attribute_of, name, attribute_of(each, name)), left - 1))
        return found

    def adopted(self, array: np.ndarray) -> Any:
        """The traced array that stands for a real one from now on.

        The program has made the real one, and writes traced values to it. One that shares memory
        with an array from outside stays as it is.
        """
        if id(array) in self.views:
            _, whole, key = self.views[id(array)]
            view = (self.traced[id(whole)] if id(whole) in self.traced else self.adopted(whole))[key]
            return self.traced.setdefault(id(array), view) if type(view) is TracedArray else array
        owner = array if array.base is None else array.base
        if id(array) in self.places or id(owner) in self.places or not array.flags.writeable or not seen_as_traced(array):
            return array
        self.made[id(owner)] = owner
        made = self.traced[id(array)] = fresh(self.recorder.capture(array), bool(array.flags.c_contiguous), scalar=False)
        return made

    def name_of(self, place: Place) -> str:
        """How the program refers to a value: ``net.layers[0]``."""
        if place.get in (name_of, cell_of):
            return str(place.key)
        if place.holder is None:
            return place.key or getattr(place.value, "__name__", "")
        before = self.name_of(place.holder)
        if place.get is item_of:
            return f"{before}[{place.key!r}]"
        return f"{before}.{place.key[1] if place.get is parent_of else place.key}".removeprefix(".")

    # ------------------------------------------------------------ what the program leaves behind
    def holder(self, value: Any, key: Any = None, item: bool = False) -> None:
        """Note that the program is about to write there."""
        if id(value) in self.places or isinstance(value, ModuleType | type):
            self.keep(value, slots_of(value))[None if item else key] = user_line()[0]
            if (key is not None and not item) or isinstance(value, dict):
                self._written.add((id(value), item, key))

    def keep(self, value: Any, was: dict[Any, Any]) -> dict[Any, str]:
        """Keep what a holder had before the program wrote there. Returns the lines that write."""
        return self._kept.setdefault(id(value), (value, was, {}))[2]

    def put_back(self) -> tuple[str, str] | None:
        """Put former values into slots outside that hold a traced array. Returns what and where."""
        found: list[tuple[str, str]] = []
        for place in self.steps.values():
            if place.get in (name_of, cell_of) and _is_traced(now := place.now(), self.recorder, 0):
                found.append((str(place.key), self.line_of(now) or place.line[0]))
                _put(place.holder.value, place.key if place.get is name_of else "cell_contents", place.value)
        for value, was, lines in self._kept.values():
            left = [key for key, each in slots_of(value).items() if _is_traced(each, self.recorder)]
            for key in left:
                place = self.places.get(id(value))
                name = self.name_of(place) if place else getattr(value, "__name__", "")
                called = f"{name}[{key!r}]" if isinstance(value, GROWING) else f"{name}.{key}".removeprefix(".")
                found.append((called, lines.get(key, lines.get(None, next(iter(lines.values()), "")))))
            for key in reversed(left):  # what was appended goes
                _put(value, key, was.get(key, ABSENT))
        return found[0] if found else None

    def forget(self) -> None:
        """Let go of the user's objects.

        A trace is in a circle with its arrays, and they should not wait for the collector.
        """
        for held in (self.places, self.steps, self.traced, self.made, self.views, self._kept):
            held.clear()
        self.given = ()

    def line_of(self, value: Any) -> str:
        """The line that computed a traced array, if it is known."""
        node = getattr(value, "_node", -1)
        return self.recorder[node].where if node >= 0 else ""

    # ------------------------------------------------------------ afterwards
    def paths(self, captured: Sequence[np.ndarray], asked: Any, matters: bool, fn: Any) -> Paths:
        """The walk that a call makes.

        ``asked``: ids of arrays whose contents the program asked for. ``matters``: whether it does
        something else if two arrays are one.
        """
        for key in frozenset().union(*(storage.layout for storage, *_ in self.recorder.layouts)):
            if (place := self.places.get(key)) is not None:
                self.note(place.value, strides_now, None, place.value.strides, place)
        for array in captured:
            if id(array) in asked and (place := self.places.get(id(array))):
                self.note(array, bytes_of, None, bytes_of(array, None), place)
        fn = fn.__func__ if type(fn) is MethodType else fn
        code = fn.__code__ if type(fn) is FunctionType else None
        places = [each for each in self.steps.values() if each.value is not code or code is None]
        arrays = [each for each in places if each.differs is is_other_array]
        first = {id(each.value): each for each in reversed(arrays)}
        inputs = [first[id(each)] for each in captured if id(each) in first]
        at = {id(each.value): i for i, each in enumerate(inputs)}
        more = [each for each in arrays if each not in inputs and (
            self.recorder.identified or id(each.value) in at or id(each.value) in self.leaves)]
        fixed = [each for each in places if each.differs in (is_other, is_other_plain)]
        others = [each for each in places if each not in fixed and each not in inputs and each not in more]
        now = alike([*(each.value for each in (*inputs, *more)), *self.given])
        return Paths(fixed, [*inputs, *more], others, [at.get(id(each), each) for each in captured],
                     now if more or (matters and len(now) > 1) else (), fn if code else None)


def slots_of(value: Any) -> dict[Any, Any]:
    """What an object, list or dict holds, by name, position or key."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | deque):
        return dict(enumerate(value))
    names = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    return {name: getattr(value, name) for name in names
            if hasattr(value, name)} | dict(getattr(value, "__dict__", {}))


def _put(value: Any, key: Any, was: Any) -> None:
    if isinstance(value, GROWING):
        operator.delitem(value, key) if was is ABSENT else operator.setitem(value, key, was)
    else:
        delattr(value, key) if was is ABSENT else setattr(value, key, was)


def _is_traced(value: Any, recorder: Recorder, deep: int = 3) -> bool:
    if type(value) in (list, tuple, dict) and deep:
        return any(_is_traced(each, recorder, deep - 1)
                   for each in (value.values() if isinstance(value, dict) else value))
    if type(value) is np.ndarray:  # the program has made it, and it got traced values
        return id(value if value.base is None else value.base) in recorder.outside.made
    return type(value) is TracedArray and value.recorder is recorder
