"""What passes and models ask of a nest: its statements rewritten or sorted, accesses, counts.

In:  a nest of ``kernel.ir``. Out: another nest, its statements, or its accesses.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, dropwhile, takewhile
from operator import is_, is_not
from typing import Any

from ..errors import KernelError
from ..errors.lazy import lazy
from ..stitch.index import Guard, Index
from . import Kernel, ir
from .show import show_stmt

HEAVY = 8  # light operations that take a core as long as a heavy one (measured: exp and a division)


def rewritten(nest: ir.Nest, change: Callable[[ir.Stmt], ir.Nest]) -> ir.Nest:
    """The nest with each statement replaced by what ``change`` makes of it, bodies first.

    The nest itself if that is nothing new. An ``If`` whose body is empty goes. Raises KernelError
    if ``change`` returns no tuple.
    """
    found: list[ir.Stmt] = []
    for stmt in nest:
        if isinstance(stmt, ir.Loop | ir.If) and (body := rewritten(stmt.body, change)) is not stmt.body:
            stmt = replace(stmt, body=body)
        if not (isinstance(stmt, ir.If) and not stmt.body):
            made = change(stmt)
            if not isinstance(made, tuple):
                raise KernelError(f"change returned {type(made).__name__}, expected a tuple of Stmt, for: {show_stmt(stmt)}")
            found += made
    return nest if len(found) == len(nest) and all(map(is_, found, nest)) else tuple(found)


def with_nest(phase: ir.Phase, nest: ir.Nest) -> ir.Phase:
    """The phase with another nest. Itself if the nest is its own."""
    return phase if nest is phase.nest else replace(phase, nest=nest)


def with_phases(kernel: Kernel, change: Callable[[ir.Segment, ir.Phase], ir.Phase]) -> Kernel:
    """The kernel with each phase replaced by what ``change`` makes of it. Itself if that is nothing new."""
    made = [tuple(change(s, p) for p in s.phases) for s in kernel.segments]
    if all(map(is_, chain(*made), (p for s in kernel.segments for p in s.phases))):
        return kernel
    segments = (replace(s, phases=phases) for s, phases in zip(kernel.segments, made, strict=True))
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
    return with_nest(phase, rewritten(phase.nest, lambda s: (change(s) if isinstance(s, ir.Load | ir.Store) else s,)))


def with_folds(nest: ir.Nest, change: Callable[[ir.Fold], ir.Fold]) -> ir.Nest:
    """The nest with each fold replaced, in all of its steps."""
    def changed(stmt: ir.Stmt) -> ir.Nest:
        if isinstance(stmt, ir.Start | ir.Accumulate) and (fold := change(stmt.fold)) is not stmt.fold:
            return (replace(stmt, fold=fold),)
        if isinstance(stmt, ir.Combine) and any(map(is_not, folds := tuple(map(change, stmt.folds)), stmt.folds)):
            return (replace(stmt, folds=folds),)
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


# ---------------------------------------------------------------- statements sorted
@dataclass(frozen=True)
class Innermost:
    """A loop with no other inside: itself, the ``loops`` around it, and its scalar statements."""

    loops: tuple[ir.Loop, ...]
    body: tuple[ir.Scalar, ...]


class PhaseParts:
    """The statements of a phase, sorted.

    ``before`` are those once a row, ``body`` those of the innermost loops, ``after`` those after a
    reduction.
    """

    def __init__(self, phase: ir.Phase) -> None:
        self.nest = phase.nest

    @lazy
    def statements(self) -> ir.Nest:
        """All of them, those in loops and conditions included."""
        return tuple(s for s, _ in ir.walk(self.nest))

    @lazy
    def innermost(self) -> tuple[Innermost, ...]:
        """The innermost loops in order: several if a loop is in pieces.

        Loops that only begin or end a reduction are left out.
        """
        found = []
        for stmt, around in ir.walk(self.nest):
            if isinstance(stmt, ir.Loop) and not any(isinstance(s, ir.Loop) for s, _ in ir.walk(stmt.body)):
                inside = [s for s, _ in ir.walk(stmt.body)]
                first = takewhile(lambda s: not isinstance(s, ir.Combine), inside)
                body = tuple(s for s in first if isinstance(s, ir.Scalar))
                if body or not inside or any(isinstance(s, ir.Accumulate) for s in inside):
                    found.append(Innermost((*around, stmt), body))
        return tuple(found)

    @lazy
    def body(self) -> tuple[ir.Scalar, ...]:
        """What it does for each column and reduced row: in the longest piece of its loop."""
        return max((i.body for i in self.innermost), key=len, default=())

    @lazy
    def after(self) -> tuple[ir.Scalar, ...]:
        """What follows a reduction's end."""
        ended = dropwhile(lambda s: not isinstance(s, ir.Combine), self.statements)
        return tuple(s for s in ended if isinstance(s, ir.Scalar))

    @lazy
    def before(self) -> tuple[ir.Scalar, ...]:
        """What it does once a row, before its columns."""
        elsewhere = {id(s) for s in (*self.after, *(s for i in self.innermost for s in i.body))}
        return tuple(s for s in self.statements if isinstance(s, ir.Scalar) and id(s) not in elsewhere)

    @lazy
    def folds(self) -> tuple[ir.Fold, ...]:
        """Its reductions, each once. If parts have totals: only the fold that adds these up."""
        found = {s.fold.result: s.fold for s in ir.each(self.nest, ir.Accumulate)}
        totals = {f.value for f in found.values()}
        return tuple(f for f in found.values() if f.result not in totals)


def parts(phase: ir.Phase) -> PhaseParts:
    """The sorted statements of a phase. The phase keeps them for the next call."""
    if "_parts" not in vars(phase):
        vars(phase)["_parts"] = PhaseParts(phase)
    found: PhaseParts = vars(phase)["_parts"]
    return found


# ---------------------------------------------------------------- counts
def work_of(segment: ir.Segment) -> int:
    """Scalar operations of all tasks together. A heavy one counts as ``HEAVY``.

    Several cores share a segment that has at least ``Device.serial_below`` of them.
    """
    def weight(body: Sequence[ir.Scalar]) -> int:
        return len(body) + (HEAVY - 1) * sum(isinstance(s, ir.Compute) and s.heavy for s in body)

    total = 0
    for phase in segment.phases:
        each_turn = weight(parts(phase).body) + len(parts(phase).folds)
        total += phase.cols * phase.serial * each_turn + weight(parts(phase).before)
    return segment.rows * total


def statements_of(kernel: Kernel) -> int:
    """Scalar statements and moves that are compiled. An unrolled loop's count once a turn."""
    phases = [phase for segment in kernel.segments for phase in segment.phases]
    found = 0
    for phase in phases:
        moves = sum(1 for _ in ir.each(phase.nest, ir.VectorMove))
        found += len(parts(phase).before) + len(parts(phase).folds) + moves
        for inner in parts(phase).innermost:
            found += math.prod(loop.last for loop in inner.loops if loop.by == "unrolled") * len(inner.body)
    return found
