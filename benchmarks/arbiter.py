"""Which SM each block of a pipeline lands on: a grid scheduler with one arbiter, as today, or with two, as Kitsune proposes.

In:  the stages of a pipeline, each with a kind, a number of blocks and what a block occupies; a ``Device``.
Out: a ``Residency``: the blocks that every SM holds.

An arbiter takes blocks in order and gives each to the first SM with room, from where it stopped the last time. With two, one
for SIMT and one for tensor blocks, each goes round by itself, so blocks of different kinds meet on an SM and use both of its
units. The paper's figure, with two blocks to an SM:

Before:  64 tensor, 44 simt, 44 tensor blocks on 108 SMs
After:   one arbiter    0 SMs hold both kinds, 44 hold two tensor blocks, which share its tensor cores
         two           44 SMs hold both kinds,  0 hold two of one kind
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minisitch.device import Device
from minisitch.errors import PipelineError
from minisitch.fuse import count
from minisitch.strategies.kitsune.models.balance import KINDS, Kind


@dataclass(frozen=True)
class Request:
    """One stage of a spatial pipeline: how many blocks it wants resident, and what each occupies on its SM."""

    name: str
    kind: Kind
    blocks: int
    threads: int = 1024
    shared: int = 0  # bytes
    registers: int = 32  # a thread's


@dataclass(frozen=True)
class Residency:
    """What each SM holds: the stages of its blocks, in the order in which they came. ``waiting``: blocks that found no room."""

    requests: tuple[Request, ...]
    sms: tuple[tuple[str, ...], ...]
    waiting: Mapping[str, int]

    @property
    def paired(self) -> int:
        """SMs that hold blocks of both kinds."""
        return sum(len(kinds) == 2 for kinds in self._kinds())

    @property
    def doubled(self) -> int:
        """SMs where two blocks or more share the unit of their kind."""
        return sum(max(kinds.values(), default=0) > 1 for kinds in self._kinds())

    @property
    def shares(self) -> dict[str, float]:
        """For each stage the SMs' worth of its unit that its blocks have, blocks of one kind sharing an SM's evenly."""
        found = {request.name: 0.0 for request in self.requests}
        kind = {request.name: request.kind for request in self.requests}
        for held, kinds in zip(self.sms, self._kinds(), strict=True):
            for name in held:
                found[name] += 1 / kinds[kind[name]]
        return found

    def _kinds(self) -> list[Counter[Kind]]:
        kind = {request.name: request.kind for request in self.requests}
        return [Counter(kind[name] for name in held) for held in self.sms]

    def __str__(self) -> str:
        waiting = ", ".join(f"{n} of {name}" for name, n in self.waiting.items() if n) or "none"
        return (f"{count(sum(map(len, self.sms)), 'block')} on {count(len(self.sms), 'SM')}: {self.paired} hold both kinds, "
                f"{self.doubled} two or more of one kind, {sum(not held for held in self.sms)} nothing; waiting: {waiting}")


def dispatch(requests: Sequence[Request], device: Device, arbiters: int = 2) -> Residency:
    """Place blocks stage by stage until none fits; ``arbiters`` 1 is a GPU of today, 2 the paper's proposal."""
    if arbiters not in (1, 2):
        raise PipelineError(f"a grid scheduler has one arbiter or two, one for each kind; got {arbiters}")
    if len({request.name for request in requests}) < len(requests):
        raise PipelineError("two stages of a launch have the same name: rename one")
    room = [_Room(device) for _ in range(device.sms)]
    next_sm = [0] * arbiters
    waiting = dict.fromkeys((request.name for request in requests), 0)
    for request in requests:
        mine = KINDS.index(request.kind) % arbiters
        for block in range(request.blocks):
            turn = ((next_sm[mine] + i) % device.sms for i in range(device.sms))
            sm = next((sm for sm in turn if room[sm].fits(request)), None)
            if sm is None:  # nor will the next block of this stage
                waiting[request.name] = request.blocks - block
                break
            room[sm].take(request)
            next_sm[mine] = sm + 1
    return Residency(tuple(requests), tuple(tuple(r.held) for r in room), waiting)


def launch(requests: Sequence[Request], device: Device, arbiters: int = 2) -> Residency:
    """A spatial pipeline: every block of every stage resident at once, as queues need it. Raises PipelineError otherwise."""
    found = dispatch(requests, device, arbiters)
    late = {name: n for name, n in found.waiting.items() if n}
    if late:
        resident = ", ".join(f"{r.blocks - found.waiting[r.name]} of {r.blocks} of {r.name}" for r in requests)
        name = next(iter(late))
        raise PipelineError(f"not all blocks are resident on the {device.sms} SMs of {device.name}: {resident}; a stage that waits "
                            f"for a block of {name} would wait forever. Give {name} {count(late[name], 'block')} less, or make "
                            "its blocks smaller (threads, registers, shared memory)")
    return found


class _Room:
    """What is free on one SM."""

    def __init__(self, device: Device) -> None:
        self.held: list[str] = []
        self.blocks, self.threads = device.blocks_per_sm, device.threads_per_sm
        self.registers, self.shared = device.registers_per_sm, device.shared_per_sm

    def fits(self, request: Request) -> bool:
        return (self.blocks >= 1 and self.threads >= request.threads and self.shared >= request.shared
                and self.registers >= request.registers * request.threads)

    def take(self, request: Request) -> None:
        self.held.append(request.name)
        self.blocks -= 1
        self.threads -= request.threads
        self.registers -= request.registers * request.threads
        self.shared -= request.shared
