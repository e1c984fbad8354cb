"""Loops that Python has unrolled become one operation on the whole array.

In:  a simplified graph. Out: the same program. A concatenation of equal operations on neighbouring
parts becomes one operation.

Before:  %1 = slice %0, row 0    %2 = exp %1         After:  %1 = exp %0
         %3 = slice %0, row 1    %4 = exp %3                 return %1
         %5 = slice %0, row 2    %6 = exp %5
         %7 = concatenate %2 %4 %6
         return %7

The walk starts at the operands of a concatenation and goes up from all of them in step: through
maps, reduces, moves, and products with one matrix. It ends where all operands are the same value,
neighbouring slices of one array, or constants that are equal or count up. If another node reads one
of the operations, they stay as they are: else it would be computed twice. Maps compute the same
bits. Sums and products of matrices may add in another order.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from ..graph import Graph, Node, Shape, TensorType
from ..ops import kind_of
from ..trace.builder import infer_type

LEAST = 3  # parts; two are not worth it
DEEPEST = 200  # operations between the concatenation and its parts
REPEATABLE = ("constant", "iota", "slice", "reshape", "broadcast", "transpose")  # may be made twice


class Differs(Exception):
    """The parts are not made alike."""


def moved(node: Node, id: int, args: tuple[int, ...]) -> Node:
    """The same operation at another place. Itself if the place is the same, as it mostly is."""
    same = id == node.id and args == node.args
    return node if same else Node(id, node.op, args, node.type, node.attrs, node.where, node.via)


def rolled(graph: Graph) -> Graph:
    """The graph with all such loops rolled up. The same object if there were none.

    Dead nodes stay.
    """
    roller = Roller(graph)
    for node in graph.nodes:
        roller.place.append(roller.visit(node))
    if not roller.found:
        return graph
    return Graph(tuple(roller.nodes), tuple(roller.place[o] for o in graph.outputs))


class Roller:
    """The graph being built."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.outputs = graph, frozenset(graph.outputs)
        self.nodes: list[Node] = []
        self.place: list[int] = []  # old id -> new id
        self.origin: dict[int, int] = {}  # new id -> old id of the same value
        self.found = False
        # Visits of parts. Bounds the work if one value is in many concatenations.
        self.budget = 20 * len(graph)
        self.made: dict[tuple[tuple[int, ...], int, bool], int] = {}

    def visit(self, node: Node) -> int:
        """The new id of an old node."""
        args = tuple(self.place[a] for a in node.args)
        if node.op == "concatenate" and len(args) >= LEAST:
            runs = (tuple(run) for _, run in groupby(args, self.likeness))
            args = tuple(part for run in runs for part in self.run(node, run))
        new = self.add(moved(node, node.id, args)) if node.op != "concatenate" or len(args) > 1 else args[0]
        self.origin[new] = node.id
        return new

    def run(self, node: Node, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Neighbouring operands of a concatenation as one operand, or unchanged."""
        mark, self.made = len(self.nodes), {}
        if len(ids) >= LEAST:
            try:
                made = self.join(ids, node.attr("axis"), False, 0)
                self.require_own(node)
                self.found = True
                return (made,)
            except Differs:
                del self.nodes[mark:]
        return ids

    def likeness(self, value: int, depth: int = 4) -> tuple:
        """The last operations that made a value. The operands of one run have these in common."""
        node = self.nodes[value]
        return node.op, node.type, *(self.likeness(a, depth - 1) for a in node.args[:2] if depth)

    def require_own(self, concatenation: Node) -> None:
        """Raise Differs if another node reads an operation that would be computed a second time."""
        parts = {self.origin[i] for ids, _, _ in self.made for i in ids if i in self.origin}
        for old in parts:
            computed = self.graph[old].op not in (*REPEATABLE, "input")
            read = {*parts, concatenation.id}.issuperset(self.graph.users[old])
            if computed and (old in self.outputs or not read):
                raise Differs

    def add(self, node: Node) -> int:
        self.nodes.append(moved(node, len(self.nodes), node.args))
        return len(self.nodes) - 1

    def make(self, like: Node, op: str, *args: int, **attrs: Any) -> int:
        node = replace(like, id=len(self.nodes), op=op, args=args, attrs=tuple(sorted(attrs.items())))
        return self.add(replace(node, type=infer_type(node, [self.nodes[a].type for a in args])))

    def reshaped(self, like: Node, value: int, shape: Sequence[int]) -> int:
        wanted = tuple(shape)
        same = self.nodes[value].type.shape == wanted
        return value if same else self.make(like, "reshape", value, shape=wanted)

    # ---------------------------------------------------------------- one value from the parts
    def join(self, ids: tuple[int, ...], axis: int, new: bool, depth: int) -> int:
        """The parts side by side along an axis, or along a ``new`` axis before it.

        Raises Differs.
        """
        key = ids, axis, new
        if key in self.made:
            return self.made[key]
        parts = [self.nodes[i] for i in ids]
        first = parts[0]
        self.budget -= len(ids)
        differ = any((p.op, p.type) != (first.op, first.type) for p in parts)
        if depth > DEEPEST or self.budget < 0 or differ:
            raise Differs
        shape = list(first.type.shape)
        if new:
            shape.insert(axis, len(ids))
        else:
            shape[axis] *= len(ids)
        if first.op == "constant":
            made = self.constants(parts, axis, tuple(shape))
        elif len(set(ids)) == 1:
            made = self.repeated(first, ids[0], axis, new, tuple(shape))
        elif first.op == "slice":
            made = self.slices(parts, axis, new, tuple(shape))
        else:
            made = self.operation(parts, axis, new, tuple(shape), depth + 1)
        self.made[key] = made
        return made

    def operands(self, parts: Sequence[Node], number: int) -> tuple[int, ...]:
        return tuple(p.args[number] for p in parts)

    def constants(self, parts: Sequence[Node], axis: int, shape: tuple[int, ...]) -> int:
        """Equal constants, or whole numbers in equal steps, which become an iota."""
        first, values = parts[0], [p.attr("value") for p in parts]
        type = TensorType(shape, first.type.dtype)
        if len(set(map(repr, values))) == 1:
            return self.add(replace(first, type=type))
        step, most = values[1] - values[0], {"float16": 2**11, "float32": 2**24}.get(type.dtype, 2**53)
        count = [values[0] + step * i for i in range(len(values))]
        if shape[axis] != len(parts) or kind_of(type.dtype) == "bool" or count != values or any(
                abs(v) > most or v != int(v) or (v == 0 and repr(v) == "-0.0") for v in values):
            raise Differs
        along = TensorType(tuple(n if a == axis else 1 for a, n in enumerate(shape)), "int64")
        made = self.add(replace(first, op="iota", type=along, attrs=(("axis", axis),)))
        for op, number in (("mul", step), ("add", values[0])):
            factor = self.add(replace(first, type=along, attrs=(("value", int(number)),)))
            made = self.make(first, op, made, factor)
        made = self.make(first, "cast", made, dtype=type.dtype)
        return self.make(first, "broadcast", made, shape=shape)

    def repeated(self, first: Node, value: int, axis: int, new: bool, shape: Shape) -> int:
        """One value in all parts: a broadcast."""
        if not new and first.type.shape[axis] != 1:
            raise Differs
        narrow = tuple(1 if a == axis else n for a, n in enumerate(shape))
        return self.make(first, "broadcast", self.reshaped(first, value, narrow), shape=shape)

    def slices(self, parts: Sequence[Node], axis: int, new: bool, shape: tuple[int, ...]) -> int:
        """Windows of one array, in equal steps: a slice, or a gather where they overlap.

        Also a gather if the parts lie along another axis than the windows.
        """
        first, sources = parts[0], set(self.operands(parts, 0))
        strides = {p.attr("step") for p in parts}
        steps = np.diff(np.array([p.attr("start") for p in parts]), axis=0)
        moves = np.flatnonzero(steps[0])
        if len(sources) > 1 or len(moves) != 1 or (steps != steps[0]).any() or len(strides) > 1:
            raise Differs
        moved, size, step = int(moves[0]), list(first.type.shape), list(first.attr("step"))
        by = int(steps[0][moved])
        follow = not new and moved == axis and by == size[moved] * step[moved]
        if (size[moved] != 1 and not follow) or not _same_place(first.type.shape, moved, axis, new):
            if not new and first.type.shape[axis] != 1:
                raise Differs
            found = self.windows(first, moved, by, len(parts), axis)
            return self.reshaped(first, found, shape)
        if size[moved] == 1:
            step[moved] = by
        size[moved] *= len(parts)
        made = self.make(first, "slice", first.args[0], start=first.attr("start"), size=tuple(size),
                         step=tuple(step))
        return self.reshaped(first, made, shape)

    def windows(self, first: Node, moved: int, by: int, count: int, axis: int) -> int:
        """``count`` windows along a new axis, each ``by`` further along the axis ``moved``."""
        start, step = list(first.attr("start")), list(first.attr("step"))
        size = list(first.type.shape)
        places = TensorType((count, size[moved]), "int64")

        def source(op: str, name: str, value: int) -> int:
            return self.add(replace(first, op=op, args=(), type=places, attrs=((name, value),)))

        def along(axis: int, factor: int) -> int:
            place = source("iota", "axis", axis)
            return self.make(first, "mul", place, source("constant", "value", factor))

        at = self.make(first, "add", along(0, by), along(1, step[moved]))
        at = self.make(first, "add", at, source("constant", "value", start[moved]))
        start[moved], size[moved], step[moved] = 0, self.nodes[first.args[0]].type.shape[moved], 1
        strip = self.make(first, "slice", first.args[0], start=tuple(start), size=tuple(size),
                          step=tuple(step))
        found = self.make(first, "gather", strip, at, axes=(moved,))
        perm = [a + 2 for a in range(len(size) - 1)]
        perm.insert(moved, 1)
        perm.insert(axis, 0)
        return self.make(first, "transpose", found, perm=tuple(perm))

    def operation(self, parts: Sequence[Node], axis: int, new: bool, shape: Shape, depth: int) -> int:
        """One operation for equal ones. Raises Differs if the axes cannot be followed."""
        first = parts[0]
        if not first.args or any(p.attrs != first.attrs for p in parts):
            raise Differs
        inner = self.nodes[first.args[0]].type.shape
        if first.kind == "map":
            args = [self.join(self.operands(parts, n), axis, new, depth) for n in range(len(first.args))]
            return self.make(first, first.op, *args, **first.attributes)
        xs = self.operands(parts, 0)
        if first.op == "broadcast" and (new or inner[axis] == first.type.shape[axis]):
            return self.make(first, "broadcast", self.join(xs, axis, new, depth), shape=shape)
        if first.op == "reshape":
            at, fresh = _before_reshape(first.type.shape, inner, axis, new)
            return self.reshaped(first, self.join(xs, at, fresh, depth), shape)
        if first.op == "transpose":
            perm = first.attr("perm")
            if not new:
                return self.make(first, "transpose", self.join(xs, perm[axis], False, depth), perm=perm)
            outer = [p + 1 for p in perm]
            outer.insert(axis, 0)
            return self.make(first, "transpose", self.join(xs, 0, True, depth), perm=tuple(outer))
        if first.kind == "reduce":
            return self.reduce(first, xs, axis, new, shape, depth)
        if first.op == "gather" and new and len({p.args[1:] for p in parts}) == 1:
            joined = self.join(xs, 0, True, depth)
            axes = tuple(a + 1 for a in first.attr("axes"))
            found = self.make(first, "gather", joined, *first.args[1:], axes=axes)
            rank = len(self.nodes[first.args[1]].type.shape)
            perm = [a for a in range(len(shape)) if a != rank]
            perm.insert(axis, rank)
            return self.make(first, "transpose", found, perm=tuple(perm))
        others = set(self.operands(parts, 1)) if first.op == "matmul" and not new else ()
        if axis == len(inner) - 2 and len(others) == 1:
            return self.make(first, "matmul", self.join(xs, axis, False, depth), first.args[1])
        raise Differs

    def reduce(self, first: Node, xs: Shape, axis: int, new: bool, shape: Shape, depth: int) -> int:
        """One reduce for equal ones, if the parts lie along an axis that is not reduced."""
        axes, keep = first.attr("axes"), first.attr("keepdims")
        rank = len(self.nodes[first.args[0]].type.shape)
        kept = [a for a in range(rank) if keep or a not in axes]
        if not new and kept[axis] not in axes:
            joined = self.join(xs, kept[axis], False, depth)
            return self.make(first, first.op, joined, **first.attributes)
        at = kept[axis - 1] + 1 if axis else 0  # the parts go before an axis that is reduced to one
        outer = tuple(a + (a >= at) for a in axes)
        joined = self.join(xs, at, True, depth)
        made = self.make(first, first.op, joined, axes=outer, keepdims=keep)
        return self.reshaped(first, made, shape)


def _long_before(shape: Sequence[int], axis: int) -> int:
    """How many axes before this one are longer than one."""
    return sum(n != 1 for n in shape[:axis])


def _same_place(shape: Sequence[int], moved: int, axis: int, new: bool) -> bool:
    """Whether the axes ``moved`` and ``axis`` are the same, not counting axes of one."""
    if not new and shape[axis] != 1:
        return moved == axis
    return _long_before(shape, moved) == _long_before(shape, axis)


def _before_reshape(shape: Shape, inner: Shape, axis: int, new: bool) -> tuple[int, bool]:
    """The axis of a reshape's operand along which the parts of its result lie. Raises Differs.

    Also whether it is a new axis.
    """
    before = _long_before(shape, axis)
    stays = not new and shape[axis] != 1
    if [n for n in shape if n != 1] != [n for n in inner if n != 1] and (before or stays):
        raise Differs
    places = [a for a in range(len(inner)) if _long_before(inner, a) == before]
    if stays:
        return next(a for a in places if inner[a] != 1), False
    ones = [a for a in places if inner[a] == 1]
    return (ones[0], False) if ones else (places[0] if places else len(inner), True)
