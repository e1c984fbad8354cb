"""A growing kernel and the schedules that still satisfy it (FusionStitching 2018, sections 3, 4).

In:  operations to add, one cluster at a time. Out: the remaining schedules, or the rule that
refused.

A schedule cuts all roots into the same number of blocks. It is satisfiable if every operation that
is kept (a reduce, an output) is cut so that each block reads only its own part. Schedules are
propagated from readers to operands as the kernel grows. So one more operation costs one step, not a
walk from the roots.

Before:  %4 = div %3 %2, cut row 512; asked: %2 = sum %1
After:   %2 is cut row 512: fused, 512 blocks are still possible
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...device import Device
from ...fuse import MOST_ARGUMENTS, count, is_heavy
from ...stitch.blocks import block_cuts_of
from ...stitch.dominants import MOST_CHAINS, MOST_POSITIONS
from .block_cuts import Cut, block_cut_for, cut_of
from .reads import OperandRead, OperandReads, Scattered

SHARED_LIMIT = 20 * 1024  # bytes of a block (the paper's evaluation)
# Fewer blocks than SMs are allowed if no block has more elements than this (ours).
SERIAL_ELEMENTS = 16384
WINDOWS = ("slice", "update", "concatenate", "gather", "scatter")
# Intra-layer packing joins operations below 10 us: a pack moves no more bytes than fit this time.
TINY_US = 10.0


@dataclass
class Schedule:
    """One way to cut the roots, and the cut that it implies for every operation.

    With ``threads`` it is thread composition: one loop with everything inlined, a block an element.
    """

    cut: Cut
    threads: bool = False
    asked: dict[int, Cut | Scattered] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What a kernel may use of a device. The defaults are the paper's or ours.

    ``products`` are batched products. They are cut only along their batch (Table 1), since a block
    reads whole matrices.
    """

    device: Device
    shared: int = SHARED_LIMIT
    serial: int = SERIAL_ELEMENTS
    products: frozenset[int] = frozenset()
    tiny_us: float = TINY_US


class Fusion:
    """A kernel's operations and its satisfiable schedules."""

    def __init__(self, reads: OperandReads, limits: Limits, members: Sequence[int]) -> None:
        self.reads, self.graph, self.limits = reads, reads.graph, limits
        self.members: set[int] = set()
        self.outputs: set[int] = set()
        self.arguments: set[int] = set()
        self.places: dict[int, int] = {}  # operation -> places at which inside readers want it
        self.reduced = 0  # bytes of reduces that are read inside
        self.roots = _roots(reads, members)
        shapes = [self.graph[r].type.shape for r in self.roots]
        self.schedules = [Schedule(cut) for cut in common_cuts(shapes)]
        sizes = {math.prod(shape) for shape in shapes}
        reduces = [r for r in self.roots if self.graph[r].kind == "reduce"]
        if len(sizes) == 1 and (len(shapes) == 1 or not reduces):
            self.schedules.append(Schedule(Cut("row", max(1, *sizes)), threads=True))
        self.refused = self.add(members)
        if self.refused[0]:  # no further operation can be added
            self.schedules = []

    def is_of(self, members: Sequence[int]) -> bool:
        """Whether a new fusion of these operations would have the same members and roots."""
        return self.members == set(members) and self.roots == _roots(self.reads, members)

    def add(self, members: Sequence[int]) -> tuple[str, str]:
        """Add operations, all or none. Returns the refusing rule and a reason, or empty strings."""
        fresh = set(members)
        # The readers of the new operations that are inside.
        readers = self.reads.readers
        inside = {r for m in fresh for r in readers[m] if r in fresh or r in self.members}
        outputs = {m for m in fresh if m in self.reads.stored or not inside.issuperset(readers[m])}
        arguments = self.arguments.union(*map(self.reads.arguments, fresh)) - fresh - self.members
        passed = len(arguments) + len(self.outputs) + len(outputs)
        if passed > MOST_ARGUMENTS:
            why = f"the kernel would have {passed} arguments; at most {MOST_ARGUMENTS}"
            return "argument-limit", why
        reduces = [m for m in fresh.difference(self.roots) if self.graph[m].kind == "reduce"]
        reduced = self.reduced + sum(self.graph[m].type.nbytes for m in reduces)
        order = sorted(fresh, reverse=True)
        for m in order:
            self.places[m] = self._places(m, inside)
            if self.places[m] > MOST_CHAINS:
                return "too-many-places", (f"%{m} {self.graph[m].op} would be wanted at "
                                           f"{self.places[m]} places; at most {MOST_CHAINS}")
        left: list[Schedule] = []
        reasons: dict[str, str] = {}
        # Block schedules come first, because their reasons say more.
        for schedule in sorted(self.schedules, key=lambda s: s.threads):
            blocks = count(schedule.cut.blocks, f"{schedule.cut.kind} block")
            shared, limit = reduced // schedule.cut.blocks, self.limits.shared
            if refusal := self._propagate(schedule, order, inside, outputs):
                reasons.setdefault("no-satisfiable-schedule", f"cut in {blocks}, {refusal}")
            elif shared > limit:
                why = f"{shared} bytes of reduces in each of {blocks}; the limit is {limit}"
                reasons.setdefault("shared-memory-limit", why)
            else:
                left.append(schedule)
        if not left:  # report the rule that came nearest: memory, then the most blocks
            rule = "shared-memory-limit"
            if rule not in reasons:
                rule = "no-satisfiable-schedule"
            return rule, reasons.get(rule, "its roots have no block count in common")
        self.schedules = left
        self.members |= fresh
        self.outputs |= outputs
        self.arguments, self.reduced = arguments, reduced
        return "", ""

    def _places(self, member: int, inside: set[int]) -> int:
        """At how many places a value is wanted: each window adds one for each of its readers.

        A reduce is kept, so it is evaluated once.
        """
        same, more = 1, 0
        if self.graph[member].kind == "reduce":
            return 1
        for reader in self.reads.readers[member]:
            for read in self.reads.of[reader] if reader in inside else ():
                if read.source == member and any(node.op in WINDOWS for node, _ in read.way):
                    more += self.places[reader]
                elif read.source == member:
                    same = max(same, self.places[reader])
        return same + more

    def _propagate(self, schedule: Schedule, order: Sequence[int], inside: set[int],
                   outputs: set[int]) -> str:
        """Record what a schedule asks of new operations, readers first. Returns a refusal or "".

        If every schedule refuses, the records are overwritten at the next attempt.
        """
        for member in order:
            asked = schedule.asked[member] = self._asked(schedule, inside, member)
            if refusal := self._refusal(schedule, member, asked, member in outputs):
                return refusal
        return ""

    def _asked(self, schedule: Schedule, inside: set[int], member: int) -> Cut | Scattered:
        """The cut that the readers inside ask of a value. A root is cut as the schedule says."""
        found = [self._through(schedule, read, schedule.asked[reader])
                 for reader in self.reads.readers[member] if reader in inside
                 for read in self.reads.of[reader] if read.source == member]
        if len(found) == 1 and isinstance(found[0], Cut):
            return found[0]
        cuts = {cut for cut in found if isinstance(cut, Cut)}
        scattered = [asked for asked in found if isinstance(asked, Scattered)]
        if scattered or len(cuts) > 1:
            places = len(cuts) + sum(s.places for s in scattered)
            return Scattered(places, any(s.stretched for s in scattered))
        return cuts.pop() if cuts else schedule.cut

    def _through(self, schedule: Schedule, read: OperandRead,
                 asked: Cut | Scattered) -> Cut | Scattered:
        reader = read.way[0][0]
        if schedule.threads and reader.kind == "reduce":  # its loop runs over its operand
            operand = self.graph[reader.args[0]].type
            return self.reads.asked(read.way[1:], Cut("row", max(1, operand.size)))
        return self.reads.asked(read.way, asked)

    def _refusal(self, schedule: Schedule, member: int, cut: Cut | Scattered,
                 is_output: bool) -> str:
        """Why an operation cannot be cut like this, or an empty string."""
        node = self.graph[member]
        if schedule.threads and node.kind == "reduce" and member not in self.roots:
            return f"a thread cannot read the {node.op} that other threads fold"
        if not node.type.size and not schedule.threads:
            return f"%{member} {node.type} is empty"
        if isinstance(cut, Scattered):
            if node.kind == "reduce" or is_output:
                return f"%{member} {node.op} would be read by blocks that do not own it"
            most = 1 if is_heavy(self.graph, node) else MOST_POSITIONS
            if cut.places > most or (most == 1 and cut.stretched):
                places = count(cut.places, "place")
                return f"%{member} {node.op} would be evaluated again at {places}"
            return ""
        threaded_apart = schedule.threads and cut.blocks != max(1, node.type.size)
        if block_cut_for(cut, node.type.shape) is None or threaded_apart:
            return f"%{member} {node.type} has no {cut.blocks} blocks"
        if member in self.limits.products and math.prod(node.type.shape[:-2]) % cut.blocks:
            return f"{cut.blocks} blocks cut the matrices of product %{member}"
        idle = not schedule.threads and cut.blocks < self.limits.device.sms
        work = max(self.graph[a].type.size for a in (member, *node.args))
        if idle and work > self.limits.serial * cut.blocks:
            return (f"{work // cut.blocks} elements a block of %{member} {node.op} "
                    f"keep {cut.blocks} of {self.limits.device.sms} SMs busy")
        return ""


def _roots(reads: OperandReads, members: Sequence[int]) -> list[int]:
    inside = set(members)
    return [m for m in sorted(members, reverse=True) if not inside.intersection(reads.readers[m])]


def common_cuts(shapes: Sequence[Sequence[int]]) -> list[Cut]:
    """Cuts that every root can have, most blocks first: the paper's intersection."""
    first, *others = shapes
    cuts = dict.fromkeys(cut_of(t, first) for t in block_cuts_of(first))
    shared = (c for c in cuts if all(block_cut_for(c, shape) for shape in others))
    return sorted(shared, reverse=True)
