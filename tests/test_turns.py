"""The checker of loops: every mutant of a loop, guard, let or fold is refused before it runs, or computes the same, and why.

A mutant is *harmful* if the stepper (on a CPU: the plain run of the text) refuses it or gives other values.
"""

import functools
import random
from dataclasses import replace

import numpy as np
import pytest
from loop_mutants import mutants
from programs import softmax
from stitch_help import CPU, TOY, stepped, traced

import minisitch as ms
from minisitch import cpu_emit, cuda_emit
from minisitch.errors import KernelError
from minisitch.kernel import ir
from minisitch.kernel.nests import rewritten, with_nest, with_phases
from minisitch.kernel.show import show_stmt
from minisitch.kernel.turns import ONE_THREAD, check_turns
from minisitch.kernel.verify import verify_kernel
from minisitch.lower import lower_program, program_of
from minisitch.passes.primitives import hoist, interchange, peel, split
from minisitch.runtime.cpu.compile import load_text
from minisitch.runtime.steps import requests
from minisitch.simplify import simplify
from minisitch.stitch.index import ZERO, Index, Within, whole

GRAPHS = {
    "softmax of 3 rows": (softmax, (3, 40)),
    "softmax of 5 rows": (softmax, (5, 70)),
    "softmax of 200 rows": (softmax, (200, 33)),
    "row and column sums": (lambda x: (x.sum(1), x.sum(0)), (24, 40)),
    "long columns": (lambda x: x.sum(0), (600, 40)),
    "long row": (lambda x: x / x.sum(), (1, 4000)),
    "left over": (lambda x: np.tanh(x) * 2, (67,)),
    "beside": (lambda x, y: np.concatenate([x, y], 1) * 2, (6, 30), (6, 50)),
    "middle axis": (lambda x: x.sum(1), (3, 20, 12)),
    "across": (lambda x: x.T * 2, (64, 100)),
    "a thread a row": (lambda x: (np.exp(x), np.exp(x).sum(1)), (99, 2)),
}
CASES = [
    ("softmax of 3 rows", TOY, "plain"), ("softmax of 3 rows", TOY, "passes"), ("softmax of 5 rows", TOY, "passes"),
    ("row and column sums", TOY, "plain"), ("row and column sums", TOY, "passes"), ("long columns", TOY, "plain"),
    ("long row", TOY, "passes"), ("left over", TOY, "passes"), ("softmax of 3 rows", CPU, "plain"), ("softmax of 200 rows", CPU, "passes"),
    ("long columns", CPU, "passes"), ("long row", CPU, "passes"), ("beside", CPU, "passes"), ("middle axis", CPU, "passes"),
    ("across", CPU, "passes"), ("a thread a row", TOY, "plain"),
]
EACH = 30  # mutants of each kernel that are run to count the harmful ones


def kernels_of(name, device, passes):
    graph, target = simplify(traced(*GRAPHS[name])), "step" if device is TOY else "cpu"
    strategy = "fs20" if name == "a thread a row" else "astitch"
    return lower_program(program_of(graph), strategy, target, device, "emit", passes=() if passes == "plain" else "default").kernels


def outputs(kernel):
    """What a kernel computes of seeded inputs."""
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.standard_normal(b.size).astype(b.dtype) for b in kernel.parameters if b.scope == "input"}
    if kernel.device.kind == "gpu":
        return stepped(cuda_emit.emit(kernel), list(inputs.values()))[0]
    source = cpu_emit.emit(kernel)
    arrays = {b.name: inputs.get(b.name, np.full(b.size, np.nan, b.dtype)) for b in kernel.parameters}
    for launch, request in zip(source.launches, requests(source), strict=True):
        load_text(request.text, request.name)(0, launch.tasks, *[arrays[name] for name in launch.buffers])
    return [arrays[b.name] for b in kernel.parameters if b.scope == "output"]


def is_harmful(mutant, want):
    try:
        got = outputs(mutant)
    except Exception:  # the stepper's refusals, and whatever wrong text does on a CPU
        return True
    return not all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(got, want, strict=True))


def is_refused(mutant):
    try:
        verify_kernel(mutant)
    except KernelError:
        return True
    return False


def turn_is_one(kernel, old):
    """Whether the loop over a thread's groups of columns has one turn, so that its factor multiplies 0."""
    return all(loop.turns == 1 for s in kernel.segments for loop in ir.each(s.nest, ir.Loop) if loop.var == "turn")


# Why a mutant that the checker lets through is the same kernel: (field, old statement, new statement, kernel) -> whether.
HARMLESS = {
    "a core takes all turns itself, whoever they are dealt out to":
        lambda field, old, new, kernel: field == "Loop.by" and kernel.device.kind == "cpu",
    "one thread takes all turns by either word": lambda field, old, new, kernel: field == "Loop.by" and {old.by, new.by} <= set(ONE_THREAD),
    "all threads of a row are one": lambda field, old, new, kernel: (field == "If.guard" or (field == "Loop.by" and old.by == "threads"))
        and any(s.thread_map.threads_per_row == 1 for s in kernel.segments),
    "a loop of one turn has no second one for a step": lambda field, old, new, kernel: field == "Loop.step" and old.turns == 1,
    "a guard, here or in the loop, leaves the further turns out": lambda field, old, new, kernel: field == "Loop.turns" and new.turns > old.turns
        and any(isinstance(s, ir.If) or (isinstance(s, ir.Loop) and s.within) for s, _ in ir.walk((new,))),
    "the chunks, slices and turns end where the row ends, so one of the conditions says nothing":
        lambda field, old, new, kernel: field == "Loop.within" and {"start", "slice"} & {name for c in (*old.within,)
        for name in (c.index.variables | old.first.variables)},
    "the guard tests the first of two columns that are taken or left together":
        lambda field, old, new, kernel: field == "If.guard" and any(c.index.variables == {ir.FIRST} for c in old.guard),
    "the turn is number 0, so its factor does not matter":
        lambda field, old, new, kernel: field == "Let.value" and turn_is_one(kernel, old) and old.value.times("turn") != new.value.times("turn"),
    "a row of sums is added up in memory, and not under the name of its result":
        lambda field, old, new, kernel: field in ("Start.result", "Accumulate.result") and bool(old.fold.buffer),
}


@functools.cache
def let_through(name, device, passes):
    """What the checker does not refuse of a case's mutants: each change, whether it is harmful, and why it is not."""
    found = []
    for kernel in kernels_of(name, device, passes):
        want = outputs(kernel)
        for field, old, new, mutant in mutants(kernel):
            if not is_refused(mutant):
                own = [why for why, fits in HARMLESS.items() if fits(field, old, new, kernel)]
                found.append((f"{field}: {show_stmt(old)} becomes {show_stmt(new)}", is_harmful(mutant, want), own))
    return found


@pytest.mark.parametrize("name, device, passes", CASES, ids=lambda of: getattr(of, "kind", of))
def test_harmful_mutants_are_refused(name, device, passes):
    found = let_through(name, device, passes)
    assert [change for change, harmful, _ in found if harmful] == []
    assert [change for change, _, own in found if not own] == [], "why is that the same?"


def test_each_reason_has_a_mutant():
    assert {why for case in CASES for _, _, own in let_through(*case) for why in own} == HARMLESS.keys()


def test_there_are_200_harmful_mutants():
    """A seeded sample, run: most mutants are harmful, so that refusing them is worth something."""
    harmful = 0
    for kernel in (kernel for case in CASES for kernel in kernels_of(*case)):
        made, want = list(mutants(kernel)), outputs(kernel)
        drawn = random.Random(1).sample(made, min(EACH, len(made)))
        found = [mutant for *_, mutant in drawn if is_harmful(mutant, want)]
        assert all(map(is_refused, found))
        harmful += len(found)
    assert harmful >= 200


# ---------------------------------------------------------------- what a user's pass may get wrong
def by_one(kernel):
    """Three lines that look harmless: every loop of threads becomes one thread's."""
    def alone(stmt):
        return (replace(stmt, by="one"),) if isinstance(stmt, ir.Loop) and stmt.by == "threads" else (stmt,)
    return with_phases(kernel, lambda _, phase: with_nest(phase, rewritten(phase.nest, alone)))


def test_the_pass_of_three_lines_is_refused():
    """It made 4096 of 64 ones: 64 threads added up all columns, and their sums were joined."""
    ms.kernel_pass("by_one")(by_one)
    with pytest.raises(KernelError, match=r"after the pass by_one: .*r1 is accumulated by 1 threads that deal out its turns, and joined over"):
        ms.jit(lambda x: np.sum(x, -1), target="step", passes=("by_one",))(np.ones((64, 64), np.float32))


@pytest.mark.parametrize("change, said", [
    (lambda s: replace(s, guard=(replace(s.guard[0], high=2),)) if isinstance(s, ir.If) else s, "several of 64 threads store each element"),
    (lambda s: replace(s, by="nobody") if isinstance(s, ir.Loop) else s, "'nobody' takes no turns; by is one of"),
    (lambda s: replace(s, turns=s.turns - 1) if isinstance(s, ir.Loop) else s, "are taken where there are 40; each is taken once"),
    (lambda s: replace(s, var="k") if isinstance(s, ir.Loop) else s, "col is no variable of a loop around"),
])
def test_an_error_names_the_statement_and_the_rule(change, said):
    kernel, = kernels_of("row and column sums" if "several" in said else "softmax of 3 rows", TOY, "plain")[:1]
    wrong = with_phases(kernel, lambda _, phase: with_nest(phase, rewritten(phase.nest, lambda s: (change(s),))))
    with pytest.raises(KernelError, match=said) as refused:
        verify_kernel(wrong)
    assert ", in: " in str(refused.value) and "phase" in str(refused.value)


def test_a_barrier_is_met_by_all_of_its_scope():
    kernel, = kernels_of("softmax of 3 rows", TOY, "plain")
    guard = (Within(whole("lane"), 0, 1),)
    apart = with_phases(kernel, lambda _, phase: with_nest(phase, (ir.If(guard, (ir.Barrier("block"),)), *phase.nest)))
    with pytest.raises(KernelError, match="not all threads of a block meet here"):
        check_turns(apart)
    check_turns(with_phases(kernel, lambda _, phase: with_nest(phase, (ir.Barrier("block"), *phase.nest))))


# ---------------------------------------------------------------- the loops that passes are made of
LOOP = ir.Loop("col", ZERO, 40, ())


@pytest.mark.parametrize("primitive, said", [
    (lambda loop: split(replace(loop, first=Index(1)), 8, "a", "b"), "split into groups of 8 unless it takes turns 0, 1"),
    (interchange, "interchanged unless its body is one loop"),
    (lambda loop: interchange(replace(loop, body=(replace(loop, var="k", first=whole("col")),))), "interchanged unless"),
    (lambda loop: peel(loop, 40), "peeled after 40 turns unless"),
    (lambda loop: peel(replace(loop, by="threads"), 8), "it is one taker's"),
])
def test_a_primitive_refuses_a_loop_that_it_would_change(primitive, said):
    with pytest.raises(KernelError, match=said):
        primitive(LOOP)


@pytest.mark.parametrize("device", [TOY, CPU], ids=lambda of: of.kind)
@pytest.mark.parametrize("size", [8, 7, 64])
def test_primitives_keep_what_a_loop_computes(device, size):
    """Columns in groups: split, then two pieces of the groups, and what does not change before them."""
    def regrouped(stmt):
        if not isinstance(stmt, ir.Loop) or stmt.var != "col" or stmt.within:
            return (stmt,)
        groups = split(stmt, size, "group", "each")
        return peel(groups, 1) if groups.turns > 1 else hoist(groups)

    kernel, = kernels_of("softmax of 3 rows", device, "plain")
    made = with_phases(kernel, lambda _, phase: with_nest(phase, rewritten(phase.nest, regrouped)))
    assert made != kernel
    for got, want in zip(outputs(verify_kernel(made)), outputs(kernel), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_exchanged_loops_are_still_the_same_columns():
    inner = replace(LOOP, var="k", turns=4)
    assert interchange(replace(LOOP, body=(inner,))) == replace(inner, body=(LOOP,))


def test_what_does_not_change_is_hoisted():
    once, each = (ir.Compute(name, "neg", (of,), "float32", "float32", 1) for name, of in (("v1", "v0"), ("v3", "v2")))
    load = ir.Load("v2", "x0", whole("col"), (), False, "float32", 0)
    assert hoist(replace(LOOP, body=(load, once, each))) == (once, replace(LOOP, body=(load, each)))
