"""What the values outside of a program hold: the parts that it may read, and those that can change.

In:  an object, list, dict, function, module ... Out: its parts as a program reads them, and its
state, which ``put_back`` restores.

A new kind of value that holds others gets its line here: ``outside`` meets the parts before the
program runs, and ``reads`` writes how a call finds each again.
"""

import functools
import inspect
import logging
import pickle
import random
import sys
import threading
import types
import weakref
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import is_
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from .array import TracedArray
from .methods import members
from .recorder import user_file

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence, random.Random)
SCALARS = (bool, int, float, complex, str, bytes, types.NoneType, np.generic)
# what is looked at through its attributes, whatever their names, or through these
HELD: dict[type, tuple[str, ...]] = {
    MethodType: ("__func__", "__self__"), staticmethod: ("__func__",), classmethod: ("__func__",),
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), ("mapping",)),
    **dict.fromkeys((functools.partial, functools.partialmethod, functools.cached_property,
                     functools.singledispatchmethod, property), ())}
OWNED = (dict, list, tuple, set, frozenset, deque, np.ndarray, bytearray, memoryview, array)
# what Python gives to modules and classes; an ``enum.Flag`` keeps its combinations in the last
LOADED = {"__builtins__", "__loader__", "__spec__", "__dict__", "__weakref__",
          "_value2member_map_"}
KEPT = ("__warningregistry__", "__slotnames__")  # by ``warnings`` and ``copy``
TOLD = ("__defaults__", "__kwdefaults__", "__annotations__")
PACKAGE = __name__.partition(".")[0]
PRIVATE = random.Random | threading.local | np.ndarray | CodeType  # their attributes are no state
CALLED = "()"  # the key of what a weak reference refers to
IMMUTABLE = 1 << 8  # the flag of a class whose attributes cannot be set
BYTES = ...  # the key of a value's memory


class OutsidePart(NamedTuple):
    """A value that another object holds, as ``holder[key]`` or ``holder.key``."""

    holder: Any
    is_item: bool
    key: Any
    value: Any
    name: str = ""

    def called(self, holder: str) -> str:
        """How the program refers to it, given the holder's name."""
        return self.name or (f"{holder}[{self.key!r}]" if self.is_item else f"{holder}.{self.key}".removeprefix("."))


def is_plain(value: object) -> bool:
    """Whether a value is a number or text, and so cannot change."""
    return isinstance(value, SCALARS) and type(value).__module__ in ("builtins", "numpy") and type(value) is not np.void


def parts(value: Any) -> Iterator[OutsidePart]:
    """The values that a value holds, as a program reads them.

    Numbers, text and arrays hold none. What a program prints or logs is no part of it.
    """
    kind = type(value)
    if takes_text(value):
        return
    if isinstance(value, dict | MappingProxyType):
        yield from (OutsidePart(value, True, key, each) for key, each in [*value.items()])
    elif isinstance(value, list | tuple | deque):
        yield from (OutsidePart(value, True, i, each) for i, each in enumerate([*value]))
    elif isinstance(value, np.ndarray | np.void) and value.dtype.hasobject:
        yield from _objects(value)
    if isinstance(value, dict | MappingProxyType | set | frozenset):
        yield from _elements(value)
    elif isinstance(value, BaseException):
        yield OutsidePart(value, False, "args", value.args)
    if isinstance(value, FunctionType):
        yield from _of_function(value) if user_file(value.__code__.co_filename) else _wrapped_by(value)
    elif kind in HELD:
        names = {"__self__": "self"}
        yield from (OutsidePart(value, False, key, getattr(value, key), names.get(key, ""))
                    for key in HELD[kind] or attributes(value))
    elif isinstance(value, weakref.ref):
        yield OutsidePart(value, False, CALLED, value())
    elif (owner := owner_of(value)) is not None:
        yield OutsidePart(value, False, "__self__", owner)
    elif isinstance(value, ModuleType | type):
        if is_users(value):
            yield from (OutsidePart(value, False, key, each) for key, each in members(value).items()
                        if key not in LOADED)
            yield from [OutsidePart(value, False, "__bases__", value.__bases__)] if isinstance(value, type) else ()
    elif is_users(kind) or not isinstance(value, PRIVATE):
        held = SCALARS if isinstance(value, logging.Logger) else object
        yield from (OutsidePart(value, False, key, each)
                    for key, each in attributes(value).items() if isinstance(each, held))
    if not isinstance(value, ModuleType) and may_change(kind):
        yield OutsidePart(value, False, "__class__", kind)


def takes_text(value: object) -> bool:
    """Whether this is what ``print`` writes to."""
    return value is sys.stdout or value is sys.stderr


def _objects(array: Any) -> Iterator[OutsidePart]:
    """The objects in an array or a record, also those in its fields."""
    if array.dtype == object:
        yield from (OutsidePart(array, True, i, each) for i, each in np.ndenumerate(array))
    for name in array.dtype.names or ():
        is_one = array.dtype[name].kind == "O" and isinstance(array, np.void)
        yield from [OutsidePart(array, True, name, array[name])] if is_one else _objects(array[name])


def _elements(values: Iterable[Any]) -> Iterator[OutsidePart]:
    """The objects in a set, or among a dict's keys. They stay the same: another is another set."""
    return (OutsidePart(CellType(each), False, "cell_contents", each) for each in [*values]
            if is_users(type(each)) or isinstance(each, weakref.ref | FunctionType))


def _wrapped_by(fn: FunctionType, depth: int = 1) -> Iterator[OutsidePart]:
    """The user's functions that a library's decorator has put into its own, or into its dict."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        held = None if cell == CellType() else cell.cell_contents
        leads = depth and isinstance(held, FunctionType) and any(_wrapped_by(held, depth - 1))
        if leads or any(map(is_users_def, held.values() if isinstance(held, dict) else [held])):
            yield OutsidePart(cell, False, "cell_contents", held, name)


def is_users_def(value: object) -> bool:
    """Whether a value is a function that the user has written."""
    return isinstance(value, FunctionType) and bool(user_file(value.__code__.co_filename))


def is_users_own(value: object) -> bool:
    """Whether a value is a user's function, class or module, or an object of a user's class."""
    return is_users_def(value) or is_users(
        value if isinstance(value, type | ModuleType) else type(value))


def _of_function(fn: FunctionType) -> Iterator[OutsidePart]:
    """The globals that a function names, its closure, its defaults and its attributes.

    An empty cell of the closure is left out.
    """
    known, names = fn.__globals__, _names(fn.__code__)
    yield from (OutsidePart(known, True, n, known[n], n) for n in names if n in known)
    held = [cell.cell_contents for cell in fn.__closure__ or () if cell != CellType()]
    for space in [*held, *(known[name] for name in names if name in known)]:
        is_library = isinstance(space, ModuleType | type) and not is_users(space)
        if is_library and space.__name__.partition(".")[0] not in ("numpy", "math"):
            yield from (OutsidePart(space, False, name, vars(space)[name]) for name in vars(space).keys() & names)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        if cell != CellType():
            yield OutsidePart(cell, False, "cell_contents", cell.cell_contents, name)
    defaults, named = fn.__defaults__ or (), fn.__kwdefaults__ or {}
    first = fn.__code__.co_argcount - len(defaults)
    yield from (OutsidePart(defaults, True, i, each, fn.__code__.co_varnames[first + i]) for i, each in enumerate(defaults))
    yield from (OutsidePart(named, True, name, each, name) for name, each in named.items())
    told = [(name, getattr(fn, name)) for name in TOLD if getattr(fn, name)]
    yield from (OutsidePart(fn, False, name, each) for name, each in told)
    yield from (OutsidePart(fn, False, key, each) for key, each in vars(fn).items())


def may_change(kind: type) -> bool:
    """Whether attributes of a class can be set."""
    return not kind.__flags__ & IMMUTABLE


def _names(code: CodeType) -> dict[str, None]:
    """The names in a function and in the functions defined inside it, in order."""
    inner = (name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each))
    return dict.fromkeys([*code.co_names, *inner])


def owner_of(value: object) -> Any:
    """The object of a bound method that is written in C. None for anything else."""
    written_in_c = isinstance(value, BuiltinFunctionType | types.MethodWrapperType | MethodType)
    if not written_in_c or isinstance(value.__self__, ModuleType | type):
        return None
    return None if isinstance(getattr(value, "__func__", None), FunctionType) else value.__self__


def is_users(kind: type | ModuleType) -> bool:
    """Whether a class or module is one of the user's."""
    # Its attributes are another thread's.
    if isinstance(kind, type) and issubclass(kind, threading.local):
        return False
    if kind is types.SimpleNamespace or (kind.__module__ if isinstance(kind, type) else kind.__name__) == "__main__":
        return True
    module = sys.modules.get(kind.__module__) if isinstance(kind, type) else kind
    if isinstance(module, ModuleType) and module.__spec__ is None:  # made by hand
        return True
    return bool(user_file(getattr(module, "__file__", None) or ""))


def attributes(value: object) -> dict[str, Any]:
    """The attributes of an object, also those in ``__slots__``, and the members of C's objects."""
    found = getattr(value, "__dict__", None)
    found = dict(found) if isinstance(found, dict) else {}  # some answer to any name
    for name, slot in slots_of(type(value)).items():
        if hasattr(value, name):
            found[name] = slot.__get__(value)
    return found


def slots_of(kind: type) -> dict[str, Any]:
    return {name: each for base in kind.__mro__ for name, each in vars(base).items() if isinstance(each, types.MemberDescriptorType)
            and not base.__module__.startswith(PACKAGE)
            and (not name.startswith("__") or (is_users(base) and name not in LOADED))}


# By the id of a library's module: itself, all that it had when it was last asked for, its state then.
_libraries: dict[int, tuple[weakref.ref[ModuleType], dict[str, Any], dict[tuple[bool, Any], Any]]] = {}


def _state_of_library(module: ModuleType) -> dict[tuple[bool, Any], Any]:
    """The dict of the last time, if the module has the same objects: NumPy has hundreds."""
    now = dict(vars(module))
    known, had, state = _libraries.get(id(module), (None, {}, {}))
    if known is None or known() is not module or now.keys() != had.keys() or not all(map(is_, now.values(), had.values())):
        # an import may add a module
        state = {(False, key): each for key, each in now.items() if not key.startswith("_") and not isinstance(each, ModuleType)}
        _libraries[id(module)] = weakref.ref(module), now, state
    return state


def state(value: Any) -> dict[tuple[bool, Any], Any]:
    """The parts of a value that can change, by whether it is an item, and its key."""
    if isinstance(value, ModuleType) and not is_users(value):
        return _state_of_library(value)
    items: Iterable[tuple[Any, Any]] = ()
    names: dict[str, Any] = {}
    if isinstance(value, dict | set):
        items = value.items() if isinstance(value, dict) else ((each, each) for each in value)
    elif isinstance(value, list | deque):
        items = enumerate(value)
    if isinstance(value, CellType):
        names = {} if value == CellType() else {"": value.cell_contents}
    elif isinstance(value, FunctionType):
        told = ("__code__", "__name__", "__qualname__", *TOLD)
        names = vars(value) | {key: getattr(value, key) for key in told}
    elif isinstance(value, type | ModuleType):
        names = {key: each for key, each in members(value).items() if key not in KEPT}
        names |= {"__bases__": value.__bases__} if isinstance(value, type) else {}
    elif is_users(type(value)) or not isinstance(value, PRIVATE):
        names = attributes(value) | {"__class__": type(value)}
    if isinstance(value, BaseException):
        names = names | {"args": value.args}
    if isinstance(value, GENERATORS) and not isinstance(value, random.SystemRandom):
        items = [(BYTES, pickle.dumps(getattr(value, "bit_generator", value).__getstate__()))]
    elif (content := memory(value)) is not None:
        items = [(BYTES, content)]
    return {**{(True, key): each for key, each in [*items]}, **{(False, key): each for key, each in names.items()}}


def memory(value: Any) -> bytes | None:
    """The memory that a value lets others read, else None.

    Such a value is an ``array.array``, a ctypes object, a NumPy record ...

    An array that is locked cannot change.
    """
    if isinstance(value, type) or (isinstance(value, np.ndarray) and not value.flags.writeable):
        return None
    try:
        return memoryview(value).tobytes()
    except (TypeError, ValueError, BufferError):
        return None


def _put_bytes_back(value: Any, was: bytes) -> None:
    if isinstance(value, bytearray | array):  # it may have another length now
        value[:] = was if isinstance(value, bytearray) else array(value.typecode, was)
    elif isinstance(value, GENERATORS):
        getattr(value, "bit_generator", value).__setstate__(pickle.loads(was))
    elif isinstance(value, np.void):
        for name in value.dtype.names or ():
            value[name] = np.frombuffer(was, value.dtype)[0][name]
    elif not memoryview(value).readonly:
        put = np.asarray(value) if isinstance(value, memoryview | np.ndarray) else np.frombuffer(value, np.uint8)
        put[...] = np.frombuffer(was, put.dtype).reshape(put.shape)


def put_back(value: Any, was: dict[tuple[bool, Any], Any], now: dict[tuple[bool, Any], Any]) -> None:
    """Give a value its former state."""
    if (True, BYTES) in was:
        _put_bytes_back(value, was[True, BYTES])
    if isinstance(value, dict | set | list | deque):
        value.clear()
        items = {key: each for (is_item, key), each in was.items() if is_item}
        value.update(items) if isinstance(value, dict | set) else value.extend(items.values())
    kind = type if isinstance(value, type) else object
    with suppress(AttributeError, TypeError):  # of an object written in C
        for is_item, key in now.keys() - was.keys():
            if not is_item:
                kind.__delattr__(value, key)
        for (is_item, key), each in was.items():
            if not is_item and now.get((False, key), now) is not each:
                kind.__setattr__(value, key or "cell_contents", each)


def changed_keys(value: Any, was: dict[tuple[bool, Any], Any], now: dict[tuple[bool, Any], Any]) -> list[tuple[bool, Any]]:
    """The keys that are new, gone or changed, or those of a dict in another order.

    Not what a ``functools.cached_property``, or a slot of a library's class, keeps to compute it
    once, unless it is a traced value.
    """
    if now is was:
        return []
    # another trace, in another thread, may have opened an array's memory
    new = [(is_item, k) for (is_item, k), each in now.items()
           if (is_item, k) not in was and k is not BYTES and (
               is_item or isinstance(each, TracedArray)
               or not _keeps(inspect.getattr_static(type(value), k, None)))]
    changed = new + [key for key, each in was.items() if not same(now.get(key, now), each)]
    moved = [key for key, o in zip(was, now, strict=False) if key != o and isinstance(value, dict)]
    return changed or moved


def _keeps(member: object) -> bool:
    """Whether this attribute of a class only keeps what its object computes once."""
    is_slot = isinstance(member, types.MemberDescriptorType) and not is_users(member.__objclass__)
    return is_slot or isinstance(member, functools.cached_property)


def same(now: object, was: object) -> bool:
    """Whether it is the same object, or an equal number or text of the same type."""
    return now is was or (type(now) is type(was) and isinstance(now, SCALARS) and repr(now) == repr(was))
