"""The report as one HTML page, without scripts or external files, for light and dark screens.

In:  ``Stages`` and the report's text. Out: a fragment (for a notebook) or a whole page. Pictures
come first. All facts and numbers are in the text.
"""

import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from keyword import kwlist

from ..fuse import VIEWS, count, pattern_inputs
from ..graph import Graph
from ..kernel import Kernel
from ..runtime import Stages
from ..stitch.plan import StitchPlan
from ..strategies.kitsune.models.simulate import dataflow
from ..strategies.kitsune.predict import workload
from .picture import Arrow, Box, layered, lifetimes, thread_map
from .svg import PALETTE, Picture
from .timeline import timeline

SCHEMES = {"local": PALETTE[0], "regional": PALETTE[2], "global": PALETTE[4], "independent": PALETTE[6]}
MEANING = {"local": "in a register of the thread that reads it",
           "regional": "made and read by the same block",
           "global": "through memory, behind a grid barrier"}

WORDS = re.compile(rf"(?P<comment>#.*)|(?P<keyword>\b({'|'.join(kwlist)})\b)|(?P<number>\b\d[\w.]*)")
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


def captioned(heading: str, words: str, *pictures: str) -> str:
    """Pictures under a heading and a paragraph."""
    drawn = "".join(f'<div class="scroll">{picture}</div>' for picture in pictures)
    return f"<h2>{escape(heading)}</h2><p>{words}</p>{drawn}"


def content(name: str, stages: Stages, pictures: str, text: str) -> str:
    """The report's body: overview, ``pictures``, kernels, pipelines, and the text of all stages."""
    plan, colours = stages.plan, _colours(stages)
    kernels = {kernel.name: (kernel, stitched) for kernel, stitched in zip(stages.kernels, stages.stitches, strict=True)}
    return "".join([
        f"<h1>{escape(name)}</h1><p>Strategy <b>{escape(plan.strategy)}</b>, scheduled for "
        f"<b>{escape(stages.device.name)}</b>.</p>",
        captioned("What runs", "Each box is one kernel or one library call (dashed), from top to "
                  "bottom; boxes of one colour are the same kernel. Point at a box or an arrow for "
                  "details.", overview(name, stages)),
        pictures, *(_kernel(*kernel, colours[name]) for name, kernel in kernels.items()),
        *(captioned(f"Pipeline {flow.source.name}", "Which tile each stage has when. Simulated, "
                    "not measured: full rates, and a tile here is as many of the kernel's as a "
                    "stage has blocks.", timeline(dataflow(*workload(
                        flow.body.graph, flow.source.pipeline, stages.device), stages.device)))
          for flow in stages.flows),
        f"<h2>Every stage as text</h2>{folded(text)}"])


def folded(text: str) -> str:
    """Each stage of a report's text folded under its heading, kernels coloured as programs."""
    first, *stages = text.split("\n\n# ")
    parts = [f"<pre>{escape(first)}</pre>"]
    for stage in stages:
        heading, _, rest = stage.partition("\n")
        shown = coloured(rest) if heading.startswith("after emit") else escape(rest, quote=False)
        parts.append(f"<details><summary># {escape(heading)}</summary><pre>{shown}</pre></details>")
    return "".join(parts)


def coloured(program: str) -> str:
    """A program as HTML, with its comments, keywords and numbers marked."""
    return WORDS.sub(lambda found: f'<i class="{found.lastgroup}">{found[0]}</i>', escape(program, quote=False))


def _colours(stages: Stages) -> dict[str, str]:
    """A colour for each different kernel."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(k.name for k in stages.kernels))}


# ---------------------------------------------------------------- the overview
def overview(name: str, stages: Stages) -> Picture:
    """One box for each pattern. Inputs of the program are not drawn."""
    graph, colour = stages.graph, _colours(stages)
    boxes, edges = [], []
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
    return layered(boxes, edges, f"kernels and library calls of {name}")


def _few(words: Iterable[str], most: int) -> str:
    """Words in order without repeats, shortened to ``most``."""
    found = list(dict.fromkeys(words))
    return " ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


# ---------------------------------------------------------------- one kernel
def _kernel(kernel: Kernel, stitched: StitchPlan, colour: str) -> str:
    """The pictures of one kernel: its operations, its threads, its shared memory."""
    maps = dict.fromkeys(segment.thread_map for segment in kernel.segments)
    threads = "".join(f'<p>{escape(m.rule)}: {escape(m.why)}</p><div class="scroll">{thread_map(m) if m.threads > 1 else ""}</div>'
                      for m in maps)  # of a CPU the words say all: a range's rows follow each other
    return (f'<section class="kernel" style="--kernel:{colour}"><h2>Kernel <code>{escape(kernel.name)}</code></h2>'
            f'<div class="pair"><div><h3>Operations and their schemes</h3><p>{_legend(stitched)}</p>'
            f'<div class="scroll">{body_picture(stitched)}</div></div><div><h3>Threads</h3>{threads}</div></div>'
            f'<div class="scroll">{lifetimes(kernel)}</div></section>')


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
    drawn = [n for n in graph.nodes if n.id in stitched.final or n.op not in (*VIEWS, "constant", "iota")]
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
