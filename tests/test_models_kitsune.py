"""Kitsune's workloads: what they compute, how many operators they have, what the published models have."""

import importlib
import inspect
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms
from minisitch.fuse import VIEWS
from minisitch.graph import TensorType
from minisitch.simplify import simplify
from minisitch.strategies.kitsune.select import select
from minisitch.testing.judge import judge
from minisitch.trace import flatten, trace

ROOT = Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "benchmarks" / "models"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import operators as written  # noqa: E402

from benchmarks.counting import FILE, computing, fused, operators  # noqa: E402

WORKLOADS = ("dlrm", "graphcast", "meshgraphnets", "nerf", "llama_context", "llama_token")
COUNTS = {"dlrm": 21, "graphcast": 42, "meshgraphnets": 54, "nerf": 24, "llama_context": 27, "llama_token": 27}
RESIDUALS = {"graphcast": 5, "meshgraphnets": 3}  # additions that the paper does not count


@cache
def full(name):
    """The full preset's graph: only shapes, nothing is computed."""
    function, arguments = importlib.import_module(name).make("full")
    return simplify(trace(function, arguments).graph)


@cache
def traced(name):
    """The small preset's trace, for all that only look at it."""
    return trace(*importlib.import_module(name).make("small"))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_traced_workload_is_what_numpy_computes(name):
    function, arguments = importlib.import_module(name).make("small")
    program = traced(name)
    inputs = [x.copy() for x in (*flatten(arguments)[0], *program.captured)]
    verdicts = judge(program.graph, inputs, [*flatten(function(*arguments))[0], *flatten(arguments[2])[0][:2 * ("llama" in name)]])
    assert verdicts and all(v.ok for v in verdicts), [v.why for v in verdicts]


# Stepped in the slow tier: an operation a kernel on the largest graphs (the others have the same operations), and the small
# llama_token under auto, whose kernels are astitch's.
LONG = {("graphcast", "none"), ("meshgraphnets", "none"), ("llama_token", "none"), ("llama_token", "auto")}


@pytest.mark.parametrize(("name", "strategy"), [
    pytest.param(name, strategy, marks=pytest.mark.slow if (name, strategy) in LONG else ())
    for name in WORKLOADS for strategy in ("none", "astitch", "auto")])
def test_a_workload_is_what_the_stepper_computes(name, strategy):
    function, arguments = importlib.import_module(name).make("small")
    program = traced(name)
    inputs = [x.copy() for x in (*flatten(arguments)[0], *program.captured)]
    got = flatten(ms.jit(function, strategy=strategy, target="step")(*arguments))[0]
    verdicts = judge(program.graph, inputs, [*got, *flatten(arguments[2])[0][:2 * ("llama" in name)]])
    assert verdicts and all(v.ok for v in verdicts), [v.why for v in verdicts]


# ---------------------------------------------------------------- operators
@pytest.mark.parametrize("name", WORKLOADS)
def test_operators_are_counted_as_they_are_called(name, monkeypatch):
    """What the graph's lines say is what was called; nothing computes outside of an operator."""
    function, arguments = importlib.import_module(name).make("small")
    calls = Counter()

    def counted(operator):
        def call(*args, **named):
            calls[operator.__name__] += 1
            return operator(*args, **named)
        return call
    for module in map(sys.modules.get, {name, function.__module__}):
        for key, value in inspect.getmembers(module, inspect.isfunction):
            if value.__module__ == "operators":
                monkeypatch.setattr(module, key, counted(value))
    function(*arguments)
    monkeypatch.undo()
    graph = simplify(traced(name).graph)
    calls["add"] -= name == "meshgraphnets"  # nobody reads the edges after the last step
    assert Counter(o.name for o in operators(graph)) == +calls
    assert all(n.where.startswith(f"{FILE}:") for n in graph.nodes if n.kind != "source" and n.op not in VIEWS)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_papers_count_is_met_but_for_residuals(name):
    paper = importlib.import_module(name).PAPER["kitsune"]["operators"]
    found = operators(full(name))
    assert len(found) == COUNTS[name]
    additions = sum(o.name == "add" for o in found) if name in RESIDUALS else 0
    assert additions == RESIDUALS.get(name, 0)
    assert len(found) - additions == paper + 2 * (name == "graphcast")


@pytest.mark.parametrize("name", WORKLOADS)
def test_at_least_the_papers_share_of_operators_is_selected(name):
    graph = full(name)
    found = operators(graph)
    paper = importlib.import_module(name).PAPER["kitsune"]
    inside = fused(graph, found, [s.nodes for s in select(graph).subgraphs])
    assert len(inside) / len(found) >= paper["fused"]["kitsune"] / paper["operators"]
    left = {o.name for o in found} - {o.name for o in inside}
    assert left <= {"embedding", "gather", "aggregate", "edge_inputs", "node_inputs", "remember", "repeat_heads", "linear"}


def test_an_operator_called_on_its_own_result_is_two():
    def twice(x, weights):
        return written.relu(written.linear(written.linear(x, weights, "w"), weights, "v"))
    weights = {"w": TensorType((4, 4)), "w/bias": TensorType((4,)), "v": TensorType((4, 4)), "v/bias": TensorType((4,))}
    graph = simplify(trace(twice, [TensorType((2, 4)), weights]).graph)
    assert [o.name for o in operators(graph)] == ["linear", "linear", "relu"]
    assert [len(computing(graph, o)) for o in operators(graph)] == [2, 2, 1]
    first, second, last = operators(graph)
    assert fused(graph, [first, second, last], [(*first.nodes, *second.nodes), last.nodes]) == [first, second]
    assert fused(graph, [first, second, last], [[n for n in (*second.nodes, *last.nodes) if graph[n].op != "matmul"]]) == []


# ---------------------------------------------------------------- the published sizes
@pytest.mark.parametrize("name, parameters", [
    ("nerf", 595_844),  # nerf-pytorch's NeRF(D=8, W=256) with viewing directions
    ("dlrm", 171_392 + 2_197_505 + 26_000_000 * 128),  # 13-512-256-128, 479-1024-1024-512-256-1, and the tables
    ("llama_context", 218_112_000 + 2 * 128256 * 4096 + 4096),  # a layer of Llama 3 8B, embedding and head, the last norm
    ("llama_token", 218_112_000 + 2 * 128256 * 4096 + 4096),
])
def test_the_weights_are_the_published_models(name, parameters):
    weights = next(a for a in importlib.import_module(name).make("full")[1] if isinstance(a, dict))
    assert sum(np.prod(w.shape, dtype=np.int64) for w in weights.values()) == parameters


def test_rotary_positions_turn_pairs():
    """The product of two turned vectors depends on how far apart they are, and lengths stay."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1, 1, 1, 8))
    angle = np.arange(20)[:, None] * 500000.0 ** (-np.arange(0, 8, 2) / 8)

    def turned(v, at):
        return written.rotary(v, np.cos(angle[at:at + 1]), np.sin(angle[at:at + 1]))[0, 0, 0]
    np.testing.assert_allclose(turned(x, 3) @ turned(y, 7), turned(x, 12) @ turned(y, 16))
    np.testing.assert_allclose(np.linalg.norm(turned(x, 11)), np.linalg.norm(x))
    first = x[0, 0, 0, 0] + 1j * x[0, 0, 0, 1]
    turned_first = first * np.exp(1j * angle[5, 0])
    np.testing.assert_allclose(turned(x, 5)[:2], [turned_first.real, turned_first.imag])


def test_a_token_at_a_time_is_the_context_at_once():
    """Llama's cache: what the token phase says after four tokens is what the context phase says of five."""
    import llama
    size = (1, 9, 16, 24, (4, 2), 30)
    _, (tokens, weights, cache, angles, mask, heads, _) = llama.program(size, 5, 0, False)
    whole = llama.llama(tokens, weights, tuple(c.copy() for c in cache), angles, mask, heads, 0)
    _, (_, _, _, late, last, _, _) = llama.program(size, 1, 4, False)
    memory = tuple(c.copy() for c in cache)
    llama.llama(tokens[:, :4], weights, memory, tuple(a[:4] for a in angles), mask[:4, :4], heads, 0)
    one = llama.llama(tokens[:, 4:], weights, memory, late, last, heads, 4)
    np.testing.assert_allclose(one[:, 0], whole[:, 4], rtol=1e-4, atol=1e-5)


def test_sums_over_edges_and_ends():
    edges, nodes = np.arange(6.0).reshape(3, 2), np.arange(8.0).reshape(4, 2)
    senders, receivers = np.array([0, 1, 3]), np.array([2, 2, 0])
    np.testing.assert_array_equal(written.aggregate(edges, receivers, 4), [[4, 5], [0, 0], [2, 4], [0, 0]])
    np.testing.assert_array_equal(written.node_inputs(edges, receivers, nodes)[2], [2, 4, 4, 5])
    np.testing.assert_array_equal(written.edge_inputs(edges, nodes, nodes, senders, receivers)[1], [2, 3, 2, 3, 4, 5])
