"""The runtime: where values live, what memory is reused, and the text of a call."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import softmax
from runtime_help import array, executable, kept
from stitch_help import lowered

import minisitch as ms
from minisitch.errors import MinisitchError
from minisitch.runtime import Lifetime, assemble, plan_memory, pool
from minisitch.runtime.call import idle
from minisitch.runtime.memory import MemoryPlan
from minisitch.runtime.steps import KernelStep, LibraryStep
from minisitch.runtime.this_machine import BUILT_IN, cpu_with
from minisitch.testing import check_graph, random_graph, random_inputs

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
    """explain for a GPU, on a machine without one, shows the GPU's text."""
    stages = ms.explain(lambda x, w: np.exp(x @ w).sum(axis=0), array(4096, 16), array(16, 64), device="v100").stages
    lives = [r.life for r in MemoryPlan(stages).residents]
    assert "cuda.threadIdx.x" in stages.sources[0].text and len(stages.sources[0].launches) == 1
    assert {(life.first, life.last) for life in lives} in ({(0, 1)}, {(0, 1), (1, 1)})


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
def call(leaves, nested=True):
    (a0,) = leaves
    read_again(leaves)  # what the function uses from outside; raises Stale if it changed
    if type(a0) is not ndarray or a0.dtype is not float32 or a0.flags.num & READY != READY:
        a0 = ready(a0, float32)
    r1 = empty((1, 8), float32)
    a0_flat = a0.ravel()
    r1_flat = r1.ravel()
    {name}(a0_flat, r1_flat)
    if not nested: return [r1]
    return r1
"""


@pytest.mark.parametrize("target", ["python", "cpu", "step", "reference"])
def test_what_is_compiled_prints_as_one_short_line(target):
    def fn(x, w):
        return softmax(x @ w)

    made = ms.jit(fn, target=target, strategy="astitch").compile(array(3, 3), array(3, 3))
    known = f"<executable of astitch for {target}: 1 kernel, 1 library call>"
    assert len(repr(made)) < 120 and (repr(made) == known or target == "reference")


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
    """A pool of one MiB. What was kept before makes room for a new size."""
    monkeypatch.setenv("MINISITCH_POOL", str(1 << 20))
    pool.limit.cache_clear()
    pool.fresh(((1 << 20) - 1,), np.dtype("uint8"))
    yield
    monkeypatch.undo()
    pool.limit.cache_clear()


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
    pool.limit.cache_clear()
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
