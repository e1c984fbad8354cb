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

from collections.abc import Collection, Mapping
from dataclasses import dataclass

MUST, LIGHT, HEAVY, STRETCHED = "must", "light", "heavy", "stretched"
GIVEN_UP = (LIGHT, HEAVY, STRETCHED)  # in this order; must is never given up


@dataclass(frozen=True)
class Value:
    """An operation of a kernel, as far as shared memory is concerned.

    ``readers`` are operations of the kernel, ``output`` is whether it leaves the kernel, ``want`` why it should be kept
    (``""``: no reason), ``nbytes`` what one block owns, ``span`` the longest path to a root, ``in_place`` the values
    that it reads at its own index only.
    """

    id: int
    readers: tuple[int, ...]
    output: bool = False
    want: str = ""
    nbytes: int = 0
    span: int = 0
    in_place: frozenset[int] = frozenset()


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
    kept = {v.id for v in values.values() if v.want}
    order = sorted((v for v in values.values() if v.want in GIVEN_UP),
                   key=lambda v: (GIVEN_UP.index(v.want), v.span, -v.id))
    given_up: list[int] = []
    while (plan := SharedPlan(share(values, kept), tuple(given_up))).nbytes > limit:
        if not order:
            return None
        given_up.append(order.pop(0).id)
        kept.remove(given_up[-1])
    return plan


def share(values: Mapping[int, Value], kept: Collection[int]) -> tuple[Buffer, ...]:
    """A place for each kept value, producers first: the smallest free place that is large enough, else a new one."""
    through = passed_on_every_way(values, kept)
    before = kept_before(values, kept)
    places: list[tuple[int, int]] = []  # bytes, and the value that has the place now
    found: list[Buffer] = []
    for value in sorted(kept):
        need = values[value].nbytes
        free = [(size, at) for at, (size, owner) in enumerate(places)
                if size >= need and may_take(values, through, before, owner, value)]
        if free:
            size, at = min(free)
            found.append(Buffer(value, need, places[at][1]))
            places[at] = (size, value)
        else:
            found.append(Buffer(value, need))
            places.append((need, value))
    return tuple(found)


def may_take(values: Mapping[int, Value], through: Mapping[int, frozenset[int]], before: Mapping[int, frozenset[int]],
             owner: int, value: int) -> bool:
    """May ``value`` be written where ``owner`` was kept?"""
    if any(m in before[value] for m in through[owner]):
        return True
    new = values[value]
    return value in through[owner] and owner in new.in_place and new.nbytes == values[owner].nbytes


def passed_on_every_way(values: Mapping[int, Value], kept: Collection[int]) -> dict[int, frozenset[int]]:
    """For each value, the kept values other than itself that lie on every way from it to a root."""
    kept = frozenset(kept)
    found: dict[int, frozenset[int]] = {}
    for value in sorted(values, reverse=True):
        ways = [kept & {r} | (frozenset() if values[r].output else found[r]) for r in values[value].readers]
        found[value] = frozenset.intersection(*ways) if ways else frozenset()
    return found


def kept_before(values: Mapping[int, Value], kept: Collection[int]) -> dict[int, frozenset[int]]:
    """For each value, the kept values that it is computed from, directly or not."""
    found: dict[int, frozenset[int]] = dict.fromkeys(values, frozenset())
    for value in sorted(values):
        for reader in values[value].readers:
            found[reader] |= found[value] | ({value} & set(kept))
    return found
