"""What a program may return: arrays, and untraced values, in tuples, lists and dicts.

In:  the tree of a result and its traced arrays.
Out: nothing, or a TraceError at the program's first line.

An object that the program makes is made once, and callers may change it: it is refused.

Any other object may hold a stand-in that the caller would get: ``zip``, a generator, a set, a
dataclass, a function that uses ``x``. So each is searched for one.
"""

import gc
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    ModuleType,
    NoneType,
    NotImplementedType,
)
from typing import Any

import numpy as np

from .array import TracedArray
from .masked import Masked
from .numbers import Number
from .recorder import current, refuse
from .shim import OVERRIDES, StandIn
from .tree import Branch, Static, Tree, refuse_other_meanings

SEARCHED = 10_000  # objects, the nearest first
ENDS = (type, ModuleType, CodeType, BuiltinFunctionType, np.ndarray, np.generic, str, bytes, int, float)
SINGLE = (NoneType, EllipsisType, NotImplementedType, FunctionType, np.ufunc, slice)  # cannot change, too


def require_plain(tree: Tree, results: Sequence[TracedArray]) -> None:
    """Raise TraceError for a result that the caller could not use.

    It would be a stand-in, used up, or in the wrong byte order.
    """
    recorder = current()
    for array in results:
        if array._move is not None and ("mode", "flat") in array._move.attrs:
            raise refuse("the program returns x.flat", "it goes through an array's memory", "Return x.ravel()", recorder.begins)
        node = array.node
        while recorder[node].kind == "move" or recorder[node].op == "sort":
            node = recorder[node].args[0]
        if node in recorder.swapped or array._storage.swapped:
            raise refuse("the program returns elements of an argument whose bytes are not in this "
                         "machine's order", "NumPy gives them in that order, and results are in "
                         "the machine's", "Pass x.astype(x.dtype.newbyteorder('=')) instead of x",
                         recorder.begins)
    _require_plain(tree)


def _require_plain(tree: Tree) -> None:
    if isinstance(tree, Branch):
        for child in tree.children:
            _require_plain(child)
    if not isinstance(tree, Static):
        return
    value = tree.value
    refuse_other_meanings(value)
    remedy = "Return the arrays in a tuple, a list or a dict; make the object outside"
    if isinstance(value, Iterator | Awaitable | AsyncIterator):
        raise refuse(f"the program returns a {type(value).__name__}",
                     "it runs once, so a second call would find it used up", remedy,
                     current().begins)
    # a string may be the text of a stand-in
    if _holds_stand_in(value) or (isinstance(value, str) and re.search(r"Array\(\w+\[", value)):
        raise refuse(f"the program returns a {type(value).__name__} that holds a traced array or a "
                     "function that is traced",
                     "only what is in tuples, lists and dicts is computed", remedy, current().begins)
    by_identity = type(value).__hash__ in (None, object.__hash__)
    if by_identity and not isinstance(value, (*ENDS, *SINGLE)) and not current().outside.is_outside(value):
        raise refuse(f"the program returns a {type(value).__name__} that it has made",
                     "it runs once, so every call would return the same object", remedy, current().begins)


def _holds_stand_in(value: object) -> bool:
    """Whether a value leads to something that exists only during a trace."""
    copies = {id(seen) for seen in current().outside.rebinder.copies.values()}
    met: set[int] = set()
    pending: list[Any] = [value]
    for each in pending:
        if id(each) in met:
            continue
        met.add(id(each))
        if isinstance(each, TracedArray | Masked | StandIn) or type(each) is Number or each is TracedArray:
            return True
        if any(each is stand_in for stand_in in OVERRIDES.values()):
            return True
        if isinstance(each, FunctionType):
            if id(each.__globals__) in copies:
                return True
            pending += [each.__closure__, each.__defaults__, each.__kwdefaults__, vars(each)]
        elif not isinstance(each, ENDS) and len(pending) < SEARCHED:
            pending += gc.get_referents(each)
    return False
