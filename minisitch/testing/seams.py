"""Seams: passes of the compiler whose place a function of yours may take.

In:  the name of a pass and a function with the same arguments. Out: the compiler, with your function wherever it calls the pass.

    def mine(rows, cols, device, **choices):
        ...

    with ms.swapped("map_rows", mine):
        ms.jit(softmax, target="step")(x)

``SEAMS`` lists the passes. Each result of yours is checked by properties (``testing/properties.py``) before the compiler sees it.
What breaks one, or raises, ends in a ``PassError``:

    your map_rows: <31, 33> on v100: 1 block takes 1 of 2 tasks [covers]

No kernel outlives the passes that made it. When a context opens or ends, all compiled programs and kernels are forgotten. While it
is open, nothing is read from the disk cache or written to it. Code that runs meanwhile in other threads calls your function too.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any

from ..errors import MinisitchError, PassError
from ..runtime import programs, steps, store
from ..stitch import mapping
from ..strategies import prices
from ..strategies.fs18 import spans
from . import properties
from .properties import Broken, require

PACKAGE = Path(__file__).parent.parent
SHORT = Repr()
SHORT.maxdict = SHORT.maxlist = SHORT.maxset = SHORT.maxtuple = 12
SHORT.maxother = SHORT.maxstring = 120


def _short(*args: Any, **kwargs: Any) -> str:
    """The arguments of a call as text, without functions, and shortened."""
    return ", ".join(SHORT.repr(arg) for arg in (*args, *kwargs.values()) if not callable(arg))


@dataclass(frozen=True)
class Seam:
    """A pass that may be swapped.

    ``check`` asks a function for its result, and raises ``Broken`` unless it has all properties. ``asked`` shows the arguments.
    """

    reference: Callable[..., Any]
    check: Callable[..., Any]
    words: str
    asked: Callable[..., str] = _short


SEAMS = {
    "map_rows": Seam(mapping.map_rows, properties.check_map_rows, "blocks and threads of a kernel's rows (AStitch, 4.2)",
                     lambda rows, cols, device, **_: f"<{rows}, {cols}> on {device.name}"),
    "spans": Seam(spans.spans, properties.check_spans, "the longest path from each operation to a root (FusionStitching 2018, 3)"),
}
_now = {name: seam.reference for name, seam in SEAMS.items()}  # what the compiler calls at present


@contextmanager
def swapped(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let the compiler call ``function`` instead of its own pass ``name``, in the whole process, while the context is open.

    ``SEAMS[name].reference`` is the pass: ``function`` takes the same arguments. Contexts may be nested.

    Raises MinisitchError for an unknown name, and for what is no function. The compiler raises PassError when it calls a
    ``function`` that raises, changes its arguments, or returns a result without the properties of the pass.
    """
    if name not in SEAMS:
        raise MinisitchError(f"no pass {name!r} can be swapped; take one of {', '.join(SEAMS)}")
    if not callable(function):
        raise MinisitchError(f"swapped({name!r}, ...) takes a function, not {function!r}")
    before, checked = _now[name], _checked(name, function)
    with store.closed():
        _put(name, checked)
        try:
            yield
        finally:
            _put(name, before)


def _put(name: str, function: Callable[..., Any]) -> None:
    """Give every module of the package that knows the pass this function for it, and forget the kernels of before."""
    package = __name__.partition(".")[0]
    for module in [m for each, m in sys.modules.items() if each == package or each.startswith(f"{package}.")]:
        for known in [known for known, value in vars(module).items() if value is _now[name]]:
            setattr(module, known, function)
    _now[name] = function
    programs.forget_programs()
    steps.forget_launches()
    prices.forget_kernels()


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its check."""
    def run(*args: Any, **kwargs: Any) -> Any:
        given = [copy.deepcopy(arg) if isinstance(arg, dict | list | set) else arg for arg in args]
        try:
            answer = function(*given, **kwargs)
        except Broken:
            raise  # of a function among the arguments
        except (Exception, SystemExit) as error:
            raise Broken("raises", f"{type(error).__name__}: {error}, in {_line(function, error)}") from error
        require(given == list(args), "pure", "it changes its arguments: work on copies")
        return answer

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return SEAMS[name].check(run, *args, **kwargs)
        except Broken as broken:
            asked = SEAMS[name].asked(*args, **kwargs)
            raise PassError(f"your {name}: {asked}: {broken.seen} [{broken.rule}]", name, broken.rule) from broken.__cause__

    return checked


def _line(function: Callable[..., Any], error: BaseException) -> str:
    """The line of the function that raised, or its first line if it was not called at all."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not Path(f.filename).is_relative_to(PACKAGE)]
    own = [f for f in frames if code and f.filename == code.co_filename] or frames
    if own:
        return f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}"
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)
