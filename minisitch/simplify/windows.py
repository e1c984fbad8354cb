"""An array that is filled window by window: which value holds each range of one axis.

In:  the windows that a chain of ``update`` nodes writes, in order. Out: the values to read a range
from.

    out[0] = a        ranges of axis 0     [0, 1)  a
    out[3] = b                             [1, 3)  out, from 1 on
    out[0] = c                             [3, 4)  b           a later write to [0, 1) replaces a
                                           [4, 9)  out, from 4 on

A write removes the ranges that it covers. So n writes take time in proportion to n, and a binary
search each.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class WindowPart:
    """The content of one range: a value, from ``offset`` on along the axis.

    ``written``: if a single write makes the range out of the base, its value and its start, else
    None.
    """

    value: int
    offset: int = 0
    written: tuple[int, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Range:
    """``part`` holds ``[first, stop)``."""

    first: int
    stop: int
    part: WindowPart


class Windows:
    """The ranges of ``axis``, which has ``side`` positions.

    Before the first write the array is ``base``.
    """

    def __init__(self, axis: int, side: int, base: int) -> None:
        self.axis, self.side, self.base = axis, side, base
        self._starts, self._parts = [0], [WindowPart(base)]

    def write(self, first: int, stop: int, part: WindowPart) -> None:
        """Put ``part`` into a range, in place of what it held."""
        self._cut(first)
        self._cut(stop)
        begin, end = bisect_left(self._starts, first), bisect_left(self._starts, stop)
        self._starts[begin:end], self._parts[begin:end] = [first], [part]

    def _cut(self, at: int) -> None:
        """Let a range begin at ``at``."""
        i = bisect_right(self._starts, at) - 1
        if self._starts[i] == at or at == self.side:
            return
        left = self._parts[i]
        self._parts[i] = replace(left, written=None)
        self._starts.insert(i + 1, at)
        self._parts.insert(i + 1, WindowPart(left.value, left.offset + at - self._starts[i]))

    def read(self, first: int, stop: int) -> list[Range]:
        """The ranges of ``[first, stop)``. Neighbours that adjoin in one value become one range."""
        found: list[Range] = []
        for i in range(bisect_right(self._starts, first) - 1, len(self._starts)):
            begin = self._starts[i]
            if begin >= stop:
                break
            end = self._starts[i + 1] if i + 1 < len(self._starts) else self.side
            low, high, part = max(begin, first), min(end, stop), self._parts[i]
            whole = (low, high) == (begin, end)
            inside = part if whole else WindowPart(part.value, part.offset + low - begin)
            last = found[-1] if found else None
            if last and inside == WindowPart(last.part.value, last.part.offset + last.stop - last.first):
                found[-1] = Range(last.first, high, WindowPart(part.value, last.part.offset))
            else:
                found.append(Range(low, high, inside))
        return found
