"""Kitsune's pipelines on this CPU: tile by tile, in reports, and under auto."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from kitsune_help import A100, CENTRED, gated, layers, whole

import minisitch as ms
from minisitch.device import BUILT_IN, DEVICES
from minisitch.errors import MinisitchError
from minisitch.explain import report_on
from minisitch.fuse import extract, fuse, make_plan
from minisitch.lower import lower_plan, program_of
from minisitch.runtime import tiling
from minisitch.runtime.assemble import assemble
from minisitch.runtime.cpu import workers
from minisitch.runtime.this_machine import cpu_with, this_cpu
from minisitch.runtime.tiling import RANGES, _Folds
from minisitch.strategies.kitsune import tiles
from minisitch.strategies.kitsune.loop import loop_operations, loop_traffic
from minisitch.strategies.kitsune.models.simulate import dataflow
from minisitch.strategies.kitsune.pipeline import (
    design,
)
from minisitch.strategies.kitsune.predict import workload
from minisitch.strategies.kitsune.price import plan_with_pipelines_us
from minisitch.strategies.kitsune.tiles import (
    best_cut,
)
from minisitch.strategies.prices import Prices
from minisitch.testing import random_inputs
from minisitch.testing.judge import judge
from minisitch.trace.parser import parse

# ---------------------------------------------------------------- tiles on this CPU
SHORT_TILES = replace(this_cpu(), fewest_tile_rows=1, tile_share=3e-5)  # a small program has several, and a smaller last one


def two_layers(x, w, v):
    return np.tanh(x @ w) @ v + x.sum()


def heads(x, w):
    q = (x @ w).reshape(4, 33, 2, 8).transpose(0, 2, 1, 3)
    s = q @ q.transpose(0, 1, 3, 2)
    e = np.exp(s - s.max(-1, keepdims=True))
    return ((e / e.sum(-1, keepdims=True)) @ q).transpose(0, 2, 1, 3).reshape(4 * 33, 16) @ w.T


def statistics(x, w):
    h = np.tanh(x @ w)
    return h, h.sum(0), h.max(0) * 2


def hidden(x, w, v):
    return np.maximum(x @ w, 0) @ v + 1


def columns(x, w):
    return np.tanh(x.T @ w.T) @ w


PROGRAMS = {
    "two layers": (two_layers, ((33, 16), (16, 31), (31, 16))),
    "one row": (two_layers, ((1, 16), (16, 31), (31, 16))),
    "gated": (gated, ((123, 16), (16, 31), (16, 31))),
    "heads": (heads, ((132, 16), (16, 16))),
    "statistics": (statistics, ((33, 16), (16, 31))),
    "hidden": (hidden, ((1, 8), (8, 1000), (1000, 3))),
    "columns": (columns, ((16, 33), (31, 16))),
}


@pytest.mark.paper(59)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["python", "cpu"])
def test_a_pipeline_runs_tile_by_tile(name, target):
    fn, shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    plan = ms.lower(fn, *arrays, strategy="kitsune", target="cpu", device=SHORT_TILES, stop_after="fuse")
    assert plan.pipelines and all(p.composition.tiles > 1 for p in plan.pipelines), plan
    program = ms.lower(fn, *arrays, target="cpu", stop_after="trace")
    got = ms.jit(fn, strategy="kitsune", target=target, device=SHORT_TILES)(*arrays)
    verdicts = judge(program.graph, arrays, got if isinstance(got, tuple) else [got])
    assert all(v.ok for v in verdicts), verdicts


@pytest.mark.parametrize("held", [True, False], ids=["held", "again"])
def test_a_later_round_runs_tile_by_tile(held):
    """Two reductions over all tiles, one after the other, and a smaller last tile."""
    graph = ms.lower(one_query, "f32[1,8]", "f32[43,8]", "f32[43,3]", stop_after="simplify")
    (pattern,) = (plan := make_plan(graph, "kitsune", [], pipelines=[[n.id for n in graph.nodes if n.op != "input"]])).patterns
    body = extract(graph, pattern).graph
    found = design(body, SHORT_TILES, best_cut(body, rounds=True).reconverging if held else ())
    plan = replace(plan, patterns=(replace(pattern, composition=found),))
    stages = lower_plan(program_of(graph), plan, "python", SHORT_TILES)
    loop, inputs = stages.loops[0].loop, random_inputs(graph, np.random.default_rng(0))
    assert len(loop.rounds) == 3 and loop.rounds[0].rest and bool(found.held) == held
    assert (loop_traffic(loop).read > sum(x.nbytes for x in inputs)) and (loop_traffic(loop).written > 12) == held
    verdicts = judge(graph, inputs, assemble(stages, "python").outputs(inputs))
    assert all(v.ok for v in verdicts), verdicts
    text = str(report_on(stages, "one_query"))
    for each in loop.rounds:  # a plan's ids are those of the program above it
        for what, own in (("of a tile", each.tile), ("of a smaller last tile", each.rest), ("after all tiles", each.after)):
            assert own is None or f"# the program {what}, with ids of its own\n{own.graph}\n\n{own}" in text, what
    assert text.count("# the program after all tiles") == sum(each.after is not None for each in loop.rounds) > 0


@pytest.fixture
def small_gpu():
    """A GPU of three multiprocessors, and tiles for it: an MLP's pipeline is small enough to be stepped."""
    return replace(DEVICES["v100"], name="small", sms=3, queue_entry=256, least_queue_entry=128)


def mlp(x, w, v):
    return np.tanh(x @ w) @ v


def test_a_gpus_pipeline_is_one_kernel_with_blocks_for_each_stage(small_gpu):
    """The whole road on the stepper: chosen, designed, balanced, printed, run, and counted as one launch by ``compare``."""
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((12, 8), (8, 16), (16, 6)))
    stages = ms.explain(mlp, x, w, v, strategy="kitsune", target="step", device=small_gpu).stages
    (pattern,), (flow,) = stages.plan.patterns, stages.flows
    assert [s.blocks for s in pattern.composition.stages] == [2, 3, 1], pattern.composition
    (row,) = ms.compare(mlp, x, w, v, strategies=("kitsune",), target="step", device=small_gpu).rows
    assert (row.kernels, row.library_calls, row.grid_barriers) == (1, 0, 1) and row.max_error < 1e-5
    assert row.block_barriers == flow.source.text.count("cuda.syncthreads()") > 0
    assert (row.bytes_read, row.bytes_written) == (x.nbytes + w.nbytes + v.nbytes, mlp(x, w, v).nbytes)
    assert row.modelled_us == dataflow(*workload(flow.body.graph, pattern.composition, small_gpu), small_gpu).makespan_us > 0
    assert row.modelled_us == plan_with_pipelines_us(stages.plan, Prices(stages.graph, small_gpu)), "the strategies' own price"


def test_explain_shows_a_gpus_pipeline_down_to_its_text(small_gpu):
    """Stages with their blocks, queues, each array with its bytes, the text; what a session allocates is said under memory."""
    report = ms.explain(mlp, "f32[12,8]", "f32[8,16]", "f32[16,6]", strategy="kitsune", target="step", device=small_gpu)
    (flow,) = report.stages.flows
    source, text = flow.source, str(report)
    for part in (str(flow.body), str(source.pipeline), source.text.rstrip(), f"{source.grid} blocks of {source.block} threads",
                 "mlp_1: 3 blocks from 2 on", "queue q2_0: ", f"{source.name}: {flow.own_bytes} bytes of its own"):
        assert part in text, part
    assert all(f"{a.kind} {a.name}: " in text for a in source.arrays)
    assert flow.own_bytes > sum(q.depth * q.tile_bytes for q in source.pipeline.queues), "queues, and counters beside them"
    assert json.loads(report.json)["pipelines"][0]["text"]["cuda"] == source.text == report.source(0) == report.source(0, "cuda")
    assert [(step["kind"], step["name"]) for step in json.loads(report.json)["steps"]] == [("pipeline", source.name)]
    with pytest.raises(MinisitchError, match="kernel 1 does not exist; there are 1"):
        report.source(1)
    with pytest.raises(MinisitchError, match="no text for 'cpu'; take one of cuda"):
        report.source(0, "cpu")
    products = [n.id for n in report.stages.graph.nodes if n.op == "matmul"]
    assert "share step 0" in report.why(*products) and "library call" not in report.why(*products)
    assert "mlp_1 (simt), tile" in report.html, "the simulated timeline"
    assert "<b>1</b> pipelines" in report.html


def test_random_programs_run_as_pipelines():
    """The whole strategy on random layers, with tiles of one unit: as far as they are pipelines, and what is left of them."""
    seen, device = Counter(), replace(this_cpu(), fewest_tile_rows=1, tile_share=0.0)

    @given(graph=layers())
    def each(graph):
        inputs = random_inputs(graph, np.random.default_rng(0))
        program = ms.runtime.compile_graph(graph, "kitsune", "python", device)
        assert all(v.ok for v in judge(graph, inputs, program.outputs(inputs))), graph
        found = program.stages.plan.pipelines
        seen.update(["programs", *(s.role for p in found for s in p.composition.stages)] + ["with pipelines"] * bool(found))

    each()
    assert seen["with pipelines"] > seen["programs"] // 4 and seen["fan_in"], seen


def test_equal_results_however_many_threads(monkeypatch):
    """Parts of folds are added up in the same order by any number of threads, and where another caller has the pool.

    Other ranges of tiles for other threads gave other bits: a sum of 1,000 numbers was rounded elsewhere.
    """
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in ((1, 64), (64, 4000), (4000, 4))]
    (pattern,) = ms.lower(hidden, *arrays, strategy="kitsune", target="cpu", device=SHORT_TILES, stop_after="fuse").pipelines
    assert "fan_in" in [s.role for s in pattern.composition.stages] and pattern.composition.tiles > RANGES
    run = ms.jit(hidden, strategy="kitsune", target="cpu", device=SHORT_TILES)
    monkeypatch.setattr(tiling, "loop_operations", lambda loop: workers.WORTH_PYTHON_THREADS)  # many threads for a small program
    results = []
    for count in (1, 2, 3, 4):
        with workers.threads(count):
            results.append(run(*arrays))
    with workers._busy:
        results.append(run(*arrays))
    assert all(np.array_equal(results[0], r) for r in results[1:])


def test_ranges_are_joined_in_their_order_whoever_is_first():
    parts = [[np.array([x], np.float32)] for x in (1e8, -1e8, 1.0, 3.0)]
    for order in itertools.permutations(range(4)):
        folds = _Folds([np.add], 4)
        for number in order:
            folds.add(number, [parts[number][0].copy()])
        assert folds.total == [4.0], order


def test_blas_has_its_threads_back_after_callers_that_overlapped():
    """The number of BLAS's threads is the process's: what the second caller finds is the first one's limit. Of every library that
    is loaded and has threads of its own, which NumPy's OpenBLAS has."""
    shared = tiling._blas()[1]
    had = [library.num_threads for library in shared]
    tiling._set(shared, [2] * len(shared))
    came, left = threading.Event(), threading.Event()

    def first():
        with tiling._one_blas_thread:
            came.set()
            left.wait(10)

    thread = threading.Thread(target=first)
    try:
        thread.start()
        came.wait(10)
        with tiling._one_blas_thread:
            left.set()
            thread.join(10)
            assert all(library.num_threads == 1 for library in shared), "one is still inside"
        assert all(library.num_threads == 2 for library in shared) and not thread.is_alive()
    finally:
        tiling._set(shared, had)


def test_explain_and_compare_show_pipelines():
    x, w, v = (np.ones(s, np.float32) for s in ((132, 16), (16, 31), (31, 16)))
    report = ms.explain(hidden, x, w, v, strategy="kitsune", target="cpu", device=SHORT_TILES)
    assert "# a pipeline" in str(report) and "queue %" in str(report) and ">pipeline<" in report.html
    assert [step["name"] for step in json.loads(report.json)["steps"]] == ["pipeline"]
    assert report.source(0) == report.cards[0].sources["cpu"].text, "a tile's kernel"
    assert "; the whole is a tile's program in a pipeline, below" in str(report)
    compared = ms.compare(hidden, x, w, v, target="cpu", device=SHORT_TILES, seconds=0.01)
    row = compared["kitsune"]
    assert (row.kernels, row.library_calls) == (1, 0)
    faster = replace(compared, rows=tuple(replace(r, measured_us=1.0 if r is row else 2.0) for r in compared.rows))
    assert faster.best == "kitsune", "a whole call counts, not what is left beside its pipelines"
    stages = ms.runtime.lower_program(ms.lower(hidden, x, w, v, target="cpu", stop_after="trace"), "kitsune", "cpu", SHORT_TILES)
    moved = loop_traffic(stages.loops[0].loop)
    assert (moved.read, moved.written) == (x.nbytes + w.nbytes + v.nbytes, 132 * 16 * 4) == (row.bytes_read, row.bytes_written)
    assert row.modelled_us == plan_with_pipelines_us(stages.plan, Prices(stages.graph, stages.device))


def columns_of(x, w):
    h = np.tanh(x @ w)
    return h / np.sqrt((h * h).mean(0) + 1e-5)


def one_query(q, k, v):
    """Only the keys are many: attention cut along the rows of its softmax, in three rounds."""
    e = q @ k.T
    e = np.exp(e - e.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(("function", "shapes", "taken", "ways"), [
    (whole, ((8192, 1024), (1024, 512)), "hold", 3),
    (whole, ((65536, 16), (16, 1024)), "recompute", 2),
    (whole, ((65536, 4096), (4096, 1024)), "spill", 2),
    (columns_of, ((8192, 256), (256, 512)), "keep together", 3),
    (one_query, ((1, 128), (65536, 128), (65536, 128)), "hold", 5),
], ids=["held", "again", "spilled", "together", "one query"])
def test_what_reconverges_is_done_the_cheapest_way(function, shapes, taken, ways):
    """A small value stays in L2; a large one is made again where that is little work, else it goes through memory."""
    graph = ms.lower(function, *(f"f32{list(s)}" for s in shapes), stop_after="simplify")
    plan = fuse(graph, "kitsune", A100)
    if taken in ("recompute", "spill"):  # the same on a CPU
        ours = fuse(graph, "kitsune", cpu_with(BUILT_IN, cores=2))
        assert [d.verdict for d in ours.decisions if d.rule == "reconverging"] == [taken]
    said, = (d for d in plan.decisions if d.rule == "reconverging")
    prices = [float(us.replace(",", "")) for us in re.findall(r" (\S+) us", said.why)]
    assert said.verdict == taken and len(prices) == ways
    assert ("L2 has 41943040" in said.why) == (shapes[0][0] == 65536 and function is whole)
    (pattern, *others), names = plan.patterns, [way.rpartition(" us")[0].rpartition(" ")[0] for way in said.why.split("; ")]
    pipeline, cheapest = pattern.composition, names[prices.index(min(prices))]
    made = [n for s in pipeline.stages if not s.joins for n in s.nodes]
    assert bool(others) == (taken == "spill") == (cheapest == "memory")
    assert (len(made) > len(set(made))) == (taken == "recompute") == ("again" in cheapest)
    finals = [k for k, s in enumerate(pipeline.stages) if s.role == "final"]
    past = any(q.producer < k < max(q.consumers) and q.depth == pipeline.tiles for q in pipeline.queues for k in finals)
    assert past == (taken == "hold") == ("queue" in cheapest)


def test_the_work_of_a_pipeline_is_what_its_operations_do():
    """A product, tanh, a sum and a maximum that each take all of it in, 31 times two: arguments and constants are no work."""
    program = ms.lower(statistics, "f32[132,16]", "f32[16,31]", target="cpu", stop_after="trace")
    (tiled,) = ms.runtime.lower_program(program, "kitsune", "cpu", SHORT_TILES).loops
    assert loop_operations(tiled.loop) == 2 * 132 * 16 * 31 + 3 * 132 * 31 + 31


def test_a_pipeline_is_cut_off_at_what_waits_for_all_of_it():
    """Less the mean of everything: product and sum are a pipeline; what subtracts the sum reads the product from memory."""
    plan = fuse(parse(CENTRED), "kitsune", replace(this_cpu(), shared_per_sm=1 << 14))
    assert [(p.kind, p.outputs) for p in plan.patterns] == [("pipeline", (2, 3)), ("kernel", (5,))]
    assert "complete only after the last tile" in str([d.why for d in plan.decisions])
    (spilled,) = [d for d in plan.decisions if d.rule == "reconverging"]
    assert (spilled.at, spilled.verdict) == ((2,), "spill")


# ---------------------------------------------------------------- auto
def wide_layers(x, w, v):
    h = np.maximum(x @ w, 0)
    for _ in range(5):
        h = np.maximum(h @ v, 0)
    return h @ w.T


def test_kernels_beside_a_pipeline_may_share_a_launch():
    """A gather of the pipeline's result and the exponentials of something sorted: one call deep both, and small."""
    def program(x, w, v, places, a):
        return wide_layers(x, w, v)[places], np.exp(np.sort(a))

    types = ("f32[262144,32]", "f32[32,64]", "f32[64,64]", "i64[100]", "f32[100]")
    plan = ms.lower(program, *types, target="cpu", device=cpu_with(BUILT_IN, cores=2), stop_after="fuse")
    assert len(plan.pipelines) == 1 and len(plan.kernels) == 2
    (said,) = [d.why for d in plan.decisions if d.rule == "merged"]
    assert "2 kernels instead of 3: " in said and " us in them instead of " in said


def test_more_stages_than_sms_make_two_pipelines():
    """Seven products; a device of three SMs has room for three at a time."""
    graph, V100 = ms.lower(wide_layers, "f32[8192,32]", "f32[32,64]", "f32[64,64]", stop_after="simplify"), DEVICES["v100"]
    assert len(fuse(graph, "kitsune", V100).pipelines) == 1
    plan = fuse(graph, "kitsune", replace(V100, sms=3))
    assert [len(p.composition.stages) <= 6 for p in plan.pipelines] == [True] * len(plan.pipelines) and len(plan.pipelines) > 1
    assert any(d.rule == "more-stages-than-sms" and "3 SMs" in d.why for d in plan.decisions)


def recurrent(x, h, w, u):
    for t in range(x.shape[0]):
        gate = 1 / (1 + np.exp(-(x[t] @ u)))
        h = gate * h + (1 - gate) * np.tanh(x[t] @ w + h @ u)
    return h


def test_what_every_tile_needs_whole_is_asked_for_once(monkeypatch):
    """What is to be whole was pending once for each reader, and its operands once for each of those: planning DIEN never ended."""
    pushed = []
    push = tiles.heapq.heappush
    monkeypatch.setattr(tiles.heapq, "heappush", lambda heap, item: (pushed.append(item), push(heap, item)))
    graph = ms.lower(recurrent, "f32[12,64,16]", "f32[64,16]", "f32[16,16]", "f32[16,16]", stop_after="simplify")
    for node, axis in itertools.product([n.id for n in graph.nodes if n.op == "matmul"], (0, 1)):
        pushed.clear()
        tiles.cut(graph, node, axis, rounds=True)
        assert len(pushed) == len(set(pushed)) > len(graph) / 2


@pytest.mark.parametrize(("rows", "pipelines"), [(262144, 1), (4096, 0)], ids=["larger than the cache", "within it"])
def test_auto_takes_a_pipeline_only_where_it_pays(rows, pipelines):
    """Narrow layers over many rows, which won when measured; the same layers in cache, where nothing is to be won."""
    types = (f"f32[{rows},32]", "f32[32,64]", "f32[64,64]")
    device = cpu_with(BUILT_IN, cores=2)
    plan = ms.lower(wide_layers, *types, target="cpu", device=device, stop_after="fuse")
    assert len(plan.pipelines) == pipelines
    said = next(d.why for d in plan.decisions if d.rule == "cheapest-plan")
    assert ("kitsune's pipelines" in said) == bool(pipelines)
