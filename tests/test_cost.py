"""The cost model's bytes are the stepper's: equal where indices are known, never too few where they are data."""

from dataclasses import replace

import numpy as np
import pytest
from nests import changed, phases
from programs import batch_norm, gelu, layernorm, layernorm_backward, softmax
from stitch_help import BASIC, CPU, TOY, TOY32, TOY128, V100, figure_7, lowered, one_kernel, program, stepped, traced

from minisitch import cuda_emit
from minisitch.device import SERIAL_BELOW, Cache
from minisitch.errors import DeviceError
from minisitch.kernel.nests import HEAVY, parts, work_of
from minisitch.passes.registry import DEFAULTS
from minisitch.runtime.this_machine import BUILT_IN, LOOP_NS, cpu_with
from minisitch.simplify import simplify
from minisitch.strategies import cost
from minisitch.testing import random_graph, random_inputs

PROGRAMS = {
    "softmax": (traced(softmax, (8, 96)), 8 * 96 * 4, 8 * 96 * 4),
    "layernorm": (traced(layernorm, (8, 96), (96,), (96,)), (8 * 96 + 2 * 96) * 4, 8 * 96 * 4),
    "gelu": (traced(gelu, (8, 96)), 8 * 96 * 4, 8 * 96 * 4),
    "attention scores": (traced(lambda s: softmax(s * 0.125), (2, 4, 16, 16)), 2048 * 4, 2048 * 4),
    # x, dy, scale, and one partial row a block written and read back; the gradients of scale and shift
    "layernorm backward": (traced(layernorm_backward, (16, 64), (16, 64), (64,)),
                           (2 * 1024 + 64 + 4 * 2 * 64) * 4, (1024 + 2 * 64 + 4 * 2 * 64) * 4),
    "figure 7": (figure_7(8, 96, 16), (8 + 768 + 128 + 8) * 4, (8 + 128) * 4),
    "batch norm": (traced(batch_norm, (4, 3, 5, 5), (3,), (3,)), (300 + 6) * 4, 300 * 4),
}


def measured(kernel, graph, seed=0):
    _, traffic = stepped(cuda_emit.emit(kernel), random_inputs(graph, np.random.default_rng(seed)))
    return traffic


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_are_what_the_stepper_counts(name):
    graph, read, written = PROGRAMS[name]
    graph = simplify(graph)
    kernel = one_kernel(graph, TOY)
    found = cost.traffic(kernel)
    traffic = measured(kernel, graph)
    assert (found.read, found.written) == (traffic.bytes_read, traffic.bytes_written) == (read, written)
    assert found.total == read + written
    assert traffic.grid_barriers == kernel.grid_barriers


def test_bytes_of_a_split_softmax():
    """Two chunks a row: x is read for the maximum and for exp, which is written and read again; two partial results each."""
    graph = traced(softmax, (2, 1500))
    kernel = one_kernel(graph, TOY32)
    found, traffic = cost.traffic(kernel), measured(kernel, graph)
    assert kernel.grid_barriers == 2 and {s.chunks for s in kernel.segments} == {2}
    assert (found.read, found.written) == (traffic.bytes_read, traffic.bytes_written)
    assert (found.read, found.written) == ((2 * 3000 + 3000 + 2 * 4) * 4, (3000 + 3000 + 2 * 4) * 4)


@pytest.mark.parametrize("device", [TOY, TOY32, TOY128], ids=lambda d: d.name)
def test_bytes_of_random_programs(device):
    """What was touched <= what the model says <= what was issued; the first two are equal where no gather reads."""
    kernels, gathers = 0, 0
    for seed in range(20 if device is TOY else 10):
        graph = random_graph(np.random.default_rng(seed), max_nodes=15, max_elements=300)
        for strategy in (*BASIC, "fs18", "fs20", "auto") if device is TOY else BASIC:
            stages = lowered(graph, strategy, "step", device)
            for source, body in zip(stages.sources, stages.bodies, strict=True):
                _, traffic = stepped(source, random_inputs(body.graph, np.random.default_rng(seed)))
                found = cost.traffic(source.kernel)
                touched, issued = (traffic.bytes_read, traffic.bytes_written), (traffic.bytes_loaded, traffic.bytes_stored)
                told = found.read, found.written
                assert touched[0] <= told[0] <= issued[0] and touched[1] <= told[1] <= issued[1], f"{seed}\n{source.kernel}"
                if not any(n.op == "gather" or (n.op == "update" and set(n.attr("step")) != {1}) for n in body.graph.nodes):
                    assert touched == told, f"{seed} {strategy}\n{source.kernel}"
                    kernels += 1
                gathers += any(n.op == "gather" for n in body.graph.nodes)
    assert kernels > (80 if device is TOY else 40) and gathers > 1


def test_a_gather_counts_what_it_takes_not_the_whole_table():
    table = program("f32[1000,8] = input name='x'", "i64[4] = input name='i'", "f32[4,8] = gather %0 %1 axes=(0,)")
    kernel = one_kernel(table)
    assert cost.traffic(kernel).read == 4 * 8 * 4 + 4 * 8
    _, traffic = stepped(cuda_emit.emit(kernel), [np.zeros((1000, 8), np.float32), np.array([3, 500, 7, 999])])
    assert traffic.bytes_read == cost.traffic(kernel).read
    small = program("f32[2,8] = input name='x'", "i64[40] = input name='i'", "f32[40,8] = gather %0 %1 axes=(0,)")
    assert cost.traffic(one_kernel(small)).read == 2 * 8 * 4 + 40 * 8, "nor more than there is"


def test_block_barriers():
    """``block_barriers`` are those of one task; a block passes them once a task, and one more between tasks."""
    graph = traced(softmax, (8, 96))
    kernel = one_kernel(graph, TOY, threads=64)
    (segment,) = kernel.segments
    turns = -(-segment.tasks // kernel.grid)
    between = segment.task_barrier == "block"
    assert measured(kernel, graph).block_barriers_each == turns * (kernel.block_barriers + between) == 4
    assert one_kernel(traced(softmax, (8, 16)), TOY).block_barriers == 0, "a warp a row needs none"
    assert one_kernel(graph, CPU).block_barriers == 0, "nor does a CPU"


def test_library_calls_read_and_write_once():
    graph = program("f32[8,16] = input name='x'", "f32[16,4] = input name='y'", "f32[8,4] = matmul %0 %1")
    assert cost.library_traffic(graph, graph[2]) == cost.Bytes((128 + 64) * 4, 32 * 4)
    assert cost.library_us(graph, graph[2], V100) >= V100.launch_us


# ---------------------------------------------------------------- modelled time
def time_of(graph, device=V100, strategy="astitch"):
    stages = lowered(graph, strategy, "step", device, "schedule")
    return sum(map(cost.kernel_us, stages.kernels))


def test_time_is_launches_barriers_and_the_larger_of_memory_and_arithmetic():
    """Of one epoch: an exp waits for memory, twenty of them for arithmetic. Of three, between two grid barriers, each waits for its own:
    a maximum reads; a difference, an exp and a sum read and write; so does a division. All blocks are busy."""
    n = 1 << 24
    memory, arithmetic = 2 * 4 * n / V100.bandwidth * 1e6, 16 * n / V100.flops * 1e6
    assert arithmetic < memory < 20 * arithmetic
    for count, us in ((1, memory), (20, 20 * arithmetic)):
        chain = program(f"f32[{n}] = input name='x'", *(f"f32[{n}] = exp %{k}" for k in range(count)))
        assert cost.kernel_us(one_kernel(chain, V100)) == pytest.approx(V100.launch_us + us)
    split, n = one_kernel(traced(softmax, (64, 30_000)), V100), 64 * 30_000
    assert (split.grid_barriers, split.block_barriers) == (2, 4) and {s.tasks for s in split.segments} == {split.grid}
    waits, memory = V100.launch_us + 2 * V100.grid_barrier_us + 4 * V100.block_barrier_us, 4 * n / V100.bandwidth * 1e6
    partial_results = pytest.approx(0, abs=0.005)
    assert cost.kernel_us(split) - waits - (1 + 2 + 2) * memory == partial_results
    slow, each = replace(split, device=replace(V100, flops=1e12)), n / 1e12 * 1e6
    assert each < memory and 2 * memory < 16 * each
    assert cost.kernel_us(slow) - waits - memory - (1 + 16 + 1) * each - 16 * each == partial_results


def test_a_block_waits_at_its_barriers_once_a_task():
    kernel = one_kernel(traced(softmax, (16_384, 1024)), V100, threads=1024)
    later = replace(kernel, device=replace(V100, block_barrier_us=V100.block_barrier_us + 1))
    assert (kernel.block_barriers, kernel.grid) == (2, 160)
    assert cost.kernel_us(later) - cost.kernel_us(kernel) == pytest.approx(2 * 103), "103 rows, one after the other"


def test_fewer_kernels_and_bytes_are_faster():
    for function, shapes in ((softmax, [(4096, 1024)]), (layernorm, [(4096, 1024), (1024,), (1024,)]), (gelu, [(4096, 1024)])):
        graph = traced(function, *shapes)
        astitch, xla, none = (time_of(graph, strategy=s) for s in ("astitch", "xla", "none"))
        assert astitch <= xla <= none


@pytest.mark.parametrize("threads", [0, 96, 192, 768])
def test_a_block_of_a_device_has_a_power_of_two_of_threads(threads):
    """The warps of a row meet by shuffles: with three of them a sum was wrong without a word."""
    with pytest.raises(DeviceError, match=f"max_block is {threads}, "):
        replace(V100, max_block=threads)


def test_an_idle_device_is_slower():
    """64 of 160 blocks busy: the reason for task splitting."""
    graph = traced(lambda x: np.sum(x, axis=1), (64, 30_000))
    split = one_kernel(graph, V100)
    assert split.grid == 128
    whole = replace(split, grid=64, segments=tuple(replace(s, space=replace(s.space, chunks=1), thread_map=replace(s.thread_map, chunk=30_000)) for s in split.segments))
    assert cost.kernel_us(split) < cost.kernel_us(whole)


def test_heavy_operations_count_for_more():
    light, heavy = (one_kernel(program("f32[64,64] = input name='x'", f"f32[64,64] = {op} %0"), V100) for op in ("neg", "exp"))
    assert cost.operations(heavy.segments[0]) == cost.HEAVY_OPERATIONS * cost.operations(light.segments[0]) == 16 * 4096


# ---------------------------------------------------------------- modelled time on a CPU
def slower(device, times):
    """A machine on which everything takes so many times as long."""
    return replace(device, launch_us=device.launch_us * times, grid_barrier_us=device.grid_barrier_us * times,
                   caches=tuple(Cache(at.size, at.one_core / times, at.all_cores / times) for at in device.caches),
                   core_ns=tuple((name, ns * times) for name, ns in device.core_ns))


def cpu_kernels(count=40):
    for seed in range(count):
        graph = random_graph(np.random.default_rng(seed), max_nodes=15, max_elements=100_000)
        for strategy in BASIC:
            yield from lowered(graph, strategy, "cpu", CPU, "schedule").kernels


def test_the_cpu_formula_scales_and_never_falls():
    """Twice as slow a machine takes twice as long, and no single figure that rises makes any kernel cheaper."""
    kernels, felt = {kernel.name: kernel for kernel in cpu_kernels()}.values(), set()  # equal ones have one name
    dearer = {name: replace(CPU, core_ns=tuple((n, ns * (3 if n == name else 1)) for n, ns in CPU.core_ns))
              for name in BUILT_IN["core_ns"]}
    for kernel in kernels:
        us = cost.kernel_us(kernel)
        assert us > 0
        assert cost.kernel_us(replace(kernel, device=slower(CPU, 2))) == pytest.approx(2 * us)
        for name, device in dearer.items():
            found = cost.kernel_us(replace(kernel, device=device))
            assert found >= us * (1 - 1e-12), (name, str(kernel))
            if found > us:
                felt.add(name)
    assert felt >= set(LOOP_NS) and len(felt) > 25


def cpu_us(text, shape="1024,1024", dtype="f32"):
    """Modelled time of one operation over one array."""
    return cost.kernel_us(one_kernel(program(f"{dtype}[{shape}] = input name='x'", text), CPU))


def test_operations_have_their_own_price_on_a_cpu():
    light, exp, tan = (cpu_us(f"f32[1024,1024] = {op} %0") for op in ("neg", "exp", "tan"))
    assert light <= exp < tan / 10, "exp runs in vectors, tan does not"
    assert cpu_us("f64[1024,1024] = exp %0", dtype="f64") > 1.9 * exp


def test_a_piece_of_a_loop_is_priced_without_what_its_guards_leave_out():
    """Where arrays are joined each element is of one of them, and no guard is asked; a loop that is not cut loads both and chooses."""
    graph = traced(lambda x, y: np.concatenate([x, y], axis=-1) * np.float32(2), (4000, 96), (4000, 160))
    kernel = one_kernel(graph, CPU)
    whole = one_kernel(graph, CPU, tuple(name for name in DEFAULTS["cpu"] if name != "cut_loops"))
    assert [[i.loops[-1].last for i in parts(p).innermost] for k in (kernel, whole) for p in phases(k)] == [[96, 256], [256]]
    assert cost.kernel_us(kernel) < cost.kernel_us(whole)


def test_what_a_piece_knows_is_not_priced():
    """Half of a row is looked up in one place, half in another. In each piece the other's index is 0, and what comes of it known."""
    def us(at):
        rows = np.zeros((10, 30), np.int32)
        joined = traced(lambda t, i, j: np.concatenate([t[at(i)], t[at(j)]], axis=2).sum((1, 2)), (50, 16), rows, rows)
        (kernel,) = lowered(joined, "astitch", "cpu", CPU, "schedule").kernels
        (phase,) = phases(kernel)
        assert [i.loops[-1].last for i in parts(phase).innermost] == [16, 32] and work_of(kernel.segments[0]) < SERIAL_BELOW
        return cost.kernel_us(kernel)
    each = BUILT_IN["core_ns"]["mod int"] + BUILT_IN["core_ns"]["scalar"]
    assert us(lambda i: i % 7) - us(lambda i: i) == pytest.approx(2 * 300 * each / 1e3, rel=0.05)


def test_rows_without_columns_are_one_loop_and_none_of_them_starts_another():
    """A maximum of each of 4096 rows, then values of it that wait for all rows. Where starting a row takes a microsecond, only
    the maxima's rows do."""
    def f(x):
        m = x.max((0, 2))
        return np.maximum(np.where(m <= 1, np.minimum(m, 2).min(), m), np.where(m <= 3, m.min(), m).sum())
    us = {row: cost.kernel_us(one_kernel(traced(f, (3, 4096, 33)), replace(CPU, sms=1, core_ns=tuple(
        sorted((dict(CPU.core_ns) | {"row": row}).items()))))) for row in (1000.0, 2000.0)}
    kernel = one_kernel(traced(f, (3, 4096, 33)), CPU)
    assert [s.rows for s in kernel.segments if all(p.cols * p.serial == 1 for p in s.phases)] == [4096]
    assert us[2000.0] - us[1000.0] == pytest.approx(4096, rel=0.01)


def test_a_stride_drags_lines_through_the_cache():
    straight = cpu_us("f32[4096,4096] = neg %0", "4096,4096")
    across = cpu_us("f32[4096,4096] = transpose %0 perm=(1,0)", "4096,4096")
    backwards = cpu_us("f32[4096,4096] = slice %0 start=(4095,0) size=(4096,4096) step=(-1,1)", "4096,4096")
    assert straight < across < 2 * straight, "read in blocks"
    assert backwards == pytest.approx(straight, rel=0.1)
    near, far = (cpu_us(f"f32[1048576] = slice %0 start=(0,) size=(1048576,) step=({step},)", "16777216") for step in (1, 16))
    assert far > 2 * near


def test_a_short_run_of_a_wide_row_drags_what_is_fetched_ahead_of_it():
    """As many elements of one array: its first rows, and the first 64 columns of each row."""
    rows, columns, halves = (cpu_us(f"f32[{n},{m}] = slice %0 start=(0,0) size=({n},{m}) step=(1,1)", "16384,4096")
                             for n, m in ((256, 4096), (16384, 64), (512, 2048)))
    assert columns > 1.2 * rows and rows < halves < 1.1 * rows
    near, far = (cpu_us("f32[16384,64] = slice %0 start=(0,0) size=(16384,64) step=(1,1)", f"16384,{m}") for m in (128, 4096))
    assert near < far, "the next row is in the same page"


def test_what_a_cache_holds_moves_faster():
    small, large = (cpu_us(f"f32[{n},1024] = neg %0", f"{n},1024") / n for n in (100, 100_000))
    assert large > 2 * small


def test_what_no_cache_holds_is_fetched_before_it_is_stored():
    """Bytes alone: a device whose loops cost nothing. Rows with a sum, 64 MB read and 64 written."""
    device = cpu_with({**BUILT_IN, "core_ns": dict.fromkeys(BUILT_IN["core_ns"], 0.0), "launch_us": 0.0, "grid_barrier_us": 0.0}, 2)
    rate, each = device.caches[-1].all_cores / 1e6, 4 * 16384 * 1024
    rows = one_kernel(traced(lambda x: x / np.sum(x, axis=1, keepdims=True), (16384, 1024)), device)
    assert cost.traffic(rows) == cost.Bytes(each, each) and cost.kernel_us(rows) == pytest.approx(3 * each / rate)
    small = one_kernel(traced(lambda x: x / np.sum(x, axis=1, keepdims=True), (2048, 1024)), device)
    held, around = cost.kernel_us(small), cost.kernel_us(small, 1 << 30)
    assert held == pytest.approx(each / 4 / (device.caches[-3].all_cores / 1e6)), "16 MB: measured with its fetches"
    assert around == pytest.approx(3 * each / 8 / rate), "in a program that needs more than any cache"


def test_a_gather_waits_for_the_level_its_table_is_in():
    small, large = (cost.kernel_us(one_kernel(program(f"f32[{n},1024] = input name='x'", "i64[64] = input name='i'",
                                                      "f32[64,1024] = gather %0 %1 axes=(0,)"), CPU)) for n in (64, 100_000))
    assert large > 2 * small


def test_small_work_stays_on_one_core():
    """From one task more on the second core helps; then twice as many cores halve what loops cost."""
    rows = SERIAL_BELOW // (1024 * (2 + HEAVY))  # a load, a store and a heavy operation
    below, above = (one_kernel(program(f"f32[{n},1024] = input name='x'", f"f32[{n},1024] = tan %0"), CPU)
                    for n in (rows, rows + 1))
    assert work_of(below.segments[0]) < SERIAL_BELOW <= work_of(above.segments[0])
    assert cost.kernel_us(above) < 0.6 * cost.kernel_us(below)
    assert cost.kernel_us(replace(above, device=replace(CPU, sms=1))) > cost.kernel_us(below)
    early = replace(CPU, serial_below=work_of(below.segments[0]))  # where a second core is woken sooner
    assert cost.kernel_us(replace(below, device=early)) == pytest.approx(cost.kernel_us(above), rel=0.02)  # a row is 1%
    slow_join = replace(CPU, grid_barrier_us=CPU.grid_barrier_us + 50)
    assert cost.kernel_us(replace(above, device=slow_join)) == pytest.approx(cost.kernel_us(above) + 50)
    assert cost.kernel_us(replace(below, device=slow_join)) == cost.kernel_us(below)


def test_a_short_loop_has_narrower_vectors():
    """Sixteen elements are a vector; eight and four save a part of it; one to three are alone, as what is in no vector always is."""
    def row(n, op="exp"):
        x = "f32[1024,{n}] = input name='x'", "f32[1,{n}] = input name='w'"  # without a row to add, there are no rows: one long loop
        lines = *x, "f32[1024,{n}] = broadcast %1 shape=(1024,{n})", "f32[1024,{n}] = add %0 %2", "f32[1024,{n}] = {op} %3"
        return cost.kernel_us(one_kernel(program(*(line.format(n=n, op=op) for line in lines)), CPU)) - CPU.launch_us

    assert row(32) == pytest.approx(2 * row(16), rel=0.25)
    assert row(4) < row(8) < row(16) < 2 * row(4)
    assert row(15) > 2 * row(16), "three of fifteen are alone"
    assert row(8, "tan") == pytest.approx(4 * row(2, "tan"), rel=0.1)


def test_what_does_not_change_along_the_row_is_priced_once_a_row():
    inside = one_kernel(program("f32[64,1024] = input name='x'", "f32[64,1024] = tan %0", "f32[64,1024] = add %1 %0"), CPU)
    outside = one_kernel(program("f32[64,1024] = input name='x'", "f32[64,1] = input name='s'", "f32[64,1] = tan %1",
                                 "f32[64,1024] = broadcast %2 shape=(64,1024)", "f32[64,1024] = add %3 %0"), CPU)
    assert cost.kernel_us(outside) < cost.kernel_us(inside) / 10


def test_what_does_not_change_in_the_innermost_loop_is_priced_once_for_each_start():
    light = one_kernel(program("f32[8,128] = input name='x'", "f32[8,128,64] = input name='z'", "f32[8,128] = neg %0",
                               "f32[8,128,1] = reshape %2 shape=(8,128,1)", "f32[8,128,64] = broadcast %3 shape=(8,128,64)",
                               "f32[8,128,64] = add %4 %1"), CPU)
    (phase,) = phases(light)
    assert parts(phase).innermost[0].loops[-1].last == 64
    heavy = changed(light, lambda s: (replace(s, op="tan") if getattr(s, "op", "") == "neg" else s,))
    extra = cost.kernel_us(heavy) - cost.kernel_us(light)
    assert 0.5 < extra * 1e3 / (8 * 128 * BUILT_IN["core_ns"]["tan float32"]) < 1.5


def test_stitching_still_pays_in_the_model_of_a_cpu():
    for function, shapes in ((softmax, [(4096, 1024)]), (layernorm, [(4096, 1024), (1024,), (1024,)]), (gelu, [(4096, 1024)])):
        graph = traced(function, *shapes)
        astitch, xla, none = (time_of(graph, CPU, s) for s in ("astitch", "xla", "none"))
        assert astitch <= xla <= none


def test_a_batch_of_products_is_so_many_calls_on_a_cpu():
    one, many = (program(f"f32[{n},8,16] = input name='x'", f"f32[{n},16,4] = input name='y'", f"f32[{n},8,4] = matmul %0 %1")
                 for n in (1, 100))
    assert cost.library_us(many, many[2], CPU) > 90 * cost.library_us(one, one[2], CPU)
    assert cost.library_us(many, many[2], V100) < 2 * cost.library_us(one, one[2], V100)
