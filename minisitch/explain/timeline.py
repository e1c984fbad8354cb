"""Draw when each stage had which tile in a simulation.

In:  a ``Simulation``. Out: an ``<svg>`` with a row for each stage, queue and unit, time to the
right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..fuse import count
from ..strategies.kitsune.models.simulate import Firing, Moment, Simulation
from .svg import LINE_HEIGHT, MARGIN, PALETTE, Picture, rectangle, svg, text, wide

COLOURS = {"simt": PALETTE[0], "tensor": PALETTE[1], "queue": PALETTE[2], "dram": PALETTE[4], "l2": PALETTE[5]}
UNITS = ("simt", "tensor", "dram", "l2")
ROW, STRIP = 22.0, 26.0
NARROW = 3.0  # pixels; narrower tiles are drawn together


@dataclass(frozen=True)
class _Axis:
    """Maps microseconds to pixels."""

    left: float
    scale: float

    def __call__(self, us: float) -> float:
        return self.left + us * self.scale


# ---------------------------------------------------------------- the picture
def timeline(run: Simulation, width: float = 900.0) -> Picture:
    """A row of tiles for each stage; below, how full each queue is and what each unit does."""
    labels = [*(x.name for x in run.loads), *(channel.name for channel in run.channels), *UNITS]
    left = max(map(wide, labels)) + 2 * MARGIN
    at = _Axis(left, (width - left - MARGIN) / run.makespan_us)
    title = (f"{run.execution} on {run.device.name}: {run.makespan_us:,.1f} us, "
             f"{count(run.kernels, 'kernel')}, {run.dram_bytes:,} bytes of DRAM")
    body, y = [text(MARGIN, 14, title)], 24.0
    for load in run.loads:
        firings = [firing for firing in run.firings if firing.stage == load.name]
        body += [text(left - MARGIN, y + 15, load.name, "end"), *_tiles(firings, load.kind, at, y)]
        y += ROW
    for channel, fills in zip(run.channels, run.fills, strict=True):
        most = max(fill for _, fill in fills)
        tip = f"{channel.name}: at most {most} entries of {channel.tile_bytes:,} bytes"
        steps = [(t, fill / max(1, most)) for t, fill in fills] + [(run.makespan_us, 0.0)]
        body += _strip(channel.name, steps, COLOURS["queue"], tip, at, y)
        y += STRIP
    for unit in UNITS:
        tip = f"{unit}: {run.utilisation[unit]:.0%} of the time"
        body += _strip(unit, _averaged(run.moments, unit, at), COLOURS[unit], tip, at, y)
        y += STRIP
    body += _ticks(run.makespan_us, at, y)
    return svg(width, y + LINE_HEIGHT + MARGIN, body, title)


def _tiles(firings: Sequence[Firing], kind: str, at: _Axis, y: float) -> Iterable[str]:
    """A box for each tile. Tiles that are too narrow share one."""
    joined: list[list[Firing]] = []
    for firing in firings:
        last = joined[-1] if joined else []
        if last and at(firing.end) - at(firing.start) < NARROW and at(firing.start) - at(last[-1].end) < NARROW / 4:
            last.append(firing)
        else:
            joined.append([firing])
    for group in joined:
        first, last_one = group[0], group[-1]
        which = f"tile {first.tile}" if len(group) == 1 else f"tiles {first.tile} to {last_one.tile}"
        x, across = at(first.start), max(0.3, at(last_one.end) - at(first.start))
        yield rectangle(x, y + 2, across, ROW - 4, COLOURS[kind],
                        f"{first.stage} ({kind}), {which}: {first.start:.2f} to {last_one.end:.2f} us")
        if len(group) == 1 and across > wide(str(first.tile)) + 4:
            yield text(x + across / 2, y + 15, str(first.tile), "middle")


def _strip(label: str, steps: Sequence[tuple[float, float]], colour: str, tip: str, at: _Axis, y: float) -> list[str]:
    """A quantity between 0 and 1 over time, as an area with steps."""
    low, tall = y + STRIP - 3, STRIP - 8
    path = f"M{at(0):.1f} {low:.1f}" + "".join(f"H{at(t):.1f}V{low - tall * part:.1f}" for t, part in steps) + f"V{low:.1f}Z"
    return [text(at.left - MARGIN, y + 16, label, "end", faint=True),
            f'<path d="{path}" fill="{colour}" fill-opacity="0.28" stroke="{colour}"><title>{escape(tip)}</title></path>']


def _averaged(moments: Sequence[Moment], unit: str, at: _Axis) -> list[tuple[float, float]]:
    """The share of a unit's rate that was used in each pixel, as (since when, share)."""
    times, used = [0.0], [0.0]
    for moment in moments:  # nothing runs between kernels
        times += [moment.start, moment.end]
        used += [used[-1], used[-1] + getattr(moment, unit) * (moment.end - moment.start)]
    pixels = np.arange(0.0, times[-1] + 2 / at.scale, 1 / at.scale)
    shares = [0.0, *(np.diff(np.interp(pixels, times, used)) * at.scale).round(2).tolist()]
    return [(since, after) for since, before, after in zip(pixels, shares, shares[1:], strict=False) if before != after]


def _ticks(until: float, at: _Axis, y: float) -> list[str]:
    """A round number of microseconds about every ninth of the axis."""
    power = 10.0 ** (len(f"{until / 9:.0f}") - 1)
    step = next(power * n for n in (1, 2, 5, 10) if power * n * 9 >= until)
    marks = [n * step for n in range(int(until / step) + 1)]
    return [text(at(mark), y + LINE_HEIGHT, f"{mark:g}" + " us" * (mark == 0), "middle", faint=True) for mark in marks]
