"""The checker of kernels: what a scheduled kernel must keep to, whichever pass made it.

In:  a ``Kernel``. Out: the same, or a ``KernelError``.

Threads wait for each other at barriers only. So the checker follows each buffer, task by task and
phase by phase. Two accesses of the same bytes by different threads need a barrier between them at
which both wait, if one of them writes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..errors import KernelError, needs
from ..stitch.index import Atom, Digit, Guard, Index, Within, footprint, lies_within, side_by_side, variable
from . import Kernel, ir
from .show import show_stmt
from .turns import check_turns


def verify_kernel(kernel: Kernel) -> Kernel:
    """Check what an emitter may rely on, and return the kernel unchanged.

    Raises KernelError as ``verify_values`` does. Also raises it if a block wants more shared memory
    than the device has, or if a kernel with a grid barrier has more blocks than one wave holds.
    """
    needs("verify_kernel(minisitch.lower(f, x, stop_after='schedule')[0])",
          (kernel, Kernel))
    verify_values(kernel)
    device, shared = kernel.device, kernel.shared_bytes
    if device.kind == "cpu":
        return kernel
    wave = device.wave(kernel.block, shared, kernel.registers)
    if kernel.grid_barriers and kernel.grid > wave:
        raise KernelError(f"{kernel.name} has a grid barrier and {kernel.grid} blocks; one wave holds {wave}")
    if shared > device.shared_per_block:
        raise KernelError(f"{kernel.name} wants {shared} B of shared memory a block; "
                          f"{device.name} has {device.shared_per_block}")
    return kernel


def verify_values(kernel: Kernel) -> Kernel:
    """Check that each value is there where it is read, and return the kernel unchanged.

    It may still want too much memory.

    Raises KernelError in these cases:

    - A value or a buffer is read before it is written, or after another buffer took over its bytes.
    - An element of a row is read that no phase has written.
    - A thread reads, overwrites or takes over bytes that another thread may still read or write.
    - An output is not written whole by the turns that the loops take.
    - A block's threads are not those of its rows.
    - A wide access of n columns does not begin at a multiple of n, or they are no neighbours.
    """
    checker, gpu = _KernelChecker(kernel), kernel.device.kind == "gpu"
    for s, segment in enumerate(kernel.segments):
        rows, each = segment.thread_map.rows_per_block, segment.threads(kernel.block)
        place = f"{kernel.name}, segment {s}"
        if segment.space.kind == "row" and rows * each != kernel.block:
            raise KernelError(f"{place}: {rows} rows of {each} threads "
                              f"are not the {kernel.block} threads of a block")
        # the blocks that have a task
        most = min(kernel.grid, segment.thread_map.blocks) if segment.carries else kernel.grid
        checker.number, checker.reach = s, min(most, segment.tasks) if gpu else 1
        for _ in range(2 if gpu and segment.tasks > most else 1):  # a second task, too
            checker.task(segment, place)
        if segment.barrier == "grid":
            checker.meet("grid")
    check_turns(kernel)
    for b in [b for b in kernel.parameters if b.scope == "output"]:
        cells = footprint((i for s in kernel.segments for i in _stored(s, b.name)), b.size)
        if cells < b.size:
            raise KernelError(f"{kernel.name} writes {cells} of the {b.size} cells of its output {b.name} (%{b.node})")
    return kernel


def _stored(segment: ir.Segment, buffer: str) -> Iterator[Index]:
    """Where the rows of a segment store to a buffer. That their loops take each column is checked in ``turns``."""
    for stmt in (stmt for stmt, _ in ir.walk(segment.nest) if ir.is_store(stmt) and segment.tasks):
        name, index = ir.place_of(segment, stmt)
        if name == buffer:
            digits = (a for _, a in index.terms if isinstance(a, Digit) and a.var == "row")
            rows: dict[Atom, Atom] = {a: a._replace(size=min(a.size, -(-segment.rows // a.stride))) for a in digits}
            yield Index(index.const, tuple((c, rows.get(a, a)) for c, a in index.terms))


# An element that only one thread has: the columns that a thread takes at once, and the index.
# Accesses that are equal in both are the same thread's. None: the element may be any thread's.
Where = tuple[int, Index] | None
# The buffer, the element, whether it is a store, the segment.
BufferAccess = tuple[str, Where, bool, int]


@dataclass
class _Since:
    """Which blocks have waited at a barrier since an access.

    Those with a number below ``first`` have waited. Those from ``first`` to ``last - 1`` have not.
    """

    first: int
    last: int
    # Whether the threads of each row have waited for each other. Rows access elements of their own.
    met: bool = False


class _Written:
    """What has been written so far, and by whom it may still be read.

    ``holding`` names the buffers that hold their values now. A write to a buffer removes the names
    of those whose bytes it takes over. ``since`` has the accesses that a later one may conflict
    with. The first ``reach`` blocks have a task in the current segment. The other blocks wait at
    none of its barriers.

    In a segment of 4 blocks, where phase 0 stores ``k4[col]`` and phase 1 loads ``k4[0]``:

        after the store                  since = {("k4", (1, col), True, 0): _Since(0, 4)}
        at a block barrier               first becomes 4, so the entry goes: all blocks have waited
        the load, without the barrier    finds the entry, and (1, 0) is not (1, col): KernelError
    """

    place: str  # what is being checked
    stmt: ir.Stmt

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.buffers, self.owners = kernel, kernel.by_name, kernel.owners
        self.holding = {b.name for b in kernel.buffers if b.scope == "input"}
        self.since: dict[str, dict[BufferAccess, _Since]] = {}  # by owner of the bytes
        # what a segment wrote of a row of a buffer: from where, to where
        self.cells: dict[tuple[str, int, Index], tuple[int, int]] = {}
        self.number, self.reach = 0, 0  # of the segment

    def wrong(self, said: str) -> KernelError:
        """The error for the statement that is being checked."""
        return KernelError(f"{self.place}: {said}, in: {show_stmt(self.stmt)}")

    def read(self, name: str, where: Where) -> None:
        if name not in self.holding:
            raise self.wrong(f"{name} is read but holds no value here")
        self._access(name, where, False)

    def write(self, name: str, where: Where) -> None:
        self._access(name, where, True)
        self.holding = {h for h in self.holding if self.owners[h] != self.owners[name]} | {name}

    def _access(self, name: str, where: Where, stores: bool) -> None:
        """Note an access. Raises KernelError if a barrier is missing between it and an earlier one.

        Accesses of one thread need no barrier.
        """
        buffer = self.buffers[name]
        if buffer.scope in ("input", "register"):
            return
        found = self.since.setdefault(self.owners[name], {})
        for (other, there, stored, segment), since in found.items():
            here, waited = segment == self.number, since.first >= min(since.last, self.reach)
            own = here and where is not None and where == there
            # rows of equal size lie in one place
            alike = other == name or (buffer.scope == "shared"
                                      and buffer.size == self.buffers[other].size)
            if own or waited or (here and alike and since.met):
                continue
            if other != name and stores:
                raise self.wrong(f"{name} takes over the bytes of {other}, which other threads may still be reading; it takes "
                                 "a barrier in between, or one thread that reads and overwrites each element")
            if other == name and stores != stored:
                now, before = "written" if stores else "read", "writing" if stored else "reading"
                raise self.wrong(f"{name} is {now} where other threads may still be {before} it; "
                                 "it takes a barrier in between")
        found[name, where, stores, self.number] = _Since(0, self.reach)

    def fill(self, name: str, index: Index, columns: int = 1) -> None:
        """Note that ``columns`` columns from ``index`` on are written."""
        row, column = _apart(index)
        low, high = column.bounds
        first, last = self.cells.get((name, self.number, row), (low, high))
        self.cells[name, self.number, row] = min(first, low), max(last, high + columns - 1)

    def require(self, name: str, index: Index, guard: Guard) -> None:
        """Raises KernelError if an index may lie outside the written columns of its row."""
        row, column = _apart(index)
        first, last = self.cells.get((name, self.number, row), (0, -1))
        if first <= last and not lies_within(column, guard, first, last):
            raise self.wrong(f"{name} is read outside the columns {first} to {last} of its row, "
                             "which are those written")

    def meet(self, barrier: str) -> None:
        """Note that threads wait for each other here. ``none`` is a task's end without a barrier.

        A block goes on with another task after it. Two tasks never access one element of global
        memory, so there nothing conflicts. They do use the same shared memory.
        """
        if barrier == "grid":
            self.since.clear()
        for found in self.since.values():
            for access, since in list(found.items()):
                name, _, _, segment = access
                shared = self.buffers[name].scope == "shared"
                if barrier == "block" and shared:
                    since.first = max(since.first, self.reach)
                since.met |= segment == self.number and (barrier != "none" or not shared)
                # All blocks have waited: nothing later conflicts with it.
                if since.first >= since.last:
                    del found[access]


# variables that say which row an index is in
ROW_VARIABLES = {"row", "lane_row", "chunk", "start", "slice", "part"}


def _apart(index: Index) -> tuple[Index, Index]:
    """An index as the beginning of its row and a column."""
    row = tuple(t for t in index.terms if Index(0, (t,)).variables <= ROW_VARIABLES)
    return Index(0, row), Index(index.const, tuple(t for t in index.terms if t not in row))


class _KernelChecker(_Written):
    """Follows the statements of each phase."""

    part: Guard  # what loops around say of their variables
    sizes: dict[str, int]  # extents of the variables around
    started: set[str]  # accumulators of the phase; a result is complete when they are combined

    def task(self, segment: ir.Segment, place: str) -> None:
        """One task of a segment, which ends with a barrier or without."""
        known = {name for name, _, _ in self.kernel.constants}
        # a barrier that needs no statement: one thread does all of a row in order
        alone = "warp" if segment.thread_map.threads_per_row == 1 else ""
        implied = "block" if self.kernel.device.kind == "cpu" else alone
        opening, closing = (ir.Phase(1, 1, False, nest)
                            for nest in (segment.opening, segment.closing))
        when = ["before its tasks",
                *(f"phase {p}" for p in range(len(segment.phases))), "after its tasks"]
        for words, phase in zip(when, (opening, *segment.phases, closing), strict=True):
            self.segment, self.phase, self.place = segment, phase, f"{place}, {words}"
            self.part, self.started, self.sizes = (), set(), segment.extents(phase)
            self.check(phase.nest, known)
            if implied:
                self.meet(implied)
        ends = segment.task_barrier
        self.meet(ends if ends == "block" else implied or ends)

    def check(self, nest: ir.Nest, known: set[str], loop: str = "") -> None:
        """Check statements in order. ``known`` are the values that they may read.

        ``loop`` is the kind of the loop over columns around them. A loop that does not begin at 0
        is a part of the one before it. It has other columns, so it may read what that one
        overwrote.
        """
        held, outside, extent = self.holding, self.part, ir.extents(nest)
        for stmt in nest:
            self.stmt = stmt
            match stmt:
                case ir.Loop():
                    if stmt.first.const:
                        self.holding = self.holding | held
                    turns, all_turns = stmt.last - stmt.first.const, extent[stmt.var]
                    these = Within(variable(stmt.var, all_turns), stmt.first.const, stmt.last)
                    self.sizes[stmt.var] = all_turns
                    self.part = (*outside, *(c for c in map(self._sized, stmt.within) if not c.verdict),
                                 *([these] if turns < all_turns else []))
                    # what is computed once is known afterwards, too
                    inside = known if turns == 1 else set(known)
                    self.check(stmt.body, inside, loop if stmt.by == "rows" else loop or stmt.by)
                    self.part = outside
                case ir.If():
                    self.check(stmt.body, known, loop)
                case ir.VectorMove():
                    self._move(stmt)
                case ir.Barrier("warp" | "block" as scope):
                    self.meet(scope)
                case ir.Start(fold) | ir.Accumulate(fold):
                    self._fold(stmt, fold, known)
                case ir.Combine(folds):
                    self._combine(folds, known)
                case _ if isinstance(stmt, ir.Scalar):
                    self._scalar(stmt, known, loop)

    def _sized(self, condition: Within) -> Within:
        """A condition of a loop, its variables with their extents."""
        terms = ((c, a._replace(size=self.sizes.get(a.var, a.size)) if isinstance(a, Digit) else a)
                 for c, a in condition.index.terms)
        return replace(condition, index=Index(condition.index.const, tuple(terms)))

    def _scalar(self, stmt: ir.Scalar, known: set[str], loop: str) -> None:
        for name in ir.operands(stmt):
            if name not in known:
                raise self.wrong(f"{name} is read before it is computed")
        if isinstance(stmt, ir.Value):
            known.add(stmt.target)
        if not isinstance(stmt, ir.Load | ir.Store):
            return
        buffer, index = ir.place_of(self.segment, stmt)
        own = loop not in ("", "warps") and not index.loaded  # the element is the thread's own
        where = (self.phase.width, index) if own else None
        if isinstance(stmt, ir.Store):
            self.write(buffer, where)
            self.fill(buffer, index)
            return
        self.read(buffer, where)
        # A loop over nothing reads nothing.
        if self.segment.rows * self.phase.cols * self.phase.serial:
            self.require(buffer, index, (*stmt.guard, *self.part))

    def _move(self, stmt: ir.VectorMove) -> None:
        window = self.buffers[stmt.buffer].window
        if window or not side_by_side(stmt.index, self.phase.cols,
                                      stmt.columns, self.segment.chunk):
            raise self.wrong("a thread's columns do not lie side by side "
                             f"from a multiple of {stmt.columns} on")
        where = self.phase.width, stmt.index
        source, target = (stmt.registers, stmt.buffer) if stmt.stores else (stmt.buffer, stmt.registers)
        self.read(source, where)
        self.write(target, where)
        if stmt.stores:
            self.fill(target, stmt.index, stmt.columns)

    def _fold(self, stmt: ir.Start | ir.Accumulate, fold: ir.Fold, known: set[str]) -> None:
        if isinstance(stmt, ir.Start):
            self.started.add(fold.result)
        elif fold.value not in known | self.started:  # the total of a part is added as it is
            raise self.wrong(f"{fold.value} is folded before it is computed")
        elif fold.result not in self.started and not fold.buffer:
            raise self.wrong(f"{fold.result} is added to before it is started")
        if fold.buffer:
            self.write(fold.buffer, (self.phase.width, fold.cell) if fold.along == "carry" else None)

    def _combine(self, folds: Sequence[ir.Fold], known: set[str]) -> None:
        """Warps put their results down, wait, and read them all."""
        places = {f.exchange for f in folds if f.exchange}
        for name in places:
            self.write(name, None)
        if places:
            self.meet("block")
        for name in places:
            self.read(name, None)
        for fold in folds:
            if fold.result not in self.started and not fold.buffer:
                raise self.wrong(f"{fold.result} is combined before it is started")
            known.add(fold.result)
            if fold.along == "carry":
                self.read(fold.buffer, (self.phase.width, fold.cell))
