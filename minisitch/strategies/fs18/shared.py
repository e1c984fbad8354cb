"""What a block keeps in shared memory, and which values take each other's place (FusionStitching 2018, section 5).

In:  a kernel's ``Values``: who reads whom, and bytes a block. Out: ``SharedPlan``: an allocation or a share for each.

Before:  Fig. 3: Reduce.1 68 bytes, Exp 1156, Reduce.2 68, Divide 1156: 2448 bytes
After:   Reduce.1 ALLOC, Exp ALLOC, Reduce.2 SHARE(Reduce.1), Divide SHARE(Exp): 1224 bytes

The paper shares along a dominance tree, but its own example (Reduce.2 takes Reduce.1's place) does not follow from
dominance: Exp -> Divide goes around Reduce.2. The rule here is executable: C may take A's place if every way from A
passes a kept value M that C depends on (all loops that read A are over by then), or if C is element-wise, reads A only
at its own index, and every way from A passes C (in-place).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass

MUST, LIGHT, HEAVY, STRETCHED = "must", "light", "heavy", "stretched"
GIVEN_UP = (LIGHT, HEAVY, STRETCHED)  # in this order; must is never given up


@dataclass(frozen=True)
class Value:
    """An operation of a kernel, as far as shared memory is concerned.

    ``readers`` are operations of the kernel, of which ``straight`` read it at their own index alone; ``kind`` is the
    operation's, ``output`` whether it leaves the kernel, ``want`` why it should be kept (``""``: no reason),
    ``nbytes`` what one block owns, ``span`` the longest path to a root.
    """

    id: int
    kind: str
    readers: tuple[int, ...]
    straight: tuple[int, ...] = ()
    output: bool = False
    want: str = ""
    nbytes: int = 0
    span: int = 0


@dataclass(frozen=True)
class Buffer:
    """A kept value's place: its own bytes, or those of the value it shares with."""

    value: int
    nbytes: int
    shares: int | None = None

    def __str__(self) -> str:
        return f"%{self.value} {self.nbytes} " + ("ALLOC" if self.shares is None else f"SHARE(%{self.shares})")


@dataclass(frozen=True)
class SharedPlan:
    """Places in the order of computation, and what was given up for the limit: recomputed where it is read."""

    buffers: tuple[Buffer, ...]
    given_up: tuple[int, ...] = ()

    @property
    def values(self) -> tuple[int, ...]:
        """What is kept, producers first."""
        return tuple(b.value for b in self.buffers)

    @property
    def nbytes(self) -> int:
        """Bytes of a block after sharing."""
        return sum(b.nbytes for b in self.buffers if b.shares is None)

    @property
    def unshared(self) -> int:
        """Bytes of a block if every value had its own."""
        return sum(b.nbytes for b in self.buffers)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.buffers), f"{self.nbytes} bytes instead of {self.unshared}"])


def plan_shared(values: Mapping[int, Value], limit: int) -> SharedPlan | None:
    """Keep all that has a reason; over the limit, give up in the paper's order.

    Light values read twice go first, then heavy ones, then heavy ones that are read many times; of equals the one
    nearest to a root. None if what must be kept is too much: the fusion has to be undone.
    """
    sharing = Sharing(values)
    kept = [v.id for v in values.values() if v.want]
    order = sorted((v for v in values.values() if v.want in GIVEN_UP),
                   key=lambda v: (GIVEN_UP.index(v.want), v.span, -v.id))
    given_up: list[int] = []
    while (plan := SharedPlan(sharing.places(kept), tuple(given_up))).nbytes > limit:
        if not order:
            return None
        given_up.append(order.pop(0).id)
        kept.remove(given_up[-1])
    return plan


class Sharing:
    """Who may take whose place. Sets of values that want to be kept are numbers, a bit a value: kernels can be large."""

    def __init__(self, values: Mapping[int, Value]) -> None:
        self.values = values
        self.bit = {v: 1 << i for i, v in enumerate(sorted(v.id for v in values.values() if v.want))}
        self.through = self._passed_on_every_way()
        self.before = self._computed_from()

    def places(self, kept: Collection[int]) -> tuple[Buffer, ...]:
        """A place for each kept value, producers first: the smallest free place that is large enough, else a new one."""
        materialised = sum(self.bit[v] for v in kept)
        places: list[tuple[int, int]] = []  # bytes, and the value that has the place now
        found: list[Buffer] = []
        for value in sorted(kept):
            need = self.values[value].nbytes
            free = [(size, at) for at, (size, owner) in enumerate(places)
                    if size >= need and self.may_take(owner, value, materialised)]
            if free:
                size, at = min(free)
                found.append(Buffer(value, need, places[at][1]))
                places[at] = (size, value)
            else:
                found.append(Buffer(value, need))
                places.append((need, value))
        return tuple(found)

    def may_take(self, owner: int, value: int, materialised: int) -> bool:
        """May ``value`` be written where ``owner`` was kept?"""
        if self.through[owner] & self.before[value] & materialised:
            return True
        fits = self.values[value].nbytes == self.values[owner].nbytes
        return fits and bool(self.through[owner] & self.bit[value]) and self._in_place(owner, value)

    def _in_place(self, owner: int, value: int) -> bool:
        """Whether all that is read of ``owner`` on the way to ``value`` is at one index; loops of reduces are over by then."""
        pending, seen = [owner], {owner}
        while pending:
            at = self.values[pending.pop()]
            for reader in at.readers:
                if self.values[reader].kind == "reduce":
                    continue
                if reader not in at.straight:
                    return False
                if reader != value and reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        return self.values[value].kind == "map"

    def _passed_on_every_way(self) -> dict[int, int]:
        """For each value, those other than itself that lie on every way from it to what leaves the kernel."""
        found: dict[int, int] = {}
        for value in sorted(self.values, reverse=True):
            ways = [self.bit.get(r, 0) | (0 if self.values[r].output else found[r]) for r in self.values[value].readers]
            found[value] = functools.reduce(operator.and_, ways) if ways else 0
        return found

    def _computed_from(self) -> dict[int, int]:
        """For each value, those that it is computed from, directly or not."""
        found = dict.fromkeys(self.values, 0)
        for value in sorted(self.values):
            for reader in self.values[value].readers:
                found[reader] |= found[value] | self.bit.get(value, 0)
        return found
