"""``auto``, the default: stitch as far as AStitch does, and judge by cost as FusionStitching does.

In:  a ``Graph`` and a ``Device``. Out: a plan that costs no more than the plan of any strategy that
was asked, by the calibrated cost model and within its resolution (``RESOLUTION``).

Four steps:

1. *Stitch.* Plan with AStitch: one kernel for everything between two library calls.
2. *Judge.* Cut each kernel out as a program of its own, its body. Collect the ways to compute it:
   the kernel itself, AStitch's ablations, and the other strategies' plans. If a way has several
   kernels, also try to merge them into fewer launches. Take the cheapest way. Equal bodies are
   judged once.
3. *Compare.* The other strategies plan the whole graph. If such a plan is cheaper, judge its
   kernels as in step 2 and take it.
4. *Merge.* Kernels between the same library calls share a launch if that is cheaper.

Before:  astitch: {a b c} with two grid barriers 20 us, {d e} 12 us; fs18: {a b c} by blocks 13 us
After:   {a b c} by blocks, {d e} stitched
"""

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace

from ...device import Device
from ...errors import KernelError, PlanError
from ...fuse import (
    Decision,
    FusionPlan,
    Pattern,
    Stitching,
    count,
    returned,
    strategy,
    verify_plan,
)
from ...graph import Graph
from ...stitch.body import Body, extract
from ...stitch.plan import StitchPlan
from ...stitch.windows import body_of
from ..ask import fuse, in_whole
from ..cost import traffic
from ..prices import Prices, digest
from .merge_launches import merged, merged_plan

PROPOSERS = ("astitch", "fs20", "fs18", "xla", "none")  # the first of equally cheap plans is taken
ABLATIONS = {"astitch, recomputing what it keeps": Stitching(keep=False),
             "astitch, its dominants not merged": Stitching(merge=False)}
MOST_COMPARED = {"fs20": 3500, "fs18": 3500}  # nodes of the largest graph that each plans whole
# How many times cheaper than AStitch's kernel a way must be. On a CPU, if two plans are modelled
# closer than that, the cheaper one is as often the slower one. Then the one that moves fewer bytes
# is taken. On a GPU no measurement tells: see docs/strategies/auto.md.
RESOLUTION = {"cpu": 1.03, "gpu": 1.0}
# The same for a way in several launches, whose cost to the host is not modelled. The figure was
# measured on a CPU only. Whole plans are compared without it.
MORE_LAUNCHES = 1.03
MOST_MERGED = 8  # most kernels to merge; with 16, one of 14 workloads is 0.03% cheaper
MOST_JUDGED = 1000  # nodes of the largest kernel that is judged; a larger one stays as it is


@dataclass(frozen=True)
class Judgement:
    """Which steps run. Each switch can be turned off for an ablation."""

    replan: bool = True  # let the other strategies plan each stitched kernel
    ablate: bool = True  # try each kernel with fewer of AStitch's ingredients
    merge: bool = True  # merge kernels, of each way and of the whole plan
    compare: bool = True  # compare with whole plans of the other strategies


ALL_STEPS = Judgement()


@dataclass(frozen=True)
class Way:
    """One way to compute a kernel's body: its patterns (ids of the body) and its modelled time."""

    name: str
    patterns: tuple[Pattern, ...]
    us: float

    def moved(self, prices: Prices) -> int:
        """Bytes through memory. ``prices`` are those of the graph whose ids the patterns have."""
        return sum(traffic(prices.kernel(p)).total for p in self.patterns if p.kind == "kernel")

    def __str__(self) -> str:
        kernels = count(sum(p.kind == "kernel" for p in self.patterns), "kernel")
        return f"{self.name} {self.us:.4g} us in {kernels}"


@strategy("auto")
def auto(graph: Graph, device: Device) -> FusionPlan:
    """The cheapest way to compute each kernel that AStitch would stitch.

    The plan costs no more than any whole plan that was asked for, as far as the model can tell.
    A strategy that refuses makes no proposal. If AStitch refuses, its PlanError or KernelError is
    raised.
    """
    return decide(graph, device)


def decide(graph: Graph, device: Device, steps: Judgement = ALL_STEPS, proposers: Sequence[str] = PROPOSERS) -> FusionPlan:
    """As ``auto``, with chosen steps and strategies. The first proposer's kernels are the start."""
    first, *others = proposers
    start = fuse(graph, first, device)
    judge = _Judge(Prices(start.graph, device), steps, proposers)
    chosen = judge.judged(start)
    if not steps.compare:
        return judge.merged(chosen)
    us = judge.prices.plan_us(chosen)
    # Every plan has the same library calls.
    calls = sum(judge.prices.pattern_us(p) for p in chosen.patterns if p.kind == "library")
    taken, said = first, [str(Way(f"whole program: {first}'s kernels, each planned the cheapest way,", chosen.patterns, us))]
    for name in others:
        if len(graph) > MOST_COMPARED.get(name, len(graph)):
            said.append(f"{name} not asked: {len(graph)} nodes are more than {MOST_COMPARED[name]}")
            continue
        try:
            plan = fuse(graph, name, device)
            rival = judge.of(plan.graph)
            way = _priced(name, plan.patterns, rival.prices)
        except (PlanError, KernelError) as refusal:
            said.append(f"{name} refused: {refusal}")
            continue
        said.append(str(way))
        if (way.us - calls) * judge.resolution < us - calls:
            taken, judge, chosen = name, rival, rival.judged(plan)
            us = judge.prices.plan_us(chosen)
    said.append(f"taken: the kernels of {taken}")
    chosen = judge.merged(chosen)
    decision = Decision(chosen.graph.outputs, "fuse", "cheapest-plan", "; ".join(said))
    return replace(chosen, decisions=(decision, *chosen.decisions))


class _Judge:
    """Finds the cheapest way for each kernel. Equal kernels are judged once."""

    def __init__(self, prices: Prices, steps: Judgement, proposers: Sequence[str]) -> None:
        self.prices, self.steps, self.proposers = prices, steps, proposers
        self.resolution = RESOLUTION[prices.device.kind]
        self.known: dict[str, tuple[Body, Way | None, str]] = {}

    def of(self, graph: Graph) -> "_Judge":
        """The judge of another graph of this program, which knows the same kernels."""
        if graph is self.prices.graph:
            return self
        other = copy(self)
        other.prices = Prices(graph, self.prices.device)
        return other

    def judged(self, plan: FusionPlan) -> FusionPlan:
        """The plan, with each kernel replaced by its cheapest way."""
        patterns: list[Pattern] = []
        decisions = list(plan.decisions)
        for pattern in plan.patterns:
            patterns += self._cheapest(pattern, plan.strategy, decisions) if pattern.kind == "kernel" else [pattern]
        return verify_plan(FusionPlan(plan.graph, "auto", tuple(patterns), tuple(decisions)))

    def merged(self, plan: FusionPlan) -> FusionPlan:
        """The plan in fewer launches, if the step ``merge`` is on."""
        return merged_plan(plan, self.prices) if self.steps.merge else plan

    def _cheapest(self, pattern: Pattern, proposer: str, decisions: list[Decision]) -> list[Pattern]:
        body = body_of(self.prices.graph, pattern)
        key = digest(body.graph, pattern.composition)
        if key not in self.known:
            self.known[key] = body, *self._choice(self._ways(body, pattern, proposer), body.graph)
        twin, best, why = self.known[key]
        if why:
            decisions.append(Decision(pattern.outputs, "fuse", "cheapest-way", why))
        return [self._placed(part, twin, body) for part in best.patterns] if best else [pattern]

    def _choice(self, ways: list[Way], graph: Graph) -> tuple[Way | None, str]:
        """The way to take, None for the proposed kernel, and why."""
        # The cheapest is taken, whatever the margins between them: one more way raises no price.
        better = [way for way in ways[1:] if way.us * self._margin(way) < ways[0].us]
        nearest = min(ways, key=lambda way: way.us)
        cheap = min(better, key=lambda way: way.us, default=ways[0])
        close = [way for way in ways if way.us <= nearest.us * self.resolution and len(way.patterns) <= len(cheap.patterns)]
        prices = Prices(graph, self.prices.device, self.prices.around)
        best = min([cheap, *close], key=lambda way: way.moved(prices)) if len(close) > 1 else cheap
        why = f"this kernel, planned the way of: {'; '.join(map(str, ways))}; taken: {best.name}"
        if best is not cheap:
            why += f", which moves fewer bytes than {cheap.name} in about that time"
        elif best is not nearest and nearest.us < best.us:
            why += f", since {nearest.name} is not {self._margin(nearest)} times as fast"
        return best if best is not ways[0] else None, why * (len(ways) > 1)

    def _margin(self, way: Way) -> float:
        """How many times cheaper than the proposed kernel a way must be."""
        return max(self.resolution, MORE_LAUNCHES) if len(way.patterns) > 1 else self.resolution

    def _ways(self, body: Body, pattern: Pattern, proposer: str) -> list[Way]:
        """The kernel as proposed, then all other ways.

        A kernel of one loop has no other way. A kernel that is too large to judge gets none either.
        """
        graph = body.graph
        prices = Prices(graph, self.prices.device, self.prices.around)
        inside = tuple(n.id for n in graph.nodes if n.op != "input" or n.id in graph.outputs)
        whole = Pattern(inside, graph.outputs, "kernel", pattern.composition)
        ways = [Way(proposer, (whole,), prices.pattern_us(whole))]
        plan = prices.kernel(whole).plan
        if len(plan.sub_roots) == 1 or len(graph) > MOST_JUDGED:
            return ways
        others: list[tuple[str, Sequence[Pattern]]] = []
        if self.steps.ablate and pattern.composition == Stitching():
            others += [(name, [replace(whole, composition=how)]) for name, how in ABLATIONS.items() if changes(plan, how)]
        for name in [name for name in self.proposers if name != proposer and self.steps.replan]:
            with suppress(PlanError, KernelError):  # a refused way is left out
                others.append((name, fuse(graph, name, prices.device).patterns))
        for name, patterns in others:
            with suppress(PlanError, KernelError):
                ways.append(_priced(name, patterns, prices))
        if self.steps.merge:
            self._try_merged(ways, prices)
        return ways

    def _try_merged(self, ways: list[Way], prices: Prices) -> None:
        """Merge the kernels of each way: this saves launches, and reads shared inputs only once."""
        for way in [way for way in ways[1:] if len(way.patterns) <= MOST_MERGED]:
            kernels = merged(way.patterns, returned(prices.graph), prices)
            if len(kernels) < len(way.patterns):
                ways.append(_priced(f"{way.name}, its kernels merged", kernels, prices))

    def _placed(self, part: Pattern, twin: Body, body: Body) -> Pattern:
        """A pattern of a body as a pattern of the whole graph, its composition renumbered."""
        placed = in_whole(part, body)
        inner, new = extract(twin.graph, part), {whole: k for k, whole in enumerate(extract(self.prices.graph, placed).origin)}
        return replace(placed, composition=part.composition.renumber(lambda node: new[body.origin[inner.origin[node]]]))


def changes(plan: StitchPlan, ablation: Stitching) -> bool:
    """Whether the ablation changes this kernel: AStitch merged or kept something in it."""
    kept = any(d.rule == "costly-and-shared" for d in plan.decisions)
    merged = any(group.subdominants for group in plan.groups)
    return (kept and not ablation.keep) or (merged and not ablation.merge)


def _priced(name: str, patterns: Sequence[Pattern], prices: Prices) -> Way:
    """A way with its time, for which its kernels are built."""
    return Way(name, tuple(patterns), sum(map(prices.pattern_us, patterns)))
