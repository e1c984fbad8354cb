"""Products: matmul, dot, einsum ... as transposes, reshapes and ``matmul``.

In:  NumPy calls. Out: one ``matmul`` a contraction, in NumPy's dtype. Integers are not widened.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .array import (
    TracedArray,
    broadcast,
    cast,
    common_dtype,
    composite,
    fresh,
    handles,
    iota,
    lift,
    permuted,
    record,
    require,
    reshaped,
)
from .creation import opened
from .shapes import gather_view, transpose_view
from .ufuncs import WHOLE, deliver, deliver_whole, resolve


def _matmul(a: Any, b: Any, dtype: Any = None) -> TracedArray:
    """``np.matmul``. The node broadcasts batch axes.

    A vector gets a second axis for the product, and loses it again.
    """
    a, b = lift(a), lift(b)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul: Input operand {0 if a.ndim == 0 else 1} does not have enough dimensions")
    target = resolve(np.matmul, [a, b], dtype)[0]
    left = cast(a if a.ndim > 1 else reshaped(a, (1, a.size)), target)
    right = cast(b if b.ndim > 1 else reshaped(b, (b.size, 1)), target)
    if left.shape[-1] != right.shape[-2]:
        raise ValueError("matmul: Input operand 1 has a mismatch in its core dimension 0 (size "
                         f"{right.shape[-2]} is different from {left.shape[-1]})")
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])  # raises NumPy's error
    rows, columns = left.shape[-2:-1] if a.ndim > 1 else (), right.shape[-1:] if b.ndim > 1 else ()
    return reshaped(record("matmul", left, right, like=True), (*batch, *rows, *columns))


def _with_axes(a: Any, b: Any, ranks: tuple[int, int], new_a: Any = ..., new_b: Any = ...) -> tuple[TracedArray, TracedArray]:
    """Both operands, indexed so that they get new axes.

    Raises ValueError if one has fewer axes than the product needs.
    """
    a, b = lift(a), lift(b)
    if a.ndim < ranks[0] or b.ndim < ranks[1]:
        raise ValueError("an input operand does not have enough dimensions")
    return a[new_a], b[new_b]


def _vecdot(a: Any, b: Any, dtype: Any = None) -> TracedArray:
    a, b = _with_axes(a, b, (1, 1))
    if a.shape[-1] != b.shape[-1]:
        raise ValueError("the operands have a mismatch in their core dimension")
    products = np.multiply(a, b, dtype=dtype)
    return np.sum(products, -1, products.dtype)


WHOLE.update({
    "matmul": _matmul,
    "vecdot": _vecdot,
    "matvec": lambda a, b, dtype=None: _matmul(*_with_axes(a, b, (2, 1), new_b=(..., None)), dtype)[..., 0],
    "vecmat": lambda a, b, dtype=None: _matmul(*_with_axes(a, b, (1, 2), new_a=(..., None, slice(None))), dtype)[..., 0, :],
})


# ---------------------------------------------------------------- dot and its kin
@handles(np.dot)
def dot(a, b, out=None):
    a, b = lift(a), lift(b)
    if a.ndim == 0 or b.ndim == 0:
        product: Any = np.multiply(a, b)
        if product.size > 1 and product.dtype in (np.float32, np.float64):  # BLAS adds to zeros, and skips a factor of 0
            factor, other = (b, a) if a.ndim else (a, b)
            product = factor * np.where((factor == 0) & ~np.isfinite(other), 0, other) + 0.0
    elif (a.ndim <= 2 and b.ndim <= 2) or b.ndim == 1:
        product = _matmul(a, b)
    else:
        product = np.tensordot(a, b, (-1, max(b.ndim - 2, 0)))
    if isinstance(out, TracedArray):
        if not out.row_major:
            raise ValueError("output array is not acceptable (it must be a C-Array)")
        out.recorder.by_layout(out)
    return deliver_whole(product, out, "no")


@handles(np.inner)
def inner(a, b, /):
    a, b = lift(a), lift(b)
    if not a.ndim or not b.ndim:
        return dot(a, b)
    result: Any = np.tensordot(a, b, (-1, -1))
    return result if result.ndim else fresh(result.node)


@handles(np.vdot)
def vdot(a, b, /):
    return _matmul(np.ravel(lift(a)), np.ravel(lift(b)))


@composite(np.linalg.norm)
def norm(x, ord=None, axis=None, keepdims=False):
    """The root of the sum of squares. NumPy's own source does the other norms."""
    if ord is not None:
        return NotImplemented
    x = x if x.dtype.kind == "f" else cast(x, np.float64)
    product = cast(x, np.float32) if axis is None and x.dtype == np.float16 else x  # np.dot rounds only the sum
    return np.sqrt(cast(np.sum(np.square(product), axis=axis, keepdims=keepdims), x.dtype))


def _slid(a: TracedArray, v: TracedArray, mode: str) -> Any:
    """The sums of ``a * v`` for each place of ``v`` along ``a``: the elements that both have."""
    if a.ndim != 1 or v.ndim != 1 or not v.size:
        raise ValueError("two vectors are needed, which are not empty")
    most = v.size - 1
    before, count = {"valid": (0, a.size - most), "same": (v.size // 2, a.size), "full": (most, a.size + most)}[mode]
    places = iota((count, v.size), 0) + iota((count, v.size), 1) - before
    both = np.where((places >= 0) & (places < a.size), a[np.clip(places, 0, a.size - 1)] * v, a.dtype.type(0))
    return np.sum(both, 1, both.dtype)


@composite(np.correlate)
def correlate(a, v, mode="valid"):
    a, v = lift(a), lift(v)
    return _slid(a, v, mode) if a.size >= v.size else _slid(v, a, mode)[::-1].copy()


@composite(np.convolve)
def convolve(a, v, mode="full"):
    a, v = (np.atleast_1d(lift(each)) for each in ((a, v) if np.size(a) >= np.size(v) else (v, a)))
    return _slid(a, v[::-1], mode)


# ---------------------------------------------------------------- einsum
@dataclass(frozen=True)
class Term:
    """An operand of an einsum, with a letter for each axis."""

    array: TracedArray
    letters: str

    def sides(self) -> dict[str, int]:
        return dict(zip(self.letters, self.array.shape, strict=True))


def _diagonal(term: Term) -> Term:
    """A repeated letter reads the diagonal: a gather along its axes, or a scatter when written."""
    array, letters = term.array, term.letters
    for letter in dict.fromkeys(letters):
        axes = tuple(i for i, each in enumerate(letters) if each == letter)
        require(len({array.shape[i] for i in axes}) == 1)
        if len(axes) > 1:
            array = gather_view(array, axes, [iota((array.shape[axes[0]],), 0)] * len(axes), "set")
            letters = letter + letters.replace(letter, "")
    return Term(array, letters)


def _sum_out(term: Term, kept: str) -> Term:
    """Sum over the letters that are not kept. Integers are not widened."""
    axes = tuple(i for i, letter in enumerate(term.letters) if letter not in kept)
    letters = "".join(each for each in term.letters if each in kept)
    return Term(np.sum(term.array, axes, term.array.dtype), letters) if axes else term


def _arrange(term: Term, letters: str) -> TracedArray:
    return permuted(term.array, [term.letters.index(letter) for letter in letters])


def _contract(a: Term, b: Term, needed: str) -> Term:
    """Two operands into one. A ``matmul`` sums over common letters that are not needed."""
    a, b = _sum_out(a, b.letters + needed), _sum_out(b, a.letters + needed)
    sides = a.sides() | {x: n for x, n in b.sides().items() if n != 1 or x not in a.letters}
    batch = "".join(c for c in a.letters if c in b.letters and c in needed)
    inner = "".join(c for c in a.letters if c in b.letters and c not in needed)
    rows = "".join(c for c in a.letters if c not in b.letters)
    columns = "".join(c for c in b.letters if c not in a.letters)
    letters = batch + rows + columns

    def matrix(term: Term, first: str, second: str) -> TracedArray:
        order = batch + first + second
        wide = broadcast(_arrange(term, order), [sides[c] for c in order])
        return reshaped(wide, [*wide.shape[:len(batch)], *(math.prod(sides[c] for c in group) for group in (first, second))])

    def spread(term: Term) -> TracedArray:
        own = term.sides()
        return reshaped(_arrange(term, "".join(c for c in letters if c in own)), [own.get(c, 1) for c in letters])

    if not inner:
        product = np.multiply(spread(a), spread(b))
        return Term(product if product.dtype.kind == "b" else product + 0, letters)  # NumPy adds it to zeros: -0.0 becomes 0.0
    product = record("matmul", matrix(a, rows, inner), matrix(b, inner, columns))
    return Term(reshaped(product, [sides[c] for c in letters]), letters)


@composite(np.einsum)
def einsum(*operands, out=None, dtype=None, optimize=False, order="K", casting="safe"):
    """Contract operands from left to right. NumPy's own parser reads the subscripts."""
    inputs, result, arrays = opened(opened(np.einsum).__globals__["_parse_einsum_input"])(operands)
    arrays = [lift(each) for each in arrays]
    terms = [_diagonal(Term(x, each)) for x, each in zip(arrays, inputs.split(","), strict=True)]
    # nothing to compute: NumPy returns a view, in any dtype
    if len(terms) == 1 and sorted(terms[0].letters) == sorted(result):
        return deliver(transpose_view(terms[0].array, [terms[0].letters.index(letter) for letter in result]), out, casting)
    target = common_dtype(*arrays, *([] if out is None else [out])) if dtype is None else np.dtype(dtype)
    if not all(np.can_cast(each.dtype, target, casting) for each in arrays):
        raise TypeError(f"cannot cast to {target} according to the rule {casting!r}")
    # NumPy rounds the product of all operands once
    wide = np.dtype(np.float32) if target == np.float16 and len(terms) > 2 else target
    terms = [Term(cast(term.array, wide), term.letters) for term in terms]
    while len(terms) > 1:
        first, second, *others = terms
        needed = result + "".join(each.letters for each in others)
        terms = [_contract(first, second, needed), *others]
    return deliver(cast(_arrange(_sum_out(terms[0], result), result), target), out, casting)
