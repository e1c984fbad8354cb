"""Pictures as SVG text: layered graphs, thread maps, memory plans. The same input gives equal text.

In:  boxes and edges, a ``ThreadMap``, lifetimes, a kernel. Out: an ``<svg>`` in the page's colours.

Graphs are laid out in layers, after Sugiyama. A box stands one layer below its lowest operand. An
edge that skips layers gets a bend in each. Sweeps sort each layer by the middle of its neighbours.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import needs
from ..fuse import count
from ..kernel import Kernel
from ..kernel.nests import accesses
from ..ops import itemsize
from ..stitch.mapping import ThreadMap
from .svg import LINE_HEIGHT, MARGIN, PALETTE, WIDTH, Picture, head, path, rectangle, svg, text, wide

GAP, LAYER_GAP = 22, 34
CELL = 58.0  # the width of a thread in a thread map


@dataclass(frozen=True)
class Box:
    """One box of a picture: lines of text (the first is the title), a colour, a tooltip."""

    lines: tuple[str, ...]
    colour: str = ""
    tooltip: str = ""
    dashed: bool = False

    @property
    def width(self) -> float:
        return max(map(wide, self.lines)) + 2 * MARGIN

    @property
    def height(self) -> float:
        return len(self.lines) * LINE_HEIGHT + MARGIN


class Arrow(NamedTuple):
    """An arrow from one box to a later one.

    Without a colour it is thin, in the colour of the page.
    """

    start: int
    end: int
    tooltip: str = ""
    colour: str = ""


# ---------------------------------------------------------------- layered graphs
def layered(boxes: Sequence[Box], edges: Sequence[Arrow], title: str) -> Picture:
    """A picture of a graph. Each edge starts at a box before the one where it ends."""
    if not boxes:
        return svg(130, 24, [text(4, 16, "nothing to draw")], title)
    layer = _layers(len(boxes), edges)
    routes, width_of, layer = _with_bends(boxes, edges, layer)
    rows = _ordered(layer, routes)
    x = _across(rows, routes, width_of)
    y, height = _down(rows, boxes)
    left = min(x[i] - width_of[i] / 2 for i in range(len(x)))
    right = max(x[i] + width_of[i] / 2 for i in range(len(x)))
    shift = MARGIN - left
    body = [_curve([(x[i] + shift, *_ends(i, boxes, y, layer)) for i in route], edge)
            for edge, route in zip(edges, routes, strict=True)]
    for i, box in enumerate(boxes):
        body.append(_draw(box, x[i] + shift, y[layer[i]]))
    return svg(right - left + 2 * MARGIN, height, body, title)


def _neighbours(points: int, routes: Iterable[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """For each point, the points directly above and below that edges join it to."""
    above: list[list[int]] = [[] for _ in range(points)]
    below: list[list[int]] = [[] for _ in range(points)]
    for route in routes:
        for a, b in itertools.pairwise(route):
            below[a].append(b)
            above[b].append(a)
    return above, below


def _layers(boxes: int, edges: Sequence[Arrow]) -> list[int]:
    """The layer of each box: longest path from the top. Sources move down to their readers."""
    layer = [0] * boxes
    above, below = _neighbours(boxes, [(e.start, e.end) for e in edges])
    for i in range(boxes):
        layer[i] = max((layer[a] + 1 for a in above[i]), default=0)
    for i in range(boxes):
        if not above[i] and below[i]:
            layer[i] = min(layer[b] for b in below[i]) - 1
    return layer


def _with_bends(boxes: Sequence[Box], edges: Sequence[Arrow],
                layer: list[int]) -> tuple[list[list[int]], list[float], list[int]]:
    """Each edge as a route over points. Points after the boxes are bends in layers between."""
    width_of, layer, routes = [b.width for b in boxes], list(layer), []
    shared: dict[tuple[int, int], int] = {}
    for a, b, *_ in edges:
        route = [a]
        for between in range(layer[a] + 1, layer[b]):
            if (a, between) not in shared:  # edges from one box share their bends
                shared[a, between] = len(width_of)
                width_of.append(4.0)
                layer.append(between)
            route.append(shared[a, between])
        routes.append([*route, b])
    return routes, width_of, layer


def _ordered(layer: Sequence[int], routes: Sequence[Sequence[int]]) -> list[list[int]]:
    """The points of each layer from left to right, with few crossings."""
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for i, where in enumerate(layer):
        rows[where].append(i)
    above, below = _neighbours(len(layer), routes)
    for sweep in range(8):
        near, order = (below, rows[::-1]) if sweep % 2 else (above, rows)
        place = {i: n / max(1, len(row) - 1) if len(row) > 1 else 0.5 for row in rows for n, i in enumerate(row)}
        for row in order:
            row.sort(key=lambda i: sum(place[j] for j in near[i]) / len(near[i]) if near[i] else place[i])
            place.update({i: n / max(1, len(row) - 1) if len(row) > 1 else 0.5 for n, i in enumerate(row)})
    return rows


def _across(rows: Sequence[Sequence[int]], routes: Sequence[Sequence[int]], width_of: Sequence[float]) -> list[float]:
    """The x of each point: close to the middle of its neighbours, in the row's order."""
    near = [up + down for up, down in zip(*_neighbours(len(width_of), routes), strict=True)]
    x = [0.0] * len(width_of)
    for sweep in range(12):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wish = [sum(x[j] for j in near[i]) / len(near[i]) if near[i] else x[i] for i in row]
            _settle(row, wish, width_of, x)
    return x


def _settle(row: Sequence[int], wish: Sequence[float], width_of: Sequence[float], x: list[float]) -> None:
    """Place a row at its wished positions. Boxes that would overlap move as a group."""
    runs: list[tuple[list[int], float, float]] = []  # members, their total width, left edge
    for i, want in zip(row, wish, strict=True):
        runs.append(([i], width_of[i] + GAP, want - (width_of[i] + GAP) / 2))
        while len(runs) > 1 and runs[-2][2] + runs[-2][1] > runs[-1][2]:
            (b, wide_b, left_b), (a, wide_a, left_a) = runs.pop(), runs.pop()
            weight = len(a) / (len(a) + len(b))
            runs.append((a + b, wide_a + wide_b, weight * left_a + (1 - weight) * (left_b - wide_a)))
    for members, _, left in runs:
        for i in members:
            x[i] = left + (width_of[i] + GAP) / 2
            left += width_of[i] + GAP


def _down(rows: Sequence[Sequence[int]], boxes: Sequence[Box]) -> tuple[list[tuple[float, float]], float]:
    """Top and height of each layer, and the height of the picture."""
    y, top = [], float(MARGIN)
    for row in rows:
        tall = max((boxes[i].height for i in row if i < len(boxes)), default=0.0)
        y.append((top, tall))
        top += tall + LAYER_GAP
    return y, top - LAYER_GAP + MARGIN


def _ends(i: int, boxes: Sequence[Box], y: Sequence[tuple[float, float]], layer: Sequence[int]) -> tuple[float, float]:
    """The y at which an edge enters point ``i``, and at which it leaves."""
    top, tall = y[layer[i]]
    if i >= len(boxes):
        return top, top + tall
    return top + (tall - boxes[i].height) / 2, top + (tall + boxes[i].height) / 2


def _curve(points: Sequence[tuple[float, float, float]], edge: Arrow) -> str:
    x, _, y = points[0]
    commands = f"M{x:.1f} {y:.1f}"
    for x2, enter, leave in points[1:]:
        middle = (y + enter) / 2
        commands += f"C{x:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {enter:.1f}"
        if leave != enter and (x2, enter, leave) != points[-1]:
            commands += f"L{x2:.1f} {leave:.1f}"
        x, y = x2, leave
    end, colour = points[-1], edge.colour or "currentColor"
    drawn = path(commands, colour, width=2.4 if edge.colour else 1.0, tooltip=edge.tooltip)
    drawn += head(end[0], end[1], end[0], end[1] - 1, colour)
    return drawn if edge.colour else f'<g opacity="0.5">{drawn}</g>'


def _draw(box: Box, middle: float, band: tuple[float, float]) -> str:
    top = band[0] + (band[1] - box.height) / 2
    extra = ' rx="5"' + (' stroke-dasharray="4 3"' if box.dashed else "")
    out = [rectangle(middle - box.width / 2, top, box.width, box.height, box.colour, box.tooltip, extra)]
    for n, line in enumerate(box.lines):
        out.append(text(middle - box.width / 2 + MARGIN, top + LINE_HEIGHT * (n + 0.9), line,
                        bold=n == 0 and len(box.lines) > 1))
    return "".join(out)


# ---------------------------------------------------------------- thread maps
def thread_map(found: ThreadMap) -> Picture:
    """Rows down, columns across, one colour a block. A cell is what one thread takes at a time.

    Shown are the first three groups of rows, then the next one of the first block (vertical
    packing).
    """
    needs("thread_map(minisitch.stitch.mapping.map_rows(64, 100, minisitch.get_device('v100')))", (found, ThreadMap))
    shown = [task for task in dict.fromkeys((0, 1, 2, found.blocks)) if task < found.tasks]
    cells, rows, y = min(8, max(1, found.threads_per_row)), min(found.rows_per_block, found.rows, 4), 40.0
    size = f"{count(found.rows, 'row')} x {count(found.cols, 'column')} on " \
           f"{count(found.blocks, 'block')} x {count(found.threads, 'thread')}"
    body = [text(MARGIN, 16, size, bold=True), text(MARGIN, 33, _columns_of(found), faint=True)]
    for task in shown:
        if task > 3:
            body.append(text(MARGIN, y + 12, "..."))
            y += LINE_HEIGHT
        body.append(text(MARGIN, y + 14, _task_label(found, task)))
        y += 20
        for row in range(rows):
            body += [_cell(found, task, row, c, cells, MARGIN + c * CELL, y) for c in range(cells)]
            y += 20
        if rows < found.rows_per_block:
            body.append(text(MARGIN, y + 12, f"... {found.rows_per_block} rows together", faint=True))
            y += LINE_HEIGHT
        y += 6
    return svg(max(WIDTH, wide(size) + 2 * MARGIN), y + 4, body, f"thread map: {found.why}")


def _cell(found: ThreadMap, task: int, row: int, cell: int, cells: int, x: float, y: float) -> str:
    """One thread of one row. The last but one cell stands for all threads left out."""
    skips = cells < found.threads_per_row and cell == cells - 2
    thread = found.threads_per_row - 1 if cell == cells - 1 else cell
    tip = (f"block {task % found.blocks}, row {task // found.splits * found.rows_per_block + row}: "
           f"columns {thread}, {thread + found.threads_per_row}, ...")
    return (rectangle(x, y, CELL - 3, 17, PALETTE[task % found.blocks % len(PALETTE)], "" if skips else tip)
            + text(x + CELL / 2 - 1.5, y + 13, "..." if skips else f"t{row * found.threads_per_row + thread}", "middle"))


def _task_label(found: ThreadMap, task: int) -> str:
    block = task % found.blocks
    if found.splits > 1:
        part = task % found.splits
        return f"block {block}: row {task // found.splits}, part {part + 1} of {found.splits}"
    low = task * found.rows_per_block
    high = min(found.rows, low + found.rows_per_block) - 1
    again = f" (turn {task // found.blocks + 1})" if task >= found.blocks else ""
    return f"block {block}: row{f's {low}-{high}' if high > low else f' {low}'}{again}"


def _columns_of(found: ThreadMap) -> str:
    columns = found.chunk if found.splits > 1 else found.cols
    each = -(-columns // max(1, found.threads_per_row))
    return f"{count(found.threads_per_row, 'thread')} a row, {count(each, 'column')} each in turn"


# ---------------------------------------------------------------- memory
def memory_map(values: Sequence[tuple[str, int, int, int, int]], total: int, title: str, steps: str = "launch") -> Picture:
    """Steps across, bytes down. ``values``: (label, offset, bytes, first and last step).

    ``title`` names the memory, and ``steps`` what happens from left to right.
    """
    if not values:
        return svg(WIDTH, 24, [text(4, 16, f"{title}: nothing lives longer than one {steps}")], title)
    last_step = max(value[-1] for value in values)
    across, left, height, top = max(18.0, min(120.0, (WIDTH - 90) / (last_step + 1))), 82, 200.0, 40
    body = [text(MARGIN, 16, f"{title}: {count(total, 'byte')}", bold=True), text(left - 6, top + 10, "byte 0", "end"),
            text(left - 6, top + height, f"{total:,}", "end"),
            *(text(left + across * (step + 0.5), 33, f"{steps} {step}" if across > wide(steps) + 22
                   else str(step), "middle", faint=True) for step in range(last_step + 1)),
            rectangle(left, top, across * (last_step + 1), height, "", "", ' stroke-opacity="0.4"')]
    for n, (label, offset, nbytes, first, last) in enumerate(values):
        y, tall = top + height * offset / total, max(1.5, height * nbytes / total)
        tip = f"{label}: {nbytes:,} bytes at {offset:,}, {steps} {first} to {last}"
        body.append(rectangle(left + across * first, y, across * (last - first + 1), tall, PALETTE[n % len(PALETTE)], tip))
        if tall > 14 and across * (last - first + 1) > wide(label):
            body.append(text(left + across * first + 3, y + min(tall, 16) - 3, label))
    return svg(max(WIDTH, left + across * (last_step + 1) + 8), top + height + 8, body, title)


def lifetimes(kernel: Kernel) -> Picture:
    """What a block keeps in shared memory: each value from its first loop to its last.

    Left out are the places where warps exchange partial results. Two values at one place in one
    loop share it: each thread overwrites an element when it has read it.
    """
    needs("lifetimes(minisitch.lower(f, x, stop_after='schedule')[0])", (kernel, Kernel))
    touched: dict[str, list[int]] = {}
    for number, (segment, phase) in enumerate((s, p) for s in kernel.segments for p in s.phases):
        for access in accesses(segment, phase.nest):
            touched.setdefault(access.buffer, []).append(number)
    offsets: dict[str, int] = {}
    values, total = [], 0
    for b in (b for b in kernel.buffers if b.scope == "shared" and b.name in touched):
        nbytes = b.size * itemsize(b.dtype)
        if b.slot not in offsets:
            offsets[b.slot], total = total, total + nbytes
        values.append((f"{b.name} of %{b.node}", offsets[b.slot], nbytes, min(touched[b.name]), max(touched[b.name])))
    return memory_map(values, total, "kept in shared memory", "loop")
