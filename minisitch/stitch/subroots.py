"""The loops of a kernel before they are loops: what each runs over, and which task makes what another reads.

In:  a loop (``Sink``: what it evaluates, over which ``Space`` of tasks, how the axes are dealt out: ``Partition``) and the
position at which another one reads its value. Out: AStitch's two locality questions (2022, section 4.3): does the task that reads
an element make it (``column_of``), and how must the reader run so that it does (``adopt``)?

Before:  %4 of [64,64], whose loop has its 64 rows for tasks, read at [row, col] by another over the same rows
After:   ``column_of``: col; read at [col, row]: None, other tasks make it
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..graph import Graph, Node
from .index import ZERO, Digit, Index, Key, Position, digits
from .mapping import ThreadMap


# ---------------------------------------------------------------- what a sink is
@dataclass(frozen=True)
class Space:
    """What the tasks of a segment are.

    ``row``: a task is one of ``rows`` rows, or one of its ``chunks`` (task splitting).
    ``column``: a task is one of ``rows`` problems, one tile (of ``chunks``) of the kept columns
    and one slice (of ``slices``) of the serial axis.
    ``block``: a task is one of ``rows`` blocks, which owns a piece of every sink (``blocks.arrange``).
    """

    kind: str  # "row" | "column" | "block"
    rows: int
    chunks: int = 1
    slices: int = 1
    serial: int = 1
    cols: int = 0  # of a column space: the kept columns; of split rows: what the chunks share out; else each phase's own


@dataclass(frozen=True)
class Partition:
    """Which axes of a sink's domain become tasks, which run inside a thread, which across threads.

    An axis in both ``rows`` and ``cols`` is cut into ``pieces``: the task says which, the column where inside.
    """

    rows: tuple[int, ...]
    serial: tuple[int, ...]
    cols: tuple[int, ...]
    pieces: int = 1

    def _sizes(self, shape: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """How far each axis of ``rows``, ``serial`` and ``cols`` is counted."""
        return ([self.pieces if a in self.cols else shape[a] for a in self.rows], [shape[a] for a in self.serial],
                [shape[a] // self.pieces if a in self.rows else shape[a] for a in self.cols])

    def position(self, shape: Sequence[int]) -> Position:
        """The domain position as digits of ``row``, ``ser`` and ``col``."""
        found: list[Index] = [ZERO] * len(shape)
        rows, serial, cols = self._sizes(shape)
        for axis, digit in zip(self.rows, digits("row", rows), strict=True):
            found[axis] = digit * (shape[axis] // self.pieces) if axis in self.cols else digit
        for var, axes, sizes in (("ser", self.serial, serial), ("col", self.cols, cols)):
            for axis, digit in zip(axes, digits(var, sizes), strict=True):
                found[axis] = found[axis] + digit
        return tuple(found)

    def extents(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Elements along rows, serial and cols."""
        rows, serial, cols = map(math.prod, self._sizes(shape))
        return rows, serial, cols


@dataclass(frozen=True)
class Sink:
    """A value with a loop of its own.

    ``role``: ``map`` (evaluated element by element), ``piece`` (so is an operand of a concatenation, over its own
    domain, and stored where it belongs), ``reduce`` (folded in one task), ``partial``
    (folded by several tasks, one partial result each), ``carry`` (folded over the tasks of a block,
    one partial result a block), ``combine`` (folds the partial results).
    """

    node: int
    role: str
    domain: tuple[int, ...]
    partition: Partition
    space: Space
    level: int  # grid barriers before it
    phase: int  # block barriers before it, in its segment
    home: Position  # where its result lies, in terms of row and col
    thread_map: ThreadMap
    scheme: str = "local"
    why: str = ""
    warps: bool = False  # of a reduce in a block: a warp for each column, whose lanes share the serial axis
    operand: int = -1  # of a piece: the value it evaluates

    @property
    def along(self) -> str:
        """What a reduce folds: ``row`` (the columns, by all threads), ``column`` (the serial axis), ``warp``, ``carry``."""
        if self.role in ("map", "piece", "carry"):
            return "carry" if self.role == "carry" else ""
        return "warp" if self.warps else "column" if self.partition.serial or "col" in _names(self.home) else "row"

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.partition.extents(self.domain)


def root(graph: Graph, s: Sink) -> Key:
    """What a sink's loop computes: the value, at its place in the domain, that is stored or folded."""
    value = s.operand if s.role == "piece" else s.node if s.role == "map" else graph[s.node].args[0]
    return value, s.partition.position(s.domain)


# ---------------------------------------------------------------- who makes what near whom
def result_position(node: Node, position: Position) -> Position:
    """Where a reduce's result lies, from where its operand is read."""
    axes, keepdims = node.attr("axes"), node.attr("keepdims")
    return tuple(ZERO if a in axes else i for a, i in enumerate(position) if keepdims or a not in axes)


def makes_near(producer: Sink, space: Space, position: Position) -> bool:
    """True when each task of ``space`` makes what it reads at ``position``; a piece is not all of its value."""
    return producer.space == space and producer.role != "piece" and column_of(producer, position) is not None


def column_of(producer: Sink, position: Position) -> Index | None:
    """Passive locality check: the producer's column read at ``position``, None if another task makes it.

    The consumer runs over the same ``Space``. A row space: the consumer's row must be the
    producer's, any column will do. A column space: the very same column (it lives in one thread).
    An axis that blocks share is read inside the consumer's own piece.
    """
    column = ZERO
    for index, home in zip(position, producer.home, strict=True):
        names = home.variables
        if home == ZERO:
            continue  # an axis of one: whatever is read is read there
        if "ser" in names or (("col" not in names or producer.space.kind == "column") and index != home):
            return None
        if "col" in names:
            ((coefficient, digit),) = [(c, atom) for c, atom in home.terms if isinstance(atom, Digit) and atom.var == "col"]
            piece = Index(home.const, tuple(term for term in home.terms if term[1] != digit))
            inside = index + piece * -1
            low, high = inside.bounds
            if coefficient != 1 or (piece.terms and not 0 <= low <= high < digit.size):
                return None
            column = column + inside * digit.stride
    if producer.space.chunks > 1 and producer.role == "map" and "col" in _names(producer.home) and position != producer.home:
        return None  # another chunk of the row belongs to another task
    return column


def _names(position: Position) -> frozenset[str]:
    return frozenset().union(*(i.variables for i in position)) if position else frozenset()


def adopt(producer: Sink, position: Position, shape: Sequence[int]) -> Partition | None:
    """The partition of ``shape`` under which reading ``producer`` at ``position`` is local, if there is one.

    Rows that a reshape has joined to an axis, or to its end, are the pieces of that axis.
    """
    space = producer.space
    if space.slices > 1 or (space.kind == "row" and space.rows <= 1):
        return None
    chosen, pieces = dict[str, tuple[int, ...]](), 1
    asked = {"row": space.rows} | ({"col": space.cols} if space.kind == "column" else {})  # of a row any column will do
    for var, extent in asked.items():
        counted = ZERO
        for index, home in zip(position, producer.home, strict=True):
            if var in home.variables:
                ((factor, digit),) = [(c, atom) for c, atom in home.terms if isinstance(atom, Digit) and atom.var == var]
                counted += index.divmod(factor)[0] * digit.stride  # of an axis that the producer has in pieces: which of them
        found = _mixed_radix(counted, shape, extent)
        if found is None or (found[1] > 1 and space.kind == "column"):
            return None
        chosen[var], pieces = found
    whole = chosen["row"] if pieces == 1 else chosen["row"][:-1]  # the axis in pieces is among the columns, too
    rest = tuple(a for a in range(len(shape)) if a not in whole and a not in chosen.get("col", ()))
    return Partition(chosen["row"], (), rest, pieces) if space.kind == "row" else Partition(chosen["row"], rest, chosen["col"])


def _mixed_radix(counted: Index, shape: Sequence[int], extent: int) -> tuple[tuple[int, ...], int] | None:
    """Axes whose digits, major first, count exactly to ``extent``, and in how many pieces these cut the last one.

    All others have whole digits. A cut axis is the last: what lies inside its pieces is the columns'.
    """
    expected, axes, pieces = 1, list[int](), 1
    for coefficient, atom in sorted(counted.terms, key=lambda term: term[0]):
        if not isinstance(atom, Digit) or not atom.var.startswith("d") or (axes and atom.stride != 1):
            return None
        axis = int(atom.var[1:])
        if coefficient != expected or atom.size * atom.stride != shape[axis]:
            return None
        axes.append(axis)
        expected *= atom.size
        pieces = atom.size if atom.stride > 1 else pieces
    return (tuple(reversed(axes)), pieces) if expected == extent and not counted.const else None
