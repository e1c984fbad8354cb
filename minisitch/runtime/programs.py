"""Keep the compiled programs that were used recently, and drop the others.

In:  compiled programs by the signature of their calls. Out: the same, while they are used.

Each function has two tables, of recent and of ``earlier`` programs. A call looks into the recent
table and records nothing, so it stays fast. If the program is among the earlier ones, it moves
back. When the recent programs of all functions exceed half of the limit, all earlier ones are
dropped, and recent ones become earlier. So a program stays if it was used since the last such turn.
A running call keeps its program until it ends.

Before:  recent {a: 40 MB, b: 20 MB}, earlier {c, d}; a call compiles e
After:   recent {e}, earlier {a, b}
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import MinisitchError
from .call import release_workspaces


class RunCall(Protocol):
    """A compiled program, from array leaves to the result. ``run`` trusts their shapes."""

    def __call__(self, leaves: Sequence[Any]) -> Any: ...

    def run(self, leaves: Sequence[Any]) -> Any: ...


LIMIT = 96 << 20  # bytes, unless MINISITCH_PROGRAMS is set
PROGRAM, OPERATION = 100_000, 8_000  # bytes of a program, and of each of its operations (measured)

_lock = threading.RLock()  # reentrant, because a finalizer may run during a turn
_tables: weakref.WeakSet[Programs] = weakref.WeakSet()
_lately = 0  # bytes of all recent programs


class Programs(dict[Any, RunCall]):
    """The recent programs of one function, by signature.

    ``earlier`` are dropped at the next turn. ``others`` are programs of a signature that were
    compiled for other values outside the function.
    """

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity, not by content

    def __init__(self) -> None:
        super().__init__()
        self.earlier: dict[Any, RunCall] = {}
        self.others: dict[Any, list[RunCall]] = {}
        with _lock:
            _tables.add(self)
        weakref.finalize(self, release_workspaces).atexit = False

    def __eq__(self, other: object) -> bool:
        return self is other

    def find(self, key: Any) -> RunCall | None:
        """The program of this signature, which becomes a recent one. None if there is none."""
        found = self.get(key)
        if found is None and (found := self.earlier.pop(key, None)) is not None:
            self[key] = found
        return found

    def __setitem__(self, key: Any, run: RunCall) -> None:
        global _lately
        nbytes = size(run)
        with _lock:
            if _lately + nbytes > limit() // 2:
                _turn()
            super().__setitem__(key, run)
            _lately += nbytes

    def drop(self, key: Any, run: RunCall) -> None:
        """Forget the program of a signature if it is ``run``."""
        for table in (self, self.earlier):
            if table.get(key) is run:
                table.pop(key, None)

    def clear(self) -> None:
        """Forget all programs, and free the workspaces."""
        self.earlier, self.others = {}, {}
        super().clear()
        release_workspaces()


def forget_programs() -> None:
    """Forget the programs of all functions."""
    for table in list(_tables):
        table.clear()


def size(run: RunCall) -> int:
    """Estimated bytes of a compiled program, without its workspace."""
    program = getattr(getattr(run, "stages", run), "program", None)
    return PROGRAM + OPERATION * len(program.graph) if program else 0


def _turn() -> None:
    """Drop earlier programs. The recent ones become earlier ones."""
    global _lately
    for table in list(_tables):
        table.earlier = dict(table)
        table.others = {key: runs for key, runs in table.others.items() if key in table}
        dict.clear(table)
    _lately = 0
    release_workspaces()  # the remaining programs may need less


@functools.cache
def limit() -> int:
    """Most bytes of programs. Raises MinisitchError if MINISITCH_PROGRAMS is not a number."""
    setting = os.environ.get("MINISITCH_PROGRAMS", str(LIMIT))
    if not setting.isdigit():
        raise MinisitchError(f"MINISITCH_PROGRAMS={setting!r} is not a number; set it to the bytes of programs to keep, or to 0")
    return int(setting)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
