"""Compose a fused kernel: tune its schedule, then fit shared memory (FusionStitching 2018, 4.3, 5).

In:  a ``Fusion`` with its satisfiable schedules, and its body. Out: a ``Composition``, and why.

Before:  softmax of [8704, 17] on a V100, 16 satisfiable schedules
After:   BlockComposition: max, exp, sum and div each cut row 256; max, exp and sum in shared
         memory; 128 threads

A kernel without a reduce inside is one loop, and gets thread composition.
"""

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ...device import Device
from ...errors import PlanError
from ...fuse import Composition, Decision, Stitching, count, is_heavy
from ...kernel import Kernel
from ...ops import itemsize
from ...stitch.blocks import BlockComposition, BlockCut
from ...stitch.body import Body
from ..prices import built
from .block_cuts import block_cut_for
from .fusion import Fusion, Schedule
from .library import entry_of, price
from .reads import Scattered

THREAD = Stitching(adaptive=False)
THREADS = (128, 256, 512)  # of a block: multiples of 32 that leave room for several blocks an SM
MUST, LIGHT, HEAVY, STRETCHED = "must", "light", "heavy", "stretched"
GIVEN_UP = (LIGHT, HEAVY, STRETCHED)  # the order in which values leave shared memory

Option = TypeVar("Option")


def compose_kernel(fusion: Fusion, body: Body) -> tuple[Composition, list[Decision]]:
    """Thread composition if one loop is enough, else the cheapest schedule with its kept values.

    The kernel checks again, by its indices, that blocks read only their own values. It cannot
    follow a reshape of concatenated pieces, for example. Such a kernel uses barriers instead.
    """
    at = (fusion.roots[0],)
    if any(s.threads for s in fusion.schedules):
        why = (f"one loop makes all {count(len(fusion.members), 'operation')}: "
               "nothing that one thread makes is read by another")
        return THREAD, [Decision(at, "thread", "thread-composition", why)]
    graph, device = fusion.graph, fusion.limits.device
    parts = [m for m in sorted(fusion.members, reverse=True) if graph[m].kind in ("map", "reduce")]
    options = [(s, threads) for s in fusion.schedules for threads in thread_counts(device)]
    (schedule, threads), _, prices = tune(
        options, parts, lambda part, option: _price(fusion, part, *option))
    chosen = (f"{count(schedule.cut.blocks, 'block')} of {count(threads, 'thread')}, the cheapest "
              f"of {count(len(fusion.schedules), 'schedule')} ({count(prices, 'price')})")
    try:
        blocks, kernel, decisions = _fit_shared(fusion, body, schedule, threads)
    except PlanError as refusal:
        why = f"{chosen}: {body.in_whole(str(refusal))}; its values meet behind barriers instead"
        return THREAD, [Decision(at, "compose", "blocks-not-followed", why)]
    unshared = sum(b.size * itemsize(b.dtype) for b in kernel.buffers if b.scope == "shared")
    why = f"{chosen}; {kernel.shared_bytes} bytes of shared memory instead of {unshared}"
    decisions.insert(0, Decision(at, "block", "block-composition", why))
    return blocks, decisions


# ---------------------------------------------------------------- tuning
def tune(options: Sequence[Option], parts: Sequence[int],
         price_of: Callable[[int, Option], float]) -> tuple[Option, float, int]:
    """The first option with the least sum of prices, its microseconds, and the number of prices.

    The sum does not predict the kernel's time; it only ranks the options. An option is dropped as
    soon as its sum reaches the least. This saves prices and changes nothing.
    """
    best, least, evaluations = options[0], math.inf, 0
    for option in options:
        total = 0.0
        for part in parts:
            total += price_of(part, option)
            evaluations += 1
            if total >= least:
                break
        if total < least:
            best, least = option, total
    return best, least, evaluations


def thread_counts(device: Device) -> tuple[int, ...]:
    """Block sizes to try. A block of a CPU is one core's task and has no threads."""
    return tuple(t for t in THREADS if t <= device.max_block) or (device.max_block,)


def _price(fusion: Fusion, part: int, schedule: Schedule, threads: int) -> float:
    """The library's price. A value that no block owns costs the same under every schedule."""
    if isinstance(schedule.asked[part], Scattered):
        return 0.0
    node, cut = fusion.graph[part], _block_cut(fusion, schedule, part)
    return price(entry_of(fusion.graph, node, cut, threads, fusion.limits.device))


def _block_cut(fusion: Fusion, schedule: Schedule, value: int) -> BlockCut:
    cut = schedule.asked[value]
    shape = fusion.graph[value].type.shape
    found = None if isinstance(cut, Scattered) else block_cut_for(cut, shape)
    assert found is not None, "checked when the operation was fused"
    return found


# ---------------------------------------------------------------- shared memory
class Wish(NamedTuple):
    """Why a value should be kept, and the longest path from it to a root of the kernel."""

    why: str
    span: int


def wishes(fusion: Fusion, schedule: Schedule) -> dict[int, Wish]:
    """The paper's size requirement: values that must be kept, and values that should be.

    *Must*: reduces that are read inside the kernel. *Heavy* and *light*: element-wise values that
    several loops read. (Readers in one loop share a register.) *Stretched*: heavy values that are
    read through a broadcast, such as a product's operand. In Fig. 3 of the paper, Reduce.1 and
    Reduce.2 are must, Exp is heavy, and Divide is stretched.
    """
    graph = fusion.graph
    loops: dict[int, set[int]] = {}  # value -> loops that read it
    spans: dict[int, int] = {}
    found: dict[int, Wish] = {}
    own_loop = {m for m in fusion.members if m in fusion.outputs or graph[m].kind == "reduce"}
    for member in sorted(fusion.members, reverse=True):
        node = graph[member]
        readers = [r for r in fusion.reads.readers[member] if r in fusion.members]
        spans[member] = max((spans[r] + 1 for r in readers), default=0)
        ends = {r for r in readers if r in found or r in own_loop}
        loops[member] = ends.union(*(loops[r] for r in readers if r not in ends))
        if not readers or isinstance(schedule.asked[member], Scattered):
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
    """Values in the order in which they are given up: light, heavy, stretched, near roots first."""
    return sorted((v for v, wish in wanted.items() if wish.why != MUST),
                  key=lambda v: (GIVEN_UP.index(wanted[v].why), wanted[v].span, -v))


def _fit_shared(fusion: Fusion, body: Body, schedule: Schedule,
                threads: int) -> tuple[BlockComposition, Kernel, list[Decision]]:
    """Keep all wishes, and give values up in the paper's order until the kernel fits.

    The reduces alone fit, which was checked when they were fused. The folds' exchange buffers come
    on top. The limit applies to what a block wants, before any value is demoted to global memory.
    """
    wanted, device = wishes(fusion, schedule), fusion.limits.device
    limit = min(fusion.limits.shared, device.shared_per_block)
    order = given_up(wanted)
    number = {whole: i for i, whole in enumerate(body.origin)}
    looped = {m for m in fusion.members if m in fusion.outputs or fusion.graph[m].kind == "reduce"}

    @functools.cache
    def without(dropped: int) -> tuple[BlockComposition, Kernel]:
        kept = wanted.keys() - order[:dropped]
        schedules = tuple((v, _block_cut(fusion, schedule, v)) for v in sorted(looped | kept))
        cut = BlockComposition(schedules, tuple(sorted(kept)), threads)
        blocks = cut.renumber(number.__getitem__)
        return blocks, built(body.graph, device, blocks)

    def fits(dropped: int) -> bool:
        return without(dropped)[1].wanted_bytes <= limit

    dropped = 0 if fits(0) else bisect_left(range(len(order)), True, key=fits)
    wanted_bytes = without(0)[1].wanted_bytes
    why = (f"with all values a block needs {wanted_bytes} bytes, the limit is {limit}; "
           "a {} one is evaluated where it is read")
    said = [Decision((v,), "recompute", "shared-memory-shrinking", why.format(wanted[v].why))
            for v in order[:dropped]]
    return *without(dropped), said
