"""One kernel while it grows: which schedules of its roots are still satisfiable (FusionStitching 2018, sections 3 and 4).

In:  operations to add, one cluster at a time. Out: the schedules that are left, or the rule that refused the cluster.

A schedule cuts all roots into the same number of blocks. It is satisfiable if every operation that must be kept
(a reduce, an output) is cut so that a block reads only what it made itself. Schedules are propagated as the kernel
grows, so asking for one more operation costs one step from its readers, not a walk from the roots.

Before:  %4 = div %3 %2, cut row 512; asked: %2 = sum %1     After:  %2 is cut row 512: fused, 512 blocks still do
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...device import Device
from ...fuse import MOST_ARGUMENTS, count, is_heavy
from ...groups import MOST_POSITIONS
from ...triples import Cut, cut_of, space, triple_for
from .reads import Read, Reads, is_owned

SHARED_LIMIT = 20 * 1024  # bytes of a block (the paper's evaluation)
# Fewer blocks than the device has SMs leave some idle; they are taken where a block has no more than this to do (ours).
SERIAL_ELEMENTS = 16384
# Intra-layer packing is for operations of less than 10 us; a pack moves no more than the device does in this time.
TINY_US = 10.0


@dataclass
class Schedule:
    """One way to cut the roots, and what that asks of every operation.

    ``threads``: thread composition, one loop in which everything is inlined; its cut is a block an element.
    ``shared``: bytes a block needs for its reduces, not shared.
    """

    cut: Cut
    threads: bool = False
    asked: dict[int, Cut] = field(default_factory=dict)
    shared: int = 0


@dataclass(frozen=True)
class Limits:
    """What a kernel may take of a device, by the default of the paper or ours.

    ``products``: batched products, which are cut at their batch dimensions alone (Table 1): a block reads whole matrices.
    """

    device: Device
    shared: int = SHARED_LIMIT
    serial: int = SERIAL_ELEMENTS
    arguments: int = MOST_ARGUMENTS
    products: frozenset[int] = frozenset()
    tiny_us: float = TINY_US

    @property
    def footprint(self) -> float:
        """The most bytes that an intra-layer pack reads and writes."""
        return self.device.bandwidth * self.tiny_us * 1e-6


class Fusion:
    """A kernel's operations and its satisfiable schedules."""

    def __init__(self, reads: Reads, limits: Limits, members: Sequence[int]) -> None:
        self.reads, self.graph, self.limits = reads, reads.graph, limits
        self.members: set[int] = set()
        self.outputs: set[int] = set()
        self.arguments: set[int] = set()
        inside = set(members)
        self.roots = [m for m in sorted(members, reverse=True) if not inside.intersection(reads.readers[m])]
        shapes = [self.graph[r].type.shape for r in self.roots]
        self.schedules = [Schedule(cut) for cut in common_cuts(shapes)]
        sizes = {math.prod(shape) for shape in shapes}
        if len(sizes) == 1 and (len(shapes) == 1 or all(self.graph[r].kind != "reduce" for r in self.roots)):
            self.schedules.append(Schedule(Cut("row", max(1, *sizes)), threads=True))
        self.refused = self.add(members)

    def add(self, members: Sequence[int]) -> tuple[str, str]:
        """Take operations in, whole or not at all. Returns the rule that refused them and why, or two empty strings."""
        fresh = set(members)
        inside = {r for m in fresh for r in self.reads.readers[m] if r in fresh or r in self.members}  # of their readers
        outputs = {m for m in fresh if m in self.reads.stored or not inside.issuperset(self.reads.readers[m])}
        arguments = (self.arguments | set().union(*map(self.reads.arguments, fresh))) - fresh - self.members
        passed = len(arguments) + len(self.outputs) + len(outputs)
        if passed > self.limits.arguments:
            return "argument-limit", f"the kernel would have {passed} arguments; at most {self.limits.arguments}"
        left: list[tuple[Schedule, dict[int, Cut], int]] = []
        reasons: dict[str, str] = {}
        order = sorted(fresh, reverse=True)
        for schedule in sorted(self.schedules, key=lambda s: s.threads):  # of several, a block schedule's reason says more
            asked, shared, refusal = self._propagated(schedule, order, inside, outputs)
            blocks = count(schedule.cut.blocks, f"{schedule.cut.kind} block")
            if refusal:
                reasons.setdefault("no-satisfiable-schedule", f"cut in {blocks}, {refusal}")
            elif shared > self.limits.shared:
                reasons["shared-memory-limit"] = f"{shared} bytes of reduces in each of {blocks}; the limit is {self.limits.shared}"
            else:
                left.append((schedule, asked, shared))
        if not left:
            return max(reasons.items(), default=("no-satisfiable-schedule", "its roots have no block count in common"))
        for schedule, asked, shared in left:
            schedule.asked.update(asked)
            schedule.shared = shared
        self.schedules = [schedule for schedule, _, _ in left]
        self.members |= fresh
        self.outputs |= outputs
        self.arguments = arguments
        return "", ""

    def _propagated(self, schedule: Schedule, order: Sequence[int], inside: set[int],
                    outputs: set[int]) -> tuple[dict[int, Cut], int, str]:
        """What a schedule asks of new operations, readers first, the bytes of reduces then, and why it is not satisfiable."""
        asked: dict[int, Cut] = {}
        shared = schedule.shared
        for member in order:
            cut = self._asked(schedule, asked, inside, member)
            if refusal := self._refusal(schedule, member, cut, member in outputs):
                return asked, shared, refusal
            asked[member] = cut
            if self.graph[member].kind == "reduce" and member not in self.roots:
                shared += self.graph[member].type.nbytes // cut.blocks
        return asked, shared, ""

    def _asked(self, schedule: Schedule, fresh: dict[int, Cut], inside: set[int], member: int) -> Cut:
        """The cut that readers inside ask of a value; a root's is the schedule's own."""
        found: dict[Cut, int] = {}
        for reader in self.reads.readers[member]:
            if reader not in inside:
                continue
            cut = fresh.get(reader) or schedule.asked[reader]
            for read in self.reads.of[reader]:
                if read.source == member:
                    cut_here = self._through(schedule, read, cut)
                    found[cut_here] = found.get(cut_here, 0) + (0 if is_owned(cut_here) else cut_here.blocks)
        if not found:
            return schedule.cut
        if len(found) == 1 and is_owned(next(iter(found))):
            return next(iter(found))
        kind = "stretched" if any(cut.kind == "stretched" for cut in found) else "scattered"
        return Cut(kind, sum(max(1, places) for places in found.values()))

    def _through(self, schedule: Schedule, read: Read, cut: Cut) -> Cut:
        reader = read.way[0][0]
        if schedule.threads and reader.kind == "reduce":  # its loop runs over the operand's elements
            return self.reads.through(read.way[1:], Cut("row", max(1, self.graph[reader.args[0]].type.size)))
        return self.reads.asked(read, cut)

    def _refusal(self, schedule: Schedule, member: int, cut: Cut, is_output: bool) -> str:
        """Why an operation cannot be cut so, or nothing."""
        node = self.graph[member]
        if schedule.threads and node.kind == "reduce" and member not in self.roots:
            return f"a thread cannot read the {node.op} that other threads fold"
        if not node.type.size and not schedule.threads:
            return f"%{member} {node.type} is empty"
        if not is_owned(cut):
            if node.kind == "reduce" or is_output:
                return f"%{member} {node.op} would be read by blocks that do not own it"
            most = 1 if is_heavy(self.graph, node) else MOST_POSITIONS
            if cut.blocks > most or (most == 1 and cut.kind == "stretched"):
                return f"%{member} {node.op} would be evaluated again at {cut.blocks} places"
            return ""
        if triple_for(cut, node.type.shape) is None or (schedule.threads and cut.blocks != max(1, node.type.size)):
            return f"%{member} {node.type} has no {cut.blocks} blocks"
        if member in self.limits.products and math.prod(node.type.shape[:-2]) % cut.blocks:
            return f"{cut.blocks} blocks cut the matrices of product %{member}"
        work = max([node.type.size, *(self.graph[a].type.size for a in node.args)])
        if not schedule.threads and cut.blocks < self.limits.device.sms and work > self.limits.serial * cut.blocks:
            return (f"{work // cut.blocks} elements a block of %{member} {node.op} "
                    f"keep {cut.blocks} of {self.limits.device.sms} SMs busy")
        return ""


def common_cuts(shapes: Sequence[Sequence[int]]) -> list[Cut]:
    """Cuts that every root can have, most blocks first: the paper's intersection of block counts."""
    first, *others = shapes
    cuts = dict.fromkeys(cut_of(t, first) for t in space(first))
    return sorted((c for c in cuts if all(triple_for(c, shape) for shape in others)), reverse=True)
