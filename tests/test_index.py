"""Index maps against brute force: what ``operands_at`` says of an element is what NumPy does with it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stitch_help import program

from minisitch.reference import apply, evaluate
from minisitch.stitch.index import (
    ZERO,
    Digit,
    Index,
    Quotient,
    Remainder,
    Within,
    digits,
    footprint,
    linear,
    loaded,
    settle,
    show,
    unravel,
    value_at,
    variable,
)
from minisitch.stitch.pull import operands_at, pull
from minisitch.testing import arrays_for
from minisitch.testing.choices import from_hypothesis, from_numpy
from minisitch.testing.grower import Grower

MOVES = ("reshape", "transpose", "slice", "concatenate", "update", "gather")


def grow(choices, steps=5):
    """A program of moves and exact maps, small enough to enumerate; how NumPy rounds depends on strides."""
    grower = Grower(choices, ("float32", "float32", "int64"), allow_empty=False, max_elements=400)
    grower.begin()
    for _ in range(choices.integer(1, steps)):
        x = grower.newest() if grower.chance(70) else choices.pick(grower.computed())
        step = choices.pick((*MOVES, "map"))
        if step != "map":
            getattr(grower, f"step_{step}")(x)
        elif grower.type(x).dtype != "bool":
            grower.binary("maximum", grower.unary("neg", x), x)
    return grower.builder.finish(grower.outputs())


@st.composite
def moving(draw):
    return grow(from_hypothesis(draw))


def values_of(graph, inputs):
    """The reference's value of every node."""
    given_ = dict(zip(graph.inputs, inputs, strict=True))
    values = []
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            values.append(np.asarray(given_[node.id]) if node.op == "input" else apply(node, [values[a] for a in node.args]))
    return values


def holds(guard, at):
    """Where all conditions of a guard hold."""
    found = np.True_
    for c in guard:
        number = value_at(c.index, at)
        found = found & (number >= c.low) & (number < c.high)
    return found


def fetch(value, position, at, count):
    """Elements of an array at a position; anything where the position lies outside (a guard must say so)."""
    numbers = [np.broadcast_to(np.asarray(value_at(i, at)), (count,)) for i in position]
    inside = np.ones(count, bool)
    for number, n in zip(numbers, value.shape, strict=True):
        inside &= (number >= 0) & (number < n)
    clipped = tuple(np.clip(number, 0, n - 1) for number, n in zip(numbers, value.shape, strict=True))
    return np.broadcast_to(value[clipped] if clipped else value, (count,)), inside


def chosen(node, reads, found, at, count):
    """What a move gives from what was fetched for each of its operands."""
    if node.op == "gather":
        return found[0]
    result = None
    for read, value in zip(reads, found, strict=True):
        if read is not None:
            mask = np.broadcast_to(holds(read.guard, at), (count,))
            result = value if result is None else np.where(mask, value, result)
    return result


# ---------------------------------------------------------------- one move
def check_move(graph, node, values):
    shape = node.type.shape
    cells = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), int)
    count = math.prod(shape)
    at = {f"d{a}": cells[a] for a in range(len(shape))}
    position = tuple(variable(f"d{a}", n) for a, n in enumerate(shape))

    def load(value, where, size):
        name = f"at{len(at)}"
        number, inside = fetch(values[value], where, at, count)
        assert inside.all()
        at[name] = np.clip(number, 0, size - 1)
        return loaded(name, size)

    reads = operands_at(graph, node, position, load)
    assert len(reads) == len(node.args)
    found = []
    for arg, read in zip(node.args, reads, strict=True):
        if read is None:
            found.append(None)
            continue
        assert read.node == arg
        value, inside = fetch(values[arg], read.position, at, count)
        assert (inside | ~holds(read.guard, at)).all(), f"{node} reads outside %{arg} where its guard holds"
        found.append(value)
    if node.kind == "move":
        got = chosen(node, reads, found, at, count)
        assert np.array_equal(got, values[node.id].reshape(-1), equal_nan=values[node.id].dtype.kind == "f"), str(node)
    else:
        assert all(r.position == position and not r.guard for r in reads)


@given(st.data())
def test_a_move_reads_the_elements_that_numpy_moves(data):
    graph = data.draw(moving())
    values = values_of(graph, data.draw(arrays_for(graph)))
    for node in graph.nodes:
        if node.kind in ("move", "map") and node.type.size:
            check_move(graph, node, values)


GOLDEN = {  # what each move does to the position (d0, d1)
    "broadcast": (["f32[1,4] = input", "f32[3,4] = broadcast %0 shape=(3, 4)"], "[0, d1]"),
    "transpose": (["f32[4,3] = input", "f32[3,4] = transpose %0 perm=(1, 0)"], "[d1, d0]"),
    "slice": (["f32[9,9] = input", "f32[3,4] = slice %0 size=(3, 4) start=(8, 1) step=(-2, 1)"], "[-d0 * 2 + 8, d1 + 1]"),
    "reshape": (["f32[12] = input", "f32[3,4] = reshape %0 shape=(3, 4)"], "[d0 * 4 + d1]"),
    "reshape_split": (["f32[6,2] = input", "f32[3,4] = reshape %0 shape=(3, 4)"], "[d0 * 2 + (d1 // 2), d1 % 2]"),
    "concatenate": (["f32[1,4] = input", "f32[2,4] = input", "f32[3,4] = concatenate %0 %1 axis=0"],
                    "[0, d1] if 0 <= d0 < 1; [d0 - 1, d1] if 1 <= d0 < 3"),
    "update": (["f32[3,4] = input", "f32[1,2] = input", "f32[3,4] = update %0 %1 start=(1, 0) step=(1, 2)"],
               "[d0, d1]; [0, d1 // 2] if 0 <= d0 - 1 < 1 and 0 <= d1 % 2 < 1"),
    "update_all": (["f32[3,4] = input", "f32[3,4] = input", "f32[3,4] = update %0 %1 start=(0, 0) step=(1, 1)"],
                   "never; [d0, d1]"),
    "gather": (["f32[9,4] = input", "i64[3] = input", "f32[3,4] = gather %0 %1 axes=(0,)"], "[at0, d1]; [d0]"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_index_map_of(name):
    lines, expected = GOLDEN[name]
    graph = program(*lines)
    node = graph.nodes[-1]
    position = tuple(variable(f"d{a}", n) for a, n in enumerate(node.type.shape))
    texts = []
    for read in operands_at(graph, node, position, lambda *_: loaded("at0", 9)):
        if read is None:
            texts.append("never")
            continue
        sides = {f"d{a}": n for a, n in enumerate(node.type.shape)}
        guard = " and ".join(f"{c.low} <= {show(c.index, sides)} < {c.high}" for c in read.guard)
        texts.append("[" + ", ".join(show(i, sides) for i in read.position) + "]" + (f" if {guard}" if guard else ""))
    assert "; ".join(texts) == expected


# ---------------------------------------------------------------- chains of moves
def run_pull(pulled, graph, values, at, count, poison):
    """Evaluate all that was pulled, elements that no guard asks for poisoned, and hold each value to the graph's.

    Maps are looked up, not computed: how NumPy rounds depends on strides.
    """
    found, asked = {}, {}
    rng = np.random.default_rng(poison)
    for value, position in pulled.order:  # what gathers read, which guards may name before it is in order
        for name, (source, size) in pulled.indices.items():
            if source == (value, position):
                at[name] = np.clip(fetch(values[value], position, at, count)[0], 0, size - 1)
    for key in pulled.order:
        node, position = graph[key[0]], key[1]
        guard = pulled.guards[key]
        wanted = np.ones(count, bool) if guard is None else holds(guard, at) | np.zeros(count, bool)
        expected, inside = fetch(values[key[0]], position, at, count)
        assert (inside | ~wanted).all() or guard is None, f"%{key[0]} is wanted outside its shape"
        reads = pulled.reads[key] or ()
        for read in filter(None, reads):
            needed = wanted & inside & holds(read.guard, at)
            assert (asked[read.node, read.position] | ~needed).all(), f"%{key[0]} needs %{read.node} where no guard asks for it"
        value = expected
        if reads and node.kind == "move":
            value = chosen(node, reads, [None if r is None else found[r.node, r.position] for r in reads], at, count)
            same = (value == expected) | ((value != value) & (expected != expected))
            assert (same | ~(wanted & inside)).all(), f"%{key[0]} {node.op}"
        garbage = rng.integers(0, 2, count).astype(value.dtype) if value.dtype.kind != "f" else np.full(count, np.nan, value.dtype)
        found[key], asked[key] = np.where(wanted, value, garbage), wanted
    return found


def check_pull(graph, inputs, poison=0):
    values = values_of(graph, inputs)
    for output in graph.outputs:
        node = graph[output]
        count = node.type.size
        if not count:
            continue
        pulled = pull(graph, [(output, digits("col", node.type.shape))], frozenset(graph.inputs))
        with np.errstate(all="ignore"):
            found = run_pull(pulled, graph, values, {"col": np.arange(count)}, count, poison)
        got = found[output, digits("col", node.type.shape)]
        assert np.array_equal(got, values[output].reshape(-1), equal_nan=got.dtype.kind == "f"), str(graph)


@given(st.data())
def test_pulling_a_value_from_its_inputs_gives_what_the_graph_means(data):
    graph = data.draw(moving())
    check_pull(graph, data.draw(arrays_for(graph)), data.draw(st.integers(0, 3)))


@pytest.mark.parametrize("seed", range(0, 300, 50))
def test_pull_on_many_programs(seed):
    for number in range(seed, seed + 50):
        rng = np.random.default_rng(number)
        graph = grow(from_numpy(rng), 8)
        inputs = [rng.integers(-5, 6, graph[i].type.shape).astype(graph[i].type.dtype) for i in graph.inputs]
        check_pull(graph, inputs, number)


def test_each_value_is_pulled_once_a_position():
    graph = program("f32[8] = input", "f32[8] = exp %0", "f32[8] = add %1 %1", "f32[7] = slice %2 size=(7,) start=(0,) step=(1,)",
                    "f32[7] = slice %2 size=(7,) start=(1,) step=(1,)", "f32[7] = mul %3 %4")
    pulled = pull(graph, [(5, digits("col", (7,)))], frozenset())
    assert sorted(v for v, _ in pulled.order) == [0, 0, 1, 1, 2, 2, 3, 4, 5]  # two windows, each once
    assert [v for v, _ in pulled.leaves] == [0, 0]
    kept = pull(graph, [(5, digits("col", (7,)))], frozenset({2}))
    assert sorted(v for v, _ in kept.order) == [2, 2, 3, 4, 5]


def test_a_value_that_is_read_under_several_guards_has_none():
    pieces = [f"f32[1] = slice %0 size=(1,) start=({k},) step=(1,)" for k in range(6)]
    graph = program("f32[6] = input", *pieces, "f32[6] = concatenate %1 %2 %3 %4 %5 %6 axis=0")
    pulled = pull(graph, [(7, digits("col", (6,)))], frozenset())
    assert {key[0] for key in pulled.order if pulled.guards[key]} == {0, 1, 2, 3, 4, 5, 6}, "each piece under its own guard"
    check_pull(graph, [np.arange(6, dtype=np.float32)])
    wide = program("f32[2] = input", "f32[12] = concatenate %0 %0 %0 %0 %0 %0 axis=0")
    check_pull(wide, [np.arange(2, dtype=np.float32)])


# ---------------------------------------------------------------- arithmetic of digits
@st.composite
def indices(draw, depth=3):
    """An index in two loop variables, with the extents of both."""
    row, col = draw(st.sampled_from([6, 12, 30])), draw(st.sampled_from([8, 12, 64]))
    index = variable("row", row) * draw(st.integers(-3, 12)) + variable("col", col) * draw(st.integers(-2, 3)) + \
        draw(st.integers(-20, 20))
    for _ in range(draw(st.integers(0, depth))):
        quotient, remainder = index.divmod(draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16])))
        index = draw(st.sampled_from([quotient, remainder, quotient + remainder * 2, remainder * -3 + quotient]))
    return index, row, col


def grid(row, col):
    a, b = np.divmod(np.arange(row * col), col)
    return {"row": a, "col": b}


@given(indices(), st.sampled_from([1, 2, 3, 4, 5, 8, 12, 64]))
def test_divmod_is_pythons(drawn, by):
    index, row, col = drawn
    at = grid(row, col)
    number = np.broadcast_to(value_at(index, at), (row * col,))
    quotient, remainder = index.divmod(by)
    assert np.array_equal(np.broadcast_to(value_at(quotient, at), number.shape), number // by)
    assert np.array_equal(np.broadcast_to(value_at(remainder, at), number.shape), number % by)


@given(indices())
def test_bounds_hold(drawn):
    index, row, col = drawn
    number = np.broadcast_to(value_at(index, grid(row, col)), (row * col,))
    low, high = index.bounds
    assert low <= number.min() and number.max() <= high


@given(indices())
def test_text_evaluates_to_the_value(drawn):
    index, row, col = drawn
    at = grid(row, col)
    text = show(index, {"row": row, "col": col})
    got = eval(text, {}, dict(at))
    assert np.array_equal(np.broadcast_to(got, (row * col,)), np.broadcast_to(value_at(index, at), (row * col,))), text
    assert "--" not in text and "+ -" not in text


def test_text_of_negative_terms():
    high, low = variable("col", 8).divmod(2)
    assert show(high * -1 + 3) == "-(col // 2) + 3"
    assert show(high * -2) == "-(col // 2) * 2"
    assert show(low * -1, {"col": 8}) == "-(col % 2)"
    assert show(variable("col", 8) * -3 + 1) == "-col * 3 + 1"
    assert show(ZERO) == "0" and show(Index(-4)) == "-4"
    assert show(variable("col", 8), {"col": 8}, {"col": "k"}) == "k"
    opaque = Index(0, ((1, Quotient(variable("row", 5) + variable("col", 5), 3)), (-1, Remainder(variable("row", 5) * 3, 7))))
    for row, col in itertools.product(range(5), range(5)):
        assert eval(show(opaque, {"row": 5, "col": 5}), {"row": row, "col": col}) == (row + col) // 3 - row * 3 % 7


def test_a_remainder_is_printed_only_where_it_says_something():
    middle = Index(0, ((1, Digit("col", 4, 3)),))
    assert show(middle, {"col": 24}) == "col // 4 % 3" and show(middle, {"col": 12}) == "col // 4"
    assert show(variable("col", 12), {"col": 12}) == "col" and show(variable("col", 12), {"col": 24}) == "col % 12"


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.data())
def test_unravel_undoes_linear(shape, data):
    other = data.draw(st.permutations(shape))
    position = digits("col", shape)
    assert unravel(linear(position, shape), shape) == position
    flat = linear(position, shape)
    assert flat == variable("col", math.prod(shape)), "digits recombine"
    regrouped = unravel(flat, other)
    assert linear(regrouped, other) == flat
    at = {"col": np.arange(math.prod(shape))}
    for axis, number in enumerate(np.unravel_index(at["col"], other)):
        assert np.array_equal(np.broadcast_to(value_at(regrouped[axis], at), number.shape), number)


def test_heads_split_and_merged_leave_no_trace():
    whole = {"col": 5 * 768}
    hidden = digits("col", (5, 768))
    split = unravel(linear(hidden, (5, 768)), (5, 12, 64))
    assert [show(i, whole) for i in split] == ["col // 768", "col // 64 % 12", "col % 64"]
    assert unravel(linear(split, (5, 12, 64)), (5, 768)) == hidden
    swapped = linear([split[a] for a in (1, 0, 2)], (12, 5, 64))
    assert show(swapped, whole) == "(col // 768) * 64 + (col // 64 % 12) * 320 + (col % 64)"


def test_a_quotient_and_its_remainder_recombine():
    """Axes regrouped across their borders: neither side's digits split, and what was divided is put together again."""
    odd = variable("row", 5) * 64 + variable("col", 12) * 320 + 1
    for shape in ((5, 768), (7, 11, 50), (2, 3, 5, 131)):
        assert linear(unravel(odd, shape), shape) == odd
    half, rest = odd.divmod(768)
    assert half * 1536 + rest * 2 == odd * 2 and half * 768 + rest * 2 != odd


def test_an_axis_that_cannot_move_is_zero():
    assert variable("row", 1) == ZERO == loaded("at0", 1)
    assert digits("col", (1, 4, 1)) == (ZERO, variable("col", 4), ZERO)
    assert unravel(ZERO, ()) == () and linear((), ()) == ZERO
    assert unravel(variable("col", 6), (2, 0)) == (ZERO, ZERO)


def test_equal_means_equal():
    """Terms are sorted, added up and joined: two ways to one position are one value."""
    row, col = variable("row", 4), variable("col", 6)
    assert row * 6 + col == col + row * 3 + row * 3
    high, low = col.divmod(2)
    assert high * 2 + low == col
    assert (row * 5 + col) + row * -5 == col
    assert col * 0 == ZERO and col * 1 is col


def test_guards_settle():
    col = variable("col", 8)
    assert Within(col, 0, 8).verdict is True and Within(col, 8, 9).verdict is False and Within(col, 1, 8).verdict is None
    assert Within(col, 3, 3).verdict is False
    assert settle([Within(col, 0, 8), Within(col, 2, 5), Within(col, 2, 5)]) == (Within(col, 2, 5),)
    assert settle([Within(col, 0, 8), Within(col, 9, 12)]) is None


# ---------------------------------------------------------------- footprints
def cells(index):
    """Every value an index takes, its digits free of each other."""
    sides = sorted({a for _, a in index.terms}, key=repr)
    found = {index.const}
    for c, atom in index.terms:
        assert isinstance(atom, Digit) and atom in sides
        found = {f + c * k for f in found for k in range(atom.size)}
    return found


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4))
def test_footprint_of_dense_accesses_is_exact(drawn):
    dense = [linear((variable("row", rows), variable("col", cols)), (rows, cols)) + start for start, rows, cols in drawn]
    size = 40
    assert footprint(dense, size) == len(set().union(*map(cells, dense)))


@given(st.lists(st.tuples(st.integers(-3, 6), st.integers(-3, 5), st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=3))
def test_footprint_is_never_too_small(drawn):
    accesses = [variable("row", n) * a + variable("col", m) * 2 + start for start, a, n, m in drawn]
    size = 30
    assert footprint(accesses, size) >= len({c for i in accesses for c in cells(i) if 0 <= c < size})
    assert footprint(accesses, size) <= size


def test_footprints():
    row, col = variable("row", 4), variable("col", 8)
    assert footprint([row * 8 + col], 32) == 32
    assert footprint([row * 8 + col, variable("ser", 4) * 8 + col], 32) == 32, "the same cells under another name"
    assert footprint([row], 32) == 4
    assert footprint([col, col + 4], 32) == 12, "overlapping windows"
    assert footprint([col * 2], 32) == 8, "a strided access touches what it touches"
    assert footprint([ZERO, Index(31)], 32) == 2
    assert footprint([], 32) == 0


def test_evaluate_agrees_with_the_brute_force_of_this_file():
    graph = program("f32[2,3] = input", "f32[3,2] = transpose %0 perm=(1, 0)", "f32[6] = reshape %1 shape=(6,)")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(values_of(graph, [x])[-1], evaluate(graph, [x])[0])
