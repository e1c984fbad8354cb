"""What a block should keep in shared memory, and what it gives up first (FusionStitching 2018, section 5).

In:  a kernel and its schedule. Out: ``Wish``es, a value each, and the order in which they are given up over the limit.

Before:  Fig. 3: Reduce.1, Exp, Reduce.2, Divide and Dot in one kernel
After:   Reduce.1 must, Exp heavy, Reduce.2 must, Divide stretched; Exp is given up first, then Divide

Which values take each other's place is the kernel's business (``layout``), by the same rule for all strategies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...fuse import is_heavy
from .fusion import Fusion, Schedule
from .reads import is_owned

MUST, LIGHT, HEAVY, STRETCHED = "must", "light", "heavy", "stretched"
GIVEN_UP = (LIGHT, HEAVY, STRETCHED)  # in this order; must is never given up


class Wish(NamedTuple):
    """Why a value should be kept, and the longest path from it to a root of the kernel."""

    why: str
    span: int


def wishes(fusion: Fusion, schedule: Schedule) -> dict[int, Wish]:
    """The paper's size requirement: who must be kept, and who should be.

    *Must*: reduces that are read inside. *Heavy* and *light*: element-wise values read in several loops; two readers
    in one loop share a register. *Stretched*: heavy values that are read many times through a broadcast, as
    the operand of a product is.
    """
    graph = fusion.graph
    loops: dict[int, set[int]] = {}  # those that read a value
    spans: dict[int, int] = {}
    found: dict[int, Wish] = {}
    for member in sorted(fusion.members, reverse=True):
        node = graph[member]
        readers = [r for r in fusion.reads.readers[member] if r in fusion.members]
        spans[member] = max((spans[r] + 1 for r in readers), default=0)
        loops[member] = set().union(*({r} if r in found or r in fusion.outputs or graph[r].kind == "reduce" else loops[r]
                                      for r in readers))
        if not readers or not is_owned(schedule.asked[member]):
            continue
        heavy = is_heavy(graph, node)
        if node.kind == "reduce":
            found[member] = Wish(MUST, spans[member])
        elif heavy and any(_is_stretched(fusion, member, r) for r in readers):
            found[member] = Wish(STRETCHED, spans[member])
        elif len(loops[member]) > 1:
            found[member] = Wish(HEAVY if heavy else LIGHT, spans[member])
    return found


def _is_stretched(fusion: Fusion, value: int, reader: int) -> bool:
    return any(node.op == "broadcast" and node.type.shape != fusion.graph[node.args[0]].type.shape
               for read in fusion.reads.of[reader] if read.source == value for node, _ in read.way)


def given_up(wanted: Mapping[int, Wish]) -> list[int]:
    """Light values first, then heavy ones, then stretched ones; of equals the one nearest to a root. Reduces stay."""
    return sorted((v for v, wish in wanted.items() if wish.why != MUST),
                  key=lambda v: (GIVEN_UP.index(wanted[v].why), wanted[v].span, -v))
