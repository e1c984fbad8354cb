"""From a fused kernel to its block composition: tune the schedule, then plan shared memory (FusionStitching 2018, 4.3 and 5).

In:  a ``Fusion`` with its satisfiable schedules. Out: ``Composed``: the schedule, who is kept where, and why.

A kernel without a reduce in its middle is one loop and needs neither: thread composition.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...build import compose
from ...cost import kernel_us
from ...device import Device
from ...errors import PlanError
from ...fuse import Decision, Stitching, count, is_heavy
from ...graph import Graph, Node
from ...schedule import schedule as make_kernel
from ...triples import BlockComposition, Triple, triple_for
from .fusion import Fusion, Schedule
from .library import entry_of, price
from .reads import is_owned
from .shared import HEAVY, LIGHT, MUST, STRETCHED, SharedPlan, Value, plan_shared
from .tuning import thread_counts, tune

THREAD = Stitching(adaptive=False)
ROWS = Stitching(adaptive=False, barriers=False)  # each row's values stay with the core that makes them


@dataclass(frozen=True)
class Composed:
    """A kernel's schedules and shared memory with the ids of the whole graph; no schedules: thread composition."""

    schedules: tuple[tuple[int, Triple], ...]
    shared: SharedPlan
    threads: int
    decisions: tuple[Decision, ...]


def compose_kernel(fusion: Fusion) -> Composed:
    """Thread composition where one loop does; else the cheapest schedule, with what blocks keep under it."""
    root = fusion.roots[0]
    if not fusion.schedules or any(s.threads for s in fusion.schedules):
        why = "one loop makes it all: nothing that one thread makes is read by another"
        return Composed((), SharedPlan(()), 0, (Decision((root,), "thread", "thread-composition", why),))
    options = [(s, threads) for s in fusion.schedules for threads in thread_counts(fusion.limits.device)]
    parts = [m for m in sorted(fusion.members, reverse=True) if fusion.graph[m].kind in ("map", "reduce")]
    choice = tune(options, parts, lambda part, option: _price(fusion, part, *option))
    schedule, threads = choice.schedule
    shared = plan_shared(values_of(fusion, schedule), fusion.limits.shared) or SharedPlan(())
    looped = {m for m in fusion.members if m in fusion.outputs or fusion.graph[m].kind == "reduce"} | set(shared.values)
    why = (f"{schedule.cut.blocks} blocks of {threads} threads, the cheapest of {count(len(fusion.schedules), 'schedule')} "
           f"({count(choice.evaluations, 'price')}); {shared.nbytes} bytes of shared memory instead of {shared.unshared}")
    decisions = [Decision((root,), "block", "block-composition", why)]
    decisions += [Decision((v,), "recompute", "shared-memory-shrinking",
                           f"a block's values are more than {fusion.limits.shared} bytes; this one is evaluated where it is read")
                  for v in shared.given_up]
    return Composed(tuple((v, _triple(fusion.graph[v], schedule, v)) for v in sorted(looped)), shared, threads, tuple(decisions))


def _triple(node: Node, schedule: Schedule, value: int) -> Triple:
    found = triple_for(schedule.asked[value], node.type.shape)
    assert found is not None, "checked when the operation was fused"
    return found


def _price(fusion: Fusion, part: int, schedule: Schedule, threads: int) -> float:
    """The library's price; what no block owns costs the same under every schedule."""
    if not is_owned(schedule.asked[part]):
        return 0.0
    node = fusion.graph[part]
    return price(entry_of(fusion.graph, node, _triple(node, schedule, part), threads, fusion.limits.device))


def settle(body: Graph, device: Device, blocks: BlockComposition) -> tuple[BlockComposition | Stitching, str, str]:
    """The composition that a body gets, and the rule and reason if that is not for certain blocks.

    A kernel's own locality check follows indices and has the last word: it cannot follow a reshape of joined pieces,
    for example. On a CPU a block is a core's task, and rows need not be equally many in each: there the modelled time
    of the whole kernel decides, since operations were priced one by one.
    """
    try:
        stitched = compose(body, device, blocks)
    except PlanError as refusal:
        return THREAD, "blocks-not-followed", f"{refusal}; its values meet behind barriers instead"
    if device.kind != "cpu":
        return blocks, "", ""
    us = kernel_us(make_kernel(stitched))
    try:
        rows = kernel_us(make_kernel(compose(body, device, ROWS)))
    except PlanError as refusal:
        return blocks, "cheaper-on-cpu", f"blocks {us:.4g} us; rows are refused: {refusal}"
    return (ROWS if rows < us else blocks), "cheaper-on-cpu", f"blocks {us:.4g} us, a row at a time {rows:.4g} us, as modelled"


# ---------------------------------------------------------------- what asks for shared memory
def values_of(fusion: Fusion, schedule: Schedule) -> dict[int, Value]:
    """The paper's size requirement: who must be kept, who should be, and how many bytes a block owns of each.

    *Must*: reduces that are read inside. *Heavy* and *light*: element-wise values read in several loops; two readers
    in one loop share a register. *Stretched*: heavy values that are read many times through a broadcast, as
    the operand of a product is.
    """
    graph, reads = fusion.graph, fusion.reads
    loops: dict[int, set[int]] = {}
    found: dict[int, Value] = {}
    for member in sorted(fusion.members, reverse=True):
        node = graph[member]
        readers = tuple(r for r in reads.readers[member] if r in fusion.members)
        loops[member] = set().union(*({r} if found[r].want or found[r].output or graph[r].kind == "reduce" else loops[r]
                                      for r in readers))
        cut = schedule.asked[member]
        want = ""
        if readers and is_owned(cut):
            heavy = is_heavy(graph, node)
            if node.kind == "reduce":
                want = MUST
            elif heavy and any(_is_stretched(fusion, member, r) for r in readers):
                want = STRETCHED
            elif len(loops[member]) > 1:
                want = HEAVY if heavy else LIGHT
        span = max((found[r].span + 1 for r in readers), default=0)
        nbytes = node.type.nbytes // cut.blocks if is_owned(cut) else 0
        straight = tuple(r for r in readers if graph[r].kind == "map"
                         and all(len(read.way) == 1 for read in reads.of[r] if read.source == member))
        found[member] = Value(member, node.kind, readers, straight, member in fusion.outputs, want, nbytes, span)
    return found


def _is_stretched(fusion: Fusion, value: int, reader: int) -> bool:
    return any(node.op == "broadcast" and node.type.shape != fusion.graph[node.args[0]].type.shape
               for read in fusion.reads.of[reader] if read.source == value for node, _ in read.way)
