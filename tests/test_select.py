"""Subgraph selection: patterns match and refuse, every subgraph is contiguous, decisions say why (Kitsune B5, row 62)."""

import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import layernorm, softmax
from stitch_help import program, traced

from minisitch.fuse import VIEWS, topological
from minisitch.graph import TensorType
from minisitch.simplify import simplify
from minisitch.strategies.kitsune.select import LIBRARY, OperatorPattern, outside, select, spell
from minisitch.testing import graphs
from minisitch.trace.builder import Builder

selection = sys.modules["minisitch.strategies.kitsune.select"]  # the package has a function of this name


def relu(x):
    return np.maximum(x, 0.0)


def selected(function, *inputs):
    """The pattern of each subgraph with the operations in it, of a simplified program."""
    graph = simplify(traced(function, *inputs))
    return [(s.pattern, [graph[n].op for n in s.nodes if graph[n].op not in VIEWS]) for s in select(graph).subgraphs]


def mlp(x, up, bias, down):
    return relu(x @ up + bias) @ down


MLP = ((32, 64), (64, 128), (128,), (128, 64))


# ---------------------------------------------------------------- what the patterns find
@pytest.mark.paper(62)
def test_the_papers_three_patterns():
    """Linear, element-wise, linear; a product and its reduction; one operation that feeds two products."""
    assert selected(mlp, *MLP) == [("mlp", ["matmul", "add", "maximum", "matmul"])]
    assert selected(lambda x, w: np.sum(x @ w, axis=0), (32, 64), (64, 8)) == [("reduction", ["matmul", "sum"])]
    both = selected(lambda x, u, v: (np.tanh(x) @ u, np.exp(np.tanh(x) @ v)), (4, 8), (8, 8), (8, 8))
    assert both == [("multicast", ["tanh", "matmul", "matmul", "exp"])]


def test_layers_that_share_their_weights_are_no_siblings():
    """What a sibling reads must travel to both products; weights are read from memory by each."""
    tied = simplify(traced(lambda x, w: np.tanh(np.tanh(np.tanh(x @ w) @ w) @ w), (4, 8), (8, 8)))
    assert spell(tied)[1] == "pepepe" and [s.pattern for s in select(tied).subgraphs] == ["mlp"]
    for fn in (lambda h, u, v: u.T @ h + v.T @ h, lambda h, u, v: h @ u @ (h @ v), lambda h, u, v: h.T @ u + h @ v):
        _, letters = spell(simplify(traced(lambda x, u, v: fn(np.tanh(x), u, v), (8, 8), (8, 8), (8, 8))))  # noqa: B023
        assert "s" in letters, letters


@pytest.mark.paper(62)
@pytest.mark.parametrize("function, inputs", [
    (lambda x: softmax(x), [(4, 8)]),  # no product
    (lambda x, w: x @ w, [(4, 8), (8, 8)]),  # nothing beside it
    (lambda x: np.cumsum(np.sort(x, axis=0), axis=0), [(4, 8)]),  # bulk-synchronous
    (lambda t, i: np.tanh(t[i]), [(9, 8), np.arange(4)]),  # an embedding
    (lambda x, w, y: (x @ w, np.exp(y)), [(4, 8), (8, 8), (4, 8)]),  # side by side, they do not touch
])
def test_nothing_is_found_where_no_pattern_is(function, inputs):
    assert selected(function, *inputs) == []


def test_attention_between_its_projections():
    def attention(x, q, k, v, out):
        query, key, value = (np.transpose((x @ w).reshape(2, 8, 2, 4), (0, 2, 1, 3)) for w in (q, k, v))
        mixed = softmax(query @ np.swapaxes(key, -1, -2)) @ value
        return x + np.transpose(mixed, (0, 2, 1, 3)).reshape(2, 8, 8) @ out
    found = selected(lambda x, *weights: attention(np.tanh(x), *weights), (2, 8, 8), *[(8, 8)] * 4)
    assert found == [("multicast", ["tanh", "matmul", "matmul", "matmul"]),
                     ("attention", ["matmul", "max", "sub", "exp", "sum", "div", "matmul", "matmul", "add"])]


def test_a_normalisation_behind_an_mlp_belongs_to_it():
    (pattern, ops), = selected(lambda x, u, b, d, s, t: layernorm(mlp(x, u, b, d), s, t), *MLP, (64,), (64,))
    assert pattern == "mlp" and ops.count("sum") == 2 and ops[-1] == "add"


def test_an_excluded_operation_is_stepped_over_where_no_path_returns():
    """An embedding between two layers that do not make its indices: the layers are one subgraph all the same."""
    def stacks(x, w, table, indices, v):
        h = np.tanh(x @ w)
        return np.concatenate([h, table[indices]], axis=1) @ v
    graph = simplify(traced(stacks, (4, 8), (8, 8), (50, 8), np.arange(4), (16, 3)))
    found = select(graph)
    one, = found.subgraphs
    assert spell(graph)[1].count("x") == 1 and [graph[n].op for n in one.nodes] == ["matmul", "tanh", "concatenate", "matmul"]
    gathered, = (n.id for n in graph.nodes if n.op == "gather")
    assert gathered in outside(graph, one.nodes)
    decision, = found.decisions
    assert (decision.rule, decision.at) == ("gathers-all-data", (gathered,)) and "all of it has to be there" in decision.why


@pytest.mark.paper(62)
def test_a_path_that_returns_ends_the_subgraph():
    """The twin of the test above: here the sort reads the first layer, so it can run neither before nor after both."""
    def stacks(x, w, v):
        h = np.tanh(x @ w)
        return np.concatenate([h, np.sort(h, axis=0)], axis=1) @ v
    graph = simplify(traced(stacks, (4, 8), (8, 8), (16, 3)))
    first, second = select(graph).subgraphs
    assert [graph[n].op for n in first.nodes] == ["matmul", "tanh"]
    assert [graph[n].op for n in second.nodes] == ["concatenate", "matmul"]
    refusal = next(d for d in first.decisions if d.rule == "contiguity")
    assert [graph[n].op for n in refusal.at] == ["sort", "concatenate"]
    assert "comes back to" in refusal.why and first.pattern == "product"


def test_a_gather_within_rows_is_no_gather_of_all_data():
    def triangle(x, u, v):
        h = np.tanh(x @ u)
        return h[:, np.array([3, 1, 2])] @ v
    (pattern, ops), = selected(triangle, (4, 8), (8, 8), (3, 5))
    assert pattern == "mlp" and ops == ["matmul", "tanh", "gather", "matmul"]


def test_too_many_arguments_end_a_subgraph():
    def deep(x, *weights):
        for w in weights:
            x = np.tanh(x @ w)
        return x
    graph = simplify(traced(deep, (4, 8), *[(8, 8)] * 70))
    found = select(graph).subgraphs
    assert [sum(graph[n].op == "matmul" for n in s.nodes) for s in found] == [62, 8]
    assert {d.rule for d in found[0].decisions} == {"mlp", "argument-limit"}


# ---------------------------------------------------------------- any graph, any library
REACHES_TOO_FAR = (OperatorPattern("everything", "(?:element-wise|join|reduction|product|sibling|attend|excluded)+", "a mutant"),)


def check_selection(found):
    """What every selection must be, worked out by other means than in ``select``."""
    graph, seen = found.graph, set()
    below = [set() for _ in graph.nodes]  # everything that depends on a node
    for node in reversed(graph.nodes):
        below[node.id] = set(graph.users[node.id]).union(*(below[u] for u in graph.users[node.id]))
    for each in found.subgraphs:
        inside = set(each.nodes)
        assert list(each.nodes) == sorted(inside) and not inside & seen
        seen |= inside
        reached = set().union(*(below[n] for n in inside)) - inside
        assert not any(below[n] & inside for n in reached), f"a path leaves {each.nodes} and comes back"
        ops = [graph[n].op for n in each.nodes if graph[n].op not in VIEWS]
        assert "matmul" in ops and len(ops) > 1
        assert not any(selection.exclusion(graph, graph[n]) or graph[n].kind == "source" for n in each.nodes)
    owner = {n: i for i, each in enumerate(found.subgraphs) for n in each.nodes}
    place = {n.id: owner.get(n.id, len(found.subgraphs) + n.id) for n in graph.nodes}
    after = [set() for _ in range(len(found.subgraphs) + len(graph))]
    for node in graph.nodes:
        for arg in node.args:
            if place[arg] != place[node.id]:
                after[place[arg]].add(place[node.id])
    assert len(topological(after, lambda i: i)) == len(after), "subgraphs wait for each other in a circle"


@st.composite
def layered(draw):
    """Programs over 4 x 4 matrices in which everything may read everything: products, chains, sums, embeddings."""
    b = Builder()
    square, row = TensorType((4, 4)), TensorType((4,), "int64")
    weights = [b.add("input", type=square, name=f"w{i}") for i in range(2)]
    indices = b.add("input", type=row, name="i")
    values = [b.add("input", type=square, name="x")]
    for _ in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from(["product", "product", "attend", "exp", "add", "sum", "gather", "sort"]))
        one, other = (draw(st.sampled_from(values[-4:])) for _ in range(2))
        if kind == "product":
            values.append(b.add("matmul", [one, draw(st.sampled_from(weights))]))
        elif kind == "attend":
            values.append(b.add("matmul", [one, other]))
        elif kind == "add":
            values.append(b.add("add", [one, other]))
        elif kind == "sum":
            values.append(b.add("broadcast", [b.add("sum", [one], axes=(1,), keepdims=True)], shape=(4, 4)))
        elif kind == "gather":
            values.append(b.add("gather", [one, indices], axes=(0,)))
        else:
            values.append(b.add(kind, [one], **({"axis": 0} if kind == "sort" else {})))
    return b.finish(draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))


@pytest.mark.paper(62)
@pytest.mark.parametrize("library", [LIBRARY, REACHES_TOO_FAR], ids=["library", "mutant"])
@given(graph=layered())
def test_no_path_leaves_a_subgraph_and_comes_back(graph, library):
    check_selection(select(graph, library))


@given(graph=graphs())
def test_selection_takes_any_program(graph):
    check_selection(select(graph))


def test_without_the_check_a_library_that_reaches_too_far_is_caught(monkeypatch):
    graph = program("f32[4,4] = input name='x'", "f32[4,4] = input name='w'", "f32[4,4] = matmul %0 %1", "f32[4,4] = exp %2",
                    "f32[4,4] = sort %3 axis=0", "f32[4,4] = add %3 %4", "f32[4,4] = matmul %5 %1")
    check_selection(select(graph, REACHES_TOO_FAR))
    monkeypatch.setattr(selection, "leaves_and_returns", lambda graph, nodes, others=(): None)
    with pytest.raises(AssertionError, match="comes back"):
        check_selection(select(graph, REACHES_TOO_FAR))


def test_pieces_of_one_match_that_wait_for_each_other_are_parted(monkeypatch):
    """Each of the two pieces is contiguous; with the sorts that were stepped over they wait for each other."""
    graph = program("f32[4,4] = input name='x'", "f32[4,4] = input name='w'",
                    "f32[4,4] = matmul %0 %1", "f32[4,4] = matmul %1 %0", "f32[4,4] = sort %2 axis=0", "f32[4,4] = sort %3 axis=0",
                    "f32[4,4] = add %2 %5", "f32[4,4] = add %3 %4", "return %6 %7")
    check_selection(select(graph, REACHES_TOO_FAR))
    alone = selection.leaves_and_returns
    monkeypatch.setattr(selection, "leaves_and_returns", lambda graph, nodes, others=(): alone(graph, nodes))
    with pytest.raises(AssertionError, match="circle"):
        check_selection(select(graph, REACHES_TOO_FAR))


def test_every_word_of_the_library_is_one():
    for pattern in LIBRARY:
        assert set(re.findall(r"[a-z-]+", pattern.text)) <= set(selection.WORDS) and pattern.regex and pattern.why
