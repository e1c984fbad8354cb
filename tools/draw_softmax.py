"""Draw docs/img/softmax.svg: one softmax as XLA's rules cut it, and as one stitched kernel.

    python tools/draw_softmax.py docs/img/softmax.svg

The layout is made by hand; every name, count, place and byte in it is read from the plans the compiler makes.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

import minisitch as ms
from minisitch.fuse import FREE, FusionPlan, Pattern, pattern_inputs
from minisitch.graph import Graph
from minisitch.kernel.ir import Kernel, Load, Store

SHAPE = (8192, 1024)
WIDTH, CHIP = 960, 24
BODY = 112  # the height of the stitched kernel's box: chips, and two notes of two lines
INK, FAINT, PAPER, KERNEL, MEMORY = "#1f2933", "#6b7785", "#ffffff", "#eef3f7", "#dcebe6"
REGISTER, SHARED, BARRIER = "#c9d6e4", "#f7c873", "#c2413b"


def softmax(x):
    """The program in the picture."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def size(nbytes: int) -> str:
    """Bytes as a reader counts them."""
    return f"{nbytes / 2**20:.0f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.0f} KiB"


def label(graph: Graph, node: int) -> str:
    """A value's name: the parameter's, of which this program has one, else its operation."""
    return "x" if graph[node].op == "input" else graph[node].op


def computing(graph: Graph, members: Iterable[int]) -> list[int]:
    """The members that compute something."""
    return [m for m in members if graph[m].op not in FREE and graph[m].kind != "source"]


# ---------------------------------------------------------------- shapes
def text(x: float, y: float, words: str, *, at: str = "start", colour: str = INK, points: int = 13,
         bold: bool = False) -> str:
    """One line of text."""
    weight = ' font-weight="600"' if bold else ""
    return (f'<text x="{x:g}" y="{y:g}" text-anchor="{at}" fill="{colour}" font-size="{points}"{weight}>'
            f"{escape(words)}</text>")


def box(x: float, y: float, width: float, height: float, fill: str, edge: str = "none") -> str:
    """A rounded rectangle."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{edge}"/>'


def arrow(x: float, y0: float, y1: float, colour: str = INK) -> str:
    """A vertical arrow from y0 to y1."""
    tip = 5 if y1 > y0 else -5
    return (f'<path d="M{x:g} {y0:g}V{y1:g}M{x - 4:g} {y1 - tip:g}L{x:g} {y1:g}L{x + 4:g} {y1 - tip:g}" '
            f'stroke="{colour}" fill="none" stroke-width="1.4"/>')


def chips(x: float, y: float, names: list[tuple[str, str]]) -> tuple[list[str], float]:
    """Coloured words in a row; the drawing and where it ends."""
    drawn = []
    for name, colour in names:
        width = 14 + 7.4 * len(name)
        drawn += [box(x, y, width, CHIP, colour), text(x + width / 2, y + 16, name, at="middle")]
        x += width + 6
    return drawn, x - 6


def memory_bar(y: float) -> list[str]:
    """Global memory, across the picture."""
    return [box(24, y, WIDTH - 48, 26, MEMORY), text(WIDTH / 2, y + 18, "global memory", at="middle", colour=FAINT)]


# ---------------------------------------------------------------- the upper half: one box a kernel
def draw_plan(plan: FusionPlan, top: float) -> list[str]:
    """Kernels side by side over a bar of global memory, with what each reads and writes."""
    graph = plan.graph
    moved = sum(graph[v].type.nbytes for p in plan.kernels for v in (*pattern_inputs(graph, p), *p.outputs))
    title = f"{plan.strategy}: {len(plan.kernels)} kernels, {size(moved)} through memory"
    drawn = [text(24, top, title, bold=True, points=15), *memory_bar(top + 138),
             text(24, top + 18, "cut wherever one thread needs what other threads made", colour=FAINT)]
    step = (WIDTH - 48 + 16) / len(plan.kernels)
    for number, pattern in enumerate(plan.kernels):
        drawn += draw_pattern(graph, pattern, 24 + number * step, top + 34, step - 16)
    return drawn


def draw_pattern(graph: Graph, pattern: Pattern, x: float, y: float, width: float) -> list[str]:
    """One kernel: its operations, and arrows from and to memory."""
    names = [(graph[m].op, REGISTER) for m in computing(graph, pattern.members)]
    drawn = [box(x, y, width, 44, KERNEL, FAINT), *chips(x + 10, y + 10, names)[0]]
    ends = [(v, True) for v in pattern_inputs(graph, pattern)] + [(v, False) for v in pattern.outputs]
    for place, (value, reads) in enumerate(ends):
        at = x + width * (place + 0.25) / len(ends)
        drawn.append(arrow(at, y + 104, y + 46) if reads else arrow(at, y + 46, y + 104))
        drawn += [text(at + 7, y + 72, label(graph, value), points=12),
                  text(at + 7, y + 87, size(graph[value].type.nbytes), colour=FAINT, points=12)]
    return drawn


# ---------------------------------------------------------------- the lower half: one kernel, phase by phase
@dataclass(frozen=True)
class PhaseView:
    """What one phase does: values loaded from global and shared memory, operations, outputs stored."""

    loads: tuple[int, ...]
    back: tuple[int, ...]
    operations: tuple[int, ...]
    stores: tuple[int, ...]
    waits: bool  # for the other threads of its block, at its end


def look(kernel: Kernel) -> list[PhaseView]:
    """The phases of a one-segment kernel as the picture needs them."""
    views = []
    scope = {b.name: b for b in kernel.buffers}
    for phase in kernel.segments[0].phases:
        aliases = {v.name: v.buffer for v in phase.views}
        found: dict[str, list[int]] = {"load": [], "back": [], "do": [], "store": []}
        for stmt in (*phase.before, *phase.body):
            buffer = scope.get(aliases.get(getattr(stmt, "buffer", ""), getattr(stmt, "buffer", "")))
            if isinstance(stmt, Load) and buffer is not None and buffer.scope == "input":
                found["load"].append(buffer.node)
            elif isinstance(stmt, Load) and buffer is not None and buffer.scope == "shared":
                found["back"].append(buffer.node)
            elif isinstance(stmt, Store) and buffer is not None and buffer.scope == "output":
                found["store"].append(buffer.node)
            elif not isinstance(stmt, Load | Store):
                found["do"].append(stmt.node)
        for access in phase.wide:
            found["store" if access.stores else "load"].append(scope[access.buffer].node)
        found["do"] += [fold.node for fold in phase.folds]
        loads, back, operations, stores = (tuple(dict.fromkeys(values)) for values in found.values())
        together = kernel.segments[0].thread_map.threads_per_row > 32 and any(f.along == "row" for f in phase.folds)
        views.append(PhaseView(loads, back, operations, stores, together or phase.barrier == "block"))
    return views


def draw_kernel(kernel: Kernel, top: float) -> list[str]:
    """The stitched kernel: phases side by side, barriers between them, and what is kept from one to the next."""
    views, mapping = look(kernel), kernel.segments[0].thread_map
    moved = sum(b.size * np.dtype(b.dtype).itemsize for b in kernel.parameters)
    rows = f"{mapping.rows_per_block} row{'s' if mapping.rows_per_block > 1 else ''} at a time"
    drawn = [text(24, top, f"astitch: 1 kernel, {size(moved)} through memory", bold=True, points=15),
             text(24, top + 18, f"{kernel.grid} blocks of {kernel.block} threads; a block takes {rows}, "
                                f"{mapping.steps} times over", colour=FAINT),
             box(24, top + 50, WIDTH - 48, BODY, KERNEL, FAINT), *memory_bar(top + BODY + 110)]
    step = (WIDTH - 48) / len(views)
    for number in range(len(views)):
        drawn += draw_phase(kernel, views, number, 24 + number * step, top + 50, step)
    return drawn


def draw_phase(kernel: Kernel, views: list[PhaseView], number: int, x: float, y: float, width: float) -> list[str]:
    """One phase of the kernel, with the barrier before it and its traffic below it."""
    graph, view = kernel.graph, views[number]
    shared = {b.node for b in kernel.buffers if b.scope == "shared"}
    kept = [(graph[n].op, SHARED if n in shared and graph[n].kind == "map" else REGISTER) for n in view.operations]
    fits = int((width - 32) / 7)  # letters of 12 points, in a wide font
    lines = [line for note in notes(kernel, view) for line in textwrap.wrap(note, fits, subsequent_indent="  ")]
    drawn = [*chips(x + 16, y + 14, kept)[0],
             *(text(x + 16 + 10 * line.startswith(" "), y + 56 + 15 * place, line.strip(), colour=FAINT, points=12)
               for place, line in enumerate(lines))]
    if number and views[number - 1].waits:
        drawn += [box(x - 2, y + 5, 4, BODY - 10, BARRIER),
                  text(x, y - 6, "block barrier", at="middle", colour=BARRIER, points=12)]
    ends = [(v, True) for v in view.loads] + [(v, False) for v in view.stores]
    for place, (value, reads) in enumerate(ends):
        at = x + width * (place + 0.25) / len(ends)
        again = reads and any(value in earlier.loads for earlier in views[:number])
        name, amount = label(graph, value), size(graph[value].type.nbytes)
        up, down = (y + BODY + 58, y + BODY + 2) if reads else (y + BODY + 2, y + BODY + 58)
        drawn += [arrow(at, up, down, FAINT if again else INK),
                  text(at + 7, y + BODY + 28, f"{name} again" if again else name, points=12),
                  text(at + 7, y + BODY + 43, "from cache" if again else amount, colour=FAINT, points=12)]
    return drawn


def notes(kernel: Kernel, view: PhaseView) -> list[str]:
    """Where values that other phases share are found and kept, one line each."""
    graph = kernel.graph
    found = [f"{graph[node].op}: read back from shared memory" for node in view.back]
    keeps = {node for node, _, _, _ in kernel.placements}
    shared = {b.node: b for b in kernel.buffers if b.scope == "shared"}
    held = {b.node: b.size for b in kernel.buffers if b.scope == "register"}
    for node in view.operations:
        if node not in keeps or node in graph.outputs:
            continue
        if node in shared:
            nbytes = shared[node].size * np.dtype(shared[node].dtype).itemsize
            what = "which keep the row" if graph[node].kind == "map" else "where the warps meet"
            found.append(f"{graph[node].op}: {nbytes:,} bytes of shared memory, {what}")
        else:
            found.append(f"{graph[node].op}: {held[node]} registers of every thread" if node in held else
                         f"{graph[node].op}: a register of every thread")
    return found


def draw() -> str:
    """The whole picture."""
    x = np.zeros(SHAPE, np.float32)
    plan = ms.lower(softmax, x, strategy="xla", target="cuda", device="v100", stop_after="fuse")
    (kernel,) = ms.lower(softmax, x, strategy="astitch", target="cuda", device="v100", stop_after="schedule")
    height = 540
    body = [box(0.5, 0.5, WIDTH - 1, height - 1, PAPER, "#cfd8e0"),
            text(24, 34, f"softmax(x), x: float32[{SHAPE[0]}, {SHAPE[1]}], on a V100", points=17, bold=True),
            *draw_plan(plan, 72), *draw_kernel(kernel, 280)]
    title = "A softmax as several kernels that meet in global memory, and as one stitched kernel"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" font-family="system-ui, sans-serif"><title>{title}</title>\n' + "\n".join(body) + "\n</svg>\n")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
