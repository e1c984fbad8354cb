"""The rates of synchronous dataflow: which tile may come when, and how deep a queue must be.

In:  ``StageLoad``s in the order of their data and the ``Channel``s between them.
Out: firings in an order that always works, depths.

A stage fires F times, and a queue gets e entries. After n firings it has published floor(n e / F)
entries of a queue that it writes, and given back as many of one that it reads. For its n-th firing
it needs ceil(n e / F) entries. Three cases matter:

    e = F        tile by tile
    e = 1        the producer reduces all tiles to one, which a consumer needs from the start
    F = 1        a final stage, which needs all entries at once

Before:  exp -> sum, divide; sum -> divide (1 entry); 8 tiles
After:   exp 8 times, with sum after each, then divide 8 times: the queue of exp needs 8 entries
"""

from collections.abc import Iterator
from functools import lru_cache

from ....errors import PlanError
from .balance import Channel, Channels, Loads, StageLoad, entries_of


def reads(channels: Channels, stage: str) -> list[tuple[int, Channel]]:
    """The queues that a stage reads, with their positions among all."""
    return [(i, channel) for i, channel in enumerate(channels) if stage in channel.consumers]


def writes(channels: Channels, stage: str) -> list[tuple[int, Channel]]:
    """The queues that a stage writes, with their positions among all."""
    return [(i, channel) for i, channel in enumerate(channels) if stage == channel.producer]


def passed(entries: int, load: StageLoad, firings: int) -> int:
    """Entries that a stage has published or given back after ``firings`` firings."""
    return firings * entries // load.tiles


def needed(entries: int, load: StageLoad, firings: int) -> int:
    """Entries that a stage needs to fire ``firings`` times."""
    return -(-firings * entries // load.tiles)


def sequence(loads: Loads, channels: Channels) -> Iterator[tuple[StageLoad, int]]:
    """All firings in order, as (stage, tile). Each tile goes down as far as it can before the next.

    A stage that reads no sequence of tiles fires on demand, when a later stage needs its result.
    """
    by_name, fired = {load.name: load for load in loads}, {load.name: 0 for load in loads}
    inputs = {name: [(entries_of(c, loads), by_name[c.producer]) for _, c in reads(channels, name)]
              for name in by_name}
    paced = [load for load in reversed(loads) if any(n > 1 for n, _ in inputs[load.name])]

    def missing(load: StageLoad) -> StageLoad | None:
        turn = fired[load.name] + 1
        return next((producer for n, producer in inputs[load.name] if
                     passed(n, producer, fired[producer.name]) < needed(n, load, turn)), None)

    for _ in range(sum(load.tiles for load in loads)):
        unfinished = (load for load in paced if fired[load.name] < load.tiles)
        ready = next((load for load in unfinished if missing(load) is None), None)
        load = ready or next(load for load in reversed(loads) if fired[load.name] < load.tiles)
        while (producer := missing(load)) is not None:
            load = producer
        yield load, fired[load.name]
        fired[load.name] += 1


def depths(loads: Loads, channels: Channels, full_rate: bool = False) -> list[int]:
    """The depth of each queue without deadlock: the most entries that it holds in ``sequence``.

    With ``full_rate`` no stage waits that has work. This takes one more entry for each stage on the
    longest path from producer to consumer. For neighbours it is the paper's double buffer, and for
    a queue past one stage it is three. Raises PlanError for two stages with one name.
    """
    held = list(_held(tuple(loads), tuple(channels)))
    if full_rate:
        for i, channel in enumerate(channels):
            below = _distances(loads, channels, channel.producer)
            longest = max(below[c] for c in channel.consumers)
            held[i] = min(entries_of(channel, loads), held[i] + longest)
    return held


@lru_cache(maxsize=256)  # a design asks for the same repeatedly, with other blocks or names
def _held(loads: tuple[StageLoad, ...], channels: tuple[Channel, ...]) -> tuple[int, ...]:
    by_name, fired = {load.name: load for load in loads}, {load.name: 0 for load in loads}
    if len(by_name) < len(loads):
        twice = next(load.name for load in loads if load is not by_name[load.name])
        raise PlanError(f"two stages are named {twice!r}, but queues refer to stages by name: "
                        "rename one")
    entries, held = [entries_of(channel, loads) for channel in channels], [1] * len(channels)
    for load, tile in sequence(loads, channels):
        fired[load.name] = tile + 1
        for i, channel in writes(channels, load.name):
            back = min(passed(entries[i], by_name[c], fired[c]) for c in channel.consumers)
            held[i] = max(held[i], passed(entries[i], load, tile + 1) - back)
    return tuple(held)


def _distances(loads: Loads, channels: Channels, start: str) -> dict[str, int]:
    """The number of queues on the longest path from a stage to each stage below it."""
    found = {start: 0}
    for load in loads:
        for _, channel in writes(channels, load.name) if load.name in found else ():
            for consumer in channel.consumers:
                found[consumer] = max(found.get(consumer, 0), found[load.name] + 1)
    return found
