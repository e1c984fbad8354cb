"""What the trace does behind a call: the user's functions, methods and classes run rewritten.

In:  a call of the rewritten program. Out: what Python would have returned. A function of NumPy that
makes an array, or does not ask its arguments what they are, has another in its place (``INSTEAD``).
What is not rewritten, as C code and libraries, gets traced arrays in place of outside ones, and the
user's functions with their hooks.
"""

from __future__ import annotations

import contextvars
import copy
import dis
import functools
import math
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from ..errors import MinisitchError
from .array import TracedArray, fresh, is_traced, lift
from .hooks import (
    OWNED,
    PROTOCOLS,
    attribute,
    call,
    is_users_def,
    iterated,
    protocol,
    special,
    with_traced,
)
from .outside import ABSENT, Outside, attribute_of, member_of, slots_of
from .recorder import ACTIVE, current, raised_by_user, refuse, user_line
from .refusals import name_of
from .rewrite import is_rewritten, rewritten
from .scalars import Number, plain, sqrt
from .tree import flatten, unflatten

# NumPy's function -> what a traced program calls in its place
INSTEAD: dict[Any, Callable] = {math.sqrt: sqrt}
NUMPY: dict[str, Callable] = {}  # "source": traces NumPy's own source, set by ``creation``
CACHE = type(functools.cache(len))
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


# ---------------------------------------------------------------- calls
def run_call(recorder: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """``function(*args, **kwargs)``, in a trace."""
    kind = type(function)
    if recorder.silent and _writes(function):
        return None
    try:
        protocol, instead = PROTOCOLS.get(function), INSTEAD.get(function)
    except TypeError:  # not hashable
        protocol = instead = None
    if protocol is not None:
        return protocol(*args, **kwargs)
    if instead is not None:
        args, kwargs = _all_handed(recorder, args, kwargs)
        return _called(recorder, instead, function, args, kwargs)
    if kind is FunctionType:
        return _function(recorder, function, args, kwargs)
    if kind is MethodType and type(function.__func__) is FunctionType:
        # a global may be a method
        owner = recorder.outside.note(function, attribute_of, "__self__", function.__self__)
        return _function(recorder, function.__func__, (owner, *args), kwargs)
    if kind is functools.partial:
        held = [recorder.outside.taken(attribute(function, name)) for name in ("func", "args", "keywords")]
        return call(held[0], *held[1], *args, **{**held[2], **kwargs})
    if isinstance(function, weakref.ref):
        return recorder.outside.referent(function)
    if kind is CACHE and not is_rewritten(getattr(function.__wrapped__, "__code__", copy_of.__code__)):
        return _called(recorder, contextvars.copy_context().run, function, (_apart, function, *map(plain, args)),
                       {key: plain(each) for key, each in kwargs.items()})
    if (method := special(function, "__call__")) is not None:
        return call(method, function, *args, **kwargs)
    is_type = isinstance(function, type)
    if is_type and recorder.outside.is_users(function) and kind.__call__ is type.__call__:
        return _construct(function, args, kwargs)
    if args and (kind is BuiltinFunctionType or (is_type and function.__module__ == "builtins")) and (
            method := special(args[0], f"__{function.__name__}__")) is not None:
        return call(method, *args, **kwargs)
    return _native(recorder, function, args, kwargs)


def _apart(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call of a cache, which outlives the trace: it keeps real arrays."""
    ACTIVE.set(None)
    return function(*args, **kwargs)


def _function(recorder: Any, function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of a Python function.

    The user's runs rewritten, NumPy's where it is given a traced array.
    """
    made = recorder.copy_of(function)
    if is_users_def(function) and not is_rewritten(made.__code__):
        read_unseen(recorder.outside, function, *args, *kwargs.values())
    if made is not function or is_users_def(function):
        return made(*args, **kwargs)
    return _native(recorder, function, args, kwargs)


def copy_of(recorder: Any, function: FunctionType) -> FunctionType:
    """The function as the trace runs it."""
    if is_users_def(function):
        if is_rewritten(function.__code__):
            return function
        recorder.outside.names(function, names_in(function.__code__))
        if (made := rewritten(function)) is not None:
            return made
        read_unseen(recorder.outside, function)
    cells = function.__closure__ or ()
    held = [None if cell == types.CellType() else cell.cell_contents for cell in cells]
    if not any(map(is_users_def, held)):
        return function
    # a library's decorator, or what a dataclass generates, has the user's function in its closure
    cells = tuple(types.CellType(recorder.copy_of(each)) if is_users_def(each) else cell
                  for each, cell in zip(held, cells, strict=True))
    made = FunctionType(function.__code__, function.__globals__, function.__name__,
                        function.__defaults__, cells)
    made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, function.__dict__
    return made


@functools.lru_cache(1024)
def names_in(code: types.CodeType, attributes: bool = False) -> tuple[str, ...]:
    """The globals that a function, and the functions inside it, name; or the attributes, too."""
    own = [each.argval for each in dis.get_instructions(code)
           if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")]
    inner = [name for each in code.co_consts if isinstance(each, types.CodeType)
             for name in names_in(each, attributes)]
    return tuple(dict.fromkeys([*(code.co_names if attributes else own), *inner]))


def read_unseen(outside: Outside, function: FunctionType, *given: Any) -> None:
    """Note all that a function without source may read, if it is given these arguments.

    It may read the names in its code, from each object that it reaches.
    """
    held = [each.cell_contents for each in function.__closure__ or () if each != types.CellType()]
    words = names_in(function.__code__, attributes=True)
    for each in (*(function.__globals__.get(name) for name in names_in(function.__code__)), *held, *given):
        outside.recorder.asked |= set(map(id, outside.inside(each, words=words)))


def _construct(kind: type, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A new object of a user's class, as ``type.__call__`` makes it.

    What makes it may have no source, as in a dataclass: then it only stores its arguments.
    """
    new, init = member_of(kind, "__new__"), member_of(kind, "__init__")
    if isinstance(new, staticmethod) and is_users_def(new.__func__):
        made = current().copy_of(new.__func__)(kind, *args, **kwargs)
    else:  # ``object.__new__`` takes no arguments if there is an ``__init__``
        given = ((), {}) if new is object.__new__ and init is not object.__init__ else (args, kwargs)
        made = kind.__new__(kind, *given[0], **given[1])
    if not isinstance(made, kind):
        return made
    if (init := special(made, "__init__")) is None:
        if not isinstance(made, tuple | str | int | float):
            type(made).__init__(made, *args, **kwargs)
        return made
    post = special(made, "__post_init__")
    own = {} if post is None else getattr(made, "__dict__", {})
    # what a dataclass generates has no source, and calls this
    own["__post_init__"] = functools.partial(call, post, made)
    try:
        current().copy_of(init)(made, *args, **kwargs)
    finally:
        own.pop("__post_init__")
    return made


def _native(recorder: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of what is not rewritten: C code, and libraries."""
    outside, owner = recorder.outside, getattr(function, "__self__", None)
    if isinstance(owner, OWNED):  # a global may be a method of a dict
        outside.note(function, attribute_of, "__self__", owner)
        return _method_of_container(recorder, function, owner, args, kwargs)
    if isinstance(owner, np.random.Generator | np.random.RandomState) and any(map(is_traced, args)):
        raise refuse(f"{name_of(function)} of a traced array", "it draws an order while the program is traced",
                     "Draw outside, order = rng.permutation(n), pass order in, and write x[order]")
    is_function = isinstance(function, FunctionType | BuiltinFunctionType)
    if isinstance(function, FunctionType):  # a library reads the user's objects
        for each in args:
            outside.inside(each, 2)
    # C code says of itself whether it goes over an iterable, and what it calls, as in
    # map(func, *iterables)
    told = "" if isinstance(function, FunctionType) else function.__doc__ or ""
    calls = "func" in told.partition("\n")[0]
    if "iterable" in told and not (args[1:] and "two or more" in told):
        args = tuple(each if (calls and callable(each)) or ("mapping" in told and hasattr(each, "keys"))
                     else iterated(each) for each in args)
    args, kwargs = _all_handed(recorder, args, kwargs, calls)
    if type(owner) is np.ndarray:  # a global may be a method of an array
        owner = outside.seen(outside.note(function, attribute_of, "__self__", owner))
        function = getattr(owner, function.__name__)
    ufunc = function if isinstance(function, np.ufunc) else owner
    if isinstance(ufunc, np.ufunc) and any(map(is_traced, args)):
        if ufunc is owner and isinstance(args[0], list | tuple) and is_traced(args[0]):
            args = lift(args[0]), *args[1:]  # NumPy does not ask the elements of a list
        out = kwargs.get("out")
        if out is Ellipsis:
            made = _native(recorder, function, args, {key: each for key, each in kwargs.items() if key != "out"})
            found = [fresh(each.node, (each,), scalar=False) for each in (made if type(made) is tuple else [made])]
            return tuple(found) if type(made) is tuple else found[0]
        if type(out) is np.ndarray:
            kwargs["out"] = outside.adopted(out)
    numpys = str(getattr(function, "__module__", "")).partition(".")[0]
    if numpys == "numpy" and is_function:
        if any(is_traced(each) and type(each) is not Number for each in (*args, *kwargs.values())):
            return _called(recorder, NUMPY["source"], function, (function, args, kwargs), {})
        args, kwargs = tuple(map(plain, args)), {key: plain(each) for key, each in kwargs.items()}
    try:
        return _called(recorder, function, function, args, kwargs)
    except (TypeError, ValueError) as error:
        # a library that asks for NumPy's own arrays gets them, if they are known
        given, tree = flatten((args, kwargs), lambda value: type(value) is TracedArray)
        known = [] if isinstance(error, MinisitchError) else [x.recorder.known(x.node, asks=True) for x in given]
        if numpys in ("numpy", "builtins") or not known or any(each is None for each in known) or raised_by_user(error):
            raise
        args, kwargs = unflatten(tree, known)
        return _called(recorder, function, function, args, kwargs)


def _method_of_container(recorder: Any, function: Any, owner: Any, args: tuple,
                         kwargs: dict[str, Any]) -> Any:
    """A method of a list, dict ...

    It takes what it is given. Whatever tells something, and changes nothing, reads all of it.
    """
    outside = recorder.outside
    if id(owner) not in outside.places:
        return _called(recorder, function, function, args, kwargs)
    if is_traced([*args, *kwargs.values()]):
        outside.holder(owner)
    was, before = slots_of(owner), _elements_of(owner)
    result = _called(recorder, function, function, args, kwargs)
    if changed := before != _elements_of(owner):
        outside.keep(owner, was)
    if result is not None or not changed:
        outside.taken(owner)
    return result


def _elements_of(owner: Any) -> list[int]:
    return [*map(id, owner.values() if isinstance(owner, dict) else owner)]


def _called(recorder: Any, function: Any, named: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call. ``recorder.called`` says what is called, for refusals."""
    before, recorder.called = recorder.called, named
    try:
        result = function(*args, **kwargs)
    finally:
        recorder.called = before
    if type(result) is np.ndarray:
        recorder.produced.setdefault(id(result), (result, (name_of(named), user_line()[0])))
    return result


def _all_handed(recorder: Any, args: tuple, kwargs: dict[str, Any],
                calls: bool = False) -> tuple[tuple, dict[str, Any]]:
    """Arguments for C code or a library.

    ``calls``: whether it may call an object that it is given.
    """
    named = {key: _handed(recorder, each, calls or key == "key") for key, each in kwargs.items()}
    return tuple(_handed(recorder, each, calls) for each in args), named


def _handed(recorder: Any, value: Any, calls: bool = False) -> Any:
    """Functions run rewritten, and containers hold traced arrays."""
    if is_users_def(value):
        return recorder.copy_of(value)
    method = type(value) is MethodType and is_users_def(value.__func__)
    if method or (calls and not isinstance(value, type) and special(value, "__call__") is not None):
        return functools.wraps(value, updated=())(functools.partial(call, value))
    value = list(value) if isinstance(value, VIEWS) else value  # type: ignore[call-overload]
    return with_traced(recorder.outside.taken(value))


# of loggers: what returns nothing
LOGS = set("debug info warning warn error exception critical log".split())


def _writes(function: Any) -> bool:
    """Whether a function writes for people: what a program prints, it prints once."""
    owner = function.__self__ if isinstance(function, BuiltinFunctionType | MethodType) else None
    streams = owner is not None and (owner is sys.stdout or owner is sys.stderr)
    logs = isinstance(function, FunctionType | MethodType) and function.__module__ == "logging" and function.__name__ in LOGS
    return streams or logs or function is print or function is warnings.warn


# ---------------------------------------------------------------- what a stand-in is
def _class_of(value: Any) -> type:
    return value.__class__ if type(value) in (Number, TracedArray) else current().outside.kind(value)


@protocol(type)
def _type(*args: Any, **named: Any) -> Any:
    return type(*args, **named) if args[1:] else _class_of(*args)


@protocol(isinstance)
def _isinstance(value: Any, kinds: Any, /) -> bool:
    kind = _class_of(value)
    return issubclass(kind, kinds) if type(value) in (Number, TracedArray) else isinstance(value, kinds)


@protocol(hasattr)
def _hasattr(value: Any, name: str, /) -> bool:
    if type(value) in (Number, TracedArray):
        return hasattr(_class_of(value), name)
    return attribute(value, name, ABSENT) is not ABSENT


@protocol(copy.deepcopy)
def _deepcopy(value: Any, memo: Any = None) -> Any:
    """A copy of an object from outside holds copies of traced arrays."""
    outside, memo = current().outside, {} if memo is None else memo
    for each in outside.inside(value):
        memo[id(each)] = np.copy(outside.seen(each))
    return copy.deepcopy(value, memo)


@protocol(id)
def _id(value: Any, /) -> int:
    current().identified = True
    return id(value)


@protocol(vars)
def _vars(*args: Any) -> Any:
    return attribute(args[0], "__dict__")
