"""The loop program: golden kernels, mutants that ``verify_kernel`` must refuse, memory that is shared only by turns."""

from dataclasses import replace

import numpy as np
import pytest
from nests import changed, found, without
from programs import layernorm_backward, softmax, softmaxes
from stitch_help import (
    BASIC,
    CPU,
    TOY,
    TOY32,
    TOY128,
    V100,
    bodies,
    figure_7,
    lowered,
    one_kernel,
    program,
    run,
    runner,
    stepped,
    traced,
)

from minisitch import cuda_emit
from minisitch.errors import KernelError
from minisitch.fuse import Stitching
from minisitch.kernel import ir, nests
from minisitch.kernel.ir import Compute, Load, Store
from minisitch.kernel.nests import parts
from minisitch.kernel.verify import verify_kernel
from minisitch.lower import lower_program, program_of
from minisitch.passes.registry import default_kernel
from minisitch.runtime.assemble import assemble
from minisitch.simplify import simplify
from minisitch.stitch.index import variable
from minisitch.stitch.loops import stitch
from minisitch.strategies.ask import fuse
from minisitch.testing import check_graph, random_graph, random_inputs
from minisitch.testing.judge import judge


@pytest.mark.parametrize(("name", "device"), [("toy", TOY), ("cpu", CPU)])
def test_softmax_kernel(name, device, golden):
    golden(f"softmax_kernel_{name}", str(one_kernel(traced(softmax, (64, 128)), device)))


# ---------------------------------------------------------------- short rows
def test_short_rows_are_taken_together():
    """What crosses the loops of a row is kept for each of the rows; long rows hide by themselves what waits."""
    segment = (kernel := one_kernel(traced(softmax, (200, 33)), CPU)).segments[0]
    assert segment.step == 31
    assert {b.name for b in kernel.buffers if b.role == "together"} == {"b_r1", "b_r5"}
    assert one_kernel(traced(softmax, (200, 257)), CPU).segments[0].step == 1
    assert one_kernel(traced(softmax, (61, 33)), CPU).segments[0].step == 1, "too few rows to take any together"
    assert one_kernel(traced(softmax, (200, 33)), V100).segments[0].step == 1, "threads hide what waits"


@pytest.mark.parametrize("swap", [False, True])
def test_what_crosses_loops_has_a_buffer_of_its_own_in_each_segment(swap):
    """Segments name their values each from the beginning, and of wider rows fewer are taken together."""
    def f(x, y, t):
        a, b = x * t, y * t
        return a - np.max(a, axis=1, keepdims=True), b - np.max(b, axis=1, keepdims=True)

    shapes = [(1024, 32), (4096, 200)]
    kernel = one_kernel(traced(f, *(shapes[::-1] if swap else shapes), (1, 1)), CPU)
    sizes = {b.name: b.size for b in kernel.buffers if b.role == "together"}
    assert len(sizes) == len({b.slot for b in kernel.buffers if b.role == "together"}) == 4
    for segment in kernel.segments:
        touched = {s.buffer for s in found(segment, Load | Store) if s.buffer in sizes}
        assert segment.step > 1 and len(touched) == 2 and {sizes[name] for name in touched} == {segment.step}


def backwards(x):
    return np.sum(softmax(x)[:, ::-1] * softmax(x), axis=1)


def test_rows_taken_together_have_a_scratch_row_each():
    kernel = one_kernel(traced(backwards, (200, 33)), CPU)
    kept = {b.name: b for b in kernel.buffers if b.role == "kept"}
    (segment,) = kernel.segments
    assert kept and segment.step == 31 and {b.size for b in kept.values()} == {31 * 33}
    bases = [window.index for window in segment.windows.values() if window.buffer in kept]
    assert bases and all(base == variable("lane_row", 31) * 33 for base in bases)
    assert {b.size for b in one_kernel(traced(backwards, (61, 33)), CPU).buffers if b.role == "kept"} == {33}, "too few rows"


@pytest.mark.parametrize("rows", [62, 63, 64, 200])
def test_scratch_rows_of_rows_taken_together_do_not_meet(rows):
    """Read backwards, so no element is where it was written; and in two segments, of which the second takes over bytes."""
    def several(x, y):
        return backwards(x), backwards(x @ x.T @ x * 2), np.sum(backwards(y)), softmax(y).sum(axis=0)
    graph = simplify(traced(several, (rows, 33), (rows + 1, 65)))
    inputs = random_inputs(graph, np.random.default_rng(rows))
    check_graph(graph, inputs, lambda graph, inputs: run(graph, inputs, "astitch", "python", CPU))


@pytest.mark.parametrize("rows", [62, 63, 64, 200])
def test_the_last_rows_together_may_be_fewer(rows):
    def several(x):
        s = softmax(x)
        return s, np.sum(s, axis=0), np.sum(np.abs(x), axis=1)
    graph = simplify(traced(several, (rows, 33)))
    inputs = random_inputs(graph, np.random.default_rng(rows))
    check_graph(graph, inputs, lambda graph, inputs: run(graph, inputs, "astitch", "python", CPU))


# ---------------------------------------------------------------- mutants
ASKED = {"threads": 64}  # who says how many threads gets a column a thread, and rows in shared memory
SOFTMAX = one_kernel(traced(softmax, (8, 96)), TOY, **ASKED)  # phases: max | exp, sum | divide
FIGURE_7 = one_kernel(figure_7(64, 128, 1024), V100)  # three segments, two grid barriers
TWO_ROWS = one_kernel(traced(lambda x, y: (softmax(x), softmax(y)), (4, 96), (4, 96)), TOY, **ASKED)  # kept at the same time
REPEATED = one_kernel(traced(lambda x: softmax(softmax(x)), (4, 96)), TOY, **ASKED)  # three kept rows, each in place of the last
IN_TURN = one_kernel(traced(lambda x: [x := np.exp(x[:, ::-1] - np.max(x, axis=1, keepdims=True)) for _ in range(4)][-1],
                            (8, 96)), TOY, **ASKED)  # three kept rows that are read backwards, so that two slots take turns


def beside(rows):
    """Two kept rows, in segments on both sides of one whose blocks take two rows each: no grid barrier between any of them."""
    def f(x, y, z):
        e, g = np.exp(x), np.exp(z[:, 1:])
        return e / e.sum(1, keepdims=True), y.sum(1), g / g.sum(1, keepdims=True)
    return one_kernel(traced(f, (3, 128), (rows, 64), (7, 129)), TOY128, threads=128)


TWO_SEGMENTS = one_kernel(traced(lambda x, z: ((e := np.exp(x)) / e.sum(1, keepdims=True),
                                               (g := np.exp(z[:, 1:])) / g.sum(1, keepdims=True)), (4, 96), (6, 97)), TOY, **ASKED)
THREE_SEGMENTS = beside(4)  # of 3, 2 and 7 tasks: the third block skips the second segment
ENOUGH_BETWEEN = beside(6)  # of 3, 3 and 7
CARRYING = one_kernel(traced(lambda x: (softmax(x), np.sum(x, axis=0)), (8, 96)), TOY, **ASKED)


def in_segment(kernel, s, **changes):
    return replace(kernel, segments=tuple(replace(g, **changes) if k == s else g for k, g in enumerate(kernel.segments)))


def each_segment(kernel, change):
    return replace(kernel, segments=tuple(map(change, kernel.segments)))


def body(kernel, s, p, keep):
    return without(kernel, lambda x: isinstance(x, ir.Scalar) and not keep(x), s, p)


def swapped(kernel, s, first, second):
    phases = list(kernel.segments[s].phases)
    phases[first], phases[second] = phases[second], phases[first]
    return in_segment(kernel, s, phases=tuple(phases))


FREE_SLOT = 999  # that no buffer has


def with_slots(kernel, slots):
    return replace(kernel, buffers=tuple(replace(b, slot=slots.get(b.name, b.slot)) for b in kernel.buffers))


def elsewhere(kernel, name):
    """The kernel in which one buffer is read an element further on: by the neighbour of the thread that overwrites it."""
    def moved(x):
        return (replace(x, index=x.index * -1 + 95) if isinstance(x, Load) and x.buffer == name else x,)
    return changed(kernel, moved, 0)


def on_one_slot(kernel):
    return with_slots(kernel, {b.name: FREE_SLOT for b in kernel.buffers if b.role in ("kept", "carry")})


def meeting_by_turns(kernel):
    """The kernel whose segments use two sets of places to meet in turn, as if each block waited in each of them."""
    def moved(name):
        return "_".join(name.split("_")[:2])

    def by_turns(x):
        return nests.with_folds((x,), lambda f: replace(f, exchange=moved(f.exchange)))
    return replace(changed(kernel, by_turns), buffers=tuple({b.name: b for b in (replace(b, name=moved(b.name)) for b in kernel.buffers)}.values()))


def last_phase(kernel):
    return len(kernel.segments[0].phases) - 1


FOLDING = ir.Start | ir.Accumulate | ir.Combine
MUTANTS = {
    "a value is not computed": (
        lambda: body(SOFTMAX, 0, 1, lambda x: not (isinstance(x, Compute) and x.op == "exp")), r"is read before it is computed"),
    "a row is not kept": (
        lambda: body(SOFTMAX, 0, 1, lambda x: not isinstance(x, Store)), r"phase 2: k\d+ is read but holds no value"),
    "a load is lost": (
        lambda: body(SOFTMAX, 0, 0, lambda x: not isinstance(x, Load)), r"phase 0: v\d+ is folded before it is computed"),
    "phases change places": (lambda: swapped(SOFTMAX, 0, 0, 1), r"phase 0: r\d+ is read before it is computed"),
    "a sum is not started": (
        lambda: without(SOFTMAX, lambda x: isinstance(x, ir.Start), 0, 1), r"phase 1: r\d+ is added to before it is started"),
    "threads do not join their sums": (
        lambda: without(SOFTMAX, lambda x: isinstance(x, ir.Combine), 0, 1), r"phase 2: r\d+ is read before it is computed"),
    "a sum is not folded": (lambda: without(SOFTMAX, lambda x: isinstance(x, FOLDING), 0, 1), r"phase 2: r\d+ is read before it is computed"),
    "the output is not written": (
        lambda: body(SOFTMAX, 0, last_phase(SOFTMAX), lambda x: not isinstance(x, Store)), r"writes 0 of the 768 cells of its output y0"),
    "there are no segments": (lambda: replace(SOFTMAX, segments=()), r"writes 0 of the 768 cells of its output y0"),
    "half of the rows are left out": (lambda: each_segment(SOFTMAX, lambda s: replace(s, space=replace(s.space, rows=s.rows // 2))), r"writes 384 of the 768 cells"),
    "a segment has no chunks": (lambda: each_segment(SOFTMAX, lambda s: replace(s, space=replace(s.space, chunks=0))), r"writes 0 of the 768 cells"),
    "a loop ends early": (
        lambda: changed(SOFTMAX, lambda x: (replace(x, turns=x.turns // 2) if isinstance(x, ir.Loop) else x,), 0, last_phase(SOFTMAX)),
        r"columns 0 to 47 are taken where there are 96"),
    "a block has too few threads for its rows": (
        lambda: each_segment(SOFTMAX, lambda s: replace(s, thread_map=replace(s.thread_map, rows_per_block=2 * s.thread_map.rows_per_block))),
        r"rows of \d+ threads are not the \d+ threads of a block"),
    "a constant is missing": (lambda: replace(FIGURE_7, constants=()), r"C0 is read before it is computed"),
    "segments change places": (
        lambda: replace(FIGURE_7, segments=(FIGURE_7.segments[1], FIGURE_7.segments[0], FIGURE_7.segments[2])),
        r"segment 0, phase 0: t8 is read but holds no value"),
    "scratch is not written": (
        lambda: body(FIGURE_7, 0, 1, lambda x: not isinstance(x, Store)), r"t8 is read but holds no value"),
    "a grid of more than a wave": (lambda: replace(FIGURE_7, grid=161), r"grid barrier and 161 blocks; one wave holds 80"),
    "more shared memory than there is": (
        lambda: replace(SOFTMAX, device=replace(TOY, shared_per_block=100)), r"wants \d+ B of shared memory a block; toy has 100"),
    "shared memory lowers the wave": (
        lambda: replace(FIGURE_7, grid=160, device=replace(V100, shared_per_sm=128)), r"160 blocks; one wave holds 80"),
    "bytes are taken over while others still read them": (
        lambda: elsewhere(REPEATED, "k4"), r"k7 takes over the bytes of k4, which other threads may still be reading"),
    "live rows share bytes": (
        lambda: with_slots(TWO_ROWS, dict.fromkeys((b.name for b in TWO_ROWS.buffers if b.name[0] == "k"), FREE_SLOT)),
        r"k\d+ is read but holds no value"),
    "a row takes over the bytes of another segment's": (
        lambda: on_one_slot(TWO_SEGMENTS), r"segment 1, phase 0: k\d+ takes over the bytes of k\d+, which other threads may still be"),
    "a block skips the barrier between two rows of one slot": (
        lambda: on_one_slot(THREE_SEGMENTS), r"segment 2, phase 0: k\d+ takes over the bytes of k\d+, which other threads may still be"),
    "a block skips the barrier between two meetings in one place": (
        lambda: meeting_by_turns(THREE_SEGMENTS), r"segment 2, phase 0: w00_f32 is written where other threads may still be reading it"),
    "a row takes over the bytes of column sums": (
        lambda: on_one_slot(CARRYING), r"takes over the bytes of a\d+|a\d+ is read but holds no value"),
    "nobody waits for a row that others write": (
        lambda: without(IN_TURN, lambda x: isinstance(x, FOLDING | ir.Barrier), 0, 1), r"k\d+ is read where other threads may still be writing it"),
    "a next task overtakes": (
        lambda: in_segment(THREE_SEGMENTS, 2, task_barrier="none"), r"w\d+_f32_2 is written where other threads may still be reading it"),
}


def test_the_kernels_that_the_mutants_come_from():
    for kernel in (SOFTMAX, FIGURE_7, REPEATED, TWO_ROWS, IN_TURN, TWO_SEGMENTS, THREE_SEGMENTS, CARRYING):
        assert verify_kernel(kernel) is kernel
    assert len(SOFTMAX.segments[0].phases) == 3 and len([b for b in REPEATED.buffers if b.name[0] == "k"]) == 3


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_refused(name):
    make, message = MUTANTS[name]
    with pytest.raises(KernelError, match=message):
        verify_kernel(make())


def test_a_barrier_that_all_of_them_pass_is_enough():
    """Of blocks that have tasks in the first and the last segment, none skips the one in between."""
    assert [s.tasks for s in THREE_SEGMENTS.segments] == [3, 2, 7] and [s.tasks for s in ENOUGH_BETWEEN.segments] == [3, 3, 7]
    for change in (on_one_slot, meeting_by_turns):
        verify_kernel(change(ENOUGH_BETWEEN))


def test_renaming_a_slot_is_no_mutation():
    verify_kernel(with_slots(SOFTMAX, {b.name: 7 for b in SOFTMAX.buffers if b.name[0] == "k"}))


# ---------------------------------------------------------------- who shares memory, by enumeration
def accesses(kernel):
    """For each buffer the (segment, phase) of its writes and of its reads; a block's column sums are in use all along."""
    writes, reads = {}, {}
    for s, segment in enumerate(kernel.segments):
        for p, phase in enumerate(segment.phases):
            for access in nests.accesses(segment, phase.nest):
                (writes if access.stores else reads).setdefault(access.buffer, []).append((s, p))
            for fold in parts(phase).folds:
                if fold.along == "carry":
                    writes.setdefault(fold.buffer, []).append((s, 0))
                    reads.setdefault(fold.buffer, []).append((s, len(segment.phases) - 1))
    return writes, reads


def meets_between(kernel, last_read, first_write, scope):
    """Does a barrier that all have to pass lie between two phases?"""
    (s, p), (t, q) = last_read, first_write
    if any(kernel.segments[k].barrier == "grid" for k in range(s, t)):
        return True
    if scope == "scratch" or s != t:
        return False
    segment = kernel.segments[s]
    wide = segment.thread_map.threads_per_row > 32
    return any(phase.barrier == "block" or (wide and any(f.along == "row" for f in parts(phase).folds)) for phase in segment.phases[p:q])


def in_place(kernel, place, before, after):
    """Is every element of one buffer read in this phase where, and only where, the same thread overwrites it by the other?"""
    segment = kernel.segments[place[0]]
    here = {(a.buffer, a.index, a.stores) for a in nests.accesses(segment, segment.phases[place[1]].nest)
            if a.buffer in (before.name, after.name)}
    ((name, index),) = {(name, index) for name, index, stores in here if stores}
    read = {(name, index) for name, index, stores in here if not stores}
    return name == after.name and read == {(before.name, index)} and before.size == after.size


def check_sharing(kernel):
    """No two buffers of one slot are live together, and a barrier separates them or one thread reads and overwrites each
    element; how many share."""
    writes, reads = accesses(kernel)
    shared = 0
    for scope in ("scratch", "shared"):
        slots = {}
        for b in kernel.buffers:
            if b.scope == scope and b.name in writes:
                slots.setdefault(b.slot, []).append(b)
        for members in slots.values():
            ordered = sorted(members, key=lambda b: min(writes[b.name]))
            assert all(b.size <= members[0].size and b.dtype == members[0].dtype for b in members)
            for before, after in zip(ordered, ordered[1:], strict=False):
                end, start = max(reads.get(before.name, writes[before.name])), min(writes[after.name])
                if end == start and in_place(kernel, end, before, after):
                    shared += 1
                    continue
                assert end < start, f"{before.name} and {after.name} are live together\n{kernel}"
                assert meets_between(kernel, end, start, scope), f"no barrier between {before.name} and {after.name}\n{kernel}"
                if end[0] == start[0] and kernel.segments[end[0]].tasks > kernel.grid:
                    assert kernel.segments[end[0]].task_barrier == "block", "the next task must not overtake"
                shared += 1
    return shared


def back_and_forth(x, y):
    """Column sums, then row sums, in turn: each crosses blocks."""
    for _ in range(4):
        x = x / np.sum(np.exp(x), axis=0)
        x = np.sum(np.exp(x), axis=1)[:, None] * y
    return x


def naive(kernel, scope):
    return sum(b.size * 4 for b in kernel.buffers if b.scope == scope)


@pytest.mark.paper(54)
def test_kept_rows_take_turns():
    """Seven rows of 800 bytes in the bytes of one: each is overwritten by the thread that reads it last."""
    graph = simplify(traced(softmaxes(4), (4, 200)))
    kernel = one_kernel(graph, **ASKED)
    rows = [b for b in kernel.buffers if b.name.startswith("k")]
    assert len(rows) == 7 and len({b.slot for b in rows}) == 1
    assert check_sharing(kernel) == 6
    assert naive(kernel, "shared") == 7 * 800 + 16 and kernel.shared_bytes == 800 + 16
    inputs = random_inputs(graph, np.random.default_rng(0))
    results, _ = stepped(cuda_emit.emit(kernel), inputs)
    assert all(v.ok for v in judge(graph, inputs, results))


@pytest.mark.paper(54)
def test_scratch_takes_turns():
    """A value that crosses one grid barrier leaves its memory to one that crosses a later one: fewer parameters, fewer bytes."""
    graph = simplify(traced(back_and_forth, (70, 40), (70, 40)))
    for device in (TOY, CPU):
        kernel = one_kernel(graph, device)
        assert check_sharing(kernel) >= 6
        scratch = [b for b in kernel.parameters if b.scope == "scratch"]
        assert len(scratch) <= 5 < len([b for b in kernel.buffers if b.scope == "scratch"])
        assert sum(b.size * 4 for b in scratch) <= 0.6 * naive(kernel, "scratch")
    inputs = random_inputs(graph, np.random.default_rng(0))
    for target in ("step", "python"):
        check_graph(graph, inputs, runner("astitch", target))


def test_sharing_in_random_programs():
    shared = 0
    for seed in range(150, 300):
        graph = simplify(random_graph(np.random.default_rng(seed), max_nodes=30, max_elements=600, allow_empty=False))
        for device in (TOY, V100):
            for cut in bodies(graph, "astitch", device):
                shared += check_sharing(one_kernel(cut, device))
    assert shared


def test_the_sharing_check_sees_a_mutant():
    with pytest.raises(AssertionError, match="live together"):
        check_sharing(with_slots(TWO_ROWS, dict.fromkeys((b.name for b in TWO_ROWS.buffers if b.name[0] == "k"), FREE_SLOT)))
    with pytest.raises(AssertionError, match="live together"):
        check_sharing(elsewhere(REPEATED, "k4"))
    without = in_segment(IN_TURN, 0, task_barrier="none")
    with pytest.raises(AssertionError, match="overtake"):
        check_sharing(without)


def many_maxima(count):
    def function(x):
        total = np.zeros((x.shape[0], 1), np.float32)
        for i in range(count):
            total = total + np.max(np.abs(x - i), axis=1, keepdims=True)
        return x * total
    return function


def test_many_reductions_meet_in_turns():
    """400 maxima of one row wanted 51 kB for their warps to meet in; 32 at a time need 8."""
    assert one_kernel(simplify(traced(many_maxima(400), (64, 512))), V100, threads=1024).shared_bytes == 2 * 32 * 32 * 4
    graph = simplify(traced(many_maxima(70), (5, 96)))
    kernel = one_kernel(graph, **ASKED)
    assert kernel.block_barriers == 3, "one for each 32"
    x = np.random.default_rng(0).integers(-8, 9, (5, 96)).astype(np.float32)
    results, traffic = stepped(cuda_emit.emit(kernel), [x])
    assert all(v.ok for v in judge(graph, [x], results))
    assert traffic.block_barriers_each == 2 * (kernel.block_barriers + 1), "two tasks, and one barrier before the next"
    alone = one_kernel(simplify(traced(many_maxima(70), (4, 96))), **ASKED)
    assert alone.segments[0].task_barrier == "none" and alone.block_barriers == 3, "a block with one task waits for no other"


# ---------------------------------------------------------------- launch configuration
@pytest.mark.paper(55)
def test_assume_relax_apply():
    """Blocks that must be resident bound the registers of a thread; more than 48 KiB a block halves the wave of a V100."""
    split = one_kernel(traced(softmax, (64, 30_000)), V100)
    assert split.grid_barriers and split.grid > V100.sms, "two blocks a multiprocessor"
    assert (split.block, split.registers) == (512, 64), "of half as many threads, for these hold several columns each"
    asked = one_kernel(traced(softmax, (64, 30_000)), V100, threads=1024)
    assert (asked.block, asked.grid, asked.registers) == (1024, split.grid, 32), "with a column each, they need no more"
    few = one_kernel(figure_7(), V100, threads=1024)
    assert few.grid_barriers and few.grid <= V100.sms and few.registers == 64, "its blocks leave one a multiprocessor"
    graph = traced(softmax, (4096, 15_000))
    held = one_kernel(graph, V100)
    assert held.shared_bytes == 256 and not any(d.rule == "shared-memory" for d in held.decisions), "16 columns a thread, in registers"
    small = one_kernel(graph, V100, threads=1024)
    assert small.shared_bytes <= V100.shared_per_block, "the row of exp is demoted"
    assert any(d.rule == "shared-memory" for d in small.decisions)
    assert not small.grid_barriers and small.registers == 64, "no wave has to fit"
    assert V100.wave(small.block, small.shared_bytes) == 160
    roomy = one_kernel(graph, replace(V100, shared_per_block=98_304), threads=1024)
    assert roomy.shared_bytes > 49_152 and roomy.registers == 64 and V100.wave(roomy.block, roomy.shared_bytes) == 80
    assert one_kernel(graph, CPU).registers == 255


@pytest.mark.paper(52)
def test_a_grid_barrier_bounds_the_grid():
    for device in (TOY, TOY32, V100):
        kernel = one_kernel(figure_7(2048, 128, 64), device)
        assert kernel.grid_barriers and kernel.grid <= device.wave(kernel.block, kernel.shared_bytes, kernel.registers)


@pytest.mark.parametrize("rows", [1, 3, 159, 161, 5000])
def test_packing_is_one_wave_of_whole_blocks(rows):
    kernel = one_kernel(traced(softmax, (rows, 32)), V100)
    (segment,) = kernel.segments
    assert segment.thread_map.threads_per_row == 32 and kernel.block == 32 * segment.thread_map.rows_per_block == 1024
    assert kernel.grid <= V100.wave(1024) == 160
    assert kernel.block_barriers == 0 and segment.task_barrier in ("none", "warp"), "a warp a row needs no block barrier"


@pytest.mark.parametrize("per_row", [1, 2, 8])
def test_a_row_may_have_a_thread_or_a_few(per_row):
    """FusionStitching 2020's thread template: nothing to shuffle, nobody to wait for."""
    options = {"threads_per_row": per_row, "threads": 64}
    for shape in ((70, 5), (3, 40)):
        graph = traced(softmax, shape)
        kernel = one_kernel(graph, **options)
        source = cuda_emit.emit(kernel)
        assert kernel.segments[0].thread_map.threads_per_row == per_row and kernel.block_barriers == 0
        assert ("shfl" in source.text) == ("sync" in source.text) == (per_row > 1)
        inputs = random_inputs(graph, np.random.default_rng(0))
        results, _ = stepped(source, inputs)
        assert all(v.ok for v in judge(graph, inputs, results)), source.text
    for seed in range(12):
        whole = simplify(random_graph(np.random.default_rng(seed), max_nodes=20, max_elements=400, allow_empty=False))
        plan = fuse(whole, "astitch", TOY)
        plan = replace(plan, patterns=tuple(replace(p, composition=Stitching(**options)) for p in plan.patterns))
        stages = lower_program(program_of(whole), "astitch", "step", TOY, decide=lambda *_, plan=plan: plan)
        inputs = random_inputs(whole, np.random.default_rng(seed))
        assert all(v.ok for v in judge(whole, inputs, assemble(stages, "step").outputs(list(inputs))))


# ---------------------------------------------------------------- odd ends
def test_kernels_without_elements():
    for shape in ((0, 8), (8, 0), (0,)):
        graph = traced(lambda x: np.exp(x) + 1, shape)
        x = np.zeros(shape, np.float32)
        for target in ("step", "python"):
            assert run(graph, [x], "astitch", target, TOY if target == "step" else CPU)[0].shape == shape


UNLIKE = {
    "a column that one thread has": program(
        "f32[2,1] = input", "f32[2,7] = input", "f32[2,1] = log1p %0", "f32[2,1] = sum %2 axes=(1,) keepdims=True",
        "f32[2,1] = sum %0 axes=(1,) keepdims=True", "f32[2,1] = add %0 %4", "f32[2,7] = broadcast %5 shape=(2, 7)",
        "f32[2,7] = minimum %6 %1", "f32[1,1] = min %4 axes=(0, 1) keepdims=True", "f32[2,1] = max %4 axes=(1,) keepdims=True",
        "return %7 %8 %9 %3"),
    "an empty row beside another": program(
        "f32[0] = input", "f32[3] = input", "f32[0] = cos %0", "f32[1] = sum %2 axes=(0,) keepdims=True",
        "f32[0] = broadcast %3 shape=(0,)", "f32[0] = add %2 %4", "f32[3] = exp %1", "f32[1] = sum %6 axes=(0,) keepdims=True",
        "return %5 %7"),
}


@pytest.mark.parametrize("name", UNLIKE)
@pytest.mark.parametrize("device", [TOY, V100, CPU], ids=lambda d: d.name)
def test_who_has_no_turn_reads_nothing(name, device):
    """Loads were made once a row, also by threads that have no column of it: of a row that nobody had written, or that is empty."""
    graph = UNLIKE[name]
    kernel = one_kernel(graph, device)
    assert verify_kernel(kernel) is kernel
    if device.kind == "gpu":
        inputs = random_inputs(graph, np.random.default_rng(0))
        inputs = [np.abs(x) for x in inputs]
        results, _ = stepped(cuda_emit.emit(kernel), inputs)
        assert all(v.ok for v in judge(graph, inputs, results))
    for phase in kernel.segments[0].phases:
        assert phase.cols or not parts(phase).before


def test_equal_kernels_have_equal_names_and_different_ones_different():
    first, second = (one_kernel(traced(softmax, (8, 96)), TOY) for _ in range(2))
    assert first.name == second.name and first == second
    others = [one_kernel(traced(softmax, shape), device) for shape, device in (((8, 97), TOY), ((8, 96), V100), ((9, 96), TOY))]
    assert len({first.name, *(k.name for k in others)}) == 4
    assert first.name.isidentifier() and "softmax" in first.name


def test_every_kernel_says_where_each_value_lives():
    graph = simplify(traced(layernorm_backward, (16, 64), (16, 64), (64,)))
    kernel = one_kernel(graph)
    assert len(kernel.placements) == len(kernel.plan.sub_roots)
    text = str(kernel)
    for word in ("register of every thread", "of each block", "output y0", "scratch p"):
        assert word in text
    assert all(d.why for d in kernel.decisions)


def test_every_kernel_verifies():
    for seed in range(40):
        graph = random_graph(np.random.default_rng(seed), max_nodes=20, max_elements=400)
        for name in BASIC:
            for device, target in ((TOY, "step"), (CPU, "cpu")):
                for kernel in lowered(graph, name, target, device, "schedule").kernels:
                    assert verify_kernel(kernel) is kernel


def test_a_dead_phase_costs_nothing():
    """Values nobody reads are not computed, loads nobody needs are not made."""
    graph = program("f32[8,96] = input name='x'", "f32[8,96] = exp %0", "f32[8,96] = neg %0", "return %2")
    kernel = one_kernel(graph)
    ops = [s.op for s in found(kernel, Compute)]
    assert ops == ["neg"]


# ---------------------------------------------------------------- column sums beside rows
@pytest.mark.parametrize("shape", [(100, 256), (20000, 256)])
def test_partial_rows_are_counted_for_the_block_that_the_kernel_has(shape):
    """Blocks of 128 threads were planned; the sum of the partial rows takes 256, and these would make twice as many. Of those the
    second half was never read."""
    graph = traced(lambda x: (x.sum(1), x.sum(0)), shape)
    with pytest.raises(KernelError, match="partial rows were planned, and blocks of 256 threads make"):
        default_kernel(stitch(graph, V100, Stitching(barriers=False, threads_per_row=32, threads=128)))
    assert default_kernel(stitch(graph, V100)).grid_barriers == 1
