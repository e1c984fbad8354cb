"""Passes: what each changes of the smallest kernel, what it improves, that it changes no result, and how they are chosen."""

import re
import traceback
from dataclasses import replace

import numpy as np
import pytest
from nests import changed, found, phases, turns, without
from programs import layernorm_backward, softmax, two_rows
from stitch_help import TOY, one_kernel, run, stepped, traced

import minisitch as ms
from minisitch import cpu_emit, cuda_emit
from minisitch.errors import KernelError, MinisitchError, PassError
from minisitch.kernel import ir
from minisitch.kernel.nests import parts
from minisitch.kernel.show import show_stmt
from minisitch.lower import STAGES, lower_program, program_of
from minisitch.passes.registry import (
    DEFAULTS,
    PASSES,
    chosen,
    default_kernel,
    history,
    kernel_of,
    kernel_pass,
    plan_pass,
)
from minisitch.runtime.assemble import assemble
from minisitch.runtime.this_machine import BUILT_IN, cpu_with
from minisitch.simplify import simplify
from minisitch.stitch.index import ZERO, variables_of
from minisitch.strategies.cost import traffic_by_level
from minisitch.testing import check_graph, random_graph, random_inputs
from minisitch.testing.judge import judge

CPU = cpu_with(BUILT_IN, 2)  # goldens must not depend on who runs them
NO_CACHES = replace(CPU, caches=tuple(replace(level, size=64 + k) for k, level in enumerate(CPU.caches)))  # nothing fits in any


def heads(x):
    return np.exp(x.reshape(x.shape[0], 4, -1).transpose(1, 0, 2))


def statements_once(kernel):
    return sum(len(parts(p).before) for p in phases(kernel))


def stores_of_sums(kernel):
    """How often a row of sums is written, by all rows and columns."""
    return turns(kernel, lambda stmt: isinstance(stmt, ir.Accumulate) and stmt.fold.buffer)


def lines_apart(kernel):
    """Columns of one row that are read before the next row is, where neighbours of a column lie in neighbouring rows."""
    return max(inner.loops[-1].last for p in phases(kernel) for inner in parts(p).innermost)


def divisions(kernel):
    return cpu_emit.emit(kernel).text.count("//") + cpu_emit.emit(kernel).text.count("%")


def guarded(kernel):
    return sum(bool(getattr(stmt, "guard", ())) for stmt in found(kernel, ir.Scalar))


def accesses_a_thread(kernel):
    """What threads load from memory, counted by the stepper."""
    (graph, source) = kernel.graph, cuda_emit.emit(kernel)
    return stepped(source, random_inputs(graph, np.random.default_rng(0)))[1].loads


def indexed(kernel):
    """Accesses of whole arrays, whose index LLVM cannot prove non-negative."""
    arrays = {b.name for b in kernel.parameters}
    return sum(getattr(stmt, "buffer", "") in arrays for p in phases(kernel) for stmt in parts(p).body)


def compensated(kernel):
    """Additions one after the other, each of which keeps what rounding took."""
    return turns(kernel, lambda stmt: isinstance(stmt, ir.Accumulate) and stmt.fold.lost)


def waits(kernel):
    """Results that the next loop needs before it can begin."""
    return sum(s.rows // s.step * len(s.phases) for s in kernel.segments)


# Pass: a program, the shapes of its arguments, the device, and what gets less.
CASES = {
    "share_memory": (two_rows, [(4, 96)], TOY, lambda k: k.shared_bytes),
    "share_row_values": (layernorm_backward, [(4, 96), (4, 96), (96,)], TOY, statements_once),
    "vectorize": (softmax, [(4, 512)], TOY, accesses_a_thread),
    "keep_in_output": (softmax, [(4, 300)], CPU, lambda k: k.shared_bytes),
    "column_sweep": (lambda x: np.sum(x, axis=0), [(64, 96)], CPU, None),
    "tile_transpose": (lambda x: x.T + 1, [(600, 20)], CPU, lines_apart),
    "block_totals": (lambda x: np.sum(x, axis=1), [(16, 3000)], CPU, compensated),
    "nest_loops": (heads, [(6, 80)], CPU, divisions),
    "cut_loops": (lambda x: np.tanh(np.concatenate([x, x * 2])), [(64,)], CPU, guarded),
    "windows": (lambda x: x + 1, [(4, 300)], CPU, indexed),
    "batch_rows": (softmax, [(64, 32)], CPU, waits),
}


def kernel_after(name, passes):
    function, shapes, device, _ = CASES[name]
    return one_kernel(simplify(traced(function, *shapes)), device, passes)


# ---------------------------------------------------------------- each pass by itself
def test_every_pass_of_a_device_has_a_case():
    assert {*CASES} == {name for names in DEFAULTS.values() for name in names} <= PASSES.keys()


@pytest.mark.parametrize("name", CASES)
def test_before_and_after(name, golden):
    before, after = kernel_after(name, ()), kernel_after(name, (name,))
    golden(f"pass_{name}", f"before\n\n{before}\n\nafter {name}\n\n{after}\n")


@pytest.mark.parametrize("name", CASES)
def test_what_it_improves(name):
    before, after = kernel_after(name, ()), kernel_after(name, (name,))
    assert before.passes == () and after.passes == (name,)
    if name == "column_sweep":  # against rows of sums that are not swept
        assert 8 * stores_of_sums(after) == stores_of_sums(kernel_after(name, ("nest_loops",)))
    else:
        count = CASES[name][3]
        assert count(after) < count(before)


@pytest.mark.parametrize("name", CASES)
def test_its_own_case_stays_right(name):
    """The kernel of the case computes what the reference does, before the pass and after it."""
    function, shapes, device, _ = CASES[name]
    graph = simplify(traced(function, *shapes))
    inputs = random_inputs(graph, np.random.default_rng(0))
    target = "step" if device.kind == "gpu" else "python"
    for passes in ((), (name,)):
        stages = lower_program(program_of(graph), "astitch", target, device, passes=passes)
        verdicts = judge(graph, inputs, assemble(stages, target).outputs(list(inputs)))
        assert all(v.ok for v in verdicts), (passes, verdicts)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_for_the_other_kind_of_device_is_left_alone(name):
    if name in DEFAULTS["cpu"] and name in DEFAULTS["gpu"]:
        return
    other = CPU if CASES[name][2].kind == "gpu" else TOY
    kernel = one_kernel(traced(softmax, (64, 32)), other, ())
    assert PASSES[name].kernel(kernel) is kernel


# ---------------------------------------------------------------- no pass changes a result
@pytest.mark.parametrize("passes", [(), *((name,) for name in DEFAULTS["cpu"]), DEFAULTS["cpu"][::-1]], ids="-".join)
def test_on_a_cpu_passes_change_no_result(passes):
    for seed in range(12):
        graph = random_graph(np.random.default_rng(seed), max_nodes=15, max_elements=2000)
        inputs = random_inputs(graph, np.random.default_rng(seed))
        check_graph(graph, inputs, lambda graph, inputs: outputs(graph, inputs, "python", NO_CACHES, passes))


@pytest.mark.parametrize("passes", [(), *((name,) for name in DEFAULTS["gpu"]), DEFAULTS["gpu"][::-1]], ids="-".join)
def test_on_a_gpu_passes_change_no_result(passes):
    for seed in range(10):
        graph = random_graph(np.random.default_rng(seed), max_nodes=12, max_elements=400)
        inputs = random_inputs(graph, np.random.default_rng(seed))
        check_graph(graph, inputs, lambda graph, inputs: outputs(graph, inputs, "step", TOY, passes))


@pytest.mark.parametrize("device", [CPU, TOY], ids=lambda d: d.kind)
def test_no_pass_changes_which_cells_are_counted(device):
    """The cost model counts the cells of the kernel that runs. The stepper counts those of plain kernels (``test_cost``)."""
    graphs = [random_graph(np.random.default_rng(seed), max_nodes=15, max_elements=2000) for seed in (*range(15), 20132)]
    graphs += [traced(softmax, (2, 30001)), traced(lambda x: x[:, ::-1].sum(0), (300, 70)), traced(lambda x: x.T * 2, (100, 90))]
    kernels = 0
    for graph in graphs:
        for plan in lower_program(program_of(graph), "astitch", "step", device, "stitch").stitches:
            fast, plain = default_kernel(plan), kernel_of(plan, ())
            assert traffic_by_level(fast) == traffic_by_level(plain), f"{fast}\n{plain}"
            kernels += 1
    assert kernels > 20


@pytest.mark.parametrize("left_out", DEFAULTS["cpu"])
def test_any_pass_can_be_left_out(left_out):
    passes = tuple(name for name in DEFAULTS["cpu"] if name != left_out)
    for seed in range(12, 20):
        graph = random_graph(np.random.default_rng(seed), max_nodes=15, max_elements=2000)
        inputs = random_inputs(graph, np.random.default_rng(seed))
        check_graph(graph, inputs, lambda graph, inputs: outputs(graph, inputs, "python", NO_CACHES, passes))


def outputs(graph, inputs, target, device, passes):
    return assemble(lower_program(program_of(graph), "astitch", target, device, passes=passes), target).outputs(list(inputs))


# ---------------------------------------------------------------- the plain kernel
def test_the_plain_softmax_of_an_h100_is_the_one_of_a_book(golden):
    """The exponential waits in shared memory, between two reduces of the block."""
    (source,) = ms.lower(softmax, "f32[8192,1024]", strategy="astitch", target="step", device="h100")
    golden("softmax_plain_cuda", source.text)
    assert len(source.text.splitlines()) <= 45
    assert source.text.count("math.exp") == 1 and source.text.count("k4[col]") == 2, "kept, not computed again"
    assert source.text.count("cuda.syncthreads()") == 2 and source.kernel.passes == ()


def test_the_stepper_shows_the_plain_kernel_unless_asked():
    for target, passes in (("step", ()), ("cuda", DEFAULTS["gpu"]), ("cpu", DEFAULTS["cpu"]), ("python", DEFAULTS["cpu"])):
        (kernel,) = ms.lower(softmax, "f32[8,96]", strategy="astitch", target=target, stop_after="emit")
        assert kernel.kernel.passes == passes, target
    (asked,) = ms.lower(softmax, "f32[8,96]", strategy="astitch", target="step", passes="default")
    assert asked.kernel.passes == DEFAULTS["gpu"]


# ---------------------------------------------------------------- choosing, doors, passes of one's own
def test_each_pass_is_a_door():
    """What a door shows has been rewritten by the passes up to it, and the last one is what is printed."""
    for target, device in (("cuda", TOY), ("cpu", CPU)):
        names = DEFAULTS[device.kind]
        for k, name in enumerate(names):
            found = ms.lower(softmax, "f32[64,128]", strategy="astitch", target=target, device=device, stop_after=name)
            (kernel,) = found
            assert kernel.passes == names[:k + 1]
        (source,) = ms.lower(softmax, "f32[64,128]", strategy="astitch", target=target, device=device)
        assert str(kernel) == str(source.kernel) == str(history(kernel)[-1])
        (plain,) = ms.lower(softmax, "f32[64,128]", strategy="astitch", target=target, device=device, stop_after="schedule")
        assert plain.passes == () and str(plain) == str(history(kernel)[0])


def test_names_that_nobody_knows_are_refused():
    with pytest.raises(MinisitchError, match=r"unknown pass 'faster'; take \"default\", or a tuple of it and these: .*vectorize.*windows"):
        ms.jit(softmax, passes=("faster",), target="python")(np.ones((2, 3), np.float32))
    with pytest.raises(MinisitchError, match="unknown stage 'window'; .*; passes that run here: share_memory"):
        ms.lower(softmax, "f32[8,96]", target="cuda", stop_after="window")
    assert chosen("windows", CPU) == ("windows",) and chosen("default", TOY) == DEFAULTS["gpu"]
    assert not set(STAGES) & PASSES.keys()


@pytest.mark.parametrize("target, name, write", [
    ("step", "vectorize", """passes=('vectorize',) or passes="default";"""), ("cuda", "windows", "passes=('windows',);")])
def test_a_pass_that_does_not_run_here_is_known_and_told_how_to_run(target, name, write):
    with pytest.raises(MinisitchError, match=re.escape(f"the pass {name!r} does not run here; write {write}")):
        ms.lower(softmax, "f32[8,96]", target=target, stop_after=name)
    (kernel,) = ms.lower(softmax, "f32[8,96]", strategy="astitch", target=target, stop_after=name, passes=(name,))
    assert kernel.passes == (name,), "what the message says to write"


@pytest.fixture
def registered():
    """Passes that a test registers are gone after it."""
    known = dict(PASSES)
    yield
    PASSES.clear()
    PASSES.update(known)


def test_a_pass_from_outside(registered):
    @ms.kernel_pass("nothing")
    def nothing(kernel):
        return kernel

    x = np.random.default_rng(0).random((5, 40), np.float32)
    for passes in (("nothing",), ("nothing", "windows")):
        (kernel,) = ms.lower(softmax, x, strategy="astitch", target="python", passes=passes, stop_after=passes[-1])
        assert kernel.passes == passes
        np.testing.assert_allclose(ms.jit(softmax, target="python", passes=passes)(x), softmax(x), rtol=1e-6)


@pytest.mark.parametrize("target, kind", [("python", "cpu"), ("cuda", "gpu")])
def test_default_stands_for_the_default_passes_among_others(registered, target, kind):
    @ms.kernel_pass("mine")
    def mine(kernel):
        return kernel

    asked = {"strategy": "astitch", "target": target, "passes": ("default", "mine")}
    (source,) = ms.lower(softmax, "f32[8,64]", **asked)
    assert source.kernel.passes == (*DEFAULTS[kind], "mine")
    (before,) = ms.lower(softmax, "f32[8,64]", **asked, stop_after=DEFAULTS[kind][-1])
    assert before.passes == DEFAULTS[kind]
    if kind == "cpu":
        x = np.ones((8, 64), np.float32)
        assert np.allclose(ms.jit(softmax, **asked)(x), softmax(x))
    with pytest.raises(MinisitchError, match="'default' is a pass of this package"):
        ms.kernel_pass("default")(mine)


def test_a_pass_that_breaks_a_kernel_is_named(registered):
    @ms.kernel_pass("no_barriers")
    def no_barriers(kernel):
        return without(kernel, lambda stmt: isinstance(stmt, ir.Barrier))

    graph = traced(lambda x: np.sum(softmax(x)[:, ::-1] * softmax(x), axis=1), (4, 96))
    with pytest.raises(KernelError, match="after the pass no_barriers: .*it takes a barrier"):
        one_kernel(simplify(graph), TOY, ("share_row_values", "no_barriers", "vectorize"))


DECORATORS = {"Kernel": kernel_pass, "StitchPlan": plan_pass}


@pytest.mark.parametrize("kind", DECORATORS)
def test_a_pass_that_fails_is_named_and_its_line_is_kept(registered, kind):
    """Both kinds of passes: one that returns nothing, and one that has a mistake."""
    def mistaken(value):
        return value.typo

    DECORATORS[kind]("forgot_to_return")(lambda value: None)
    DECORATORS[kind]("recip")(mistaken)
    for call in (lambda passes: ms.jit(softmax, target="python", passes=passes)(np.ones((5, 40), np.float32)),
                 lambda passes: ms.lower(softmax, "f32[5,40]", target="step", passes=passes)):
        with pytest.raises(PassError, match=f"pass forgot_to_return returned NoneType, expected a {kind}") as nothing:
            call(("forgot_to_return",))
        with pytest.raises(PassError, match=f"pass recip raised AttributeError: '{kind}' object has no attribute 'typo'") as failed:
            call(("recip",))
        cause = failed.value.__cause__
        assert isinstance(cause, AttributeError) and [e.name for e in traceback.extract_tb(cause.__traceback__)] == ["mistaken"]
        assert (failed.value.name, failed.value.rule, nothing.value.rule) == ("recip", "raised", "returned")


@pytest.mark.parametrize("decorator", DECORATORS.values())
def test_no_pass_takes_a_name_of_the_package_or_none(registered, decorator):
    before = dict(PASSES)
    with pytest.raises(MinisitchError, match="'vectorize' is a pass of this package; register yours under another name"):
        decorator("vectorize")(lambda value: value)
    with pytest.raises(MinisitchError, match=f"registered under a name; write @{decorator.__name__}\\('mine'\\)"):
        decorator(lambda value: value)
    assert before == PASSES


@pytest.mark.parametrize("returned", ["a statement", None])
def test_a_change_of_statements_must_return_a_tuple(registered, returned):
    ms.kernel_pass("one")(lambda kernel: changed(kernel, lambda stmt: returned and stmt))
    kind = "Start" if returned else "NoneType"
    said = f"after the pass one: change returned {kind}, expected a tuple of Stmt, for: r1 = start of max  # %1"
    with pytest.raises(KernelError, match=said):
        ms.lower(softmax, "f32[5,40]", strategy="astitch", target="step", passes=("one",))


# ---------------------------------------------------------------- how a loop prints
def col_loops(fn, *types, **options):
    found = ms.lower(fn, *types, strategy="astitch", stop_after="schedule", passes=(), **options)
    return {line.strip() for line in str(found).splitlines() if line.strip().startswith("for ")}


@pytest.mark.parametrize("fn, shape, options, loops", [
    (lambda x: np.sum(x, axis=1), "f32[2,4096]", {"target": "step", "device": "v100"}, {"for col in 0..4096, this chunk's, threads:"}),
    (lambda x: np.sum(x, axis=0), "f32[4000,4000]", {"target": "step", "device": "v100"},
     {"for col in 0..4000, this chunk's, threads:", "for ser in 0..4000, this slice's:"}),
    (lambda x: np.sum(x, axis=1), "f32[64,512]", {"target": "step", "device": "v100"}, {"for col in 0..512, threads:"}),
    (np.exp, "f32[1000000]", {"target": "cpu", "device": CPU}, {"for col in 0..1000000, this chunk's:"}),
])
def test_a_loop_says_which_part_a_task_takes(fn, shape, options, loops):
    assert loops <= col_loops(fn, shape, **options)


@pytest.mark.parametrize("device", [TOY, CPU], ids=lambda d: d.kind)
def test_every_loop_that_a_task_does_in_part_says_so(device):
    """If a task takes only some turns of a loop, the printed loop says which ones."""
    seen = set()
    for seed in range(60):
        graph = simplify(random_graph(np.random.default_rng(seed), max_nodes=20, max_elements=3000))
        for passes in ((), "default"):
            for kernel in lower_program(program_of(graph), "astitch", "step", device, "schedule", passes=passes).kernels:
                for loop in found(kernel, ir.Loop):
                    said = show_stmt(loop) != show_stmt(replace(loop, first=ZERO, turns=loop.last, within=()))
                    variables = variables_of([loop.first, *(c.index for c in loop.within)])
                    assert said == bool(variables - {"row", "first_row", "lane_row"} or loop.first.const), loop
                    seen |= variables
    assert {"start", "row"} <= seen if device is TOY else "start" in seen


def test_a_pass_that_is_registered_anew_is_compiled_anew(registered):
    """Whoever tries a pass out in a notebook runs what is written there now."""
    x, seen = np.ones((4, 40), np.float32), []
    for number in (1, 2):
        @ms.kernel_pass("counting")
        def counting(kernel, number=number):
            seen.append(number)
            return replace(kernel, wanted_bytes=number)

        f = ms.jit(softmax, strategy="astitch", target="python", passes=("counting",))
        f(x)
    assert seen == [1, 2]


def test_explain_shows_what_each_pass_changed():
    report = ms.explain(softmax, "f32[64,128]", strategy="astitch", target="cpu", device=CPU)
    text = str(report)
    assert "# after schedule: the plain kernel" in text
    assert [name for name, _ in report.cards[0].changes] == ["keep_in_output", "batch_rows", "windows"]
    assert "# after keep_in_output\n-  launch" in text and "-        k4[col] = v4  # %4\n+        y0[col + row * 128] = v4  # %4" in text
    assert "# after block_totals" not in text, "which changed nothing"
    plain = str(ms.explain(softmax, "f32[64,128]", strategy="astitch", target="step"))
    assert "# after schedule: the plain kernel" not in plain and "k4[" in plain


def test_run_takes_the_default_passes():
    """What the other tests' helper runs has been rewritten."""
    x = np.random.default_rng(0).random((5, 40), np.float32)
    (got,) = run(traced(softmax, (5, 40)), [x])
    np.testing.assert_allclose(got, softmax(x), rtol=1e-6)
