"""Functions from text, whose source Python can find, as it can that of a file.

In:  the text of a program. Out: its names, or the value of its expression.
"""

import itertools
import linecache
from typing import Any

_count = itertools.count()


def executed(text: str, space: dict[str, Any] | None = None, name: str = "") -> dict[str, Any]:
    """Run the statements of ``text`` as those of a file called ``name``. Returns their names."""
    space = {} if space is None else space
    exec(compile(text, known(text, name), "exec"), space)
    return space


def evaluated(text: str, space: dict[str, Any] | None = None) -> Any:
    """The value of an expression."""
    return executed(f"found_ = {text}", dict(space or {}))["found_"]


def known(text: str, name: str = "") -> str:
    """The name of a file that Python's ``linecache`` now takes ``text`` for."""
    name = name or f"program_{next(_count)}.py"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    return name
