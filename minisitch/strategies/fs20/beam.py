"""Beam search for a plan: disjoint patterns whose contraction leaves the graph acyclic (FusionStitching 2020, section 5.3).

In:  a ``Dag`` and the candidates that begin at each vertex. Out: the best few plans, each a tuple of candidates.

Two patterns, each legal alone, may wait for each other; so every plan knows what its patterns reach through one another.
Walking from producers to consumers, only patterns with a vertex still ahead can take part in a new circle: the others'
reach is already part of theirs.

Before:  candidates {0,1} 5 us, {1,2} 8 us      After:  plans {{1,2}} 8 us, {{0,1}} 5 us, {} 0 us
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .explore import Candidate, Dag

WIDTH = 3  # plans kept (the paper's)


@dataclass(frozen=True)
class _Reach:
    """A chosen pattern and every vertex it reaches, through other patterns of the plan too."""

    mask: int
    reach: int


@dataclass(frozen=True)
class _Plan:
    """A partial plan; ``before`` is the plan without its ``last`` pattern."""

    taken: int
    score: float
    open: tuple[_Reach, ...]  # patterns with a vertex ahead
    last: Candidate | None = None
    before: _Plan | None = None

    @property
    def patterns(self) -> tuple[Candidate, ...]:
        found, plan = [], self
        while plan.last is not None and plan.before is not None:
            found.append(plan.last)
            plan = plan.before
        return tuple(reversed(found))

    def extended(self, pattern: Candidate) -> _Plan | None:
        """This plan and one more pattern; None if they overlap or would wait for each other."""
        if self.taken & pattern.mask:
            return None
        reach = pattern.below & ~pattern.mask
        for other in self.open:
            if pattern.below & other.mask:
                reach |= other.reach
        if reach & pattern.mask:
            return None
        now = tuple(_Reach(o.mask, o.reach | reach | pattern.mask) if o.reach & pattern.mask else o for o in self.open)
        return _Plan(self.taken | pattern.mask, self.score + pattern.score, (*now, _Reach(pattern.mask, reach)), pattern, self)

    def at(self, vertex: int) -> _Plan:
        """This plan without what can take part in no circle any more."""
        ahead = tuple(o for o in self.open if o.mask.bit_length() > vertex)
        return self if len(ahead) == len(self.open) else _Plan(self.taken, self.score, ahead, self.last, self.before)


def search(dag: Dag, candidates: Sequence[Sequence[Candidate]], width: int = WIDTH) -> list[tuple[Candidate, ...]]:
    """The best plans, best first; ``candidates[v]`` begin at vertex v. Patterns that gain nothing are in no plan."""
    plans = [_Plan(0, 0.0, ())]
    for vertex in range(len(dag)):
        useful = [p for p in candidates[vertex] if p.score > 0 and p.mask.bit_count() > 1]
        if useful:
            plans = [plan.at(vertex) for plan in plans]
            longer = [more for plan in plans for p in useful if (more := plan.extended(p)) is not None]
            plans = sorted([*longer, *plans], key=lambda plan: (-plan.score, -plan.taken.bit_count()))[:width]
    return [plan.patterns for plan in plans]
