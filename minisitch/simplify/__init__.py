"""Rewrites that never change a bit: dead code, constants, common subexpressions, exact identities.

In:  a ``Graph``. Out: a ``Graph`` with the same inputs and outputs that computes the same values,
signed zeros, infinities and NaN included. (Which NaN is not promised.)

One pass goes forward. Each live node is offered to the rules of its op. Its operands are already in
their simplest form. If no rule takes the node, it is looked up among the nodes already there, so
equal nodes become one, at the first one's place in the program. A second pass drops the nodes that
are no longer read. Both passes are linear, and a simplified graph has nothing left to rewrite.

Float arithmetic has fewer laws than it seems, so many rules are missing on purpose: ``x + 0.0``
turns -0.0 into 0.0, ``x - x`` is NaN at infinity, ``x * 0.0`` is -0.0 or NaN, ``-(x - y)`` differs
from ``y - x`` where they are equal, and ``(x + y) + z`` rounds differently from ``x + (y + z)``.
Integers wrap around and have all of these laws, so there the rules apply.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import needs
from ..graph import Graph, Node
from ..ops import kind_of
from ..reference import apply
from ..trace.builder import infer_type, verify
from .roll import moved, rolled
from .windows import Range, WindowPart, Windows

COMMUTATIVE = frozenset("add mul and or xor eq ne".split())


@dataclass(frozen=True)
class Rewrite:
    """One application of a rule: its name, and the replaced node's id in the original graph."""

    rule: str
    node: int


def simplify(graph: Graph) -> Graph:
    """The same program without superfluous nodes. Inputs stay even if nothing reads them.

    Before:  %1 = constant 1.0    After:  %1 = exp %0
             %2 = mul %0 %1               return %1 %1
             %3 = exp %2
             %4 = exp %0
             return %3 %4
    """
    needs("simplify(minisitch.trace(f, (x,)).graph)", (graph, Graph))
    for _ in range(MOST_ROUNDS):
        before, simple = graph, rewrites(graph)[0]
        graph = rolled(simple)
        if graph is simple and (graph == before or all(n.op != "update" for n in graph.nodes)):
            break  # without updates, one round is enough
    return verify(graph)


def rewrites(graph: Graph) -> tuple[Graph, tuple[Rewrite, ...]]:
    """The result of ``simplify`` in one round, and the rules that applied."""
    needs("rewrites(minisitch.trace(f, (x,)).graph)", (graph, Graph))
    rewriter, needed = Rewriter(graph), live(graph)
    for node in graph.nodes:
        if not needed[node.id]:
            rewriter.place.append(-1)
            continue
        rewriter.current = node.id
        new = rewriter.offer(moved(node, node.id, tuple([rewriter.place[a] for a in node.args])))
        assert rewriter.nodes[new].type == node.type, f"%{node.id} {node.op} changed its type"
        rewriter.place.append(new)
    outputs = tuple(rewriter.whole(rewriter.place[o]) for o in graph.outputs)
    return _drop_dead(Graph(tuple(rewriter.nodes), outputs)), tuple(rewriter.fired)


def live(graph: Graph) -> list[bool]:
    """Which nodes an output needs. Inputs count as needed."""
    needed = [node.op == "input" for node in graph.nodes]
    for output in graph.outputs:
        needed[output] = True
    for node in reversed(graph.nodes):
        if needed[node.id]:
            for arg in node.args:
                needed[arg] = True
    return needed


def _drop_dead(graph: Graph) -> Graph:
    place: dict[int, int] = {}
    nodes: list[Node] = []
    for node, needed in zip(graph.nodes, live(graph), strict=True):
        if needed:
            place[node.id] = len(nodes)
            nodes.append(moved(node, len(nodes), tuple([place[a] for a in node.args])))
    return Graph(tuple(nodes), tuple(place[o] for o in graph.outputs))


class Rewriter:
    """The graph being built, and the questions that rules may ask about it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.place: list[int] = []  # old id -> new id
        self.found: dict[tuple, int] = {}
        self.fired: list[Rewrite] = []
        self.current = 0
        self.windows: dict[int, Windows] = {}  # the array after a chain of updates -> its windows
        self.views: set[int] = set()  # transposes and reshapes of such arrays

    def read_once(self, number: int) -> bool:
        """Whether the node being rewritten is the only reader of its operand ``number``."""
        operand = self.graph[self.current].args[number]
        return self.graph.users[operand] == (self.current,) and operand not in self.graph.outputs

    def offer(self, node: Node) -> int:
        """The id of an equal value: a rule's result, else an equal node, else the node itself.

        A rule builds its result with ``make``, which calls this method again. That ends, because
        every rule leaves fewer or cheaper nodes, on operands that are already simple.
        """
        for rule in (*RULES["*"], *RULES.get(node.op, ()), *RULES.get(node.kind, ())):
            result = rule(self, node)
            if result is not None:
                self.fired.append(Rewrite(rule.__name__.strip("_"), self.current))
                return result
        args = tuple(sorted(node.args)) if node.op in COMMUTATIVE else node.args
        # repr, because 0.0 == -0.0 and True == 1
        key = (len(self.nodes),) if node.op == "input" else (node.op, args, node.type, repr(node.attrs))
        if key not in self.found:
            self.found[key] = len(self.nodes)
            self.nodes.append(moved(node, len(self.nodes), node.args))
            if node.op == "update":
                self._note_window(self.nodes[-1])
            elif node.op in WHOLE_VIEWS and (node.args[0] in self.windows or node.args[0] in self.views):
                self.views.add(len(self.nodes) - 1)
        return self.found[key]

    def make(self, like: Node, op: str, *args: int, **attrs: Any) -> int:
        """A new node on the user's line of ``like``."""
        node = Node(len(self.nodes), op, args, like.type, tuple(sorted(attrs.items())), like.where, like.via)
        if op != "constant":
            node = replace(node, type=infer_type(node, [self.nodes[a].type for a in args]))
        return self.offer(node)

    def constant(self, like: Node, value: Any) -> int:
        """A constant of the type of ``like``."""
        return self.make(like, "constant", value=shortest(value, like.type.dtype))

    def is_a(self, value: int, *ops: str) -> bool:
        return self.nodes[value].op in ops

    def value(self, value: int) -> Any:
        """A constant's Python scalar, as its dtype rounds it. None for any other node."""
        node = self.nodes[value]
        if node.op != "constant":
            return None
        return np.asarray(node.attr("value")).astype(node.type.dtype).item()

    # -- arrays that are filled window by window
    def _note_window(self, n: Node) -> None:
        """Record the window that an update writes, next to those of earlier updates."""
        x, value = (self.nodes[a].type.shape for a in n.args)
        parts = [axis for axis in range(len(x)) if value[axis] != x[axis]]
        if not parts or any(step != 1 and size > 1 for step, size in zip(n.attr("step"), value, strict=True)):
            return
        table = self.windows.get(n.args[0])
        if table is None or table.axis not in parts:
            axis = min(parts, key=lambda a: value[a] / x[a])
            table = Windows(axis, x[axis], n.args[0])
        else:
            del self.windows[n.args[0]]
        axis, start = table.axis, n.attr("start")
        first, stop = start[axis], start[axis] + value[axis]
        before = table.read(first, stop)
        made, written = n.args[1], (n.args[1], start)
        # The window is narrow along other axes, too. First write it into a part that is not.
        if len(parts) > 1:
            across = self.across(n, table, first, stop)
            inner = tuple(0 if a == axis else s for a, s in enumerate(start))
            made = self.make(n, "update", across, n.args[1], start=inner, step=(1,) * len(x))
        alone = len(parts) == 1 or (len(before) == 1 and self._is_base_around(before[0], table, start, value))
        table.write(first, stop, WindowPart(made, 0, written if alone else None))
        self.windows[n.id] = table

    def _is_base_around(self, found: Range, table: Windows, start: tuple[int, ...],
                        size: tuple[int, ...]) -> bool:
        """Whether a range holds the base everywhere outside of a window."""
        if found.part.value == table.base or found.part.written is None:
            return found.part.value == table.base
        value, begin = found.part.written
        axes = zip(start, size, begin, self.nodes[value].type.shape, strict=True)
        return all(a <= b and b + n <= a + m for a, m, b, n in axes)

    def _range(self, like: Node, axis: int, found: Range) -> int:
        """A range of an array as a value of its own."""
        shape, length = self.nodes[found.part.value].type.shape, found.stop - found.first
        if length == shape[axis]:
            return found.part.value
        start = tuple(found.part.offset if a == axis else 0 for a in range(len(shape)))
        size = tuple(length if a == axis else n for a, n in enumerate(shape))
        return self.make(like, "slice", found.part.value, start=start, size=size, step=(1,) * len(shape))

    def across(self, like: Node, table: Windows, first: int, stop: int) -> int:
        """A range of the axis, whole along all other axes. Several parts become one."""
        ranges = table.read(first, stop)
        if len(ranges) == 1:
            return self._range(like, table.axis, ranges[0])
        parts = [self.whole(self._range(like, table.axis, each)) for each in ranges]
        joined = self.make(like, "concatenate", *parts, axis=table.axis)
        table.write(first, stop, WindowPart(joined))
        return joined

    def whole(self, x: int) -> int:
        """A filled array as one value: a few updates of its base, or else its parts joined."""
        table, n = self.windows.get(x), self.nodes[x]
        if x in self.views:
            source = self.whole(n.args[0])
            return x if source == n.args[0] else self.offer(moved(n, n.id, (source,)))
        if table is None:
            return x
        ranges = table.read(0, table.side)
        written = [each.part.written for each in ranges if each.part.value != table.base]
        if len(written) < len(ranges) and len(written) <= MOST_UPDATES and None not in written:
            return x  # keep the updates: the steps of a time loop then stay equal
        made = self.across(n, table, 0, table.side)
        self.windows[x] = table = Windows(table.axis, table.side, made)
        return made

    def stands_for(self, value: int, wanted: float) -> bool:
        """Whether a value is the constant ``wanted``. For floats 0.0 and -0.0 are different."""
        given = self.value(value)
        if given is None or given != wanted:
            return False
        if kind_of(self.nodes[value].type.dtype) != "float":
            return True
        return math.copysign(1, given) == math.copysign(1, wanted)


def shortest(value: Any, dtype: str) -> Any:
    """The Python scalar with the shortest text that rounds to the value in this dtype.

    For a float32 this is 0.1 rather than 0.10000000149011612.
    """
    rounded = np.asarray(value).astype(dtype)[()]
    if kind_of(dtype) != "float":
        return rounded.item()
    # one NaN object, so that equal graphs are equal
    return math.nan if rounded != rounded else float(str(rounded))


WHOLE_VIEWS = ("transpose", "reshape")
MOST_ROUNDS = 8  # rounds of rewriting at most
MOST_PARTS = 64  # that one concatenate joins
MOST_UPDATES = 2  # windows beside the base; a reader chooses among them for every element
Rule = Callable[[Rewriter, Node], int | None]
RULES: dict[str, list[Rule]] = {"*": []}  # by op, by kind, or "*" for every node


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under ops or kinds. Rules of an op are tried before those of a kind."""
    def add(function: Rule) -> Rule:
        for name in names:
            RULES.setdefault(name, []).append(function)
        return function
    return add


def _is_float(node: Node) -> bool:
    return kind_of(node.type.dtype) == "float"


# ---------------------------------------------------------------- arrays filled by windows
@rule("*")
def _filled(r: Rewriter, n: Node) -> int | None:
    """Before: ``exp (update (update x a) b)``, x full. After: ``exp (concatenate a b)``."""
    if n.op in WHOLE_VIEWS or (n.op == "slice" and n.args[0] in r.windows):
        return None
    table = r.windows.get(n.args[0]) if n.op == "update" else None
    goes_on = table and r.nodes[n.args[1]].type.shape[table.axis] != table.side
    args = tuple(x if goes_on and i == 0 else r.whole(x) for i, x in enumerate(n.args))
    return None if args == n.args else r.offer(moved(n, n.id, args))


@rule("slice")
def _slice_of_transpose(r: Rewriter, n: Node) -> int | None:
    """Before: ``slice (transpose x)`` while x is being filled. After: ``transpose (slice x)``."""
    view = r.nodes[n.args[0]]
    if view.op != "transpose" or view.args[0] not in r.windows:
        return None
    perm = view.attr("perm")
    places = [perm.index(axis) for axis in range(len(perm))]
    attrs = {name: tuple(n.attr(name)[p] for p in places) for name in ("start", "size", "step")}
    return r.make(n, "transpose", r.make(n, "slice", view.args[0], **attrs), perm=perm)


@rule("slice")
def _reads_what_was_written(r: Rewriter, n: Node) -> int | None:
    """Before: ``slice (update (update x a) b)`` within a. After: ``slice a``.

    A window of half the array or more is taken from a only if it is all of a. Otherwise the updated
    array is read, which other nodes need anyway.
    """
    table = r.windows.get(n.args[0])
    if table is None or not n.type.size:
        return None
    x, axis = r.nodes[n.args[0]].type, table.axis
    start, size = n.attr("start"), n.attr("size")
    step = n.attr("step")[axis] if size[axis] > 1 else 1
    first, stop = sorted((start[axis], start[axis] + (size[axis] - 1) * step))
    ranges = table.read(first, stop + 1)
    if len(ranges) == 1:
        source, origin = ranges[0].part.value, first - ranges[0].part.offset
        if 2 * n.type.size >= x.size and n.type.size < r.nodes[source].type.size:
            source, origin = r.whole(n.args[0]), 0
    # for example a cache of keys, read as far as it is filled
    elif 4 * (stop + 1 - first) >= table.side:
        source, origin = r.whole(n.args[0]), 0
    else:
        source, origin = r.across(n, table, first, stop + 1), first
    if source == n.args[0]:
        return None
    start = tuple(s - origin if a == axis else s for a, s in enumerate(start))
    return r.make(n, "slice", source, start=start, size=size, step=n.attr("step"))


# ---------------------------------------------------------------- nothing to compute
@rule("*")
def _no_elements(r: Rewriter, n: Node) -> int | None:
    """Before: ``exp x`` where x: f32[0,3]. After: a constant, which needs no kernel."""
    return r.constant(n, 0) if n.type.size == 0 and n.kind != "source" else None


@rule("sum", "prod", "any", "all")
def _nothing_to_reduce(r: Rewriter, n: Node) -> int | None:
    """Before: ``sum x`` where x: f32[4,0]. After: ``constant 0``. max and min have none."""
    identity = {"sum": 0, "prod": 1, "any": False, "all": True}[n.op]
    return r.constant(n, identity) if r.nodes[n.args[0]].type.size == 0 else None


# ---------------------------------------------------------------- constant folding
@rule("constant")
def _short_value(r: Rewriter, n: Node) -> int | None:
    """Before: f32 ``constant value=0.10000000149011612``. After: ``value=0.1``, the same."""
    value = shortest(n.attr("value"), n.type.dtype)
    same = repr(value) == repr(n.attr("value")) and (value == value or n.attr("value") is math.nan)
    return None if same else r.constant(n, value)


def _survives(value: Any, dtype: str) -> bool:
    """Whether a cast has one result. NaN or 300.0 to uint8 depends on the machine."""
    if kind_of(dtype) != "int" or not isinstance(value, float):
        return True
    return math.isfinite(value) and np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max


@rule("map")
def _map_of_constants(r: Rewriter, n: Node) -> int | None:
    """Before: ``exp 1.0``. After: NumPy's own exp of float32 1.0."""
    values = [r.value(a) for a in n.args]
    if None in values or (n.op == "cast" and not _survives(values[0], n.type.dtype)):
        return None
    operands = [np.full((1,), v).astype(r.nodes[a].type.dtype) for v, a in zip(values, n.args, strict=True)]
    with np.errstate(all="ignore"):
        return r.constant(n, apply(n, operands)[0])


@rule("broadcast", "reshape", "transpose", "slice", "gather")
def _move_of_constant(r: Rewriter, n: Node) -> int | None:
    """Before: ``broadcast 2.0``. After: ``constant 2.0`` of the wide type."""
    value = r.value(n.args[0])
    return None if value is None else r.constant(n, value)


@rule("concatenate")
def _concatenate_of_constants(r: Rewriter, n: Node) -> int | None:
    """Before: ``concatenate 0.0 0.0``. After: ``constant 0.0``. 0.0 and -0.0 are different."""
    values = {repr(r.value(a)) for a in n.args}
    return r.constant(n, r.value(n.args[0])) if len(values) == 1 and r.value(n.args[0]) is not None else None


@rule("concatenate")
def _in_groups(r: Rewriter, n: Node) -> int | None:
    """Before: ``concatenate`` of 400 parts. After: of 20 concatenates of 20 parts each.

    One kernel of 400 parts takes half a minute to compile. The equal concatenates share a kernel.
    """
    if len(n.args) <= MOST_PARTS:
        return None
    each, axis = math.isqrt(len(n.args) - 1) + 1, n.attr("axis")
    groups = [n.args[k:k + each] for k in range(0, len(n.args), each)]
    parts = [g[0] if len(g) == 1 else r.make(n, "concatenate", *g, axis=axis) for g in groups]
    return r.make(n, "concatenate", *parts, axis=axis)


@rule("max", "min", "any", "all")
def _order_of_constant(r: Rewriter, n: Node) -> int | None:
    """Before: ``max 2.0``. After: ``constant 2.0``."""
    value = r.value(n.args[0])
    return None if value is None else r.constant(n, value)


@rule("sum")
def _sum_of_constant(r: Rewriter, n: Node) -> int | None:
    """Before: ``sum 1.0`` over 64 elements. After: ``constant 64.0``.

    Only if no order of adding rounds.
    """
    value = r.value(n.args[0])
    count = r.nodes[n.args[0]].type.size // n.type.size
    if value is None or value != value or math.isinf(value) or value != int(value):
        return None
    limit = 1 / np.finfo(n.type.dtype).eps if _is_float(n) else np.iinfo(n.type.dtype).max
    return r.constant(n, value * count + 0) if abs(value) * count <= limit else None


# ---------------------------------------------------------------- arithmetic
@rule("add")
def _add_nothing(r: Rewriter, n: Node) -> int | None:
    """Before: ``x + -0.0`` (integers: ``x + 0``). After: ``x``.

    Not ``x + 0.0``: it turns -0.0 into 0.0.
    """
    nothing = -0.0 if _is_float(n) else 0
    for x, other in (n.args, n.args[::-1]):
        if r.stands_for(other, nothing):
            return x
    return None


@rule("sub")
def _subtract_nothing(r: Rewriter, n: Node) -> int | None:
    """Before: ``x - 0.0``. After: ``x``. Not ``x - -0.0``, which is ``x + 0.0``."""
    return n.args[0] if r.stands_for(n.args[1], 0.0) else None


@rule("mul")
def _multiply_by_one(r: Rewriter, n: Node) -> int | None:
    """Before: ``x * 1``. After: ``x``."""
    for x, other in (n.args, n.args[::-1]):
        if r.stands_for(other, 1):
            return x
    return None


@rule("mul", "and")
def _integer_times_zero(r: Rewriter, n: Node) -> int | None:
    """Before: ``i * 0``, ``i & 0``, ``b & False``. After: ``0``. Not for floats: 0 * inf is NaN."""
    return None if _is_float(n) or not any(r.stands_for(a, 0) for a in n.args) else r.constant(n, 0)


@rule("div", "floor_divide", "power")
def _divide_by_one(r: Rewriter, n: Node) -> int | None:
    """Before: ``x / 1``, ``i // 1``, ``i ** 1``. After: ``x``. A float ``x // 1`` rounds down."""
    exact = n.op == "div" or kind_of(n.type.dtype) == "int"
    return n.args[0] if exact and r.stands_for(n.args[1], 1) else None


@rule("div")
def _divide_by_power_of_two(r: Rewriter, n: Node) -> int | None:
    """Before: ``x / 8``. After: ``x * 0.125``. Both round the same real number. Not ``x / 3``."""
    value = r.value(n.args[1])
    if not value or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    info = np.finfo(n.type.dtype)
    if not float(info.smallest_normal) <= 1 / abs(value) <= float(info.max):
        return None
    return r.make(n, "mul", n.args[0], r.constant(n, 1 / value))


@rule("add", "sub")
def _add_negated(r: Rewriter, n: Node) -> int | None:
    """Before: ``x + -y``, ``x - -y``. After: ``x - y``, ``x + y``."""
    x, y = n.args
    if r.is_a(y, "neg"):
        return r.make(n, "sub" if n.op == "add" else "add", x, r.nodes[y].args[0])
    return r.make(n, "sub", y, r.nodes[x].args[0]) if n.op == "add" and r.is_a(x, "neg") else None


@rule("neg", "not")
def _twice_negated(r: Rewriter, n: Node) -> int | None:
    """Before: ``-(-x)``, ``~~i``, ``not not b``. After: the operand."""
    return r.nodes[n.args[0]].args[0] if r.is_a(n.args[0], n.op) else None


@rule("maximum", "minimum", "fmax", "fmin", "and", "or")
def _same_operand(r: Rewriter, n: Node) -> int | None:
    """Before: ``max(x, x)``, ``b & b``. After: ``x``."""
    return n.args[0] if n.args[0] == n.args[1] else None


@rule("select")
def _decided(r: Rewriter, n: Node) -> int | None:
    """Before: ``select True x y``, ``select c x x``. After: ``x``."""
    condition, x, y = n.args
    known = r.value(condition)
    if x == y or known is not None:
        return x if x == y or known else y
    return None


@rule("select")
def _negated_condition(r: Rewriter, n: Node) -> int | None:
    """Before: ``select (not c) x y``. After: ``select c y x``."""
    test, x, y = n.args
    return r.make(n, "select", r.nodes[test].args[0], y, x) if r.is_a(test, "not") else None


@rule("cast")
def _same_dtype(r: Rewriter, n: Node) -> int | None:
    """Before: ``cast x dtype='float32'`` where x: f32. After: ``x``."""
    return n.args[0] if r.nodes[n.args[0]].type.dtype == n.type.dtype else None


@rule("cast")
def _cast_of_exact_cast(r: Rewriter, n: Node) -> int | None:
    """Before: f32 -> f64 -> f16. After: f32 -> f16. Not f32 -> f16 -> f32, which rounds."""
    if not r.is_a(n.args[0], "cast"):
        return None
    cast = r.nodes[n.args[0]]
    inner, middle, last = r.nodes[cast.args[0]].type.dtype, cast.type.dtype, n.type.dtype
    rounds = middle == "float64" and inner in ("int64", "uint64")
    exact = np.can_cast(inner, middle, "safe") and not rounds
    # A float that an integer type does not hold does not wrap around: u32 -> f64 -> i8 is not
    # u32 -> i8.
    whole = kind_of(middle) == "float" and kind_of(last) == "int" and not np.can_cast(inner, last)
    return r.make(n, "cast", cast.args[0], dtype=last) if exact and not whole else None


# ---------------------------------------------------------------- moves
@rule("broadcast", "reshape", "transpose", "slice")
def _stays_put(r: Rewriter, n: Node) -> int | None:
    """Before: ``transpose x perm=(0, 1)``, ``x[:]``, ``reshape`` to its own shape. After: ``x``."""
    x = r.nodes[n.args[0]].type
    if n.op == "transpose":
        moves = n.attr("perm") != tuple(range(x.rank))
    else:
        moves = n.op == "slice" and any(
            s < 0 and size > 1 for s, size in zip(n.attr("step"), x.shape, strict=True))
    return n.args[0] if x.shape == n.type.shape and not moves else None


@rule("transpose")
def _moves_only_ones(r: Rewriter, n: Node) -> int | None:
    """Before: ``transpose x perm=(1, 0)`` where x: f32[1,8]. After: ``reshape x shape=(8, 1)``."""
    shape = r.nodes[n.args[0]].type.shape
    long = [axis for axis in n.attr("perm") if shape[axis] != 1]
    return r.make(n, "reshape", n.args[0], shape=n.type.shape) if long == sorted(long) else None


@rule("reshape", "broadcast")
def _only_the_last(r: Rewriter, n: Node) -> int | None:
    """Before: ``reshape (reshape x)``, ``broadcast (broadcast x)``. After: the outer, of ``x``."""
    if not r.is_a(n.args[0], n.op):
        return None
    return r.make(n, n.op, r.nodes[n.args[0]].args[0], shape=n.type.shape)


@rule("transpose")
def _transpose_of_transpose(r: Rewriter, n: Node) -> int | None:
    """Before: two permutations. After: their product."""
    if not r.is_a(n.args[0], "transpose"):
        return None
    inner = r.nodes[n.args[0]]
    return r.make(n, "transpose", inner.args[0], perm=tuple(inner.attr("perm")[p] for p in n.attr("perm")))


@rule("slice")
def _slice_of_slice(r: Rewriter, n: Node) -> int | None:
    """Before: ``x[2:10][1:3]``. After: ``x[3:5]``."""
    if not r.is_a(n.args[0], "slice"):
        return None
    inner = r.nodes[n.args[0]]
    axes = zip(inner.attr("start"), inner.attr("step"), n.attr("start"), strict=True)
    start = tuple(a + b * s for a, s, b in axes)
    step = tuple(s * t for s, t in zip(inner.attr("step"), n.attr("step"), strict=True))
    return r.make(n, "slice", inner.args[0], start=start, size=n.attr("size"), step=step)


@rule("slice")
def _plain_step(r: Rewriter, n: Node) -> int | None:
    """Before: ``x[3:4:5]``. After: ``x[3:4:1]``: one element needs no step."""
    start, size, step = (n.attr(name) for name in ("start", "size", "step"))
    plain = tuple(1 if k == 1 else s for s, k in zip(step, size, strict=True))
    if plain == step:
        return None
    return r.make(n, "slice", n.args[0], start=start, size=size, step=plain)


@rule("slice")
def _reads_back(r: Rewriter, n: Node) -> int | None:
    """Before: ``update x v`` then ``slice`` of that very window. After: ``v``."""
    written = r.nodes[n.args[0]]
    same = written.op == "update" and r.nodes[written.args[1]].type == n.type and all(
        written.attr(name) == n.attr(name) for name in ("start", "step"))
    return written.args[1] if same else None


@rule("update")
def _overwrites(r: Rewriter, n: Node) -> int | None:
    """Before: ``x[:] = v``, or ``v`` has no elements. After: ``v``, or ``x``."""
    x, v = n.args
    if r.nodes[v].type.size == 0:
        return x
    whole = r.nodes[v].type == n.type and all(s == 1 for s in n.attr("step"))
    return v if whole else None


@rule("update")
def _written_over(r: Rewriter, n: Node) -> int | None:
    """Before: ``update (update x v) w``, where w covers v. After: ``update x w``.

    Only if nothing else reads the inner update. A step of a time loop may read the step before it.
    Then the chain stays, and the steps stay equal.
    """
    inner = r.nodes[n.args[0]]
    if inner.op != "update" or r.graph[r.current].op != "update" or not r.read_once(0):
        return None
    shape, hidden = r.nodes[n.args[1]].type.shape, r.nodes[inner.args[1]].type.shape
    same = inner.attrs == n.attrs and hidden == shape
    outer = zip(n.attr("start"), n.attr("step"), shape, strict=True)
    within = zip(inner.attr("start"), inner.attr("step"), hidden, strict=True)
    around = True
    for (first, step, length), (start, by, size) in zip(outer, within, strict=True):
        low, high = sorted((start, start + (size - 1) * by))
        around = around and step == 1 and first <= low and high < first + length
    return r.make(n, "update", inner.args[0], n.args[1], **n.attributes) if same or around else None


@rule("concatenate")
def _empty_parts(r: Rewriter, n: Node) -> int | None:
    """Before: ``concatenate x empty``, ``concatenate x``. After: ``x``."""
    parts = [a for a in n.args if r.nodes[a].type.size]
    if len(parts) == 1:
        return parts[0]
    return r.make(n, "concatenate", *parts, axis=n.attr("axis")) if len(parts) < len(n.args) else None


# ---------------------------------------------------------------- reductions
@rule("reduce")
def _one_element_each(r: Rewriter, n: Node) -> int | None:
    """Before: ``max x axes=(1,)`` where x: f32[8,1]. After: ``reshape x shape=(8,)``.

    A float sum starts from 0.0, and 0.0 + -0.0 is 0.0. So a sum becomes ``reshape(x) + 0.0``.
    """
    x = r.nodes[n.args[0]].type
    if any(x.shape[a] != 1 for a in n.attr("axes")):
        return None
    moved = r.make(n, "reshape", n.args[0], shape=n.type.shape)
    return r.make(n, "add", moved, r.constant(n, 0.0)) if n.op == "sum" and _is_float(n) else moved


@rule("max", "min", "any", "all", "sum", "prod")
def _reduce_of_reduce(r: Rewriter, n: Node) -> int | None:
    """Before: ``max (max x axes=(1,)) axes=(0,)``. After: ``max x axes=(0, 1)``.

    Not for a float sum or product: another order rounds differently.
    """
    inner = r.nodes[n.args[0]]
    if inner.op != n.op or (n.op in ("sum", "prod") and _is_float(n)):
        return None
    rank = r.nodes[inner.args[0]].type.rank
    kept = [a for a in range(rank) if inner.attr("keepdims") or a not in inner.attr("axes")]
    axes = tuple(sorted({*inner.attr("axes"), *(kept[a] for a in n.attr("axes"))}))
    folded = r.make(n, n.op, inner.args[0], axes=axes, keepdims=n.attr("keepdims") and inner.attr("keepdims"))
    return r.make(n, "reshape", folded, shape=n.type.shape)


@rule("reduce")
def _reduced_before(r: Rewriter, n: Node) -> int | None:
    """Before: ``sum x keepdims=False``, ``sum x keepdims=True``. After: a sum, and its reshape."""
    axes, keepdims = n.attr("axes"), n.attr("keepdims")
    operand = r.nodes[n.args[0]].type.shape
    shape = tuple(1 if a in axes else m for a, m in enumerate(operand) if not keepdims or a not in axes)
    attrs = tuple((name, not keepdims if name == "keepdims" else value) for name, value in n.attrs)
    twin = r.found.get((n.op, n.args, replace(n.type, shape=shape), repr(attrs)))
    return None if twin is None else r.make(n, "reshape", twin, shape=n.type.shape)
