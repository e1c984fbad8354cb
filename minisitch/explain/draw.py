"""Pictures for people who learn: what moves through memory, who computes what, when threads wait.

In:  a plan, a graph, a device, a comparison, a recorded step. Out: a ``Picture``.

    trips(*plans)               kernels from top to bottom, and what each reads and writes
    graph(plan)                 operations as boxes, one colour a kernel
    machine(device)             grid, block, warp, thread, and the memory of each
    threads(owners, 32)         which thread made which element
    ruler(distances, allowed)   how far answers are from the true one
    roofline(comparison)        operations a second against operations a byte, a dot a strategy
    bars(comparison)            bytes that kernels read and write, a bar a strategy

``film`` draws recorded steps.
"""

from collections.abc import Mapping, Sequence
from math import floor, log10

import numpy as np

from ..device import Device
from ..errors import MinisitchError, needs
from ..fuse import VIEWS, FusionPlan, Pattern, behind_views, count, pattern_inputs, returned
from ..graph import Graph, Node
from .compare import Comparison, size
from .picture import Arrow, Box, layered
from .svg import (
    LINE_HEIGHT,
    MARGIN,
    PALETTE,
    READ,
    WAIT,
    WIDTH,
    WRITTEN,
    Picture,
    arrow,
    dot,
    line,
    rectangle,
    svg,
    text,
    wide,
)

BAR, SLOT = 18, 26  # the width of a bar of memory, the height of one arrow with its label
LABEL = 118  # the length of an arrow: 16 letters


# ---------------------------------------------------------------- trips to memory
def trips(*plans: FusionPlan) -> Picture:
    """Plans side by side: each kernel, with the values that it reads from memory and writes."""
    needs("trips(minisitch.lower(f, x, stop_after='fuse'))", *((plan, FusionPlan) for plan in plans))
    across = max(WIDTH / len(plans), BAR + LABEL + 100)
    columns = [_column(plan, number * across, across) for number, plan in enumerate(plans)]
    body = [shape for drawn, _ in columns for shape in drawn]
    title = "; ".join(f"{plan.strategy}: {_summary(plan)}" for plan in plans)
    return svg(across * len(plans), max(bottom for _, bottom in columns) + MARGIN, body, title)


def moved(plan: FusionPlan) -> int:
    """Bytes of all values that kernels read from memory and write to it."""
    needs("moved(minisitch.lower(f, x, stop_after='fuse'))", (plan, FusionPlan))
    return sum(plan.graph[v].type.nbytes for p in plan.patterns
               for v in (*pattern_inputs(plan.graph, p), *p.outputs))


def _summary(plan: FusionPlan) -> str:
    return f"{count(len(plan.patterns), 'kernel')}, {size(moved(plan))} through memory"


def _column(plan: FusionPlan, x: float, across: float) -> tuple[list[str], float]:
    """The drawing of one plan, and where it ends."""
    kernels, moving = _summary(plan).split(", ")
    drawn = [text(x + MARGIN, 16, f"{plan.strategy}: {kernels}", bold=True),
             text(x + MARGIN, 33, moving, faint=True)]
    y = top = 44.0
    for pattern in plan.patterns:
        boxes, tall = _kernel(plan.graph, pattern, x + MARGIN + BAR, y, across - 2 * MARGIN - BAR)
        drawn += boxes
        y += tall + 8
    across, down = x + MARGIN + 13, (top + y) / 2
    drawn += [rectangle(x + MARGIN, top, BAR, y - top - 8, PALETTE[2], "global memory"),
              f'<g transform="rotate(-90 {across:.1f} {down:.1f})">'
              + text(across, down, "memory", "middle") + "</g>"]
    return drawn, y


def _kernel(graph: Graph, pattern: Pattern, x: float, y: float, width: float) -> tuple[list[str], float]:
    """One kernel beside the bar of memory that ends at ``x``, and its height."""
    work = [graph[m].op for m in pattern.members if graph[m].op not in VIEWS and graph[m].kind != "source"]
    ends = [(v, True) for v in pattern_inputs(graph, pattern)] + [(v, False) for v in pattern.outputs]
    tall, left = max((len(work) or 1) * LINE_HEIGHT + MARGIN, len(ends) * SLOT), x + LABEL + 6
    drawn = [rectangle(left, y, width - LABEL - 6, tall, PALETTE[6], extra=' rx="5"')]
    drawn += [text(left + 6, y + 15 + n * LINE_HEIGHT, op[:11]) for n, op in enumerate(work or ["copy"])]
    for n, (value, reads) in enumerate(ends):
        at = y + n * SLOT if reads else y + tall - (len(ends) - n) * SLOT
        start, end, colour = (x, left, READ) if reads else (left, x, WRITTEN)
        drawn += [text(x + 4, at + 12, f"{_name(graph[value])} {size(graph[value].type.nbytes)}"),
                  arrow(start, at + 18, end, at + 18, colour)]
    return drawn, tall


def _name(node: Node) -> str:
    """A node's number and operation, or the name of an argument."""
    return str(node.attr("name")) if node.op == "input" and node.attr("name") else f"%{node.id} {node.op}"


# ---------------------------------------------------------------- graphs
def graph(drawn: Graph | FusionPlan) -> Picture:
    """The operations of a program as boxes.

    Of a graph every node is drawn, and the ways out of a value that is used several times are
    coloured. Of a plan, views and constants are left out, each kernel and library call has a
    colour, and the red ways go through memory.
    """
    needs("graph(minisitch.lower(f, x, stop_after='fuse'))", (drawn, Graph | FusionPlan))
    return _kernels_in_colours(drawn) if isinstance(drawn, FusionPlan) else _uses_in_colours(drawn)


def _uses_in_colours(graph: Graph) -> Picture:
    often = [node.id for node in graph.nodes if len(graph.users[node.id]) > 1]
    colours = {value: PALETTE[n % len(PALETTE)] for n, value in enumerate(often)}
    boxes = [Box((_name(n), str(n.type)), colours.get(n.id, ""), str(n), n.op == "input") for n in graph.nodes]
    edges = [Arrow(a, n.id, str(graph[a].type), colours.get(a, "")) for n in graph.nodes for a in sorted({*n.args})]
    return layered(boxes, edges, "operations of the program")


def _kernels_in_colours(plan: FusionPlan) -> Picture:
    graph, results = plan.graph, returned(plan.graph)
    kernel = {m: number for number, p in reversed([*enumerate(plan.patterns)]) for m in p.members}
    shown = [n for n in graph.nodes if n.op not in VIEWS and (n.kind != "source" or n.op == "input")]
    place = {node.id: number for number, node in enumerate(shown)}
    boxes, edges = [], []
    for node in shown:
        if node.op == "input":
            boxes.append(Box((_name(node), str(node.type)), "", str(node), dashed=True))
            continue
        number = kernel[node.id]
        lines = (_name(node), f"{plan.patterns[number].kind} {number}", *["result"] * (node.id in results))
        boxes.append(Box(lines, PALETTE[number % len(PALETTE)], str(node)))
        for source in dict.fromkeys(behind_views(graph, a) for a in node.args):
            if source in place:
                inside = graph[source].op != "input" and kernel[source] == kernel[node.id]
                tip = f"%{source}: {graph[source].type}"
                edges.append(Arrow(place[source], place[node.id], tip, "" if inside else WAIT))
    return layered(boxes, edges, f"operations of {count(len(plan.patterns), 'kernel')}")


# ---------------------------------------------------------------- the machine
def machine(device: Device) -> Picture:
    """A GPU as a program sees it: who runs, and which memory belongs to whom."""
    needs("machine(minisitch.get_device('v100'))", (device, Device))
    w = WIDTH - 2 * MARGIN
    body = [text(MARGIN, 16, f"{device.name}: {count(device.sms, 'multiprocessor')}", bold=True),
            rectangle(MARGIN, 26, w, 262, "", "a grid"),
            text(MARGIN + 8, 43, "grid: all threads of one launch"),
            text(MARGIN + 8, 60, f"a launch costs about {device.launch_us:g} us", faint=True),
            *_block(MARGIN + 8, f"block 0: up to {device.max_block} threads", device),
            *_block(MARGIN + 238, "block 1, and many more", device),
            rectangle(MARGIN, 300, w, 46, PALETTE[2], "global memory"),
            text(MARGIN + 8, 318, "global memory: all threads, and the next kernel"),
            text(MARGIN + 8, 336, f"{device.bandwidth / 1e9:,.0f} GB a second; the slowest place", faint=True)]
    return svg(WIDTH, 356, body, f"grid, blocks, warps and threads of {device.name}, and their memory")


def _block(x: float, name: str, device: Device) -> list[str]:
    drawn = [rectangle(x, 70, 218, 210, PALETTE[0], "a block"), text(x + 8, 87, name)]
    for n, y in enumerate((96, 142)):
        drawn += [rectangle(x + 8, y, 202, 38, PALETTE[1], "a warp"),
                  text(x + 14, y + 14, f"warp {n}: 32 threads"),
                  *(rectangle(x + 14 + 6 * t, y + 20, 4, 12, PALETTE[6], f"thread {32 * n + t}") for t in range(32))]
    return [*drawn, text(x + 8, 200, "a thread has registers,", faint=True),
            text(x + 8, 217, "which nobody else can read", faint=True),
            rectangle(x + 8, 226, 202, 46, PALETTE[3], "shared memory"),
            text(x + 14, 244, f"shared memory: {device.shared_per_block // 1024} kB"),
            text(x + 14, 261, "for this block's threads", faint=True)]


# ---------------------------------------------------------------- who computes what
def threads(owners: Sequence[int] | np.ndarray, block: int, name: str = "y") -> Picture:
    """All threads of a launch, and the element that each of them made.

    ``owners[i]`` is the number of the thread that made element ``i``, counted over the whole grid.
    ``block`` is the number of threads in a block. A thread without an element is drawn dashed.
    """
    made: dict[int, int] = {}
    for element, owner in enumerate(np.asarray(owners).ravel().tolist()):
        made.setdefault(owner, element)
    blocks, y, body = -(-(max(made, default=0) + 1) // block), 8.0, []
    for number in range(blocks):
        body.append(text(MARGIN, y + 14, f"block {number}: threads 0 to {block - 1}", bold=True))
        for thread in range(block):
            own, colour = made.get(number * block + thread), PALETTE[number % len(PALETTE)]
            body += _one_thread(thread, own, colour, y + 22, f"block {number} thread {thread}: {name}")
        y += -(-block // 16) * 36 + 30
    title = f"{count(blocks, 'block')} of {count(block, 'thread')}, and the elements of {name} that they made"
    return svg(WIDTH, y, body, title)


def _one_thread(thread: int, element: int | None, colour: str, y: float, who: str) -> list[str]:
    cell = (WIDTH - 2 * MARGIN) / 16
    x, top = MARGIN + thread % 16 * cell, y + thread // 16 * 36
    number = text(x + cell / 2, top + 10, f"t{thread}", "middle", size=10, faint=True)
    if element is None:
        return [number, rectangle(x + 1, top + 13, cell - 2, 18, "", f"{who}: nothing", ' stroke-dasharray="3 3"')]
    return [number, rectangle(x + 1, top + 13, cell - 2, 18, colour, f"{who}[{element}]"),
            text(x + cell / 2, top + 26, str(element), "middle")]


# ---------------------------------------------------------------- scales
class _Scale:
    """Maps numbers to pixels. A factor of ten has the same length everywhere."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        known = [value for value in values if value > 0]
        self.low, self.high = floor(log10(min(known))) - 1, floor(log10(max(known))) + 1
        self.first, self.step = first, (last - first) / (self.high - self.low)

    def __call__(self, value: float) -> float:
        return self.first + self.step * ((log10(value) if value > 0 else self.low) - self.low)

    @property
    def powers(self) -> range:
        return range(self.low, self.high + 1)


def ruler(distances: Mapping[str, float], allowed: float) -> Picture:
    """How far each answer is from the true one, and how far an honest answer may be.

    A step of the scale is a factor of ten. An answer without any distance stands at its left end.
    """
    left, right, y = MARGIN + 20, WIDTH - MARGIN - 20, 34 + 22 * len(distances)
    at = _Scale([*distances.values(), allowed], left, right)
    body = [text(MARGIN, 16, "distance from the true result", bold=True),
            rectangle(left, 26, at(allowed) - left, y - 26, PALETTE[2], f"allowed: {allowed:.2g}")]
    for n, (name, distance) in enumerate(distances.items()):
        x, top, words = at(distance), 44 + 22 * n, f"{name}: {distance:.1e}" if distance else f"{name}: 0"
        body.append(dot(x, top - 4, READ if distance <= allowed else WAIT, words))
        body.append(text(x + 10, top, words) if x < WIDTH / 2 else text(x - 10, top, words, "end"))
    body += [line(left, y, right, y), text(WIDTH / 2, y + 38, f"an honest answer may be {allowed:.1e} away", "middle")]
    for power in at.powers:
        x = at(10.0 ** power)
        body += [line(x, y, x, y + 5), text(x, y + 19, f"1e{power}", "middle", faint=True)]
    return svg(WIDTH, y + 48, body, f"distances from the true result; up to {allowed:.2g} is allowed")


def bars(found: Comparison) -> Picture:
    """The bytes that each strategy's kernels read (blue) and write (orange)."""
    needs("bars(minisitch.compare(f, x))", (found, Comparison))
    left = max(wide(row.strategy) for row in found.rows) + 2 * MARGIN
    scale = (WIDTH - left - wide("999.9 MB") - 2 * MARGIN) / max(1, *(row.bytes_read + row.bytes_written for row in found.rows))
    body = []
    for number, row in enumerate(found.rows):
        y, read, written = MARGIN + SLOT * number, row.bytes_read * scale, row.bytes_written * scale
        body += [text(left - MARGIN, y + 13, row.strategy, "end"), rectangle(left, y, read, BAR, READ),
                 rectangle(left + read, y, written, BAR, WRITTEN),
                 text(left + read + written + MARGIN, y + 13, size(row.bytes_read + row.bytes_written))]
    return svg(WIDTH, 2 * MARGIN + SLOT * len(found.rows), body, "bytes read and written by each strategy")


def roofline(found: Comparison) -> Picture:
    """What each strategy's operations a byte allow at most, and what the model says it reaches.

    Across: operations for each byte of global memory. Up: operations a second. Under the slope a
    program waits for memory, under the flat part for arithmetic (Williams et al. 2009). Raises
    MinisitchError for a CPU, whose caches are faster than the slope.
    """
    needs("roofline(minisitch.compare(f, x, device='v100', target='step'))", (found, Comparison))
    device, dots = found.device, []
    if device.kind != "gpu":
        raise MinisitchError(f"a roofline is of a GPU, and this comparison is of {device.name}; write device='v100'")
    for row in found.rows:
        g = found.graphs[row.strategy]
        work = sum(max(n.type.size, *(g[a].type.size for a in n.args)) for n in g.nodes if n.kind in ("map", "reduce"))
        dots.append((row.strategy, work / max(1, row.bytes_read + row.bytes_written), work / (row.modelled_us * 1e-6)))
    ridge = device.flops / device.bandwidth
    left, right, top, bottom = 56.0, WIDTH - 16.0, 40.0, 270.0
    x = _Scale([ridge, *(intensity for _, intensity, _ in dots)], left, right)
    low, high = 10.0 ** x.low, 10.0 ** x.high
    y = _Scale([device.flops, low * device.bandwidth * 10, *(v for *_, v in dots)], bottom, top)
    body = [text(MARGIN, 16, f"{found.name} on {device.name}", bold=True),
            text(MARGIN, 33, "operations a second", faint=True),
            line(x(low), y(low * device.bandwidth), x(ridge), y(device.flops), WAIT, width=2),
            line(x(ridge), y(device.flops), x(high), y(device.flops), WAIT, width=2),
            line(left, bottom, right, bottom), line(left, top, left, bottom),
            text(right, bottom + 36, "operations a byte", "end", faint=True)]
    body += [text(x(10.0 ** p), bottom + 19, f"1e{p}", "middle", faint=True) for p in x.powers]
    body += [text(left - 6, y(10.0 ** p) + 4, f"1e{p}", "end", faint=True) for p in y.powers]
    taken = 0.0  # names that would lie on each other move down
    for name, intensity, speed in sorted(dots, key=lambda d: -d[2]):
        at = taken = max(y(speed) + 4, taken + 15)
        said = f"{name}: {speed:.2g} a second, {intensity:.2g} a byte"
        body += [dot(x(intensity), y(speed), READ, said),
                 text(x(intensity) + 9, at, name) if x(intensity) + 9 + wide(name) < right else
                 text(x(intensity) - 9, at, name, "end")]
    return svg(WIDTH, bottom + 44, body, f"roofline of {found.name} on {device.name}")
