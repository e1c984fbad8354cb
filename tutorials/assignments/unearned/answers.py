"""Answers that nobody had to work for. Every assignment must give them no points: ``verify`` tries them.

In:  the type that a function returns, and what it is given. Out: a value of that type.

Some are trivial: nothing, zeros, what was given, everything, anything. Others are *taken*: a function
or a method of the files that students have is called, and its result made to fit. This file is plain
Python and imports nothing of minisitch, because its text is a part of the submissions that are tried.
"""

import dataclasses
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args, get_origin

GENERATOR = random.Random(7)
VARIANT = ""  # of the term; a submission that takes functions sets it
MOST_TRIED = 200  # ways to call a taken function


def trivial(way: str, kind: Any, arguments: list[Any]) -> Any:
    """A trivial answer to a question."""
    first = arguments[0]
    if way in ("first argument", "last argument"):
        return fitted(kind, arguments[0 if way == "first argument" else -1])
    if way == "first element":
        return fitted(kind, next(iter(first)) if first and not isinstance(first, int | float) else first)
    known = [first] if isinstance(first, int | float | str) else list(range(len(first)) if isinstance(first, list) else first)
    if isinstance(first, dict):  # what is no input
        known = [each for each in first if not (isinstance(first[each], tuple) and first[each][0] == "input")]
    return made(way, kind, known)


def made(way: str, kind: Any, known: list[Any], outermost: bool = True) -> Any:
    """A value of a type, filled with what is ``known``: a list has an element for each, or one for all."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is None:
        value = {"nothing": 0, "zeros": 0, "ones": 1}.get(way, known[0] if known else 0)
        if way == "at random":
            value = GENERATOR.choice([*known, 0, 1, -1, GENERATOR.uniform(-9, 9)])
        return kind(value) if isinstance(value, int | float) or kind is str else kind()
    if origin is tuple and inner[-1] is not ...:
        return tuple(made(way, each, known, outermost) for each in inner)
    if way == "at random":
        known = GENERATOR.sample(known, GENERATOR.randint(0, len(known)))
    if way == "nothing":
        known = []
    if origin is dict:
        return {key: made(way, inner[1], [key], False) for key in known if isinstance(key, inner[0])}
    parts = [known] if way == "everything" and outermost else [[each] for each in known]
    return origin(made(way, inner[0], part, False) for part in parts)


def fitted(kind: Any, value: Any) -> Any:
    """A value in the containers that a type asks for. Raises TypeError where it cannot be."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is None:
        return kind(value)
    if origin is dict:
        return {fitted(inner[0], key): fitted(inner[1], each) for key, each in dict(value).items()}
    if origin is tuple and inner[-1] is not ...:
        return tuple(fitted(each, one) for each, one in zip(inner, value, strict=True))
    return origin(fitted(inner[0], each) for each in value)


def taken(owner: Any, candidate: Callable[..., Any] | str, kind: Any, names: list[str], arguments: list[Any]) -> Any:
    """What a function returns, or a method of the class ``owner``, however it can be called with the arguments.

    Raises TypeError if no way gives a value that fits.
    """
    given = dict(zip(names, arguments, strict=False))
    more = [*arguments, VARIANT]
    for function in [candidate] if callable(candidate) else _methods(owner, str(candidate), given, more):
        count = len([each for each in inspect.signature(function).parameters.values() if each.default is each.empty])
        for chosen in itertools.islice(_choices(function, given, more, count), MOST_TRIED):
            try:
                value = function(*chosen)
                return fitted(kind, list(value) if hasattr(value, "__next__") else value)
            except Exception:
                continue
    raise TypeError("nothing fits")


def _methods(owner: Any, name: str, given: dict[str, Any], more: list[Any]) -> Iterator[Callable[..., Any]]:
    """A method of objects that are made of the arguments."""
    fields = [each for each in dataclasses.fields(owner) if each.default is each.default_factory is dataclasses.MISSING]
    for chosen in itertools.islice(_choices(owner, given, more, len(fields)), MOST_TRIED):
        value = getattr(owner(*chosen), name)
        yield value if callable(value) else lambda value=value: value


def _choices(function: Any, given: dict[str, Any], more: list[Any], count: int) -> Iterable[tuple[Any, ...]]:
    """Arguments for a function: those of the same names, else in order, else in any order."""
    names = list(inspect.signature(function).parameters)[:count]
    left = [each for name, each in given.items() if name not in names]
    yield tuple(given[name] if name in given else left.pop(0) if left else VARIANT for name in names)
    yield from itertools.permutations(more, count)
