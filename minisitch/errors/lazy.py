"""``lazy``: a property that is computed when it is first read, and kept.

In:  a method without arguments. Out: an attribute.

Python 3.11's ``functools.cached_property`` holds a lock meanwhile, one for all objects of a class.
If another thread computes the property during a fork, the child waits for that lock forever. Here
two threads may both compute the value: they compute the same one.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Computed = TypeVar("Computed")


class lazy(Generic[Computed]):
    """The value is kept in the object's ``__dict__``, where Python looks before it asks here."""

    def __init__(self, compute: Callable[[Any], Computed]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, of: Any, owner: type | None = None) -> Computed:
        if of is None:
            return self  # type: ignore[return-value]  # of the class: for ``help``
        value = of.__dict__[self.compute.__name__] = self.compute(of)
        return value
