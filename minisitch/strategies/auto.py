"""``auto``: AStitch's ability to stitch, FusionStitching's judgement. The default.

In:  a ``Graph`` and a ``Device``. Out: the cheapest plan that can be put together from the plans of
all other strategies, priced by the calibrated cost model on the very kernels that would run.

Three steps, each of which can only lower the price:

1. *Propose.* Every other strategy plans the graph.
2. *Weigh.* A *region* is a set of operations that no proposal's kernel crosses. Each region takes the
   cut of the proposal that is cheapest there.
3. *Judge.* Each stitched kernel is cut at a grid barrier if two launches are cheaper, and loses an
   ingredient of AStitch's if it is cheaper without.

Before:  astitch: kernel {a b c} 9 us | kernel {d e} 8 us      xla: kernels {a} {b c} 12 us | {d} {e} 5 us
After:   {a b c} as astitch has it, {d} {e} as xla has it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..build import Prices
from ..device import Device
from ..errors import PlanError
from ..fuse import (
    FREE,
    STRATEGIES,
    Composition,
    Decision,
    FusionPlan,
    Pattern,
    Stitching,
    count,
    extract,
    make_plan,
    pattern_inputs,
    strategy,
    verify_plan,
)
from ..graph import Graph

PROPOSERS = ("astitch", "fs20", "fs18", "xla", "none")  # of equally cheap cuts the first one's is taken
WITHOUT = (Stitching(keep=False), Stitching(merge=False))  # AStitch less one ingredient


@dataclass(frozen=True)
class Judgement:
    """Which steps are taken: the ablation switches."""

    weigh: bool = True
    cut: bool = True
    ingredients: bool = True


@dataclass(frozen=True)
class Cut:
    """One proposal's kernels in one region, and what they cost together."""

    proposer: str
    patterns: tuple[Pattern, ...]
    us: float


@strategy("auto")
def auto(graph: Graph, device: Device) -> FusionPlan:
    """The cheapest of all proposals, region by region, then kernel by kernel."""
    return decide(graph, device)


def decide(graph: Graph, device: Device, judgement: Judgement = Judgement(),
           proposers: Sequence[str] = PROPOSERS) -> FusionPlan:
    """As ``auto``, with steps and proposals left out at will. Never dearer than the cheapest proposal."""
    prices = Prices(graph, device)
    plans = [plan for plan in (STRATEGIES[name](graph, device) for name in proposers if name in STRATEGIES)
             if plan.graph is graph]
    whole = [(prices.plan_us(plan), plan) for plan in plans]
    best_us, best = min(whole, key=lambda pair: pair[0])
    decisions = [Decision(best.kernels[0].outputs if best.kernels else (), "fuse", "cheapest-plan",
                          ", ".join(f"{plan.strategy} {us:.4g} us in {count(len(plan.kernels), 'kernel')}" for us, plan in whole))]
    chosen = best
    if judgement.weigh:
        mixed, reasons = _weigh(graph, plans, prices)
        if mixed is not None and prices.plan_us(mixed) <= best_us:
            chosen, decisions = mixed, decisions + reasons
    decisions += [d for d in chosen.decisions if d not in decisions]
    patterns: list[Pattern] = []
    for pattern in chosen.patterns:
        patterns += _judged(pattern, prices, judgement, decisions)
    return verify_plan(FusionPlan(graph, "auto", tuple(patterns), tuple(decisions)))


# ---------------------------------------------------------------- weigh: region by region
def _weigh(graph: Graph, plans: Sequence[FusionPlan], prices: Prices) -> tuple[FusionPlan | None, list[Decision]]:
    """Put each region's cheapest cut together; None if the cuts wait for each other in a circle."""
    decisions: list[Decision] = []
    patterns: list[Pattern] = []
    for members, cuts in regions(graph, plans, prices):
        best = min(cuts, key=lambda cut: cut.us)
        patterns += best.patterns
        if len({len(cut.patterns) for cut in cuts}) > 1:
            said = ", ".join(f"{c.proposer} {c.us:.4g} us in {count(len(c.patterns), 'kernel')}" for c in cuts)
            decisions.append(Decision(members, "fuse", "cheapest-cut", f"{said}: {best.proposer}'s"))
    try:
        return make_plan(graph, "auto", [owned(graph, p) for p in patterns], (), [p.composition for p in patterns]), decisions
    except PlanError:
        return None, []


def owned(graph: Graph, pattern: Pattern) -> tuple[int, ...]:
    """What a pattern computes: its members without the views and constants it only pulls in."""
    return tuple(m for m in pattern.members
                 if m in pattern.outputs or (graph[m].op not in FREE and graph[m].kind != "source"))


def regions(graph: Graph, plans: Sequence[FusionPlan], prices: Prices) -> Iterator[tuple[tuple[int, ...], list[Cut]]]:
    """The finest sets of operations that no kernel of any proposal crosses, each with every proposal's cut of it."""
    leader = list(range(len(graph)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    held = [[(p, owned(graph, p)) for p in plan.kernels] for plan in plans]
    for mine in held:
        for _, members in mine:
            for member in members[1:]:
                leader[find(member)] = find(members[0])
    found: dict[int, list[list[Pattern]]] = {}
    for number, mine in enumerate(held):
        for pattern, members in mine:
            if members:
                found.setdefault(find(members[0]), [[] for _ in plans])[number].append(pattern)
    for cuts in found.values():
        members = tuple(sorted({m for patterns in cuts for p in patterns for m in owned(graph, p)}))
        yield members, [Cut(plan.strategy, tuple(patterns), sum(map(prices.pattern_us, patterns)))
                        for plan, patterns in zip(plans, cuts, strict=True) if patterns]


# ---------------------------------------------------------------- judge: kernel by kernel
def _judged(pattern: Pattern, prices: Prices, judgement: Judgement, decisions: list[Decision]) -> list[Pattern]:
    """The pattern as it is, with other ingredients, or in two: whichever is cheapest."""
    if pattern.kind == "library" or not isinstance(pattern.composition, Stitching):
        return [pattern]
    us = prices.pattern_us(pattern)
    if judgement.ingredients:
        for composition in _without(pattern, prices):
            other = replace(pattern, composition=composition)
            if (less := prices.pattern_us(other)) < us:
                decisions.append(Decision(pattern.outputs, "recompute" if composition == WITHOUT[0] else "keep apart",
                                          "ingredient", f"{less:.4g} us without it, {us:.4g} us with it: {composition}"))
                pattern, us = other, less
    if judgement.cut:
        halves = min(_halves(pattern, prices, us), key=lambda pair: sum(map(prices.pattern_us, pair)), default=None)
        if halves is not None and (less := sum(map(prices.pattern_us, halves))) < us:
            decisions.append(Decision(pattern.outputs, "keep apart", "cut-at-barrier",
                                      f"two kernels take {less:.4g} us, one with a grid barrier {us:.4g} us"))
            return [part for half in halves for part in _judged(half, prices, judgement, decisions)]
    return [pattern]


def _without(pattern: Pattern, prices: Prices) -> Iterable[Composition]:
    """Fewer ingredients, where the kernel has more than one loop to arrange."""
    return WITHOUT if len(prices.kernel(pattern).plan.sinks) > 1 and pattern.composition == Stitching() else ()


def _halves(pattern: Pattern, prices: Prices, us: float) -> Iterator[tuple[Pattern, Pattern]]:
    """The pattern cut at each of its grid barriers, if two launches could be cheaper at all."""
    kernel, device = prices.kernel(pattern), prices.device
    if not kernel.grid_barriers or 2 * device.launch_us >= us:
        return
    graph = prices.graph
    origin = extract(graph, pattern).origin
    level = {origin[node]: sink.level for node, sink in kernel.plan.final.items()}
    for barrier in range(1, kernel.plan.grid_barriers + 1):
        early = [m for m, at in level.items() if at < barrier]
        late = [m for m, at in level.items() if at >= barrier]
        if early and late:
            second = _upstream(graph, pattern, late, set(early))
            needed = set(pattern_inputs(graph, Pattern(second, ())))
            first = _upstream(graph, pattern, early, set())
            made = tuple(m for m in first if m in needed or (m in pattern.outputs and m not in late))
            rest = tuple(m for m in second if m in pattern.outputs and m not in made)
            if made and rest and set(made) | set(rest) >= set(pattern.outputs):
                yield (replace(pattern, members=first, outputs=made), replace(pattern, members=second, outputs=rest))


def _upstream(graph: Graph, pattern: Pattern, sinks: Sequence[int], stops: set[int]) -> tuple[int, ...]:
    """The members that ``sinks`` are computed from, up to values that another kernel writes."""
    inside = set(pattern.members)
    found, pending = set(sinks), list(sinks)
    while pending:
        fresh = {a for a in graph[pending.pop()].args if a in inside and a not in stops} - found
        found |= fresh
        pending += fresh
    return tuple(sorted(found))
