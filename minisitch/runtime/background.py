"""Compile in a thread while calls already run (FusionStitching 2020, asynchronous mode).

In:  the table of a function's programs, and a function that plans and compiles. Out: the same
table, with the unfused program at once, and with the fused one when it is ready.

    first call --trace--+--> unfused: NumPy, node by node ----------> serves calls until then
                        +--> thread: fuse, stitch, emit, compile ---> replaces it in the table

The unfused program calls NumPy's functions, which need no compilation. In the paper it calls
TensorFlow's. Strategy ``none`` would not do, because it has the most kernels to compile. Measured
on two cores with an empty cache, the demo's GPT block gives its first result after 0.07 s this way,
after 1.8 s with ``astitch``, and after 3.3 s with ``none``.

It is off by default for three reasons. A function should not change on its own between two calls
that are timed or compared. The thread takes a core from the kernels. And most programs compile in a
second, once. It pays for graphs of thousands of nodes under a strategy that searches.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ..errors import BackgroundWarning

RunCall = Callable[[Sequence[Any]], Any]

_turn = threading.Lock()  # one at a time, because planning holds the interpreter's lock
_under_way: set[Behind] = set()


class Behind:
    """One program that a thread compiles, while ``unfused`` serves its calls.

    ``finished`` then holds the compiled program, which is in the table, or the error.
    """

    def __init__(self, name: str, table: dict[Any, RunCall], key: Any, unfused: RunCall, make: Callable[[], RunCall]) -> None:
        self.name, self.table, self.key, self.unfused, self.make = name, table, key, unfused, make
        self.finished: Future[RunCall] = Future()

    def start(self) -> None:
        """Start the thread and use the unfused program. At exit, when no thread starts, compile."""
        _under_way.add(self)
        try:
            threading.Thread(target=self._work, name="minisitch background", daemon=True).start()
        except RuntimeError:
            self._work()
        self.table.setdefault(self.key, self.unfused)  # last, so that an interrupt leaves no entry

    @property
    def ready(self) -> bool:
        """Whether the compiled program is in use."""
        return self.finished.done() and self.finished.exception() is None

    def _work(self) -> None:
        with _turn:
            try:
                made = self.make()
            except Exception as error:
                self.table[self.key] = self._complaining(error)
                self.finished.set_exception(error)
            else:
                self.table[self.key] = made
                self.finished.set_result(made)
            _under_way.discard(self)

    def _complaining(self, error: Exception) -> RunCall:
        """The unfused program, which at its next call warns once why it stays."""
        def serve(leaves: Sequence[Any]) -> Any:
            self.table[self.key] = self.unfused
            warnings.warn(BackgroundWarning(
                f"{self.name}: no kernels, since compiling them in the background stopped with "
                f"{type(error).__name__}: {error}; calls go on unfused, by NumPy. wait() raises the error"), stacklevel=3)
            return self.unfused(leaves)
        return serve


def wait_for_all() -> None:
    """Wait until no program is being compiled in the background."""
    for behind in list(_under_way):
        behind.finished.exception()


def _after_fork() -> None:
    """Forget unfinished programs: the child has no such thread. Its next call starts again."""
    global _turn
    _turn = threading.Lock()
    for behind in _under_way:
        behind.table.pop(behind.key, None)
    _under_way.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
