"""A core keeps a row of values in the output that it writes last, not in a row of its own.

In:  a kernel for a CPU. Out: the same kernel, without the kept rows for which an output has room.

Before:  phase 1: k4[col] = v4
         phase 2: v4 = k4[col]; y0[row * 1024 + col] = v4 / r5
After:   phase 1: y0[row * 1024 + col] = v4
         phase 2: v4 = y0[row * 1024 + col]; y0[row * 1024 + col] = v4 / r5

The output has the same dtype, and its elements lie in the same order. Each element of it is written
in the loop that reads the row last, or later. A row stays if it is read at another index than
it was written. After the pass ``windows`` it does nothing.
"""

from dataclasses import replace

from ..fuse import Decision
from ..kernel import Kernel, ir
from ..kernel.nests import Access, accesses, with_accesses
from ..stitch.index import Index
from .registry import kernel_pass


@kernel_pass("keep_in_output", "cpu")
def keep_in_output(kernel: Kernel) -> Kernel:
    """Let outputs hold kept rows, where they can."""
    if any(segment.windows for segment in kernel.segments):
        return kernel
    segments, hosts = list(kernel.segments), dict[str, str]()
    for number, segment in enumerate(segments):
        for row in [b for b in kernel.buffers if b.role == "kept"]:
            if place := _host(kernel, segment, row, set(hosts.values())):
                host, index = place
                hosts[row.name] = host
                moved = tuple(_moved(p, row.name, host, index) for p in segment.phases)
                segment = replace(segment, phases=moved)
        segments[number] = segment
    if not hosts:
        return kernel
    words, decisions = dict[str, ir.Location](), []
    for name, host in hosts.items():
        words[name] = ir.Location(words=f"the row of {host}, which is written last")
        decisions.append(Decision((kernel.by_name[name].node,), "place", "output-row",
                                  f"kept in {host}, which the same loop overwrites last"))
    locations = tuple(tuple(words.get(at.buffer, at) for at in each) for each in kernel.locations)
    buffers = tuple(b for b in kernel.buffers if b.name not in hosts)
    return replace(kernel, segments=tuple(segments), buffers=buffers, locations=locations,
                   decisions=(*kernel.decisions, *decisions))


def _host(kernel: Kernel, segment: ir.Segment, row: ir.Buffer,
          taken: set[str]) -> tuple[str, Index] | None:
    """The output that can hold a kept row, and where in it an element lies."""
    def accesses_to(name: str) -> list[tuple[int, Access]]:
        return [(k, a) for k, phase in enumerate(segment.phases)
                for a in accesses(segment, phase.nest) if a.buffer == name]

    uses, value = accesses_to(row.name), kernel.plan.final[row.node]
    places = {(a.index, segment.phases[k].cols) for k, a in uses}
    if len(places) != 1 or value.role != "map":
        return None
    last = max(k for k, _ in uses)
    free = (b for b in kernel.buffers if b.scope == "output" and b.name not in taken)
    for output in (b for b in free if b.dtype == row.dtype):
        other, found = kernel.plan.final[output.node], accesses_to(output.name)
        alike = other.role == "map" and (other.domain, other.result_at, other.extents) == (
            value.domain, value.result_at, value.extents)
        if alike and len(found) == 1:
            (k, only), = found
            if only.stores and k >= last and not only.guard:
                return output.name, only.index
    return None


def _moved(phase: ir.Phase, row: str, host: str, index: Index) -> ir.Phase:
    return with_accesses(
        phase, lambda s: replace(s, buffer=host, index=index) if s.buffer == row else s)
