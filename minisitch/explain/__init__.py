"""What was decided and why: every stage of a program as text, as a page, as a picture.

In:  a function and arguments. Out: a ``Report``. It is made before anything runs, so that a crash
can still be explained.

``report`` writes text, ``picture`` draws, ``page`` makes HTML. ``compare`` sets the strategies side
by side, ``calibrate`` measures this machine, and ``demo`` is ``python -m minisitch demo``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .. import cpu_emit, cuda_emit
from ..device import Device
from ..errors import KernelError, PlanError
from ..errors.progress import shown
from ..kernel.ir import Kernel
from ..kernel.text import KernelSource
from ..passes.registry import as_on, kernel_of
from ..runtime import Passes, Stages, choose_device, lower_program, read_types, settings
from ..runtime.cuda import offline
from ..runtime.memory import MemoryPlan
from ..runtime.plans import plan_of
from ..stitch.compose import compose
from ..trace import trace
from ..trace.tracebacks import door
from . import draw
from . import page as pages
from .compare import Comparison, Row, compare, row_of
from .report import Card, Explanation

__all__ = ["Card", "Comparison", "Report", "Row", "compare", "explain"]


@dataclass(frozen=True)
class Report(Explanation):
    """A compiled program explained: ``str`` as text, ``html`` and ``svg``."""

    @property
    def svg(self) -> str:
        """The overview as a picture: one box for each kernel or library call."""
        return pages.overview(self)

    @property
    def html(self) -> str:
        """A complete page, to be written to a file."""
        return pages.page(f"{self.name}: {self.stages.plan.strategy}", [self._body()])

    def _repr_html_(self) -> str:
        return pages.fragment(self._body())

    def _body(self) -> str:
        """The body of the page, with the roofline of the plan if it is for a GPU."""
        strategy, device, graph = self.stages.plan.strategy, self.stages.device, self.stages.graph
        if device.kind != "gpu" or not self.stages.plan.patterns:
            return pages.content(self)
        found = Comparison(self.name, "", device, (row_of(strategy, self.stages),), 0.0, {}, {strategy: graph})
        said = ("<h2>Below the roof</h2><p>Under the slope a program waits for memory, under the flat part for arithmetic. "
                "The dot is what the cost model says of this plan.</p>")
        return pages.content(self, pictures=f'{said}<div class="scroll">{draw.roofline(found)}</div>')


@door
@shown
def explain(fn: Callable[..., Any], /, *args: Any, strategy: str | None = None, target: str | None = None,
            device: str | Device | None = None, exact: bool | None = None, passes: Passes = None, architecture: str = "",
            **kwargs: Any) -> Report:
    """Explain what becomes of ``fn(*args)``, without running it.

    Arrays may be given as types, ``"f32[128,768]"``. Each kernel is shown as it is scheduled, and
    after each pass. ``passes`` are those of ``jit``. With an ``architecture`` such as ``sm_90``,
    the CUDA text of each kernel and pipeline is assembled for it, in a second or two. Registers,
    spills and barriers are then shown. Raises DeviceError if the tools for that are missing, and
    the errors of the stages.
    """
    fn, strategy, target, device, exact, passes = settings(fn, strategy, target, device, exact, passes)
    program = replace(trace(fn, read_types(args), read_types(kwargs)), exact=exact)
    stages = lower_program(program, strategy, target, choose_device(target, device), decide=plan_of, passes=passes)
    return report_on(stages, getattr(fn, "__name__", "program"), architecture)


def report_on(stages: Stages, name: str, architecture: str = "") -> Report:
    """The report on stages that were emitted; see ``explain``."""
    cards: dict[int, Card] = {}
    for pattern, body, stitched, kernel in zip(stages.plan.kernels, stages.bodies, stages.stitches, stages.kernels, strict=True):
        card = cards.get(id(kernel)) or Card(kernel, stitched, body, (), both_texts(kernel, stages.program.exact))
        cards[id(kernel)] = replace(card, patterns=(*card.patterns, pattern))
    machines = tuple(offline.assemble_pipeline(flow.source, architecture) for flow in stages.flows if architecture)
    if architecture:
        cards = {k: replace(card, machine=offline.assemble(card.sources["cuda"], architecture)) for k, card in cards.items()}
    layout = MemoryPlan(stages)
    return Report(name, stages, tuple(cards.values()), layout.residents, layout.workspace, machines)


def both_texts(kernel: Kernel, exact: bool = True) -> dict[str, KernelSource]:
    """The kernel's text for its own device, and for the other kind of device.

    What fits into one kernel depends on the device. If the other kind of device refuses the
    composition, its text is composed as in AStitch, and begins with the reason.
    """
    other, remark = choose_device("cpu" if kernel.device.kind == "gpu" else "cuda"), ""
    passes = as_on(kernel, other)
    try:
        twin = kernel_of(compose(kernel.graph, other, kernel.plan.composition), passes)
    except (PlanError, KernelError) as refusal:
        twin = kernel_of(compose(kernel.graph, other), passes)
        remark = f"# Composed as AStitch would, since what runs on {kernel.device.name} cannot be one kernel here: {refusal}\n"
    texts = {k.device.kind: (cuda_emit if k.device.kind == "gpu" else cpu_emit).emit(k, exact) for k in (kernel, twin)}
    texts[other.kind] = replace(texts[other.kind], text=remark + texts[other.kind].text)
    return {"cuda" if kind == "gpu" else kind: source for kind, source in texts.items()}
