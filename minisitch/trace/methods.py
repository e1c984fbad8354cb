"""Methods of the user's classes see stand-ins while a program is traced, as its functions do.

In:  classes of the user. Out: the same classes, whose functions run the program's copies of them.

A class cannot be copied: its objects, ``super()`` and ``except`` clauses know it by its identity.
So its functions are replaced for as long as a trace takes. A call from anywhere else runs the
original function. Traces in other threads may need the same class, so each replacement is counted.
"""

import functools
import threading
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from .recorder import ACTIVE

CACHE = type(functools.cache(len))
# the member, its replacement, who needs it
_lent: dict[tuple[type, str], tuple[Any, Any, list[object]]] = {}
_lock = threading.RLock()  # a finalizer may trace, too


def _traced(fn: Any, kinds: tuple[type, ...] = (FunctionType,)) -> Any:
    """A function that runs what a trace sees of ``fn``, and ``fn`` elsewhere."""
    if type(fn) not in kinds:
        return fn

    @functools.wraps(fn)
    def method(*args: Any, **kwargs: Any) -> Any:
        recorder = ACTIVE.get()
        return (fn if recorder is None else recorder.outside.seen(fn))(*args, **kwargs)
    return method


def _replacement(member: Any) -> Any:
    if type(member) in (staticmethod, classmethod):
        return type(member)(_traced(member.__func__, (FunctionType, CACHE)))
    if type(member) is property:
        get, put, delete = (_traced(each) for each in (member.fget, member.fset, member.fdel))
        return property(get, put, delete, member.__doc__)
    if type(member) is functools.cached_property:
        made = functools.cached_property(_traced(member.func))
        made.attrname = member.attrname
        return made
    return _traced(member)


def lend(kinds: Iterable[type], borrower: object) -> None:
    """Replace the functions of these classes until ``give_back``."""
    with _lock:
        for kind in kinds:
            for name, member in members(kind).items():
                known = _lent.get((kind, name))
                if known is None and (made := _replacement(member)) is not member:
                    known = _lent[kind, name] = member, made, []
                    type.__setattr__(kind, name, made)
                if known is not None:
                    known[2].append(borrower)


def give_back(borrower: object) -> None:
    """Undo ``lend``, unless another trace needs a class, or its function was replaced meanwhile."""
    with _lock:
        for (kind, name), (member, made, needed) in [*_lent.items()]:
            needed[:] = [each for each in needed if each is not borrower]
            if not needed:
                del _lent[kind, name]
                if vars(kind).get(name) is made:
                    type.__setattr__(kind, name, member)


def members(kind: Any) -> dict[str, Any]:
    """The attributes of a class itself, or of a module, as the user has written them."""
    found = dict(vars(kind))
    for name in found if _lent and isinstance(kind, type) else ():
        member, made, _ = _lent.get((kind, name), (None, None, []))
        if made is not None and found[name] is made:
            found[name] = member
    return found
