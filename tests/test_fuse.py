"""Fusion plans: what they mean when run pattern by pattern, what is refused, and that size does not hurt."""

import cProfile
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import layernorm, softmax, softmaxes
from stitch_help import BASIC, CPU, ROOT, V100, lowered, program, traced

from minisitch.errors import PlanError
from minisitch.fuse import (
    MOST_ARGUMENTS,
    STRATEGIES,
    VIEWS,
    FusionPlan,
    Pattern,
    is_fusible,
    is_heavy,
    make_plan,
    pattern_inputs,
    read_in_place,
    strategy,
    stretches,
    verify_plan,
    view_source,
)
from minisitch.graph import TensorType
from minisitch.reference import apply, evaluate
from minisitch.runtime import compile_graph, steps
from minisitch.simplify import simplify
from minisitch.stitch.body import extract
from minisitch.stitch.windows import body_of
from minisitch.strategies.ask import fuse
from minisitch.strategies.astitch import astitch
from minisitch.strategies.prices import digest
from minisitch.testing import arrays_for, check_graph, graphs, random_graph, random_inputs
from minisitch.testing.judge import judge
from minisitch.trace import trace
from minisitch.trace.builder import Builder
from minisitch.trace.parser import parse


# ---------------------------------------------------------------- a plan as a program
def run_plan(plan, inputs):
    """Execute a plan with the reference, pattern by pattern, each reading only what is in memory."""
    graph = plan.graph
    memory = dict(zip(graph.inputs, map(np.asarray, inputs), strict=True))
    for pattern in plan.patterns:
        assert set(pattern_inputs(graph, pattern)) <= memory.keys()
        if pattern.kind != "library":
            body = body_of(graph, pattern)
            results = evaluate(body.graph, [_seen_from(memory[v], o) for v, o in zip(body.inputs, body.offsets, strict=True)])
            fresh = dict(zip(body.outputs, results, strict=True))
        else:
            node = graph[pattern.members[0]]
            fresh = {node.id: apply(node, [_viewed(graph, a, memory) for a in node.args])}
        assert not fresh.keys() & memory.keys()
        memory.update(fresh)
    return [memory[read_in_place(graph, o)].reshape(graph[o].type.shape) for o in graph.outputs]


def _seen_from(array, offset):
    """What a kernel sees of a value from an element on: what lies before it comes last, where nobody looks."""
    return np.roll(array.reshape(-1), -offset).reshape(array.shape)


def _viewed(graph, value, memory):
    """A library call's operand: what is in memory, through views."""
    chain, source = [], view_source(graph, value)
    while value != source:
        chain.append(graph[value])
        value = graph[value].args[0]
    seen = memory[value]
    for node in reversed(chain):
        seen = apply(node, [seen])
    return seen


def check_plan(graph, inputs, name):
    plan = fuse(graph, name, V100)
    assert plan == fuse(graph, name, V100), "twice is equal"
    assert verify_plan(plan) is plan and plan.strategy == name
    graph = plan.graph  # a strategy may have rewritten it
    fused = [m for p in plan.patterns for m in p.members if p.kind == "kernel"]
    assert all(graph[m].kind != "library" for m in fused)
    piped = {m for p in plan.pipelines for m in p.members}
    assert {p.members[0] for p in plan.library_calls} == {n.id for n in graph.nodes if n.kind == "library" and n.id not in piped}
    assert all(p.outputs for p in plan.patterns)
    verdicts = judge(graph, inputs, run_plan(plan, inputs))
    assert all(v.ok for v in verdicts), f"{[v.why for v in verdicts]}\n{graph}\n{plan}"
    return plan


@given(st.data())
def test_a_plan_means_what_its_graph_means(data):
    graph = data.draw(graphs(max_nodes=14))
    inputs = data.draw(arrays_for(graph))
    with np.errstate(all="ignore"):
        for name in BASIC:
            check_plan(graph, inputs, name)


@pytest.mark.parametrize("name", BASIC)
def test_many_plans(name):
    for seed in range(150):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, max_nodes=40, max_elements=300)
        with np.errstate(all="ignore"):
            check_plan(graph, random_inputs(graph, rng), name)


def test_plan_prints(golden):
    graph = traced(softmax, (64, 128))
    golden("softmax_plans", "\n\n".join(str(fuse(graph, name, V100)) for name in BASIC))


# ---------------------------------------------------------------- mutants
MUTABLE = program("f32[8,16] = input name='x'", "f32[8,16] = exp %0", "f32[8,1] = sum %1 axes=(1,) keepdims=True",
                  "f32[8,16] = broadcast %2 shape=(8, 16)", "f32[8,16] = div %1 %3", "f32[16,8] = transpose %4 perm=(1, 0)",
                  "f32[8,8] = matmul %4 %5", "f32[8,8] = tanh %6", "return %7")


def plan_of(*patterns):
    return FusionPlan(MUTABLE, "mutant", patterns)


EXP, SUM, DIV = Pattern((1,), (1,)), Pattern((2,), (2,)), Pattern((3, 4), (4,))
PRODUCT, TANH = Pattern((6,), (6,), "library"), Pattern((7,), (7,))


def test_the_plan_that_the_mutants_come_from():
    verify_plan(plan_of(EXP, SUM, DIV, PRODUCT, TANH))
    assert [p.outputs for p in fuse(MUTABLE, "xla", V100).patterns] == [(1,), (2,), (4,), (6,), (7,)]


@pytest.mark.parametrize(("patterns", "message"), [
    ((EXP, SUM, DIV, PRODUCT), r"no pattern writes output %7 tanh"),
    ((EXP, DIV, SUM, PRODUCT, TANH), r"writes \(4,\) reads %2 before it is written"),
    ((EXP, DIV, PRODUCT, TANH), r"reads %2 before it is written"),
    ((EXP, SUM, DIV, TANH, PRODUCT), r"writes \(7,\) reads %6 before"),
    ((EXP, SUM, SUM, DIV, PRODUCT, TANH), r"%2 sum is written by two patterns"),
    ((EXP, replace(SUM, members=(1, 2), outputs=(1, 2)), DIV, PRODUCT, TANH), r"%1 exp is written by two patterns"),
    ((replace(EXP, outputs=()), SUM, DIV, PRODUCT, TANH), r"reads %1 before"),
    ((EXP, replace(SUM, outputs=(2, 4)), PRODUCT, TANH), r"writes %4, which is not its member"),
    ((EXP, SUM, DIV, replace(PRODUCT, kind="kernel"), TANH), r"%6 matmul is a library call; it cannot be inside a kernel"),
    ((EXP, SUM, DIV, replace(TANH, members=(6, 7))), r"%6 matmul is a library call; it cannot be inside a kernel"),
    ((Pattern((0,), (0,)), EXP, SUM, DIV, PRODUCT, TANH), r"%0 input is written by two patterns"),
    ((), r"output %7"),
])
def test_mutated_plans_are_refused(patterns, message):
    with pytest.raises(PlanError, match=message):
        verify_plan(plan_of(*patterns))


def test_a_circle_is_refused():
    """exp and tanh in one kernel: it would need the product that needs it."""
    with pytest.raises(PlanError, match=r"strategy mutant: kernels wait in a circle, among those that write .*\(1, 7\)"):
        make_plan(MUTABLE, "mutant", [[1, 7], [2], [4]])
    verify_plan(make_plan(MUTABLE, "mutant", [[1, 2, 4], [7]]))


def test_recomputing_is_not_doubling():
    """A value may be evaluated in two kernels; only one writes it."""
    plan = make_plan(MUTABLE, "mutant", [[1, 2], [1, 3, 4], [7]])
    assert [p.members for p in plan.kernels] == [(1, 2), (1, 3, 4), (7,)]
    assert [p.outputs for p in plan.kernels] == [(2,), (4,), (7,)]
    shared = make_plan(MUTABLE, "mutant", [[1, 2], [4], [7]])
    assert [p.outputs for p in shared.kernels] == [(1, 2), (4,), (7,)], "the first kernel that holds it writes it"


def test_what_nobody_holds_gets_a_kernel():
    graph = program("f32[4] = input name='x'", "f32[4] = constant value=2.0", "f32[4] = slice %0 size=(4,) start=(3,) step=(-1,)",
                    "return %1 %2 %0")
    plan = make_plan(graph, "nothing", [])
    assert sorted(p.outputs for p in plan.patterns) == [(1,), (2,)]
    assert [np.asarray(r).tolist() for r in run_plan(plan, [np.arange(4, dtype=np.float32)])] == \
        [[2.0] * 4, [3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]]


@pytest.mark.parametrize("axis", [0, 1])
def test_steps_of_an_unrolled_loop_have_one_body(axis):
    """Each reads a window of the same array, further on: one kernel, seen from other elements."""
    def unrolled(x, w):
        h = np.zeros((4, 8), np.float32)
        for t in range(6):
            h = np.tanh(h @ w + np.take(x, t, axis=axis))
        return h
    shape = (6, 4, 8) if axis == 0 else (4, 6, 8)
    graph = traced(unrolled, shape, (8, 8))
    stages = lowered(graph, "astitch", "python", V100)
    bodies = [body for body in stages.bodies if len(body.inputs) == 2]
    assert len(bodies) == 6 and len({stages.digests[stages.bodies.index(b)] for b in bodies}) == 1
    stride = 32 if axis == 0 else 8
    assert sorted(max(b.offsets) for b in bodies) == [stride * t for t in range(6)]
    rng = np.random.default_rng(0)
    check_graph(graph, [rng.standard_normal(shape, np.float32), rng.standard_normal((8, 8), np.float32)],
                lambda g, arrays: compile_graph(g, "astitch", "python").outputs(arrays))


@pytest.mark.parametrize("lines", [
    ["f32[9] = input name='x'", "f32[4] = slice %0 size=(4,) start=(0,) step=(1,)", "f32[4] = slice %0 size=(4,) start=(3,) step=(1,)",
     "f32[4] = add %1 %2"],  # two windows from the beginning on: one argument, as before
    ["f32[9] = input name='x'", "f32[4] = slice %0 size=(4,) start=(8,) step=(-2,)", "f32[4] = neg %1"],  # backwards
    ["f32[4] = input name='x'", "f32[2] = slice %0 size=(2,) start=(1,) step=(1,)", "f32[2] = exp %1", "f32[4] = exp %0",
     "f32[6] = concatenate %2 %3 axis=0"],  # all of it is read too
], ids=["two-windows", "backwards", "read-whole"])
def test_what_is_not_one_window_stays_an_argument(lines):
    graph = parse("\n".join([*(f"%{i}: {line}" for i, line in enumerate(lines)), f"return %{len(lines) - 1}"]))
    (body,) = [body_of(graph, p) for p in fuse(graph, "astitch", V100).kernels]
    assert body.offsets == (0,) and "length" not in str(body.graph)


def test_a_body_of_windows_is_the_plain_body_from_an_element_on():
    lines = ["f32[6,8] = input name='x'", "f32[1,8] = slice %0 size=(1, 8) start=(2, 0) step=(1, 1)",
             "f32[1,8] = slice %0 size=(1, 8) start=(3, 0) step=(1, 1)", "f32[1,8] = mul %1 %2"]
    graph = parse("\n".join([*(f"%{i}: {line}" for i, line in enumerate(lines)), "return %3"]))
    pattern, = fuse(graph, "astitch", V100).kernels
    plain, body = extract(graph, pattern), body_of(graph, pattern)
    assert (body.inputs, body.outputs, body.origin, body.offsets) == (plain.inputs, plain.outputs, plain.origin, (16,))
    assert [n.attributes.get("start", n.attributes.get("length")) for n in plain.graph.nodes] == [None, (2, 0), (3, 0), None]
    assert [n.attributes.get("start", n.attributes.get("length")) for n in body.graph.nodes] == [16, (0, 0), (1, 0), None]


def test_unknown_strategies_are_refused_and_own_ones_taken():
    with pytest.raises(PlanError, match=r"unknown strategy 'magic'; known: astitch, auto, fs18, fs18-dot, fs20, kitsune, none, xla"):
        fuse(MUTABLE, "magic", V100)

    @strategy("everything-alone")
    def alone(graph, device):
        return make_plan(graph, "everything-alone", [[n.id] for n in graph.nodes if is_fusible(n) and n.op not in VIEWS])

    try:
        assert len(fuse(MUTABLE, "everything-alone", V100).kernels) == 4
    finally:
        del STRATEGIES["everything-alone"]


def test_the_packages_own_strategies_are_not_replaced():
    with pytest.raises(PlanError, match="'fs20' is a strategy of this package; register yours under another name"):
        strategy("fs20")(lambda graph, device: fuse(graph, "none", device))


# ---------------------------------------------------------------- what strategies ask
def test_costs_and_stretching():
    graph = program("f32[8,1] = input name='x'", "f32[8,1] = constant value=2.0", "f32[8,1] = div %0 %1", "f32[8,1] = exp %2",
                    "f32[8,16] = broadcast %3 shape=(8, 16)", "f32[8,1] = div %1 %0", "f32[8] = reshape %5 shape=(8,)",
                    "f32[8,1] = reshape %6 shape=(8, 1)", "f32[8,2] = broadcast %7 shape=(8, 2)", "return %4 %8")
    assert not is_heavy(graph, graph[2]), "dividing by a constant is light"
    assert is_heavy(graph, graph[3]) and is_heavy(graph, graph[5])
    assert stretches(graph, graph[3]) and stretches(graph, graph[5]), "reshapes in between included"
    assert not stretches(graph, graph[2])


def test_views_are_read_through():
    graph = program("f32[4,6] = input name='x'", "f32[6,4] = transpose %0 perm=(1, 0)", "f32[24] = reshape %1 shape=(24,)",
                    "f32[2,12] = reshape %2 shape=(2, 12)", "f32[2,3] = slice %3 size=(2, 3) start=(0, 2) step=(1, 1)")
    assert read_in_place(graph, 3) == 1, "a reshape costs nothing; of a transpose it is a copy"
    assert view_source(graph, 4) == 1 and view_source(graph, 1) == 0


def test_equal_patterns_have_equal_bodies():
    def two(x, y):
        return softmax(x), softmax(y)
    graph = traced(two, (4, 8), (4, 8))
    first, second = (extract(graph, p) for p in (make_plan(graph, "s", [[2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15]])).kernels)
    assert first.graph.structure == second.graph.structure and digest(first.graph) == digest(second.graph)
    assert first.origin != second.origin and len(first.origin) == len(first.graph)
    assert [graph[o].op for o in first.origin] == [n.op for n in first.graph.nodes]


# ---------------------------------------------------------------- size
def _bert():
    import importlib.util
    spec = importlib.util.spec_from_file_location("bert", ROOT / "benchmarks" / "models" / "bert.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def layers(count):
    """``count`` equal encoder layers, the mask and weights shared."""
    bert = _bert()
    function, (x, mask, weights, heads) = bert.make("small")

    def model(x, mask, weights):
        for _ in range(count):
            x = function(x, mask, weights, heads)
        return x
    return trace(model, (x, mask, weights)).graph


def chain(count):
    b = Builder()
    x = b.add("input", type=TensorType((64, 128)), name="x")
    for k in range(count):
        x = b.add(("neg", "tanh", "sin")[k % 3], [x])
    return b.finish([x])


def wide(count):
    b = Builder()
    x, outs = b.add("input", type=TensorType((64, 128)), name="x"), []
    for k in range(count // 20):
        y = b.add("add", [x, b.add("constant", type=TensorType((64, 128)), value=float(k + 1))])
        for j in range(17):
            y = b.add(("sin", "tanh")[j % 2], [y])
        outs.append(y)
    y = outs[0]
    for o in outs[1:]:
        y = b.add("add", [y, o])
    return b.finish([y])


def stencil(steps):
    """Each step reads four shifted windows of the last."""
    b = Builder()
    x = b.add("input", type=TensorType((66, 130)), name="x")
    for _ in range(steps):
        windows = [b.add("slice", [x], size=(64, 128), start=at, step=(1, 1)) for at in ((0, 1), (2, 1), (1, 0), (1, 2))]
        total = b.add("add", [b.add("add", windows[:2]), b.add("add", windows[2:])])
        total = b.add("mul", [total, b.add("constant", type=TensorType((64, 128)), value=0.25)])
        x = b.add("update", [x, total], start=(1, 1), step=(1, 1))
    return b.finish([x])


def steps_of_products(count):
    def repeated(x, w):
        for _ in range(count):
            x = np.tanh(x @ w + 1)
        return x
    return traced(repeated, (64, 128), (128, 128))


# What builds a large graph, its full size, and the size from which it is doubled to see how planning grows.
LARGE = {"chain": (chain, 10_000, 250), "wide": (wide, 5_000, 400), "layers": (layers, 100, 5), "softmaxes": (lambda k: traced(softmaxes(k), (64, 128)), 700, 20),
         "stencil": (stencil, 60, 8), "products": (steps_of_products, 3_300, 60)}
MILLION_CALLS = {"fs20": 30.0}  # of Python functions; others have 12. Here a million took 0.2 to 0.6 seconds


@cache
def large(name, count):
    """One graph for all strategies: planning changes none."""
    return simplify(LARGE[name][0](count))


def calls(graph, strategy_name):
    """How many Python functions planning calls: the same on every machine, busy or not."""
    profile = cProfile.Profile(subcalls=False, builtins=False)
    profile.runcall(lowered, graph, strategy_name, "step", V100, "schedule")
    return sum(entry.callcount for entry in profile.getstats())


HELD_ELSEWHERE = {("softmaxes", "fs18"), ("softmaxes", "fs20")}  # test_fs18_programs and test_fs20_kernels allow less growth


@pytest.mark.parametrize(("name", "strategy_name"), [(n, s) for n in LARGE for s in (*BASIC, "fs18", "fs20", "auto")
                                                     if (n, s) not in HELD_ELSEWHERE])
def test_planning_grows_with_the_nodes(name, strategy_name, monkeypatch):
    """Twice the nodes are about twice the work; a quadratic pass would make it four times."""
    monkeypatch.setenv("MINISITCH_PLANS", "0")
    count = LARGE[name][2]
    if name in ("layers", "softmaxes") and strategy_name in ("fs20", "auto"):  # they try many plans
        count //= 2
    few, many = (calls(large(name, k), strategy_name) for k in (count, 2 * count))
    assert many < 2.7 * few


@pytest.mark.slow
@pytest.mark.parametrize("strategy_name", [*BASIC, "fs18", "fs20", "auto"])
@pytest.mark.parametrize("name", LARGE)
def test_large_graphs_plan_in_time(name, strategy_name, monkeypatch):
    """Up to ten thousand nodes under every strategy. ``--durations=0`` shows the time."""
    monkeypatch.setenv("MINISITCH_PLANS", "0")
    build, count, _ = LARGE[name]
    assert calls(simplify(build(count)), strategy_name) < 1e6 * MILLION_CALLS.get(strategy_name, 12.0)


@pytest.mark.parametrize("name", BASIC)
def test_equal_layers_are_emitted_once(name):
    twelve, six = (lowered(layers(n), name, "step", V100) for n in (12, 6))
    different = {s.text for s in twelve.sources}
    assert len(different) == len({id(s) for s in twelve.sources}), "one emission a structure"
    assert len(different) == len({s.text for s in six.sources}), "layers add none"
    assert len(twelve.plan.kernels) > len(six.plan.kernels) + 6 > len(different)


def test_equal_layers_are_compiled_once():
    """Twelve layers, as many builds as six: a build is a compile by Numba on the CPU target."""
    six, twelve = (lowered(layers(count), "astitch", "cpu", CPU) for count in (6, 12))
    first, second = (steps.build_kernels(stages, "python") for stages in (six, twelve))
    assert len(set(first.values())) < len(six.kernels)
    assert set(second.values()) == set(first.values()), "the second model finds every kernel built"


def test_argument_limits():
    """200 inputs added up: few kernels of at most 64 arguments, whatever crosses between them included."""
    b = Builder()
    xs = [b.add("input", type=TensorType((2, 3)), name=f"x{i}") for i in range(200)]
    es = [b.add("exp", [x]) for x in xs]
    y = es[0]
    for e in es[1:]:
        y = b.add("add", [y, e])
    graph = b.finish([y])
    inputs = [np.full((2, 3), i / 100, np.float32) for i in range(200)]
    for name in ("xla", "astitch"):
        plan = fuse(graph, name, V100)
        assert max(arguments(plan, p) for p in plan.kernels) <= 64
        assert 4 <= len(plan.kernels) <= 10
        assert any(d.rule == "argument-limit" for d in plan.decisions)
        check_plan(graph, inputs, name)
    few = traced(layernorm, (4, 8), (8,), (8,))
    assert not any(d.rule == "argument-limit" for name in BASIC for d in fuse(few, name, V100).decisions)


def crowded(rng):
    """A program of many inputs and results. Values meet in sums, rows, columns and products."""
    b = Builder()
    inputs = [b.add("input", type=TensorType((8, 8)), name=f"x{i}") for i in range(rng.integers(40, 110))]
    values = [*inputs]
    for x in inputs:
        value = values[rng.integers(max(0, len(values) - 60), len(values))]
        match rng.integers(8):
            case 0:
                value = b.add("tanh", [value])
            case 1 | 2:
                axis = int(rng.integers(2))
                value = b.add("broadcast", [b.add("max", [value], axes=(axis,), keepdims=True)], shape=(8, 8))
            case 3 if rng.random() < 0.3:
                value = b.add("matmul", [value, x])
        values.append(b.add("add", [x, value]))
    results = rng.choice(values[len(inputs):], rng.integers(1, len(inputs)), replace=False)
    return simplify(b.finish([int(r) for r in results]))


@pytest.mark.parametrize("name", [*sorted(STRATEGIES), "outside"])
def test_no_kernel_has_more_arguments_than_the_limit(name, monkeypatch):
    """Under no strategy, one from outside the package included. The results stay the reference's."""
    monkeypatch.setitem(STRATEGIES, "outside", lambda graph, device: replace(astitch(graph, device), strategy="outside"))
    too_large = 0
    for seed in [6] if name in ("auto", "fs20") else range(8):
        rng = np.random.default_rng(seed)
        graph = crowded(rng)
        plan = check_plan(graph, random_inputs(graph, rng), name)
        assert max(arguments(plan, pattern) for pattern in plan.kernels) <= MOST_ARGUMENTS
        proposed = astitch(graph, V100)
        too_large += any(arguments(proposed, pattern) > MOST_ARGUMENTS for pattern in proposed.kernels)
    assert too_large, "no kernel is cut"


def arguments(plan, pattern):
    return len(pattern_inputs(plan.graph, pattern)) + len(pattern.outputs)


@pytest.mark.parametrize("wrong", [99, -1, 0, "1"])
def test_a_group_of_what_is_no_operation_is_refused(wrong):
    graph = parse("%0: f32[4] = input name='x'\n%1: f32[4] = exp %0\nreturn %1")
    with pytest.raises(PlanError, match="strategy mine: .* may hold ids"):
        make_plan(graph, "mine", [[1, wrong]])
