"""Memory for large results, taken again once nobody refers to them.

In:  a shape and a dtype. Out: an array that shares memory with nothing anybody can see.

The system clears new memory page by page at its first touch, which for a result of 33 MB takes as long as the kernel
that fills it, or longer. So the memory of large results is kept, and taken again when the last array over it is gone:
NumPy points the ``base`` of every view at the owner, whose count of references so tells. A program whose result
replaces the last one in a loop needs two such memories.

What is kept, used or unused, is at most MINISITCH_POOL bytes in all (1 GiB unless set; 0 keeps none), and no single one
above half of that. Sizes that nobody asks for any more go first, then, beyond the limit, the size that came first; memory in
use is only forgotten, its user keeps it.
A count of references says nothing about other threads where Python runs without its global lock: nothing is kept there.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections import deque

import numpy as np

from ..errors import MinisitchError
from .memory import ALIGNMENT, line_start

SMALLEST = 1 << 16  # bytes; below, the allocator itself takes memory again
LIMIT = 1 << 30  # bytes, unless MINISITCH_POOL says otherwise
EACH = 16  # new memories, after which a size that was not asked for since the last time goes
LOOKS = 8  # memories of the right size that are looked at before a new one is made; the next call looks at others

Kept = tuple[np.ndarray, int]  # bytes, and where in them the array starts

_kept: dict[int, deque[Kept]] = {}  # by size
_asked: set[int] = set()  # sizes, since a memory was last forgotten for want of use
_made = itertools.count(1)


def is_pooled(nbytes: int) -> bool:
    """Whether the memory of such a result is kept."""
    return SMALLEST <= nbytes <= limit() // 2


def fresh(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for a result, at the start of a cache line; nobody else sees its memory, and its content is anything.

    No lock: who looks at a memory has taken it out of the queue, and puts it back when the new array refers to it.
    """
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    _asked.add(nbytes)
    queue = _kept.get(nbytes)
    if queue is None:
        queue = _kept.setdefault(nbytes, deque())
    for _ in range(min(len(queue), LOOKS)):
        try:
            one = queue.popleft()
        except IndexError:  # other threads look at the rest
            break
        made = np.ndarray(shape, dtype, *one) if _references(one) == UNUSED else None
        queue.append(one)
        if made is not None:
            return made
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    one = raw, line_start(raw)
    _make_room(nbytes)
    _kept.setdefault(nbytes, queue).append(one)
    return np.ndarray(shape, dtype, *one)


def _references(one: Kept) -> int:
    return sys.getrefcount(one[0])


def _make_room(nbytes: int) -> None:
    """Forget sizes that nobody has asked for lately, then those that came first until what is kept and ``nbytes`` stay within the
    limit."""
    if next(_made) % EACH == 0:
        asked = {*_asked}
        _asked.clear()
        for size in {*_kept} - asked:
            _kept.pop(size, None)
    over = nbytes + sum(size * len(queue) for size, queue in list(_kept.items())) - limit()
    for size, queue in list(_kept.items()):
        with contextlib.suppress(IndexError):  # empty
            while over > 0:
                queue.popleft()
                over -= size


@functools.cache
def limit() -> int:
    """How many bytes are kept at most."""
    setting = os.environ.get("MINISITCH_POOL", str(LIMIT))
    if not setting.isdigit():
        raise MinisitchError(f"MINISITCH_POOL={setting!r}: it is the number of bytes of results to keep, or 0")
    return int(setting) if getattr(sys, "_is_gil_enabled", lambda: True)() else 0


def _unused() -> int:
    """What ``_references`` says of memory that only the queue refers to: Pythons differ in what a call itself adds."""
    queue: deque[Kept] = deque([(np.empty(1, np.uint8), 0)])
    one = queue.popleft()
    return _references(one)


UNUSED = _unused()
