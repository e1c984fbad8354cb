"""Pulling: all that a loop computes, found by asking where each operation reads its operands.

In:  values at positions, and the values that lie in memory. Out: a ``Pull``.

A *position* says which element of a value: it has an ``Index`` for each axis. An index is
arithmetic on loop variables, such as ``col - 4``. A *guard* is a tuple of conditions ``low <= index
< high``. It holds if all of them hold. All three are in ``index.py``.

``operands_at`` is the only function that knows what a broadcast, transpose, reshape, slice,
concatenate, update or gather does to an index. All later stages are built on it, locality checks
and emitters included. ``pull`` asks it again and again, from a root down to values in memory.

    %0 = input; %1 = input; %2 = transpose %1; %3 = concatenate %0 %2; %4 = exp %3

``pull`` from %4 at [row, col], where %0 and %2 have 4 columns:

    order    (%0 at [row, col]) (%1 at [col - 4, row]) (%2 at [row, col - 4]) (%3 at [row, col]) (%4 at [row, col])
    leaves   %0 and %1, which lie in memory
    guards   %0 only where 0 <= col < 4;  %1 and %2 only where 4 <= col < 8;  %3 and %4 always
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors.lazy import lazy
from ..fuse import VIEWS
from ..graph import Graph, Node, Shape
from .index import ZERO, Guard, Index, Position, Within, linear, loaded, settle, unravel, variables_of

Key = tuple[int, Position]  # one value at one position
ALWAYS: Guard = ()  # no condition must hold


# ---------------------------------------------------------------- the one index map
@dataclass(frozen=True)
class Read:
    """One operand read at one position, under a guard."""

    node: int
    position: Position
    guard: Guard = ALWAYS

    @property
    def key(self) -> Key:
        return self.node, self.position


Reads = tuple[Read | None, ...]  # one entry an operand; None: not read
LoadIndex = Callable[[int, Position, int], Index]


def operands_at(graph: Graph, node: Node, position: Position, load: LoadIndex) -> Reads:
    """Where a map or a move reads its operands to make its value at ``position``.

    Returns one entry an operand. None means that the operand is never read there: it is out of
    range, or it is a gather's index that is known without reading it.

    ``load(value, position, size)`` returns the ``Index`` of an integer that a gather reads.
    """
    shapes = [graph[a].type.shape for a in node.args]
    if node.op == "concatenate":
        return _concatenate_at(node, position, shapes)
    if node.op == "update":
        return _update_at(node, position, shapes)
    if node.op == "gather":
        return _gather_at(node, position, shapes, load)
    if node.op == "broadcast":
        position = _inside(position, shapes[0])
    elif node.op == "reshape":
        position = unravel(linear(position, node.type.shape), shapes[0])
    elif node.op == "transpose":
        perm = node.attr("perm")
        position = tuple(position[perm.index(axis)]
                         for axis in range(len(perm)))
    elif node.op == "slice":
        starts, steps = node.attr("start"), node.attr("step")
        position = tuple(i * s + a
                         for i, a, s in zip(position, starts, steps, strict=True))
    return tuple(Read(a, position) for a in node.args)  # a map's own position, or the moved one


def _inside(position: Position, shape: Shape) -> Position:
    """The position with 0 on each axis of one: such an axis has no other element."""
    return tuple(ZERO if n == 1 else i
                 for i, n in zip(position, shape, strict=True))


def _concatenate_at(node: Node, position: Position, shapes: Sequence[Shape]) -> Reads:
    axis = node.attr("axis")
    first, found = 0, []
    for arg, shape in zip(node.args, shapes, strict=True):
        end = first + shape[axis]
        guard = settle([Within(position[axis], first, end)])
        moved = *position[:axis], position[axis] + -first, *position[axis + 1:]
        found.append(None if guard is None else Read(arg, _inside(moved, shape), guard))
        first = end
    return tuple(found)


def _update_at(node: Node, position: Position, shapes: Sequence[Shape]) -> Reads:
    conditions, inner = [], []
    for i, a, s, n in zip(position, node.attr("start"),
                          node.attr("step"), shapes[1], strict=True):
        distance = i + -a if s > 0 else i * -1 + a
        steps, off = distance.divmod(abs(s))
        conditions += [Within(steps, 0, n), Within(off, 0, 1)]
        inner.append(steps)
    base, guard = Read(node.args[0], position), settle(conditions)
    if guard is None:
        return base, None
    part = Read(node.args[1], _inside(tuple(inner), shapes[1]), guard)
    return base if guard else None, part  # an update of everything reads no base


def _gather_at(node: Node, position: Position, shapes: Sequence[Shape], load: LoadIndex) -> Reads:
    rank = len(shapes[1])  # of each index
    at = position[:rank]
    rest = iter(position[rank:])
    chosen: dict[int, Index] = {}  # the axes that indices choose
    wanted = []
    for axis, value in zip(node.attr("axes"), node.args[1:], strict=True):
        chosen[axis] = load(value, at, shapes[0][axis])
        wanted.append(Read(value, at) if chosen[axis].loaded else None)
    source = tuple(chosen[a] if a in chosen else next(rest)
                   for a in range(len(shapes[0])))
    return (Read(node.args[0], source), *wanted)


# ---------------------------------------------------------------- all that a value is made of
AllReads = Mapping[Key, Reads | None]  # None: a leaf, which is a value in memory


@dataclass(frozen=True)
class Pull:
    """Everything to compute for some values at some positions (thread composition).

    ``order`` lists (value, position) pairs, operands first. ``reads`` gives each pair's operands.
    ``guards`` gives each pair the guard under which it is needed, or None if there are several.
    ``indices`` names the integers that gathers read, each with its pair and with the extent that
    it is clamped to.
    """

    order: tuple[Key, ...]
    reads: AllReads
    guards: Mapping[Key, Guard | None]
    indices: Mapping[str, tuple[Key, int]]

    @lazy
    def leaves(self) -> tuple[Key, ...]:
        """The pairs read from memory."""
        return tuple(key for key in self.order if self.reads[key] is None)


def pull(graph: Graph, roots: Sequence[Key], in_memory: frozenset[int], own: Iterable[Key] = ()) -> Pull:
    """Walk from ``roots`` to values in memory, position by position, visiting each pair once.

    A pair in ``own`` is computed although its value is in memory: the loop in question writes it.
    The graph keeps the result for the next call.
    """
    computed = frozenset(key for key in own if key[0] in in_memory)
    asked = tuple(roots), in_memory, computed
    if asked not in graph.pulled:
        graph.pulled[asked] = _pull(graph, *asked)
    return graph.pulled[asked]


def _pull(graph: Graph, roots: Sequence[Key], in_memory: frozenset[int], own: frozenset[Key]) -> Pull:
    indices: dict[str, tuple[Key, int]] = {}

    def load(value: int, position: Position, size: int) -> Index:
        known = _counted(graph, value, position)
        if known and Within(known, 0, size).verdict:
            return known
        wanted = (value, position), size
        names = {entry: name for name, entry in indices.items()}
        name = names.get(wanted, f"at{len(indices)}")
        indices[name] = wanted
        return loaded(name, size)

    reads: dict[Key, Reads | None] = {}
    order: dict[Key, None] = {}
    stack = list(reversed(roots))
    while stack:
        key = stack.pop()
        if key in reads:
            order[key] = None  # for the second time: all that it reads is in order already
            continue
        value, position = key
        leaf = graph[value].op == "input" or (value in in_memory
                                              and key not in own)
        found = None if leaf else operands_at(graph, graph[value],
                                              position, load)
        reads[key] = found
        # The last on the stack is next. So first come the integers that gathers read for this
        # position, for without them nobody knows where it is. Then the operands, then the pair.
        stack.append(key)
        stack += [read.key for read in reversed(found or ()) if read]
        gathered = sorted(variables_of(position) & indices.keys())
        stack += [indices[name][0] for name in gathered]
    return Pull(tuple(order), reads, _guards(order, reads, roots), indices)


def _counted(graph: Graph, value: int, position: Position) -> Index | None:
    """The index that an ``iota`` gives, read through views. It need not be loaded."""
    node = graph[value]
    while node.op in VIEWS:
        (read,) = operands_at(graph, node, position, lambda *_: ZERO)
        assert read is not None
        node, position = graph[read.node], read.position
    return position[node.attr("axis")] if node.op == "iota" and node.type.dtype == "int64" else None


def _guards(order: dict[Key, None], reads: AllReads, roots: Iterable[Key]) -> dict[Key, Guard | None]:
    """The guard under which each pair is needed, found from the readers down to the operands.

    A pair is in one of three states: needed ``ALWAYS``, under one guard, or under several (None). A
    pair with two readers is needed always if one of them always needs it, and under the guard if
    both have the same. Otherwise its guards are several.
    """
    found: dict[Key, Guard | None] = dict.fromkeys(roots, ALWAYS)
    for key in reversed(order):
        mine = found[key]
        for read in filter(None, reads[key] or ()):
            asked = None if mine is None else settle((*mine, *read.guard))
            known = found.setdefault(read.key, asked)
            if asked == ALWAYS:
                found[read.key] = ALWAYS
            elif known not in (ALWAYS, asked):
                found[read.key] = None
    return found
