"""Sub-roots (class ``SubRoot``), the values that have loops, and where each element is made.

In:  a sub-root, with its tasks (``Space``) and its axes (``Partition``), and the position at which
another loop reads its value. Out: answers to AStitch's two locality questions (2022, section 4.3).
Is an element made where it is read (``column_of``)? How must the reader's loop run so that each
element is made where it is read (``adopt``)?

``loops.py`` gives each sub-root its loop. A loop runs over the elements of a *task*, which is what a
block of threads does at one time. Its *level* is the number of grid barriers before it. Its
*segment* is its level and its tasks. Loops of a segment run in the order of their *phase* numbers.
Loops with one number do not wait for each other.

An index is a sum of multiples of *digits*, such as ``(col // 8) % 4``, of the loop variables
``row``, ``ser`` and ``col``. While the loop of a value is not chosen yet, ``d0``, ``d1`` ... number
its axes (``index.py``). A *key* is a value at a position (``pull.py``).

Before:  %4 of [64, 64] has a loop over 64 rows. Another loop over the same rows reads it.
After:   read at [row, col]: ``column_of`` is col. Read at [col, row]: None, other rows make it.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..errors.lazy import lazy
from ..graph import Graph, Node, Shape
from .index import ZERO, Digit, Index, Position, digits, variables_of
from .mapping import ThreadMap
from .pull import Key

Axes = tuple[int, ...]  # numbers of axes


# ---------------------------------------------------------------- what a sub-root is
@dataclass(frozen=True, order=True)
class Space:
    """The tasks of a segment. The segments of a level run in the order of their spaces.

    - ``row``: there are ``rows`` rows. Each has threads of its own, and no row reads another's
      values without a grid barrier. A task is one row or several (horizontal packing): only
      ``ThreadMap`` knows how many. With ``chunks`` a task is one chunk of a row (task splitting).
    - ``column``: a task is one of ``rows`` problems, one of ``chunks`` tiles of the kept columns,
      and one of ``slices`` slices of the serial axis.
    - ``block``: a task is one of ``rows`` blocks. It owns a piece of every sub-root
      (``blocks.arrange``).
    """

    kind: str  # "row" | "column" | "block"
    rows: int
    chunks: int = 1
    slices: int = 1
    serial: int = 1  # with slices: the length of the serial axis
    # Column space: the kept columns. Split rows: the columns of a whole row. Else 0: each phase has
    # its own.
    cols: int = 0


class Extents(NamedTuple):
    """Elements of a task, or of a domain: rows, turns inside a thread, columns."""

    rows: int
    serial: int
    cols: int


@dataclass(frozen=True)
class Partition:
    """Which axes of a domain become rows, run inside a thread, or run across threads.

    These are ``rows``, ``serial`` and ``cols``. An axis in both ``rows`` and ``cols`` is cut into
    ``pieces``. The row is the number of the piece, and the column is the place inside it.

    [8, 64, 32] with rows (0,), cols (1, 2): 8 rows of 2048 columns. [512, 32] with rows (0,), cols
    (0, 1), pieces 8: axis 0 in 8 pieces of 64, so 8 rows of 64 x 32 columns.
    """

    rows: Axes
    serial: Axes
    cols: Axes
    pieces: int = 1

    def _sizes(self, shape: Shape) -> tuple[Shape, Shape, Shape]:
        """The extents of the axes of ``rows``, ``serial`` and ``cols``."""
        rows = tuple(self.pieces if a in self.cols else shape[a] for a in self.rows)
        cols = tuple(shape[a] // self.pieces if a in self.rows else shape[a] for a in self.cols)
        return rows, tuple(shape[a] for a in self.serial), cols

    @lru_cache(maxsize=4096)  # noqa: B019  it keeps partitions alive, which are small
    def position(self, shape: Shape) -> Position:
        """The domain position as digits of ``row``, ``ser`` and ``col``."""
        found: list[Index] = [ZERO] * len(shape)
        names, all_axes = ("row", "ser", "col"), (self.rows, self.serial, self.cols)
        for var, axes, sizes in zip(names, all_axes, self._sizes(shape), strict=True):
            for axis, digit in zip(axes, digits(var, sizes), strict=True):
                piece = shape[axis] // self.pieces if var == "row" and axis in self.cols else 1
                found[axis] += digit * piece
        return tuple(found)

    def extents(self, shape: Shape) -> Extents:
        """Elements along rows, serial and cols."""
        return Extents(*map(math.prod, self._sizes(shape)))


SegmentKey = tuple[int, Space]  # the grid barriers before it, and its tasks


@dataclass(frozen=True, order=True)
class LoopKey:
    """What sub-roots that share a loop have in common. Loops run in the order of their keys."""

    level: int
    space: Space
    phase: int
    serial: int  # turns of the loop over reduced rows
    cols: int
    chunked: bool  # whether a task has only its chunk of the columns
    combines: bool  # whether partial results are combined
    folds: str  # who folds along the serial axis: "column" | "warp" | ""

    @property
    def segment(self) -> SegmentKey:
        return self.level, self.space


@dataclass(frozen=True)
class SubRoot:
    """A sub-root: a value, or a part of its work, that a loop computes and stores or folds.

    Sub-roots may share the loop (``LoopKey``).

    ``role`` says what the loop does:

    - ``map``: evaluates the value element by element.
    - ``operand``: evaluates one operand of a concatenation, and stores it at its offset.
    - ``reduce``: folds each result in one task.
    - ``partial``: folds each result in several tasks, with one partial result each.
    - ``carry``: folds over the tasks of a block: the block's *column sums*. It has one partial
      result for each of the block's *row lanes*, the places of the rows that it takes at once.
    - ``combine``: folds the partial results.
    """

    node: int
    role: str
    operand: int  # the value that the loop evaluates, to store or to fold it
    domain: Shape
    partition: Partition
    space: Space
    result_at: Position  # where its result lies, in terms of row and col
    thread_map: ThreadMap
    level: int = 0  # grid barriers before it
    phase: int = 0  # the order of the loops in a segment
    warps: bool = False  # of a reduce in a block composition: a warp folds each column

    @property
    def along(self) -> str:
        """What a reduce folds over.

        ``row``: one row, so its columns, by all threads of the row. ``column``: the serial axis, by
        one thread. ``warp``: the serial axis, by the lanes of a warp. ``carry``: the tasks of a
        block. Empty for a map or an operand.
        """
        if self.role in ("map", "operand"):
            return ""
        if self.role == "carry":
            return "carry"
        if self.warps:
            return "warp"
        by_column = self.partition.serial or "col" in variables_of(self.result_at)
        return "column" if by_column else "row"

    @property
    def segment(self) -> SegmentKey:
        return self.level, self.space

    @property
    def root(self) -> Key:
        """What its loop computes: the value that is stored or folded, and its position."""
        return self.operand, self.partition.position(self.domain)

    @lazy
    def extents(self) -> Extents:
        return self.partition.extents(self.domain)

    @property
    def cols(self) -> int:
        return self.extents.cols

    @lazy
    def loop(self) -> LoopKey:
        """Its loop, which other sub-roots may share."""
        (_, serial, cols), space = self.extents, self.space
        combines = self.role == "combine"
        part_of_row = space.chunks > 1 and cols == space.cols and not combines
        chunked = space.kind == "column" or part_of_row
        folds = self.along if self.along in ("column", "warp") else ""
        return LoopKey(self.level, space, self.phase, serial, cols, chunked, combines, folds)


def map_of(node: Node, partition: Partition, space: Space, thread_map: ThreadMap) -> SubRoot:
    """The sub-root that evaluates a node element by element. It has no level and no phase yet."""
    shape = node.type.shape
    return SubRoot(node.id, "map", node.id, shape, partition, space, partition.position(shape), thread_map)


def fold_of(graph: Graph, node: Node, role: str, partition: Partition, space: Space,
            thread_map: ThreadMap) -> SubRoot:
    """The sub-root that folds the operand of a reduce, or a part of it."""
    operand, axes = graph[node.args[0]], node.attr("axes")
    domain = operand.type.shape
    operand_at = partition.position(domain)
    kept = range(len(domain)) if node.attr("keepdims") else other_axes(domain, axes)
    result_at = tuple(ZERO if a in axes else operand_at[a] for a in kept)
    return SubRoot(node.id, role, operand.id, domain, partition, space, result_at, thread_map)


def other_axes(shape: Shape, axes: Axes) -> Axes:
    """The axes of a shape without some of them."""
    return tuple(a for a in range(len(shape)) if a not in axes)


# ---------------------------------------------------------------- where each element is made
def makes_locally(producer: SubRoot, space: Space, position: Position) -> bool:
    """Whether each row, tile or block of ``space`` itself makes the element at ``position``.

    Never true of an operand of a concatenation, which is only a part of its value.
    """
    return producer.space == space and producer.role != "operand" and column_of(producer, position) is not None


def column_of(producer: SubRoot, position: Position) -> Index | None:
    """Passive locality check (AStitch 2022, 4.3): the column that the producer is read at.

    None if another row, tile or block makes the element. The consumer must run over the same
    ``Space``. In a row space its row must be the producer's row, and any column will do. In a
    column space its column must be the producer's, since one thread holds it. An axis cut into
    pieces must be read inside the consumer's own piece.

    For a producer of [64, 32] with its element at [row, col], in a row space:

        read at [row, 2 * col]    2 * col: any column of the row
        read at [col, row]        None: another row makes it (``index != made`` for axis 0)

    The same in a column space, where a thread holds its column:

        read at [row, 2 * col]    None: another thread holds that column
        read at [row, col]        col

    For a producer of [768] with its element at [row * 12 + col], in 64 pieces of 12:

        read at [row * 12 + 11 - col]    11 - col, which lies in 0 ... 11
        read at [row * 12 + col + 1]     None: col + 1 may be 12, which is the next row's

    If a row is split into chunks, a map is read where it was made. At [row, 2 * col]: None.
    """
    column = ZERO
    for index, made in zip(position, producer.result_at, strict=True):
        names = made.variables
        if made == ZERO:
            continue  # an axis of one has only this element
        if "ser" in names or (("col" not in names or producer.space.kind == "column") and index != made):
            return None
        if "col" in names:
            coefficient, digit = _digit_of("col", made)
            piece = made + Index(0, ((-1, digit),))  # where the row's piece of the axis begins
            inside = index + piece * -1
            low, high = inside.bounds
            if coefficient != 1 or (piece.terms and not 0 <= low <= high < digit.size):
                return None
            column = column + inside * digit.stride
    by_column = producer.role == "map" and "col" in variables_of(producer.result_at)
    if producer.space.chunks > 1 and by_column and position != producer.result_at:
        return None  # another task makes the other chunks of the row
    return column


def adopt(producer: SubRoot, position: Position, shape: Shape) -> Partition | None:
    """The partition of ``shape`` under which every row reads ``producer`` locally at ``position``.

    None if there is no such partition. If a reshape has joined the producer's rows to a longer
    axis, the axis is cut into pieces, one for each row.

    Before:  %4 [64, 12] has 64 rows. A value of [768] reads it through a reshape.
    After:   the axis of 768 in 64 pieces of 12, one for each row

    Here %4 lies at [row, col] and is read at [d0 // 12, d0 % 12]. So the row is d0 // 12, and that
    is the number of a piece of 12 elements of axis 0 (``_mixed_radix``).

    There is none in these cases:

    - The producer has one row, or slices: there is nothing to take over, or it is not complete.
    - %4 is read at [d0 // 6, ...] by a value of [384]: the row is d0 // 6, in 64 pieces of 6. But
      read at [d0 // 12, d0 % 12] the 384 elements are in rows 0 to 31: not all 64 are counted.
    - In a column space %4 is read at [d1, d0 // 2]: a column would be a piece of two elements.
    """
    space = producer.space
    if space.slices > 1 or (space.kind == "row" and space.rows <= 1):
        return None
    by_row = _mixed_radix(_counted("row", producer, position), shape, space.rows)
    if by_row is None:
        return None
    rows, pieces = by_row
    if space.kind == "row":  # any column will do; the axis in pieces is also among the columns
        whole = rows if pieces == 1 else rows[:-1]
        return Partition(rows, (), other_axes(shape, whole), pieces)
    by_col = _mixed_radix(_counted("col", producer, position), shape, space.cols)
    if by_col is None or max(pieces, by_col.pieces) > 1:
        return None
    return Partition(rows, other_axes(shape, rows + by_col.axes), by_col.axes)


def _counted(var: str, producer: SubRoot, position: Position) -> Index:
    """The value of a loop variable of ``producer`` when it makes the element at ``position``."""
    counted = ZERO
    for index, made in zip(position, producer.result_at, strict=True):
        if var in made.variables:
            factor, digit = _digit_of(var, made)  # the factor is the length of a piece, or 1
            # what the position says of this digit, times what the digit counts in ``var``
            counted += index.divmod(factor)[0] * digit.stride
    return counted


def _digit_of(var: str, made: Index) -> tuple[int, Digit]:
    """The one digit of a loop variable in an axis of a producer, and what it is multiplied by."""
    (term,) = [(c, atom) for c, atom in made.terms if isinstance(atom, Digit) and atom.var == var]
    return term


class MixedRadix(NamedTuple):
    """Axes that count together, the slowest first. The last one may be cut into pieces."""

    axes: Axes
    pieces: int


def _mixed_radix(counted: Index, shape: Shape, extent: int) -> MixedRadix | None:
    """The axes of ``shape`` that ``counted`` numbers from 0 to ``extent``. None if it does not.

    The elements of a piece are left to the columns. Other axes must be counted as a whole.
    """
    expected, axes, pieces = 1, list[int](), 1
    for coefficient, atom in sorted(counted.terms, key=lambda term: term[0]):
        if not isinstance(atom, Digit) or (axes and atom.stride != 1):
            return None
        axis = int(atom.var[1:])  # of a position whose loop is not chosen yet: d0, d1 ...
        if coefficient != expected or atom.size * atom.stride != shape[axis]:
            return None
        axes.append(axis)
        expected *= atom.size
        pieces = atom.size if atom.stride > 1 else pieces
    if expected != extent or counted.const:
        return None
    return MixedRadix(tuple(reversed(axes)), pieces)
