"""Which values of a plan are computed later: in the one kernel that reads them, where that is modelled cheaper.

In:  a plan, ``Prices`` and a margin. Out: a plan with as many kernels, some of which do more and some less.

AStitch stitches everything between two levels of library calls, and by a rule about bytes lets a value move to a later level
(``strategies/astitch.py::levels``). What that rule leaves early is written, and read again behind the next call. Compilers call the
remedy code sinking; a *sink* is something else here (docs/words.md).

Before:  kernel: %3 gather, %7 exp -> %3 %7      call: %8 of %7      kernel: %9 add of %3 and %8
After:   kernel: %7 exp -> %7                    call: %8 of %7      kernel: %3 gather, %9 add of it and %8
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace

from .build import Prices
from .errors import KernelError, PlanError
from .fuse import (
    ALL_INGREDIENTS,
    COUNTED,
    FREE,
    MOST_ARGUMENTS,
    Decision,
    FusionPlan,
    Pattern,
    pattern_inputs,
    returned,
    verify_plan,
)
from .graph import Graph
from .groups import upstream


def deferred_plan(plan: FusionPlan, prices: Prices, margin: float) -> FusionPlan:
    """The plan where a value that one later kernel alone reads is computed there, if the two kernels together are then ``margin``
    times cheaper.

    What the value is made of has to be kept until then: the memory in use behind a kernel may grow by what the largest cache holds,
    on a GPU not at all. Only kernels with all of AStitch's ingredients are asked: a composition by another strategy is of just what
    it was made for.
    """
    graph, patterns, decisions = plan.graph, list(plan.patterns), list(plan.decisions)
    room = prices.device.levels[-2].size if len(prices.device.levels) > 1 else 0  # the last level is memory
    grown = [0] * len(patterns)  # bytes in use behind each pattern that were not before
    reads = [set(pattern_inputs(graph, pattern)) for pattern in patterns]
    for early, pattern in enumerate(plan.patterns):
        for value in sorted(set(pattern.outputs) - returned(graph), reverse=True):  # each before what it is made of
            readers = [place for place, read in enumerate(reads) if value in read]
            if len(readers) != 1 or any(patterns[k].kind != "kernel" or patterns[k].composition != ALL_INGREDIENTS
                                        for k in (early, *readers)):
                continue
            late, moved = readers[0], _moved(graph, value, patterns[early])
            more = _kept(graph, moved, reads[late:]) - graph[value].type.nbytes
            second = replace(patterns[late], members=tuple(sorted({*moved, *patterns[late].members})))
            arguments = len(pattern_inputs(graph, second)) + len(second.outputs)
            if not moved or max(grown[early:late]) + more > room or arguments > MOST_ARGUMENTS:
                continue
            before, both = (patterns[early], patterns[late]), (_without(graph, patterns[early], value), second)
            us = sum(map(prices.pattern_us, before))
            if sum(map(prices.least_us, both)) * margin >= us:
                continue
            with suppress(PlanError, KernelError):  # what cannot be built stays where it is
                if (less := sum(map(prices.pattern_us, both))) * margin < us:
                    for place, changed in zip((early, late), both, strict=True):
                        patterns[place], reads[place] = changed, set(pattern_inputs(graph, changed))
                    grown[early:late] = [nbytes + more for nbytes in grown[early:late]]
                    why = f"one later kernel alone reads %{value} {graph[value].op}: {less:.4g} us for both instead of {us:.4g}"
                    decisions.append(Decision((value,), "fuse", "deferred", why))
    return verify_plan(replace(plan, patterns=tuple(patterns), decisions=tuple(decisions)))


def _moved(graph: Graph, value: int, kernel: Pattern) -> tuple[int, ...]:
    """What a kernel computes for one of its outputs alone; none, if it makes anything else of it.

    Constants and views are made again by whoever reads them; what the kernel writes for others stays.
    """
    rest = _without(graph, kernel, value)
    moved = upstream(graph, (value,), set(kernel.members).difference(rest.outputs))
    shared = any(graph[m].op not in FREE | COUNTED for m in set(moved).intersection(rest.members))
    return () if shared or not rest.outputs else moved


def _without(graph: Graph, kernel: Pattern, value: int) -> Pattern:
    """The kernel with all of its outputs but one, and what they need."""
    rest = tuple(o for o in kernel.outputs if o != value)
    return replace(kernel, members=upstream(graph, rest, set(kernel.members)), outputs=rest)


def _kept(graph: Graph, moved: tuple[int, ...], reads: Sequence[Set[int]]) -> int:
    """Bytes of what ``moved`` reads that would be free by then: nobody reads it later (``reads``), and it is not the caller's."""
    lives = set().union(returned(graph), graph.inputs, *reads)
    return sum(graph[v].type.nbytes for v in pattern_inputs(graph, Pattern(moved, ())) if v not in lives)
