"""Pictures of a recorded step: who reads and writes what, between which barriers.

In:  the ``FilmEvent``s that ``simt.step(record=...)`` keeps. Out: a ``Picture``.

    film(events, text)      a frame between two barriers: its threads, and the cells that they touch
    turns(events)           the warps of a block side by side, time goes down
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np

from ..errors import needs
from ..fuse import count
from ..simt.machine import WARP
from ..simt.record import FilmEvent
from .svg import (
    BOTH,
    LINE_HEIGHT,
    MARGIN,
    PALETTE,
    READ,
    WAIT,
    WIDTH,
    WRITTEN,
    Picture,
    line,
    rectangle,
    svg,
    text,
    tipped,
    wide,
)

NAMES, STRIP = 52, 15  # the width of names before a row of cells, the height of a row
MOST_CELLS, MOST_FRAMES = 64, 16
LETTERS = int((WIDTH - 2 * MARGIN) / wide("x"))
STEP, LAG = 21, 42  # of ``turns``: the height of a step, and how much later the slow warp comes


def _of_block(events: Iterable[FilmEvent], block: int) -> dict[int, list[FilmEvent]]:
    """The events of one block, by the barriers before them."""
    found: dict[int, list[FilmEvent]] = {}
    for event in events:
        if event.block == block:
            found.setdefault(event.barriers, []).append(event)
    return dict(sorted(found.items()))


# ---------------------------------------------------------------- the film
def film(events: Sequence[FilmEvent], kernel: str, block: int = 0) -> Picture:
    """One frame for what a block does between two barriers.

    A frame shows the lines of ``kernel`` that touch memory, the threads that do it, in the colour
    of their warp, and the cells: read, written, or both. Long arrays are drawn in pieces.
    """
    needs("film(events, text)", (events, list | tuple), (kernel, str))
    lines, frames = kernel.splitlines(), _of_block(events, block)
    shapes = _shapes(events, block)
    threads = 1 + max((e.thread for e in events if e.block == block), default=0)
    body = [text(MARGIN, 16, "cells:", bold=True), *_legend()]
    y = 30.0
    for number, (_, here) in enumerate(list(frames.items())[:MOST_FRAMES]):
        touched = [e for e in here if e.array]
        if not touched:
            continue
        body.append(text(MARGIN, y + 13, f"frame {number}", bold=True))
        y += LINE_HEIGHT
        for n in sorted({e.line for e in touched}):
            body.append(text(MARGIN, y + 12, f"{n:3} {lines[n - 1].strip()}"[:LETTERS], faint=True))
            y += LINE_HEIGHT - 2
        body += _strip("thread", threads, {e.thread: PALETTE[6 + e.thread // WARP % 2] for e in touched}, y + 3)
        y += STRIP + 3
        for name in dict.fromkeys(e.array for e in touched if e.space != "local"):
            colours: dict[int, str] = {}
            for e in touched:
                if e.array == name:
                    cell = int(np.ravel_multi_index(e.cell, shapes[name]))
                    colour = READ if e.what == "read" else WRITTEN if e.what == "write" else BOTH
                    colours[cell] = colour if colours.get(cell, colour) == colour else BOTH
            body += _strip(name, prod(shapes[name]), colours, y)
            y += STRIP
        y += 8
    if len(frames) > MOST_FRAMES:
        body.append(text(MARGIN, y + 12, f"and {count(len(frames) - MOST_FRAMES, 'frame')} more"))
        y += LINE_HEIGHT
    return svg(WIDTH, y, body, f"film of block {block}, {count(len(frames), 'frame')}")


def _legend() -> list[str]:
    drawn, x = [], MARGIN + 60.0
    for name, colour in (("read", READ), ("written", WRITTEN), ("both", BOTH)):
        drawn += [f'<rect x="{x:.0f}" y="6" width="12" height="12" fill="{colour}"/>', text(x + 17, 16, name)]
        x += 34 + wide(name)
    return drawn


def _shapes(events: Iterable[FilmEvent], block: int) -> dict[str, tuple[int, ...]]:
    """The part of each array that a block touches: the largest index of each axis, and one."""
    found: dict[str, tuple[int, ...]] = {}
    for e in events:
        if e.array and e.block == block:
            found[e.array] = tuple(max(a, b + 1) for a, b in zip(found.get(e.array, (0,) * len(e.cell)), e.cell, strict=True))
    return found


def _strip(name: str, cells: int, colours: Mapping[int, str], y: float) -> list[str]:
    """A row of cells behind a name. Where there are many, one drawn cell stands for several."""
    each = -(-cells // MOST_CELLS)
    across = (WIDTH - 2 * MARGIN - NAMES) / max(WARP, -(-cells // each))
    drawn = [text(MARGIN + NAMES - 5, y + 11, name[:6], "end")]
    for n, first in enumerate(range(0, cells, each)):
        here = {colours[k] for k in range(first, first + each) if k in colours}
        colour = here.pop() if len(here) == 1 else BOTH if here else ""
        fill = f'fill="{colour}"' if colour else 'fill-opacity="0.12"'
        which = f"{name} {first}" if each == 1 else f"{name} {first} to {min(cells, first + each) - 1}"
        drawn.append(tipped(f'<rect x="{MARGIN + NAMES + n * across:.1f}" y="{y:.1f}" '
                            f'width="{across - 1:.1f}" height="{STRIP - 3}" {fill}>',
                            which, "rect"))
    return drawn


# ---------------------------------------------------------------- warps in time
def turns(events: Sequence[FilmEvent], block: int = 0, most: int = 6) -> Picture:
    """What the first thread of each warp does, with time going down and barriers across.

    Every second warp comes late. So boxes at one height may happen at the same time. Shared arrays
    have colours. Shown are the first ``most`` frames.
    """
    needs("turns(events)", (events, list | tuple))
    frames = list(_of_block(events, block).values())[:most]
    leaders = sorted({e.thread for here in frames for e in here if e.thread % WARP == 0})
    shared = dict.fromkeys(e.array for here in frames for e in here if e.space == "shared")
    colours = {name: PALETTE[n % len(PALETTE)] for n, name in enumerate(shared)}
    across = (WIDTH - 2 * MARGIN) / max(1, len(leaders))
    body = [text(MARGIN + (n + 0.5) * across, 16, f"warp {t // WARP}", "middle", bold=True) for n, t in enumerate(leaders)]
    y = 26.0
    for here in frames:
        steps = [_steps(here, leader) for leader in leaders]
        tall = max(len(each) for each in steps) * STEP + LAG
        for n, each in enumerate(steps):
            x, top = MARGIN + n * across + 6, y + LAG * (n % 2)
            for k, (what, array) in enumerate(each):
                body += [rectangle(x, top + k * STEP, across - 12, STEP - 3, colours.get(array, "")),
                         text(x + 6, top + k * STEP + 13, f"{what} {array}")]
            rest = top + len(each) * STEP
            if y + tall - rest > STEP:
                body += [line(x + 10, rest + 1, x + 10, y + tall, dashed=True), text(x + 18, rest + 16, "waits", faint=True)]
        y += tall + 4
        if any(e.what == "syncthreads" for e in here):
            body += [line(MARGIN, y, WIDTH - MARGIN, y, WAIT, width=3), text(WIDTH / 2, y + 15, "barrier", "middle", faint=True)]
            y += 22
    return svg(WIDTH, y + 4, body, f"the warps of block {block} in time")


def _steps(events: Iterable[FilmEvent], thread: int) -> list[tuple[str, str]]:
    """What a thread reads and writes in a frame, each once, in order."""
    return list(dict.fromkeys((e.what, e.array) for e in events if e.thread == thread and e.array and e.space != "local"))
