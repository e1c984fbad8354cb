"""Fill one phase of a kernel with statements, by pulling.

In:  a loop of a ``Layout``. Out: the statements that compute what its sub-roots need, each value
where it is read (thread composition), down to values in memory or in registers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..fuse import is_heavy
from ..graph import Node
from ..ops import compute_dtype
from ..stitch.index import Guard, Index, Position, Within, linear, variable, variables_of
from ..stitch.mapping import WARP
from ..stitch.plan import LoopPlan, distance
from ..stitch.pull import Key, Read
from ..stitch.subroots import SubRoot, column_of
from .ir import Choose, Clamp, Compute, Fold, FromIndex, Load, Scalar, Store, Value
from .memory import IN_PARTS, Layout, partial_results

# Additions of one thread. A longer sum keeps what rounding takes from it (``kahan_add``). A core's
# bound is higher: it adds a vector of values at once, and each lane of the vector has a total of
# its own.
LONG_SUM, LONG_SUM_OF_A_CORE = 16, 1024
Constants = dict[tuple[str, str], tuple[str, str, object]]  # dtype and text -> name, dtype, value
Stores = tuple[Store, ...]
Folded = tuple[Fold, Stores]  # a reduction, and the stores of its result


class Names:
    """Names given in a segment: of values, of results that later phases read, of constants."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.count: dict[int, int] = {}
        self.results: dict[int, str] = {}

    def fresh(self, value: int) -> str:
        """A new name for a value: ``v4``, then ``v4_1`` ..."""
        count = self.count.get(value, 0)
        self.count[value] = count + 1
        return f"v{value}" if count == 0 else f"v{value}_{count}"

    def constant(self, dtype: str, value: object) -> str:
        """The name of a literal, each literal once a kernel."""
        new = f"C{len(self.constants)}", dtype, value
        return self.constants.setdefault((dtype, repr(value)), new)[0]


class Statements:
    """Fills one phase: names for (value, position) pairs, and the statements that compute them."""

    def __init__(self, layout: Layout, names: Names, loop: LoopPlan) -> None:
        self.layout = layout
        self.names = names
        self.graph = layout.graph
        self.loop = loop
        self.space = loop.space
        self.m = layout.maps[loop.segment]
        self.before: list[Scalar] = []
        self.body: list[Scalar] = []
        self.name_of: dict[Key, str] = {}
        self.moving = {"col", "ser"}

    # -- where a statement goes
    def _once(self, indices: Iterable[Index]) -> bool:
        """True if what depends on these indices can run once a row.

        They do not change along the loop. False in a loop of no turns, because there is nothing to
        read. False in a loop of one column that several threads share: only the thread of the
        column may read what it wrote.
        """
        loop = self.loop
        turns = loop.cols * loop.serial
        shared = loop.cols == 1 and not self.layout.one_thread_a_row(loop.segment)
        if turns == 0 or shared:
            return False
        return turns == 1 or not self.moving & variables_of(indices)

    def _emit(self, stmt: Value, position: Position) -> str:
        """Add a statement that makes the element at a position. Returns the element's name."""
        (self.before if self._once(position) else self.body).append(stmt)
        return stmt.target

    def fill(self) -> list[Folded]:
        """Write what the loop computes and stores. Returns its reductions, which ``schedule`` places."""
        self._evaluate()
        found = []
        for s in self.loop.sub_roots:
            value = self._partial_result(s) if s.role == "combine" else self.name_of[s.root]
            if s.along:
                fold = self._fold(s, value)
                found.append((fold, self._stores(s, fold.result)))
            else:
                self.body += self._stores(s, value)
        return found

    # -- pulling
    def _evaluate(self) -> None:
        """Compute all pairs in order. An integer in a position is clamped before it is used."""
        pulled = self.loop.pulled
        clamped: set[str] = set()
        for key in pulled.order:
            asked = variables_of(self._asked(key))
            for name in sorted(asked & pulled.indices.keys() - clamped):
                source, size = pulled.indices[name]
                value, position = source
                self._emit(Clamp(name, self.name_of[source], size, value), position)
                clamped.add(name)
                if not self._once(position):
                    self.moving.add(name)
            reads = pulled.reads[key]
            self.name_of[key] = self._leaf(key) if reads is None else self._value(key, reads)

    def _asked(self, key: Key) -> Position:
        """What a pair depends on: the indices of its position and of the guard it is needed under.

        Without the guard if there are several (see ``_load``).
        """
        guard = self.loop.pulled.guards[key] or ()
        return (*key[1], *(condition.index for condition in guard))

    def _leaf(self, key: Key) -> str:
        value, position = key
        layout, t = self.layout, self.graph[value].type
        offset = linear(position, t.shape)
        if value not in layout.final:
            return self._load(key, layout.memory[value], offset, None)
        producer, buffer = layout.final[value], layout.places.get(value)
        if buffer is None or distance(self.loop.sub_roots[0], producer, position) == "grid":
            return self._load(key, layout.memory[value],
                              offset, Within(offset, 0, t.size))
        if not buffer:
            return self.names.results[value]
        column = column_of(producer, position)
        assert column is not None
        if layout.buffers[buffer].scope == "shared":
            offset = self._row_offset(producer, column)
        row = Within(column, 0, producer.cols)  # other rows may not be there yet
        return self._load(key, buffer, offset, row)

    def _row_offset(self, s: SubRoot, column: Index) -> Index:
        """Offset in a shared buffer of rows: where this row begins, then the column in the chunk."""
        width = self.layout.buffers[f"k{s.node}"].size // self.m.rows_per_block
        if self.space.chunks > 1 and "col" in variables_of(s.result_at):
            column += variable("start", s.cols) * -1
        return variable("lane_row", self.m.rows_per_block) * width + column

    def _load(self, key: Key, buffer: str, offset: Index, in_bounds: Within | None) -> str:
        """Load an element, under a guard if it has to be.

        - The element is needed under one guard, and the load stays in the loop that the guard
          depends on. The load has that guard.
        - Else, a value of this kernel: the load has the condition ``in_bounds``.
        - Else, an argument (``in_bounds`` is None): the index is clamped. All elements of an
          argument are there, and the wrong one is not used.
        """
        value, position = key
        guard = self.loop.pulled.guards[key]
        clamp = False
        # out of the loop that its guard depends on
        hoisted = self._once(position) and not self._once(self._asked(key))
        if hoisted or guard is None:
            guard = () if in_bounds is None or in_bounds.verdict else (in_bounds,)
            clamp = in_bounds is None
        name = self.names.fresh(value)
        dtype = self.layout.buffers[buffer].dtype
        return self._emit(Load(name, buffer, offset, guard, clamp, dtype, value), position)

    def _value(self, key: Key, reads: Sequence) -> str:
        value, position = key
        node = self.graph[value]
        dtype = node.type.dtype
        if node.op == "constant":
            return self.names.constant(dtype, node.attr("value"))
        if node.kind == "move":
            return self._choose(node, [r for r in reads if r is not None], position)
        name = self.names.fresh(value)
        if node.op == "iota":
            index = position[node.attr("axis")]
            return self._emit(FromIndex(name, index, dtype, value), position)
        args = tuple(self.name_of[r.key] for r in reads)
        operand = self.graph[node.args[-1]].type.dtype
        heavy = is_heavy(self.graph, node)
        return self._emit(Compute(name, node.op, args, dtype, operand, value, heavy), position)

    def _choose(self, node: Node, reads: Sequence[Read], position: Position) -> str:
        """The name of a move's operand. With several operands: a choice between them."""
        dtype = node.type.dtype
        if node.op == "gather":
            reads = reads[:1]
        if not reads:  # a concatenation of nothing, in a loop of no turns
            return self.names.constant(dtype, 0)
        first, *others = reads if node.op == "update" else reversed(reads)
        result = self.name_of[first.key]
        for read in others:
            value = self.name_of[read.key]
            if read.guard:
                name = self.names.fresh(node.id)
                choice = Choose(name, read.guard, value, result, dtype, node.id)
                value = self._emit(choice, position)
            result = value
        return result

    # -- sub-roots
    def _replicated(self) -> Guard:
        """If every chunk of a row repeats this phase: the guard that only the first one stores."""
        chunks = self.space.chunks
        if chunks > 1 and not self.loop.chunked:
            return (Within(variable("chunk", chunks), 0, 1),)
        return ()

    def _stores(self, s: SubRoot, value: str) -> Stores:
        """Stores of a value: to global memory, and to the row where its block keeps it."""
        node, layout = s.node, self.layout
        if s.role in IN_PARTS:
            cell = _cell(partial_results(s, self.m))
            return (Store(f"p{node}", cell, value, (), node),)
        self.names.results[node] = value
        offset = linear(s.result_at, self.graph[node].type.shape)
        guard = self._replicated()
        found = [Store(buffer, offset, value, guard, node)
                 for buffer in layout.stored_in(node)]
        row = layout.buffers.get(f"k{node}")
        column = column_of(s, s.result_at)
        if row and column is not None:
            found.append(Store(row.name, self._row_offset(s, column),
                               value, (), node))
        return tuple(found)

    def _partial_result(self, s: SubRoot) -> str:
        """Load a partial result from its buffer in scratch memory (``p4``)."""
        name = self.names.fresh(s.node)
        parts = self.layout.buffers[f"p{s.node}"]
        cell = linear(s.partition.position(s.domain), s.domain)
        self.body.append(Load(name, parts.name, cell, (),
                              False, parts.dtype, s.node))
        return name

    def _fold(self, s: SubRoot, value: str) -> Fold:
        """The reduction of a sub-root."""
        m, layout = self.m, self.layout
        node = self.graph[s.node]
        dtype = node.type.dtype
        result = f"r{s.node}"
        if s.role in IN_PARTS:
            dtype = compute_dtype(dtype)
        found = Fold(result, node.op, dtype, value, s.along, s.node)
        if s.role == "carry":
            cell = _cell({"lane_row": m.rows_per_block, "col": s.cols})
            return replace(found, buffer=f"a{s.node}", cell=cell)
        lanes = {"row": min(m.threads_per_row, WARP), "warp": WARP}.get(s.along, 1)
        exchange = layout.exchange_buffers.get(s, "")
        most = LONG_SUM_OF_A_CORE if layout.device.kind == "cpu" else LONG_SUM
        lost = f"{result}_lost" if found.rounds and self._additions(s) > most else ""
        return replace(found, lanes=lanes, exchange=exchange, lost=lost)

    def _additions(self, s: SubRoot) -> int:
        """How many values a thread adds up."""
        loop, m = self.loop, self.m
        if s.along == "row":
            cols = min(loop.cols, m.chunk) if self.space.chunks > 1 else loop.cols
            return -(-cols // m.threads_per_row)
        return -(-loop.serial // (WARP if s.along == "warp" else self.space.slices))


def _cell(extents: Mapping[str, int]) -> Index:
    """The number of a cell, row-major: ``{"row": 8, "chunk": 4}`` gives ``row * 4 + chunk``."""
    return linear([variable(name, n) for name, n in extents.items()],
                  tuple(extents.values()))
