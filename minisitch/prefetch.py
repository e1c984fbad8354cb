"""Prefetching, for a CPU: rows that a gather will read are asked for some turns of its loop ahead.

In:  a segment whose loops are nested, and the kernel's buffers. Out: the same segment, its phases with ``Prefetch``es, and why.

A processor fetches by itself what lies behind what it reads. Where a gather's next row lies only its index array says, so a core
waits for each row's first line: rows of 16 bytes from a table of 40 MB took 16 ns each, asked for 16 rows ahead 9. So
the position of a later row is computed twice, the first time that much earlier (Ainsworth and Jones, "Software Prefetching for
Indirect Memory Accesses", CGO 2017, section 4). A row in a core's own caches is there anyway.

Before:  for row in ...:  at0 = clamp ids[row]
             for col in 0..16:  y_row[col] = x[col + at0 * 16]
After:   for row in ...:  at0_ahead16 = clamp ids[row + 16];  prefetch x[at0_ahead16 * 16 : +16];  at0 = clamp ids[row]
             for col in 0..16:  y_row[col] = x[col + at0 * 16]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from .fuse import Decision, count
from .index import Atom, Digit, Index, Loaded
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
    View,
    indices,
    operands,
)
from .ops import itemsize

# Measured (benchmarks/gathers.py), rows of 16 bytes to 4 kB from tables of 1 to 160 MB: short ones come too late from 4 turns on;
# rows of 800 bytes, 16 ahead, push out what else the nearest cache holds; how a long row goes on a processor sees by itself.
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
    """One segment: what its loops have made so far can be made again, for a later turn; what it stores is not there yet."""

    def __init__(self, segment: Segment, buffers: Mapping[str, Buffer], constants: Collection[str], near: int) -> None:
        self.segment, self.buffers, self.constants, self.near = segment, buffers, constants, near
        self.made: dict[str, Stmt] = {}
        self.asked: set[tuple[str, Index]] = set()
        self.decisions: dict[tuple[int, str], Decision] = {}
        self.views, self.stored = {v.name: v for p in segment.phases for v in p.views}, segment.stored

    def phase(self, phase: Phase) -> Phase:
        """With the rows that it gathers asked for in the loop that they change with."""
        for stmt in (*phase.before, *phase.body):
            if not isinstance(stmt, Store):
                self.made.pop(stmt.target, None)  # positions are numbered from 0 in each phase
                self.made[stmt.target] = stmt
        found: list[Prefetch] = []
        for load in [s for s in phase.body if isinstance(s, Load) and s.index.loaded and _row(s, phase.axes[-1:])[1] > 1]:
            try:
                asked, verdict = self._ahead(phase, load), "prefetch"
                why = f"the first {asked.columns} elements of its rows, {asked.turns} turns ahead"
                if (asked.buffer, asked.index) not in self.asked:
                    self.asked.add((asked.buffer, asked.index))
                    known = {s for other in found for s in other.steps}
                    found.append(replace(asked, steps=tuple(s for s in asked.steps if s not in known)))
            except _Unknown as reason:
                verdict, why = "leave", str(reason)
            self.decisions.setdefault((load.node, verdict), Decision((load.node,), verdict, "gathered-rows", why))
        return replace(phase, prefetches=tuple(found))

    def _ahead(self, phase: Phase, load: Load) -> Prefetch:
        """The row that a load will gather some turns of its loop later. Raises _Unknown."""
        size = itemsize(self.buffers[load.buffer].dtype)
        nbytes = self.buffers[load.buffer].size * size
        if nbytes <= self.near:
            raise _Unknown(f"its {nbytes} B stay in a core's own caches, which hold {self.near}")
        steps = self._steps(load.index.loaded)
        moving = {v for s in steps.values() for i in indices(s) for v in i.variables}
        loops = [("row", self.segment.rows), *phase.axes[:-1]]
        depth = max((k for k, (name, _) in enumerate(loops) if name in moving), default=0)
        loop, turns = loops[depth]
        first, columns = _row(load, phase.axes[depth:])
        ahead = min(MOST_AHEAD, max(FEWEST_AHEAD, BYTES_AHEAD // (max(1, columns) * size)))
        rows = turns * (self.segment.chunks if depth and phase.chunked else 1) if loop in moving else 1
        if rows < 2 * ahead or self.segment.tile:
            raise _Unknown(f"another row is read {count(rows, 'time')}, fewer than {2 * ahead}")
        names = {name: f"{name}_ahead{ahead}" for name in steps}
        later = _Later(ahead, loop, turns, [name for name, _ in phase.axes[depth:]], names)
        return Prefetch(load.buffer, later.index(first), min(columns, MOST_BYTES // size), depth, ahead,
                        tuple(later.step(s, self.views) for s in steps.values()), load.node)

    def _steps(self, names: Collection[str]) -> dict[str, Stmt]:
        """What is done to know some positions, in order, by the names of its results."""
        wanted, needed = list(names), set[str]()
        while wanted:
            needed.add(name := wanted.pop())
            stmt = self.made.get(name)
            if stmt is None or len(needed) > MOST_STEPS or isinstance(stmt, Choose) or (isinstance(stmt, Compute) and stmt.heavy):
                raise _Unknown("its positions are more than some light operations on what is there")
            if isinstance(stmt, Load):
                view = self.views.get(stmt.buffer)
                if (view.buffer if view else stmt.buffer) in self.stored:
                    raise _Unknown("its positions are made in the same segment")
            wanted += [operand for operand in operands(stmt) if operand not in needed and operand not in self.constants]
        return {name: stmt for name, stmt in self.made.items() if name in needed}


def _row(load: Load, axes: Sequence[tuple[str, int]]) -> tuple[Index, int]:
    """Where a load begins that runs over some loops, and how many neighbours the inner ones of them read.

    Where arrays are joined, the innermost loop runs over more than the columns of one.
    """
    spans = [span for c in load.guard if (span := c.span(*axes[-1]))]
    first, last = max([0, *(low for low, _ in spans)]), min([axes[-1][1], *(high for _, high in spans)])
    terms, count = list(load.index.terms), 1
    for name, size in reversed(axes):
        if (count, Digit(name, 1, size)) not in terms:
            break
        terms.remove((count, Digit(name, 1, size)))
        count *= size
    return Index(load.index.const + first, tuple(terms)), last - first if spans and count > 1 else count


class _Later:
    """Rewrites what one turn of a loop does into what it will do ``ahead`` turns later, its results under other names."""

    def __init__(self, ahead: int, loop: str, turns: int, inside: Collection[str], names: Mapping[str, str]) -> None:
        self.ahead, self.loop, self.turns, self.names = ahead, loop, turns, names
        self.fixed = {loop, *inside, *names}  # what an index may not depend on in another way

    def index(self, index: Index) -> Index:
        """Where it is that many turns later. Raises _Unknown where turns are no fixed step apart."""
        const, terms = index.const, list[tuple[int, Atom]]()
        for c, atom in index.terms:
            if isinstance(atom, Loaded):
                terms.append((c, Loaded(self.names[atom.name], atom.size)))
                continue
            if isinstance(atom, Digit) and (atom.var, atom.stride) == (self.loop, 1) and atom.size >= self.turns:
                const += self.ahead * c
            elif not self.fixed.isdisjoint(Index(0, ((1, atom),)).variables):
                raise _Unknown("its positions are no fixed steps apart")
            terms.append((c, atom))
        return Index(const, tuple(terms))

    def step(self, stmt: Stmt, views: Mapping[str, View]) -> Stmt:
        """A statement on the way to a position. Behind the last turn, or where a condition fails, it reads what is there."""
        assert not isinstance(stmt, Choose | Store)
        target = self.names[stmt.target]
        if isinstance(stmt, Load):
            view = views.get(stmt.buffer)
            buffer, index = (view.buffer, view.base + stmt.index) if view else (stmt.buffer, stmt.index)
            return replace(stmt, target=target, buffer=buffer, index=self.index(index), guard=(), clamp=True)
        if isinstance(stmt, FromIndex):
            return replace(stmt, target=target, index=self.index(stmt.index))
        if isinstance(stmt, Clamp):
            return replace(stmt, target=target, source=self.names.get(stmt.source, stmt.source))
        return replace(stmt, target=target, args=tuple(self.names.get(a, a) for a in stmt.args))
