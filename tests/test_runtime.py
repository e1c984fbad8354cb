"""The runtime: what is compiled once, where values live, what a call may and may not do to its arguments.

Kernels run as plain Python (target "python") unless the test is about machine code.
"""

from __future__ import annotations

import collections
import concurrent.futures
import gc
import itertools
import multiprocessing
import pickle
import queue
import threading
import time
import types
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import softmax
from stitch_help import lowered

import minisitch as ms
from minisitch.device import BUILT_IN
from minisitch.errors import DeviceError, MinisitchError, PlanError, TraceError
from minisitch.explain.demo import gelu, gpt, layernorm, make_batch, make_weights
from minisitch.fuse import STRATEGIES
from minisitch.graph import Graph, TensorType
from minisitch.runtime import Executable, Lifetime, assemble, choose_device, lower_program, plan_memory, pool
from minisitch.runtime.call import idle
from minisitch.runtime.cuda import driver as cuda_driver
from minisitch.runtime.memory import MemoryPlan
from minisitch.runtime.steps import KernelStep, LibraryStep, requests
from minisitch.runtime.this_machine import cpu_with
from minisitch.testing import check_graph, random_graph, random_inputs
from minisitch.trace.tree import type_of

TEXT_TARGETS = ("python", "step", "reference")


def array(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def executable(jitted, *args):
    found = jitted.compile(*args)
    assert isinstance(found, Executable)
    return found


# ---------------------------------------------------------------- results
@pytest.mark.parametrize("target", TEXT_TARGETS)
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_and_target_means_the_same(strategy, target):
    x = array(5, 7)
    got = ms.jit(softmax, strategy=strategy, target=target)(x)
    assert got.dtype == np.float32 and got.shape == (5, 7)
    np.testing.assert_allclose(got, softmax(x), rtol=1e-6)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_transformer_block_with_its_library_calls(strategy):
    tokens, targets = make_batch(b"to be or not to be", 2, 8)
    weights = make_weights(16, 8)
    want = gpt(tokens, targets, weights)
    got = ms.jit(gpt, strategy=strategy, target="python")(tokens, targets, weights)
    assert list(got) == ["logits", "loss"] and isinstance(got["loss"], np.float32)
    np.testing.assert_allclose(got["logits"], want["logits"], atol=1e-6)
    np.testing.assert_allclose(got["loss"], want["loss"], rtol=1e-5)


def test_machine_code_runs_the_same_program():
    x, ones = array(9, 33), np.ones(33, np.float32)
    f = ms.jit(layernorm, target="cpu")
    np.testing.assert_allclose(f(x, ones, ones), layernorm(x, ones, ones), atol=1e-5)
    np.testing.assert_allclose(f(-x, ones, ones), layernorm(-x, ones, ones), atol=1e-5)


def test_results_keep_the_nest_and_scalars_are_numpys():
    f = ms.jit(lambda x: {"a": [np.sum(x), (x + 1,)], "b": None}, target="python")
    got = f(array(3))
    assert isinstance(got["a"][0], np.float32) and got["a"][1][0].shape == (3,) and got["b"] is None


def test_nan_and_infinity_pass_through():
    x = array(3, 4)
    x[0, 1], x[1, 2] = np.nan, -np.inf
    got, want = ms.jit(softmax, target="python")(x), softmax(x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got[1:], want[1:], rtol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays(shape):
    f = ms.jit(lambda x: (np.exp(x), np.sum(x, axis=-1)), target="python")
    got, want = f(np.ones(shape, np.float32)), (np.exp(np.ones(shape)), np.sum(np.ones(shape), axis=-1))
    assert [g.shape for g in got] == [w.shape for w in want] and not np.any(got[1])


def test_an_empty_product_is_zeros():
    f = ms.jit(lambda a, b: (a @ b) + 1, target="python")
    np.testing.assert_array_equal(f(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32)), np.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "uint8", "bool"])
def test_other_dtypes(dtype):
    x = (array(4, 5) * 3).astype(dtype)
    f = ms.jit(lambda x: np.where(x > 0, x, x[::-1]), target="python")
    got = f(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, np.where(x > 0, x, x[::-1]))


@pytest.mark.parametrize("target", ["python", "step", "cpu"])
def test_half_precision_on_every_target(target):
    x = array(3, 5, dtype="float16")
    got = ms.jit(lambda x: x * 2 + 1, target=target)(x)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, (x.astype("f4") * 2).astype("f2") + np.float16(1))


def test_half_products_add_up_in_single():
    a, b = array(3, 4, dtype="float16"), array(4, 2, dtype="float16")
    got = ms.jit(lambda a, b: a @ b, target="python")(a, b)
    np.testing.assert_array_equal(got, (a.astype("f4") @ b.astype("f4")).astype("f2"))


# ---------------------------------------------------------------- arguments
def strided(x):
    return np.repeat(x, 2, axis=-1)[..., ::2]


def unaligned(x):
    raw = np.empty(x.nbytes + 1, np.uint8)[1:]
    raw[...] = np.frombuffer(x.tobytes(), np.uint8)
    return raw.view(x.dtype).reshape(x.shape)


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("make", [strided, unaligned, read_only, np.asfortranarray, lambda x: x[::-1][::-1],
                                  lambda x: x.astype(">f4")], ids=lambda f: getattr(f, "__name__", "other"))
def test_arguments_of_any_layout(make):
    x = array(4, 6)
    f = ms.jit(lambda x: np.exp(x) + 1, target="python")
    np.testing.assert_allclose(f(make(x)), np.exp(x) + 1, rtol=1e-6)


def test_results_are_new_memory():
    x = array(4)
    f = ms.jit(lambda x: (x, x.reshape(2, 2), np.exp(x), np.exp(x)), target="python")
    first, second = f(x), f(x)
    memory = [x, *first, *second]
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(memory, 2))
    first[0][:] = 7
    np.testing.assert_array_equal(second[0], x)


@pytest.mark.parametrize("target", ["python", "reference"])
def test_an_array_of_the_programs_own_is_new_in_each_call(target):
    """A state that a program begins with is not computed from its arguments: its caller may change it all the same."""
    outside = array(3)
    f = ms.jit(lambda x: (x + 1, {"state": np.zeros(3)}, outside), target=target)
    _, nest, again = f(array(4))
    nest["state"] += 5
    again += 5
    outside[:] = 2
    _, nest, again = f(array(4))
    np.testing.assert_array_equal(nest["state"], np.zeros(3))
    np.testing.assert_array_equal(again, [2, 2, 2])


def test_a_large_result_is_taken_again_only_when_nobody_refers_to_it():
    f = ms.jit(lambda x: x + 1, target="python")
    x = np.zeros((256, 256), np.float32)
    addresses, y = set(), None
    for _ in range(6):
        y = f(x)  # while the one before is still held
        addresses.add(y.ctypes.data)
    assert len(addresses) == 2
    corner, views = y[3:, 2:], [memoryview(f(x)), f(x).T, f(x)[:1], np.broadcast_to(f(x), (2, 256, 256))]
    del y
    held = [corner, *map(np.asarray, views)]
    for n in range(5):
        later = f(x + n)
        assert not any(np.shares_memory(later, h) for h in held) and all((h == 1).all() for h in held)


def test_results_survive_later_calls():
    f = ms.jit(lambda x, w: np.tanh(x @ w) @ w, target="python")
    w = array(4, 4)
    kept = f(np.ones((4, 4), np.float32), w)
    copy = kept.copy()
    f(array(4, 4), w)
    np.testing.assert_array_equal(kept, copy)


def test_what_a_program_writes_reaches_the_callers_array():
    def step(x, velocity):
        velocity *= 0.5
        x += velocity
        return np.sum(x)

    x, v = array(5), array(5, seed=1)
    mine, theirs = (x.copy(), v.copy()), (x.copy(), v.copy())
    got, want = ms.jit(step, target="python")(*mine), step(*theirs)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize("target", ["python", "reference"])
def test_writing_into_memory_that_another_argument_shares_is_refused(target):
    def add(a, b):
        a += b
        return a.sum()

    f = ms.jit(add, target=target)
    x = np.ones(8, np.float32)
    assert f(x[::2], x[1::2]) == 8 and x.tolist() == [2, 1] * 4
    with pytest.raises(MinisitchError, match="a is written to and shares memory with b.*pass a copy"):
        f(x[:4], x[2:6])


def test_arrays_from_outside_are_read_anew():
    weights = np.ones(3, np.float32)
    f = ms.jit(lambda x: x * weights, target="python")
    assert f(np.ones(3, np.float32)).tolist() == [1, 1, 1]
    weights[:] = 2
    assert f(np.ones(3, np.float32)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("target", ["python", "reference"])
def test_an_index_outside_raises_as_numpy_does(target):
    f = ms.jit(lambda x, i: x[i] * 2, target=target)
    x = array(5, 3)
    np.testing.assert_array_equal(f(x, np.array([0, -1, 4])), x[[0, -1, 4]] * 2)
    for bad in ([0, 5], [-6, 0]):
        with pytest.raises(IndexError, match=rf"index {max(bad, key=abs)} is out of bounds for axis 0 with size 5"):
            f(x, np.array(bad))


def test_an_index_is_checked_through_reshapes_only_where_it_is_read():
    f = ms.jit(lambda x, i: np.take_along_axis(x, i[:2, None], axis=1), target="python")
    x = array(2, 3)
    assert f(x, np.array([0, 2, 99])).shape == (2, 1)  # 99 is never used
    with pytest.raises(IndexError):
        f(x, np.array([0, 3, 0]))


@ms.jit(target="python")
def scaled(x, k=2.0):
    return x * k + np.arange(x.shape[-1])


def test_a_jitted_function_inside_another_is_part_of_its_program():
    outer = ms.jit(lambda x: np.sum(scaled(np.exp(x), 3.0)), target="python")
    x = array(2, 3)
    np.testing.assert_allclose(outer(x), np.sum(np.exp(x) * 3 + np.arange(3)), rtol=1e-6)
    assert len(outer.lower(x, stop_after="fuse").kernels) == 1


# ---------------------------------------------------------------- compiled once
def counting(fn):
    """The function and a queue that grows whenever it is traced; a list would be refused."""
    traced = queue.SimpleQueue()

    def counted(*args, **kwargs):
        traced.put(1)
        return fn(*args, **kwargs)

    return counted, traced


@pytest.mark.paper(57)
def test_one_compile_for_each_combination_of_types_and_statics():
    fn, traced = counting(lambda x, k: x * k)
    f = ms.jit(fn, target="reference")
    calls = [(array(2), 1), (array(2), 1), (array(3), 1), (array(2), 1.0), (array(2), True), (array(2), 0.0),
             (array(2), -0.0), (array(2, dtype="f8"), 1), (array(2), np.float32(1))]
    seen = []
    for args in calls:
        f(*args)
        seen.append(traced.qsize())
    assert seen == [1, 1, 2, 3, 4, 4, 4, 5, 6], "another float is no other program"
    assert np.signbit(f(np.ones(2, np.float32), -0.0)).all() and not np.signbit(f(np.ones(2, np.float32), 0.0)).any()


def test_nests_and_keywords_are_part_of_the_key():
    fn, traced = counting(lambda x, w=None, k=2: x * k + (w["a"] if w else 0))
    f = ms.jit(fn, target="reference")
    x = array(2)
    for kwargs in ({}, {"w": {"a": x}}, {"w": {"a": x}}, {"k": 3}, {"w": {"a": x, "b": x}}):
        f(x, **kwargs)
    assert traced.qsize() == 4


def test_zero_and_minus_zero_are_different_kernels():
    f = ms.jit(lambda x, k: np.copysign(x + 1, k), target="python")
    plus, minus = (f(np.zeros(3, np.float32), k) for k in (0.0, -0.0))
    assert plus.tolist() == [1, 1, 1] and minus.tolist() == [-1, -1, -1]


def test_equal_layers_share_one_kernel():
    def model(x, layers):
        for w in layers:
            x = softmax(x @ w)
        return x

    layers = [array(6, 6, seed=i) for i in range(12)]
    stages = executable(ms.jit(model, target="python"), array(4, 6), layers).stages
    assert len(stages.kernels) == 12 and len({id(k) for k in stages.kernels}) == 1
    source, = set(map(id, stages.sources))
    assert source and len(requests(stages.sources[0])) == len(stages.sources[0].launches)


def test_equal_kernels_of_different_programs_are_built_once():
    one = executable(ms.jit(lambda x: gelu(x), target="python"), array(3, 11))
    two = executable(ms.jit(lambda y: gelu(y), target="python"), array(3, 11))
    assert one.steps[0].launch is two.steps[0].launch


def test_threads_compile_once_and_agree():
    fn, traced = counting(softmax)
    f = ms.jit(fn, target="python")
    inputs = [array(3, 5, seed=i) for i in range(8)]
    start = threading.Barrier(8)

    def work(x):
        start.wait()
        return [f(x) for _ in range(5)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for x, results in zip(inputs, pool.map(work, inputs), strict=True):
            for got in results:
                np.testing.assert_allclose(got, softmax(x), rtol=1e-6)
    assert traced.qsize() == 1


def test_a_failed_compile_reaches_everyone_and_is_tried_again():
    broken = [True]

    def fn(x):
        if broken[0]:
            raise ZeroDivisionError("not yet")
        return x + 1

    f = ms.jit(fn, target="python")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="not yet"):
            f(array(2))
    broken[0] = False
    assert f(np.zeros(2, np.float32)).tolist() == [1, 1]


# ---------------------------------------------------------------- memory
lifetimes = st.lists(st.builds(lambda n, first, length: Lifetime(n, first, first + length),
                               st.integers(0, 500), st.integers(0, 12), st.integers(0, 5)), max_size=20)


def meet(a, b):
    """Whether both are live at some moment."""
    return a.first <= b.last and b.first <= a.last


@given(lifetimes)
def test_values_that_are_live_together_share_no_byte(values):
    offsets, total = plan_memory(values)
    assert all(o % 64 == 0 and o + v.nbytes <= total for o, v in zip(offsets, values, strict=True))
    for (a, at), (b, bt) in itertools.combinations(zip(values, offsets, strict=True), 2):
        if meet(a, b) and a.nbytes and b.nbytes:
            assert at + a.nbytes <= bt or bt + b.nbytes <= at


def test_a_chain_reuses_its_bytes():
    offsets, total = plan_memory([Lifetime(100, 0, 1), Lifetime(100, 1, 2), Lifetime(100, 2, 3)])
    assert offsets == (0, 128, 0) and total == 256


@pytest.mark.parametrize("early", [False, True])
def test_what_a_launch_read_last_gives_its_bytes_to_the_next_one(early):
    """A product, then one kernel of two launches: exp, and for each row three of its neighbours. The refusal: the product is a part
    of the result, too, and stored at once."""
    def beside(x, w, v):
        product = x @ w
        y = np.pad(np.exp(product), ((1, 2), (0, 0)))
        return np.concatenate([y[:-3], y[2:-1], y[3:], *([product] if early else [])], axis=1) @ v

    args = array(16384, 8), array(8, 64), array(256 if early else 192, 4)
    run = executable(ms.jit(beside, strategy="astitch"), *args)
    (source,) = run.stages.sources
    product, both = (r for r in run.residents if r.value is not None)
    assert len(source.launches) == 2 and (product.step, both.step) == (0, 1)
    assert meet(product.life, both.life) == early
    assert (run.workspace >= product.life.nbytes + both.life.nbytes + 16384 * 64 * 4) == early, "the scratch of exp is the third"
    np.testing.assert_allclose(run(list(args)), expected := beside(*args), rtol=1e-5, atol=1e-6 * np.max(np.abs(expected)))


SPLIT = replace(cpu_with(BUILT_IN, 2), serial_below=1)  # a launch for each segment, however little it does


@given(st.integers(0, 2**16), st.sampled_from(["astitch", "fs20", "fs18", "auto"]))
def test_launches_take_bytes_over_from_each_other_and_from_nobody_else(seed, strategy):
    """Random programs, a launch a segment. What one launch is given lies apart, and the program computes what it says."""
    graph = random_graph(np.random.default_rng(seed), max_nodes=30)
    inputs = random_inputs(graph, np.random.default_rng(seed))
    run = assemble(lowered(graph, strategy, "python", SPLIT), "python")
    sources = iter(run.stages.sources)
    for step in run.steps:
        source = next(sources) if isinstance(step, KernelStep) else None
        for launch in source.launches if source else ():
            slot = dict(zip((b.name for b in source.kernel.parameters), (run.slots[s] for s in step.slots), strict=True))
            given = [slot[name] for name in launch.buffers if slot[name].place == "workspace" and slot[name].size]
            ranges = sorted({(s.index, s.index + s.size * s.dtype.itemsize) for s in given})
            assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges)), (launch, ranges)
    check_graph(graph, inputs, lambda _, given: run.outputs([np.array(x) for x in given]))


def test_a_gpus_kernel_is_one_launch_also_where_only_its_report_is_made():
    """explain for a GPU, on a machine without one: the text is the CPU's, and the kernel is not."""
    stages = ms.explain(lambda x, w: np.exp(x @ w).sum(axis=0), array(4096, 16), array(16, 64), device="v100").stages
    lives = [r.life for r in MemoryPlan(stages).residents]
    assert len(stages.sources[0].launches) > 1 and {(life.first, life.last) for life in lives} in ({(0, 1)}, {(0, 1), (1, 1)})


def test_a_long_chain_needs_two_buffers():
    def chain(x, w):
        for _ in range(10):
            x = np.tanh(x @ w)
        return x

    run = executable(ms.jit(chain, target="python"), array(16, 16), array(16, 16))
    assert run.workspace == 2 * 16 * 16 * 4
    np.testing.assert_allclose(run([array(16, 16), array(16, 16)]), chain(array(16, 16), array(16, 16)), atol=1e-3)


def watched_products(monkeypatch):
    """The operands of each product that is run from now on."""
    seen, real = [], np.matmul

    def product(a, b, out):
        seen.append((a, b))
        return real(a, b, out=out)

    monkeypatch.setattr(np, "matmul", product)
    return seen


def test_a_transposed_operand_reaches_blas_as_a_view(monkeypatch):
    f = ms.jit(lambda q, k: (q * 2) @ np.transpose(k + 1), target="python", strategy="none")
    run = executable(f, array(4, 8), array(5, 8))
    assert [type(s) for s in run.steps] == [KernelStep, KernelStep, LibraryStep]
    seen = watched_products(monkeypatch)
    run([array(4, 8), array(5, 8)])
    assert [(a.strides, b.strides) for a, b in seen] == [((32, 4), (4, 32))]


def test_a_batch_against_one_matrix_is_one_product(monkeypatch):
    f = ms.jit(lambda x, w: x @ w, target="python")
    run = executable(f, array(2, 3, 4), array(4, 5))
    seen = watched_products(monkeypatch)
    run([array(2, 3, 4), array(4, 5)])
    assert [a.shape for a, _ in seen] == [(6, 4)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_what_blas_can_take_reaches_it_without_a_copy(order, monkeypatch):
    """Products over all permutations of a batch of heads: a copy only where neither of the last two axes is contiguous."""
    x = array(2, 3, 4, 5)
    f = ms.jit(lambda x: np.transpose(x, order) @ np.transpose(x, (*order[:2], order[3], order[2])), target="python")
    want = np.transpose(x, order) @ np.transpose(x, (*order[:2], order[3], order[2]))
    run = executable(f, x)
    seen = watched_products(monkeypatch)
    np.testing.assert_allclose(run([x]), want, rtol=1e-5, atol=1e-5)
    shared = {np.shares_memory(x, operand) for operand in seen[0]}
    assert shared == {3 in order[2:]}


@pytest.mark.parametrize("inside", [False, True])
def test_a_matrix_argument_in_fortran_order_reaches_blas_as_it_is(inside, monkeypatch):
    x, w = array(3, 4), array(5, 4)
    f = ms.jit((lambda x, w: x @ w.T) if inside else (lambda x, w: x @ w), target="python")
    for laid in (w, np.asfortranarray(w), np.repeat(w, 2, axis=1)[:, ::2]):
        operand = laid if inside else laid.T
        run = executable(f, x, operand)
        with monkeypatch.context() as patch:
            seen = watched_products(patch)
            np.testing.assert_allclose(run([x, operand]), x @ w.T, rtol=1e-5, atol=1e-6)
        assert np.shares_memory(seen[0][1], laid) == laid.flags.forc and seen[0][1].shape == (4, 5)


def test_a_matrix_that_a_kernel_reads_too_is_put_in_c_order():
    w = array(4, 4)
    np.testing.assert_allclose(ms.jit(lambda w: (w @ w) + w, target="python")(w.T), w.T @ w.T + w.T, rtol=1e-4, atol=1e-5)


def test_a_broadcast_operand_is_packed_for_blas():
    f = ms.jit(lambda x, w: x @ np.broadcast_to(w, (4, 5)), target="python")
    x, w = array(3, 4), array(5)
    np.testing.assert_allclose(f(x, w), x @ np.broadcast_to(w, (4, 5)), rtol=1e-5)


def test_each_thread_has_a_workspace_of_its_own():
    run = executable(ms.jit(lambda x, w: np.exp(x @ w) @ w, target="python"), array(3, 3), array(3, 3))
    found = []

    def work():
        run([array(3, 3), array(3, 3)])
        found.append(idle.free[-1].raw)
    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert run.workspace and all(raw.nbytes >= run.workspace for raw in found) and not np.shares_memory(*found)


# ---------------------------------------------------------------- the text of a call
def test_a_call_is_written_out():
    run = executable(ms.jit(softmax, target="python"), array(1, 8))
    name = run.steps[0].name
    assert run.call.text == f"""\
def call(leaves, nested=True, into=None):
    (a0,) = leaves
    if type(a0) is not ndarray or a0.dtype is not float32 or a0.flags.num & READY != READY:
        a0 = ready(a0, float32)
    r1 = empty((1, 8), float32) if into is None else into[0]
    a0_flat = a0.ravel()
    r1_flat = r1.ravel()
    {name}(a0_flat, r1_flat)
    if not nested: return [r1]
    return r1
"""


def test_what_concerns_the_workspace_is_done_once_a_thread():
    run = executable(ms.jit(lambda x, w: np.tanh(x @ w) @ w, target="python"), array(3, 3), array(3, 3))
    once, call = run.call.text.split("def call")
    assert once.count(".view(float32)") == once.count(".reshape((3, 3))") == 2 and ".reshape(" not in call
    assert call.count("np.matmul") == 2 and call.count("empty(") == 1 and "errstate" in call


def test_results_of_any_nest_are_written_out():
    Pair = collections.namedtuple("Pair", "left right")

    def nest(x):
        return Pair([x + 1, {"it's": (x.sum(),), 3: None, (4,): "text", True: 1.5}], ())

    x = array(2, 3)
    got, want = ms.jit(nest, target="python")(x), nest(x)
    assert type(got) is Pair and list(got.left[1]) == list(want.left[1]) and got.right == ()
    assert got.left[1][(4,)] == "text" and got.left[1][True] == 1.5 and got.left[1][3] is None
    np.testing.assert_allclose(got.left[0], want.left[0])
    np.testing.assert_allclose(got.left[1]["it's"], want.left[1]["it's"], rtol=1e-6)


def test_keywords_are_not_a_last_argument():
    def fn(*args, **kwargs):
        return args[0] * (2 if kwargs else 3)

    f, x = ms.jit(fn, target="reference"), np.ones(2, np.float32)
    assert f(x, {"y": x}).tolist() == [3, 3] and f(x, y=x).tolist() == [2, 2]


# ---------------------------------------------------------------- memory of large results
@pytest.fixture
def small_pool(monkeypatch):
    """A pool of one MiB, empty."""
    monkeypatch.setattr(pool, "_kept", {})
    monkeypatch.setenv("MINISITCH_POOL", str(1 << 20))
    pool.limit.cache_clear()
    yield
    monkeypatch.undo()
    pool.limit.cache_clear()


def kept():
    return sum(size * len(queue) for size, queue in pool._kept.items())


def test_the_pool_keeps_no_more_than_its_limit(small_pool):
    held = []
    for n in range(1, 8):
        for _ in range(3):
            held.append(pool.fresh((n, 1 << 14), np.dtype("float32")))
            assert kept() <= 1 << 20
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(held, 2))
    assert all(a.ctypes.data % 64 == 0 for a in held)
    assert not pool.is_pooled((1 << 19) + 1) and pool.is_pooled(1 << 19) and not pool.is_pooled(1 << 15)


def test_a_setting_that_is_no_number_says_so(small_pool, monkeypatch):
    monkeypatch.setenv("MINISITCH_POOL", "much")
    with pytest.raises(MinisitchError, match="MINISITCH_POOL='much' is not a number; set it to the bytes"):
        pool.limit()


def test_threads_take_different_memory_from_the_pool(small_pool):
    def work(n):
        for k in range(300):
            mine = pool.fresh((1 << 15,), np.dtype("int32"))
            mine[::64] = n * 1000 + k
            time.sleep(0)
            assert (mine[::64] == n * 1000 + k).all()
        return True

    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(6)))


# ---------------------------------------------------------------- other processes, methods
@ms.jit(target="python")
def shadowed(x):
    return np.exp(x) * 2


def plain(x):
    return np.exp(x) * 3


rewrapped = ms.jit(plain, target="python", strategy="none")


class Model:
    def __init__(self, scale):
        self.scale = np.full(3, scale, np.float32)

    @ms.jit(target="python")
    def forward(self, x):
        out = np.zeros(x.shape, np.float32)
        out[:] = x * self.scale
        return out


def test_pickles_by_reference():
    assert pickle.loads(pickle.dumps(shadowed)) is shadowed
    other = ms.jit(shadowed, target="reference")
    copy = pickle.loads(pickle.dumps(other))
    assert copy is not shadowed and copy.target == "reference" and copy.__wrapped__ is shadowed.__wrapped__
    again = pickle.loads(pickle.dumps(ms.jit(plain, strategy="none")))
    assert again.__wrapped__ is plain and again.strategy == "none"
    assert b"exp" not in pickle.dumps(other)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(ms.jit(lambda x: x))


def test_runs_in_a_spawned_process():
    x = array(4)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        results = [pool.submit(f, x).result() for f in (shadowed, rewrapped)]
    np.testing.assert_allclose(results, [np.exp(x) * 2, np.exp(x) * 3], rtol=1e-6)


def test_methods_are_compiled_for_each_object_and_forgotten_with_it():
    two, three = Model(2), Model(3)
    x = np.ones(3, np.float32)
    assert two.forward(x).tolist() == [2, 2, 2] and three.forward(x).tolist() == [3, 3, 3]
    two.scale[:] = 5
    assert two.forward(x).tolist() == [5, 5, 5]
    assert two.forward.lower(x, stop_after="simplify").outputs
    assert pickle.loads(pickle.dumps(three.forward))(x).tolist() == [3, 3, 3]
    from minisitch.runtime import _methods
    own = id(two)
    assert own in _methods[Model.forward]
    del two
    gc.collect()
    assert own not in _methods[Model.forward]


def test_methods_of_what_cannot_be_referred_to_weakly_say_so_each_time():
    class Tight:
        __slots__ = ("scale",)

        @ms.jit
        def forward(self, x, more=1.0):
            return x * more

    tight = Tight()
    for _ in range(2):
        with pytest.raises(ms.TraceError, match="test_runtime.py.* forward is a jitted method of a Tight.*'__weakref__'"):
            tight.forward(np.ones(2))


def test_an_array_of_a_type_that_numpy_does_not_know_is_refused_in_words():
    with pytest.raises(ms.TraceError, match=r"test_runtime.py:\d+: an array of bfloat16: NumPy does not know it. Convert it"):
        type_of(types.SimpleNamespace(dtype="torch.bfloat16", shape=(3,)))


@pytest.mark.paper(56)
def test_a_jitted_function_looks_like_its_own():
    assert shadowed.__name__ == "shadowed" and "shadowed" in repr(shadowed)


# ---------------------------------------------------------------- doors and errors
def test_lower_leaves_by_any_door():
    graph = ms.lower(softmax, "f32[4,8]", stop_after="simplify")
    assert isinstance(graph, Graph) and graph[0].type == TensorType((4, 8))
    assert str(ms.lower(softmax, "f32[4,8]", stop_after="trace").graph)
    assert len(ms.lower(softmax, "f32[4,8]", stop_after="fuse", strategy="astitch").kernels) == 1
    for stage in ("stitch", "schedule", "emit"):
        (value,) = ms.lower(softmax, "f32[4,8]", stop_after=stage, target="step", device="v100")
        assert "softmax" in str(getattr(value, "text", value)) or stage == "stitch"
    assert shadowed.lower(TensorType((2,)), stop_after="fuse").strategy == "auto"


@pytest.mark.parametrize("call, error, message", [
    (lambda: ms.jit(softmax, target="tpu"), DeviceError, "unknown target 'tpu'; take one of auto, cpu"),
    (lambda: ms.jit(softmax, strategy="magic", target="python")(array(2, 2)), PlanError, "unknown strategy 'magic'"),
    (lambda: ms.lower(softmax, "f32[2,2]", stop_after="paint"), MinisitchError, "unknown stage 'paint'; the stages are"),
    (lambda: ms.lower(softmax, "f31[2,2]", stop_after="trace"), TraceError, r"cannot read the type 'f31\[2,2\]'"),
    (lambda: choose_device("cpu", "abacus"), DeviceError, "unknown device 'abacus'; known: cpu"),
])
def test_errors_name_the_next_step(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_cuda_without_a_device_says_what_to_do():
    if not cuda_driver.available():
        with pytest.raises(DeviceError, match="target='cpu'"):
            ms.jit(softmax, target="cuda")(array(2, 2))


def test_jit_takes_a_function():
    for wrong in ("astitch", 3):
        with pytest.raises(ms.MinisitchError, match=r"jit takes a function, not .*; its options have names: @minisitch.jit\(strategy="):
            ms.jit(wrong)


def test_debug_prints_a_line_then_decisions_then_text(monkeypatch, capsys):
    for level, expected in (("1", "1 kernel ("), ("2", "["), ("3", "# after simplify"), ("4", "def ")):
        monkeypatch.setenv("MINISITCH_DEBUG", level)
        ms.jit(softmax, target="python")(array(2, 9))
        assert expected in capsys.readouterr().err
    for silent in ("0", "off", ""):
        monkeypatch.setenv("MINISITCH_DEBUG", silent)
        ms.jit(softmax, target="python")(array(2, 9))
        assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("MINISITCH_DEBUG", "true")
    with pytest.raises(ms.MinisitchError, match="MINISITCH_DEBUG='true' is unknown; set it to 1, 2, 3 or 4 to see more, to 0 or off"):
        ms.jit(softmax, target="python")(array(2, 9))


def test_a_program_of_thousands_of_steps():
    """Layout and memory planning are near-linear: quadratic, this would take longer than all other tests."""
    def chain(x, w):
        for _ in range(2000):
            x = np.tanh(x @ w)
        return x

    program = ms.lower(chain, "f32[4,4]", "f32[4,4]", stop_after="trace")
    run = assemble(lower_program(program, "none", "python", choose_device("cpu")), "python")
    assert len(run.steps) == 4000 and len({id(k) for k in run.stages.kernels}) == 1 and run.workspace == 128


@pytest.mark.parametrize("mistyped", ["f32[64,a]", "f32(4,4)", "f32 [4,x]", "i7[3]"])
def test_a_mistyped_shape_is_named(mistyped):
    with pytest.raises(ms.MinisitchError, match="cannot read the type"):
        ms.lower(lambda x: x + 1, mistyped)
    assert ms.lower(lambda x, mode: x + len(mode), "f32[3]", "first", stop_after="trace").graph.inputs == (0,)


def test_a_jitted_function_is_shown_as_it_was_told_to_run():
    """``lower``, ``explain`` and ``compare`` ask it for what they are not told; its device goes with its target."""
    def f(x):
        return x / x.sum(-1, keepdims=True)

    told, x = ms.jit(f, strategy="none", target="cpu", device=cpu_with(BUILT_IN)), np.ones((4, 8), np.float32)
    for sources in (ms.lower(told, x), told.lower(x)):
        assert [s.target for s in sources] == ["cpu"] * 2
    assert ms.explain(told, x).stages.device.kind == told.explain(x).stages.device.kind == "cpu"
    other, = ms.lower(told, x, target="step", strategy="astitch")
    assert other.target == "cuda" and other.kernel.device.kind == "gpu"
    assert ms.compare(told, x, strategies=["none"], seconds=0.01).target == "cpu"
    decisions = ms.lower(told, x, strategy="xla", stop_after="fuse").decisions
    assert str(decisions[0]).startswith("%") and f"[{decisions[0].rule}] {decisions[0].why}" in str(decisions[0])
