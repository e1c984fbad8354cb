"""Fuse layer by layer: intra-layer packing, then Algorithm 1 (FusionStitching 2018, section 3).

In:  the operations between two library calls. Out: ``Fusion``s with their satisfiable schedules,
and the decisions.

    for each layer L, from the roots towards the inputs:
        pack tiny, independent element-wise operations of L        (one launch instead of many)
        for each cluster of L: add producers, layer by layer,      (Algorithm 1)
            unless a user of the producer was given up, or no schedule is left
    repeat until a sweep changes nothing
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ...fuse import MOST_ARGUMENTS, Decision, count
from .fusion import Fusion, Limits
from .reads import OperandReads
from .spans import Contraction

Neighbours = Callable[[int], Collection[int]]


def grow(root: int, operands: Neighbours, users: Neighbours, span: Mapping[int, int],
         fits: Callable[[int], bool]) -> tuple[list[int], dict[int, int]]:
    """Algorithm 1: the producers that join a root, and those that it gives up because of a user.

    Producers are visited nearest layer first. One is given up if a user of it stands above the
    root's layer and is not inside. That user was given up before, or refused. Only such a user
    could lead back to the root and make a circle. All others are asked for once: ``fits`` adds a
    producer if it can, and says whether it has. Each one given up comes with its user.

    Before:  %3 reads %2, %1; %2 reads %0; %1 reads %0; %2 does not fit       After:  [%1], {%0: %2}
    """
    base, taken, given_up = span[root], list[int](), dict[int, int]()
    frontier = [(span[o], o) for o in operands(root)]
    heapq.heapify(frontier)
    seen = {root, *operands(root)}
    inside = {root}
    while frontier:
        _, producer = heapq.heappop(frontier)
        outside = [u for u in users(producer) if u not in inside and span[u] > base]
        if outside:
            given_up[producer] = outside[0]
        elif fits(producer):
            taken.append(producer)
            inside.add(producer)
            for operand in operands(producer):
                if operand not in seen:
                    seen.add(operand)
                    heapq.heappush(frontier, (span[operand], operand))
    return taken, given_up


class Sweeper:
    """Contracts the operations between two library calls, and records decisions."""

    def __init__(self, reads: OperandReads, operations: Sequence[int], limits: Limits) -> None:
        self.reads, self.graph, self.limits = reads, reads.graph, limits
        inside = set(operations)
        readers = {op: [r for r in reads.readers[op] if r in inside] for op in operations}
        sources = {op: [s for s in reads.sources(op) if s in inside] for op in operations}
        self.parts = Contraction(operations, readers, sources)
        self.decisions: dict[tuple[int, ...], Decision] = {}
        self.fusions: dict[int, Fusion] = {}  # root of a cluster -> its fusion

    def run(self) -> list[Fusion]:
        """Sweep until nothing changes. Each cluster is a kernel."""
        changed = True
        while changed:
            self.parts.layer_again()
            changed = self.sweep()
        return [self._fusion(root) for root in self.parts.members]

    def _fusion(self, root: int) -> Fusion:
        """The fusion of a cluster, reused if the cluster has not changed otherwise.

        A producer may bring roots of its own. A new fusion cuts all roots, and may find no common
        cut. Then the one that grew stays: its schedules hold all members.
        """
        members, grown = self.parts.members[root], self.fusions.get(root)
        if grown is None or not grown.is_of(members):
            made = Fusion(self.reads, self.limits, members)
            if grown is None or not made.refused[0] or grown.members != set(members):
                grown = self.fusions[root] = made
        return grown

    def sweep(self) -> bool:
        """Visit all layers once. A cluster that a contraction raises is visited again there."""
        before, layer = len(self.parts.members), 0
        while layer < len(self.parts.layers):
            self.pack(layer)
            for root in self.parts.layer(layer):
                if self.parts.span.get(root) == layer:
                    self.subgraph_fuse(root)
            layer += 1
        return len(self.parts.members) < before

    # ------------------------------------------------------------ operations of one layer
    def pack(self, layer: int) -> None:
        """Pack clusters of one layer with equal output sizes, in order (ElementwiseFusion)."""
        buckets: dict[int, list[int]] = {}
        for cluster in self.parts.layer(layer):
            if all(self.graph[m].kind == "map" for m in self.parts.members[cluster]):
                buckets.setdefault(self.graph[cluster].type.size, []).append(cluster)
        for size, clusters in buckets.items():
            for together in self._within(clusters):
                members = [m for c in together for m in self.parts.members[c]]
                if len(together) > 1 and not Fusion(self.reads, self.limits, members).refused[0]:
                    why = (f"{len(together)} of layer {layer} with {size} elements each; "
                           "none of them needs another")
                    self._decide(tuple(together), "fuse", "intra-layer", why)
                    self.parts.contract(together)

    def _within(self, clusters: Sequence[int]) -> Iterator[list[int]]:
        """Runs of clusters that stay within the footprint and the argument limit together."""
        most = self.limits.device.bandwidth * self.limits.tiny_us * 1e-6
        together: list[int] = []
        passed: list[int] = []
        for cluster in clusters:
            members = self.parts.members[cluster]
            mine = [*set().union(*map(self.reads.arguments, members)).difference(members),
                    *(m for m in members if m in self.reads.stored or self.reads.readers[m])]
            nbytes = sum(self.graph[v].type.nbytes for v in (*passed, *mine))
            if nbytes > most or len(passed) + len(mine) > MOST_ARGUMENTS:
                yield together
                together, passed = [], []
            together.append(cluster)
            passed += mine
        yield together

    # ------------------------------------------------------------ Algorithm 1
    def subgraph_fuse(self, root: int) -> None:
        """Fuse producers into a cluster by ``grow``, as long as a schedule is left."""
        fusion = self._fusion(root)
        if not fusion.schedules:
            return

        def fits(producer: int) -> bool:
            rule, why = fusion.add(self.parts.members[producer])
            if rule:
                self._decide((producer, root), "keep apart", rule, why)
            else:
                schedules = count(len(fusion.schedules), "schedule")
                self._decide((producer, root), "fuse", "producer",
                             f"{schedules} of the kernel that ends at %{root} left")
            return not rule

        taken, given_up = grow(root, self.parts.operands, self.parts.users, self.parts.span, fits)
        for producer, user in given_up.items():
            op = self.graph[user].op
            why = f"%{user} {op} reads it too and was given up; it may lead back here"
            self._decide((producer, root), "keep apart", "give-up-user", why)
        if taken:
            self.parts.contract([root, *sorted(taken)])

    def _decide(self, at: tuple[int, ...], verdict: str, rule: str, why: str) -> None:
        self.decisions[at] = Decision(at, verdict, rule, why)
