"""Print a kernel as Numba CUDA source: one function, whose blocks each take several tasks in turn.

In:  a ``Kernel`` scheduled for a GPU. Out: ``KernelSource`` with one launch. ``kernel.ir`` says
what an emitter writes out. Here that is the loop over tasks, and how a ``Combine`` joins the
results of the threads: which shuffles, in which dtype, and the barrier of an exchange between
warps.

The text is plain Python in the dialect of ``numba.cuda``, so ``simt.step`` runs it on any machine.
All threads of a block reach its barriers and shuffles. A thread without a row reaches them, too:
its loops over columns have no turns. Every literal has its dtype. Sizes of shared memory are
literals.
"""

from collections.abc import Sequence

from .fuse import count
from .kernel import Kernel, ir
from .kernel.text import KernelSource, Launch, Printer, Writer, fold_step, literals, numpy_name
from .ops import compute_dtype, kind_of
from .stitch.index import show
from .stitch.mapping import WARP

MASK = "0xffffffff"


def emit(kernel: Kernel, exact: bool = True) -> KernelSource:
    """The kernel as CUDA text with its launch."""
    w = Writer([f"{name} = {text}" for name, text in literals(kernel).items()], exact=exact)
    w.lines += ["", ""]
    arguments = tuple(b.name for b in kernel.parameters)
    with w.indented(f"def {kernel.name}({', '.join(arguments)}):"):
        w.line("thread = cuda.threadIdx.x")
        if kernel.grid_barriers:
            w.line("grid = cuda.cg.this_grid()")
        for b in kernel.buffers:
            _declare(kernel, b, w)
        emit_segments(kernel, w)
    launch = Launch(kernel.name, kernel.grid, arguments)
    return KernelSource(kernel, "cuda", w.text(), (launch,), exact)


def _declare(kernel: Kernel, b: ir.Buffer, w: Writer) -> None:
    """Shared memory and register arrays. Other buffers are arguments."""
    owner, dtype = kernel.owners[b.name], numpy_name(b.dtype)
    if owner != b.name:
        w.line(f"{b.name} = {owner}", f"%{b.node} takes over its bytes")
    elif b.scope == "shared":
        aligned = ", alignment=16" if b.name in kernel.aligned else ""
        w.line(f"{b.name} = cuda.shared.array({max(1, b.size)}, {dtype}{aligned})", f"%{b.node} {b.why}")
    elif b.scope == "register":
        w.line(f"{b.name} = cuda.local.array({b.size}, {dtype})", f"%{b.node} {b.why}")


def emit_segments(kernel: Kernel, writer: Writer, block: str = "cuda.blockIdx.x", barrier: str = "grid.sync()") -> None:
    """The kernel's segments as lines.

    ``block`` is the text for the number of the block, ``barrier`` for a grid barrier. They differ
    if a kernel runs as a part of another one.
    """
    for number, segment in enumerate(kernel.segments):
        _CudaSegment(kernel, segment, writer).emit(number, block, barrier)


class _CudaSegment(Printer):
    """Prints one segment."""

    target = "cuda"

    def emit(self, number: int, block: str, barrier: str) -> None:
        """Its tasks, which the blocks take in turn."""
        w, s, grid = self.w, self.segment, self.kernel.grid
        threads = s.threads(self.kernel.block)
        self.takers = {"threads": ("lane", threads), "warps": (f"thread // {WARP}", threads // WARP),
                       "lanes": (f"thread % {WARP}", WARP)}
        w.line(f"# segment {number}: {count(s.rows, 'row')}" + (f" in {s.chunks} chunks" if s.chunks > 1 else ""))
        self._open_lanes(threads)
        if s.carries:
            parts = s.thread_map.blocks
            with w.indented(f"for part_block in range({block}, {parts}, {grid}):"):
                self.nest(s.opening)
                self._tasks("part_block", parts)
                self.nest(s.closing)
        else:
            self._tasks(block, grid)
        if s.barrier == "grid":
            w.line(barrier)

    # ------------------------------------------------------------ tasks
    def _tasks(self, first: str, step: int) -> None:
        """The loop over the tasks of one block, or of one part of the column sums."""
        s = self.segment
        with self.w.indented(f"for task in range({first}, {s.tasks}, {step}):"):
            self._open_task()
            self.phases()
            if s.task_barrier != "none":
                self._wait(s.task_barrier)

    def _open_lanes(self, threads: int) -> None:
        """The thread's number in its row (``lane``), and its row's in the block (``lane_row``)."""
        if threads == 1 < self.kernel.block:
            self.w.line("lane = 0")
            self.w.line("lane_row = thread")
        elif threads != self.kernel.block:
            self.w.line(f"lane = thread % {threads}")
            self.w.line(f"lane_row = thread // {threads}")
        else:
            self.w.line("lane = thread")

    def _open_task(self) -> None:
        """The row and the columns of a task."""
        w, s = self.w, self.segment
        per_row, rows = s.chunks * s.slices, s.thread_map.rows_per_block
        if s.space.kind == "row" and rows > 1:
            w.line(f"row = task * {rows} + lane_row")
            if s.ragged:
                self.name("live", f"row < {s.rows}")
        else:
            w.line(f"row = task // {per_row}" if per_row > 1 else "row = task")
        self.open_parts()
        if s.chunks > 1 and s.columns:
            self.name("stop", f"min(start + {s.chunk}, {s.columns})")

    # ------------------------------------------------------------ statements
    def statement(self, stmt: ir.Stmt) -> None:
        """Barriers and vector moves are a GPU's own."""
        match stmt:
            case ir.Barrier(scope):
                self._wait(scope)
            case ir.VectorMove():
                index = show(stmt.index, self.extents, {"col": ir.FIRST})
                there, here = f"{stmt.buffer}, {index}", f"{stmt.registers}, {self.index(stmt.at)}"
                text = f"store_wide({there}, {here}" if stmt.stores else f"load_wide({here}, {there}"
                self.line(f"{text}, {stmt.columns})", stmt.node)
            case _:
                super().statement(stmt)

    def _wait(self, scope: str) -> None:
        self.w.line({"block": "cuda.syncthreads()", "warp": "cuda.syncwarp()"}[scope])

    # ------------------------------------------------------------ reductions
    def _shuffle(self, fold: ir.Fold, lanes: int) -> None:
        """Join the results of ``lanes`` neighbours, a power of two. All of them have the result."""
        if lanes == 1:
            return
        assert lanes & (lanes - 1) == 0, f"{lanes} lanes cannot halve their distance"
        steps = tuple(lanes >> k for k in range(1, lanes.bit_length()))
        self.w.line(f"for offset in {steps}:", f"%{fold.node} {fold.op} over {lanes} lanes")
        step = fold_step(fold.op, fold.dtype, fold.result, self._of_neighbour(fold), "cuda")
        self.w.line(f"    {fold.result} = {step}")

    def _of_neighbour(self, fold: ir.Fold) -> str:
        """The result of the thread ``offset`` lanes away.

        A shuffle moves four bytes or eight, as signed integers or floats.
        """
        held = compute_dtype(fold.dtype)
        if kind_of(held) == "float" or held in ("int32", "int64"):
            return f"cuda.shfl_xor_sync({MASK}, {fold.result}, offset)"
        text = f"cuda.shfl_xor_sync({MASK}, np.int64({fold.result}), offset)"
        return f"({text} != 0)" if held == "bool" else f"np.{held}({text})"

    def combine(self, folds: Sequence[ir.Fold]) -> None:
        """All threads of a row end up with its result.

        Shuffles join those of a warp, then shared memory and shuffles again those of the warps.
        Each thread fetches the result of one warp. If it fetched all of them in turn, the assembler
        would hold 32 in registers.
        """
        w, exchanged = self.w, [f for f in folds if f.exchange]
        for fold in folds:
            self._shuffle(fold, fold.lanes)
        if exchanged:
            warps = self.segment.threads(self.kernel.block) // WARP
            w.line(f"if thread % {WARP} == 0:")
            for fold in exchanged:
                w.line(f"    {fold.exchange}[thread // {WARP}] = {fold.result}")
            w.line("cuda.syncthreads()")
            first = f"lane_row * {warps} + " if self.segment.thread_map.rows_per_block > 1 else ""
            for fold in exchanged:
                w.line(f"{fold.result} = {fold.exchange}[{first}thread % {warps}]", f"%{fold.node} one of the row's {warps} warps")
                self._shuffle(fold, warps)
        super().combine(folds)
