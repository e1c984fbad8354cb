"""Run a CPU's pipeline: the program of a tile, once for each tile, in rounds.

In:  a ``TileLoop`` and the executables of its plans. Out: a ``TileStep``, one step of a call.

One core takes a tile through all stages. BLAS gets one thread, since two threads that share a small
product wait longer than they compute. If the tiled axis is the outermost one, a tile is a part of
an argument's or a result's memory. Otherwise it is copied: by the tile's program on the way in, and
from a small array on the way out.

Folds are added up in fixed ranges of tiles, and the ranges in their order. So the result has the
same bits for every number of threads.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from threadpoolctl import LibController, ThreadpoolController

from ..ops import OPS
from ..reference import Array
from ..strategies.kitsune.loop import TileLoop, loop_operations
from ..strategies.kitsune.tiles import COMBINE, Round
from .call import CallWriter
from .cpu import workers
from .memory import Slot

Join = Callable[..., Array]  # combines two parts of a fold
RANGES = 32  # ranges of tiles; at most that many threads are busy in a round with folds


class Runnable(Protocol):
    """The part of an ``Executable`` that is used here."""

    def write_to(self, outputs: Sequence[Array], leaves: Sequence[Array]) -> None: ...


@dataclass(frozen=True)
class TilePart:
    """The part of an array that a tile has: all of it (``axis`` < 0), or some units of an axis."""

    shape: tuple[int, ...]
    axis: int
    units: int

    @property
    def in_place(self) -> bool:
        """Whether a part is contiguous in memory."""
        return self.axis < 0 or math.prod(self.shape[:self.axis]) == 1

    def of(self, array: Array, first: int, last: int) -> Array:
        """A view of the units from ``first`` up to ``last``."""
        if self.axis < 0:
            return array
        each = self.shape[self.axis] // self.units
        return array[(slice(None),) * self.axis + (slice(first * each, last * each),)]


@dataclass(frozen=True)
class TiledRun:
    """A pipeline's executables, three for each round. Called with flat inputs, then outputs."""

    loop: TileLoop
    programs: tuple[tuple[Runnable | None, ...], ...]

    def __call__(self, *buffers: Array) -> None:
        graph, loop = self.loop.body.graph, self.loop
        shaped = [b.reshape(graph[v].type.shape) for v, b in zip([*graph.inputs, *graph.outputs], buffers, strict=True)]
        values = dict(zip(graph.inputs, shaped, strict=False))
        results = dict(zip(graph.outputs, shaped[len(graph.inputs):], strict=True))
        for each, programs in zip(loop.rounds, self.programs, strict=True):
            this, after = each.values, programs[2]
            values |= {n: results[n] if n in results else self._empty(n) for n in this.made if n not in this.folds}
            folds = _Folds([self.joins[f] for f in this.folds], loop.pipeline.tiles)
            workers.run(self._ranges, folds.ranges, (this, programs[:2], values, folds), work=loop_operations(loop))
            values |= zip(this.folds, folds.total, strict=True)
            if after:
                made = {n: results[n] if n in results else self._empty(n) for n in this.after_made}
                after.write_to([*made.values()], [values[n] for n in (*graph.inputs, *this.after_given)])
                values |= {n: array for n, array in made.items() if n not in this.folds}

    def _empty(self, node: int) -> Array:
        t = self.loop.body.graph[node].type
        return np.empty(t.shape, t.dtype)

    def _ranges(self, first: int, last: int, this: Round, programs: Sequence[Runnable | None], values: dict[int, Array],
                folds: _Folds) -> None:
        """The ranges of tiles from ``first`` up to ``last``, on one core."""
        with _one_blas_thread:
            for number in range(first, last):
                folds.add(number, self._tiles(folds.tiles_of(number), this, programs, values, folds.joins))

    def _tiles(self, tiles: range, this: Round, programs: Sequence[Runnable | None], values: dict[int, Array],
               joins: Sequence[Join]) -> list[Array]:
        """Run tiles one after the other. Returns their part of each fold."""
        size, units = self.loop.pipeline.tile, self.loop.pipeline.units
        total, part = ([self._empty(f) for f in this.folds] for _ in range(2))
        for tile in tiles:
            self._tile(this, programs, values, total if tile == tiles[0] else part, tile * size, min((tile + 1) * size, units))
            if tile > tiles[0]:
                _join(joins, total, part)
        return total

    def _tile(self, this: Round, programs: Sequence[Runnable | None], values: dict[int, Array], added: Sequence[Array],
              first: int, last: int) -> None:
        """One tile: cut its inputs, run its program, and store its results."""
        parts, inputs = self.parts, (*self.loop.body.graph.inputs, *this.given)
        seen = [(parts[n], parts[n].of(values[n], first, last)) for n in this.made if n not in this.folds]
        made = [view if part.in_place else np.empty(view.shape, view.dtype) for part, view in seen]
        program = programs[last - first != self.loop.pipeline.tile]
        assert program is not None, "a smaller last tile has a program of its own"
        program.write_to([*made, *added], [parts[n].of(values[n], first, last) for n in inputs])
        for (part, view), array in zip(seen, made, strict=True):
            if not part.in_place:
                view[...] = array

    @functools.cached_property
    def joins(self) -> dict[int, Join]:
        """For each fold, the operation that combines two parts."""
        graph = self.loop.body.graph
        return {f: OPS[COMBINE[graph[f].op]].numpy for f in self.loop.cut.folded}

    @functools.cached_property
    def parts(self) -> dict[int, TilePart]:
        found = self.loop.cut
        return {n.id: TilePart(n.type.shape, axis if axis is not None else -1, found.units)
                for n, axis in zip(found.graph.nodes, found.axes, strict=True)}


class _Folds:
    """The folds of one round. Ranges of tiles are combined in their order, as they become ready.

    Sums are rounded, so the order must not depend on the number of threads or their speed.
    """

    def __init__(self, joins: Sequence[Join], tiles: int) -> None:
        self.joins, self.tiles, self.lock = joins, tiles, threading.Lock()
        self.ranges = min(tiles, RANGES) if joins else tiles
        self.waiting: dict[int, list[Array]] = {}
        self.total: list[Array] = []
        self.joined = 0  # number of ranges combined so far

    def tiles_of(self, number: int) -> range:
        """The tiles of one range."""
        return range(number * self.tiles // self.ranges, (number + 1) * self.tiles // self.ranges)

    def add(self, number: int, part: list[Array]) -> None:
        """Add the parts of one range. Ranges may arrive in any order."""
        with self.lock:
            self.waiting[number] = part
            while (following := self.waiting.pop(self.joined, None)) is not None:
                self.total = _join(self.joins, self.total, following) if self.joined else following
                self.joined += 1


def _join(joins: Sequence[Join], total: list[Array], part: list[Array]) -> list[Array]:
    for joins_two, a, b in zip(joins, total, part, strict=True):
        joins_two(a, b, out=a)
    return total


# ---------------------------------------------------------------- BLAS's threads
@functools.cache
def _blas() -> tuple[list[LibController], list[LibController]]:
    """The BLAS libraries whose number of threads is set for each calling thread, and the others.

    Finding them takes milliseconds, so it is done once.
    """
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [library for library in found if getattr(library, "threading_layer", "") == "openmp"]
    return own, [library for library in found if library not in own]


def _set(libraries: Sequence[LibController], threads: Iterable[int]) -> None:
    for library, number in zip(libraries, threads, strict=True):
        library.set_num_threads(number)
        # Without this, no other thread may set the number (threadpoolctl from 3.8 on).
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()


def _limit(libraries: Sequence[LibController]) -> list[int]:
    """Give the libraries one thread. Returns their numbers before."""
    had = [library.num_threads for library in libraries]
    _set(libraries, [1] * len(had))
    return had


class _OneBlasThread:
    """A context in which BLAS has one thread.

    Most libraries have one number of threads for the whole process. The first thread to enter saves
    it, and the last to leave restores it. If each thread did both, a later one would save the 1 of
    an earlier one, and restore it at the end.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.had = threading.Lock(), 0, list[int]()
        self.mine = threading.local()

    def __enter__(self) -> None:
        own, shared = _blas()
        self.mine.had = _limit(own)
        with self.lock:
            if not self.inside:
                self.had = _limit(shared)
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        own, shared = _blas()
        _set(own, self.mine.had)
        with self.lock:
            self.inside -= 1
            if not self.inside:
                _set(shared, self.had)

    def after_fork(self) -> None:
        """Reset in a child process. Its only thread was not inside."""
        if self.inside:
            _set(_blas()[1], self.had)
        self.lock, self.inside = threading.Lock(), 0


_one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_blas_thread.after_fork)


@dataclass(frozen=True)
class TileStep:
    """A pipeline as one step of a call."""

    run: TiledRun
    slots: tuple[int, ...]
    name: str = "pipeline"
    warns: ClassVar[bool] = True

    def in_c_order(self, slots: Sequence[Slot]) -> Iterable[int]:
        return self.slots

    def write(self, w: CallWriter) -> None:
        w.line(f"{w.bind(self.name, self.run)}({', '.join(map(w.flat, self.slots))})")

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        return functools.partial(self.run, *(arrays[s] for s in self.slots))
