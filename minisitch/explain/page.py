"""The report as one HTML page, without scripts or external files, for light and dark screens.

In:  an ``Explanation``. Out: a fragment (for a notebook) or a whole page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

import numpy as np

from ..errors import MinisitchError
from ..fuse import FREE, Decision, count, pattern_inputs
from ..graph import Graph
from ..kernel.ir import Kernel
from ..stitch.plan import StitchPlan
from ..strategies.kitsune.emit import Flow
from ..strategies.kitsune.models.simulate import dataflow
from ..strategies.kitsune.predict import workload
from ..testing import random_inputs
from .explore.trial import KernelTrial
from .film import film
from .picture import Arrow, Box, layered, lifetimes, memory_map, thread_map
from .report import Card, Explanation
from .svg import PALETTE, Picture
from .timeline import timeline

SCHEMES = {"local": PALETTE[0], "regional": PALETTE[2], "global": PALETTE[4], "independent": PALETTE[6]}
MEANING = {"local": "in a register of the thread that reads it", "regional": "made and read by the same block",
           "global": "through memory, behind a grid barrier"}

MOST_FILMED = 2_000  # elements of a kernel's arrays: to step it takes a third of a second

STYLE = (files(__package__) / "page.css").read_text(encoding="utf-8")


def page(title: str, fragments: Iterable[str]) -> str:
    """A whole page around fragments."""
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
            f"<style>body{{margin:0}}:root{{color-scheme:light dark}}{STYLE}</style></head>"
            f'<body><main class="minisitch">{"".join(fragments)}</main></body></html>\n')


def fragment(body: str) -> str:
    """A report's body for a notebook's cell: its style, and no document around it."""
    return f'<div class="minisitch"><style>{STYLE}</style>{body}</div>'


def content(report: Explanation, heading: str = "", pictures: str = "") -> str:
    """The report's body: overview, ``pictures``, kernels, pipelines, memory, decisions, the program."""
    stages = report.stages
    facts = {"operations": len(stages.graph), "kernels": len(stages.plan.kernels), "different": len(report.cards),
             "library calls": len(stages.plan.library_calls), "pipelines": len(stages.plan.pipelines),
             "bytes of workspace": report.workspace, "bytes of queues": sum(flow.own_bytes for flow in stages.flows)}
    out = [f"<h1>{escape(heading or report.name)}</h1>",
           f"<p>Strategy <b>{escape(stages.plan.strategy)}</b>, scheduled for <b>{escape(stages.device.name)}</b>. "
           f"{escape(report.widened)}</p>",
           _facts(facts),
           "<h2>What runs</h2><p>Each box is one kernel or one library call (dashed), from top to bottom; boxes of one "
           "colour are the same kernel. Point at a box or an arrow for details.</p>",
           f'<div class="scroll">{overview(report)}</div>', pictures]
    out += [kernel_card(report, card) for card in report.cards]
    out += [pipeline_card(report, number, flow) for number, flow in enumerate(stages.flows)]
    residents = [(r.label, r.offset, r.life.nbytes, r.life.first, r.life.last) for r in report.residents]
    out += ["<h2>Memory between launches</h2><p>Values that are never alive at the same launch share bytes; on a CPU a kernel with "
            "grid barriers is several launches.</p>",
            f'<div class="scroll">{memory_map(residents, report.workspace, "workspace")}</div>',
            "<h2>What was decided about the plan</h2>", decisions_table(stages.plan.decisions),
            f"<details><summary>The program, {count(len(stages.graph), 'operation')}</summary>"
            f"<pre>{escape(str(stages.graph))}</pre></details>"]
    return "".join(out)


def _facts(facts: dict[str, int]) -> str:
    spans = "".join(f"<span><b>{v:,}</b> {escape(k)}</span>" for k, v in facts.items())
    return f'<div class="facts">{spans}</div>'


# ---------------------------------------------------------------- the overview
def overview(report: Explanation) -> Picture:
    """One box for each pattern. Inputs of the program are not drawn."""
    stages, graph = report.stages, report.stages.graph
    boxes, edges = [], []
    colour = {card.kernel.name: PALETTE[i % len(PALETTE)] for i, card in enumerate(report.cards)}
    kernels = iter(stages.kernels)
    for number, pattern in enumerate(stages.plan.patterns):
        result = max((graph[o] for o in pattern.outputs), key=lambda node: node.type.nbytes)
        kinds = " ".join(f"%{o}: {graph[o].type}" for o in pattern.outputs)
        if pattern.kind == "library":
            boxes.append(Box((result.op, str(result.type)), "", f"library call, step {number}: {result}", dashed=True))
            continue
        work = [graph[m] for m in pattern.members if graph[m].kind in ("map", "reduce") or graph[m].op == "matmul"]
        done = count(len(work), "operation")
        tip = "\n".join([f"step {number}: {done} -> {kinds}", *(str(graph[m]) for m in pattern.members[:40])])
        kernel = None if pattern.kind == "pipeline" else next(kernels)
        lines = (kernel.name if kernel else "pipeline", _few((n.op for n in work), 5) or "copy", str(result.type))
        boxes.append(Box(lines, colour[kernel.name] if kernel else "", tip if kernel else f"{tip}\n{pattern.composition}"))
    writer = {o: i for i, p in enumerate(stages.plan.patterns) for o in p.outputs}
    for number, pattern in enumerate(stages.plan.patterns):
        for value in pattern_inputs(graph, pattern):
            if value in writer:
                type = graph[value].type
                edges.append(Arrow(writer[value], number, f"%{value} {graph[value].op}: {type}, {type.nbytes:,} bytes"))
    return layered(boxes, edges, f"kernels and library calls of {report.name}")


def _few(words: Iterable[str], most: int) -> str:
    """Words in order without repeats, shortened to ``most``."""
    found = list(dict.fromkeys(words))
    return " ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


# ---------------------------------------------------------------- one kernel
def kernel_card(report: Explanation, card: Card) -> str:
    """All about one kernel: picture, threads, placements, loop program, both texts, decisions."""
    kernel, stitched = card.kernel, card.stitched
    index = report.cards.index(card)
    times = f", launched {len(card.patterns)} times" if len(card.patterns) > 1 else ""
    facts = {"operations": sum(n.kind in ("map", "reduce") for n in kernel.graph.nodes),
             "values with a loop of their own": len(stitched.sub_roots), "segments": len(kernel.segments)}
    out = [f'<section class="kernel" style="--kernel:{PALETTE[index % len(PALETTE)]}">',
           f"<h2>Kernel <code>{escape(kernel.name)}</code>{times}</h2>",
           _facts(facts),
           '<div class="pair"><div><h3>Operations and their schemes</h3><p>' + _legend(stitched) + "</p>"
           f'<div class="scroll">{body_picture(stitched)}</div></div>',
           "<div><h3>Threads</h3>", *_thread_maps(card), "</div></div>",
           "<h3>Where each value lives</h3>", _placements(kernel.graph, kernel.placements),
           f'<div class="scroll">{lifetimes(card.sources["cuda"].kernel)}</div>', kernel_film(card),
           f"<details><summary>Its own program: the ids in this card</summary><pre>{escape(str(card.body))}</pre></details>",
           "<h3>The loop program</h3>", f"<pre>{escape(str(kernel))}</pre>", '<div class="pair">']
    for target, source in card.sources.items():
        out.append(f"<div><h3>Text for {escape(target)}</h3><p>{_launch(source.kernel)}</p>"
                   f"<pre>{escape(source.text)}</pre></div>")
    out += ["</div>", f"<p>{escape(card.figures)}</p>" * bool(card.figures),
            f"<details><summary>{len(kernel.decisions)} decisions</summary>",
            decisions_table(kernel.decisions), "</details></section>"]
    return "".join(out)


def kernel_film(card: Card) -> str:
    """What the threads of the first block touch, if the kernel is small enough to be stepped at once."""
    inputs = random_inputs(card.body.graph, np.random.default_rng(0))
    trial = KernelTrial(card.sources["cuda"], card.body, tuple(inputs))
    if trial.cells > MOST_FILMED:
        return ""
    try:
        drawn = film(trial.events(), trial.source.text)
    except MinisitchError:
        return ""  # drawn inputs need not be valid indices
    return ("<details><summary>Film of its first block, stepped on drawn inputs: a frame is what happens between two "
            f'barriers</summary><div class="scroll">{drawn}</div></details>')


def pipeline_card(report: Explanation, number: int, flow: Flow) -> str:
    """A pipeline: the simulated timeline, then stages, arrays and text."""
    source, device = flow.source, report.stages.device
    run = dataflow(*workload(flow.body.graph, source.pipeline, device), device)
    facts = {"stages": len(source.pipeline.stages), "queues": len(source.pipeline.queues), "blocks": source.grid,
             "threads a block": source.block, "bytes of queues": flow.own_bytes}
    return "".join([
        '<section class="kernel" style="--kernel:#888888">',
        f"<h2>Pipeline <code>{escape(source.name)}</code></h2>", _facts(facts),
        "<h3>Which tile each stage has when</h3><p>Simulated, not measured: full rates, and a tile here is as many of the "
        "kernel's as a stage has blocks.</p>",
        f'<div class="scroll">{timeline(run)}</div>',
        "<h3>Body, stages, arrays and text</h3>", f"<pre>{escape(str(flow))}</pre>",
        f"<p>{escape(report.machine_code(number))}</p>" * bool(report.machines), "</section>"])


def _launch(kernel: Kernel) -> str:
    """How the kernel is launched on its device, in one line."""
    if kernel.device.kind == "cpu":
        return (f"Scheduled for {escape(kernel.device.name)}: {count(kernel.grid, 'range')} of tasks over "
                f"{count(kernel.device.sms, 'core')}, {kernel.shared_bytes:,} bytes of scratch rows, "
                f"{count(kernel.grid_barriers, 'join')} between segments.")
    return (f"Scheduled for {escape(kernel.device.name)}: {count(kernel.grid, 'block')} of {count(kernel.block, 'thread')}, "
            f"{kernel.shared_bytes:,} bytes of shared memory a block, {count(kernel.block_barriers, 'block barrier')}, "
            f"{count(kernel.grid_barriers, 'grid barrier')}.")


def _legend(stitched: StitchPlan) -> str:
    seen = dict.fromkeys(stitched.scheme(s).name for s in stitched.sub_roots)
    colours = [(s, SCHEMES.get(s, "#888888")) for s in seen]
    return "".join(f'<span class="chip" style="border-color:{c};background:{c}44">{escape(s)}: '
                   f'{MEANING.get(s, "")}</span>' for s, c in colours)


def body_picture(stitched: StitchPlan, most: int = 60) -> Picture:
    """One kernel's operations without views.

    Sub-roots, and the ways to their readers, have their scheme's colour.
    """
    graph = stitched.graph
    drawn = [n for n in graph.nodes if n.id in stitched.final or n.op not in (*FREE, "constant", "iota")]
    if len(drawn) > most:  # too many to read: draw only sub-roots and inputs
        drawn = [n for n in drawn if n.id in stitched.final or n.op == "input"]
    place = {n.id: i for i, n in enumerate(drawn)}
    boxes = []
    for node in drawn:
        sub_root = stitched.final.get(node.id)
        lines = (f"%{node.id} {node.op}", str(node.type))
        scheme, why = stitched.scheme(sub_root) if sub_root else ("", "")
        where = f"\n{scheme}: {why}" if why else ""
        colour = SCHEMES.get(scheme, "")
        boxes.append(Box(lines, colour, f"{node}{where}", dashed=node.op == "input"))
    colours = {s.node: SCHEMES.get(stitched.scheme(s).name, "") for s in stitched.sub_roots}
    edges = [Arrow(place[a], place[n.id], str(graph[a].type), colours.get(a, "")) for n in drawn
             for a in _drawn_operands(graph, n.id, place)]
    return layered(boxes, edges, "operations of the kernel")


def _drawn_operands(graph: Graph, node: int, place: dict[int, int]) -> list[int]:
    """The nearest drawn nodes that lead to ``node``."""
    found: dict[int, None] = {}
    pending, seen = list(graph[node].args), set()
    while pending:
        arg = pending.pop()
        if arg in place:
            found[arg] = None
        elif arg not in seen:
            seen.add(arg)
            pending.extend(graph[arg].args)
    return sorted(found)


def _thread_maps(card: Card) -> list[str]:
    """One picture for each different thread mapping, of the GPU's schedule if there is one."""
    kernel = next((s.kernel for s in card.sources.values() if s.kernel.device.kind == "gpu"), card.kernel)
    maps = list(dict.fromkeys(s.thread_map for s in kernel.segments))
    return [f"<p>{escape(kernel.device.name)}, {escape(m.rule)}: {escape(m.why)}</p>"
            f'<div class="scroll">{thread_map(m)}</div>' for m in maps]


def _placements(graph: Graph, placements: Sequence[tuple[int, str, str, str]]) -> str:
    rows = [(f"%{node} {graph[node].op}", str(graph[node].type), scheme, where, why, graph[node].where)
            for node, scheme, where, why in placements]
    return table(("value", "type", "scheme", "where", "why", "your line"), rows)


def decisions_table(decisions: Sequence[Decision]) -> str:
    """A table of decisions: values, verdict, rule, reason."""
    if not decisions:
        return "<p>None.</p>"
    return table(("values", "verdict", "rule", "why"),
                 [(_few((f"%{i}" for i in d.at), 8), d.verdict, d.rule, d.why) for d in decisions])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], style: str = "plain") -> str:
    """A table. ``style`` is its class."""
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
