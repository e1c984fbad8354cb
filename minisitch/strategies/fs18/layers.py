"""Fuse layer by layer: intra-layer packing, then Algorithm 1 (FusionStitching 2018, section 3).

In:  the operations between two library calls. Out: ``Fusion``s with their satisfiable schedules,
and the decisions.

    for each layer L, from the roots towards the inputs:
        pack tiny, independent element-wise operations of L        (one launch instead of many)
        for each cluster of L: add producers, layer by layer,      (Algorithm 1)
            unless a user of the producer was given up, or no schedule is left
    repeat until a sweep changes nothing
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from ...fuse import MOST_ARGUMENTS, Decision, count
from .fusion import Fusion, Limits
from .reads import OperandReads
from .spans import Contraction


class Sweeper:
    """Contracts the operations between two library calls, and records decisions."""

    def __init__(self, reads: OperandReads, operations: Sequence[int], limits: Limits) -> None:
        self.reads, self.graph, self.limits = reads, reads.graph, limits
        inside = set(operations)
        self.parts = Contraction(operations, {op: [r for r in reads.readers[op] if r in inside] for op in operations},
                                 {op: [s for s in reads.sources(op) if s in inside] for op in operations})
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
        """The fusion of a cluster, reused if the cluster has not changed otherwise."""
        members = self.parts.members[root]
        if root not in self.fusions or not self.fusions[root].is_of(members):
            self.fusions[root] = Fusion(self.reads, self.limits, members)
        return self.fusions[root]

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
                    self._decide(tuple(together), "fuse", "intra-layer",
                                 f"{len(together)} of layer {layer} with {size} elements each; none of them needs another")
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
        """Add producers to a cluster, nearest layer first. Those given up are left for others.

        A user above the root's layer that is not inside was given up before. Only such a user could
        lead back to the fusion and make a circle.
        """
        fusion = self._fusion(root)
        if not fusion.schedules:
            return
        base, fused = self.parts.span[root], {root}
        frontier = [(self.parts.span[o], o) for o in self.parts.operands(root)]
        heapq.heapify(frontier)
        seen = {o for _, o in frontier}
        while frontier:
            _, producer = heapq.heappop(frontier)
            outside = [u for u in self.parts.users(producer) if u not in fused and self.parts.span[u] > base]
            if outside:
                self._decide((producer, root), "keep apart", "give-up-user",
                             f"%{outside[0]} {self.graph[outside[0]].op} reads it too and was given up; it may lead back here")
                continue
            rule, why = fusion.add(self.parts.members[producer])
            if rule:
                self._decide((producer, root), "keep apart", rule, why)
                continue
            fused.add(producer)
            self._decide((producer, root), "fuse", "producer",
                         f"{count(len(fusion.schedules), 'schedule')} of the kernel that ends at %{root} left")
            for operand in self.parts.operands(producer) - seen:
                seen.add(operand)
                heapq.heappush(frontier, (self.parts.span[operand], operand))
        if len(fused) > 1:
            self.parts.contract([root, *sorted(fused - {root})])

    def _decide(self, at: tuple[int, ...], verdict: str, rule: str, why: str) -> None:
        self.decisions[at] = Decision(at, verdict, rule, why)
