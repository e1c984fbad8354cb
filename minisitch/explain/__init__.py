"""What was decided and why: every stage of a program as text, as a page, as a picture.

In:  a function and arguments. Out: a ``Report``. It is made before anything runs, so that a crash
can still be explained.

``report`` writes text, ``picture`` draws, ``page`` makes HTML. ``compare`` sets the strategies side
by side, ``calibrate`` measures this machine, and ``demo`` is ``python -m minisitch demo``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..device import Device
from ..errors.progress import shown
from ..graph import Graph
from ..lower import program_of
from ..runtime import Passes, lower_program, read_types, settings
from ..runtime.plans import plan_of
from ..trace import trace
from ..trace.tracebacks import door
from .compare import Comparison, Row, compare
from .report import Card, Report

__all__ = ["Card", "Comparison", "Report", "Row", "compare", "explain"]


@door
@shown
def explain(fn: Callable[..., Any] | Graph, /, *args: Any, strategy: str | None = None, target: str | None = None,
            device: str | Device | None = None, exact: bool | None = None, passes: Passes = None, **kwargs: Any) -> Report:
    """Explain what becomes of ``fn(*args)``, without running it. ``fn`` may also be a ``Graph``.

    Arrays may be given as types, ``"f32[128,768]"``. Each kernel is shown as it is scheduled, and
    after each pass. ``passes`` are those of ``jit``. Raises the errors of the stages.
    """
    fn, strategy, target, machine, exact, passes = settings(fn, strategy, target, device, exact, passes)
    program = program_of(fn) if isinstance(fn, Graph) else trace(fn, read_types(args), read_types(kwargs))
    program = replace(program, exact=exact)
    stages = lower_program(program, strategy, target, machine, decide=plan_of, passes=passes)
    return Report(getattr(fn, "__name__", "program"), stages)
