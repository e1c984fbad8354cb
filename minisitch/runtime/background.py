"""Compiling behind a program that already runs (FusionStitching 2020, asynchronous mode; row 37 of docs/papers.md).

In:  the table in which calls find their program, and a function that plans and compiles. Out: the same table, in which
the unfused plan stands at once and the fused one as soon as it is ready.

    first call --trace--+--> unfused: NumPy, node by node ----------> serves these calls
                        +--> thread: fuse, stitch, emit, compile ---> takes its place, by one assignment

The unfused plan is the one whose kernels exist already, NumPy's own, as TensorFlow's did in the paper. Strategy
``none`` is no way to a quick first call: it has the most kernels to compile. Measured on two cores with nothing in
the cache, the demo's GPT block: first result after 0.07 s in this way, after 1.8 s where ``astitch`` is waited for
and 3.3 s where ``none`` is.

It is off unless asked for. A call that is timed or compared bit by bit should not change on its own between two
calls, the thread takes a core that kernels could use, and most programs compile in a second, once. It pays where planning takes
long: graphs of thousands of nodes under a strategy that searches.
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

_turn = threading.Lock()  # one program at a time: planning holds the interpreter's lock, and calls need it too
_under_way: set[Behind] = set()


class Behind:
    """One program that is compiled in a thread of its own while ``unfused`` serves its calls.

    ``finished`` holds the compiled program, which by then is in the table, or the error.
    """

    def __init__(self, name: str, table: dict[Any, RunCall], key: Any, unfused: RunCall, make: Callable[[], RunCall]) -> None:
        self.name, self.table, self.key, self.unfused, self.make = name, table, key, unfused, make
        self.finished: Future[RunCall] = Future()

    def start(self) -> None:
        """Let the unfused plan serve, and compile; here and now where the system starts no thread (at exit)."""
        _under_way.add(self)
        try:
            threading.Thread(target=self._work, name="minisitch background", daemon=True).start()
        except RuntimeError:
            self._work()
        self.table.setdefault(self.key, self.unfused)  # last: interrupted before, the next call starts anew

    @property
    def ready(self) -> bool:
        """Whether what was asked for serves."""
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
        """The unfused plan, which at its next call says once why it goes on serving."""
        def serve(leaves: Sequence[Any]) -> Any:
            self.table[self.key] = self.unfused
            warnings.warn(BackgroundWarning(
                f"{self.name}: no kernels, since compiling them in the background stopped with "
                f"{type(error).__name__}: {error}; calls go on unfused, by NumPy. wait() raises the error"), stacklevel=3)
            return self.unfused(leaves)
        return serve


def _after_fork() -> None:
    """The child has no such thread: it forgets what was under way, and the next call there starts it anew."""
    global _turn
    _turn = threading.Lock()
    for behind in _under_way:
        behind.table.pop(behind.key, None)
    _under_way.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
