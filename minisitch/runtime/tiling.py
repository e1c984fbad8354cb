"""A CPU's pipeline at run time: the program of a tile, once for each tile.

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
from ..dataflow.tiles import COMBINE
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
    """A pipeline's executables; called with the flat arrays of its inputs, then of its outputs."""

    loop: TileLoop
    tile: Runnable
    rest: Runnable | None
    after: Runnable | None

    def __call__(self, *buffers: Array) -> None:
        graph, loop = self.loop.body.graph, self.loop
        shaped = [b.reshape(graph[v].type.shape) for v, b in zip([*graph.inputs, *graph.outputs], buffers, strict=True)]
        inputs, results = shaped[:len(graph.inputs)], dict(zip(graph.outputs, shaped[len(graph.inputs):], strict=True))
        totals: dict[int, list[Array]] = {}
        with _one_blas_thread():
            workers.run(self._tiles, loop.pipeline.tiles, (inputs, results, totals), work=loop_operations(loop))
        if self.after:
            parts = zip(*(totals[first] for first in sorted(totals)), strict=True)
            folds = [functools.reduce(joins, each) for joins, each in zip(self.joins, parts, strict=True)]
            self.after.write_to([results[o] for o in graph.outputs if o not in self.tiled], [*inputs, *folds])

    def _tiles(self, first: int, last: int, inputs: Sequence[Array], results: dict[int, Array],
               totals: dict[int, list[Array]]) -> None:
        """The tiles from ``first`` up to ``last``, on one core."""
        graph, size, units = self.loop.body.graph, self.loop.pipeline.tile, self.loop.pipeline.units
        total, part = ([np.empty(graph[f].type.shape, graph[f].type.dtype) for f in self.folds] for _ in range(2))
        for tile in range(first, last):
            self._tile(inputs, results, total if tile == first else part, tile * size, min((tile + 1) * size, units))
            if tile > first:
                for joins, a, b in zip(self.joins, total, part, strict=True):
                    joins(a, b, out=a)
        totals[first] = total

    def _tile(self, inputs: Sequence[Array], results: dict[int, Array], added: Sequence[Array], first: int, last: int) -> None:
        """One tile: cut the inputs, run, put the outputs where they belong."""
        parts = self.parts
        seen = [(parts[o], parts[o].of(results[o], first, last)) for o in self.tiled]
        made = [view if part.in_place else np.empty(view.shape, view.dtype) for part, view in seen]
        program = self.tile if last - first == self.loop.pipeline.tile else self.rest
        assert program is not None, "a smaller last tile has a program of its own"
        program.write_to([*made, *added],
                         [parts[i].of(a, first, last) for i, a in zip(self.loop.body.graph.inputs, inputs, strict=True)])
        for (part, view), array in zip(seen, made, strict=True):
            if not part.in_place:
                view[...] = array

    @functools.cached_property
    def folds(self) -> tuple[int, ...]:
        return self.loop.cut.folded

    @functools.cached_property
    def joins(self) -> tuple[Callable[..., Array], ...]:
        """What joins two parts of each fold."""
        return tuple(OPS[COMBINE[self.loop.body.graph[f].op]].numpy for f in self.folds)

    @functools.cached_property
    def tiled(self) -> tuple[int, ...]:
        """The outputs that come tile by tile."""
        return tuple(o for o in self.loop.body.graph.outputs if self.loop.cut.tiled(o))

    @functools.cached_property
    def parts(self) -> dict[int, Part]:
        found = self.loop.cut
        return {n: Part(found.graph[n].type.shape, axis if (axis := found.axes[n]) is not None else -1, found.units)
                for n in {*found.graph.inputs, *found.graph.outputs}}


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
