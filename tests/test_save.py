"""Save or recompute: a later kernel makes a value again where that moves less."""

import sys

import numpy as np
import pytest
from stitch_help import CPU, ROOT, V100, program, runner, traced
from training_programs import PROGRAMS, moved

import minisitch as ms
from minisitch.explain.report import most_stored
from minisitch.fuse import verify_plan
from minisitch.simplify import simplify
from minisitch.strategies.ask import fuse
from minisitch.strategies.astitch import stitched
from minisitch.testing import check_graph, random_graph

sys.path.insert(0, str(ROOT / "tools"))
import gradient_programs as tool


def residual(x, w):
    y = x * 2 + 1
    return np.exp(y) @ w + y


def verdicts(graph, device=V100):
    plan = fuse(graph, "astitch", device)
    return {(d.verdict, plan.graph[d.at[0]].op) for d in plan.decisions if d.rule == "bytes-or-arithmetic"}


@pytest.mark.parametrize("device", [CPU, V100], ids=["cpu", "gpu"])
def test_a_cheap_value_is_made_again(device):
    graph = simplify(traced(residual, (64, 64), (64, 64)))
    plan = fuse(graph, "astitch", device)
    again, = (d for d in plan.decisions if d.verdict == "recompute" and plan.graph[d.at[0]].op == "add")
    assert "add for depth 1" in again.why and "16,384 bytes" in again.why and "us to make it again" in again.why
    assert moved(plan) < moved(stitched(graph))
    assert [p.outputs for p in plan.kernels] == [(plan.kernels[0].outputs[0],), tuple(plan.graph.outputs)]
    assert len(plan.graph) == len(graph) + 2 and plan.graph.outputs != graph.outputs


def test_what_is_read_anyway_costs_nothing():
    """tanh is dear on a GPU only beside memory: with x at hand it is made again, and of two arrays it is not."""
    def steps(x, z, w):
        y = np.tanh(x) + z
        return np.exp(y) @ w + y

    def with_arrays(x, z, w):
        y = np.tanh(x) + z
        return np.exp(y) @ w + x + z + y
    few, many = (simplify(traced(fn, (64, 64), (64, 64), (64, 64))) for fn in (steps, with_arrays))
    assert ("save", "add") in verdicts(few) and ("recompute", "add") in verdicts(many)


def test_reductions_and_results_of_calls_are_never_made_again():
    def steps(x, w):
        total = np.sum(x, axis=1, keepdims=True)
        return np.exp(x / total) @ w + total
    plan = fuse(simplify(traced(steps, (64, 64), (64, 64))), "astitch", V100)
    assert sum(n.op == "sum" for n in plan.graph.nodes) == 1
    assert sum(n.kind == "library" for n in plan.graph.nodes) == 1


def test_a_value_that_a_call_reads_is_in_memory():
    graph = program("f32[64,64] = input", "f32[64,64] = neg %0", "f32[64,64] = matmul %1 %1", "f32[64,64] = add %2 %1")
    assert fuse(graph, "astitch", V100).graph is graph or len(fuse(graph, "astitch", V100).graph) == len(graph)


def test_a_program_without_calls_is_as_it_was():
    for seed in range(30):
        graph = simplify(random_graph(np.random.default_rng(seed), max_nodes=14, library=False))
        assert fuse(graph, "astitch", V100).graph == graph


def test_gradients_of_random_programs_mean_the_same():
    copies = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, max_nodes=24, dtypes=("float32",), max_elements=600)
        if not any(tool.is_float(graph, each) for each in graph.outputs):
            continue
        try:
            graph = ms.gradient(tool.with_loss(graph))
        except ms.TraceError:
            continue
        if any(d.verdict == "recompute" for d in verify_plan(fuse(simplify(graph), "astitch", CPU)).decisions):
            copies += 1
            check_graph(graph, tool.between(graph, rng), runner("astitch", "python"))
    assert copies >= 4


def test_a_training_step_stores_less():
    fn, args = PROGRAMS["gpt and adam"]()
    graph = ms.lower(fn, *args, stop_after="simplify")
    plan, without = fuse(graph, "astitch", CPU), stitched(graph)
    assert most_stored(plan) <= 0.65 * most_stored(without)
    assert moved(plan) <= 0.75 * moved(without)
    assert len(plan.kernels) == len(without.kernels)


def test_values_are_the_same_to_the_bit():
    """A copy is the same arithmetic on the same values."""
    x, w = (np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) for _ in range(2))
    found = ms.jit(residual, strategy="astitch", target="cpu")(x, w)
    assert np.array_equal(found, ms.jit(residual, strategy="none", target="cpu")(x, w))


def test_explain_says_what_is_stored_with_and_without():
    text = str(ms.explain(residual, "f32[64,64]", "f32[64,64]", strategy="astitch", target="cpu"))
    assert "# stored between kernels: at most 32,768 bytes at a time, and 49,152 if nothing was made again" in text
