"""A CPU's pipeline at run time: the program of a tile, once for each tile, round after round.

In:  a ``TileLoop`` and the executables of its plans. Out: a ``TileStep``, a step like a launch.

A core takes a tile through all stages, and its products are BLAS's for one thread: two threads that share a small product
wait for each other longer than they compute. A tile of an argument or a result is a part of its memory where the tiled
axis is the outermost, else it is copied: by the tile's program before, out of a small array after. Parts of folds are joined
in the order of the tiles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from .. import workers
from ..dataflow.loop import TileLoop, loop_operations
from ..dataflow.tiles import COMBINE, Round
from ..ops import OPS
from .call import Writer
from .memory import Slot

Array = np.ndarray


class Runnable(Protocol):
    """What is needed of an ``Executable``."""

    def write_to(self, outputs: Sequence[Array], leaves: Sequence[Array]) -> None: ...


@dataclass(frozen=True)
class Part:
    """Which part of an array each tile has: all of it (``axis`` < 0), or so many elements of an axis a unit."""

    shape: tuple[int, ...]
    axis: int
    units: int

    @property
    def in_place(self) -> bool:
        """Whether a part is contiguous."""
        return self.axis < 0 or math.prod(self.shape[:self.axis]) == 1

    def of(self, array: Array, first: int, last: int) -> Array:
        """The units from ``first`` up to ``last``, as a view."""
        if self.axis < 0:
            return array
        each = self.shape[self.axis] // self.units
        return array[(slice(None),) * self.axis + (slice(first * each, last * each),)]


@dataclass(frozen=True)
class TiledRun:
    """A pipeline's executables, three a round; called with the flat arrays of its inputs, then of its outputs."""

    loop: TileLoop
    programs: tuple[tuple[Runnable | None, ...], ...]

    def __call__(self, *buffers: Array) -> None:
        graph, loop = self.loop.body.graph, self.loop
        shaped = [b.reshape(graph[v].type.shape) for v, b in zip([*graph.inputs, *graph.outputs], buffers, strict=True)]
        values = dict(zip(graph.inputs, shaped, strict=False))
        results = dict(zip(graph.outputs, shaped[len(graph.inputs):], strict=True))
        for each, programs in zip(loop.rounds, self.programs, strict=True):
            this, after, totals = each.values, programs[2], dict[int, list[Array]]()
            values |= {n: results[n] if n in results else self._empty(n) for n in this.made if n not in this.folds}
            with _one_blas_thread():
                workers.run(self._tiles, loop.pipeline.tiles, (this, programs[:2], values, totals), work=loop_operations(loop))
            parts = zip(*(totals[first] for first in sorted(totals)), strict=True)
            values |= {f: functools.reduce(self.joins[f], part) for f, part in zip(this.folds, parts, strict=True)}
            if after:
                made = {n: results[n] if n in results else self._empty(n) for n in this.after_made}
                after.write_to([*made.values()], [values[n] for n in (*graph.inputs, *this.after_given)])
                values |= {n: array for n, array in made.items() if n not in this.folds}

    def _empty(self, node: int) -> Array:
        t = self.loop.body.graph[node].type
        return np.empty(t.shape, t.dtype)

    def _tiles(self, first: int, last: int, this: Round, programs: Sequence[Runnable | None], values: dict[int, Array],
               totals: dict[int, list[Array]]) -> None:
        """The tiles from ``first`` up to ``last``, on one core."""
        size, units = self.loop.pipeline.tile, self.loop.pipeline.units
        total, part = ([self._empty(f) for f in this.folds] for _ in range(2))
        for tile in range(first, last):
            self._tile(this, programs, values, total if tile == first else part, tile * size, min((tile + 1) * size, units))
            if tile > first:
                for f, a, b in zip(this.folds, total, part, strict=True):
                    self.joins[f](a, b, out=a)
        totals[first] = total

    def _tile(self, this: Round, programs: Sequence[Runnable | None], values: dict[int, Array], added: Sequence[Array],
              first: int, last: int) -> None:
        """One tile: cut what it reads, run, put what it makes where it belongs."""
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
    def joins(self) -> dict[int, Callable[..., Array]]:
        """What joins two parts of each fold."""
        graph = self.loop.body.graph
        return {f: OPS[COMBINE[graph[f].op]].numpy for f in self.loop.cut.folded}

    @functools.cached_property
    def parts(self) -> dict[int, Part]:
        found = self.loop.cut
        return {n.id: Part(n.type.shape, axis if axis is not None else -1, found.units)
                for n, axis in zip(found.graph.nodes, found.axes, strict=True)}


@functools.cache
def _blas() -> ThreadpoolController:
    """What sets BLAS's threads; looking for the libraries takes milliseconds, so once."""
    return ThreadpoolController().select(user_api="blas")


def _one_blas_thread() -> AbstractContextManager[Any]:
    return _blas().limit(limits=1)


@dataclass(frozen=True)
class TileStep:
    """A pipeline as one step of a call."""

    run: TiledRun
    slots: tuple[int, ...]
    name: str = "pipeline"
    warns: ClassVar[bool] = True

    def in_c_order(self, slots: Sequence[Slot]) -> Iterable[int]:
        return self.slots

    def write(self, w: Writer) -> None:
        w.line(f"{w.bind(self.name, self.run)}({', '.join(map(w.flat, self.slots))})")

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        return functools.partial(self.run, *(arrays[s] for s in self.slots))
