"""A loop that reads across its rows runs in tiles, so that the lines it fetches stay in cache.

In:  a kernel for a CPU. Out: the same kernel; a lone element-wise loop that reads what lies across
its rows runs in tiles.

Before:  for row in 0..4096:  for col in 0..4096:  y[row * 4096 + col] = x[col * 4096 + row]
After:   for first_row in 0..4096 by 64:  for c0 in 0..256:  for row in the 64:  for c1 in 0..16:
             y[row * 4096 + c0 * 16 + c1] = x[(c0 * 16 + c1) * 4096 + row]
"""

from dataclasses import replace

from ..device import LINE
from ..kernel import Kernel, ir
from ..kernel.nests import parts, rewritten
from ..stitch.index import Digit
from .axes import is_flat, nest, over_rows, takes_column_whole
from .registry import kernel_pass

LINE_COLUMNS = LINE // 4  # of a block where rows lie across each other: a cache line of float32
# That are read across while their lines stay in cache: each has other pages for its operands.
TILE_ROWS = 64


@kernel_pass("tile_transpose", "cpu")
def tile_transpose(kernel: Kernel) -> Kernel:
    """Tile each lone loop that reads across its rows."""
    tiled = [_may_tile(s) for s in kernel.segments]
    segments = tuple(_tiled(s) if may else s for s, may in zip(kernel.segments, tiled, strict=True))
    return replace(kernel, segments=segments) if any(tiled) else kernel


def _may_tile(segment: ir.Segment) -> bool:
    whole = segment.chunks == 1 and segment.space.kind != "column"
    return whole and len(segment.phases) == 1 and _across(segment.phases[0])


def _tiled(segment: ir.Segment) -> ir.Segment:
    (phase,) = segment.phases
    columns = [("c1", 1, LINE_COLUMNS), ("c0", LINE_COLUMNS, -(-phase.cols // LINE_COLUMNS))]
    nested = nest(segment, phase, columns, block=LINE_COLUMNS)

    def tiled(stmt: ir.Stmt) -> ir.Nest:
        """The rows of a tile stand inside its loop over blocks of columns."""
        if not isinstance(stmt, ir.Loop) or stmt.var != "c0":
            return (stmt,)
        return (replace(stmt, body=over_rows(TILE_ROWS, segment.rows, (*parts(nested).before, *stmt.body))),)

    inside = tuple(s for s in nested.nest if s not in parts(nested).before)
    nested = replace(nested, nest=rewritten(inside, tiled))
    return replace(segment, phases=(nested,), step=TILE_ROWS)


def _across(phase: ir.Phase) -> bool:
    """True if a load moves by one element from row to row, and by a line or more along a row."""
    if parts(phase).folds or phase.serial != 1 or phase.cols <= LINE_COLUMNS:
        return False
    if not is_flat(phase) or not takes_column_whole(phase):
        return False
    loads = (s.index for s in parts(phase).body if isinstance(s, ir.Load))
    steps = ({(a.var, a.stride): c for c, a in i.terms if isinstance(a, Digit)} for i in loads)
    return any(at.get(("row", 1)) == 1 and at.get(("col", 1), 0) >= LINE_COLUMNS for at in steps)
