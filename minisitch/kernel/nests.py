"""Nests as passes and models ask of them: rewriting their statements, every access that they make, and how
many statements they are.

In:  a nest of ``kernel.ir``. Out: another nest, or its accesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..stitch.index import Guard, Index
from .ir import (
    Accumulate,
    Combine,
    Fold,
    If,
    Kernel,
    Load,
    Loop,
    Nest,
    Phase,
    Segment,
    Start,
    Stmt,
    Store,
    VectorMove,
    place_of,
    walk,
)


def rewritten(nest: Nest, change: Callable[[Stmt], Nest]) -> Nest:
    """The nest with each statement replaced by what ``change`` makes of it, bodies first.

    An ``If`` whose body is empty goes.
    """
    found: list[Stmt] = []
    for stmt in nest:
        if isinstance(stmt, Loop | If):
            stmt = replace(stmt, body=rewritten(stmt.body, change))
        if not (isinstance(stmt, If) and not stmt.body):
            found += change(stmt)
    return tuple(found)


def with_accesses(phase: Phase, change: Callable[[Load | Store], Load | Store]) -> Phase:
    """The phase with each load and store replaced."""
    return replace(phase, nest=rewritten(phase.nest, lambda stmt: (change(stmt) if isinstance(stmt, Load | Store) else stmt,)))


def with_folds(nest: Nest, change: Callable[[Fold], Fold]) -> Nest:
    """The nest with each fold replaced, in all of its steps."""
    def changed(stmt: Stmt) -> Nest:
        if isinstance(stmt, Start | Accumulate):
            return (replace(stmt, fold=change(stmt.fold)),)
        if isinstance(stmt, Combine):
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
    after_fold: bool = False  # it comes behind a ``Combine``


def accesses(segment: Segment, nest: Nest) -> Iterator[Access]:
    """Every access that statements of a segment make, in order."""
    after = False
    for stmt, _ in walk(nest):
        after = after or isinstance(stmt, Combine)
        if isinstance(stmt, Load | Store):
            yield Access(*place_of(segment, stmt), isinstance(stmt, Store), stmt.guard, after)
        elif isinstance(stmt, VectorMove):
            yield Access(stmt.buffer, stmt.index, stmt.stores)


def statements_of(kernel: Kernel) -> int:
    """Scalar statements and moves that are compiled. An unrolled loop's count once a turn."""
    phases = [phase for segment in kernel.segments for phase in segment.phases]
    moves = sum(isinstance(s, VectorMove) for p in phases for s, _ in walk(p.nest))
    return moves + sum(len(p.before) + len(p.folds) for p in phases) + sum(
        math.prod(x.last for x in i.loops if x.kind == "unrolled") * len(i.body) for p in phases for i in p.innermost)
