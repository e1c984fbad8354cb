"""Nested loops for a CPU: what makes the inner loop vectorise.

In:  a kernel for a CPU. Out: the same kernel; each flat loop over columns is nested loops over the
digits of its indices.

A flat column costs a division an element (``col // 64``), and a division stops vectorisation
(measured). So the column is split at the digits its indices use.

Before:  for col in 0..768:                       v = x[(col // 64) * 320 + col % 64 + row * 3840]
After:   for c0 in 0..12:  for c1 in 0..64:       v = x[c0 * 320 + c1 + row * 3840]

In a block composition, a reduce has its reduced rows as the innermost loop if what it folds lies
together in memory. Otherwise it keeps one sum for each of the innermost columns. A tile of a column
space takes all its columns through one reduced row after the other:

Before:  for col in 0..4096:  for ser in 0..512:  r += x[ser * 4096 + col]
After:   for ser in 0..512:  for col in 0..4096:  a[col] += x[ser * 4096 + col]
"""

from collections.abc import Iterator
from dataclasses import replace

from ..kernel import Kernel, ir
from ..kernel.nests import parts, with_folds, with_nest, with_phases
from ..kernel.statements import LONG_SUM_OF_A_CORE
from ..ops import compute_dtype
from ..stitch.index import Digit
from . import axes
from .registry import kernel_pass


@kernel_pass("nest_loops", "cpu")
def nest_loops(kernel: Kernel) -> Kernel:
    """Nest what is flat, and add the rows of memory that columns are summed up in."""
    if "nest_loops" in kernel.passes:
        return kernel
    kernel = axes.with_whole_chunks(kernel)
    return with_rows(with_phases(kernel, lambda segment, phase: _nested(kernel, segment, phase)))


def _nested(kernel: Kernel, segment: ir.Segment, phase: ir.Phase) -> ir.Phase:
    if not axes.is_flat(phase):
        return phase
    tiles, columns = segment.space.kind == "column", axes.column_axes(segment, phase)
    serial = []
    if phase.serial != 1:
        strides = (1, phase.serial) if tiles else axes.digit_strides(phase, "ser", phase.serial)
        serial = axes.axes_of("ser", phase.serial, strides)
    inside = 0
    if phase.serial != 1 or any(f.along == "column" for f in parts(phase).folds):
        inside = len(columns) if tiles else 0 if _folds_together(phase) else 1
    rows = in_rows(kernel, phase, phase.serial, inside)
    return axes.nest(segment, rows, columns, serial, inside=inside)


def _folds_together(phase: ir.Phase) -> bool:
    """True if all that moves with the serial axis is read along it."""
    loads = (s.index for s in parts(phase).body if isinstance(s, ir.Load))
    moving = [index for index in loads if "ser" in index.variables]
    return all(any(c == 1 and isinstance(a, Digit) and (a.var, a.stride) == ("ser", 1)
                   for c, a in index.terms) for index in moving)


# ---------------------------------------------------------------- rows of sums
def in_rows(kernel: Kernel, phase: ir.Phase, additions: int, inside: int) -> ir.Phase:
    """The phase with a row of memory for each sum of columns.

    ``inside`` of its column axes run inside the reduced rows. If that is 0, sums stay in registers.
    ``additions`` is the number of additions to each cell of the row.
    """
    loads = [s for s in parts(phase).body if isinstance(s, ir.Load)]
    partial = {s.target for s in loads if kernel.by_name[s.buffer].role == "partial"}

    def placed(f: ir.Fold) -> ir.Fold:
        if f.along != "column" or not inside:  # a register, as in the plain kernel
            return f
        row = f"{'m' if f.value in partial else 'a'}{f.node}"
        loses = f.rounds and additions > LONG_SUM_OF_A_CORE
        return replace(f, buffer=row, lost=f"l{f.node}" if loses else "")

    return with_nest(phase, with_folds(phase.nest, placed))


def with_rows(kernel: Kernel) -> Kernel:
    """The kernel with the buffers that its sums of columns name, in the order of its loops."""
    buffers = {b.name: b for b in kernel.buffers}
    for row in (row for s in kernel.segments for p in s.phases for row in _rows(p)):
        buffers[row.name] = buffers.pop(row.name, row)
    return replace(kernel, buffers=tuple(buffers.values()))


def _rows(phase: ir.Phase) -> Iterator[ir.Buffer]:
    for f in parts(phase).folds:
        if f.along == "column" and f.buffer:
            width = f.cell.bounds[1] + 1
            for name, why in ((f.buffer, "one sum a column"),
                              (f.lost, "what rounding took from it")):
                if name:
                    yield ir.Buffer(name, compute_dtype(f.dtype), width, "shared", f.node, why=why)
