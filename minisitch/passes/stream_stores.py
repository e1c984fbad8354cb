"""Results that no cache could hold go past the caches, in whole lines.

In:  a kernel for a CPU. Out: the same kernel; a lone element-wise loop stores block by block.

Before a core stores into a line of memory it fetches the line: a third of all traffic of an
element-wise loop with one input and one output. If no cache could hold what is stored until it is
wanted again, the loop runs block by block. The results of a block stay in the nearest cache until
they are whole lines. Then they are stored, and the lines are not fetched.

Before:  for col in 0..width:         y_row[col] = f(x_row[col])
After:   for c0 in 0..width / 128:    for c1 in 0..128: y_row[c1] = f(x_row[c1])
                                      stream(y, start + c0 * 128, y_row, 128)
"""

from __future__ import annotations

from dataclasses import replace

from ..kernel.ir import Barrier, Kernel, Load, Loop, Nest, Phase, Segment, StagingRow, Stmt, Store, Stream, rewritten
from ..ops import itemsize
from ..stitch.index import Digit, Index, variable
from .axes import chunks_of, is_flat, nest, takes_column_whole, with_whole_chunks
from .registry import kernel_pass

STREAM = 128  # columns of a block that is stored past the caches (measured: of 512 a copy gains nothing, of 64 a chain loses)


@kernel_pass("stream_stores", "cpu")
def stream_stores(kernel: Kernel) -> Kernel:
    """Stream what each lone element-wise loop stores, if no cache holds what the kernel moves."""
    caches, buffers = kernel.device.caches, kernel.by_name
    moved = sum((t.read + t.written) * itemsize(buffers[t.buffer].dtype) for t in kernel.touches)
    if len(caches) < 2 or moved <= caches[-2].size or not any(map(_may_stream, kernel.segments)):
        return kernel
    kernel = with_whole_chunks(kernel, lambda segment: STREAM if _may_stream(segment) else 1)
    return replace(kernel, segments=tuple(_streamed(s) if _may_stream(s) else s for s in kernel.segments))


def _may_stream(segment: Segment) -> bool:
    return len(segment.phases) == 1 and segment.kind != "column" and _streams(segment.phases[0])


def _streamed(segment: Segment) -> Segment:
    (phase,) = segment.phases
    chunks = chunks_of(segment, phase)
    size = min(chunks.size, phase.cols) if chunks.split else phase.cols
    columns = [("c1", 1, STREAM), ("c0", STREAM, -(-size // STREAM))]
    nested = nest(phase, columns, [], chunks, block=STREAM)
    rows: dict[tuple[str, Index], StagingRow] = {}
    column = variable("c1", STREAM)

    def staged(stmt: Stmt) -> Nest:
        """A block's results stay in a row, and go to memory when the block is done. Others see them after the last block."""
        if isinstance(stmt, Store):
            place = stmt.buffer, stmt.index + column * -1
            taken = sum(buffer == stmt.buffer for buffer, _ in rows if place not in rows)
            row = rows.setdefault(place, StagingRow(f"{stmt.buffer}_row{taken or ''}", *place, STREAM))
            return (replace(stmt, buffer=row.name, index=column),)
        if isinstance(stmt, Loop) and stmt.var == "c1":
            return (stmt, *(Stream(row, stmt.range) for row in rows.values()))
        return (stmt, Barrier("stores")) if isinstance(stmt, Loop) else (stmt,)

    streaming = rewritten(nested.nest, staged)
    return replace(segment, phases=(replace(nested, nest=(*rows.values(), *streaming)),))


def _streams(phase: Phase) -> bool:
    """True for an element-wise phase that stores neighbouring columns, and loads nothing it stores."""
    if phase.folds or phase.serial != 1 or phase.cols < 2 * STREAM or not (is_flat(phase) and takes_column_whole(phase)):
        return False
    stores = [s for s in phase.body if isinstance(s, Store)]
    loads = [s for s in phase.body if isinstance(s, Load)]
    loaded, column = {s.buffer for s in loads}, Digit("col", 1, phase.cols)
    return (all([c for c, a in s.index.terms if a == column] == [1] for s in stores)
            and all([c for c, a in s.index.terms if a == column] in ([], [1]) for s in loads)
            and not any(s.guard or s.buffer in loaded for s in stores))
