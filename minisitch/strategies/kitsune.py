"""``kitsune``: chains of products and what lies between them as pipelines of stages joined by queues (Kitsune 2025).

Its parts are in ``dataflow/``: subgraphs are selected by patterns (``select``), each is cut in tiles and made stages and
queues (``pipeline``); on a CPU the stages run tile by tile (``loop``). What keeps a node from being computed tile by tile
takes it, and what hangs on it, out of the pipeline: the rest may still be one, and so may what was taken out. Everything
else is stitched, as ``astitch`` does it.

Before:  matmul | gelu | matmul, three launches, %2 and %3 through memory
After:   one pipeline {matmul} -> {gelu} -> {matmul}, tiles of 128 kB in queues
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..build import digest
from ..cost import library_us
from ..dataflow.balance import balance
from ..dataflow.pipeline import Pipeline, Refusal, design
from ..dataflow.predict import workload
from ..dataflow.select import select
from ..device import Device
from ..fuse import (
    ALL_INGREDIENTS,
    FREE,
    Decision,
    FusionPlan,
    Pattern,
    count,
    extract,
    is_fusible,
    make_plan,
    sources,
    strategy,
    verify_plan,
)
from ..graph import Graph
from .astitch import astitch

Part = tuple[int, ...]


@strategy("kitsune")
def kitsune(graph: Graph, device: Device) -> FusionPlan:
    """Pipelines where patterns match and tiles can be cut, AStitch's kernels elsewhere."""
    chosen = select(graph)
    decisions = [*chosen.decisions, *(d for subgraph in chosen.subgraphs for d in subgraph.decisions)]
    parts = _without_circles(graph, [subgraph.nodes for subgraph in chosen.subgraphs], decisions)
    stitched, known = astitch(graph, device), dict[str, Pipeline | Refusal]()
    while True:
        plan = make_plan(graph, "kitsune", _rest(graph, stitched, parts), pipelines=parts)
        designs = {pattern: _design(graph, pattern, device, known) for pattern in plan.pipelines}
        if not any(isinstance(d, Refusal) for d in designs.values()):
            return _finish(plan, designs, decisions, device)
        home = {node: part for part in parts for node in part}
        parts = []
        for pattern, result in designs.items():
            parts += _retry(graph, home[pattern.outputs[0]], pattern, result, decisions, device)
        parts = _without_circles(graph, sorted(parts), decisions)


def _design(graph: Graph, pattern: Pattern, device: Device, known: dict[str, Pipeline | Refusal]) -> Pipeline | Refusal:
    """Equal bodies, as of twelve equal layers, are designed once."""
    body = extract(graph, pattern).graph
    key = digest(body, ALL_INGREDIENTS)
    if key not in known:
        known[key] = design(body, device)
    return known[key]


def _finish(plan: FusionPlan, designs: dict[Pattern, Pipeline | Refusal], decisions: Sequence[Decision],
            device: Device) -> FusionPlan:
    """Each pipeline with its stages and queues; on a GPU with the blocks of each stage."""
    patterns, said = [], list(decisions)
    for pattern in plan.patterns:
        pipeline = designs.get(pattern)
        if isinstance(pipeline, Pipeline):
            nodes = extract(plan.graph, pattern).graph
            queued = sum(nodes[q.node].type.nbytes for q in pipeline.queues)
            why = f"{count(len(pipeline.stages), 'stage')} over {pipeline.tiles} tiles: {queued} B in queues, not in memory"
            said.append(Decision(pattern.members, "pipeline", "dataflow", why))
            pattern = replace(pattern, composition=pipeline if device.kind == "cpu" else _balanced(nodes, pipeline, device))
        patterns.append(pattern)
    return verify_plan(replace(plan, patterns=tuple(patterns), decisions=tuple(said)))


def _balanced(graph: Graph, pipeline: Pipeline, device: Device) -> Pipeline:
    """With as many thread blocks a stage as Kitsune's load balance gives it (4b B7), no more than there are tiles."""
    loads, channels = workload(graph, pipeline, device)
    blocks = balance(loads, device, channels).blocks
    stages = (replace(s, blocks=1 if s.role == "final" else min(blocks[s.name], pipeline.tiles)) for s in pipeline.stages)
    return replace(pipeline, stages=tuple(stages))


# ---------------------------------------------------------------- what of a subgraph can be a pipeline
def _retry(graph: Graph, part: Part, pattern: Pattern, result: Pipeline | Refusal, decisions: list[Decision],
           device: Device) -> list[Part]:
    """What to try next in the place of a part: what refused is cut away from the rest, and tried by itself."""
    if isinstance(result, Pipeline):
        return [part]
    body = extract(graph, pattern)
    decisions += [replace(d, at=tuple(body.origin[n] for n in d.at), why=body.in_whole(d.why)) for d in result.decisions]
    refused = {body.origin[n] for n in result.nodes}
    away = _taken_out(graph, part, refused)
    complete_late = {v for n in refused for v in sources(graph, graph[n])}
    decisions += _spilled(graph, set(part) - away - complete_late, away, device)
    pieces = [tuple(n for n in part if n not in away), tuple(sorted(away))] if 0 < len(away) < len(part) else []
    return [piece for piece in pieces if any(graph[n].op == "matmul" for n in piece)]


def _spilled(graph: Graph, kept: set[int], away: set[int], device: Device) -> list[Decision]:
    """What now goes through memory, and what the alternatives would cost: only spilling is built here.

    A queue that holds all tiles needs room in L2; one stage for both sides needs it in a block's shared memory; computing
    the value again needs what it is made of.
    """
    found = []
    for value in sorted({v for n in away for v in sources(graph, graph[n])} & kept):
        node = graph[value]
        prices = {"spill": 2 * node.type.nbytes / device.bandwidth * 1e6}
        if node.type.nbytes <= device.l2_size // 2:
            prices["a queue of all tiles"] = 2 * node.type.nbytes / device.l2_bandwidth * 1e6
        if node.type.nbytes <= device.shared_per_block:
            prices["one stage"] = 0.0
        prices["recompute"] = library_us(graph, node, device) if node.op == "matmul" else sum(
            graph[s].type.nbytes for s in sources(graph, node)) / device.bandwidth * 1e6
        why = ", ".join(f"{way} {us:.3g} us" for way, us in prices.items())
        found.append(Decision((value,), "spill", "reconverging", f"%{value} {node.op} is read after the last tile: {why}"))
    return found


def _taken_out(graph: Graph, part: Part, refused: Iterable[int]) -> set[int]:
    """The refused nodes with all of the part that is made of them, or with all that they are made of: whichever is less.

    Either leaves what remains contiguous: a path that left it and came back would lead through what is taken out.
    """
    inside, starts, seen = set(part), set[int](), list(refused)
    while seen:  # a refused view that the part only reads through: what reads it is what cannot be computed
        node = seen.pop()
        if node in inside:
            starts.add(node)
        else:
            seen += [u for u in graph.users[node] if u in inside or graph[u].op in FREE]
    ways = []
    for upwards in (False, True):
        reached, pending = set(starts), list(starts)
        while pending:
            node = pending.pop()
            fresh = {n for n in (graph[node].args if upwards else graph.users[node]) if n in inside} - reached
            reached |= fresh
            pending += fresh
        ways.append(reached)
    return min(ways, key=len)


# ---------------------------------------------------------------- everything else
def _without_circles(graph: Graph, parts: Sequence[Part], decisions: list[Decision]) -> list[Part]:
    """The parts, without those that would wait for an earlier one that waits for them."""
    kept: list[Part] = []
    for part in parts:
        if _upstream(graph, [*kept, part]) is None:
            decisions.append(Decision(part, "keep apart", "circle", "it would wait for another pipeline that waits for it"))
        else:
            kept.append(part)
    return kept


def _upstream(graph: Graph, pipelines: Sequence[Part]) -> list[int] | None:
    """For each node outside of them the pipelines it waits for, as bits; None if one of them would wait for itself."""
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


def _rest(graph: Graph, stitched: FusionPlan, pipelines: Sequence[Part]) -> list[list[int]]:
    """AStitch's kernels without what the pipelines hold, parted by the pipelines that each operation waits for.

    What waits for the same pipelines is on no path through another: such parts cannot wait for each other in a circle.
    """
    inside = {n for p in pipelines for n in p}
    waits = _upstream(graph, pipelines)
    assert waits is not None, "pipelines are added one by one, none in a circle"
    groups: dict[tuple[int, int], list[int]] = {}
    for number, pattern in enumerate(stitched.kernels):
        for node in pattern.members:
            if node not in inside and is_fusible(graph[node]):
                groups.setdefault((number, waits[node]), []).append(node)
    return list(groups.values())
