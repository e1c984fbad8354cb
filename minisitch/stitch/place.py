"""Gives each sub-root of a kernel its loop, and each kept value its place.

In:  a pattern's body (a ``Graph`` of its own) and a ``Device``. Out: a ``StitchPlan``.

AStitch 2022, section 4. Only *sub-roots* (class ``SubRoot``) have loops: reduces, outputs, and values
that are kept. Everything else is inlined where it is read (the Local scheme). Two questions are
answered for each sub-root:

- Which loop does it run in? A *segment* holds tasks that run side by side and ends at a grid
  barrier. A *phase* is a part of a segment and ends at a block barrier.
- How do its readers get its value? If the block that reads it also makes it: from a register or
  from shared memory (Regional). Otherwise: from global memory, behind a grid barrier (Global).

Before:  %1 = max %0; %4 = exp(%0 - %1); %5 = sum %4; %7 = %4 / %5
After:   segment 0, rows:  phase 0 %1   phase 1 %4 %5   phase 2 %7      (all Regional)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..device import Device
from ..errors import PlanError
from ..fuse import ALL_INGREDIENTS, Composition, Decision, Stitching, count, is_heavy
from ..graph import Graph, Node
from .dominants import Group, candidates, groups_of, is_row_reduce, many_positions
from .index import ZERO, Digit, Index, Key, Position, linear, pull
from .mapping import ThreadMap, map_columns, map_rows, map_rows_as
from .recompute import ReadingLoop, heavy_inside, worth_keeping
from .subroots import Partition, Space, SubRoot, adopt, column_of, makes_near, result_position

# Bytes of shared memory reserved for block reduces: two sets of 32 warps x 32 results x 8 bytes.
MEETING_PLACES = 16_384

# The paper gives none of these numbers. They are ours.
MOST_CHOICES = 8  # a reader tests at most this many operands of a concatenation
SMALL_TASK = 4096  # elements that one task may take, even if other blocks are idle
LOOK_AHEAD = 64  # users to visit in search of a reduce that reads a value
# The length of the rows into which an element-wise value is cut, in elements.
SHORTEST_ROW, LONGEST_ROW = 512, 1 << 16


# ---------------------------------------------------------------- the plan
@dataclass(frozen=True)
class StitchPlan:
    """The sub-roots of one kernel in order, and the decisions that placed them.

    ``level`` and ``phase`` of a sub-root name its loop: the grid barriers before it, and the block
    barriers before it in its segment.
    """

    graph: Graph
    device: Device
    composition: Composition
    groups: tuple[Group, ...]
    sub_roots: tuple[SubRoot, ...]
    decisions: tuple[Decision, ...]
    # of each segment, if a pass has chosen them
    maps: tuple[tuple[tuple[int, Space], ThreadMap], ...] = ()
    # values kept in global memory, since shared memory is full
    demoted: frozenset[int] = frozenset()

    @cached_property
    def final(self) -> dict[int, SubRoot]:
        """The sub-root whose value readers see: the last one that is made for a node."""
        return {s.node: s for s in self.sub_roots}

    @property
    def grid_barriers(self) -> int:
        return max((s.level for s in self.sub_roots), default=0)

    def __str__(self) -> str:
        lines = [f"# after stitch: {count(len(self.groups), 'group')}, {count(len(self.sub_roots), 'sub-root')}, "
                 f"{count(self.grid_barriers, 'grid barrier')}"]
        for number, group in enumerate(self.groups):
            subs = f", sub-dominants {' '.join(f'%{s}' for s in group.subdominants)}" if group.subdominants else ""
            lines.append(f"group {number}: {' '.join(f'%{m}' for m in group.members)}  dominant %{group.dominant}{subs}")
        for s in self.sub_roots:
            rows, serial, cols = s.extents
            lines.append(f"level {s.level} phase {s.phase}: %{s.node} {self.graph[s.node].op} {s.role}"
                         + (f" %{s.operand}" if s.role == "piece" else "") + f" over "
                         f"{count(rows, 'row')} x {count(cols, 'col')}" + (f" x {serial} serial" if serial != 1 else "")
                         + f"  {s.scheme}{': ' + s.why if s.why else ''}")
        return "\n".join(lines)


# ---------------------------------------------------------------- placing sub-roots in loops
Mapped = tuple[Partition, Space, ThreadMap]  # how a loop runs over a value


class _Arranger:
    """Places sub-roots one by one, producers first. No other object of this file changes.

    ``wanted``: the nodes that become sub-roots. ``floors``: the first segment that a node may run
    in. ``rowwise``: cut element-wise values by rows instead of flattening them.
    """

    def __init__(self, graph: Graph, device: Device, stitching: Stitching, groups: Sequence[Group], sub_roots: Iterable[int],
                 floors: Mapping[int, int], rowwise: bool = False) -> None:
        self.graph, self.device, self.stitching, self.floors, self.rowwise = graph, device, stitching, floors, rowwise
        self.wanted = frozenset(sub_roots)
        self.group_of = {m: g for g in groups for m in g.members}
        self.made: dict[int, SubRoot] = {}
        self.order: list[SubRoot] = []
        self.decisions: list[Decision] = []
        # Each loop that evaluates operands, with the sub-roots it reads.
        self.reads: list[tuple[SubRoot, Sequence[Key]]] = []

    def run(self) -> None:
        for node_id in sorted(self.wanted):
            node = self.graph[node_id]
            if node.kind == "reduce":
                self._place_reduce(node)
            elif node.op == "concatenate" and node.type.size and self._in_pieces(node_id):
                self._place_pieces(node)
            else:
                self._place_map(node)

    # -- reading positions
    def _leaves(self, value: int, position: Position) -> list[Key]:
        """The sub-roots that ``value`` at ``position`` reads, each with its position."""
        return [key for key in self._pull(value, position) if key[0] in self.made]

    def _pull(self, value: int, position: Position) -> Sequence[Key]:
        """All reads from memory that ``value`` at ``position`` is computed from."""
        root = value, position
        return pull(self.graph, [root], self.wanted, own=() if value in self.made else [root]).leaves

    def _level(self, leaves: Sequence[Key], space: Space, floor: int) -> int:
        level = floor
        for value, position in leaves:
            producer = self.made[value]
            local = makes_near(producer, space, position)
            level = max(level, producer.level + (0 if local else 1))
        return level

    def _phase(self, leaves: Sequence[Key], space: Space, level: int, extents: tuple[int, int, int], position: Position) -> int:
        phase = 0
        for value, at in leaves:
            producer = self.made[value]
            if producer.level != level or producer.space != space:
                continue
            same_thread = (producer.role == "map" and producer.extents == extents and producer.home == at
                           and producer.partition.serial == ())
            phase = max(phase, producer.phase + (0 if same_thread else 1))
        return phase

    def _add(self, node: Node, role: str, domain: Sequence[int], partition: Partition, space: Space, leaves: Sequence[Key],
             thread_map: ThreadMap, home: Position, floor: int = 0, operand: int = -1) -> SubRoot:
        domain = tuple(domain)
        level = self._level(leaves, space, max(floor, self.floors.get(node.id, 0)))
        phase = self._phase(leaves, space, level, partition.extents(domain), partition.position(domain))
        sub_root = SubRoot(node.id, role, domain, partition, space, level, phase, home, thread_map, operand=operand)
        self.order.append(sub_root)
        self.made[node.id] = sub_root
        if role != "combine":  # a combine reads only partial results
            self.reads.append((sub_root, leaves))
        return sub_root

    def _map_whole(self, rows: int, cols: int) -> ThreadMap:
        """The mapping of rows that several loops share. It is always the adaptive one."""
        return map_rows_as(replace(self.stitching, adaptive=True), rows, cols, self.device)

    # -- reduces
    def _place_reduce(self, node: Node) -> None:
        shape, axes = self.graph[node.args[0]].type.shape, node.attr("axes")
        kept = tuple(a for a in range(len(shape)) if a not in axes)
        host = self._carrying_dominant(node, shape, axes)
        if host is not None:
            self._place_carry(node, shape, axes, kept, host)
        elif is_row_reduce(self.graph, node):
            self._place_row_reduce(node, shape, axes, kept)
        else:
            self._place_column_reduce(node, shape, axes, kept)

    def _place_row_reduce(self, node: Node, shape: tuple[int, ...], axes: tuple[int, ...], kept: tuple[int, ...]) -> None:
        partition = Partition(kept, (), axes)
        rows, _, cols = partition.extents(shape)
        position = partition.position(shape)
        leaves = self._leaves(node.args[0], position)
        mapping = map_rows_as(self.stitching, rows, cols, self.device, whole=bool(leaves or self.graph.users[node.id]))
        space = _row_space(mapping)
        home = result_position(node, position)
        self._decide(node, mapping.rule, mapping.why)
        if mapping.splits == 1:
            self._add(node, "reduce", shape, partition, space, leaves, mapping, home)
            return
        first = self._add(node, "partial", shape, partition, space, leaves, mapping, home)
        self._add(node, "combine", (rows, mapping.splits), Partition((0,), (), (1,)), space, (), mapping, home, first.level + 1)

    def _place_column_reduce(self, node: Node, shape: tuple[int, ...], axes: tuple[int, ...], kept: tuple[int, ...]) -> None:
        last = max(a for a in axes if shape[a] != 1) if any(shape[a] != 1 for a in axes) else max(axes)
        tail = tuple(a for a in kept if a > last)
        head = tuple(a for a in kept if a < last)
        partition = Partition(head, axes, tail)
        rows, serial, cols = partition.extents(shape)
        # readers cannot wait for other blocks
        whole = not self.stitching.barriers and bool(self.graph.users[node.id])
        mapping, slices = map_columns(rows, serial, cols, self.device, whole)
        space = Space("column", rows, mapping.splits, slices, serial if slices > 1 else 1, cols)
        position = partition.position(shape)
        leaves = self._leaves(node.args[0], position)
        home = result_position(node, position)
        self._decide(node, mapping.rule, mapping.why)
        if slices == 1:
            self._add(node, "reduce", shape, partition, space, leaves, mapping, home)
            return
        first = self._add(node, "partial", shape, partition, space, leaves, mapping, home)
        self._combine_columns(node, rows, slices, cols, home, first.level + 1)

    def _combine_columns(self, node: Node, rows: int, parts: int, cols: int, home: Position, floor: int) -> None:
        mapping, _ = map_columns(rows, 1, cols, self.device)
        space = Space("column", rows, mapping.splits, 1, 1, cols)
        self._add(node, "combine", (rows, parts, cols), Partition((0,), (1,), (2,)), space, (), mapping, home, floor)

    def _carrying_dominant(self, node: Node, shape: tuple[int, ...], axes: tuple[int, ...]) -> Node | None:
        """The row-reduce in whose loop the column-reduce ``node`` can run, or None.

        Both are in one group and read data of one shape. The rows of the row-reduce are the axes
        that ``node`` reduces. So one loop over the rows can feed both.
        """
        group = self.group_of.get(node.id)
        if group is None or is_row_reduce(self.graph, node) or (not self.stitching.barriers and self.graph.users[node.id]):
            return None
        dominant = self.graph[group.dominant]
        if dominant.kind != "reduce" or not is_row_reduce(self.graph, dominant):
            return None
        if self.graph[dominant.args[0]].type.shape != shape:
            return None
        rows = tuple(a for a in range(len(shape)) if a not in dominant.attr("axes") and shape[a] != 1)
        if rows != tuple(a for a in axes if shape[a] != 1):
            return None
        rows_n, _, cols = Partition(rows, (), tuple(a for a in range(len(shape)) if a not in rows)).extents(shape)
        mapping = self._map_whole(rows_n, cols)
        others = {s.thread_map for s in self.order if s.role == "carry" and s.space.rows == rows_n}
        fits = mapping.splits == 1 and others <= {mapping} and self._room_for_carry(node, mapping, cols)
        return dominant if fits else None

    def _room_for_carry(self, node: Node, mapping: ThreadMap, cols: int) -> bool:
        """Whether the column sums fit in shared memory.

        They stay there for as long as the block runs. Unlike a kept row they cannot be demoted.
        """
        rows = [(s.node, s.thread_map.rows_per_block * s.extents[2]) for s in self.order if s.role == "carry"]
        rows.append((node.id, mapping.rows_per_block * cols))
        wanted = sum(size * max(4, self.graph[value].type.itemsize) for value, size in rows)
        return wanted <= self.device.shared_per_block - MEETING_PLACES

    def _place_carry(self, node: Node, shape: tuple[int, ...], axes: tuple[int, ...], kept: tuple[int, ...], host: Node) -> None:
        partition = Partition(axes, (), kept)
        rows, _, cols = partition.extents(shape)
        mapping = self._map_whole(rows, cols)
        position = partition.position(shape)
        home = result_position(node, Partition((), (), kept).position(tuple(1 if a in axes else n for a, n in enumerate(shape))))
        parts = mapping.blocks * mapping.rows_per_block
        self._decide(node, "carry", f"shares its rows with %{host.id} {host.op}: one partial row for each of "
                                    f"{parts} row lanes, so the data is read once")
        first = self._add(node, "carry", shape, partition, Space("row", rows), self._leaves(node.args[0], position), mapping, home)
        self._combine_columns(node, 1, parts, cols, home, first.level + 1)

    # -- element-wise sub-roots
    def _place_map(self, node: Node) -> None:
        partition, space, mapping = self._over(node)
        position = partition.position(node.type.shape)
        self._add(node, "map", node.type.shape, partition, space, self._leaves(node.id, position), mapping, position)

    def _in_pieces(self, value: int) -> bool:
        """Whether a concatenation is stored operand by operand (``_place_pieces``).

        True for an output that only column-reduces read: they wait for the whole value anyway. Also
        true for an output with more than ``MOST_CHOICES`` operands: testing for each element which
        operand it comes from costs more than a grid barrier.
        """
        pending = [value] if value in self.graph.outputs else []
        if pending and self.stitching.barriers and self._choices(value) > MOST_CHOICES:
            return True
        for reader in pending:
            users = self.graph.users[reader]
            if any(u in self.wanted and not self._waits(self.graph[u]) for u in users):
                return False
            pending += [u for u in users if u not in self.wanted and u not in pending]
        return bool(pending)

    def _choices(self, value: int) -> int:
        """How many operands a reader of a concatenation chooses from.

        A nested concatenation that is not in memory counts with its own operands. The count stops
        after ``MOST_CHOICES``.
        """
        pending, found = [value], 0
        while pending and found <= MOST_CHOICES:
            node = self.graph[pending.pop()]
            if node.op == "concatenate" and (node.id == value or node.id not in self.wanted):
                pending += node.args
            else:
                found += 1
        return found

    def _waits(self, node: Node) -> bool:
        """True for a reduce that reads rows of other tasks under every mapping."""
        if node.kind != "reduce" or is_row_reduce(self.graph, node):
            return False
        return self._carrying_dominant(node, self.graph[node.args[0]].type.shape, node.attr("axes")) is None

    def _place_pieces(self, node: Node) -> None:
        """Give each operand of a concatenation a loop that stores it at its offset in the result.

        So no element has to test which operand it comes from. A nested concatenation that is not in
        memory is stored operand by operand, too.
        """
        pending, operands = [(node, (0,) * len(node.type.shape))], []
        while pending:
            operand, origin = pending.pop()
            if operand is node or (operand.op == "concatenate" and operand.id not in self.wanted):
                axis, inner = operand.attr("axis"), []
                for arg in map(self.graph.__getitem__, operand.args):
                    inner.append((arg, origin))
                    origin = *origin[:axis], origin[axis] + arg.type.shape[axis], *origin[axis + 1:]
                pending += reversed(inner)
            elif operand.type.size:
                operands.append((operand, origin))
        for operand, origin in operands:
            partition, space, mapping = self._over(operand)
            position = partition.position(operand.type.shape)
            home = tuple(i + first for i, first in zip(position, origin, strict=True))
            self._add(node, "piece", operand.type.shape, partition, space, self._leaves(operand.id, position), mapping, home,
                      operand=operand.id)
        pieces = [s for s in self.order if s.node == node.id]
        self.made[node.id] = max(pieces, key=lambda s: s.level)
        self._decide(node, "pieces", f"whoever reads it waits until all is written, so nothing is chosen element by element: "
                                     f"{count(len(pieces), 'operand')} stored each where it belongs")

    def _over(self, node: Node) -> Mapped:
        """How the loop of an element-wise value runs: partition, tasks, and thread mapping."""
        shape = node.type.shape
        everything = self._pull(node.id, tuple(Index(0, ((1, Digit(f"d{a}", 1, n)),)) if n > 1 else ZERO
                                               for a, n in enumerate(shape)))
        return self._adapt(node, shape, [key for key in everything if key[0] in self.made], everything)

    def _adapt(self, node: Node, shape: tuple[int, ...], leaves: Sequence[Key], everything: Sequence[Key]) -> Mapped:
        """Proactive adaptation (AStitch 2022, 4.3): take over a producer's rows, to stay Regional.

        If no producer's rows fit, take the rows of the dominant, or of a reduce that reads the
        value.
        """
        for value, position in sorted(leaves, key=lambda key: -self.made[key[0]].level):
            producer = self.made[value]
            partition = adopt(producer, position, shape)
            if partition is not None and self._fills(producer.space, partition.extents(shape)):
                self._decide(node, "proactive-adaptation", f"takes the {count(producer.space.rows, 'row')} of %{value}")
                return partition, producer.space, producer.thread_map
        anchored = self._with_dominant(node, shape) or self._with_reader(node, shape)
        partition = anchored or self._flat(shape, everything)
        rows, _, cols = partition.extents(shape)
        mapping = self._map_whole(rows, cols) if anchored else map_rows(rows, cols, self.device, threads=self.stitching.threads)
        self._decide(node, mapping.rule, mapping.why)
        return partition, _row_space(mapping), mapping

    def _fills(self, space: Space, extents: tuple[int, int, int]) -> bool:
        """Whether a loop with these ``extents`` may take over the tasks of ``space``.

        Column tiles are taken over only if they occupy the device, or if the work is tiny. Rows
        that are split into chunks fit only a value with the same columns, or with one element a
        row.
        """
        _, serial, cols = extents
        wave = self.device.wave(self.device.max_block)
        if space.kind == "row":
            return space.chunks == 1 or cols in (1, space.cols)
        return 2 * space.rows * space.chunks >= wave or serial * cols <= SMALL_TASK

    def _with_dominant(self, node: Node, shape: tuple[int, ...]) -> Partition | None:
        """The rows of the group's row-reduce, if it reads data of the same shape."""
        group = self.group_of.get(node.id)
        if group is None:
            return None
        dominant = self.graph[group.dominant]
        if dominant.kind != "reduce" or not is_row_reduce(self.graph, dominant):
            return None
        if self.graph[dominant.args[0]].type.shape != shape:
            return None
        axes = dominant.attr("axes")
        return Partition(tuple(a for a in range(len(shape)) if a not in axes), (), tuple(axes))

    def _with_reader(self, node: Node, shape: tuple[int, ...]) -> Partition | None:
        """The rows of a row-reduce that reads the value element by element: one block does both."""
        pending, seen = [node.id], {node.id}
        while pending and len(seen) < LOOK_AHEAD:
            for user in self.graph.users[pending.pop()]:
                reader = self.graph[user]
                if reader.kind == "reduce" and is_row_reduce(self.graph, reader):
                    axes = reader.attr("axes")
                    return Partition(tuple(a for a in range(len(shape)) if a not in axes), (), tuple(axes))
                if reader.kind == "map" and user not in seen:
                    seen.add(user)
                    pending.append(user)
        return None

    def _flat(self, shape: tuple[int, ...], everything: Sequence[Key]) -> Partition:
        """All axes as columns if every operand is read in row-major order, else only the last axes.

        Then there are at least ``SHORTEST_ROW`` columns, if the shape has them.
        """
        axes = tuple(range(len(shape)))
        if self.rowwise and len(shape) > 1:
            return Partition(axes[:-1], (), axes[-1:])
        offsets = (linear(at, self.graph[value].type.shape) for value, at in everything)
        straight = all(not offset.terms or _reads_straight(offset, shape) for offset in offsets)
        if straight or len(shape) < 2:
            return Partition((), (), axes)
        cut, cols = len(shape) - 1, shape[-1]
        while cut > 0 and cols < SHORTEST_ROW:
            cut -= 1
            cols *= shape[cut]
        if cut == 0 and cols > LONGEST_ROW:
            cut = 1
        return Partition(axes[:cut], (), axes[cut:])

    def _decide(self, node: Node, rule: str, why: str) -> None:
        self.decisions.append(Decision((node.id,), "map", rule, why))


def _row_space(m: ThreadMap) -> Space:
    """The tasks of a row mapping. Chunks of split rows are tasks of their own."""
    return Space("row", m.rows, m.splits, cols=m.cols if m.splits > 1 else 0)


def _reads_straight(offset: Index, shape: Sequence[int]) -> bool:
    """True when the offset runs through the domain in row-major order, as in a copy."""
    stride = 1
    expected = {}
    for axis in reversed(range(len(shape))):
        expected[f"d{axis}"] = stride
        stride *= shape[axis]
    return all(isinstance(a, Digit) and a.stride == 1 and a.size == shape[int(a.var[1:])] and c == expected[a.var]
               for c, a in offset.terms) and len(offset.terms) == sum(n > 1 for n in shape)


# ---------------------------------------------------------------- the pass
class BarrierNeeded(PlanError):
    """A composition without grid barriers needs one between ``value`` and ``reader`` (node ids)."""

    def __init__(self, message: str, value: int, reader: int) -> None:
        super().__init__(message, value, reader)
        self.value, self.reader = value, reader

    def __str__(self) -> str:
        return str(self.args[0])


def stitch(graph: Graph, device: Device, stitching: Stitching = ALL_INGREDIENTS) -> StitchPlan:
    """Give each sub-root of a kernel body its loop, and each of its values a place.

    A value that its readers' blocks do not make goes through global memory and a grid barrier.
    ``stitching`` says which of AStitch's ingredients may be used.

    Raises BarrierNeeded if ``stitching`` forbids grid barriers and a value cannot do without one.
    """
    groups = groups_of(graph, stitching.merge)
    base = set(candidates(graph))
    if stitching.kept is not None:
        base = {v for v in base if graph[v].kind == "reduce" or v in graph.outputs} | set(stitching.kept)
    scattered = many_positions(graph, base)
    base.update(scattered)
    arranged = _arrange(graph, device, stitching, groups, base, {})
    decisions = [Decision((v,), "keep", "many-positions", why) for v, why in scattered.items()]
    # Without grid barriers each block recomputes what another block would have to make.
    if not stitching.barriers and stitching.kept is None:
        while far := {v for v in _behind_barriers(arranged) if graph[v].kind != "reduce" and v not in graph.outputs} - {*scattered}:
            base -= far
            decisions += [Decision((v,), "recompute", "not-local", f"%{v} would cross a grid barrier") for v in sorted(far)]
            arranged = _arrange(graph, device, stitching, groups, base, {})
    if stitching.keep and stitching.kept is None:
        floors = worth_keeping(graph, arranged.wanted, _evaluated(arranged))
        if floors:
            arranged = _arrange(graph, device, stitching, groups, base | floors.keys(), floors)
            readers = _readers(arranged)
            useless = [v for v in floors if not _is_useful(arranged, v, readers.get(v, ()))]
            if useless:
                for v in useless:
                    decisions.append(Decision((v,), "recompute", "not-local", f"%{v} would cross a grid barrier"))
                floors = {v: level for v, level in floors.items() if v not in useless}
                arranged = _arrange(graph, device, stitching, groups, base | floors.keys(), floors)
        decisions += [Decision((v,), "keep", "costly-and-shared", f"%{v} {graph[v].op} is needed in several phases")
                      for v in floors]
    # try again with rows: a row's readers are in its block
    if not stitching.barriers and _behind_barriers(arranged):
        arranged = _arrange(graph, device, stitching, groups, arranged.wanted, arranged.floors, rowwise=True)
    if not stitching.barriers and (waits := _behind_barriers(arranged)):
        value, reader = min(waits.items())
        raise BarrierNeeded(f"%{reader} {graph[reader].op} reads %{value} {graph[value].op}, which other blocks compute: "
                            "that needs a grid barrier, which this composition forbids; put them in two kernels", value, reader)
    sub_roots = _with_schemes(graph, arranged)
    decisions += arranged.decisions
    decisions += [Decision((s.node,), s.scheme, "locality", s.why) for s in sub_roots if s.why]
    return StitchPlan(graph, device, stitching, groups, sub_roots, tuple(decisions))


def _arrange(graph: Graph, device: Device, stitching: Stitching, groups: Sequence[Group], sub_roots: Iterable[int],
             floors: Mapping[int, int], rowwise: bool = False) -> _Arranger:
    arranger = _Arranger(graph, device, stitching, groups, sub_roots, floors, rowwise)
    arranger.run()
    return arranger


def _evaluated(arranged: _Arranger) -> list[tuple[int, ReadingLoop]]:
    """The value that each loop evaluates, with the loop.

    A combine evaluates nothing. A piece does not count if its operand has a loop of its own.
    """
    found = [(s.operand if s.role == "piece" else s.node, s) for s, _ in arranged.reads]
    return [(value, (s.level, s.space, s.phase)) for value, s in found if s.role != "piece" or value not in arranged.made]


def _behind_barriers(arranged: _Arranger) -> dict[int, int]:
    """Values that a reader in the kernel gets only behind a grid barrier, each with such a reader.

    A result with no reader in the kernel does not count. Its partial results may still be combined
    behind a grid barrier, where the papers use atomic operations.
    """
    return {value: user.node for user, leaves in arranged.reads for value, _ in leaves
            if arranged.made[value].level > 0 or user.level > 0}


def _readers(arranged: _Arranger) -> dict[int, list[SubRoot]]:
    """The sub-roots that read each sub-root's value."""
    found: dict[int, list[SubRoot]] = {}
    for user, leaves in arranged.reads:
        for value, _ in leaves:
            found.setdefault(value, []).append(arranged.made.get(user.node, user))
    return found


def _is_useful(arranged: _Arranger, value: int, readers: Sequence[SubRoot]) -> bool:
    """Whether keeping a value pays.

    A light value must be read by the block that makes it. A heavy one may also travel through
    global memory, if grid barriers are allowed.
    """
    graph, sub_root = arranged.graph, arranged.made[value]
    local = all(r.level == sub_root.level and r.space == sub_root.space for r in readers)
    heavy = is_heavy(graph, graph[value]) or heavy_inside(graph, value, arranged.wanted)
    return bool(readers) and (local or (heavy and arranged.stitching.barriers))


def _with_schemes(graph: Graph, arranged: _Arranger) -> tuple[SubRoot, ...]:
    """The sub-roots with their schemes (AStitch B6).

    Regional if every reader is in the producer's own segment, Global if a reader is in another one.
    """
    crossing: dict[int, str] = {}
    near: set[int] = set()
    for reader, leaves in arranged.reads:
        for value, position in leaves:
            producer = arranged.made[value]
            if reader.level == producer.level and reader.space == producer.space:
                near.add(value)
            else:
                reason = "other tasks make it" if reader.space != producer.space or column_of(producer, position) is None \
                    else "a grid barrier lies in between"
                crossing.setdefault(value, f"%{reader.node} {graph[reader.node].op} reads it across blocks: {reason}")
    found = []
    for sub_root in arranged.order:
        if sub_root.role in ("partial", "carry"):
            found.append(replace(sub_root, scheme="global", why="partial results are combined after a grid barrier"))
        elif sub_root.node in crossing:
            found.append(replace(sub_root, scheme="global", why=crossing[sub_root.node]))
        elif sub_root.node in near:
            found.append(replace(sub_root, scheme="regional", why="produced and read by the same block"))
        else:
            found.append(sub_root)
    return tuple(found)
