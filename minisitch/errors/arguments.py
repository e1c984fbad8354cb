"""Arguments of another kind than a function takes, refused in words.

    @takes(Graph, Sized, form="evaluate(graph, [x, y])")
    def evaluate(graph, inputs): ...

Before:  evaluate(None, [x]) raises AttributeError: 'NoneType' object has no attribute 'nodes'
After:   MinisitchError: evaluate got NoneType, list; write evaluate(graph, [x, y])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from . import MinisitchError

Function = TypeVar("Function", bound=Callable[..., Any])


def takes(*kinds: Any, form: str) -> Callable[[Function], Function]:
    """The first arguments must be of these kinds. ``form`` shows the call in the refusal."""
    def around(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if not all(map(isinstance, args, kinds)):
                raise MinisitchError(f"{function.__name__} got {', '.join(type(each).__name__ for each in args)}; write {form}")
            return function(*args, **kwargs)
        return checked  # type: ignore[return-value]
    return around
