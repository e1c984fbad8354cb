"""Inside one kernel: AStitch's figures exactly, locality against brute force, demotion, and what is computed once."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from programs import batch_norm, layernorm_backward, softmax
from stitch_help import BASIC, CPU, TOY, V100, bodies, figure_7, one_kernel, program, stepped, traced

from minisitch import cuda_emit
from minisitch.fuse import Stitching
from minisitch.kernel.nests import parts
from minisitch.passes.registry import default_kernel
from minisitch.simplify import simplify
from minisitch.stitch.dominants import candidates, groups_of
from minisitch.stitch.index import linear, value_at
from minisitch.stitch.loops import stitch
from minisitch.stitch.plan import distance
from minisitch.stitch.pull import pull
from minisitch.stitch.subroots import column_of
from minisitch.strategies import cost
from minisitch.strategies.ask import fuse
from minisitch.testing import random_graph, random_inputs
from minisitch.testing.judge import judge
from minisitch.trace.parser import parse

# figure_7's ids by the paper's names
PR2, PR1, PR3, B1, A1, R1, D1, PW1, B2, D2, R2, B3, M1 = 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13


def stepped_kernel(kernel, inputs):
    """Outputs and traffic of a kernel, judged."""
    source = cuda_emit.emit(kernel)
    results, traffic = stepped(source, inputs)
    verdicts = judge(kernel.graph, inputs, results)
    assert all(v.ok for v in verdicts), f"{verdicts}\n{kernel}\n{source.text}"
    return results, traffic


def inputs_of(graph, seed=0):
    return random_inputs(graph, np.random.default_rng(seed))


# ---------------------------------------------------------------- Fig. 7 and Fig. 9
@pytest.mark.paper(42, 43)
def test_figure_9_groups():
    graph = figure_7(64, 128, 1024)
    assert candidates(graph) == (R1, PW1, R2, M1)
    first, second = groups_of(graph)
    assert first.members == (PR2, PR1, B1, A1, R1, D1, PW1)
    assert (first.dominant, first.subdominants) == (R1, (PW1,))
    assert second.members == (PR3, B2, D2, R2, B3, M1)
    assert (second.dominant, second.subdominants) == (R2, (M1,))


def test_groups_as_their_docstring_has_them():
    """A parameter that both read makes ``power`` a sub-dominant; with one of its own it is a group."""
    lines = ["f32[64,100] = input name='x'", "f32[64,1] = input name='p'", "f32[64,100] = input name='y'",
             "f32[64,100] = broadcast %1 shape=(64, 100)", "f32[64,100] = mul %0 %3", "f32[64,1] = sum %4 axes=(1,) keepdims=True",
             "f32[64,1] = power %5 %1", "f32[64,100] = broadcast %6 shape=(64, 100)", "f32[64,100] = div %2 %7",
             "f32[64,1] = sum %8 axes=(1,) keepdims=True", "return %9"]
    first, second = groups_of(program(*lines))
    assert (first.members, first.dominant, first.subdominants) == ((0, 1, 3, 4, 5, 6), 5, (6,))
    assert (second.members, second.dominant, second.subdominants) == ((2, 7, 8, 9), 9, ())
    apart = groups_of(program(*lines[:6], "f32[64,1] = power %5 %5", *lines[7:]))
    assert [(g.dominant, g.subdominants) for g in apart] == [(5, ()), (9, ()), (6, ())]


@pytest.mark.paper(43)
def test_figure_9_without_dominant_merging():
    """The ablation: B.2 is in two groups and would get two mappings."""
    graph = figure_7(64, 128, 1024)
    groups = groups_of(graph, merge=False)
    assert [g.dominant for g in groups] == [R1, PW1, R2, M1] and not any(g.subdominants for g in groups)
    assert [g.dominant for g in groups if B2 in g.members] == [R2, M1]
    assert len(stitch(graph, V100, Stitching(merge=False)).groups) == 4


@pytest.mark.paper(39)
def test_figure_7_schemes_and_barriers(golden):
    """R.1 Regional, Pw.1 and R.2 Global; one block barrier, two grid barriers; XLA needs four kernels."""
    graph = figure_7(64, 128, 1024)
    plan = stitch(graph, V100, Stitching(threads=1024))  # a column a thread, as in the paper
    assert {s.node: plan.scheme(s).name for s in plan.sub_roots} == {R1: "regional", PW1: "global", R2: "global", M1: "local"}
    kernel = default_kernel(plan)
    assert (kernel.grid_barriers, kernel.block_barriers) == (2, 1)
    assert [len(fuse(graph, name, V100).kernels) for name in BASIC[1:]] == [4, 1]
    golden("figure_7_stitch", str(plan))
    golden("figure_7_kernel", str(kernel))


@pytest.mark.paper(51, 52)
def test_figure_7_runs_on_the_stepper():
    graph = figure_7(8, 96, 16)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.5, 2, graph[i].type.shape).astype(np.float32) for i in graph.inputs]
    kernel = one_kernel(graph)
    _, traffic = stepped_kernel(kernel, inputs)
    assert traffic.grid_barriers == kernel.grid_barriers
    assert traffic.touched["x0"].read == 8 * 4 and traffic.touched["x2"].read == 8 * 16 * 4, "parameters are read once"


# ---------------------------------------------------------------- computed once
def line_of(source, word):
    return [n for n, line in enumerate(source.text.splitlines(), start=1) if word in line]


@pytest.mark.paper(50)
def test_a_heavy_value_that_is_broadcast_is_computed_once():
    """power<2>-broadcast<2,128>-add: 2 evaluations, not 256 (AStitch 2.2)."""
    graph = program("f32[2,1] = input name='x'", "f32[2,128] = input name='y'", "f32[2,1] = constant value=2.5",
                    "f32[2,1] = power %0 %2", "f32[2,128] = broadcast %3 shape=(2, 128)", "f32[2,128] = add %4 %1")
    inputs = [np.array([[2.0], [3.0]], np.float32), np.ones((2, 128), np.float32)]

    def evaluations(options):
        kernel = one_kernel(graph, **options)
        source = cuda_emit.emit(kernel)
        _, traffic = stepped(source, inputs)
        (line,) = line_of(source, "math.pow")
        load = traffic.by_line[line - 1]  # the operand's load stands before it, one a time
        return load.loads

    assert evaluations({}) == 2
    body = bodies(graph, "xla")
    assert len(body) == 2, "xla writes the power to memory instead: two kernels"


@pytest.mark.paper(51)
def test_exp_of_softmax_is_computed_once_and_without_keeping_twice():
    graph = traced(softmax, (4, 96))
    inputs = inputs_of(graph)

    def exps(**options):
        kernel = one_kernel(graph, **options)
        source = cuda_emit.emit(kernel)
        stepped_kernel(kernel, inputs)
        return len(line_of(source, "math.exp"))

    assert exps() == 1
    assert exps(keep=False) == 2, "the ablation: recomputed where it is read"


def statements_of(graph):
    """How many statements of each kind one kernel has; its results are judged."""
    kernel = one_kernel(graph)
    stepped_kernel(kernel, inputs_of(graph))
    return Counter(type(s).__name__ for segment in kernel.segments for p in segment.phases for s in (*parts(p).before, *parts(p).body))


@pytest.mark.paper(35)
def test_equal_values_and_indices_are_computed_once():
    """Ten doublings are ten additions, not the 1,023 of their tree; two gathers by one index load and bound it once."""
    doublings = program("f32[16] = input name='x'", *(f"f32[16] = add %{k} %{k}" for k in range(10)))
    additions = [0]
    for node in doublings.nodes[1:]:
        additions.append(1 + sum(additions[a] for a in node.args))
    assert additions[-1] == 1023 and statements_of(doublings)["Compute"] == 10
    gathers = program("f32[40] = input name='a'", "f32[40] = input name='b'", "i64[16] = input name='i'",
                      "f32[16] = gather %0 %2 axes=(0,)", "f32[16] = gather %1 %2 axes=(0,)", "f32[16] = mul %3 %4",
                      "f32[16] = add %5 %3")
    assert statements_of(gathers) == {"Load": 3, "Clamp": 1, "Compute": 2, "Store": 1}


@pytest.mark.paper(35)
def test_a_value_at_two_positions_is_two_values():
    """The twin: neighbours of a stencil are not equal, and each is computed where it is read."""
    windows = program("f32[16] = input name='x'", "f32[16] = abs %0", "f32[15] = slice %1 size=(15,) start=(0,) step=(1,)",
                      "f32[15] = slice %1 size=(15,) start=(1,) step=(1,)", "f32[15] = add %2 %3")
    assert statements_of(windows) == {"Load": 2, "Compute": 3, "Store": 1}


@pytest.mark.paper(43)
def test_merging_dominants_saves_reading():
    """With the row-reduce as dominant the column sums ride along its rows; without, the data is read again."""
    graph = simplify(traced(layernorm_backward, (32, 48), (32, 48), (48,)))
    inputs = inputs_of(graph)
    read = {}
    for merge in (True, False):
        kernel = one_kernel(graph, merge=merge)
        stepped_kernel(kernel, inputs)
        read[merge] = cost.traffic(kernel).read
    assert read[True] < read[False]


# ---------------------------------------------------------------- programs of the papers
def test_layernorm_backward_reads_its_inputs_once():
    rows, cols = 16, 64
    graph = simplify(traced(layernorm_backward, (rows, cols), (rows, cols), (cols,)))
    plan = stitch(graph, TOY)
    assert [s.role for s in plan.sub_roots].count("carry") == 2, "the gradients of scale and shift"
    kernel = default_kernel(plan)
    assert kernel.grid_barriers == 1
    _, traffic = stepped_kernel(kernel, inputs_of(graph))
    assert traffic.touched["x0"].read == traffic.touched["x1"].read == rows * cols * 4
    assert cost.traffic(kernel).read == (2 * rows * cols + cols + 2 * kernel.grid * cols) * 4, "and the partial rows"


@pytest.mark.parametrize(("cols", "carried"), [(1024, 2), (4096, 2), (6000, 1), (8192, 1), (12_000, 0)])
def test_column_sums_ride_along_only_where_they_fit(cols, carried):
    """They stay in shared memory as long as a block lives: what does not fit reads the data again, and never fails."""
    graph = simplify(traced(layernorm_backward, (256, cols), (256, cols), (cols,)))
    kernel = one_kernel(graph, V100)
    assert [s.role for s in kernel.plan.sub_roots].count("carry") == carried
    assert kernel.shared_bytes <= V100.shared_per_block
    assert [s.role for s in stitch(graph, CPU).sub_roots].count("carry") == 2, "a core has half a megabyte of L2"


def test_column_sums_stay_in_the_cache_of_a_core():
    graph = simplify(traced(layernorm_backward, (256, 70_000), (256, 70_000), (70_000,)))
    assert [s.role for s in stitch(graph, CPU).sub_roots].count("carry") == 1, "280 kB each"


def test_batch_norm_over_channels_is_one_kernel_without_a_grid_barrier():
    graph = simplify(traced(batch_norm, (4, 3, 5, 5), (3,), (3,)))
    assert len(fuse(graph, "astitch", TOY).kernels) == 1
    kernel = one_kernel(graph)
    assert kernel.grid_barriers == 0 and all(s.rows == 3 for s in kernel.segments), "a task is a channel"
    _, traffic = stepped_kernel(kernel, inputs_of(graph))
    assert traffic.touched["x0"].read == 300 * 4


@pytest.mark.paper(47)
def test_a_long_row_is_split_over_blocks():
    """<64,30000> on a V100: 128 blocks of 15,000 columns, partial results combined after grid barriers."""
    plan = stitch(traced(softmax, (64, 30_000)), V100)
    assert [(s.role, s.level) for s in plan.sub_roots] == [
        ("partial", 0), ("combine", 1), ("map", 1), ("partial", 1), ("combine", 2), ("map", 2)]
    kernel = default_kernel(plan)
    assert kernel.grid == 128 and kernel.grid_barriers == 2
    assert {(s.chunks, s.chunk) for s in kernel.segments} == {(2, 15_000)}
    assert all(plan.scheme(s).name == "global" for s in plan.sub_roots if s.role == "partial"), "a split reduce is always Global"


@pytest.mark.paper(47)
def test_a_split_softmax_steps():
    graph = traced(softmax, (2, 1500))
    kernel = one_kernel(graph, replace(TOY, max_block=32))
    assert {s.chunks for s in kernel.segments} == {2}
    stepped_kernel(kernel, inputs_of(graph))


def test_a_reduce_over_no_axis():
    """Nothing the frontend writes, but a graph may."""
    graph = program("f32[40] = input name='x'", "f32[40] = max %0 axes=() keepdims=True", "f32[40] = neg %1")
    stepped_kernel(one_kernel(graph), inputs_of(graph))


# ---------------------------------------------------------------- locality, passive and proactive
def local_reads(plan):
    """Each read of a sub-root by a sub-root at the same level: (reader, producer, position)."""
    for s in plan.sub_roots:
        if s.role == "combine":
            continue
        made = s.root
        found = pull(plan.graph, [made], frozenset(plan.final), own=[made] if s.role == "map" else [])
        for value, at in found.leaves:
            if value in plan.final:
                yield s, plan.final[value], at


def cells(position, shape, rows, cols, serial):
    """The offset at each (row, serial, col); -1 where the position lies outside, which only a guarded read has."""
    at = {"row": np.arange(rows)[:, None, None], "ser": np.arange(serial)[None, :, None], "col": np.arange(cols)[None, None, :]}
    found = np.broadcast_to(value_at(linear(position, shape), at), (rows, serial, cols))
    for index, n in zip(position, shape, strict=True):
        along = np.asarray(value_at(index, at))
        found = np.where((0 <= along) & (along < n), found, -1)
    return found


def check_locality(plan):
    """Produced covers required, task by task, by enumeration (AStitch B6); how many reads were local."""
    local = 0
    for reader, producer, at in local_reads(plan):
        assert producer.level <= reader.level
        if producer.level < reader.level:
            continue  # a grid barrier lies in between: anything may be read
        same_thread = producer.role == "map" and (producer.result_at, producer.extents) == (at, reader.extents)
        assert producer.space == reader.space and producer.phase + (not same_thread) <= reader.phase, f"%{reader.node} reads %{producer.node}"
        if any(v.startswith("at") for i in at for v in i.variables):
            continue
        shape = plan.graph[producer.node].type.shape
        space = reader.space
        _, serial, cols = reader.extents
        required = cells(at, shape, space.rows, cols, serial)
        made = cells(producer.result_at, shape, space.rows, producer.extents[2], 1)
        for row in range(space.rows):
            if space.kind == "column" or (space.chunks > 1 and producer.role == "map" and producer.extents[2] > 1):
                assert ((required[row] == made[row, 0][None, :]) | (required[row] < 0)).all(), "a column lives in one thread"
            else:
                assert {*required[row].ravel()} <= {-1, *made[row].ravel()}, f"row {row} of %{producer.node}"
        local += 1
    return local


@pytest.mark.paper(48)
@pytest.mark.parametrize("device", [TOY, CPU, V100], ids=lambda d: d.name)
def test_every_local_read_is_made_by_its_own_task(device):
    local = 0
    for seed in range(120):
        graph = random_graph(np.random.default_rng(seed), max_nodes=25, max_elements=600, allow_empty=False)
        for body in bodies(simplify(graph), "astitch", device):
            local += check_locality(stitch(body, device))
    assert local > 60


@pytest.mark.paper(48)
def test_the_locality_check_sees_a_wrong_plan():
    plan = stitch(traced(softmax, (8, 16)), TOY)
    assert check_locality(plan) >= 3
    wrong = [replace(s, partition=replace(s.partition, rows=(1,), cols=(0,))) if s.role == "map" else s for s in plan.sub_roots]
    with pytest.raises(AssertionError):
        check_locality(replace(plan, sub_roots=tuple(wrong)))
    for late in (lambda phase: 0, lambda phase: 9 - phase):
        with pytest.raises(AssertionError, match="reads"):
            check_locality(replace(plan, sub_roots=tuple(replace(s, phase=late(s.phase)) for s in plan.sub_roots)))


def test_pieces_read_a_kept_row_by_indices_of_their_own():
    """The pieces of one loop look the same row up, each at its own indices."""
    graph = parse("""
        %0: f32[2,123] = input name='a'
        %1: i64[30] = input name='at'
        %2: f32[2,123] = neg %0
        %3: f32[30,2] = gather %2 %1 axes=(1,)
        %4: f32[15,2] = slice %3 size=(15, 2) start=(0, 0) step=(1, 1)
        %5: f32[15,2] = exp %4
        %6: f32[15,2] = slice %3 size=(15, 2) start=(15, 0) step=(1, 1)
        %7: f32[30,2] = concatenate %5 %6 axis=0
        return %7""")
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((2, 123), np.float32), rng.integers(0, 123, 30)]
    for device in (CPU, TOY):
        plan = stitch(graph, device, Stitching(kept=(2,)))
        loop = plan.loops[-1]
        assert len(loop.sub_roots) == 2 and {r.value for r in loop.reads} == {2}
        looked_up = [at for value, at in loop.pulled.leaves if value == 2]
        assert len(looked_up) == 2 and all(distance(s, plan.final[2], at) == "block" for at in looked_up for s in loop.sub_roots)
    stepped_kernel(default_kernel(plan), inputs)


@pytest.mark.paper(48)
def test_column_of():
    """A row space: this row, any column. A column space: the very same column."""
    plan = stitch(traced(softmax, (8, 16)), TOY)
    maximum = plan.sub_roots[0]
    exp = next(s for s in plan.sub_roots if s.role == "map" and s.node not in plan.graph.outputs)
    row, col = exp.result_at
    assert column_of(maximum, (row, col * 0)) == col * 0
    assert column_of(maximum, (col * 0, col * 0)) is None, "row 0's value, wanted by every row"
    assert column_of(exp, (row, col)) == col and column_of(exp, (row, col * -1 + 15)) == col * -1 + 15
    assert column_of(exp, (row + 1, col)) is None


ADAPT = ("f32[8,4,16] = input name='x'", "f32[{0},{1}] = input name='z'", "f32[8] = sum %0 axes=(1, 2) keepdims=False")


@pytest.mark.paper(49)
def test_proactive_adaptation_turns_global_into_regional():
    """The add alone would run flat over all elements; it takes over the rows of the sum it reads."""
    graph = program(*(line.format(8, 64) for line in ADAPT), "f32[8,1] = reshape %2 shape=(8, 1)",
                    "f32[8,64] = broadcast %3 shape=(8, 64)", "f32[8,64] = add %1 %4")
    plan = stitch(graph, TOY)
    assert plan.grid_barriers == 0 and plan.scheme(plan.final[2]).name == "regional"
    assert any(d.rule == "proactive-adaptation" and d.at == (5,) for d in plan.decisions)
    stepped_kernel(default_kernel(plan), inputs_of(graph))
    turned = program(*(line.format(64, 8) for line in ADAPT), "f32[1,8] = reshape %2 shape=(1, 8)",
                     "f32[64,8] = broadcast %3 shape=(64, 8)", "f32[64,8] = add %1 %4")
    assert stitch(turned, TOY).grid_barriers == 0, "any axis may become the rows"


def test_no_adaptation_where_another_task_makes_the_value():
    """The twin: the sums are read in reverse order, so no mapping of the add is local."""
    graph = program(*(line.format(8, 64) for line in ADAPT), "f32[8] = slice %2 size=(8,) start=(7,) step=(-1,)",
                    "f32[8,1] = reshape %3 shape=(8, 1)", "f32[8,64] = broadcast %4 shape=(8, 64)", "f32[8,64] = add %1 %5")
    plan = stitch(graph, TOY)
    assert plan.grid_barriers == 1 and plan.scheme(plan.final[2]).name == "global"
    assert "other tasks make it" in plan.scheme(plan.final[2]).why
    stepped_kernel(default_kernel(plan), inputs_of(graph))


JOINED = ("f32[8,6] = input name='x'", "f32[8] = sum %0 axes=(1,) keepdims=False", "f32[8,1] = reshape %1 shape=(8, 1)",
          "f32[8,6] = broadcast %2 shape=(8, 6)", "f32[8,6] = sub %0 %3", "f32[{0}] = reshape %4 shape=({0})", "f32[{0}] = exp %5")


@pytest.mark.paper(49)
@pytest.mark.parametrize("shape", ["48,", "4,12", "16,3", "2,2,12", "8,6,1", "2,4,3,2"])
def test_adaptation_follows_a_reshape_that_joins_rows(shape):
    """Each task has its row of the joined axis, so the sum, and with it the flat result, are one segment."""
    graph = program(*(line.format(shape) for line in JOINED))
    plan = stitch(graph, TOY)
    assert plan.grid_barriers == 0 and plan.scheme(plan.final[1]).name == "regional" and plan.final[6].extents == (8, 1, 6)
    stepped_kernel(default_kernel(plan), inputs_of(graph))


@pytest.mark.parametrize("shape", ["3,16", "6,8"])
def test_no_adaptation_to_a_reshape_that_cuts_rows_elsewhere(shape):
    """The twin: a row of the sum begins within a row of the result, so other tasks make it."""
    graph = program(*(line.format(shape) for line in JOINED))
    plan = stitch(graph, TOY)
    assert plan.grid_barriers == 1 and plan.scheme(plan.final[1]).name == "global"
    stepped_kernel(default_kernel(plan), inputs_of(graph))


@pytest.mark.paper(49)
def test_what_has_been_adapted_is_adapted_to():
    """The flat result is read again, flat, in rows, and by its neighbours, some of which are of another row."""
    def program_of(x):
        flat = np.exp((x - x.sum(axis=1, keepdims=True)).reshape(48))
        return flat, np.tanh(flat), np.sqrt(flat.reshape(4, 12)), np.cos(flat.reshape(8, 6))
    graph = simplify(traced(program_of, (8, 6)))
    plan = stitch(graph, TOY)
    assert plan.grid_barriers == 0 and {s.extents for s in plan.sub_roots if s.role == "map"} == {(8, 1, 6)}
    stepped_kernel(default_kernel(plan), inputs_of(graph))
    apart = simplify(traced(lambda x: (program_of(x)[0], program_of(x)[0][1:] - program_of(x)[0][:-1], program_of(x)[0][6:]), (8, 6)))
    assert stitch(apart, TOY).grid_barriers == 1
    stepped_kernel(default_kernel(stitch(apart, TOY)), inputs_of(apart))


@pytest.mark.paper(49)
def test_adaptation_takes_any_column_of_a_row():
    """A softmax and the next columns of it: they are of the row that its task has made."""
    def program_of(x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        p = e / np.sum(e, axis=-1, keepdims=True)
        return np.exp(p[:, 1:]), p
    graph = traced(program_of, (9, 33))
    plan = stitch(graph, TOY)
    assert plan.grid_barriers == 0
    stepped_kernel(default_kernel(plan), inputs_of(graph))


# ---------------------------------------------------------------- demotion (AStitch B7)
def several_softmaxes(x, y, z):
    """Three rows are kept in shared memory, of three sizes."""
    def kept(v):
        e = np.exp(v - np.max(v, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)
    return kept(x), kept(y), kept(z)


def kept_rows(kernel):
    return [b.name for b in kernel.buffers if b.scope == "shared" and b.name.startswith("k")]


@pytest.mark.paper(53)
def test_shared_memory_is_demoted_row_by_row():
    graph = simplify(traced(several_softmaxes, (4, 40), (4, 48), (4, 56)))
    inputs = inputs_of(graph)
    full = one_kernel(graph, threads=64)
    assert len(kept_rows(full)) == 3
    expected, _ = stepped_kernel(full, inputs)
    counts = [3]
    for limit in range(full.shared_bytes - 4, 0, -16):
        plan = stitch(graph, replace(TOY, shared_per_block=limit), Stitching(threads=64))
        try:
            kernel = default_kernel(plan)
        except Exception as error:  # the warps' meeting places alone do not fit
            assert "shared memory" in str(error) and counts[-1] == 0
            break
        assert kernel.shared_bytes <= limit < kernel.wanted_bytes == full.shared_bytes == full.wanted_bytes
        if len(kept_rows(kernel)) != counts[-1]:
            counts.append(len(kept_rows(kernel)))
            results, _ = stepped_kernel(kernel, inputs)
            assert all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True)), "results unchanged"
            demoted = [d.at[0] for d in kernel.decisions if d.rule == "shared-memory"]
            assert len(demoted) == 3 - counts[-1]
            assert sum(b.scope == "scratch" and "demoted" in b.why for b in kernel.buffers) == len(demoted)
    assert counts == [3, 2, 1, 0], "one at a time"


def test_the_largest_row_goes_first():
    graph = simplify(traced(several_softmaxes, (4, 40), (4, 48), (4, 56)))
    full = one_kernel(graph, threads=64)
    sizes = {b.node: b.size for b in full.buffers if b.name in kept_rows(full)}
    kernel = default_kernel(stitch(graph, replace(TOY, shared_per_block=full.shared_bytes - 4), Stitching(threads=64)))
    assert [d.at[0] for d in kernel.decisions if d.rule == "shared-memory"] == [max(sizes, key=sizes.get)]


def test_a_plan_is_the_same_twice():
    for seed in range(20):
        graph = random_graph(np.random.default_rng(seed), max_nodes=20, max_elements=300, library=False)
        assert stitch(graph, TOY) == stitch(graph, TOY)
        assert str(one_kernel(graph)) == str(one_kernel(graph))
