"""Several kernels in one launch: any of any strategy's parts are right together, the right ones wait, and some are refused."""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from nests import found
from programs import softmax
from stitch_help import CPU, TOY, V100, assemble, program, stepped, traced
from test_blocks import blocky_graph

from minisitch.cuda_emit import emit
from minisitch.errors import KernelError, PlanError
from minisitch.fuse import ALL_INGREDIENTS, Pattern, verify_plan
from minisitch.kernel.ir import VectorMove
from minisitch.lower import lower_program, program_of
from minisitch.passes.registry import default_kernel
from minisitch.simplify import simplify
from minisitch.stitch.blocks import BlockComposition, BlockCut
from minisitch.stitch.body import extract
from minisitch.stitch.compose import Merging, compose, merge
from minisitch.strategies import auto
from minisitch.strategies.ask import fuse
from minisitch.strategies.auto import merge_launches as launches
from minisitch.strategies.auto.merge_launches import one_kernel
from minisitch.strategies.cost import kernel_us, traffic
from minisitch.strategies.prices import Prices, built
from minisitch.testing import judge, random_graph, random_inputs

BLOCKS = BlockComposition(((1, BlockCut(0, 4)),), threads=32)  # %1 has eight elements


def chain():
    """Row sums by blocks, an independent map beside them, and what reads the sums."""
    graph = program("f32[8,40] = input", "f32[8] = sum %0 axes=(1,) keepdims=False", "f32[50] = input", "f32[50] = exp %2",
                    "f32[8] = neg %1", "return %3 %4")
    return graph, (Pattern((1,), (1,), composition=BLOCKS), Pattern((3,), (3,)), Pattern((4,), (4,)))


# ---------------------------------------------------------------- one kernel, read by a person
def test_each_part_keeps_its_composition_and_waits_for_what_it_reads(golden):
    graph, parts = chain()
    whole = one_kernel(graph, parts, {3, 4})
    assert whole.outputs == (3, 4), "nobody else reads the sums"
    plan = compose(extract(graph, whole).graph, TOY, whole.composition)
    kernel = default_kernel(plan)
    golden("merged", "\n".join([f"{plan}\n", *map(str, plan.decisions), f"\n{kernel}"]))
    assert [(s.space.kind, s.level) for s in plan.sub_roots] == [("block", 0), ("row", 0), ("row", 1)]
    assert kernel.grid_barriers == 1 and [d.rule for d in plan.decisions].count("merged") == 3
    inputs = random_inputs(graph, np.random.default_rng(0))
    results, found = stepped(emit(kernel), inputs)
    assert all(v.ok for v in judge(graph, inputs, results))
    assert found.grid_barriers == 1


def test_what_it_saves_is_launches_and_what_both_parts_read():
    graph, parts = chain()
    prices = Prices(graph, V100)
    alone, together = sum(map(prices.pattern_us, parts)), prices.pattern_us(one_kernel(graph, parts, {3, 4}))
    saved = 2 * V100.launch_us - V100.grid_barrier_us
    assert alone - together == pytest.approx(saved, rel=0.02)
    graph = program("f32[64,64] = input", "f32[64,64] = exp %0", "f32[64,64] = neg %0", "return %1 %2")
    parts = Pattern((1,), (1,)), Pattern((2,), (2,))
    prices, whole = Prices(graph, V100), one_kernel(graph, parts, {1, 2})
    apart = sum(traffic(prices.kernel(p)).total for p in parts)
    assert apart - traffic(prices.kernel(whole)).total == graph[0].type.nbytes


def test_block_barriers_cost_as_often_as_a_block_passes_them():
    """Sixty thousand packed rows, which meet nowhere, beside four that do: the rows' turns are not the meetings'."""
    few, many = "f32[4,300]", "f32[60000,8]"
    graph = program(f"{few} = input", "f32[4,1] = max %0 axes=(1,) keepdims=True", f"{many} = input",
                    "f32[60000] = sum %2 axes=(1,) keepdims=False", "return %1 %3")
    kernel = built(graph, V100, ALL_INGREDIENTS)
    turns = [-(-s.tasks // kernel.grid) for s in kernel.segments]
    assert kernel.block_barriers > 0 and max(turns) > 5
    free = kernel_us(replace(kernel, device=replace(V100, block_barrier_us=0.0)))
    assert kernel_us(kernel) - free == pytest.approx(V100.block_barrier_us * kernel.block_barriers)
    graph = program("f32[60000,300] = input", "f32[60000] = max %0 axes=(1,) keepdims=False")
    kernel = built(graph, V100, ALL_INGREDIENTS)
    (segment,) = kernel.segments
    passed = kernel.block_barriers * -(-segment.tasks // kernel.grid)
    free = kernel_us(replace(kernel, device=replace(V100, block_barrier_us=0.0)))
    assert passed > 10 * kernel.block_barriers and kernel_us(kernel) - free == pytest.approx(V100.block_barrier_us * passed)


def test_a_part_waits_no_longer_than_it_must():
    """Its last loop reads the first part's sums, and stands behind barriers of its own as it is: these are enough."""
    graph = program("f32[8,40] = input", "f32[8,1] = sum %0 axes=(1,) keepdims=True", "f32[8,300] = input",
                    "f32[1,300] = sum %2 axes=(0,) keepdims=True", "f32[1,1] = sum %3 axes=(1,) keepdims=True", "f32[8,1] = broadcast %4 "
                    "shape=(8, 1)", "f32[8,1] = add %1 %5", "return %6")
    parts = Pattern((1,), (1,), composition=BLOCKS), Pattern((3, 4, 5, 6), (6,))
    kernels = [default_kernel(compose(extract(graph, p).graph, TOY, p.composition)) for p in parts]
    assert [k.grid_barriers for k in kernels] == [0, 1]
    whole = one_kernel(graph, parts, {6})
    kernel = default_kernel(compose(extract(graph, whole).graph, TOY, whole.composition))
    assert kernel.grid_barriers == 1
    named = re.findall(r"%(\d+) (\w+)", " ".join(kernel.plan.scheme(s).why for s in kernel.plan.sub_roots))
    assert len(named) > 1 and all(kernel.graph[int(node)].op == op for node, op in named), "the ids are those of the whole kernel"
    inputs = random_inputs(graph, np.random.default_rng(0))
    assert all(v.ok for v in judge(graph, inputs, stepped(emit(kernel), inputs)[0]))


def test_what_a_block_is_to_share_stays_shared():
    """A returned value that a block composition keeps in shared memory has a place there beside another part, too."""
    graph = program("f32[8,40] = input", "f32[8,40] = exp %0", "f32[8] = sum %1 axes=(1,) keepdims=False", "f32[5] = input",
                    "f32[5] = neg %3", "return %1 %2 %4")
    blocks = BlockComposition(((1, BlockCut(0, 4)), (2, BlockCut(0, 4))), shared=(1,), threads=32)
    parts = Pattern((1, 2), (1, 2), composition=blocks), Pattern((4,), (4,))
    whole = one_kernel(graph, parts, {1, 2, 4})
    kernel = default_kernel(compose(extract(graph, whole).graph, TOY, whole.composition))
    alone = default_kernel(compose(extract(graph, parts[0]).graph, TOY, blocks))
    assert kernel.shared_bytes == alone.shared_bytes == 2 * 40 * 4


def test_threads_take_several_columns_where_every_part_lets_them():
    graph = program("f32[64,512] = input", "f32[64,1] = sum %0 axes=(1,) keepdims=True", "f32[33,512] = input",
                    "f32[33,512] = exp %2", "return %1 %3")
    stitched = [Pattern((1,), (1,)), Pattern((3,), (3,))]
    enumerated = replace(stitched[1], composition=replace(ALL_INGREDIENTS, barriers=False))
    for parts, several in ((stitched, True), ([stitched[0], enumerated], False)):
        whole = one_kernel(graph, parts, {1, 3})
        kernel = default_kernel(compose(extract(graph, whole).graph, V100, whole.composition))
        assert bool(found(kernel, VectorMove)) == several


# ---------------------------------------------------------------- random plans
KNOWN = ("arguments; at most", "partial rows were planned", "in a circle", "shared memory a block", "in two parts of one kernel",
         "a later part of the kernel computes")  # why kernels may not share a launch


def in_as_few_launches_as_can_be(plan, monkeypatch, device):
    """All kernels between library calls in one launch, whatever it costs; a refusal is one of those we know."""
    class Known(suppress):
        def __exit__(self, kind, problem, traceback):
            assert problem is None or any(words in str(problem) for words in KNOWN), problem
            return super().__exit__(kind, problem, traceback)

    with monkeypatch.context() as patch:
        patch.setattr(launches, "suppress", Known)
        patch.setattr(Prices, "pattern_us", lambda self, pattern: self.kernel(pattern) and 1.0)
        return verify_plan(launches.merged_plan(plan, Prices(plan.graph, device)))


def test_random_plans_of_every_strategy_in_fewer_launches(monkeypatch):
    """On both targets; the stepper sees every race, and the emitted texts are those of the runtime."""
    seen = Counter()
    graphs = [simplify(random_graph(np.random.default_rng(seed), max_nodes=26, max_elements=400)) for seed in range(3)]
    for graph in [*graphs, *map(blocky_graph, range(3))]:
        inputs = random_inputs(graph, np.random.default_rng(0))
        for name in ("none", "xla", "fs18", "fs20", "auto"):  # some kernels of auto have parts already
            for target, device in (("step", TOY), ("python", CPU)):
                plan = fuse(graph, name, device)
                fewer = in_as_few_launches_as_can_be(plan, monkeypatch, device)
                stages = lower_program(program_of(graph), name, target, device, decide=lambda *_, plan=fewer: plan)
                with np.errstate(all="ignore"):
                    verdicts = judge(graph, inputs, assemble(stages, target).outputs(list(inputs)))
                assert all(v.ok for v in verdicts), "\n".join([str(verdicts), str(fewer), *(s.text for s in stages.sources)])
                seen[f"{target} launches saved"] += len(plan.kernels) - len(fewer.kernels)
                parts = [p for k in fewer.kernels if isinstance(k.composition, Merging) for p in k.composition.parts]
                seen["blocks"] += sum(isinstance(p.composition, BlockComposition) for p in parts)
                seen["barriers"] += sum(k.grid_barriers for k in stages.kernels)
                seen["side by side"] += sum(len(k.plan.composition.parts) > 1 + k.grid_barriers for k in stages.kernels
                                            if isinstance(k.plan.composition, Merging))
    assert min(seen.values()) > 3 and len(seen) == 5 and seen["step launches saved"] > 45, seen


@pytest.mark.parametrize("device", [V100, CPU])
def test_auto_takes_fewer_launches_only_where_they_are_cheaper(device):
    """The plan in fewer launches is no dearer, and says what it was before."""
    said = 0
    for seed in range(25):
        graph = random_graph(np.random.default_rng(seed), max_nodes=40, max_elements=1 << (6 + seed % 12))
        prices, plan = Prices(graph, device), fuse(graph, "xla", device)
        fewer = launches.merged_plan(plan, prices)
        assert prices.plan_us(fewer) <= prices.plan_us(plan) * (1 + 1e-9)
        why = [d.why for d in fewer.decisions if d.rule == "merged"]
        assert len(why) == (len(fewer.kernels) < len(plan.kernels))
        assert all(w.startswith(f"{len(fewer.kernels)} kernel") and f" instead of {len(plan.kernels)}: " in w for w in why)
        said += len(why)
    assert said > 10


@pytest.mark.parametrize("compare", [False, True])
def test_auto_merges_launches_of_the_whole_plan_too(compare):
    """Without a library call between them nothing but the way they were proposed keeps kernels apart."""
    graph = simplify(traced(lambda x, y: (softmax(x), softmax(y)), (64, 30), (50, 70)))
    steps = auto.Judgement(replan=False, ablate=False, compare=compare)
    plan = auto.decide(graph, V100, steps, ("xla",))
    assert len(fuse(graph, "xla", V100).kernels) > len(plan.kernels) == 1
    assert "merged" in [d.rule for d in plan.decisions]
    assert len(auto.decide(graph, V100, replace(steps, merge=False), ("xla",)).kernels) > 1


# ---------------------------------------------------------------- what auto does with it
def two_cells(x, w, u, v, first, second, left, right):
    """Two steps back through a recurrent cell: column sums of concatenations, which want blocks, and an addition beside them."""
    def cell(x, w, u, v):
        y = x * w
        return np.concatenate([y * (1 - w * w), u * y * v, y * (1 - v), u + x * x], axis=1), y * v
    (one, carry), (other, back) = cell(x, w, u, v), cell(u, v, w, x)
    return one, carry, other, back, first + np.sum(one, axis=0), second + np.sum(other, axis=0), left + right


def test_auto_puts_a_cheaper_way_in_several_kernels_into_one_launch():
    graph = simplify(traced(two_cells, *[(128, 128)] * 4, (512,), (512,), (156, 512), (156, 512)))
    apart = auto.decide(graph, V100, auto.Judgement(merge=False, compare=False))
    plan = auto.decide(graph, V100, auto.Judgement(compare=False))
    prices = Prices(graph, V100)
    assert (len(apart.kernels), len(plan.kernels)) == (2, 1)
    assert prices.plan_us(plan) < prices.plan_us(apart) - 9
    assert isinstance(plan.kernels[0].composition, Merging)
    (why,) = [d.why for d in plan.decisions if d.rule == "cheapest-way"]
    assert why.endswith("; taken: fs18, its kernels merged") and "fs18, its kernels merged" in why.split("; taken")[0]


def test_a_launch_more_must_be_worth_it():
    """A way in several launches is taken from 1.03 times cheaper on, also where the model's word counts without a margin."""
    graph = simplify(traced(lambda x: softmax(x) @ np.zeros((30, 4), np.float32), (64, 30)))
    judge_of = auto._Judge(Prices(graph, V100), auto.ALL_STEPS, auto.PROPOSERS)
    kernel = fuse(graph, "astitch", V100).kernels[0]
    body = extract(graph, kernel)
    whole = judge_of._ways(body, kernel, "astitch")[0]
    halves = tuple(p for p in fuse(body.graph, "none", V100).patterns)

    def taken(us, patterns):
        return judge_of._choice([whole, auto.Way("other", patterns, us)], body.graph)[0] is not None

    assert taken(whole.us / 1.031, halves) and not taken(whole.us / 1.029, halves)
    one = (replace(whole.patterns[0], composition=replace(ALL_INGREDIENTS, keep=False)),)
    assert taken(whole.us / 1.001, one)


def test_it_moves_with_its_kernel():
    """Equal layers are judged once; each has the kernel that was chosen, though its nodes have other ids."""
    def layers(x, w, down, sums, total):
        found = []
        for _ in range(3):
            found += two_cells(x, w, w, x, sums, sums, total, total)
            x = found[-7] @ down
        return tuple(found)
    graph = simplify(traced(layers, (128, 128), (128, 128), (512, 128), (512,), (156, 512)))
    plan = auto.decide(graph, V100, auto.Judgement(compare=False))
    graph, prices = plan.graph, Prices(plan.graph, V100)
    held = [p for p in plan.kernels if isinstance(p.composition, Merging)]
    assert len(held) == 3
    kernels = [prices.kernel(p) for p in held]
    assert len({id(k.segments) for k in kernels[1:]}) == 1, "the first layer reads other inputs"
    ops = []
    for pattern in held[1:]:
        body = extract(graph, pattern).graph
        ops.append([[body[m].op for m in part.members] for part in pattern.composition.parts])
    assert len(ops[0]) > 1 and [*map(sorted, ops[0])] == [*map(sorted, ops[1])]


# ---------------------------------------------------------------- what it refuses, and who would see it
def test_kernels_that_wait_for_another_between_them_stay_apart(monkeypatch):
    """The first and the last would be cheaper together, but what is between them reads the one and is read by the other."""
    graph = program("f32[8] = input", "f32[8] = exp %0", "f32[8] = neg %1", "f32[8] = abs %2", "return %3")
    kernels = [Pattern((k,), (k,)) for k in (1, 2, 3)]
    monkeypatch.setattr(Prices, "pattern_us", lambda self, pattern: 10.0 if 2 in pattern.members and len(pattern.members) > 1 else 1.0)
    assert launches.merged(kernels, {3}, Prices(graph, V100)) == tuple(kernels)


def test_a_part_before_what_it_reads_is_refused():
    graph, (sums, beside, reader) = chain()
    with pytest.raises(PlanError, match=r"reads %\d+ sum, which a later part of the kernel computes; put"):
        whole = one_kernel(graph, (reader, beside, sums), {3, 4})
        compose(extract(graph, whole).graph, TOY, whole.composition)


def test_a_kernel_has_no_more_arguments_than_it_may(monkeypatch):
    """Thirty sums of two arrays each fit in no single launch, whatever it would save."""
    def many(*arrays):
        return tuple(a + b for a, b in zip(arrays[::2], arrays[1::2], strict=True))
    graph = simplify(traced(many, *[(8,)] * 60))
    plan = fuse(graph, "none", V100)
    with pytest.raises(PlanError, match=r"one kernel of 30 parts would have 90 arguments; at most 64"):
        one_kernel(graph, plan.kernels, set(graph.outputs))
    fewer = in_as_few_launches_as_can_be(plan, monkeypatch, V100)
    assert [len(p.outputs) for p in fewer.kernels] == [21, 9], "21 sums have 63 arguments"


def test_one_value_with_two_loops_is_refused():
    graph = program("f32[8,40] = input", "f32[8] = sum %0 axes=(1,) keepdims=False", "f32[8] = neg %1", "f32[8] = exp %1",
                    "return %2 %3")
    parts = Pattern((1, 2), (2,)), Pattern((1, 3), (3,))
    whole = one_kernel(graph, parts, {2, 3})
    with pytest.raises(PlanError, match=r"%1 sum has a loop in two parts of one kernel; leave it in one part"):
        compose(extract(graph, whole).graph, TOY, whole.composition)


def test_a_part_that_does_not_wait_is_caught():
    """The mutant: without its grid barrier the reader finds nothing, which the checker of kernels says."""
    graph, parts = chain()
    whole = one_kernel(graph, parts, {3, 4})
    plan = merge(extract(graph, whole).graph, TOY, whole.composition)
    early = tuple(replace(s, level=0) for s in plan.sub_roots)
    with pytest.raises(KernelError, match="is read"):
        default_kernel(replace(plan, sub_roots=early))
