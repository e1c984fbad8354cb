"""``auto`` never takes a dearer plan than a proposal; what it took, and why, is in its decisions."""

import gc
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import softmax

import minisitch as ms
from benchmarks.judgement import STEPS
from minisitch.device import DEVICES
from minisitch.errors import KernelError
from minisitch.fuse import STRATEGIES, Stitching
from minisitch.runtime.this_machine import get_device
from minisitch.simplify import simplify
from minisitch.stitch.blocks import BlockComposition
from minisitch.stitch.body import extract
from minisitch.stitch.loops import BarrierNeeded
from minisitch.strategies import auto
from minisitch.strategies.ask import fuse
from minisitch.strategies.auto import ABLATIONS, PROPOSERS, RESOLUTION, Judgement, changes, decide
from minisitch.strategies.cost import traffic
from minisitch.strategies.prices import Prices, built
from minisitch.testing import check_graph, graphs, random_graph, random_inputs
from minisitch.trace import trace

V100 = DEVICES["v100"]


def graph_of(fn, *types):
    return simplify(trace(fn, [ms.runtime.parse_type(t) for t in types], {}).graph)


def us_of(plan, device):
    """The modelled time of a plan, whose graph a strategy may have rewritten."""
    return Prices(plan.graph, device).plan_us(plan)


def large(seed):
    """A random graph whose arrays are large enough for bytes to matter."""
    return random_graph(np.random.default_rng(seed), max_nodes=18, max_elements=1 << (8 + seed % 14))


@pytest.mark.parametrize("device", ["cpu", "v100"])
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_no_proposal_is_cheaper(device, seed):
    graph, machine = large(seed), get_device(device)
    plan = fuse(graph, "auto", machine)
    calls = sum(Prices(plan.graph, machine).pattern_us(p) for p in plan.library_calls)
    mine = us_of(plan, machine) - calls  # a gain is of the kernels: library calls are the same whoever plans
    for name in PROPOSERS:
        other = us_of(fuse(graph, name, machine), machine) - calls
        assert mine <= other * RESOLUTION[machine.kind] + (mine + calls) * 1e-9, name


@given(seed=st.integers(0, 10_000))
def test_a_gain_that_the_model_cannot_tell_is_left(seed):
    """AStitch's kernels stay where nothing is modelled so many times cheaper, but for those that move fewer bytes."""
    graph, machine = large(seed), get_device("cpu")
    stitched = fuse(graph, "astitch", machine)

    def moved(plan):
        return sum(traffic(Prices(plan.graph, machine).kernel(pattern)).total for pattern in plan.kernels)

    calls = sum(Prices(stitched.graph, machine).pattern_us(p) for p in stitched.library_calls)
    for margin in (1.0, 1.1, 1e9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(RESOLUTION, "cpu", margin)
            plan = decide(graph, machine, Judgement(merge=False))  # fewer launches of the same loops ask for no margin
        us = [us_of(each, machine) - calls for each in (plan, stitched)]
        assert us[0] <= us[1] * margin * (1 + 1e-9)
        if margin == 1e9:
            assert plan.patterns == stitched.patterns or moved(plan) < moved(stitched)


def forces(positions, masses):
    """What bodies do to each other: n * n distances, which nobody needs in memory."""
    far = positions[None] - positions[:, None]
    squares = np.sum(far * far, axis=-1) + 1e-3
    return np.sum(far * (masses[None] * squares ** -1.5)[..., None], axis=1)


def test_of_two_ways_that_take_about_as_long_the_one_that_moves_fewer_bytes_is_taken():
    graph, machine = graph_of(forces, "f32[300,3]", "f32[300]"), get_device("cpu")
    prices = Prices(graph, machine)
    plan = fuse(graph, "auto", machine)
    (kernel,) = plan.kernels
    assert traffic(prices.kernel(kernel)).total == 4 * (300 * 3 + 300 + 300 * 3)
    assert prices.plan_us(plan) <= RESOLUTION["cpu"] * min(prices.plan_us(fuse(graph, name, machine)) for name in PROPOSERS)
    (weighed,) = [d for d in plan.decisions if d.rule == "cheapest-way"]
    assert weighed.why.endswith("which moves fewer bytes than astitch in about that time")


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_each_step_only_lowers_the_price(seed):
    """The ablation: AStitch as it is, then judged by fewer ingredients, by the others' plans, in fewer launches, then compared."""
    graph = large(seed)
    nothing = Judgement(replan=False, ablate=False, merge=False, compare=False)
    series = [nothing, *STEPS.values()]
    us = [us_of(decide(graph, V100, steps), V100) for steps in series]
    assert us[0] == pytest.approx(us_of(fuse(graph, "astitch", V100), V100))
    assert all(a >= b - 1e-9 for a, b in zip(us, us[1:], strict=False)), us


def test_a_judge_that_cannot_see_prices_is_caught(monkeypatch):
    """The mutant: with the signs of all prices turned ``auto`` takes a dearer plan, and the first test would see it."""
    graph = graph_of(softmax, "f32[4096,1024]")
    honest = Prices(graph, V100)
    dearest = max(honest.plan_us(fuse(graph, name, V100)) for name in ("astitch", "xla", "none"))
    true_price = Prices.pattern_us
    monkeypatch.setattr(Prices, "pattern_us", lambda self, pattern: -true_price(self, pattern))
    blind = decide(graph, V100, Judgement(), ("astitch", "xla", "none"))
    monkeypatch.undo()
    assert honest.plan_us(blind) >= dearest


def test_softmax_is_stitched_and_says_what_was_weighed():
    graph = graph_of(softmax, "f32[4096,1024]")
    plan = decide(graph, V100, proposers=("astitch", "xla", "none"))
    assert len(plan.kernels) == 1 and plan.strategy == "auto"
    (weighed,) = [d for d in plan.decisions if d.rule == "cheapest-plan"]
    assert weighed.why.startswith("whole program: astitch's kernels, each planned the cheapest way, ") and "; xla " in weighed.why and "in 4 kernels" in weighed.why
    assert weighed.why.endswith("; taken: the kernels of astitch"), "and what was taken"


def test_each_kernel_is_computed_in_its_own_cheapest_way():
    """A long column-reduce and a softmax with a product between them: two kernels, judged apart, as each is best."""
    def both(x, w):
        return softmax(x / np.sum(np.exp(x), axis=0) @ w)
    graph = graph_of(both, "f32[2048,2048]", "f32[2048,512]")
    plan = decide(graph, V100)
    ways = [d.why for d in plan.decisions if d.rule == "cheapest-way"]
    assert len(ways) == 2 and all(why.startswith("this kernel, planned the way of: astitch ") for why in ways), ways
    for why in ways:  # what is taken is the cheapest of what was weighed
        weighed, taken = why.partition(" of: ")[2].rsplit("; taken: ", 1)
        prices = {way.rsplit(" us in ", 1)[0].rsplit(" ", 1)[0]: float(way.rsplit(" us in ", 1)[0].rsplit(" ", 1)[1])
                  for way in weighed.split("; ")}
        assert prices[taken] == min(prices.values()) and {"xla", "fs20"} <= prices.keys()
    assert all(f"{name} " in ways[1] for name in ABLATIONS), "of a softmax exp is kept, and max and sum share rows"


@pytest.mark.parametrize("refuses", ["fs20", "fs18", "xla"])
def test_a_strategy_that_refuses_is_no_proposal(monkeypatch, refuses):
    """The default still plans, without it, and says so."""
    def refusal(graph, device):
        raise KernelError("not with these shapes")
    graph = graph_of(softmax, "f32[4096,1024]")
    monkeypatch.setitem(STRATEGIES, refuses, refusal)
    plan = fuse(graph, "auto", V100)
    assert plan.kernels and f"; {refuses} refused: not with these shapes" in plan.decisions[0].why
    monkeypatch.setitem(STRATEGIES, "astitch", refusal)
    with pytest.raises(KernelError, match="not with these shapes"):
        fuse(graph, "auto", V100)


@given(seed=st.integers(0, 10_000))
def test_an_ablation_that_is_not_tried_would_change_nothing(seed):
    plan = fuse(large(seed), "astitch", V100)
    prices = Prices(plan.graph, V100)
    for pattern in plan.kernels:
        kernel = prices.kernel(pattern)
        for ablation in ABLATIONS.values():
            if not changes(kernel.plan, ablation):
                other = prices.kernel(replace(pattern, composition=ablation))
                assert (other.plan.sub_roots, other.segments, other.buffers) == (kernel.plan.sub_roots, kernel.segments, kernel.buffers)


def test_an_ablation_is_tried_where_it_takes_something_away():
    """Of a softmax exp is kept, and its max and sum share rows; sums of rows and of columns share theirs; a lone loop shares nothing."""
    def tried(fn, *types):
        graph = graph_of(fn, *types)
        (pattern,) = fuse(graph, "astitch", V100).kernels
        return {name for name, ablation in ABLATIONS.items() if changes(Prices(graph, V100).kernel(pattern).plan, ablation)}
    assert tried(softmax, "f32[64,64]") == set(ABLATIONS)
    assert tried(lambda x: (x.sum(1), x.sum(0)), "f32[64,64]") == {"astitch, its dominants not merged"}
    assert tried(np.exp, "f32[64,64]") == set()


def test_a_huge_kernel_is_taken_as_proposed(monkeypatch):
    graph = graph_of(softmax, "f32[64,64]")
    assert any(d.rule == "cheapest-way" for d in decide(graph, V100).decisions)
    monkeypatch.setattr(auto, "MOST_JUDGED", len(graph) - 1)
    assert not any(d.rule == "cheapest-way" for d in decide(graph, V100).decisions)


def test_prices_share_kernels_while_one_of_them_is_in_use():
    device = replace(V100, sms=83)  # nobody else's: what another test's traceback still holds is not this one's table
    graph = graph_of(softmax, "f32[64,64]")
    (pattern,) = fuse(graph, "astitch", device).kernels
    body = extract(graph, pattern).graph
    asking = Prices(graph, device)
    kernel = asking.kernel(pattern)
    assert Prices(graph, device).kernel(pattern) is kernel is built(body, device, pattern.composition)
    assert Prices(graph, replace(device, sms=3)).kernel(pattern) is not kernel, "another machine's"
    del asking
    assert Prices(graph, device).kernel(pattern) is not kernel, "nothing outlives its use"


def test_a_refused_kernel_keeps_no_table_alive():
    """Its error is told again each time; its traceback, whose frames hold the table, is not kept with it."""
    device, graph = replace(V100, sms=84), graph_of(lambda x: x.sum(1, keepdims=True) - x.sum(1, keepdims=True).max(), "f32[64,64]")
    pattern = replace(fuse(graph, "astitch", device).kernels[0], composition=Stitching(barriers=False))
    gc.disable()
    try:
        asking = Prices(graph, device)
        table, said = ref(asking._shared), []
        for _ in range(2):
            try:
                asking.kernel(pattern)
            except BarrierNeeded as refused:
                said.append((str(refused), refused.value, refused.reader))
        assert said[0] == said[1] and "needs a grid barrier" in said[0][0]
        del asking
        assert table() is None
    finally:
        gc.enable()


def test_equal_kernels_are_judged_once(monkeypatch):
    """Eight equal layers cost as many builds of kernels as two."""
    def layers(x, w, count):
        for _ in range(count):
            x = softmax(x @ w)
        return x
    built = []
    true_kernel = Prices.kernel
    monkeypatch.setattr(Prices, "kernel", lambda self, p: built.append(1) or true_kernel(self, p))
    counts = []
    for count in (2, 8):
        graph = graph_of(lambda x, w, n=count: layers(x, w, n), "f32[256,512]", "f32[512,512]")
        built.clear()
        plan = decide(graph, V100, Judgement(compare=False))
        assert len(plan.kernels) == count
        counts.append(len(built))
    assert counts[0] == counts[1] > 0


def test_a_composition_that_names_values_names_those_of_its_kernel():
    """Wherever a block composition replaces a stitched kernel, its ids are those of the new body, whose reduces and outputs it cuts."""
    found = 0
    for seed in range(40):
        plan = decide(large(seed), V100, Judgement(compare=False))
        graph, prices = plan.graph, Prices(plan.graph, V100)
        for pattern in plan.kernels:
            if isinstance(pattern.composition, BlockComposition):
                found += 1
                nodes = extract(graph, pattern).graph
                looped = {node for node, _ in pattern.composition.schedules}
                assert looped >= {n.id for n in nodes.nodes if n.kind == "reduce"} | {*nodes.outputs}
                assert all(nodes[node].kind != "source" for node in looped)
                assert [s.node for s in prices.kernel(pattern).plan.sub_roots] == sorted(looped), "and it is built"
    assert found > 1


def test_nothing_put_together_is_planned_too():
    """Seed 3168: a concatenation of empty arrays, which ``simplify`` would have taken away."""
    graph = large(3168)
    assert any(n.op == "concatenate" and not n.type.size for n in graph.nodes)
    assert fuse(graph, "auto", V100).patterns


@given(graphs(max_nodes=14), st.integers(0, 1000))
def test_what_auto_plans_means_what_the_graph_means(graph, seed):
    with np.errstate(all="ignore"):
        check_graph(graph, random_inputs(graph, np.random.default_rng(seed)),
                    lambda g, arrays: ms.runtime.compile_graph(g, "auto", "python").outputs(arrays), seed=seed)
