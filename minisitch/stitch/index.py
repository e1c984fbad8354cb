"""Indices: where an element lies, as arithmetic on the variables of loops.

In:  loop variables and the shapes of values. Out: an ``Index``, and a ``Position``, which has one
index an axis.

An ``Index`` is an affine form over *digits* of the loop variables. A digit is
``(row // stride) % size``: one axis of a row number in mixed radix. Splitting and merging axes is
then exact arithmetic on digits, and a reshape that only regroups axes leaves no trace:

    heads [2,5,12,64] merged to [2,5,768] and read back:  (col // 64) * 64 + col % 64  ->  col
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from ..graph import Shape


class Digit(NamedTuple):
    """``(var // stride) % size``: one axis of a loop variable."""

    var: str
    stride: int
    size: int


@dataclass(frozen=True)
class Quotient:
    """``of // by``, where it does not simplify."""

    of: Index
    by: int


@dataclass(frozen=True)
class Remainder:
    """``of % by``, where it does not simplify."""

    of: Index
    by: int


@dataclass(frozen=True)
class Loaded:
    """An integer read from memory and clamped to ``[0, size)``: a gather's coordinate."""

    var: str
    size: int
    stride = 1  # as a digit's


VariableAtom = Digit | Loaded  # a part of one variable
Atom = VariableAtom | Quotient | Remainder
IndexTerm = tuple[int, Atom]  # a coefficient and what it multiplies
Bounds = tuple[int, int]  # smallest and largest value, both included


class Index(NamedTuple):
    """``const + sum(coefficient * atom)``, in canonical order: equal indices compare equal.

    A tuple, and no dataclass, since planning makes and hashes more indices than anything else.
    ``+`` and ``*`` calculate, as they do for numbers.
    """

    const: int = 0
    terms: tuple[IndexTerm, ...] = ()

    @property
    def bounds(self) -> Bounds:
        low = high = self.const
        for coefficient, atom in self.terms:
            a, b = _atom_bounds(atom)
            low += min(coefficient * a, coefficient * b)
            high += max(coefficient * a, coefficient * b)
        return low, high

    @property
    @lru_cache(maxsize=65536)  # noqa: B019  it keeps indices alive, which are small
    def variables(self) -> frozenset[str]:
        """Names of the loop variables and loaded integers that it depends on."""
        return frozenset(leaf.var for leaf in self.leaves())

    @property
    def loaded(self) -> frozenset[str]:
        """Names of the loaded integers that it depends on."""
        return frozenset(leaf.var for leaf in self.leaves()
                         if isinstance(leaf, Loaded))

    def times(self, name: str) -> int:
        """How often a whole variable (``whole``) counts in it."""
        return sum(c for c, atom in self.terms if atom == Digit(name, 1, UNBOUNDED))

    def leaves(self) -> Iterator[VariableAtom]:
        """Its digits and loaded integers, also those inside quotients and remainders."""
        for _, atom in self.terms:
            if isinstance(atom, Quotient | Remainder):
                yield from atom.of.leaves()
            else:
                yield atom

    def __add__(self, other: Index | int) -> Index:  # type: ignore[override]
        if isinstance(other, int):
            return Index(self.const + other, self.terms)
        if not self.terms or not other.terms:
            return Index(self.const + other.const, self.terms or other.terms)
        return _canonical(self.const + other.const, (*self.terms, *other.terms))

    def __mul__(self, factor: int) -> Index:  # type: ignore[override]
        if factor == 0:
            return ZERO
        if factor == 1:
            return self
        return Index(self.const * factor,
                     tuple((c * factor, a) for c, a in self.terms))

    @lru_cache(maxsize=65536)  # noqa: B019
    def divmod(self, by: int) -> tuple[Index, Index]:
        """Quotient and remainder by a positive number: as digits if they split, else as atoms."""
        high: list[IndexTerm] = []
        rest: list[IndexTerm] = []
        for c, atom in self.terms:
            if c % by == 0:
                high.append((c // by, atom))
            elif isinstance(atom, Digit) and c > 0 and by % c == 0 and atom.size % (by // c) == 0:
                inner = by // c  # the digit splits: its upper part counts multiples of `by`
                high.append((1, Digit(atom.var, atom.stride * inner,
                                      atom.size // inner)))
                rest.append((c, Digit(atom.var, atom.stride, inner)))
            else:
                rest.append((c, atom))
        quotient = _canonical(self.const // by, high)
        remainder = _canonical(self.const % by, rest)
        low, top = remainder.bounds
        if 0 <= low and top < by:
            return quotient, remainder
        return quotient + _of(Quotient(remainder, by)), _of(Remainder(remainder, by))


ZERO = Index()


def variable(name: str, size: int) -> Index:
    """A loop variable over ``range(size)``. With one value only it is the constant 0."""
    return _of(Digit(name, 1, size)) if size > 1 else ZERO


# The size of a digit that is all of its variable, where nothing depends on how far that one runs.
UNBOUNDED = 1 << 62


def whole(name: str) -> Index:
    """A variable, whatever its extent: as guards compare it, and as ``Let`` adds it up."""
    return _of(Digit(name, 1, UNBOUNDED))


def in_order(*parts: Index) -> Index:
    """Their sum, which prints in this order. It is not canonical, so it stands in no other index."""
    return Index(sum(part.const for part in parts), tuple(term for part in parts for term in part.terms))


def loaded(name: str, size: int) -> Index:
    return _of(Loaded(name, size)) if size > 1 else ZERO


def _of(atom: Atom) -> Index:
    return Index(0, ((1, atom),))


@lru_cache(maxsize=65536)
def _atom_bounds(atom: Atom) -> Bounds:
    if isinstance(atom, VariableAtom):
        return 0, atom.size - 1
    if isinstance(atom, Remainder):
        return 0, atom.by - 1
    low, high = atom.of.bounds
    return low // atom.by, high // atom.by


def _order(term: IndexTerm) -> tuple:
    _, atom = term
    if isinstance(atom, Digit):
        return 0, atom.var, -atom.stride, -atom.size
    return 1, repr(atom), 0, 0


def _canonical(const: int, terms: Iterable[IndexTerm]) -> Index:
    """Add up equal atoms, join neighbouring digits, join quotients with remainders, and sort."""
    total: dict[Atom, int] = {}
    for coefficient, atom in terms:
        total[atom] = total.get(atom, 0) + coefficient
    for atom in [a for a in total if isinstance(a, Quotient)]:
        rest = Remainder(atom.of, atom.by)
        factor = total.get(rest, 0)
        if factor and total[atom] == factor * atom.by:  # (i // 5) * 5 + i % 5 is i
            del total[atom], total[rest]
            others = Index(const, tuple((c, a) for a, c in total.items()))
            return others + atom.of * factor
    kept: list[IndexTerm] = [(c, a) for a, c in total.items()
                             if c and not isinstance(a, Digit)]
    for digit in sorted(a for a, c in total.items()
                        if c and isinstance(a, Digit)):
        factor, low = kept[-1] if kept else (0, digit)
        if (isinstance(low, Digit) and digit[:2] == (low.var, low.stride * low.size)
                and total[digit] == factor * low.size):
            kept[-1] = factor, low._replace(size=low.size * digit.size)
        elif digit.size > 1:
            kept.append((total[digit], digit))
    return Index(const, tuple(sorted(kept, key=_order)))


def side_by_side(index: Index, cols: int, width: int, chunk: int) -> bool:
    """True if groups of ``width`` columns are contiguous and aligned, as a wide access needs.

    A group begins at a column that is a multiple of ``width``. Its index must then be a multiple of
    ``width``, too, and grow by one from column to column. ``cols`` is the number of columns. The
    variable ``start`` counts chunks of ``chunk`` columns. A loaded integer may have any value.
    """
    steps = 0
    for c, atom in index.terms:
        if isinstance(atom, Digit) and atom.var == "col":
            if (c, atom.stride) == (1, 1) and (atom.size >= cols or atom.size % width == 0):
                steps += 1
            elif c % width or atom.stride % width:
                return False
        elif isinstance(atom, Digit) and (atom.var, atom.stride) == ("start", 1) and atom.size >= cols:
            if c * chunk % width:
                return False
        elif c % width or (isinstance(atom, Quotient | Remainder) and "col" in atom.of.variables):
            return False
    return steps == 1 and index.const % width == 0


Position = tuple[Index, ...]


def linear(position: Sequence[Index], shape: Shape) -> Index:
    """Row-major offset of a position."""
    offset = ZERO
    for index, n in zip(position, shape, strict=True):
        offset = offset * n + index
    return offset


def unravel(offset: Index, shape: Shape) -> Position:
    """The position with a given row-major offset: the inverse of ``linear``."""
    if 0 in shape:
        return (ZERO,) * len(shape)
    found: list[Index] = []
    for n in reversed(shape[1:]):
        offset, digit = offset.divmod(n)
        found.append(digit)
    return (offset, *reversed(found)) if shape else ()


def digits(var: str, sizes: Shape) -> Position:
    """A loop variable over ``prod(sizes)`` as one digit an axis, the last axis fastest."""
    return unravel(variable(var, math.prod(sizes)), sizes)


def variables_of(indices: Iterable[Index]) -> frozenset[str]:
    """Names of the loop variables and loaded integers that any of some indices depends on."""
    return frozenset().union(*(index.variables for index in indices))


def axis_variables(shape: Shape) -> Position:
    """A position in a value whose loop is not chosen yet: each axis has a variable, ``d0`` ..."""
    return tuple(variable(f"d{axis}", n) for axis, n in enumerate(shape))


# ---------------------------------------------------------------- conditions
@dataclass(frozen=True)
class Within:
    """``low <= index < high``: one condition of a guard."""

    index: Index
    low: int
    high: int

    @property
    def verdict(self) -> bool | None:
        """True or False if the index's bounds decide the condition, else None."""
        low, high = self.index.bounds
        if self.low <= low and high < self.high:
            return True
        if high < self.low or low >= self.high or self.low >= self.high:
            return False
        return None

    def holds(self, variables: Mapping[str, Any]) -> Any:
        """Whether the condition holds for given values of its variables: a bool, or an array."""
        value = value_at(self.index, variables)
        return (self.low <= value) & (value < self.high)


Guard = tuple[Within, ...]  # all must hold


def settle(conditions: Iterable[Within]) -> Guard | None:
    """The conditions without those that always hold. None if one of them never holds."""
    kept = dict.fromkeys(c for c in conditions if not c.verdict)
    return None if any(c.verdict is False for c in kept) else tuple(kept)


MOST_TESTED = 2**18  # positions that are tested one by one


def lies_within(index: Index, guard: Guard, first: int, last: int) -> bool:
    """Whether ``first <= index <= last`` wherever the guard holds.

    Bounds decide where they can. Otherwise every position is tested. With more than
    ``MOST_TESTED`` of them the answer is True, untested.
    """
    low, high = _bounds_under(index, guard)
    if first <= low and high <= last:
        return True
    inside = Within(index, first, last + 1)
    sizes: dict[str, int] = {}
    for condition in (inside, *guard):
        for leaf in condition.index.leaves():
            sizes[leaf.var] = max(sizes.get(leaf.var, 1),
                                  leaf.stride * leaf.size)
    if math.prod(sizes.values()) > MOST_TESTED:
        return True
    at = dict(zip(sizes, np.indices(tuple(sizes.values())), strict=True))
    outside = np.logical_not(inside.holds(at))
    for condition in guard:
        outside = outside & condition.holds(at)
    return not np.any(outside)


def _bounds_under(index: Index, guard: Guard) -> Bounds:
    """The bounds of an index where the guard holds. A condition may bound a part of the index."""
    rest, low, high = index, 0, 0
    for condition in guard:
        part = condition.index
        factor, atom = part.terms[0] if part.terms else (1, None)
        times = next((c for c, a in rest.terms if a == atom), 0) // factor
        less = rest + part * -times
        if times and len(less.terms) == len(rest.terms) - len(part.terms):
            first, last = part.bounds
            ends = max(condition.low, first) * times, min(condition.high - 1, last) * times
            rest, low, high = less, low + min(ends), high + max(ends)
    first, last = rest.bounds
    return low + first, high + last


# ---------------------------------------------------------------- text and values
def show(index: Index, extents: Mapping[str, int] | None = None, names: Mapping[str, str] | None = None) -> str:
    """The index as Python source.

    ``extents`` are the extents of the loop variables: ``% size`` is printed only if it changes
    anything. ``names`` replaces names of variables.
    """
    parts: list[str] = []
    for c, atom in index.terms:
        text = _show_atom(atom, extents or {}, names or {})
        if not _simple(text) and (parts or c != 1):
            text = f"({text})"  # -(col // 2) is not -col // 2
        if abs(c) != 1:
            text += f" * {abs(c)}"
        parts.append(("- " if c < 0 else "+ ") + text)
    if index.const or not parts:
        parts.append(("- " if index.const < 0 else "+ ") + str(abs(index.const)))
    joined = " ".join(parts)
    return joined[2:] if joined[0] == "+" else "-" + joined[2:]


def _simple(text: str) -> bool:
    return " " not in text or (text[0] == "(" and text[-1] == ")"
                               and text.count("(") == 1)


def _show_atom(atom: Atom, extents: Mapping[str, int], names: Mapping[str, str]) -> str:
    if isinstance(atom, VariableAtom):
        text = names.get(atom.var, atom.var)
        if atom.stride > 1:
            text += f" // {atom.stride}"
        if atom.size < UNBOUNDED and atom.stride * atom.size != extents.get(atom.var, atom.stride * atom.size):
            text += f" % {atom.size}"
        return text
    sign = "//" if isinstance(atom, Quotient) else "%"
    return f"({show(atom.of, extents, names)}) {sign} {atom.by}"


def value_at(index: Index, variables: Mapping[str, Any]) -> Any:
    """The index as a number (or array) for given values of its variables."""
    total: Any = index.const
    for c, atom in index.terms:
        if isinstance(atom, VariableAtom):
            value = variables[atom.var] // atom.stride % atom.size
        else:
            inner = value_at(atom.of, variables)
            value = inner // atom.by if isinstance(atom, Quotient) else inner % atom.by
        total = total + c * value
    return total


FEW_CELLS = 4096  # cells that are counted one by one


def footprint(indices: Iterable[Index], size: int) -> int:
    """How many different cells of a buffer of ``size`` some accesses touch.

    Exact for dense intervals, and for up to ``FEW_CELLS`` cells. Otherwise an upper bound.
    """
    accesses = set()
    for index in indices:
        terms = sorted((c, _atom_bounds(atom)[1] + 1)
                       for c, atom in index.terms)
        accesses.add((index.const, tuple(terms)))
    counts = {access: math.prod(n for _, n in access[1])
              for access in accesses}
    dense = sorted((const, const + counts[const, t])
                   for const, t in accesses if _dense(t))
    total = sum(counts.values())
    if len(dense) < len(accesses) and total <= FEW_CELLS:
        return min(size, len(set().union(*starmap(_cells, accesses))))
    end = dense[0][0] if dense else 0
    for low, high in dense:
        total -= max(0, min(high, end) - low)  # counted with an earlier interval
        end = max(end, high)
    return min(size, total)


Strides = Sequence[tuple[int, int]]  # steps, each with how often it is taken


def _dense(terms: Strides) -> bool:
    """Whether the terms touch every cell of an interval once.

    Then each multiple is the extent so far.
    """
    expected = 1
    for c, n in terms:
        if c != expected:
            return False
        expected *= n
    return True


def _cells(const: int, terms: Strides) -> set[int]:
    found = {const}
    for c, n in terms:
        found = {cell + c * k for cell in found for k in range(n)}
    return found
