"""Seams: passes of the compiler whose place a function of yours may take.

In:  the name of a pass and a function with the same arguments.
Out: the compiler, with your function wherever it calls the pass.

    def mine(rows, cols, device, **choices):
        ...

    with ms.swapped("map_rows", mine):
        ms.jit(softmax, target="step")(x)

``SEAMS`` lists the passes. Each result of yours is checked by properties
(``testing/properties.py``) before the compiler sees it. What breaks one, or raises, ends in a
``PassError``:

    your map_rows: <31, 33> on v100: 1 block takes 1 of 2 tasks [covers]

No kernel outlives the passes that made it. When a context opens or ends, all compiled programs and
kernels are forgotten. While it is open, nothing is read from the disk cache or written to it. Code
that runs meanwhile in other threads calls your function too.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from reprlib import Repr
from typing import Any

from ..errors import MinisitchError, PassError
from ..fuse import count
from ..graph import Graph
from ..passes import share_memory
from ..runtime import programs, steps, store
from ..simt import memory
from ..stitch import dominants, mapping
from ..strategies import prices
from ..strategies.fs18 import spans
from ..strategies.fs20 import explore
from . import properties
from .properties import Broken, Run

PACKAGE = __name__.partition(".")[0]
SHORT = Repr()
SHORT.maxdict = SHORT.maxlist = SHORT.maxset = SHORT.maxtuple = 12
SHORT.maxother = SHORT.maxstring = 120


def _short(*args: Any, **kwargs: Any) -> str:
    """The arguments of a call as text, without functions, and shortened."""
    return ", ".join(SHORT.repr(arg) for arg in (*args, *kwargs.values()) if not callable(arg))


def _nodes(graph: Graph, *_: Any) -> str:
    return f"the graph of {count(len(graph), 'node')} below"


@dataclass(frozen=True)
class Seam:
    """A pass that may be swapped.

    ``check`` asks a function for its result, and raises ``Broken`` unless it has all properties.
    ``asked`` shows the arguments of a call.
    """

    reference: Callable[..., Any]
    check: Callable[..., Any]
    asked: Callable[..., str] = _short


SEAMS = {
    # Blocks and threads of a kernel's rows (AStitch, 4.2).
    "map_rows": Seam(mapping.map_rows, properties.check_map_rows,
                     lambda rows, cols, device, **_: f"<{rows}, {cols}> on {device.name}"),
    # Which operations may dominate, and which share a thread map (AStitch, 4.2).
    "candidates": Seam(dominants.candidates, properties.check_candidates, _nodes),
    "groups": Seam(dominants.groups_of, properties.check_groups, _nodes),
    # The longest path from each operation to a root (FusionStitching 2018, 3).
    "spans": Seam(spans.spans, properties.check_spans),
    # The best patterns of each vertex (FusionStitching 2020, 5.2).
    "pattern_reduction": Seam(explore.pattern_reduction, properties.check_pattern_reduction,
                              lambda dag, *_: f"consumers {SHORT.repr(dag.consumers)}"),
    # Which values take turns in the same bytes (FusionStitching 2018, 5.2).
    "share": Seam(share_memory.share, properties.check_share,
                  lambda buffers, _: ", ".join(f"{b.name} {b.size} x {b.dtype}" for b in buffers)),
    # Whether one moment of the stepper happens before another.
    "ordered": Seam(memory.ordered, properties.check_ordered,
                    lambda before, after: f"{before} before {after}"),
}
_now = {name: seam.reference for name, seam in SEAMS.items()}  # what the compiler calls at present


@contextmanager
def swapped(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let the compiler call ``function`` instead of its pass ``name`` while the context is open.

    This holds for the whole process. ``SEAMS[name].reference`` is the pass: ``function`` takes the
    same arguments. Contexts may be nested.

    Raises MinisitchError for an unknown name, and for what is no function. The compiler raises
    PassError when it calls a ``function`` that raises, changes its arguments, or returns a result
    without the properties of the pass.
    """
    if name not in SEAMS:
        raise MinisitchError(f"no pass {name!r} can be swapped; take one of {', '.join(SEAMS)}")
    if not callable(function):
        raise MinisitchError(f"swapped({name!r}, ...) takes a function, not {function!r}")
    before = _now[name]
    with store.closed():
        _put(name, _checked(name, function))
        try:
            yield
        finally:
            _put(name, before)


def _put(name: str, function: Callable[..., Any]) -> None:
    """Give each module that knows the pass this function for it. Forget all kernels of before."""
    for module in [m for each, m in sys.modules.items() if each.partition(".")[0] == PACKAGE]:
        for known in [known for known, value in vars(module).items() if value is _now[name]]:
            setattr(module, known, function)
    _now[name] = function
    programs.forget_programs()
    steps.forget_launches()
    prices.forget_kernels()


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its check."""
    run = Run(function, SEAMS[name].reference)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        seam = SEAMS[name]
        try:
            return seam.check(run, *args, **kwargs)
        except Broken as broken:
            words = f"your {name}: {seam.asked(*args, **kwargs)}: {broken.seen} [{broken.rule}]"
            refused = PassError(words, name, broken.rule)
            for graph in [arg for arg in args if isinstance(arg, Graph)]:
                refused.add_note(str(graph))
            raise refused from broken.__cause__

    return checked
