"""From a pattern's body to its ``StitchPlan``, by the pattern's composition.

In:  a body (``stitch.body.extract``), a ``Device`` and a ``Composition``. Out: a ``StitchPlan``.

Each class of composition has its function: a ``Stitching`` goes to ``loops.stitch``, a
``BlockComposition`` (FusionStitching 2018's) to ``blocks.arrange``, a ``Merging`` to ``merge``
below.

AStitch composes a kernel by one set of rules. Another strategy may have found a cheaper plan of
several kernels. ``Merging`` puts those in one launch. Parts that do not read each other run side by
side (FusionStitching 2020's packing). A part that reads another part's value waits behind a grid
barrier (AStitch 2022, 4.3: the Global scheme). It is our idea that each part keeps its loops. The
merged kernel has one block size, that of its largest part.

Before:  kernel 0, in blocks: %3 max, %7 sum    kernel 1: %9 add    kernel 2: %8 div of %3 and %7
After:   one kernel: %3 %7 in blocks, %9 beside them; grid barrier; %8
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..device import Device
from ..errors import PlanError
from ..fuse import ALL_INGREDIENTS, Composition, Decision, Numbering, Pattern, Stitching, count
from ..graph import Graph, Ids
from .blocks import BlockComposition, arrange
from .body import extract
from .dominants import Group
from .loops import stitch
from .plan import StitchPlan, leaves
from .subroots import SubRoot


def compose(graph: Graph, device: Device, composition: Composition = ALL_INGREDIENTS) -> StitchPlan:
    """Give each sub-root of a body its loop, as the composition asks.

    Raises PlanError for a composition of an unknown class, and where ``stitch``, ``arrange`` or
    ``merge`` does.
    """
    if isinstance(composition, Stitching):
        return stitch(graph, device, composition)
    if isinstance(composition, BlockComposition):
        return arrange(graph, device, composition)
    if isinstance(composition, Merging):
        return merge(graph, device, composition)
    raise PlanError(f"unknown composition {type(composition).__name__}; known: Stitching, BlockComposition, Merging")


# ---------------------------------------------------------------- several kernels in one launch
@dataclass(frozen=True)
class Merging(Composition):
    """The parts of a merged kernel. Each is a pattern with its own composition.

    A part stands after those that it reads. All node ids are ids of the merged kernel's body, also
    those in the parts' compositions.
    """

    parts: tuple[Pattern, ...]

    def shares(self, node: int) -> bool:
        return any(part.composition.shares(node) for part in self.parts)

    def renumber(self, number: Numbering) -> Merging:
        def ids(old: Ids) -> Ids:
            return tuple(sorted(map(number, old)))

        return Merging(tuple(Pattern(ids(part.members), ids(part.outputs), composition=part.composition.renumber(number))
                             for part in self.parts))


def merge(graph: Graph, device: Device, composition: Merging) -> StitchPlan:
    """Compose each part, and put it behind the grid barriers that it needs.

    Raises PlanError if two parts have a loop for one value, or if a part reads a value that a later
    one makes.
    """
    plans = [_in_whole(graph, device, part) for part in composition.parts]
    looped = frozenset(value for plan in plans for value in plan.final)
    made: dict[int, int] = {}  # grid barriers before each value is complete
    order: list[SubRoot] = []
    decisions: list[Decision] = []
    for part, plan in zip(composition.parts, plans, strict=True):
        own, waits = plan.final.keys(), 0
        if twice := sorted(own & made.keys()):
            raise PlanError(f"%{twice[0]} {graph[twice[0]].op} has a loop in two parts of one kernel; leave it in one part")
        for s in plan.sub_roots:
            for value in {value for value, _ in leaves(graph, s, looped)} - own:
                if value not in made:
                    raise PlanError(f"%{s.node} {graph[s.node].op} reads %{value} {graph[value].op}"
                                    ", which a later part of the kernel computes; put that part "
                                    "first, or make it a kernel of its own")
                waits = max(waits, made[value] + 1 - s.level)
        for s in plan.sub_roots:
            order.append(replace(s, level=s.level + waits))
            made[s.node] = max(made.get(s.node, 0), s.level + waits)
        after = f"behind {count(waits, 'grid barrier')}" if waits else "from the start"
        why = f"a part with loops for {count(len(own), 'value')}, {after}"
        decisions += [Decision(part.outputs, "stitch", "merged", why), *plan.decisions]
    groups = tuple(group for plan in plans for group in plan.groups)
    return StitchPlan(graph, device, composition, groups, tuple(order), tuple(decisions))


def _in_whole(graph: Graph, device: Device, part: Pattern) -> StitchPlan:
    """The plan of one part, made in the part's own body, with ids of the whole kernel."""
    body = extract(graph, part)
    whole, number = body.origin, {value: own for own, value in enumerate(body.origin)}
    plan = compose(body.graph, device, part.composition.renumber(number.__getitem__))
    groups = tuple(Group(tuple(whole[m] for m in g.members), whole[g.dominant],
                         tuple(whole[m] for m in g.subdominants)) for g in plan.groups)
    sub_roots = tuple(replace(s, node=whole[s.node], operand=whole[s.operand]) for s in plan.sub_roots)
    return StitchPlan(graph, device, part.composition, groups, sub_roots, body.decisions_in_whole(plan.decisions))
