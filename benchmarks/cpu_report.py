"""What the records of ``benchmarks/cpu.py`` say, as Markdown, and as a picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable

from minisitch.explain.compare import duration
from minisitch.explain.svg import PALETTE, svg, text

from .cpu_peer import GAUGE_BYTES
from .results import Record, geometric_mean, span, table

EXACT = 2.0  # times NumPy's own error: more is a failure
WRONG = 1e-3  # relative to the largest magnitude: results that count for nothing
BEHIND = 1.1  # from where minisitch counts as slower than the best peer
LONG_US = 1000.0  # cases that are held against the copy
QUIET = 1.15  # the median spin over the best
OVERHEAD = ("softmax-1x8", "softmax-1x768", "layernorm-128x768")
CLASSES = {"all cases": (0.0, float("inf")), "below 100 us": (0.0, 100.0), "100 us to 1 ms": (100.0, LONG_US),
           "1 ms and more": (LONG_US, float("inf"))}


# ---------------------------------------------------------------- figures of a record
def us(record: Record, peer: str, how: Callable[[list[float]], float] = statistics.median) -> float:
    """The median call, or the best; 0 where there is none, or none whose results are right."""
    row = record["peers"].get(peer, {})
    return how(row["call_us"]) if row.get("call_us") and is_right(row) else 0.0


def is_right(row: Record) -> bool:
    """Close enough for its time to count: another question than whether it is as exact as NumPy."""
    return max(row.get("distances", [float("inf")]), default=0.0) < WRONG or row.get("of_numpys", float("inf")) <= EXACT


def ratio(record: Record, peer: str) -> float:
    """How many times faster than the peer minisitch is; 0 where one of the two is missing."""
    mine, other = us(record, "minisitch"), us(record, peer)
    return other / mine if mine and other else 0.0


def share(record: Record) -> float:
    """Minisitch's least traffic a second, of what a copy moves."""
    mine = us(record, "minisitch")
    return record["bytes"] / mine / (GAUGE_BYTES / statistics.median(record["copy_us"])) if mine else 0.0


def peers_of(records: dict[str, Record]) -> list[str]:
    """All that some record has, minisitch first."""
    return list(dict.fromkeys(["minisitch", *(name for r in records.values() for name in r["peers"])]))


# ---------------------------------------------------------------- the report
def report(records: dict[str, Record]) -> str:
    """All of it."""
    return "\n\n".join([where(records), speed(records), means(records), copies(records), behind(records), exactness(records),
                        first_calls(records), overhead(records), troubles(records)])


def where(records: dict[str, Record]) -> str:
    """The machine, the versions, and whether it was quiet."""
    last = [*records.values()][-1]
    place, cpu = last["where"], last["cpu"]
    versions = ", ".join(f"{name} {row['version']}" for name in peers_of(records)
                         if "version" in (row := next((r["peers"][name] for r in records.values() if name in r["peers"]), {})))
    best = min(us for r in records.values() for us in r["spin_us"])
    spins = [statistics.median(r["spin_us"]) / best for r in records.values()]
    loud = sum(spin > QUIET for spin in spins)
    calm = "The machine was quiet." if not loud else (
        f"**The machine was not quiet**: in {loud} of {len(records)} cases a spin on all cores took more than {QUIET:.2f} "
        f"times its best (at worst {max(spins):.2f}).")
    copy = statistics.median(GAUGE_BYTES / us / 1e3 for r in records.values() for us in r["copy_us"])
    rounds = span(len(r["spin_us"]) for r in records.values())
    return (f"Measured {' and '.join(sorted({r['where']['date'] for r in records.values()}))} on a {place['machine']} machine "
            f"({cpu['model']}, vectors of {cpu['vector_bits']} bits, last cache {cpu['last_cache']}), {place['system']}, "
            f"Python {place['python']}; {versions}. Medians of {rounds} rounds. A copy on all cores "
            f"moves {copy:.1f} GB/s. {calm}")


def speed(records: dict[str, Record]) -> str:
    """A line a case: minisitch's time, how many times faster than each peer, share of the copy."""
    others = [p for p in peers_of(records) if p != "minisitch"]
    lines: list[tuple[str, ...]] = [("", "minisitch", *(f"over {p}" for p in others), "% of copy", "error")]
    for name, record in records.items():
        mine, row = us(record, "minisitch"), record["peers"]["minisitch"]
        lines.append((name, duration(mine) if mine else "-", *(number(ratio(record, p)) for p in others),
                      f"{100 * share(record):.0f}" if mine >= LONG_US else "-", number(row.get("of_numpys", 0.0))))
    return ("## How many times faster minisitch is\n\n*error*: distance from a wider type, in units of NumPy's own.\n\n"
            + table(lines))


def number(value: float) -> str:
    """Two digits behind the point; a dash for what there is not."""
    return f"{value:.2f}" if value else "-"


def means(records: dict[str, Record]) -> str:
    """Geometric means over each peer, by how long minisitch's call takes."""
    others = [p for p in peers_of(records) if p != "minisitch"]
    lines = [("minisitch's call", *(f"over {p}" for p in others))]
    for title, (low, high) in CLASSES.items():
        cells = []
        for peer in others:
            found = [r for record in records.values() if low <= us(record, "minisitch") < high and (r := ratio(record, peer))]
            cells.append(f"{number(geometric_mean(found))} ({len(found)})")
        lines.append((title, *cells))
    best = {p: [us(r, p, min) / us(r, "minisitch", min) for r in records.values() if ratio(r, p)] for p in others}
    lines.append(("all, best samples", *(f"{number(geometric_mean(best[p]))} ({len(best[p])})" for p in others)))
    return "## Geometric means, and over how many cases\n\n" + table(lines)


def copies(records: dict[str, Record]) -> str:
    """The cases of a millisecond and more."""
    shares = [share(r) for r in records.values() if us(r, "minisitch") >= LONG_US]
    return ("## Share of the copy's speed\n\n" +
            (f"Over the {len(shares)} cases of a millisecond and more: {100 * geometric_mean(shares):.0f}% as a geometric mean, "
             f"{100 * min(shares):.0f}% to {100 * max(shares):.0f}%." if shares else "No case takes a millisecond."))


def behind(records: dict[str, Record]) -> str:
    """The cases in which a peer is faster by more than a tenth."""
    lines = []
    for name, record in records.items():
        times = {p: us(record, p) for p in record["peers"] if p != "minisitch" and us(record, p)}
        best = min(times, key=times.__getitem__, default="")
        if best and us(record, "minisitch") > BEHIND * times[best]:
            lines.append(f"- {name}: {duration(us(record, 'minisitch'))}, {best} {duration(times[best])}")
    return f"## Where the best peer is more than {100 * BEHIND - 100:.0f}% faster\n\n" + ("\n".join(lines) or "Nowhere.")


def exactness(records: dict[str, Record]) -> str:
    """The cases whose error is more than twice NumPy's own."""
    lines = [f"- {name}: {row['of_numpys']:.2f} times NumPy's own ({max(row['distances']):.1e} of the largest magnitude)"
             for name, r in records.items() if (row := r["peers"]["minisitch"]).get("of_numpys", 0.0) > EXACT]
    return f"## Where the error is more than {EXACT:.0f} times NumPy's own\n\n" + ("\n".join(lines) or "Nowhere.")


def first_calls(records: dict[str, Record]) -> str:
    """Import and first call, with an empty and a filled disk cache."""
    lines = [("", "import", "first call, empty cache", "at most", "first call, filled cache", "at most")]
    for peer in peers_of(records):
        rows = [r["peers"][peer] for r in records.values() if r["peers"].get(peer, {}).get("call_us")]
        cells = [seconds(how, (r.get(what) for r in rows)) for what in ("first_s", "warm_s") for how in (statistics.median, max)]
        lines.append((peer, seconds(statistics.median, (r["import_s"] for r in rows)), *cells))
    return "## First call: medians over the cases\n\n" + table(lines)


def seconds(how, found: Iterable[float | None]) -> str:
    """A figure of those that are there."""
    there = [s for s in found if s]
    return duration(how(there) * 1e6) if there else "-"


def overhead(records: dict[str, Record]) -> str:
    """Small shapes, where a call is mostly the way to the kernel."""
    names = [name for name in OVERHEAD if name in records]
    lines = [("", *names), *((p, *(duration(us(records[n], p)) if us(records[n], p) else "-" for n in names))
                             for p in peers_of(records))]
    return "## A call with little to do\n\n" + (table(lines) if names else "Not measured.")


def troubles(records: dict[str, Record]) -> str:
    """What failed, or was wrong; programs that a library has no form of are only counted."""
    lines, without = [], dict.fromkeys(peers_of(records), 0)
    for name, record in records.items():
        for peer, row in record["peers"].items():
            without[peer] += "skipped" in row
            if "error" in row:
                lines.append(f"- {name}, {peer}: {row['error']}")
            elif "distances" in row and not is_right(row):
                lines.append(f"- {name}, {peer}: wrong by {max(row['distances']):.1e} of the largest magnitude")
    lines += [f"- {peer} has no form of {n} cases" for peer, n in without.items() if n]
    return "## What does not count\n\n" + ("\n".join(lines) or "Nothing.")


# ---------------------------------------------------------------- the picture
def picture(records: dict[str, Record]) -> str:
    """A line a case, a dot a peer: how many times faster minisitch is, on a scale of powers of two."""
    others = [p for p in peers_of(records) if p != "minisitch"]
    colours = dict(zip(others, PALETTE, strict=False))
    left, top, tall, wide, low, high = 190, 50, 15, 64, -1, 6
    x = {power: left + (power - low) * wide for power in range(low, high + 1)}
    bottom = top + tall * len(records)
    body = [text(8, 14, "how many times faster minisitch is: right of 1 it wins")]
    for n, peer in enumerate(others):
        body += [dot(left + n * 110, 28, colours[peer], peer), text(left + 8 + n * 110, 32, peer)]
    for power, at in x.items():
        strong = "0.7" if power == 0 else "0.15"
        body += [f'<path d="M{at} {top - 4}V{bottom}" stroke="currentColor" stroke-opacity="{strong}"/>',
                 text(at, top - 6, f"{2.0 ** power:g}", "middle")]
    for n, (name, record) in enumerate(records.items()):
        body.append(text(left - 10, top + tall * (n + 0.8), name, "end"))
        for peer in others:
            if times := ratio(record, peer):
                at = left + (min(max(math.log2(times), low), high) - low) * wide
                body.append(dot(at, top + tall * (n + 0.5), colours[peer], f"{name}: {times:.2f} times {peer}"))
    return svg(left + (high - low) * wide + 20, bottom + 8, body, "how many times faster minisitch is than each peer") + "\n"


def dot(x: float, y: float, colour: str, tooltip: str) -> str:
    """A peer's mark."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.8"><title>{tooltip}</title></circle>'
