"""``auto`` never takes a dearer plan than a proposal; what it took, and why, is in its decisions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minisitch as ms
from minisitch.build import Prices
from minisitch.device import DEVICES, get_device
from minisitch.fuse import STRATEGIES, Stitching, fuse, make_plan
from minisitch.simplify import simplify
from minisitch.strategies.auto import PROPOSERS, Judgement, decide, owned, regions
from minisitch.testing import check_graph, graphs, random_graph, random_inputs
from minisitch.trace import trace

V100 = DEVICES["v100"]


def graph_of(fn, *types):
    return simplify(trace(fn, [ms.runtime.parse_type(t) for t in types], {}).graph)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def large(seed):
    """A random graph whose arrays are large enough for bytes to matter."""
    return random_graph(np.random.default_rng(seed), max_nodes=18, max_elements=1 << (8 + seed % 14))


@pytest.mark.parametrize("device", ["cpu", "v100"])
@given(seed=st.integers(0, 10_000))
def test_no_proposal_is_cheaper(device, seed):
    graph, machine = large(seed), get_device(device)
    prices = Prices(graph, machine)
    mine = prices.plan_us(fuse(graph, "auto", machine))
    for name in PROPOSERS:
        if name in STRATEGIES:
            assert mine <= prices.plan_us(fuse(graph, name, machine)) * (1 + 1e-9), name


@given(seed=st.integers(0, 10_000))
def test_each_step_only_lowers_the_price(seed):
    """The ablation: whole proposals, then regions, then cuts, then ingredients."""
    graph = large(seed)
    prices = Prices(graph, V100)
    series = [Judgement(False, False, False), Judgement(True, False, False), Judgement(True, True, False), Judgement()]
    us = [prices.plan_us(decide(graph, V100, steps, ("astitch", "xla"))) for steps in series]
    assert us[0] >= us[1] - 1e-9 and us[1] >= us[2] - 1e-9 and us[2] >= us[3] - 1e-9


def test_a_judge_that_cannot_see_prices_is_caught(monkeypatch):
    """The mutant: with the signs of all prices turned, ``auto`` takes the dearest plan, and the test above would see it."""
    graph = graph_of(softmax, "f32[4096,1024]")
    honest = Prices(graph, V100)
    dearest = max(honest.plan_us(fuse(graph, name, V100)) for name in ("astitch", "xla", "none"))
    true_price = Prices.pattern_us
    monkeypatch.setattr(Prices, "pattern_us", lambda self, pattern: -true_price(self, pattern))
    blind = decide(graph, V100, Judgement(), ("astitch", "xla", "none"))
    monkeypatch.undo()
    assert honest.plan_us(blind) == pytest.approx(dearest)


def test_softmax_is_stitched_and_says_what_was_weighed():
    graph = graph_of(softmax, "f32[4096,1024]")
    plan = decide(graph, V100, proposers=("astitch", "xla", "none"))
    assert len(plan.kernels) == 1 and plan.strategy == "auto"
    (weighed,) = [d for d in plan.decisions if d.rule == "cheapest-plan"]
    assert weighed.why.startswith("astitch ") and "xla " in weighed.why and "in 4 kernels" in weighed.why


def test_each_region_takes_its_own_cheapest_cut():
    """Two regions with a product between them; neither proposal is cheapest in both."""
    graph = graph_of(lambda x, w: softmax(softmax(x) @ w), "f32[256,512]", "f32[512,512]")
    stitched = fuse(graph, "astitch", V100)
    assert len(stitched.kernels) == 2
    one_by_one = fuse(graph, "none", V100)
    first, second = stitched.kernels
    proposals = []
    for name, whole, cut in (("first", first, second), ("second", second, first)):  # each stitches one half only
        pieces = [owned(graph, p) for p in one_by_one.kernels if p.outputs[0] in cut.members]
        groups = [owned(graph, whole), *pieces]
        proposals.append(make_plan(graph, name, groups, (), [Stitching()] * len(groups)))
    prices = Prices(graph, V100)
    cuts = [min(found, key=lambda c: c.us).proposer for _, found in regions(graph, proposals, prices)]
    assert sorted(cuts) == ["first", "second"]


def test_a_kernel_is_cut_at_its_barrier_where_launches_are_cheaper():
    """And is not where they are dearer: the same program on the same machine but for the price of a barrier."""
    graph = graph_of(lambda x: x / np.sum(np.exp(x), axis=0), "f32[2048,2048]")
    plan = fuse(graph, "astitch", V100)
    assert len(plan.kernels) == 1
    dear = replace(V100, launch_us=1.0, grid_barrier_us=50.0)
    assert len(decide(graph, dear, proposers=("astitch",)).kernels) > 1
    assert len(decide(graph, replace(V100, grid_barrier_us=0.1), proposers=("astitch",)).kernels) == 1
    cut = decide(graph, dear, proposers=("astitch",))
    assert {d.rule for d in cut.decisions} >= {"cut-at-barrier", "cheapest-plan"}


@given(graphs(max_nodes=14), st.integers(0, 1000))
def test_what_auto_plans_means_what_the_graph_means(graph, seed):
    with np.errstate(all="ignore"):
        check_graph(graph, random_inputs(graph, np.random.default_rng(seed)),
                    lambda g, arrays: ms.runtime.compile_graph(g, "auto", "python").outputs(arrays), seed=seed)
