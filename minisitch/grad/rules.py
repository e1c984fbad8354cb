"""Derivatives: one rule an op, and a walk over the recorded nodes from the last to the first.

In:  results of the running trace with a gradient each, and the nodes that are differentiated.
Out: the gradients of these nodes, as further nodes of the same graph.

A rule is NumPy on traced arrays. It gets the gradient ``g`` of a node, its value ``y`` and its
operands, and gives a gradient for each operand (Baydin et al. 2018, *Automatic Differentiation in
Machine Learning*, section 3.2: reverse mode). So a backward pass is one more program: ``simplify``
cleans it, every strategy fuses it, and a second walk differentiates it again.

Before:  %2 = sin %1; %3 = mul %2 %1; return %3          f(x) = sin(x) * x
After:   ...; %4 = constant 1.0; %5 = mul %4 %1; %6 = mul %4 %2     of the product
         %7 = cos %1; %8 = mul %5 %7; %9 = add %6 %8; return %9     of the sine, and their sum

To give a new op a derivative, add one row to ``ELEMENTWISE``, or a ``@rule``. Ops of ``FLAT`` have
the derivative zero. Any other op is refused at the user's line.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import TraceError
from ..graph import Node
from ..ops import kind_of
from ..trace.array import (
    TracedArray,
    broadcast,
    constant,
    fresh,
    inverse,
    iota,
    permuted,
    record,
    reshaped,
)
from ..trace.recorder import current, refuse

Traced = Any  # a traced array: NumPy's annotations do not know it
# for each operand its gradient, one of a window or of rows of it, or None
Parts = tuple[Any, ...]
RULES: dict[str, Callable[..., Parts]] = {}  # op -> rule(g, node, y, *operands)

# Their derivative is zero where there is one, or they have no float result.
FLAT = ("input constant iota floor_divide floor ceil trunc rint sign eq ne lt le gt ge and or xor "
        "not shift_left shift_right isnan isinf isfinite signbit any all argsort").split()


def rule(*names: str) -> Callable[[Callable[..., Parts]], Callable[..., Parts]]:
    """Register the derivative of ops."""
    def add(function: Callable[..., Parts]) -> Callable[..., Parts]:
        RULES.update(dict.fromkeys(names, function))
        return function
    return add


@rule(*FLAT)
def _flat(g: Traced, n: Node, y: Traced, *operands: Traced) -> Parts:
    return ()


# ---------------------------------------------------------------- one element at a time
def _no_zero(x: Traced) -> Traced:
    """``x``, with one in place of zero: what is divided by it counts as zero there."""
    return np.where(x == 0, 1, x)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda g, y, a, b: (g, g),
    "sub": lambda g, y, a, b: (g, -g),
    "mul": lambda g, y, a, b: (g * b, g * a),
    "div": lambda g, y, a, b: (g / b, -(g / b) * y),
    "mod": lambda g, y, a, b: (g, -g * np.floor_divide(a, b)),
    "fmod": lambda g, y, a, b: (g, -g * np.trunc(a / b)),
    # x ** 0 is flat also at zero, and 0 ** x has the derivative 0
    "power": lambda g, y, a, b: (g * (b * a ** np.where(b == 0, 1, b - 1)),
                                 g * (y * np.log(_no_zero(a)))),
    "neg": lambda g, y, x: -g,
    "abs": lambda g, y, x: g * np.sign(x),  # 0 at 0, between -1 and 1 (JAX takes 1)
    "copysign": lambda g, y, a, b: (np.where(np.signbit(a) == np.signbit(b), g, -g), None),
    "erf": lambda g, y, x: g * (np.exp(-x * x) * (2 / math.sqrt(math.pi))),
    "exp": lambda g, y, x: g * y,
    "expm1": lambda g, y, x: g * (y + 1),
    "log": lambda g, y, x: g / x,
    "log1p": lambda g, y, x: g / (x + 1),
    "log2": lambda g, y, x: g / (x * math.log(2)),
    "log10": lambda g, y, x: g / (x * math.log(10)),
    "tanh": lambda g, y, x: g * (1 - y * y),
    "sin": lambda g, y, x: g * np.cos(x),
    "cos": lambda g, y, x: -g * np.sin(x),
    "tan": lambda g, y, x: g * (1 + y * y),
    "sinh": lambda g, y, x: g * np.cosh(x),
    "cosh": lambda g, y, x: g * np.sinh(x),
    "sqrt": lambda g, y, x: g * 0.5 / y,
    "arcsin": lambda g, y, x: g / np.sqrt(1 - x * x),
    "arccos": lambda g, y, x: -g / np.sqrt(1 - x * x),
    "arctan": lambda g, y, x: g / (1 + x * x),
    "arcsinh": lambda g, y, x: g / np.sqrt(x * x + 1),
    "arccosh": lambda g, y, x: g / np.sqrt((x - 1) * (x + 1)),
    "arctanh": lambda g, y, x: g / (1 - x * x),
    "arctan2": lambda g, y, a, b: (g * (b / (a * a + b * b)), g * (-a / (a * a + b * b))),
    "hypot": lambda g, y, a, b: (g * (a / _no_zero(y)), g * (b / _no_zero(y))),
    "select": lambda g, y, c, a, b: (None, np.where(c, g, 0), np.where(c, 0, g)),
    "cast": lambda g, y, x: g.astype(x.dtype),
}


def _of_element(function: Callable[..., Any]) -> Callable[..., Parts]:
    def derivative(g: Traced, n: Node, y: Traced, *operands: Traced) -> Parts:
        parts = function(g, y, *operands)
        return parts if isinstance(parts, tuple) else (parts,)
    return derivative


RULES.update({op: _of_element(function) for op, function in ELEMENTWISE.items()})


@rule("maximum", "minimum", "fmax", "fmin")
def _chosen(g: Traced, n: Node, y: Traced, a: Traced, b: Traced) -> Parts:
    """The operand that was taken gets the gradient. Of equal ones each gets half, as in JAX."""
    each = np.where(a == b, g * 0.5, g)
    return np.where(a == y, each, 0), np.where(b == y, each, 0)


# ---------------------------------------------------------------- reductions
def _wide(g: Traced, n: Node, x: Traced) -> Traced:
    """A reduced value at each element that was reduced to it."""
    kept = [1 if axis in n.attr("axes") else size for axis, size in enumerate(x.shape)]
    return broadcast(reshaped(g, kept), x.shape)


@rule("sum")
def _sum(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    return (_wide(g, n, x),)


@rule("max", "min")
def _extreme(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    """Equal largest elements share the gradient, as in JAX."""
    taken = x == _wide(y, n, x)
    each = g / np.sum(taken, axis=n.attr("axes"), dtype=g.dtype, keepdims=n.attr("keepdims"))
    return (np.where(taken, _wide(each, n, x), 0),)


def through(program: Callable[[Traced], Traced], g: Traced, x: Traced) -> Parts:
    """The gradient of an op from a program of other ops that computes the same."""
    return tuple(pull({program(x).node: g}, [x.node]))


@rule("prod")
def _prod(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    """Through products of halves. ``g * y / x`` fails at zeros."""
    def halves(x: Traced) -> Traced:
        axes = n.attr("axes")
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        rows: Traced = permuted(x, (*axes, *kept))
        along = math.prod(x.shape[axis] for axis in axes)
        rows = reshaped(rows, (along, *(x.shape[axis] for axis in kept)))
        while len(rows) > 1:
            half = len(rows) // 2
            rows = np.concatenate([rows[:half] * rows[half:2 * half], rows[2 * half:]])
        return reshaped(rows, y.shape)
    return through(halves, g, x) if x.size else ()


# ---------------------------------------------------------------- moves
@rule("broadcast")
def _broadcast(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    axes = tuple(axis for axis, size in enumerate(x.shape) if size != g.shape[axis])
    return (np.sum(g, axis=axes, keepdims=True, dtype=g.dtype),)


@rule("reshape")
def _reshape(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    return (reshaped(g, x.shape),)


@rule("transpose")
def _transpose(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    return (permuted(g, inverse(n.attr("perm"))),)


@rule("concatenate")
def _concatenate(g: Traced, n: Node, y: Traced, *xs: Traced) -> Parts:
    axis = n.attr("axis")
    ends = np.cumsum([x.shape[axis] for x in xs])[:-1]
    return tuple(np.split(g, ends.tolist(), axis=axis))


@rule("slice")
def _slice(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    return (WindowGradient(g, n.attr("start"), n.attr("size"), n.attr("step")),)


@rule("gather")
def _gather(g: Traced, n: Node, y: Traced, x: Traced, *indices: Traced) -> Parts:
    return (RowsGradient(g, indices, n.attr("axes")),)


@rule("update")
def _update(g: Traced, n: Node, y: Traced, x: Traced, v: Traced) -> Parts:
    start, step = n.attr("start"), n.attr("step")
    kept = record("update", g, np.zeros_like(v), start=start, step=step)
    return kept, record("slice", g, start=start, size=v.shape, step=step)


# ---------------------------------------------------------------- products, scans, tables
@rule("matmul")
def _matmul(g: Traced, n: Node, y: Traced, a: Traced, b: Traced) -> Parts:
    """A matrix that a stack of rows is multiplied by gets its gradient from one product."""
    def fold(x: Traced, like: Traced) -> Traced:
        x = np.sum(x, axis=tuple(range(x.ndim - like.ndim)), dtype=g.dtype)
        return _broadcast(x, n, y, like)[0]
    if b.ndim == 2:
        rows, columns = (reshaped(x, (math.prod(x.shape[:-1]), x.shape[-1])) for x in (a, g))
        return g @ b.mT, rows.mT @ columns
    return fold(g @ b.mT, a), fold(a.mT @ g, b)


@rule("cumsum")
def _cumsum(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    axis = n.attr("axis")
    return (np.flip(np.cumsum(np.flip(g, axis), axis, dtype=g.dtype), axis),)


@rule("cumprod")
def _cumprod(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    """Through doubling steps. A quotient fails at zeros."""
    def doubling(x: Traced) -> Traced:
        rows, by = np.moveaxis(x, n.attr("axis"), 0), 1
        while by < len(rows):
            rows, by = np.concatenate([rows[:by], rows[by:] * rows[:-by]]), 2 * by
        return np.moveaxis(rows, 0, n.attr("axis"))
    return through(doubling, g, x)


@rule("sort")
def _sort(g: Traced, n: Node, y: Traced, x: Traced) -> Parts:
    axis = n.attr("axis")
    back: Traced = np.argsort(np.argsort(x, axis, kind="stable"), axis, kind="stable")
    places = [back if each == axis else iota(x.shape, each) for each in range(x.ndim)]
    return (record("gather", g, *places, axes=tuple(range(x.ndim))),)


@rule("scatter")
def _scatter(g: Traced, n: Node, y: Traced, x: Traced, v: Traced, *indices: Traced) -> Parts:
    """A value that another one has overwritten has no gradient."""
    axes, mode = n.attr("axes"), n.attr("mode")
    if mode not in ("set", "add", "subtract"):
        raise _without_rule(n, f"np.{mode}.at")
    back: Traced = record("gather", g, *indices, axes=axes)
    if mode != "set":
        return g, back if mode == "add" else -back
    order = reshaped(iota((v.size,), 0), v.shape)
    last = record("scatter", constant(0, x.shape, "int64"), order, *indices, axes=axes, mode="set")
    back = np.where(record("gather", last, *indices, axes=axes) == order, back, 0)
    return record("scatter", g, np.zeros_like(v), *indices, axes=axes, mode="set"), back


# ---------------------------------------------------------------- gradients while they are added up
@dataclass(frozen=True)
class WindowGradient:
    """The gradient of one window of an array, which is zero elsewhere."""

    g: Traced
    start: Sequence[int]
    size: Sequence[int]
    step: Sequence[int]

    def meets(self, other: "WindowGradient") -> bool:
        """Whether two windows may share an element."""
        def meet(a: int, n: int, s: int, b: int, m: int, t: int) -> bool:
            first, second = sorted((a, a + (n - 1) * s)), sorted((b, b + (m - 1) * t))
            return first[0] <= second[1] and second[0] <= first[1] and (a - b) % math.gcd(s, t) == 0
        axes = zip(self.start, self.size, self.step, other.start, other.size, other.step, strict=True)
        return all(meet(*axis) for axis in axes)


@dataclass(frozen=True)
class RowsGradient:
    """The gradient of what a gather has taken from an array."""

    g: Traced
    indices: Sequence[Traced]
    axes: tuple[int, ...]


class Total:
    """The gradient of an array, while its parts are added up.

    Windows and rows are written into one array. So a loop over the rows of x costs one array, not
    one for each row. What no window has written to is still zero.
    """

    def __init__(self, like: TracedArray) -> None:
        self.like = like
        self.value: Traced = None
        self.windows: list[WindowGradient] | None = []  # all that is not zero; None: anything

    def add(self, part: Any) -> None:
        """Add a gradient of the whole array, a WindowGradient or RowsGradient."""
        if not isinstance(part, WindowGradient | RowsGradient):
            self.value, self.windows = part if self.value is None else self.value + part, None
            return
        into = constant(0, self.like.shape, self.like.dtype) if self.value is None else self.value
        if isinstance(part, RowsGradient):
            self.value = record("scatter", into, part.g, *part.indices, axes=part.axes, mode="add")
            self.windows = None
            return
        g = part.g
        if self.windows is None or any(part.meets(each) for each in self.windows):
            g = record("slice", into, start=part.start, size=part.size, step=part.step) + g
        self.value = record("update", into, g, start=part.start, step=part.step)
        if self.windows is not None:
            self.windows.append(part)


# ---------------------------------------------------------------- the walk
@dataclass(frozen=True)
class Own:
    """What stands for the rule of a node: what it depends on, and what adds their gradients."""

    reads: frozenset[int] = frozenset()
    pull: Callable[[dict[int, Total]], None] | None = None


def _without_rule(n: Node, name: str) -> TraceError:
    return refuse(f"the gradient of {name}", "it has no rule", "Write it with other functions, put "
                  "ms.stop_gradient around it if it is no part of the derivative, or give the "
                  "function its own with ms.custom_vjp", (n.where, n.via))


def pull(seeds: dict[int, TracedArray], wanted: Sequence[int]) -> list[TracedArray]:
    """The gradients of ``wanted``, given those of some results.

    The walk goes from the last result back to the first wanted node. A node that no result depends
    on has the gradient 0.
    """
    recorder = current()
    nodes = recorder.builder.nodes[:max(seeds, default=-1) + 1]
    depends = set(wanted)
    for n in nodes[min(wanted, default=0):]:
        reads = recorder.derivatives[n.id].reads if n.id in recorder.derivatives else n.args
        if kind_of(n.type.dtype) == "float" and not depends.isdisjoint(reads):
            depends.add(n.id)
    totals: dict[int, Total] = {}
    for node, g in seeds.items():
        totals.setdefault(node, Total(g)).add(g)
    for n in reversed(nodes):
        if n.id not in depends:
            continue
        own = recorder.derivatives.get(n.id)
        if own is not None:
            if own.pull is not None:
                own.pull(totals)
        elif n.id in totals:
            total = totals[n.id] if n.id in wanted else totals.pop(n.id)
            with recorder.at_line(n.where, f"gradient of {n.op}"):
                _pull_node(n, total.value, totals, depends)
    return [found(totals, node) for node in wanted]


def found(totals: dict[int, Total], node: int) -> TracedArray:
    """The gradient of a node, in memory of its own. It is 0 if nothing has added to it."""
    if node in totals:
        return fresh(totals[node].value.node)
    type = current().type(node)
    return constant(0, type.shape, type.dtype)


def _pull_node(n: Node, g: Traced, totals: dict[int, Total], depends: set[int]) -> None:
    """Add to the gradients of a node's operands."""
    if depends.isdisjoint(n.args):
        return
    if n.op not in RULES:
        raise _without_rule(n, f"np.{n.attr('name')}" if n.op == "ufunc" else n.op)
    operands = [fresh(each) for each in n.args]
    for x, part in zip(operands, RULES[n.op](g, n, fresh(n.id), *operands), strict=False):
        if part is not None and x.node in depends:
            totals.setdefault(x.node, Total(x)).add(part)
