"""What the hooks of a rewritten program do: the trace stands behind its loads, calls and operators.

In:  what the program does (see ``rewrite``). Out: what Python would have done, with three
differences.

- What is read from outside is noted, and an array from there comes as a traced one (``outside``).
- A special method of the user's, behind an operator, a loop or a ``with``, runs rewritten text, too.
- A branch that only raises or warns is not taken.

``calls`` does the same for what the program calls.

Outside of a trace the hooks do nothing: a function that the program leaves behind, such as a
callback, then runs as it is.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
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
from .rewrite import HOOKS, hook, is_rewritten
from .scalars import Number

# functions in NumPy's source that ask whether NaNs have to be put in: what they do where there
# are none changes nothing
EITHER = {"nanvar": True, "_quantile": False}
# of containers in C: their methods take what they are given
OWNED: tuple[Any, ...] = (*CONTAINERS, types.MappingProxyType)
# libraries in Python whose functions read objects of the user's: ``UserDict``,
# ``dataclasses.replace``
OPEN = [each.__file__ for each in (collections, dataclasses)]
HOLDERS = (FunctionType, slice, types.CellType, functools.partial)  # their attributes are paths, too


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The hook of this name: it is in ``calls``, above this file."""
    return HOOKS["_hook_call"].cell_contents(function, *args, **kwargs)


def is_users_def(value: object) -> bool:
    """Whether a value is a function that the user has written, or one of ``OPEN``."""
    return type(value) is FunctionType and (
        bool(user_file(value.__code__.co_filename)) or is_rewritten(value.__code__) or value.__code__.co_filename in OPEN)


# ---------------------------------------------------------------- loads
@hook
def seen(value: Any) -> Any:
    """A name, attribute or item, as the program gets it into its hand."""
    recorder = ACTIVE.get()
    return value if recorder is None else recorder.outside.seen(value)


@hook
def taken(value: Any) -> Any:
    """What Python goes over by itself, or compares: all of a container is read."""
    recorder = ACTIVE.get()
    return value if recorder is None else recorder.outside.taken(value)


@hook
def attribute(holder: Any, name: str) -> Any:
    """``holder.name``."""
    recorder = ACTIVE.get()
    if recorder is None:
        return getattr(holder, name)
    outside, kind = recorder.outside, type(holder)
    if kind is TracedArray or kind is Number:
        if name.startswith("__") and not hasattr(type(holder),
                                                 name) and hasattr(holder.__class__, name):
            raise refuse(f"ndarray.{name}", "a traced array has no memory",
                         "Ask the result, outside")
        return getattr(holder, name)
    if kind is np.ndarray or kind is np.memmap:
        return getattr(outside.seen(holder), name)
    if isinstance(holder, ModuleType | type) or kind in HOLDERS:
        return _of_space(outside, holder, name)
    if kind is super:
        return _of_parent(outside, holder, name)
    return _of_object(outside, holder, name) if outside.is_users(kind) else getattr(holder, name)


def _of_space(outside: Outside, space: Any, name: str) -> Any:
    """An attribute of a module, a class or a function. What a library's has is looked at once."""
    if isinstance(space, ModuleType | type):
        if not outside.is_users(space):
            return getattr(space, name)
        outside.root(space)
    found = attribute_of(space, name)
    if _lasts(space, attribute_of, name, found):
        outside.note(space, attribute_of, name, found)
    elif isinstance(space, type):
        _note_member(outside, space, name, member_of(space, name))
    return getattr(space, name)


def _lasts(holder: Any, get: Callable, name: str, found: Any) -> bool:
    """Whether an object is the same at each look.

    A descriptor of a library may make a new one, as ``partialmethod`` does.
    """
    return is_plain(found) or isinstance(found, np.ndarray) or get(holder, name) is found


def _of_parent(outside: Outside, parent: Any, name: str) -> Any:
    """``super().name``."""
    found, self = getattr(parent, name), parent.__self__
    value = found.__func__ if type(found) is MethodType else found
    if id(self) in outside.places and not isinstance(self, type):
        outside.note(self, parent_of, (parent.__thisclass__, name), value)
    return found


def _of_object(outside: Outside, holder: Any, name: str) -> Any:
    """An attribute of an object of a user's class. Its properties and descriptors run rewritten."""
    kind = type(holder)
    member = member_of(kind, name)
    own = getattr(holder, "__dict__", {})
    if member is not ABSENT and type(member) is not FunctionType and hasattr(type(member), "__get__"):
        data = hasattr(type(member), "__set__") or name not in own
        getter = member.fget if type(member) is property else member.func if type(member) is functools.cached_property else None
        if getter is None and is_users_def(method := member_of(type(member), "__get__")) and data:
            _note_member(outside, kind, name, member)
            _note_absent(outside, holder, name, member)
            return call(method, member, holder, kind)
        if is_users_def(getter) and (name not in own or type(member) is property):
            _note_member(outside, kind, name, member)
            value = call(getter, holder)
            if type(member) is property or is_traced(value):
                _note_absent(outside, holder, name, member)
                return value
            own[name] = value  # as Python does: computed once
    get = own_of if is_users_def(member_of(kind, "__getattr__")) else attribute_of
    value = get(holder, name)
    if id(holder) in outside.places and _lasts(holder, get, name, value):
        outside.note(holder, get, name, value)
    elif member is not ABSENT and name not in own:
        _note_member(outside, kind, name, member)
    if value is ABSENT and is_users_def(answer := member_of(kind, "__getattr__")):
        _note_member(outside, kind, "__getattr__", answer)
        return call(answer, holder, name)
    return getattr(holder, name)  # or Python's own error


def _note_absent(outside: Outside, holder: Any, name: str, member: Any) -> None:
    """An attribute of the object's own could hide a descriptor without ``__set__``."""
    own = getattr(holder, "__dict__", None)
    if own is not None and not hasattr(type(member), "__set__") and id(holder) in outside.places and name not in own:
        outside.note(holder, attribute_of, "__dict__", own)
        outside.note(own, item_of, name, ABSENT)


def _note_member(outside: Outside, kind: type, name: str, member: Any) -> None:
    """Note what a user's class has under a name, unless the program made it itself."""
    if not (type(member) is FunctionType and is_rewritten(member.__code__)) and outside.is_users(kind):
        plain = type(member) in (FunctionType, property, type(None))
        outside.note(kind, attribute_of if plain else member_of, name, member, outside.root(kind))


@hook
def item(holder: Any, key: Any) -> Any:
    """``holder[key]``."""
    recorder = ACTIVE.get()
    if recorder is None:
        return holder[key]
    outside = recorder.outside
    holder, key = outside.seen(holder), outside.taken(key)
    if (method := special(holder, "__getitem__")) is not None:
        return call(method, holder, key)
    if isinstance(holder, type) and outside.is_users(holder) and hasattr(holder, "__class_getitem__"):
        return call(attribute(holder, "__class_getitem__"), key)
    if id(holder) in outside.places and isinstance(holder, OWNED):
        if isinstance(key, slice) or not (is_plain(key) or isinstance(key, tuple)):
            outside.taken(holder)
            return holder[key]
        outside.note(holder, item_of, key, item_of(holder, key))
    return holder[key]


@hook
def holder(value: Any, name: str = "") -> Any:
    """An object that the program is about to write to."""
    recorder = ACTIVE.get()
    if recorder is None or type(value) is TracedArray:
        return value
    value = recorder.outside.seen(value) if isinstance(value, np.ndarray) else value
    if type(value) is TracedArray:
        return value
    recorder.outside.holder(value, name or None)
    return Written(value) if any(_setter(value, name, word) for word in ("set", "delete")) else value


def _setter(value: Any, name: str, word: str) -> tuple[Any, ...]:
    """The user's function behind ``value.name = new``, ``value[i] = new`` or a ``del``, and its first arguments."""
    if not name:
        return (method, value) if (method := special(value, f"__{word[:3]}item__")) else ()
    if method := special(value, f"__{word[:3]}attr__"):
        return method, value, name
    member = member_of(type(value), name)
    method = getattr(member, f"f{word[:3]}") if type(member) is property else member_of(type(member), f"__{word}__")
    if not is_users_def(method) or not current().outside.is_users(type(value)):
        return ()
    _note_member(current().outside, type(value), name, member)
    return (method, value) if type(member) is property else (method, member, value)


class Written:
    """What stands for an object where the program writes to it: the user's setters run rewritten."""

    def __init__(self, of: Any) -> None:
        self.__dict__["of"] = of


def _write(word: str, attribute: bool, plain: Callable) -> Callable[..., None]:
    def write(self: Written, *given: Any) -> None:
        of = self.__dict__["of"]
        setter = _setter(of, given[0] if attribute else "", word)
        call(*setter, *given[attribute:]) if setter else plain(of, *given)
    return write


for _name, _plain in {"setattr": setattr, "delattr": delattr, "setitem": operator.setitem,
                      "delitem": operator.delitem}.items():
    setattr(Written, f"__{_name}__", _write("set" if _name[:3] == "set" else "delete",
                                            _name[3:] == "attr", _plain))


@hook
def decorator(function: Any) -> Any:
    """What stands behind ``@``: its call is one like another."""
    return function if ACTIVE.get() is None else functools.partial(call, function)


HOOKS["_hook_slice"] = types.CellType(slice)


# ---------------------------------------------------------------- operators and protocols
def special(value: Any, name: str) -> Any:
    """The user's function behind a special method.

    None if Python's own, or a library's, is there.
    """
    kind = type(value)
    if kind is TracedArray or kind is Number or not (outside := current().outside).is_users(kind):
        return None
    member = member_of(kind, name)
    _note_member(outside, kind, name, member)
    return member if is_users_def(member) else None


@hook
def unary(name: str, value: Any) -> Any:
    method = None if ACTIVE.get() is None else special(value, f"__{name}__")
    return getattr(operator, name)(value) if method is None else call(method, value)


REFLECTED = {"lt": "__gt__", "le": "__ge__", "gt": "__lt__", "ge": "__le__", "eq": "__eq__",
             "ne": "__ne__"}


@hook
def binary(name: str, left: Any, right: Any) -> Any:
    """An operator, or a comparison.

    The right operand is asked first if its class derives from the left's.
    """
    function = getattr(operator, f"__{name}__")
    if ACTIVE.get() is None:
        return function(left, right)
    first, second = special(left, f"__{name}__"), special(right,
                                                          REFLECTED.get(name, f"__r{name}__"))
    if first is None and second is None:
        return function(taken(left), taken(right))
    if type(left) is TracedArray and first is None and name not in REFLECTED and _spreads(right):
        raise refuse(f"an array {name} a {type(right).__name__}",
                     "NumPy asks the object for each element, and makes an array of objects",
                     f"Set __array_ufunc__ = None in the class, or write the {type(right).__name__} first")
    asked = [(first, left, right), (second, right, left)]
    if isinstance(right, type(left)) and type(left) is not type(right) and second is not None:
        asked.reverse()
    for method, own, other in asked:
        if method is not None and (result := call(method, own, other)) is not NotImplemented:
            return result
    return function(left, right) if first is None or second is None else _unsupported(function, left, right)


def _unsupported(function: Callable, left: Any, right: Any) -> Any:
    return function(left, right)  # Python's own error, or its answer for == and !=


def _spreads(value: Any) -> bool:
    """Whether NumPy takes a user's object for an element of an array."""
    asks = getattr(value, "__array_ufunc__", 0) is not None
    return asks and getattr(value, "__array_priority__", -1) <= 0


@hook
def inplace(name: str, target: Any, value: Any) -> Any:
    """``target += value``."""
    if ACTIVE.get() is None:
        return getattr(operator, f"__i{name}__")(target, value)
    target = seen(target)
    if (method := special(target, f"__i{name}__")) is not None:
        return call(method, target, value)
    if special(target, f"__{name}__") is not None or special(value, f"__r{name}__") is not None:
        return binary(name, target, value)
    return getattr(operator, f"__i{name}__")(target, taken(value))


@hook
def identified(value: Any) -> Any:
    """A side of ``is``: which arrays are the same matters now."""
    recorder = ACTIVE.get()
    if recorder is None or is_plain(value):
        return value
    recorder.identified = True
    return recorder.outside.seen(value)


def with_traced(value: Any) -> Any:
    """A list, tuple or dict with traced arrays in place of those from outside."""
    if type(value) not in (list, tuple, dict):
        return value
    outside = current().outside
    values = [*(value.values() if isinstance(value, dict) else value)]
    made = [with_traced(each) if type(each) in (list, tuple, dict) else outside.seen(each)
            for each in values]
    if all(a is b for a, b in zip(values, made, strict=True)):
        return value
    return dict(zip(value, made, strict=True)) if isinstance(value, dict) else type(value)(made)


@hook
def contains(value: Any, container: Any) -> bool:
    """``value in container``."""
    if ACTIVE.get() is None:
        return value in container
    value, container = (identified if type(value) is TracedArray
                        else taken)(value), taken(container)
    if (method := special(container, "__contains__")) is not None:
        return bool(truth(call(method, container, value)))
    return value in (with_traced(container) if type(container) in (list, tuple)
                     else iterated(container))


CONVERSIONS = {ord("r"): repr, ord("s"): str, ord("a"): ascii}


@hook
def formatted(value: Any, conversion: int, how: str) -> str:
    """``{value!r:how}`` in an f-string."""
    value = taken(value)
    return call(format, call(CONVERSIONS[conversion], value) if conversion in CONVERSIONS else value, how)  # type: ignore[no-any-return]


@hook
def truth(value: Any) -> Any:
    """A condition."""
    if ACTIVE.get() is None:
        return value
    if _unknown(value) and (code := sys._getframe(1).f_code).co_name in EITHER and not user_file(code.co_filename):
        return EITHER[code.co_name]
    for name in ("__bool__", "__len__"):
        if (method := special(value, name)) is not None:
            return call(method, value)
    value = taken(value)
    return bool(value) if type(value) is TracedArray else value  # here its place tells what asks


@hook
def iterated(value: Any) -> Any:
    """What a loop goes over."""
    if ACTIVE.get() is None:
        return value
    value = taken(value)
    if (method := special(value, "__iter__")) is None:
        return _elements(value) if special(value, "__getitem__") is not None else value
    iterator = call(method, value)
    return _steps(iterator) if special(iterator, "__next__") is not None else iterator


def _steps(iterator: Any) -> Iterator[Any]:
    while True:
        try:
            found = call(member_of(type(iterator), "__next__"), iterator)
        except StopIteration:
            return
        yield found


def _elements(sequence: Any) -> Iterator[Any]:
    """The old protocol: items 0, 1, 2 ... until there is none."""
    i = 0
    while True:
        try:
            found = item(sequence, i)
        except IndexError:
            return
        yield found
        i += 1


class Entered:
    """``with`` an object of a user's class."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __enter__(self) -> Any:
        return call(member_of(type(self._of), "__enter__"), self._of)

    def __exit__(self, *error: Any) -> Any:
        return call(member_of(type(self._of), "__exit__"), self._of, *error)


@hook
def entered(value: Any) -> Any:
    return value if ACTIVE.get() is None or special(value, "__enter__") is None else Entered(value)


@hook
def matched(value: Any, depth: int, named: list[Callable[[], Any]], *names: str) -> Any:
    """What ``match`` looks at.

    ``named``: the names with dots in its patterns; ``names``: the attributes.
    """
    if ACTIVE.get() is not None:
        for each in named:
            with contextlib.suppress(Exception):
                each()
        _look(value, depth, names)
    return value


def _look(value: Any, depth: int, names: tuple[str, ...]) -> None:
    """Note what patterns of this depth may read: elements, and attributes."""
    if taken(value) is None or not depth:
        return
    if isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            _look(each, depth - 1, names)
    elif current().outside.is_users(type(value)):
        patterns = attribute(type(value), "__match_args__") if hasattr(type(value), "__match_args__") else ()
        for name in dict.fromkeys([*getattr(value, "__dict__", ()), *patterns, *names]):
            with contextlib.suppress(AttributeError):
                _look(attribute(value, name), depth - 1, names)


# ---------------------------------------------------------------- validation that only raises
@hook
def unless(condition: Any) -> Any:
    """The condition of a branch that only raises or warns: a call where it holds runs the plain function."""
    if not _unknown(condition):
        return truth(condition)
    condition.recorder.unlike(condition)
    return False


@hook
def provided(condition: Any) -> Any:
    """The condition of an ``assert``, or of an ``if`` whose ``else`` only raises."""
    if not _unknown(condition):
        return truth(condition)
    condition.recorder.unlike(np.logical_not(condition))
    return True


def _unknown(value: Any) -> bool:
    return ACTIVE.get() is not None and type(value) is TracedArray and value.size == 1 and \
        value.recorder.known(value.node, asks=True) is None


@hook
def negated(condition: Any) -> Any:
    return np.logical_not(condition) if _unknown(condition) else not truth(condition)


@hook
def settled(word: str, value: Any) -> bool:
    """Whether what stands behind ``value or`` or ``value and`` is not asked."""
    return not _unknown(value) and bool(truth(value)) is (word == "or")


@hook
def joined(word: str, first: Any, rest: Any) -> Any:
    """``first or rest`` in such a condition. If ``first`` has settled it, ``rest`` is the same."""
    if not _unknown(first) or not _unknown(rest):
        return first if _unknown(first) and bool(truth(rest)) is not (word == "or") else rest
    return (np.logical_or if word == "or" else np.logical_and)(np.reshape(first, ()),
                                                               np.reshape(rest, ()))


@hook
def judged(value: Any) -> Any:
    """A side of ``and`` or ``or`` elsewhere."""
    if ACTIVE.get() is not None and type(value) is not TracedArray:
        truth(value)
    return seen(value)
