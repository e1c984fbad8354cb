"""Which compiled programs a function keeps, and which go first.

In:  compiled programs by the signature of their calls. Out: the same, until others have been used more lately.

Each function has two tables. A call looks into the one of programs used lately, and notes nothing on its way. What is not
there is looked for among the *earlier* ones, and moved. When the programs that all functions used lately take half of the
bytes that may be kept, the turn comes: earlier programs go, and those used lately become the earlier ones. So a program stays
that was used since the last turn. A call that runs a program which goes holds it until it ends.

Before:  lately {a: 40 MB, b: 20 MB}, earlier {c, d}; a call compiles e      After:  lately {e}, earlier {a, b}
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import Any

from ..errors import MinisitchError
from .background import RunCall
from .call import release_workspaces

LIMIT = 96 << 20  # bytes, unless MINISITCH_PROGRAMS says otherwise
PROGRAM, OPERATION = 100_000, 8_000  # bytes of a compiled program, and of each of its operations (measured)

_lock = threading.RLock()  # a finalizer may come while a table turns
_tables: weakref.WeakSet[Programs] = weakref.WeakSet()
_lately = 0  # bytes of the programs used lately


class Programs(dict[Any, RunCall]):
    """The programs of one function that were used lately, by signature; ``earlier`` holds those that go next, ``others`` what a
    signature ran while what is outside of the function was another."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # each is known by itself, not by what it holds

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
        """The program of that signature, from now on one that was used lately."""
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
        """Forget the program of a signature, if it is this one."""
        for table in (self, self.earlier):
            if table.get(key) is run:
                table.pop(key, None)

    def clear(self) -> None:
        """Forget all; the memory that nobody else has is free."""
        self.earlier, self.others = {}, {}
        super().clear()
        release_workspaces()


def size(run: RunCall) -> int:
    """About how many bytes a compiled program takes, without its workspace."""
    program = getattr(getattr(run, "stages", run), "program", None)
    return PROGRAM + OPERATION * len(program.graph) if program else 0


def _turn() -> None:
    """Earlier programs go, the others become earlier ones."""
    global _lately
    for table in list(_tables):
        table.earlier = dict(table)
        table.others = {key: runs for key, runs in table.others.items() if key in table}
        dict.clear(table)
    _lately = 0
    release_workspaces()  # they may be larger than what stays needs


@functools.cache
def limit() -> int:
    """How many bytes of compiled programs are kept at most."""
    setting = os.environ.get("MINISITCH_PROGRAMS", str(LIMIT))
    if not setting.isdigit():
        raise MinisitchError(f"MINISITCH_PROGRAMS={setting!r}: it is the number of bytes of compiled programs to keep, or 0")
    return int(setting)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
