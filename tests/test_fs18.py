"""FusionStitching 2018: layers, Algorithm 1, schedules, prices, shared memory; each test carries its row of docs/papers.md."""

import math

import numpy as np
import pytest
from fs18_help import LIMITS, figure_3, fused
from programs import gelu, layernorm, softmax
from stitch_help import CPU, TOY, V100, program, run, traced

from minisitch.fuse import VIEWS, is_fusible
from minisitch.graph import TensorType
from minisitch.passes.registry import default_kernel
from minisitch.simplify import simplify
from minisitch.stitch.blocks import BlockComposition
from minisitch.stitch.body import extract
from minisitch.stitch.compose import compose
from minisitch.strategies.ask import fuse
from minisitch.strategies.fs18 import fusion as fusion_module
from minisitch.strategies.fs18 import layers, plan, slabs
from minisitch.strategies.fs18.block_cuts import block_cut_for
from minisitch.strategies.fs18.compose import wishes
from minisitch.strategies.fs18.dots import take_apart
from minisitch.strategies.fs18.fusion import Fusion, Limits
from minisitch.strategies.fs18.layers import Sweeper
from minisitch.strategies.fs18.reads import OperandReads
from minisitch.strategies.fs18.spans import spans
from minisitch.testing import check_graph, random_graph, random_inputs
from minisitch.trace.builder import Builder


def spans_of(graph):
    return spans({n: graph.users[n] for n in range(len(graph))})


def rules(graph, limits=LIMITS):
    return {d.rule for d in plan(graph, "fs18", limits).decisions}


# ---------------------------------------------------------------- the paper's Fig. 3
@pytest.mark.paper(1)
def test_figure_3_spans():
    """Arg.2 is 1 by the formula (the figure draws every input in layer 9)."""
    assert spans_of(figure_3()) == {10: 0, 9: 1, 8: 2, 7: 3, 6: 4, 5: 5, 4: 6, 3: 7, 2: 8, 0: 9, 1: 1}


@pytest.mark.paper(5)
@pytest.mark.paper(6)
@pytest.mark.paper(14)
@pytest.mark.paper(16)
def test_figure_3_golden(golden):
    """Nine operations in one kernel, 512 blocks, the paper's block cuts, who shares with whom, 1,224 bytes instead of 2,448."""
    graph, products, _ = take_apart(figure_3(), LIMITS)
    limits = Limits(V100, products=products)
    fusion, = fused(graph, limits)
    names = dict(zip(("max", "sub", "exp", "sum", "div", "mul"), ("Reduce.1", "Subtract", "Exp", "Reduce.2", "Divide", "Multiply"), strict=True))
    named = {m: "Dot" if m in products else names[graph[m].op] for m in sorted(fusion.members)}
    assert list(named.values()) == ["Reduce.1", "Subtract", "Exp", "Reduce.2", "Divide", "Multiply", "Dot"], "views are read through"
    pattern, = plan(graph, "fs18-dot", limits).kernels
    body, how = extract(graph, pattern), pattern.composition
    assert isinstance(how, BlockComposition) and {t.blocks(body.graph[v].type.shape) for v, t in how.schedules} == {512}
    lines = [f"{named[body.origin[v]]}: {t.kind} split_dim={t.split_dim} sword={t.sword}, "
             f"{t.blocks(body.graph[v].type.shape)} blocks" for v, t in how.schedules]
    kernel = default_kernel(compose(body.graph, V100, how))
    kept = {b.name: b for b in kernel.buffers if b.scope == "shared"}
    wanted = wishes(fusion, fusion.schedules[-1])
    assert [b.node for b in kept.values()] == list(how.shared) and set(wanted) == {body.origin[v] for v in how.shared}
    for name, b in kept.items():
        owner = kept[kernel.owners[name]]
        place = "ALLOC" if owner is b else f"SHARE({named[body.origin[owner.node]]})"
        lines.append(f"{named[body.origin[b.node]]}: {wanted[body.origin[b.node]].why}, {4 * b.size} bytes, {place}")
    unshared = sum(4 * b.size for b in kept.values())
    assert (kernel.shared_bytes, unshared) == (1224, 2448)
    golden("figure_3_fs18", "\n".join([*lines, f"{kernel.shared_bytes} bytes instead of {unshared}"]))


@pytest.mark.paper(13)
@pytest.mark.parametrize("target", ["step", "python"])
def test_figure_3_runs_small(target):
    graph = figure_3(2, 2, 5, 6)
    inputs = random_inputs(graph, np.random.default_rng(0))
    for name in ("fs18", "fs18-dot"):
        check_graph(graph, inputs, lambda g, i, name=name: run(g, i, name, target, TOY if target == "step" else CPU))


# ---------------------------------------------------------------- rows 1 to 3: spans and slabs
@pytest.mark.paper(1)
def test_spans_fall_from_operand_to_reader():
    for seed in range(60):
        graph = random_graph(np.random.default_rng(seed), max_nodes=40, max_elements=200)
        found = spans_of(graph)
        for node in graph.nodes:
            assert all(found[a] > found[node.id] for a in node.args)
            assert found[node.id] == max((found[u] + 1 for u in graph.users[node.id]), default=0), "the longest path, no more"


@pytest.mark.paper(3)
def test_a_product_in_the_middle_makes_two_slabs():
    graph = program("f32[8,8] = input name='x'", "f32[8,8] = exp %0", "f32[8,8] = neg %1", "f32[8,8] = matmul %2 %2",
                    "f32[8,8] = tanh %3", "f32[8,8] = add %4 %1")
    assert slabs(graph, OperandReads(graph)) == [[1, 2], [4, 5]]
    found = fuse(graph, "fs18", V100)
    assert [(p.kind, p.outputs) for p in found.patterns] == [("kernel", (1, 2)), ("library", (3,)), ("kernel", (5,))]
    assert "library-call" in {d.rule for d in found.decisions}
    assert len(fuse(program("f32[8,8] = input name='x'", "f32[8,8] = exp %0", "f32[8,8] = tanh %1"), "fs18", V100).kernels) == 1


# ---------------------------------------------------------------- row 4: intra-layer fusion
def updates(count, size=64):
    """``count`` weights less a step along their gradients."""
    lines = []
    for k in range(count):
        lines += [f"f32[{size}] = input name='w{k}'", f"f32[{size}] = input name='g{k}'"]
    lines.append(f"f32[{size}] = constant value=0.1")
    rate = len(lines) - 1
    outs = []
    for k in range(count):
        lines += [f"f32[{size}] = mul %{2 * k + 1} %{rate}", f"f32[{size}] = sub %{2 * k} %{len(lines)}"]
        outs.append(len(lines) - 1)
    return program(*lines, "return " + " ".join(f"%{o}" for o in outs))


@pytest.mark.paper(4)
def test_twenty_weight_updates_are_one_kernel():
    graph = updates(20)
    assert [len(fuse(graph, name, V100).kernels) for name in ("none", "xla", "fs18")] == [40, 20, 1]
    assert "intra-layer" in rules(graph)
    assert "intra-layer" not in rules(updates(1))


@pytest.mark.paper(4)
def test_the_footprint_limit_splits_a_pack():
    """Each update touches 3 x 256 bytes when it is packed alone with its sources: four fit into a limit of four and a half."""
    graph = updates(20)
    each = 3 * 64 * 4
    for fit in (1, 4, 10):
        tiny = (fit + 0.5) * each / V100.bandwidth * 1e6
        assert len(plan(graph, "fs18", Limits(V100, tiny_us=tiny)).kernels) == math.ceil(20 / fit)
    assert len(plan(graph, "fs18", Limits(V100, tiny_us=0)).kernels) == 20


@pytest.mark.paper(4)
def test_a_pack_stays_within_the_arguments():
    found = fuse(updates(40), "fs18", V100)
    assert len(found.kernels) == 2
    assert all(len(extract(found.graph, p).inputs) + len(p.outputs) <= 64 for p in found.kernels)


def test_each_ingredient_lowers_the_count(monkeypatch):
    """Nothing fused > packing alone > packing and Algorithm 1."""
    def both(x, scale, shift, *weights):
        return (layernorm(softmax(x), scale, shift), *(w - 0.1 * np.tanh(w) for w in weights))

    graph = simplify(traced(both, (128, 256), (256,), (256,), *[(64,)] * 20))
    whole = len(plan(graph, "fs18", LIMITS).kernels)
    monkeypatch.setattr(Sweeper, "subgraph_fuse", lambda self, root: None)
    packed = len(plan(graph, "fs18", LIMITS).kernels)
    assert (whole, packed, len(fuse(graph, "none", V100).kernels)) == (2, 19, 76)


# ---------------------------------------------------------------- row 5: Algorithm 1, and no circles
def dag(rng, count, back=8):
    """Operations that each read one or two of the last few."""
    b = Builder()
    b.add("input", type=TensorType((4,)), name="x")
    for _ in range(count):
        args = [int(max(0, len(b.nodes) - 1 - rng.integers(0, back))) for _ in range(rng.integers(1, 3))]
        b.add("add" if len(args) == 2 else "neg", args)
    read = {a for node in b.nodes for a in node.args}
    return b.finish([node.id for node in b.nodes if node.id not in read])


def dice(monkeypatch, seed, refused=0.4):
    """Schedule planning that refuses at random, as the paper's could for any reason."""
    rng = np.random.default_rng(seed)

    class Picky(Fusion):
        def add(self, members):
            if self.members and rng.random() < refused:
                return "no-satisfiable-schedule", "the dice said no"
            return super().add(members)

    monkeypatch.setattr(layers, "Fusion", Picky)


def sweep_once(graph):
    """The contraction after one sweep without packs, and whether its clusters wait for each other."""
    reads = OperandReads(graph)
    sweeper = Sweeper(reads, reads.operations, Limits(V100, tiny_us=0))
    sweeper.sweep()
    parts = sweeper.parts
    return parts, len(spans({c: parts.users(c) for c in parts.members})) < len(parts.members)


@pytest.mark.paper(5)
def test_no_sweep_ever_makes_a_circle(monkeypatch):
    for seed in range(120):
        dice(monkeypatch, seed)
        parts, circle = sweep_once(dag(np.random.default_rng(seed), 12))
        assert not circle
        for cluster in parts.members:
            assert all(parts.span[u] < parts.span[cluster] for u in parts.users(cluster))
    for seed in range(5):
        dice(monkeypatch, seed)
        plan(dag(np.random.default_rng(seed), 200), "fs18", Limits(V100, tiny_us=0))  # raises if patterns wait in a circle


@pytest.mark.paper(5)
def test_every_operation_is_in_exactly_one_kernel():
    for seed in range(80):
        graph = random_graph(np.random.default_rng(seed), max_nodes=60, max_elements=300)
        reads = OperandReads(graph)
        members = sorted(m for kernel in fused(graph) for m in kernel.members)
        assert members == reads.operations
        owned = [m for p in fuse(graph, "fs18", V100).kernels for m in p.members if is_fusible(graph[m]) and graph[m].op not in VIEWS]
        assert len(owned) == len(set(owned))


@pytest.mark.paper(5)
def test_give_up_user_is_conservative_and_named():
    """%1 feeds the root and an operation that was given up: fused, it could close a circle through that one."""
    def sums(axes, shape):
        return program("f32[128,64] = input name='x'", "f32[128,64] = exp %0", "f32[128,1] = sum %1 axes=(1,) keepdims=True",
                       f"f32[{shape}] = sum %1 axes={axes} keepdims=True", "f32[128,1] = broadcast %3 shape=(128, 1)",
                       "f32[128,1] = add %2 %4")

    found = plan(sums((0, 1), "1,1"), "fs18", Limits(V100, serial=16))
    given_up = [d for d in found.decisions if d.rule == "give-up-user"]
    assert (1, 5) in [d.at for d in given_up] and any("%3 sum" in d.why for d in given_up)
    assert len(found.kernels) == 2
    twin = sums((1,), "128,1")
    assert "give-up-user" not in rules(twin) and len(plan(twin, "fs18", Limits(V100, serial=16)).kernels) == 1


# ---------------------------------------------------------------- rows 7 and 8: schedules, and planning that refuses
REFUSED = {  # rule: a graph that it cuts, and limits; a twin that stays one kernel
    "no-satisfiable-schedule": (
        program("f32[96,96] = input name='x'", "f32[1,1] = sum %0 axes=(0, 1) keepdims=True",
                "f32[96,96] = broadcast %1 shape=(96, 96)", "f32[96,96] = sub %0 %2"), Limits(V100, serial=16),
        program("f32[96,96] = input name='x'", "f32[96,1] = sum %0 axes=(1,) keepdims=True",
                "f32[96,96] = broadcast %1 shape=(96, 96)", "f32[96,96] = sub %0 %2")),
    "shared-memory-limit": (
        traced(softmax, (64, 128)), Limits(V100, shared=3),
        traced(gelu, (64, 128))),
}


@pytest.mark.paper(8)
@pytest.mark.parametrize("rule", REFUSED)
def test_planning_can_refuse(rule):
    """A kernel that cannot be scheduled is split, not failed."""
    graph, limits, twin = REFUSED[rule]
    cut, whole = plan(simplify(graph), "fs18", limits), plan(simplify(twin), "fs18", limits)
    assert len(cut.kernels) > 1 and rule in {d.rule for d in cut.decisions if d.verdict == "keep apart"}
    assert len(whole.kernels) == 1 and rule not in {d.rule for d in whole.decisions}


@pytest.mark.paper(8)
def test_arguments_are_a_limit():
    b = Builder()
    xs = [b.add("input", type=TensorType((2, 3)), name=f"x{i}") for i in range(100)]
    y = xs[0]
    for x in xs[1:]:
        y = b.add("add", [y, b.add("exp", [x])])
    found = fuse(b.finish([y]), "fs18", V100)
    assert 2 <= len(found.kernels) <= 4 and "argument-limit" in {d.rule for d in found.decisions}
    assert all(len(extract(found.graph, p).inputs) + len(p.outputs) <= 64 for p in found.kernels)


def crossed(n):
    """Rows are summed up, then columns of what the sums are multiplied with: both have one block in common, and no more."""
    return program(f"f32[{n},{n}] = input name='x'", f"f32[{n}] = sum %0 axes=(1,) keepdims=False",
                   f"f32[{n},1] = reshape %1 shape=({n}, 1)", f"f32[{n},{n}] = broadcast %2 shape=({n}, {n})",
                   f"f32[{n},{n}] = mul %0 %3", f"f32[{n}] = sum %4 axes=(0,) keepdims=False")


@pytest.mark.paper(8)
def test_one_block_is_a_schedule_only_for_what_is_small():
    """Taken for 64 x 64, refused for 4096 x 4096, unless a block may have as much to do."""
    small, large, allowed = (plan(crossed(n), "fs18", Limits(V100, serial=serial)).kernels
                             for n, serial in ((64, 16_384), (4096, 16_384), (4096, 1 << 24)))
    assert (len(small), len(large), len(allowed)) == (1, 2, 1)
    assert [dict(p.composition.schedules).popitem()[1].blocks((n,)) for (p,), n in ((small, 64), (allowed, 4096))] == [1, 1]


@pytest.mark.paper(8)
def test_of_two_refusals_the_one_that_came_nearest_is_told():
    """One block would do if it had room for 64 sums; any other number of blocks would not do at all. Of those that all would do, the
    most want least."""
    def told(graph, **limits):
        decisions = plan(graph, "fs18", Limits(V100, **limits)).decisions
        return {(d.rule, d.why) for d in decisions if d.verdict == "keep apart" and d.rule != "give-up-user"}
    assert told(crossed(64), shared=255) == {
        ("shared-memory-limit", "256 bytes of reduces in each of 1 row block; the limit is 255")}
    assert told(crossed(64), shared=255, serial=1000) == {
        ("no-satisfiable-schedule", "cut in 64 row blocks, %1 sum would be read by blocks that do not own it")}
    assert told(simplify(traced(softmax, (64, 128))), shared=3) == {
        ("shared-memory-limit", "4 bytes of reduces in each of 64 row blocks; the limit is 3")}


@pytest.mark.paper(7)
def test_what_is_composed_owns_what_it_reads():
    """Every schedule left at the end hands each scheduled operation the cut that all its readers ask for."""
    checked = 0
    for seed in range(80):
        graph = random_graph(np.random.default_rng(seed), max_nodes=40, max_elements=300)
        reads = OperandReads(graph)
        for kernel in fused(graph):
            for way in kernel.schedules:
                for member in kernel.members if not way.threads else ():
                    node, cut = graph[member], way.asked[member]
                    if node.kind == "reduce" or member in kernel.outputs:
                        assert block_cut_for(cut, node.type.shape).blocks(node.type.shape) == way.cut.blocks
                        asked = {reads.asked(r.way, way.asked[reader]) for reader in reads.readers[member] if reader in kernel.members
                                 for r in reads.of[reader] if r.source == member}
                        assert asked <= {cut}
                        checked += 1
    assert checked > 300


@pytest.mark.paper(11)
def test_trivial_operations_are_bypassed(monkeypatch):
    """Broadcasts are no operations: who reads through one computes another index. A light value behind one is evaluated again by
    each block that asks for it; if nothing may be, the same kernel is refused."""
    graph = program("f32[64,128] = input name='x'", "f32[1,128] = input name='b'", "f32[64,128] = broadcast %1 shape=(64, 128)",
                    "f32[64,128] = add %0 %2", "f32[64,1] = sum %3 axes=(1,) keepdims=True", "f32[1,128] = neg %1",
                    "f32[64,128] = broadcast %5 shape=(64, 128)", "f32[64,1] = broadcast %4 shape=(64, 1)",
                    "f32[64,128] = broadcast %7 shape=(64, 128)", "f32[64,128] = mul %6 %8")
    members = [3, 4, 5, 9]
    assert OperandReads(graph).operations == members and OperandReads(graph).sources(9) == [5, 4] and OperandReads(graph).arguments(3) == {0, 1}
    bypassed = Fusion(OperandReads(graph), Limits(V100, serial=128), members)
    assert not bypassed.refused[0] and {s.cut.blocks for s in bypassed.schedules} >= {64}
    monkeypatch.setattr(fusion_module, "MOST_POSITIONS", 0)  # nothing is evaluated where it is read
    strict = Fusion(OperandReads(graph), Limits(V100, serial=128), members)
    assert strict.refused[0] == "no-satisfiable-schedule" and "%5 neg would be evaluated again" in strict.refused[1]
    assert not Fusion(OperandReads(graph), Limits(V100, serial=128), [3, 4]).refused[0]
