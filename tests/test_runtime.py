"""The runtime: what is compiled once, where values live, what a call may and may not do to its arguments.

Kernels run as plain Python (target "python") unless the test is about machine code.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import threading

import numpy as np
import pytest
from programs import softmax
from runtime_help import array, executable

import minisitch as ms
from minisitch.errors import MinisitchError
from minisitch.explain.demo import gelu, gpt, layernorm, make_batch, make_weights
from minisitch.fuse import STRATEGIES
from minisitch.runtime.steps import requests

TEXT_TARGETS = ("python", "step", "reference")


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
def counting(fn, capsys):
    """The function, and a function that says how often it was traced: it prints then. A list would be refused."""
    lines = []

    def counted(*args, **kwargs):
        print("traced")
        return fn(*args, **kwargs)

    def traced():
        lines.extend(capsys.readouterr().out.splitlines())
        return lines.count("traced")

    return counted, traced


@pytest.mark.paper(57)
def test_one_compile_for_each_combination_of_types_and_statics(capsys):
    fn, traced = counting(lambda x, k: x * k, capsys)
    f = ms.jit(fn, target="reference")
    calls = [(array(2), 1), (array(2), 1), (array(3), 1), (array(2), 1.0), (array(2), True), (array(2), 0.0),
             (array(2), -0.0), (array(2, dtype="f8"), 1), (array(2), np.float32(1))]
    seen = []
    for args in calls:
        f(*args)
        seen.append(traced())
    assert seen == [1, 1, 2, 3, 4, 4, 4, 5, 6], "another float is no other program"
    assert np.signbit(f(np.ones(2, np.float32), -0.0)).all() and not np.signbit(f(np.ones(2, np.float32), 0.0)).any()


def test_nests_and_keywords_are_part_of_the_key(capsys):
    fn, traced = counting(lambda x, w=None, k=2: x * k + (w["a"] if w else 0), capsys)
    f = ms.jit(fn, target="reference")
    x = array(2)
    for kwargs in ({}, {"w": {"a": x}}, {"w": {"a": x}}, {"k": 3}, {"w": {"a": x, "b": x}}):
        f(x, **kwargs)
    assert traced() == 4


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


def test_threads_compile_once_and_agree(capsys):
    fn, traced = counting(softmax, capsys)
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
    assert traced() == 1


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
