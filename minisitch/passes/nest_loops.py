"""Nested loops for a CPU: what makes the inner loop vectorise.

In:  phases over one flat column (and one flat serial axis). Out: the same phases over nested axes, with views.

A flat column costs a division an element (``col // 64``), and Numba guards an index it cannot
prove non-negative; both stop vectorisation (measured). So the column is split at the digits its
indices use, and every access whose offset is affine in the innermost axis reads a view of its row:

Before:  for col in 0..768:  v = x[(col // 64) * 320 + col % 64 + row * 3840]
After:   for c0 in 0..12:    x_0 = x[row * 3840 + c0 * 320 : +64]
           for c1 in 0..64:  v = x_0[c1]

A block's reduce walks its serial axis inside, one scalar at a time, where what it folds lies together in memory;
else it keeps one sum for each of the innermost columns. The tiles of a column space pass down all reduced rows, where
they can several at once: the sums are then fetched and stored once for all of them.

A long row is summed up block by block: a float32 total that has grown large swallows what is added to it (the variance of
fifty million numbers was wrong in the third digit). Blocks have totals of their own, and when such totals are added up, what
rounding takes from one addition goes into the next (compensated summation, Kahan 1965):

Before:  for col in 0..1000000:    r += x_row[col]
After:   for c0 in 0..977:         for c1 in 0..1024: part += x_row[c1]
                                   r, lost = kahan_add(r, lost, part)

Before a core stores into a line of memory it fetches the line: a third of all traffic of an element-wise loop with one input and
one output. Where no cache could hold what is stored until it is wanted again, the loop runs block by block: a block's results
stay in the nearest cache until they are whole lines, and these are stored unfetched.

Before:  for col in 0..width:         y_row[col] = f(x_row[col])
After:   for c0 in 0..width / 128:    for c1 in 0..128: y_row[c1] = f(x_row[c1])
                                      stream(y, start + c0 * 128, y_row, 128)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..device import LINE
from ..kernel.ir import Choose, Clamp, Compute, Fold, FromIndex, Load, Phase, Stmt, Store, View
from ..ops import kind_of
from ..stitch.index import ZERO, Digit, Guard, Index, Loaded, Quotient, Remainder, Within, variable

Rewrite = Callable[[Index], Index]
BLOCK = 1024  # columns of a long row that have a total of their own: 16 to 32 additions, one vector after the other
VECTORS = 64  # columns that a core adds at once: four vectors of its widest; blocks are whole numbers of them where that divides
LONG_SUM = 1024  # elements: a longer sum keeps what rounding takes from its totals (``kahan_add``)
SWEEP = 8  # reduced rows at once, and
LINE_COLUMNS = LINE // 4  # of a block where rows lie across each other: a cache line of float32
STREAM = 128  # columns of a block that is stored past the caches (measured: of 512 a copy gains nothing, of 64 a chain loses)
FEW = 64  # reduced rows, as partial results are, that are not worth it
MOST_CUTS = 3  # of an innermost loop; with more it stays whole
MOST_UNROLLED = 32  # statements that this may make of a loop's body (measured: 4 rows help nearly as much)


def nest_columns(phases: Sequence[Phase], chunk: int, chunks: int, tiles: bool = False,
                 large: bool = False) -> tuple[list[Phase], int]:
    """Split each phase's columns into nested axes and take views; the chunk is rounded up to whole inner axes.

    ``tiles``: the phases are those of a column space. A lone element-wise loop that reads what lies across its rows, as a
    transpose does, is split into blocks of columns, which its segment takes for many rows before the next. ``large``: no cache
    holds what the kernel moves, so that a lone element-wise loop streams what it stores.
    """
    strides = [_digit_strides(p, "col", p.cols) for p in phases]
    inner = 1
    for p, own in zip(phases, strides, strict=True):
        if p.chunked and chunks > 1 and len(own) > 2:
            inner = max(inner, own[-2])
    if chunks > 1 and inner > 1:
        chunk = -(-chunk // inner) * inner
        strides = [own if not p.chunked or chunk % (own[-2] if len(own) > 2 else 1) == 0 else (1, own[-1])
                   for p, own in zip(phases, strides, strict=True)]
    names: dict[tuple[str, Index, Guard], str] = {}
    across = len(phases) == 1 and chunks == 1 and not tiles and _across(phases[0])
    streams = large and len(phases) == 1 and not tiles and not across and _streams(phases[0])
    if streams:
        chunk = -(-chunk // STREAM) * STREAM
    split = [p.chunked and chunks > 1 for p in phases]
    nested = [_with_views(_with_cuts(_nest(p, own, chunk, s, tiles, across, streams), s), names)
              for p, own, s in zip(phases, strides, split, strict=True)]
    longest: dict[str, int] = {}  # phases share a view, so it is as long as any of them needs
    for view in (v for p in nested for v in p.views):
        longest[view.name] = max(longest.get(view.name, 0), view.length)
    return [replace(p, views=tuple(replace(v, length=longest[v.name]) for v in p.views)) if p.views else p for p in nested], chunk


# ---------------------------------------------------------------- where the column splits
def _indices(stmt: Stmt) -> Iterable[Index]:
    if isinstance(stmt, (Load, Store)):
        yield stmt.index
        yield from (c.index for c in stmt.guard)
    elif isinstance(stmt, FromIndex):
        yield stmt.index
    elif isinstance(stmt, Choose):
        yield from (c.index for c in stmt.guard)


def _digits_of(index: Index, var: str) -> Iterable[Digit]:
    for _, atom in index.terms:
        if isinstance(atom, Digit) and atom.var == var:
            yield atom
        elif isinstance(atom, (Quotient, Remainder)):
            yield from _digits_of(atom.of, var)


def _digit_strides(phase: Phase, var: str, total: int) -> tuple[int, ...]:
    """Strides at which a flat loop splits, ascending, 1 and the whole included; just these two if they do not nest."""
    total = max(1, total)
    found = {1, total}
    for stmt in (*phase.body, *(s for f in phase.folds for s in f.stores)):
        for index in _indices(stmt):
            for digit in _digits_of(index, var):
                found |= {digit.stride, digit.stride * digit.size}
    strides = sorted(found - {0})  # an empty axis splits nothing
    nested = all(b % a == 0 for a, b in zip(strides, strides[1:], strict=False)) and strides[-1] == total
    return tuple(strides) if nested and len(strides) <= 6 else (1, total)


# ---------------------------------------------------------------- which loop is inside
Axis = tuple[str, int, int]  # name, stride, size; a flat loop's axes are listed minor first


def _axes(var: str, total: int, strides: Sequence[int]) -> list[Axis]:
    sizes = [b // a for a, b in zip(strides, strides[1:], strict=False)] or [total]
    if total == 0:
        sizes = [0]
    names = [var] if len(sizes) == 1 else [f"{var[0]}{k}" for k in reversed(range(len(sizes)))]
    return list(zip(names, strides[:-1] or (1,), sizes, strict=True))


def _folds_together(phase: Phase) -> bool:
    """True if all that moves with the serial axis is read along it."""
    moving = [s.index for s in phase.body if isinstance(s, Load) and "ser" in s.index.variables]
    return all(any(c == 1 and isinstance(a, Digit) and (a.var, a.stride) == ("ser", 1) for c, a in i.terms) for i in moving)


def _across(phase: Phase) -> bool:
    """True if neighbours of some operand lie in neighbouring rows, a line or more from column to column."""
    if phase.folds or phase.serial != 1 or phase.cols <= LINE_COLUMNS or not _flat(phase):
        return False
    steps = [{(a.var, a.stride): c for c, a in s.index.terms if isinstance(a, Digit)} for s in phase.body if isinstance(s, Load)]
    return any(at.get(("row", 1)) == 1 and at.get(("col", 1), 0) >= LINE_COLUMNS for at in steps)


def _streams(phase: Phase) -> bool:
    """True if it stores column by column what it does not load, and neither strides nor adds up."""
    if phase.folds or phase.serial != 1 or phase.cols < 2 * STREAM or not _flat(phase):
        return False
    stores = [s for s in phase.body if isinstance(s, Store)]
    loads = [s for s in phase.body if isinstance(s, Load)]
    loaded, column = {s.buffer for s in loads}, Digit("col", 1, phase.cols)
    return (all([c for c, a in s.index.terms if a == column] == [1] for s in stores)
            and all([c for c, a in s.index.terms if a == column] in ([], [1]) for s in loads)
            and not any(s.guard or s.buffer in loaded for s in stores))


def _block(phase: Phase, axes: Sequence[Axis]) -> int:
    """How many columns of a row have a total of their own: 0 where its sums are short, exact, or run over nested axes.

    Where some number of whole vectors divides the row, blocks are alike.
    """
    columns = axes[0][2]
    if not _rounds(phase) or len(axes) > 1 or columns <= LONG_SUM or not _flat(phase):
        return 0
    return next((size for size in range(2 * BLOCK, BLOCK // 4, -VECTORS) if columns % size == 0), BLOCK)


def _rounds(phase: Phase) -> bool:
    return any(f.along == "row" and f.op in ("sum", "prod") and kind_of(f.dtype) == "float" for f in phase.folds)


def _flat(phase: Phase) -> bool:
    """True if every index takes the column whole."""
    digits = (d for s in phase.body for index in _indices(s) for d in _digits_of(index, "col"))
    return all((d.stride, d.size) == (1, phase.cols) for d in digits)


def _sweep(phase: Phase) -> int:
    """How many reduced rows are added up at once: a divisor of theirs, 1 where the loop's body is too much to repeat."""
    light = all(isinstance(s, Load | Compute) and not (s.guard if isinstance(s, Load) else s.heavy) for s in phase.body)
    if not light or not _flat(phase) or any(f.along != "column" for f in phase.folds) or phase.cols < SWEEP or phase.serial < FEW:
        return 1
    most = min(SWEEP, MOST_UNROLLED // (len(phase.body) + len(phase.folds)))
    digits = (d for s in phase.body for index in _indices(s) for d in _digits_of(index, "ser"))
    edges = {phase.serial, *(edge for d in digits for edge in (d.stride, d.stride * d.size))} - {1}
    return next((n for n in range(most, 1, -1) if all(edge % n == 0 for edge in edges)), 1)


# ---------------------------------------------------------------- rewriting indices
def _nest(phase: Phase, strides: Sequence[int], chunk: int, chunked: bool, tiles: bool, across: bool, streams: bool) -> Phase:
    """The phase over nested axes, major first; a chunked column starts at ``start``."""
    axes = _axes("col", phase.cols, strides)
    if chunked:
        axes[-1] = axes[-1][0], axes[-1][1], max(1, min(chunk, phase.cols) // strides[-2] if len(strides) > 1 else chunk)
    block = LINE_COLUMNS if across else STREAM if streams else _block(phase, axes)
    parts = _rounds(phase) and len(axes) > 1 and (axes[0][2] >= FEW or phase.cols > LONG_SUM)
    if block:
        axes = [("c1", 1, block), ("c0", block, -(-axes[0][2] // block))]
    columns = [(name, size) for name, _, size in reversed(axes)]
    sweep = _sweep(phase) if tiles and len(axes) == 1 and phase.serial > 1 else 1
    serial: list[Axis] = []
    if sweep > 1:
        serial = [("swept", 1, sweep), ("s0", sweep, phase.serial // sweep)]
    elif phase.serial != 1:
        serial = _axes("ser", phase.serial, (1, phase.serial) if tiles else _digit_strides(phase, "ser", phase.serial))

    @functools.cache
    def rewrite(index: Index) -> Index:
        total = Index(index.const)
        for c, atom in index.terms:
            if isinstance(atom, Digit) and atom.var == "col":
                total = total + _split(atom, axes, phase.cols, chunked) * c
            elif isinstance(atom, Digit) and atom.var == "ser":
                total = total + _split(atom, serial, phase.serial, False) * c
            elif isinstance(atom, (Quotient, Remainder)):
                total = total + Index(0, ((c, type(atom)(rewrite(atom.of), atom.by)),))
            else:
                total = total + Index(0, ((c, atom),))
        return total

    inside = 0 if not phase.outer else len(columns) if tiles else 0 if _folds_together(phase) else 1
    outer = len(columns) - inside if phase.outer else 0
    cell, width = ZERO, 1
    for name, size in reversed(columns[outer:]):
        cell, width = cell + variable(name, size) * width, width * size

    def nested(f: Fold) -> Fold:
        if f.along == "carry":  # stored once its rows are done, one flat column after the other
            return replace(f, cell=cell)
        buffer = "" if f.along == "column" and not inside else f.buffer
        inner = f"{f.result}_part" if block or parts or sweep > 1 else ""
        long = phase.serial // sweep > LONG_SUM if buffer else inner and phase.cols > LONG_SUM
        lost = (f"l{f.node}" if buffer else f"{f.result}_lost") if f.rounds and long else ""
        return replace(f, buffer=buffer, cell=cell, inner=inner, lost=lost,
                       stores=tuple(_rewrite(s, rewrite) for s in f.stores))  # type: ignore[misc]

    reduced = [(name, size) for name, _, size in reversed(serial)]
    swept = [reduced.pop()] if sweep > 1 else []
    order = (*columns[:outer], *reduced, *columns[outer:], *swept)
    return replace(phase, body=tuple(_rewrite(s, rewrite) for s in phase.body), folds=tuple(map(nested, phase.folds)),
                   axes=order, outer=outer, block=block, streams=streams, sweep=sweep)


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


def _guard(guard: Guard, rewrite: Rewrite) -> Guard:
    return tuple(Within(rewrite(c.index), c.low, c.high) for c in guard)


def _rewrite(stmt: Stmt, rewrite: Rewrite) -> Stmt:
    if isinstance(stmt, (Load, Store)):
        return replace(stmt, index=rewrite(stmt.index), guard=_guard(stmt.guard, rewrite))
    if isinstance(stmt, FromIndex):
        return replace(stmt, index=rewrite(stmt.index))
    if isinstance(stmt, Choose):
        return replace(stmt, guard=_guard(stmt.guard, rewrite))
    assert isinstance(stmt, (Compute, Clamp))
    return stmt


# ---------------------------------------------------------------- views
def _with_views(phase: Phase, names: dict[tuple[str, Index, Guard], str]) -> Phase:
    """Turn accesses that are affine in the innermost axis, or a sweep's two, into accesses of a view; ``names`` are the
    segment's.

    Where a guard holds for a whole row or for none of it, the window is taken either way (from the buffer's beginning where it
    fails), every element is loaded, and zero is chosen instead: a branch would keep the loop from being vectorised. Where it
    holds for a piece of a loop that is cut, the window is that piece's.

    Before:  for col in 1..1000:  v = x[row * 1000 + col - 1] if col >= 1
    After:   x_0 = x[row * 1000 : +999]
             for col in 1..1000:  v = x_0[col - 1]
    """
    inner = dict(phase.axes[-1:] if phase.sweep == 1 else phase.axes[-2:])
    loops = [name for name, _ in phase.axes]
    views: dict[tuple[str, Index, Guard], View] = {}

    def window(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, (Load, Store)) or (isinstance(stmt, Load) and stmt.clamp):
            return stmt
        mine = [(c, a) for c, a in stmt.index.terms if any(_depends(a, name) for name in inner)]
        rest = Index(stmt.index.const, tuple(t for t in stmt.index.terms if t not in mine))
        fixed = rest.variables
        whole = [c for c, a in mine for name, size in inner.items() if a == Digit(name, 1, size) and c > 0]
        if not mine or len(whole) != len(mine) or len(mine) > len(inner) or any(v.startswith("at") for v in fixed):
            return stmt
        piece = [c for c in stmt.guard if phase.cuts and c.span(*phase.axes[-1])]
        guard = tuple(c for c in stmt.guard if c not in piece)
        asked = {name for c in guard for name in c.index.variables}
        if stmt.guard and (isinstance(stmt, Store) or asked & inner.keys() or any(v.startswith("at") for v in asked)):
            return stmt  # part of the window may lie outside
        fixed |= asked
        length, place = Index(0, tuple(mine)).bounds[1] + 1, Index(0, tuple(mine))
        if piece:
            spans = [c.span(*phase.axes[-1]) or (0, 0) for c in piece]
            first, last = max(low for low, _ in spans), min(high for _, high in spans)
            rest, place, length = rest + whole[0] * first, place + -whole[0] * first, whole[0] * (last - first - 1) + 1
        if length < 1:
            return stmt  # no column is in it
        key = (stmt.buffer, rest, guard)
        if key not in views:
            depth = max((k + 1 for k, name in enumerate(loops) if name in fixed), default=0)
            taken = sum(buffer == stmt.buffer for buffer, *_ in names) if key not in names else 0
            name = names.setdefault(key, f"{stmt.buffer}_row{taken or ''}")
            views[key] = View(name, stmt.buffer, rest, length, depth, guard)
        elif views[key].length < length:
            views[key] = replace(views[key], length=length)
        seen = replace(stmt, buffer=views[key].name, index=place)
        return replace(seen, harmless=bool(guard)) if isinstance(seen, Load) else seen

    body = tuple(window(s) for s in phase.body)
    return replace(phase, body=body, views=tuple(sorted(views.values(), key=lambda v: v.depth)))


def _with_cuts(phase: Phase, split: bool) -> Phase:
    """Cut the innermost loop, if it runs over columns and always over as many, where guards of it alone begin and cease to hold:
    unless that is in more places than a few."""
    if not phase.inner or phase.axes[-1] != phase.inner[-1] or phase.block or (split and len(phase.inner) == 1):
        return phase
    name, size = phase.axes[-1]
    spans = [c.span(name, size) for s in phase.body if isinstance(s, (Load, Choose, Store)) for c in s.guard]
    cuts = sorted({edge for span in spans if span for edge in span if 0 < edge < size})
    return replace(phase, cuts=tuple(cuts)) if len(cuts) <= MOST_CUTS else phase


def _depends(atom: object, name: str) -> bool:
    if isinstance(atom, (Quotient, Remainder)):
        return name in atom.of.variables
    return (atom.name if isinstance(atom, Loaded) else atom.var) == name  # type: ignore[attr-defined]
