"""The explorer: a page that shows a student how the compiler treats a function.

    python -m minisitch explore softmax.py:softmax --arg "x=f32[64,1024]"
    python -m minisitch explore softmax.py:softmax --arg "x=f32[64,1024]" --save softmax.html
    python -m minisitch explore A2_softmax/softmax.py

In:  a function and its arguments, or a kernel and its launch. Out: a page, served on this machine alone or saved as one file.

    small     the program on small arrays, so that a film is short
    frames    the film of a stepped kernel, as data
    trial     a kernel that is stepped again and again, with changed text too
    orders    what a race does to the numbers, in two orders of threads
    links     which lines of NumPy, graph, loop program and kernel belong together
    plans     why two operations are in two kernels, and strategies side by side
    maps      which threads take which cells, for many shapes
    server    the page on this machine, which judges changed kernels

``page.html``, ``explore.css`` and ``explore.js`` are what a browser gets. All kernels are the plain
ones, before any pass.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from ...errors import KernelBug, MinisitchError
from ...errors.lazy import lazy
from ...fuse import STRATEGIES, count
from ...lower import Stages, lower_program
from ...reference import run
from ...runtime import Jitted
from ...simt.source import text_of
from ...simt.text import read_program
from .frames import drawn
from .links import graph_lines, linked_lines, source_lines
from .maps import thread_maps
from .plans import sides, why
from .small import GPUS, SmallProgram, shortened
from .trial import MOST_CELLS, KernelTrial, changes, given, trial_of

MOST_KERNELS = 8  # of a program that get a film
FRAME = "width:100%;height:720px;border:1px solid #8886;border-radius:8px"


class Page:
    """What has ``trials`` and ``data``, as one page."""

    trials: tuple[KernelTrial, ...]

    def data(self, saved: bool = False) -> dict[str, Any]:
        """Everything that the page shows. A saved page also has the verdict on each ``Change``."""
        raise NotImplementedError

    def page(self, saved: bool = False) -> str:
        """The whole page as one file, without any other resource."""
        return _rendered(self.data(saved))

    def _repr_html_(self) -> str:
        """The saved page in a frame, for a notebook and for the pages of the documentation."""
        held = escape(self.page(saved=True), quote=False).replace("'", "&#39;").replace("\n", "&#10;")
        return f"<iframe title='explorer' style='{FRAME}' srcdoc='{held}'></iframe>"


@dataclass(frozen=True, repr=False)
class Exploration(Page):
    """A function as the page shows it.

    ``stages`` are those of the chosen strategy. ``all_stages`` has those of each strategy that can
    plan the program.
    """

    function: Callable[..., Any]
    small: SmallProgram
    stages: Stages
    all_stages: dict[str, Stages]

    @lazy
    def trials(self) -> tuple[KernelTrial, ...]:
        """The first kernels of the plan, each with inputs that the reference computes for it."""
        values = [value for *_, value in run(self.stages.graph, self.small.inputs, False)]
        return tuple(trial_of(source, body, given(body, values))
                     for source, body in zip(self.stages.sources[:MOST_KERNELS], self.stages.bodies, strict=False))

    @property
    def notes(self) -> list[str]:
        """What the page says about its limits."""
        plan, device = self.stages.plan, self.stages.device
        without = {"library calls": len(plan.library_calls), "pipelines": len(plan.pipelines),
                   "more kernels": len(self.stages.sources) - len(self.trials)}
        machine = (f"for a GPU with {count(device.sms, 'multiprocessor')}, {device.threads_per_sm} "
                   f"threads on each, at most {device.max_block} in a block ({device.name})")
        return [*self.small.notes, machine, "kernels as they are before any pass",
                *(f"{what} without a film: {many}" for what, many in without.items() if many)]

    def data(self, saved: bool = False) -> dict[str, Any]:
        stages, name = self.stages, getattr(self.function, "__name__", "program")
        kernels = [{**_kernel(trial, saved), "lines": linked_lines(source.text, body),
                    "loop": linked_lines(str(source.kernel), body)}
                   for trial, source, body in zip(self.trials, stages.sources, stages.bodies, strict=False)]
        return {"name": name, "title": f"{name}, as {stages.plan.strategy} compiles it", "saved": saved,
                "strategy": stages.plan.strategy, "notes": self.notes,
                "source": source_lines(self.function, stages.graph),
                "graph": graph_lines(stages.graph), "kernels": kernels,
                "why": why(self.all_stages, stages.plan.strategy), "sides": sides(self.all_stages),
                "maps": thread_maps()}


@dataclass(frozen=True, repr=False)
class KernelExploration(Page):
    """A kernel that somebody wrote, with one launch, as the page shows it."""

    trials: tuple[KernelTrial]
    notes: tuple[str, ...] = ()

    def data(self, saved: bool = False) -> dict[str, Any]:
        (kernel,) = (_kernel(trial, saved) for trial in self.trials)
        return {"title": kernel["name"], "saved": saved, "notes": self.notes, "kernels": [kernel]}


def explored_kernel(kernel: str | Callable[..., Any], arrays: Mapping[str, Any], grid: int = 1, block: int = 64, *,
                    name: str | None = None, inputs: Iterable[str] | None = None, outputs: Iterable[str] = (),
                    wrong: Callable[[Mapping[str, Any]], str] | None = None, notes: Iterable[str] = (),
                    **options: Any) -> KernelExploration:
    """Explore a kernel of the dialect, as text or as a function, with one launch of small arrays.

    ``arrays`` holds the arguments by parameter. ``name``, ``inputs``, ``outputs`` and ``options`` are
    those of ``simt.step``. ``wrong`` says what is wrong with the arrays that a launch leaves, and
    nothing if they are right. Raises MinisitchError for a function without source.
    """
    if not isinstance(kernel, str):
        kernel, name = text_of(kernel)
    written = frozenset(arrays)
    with suppress(KernelBug):  # the page shows it
        program = read_program(kernel, name)
        name, written = program.name, program.written
    start = {each: np.array(value) if isinstance(value, np.ndarray) else value for each, value in arrays.items()}
    holding = {*start} - written if inputs is None else {*inputs}
    pictures = tuple(drawn(each, "global", value.shape, f"{value.dtype}{list(value.shape)}", value if each in holding else None)
                     for each, value in start.items() if isinstance(value, np.ndarray))
    trial = KernelTrial(name or "kernel", kernel, grid, block, start, tuple(holding & {*start}), tuple(outputs), pictures, wrong,
                        options={"name": name, **options})
    return KernelExploration((trial,), (f"{count(grid, 'block')} of {count(block, 'thread')}", *notes))


def explored(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any],
             strategy: str = "auto", gpu: str = "toy") -> Exploration:
    """Take a function down the road on small arrays. Raises the errors of the stages."""
    function = function.function if isinstance(function, Jitted) else function
    small, device = shortened(function, args, kwargs), GPUS[gpu]
    stages = {strategy: lower_program(small.program, strategy, "cuda", device, passes=())}
    for name in STRATEGIES:
        with suppress(MinisitchError):  # a strategy that cannot plan the program is not compared
            stages.setdefault(name, lower_program(small.program, name, "cuda", device, passes=()))
    return Exploration(function, small, stages[strategy], stages)


def _kernel(trial: KernelTrial, saved: bool) -> dict[str, Any]:
    """One kernel as the page shows it. ``tried`` are the verdicts on its changes, by line."""
    possible = changes(trial.text)
    lines = [{"number": number, "text": text, "nodes": []} for number, text in enumerate(trial.text.splitlines(), 1)]
    found = {"name": trial.name, "grid": trial.grid, "block": trial.block, "lines": lines, "loop": [],
             "changes": [change._asdict() for change in possible]}
    if trial.cells > MOST_CELLS:
        return {**found, "arrays": [], "verdict": None, "tried": {}}
    tried = {change.line: trial.verdict(change.made_in(trial.text)) for change in possible if saved}
    return {**found, "arrays": trial.drawn, "verdict": trial.verdict(trial.text), "tried": tried}


def _rendered(data: dict[str, Any]) -> str:
    """The page around its data. Only this package's script runs in it, whatever the data holds."""
    folder = files(__package__)
    page, style, script = ((folder / name).read_text(encoding="utf-8")
                           for name in ("page.html", "explore.css", "explore.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    held = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {"TITLE": escape(data["title"]), "DIGEST": digest, "STYLE": style, "SCRIPT": script, "DATA": held}
    for name, text in parts.items():
        page = page.replace("{" + name + "}", text, 1)
    return page
