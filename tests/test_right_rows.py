"""Arrays that a loop fills window by window: NumPy's values, and work that grows with the windows, not with windows times the array."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minisitch as ms
from minisitch.reference import evaluate
from minisitch.simplify import simplify
from minisitch.simplify.windows import WindowPart, Windows

pytestmark = pytest.mark.filterwarnings("ignore::minisitch.LoopWarning")


# ---------------------------------------------------------------- programs
def rows(x):
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        out[i] = np.sin(x[i]) * (i + 1)
    return out


def columns(x):
    out = np.empty_like(x)
    for j in range(x.shape[1]):
        out[:, j] = x[:, j] * j
    return out


def cells(x):
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + i * j
    return out


def added(x):
    out = np.ones_like(x)
    for i in range(x.shape[0]):
        out[i] += x[i] * i
    return out


def in_place(x):
    for i in range(x.shape[0]):
        x[i] *= i
    return x.sum(1)


def pairs(x):
    out = np.zeros_like(x)
    for i in range(0, x.shape[0] - 1, 2):
        out[i:i + 2] = x[i:i + 2] * i
    return out


def stacked(x):
    return np.stack([np.sin(row) for row in x])


def scan(x):
    out = np.zeros_like(x)
    out[0] = x[0]
    for i in range(1, x.shape[0]):
        out[i] = out[i - 1] * 0.5 + x[i]
    return out


def relaxed(x):
    """Gauss-Seidel: of each row all but the ends, from the row written before and the one to come."""
    x = x.copy()
    for i in range(1, x.shape[0] - 1):
        x[i, 1:-1] = (x[i - 1, 1:-1] + x[i + 1, 1:-1] + x[i, :-2] + x[i, 2:]) / 4
    return x


def windowed(x):
    x = x.copy()
    for i in range(1, x.shape[0] - 1):
        x[i] = x[i - 1] + x[i - 1:i + 2].max(0)
    return x


def table(x):
    """Dynamic programming: each cell from three neighbours."""
    n, m = x.shape
    out = np.zeros((n + 1, m + 1))
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            out[i, j] = np.minimum(np.minimum(out[i - 1, j], out[i, j - 1]), out[i - 1, j - 1]) + x[i - 1, j - 1]
    return out


def written_again(x):
    out = np.zeros_like(x)
    for _ in range(3):
        for i in range(x.shape[0]):
            out[i] = x[i] * 2 + out[(i + 1) % x.shape[0]]
    return out


def transposed(x):
    out = np.zeros((x.shape[1], x.shape[0]))
    for i in range(x.shape[0]):
        out.T[i] = x[i] + i
    return out


def read_transposed(x):
    out = np.zeros((x.shape[1], x.shape[0]))
    for i in range(1, x.shape[0]):
        out.T[i] = out.T[i - 1] + x[i]
    return out


def flat(x):
    out = np.zeros_like(x)
    for i in range(x.size):
        out.ravel()[i] = x.flat[i] * i
    return out


def both_ways(x):
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        out[i] = x[i] * 2
    for j in range(x.shape[1]):
        out[:, j] = out[:, j] + j
    return out


def ends(x):
    """One step of many time loops: a computed array, then its boundary."""
    for _ in range(3):
        x = x * 0.5 + 1
        x[0] = 0
        x[-1] = x[-2]
    return x


def kept(x):
    out, seen = np.zeros_like(x), []
    for i in range(x.shape[0]):
        seen.append(out.copy())
        out[i] = x[i]
    return out, seen[-1]


LINEAR = [rows, columns, cells, added, in_place, pairs, stacked, scan, relaxed, windowed, table, written_again, transposed, read_transposed, flat, both_ways]
NARROW = (cells, table, columns)  # whose count of windows grows with the columns


def example(function, n):
    return np.random.default_rng(n).random((n, n) if function in NARROW else (n, 6))


def work(function, n):
    """What the simplified program of ``n`` windows has: operands, elements, updates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = simplify(ms.trace(function, (example(function, n),)).graph)
    return (sum(len(node.args) for node in graph.nodes), sum(node.type.size for node in graph.nodes if node.op != "input"),
            sum(node.op == "update" for node in graph.nodes))


# ---------------------------------------------------------------- right
@pytest.mark.parametrize("function", [*LINEAR, ends, kept], ids=lambda f: f.__name__)
@pytest.mark.parametrize("strategy", ["none", "astitch"])
def test_the_values_are_numpys_bit_by_bit(function, strategy):
    x = example(function, 5)
    wanted, given = function(x.copy()), x.copy()
    got = ms.jit(function, strategy=strategy, target="python")(given)
    if function is stacked or function is rows:
        np.testing.assert_allclose(got, wanted, rtol=1e-15)
        return
    for a, b in zip(got if function is kept else [got], wanted if function is kept else [wanted], strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    if function is in_place:
        function(x)
        assert np.array_equal(given, x)


@pytest.mark.parametrize("function", [relaxed, table, both_ways, ends], ids=lambda f: f.__name__)
def test_compiled_and_stepped(function):
    x = example(function, 4)
    for target in ("cpu", "step"):
        assert np.array_equal(ms.jit(function, target=target)(x.copy()), function(x.copy()))


SIDES = (4, 5)


def windows_of(side):
    return st.tuples(st.integers(0, side - 1), st.integers(1, side)).map(lambda w: slice(w[0], min(side, w[0] + w[1])))


@given(st.lists(st.tuples(windows_of(SIDES[0]), windows_of(SIDES[1]), windows_of(SIDES[0]), windows_of(SIDES[1]),
                          st.sampled_from(["set", "read", "keep", "whole", "step"])), min_size=1, max_size=12), st.booleans())
def test_random_windows(steps, zeros):
    """Writes and reads of nested, overlapping and disjoint windows, old versions kept, under all that simplify does."""
    def program(x):
        out, seen = np.zeros_like(x) if zeros else x.copy(), []
        for number, (a, b, c, d, what) in enumerate(steps):
            if what == "read":
                seen.append(out[c, d] * 2)
            elif what == "keep":
                seen.append(out)
                out = out.copy()
            elif what == "whole":
                out = out + 1
            elif what == "step":
                out[::2, b] = number
                seen.append(out[::-1, ::2])
            else:
                source = out[c, d].sum(0).sum() if number % 2 else x[c, d].max()
                out[a, b] = out[a, b] * 3 + source + number
        return out, *seen

    x = np.arange(20.0).reshape(SIDES)
    graph = ms.trace(program, (x,)).graph
    simple = simplify(graph)
    assert simplify(simple) == simple
    for got, wanted in zip(evaluate(simple, [x]), program(x), strict=True):
        assert np.array_equal(got, wanted)


# ---------------------------------------------------------------- linear
def assert_linear(function):
    few, many = (8, 16) if function in (cells, table) else (20, 40)
    windows = (many / few) ** (2 if function in NARROW else 1)
    for less, more in zip(work(function, few)[:2], work(function, many)[:2], strict=True):
        assert more <= 1.25 * windows * less, f"{function.__name__}: {windows} times the windows, {more / less:.1f} times the work"


@pytest.mark.parametrize("function", LINEAR, ids=lambda f: f.__name__)
def test_work_grows_with_the_windows(function):
    assert_linear(function)
    if function is not relaxed:
        assert work(function, 16)[2] == 0, "an update is a copy of its array"


def test_a_time_loop_keeps_its_updates():
    """A window of most of the array, or two of its edges, is chosen element by element in the kernel that makes the array."""
    graph = simplify(ms.trace(ends, (np.ones((9, 6)),)).graph)
    assert [node.op for node in graph.nodes].count("concatenate") == 0


def test_simplify_takes_time_in_proportion(monkeypatch):
    """Counts and not clocks: what is looked at for each window does not grow with their number."""
    looked, original = [], Windows.read
    monkeypatch.setattr(Windows, "read", lambda self, first, stop: (found := original(self, first, stop), looked.append(len(found)))[0])
    for function in (added, scan, windowed):
        counts = []
        for n in (40, 80):
            looked.clear()
            work(function, n)
            counts.append(sum(looked))
        assert counts[1] <= 2.5 * counts[0]


def test_ranges():
    table = Windows(0, 9, 7)
    table.write(2, 5, WindowPart(8, 0, (8, (2,))))
    table.write(4, 6, WindowPart(9))
    assert [(r.first, r.stop, r.part.value, r.part.offset) for r in table.read(0, 9)] == [(0, 2, 7, 0), (2, 4, 8, 0), (4, 6, 9, 0), (6, 9, 7, 6)]
    assert table.read(2, 3)[0].part.written is None, "cut, so the write does not give it any more"
    table.write(0, 9, WindowPart(3))
    assert [(r.first, r.stop, r.part.value) for r in table.read(1, 8)] == [(1, 8, 3)]


# ---------------------------------------------------------------- rolled up
def reduced(x):
    out = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        out[i] = (x[i] * 2 + 1).max() - i
    return out


def squeezed(x):
    out = np.zeros((2, x.shape[0], 3))
    for i in range(x.shape[0]):
        out[:, i, :] = x[i].reshape(2, 3) + np.arange(3.0)
    return out


def flipped(x):
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        out[-1 - i] = x[i] / 3
    return out


def turned(x):
    out = np.zeros((x.shape[1], x.shape[0]))
    for i in range(x.shape[0]):
        out[:, i] = np.sqrt(x[i]) + x[0]
    return out


def projected(x):
    w = np.ones((6, 4))
    return np.stack([x[i] @ w for i in range(x.shape[0])])


def blocks(x):
    return np.concatenate([np.maximum(x[i:i + 3], 0.5) for i in range(0, x.shape[0] - 2, 3)], axis=0)


def averages(x):
    """Overlapping windows."""
    out = np.zeros((x.shape[0] - 2, x.shape[1]))
    for i in range(out.shape[0]):
        out[i] = x[i:i + 3].max(0) * 2
    return out


def convolved(x):
    w = np.arange(18.0).reshape(3, 3, 2)
    out = np.zeros((x.shape[0] - 2, x.shape[1] - 2, 2))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = (x[i:i + 3, j:j + 3, None] * w).max((0, 1))
    return out


def means(x):
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        e = x[i] - x[i].min()
        out[i] = e / e.max()
    return out


ROLLED = [rows, columns, cells, added, stacked, reduced, flipped, projected, blocks, means, averages, convolved, turned]


def operations(function, n):
    graph = simplify(ms.trace(function, (example(function, n),)).graph)
    return sum(node.op not in ("input", "constant", "iota") for node in graph.nodes)


@pytest.mark.parametrize("function", ROLLED, ids=lambda f: f.__name__)
def test_equal_bodies_are_one_operation_on_the_whole(function):
    assert abs(operations(function, 9) - operations(function, 15)) <= 1 and operations(function, 15) < 20


@pytest.mark.parametrize("function", [*ROLLED, pairs, squeezed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("strategy", ["none", "astitch"])
def test_rolled_values(function, strategy):
    x = example(function, 7)
    got, wanted = ms.jit(function, strategy=strategy, target="python")(x), function(x)
    assert got.dtype == wanted.dtype
    if function in (rows, stacked, projected):
        np.testing.assert_allclose(got, wanted, rtol=1e-15)
    else:
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, np.int64, np.bool_])
def test_constants_that_count(dtype):
    def counted(x):
        return np.stack([row * dtype(i) for i, row in enumerate(x)])

    def uneven(x):
        return np.stack([row + dtype(i * i) for i, row in enumerate(x)])

    def fractions(x):
        return np.stack([row + 0.1 * i for i, row in enumerate(x)])

    x = np.arange(24).reshape(6, 4).astype(dtype)
    for function in (counted, uneven, fractions):
        got, wanted = evaluate(simplify(ms.trace(function, (x,)).graph), [x])[0], function(x)
        assert got.dtype == wanted.dtype and np.array_equal(got, wanted)


def test_what_another_node_reads_is_not_computed_twice():
    def shared(x):
        parts = [np.exp(row) for row in x]
        return np.stack(parts), parts[3] * 2

    def result(x):
        parts = [np.exp(row) for row in x]
        return np.stack(parts), parts[0]

    for function in (shared, result):
        graph = simplify(ms.trace(function, (np.ones((5, 4)),)).graph)
        assert sum(node.type.size for node in graph.nodes if node.op == "exp") == 20
