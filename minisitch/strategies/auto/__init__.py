"""``auto``: AStitch's ability to stitch, FusionStitching's judgement. The default.

In:  a ``Graph`` and a ``Device``. Out: a plan no dearer than that of any strategy that was asked, by the calibrated
cost model on the very kernels that would run, and as far as that model can tell (``RESOLUTION``).

Five steps:

1. *Stitch.* AStitch says how far a kernel could reach: everything between library calls.
2. *Judge.* Each such kernel is then a small program of its own, and every other strategy plans it anew; so do
   AStitch's ablations, and cuts at its grid barriers. A way in several kernels is also tried *restitched*, with kernels of it in
   one launch. The cheapest way takes the kernel's place. Equal kernels are judged once.
3. *Compare.* The other strategies plan the whole graph too; should one of these plans be cheaper, its
   kernels are judged as in step 2, and it is taken.
4. *Restitch* the plan: kernels between the same library calls share a launch where that is cheaper.
5. *Pipelines*, on a CPU and where products write more than the largest cache holds: Kitsune's plan is taken if it is modelled
   ``PIPELINE_GAIN`` times faster. Below that they lost when measured.

A way that launches and compulsory bytes alone make too dear is dropped before its kernels are built, unless it could be cheap
enough in one launch: its decision says *bound*.

Before:  astitch: {a b c} with two grid barriers 20 us, {d e} 12 us      fs18: {a b c} by blocks 13 us
After:   {a b c} by blocks, {d e} stitched
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from ...device import Device
from ...errors import KernelError, PipelineError, PlanError
from ...fuse import (
    Body,
    Composition,
    Decision,
    FusionPlan,
    Pattern,
    Stitching,
    count,
    extract,
    fuse,
    pattern_inputs,
    returned,
    strategy,
    verify_plan,
)
from ...graph import Graph
from ...stitch.dominants import upstream
from ...stitch.place import StitchPlan
from ..kitsune.price import plan_with_pipelines_us
from ..prices import Prices, digest, moved_us
from .merge_launches import restitched, restitched_plan

PROPOSERS = ("astitch", "fs20", "fs18", "xla", "none")  # of equally cheap plans the first one's is taken
ABLATIONS = {"without keeping": Stitching(keep=False), "without merging": Stitching(merge=False)}
MOST_COMPARED = {"fs20": 3500, "fs18": 3500}  # nodes of a graph that a slow planner is still asked to plan whole
MOST_CUTS = 8  # of a kernel with more grid barriers, that many are tried, evenly spread
# How many times cheaper a way must be modelled to take the place of AStitch's. Of two plans of a program on a CPU that are modelled
# closer than that, the cheaper one is slower as often as not; of a GPU only the model is known: see docs/strategies/auto.md.
RESOLUTION = {"cpu": 1.03, "gpu": 1.0}
# The same for a kernel's way in several launches, since what these cost the host is not modelled. On a GPU it is the CPU's figure,
# not a measured one; whole plans are compared without it, since none is to be cheaper than ours.
MORE_LAUNCHES = 1.03
PIPELINE_GAIN = 1.25  # what pipelines must be modelled to gain: see docs/strategies/auto.md
MOST_RESTITCHED = 8  # kernels of a way that are tried in one launch. With a limit of 16 one of 14 workloads is 0.03% cheaper
MOST_JUDGED = 1000  # nodes of a kernel that is planned anew; a larger one stays as it was proposed


@dataclass(frozen=True)
class Judgement:
    """Which steps are taken: the ablation switches."""

    replan: bool = True  # let the other strategies plan each stitched kernel
    ablate: bool = True  # try it with fewer of AStitch's ingredients
    cut: bool = True  # try it in two, at a grid barrier
    restitch: bool = True  # try the kernels of each of these ways in one launch, and those of the plan
    compare: bool = True  # with the other strategies' plans of the whole graph, and Kitsune's pipelines


ALL_STEPS = Judgement()


@dataclass(frozen=True)
class Way:
    """One way to compute a kernel's body: its patterns (ids of the body) and what they cost together."""

    name: str
    patterns: tuple[Pattern, ...]
    us: float
    exact: bool = True  # else it takes at least so long, and was not built to know more

    def __str__(self) -> str:
        kernels = count(sum(p.kind == "kernel" for p in self.patterns), "kernel")
        return f"{self.name} {self.us:.4g} us in {kernels}{'' if self.exact else ' (bound)'}"


@strategy("auto")
def auto(graph: Graph, device: Device) -> FusionPlan:
    """The cheapest way to compute each kernel that AStitch would stitch, and as far as the model can tell no dearer than any
    whole plan that was asked for. A strategy that refuses is no proposal; AStitch's refusal is ours: PlanError, KernelError."""
    return decide(graph, device)


def decide(graph: Graph, device: Device, steps: Judgement = ALL_STEPS, proposers: Sequence[str] = PROPOSERS) -> FusionPlan:
    """As ``auto``, with steps and proposals left out at will; the first proposer's kernels are judged in any case."""
    judge = _Judge(Prices(graph, device), steps, proposers)
    first, *others = proposers
    chosen = judge.judged(fuse(graph, first, device))
    if not steps.compare:
        return judge.restitched(chosen)
    us = judge.prices.plan_us(chosen)
    calls = sum(judge.prices.pattern_us(p) for p in chosen.patterns if p.kind == "library")  # the same whoever plans
    taken, said = first, [str(Way(f"each kernel of {first} judged", chosen.patterns, us))]
    for name in others:
        if len(graph) > MOST_COMPARED.get(name, len(graph)):
            said.append(f"{name} not asked: {len(graph)} nodes are more than {MOST_COMPARED[name]}")
            continue
        try:
            plan = fuse(graph, name, device)
            way = _priced(name, plan.patterns, judge.prices, calls + (us - calls) / judge.resolution)
        except (PlanError, KernelError) as refusal:
            said.append(f"{name} refused: {refusal}")
            continue
        said.append(str(way))
        if way.exact and (way.us - calls) * judge.resolution < us - calls:
            taken, chosen = name, judge.judged(plan)
            us = judge.prices.plan_us(chosen)
    said[-1] += f": {taken}"
    chosen = judge.restitched(chosen)
    us = judge.prices.plan_us(chosen)
    if (piped := _pipelined(graph, judge.prices)) and piped[1] * PIPELINE_GAIN <= us:
        chosen, said = judge.restitched(judge.judged(piped[0])), [*said, f"kitsune's pipelines {piped[1]:.4g} us: taken"]
    elif piped:
        said.append(f"kitsune's pipelines {piped[1]:.4g} us: taken from {PIPELINE_GAIN} times faster on")
    decision = Decision(graph.outputs, "fuse", "cheapest-plan", "; ".join(said))
    return replace(chosen, decisions=(decision, *chosen.decisions))


def _pipelined(graph: Graph, prices: Prices) -> tuple[FusionPlan, float] | None:
    """Kitsune's plan and what it takes, if products write more than the largest cache holds and it has pipelines."""
    device = prices.device
    written = sum(n.type.nbytes for n in graph.nodes if n.op == "matmul")
    if device.kind != "cpu" or len(device.levels) < 2 or written <= device.levels[-2].size:
        return None
    try:
        plan = fuse(graph, "kitsune", device)
        return (plan, plan_with_pipelines_us(plan, prices)) if plan.pipelines else None
    except (PlanError, KernelError, PipelineError):  # refused: no pipelines
        return None


class _Judge:
    """Finds the cheapest way for one kernel after the other; remembers it for equal ones."""

    def __init__(self, prices: Prices, steps: Judgement, proposers: Sequence[str]) -> None:
        self.prices, self.steps, self.proposers = prices, steps, proposers
        self.resolution = RESOLUTION[prices.device.kind]
        self.known: dict[str, tuple[Body, list[Way]]] = {}

    def judged(self, plan: FusionPlan) -> FusionPlan:
        """The plan with each kernel as its cheapest way has it."""
        patterns: list[Pattern] = []
        decisions = list(plan.decisions)
        for pattern in plan.patterns:
            patterns += self._cheapest(pattern, plan.strategy, decisions) if pattern.kind == "kernel" else [pattern]
        return verify_plan(FusionPlan(plan.graph, "auto", tuple(patterns), tuple(decisions)))

    def restitched(self, plan: FusionPlan) -> FusionPlan:
        """The plan in fewer launches, if that step is taken."""
        return restitched_plan(plan, self.prices) if self.steps.restitch else plan

    def _cheapest(self, pattern: Pattern, proposer: str, decisions: list[Decision]) -> list[Pattern]:
        body = extract(self.prices.graph, pattern)
        key = digest(body.graph, pattern.composition)
        if key not in self.known:
            self.known[key] = body, self._ways(body, pattern, proposer)
        twin, ways = self.known[key]
        best = min(self._better(ways), key=lambda way: way.us, default=ways[0])
        if len(ways) > 1:
            nearest = min(ways, key=lambda way: way.us)
            why = f"{', '.join(map(str, ways))}: {best.name}"
            if best is not nearest and nearest.us < best.us:
                why += f", which {nearest.name} does not beat {self._margin(nearest)} times"
            decisions.append(Decision(pattern.outputs, "fuse", "cheapest-way", why))
        return [pattern] if best is ways[0] else [self._placed(part, twin, body) for part in best.patterns]

    def _margin(self, way: Way) -> float:
        """How many times cheaper than the kernel as it was proposed a way must be."""
        return max(self.resolution, MORE_LAUNCHES) if len(way.patterns) > 1 else self.resolution

    def _better(self, ways: Sequence[Way]) -> list[Way]:
        """Those that may take the place of the first. Among them the cheapest does, whatever the margins between them: so a
        way more to choose from never makes the choice dearer."""
        return [way for way in ways[1:] if way.exact and way.us * self._margin(way) < ways[0].us]

    def _ways(self, body: Body, pattern: Pattern, proposer: str) -> list[Way]:
        """The kernel as it is, then every other way worth a try; one loop leaves nothing to decide, and a huge kernel too much."""
        graph = body.graph
        prices = Prices(graph, self.prices.device, self.prices.around)
        inside = tuple(n.id for n in graph.nodes if n.op != "input" or n.id in graph.outputs)
        whole = Pattern(inside, graph.outputs, "kernel", pattern.composition)
        ways = [Way(proposer, (whole,), prices.pattern_us(whole))]
        plan, least = prices.kernel(whole).plan, prices.least_us(whole, divided=True)
        if len(plan.sinks) == 1 or len(graph) > MOST_JUDGED:
            return ways
        if least * self.resolution >= ways[0].us:  # so much takes whatever computes the same
            return [*ways, Way("any other way", (whole,), least, exact=False)]
        if self.steps.ablate and pattern.composition == Stitching():
            self._try(ways, prices, {name: partial(_with, whole, how) for name, how in ABLATIONS.items() if changes(plan, how)})
        if self.steps.replan:
            others = [name for name in self.proposers if name != proposer]
            self._try(ways, prices, {name: partial(_planned, name, graph, prices.device) for name in others})
        if self.steps.cut and pattern.composition.renumber(lambda node: -1) == pattern.composition:  # names no node of the whole
            cuts: list[Way] = []
            us = self._worth(ways)
            self._try(cuts, prices, {f"cut at barrier {k}": partial(tuple, halves) for k, halves in _halves(whole, prices, us)}, us)
            ways += sorted(cuts, key=lambda way: way.us)[:1]
        if self.steps.restitch:
            self._try_restitched(ways, prices, least)
        return ways

    def _try(self, ways: list[Way], prices: Prices, makers: dict[str, Callable[[], Sequence[Pattern]]],
             worth: float | None = None) -> None:
        """Add the ways that can be built. ``worth``: what they must take less than, if not what ``ways`` say."""
        for name, make in makers.items():
            with suppress(PlanError, KernelError):  # refused: no way
                ways.append(_priced(name, tuple(make()), prices, self._worth(ways) if worth is None else worth))

    def _try_restitched(self, ways: list[Way], prices: Prices, least: float) -> None:
        """Add each way that has several kernels in fewer launches, if these could make it cheap enough, with what several of them
        read read once. ``least``: what any way takes."""
        for way in ways[1:]:
            reads, limit = Counter(v for p in way.patterns for v in pattern_inputs(prices.graph, p)), self._worth(ways)
            again = sum((times - 1) * prices.graph[v].type.nbytes for v, times in reads.items())
            saved = (len(way.patterns) - 1) * prices.device.launch_us + moved_us(again, prices.device, prices.around)
            if len(way.patterns) > MOST_RESTITCHED or max(least, way.us - saved) >= limit:
                continue
            with suppress(PlanError, KernelError):  # a kernel that was only bounded so far is refused: no way
                kernels = restitched(way.patterns, returned(prices.graph), prices)
                if len(kernels) < len(way.patterns):
                    ways.append(Way(f"{way.name} restitched", kernels, sum(map(prices.pattern_us, kernels))))

    def _worth(self, ways: Sequence[Way]) -> float:
        """What another way must take less than, to be taken."""
        return min([ways[0].us / self.resolution, *(way.us for way in self._better(ways))])

    def _placed(self, part: Pattern, twin: Body, body: Body) -> Pattern:
        """A pattern of a kernel's body as one of the whole graph; its composition counts the nodes of its own body."""
        outer = tuple(sorted(body.origin[m] for m in part.members if body.graph[m].op != "input"))
        placed = Pattern(outer, tuple(sorted(body.origin[o] for o in part.outputs)))
        inner, new = extract(twin.graph, part), {whole: k for k, whole in enumerate(extract(self.prices.graph, placed).origin)}
        return replace(placed, composition=part.composition.renumber(lambda node: new[body.origin[inner.origin[node]]]))


def changes(plan: StitchPlan, ablation: Stitching) -> bool:
    """Whether AStitch put an ingredient in that the ablation leaves out: something merged, or something kept."""
    kept = any(d.rule == "costly-and-shared" for d in plan.decisions)
    merged = any(group.subdominants for group in plan.groups)
    return (kept and not ablation.keep) or (merged and not ablation.merge)


def _with(pattern: Pattern, composition: Composition) -> Sequence[Pattern]:
    return [replace(pattern, composition=composition)]


def _planned(name: str, graph: Graph, device: Device) -> Sequence[Pattern]:
    return fuse(graph, name, device).patterns


def _priced(name: str, patterns: tuple[Pattern, ...], prices: Prices, limit: float) -> Way:
    """What a way takes. Its kernels are built one after the other, as long as those to come leave room below ``limit``."""
    least = list(map(prices.least_us, patterns))
    us = sum(least)
    for pattern, at_least in zip(patterns, least, strict=True):
        if us >= limit:
            return Way(name, patterns, us, exact=False)
        us += prices.pattern_us(pattern) - at_least
    return Way(name, patterns, sum(map(prices.pattern_us, patterns)))


# ---------------------------------------------------------------- in two, at a grid barrier
def _halves(pattern: Pattern, prices: Prices, us: float) -> Iterator[tuple[int, tuple[Pattern, Pattern]]]:
    """The kernel cut at its grid barriers, one after the other, if two launches could be cheaper than ``us`` at all."""
    kernel, graph, inside = prices.kernel(pattern), prices.graph, set(pattern.members)
    if not kernel.grid_barriers or 2 * prices.device.launch_us >= us:
        return
    for barrier in _spread(kernel.plan.grid_barriers):
        early = [node for node, sink in kernel.plan.final.items() if sink.level < barrier]
        late = [node for node, sink in kernel.plan.final.items() if sink.level >= barrier]
        second = upstream(graph, late, inside.difference(early))
        needed = set(pattern_inputs(graph, Pattern(second, ())))
        first = upstream(graph, early, inside)
        made = tuple(m for m in first if m in needed or (m in pattern.outputs and m not in late))
        rest = tuple(m for m in second if m in pattern.outputs and m not in made)
        if made and rest and {*made, *rest} >= {*pattern.outputs}:
            yield barrier, (replace(pattern, members=first, outputs=made), replace(pattern, members=second, outputs=rest))


def _spread(last: int) -> list[int]:
    """All of 1 to ``last``, or ``MOST_CUTS`` of them evenly spread."""
    return sorted({round(k * last / MOST_CUTS) for k in range(1, MOST_CUTS + 1)} - {0})
