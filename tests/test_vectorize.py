"""Several columns a thread: which accesses become wide, what stays in registers, and what refuses a wide access that may not be."""

import ast
import re
from dataclasses import replace

import numpy as np
import pytest
from nests import changed, found, loops, phases
from programs import layernorm_backward, softmax
from stitch_help import CPU, TOY, V100, lowered, one_kernel, program, runner, stepped, traced

from minisitch import cuda_emit
from minisitch.errors import KernelBug, KernelError
from minisitch.kernel.ir import VectorMove
from minisitch.kernel.nests import parts
from minisitch.kernel.verify import verify_kernel
from minisitch.passes.vectorize import deal
from minisitch.runtime.cuda.compile import plain
from minisitch.simplify import simplify
from minisitch.simt import step
from minisitch.stitch.mapping import MANY_REGISTERS, map_rows
from minisitch.testing import check_graph, random_inputs
from minisitch.testing.judge import judge

WAVE = V100.wave(512, registers=MANY_REGISTERS)


def layernorm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + np.float32(1e-5)) * scale + shift


def adam(p, g, m, v):
    m = np.float32(0.9) * m + np.float32(0.1) * g
    v = np.float32(0.99) * v + np.float32(0.01) * g * g
    return p - np.float32(0.001) * m / (np.sqrt(v) + np.float32(1e-8)), m, v


def why(kernel, rule, verdict):
    return [d.why for d in kernel.decisions if (d.rule, d.verdict) == (rule, verdict)]


def stepped_right(graph, device=TOY, **options):
    """The kernel of a graph after its text has computed what the reference computes; and the traffic of that."""
    kernel, inputs = one_kernel(graph, device, **options), random_inputs(graph, np.random.default_rng(0))
    results, traffic = stepped(cuda_emit.emit(kernel), inputs)
    assert all(v.ok for v in judge(graph, inputs, results)), kernel
    return kernel, traffic


# ---------------------------------------------------------------- how wide
@pytest.mark.parametrize(("function", "shapes", "wide"), [
    (np.tanh, [(4096,)], 2), (softmax, [(64, 512)], 2), (layernorm, [(8, 256), (256,), (256,)], 4), (adam, [(4096,)] * 4, 7)])
def test_standard_kernels_move_16_bytes(function, shapes, wide):
    """Every array is read once and written once, all of it in accesses of four float32 a thread."""
    kernel, traffic = stepped_right(simplify(traced(function, *shapes)))
    moves = found(kernel, VectorMove)
    assert len(moves) == wide == len(kernel.parameters) and {move.columns for move in moves} == {4}
    assert traffic.bytes_loaded == 16 * traffic.loads and traffic.bytes_stored == 16 * traffic.stores
    assert traffic.bytes_stored == traffic.bytes_written
    if function is not layernorm:  # whose scale and shift each row reads
        assert traffic.bytes_loaded == traffic.bytes_read


@pytest.mark.parametrize(("dtype", "columns"), [("f16", 8), ("f32", 4), ("f64", 2), ("i8", 8), ("i64", 2)])
def test_the_width_follows_the_dtype(dtype, columns):
    kernel, _ = stepped_right(program(f"{dtype}[3,512] = input name='x'", f"{dtype}[3,512] = mul %0 %0"))
    assert {p.width for p in phases(kernel)} == {columns}


def test_arrays_of_several_dtypes_have_one_width():
    kernel, _ = stepped_right(traced(lambda m, h, x: np.where(m, h, x), np.zeros((3, 512), bool), np.zeros((3, 512), np.float16),
                                     np.zeros((3, 512), np.float32)))
    (phase,) = phases(kernel)
    assert phase.width == 8 and len(found(phase, VectorMove)) == 4, "8 bytes of the mask, 16 of the halves, two times 16 of the others"


def test_a_single_row_has_a_scalar_rest(golden):
    kernel, traffic = stepped_right(traced(np.tanh, (1003,)))
    (phase,) = phases(kernel)
    assert (phase.width, len(parts(phase).innermost), len(parts(phase).innermost[1].body)) == (4, 2, 3)
    assert traffic.loads == traffic.stores == 1000 // 4 + 3
    golden("wide_rest_cuda", cuda_emit.emit(kernel).text)


@pytest.mark.parametrize(("function", "shape", "reason"), [
    (softmax, (6, 1003), "no two neighbours"),
    (lambda x: np.tanh(x[1:]), (1025,), "multiples of 2 on: too few; 1 of 2 accesses lie side by side from multiples of 4 on: too few"),
    (lambda x: np.tanh(x[:, ::-1]), (4, 512), "1 of 2 accesses lie side by side from multiples of 4 on"),
    (softmax, (200, 32), "would leave half of 32 threads without any"),
])
def test_rows_that_begin_anywhere_stay_narrow(function, shape, reason):
    """The refusal twin: odd lengths, odd beginnings, the wrong direction, rows too short for their threads."""
    kernel, traffic = stepped_right(simplify(traced(function, shape)))
    assert {p.width for p in phases(kernel)} == {1} and not found(kernel, VectorMove)
    assert any(reason in text for text in why(kernel, "vector-width", "narrow"))
    assert traffic.bytes_loaded == 4 * traffic.loads


def test_what_begins_at_even_places_moves_8_bytes():
    kernel, _ = stepped_right(traced(lambda x: np.tanh(x[:, 2:]), (4, 514)))
    assert {move.columns for move in found(kernel, VectorMove)} == {2}


def test_a_gathered_row_is_wide_and_a_gathered_element_is_not():
    table, rows = np.zeros((50, 256), np.float32), np.zeros(8, np.int64)
    kernel, _ = stepped_right(simplify(traced(lambda t, i: softmax(t[i]), table, rows)))
    assert len(found(kernel, VectorMove)) == 2
    kernel, _ = stepped_right(simplify(traced(lambda t, i: np.tanh(t[i]), np.zeros(50, np.float32), np.zeros(512, np.int64))))
    assert {move.buffer for move in found(kernel, VectorMove)} == {"x1", "y0"}, "the indices and the results"


def test_a_window_of_an_array_begins_anywhere():
    """One kernel serves all steps of a recurrence, each of which reads its own part of x."""
    def steps(x, h):
        for t in range(3):
            h = np.tanh((h + x[t]) @ np.eye(128, dtype=np.float32))
        return h
    kernels = lowered(traced(steps, (3, 2, 128), (2, 128)), "astitch", "step", V100).kernels
    wide = [k.by_name[move.buffer].window for k in kernels for move in found(k, VectorMove)]
    assert any(b.window for k in kernels for b in k.buffers) and wide, "what is read whole is wide"
    assert not any(wide)


# ---------------------------------------------------------------- rows in registers
def test_a_softmax_reads_each_element_once():
    kernel, traffic = stepped_right(traced(softmax, (6, 256)))
    assert kernel.shared_bytes == 0 and [loop.last for loop in loops(kernel, "unrolled")] == [2, 2, 2]
    assert traffic.loads == traffic.stores == 6 * 256 // 4 and traffic.shared_loads == 0
    assert len(why(kernel, "row-in-registers", "keep")) == 2
    scalar, before = stepped_right(traced(softmax, (6, 256)), threads=64)
    assert before.loads == 2 * 6 * 256 and scalar.shared_bytes > 4 * 256, "as long as somebody asks for a column a thread"


def test_values_that_shared_bytes_share_registers():
    """Three rows, each written over the last by the thread that reads it: one array in registers as in shared memory."""
    kernel, _ = stepped_right(traced(lambda x: softmax(softmax(softmax(softmax(x)))), (4, 256)))
    rows = [b for b in kernel.buffers if b.scope == "register" and "row" in b.why]
    assert [b.size for b in rows] == [8, 8] and kernel.shared_bytes == 0, "x0, and what stands for all that is kept"


def test_rows_that_do_not_fit_say_what_they_cost():
    kernel = one_kernel(traced(softmax, (800, 40_000)), V100)
    texts = why(kernel, "row-in-registers", "re-read")
    assert len(texts) == 2 and all(f"{800 * 40_000 * 4} bytes are read again" in text for text in texts)
    middle = one_kernel(traced(softmax, (800, 20_000)), V100)
    assert len(why(middle, "row-in-registers", "keep")) == 1 and len(why(middle, "row-in-registers", "re-read")) == 1, "exp, not x"


def test_what_other_threads_read_stays_in_shared_memory():
    graph = simplify(traced(lambda x: np.exp(x - np.max(x, axis=1, keepdims=True))[:, ::-1] / np.sum(x, axis=1, keepdims=True)
                            * np.exp(x - np.max(x, axis=1, keepdims=True)), (4, 256)))
    kernel, _ = stepped_right(graph)
    assert all(b.scope != "register" or b.name != "k4s" for b in kernel.buffers) or kernel.shared_bytes == 0


def test_column_sums_across_tasks_stay_a_column_a_thread():
    kernel, _ = stepped_right(simplify(traced(layernorm_backward, (16, 64), (16, 64), (64,))))
    assert not any(found(s, VectorMove) for s in kernel.segments if s.carries)


def test_cores_have_nothing_of_it():
    for shape in ((6, 256), (1, 1003)):
        kernel = one_kernel(traced(softmax, shape), CPU)
        assert not (found(kernel, VectorMove) or loops(kernel, "vector") or loops(kernel, "unrolled"))


# ---------------------------------------------------------------- threads
@pytest.mark.parametrize(("shape", "threads", "per_row", "rows_per_block"), [
    ((8192, 1024), 256, 128, 2), ((4096, 256), 256, 32, 8), ((64, 1024), 128, 128, 1), ((750_000, 32), 1024, 32, 32),
    ((64, 30_000), 512, 512, 1), ((1, 98_304), 256, 256, 1), ((800, 40_000), 1024, 1024, 1)])
def test_rows_are_dealt_to_threads_with_several_columns(shape, threads, per_row, rows_per_block):
    paper = map_rows(*shape, V100)
    m = deal(paper, V100)
    assert (m.threads, m.threads_per_row, m.rows_per_block) == (threads, per_row, rows_per_block)
    assert (m.rows, m.cols, m.splits, m.chunk) == (paper.rows, paper.cols, paper.splits, paper.chunk)
    assert m.blocks <= V100.wave(m.threads, registers=MANY_REGISTERS if m != paper else 32) and m.blocks * m.steps >= m.tasks


def test_split_rows_have_the_registers_that_their_wave_was_counted_with():
    """1024 threads of 32 registers spilled 16 bytes on sm_100; 512 of 64 leave as many blocks resident."""
    kernel = one_kernel(traced(softmax, (64, 30_000)), V100)
    assert (kernel.grid, kernel.block, kernel.registers) == (128, 512, 64)
    assert V100.wave(512, kernel.shared_bytes, 64) == WAVE == V100.wave(1024) >= kernel.grid


# ---------------------------------------------------------------- mutants
def test_a_wide_access_from_an_odd_place_is_refused_by_the_stepper():
    kernel = one_kernel(traced(softmax, (4, 256)))
    text = cuda_emit.emit(kernel).text
    assert "load_wide(x0s, turn * 4, x0, first + row * 256, 4)" in text
    for old, new in (("x0, first + row * 256", "x0, first + 1 + row * 256"), ("y0, first", "y0, 2 + first")):
        with pytest.raises(KernelBug, match=r"misaligned: [xy]0\[\d+\] and the 3 behind it are one access of 16 bytes"):
            step(text.replace(old, new), [np.zeros(1028, np.float32), np.zeros(1030, np.float32)], kernel.grid, kernel.block)
    with pytest.raises(KernelBug, match="out-of-bounds"):
        step(text, [np.zeros(1022, np.float32), np.zeros(1024, np.float32)], kernel.grid, kernel.block)
    with pytest.raises(KernelBug, match="outside-dialect: 3 elements at once"):
        step(text.replace("row * 256, 4)", "row * 256, 3)"), [np.zeros(1024, np.float32)] * 2, kernel.grid, kernel.block)


def test_a_wide_access_from_an_odd_place_is_refused_by_the_verifier():
    kernel = one_kernel(traced(softmax, (4, 256)))
    verify_kernel(kernel)

    def moving(p, **changes):
        return changed(kernel, lambda stmt: (replace(stmt, **changes) if isinstance(stmt, VectorMove) else stmt,), p=p)

    index = found(kernel, VectorMove)[0].index
    for wrong in (index + 1, index * 4, index * -1 + 1024):
        with pytest.raises(KernelError, match="do not lie side by side from a multiple of 4 on"):
            verify_kernel(moving(0, index=wrong))
    with pytest.raises(KernelError, match="k4s is read but holds no value"):
        verify_kernel(moving(0, registers="y0s", buffer="k4s"))
    with pytest.raises(KernelError, match="writes 0 of the 1024 cells"):
        verify_kernel(moving(2, buffer="x0"))


def test_the_stepper_finds_a_race_between_wide_accesses():
    text = """
def k(x, y):
    s = cuda.shared.array(256, np.float32)
    v = cuda.local.array(4, np.float32)
    load_wide(v, 0, x, cuda.threadIdx.x * 4, 4)
    store_wide(s, cuda.threadIdx.x * 4, v, 0, 4)
    cuda.syncthreads()
    load_wide(v, 0, s, 252 - cuda.threadIdx.x * 4, 4)
    store_wide(y, cuda.threadIdx.x * 4, v, 0, 4)
"""
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    traffic = step(text, [x, y], 1, 64)
    assert np.array_equal(y.reshape(64, 4), x.reshape(64, 4)[::-1])
    assert (traffic.loads, traffic.stores, traffic.shared_loads, traffic.bank_conflicts) == (64, 64, 64, 0)
    assert (traffic.bytes_loaded, traffic.sectors_loaded) == (1024, 32)
    with pytest.raises(KernelBug, match="race|unwritten-read"):
        step(text.replace("    cuda.syncthreads()\n", ""), [x, y], 1, 64)


# ---------------------------------------------------------------- text
def test_loops_over_registers_are_written_out_for_the_compiler():
    text = cuda_emit.emit(one_kernel(traced(softmax, (4, 256)))).text
    assert text.count("for each in range(4):") == 3 and text.count("for turn in range(2):") == 3
    written = ast.unparse(plain(text))
    assert "each" not in written and "turn" not in written
    assert all(re.search(rf"x0s\[np.uint64\({k}\)\]", written) for k in range(8))
    assert "for task" not in written and "while task" in written, "other loops stay loops"


@pytest.mark.parametrize("function", [softmax, lambda x: np.cumsum(x, axis=-1), lambda x: x.sum(-1), lambda x: x.T.sum(-1),
                                      lambda x: np.concatenate([x, x[:, ::2]], axis=1), lambda x: np.exp(x).reshape(-1)[:-1]])
@pytest.mark.parametrize("shape", [(3, 100), (2, 516), (1, 1026)])
def test_programs_agree_with_the_reference(function, shape):
    graph = traced(function, shape)
    check_graph(graph, random_inputs(graph, np.random.default_rng(1)), runner("astitch", "step"))
