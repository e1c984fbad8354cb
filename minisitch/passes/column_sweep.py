"""A core adds up several reduced rows at once: the sums of their columns are fetched and stored once for all of them.

In:  a kernel for a CPU. Out: the same kernel; the tiles of a column space pass down their rows a few at a time.

Before:  for ser in 0..512:  for col in 0..4096:  a[col] += x[ser * 4096 + col]
After:   for s0 in 0..64:  for col in 0..4096:    part = 0
                                                  for swept in 0..8: part += x[(s0 * 8 + swept) * 4096 + col]
                                                  a[col] += part

Left out: bodies that are too much to repeat, and few rows.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..kernel.ir import Compute, Kernel, Load, Phase, Segment
from .axes import (
    chunks_of,
    column_axes,
    digits_of,
    indices,
    inner_columns,
    is_flat,
    nest,
    takes_column_whole,
    with_whole_chunks,
)
from .nest_loops import in_rows, with_rows
from .registry import kernel_pass

SWEEP = 8  # reduced rows at once
FEW = 64  # reduced rows, as partial results are, that are not worth it
MOST_UNROLLED = 32  # statements that this may make of a loop's body (measured: 4 rows help nearly as much)


@kernel_pass("column_sweep", "cpu")
def column_sweep(kernel: Kernel) -> Kernel:
    """Sweep over the reduced rows of each column space where that is worth it."""
    if not any(s.kind == "column" for s in kernel.segments):
        return kernel
    kernel = with_whole_chunks(kernel, inner_columns)
    segments = tuple(_swept(kernel, s) if s.kind == "column" else s for s in kernel.segments)
    return with_rows(replace(kernel, segments=segments))


def _swept(kernel: Kernel, segment: Segment) -> Segment:
    phases = tuple(_swept_phase(kernel, segment, p) if is_flat(p) and p.serial > 1 else p for p in segment.phases)
    sweep = math.lcm(*(p.sweep for p in phases))
    size = -(-segment.slice_size // sweep) * sweep if segment.slices > 1 else segment.slice_size
    return replace(segment, phases=phases, slice_size=size)


def _swept_phase(kernel: Kernel, segment: Segment, phase: Phase) -> Phase:
    chunks = chunks_of(segment, phase)
    columns, sweep = column_axes(phase, chunks), _sweep(phase)
    if sweep == 1 or len(columns) > 1:
        return phase
    serial = [("swept", 1, sweep), ("s0", sweep, phase.serial // sweep)]
    nested = nest(phase, columns, serial, chunks, 1)
    (rows, swept, column) = nested.axes
    nested = in_rows(kernel, replace(nested, axes=(rows, column, swept), sweep=sweep), phase.serial // sweep)
    return replace(nested, folds=tuple(replace(f, inner=f"{f.result}_part") for f in nested.folds))


def _sweep(phase: Phase) -> int:
    """How many reduced rows are added up at once: a divisor of theirs, 1 where the loop's body is too much to repeat."""
    light = all(isinstance(s, Load | Compute) and not (s.guard if isinstance(s, Load) else s.heavy) for s in phase.body)
    sums = all(f.along == "column" for f in phase.folds)
    if not light or not sums or not takes_column_whole(phase) or phase.cols < SWEEP or phase.serial < FEW:
        return 1
    most = min(SWEEP, MOST_UNROLLED // (len(phase.body) + len(phase.folds)))
    digits = (d for s in phase.body for index in indices(s) for d in digits_of(index, "ser"))
    edges = {phase.serial, *(edge for d in digits for edge in (d.stride, d.stride * d.size))} - {1}
    return next((n for n in range(most, 1, -1) if all(edge % n == 0 for edge in edges)), 1)
