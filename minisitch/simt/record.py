"""What a launch did, as data: the film of a kernel.

In:  accesses and meetings of threads. Out: ``FilmEvent``s in the order in which they were stepped.
They hold plain numbers and text, so JSON can write them. A refused access is not in the film: the
``KernelBug`` has its line and thread.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .memory import Memory, Now, Unjudged
from .text import KernelProgram


class FilmEvent(NamedTuple):
    """One access of a cell, or one thread that meets others.

    ``barriers`` counts those of the block and of the grid before it. ``thread`` and ``block`` are
    numbers, also in launches of two dimensions: they count along x first.
    """

    block: int
    barriers: int
    thread: int
    line: int
    what: str  # "read", "write", "atomic", or the barrier or exchange, such as "syncthreads"
    array: str  # "" for a barrier or exchange
    space: str  # "global", "shared" or "local"
    cell: tuple[int, ...]
    value: int | float | None  # read, written, left by the atomic, or received in the exchange


def plain(value: Any) -> int | float:
    """A scalar of kernel text as a Python number."""
    return value.item() if isinstance(value, np.generic) else int(value) if isinstance(value, int) else float(value)


def _filmed(name: str, what: str) -> Callable[..., Any]:
    """A method of ``Memory`` that also writes what it did to the film."""
    def method(self: Memory, site: int, index: Any, *rest: Any, **turn: None) -> Any:
        result = getattr(Memory, name)(self, site, index, *rest, **turn)
        s, place, film = self.now.trace.stamp, self.program.sites[site], self.now.film
        first = self.cell(site, index)
        for cell in range(first, first + place.columns):
            at = tuple(map(int, np.unravel_index(cell, self.shape))) if self.shape else ()
            film.append(FilmEvent(s.block, s.block_epoch + s.grid_epoch, s.thread, place.line, what,  # type: ignore[union-attr]
                              self.name, self.space, at, plain(self.data[cell])))
        return result
    return method


ACCESSES = {"load": "read", "load_wide": "read", "store": "write", "store_wide": "write",
            "atomic": "atomic", "load_acquire": "atomic", "add_release": "atomic"}
# An array whose accesses are filmed.
Recorded = type("Recorded", (Memory,), {"__slots__": ()} | {name: _filmed(name, what) for name, what in ACCESSES.items()})


def kind_of_memory(now: Now, program: KernelProgram) -> Callable[..., Memory]:
    """The class of the arrays of a launch."""
    return Unjudged if program.stepwise else Memory if now.film is None else Recorded
