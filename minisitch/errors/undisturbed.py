"""Work that Ctrl-C does not tear: it runs in a thread of its own, which no interrupt reaches, while the main thread waits.

In:  a function and its arguments. Out: its result, or its error.

Python raises KeyboardInterrupt in the main thread alone, between any two instructions. An import of Numba or a compilation that is
cut off leaves Numba half made, and the process can never compile again. Here the caller is interrupted at once; the work goes on
behind it, and the next caller finds it done.
"""

from __future__ import annotations

import contextvars
import threading
from _thread import allocate_lock, start_new_thread  # Thread.start waits in Python code: torn, too
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


def undisturbed(work: Callable[..., Result], *args: Any) -> Result:
    """``work(*args)``; in a thread of its own where the main thread asks."""
    if threading.get_ident() != threading.main_thread().ident:
        return work(*args)
    done, context = allocate_lock(), contextvars.copy_context()
    found: list[tuple[Any, BaseException | None]] = []
    done.acquire()

    def run() -> None:
        try:
            found.append((context.run(work, *args), None))
        except BaseException as error:
            found.append((None, error))
        done.release()

    try:
        start_new_thread(run, ())
    except RuntimeError:  # the system starts no thread, as at the interpreter's end
        return work(*args)
    done.acquire()
    result, error = found.pop()
    if error is not None:
        raise error
    return result
