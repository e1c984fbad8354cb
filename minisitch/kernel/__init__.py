"""The loop program: what a kernel does, before it is printed for a machine.

In:  what ``schedule`` puts together. Out: a ``Kernel``, frozen, which prints.

``ir`` has the statements that a kernel consists of, and ``show`` prints them. ``memory`` and
``statements`` build these parts, and ``launch`` chooses how many blocks there are. ``verify``
and ``turns`` refuse a wrong kernel, and ``text`` prints its statements as Python. ``nests`` is what passes and
models ask of a kernel besides.
"""

from dataclasses import dataclass

from ..device import Device
from ..errors.lazy import lazy
from ..errors.printed import Printed
from ..fuse import Decision, count
from ..graph import Graph
from ..ops import SHORT, itemsize
from ..stitch.plan import StitchPlan
from . import ir
from .show import show_segment


@dataclass(frozen=True, repr=False)
class Kernel(Printed):
    """One launch: segments, the buffers they touch, and the plan they came from."""

    name: str
    plan: StitchPlan
    device: Device
    buffers: tuple[ir.Buffer, ...]  # inputs, outputs, scratch, then shared
    constants: tuple[tuple[str, str, object], ...]  # name, dtype, value
    segments: tuple[ir.Segment, ...]
    grid: int
    block: int
    registers: int
    locations: tuple[tuple[ir.Location, ...], ...]  # where each sub-root of the plan lives
    decisions: tuple[Decision, ...]
    wanted_bytes: int = 0  # shared memory of one block, before any value was demoted
    passes: tuple[str, ...] = ()  # those that have rewritten it, in order

    @property
    def graph(self) -> Graph:
        return self.plan.graph

    @lazy
    def parameters(self) -> tuple[ir.Buffer, ...]:
        """Global buffers in calling order: inputs, outputs, scratch, each slot once."""
        return tuple(b for b in self.buffers if b.scope not in ("shared", "register") and self.owners[b.name] == b.name)

    @lazy
    def owners(self) -> dict[str, str]:
        """For each buffer the one whose bytes it has: the first, and largest, of its slot."""
        first: dict[str, str] = {}
        return {b.name: first.setdefault(b.slot, b.name) for b in self.buffers}

    @lazy
    def by_name(self) -> dict[str, ir.Buffer]:
        return {b.name: b for b in self.buffers}

    @lazy
    def aligned(self) -> frozenset[str]:
        """The owners of what vector moves access. Their bytes begin at a multiple of 16."""
        return frozenset(self.owners[move.buffer] for s in self.segments for move in ir.each(s.nest, ir.VectorMove))

    @property
    def grid_barriers(self) -> int:
        return sum(s.barrier == "grid" for s in self.segments)

    @property
    def block_barriers(self) -> int:
        """Block barriers one block passes for one task of each segment; a core has none."""
        return sum(phase.block_barriers for segment in self.segments for phase in segment.phases)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one block."""
        slots = (b for b in self.buffers if b.scope == "shared" and self.owners[b.name] == b.name)
        return sum(b.size * itemsize(b.dtype) for b in slots)

    @property
    def placements(self) -> tuple[tuple[int, str, str, str], ...]:
        """(node, scheme, where, why) of each sub-root."""
        found = []
        for sub_root, locations in zip(self.plan.sub_roots, self.locations, strict=True):
            where = ", ".join(f"{self.by_name.get(at.buffer, '')}{at.words}" for at in locations)
            scheme, why = self.plan.scheme(sub_root)
            found.append((sub_root.node, scheme, where, why))
        return tuple(found)

    def __str__(self) -> str:
        def typed(scope: str) -> str:
            found = (b for b in self.parameters if b.scope == scope)
            return ", ".join(f"{b.name}: {SHORT[b.dtype]}[{b.size}]" for b in found)

        if self.device.kind == "gpu":
            threads, registers = count(self.block, "thread"), count(self.registers, "register")
            launch = f"{count(self.grid, 'block')} x {threads}, at most {registers}, {self.shared_bytes} B shared"
        else:
            ranges, cores = count(self.grid, "range"), count(self.device.sms, "core")
            launch = f"{ranges} of tasks, {cores}, {self.shared_bytes} B of scratch rows"
        lines = [f"kernel {self.name}({typed('input')}) -> {typed('output')}"]
        lines += [f"  map     {s.thread_map.rule}: {s.thread_map.why}" for s in self.segments]
        lines.append(f"  launch  {launch}")
        for node, scheme, where, why in self.placements:
            lines.append(f"  place   %{node} {self.graph[node].op:<8} {where}  {scheme}{': ' + why if why else ''}")
        lines += [f"  const   {name}: {SHORT[dtype]} = {value}" for name, dtype, value in self.constants]
        for number, segment in enumerate(self.segments):
            lines += show_segment(number, segment)
        return "\n".join(lines)
