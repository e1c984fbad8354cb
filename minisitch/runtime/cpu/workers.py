"""How many threads a kernel may use.

In:  MINISITCH_THREADS, or ``threads(n)`` around a block of code. Out: the number.
"""

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar

from ..this_machine import usable_cores

# Chunks a thread, so that a core disturbed by other programs does not hold up the rest.
CHUNKS_EACH = 4

_limit: ContextVar[int | None] = ContextVar("minisitch_threads", default=None)
_default_threads = functools.cache(usable_cores)


def thread_count() -> int:
    """How many threads a job may use, the caller's included.

    It is that of ``threads(n)`` in force here, else MINISITCH_THREADS, else one a core.
    """
    return _limit.get() or _default_threads()


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    """Let jobs started inside the block use at most ``n`` threads, the caller's included."""
    if n < 1:
        raise ValueError(f"threads({n}): the caller's thread always works; give at least one")
    token = _limit.set(n)
    try:
        yield
    finally:
        _limit.reset(token)
