"""What the hooks of a rewritten program do: the trace stands behind its loads, calls and operators.

In:  what the program does (see ``rewrite``). Out: what Python would have done, with three
differences.

- What is read from outside is noted, and an array from there comes as a traced one (``outside``).
- A special method of the user's, behind an operator, a loop or a ``with``, runs rewritten text, too.
- A branch that only raises or warns is not taken.

Most of what Python does is a call of one of its own functions, and ``PROTOCOLS`` has what the trace
does in their places. The others take what they are given, and ``calls`` says how.

Outside of a trace the hooks do nothing: a function that the program leaves behind, such as a
callback, then runs as it is.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import dataclasses
import functools
import importlib.util
import operator
import sys
import types
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .array import TracedArray, is_traced
from .outside import (
    ABSENT,
    CONTAINERS,
    Outside,
    attribute_of,
    is_plain,
    item_of,
    member_of,
    own_of,
    parent_of,
)
from .recorder import ACTIVE, current, refuse, user_file
from .refusals import NO_VALUE
from .rewrite import CONVERSIONS, HOOKS, OPERATORS, hook, is_rewritten
from .scalars import Number

# of containers in C: their methods take what they are given
OWNED: tuple[Any, ...] = (*CONTAINERS, types.MappingProxyType)
# libraries in Python whose functions read objects of the user's: ``UserDict``,
# ``dataclasses.replace``
OPEN = [each.__file__ for each in (collections, dataclasses)]
# their attributes are paths, too
HOLDERS = (FunctionType, slice, types.CellType, functools.partial)
PROTOCOLS: dict[Any, Callable] = {}  # a function of Python's -> what the trace does in its place


def protocol(*functions: Any) -> Callable[[Callable], Callable]:
    """Register what a trace does in place of these functions of Python's."""
    def register(handler: Callable) -> Callable:
        PROTOCOLS.update(dict.fromkeys(functions, handler))
        return handler
    return register


def is_users_def(value: object) -> bool:
    """Whether a value is a function that the user has written, or one of ``OPEN``."""
    return type(value) is FunctionType and (
        bool(user_file(value.__code__.co_filename)) or is_rewritten(value.__code__) or value.__code__.co_filename in OPEN)


# ---------------------------------------------------------------- calls and loads
@hook
def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``."""
    recorder = ACTIVE.get()
    if recorder is None:
        return function(*args, **kwargs)
    outside = recorder.outside
    if any(type(each) is np.ndarray for each in (*args, *kwargs.values())):
        args, kwargs = tuple(map(outside.seen, args)), {key: outside.seen(each) for key, each in kwargs.items()}
    return outside.seen(recorder.call(function, args, kwargs))


PROTOCOLS[call] = call  # a library was handed a method or an object of the user's


@hook
def seen(value: Any) -> Any:
    """A name as the program gets it into its hand."""
    recorder = ACTIVE.get()
    return value if recorder is None else recorder.outside.seen(value)


@hook
def taken(value: Any) -> Any:
    """What Python goes over by itself, or compares: all of a container is read."""
    recorder = ACTIVE.get()
    return value if recorder is None else recorder.outside.taken(value)


# ---------------------------------------------------------------- attributes
@hook
def imported(space: dict[str, Any], module: str, *names: str) -> None:
    """The program has imported these names from a module."""
    if ACTIVE.get() is not None:
        found = sys.modules.get(importlib.util.resolve_name(module, space.get("__package__")))
        for name in names:
            attribute(found, name, None)


@protocol(getattr)
def attribute(holder: Any, name: str, *default: Any) -> Any:
    """``holder.name``."""
    try:
        return _attribute(holder, name)
    except AttributeError:
        if not default:
            raise
        return default[0]


def _attribute(holder: Any, name: str) -> Any:
    outside, kind = current().outside, type(holder)
    space = isinstance(holder, ModuleType | type)
    if kind is TracedArray or kind is Number:
        if name.startswith("__") and not hasattr(kind, name) and hasattr(holder.__class__, name):
            raise refuse(f"ndarray.{name}", "a traced array has no memory", "Ask the result, outside")
    elif kind is super:
        return _of_parent(outside, holder, name)
    elif kind in HOLDERS or outside.is_users(holder if space else kind):
        if space:
            outside.root(holder)
        return _of_object(outside, holder, name)
    return getattr(holder, name)


def _of_object(outside: Outside, holder: Any, name: str) -> Any:
    """An attribute of the user's. Properties and descriptors run rewritten."""
    space = isinstance(holder, type)
    kind = holder if space else type(holder)
    member = member_of(kind, name)
    has_own = not space and hasattr(holder, "__dict__")
    own = vars(holder) if has_own else {}
    getter, first = _getter(member)
    if is_users_def(getter) and not space and (hasattr(type(member), "__set__") or name not in own):
        _note_member(outside, kind, name, member)
        value = call(getter, *first, holder, *(first and [kind]))
        if type(member) is functools.cached_property and not is_traced(value):
            own[name] = value  # as Python does: computed once
        elif id(holder) in outside.places and has_own and not hasattr(type(member), "__set__"):
            outside.note(holder, attribute_of, "__dict__", own)  # one of its own could hide it
            outside.note(own, item_of, name, ABSENT)
        return value
    answer = ABSENT if space else member_of(kind, "__getattr__")
    get = own_of if is_users_def(answer) else attribute_of
    value = get(holder, name)
    # a descriptor of a library may make a new object at each look, as ``partialmethod`` does
    lasts = is_plain(value) or isinstance(value, np.ndarray) or get(holder, name) is value
    if id(holder) in outside.places and lasts:
        outside.note(holder, get, name, value)
    elif member is not ABSENT and name not in own:
        _note_member(outside, kind, name, member)
    if value is ABSENT and is_users_def(answer):
        _note_member(outside, kind, "__getattr__", answer)
        return call(answer, holder, name)
    return getattr(holder, name)  # or Python's own error


def _getter(member: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function behind a descriptor, and its first argument if that is the descriptor."""
    if type(member) in (property, functools.cached_property):
        return (member.fget if type(member) is property else member.func), ()
    return member_of(type(member), "__get__"), (member,)


def _of_parent(outside: Outside, parent: Any, name: str) -> Any:
    """``super().name``."""
    found, self = getattr(parent, name), parent.__self__
    value = found.__func__ if type(found) is MethodType else found
    if id(self) in outside.places and not isinstance(self, type):
        outside.note(self, parent_of, (parent.__thisclass__, name), value)
    return found


def _note_member(outside: Outside, kind: type, name: str, member: Any) -> None:
    """Note what a user's class has under a name, unless the program made it itself."""
    if not (type(member) is FunctionType and is_rewritten(member.__code__)) and outside.is_users(kind):
        plain = type(member) in (FunctionType, property, type(None))
        outside.note(kind, attribute_of if plain else member_of, name, member, outside.root(kind))


# ---------------------------------------------------------------- writing
@hook
def written(value: Any) -> Any:
    """An object that the program is about to write to."""
    return value if ACTIVE.get() is None or type(value) is TracedArray else Written(value)


class Written:
    """What stands for an object where the program writes to it."""

    def __init__(self, of: Any) -> None:
        self.__dict__["of"] = of

    def __setattr__(self, name: str, value: Any) -> None:
        write(setattr, self.__dict__["of"], name, value)

    def __delattr__(self, name: str) -> None:
        write(delattr, self.__dict__["of"], name)

    def __setitem__(self, key: Any, value: Any) -> None:
        write(operator.setitem, self.__dict__["of"], key, value)

    def __delitem__(self, key: Any) -> None:
        write(operator.delitem, self.__dict__["of"], key)


def write(function: Callable, of: Any, key: Any, *value: Any) -> None:
    """``of.key = value``, ``of[key] = value`` or a ``del``. The user's setters run rewritten."""
    outside = current().outside
    of = outside.seen(of)
    if type(of) is np.ndarray and is_traced([key, *value]):
        of = outside.adopted(of)
        if type(of) is np.ndarray:
            raise refuse("assignment into a real ndarray with a traced array", NO_VALUE,
                         "Make the array with np.zeros(shape, dtype) inside the traced function, or np.zeros_like(x), or pass it "
                         "in as an argument: those take traced values")
    if not isinstance(of, np.ndarray | TracedArray):
        outside.holder(of, key, item=function not in (setattr, delattr))
        if (method := special(of, f"__{function.__name__}__")) is not None:
            return call(method, of, key, *value)
        if function in (setattr, delattr) and outside.is_users(type(of)):
            member, word = member_of(type(of), key), function.__name__[:3]
            is_property = type(member) is property
            setter = getattr(member, f"f{word}") if is_property else member_of(type(member), "__set__" if value else "__delete__")
            if is_users_def(setter):
                _note_member(outside, type(of), key, member)
                return call(setter, *([] if is_property else [member]), of, *value)
    return function(of, key, *value)


for _function in (setattr, delattr, operator.setitem, operator.delitem):
    PROTOCOLS[_function] = functools.partial(write, _function)


# ---------------------------------------------------------------- operators and items
def special(value: Any, name: str) -> Any:
    """The user's function behind a special method.

    None if Python's own, or a library's, is there.
    """
    if type(value) in (TracedArray, Number) or not (outside := current().outside).is_users(type(value)):
        return None
    kind = outside.kind(value)
    member = member_of(kind, name)
    _note_member(outside, kind, name, member)
    return member if is_users_def(member) else None


@protocol(operator.getitem)
def item(holder: Any, key: Any) -> Any:
    """``holder[key]``."""
    outside = current().outside
    holder, key = outside.seen(holder), outside.taken(key)
    if (method := special(holder, "__getitem__")) is not None:
        return call(method, holder, key)
    if isinstance(holder, type) and outside.is_users(holder) and hasattr(holder, "__class_getitem__"):
        return call(attribute(holder, "__class_getitem__"), key)
    if id(holder) in outside.places and isinstance(holder, OWNED):
        if isinstance(key, slice) or not (is_plain(key) or isinstance(key, tuple)):
            outside.taken(holder)
        else:
            outside.note(holder, item_of, key, item_of(holder, key))
    found = holder[key]
    if type(holder) is np.ndarray and type(found) is np.ndarray and found.base is not None:
        outside.views[id(found)] = found, holder, key
    return found


def unary(function: Callable, value: Any) -> Any:
    method = special(value, f"__{function.__name__}__")
    return function(value) if method is None else call(method, value)


REFLECTED = {"lt": "__gt__", "le": "__ge__", "gt": "__lt__", "ge": "__le__", "eq": "__eq__", "ne": "__ne__"}


def binary(function: Callable, left: Any, right: Any) -> Any:
    """An operator, or a comparison.

    The right operand is asked first if its class derives from the left's.
    """
    name = function.__name__.strip("_")
    first, second = special(left, f"__{name}__"), special(right, REFLECTED.get(name, f"__r{name}__"))
    if first is None and second is None:
        return function(taken(left), taken(right))
    if type(left) is TracedArray and name not in REFLECTED and _spreads(right):
        raise refuse(f"an array {name} a {type(right).__name__}",
                     "NumPy asks the object for each element, and makes an array of objects",
                     f"Set __array_ufunc__ = None in the class, or write the {type(right).__name__} first")
    asked = [(first, left, right), (second, right, left)]
    if isinstance(right, type(left)) and type(left) is not type(right) and second is not None:
        asked.reverse()
    for method, own, other in asked:
        if method is not None and (result := call(method, own, other)) is not NotImplemented:
            return result
    return function(left, right)  # the other's answer, or Python's own error


def _spreads(value: Any) -> bool:
    """Whether NumPy takes a user's object for an element of an array."""
    asks = getattr(value, "__array_ufunc__", 0) is not None
    return asks and getattr(value, "__array_priority__", -1) <= 0


def inplace(function: Callable, target: Any, value: Any) -> Any:
    """``target += value``."""
    plain, outside = getattr(operator, f"__{function.__name__[1:]}__"), current().outside
    if type(target) is np.ndarray and is_traced([value]):
        target = outside.adopted(target)
    if (method := special(target, f"__{function.__name__}__")) is not None:
        result = call(method, target, value)
        return result if result is not NotImplemented else binary(plain, target, value)
    name = plain.__name__.strip("_")
    if special(target, f"__{name}__") is not None or special(value, f"__r{name}__") is not None:
        return binary(plain, target, value)
    return function(target, taken(value))


@protocol(operator.is_, operator.is_not)
def _same(left: Any, right: Any) -> bool:
    """Which arrays are the same matters now."""
    current().identified |= not (is_plain(left) or is_plain(right))
    return left is right


@hook
def within(value: Any, container: Any) -> bool:
    """``value in container``."""
    if ACTIVE.get() is None:
        return value in container
    current().identified |= type(value) is TracedArray
    value, container = taken(value), taken(container)
    if (method := special(container, "__contains__")) is not None:
        return bool(truth(call(method, container, value)))
    return value in (with_traced(container) if type(container) in (list, tuple) else iterated(container))


def without(value: Any, container: Any) -> bool:
    """``value not in container``."""
    return not within(value, container)


PROTOCOLS |= {within: within, without: without, operator.contains: lambda container, value: within(value, container),
              operator.is_not: lambda left, right: not _same(left, right)}


def with_traced(value: Any) -> Any:
    """A list, tuple or dict with traced arrays in place of those from outside."""
    if type(value) not in (list, tuple, dict):
        return value
    values = [*(value.values() if isinstance(value, dict) else value)]
    made = [with_traced(current().outside.seen(each)) for each in values]
    if all(map(operator.is_, values, made)):
        return value
    return dict(zip(value, made, strict=True)) if isinstance(value, dict) else type(value)(made)


for _word in OPERATORS.values():
    _function = globals().get(_word) or getattr(operator, _word)
    HOOKS[f"_hook_{_word}"] = types.CellType(_function)
    if _word in ("neg", "pos", "invert"):
        PROTOCOLS[_function] = functools.partial(unary, _function)
    elif _function not in PROTOCOLS:
        PROTOCOLS[_function] = functools.partial(binary, _function)
        if _inplace := getattr(operator, f"i{_word.strip('_')}", None):
            HOOKS[f"_hook_{_inplace.__name__}"] = types.CellType(_inplace)
            PROTOCOLS[_inplace] = functools.partial(inplace, _inplace)
HOOKS |= {f"_hook_{each}": types.CellType(getattr(builtins, each))
          for each in ("getattr", "slice", "format", "globals", *CONVERSIONS.values())}
HOOKS |= {"_hook_getitem": types.CellType(operator.getitem),
          "_hook_partial": types.CellType(functools.partial)}


# ---------------------------------------------------------------- conditions
@hook
def truth(value: Any, likely: bool | None = None) -> Any:
    """A condition. ``likely``: what it is in a branch whose other side only raises or warns.

    A call where it is not runs the plain function.
    """
    recorder = ACTIVE.get()
    if recorder is None:
        return value
    if likely is not None and type(value) is TracedArray and value.size == 1 and recorder.known(value.node, asks=True) is None:
        recorder.unlike((np.logical_not(value) if likely else value).node)
        return likely
    for name in ("__bool__", "__len__"):
        if (method := special(value, name)) is not None:
            return call(method, value)
    value = taken(value)
    return bool(value) if type(value) is TracedArray else value  # here its place tells what asks


class Judged:
    """A side of ``and`` or ``or`` that has been asked for its truth."""

    def __init__(self, value: Any) -> None:
        self.value, self.truth = value, bool(truth(value))

    def __bool__(self) -> bool:
        return self.truth


@hook
def judged(value: Any) -> Any:
    return value if ACTIVE.get() is None else Judged(value)


@hook
def settled(value: Any) -> Any:
    """What ``and`` or ``or`` gives."""
    return value.value if type(value) is Judged else value


# ---------------------------------------------------------------- loops, with, match
@hook
def iterated(value: Any) -> Any:
    """What a loop goes over."""
    if ACTIVE.get() is None:
        return value
    value = taken(value)
    if (method := special(value, "__iter__")) is None:
        return _steps(value, "__getitem__", IndexError) if special(value, "__getitem__") is not None else value
    iterator = call(method, value)
    return _steps(iterator, "__next__", StopIteration) if special(iterator, "__next__") is not None else iterator


def _steps(of: Any, name: str, end: type[Exception]) -> Iterator[Any]:
    """What an iterator gives.

    By the old protocol, it is the items 0, 1, 2 ... until there is none.
    """
    i = 0
    while True:
        try:
            found = call(special(of, name), of, *([i] if end is IndexError else []))
        except end:
            return
        yield found
        i += 1


class Entered:
    """``with`` an object of a user's class."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __enter__(self) -> Any:
        return call(special(self._of, "__enter__"), self._of)

    def __exit__(self, *error: Any) -> Any:
        return call(special(self._of, "__exit__"), self._of, *error)


@hook
def entered(value: Any) -> Any:
    return value if ACTIVE.get() is None or special(value, "__enter__") is None else Entered(value)


@hook
def matched(value: Any, named: Callable[[], Any], *names: str) -> Any:
    """What ``match`` looks at.

    ``named`` reads the names with dots in its patterns. ``names`` are attributes of the value and
    of its parts.
    """
    if ACTIVE.get() is None:
        return value
    with contextlib.suppress(Exception):
        named()
    met, waiting = set[int](), [taken(value)]
    for each in waiting:
        if id(each) not in met and isinstance(each, list | tuple | dict):
            waiting += each.values() if isinstance(each, dict) else each
        elif id(each) not in met and current().outside.is_users(type(each)):
            patterns = attribute(current().outside.kind(each), "__match_args__", ())
            waiting += [taken(attribute(each, name, None)) for name in (*patterns, *names)]
        met.add(id(each))
    return value
