"""Prefetching, for a CPU: rows that a gather will read are asked for some turns of its loop ahead.

In:  a segment whose loops are nested, and the kernel's buffers. Out: the same segment, its phases with ``Prefetch``es, and why.

A processor fetches by itself what lies behind what it reads. Where a gather's next row lies only its index array says, so a core
waits for each row's first line: rows of 16 bytes from a table of 160 MB took 19 ns each, asked for 16 rows ahead 11. So
the position of a later row is computed twice, the first time that much earlier (Ainsworth and Jones, "Software Prefetching for
Indirect Memory Accesses", CGO 2017, section 4). A row in a core's own caches is there anyway.

Before:  for row in ...:  at0 = clamp ids[row]
             for col in 0..24:  sum x[col + at0 * 24] * w_row[col]
After:   for row in ...:  at0_ahead16 = clamp ids[row + 16];  prefetch x[at0_ahead16 * 24 : +24];  at0 = clamp ids[row]
             for col in 0..24:  sum x[col + at0 * 24] * w_row[col]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from .fuse import Decision, count
from .index import Digit, Index, Loaded, Quotient, Remainder
from .kernel import (
    Buffer,
    Choose,
    Clamp,
    Compute,
    FromIndex,
    Load,
    Phase,
    Prefetch,
    Segment,
    Stmt,
    Store,
    indices,
    operands,
)
from .ops import itemsize

# Measured (benchmarks/gathers.py), rows of 16 bytes to 4 kB from tables of 1 to 160 MB: for short rows 4 turns are too few; rows of
# 800 bytes, 16 turns ahead, push out what else the nearest cache holds; how a long row goes on a processor sees by itself.
BYTES_AHEAD, FEWEST_AHEAD, MOST_AHEAD = 4096, 2, 16  # of rows, and turns
MOST_BYTES = 512  # of a row
MOST_STEPS = 12  # statements that are done a second time to know a position


def prefetch(segment: Segment, buffers: Mapping[str, Buffer], constants: Collection[str],
             near: int) -> tuple[Segment, tuple[Decision, ...]]:
    """The segment with prefetches of the rows it gathers from more than ``near`` bytes, and for each such table a decision.

    ``constants``: names of values that every loop has.
    """
    work = _Ahead(segment, buffers, constants, near)
    phases = tuple(map(work.phase, segment.phases))
    return replace(segment, phases=phases), tuple(work.decisions.values())


class _Unknown(Exception):
    """Why it cannot be known ahead where a row lies."""


class _Ahead:
    """One segment: what its loops make of what was there before it can be made ahead, for a later turn.

    Whatever is equal has one name here, though phases give it several, and give one name to several things: each has an ``at0``.
    """

    def __init__(self, segment: Segment, buffers: Mapping[str, Buffer], constants: Collection[str], near: int) -> None:
        self.segment, self.buffers, self.constants, self.near = segment, buffers, constants, near
        self.names: dict[str, str] = {}  # of a phase -> ours
        self.unknown: dict[str, str] = {}  # of a phase -> why it cannot be made ahead
        self.made: dict[str, Stmt] = {}  # ours -> how it is made of what has names of ours
        self.order: dict[str, int] = {}  # ours -> how many were made before it
        self.equal: dict[Stmt, str] = {}
        self.asked: set[tuple[str, Index]] = set()
        self.decisions: dict[tuple[int, str], Decision] = {}
        self.views, self.stored = {v.name: v for p in segment.phases for v in p.views}, segment.stored_buffers

    def phase(self, phase: Phase) -> Phase:
        """With the rows that it gathers asked for in the loop that they change with."""
        for stmt in (*phase.before, *phase.body):
            if not isinstance(stmt, Store):
                self._note(stmt)
        found: list[Prefetch] = []
        for load in [s for s in phase.body if isinstance(s, Load) and s.index.loaded and _row(s, phase.axes[-1:])[1] > 1]:
            try:
                row, verdict = self._ahead(phase, load), "prefetch"
                why = f"the first {row.columns} elements of its rows, {row.distance} turns ahead"
                if (row.buffer, row.index) not in self.asked:
                    self.asked.add((row.buffer, row.index))
                    known = {step for other in found for step in other.steps}
                    found.append(replace(row, steps=tuple(step for step in row.steps if step not in known)))
            except _Unknown as reason:
                verdict, why = "leave", str(reason)
            self.decisions.setdefault((load.node, verdict), Decision((load.node,), verdict, "gathered-rows", why))
        return replace(phase, prefetches=tuple(found))

    def _note(self, stmt: Stmt) -> None:
        """Remember how a value is made; where a condition would fail, of anything that is there."""
        if isinstance(stmt, Load):
            view = self.views.get(stmt.buffer)
            buffer, index = (view.buffer, view.base + stmt.index) if view else (stmt.buffer, stmt.index)
            stmt = Load(stmt.target, buffer, index, (), True, stmt.dtype, stmt.node)
        assert not isinstance(stmt, Store)
        phases_own = stmt.target
        try:
            self._require_known(stmt)
            made = _rewritten(stmt, self.names, partial(_named, names=self.names))
        except _Unknown as why:
            self.unknown[phases_own] = str(why)
            self.names.pop(phases_own, None)
            return
        fresh = phases_own if phases_own not in self.made else f"{phases_own}_{len(self.made)}"
        self.names[phases_own] = name = self.equal.setdefault(replace(made, target=""), fresh)
        self.order.setdefault(name, len(self.order))
        self.made.setdefault(name, replace(made, target=name))

    def _require_known(self, stmt: Stmt) -> None:
        """Raises _Unknown where a statement takes what is not there ahead, or long."""
        if isinstance(stmt, Choose):
            raise _Unknown("its positions are chosen among arrays")
        if isinstance(stmt, Compute) and stmt.heavy:
            raise _Unknown(f"its positions take a heavy operation, {stmt.op}")
        if isinstance(stmt, Load) and stmt.buffer in self.stored:
            raise _Unknown("its positions are made in the same segment")
        for name in operands(stmt):
            if name not in self.names and name not in self.constants:
                raise _Unknown(self.unknown.get(name, "its positions are results of the segment's own loops"))

    def _ahead(self, phase: Phase, load: Load) -> Prefetch:
        """The row that a load will gather some turns of its loop later. Raises _Unknown."""
        size = itemsize(self.buffers[load.buffer].dtype)
        if (nbytes := self.buffers[load.buffer].size * size) <= self.near:
            raise _Unknown(f"its {nbytes} B are no more than the {self.near} that should stay in a core's own caches")
        if self.segment.tile:
            raise _Unknown("its loops take a block of columns of many rows in turn")
        self._require_known(load)
        steps = self._steps(load.index.loaded)
        loops = [("row", self.segment.rows), *phase.axes[:-1]]
        moving = [i for s in steps.values() for i in indices(s)]
        depth = max((k for k, (name, _) in enumerate(loops) if any(name in i.variables for i in moving)), default=0)
        first, columns = _row(load, phase.axes[depth:])
        distance = min(MOST_AHEAD, max(FEWEST_AHEAD, BYTES_AHEAD // (max(1, columns) * size)))
        rows = max((_in_a_row(i, loops[:depth + 1]) for i in moving), default=1)
        rows *= self.segment.chunks if depth and phase.chunked else 1
        if rows < 2 * distance:
            raise _Unknown(f"another row is read {count(rows, 'time')} on end, fewer than {2 * distance}")
        names = {name: f"{name}_ahead{distance}" + (f"_{loops[depth][0]}" if depth else "") for name in steps}
        inside = {name for name, _ in phase.axes[depth:]}

        def later(index: Index) -> Index:
            return _named(_later(index, loops[depth], distance, inside), names)
        row = later(_named(first, self.names))
        return Prefetch(load.buffer, row, min(columns, MOST_BYTES // size), depth, distance,
                        tuple(_rewritten(s, names, later) for s in steps.values()), load.node)

    def _steps(self, positions: Collection[str]) -> dict[str, Stmt]:
        """What is done to know some positions of a phase, in order, by the names of its results."""
        wanted, needed = [self.names[name] for name in positions], set[str]()
        while wanted:
            needed.add(name := wanted.pop())
            wanted += [operand for operand in operands(self.made[name]) if operand not in needed and operand not in self.constants]
            if len(needed) > MOST_STEPS:
                raise _Unknown(f"its positions take more than {MOST_STEPS} statements")
        return {name: self.made[name] for name in sorted(needed, key=self.order.__getitem__)}


def _row(load: Load, axes: Sequence[tuple[str, int]]) -> tuple[Index, int]:
    """Where a load begins that runs over some loops, and how many neighbours the inner ones of them read.

    Where arrays are joined, a loop runs over more than those of one array.
    """
    first, neighbours, terms = load.index.const, 1, list(load.index.terms)
    for name, size in reversed(axes):
        if (neighbours, Digit(name, 1, size)) not in terms:
            break
        spans = [span for c in load.guard if (span := c.span(name, size))]
        low, high = max([0, *(s[0] for s in spans)]), min([size, *(s[1] for s in spans)])
        terms.remove((neighbours, Digit(name, 1, size)))
        first, neighbours = first + low * neighbours, neighbours * (high - low)
    return Index(first, tuple(terms)), neighbours


def _in_a_row(index: Index, loops: Sequence[tuple[str, int]]) -> int:
    """How many turns of the innermost loop, and of those around it that go on where it ends, take steps of one length."""
    steps = {atom.var: c for c, atom in index.terms if isinstance(atom, Digit) and atom.stride == 1}
    (name, turns), *around = reversed(loops)
    if name not in steps:
        return turns if name in index.variables else 1
    for outer, size in around:
        if steps.get(outer) != steps[name] * turns:
            break
        turns *= size
    return turns


def _later(index: Index, loop: tuple[str, int], distance: int, inside: Collection[str]) -> Index:
    """The index so many turns of a loop later. Raises _Unknown where turns are no fixed step apart."""
    const = index.const
    for c, atom in index.terms:
        if isinstance(atom, Digit) and (atom.var, atom.stride) == (loop[0], 1) and atom.size >= loop[1]:
            const += distance * c
        elif not {loop[0], *inside}.isdisjoint(variables := Index(0, ((1, atom),)).variables):
            why = "are no fixed steps apart" if loop[0] in variables else "change within a row"
            raise _Unknown(f"its positions {why}")
    return Index(const, index.terms)


def _named(index: Index, names: Mapping[str, str]) -> Index:
    """The index with other names of positions. Raises _Unknown where one is divided."""
    if any(isinstance(atom, Quotient | Remainder) and atom.of.loaded for _, atom in index.terms):
        raise _Unknown("its positions are divided")
    return Index(index.const, tuple((c, Loaded(names[a.name], a.size) if isinstance(a, Loaded) else a) for c, a in index.terms))


def _rewritten(stmt: Stmt, names: Mapping[str, str], index: Callable[[Index], Index]) -> Load | FromIndex | Clamp | Compute:
    """The statement with other names, its own among them, and with its index rewritten."""
    assert not isinstance(stmt, Choose | Store)
    target = names.get(stmt.target, stmt.target)
    if isinstance(stmt, Load | FromIndex):
        return replace(stmt, target=target, index=index(stmt.index))
    if isinstance(stmt, Clamp):
        return replace(stmt, target=target, source=names.get(stmt.source, stmt.source))
    return replace(stmt, target=target, args=tuple(names.get(a, a) for a in stmt.args))
