"""A CPU's pipeline at run time: the program of a tile, once for each tile.

In:  a ``TileLoop`` and the executables of its plans. Out: a ``TileStep``, a step like a launch.

A core takes a tile through all stages, and its products are BLAS's for one thread: two threads that share a small product
wait for each other longer than they compute. A tile of an argument or a result is a part of its memory where the tiled
axis is the outermost, else it is copied: into a small array before, out of one after. Parts of folds are added up in the
order of the tiles.
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
from ..dataflow.loop import TileLoop
from ..dataflow.tiles import COMBINE
from ..graph import TensorType
from ..ops import OPS
from .call import Writer
from .memory import Slot

Array = np.ndarray


class Runnable(Protocol):
    """What is needed of an ``Executable``."""

    def run_on(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None: ...


@dataclass(frozen=True)
class Part:
    """Which part of a flat array each tile has: all of it (``axis`` < 0), or so many elements of an axis a unit."""

    type: TensorType
    axis: int
    units: int

    @property
    def in_place(self) -> bool:
        return self.axis < 0 or math.prod(self.type.shape[:self.axis]) == 1

    def of(self, flat: Array, first: int, last: int) -> Array:
        """The units from ``first`` up to ``last``: a view, flat where it is in place."""
        if self.axis < 0:
            return flat
        if self.in_place:
            a_unit = self.type.size // self.units
            return flat[first * a_unit:last * a_unit]
        each = self.type.shape[self.axis] // self.units
        return flat.reshape(self.type.shape)[(slice(None),) * self.axis + (slice(first * each, last * each),)]


@dataclass(frozen=True)
class TiledRun:
    """A pipeline's executables; called with the flat arrays of its inputs, then of its outputs."""

    loop: TileLoop
    tile: Runnable
    rest: Runnable | None
    after: Runnable | None
    work: int  # scalar operations of all tiles: whether other cores are worth waking

    def __call__(self, *buffers: Array) -> None:
        graph, count = self.loop.body.graph, len(self.loop.body.inputs)
        inputs, results = buffers[:count], dict(zip(graph.outputs, buffers[count:], strict=True))
        totals: dict[int, list[Array]] = {}
        with _one_blas_thread():
            workers.run(self._tiles, self.loop.pipeline.tiles, (inputs, results, totals), work=self.work)
        if self.after:
            folds = [functools.reduce(OPS[COMBINE[graph[f].op]].numpy, parts)
                     for f, parts in zip(self.folds, zip(*(totals[first] for first in sorted(totals)), strict=True), strict=True)]
            self.after.run_on([*inputs, *folds], [results[o] for o in graph.outputs if o not in self.tiled])

    def _tiles(self, first: int, last: int, inputs: Sequence[Array], results: dict[int, Array],
               totals: dict[int, list[Array]]) -> None:
        """The tiles from ``first`` up to ``last``, on one core."""
        graph, size, units = self.loop.body.graph, self.loop.pipeline.tile, self.loop.pipeline.units
        parts = [[np.empty(graph[f].type.size, graph[f].type.dtype) for f in self.folds] for _ in range(2)]
        with np.errstate(all="ignore"):
            for tile in range(first, last):
                total, part = parts
                self._tile(inputs, results, total if tile == first else part, tile * size, min((tile + 1) * size, units))
                if tile > first:
                    for fold, a, b in zip(self.folds, total, part, strict=True):
                        OPS[COMBINE[graph[fold].op]].numpy(a, b, out=a)
        totals[first] = parts[0]

    def _tile(self, inputs: Sequence[Array], results: dict[int, Array], added: Sequence[Array], first: int, last: int) -> None:
        """One tile: cut the inputs, run, put the outputs where they belong."""
        parts = self.parts
        given = [np.ascontiguousarray(parts[i].of(a, first, last)).reshape(-1)
                 for i, a in zip(self.loop.body.graph.inputs, inputs, strict=True)]
        seen = {o: parts[o].of(results[o], first, last) for o in self.tiled}
        made = [a if parts[o].in_place else np.empty(a.size, a.dtype) for o, a in seen.items()]
        program = self.tile if last - first == self.loop.pipeline.tile else self.rest
        assert program is not None, "a smaller last tile has a program of its own"
        program.run_on(given, [*made, *added])
        for (o, view), flat in zip(seen.items(), made, strict=True):
            if not parts[o].in_place:
                view[...] = flat.reshape(view.shape)

    @functools.cached_property
    def folds(self) -> tuple[int, ...]:
        return self.loop.cut.folded

    @functools.cached_property
    def tiled(self) -> tuple[int, ...]:
        """The outputs that come tile by tile."""
        return tuple(o for o in self.loop.body.graph.outputs if self.loop.cut.tiled(o))

    @functools.cached_property
    def parts(self) -> dict[int, Part]:
        found = self.loop.cut
        return {n: Part(found.graph[n].type, axis if (axis := found.axes[n]) is not None else -1, found.units)
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
