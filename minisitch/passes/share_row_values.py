"""Computation reuse: what is computed once a row is computed by one phase (FusionStitching 2020, section 6.4).

In:  a kernel. Out: the same kernel; a loop reads what an earlier loop of its row has in a register.

``schedule`` writes each loop by itself, so two loops that need the same value of a row both compute it. Every thread computes
what is once a row, and its registers live from loop to loop, so the second loop can read what the first one has. Values inside a
loop are not reused: another turn, or another thread, made them. Index arithmetic is left to the compiler, which sees all of it.

Before:  phase 2: once v13 = sqrt v12 ... phase 3: once v13_1 = sqrt v12_1      After:  phase 3 reads v13
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..kernel.ir import Choose, Clamp, Compute, Fold, FromIndex, Kernel, Load, Phase, Segment, Stmt, Store
from ..schedule import touches
from .registry import kernel_pass


@kernel_pass("share_row_values")
def share_row_values(kernel: Kernel) -> Kernel:
    """Compute what several loops of a row need once, and count the accesses that are left."""
    inputs = [b.name for b in kernel.buffers if b.scope == "input"]
    segments = tuple(replace(s, phases=tuple(reuse(s.phases, inputs))) for s in kernel.segments)
    if _computed_once(segments) == _computed_once(kernel.segments):
        return kernel
    plain = not any(p.views or p.wide for s in segments for p in s.phases)
    return replace(kernel, segments=segments, touches=touches(segments, kernel.by_name) if plain else kernel.touches)


def _computed_once(segments: Sequence[Segment]) -> int:
    return sum(len(p.before) for s in segments for p in s.phases)


def reuse(phases: Sequence[Phase], inputs: Collection[str]) -> list[Phase]:
    """Drop each statement before a loop that an earlier one equals; ``inputs`` are buffers that no statement writes."""
    known: dict[Stmt, str] = {}
    names: dict[str, str] = {}
    at: dict[str, Clamp] = {}  # what each position now is: loops number theirs from 0
    found = []
    for phase in phases:
        before: list[Stmt] = []
        for stmt in phase.before:
            stmt = _renamed(stmt, names) if names else stmt
            if isinstance(stmt, Clamp) and at.setdefault(stmt.target, stmt) != stmt:
                at[stmt.target] = stmt
                known = {s: name for s, name in known.items() if stmt.target not in _positions(s)}
            if isinstance(stmt, (Store, Clamp)) or (isinstance(stmt, Load) and stmt.buffer not in inputs):
                before.append(stmt)
                continue
            first = known.setdefault(replace(stmt, target=""), stmt.target)
            if first == stmt.target:
                before.append(stmt)
            else:
                names[stmt.target] = first
        folds = tuple(_renamed_fold(f, names) for f in phase.folds) if names else phase.folds
        body = tuple(_renamed(s, names) for s in phase.body) if names else phase.body
        found.append(replace(phase, before=tuple(before), body=body, folds=folds))
    return found


def _positions(stmt: Stmt) -> frozenset[str]:
    """The integers read from memory that decide what it reads, and whether."""
    indices = [stmt.index] if isinstance(stmt, (Load, FromIndex, Store)) else []
    guard = stmt.guard if isinstance(stmt, (Load, Choose, Store)) else ()
    return frozenset().union(*(i.loaded for i in (*indices, *(c.index for c in guard))))


def _renamed(stmt: Stmt, names: dict[str, str]) -> Stmt:
    if isinstance(stmt, Compute):
        return replace(stmt, args=tuple(names.get(a, a) for a in stmt.args))
    if isinstance(stmt, Clamp):
        return replace(stmt, source=names.get(stmt.source, stmt.source))
    if isinstance(stmt, Choose):
        return replace(stmt, value=names.get(stmt.value, stmt.value), other=names.get(stmt.other, stmt.other))
    return replace(stmt, value=names.get(stmt.value, stmt.value)) if isinstance(stmt, Store) else stmt


def _renamed_fold(fold: Fold, names: dict[str, str]) -> Fold:
    stores = tuple(replace(s, value=names.get(s.value, s.value)) for s in fold.stores)
    return replace(fold, value=names.get(fold.value, fold.value), stores=stores)
