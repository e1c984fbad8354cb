"""How statements read in a printed kernel.

In:  statements of ``ir``. Out: lines of text, which ``Kernel`` and error messages show.
"""

from collections.abc import Iterator, Mapping

from ..fuse import count
from ..stitch.index import Guard, Within, show, variables_of
from . import ir

Around = Mapping[str, int] | None  # extents of the variables around a statement (``index.show``)
# Which turns of a loop one task takes, in words, by the variable on which they depend.
PARTS = {"start": "this chunk's", "slice": "this slice's"}


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
    yield from _show_nest(segment.opening, segment.extents(), 2)
    for p, phase in enumerate(segment.phases):
        yield f"    phase {p}"
        yield from _show_nest(phase.nest, segment.extents(phase), 3)
    yield from _show_nest(segment.closing, segment.extents(), 2)
    if segment.barrier == "grid":
        yield "    barrier: grid"


def _show_nest(nest: ir.Nest, extents: Mapping[str, int], depth: int) -> Iterator[str]:
    extents = {**extents, **ir.extents(nest)}
    for stmt in nest:
        yield "  " * depth + show_stmt(stmt, extents)
        if isinstance(stmt, ir.Loop | ir.If):
            yield from _show_nest(stmt.body, extents, depth + 1)


def show_stmt(stmt: ir.Stmt, extents: Around = None) -> str:
    """One statement as a line of the printed kernel; ``extents`` as in ``index.show``."""
    match stmt:
        case ir.Loop():
            names = variables_of((stmt.first, *(c.index for c in stmt.within)))
            first = max([stmt.first.const, *(c.low for c in stmt.within)])
            cut = any(c.index.variables - {stmt.var, "start"} and stmt.var in c.index.variables for c in stmt.within)
            words = [f"{stmt.var} in {first}..{stmt.last}", *(text for name, text in PARTS.items() if name in names),
                     "in the row" * (cut and stmt.by != "rows"), stmt.by * (stmt.by != "one")]
            return f"for {', '.join(filter(None, words))}:"
        case ir.If():
            return f"if {' and '.join(_condition(c, extents) for c in stmt.guard)}:"
        case ir.Let():
            return f"{stmt.name} = {show(stmt.value, extents)}"
        case ir.Barrier():
            return f"barrier: {stmt.scope}"
        case ir.Combine(folds):
            ends = ", exchanged by warps: block barrier" if any(f.exchange for f in folds) else ""
            return f"combine {' '.join(f.result for f in folds)}{ends}"
        case ir.Window():
            return f"{stmt.name} = {stmt.buffer}[{show(stmt.index, extents)} : +{stmt.length}]{_where(stmt.guard, extents)}"
        case ir.Start(fold) | ir.Accumulate(fold):
            cell = f"{fold.buffer}[{show(fold.cell, extents)}]" if fold.buffer else fold.result
            text = f"{fold.op} {fold.value} -> {cell}  along {fold.along}"
            return f"{f'{cell} = start of {fold.op}' if isinstance(stmt, ir.Start) else text}  # %{fold.node}"
        case _:
            return f"{_show_value(stmt, extents)}  # %{stmt.node}"


def _where(guard: Guard, extents: Around) -> str:
    conditions = (f"{c.low} <= {show(c.index, extents)} < {c.high}"
                  for c in guard)
    return f" if {' and '.join(conditions)}" if guard else ""


def _condition(c: Within, extents: Around) -> str:
    if c.high - c.low == 1:
        return f"{show(c.index, extents)} == {c.low}"
    return f"{c.low} <= " * (c.low > 0) + f"{show(c.index, extents)} < {c.high}"


def _show_value(stmt: ir.Scalar | ir.VectorMove, extents: Around) -> str:
    """A statement that computes or moves a value, without its node."""
    match stmt:
        case ir.Load():
            end = _where(stmt.guard, extents) or (" clamped" if stmt.clamp else "")
            return f"{stmt.target} = {stmt.buffer}[{show(stmt.index, extents)}]{end}"
        case ir.Store():
            return f"{stmt.buffer}[{show(stmt.index, extents)}] = {stmt.value}{_where(stmt.guard, extents)}"
        case ir.Compute():
            return f"{stmt.target} = {stmt.op} {' '.join(stmt.args)}"
        case ir.FromIndex():
            return f"{stmt.target} = {show(stmt.index, extents)}"
        case ir.Clamp():
            return f"{stmt.target} = clamp {stmt.source} to 0..{stmt.size}"
        case ir.Choose():
            other = f"{_where(stmt.guard, extents)} else {stmt.other}" if stmt.guard else ""
            return f"{stmt.target} = {stmt.value}{other}"
        case ir.VectorMove():
            here = f"{stmt.registers}[{show(stmt.at, extents)} : +{stmt.columns}]"
            there = f"{stmt.buffer}[{show(stmt.index, extents, {'col': ir.FIRST})} : +{stmt.columns}]"
            return f"{there} = {here}" if stmt.stores else f"{here} = {there}"
