"""Work that Ctrl-C does not interrupt: it runs in a second thread while the main thread waits.

In:  a function and its arguments. Out: its result, or its error.

Python raises KeyboardInterrupt only in the main thread, between any two instructions. An import of
Numba or a compilation that is cut off leaves Numba half initialised, and the process can never
compile again. Here the caller is interrupted at once. The work goes on in its thread, and the next
caller finds it done.
"""

import contextvars
import threading
from _thread import allocate_lock, start_new_thread  # Thread.start waits in Python code
from collections.abc import Callable
from typing import Any, TypeVar

from .forks import forks_wait

Result = TypeVar("Result")


def undisturbed(work: Callable[..., Result], *args: Any) -> Result:
    """``work(*args)``, in a second thread if called from the main thread.

    A second thread would wait for what the main thread holds, as it does during a fork.
    """
    thread = threading.get_ident()
    if thread != threading.main_thread().ident or thread in forks_wait.holders:
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
    except RuntimeError:  # the system starts no thread at the interpreter's end
        return work(*args)
    done.acquire()
    result, error = found.pop()
    if error is not None:
        raise error
    return result
