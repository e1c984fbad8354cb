"""Nests as passes and models ask of them: their statements rewritten, accesses, and counts.

In:  a nest of ``kernel.ir``. Out: another nest, or its accesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import KernelError
from ..stitch.index import Guard, Index
from . import ir


def rewritten(nest: ir.Nest, change: Callable[[ir.Stmt], ir.Nest]) -> ir.Nest:
    """The nest with each statement replaced by what ``change`` makes of it, bodies first.

    An ``If`` whose body is empty goes. Raises KernelError if ``change`` returns no tuple.
    """
    found: list[ir.Stmt] = []
    for stmt in nest:
        if isinstance(stmt, ir.Loop | ir.If):
            stmt = replace(stmt, body=rewritten(stmt.body, change))
        if not (isinstance(stmt, ir.If) and not stmt.body):
            made = change(stmt)
            if not isinstance(made, tuple):
                raise KernelError(f"change returned {type(made).__name__}, expected a tuple of Stmt, for: {ir.show_stmt(stmt)}")
            found += made
    return tuple(found)


def with_phases(kernel: ir.Kernel, change: Callable[[ir.Segment, ir.Phase], ir.Phase]) -> ir.Kernel:
    """The kernel with each phase replaced by what ``change`` makes of it."""
    segments = (replace(s, phases=tuple(change(s, p) for p in s.phases)) for s in kernel.segments)
    return replace(kernel, segments=tuple(segments))


def with_operands(stmt: ir.Stmt, names: Mapping[str, str]) -> ir.Stmt:
    """The statement with other names for the values that it reads."""
    if isinstance(stmt, ir.Accumulate):
        return replace(stmt, fold=replace(stmt.fold, value=names.get(stmt.fold.value, stmt.fold.value)))
    changed: dict[str, Any] = {field: names[getattr(stmt, field)] for field in ir.OPERANDS if getattr(stmt, field, "") in names}
    if isinstance(stmt, ir.Compute):
        changed["args"] = tuple(names.get(a, a) for a in stmt.args)
    return replace(stmt, **changed) if changed else stmt


def with_indices(stmt: ir.Stmt, change: Callable[[Index], Index]) -> ir.Stmt:
    """The statement with each index replaced, those of its guard included."""
    changed: dict[str, Any] = {"index": change(stmt.index)} if isinstance(stmt, ir.Load | ir.Store | ir.FromIndex) else {}
    if isinstance(stmt, ir.Load | ir.Store | ir.Choose):
        changed["guard"] = tuple(replace(c, index=change(c.index)) for c in stmt.guard)
    return replace(stmt, **changed) if changed else stmt


def with_accesses(phase: ir.Phase, change: Callable[[ir.Load | ir.Store], ir.Load | ir.Store]) -> ir.Phase:
    """The phase with each load and store replaced."""
    return replace(phase, nest=rewritten(phase.nest, lambda s: (change(s) if isinstance(s, ir.Load | ir.Store) else s,)))


def with_folds(nest: ir.Nest, change: Callable[[ir.Fold], ir.Fold]) -> ir.Nest:
    """The nest with each fold replaced, in all of its steps."""
    def changed(stmt: ir.Stmt) -> ir.Nest:
        if isinstance(stmt, ir.Start | ir.Accumulate):
            return (replace(stmt, fold=change(stmt.fold)),)
        if isinstance(stmt, ir.Combine):
            return (replace(stmt, folds=tuple(map(change, stmt.folds))),)
        return (stmt,)

    return rewritten(nest, changed)


@dataclass(frozen=True)
class Access:
    """One place of a nest where a buffer is read, or written if it ``stores``.

    An access through a window names the buffer of the window.
    """

    buffer: str
    index: Index
    stores: bool
    guard: Guard = ()
    after_fold: bool = False  # it comes after a ``Combine``


def accesses(segment: ir.Segment, nest: ir.Nest) -> Iterator[Access]:
    """Every access that statements of a segment make, in order."""
    after = False
    for stmt, _ in ir.walk(nest):
        after = after or isinstance(stmt, ir.Combine)
        if isinstance(stmt, ir.Load | ir.Store | ir.VectorMove):
            yield Access(*ir.place_of(segment, stmt), ir.is_store(stmt), getattr(stmt, "guard", ()), after)


def statements_of(kernel: ir.Kernel) -> int:
    """Scalar statements and moves that are compiled. An unrolled loop's count once a turn."""
    phases = [phase for segment in kernel.segments for phase in segment.phases]
    found = 0
    for phase in phases:
        found += len(phase.before) + len(phase.folds) + sum(1 for _ in ir.each(phase.nest, ir.VectorMove))
        for inner in phase.innermost:
            found += math.prod(loop.last for loop in inner.loops if loop.kind == "unrolled") * len(inner.body)
    return found
