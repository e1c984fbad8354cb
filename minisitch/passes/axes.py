"""Splitting the flat loops of a CPU's phase: the column and the reduced row become nested axes.

In:  a flat phase, and the axes into which its loops are split. Out: the same phase as nested loops,
with the axes in its indices.

Before:  for col in 0..768:                        v = x[(col // 64) * 320 + col % 64 + row * 3840]
After:   for c0 in 0..12:  for c1 in 0..64:        v = x[c0 * 320 + c1 + row * 3840]

The passes that nest loops share this; it decides nothing.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..kernel import Kernel, ir
from ..kernel.nests import accesses, parts, rewritten, with_folds, with_indices, with_nest
from ..stitch.index import ZERO, Digit, Index, Quotient, Remainder, Within, variable, whole

Axis = tuple[str, int, int]  # name, stride, size; a flat loop's axes are listed minor first


# ---------------------------------------------------------------- flat loops, and where to split
def is_flat(phase: ir.Phase) -> bool:
    """Whether the phase has the loops it was scheduled with: over columns, over reduced rows."""
    loops = [(loop.var, loop.last) for loop in ir.each(phase.nest, ir.Loop)]
    flat = [("col", phase.cols), ("ser", phase.serial)][:1 if phase.serial == 1 else 2]
    return loops == flat and not any(ir.each(phase.nest, ir.Window))


def takes_column_whole(phase: ir.Phase) -> bool:
    """Whether the indices of a flat phase use the whole column, and never a digit of it."""
    digits = digits_of(parts(phase).body, "col")
    return all((d.stride, d.size) == (1, phase.cols) for d in digits)


def digits_of(stmts: Iterable[ir.Stmt], var: str) -> Iterable[Digit]:
    """The digits of a loop variable in the indices of statements."""
    leaves = (leaf for s in stmts for index in ir.indices(s) for leaf in index.leaves())
    return (leaf for leaf in leaves if isinstance(leaf, Digit) and leaf.var == var)


def digit_strides(phase: ir.Phase, var: str, total: int) -> tuple[int, ...]:
    """The strides at which a flat loop splits, ascending, from 1 to the length of the loop.

    Only these two if the strides do not divide each other, or if there are too many.
    """
    total = max(1, total)
    found = {1, total}
    for digit in digits_of((*parts(phase).body, *parts(phase).after), var):
        found |= {digit.stride, digit.stride * digit.size}
    strides = sorted(found - {0})  # an empty axis splits nothing
    nested = all(b % a == 0 for a, b in zip(strides, strides[1:], strict=False))
    nested = nested and strides[-1] == total
    return tuple(strides) if nested and len(strides) <= 6 else (1, total)


def axes_of(var: str, total: int, strides: Sequence[int]) -> list[Axis]:
    """The axes of a flat loop that is split at ``strides``, minor first."""
    sizes = [b // a for a, b in zip(strides, strides[1:], strict=False)] or [total]
    if total == 0:
        sizes = [0]
    names = [var] if len(sizes) == 1 else [f"{var[0]}{k}" for k in reversed(range(len(sizes)))]
    return list(zip(names, strides[:-1] or (1,), sizes, strict=True))


def is_split(segment: ir.Segment, phase: ir.Phase) -> bool:
    """Whether several tasks share the columns of a phase."""
    return phase.chunked and segment.chunks > 1


def column_axes(segment: ir.Segment, phase: ir.Phase) -> list[Axis]:
    """The axes into which a phase's columns are split, at the digits of its indices.

    If several tasks share the columns, the major axis is as long as a task's chunk.
    """
    strides, split = digit_strides(phase, "col", phase.cols), is_split(segment, phase)
    chunk = segment.chunk
    if split and chunk % (strides[-2] if len(strides) > 2 else 1):
        strides = 1, strides[-1]
    axes = axes_of("col", phase.cols, strides)
    if split:
        size = min(chunk, phase.cols) // strides[-2] if len(strides) > 1 else chunk
        axes[-1] = axes[-1][0], axes[-1][1], max(1, size)
    return axes


# ---------------------------------------------------------------- whole chunks
def with_whole_chunks(kernel: Kernel) -> Kernel:
    """The kernel with chunks that are multiples of their ``inner_columns``.

    The rows that a task keeps grow with its chunk.
    """
    segments, buffers = [], {b.name: b for b in kernel.buffers}
    for segment in kernel.segments:
        columns = inner_columns(segment) if segment.chunks > 1 and all(map(is_flat, segment.phases)) else 1
        chunk = -(-segment.chunk // columns) * columns
        if chunk == segment.chunk or chunk >= segment.columns:
            segments.append(segment)
            continue
        for name in {a.buffer for a in accesses(segment, segment.nest)}:
            if buffers[name].scope == "shared" and buffers[name].size == segment.chunk:
                buffers[name] = replace(buffers[name], size=chunk)
        segments.append(_with_chunk(segment, chunk))
    return replace(kernel, segments=tuple(segments), buffers=tuple(buffers.values()))


def _with_chunk(segment: ir.Segment, chunk: int) -> ir.Segment:
    """The segment with chunks of another size, and with loops of as many turns."""
    def longer(stmt: ir.Stmt) -> ir.Nest:
        if not isinstance(stmt, ir.Loop) or "start" not in stmt.first.variables:
            return (stmt,)
        return (replace(stmt, turns=chunk),)

    phases = tuple(with_nest(p, rewritten(p.nest, longer)) for p in segment.phases)
    return replace(segment, thread_map=replace(segment.thread_map, chunk=chunk), phases=phases)


def inner_columns(segment: ir.Segment) -> int:
    """The columns inside the major axis of a segment's phases. A chunk is best a multiple of it."""
    strides = [digit_strides(p, "col", p.cols) for p in segment.phases if p.chunked and is_flat(p)]
    return max((own[-2] for own in strides if len(own) > 2), default=1)


# ---------------------------------------------------------------- rewriting a phase
def nest(segment: ir.Segment, phase: ir.Phase, columns: Sequence[Axis],
         serial: Sequence[Axis] = (), *, inside: int = 0, block: int = 0) -> ir.Phase:
    """A flat phase as nested loops over these axes.

    The ``inside`` minor axes of the columns run inside the loop over reduced rows. A chunked column
    begins at ``start``. A fold's cell is its place among the columns inside. ``block``: the column
    axes are the blocks of a row and the columns of a block. The last block may have fewer columns.
    """
    split = is_split(segment, phase)

    @functools.cache
    def rewrite(index: Index) -> Index:
        total = Index(index.const)
        for c, atom in index.terms:
            if isinstance(atom, Digit) and atom.var == "col":
                total = total + _split(atom, columns, phase.cols, split) * c
            elif isinstance(atom, Digit) and atom.var == "ser":
                total = total + _split(atom, serial, phase.serial, False) * c
            elif isinstance(atom, (Quotient, Remainder)):
                total = total + Index(0, ((c, type(atom)(rewrite(atom.of), atom.by)),))
            else:
                total = total + Index(0, ((c, atom),))
        return total

    loops = _column_loops(phase, columns, segment.chunk if split else 0, block)
    around, inner = loops[:len(loops) - inside], loops[len(loops) - inside:]
    cell, width = ZERO, 1
    for loop in reversed(inner if phase.serial != 1 or inside else loops):
        cell, width = cell + variable(loop.var, loop.last) * width, width * loop.last

    def nested(stmt: ir.Stmt) -> ir.Nest:
        if not isinstance(stmt, ir.Loop):
            return (with_indices(stmt, rewrite),)
        if stmt.var == "ser":
            reduced = [stmt] if len(serial) == 1 else [ir.Loop(name, ZERO, size, ()) for name, _, size in reversed(serial)]
            return loops_over([*reduced, *inner], stmt.body)
        starts, turns, ends = _parted(stmt.body)
        if phase.serial == 1:
            turns = loops_over(inner, turns)
        # Rows of sums, one a column.
        if any(isinstance(s, ir.Start) and s.fold.buffer for s in starts):
            column = variable("col", width)
            cells = with_folds(starts, lambda f: replace(f, cell=column))
            starts = tuple(ir.Loop("col", ZERO, width, (s,)) for s in cells)
            ends = loops_over(inner, ends)
        return loops_over(around, (*starts, *turns, *ends))

    in_cells = with_folds(phase.nest, lambda f: replace(f, cell=cell) if f.buffer else f)
    column = _counted(columns) + (whole("start") if split else ZERO)
    reduced = _counted(serial) if serial else phase.reduced
    return replace(phase, nest=rewritten(in_cells, nested), columns=(column,), reduced=reduced)


def _counted(axes: Sequence[Axis]) -> Index:
    """What axes count together."""
    return sum((whole(name) * stride for name, stride, _ in axes), ZERO)


def _column_loops(phase: ir.Phase, columns: Sequence[Axis], chunk: int,
                  block: int) -> list[ir.Loop]:
    """The loops over a phase's column axes, outermost first. That one has the task's columns.

    ``chunk`` is how many a task has, or 0 if it has all.
    """
    outer, *inner = (ir.Loop(name, ZERO, n, ()) for name, _, n in reversed(columns))
    first = whole(outer.var) * math.prod(loop.turns for loop in inner)  # of the columns that a turn takes
    in_row = (Within(first, 0, chunk), Within(whole("start") + first, 0, phase.cols)) if chunk else ()
    if block and (chunk or phase.cols % block):
        ends = in_row or (Within(first, 0, phase.cols),)
        inner = [replace(inner[0], within=tuple(replace(c, index=c.index + whole(inner[0].var)) for c in ends))]
    return [replace(outer, within=in_row), *inner]


def loops_over(loops: Sequence[ir.Loop], body: ir.Nest) -> ir.Nest:
    """The loops around a body, the first one outermost."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def over_rows(rows: int, of: int, nest: ir.Nest) -> ir.Nest:
    """A core takes a batch of rows through the nest, one after the other. There are ``of`` rows in all."""
    row = whole("first_row") + whole("lane_row")
    return (ir.Loop("lane_row", ZERO, rows, (ir.Let("row", row), *nest), by="rows", within=(Within(row, 0, of),)),)


def _parted(body: ir.Nest) -> tuple[ir.Nest, ir.Nest, ir.Nest]:
    """The starts of folds, what follows, and the folds' ends."""
    first = next((k for k, s in enumerate(body) if not isinstance(s, ir.Start)), len(body))
    last = next((k for k, s in enumerate(body) if isinstance(s, ir.Combine)), len(body))
    return body[:first], body[first:last], body[last:]


def with_parts(phase: ir.Phase) -> ir.Phase:
    """The innermost loop has a total of its own for each fold, which is added when the loop ends.

    Before:  for c0: for c1: r += x           After:  for c0: part = 0; for c1: part += x; r += part
    """
    def joined(stmt: ir.Stmt) -> ir.Nest:
        if not isinstance(stmt, ir.Loop) or any(isinstance(s, ir.Loop) for s in stmt.body):
            return (stmt,)
        sums = (s.fold for s in stmt.body if isinstance(s, ir.Accumulate))
        folds = [f for f in sums if f.along != "carry"]
        parts = {f.result: replace(f, result=f"{f.result}_part", buffer="", cell=ZERO, lost="")
                 for f in folds}
        body = with_folds(stmt.body, lambda f: parts.get(f.result, f))
        totals = (ir.Accumulate(replace(f, value=parts[f.result].result)) for f in folds)
        return (*map(ir.Start, parts.values()), replace(stmt, body=body), *totals)

    return replace(phase, nest=rewritten(phase.nest, joined))


def _split(digit: Digit, axes: Sequence[Axis], cols: int, chunked: bool) -> Index:
    """One digit of a flat loop in terms of the nested axes inside it."""
    low, high = digit.stride, digit.stride * digit.size
    if len(axes) == 1 and (low, high) != (1, cols):  # the axes do not nest: keep the division
        whole = variable(axes[0][0], axes[0][2]) + (variable("start", cols) if chunked else Index())
        quotient = whole.divmod(low)[0] if low > 1 else whole
        return quotient.divmod(digit.size)[1] if high < cols else quotient
    total = Index()
    for name, stride, size in axes:  # of each axis the part that lies within the digit
        end = stride * size
        first = max(low, stride)
        last = end if high >= cols and stride == axes[-1][1] else min(high, end)
        if first < last:
            total = total + Index(0, ((first // low, Digit(name, first // stride, last // first)),))
    if chunked and high >= cols:
        total = total + (Index(0, ((1, Digit("start", low, max(2, cols // low))),)))
    return total
