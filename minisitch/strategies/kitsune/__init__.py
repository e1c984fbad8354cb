"""``kitsune``: products and the operations between them as pipelines of stages (Kitsune 2025).

Subgraphs are selected by patterns (``select``). Each is cut into tiles, and made stages and queues
(``pipeline``). A node that cannot be computed tile by tile leaves the pipeline, with all that
depends on it. Both parts are then tried again. All other operations are stitched as in ``astitch``.
A CPU has no idle units that stages could use, so it gets AStitch's kernels alone.

Before:  matmul | gelu | matmul, three launches, %2 and %3 through memory
After:   one pipeline {matmul} -> {gelu} -> {matmul}, tiles of 128 kB in queues
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...device import Device
from ...fuse import (
    VIEWS,
    Decision,
    FusionPlan,
    Pattern,
    behind_views,
    count,
    is_fusible,
    make_plan,
    strategy,
    verify_plan,
)
from ...graph import Graph
from ...stitch.body import extract
from ..ask import fuse, within_arguments
from ..astitch import stitched
from .pipeline import Pipeline, PipelineRefusal, design, refusal
from .predict import balanced
from .select import select

Members = tuple[int, ...]  # ids of the nodes of a pipeline to be
Designed = tuple[Pipeline | PipelineRefusal, list[Decision]]  # of a body, with the body's ids


@strategy("kitsune")
def kitsune(graph: Graph, device: Device) -> FusionPlan:
    """Make pipelines where patterns match and tiles can be cut, and AStitch's kernels elsewhere."""
    if device.kind == "cpu":
        why = ("stages gain where units are idle, and a CPU has none: "
               "measured, pipelines lost in five of nine programs")
        said = Decision(graph.outputs, "keep apart", "no-pipelines-on-a-cpu", why)
        plan = fuse(graph, "astitch", device)
        return replace(plan, strategy="kitsune", decisions=(said, *plan.decisions))
    chosen = select(graph)
    decisions = [*chosen.decisions, *(d for s in chosen.subgraphs for d in s.decisions)]
    parts = _without_circles(graph, [subgraph.nodes for subgraph in chosen.subgraphs], decisions)
    whole, known = within_arguments(stitched(graph)), dict[str, Designed]()
    while True:
        plan = make_plan(graph, "kitsune", _rest(graph, whole, parts), pipelines=parts)
        designs = {pattern: _design(graph, pattern, device, known) for pattern in plan.pipelines}
        if not any(isinstance(result, PipelineRefusal) for result, _ in designs.values()):
            return _finish(plan, designs, decisions)
        home = {node: part for part in parts for node in part}
        parts = []
        for pattern, made in designs.items():
            parts += _retry(graph, home[pattern.outputs[0]], pattern, made, decisions)
        parts = _without_circles(graph, sorted(parts), decisions)


def _design(graph: Graph, pattern: Pattern, device: Device, known: dict[str, Designed]) -> Designed:
    """Design the pipeline of a pattern. Equal bodies are designed once."""
    body = extract(graph, pattern).graph
    if body.structure not in known:
        known[body.structure] = _dealt(body, design(body, device), device)
    return known[body.structure]


def _finish(plan: FusionPlan, designs: dict[Pattern, Designed],
            decisions: Iterable[Decision]) -> FusionPlan:
    """The plan with the stages, queues and blocks of each pipeline."""
    patterns, said = [], list(decisions)
    for pattern in plan.patterns:
        if pattern in designs:
            (pipeline, decided), body = designs[pattern], extract(plan.graph, pattern)
            assert isinstance(pipeline, Pipeline)
            kept = {behind_views(body.graph, o) for o in body.graph.outputs}
            saved = sum(body.graph[q].type.nbytes for q in {q.node for q in pipeline.queues} - kept)
            stages = count(len(pipeline.stages), "stage")
            why = f"{stages} over {pipeline.sizes}: {saved} B in queues, not in memory"
            said += body.decisions_in_whole(decided)
            said.append(Decision(pattern.members, "pipeline", "dataflow", why))
            pattern = replace(pattern, composition=pipeline)
        patterns.append(pattern)
    return verify_plan(replace(plan, patterns=tuple(patterns), decisions=tuple(said)))


def _dealt(graph: Graph, found: Pipeline | PipelineRefusal, device: Device) -> Designed:
    """Deal blocks out to the stages. With more stages than SMs, refuse the later half."""
    if isinstance(found, PipelineRefusal):
        return found, []
    kind, stages = Counter(stage.kind for stage in found.stages).most_common(1)[0]
    if stages <= device.sms:
        return balanced(graph, found, device)
    half = len(found.stages) // 2
    early, late = found.stages[:half], found.stages[half:]
    apart = {n for s in late for n in s.nodes} - {n for s in early for n in s.nodes}
    why = f"{stages} {kind} stages; {device.name} has {count(device.sms, 'SM')}"
    return refusal(sorted(apart), "more-stages-than-sms", why), []


# ---------------------------------------------------------------- the rest of a refused subgraph
def _retry(graph: Graph, part: Members, pattern: Pattern, made: Designed,
           decisions: list[Decision]) -> list[Members]:
    """What to try after a refusal: the part without the refused nodes, and these alone."""
    result, decided = made
    if isinstance(result, Pipeline):
        return [part]
    body = extract(graph, pattern)
    decisions += body.decisions_in_whole((*result.decisions, *decided))
    away = _taken_out(graph, part, {body.origin[n] for n in result.nodes})
    if not 0 < len(away) < len(part):
        return []
    pieces = [tuple(n for n in part if n not in away), tuple(sorted(away))]
    return [piece for piece in pieces if any(graph[n].op == "matmul" for n in piece)]


def _taken_out(graph: Graph, part: Members, refused: Iterable[int]) -> set[int]:
    """The refused nodes with everything that depends on them, or that they depend on.

    The smaller set is taken. In both cases the remainder stays contiguous, since a path that leaves
    it and returns would pass the nodes that are taken out.
    """
    inside, starts, seen = set(part), set[int](), list(refused)
    while seen:  # for a refused view outside the part, its readers inside are taken
        node = seen.pop()
        if node in inside:
            starts.add(node)
        else:
            seen += [u for u in graph.users[node] if u in inside or graph[u].op in VIEWS]
    ways = []
    for upwards in (False, True):
        reached, pending = set(starts), list(starts)
        while pending:
            node = pending.pop()
            near = graph[node].args if upwards else graph.users[node]
            fresh = inside.intersection(near) - reached
            reached |= fresh
            pending += fresh
        ways.append(reached)
    return min(ways, key=len)


# ---------------------------------------------------------------- kernels around pipelines
def _without_circles(graph: Graph, parts: list[Members], said: list[Decision]) -> list[Members]:
    """The parts without those that would wait for an earlier one that waits for them."""
    kept: list[Members] = []
    for part in parts:
        if _pipelines_before(graph, [*kept, part]) is None:
            why = "it would wait for another pipeline that waits for it"
            said.append(Decision(part, "keep apart", "circle", why))
        else:
            kept.append(part)
    return kept


def _pipelines_before(graph: Graph, pipelines: Sequence[Members]) -> list[int] | None:
    """For each node, the pipelines that it waits for, as bits. None if one waits for itself."""
    home = {n: k for k, nodes in enumerate(pipelines) for n in nodes}
    waits = [0] * len(pipelines)
    while True:
        found: list[int] = []
        now = list(waits)
        for node in graph.nodes:
            mask, mine = 0, home.get(node.id)
            for arg in node.args:
                other = home.get(arg)
                if other is None:
                    mask |= found[arg]
                elif other != mine:
                    mask |= waits[other] | 1 << other
            found.append(mask)
            if mine is not None:
                now[mine] |= mask
        if any(mask >> k & 1 for k, mask in enumerate(now)):
            return None
        if now == waits:
            return found
        waits = now


def _rest(graph: Graph, stitched: FusionPlan, pipelines: Sequence[Members]) -> list[list[int]]:
    """AStitch's kernels without the pipelines' operations, split by the pipelines they wait for.

    Operations that wait for the same pipelines lie on no path through another one. So these kernels
    cannot wait for each other in a circle.
    """
    inside = {n for p in pipelines for n in p}
    waits = _pipelines_before(graph, pipelines)
    assert waits is not None, "pipelines are added one by one, none in a circle"
    groups: dict[tuple[int, int], list[int]] = {}
    for number, pattern in enumerate(stitched.kernels):
        for node in pattern.members:
            if node not in inside and is_fusible(graph[node]):
                groups.setdefault((number, waits[node]), []).append(node)
    return list(groups.values())
