"""A long row is summed up block by block: exact enough without slowing each addition down.

In:  a kernel for a CPU. Out: the same kernel; each block of a long row, or each inner axis, has a
total of its own.

A float32 total that has grown large swallows what is added to it (the variance of fifty million
numbers was wrong in the third digit). The plain kernel keeps what rounding takes from each addition
(compensated summation, Kahan 1965), and so its additions run one after the other. Here each block
has a total of its own. What rounding takes is kept only where these totals are added up.

Before:  for col in 0..1000000:    r, lost = kahan_add(r, lost, x[col])
After:   for c0 in 0..977:         for c1 in 0..1024: part += x[c0 * 1024 + c1]
                                   r, lost = kahan_add(r, lost, part)
"""

from collections.abc import Sequence
from dataclasses import replace

from ..kernel import Kernel, ir
from ..kernel.nests import parts, with_folds, with_phases
from ..kernel.statements import LONG_SUM_OF_A_CORE
from ..ops import kind_of
from . import axes
from .registry import kernel_pass

# Columns of a long row that have a total of their own: 16 to 32 additions, vector after vector.
BLOCK = 1024
VECTORS = 64  # columns that a core adds at once: four of its widest vectors
FEW = 64  # elements of an inner axis that are worth a total of their own


@kernel_pass("block_totals", "cpu")
def block_totals(kernel: Kernel) -> Kernel:
    """Give each block of long rows a total of its own."""
    if not any(_rounds(p) for s in kernel.segments for p in s.phases):
        return kernel
    return with_phases(axes.with_whole_chunks(kernel), _in_blocks)


def _in_blocks(segment: ir.Segment, phase: ir.Phase) -> ir.Phase:
    if phase.serial != 1 or not axes.is_flat(phase) or not _rounds(phase):
        return phase
    columns = axes.column_axes(segment, phase)
    block = _block(phase, columns)
    if block:
        columns = [("c1", 1, block), ("c0", block, -(-columns[0][2] // block))]
    elif len(columns) == 1 or (columns[0][2] < FEW and phase.cols <= LONG_SUM_OF_A_CORE):
        return phase
    nested = axes.nest(segment, phase, columns, block=block)

    def compensated(f: ir.Fold) -> ir.Fold:
        is_long = f.rounds and phase.cols > LONG_SUM_OF_A_CORE
        return f if f.along == "carry" else replace(f, lost=f"{f.result}_lost" if is_long else "")

    return axes.with_parts(replace(nested, nest=with_folds(nested.nest, compensated)))


def _block(phase: ir.Phase, columns: Sequence[axes.Axis]) -> int:
    """How many columns of a row share a total.

    0 if the row's sums are short or exact, or run over nested axes. If a multiple of ``VECTORS``
    near ``BLOCK`` divides the row, all blocks have as many columns.
    """
    length = columns[0][2]
    if len(columns) > 1 or length <= LONG_SUM_OF_A_CORE or not axes.takes_column_whole(phase):
        return 0
    return next((n for n in range(2 * BLOCK, BLOCK // 4, -VECTORS) if length % n == 0), BLOCK)


def _rounds(phase: ir.Phase) -> bool:
    return any(f.along == "row" and f.op in ("sum", "prod") and kind_of(f.dtype) == "float"
               for f in parts(phase).folds)
