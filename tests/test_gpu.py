"""On a GPU: that what the stepper and the fake driver say is so. Run with ``-m gpu``; ``python -m minisitch doctor`` says
whether it can be. What a library's arrays need is skipped where that library is not.

Every result is held to ``testing.judge``: float64, and no worse than twice NumPy's own error.
"""

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import softmax, standardised

import minisitch as ms
from minisitch.errors import DeviceError
from minisitch.ops import DTYPES
from minisitch.runtime import choose_device, compile_graph
from minisitch.runtime.cuda import cublas
from minisitch.runtime.cuda import driver as cuda_driver
from minisitch.runtime.cuda.driver import ask
from minisitch.runtime.cuda.memory import DeviceArray, release
from minisitch.testing import arrays_for, check_graph, graphs, random_inputs
from minisitch.trace import flatten, trace

pytestmark = [pytest.mark.gpu,
              pytest.mark.skipif(not cuda_driver.available(), reason="no usable GPU: python -m minisitch doctor")]


def layernorm(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def layernorm_gradient(x, dy):
    """Row sums and column sums of the same data: carries, and partial results behind a grid barrier."""
    mean = x.mean(-1, keepdims=True)
    spread = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    h = (x - mean) * spread
    return spread * (dy - dy.mean(-1, keepdims=True) - h * (dy * h).mean(-1, keepdims=True)), (dy * h).sum(0), dy.sum(0)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.8 * (x + 0.04 * x ** 3)))


def block(x, w):
    """Four launches: a softmax, a product, an activation, a product."""
    return np.tanh(softmax(x) @ w) @ w.T


def sides(x, y):
    return x.T @ y, x @ y.T, np.sort(x), np.cumsum(y, axis=0)


def check(fn, *types, strategy="auto", device=None, rounds=3):
    """Each time on other numbers."""
    graph = trace(fn, tuple(map(ms.runtime.parse_type, types))).graph
    run = compile_graph(graph, strategy, "cuda", device)
    for seed in range(rounds):
        check_graph(graph, random_inputs(graph, np.random.default_rng(seed)), lambda _, inputs: run.outputs(list(inputs)))


def mlp(x, w, v):
    return np.tanh(x @ w) @ v


def gradients(x, w, g):
    """A value for two stages, and sums over the tiles, which a final stage combines."""
    h = np.tanh(x @ w)
    return h, x.T @ (h * g), (h * g).sum(0)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


# ---------------------------------------------------------------- right
@pytest.mark.parametrize("strategy", sorted(ms.STRATEGIES))
@pytest.mark.parametrize("fn", [softmax, layernorm, gelu, standardised])
def test_every_strategy(fn, strategy):
    check(fn, "f32[1000,777]", strategy=strategy)


@pytest.mark.parametrize("strategy", sorted(ms.STRATEGIES))
def test_every_strategy_with_products_and_gradients(strategy):
    check(block, "f32[130,257]", "f32[257,65]", strategy=strategy)
    check(layernorm_gradient, "f32[1000,513]", "f32[1000,513]", strategy=strategy)


@pytest.mark.parametrize("shape", ["1,1", "3,31", "33,33", "1,1000003", "64,30000", "750000,32", "7,12345", "4096,1024", "100000,3"])
@pytest.mark.parametrize("fn", [softmax, standardised])
def test_the_papers_irregular_shapes_and_grid_barriers(fn, shape):
    check(fn, f"f32[{shape}]", strategy="astitch")


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_other_floats(dtype):
    check(softmax, f"{dtype}[513,300]")
    check(block, f"{dtype}[65,127]", f"{dtype}[127,33]")


def test_library_calls():
    check(sides, "f32[64,65]", "f32[64,65]")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs(max_nodes=16, dtypes=tuple(DTYPES.values())), strategy=st.sampled_from(sorted(ms.STRATEGIES)), data=st.data())
def test_random_programs(graph, strategy, data):
    run = compile_graph(graph, strategy, "cuda")
    for _ in range(3):
        check_graph(graph, data.draw(arrays_for(graph)), lambda _, inputs: run.outputs(list(inputs)))


def test_products_without_cublas(monkeypatch):
    monkeypatch.setattr(cublas, "path", lambda: "")
    check(lambda a, b: a @ b, "f32[130,257]", "f32[257,65]")
    check(lambda a, b: a @ b.transpose(0, 2, 1), "f32[3,1000,64]", "f32[3,999,64]")
    check(lambda a, b: a @ b, "i32[40,50]", "i32[50,60]")


# ---------------------------------------------------------------- pipelines
PIPELINES = [(mlp, (4096, 64), (64, 1024), (1024, 64)), (mlp, (1, 64), (64, 8192), (8192, 64)),
             (gradients, (4096, 64), (64, 256), (4096, 256))]


def runs_as_a_pipeline(fn, shapes, device=None):
    f, arrays = ms.jit(fn, strategy="kitsune", target="cuda", device=device), [normal(*shape, seed=k) for k, shape in enumerate(shapes)]
    assert f.compile(*arrays).stages.flows
    check(fn, *(f"f32[{rows},{columns}]" for rows, columns in shapes), strategy="kitsune", device=device)
    return f, arrays


@pytest.mark.parametrize(("fn", "shapes"), [(fn, shapes) for fn, *shapes in PIPELINES], ids=["rows", "one row", "gradients"])
def test_a_pipeline_gives_the_same_bits_every_time(fn, shapes):
    """All stages are resident, or this hangs; a reader that saw a tile too early would now and then have other numbers."""
    f, arrays = runs_as_a_pipeline(fn, shapes)
    first = flatten(f(*arrays))[0]
    for _ in range(200):
        for a, b in zip(first, flatten(f(*arrays))[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("payload", [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10])
def test_a_pipeline_by_payload(payload):
    """From 1 row of 1,024 bytes a tile to 256 of them: a profiler beside this shows time and DRAM bytes for each."""
    device = replace(choose_device("cuda"), queue_entry=payload, least_queue_entry=payload)
    runs_as_a_pipeline(mlp, ((8192, 64), (64, 256), (256, 64)), device)


# ---------------------------------------------------------------- arrays of the device
def torch_arrays():
    torch = pytest.importorskip("torch")
    return lambda x: torch.from_numpy(x).cuda(), lambda y: y.cpu().numpy(), torch.Tensor


def cupy_arrays():
    cupy = pytest.importorskip("cupy")
    return cupy.asarray, cupy.asnumpy, cupy.ndarray


def numba_arrays():
    cuda = pytest.importorskip("numba.cuda")
    return cuda.to_device, lambda y: y.copy_to_host(), type(cuda.device_array(1))


def own_arrays():
    def send(x):
        made = DeviceArray(x.shape, x.dtype, cuda_driver.current(), 0)
        ask("cuMemcpyHtoDAsync", made.block.address, x.ctypes.data, x.nbytes, 0)
        return made
    return send, np.asarray, DeviceArray


@pytest.mark.parametrize("library", [torch_arrays, cupy_arrays, numba_arrays, own_arrays])
def test_device_arrays_stay_on_the_device(library):
    send, receive, kind = library()
    f, x, w = ms.jit(block, target="cuda"), normal(130, 257), normal(257, 65, seed=1)
    there = send(w)
    for k in range(6):
        y = f(send(x + k), there)
        assert isinstance(y, kind)
        np.testing.assert_allclose(receive(y), block(x + k, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("library", [torch_arrays, cupy_arrays, own_arrays])
def test_results_are_arguments_again(library):
    """Nothing waits between the calls: each reads what the one before will have written."""
    send, receive, _ = library()
    f, x = ms.jit(lambda x: np.tanh(x) + 0.5, target="cuda"), normal(1 << 20)
    y, want = send(x), x
    for _ in range(50):
        y, want = f(y), np.tanh(want) + np.float32(0.5)
    np.testing.assert_allclose(receive(y), want, rtol=1e-4)


def test_work_goes_on_the_callers_stream():
    torch = pytest.importorskip("torch")
    f, stream = ms.jit(block, target="cuda"), torch.cuda.Stream()
    x, w = torch.randn(512, 512, device="cuda"), torch.randn(512, 64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(4):
            slow = x
            for _ in range(50):  # still under way when f is called
                slow = slow @ x / 23
            y = f(slow, w)
    stream.synchronize()
    np.testing.assert_allclose(y.cpu(), block(slow.cpu().numpy(), w.cpu().numpy()), rtol=1e-3, atol=1e-4)


def test_a_part_of_an_array_that_wide_loads_cannot_read():
    torch = pytest.importorskip("torch")
    x = torch.randn(1025, device="cuda")[1:].reshape(4, 256)
    np.testing.assert_allclose(ms.jit(softmax, target="cuda")(x).cpu(), softmax(x.cpu().numpy()), rtol=1e-5)


def test_an_argument_that_is_written_to():
    torch = pytest.importorskip("torch")

    def scale(x, y):
        x *= 2
        return x + y

    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    want = x * 2
    z = ms.jit(scale, target="cuda")(x, y)
    assert torch.equal(x, want) and torch.allclose(z, want + y)


# ---------------------------------------------------------------- the launch path
def test_threads_call_the_same_function():
    f, x, w = ms.jit(block, target="cuda"), normal(130, 257), normal(257, 65, seed=1)
    wrong = []

    def work(k):
        for _ in range(20):
            if not np.allclose(f(x * k, w), block(x * k, w), rtol=1e-3, atol=1e-4):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_taken_again():
    f, x, w = ms.jit(block, target="cuda"), normal(1024, 1024), normal(1024, 64, seed=1)
    for _ in range(4):
        f(x, w)
    before = ask("cuMemGetInfo")[0]
    for _ in range(100):
        f(x, w)
    assert ask("cuMemGetInfo")[0] == before


def test_a_full_memory_is_refused_and_survived():
    total = ask("cuMemGetInfo")[1]
    with pytest.raises(DeviceError, match="memory is full"):
        DeviceArray((total,), np.dtype("float32"), cuda_driver.current(), 0)
    release()
    check(softmax, "f32[64,64]")


def test_a_pytorch_model_stays_on_the_gpu():
    torch = pytest.importorskip("torch", minversion="2.13")
    from minisitch import torch_backend
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)).cuda()
    x = torch.randn(32, 64, device="cuda")
    said = torch_backend.explain(model, x)
    assert {part.target for part in said.parts} == {"cuda"} and not said.fallbacks
    torch.testing.assert_close(torch.compile(model, backend="minisitch")(x), model(x), rtol=1e-4, atol=1e-5)
