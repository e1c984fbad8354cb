"""Judges results: equal to NumPy's, or within a derived bound of the float64 result.

In:  a ``Graph``, one array per input, one per output. Out: one ``Verdict`` per output.

``reference.evaluate`` gives the meaning. Two correct float32 programs differ in rounding. So the
judge takes the float64 run as the truth, and *derives* how far a float32 run may be from it. It
carries an error bound along every value (running error analysis, Wilkinson 1963; Higham, *Accuracy
and Stability of Numerical Algorithms*, section 3.3):

- Inputs, constants, moves and exact operations (max, neg, floor ...) add no error.
- A rounded operation adds one ulp of its result, a library function (exp, tanh ...) four. Neither
  adds any if its operands have no error and the true result is representable.
- An operation passes on an operand's error e: it is evaluated at the corners ``x - e, x + e``. If a
  branch may flip, both sides are corners, so ``floor`` and ``<`` need no special case.
- The sign of a NaN is nobody's: the order of a sum decides it.
- A sum of n terms in any order adds ``min(n, 16 sqrt(n)) u sum|x|``. Below 256 terms that is the
  worst case of a serial sum. Above, it is the probabilistic bound of Higham & Mary (2019) with
  lambda = 16. That is wide enough for equal terms, whose errors do not average out, up to some
  thousands of them.

A value passes if it equals NumPy's, or if its distance from float64 is at most twice NumPy's own
plus that bound. Programs of small integers have bound zero: there the judge demands equality.
"""

import itertools
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass

import numpy as np

from ..errors import needs
from ..graph import Graph, Node
from ..ops import EXACT, OPS, compute_dtype, kind_of
from ..reference import Array, apply, evaluate, last_read, run

Arrays = Sequence[Array]

@dataclass(frozen=True)
class Verdict:
    """How one output compares with the meaning.

    ``used`` is the largest share of its allowance that an element took (0: all equal NumPy's, above
    1: too far). ``undecided`` is the share of elements without a bound, because a rounding error
    may flip a branch there or make a value infinite.
    """

    ok: bool
    why: str = ""
    used: float = 0.0
    undecided: float = 0.0


def judge(graph: Graph, inputs: Sequence[Array], got: Sequence[Array]) -> tuple[Verdict, ...]:
    """One verdict an output: whether ``got`` means what the graph means.

    Shape and dtype must be equal, and every value equal to NumPy's or within the derived bound of
    the float64 run (see the module). Infinities and NaN must be where NumPy's or the float64 run's
    are.
    """
    needs("judge(graph, inputs, results)", (graph, Graph), (inputs, Sized), (got, Sized))
    if len(got) != len(graph.outputs):
        return (Verdict(False, f"outputs expected: {len(graph.outputs)}, got {len(got)}"),)
    expected = evaluate(graph, inputs)
    if all(_same_type(a, b) and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
           for a, b in zip(got, expected, strict=True)):
        return tuple(Verdict(True) for _ in got)
    bounded = error_bounds(graph, inputs)
    pairs = zip(got, expected, bounded, strict=True)
    return tuple(_judge_one(np.asarray(g), e, *b) for g, e, b in pairs)


def _same_type(got: Array, expected: Array) -> bool:
    array = isinstance(got, (np.ndarray, np.generic))
    return array and (got.shape, got.dtype) == (expected.shape, expected.dtype)


def _judge_one(got: Array, expected: Array, exact: Array, bound: Array) -> Verdict:
    if not _same_type(got, expected):
        wanted, seen = (f"{a.dtype.name}{list(a.shape)}" for a in (expected, got))
        return Verdict(False, f"expected {wanted}, got {seen}")
    with np.errstate(all="ignore"):
        wide = [a.astype(np.float64) for a in (got, expected, exact)]
        stored = exact.astype(expected.dtype).astype(np.float64)  # a float16 store may overflow
        own = np.where(np.isfinite(wide[1]) & np.isfinite(wide[2]), np.abs(wide[1] - wide[2]), 0.0)
        allowed = bound + 2 * own
        far = np.abs(wide[0] - wide[2])
    same = _equal(wide[0], wide[1]) | _equal(wide[0], stored)
    if got.dtype.kind in "iub":  # float64 cannot tell large integers apart
        same = np.asarray(got == expected)
        far = np.where(same, 0.0, np.maximum(far, 1.0))
    ok = same | (np.isfinite(wide[0]) & (far <= allowed)) | np.isinf(bound)
    with np.errstate(all="ignore"):
        shares = np.where(same | np.isinf(bound), 0.0, np.where(np.isnan(far), np.inf, far / allowed))
    used = float(np.max(shares, initial=0.0))
    undecided = float(np.mean(np.isinf(bound))) if bound.size else 0.0
    if ok.all():
        return Verdict(True, "", used, undecided)
    flat = int(np.argmax(np.where(ok, -1.0, np.nan_to_num(shares, posinf=np.finfo(float).max))))
    at = tuple(int(i) for i in np.unravel_index(flat, got.shape))
    why = (f"{np.count_nonzero(~ok)} of {got.size} elements are wrong; at {at}: got {got[at]!s}, "
           f"NumPy {expected[at]!s}, float64 {exact[at]!s}: {far[at]:.3g} away, allowed {allowed[at]:.3g}")
    return Verdict(False, why, used, undecided)


def _equal(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


# ---------------------------------------------------------------- bounds of a float32 run
ROUNDED_ONCE = frozenset("add sub mul div sqrt cast fmod mod floor_divide".split())
# CUDA C++ Programming Guide, "Mathematical functions": powf 4 ulp, others 1 to 4
LIBRARY_ULPS = {"power": 8}


def error_bounds(graph: Graph, inputs: Sequence[Array]) -> list[tuple[Array, Array]]:
    """For each output its float64 value, and how far from it a correct run may be.

    The distance is absolute, and first order in the unit roundoff. 0 means that every correct run
    is exact. Infinity means that rounding may flip a branch to something unbounded.
    """
    errors: dict[int, Array] = {}
    found: dict[int, tuple[Array, Array]] = {}
    with np.errstate(all="ignore"):
        for node, operands, value in run(graph, inputs, float64=True):
            given = [errors[a] for a in node.args]
            if any(e.any() for e in given) or node.op in _ROUNDS or node.kind == "map":
                error = _ERRORS.get(node.op, _map_error)(node, value, operands, given)
                errors[node.id] = np.where(np.isnan(error), np.inf, error)
            else:
                errors[node.id] = np.broadcast_to(0.0, value.shape)
            if node.id in graph.outputs:
                found[node.id] = value, errors[node.id]
            for done in last_read(graph, node):
                del errors[done]
    return [found[o] for o in graph.outputs]


def _computed_in(node: Node) -> str:
    """The dtype that a node rounds to at each step.

    Kernels add float16 up in float32, and round once.
    """
    return compute_dtype(node.type.dtype) if node.kind == "reduce" else node.type.dtype


def _ulps(node: Node, value: Array, count: float) -> Array:
    """``count`` units in the last place of the computation, and one of the store.

    0 at infinities.
    """
    def unit(dtype: str) -> Array:
        info = np.finfo(dtype)
        return np.abs(value) * float(info.eps) + float(info.smallest_subnormal)

    computed, stored = _computed_in(node), node.type.dtype
    error = count * unit(computed) + (unit(stored) if computed != stored else 0.0)
    return np.where(np.isfinite(value), error, 0.0)


def _corners(node: Node, x: Array, error: Array) -> tuple[Array, ...]:
    """The extreme values an operand may really have. An exact operand has one."""
    if not error.any():
        return (x,)
    if x.dtype == bool:
        return (x, x ^ (error > 0))
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        ends = float(limits.min), float(limits.max)
        return tuple(np.clip(x + s * error, *ends).astype(x.dtype) for s in (-1, 1))
    return x - error, x + error


def _distance(a: Array, b: Array) -> Array:
    """|a - b| elementwise. 0 between equal infinities or NaNs, else infinite beside a NaN."""
    a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    return np.where(_equal(a, b), 0.0, np.abs(a - b))


def _map_error(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """The error from the operands, plus the node's own rounding."""
    through = np.zeros(value.shape)
    if any(e.any() for e in given):
        corners = (_corners(node, x, e) for x, e in zip(operands, given, strict=True))
        for corner in itertools.product(*corners):
            gap = _distance(apply(node, corner, float64=True), value)
            through = np.maximum(through, np.where(np.isnan(gap), np.inf, gap))
        if node.op in ("eq", "ne") or (node.op == "cast" and node.type.dtype == "bool"):
            other = operands[1] if len(operands) == 2 else np.zeros_like(operands[0])
            reach = sum(given, np.zeros(value.shape))
            through = ((_distance(operands[0], other) <= reach) & (reach > 0)).astype(np.float64)
        open_ended = np.any([np.isinf(e) for e in given], axis=0) & (through > 0)
        through = np.where(open_ended, np.inf, through)
    # No rule gives the NaN of an operation a sign: inf - inf has one, nan + inf another.
    if node.op in ("signbit", "copysign"):
        through = np.where(np.isnan(operands[-1]), np.inf, through)
    if kind_of(node.type.dtype) != "float" or node.op in EXACT:
        return through
    ulps = 1 if node.op in ROUNDED_ONCE else LIBRARY_ULPS.get(node.op, 4)
    rounding = _ulps(node, value, ulps)
    if node.op in ROUNDED_ONCE and node.type.dtype != "float64":
        exact = value.astype(node.type.dtype) == value
        rounding = np.where((through == 0) & exact, 0.0, rounding)
    elif node.op in ROUNDED_ONCE:
        exact = _is_exact(node, _grid(value), np.abs(value))
        rounding = np.where((through == 0) & exact, 0.0, rounding)
    return through + rounding


def _grid(*terms: Array) -> int | None:
    """The least k up to 10 for which all terms are multiples of 2^-k. None if there is none."""
    def fits(k: int) -> bool:
        return all(bool(np.all(t * 2.0**k == np.rint(t * 2.0**k))) for t in terms)

    return next(k for k in range(11) if fits(k)) if fits(10) else None


def _is_exact(node: Node, grid: int | None, total: Array) -> Array:
    """Whether sums of multiples of 2^-grid fit the mantissa in any order.

    ``total`` is the sum of the magnitudes.
    """
    eps = float(np.finfo(node.type.dtype).eps)
    return np.asarray(False if grid is None else total * 2.0**grid <= 2 / eps)


def _sum_rounding(node: Node, grid: int | None, count: int, total: Array, value: Array) -> Array:
    """The rounding of a sum of ``count`` terms in any order.

    ``total`` is the sum of their magnitudes. Any order has at most (n - 1) u sum|x|. Above 256
    terms the errors of real data average out, and 16 sqrt(n) u sum|x| holds with overwhelming
    probability. Kernels add float16 up in float32. NumPy's running sums, which are library calls,
    round to float16 at each step.
    """
    unit = float(np.finfo(_computed_in(node)).eps) / 2
    rounding = min(count, 16 * count**0.5) * unit * np.where(np.isfinite(total), total, 0.0)
    rounding = rounding + _ulps(node, value, 1)
    return np.where(_is_exact(node, grid, total), 0.0, rounding)


def _through(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """A move carries errors along with the elements.

    At an uncertain index the error is infinite.
    """
    if node.op != "gather":
        return apply(node, given)
    uncertain = np.any([e > 0 for e in given[1:]], axis=0)
    uncertain = uncertain.reshape(uncertain.shape + (1,) * (value.ndim - uncertain.ndim))
    return np.where(uncertain, np.inf, apply(node, [given[0], *operands[1:]]))


def _sum_error(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """``sum`` and ``cumsum``: errors add up."""
    error = apply(node, given)
    if kind_of(node.type.dtype) != "float":
        return error
    x = operands[0]
    count = x.size // max(value.size, 1) if node.op == "sum" else x.shape[node.attr("axis")]
    return error + _sum_rounding(node, _grid(x), count, apply(node, [np.abs(x)]), value)


def _prod_error(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """``prod`` and ``cumprod``: every factor as large as it may be, with one rounding a factor."""
    x, error = operands[0], given[0]
    magnitude = np.abs(x).astype(np.float64)
    largest = apply(node, [magnitude + error])
    through = largest - apply(node, [magnitude])
    if kind_of(node.type.dtype) != "float":
        return np.where(largest > 0, through, 0.0)
    count = x.size // max(value.size, 1) if node.op == "prod" else x.shape[node.attr("axis")]
    whole = bool(np.all(x == np.rint(x))) and not error.any()
    whole = whole & (np.abs(value) <= 1 / np.finfo(node.type.dtype).eps)
    rounding = np.where(whole, 0.0, _ulps(node, value, count))
    return np.where(np.isfinite(largest), through, 0.0 if not error.any() else np.inf) + rounding


def _order_error(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """``max min any all`` are monotone, so the results at the two corners are the bounds."""
    x, error = operands[0], given[0]
    ends = (x & (error == 0), x | (error > 0)) if x.dtype == bool else _corners(node, x, error)
    return np.max([_distance(apply(node, [end]), value) for end in ends], axis=0)


def _sort_error(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """No sorted element moves further than the worst one. An argsort may change altogether."""
    worst = np.max(given[0], axis=node.attr("axis"), keepdims=True, initial=0.0)
    worst = np.broadcast_to(worst, value.shape)
    return worst if node.op == "sort" else np.where(worst > 0, np.inf, 0.0)


def _matmul_error(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """A sum of products of uncertain factors."""
    (a, b), (ea, eb) = (np.abs(x).astype(np.float64) for x in operands), given
    error = a @ eb + ea @ b + ea @ eb
    if kind_of(node.type.dtype) != "float":
        return error
    grids = _grid(a), _grid(b)
    grid = None if grids[0] is None or grids[1] is None else grids[0] + grids[1]
    return error + _sum_rounding(node, grid, a.shape[-1], a @ b, value)


def _scatter_error(node: Node, value: Array, operands: Arrays, given: Arrays) -> Array:
    """Written values bring their error. Added ones add their error, and a rounding."""
    if any(e.any() for e in given[2:]):
        return np.full(value.shape, np.inf)
    error = apply(node, [given[0].copy(), given[1], *operands[2:]])
    if node.attr("mode") != "add" or kind_of(node.type.dtype) != "float":
        return error
    total = apply(node, [np.abs(operands[0]), np.abs(operands[1]), *operands[2:]])
    return error + _sum_rounding(node, _grid(*operands[:2]), operands[2].size + 1, total, value)


_ERRORS: dict[str, Callable[[Node, Array, Sequence[Array], Sequence[Array]], Array]] = {
    "sum": _sum_error, "cumsum": _sum_error, "prod": _prod_error, "cumprod": _prod_error,
    "max": _order_error, "min": _order_error, "any": _order_error, "all": _order_error,
    "sort": _sort_error, "argsort": _sort_error, "matmul": _matmul_error, "scatter": _scatter_error,
    **{name: _through for name, op in OPS.items() if op.kind == "move"},
}
# errors even from exact operands
_ROUNDS = frozenset("sum cumsum prod cumprod matmul scatter ufunc".split())
