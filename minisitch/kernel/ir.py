"""The statements of the loop program: what ``schedule`` makes, and what both emitters print.

A kernel is a nest of small statements. Two of its loops have names:

- ``Segment``: a loop over tasks of one kind. A grid barrier ends it if the next segment has a
  higher level. On a CPU it is a parallel region.
- ``Phase``: one loop of the plan, with what is before and after it. It ends with a barrier only if
  the next loop reads what other threads made. On a CPU it is usually one vector loop.

An emitter decides no loop, buffer or barrier. For three of them it writes more than they say:

- a ``Segment``: its loops over tasks, and over the parts of column sums
- a ``Loop``: which of its turns a thread or a core takes
- a ``Combine``: shuffles, an exchange between warps, and the barrier of the exchange

For a CPU it decides one thing: which segments share a function.

A phase is a nest of loops, of scalar statements (``Load Compute FromIndex Clamp Choose Store``),
and of the steps of a reduction (``Start Accumulate Combine``). ``Let``, ``If`` and ``Barrier``
complete what a plain kernel needs. An optimisation is a rewrite of the nest. Passes insert
``Window`` and ``VectorMove``.

    Start(r1)                       r1 = LOWEST_f32
    Loop("col", 0, 1024)            for col in range(thread, 1024, 256):
        Load(v0, x)                     v0 = x[row * 1024 + col]
        Accumulate(r1, v0)              r1 = max(r1, v0)
    Combine(r1)                     shuffles, shared memory, one block barrier

``walk`` visits every statement of a nest. ``kernel.nests`` answers what passes and the cost model
ask of a nest besides.

These variables of a task stand in indices:

- ``row``, ``chunk``, ``slice``: which row, which chunk of its columns, which slice of its reduced
  rows
- ``start``: the first column of the chunk
- ``lane_row``: the place of the row among the rows that a block takes at once
- ``part``: which of the partial rows that column sums have in global memory

The other variables are those of loops. In a plain kernel they are ``col`` and ``ser`` (the reduced
rows of a column space).

Guards, and variables that follow from others (``Let``), may also name what an emitter defines:

- ``thread``; ``lane``, the thread's place in its row
- ``part_block``: the number of the part of the column sums that a block makes
- ``first_row``: where a CPU takes several rows at once, the first
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard, TypeVar

from ..errors.lazy import lazy
from ..ops import kind_of
from ..stitch.index import UNBOUNDED, ZERO, Guard, Index, Within, variable, whole
from ..stitch.mapping import ThreadMap
from ..stitch.subroots import Space

COLUMN, REDUCED_ROW = whole("col"), whole("ser")  # of a plain kernel
FIRST = "first"  # in a loop whose turns take several columns: the first column of the turn


@dataclass(frozen=True)
class Buffer:
    """Memory a kernel touches. ``size`` counts elements: those of one block, if it is shared.

    ``scope`` is one of

    - ``input``, ``output``, ``scratch``: global memory
    - ``shared``: a block's; on a CPU a scratch row that stays in cache
    - ``register``: a thread's own, under indices that are known when it is compiled
    """

    name: str
    dtype: str
    size: int
    scope: str
    node: int
    slot: str = ""  # the buffer whose bytes it has: itself, unless some take turns
    why: str = ""
    # ``partial``, ``carry``, ``kept``, ``exchange`` (``memory.py``), ``together`` (``batch_rows``),
    # or "" for a value of the program
    role: str = ""
    window: bool = False  # a part of an array, which may begin anywhere in it: so no wide accesses

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot", self.slot or self.name)

    def __str__(self) -> str:
        return f"{self.scope} {self.name}[{self.size}]"


@dataclass(frozen=True)
class Location:
    """One of the places where a value lives, for the printed kernel.

    In a buffer: its name, and ``words`` that follow the name. In a register: only ``words``.
    """

    buffer: str = ""
    words: str = ""


@dataclass(frozen=True)
class Load:
    """``target = buffer[index]``.

    Where the guard fails the target is 0, and memory is not read. A load through a ``Window`` may
    read there: all of the window lies in its buffer. With ``clamp`` the index is clamped to the
    buffer.
    """

    target: str
    buffer: str
    index: Index
    guard: Guard
    clamp: bool
    dtype: str
    node: int


@dataclass(frozen=True)
class Compute:
    """``target = op(args)``; args are names of values or of constants."""

    target: str
    op: str
    args: tuple[str, ...]
    dtype: str  # of the result, in registers
    operand_dtype: str
    node: int
    heavy: bool = False  # the papers' heavy element-wise operations


@dataclass(frozen=True)
class FromIndex:
    """``target = index`` as a number (iota)."""

    target: str
    index: Index
    dtype: str
    node: int


@dataclass(frozen=True)
class Clamp:
    """``target = min(max(source, 0), size - 1)``: a gather's coordinate made safe."""

    target: str
    source: str
    size: int
    node: int


@dataclass(frozen=True)
class Choose:
    """``target = value if guard else other``: what concatenate and update come down to."""

    target: str
    guard: Guard
    value: str
    other: str
    dtype: str
    node: int


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value`` where the guard holds."""

    buffer: str
    index: Index
    value: str
    guard: Guard
    node: int


Value = Load | Compute | FromIndex | Clamp | Choose  # these give a name a value
Scalar = Value | Store


@dataclass(frozen=True)
class Fold:
    """A reduction: what it adds up, where, and whose partial results it joins.

    ``along``: ``row`` (along a row, so over its columns: all threads of the row end up with the
    result), ``column`` (over the serial axis: each thread owns a column), ``warp`` (over the serial
    axis: each warp owns a column), ``carry`` (over the tasks of a block). The accumulator is the
    register ``result``, or ``buffer[cell]``: a row of sums has a cell for each column. ``lost``: a
    long sum keeps under that name what rounding took from it, and gives it back at the next
    addition (Kahan 1965). Partial results, which another fold joins, have the dtype of the
    arithmetic: they are not rounded to float16.
    """

    result: str
    op: str
    dtype: str
    value: str
    along: str
    node: int
    buffer: str = ""
    cell: Index = ZERO
    lanes: int = 1  # neighbouring threads that shuffle their results together
    exchange: str = ""  # shared memory through which the warps of a row exchange results
    lost: str = ""

    @property
    def rounds(self) -> bool:
        """Whether each addition rounds, so that a long sum drifts away from the true one."""
        return self.op == "sum" and kind_of(self.dtype) == "float"


@dataclass(frozen=True)
class Start:
    """The accumulator becomes the neutral element."""

    fold: Fold


@dataclass(frozen=True)
class Accumulate:
    """``accumulator = op(accumulator, value)``."""

    fold: Fold


@dataclass(frozen=True)
class Combine:
    """Threads join their accumulators: ``result`` is complete, in its own dtype.

    The folds of one ``Combine`` share a barrier.
    """

    folds: tuple[Fold, ...]


@dataclass(frozen=True)
class Window:
    """``name = buffer[index : index + length]``. Where the guard fails, ``index`` is 0."""

    name: str
    buffer: str
    index: Index
    length: int
    guard: Guard = ()


@dataclass(frozen=True)
class VectorMove:
    """``registers[at : at + columns] = buffer[index : index + columns]``, or back if it ``stores``.

    An access has up to 16 bytes. ``index`` is where the first of the columns lies, and a multiple
    of ``columns``. It counts from the first column, so the text writes ``first`` for ``col``
    (``FIRST``).
    """

    buffer: str
    index: Index
    registers: str
    at: Index
    columns: int
    stores: bool
    node: int


@dataclass(frozen=True)
class Barrier:
    """``warp`` or ``block``: its threads wait for each other."""

    scope: str


@dataclass(frozen=True)
class Let:
    """``name = value``: a variable of a loop that follows from others."""

    name: str
    value: Index


@dataclass(frozen=True)
class If:
    """Threads for which the guard does not hold skip the body."""

    guard: Guard
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Loop:
    """``for var in first, first + step, ...: body``, ``turns`` times. All takers together take these turns.

    ``by`` says who takes a turn:

    - ``one``: the thread that is here takes all turns, one after the other
    - ``threads``: the threads of a row, side by side
    - ``warps``, ``lanes``: the warps of a block side by side, and the lanes of a warp
    - ``vector``: one thread, which moves neighbouring columns at once
    - ``unrolled``: one thread, each turn written out
    - ``rows``: one core, which takes the rows of a batch through the loop before the next loop

    Turns for which ``within`` fails are left out: they are past the end of a chunk, of a row, of a
    slice, or in a thread without a row.

        Loop("col", start, 1000, within=(0 <= col < 4096,))   a chunk of 1000 of 4096 columns
    """

    var: str
    first: Index
    turns: int
    body: tuple[Stmt, ...]
    step: int = 1
    by: str = "one"
    within: Guard = ()

    @property
    def last(self) -> int:
        """The end of the values of ``var``, in all tasks."""
        ends = [c.high for c in self.within if c.index == whole(self.var)]
        return min([self.first.bounds[1] + self.turns * self.step, *ends])


Stmt = Scalar | Start | Accumulate | Combine | Window | VectorMove | Barrier | Let | If | Loop
Nest = tuple[Stmt, ...]
AnyStmt = TypeVar("AnyStmt", bound=Stmt)


def of_slice(loop: Loop, segment: Segment, unit: int = 1) -> Loop:
    """A loop over all reduced rows as that over one slice's. A turn takes ``unit`` of them."""
    size, inside = segment.slice_size // unit, Within(whole(loop.var), 0, loop.last)
    return replace(loop, first=variable("slice", segment.slices) * size, turns=size, within=(inside,))


# ---------------------------------------------------------------- walking
def walk(nest: Nest, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Stmt, tuple[Loop, ...]]]:
    """Every statement of a nest in order, with the loops around it, outermost first."""
    for stmt in nest:
        yield stmt, loops
        if isinstance(stmt, Loop):
            yield from walk(stmt.body, (*loops, stmt))
        elif isinstance(stmt, If):
            yield from walk(stmt.body, loops)


def each(nest: Nest, kind: type[AnyStmt]) -> Iterator[AnyStmt]:
    """The statements of one kind, wherever in a nest, in order."""
    return (stmt for stmt, _ in walk(nest) if isinstance(stmt, kind))


def extents(nest: Nest) -> dict[str, int]:
    """How far the outermost loops of a nest run. Pieces of a loop have the extent of the whole."""
    loops = [s for s in nest if isinstance(s, Loop)]
    return {loop.var: max(other.last for other in loops if other.var == loop.var) for loop in loops}


@dataclass(frozen=True)
class Phase:
    """One loop of the plan over the columns of a task, with what is before and after it.

    It ends with a barrier only if the next loop reads what other threads made. The nest covers
    ``cols`` columns and, for each, ``serial`` reduced rows. ``chunked``: the tasks of a row share
    its columns. ``nests.parts`` sorts its statements.
    """

    cols: int
    serial: int
    chunked: bool
    nest: Nest
    # The column of a turn, and its reduced row. Of several columns the first one whose variables the loops have.
    columns: tuple[Index, ...] = (COLUMN,)
    reduced: Index = REDUCED_ROW

    @property
    def barrier(self) -> str:
        """At its end: ``none``, ``warp`` or ``block``."""
        *_, last = (None, *self.nest)
        return last.scope if isinstance(last, Barrier) else "none"

    @property
    def block_barriers(self) -> int:
        """Its block barriers: at exchanges between the warps of a row, and perhaps at its end."""
        exchanged = sum(any(f.exchange for f in stmt.folds) for stmt in each(self.nest, Combine))
        return exchanged + (self.barrier == "block")

    @lazy
    def width(self) -> int:
        """Neighbouring columns that a thread takes at once."""
        return max((s.last for s in each(self.nest, Loop) if s.by == "vector"), default=1)


@dataclass(frozen=True)
class Segment:
    """A loop over the tasks of a space, dealt out to blocks and threads as its map says.

    ``barrier`` is ``grid`` if all of them end before the next segment.
    """

    space: Space
    thread_map: ThreadMap
    slice_size: int
    phases: tuple[Phase, ...]
    task_barrier: str  # between two tasks of a block: "none" | "warp" | "block"
    barrier: str
    opening: Nest = ()  # before the tasks of a block: its column sums start
    closing: Nest = ()  # after them: they are stored
    step: int = 1  # rows of a turn of the loop over tasks; the phases have loops over them

    rows = property(lambda self: self.space.rows)
    chunks = property(lambda self: self.space.chunks)
    slices = property(lambda self: self.space.slices)
    chunk = property(lambda self: self.thread_map.chunk)  # columns of a task of a split row, or of a column tile

    @lazy
    def nest(self) -> Nest:
        """All its statements."""
        return (*self.opening, *(stmt for p in self.phases for stmt in p.nest), *self.closing)

    @lazy
    def carries(self) -> tuple[Fold, ...]:
        """The sums that live across the tasks of a block."""
        return tuple(s.fold for s in each(self.opening, Start))

    @lazy
    def windows(self) -> dict[str, Window]:
        """The windows of its phases by name."""
        return {s.name: s for s in each(self.nest, Window)}

    @property
    def tasks(self) -> int:
        """The number of tasks. A block takes a task in one turn: rows, a chunk, or a slice."""
        return -(-self.rows // self.thread_map.rows_per_block) * self.chunks * self.slices

    def threads(self, block: int) -> int:
        """Threads of a GPU's block that share the columns of a task."""
        return block if self.space.kind == "column" or self.chunks > 1 else self.thread_map.threads_per_row

    @property
    def ragged(self) -> bool:
        """Whether the last task has fewer rows than the others: some threads are not ``live``."""
        return self.space.kind == "row" and self.rows % self.thread_map.rows_per_block != 0

    def extents(self, phase: Phase | None = None) -> dict[str, int]:
        """Extents of a task's variables, so that an index prints no needless remainder."""
        own = {"col": phase.cols, "ser": phase.serial} if phase else {}
        return {"row": self.rows, "chunk": self.chunks, "slice": self.slices, "start": self.columns,
                "thread": UNBOUNDED, "lane_row": max(self.thread_map.rows_per_block, self.step), **own}

    @property
    def columns(self) -> int:
        """Columns that the chunks of a row, or the tiles of a column space, share."""
        return max((p.cols for p in self.phases if p.chunked), default=0)


# ---------------------------------------------------------------- what statements use
def place_of(segment: Segment, stmt: Load | Store | VectorMove) -> tuple[str, Index]:
    """The buffer of an access and the index in it, also if the access goes through a window."""
    window = segment.windows.get(stmt.buffer)
    return (window.buffer, window.index + stmt.index) if window else (stmt.buffer, stmt.index)


def is_store(stmt: Stmt) -> TypeGuard[Store | VectorMove]:
    """Whether a statement writes to a buffer."""
    return isinstance(stmt, Store) or (isinstance(stmt, VectorMove) and stmt.stores)


def indices(stmt: Stmt) -> list[Index]:
    """The indices a statement uses, those of its guard included."""
    own = [stmt.index] if isinstance(stmt, Load | Store | FromIndex | Window) else []
    own += [stmt.value] if isinstance(stmt, Let) else [stmt.first] if isinstance(stmt, Loop) else []
    guard = stmt.within if isinstance(stmt, Loop) else getattr(stmt, "guard", ())
    return [*(c.index for c in guard), *own]


# The fields of scalar statements that name a value they read, besides ``args``.
OPERANDS = ("source", "value", "other")


def operands(stmt: Scalar) -> tuple[str, ...]:
    """Names of the values a statement reads, those in its indices and guards included."""
    if isinstance(stmt, Compute):
        return stmt.args
    loaded = sorted(frozenset().union(*(i.loaded for i in indices(stmt))))
    return (*(getattr(stmt, field) for field in OPERANDS if hasattr(stmt, field)), *loaded)
