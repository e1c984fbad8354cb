"""Work that a fork waits for: imports of large packages, and compilations.

    scipy = imported("scipy.special")
    with forks_wait:
        import numba

A forked child has only the thread that forked. If another thread was importing a module, or was in
LLVM, the child would wait forever for that thread's lock. So this work holds a lock, and a fork
comes when the lock is free, as in the standard library's ``logging``. A fork also waits for Numba's
own lock: a user's thread may compile with Numba.
"""

import contextlib
import importlib
import logging  # noqa: F401  below
import os
import sys
import threading
from types import ModuleType


class _ForksWait:
    """A reentrant lock that knows its holder. A fork gets it before threads that come later.

    ``holders`` has the thread that holds it, once for each time that it has entered.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.turn = threading.RLock()  # held by a fork that waits
        self.holders: list[int] = []

    def __enter__(self) -> None:
        self.enter()

    def enter(self, wait: bool = True) -> bool:
        """Take the lock. Without ``wait``, take it only if no other thread has it."""
        if wait and threading.get_ident() not in self.holders:
            with self.turn:
                pass
        taken = self.lock.acquire(wait)
        if taken:
            self.holders.append(threading.get_ident())
        return taken

    def __exit__(self, *_: object) -> None:
        self.holders.pop()
        self.lock.release()


forks_wait = _ForksWait()


def imported(name: str) -> ModuleType:
    """A module that only some programs need."""
    with forks_wait:
        return importlib.import_module(name)


_held = contextlib.ExitStack()  # what a fork holds


def _before_fork() -> None:
    _held.enter_context(forks_wait.turn)
    _held.enter_context(forks_wait)
    if numbas := getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None):
        _held.enter_context(numbas)


# Python calls first what was registered last. So ``logging`` has registered its lock already: its
# turn comes after ours, because Numba takes it while ours is held.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_held.close,
                        after_in_child=_held.close)
