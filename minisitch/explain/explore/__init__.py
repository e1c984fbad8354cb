"""The explorer: a page that shows a student how the compiler treats a function.

    python -m minisitch explore softmax.py:softmax --arg "x=f32[64,1024]"
    python -m minisitch explore softmax.py:softmax --arg "x=f32[64,1024]" --save softmax.html

In:  a function and its arguments. Out: a page, served on this machine alone or saved as one file.

    small     the program on small arrays, so that a film is short
    frames    the film of a stepped kernel, as data
    trial     a kernel that is stepped again and again, with changed text too
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from ...errors import MinisitchError
from ...errors.lazy import lazy
from ...fuse import STRATEGIES, count
from ...lower import Stages, lower_program
from ...reference import run
from ...runtime import Jitted
from .links import graph_lines, kernel_lines, loop_lines, source_lines
from .maps import thread_maps
from .plans import sides, why
from .small import SmallProgram, device_of, shortened
from .trial import MOST_CELLS, KernelTrial, changes, given

MOST_KERNELS = 8  # of a program that get a film


@dataclass(frozen=True)
class Exploration:
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
        pairs = list(zip(self.stages.sources, self.stages.bodies, strict=True))[:MOST_KERNELS]
        return tuple(KernelTrial(source, body, given(body, values)) for source, body in pairs)

    @property
    def notes(self) -> list[str]:
        """What the page says about its limits."""
        plan, device = self.stages.plan, self.stages.device
        left = len(self.stages.sources) - len(self.trials)
        without = {"library calls": len(plan.library_calls), "pipelines": len(plan.pipelines),
                   "more kernels": left}
        machine = (f"for a GPU with {count(device.sms, 'multiprocessor')}, {device.threads_per_sm} "
                   f"threads on each, at most {device.max_block} in a block ({device.name})")
        return [*self.small.notes, machine, "kernels as they are before any pass",
                *(f"{what} without a film: {many}" for what, many in without.items() if many)]

    def data(self, saved: bool = False) -> dict[str, Any]:
        """Everything that the page shows. A saved page also has the verdict on each ``Change``."""
        stages = self.stages
        return {"name": getattr(self.function, "__name__", "program"), "saved": saved,
                "strategy": stages.plan.strategy, "notes": self.notes,
                "source": source_lines(self.function, stages.graph),
                "graph": graph_lines(stages.graph),
                "kernels": [_kernel(trial, saved) for trial in self.trials],
                "why": why(self.all_stages, stages.plan.strategy), "sides": sides(self.all_stages),
                "maps": thread_maps()}

    def page(self, saved: bool = False) -> str:
        """The whole page as one file, without any other resource."""
        return _rendered(self.data(saved))


def explored(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any],
             strategy: str = "auto", gpu: str = "toy") -> Exploration:
    """Take a function down the road on small arrays. Raises the errors of the stages."""
    function = function.function if isinstance(function, Jitted) else function
    small, device = shortened(function, args, kwargs), device_of(gpu)
    stages = {strategy: lower_program(small.program, strategy, "cuda", device, passes=())}
    for name in STRATEGIES:
        with suppress(MinisitchError):  # a strategy that cannot plan the program is not compared
            stages.setdefault(name, lower_program(small.program, name, "cuda", device, passes=()))
    return Exploration(function, small, stages[strategy], stages)


def _kernel(trial: KernelTrial, saved: bool) -> dict[str, Any]:
    """One kernel as the page shows it. ``tried`` are the verdicts on its changes, by line."""
    source, possible = trial.source, changes(trial.source.text)
    lines = kernel_lines(source.text, trial.body)
    found = {"name": source.kernel.name, "grid": source.kernel.grid, "block": source.kernel.block,
             "lines": lines, "loop": loop_lines(str(source.kernel), trial.body),
             "changes": [change._asdict() for change in possible]}
    if trial.cells > MOST_CELLS:
        return {**found, "arrays": [], "verdict": None, "tried": {}}
    tried = {}
    for change in possible if saved else ():
        changed = [line["text"] for line in lines]
        changed[change.line - 1] = change.text
        tried[change.line] = trial.verdict("\n".join(changed))
    return {**found, "arrays": trial.arrays(), "verdict": trial.verdict(source.text),
            "tried": tried}


def _rendered(data: dict[str, Any]) -> str:
    """The page around its data. Only this package's script runs in it, whatever the data holds."""
    folder = files(__package__)
    page, style, script = ((folder / name).read_text(encoding="utf-8")
                           for name in ("page.html", "explore.css", "explore.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    held = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    title = escape(f"{data['name']}: {data['strategy']}")
    parts = {"TITLE": title, "DIGEST": digest, "STYLE": style, "SCRIPT": script, "DATA": held}
    for name, text in parts.items():
        page = page.replace("{" + name + "}", text, 1)
    return page
