"""Block composition: a kernel's loops pass values through shared memory, and blocks never wait.

In:  a pattern's body, a ``Device`` and a ``BlockComposition``. Out: a ``StitchPlan``. Its tasks are
the blocks.

FusionStitching 2018 B5 and B10 (sections 4.2 and 5). A block owns one piece of every scheduled
value. It computes the piece from its own pieces of other values, or from global memory. So no block
waits for another.

Before:  %1 = max %0 axes=(1,)    %0 [8704,17], BlockCut(split_dim=0, sword=512) of the 8704 maxima
After:   phase 0: %1 max reduce over 512 rows x 17 cols x 17 serial    (a row is a block)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..device import Device
from ..errors import PlanError
from ..fuse import Composition, Decision, Numbering, count
from ..graph import Graph, Ids, Node
from .dominants import is_row_reduce
from .mapping import WARP, ThreadMap
from .plan import StitchPlan, distance, leaves
from .pull import Key
from .subroots import Partition, Space, SubRoot, fold_of, map_of, other_axes


@dataclass(frozen=True)
class BlockCut:
    """``(split_dim, sword, kind)``: how the blocks of a kernel cut one output.

    Dimension ``split_dim`` is cut into ``sword`` equal pieces. ``row``: a block has one index of
    each dimension before ``split_dim``, one piece of it, and all of the dimensions after it. That
    is a contiguous part of the row-major tensor. ``column``: a block has one piece of
    ``split_dim``, one index of each dimension after it, and all of the dimensions before it. Blocks
    are numbered in row-major order of piece and indices.
    """

    split_dim: int
    sword: int
    kind: str = "row"  # "row" | "column"

    def blocks(self, shape: Sequence[int]) -> int:
        """How many blocks cover an output of this shape (FusionStitching 2018, section 4.2)."""
        outside = shape[:self.split_dim] if self.kind == "row" else shape[self.split_dim + 1:]
        return self.sword * math.prod(outside)


@dataclass(frozen=True)
class BlockComposition(Composition):
    """FusionStitching 2018's kernel: loops in one block, which pass values through shared memory.

    ``schedules``: (node, block cut) of every operation with a loop: the roots, the reduces, and the
    values in ``shared``. A block cut cuts the operation's *output*. All block cuts make the same
    number of blocks. All other operations are inlined. ``shared``: the values kept in shared
    memory, producers first. ``threads``: the size of a block, a multiple of 32.
    """

    schedules: tuple[tuple[int, BlockCut], ...]
    shared: Ids = ()
    threads: int = 256

    def shares(self, node: int) -> bool:
        return node in self.shared

    def renumber(self, number: Numbering) -> BlockComposition:
        return replace(self, schedules=tuple((number(node), cut) for node, cut in self.schedules),
                       shared=tuple(map(number, self.shared)))


WHOLE = BlockCut(0, 1)  # one block: legal for every shape


def block_cuts_of(shape: Sequence[int]) -> list[BlockCut]:
    """Every legal block cut of an output: all divisors of all dimensions, in both kinds.

    An empty or rank-0 output has only ``WHOLE``.
    """
    if not math.prod(shape) or not shape:
        return [WHOLE]
    return [BlockCut(d, sword, kind) for kind in ("row", "column") for d, n in enumerate(shape) for sword in divisors(n)]


def divisors(n: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    return sorted({d for k in range(1, math.isqrt(n) + 1) if n % k == 0 for d in (k, n // k)})


# ---------------------------------------------------------------- the loops of a block
def arrange(graph: Graph, device: Device, composition: BlockComposition) -> StitchPlan:
    """Give each scheduled operation its loop.

    An operation that reads values of other threads of its block runs in a later phase than they do.
    Raises PlanError naming the value: if the schedules disagree on the blocks, if a block reads
    what another one makes, or if a value read in another loop is not kept. The strategy's
    consistency check avoids all three.
    """
    schedules = dict(composition.schedules)
    blocks = _same_blocks(graph, schedules)
    threads = min(composition.threads, device.max_block)
    mapping = ThreadMap(blocks, 0, blocks, threads, 1, threads, 1, 1, 0, "block-composition",
                        f"{count(blocks, 'block')} of {count(threads, 'thread')}, each with its piece of every value")
    made: dict[int, SubRoot] = {}
    decisions = []
    for value, block_cut in sorted(schedules.items()):
        sub_root = _sub_root(graph, graph[value], block_cut, Space("block", blocks), mapping)
        phase = 0
        for key in leaves(graph, sub_root, frozenset(schedules)):
            producer = made[key[0]]
            phase = max(phase, producer.phase + _apart(graph, sub_root, producer, key, composition))
        made[value] = replace(sub_root, phase=phase)
        who = {"row": "all threads fold it", "warp": "a warp folds each"}
        each = who.get(sub_root.along, "a thread makes each")
        why = f"{block_cut.kind}, axis {block_cut.split_dim} in {block_cut.sword}: each of {count(blocks, 'block')} " \
              f"owns {count(graph[value].type.size // blocks, 'element')}; {each}"
        decisions.append(Decision((value,), "map", "block-composition", why))
    return StitchPlan(graph, device, composition, (), tuple(made.values()), tuple(decisions))


def _same_blocks(graph: Graph, schedules: Mapping[int, BlockCut]) -> int:
    """The number of blocks that all schedules agree on.

    Raises PlanError if they disagree, if a reduce or an output has no schedule, or if a block cut
    does not fit its value's shape.
    """
    for node in graph.nodes:
        if node.id not in schedules and (node.kind == "reduce" or node.id in graph.outputs):
            raise PlanError(f"%{node.id} {node.op} has no schedule; a block composition schedules every reduce and output")
    counts: dict[int, int] = {}
    for value, block_cut in schedules.items():
        shape = graph[value].type.shape
        if block_cut not in block_cuts_of(shape) or 0 in shape:
            raise PlanError(f"{block_cut} does not cut %{value} {graph[value].op} of shape {shape}; split_dim must name an axis, "
                            "sword must divide it, kind is row or column, and no axis may be empty")
        counts[block_cut.blocks(shape)] = value
    if len(counts) != 1:
        found = ", ".join(f"{n} for %{value}" for n, value in sorted(counts.items())) or "none"
        raise PlanError(f"the schedules of a kernel must give the same number of blocks; here: {found}; change a block cut")
    return next(iter(counts))


def _sub_root(graph: Graph, node: Node, block_cut: BlockCut, space: Space, mapping: ThreadMap) -> SubRoot:
    """The loop of one operation: its block's piece as columns, reduced axes inside a thread.

    If the piece is a single result, all threads share its fold. If the reduced rows are contiguous
    and at least a warp long, a warp takes each result.
    """
    axes, d = tuple(range(node.type.rank)), block_cut.split_dim
    before, after = axes[:d + 1], axes[d:]  # both with the axis that is split
    rows, cols = (before, after) if block_cut.kind == "row" else (after, before)
    if node.kind != "reduce":
        return map_of(node, Partition(rows, (), cols, block_cut.sword), space, mapping)
    domain, reduced = graph[node.args[0]].type.shape, node.attr("axes")
    # the axes of the result as axes of the operand
    axis_of = axes if node.attr("keepdims") else other_axes(domain, reduced)
    rows = tuple(axis_of[a] for a in rows if axis_of[a] not in reduced)
    cols = tuple(axis_of[a] for a in cols if axis_of[a] not in reduced)
    partition = Partition(rows, reduced, cols, block_cut.sword)
    _, serial, owned = partition.extents(domain)
    if owned == 1:
        partition = Partition(rows, (), cols + reduced, block_cut.sword)
    warps = owned > 1 and serial >= WARP <= mapping.threads and is_row_reduce(graph, node)
    return replace(fold_of(graph, node, "reduce", partition, space, mapping), warps=warps)


def _apart(graph: Graph, sub_root: SubRoot, producer: SubRoot, key: Key, composition: BlockComposition) -> bool:
    """Whether a value is read in a later phase than the one that makes it.

    False if the thread that makes an element also reads it, in the same loop. Raises PlanError if
    the reader's block does not own the element, or does not keep it.
    """
    value, at = key
    names = f"%{sub_root.node} {graph[sub_root.node].op} reads %{value} {graph[value].op}"
    how_far = distance(replace(sub_root, phase=producer.phase), producer, at)
    if how_far == "grid":
        raise PlanError(f"{names}, but its block does not own all the elements it reads; let one schedule follow from the other")
    found = value in composition.shared or value in graph.outputs or producer.along == "row"
    if how_far != "loop" and not found:
        raise PlanError(f"{names} in another loop, but the composition does not keep it: name it in shared")
    return how_far != "loop"
