"""Nothing seems to hang: long programs are cut where they repeat, kernels have a bound, equal kernels are compiled once.

Counts rather than clocks: statements of kernels, different kernels, calls of functions.
"""

from functools import cache, partial

import numpy as np
import pytest
from growth import calls_of
from stitch_help import CPU, TOY, V100, lowered, renamed, traced

import minisitch as ms
from minisitch.fuse import STRATEGIES
from minisitch.kernel.nests import statements_of
from minisitch.runtime import plans
from minisitch.runtime.assemble import assemble
from minisitch.simplify import simplify
from minisitch.strategies import regions
from minisitch.strategies.ask import fuse
from minisitch.strategies.regions import planned, runs_in_numpy
from minisitch.testing import random_graph, random_inputs

EVERY = sorted(STRATEGIES)
MOST = 256  # statements of a kernel: about two seconds of a compiler


# ---------------------------------------------------------------- programs of Python loops
def jacobi(steps, side=20):
    def run(u):
        for _ in range(steps):
            new = u.copy()
            new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
            u = new
        return u
    return traced(run, (side, side))


def pressure(steps):
    """A smoke solver's pressure: four rolls a step."""
    def run(d):
        p = np.zeros_like(d)
        for _ in range(steps):
            p = (d + np.roll(p, 1, 0) + np.roll(p, -1, 0) + np.roll(p, 1, 1) + np.roll(p, -1, 1)) / 4
        return p
    return traced(run, (6, 6))


def gates(steps):
    """A recurrent net without products: each step reads a row of its own."""
    def run(x, a, b):
        h = np.zeros_like(x[0])
        for t in range(steps):
            z = 1 / (1 + np.exp(-(x[t] * a + h * b)))
            h = z * h + (1 - z) * np.tanh(x[t] + h)
            h = h - h.mean(-1, keepdims=True)
        return h
    return traced(run, (steps, 4, 8), (8,), (8,))


def pixels(steps):
    """A convolution by loops: for each pixel a sum over its window; the sums one after the other."""
    def run(x, w):
        rows = [np.concatenate([np.sum(x[i:i + 2, j:j + 2, None] * w, axis=(0, 1))[None] for j in range(4)])
                for i in range(steps)]
        return rows
    return traced(run, (steps + 1, 5), (2, 2, 3))


PROGRAMS = {f.__name__: f for f in (jacobi, pressure, gates, pixels)}


@cache
def simplified(name, steps):
    """One graph for all strategies: planning changes none."""
    return simplify(PROGRAMS[name](steps))


def different(stages):
    return len(set(stages.digests))


@pytest.mark.parametrize(("name", "strategy"), [  # regions are cut before a strategy sees them
    *((name, strategy) for name in ("jacobi", "pixels") for strategy in EVERY),
    *((name, strategy) for name in ("pressure", "gates") for strategy in ("none", "astitch", "auto")), ("gates", "fs20")])
def test_more_rounds_of_a_loop_are_no_more_kernels_to_compile(name, strategy):
    few, many = (lowered(simplified(name, steps), strategy, "step", V100, "schedule") for steps in (24, 48))
    assert max(map(statements_of, many.kernels)) <= MOST
    assert different(many) <= different(few) + 3, "three at most for what does not divide evenly"
    assert different(many) <= 18, "an operation of a round each, at most"


@pytest.mark.parametrize("strategy", EVERY)
def test_planning_and_building_grow_with_the_rounds_of_a_loop(strategy):
    graphs = [simplified("gates", steps) for steps in (12, 36)]
    few, many = (calls_of(partial(lowered, g, strategy, "step", renamed(V100), "schedule")) for g in graphs)
    assert many < 3.3 * few


def decomposed(side):
    """npbench's lu: each round reads longer windows of what the rounds before it have written."""
    def run(a):
        for i in range(side):
            for j in range(i):
                a[i, j] -= a[i, :j] @ a[:j, j]
                a[i, j] /= a[j, j]
            for j in range(i, side):
                a[i, j] -= a[i, :i] @ a[:i, j]
        return a
    return traced(run, (side, side))


def test_simplifying_grows_with_the_program():
    few, many = decomposed(12), decomposed(24)
    assert calls_of(partial(simplify, many)) / calls_of(partial(simplify, few)) < 1.5 * len(many) / len(few)


def test_kernels_of_a_core_and_of_a_gpu_have_the_bound():
    for device in (CPU, V100):
        graph = simplify(pressure(12))
        assert max(statements_of(k) for k in lowered(graph, "astitch", "python", device, "schedule").kernels) <= MOST


def test_a_decision_says_where_and_why():
    plan = planned(simplify(jacobi(60)), "astitch", V100)
    (cut,) = [d for d in plan.decisions if d.rule == "region"][:1]
    assert "300 operations in 5 regions of at most 64" in cut.why


def test_short_programs_are_planned_whole():
    graph = simplify(traced(lambda x: np.tanh(x) + x.sum(-1, keepdims=True), (8, 16)))
    for name in EVERY:
        assert planned(graph, name, V100).patterns == fuse(graph, name, V100).patterns


# ---------------------------------------------------------------- cutting changes no bit
def outputs(graph, inputs, strategy, target, device):
    return assemble(lowered(graph, strategy, target, device), target).outputs([x.copy() for x in inputs])


def cut_everywhere(patch):
    patch.setattr(regions, "MOST_STITCHED", 2)
    patch.setattr(regions, "MOST_OPERATIONS", 4)
    patch.setattr(regions, "MOST_STATEMENTS", 12)


@pytest.mark.parametrize("strategy", EVERY)
def test_cut_programs_give_the_same_bits(strategy, monkeypatch):
    monkeypatch.setenv("MINISITCH_PLANS", "0")
    cut = 0
    for seed in range(10):
        graph = simplify(random_graph(np.random.default_rng(seed), max_nodes=24))
        inputs = random_inputs(graph, np.random.default_rng(seed), special=True)
        target, device = ("step", TOY) if seed % 5 == 0 else ("python", CPU)
        exact = not any(n.op in ("sum", "prod", "matmul", "cumsum", "cumprod") for n in graph.nodes)
        want = outputs(graph, inputs, strategy, target, device)
        with monkeypatch.context() as patch:
            cut_everywhere(patch)
            stages = lowered(graph, strategy, target, device)
            cut += any(d.rule == "region" for d in stages.plan.decisions)
            got = assemble(stages, target).outputs([x.copy() for x in inputs])
        for a, b in zip(want, got, strict=True):
            assert a.dtype == b.dtype
            if exact:
                assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (seed, str(graph))
            else:
                np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-2, atol=1e-2, equal_nan=True)
    assert cut > 4, "most are cut"


# ---------------------------------------------------------------- planning
def triangle(steps):
    """Every step writes a row one shorter than the last, so no two steps are equal."""
    def run(x):
        out = np.zeros_like(x)
        for i in range(steps):
            row = np.exp(x[i, i + 1:]) * 0.5
            out[i, i + 1:] = out[i + 1:, i] = row / np.sum(row)
        return out
    return traced(run, (steps + 1, steps + 1))


def test_auto_weighs_plans_of_few_of_many_different_regions(monkeypatch):
    """To weigh plans takes auto about a second a region; the rest of a long program is planned as AStitch has it, and says so."""
    graph = triangle(120)
    asked = []
    auto = STRATEGIES["auto"]
    monkeypatch.setattr(regions, "MOST_STATEMENTS", 2 * regions.MOST_STATEMENTS)  # none of its regions is too large to be weighed
    monkeypatch.setitem(STRATEGIES, "auto", lambda graph, device: asked.append(len(graph)) or auto(graph, device))
    plan = planned(graph, "auto", CPU)
    assert len(asked) == min(regions.MOST_WEIGHED, -(-len(graph) // regions.WEIGHED_PER)) > 1
    (first, *_) = [d.why for d in plan.decisions if d.rule == "region"]
    assert f"auto plans {len(asked)} of them, and astitch the others" in first


def test_auto_weighs_no_region_that_is_cut_again(monkeypatch):
    """Its parts are weighed: a region's ways took two seconds, and all of them were thrown away."""
    asked = []
    monkeypatch.setitem(STRATEGIES, "auto", lambda graph, device: asked.append(graph) or fuse(graph, "astitch", device))
    assert any(d.rule == "too-many-statements" for d in planned(simplify(blurs(40)), "auto", CPU).decisions)
    assert 0 < max(map(regions.evaluations, asked)) <= regions.MOST_STATEMENTS


def blurs(steps):
    """Both arrays of a stencil in turn, each from the other."""
    def run(a, b):
        for _ in range(steps):
            b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
            a[1:-1] = (b[:-2] + b[1:-1] + b[2:]) / 3
    return traced(run, (400,), (400,))


def covariances(side):
    """Each row and column that a round writes is one shorter, so kernels of many rounds are cut again and again."""
    def run(data):
        made = np.zeros((side, side))
        for i in range(side):
            made[i:, i] = made[i, i:] = data[:, i] @ data[:, i:] / 7.0
        return made
    return traced(run, (5, side))


def test_auto_weighs_few_parts_of_the_kernels_that_are_cut(monkeypatch):
    """The nodes that auto weighs do not grow with the kernels that have too many statements."""
    asked = []
    monkeypatch.setitem(STRATEGIES, "auto", lambda graph, device: asked.append(len(graph)) or fuse(graph, "astitch", device))
    plan = planned(simplify(covariances(200)), "auto", V100)
    assert sum(d.rule == "too-many-statements" for d in plan.decisions) > 4
    assert sum(asked) < 2 * regions.WEIGHED_NODES * regions.MOST_WEIGHED


# ---------------------------------------------------------------- too many different kernels
def solve(low, x, b):
    """Forward substitution. Round i reads i elements, so no two rounds are equal."""
    for i in range(x.shape[0]):
        x[i] = (b[i] - low[i, :i] @ x[:i]) / low[i, i]
    return x, b


def system(size):
    rng = np.random.default_rng(0)
    return np.tril(rng.random((size, size))) + size * np.eye(size), np.zeros(size), rng.random(size)


def test_programs_that_compile_longer_than_a_minute_are_left_to_numpy_before_they_are_planned(monkeypatch):
    """npbench's covariance, gramschmidt, syrk and trmm: 4,000 to 10,000 statements, a minute or more to compile."""
    monkeypatch.setattr(regions, "MOST_COMPILED", regions.MOST_COMPILED // 10)
    asked = []
    monkeypatch.setitem(STRATEGIES, "auto", lambda graph, device: asked.append(graph) or fuse(graph, "astitch", device))
    assert runs_in_numpy(planned(simplify(covariances(120)), "auto", CPU)) and not asked


@pytest.mark.parametrize("strategy", EVERY)
def test_numpy_runs_a_program_of_too_many_different_kernels(strategy, monkeypatch):
    monkeypatch.setenv("MINISITCH_PLANS", "0")
    monkeypatch.setattr(regions, "MOST_COMPILED", 200)
    low, x, b = system(24)
    want = solve(low, x.copy(), b)[0]
    f = ms.jit(solve, strategy=strategy, target="python")
    with pytest.warns(ms.LoopWarning, match=r"test_right_hang.py:\d+: .* NumPy runs this program as it is. Write the loop"):
        got, same = f(low, x, b)
    assert np.array_equal(got, want) and np.array_equal(x, want) and np.array_equal(same, b)
    assert not np.shares_memory(got, x) and not np.shares_memory(same, b), "results are new arrays"
    f(low, x, b)  # without another warning
    report = ms.explain(f, low, x, b)
    assert not report.stages.kernels and runs_in_numpy(report.stages.plan) and "too-many-kernels" in str(report)
    program = ms.trace(solve, (low, x, b), {})
    graph_alone = assemble(lowered(program.graph, strategy, "python", CPU), "python")
    assert np.array_equal(graph_alone.outputs([low, np.zeros_like(x), b])[0], want)


def test_only_different_kernels_of_a_core_count(monkeypatch):
    """Equal rounds are compiled once. A GPU has no NumPy between its kernels."""
    assert not runs_in_numpy(planned(simplify(jacobi(300)), "astitch", CPU))
    monkeypatch.setattr(regions, "MOST_COMPILED", 200)
    rounds = simplify(ms.trace(solve, system(24), {}).graph)
    assert runs_in_numpy(planned(rounds, "astitch", CPU)) and not runs_in_numpy(planned(rounds, "astitch", V100))
    monkeypatch.setattr(regions, "MOST_COMPILED", 10**6)
    assert not runs_in_numpy(planned(rounds, "astitch", CPU))


def test_a_program_that_numpy_runs_is_compared_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path))
    monkeypatch.delenv("MINISITCH_PLANS", raising=False)
    monkeypatch.setattr(regions, "MOST_COMPILED", 200)
    monkeypatch.setattr(plans, "WORTH_KEEPING_S", 0.0)
    graph = simplify(ms.trace(solve, system(24), {}).graph)
    first, again = (plans.plan_of(graph, "xla", CPU) for _ in range(2))
    assert first == again and runs_in_numpy(again) and list(tmp_path.rglob("*.plan"))
    compared = ms.compare(solve, *system(24), strategies=["none"], target="python")
    assert "NumPy runs none one operation at a time" in str(compared)
    row = compared.rows[0]
    assert (row.kernels, row.library_calls) == (0, 1) and row.modelled_us > 10, "each operation is counted"
