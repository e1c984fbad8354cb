"""AStitch feature by feature where no other file shows it: dependencies, schemes, propagation; and the paper's ablation.

A test that shows rows of the table in docs/papers.md carries their numbers: ``@pytest.mark.paper(38)``.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest
from programs import layernorm, layernorm_backward, softmax
from stitch_help import ROOT, TOY, V100, figure_7, one_kernel, program, stepped, traced

import minisitch.stitch.loops as stitching
from minisitch import cuda_emit
from minisitch.fuse import ALL_INGREDIENTS, Stitching, stretches
from minisitch.simplify import simplify
from minisitch.stitch.dominants import is_row_reduce
from minisitch.stitch.loops import stitch
from minisitch.strategies import cost
from minisitch.strategies.ablation import ablation
from minisitch.strategies.ask import fuse
from minisitch.strategies.prices import Prices
from minisitch.testing import random_inputs
from minisitch.testing.judge import judge
from minisitch.trace import trace

ROW, WIDE = "f32[8,1] = input name='r'", "f32[8,96] = input name='x'"


def results_of(kernel):
    """The outputs of a kernel on the stepper, judged; and its traffic."""
    inputs = random_inputs(kernel.graph, np.random.default_rng(0))
    results, traffic = stepped(cuda_emit.emit(kernel), inputs)
    verdicts = judge(kernel.graph, inputs, results)
    assert all(v.ok for v in verdicts), f"{verdicts}\n{kernel}"
    return results, traffic


# ---------------------------------------------------------------- dependencies on two levels
PAIRS = {  # producer -> consumer: (program, the producer, one element is read by many, the producer has a loop of its own)
    "light -> element-wise": ((WIDE, "f32[8,96] = abs %0", "f32[8,96] = neg %1"), 1, False, False),
    "heavy -> element-wise": ((WIDE, "f32[8,96] = exp %0", "f32[8,96] = neg %1"), 1, False, False),
    "light -> broadcast": ((ROW, "f32[8,1] = abs %0", "f32[8,96] = broadcast %1 shape=(8, 96)", "f32[8,96] = neg %2"), 1, True, False),
    "heavy -> broadcast": ((ROW, "f32[8,1] = exp %0", "f32[8,96] = broadcast %1 shape=(8, 96)", "f32[8,96] = neg %2"), 1, True, True),
    "heavy -> reshape -> broadcast": ((ROW, "f32[8,1] = exp %0", "f32[8] = reshape %1 shape=(8,)", "f32[8,1] = reshape %2 shape=(8, 1)",
                                       "f32[8,96] = broadcast %3 shape=(8, 96)", "f32[8,96] = neg %4"), 1, True, True),
    "element-wise -> reduce": ((WIDE, "f32[8,96] = exp %0", "f32[8,1] = sum %1 axes=(1,) keepdims=True"), 1, False, False),
    "reduce -> broadcast": ((WIDE, "f32[8,1] = sum %0 axes=(1,) keepdims=True", "f32[8,96] = broadcast %1 shape=(8, 96)",
                             "f32[8,96] = sub %0 %2"), 1, True, True),
    "reduce -> element-wise": ((WIDE, "f32[8,1] = sum %0 axes=(1,) keepdims=True", "f32[8,1] = neg %1"), 1, False, True),
    "light -> two, one phase": ((WIDE, "f32[8,96] = abs %0", "f32[8,96] = exp %1", "f32[8,96] = mul %1 %2"), 1, False, False),
    "heavy -> two, two phases": ((WIDE, "f32[8,96] = exp %0", "f32[8,1] = sum %1 axes=(1,) keepdims=True",
                                  "f32[8,96] = broadcast %2 shape=(8, 96)", "f32[8,96] = div %1 %3"), 1, False, True),
}


@pytest.mark.paper(38)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_is_classified_by_elements_and_by_operators(pair):
    """One-to-many between elements makes a heavy value a candidate; one-to-many between operators keeps it for both."""
    lines, producer, stretched, own_loop = PAIRS[pair]
    graph = program(*lines)
    assert stretches(graph, graph[producer]) == stretched
    assert (producer in stitch(graph, TOY).final) == own_loop
    results_of(one_kernel(graph))


# ---------------------------------------------------------------- the four schemes
def column_then_row(x, y):
    """Each row sum reads all column sums: no block makes what it reads."""
    return np.sum(x * np.sum(y, axis=0), axis=1)


SCHEMES = {  # scheme: (program, grid barriers, block barriers, schemes of the values between)
    "independent": (program(WIDE, ROW, "f32[8,96] = exp %0", "f32[8,1] = exp %1", "return %2 %3"), 0, 0, set()),
    "local": (program(WIDE, "f32[8,96] = exp %0", "f32[8,96] = neg %1"), 0, 0, set()),
    "regional": (traced(softmax, (8, 96)), 0, 2, {"regional"}),
    "global": (traced(column_then_row, (8, 96), (16, 96)), 1, 1, {"global"}),
}


@pytest.mark.paper(39)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_where_its_dependency_asks_for_it(scheme):
    graph, grid, block, between = SCHEMES[scheme]
    kernel = one_kernel(graph, threads=64)
    assert (kernel.grid_barriers, kernel.block_barriers) == (grid, block)
    assert {kernel.plan.scheme(s).name for s in kernel.plan.sub_roots if s.node not in graph.outputs} == between
    results_of(kernel)


@pytest.mark.paper(39)
def test_one_pair_under_regional_and_under_global():
    """Rows split over blocks, or shared memory too small to keep them, force Global; the results stay the same."""
    graph = traced(softmax, (2, 1500))
    regional = one_kernel(graph, replace(TOY, sms=1, blocks_per_sm=1))
    split = one_kernel(graph, replace(TOY, max_block=32))
    demoted = one_kernel(graph, replace(TOY, sms=1, blocks_per_sm=1, shared_per_block=1024), threads=64)
    assert regional.grid_barriers == demoted.grid_barriers == 0 < split.grid_barriers
    assert {regional.plan.scheme(s).name for s in regional.plan.sub_roots if s.node not in graph.outputs} == {"regional"}
    assert {split.plan.scheme(s).name for s in split.plan.sub_roots if s.role == "partial"} == {"global"}
    (row,) = [b.node for b in demoted.buffers if b.scope == "scratch" and "demoted" in b.why]
    assert [scheme for node, scheme, _, _ in demoted.placements if node == row] == ["global"], "as it is after demotion"
    expected, *others = (results_of(k)[0][0] for k in (regional, split, demoted))
    assert all(np.allclose(expected, other, rtol=1e-6) for other in others)


# ---------------------------------------------------------------- a group has one mapping
@pytest.mark.paper(44)
@pytest.mark.parametrize(("function", "shapes"), [
    (softmax, [(64, 128)]), (layernorm, [(64, 128), (128,), (128,)]), (layernorm_backward, [(64, 128), (64, 128), (128,)])])
def test_a_group_takes_over_the_mapping_of_its_dominant(function, shapes):
    """Whatever has a loop in a row-reduce's group runs over the same tasks; column sums of the same data ride along."""
    plan = stitch(simplify(traced(function, *shapes)), V100)
    checked = 0
    for group in plan.groups:
        dominant = plan.graph[group.dominant]
        if dominant.kind == "reduce" and is_row_reduce(plan.graph, dominant):
            mine = [s for s in plan.sub_roots if s.node in group.members and s.role != "combine"]
            assert {s.space for s in mine} == {plan.final[group.dominant].space}, f"{group}\n{plan}"
            assert len({(s.thread_map.blocks, s.thread_map.steps, s.thread_map.rows_per_block) for s in mine}) == 1
            checked += len(mine)
    assert checked >= 2


# ---------------------------------------------------------------- computed once
@pytest.mark.paper(50)
def test_without_its_own_loop_a_heavy_value_is_computed_for_each_element(monkeypatch):
    """power<2>-broadcast<2,128>-add: 2 evaluations; 256 where the power is no candidate, as the paper says of TVM."""
    graph = program("f32[2,1] = input name='x'", "f32[2,128] = input name='y'", "f32[2,1] = constant value=2.5",
                    "f32[2,1] = power %0 %2", "f32[2,128] = broadcast %3 shape=(2, 128)", "f32[2,128] = add %4 %1")
    inputs = [np.array([[2.0], [3.0]], np.float32), np.ones((2, 128), np.float32)]

    def evaluations(kernel):
        source = cuda_emit.emit(kernel)
        _, traffic = stepped(source, inputs)
        (line,) = [n for n, text in enumerate(source.text.splitlines()) if "math.pow" in text]
        return traffic.by_line[line].loads  # the operand's load stands before it, one a time

    assert evaluations(one_kernel(graph)) == 2
    monkeypatch.setattr(stitching, "candidates", lambda graph: graph.outputs)
    assert evaluations(one_kernel(graph)) == 256


@pytest.mark.paper(51)
def test_a_shared_producer_is_loaded_once():
    """Fig. 7: Pr.2 has two consumers, B.2 too; each cell of memory is fetched once between two grid barriers."""
    kernel = one_kernel(figure_7(8, 96, 16))
    _, traffic = results_of(kernel)
    assert traffic.touched["x0"].read == 8 * 4, "Pr.2, read by A.1 and by D.1"
    assert traffic.touched["x2"].read == 8 * 16 * 4, "Pr.3"
    power = next(b.name for b in kernel.buffers if b.scope == "scratch" and b.node == 8)
    assert traffic.touched[power].read == 8 * 4, "Pw.1 under B.2, read by R.2 and by M.1"


# ---------------------------------------------------------------- the ablation (the paper's section 6.4)
def model(name, preset):
    """The graph of a workload."""
    folder = str(ROOT / "benchmarks" / "models")
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location(f"model_{name}", f"{folder}/{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return simplify(trace(*module.make(preset)[:2]).graph)
    finally:
        sys.path.remove(folder)


def scaled_rows(x, y):
    """A row-reduce of DIEN's shape: 750,000 rows of 32."""
    return np.sum(np.exp(x - np.max(x, axis=1, keepdims=True)) * y, axis=1)


STEPS = ("xla", "+ adaptive mapping", "+ stitching", "+ dominant merging")
PROGRAMS = {  # program: which steps take less modelled time than the one before
    "figure 7": (lambda: figure_7(64, 128, 1024), {"+ stitching"}),
    "dien's rows": (lambda: traced(scaled_rows, (750_000, 32), (750_000, 32)), {"+ adaptive mapping", "+ stitching"}),
    "layernorm backward": (lambda: traced(layernorm_backward, (4096, 1024), (4096, 1024), (1024,)),
                           {"+ stitching", "+ dominant merging"}),
    "crnn": (lambda: model("crnn", "full"), {"+ stitching"}),
}


def check_series(graph, steps, expected):
    """No step costs time, these save some, and stitching alone changes how many kernels there are; no bytes are added."""
    prices, found = Prices(graph, V100), []
    for plan in steps.values():
        kernels = [prices.kernel(p) for p in plan.kernels]
        found.append((sum(map(cost.kernel_us, kernels)), len(kernels), sum(cost.traffic(k).total for k in kernels)))
    times, kernels, moved = zip(*found, strict=True)
    assert all(after <= before * (1 + 1e-9) for before, after in zip(times, times[1:], strict=False)), times
    saved = {s for s, before, after in zip(STEPS[1:], times, times[1:], strict=False) if after < 0.99 * before}
    assert saved == expected, f"saved time: {saved}"
    assert kernels[0] == kernels[1] > kernels[2] == kernels[3], f"kernels: {kernels}"
    assert moved[3] <= moved[0], f"bytes: {moved}"


@pytest.mark.paper(43, 45)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_series_of_the_paper_is_monotone(name):
    """XLA 23.95, adaptive mapping 21.98, stitching 20.45, dominant merging 17.64 ms on CRNN: no ingredient ever costs time."""
    make, expected = PROGRAMS[name]
    graph = simplify(make())
    check_series(graph, ablation(graph, V100), expected)


@pytest.mark.parametrize(("name", "step"), [(name, step) for name in ("dien's rows", "layernorm backward") for step in sorted(PROGRAMS[name][1])])
def test_an_ingredient_that_does_not_arrive_is_seen(name, step):
    """The mutant: the plan before is passed off as the one with an ingredient more. The test above would see it."""
    make, expected = PROGRAMS[name]
    graph = simplify(make())
    steps = ablation(graph, V100)
    before = STEPS[STEPS.index(step) - 1]
    with pytest.raises(AssertionError, match="saved time|kernels"):
        check_series(graph, {**steps, step: steps[before]}, expected)


def test_each_step_of_the_ablation_adds_one_ingredient():
    steps = ablation(simplify(traced(softmax, (64, 128))), V100)
    assert tuple(steps) == STEPS
    assert {p.composition for p in steps["xla"].kernels} == {Stitching(adaptive=False)}
    assert {p.composition for p in steps["+ adaptive mapping"].kernels} == {ALL_INGREDIENTS}
    assert {p.composition for p in steps["+ stitching"].kernels} == {Stitching(merge=False)}
    assert steps["+ dominant merging"] == fuse(steps["xla"].graph, "astitch", V100)
    assert [len(plan.kernels) for plan in steps.values()] == [4, 4, 1, 1]
