"""A picture of the smallest case that an item fails on: its graph, or the film of its kernel.

In:  an outcome and the submission's text. Out: a ``Picture``, or None for a case of another shape.

A case with a method ``drawn(outcome)`` says itself what is drawn: a ``Picture``, or a graph or launch.
"""

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

import numpy as np

from ..errors import KernelBug
from ..explain.film import film
from ..explain.picture import Arrow, Box, layered
from ..explain.svg import PALETTE, Picture
from ..simt import FilmEvent, LaunchError, step
from .graphs import readers
from .items import conforms
from .kernels import KernelLaunch, KernelRun, kernel_text
from .sitting import Outcome


def picture(outcome: Outcome, source: str, returns: Mapping[str, Any]) -> Picture | None:
    """The picture of a failing case. ``returns`` is the type of what each function returns."""
    case = getattr(outcome.case, "graph", outcome.case)
    if hasattr(case, "drawn"):
        case = case.drawn(outcome)
    if isinstance(case, Picture):
        return case
    if isinstance(case, KernelLaunch):
        kernels = [name for name, kind in returns.items() if kind is KernelRun]
        name = case.what if case.what in kernels else kernels[0]
        return _film(case, kernel_text(source, name, [each for each in returns if each not in kernels]), name)
    if hasattr(case, "readers"):
        return _graph(case.readers, {}, outcome)
    if hasattr(case, "ops"):
        return _graph(readers(case.ops), {each: kind for each, (kind, *_) in case.ops.items()}, outcome)
    return None


def drawable(outcome: Outcome) -> bool:
    """Whether ``picture`` can draw the case of an outcome."""
    case = getattr(outcome.case, "graph", outcome.case)
    shaped = isinstance(case, KernelLaunch) or any(hasattr(case, name) for name in ("drawn", "readers", "ops"))
    return shaped and outcome.kind in ("broken", "refused")


def _graph(readers: Mapping[int, list[int]], kinds: Mapping[int, str], outcome: Outcome) -> Picture:
    """Values above their readers, each with what the submission says of it."""
    order = list(TopologicalSorter(readers).static_order())[::-1]
    place = {value: at for at, value in enumerate(order)}
    said, colours = outcome.value if isinstance(outcome.value, dict) else {}, {}
    if conforms(outcome.value, list[list[int]]):  # kernels: the values of one have one colour
        colours = {value: PALETTE[n % len(PALETTE)] for n, kernel in enumerate(outcome.value) for value in kernel}
    boxes = [
        Box(
            (f"{value} {kinds.get(value, '')}".strip(), *([f"yours: {said[value]}"] if value in said else ())),
            colours.get(value, ""),
        )
        for value in order
    ]
    edges = [Arrow(place[value], place[each]) for value in order for each in readers[value]]
    return layered(boxes, edges, outcome.why)


def _film(launch: KernelLaunch, text: str, name: str) -> Picture | None:
    """Who touched which cell, between which barriers, up to where the kernel was refused."""
    events: list[FilmEvent] = []
    arrays = {each: np.copy(array) for each, array in launch.arrays.items()}
    block = 0
    options = {"inputs": launch.inputs, "queues": launch.queues, "wave": launch.wave, "name": name}
    try:
        step(text, arrays, launch.grid, launch.block, launch.seed, record=events, **options)  # type: ignore[arg-type]
    except KernelBug as bug:
        found = re.match(r"block (\d+)", bug.thread or "")
        block = int(found[1]) if found else 0
    except LaunchError:
        return None  # it takes other arguments, so nothing ran
    return film(events, text, block)
