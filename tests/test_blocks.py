"""Block composition: Fig. 3 of FusionStitching 2018 exactly, random legal schedules, refusals, and each kind of fold."""

import math
from dataclasses import replace

import numpy as np
import pytest
from nests import changed, without
from stitch_help import CPU, TOY, V100, program, stepped, traced

from minisitch import cpu_emit, cuda_emit
from minisitch.errors import KernelError, PlanError
from minisitch.fuse import make_plan
from minisitch.kernel.ir import Barrier, Compute, Load
from minisitch.kernel.nests import parts
from minisitch.kernel.verify import verify_kernel
from minisitch.lower import lower_program, program_of
from minisitch.passes.registry import default_kernel
from minisitch.runtime.assemble import assemble
from minisitch.simplify import simplify
from minisitch.stitch.blocks import BlockComposition, BlockCut, arrange, block_cuts_of
from minisitch.stitch.body import extract
from minisitch.stitch.index import linear, value_at
from minisitch.stitch.pull import pull
from minisitch.strategies import cost
from minisitch.strategies.ask import fuse
from minisitch.strategies.fs18.block_cuts import block_cut_for, cut_of, operand_cut
from minisitch.testing import random_graph, random_inputs
from minisitch.testing.judge import judge


# ---------------------------------------------------------------- helpers
def composed(graph, device, composition):
    return default_kernel(arrange(graph, device, composition))


def run_on(target, graph, composition, inputs, device):
    """Through the runtime: the graph as one kernel put together so; its outputs."""
    drawn = make_plan(graph, "blocks", [[n.id for n in graph.nodes if n.kind != "source" and n.op != "input"]], ())
    (pattern,) = drawn.patterns
    number = {whole: i for i, whole in enumerate(extract(graph, pattern).origin)}
    there = replace(composition, schedules=tuple((number[v], t) for v, t in composition.schedules),
                    shared=tuple(number[v] for v in composition.shared))
    plan = replace(drawn, patterns=(replace(pattern, composition=there),))
    stages = lower_program(program_of(graph), "blocks", target, device, decide=lambda *_: plan)
    return assemble(stages, target).outputs(list(inputs))


def check(graph, composition, device=TOY, seed=0):
    """Both texts of a kernel agree with the reference; the GPU's kernel and its traffic."""
    inputs = random_inputs(graph, np.random.default_rng(seed))
    kernel = composed(graph, device, composition)
    source = cuda_emit.emit(kernel)
    results, traffic = stepped(source, inputs, seed)
    verdicts = judge(graph, inputs, results)
    assert all(v.ok for v in verdicts), f"{verdicts}\n{kernel}\n{source.text}"
    text = cpu_emit.emit(composed(graph, CPU, composition)).text
    verdicts = judge(graph, inputs, run_on("python", graph, composition, inputs, CPU))
    assert all(v.ok for v in verdicts), f"{verdicts}\n{text}"
    return kernel, traffic


# ---------------------------------------------------------------- Fig. 3
MAX, EXP, SUM, DIVIDE, DOT = 2, 6, 7, 10, 16  # Reduce.1, Exponential.1, Reduce.2, Divide.1, Dot.1


def figure_3(batch=64, heads=8, rows=17, depth=128):
    """Softmax, then a batched product as a sum of products."""
    n = batch * heads * rows
    every = f"{batch},{heads},{rows},{rows},{depth}"
    return program(
        f"f32[{n},{rows}] = input name='arg1'",
        f"f32[{batch},{heads},{rows},{depth}] = input name='arg2'",
        f"f32[{n}] = max %0 axes=(1,) keepdims=False",
        f"f32[{n},1] = reshape %2 shape=({n}, 1)",
        f"f32[{n},{rows}] = broadcast %3 shape=({n}, {rows})",
        f"f32[{n},{rows}] = sub %0 %4",
        f"f32[{n},{rows}] = exp %5",
        f"f32[{n}] = sum %6 axes=(1,) keepdims=False",
        f"f32[{n},1] = reshape %7 shape=({n}, 1)",
        f"f32[{n},{rows}] = broadcast %8 shape=({n}, {rows})",
        f"f32[{n},{rows}] = div %6 %9",
        f"f32[{batch},{heads},{rows},{rows},1] = reshape %10 shape=({batch}, {heads}, {rows}, {rows}, 1)",
        f"f32[{every}] = broadcast %11 shape=({every})",
        f"f32[{batch},{heads},1,{rows},{depth}] = reshape %1 shape=({batch}, {heads}, 1, {rows}, {depth})",
        f"f32[{every}] = broadcast %13 shape=({every})",
        f"f32[{every}] = mul %12 %14",
        f"f32[{batch},{heads},{rows},{depth}] = sum %15 axes=(3,) keepdims=False",
        "return %16")


def figure_3_schedules(blocks=512, threads=256):
    rows = BlockCut(0, blocks)
    return BlockComposition(((MAX, rows), (EXP, rows), (SUM, rows), (DIVIDE, rows), (DOT, BlockCut(2, 1))),
                            (MAX, EXP, SUM, DIVIDE), threads)


@pytest.mark.paper(16, 17)
def test_figure_3_kernel(golden):
    """512 blocks; Reduce.2 takes the bytes of Reduce.1 and Divide those of Exponential: 1,224 bytes instead of 2,448."""
    kernel = composed(figure_3(), V100, figure_3_schedules())
    kept = {b.node: b for b in kernel.buffers if b.scope == "shared"}
    assert {node: b.size for node, b in kept.items()} == {MAX: 17, EXP: 289, SUM: 17, DIVIDE: 289}
    assert kernel.owners[kept[SUM].name] == kept[MAX].name and kernel.owners[kept[DIVIDE].name] == kept[EXP].name
    assert kernel.shared_bytes == 1224 and sum(4 * b.size for b in kept.values()) == 2448
    assert kernel.grid == 512 and kernel.grid_barriers == 0 and kernel.block_barriers == 4
    golden("figure_3_kernel", str(kernel))


def test_figure_3_on_a_core(golden):
    """A block is a task of a core, shared memory rows that share bytes alike; the product adds up a row of 128 sums."""
    kernel = composed(figure_3(), CPU, figure_3_schedules())
    assert kernel.shared_bytes == 1224 + 128 * 4
    golden("figure_3_cpu", cpu_emit.emit(kernel).text)


@pytest.mark.paper(13, 17)
def test_figure_3_runs():
    graph = figure_3(2, 2, 9, 6)
    kernel, traffic = check(graph, figure_3_schedules(4, 64))
    assert traffic.block_barriers_each == 4
    assert {name: (t.read, t.written) for name, t in traffic.touched.items()} == {
        "x0": (36 * 9 * 4, 0), "x1": (36 * 6 * 4, 0), "y0": (0, 36 * 6 * 4)}, "arguments are read once, nothing else travels"
    assert (cost.traffic(kernel).read, cost.traffic(kernel).written) == (36 * 15 * 4, 36 * 6 * 4)


def test_figure_3_compiled():
    graph = figure_3(batch=8, depth=64)
    inputs = random_inputs(graph, np.random.default_rng(0))
    results = run_on("cpu", graph, figure_3_schedules(64), inputs, CPU)
    assert all(v.ok for v in judge(graph, inputs, results))


def exps(graph, composition):
    """How often the exponential is evaluated: the turns of the loops it stands in."""
    kernel = composed(graph, TOY, composition)
    return sum(s.rows * p.cols * p.serial for s in kernel.segments for p in s.phases for stmt in parts(p).body
               if isinstance(stmt, Compute) and stmt.op == "exp")


@pytest.mark.paper(13)
def test_exp_is_evaluated_once_an_element_if_it_is_kept():
    graph, kept = figure_3(2, 2, 9, 6), figure_3_schedules(4, 64)
    elements = 36 * 9
    assert exps(graph, kept) == elements
    recomputed = replace(kept, schedules=tuple(s for s in kept.schedules if s[0] not in (EXP, DIVIDE)), shared=(MAX, SUM))
    check(graph, recomputed)
    assert exps(graph, recomputed) == elements + elements * 6, "again in each of the product's columns"


# ---------------------------------------------------------------- random programs, random legal schedules
def random_composition(graph, rng):
    """Cuts of the outputs with as many blocks each, passed down to operands; some element-wise values kept. None: no luck."""
    outputs = dict.fromkeys(graph.outputs)
    first, *others = [{cut_of(t, graph[o].type.shape) for t in block_cuts_of(graph[o].type.shape)} for o in outputs]
    many = sorted({c.blocks for c in first}.intersection(*({c.blocks for c in cuts} for cuts in others)))
    blocks = many[rng.integers(len(many))]
    asked = {o: [sorted(c for c in cuts if c.blocks == blocks)] for o, cuts in zip(outputs, (first, *others), strict=True)}
    asked = {o: {cuts[rng.integers(len(cuts))]} for o, (cuts,) in asked.items()}
    schedules, kept = {}, []
    for node in reversed(graph.nodes):
        if node.kind == "source" and node.id not in outputs:
            continue
        cuts = asked.get(node.id, set())
        alone = next(iter(cuts)) if len(cuts) == 1 else None
        block_cut = block_cut_for(alone, node.type.shape) if alone else None
        looped = node.kind == "reduce" or node.id in outputs
        if (looped and block_cut is None) or not cuts:
            return None
        read = any(True for _ in graph.users[node.id])
        if block_cut and (looped or (node.kind == "map" and rng.random() < 0.3)):
            schedules[node.id] = block_cut
            if read and (node.id not in outputs or rng.random() < 0.5):
                kept.append(node.id)
        for position, arg in enumerate(node.args):
            found = operand_cut(node, position, graph[arg].type.shape, alone) if alone else None
            asked.setdefault(arg, set()).add(found)
    return BlockComposition(tuple(sorted(schedules.items())), tuple(sorted(kept)), int(rng.choice((32, 64))))


def shapes_of(size, rng):
    """A shape of this many elements."""
    shape = []
    while size > 1 and len(shape) < 3:
        pieces = [k for k in range(2, size + 1) if size % k == 0]
        shape.append(pieces[rng.integers(len(pieces))])
        size //= shape[-1]
    return (*shape, size) if size > 1 or not shape else tuple(shape)


def blocky(x, y, rng):
    """Element-wise steps, reshapes, and reductions whose results are read all over their block."""
    for _ in range(rng.integers(2, 6)):
        step = rng.integers(7)
        axis = -1 if rng.random() < 0.7 else int(rng.integers(x.ndim))
        if step < 3:
            fold = (np.max, np.sum, np.min)[step](x, axis=axis, keepdims=True)
            x = (np.tanh(x - fold), x * fold, fold - x[..., ::-1])[rng.integers(3)]
        elif step == 3:
            x = x.reshape(shapes_of(x.size, rng))
        elif step == 4:
            x = x * y.reshape(x.shape)
        elif step == 5:
            x = np.swapaxes(x, -1, -2) if x.ndim > 1 and rng.random() < 0.5 else np.sqrt(np.abs(x))
        else:
            x = x - np.sum(y.reshape(x.shape), axis=axis, keepdims=True)
    return x if rng.random() < 0.5 else np.sum(x, axis=int(rng.integers(x.ndim)))


def blocky_graph(seed):
    rng = np.random.default_rng(seed)
    shape = shapes_of(int(rng.choice((48, 72, 128, 256))), rng)
    return simplify(traced(lambda x, y: blocky(x, y, np.random.default_rng(seed)), shape, shape))


def random_plans(seeds):
    """Programs of any kind, and programs that want blocks, with kernels put together by random legal schedules."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for graph in (simplify(random_graph(rng, max_nodes=24, max_elements=400, allow_empty=False)), blocky_graph(seed)):
            plan = fuse(graph, "astitch", TOY)
            for _ in range(4):
                patterns = [(p, random_composition(extract(graph, p).graph, rng) if p.kind == "kernel" else None)
                            for p in plan.patterns]
                yield replace(plan, patterns=tuple(replace(p, composition=c) if c else p for p, c in patterns))


def test_random_programs_under_random_schedules():
    """What the propagation rules accept is accepted here, and right on both targets."""
    composed_kernels, many, folds = 0, 0, set()
    for plan in random_plans(range(10)):
        graph = plan.graph
        inputs = random_inputs(graph, np.random.default_rng(0))
        for target, device in (("step", TOY), ("python", CPU)):
            stages = lower_program(program_of(graph), "fs18", target, device, decide=lambda *_, plan=plan: plan)
            verdicts = judge(graph, inputs, assemble(stages, target).outputs(list(inputs)))
            assert all(v.ok for v in verdicts), "\n".join([str(verdicts), str(plan), *(s.text for s in stages.sources)])
            segments = [s for k in stages.kernels for s in k.segments if s.space.kind == "block"]
            composed_kernels += len(segments)
            many += sum(s.rows > 1 and len(s.phases) > 1 for s in segments)
            folds |= {f.along for s in segments for p in s.phases for f in parts(p).folds}
    assert composed_kernels > 40 and many > 12 and folds >= {"row", "column"}


# ---------------------------------------------------------------- a block owns what it reads
def owned(plan):
    """By enumeration: every read of a value of the same kernel lies in the reader's own piece; how many."""
    reads = 0
    for s in plan.sub_roots:
        node, position = plan.graph[s.node], s.partition.position(s.domain)
        root = (s.node if s.role == "map" else node.args[0], position)
        for value, at in pull(plan.graph, [root], frozenset(plan.final), own=[root] if s.role == "map" else []).leaves:
            producer = plan.final.get(value)
            if producer is None or any(i.loaded for i in at):
                continue
            shape, blocks = plan.graph[value].type.shape, np.arange(s.space.rows)[:, None, None]
            _, serial, cols = s.extents
            loops = {"row": blocks, "col": np.arange(cols)[None, :, None], "ser": np.arange(serial)[None, None, :]}
            made = {"row": blocks, "col": np.arange(producer.extents[2])[None, :, None]}
            wanted, there = (np.broadcast_to(value_at(linear(p, shape), v), (s.space.rows, n, m)) for p, v, n, m in (
                (at, loops, cols, serial), (producer.result_at, made, producer.extents[2], 1)))
            for mine, needed in zip(there, wanted, strict=True):
                inside = needed[(needed >= 0) & (needed < math.prod(shape))]  # the rest is guarded
                assert np.isin(inside, mine).all(), f"%{s.node} reads %{value} of another block"
            reads += 1
    return reads


def cells_of(plan, sub_root):
    """For each block the elements it makes."""
    shape, cols = plan.graph[sub_root.node].type.shape, sub_root.extents[2]
    at = {"row": np.arange(sub_root.space.rows)[:, None], "col": np.arange(cols if "row" != sub_root.along else 1)[None, :]}
    return np.broadcast_to(value_at(linear(sub_root.result_at, shape), at), (sub_root.space.rows, at["col"].size))


def test_blocks_partition_every_value_and_read_their_own():
    reads = 0
    for plan in random_plans(range(25, 45)):
        for pattern in plan.kernels:
            if isinstance(pattern.composition, BlockComposition):
                arranged = arrange(extract(plan.graph, pattern).graph, TOY, pattern.composition)
                reads += owned(arranged)
                for s in arranged.sub_roots:
                    assert sorted(cells_of(arranged, s).ravel()) == list(range(arranged.graph[s.node].type.size))
    assert reads > 100


def test_a_block_cut_cuts_as_its_words_say():
    """``row``: a contiguous piece. ``column``: one piece of an axis, one index of each after it; numbered row-major."""
    graph = program("f32[4,6,5] = input name='x'", "f32[4,6,5] = exp %0")
    whole = np.arange(120).reshape(4, 6, 5)
    for block_cut, blocks in ((BlockCut(1, 3), whole.reshape(12, 10)), (BlockCut(0, 4), whole.reshape(4, 30)),
                           (BlockCut(1, 2, "column"), np.stack([whole[:, 3 * p:3 * p + 3, t].ravel() for p in (0, 1) for t in range(5)]))):
        plan = arrange(graph, TOY, BlockComposition(((1, block_cut),)))
        assert (cells_of(plan, plan.sub_roots[0]) == blocks).all()
        check(graph, plan.composition)


def test_the_ownership_check_sees_a_wrong_plan():
    plan = arrange(figure_3(2, 2, 9, 6), TOY, figure_3_schedules(4, 64))
    assert owned(plan) == 5
    elsewhere = [replace(s, result_at=tuple(i * -1 + (n - 1) for i, n in zip(s.result_at, plan.graph[s.node].type.shape, strict=True)))
                 if s.node == EXP else s for s in plan.sub_roots]
    with pytest.raises(AssertionError, match="%7 reads %6 of another block"):
        owned(replace(plan, sub_roots=tuple(elsewhere)))


# ---------------------------------------------------------------- refusals
ROWS = BlockCut(0, 4)
REFUSED = {
    "another number of blocks": ({EXP: BlockCut(0, 2)}, (MAX, EXP, SUM, DIVIDE), r"give the same number of blocks; here: 2 for %6, 4 for"),
    "columns of what rows need": ({EXP: BlockCut(1, 1, "column"), MAX: ROWS}, (MAX, EXP, SUM, DIVIDE), r"number of blocks"),
    "other blocks": ({SUM: BlockCut(0, 4), EXP: BlockCut(0, 4), DIVIDE: BlockCut(0, 4), DOT: BlockCut(3, 4, "column")},
                     (MAX, EXP, SUM, DIVIDE), r"%16 sum reads %10 div, but its block does not own all"),
    "not kept": ({}, (MAX, EXP, SUM), r"%16 sum reads %10 div in another loop, but the composition does not keep it"),
    "a reduce without a loop": ({SUM: None}, (MAX, EXP, DIVIDE), r"%7 sum has no schedule"),
    "an output without a loop": ({DOT: None}, (MAX, EXP, SUM, DIVIDE), r"%16 sum has no schedule"),
    "pieces of unequal size": ({EXP: BlockCut(0, 5)}, (), r"sword=5, kind='row'\) does not cut %6 exp of shape \(36, 9\)"),
    "an axis that is not there": ({EXP: BlockCut(2, 1)}, (), r"does not cut %6"),
    "a kind that is not there": ({EXP: BlockCut(0, 4, "diagonal")}, (), r"does not cut %6"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_value(name):
    changes, shared, message = REFUSED[name]
    graph = figure_3(2, 2, 9, 4)
    schedules = {**dict(figure_3_schedules(4).schedules), **changes}
    composition = BlockComposition(tuple((v, t) for v, t in sorted(schedules.items()) if t), shared)
    with pytest.raises(PlanError, match=message):
        arrange(graph, TOY, composition)


# ---------------------------------------------------------------- folds: a thread's, a warp's, a block's
def one_reduce(shape, axes, block_cut, then="square"):
    """A reduce and a reader of all its results: two loops."""
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    words = ",".join(map(str, shape))
    graph = program(f"f32[{words}] = input name='x'", f"f32[{','.join(map(str, kept))}] = sum %0 axes={axes} keepdims=True",
                    f"f32[{words}] = broadcast %1 shape={shape}", f"f32[{words}] = mul %0 %2")
    return graph, BlockComposition(((1, block_cut), (3, block_cut)), (1,), 64)


FOLDS = {  # shape, axes, block cut, along, threads that shuffle, block barriers
    "one result a block: all threads": ((6, 70), (1,), BlockCut(0, 6), "row", 32, 1),
    "long rows, several a block: a warp each": ((6, 70), (1,), BlockCut(0, 2), "warp", 32, 1),
    "short rows: a thread each": ((6, 7), (1,), BlockCut(0, 2), "column", 1, 1),
    "columns: a thread each": ((70, 6), (0,), BlockCut(1, 3, "column"), "column", 1, 1),
    "in the middle": ((3, 40, 5), (1,), BlockCut(0, 3), "column", 1, 1),
    "all of it": ((5, 9), (0, 1), BlockCut(0, 1), "row", 32, 1),
}


@pytest.mark.parametrize("name", FOLDS)
def test_who_folds(name):
    shape, axes, block_cut, along, lanes, barriers = FOLDS[name]
    graph, composition = one_reduce(shape, axes, block_cut)
    kernel, traffic = check(graph, composition)
    (fold,) = [f for s in kernel.segments for p in s.phases for f in parts(p).folds]
    assert (fold.along, fold.lanes) == (along, lanes)
    assert traffic.block_barriers_each == kernel.block_barriers == barriers
    assert traffic.touched["x0"].read == math.prod(shape) * 4


def test_a_core_folds_along_memory():
    """What lies together is folded one number at a time, the serial loop inside; else the columns are inside."""
    for shape, axes, inner in (((6, 70), (1,), "ser"), ((3, 40, 5), (1,), "c1")):
        graph, composition = one_reduce(shape, axes, BlockCut(0, 1))
        (phase,) = [p for s in composed(graph, CPU, composition).segments for p in s.phases if parts(p).folds]
        assert parts(phase).innermost[0].loops[-1].var == inner and bool(parts(phase).folds[0].buffer) == (inner != "ser")


# ---------------------------------------------------------------- memory
@pytest.mark.paper(16)
def test_a_barrier_less_is_refused():
    """Reduce.2 takes the bytes of Reduce.1: without the barrier somebody may still read the old one."""
    kernel = composed(figure_3(), V100, figure_3_schedules())
    assert verify_kernel(kernel) is kernel
    with pytest.raises(KernelError, match="k2 is read where other threads may still be writing it"):
        verify_kernel(without(kernel, lambda stmt: isinstance(stmt, Barrier)))


@pytest.mark.paper(16)
def test_a_takeover_while_another_still_reads_is_refused():
    """Divide takes the bytes of Exponential element by element: not if its threads read a neighbour's element."""
    kernel = composed(figure_3(), V100, figure_3_schedules())

    def backwards(x):
        return (replace(x, index=x.index * -1 + 288) if isinstance(x, Load) and x.buffer == "k6" else x,)
    with pytest.raises(KernelError, match="k10 takes over the bytes of k6"):
        verify_kernel(changed(kernel, backwards, p=3))


def test_what_does_not_fit_goes_through_global_memory():
    graph, composition = figure_3(2, 2, 9, 6), figure_3_schedules(4, 64)
    full = composed(graph, TOY, composition)
    assert full.shared_bytes == (81 + 9) * 4
    kernel, _ = check(graph, composition, replace(TOY, shared_per_block=100))
    assert kernel.shared_bytes <= 100 and any("demoted" in d.why for d in kernel.decisions)


def test_a_joined_axis_of_one_is_the_blocks_own():
    """A guarded read of an axis of one is a read at its one index, also through a reshape."""
    graph = program("f32[4,6] = input name='x'", "f32[4] = min %0 axes=(1,) keepdims=False", "f32[4,1] = reshape %1 shape=(4, 1)",
                    "f32[4,7] = concatenate %0 %2 axis=1")
    check(graph, BlockComposition(((1, BlockCut(0, 2)), (3, BlockCut(0, 2))), (1,), 32))


def test_an_output_that_is_kept_is_read_from_shared_memory():
    graph = program("f32[4,8] = input name='x'", "f32[4,8] = exp %0", "f32[4,1] = sum %1 axes=(1,) keepdims=True",
                    "f32[4,8] = broadcast %2 shape=(4, 8)", "f32[4,8] = div %1 %3", "return %1 %4")
    rows = BlockCut(0, 2)
    for shared, bytes_read in (((1, 2), 0), ((2,), 4 * 8 * 4 * 2)):
        _, traffic = check(graph, BlockComposition(((1, rows), (2, rows), (4, rows)), shared, 32))
        loads = sum(t.loads for t in traffic.by_line.values())
        assert loads * 4 - 128 == bytes_read, "beside the argument"


def test_single_numbers_and_sums_of_nothing():
    graph = program("f32[12] = input name='x'", "f32[] = sum %0 axes=(0,) keepdims=False")
    check(graph, BlockComposition(((1, BlockCut(0, 1)),), (), 32))
    graph = program("f32[6,0] = input name='x'", "f32[6] = sum %0 axes=(1,) keepdims=False", "f32[6] = exp %1")
    check(graph, BlockComposition(((1, BlockCut(0, 3)), (2, BlockCut(0, 3))), (1,), 32))
    empty = program("f32[0,8] = input name='x'", "f32[0,8] = exp %0")
    with pytest.raises(PlanError, match="no axis may be empty"):
        arrange(empty, TOY, BlockComposition(((1, BlockCut(0, 1)),)))


def test_a_reduce_over_no_axis():
    graph = program("f32[40] = input name='x'", "f32[40] = max %0 axes=() keepdims=True", "f32[40] = neg %1")
    check(graph, BlockComposition(((1, BlockCut(0, 4)), (2, BlockCut(0, 4))), (1,), 32))
