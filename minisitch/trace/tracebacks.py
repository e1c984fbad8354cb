"""Short tracebacks: the user's frames, without those of minisitch and NumPy.

In:  an error that leaves a public function (``jit``'s functions, ``lower``, ``explain`` ...).
Out: the same error with a shorter traceback.

Only errors raised on purpose, or while the user's function is traced, are shortened. A bug of ours
keeps its traceback. If ``MINISITCH_DEBUG`` is set, every error keeps it.

Before:  main.py, runtime/__init__.py, trace/__init__.py, model.py, array.py, refusals.py
After:   main.py, model.py
"""

import functools
import inspect
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, get_args

from ..errors import MinisitchError, PassError
from ..errors.nearest import near
from .calls import _called, _function
from .recorder import is_inside, program_file
from .tree import require_end

Entrance = TypeVar("Entrance", bound=Callable[..., Any])


def shorten(error: BaseException, program: str) -> None:
    """Leave only the user's frames in an error's traceback.

    ``program``: the file of the traced function. In an ``except`` clause, a bare ``raise`` after
    this adds no frame.
    """
    if os.environ.get("MINISITCH_DEBUG", "off") not in ("", "0", "off"):
        return
    entries, entry = [], error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    if not entries:
        return
    kept = [each for each in entries if not is_inside(each.tb_frame.f_code.co_filename, program)]
    # Wrong arguments of the user's function: the outer doors know it by the mark of the inner one.
    # An index out of bounds at run time has the mark, too.
    called = entries[-1].tb_frame.f_code in CALLING or hasattr(error, "of_the_call")
    if not kept and not isinstance(error, MinisitchError):
        if not called:
            return
        error.of_the_call = True  # type: ignore[attr-defined]
    # Raised in the user's pass, where its traceback says.
    if isinstance(error, PassError) and error.__cause__ is not None:
        shorten(error.__cause__, program)
    elif not kept or entries[-1] is not kept[-1]:  # raised by us: the message says what led to it
        error.__cause__, error.__suppress_context__ = None, True
    elif error.__context__ is not None:
        shorten(error.__context__, program)
    found: TracebackType | None = None
    for each in reversed(kept):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = found


def run_program(program: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the user's function. An error of this frame is the call's: its arguments are wrong."""
    return program(*args, **kwargs)


CALLING = [each.__code__ for each in (run_program, _function, _called)]


def door(enter: Entrance) -> Entrance:
    """A function that users call. What it refuses has no frames of ours.

    If it takes ``args``, its first argument is the function to trace, or wraps it.
    """
    @functools.wraps(enter)
    def entered(*args: Any, **kwargs: Any) -> Any:
        try:
            takes = enter.__annotations__
            is_graph = args and type(args[0]) in get_args(takes.get("fn"))
            if args and not callable(args[0]) and not is_graph and "args" in takes:
                raise MinisitchError(f"{enter.__name__} takes a function and its arguments, not {args[0]!r:.60}; "
                                     f"write {enter.__name__}(f, x), and not {enter.__name__}(f(x))")
            try:
                return run_program(enter, args, kwargs)
            except RecursionError:
                require_end(args[1:], kwargs)
                raise
        except Exception as error:
            shorten(error, program_file(args[0]) if args else "")
            for word in kwargs if hasattr(error, "of_the_call") else ():  # Python blames the user's function
                meant = near(word, inspect.unwrap(enter).__kwdefaults__ or ())
                if meant and f"keyword argument {word!r}" in str(error):
                    error.args = (f"{enter.__name__} has no option {word!r}{meant}",)
            raise
    return entered  # type: ignore[return-value]
