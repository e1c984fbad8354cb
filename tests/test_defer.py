"""What one later kernel alone reads may be computed there: right wherever it is legal, only where it is cheaper, in bounded memory."""

from dataclasses import replace

import numpy as np
import pytest
from stitch_help import CPU, TOY, V100, Program, Static, assemble, program

import minisitch as ms
from minisitch import defer
from minisitch.build import Prices
from minisitch.defer import deferred_plan
from minisitch.device import BUILT_IN, cpu_with
from minisitch.fuse import Stitching, fuse, pattern_inputs, returned
from minisitch.runtime.stages import lower_plan
from minisitch.simplify import simplify
from minisitch.strategies import astitch
from minisitch.strategies.auto import Judgement, decide
from minisitch.testing import judge, random_inputs

LEGAL = 0.0  # a margin with which whatever may be deferred is

# Before the product: what it reads, and the sum of three arrays, for what comes behind it. AStitch lets only what reads two arrays move.
BEFORE = ("f32[64,64] = input", "f32[64,64] = input", "f32[64,64] = input", "f32[64,64] = input", "f32[64,64] = exp %0",
          "f32[64,64] = add %1 %2", "f32[64,64] = mul %3 %5", "f32[64,64] = matmul %4 %0")
EARLY = (*BEFORE, "f32[64,64] = add %6 %7")


def deferred(*lines, device=CPU, margin=LEGAL, plan=None):
    """A program's kernels, without constants: members and outputs of each, with what is deferred; and the decisions that say so."""
    graph = program(*lines)
    plan = deferred_plan(plan or fuse(graph, "astitch", device), Prices(graph, device), margin)
    return [(p.members, p.outputs) for p in plan.patterns], [d for d in plan.decisions if d.rule == "deferred"]


# ---------------------------------------------------------------- by hand
def test_what_only_the_kernel_behind_a_product_reads_is_computed_there():
    """Before: {exp, add mul}, product, {add of both}. After: {exp}, product, {add mul, add}: 16,384 bytes less are written and read."""
    graph = program(*EARLY)
    before = fuse(graph, "astitch", CPU)
    assert [(p.members, p.outputs) for p in before.patterns] == [((4, 5, 6), (4, 6)), ((7,), (7,)), ((8,), (8,))]
    patterns, (decision,) = deferred(*EARLY, margin=1.03)
    assert patterns == [((4,), (4,)), ((7,), (7,)), ((5, 6, 8), (8,))]
    assert decision.at == (6,) and decision.why.startswith("one later kernel alone reads %6 mul: ")
    less, more = (float(words.split(" us")[0]) for words in decision.why.split(": ")[1].split(" instead of "))
    prices = Prices(graph, CPU)
    assert more == pytest.approx(sum(map(prices.pattern_us, before.kernels)), rel=1e-3) and less * 1.03 < more


def test_what_the_first_kernel_writes_anyway_is_read():
    """%6 is of %4 too, which the product reads: that is not computed twice."""
    lines = (*BEFORE[:6], "f32[64,64] = mul %5 %4", "f32[64,64] = sub %3 %6", "f32[64,64] = matmul %4 %0", "f32[64,64] = add %7 %8")
    assert deferred(*lines)[0] == [((4,), (4,)), ((8,), (8,)), ((5, 6, 7, 9), (9,))]


def test_constants_and_views_are_made_again():
    """The row that both read: each kernel has its broadcast."""
    lines = (*BEFORE[:4], "f32[64] = input", "f32[1,64] = reshape %4 shape=(1, 64)", "f32[64,64] = broadcast %5 shape=(64, 64)",
             "f32[64,64] = mul %0 %6", "f32[64,64] = add %1 %2", "f32[64,64] = sub %3 %8", "f32[64,64] = mul %9 %6",
             "f32[64,64] = matmul %7 %0", "f32[64,64] = add %10 %11")
    assert deferred(*lines)[0] == [((5, 6, 7), (7,)), ((11,), (11,)), ((5, 6, 8, 9, 10, 12), (12,))]


REFUSED = {
    "the product reads it, too": (*BEFORE[:7], "f32[64,64] = matmul %4 %6", "f32[64,64] = add %6 %7"),
    "it is returned": (*EARLY, "return %6 %8"),
    "two kernels read it": (*EARLY, "f32[64,64] = matmul %8 %0", "f32[64,64] = sub %9 %6"),
    "the first kernel needs what it is made of": (*BEFORE[:4], "f32[64,64] = add %1 %2", "f32[64,64] = exp %4", "f32[64,64] = mul %3 %4",
                                                  "f32[64,64] = matmul %5 %0", "f32[64,64] = add %6 %7"),
    "the first kernel writes nothing else": (*BEFORE[:4], "f32[64,64] = add %1 %2", "f32[64,64] = mul %3 %4", "f32[64,64] = matmul %0 %1",
                                             "f32[64,64] = add %5 %6"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_one_later_kernels_alone_stays(why):
    graph = program(*REFUSED[why])
    patterns, said = deferred(*REFUSED[why])
    assert not said and patterns == [(p.members, p.outputs) for p in fuse(graph, "astitch", CPU).patterns]
    assert len(patterns) > 2, "there are two kernels"


def test_what_is_not_so_many_times_cheaper_stays():
    assert deferred(*EARLY, margin=1.03)[1] and not deferred(*EARLY, margin=2.0)[1]


def test_a_column_sum_stays_where_its_rows_are_read():
    """Two sums of one array: apart they would read it twice."""
    lines = ("f32[2048,2048] = input", "f32[2048,1] = sum %0 axes=(1,) keepdims=True", "f32[1,2048] = sum %0 axes=(0,) keepdims=True",
             "f32[2048,2048] = matmul %1 %2", "f32[1,2048] = max %0 axes=(0,) keepdims=True")
    lines = (*lines, "f32[2048,2048] = broadcast %4 shape=(2048, 2048) axes=(0, 1)", "f32[2048,2048] = sub %3 %5")
    assert deferred(*lines)[1] and not deferred(*lines, margin=1.0)[1]


def test_a_value_goes_before_what_it_is_made_of():
    """The later kernel reads %6 and %5, which %6 is made of: both are computed there."""
    lines = (*EARLY, "f32[64,64] = mul %8 %5")
    assert deferred(*lines)[0] == [((4,), (4,)), ((7,), (7,)), ((5, 6, 8, 9), (9,))]


def test_no_kernel_has_more_arguments_than_it_may(monkeypatch):
    """The second kernel has five: the product's result, what %6 is made of, and its own."""
    assert deferred(*EARLY)[1]
    monkeypatch.setattr(defer, "MOST_ARGUMENTS", 4)
    assert not deferred(*EARLY)[1]


def test_a_composition_of_another_kind_is_left_alone():
    graph = program(*EARLY)
    plan = fuse(graph, "astitch", CPU)
    other = replace(plan, patterns=(replace(plan.patterns[0], composition=Stitching(keep=False)), *plan.patterns[1:]))
    assert not deferred(*EARLY, plan=other)[1]


# ---------------------------------------------------------------- memory
def chain(n):
    """Backpropagation through time: each step's product is added to a sum that only the next step's kernel reads."""
    lines = ["f32[64,64] = input", "f32[64,64] = exp %0", "f32[64,64] = matmul %1 %0", "f32[64,64] = exp %2"]
    state, total = 3, 2
    for _ in range(n):
        lines += [f"f32[64,64] = matmul %{state} %0", f"f32[64,64] = add %{len(lines)} %{total}", f"f32[64,64] = exp %{len(lines)}"]
        state, total = len(lines) - 1, len(lines) - 2
    return simplify(program(*lines, f"return %{state} %{total}"))


def with_cache(nbytes):
    """A CPU whose largest cache holds so much."""
    return cpu_with({**BUILT_IN, "levels": [[nbytes, 50e9, 80e9], [1 << 26, 25e9, 40e9]]}, cores=2)


def in_use(plan):
    """Bytes behind each pattern that are written already and read later."""
    graph, outside = plan.graph, returned(plan.graph) | set(plan.graph.inputs)
    return [sum(graph[v].type.nbytes for v in {o for p in plan.patterns[:k] for o in p.outputs} - outside
                if any(v in pattern_inputs(graph, p) for p in plan.patterns[k:])) for k in range(1, len(plan.patterns))]


def products_between(seed):
    """A random program of squares with a product every fourth time: its values are read at many levels."""
    random, side = np.random.default_rng(seed), (1, 7, 16, 33)[seed % 4]
    square = f"f32[{side},{side}]"
    lines, squares = [f"{square} = input"] * 4, [0, 1, 2, 3]
    for _ in range(30):
        one, other = (int(random.choice(squares[-12:])) for _ in range(2))
        match random.choice(["matmul", "sum", "transpose", "exp", "add", "mul", "sub"], p=[0.25, *[0.125] * 6]):
            case "sum":
                lines += [f"f32[{side},1] = sum %{one} axes=(1,) keepdims=True", f"{square} = broadcast %{len(lines)} shape=({side}, {side})"]
            case "transpose":
                lines += [f"{square} = transpose %{one} perm=(1, 0)"]
            case "exp":
                lines += [f"{square} = tanh %{one}", f"{square} = exp %{len(lines)}"]
            case op:
                lines += [f"{square} = {op} %{one} %{other}"]
        squares.append(len(lines) - 1)
    return simplify(program(*lines, f"return %{squares[-1]} %{squares[-3]}"))


def early_plan(graph, device):
    """AStitch's plan of a graph with every value as early as it can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(astitch, "_bytes_read", lambda graph, kept: [1 << 60] * len(graph))
        return fuse(graph, "astitch", device)


def growth(plan, device):
    """How many bytes more are in use somewhere with what may be deferred; and what is."""
    later = deferred_plan(plan, Prices(plan.graph, device), LEGAL)
    return (max((b - a for a, b in zip(in_use(plan), in_use(later), strict=True)), default=0),
            [d for d in later.decisions if d.rule == "deferred"])


@pytest.mark.parametrize(("room", "expected", "sums"), [(16_384, 1, 4), (5 * 16_384, 5, 7), (1 << 20, 9, 8)])
def test_no_more_memory_than_the_largest_cache_holds(room, expected, sums):
    """Each sum that is put off keeps one product more: with room for all of them the last kernel adds all up."""
    graph = chain(10)
    device = with_cache(room)
    grown, said = growth(fuse(graph, "astitch", device), device)
    assert grown == expected * 16_384 <= room and len(said) == sums


def test_what_several_values_keep_adds_up():
    """%10 keeps two arrays more, and so would %12 over the same product: there is room for one of them."""
    square = "f32[64,64]"
    lines = [f"{square} = input", *(f"{square} = matmul %{k} %0" for k in range(7)), f"{square} = exp %7",
             f"{square} = add %1 %2", f"{square} = add %9 %7", f"{square} = add %3 %4", f"{square} = add %11 %7",
             f"{square} = matmul %8 %0", f"{square} = add %13 %10", f"{square} = mul %14 %12"]
    graph, arrays = program(*lines), []
    for room in (1, 2, 4):
        device = with_cache(room * 16_384)
        grown, said = growth(fuse(graph, "astitch", device), device)
        assert grown <= room * 16_384
        arrays.append((grown // 16_384, len(said)))
    assert arrays == [(0, 0), (2, 1), (3, 2)]


def test_on_a_gpu_no_more_memory_at_all():
    graph = chain(6)
    grown, _ = growth(fuse(graph, "astitch", V100), V100)
    assert grown == 0


@pytest.mark.parametrize("room", [1, 1024, 1 << 20])
def test_random_plans_in_bounded_memory(room):
    device, count = with_cache(room), 0
    for seed in range(60):
        graph = products_between(seed)
        grown, said = growth(early_plan(graph, device), device)
        assert grown <= room, seed
        count += len(said)
    assert count > 25


def test_whoever_forgets_what_is_kept_is_caught(monkeypatch):
    monkeypatch.setattr(defer, "_kept", lambda *what: 0)
    device = with_cache(16_384)
    assert growth(fuse(chain(11), "astitch", device), device)[0] > 16_384


# ---------------------------------------------------------------- random programs
@pytest.mark.parametrize(("target", "device"), [("python", CPU), ("step", TOY)])
def test_random_plans_with_whatever_may_be_deferred(target, device):
    """As many kernels, none with more outputs, and what they compute is right."""
    count = 0
    for seed in range(80):
        graph = products_between(seed)
        plan = early_plan(graph, device)
        later = deferred_plan(plan, Prices(graph, device), LEGAL)
        said = [d for d in later.decisions if d.rule == "deferred"]
        if not said:
            continue
        count += len(said)
        assert len(later.patterns) == len(plan.patterns)
        assert sum(len(p.outputs) for p in later.patterns) == sum(len(p.outputs) for p in plan.patterns) - len(said)
        inputs = random_inputs(graph, np.random.default_rng(0))
        stages = lower_plan(Program(graph, Static(None, ()), Static(None, ()), (), ()), later, target, device)
        with np.errstate(all="ignore"):
            verdicts = judge(graph, inputs, assemble(stages, target).outputs(list(inputs)))
        assert all(v.ok for v in verdicts), f"{seed}: {verdicts}\n{later}"
    assert count > 40, count


def test_a_value_moved_without_what_it_is_made_of_is_refused(monkeypatch):
    """The mutant moves the value alone: the plan's check misses what is then written by nobody."""
    monkeypatch.setattr(defer, "_moved", lambda graph, value, kernel: (value,))
    with pytest.raises(ms.PlanError, match="reads %5 before it is written"):
        deferred(*EARLY)


# ---------------------------------------------------------------- in auto
def test_auto_defers_and_says_so():
    graph = program(*EARLY)
    for steps, rules in ((Judgement(), 1), (Judgement(defer=False), 0)):
        assert [d.rule for d in decide(graph, CPU, steps).decisions].count("deferred") == rules


def test_auto_takes_the_deferred_plan_only_if_it_is_cheaper_once_judged(monkeypatch):
    """A plan that looked cheaper before its kernels were planned anew, and is not after."""
    graph = program(*EARLY)
    before = decide(graph, CPU, Judgement(defer=False))
    prices = Prices(graph, CPU)
    dearer = deferred_plan(fuse(graph, "none", CPU), prices, LEGAL)
    monkeypatch.setattr("minisitch.strategies.auto.deferred_plan", lambda plan, prices, margin: replace(dearer, strategy=plan.strategy))
    assert prices.plan_us(decide(graph, CPU)) <= prices.plan_us(before) * (1 + 1e-9)
