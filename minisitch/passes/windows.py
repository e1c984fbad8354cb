"""Windows: an access that moves with the innermost loop reads a view of its row.

In:  a kernel for a CPU. Out: the same kernel; what is affine in the innermost axis is accessed through views.

Numba guards an index that it cannot prove non-negative, and that stops vectorisation (measured).

Before:  for col in 0..1024:  v = x[row * 1024 + col]
After:   x_row = x[row * 1024 : +1024]
         for col in 0..1024:  v = x_row[col]
"""

from __future__ import annotations

from dataclasses import replace

from ..kernel.ir import Kernel, Load, Phase, Segment, Stmt, Store, View
from ..stitch.index import Digit, Guard, Index, Loaded, Quotient, Remainder
from .registry import kernel_pass


@kernel_pass("windows", "cpu")
def windows(kernel: Kernel) -> Kernel:
    """Take views of what the innermost loops access."""
    if "windows" in kernel.passes:
        return kernel
    return replace(kernel, segments=tuple(map(_with_views_of_segment, kernel.segments)))


def _with_views_of_segment(segment: Segment) -> Segment:
    """The phases of a segment share views, so each view is as long as any of them needs."""
    names: dict[tuple[str, Index, Guard], str] = {}
    phases = [_with_views(p, names) for p in segment.phases]
    longest: dict[str, int] = {}
    for view in (v for p in phases for v in p.views):
        longest[view.name] = max(longest.get(view.name, 0), view.length)
    return replace(segment, phases=tuple(
        replace(p, views=tuple(replace(v, length=longest[v.name]) for v in p.views)) if p.views else p for p in phases))


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
        if not mine or len(whole) != len(mine) or len(mine) > len(inner) or rest.loaded:
            return stmt
        piece = [c for c in stmt.guard if phase.cuts and c.span(*phase.axes[-1])]
        guard = tuple(c for c in stmt.guard if c not in piece)
        asked = {name for c in guard for name in c.index.variables}
        if stmt.guard and (isinstance(stmt, Store) or asked & inner.keys() or any(c.index.loaded for c in guard)):
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


def _depends(atom: object, name: str) -> bool:
    if isinstance(atom, (Quotient, Remainder)):
        return name in atom.of.variables
    return (atom.name if isinstance(atom, Loaded) else atom.var) == name  # type: ignore[attr-defined]
