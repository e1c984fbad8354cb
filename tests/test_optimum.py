"""The exact optimum: nothing beats it, brute force agrees with it, a wrong lower bound is seen."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from programs import layernorm, softmax
from stitch_help import CPU, DISTURBED, ROOT, TOY, V100, figure_7, program, traced

sys.path.insert(0, str(ROOT))

import minisitch as ms
from benchmarks.optimum import grade
from minisitch import __main__ as cli
from minisitch.errors import KernelError, PlanError
from minisitch.fuse import STRATEGIES, VIEWS, FusionPlan, Stitching, is_fusible, make_plan, stored_values
from minisitch.lower import lower_program, program_of
from minisitch.runtime import assemble
from minisitch.simplify import simplify
from minisitch.strategies.ask import fuse
from minisitch.strategies.optimum import COMPOSITIONS, MOST_VALUES, PlanSpace, bits, optimum, search, union
from minisitch.strategies.prices import Prices, shared_kernels
from minisitch.testing import graphs, random_graph, random_inputs
from minisitch.testing.judge import judge

DEVICES = st.sampled_from([V100, TOY, CPU, DISTURBED])
TINY = 1e-6  # microseconds: sums in another order


def small(graph, device, most=MOST_VALUES):
    """The space of a graph, unless that is too large."""
    try:
        space = PlanSpace(graph, device)
    except PlanError:
        return None
    return space if len(space.values) <= most else None


# ---------------------------------------------------------------- brute force, from other parts
def partitions(values):
    """All ways to deal values out to groups."""
    if not values:
        yield []
        return
    first, *rest = values
    for groups in partitions(rest):
        yield [[first], *groups]
        for i in range(len(groups)):
            yield [*groups[:i], [first, *groups[i]], *groups[i + 1:]]


def with_producers(graph, group, in_memory):
    """A group with all it is computed from, up to values in memory."""
    members, pending = set(group), list(group)
    while pending:
        for arg in graph[pending.pop()].args:
            node = graph[arg]
            stops = node.kind in ("source", "library") or (arg in in_memory and node.op not in VIEWS)
            if not stops and arg not in members:
                members.add(arg)
                pending.append(arg)
    return sorted(members)


def brute_force(graph, device, values):
    """The least price of any set of values in memory, dealt out in any way that ``make_plan`` accepts, and its plan."""
    prices, best = Prices(graph, device), (float("inf"), None)
    must = stored_values(graph)
    may = [v for v in values if v not in must]
    for chosen in chain.from_iterable(combinations(may, n) for n in range(len(may) + 1)):
        for groups in partitions(sorted(must | set(chosen))):
            kernels = [with_producers(graph, g, must | set(chosen)) for g in groups]
            try:
                plans = [make_plan(graph, "brute", kernels, (), c) for c in COMPOSITIONS]
            except PlanError:  # they wait for each other in a circle
                continue
            best = min(best, (sum(min(map(prices.pattern_us, ways)) for ways in zip(*(p.patterns for p in plans), strict=True)),
                              plans[0]), key=lambda found: found[0])
    return best


def disagreement(graph, device):
    """How far the optimum is above (or, where no kernel makes again what another writes, below) brute force."""
    with shared_kernels(device):
        found = optimum(graph, device)
        us, (expected, _) = Prices(graph, device).plan_us(found), brute_force(graph, device, PlanSpace(graph, device).values)
    written = {v for p in found.kernels for v in p.outputs}
    twice = any(m in written and m not in p.outputs for p in found.kernels for m in p.members)
    return us - expected if us > expected or not twice else 0.0


def tiny(seed):
    return simplify(random_graph(np.random.default_rng(seed), max_nodes=9, max_elements=20_000))


def is_tiny(graph):
    """Two to four values; ``make_plan`` gives each constant that is returned a kernel of its own, so none of these."""
    space = small(graph, V100, 4)
    return space is not None and 2 <= len(space.values) and all(is_fusible(graph[v]) for v in bits(space.required))


@cache
def tiny_graphs():
    return [seed for seed in range(150) if is_tiny(tiny(seed))][:24]


@pytest.mark.parametrize("device", [V100, CPU], ids=lambda d: d.name)
def test_brute_force_agrees(device):
    assert len(tiny_graphs()) == 24
    for seed in tiny_graphs():
        assert abs(disagreement(tiny(seed), device)) < TINY, f"seed {seed}"


def test_brute_force_sees_a_wrong_lower_bound(monkeypatch):
    """The mutant thinks that each operation costs three launches. Then long kernels are never built."""
    honest = PlanSpace.least_us

    def wrong(self, made, done):
        held = [v for v in bits(self.kernel(made, done)[0]) if v in self.values]
        return honest(self, made, done) + 3 * self.device.launch_us * (len(held) - 1)
    monkeypatch.setattr(PlanSpace, "least_us", wrong)
    assert any(disagreement(tiny(seed), V100) > TINY for seed in tiny_graphs())


# ---------------------------------------------------------------- the lower bound
@given(graphs(max_nodes=18, max_elements=20_000), DEVICES, st.randoms(use_true_random=False))
def test_the_lower_bound_is_below_every_price(graph, device, random):
    space = small(simplify(graph), device)
    assume(space is not None and space.values)
    done = sum(1 << v for v in space.values if random.random() < 0.3)
    held = space.sweep(0)[0]  # nothing is in memory without what the calls before it read
    assume(not union(space.needs.get(v, 0) for value in bits(done) for v in bits(held[value])) & ~done)
    free = [v for v in space.values if not done >> v & 1]
    assume(free)
    made = sum(1 << v for v in random.sample(free, random.randint(1, min(3, len(free)))))
    assume(space.is_legal(made, done))
    us, pattern = space.price(made, done)
    assert space.least_us(made, done) <= us + TINY, f"{pattern}\n{space.prices.kernel(pattern)}"
    rest = space.rest_us(done | made)
    assert space.rest_us(done) <= us + rest + TINY, "the bound never falls by more than the kernel costs"


def test_the_lower_bound_holds_where_small_copies_were_measured_slowly():
    """Three arrays of 512 kB and their sum: each alone was measured at 79 GB/s, all four, by both cores, at 127."""
    graph = traced(lambda a, b, c: a + b + c, *[(128, 1024)] * 3)
    space = PlanSpace(graph, replace(DISTURBED, serial_below=1, grid_barrier_us=1.0))
    made = sum(1 << v for v in graph.outputs)
    assert space.least_us(made, 0) <= space.price(made, 0)[0]


def test_kernels_around_calls_each_need_a_launch():
    graph = traced(lambda x: np.exp(np.tanh(np.exp(x) @ x) @ x), (8, 8))
    assert PlanSpace(graph, V100).rest_us(0) >= 3 * V100.launch_us
    assert len(optimum(graph, V100).kernels) == 3


# ---------------------------------------------------------------- nothing beats it
def compared_with_strategies(graph, device):
    alone, met = Prices(graph, device).plan_us(optimum(graph, device)), []
    for name in STRATEGIES:
        plan = fuse(graph, name, device)
        if (plan.graph, plan.patterns) in met:  # several strategies plan a small program the same way
            continue
        met.append((plan.graph, plan.patterns))
        known = optimum(graph, device, [plan])
        if plan.pipelines:  # in no space of kernels, so left out
            assert Prices(graph, device).plan_us(known) == alone
            continue
        us = Prices(plan.graph, device).plan_us(plan)
        assert Prices(known.graph, device).plan_us(known) <= min(us, alone) + TINY, name
        if plan.graph == graph and {p.composition for p in plan.kernels} <= set(COMPOSITIONS):
            assert alone <= us + TINY, f"{name} is better without being shown"


@given(graphs(max_nodes=18, max_elements=20_000), DEVICES)
def test_no_strategy_beats_the_optimum(graph, device):
    graph = simplify(graph)
    assume(small(graph, device, 7) is not None)
    with shared_kernels(device):
        compared_with_strategies(graph, device)


@given(graphs(max_nodes=12, max_elements=400), st.integers(0, 99))
def test_the_best_plan_computes_what_the_program_means(graph, seed):
    graph = simplify(graph)
    assume(small(graph, CPU, 6) is not None)
    inputs = random_inputs(graph, np.random.default_rng(seed))
    stages = lower_program(program_of(graph), "optimum", "python", CPU, decide=lambda *_: optimum(graph, CPU))
    assert all(v.ok for v in judge(graph, inputs, assemble(stages, "python").outputs(inputs)))


# ---------------------------------------------------------------- what it finds
def masked_products():
    """A mask is applied before and after a product."""
    def f(x):
        mask = np.tri(64, dtype=bool)
        return np.where(mask, np.where(mask, x, np.float32(0)) @ x, np.float32(-1))
    return simplify(traced(f, (64, 64)))


def test_what_is_cheap_to_make_is_made_twice():
    graph = masked_products()
    found = optimum(graph, V100)
    (mask,) = [n.id for n in graph.nodes if n.type.dtype == "bool" and n.kind == "map"]
    assert [p.kind for p in found.patterns] == ["kernel", "library", "kernel"]
    assert all(mask in p.members and mask not in p.outputs for p in found.kernels)


def test_figure_7_is_one_kernel_and_nothing_else_is_built(golden):
    graph = figure_7(64, 128, 1024)
    space = PlanSpace(graph, V100)
    assert len(space.values) == 7
    (us, pattern), = search(space, float("inf"))
    assert len(space.priced) == 1, "all others cost more at least"
    assert pattern.outputs == graph.outputs and us == Prices(graph, V100).pattern_us(pattern)
    plan = optimum(graph, V100)
    golden("optimum_figure_7", "\n".join([str(plan), *(f"{d.at} {d.verdict} ({d.rule}): {d.why}" for d in plan.decisions)]))


def test_three_kernels_where_barriers_cost_more_than_launches():
    """The same graph, on a V100 whose grid barriers cost as much as four launches."""
    graph, slow = figure_7(64, 128, 1024), replace(V100, grid_barrier_us=40.0)
    found = optimum(graph, slow, [fuse(graph, name, slow) for name in ("none", "xla", "astitch")])
    assert len(found.kernels) == 3 and all(Prices(graph, slow).kernel(p).grid_barriers == 0 for p in found.kernels)
    assert all(d.rule == "best-first-search" and " us" in d.why for d in found.decisions)


def test_a_plan_that_is_known_is_kept_where_nothing_is_better():
    graph = traced(softmax, (64, 128))
    known = fuse(graph, "astitch", V100)
    found = optimum(graph, V100, [fuse(graph, "none", V100), known])
    assert (found.strategy, found.patterns) == ("optimum", known.patterns)
    assert "as astitch has it" in found.decisions[0].why


def test_a_known_kernel_brings_its_composition():
    """What names values is tried for that very kernel, what does not is tried for all, and may refuse."""
    graph = figure_7(64, 128, 1024)
    general, own = Stitching(barriers=False), Stitching(kept=())
    plans = [make_plan(graph, "mine", [[5, 4]], (), c) for c in (general, own)]
    space = PlanSpace(graph, V100, plans)
    assert general in space.ways and own not in space.ways
    assert {p.composition for p in space.known} == {general, own}
    us, pattern = space.price(1 << graph.outputs[0], 0)
    assert us < float("inf") and pattern.composition != general, "that one needs grid barriers"
    assert space.price(1 << 5, 0)[0] <= min(Prices(graph, V100).pattern_us(p) for p in space.known if p.outputs == (5,))


def test_a_composition_that_cannot_hold_another_kernel_prices_it_infinite():
    """Blocks of 128 threads do for a softmax; eight rows at a time of 512 column sums are more partial rows than were counted."""
    graph = program("f32[512,512] = input name='x'", "f32[512] = sum %0 axes=(1,) keepdims=False",
                    "f32[512] = sum %0 axes=(0,) keepdims=False", "return %1 %2")
    small = Stitching(barriers=False, threads_per_row=32, threads=128)
    space = PlanSpace(graph, V100, [make_plan(graph, "mine", [[1], [2]], (), small)])
    (pattern,) = make_plan(graph, "mine", [[1, 2]], (), small).kernels
    with pytest.raises(KernelError):
        Prices(graph, V100).pattern_us(pattern)
    assert small in space.ways and space._us(pattern) == float("inf")
    assert optimum(graph, V100, [make_plan(graph, "mine", [[1], [2]], (), small)]).kernels


def test_a_larger_graph_is_refused():
    graph = traced(lambda x: np.tanh(layernorm(x, x, x)), (8, 16))
    with pytest.raises(PlanError, match=f"up to {MOST_VALUES} operations, but this graph has 13"):
        optimum(graph, V100)
    assert isinstance(optimum(simplify(traced(layernorm, (8, 16), (16,), (16,))), V100), FusionPlan), "11 are not refused"


# ---------------------------------------------------------------- compare
def test_compare_says_how_far_each_strategy_is_from_the_optimum():
    found = ms.compare(softmax, "f32[8,16]", target="python", strategies=("none", "xla"), optimum=True)
    best = found["optimum"]
    assert best.over_optimum == 1.0 and best.kernels == 1 and best.max_error < 1e-6
    assert found["none"].over_optimum == found["none"].modelled_us / best.modelled_us > 1
    assert f"{found['xla'].over_optimum:.2f}x" in str(found) and "over optimum" in found._repr_html_()
    assert "over optimum" not in str(ms.compare(softmax, "f32[8,16]", target="python", strategies=("xla",)))


def test_compare_says_why_there_is_no_optimum():
    found = ms.compare(lambda x: np.tanh(layernorm(x, x, x)), "f32[8,16]", target="python", strategies=("xla",), optimum=True)
    assert [r.strategy for r in found.rows] == ["xla"]
    assert f"No optimum: the exact optimum is searched for up to {MOST_VALUES} operations" in str(found)


def test_the_command_line_adds_the_optimum(tmp_path, capsys):
    (tmp_path / "p.py").write_text("import numpy as np\n\ndef f(x):\n    return np.exp(x) + 1\n", encoding="utf-8")
    words = ["compare", f"{tmp_path / 'p.py'}:f", "--arg", "x=f32[4]", "--target", "python", "--strategy", "none", "--optimum"]
    assert cli.main(words) == 0
    assert "over optimum" in capsys.readouterr().out


def test_strategies_are_graded():
    grades = grade(V100, 6)
    assert set(grades.ratios) == set(STRATEGIES) and all(len(r) == 6 for r in grades.ratios.values())
    assert all(ratio > 1 - 1e-9 for found in grades.ratios.values() for ratio in found)
    assert np.mean(grades.ratios["none"]) > np.mean(grades.ratios["astitch"])
    head, _, worst, *_ = str(grades).splitlines()
    assert head.startswith("6 random programs") and worst.startswith("none")


def test_plans_with_pipelines_are_not_in_the_space():
    """A pipeline is no kernel of the space: its stages run at the same time."""
    graph = program("f32[4096,256] = input name='x'", "f32[256,256] = input name='w'", "f32[4096,256] = matmul %0 %1",
                    "f32[4096,256] = tanh %2", "f32[4096,256] = matmul %3 %1")
    piped, apart = (fuse(graph, name, V100) for name in ("kitsune", "none"))
    assert piped.pipelines and not apart.pipelines
    assert optimum(graph, V100, [piped, apart]).patterns == optimum(graph, V100, [apart]).patterns
    assert not optimum(graph, V100, [piped]).pipelines
