"""Kitsune's plans, down to one kernel on the stepper, in reports and in comparisons; and what a CPU gets instead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import minisitch as ms
from minisitch.device import DEVICES
from minisitch.runtime.this_machine import BUILT_IN, cpu_with
from minisitch.strategies.ask import fuse
from minisitch.strategies.kitsune.models.simulate import dataflow
from minisitch.strategies.kitsune.predict import pipeline_us, workload


@pytest.fixture
def small_gpu():
    """A GPU of three multiprocessors, and tiles for it: an MLP's pipeline is small enough to be stepped."""
    return replace(DEVICES["v100"], name="small", sms=3, queue_entry=256, least_queue_entry=128)


def mlp(x, w, v):
    return np.tanh(x @ w) @ v


@pytest.mark.paper(59)
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
    assert row.modelled_us == pipeline_us(flow.body.graph, pattern.composition, small_gpu), "the strategy's own price"


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
    products = [n.id for n in report.stages.graph.nodes if n.op == "matmul"]
    assert "share step 0" in report.why(*products) and "library call" not in report.why(*products)
    assert "mlp_1 (simt), tile" in report.html, "the simulated timeline"


def wide_layers(x, w, v):
    h = np.maximum(x @ w, 0)
    for _ in range(5):
        h = np.maximum(h @ v, 0)
    return h @ w.T


def test_more_stages_than_sms_make_two_pipelines():
    """Seven products; a device of three SMs has room for three at a time."""
    graph, V100 = ms.lower(wide_layers, "f32[8192,32]", "f32[32,64]", "f32[64,64]", stop_after="simplify"), DEVICES["v100"]
    assert len(fuse(graph, "kitsune", V100).pipelines) == 1
    plan = fuse(graph, "kitsune", replace(V100, sms=3))
    assert [len(p.composition.stages) <= 6 for p in plan.pipelines] == [True] * len(plan.pipelines) and len(plan.pipelines) > 1
    assert any(d.rule == "more-stages-than-sms" and "3 SMs" in d.why for d in plan.decisions)


def test_a_cpu_gets_astitchs_kernels():
    """With the same kernels and library calls, and a decision that says why there is no pipeline."""
    graph = ms.lower(wide_layers, "f32[8192,32]", "f32[32,64]", "f32[64,64]", stop_after="simplify")
    device = cpu_with(BUILT_IN, cores=2)
    plan = fuse(graph, "kitsune", device)
    assert plan.patterns == fuse(graph, "astitch", device).patterns and plan.strategy == "kitsune"
    assert plan.decisions[0].rule == "no-pipelines-on-a-cpu" and not plan.pipelines
    arrays = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((12, 8), (8, 16), (16, 6))]
    np.testing.assert_allclose(ms.jit(mlp, strategy="kitsune", target="python")(*arrays), mlp(*arrays), rtol=1e-5, atol=1e-6)
