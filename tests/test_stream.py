"""Stores past the caches: the same values wherever a block begins and ends, and only where no cache would help."""

from dataclasses import replace

import numpy as np
import pytest
from nests import found, phases
from stitch_help import CPU, lowered, run, traced

from minisitch.device import Cache
from minisitch.kernel.ir import Stream
from minisitch.passes.stream_stores import STREAM
from minisitch.runtime.cpu.compile import inspect_assembly
from minisitch.runtime.steps import requests
from minisitch.strategies import cost

# A machine whose largest cache holds a page: what moves more comes from memory.
SMALL = replace(CPU, caches=(Cache(4096, 1e11, 1e11), Cache(1 << 40, 1e10, 1e10)))


def half(x, y):
    return (x + y) * x.dtype.type(3)


def streams(function, *inputs, device=SMALL):
    kernels = lowered(traced(function, *inputs), "astitch", "cpu", device).kernels
    return [bool(found(phase, Stream)) for kernel in kernels for phase in phases(kernel)]


def test_golden_text():
    source, = lowered(traced(half, (10, STREAM), (10, STREAM)), "astitch", "cpu", SMALL).sources
    text = "\n".join(line.split("#")[0].rstrip() for line in source.text.splitlines())
    assert text[text.index("def "):].replace(source.kernel.name, "half") == """\
def half(first, last, x0, x1, y0):
    for task in range(first, last):
        chunk = task % 2
        start = chunk * 640
        width = max(0, min(640, 1280 - start))
        y0_row = np.empty(128, np.float32)
        for c0 in range(-(-width // 128)):
            x0_row = x0[c0 * 128 + start:c0 * 128 + start + 128]
            x1_row = x1[c0 * 128 + start:c0 * 128 + start + 128]
            for c1 in range(min(128, width - c0 * 128)):
                v0 = x0_row[c1]
                v1 = x1_row[c1]
                v2 = v0 + v1
                v4 = v2 * C0
                y0_row[c1] = v4
            stream(y0, c0 * 128 + start, y0_row, min(128, width - c0 * 128))
        streamed()"""


@pytest.mark.parametrize("target", ["cpu", "python"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "float16"])
@pytest.mark.parametrize("shape", [(1031,), (4 * STREAM + 1,), (40_000,), (3, 2 * STREAM + 77), (33, 5 * STREAM)])
def test_values_are_the_same_wherever_blocks_end(shape, dtype, target):
    random = np.random.default_rng(0)
    x, y = (random.integers(-9, 9, shape).astype(dtype) for _ in range(2))
    graph = traced(lambda x, y: (half(x, y), x - y, x > y), x, y)
    for got, right in zip(run(graph, [x, y], "astitch", target, SMALL), (half(x, y), x - y, x > y), strict=True):
        assert np.array_equal(got, right)


def test_rows_that_begin_within_a_line():
    """A bias repeats along the rows, so rows stay rows; of 1031 columns, hardly one begins with a line."""
    x, bias = np.random.default_rng(0).random((37, 1031), np.float32), np.arange(37, dtype=np.float32)[:, None]
    assert any(streams(half, x, bias))
    got, = run(traced(half, x, bias), [x, bias], "astitch", "cpu", SMALL)
    assert np.array_equal(got, half(x, bias))


def test_only_what_no_cache_holds_and_nobody_needs_again():
    large = (64, 1024)
    assert streams(half, large, large) == [True]
    assert streams(half, large, large, device=CPU) == [False], "the largest cache holds it"
    assert streams(half, (64,), (64,)) == [False], "a small one does"
    assert not any(streams(lambda x: x / x.sum(-1, keepdims=True), large)), "a row that was read is still in the first cache"
    assert not any(streams(lambda x: x.T + x.dtype.type(1), (64, 1024))), "reads across its rows"
    assert not any(streams(half, (2048, 64), (2048, 1))), "rows too short"
    assert not any(streams(lambda x: x[::3] + x.dtype.type(1), (20_000,))), "strides"
    assert not any(streams(lambda x: x[:200] + x.dtype.type(1), (20_000,))), "the rest of the array is not read"


def test_all_loops_of_a_kernel_stream_or_none_whatever_their_order():
    """Each moves less than the largest cache holds, both together more: what counts is the kernel."""
    machine = replace(CPU, caches=(Cache(1 << 20, 1e11, 1e11), Cache(1 << 40, 1e10, 1e10)))
    small, large = (64, 1024), (65, 1024)
    both = lambda x, y: (x * x.dtype.type(3), y * y.dtype.type(3))  # noqa: E731
    assert streams(both, small, large, device=machine) == streams(both, large, small, device=machine) == [True, True]
    assert streams(lambda x: x * x.dtype.type(3), large, device=machine) == [False]


def test_what_streams_is_not_fetched_first_and_what_lies_beside_it_is():
    """One segment of two stores past the caches; half as much is stored through them, and counted twice."""
    machine = replace(CPU, sms=1, caches=(Cache(4096, 1e11, 1e11), Cache(1 << 40, 1e10, 1e10)), launch_us=0.0,
                      core_ns=tuple((name, 1e-9) for name, _ in CPU.core_ns))
    x, y = (128, 1024), (1024, 64)
    def beside(x, y):
        return x * x.dtype.type(3), y * y[:, :1]
    (kernel,) = lowered(traced(beside, x, y), "astitch", "cpu", machine).kernels
    assert sorted(bool(found(p, Stream)) for p in phases(kernel)) == [False, True] and kernel.grid_barriers == 0
    assert cost.kernel_us(kernel) == pytest.approx(4 * (2 * 128 * 1024 + 3 * 1024 * 64) / 1e10 * 1e6, rel=1e-3)


def test_the_machine_code_stores_whole_lines_past_the_caches():
    source, = lowered(traced(half, (64, 1024), (64, 1024)), "astitch", "cpu", SMALL).sources
    request, = requests(source)
    assembly = inspect_assembly(request)
    assert any(word in assembly for word in ("vmovntps", "movntps", "vmovntdq", "movntdq", "stnp"))
