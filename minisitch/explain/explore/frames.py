"""The film of one launch as data for the page: steps, each with the cells that its threads touch.

In:  the ``FilmEvent``s of ``simt.step``, and the kernel's text. Out: dicts and lists, for JSON.

A *step* is one line that the threads of one block come to between two barriers. If a loop brings a
thread to the line again, that is another step. The threads of a block are drawn as if they took
each line together. They need not: between two barriers the hardware may run them in any order.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import KernelBug
from ...simt.record import FilmEvent

MOST_EVENTS = 60_000  # that a film keeps: about 1 MB of page
MOST_STEPS = 2_000

FilmStep = dict[str, Any]
Visit = tuple[int, int]  # a line, and how often the thread had been there before
Cells = dict[str, tuple[int, ...]]  # of each array the largest index of each axis


class Reel(list[FilmEvent]):
    """A list of events that takes no more than ``MOST_EVENTS``, however long a kernel runs."""

    def append(self, event: FilmEvent) -> None:
        if len(self) < MOST_EVENTS:
            super().append(event)


def film(events: Sequence[FilmEvent], text: str, shapes: Mapping[str, Sequence[int]],
         bug: KernelBug | None = None) -> dict[str, Any]:
    """The steps block by block. ``shapes`` are those of the arguments.

    The block of a refused access comes last, and its refusal is the last step. Returns ``steps``,
    the shapes of the shared ``arrays`` that they name, and ``full``, whether steps are left out at
    the end.
    """
    lines = text.splitlines()
    largest = _largest(events) | {name: tuple(n - 1 for n in shape) for name, shape in shapes.items()}
    blocks: dict[int, dict[int, list[FilmEvent]]] = {}
    for event in events:
        if event.space != "local":
            blocks.setdefault(event.block, {}).setdefault(event.barriers, []).append(event)
    last = _block_of(bug)
    steps = []
    for block in sorted(blocks, key=lambda number: (number == last, number)):
        for barriers, here in sorted(blocks[block].items()):
            found = _steps(here, lines, largest)
            steps += [{"block": block, "barriers": barriers, **step} for step in found]
    full = len(events) >= MOST_EVENTS or len(steps) > MOST_STEPS
    del steps[MOST_STEPS:]
    if bug is not None:
        steps.append(_refusal(bug, last, steps))
    shared = {event.array for event in events if event.space == "shared"}
    touched = {name: [most + 1 for most in largest[name]] for name in sorted(shared)}
    return {"steps": steps, "arrays": touched, "full": full}


def _largest(events: Iterable[FilmEvent]) -> Cells:
    found: Cells = {}
    for event in events:
        known = found.get(event.array, event.cell)
        found[event.array] = tuple(map(max, known, event.cell))
    return found


def _block_of(bug: KernelBug | None) -> int:
    found = re.match(r"block (\d+) thread", bug.thread) if bug is not None else None
    return int(found[1]) if found else -1


def _refusal(bug: KernelBug, block: int, steps: Sequence[FilmStep]) -> FilmStep:
    """The last step of a refused launch: lines that its message quotes, and who stands there."""
    before = [step for step in steps if step["block"] == block]
    threads = [int(t) for _, who in bug.places for t in re.findall(r"thread (\d+)", who)]
    return {"block": max(block, 0), "barriers": before[-1]["barriers"] if before else 0, "line": bug.line,
            "does": [], "refused": [list(place) for place in bug.places], "threads": threads}


def _steps(events: Sequence[FilmEvent], lines: Sequence[str], largest: Cells) -> list[FilmStep]:
    """The steps of one block between two barriers, in an order that each thread agrees with."""
    found: dict[Visit, dict[tuple[str, str], list[tuple[int, int, str]]]] = {}
    paths: dict[int, dict[Visit, None]] = {}
    for event, visit in zip(events, _visits(events, lines), strict=True):
        paths.setdefault(event.thread, {})[visit] = None
        deed = found.setdefault(visit, {}).setdefault((event.what, event.array), [])
        deed.append((event.thread, _flat(event, largest), shown(event.value)))
    return [{"line": visit[0], "does": [_deed(*deed, who) for deed, who in found[visit].items()]}
            for visit in _merged(paths.values())]


def _deed(what: str, array: str, who: list[tuple[int, int, str]]) -> dict[str, Any]:
    """What several threads do at once. A meeting of threads touches no cells."""
    threads, cells, values = map(list, zip(*sorted(who), strict=True))
    return {"what": what, "array": array, "threads": threads, "cells": cells if array else [],
            "values": values}


def _visits(events: Iterable[FilmEvent], lines: Sequence[str]) -> Iterator[Visit]:
    """For each event its line, and how often its thread had been there before.

    A thread has come to a line again if it was elsewhere since, or if it does something there more
    often than the line says it.
    """
    at: dict[int, int] = {}
    times: Counter[tuple[int, int]] = Counter()
    done: dict[int, Counter[tuple[str, str]]] = {}
    for event in events:
        deed, said = (event.what, event.array), f"{event.array}[" if event.array else event.what
        most = max(1, lines[event.line - 1].count(said))
        if at.get(event.thread) != event.line or done[event.thread][deed] >= most:
            times[event.thread, event.line] += 1
            at[event.thread], done[event.thread] = event.line, Counter()
        done[event.thread][deed] += 1
        yield event.line, times[event.thread, event.line] - 1


def _merged(paths: Iterable[Iterable[Visit]]) -> list[Visit]:
    """One order for all visits. One that few threads make comes after what they did before it."""
    after: dict[Visit | None, Visit | None] = {None: None}  # each visit's next one
    for path in dict.fromkeys(map(tuple, paths)):
        before: Visit | None = None
        for visit in path:
            if visit not in after:
                after[before], after[visit] = visit, after[before]
            before = visit
    order = []
    visited = after[None]
    while visited is not None:
        order.append(visited)
        visited = after[visited]
    return order


def _flat(event: FilmEvent, largest: Cells) -> int:
    """The number of the event's cell, counted row by row in its array."""
    return int(np.ravel_multi_index(event.cell, [most + 1 for most in largest[event.array]])) if event.cell else 0


def shown(value: Any) -> str:
    """A number in four digits. Nothing is an empty text."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def drawn(name: str, space: str, shape: Sequence[int], words: str, start: Any) -> dict[str, Any]:
    """An array of the kernel for the page. ``start`` is what it holds at the launch, or None."""
    values = [] if start is None else [shown(v.item()) for v in np.asarray(start).reshape(-1)]
    return {"name": name, "space": space, "shape": list(shape), "words": words, "start": values}
