"""Indexing: reads, writes and views, drawn at random, give what NumPy gives; so do chains of views."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources import executed
from trace_help import check

from minisitch.errors import TraceError
from minisitch.trace import trace


def draw_slice(draw: Any, n: int) -> slice:
    bound = st.none() | st.integers(-n - 1, n + 1)
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -2, 3])))


@st.composite
def basic_indices(draw: Any, shape: tuple[int, ...]) -> Any:
    """Ints and slices from the left, perhaps an Ellipsis and more of them from the right, and None anywhere."""
    def entry(n: int) -> Any:
        return draw(st.integers(-n, n - 1)) if draw(st.booleans()) else draw_slice(draw, n)
    left = draw(st.integers(0, len(shape)))
    entries = [entry(n) for n in shape[:left]]
    if draw(st.booleans()):
        right = draw(st.integers(left, len(shape)))
        entries += [Ellipsis, *(entry(n) for n in shape[right:])]
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return tuple(entries)


@st.composite
def advanced_indices(draw: Any, shape: tuple[int, ...]) -> Any:
    """At least one integer array among ints, slices, None and Ellipsis."""
    broadcastable = draw(st.sampled_from([[(), (2,), (1,)], [(3,)], [(2, 1), (3,), (1, 3)], [(1,), (2, 2)], [(0,), (1,)]]))
    entries: list[Any] = []
    for n in shape:
        kind = draw(st.sampled_from(["array", "array", "int", "slice"]))
        if kind == "array":
            index = st.integers(-n, n - 1)
            side = draw(st.sampled_from(broadcastable))
            entries.append(np.array(draw(st.lists(index, min_size=int(np.prod(side)), max_size=int(np.prod(side)))),
                                    draw(st.sampled_from(["i8", "i4"]))).reshape(side))
        else:
            entries.append(draw(st.integers(-n, n - 1)) if kind == "int" else draw_slice(draw, n))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(entries)))
        entries[at:draw(st.integers(at, len(entries)))] = [Ellipsis]
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return tuple(entries)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
BASIC = SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), basic_indices(shape)))
ADVANCED = SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), advanced_indices(shape)))


def numbered(shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


@given(BASIC | ADVANCED)
def test_reads(case: Any) -> None:
    shape, index = case
    check(lambda x: x[index], numbered(shape), exact=True)


@given(ADVANCED)
def test_reads_at_traced_positions(case: Any) -> None:
    shape, index = case
    arrays = [each for each in index if isinstance(each, np.ndarray)]

    def read(x, positions):
        waiting = iter(positions)
        return x[tuple(next(waiting) if isinstance(each, np.ndarray) else each for each in index)]
    check(read, numbered(shape), arrays, exact=True)


@given(BASIC | ADVANCED, st.sampled_from(["scalar", "same", "row", "column"]))
def test_writes(case: Any, kind: str) -> None:
    shape, index = case
    window = numbered(shape)[index].shape
    side = {"scalar": (), "same": window, "row": window[-1:], "column": (*window[:-1], 1) if window else ()}[kind]

    def write(x, value):
        x[index] = value
        return x.sum()
    check(write, numbered(shape), -1 - numbered(side), exact=True)


@given(BASIC | ADVANCED)
def test_augmented_assignment(case: Any) -> None:
    shape, index = case
    fancy = [each for each in index if isinstance(each, np.ndarray) and each.size]
    if any(len(np.unique(each)) < each.size for each in fancy):
        return  # which of several writes to one place wins is not defined by what we compare with

    def change(x):
        x[index] += 10
        return x
    check(change, numbered(shape), exact=True)


@given(BASIC)
def test_a_view_writes_through_and_sees_later_writes(case: Any) -> None:
    shape, index = case

    def program(x):
        y = x * 2
        window = y[index]
        before = y.sum()
        if window.ndim:
            window += 100
        y *= 3
        return y, window, before
    check(program, numbered(shape), exact=True)


MOVES = [lambda v: v.T, lambda v: v[::-1], lambda v: v[..., 1:], lambda v: v.reshape(-1), lambda v: v[None],
         lambda v: np.swapaxes(v, 0, -1), lambda v: v.reshape(len(v), v.size // max(len(v), 1)), lambda v: np.squeeze(v), lambda v: v[:2],
         lambda v: np.moveaxis(v, 0, -1), lambda v: v.ravel(), lambda v: np.flip(v), lambda v: np.expand_dims(v, -1),
         lambda v: v[:, 0] if v.ndim > 1 else v, lambda v: np.split(v, [1])[1], lambda v: np.atleast_2d(v), lambda v: v[...]]


@given(st.lists(st.sampled_from(MOVES), min_size=1, max_size=5), st.booleans())
def test_chains_of_views(moves: list, of_argument: bool) -> None:
    def program(x):
        base = x if of_argument else x + 0
        last = base
        views = []
        for move in moves:
            last = move(last) if last.ndim else last[None]
            views.append(last)
        for i, each in enumerate(views):
            if each.ndim:
                each += i + 1
            base -= 2
        return base, [each for each in views if each.ndim]
    check(program, numbered((3, 2, 4)), exact=True)


def test_a_read_of_one_element_keeps_its_value() -> None:
    def program(x):
        first, total = x[0, 0], x.sum()
        x[0, 0] = 50
        was, total_before = total, total
        total += 1
        return first, x[0, 0], was, total_before, total
    check(program, numbered((2, 3)), exact=True)


def test_a_row_at_a_traced_position_is_a_view() -> None:
    def program(x, i):
        row = x[i.argmax()]
        row += 1
        x[i.argmin()] *= 5
        return x, row
    check(program, numbered((4, 3)), np.array([0, 1, 3, 2]), exact=True)


def test_repeated_positions_add_up_only_with_add_at() -> None:
    def program(x, k, v):
        np.add.at(x, k, v)
        np.subtract.at(x, (k, 0), 1)
        x[[0, 0, 1], 1] = [5, 6, 7]
        np.add.at(x, slice(1, 3), 2)
        return x
    check(program, numbered((4, 3)), np.array([1, 1, -1]), numbered((3, 3)), exact=True)


MASKED = [
    "x[x > 5] = 0", "x[x > 5] += 1", "x[x > 5] *= x[x > 5]", "x[b] = y[b]", "x[b] = 2 * y[b] + 1", "x[rows] = 0",
    "x[rows] = [1, 2, 3]", "x[:, cols] = -1", "x[..., cols] = 7", "x[rows, 1] = 9", "x[rows, 1:] = y[0, 1:]", "x[1:][y[1:] > 4] = 3",
    "x[~b] = np.nan", "x[b] = 2 * x[b]", "x[rows] = y[rows]", "np.copyto(x, y, where=b)", "x[b] = x[b] ** 2 - x[b]", "x[b & (x > 3)] = 1",
    "x[b] = x.sum() * y[b]", "x[b] *= y[0, 0]", "x[..., cols] *= 2", "x[rows, 1:] += 5", "x[b] = np.maximum(y[0, 0], y[b])",
    "x[rows, None] = y[0]", "x[:, cols] = y[:, :1]", "x[b] = np.sqrt(y[b])", "x[0][x[0] > 1] = 4",
]


@pytest.mark.parametrize("line", MASKED)
def test_writes_under_a_mask(line: str) -> None:
    space: dict[str, Any] = {"np": np}
    executed(f"def program(x, y, b, rows, cols):\n    {line}\n    return x", space)
    x = numbered((4, 3))
    check(space["program"], x, x[::-1].copy(), x % 2 == 0, np.array([True, False, True, True]), np.array([True, False, True]))


def test_a_known_mask_selects_known_positions() -> None:
    mask = np.array([True, False, True])
    check(lambda x: x[mask], numbered((3, 4)), exact=True)
    check(lambda x: x[:, [True, False, True, True]], numbered((3, 4)), exact=True)


@pytest.mark.parametrize("index, message", [
    ((4,), "index 4 is out of bounds for axis 0 with size 3"), ((0, -5), "index -5 is out of bounds for axis 1"),
    (([0, 3],), "index 3 is out of bounds for axis 0"), ((0, 0, 0), "too many indices"), ((..., ...), "single ellipsis"),
    ((1.5,), "only integers"), ((np.array([0.5]),), "must be of integer"), (([0, 1], [0, 1, 2]), "could not be broadcast"),
])
def test_numpys_index_errors(index: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        numbered((3, 4))[index]
    with pytest.raises(IndexError, match=message):
        trace(lambda x: x[index], (numbered((3, 4)),))


def test_a_reshape_of_unknown_layout_is_read_but_not_written() -> None:
    def read(x):
        return np.array(x, order="F").reshape(-1)

    def write(x):
        flat = np.array(x, order="F").reshape(-1)
        flat += 1
        return flat
    check(read, numbered((3, 4)), exact=True)
    with pytest.raises(TraceError, match=r"test_trace_indexing.py:\d+: a reshape of a transposed result is written to"):
        trace(write, (numbered((3, 4)),))


def test_read_only_views() -> None:
    def write(x):
        np.broadcast_to(x, (2, 3))[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        trace(write, (numbered((3,)),))
