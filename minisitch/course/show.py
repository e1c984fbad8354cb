"""A picture of the smallest case that an item fails on: its graph, or the film of its kernel.

In:  an outcome and the submission's text. Out: a ``Picture``, or None for a case of another shape.

A case with a method ``drawn(outcome)`` says itself what is drawn: a ``Picture``, or a graph or launch.
"""

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import KernelBug
from ..explain.explore import KernelExploration, explored_kernel
from ..explain.film import film
from ..explain.picture import Arrow, Box, layered
from ..explain.svg import PALETTE, Picture
from ..simt import FilmEvent, LaunchError, Traffic, step
from .assignment import Assignment, CourseError, find_assignments, in_variant, read_submission
from .graphs import readers
from .items import PUBLIC, GradedItem, conforms
from .kernels import KernelLaunch, KernelRun, kernel_text
from .sitting import Outcome


def picture(outcome: Outcome, source: str, assignment: Assignment) -> Picture | None:
    """The picture of a failing case."""
    case = getattr(outcome.case, "graph", outcome.case)
    if hasattr(case, "drawn"):
        case = case.drawn(outcome)
    if isinstance(case, Picture):
        return case
    if isinstance(case, KernelLaunch):
        name = _kernel_of(case, assignment)
        return _film(case, kernel_text(source, name, assignment.functions), name)
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


def explorer(assignment: Assignment, launch: KernelLaunch, source: str, item: GradedItem) -> KernelExploration:
    """The explorer of a submission's kernel with one launch. What its item and others of the same cases ask for is right."""
    name = _kernel_of(launch, assignment)
    judges = [each.judge for each in assignment.items if each is item or (item.draw and each.draw is item.draw)]

    def wrong(arrays: Mapping[str, Any]) -> str:
        ran = KernelRun(arrays, Traffic(), source)
        return next(filter(None, (judge(launch, lambda *_, **__: ran) for judge in judges)), "")

    try:
        text = kernel_text(source, name, assignment.functions)
    except (NotImplementedError, NameError) as problem:
        said = f"{problem}" if isinstance(problem, NameError) else f"{name} is as the starter has it"
        raise CourseError(f"{said}: write the kernel {name} first") from None
    options = {"wave": launch.wave, "queues": launch.queues, "shared": launch.shared}
    return explored_kernel(text, launch.arrays, launch.grid, launch.block, name=name, inputs=launch.inputs,
                           outputs=launch.outputs, wrong=wrong, notes=filter(None, [launch.what]), **options)


def explored(assignment: Assignment, outcome: Outcome, source: str) -> KernelExploration | None:
    """The explorer of the launch that an item fails on. None if its case is no launch."""
    case = outcome.case.drawn(outcome) if hasattr(outcome.case, "drawn") else outcome.case
    return explorer(assignment, case, source, outcome.item) if isinstance(case, KernelLaunch) else None


def explored_file(file: Path, kernel: str = "") -> KernelExploration | None:
    """The explorer of a submission's kernel with the first visible case that launches it.

    None if the file is no assignment's. Raises CourseError if the assignment launches no such kernel.
    """
    known = find_assignments(file.parent if (file.parent / "assignment.toml").is_file() else None).values()
    found = next((each for each in known if each.file == file.name or each.folder == file.parent), None)
    if found is None:
        return None
    source = in_variant(read_submission(file, found), found.variant)
    for item in found.items:
        for case in found.cases(item, PUBLIC, found.variant) if item.has(False) else ():
            if isinstance(case, KernelLaunch) and kernel in ("", _kernel_of(case, found)):
                return explorer(found, case, source, item)
    raise CourseError(f"{found.name} launches no kernel {kernel}; explore shows kernels, and check runs {found.file}")


def _kernel_of(launch: KernelLaunch, assignment: Assignment) -> str:
    kernels = [name for name in assignment.returns if name not in assignment.functions]
    return launch.what if launch.what in kernels else kernels[0]


def _graph(readers: Mapping[int, list[int]], kinds: Mapping[int, str], outcome: Outcome) -> Picture:
    """Values above their readers, each with what the submission says of it."""
    order = list(TopologicalSorter(readers).static_order())[::-1]
    place = {value: at for at, value in enumerate(order)}
    said, colours = outcome.value if isinstance(outcome.value, dict) else {}, {}
    if conforms(outcome.value, list[list[int]]):  # kernels: the values of one have one colour
        colours = {value: PALETTE[n % len(PALETTE)] for n, kernel in enumerate(outcome.value) for value in kernel}
    yours = {value: [f"yours: {each}"] for value, each in said.items()}
    texts = {value: (f"{value} {kinds.get(value, '')}".strip(), *yours.get(value, ())) for value in order}
    boxes = [Box(texts[value], colours.get(value, "")) for value in order]
    edges = [Arrow(place[value], place[each]) for value in order for each in readers[value]]
    return layered(boxes, edges, outcome.why)


def _film(launch: KernelLaunch, text: str, name: str) -> Picture | None:
    """Who touched which cell, between which barriers, up to where the kernel was refused."""
    events: list[FilmEvent] = []
    arrays = {each: np.copy(array) for each, array in launch.arrays.items()}
    block = 0
    try:
        step(text, arrays, launch.grid, launch.block, name=name, record=events, **launch.options)
    except KernelBug as bug:
        found = re.match(r"block (\d+)", bug.thread or "")
        block = int(found[1]) if found else 0
    except LaunchError:
        return None  # it takes other arguments, so nothing ran
    return film(events, text, block)
