"""``fs20``: fuse by cost, and stitch inside a block (FusionStitching 2020, arXiv 2009.10924).

The vertices are the kernels of XLA's basic fusion. ``explore`` finds good patterns of them
(PatternReduction, remote fusion), rated by ``delta``. ``beam`` combines patterns to plans.
``generate`` chooses how each kernel is composed, by ``evaluate``, which also picks the plan.

No value crosses blocks inside a kernel. The one exception is a reduce that no operation of the
kernel reads: it may end with a grid barrier, which stands for the paper's atomics.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...device import Device
from ...fuse import MOST_ARGUMENTS, VIEWS, Decision, FusionPlan, Stitching, count, is_fusible, make_plan, strategy
from ...graph import Graph
from ..prices import Prices
from ..xla import xla
from .beam import WIDTH, plans
from .delta import Evaluator
from .explore import BEST, MOST_VERTICES, bits
from .generate import LOCAL, Generator

MOST_LESSONS = 4  # explorations; each knows what code generation refused in earlier ones


@strategy("fs20")
def fs20(graph: Graph, device: Device) -> FusionPlan:
    """The plan that the latency-evaluator (on a CPU: the calibrated model) rates best.

    Each exploration makes the plans of the beam, and the best of them explored further. If code
    generation refuses something, the next exploration avoids it.

    Before:  xla: kernels {max} {exp, sum} {exp, div}
    After:   kernel {max, exp, sum, div}, a block a row
    """
    return decide(graph, device)


def decide(graph: Graph, device: Device, width: int = WIDTH, best: int = BEST) -> FusionPlan:
    """As ``fs20``, with another beam width and another number of patterns for each vertex."""
    evaluator = Evaluator(xla(graph, device), device)
    maker = _Maker(graph, device, evaluator)
    made: list[tuple[float, FusionPlan]] = []
    for _ in range(MOST_LESSONS):
        known = maker.lessons
        made += [maker.make(sets) for sets in plans(evaluator, width, best)]
        if maker.lessons == known:
            break
    _, chosen = min(made, key=lambda one: one[0])
    said = ", ".join(f"{us:.4g} us in {count(len(plan.kernels), 'kernel')}" for us, plan in made)
    cheapest = Decision(graph.outputs, "fuse", "cheapest-of-beam", said)
    patterns, decisions = [], [cheapest, *chosen.decisions]
    for pattern in chosen.patterns:
        if pattern.kind == "kernel" and pattern.composition == LOCAL:
            choice = maker.generator.choose(pattern)
            pattern = replace(pattern, composition=choice.composition)
            decisions.append(Decision(pattern.outputs, "map", "enumerated", str(choice)))
        patterns.append(pattern)
    return replace(chosen, patterns=tuple(patterns), decisions=tuple(decisions))


class _Maker:
    """Turns sets of vertices into plans. A pattern that code generation refuses is split."""

    def __init__(self, graph: Graph, device: Device, evaluator: Evaluator) -> None:
        self.graph, self.evaluator, self.vertices = graph, evaluator, evaluator.plan.patterns
        self.generator = Generator(Prices(graph, device))
        self.lessons = 0  # refusals that the next exploration knows
        self.vertex_of = {value: v for v, p in enumerate(self.vertices) for value in p.outputs}

    def make(self, chosen: Sequence[int]) -> tuple[float, FusionPlan]:
        """The plan of these sets of vertices, with its time. Other vertices stay XLA's kernels."""
        taken = sum(chosen) | self.evaluator.library
        masks = [*chosen, *(1 << v for v in range(len(self.vertices)) if not taken >> v & 1)]
        refusals: dict[str, Decision] = {}
        while True:
            plan = make_plan(self.graph, "fs20", [self._members(m) for m in masks], (), LOCAL)
            owner = {v: k for k, mask in enumerate(masks) for v in bits(mask)}
            parts: dict[int, list[int]] = {}
            patterns = []
            for pattern in plan.patterns:
                if pattern.kind == "kernel" and (refused := self.generator.refusal(pattern)):
                    number = owner[self.vertex_of[pattern.outputs[0]]]
                    said = Decision(pattern.outputs, "keep apart", "not-generated", refused.why)
                    refusals[refused.why] = said
                    if masks[number] & (masks[number] - 1):
                        parts[number] = self._split(masks[number], refused.value, refused.reader)
                    pattern = replace(pattern, composition=Stitching(adaptive=False))  # as in XLA
                patterns.append(pattern)
            if not parts:
                reasons = [*self._fused(masks), *refusals.values(), *self._apart(masks, owner)]
                us = sum(map(self.generator.price, patterns))
                return us, replace(plan, patterns=tuple(patterns), decisions=tuple(reasons))
            masks = [part for k, mask in enumerate(masks) for part in parts.get(k, [mask])]

    def _members(self, mask: int) -> list[int]:
        """All that the vertices compute. Views are added again for their readers."""
        held = (self.vertices[v] for v in bits(mask))
        found = ((m, p) for p in held for m in p.members if is_fusible(self.graph[m]))
        return sorted({m for m, p in found if m in p.outputs or self.graph[m].op not in VIEWS})

    def _split(self, mask: int, value: int, reader: int) -> list[int]:
        """Two patterns, the second with the reader and all its users; or single vertices."""
        for v in bits(mask):
            if reader in self.vertices[v].members and v == self.vertex_of.get(reader, v):
                late = (self.evaluator.dag.below[v] | 1 << v) & mask
                if late != mask:
                    self._learn(value, v)
                    return [mask & ~late, late]
        return [1 << v for v in bits(mask)]

    def _learn(self, value: int, reader: int) -> None:
        """Forbid the next exploration to fuse this reader with the value's vertex."""
        edges = self.evaluator.edges[self.vertex_of[value]] if value in self.vertex_of else []
        for k, e in enumerate(edges):
            if e.value == value and e.readers & ~e.refused & 1 << reader:
                edges[k] = replace(e, refused=e.refused | 1 << reader)
                self.lessons += 1

    # ------------------------------------------------------------ reasons
    def _fused(self, masks: Iterable[int]) -> Iterator[Decision]:
        for mask in masks:
            if mask & (mask - 1):
                values = sorted(value for v in bits(mask) for value in self.vertices[v].outputs)
                kernels = count(mask.bit_count(), "kernel")
                yield Decision(tuple(values), "fuse", "pattern",
                               f"{kernels} of xla in one: {self.evaluator.gain(mask)}")

    def _apart(self, masks: Sequence[int], owner: dict[int, int]) -> Iterator[Decision]:
        """For each value still in memory, why its producer and a reader are two kernels."""
        for v, edges in enumerate(self.evaluator.edges):
            for e in edges:
                apart = (r for r in bits(e.readers) if owner.get(r, -1) != owner.get(v, -2))
                reader = next(apart, None)
                if reader is not None:
                    rule, why = "library-call", "a call between kernels writes or reads it"
                    if v in owner and reader in owner:
                        rule, why = self._reason(masks[owner[v]], masks[owner[reader]])
                    at = e.value, *self.vertices[reader].outputs[:1]
                    yield Decision(at, "keep apart", rule, why)

    def _reason(self, mine: int, others: int) -> tuple[str, str]:
        both, dag = mine | others, self.evaluator.dag
        edges = (e for v in bits(both) for e in self.evaluator.edges[v])
        foreign = sorted(e.value for e in edges if e.refused & both)
        if foreign:
            listed = " ".join(f"%{value}" for value in foreign[:3])
            return "not-local", f"other blocks than their readers' make {listed}"
        if both.bit_count() > MOST_VERTICES:
            return "kernel-limit", (f"one kernel would hold {both.bit_count()} of xla's, "
                                    f"more than {MOST_VERTICES}")
        if (arguments := self.evaluator.arguments(both)) > MOST_ARGUMENTS:
            return "argument-limit", (f"one kernel would have {arguments} arguments, "
                                      f"more than {MOST_ARGUMENTS}")
        below, above = ([side[v] for v in bits(both)] for side in (dag.below, dag.above))
        if any(a & b & ~both for a in below for b in above):
            return "cyclic", "what lies between them would wait for the kernel that waits for it"
        gain = self.evaluator.gain(both)
        less = gain.us - self.evaluator.score(mine) - self.evaluator.score(others)
        if less <= 0:
            return "less-gain", f"fusing both would lose {-less:.4g} us: {gain}"
        return "beam", (f"fusing both would gain {less:.4g} us, but other patterns of the plan, "
                        "or what can be generated, forbid it")
