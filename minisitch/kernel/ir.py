"""The loop program: what ``schedule`` makes and both emitters print without taking one decision.

In: what ``schedule`` puts together. Out: a ``Kernel``, frozen, which prints; ``verify`` checks it.

Three nested levels:

- ``Segment``: a loop over tasks, between grid barriers (on a CPU: one parallel region);
- ``Phase``: a loop over columns inside a task, between block barriers (on a CPU: one vector loop);
- statements: one scalar operation each.

Loop variables in indices: ``row`` ``col`` ``ser`` (the reduced rows of a column space), ``chunk``
and ``start`` (task splitting), ``slice``, ``block``, ``lane_row`` (the row's place in its block), ``part`` (of the rows whose
columns a block adds up); where a thread of a GPU takes several columns at once, ``each`` of them and ``turn``; on a CPU ``c0`` ...
and ``s0`` ..., the axes that ``col`` and ``ser`` are split in, and ``swept``, the rows of a sweep.
A kernel prints as a program, is checked by ``verify.verify_kernel`` and is frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from ..device import Device
from ..fuse import Decision, count
from ..graph import Graph
from ..ops import SHORT, itemsize, kind_of
from ..stitch.index import ZERO, Guard, Index, show
from ..stitch.mapping import ThreadMap
from ..stitch.plan import StitchPlan

HEAVY = 8  # light operations that take a core as long as a heavy one (measured: exp and a division; ``device.HEAVY_NS``)
LITTLE = 20_000  # scalar operations, below which a CPU's segment joins its neighbours' call, however its loops are to be compiled


@dataclass(frozen=True)
class Buffer:
    """Memory a kernel touches. ``size`` in elements; shared memory is per block.

    ``scope``: ``input``, ``output``, ``scratch`` (global), ``shared`` (a block's; on a CPU a
    scratch row that stays in cache), ``register`` (a thread's own, under indices that are known when it is compiled).
    """

    name: str
    dtype: str
    size: int
    scope: str
    node: int
    slot: int = 0  # buffers of one scope that share bytes have one slot
    why: str = ""
    role: str = ""  # "partial" | "carry" | "kept" | "together" | "exchange": what its lifetime follows from; else its value's own
    window: bool = False  # of an array, beginning anywhere in it: only single elements are moved

@dataclass(frozen=True)
class Load:
    """``target = buffer[index]``; zero where the guard fails, and then not executed unless ``harmless``; clamped if ``clamp``."""

    target: str
    buffer: str
    index: Index
    guard: Guard
    clamp: bool
    dtype: str
    node: int
    harmless: bool = False


@dataclass(frozen=True)
class Compute:
    """``target = op(args)``; args are names of values or of constants."""

    target: str
    op: str
    args: tuple[str, ...]
    dtype: str  # of the result, in registers
    operand_dtype: str
    node: int
    heavy: bool = False  # the papers' heavy element-wise operations


@dataclass(frozen=True)
class FromIndex:
    """``target = index`` as a number (iota)."""

    target: str
    index: Index
    dtype: str
    node: int


@dataclass(frozen=True)
class Clamp:
    """``target = min(max(source, 0), size - 1)``: a gather's coordinate made safe."""

    target: str
    source: str
    size: int
    node: int


@dataclass(frozen=True)
class Choose:
    """``target = value if guard else other``: what concatenate and update come down to."""

    target: str
    guard: Guard
    value: str
    other: str
    dtype: str
    node: int


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value`` where the guard holds."""

    buffer: str
    index: Index
    value: str
    guard: Guard
    node: int


Stmt = Load | Compute | FromIndex | Clamp | Choose | Store


@dataclass(frozen=True)
class Wide:
    """``registers[at : at + columns] = buffer[index : index + columns]`` in accesses of up to 16 bytes; or, if it ``stores``, back.

    ``index`` is where the first of the columns lies, which is a multiple of their number.
    """

    buffer: str
    index: Index
    registers: str
    at: Index
    columns: int
    stores: bool
    node: int


@dataclass(frozen=True)
class Fold:
    """A reduction of a phase: ``accumulator = op(accumulator, value)``, then ``result``.

    ``along``: ``row`` (over the columns: all threads of the row end up with the result), ``column``
    (over the serial axis: each thread owns a column), ``warp`` (over the serial axis: each warp owns a column),
    ``carry`` (over the tasks of a block). ``buffer[cell]``: where a core, or a carry, accumulates a row of columns; else
    a register does. ``stores`` write the result: by one thread a row, or one a column; a carry's when its ``part`` is done.
    ``inner``: the innermost loop has a total of its own, of that name, which joins the accumulator when the loop ends.
    ``lost``: a long sum keeps under that name what rounding took from it, and gives it back at the next addition (Kahan 1965).
    """

    result: str
    op: str
    dtype: str
    value: str
    along: str
    node: int
    buffer: str = ""
    stores: tuple[Store, ...] = ()
    exchange: str = ""  # shared memory through which the warps of a row exchange results
    cell: Index = ZERO
    lanes: int = 1  # neighbouring threads that shuffle their results together, halving the distance each time
    inner: str = ""
    lost: str = ""

    @property
    def rounds(self) -> bool:
        """Whether each addition rounds, so that a long sum drifts away from the true one."""
        return self.op == "sum" and kind_of(self.dtype) == "float"


@dataclass(frozen=True)
class View:
    """A window of a buffer whose start moves with the outer loops: ``name = buffer[base : base + length]``.

    ``depth`` loops of the phase are open where it is taken. Where its guard fails, it is the buffer's beginning.
    """

    name: str
    buffer: str
    base: Index
    length: int
    depth: int
    guard: Guard = ()


@dataclass(frozen=True)
class Phase:
    """One loop over the columns of a task.

    ``before`` runs once a row (its values do not depend on the column); ``body`` for each column,
    and for each serial step of a column reduce. ``axes`` are the nested loops, outermost first: ``c..`` those the
    columns are split in (a CPU's; a GPU deals the flat column out to threads), ``s..`` the serial axis.
    ``outer`` of them stand around the folds: results are complete, and stored, once the others are done.
    ``block``: the two axes are the blocks of a long row and a block's columns, of which the last has fewer.
    ``streams``: what a block stores goes past the caches, in whole lines, when the block is done.
    ``sweep``: the innermost axis is that many reduced rows, added up before they join the sums of the columns around it.
    ``cuts``: where the innermost axis is cut, so that each guard of it alone holds for a whole piece or for none of it, as where
    arrays are joined.
    ``barrier``: ``none``, ``warp`` or ``block``, after the phase.
    ``width``: neighbouring columns that a thread of a GPU takes at once, with ``wide`` accesses before and after them; what is
    left of a row are the columns of ``rest``, its body one at a time. ``turns``: how often a thread does so, if that is
    written out (0: a loop), since rows of its columns stay in registers from phase to phase.
    """

    cols: int
    serial: int
    chunked: bool
    before: tuple[Stmt, ...]
    body: tuple[Stmt, ...]
    folds: tuple[Fold, ...]
    barrier: str
    axes: tuple[tuple[str, int], ...]
    views: tuple[View, ...] = ()
    outer: int = 0
    block: int = 0
    streams: bool = False
    sweep: int = 1
    cuts: tuple[int, ...] = ()
    width: int = 1
    turns: int = 0
    wide: tuple[Wide, ...] = ()
    rest: tuple[Stmt, ...] = ()

    @property
    def vector(self) -> tuple[str, int]:
        """The axis whose neighbours a core computes together."""
        return self.axes[-1 if self.sweep == 1 else -2]

    @property
    def pieces(self) -> tuple[tuple[int, int, tuple[Stmt, ...]], ...]:
        """The innermost loop in parts: from, to, and its body without the guards that hold there; one part if nothing cuts it."""
        (name, size), *_ = reversed(self.axes)
        return tuple((first, last, _within(self.body, name, size, first, last) if self.cuts else self.body)
                     for first, last in pairwise([0, *self.cuts, size]))

    @property
    def inner(self) -> tuple[tuple[str, int], ...]:
        """The column axes inside the folds: a fold's buffer has one cell for each of their positions."""
        return tuple(axis for axis in self.axes[self.outer:] if axis[0].startswith("c"))


def _within(body: tuple[Stmt, ...], name: str, size: int, first: int, last: int) -> tuple[Stmt, ...]:
    """The statements of a piece of a loop.

    Before:  for col in range(32): v1 = a[col] if col < 16; v2 = b[col - 16] if col >= 16; v3 = v1 if col < 16 else v2
    After:   for col in range(0, 16): v1 = a[col]; v2 = 0; v3 = v1       for col in range(16, 32): v1 = 0; v2 = b[col - 16]; v3 = v2
    """
    found: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, (Load, Choose, Store)):
            found.append(stmt)
            continue
        left: Guard = ()
        fails = False
        for condition in stmt.guard:
            known = condition.span(name, size)
            fails = fails or (known is not None and (last <= known[0] or known[1] <= first))
            left += () if known else (condition,)
        if not fails:
            found.append(replace(stmt, guard=left))
        elif isinstance(stmt, Load):
            found.append(FromIndex(stmt.target, ZERO, stmt.dtype, stmt.node))
        elif isinstance(stmt, Choose):
            found.append(replace(stmt, guard=(), value=stmt.other))
    return tuple(found)


@dataclass(frozen=True)
class Segment:
    """A loop over tasks. ``barrier`` is ``grid`` if all its tasks must end before the next segment."""

    kind: str  # "row" | "column" | "block"
    rows: int
    chunks: int
    chunk: int  # columns a task of a split row, or a column tile, covers
    slices: int
    slice_size: int
    thread_map: ThreadMap
    phases: tuple[Phase, ...]
    task_barrier: str  # between two tasks of a block: "none" | "warp" | "block"
    barrier: str
    carries: tuple[str, ...] = ()  # shared buffers that live across the tasks of a block
    tile: int = 0  # rows that are taken together, block of columns by block: the loop over these stands around theirs
    together: int = 1  # rows that a core takes through each loop before the next

    @property
    def tasks(self) -> int:
        """What the blocks take in turn: groups of rows, chunks, tiles, slices."""
        return -(-self.rows // self.thread_map.rows_per_block) * self.chunks * self.slices

    @property
    def work(self) -> int:
        """Scalar operations of all tasks together, a heavy one counted as ``HEAVY``: from ``serial_below`` on, several cores share
        them."""
        def count(body: Sequence[Stmt]) -> int:
            return len(body) + (HEAVY - 1) * sum(isinstance(s, Compute) and s.heavy for s in body)
        return self.rows * sum(p.cols * p.serial * (count(p.body) + len(p.folds)) + count(p.before) for p in self.phases)

    @property
    def short(self) -> bool:
        """Whether it has loops that a CPU's compiler had better not unroll before it looks for vectors: those of at most 64 turns
        (measured). A segment with a sweep does not count: its few rows are best unrolled first."""
        return any(1 < p.vector[1] <= 64 for p in self.phases) and all(p.sweep == 1 for p in self.phases)


@dataclass(frozen=True)
class Touch:
    """Cells of a global buffer that are read and written between two grid barriers, each counted once.

    A cell first written in that time is not fetched to be read in it.
    """

    level: int
    buffer: str
    read: int
    written: int


@dataclass(frozen=True)
class Home:
    """One of the places where a value lives: in a buffer, by its name, of which ``words`` say more; without one, what they say."""

    buffer: str = ""
    words: str = ""


@dataclass(frozen=True)
class Kernel:
    """One launch: segments, the buffers they touch, and the plan they came from."""

    name: str
    plan: StitchPlan
    device: Device
    buffers: tuple[Buffer, ...]  # inputs, outputs, scratch, then shared
    constants: tuple[tuple[str, str, object], ...]  # name, dtype, value
    segments: tuple[Segment, ...]
    grid: int
    block: int
    registers: int
    touches: tuple[Touch, ...]
    homes: tuple[tuple[Home, ...], ...]  # where each sub-root of the plan lives
    decisions: tuple[Decision, ...]
    wanted_bytes: int = 0  # shared memory of one block, before any value was demoted
    passes: tuple[str, ...] = ()  # those that have rewritten it, in order

    @property
    def graph(self) -> Graph:
        return self.plan.graph

    @cached_property
    def parameters(self) -> tuple[Buffer, ...]:
        """Global buffers in calling order: inputs, outputs, scratch, each slot once."""
        return tuple(b for b in self.buffers if b.scope not in ("shared", "register") and self.owners[b.name] == b.name)

    @cached_property
    def owners(self) -> dict[str, str]:
        """For each buffer the one whose bytes it has: the first, and largest, of its slot."""
        first: dict[tuple[str, int], str] = {}
        return {b.name: first.setdefault((b.scope, b.slot), b.name) if b.scope in ("scratch", "shared") else b.name
                for b in self.buffers}

    @cached_property
    def calls(self) -> tuple[tuple[Segment, ...], ...]:
        """What a CPU calls, in order: a segment whose tasks several cores share, or neighbours that one core does and whose loops
        the compiler is to treat alike, as far as they have much to do."""
        found: list[tuple[Segment, ...]] = []
        for segment in self.segments:
            lead = max(found[-1], key=lambda s: s.work) if found else segment
            alike = segment.short == lead.short or min(segment.work, lead.work) < LITTLE
            if found and max(segment.work, lead.work) < self.device.serial_below and alike:
                found[-1] += (segment,)
            else:
                found.append((segment,))
        return tuple(found)

    @cached_property
    def stored(self) -> dict[str, set[Index]]:
        """Where each buffer is stored to."""
        found: dict[str, set[Index]] = {b.name: set() for b in self.buffers}
        for phase in (phase for segment in self.segments for phase in segment.phases):
            views = {v.name: v for v in phase.views}
            for stmt in statements(phase):
                if isinstance(stmt, Store):
                    view = views.get(stmt.buffer)
                    found[view.buffer if view else stmt.buffer].add(view.base + stmt.index if view else stmt.index)
            for access in phase.wide:
                if access.stores:
                    found[access.buffer].add(access.index)
        return found

    @cached_property
    def by_name(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def aligned(self) -> frozenset[str]:
        """Buffers, by the name of who owns the bytes, that must begin at a multiple of 16 bytes."""
        return frozenset(self.owners[w.buffer] for s in self.segments for p in s.phases for w in p.wide)

    @property
    def grid_barriers(self) -> int:
        return sum(s.barrier == "grid" for s in self.segments)

    @cached_property
    def size(self) -> int:
        """Scalar statements of all loops, and of each copy of a loop's body: what compiling takes time for."""
        phases = [phase for segment in self.segments for phase in segment.phases]
        return sum(len(p.before) + len(p.folds) + len(p.rest) + len(p.wide) for p in phases) + sum(
            max(1, p.turns) * len(body) for p in phases for *_, body in p.pieces)

    @property
    def block_barriers(self) -> int:
        """Block barriers one block passes for one task of each segment."""
        return sum(map(self.block_barriers_of, self.segments))

    def block_barriers_of(self, segment: Segment) -> int:
        """Block barriers one block passes for one task of a segment; a core has none."""
        if self.device.kind == "cpu":
            return 0
        return sum((p.barrier == "block") + len(exchanges(segment, p)) for p in segment.phases)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one block."""
        slots: dict[int, int] = {}
        for b in self.buffers:
            if b.scope == "shared":
                slots[b.slot] = max(slots.get(b.slot, 0), b.size * itemsize(b.dtype))
        return sum(slots.values())

    @property
    def placements(self) -> tuple[tuple[int, str, str, str], ...]:
        """(node, scheme, where, why) of each sub-root."""
        schemes = map(self.plan.scheme, self.plan.sub_roots)
        return tuple((sub_root.node, name, ", ".join(map(self._place, homes)), why)
                     for sub_root, (name, why), homes in zip(self.plan.sub_roots, schemes, self.homes, strict=True))

    def _place(self, home: Home) -> str:
        b = self.by_name.get(home.buffer)
        return (f"{b.scope} {b.name}[{b.size}]" if b else "") + home.words

    def __str__(self) -> str:
        return "\n".join(_print_kernel(self))


MEET_TOGETHER = 32  # reductions of a row that exchange results at one barrier: two sets of buffers, 128 bytes each


def exchanges(segment: Segment, phase: Phase) -> list[tuple[Fold, ...]]:
    """The folds of rows that several warps share. Their results are exchanged in shared memory; the folds of one group share a
    barrier."""
    wide = tuple(f for f in phase.folds if f.along == "row" and segment.thread_map.threads_per_row > 32)
    return [wide[k:k + MEET_TOGETHER] for k in range(0, len(wide), MEET_TOGETHER)]


# ---------------------------------------------------------------- the printed form
def _print_kernel(kernel: Kernel) -> Iterator[str]:
    def typed(b: Buffer) -> str:
        return f"{b.name}: {SHORT[b.dtype]}[{b.size}]"

    inputs = ", ".join(typed(b) for b in kernel.parameters if b.scope == "input")
    outputs = ", ".join(typed(b) for b in kernel.parameters if b.scope == "output")
    yield f"kernel {kernel.name}({inputs}) -> {outputs}"
    for segment in kernel.segments:
        m = segment.thread_map
        yield f"  map     {m.rule}: {m.why}"
    if kernel.device.kind == "cpu":
        yield f"  launch  {count(kernel.grid, 'range')} of tasks, {count(kernel.device.sms, 'core')}, " \
              f"{kernel.shared_bytes} B of scratch rows"
    else:
        yield f"  launch  {count(kernel.grid, 'block')} x {count(kernel.block, 'thread')}, " \
              f"at most {count(kernel.registers, 'register')}, {kernel.shared_bytes} B shared"
    for node, scheme, where, why in kernel.placements:
        yield f"  place   %{node} {kernel.graph[node].op:<8} {where}  {scheme}{': ' + why if why else ''}"
    for name, dtype, value in kernel.constants:
        yield f"  const   {name}: {SHORT[dtype]} = {value}"
    for number, segment in enumerate(kernel.segments):
        yield from _print_segment(number, segment)


def _print_segment(number: int, segment: Segment) -> Iterator[str]:
    parts = [f"row in 0..{segment.rows}"]
    if segment.chunks > 1:
        parts.append(f"chunk in 0..{segment.chunks} of {count(segment.chunk, 'column')}")
    if segment.slices > 1:
        parts.append(f"slice in 0..{segment.slices} of {count(segment.slice_size, 'reduced row')}")
    if segment.tile:
        parts.append(f"blocks of columns for {segment.tile} rows in turn, since operands lie across them")
    if segment.together > 1:
        parts.append(f"{segment.together} rows together")
    yield f"  segment {number}: {', '.join(parts)}"
    for p, phase in enumerate(segment.phases):
        loops = " x ".join(f"{name} in 0..{n}" for name, n in phase.axes)
        ends = ["warps meet: block barrier"] if any(f.exchange for f in phase.folds) else []
        ends += [f"barrier: {phase.barrier}"] if phase.barrier != "none" else []
        ends += [f"a total for each block of {phase.block} columns"] if phase.block and phase.folds else []
        ends += [f"{phase.sweep} reduced rows a sweep"] if phase.sweep > 1 else []
        ends += [f"cut at {' '.join(map(str, phase.cuts))}"] if phase.cuts else []
        ends += [f"{phase.width} columns a thread at once"] if phase.width > 1 else []
        ends += [f"{phase.turns} turns written out"] if phase.turns else []
        yield f"    phase {p}: {loops}" + "".join(f"   {end}" for end in ends)
        totals = extents(segment, phase)
        for view in phase.views:
            where = f" if {show_guard(view.guard, totals)}" if view.guard else ""
            yield f"      {view.name} = {view.buffer}[{show(view.base, totals)} : +{view.length}]{where}"
        for stmt in phase.before:
            yield f"      once {show_stmt(stmt, totals)}"
        for access in phase.wide:
            if not access.stores:
                yield f"      {show_wide(access, totals)}"
        for stmt in phase.body:
            yield f"      {show_stmt(stmt, totals)}"
        for access in phase.wide:
            if access.stores:
                yield f"      {show_wide(access, totals)}"
        for fold in phase.folds:
            yield f"      {fold.op} {fold.value} -> {fold.result or fold.buffer}  along {fold.along}  # %{fold.node}"
            for store in fold.stores:
                yield f"      then {show_stmt(store, totals)}"
    if segment.barrier == "grid":
        yield "    barrier: grid"


def extents(segment: Segment, phase: Phase) -> dict[str, int]:
    """Extents of the loop variables of a phase, so that an index prints no needless remainder."""
    return {"row": segment.rows, "chunk": segment.chunks, "slice": segment.slices, "ser": phase.serial, "col": phase.cols,
            "start": phase.cols, "lane_row": max(segment.thread_map.rows_per_block, segment.together),
            "turn": phase.turns, "each": phase.width, **dict(phase.axes)}


def show_guard(guard: Guard, totals: Mapping[str, int] | None = None) -> str:
    return " and ".join(f"{c.low} <= {show(c.index, totals)} < {c.high}" for c in guard)


def show_stmt(stmt: Stmt, totals: Mapping[str, int] | None = None) -> str:
    """One statement as a line of the printed kernel; ``totals`` as in ``index.show``."""
    if isinstance(stmt, Load):
        where = f" if {show_guard(stmt.guard, totals)}" if stmt.guard else " clamped" if stmt.clamp else ""
        return f"{stmt.target} = {stmt.buffer}[{show(stmt.index, totals)}]{where}  # %{stmt.node}"
    if isinstance(stmt, Compute):
        return f"{stmt.target} = {stmt.op} {' '.join(stmt.args)}  # %{stmt.node}"
    if isinstance(stmt, FromIndex):
        return f"{stmt.target} = {show(stmt.index, totals)}  # %{stmt.node}"
    if isinstance(stmt, Clamp):
        return f"{stmt.target} = clamp {stmt.source} to 0..{stmt.size}  # %{stmt.node}"
    if isinstance(stmt, Choose):
        return f"{stmt.target} = {stmt.value} if {show_guard(stmt.guard, totals)} else {stmt.other}  # %{stmt.node}"
    where = f" if {show_guard(stmt.guard, totals)}" if stmt.guard else ""
    return f"{stmt.buffer}[{show(stmt.index, totals)}] = {stmt.value}{where}  # %{stmt.node}"


def show_wide(access: Wide, totals: Mapping[str, int] | None = None) -> str:
    """A wide access as a line of the printed kernel."""
    here = f"{access.registers}[{show(access.at, totals)} : +{access.columns}]"
    there = f"{access.buffer}[{show(access.index, totals)} : +{access.columns}]"
    return f"{there} = {here}  # %{access.node}" if access.stores else f"{here} = {there}  # %{access.node}"


# ---------------------------------------------------------------- what statements use
def statements(phase: Phase) -> Iterator[Stmt]:
    """Every statement of a phase, the stores of its folds included."""
    yield from phase.before
    yield from phase.body
    for fold in phase.folds:
        yield from fold.stores


@dataclass(frozen=True)
class Access:
    """One place of a phase where a buffer is read, or written if it ``stores``; views are seen through."""

    buffer: str
    index: Index
    stores: bool
    guard: Guard = ()
    after_fold: bool = False  # what a fold came to is stored


def accesses(phase: Phase) -> Iterator[Access]:
    """Every access that a phase's statements make, in order."""
    views = {v.name: v for v in phase.views}
    after = len(phase.before) + len(phase.body)
    for number, stmt in enumerate(statements(phase)):
        if isinstance(stmt, Load | Store):
            view = views.get(stmt.buffer)
            buffer, index = (view.buffer, view.base + stmt.index) if view else (stmt.buffer, stmt.index)
            yield Access(buffer, index, isinstance(stmt, Store), stmt.guard, number >= after)
    for move in phase.wide:
        yield Access(move.buffer, move.index, move.stores)


def indices(stmt: Stmt) -> list[Index]:
    """The indices a statement uses, those of its guard included."""
    found = [c.index for c in getattr(stmt, "guard", ())]
    return [*found, stmt.index] if isinstance(stmt, Load | Store | FromIndex) else found


def operands(stmt: Stmt) -> tuple[str, ...]:
    """Names of the values a statement reads, those in its indices and guards included."""
    if isinstance(stmt, Compute):
        return stmt.args
    read = sorted(frozenset().union(*(i.loaded for i in indices(stmt))))
    if isinstance(stmt, Clamp):
        return (stmt.source, *read)
    if isinstance(stmt, Choose):
        return (stmt.value, stmt.other, *read)
    return (stmt.value, *read) if isinstance(stmt, Store) else tuple(read)
