"""Several columns a thread: accesses of 16 bytes, and rows that stay in registers.

In:  a stitch plan, and its kernel, for a GPU. Out: the plan with fewer threads a row, several
columns each; and the kernel, its row loops in groups of neighbouring columns.

A GPU fetches 16 bytes for a thread in one instruction, if they begin at a multiple of 16. So a
thread takes the columns that make 16 bytes at once (``width``), if most accesses of a loop lie side
by side like that. Its other accesses stay one column each. A second loop over the same columns
reads what the same thread has read or made before. If the row is short enough, it stays in
registers, and the loops are written out so that each register has a fixed number.

Before:  phase 0: v0 = x0[col + row * 1024]; max v0 -> r1
         phase 1: v0_1 = x0[col + row * 1024]; ... k4[col] = v4; sum v4 -> r5
         phase 2: v4_1 = k4[col]; v7 = v4_1 / r5; y0[col + row * 1024] = v7
After:   phase 0: v0s[turn * 4 : +4] = x0[col + row * 1024 : +4]
                  v0 = v0s[each + turn * 4]; max v0 -> r1
         phase 1: v0_1 = v0s[each + turn * 4]; ... k4s[each + turn * 4] = v4; sum v4 -> r5
         phase 2: v4_1 = k4s[each + turn * 4]; v7 = v4_1 / r5; y0s[each] = v7
                  y0[col + row * 1024 : +4] = y0s[0 : +4]

An input that is a window of an array, as one step of a recurrence reads it, begins anywhere: it
stays one column at a time. In all loops over equally many columns a thread has the same columns.
Otherwise values would need a barrier between the loops. A row whose length is no multiple of the
width may begin anywhere, so it stays one column at a time. A single row begins at 0: only the
columns that are left over are taken one at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..device import Device
from ..fuse import Composition, Decision, Stitching, count
from ..kernel import Kernel, ir
from ..kernel.nests import parts, rewritten
from ..ops import itemsize
from ..stitch.compose import Merging
from ..stitch.index import ZERO, Guard, Index, Within, in_order, side_by_side, variable, whole
from ..stitch.mapping import COLUMNS, MANY_REGISTERS, WARP, ThreadMap, power_of_two_at_least
from ..stitch.plan import StitchPlan, fill_block
from ..stitch.subroots import SegmentKey
from .axes import is_split
from .registry import kernel_pass, plan_pass

ACCESS = 16  # bytes of the widest access of a thread
APART = 2  # price of an access of one column if a thread takes several: lanes are no neighbours
WIDEST = 8  # columns at once: more would repeat a loop's body too often
# Registers of a thread for rows, of the 64 that it has at least: of 32, a layernorm spilled some on
# sm_75.
ROOM = 24
LONGEST = 512  # statements that writing a loop out may make of it
DEALT_BLOCK = 256  # threads of a block, if a row leaves room: few wait for each other
MANY_THREADS = 512  # of several columns each: a multiprocessor has room for two such blocks


@dataclass(frozen=True)
class _Stream:
    """A row that a thread has in phase ``first``, loaded or stored, and loads in ``again``."""

    buffer: str
    index: Index
    first: int
    again: tuple[int, ...]


# ---------------------------------------------------------------- fewer threads
@plan_pass("vectorize")
def deal_columns(plan: StitchPlan) -> StitchPlan:
    """Deal the columns of row segments out to fewer threads, several columns each.

    Only if the composition leaves the choice of threads to passes.
    """
    if plan.device.kind != "gpu" or not _leaves_threads(plan.composition):
        return plan
    maps, unsuited = plan.own_maps, set[SegmentKey]()
    for s in plan.sub_roots:
        if s.space.kind != "row" or s.along in ("column", "warp") or s.role == "carry":
            unsuited.add((s.level, s.space))
    dealt = [key for key in maps if key not in unsuited]
    if not dealt:
        return plan
    registers_each = 2 if any(itemsize(n.type.dtype) > 4 for n in plan.graph.nodes) else 1
    maps = maps | {key: deal(maps[key], plan.device, registers_each) for key in dealt}
    carries = {(s.level, s.space) for s in plan.sub_roots if s.role == "carry"}
    chunked = any(maps[key].splits > 1 for key in dealt)
    # Where a row is dealt out in chunks, rows that are packed beside it need not fill a block: with
    # 1024 threads a multiprocessor has 64 registers for each, and a chunk's loop spilled them.
    beside = {key for key, m in maps.items()
              if chunked and key[1].kind == "row" and m.splits == 1 and key not in carries}
    block = max(m.threads_per_row if key in beside else m.threads for key, m in maps.items())
    return replace(plan, maps=tuple(fill_block(maps, block).items()))


def _leaves_threads(composition: Composition) -> bool:
    """False if the strategy has chosen threads or kept values, or forbids grid barriers.

    It then has prices for one column a thread.
    """
    if isinstance(composition, Merging):
        return all(_leaves_threads(part.composition) for part in composition.parts)
    if not isinstance(composition, Stitching):
        return False
    if composition.kept is not None or not composition.barriers:
        return False
    return not (composition.threads or composition.threads_per_row)


def deal(m: ThreadMap, device: Device, registers_each: int = 1) -> ThreadMap:
    """The same rows on fewer threads, each with several columns.

    Before:  1024 threads a row, 1 row a block        After:  128 threads a row, 2 rows a block

    A thread with eight columns has two accesses of 16 bytes in flight, and keeps in registers what
    it reads again. The mapping stays as it is if this would leave lanes idle. Chunks of split rows
    keep their blocks, with at most 512 threads of 64 registers each: then as many blocks are
    resident as ``map_rows`` assumed. ``registers_each`` is the number of registers a value takes, 2
    if it has 8 bytes. With 2, a chunk gets half as many threads, and fewer packed rows are
    resident.
    """
    if m.splits > 1:
        needed = max(WARP, power_of_two_at_least(-(-2 * m.chunk // COLUMNS)))
        threads = min(m.threads, MANY_THREADS // registers_each, needed)
        return replace(m, threads=threads, threads_per_row=threads,
                       why=f"{m.why}, on {threads} threads")
    most = device.max_block if m.cols > COLUMNS * MANY_THREADS else MANY_THREADS
    per_row = min(m.threads_per_row, most, max(WARP, power_of_two_at_least(-(-m.cols // COLUMNS))))
    if per_row == m.threads_per_row:
        return m
    if m.rule == "row-per-block":
        why = f"a block of {count(per_row, 'thread')} for each of {count(m.rows, 'row')}"
        return replace(m, threads=per_row, threads_per_row=per_row, why=why)
    together = max(1, min(DEALT_BLOCK, device.max_block) // per_row)
    while together > 1 and -(-m.rows // together) < device.sms:
        together //= 2  # for few rows, more multiprocessors rather than larger blocks
    groups = max(1, -(-m.rows // together))
    threads = together * per_row
    wave = device.wave(threads, registers=MANY_REGISTERS * registers_each)
    steps = -(-groups // wave)
    blocks = -(-groups // steps)
    why = (f"{count(per_row, 'thread')} a row, {count(-(-m.cols // per_row), 'column')} each, "
           f"{count(together, 'row')} a block, {steps} in turn: {blocks} of {wave} resident")
    return replace(m, blocks=blocks, threads=threads, rows_per_block=together,
                   threads_per_row=per_row, steps=steps, why=why)


# ---------------------------------------------------------------- wide accesses
@kernel_pass("vectorize", "gpu")
def vectorize(kernel: Kernel) -> Kernel:
    """Take several columns at once, and keep rows in registers, where that is worth it.

    Each choice is a ``Decision``.
    """
    return _Widening(kernel).result() if kernel.plan.maps else kernel


class _Widening:
    """One kernel while it is rewritten."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.decisions = kernel, list(kernel.decisions)
        self.buffers = {b.name: b for b in kernel.buffers}
        # Shared rows that became registers, and where they live now, in words.
        self.moved: dict[str, str] = {}

    def result(self) -> Kernel:
        segments = tuple(map(self._segment, self.kernel.segments))
        def where(at: ir.Location) -> ir.Location:
            moved = self.moved.get(at.buffer)
            return ir.Location(words=moved + at.words) if moved else at

        locations = tuple(tuple(map(where, each)) for each in self.kernel.locations)
        buffers = tuple(b for b in self.buffers.values() if b.name not in self.moved)
        return replace(self.kernel, segments=segments, buffers=buffers, locations=locations,
                       decisions=tuple(self.decisions))

    def _segment(self, s: ir.Segment) -> ir.Segment:
        along = {f.along for p in s.phases for f in parts(p).folds}
        if s.space.kind != "row" or s.carries or along - {"row"} or any(p.serial != 1 for p in s.phases):
            return s
        # Phases in which equal columns are one thread's.
        alike: dict[tuple[int, bool], list[int]] = {}
        for k, p in enumerate(s.phases):
            alike.setdefault((p.cols, p.chunked), []).append(k)
        phases = list(s.phases)
        for (cols, _), members in alike.items():
            if cols > 1:
                group = _Group(self, s, members)
                for k in members:
                    phases[k] = group.phase(k)
        return replace(s, phases=tuple(phases))

    def registers(self, name: str, dtype: str, size: int, node: int, why: str) -> str:
        """A new register array."""
        while name in self.buffers:
            name += "_"
        self.buffers[name] = ir.Buffer(name, dtype, size, "register", node, why=why)
        return name

    def decide(self, node: int, verdict: str, rule: str, why: str) -> None:
        self.decisions.append(Decision((node,), verdict, rule, why))


class _Group:
    """The phases of a segment over equally many columns.

    They share the width, the columns that each thread has, and the rows that it keeps.
    """

    def __init__(self, work: _Widening, segment: ir.Segment, members: Sequence[int]) -> None:
        self.work, self.segment, self.members = work, segment, members
        self.split = is_split(segment, segment.phases[members[0]])
        self.cols = segment.phases[members[0]].cols
        self.threads = segment.threads(work.kernel.block)
        self.columns = min(segment.chunk, self.cols) if self.split else self.cols  # a task's
        self.inner = {k: _computed(parts(segment.phases[k]).body) for k in members}
        self.width = self._width()
        self.turns = -(-self.columns // (self.threads * self.width))
        # A kept row's registers, and the phase that fills them.
        self.kept: dict[tuple[str, Index], tuple[str, int]] = {}
        self.room = ROOM
        if self.cols % self.width == 0:
            self._keep()

    # ------------------------------------------------------------ how wide
    def _accesses(self, k: int) -> Iterable[ir.Load | ir.Store]:
        """The accesses in a loop's body whose place depends on the column."""
        for stmt in parts(self.segment.phases[k]).body:
            if isinstance(stmt, ir.Load | ir.Store) and "col" in stmt.index.variables:
                yield stmt

    def _plain(self, k: int, stmt: ir.Load | ir.Store) -> bool:
        """True if it is always made, at a place that no integer loaded in the loop decides."""
        clamped = isinstance(stmt, ir.Load) and stmt.clamp
        return not (stmt.guard or clamped or stmt.index.loaded & self.inner[k])

    def _side_by_side(self, k: int, stmt: ir.Load | ir.Store, width: int) -> bool:
        return (self._plain(k, stmt) and not self.work.buffers[stmt.buffer].window
                and side_by_side(stmt.index, self.cols, width, self.segment.chunk))

    def _width(self) -> int:
        """The columns at once that take the fewest accesses, up to 16 bytes of the narrowest."""
        size = {b.name: itemsize(b.dtype) for b in self.work.kernel.buffers if b.scope != "shared"}
        moved = [(k, s) for k in self.members for s in self._accesses(k) if s.buffer in size]
        near = [size[s.buffer] for k, s in moved if self._side_by_side(k, s, 2)]
        if not moved:
            return 1
        most = min(WIDEST, ACCESS // min((n for n in near if n > 1), default=2)) if near else 1
        found, least, narrow = 1, float(len(moved)), list[str]()
        for width in (w for w in (2, 4, 8) if w <= most):
            whole = [s for k, s in moved if self._side_by_side(k, s, width)]
            price = sum(max(1, width * size[s.buffer] // ACCESS) / width for s in whole)
            price += APART * (len(moved) - len(whole))
            if why := self._refused(width):
                narrow.append(why)
            elif price > least:
                narrow.append(f"{len(whole)} of {len(moved)} accesses lie side by side "
                              f"from multiples of {width} on: too few")
            else:
                found, least = width, price
        node = moved[0][1].node
        if found > 1:
            self.work.decide(node, "widen", "vector-width", f"{found} columns a thread at once: "
                             f"accesses a column: {least:g}, where one at a time takes "
                             f"{len(moved)}")
        else:
            none = "no two neighbours lie side by side from an even place on, in every row"
            self.work.decide(node, "narrow", "vector-width", "; ".join(narrow) or none)
        return found

    def _refused(self, width: int) -> str:
        """The reason why a thread cannot take this many columns at once, or an empty text."""
        longest = max(len(parts(self.segment.phases[k]).body) for k in self.members)
        if 2 * self.columns <= self.threads * width:
            return (f"{width} of {self.columns} columns at once would leave half of {self.threads} "
                    "threads without any")
        if self.split and self.segment.chunk % width:
            return f"chunks of {self.segment.chunk} columns do not begin at multiples of {width}"
        if width * longest > LONGEST:
            return f"{width} times {longest} statements are more than {LONGEST}"
        return ""

    # ------------------------------------------------------------ what stays in registers
    def _streams(self) -> list[_Stream]:
        """Rows that a thread reads again, after it read or stored them in an earlier loop."""
        rows: dict[tuple[str, Index], list[tuple[int, ir.Load | ir.Store]]] = {}
        for k in self.members:
            for stmt in self._accesses(k):
                if self._plain(k, stmt):
                    rows.setdefault((stmt.buffer, stmt.index), []).append((k, stmt))
        accesses = [(k, s) for k, p in enumerate(self.segment.phases) for s, _ in ir.walk(p.nest)
                    if isinstance(s, ir.Load | ir.Store)]
        found = []
        for (buffer, index), ((first, made), *later) in rows.items():
            uses = [(k, s) for k, s in accesses if s.buffer == buffer]
            again = tuple(sorted({k for k, _ in later}))
            changed = any(isinstance(s, ir.Store) and s is not made for _, s in uses)
            # loops number their gathers' indices from 0: equal ones may be other places
            places = {self._positions(k, index) for k, s in uses if s.index == index}
            if not again or first in again or changed or len(places) > 1:
                continue
            others = any(s.index != index or k not in self.members for k, s in uses)
            only_read_here = isinstance(made, ir.Store) and not others
            if self.work.buffers[buffer].scope != "shared" or only_read_here:
                found.append(_Stream(buffer, index, first, again))
        return found

    def _positions(self, k: int, index: Index) -> frozenset[ir.Stmt]:
        """What the gathers' indices in an index mean in this loop."""
        clamps = (s for s in parts(self.segment.phases[k]).before if isinstance(s, ir.Clamp))
        return frozenset(s for s in clamps if s.target in index.loaded)

    def _keep(self) -> None:
        """Keep as many rows as there is room for, those of shared memory first."""
        streams, owners = self._streams(), self.work.kernel.owners
        names = {x.buffer for x in streams}
        shared = {name for name in names if self.work.buffers[name].scope == "shared"}
        # Rows of shared memory by the owner of their bytes, each other row alone.
        groups: dict[object, list[_Stream]] = {}
        for x in sorted(streams, key=lambda x: (x.buffer not in shared, -len(x.again))):
            groups.setdefault(owners[x.buffer] if x.buffer in shared else x, []).append(x)
        for owner, group in groups.items():
            # All move that share bytes, or none does.
            if names.issuperset(name for name in owners if owners[name] == owner):
                self._keep_together(sorted(group, key=streams.index))

    def _keep_together(self, streams: Sequence[_Stream]) -> None:
        """Keep the rows of some streams in one register array: they are never live together."""
        buffers, each = self.work.buffers, self.turns * self.width
        needed = -(-each * itemsize(buffers[streams[0].buffer].dtype) // 4)
        numbers = (k for x in streams for k in (x.first, *x.again))
        longest = max(len(parts(self.segment.phases[k]).body) for k in numbers)
        fits = self.room >= needed and each * longest <= LONGEST
        name = ""
        for x in streams:
            b = buffers[x.buffer]
            again = ", ".join(map(str, x.again))
            values = count(each, "value")
            loops = f"{x.buffer} of loop {x.first}, read again by {again}: {values} a thread"
            if not fits:
                moved = len(x.again) * self.segment.rows * self.cols * itemsize(b.dtype)
                where = "stays in shared memory" if b.scope == "shared" else \
                    f"{moved} bytes are read again from cache or memory"
                self.work.decide(b.node, "re-read", "row-in-registers", f"{loops}, {needed} "
                                 f"registers where {self.room} of {ROOM} are left; {where}")
                continue
            name = name or self.work.registers(f"{x.buffer}s", b.dtype, each, b.node,
                                               "its row, in registers")
            self.kept[x.buffer, x.index] = name, x.first
            if b.scope == "shared":
                self.work.moved[x.buffer] = f"registers {name}[{each}] of each thread"
            self.work.decide(b.node, "keep", "row-in-registers", loops)
        self.room -= needed if fits else 0

    # ------------------------------------------------------------ rewriting
    def phase(self, k: int) -> ir.Phase:
        """One phase with its accesses widened and its rows kept.

        Its loop over columns becomes one over groups of columns.
        """
        phase = self.segment.phases[k]
        moves = (s for s in parts(phase).body if isinstance(s, ir.Load | ir.Store))
        keeps = any((s.buffer, s.index) in self.kept for s in moves)
        turns = self.turns if keeps else 0
        if not turns and self.width == 1:
            return phase
        loads, body, stores = self._moved(k, variable("turn", turns) * self.width)

        def grouped_columns(stmt: ir.Stmt) -> ir.Nest:
            if not isinstance(stmt, ir.Loop):
                return (stmt,)
            inside = (*body, *(s for s in stmt.body if isinstance(s, ir.Accumulate)))
            if self.width > 1:
                column = in_order(whole(ir.FIRST), whole("each"))
                names = (ir.Let("col", column),) if _names_column(body) else ()
                inside = (ir.Loop("each", ZERO, self.width, (*names, *inside), by="vector"),)
            inside = (*loads, *inside, *stores)
            if turns:
                return (self._turns(turns, inside, bool(loads or stores) or _names_column(body)),)
            # The columns that no group takes are taken one at a time.
            return self._groups(stmt, inside)

        group = whole("lane") * self.width + whole("turn") * (self.threads * self.width) + (whole("start") if self.split else ZERO)
        each = whole("each") if self.width > 1 else ZERO
        columns = *phase.columns, whole(ir.FIRST) + each, group + each
        return replace(phase, nest=rewritten(phase.nest, grouped_columns), columns=columns)

    def _moved(self, k: int, kept_at: Index) -> tuple[ir.Nest, ir.Nest, ir.Nest]:
        """The moves before a group of columns, the statements of each, and the moves after."""
        phase = self.segment.phases[k]
        body: list[ir.Stmt] = []
        moves: dict[bool, list[ir.VectorMove]] = {False: [], True: []}
        each = variable("each", self.width)
        stored = [s.buffer for s in parts(phase).body if isinstance(s, ir.Store)]
        for stmt in parts(phase).body:
            if not isinstance(stmt, ir.Load | ir.Store):
                body.append(stmt)
                continue
            key, b = (stmt.buffer, stmt.index), self.work.buffers[stmt.buffer]
            (row, first), stores = self.kept.get(key, ("", k)), isinstance(stmt, ir.Store)
            value = stmt.value if isinstance(stmt, ir.Store) else stmt.target
            if k > first and not stores:
                body.append(replace(stmt, buffer=row, index=kept_at + each))
                continue
            at_once = (self.width > 1 and self._side_by_side(k, stmt, self.width)
                       and stored.count(stmt.buffer) < 2 and self._in_order(stmt, phase))
            at = kept_at if row else ZERO
            if stores and stmt.buffer in self.work.moved:
                pass  # its row is in registers alone
            elif at_once:
                name = stmt.buffer if stores else value
                why = f"{self.width * itemsize(b.dtype)} bytes of {b.name}"
                row = row or self.work.registers(f"{name}s", b.dtype, self.width, stmt.node, why)
                moves[stores].append(ir.VectorMove(stmt.buffer, stmt.index, row, at, self.width,
                                                   stores, stmt.node))
            else:
                body.append(stmt)
            if row and (stores or at_once):
                body.append(replace(stmt, buffer=row, index=at + each))
            elif row:
                body.append(ir.Store(row, at + each, value, (), stmt.node))
        return tuple(moves[False]), tuple(body), tuple(moves[True])

    def _groups(self, loop: ir.Loop, inside: ir.Nest) -> ir.Nest:
        """A loop over columns as one over groups. The columns that no group takes are taken one at a time."""
        grouped = self.cols - self.cols % self.width
        groups = replace(loop, var=ir.FIRST, turns=-(-min(loop.turns, grouped) // self.width), step=self.width, body=inside,
                         within=_with_end(loop, ir.FIRST, grouped))
        if grouped == self.cols:
            return (groups,)
        if not self.split:
            return groups, replace(loop, first=Index(grouped), turns=self.cols - grouped)
        return groups, replace(loop, within=(Within(whole("col"), grouped, self.cols),))

    def _turns(self, turns: int, inside: ir.Nest, named: bool) -> ir.Loop:
        """A thread's groups of columns, each written out, so that registers have fixed numbers."""
        stride = self.threads * self.width
        first = ir.FIRST if self.width > 1 else "col"
        start = [whole("start")] if self.split else []
        chunk = [Within(in_order(whole(first), whole("start") * -1), 0, self.segment.chunk)] if self.split else []
        row = [Within(whole(first), 0, self.cols)] if self.split or turns * stride > self.cols else []
        live = [Within(whole("row"), 0, self.segment.rows)] if self.segment.ragged else []
        if guard := (*live, *chunk, *row):
            inside = (ir.If(guard, inside),)
        if row or named:
            place = in_order(*start, whole("lane") * self.width, whole("turn") * stride)
            inside = (ir.Let(first, place), *inside)
        return ir.Loop("turn", ZERO, turns, inside, by="unrolled")

    def _in_order(self, stmt: ir.Load | ir.Store, phase: ir.Phase) -> bool:
        """Whether the access may leave the loop over a group: loads go before it, stores behind it.

        Not if a load and a store of the same bytes in this loop have different indices.
        """
        owners = self.work.kernel.owners
        moves = (s for s in parts(phase).body if isinstance(s, ir.Load | ir.Store))
        return all(s.index == stmt.index for s in moves
                   if isinstance(s, ir.Load) != isinstance(stmt, ir.Load)
                   and owners[s.buffer] == owners[stmt.buffer])


def _with_end(loop: ir.Loop, var: str, end: int) -> Guard:
    """The guard of a loop whose variable is now ``var`` and ends before ``end``."""
    column = whole(loop.var)
    return tuple(Within(whole(var), 0, end) if c.index == column else c for c in loop.within)


def _computed(body: Iterable[ir.Scalar]) -> frozenset[str]:
    """The values that a loop's body computes for each column."""
    return frozenset(s.target for s in body if not isinstance(s, ir.Store))


def _names_column(body: ir.Nest) -> bool:
    """Whether an index names the column itself, and not only its place in a group."""
    return any("col" in index.variables for stmt in body for index in ir.indices(stmt))
