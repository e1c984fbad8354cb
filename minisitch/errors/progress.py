"""The progress line: what a slow first call is doing, on stderr.

    with working("softmax"):                  # a second thread watches the clock
        now("planning")                       # minisitch: softmax: planning, 3 s
        now("compiling kernel 12 of 40")      # minisitch: softmax: compiling kernel 12 of 40, 14 s

It appears after ``MINISITCH_PROGRESS`` seconds (3 by default), so a fast call writes nothing. On a
terminal it is rewritten each second and erased at the end. Elsewhere there is a line after 3 s, 10
s, 30 s and then each 30 s, and one at the end. Of calls in several threads one is shown.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from . import MinisitchError

_line: ContextVar[Line | None] = ContextVar("progress", default=None)
_shown: list[Line] = []  # the one call that is shown


@contextlib.contextmanager
def working(name: str) -> Iterator[None]:
    """Show what ``now`` says inside the block, under this name.

    A block inside another one shows nothing of its own. Raises MinisitchError if MINISITCH_PROGRESS
    is not a number.
    """
    after = seconds()
    if not after or _line.get() is not None:
        yield
        return
    line = Line(name, after)
    token = _line.set(line)
    try:
        with contextlib.suppress(RuntimeError):  # the system starts no thread at exit
            threading.Thread(target=line.watch, name="minisitch progress", daemon=True).start()
        yield
    finally:
        _line.reset(token)
        line.finish()


def shown(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, shown under its own name while it runs."""
    @functools.wraps(function)
    def entered(*args: Any, **kwargs: Any) -> Any:
        with working(function.__name__):
            return function(*args, **kwargs)
    return entered


def now(doing: str | Callable[[], str]) -> None:
    """Set what this thread is doing. A function is called when the line is written."""
    line = _line.get()
    if line is not None:
        line.doing = doing


def seconds() -> float:
    """Seconds before a call is shown; 0 for never.

    Raises MinisitchError if MINISITCH_PROGRESS is not a number.
    """
    setting = os.environ.get("MINISITCH_PROGRESS") or "3"
    try:
        return 0.0 if setting == "off" else max(0.0, float(setting))  # nan is 0, too
    except ValueError:
        raise MinisitchError(f"MINISITCH_PROGRESS={setting!r} is not a number; set it to the "
                             "seconds after which a first call shows its progress on stderr, or to "
                             "0 or off for never") from None


class Line:
    """The line of one call."""

    def __init__(self, name: str, after: float) -> None:
        self.name, self.after = name, after
        self.doing: str | Callable[[], str] = "starting"
        self.began = time.perf_counter()
        self.finished = threading.Event()
        self.writing = threading.Lock()  # erasing comes after the last write

    def watch(self) -> None:
        """Write the line when it is due, until the call is finished."""
        factors = itertools.chain((1, 10 / 3), itertools.count(10, 10))
        for due in itertools.count(self.after, min(1, self.after)) if _terminal() else (self.after * factor for factor in factors):
            if self.finished.wait(due - (time.perf_counter() - self.began)):
                return
            with self.writing:
                if not self.finished.is_set() and (_shown or [self])[0] is self:
                    _shown[:] = [self]
                    self.write(self.doing if isinstance(self.doing, str) else self.doing())

    def finish(self) -> None:
        """Erase the line. On a stream that cannot erase, say that the call is done."""
        self.finished.set()
        with self.writing:
            if _shown and _shown[0] is self:
                _shown.clear()
                self.write("" if _terminal() else "finished")

    def write(self, doing: str) -> None:
        """Write over the line on a terminal, else write a new one. A closed stream gets nothing."""
        text = f"minisitch: {self.name}: {doing}, {time.perf_counter() - self.began:.0f} s" if doing else ""
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(f"\r\x1b[K{text}" if _terminal() else f"{text}\n")
            sys.stderr.flush()


def _terminal() -> bool:
    with contextlib.suppress(AttributeError, ValueError):
        return sys.stderr.isatty()
    return False


def _after_fork() -> None:
    """The child has no thread that writes or erases the line."""
    _shown.clear()
    if line := _line.get():  # the child goes on with this call
        line.finished, line.writing = threading.Event(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
