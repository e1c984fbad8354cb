"""Products: matmul, dot, einsum, tensordot, outer ... as transposes, reshapes and ``matmul``.

In:  NumPy calls. Out: one ``matmul`` a contraction, in the dtype NumPy multiplies in; no widening of integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from .array import (
    Array,
    broadcast,
    cast,
    common_dtype,
    constant,
    deliver,
    iota,
    lift,
    permuted,
    record,
    recorder_of,
    reshaped,
    traced,
)
from .recorder import refuse
from .reductions import composite, handles
from .ufuncs import WHOLE, resolve


def _lifted(*operands: Any) -> list[Array]:
    recorder = recorder_of(*operands)
    return [lift(each, recorder) for each in operands]


def _matmul(ufunc: np.ufunc, a: Any, b: Any, dtype: Any = None) -> Array:
    """A vector gets a second axis for the product and loses it again; the batch axes broadcast in the node."""
    a, b = _lifted(a, b)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"{ufunc.__name__}: Input operand {0 if a.ndim == 0 else 1} does not have enough dimensions")
    target = resolve(ufunc, [a, b], dtype)[0]
    left = cast(a if a.ndim > 1 else reshaped(a, (1, a.size)), target)
    right = cast(b if b.ndim > 1 else reshaped(b, (b.size, 1)), target)
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"{ufunc.__name__}: Input operand 1 has a mismatch in its core dimension 0 (size "
                         f"{right.shape[-2]} is different from {left.shape[-1]})")
    np.broadcast_shapes(left.shape[:-2], right.shape[:-2])  # raises NumPy's error
    result = record("matmul", left, right)
    shape = list(result.shape)
    if b.ndim == 1:
        del shape[-1]
    if a.ndim == 1:
        del shape[-1 if b.ndim == 1 else -2]
    return reshaped(result, shape)


WHOLE["matmul"] = lambda a, b, dtype=None: _matmul(np.matmul, a, b, dtype)


def _with_axis(x: Array, axis: int) -> Array:
    """A new axis of one, for inner use."""
    place = axis + x.ndim + 1
    return reshaped(x, (*x.shape[:place], 1, *x.shape[place:]))


def _vector_product(left_axis: int | None, right_axis: int | None, a: Any, b: Any, dtype: Any) -> Array:
    """``vecdot``, ``matvec``, ``vecmat``: a product whose vector operands get an axis that is dropped again."""
    a, b = _lifted(a, b)
    left = a if left_axis is None else _with_axis(a, left_axis)
    right = b if right_axis is None else _with_axis(b, right_axis)
    result = _matmul(np.matmul, left, right, dtype)
    shape = list(result.shape)
    if right_axis is not None:
        del shape[-1]
    if left_axis is not None:
        del shape[-1 if right_axis is not None else -2]
    return reshaped(result, shape)


WHOLE["vecdot"] = lambda a, b, dtype=None: _vector_product(-2, -1, a, b, dtype)
WHOLE["matvec"] = lambda a, b, dtype=None: _vector_product(None, -1, a, b, dtype)
WHOLE["vecmat"] = lambda a, b, dtype=None: _vector_product(-2, None, a, b, dtype)


# ---------------------------------------------------------------- dot and its kin
@composite(np.tensordot)
def tensordot(a, b, axes=2):
    a, b = _lifted(a, b)
    if isinstance(axes, int | np.integer):
        left, right = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    else:
        left, right = (normalize_axis_tuple(each, x.ndim) for each, x in zip(axes, (a, b), strict=True))
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ValueError("shape-mismatch for sum")
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    inner = math.prod(a.shape[i] for i in left)
    target = common_dtype(a, b)
    tall = reshaped(permuted(cast(a, target), (*rows, *left)), (math.prod(a.shape[i] for i in rows), inner))
    wide = reshaped(permuted(cast(b, target), (*right, *columns)), (inner, math.prod(b.shape[i] for i in columns)))
    return reshaped(record("matmul", tall, wide), [a.shape[i] for i in rows] + [b.shape[i] for i in columns])


@handles(np.dot)
def dot(a, b, out=None):
    a, b = _lifted(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return deliver(np.multiply(a, b), out)
    if b.ndim <= 2 and (a.ndim <= 2 or b.ndim == 1):
        return deliver(_matmul(np.matmul, a, b), out)
    return deliver(tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)])), out)


@handles(np.inner)
def inner(a, b, /):
    a, b = _lifted(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return np.multiply(a, b)
    return tensordot(a, b, ([a.ndim - 1], [b.ndim - 1]))


@handles(np.vdot)
def vdot(a, b, /):
    a, b = _lifted(a, b)
    return _matmul(np.matmul, reshaped(a, (a.size,)), reshaped(b, (b.size,)))


@handles(np.outer)
def outer(a, b, out=None):
    a, b = _lifted(a, b)
    return deliver(traced.multiply(reshaped(a, (a.size, 1)), reshaped(b, (1, b.size))), out)


@handles(np.kron)
def kron(a, b):
    """Every element of one times the whole of the other: the axes alternate."""
    a, b = _lifted(a, b)
    rank = max(a.ndim, b.ndim)
    tall, wide = ((1,) * (rank - x.ndim) + x.shape for x in (a, b))
    left = reshaped(a, [n for side in tall for n in (side, 1)])
    right = reshaped(b, [n for side in wide for n in (1, side)])
    return reshaped(traced.multiply(left, right), [m * n for m, n in zip(tall, wide, strict=True)])


handles(np.linalg.matmul)(lambda x1, x2, /: _matmul(np.matmul, x1, x2))
handles(np.linalg.outer)(lambda x1, x2, /: outer(x1, x2))
handles(np.linalg.tensordot)(lambda x1, x2, /, *, axes=2: tensordot(x1, x2, axes))


@handles(np.linalg.vecdot)
def vecdot(x1, x2, /, *, axis=-1):
    a, b = _lifted(x1, x2)
    return traced.vecdot(traced.moveaxis(a, axis, -1), traced.moveaxis(b, axis, -1))


# ---------------------------------------------------------------- einsum
@dataclass(frozen=True)
class Term:
    """An operand of an einsum and a letter for each of its axes."""

    array: Array
    letters: tuple[str, ...]

    def sides(self) -> dict[str, int]:
        return dict(zip(self.letters, self.array.shape, strict=True))


def _parse_einsum(subscripts: str, arrays: Sequence[Array]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Letters of each operand and of the result; an ellipsis becomes digits, aligned at the right."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms, widest = [], 0
    for term, array in zip(inputs.split(","), arrays, strict=True):
        hidden = array.ndim - len(term.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in term):
            raise ValueError(f"einstein sum subscripts string {term!r} does not fit an operand with {array.ndim} axes")
        widest = max(widest, hidden if "..." in term else 0)
        head, dots, tail = term.partition("...")
        terms.append((*head, *(f"{hidden - i}" for i in range(hidden) if dots), *tail))
    dims = tuple(f"{widest - i}" for i in range(widest))
    if not arrow:
        plain = inputs.replace(",", "").replace("...", "")
        return terms, (*dims, *sorted(c for c in set(plain) if plain.count(c) == 1))
    head, dots, tail = output.partition("...")
    letters = (*head, *(dims if dots else ()), *tail)
    unknown = set(letters) - {letter for term in terms for letter in term}
    if unknown:
        raise ValueError(f"einstein sum subscripts string included output subscript {min(unknown)!r} which never "
                         "appeared in an input")
    return terms, letters


def _diagonal(term: Term) -> Term:
    """A repeated letter reads the diagonal: one gather along both axes."""
    array, letters = term.array, term.letters
    for letter in dict.fromkeys(letters):
        axes = tuple(i for i, each in enumerate(letters) if each == letter)
        if len(axes) > 1:
            along = iota(array.recorder, (array.shape[axes[0]],), 0)
            array = record("gather", array, *[along] * len(axes), axes=axes, row_major=False)
            letters = (letter, *(each for each in letters if each != letter))
    return Term(array, letters)


def _sum_out(term: Term, kept: Sequence[str]) -> Term:
    """Fold away the letters nobody else needs; integers are not widened."""
    axes = tuple(i for i, letter in enumerate(term.letters) if letter not in kept)
    if not axes:
        return term
    op = "any" if term.array.dtype.kind == "b" else "sum"
    return Term(record(op, term.array, axes=axes, keepdims=False), tuple(each for each in term.letters if each in kept))


def _arrange(term: Term, letters: Sequence[str]) -> Array:
    return permuted(term.array, [term.letters.index(letter) for letter in letters])


def _contract(a: Term, b: Term, needed: Sequence[str]) -> Term:
    """Two operands into one: letters in both that nobody else needs are summed by a ``matmul``."""
    shared = set(a.letters) & set(b.letters)
    a = _sum_out(a, [*shared, *needed])
    b = _sum_out(b, [*shared, *needed])
    sides = a.sides() | {letter: n for letter, n in b.sides().items() if n != 1 or letter not in a.letters}
    batch = [letter for letter in a.letters if letter in shared and letter in needed]
    inner = [letter for letter in a.letters if letter in shared and letter not in needed]
    rows = [letter for letter in a.letters if letter not in shared]
    columns = [letter for letter in b.letters if letter not in shared]
    result = (*batch, *rows, *columns)

    def wide(term: Term, letters: Sequence[str]) -> Array:
        return broadcast(_arrange(term, letters), [sides[letter] for letter in letters])

    def size(letters: Sequence[str]) -> int:
        return math.prod(sides[letter] for letter in letters)

    if not inner:
        left = reshaped(wide(a, batch + rows), [sides[c] for c in batch + rows] + [1] * len(columns))
        right = reshaped(wide(b, batch + columns),
                         [sides[c] for c in batch] + [1] * len(rows) + [sides[c] for c in columns])
        return Term(traced.multiply(left, right), result)
    outer_sides = [sides[letter] for letter in batch]
    left = reshaped(wide(a, batch + rows + inner), [*outer_sides, size(rows), size(inner)])
    right = reshaped(wide(b, batch + inner + columns), [*outer_sides, size(inner), size(columns)])
    return Term(reshaped(record("matmul", left, right), [sides[letter] for letter in result]), result)


@composite(np.einsum)
def einsum(*operands, out=None, dtype=None, optimize=False, order="K", casting="safe"):
    subscripts, given = operands[0], list(operands[1:])
    if not isinstance(subscripts, str):
        subscripts, given = _from_lists(operands)
    arrays = _lifted(*given)
    letters, result = _parse_einsum(subscripts, arrays)
    target = common_dtype(*arrays) if dtype is None else np.dtype(dtype)
    terms = [_diagonal(Term(cast(x, target), each)) for x, each in zip(arrays, letters, strict=True)]
    _check_sides(terms)
    while len(terms) > 1:
        first, second, *others = terms
        needed = [*result, *(letter for each in others for letter in each.letters)]
        terms = [_contract(first, second, needed), *others]
    return deliver(_arrange(_sum_out(terms[0], result), result), out)


def _check_sides(terms: Sequence[Term]) -> None:
    found: dict[str, int] = {}
    for term in terms:
        for letter, side in term.sides().items():
            if found.get(letter, 1) not in (1, side) and side != 1:
                raise ValueError(f"einsum: label {letter!r} has sides {found[letter]} and {side}")
            found[letter] = max(found.get(letter, 1), side)


def _from_lists(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) in the other notation."""
    arrays, lists = list(operands[0::2]), list(operands[1::2])
    output = None
    if len(operands) % 2:
        output = arrays.pop()

    def text(labels: Sequence[Any]) -> str:
        return "".join("..." if each is Ellipsis else chr(ord("a") + each) for each in labels)

    joined = ",".join(map(text, lists))
    return joined if output is None else f"{joined}->{text(output)}", arrays


@handles(np.linalg.multi_dot)
def multi_dot(arrays, *, out=None):
    """From left to right, unless the right end is cheaper: a matrix chain that ends in a vector."""
    arrays = _lifted(*arrays)
    backwards = arrays[-1].ndim == 1 or arrays[-1].shape[-1] < arrays[0].shape[0]
    result = arrays.pop() if backwards else arrays.pop(0)
    while arrays:
        result = dot(arrays.pop(), result) if backwards else dot(result, arrays.pop(0))
    return deliver(result, out)


@composite(np.linalg.norm)
def norm(x, ord=None, axis=None, keepdims=False):
    """Vector norms of any order and the matrix norms without singular values."""
    x = x if x.dtype.kind == "f" else cast(x, np.float64)
    if axis is None and (ord is None or (ord in ("f", "fro") and x.ndim == 2) or (ord == 2 and x.ndim == 1)):
        return np.sqrt(np.sum(np.multiply(x, x), keepdims=keepdims))
    axes = normalize_axis_tuple(tuple(range(x.ndim)) if axis is None else axis, x.ndim)
    size = np.abs(x)
    if len(axes) == 2 and ord not in (None, "f", "fro"):
        if ord not in (1, -1, np.inf, -np.inf):
            raise refuse(f"np.linalg.norm with ord={ord!r}", "it needs singular values", "Use 'fro', 1 or np.inf")
        first, second = axes if abs(ord) == 1 else axes[::-1]
        sums = np.sum(size, axis=first, keepdims=True)
        best = (np.max if ord > 0 else np.min)(sums, axis=second, keepdims=True)
        return best if keepdims else np.squeeze(best, axes)
    if ord in (None, 2, "f", "fro"):
        return np.sqrt(np.sum(np.multiply(x, x), axis=axes, keepdims=keepdims))
    if ord in (np.inf, -np.inf):
        return (np.max if ord > 0 else np.min)(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return np.sum(cast(cast(x, bool), x.dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axes, keepdims=keepdims)
    return np.power(np.sum(np.power(size, ord), axis=axes, keepdims=keepdims), 1 / ord)


def identity_matrix(recorder: Any, rows: int, columns: int, k: int, dtype: Any) -> Array:
    """Ones on the ``k``-th diagonal."""
    i, j = iota(recorder, (rows, columns), 0), iota(recorder, (rows, columns), 1)
    on = record("eq", record("add", i, constant(recorder, k, (rows, columns), np.int64)) if k else i, j)
    return cast(on, dtype)
