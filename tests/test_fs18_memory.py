"""FusionStitching 2018: tuning, prices, shared memory and small products; each test carries its row of docs/papers.md."""

from dataclasses import replace

import children
import numpy as np
import pytest
from fs18_help import LIMITS, figure_3, fused
from hypothesis import given
from hypothesis import strategies as st
from programs import attention, gelu, layernorm, softmax
from stitch_help import CPU, TOY, V100, program, run, stepped, traced

from minisitch.cuda_emit import emit
from minisitch.explain import calibrate
from minisitch.graph import TensorType
from minisitch.kernel.ir import Compute
from minisitch.kernel.nests import parts
from minisitch.passes.registry import default_kernel
from minisitch.reference import evaluate
from minisitch.simplify import simplify
from minisitch.stitch.blocks import BlockComposition, BlockCut
from minisitch.stitch.body import extract
from minisitch.stitch.compose import compose
from minisitch.strategies.ask import fuse
from minisitch.strategies.fs18 import library, plan
from minisitch.strategies.fs18.block_cuts import block_cut_for
from minisitch.strategies.fs18.compose import GIVEN_UP, THREAD, Wish, given_up, tune, wishes
from minisitch.strategies.fs18.dots import take_apart
from minisitch.strategies.fs18.fusion import SHARED_LIMIT, Limits, common_cuts
from minisitch.strategies.fs18.library import Entry, entry_of, model_us
from minisitch.testing import check_graph, random_graph, random_inputs
from minisitch.testing.judge import judge


# ---------------------------------------------------------------- rows 9 and 10: tuning
@pytest.mark.paper(9)
@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=8))
def test_tuning_finds_the_exhaustive_minimum(costs):
    """``costs[schedule][part]``: the first of the cheapest, for no more prices than there are."""
    found, us, evaluations = tune(range(len(costs)), range(4), lambda part, schedule: costs[schedule][part])
    totals = [sum(c) for c in costs]
    assert us == min(totals) and found == totals.index(us)
    assert evaluations <= 4 * len(costs)


@pytest.mark.paper(10)
def test_roots_agree_on_block_counts():
    """Both roots must be cut into as many blocks; the cuts in common are exactly those every root has by itself."""
    shapes = [(12, 10), (8, 15), (4, 6, 5)]
    alone = [{c.blocks for c in common_cuts([s]) if c.kind == "row"} for s in shapes]
    together = {c.blocks for c in common_cuts(shapes) if c.kind == "row"}
    assert together == set.intersection(*alone) and {1, 4, 120} <= together and 3 not in together
    assert all(block_cut_for(c, s).blocks(s) == c.blocks for c in common_cuts(shapes) for s in shapes)


@pytest.mark.paper(10)
def test_early_stop_saves_prices_on_a_kernel_with_two_roots():
    graph = program("f32[512,64] = input name='x'", "f32[512,1] = sum %0 axes=(1,) keepdims=True",
                    "f32[512,64] = broadcast %1 shape=(512, 64)", "f32[512,64] = sub %0 %2", "f32[512,64] = mul %0 %2", "return %3 %4")
    fusion, = fused(graph)
    assert fusion.roots == [4, 3]
    options = [(s, 256) for s in fusion.schedules if not s.threads]
    parts = sorted(fusion.members, reverse=True)

    def price(part, option):
        block_cut = block_cut_for(option[0].asked[part], graph[part].type.shape)
        return model_us(entry_of(graph, graph[part], block_cut, option[1], V100))

    found, us, evaluations = tune(options, parts, price)
    totals = [sum(price(part, option) for part in parts) for option in options]
    assert us == min(totals) and found is options[totals.index(us)]
    assert evaluations < len(options) * len(parts)


def test_a_gpu_wants_many_blocks_and_a_cpu_few():
    blocks = {}
    for device in (V100, CPU):
        found = fuse(simplify(traced(softmax, (4096, 1024))), "fs18", device)
        why, = (d.why for d in found.decisions if d.rule == "block-composition")
        blocks[device.kind] = int(why.split(" blocks of")[0])
    assert blocks["gpu"] >= 512 and blocks["cpu"] < blocks["gpu"]


# ---------------------------------------------------------------- row 12: the performance library
def entry(blocks=4, device=CPU, op="exp"):
    attrs = (("axes", (1,)), ("keepdims", True)) if op == "sum" else ()
    return Entry(op, attrs, (TensorType((64, 32)),), TensorType((64, 1 if op == "sum" else 32)), BlockCut(0, blocks), 256, device)


@pytest.mark.paper(12)
def test_measured_prices_are_taken_where_they_can_be_had(tmp_path, monkeypatch):
    """Each operation is measured once. What is kept is read when the next context opens."""
    measured = []
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path))
    monkeypatch.setattr(calibrate, "operation_us", lambda e: measured.append(e) or float(len(measured)))
    assert library.price(entry()) == model_us(entry()) > 0
    with calibrate.measured_operations() as prices:
        assert [library.price(entry(b)) for b in (1, 2, 1)] == [1.0, 2.0, 1.0]
        assert library.price(entry(device=V100)) == model_us(entry(device=V100))
        fuse(simplify(traced(softmax, (64, 32))), "fs18", CPU)
    assert len(prices) == len(measured) > 5 and library.price(entry()) == model_us(entry())
    before = len(measured)
    with calibrate.measured_operations():
        assert [library.price(entry(b)) for b in (1, 2)] == [1.0, 2.0]
    assert len(measured) == before
    keys = {e.key for e in (entry(), entry(2), entry(op="sum"), entry(device=V100), replace(entry(), threads=128),
                            replace(entry(), block_cut=BlockCut(1, 4)), replace(entry(), block_cut=BlockCut(0, 4, "column")))}
    assert len(keys) == 7, "all that a price depends on is in its name"


MEASURED_TWICE = """
import sys
import numpy as np, minisitch as ms
from minisitch.explain.calibrate import measured_operations

def program(x):
    return x - np.sum(x, axis=1, keepdims=True)

x = np.arange(48, dtype=np.float32).reshape(8, 6)
with measured_operations() as prices:
    before = len(prices)
    found = ms.jit(program, strategy="fs18", target="cpu")(x)
np.testing.assert_allclose(found, program(x), rtol=1e-6)
print(before, len(prices))
"""


@pytest.mark.paper(12)
def test_a_new_process_finds_what_the_last_one_measured(tmp_path):
    """The first compile runs each operation under each schedule, the second none."""
    found = [children.run(MEASURED_TWICE, tmp_path, check=True, MINISITCH_CACHE=str(tmp_path)).stdout.split() for _ in range(2)]
    assert found[0][0] == "0" < found[0][1] and found[1] == [found[0][1]] * 2


def test_the_model_prefers_what_fills_the_machine():
    """Few blocks, blocks smaller than their threads, and strided pieces all cost more."""
    big = Entry("exp", (), (TensorType((8192, 1024)),), TensorType((8192, 1024)), BlockCut(0, 1), 256, V100)
    us = [model_us(replace(big, block_cut=BlockCut(0, n))) for n in (1, 8, 64, 512)]
    assert us == sorted(us, reverse=True)
    assert model_us(replace(big, block_cut=BlockCut(1, 1024))) > model_us(replace(big, block_cut=BlockCut(1, 4)))
    assert model_us(replace(big, block_cut=BlockCut(1, 512, "column"))) > model_us(replace(big, block_cut=BlockCut(0, 512)))
    ways = [model_us(replace(big, device=CPU, block_cut=BlockCut(0, n))) for n in (1, 2, 64)]
    assert ways[0] > ways[1] > ways[2], "two cores, then a piece that stays in cache"


# ---------------------------------------------------------------- rows 14 to 16: shared memory
@pytest.mark.paper(14)
def test_who_asks_for_shared_memory():
    graph = simplify(traced(layernorm, (128, 1024), (1024,), (1024,)))
    fusion, = fused(graph)
    found = {graph[v].op: wish.why for v, wish in wishes(fusion, fusion.schedules[0]).items()}
    assert found in ({"sum": "must", "sub": "light", heavy: "stretched"} for heavy in ("sqrt", "div"))
    thread = simplify(traced(gelu, (64, 128)))
    assert any(s.threads for s in fused(thread)[0].schedules)
    assert plan(thread, "fs18", LIMITS).kernels[0].composition == THREAD, "one loop keeps nothing"


@pytest.mark.paper(15)
def test_what_is_given_up_first():
    """Light, heavy, stretched; of equals the one nearest to a root, then the later one; never what must be kept."""
    wanted = {0: Wish("light", 5), 1: Wish("light", 3), 2: Wish("heavy", 5), 3: Wish("heavy", 3), 4: Wish("stretched", 5),
              5: Wish("stretched", 3), 6: Wish("must", 2), 7: Wish("light", 3)}
    assert given_up(wanted) == [7, 1, 0, 3, 2, 5, 4]
    assert GIVEN_UP == ("light", "heavy", "stretched") and SHARED_LIMIT == 20480


@pytest.mark.paper(15)
@pytest.mark.parametrize("device", [V100, CPU], ids=["v100", "cpu"])
def test_the_kernel_itself_stays_within_the_limit(device):
    """The bytes that count are those of the kernel that runs, whatever its layout shares."""
    shrunk = 0
    for seed in range(30):
        graph = simplify(random_graph(np.random.default_rng(seed), max_nodes=40, max_elements=400, library=False))
        for limit in (200, 600):
            found = plan(graph, "fs18", Limits(device, shared=limit))
            gone = {d.at[0]: d for d in found.decisions if d.rule == "shared-memory-shrinking"}
            for pattern in found.kernels:
                how, body = pattern.composition, extract(graph, pattern)
                if not isinstance(how, BlockComposition):
                    continue
                light = [v for v in how.shared if body.graph[v].kind != "reduce"]
                kernel = default_kernel(compose(body.graph, device, how))
                exchanged = 0 if light else 8 * 32 * sum(n.kind == "reduce" for n in body.graph.nodes)  # a value a warp
                assert kernel.shared_bytes <= limit + exchanged, f"seed {seed}: {kernel}"
                mine = [v for v, whole in enumerate(body.origin) if whole in gone]
                assert not set(mine) & set(how.shared)
                shrunk += bool(mine)
            assert all(f"the limit is {limit}" in d.why for d in gone.values())
    assert shrunk > 2


@pytest.mark.paper(15)
def test_shrinking_recomputes_and_changes_no_result():
    graph = simplify(traced(softmax, (16, 24)))
    inputs = random_inputs(graph, np.random.default_rng(1))
    for limit, kept, exps in ((20480, ["max", "exp", "sum"], 1), (24 * 4 + 4, ["max", "sum"], 2), (8, ["max", "sum"], 2)):
        found = plan(graph, "fs18", Limits(TOY, shared=limit))
        body, how = extract(graph, found.kernels[0]), found.kernels[0].composition
        assert [body.graph[v].op for v in how.shared] == kept
        source = emit(default_kernel(compose(body.graph, TOY, how)))
        assert source.text.count("math.exp") == exps
        results, _ = stepped(source, inputs)
        np.testing.assert_allclose(results[0], evaluate(graph, inputs)[0], rtol=1e-5)


def composed(graph, limits):
    """The one kernel of a graph, built; and why what is given up is."""
    found = plan(graph, "fs18", limits)
    pattern, = found.kernels
    body = extract(graph, pattern).graph
    gone = {d.at: d.why for d in found.decisions if d.rule == "shared-memory-shrinking"}
    return default_kernel(compose(body, limits.device, pattern.composition)), gone


@pytest.mark.paper(15)
def test_a_row_that_no_block_has_room_for_is_given_up_too():
    """``schedule`` demotes to global memory what does not fit into the 48 kB of a block, and then nothing seems to be too much. It
    is given up as a row of 32 kB is, and what the block would have needed is said."""
    for cols, gives_up in ((4000, False), (5000, False), (8000, True), (12_000, True), (12_500, True), (50_000, True)):
        graph = simplify(traced(softmax, (512, cols)))
        kernel, gone = composed(graph, LIMITS)
        maximum, exp, total = (n.id for n in graph.nodes if n.op in ("max", "exp", "sum"))
        why = f"with all values a block needs {4 * cols + 128} bytes, the limit is 20480; a heavy one is evaluated where it is read"
        assert gone == ({(exp,): why} if gives_up else {})
        assert kernel.plan.composition.shared == ((maximum, total) if gives_up else (maximum, exp, total))
        assert kernel.shared_bytes == 128 + 4 * cols * (not gives_up)
        assert not any(b.scope == "scratch" for b in kernel.buffers), "nothing travels through global memory"


@pytest.mark.paper(15)
@pytest.mark.parametrize(("room", "cols"), [(1024, 300), (V100.shared_per_block, 12_400)])
def test_what_a_block_has_no_room_for_is_evaluated_again(room, cols):
    """On the stepper, whose blocks have as much shared memory as a V100's, or less than the paper's limit."""
    graph = simplify(traced(softmax, (2, cols)))
    inputs = random_inputs(graph, np.random.default_rng(2))
    kernel, gone = composed(graph, Limits(replace(TOY, shared_per_block=room)))
    assert len(gone) == 1 and all(f", the limit is {min(room, SHARED_LIMIT)};" in why for why in gone.values())
    source = emit(kernel)
    results, _ = stepped(source, inputs)
    assert source.text.count("math.exp") == 2
    np.testing.assert_allclose(results[0], evaluate(graph, inputs)[0], rtol=1e-4)


@pytest.mark.paper(15)
def test_reduces_stay_though_a_block_has_no_room_for_them():
    """Sums of rows in the middle, of columns at the end: one block. Light values are given up in vain, sums never."""
    graph = program("f32[16,16] = input name='x'", "f32[16,1] = sum %0 axes=(1,) keepdims=True", "f32[16,16] = broadcast %1 shape=(16, 16)",
                    "f32[16,16] = add %0 %2", "f32[1,16] = max %3 axes=(0,) keepdims=True", "f32[16,16] = broadcast %4 shape=(16, 16)",
                    "f32[16,16] = sub %3 %5")
    inputs = random_inputs(graph, np.random.default_rng(2))
    for room, shared, demoted in ((4096, (1, 3, 4), 0), (512, (1, 4), 0), (100, (1, 4), 1)):
        kernel, gone = composed(graph, Limits(replace(TOY, shared_per_block=room)))
        assert kernel.plan.composition.shared == shared and list(gone) == [(v,) for v in (3,) if v not in shared]
        assert [d.rule for d in kernel.decisions].count("shared-memory") == demoted
        assert all(v.ok for v in judge(graph, inputs, stepped(emit(kernel), inputs)[0]))


@pytest.mark.paper(14)
def test_exp_is_evaluated_once():
    """As often as it has elements; as often as elements and readers if a block has no room for it."""
    graph = simplify(traced(softmax, (32, 16)))
    for limit, readers in ((SHARED_LIMIT, 1), (8, 2)):
        kernel, _ = composed(graph, Limits(TOY, shared=limit))
        assert sum(segment.rows * phase.cols * phase.serial for segment in kernel.segments for phase in segment.phases
                   for s in parts(phase).body if isinstance(s, Compute) and s.op == "exp") == readers * 32 * 16


# ---------------------------------------------------------------- row 18: small products
@pytest.mark.paper(18)
def test_the_user_decides_about_small_products():
    graph = simplify(traced(attention, (4, 8, 16, 16), (4, 8, 16, 16), (4, 8, 16, 16)))
    plain, dots = fuse(graph, "fs18", V100), fuse(graph, "fs18-dot", V100)
    assert (len(plain.kernels), len(plain.library_calls)) == (1, 2)
    assert (len(dots.kernels), len(dots.library_calls)) == (1, 0)
    inputs = random_inputs(graph, np.random.default_rng(3))
    for name in ("fs18", "fs18-dot"):
        check_graph(graph, inputs, lambda g, i, name=name: run(g, i, name, "python", CPU))


@pytest.mark.paper(18)
def test_which_products_are_taken_apart():
    def product(a, b, dtype="f32"):
        return program(f"{dtype}[{a}] = input name='a'", f"{dtype}[{b}] = input name='b'",
                       f"{dtype}[{','.join([*a.split(',')[:-1], b.split(',')[-1]])}] = matmul %0 %1")
    cases = {"4,8,16": ("4,8,16", "4,16,4", "f32", True), "a matrix": ("8,16", "16,4", "f32", False),
             "large": ("4,128,64", "4,64,128", "f32", False), "few and long": ("4,32,32", "4,32,32", "f32", False),
             "many and long": ("128,32,32", "128,32,32", "f32", True), "weights": ("4,8,16", "16,4", "f32", False),
             "a batch of one": ("1,8,16", "1,16,4", "f32", False), "half": ("4,8,16", "4,16,4", "f16", False),
             "double": ("4,8,16", "4,16,4", "f64", True)}
    for name, (a, b, dtype, small) in cases.items():
        graph = product(a, b, dtype)
        apart, products, (decision,) = take_apart(graph, LIMITS)
        assert (decision.rule == "small-dot") is small, name
        assert any(n.op == "matmul" for n in apart.nodes) is not small
        assert apart[apart.outputs[0]].type == graph[graph.outputs[0]].type and decision.at == apart.outputs
        assert products == (set(apart.outputs) if small else set())


@pytest.mark.paper(18)
def test_taking_apart_keeps_the_meaning():
    cases = [((2, 3, 4), (2, 4, 5)), ((2, 2, 3, 4), (1, 2, 2, 4, 5)), ((6, 1, 3), (6, 3, 1)), ((5, 1, 4), (5, 4, 2)), ((2, 1, 0), (2, 0, 3))]
    for left, right in cases:
        graph = traced(lambda a, b: np.tanh(a @ b), left, right)
        apart, *_ = take_apart(graph, LIMITS)
        assert not any(n.op == "matmul" for n in apart.nodes)
        inputs = random_inputs(graph, np.random.default_rng(0))
        np.testing.assert_allclose(evaluate(apart, inputs)[0], evaluate(graph, inputs)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.paper(18)
def test_products_are_cut_at_batch_dimensions():
    """Table 1: a block reads whole matrices. Without the rule a block a row of the result would do."""
    apart, products, _ = take_apart(figure_3(8, 4, 5, 6), LIMITS)
    ruled, = fused(apart, Limits(V100, products=products))
    free, = fused(apart, LIMITS)
    assert max(s.cut.blocks for s in ruled.schedules) == 32 < max(s.cut.blocks for s in free.schedules)
