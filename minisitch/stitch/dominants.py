"""Dominants, groups, and the values that need memory.

In:  a pattern's body. Out: ``Group``s (AStitch 2022, 4.2 step 1), and the ids of values that would
be recomputed at too many places.

Before:  %3 = broadcast %1; %4 = mul %0 %3; %5 = sum %4; %6 = power %5 %1;
         %7 = broadcast %6; %8 = div %2 %7; %9 = sum %8
After:   group 0: %0 %1 %3 %4 %5 %6, dominant %5, sub-dominant %6: both read %1
         group 1: %2 %7 %8 %9, dominant %9

Labels such as *AStitch B4* number the algorithms of the papers. ``docs/papers.md`` lists them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from ..fuse import GENERATED, is_heavy, stretches
from ..graph import Graph, Ids, Node


# ---------------------------------------------------------------- dominants and groups (AStitch B4)
@dataclass(frozen=True)
class Group:
    """Operations that are connected without passing a candidate.

    ``stitch.loops`` gives a value the rows of its group's dominant if it cannot take over a
    producer's rows. If the dominant is a row-reduce, its loop may also carry column-reduces of the
    group.
    """

    members: Ids
    dominant: int
    subdominants: Ids


def candidates(graph: Graph) -> Ids:
    """Dominant candidates: reduces, heavy element-wise values that are broadcast, outputs."""
    return tuple(n.id for n in graph.nodes if n.kind == "reduce" or n.id in graph.outputs
                 or (n.kind == "map" and is_heavy(graph, n) and stretches(graph, n)))


def groups_of(graph: Graph, merge: bool = True) -> tuple[Group, ...]:
    """The groups of a body: cut every edge that leaves a candidate, and take what stays connected.

    Operations that read one parameter are connected. A constant connects nothing. The dominant is a
    reduce if there is one. Of several, it is the one with the largest input, of these a row-reduce
    rather than a column-reduce, of these the first. With ``merge=False`` each candidate forms a
    group with what it reads (the paper's ablation).
    """
    chosen = candidates(graph)
    cut = set(chosen)
    operations = [n for n in graph.nodes if n.op not in GENERATED]
    if not merge:
        rest = {n.id for n in operations} - cut
        return tuple(Group(upstream(graph, (c,), rest), c, ()) for c in chosen)
    connected: dict[int, frozenset[int]] = {}  # each operation -> those connected to it so far
    for node in operations:
        read = [connected[arg] for arg in node.args if arg in connected and arg not in cut]
        joined = frozenset({node.id}).union(*read)
        connected.update(dict.fromkeys(joined, joined))
    found = []
    for joined in set(connected.values()):
        if inside := sorted(joined & cut):
            dominant = min(inside, key=lambda c: _preference(graph, graph[c]))
            found.append(Group(tuple(sorted(joined)), dominant, tuple(c for c in inside if c != dominant)))
    return tuple(sorted(found, key=lambda g: g.members))


def upstream(graph: Graph, values: Sequence[int], within: Set[int]) -> Ids:
    """``values``, and everything that they are computed from without leaving ``within``."""
    found, pending = set(values), list(values)
    while pending:
        fresh = (within & {*graph[pending.pop()].args}) - found
        found |= fresh
        pending += fresh
    return tuple(sorted(found))


def _preference(graph: Graph, node: Node) -> tuple[int, ...]:
    if node.kind == "reduce":
        return 0, -graph[node.args[0]].type.size, not is_row_reduce(graph, node)
    return 1 if is_heavy(graph, node) else 2, 0, 0


def is_row_reduce(graph: Graph, node: Node) -> bool:
    """True of a reduce of the last axis longer than one: it then folds neighbours in memory.

    Also true of a reduce of no axis, or if none is longer than one.
    """
    if node.kind != "reduce":
        return False
    shape, axes = graph[node.args[0]].type.shape, node.attr("axes")
    long_axes = [a for a, n in enumerate(shape) if n != 1]
    return not long_axes or not axes or long_axes[-1] in axes


# ---------------------------------------------------------------- which values need memory
MOST_POSITIONS = 4  # a light value may be recomputed at this many places
MOST_HEAVY_POSITIONS = 2
# chains of moves that a value may be read through; moves of moves multiply them
MOST_CHAINS = 8 * MOST_POSITIONS


Reasons = dict[int, str]  # of some values, each a sentence
Path = tuple[int, int]  # the sub-root whose loop evaluates a value, and a hash of the moves between


def many_positions(graph: Graph, sub_roots: Iterable[int]) -> Reasons:
    """Values that would be recomputed at too many places, each with the reason as a sentence.

    For example the value that the shifted windows of a stencil read. Two positions differ if they
    are reached through different chains of moves, or as different operands of a move.
    """
    return dict(sorted(_positions(graph, set(sub_roots))[1].items()))


def evaluations(graph: Graph) -> int:
    """An estimate of the number of statements in a body's kernel, before it is built.

    It is the sum, over all values, of the positions that each is read at.
    """
    return sum(map(len, _positions(graph, set(candidates(graph)))[0]))


def _positions(graph: Graph, sub_roots: Set[int]) -> tuple[list[set[Path]], Reasons]:
    """The paths to each value, and what ``many_positions`` returns: both in one backward pass."""
    paths: list[set[Path]] = [set() for _ in graph.nodes]
    found: Reasons = {}
    for node in reversed(graph.nodes):
        value, mine = node.id, paths[node.id]
        computed = node.kind != "source" and value not in sub_roots
        if computed and (too_many := _too_many(graph, node, mine)):
            found[value] = f"%{value} {node.op} would be {too_many}"
        if value in sub_roots or value in found:
            mine = {(value, 0)}
        for operand, arg in enumerate(node.args):
            if node.kind == "move":
                paths[arg] |= {(root, hash((path, value, operand))) for root, path in mine}
            else:
                paths[arg] |= mine
    return paths, found


def _too_many(graph: Graph, node: Node, paths: Set[Path]) -> str:
    """What the paths to a value that is not in memory would cost, if they are too many."""
    worst = max(Counter(root for root, _ in paths).values(), default=0)
    most = MOST_HEAVY_POSITIONS if is_heavy(graph, node) else MOST_POSITIONS
    if node.kind == "map" and worst > most:
        return f"recomputed at {worst} places; at most {most}"
    if len(paths) > MOST_CHAINS:
        return f"read through {len(paths)} chains of moves; at most {MOST_CHAINS}"
    return ""
