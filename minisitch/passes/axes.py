"""Splitting the flat loops of a CPU's phase: one column, and one reduced row, become nested axes.

In:  a flat phase and the axes that its loops are split in. Out: the same phase over nested axes; its indices say so.

Before:  for col in 0..768:                        v = x[(col // 64) * 320 + col % 64 + row * 3840]
After:   for c0 in 0..12:  for c1 in 0..64:        v = x[c0 * 320 + c1 + row * 3840]

The passes that nest loops share this; it decides nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ..kernel.ir import (
    Buffer,
    Choose,
    Clamp,
    Compute,
    Fold,
    FromIndex,
    Kernel,
    Load,
    Phase,
    Segment,
    Stmt,
    Store,
    accesses,
)
from ..stitch.index import ZERO, Digit, Guard, Index, Quotient, Remainder, Within, variable

IndexRewrite = Callable[[Index], Index]
Axis = tuple[str, int, int]  # name, stride, size; a flat loop's axes are listed minor first


# ---------------------------------------------------------------- which loops are flat, and where they may be split
def is_flat(phase: Phase) -> bool:
    """Whether the phase's loops are those it was scheduled with: one over columns, one over reduced rows."""
    return phase.axes == (("col", phase.cols), ("ser", phase.serial))[:1 if phase.serial == 1 else 2]


def takes_column_whole(phase: Phase) -> bool:
    """Whether every index of a flat phase takes the column as it is, and none a digit of it."""
    digits = (d for s in phase.body for index in indices(s) for d in digits_of(index, "col"))
    return all((d.stride, d.size) == (1, phase.cols) for d in digits)


def indices(stmt: Stmt) -> Iterable[Index]:
    """The indices of a statement that move with loops."""
    if isinstance(stmt, (Load, Store)):
        yield stmt.index
        yield from (c.index for c in stmt.guard)
    elif isinstance(stmt, FromIndex):
        yield stmt.index
    elif isinstance(stmt, Choose):
        yield from (c.index for c in stmt.guard)


def digits_of(index: Index, var: str) -> Iterable[Digit]:
    """The digits of a loop variable in an index."""
    for _, atom in index.terms:
        if isinstance(atom, Digit) and atom.var == var:
            yield atom
        elif isinstance(atom, (Quotient, Remainder)):
            yield from digits_of(atom.of, var)


def digit_strides(phase: Phase, var: str, total: int) -> tuple[int, ...]:
    """Strides at which a flat loop splits, ascending, 1 and the whole included; just these two if they do not nest."""
    total = max(1, total)
    found = {1, total}
    for stmt in (*phase.body, *(s for f in phase.folds for s in f.stores)):
        for index in indices(stmt):
            for digit in digits_of(index, var):
                found |= {digit.stride, digit.stride * digit.size}
    strides = sorted(found - {0})  # an empty axis splits nothing
    nested = all(b % a == 0 for a, b in zip(strides, strides[1:], strict=False)) and strides[-1] == total
    return tuple(strides) if nested and len(strides) <= 6 else (1, total)


def axes_of(var: str, total: int, strides: Sequence[int]) -> list[Axis]:
    """The axes of a flat loop that is split at ``strides``, minor first."""
    sizes = [b // a for a, b in zip(strides, strides[1:], strict=False)] or [total]
    if total == 0:
        sizes = [0]
    names = [var] if len(sizes) == 1 else [f"{var[0]}{k}" for k in reversed(range(len(sizes)))]
    return list(zip(names, strides[:-1] or (1,), sizes, strict=True))


@dataclass(frozen=True)
class Chunks:
    """How the columns of a phase are dealt out to tasks: whether several tasks share them, and how many each has."""

    split: bool
    size: int


def chunks_of(segment: Segment, phase: Phase) -> Chunks:
    """How a segment deals out the columns of one of its phases."""
    return Chunks(phase.chunked and segment.chunks > 1, segment.chunk)


def column_axes(phase: Phase, chunks: Chunks) -> list[Axis]:
    """The axes that a phase's columns are split in at the digits of its indices; the major one as long as a task's chunk."""
    strides = digit_strides(phase, "col", phase.cols)
    if chunks.split and chunks.size % (strides[-2] if len(strides) > 2 else 1):
        strides = 1, strides[-1]
    axes = axes_of("col", phase.cols, strides)
    if chunks.split:
        size = min(chunks.size, phase.cols) // strides[-2] if len(strides) > 1 else chunks.size
        axes[-1] = axes[-1][0], axes[-1][1], max(1, size)
    return axes


# ---------------------------------------------------------------- whole chunks
def with_whole_chunks(kernel: Kernel, multiple: Callable[[Segment], int]) -> Kernel:
    """The kernel with chunks of columns that are whole multiples; rows that a task keeps are as long as its chunk."""
    segments, buffers = [], {b.name: b for b in kernel.buffers}
    for segment in kernel.segments:
        whole = multiple(segment) if segment.chunks > 1 else 1
        chunk = -(-segment.chunk // whole) * whole
        columns = max((p.cols for p in segment.phases if p.chunked), default=0)
        if chunk == segment.chunk or chunk >= columns:
            segments.append(segment)
            continue
        for name in {a.buffer for p in segment.phases for a in accesses(p)}:
            if buffers[name].scope == "shared" and buffers[name].size == segment.chunk:
                buffers[name] = replace(buffers[name], size=chunk)
        segments.append(replace(segment, chunk=chunk))
    return replace(kernel, segments=tuple(segments), buffers=tuple(buffers.values()))


def inner_columns(segment: Segment) -> int:
    """Columns inside the major axis of a segment's phases: chunks should be whole multiples of them."""
    strides = [digit_strides(p, "col", p.cols) for p in segment.phases if p.chunked and is_flat(p)]
    return max((own[-2] for own in strides if len(own) > 2), default=1)


# ---------------------------------------------------------------- rewriting a phase
def nest(phase: Phase, columns: Sequence[Axis], serial: Sequence[Axis], chunks: Chunks, inside: int) -> Phase:
    """The phase over nested axes. ``inside`` of the column axes, the minor ones, run inside the reduced rows; a chunked column
    begins at ``start``. A fold's cell is its place among the columns inside."""
    @functools.cache
    def rewrite(index: Index) -> Index:
        total = Index(index.const)
        for c, atom in index.terms:
            if isinstance(atom, Digit) and atom.var == "col":
                total = total + _split(atom, columns, phase.cols, chunks.split) * c
            elif isinstance(atom, Digit) and atom.var == "ser":
                total = total + _split(atom, serial, phase.serial, False) * c
            elif isinstance(atom, (Quotient, Remainder)):
                total = total + Index(0, ((c, type(atom)(rewrite(atom.of), atom.by)),))
            else:
                total = total + Index(0, ((c, atom),))
        return total

    named = [(name, size) for name, _, size in reversed(columns)]
    outer = len(named) - inside if phase.outer else 0
    cell, width = ZERO, 1
    for name, size in reversed(named[outer:]):
        cell, width = cell + variable(name, size) * width, width * size

    def nested(f: Fold) -> Fold:
        if f.along == "carry":  # stored once its rows are done, one flat column after the other
            return replace(f, cell=cell)
        stores = tuple(_rewritten(s, rewrite) for s in f.stores)
        return replace(f, cell=cell, stores=stores)  # type: ignore[arg-type]

    reduced = [(name, size) for name, _, size in reversed(serial)]
    return replace(phase, body=tuple(_rewritten(s, rewrite) for s in phase.body), folds=tuple(map(nested, phase.folds)),
                   axes=(*named[:outer], *reduced, *named[outer:]), outer=outer)


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
        first, last = max(low, stride), end if high >= cols and stride == axes[-1][1] else min(high, end)
        if first < last:
            total = total + Index(0, ((first // low, Digit(name, first // stride, last // first)),))
    if chunked and high >= cols:
        total = total + (Index(0, ((1, Digit("start", low, max(2, cols // low))),)))
    return total


def _guard(guard: Guard, rewrite: IndexRewrite) -> Guard:
    return tuple(Within(rewrite(c.index), c.low, c.high) for c in guard)


def _rewritten(stmt: Stmt, rewrite: IndexRewrite) -> Stmt:
    if isinstance(stmt, (Load, Store)):
        return replace(stmt, index=rewrite(stmt.index), guard=_guard(stmt.guard, rewrite))
    if isinstance(stmt, FromIndex):
        return replace(stmt, index=rewrite(stmt.index))
    if isinstance(stmt, Choose):
        return replace(stmt, guard=_guard(stmt.guard, rewrite))
    assert isinstance(stmt, (Compute, Clamp))
    return stmt


def free_slot(buffers: Iterable[Buffer]) -> int:
    """A slot whose bytes nothing else has."""
    return max((b.slot for b in buffers), default=0) + 1
