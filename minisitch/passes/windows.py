"""Windows: an access that moves with the innermost loop goes through a window of its row.

In:  a kernel for a CPU. Out: the same kernel, with windows for accesses that are affine in the
innermost loop.

Numba guards an index that it cannot prove non-negative, and that stops vectorisation (measured).

Before:  for col in 0..1024:  v = x[row * 1024 + col]
After:   x_row = x[row * 1024 : +1024]
         for col in 0..1024:  v = x_row[col]
"""

from dataclasses import replace
from itertools import takewhile

from ..kernel import Kernel, ir
from ..kernel.nests import Innermost, parts, rewritten
from ..stitch.index import Digit, Guard, Index
from .registry import kernel_pass


@kernel_pass("windows", "cpu")
def windows(kernel: Kernel) -> Kernel:
    """Take windows of what the innermost loops access."""
    if "windows" in kernel.passes:
        return kernel
    sizes = {b.name: b.size for b in kernel.buffers}
    return replace(kernel, segments=tuple(_in_segment(s, sizes) for s in kernel.segments))


def _in_segment(segment: ir.Segment, sizes: dict[str, int]) -> ir.Segment:
    """The segment with windows, which its phases share.

    A window has the greatest length that a phase needs, and is taken once a task.
    """
    names: dict[tuple[str, Index, Guard], str] = {}
    found = [_Windows(phase, names, sizes) for phase in segment.phases]
    longest: dict[str, int] = {}
    for window in (w for each in found for w in each.windows.values()):
        longest[window.name] = max(longest.get(window.name, 0), window.length)
    taken: set[str] = set()
    phases = []
    for each in found:
        placed: dict[int, list[ir.Window]] = {}
        for key, window in each.windows.items():
            depth = each.depth(key)
            if depth or window.name not in taken:
                placed.setdefault(depth, []).append(replace(window, length=longest[window.name]))
        taken |= {w.name for w in placed.get(0, [])}
        phases.append(replace(each.phase, nest=_placed(each.nest, each.loops, placed)))
    return replace(segment, phases=tuple(phases))


class _Windows:
    """The windows of a phase.

    Accesses have them that are affine in its innermost loop, or in an unrolled loop and the one
    around it. ``names`` are the segment's. A guard may hold for a whole row or for none of it. Then
    a window is taken in any case, from the buffer's beginning if the guard fails. Every element is
    loaded, and the loop chooses between it and zero. A branch would keep the loop from being
    vectorised. If a loop is in pieces, and the window of the whole loop would reach out of the
    buffer, a piece has a window of its own.

    Before:  for col in 1..1000:  v = x[row * 1000 + col - 1]
    After:   x_0 = x[row * 1000 : +999]
             for col in 1..1000:  v = x_0[col - 1]
    """

    def __init__(self, phase: ir.Phase, names: dict[tuple[str, Index, Guard], str],
                 sizes: dict[str, int]) -> None:
        self.phase, self.names, self.sizes = phase, names, sizes
        self.windows: dict[tuple[str, Index, Guard], ir.Window] = {}
        innermost = parts(phase).innermost
        self.loops = innermost[0].loops if innermost else ()
        self.extent: dict[str, int] = {}
        for loop in (loop for i in innermost for loop in i.loops):
            self.extent[loop.var] = max(loop.last, self.extent.get(loop.var, 0))
        change = {id(s): self._window(s, i) for i in innermost for s in i.body}
        self.nest = rewritten(phase.nest, lambda stmt: (change.get(id(stmt), stmt),))

    def _window(self, stmt: ir.Stmt, innermost: Innermost) -> ir.Stmt:
        """An access through a window, if it can have one."""
        if not isinstance(stmt, ir.Load | ir.Store) or stmt.buffer not in self.sizes:
            return stmt
        if isinstance(stmt, ir.Load) and stmt.clamp:
            return stmt
        *_, around, last = (None, *innermost.loops)
        inner = [x for x in (around if last.by == "unrolled" else None, last) if x]
        changing = {x.var for x in inner}
        mine = [t for t in stmt.index.terms if changing & Index(0, (t,)).variables]
        base = Index(stmt.index.const, tuple(t for t in stmt.index.terms if t not in mine))
        whole = [(c, x) for c, a in mine for x in inner
                 if a == Digit(x.var, 1, self.extent[x.var]) and c > 0]
        if not mine or len(whole) != len(mine) or len(mine) > len(inner) or base.loaded:
            return stmt
        changes = changing.union(*(c.index.loaded for c in stmt.guard))
        moves = any(c.index.variables & changes for c in stmt.guard)
        if stmt.guard and (isinstance(stmt, ir.Store) or moves):
            return stmt  # part of the window may lie outside
        place, length = Index(0, tuple(mine)), 1 + sum(c * (x.last - 1) for c, x in whole)
        # With the piece before, so it lies in the buffer.
        shared = (stmt.buffer, base, stmt.guard) in self.windows
        inside = base.bounds[0] >= 0 and base.bounds[1] + length <= self.sizes[stmt.buffer]
        if last.first.const and not shared and not inside:
            skipped = whole[0][0] * last.first.const
            base, place, length = base + skipped, place + -skipped, length - skipped
        if length < 1:
            return stmt  # no column is in it
        key = stmt.buffer, base, stmt.guard
        if key not in self.windows:
            taken = sum(b == stmt.buffer for b, *_ in self.names) if key not in self.names else 0
            name = self.names.setdefault(key, f"{stmt.buffer}_row{taken or ''}")
            self.windows[key] = ir.Window(name, stmt.buffer, base, length, stmt.guard)
        elif self.windows[key].length < length:
            self.windows[key] = replace(self.windows[key], length=length)
        seen = replace(stmt, buffer=self.windows[key].name, index=place)
        return seen

    def depth(self, key: tuple[str, Index, Guard]) -> int:
        """How many loops stand around the place where a window can be taken."""
        _, base, guard = key
        names = base.variables.union(*(c.index.variables for c in guard))
        bound = [{x.var, *(s.name for s in x.body if isinstance(s, ir.Let))} for x in self.loops]
        return max((k + 1 for k, here in enumerate(bound) if here & names), default=0)


def _placed(nest: ir.Nest, loops: tuple[ir.Loop, ...], windows: dict[int, list[ir.Window]],
            depth: int = 0) -> ir.Nest:
    """The nest with each window at the top of the last of the loops that it moves with."""
    first = tuple(takewhile(lambda s: isinstance(s, ir.Let), nest))
    rest: list[ir.Stmt] = []
    for stmt in nest[len(first):]:
        if isinstance(stmt, ir.Loop) and depth + 1 < len(loops) and stmt.var == loops[depth].var:
            stmt = replace(stmt, body=_placed(stmt.body, loops, windows, depth + 1))
        rest.append(stmt)
    return (*first, *windows.get(depth, ()), *rest)
