"""Two reductions of a long row in one sweep: the same values, a sweep less, and only where it is a pair."""

import numpy as np
import pytest
from programs import softmax
from stitch_help import V100

import minisitch as ms
from minisitch.passes import split_reductions as passes
from minisitch.passes.split_reductions import split_reductions
from minisitch.runtime import choose_device, lower_program
from minisitch.simplify import simplify
from minisitch.trace import trace
from minisitch.trace.parser import parse

CPU = choose_device("cpu")


@pytest.fixture
def short_rows(monkeypatch):
    """What is done for rows of a megabyte, for rows of a hundred bytes: pieces of four to sixteen elements."""
    monkeypatch.setattr(passes, "LONG", 100)
    monkeypatch.setattr(passes, "PIECES", (4, 16))


def logsumexp(x):
    top = np.max(x, axis=-1, keepdims=True)
    return (np.log(np.sum(np.exp(x - top), axis=-1, keepdims=True)) + top)[..., 0]


def rewritten(f, *args):
    return split_reductions(simplify(trace(f, args, {}).graph), CPU)


def test_golden_before_and_after(short_rows):
    before = """\
%0: f32[8,32] = input name='x'
%1: f32[8,1] = max %0 axes=(1,) keepdims=True
%2: f32[8,32] = broadcast %1 shape=(8, 32)
%3: f32[8,32] = sub %0 %2
%4: f32[8,32] = exp %3
%5: f32[8] = sum %4 axes=(1,) keepdims=False
return %5"""
    graph, decisions = split_reductions(parse(before), CPU)
    assert str(graph) == """\
%0: f32[8,32] = input name='x'
%1: f32[8,2,16] = reshape %0 shape=(8, 2, 16)
%2: f32[8,2] = max %1 axes=(2,) keepdims=False
%3: f32[8] = max %2 axes=(1,) keepdims=False
%4: f32[8,1] = reshape %3 shape=(8, 1)
%5: f32[8,1] = reshape %4 shape=(8, 1)
%6: f32[8,2] = broadcast %5 shape=(8, 2)
%7: f32[8,2] = constant value=-inf
%8: bool[8,2] = eq %2 %7
%9: f32[8,2] = constant value=0.0
%10: f32[8,2] = select %8 %9 %2
%11: f32[8,2,1] = reshape %10 shape=(8, 2, 1)
%12: f32[8,2,16] = broadcast %11 shape=(8, 2, 16)
%13: f32[8,2,16] = sub %1 %12
%14: f32[8,2,16] = exp %13
%15: f32[8,2] = sum %14 axes=(2,) keepdims=False
%16: f32[8,2] = sub %2 %6
%17: f32[8,2] = exp %16
%18: f32[8,2] = mul %15 %17
%19: f32[8] = sum %18 axes=(1,) keepdims=False
%20: f32[8] = reshape %19 shape=(8,)
return %20"""
    assert [(d.at, d.rule, d.why) for d in decisions] == [((20,), "online", "rows of 32 float32 are read once, in pieces of 16")]


@pytest.mark.parametrize("strategy", ["none", "xla", "fs18", "fs20", "astitch", "auto"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_the_references(short_rows, strategy, dtype):
    random = np.random.default_rng(0)
    programs = (logsumexp, np.var, lambda x: np.var(x, axis=1), lambda x: np.std(x, axis=-1) + np.mean(x, axis=-1),
                lambda x: np.var(np.tanh(x) * 3, axis=1, ddof=1), lambda x: (logsumexp(x) + np.var(x, axis=-1)) * np.max(x, axis=-1))
    for shape in ((1, 32), (3, 124), (5, 33), (2, 1000)):
        x = (random.standard_normal(shape) * 5).astype(dtype)
        for f in programs:
            assert rewritten(f, x)[1] or shape == (5, 33)
            want = f(x.astype(np.float64))
            np.testing.assert_allclose(ms.jit(f, strategy=strategy, target="python")(x), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("at", [(), (3,), (0, 1, 2, 3), (*range(16),), (*range(32),)])
@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan, 3e4, -3e4])
def test_what_is_infinite_or_far_off_stays_as_it_was(short_rows, at, value):
    """A piece of nothing but -inf, as under a mask, must not make its row NaN; nor a piece far below the others."""
    x = np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)
    x[1, list(at)] = value
    for f in (logsumexp, lambda x: np.var(x, axis=1)):
        with np.errstate(all="ignore"):
            want = f(x.astype(np.float64))
        np.testing.assert_allclose(ms.jit(f, target="python")(x), want, rtol=2e-5)


def test_long_rows_are_read_once_and_compiled_results_agree():
    """4,000,000 bytes a row, which no core's cache holds: the traffic of one sweep, and a hair."""
    x = np.random.default_rng(2).standard_normal((2, 1_000_000), dtype=np.float32)
    for f in (logsumexp, lambda x: np.var(x, axis=1)):
        np.testing.assert_allclose(ms.jit(f, target="cpu")(x), f(x.astype(np.float64)), rtol=1e-6)
        stages = lower_program(trace(f, (x,), {}), "astitch", "cpu", CPU)
        assert any(d.rule == "online" for d in stages.decisions)
        loads = [line for source in stages.sources for line in source.text.splitlines() if "= x0[" in line]
        assert loads and all("row * 8000" in line for line in loads), "pieces of x, each read twice while it is in a cache"
        assert len({source.text for source in stages.sources if "= x0[" in source.text}) == 1, "by one kernel"


@pytest.mark.parametrize(("f", "shape", "why"), [
    (softmax, (3, 64), "the exponentials are results"),
    (lambda x: np.sum(np.exp(x - np.max(x)), axis=-1), (3, 64), "the maximum is another row's"),
    (lambda x: np.sum(np.exp(x - np.max(x, axis=0)), axis=0), (64, 64), "columns are no rows"),
    (lambda x: np.sum(np.exp(x - np.max(x * 2, axis=1, keepdims=True)), axis=1), (3, 64), "of another value"),
    (lambda x: np.sum((x - np.min(x, axis=1, keepdims=True)) ** 2, axis=1), (3, 64), "not about the mean"),
    (lambda x: np.sum(np.exp(x - np.max(x, axis=1, keepdims=True)), axis=1), (3, 20), "short"),
    (lambda x: np.sum(np.exp(x - np.max(x, axis=1, keepdims=True)), axis=1), (3, 127), "no piece divides it"),
    (lambda x: np.sum(np.exp(x - np.max(x, axis=1, keepdims=True)), axis=1), (0, 64), "there is nothing to add up"),
])
def test_refused(short_rows, f, shape, why):
    x = np.random.default_rng(3).standard_normal(shape, dtype=np.float32)
    assert rewritten(f, x)[1] == (), why
    np.testing.assert_allclose(ms.jit(f, target="python")(x), f(x), rtol=1e-4)


def test_a_gpu_keeps_its_graph(short_rows):
    graph = simplify(trace(logsumexp, (np.zeros((4, 64), np.float32),), {}).graph)
    assert split_reductions(graph, V100) == (graph, ()) != split_reductions(graph, CPU)


def test_pieces_divide_the_row():
    for size in (1, 300_000, 1 << 20, 50_000_000, 1_000_003):
        length = passes._length(size, 4)
        assert (length is None) == (size * 4 <= passes.LONG or size == 1_000_003)
        assert length is None or (size % length == 0 and 512 <= length <= 8192)
