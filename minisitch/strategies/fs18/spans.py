"""Spans and layers, kept right while operations are contracted (FusionStitching 2018, section 3).

In:  operations and their readers. Out: the span of each: 0 for a root, else one more than its
highest reader's. The operations of one span form a *layer*. They do not depend on each other.

Before:  %0 -> %1 -> %2, %0 -> %2       After:  spans 2, 1, 0

Algorithm 1 avoids circles, because every path between a producer and the fusion passes the layers
between them. For this, each edge must go from a higher span to a lower one. Contraction can break
that, and then two fusions may wait for each other. The paper does not say when it updates spans.
Here the wrong spans are corrected after every contraction, and all are computed again between
sweeps. The paper analyses each loop nest separately. Here traced loops are unrolled.
"""

from collections.abc import Collection, Mapping, Sequence


def spans(readers: Mapping[int, Collection[int]]) -> dict[int, int]:
    """The longest path from each node to a root, by the readers of each.

    Nodes on a circle, or above one, get none.
    """
    waiting = {node: len(users) for node, users in readers.items()}
    operands: dict[int, list[int]] = {node: [] for node in readers}
    for node, users in readers.items():
        for user in users:
            operands[user].append(node)
    ready = [node for node, count in waiting.items() if not count]
    found: dict[int, int] = {}
    for node in ready:  # the list grows meanwhile
        found[node] = max((found[user] + 1 for user in readers[node]), default=0)
        for operand in operands[node]:
            waiting[operand] -= 1
            if not waiting[operand]:
                ready.append(operand)
    return found


class Contraction:
    """Operations that are contracted into clusters. A cluster is named after its first root.

    ``readers`` and ``sources`` are edges between these operations. Invariant: a cluster's span is
    higher than the spans of the clusters that read it.
    """

    def __init__(self, operations: Sequence[int], readers: Mapping[int, Collection[int]],
                 sources: Mapping[int, Collection[int]]) -> None:
        self.readers, self.sources = readers, sources
        self.cluster = {op: op for op in operations}
        self.members = {op: [op] for op in operations}
        self.span: dict[int, int] = {}
        self.layers: list[list[int]] = []  # may hold clusters that have left the layer
        self.layer_again()

    def layer_again(self) -> None:
        """Compute the spans of the current clusters again."""
        self.span, self.layers = {}, []
        for cluster, span in spans({name: self.users(name) for name in self.members}).items():
            self._put(cluster, span)

    def _put(self, cluster: int, span: int) -> None:
        self.span[cluster] = span
        self.layers += [[] for _ in range(len(self.layers), span + 1)]
        self.layers[span].append(cluster)

    def layer(self, span: int) -> list[int]:
        """The clusters that have this span now."""
        return [c for c in dict.fromkeys(self.layers[span]) if self.span.get(c) == span]

    def users(self, cluster: int) -> set[int]:
        """The clusters that read this one."""
        return self._neighbours(cluster, self.readers)

    def operands(self, cluster: int) -> set[int]:
        """The clusters that this one reads."""
        return self._neighbours(cluster, self.sources)

    def _neighbours(self, cluster: int, edges: Mapping[int, Collection[int]]) -> set[int]:
        return {self.cluster[o] for op in self.members[cluster] for o in edges[op]} - {cluster}

    def contract(self, clusters: Sequence[int]) -> None:
        """Make one cluster of several, named after the first. Raise operands that stand too low."""
        name, *rest = clusters
        for other in rest:
            self.members[name] += self.members.pop(other)
            del self.span[other]
        for op in self.members[name]:
            self.cluster[op] = name
        self._mend(name)

    def _mend(self, cluster: int) -> None:
        below = (self.span[u] + 1 for u in self.users(cluster))
        self._put(cluster, max([self.span[cluster], *below]))
        pending = [cluster]
        while pending:
            above = pending.pop()
            for operand in self.operands(above):
                if self.span[operand] <= self.span[above]:
                    self._put(operand, self.span[above] + 1)
                    pending.append(operand)
