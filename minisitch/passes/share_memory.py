"""Values that are never live together take turns in the same bytes.

In:  a kernel. Out: the same kernel, its rows of shared memory and its scratch arrays in fewer
slots.

FusionStitching 2018, section 5.2, in its executable form. A buffer takes over another's bytes if a
barrier separates the old value's last read from the new value's first write: a grid barrier for
scratch, a block barrier for shared memory. It also may if the thread that reads an old element last
overwrites it in place.

Before:  k4 4096 B, k9 4096 B; k4 is read for the last time in phase 2, k9 is written in phase 4
After:   k4 and k9 have one slot of 4096 B
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ..kernel import Kernel, ir
from ..kernel.nests import Access, accesses
from ..stitch.mapping import WARP
from .registry import kernel_pass


@dataclass(frozen=True)
class _Loop:
    """A phase, and the number of barriers before it at which all users of the buffers wait."""

    segment: int
    phase: ir.Phase
    clock: int


@kernel_pass("share_memory")
def share_memory(kernel: Kernel) -> Kernel:
    """Give one slot to buffers that are never live together."""
    shared = {b.name: b for scope in ("scratch", "shared") for b in _shared(kernel, scope)}
    buffers = tuple(shared.get(b.name, b) for b in kernel.buffers)
    if buffers == kernel.buffers:
        return kernel
    rows = [b.slot for b in buffers if b.scope == "shared"]
    segments = kernel.segments
    # The next task may write where this one still reads.
    if len(rows) != len(set(rows)) and kernel.device.kind == "gpu":
        segments = tuple(replace(s, task_barrier=_between_tasks(s)) for s in segments)
    return replace(kernel, buffers=buffers, segments=segments)


def _between_tasks(segment: ir.Segment) -> str:
    threads = segment.thread_map.threads_per_row
    return "none" if threads == 1 else "warp" if threads <= WARP else "block"


def _shared(kernel: Kernel, scope: str) -> Iterator[ir.Buffer]:
    """The buffers of a scope, each with the slot of those that it takes turns with."""
    turns = (b for b in kernel.buffers if scope == "scratch" or b.role in ("kept", "carry"))
    buffers = [b for b in turns if b.scope == scope]
    owners = share(buffers, _Lives(kernel, scope).take_turns) if len(buffers) > 1 else range(len(buffers))
    for b, owner in zip(buffers, owners, strict=True):
        yield replace(b, slot=buffers[owner].name)


def share(buffers: Sequence[ir.Buffer],
          take_turns: Callable[[ir.Buffer, ir.Buffer], bool]) -> list[int]:
    """For each buffer the position of the one whose bytes it has: an earlier one, or its own.

    The owner has its dtype, and is at least as large. ``take_turns(old, new)`` says whether a
    buffer may have the bytes that ``old`` held before. Of several owners the smallest is taken.
    """
    owners: list[int] = []
    held: dict[int, ir.Buffer] = {}  # owner -> the buffer that holds its bytes at present
    for i, b in enumerate(buffers):
        fits = [owner for owner, old in held.items() if buffers[owner].dtype == b.dtype
                and buffers[owner].size >= b.size > 0 and take_turns(old, b)]
        owner = min(fits, key=lambda owner: buffers[owner].size, default=i)
        held[owner] = b
        owners.append(owner)
    return owners


class _Lives:
    """From when to when each buffer of a scope holds a value that is wanted."""

    def __init__(self, kernel: Kernel, scope: str) -> None:
        self.loops = list(_loops(kernel, scope))
        self.uses: dict[str, list[tuple[int, Access]]] = {}  # by buffer: in which loop, and how
        for number, loop in enumerate(self.loops):
            segment = kernel.segments[loop.segment]
            # A block's sums live as long as its tasks.
            sums = (Access(f.buffer, f.cell, True) for f in segment.carries)
            closing = accesses(segment, segment.closing)
            for access in chain(accesses(segment, loop.phase.nest), sums, closing):
                self.uses.setdefault(access.buffer, []).append((number, access))

    def take_turns(self, old: ir.Buffer, new: ir.Buffer) -> bool:
        """Whether the new value may have the bytes of the old one."""
        if not self.uses.get(old.name) or not self.uses.get(new.name):
            return False
        last_use = max(self.loops[k].clock for k, _ in self.uses[old.name])
        first_write = min(self.loops[k].clock for k, a in self.uses[new.name] if a.stores)
        return last_use < first_write or self._in_place(old, new)

    def _in_place(self, old: ir.Buffer, new: ir.Buffer) -> bool:
        """Whether each thread overwrites only elements that no other thread reads late.

        A read of ``old`` is late if no barrier separates it from the loop that writes ``new``. It
        must be of the element that its own thread overwrites, in that loop or before it. Both loops
        must be of one segment, since another segment deals elements out to threads in another way.
        """
        if {old.role, new.role} != {"kept"} or old.size != new.size:
            return False
        stores = [(k, a) for k, a in self.uses[new.name] if a.stores]
        last, written = max(stores, key=lambda use: use[0])
        first, made = next((k, a) for k, a in self.uses[old.name] if a.stores)
        writer, maker = self.loops[last], self.loops[first].phase
        late = [(k, a) for k, a in self.uses[old.name]
                if not a.stores and self.loops[k].clock >= writer.clock]
        if not late or written.after_fold or _by_warps(maker) or maker.cols != writer.phase.cols:
            return False
        for k, read in late:
            reader = self.loops[k]
            here = k <= last and reader.segment == writer.segment and read.index == made.index
            if not here or reader.phase.cols != maker.cols or _by_warps(reader.phase):
                return False
        return True


def _by_warps(phase: ir.Phase) -> bool:
    """Whether a column is a warp's, and not one thread's."""
    return any(loop.by == "warps" for loop in ir.each(phase.nest, ir.Loop))


def _loops(kernel: Kernel, scope: str) -> Iterator[_Loop]:
    """Every phase with its place in time.

    For scratch only grid barriers count, for shared memory those of the block, too. A core takes
    its loops in turn. A block that has no task in a segment passes none of its barriers. If it
    reads in one segment and writes in another it has tasks in both, but perhaps not in those
    between: their barriers do not count.
    """
    level = barriers = 0
    for number, segment in enumerate(kernel.segments):
        counts = _is_outermost(kernel.segments, number)
        for phase in segment.phases:
            yield _Loop(number, phase, level if scope == "scratch" else barriers)
            if kernel.device.kind == "cpu":
                barriers += 1
            elif counts:
                barriers += phase.block_barriers
        if segment.barrier == "grid":
            level, barriers = level + 1, barriers + 1


def _is_outermost(segments: Sequence[ir.Segment], number: int) -> bool:
    """Whether a segment is the first or the last one between two grid barriers."""
    first = number == 0 or segments[number - 1].barrier == "grid"
    return first or number + 1 == len(segments) or segments[number].barrier == "grid"
