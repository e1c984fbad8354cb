"""Print a kernel as Numba CPU source.

Each segment whose tasks are dealt out to cores, in ranges, has a function. Neighbouring segments
that one core does share a function (``calls``).

In:  a ``Kernel`` scheduled for a CPU. Out: ``KernelSource`` whose functions are
``name(first, last, *flat_arrays)``. Loops, windows, guards and buffers are the kernel's. The
emitter decides only which segments share a function.

One core does alone what a block of a GPU does in a task. So it has no block barriers, its shared
memory is a scratch row that stays in cache, and a grid barrier is the end of a function.
"""

from collections.abc import Sequence

from .kernel import Kernel, ir
from .kernel.nests import accesses, parts, work_of
from .kernel.text import KernelSource, Launch, Printer, Writer, literals, numpy_name
from .ops import compute_dtype

# Scalar operations. A segment of fewer joins its neighbour's call, even if their loops differ in
# length.
LITTLE = 20_000
SHORT_LOOP = 64  # turns; LLVM should vectorise a loop this short before it unrolls it (measured)


def calls(kernel: Kernel) -> list[list[ir.Segment]]:
    """The functions that a CPU calls, in order, each as the segments in it.

    If several cores share the tasks of a segment, the segment is alone in its function. Neighbours
    that one core does share a function. LLVM compiles all loops of a function with the same
    options. So neighbours do not share one if only one of them has short loops (``is_short``) and
    both have much to do (``LITTLE``).
    """
    found: list[list[ir.Segment]] = []
    for segment in kernel.segments:
        lead = max(found[-1], key=work_of) if found else segment
        alike = is_short(segment) == is_short(lead) or min(work_of(segment), work_of(lead)) < LITTLE
        if found and max(work_of(segment), work_of(lead)) < kernel.device.serial_below and alike:
            found[-1].append(segment)
        else:
            found.append([segment])
    return found


def is_short(segment: ir.Segment) -> bool:
    """Whether a segment has loops of at most ``SHORT_LOOP`` turns, and no unrolled ones.

    An unrolled loop is best unrolled first.
    """
    unrolled = any(loop.by == "unrolled" for loop in ir.each(segment.nest, ir.Loop))
    turns = (max((i.loops[-1].last for i in parts(p).innermost), default=1) for p in segment.phases)
    return not unrolled and any(1 < n <= SHORT_LOOP for n in turns)


def emit(kernel: Kernel, exact: bool = True) -> KernelSource:
    """The kernel as CPU text with its launches, in order."""
    writer = Writer([f"{name} = {text}" for name, text in literals(kernel).items()], exact=exact)
    launches = []
    found = calls(kernel)
    for number, segments in enumerate(found):
        name = kernel.name if len(found) == 1 else f"{kernel.name}_s{number}"
        buffers = _used_buffers(kernel, segments)
        outside = [b for b in buffers if kernel.by_name[b].scope != "shared"]
        # Numba is told that no two arguments overlap, so buffers that share bytes are one argument.
        arguments = tuple(dict.fromkeys(kernel.owners[b] for b in outside))
        writer.lines += ["", ""]
        with writer.indented(f"def {name}(first, last, {', '.join(arguments)}):"):
            for b in outside:
                if b not in arguments:
                    writer.line(f"{b} = {kernel.owners[b]}", f"%{kernel.by_name[b].node} takes over its bytes")
            _scratch_rows(kernel, [b for b in buffers if b not in outside], writer)
            alone = len(segments) == 1
            for segment in segments:
                turns = ("first", "last") if alone else ("0", str(_tasks(segment)))
                _CpuSegment(kernel, segment, writer).emit(*turns)
        tasks = _tasks(segments[0]) if alone else 1
        lead = max(segments, key=work_of)
        launches.append(Launch(name, tasks, arguments, sum(map(work_of, segments)), is_short(lead)))
    return KernelSource(kernel, "cpu", writer.text(), tuple(launches), exact)


def _used_buffers(kernel: Kernel, segments: Sequence[ir.Segment]) -> list[str]:
    """Names of the buffers that some segments touch, in the kernel's order."""
    touched: set[str] = set()
    for segment in segments:
        touched |= {access.buffer for access in accesses(segment, segment.nest)}
        folds = (s.fold for s in ir.each(segment.nest, ir.Accumulate))
        touched |= {name for f in folds if f.buffer for name in (f.buffer, f.lost)}
    return [b.name for b in kernel.buffers if b.name in touched]


def _scratch_rows(kernel: Kernel, local: list[str], w: Writer) -> None:
    """Make a scratch row for each shared buffer. Buffers that share bytes have one row."""
    first: dict[str, str] = {}
    for buffer in local:
        b, owner = kernel.by_name[buffer], kernel.owners[buffer]
        size = max(kernel.by_name[x].size for x in local if kernel.owners[x] == owner)
        new = f"np.empty({size}, {numpy_name(b.dtype)})" if owner not in first else first[owner]
        first.setdefault(owner, buffer)
        w.line(f"{buffer} = {new}", f"%{b.node} {b.why}" if new != first[owner] else f"%{b.node} takes over its bytes")


def _names(nest: ir.Nest, variable: str) -> bool:
    """Whether an index or a guard of some statements names a variable."""
    return any(variable in index.variables for stmt, _ in ir.walk(nest) for index in ir.indices(stmt))


def _tasks(segment: ir.Segment) -> int:
    return segment.thread_map.blocks if segment.carries else segment.tasks


class _CpuSegment(Printer):
    """Prints one segment."""

    target = "cpu"

    def emit(self, first: str, last: str) -> None:
        """The loop over tasks, and what each does. ``first`` and ``last`` are text."""
        w, s = self.w, self.segment
        tasks = last if first == "0" else f"{first}, {last}"
        if s.carries:
            steps = s.thread_map.steps
            with w.indented(f"for part in range({tasks}):"):
                self.nest(s.opening)
                self._rows(f"part * {steps}", f"min(part * {steps} + {steps}, {s.rows})")
                self.nest(s.closing)
        elif s.chunks == 1 and s.slices == 1:
            self._rows(first, last)
        else:
            with w.indented(f"for task in range({tasks}):"):
                self._open_task()
                self.phases()

    # ------------------------------------------------------------ tasks
    def _rows(self, first: str, last: str) -> None:
        """A loop over rows. If several are taken at once: over the first row of each group."""
        step, rows = self.segment.step, last if first == "0" else f"{first}, {last}"
        head = f"for row in range({rows}):" if step == 1 else f"for first_row in range({first}, {last}, {step}):"
        with self.w.indented(head):
            if step > 1:
                self.w.line(f"rows = min({step}, {last} - first_row)")
                self.named[f"min({step}, {self.segment.rows} - first_row)"] = "rows"
            self.phases()

    def _open_task(self) -> None:
        """The row, the columns and the reduced rows of a task."""
        w, s = self.w, self.segment
        if _names(s.nest, "row"):
            w.line(f"row = task // {s.chunks * s.slices}")
        self.open_parts()
        if s.chunks > 1 and s.columns:
            text = f"min({s.chunk}, {s.columns} - start)"
            w.line(f"width = max(0, {text})")
            self.named |= {text: "width", f"min(start + {s.chunk}, {s.columns})": "start + width"}

    # ------------------------------------------------------------ statements
    def statement(self, stmt: ir.Stmt) -> None:
        """Windows are a CPU's own. A loop of one turn is only its body."""
        match stmt:
            case ir.Loop(by="one", within=()) if self.extents[stmt.var] == 1 and not _names(stmt.body, stmt.var):
                self.nest(stmt.body)
            case ir.Barrier():
                pass
            case ir.Window():
                self._window(stmt)
            case _:
                super().statement(stmt)

    def _window(self, window: ir.Window) -> None:
        start = self.index(window.index)
        stop = f"{start} + {window.length}" if window.index.terms else str(window.index.const + window.length)
        if window.guard:
            self.w.line(f"{window.name}_at = {start} if {self.guard(window.guard)} else 0")
            start, stop = f"{window.name}_at", f"{window.name}_at + {window.length}"
        self.w.line(f"{window.name} = {window.buffer}[{start}:{stop}]")

    # ------------------------------------------------------------ conversions
    def chosen(self, condition: str, value: str, other: str) -> str:
        """A core evaluates both values, because a branch would stop vectorisation."""
        return f"select({condition}, {value}, {other})"

    def narrowed(self, text: str) -> str:
        return f"float_to_half({text})"

    def widened(self, text: str) -> str:
        return f"half_to_float({text})"

    def cast(self, name: str, to: str, of: str) -> str:
        """float64 becomes float16 by way of a float32 rounded to odd: else it rounds twice."""
        if (to, of) == ("float16", "float64"):
            return self.rounded_half(f"float_to_odd({name})")
        # measured: a mask made in a softmax's loops, 7.4 ms converted and 1.7 chosen
        if of == "bool" != to and to != "float16":
            return self.chosen(name, f"np.{compute_dtype(to)}(1)", f"np.{compute_dtype(to)}(0)")
        return super().cast(name, to, of)

    def fitting(self, name: str, of: str, width: int) -> str:
        """LLVM makes anything of a float that does not fit an integer. x86 makes this of it."""
        end = f"{of}({1 << (width - 1)})"
        return self.chosen(f"abs({name}) < {end}", name, f"-{end}")
