"""Ask a strategy for its plan, and cut kernels that have too many arguments.

In:  a graph, a strategy's name, a device. Out: the strategy's plan. The inputs and outputs of each
kernel are its arguments: at most ``MOST_ARGUMENTS``, unless a single operation has more.

Everybody asks strategies here: ``regions.planned``, a strategy that asks others, and tests. So the
limit holds for a strategy from outside the package, too. Some strategies know the limit and choose
better kernels within it: ``xla`` stores the operands that read most, ``fs18`` and ``fs20`` refuse
to fuse.

Before:  {m1 m2 .. m40 v1 v2 .. v40 w1 w2 .. w40}, an optimiser's kernel of 280 arguments
After:   {m1 v1 w1 .. m9 v9 w9} {m10 v10 w10 ..} .., operands beside their readers
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from ..device import Device
from ..errors import PlanError
from ..fuse import (
    ALL_INGREDIENTS,
    GENERATED,
    MOST_ARGUMENTS,
    STRATEGIES,
    Decision,
    FusionPlan,
    Pattern,
    Stitching,
    behind_views,
    in_order,
    make_plan,
    operations_of,
    pattern_inputs,
    returned,
    verify_plan,
)
from ..graph import Graph, Node
from ..stitch.body import Body, extract


def fuse(graph: Graph, name: str, device: Device) -> FusionPlan:
    """The plan of the named strategy, within the argument limit.

    Raises PlanError if there is no strategy of that name, or if it returns no plan.
    """
    if name not in STRATEGIES:
        raise PlanError(f"unknown strategy {name!r}; known: {', '.join(sorted(STRATEGIES))}")
    plan = STRATEGIES[name](graph, device)
    if not isinstance(plan, FusionPlan):
        raise PlanError(f"strategy {name} returns {type(plan).__name__}; end it with: return make_plan(graph, {name!r}, kernels)")
    return within_arguments(plan)


def reads_of(graph: Graph, node: Node) -> set[int]:
    """The values that a node reads, behind views, except constants and iotas."""
    found = {behind_views(graph, arg) for arg in node.args}
    return {value for value in found if graph[value].op not in GENERATED}


def within_arguments(plan: FusionPlan) -> FusionPlan:
    """The plan, with each kernel of more than ``MOST_ARGUMENTS`` arguments cut in several."""
    patterns: list[Pattern] = []
    decisions = list(plan.decisions)
    for pattern in plan.patterns:
        arguments = len(pattern_inputs(plan.graph, pattern)) + len(pattern.outputs)
        crowded = pattern.kind == "kernel" and arguments > MOST_ARGUMENTS
        parts = _parts(plan, pattern) if crowded else [pattern]
        patterns += parts
        if len(parts) > 1:
            why = (f"one kernel would have {arguments} arguments, more than {MOST_ARGUMENTS}: "
                   f"{len(parts)} kernels")
            decisions.append(Decision(pattern.outputs, "keep apart", "argument-limit", why))
    if len(patterns) == len(plan.patterns):
        return plan
    return verify_plan(replace(plan, patterns=in_order(plan.graph, patterns), decisions=tuple(decisions)))


def in_whole(pattern: Pattern, body: Body) -> Pattern:
    """A pattern of a body as a pattern of the whole graph. The order of ids stays the same."""
    members = sorted(body.origin[m] for m in pattern.members if body.graph[m].op != "input")
    return replace(pattern, members=tuple(members), outputs=tuple(sorted(body.origin[o] for o in pattern.outputs)))


# ---------------------------------------------------------------- how one kernel is cut
def _parts(plan: FusionPlan, pattern: Pattern) -> list[Pattern]:
    """The kernels that a kernel is cut into, in an order that makes no circle."""
    body = extract(plan.graph, pattern)
    reads = {m: reads_of(body.graph, body.graph[m]) for m in operations_of(body.graph)}
    readers = Counter(chain.from_iterable(reads.values()))
    rest, kernels = _depth_first(reads, readers), list[list[int]]()
    readers.update(returned(body.graph))  # the caller reads, too
    while rest:
        kernels.append(_longest(rest, reads, readers))
        rest = rest[len(kernels[-1]):]
    # The parts keep the ingredients. Which values have loops of their own is chosen anew.
    old = pattern.composition
    composition = replace(old, kept=None) if isinstance(old, Stitching) else ALL_INGREDIENTS
    return [in_whole(p, body) for p in make_plan(body.graph, plan.strategy, kernels, (), composition).patterns]


def _depth_first(reads: Mapping[int, set[int]], readers: Mapping[int, int]) -> list[int]:
    """The operations, operands right before their readers. A cut then parts few.

    Before:  m1 m2 v1 v2 w1 w2 (the moments of an optimiser, then its weights)
    After:   m1 v1 w1 m2 v2 w2
    """
    order: dict[int, None] = {}
    opened: set[int] = set()
    pending = sorted(reads.keys() - readers.keys(), reverse=True)
    while pending:
        fresh = [v for v in reads[pending[-1]] if v in reads and v not in opened]
        opened.add(pending[-1])
        pending += sorted(fresh, reverse=True)
        if not fresh:
            order[pending.pop()] = None
    return list(order)


def _longest(members: list[int], reads: Mapping[int, set[int]], readers: Counter[int]) -> list[int]:
    """As many of the first members as fit one kernel, at least one."""
    outside = readers.copy()  # value -> its readers that are not inside
    read, inside, leaving, longest = set[int](), set[int](), set[int](), 1
    for place, member in enumerate(members, start=1):
        outside.subtract(reads[member])
        read |= reads[member] - inside
        inside.add(member)
        leaving.add(member)
        leaving -= {value for value in (member, *reads[member]) if not outside[value]}
        if len(read) + len(leaving) <= MOST_ARGUMENTS:
            longest = place
        # Outputs may become fewer again, when all readers of a value are inside. Inputs do not.
        if len(read) > MOST_ARGUMENTS:
            break
    return members[:longest]
