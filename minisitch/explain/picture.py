"""Pictures as SVG text: layered graphs, thread maps, memory plans. The same input gives equal text.

In:  boxes and edges, a ``ThreadMap``, lifetimes. Out: an ``<svg>`` in the page's colours.

Graphs are laid out in layers, after Sugiyama. A box stands one layer below its lowest operand. An
edge that skips layers gets a bend in each. Sweeps sort each layer by the middle of its neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ..fuse import count
from ..stitch.mapping import ThreadMap

PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948", "#ff9da7", "#8cd17d")
CHARACTER, LINE_HEIGHT, MARGIN, GAP, LAYER_GAP = 6.7, 16, 8, 22, 34


@dataclass(frozen=True)
class Box:
    """One box of a picture: lines of text (the first is the title), a colour, a tooltip."""

    lines: tuple[str, ...]
    colour: str = ""
    tooltip: str = ""
    dashed: bool = False

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * CHARACTER + 2 * MARGIN

    @property
    def height(self) -> float:
        return len(self.lines) * LINE_HEIGHT + MARGIN


def svg(width: float, height: float, body: Iterable[str], name: str, title: str) -> str:
    """Wrap drawing commands. ``name`` makes ids unique, ``title`` is for screen readers."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'role="img" aria-label="{escape(title)}" id="{escape(name)}" font-size="11" fill="currentColor" '
            f'font-family="ui-monospace,Menlo,Consolas,monospace"><title>{escape(title)}</title>'
            + "".join(body) + "</svg>")


def text(x: float, y: float, words: str, anchor: str = "start", extra: str = "") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, colour: str = "", tooltip: str = "", extra: str = "") -> str:
    """One rectangle, filled lightly so that text stays readable on light and dark pages."""
    fill = f'fill="{colour}" fill-opacity="0.28" stroke="{colour}"' if colour else 'fill="none" stroke="currentColor"'
    tip = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {fill}{extra}>{tip}</rect>'


# ---------------------------------------------------------------- layered graphs
def layered(boxes: Sequence[Box], edges: Sequence[tuple[int, int, str]], name: str, title: str) -> str:
    """A picture of a graph. ``edges`` are (from, to, tooltip) with from < to."""
    if not boxes:
        return svg(120, 24, [text(4, 16, "nothing to draw")], name, title)
    layer = _layers(len(boxes), edges)
    routes, width_of, layer = _with_bends(boxes, edges, layer)
    rows = _ordered(layer, routes)
    x = _across(rows, routes, width_of)
    y, height = _down(rows, boxes)
    left = min(x[i] - width_of[i] / 2 for i in range(len(x)))
    right = max(x[i] + width_of[i] / 2 for i in range(len(x)))
    shift = MARGIN - left
    body = [f'<defs><marker id="{escape(name)}-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
            'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor" fill-opacity="0.6"/>'
            "</marker></defs>"]
    for (_, _, tooltip), path in zip(edges, routes, strict=True):
        body.append(_curve([(x[i] + shift, *_ends(i, boxes, y, layer)) for i in path], name, tooltip))
    for i, box in enumerate(boxes):
        body.append(_draw(box, x[i] + shift, y[layer[i]]))
    return svg(right - left + 2 * MARGIN, height, body, name, title)


def _neighbours(points: int, routes: Iterable[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """For each point, the points directly above and below that edges join it to."""
    above: list[list[int]] = [[] for _ in range(points)]
    below: list[list[int]] = [[] for _ in range(points)]
    for path in routes:
        for a, b in itertools.pairwise(path):
            below[a].append(b)
            above[b].append(a)
    return above, below


def _layers(boxes: int, edges: Sequence[tuple[int, int, str]]) -> list[int]:
    """The layer of each box: longest path from the top. Sources move down to their readers."""
    layer = [0] * boxes
    above, below = _neighbours(boxes, [(a, b) for a, b, _ in edges])
    for i in range(boxes):
        layer[i] = max((layer[a] + 1 for a in above[i]), default=0)
    for i in range(boxes):
        if not above[i] and below[i]:
            layer[i] = min(layer[b] for b in below[i]) - 1
    return layer


def _with_bends(boxes: Sequence[Box], edges: Sequence[tuple[int, int, str]],
                layer: list[int]) -> tuple[list[list[int]], list[float], list[int]]:
    """Each edge as a path of points. Points after the boxes are bends in layers between."""
    width_of, layer, routes = [b.width for b in boxes], list(layer), []
    shared: dict[tuple[int, int], int] = {}
    for a, b, _ in edges:
        path = [a]
        for between in range(layer[a] + 1, layer[b]):
            if (a, between) not in shared:  # edges from one box share their bends
                shared[a, between] = len(width_of)
                width_of.append(4.0)
                layer.append(between)
            path.append(shared[a, between])
        routes.append([*path, b])
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


def _curve(points: Sequence[tuple[float, float, float]], name: str, tooltip: str) -> str:
    x, _, y = points[0]
    path = f"M{x:.1f} {y:.1f}"
    for x2, enter, leave in points[1:]:
        middle = (y + enter) / 2
        path += f"C{x:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {enter:.1f}"
        if leave != enter and (x2, enter, leave) != points[-1]:
            path += f"L{x2:.1f} {leave:.1f}"
        x, y = x2, leave
    return (f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.45" '
            f'marker-end="url(#{escape(name)}-arrow)">'
            f"<title>{escape(tooltip)}</title></path>")


def _draw(box: Box, middle: float, band: tuple[float, float]) -> str:
    top = band[0] + (band[1] - box.height) / 2
    extra = ' rx="5"' + (' stroke-dasharray="4 3"' if box.dashed else "")
    out = [rectangle(middle - box.width / 2, top, box.width, box.height, box.colour, box.tooltip, extra)]
    for n, line in enumerate(box.lines):
        bold = ' font-weight="bold"' if n == 0 and len(box.lines) > 1 else ""
        out.append(text(middle - box.width / 2 + MARGIN, top + LINE_HEIGHT * (n + 0.85), line, extra=bold))
    return "".join(out)


# ---------------------------------------------------------------- thread maps
def thread_map(found: ThreadMap, name: str) -> str:
    """Rows down, columns across, one colour a block. A cell is what one thread takes at a time.

    Shown are the first three groups of rows, then the next one of the first block (vertical
    packing).
    """
    shown = [task for task in dict.fromkeys((0, 1, 2, found.blocks)) if task < found.tasks]
    cells, rows = min(8, max(1, found.threads_per_row)), min(found.rows_per_block, 4)
    labels = [_task_label(found, task) for task in shown]
    wide, tall, left, y = 46, 18, max(map(len, labels), default=0) * CHARACTER + 16, 34.0
    size = f"{count(found.rows, 'row')} x {count(found.cols, 'column')} on " \
           f"{count(found.blocks, 'block')} x {count(found.threads, 'thread')}"
    body = [text(left, 12, size), text(left, 27, _columns_of(found), extra=' fill-opacity="0.7"')]
    for task, label in zip(shown, labels, strict=True):
        if task > 3:
            body.append(text(left + wide * cells / 2, y + 13, "...", "middle"))
            y += tall
        body.append(text(left - 8, y + tall * rows / 2 + 4, label, "end"))
        for row in range(rows):
            body += [_cell(found, task, row, cell, cells, left + cell * wide, y) for cell in range(cells)]
            y += tall
        if rows < found.rows_per_block:
            body.append(text(left + wide * cells / 2, y + 8, f"... {found.rows_per_block} rows together", "middle",
                             ' font-size="9"'))
            y += tall / 1.5
        y += 4
    return svg(left + wide * cells + 12, y + 4, body, name, f"thread map: {found.why}")


def _cell(found: ThreadMap, task: int, row: int, cell: int, cells: int, x: float, y: float) -> str:
    """One thread of one row. The last but one cell stands for all threads left out."""
    skips = cells < found.threads_per_row and cell == cells - 2
    thread = found.threads_per_row - 1 if cell == cells - 1 else cell
    tip = (f"block {task % found.blocks}, row {task // found.splits * found.rows_per_block + row}: columns {thread}, "
           f"{thread + found.threads_per_row}, ...")
    return (rectangle(x, y, 44, 16, PALETTE[task % found.blocks % len(PALETTE)], "" if skips else tip)
            + text(x + 22, y + 12, "..." if skips else f"t{row * found.threads_per_row + thread}", "middle", ' font-size="9"'))


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
    wide = found.chunk if found.splits > 1 else found.cols
    each = -(-wide // max(1, found.threads_per_row))
    return f"{count(found.threads_per_row, 'thread')} a row, {count(each, 'column')} each in turn"


# ---------------------------------------------------------------- memory
def memory_map(values: Sequence[tuple[str, int, int, int, int]], total: int, name: str) -> str:
    """Launches across, bytes down. ``values``: (label, offset, bytes, first and last launch)."""
    if not values:
        return svg(260, 22, [text(4, 15, "no workspace: nothing lives between launches")], name, "memory plan")
    launches = 1 + max(value[-1] for value in values)
    wide, left, height, top = max(18.0, min(60.0, 720 / launches)), 84, 220.0, 24
    body = [text(left, 14, f"workspace of {total:,} bytes; launches and library calls from left to right"),
            text(left - 6, top + 10, "byte 0", "end"), text(left - 6, top + height, f"{total:,}", "end"),
            rectangle(left, top, wide * launches, height, "", "", ' stroke-opacity="0.4"')]
    for n, (label, offset, nbytes, first, last) in enumerate(values):
        y, tall = top + height * offset / total, max(1.5, height * nbytes / total)
        x, across = left + wide * first, wide * (last - first + 1)
        tip = f"{label}: {nbytes:,} bytes at {offset:,}, launches {first} to {last}"
        body.append(rectangle(x, y, across, tall, PALETTE[n % len(PALETTE)], tip))
        if tall > 11 and across > len(label) * CHARACTER:
            body.append(text(x + 3, y + min(tall, 14) - 3, label, extra=' font-size="10"'))
    return svg(left + wide * launches + 8, top + height + 8, body, name, "memory plan of the workspace")
