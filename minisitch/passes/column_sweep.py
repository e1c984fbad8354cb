"""A core adds up several reduced rows at once: it fetches and stores each sum once for all.

In:  a kernel for a CPU. Out: the same kernel; the tiles of a column space pass down their rows a
few at a time.

Before:  for ser in 0..512:  for col in 0..4096:  a[col] += x[ser * 4096 + col]
After:   for s0 in 0..64:  for col in 0..4096:    part = 0
                                              for swept in 0..8:
                                                  part += x[(s0 * 8 + swept) * 4096 + col]
                                                  a[col] += part

Left out: loops whose body is too long to repeat, and loops over few reduced rows.
"""

import math
from dataclasses import replace

from ..kernel import Kernel, ir
from ..kernel.nests import parts, rewritten, with_nest
from . import axes
from .nest_loops import in_rows, with_rows
from .registry import kernel_pass

SWEEP = 8  # reduced rows at once
FEW = 64  # reduced rows, as partial results are, that are not worth it
# Statements that this may make of a loop's body (measured: 4 rows help nearly as much).
MOST_UNROLLED = 32


@kernel_pass("column_sweep", "cpu")
def column_sweep(kernel: Kernel) -> Kernel:
    """Sweep over the reduced rows of each column space where that is worth it."""
    if not any(s.space.kind == "column" for s in kernel.segments):
        return kernel
    kernel = axes.with_whole_chunks(kernel)
    segments = tuple(_swept(kernel, s) if s.space.kind == "column" else s for s in kernel.segments)
    return with_rows(replace(kernel, segments=segments))


def _swept(kernel: Kernel, segment: ir.Segment) -> ir.Segment:
    sweeps = [_sweep(segment, p) for p in segment.phases]
    phases = tuple(p if sweep == 1 else _swept_phase(kernel, segment, p, sweep)
                   for p, sweep in zip(segment.phases, sweeps, strict=True))
    common = math.lcm(*sweeps)
    swept = replace(segment, slice_size=-(-segment.slice_size // common) * common)

    def sliced(stmt: ir.Stmt) -> ir.Nest:
        """A slice has whole sweeps."""
        if not isinstance(stmt, ir.Loop) or stmt.var not in ("ser", "s0"):
            return (stmt,)
        sweep = math.prod(loop.turns for loop in ir.each(stmt.body, ir.Loop) if loop.var == "swept")
        return (ir.of_slice(stmt, swept, sweep),)

    if segment.slices > 1:
        phases = tuple(with_nest(p, rewritten(p.nest, sliced)) for p in phases)
    return replace(swept, phases=phases)


def _swept_phase(kernel: Kernel, segment: ir.Segment, phase: ir.Phase, sweep: int) -> ir.Phase:
    rows = phase.serial // sweep
    serial = [("swept", 1, sweep), ("s0", sweep, rows)]
    rows_of_sums = in_rows(kernel, phase, rows, 1)
    nested = axes.nest(segment, rows_of_sums, axes.column_axes(segment, phase), serial, inside=1)

    def inwards(stmt: ir.Stmt) -> ir.Nest:
        """The rows of a sweep are the innermost loop."""
        if isinstance(stmt, ir.Loop) and stmt.var == "swept":
            (column,) = stmt.body
            assert isinstance(column, ir.Loop)
            return (replace(column, body=(replace(stmt, body=column.body, by="unrolled"),)),)
        return (stmt,)

    return axes.with_parts(replace(nested, nest=rewritten(nested.nest, inwards)))


def _sweep(segment: ir.Segment, phase: ir.Phase) -> int:
    """How many reduced rows are added up at once. 1 if the loop's body is too long to repeat.

    The number divides that of all reduced rows.
    """
    if not axes.is_flat(phase) or phase.serial == 1 or len(axes.column_axes(segment, phase)) > 1:
        return 1
    light = all((isinstance(s, ir.Load) and not s.guard)
                or (isinstance(s, ir.Compute) and not s.heavy) for s in parts(phase).body)
    sums = all(f.along == "column" for f in parts(phase).folds) and axes.takes_column_whole(phase)
    if not light or not sums or phase.cols < SWEEP or phase.serial < FEW:
        return 1
    most = min(SWEEP, MOST_UNROLLED // (len(parts(phase).body) + len(parts(phase).folds)))
    digits = axes.digits_of(parts(phase).body, "ser")
    edges = {phase.serial, *(edge for d in digits for edge in (d.stride, d.stride * d.size))} - {1}
    return next((n for n in range(most, 1, -1) if all(edge % n == 0 for edge in edges)), 1)
