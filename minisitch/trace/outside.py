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

import _thread
import datetime
import dis
import enum
import functools
import importlib
import inspect
import logging
import os
import random
import re
import sys
import threading
import time
import types
import uuid
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..errors import TraceError
from ..ops import SHORT
from .array import OUTSIDE, OutsideStorage, TracedArray, strides_of
from .methods import CACHE, give_back, lend
from .numbers import plain
from .parts import (
    BYTES,
    GENERATORS,
    OWNED,
    SCALARS,
    OutsidePart,
    attributes,
    changed_keys,
    is_plain,
    is_users,
    is_users_def,
    is_users_own,
    owner_of,
    parts,
    put_back,
    slots_of,
    state,
    takes_text,
)
from .recorder import ACTIVE, current, refuse, user_file, user_line
from .refusals import AGAIN, ASK, DRAWN, LOST, called_by

MOST_MET = 20_000  # objects, lists and dicts
DEEP = 3  # objects of libraries, each in the one before
# Generators without a name.
COMMON = [("np.random", np.random.get_state.__self__), ("random", random.getstate.__self__)]
# objects written in C whose methods tell nothing that changes, or nothing that counts
LOCKS = (type(_thread.allocate_lock()), type(_thread.RLock()), np.ufunc, np.dtype)
INSTEAD = ("Return what is new, and put it there outside of the function. Pass it in as an argument "
           "if it is an array: that may be changed in place")
MEMO = f"{INSTEAD}. A function that keeps its results may have functools.cache"
NEXT = "Take the next one outside and pass it in as an argument"
TIMED = "Ask outside, and pass the time in. To time the program, time its calls"
FLAT = "Write a.ravel(), of the array itself"
SETTING = "Set it outside; inside, write with np.errstate(...) for np.seterr"
UNSEEN = "later calls would not see what changes there"

# What asks for something that may be another at each call -> why not, what to write, and whether
# only the user's own code is meant.
ENVIRONMENT = {x.__code__ for x in vars(type(os.environ)).values() if isinstance(x, FunctionType)}
ASKED: dict[Any, tuple[str, str, bool]] = {
    **{getattr(datetime.datetime, name): (AGAIN, ASK, True)
       for name in ("now", "utcnow", "today", "fromtimestamp")},
    **dict.fromkeys((time.time, time.perf_counter, time.monotonic), (AGAIN, TIMED, True)),
    **dict.fromkeys((datetime.date.today, datetime.date.fromtimestamp), (AGAIN, ASK, True)),
    **{each.__code__: (AGAIN, ASK, True) for each in (np.geterr, np.geterrcall, np.getbufsize, np.get_printoptions)},
    **{each.__code__: (LOST, SETTING, True) for each in (np.seterr, np.seterrcall, np.setbufsize, np.set_printoptions)},
    **dict.fromkeys((os.urandom, random.random, random.getrandbits, uuid.uuid1.__code__,
                     random.Random.seed.__code__), (AGAIN, DRAWN, False)),
    **dict.fromkeys((open, input, os.open, os.stat, os.listdir, os.scandir, os.getcwd, *ENVIRONMENT), (AGAIN, ASK, False)),
    **{getattr(type(os.environ), name).__code__: (LOST, SETTING, False) for name in ("__setitem__", "__delitem__")},
    **dict.fromkeys((globals, eval, exec, sys._getframe, inspect.currentframe.__code__),
                    (UNSEEN, "Write the name, or the expression, itself", True)),
    **dict.fromkeys((__import__, importlib.import_module.__code__),
                    (UNSEEN, "Write an import statement", True)),
    **{getattr(logging.Logger, name).__code__: (AGAIN, ASK, True)
       for name in ("isEnabledFor", "getEffectiveLevel", "hasHandlers")},
}
# methods that return nothing: what becomes of a text is no part of the program
LOGS = {id(getattr(logging.Logger, name).__code__)
        for name in "debug info warning warn error exception critical log".split()}
# modules whose functions tell of the clock, the process or a setting, and those of them that do not
TELLING = set("time posix nt sys gc _locale resource decimal threading locale platform tempfile "
              "_contextvars".split())
SILENT = set("sleep mktime strptime fspath intern exc_info exit get_ident RLock".split())
# modules that read files, but not for the program
MACHINERY = ("importlib", "linecache", "tokenize", "warnings")
TRACER = __name__.rpartition(".")[0]
PACKAGE = __name__.partition(".")[0]
OURS = tuple(f"{PACKAGE}.{r}" for r in ("runtime", "explain", "lower", "strategies", "errors"))
CHANGES = set("append extend insert pop remove clear sort reverse update setdefault popitem add discard appendleft extendleft "
              "popleft rotate STORE_SUBSCR STORE_SLICE DELETE_SUBSCR".split())


WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
# what was seen, the reason, the remedy, the user's line
OutsideRefusal = tuple[str, str, str, tuple[str, str]]


def _draws(value: object) -> bool:
    """Whether a value gives something new each time it is asked.

    A user's own iterator does not count: its attributes tell.
    """
    owner = owner_of(value)
    value = value if owner is None else owner
    return isinstance(value, (*GENERATORS, threading.local)) or (isinstance(value, Iterator) and not is_users(type(value)))


def seen_as_traced(value: object) -> bool:
    """Whether a trace can see the array as a traced one."""
    return type(value) in (np.ndarray, np.memmap) and value.dtype.isnative and value.dtype.name in SHORT


# The tracer's own code, and functions of C, that ask for nothing in any trace.
_quiet: dict[int, Any] = {}


class Outside:
    """Everything reached from ``roots``: the function and its arguments, each with a name."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        # id -> the value, kept alive so that the id stays its own, and its name
        self.met: dict[int, tuple[Any, str]] = {}
        self.executed: dict[CodeType, None] = {}  # the code that has run
        self._quiet = dict(_quiet)  # that of it which asks for nothing, by its id; and functions of C
        # set by ``shim``, which copies functions and knows the stand-ins of library values
        self.rebinder: Any = None
        self._holders: defaultdict[int, list[int]] = defaultdict(list)
        self.copies: dict[int, Any] = {}  # id of a value -> what the program sees in its place
        self._originals: dict[int, Any] = {}
        self._before: list[tuple[str, Any, dict[Any, Any]]] = []
        self._locked: list[np.ndarray] = []
        self._watching = False
        self._streams = {id(each.__code__) for stream in (sys.stdout, sys.stderr) for kind in type(stream).__mro__
                         for each in vars(kind).values() if isinstance(each, FunctionType)} | LOGS
        self._writing: types.FrameType | None = None  # the call of a stream's method, which prints
        # the caches that were asked, with arguments and results
        self.cached: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self._refusal: TraceError | None = None  # of the first draw, look at a clock, file read
        self._meet(roots)
        self._leads = self._leading()

    # ------------------------------------------------------------ before the program runs
    def _meet(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Record the values that the roots hold, and what those hold in turn."""
        pending = deque((name, value, 0) for name, value in roots)
        while pending:
            name, value, depth = pending.popleft()
            if id(value) in self.met:
                continue
            if len(self.met) >= MOST_MET:
                raise refuse(f"more than {MOST_MET:,} objects outside of the program, such as {name}",
                             "each call would look at all of them", "Pass what the program reads "
                             "of them as an argument", current().begins)
            self.met[id(value)] = value, name
            if not isinstance(value, OWNED):
                depth = 0 if is_users_own(value) else depth + 1
            for part in parts(value) if depth <= DEEP else ():
                if is_plain(part.value):
                    continue
                self._holders[id(part.value)].append(id(value))
                pending.append((part.called(name), part.value, depth))
                if isinstance(part.holder, CellType) and id(part.holder) not in self.met:
                    self.met[id(part.holder)] = part.holder, ""

    def _leading(self) -> set[int]:
        """The ids of values that lead to arrays, functions and generators.

        These are copied for the program.

        A class does not lead there through its functions.
        """
        pending = [key for key, (v, _) in self.met.items()
                   if seen_as_traced(v) or _draws(v) or is_users_def(v)]
        found = set(pending)
        while pending:
            key = pending.pop()
            value = self.met[key][0]
            for holder in self._holders[key]:
                by_function = isinstance(self.met[holder][0], type) and (
                    isinstance(value, type) or hasattr(value, "__get__"))
                if holder not in found and not by_function:
                    found.add(holder)
                    pending.append(holder)
        return found

    def close(self) -> None:
        """Record the state of everything, and lock arrays against writes.

        ``reopen`` unlocks them.
        """
        self._shut([*COMMON, *((name, value) for value, name in self.met.values())])
        if sys.getprofile() is None:
            self._watching = True
            self.watch()
        else:  # a profiler is running: count all that could run as run
            self.executed.update({value.__code__: None for value, _ in self.met.values() if isinstance(value, FunctionType)})

    def _shut(self, found: Iterable[tuple[str, Any]]) -> None:
        shut = [*found]
        for name, value in shut:
            if isinstance(value, np.ndarray):
                self._lock(value)
            self.keep(name, value)
        lend((value for _, value in shut if isinstance(value, type) and is_users(value)), self)

    def _lock(self, array: np.ndarray) -> None:
        chain: list[np.ndarray] = []
        base: Any = array
        while isinstance(base, np.ndarray):
            chain.append(base)
            base = base.base
        try:
            can_be_reopened = base is None or not memoryview(base).readonly
        except TypeError:
            can_be_reopened = False
        # A view is opened only after its base.
        for each in reversed(chain) if can_be_reopened else ():
            if each.flags.writeable:
                each.flags.writeable = False
                self._locked.append(each)

    # ------------------------------------------------------------ while it runs
    def _watch(self, frame: types.FrameType, event: str, called: Any) -> None:
        """Record what code runs. Refuse what asks for the time, random numbers, files ..."""
        if self._writing or (event == "call" and id(frame.f_code) in self._streams):
            # what becomes of a text is no part of the program
            self._writing = None if event == "return" and frame is self._writing else self._writing or frame
            return
        if event == "call":
            called, asks = frame.f_code, frame.f_back
            # A hash of code takes long, and most runs again and again.
            if id(called) in self._quiet:
                return
            module = str(frame.f_globals.get("__name__"))
            if not module.startswith(PACKAGE) or (user_file(called.co_filename) and called.co_filename != "<string>"):
                self.executed[called] = None
        elif event != "c_call" or id(called) in self._quiet:
            return
        else:
            asks = frame
        if called is random.Random.seed.__code__ and frame.f_locals.get("a") is not None:
            return
        found = self._asks(called, frame)
        if not found and (event == "call" or isinstance(getattr(called, "__self__", None), ModuleType)):
            self._quiet[id(called)] = called
            if event == "c_call" or module.startswith(TRACER):
                _quiet[id(called)] = called
        while found and asks is not None and not user_file(asks.f_code.co_filename):
            name = asks.f_globals.get("__name__", "")
            stand_in = event == "call" and name.startswith(TRACER)  # of a function of NumPy
            if (found[2] and not stand_in) or name.partition(".")[0].strip("_") in MACHINERY or name.startswith(OURS):
                return
            asks = asks.f_back
        if found and asks is not None:
            name = called_by(asks)[0] or getattr(called, "__qualname__", frame.f_code.co_name)
            self._refusal = refuse("os.environ" if called in ENVIRONMENT else f"{name}()", *found[:2], user_line())
            raise self._refusal

    def _asks(self, called: Any, frame: types.FrameType) -> tuple[str, str, bool] | None:
        """What ``ASKED`` says of a function, or of the class's that a subclass's method is."""
        if isinstance(called, CodeType):
            told = called.co_qualname == called.co_name and frame.f_globals.get("__name__")
            return ASKED.get(called) or ((AGAIN, ASK, True) if told in TELLING and called.co_name not in SILENT else None)
        owner = getattr(called, "__self__", None)
        if called.__name__ in ("__subclasses__", "locked"):
            return AGAIN, ASK, True
        if isinstance(owner, type):
            found = (getattr(base, called.__name__, None) for base in owner.__mro__)
            return next((ASKED[each] for each in found if each.__hash__ and each in ASKED), None)
        told = (*SCALARS, *OWNED, *LOCKS, type, ModuleType, weakref.ref)
        if id(owner) in self.met and not takes_text(owner) and not isinstance(owner, told):
            by_identity = type(owner).__hash__ in (None, object.__hash__)
            changes = isinstance(owner, ContextVar) or by_identity
            return (AGAIN, ASK, True) if changes and not is_users(type(owner)) else None
        if isinstance(owner, ModuleType) and owner.__name__ in TELLING and called.__name__ not in SILENT:
            return ASKED.get(called, (AGAIN, ASK, True))
        return ASKED.get(called) if isinstance(called, types.BuiltinFunctionType) else None

    def watch(self, on: bool = True) -> None:
        """Go on recording, or stop."""
        if self._watching:
            sys.setprofile(self._watch if on else None)

    def seen(self, value: Any) -> Any:
        """What the program sees in place of a value from outside.

        A traced array for an array, and a copy for a value that leads to one.
        """
        key = id(value)
        made: Any
        if key in self.copies:
            return self.copies[key]
        if isinstance(value, FunctionType):
            made = self.rebinder.function(value)
        elif isinstance(value, CACHE):
            made = _Cached(value, self)
        elif key not in self._leads:
            made = self.rebinder.stand_in(value)
        elif seen_as_traced(value):
            storage = OutsideStorage(current(), value, self.met[key][1])
            strides = strides_of(value.shape) if value.flags.c_contiguous or value.ndim < 2 else None
            made = TracedArray(current(), storage, storage.type, strides=strides)
        elif _draws(value):
            made = type(type(value).__name__, (_Refusing,), {})(value, self.met[key][1])
        else:
            made = self._copy(value)
        if made is not value:
            self.copies[key] = made
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
            made = self.copies[key] = ModuleType(value.__name__)
            # It may grow meanwhile.
            vars(made).update({name: self.seen(each) for name, each in [*vars(value).items()]})
        elif kind is weakref.ref:
            return weakref.ref(self.seen(value()))
        elif kind in (dict, OrderedDict, defaultdict, *WEAK):
            made = self.copies[key] = value.copy()
            made.clear()
            made.update({self.seen(k): self.seen(each) for k, each in [*value.items()]})
        elif kind in (list, deque, set, weakref.WeakSet):
            made = self.copies[key] = value.copy()
            made.clear()
            put = made.extend if kind in (list, deque) else made.update
            put(map(self.seen, [*value]))
        elif kind is frozenset:
            return frozenset(map(self.seen, value))
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
            data = {n: self.seen(each) for n, each in vars(value).items() if not n.startswith("__")}
            made = kind(value.__name__, (), data)
            self.keep(self.met[key][1], made)
            return made
        if isinstance(value, enum.Enum | type) or not is_users(kind) or hasattr(kind, "__del__"):
            return value
        base = next(each for each in (types.SimpleNamespace, dict, list, object) if issubclass(kind, each))
        try:
            made = self.copies[key] = base.__new__(kind)
        except TypeError:  # a subclass of another class written in C
            return value
        if base is dict:
            dict.update(made, {self.seen(k): self.seen(each) for k, each in [*dict.items(value)]})
        elif base is list:
            list.extend(made, map(self.seen, [*list.__iter__(value)]))
        slots = slots_of(kind)
        if hasattr(value, "__dict__"):
            for base in reversed(kind.__mro__):
                if is_users(base):
                    vars(made).update({name: self.seen(each) for name, each in [*vars(base).items()]
                                       if id(each) in self._leads and not hasattr(each, "__get__")})
        for name, each in attributes(value).items():
            slots[name].__set__(made, self.seen(each)) if name in slots else vars(made).__setitem__(name, self.seen(each))
        self.keep(self.met[key][1], made)
        return made

    def _is_namespace(self, kind: type) -> bool:
        """Whether a class only holds data, and has no objects."""
        data = [each for name, each in vars(kind).items() if not name.startswith("__")]
        return not any(callable(each) or hasattr(each, "__get__") for each in data) and not any(
            type(value) is kind for value, _ in self.met.values())

    def is_outside(self, value: Any) -> bool:
        """Whether the program has a value from outside, or sees it in place of one."""
        return id(value) in self._originals or id(value) in self.met

    def original(self, value: Any) -> Any:
        """The outside value for one that the program sees."""
        return self._originals.get(id(value), value)

    def cell(self, cell: CellType) -> CellType:
        """The cell of a closure as the program sees it. It is empty until ``fill``.

        Functions that share a cell outside share one here.
        """
        self.met.setdefault(id(cell), (cell, ""))  # keep it alive, so that its id stays its own
        return self.copies.setdefault(id(cell), CellType())

    def fill(self, cell: CellType, name: str) -> None:
        """Fill a cell with what the program sees. A cell that is empty outside stays empty."""
        made = self.copies[id(cell)]
        if cell != CellType() and made == CellType():
            made.cell_contents = None  # its content may refer to it
            made.cell_contents = self.seen(cell.cell_contents)
            self.keep(name, made)

    def keep(self, name: str, made: Any) -> None:
        """Record the state of a copy that the program sees, since it may change it."""
        self._before.append((name, made, state(made)))

    # ------------------------------------------------------------ afterwards
    def reopen(self) -> OutsideRefusal | None:
        """Restore everything. Returns the first change that the program made, for ``refuse``.

        To be called in any case, also after an error.
        """
        give_back(self)
        after = [(*each, state(each[1])) for each in self._before]
        for each in self._locked:
            each.flags.writeable = True
        self._locked.clear()
        found = None
        for name, value, was, now in after:
            if changed := changed_keys(value, was, now):
                found = found or self._told(name, value, *changed[0])
                put_back(value, was, now)
            elif (owner := self._originals.get(id(value))) is not None:
                for is_item, key in [each for each in now if each not in was]:  # cached properties
                    object.__setattr__(owner, key, now[is_item, key])
        self._before.clear()
        return found

    def _told(self, name: str, value: Any, is_item: bool, key: Any) -> OutsideRefusal:
        if isinstance(value, GENERATORS):
            return f"random numbers from {name}", AGAIN, DRAWN, self.line_of(re.findall(r"\w+", name))
        is_item = is_item and bool(name)
        called = name if isinstance(value, set | CellType) or key is BYTES else OutsidePart(value, is_item, key, None).called(name)
        words = re.findall(r"[^\W\d]\w*", name)[::-1] if is_item else [str(key or name)]
        remedy = MEMO if is_item and isinstance(value, dict) else INSTEAD
        return f"{OUTSIDE} {called}, outside of it", LOST, remedy, self.line_of(words)

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
                stores = any(op.startswith(("STORE_", "DELETE_")) and n in words for op, n in done)
                good = (3 if stores else 2 if names & CHANGES or {op for op, _ in done} & CHANGES else 1) if names & {*words} else 0
                if good > best:
                    best, found = good, (f"{user_file(code.co_filename)}:{line}", code.co_name)
        return found

    def forget(self) -> None:
        """Let go of everything. Else cycles among the program's copies keep objects alive."""
        for each in (self.met, self.copies, self._originals, *self.rebinder.copies.values()):
            each.clear()

    def require_unasked(self) -> None:
        """Raise the refusal of what is another at each call, if the program has caught it."""
        if self._refusal:
            raise self._refusal

    def add(self, name: str, value: Any) -> Any:
        """What the program sees in place of a value that is found outside while it runs."""
        met = len(self.met)
        self._meet([(name, value)])
        self._leads = self._leading()
        self._shut((called, each) for each, called in [*self.met.values()][met:])
        return self.seen(value)


class _Cached:
    """A cache from outside (``functools.lru_cache``). Each call asks it again, in the same way."""

    def __init__(self, cache: Any, outside: Outside) -> None:
        self.__dict__.update(_cache=cache, _outside=outside)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache, outside = self._cache, self._outside
        args = (*(plain(outside.original(each)) for each in args),)
        kwargs = {key: plain(outside.original(each)) for key, each in kwargs.items()}
        hash((args, *kwargs.values()))  # a traced array has none
        before = ACTIVE.get()
        try:  # what it does is no part of the program
            outside.watch(False)
            ACTIVE.set(None)
            result = cache(*args, **kwargs)
        finally:
            ACTIVE.set(before)
        outside.cached.append((cache, args, kwargs, result))
        made = outside.add(f"{cache.__name__}()", result)
        outside.watch()
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":
            return self._outside.seen(self._cache.__wrapped__)
        raise refuse(f"{self._cache.__name__}.{name}", AGAIN, ASK)


class _Refusing:
    """A generator, an iterator or a ``threading.local`` from outside.

    It is refused: a trace would ask it only once.
    """

    def __init__(self, generator: Any, name: str) -> None:
        owner = generator if owner_of(generator) is None else owner_of(generator)
        remedy = DRAWN if isinstance(owner, GENERATORS) else ASK if isinstance(owner, threading.local) else NEXT
        remedy = FLAT if isinstance(owner, np.flatiter) else remedy
        self.__dict__.update(_generator=generator, _name=name, _remedy=remedy)

    __class__ = property(lambda self: type(self.__dict__["_generator"]))  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return getattr(self.__dict__["_generator"], name)
        raise refuse(f"{self.__dict__['_name']}.{name}", AGAIN, self.__dict__["_remedy"])

    def __setattr__(self, name: str, value: Any) -> None:
        self.__getattr__(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise refuse(f"{self.__dict__['_name']}()", AGAIN, self.__dict__["_remedy"])

    def __getitem__(self, key: Any, value: Any = None) -> Any:
        raise refuse(f"{self.__dict__['_name']}[...]", AGAIN, self.__dict__["_remedy"])

    __setitem__ = __delitem__ = __getitem__

    def __next__(self) -> Any:
        raise refuse(f"next({self.__dict__['_name']})", AGAIN, self.__dict__["_remedy"])

    def __iter__(self) -> Any:
        return self
