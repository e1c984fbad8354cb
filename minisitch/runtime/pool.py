"""Reuse the memory of large results after their last reference is gone.

In:  a shape and a dtype. Out: an array whose memory no other array uses.

The system clears new memory page by page when it is first touched. For a result of 33 MB this takes
as long as the kernel, or longer. So large memory is kept and reused. NumPy's views refer to the
memory through ``base``, so its reference count tells whether it is free. A loop whose new result
replaces the old one needs two such memories.

At most MINISITCH_POOL bytes are kept, used or not (1 GiB unless set; 0 keeps none), and no memory
above half of that. Sizes that were not requested lately are dropped first, then the oldest sizes.
Memory in use is only forgotten here; its user still has it. Python without its global lock cannot
count references of other threads, so nothing is kept there.
"""

import contextlib
import functools
import itertools
import os
import sys
from collections import deque

import numpy as np

from ..errors import MinisitchError
from .memory import ALIGNMENT, line_start

SMALLEST = 1 << 16  # bytes; the allocator itself reuses smaller memory
LIMIT = 1 << 30  # bytes, unless MINISITCH_POOL is set
EACH = 16  # new memories between two searches for sizes without a request
LOOKS = 8  # kept memories that one call examines; the next call examines others

Kept = tuple[np.ndarray, int]  # bytes, and the offset at which the array starts

_kept: dict[int, deque[Kept]] = {}  # size -> memories
_asked: set[int] = set()  # sizes that were requested since the last search
_made = itertools.count(1)


def is_pooled(nbytes: int) -> bool:
    """Whether memory of this size is kept."""
    return SMALLEST <= nbytes <= limit() // 2


def fresh(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for a result, aligned to a cache line, with arbitrary content.

    There is no lock. A thread takes a memory out of the queue before it examines it, and puts it
    back after the new array refers to it.
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
        except IndexError:  # other threads hold the rest
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
    """Drop sizes that were not requested lately, then the oldest, until ``nbytes`` more fit."""
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
    """Most bytes to keep. Raises MinisitchError if MINISITCH_POOL is not a number."""
    setting = os.environ.get("MINISITCH_POOL", str(LIMIT))
    if not setting.isdigit():
        raise MinisitchError(f"MINISITCH_POOL={setting!r} is not a number; set it to the bytes of results to keep, or to 0")
    return int(setting) if getattr(sys, "_is_gil_enabled", lambda: True)() else 0


def _unused() -> int:
    """The reference count of free memory. It depends on the version of Python."""
    queue: deque[Kept] = deque([(np.empty(1, np.uint8), 0)])
    one = queue.popleft()
    return _references(one)


UNUSED = _unused()
