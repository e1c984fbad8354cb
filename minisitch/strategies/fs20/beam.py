"""Beam search for a plan of disjoint patterns without circles (FusionStitching 2020, section 5.3).

In:  a ``Dag`` and the candidates that begin at each vertex. Out: the best few plans.

Two patterns may wait for each other although each is legal alone. So a plan knows what each of its
patterns reaches, also through other patterns. The search goes from producers to consumers. Only a
pattern with a vertex ahead can take part in a new circle, and only these are remembered.

Before:  candidates {0,1} 5 us, {1,2} 8 us      After:  plans {{1,2}} 8 us, {{0,1}} 5 us, {} 0 us
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...fuse import topological
from .delta import Evaluator
from .explore import BEST, MOST_VERTICES, Candidate, Dag, Explorer, bits, pattern_reduction

WIDTH = 3  # plans kept (the paper's)
MOST_ROUNDS = 8


@dataclass(frozen=True)
class _Reach:
    """A chosen pattern and all vertices it reaches, also through other patterns of the plan."""

    mask: int
    reach: int


@dataclass(frozen=True)
class _Plan:
    """A partial plan. ``taken`` are the vertices of its patterns."""

    patterns: tuple[Candidate, ...] = ()
    taken: int = 0
    score: float = 0.0
    open: tuple[_Reach, ...] = ()  # patterns with a vertex ahead

    def extended(self, pattern: Candidate) -> _Plan | None:
        """This plan and one more pattern. None if they overlap or would wait for each other."""
        if self.taken & pattern.mask:
            return None
        reach = pattern.below & ~pattern.mask
        for other in self.open:
            if pattern.below & other.mask:
                reach |= other.reach
        if reach & pattern.mask:
            return None
        both = reach | pattern.mask
        now = (replace(o, reach=o.reach | both) if o.reach & pattern.mask else o
               for o in self.open)
        return _Plan((*self.patterns, pattern), self.taken | pattern.mask,
                     self.score + pattern.score, (*now, _Reach(pattern.mask, reach)))

    def at(self, vertex: int) -> _Plan:
        """This plan without patterns that can take part in no further circle."""
        return replace(self, open=tuple(o for o in self.open if o.mask.bit_length() > vertex))


def search(dag: Dag, candidates: Sequence[Sequence[Candidate]],
           width: int = WIDTH) -> list[tuple[Candidate, ...]]:
    """The best plans, best first. ``candidates[v]`` begin at vertex v, and must gain something."""
    plans = [_Plan()]
    for vertex in range(len(dag)):
        useful = [p for p in candidates[vertex] if p.score > 0 and p.mask.bit_count() > 1]
        if useful:
            plans = [plan.at(vertex) for plan in plans]
            longer = [more for plan in plans for p in useful if (more := plan.extended(p))]
            plans = sorted([*longer, *plans], key=lambda p: (-p.score, -p.taken.bit_count()))
            plans = plans[:width]
    return [plan.patterns for plan in plans]


# ---------------------------------------------------------------- several rounds
def plans(evaluator: Evaluator, width: int = WIDTH, best: int = BEST) -> list[tuple[int, ...]]:
    """The best few plans. Each is a tuple of sets of vertices that share a kernel.

    The best plan is contracted and explored again until nothing gains. So patterns that are too far
    apart in one round can join in the next. This is ours: the paper explores once, with more
    patterns near the virtual producer.
    """
    found = _round(evaluator, (), width, best)
    last = found[0]
    for _ in range(MOST_ROUNDS):
        before, last = last, _round(evaluator, last, width, best)[0]
        if last == before:
            break
    return list(dict.fromkeys([last, *found]))


def _round(evaluator: Evaluator, fused: Sequence[int], width: int,
           best: int) -> list[tuple[int, ...]]:
    """Explore once, with each set in ``fused`` as one vertex."""
    taken = sum(fused)
    single = (1 << v for v in range(len(evaluator.dag)) if not taken >> v & 1)
    dag, parts = contract(evaluator.dag, [*fused, *single])
    own = [evaluator.score(part) for part in parts]

    def score(mask: int) -> float:
        return evaluator.score(together(parts, mask)) - sum(map(own.__getitem__, bits(mask)))

    def allowed(mask: int) -> bool:
        whole = together(parts, mask)
        return whole.bit_count() <= MOST_VERTICES and evaluator.allowed(whole)

    found = []
    for chosen in search(dag, all_candidates(dag, score, allowed, best), width):
        taken = sum(p.mask for p in chosen)
        rest = [part for k, part in enumerate(parts) if not taken >> k & 1 and part.bit_count() > 1]
        found.append(tuple(sorted([*(together(parts, p.mask) for p in chosen), *rest])))
    return found


def all_candidates(dag: Dag, score: Callable[[int], float], allowed: Callable[[int], bool],
                   best: int = BEST) -> list[list[Candidate]]:
    """The candidates that begin at each vertex, fused along edges or remotely."""
    explorer = Explorer(dag, score, allowed, best)
    explorer.found = found = pattern_reduction(dag, score, allowed, best)
    for p in explorer.remote():
        first = found[p.ids[0]]
        if all(p.mask != q.mask for q in first):
            first.append(p)
    return found


def together(parts: Sequence[int], mask: int) -> int:
    return sum(map(parts.__getitem__, bits(mask)))


def contract(dag: Dag, parts: Sequence[int]) -> tuple[Dag, list[int]]:
    """The graph with each set of vertices as one vertex, and the sets in the graph's order."""
    owner = {v: k for k, part in enumerate(parts) for v in bits(part)}
    after = [{owner[c] for v in bits(part) for c in dag.consumers[v]} - {k}
             for k, part in enumerate(parts)]
    order = topological(after, lambda k: parts[k] & -parts[k])
    place = {k: at for at, k in enumerate(order)}
    return Dag([[place[r] for r in after[k]] for k in order]), [parts[k] for k in order]
