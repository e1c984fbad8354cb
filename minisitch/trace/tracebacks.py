"""What a user sees of an error: the frames of the user, and none of minisitch's or NumPy's between or below them.

In:  an error that leaves one of the front doors (``jit``'s functions, ``lower``, ``explain`` ...). Out: the same error, shortened.

Only what is raised on purpose, or while the user's function is traced, is shortened: a bug of ours keeps its traceback. With
``MINISITCH_DEBUG`` set every error does.

Before:  main.py, runtime/__init__.py, trace/__init__.py, model.py, array.py, refusals.py        After:  main.py, model.py
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..errors import MinisitchError
from .recorder import is_inside, program_file


def shorten(error: BaseException, program: str) -> None:
    """Leave only the frames of the user in an error's traceback. ``program``: the file of the traced function.

    In an ``except`` clause, a bare ``raise`` after this adds no frame of its own.
    """
    if os.environ.get("MINISITCH_DEBUG", "off") not in ("", "0", "off"):
        return
    entries, entry = [], error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept = [each for each in entries if not is_inside(each.tb_frame.f_code.co_filename, program)]
    if not kept and not isinstance(error, MinisitchError):
        return
    if not kept or entries[-1] is not kept[-1]:  # raised by us: what led to it is told by the message
        error.__cause__, error.__suppress_context__ = None, True
    elif error.__context__ is not None:
        shorten(error.__context__, program)
    found: TracebackType | None = None
    for each in reversed(kept):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = found


def door(enter: Callable[..., Any]) -> Callable[..., Any]:
    """A function that users call: its first argument is the function to be traced, or wraps it."""
    @functools.wraps(enter)
    def entered(*args: Any, **kwargs: Any) -> Any:
        try:
            return enter(*args, **kwargs)
        except Exception as error:
            shorten(error, program_file(args[0]) if args else "")
            raise
    return entered
