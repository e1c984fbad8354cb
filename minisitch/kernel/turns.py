"""Who takes which turns: the checker of loops, guards, lets and folds.

In:  a ``Kernel``. Out: nothing, or a ``KernelError`` that names the statement and the rule it breaks.

The turns of all loops around a statement, the takers of these loops and the tasks of its segment make
up its *instances*. Every variable is a sum of counters: of turns, of tasks, of threads. So the checker
knows which columns, reduced rows and rows the instances of a statement have, and how often.

    for col in range(start + lane, min(start + 1000, 4096), 256)
        col = 1000 chunk + turn           turns 0 to 999, chunks 0 to 4, col < 4096: the columns 0 to 4095

The rules:

- *Once.* Each row, column and reduced row of a phase is taken once where a value is folded or stored.
- *Joined.* A fold that ``Combine`` joins over n threads is accumulated by those n. Its steps agree.
- *One writer.* A store is made by one thread of those that share a task: their loops deal out its
  cells, or an ``If`` leaves one of them.
- *Met.* All threads of its scope meet a barrier: no loop that is dealt out and no guard over threads
  stands around it.
- *Live.* A thread without a row has no part in what is done for rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import KernelError
from ..ops import compute_dtype
from ..stitch.index import Digit, Guard, Index, whole
from ..stitch.mapping import WARP
from . import Kernel, ir
from .memory import IN_PARTS
from .show import show_stmt

# The threads among which a loop deals out its turns, by ``Loop.by``. The others are one thread's.
DEALT = {"threads": "lane", "warps": "warp", "lanes": "lane of a warp"}
ONE_THREAD = ("one", "vector", "unrolled", "rows")
Span = tuple[int, int]  # the first value and the end


@dataclass(frozen=True)
class Surroundings:
    """What stands around a statement: variables in terms of counters, the counters' sizes, loops, guards."""

    values: Mapping[str, Index]
    sizes: Mapping[str, int]
    loops: tuple[ir.Loop, ...] = ()
    guard: Guard = ()

    def of(self, index: Index) -> Index:
        """An index in terms of counters. Raises KeyError for a variable that nothing around gives a value."""
        total = Index(index.const)
        for c, atom in index.terms:
            if not isinstance(atom, Digit):
                return total + index
            if atom.var == "thread":
                total += whole(DEALT["lanes"]) * c
            else:
                value = self.values[atom.var]
                total += (value if atom.stride == 1 else Index(0, ((1, atom),))) * c
        return total

    def inside(self, guard: Guard) -> "Surroundings":
        """What is around the statements for which a guard holds."""
        found = tuple(replace(c, index=self.of(c.index)) for c in guard)
        return replace(self, guard=(*self.guard, *found))

    def turns(self, loop: ir.Loop) -> "Surroundings":
        """What is around the body of a loop."""
        value = self.of(loop.first) + whole(loop.var) * loop.step
        taken = Surroundings({**self.values, loop.var: value}, {**self.sizes, loop.var: loop.turns},
                       (*self.loops, loop), self.guard)
        return taken.inside(loop.within)

    def counted(self, index: Index) -> list[tuple[int, str]]:
        """The counters of a sum and their factors, the smallest first. Those that stand still are left out."""
        terms = [(c, atom.var) for c, atom in index.terms if isinstance(atom, Digit)]
        return sorted((c, name) for c, name in terms if self.sizes[name] != 1)

    def counters(self, *indices: Index) -> set[str]:
        """The counters of some sums that do not stand still."""
        return {name for index in indices for _, name in self.counted(index)}

    def span(self, index: Index) -> Span | None:
        """The values that a sum of counters takes, each of them once. None if that is not so.

        Each counter counts in multiples of what those before it have covered, and guards cut the end.
        """
        if any(not self.counted(c.index) and not c.low <= c.index.const < c.high
               for c in self.guard):
            return index.const, index.const  # nobody is here
        terms, cut = self.counted(index), set[int]()
        first, end = 0, 1
        for k, (factor, name) in enumerate(terms):
            if not self.sizes[name]:
                return index.const, index.const
            if factor != end or first:
                return None
            end = factor * self.sizes[name]
            for number, c in enumerate(self.guard):
                own = self.counted(c.index)
                tail = terms[k + 1 - len(own):k + 1]
                if own and [n for _, n in own] == [n for _, n in tail]:
                    times, rest = divmod(tail[0][0], own[0][0])
                    if not rest and all(a == times * b for (a, _), (b, _) in zip(tail, own, strict=True)):
                        step = tail[0][0]
                        low, high = (-(-(edge - c.index.const) * times // step) * step
                                     for edge in (c.low, c.high))
                        # nobody tests an end below 0, because no index is negative
                        first, end = max(first, low if c.low > 0 else first), min(end, max(0, high))
                        cut.add(number)
        counted = self.counters(index)
        touching = {n for n, c in enumerate(self.guard) if counted & self.counters(c.index)}
        return None if touching - cut else (first + index.const, max(first, end) + index.const)


    def bounds(self, index: Index) -> Span:
        """The least value of a sum of counters and the end of its values, without the guards."""
        last = sum(factor * (self.sizes[name] - 1) for factor, name in self.counted(index))
        return index.const, index.const + last + 1


class Taken(NamedTuple):
    """A statement that is done once for each of some columns."""

    stmt: ir.Stmt
    around: Surroundings
    column: Index


def _by_outer_loops(taken: Sequence[Taken]) -> Iterable[list[Taken]]:
    """Those in the pieces of one loop together. A loop with none around is whole, and its pieces are alone."""
    found: dict[object, list[Taken]] = {}
    for number, each in enumerate(taken):
        outer = [id(loop) for loop in each.around.loops[:-1]]
        found.setdefault(tuple(outer) or number, []).append(each)
    return found.values()


class TurnsChecker:
    """Checks the loops of one segment."""

    def __init__(self, kernel: Kernel, segment: ir.Segment, place: str) -> None:
        self.kernel, self.segment, self.place = kernel, segment, place
        self.gpu = kernel.device.kind == "gpu"
        self.threads = segment.threads(kernel.block) if self.gpu else 1
        self.takers = {"lane": self.threads, "warp": self.threads // WARP,
                       DEALT["lanes"]: WARP if self.gpu else 1}
        self.started: dict[str, tuple[ir.Fold, Surroundings]] = {}
        # the nodes whose values the names have
        self.made = {name: -1 for name, _, _ in kernel.constants}

    def wrong(self, stmt: ir.Stmt, said: str) -> KernelError:
        return KernelError(f"{self.place}: {said}, in: {show_stmt(stmt)}")

    # ------------------------------------------------------------ a segment
    def check(self) -> None:
        """Check the segment's nests."""
        s, m = self.segment, self.segment.thread_map
        together = m.rows_per_block if self.gpu and s.space.kind == "row" else 1
        sizes = {"row": -(-s.rows // together) * together, "first_row": -(-s.rows // s.step),
                 "chunk": s.chunks, "slice": s.slices,
                 "lane_row": m.rows_per_block, "part_block": m.blocks, "part": m.blocks,
                 **self.takers}
        threads = {name: whole(name) for name in ("lane", "lane_row") if self.gpu}
        part = "part_block" if self.gpu else "part"
        row = {"first_row": whole("first_row") * s.step} if s.step > 1 else {"row": whole("row")}
        of_task = {"chunk": whole("chunk"), "slice": whole("slice"),
                   "start": whole("chunk") * s.chunk}
        block = Surroundings({**threads, part: whole(part)}, sizes)
        task = Surroundings({**threads, **of_task, **row}, sizes)
        self._phase(ir.Phase(-1, 1, False, s.opening), block, "before its tasks")
        for number, phase in enumerate(s.phases):
            self._phase(phase, task, f"phase {number}")
        self._phase(ir.Phase(-1, 1, False, s.closing), block, "after its tasks")

    def _phase(self, phase: ir.Phase, around: Surroundings, words: str) -> None:
        place, self.place = self.place, f"{self.place}, {words}"
        self.phase = phase
        # What is stored or folded, and the columns for which that happens.
        self.taken: dict[object, list[Taken]] = {}
        self._nest(phase.nest, around)
        for taken in self.taken.values():
            columns = [(self._columns(pieces), pieces[0].stmt) for pieces in _by_outer_loops(taken)]
            end = self._in_a_row(columns)
            if end != phase.cols and not self._in_registers(taken[0].stmt):
                raise self.wrong(taken[-1].stmt, f"columns 0 to {end - 1} are taken where there are {phase.cols}; "
                                                 "each is taken once")
        if phase.cols * phase.serial * self.segment.rows > 0:
            for stmt in ir.each(phase.nest, ir.Combine):
                for fold in stmt.folds:
                    if fold.result not in self.taken and fold.along != "carry":
                        raise self.wrong(stmt, f"{fold.result} is joined, and nothing is added to it")
        self.place = place

    def _in_a_row(self, spans: Iterable[tuple[Span, ir.Stmt]]) -> int:
        """The end of spans that follow each other from 0 on."""
        end = 0
        for (first, last), stmt in sorted(spans, key=lambda each: each[0]):
            if first != end and first < last:
                raise self.wrong(stmt, f"the columns from {min(first, end)} to {max(first, end) - 1} are "
                                       f"{'left out' if first > end else 'taken twice'}; each is taken once")
            end = max(end, last)
        return end

    def _columns(self, pieces: Sequence[Taken]) -> Span:
        """The columns for which the pieces of one loop do the same."""
        one = pieces[0]
        around, column = one.around, one.column
        if len(pieces) > 1:
            ranges = [((loop.first.const, loop.last), each.stmt) for each in pieces
                      for loop in each.around.loops[-1:]]
            var, factor = around.loops[-1].var, column.times(around.loops[-1].var)
            around = replace(around, sizes={**around.sizes, var: self._in_a_row(ranges)})
            column += -around.loops[-1].first.const * factor
        columns = around.span(column)
        if columns is None:
            raise self.wrong(one.stmt, "its columns do not follow from its loops one by one, each once")
        return columns

    def _nest(self, nest: ir.Nest, around: Surroundings) -> None:
        for stmt in nest:
            try:
                around = self._statement(stmt, around)
            except KeyError as missing:
                raise self.wrong(stmt, f"{missing.args[0]} is no variable of a loop around; it takes a Loop or a Let") from None

    def _statement(self, stmt: ir.Stmt, around: Surroundings) -> Surroundings:
        """Check one statement. Returns what is around the next one."""
        match stmt:
            case ir.Loop():
                self._loop(stmt, around)
            case ir.If():
                if not stmt.guard:
                    raise self.wrong(stmt, "an If without a guard leaves nobody out")
                inner = around.inside(stmt.guard)
                if any("row" in c.index.variables for c in stmt.guard):
                    self._live(stmt, inner)
                self._nest(stmt.body, inner)
            case ir.Let():
                return replace(around, values={**around.values, stmt.name: around.of(stmt.value)})
            case ir.Barrier(scope):
                self._met(stmt, around, scope)
            case ir.Start(fold):
                self._fold(stmt, fold)
                self.started[fold.result] = fold, around
                if fold.buffer:
                    self._cells(stmt, fold, around)
            case ir.Accumulate(fold):
                self._accumulate(stmt, fold, around)
            case ir.Combine(folds):
                self._combine(stmt, folds, around)
            case ir.VectorMove():
                self._moved(stmt, around)
            case ir.Window():
                for index in (stmt.index, *(c.index for c in stmt.guard)):
                    self._bound(around, index)
            case _ if isinstance(stmt, ir.Scalar):
                self._scalar(stmt, around)
        return around

    def _loop(self, loop: ir.Loop, around: Surroundings) -> None:
        if loop.by not in (*DEALT, *ONE_THREAD):
            raise self.wrong(loop, f"{loop.by!r} takes no turns; by is one of {', '.join((*DEALT, *ONE_THREAD))}")
        if loop.by in ("warps", "lanes") and self.gpu and self.threads != self.kernel.block:
            raise self.wrong(loop, f"the {loop.by} of a block take turns where {self.threads} threads share a task; "
                                   "a task is the whole block's")
        if min(loop.turns, loop.first.bounds[0]) < 0 or loop.step < 1 or loop.var in around.sizes.keys() - {"lane_row"}:
            raise self.wrong(loop, f"{loop.turns} turns of {loop.var} in steps of {loop.step}: a loop has a variable "
                                   "of its own, and counts up from 0 or more")
        if any(c.index.times(loop.var) < 0 for c in loop.within):
            raise self.wrong(loop, f"a condition of the loop does not count up with {loop.var}")
        inner = around.turns(loop)
        if any("row" in c.index.variables for c in loop.within):
            self._live(loop, inner)
        self._nest(loop.body, inner)

    # ------------------------------------------------------------ the rules
    def _live(self, stmt: ir.Stmt, around: Surroundings) -> None:
        """Exactly the threads that have a row take part in what is done for rows."""
        rows = around.span(around.values["row"]) if "row" in around.values else (0, self.segment.rows)
        if rows != (0, self.segment.rows):
            raise self.wrong(stmt, f"it is done for {rows and rows[1]} rows where there are {self.segment.rows}; "
                                   "it takes the guard row < rows")

    def _met(self, stmt: ir.Stmt, around: Surroundings, scope: str) -> None:
        """All threads of the scope, a warp or the block, meet here."""
        apart = {DEALT[loop.by] for loop in around.loops if loop.by in DEALT}
        apart |= around.counters(*(c.index for c in around.guard))
        of_warp = {"lane", DEALT["lanes"], *(["row"] if self.threads % WARP else [])}
        of_block = of_warp | {"warp", "row"}
        if self.threads > 1 and apart & (of_warp if scope == "warp" else of_block):
            raise self.wrong(stmt, f"not all threads of a {scope} meet here; a barrier or a Combine stands in no loop that "
                                   "is dealt out to them, and under no guard over them")

    def _column(self, around: Surroundings) -> Index | None:
        """The column of the innermost turn, in counters."""
        for column in self.phase.columns:
            if column.variables <= around.values.keys():
                return around.of(column)
        return None

    def _dealt(self, stmt: ir.Stmt, around: Surroundings, loops: Iterable[ir.Loop],
               column: Index | None) -> dict[str, str]:
        """The kinds of threads among which the turns of loops are dealt out, each with the counter that numbers them."""
        found: dict[str, str] = {}
        kinds = [(DEALT[loop.by], loop.var) for loop in loops if loop.by in DEALT
                 and self.threads > 1]
        if column and "lane" in around.counters(column):
            kinds.append(("lane", "lane"))
        for kind, counter in kinds:
            if kind in found or (found and "lane" in (kind, *found)):
                raise self.wrong(stmt, f"the turns of two loops are dealt out to the same threads ({kind})")
            found[kind] = counter
        return found

    def _take(self, stmt: ir.Stmt, key: object, around: Surroundings, column: Index | None,
              reduces: bool) -> None:
        """Note for which columns a statement is done. Each counter around it counts columns, or else reduced rows."""
        if column is None:
            raise self.wrong(stmt, "its loops are no loops over the phase's columns (Phase.columns)")
        counters = [name for _, name in around.counted(column)]
        reduces = reduces or self.phase.reduced.variables <= around.values.keys()
        if reduces and self.phase.serial != 1:
            reduced = around.of(self.phase.reduced)
            rows = around.span(reduced)
            if rows != (0, self.phase.serial):
                raise self.wrong(stmt, f"the reduced rows {rows or 'it takes'} are not each of the {self.phase.serial} once")
            counters += [name for _, name in around.counted(reduced)]
        if self.segment.slices > 1 and reduces:
            counters += [] if "slice" in counters else ["slice", "slice"]
        own = [loop.var for loop in around.loops if loop.turns != 1 and loop.by != "rows"]
        if again := [name for name in {*own, *counters} if counters.count(name) != 1]:
            raise self.wrong(stmt, f"each turn of {', '.join(sorted(again))} does the same again; a turn takes a column or a "
                                   "reduced row of its own")
        self.taken.setdefault(key, []).append(Taken(stmt, around, column))

    # ------------------------------------------------------------ folds
    def _fold(self, stmt: ir.Stmt, fold: ir.Fold) -> None:
        """A fold is what the plan and the graph say of its node."""
        graph, plan = self.kernel.graph, self.kernel.plan
        known = [s for s in plan.sub_roots if s.node == fold.node and s.along == fold.along]
        if not known or graph[fold.node].op != fold.op:
            raise self.wrong(stmt, f"the plan has no {fold.op} of %{fold.node} along {fold.along}")
        dtype = graph[fold.node].type.dtype
        if fold.dtype not in {compute_dtype(dtype) if s.role in IN_PARTS else dtype for s in known}:
            raise self.wrong(stmt, f"%{fold.node} is folded in {fold.dtype}; it is of {dtype}")
        if fold.lost and not fold.rounds:
            raise self.wrong(stmt, f"{fold.result} keeps what rounding takes from it, and nothing is rounded")

    def _same(self, stmt: ir.Stmt, fold: ir.Fold) -> tuple[ir.Fold, Surroundings] | None:
        """Where the fold starts. Raises KernelError if it started as another one."""
        if fold.result not in self.started:
            return None
        first, around = self.started[fold.result]
        if replace(fold, value=first.value, cell=first.cell) != first:
            raise self.wrong(stmt, f"{fold.result} was started as another fold: {show_stmt(ir.Start(first))}")
        return first, around

    def _since(self, around: Surroundings, start: Surroundings) -> tuple[ir.Loop, ...]:
        """The loops that are around a statement, and not around the fold's start."""
        alike = sum(1 for a, b in zip(around.loops, start.loops, strict=False) if a is b)
        return around.loops[alike:]

    def _accumulate(self, stmt: ir.Accumulate, fold: ir.Fold, around: Surroundings) -> None:
        started = self._same(stmt, fold)
        if not started:
            return  # the checker of values says so
        start = started[1]
        if fold.value in self.started and fold.value not in self.made:  # the total of a part
            if self.started[fold.value][1].loops != around.loops or fold.value not in self.taken:
                raise self.wrong(stmt, f"{fold.value} is added in other turns than it was started in, or twice")
            self.taken.setdefault(fold.result, []).extend(self.taken.pop(fold.value))
            self._cell(stmt, fold, around, start, self._column(around))
            return
        sources = _sources(self.kernel, fold)
        if self.made.get(fold.value, -1) not in sources:
            raise self.wrong(stmt, f"{fold.value} is no value of the operand of %{fold.node}")
        column = self._column(around)
        self._live(stmt, around)
        self._take(stmt, fold.result, around, column, fold.along in ("column", "warp"))
        loops, cell = self._since(around, start), self._cell(stmt, fold, around, start, column)
        dealt = self._dealt(stmt, around, loops, column)
        self._dealt(stmt, around, around.loops, column)
        takers = 1
        for kind, counter in dealt.items():
            takers *= 1 if counter in cell else self.takers[kind]
        joined = self.threads if fold.exchange else fold.lanes
        if takers != joined or (fold.exchange and fold.lanes != WARP):
            raise self.wrong(stmt, f"{fold.result} is accumulated by {takers} threads that deal out its turns, and joined "
                                   f"over {joined}; Combine joins those that accumulate")

    def _cells(self, stmt: ir.Stmt, fold: ir.Fold, around: Surroundings) -> None:
        """Each cell of a row of sums is started once."""
        cell, size = around.of(fold.cell), self.kernel.by_name[fold.buffer].size
        first, end = around.span(cell) or (-1, 0)
        if first or end > size or (fold.along == "carry" and end < size):
            raise self.wrong(stmt, f"not each of the {size} cells of {fold.buffer} is started once")
        self._one_thread(stmt, around, around.loops, cell)

    def _cell(self, stmt: ir.Stmt, fold: ir.Fold, around: Surroundings, start: Surroundings,
              column: Index | None) -> set[str]:
        """The counters of the cell in which a fold adds up. Each column of a start has a cell of its own."""
        if not fold.buffer or column is None:
            return set()
        cell, first = around.of(fold.cell), self.started[fold.result][0]
        own = {loop.var for loop in self._since(around, start)}
        here, there = around.span(cell) or around.bounds(cell), start.bounds(start.of(first.cell))
        if own & around.counters(column + cell * -1) or here[0] < there[0] or here[1] > there[1]:
            raise self.wrong(stmt, f"the cells of {fold.buffer} are not one for each column, of those that were started")
        return around.counters(cell)

    def _combine(self, stmt: ir.Combine, folds: Sequence[ir.Fold], around: Surroundings) -> None:
        exchanges = [f.exchange for f in folds if f.exchange]
        if len(set(exchanges)) != len(exchanges):
            raise self.wrong(stmt, "two folds exchange results through one buffer")
        for fold in folds:
            started = self._same(stmt, fold)
            self.made[fold.result] = fold.node
            if fold.exchange or fold.lanes > 1:
                self._met(stmt, around, "block" if fold.exchange else "warp")
            if started and fold.buffer:
                self._cell(stmt, fold, around, started[1], self._column(around))
            elif started and (started[1].loops != around.loops or started[1].guard != around.guard):
                raise self.wrong(stmt, f"{fold.result} is joined in other turns than it was started in")
        self.started = {name: at for name, at in self.started.items()
                        if name not in {f.result for f in folds} or at[0].buffer}

    # ------------------------------------------------------------ accesses
    def _bound(self, around: Surroundings, index: Index) -> None:
        """Raises KeyError for a variable that has no value here."""
        loose = {leaf.var for leaf in index.leaves() if isinstance(leaf, Digit)} - around.values.keys()
        if loose:
            raise KeyError(min(loose))

    def _scalar(self, stmt: ir.Scalar, around: Surroundings) -> None:
        if not isinstance(stmt, ir.Store):
            self.made[stmt.target] = stmt.node
        for index in ir.indices(stmt):
            self._bound(around, index)
        if not isinstance(stmt, ir.Load | ir.Store):
            return
        buffer, index = ir.place_of(self.segment, stmt)
        if "row" in index.variables:
            self._live(stmt, around)
        if isinstance(stmt, ir.Store):
            chunk = tuple(c for c in stmt.guard if c.index.variables == {"chunk"})
            self._stored(stmt, buffer, index, around.inside(chunk))

    def _moved(self, stmt: ir.VectorMove, around: Surroundings) -> None:
        column = around.values[ir.FIRST] + whole("of a move")
        inner = replace(around, values={**around.values, "col": column},
                        sizes={**around.sizes, "of a move": stmt.columns})
        self._bound(inner, stmt.index)
        self._live(stmt, inner)
        if stmt.stores:
            self._stored(stmt, stmt.buffer, stmt.index, inner)

    def _stored(self, stmt: ir.Store | ir.VectorMove, buffer: str, index: Index,
                around: Surroundings) -> None:
        """One thread of those that share a task stores an element."""
        loops = [loop for loop in around.loops if loop.by != "rows"]
        column = self._column(around) if loops else None
        if self.phase.cols < 0:  # before or after a block's tasks: all of the buffer
            column = around.of(index)
            if around.span(column) != (0, self.kernel.by_name[buffer].size):
                raise self.wrong(stmt, f"not each of the {self.kernel.by_name[buffer].size} cells of {buffer} is stored once")
        else:
            self._live(stmt, around)
            if loops:
                self._take(stmt, (buffer, index), around, column, False)
        kept = self._one_thread(stmt, around, loops, column)
        counted = around.counters(column) if column else set()
        known = {*counted, *kept, *index.variables, *(["chunk"] if "start" in index.variables else [])}
        own = self.kernel.by_name[buffer].scope in ("shared", "register") or self.phase.cols < 0
        for name, many in (("chunk", self.segment.chunks), ("slice", self.segment.slices)):
            if many > 1 and name not in known and not own:
                raise self.wrong(stmt, f"each {name} of a row stores the same element")


    def _in_registers(self, stmt: ir.Stmt) -> bool:
        return isinstance(stmt, ir.Store) and self.kernel.by_name[ir.place_of(self.segment, stmt)[0]].scope == "register"

    def _one_thread(self, stmt: ir.Stmt, around: Surroundings, loops: Iterable[ir.Loop],
                    column: Index | None) -> set[str]:
        """Check that one thread of those that share a task is here. Returns the counters that an ``If`` fixes."""
        kept = around.counters(*(c.index for c in around.guard if c.high - c.low == 1))
        kinds = {*self._dealt(stmt, around, loops, column), *(kept & {"lane", DEALT["lanes"]})}
        if self.threads > 1 and kinds not in ({"lane"}, {"warp", DEALT["lanes"]}):
            raise self.wrong(stmt, f"several of {self.threads} threads store each element; "
                                   "its loops deal out the columns, or an If leaves one thread")
        return kept


def _sources(kernel: Kernel, fold: ir.Fold) -> set[int]:
    """The nodes whose elements are elements of a fold's operand: itself, and what moves bring into it."""
    graph, found = kernel.graph, {fold.node}
    left = [s.operand for s in kernel.plan.sub_roots if s.node == fold.node]
    while left:
        node = graph[left.pop()]
        if node.id not in found:
            found.add(-1 if node.op == "constant" else node.id)
            found.add(node.id)
            left += node.args if node.kind == "move" else ()
    return found


def check_turns(kernel: Kernel) -> None:
    """Check who takes which turns in all segments."""
    for number, segment in enumerate(kernel.segments):
        TurnsChecker(kernel, segment, f"{kernel.name}, segment {number}").check()
