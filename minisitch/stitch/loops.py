"""Gives each sub-root of a kernel its loop (the stage ``stitch``).

In:  a pattern's body (a ``Graph`` of its own) and a ``Device``. Out: a ``StitchPlan``.

AStitch 2022, section 4. Only *sub-roots* (class ``SubRoot``; the word is FusionStitching 2020's)
have loops: reduces, outputs, and values that are kept. Everything else is inlined where it is read.
A loop is known by

- its tasks (``Space``): all loops over the same tasks can pass values on inside a block;
- its *level*, the number of grid barriers before it. A loop over other tasks than its operand's has
  a higher level. Level and tasks together name a *segment*;
- its *phase*, a number that orders the loops of a segment. A loop that reads what an earlier loop
  of its block must finish first has a higher phase.

How far each value then travels, and in which memory, follows from the loops (``stitch.plan``).

Before:  %1 = max %0; %4 = exp(%0 - %1); %5 = sum %4; %7 = %4 / %5
After:   level 0, rows:  phase 0 %1   phase 1 %4 %5   phase 2 %7
         (%1, %4 and %5 are Regional; %7 is an output, and no loop reads it)
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..device import Device
from ..errors import PlanError
from ..fuse import ALL_INGREDIENTS, Decision, Stitching, count
from ..graph import Graph, Node, Shape
from ..ops import compute_dtype, itemsize
from .dominants import Group, candidates, groups_of, is_row_reduce, many_positions
from .index import Position, axis_variables, linear
from .mapping import EXCHANGED_AT_ONCE, WARP, ThreadMap, map_columns, map_rows
from .plan import StitchPlan, distance, leaves
from .pull import Key, pull
from .recompute import KeptValue, pays, worth_keeping
from .subroots import Extents, Partition, Space, SubRoot, adopt, fold_of, makes_locally, map_of, other_axes

# Bytes of shared memory reserved for block reduces (``kernel.memory``): two sets of exchange
# buffers. A buffer has a result of at most 8 bytes for each of at most 32 warps.
EXCHANGE_BYTES = 2 * EXCHANGED_AT_ONCE * WARP * 8

# The paper gives none of these numbers. They are ours.
MOST_CHOICES = 8  # a reader tests at most this many operands of a concatenation
SMALL_TASK = 4096  # elements that one task may take, even if other blocks are idle
LOOK_AHEAD = 64  # users to visit in search of a reduce that reads a value
# The length of the rows into which an element-wise value is cut, in elements.
SHORTEST_ROW, LONGEST_ROW = 512, 1 << 16


# ---------------------------------------------------------------- the stage
class BarrierNeeded(PlanError):
    """A composition without grid barriers needs one between ``value`` and ``reader`` (node ids)."""

    def __init__(self, message: str, value: int, reader: int) -> None:
        # Copies of an exception are made from what stands here.
        super().__init__(message, value, reader)
        self.value, self.reader = value, reader

    def __str__(self) -> str:
        return str(self.args[0])


def stitch(graph: Graph, device: Device, stitching: Stitching = ALL_INGREDIENTS) -> StitchPlan:
    """Give each sub-root of a kernel body its loop.

    ``stitching`` says which of AStitch's ingredients may be used. All sub-roots are arranged anew
    after each of these steps that changes something:

    1. The sub-roots are AStitch's candidates, and values that would be read at many positions.
    2. Without grid barriers: a value that would need one is recomputed instead, if it can be.
    3. Values that are costly and needed in several loops are kept: they are sub-roots, too.
    4. Those of them that would travel too far are recomputed after all.
    5. Without grid barriers: cut flat loops into rows. A block then makes whole rows, and the
       readers of a row are in the same block.

    Raises BarrierNeeded if ``stitching`` forbids grid barriers and a value cannot do without one.
    """
    groups, by_rules = groups_of(graph, stitching.merge), stitching.kept is None

    # 1
    needed = {n.id for n in graph.nodes if n.kind == "reduce" or n.id in graph.outputs}
    first = needed.union(candidates(graph) if stitching.kept is None else stitching.kept)
    scattered = many_positions(graph, first)
    chosen = first | scattered.keys()
    decisions = [Decision((v,), "keep", "many-positions", why)
                 for v, why in scattered.items()]

    def arranged(kept: Mapping[int, KeptValue], rowwise: bool = False) -> StitchPlan:
        looped = frozenset(chosen | kept.keys())
        return _Arranger(graph, device, stitching, groups, looped, kept, rowwise).plan()

    plan = arranged({})
    # 2
    if by_rules and not stitching.barriers:
        while far := _behind_barriers(plan).keys() - needed - scattered.keys():
            chosen -= far
            decisions += _too_far(far)
            plan = arranged({})
    # 3
    kept = worth_keeping(plan) if by_rules and stitching.keep else {}
    if kept:
        plan = arranged(kept)
    # 4
    paying = {v: k for v, k in kept.items()
              if pays(plan, v, k.heavy and stitching.barriers)}
    if useless := kept.keys() - paying:
        decisions += _too_far(useless)
        plan = arranged(paying)
    decisions += [Decision((v,), "keep", "costly-and-shared", f"%{v} {graph[v].op} is needed in several phases") for v in paying]
    # 5
    if not stitching.barriers and _behind_barriers(plan):
        plan = arranged(paying, rowwise=True)
        if waits := _behind_barriers(plan):
            value, reader = min(waits.items())
            raise BarrierNeeded(f"%{reader} {graph[reader].op} reads %{value} {graph[value].op}, "
                                "which other blocks compute: that needs a grid barrier, which this "
                                "composition forbids; put them in two kernels", value, reader)
    return replace(plan, decisions=(*decisions, *plan.decisions))


def _too_far(values: Collection[int]) -> list[Decision]:
    return [Decision((v,), "recompute", "not-local", f"%{v} would cross a grid barrier")
            for v in sorted(values)]


def _behind_barriers(plan: StitchPlan) -> dict[int, int]:
    """Values that a reader in the kernel gets only behind a grid barrier, each with such a reader.

    No reader has a lower level than the value. So if a reader is at level 0, the value is, too.
    A result with no reader in the kernel does not count. Its partial results may still be combined
    behind a grid barrier, where the papers use atomic operations.
    """
    return {r.value: r.reader.node for r in plan.reads if r.reader.level > 0}


# ---------------------------------------------------------------- one arrangement
@dataclass
class _Arranger:
    """Gives sub-roots their loops one by one, producers first.

    It is the only object of this file that changes. ``looped``: the nodes that become sub-roots.
    ``kept``: those of them that could be inlined. They are not made before the first level that
    needs them. ``rowwise``: cut element-wise values by rows instead of flattening them.
    """

    graph: Graph
    device: Device
    stitching: Stitching
    groups: tuple[Group, ...]
    looped: frozenset[int]
    kept: Mapping[int, KeptValue]
    rowwise: bool

    def __post_init__(self) -> None:
        dominants = [(g, self.graph[g.dominant]) for g in self.groups]
        self.row_reduces = {m: dominant for g, dominant in dominants
                            if is_row_reduce(self.graph, dominant) for m in g.members}
        self.made: dict[int, SubRoot] = {}
        self.order: list[SubRoot] = []
        self.decisions: list[Decision] = []

    def plan(self) -> StitchPlan:
        for node in map(self.graph.__getitem__, sorted(self.looped)):
            if node.kind == "reduce":
                self._add_reduce(node)
            elif self._by_operands(node):
                self._add_operands(node)
            else:
                self._add(self._element_wise(node))
        return StitchPlan(self.graph, self.device, self.stitching, self.groups,
                          tuple(self.order), tuple(self.decisions))

    # -- the loop of a sub-root
    def _add(self, s: SubRoot) -> SubRoot:
        """Give a sub-root the earliest loop over its tasks in which it finds all that it reads."""
        reads = [(self.made[value], at) for value, at in leaves(self.graph, s, self.looped)]
        # one higher than a producer's if other tasks make what is read
        levels = [p.level + (not makes_locally(p, s.space, at)) for p, at in reads]
        if s.node in self.kept:
            levels.append(self.kept[s.node].level)
        if s.role == "combine":
            levels.append(self.made[s.node].level + 1)
        s = replace(s, level=max(levels, default=0))
        # Try each producer's phase. If the distance is then "loop", one loop can do both.
        phases = [p.phase + (distance(replace(s, phase=p.phase), p, at) != "loop")
                  for p, at in reads if p.level == s.level]
        self.made[s.node] = s = replace(s, phase=max(phases, default=0))
        self.order.append(s)
        return s

    def _wished_map(self, extents: Extents, adaptive: bool = True, whole: bool = True) -> ThreadMap:
        """``map_rows`` as the composition wishes it: with its threads for a row, and for a block.

        Rows may be split over blocks if there are grid barriers, or if they need not be ``whole``.
        Values in no rows of a reduce do not come here: any ``map_rows`` will do for them.
        """
        rows, _, cols = extents
        asked = self.stitching
        return map_rows(rows, cols, self.device, adaptive=adaptive, whole=whole and not asked.barriers,
                        threads_per_row=asked.threads_per_row, threads=asked.threads)

    # -- reduces
    def _domain(self, reduce: Node) -> Shape:
        """The shape of what a reduce folds."""
        return self.graph[reduce.args[0]].type.shape

    def _add_reduce(self, node: Node) -> None:
        if is_row_reduce(self.graph, node):
            self._add_row_reduce(node)
        elif carry := self._carry(node):
            self._add_carry(node, carry)
        else:
            self._add_column_reduce(node)

    def _barred(self, node: Node) -> bool:
        """Whether no other block may take part in a reduce: its readers cannot wait for others."""
        return not self.stitching.barriers and bool(self.graph.users[node.id])

    def _add_row_reduce(self, node: Node) -> None:
        shape = self._domain(node)
        partition = _rows_of(node, shape)
        # others wait for the result, or this loop waits for others
        reads = self._memory(node.args[0], partition.position(shape))
        waits = bool(self.graph.users[node.id]) or any(value in self.made for value, _ in reads)
        mapping = self._wished_map(partition.extents(shape), self.stitching.adaptive, waits)
        self._decide(node, mapping.rule, mapping.why)
        role = "partial" if mapping.splits > 1 else "reduce"
        first = self._add(fold_of(self.graph, node, role, partition,
                                  _row_space(mapping), mapping))
        if role == "partial":
            self._add(replace(first, role="combine", domain=(mapping.rows, mapping.splits),
                              partition=Partition((0,), (), (1,))))

    def _add_column_reduce(self, node: Node) -> None:
        shape, axes = self._domain(node), node.attr("axes")
        last = max(axes, key=lambda a: (shape[a] != 1, a))
        before = other_axes(shape[:last], axes)
        after = other_axes(shape, axes)[len(before):]
        partition = Partition(before, axes, after)
        rows, serial, cols = partition.extents(shape)
        mapping, slices = map_columns(rows, serial, cols, self.device, self._barred(node))
        self._decide(node, mapping.rule, mapping.why)
        role = "partial" if slices > 1 else "reduce"
        space = Space("column", rows, mapping.splits, slices, serial if slices > 1 else 1, cols)
        first = self._add(fold_of(self.graph, node, role, partition, space, mapping))
        if role == "partial":
            self._combine_columns(first, rows, slices)

    def _combine_columns(self, first: SubRoot, rows: int, parts: int) -> None:
        """Fold the partial results of ``first``, ``parts`` rows of columns for each result row."""
        mapping, _ = map_columns(rows, 1, first.cols, self.device)
        space = Space("column", rows, mapping.splits, cols=first.cols)
        self._add(replace(first, role="combine", domain=(rows, parts, first.cols),
                          partition=Partition((0,), (1,), (2,)), space=space, thread_map=mapping))

    def _carry(self, node: Node) -> SubRoot | None:
        """The column-reduce ``node`` in the loop of a row-reduce. None if that cannot be.

        Both are in one group and read data of one shape. But for axes of one, the rows of the
        row-reduce are the axes that ``node`` reduces. So one loop over the rows can feed both.

        For data of [64, 100]: the row-reduce sums 100 columns of each of 64 rows, and ``node`` sums
        the 64 rows of each column. A block that takes 8 rows at once has 8 x 100 column sums. They
        grow from row to row, and stay in shared memory until its last row is done.
        """
        shape, axes = self._domain(node), node.attr("axes")
        host = self._row_reduce_of(node, shape)
        if not host or self._barred(node):
            return None
        long_axes = {a for a, n in enumerate(shape) if n != 1}
        if long_axes.difference(host.attr("axes")) != long_axes.intersection(axes):
            return None
        partition = Partition(axes, (), other_axes(shape, axes))  # its results are the columns
        mapping = self._wished_map(partition.extents(shape))
        carry = fold_of(self.graph, node, "carry", partition, _row_space(mapping), mapping)
        others = [s for s in self.order if s.role == "carry"]
        one_map = all(s.thread_map == mapping for s in others if s.space == carry.space)
        fits = mapping.splits == 1 and one_map and self._have_room([*others, carry])
        return carry if fits else None

    def _row_reduce_of(self, node: Node, shape: Shape) -> Node | None:
        """The dominant of the node's group, if it is a row-reduce over data of this shape."""
        dominant = self.row_reduces.get(node.id)
        return dominant if dominant and self._domain(dominant) == shape else None

    def _have_room(self, carries: Sequence[SubRoot]) -> bool:
        """Whether these column sums fit in shared memory.

        They stay there for as long as the block runs. Unlike a kept row they cannot be demoted.
        """
        needed = 0
        for s in carries:
            dtype = compute_dtype(self.graph[s.node].type.dtype)
            needed += s.thread_map.rows_per_block * s.cols * itemsize(dtype)
        return needed <= self.device.shared_per_block - EXCHANGE_BYTES

    def _add_carry(self, node: Node, carry: SubRoot) -> None:
        host, mapping = self.row_reduces[node.id], carry.thread_map
        parts = mapping.blocks * mapping.rows_per_block
        self._decide(node, "carry", f"shares its rows with %{host.id} {host.op}: one partial row "
                                    f"for each of {parts} row lanes, so the data is read once")
        self._combine_columns(self._add(carry), 1, parts)

    # -- element-wise sub-roots
    def _by_operands(self, node: Node) -> bool:
        """Whether a concatenation is stored operand by operand (``_add_operands``).

        True for an output whose readers, if it has any, are column-reduces: they wait for the whole
        value anyway. With grid barriers also true for an output with more than ``MOST_CHOICES``
        operands: testing for each element which operand it comes from costs more than a barrier.
        """
        if node.op != "concatenate" or not node.type.size or node.id not in self.graph.outputs:
            return False
        many = self.stitching.barriers and len(self._operands(node)) > MOST_CHOICES
        return many or all(self._waits(self.graph[user])
                           for user in self.graph.users[node.id])

    def _waits(self, node: Node) -> bool:
        """Whether a node waits for all of its operand: a reduce that reads rows of all tasks."""
        return node.kind == "reduce" and not (is_row_reduce(self.graph, node)
                                              or self._carry(node))

    def _operands(self, joined: Node) -> list[tuple[Node, Shape]]:
        """The operands of a concatenation, each with the place of its first element in the result.

        A nested concatenation that is not in memory counts with its own operands.
        """
        found, pending = [], [(joined, (0,) * joined.type.rank)]
        while pending:
            operand, origin = pending.pop()
            if operand is not joined and (operand.op != "concatenate"
                                          or operand.id in self.looped):
                found += [(operand, origin)] if operand.type.size else []
                continue
            axis, inner = operand.attr("axis"), []
            for arg in map(self.graph.__getitem__, operand.args):
                inner.append((arg, origin))
                origin = *origin[:axis], origin[axis] + arg.type.shape[axis], *origin[axis + 1:]
            pending += reversed(inner)
        return found

    def _add_operands(self, node: Node) -> None:
        """Give each operand of a concatenation a loop that stores it at its place in the result.

        So no element has to test which operand it comes from.
        """
        stored = []
        for operand, origin in self._operands(node):
            s = self._element_wise(operand)
            result_at = tuple(i + first
                              for i, first in zip(s.result_at, origin, strict=True))
            stored.append(self._add(replace(s, node=node.id, role="operand",
                                            result_at=result_at)))
        self.made[node.id] = max(stored, key=lambda s: s.level)
        self._decide(node, "by-operands", "its readers wait until all is written, so no element chooses "
                     f"an operand: {count(len(stored), 'operand')} stored each where it belongs")

    def _element_wise(self, node: Node) -> SubRoot:
        """An element-wise value with its axes, its tasks and its threads.

        If no producer's rows fit, it takes the rows of the dominant, or of a reduce that reads it.
        """
        shape = node.type.shape
        reads = self._memory(node.id, axis_variables(shape))
        if adapted := self._in_rows_of_a_producer(node, reads):
            return adapted
        reduce = self._row_reduce_of(node, shape) or self._row_reduce_that_reads(node)
        partition = _rows_of(reduce, shape) if reduce else self._flat(shape, reads)
        extents = partition.extents(shape)
        if reduce:
            mapping = self._wished_map(extents)
        else:
            mapping = map_rows(extents.rows, extents.cols, self.device,
                               threads=self.stitching.threads)
        self._decide(node, mapping.rule, mapping.why)
        return map_of(node, partition, _row_space(mapping), mapping)

    def _in_rows_of_a_producer(self, node: Node, reads: Sequence[Key]) -> SubRoot | None:
        """Proactive adaptation (AStitch 2022, 4.3): take over a producer's rows, to stay Regional."""
        shape = node.type.shape
        producers = [(self.made[value], at) for value, at in reads if value in self.made]
        for producer, at in sorted(producers, key=lambda read: -read[0].level):
            space, partition = producer.space, adopt(producer, at, shape)
            if partition and self._may_take_over(space, extents := partition.extents(shape)):
                taken = f"takes the {count(space.rows, 'row')} of %{producer.node}"
                self._decide(node, "proactive-adaptation", taken)
                return map_of(node, partition, space, self._widened(producer, extents))
        return None

    def _widened(self, producer: SubRoot, extents: Extents) -> ThreadMap:
        """The map of the producer's rows, or one of longer rows if the reader has more columns."""
        space, known = producer.space, producer.thread_map
        if space.kind != "row" or space.chunks > 1 or extents.cols <= known.cols:
            return known
        wider = self._wished_map(extents, self.stitching.adaptive)
        return wider if wider.splits == 1 else known

    def _memory(self, value: int, position: Position) -> Sequence[Key]:
        """All reads from memory that ``value`` at ``position`` is computed from."""
        asked = value, position
        # a value that has its loop is read from memory; one whose loop is being chosen is computed
        return pull(self.graph, [asked], self.looped, own=() if value in self.made else [asked]).leaves

    def _may_take_over(self, space: Space, extents: Extents) -> bool:
        """Whether a loop with these ``extents`` may take over the tasks of ``space``.

        Column tiles are taken over only if they occupy the device, or if the work is tiny. Rows
        that are split into chunks fit only a value with the same columns, or with one element a
        row.
        """
        if space.kind == "row":
            return space.chunks == 1 or extents.cols in (1, space.cols)
        wave = self.device.wave(self.device.max_block)
        return 2 * space.rows * space.chunks >= wave or extents.serial * extents.cols <= SMALL_TASK

    def _row_reduce_that_reads(self, node: Node) -> Node | None:
        """A row-reduce that reads the value element by element: one block does both."""
        pending, seen = [node.id], {node.id}
        while pending and len(seen) < LOOK_AHEAD:
            for user in self.graph.users[pending.pop()]:
                reader = self.graph[user]
                if is_row_reduce(self.graph, reader):
                    return reader
                if reader.kind == "map" and user not in seen:
                    seen.add(user)
                    pending.append(user)
        return None

    def _flat(self, shape: Shape, reads: Sequence[Key]) -> Partition:
        """The axes that become rows, and those that become columns.

        - ``rowwise``: the last axis is the columns.
        - Every operand is read in row-major order: all axes are columns.
        - Else as few of the last axes as make ``SHORTEST_ROW`` columns. If these are all axes, and
          more than ``LONGEST_ROW`` elements, the first axis is rows after all.
        """
        axes, cut = tuple(range(len(shape))), max(0, len(shape) - 1)
        in_order = linear(axis_variables(shape), shape).terms
        if not self.rowwise:
            while cut and math.prod(shape[cut:]) < SHORTEST_ROW:
                cut -= 1
            if not cut and len(shape) > 1 and math.prod(shape) > LONGEST_ROW:
                cut = 1
            if all(linear(at, self.graph[value].type.shape).terms in ((), in_order)
                   for value, at in reads):
                cut = 0
        return Partition(axes[:cut], (), axes[cut:])

    def _decide(self, node: Node, rule: str, why: str) -> None:
        self.decisions.append(Decision((node.id,), "map", rule, why))


def _row_space(m: ThreadMap) -> Space:
    """The tasks of a row mapping. Chunks of split rows are tasks of their own."""
    return Space("row", m.rows, m.splits, cols=m.cols if m.splits > 1 else 0)


def _rows_of(reduce: Node, shape: Shape) -> Partition:
    """The partition of a row-reduce: a row for each result. The columns are the axes it reduces."""
    axes = reduce.attr("axes")
    return Partition(other_axes(shape, axes), (), axes)
