"""Print a kernel as Numba CPU source: a function for each segment whose tasks are dealt out to cores, in ranges.

Segments that one core does anyway follow each other in one function (``Kernel.calls``).

In:  a ``Kernel`` scheduled for a CPU. Out: ``KernelSource`` whose functions are
``name(first, last, *flat_arrays)``. Takes no decision: loops, views, guards, buffers are the kernel's.

What a GPU block does in a task is done here by one core in turn, so block barriers vanish, shared
memory is a scratch row that stays in cache, and the grid barrier is the end of the function.
"""

from __future__ import annotations

import math

from .kernel.ir import Fold, Kernel, Phase, Segment, Stmt, Store, View, extents
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
    used_buffers,
)
from .stitch.index import show


def emit(kernel: Kernel, exact: bool = True) -> KernelSource:
    """The kernel as CPU text with its launches, in order."""
    writer = Writer(exact=exact)
    for line in header(kernel):
        writer.line(line)
    launches = []
    for number, segments in enumerate(kernel.calls):
        name = kernel.name if len(kernel.calls) == 1 else f"{kernel.name}_s{number}"
        buffers = used_buffers(kernel, [p for s in segments for p in s.phases])
        outside = [b for b in buffers if kernel.by_name[b].scope != "shared"]
        # Numba is told that no two arguments overlap, so buffers that share bytes are one argument.
        arguments = tuple(dict.fromkeys(kernel.owners[b] for b in outside))
        writer.line("")
        writer.line("")
        writer.line(f"def {name}(first, last, {', '.join(arguments)}):")
        writer.depth += 1
        for b in outside:
            if b not in arguments:
                writer.line(f"{b} = {kernel.owners[b]}", f"%{kernel.by_name[b].node} takes over its bytes")
        _scratch_rows(kernel, [b for b in buffers if b not in outside], writer)
        for segment in segments:
            _CpuSegment(kernel, segment, writer).emit("first" if len(segments) == 1 else "0",
                                                   "last" if len(segments) == 1 else str(_tasks(segment)))
        writer.depth -= 1
        tasks = _tasks(segments[0]) if len(segments) == 1 else 1
        launches.append(Launch(name, tasks, sum(s.work for s in segments), arguments, max(segments, key=lambda s: s.work).short))
    return KernelSource(kernel, "cpu", writer.text(), tuple(launches), exact)


def _scratch_rows(kernel: Kernel, local: list[str], w: Writer) -> None:
    """What a block keeps in shared memory is a row of its own here, one for all that share bytes."""
    first: dict[str, str] = {}
    for buffer in local:
        b, owner = kernel.by_name[buffer], kernel.owners[buffer]
        size = max(kernel.by_name[x].size for x in local if kernel.owners[x] == owner)
        new = f"np.empty({size}, {numpy_name(b.dtype)})" if owner not in first else first[owner]
        first.setdefault(owner, buffer)
        w.line(f"{buffer} = {new}", f"%{b.node} {b.why}" if new != first[owner] else f"%{b.node} takes over its bytes")


def _tasks(segment: Segment) -> int:
    return segment.thread_map.blocks if segment.carries else segment.tasks


class _CpuSegment:
    """Prints one segment."""

    def __init__(self, kernel: Kernel, segment: Segment, writer: Writer) -> None:
        self.kernel, self.segment, self.w = kernel, segment, writer
        self.sizes = buffer_sizes(kernel)
        self.used = _variables(segment)
        self.taken: set[tuple[str, int]] = set()  # row views that an earlier phase has taken

    def emit(self, first: str, last: str) -> None:
        """Its tasks, which the function is given or which are all of them."""
        w, s, mark = self.w, self.segment, self.w.depth
        self._open_tasks(first, last)
        for phase in s.phases:
            inside = w.depth
            if s.together > 1:
                w.line("for lane_row in range(rows):")
                w.depth += 1
                w.line("row = first_row + lane_row")
                self.taken.clear()
            self._phase(phase)
            w.depth = inside
        if s.carries:
            w.depth -= 1
            self._carry_ends()
        w.depth = mark

    # ------------------------------------------------------------ tasks
    def _open_rows(self, first: str, last: str) -> None:
        """A loop over rows, or over blocks of those that are taken together."""
        together = self.segment.together
        tasks = last if first == "0" else f"{first}, {last}"
        self.w.line(f"for row in range({tasks}):" if together == 1 else f"for first_row in range({first}, {last}, {together}):")
        self.w.depth += 1
        if together > 1:
            self.w.line(f"rows = min({together}, {last} - first_row)")

    def _open_tasks(self, first: str, last: str) -> None:
        w, s = self.w, self.segment
        tasks = last if first == "0" else f"{first}, {last}"
        if s.carries:
            w.line(f"for part in range({tasks}):")
            w.depth += 1
            for fold in [f for p in s.phases for f in p.folds if f.along == "carry"]:
                self._each_column(fold, f"{fold.buffer}[col] = {identity_name(fold.op, fold.dtype)}")
            m = s.thread_map
            self._open_rows(f"part * {m.steps}", f"min(part * {m.steps} + {m.steps}, {s.rows})")
            return
        if s.tile:
            w.line(f"for row_first in range({first}, {last}, {s.tile}):")
            w.line(f"    for c0 in range({s.phases[0].axes[0][1]}):")
            w.line(f"        for row in range(row_first, min(row_first + {s.tile}, {last})):")
            w.depth += 3
        elif s.chunks == 1 and s.slices == 1:
            self._open_rows(first, last)
        else:
            w.line(f"for task in range({tasks}):")
            w.depth += 1
            if "row" in self.used:
                w.line(f"row = task // {s.chunks * s.slices}")
            for line in task_parts(s):
                w.line(line)
        if s.chunks > 1:
            w.line(f"width = max(0, min({s.chunk}, {chunked_columns(s)} - start))")

    def _each_column(self, fold: Fold, text: str) -> None:
        size = self.kernel.by_name[fold.buffer].size
        self.w.line(f"for col in range({size}):")
        self.w.line("    " + text, f"%{fold.node} {fold.op}")

    def _carry_ends(self) -> None:
        """Store the columns' sums of the rows this part went through."""
        for phase in self.segment.phases:
            for fold in [f for f in phase.folds if f.along == "carry"]:
                self._each_column(fold, f"{fold.result} = {fold.buffer}[col]")
                self.w.depth += 1
                self._statements(phase, fold.stores)
                self.w.depth -= 1

    # ------------------------------------------------------------ phases
    def _phase(self, phase: Phase) -> None:
        w = self.w
        mark = w.depth
        self._views(phase, 0)
        self._statements(phase, phase.before)
        for k in range(len(phase.axes) + 1):
            if k == phase.outer:
                inside = w.depth
                self._start(phase)
            if k == len(phase.axes) - 1:
                around = w.depth
                for fold in [f for f in phase.folds if f.inner]:
                    w.line(f"{fold.inner} = {identity_name(fold.op, fold.dtype)}")
            if k < len(phase.axes) - bool(phase.cuts) and (phase.body or phase.folds):
                self._open(phase, k)
                self._views(phase, k + 1)
        for first, last, body in phase.pieces if phase.cuts else ():
            w.line(f"for {phase.axes[-1][0]} in range({first}, {last}):")
            w.depth += 1
            self._innermost(phase, body)
            w.depth -= 1
        if not phase.cuts:
            self._innermost(phase, phase.body)
        if phase.streams:
            self._stream(phase, around)
        for fold in [f for f in phase.folds if f.inner]:
            w.depth = around
            self._accumulate(fold, self._total(fold), fold.inner)
        w.depth = inside
        self._stores(phase)
        w.depth = mark

    def _stream(self, phase: Phase, around: int) -> None:
        """A block's results to where its views are, and, once all blocks are done, the promise that others see them."""
        self.w.depth = around
        for view in self._staged(phase):
            start = show(view.base, extents(self.segment, phase))
            self.w.line(f"stream({view.buffer}, {start}, {view.name}, {self._bound(phase, 1)})")
        self.w.depth -= 1
        self.w.line("streamed()")

    def _staged(self, phase: Phase) -> list[View]:
        """Where a loop that streams stores: rows of a block, each filled before it goes to memory."""
        stored = {stmt.buffer for stmt in phase.body if isinstance(stmt, Store)}
        return [view for view in phase.views if phase.streams and view.name in stored]

    def _innermost(self, phase: Phase, body: tuple[Stmt, ...]) -> None:
        self._statements(phase, body)
        for fold in phase.folds:
            self._accumulate(fold, fold.inner or self._total(fold), fold.value)

    def _start(self, phase: Phase) -> None:
        for fold in phase.folds:
            identity = identity_name(fold.op, fold.dtype)
            if fold.along != "carry" and fold.buffer:
                both = f"{fold.buffer}[col] = {fold.lost}[col]" if fold.lost else f"{fold.buffer}[col]"
                self._each_column(fold, f"{both} = {identity}")
            elif fold.along != "carry":
                both = f"{fold.result} = {fold.lost}" if fold.lost else fold.result
                self.w.line(f"{both} = {identity}", comment_of(self.kernel.graph, fold.node))

    def _open(self, phase: Phase, k: int) -> None:
        """One of the nested loops; a single column needs none."""
        name, size = phase.axes[k]
        if self.segment.tile and k == 0:
            return  # open already, around the rows
        if size != 1 or phase.cols != 1:
            self.w.line(f"for {name} in range({self._bound(phase, k)}):")
            self.w.depth += 1

    def _bound(self, phase: Phase, k: int) -> str:
        """Where loop ``k`` ends: the outermost of the columns at the tile's width, which the last tile may not fill."""
        name, size = phase.axes[k]
        if (name, size) == ("col", phase.cols) and phase.chunked and self.segment.chunks > 1:
            return "start, start + width"  # flat: the column is counted in the whole row
        if name in ("ser", "s0") and self.segment.slices > 1 and phase.serial > 1:
            return "ser_first, ser_last" if phase.sweep == 1 else f"ser_first // {phase.sweep}, ser_last // {phase.sweep}"
        if phase.block and phase.inner:
            split = phase.chunked and self.segment.chunks > 1
            columns = "width" if split else str(phase.cols)
            if name == "c0":
                return f"-(-width // {phase.block})" if split else str(size)
            return f"min({phase.block}, {columns} - c0 * {phase.block})" if split or phase.cols % phase.block else str(size)
        if not phase.chunked or self.segment.chunks == 1 or (name, size) != phase.inner[0]:
            return str(size)
        inner = math.prod(n for _, n in phase.inner[1:])
        return "width" if inner == 1 else f"width // {inner}"

    def _views(self, phase: Phase, depth: int) -> None:
        staged = self._staged(phase)
        for view in staged if depth == 0 else ():
            dtype = self.kernel.by_name[view.buffer].dtype
            self.w.line(f"{view.name} = np.empty({phase.block}, {numpy_name('uint16' if dtype == 'float16' else dtype)})")
        for view in phase.views:
            if view.depth == depth and view not in staged and (view.name, view.length) not in self.taken:
                if depth == 0:
                    self.taken.add((view.name, view.length))
                totals = extents(self.segment, phase)
                start = show(view.base, totals)
                stop = str(view.base.const + view.length) if not view.base.terms else f"{start} + {view.length}"
                if view.guard:
                    self.w.line(f"{view.name}_at = {start} if {guard_text(view.guard, totals)} else 0")
                    start, stop = f"{view.name}_at", f"{view.name}_at + {view.length}"
                self.w.line(f"{view.name} = {view.buffer}[{start}:{stop}]")

    def _statements(self, phase: Phase, stmts: tuple) -> None:
        totals = extents(self.segment, phase)
        for stmt in stmts:
            text = statement(stmt, "cpu", totals, self.sizes, self.w.exact)
            if isinstance(stmt, Store) and stmt.guard:
                self.w.line(f"if {guard_text(stmt.guard, totals)}:")
                text = "    " + text
            self.w.line(text, comment_of(self.kernel.graph, stmt.node))

    def _total(self, fold: Fold) -> str:
        return f"{fold.buffer}[{show(fold.cell)}]" if fold.buffer else fold.result

    def _accumulate(self, fold: Fold, target: str, value: str) -> None:
        text = combine(fold.op, fold.dtype, target, value, "cpu")
        self.w.line(accumulate(fold, target, text, value), comment_of(self.kernel.graph, fold.node))

    def _stores(self, phase: Phase) -> None:
        """What the folds came to: registers, then rows of columns."""
        for fold in phase.folds:
            if not fold.buffer:
                self._finish(phase, fold)
        rows = [f for f in phase.folds if f.along != "carry" and f.buffer and f.stores]
        for k in range(phase.outer, len(phase.axes) if rows else 0):
            if phase.axes[k] in phase.inner:
                self._open(phase, k)
        for fold in rows:
            self.w.line(f"{fold.result} = {fold.buffer}[{show(fold.cell)}]", comment_of(self.kernel.graph, fold.node))
            self._finish(phase, fold)

    def _finish(self, phase: Phase, fold: Fold) -> None:
        self.w.finish(fold, self.kernel, "cpu")
        self._statements(phase, fold.stores)


def _variables(segment: Segment) -> frozenset[str]:
    """Loop variables that some index of the segment names."""
    found: set[str] = set()
    for phase in segment.phases:
        for view in phase.views:
            found |= view.base.variables
        for stmt in (*phase.before, *phase.body, *(s for f in phase.folds for s in f.stores)):
            index = getattr(stmt, "index", None)
            if index is not None:
                found |= index.variables
            for condition in getattr(stmt, "guard", ()):
                found |= condition.index.variables
    return frozenset(found)
