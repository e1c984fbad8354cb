"""FusionStitching 2018 on whole programs, and its predictor; each test carries its row of docs/papers.md."""

import importlib
import sys
from functools import partial

import numpy as np
import pytest
from growth import growth
from hypothesis import given
from hypothesis import strategies as st
from programs import gelu, layernorm, softmax, softmaxes
from stitch_help import CPU, ROOT, TOY, V100, program, renamed, run, traced

from minisitch.errors import PlanError
from minisitch.runtime import lower
from minisitch.simplify import simplify
from minisitch.stitch.blocks import BlockComposition
from minisitch.strategies.ask import fuse
from minisitch.strategies.fs18.spans import Contraction, spans
from minisitch.testing import check_graph, random_graph, random_inputs

sys.path.insert(0, str(ROOT))
from benchmarks.predict import exact_speedup, paper_speedup


# ---------------------------------------------------------------- it runs, it is quick, it fuses
@pytest.mark.parametrize("target", ["step", "python"])
@pytest.mark.parametrize("name", ["fs18", "fs18-dot"])
def test_random_programs_agree_with_the_reference(name, target):
    blocks = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, max_nodes=30, max_elements=200, allow_empty=seed % 5 == 0)
        device = TOY if target == "step" else CPU
        with np.errstate(all="ignore"):
            check_graph(graph, random_inputs(graph, rng), partial(_run, name=name, target=target, device=device), seed=seed)
        blocks += sum(isinstance(p.composition, BlockComposition) for p in fuse(simplify(graph), name, device).kernels)
    assert blocks > 4


def _run(graph, inputs, name, target, device):
    return run(graph, inputs, name, target, device)


def deep(depth):
    def model(x, scale, shift):
        for _ in range(depth):
            x = softmax(layernorm(x + gelu(x), scale, shift)) + x
        return x
    return simplify(traced(model, (32, 64), (64,), (64,)))


def one_after_the_other(times):
    """N softmaxes in a row make one kernel with 2 N barriers."""
    return simplify(traced(softmaxes(times), (64, 128)))


@pytest.mark.parametrize(("program", "size"), [(deep, 7), (one_after_the_other, 35)])
def test_planning_grows_with_the_graph_and_no_faster(program, size):
    """One kernel of all layers, whose spans change with every contraction."""
    def planning(size):
        graph = program(size)
        return lambda: fuse(graph, "fs18", renamed(V100))
    assert len(planning(size)().kernels) == 1
    assert growth(planning, size, 5) < 1.05, "of 1,050 and of 1,250 nodes"


def test_an_operation_that_reads_too_much_for_a_kernel_costs_no_other_its_own():
    """Seventy arrays stacked: no kernel can take anything in beside that. What is above it is fused as ever."""
    def stacked(*rows):
        return np.stack([np.tanh(np.exp(row) + 1) for row in rows])

    found = fuse(traced(stacked, *[(8,)] * 70), "fs18", V100)  # simplify would make it a concatenate of two
    (alone,) = [p for p in found.kernels if any(found.graph[m].op == "concatenate" for m in p.members)]
    assert len([m for m in alone.members if found.graph[m].kind == "map"]) == 0
    assert len(found.kernels) < 1 + 70 and not any(set(d.at) & set(alone.members) and d.verdict == "fuse" for d in found.decisions)


def test_equal_kernels_are_composed_alike():
    def model(x, w):
        for _ in range(6):
            x = softmax(x @ w)
        return x
    found = fuse(simplify(traced(model, (64, 64), (64, 64))), "fs18", V100)
    assert len(found.kernels) == 6 and len({p.composition for p in found.kernels}) == 1
    assert [d.rule for d in found.decisions].count("block-composition") == 6


def test_a_plan_is_the_same_twice_and_says_why():
    graph = simplify(traced(layernorm, (128, 1024), (1024,), (1024,)))
    assert fuse(graph, "fs18", V100) == fuse(graph, "fs18", V100)
    assert [len(fuse(graph, name, V100).kernels) for name in ("xla", "fs18")] == [4, 1]
    assert all(d.why and d.rule for d in fuse(graph, "fs18", V100).decisions)


def contracted():
    """%0 feeds %2 and, through %1, %3; then %2 and %0 become one cluster, which %1 reads."""
    parts = Contraction([0, 1, 2, 3], {0: [1, 2], 1: [3], 2: [], 3: []}, {0: [], 1: [0], 2: [0], 3: [1]})
    assert parts.span == {3: 0, 2: 0, 1: 1, 0: 2} and set(parts.layer(0)) == {2, 3}
    parts.contract([2, 0])
    assert parts.users(2) == {1}
    return parts


def test_a_contraction_raises_a_cluster_above_its_readers():
    parts = contracted()
    assert parts.span == {3: 0, 1: 1, 2: 2} and parts.layer(0) == [3] and parts.layer(2) == [2]
    assert spans({0: [1], 1: [0]}) == {}, "what waits for itself gets no span"


def test_an_unknown_strategy_is_still_refused():
    with pytest.raises(PlanError, match="known: .*fs18"):
        fuse(traced(softmax, (4, 4)), "fs17", V100)


@pytest.mark.parametrize("workload", ["lr", "w2v", "rnn", "birnn", "speech", "nmt"])
def test_the_papers_workloads_have_fewer_kernels(workload, monkeypatch):
    """On small presets; the geometric mean over the full ones is in docs/strategies/fs18.md (the paper: 0.434)."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "models"))
    function, arguments = importlib.import_module(workload).make("small")
    counts = {name: len(lower(function, *arguments, strategy=name, target="cuda", device="v100", stop_after="fuse").kernels)
              for name in ("none", "xla", "fs18")}
    assert counts["fs18"] <= 0.45 * counts["xla"] and counts["xla"] <= counts["none"]


# ---------------------------------------------------------------- row 19: the predictor
FIGURES = {"lr": "LR", "w2v": "W2V", "rnn": "RNN", "birnn": "BiRNN", "speech": "Speech", "nmt": "NMT"}


@pytest.mark.paper(19)
@pytest.mark.parametrize("workload", FIGURES)
def test_the_predictor_gives_the_papers_figures(workload, monkeypatch):
    """Read off the paper's bars to about 0.02; what it measured is within 0.05 of what it predicted."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "models"))
    paper = importlib.import_module(workload).PAPER["fs18"]
    fusable, speedup = 1 - paper["library_share"], paper["fusion_speedup"]
    assert paper_speedup(fusable, speedup) == pytest.approx(paper["predicted_speedup"], abs=0.02)
    assert paper_speedup(fusable, speedup) == pytest.approx(paper["end_to_end_speedup"], abs=0.05)


@pytest.mark.paper(19)
@given(st.floats(0, 1), st.floats(1, 50))
def test_the_predictor_is_the_first_term_of_amdahls_law(fusable, speedup):
    saved = fusable * (1 - 1 / speedup)
    assert 1 <= paper_speedup(fusable, speedup) <= exact_speedup(fusable, speedup) * (1 + 1e-12)
    if saved < 0.5:
        assert exact_speedup(fusable, speedup) - paper_speedup(fusable, speedup) <= 2 * saved ** 2 + 1e-12


@pytest.mark.paper(8)
def test_a_kernel_whose_blocks_cannot_be_followed_is_still_built():
    """A reshape of joined pieces: each block owns what it reads, but no index arithmetic shows it (CRNN's first step)."""
    def joined(*shape):
        return program("f32[8,1,6,4] = input name='x'", "f32[8,1,6,4] = exp %0", "f32[8,1,6,1] = max %1 axes=(3,) keepdims=True",
                       "f32[8,1,6,4] = broadcast %2 shape=(8, 1, 6, 4)", "f32[8,1,6,4] = sub %1 %3",
                       "f32[8,1,1,4] = slice %4 size=(8, 1, 1, 4) start=(0, 0, 0, 0) step=(1, 1, 1, 1)",
                       "f32[8,4] = reshape %5 shape=(8, 4)", "f32[8,3] = constant value=0.0", *shape)

    graph = joined("f32[8,7] = concatenate %6 %7 axis=1", "return %4 %8")
    twin = joined("f32[8,4] = neg %6", "return %4 %8")
    inputs = random_inputs(graph, np.random.default_rng(0))
    for device in (V100, CPU):
        assert "blocks-not-followed" in {d.rule for d in fuse(graph, "fs18", device).decisions}
        assert "blocks-not-followed" not in {d.rule for d in fuse(twin, "fs18", device).decisions}
    for target, device in (("step", TOY), ("python", CPU)):
        check_graph(graph, inputs, partial(_run, name="fs18", target=target, device=device))
