"""How a call finds what a program reads from outside: a generated function reads it again.

In:  the roots of ``Outside``, the code that has run, the arrays that became inputs.
Out: ``Reader``, whose function each call runs first.

After, for ``x * net.layers[0].w`` under ``if net.training``, where ``net`` is a global:

    def read(leaves):
        v0 = globals0['net']
        if v0.__class__ is not Net: raise Stale
        if v0.training is not c1: same(v0.training, c1)
        v2 = v0.layers
        if v2.__class__ is not list or len(v2) != 2: raise Stale
        v3 = v2[0]
        if v3.__class__ is not Layer: raise Stale
        a0 = v3.w
        if a0 is not was0 or a0.shape != shape0: like(a0, ndarray, shape0, float32)
        return (a0,)

A new array of the same shape and dtype is simply used. Another shape, number, text, function or
kind of object raises ``Stale``, and the program is traced again. An attribute is checked only if
its name is in the code that ran.
"""

import builtins
import decimal
import dis
import hashlib
import linecache
import marshal
import math
import re
import sys
import warnings
import weakref
from abc import get_cache_token
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from enum import Enum
from functools import partialmethod, singledispatchmethod
from inspect import getattr_static
from operator import attrgetter, methodcaller
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..errors import MinisitchError
from ..graph import identifier
from .array import OutsideStorage
from .methods import CACHE, members
from .outside import AGAIN, NEXT, UNSEEN, Outside
from .parts import (
    CALLED,
    HELD,
    SCALARS,
    TOLD,
    OutsidePart,
    attributes,
    is_plain,
    is_users,
    is_users_own,
    may_change,
    memory,
    parts,
    same,
    takes_text,
)
from .recorder import SMALL, Recorder, is_inside, refuse, user_file

# raised by reading what is no longer there
GONE = (AttributeError, KeyError, IndexError, TypeError, ValueError, ReferenceError)
# Code with these may read attributes of any name.
DESCRIPTORS = (partialmethod, singledispatchmethod)  # their functions are not the class's own
DYNAMIC = set("getattr vars dir __dict__ __getattribute__ __getstate__ asdict fields astuple "
              "attrgetter getmembers format format_map".split())
CONTAINERS = (dict, list, tuple, deque, MappingProxyType)
# Code with these notices a new attribute.
ASKING = {"hasattr", "__getattr__", "AttributeError", *DYNAMIC}
# code with these notices whether two outside objects are the same
SAME = set("IS_OP CONTAINS_OP BUILD_SET is_ is_not index count remove set frozenset fromkeys".split())
FEW = 32  # numbers of a list or dict that are compared one by one
# code with these reads what a function holds, without a call of it
ASKED_OF = {"__code__", "__closure__", *TOLD, "signature", "getfullargspec", "get_annotations",
            "get_type_hints", "getclosurevars"}
# a word in code -> what it reads of a function or class
NAMES = {**dict.fromkeys(ASKED_OF, "__annotations__"), "fields": "__dataclass_fields__",
         **{n: n for n in ("__name__", "__qualname__", "__doc__", "__module__", "__match_args__")}}


UNCACHED = "Give a function the cache: each call asks it again"


class Stale(MinisitchError):
    """Something that the program read from outside has changed: it must be traced again."""


@dataclass(frozen=True)
class Reader:
    """``function(leaves)`` returns the arrays from outside, or raises ``Stale``.

    They are in the order of the graph's last inputs.
    """

    text: str
    function: Callable[[Sequence[Any]], tuple[Any, ...]]
    found: frozenset[int]  # ids of the arrays that it reads; others belong to the program
    numbers: tuple[int, ...]  # positions of Python numbers among its results


def _like(found: Any, kind: type, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if type(found) is not kind or found.shape != shape or found.dtype != dtype:
        raise Stale(f"an array of {getattr(found, 'shape', type(found))} is where one of {shape} was")


def _content(value: Any) -> bytes | None:
    """The content of many numbers or texts, or of a buffer. None for anything else."""
    if isinstance(value, CONTAINERS):
        return marshal.dumps([*value.items()] if isinstance(value, dict | MappingProxyType) else [*value], 2)
    return value.tobytes() if isinstance(value, np.ndarray) else memory(value)


def _errors() -> ContextVar[Any]:
    """What ``np.errstate`` sets: to ask it is twenty times as fast as ``np.geterr``."""
    before = copy_context()
    with np.errstate(all="raise"):
        return next(each for each, value in copy_context().items() if before.get(each) is not value)


ERRORS = _errors()


def _decimals() -> str:
    return re.sub(r"flags=\[.*?\]", "", repr(decimal.getcontext()))


def raises() -> str:
    """What now makes NumPy raise, print or log an error of floating point. Else empty.

    It is an argument of ``np.errstate``.
    """
    asked = {kind: how for kind, how in np.geterr().items() if how not in ("ignore", "warn")}
    return next((f"{kind}={how!r}" for kind, how in asked.items()), "")


def _same(found: object, was: object) -> None:
    if not same(found, was):
        raise Stale(f"{found!r} is where {was!r} was")


def _texts(constants: Iterable[Any]) -> set[str]:
    """The words in a function's constants: ``getattr`` and ``match`` read attributes by such."""
    found: set[str] = set()
    for each in constants:
        found |= set(each.split(".")) if isinstance(each, str) else _texts(each) if isinstance(each, tuple) else set()
    return found


def codes(code: CodeType) -> set[CodeType]:
    """The code of a function and of the functions inside it."""
    return {code}.union(*(codes(each) for each in code.co_consts if isinstance(each, CodeType)))


def attribute(holder: str, key: str, hidden: bool = False) -> str:
    """The text that reads an attribute of any name, also one that a descriptor hides."""
    if hidden:
        return f"{holder}.__dict__[{key!r}]"
    return f"{holder}.{key}" if identifier(key) == key else f"getattr({holder}, {key!r})"


class ReadsWriter:
    """Writes the lines of one reader."""

    def __init__(self, captured: Mapping[int, np.ndarray], outside: Outside) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"Stale": Stale, "like": _like, "same": _same, "content": _content, "attributes": attributes,
                                      "builtins": builtins, "GONE": GONE, "math": math, "errors": ERRORS.get, "raises": raises,
                                      "printing": np.get_printoptions, "decimals": _decimals, "registered": get_cache_token,
                                      "modules": sys.modules, "filters": lambda: warnings.filters}
        self.arrays: dict[int, str] = {}  # id -> name of each captured array, once it is found
        self._captured, self._outside = captured, outside
        self._executed = {code for code in outside.executed if user_file(code.co_filename)}
        self._viewed = {id(array.base) for array in captured.values()}
        self._copied = outside.copies.keys() - self._viewed
        self._words = {name for c in self._executed for name in (*c.co_names, *_texts(c.co_consts))}
        self._words |= {code.co_name for code in self._executed if code.co_name == "__getattr__"}
        self._done = {(each.opname, each.argval) for code in self._executed for each in dis.get_instructions(code)}
        if any(op == "MATCH_CLASS" for op, _ in self._done):
            patterns = [getattr(value, "__match_args__", ()) for value, _ in outside.met.values() if isinstance(value, type)]
            self._words.update(["__match_args__"], *patterns)
        # Also those of libraries' code.
        self._any_words = {name for code in outside.executed for name in code.co_names}
        # whether code, also a library's, may read attributes of any name
        self._dynamic = any(not DYNAMIC.isdisjoint(code.co_names) for code in outside.executed
                            if code in self._executed or not is_inside(code.co_filename, ""))
        for value, _ in outside.met.values():
            if isinstance(value, attrgetter | methodcaller):
                texts = (each for each in value.__reduce__()[1] if isinstance(each, str))
                self._words.update(word for text in texts for word in text.split("."))
        self._seen: dict[int, str] = {}  # id of a visited value -> its name
        self._alive: list[Any] = []  # the visited values, so that their ids stay their own
        self._visited: set[CodeType] = set()  # of functions, with those inside them
        self._checked: set[tuple[Any, str]] = set()  # classes and names of functions
        # The function of the method that is traced: it stays the same.
        self._roots: set[int] = set()

    def bind(self, name: str, value: Any) -> str:
        """A name in the text for a constant."""
        name = identifier(name)
        found = name if self.names.get(name, self) is value else f"{name}_{len(self.names)}" if name in self.names else name
        self.names[found] = value
        return found

    def visit(self, name: str, value: Any) -> None:
        """Write lines for everything a value holds that the program may have read."""
        self._seen[id(value)] = name
        self._alive.append(value)
        if isinstance(value, ModuleType | type) and not is_users(value):
            self._look_into(value)
        elif isinstance(value, ModuleType):
            self._count_names(value)
        ran = True
        if isinstance(value, FunctionType) and user_file(value.__code__.co_filename):
            ran = value.__code__ in self._executed or not ASKED_OF.isdisjoint(self._words)
            self._visit_code(name, value) if ran else None
        if isinstance(value, CONTAINERS) and len(value) > FEW and all(is_plain(part.value) for part in parts(value)):
            self.lines.append(f"if content({name}) != {self.bind('c', _content(value))}: raise Stale")
            return
        of = value if isinstance(value, FunctionType | type) else type(value)
        kind, asks = type(value), bool(ASKING & self._words)
        if is_users(kind) or kind is FunctionType:
            counted = f"attributes({name})" if asks else ""
        else:
            asks = (asks or self._dynamic) and not kind.__module__.startswith("numpy")
            counted = f"{name}.__dict__" if asks and hasattr(value, "__dict__") else ""
        if counted and not isinstance(value, type | ModuleType):
            held = attributes(value) if counted.startswith("attr") else value.__dict__
            self.lines.append(f"if len({counted}) != {len(held)}: raise Stale")
        named = {NAMES[word] for word in NAMES.keys() & self._words} if is_users_own(of) else set()
        for key in sorted(key for key in named if hasattr(of, key)):
            self._look(f"{name if of is value else f'{name}.__class__'}.{key}", getattr(of, key))
        for part in parts(value):
            if not part.is_item and part.key in ("__class__", "__bases__"):
                self._visit_class(name, value, value if part.key == "__bases__" else type(value))
            elif not isinstance(value, type) and self._may_read(value, part) and (
                    ran or part.holder is value):
                self._look(self._expression(name, value, part), part.value)

    def _visit_code(self, name: str, fn: FunctionType) -> None:
        """Check that a function is as it was, and that no global hides one of its builtins."""
        self.lines.append(f"if {name}.__code__ is not {self.bind('code', fn.__code__)}: raise Stale")
        self._visited |= codes(fn.__code__)
        for held in filter(None, (fn.__defaults__, fn.__kwdefaults__)):
            kind = "__defaults__" if type(held) is tuple else "__kwdefaults__"
            self.lines.append(f"if {name}.{kind} is not {self.bind('defaults', held)}: raise Stale")
        read = {each.argval for code in codes(fn.__code__) for each in dis.get_instructions(code)
                if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        for missing in sorted(read - fn.__globals__.keys()):
            self.lines.append(f"if {missing!r} in {self.bind('globals', fn.__globals__)}: raise Stale")
            if missing in vars(builtins):
                self._look(f"builtins.{missing}", getattr(builtins, missing))
            else:
                self.lines.append(f"if hasattr(builtins, {missing!r}): raise Stale")

    def _may_read(self, value: Any, part: OutsidePart) -> bool:
        """Whether the program may have read this part of a value."""
        if isinstance(value, FunctionType) and isinstance(part.holder, ModuleType | type):
            return False  # ``_look_into`` reads it
        if part.is_item or isinstance(part.holder, CellType) or type(value) in HELD or part.key in self._words:
            return True
        if isinstance(value, type | ModuleType | FunctionType) or is_users(type(value)):
            # a library's class may read attributes of any name
            return bool(DYNAMIC & self._words) or (is_users(type(value)) and not all(map(is_users, type(value).__mro__[:-1])))
        named = (self._dynamic or part.key in self._any_words) and not part.key.startswith("__")
        named = named or part.key in ("__self__", "__wrapped__", CALLED)
        return named and (is_plain(part.value) or id(part.value) in self._outside.met)

    def _count_names(self, kind: type | ModuleType) -> None:
        """Check that a class has no new attributes, such as ``__eq__``.

        A module may have some if the program would not notice.
        """
        asks = isinstance(kind, type) or not ASKING.isdisjoint(self._words)
        for base in filter(is_users, getattr(kind, "__mro__", (kind,)) if asks else ()):
            if (base, "") not in self._checked:
                self._checked.add((base, ""))
                held = self.bind("attributes", vars(base))
                self.lines.append(f"if len({held}) != {len(vars(base))}: raise Stale")

    def visit_imported(self) -> None:
        """Visit the modules that the program imports itself.

        If it compares objects with ``is``, others stay others.
        """
        for name in sorted(n for op, n in self._done if op == "IMPORT_NAME" and n in sys.modules):
            self._look(f"modules[{name!r}]", sys.modules[name])
        own = [name for name in (*self._seen.values(), *self.arrays.values()) if re.fullmatch(r"[va]\d+", name)]
        compares = any(op in SAME or (op == "COMPARE_OP" and "=" in v) for op, v in self._done)
        if len(own) > 1 and (SAME & self._words or compares):
            self.lines.append(f"if len({{{', '.join(f'id({name})' for name in own)}}}) != {len(own)}: raise Stale")

    def _look_into(self, space: ModuleType | type) -> None:
        """Look at what the program names of a library's module or class."""
        fixed = isinstance(space, type) and not may_change(space)
        if (space, "") not in self._checked and not fixed:
            self._checked.add((space, ""))
            name = self.bind(space.__name__, space)
            for key in sorted(self._words & vars(space).keys()):
                self._look(attribute(name, key, isinstance(space, type)), vars(space)[key])

    def look_at_settings(self) -> None:
        """Check the settings that change what NumPy and Python compute during a trace."""
        self.lines.append(f"if errors() is not {self.bind('c', ERRORS.get())} and raises(): raise Stale")
        ran, done = self._outside.executed, {op for op, _ in self._done}
        prints = {"str", "repr", "format", "FORMAT_VALUE"} & (self._words | done)
        if prints or any(code.co_filename.endswith("arrayprint.py") for code in ran):
            self.lines.append(f"if repr(printing()) != {self.bind('c', repr(np.get_printoptions()))}: raise Stale")
        if {"Decimal", "decimal"} & self._words or any(isinstance(each, decimal.Decimal) for each, _ in self._outside.met.values()):
            self.lines.append(f"if decimals() != {self.bind('c', _decimals())}: raise Stale")
        if {"warn", "warn_explicit"} & self._words:  # a filter may make an error of a warning
            self.lines.append(f"if filters() != {self.bind('c', [*warnings.filters])}: raise Stale")
        if {"isinstance", "issubclass"} & self._words:  # a class may be registered
            self.lines.append(f"if registered() != {self.bind('c', get_cache_token())}: raise Stale")

    def require_visited(self) -> None:
        """Raise TraceError if a function ran that no call looks at: a library's object has it."""
        for code in self._executed - self._visited:
            if code.co_filename != "<string>":
                at = f"{user_file(code.co_filename)}:{code.co_firstlineno}", code.co_name
                raise refuse(f"{code.co_name}(), which the program calls through an object of a "
                             "library", UNSEEN, "Call the function itself", at)

    def visit_weakly(self, value: Any) -> None:
        """Visit the object of a bound method, without keeping the object alive."""
        try:
            read = f"{self.bind('owner_of', weakref.ref(value))}()"
        except TypeError:
            read = self.bind("owner", value)
        self.lines.append(f"self_ = {read}")
        self.visit("self_", value)

    def _expression(self, name: str, value: Any, part: OutsidePart) -> str:
        holder = name
        if part.holder is not value:
            kind = "cell" if isinstance(part.holder, CellType) else getattr(part.holder, "__name__", "globals")
            holder = self.bind(kind, part.holder)
        if not part.is_item:
            hiding = getattr_static(type(part.holder), part.key, None)  # a descriptor of this name
            own = isinstance(hiding, property) or may_change(type(hiding))
            hides = own and hasattr(hiding, "__set__")
            return f"{holder}()" if part.key == CALLED else attribute(holder, part.key, hides)
        plain = type(part.key) in (int, str) or part.key is None
        return f"{holder}[{repr(part.key) if plain else self.bind('key', part.key)}]"

    def _visit_class(self, name: str, value: Any, kind: type) -> None:
        """Visit a class's functions that have run, and what it or its object has from classes."""
        own = {} if kind is value else attributes(value)
        self._count_names(kind)
        for base in kind.__mro__:
            if not is_users(base):
                self._look_into(base)
                continue
            for key, each in members(base).items():
                unnamed = key.startswith("__") and key not in self._words
                if id(each) in self._roots:
                    continue
                if isinstance(each, FunctionType) or (type(each) in HELD and type(each) not in DESCRIPTORS):
                    resolved = getattr_static(kind, key) is each  # not hidden by another class's
                    self._visit_functions(kind if resolved else base, key, each)
                    hidden = kind is not value and hasattr(value, "__dict__") and type(each) is not property
                    if hidden and key in self._words and key not in own:
                        self.lines.append(f"if {key!r} in {name}.__dict__: raise Stale")
                elif hasattr(each, "__get__"):
                    self._look_at_descriptor(kind, base, key, each)
                elif key not in own and not unnamed and self._may_read(kind, OutsidePart(base, False, key, each)):
                    # the program sees the class itself
                    if kind is value and id(value) not in self._copied and isinstance(each, np.ndarray):
                        self._look_at_memory(attribute(name, key), each)
                    self._look(attribute(name, key), each)
                own.setdefault(key, each)

    def _visit_functions(self, kind: type, key: str, member: Any) -> None:
        """Visit a class's function, or those of a property or static method, if they have run."""
        for fn in [part.value for part in parts(member)] if type(member) in HELD else [member]:
            if isinstance(fn, FunctionType) and fn.__code__ in self._executed and (kind, key) not in self._checked:
                self._checked.add((kind, key))
                found, read = getattr(kind, key), attribute(self.bind(kind.__name__, kind), key)
                if isinstance(found, MethodType):
                    found, read = found.__func__, f"{read}.__func__"
                self.lines.append(f"if {read} is not {self.bind(key, found)}: raise Stale")
                if id(fn) not in self._seen:
                    self.visit(self.bind(key, fn), fn)
            elif key in self._words and hasattr(fn, "__wrapped__"):  # a jitted function
                base = next(each for each in kind.__mro__ if members(each).get(key) is member)
                self._look(f"{self.bind(base.__name__, base)}.__dict__[{key!r}]", member)

    def _look_at_descriptor(self, kind: type, base: type, key: str, member: Any) -> None:
        """Visit a user's object that answers for an attribute, and check that no class hides it."""
        if key in self._words and isinstance(member, CACHE):
            raise refuse(f"{base.__name__}.{key}(), a method with a cache", AGAIN, UNCACHED,
                         self._outside.line_of([key]))
        # a special method is called without its name
        if (key in self._words or key.startswith("__")) and may_change(type(member)):
            self._look(f"{self.bind(base.__name__, base)}.__dict__[{key!r}]", member)
            heirs = kind.__mro__[:kind.__mro__.index(base)] if getattr_static(kind, key) is member else ()
            self.lines += [f"if {key!r} in {self.bind(heir.__name__, heir)}.__dict__: raise Stale" for heir in heirs]

    def _look_at_memory(self, read: str, value: Any) -> None:
        """Write the line for memory that NumPy or Python may have computed with.

        It is that of an array, a ctypes object, a record ...

        Raises TraceError for much memory that only they have read, and for a pointer of ctypes.
        """
        content, points = _content(value), hasattr(type(value), "contents")
        if content is not None and len(content) <= SMALL and not points:
            self.lines.append(f"if content({read}) != {self.bind('c', content)}: raise Stale")
        elif content is not None and id(value) not in self._captured.keys() | self._viewed:
            seen = "a pointer" if points else f"{len(content):,} bytes"
            name = self._outside.met.get(id(value), (None, ""))[1] or read
            raise refuse(f"{name}, {seen} that Python or NumPy reads while the program is traced",
                         AGAIN, "Pass it in as an argument, or compute with it outside and pass "
                         "the result", self._outside.line_of(re.findall(r"[^\W\d]\w*", name)))

    def _look_at_array(self, read: str, value: np.ndarray) -> None:
        """Write the lines that read an array and check its kind, and that all places hold it."""
        if id(value) in self.arrays:
            self.lines.append(f"if {read} is not {self.arrays[id(value)]}: raise Stale")
            return
        name, kind = f"a{len(self.arrays)}", self.bind(type(value).__name__, type(value))
        self.arrays[id(value)] = name
        changed = f"{name} is not {self.bind('was', value)} or {name}.shape != {value.shape} or {name}.dtype is not "
        dtype = self.bind(value.dtype.name, value.dtype)
        self.lines += [f"{name} = {read}", f"if {changed}{dtype}: like({name}, {kind}, {value.shape}, {dtype})"]

    def _look(self, read: str, value: Any) -> None:
        """Write the lines that read one value and check that it is as before."""
        # the program may have asked an array for its shape alone
        if id(value) in self._captured or (isinstance(value, np.ndarray) and id(value) in self._copied - self._viewed):
            self._look_at_array(read, value)
        elif is_plain(value):
            was = self.bind("c", value)
            self.lines.append(f"if {read} is not {was}: same({read}, {was})")
        elif isinstance(value, np.ndarray):
            if (is_users(type(value)) or value.dtype.hasobject) and id(value) not in self._seen:
                self.visit(read, value)
            if id(value) in self._viewed:
                self.lines.append(f"if {read} is not {self.bind('was', value)}: raise Stale")
            else:
                self._look_at_memory(read, value)
        elif id(value) in self._seen and not isinstance(value, FunctionType | type):
            self.lines.append(f"if {read} is not {self._seen[id(value)]}: raise Stale")
        elif isinstance(value, set | frozenset):
            self.lines.append(f"if {read} != {self.bind('c', value.copy())}: raise Stale")
            self.visit(read, value)
        elif isinstance(value, CONTAINERS) or type(value) in HELD or (is_users(type(value)) and not isinstance(value, Enum)):
            name, kind = f"v{len(self._seen)}", self.bind(type(value).__name__, type(value))
            size = f" or len({name}) != {len(value)}" if isinstance(value, CONTAINERS) else ""
            if isinstance(value, dict):
                size = f" or [*{name}] != {self.bind('keys', [*value])}"
            self.lines += [f"{name} = {read}", f"if {name}.__class__ is not {kind}{size}: raise Stale"]
            if isinstance(value, SCALARS):
                self.lines.append(f"same({name}, {self.bind('c', value)})")
            elif not isinstance(value, (*CONTAINERS, set)):
                self._look_at_memory(name, value)
            self.visit(name, value)
        else:
            unseen = isinstance(value, Iterator) and id(value) not in self._copied
            if unseen and not takes_text(value):
                words = re.findall(r"\w+", read)[-1:]
                raise refuse(f"{words[0]}, an iterator that a library's object holds", AGAIN, NEXT,
                             self._outside.line_of(words))
            self._look_at_memory(read, value)
            was = self.bind(getattr(value, "__name__", "c"), value)
            self.lines.append(f"if {read} is not {was}: raise Stale")
            if id(value) not in self._seen:
                self.visit(was, value)


def write_reader(roots: Iterable[tuple[str, Any]], captured: Sequence[np.ndarray], recorder: Recorder) -> Reader | None:
    """The reader of a program. None if it would have no line.

    Captured arrays that cannot be found again are constants.
    """
    w = ReadsWriter({id(array): array for array in captured}, recorder.outside)
    w.names.update(recorder.constants)
    for _, root in roots:
        if isinstance(root, MethodType):  # a compiled program does not keep its object alive
            w.visit(w.bind(root.__name__, root.__func__), root.__func__)
            w._roots.add(id(root.__func__))
            w.visit_weakly(root.__self__)
        elif isinstance(root, FunctionType):
            w.visit(w.bind("root", root), root)
        elif not isinstance(root, SCALARS):
            w._look(w.bind("root", root), root)
    for cache, args, named, result in recorder.outside.cached:
        w._look(f"{w.bind(cache.__name__, cache)}(*{w.bind('args', args)}, **{w.bind('named', named)})", result)
    w.visit_imported()
    w.look_at_settings()
    w.require_visited()
    w.lines += [f"if {w.arrays[id(array)]}.tobytes() != {w.bind('c', array.tobytes())}: raise Stale" for array in captured
                if id(array) in recorder.asked and id(array) in w.arrays]
    laid_out = {id(storage.array): storage.array for storage, *_ in recorder.layouts
                if isinstance(storage, OutsideStorage)}
    w.lines += [f"if {w.arrays[key]}.strides != {array.strides}: raise Stale"
                for key, array in laid_out.items() if key in w.arrays]
    w.lines += recorder.lines
    if not w.lines:
        return None
    found = {**w.arrays, **recorder.numbers}
    results = [found.get(id(array)) or w.bind("own", array) for array in captured]
    body = "\n        ".join([*w.lines, f"return ({''.join(f'{name}, ' for name in results)})"])
    text = f"def read(leaves):\n    try:\n        {body}\n    except GONE:\n        raise Stale from None\n"
    path = f"<minisitch reader {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), w.names)
    numbers = tuple(i for i, array in enumerate(captured) if id(array) in recorder.numbers)
    return Reader(text, w.names["read"], frozenset(w.arrays), numbers)
