"""Several kernels in one launch. Each part keeps the composition that it had alone.

In:  a body and a ``Merging``: its parts, with the composition of each. Out: a ``StitchPlan``.

AStitch composes a kernel by one set of rules. Another strategy may have found a cheaper plan of
several kernels. This pass merges those. Parts that do not read each other run side by side
(FusionStitching 2020's packing). A part that reads another part's value waits behind a grid barrier
(AStitch 2022, 4.3: the Global scheme). It is our idea that each part keeps its loops. The merged
kernel has one block size, that of its largest part.

Before:  kernel 0, in blocks: %3 max, %7 sum    kernel 1: %9 add    kernel 2: %8 div of %3 and %7
After:   one kernel: %3 %7 in blocks, %9 beside them; grid barrier; %8
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..device import Device
from ..errors import PlanError
from ..fuse import Body, Composition, Decision, Pattern, count, extract
from ..graph import Graph
from .dominants import Group
from .plan import StitchPlan, leaves
from .subroots import SubRoot


@dataclass(frozen=True)
class Merging(Composition):
    """The parts of a merged kernel. Each is a pattern with its own composition.

    A part stands after those that it reads. All node ids are ids of the merged kernel's body, also
    those in the parts' compositions.
    """

    parts: tuple[Pattern, ...]

    def shares(self, node: int) -> bool:
        return any(part.composition.shares(node) for part in self.parts)

    def renumber(self, number: Callable[[int], int]) -> Merging:
        def ids(old: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(sorted(map(number, old)))

        return Merging(tuple(Pattern(ids(part.members), ids(part.outputs), composition=part.composition.renumber(number))
                             for part in self.parts))


def merge(graph: Graph, device: Device, composition: Merging,
             compose: Callable[[Graph, Device, Composition], StitchPlan]) -> StitchPlan:
    """Compose each part, and put it behind the grid barriers that it needs.

    ``compose`` is ``stitch.compose.compose``. Raises PlanError if two parts have a loop for one
    value, or if a part reads a value that a later one makes.
    """
    bodies = [extract(graph, part) for part in composition.parts]
    plans = [_composed(body, device, part, compose) for body, part in zip(bodies, composition.parts, strict=True)]
    loops = [[_placed(sub_root, body) for sub_root in plan.sub_roots] for body, plan in zip(bodies, plans, strict=True)]
    stops = frozenset(sub_root.node for sub_roots in loops for sub_root in sub_roots)
    made: dict[int, int] = {}  # grid barriers before each value is complete
    order: list[SubRoot] = []
    decisions: list[Decision] = []
    for body, plan, sub_roots, part in zip(bodies, plans, loops, composition.parts, strict=True):
        own, waits = {sub_root.node for sub_root in sub_roots}, 0
        if twice := sorted(own & made.keys()):
            raise PlanError(f"%{twice[0]} {graph[twice[0]].op} has a loop in two parts of one kernel; leave it in one part")
        for sub_root in sub_roots:
            for value in {value for value, _ in leaves(graph, sub_root, stops)} - own:
                reader = f"%{sub_root.node} {graph[sub_root.node].op}"
                if value not in made:
                    raise PlanError(f"{reader} reads %{value} {graph[value].op}, which a later part "
                                    "of the kernel computes; put that part first, or make it a kernel of its own")
                waits = max(waits, made[value] + 1 - sub_root.level)
        for sub_root in sub_roots:
            order.append(replace(sub_root, level=sub_root.level + waits))
            made[sub_root.node] = max(made.get(sub_root.node, 0), sub_root.level + waits)
        after = f"behind {count(waits, 'grid barrier')}" if waits else "from the start"
        why = f"a part with loops for {count(len(own), 'value')}, {after}"
        decisions += [Decision(part.outputs, "stitch", "merged", why), *body.decisions_in_whole(plan.decisions)]
    groups = tuple(_group_placed(g, body) for body, plan in zip(bodies, plans, strict=True) for g in plan.groups)
    return StitchPlan(graph, device, composition, groups, tuple(order), tuple(decisions))


def _composed(body: Body, device: Device, part: Pattern, compose: Callable[[Graph, Device, Composition], StitchPlan]) -> StitchPlan:
    """A part's plan, in the ids of its own body."""
    number = {whole: own for own, whole in enumerate(body.origin)}
    return compose(body.graph, device, part.composition.renumber(number.__getitem__))


def _placed(sub_root: SubRoot, body: Body) -> SubRoot:
    """A part's sub-root, in the ids of the whole kernel."""
    operand = body.origin[sub_root.operand] if sub_root.operand >= 0 else -1
    return replace(sub_root, node=body.origin[sub_root.node], operand=operand)


def _group_placed(group: Group, body: Body) -> Group:
    """A part's group, in the ids of the whole kernel."""
    whole = body.origin
    return Group(tuple(whole[m] for m in group.members), whole[group.dominant], tuple(whole[m] for m in group.subdominants))
