"""FusionStitching 2020 row by row: exploration, plans, both evaluators, the generator, and the kernels that come out."""

import itertools
import random

import numpy as np
import pytest
from fs20_help import TWO_CHAINS, mask, model
from hypothesis import given
from hypothesis import strategies as st
from programs import layernorm, softmax
from stitch_help import V100, lowered, program, traced

from minisitch.simplify import simplify
from minisitch.strategies.ask import fuse
from minisitch.strategies.fs20.beam import all_candidates, contract, plans, search
from minisitch.strategies.fs20.delta import Evaluator
from minisitch.strategies.fs20.explore import Candidate, Dag, Explorer, bits
from minisitch.strategies.none import none
from minisitch.strategies.xla import xla


def size(pattern):
    return float(pattern.bit_count())


# ---------------------------------------------------------------- exploration: PatternReduction (rows 24 to 26)
ORDER = (9, 8, 5, 6, 7, 2, 3, 4, 1, 0)  # the paper's names of Fig. 4 in a topological order
EDGES = {8: (5, 6, 7), 9: (7,), 5: (2,), 6: (3,), 7: (4,), 2: (1,), 3: (1,), 4: (1,), 1: (0,), 0: ()}


def figure_4():
    return Dag([[ORDER.index(c) for c in EDGES[v]] for v in ORDER])


def named(patterns):
    return [{ORDER[v] for v in p.ids} for p in patterns]


def without_zero(pattern):
    """The figure's vertex 0 is the library call below: no pattern of the example holds it."""
    return not pattern >> ORDER.index(0) & 1


def test_figure_4_finds_the_eight_operations_first_row25():
    found = Explorer(figure_4(), size, without_zero).explore()
    assert named(found[ORDER.index(8)])[0] == {8, 7, 6, 5, 4, 3, 2, 1}
    assert named(found[ORDER.index(5)]) == [{5, 2, 1}, {5, 2}, {5}]
    assert named(found[ORDER.index(7)]) == [{7, 4, 1}, {7, 4}, {7}]


def test_figure_4_drops_what_is_cyclic_row26():
    """The paper prints these among its results; each leaves and comes back."""
    dag = figure_4()
    for trap in ({8, 5, 2, 1}, {8, 5, 2, 1, 6, 3}, {8, 6, 3, 1}, {8, 7, 4, 1}, {8, 5, 2, 1, 7, 4}, {8, 6, 3, 1, 7, 4}):
        ids = [ORDER.index(v) for v in trap]
        below, above = (sum_or(side[v] for v in ids) for side in (dag.below, dag.above))
        assert not Candidate(mask(*ids), below, above, 0.0).convex
        assert trap not in named(Explorer(dag, size, without_zero).explore()[ORDER.index(8)])


def sum_or(masks):
    total = 0
    for m in masks:
        total |= m
    return total


class FiltersEarly(Explorer):
    """The mutant: what is cyclic now is dropped at once, though the missing vertices would join later."""

    def _keep(self, pool):
        return [p for p in super()._keep(pool) if p.convex]


def test_a_filter_inside_a_group_loses_the_eight_operations_row26():
    found = FiltersEarly(figure_4(), size, without_zero).explore()
    assert named(found[ORDER.index(8)])[0] == {8, 7, 6, 5, 4, 3, 2}


def test_groups_of_consumers_give_sixteen_picks():
    """{5, 6} with the empty one each: 4 x 4 picks, of which 14 differ (the figure prints 15)."""
    explorer = Explorer(figure_4(), size, without_zero)
    explorer.explore()
    five, six = ([0, *(p.mask for p in explorer.found[ORDER.index(v)])] for v in (5, 6))
    picks = [mask(ORDER.index(8)) | a | b for a in five for b in six]
    assert (len(picks), len(set(picks))) == (16, 14)


def chain(length):
    return Dag([[v + 1] if v + 1 < length else [] for v in range(length)])


def test_exploration_grows_linearly_on_chains_row25():
    counts = []
    for length in (200, 400, 800):
        explorer = Explorer(chain(length), size)
        explorer.explore()
        counts.append(explorer.evaluated)
    assert counts[1:] == [pytest.approx(2 * counts[0], rel=0.05), pytest.approx(4 * counts[0], rel=0.05)]


def random_dag(rng, most=200):
    count = rng.randint(2, most)
    return Dag([rng.sample(range(v + 1, count), min(count - v - 1, rng.choice((0, 1, 1, 2, 3)))) for v in range(count)])


def contracted_is_acyclic(dag, patterns):
    """By brute force: merge each pattern into one vertex and look for an order."""
    owner = {v: k for k, p in enumerate(patterns) for v in bits(p)}
    after = {owner.get(v, -1 - v): set() for v in range(len(dag))}
    for v in range(len(dag)):
        after[owner.get(v, -1 - v)] |= {owner.get(c, -1 - c) for c in dag.consumers[v]} - {owner.get(v, -1 - v)}
    waits = {v: 0 for v in after}
    for readers in after.values():
        for r in readers:
            waits[r] += 1
    ready, done = [v for v, n in waits.items() if not n], 0
    while ready:
        done += 1
        for r in after[ready.pop()]:
            waits[r] -= 1
            if not waits[r]:
                ready.append(r)
    return done == len(after)


def planned(dag, score, allowed=lambda p: True, width=3, best=3):
    return search(dag, all_candidates(dag, score, allowed, best), width)


@given(seed=st.integers(0, 1 << 30))
def test_random_dags_never_get_a_cyclic_plan_row26(seed):
    rng = random.Random(seed)
    dag = random_dag(rng)
    banned = {v for v in range(len(dag)) if rng.random() < 0.15}
    worth = [rng.uniform(-1, 3) for _ in range(len(dag))]
    plans = planned(dag, lambda p: sum(worth[v] for v in bits(p)), lambda p: not any(v in banned for v in bits(p)))
    assert plans
    for plan in plans:
        masks = [p.mask for p in plan]
        assert sum(m.bit_count() for m in masks) == sum_or(masks).bit_count(), "disjoint"
        assert all(p.convex and contracted_is_acyclic(dag, [p.mask]) for p in plan)
        assert contracted_is_acyclic(dag, masks)


def test_the_brute_force_sees_a_circle():
    crossing = Dag([[3], [2], [], []])
    assert contracted_is_acyclic(crossing, [mask(0, 3)]) and not contracted_is_acyclic(crossing, [mask(0, 2), mask(1, 3)])


def test_two_legal_patterns_that_wait_for_each_other_are_no_plan_row28():
    dag = Dag([[3], [2], [], []])
    first, second = (Candidate(m, sum_or(dag.below[v] for v in bits(m)), sum_or(dag.above[v] for v in bits(m)), 5.0)
                     for m in (mask(0, 2), mask(1, 3)))
    assert first.convex and second.convex
    assert [len(plan) for plan in search(dag, [[first], [second], [], []])] == [1, 1, 0]


# ---------------------------------------------------------------- plans (rows 24, 27, 28)
def test_width_one_loses_row28():
    """The first pattern on the way pays 5 and is in the way of one that pays 8."""
    dag = chain(3)
    worth = {mask(0, 1): 5.0, mask(1, 2): 8.0}
    for width, best in ((1, 5.0), (3, 8.0)):
        plan = planned(dag, lambda p: worth.get(p, -1.0), lambda p: p.bit_count() < 3, width)[0]
        assert sum(p.score for p in plan) == best


def best_plan(dag, score, allowed):
    """The optimum by brute force: every partition into convex patterns, acyclic together."""
    def extend(free, chosen):
        if not free:
            return sum(score(m) for m in chosen if m.bit_count() > 1) if contracted_is_acyclic(dag, chosen) else float("-inf")
        first = free & -free
        rest = list(bits(free ^ first))
        most = float("-inf")
        for n in range(len(rest) + 1):
            for others in itertools.combinations(rest, n):
                m = first | mask(*others)
                if allowed(m):
                    most = max(most, extend(free & ~m, [*chosen, m]))
        return most
    return extend(mask(*range(len(dag))), [])


def test_plans_are_near_the_optimum_on_small_dags_row28():
    ratios = []
    for seed in range(25):
        rng = random.Random(seed)
        dag = random_dag(rng, 7)
        worth = {frozenset(pair): rng.uniform(-1, 4) for pair in itertools.combinations(range(len(dag)), 2)}

        def score(p, worth=worth):
            return sum(worth[frozenset(pair)] for pair in itertools.combinations(bits(p), 2))
        found = sum(p.score for p in planned(dag, score)[0])
        best = best_plan(dag, score, lambda p: True)
        assert found <= best + 1e-9, "nothing beats the optimum"
        if best > 0:
            ratios.append(found / best)
    assert np.mean(ratios) > 0.9, f"{np.mean(ratios):.3f}"


def test_more_patterns_a_vertex_find_better_ones_row24():
    """The score curve over k: the best candidate of each vertex, summed over random graphs."""
    totals = []
    for best in (1, 3, 5):
        total = 0.0
        for seed in range(30):
            rng = random.Random(seed)
            dag = random_dag(rng, 40)
            worth = {pair: rng.uniform(-1, 1.5) for pair in itertools.combinations(range(len(dag)), 2)}
            found = Explorer(dag, lambda p, w=worth: sum(w[pair] for pair in itertools.combinations(bits(p), 2)), best=best)
            total += sum(patterns[0].score for patterns in found.explore())
        totals.append(total)
    assert totals[0] < totals[1] < totals[2]


def test_what_nothing_connects_meets_in_one_kernel_row27_row20():
    assert len(fuse(TWO_CHAINS, "xla", V100).kernels) == 2
    found = fuse(TWO_CHAINS, "fs20", V100)
    assert [p.outputs for p in found.kernels] == [(2, 4)]
    (kernel,) = lowered(TWO_CHAINS, "fs20", "step", V100, "schedule").kernels
    assert kernel.grid_barriers == 0 and len(kernel.segments) == 2, "kernel packing: two loops, one launch"


def test_a_contracted_plan_is_explored_again():
    """Two unrelated networks: what each does between its products meets in one kernel, stage by stage."""
    def network(x):
        for _ in range(6):
            x = np.tanh(x @ x) + 1
        return x
    graph = simplify(traced(lambda x, y: (network(x), network(y)), (8, 8), (16, 16)))
    assert len(fuse(graph, "xla", V100).kernels) == 12 and len(fuse(graph, "fs20", V100).kernels) == 6
    found = Evaluator(xla(model("w2v"), V100), V100)
    one_round = search(found.dag, all_candidates(found.dag, found.score, found.allowed))[0]
    assert sum(map(found.score, plans(found)[0])) > sum(p.score for p in one_round)
    dag, parts = contract(Dag([[2], [3], [3], []]), [mask(0, 2), mask(1), mask(3)])
    assert parts == [mask(0, 2), mask(1), mask(3)] and dag.consumers == [(2,), (2,), ()]


def test_without_the_virtual_producer_they_stay_apart_row27():
    evaluator = Evaluator(xla(TWO_CHAINS, V100), V100)
    alone = Explorer(evaluator.dag, evaluator.score, evaluator.allowed).explore()
    assert search(evaluator.dag, alone) == [()]
    assert plans(evaluator) == [(mask(0, 1),), ()]


# ---------------------------------------------------------------- vertices (row 36)
@pytest.mark.parametrize("case", [(softmax, (64, 128)), (layernorm, (128, 1024), (1024,), (1024,))], ids=["softmax", "layernorm"])
def test_vertices_are_kernels_of_xla_row36(case):
    """As good a plan from fewer vertices than from single operations."""
    graph = simplify(traced(*case))
    fused, single = (Evaluator(start(graph, V100), V100) for start in (xla, none))
    assert len(fused.dag) < len(single.dag) and all(fused.library == e.library for e in (fused, single))
    assert [plans(e)[0] for e in (fused, single)] == [(mask(*range(len(e.dag))),) for e in (fused, single)]


def test_an_edge_through_a_view_that_is_returned_is_an_edge_of_the_dag():
    """%7 reads %3 through the result %6, so %3's kernel must not wait for %7.

    The constant is of the last vertex, and shares a pattern with %3 and %4. So a pattern that only
    needs %3 for %5 comes before it.
    """
    graph = program("f32[2,33] = input", "f32[33,2] = reshape %0 shape=(33, 2)", "f32[33] = max %1 axes=(1,) keepdims=False",
                    "f32[33] = neg %2", "f32[33] = neg %3", "f32[1] = slice %3 size=(1,) start=(26,) step=(1,)",
                    "f32[] = reshape %5 shape=()", "f32[] = trunc %6", "f32[1,1] = reshape %7 shape=(1, 1)",
                    "f32[2,33] = broadcast %8 shape=(2, 33)", "f32[33,2] = transpose %9 perm=(1, 0)", "f32[33,2] = constant value=1.0",
                    "return %4 %10 %6 %7 %11")
    assert len(fuse(graph, "fs20", V100).kernels) > 1  # no circle
    evaluator = Evaluator(xla(graph, V100), V100)
    vertex = {value: v for v, p in enumerate(evaluator.plan.patterns) for value in p.outputs}
    assert vertex[7] in evaluator.dag.consumers[vertex[3]]
