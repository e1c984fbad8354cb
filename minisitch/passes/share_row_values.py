"""Computation reuse: what is computed once a row is computed by one phase (FusionStitching 2020, section 6.4).

In:  a kernel. Out: the same kernel; a loop reads what an earlier loop of its row has in a register.

``schedule`` writes each loop by itself, so two loops that need the same value of a row both compute
it. A statement outside the column loop runs once a row, in every thread. Its register is still there
in later loops of the row, so a later loop reads it instead of computing it again. Values inside a
loop are not reused: another turn, or another thread, made them. Index arithmetic is left to the
compiler, which sees all of it.

Before:  phase 2: v13 = sqrt v12; for col ...      phase 3: v13_1 = sqrt v12_1; for col ...
After:   phase 3 reads v13
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..kernel import ir
from ..kernel.nests import rewritten
from .registry import kernel_pass


@kernel_pass("share_row_values")
def share_row_values(kernel: ir.Kernel) -> ir.Kernel:
    """Compute what several loops of a row need once."""
    inputs = [b.name for b in kernel.buffers if b.scope == "input"]
    segments = tuple(replace(s, phases=tuple(reuse(s.phases, inputs))) for s in kernel.segments)
    if _computed_once(segments) == _computed_once(kernel.segments):
        return kernel
    return replace(kernel, segments=segments)


def _computed_once(segments: Sequence[ir.Segment]) -> int:
    return sum(len(p.before) for s in segments for p in s.phases)


def reuse(phases: Sequence[ir.Phase], inputs: Collection[str]) -> list[ir.Phase]:
    """The phases without what an earlier phase has computed once a row.

    ``inputs`` are buffers that no statement writes.
    """
    known: dict[ir.Scalar, str] = {}
    names: dict[str, str] = {}
    at: dict[str, ir.Clamp] = {}  # the gathers' indices at present: each loop numbers its own from 0
    def reused(stmt: ir.Stmt) -> ir.Nest:
        """The statement with names of earlier values, or nothing if an earlier one that is computed once equals it."""
        nonlocal known
        once, stmt = id(stmt) in before, _renamed(stmt, names)
        if not once or isinstance(stmt, ir.Store):
            return (stmt,)
        if isinstance(stmt, ir.Clamp) and at.setdefault(stmt.target, stmt) != stmt:
            at[stmt.target] = stmt
            known = {s: name for s, name in known.items() if stmt.target not in _positions(s)}
        if isinstance(stmt, ir.Clamp) or (isinstance(stmt, ir.Load) and stmt.buffer not in inputs):
            return (stmt,)
        assert isinstance(stmt, ir.Compute | ir.Choose | ir.FromIndex | ir.Load)
        first = known.setdefault(replace(stmt, target=""), stmt.target)
        if first == stmt.target:
            return (stmt,)
        names[stmt.target] = first
        return ()

    found = []
    for phase in phases:
        before = {id(s) for s in phase.before}
        found.append(replace(phase, nest=rewritten(phase.nest, reused)))
    return found


def _positions(stmt: ir.Scalar) -> frozenset[str]:
    """The integers read from memory that decide what it reads, and whether."""
    indices = [stmt.index] if isinstance(stmt, (ir.Load, ir.FromIndex, ir.Store)) else []
    guard = stmt.guard if isinstance(stmt, (ir.Load, ir.Choose, ir.Store)) else ()
    return frozenset().union(*(i.loaded for i in (*indices, *(c.index for c in guard))))


def _renamed(stmt: ir.Stmt, names: dict[str, str]) -> ir.Stmt:
    """The statement with other names for what it reads."""
    if not names:
        return stmt
    if isinstance(stmt, ir.Compute):
        return replace(stmt, args=tuple(names.get(a, a) for a in stmt.args))
    if isinstance(stmt, ir.Clamp):
        return replace(stmt, source=names.get(stmt.source, stmt.source))
    if isinstance(stmt, ir.Choose):
        return replace(stmt, value=names.get(stmt.value, stmt.value), other=names.get(stmt.other, stmt.other))
    if isinstance(stmt, ir.Accumulate):
        return replace(stmt, fold=replace(stmt.fold, value=names.get(stmt.fold.value, stmt.fold.value)))
    return replace(stmt, value=names.get(stmt.value, stmt.value)) if isinstance(stmt, ir.Store) else stmt
