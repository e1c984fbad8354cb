"""How statements read in a printed kernel.

In:  statements of ``ir``. Out: lines of text, which ``Kernel`` and error messages show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..fuse import count
from ..stitch.index import Guard, show
from . import ir

# Which turns of a loop one task takes (``Loop.part``), in words.
PARTS = {"chunk": "this chunk's", "chunk_turns": "this chunk's", "slice": "this slice's"}


def show_segment(number: int, segment: ir.Segment) -> Iterator[str]:
    """The lines of a segment and of all that is in it."""
    parts = [f"row in 0..{segment.rows}"]
    if segment.chunks > 1:
        parts.append(f"chunk in 0..{segment.chunks} of {count(segment.chunk, 'column')}")
    if segment.slices > 1:
        parts.append(f"slice in 0..{segment.slices} of {count(segment.slice_size, 'reduced row')}")
    if segment.step > 1:
        parts.append(f"{segment.step} rows at once")
    yield f"  segment {number}: {', '.join(parts)}"
    yield from _show_nest(segment.opening, segment.totals(), 2)
    for p, phase in enumerate(segment.phases):
        yield f"    phase {p}"
        yield from _show_nest(phase.nest, segment.totals(phase), 3)
    yield from _show_nest(segment.closing, segment.totals(), 2)
    if segment.barrier == "grid":
        yield "    barrier: grid"


def _show_nest(nest: ir.Nest, totals: Mapping[str, int], depth: int) -> Iterator[str]:
    totals = {**totals, **ir.extents(nest)}
    for stmt in nest:
        yield "  " * depth + show_stmt(stmt, totals)
        if isinstance(stmt, ir.Loop | ir.If):
            yield from _show_nest(stmt.body, totals, depth + 1)


def show_stmt(stmt: ir.Stmt, totals: Mapping[str, int] | None = None) -> str:
    """One statement as a line of the printed kernel; ``totals`` as in ``index.show``."""
    match stmt:
        case ir.Loop():
            turns, part = f"{stmt.var} in {stmt.first}..{stmt.last}", PARTS.get(stmt.part, "")
            kind = "" if stmt.kind == "serial" else stmt.kind
            words = [turns, part, "in the row" if stmt.within else "", kind]
            return f"for {', '.join(filter(None, words))}:"
        case ir.If():
            return f"if {stmt.condition}:"
        case ir.Let():
            return f"{stmt.name} = {stmt.text}"
        case ir.Barrier():
            return f"barrier: {stmt.scope}"
        case ir.Combine(folds):
            ends = ", exchanged by warps: block barrier" if any(f.exchange for f in folds) else ""
            return f"combine {' '.join(f.result for f in folds)}{ends}"
        case ir.Window():
            return f"{stmt.name} = {stmt.buffer}[{show(stmt.index, totals)} : +{stmt.length}]{_where(stmt.guard, totals)}"
        case ir.Start(fold) | ir.Accumulate(fold):
            cell = f"{fold.buffer}[{show(fold.cell, totals)}]" if fold.buffer else fold.result
            text = f"{fold.op} {fold.value} -> {cell}  along {fold.along}"
            return f"{f'{cell} = start of {fold.op}' if isinstance(stmt, ir.Start) else text}  # %{fold.node}"
        case _:
            return f"{_show_value(stmt, totals)}  # %{stmt.node}"


def _where(guard: Guard, totals: Mapping[str, int] | None) -> str:
    conditions = (f"{c.low} <= {show(c.index, totals)} < {c.high}" for c in guard)
    return f" if {' and '.join(conditions)}" if guard else ""


def _show_value(stmt: ir.Scalar | ir.VectorMove, totals: Mapping[str, int] | None) -> str:
    """A statement that computes or moves a value, without its node."""
    match stmt:
        case ir.Load():
            end = _where(stmt.guard, totals) or (" clamped" if stmt.clamp else "")
            return f"{stmt.target} = {stmt.buffer}[{show(stmt.index, totals)}]{end}"
        case ir.Store():
            return f"{stmt.buffer}[{show(stmt.index, totals)}] = {stmt.value}{_where(stmt.guard, totals)}"
        case ir.Compute():
            return f"{stmt.target} = {stmt.op} {' '.join(stmt.args)}"
        case ir.FromIndex():
            return f"{stmt.target} = {show(stmt.index, totals)}"
        case ir.Clamp():
            return f"{stmt.target} = clamp {stmt.source} to 0..{stmt.size}"
        case ir.Choose():
            other = f"{_where(stmt.guard, totals)} else {stmt.other}" if stmt.guard else ""
            return f"{stmt.target} = {stmt.value}{other}"
        case ir.VectorMove():
            here = f"{stmt.registers}[{show(stmt.at, totals)} : +{stmt.columns}]"
            there = f"{stmt.buffer}[{show(stmt.index, totals, {'col': ir.FIRST})} : +{stmt.columns}]"
            return f"{there} = {here}" if stmt.stores else f"{here} = {there}"
