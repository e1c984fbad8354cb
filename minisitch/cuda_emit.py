"""Print a kernel as Numba CUDA source: one function, its blocks each several tasks in turn.

In:  a ``Kernel`` scheduled for a GPU. Out: ``KernelSource`` with one launch. Takes no decision.

The text is plain Python in the dialect of ``numba.cuda``, so ``simt.step`` runs it on any machine:
barriers and shuffles stand in uniform control flow only (rows past the end loop zero times and
still take part), every literal carries its dtype, shared sizes are literals.
"""

from __future__ import annotations

from collections.abc import Iterator

from .fuse import count
from .kernel.ir import MEET_TOGETHER, Fold, Kernel, Phase, Segment, Stmt, Store, extents, indices
from .kernel.text import (
    KernelSource,
    Launch,
    Writer,
    accumulate,
    buffer_sizes,
    chunked_columns,
    combine,
    comment_of,
    guard_text,
    header,
    identity_name,
    numpy_name,
    statement,
    task_parts,
)
from .ops import compute_dtype, kind_of, shuffle_dtype
from .stitch.index import show
from .stitch.mapping import WARP

MASK = "0xffffffff"


def emit(kernel: Kernel, exact: bool = True) -> KernelSource:
    """The kernel as CUDA text with its launch."""
    w = Writer(exact=exact)
    for line in header(kernel):
        w.line(line)
    w.line("")
    w.line("")
    w.line(f"def {kernel.name}({', '.join(b.name for b in kernel.parameters)}):")
    w.depth += 1
    w.line("thread = cuda.threadIdx.x")
    if kernel.grid_barriers:
        w.line("grid = cuda.cg.this_grid()")
    for b in kernel.buffers:
        owner = kernel.owners[b.name]
        if owner != b.name:
            w.line(f"{b.name} = {owner}", f"%{b.node} takes over its bytes")
        elif b.scope == "shared":
            aligned = ", alignment=16" if b.name in kernel.aligned else ""
            w.line(f"{b.name} = cuda.shared.array({max(1, b.size)}, {numpy_name(b.dtype)}{aligned})", f"%{b.node} {b.why}")
        elif b.scope == "register":
            w.line(f"{b.name} = cuda.local.array({b.size}, {numpy_name(b.dtype)})", f"%{b.node} {b.why}")
    emit_segments(kernel, w)
    w.depth -= 1
    work = sum(s.work for s in kernel.segments)
    launch = Launch(kernel.name, kernel.grid, work, tuple(b.name for b in kernel.parameters))
    return KernelSource(kernel, "cuda", w.text(), (launch,), exact)


def emit_segments(kernel: Kernel, writer: Writer, block: str = "cuda.blockIdx.x", barrier: str = "grid.sync()") -> None:
    """The kernel's segments as lines; ``block`` and ``barrier`` are others where a kernel runs inside one block of another."""
    for number, segment in enumerate(kernel.segments):
        _CudaSegment(kernel, segment, writer, block, barrier).emit(number)


class _CudaSegment:
    """Prints one segment."""

    def __init__(self, kernel: Kernel, segment: Segment, writer: Writer, block: str, barrier: str) -> None:
        self.kernel, self.segment, self.w, self.block, self.barrier = kernel, segment, writer, block, barrier
        self.sizes = buffer_sizes(kernel)
        m = segment.thread_map
        self.per_row, self.rows_per_block = m.threads_per_row, m.rows_per_block
        self.ragged = segment.kind == "row" and segment.rows % self.rows_per_block != 0
        self.threads = kernel.block if segment.kind == "column" or segment.chunks > 1 else self.per_row

    def emit(self, number: int) -> None:
        w, s = self.w, self.segment
        w.line(f"# segment {number}: {count(s.rows, 'row')}" + (f" in {s.chunks} chunks" if s.chunks > 1 else ""))
        if self.threads == 1 < self.kernel.block:
            w.line("lane = 0")
            w.line("lane_row = thread")
        elif self.threads != self.kernel.block:
            w.line(f"lane = thread % {self.threads}")
            w.line(f"lane_row = thread // {self.threads}")
        else:
            w.line("lane = thread")
            if self.rows_per_block > 1:
                w.line("lane_row = 0")
        mark = w.depth
        grid = self.kernel.grid
        if s.carries:
            blocks = s.thread_map.blocks
            w.line(f"for part_block in range({self.block}, {blocks}, {grid}):")
            w.depth += 1
            self._start_carries()
            w.line(f"for task in range(part_block, {s.tasks}, {blocks}):")
        else:
            w.line(f"for task in range({self.block}, {s.tasks}, {grid}):")
        w.depth += 1
        self._open_task()
        for phase in s.phases:
            self._phase(phase)
        self._end_task()
        if s.carries:
            w.depth -= 1
            self._store_carries()
        w.depth = mark
        if s.barrier == "grid":
            w.line(self.barrier)

    # ------------------------------------------------------------ tasks
    def _open_task(self) -> None:
        w, s = self.w, self.segment
        per_row = s.chunks * s.slices
        if s.kind == "row" and self.rows_per_block > 1:
            w.line(f"row = task * {self.rows_per_block} + lane_row")
            if self.ragged:
                w.line(f"live = row < {s.rows}")
        else:
            w.line(f"row = task // {per_row}" if per_row > 1 else "row = task")
        for line in task_parts(s):
            w.line(line)
        if s.chunks > 1:
            w.line(f"stop = min(start + {s.chunk}, {chunked_columns(s)})")

    def _end_task(self) -> None:
        """Wait until every thread has read this task's shared memory. The next task overwrites it."""
        s = self.segment
        if s.task_barrier == "block":
            self.w.line("cuda.syncthreads()")
        elif s.task_barrier == "warp":
            self.w.line("cuda.syncwarp()")

    def _carries(self) -> Iterator[tuple[Phase, Fold]]:
        """A block's column sums, each in a loop over this thread's columns."""
        for phase in self.segment.phases:
            for fold in [f for f in phase.folds if f.along == "carry"]:
                cols = self.kernel.by_name[fold.buffer].size // self.rows_per_block
                self.w.line(f"for col in range(lane, {cols}, {self.threads}):")
                self.w.depth += 1
                yield phase, fold
                self.w.depth -= 1

    def _start_carries(self) -> None:
        for _, fold in self._carries():
            self.w.line(f"{fold.buffer}[{show(fold.cell)}] = {identity_name(fold.op, fold.dtype)}", f"%{fold.node} {fold.op}")

    def _store_carries(self) -> None:
        """One partial row for each row lane."""
        self.w.line(f"part = part_block * {self.rows_per_block} + lane_row" if self.rows_per_block > 1 else "part = part_block")
        for phase, fold in self._carries():
            self.w.line(f"{fold.result} = {fold.buffer}[{show(fold.cell)}]", f"%{fold.node} {fold.op}")
            self._statements(phase, fold.stores)

    # ------------------------------------------------------------ phases
    def _phase(self, phase: Phase) -> None:
        w = self.w
        if self.ragged and phase.before:  # a thread without a row computes nothing, but waits at the barriers
            w.line("if live:")
            w.depth += 1
            self._statements(phase, phase.before)
            w.depth -= 1
        else:
            self._statements(phase, phase.before)
        if phase.outer:
            self._column_phase(phase)
        else:
            self._row_phase(phase)
        if phase.barrier == "block":
            w.line("cuda.syncthreads()")
        elif phase.barrier == "warp":
            w.line("cuda.syncwarp()")

    def _columns(self, phase: Phase) -> str:
        """The columns of this thread; of a row that is dealt out in groups, those that no group takes."""
        first = phase.cols - phase.cols % phase.width if phase.rest else 0
        if phase.chunked and self.segment.chunks > 1:
            return f"range({f'max(start, {first})' if first else 'start'} + lane, stop, {self.threads})"
        stop = f"{phase.cols} if live else 0" if self.ragged else str(phase.cols)
        return f"range({f'{first} + lane' if first else 'lane'}, {stop}, {self.threads})"

    def _row_phase(self, phase: Phase) -> None:
        w = self.w
        rows = [f for f in phase.folds if f.along == "row"]
        for fold in rows:
            self._start(fold)
        mark = w.depth
        if phase.turns or phase.width > 1:
            self._groups(phase)
        if not phase.turns and (phase.width == 1 or phase.rest):
            w.line(f"for col in {self._columns(phase)}:")
            w.depth += 1
            self._columns_body(phase, phase.rest or phase.body)
        w.depth = mark
        for k in range(0, len(rows), MEET_TOGETHER):
            self._exchange(rows[k:k + MEET_TOGETHER])
        for fold in rows:
            if fold.stores:
                w.line("if lane == 0 and live:" if self.ragged else "if lane == 0:")
                w.depth += 1
                self._statements(phase, fold.stores)
                w.depth -= 1

    def _columns_body(self, phase: Phase, body: tuple[Stmt, ...]) -> None:
        self._statements(phase, body)
        for fold in phase.folds:
            self._accumulate(fold)
        if not body and not phase.folds:
            self.w.line("pass")

    def _groups(self, phase: Phase) -> None:
        """Columns in groups of ``width``, wide accesses before and after the loop over a group's columns."""
        w, mark, width = self.w, self.w.depth, phase.width
        split = phase.chunked and self.segment.chunks > 1
        whole = phase.cols - phase.cols % width
        own = f"lane * {width}" if width > 1 else "lane"
        own, stride = f"start + {own}" if split else own, self.threads * width
        first = "first" if width > 1 else "col"
        if phase.turns:
            w.line(f"for turn in range({phase.turns}):")
            w.depth += 1
            last = "stop" if split else str(whole) if phase.turns * stride > whole else ""
            inside = ["live"] * self.ragged + ([f"{first} < {last}"] if last else [])
            if last or phase.wide or self._names_column(phase):
                w.line(f"{first} = {own} + turn * {stride}")
            if inside:
                w.line(f"if {' and '.join(inside)}:")
                w.depth += 1
        else:
            stop = f"min(stop, {whole})" if split and whole < phase.cols else "stop" if split else str(whole)
            w.line(f"for first in range({own}, {f'{stop} if live else 0' if self.ragged else stop}, {stride}):")
            w.depth += 1
        self._wide(phase, False)
        inner = w.depth
        if width > 1:
            w.line(f"for each in range({width}):")
            w.depth += 1
            if self._names_column(phase):
                w.line("col = first + each")
        self._columns_body(phase, phase.body)
        w.depth = inner
        self._wide(phase, True)
        w.depth = mark

    def _names_column(self, phase: Phase) -> bool:
        """True if something in a group's loop depends on more than the place of its column in the group."""
        return any("col" in index.variables for stmt in phase.body for index in indices(stmt))

    def _wide(self, phase: Phase, stores: bool) -> None:
        totals = extents(self.segment, phase)
        for x in phase.wide:
            if x.stores == stores:
                there, here = f"{x.buffer}, {show(x.index, totals, {'col': 'first'})}", f"{x.registers}, {show(x.at, totals)}"
                text = f"store_wide({there}, {here}" if stores else f"load_wide({here}, {there}"
                self.w.line(f"{text}, {x.columns})", comment_of(self.kernel.graph, x.node))

    def _column_phase(self, phase: Phase) -> None:
        """Each thread, or each warp, owns a column and walks down the reduced rows."""
        w = self.w
        warps = any(f.along == "warp" for f in phase.folds)
        bounds = "ser_first, ser_last" if self.segment.slices > 1 else str(phase.serial)
        if warps:
            w.line(f"for col in range(thread // {WARP}, {phase.cols}, {self.threads // WARP}):")
            bounds = f"thread % {WARP}, {phase.serial}, {WARP}"
        else:
            w.line(f"for col in {self._columns(phase)}:")
        w.depth += 1
        for fold in phase.folds:
            self._start(fold)
        mark = w.depth
        if phase.serial != 1:
            w.line(f"for ser in range({bounds}):")
            w.depth += 1
        self._statements(phase, phase.body)
        for fold in phase.folds:
            self._accumulate(fold)
        w.depth = mark
        for fold in phase.folds:
            self._shuffle(fold, fold.lanes)
            self._finish(fold)
        if warps:
            w.line(f"if thread % {WARP} == 0:")
            w.depth += 1
        for fold in phase.folds:
            self._statements(phase, fold.stores)
        w.depth = mark - 1

    def _statements(self, phase: Phase, stmts: tuple) -> None:
        totals = extents(self.segment, phase)
        for stmt in stmts:
            text = statement(stmt, "cuda", totals, self.sizes, self.w.exact)
            if isinstance(stmt, Store) and stmt.guard:
                self.w.line(f"if {guard_text(stmt.guard, totals)}:")
                text = "    " + text
            self.w.line(text, comment_of(self.kernel.graph, stmt.node))

    # ------------------------------------------------------------ reductions
    def _held(self, fold: Fold) -> str:
        """The dtype of the accumulator: what a shuffle can move where one is needed."""
        return shuffle_dtype(fold.dtype) if fold.lanes > 1 else compute_dtype(fold.dtype)

    def _start(self, fold: Fold) -> None:
        both = f"{fold.result} = {fold.lost}" if fold.lost else fold.result
        self.w.line(f"{both} = {self._identity(fold)}", comment_of(self.kernel.graph, fold.node))

    def _identity(self, fold: Fold) -> str:
        name = identity_name(fold.op, fold.dtype)
        return name if self._held(fold) == compute_dtype(fold.dtype) else f"np.{self._held(fold)}({name})"

    def _combined(self, fold: Fold, left: str, right: str) -> str:
        held = self._held(fold)
        if kind_of(fold.dtype) == "bool" and held != "bool":
            return f"{left} {'|' if fold.op == 'any' else '&'} {right}"
        if held != compute_dtype(fold.dtype) and fold.op in ("sum", "prod"):
            return combine(fold.op, held, left, right, "cuda")
        return combine(fold.op, fold.dtype, left, right, "cuda")

    def _accumulate(self, fold: Fold) -> None:
        target, value = fold.result, fold.value
        if fold.along == "carry":
            target = f"{fold.buffer}[{show(fold.cell)}]"
        elif self._held(fold) != compute_dtype(fold.dtype):
            value = f"np.{self._held(fold)}({value})"
        text = self._combined(fold, target, value)
        self.w.line(accumulate(fold, target, text, value), comment_of(self.kernel.graph, fold.node))

    def _shuffle(self, fold: Fold, lanes: int) -> None:
        """Join the results of ``lanes`` neighbours, a power of two. Each of them ends up with the joined result."""
        if lanes == 1:
            return
        assert lanes & (lanes - 1) == 0, f"{lanes} lanes cannot halve their distance"
        steps = ", ".join(str(lanes >> k) for k in range(1, lanes.bit_length()))
        self.w.line(f"for offset in ({steps}{',' * (lanes == 2)}):", f"%{fold.node} {fold.op} over {lanes} lanes")
        other = f"cuda.shfl_xor_sync({MASK}, {fold.result}, offset)"
        if self._held(fold) == "uint64":  # a shuffle takes signed integers; as such they would compare wrongly
            other = f"np.uint64(cuda.shfl_xor_sync({MASK}, np.int64({fold.result}), offset))"
        self.w.line(f"    {fold.result} = {self._combined(fold, fold.result, other)}")

    def _exchange(self, folds: list[Fold]) -> None:
        """All threads of a row end up with its result: shuffles in the warp, shared memory between warps, and shuffles again.

        Each thread fetches the result of one warp. If it fetched all of them in turn, the assembler would hold 32 in registers.
        """
        w = self.w
        for fold in folds:
            self._shuffle(fold, fold.lanes)
        if self.threads > WARP:
            warps = self.threads // WARP
            w.line(f"if thread % {WARP} == 0:")
            for fold in folds:
                w.line(f"    {fold.exchange}[thread // {WARP}] = {fold.result}")
            w.line("cuda.syncthreads()")
            first = f"lane_row * {warps} + " if self.rows_per_block > 1 else ""
            for fold in folds:
                w.line(f"{fold.result} = {fold.exchange}[{first}thread % {warps}]", f"%{fold.node} one of the row's {warps} warps")
                self._shuffle(fold, warps)
        for fold in folds:
            self._finish(fold)

    def _finish(self, fold: Fold) -> None:
        """Back from the dtype of the exchange to the value's own."""
        self.w.finish(fold, self.kernel, "cuda")
        if self._held(fold) != compute_dtype(fold.dtype):
            held = compute_dtype(fold.dtype)
            text = f"{fold.result} != 0" if held == "bool" else f"np.{held}({fold.result})"
            self.w.line(f"{fold.result} = {text}")
