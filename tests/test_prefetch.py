"""Gathered rows are asked for ahead: the right ones, at the right time, and only where it can help."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stitch_help import CPU, V100, lowered, one_kernel, run, traced

from minisitch import cpu_math
from minisitch.compile import compile_cpu, functions_of, inspect_assembly
from minisitch.cpu_emit import emit
from minisitch.errors import KernelError
from minisitch.index import variable
from minisitch.kernel import Load
from minisitch.prefetch import BYTES_AHEAD, MOST_AHEAD, MOST_BYTES
from minisitch.runtime.steps import requests
from minisitch.testing import check_graph, random_graph, random_inputs
from minisitch.verify import verify_kernel

NEAR = replace(CPU, shared_per_block=256)  # a core whose own caches hold next to nothing
NEVER_NEAR = replace(CPU, shared_per_block=0)
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.random((50, 24), np.float32)
IDS = RANDOM.integers(-50, 50, 37)
WEIGHTS = RANDOM.random((37, 24), np.float32)


def rows(table, ids):
    return table[ids] * table.dtype.type(2)


def products(table, ids, weights):
    return np.sum(table[ids] * weights, axis=1)


def bags(table, ids):
    """Each bag's rows added up."""
    return np.sum(table[ids], axis=1)


def joined(table, ids, other, others):
    return np.sum(np.concatenate([other[others], table[ids]], axis=1), axis=1)


def twice(table, ids, categories):
    """Rows of what is looked up in another array first."""
    return np.sum(table[categories[ids]], axis=1)


def prefetches(kernel):
    return [ahead for segment in kernel.segments for phase in segment.phases for ahead in phase.prefetches]


def decided(kernel):
    return [(d.verdict, d.why) for d in kernel.decisions if d.rule == "gathered-rows"]


class Strict(np.ndarray):
    """An array that has no elements counted from its end."""

    def __getitem__(self, at):
        assert isinstance(at, slice) or 0 <= at < len(self)
        return super().__getitem__(at)


def asked_for(function, *inputs):
    """What the kernel's text asks for while it runs as Python, by the number of the input: (first, count) in order."""
    kernel = one_kernel(traced(function, *inputs), NEAR)
    arrays = {b.name: np.zeros(b.size, b.dtype) for b in kernel.parameters}
    arrays |= {f"x{k}": np.ascontiguousarray(x).reshape(-1).view(Strict) for k, x in enumerate(inputs)}
    found = {}

    def record(array, first, count):
        number = next(k for k in range(len(inputs)) if array is arrays[f"x{k}"])
        found.setdefault(number, []).append((int(first), count))

    source = emit(kernel)
    names = {"np": np, **functions_of(cpu_math), "prefetch": record}
    exec(source.text, names)
    for launch in source.launches:
        names[launch.name](0, launch.tasks, *(arrays[b] for b in launch.buffers))
    assert np.allclose(arrays["y0"], np.ravel(function(*inputs)), rtol=1e-4)
    return found


def ahead_of(ids, length, turns=MOST_AHEAD):
    """Where the rows begin that are read so many turns later; behind the last turn the last row again."""
    ids = np.ravel(ids) % length
    return [int(ids[min(k + turns, len(ids) - 1)]) for k in range(len(ids))]


# ---------------------------------------------------------------- what is asked for, and when
def test_golden_kernel(golden):
    kernel = one_kernel(traced(products, TABLE, IDS, WEIGHTS), NEAR)
    golden("prefetch_kernel", f"{kernel}\n\n{emit(kernel).text}")
    assert len(prefetches(kernel)) == 1


@pytest.mark.parametrize(("function", "inputs"), [
    (rows, (TABLE, IDS)), (products, (TABLE, IDS, WEIGHTS)), (bags, (TABLE, RANDOM.integers(0, 50, (9, 40)))),
    (products, (TABLE, IDS.astype(np.int16), WEIGHTS)), (rows, (TABLE, RANDOM.integers(0, 50, (5, 7)))),
])
def test_in_each_turn_the_row_sixteen_turns_later_is_asked_for(function, inputs):
    assert asked_for(function, *inputs) == {0: [(24 * at, 24) for at in ahead_of(inputs[1], 50)]}


def test_rows_of_joined_tables_are_asked_for_by_their_own_columns():
    other, others = RANDOM.random((99, 10), np.float32), RANDOM.integers(0, 99, 37)
    assert asked_for(joined, TABLE, IDS, other, others) == {0: [(24 * at, 24) for at in ahead_of(IDS, 50)],
                                                            2: [(10 * at, 10) for at in ahead_of(others, 99)]}


def test_matrices_of_joined_tables_are_asked_for_by_their_own_rows():
    """The loop over a row's matrix runs over both tables': of the second one from its tenth turn on."""
    table, ids = RANDOM.random((50, 20, 24), np.float32), RANDOM.integers(0, 50, 37)
    other, others = RANDOM.random((99, 10, 24), np.float32), RANDOM.integers(0, 99, 37)
    found = asked_for(lambda *a: np.concatenate([a[2][a[3]], a[0][a[1]]], axis=1) * np.float32(2), table, ids, other, others)
    most = MOST_BYTES // 4
    assert found == {0: [(480 * at, most) for at in ahead_of(ids, 50, 2)], 2: [(240 * at, most) for at in ahead_of(others, 99, 4)]}


def test_short_bags_go_on_in_the_next_one():
    bag = RANDOM.integers(0, 50, (9, 20))
    assert asked_for(bags, TABLE, bag) == {0: [(24 * at, 24) for at in ahead_of(bag, 50)]}


def test_a_position_that_two_loops_take_is_made_in_order():
    """The second loop finds the index of the index in a register, and computes its position anew."""
    def both(a, b, ids, categories):
        at = categories[ids]
        return np.sum(a[at], axis=1, keepdims=True) * b[at]
    categories, ids = RANDOM.integers(0, 50, 80), RANDOM.integers(0, 80, 40)
    right = [(24 * at, 24) for at in ahead_of(categories[ids], 50)]
    assert asked_for(both, TABLE, TABLE[::-1], ids, categories) == {0: right, 1: right}


def test_one_table_at_two_positions_is_asked_for_twice():
    """Each loop calls its position ``at0``."""
    others = RANDOM.integers(0, 50, 37)
    found = asked_for(lambda table, a, b: np.sum(table[a], axis=1, keepdims=True) * table[b], TABLE, IDS, others)
    first, second = ([(24 * at, 24) for at in ahead_of(ids, 50)] for ids in (IDS, others))
    assert found == {0: [pair for both in zip(first, second, strict=True) for pair in both]}


@pytest.mark.parametrize("turned", [False, True])
def test_positions_of_two_loops_take_the_same_steps_each_for_its_own_turn(turned):
    ids, offsets, high = RANDOM.integers(0, 60, 37), RANDOM.integers(0, 30, 40), RANDOM.random((80, 24), np.float32)

    def function(high, low, ids, offsets):
        at = np.minimum(ids, 49)
        inner, outer = high[at[:, None] + offsets], low[at][:, None, :]
        return outer * inner if turned else inner * outer
    found = asked_for(function, high, TABLE, ids, offsets)
    at = np.minimum(ids, 49)
    assert found[1] == [(24 * k, 24) for k in ahead_of(at, 50)]
    assert [begin // 24 for begin, _ in found[0]] == [at[k] + offsets[min(j + MOST_AHEAD, 39)] for k in range(37) for j in range(40)]


def test_rows_whose_index_is_looked_up():
    categories = RANDOM.integers(0, 50, 80)
    ids = RANDOM.integers(0, 80, 40)
    assert asked_for(twice, TABLE, ids, categories) == {0: [(24 * at, 24) for at in ahead_of(categories[ids], 50)]}


@pytest.mark.parametrize("order", [lambda ids: ids[::-1], lambda ids: ids[3:36], lambda ids: ids[1:] // 2, lambda ids: -ids - 1])
def test_rows_in_another_order(order):
    """Of the last turns any row is asked for."""
    found = asked_for(lambda table, ids, weights: products(table, order(ids), weights[:len(order(IDS))]), TABLE, IDS, WEIGHTS)
    right = [(24 * at, 24) for at in ahead_of(order(IDS), 50)]
    assert found[0][:-MOST_AHEAD] == right[:-MOST_AHEAD] and len(found[0]) == len(right)


def test_of_a_long_row_the_beginning():
    table = np.ones((9, 3000), np.float32)
    found = asked_for(products, table, IDS % 9, np.ones((37, 3000), np.float32))[0]
    assert found == [(3000 * at, MOST_BYTES // 4) for at in ahead_of(IDS, 9, 2)]


def test_so_many_turns_that_some_kilobytes_are_under_way():
    """Two tables with one index array: the rows of one are longer, and asked for later."""
    def both(short, long, ids, weights):
        return np.sum(short[ids], axis=1) + np.sum(long[ids] * weights, axis=1)
    long, weights = RANDOM.random((50, 200), np.float32), RANDOM.random((37, 200), np.float32)
    assert BYTES_AHEAD // 800 == 5
    assert asked_for(both, TABLE, long, IDS, weights) == {0: [(24 * at, 24) for at in ahead_of(IDS, 50)],
                                                          1: [(200 * at, MOST_BYTES // 4) for at in ahead_of(IDS, 50, 5)]}


def test_rows_that_are_several_loops_are_asked_for_whole():
    """The columns are split, since another operand of theirs lies the other way round."""
    table, weights = RANDOM.random((50, 6, 8), np.float32), RANDOM.random((37, 8, 6), np.float32)
    found = asked_for(lambda table, ids, weights: table[ids] * np.swapaxes(weights, 1, 2), table, IDS, weights)
    assert {count for _, count in found[0]} == {48}


def test_two_loops_of_a_row_ask_once():
    def normal(table, ids):
        row = table[ids]
        return (row - np.mean(row, axis=1, keepdims=True)) * row
    kernel = one_kernel(traced(normal, TABLE, IDS), NEAR)
    assert sum(len(s.phases) for s in kernel.segments) > 1
    assert len(prefetches(kernel)) == 1


# ---------------------------------------------------------------- why not
def test_a_small_table_is_left_alone():
    kernel = one_kernel(traced(products, TABLE, IDS, WEIGHTS), CPU)
    assert not prefetches(kernel)
    assert decided(kernel) == [("leave", f"its 4800 B are no more than the {CPU.shared_per_block} that should stay in a core's own caches")]
    assert "prefetch(" not in emit(kernel).text
    large = one_kernel(traced(products, (CPU.shared_per_block // 96 + 1, 24), IDS, WEIGHTS), CPU)
    assert decided(large) == [("prefetch", f"the first 24 elements of its rows, {MOST_AHEAD} turns ahead")]


@pytest.mark.parametrize(("function", "inputs", "why"), [
    (products, (TABLE, IDS[:31], WEIGHTS[:31]), "another row is read 31 times on end, fewer than 32"),
    (lambda table, ids, weights: np.sum(table[ids[0]] * weights, axis=1), (TABLE, IDS[:1], WEIGHTS),
     "another row is read 1 time on end, fewer than 32"),
    (lambda table, scores: np.sum(table[np.argmax(scores, axis=1)], axis=1), (TABLE, RANDOM.random((37, 50), np.float32)),
     "its positions are results of the segment's own loops"),
    (lambda table, ids: np.sum(table[np.concatenate([ids, ids])], axis=1), (TABLE, IDS), "its positions are chosen among arrays"),
    (lambda table, x: np.sum(table[(np.exp(x) * 9).astype(np.int64)], axis=1), (TABLE, RANDOM.random(37)),
     "its positions take a heavy operation, exp"),
    (lambda table, ids, a: np.sum(table[(((((((ids + a) * 2 - a) * 3 + a) * 5 - a) * 7 + a) * 9 - a) * 11 + a) % 50], axis=1),
     (TABLE, IDS, IDS), "its positions take more than 12 statements"),
    (lambda table, ids, weights: np.sum(table[np.repeat(ids, 3)] * weights, axis=1), (TABLE, IDS, RANDOM.random((111, 24), np.float32)),
     "its positions are no fixed steps apart"),
])
def test_what_is_not_known_ahead_is_left(function, inputs, why):
    kernel = one_kernel(traced(function, *inputs), NEAR)
    assert not prefetches(kernel) and decided(kernel) == [("leave", why)]


@pytest.mark.parametrize(("axis", "said"), [(0, [("leave", "its positions change within a row")]), (1, [])])
def test_single_elements_are_no_rows(axis, said):
    """Every element has a position of its own. Along the columns of one row there is nothing to say."""
    kernel = one_kernel(traced(lambda table, ids: np.take_along_axis(table, ids, axis) + np.float32(1), TABLE,
                               RANDOM.integers(0, 24, (50, 24))), NEAR)
    assert not prefetches(kernel) and decided(kernel) == said


def test_a_gpu_asks_for_nothing():
    assert not prefetches(one_kernel(traced(products, TABLE, IDS, WEIGHTS), replace(V100, shared_per_block=256)))


# ---------------------------------------------------------------- values
def test_random_programs_have_the_reference_s_values():
    """Whatever they ask for ahead, and some do."""
    asked = 0
    for seed in range(150):
        graph = random_graph(np.random.default_rng(seed), max_nodes=14)
        inputs = random_inputs(graph, np.random.default_rng(seed + 1))
        check_graph(graph, inputs, lambda graph, inputs: run(graph, inputs, "astitch", "python", NEVER_NEAR), seed=seed + 1)
        asked += sum(len(prefetches(kernel)) for kernel in lowered(graph, "astitch", "cpu", NEVER_NEAR).kernels)
    assert asked > 5


@given(st.data())
def test_random_gathers(data):
    """Of tables and index arrays of any shape, by one product, a sum, or next to another table."""
    n, width = (data.draw(st.sampled_from([1, 2, 16, 31, 32, 33, 123])) for _ in range(2))
    length = data.draw(st.sampled_from([1, 2, 31, 123]))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    table, weights = random.random((length, width), np.float32), random.random((n, width), np.float32)
    ids, bag = random.integers(-length, length, n), random.integers(-length, length, (n, 33))
    function, inputs = data.draw(st.sampled_from([(rows, (table, ids)), (products, (table, ids, weights)), (bags, (table, bag)),
                                                  (joined, (table, ids, weights, np.arange(n)))]))
    graph = traced(function, *inputs)
    check_graph(graph, inputs, lambda graph, inputs: run(graph, inputs, "astitch", "python", NEAR))
    asked_for(function, *inputs)  # no index counts from an array's end
    if length > 1 and length * width > 64 and n >= 2 * MOST_AHEAD and width > 1:
        assert any(map(prefetches, lowered(graph, "astitch", "cpu", NEAR).kernels))


@pytest.mark.parametrize(("function", "inputs"), [(rows, (TABLE, IDS)), (products, (TABLE, IDS, WEIGHTS)),
                                                  (joined, (TABLE, IDS, WEIGHTS, IDS % 37))])
def test_machine_code_asks_a_line_at_a_time(function, inputs):
    """24 elements are 96 bytes: in two lines, or three. The values are the same, and what is asked for is in the machine code."""
    graph = traced(function, *inputs)
    got, = run(graph, inputs, "astitch", "cpu", NEAR)
    assert np.allclose(got, function(*inputs), rtol=1e-5)
    source, = lowered(graph, "astitch", "cpu", NEAR).sources
    request, = requests(source)
    text = inspect_assembly(compile_cpu(request.text, request.name, request.dtypes, short=request.short))
    assert len(re.findall(r"^\s*(?:prefetcht0|prfm\s+pldl1keep)", text, re.MULTILINE)) == 3 * len(prefetches(source.kernel)) > 0


# ---------------------------------------------------------------- the checker
def mutant(change):
    """The kernel of ``products`` with its prefetch changed."""
    kernel = one_kernel(traced(products, TABLE, IDS, WEIGHTS), NEAR)
    (segment,), (ahead,) = kernel.segments, prefetches(kernel)
    phases = tuple(replace(p, prefetches=(change(ahead),)) if p.prefetches else p for p in segment.phases)
    return replace(kernel, segments=(replace(segment, phases=phases),))


def changed(ahead, position, **fields):
    return replace(ahead, steps=tuple(replace(s, **fields) if k == position else s for k, s in enumerate(ahead.steps)))


@pytest.mark.parametrize(("change", "why"), [
    (lambda ahead: replace(ahead, steps=ahead.steps[:-1]), "where a prefetch's row of x0 lies is not computed for another turn"),
    (lambda ahead: replace(ahead, steps=ahead.steps[1:]), "what a prefetch needs of another turn is not computed for it"),
    (lambda ahead: changed(ahead, -1 % len(ahead.steps), source="v7"), "what a prefetch needs of another turn is not computed for it"),
    (lambda ahead: changed(ahead, 0, index=variable("col", 24)), "what a prefetch needs of another turn is not computed for it"),
    (lambda ahead: replace(ahead, index=ahead.index + variable("col", 24)), "where a prefetch's row of x0 lies is not computed"),
    (lambda ahead: changed(ahead, 0, clamp=False), "a prefetch reads what another turn may not find there"),
    (lambda ahead: changed(ahead, 0, buffer="y0"), "a prefetch reads what another turn may not find there"),
    (lambda ahead: replace(ahead, steps=(*ahead.steps, Load("v9", "p10", variable("row", 37), (), True, "float32", 0))),
     "a prefetch reads what another turn may not find there"),
])
def test_mutants_are_refused(change, why):
    verify_kernel(mutant(lambda ahead: ahead))
    with pytest.raises(KernelError, match=why):
        verify_kernel(mutant(change))
