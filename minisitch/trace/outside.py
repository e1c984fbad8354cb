"""The world outside of a program: how the trace sees it, and that the program leaves it unchanged.

In:  the function and the objects it is given. Out: ``Outside``, which knows every object, list,
dict and array that they lead to.

A function's text runs only once, so later calls would not repeat its effects on the outside world.
The program sees arrays from outside as traced arrays. It sees copies of the objects, lists and
dicts that lead to them. Computing with them is recorded, and a write is refused at its line. Any
other change (attributes, elements, names, classes) is found at the end, undone and refused. Random
numbers and the clock's time are refused, too, and generators are set back. ``reads`` says how a
call finds the arrays again.

Before:  self.w = self.w - step
After:   TraceError: ... the program puts what it computed into w ...; self.w is as it was
"""

from __future__ import annotations

import datetime
import dis
import enum
import functools
import inspect
import os
import pickle
import random
import re
import sys
import threading
import time
import types
import uuid
import zlib
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

import numpy as np

from ..ops import SHORT
from .array import OUTSIDE, OutsideStorage, TracedArray, strides_of
from .recorder import current, refuse, user_file, user_line
from .refusals import called_by

SCALARS = (bool, int, float, complex, str, bytes, types.NoneType, np.generic)
MOST_MET = 20_000  # objects, lists and dicts
HELD = {MethodType: ("__func__", "__self__"), functools.partial: ("func", "args", "keywords"), property: ("fget", "fset"),
        functools.cached_property: ("func",), staticmethod: ("__func__",), classmethod: ("__func__",),
        ChainMap: ("maps",), UserDict: ("data",), UserList: ("data",)}
CACHE = type(functools.cache(len))
GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
OUTCOME = "the program runs once, so later calls would change nothing there"
INSTEAD = "Pass it in as an argument, where arrays may be changed in place, and return what is new"
AGAIN = "the program runs once, so the result would be the same at every call"
DRAWN = ("Draw outside and pass the array in as an argument, or use a generator with a seed inside, np.random.default_rng(seed), "
         "for the same numbers at every call")
NEXT = "Take the next one outside and pass it in as an argument"
ASK = "Ask outside, and pass the answer in as an argument"
SETTING = "Set it outside; inside, write with np.errstate(...) for np.seterr"
UNSEEN = "later calls would not see what changes there"

# What asks for something that may be another at each call -> why not, what to write, and whether
# only the user's own code is meant.
ENVIRONMENT = type(os.environ).__getitem__.__code__
ASKED: dict[Any, tuple[str, str, bool]] = {
    **{each: (AGAIN, ASK, True) for each in vars(time).values()
       if isinstance(each, BuiltinFunctionType) and each not in (time.sleep, time.mktime, time.strptime)},
    **dict.fromkeys((datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today, datetime.date.today, os.times),
                    (AGAIN, ASK, True)),
    **dict.fromkeys((os.urandom, random.random, random.getrandbits, uuid.uuid1.__code__, random.Random.seed.__code__),
                    (AGAIN, DRAWN, False)),
    **dict.fromkeys((open, input, os.open, os.stat, os.listdir, os.scandir, os.getcwd, ENVIRONMENT),
                    (AGAIN, ASK, False)),
    **dict.fromkeys((globals, eval, exec), (UNSEEN, "Write the name, or the expression, itself", True)),
}
# settings of the whole process: name, how to get and set them
SETTINGS: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
    ("np.seterr", np.geterr, lambda was: np.seterr(**was)),
    ("np.set_printoptions", np.get_printoptions, lambda was: np.set_printoptions(**was)),
    ("os.environ", os.environ.copy, lambda was: os.environ.update(was) or [os.environ.pop(key) for key in {*os.environ} - {*was}])]
# modules that read files, but not for the program
MACHINERY = ("importlib", "linecache", "tokenize", "warnings")
OURS = tuple(f"{__name__.partition('.')[0]}.{room}" for room in ("runtime", "explain", "lower", "strategies", "errors"))
CHANGES = set("append extend insert pop remove clear sort reverse update setdefault popitem add discard appendleft extendleft "
              "popleft rotate STORE_SUBSCR STORE_SLICE DELETE_SUBSCR".split())


# what was seen, the reason, the remedy, the user's line
OutsideRefusal = tuple[str, str, str, tuple[str, str]]


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


def parts(value: Any) -> Iterator[OutsidePart]:
    """The values that a value holds, as a program reads them.

    Numbers, text and arrays hold none, and an object or module of a library only numbers and text.
    """
    if isinstance(value, dict | MappingProxyType):
        yield from (OutsidePart(value, True, key, each) for key, each in [*value.items()])
        yield from _elements(value)
    elif isinstance(value, set | frozenset):
        yield from _elements(value)
    elif isinstance(value, list | tuple | deque):
        yield from (OutsidePart(value, True, i, each) for i, each in enumerate([*value]))
    elif isinstance(value, FunctionType):
        yield from _of_function(value) if user_file(value.__code__.co_filename) else _wrapped_by(value)
    elif type(value) in HELD:
        names = {"__self__": "self"}
        yield from (OutsidePart(value, False, key, getattr(value, key), names.get(key, "")) for key in HELD[type(value)])
    elif (owner := owner_of(value)) is not None:
        yield OutsidePart(value, False, "__self__", owner)
    elif isinstance(value, ModuleType | type):
        if is_users(value):
            yield from (OutsidePart(value, False, key, each) for key, each in [*vars(value).items()]
                        if not key.startswith("__") or callable(each))
            yield from [OutsidePart(value, False, "__bases__", value.__bases__)] if isinstance(value, type) else ()
    elif not isinstance(value, np.ndarray):
        if is_users(type(value)):
            yield from (OutsidePart(value, False, key, each) for key, each in attributes(value).items())
            yield OutsidePart(value, False, "__class__", type(value))
        else:
            yield from (OutsidePart(value, False, key, each) for key, each in [*getattr(value, "__dict__", {}).items()]
                        if isinstance(each, SCALARS))
        # a cache, a jitted function
        if isinstance(inspect.getattr_static(value, "__wrapped__", None), FunctionType | MethodType):
            yield OutsidePart(value, False, "__wrapped__", value.__wrapped__)


def _elements(values: Iterable[Any]) -> Iterator[OutsidePart]:
    """The objects in a set, or among the keys of a dict. They stay the same: another is another set."""
    return (OutsidePart(CellType(each), False, "cell_contents", each) for each in [*values] if is_users(type(each)))


def _wrapped_by(fn: FunctionType) -> Iterator[OutsidePart]:
    """The user's functions that a library's decorator has put into its own."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        if cell != CellType() and is_users_function(cell.cell_contents):
            yield OutsidePart(cell, False, "cell_contents", cell.cell_contents, name)


def is_users_function(value: object) -> bool:
    """Whether a value is a function that the user has written."""
    return isinstance(value, FunctionType) and bool(user_file(value.__code__.co_filename))


def _of_function(fn: FunctionType) -> Iterator[OutsidePart]:
    """The globals that a function names, its closure, its defaults and its attributes.

    An empty cell of the closure is left out.
    """
    known = fn.__globals__
    yield from (OutsidePart(known, True, name, known[name], name) for name in _names(fn.__code__) if name in known)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        if cell != CellType():
            yield OutsidePart(cell, False, "cell_contents", cell.cell_contents, name)
    defaults, named = fn.__defaults__ or (), fn.__kwdefaults__ or {}
    first = fn.__code__.co_argcount - len(defaults)
    yield from (OutsidePart(defaults, True, i, each, fn.__code__.co_varnames[first + i]) for i, each in enumerate(defaults))
    yield from (OutsidePart(named, True, name, each, name) for name, each in named.items())
    yield from (OutsidePart(fn, False, name, getattr(fn, name)) for name in ("__defaults__", "__kwdefaults__") if getattr(fn, name))
    yield from (OutsidePart(fn, False, key, each) for key, each in vars(fn).items())


def _names(code: CodeType) -> dict[str, None]:
    """The names in a function and in the functions defined inside it, in order."""
    inner = (name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each))
    return dict.fromkeys([*code.co_names, *inner])


def owner_of(value: object) -> Any:
    """The object of a bound method that is written in C. None for anything else."""
    if not isinstance(value, BuiltinFunctionType | MethodWrapperType | MethodType) or isinstance(value.__self__, ModuleType | type):
        return None
    return None if isinstance(getattr(value, "__func__", None), FunctionType) else value.__self__


def is_users(kind: type | ModuleType) -> bool:
    """Whether a class or module is one of the user's."""
    if isinstance(kind, type) and issubclass(kind, threading.local):  # its attributes are another thread's
        return False
    if kind is SimpleNamespace or (kind.__module__ if isinstance(kind, type) else kind.__name__) == "__main__":
        return True
    module = sys.modules.get(kind.__module__) if isinstance(kind, type) else kind
    if isinstance(module, ModuleType) and module.__spec__ is None:  # made by hand
        return True
    return bool(user_file(getattr(module, "__file__", None) or ""))


def attributes(value: object) -> dict[str, Any]:
    """The attributes of a user's object, also those in ``__slots__``."""
    found = dict(vars(value)) if hasattr(value, "__dict__") else {}
    for name, slot in _slots(type(value)).items():
        if hasattr(value, name):
            found[name] = slot.__get__(value)
    return found


def _slots(kind: type) -> dict[str, Any]:
    return {name: each for base in kind.__mro__ for name, each in vars(base).items() if isinstance(each, types.MemberDescriptorType)
            and is_users(base) and not name.startswith("__")}


def state(value: Any) -> dict[Any, Any] | None:
    """The part of a value that can change. None if nothing can."""
    if isinstance(value, CellType):
        return {"": value.cell_contents}
    if isinstance(value, dict | set):
        return dict(value) if isinstance(value, dict) else dict.fromkeys(value)
    if isinstance(value, list | deque):
        return dict(enumerate(value))
    if isinstance(value, type | ModuleType):
        return {key: each for key, each in vars(value).items() if key != "__warningregistry__"} if is_users(value) else None
    if isinstance(value, FunctionType):
        return dict(vars(value))
    return attributes(value) if is_users(type(value)) and not isinstance(value, tuple) else None


def put_back(value: Any, was: dict[Any, Any], now: dict[Any, Any]) -> None:
    """Give a value its former state."""
    if isinstance(value, CellType):
        value.cell_contents = was[""]
    elif isinstance(value, dict):
        value.clear()
        value.update(was)
    elif isinstance(value, set | list | deque):
        value.clear()
        value.update(was) if isinstance(value, set) else value.extend(was.values())
    else:
        kind = type if isinstance(value, type) else object
        remove, store = kind.__delattr__, kind.__setattr__
        for key in now.keys() - was.keys():
            remove(value, key)
        for key, each in was.items():
            if now.get(key, now) is not each:
                store(value, key, each)


def _changed(value: Any, was: dict[Any, Any], now: dict[Any, Any]) -> list[Any]:
    """The keys that are new, gone or changed, but not those of ``functools.cached_property``."""
    cached = [key for key in now if key not in was and isinstance(key, str)
              and isinstance(inspect.getattr_static(type(value), key, None), functools.cached_property)]
    new = [key for key in now if key not in was and key not in (*cached, "__warningregistry__")]
    return new + [key for key, each in was.items() if not same(now.get(key, now), each)]


def same(now: object, was: object) -> bool:
    """Whether it is the same object, or an equal number or text of the same type."""
    return now is was or (type(now) is type(was) and isinstance(now, SCALARS) and repr(now) == repr(was))


def _depth(array: np.ndarray) -> int:
    return 1 + _depth(array.base) if isinstance(array.base, np.ndarray) else 0


def _draws(value: object) -> bool:
    """Whether a value gives something new each time it is asked.

    A user's own iterator does not count: its attributes tell.
    """
    owner = owner_of(value)
    value = value if owner is None else owner
    return isinstance(value, GENERATORS) or (isinstance(value, Iterator) and not is_users(type(value)))


def seen_as_traced(value: object) -> bool:
    """Whether a trace can see the array as a traced one."""
    return type(value) in (np.ndarray, np.memmap) and value.dtype.isnative and value.dtype.name in SHORT


class Outside:
    """Everything reached from ``roots``: the function and its arguments, each with a name."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        # id -> the value, kept alive so that the id stays its own, and its name
        self.met: dict[int, tuple[Any, str]] = {}
        self.executed: dict[CodeType, None] = {}  # the code that has run
        # set by ``shim``, which copies functions and knows the stand-ins of library values
        self.rebinder: Any = None
        self._holders: defaultdict[int, list[int]] = defaultdict(list)
        self._seen: dict[int, Any] = {}
        self._originals: dict[int, Any] = {}
        self._before: list[tuple[str, Any, dict[Any, Any]]] = []
        # what is seen if it changes, why not, what to write; its state; how to get and set that
        self._states: list[tuple[tuple[str, str, str], Any, Callable[[], Any], Callable[[Any], Any]]] = []
        self._locked: list[np.ndarray] = []
        self._summed: list[tuple[str, np.ndarray, int]] = []
        self._watching = False
        self._settings: list[tuple[str, Any, Callable[[], Any], Callable[[Any], Any]]] = []
        self._set: OutsideRefusal | None = None  # the first setting that the program changed
        self.asked: OutsideRefusal | None = None  # the first draw, look at a clock, file read
        self._meet(roots)
        self._leads = self._leading()

    # ------------------------------------------------------------ before the program runs
    def _meet(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Record the values that the roots hold, and what those hold in turn."""
        pending = deque(roots)
        while pending:
            name, value = pending.popleft()
            if id(value) in self.met:
                continue
            if len(self.met) >= MOST_MET:
                raise refuse(f"more than {MOST_MET:,} objects outside of the program, such as {name}",
                             "each call would look at all of them", INSTEAD, current().begins)
            self.met[id(value)] = value, name
            for part in parts(value):
                if isinstance(part.value, SCALARS):
                    continue
                self._holders[id(part.value)].append(id(value))
                pending.append((part.called(name), part.value))
                if isinstance(part.holder, CellType) and id(part.holder) not in self.met:
                    self.met[id(part.holder)] = part.holder, ""

    def _leading(self) -> set[int]:
        """The ids of values that lead to arrays and generators. These are copied for the program.

        A class does not lead there through its functions.
        """
        pending = [key for key, (value, _) in self.met.items() if seen_as_traced(value) or _draws(value)]
        found = set(pending)
        while pending:
            key = pending.pop()
            value = self.met[key][0]
            for holder in self._holders[key]:
                by_function = isinstance(self.met[holder][0], type) and isinstance(value, FunctionType | type | property)
                if holder not in found and not by_function:
                    found.add(holder)
                    pending.append(holder)
        return found

    def close(self) -> None:
        """Record the state of everything, and lock arrays against writes.

        ``reopen`` unlocks them.
        """
        self._watch_states()
        for value, name in self.met.values():
            if isinstance(value, np.ndarray):
                self._lock(value, name)
            elif (was := state(value)) is not None:
                self._before.append((name, value, was))
        if sys.getprofile() is None:
            self._watching = True
            sys.setprofile(self._watch)
        else:  # a profiler is running: count all that could run as run
            self.executed.update({value.__code__: None for value, _ in self.met.values() if isinstance(value, FunctionType)})

    def _watch_states(self) -> None:
        known: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
            ("np.random", np.random.get_state, np.random.set_state), ("random", random.getstate, random.setstate)]
        for value, name in self.met.values():
            if isinstance(value, random.SystemRandom):
                continue
            if isinstance(value, random.Random):
                known.append((name, value.getstate, value.setstate))
            elif isinstance(value, np.random.RandomState):
                known.append((name, value.get_state, value.set_state))
            elif isinstance(value, GENERATORS):
                bits = getattr(value, "bit_generator", value)
                known.append((name, functools.partial(getattr, bits, "state"), functools.partial(setattr, bits, "state")))
        self._states = [((f"random numbers from {name}", AGAIN, DRAWN), get(), get, give) for name, get, give in known]
        self._settings = [(name, get(), get, give) for name, get, give in SETTINGS]

    def _lock(self, array: np.ndarray, name: str) -> None:
        chain: list[np.ndarray] = []
        base: Any = array
        while isinstance(base, np.ndarray):
            chain.append(base)
            base = base.base
        try:
            can_be_reopened = base is None or not memoryview(base).readonly
        except TypeError:
            can_be_reopened = False
        if can_be_reopened:
            for each in filter(lambda each: each.flags.writeable, chain):
                each.flags.writeable = False
                self._locked.append(each)
        elif array.flags.writeable:
            self._summed.append((name, array, zlib.crc32(array.tobytes())))

    # ------------------------------------------------------------ while it runs
    def _watch(self, frame: types.FrameType, event: str, called: Any) -> None:
        """Record what code runs, and who asks for the time or for random numbers."""
        if event == "call":
            self.executed[frame.f_code] = None
            called = frame.f_code
        elif event != "c_call":
            return
        if called is random.Random.seed.__code__ and frame.f_locals.get("a") is not None:
            return
        if called in ASKED and not self.asked:
            reason, remedy, directly = ASKED[called]
            asks = frame.f_back if event == "call" else frame
            while asks is not None and not user_file(asks.f_code.co_filename):
                name = asks.f_globals.get("__name__", "")
                if directly or name.partition(".")[0].strip("_") in MACHINERY or name.startswith(OURS):
                    return
                asks = asks.f_back
            if asks is not None:
                name = called_by(asks)[0] or getattr(called, "__qualname__", frame.f_code.co_name)
                self.asked = "os.environ" if called is ENVIRONMENT else f"{name}()", reason, remedy, user_line()

    def stop_watching(self) -> None:
        """Stop recording, and set back the settings of the process.

        To be called in the thread that runs the program: NumPy's error state is the thread's.
        """
        if self._watching:
            sys.setprofile(None)
        for name, was, get, give in self._settings:
            if was != get():
                self._set = self._set or (f"a change of {name}", OUTCOME, SETTING, self.line_of(re.findall(r"\w+", name)))
                give(was)

    def seen(self, value: Any) -> Any:
        """What the program sees in place of a value from outside.

        A traced array for an array, and a copy for a value that leads to one.
        """
        key = id(value)
        made: Any
        if key in self._seen:
            return self._seen[key]
        if isinstance(value, CACHE):  # the cache would run the function once
            value = value.__wrapped__
        if isinstance(value, FunctionType):
            made = self.rebinder.function(value)
            self._originals[id(made)] = value
            return made
        if key not in self._leads:
            return self.rebinder.stand_in(value)
        name = self.met[key][1]
        if seen_as_traced(value):
            storage = OutsideStorage(current(), value, name)
            strides = strides_of(value.shape) if value.flags.c_contiguous or value.ndim < 2 else None
            made = TracedArray(current(), storage, storage.type, strides=strides)
        elif _draws(value):
            made = type(type(value).__name__, (_Refusing,), {})(value, name)
        else:
            made = self._copy(value)
        if made is not value:
            self._seen[key] = made
            self._originals[id(made)] = value
        return made

    def _copy(self, value: Any) -> Any:
        """A copy that holds what the program sees, or the value itself if it cannot be copied."""
        kind, key = type(value), id(value)
        if isinstance(value, tuple):
            children = [self.seen(each) for each in value]
            return kind(*children) if hasattr(kind, "_fields") else tuple(children) if kind is tuple else value
        if (owner := owner_of(value)) is not None:
            return getattr(self.seen(owner), value.__name__)
        if kind is MethodType:
            return MethodType(self.seen(value.__func__), self.seen(value.__self__))
        if kind is functools.partial:
            return functools.partial(self.seen(value.func), *map(self.seen, value.args),
                                     **{k: self.seen(each) for k, each in value.keywords.items()})
        if isinstance(value, ModuleType):
            made = self._seen[key] = ModuleType(value.__name__)
            vars(made).update({name: self.seen(each) for name, each in [*vars(value).items()]})  # it may grow meanwhile
        elif kind in (dict, OrderedDict, defaultdict):
            made = self._seen[key] = defaultdict(value.default_factory) if isinstance(value, defaultdict) else kind()
            made.update({k: self.seen(each) for k, each in [*value.items()]})
        elif kind in (list, deque):
            made = self._seen[key] = deque(maxlen=value.maxlen) if isinstance(value, deque) else []
            made.extend(map(self.seen, [*value]))
        else:
            return self._copy_object(value)
        self.keep(self.met[key][1], made)
        return made

    def _copy_object(self, value: Any) -> Any:
        """A copy of an object, of the same class. Arrays of the class become its own attributes.

        Singletons, classes with objects, and objects with ``__del__`` are not copied.
        """
        kind, key = type(value), id(value)
        if kind is type and value.__bases__ == (object,) and self._is_namespace(value):
            data = {name: self.seen(each) for name, each in vars(value).items() if not name.startswith("__")}
            made = kind(value.__name__, (), data)
            self.keep(self.met[key][1], made)
            return made
        if isinstance(value, enum.Enum | type) or not is_users(kind) or hasattr(kind, "__del__"):
            return value
        try:
            made = self._seen[key] = SimpleNamespace() if kind is SimpleNamespace else object.__new__(kind)
        except TypeError:  # a subclass of a class written in C
            return value
        slots = _slots(kind)
        if hasattr(value, "__dict__"):
            for base in reversed(kind.__mro__):
                if is_users(base):
                    vars(made).update({name: self.seen(each) for name, each in [*vars(base).items()]
                                       if id(each) in self._leads and not hasattr(each, "__get__")})
        for name, each in attributes(value).items():
            slots[name].__set__(made, self.seen(each)) if name in slots else vars(made).__setitem__(name, self.seen(each))
        self.keep(self.met[key][1], made)
        return made

    @property
    def copies(self) -> Container[int]:
        """The ids of the values that the program sees as copies."""
        return self._seen

    def _is_namespace(self, kind: type) -> bool:
        """Whether a class only holds data, and has no objects."""
        data = [each for name, each in vars(kind).items() if not name.startswith("__")]
        return not any(callable(each) or hasattr(each, "__get__") for each in data) and not any(
            type(value) is kind for value, _ in self.met.values())

    def original(self, value: Any) -> Any:
        """The outside value for one that the program sees."""
        return self._originals.get(id(value), value)

    def cell(self, cell: CellType) -> CellType:
        """The cell of a closure as the program sees it. It is empty until ``fill``.

        Functions that share a cell outside share one here.
        """
        self.met.setdefault(id(cell), (cell, ""))  # keep it alive, so that its id stays its own
        return self._seen.setdefault(id(cell), CellType())

    def fill(self, cell: CellType, name: str) -> None:
        """Fill a cell with what the program sees. A cell that is empty outside stays empty."""
        made = self._seen[id(cell)]
        if cell != CellType() and made == CellType():
            made.cell_contents = None  # its content may refer to it
            made.cell_contents = self.seen(cell.cell_contents)
            self.keep(name, made)

    def keep(self, name: str, made: Any) -> None:
        """Record the state of a copy that the program sees, since it may change it."""
        self._before.append((name, made, state(made) or {}))

    # ------------------------------------------------------------ afterwards
    def reopen(self) -> OutsideRefusal | None:
        """Restore everything. Returns the first change that the program made, for ``refuse``.

        To be called in any case, also after an error.
        """
        for array in sorted(self._locked, key=_depth):  # a view only after its base
            array.flags.writeable = True
        self._locked.clear()
        found = self._set
        for name, value, was in self._before:
            now = state(value) or {}
            if changed := _changed(value, was, now):
                found = found or self._told(name, value, changed[0])
                put_back(value, was, now)
        for refusal, was, get, give in self._states:
            if pickle.dumps(was) != pickle.dumps(get()):
                found = found or (*refusal, self.line_of(re.findall(r"\w+", refusal[0])))
                give(was)
        for name, array, checksum in self._summed:
            if zlib.crc32(array.tobytes()) != checksum:
                found = found or (f"a write to {name}, outside of the program", OUTCOME, INSTEAD, self.line_of([name]))
        self._before.clear()
        return found

    def _told(self, name: str, value: Any, key: Any) -> OutsideRefusal:
        is_item = isinstance(value, dict | list | deque | set) and bool(name)
        called = name if isinstance(value, set | CellType) else OutsidePart(value, is_item, key, None).called(name)
        words = re.findall(r"[^\W\d]\w*", name)[::-1] if is_item else [str(key or name)]
        return f"{OUTSIDE} {called}, outside of it", OUTCOME, INSTEAD, self.line_of(words)

    def line_of(self, words: Sequence[str]) -> tuple[str, str]:
        """The user's line that most likely made a change.

        One that stores a name or changes its value, else one that reads it.
        """
        best, found = 0, current().begins
        for code in [each for each in self.executed if user_file(each.co_filename)]:
            lines: defaultdict[int, set[tuple[str, Any]]] = defaultdict(set)
            for each in dis.get_instructions(code):
                if each.positions and each.positions.lineno:
                    lines[each.positions.lineno].add((each.opname, each.argval))
            for line, done in lines.items():
                names = {str(name) for _, name in done}
                stores = any(op.startswith(("STORE_", "DELETE_")) and name in words for op, name in done)
                good = (3 if stores else 2 if names & CHANGES or {op for op, _ in done} & CHANGES else 1) if names & {*words} else 0
                if good > best:
                    best, found = good, (f"{user_file(code.co_filename)}:{line}", code.co_name)
        return found

    def require_unasked(self) -> None:
        """Raise the refusal of what is another at each call: random numbers, a clock, a file."""
        if self.asked:
            raise refuse(*self.asked)


class _Refusing:
    """A generator or iterator from outside. It is refused: a trace would ask it only once."""

    def __init__(self, generator: Any, name: str) -> None:
        owner = generator if owner_of(generator) is None else owner_of(generator)
        self.__dict__.update(_generator=generator, _name=name, _remedy=DRAWN if isinstance(owner, GENERATORS) else NEXT)

    __class__ = property(lambda self: type(self.__dict__["_generator"]))  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return getattr(self.__dict__["_generator"], name)
        raise refuse(f"{self.__dict__['_name']}.{name}", AGAIN, self.__dict__["_remedy"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise refuse(f"{self.__dict__['_name']}()", AGAIN, self.__dict__["_remedy"])

    def __next__(self) -> Any:
        raise refuse(f"next({self.__dict__['_name']})", AGAIN, self.__dict__["_remedy"])

    def __iter__(self) -> Any:
        return self
