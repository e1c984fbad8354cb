"""A concatenation that a kernel only writes: each operand is stored where it belongs, and nothing is chosen."""


import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nests import found, without
from programs import softmax
from stitch_help import CPU, TOY, TOY32, V100, lowered, one_kernel, runner, stepped, traced

import minisitch as ms
from minisitch.errors import KernelError
from minisitch.graph import Graph
from minisitch.kernel.ir import Choose, Compute, Store, VectorMove, walk
from minisitch.kernel.nests import parts
from minisitch.kernel.verify import verify_kernel
from minisitch.runtime.assemble import assemble
from minisitch.simplify import simplify
from minisitch.stitch.index import value_at
from minisitch.stitch.loops import stitch
from minisitch.strategies import cost
from minisitch.testing import check_graph, random_inputs


def beside(x, y):
    """Rows of three and of five columns in rows of eight."""
    return np.concatenate([np.exp(x), y[:, ::2] * 2], axis=1)


def windows(x):
    """What a convolution multiplies: nine shifted slices side by side."""
    return np.concatenate([x[i:i + 6, j:j + 6] for i in range(3) for j in range(3)], axis=-1)


def times_written(kernel):
    """How often each cell of the outputs is stored to by a kernel that neither cuts rows nor folds: the loops, run."""
    count = {b.name: np.zeros(b.size, int) for b in kernel.buffers if b.scope == "output" and b.size}
    for segment in kernel.segments:
        for phase in segment.phases:
            for stmt, around in walk(phase.nest):
                if isinstance(stmt, Store | VectorMove) and stmt.buffer in count and getattr(stmt, "stores", True):
                    assert not getattr(stmt, "guard", ()), "no guard is needed where no row is cut"
                    first, last = next(((x.first.const, x.last) for x in around if x.var in ("col", "first")), (0, phase.cols))
                    row, col, ser = np.meshgrid(np.arange(segment.rows), np.arange(first, last), np.arange(phase.serial))
                    np.add.at(count[stmt.buffer], value_at(stmt.index, {"row": row, "col": col, "ser": ser}), 1)
    return count


# ---------------------------------------------------------------- one small kernel
@pytest.mark.parametrize(("name", "device"), [("toy", TOY), ("cpu", CPU)])
def test_two_pieces(name, device, golden):
    graph = traced(beside, (4, 3), (4, 10))
    golden(f"pieces_{name}", f"{stitch(graph, device)}\n\n{one_kernel(graph, device)}")


def test_nothing_is_chosen_unless_the_kernel_reads_it():
    """The refusal: a concatenation that is read where it is made is chosen from, element by element."""
    written, read = one_kernel(traced(windows, (8, 8, 4))), one_kernel(traced(lambda x: -windows(x), (8, 8, 4)))
    assert (len(found(written, Choose)), len(found(read, Choose))) == (0, 8)
    assert (len(found(written, Store)), len(found(read, Store))) == (9, 1)
    assert [d.rule for k in (written, read) for d in k.decisions if d.rule == "by-operands"] == ["by-operands"]
    assert len(written.segments) == len(written.segments[0].phases) == 1, "windows of one shape share a loop"
    assert written.segments[0].rows * written.segments[0].phases[0].cols == 6 * 6 * 4


def evaluations(kernel, op):
    """How often an operation is evaluated, all tasks together."""
    return sum(segment.rows * phase.cols * phase.serial for segment in kernel.segments for phase in segment.phases
               for s in parts(phase).body if isinstance(s, Compute) and s.op == op)


def test_the_evaluations_are_those_of_the_operands():
    """exp of three columns in a row of sixty-seven: 12 evaluations, and 268 if it were chosen for every column."""
    written = one_kernel(traced(lambda x, y: np.concatenate([np.exp(x), y], axis=1), (4, 3), (4, 64)))
    read = one_kernel(traced(lambda x, y: -np.concatenate([np.exp(x), y], axis=1), (4, 3), (4, 64)))
    assert (evaluations(written, "exp"), evaluations(read, "exp")) == (4 * 3, 4 * 67)


def test_a_stack_is_stored_in_pieces():
    kernel = one_kernel(traced(lambda x, y, z: np.stack([x, np.tanh(y), x + z], axis=1), (8, 5), (8, 5), (8, 5)))
    assert not found(kernel, Choose) and len(found(kernel, Store)) == 3
    assert all((n == 1).all() for n in times_written(kernel).values())


def test_a_concatenation_of_concatenations_reaches_its_leaves():
    def nested(x, y):
        inner = np.concatenate([x, y], axis=1)
        return np.concatenate([inner, inner * 2, np.concatenate([y, x], axis=1)], axis=0)

    graph = simplify(traced(nested, (3, 2), (3, 4)))
    plan = stitch(graph, TOY)
    assert [graph[s.operand].type.shape for s in plan.sub_roots] == [(3, 2), (3, 4), (3, 6), (3, 4), (3, 2)]
    assert len(found(one_kernel(graph), Choose)) == 1, "only inner * 2 chooses"


def test_a_row_reduce_and_what_reads_it_stay_in_one_block():
    """A softmax beside its input: the piece takes over the rows of the reduce, and no grid barrier is needed."""
    kernel = one_kernel(traced(lambda x, y: np.concatenate([softmax(x), y], axis=1), (64, 96), (64, 8)), V100)
    assert kernel.grid_barriers == 0 and not found(kernel, Choose)


def test_a_recurrent_step_needs_no_barrier():
    """A new state is returned, and stored beside its input for the next product: by the threads that make it."""
    graph = traced(lambda h, x: [h := np.tanh(h), np.concatenate([x, h], axis=1)], (256, 32), (256, 32))
    kernel = one_kernel(graph, V100)
    assert kernel.grid_barriers == 0 and not found(kernel, Choose)
    assert evaluations(kernel, "tanh") == 256 * 32


def around(x):
    """exp of each row beside those of the rows before and after it."""
    y = np.pad(np.exp(x), ((1, 1), (0, 0)))
    return np.concatenate([y[:-2], y[1:-1], y[2:]], axis=1)


@pytest.mark.parametrize(("operands", "pieces"), [(4, False), (8, False), (9, True), (16, True)])
def test_of_many_operands_a_reader_does_not_choose(operands, pieces):
    """What is returned and read in the same kernel: of more than eight operands, the reader waits and reads memory."""
    def both(x):
        pieces = [np.tanh(x * np.float32(k)) for k in range(operands // 2)]
        rest = [np.exp(x * np.float32(k)) for k in range(operands - operands // 2)]
        whole = np.concatenate([np.stack(pieces, 1), np.stack(rest, 1)], axis=1)
        return whole, -whole
    kernel = one_kernel(traced(both, (16, 8)))
    assert (kernel.grid_barriers, not found(kernel, Choose)) == ((1, True) if pieces else (0, False))


def test_column_sums_wait_for_all_pieces():
    """The gradients of a cell's gates are returned side by side and summed over the batch, behind the barrier that takes anyway."""
    def gates(x, y):
        found = np.concatenate([np.exp(x), np.tanh(y)], axis=1)
        return found, np.sum(found, axis=0)

    graph = traced(gates, (64, 32), (64, 16))
    kernel = one_kernel(graph)
    assert not found(kernel, Choose) and (evaluations(kernel, "exp"), evaluations(kernel, "tanh")) == (64 * 32, 64 * 16)
    rows = one_kernel(traced(lambda x, y: [z := np.concatenate([np.exp(x), y], axis=1), np.sum(z, axis=1)], (64, 32), (64, 16)))
    assert len(found(rows, Choose)) == 1, "who sums rows wants them from its own block"
    check_graph(graph, random_inputs(graph, np.random.default_rng(0)), runner("astitch", "step"))


# ---------------------------------------------------------------- mutants
WHOLE = one_kernel(traced(beside, (4, 3), (4, 10)), TOY)
NESTED = one_kernel(traced(beside, (4, 3), (4, 10)), CPU)


def without_store(kernel, number):
    """The kernel in which one phase computes but does not store."""
    return without(kernel, lambda stmt: isinstance(stmt, Store), p=number)


@pytest.mark.parametrize("kernel", [WHOLE, NESTED], ids=["toy", "cpu"])
@pytest.mark.parametrize(("number", "cells"), [(0, 20), (1, 12)])
def test_a_forgotten_piece_is_refused(kernel, number, cells):
    with pytest.raises(KernelError, match=f"writes {cells} of the 32 cells of its output y0"):
        verify_kernel(without_store(kernel, number))


# ---------------------------------------------------------------- random concatenations
KINDS = ("input", "computed", "slice", "reversed", "constant", "row", "nested", "softmax", "repeated", "shared")


@st.composite
def concatenations(draw) -> Graph:
    """A NumPy program whose outputs are concatenations, at times with an operand or a reader returned beside them."""
    dtype = np.dtype(draw(st.sampled_from(["float32", "float32", "float16", "float64", "int32", "bool"])))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    sizes = [draw(st.integers(0, 6)) for _ in kinds]
    stacked, beside = draw(st.booleans()), draw(st.sampled_from(["nothing", "operand", "reader", "twice", "columns"]))
    inputs = []

    def given_input(size):
        inputs.append(np.zeros((*shape[:axis], size, *shape[axis + 1:]), dtype))
        return len(inputs) - 1

    chosen = [(kind, given_input(2 * size if kind == "slice" else size)) for kind, size in zip(kinds, sizes, strict=True)]

    def function(*arrays):
        def operand(kind, number):
            x = arrays[number]
            if kind == "computed":
                return np.where(x > x.dtype.type(0), x, x * x)
            if kind == "slice":
                return x[(slice(None),) * axis + (slice(0, None, 2),)]
            if kind == "reversed":
                return np.flip(x, axis)
            if kind == "constant":
                return np.ones_like(x)
            if kind == "row":
                return np.max(x, axis=axis, keepdims=True) if x.size else x
            if kind == "nested":
                return np.concatenate([x, np.flip(x, -1)], axis=axis)
            if kind == "softmax" and dtype == np.float32 and x.size:
                return softmax(x)
            if kind == "repeated":
                return np.repeat(x, 2, axis=axis)
            return np.maximum(x, np.max(arrays[0])) if kind == "shared" and arrays[0].size else x
        pieces = [operand(*c) for c in chosen]
        whole = np.stack([pieces[0], pieces[0]], axis) if stacked else np.concatenate(pieces, axis=axis)
        more = {"nothing": [], "operand": pieces[:1], "reader": [np.maximum(whole, whole.dtype.type(1))], "twice": [whole]}
        more["columns"] = [np.max(whole * whole, axis=0)] if whole.shape[0] else []
        return [whole, *more[beside]]

    return simplify(traced(function, *inputs))


@given(concatenations(), st.integers(0, 2**16), st.sampled_from([TOY, TOY32]))
def test_random_concatenations_by_thread(graph, seed, device):
    """On the stepper, which refuses races: what it means, and what is moved is what the model says."""
    inputs = random_inputs(graph, np.random.default_rng(seed))
    stages = lowered(graph, "astitch", "step", device)
    check_graph(graph, inputs, lambda _, given: assemble(stages, "step").outputs(list(given)))
    for source, body in zip(stages.sources, stages.bodies, strict=True):
        _, moved = stepped(source, random_inputs(body.graph, np.random.default_rng(seed)), seed)
        told = cost.traffic(source.kernel)
        assert moved.bytes_written == told.written and moved.bytes_read <= told.read, source.kernel
        if not found(source.kernel, Choose):  # a guarded load may touch fewer cells than its loop could
            assert moved.bytes_read == told.read, source.kernel
        if all(s.chunks == 1 and not parts(p).folds for s in source.kernel.segments for p in s.phases):
            assert all((n == 1).all() for n in times_written(source.kernel).values()), source.kernel


@given(concatenations(), st.integers(0, 2**16), st.sampled_from(["none", "xla", "fs18", "fs20", "astitch"]))
def test_random_concatenations_on_a_core(graph, seed, strategy):
    check_graph(graph, random_inputs(graph, np.random.default_rng(seed)), runner(strategy, "python"))


# ---------------------------------------------------------------- many
def twice(x, times):
    """Its own length doubled, so often: 2 ** times pieces, were each stored by itself."""
    y = np.exp(x)
    for _ in range(times):
        y = np.concatenate([y, y])
    return y


def one_more_each_time(x, times):
    y = np.exp(x[:1])
    for k in range(1, times):
        y = np.concatenate([y, np.tanh(x[k:k + 1])])
    return y


@pytest.mark.parametrize("strategy", ["xla", "astitch"])
@pytest.mark.parametrize(("function", "x", "times"), [(twice, np.arange(3.0), 12), (one_more_each_time, np.arange(1300.0), 1300)])
def test_concatenations_in_a_chain_are_not_followed_one_in_the_other(function, x, times, strategy):
    """A value read through many chains of moves is in memory, so that pieces stay few; and a chain may be longer than Python's
    stack is deep."""
    plans = ms.lower(function, x, times, strategy=strategy, target="cpu", stop_after="stitch")
    assert sum(len(plan.sub_roots) for plan in plans) <= max(256, 2 * len(x)), "of 4096, or of 1300"
    few = min(times, 7)
    np.testing.assert_allclose(ms.jit(function, strategy=strategy, target="python")(x[:9], few), function(x[:9], few))


def test_an_operand_that_is_in_memory_is_one_choice():
    """Of an inner concatenation that has its own loop a reader takes one value, however many that loop chose among."""
    def joined_twice(*arrays):
        inner = np.concatenate(arrays[:-1])
        outer = np.concatenate([inner, arrays[-1]])
        return inner, outer, outer * 2
    kernel = one_kernel(traced(joined_twice, *[(4,)] * 10), CPU)
    assert kernel.grid_barriers == 1, "behind the inner one's nine pieces; none behind the outer one's two operands"
