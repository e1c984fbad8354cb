"""What each strategy cuts and why: every rule with a graph that it cuts and a twin that it leaves whole; kernel counts."""

import numpy as np
import pytest
from programs import attention, batch_norm, gelu, layernorm, layernorm_backward, softmax
from stitch_help import BASIC, CPU, ROOT, V100, figure_7, program, run, traced

import minisitch as ms
from minisitch.fuse import GENERATED, VIEWS, make_plan, pattern_inputs, verify_plan
from minisitch.graph import TensorType
from minisitch.simplify import simplify
from minisitch.stitch.dominants import MOST_CHAINS
from minisitch.stitch.loops import stitch
from minisitch.strategies.ask import fuse
from minisitch.strategies.astitch import call_depths
from minisitch.strategies.xla import MOST_RECOMPUTED
from minisitch.testing import check_graph, random_graph
from minisitch.trace import trace
from minisitch.trace.builder import Builder

X, ROW = "f32[8,128] = input name='x'", "f32[8,1] = input name='r'"


def plan(graph, name):
    return fuse(simplify(graph), name, V100)


def kernels(function, *shapes):
    """Kernels under none, xla and astitch."""
    graph = traced(function, *shapes)
    return tuple(len(plan(graph, name).kernels) for name in BASIC)


# ---------------------------------------------------------------- rules of xla
def chain(count):
    """``count`` light operations, then two reduces that both need them."""
    lines = [X]
    for k in range(count):
        lines.append(f"f32[8,128] = {'abs' if k % 2 else 'neg'} %{k}")
    return program(*lines, f"f32[8] = sum %{count} axes=(1,) keepdims=False",
                   f"f32[8] = max %{count} axes=(1,) keepdims=False", f"return %{count + 1} %{count + 2}")


def windows(count, op):
    """``count`` shifted windows of one value, added up."""
    lines = ["f32[12] = input name='x'", f"f32[12] = {op} %0"]
    lines += [f"f32[6] = slice %1 size=(6,) start=({k},) step=(1,)" for k in range(count)]
    total = 2
    for k in range(1, count):
        lines.append(f"f32[6] = add %{total} %{2 + k}")
        total = len(lines) - 1
    return program(*lines, f"return %{total}")


RULES = {  # rule: (graph that triggers it, the values cut there), (a twin that stays one kernel)
    "reduce-ends-kernel": (
        (program(X, "f32[8,1] = sum %0 axes=(1,) keepdims=True", "f32[8,1] = neg %1"), [1]),
        program(X, "f32[8,128] = neg %0", "f32[8,1] = sum %1 axes=(1,) keepdims=True")),
    "expensive-then-broadcast": (
        (program(X, ROW, "f32[8,1] = exp %1", "f32[8,128] = broadcast %2 shape=(8, 128)", "f32[8,128] = add %0 %3"), [2]),
        program(X, ROW, "f32[8,1] = abs %1", "f32[8,128] = broadcast %2 shape=(8, 128)", "f32[8,128] = add %0 %3")),
    "expensive-in-several-kernels": (
        (program(X, "f32[8,128] = exp %0", "f32[8] = sum %1 axes=(1,) keepdims=False",
                 "f32[8] = max %1 axes=(1,) keepdims=False", "return %2 %3"), [1]),
        program(X, "f32[8,128] = exp %0", "f32[8,128] = neg %1", "f32[8,128] = mul %1 %2")),
    "recompute-limit": ((chain(MOST_RECOMPUTED + 1), [MOST_RECOMPUTED + 1]), chain(MOST_RECOMPUTED)),
    "many-positions": ((windows(3, "exp"), [1]), windows(2, "exp")),
    "needed-in-memory": (
        (program(X, "f32[8,128] = neg %0", "f32[8,128] = abs %1", "return %1 %2"), [1]),
        program(X, "f32[8,128] = neg %0", "f32[8,128] = abs %1")),
    "read-through-view": (
        (program(X, "f32[8,128] = neg %0", "f32[128,8] = transpose %1 perm=(1, 0)", "f32[128,8] = abs %2", "return %2 %3"), [1]),
        program(X, "f32[8,128] = neg %0", "f32[128,8] = transpose %1 perm=(1, 0)", "f32[128,8] = abs %2")),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_of_xla(rule):
    (graph, cut), twin = RULES[rule]
    found = fuse(graph, "xla", V100)
    assert sorted({d.at[0] for d in found.decisions if d.rule == rule}) == cut
    assert all(d.verdict == "keep apart" and f"{d.why}" for d in found.decisions if d.rule == rule)
    assert set(cut) <= {o for p in found.patterns for o in p.outputs}, "what is cut is written"
    assert not any(d.rule == rule for d in fuse(twin, "xla", V100).decisions)
    for case in (graph, twin):
        inputs = [np.linspace(-1, 1, case[i].type.size, dtype=np.float32).reshape(case[i].type.shape) for i in case.inputs]
        check_graph(case, inputs, lambda g, i: run(g, i, "xla", "python", CPU))


def test_behind_a_view_that_many_windows_read_the_value_itself_is_cut():
    lines = ["f32[80] = input name='x'", "f32[80] = neg %0", "f32[40,2] = reshape %1 shape=(40, 2)", "f32[80] = abs %1"]
    lines += [f"f32[2,2] = slice %2 size=(2, 2) start=({k}, 0) step=(1, 1)" for k in range(MOST_CHAINS + 1)]
    lines += [f"f32[2,2] = add %{len(lines) - 1 + k if k else 4} %{5 + k}" for k in range(MOST_CHAINS)]
    found = fuse(program(*lines, f"return %{len(lines) - 1} %3"), "xla", V100)
    assert {d.at[0] for d in found.decisions if d.rule == "many-positions"} == {1}
    assert computed_again(found) == []


def computed_again(found):
    """Values that one kernel writes and another one computes for itself. Views are free to compute."""
    return [value for p in found.kernels for value in p.outputs if found.graph[value].op not in VIEWS | GENERATED
            for other in found.kernels if other is not p and value in other.members]


def test_light_windows_may_be_recomputed_at_four_places():
    assert not any(d.rule == "many-positions" for d in fuse(windows(4, "abs"), "xla", V100).decisions)
    assert any(d.rule == "many-positions" for d in fuse(windows(5, "abs"), "xla", V100).decisions)


def test_the_result_of_a_library_call_is_in_memory_however_many_windows_read_it():
    lines = ["f32[80] = input name='x'", "f32[80] = sort %0 axis=0"]
    lines += [f"f32[2] = slice %1 size=(2,) start=({k},) step=(1,)" for k in range(MOST_CHAINS + 1)]
    lines += [f"f32[2] = add %{len(lines) - 1 + k if k else 2} %{3 + k}" for k in range(MOST_CHAINS)]
    found = fuse(program(*lines, f"return %{len(lines) - 1}"), "xla", V100)
    assert [p.kind for p in found.patterns] == ["library", "kernel"]


@pytest.mark.parametrize("count, op, why", [(5, "abs", "at 5 places; at most 4"), (3, "exp", "at 3 places; at most 2")])
def test_a_value_at_many_positions_says_at_how_many(count, op, why):
    graph = windows(count, op)
    assert [d.why for d in stitch(graph, V100).decisions if d.rule == "many-positions"] == [f"%1 {op} would be recomputed {why}"]
    assert {d.why for d in fuse(graph, "xla", V100).decisions if d.rule == "many-positions"} == {f"%1 {op} would be recomputed {why}"}


@pytest.mark.parametrize("draft, message", [
    (lambda graph, device: None, "strategy draft returns NoneType; end it with: return make_plan"),
    (lambda graph, device: [[1]], "returns list; end it with"),
    (lambda graph, device: make_plan(graph, "draft", [[0]]), r"a kernel has %0: f32.* = input .*; it may hold ids \(node.id\) of nodes for which is_fusible"),
    (lambda graph, device: make_plan(graph, "draft", [1, 2]), r"1 is not a kernel; a kernel is a list of ids, as in \[\[1, 2\], \[3\]\]"),
])
def test_a_draft_of_a_strategy_is_told_what_is_missing(monkeypatch, draft, message):
    monkeypatch.setitem(ms.STRATEGIES, "draft", draft)
    with pytest.raises(ms.PlanError, match=message):
        fuse(chain(2), "draft", V100)
    assert "No row for draft: PlanError" in str(ms.compare(np.exp, "f32[4]", target="python", strategies=("draft", "xla")))


def test_a_strategy_needs_a_name():
    with pytest.raises(ms.MinisitchError, match=r"@strategy got function; write @strategy\('mine'\)"):
        ms.strategy(lambda graph, device: None)


def test_every_cut_of_xla_has_a_reason():
    """No kernel boundary without a decision that names it."""
    for seed in range(60):
        graph = random_graph(np.random.default_rng(seed), max_nodes=25, max_elements=200)
        found = fuse(graph, "xla", V100)
        reasons = {d.at[0] for d in found.decisions if d.verdict == "keep apart"}
        fused = {d.at[0] for d in found.decisions if d.verdict == "fuse"}
        from minisitch.fuse import is_fusible, returned
        for pattern in found.kernels:
            for value in pattern.outputs:
                feeds_library = not any(is_fusible(graph[u]) for u in graph.users[value])
                assert value in reasons or value in returned(graph) or feeds_library or graph[value].kind != "map", f"%{value}\n{found}"
        assert not fused & reasons, "each value is either inlined or ends a kernel"
        assert computed_again(found) == [], found


# ---------------------------------------------------------------- counts
def test_kernel_counts():
    assert kernels(softmax, (64, 128)) == (5, 4, 1)
    assert kernels(layernorm, (128, 1024), (1024,), (1024,))[1:] == (4, 1), "the paper's XLA figure"
    assert kernels(gelu, (128, 256))[1:] == (1, 1)
    assert kernels(batch_norm, (4, 3, 5, 5), (3,), (3,))[1:] == (4, 1)
    assert kernels(layernorm_backward, (64, 128), (64, 128), (128,))[2] == 1
    assert [len(fuse(figure_7(), name, V100).kernels) for name in BASIC[1:]] == [4, 1]


@pytest.mark.paper(40)
def test_attention_is_one_kernel_between_two_products():
    found = plan(traced(attention, *[(2, 4, 16, 8)] * 3), "astitch")
    assert [p.kind for p in found.patterns] == ["library", "kernel", "library"]
    assert kernels(attention, *[(2, 4, 16, 8)] * 3)[1:] == (4, 1)


def bert(preset):
    import importlib.util
    spec = importlib.util.spec_from_file_location("bert", ROOT / "benchmarks" / "models" / "bert.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function, arguments = module.make(preset)
    return trace(lambda x, mask, weights: function(x, mask, weights, arguments[3]), arguments[:3]).graph


@pytest.mark.parametrize("preset", ["small", "base"])
def test_a_bert_layer_has_less_than_half_the_kernels_of_xla(preset):
    """AStitch's own figure on BERT is 26 of 64 kernels."""
    graph = bert(preset)
    none, xla, astitch = (plan(graph, name) for name in BASIC)
    assert len(astitch.kernels) <= 0.45 * len(xla.kernels) < 0.45 * len(none.kernels)
    assert len(none.library_calls) == len(xla.library_calls) == len(astitch.library_calls) == 8


def test_none_fuses_nothing():
    for seed in range(30):
        graph = random_graph(np.random.default_rng(seed), max_nodes=20, max_elements=200)
        for pattern in fuse(graph, "none", V100).kernels:
            busy = [m for m in pattern.members if graph[m].kind in ("map", "reduce") or graph[m].op in ("concatenate", "update", "gather")]
            assert len(busy) <= 1


# ---------------------------------------------------------------- rules of astitch
@pytest.mark.paper(41)
def test_remote_stitching_merges_what_is_unconnected():
    found = fuse(program("f32[8,16] = input name='x'", "f32[4] = input name='y'", "f32[8,16] = exp %0", "f32[4] = neg %1",
                         "f32[] = sum %3 axes=(0,) keepdims=False", "return %2 %4"), "astitch", V100)
    assert [p.outputs for p in found.kernels] == [(2, 4)]
    assert found.decisions[0].rule == "same-call-depth" and found.decisions[0].at == (2, 3, 4)
    assert found.decisions[0].why == "3 operations of call depth 0: no library call comes before"


def test_a_library_call_separates():
    found = fuse(program("f32[8,8] = input name='x'", "f32[8,8] = exp %0", "f32[8,8] = matmul %1 %1", "f32[8,8] = tanh %2",
                         "f32[8,8] = add %3 %1"), "astitch", V100)
    assert [(p.kind, p.outputs) for p in found.patterns] == [("kernel", (1,)), ("library", (2,)), ("kernel", (4,))]
    assert [d.rule for d in found.decisions].count("library-call") == 1
    assert [d.why for d in found.decisions if d.rule == "same-call-depth"] == [
        "1 operation of call depth 0: no library call comes before",
        "2 operations of call depth 1: made after 1 library call, or read only then"]


@pytest.mark.paper(41)
def test_levels_never_fall_and_rise_at_library_calls():
    """This is why contracting a level cannot make a circle."""
    for seed in range(150):
        graph = random_graph(np.random.default_rng(seed), max_nodes=40, max_elements=200)
        depth = call_depths(graph)
        for node in graph.nodes:
            for arg in node.args:
                assert depth[arg] + (graph[arg].kind == "library") <= depth[node.id], f"%{arg} -> %{node.id}\n{graph}"


def test_a_mask_sinks_to_its_user():
    """Written at level 0 and read at level 1 the mask would go through memory; computed where it is read it does not."""
    def masked(q, k):
        scores = q @ k
        return np.where(np.tri(32, dtype=bool), scores, np.float32(-1e9)) * 2

    graph = simplify(traced(masked, (32, 8), (8, 32)))
    found = fuse(graph, "astitch", V100)
    assert [p.kind for p in found.patterns] == ["library", "kernel"]
    assert set(call_depths(graph)) == {0, 1}
    product = next(n.id for n in graph.nodes if n.op == "matmul")
    assert all(call_depths(graph)[n.id] == 1 for n in graph.nodes if n.kind == "map" and n.id != product)


def test_sinking_never_adds_traffic():
    """A sum must not move down to where it is read: its operand is far larger."""
    graph = program("f32[64,64] = input name='x'", "f32[64,64] = exp %0", "f32[64] = sum %1 axes=(1,) keepdims=False",
                    "f32[64,64] = matmul %1 %1", "f32[64] = sum %3 axes=(1,) keepdims=False", "f32[64] = add %2 %4")
    assert call_depths(graph)[2] == 0 and [p.outputs for p in fuse(graph, "astitch", V100).kernels] == [(1, 2), (5,)]


def test_a_gather_reads_the_rows_it_gives():
    """Not its table: what only the kernel behind a product reads is gathered there."""
    graph = program("f32[5000,64] = input", "i64[64] = input", "f32[64,64] = input", "f32[64,64] = gather %0 %1 axes=(0,)", "f32[64,64] = exp %2",
                    "f32[64,64] = matmul %4 %2", "f32[64,64] = add %3 %5")
    assert call_depths(graph)[3] == 1 and [p.outputs for p in fuse(graph, "astitch", V100).kernels] == [(4,), (6,)]


def test_arguments_split_a_level_where_they_must():
    b = Builder()
    xs = [b.add("input", type=TensorType((4,)), name=f"x{i}") for i in range(63)]
    y = xs[0]
    for x in xs[1:]:
        y = b.add("add", [y, x])
    assert len(fuse(b.finish([y]), "astitch", V100).kernels) == 1, "63 inputs and an output are 64 arguments"
    b.nodes.append(b.nodes[0].__class__(len(b.nodes), "input", (), TensorType((4,)), (("name", "z"),)))
    y = b.add("add", [y, len(b.nodes) - 1])
    assert len(fuse(b.finish([y]), "astitch", V100).kernels) == 2


def test_a_level_that_is_cut_is_cut_between_weights():
    """Adam writes all moments before all weights; no kernel reads what another one of the level wrote."""
    def adam(weights, grads, firsts, seconds):
        firsts = [0.9 * m + 0.1 * g for m, g in zip(firsts, grads, strict=True)]
        seconds = [0.99 * v + 0.01 * g * g for v, g in zip(seconds, grads, strict=True)]
        weights = [w - 0.1 * m / (np.sqrt(v) + 1e-8) for w, m, v in zip(weights, firsts, seconds, strict=True)]
        return weights, firsts, seconds
    graph = simplify(trace(adam, ([TensorType((64,))] * 30,) * 4, {}).graph)
    found = plan(graph, "astitch")
    assert len(found.kernels) == 4, "30 weights of 7 arguments, 64 a kernel"
    for pattern in found.kernels:
        assert all(graph[v].op == "input" for v in pattern_inputs(graph, pattern))


@pytest.mark.parametrize("strategy", ["none", "xla"])
def test_baselines_split_no_row_and_meet_at_no_grid_barrier(strategy):
    """Thread composition knows a block a row; splitting a row and meeting again is AStitch's (section 4.2)."""
    kernels = ms.lower(softmax, "f32[64,30000]", strategy=strategy, target="step", device="v100", stop_after="schedule")
    assert all(k.grid_barriers == 0 for k in kernels)
    reduces = [k for k in kernels if any(n.kind == "reduce" for n in k.graph.nodes)]
    assert len(reduces) == 2 and all((k.grid, k.block) == (64, 1024) for k in reduces)
    stitched, = ms.lower(softmax, "f32[64,30000]", strategy="astitch", target="step", device="v100", stop_after="schedule")
    assert (stitched.grid, stitched.grid_barriers) == (128, 2)


@pytest.mark.parametrize("name", sorted(ms.STRATEGIES))
def test_programs_of_two_hundred_operations_are_never_planned_in_a_circle(name):
    """``make_plan`` refuses a circle and ``verify_plan`` what is read too early; a strategy must not come to that."""
    largest = 0
    for seed in range(5):
        graph = random_graph(np.random.default_rng(seed), max_nodes=200)
        found = fuse(graph, name, V100)
        assert verify_plan(found) is found
        largest = max(largest, len(graph))
    assert largest > 150
