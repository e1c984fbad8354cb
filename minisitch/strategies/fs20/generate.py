"""Choose sub-roots, templates and launch sizes by enumeration (FusionStitching 2020, section 6).

In:  a pattern. Out: the ``Stitching`` whose kernel has the lowest modelled time.

Every reduce is a sub-root. For an expensive element-wise value that several groups need, both
choices are tried. On a GPU each template is tried with each launch size: *thread* (a thread owns a
row), *warp* (lanes exchange by shuffles), *block* (warps exchange through shared memory). The paper
has a template for each sub-root. Our loop program has one thread map for all rows of a kernel, so a
kernel has one template. On a CPU a core owns a row under every template.

Before:  softmax <100000,32>
After:   warp template, 1024 threads a block: 32 rows a block, 4 kB of shared memory for exp
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from ...device import Device
from ...errors import KernelError, PlanError
from ...fuse import Pattern, Stitching, count, is_heavy, stretches
from ...graph import Graph
from ...stitch.body import extract
from ...stitch.dominants import is_row_reduce, upstream
from ...stitch.loops import BarrierNeeded
from ..prices import Prices
from .evaluate import latency_us

LAUNCH_SIZES = (128, 256, 512, 1024)  # threads of a block
MOST_EXPENSIVE = 3  # expensive values whose subsets are all tried (the paper has no limit)
MOST_NODES = 100  # of a pattern that is enumerated; a larger one gets adaptive mapping
LOCAL = Stitching(barriers=False)  # no value crosses blocks


@dataclass(frozen=True)
class Choice:
    """A composition with its modelled time, and how many schedules were tried and dropped."""

    composition: Stitching
    us: float
    tried: int = 1
    dropped: int = 0

    def __str__(self) -> str:
        c = self.composition
        templates = {0: "adaptive mapping", 1: "thread template", 32: "warp template"}
        name = templates.get(c.threads_per_row, "block template")
        kept = "sub-roots by rule" if c.kept is None else count(len(c.kept), "expensive sub-root")
        size = f", {c.threads} threads a block" if c.threads else ""
        tried = f"the least of {count(self.tried, 'schedule')} ({self.dropped} could not be built)"
        return f"{name}{size}, {kept}: {self.us:.4g} us, {tried}"


@dataclass(frozen=True)
class PatternRefusal:
    """Why a pattern needs a grid barrier: ``reader`` waits for ``value`` (-1: no single value)."""

    why: str
    value: int = -1
    reader: int = -1


def groups(graph: Graph, kept: tuple[int, ...] = ()) -> dict[int, tuple[int, ...]]:
    """Each sub-root or root with the operations that reach it directly (the paper's grouping)."""
    roots = [n.id for n in graph.nodes
             if n.kind == "reduce" or n.id in graph.outputs or n.id in kept]
    rest = {n.id for n in graph.nodes if n.kind != "source"}.difference(roots)
    return {root: upstream(graph, (root,), rest) for root in roots}


def expensive(graph: Graph) -> tuple[int, ...]:
    """Heavy element-wise values that would be computed in several groups, or for each broadcast."""
    inside = groups(graph)
    heavy = (n for n in graph.nodes if n.kind == "map" and is_heavy(graph, n))
    return tuple(n.id for n in heavy if n.id not in graph.outputs and (
        stretches(graph, n) or sum(n.id in members for members in inside.values()) > 1))


def templates(graph: Graph, device: Device) -> Iterator[Stitching]:
    """Each template with each launch size, then adaptive mapping, which may split long rows."""
    rows = any(is_row_reduce(graph, n) for n in graph.nodes)
    if device.kind == "gpu" and rows:
        for threads in sorted({min(size, device.max_block) for size in LAUNCH_SIZES}):
            for per_row in sorted({1, min(32, threads), threads}):
                yield replace(LOCAL, threads_per_row=per_row, threads=threads)
    yield LOCAL


class Generator:
    """Chooses each pattern's composition. Equal bodies are enumerated once."""

    def __init__(self, prices: Prices) -> None:
        self.prices, self.device = prices, prices.device
        self._chosen: dict[str, Choice] = {}

    def price(self, pattern: Pattern) -> float:
        """Modelled microseconds: by the latency-evaluator on a GPU, by ``Prices`` on a CPU."""
        if pattern.kind == "library" or self.device.kind == "cpu":
            return self.prices.pattern_us(pattern)
        return latency_us(self.prices.kernel(pattern))

    def refusal(self, pattern: Pattern) -> PatternRefusal | None:
        """Why code generation refuses a pattern, with ids of the whole graph, or None."""
        try:
            self.prices.kernel(pattern)
        except BarrierNeeded as refused:
            body = extract(self.prices.graph, pattern)
            return PatternRefusal(body.in_whole(str(refused)), body.origin[refused.value],
                                  body.origin[refused.reader])
        except KernelError as refused:
            return PatternRefusal(str(refused))
        return None

    def choose(self, pattern: Pattern) -> Choice:
        """The cheapest composition: first template and launch size, then expensive sub-roots."""
        body = self.prices.body(pattern)
        if body.structure not in self._chosen:
            self._chosen[body.structure] = self._enumerate(pattern, body)
        return self._chosen[body.structure]

    def _enumerate(self, pattern: Pattern, body: Graph) -> Choice:
        if len(body) > MOST_NODES:
            return Choice(LOCAL, self.price(replace(pattern, composition=LOCAL)))
        tried = [(self._try(pattern, c), c) for c in templates(body, self.device)]
        best = min(tried, key=lambda pair: pair[0])[1]
        values = expensive(body)[:MOST_EXPENSIVE]
        if values:
            subsets = [kept for n in range(len(values) + 1) for kept in combinations(values, n)]
            tried += [(self._try(pattern, c), c) for c in (replace(best, kept=k) for k in subsets)]
        us, best = min(tried, key=lambda pair: pair[0])
        return Choice(best, us, len(tried), sum(us == float("inf") for us, _ in tried))

    def _try(self, pattern: Pattern, composition: Stitching) -> float:
        """The price of one schedule, or infinity if a value would cross warps or blocks."""
        try:
            return self.price(replace(pattern, composition=composition))
        except (PlanError, KernelError):
            return float("inf")



