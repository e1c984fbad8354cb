"""PatternReduction: the best patterns that begin at each vertex (FusionStitching 2020, 5.2).

In:  a ``Dag``, a score, and a rule for what may share a kernel. Out: for each vertex up to k
``Candidate``s that begin there, and candidates of unconnected vertices (remote fusion).

This is approximate dynamic programming from the last vertex to the first. The best patterns at a
vertex are unions of best patterns of its consumers. Consumers are taken two at a time and merged
(divide and conquer), so the work is linear in the edges.

Before:  8 -> 5, 6, 7;  5 -> 2;  6 -> 3;  7 -> 4;  2, 3, 4 -> 1
After:   candidates of 8: {8,7,6,5,4,3,2,1}, {8}
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

BEST = 3  # patterns kept for each vertex (the paper's k)
GROUP = 2  # consumers whose patterns are combined by enumeration
MOST_VERTICES = 32  # of a pattern; keeps the work linear in the length of a chain (ours)


@lru_cache(maxsize=4096)
def bits(mask: int) -> tuple[int, ...]:
    """The members of a set of small numbers, ascending.

    The set is one integer: ``0b1010`` holds 1 and 3.
    """
    start = (mask & -mask).bit_length() - 1
    mask >>= max(0, start)  # the members are mostly neighbours: the rest is a short integer
    found = []
    while mask:
        low = mask & -mask
        found.append(start + low.bit_length() - 1)
        mask ^= low
    return tuple(found)


class Dag:
    """Vertices in topological order with their consumers. A set of vertices is an integer's bits.

    ``below`` is all that a vertex reaches, and ``above`` all that reaches it, without itself.
    """

    def __init__(self, consumers: Sequence[Iterable[int]]) -> None:
        self.consumers = [tuple(sorted(set(c))) for c in consumers]
        self.below, self.above = [0] * len(consumers), [0] * len(consumers)
        for v in reversed(range(len(consumers))):
            for c in self.consumers[v]:
                self.below[v] |= self.below[c] | 1 << c
        for v, reached in enumerate(self.consumers):
            for c in reached:
                self.above[c] |= self.above[v] | 1 << v

    def __len__(self) -> int:
        return len(self.consumers)


@dataclass(frozen=True)
class Candidate:
    """A set of vertices that could be one kernel, with the union of their ``below``, ``above``."""

    mask: int
    below: int
    above: int
    score: float

    @property
    def ids(self) -> tuple[int, ...]:
        """The vertices, ascending."""
        return bits(self.mask)

    @property
    def convex(self) -> bool:
        """Whether no path leaves the pattern and returns, so that contraction makes no circle."""
        return not self.below & self.above & ~self.mask

    @property
    def rank(self) -> tuple:
        """Higher score, then more vertices, then the smallest ids."""
        return -self.score, -self.mask.bit_count(), self.ids


def pattern_reduction(dag: Dag, score: Callable[[int], float], allowed: Callable[[int], bool],
                      best: int = BEST) -> list[list[Candidate]]:
    """The ``best`` patterns that begin at each vertex, best first. A library call has none."""
    return Explorer(dag, score, allowed, best).explore()


class Explorer:
    """Finds candidates. ``score`` and ``allowed`` are functions of sets of vertices."""

    def __init__(self, dag: Dag, score: Callable[[int], float],
                 allowed: Callable[[int], bool] = lambda mask: True, best: int = BEST) -> None:
        self.dag, self.score, self.allowed, self.best = dag, score, allowed, best
        self.found: list[list[Candidate]] = []
        self.evaluated = 0  # number of sets that were scored
        self._known: dict[int, Candidate | None] = {}

    def explore(self) -> list[list[Candidate]]:
        """The best patterns of each vertex, consumers first. A library call has none."""
        self.found = [[] for _ in range(len(self.dag))]
        for v in reversed(range(len(self.dag))):
            alone = self._candidate(1 << v, self.dag.below[v], self.dag.above[v])
            if alone is not None:
                consumers = [c for c in self.dag.consumers[v] if self.found[c]]
                pool = self._combine(alone, consumers, [])
                # Only complete unions are tested, because a missing vertex may close a gap.
                self.found[v] = [p for p in pool if p.convex][:self.best]
        return self.found

    def remote(self) -> list[Candidate]:
        """Patterns under a virtual producer of all vertices, for kernel packing.

        The paper keeps the best of the whole graph. Here every group on the way also keeps its
        best, so that a plan can choose everywhere (ours). Vertices at the same distance from the
        start are combined first, because they cannot wait for each other.
        """
        steps = [0] * len(self.dag)
        for v, consumers in enumerate(self.dag.consumers):
            for c in consumers:
                steps[c] = max(steps[c], steps[v] + 1)
        levels: dict[int, list[int]] = {}
        for v in range(len(self.dag)):
            if self.found[v]:
                levels.setdefault(steps[v], []).append(v)
        seen: list[Candidate] = []
        pools = [self._combine(Candidate(0, 0, 0, 0.0), level, seen) for _, level in sorted(levels.items())]
        while len(pools) > 1:
            pairs = [pools[k:k + 2] for k in range(0, len(pools), 2)]
            pools = [self._merge(p[0], p[1], seen) if len(p) == 2 else p[0] for p in pairs]
        return sorted({p.mask: p for p in seen}.values(), key=lambda p: p.rank)

    def _combine(self, first: Candidate, consumers: Sequence[int],
                 seen: list[Candidate]) -> list[Candidate]:
        """The best unions of ``first`` with patterns of its consumers. ``seen`` collects them."""
        if len(consumers) > GROUP:
            half = len(consumers) // 2
            left = self._combine(first, consumers[:half], seen)
            return self._merge(left, self._combine(first, consumers[half:], seen), seen)
        pool = [first]
        for c in consumers:
            pool += [union for p in pool for q in self.found[c] if (union := self._union(p, q))]
        return self._best(pool, seen)

    def _merge(self, left: Sequence[Candidate], right: Sequence[Candidate],
               seen: list[Candidate]) -> list[Candidate]:
        """The best patterns of two groups and of their unions."""
        unions = [union for p in left for q in right if (union := self._union(p, q)) is not None]
        return self._best([*left, *right, *unions], seen)

    def _best(self, pool: Iterable[Candidate], seen: list[Candidate]) -> list[Candidate]:
        self._known.clear()
        kept = self._keep(pool)
        seen += [p for p in kept if p.convex and p.score > 0]
        return kept

    def _keep(self, pool: Iterable[Candidate]) -> list[Candidate]:
        """The k best legal patterns, and the k best cyclic ones, which may become legal later."""
        ranked = sorted({p.mask: p for p in pool}.values(), key=lambda p: p.rank)
        legal = [p for p in ranked if p.convex][:self.best]
        return legal + [p for p in ranked if not p.convex][:self.best]

    def _union(self, p: Candidate, q: Candidate) -> Candidate | None:
        return self._candidate(p.mask | q.mask, p.below | q.below, p.above | q.above)

    def _candidate(self, mask: int, below: int, above: int) -> Candidate | None:
        """The scored set, or None if one kernel cannot hold it."""
        if not mask:  # only the virtual producer
            return Candidate(0, 0, 0, 0.0)
        if mask not in self._known:
            fits = mask.bit_count() <= MOST_VERTICES and self.allowed(mask)
            self.evaluated += fits
            self._known[mask] = Candidate(mask, below, above, self.score(mask)) if fits else None
        return self._known[mask]
