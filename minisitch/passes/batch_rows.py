"""Short rows together: a core takes some rows through each loop before the next loop.

In:  a kernel for a CPU. Out: the same kernel, short rows a few at a time, and the rows of memory that they then need.

Max, exponential, sum and quotient of one row wait for each other. In a long row the loops hide this. Loops of 32 columns end
before the first result is there, and the core waits. Loops of different rows do not wait for each other:

Before:  row: max -> r1; exp, sum -> r5; divide
After:   8 rows: max -> r1, kept in b1[lane_row]; 8 rows: r1 = b1[lane_row], exp, sum -> r5, kept in b5[lane_row]; ...

A scratch row that keeps a whole row of values becomes one for each of the rows. Not for split rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

from ..kernel.ir import Buffer, Clamp, Kernel, Load, Phase, Segment, Stmt, Store, operands, statements
from ..ops import compute_dtype
from ..stitch.index import Index, variable
from .axes import free_slot
from .registry import kernel_pass

SHORT_ROW = 256  # columns; from there on a row's own loops hide what waits
ELEMENTS = 1024  # of a block of rows: 4 kB of float32 each of what they read and write, in the nearest cache throughout
MOST_ROWS, FEWEST_ROWS = 32, 4


@kernel_pass("batch_rows", "cpu")
def batch_rows(kernel: Kernel) -> Kernel:
    """Take the short rows of each segment together."""
    segments, buffers = [], dict(kernel.by_name)
    for segment in kernel.segments:
        made, rows = (segment, ()) if segment.tile or segment.together > 1 else take_together(segment, buffers)
        segments.append(made)
        buffers |= {b.name: b for b in rows}
    if len(buffers) == len(kernel.buffers):
        return kernel
    return replace(kernel, segments=tuple(segments), buffers=tuple(buffers.values()))


def take_together(segment: Segment, buffers: Mapping[str, Buffer]) -> tuple[Segment, tuple[Buffer, ...]]:
    """The segment with short rows taken together, and buffers for what crosses its loops; unchanged if that is nothing."""
    cols = max((p.cols * p.serial for p in segment.phases), default=0)
    crossing = _crossing(segment.phases)
    if (segment.kind != "row" or segment.chunks != 1 or segment.slices != 1 or not 1 < cols <= SHORT_ROW
            or not crossing or "" in crossing.values()):
        return segment, ()
    rows = min(MOST_ROWS, max(FEWEST_ROWS, ELEMENTS // cols))
    if segment.rows < 2 * rows:
        return segment, ()
    made: dict[str, Buffer] = {}
    for (name, node), dtype in crossing.items():
        own = _unused(f"b_{name}", {*buffers, *made})
        made[own] = Buffer(own, dtype, rows, "shared", node, free_slot([*buffers.values(), *made.values()]),
                           "of the rows taken together", "together")
    names = {name: (b, Load(name, b.name, variable("lane_row", rows), (), False, b.dtype, b.node))
             for (name, _), b in zip(crossing, made.values(), strict=True)}
    kept = {name: buffers[name] for name in sorted(_touched(segment)) if buffers[name].role == "kept"}
    starts = {name: variable("lane_row", rows) * b.size for name, b in kept.items()}
    phases = tuple(_passing(_apart(p, starts), names) for p in segment.phases)
    longer = (replace(b, size=b.size * rows) for b in kept.values())
    return replace(segment, phases=phases, together=rows), (*longer, *made.values())


def _unused(name: str, buffers: Collection[str]) -> str:
    """Segments name their values each from the beginning, and take other numbers of rows together."""
    return next(n for n in chain([name], (f"{name}_{k}" for k in count(1))) if n not in buffers)


def _made(phase: Phase) -> Iterator[tuple[str, int, str]]:
    """What a loop leaves for later ones of its row: name, node, dtype ("" for a position, which is no value)."""
    alone = phase.body if phase.cols * phase.serial == 1 else ()
    for stmt in (*phase.before, *alone):
        if not isinstance(stmt, Store):
            yield stmt.target, stmt.node, "" if isinstance(stmt, Clamp) else compute_dtype(stmt.dtype)
    for fold in phase.folds:
        if fold.along == "row" and not fold.buffer:
            yield fold.result, fold.node, compute_dtype(fold.dtype)


def _read(phase: Phase) -> set[str]:
    return {name for stmt in statements(phase) for name in operands(stmt)} | {f.value for f in phase.folds}


def _crossing(phases: Sequence[Phase]) -> dict[tuple[str, int], str]:
    """What one loop of a row makes and a later one reads: (name, node) -> dtype."""
    found: dict[tuple[str, int], str] = {}
    for k, phase in enumerate(phases):
        later = set().union(*(_read(p) for p in phases[k + 1:]))
        found |= {(name, node): dtype for name, node, dtype in _made(phase) if name in later}
    return found


def _touched(segment: Segment) -> set[str]:
    views = {v.name: v.buffer for p in segment.phases for v in p.views}
    return {views.get(s.buffer, s.buffer) for p in segment.phases for s in statements(p) if isinstance(s, (Load, Store))}


def _apart(phase: Phase, starts: Mapping[str, Index]) -> Phase:
    """The loop with each row's kept values in a place of their own."""
    def moved(stmts: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(replace(s, index=s.index + starts[s.buffer]) if isinstance(s, (Load, Store)) and s.buffer in starts else s
                     for s in stmts)

    return replace(phase, before=moved(phase.before), body=moved(phase.body),
                   folds=tuple(replace(f, stores=moved(f.stores)) for f in phase.folds),
                   views=tuple(replace(v, base=v.base + starts[v.buffer]) if v.buffer in starts else v for v in phase.views))


def _passing(phase: Phase, names: Mapping[str, tuple[Buffer, Load]]) -> Phase:
    """The loop with what it reads of earlier ones fetched first, and what it makes for later ones put away."""
    own = {name for name, _, _ in _made(phase)}

    def put(name: str) -> Store:
        return Store(names[name][0].name, names[name][1].index, name, (), names[name][0].node)

    def kept(stmts: Sequence[Stmt]) -> tuple[Store, ...]:
        return tuple(put(s.target) for s in stmts if not isinstance(s, Store) and s.target in names)

    fetched = [load for name, (_, load) in names.items() if name in _read(phase) - own]
    alone = phase.cols * phase.serial == 1
    folds = tuple(replace(f, stores=(*f.stores, put(f.result))) if f.along == "row" and f.result in names else f
                  for f in phase.folds)
    return replace(phase, before=(*fetched, *phase.before, *kept(phase.before)),
                   body=(*phase.body, *kept(phase.body)) if alone else phase.body, folds=folds)
