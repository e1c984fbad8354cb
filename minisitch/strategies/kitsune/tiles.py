"""Which axis of each value a pipeline's tiles cut, and the program for one tile.

In:  a graph, one of its values, and an axis of it. Out: a ``Tiling``: for each node the axis that
tiles cut, or one of three marks, and the nodes that cannot be computed tile by tile.

    WHOLE   every tile needs all of the value
    FOLD    a reduction over the tiles, to which each tile adds a part
    FINAL   made of folds, after the last tile

One rule for each operation, ``operand_axis``, says what a tile of the result needs of an operand.
So the axis of one value determines the axes of all others, along operands and users.

Before:  %2 = matmul %0 %1, cut along axis 0    After:  %0 axis 0, %1 whole
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...fuse import VIEWS
from ...graph import Graph, Node, TensorType

WHOLE, FOLD, FINAL = -1, -2, -3
# The operation that combines two parts of a fold.
COMBINE = {"matmul": "add", "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum",
           "any": "or", "all": "and"}
ALONG_AN_AXIS = frozenset({"cumsum", "cumprod", "sort", "argsort"})


# ---------------------------------------------------------------- one operation
def operand_axis(graph: Graph, node: Node, position: int, axis: int) -> int | None:
    """The operand's axis that a tile of the result along ``axis`` needs.

    WHOLE if it needs the whole operand, None if no tile of the operand is enough.
    """
    operand = graph[node.args[position]].type
    if node.kind == "map" or node.op == "ufunc":
        return axis
    if node.kind == "reduce":
        axes, keepdims = node.attr("axes"), node.attr("keepdims")
        kept = [a for a in range(operand.rank) if keepdims or a not in axes]
        return None if kept[axis] in node.attr("axes") else kept[axis]
    if node.op == "matmul":
        return _product_axis(node.type.rank, operand, position, axis)
    if node.op in ALONG_AN_AXIS:
        return None if axis == node.attr("axis") else axis
    return _moved_axis(node, operand, position, axis)


def _product_axis(rank: int, operand: TensorType, position: int, axis: int) -> int | None:
    """Rows of a product are rows of the first operand, columns of the second; both have batches."""
    if axis >= rank - 2:
        mine = axis == rank - 2 + position
        return axis - rank + operand.rank if mine else WHOLE
    aligned = axis - rank + operand.rank
    return WHOLE if aligned < 0 or operand.shape[aligned] == 1 else aligned


def _moved_axis(node: Node, operand: TensorType, position: int, axis: int) -> int | None:
    if node.op == "transpose":
        return int(node.attr("perm")[axis])
    if node.op == "broadcast":
        return WHOLE if operand.shape[axis] == 1 != node.type.shape[axis] else axis
    if node.op == "reshape":
        return _reshaped_axis(node.type, operand, axis)
    if node.op == "slice":
        if operand.shape[axis] != node.type.shape[axis]:
            return None
        return axis if node.attr("start")[axis] == 0 and node.attr("step")[axis] == 1 else None
    if node.op == "concatenate":
        return None if axis == node.attr("axis") else axis
    return _gathered_axis(node, operand, position, axis) if node.op == "gather" else None


def _reshaped_axis(result: TensorType, operand: TensorType, axis: int) -> int | None:
    """The operand's axis that begins at the same place in memory. A part of both is then the same.

    Before:  [4096, 768] -> [32, 128, 768], tiles along axis 0 of 32
    After:   axis 0 of 4096, tiles of 128 rows each
    """
    before = math.prod(result.shape[:axis])
    for a, n in enumerate(operand.shape):
        if math.prod(operand.shape[:a]) == before and n > 1:
            return a
    return None


def _gathered_axis(node: Node, operand: TensorType, position: int, axis: int) -> int | None:
    """A gather's result has the index's axes first, then the axes that were not looked up."""
    if position:
        return axis if axis < operand.rank else WHOLE
    rest = [a for a in range(operand.rank) if a not in node.attr("axes")]
    index_rank = node.type.rank - len(rest)
    return WHOLE if axis < index_rank else rest[axis - index_rank]


def folds(graph: Graph, node: Node, position: int, axis: int) -> bool:
    """Whether tiles of an operand along ``axis`` each give a part of the result."""
    operand = graph[node.args[position]].type
    if node.type.dtype == "float16":
        return False  # parts would be rounded to float16 before they are added
    if node.kind == "reduce":
        return axis in node.attr("axes")
    return node.op == "matmul" and axis == (operand.rank - 1 if position == 0 else operand.rank - 2)


# ---------------------------------------------------------------- a whole graph
@dataclass(frozen=True)
class Tiling:
    """How a graph is cut into tiles.

    ``axes`` holds for each node an axis, WHOLE, FOLD or FINAL; None if nothing reached it. Each
    tiled axis can be cut into ``units`` equal parts. ``refused`` are nodes that cannot take part,
    and why.
    """

    graph: Graph
    axes: tuple[int | None, ...]
    units: int
    refused: tuple[tuple[int, str], ...]

    def tiled(self, node: int) -> bool:
        axis = self.axes[node]
        return axis is not None and axis >= 0

    @property
    def folded(self) -> tuple[int, ...]:
        return tuple(n for n, axis in enumerate(self.axes) if axis == FOLD)


def cut(graph: Graph, seed: int, axis: int) -> Tiling:
    """Cut every value of a graph as it follows from cutting ``seed`` along ``axis``.

    A tile that needs a complete fold is refused.
    """
    work = _Work(graph)
    work.give(seed, axis)
    while work.pending:
        work.spread(heapq.heappop(work.pending))  # in order, so folds precede their readers
    work.check_whole()
    sizes = [graph[n].type.shape[a] for n, a in work.axes.items() if a >= 0]
    axes = tuple(work.axes.get(n.id) for n in graph.nodes)
    return Tiling(graph, axes, math.gcd(*sizes), tuple(sorted(work.refused.items())))


class _Work:
    """The axes found so far, and the nodes whose neighbours are to be visited."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.axes: dict[int, int] = {}
        self.pending: list[int] = []
        self.refused: dict[int, str] = {}

    def give(self, node: int, axis: int) -> bool:
        """Set the axis of a node. False if it has another one."""
        if self.graph[node].op == "constant" and node in self.axes:
            return True  # all its elements are equal
        if node not in self.axes:
            self.axes[node] = axis
            heapq.heappush(self.pending, node)
        return self.axes[node] == axis

    def spread(self, node: int) -> None:
        """Visit the operands and the users of a node."""
        for reader in (node, *self.graph.users[node]):
            if reader not in self.refused:
                why = self._meet(self.graph[reader])
                if why:
                    self.refused[reader] = why

    def _meet(self, node: Node) -> str:
        """Match a node with its operands, as far as axes are known. Returns why it is refused."""
        if node.id not in self.axes:
            self._infer(node)
        axis = self.axes.get(node.id)
        if axis is None:
            return ""
        if axis >= 0 and node.op == "iota" and axis == node.attr("axis"):
            return "its values count along the axis that tiles cut"
        for position, arg in enumerate(node.args):
            why = self._operand(node, position, arg, axis)
            if why:
                return why
        return ""

    def _infer(self, node: Node) -> None:
        """Derive the axis of a node from one operand: the axis that needs the operand's cut."""
        for position, arg in enumerate(node.args):
            known = self.axes.get(arg, WHOLE)
            if known in (FOLD, FINAL):
                if all(self.axes.get(a, FINAL) in (FOLD, FINAL, WHOLE) for a in node.args):
                    self.give(node.id, FINAL)
                    return
            elif known >= 0:
                fits = [a for a in range(node.type.rank) if node.type.shape[a] > 1
                        and operand_axis(self.graph, node, position, a) == known]
                self.give(node.id, fits[0] if fits else FOLD)
                return

    def _operand(self, node: Node, position: int, arg: int, axis: int) -> str:
        known = self.axes.get(arg)
        if axis == WHOLE and known in (FOLD, FINAL):
            return f"every tile needs it, and %{arg} is complete only after the last tile"
        if axis in (WHOLE, FINAL):
            if known is None:
                self.give(arg, WHOLE)
            needs_more = self.axes.get(arg, WHOLE) >= 0
            return f"%{arg} is there tile by tile, and it needs all of it" if needs_more else ""
        if axis == FOLD:
            return self._folded(node, position, arg, known)
        wanted = operand_axis(self.graph, node, position, axis)
        if wanted is None:
            return f"a tile along axis {axis} needs more than a tile of %{arg}"
        if known in (FOLD, FINAL):
            return f"it needs %{arg}, which is complete only after the last tile"
        if not self.give(arg, wanted):
            return f"it needs %{arg} cut along axis {wanted}, others along axis {self.axes[arg]}"
        return ""

    def _folded(self, node: Node, position: int, arg: int, known: int | None) -> str:
        if node.op == "matmul" and known is None:
            self.give(arg, self.graph[arg].type.rank - (1 if position == 0 else 2))
            known = self.axes[arg]
        if known is None or known < 0 or not folds(self.graph, node, position, known):
            return f"tiles of %{arg} do not add up to it"
        return ""

    def check_whole(self) -> None:
        """Refuse a computed value that every tile needs whole, since it must exist before."""
        for node in self.graph.nodes:
            moves = node.kind in ("source", "move")
            computed = not moves or node.op in ("concatenate", "update", "gather")
            if self.axes.get(node.id) == WHOLE and computed:
                why = "every tile needs all of it: it is computed once, before"
                self.refused.setdefault(node.id, why)


def best_cut(graph: Graph) -> Tiling | None:
    """The cut that keeps the most bytes out of memory, of all axes of all products.

    Among equals it has the fewest refusals, then the smallest folds (each tile adds to them), then
    the first axis. None if nothing can be cut in two.
    """
    found = [c for c in _cuts(graph) if c.units > 1]
    def worth(c: Tiling) -> tuple[int, int, int]:
        return _held(c), -len(c.refused), -sum(graph[n].type.nbytes for n in c.folded)

    return max(found, key=worth, default=None)


def _cuts(graph: Graph) -> Iterator[Tiling]:
    for node in (n for n in graph.nodes if n.op == "matmul"):
        for axis, size in enumerate(node.type.shape):
            if size > 1:
                yield cut(graph, node.id, axis)


def _held(found: Tiling) -> int:
    """Bytes of computed values that exist only tile by tile, without views."""
    kept = set(found.graph.outputs) | {n for n, _ in found.refused}
    return sum(n.type.nbytes for n in found.graph.nodes
               if found.tiled(n.id) and n.op != "input" and n.op not in VIEWS and n.id not in kept)


# ---------------------------------------------------------------- one tile
def resized(node: Node, found: Tiling, units: int) -> Node:
    """The node for a tile: its type, and the shapes in its attributes."""
    axis = found.axes[node.id]
    if axis is None or axis < 0:
        return node
    size = node.type.shape[axis] // found.units * units

    def resize(shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:axis], size, *shape[axis + 1:])

    attrs = tuple((k, resize(v) if k in ("shape", "size") else v) for k, v in node.attrs)
    return replace(node, type=TensorType(resize(node.type.shape), node.type.dtype), attrs=attrs)
