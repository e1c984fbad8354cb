"""The launch path without a GPU: what it asks of the driver, in which order, with which bytes; and that results are right.

The driver is ``fake_cuda.Gpu``, whose kernels run in the stepper. ``test_cuda_bindings.py`` puts it below the real bindings.
"""

import ctypes
import sys
import threading
import types
from dataclasses import replace

import numpy as np
import pytest
from cuda_help import stand_in
from fake_cuda import Array, values_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import softmax
from runtime_help import array

import minisitch as ms
from minisitch.errors import DeviceError, KernelBug, MinisitchError
from minisitch.runtime import compile_graph
from minisitch.runtime.cuda import cublas
from minisitch.runtime.cuda import driver as cuda_driver
from minisitch.runtime.cuda import memory as cuda_memory
from minisitch.runtime.cuda.device_arrays import look
from minisitch.runtime.cuda.kernel import Arguments, DeviceKernel
from minisitch.runtime.cuda.launch import CudaExecutable
from minisitch.runtime.cuda.memory import MemoryBlock
from minisitch.testing import arrays_for, check_graph, graphs

LAUNCHES = ("cuLaunchKernel", "cuLaunchCooperativeKernel")
ORDER = (*LAUNCHES, "cuStreamSynchronize")


def chain(x):
    """Three launches, under strategy ``none``."""
    return np.sin(np.tanh(np.exp(x)))


def block(x, w):
    """Four launches: a softmax, a product, an activation, a product."""
    return np.tanh(softmax(x) @ w) @ w.T


@pytest.fixture
def gpu(monkeypatch):
    with stand_in(monkeypatch) as made:
        yield made


@pytest.fixture(autouse=True)
def without_cublas(monkeypatch):
    monkeypatch.setattr(cublas, "path", lambda: "")


def order(gpu):
    """What was asked for since the last time, of the calls that put work on the device or wait for it."""
    found = gpu.named(*ORDER)
    gpu.calls.clear()
    return found


# ---------------------------------------------------------------- results
@pytest.mark.parametrize("strategy", sorted(ms.STRATEGIES))
def test_every_strategy(gpu, strategy):
    x, w = array(5, 7), array(7, 3, seed=1)
    f = ms.jit(block, strategy=strategy, target="cuda")
    for k in range(3):
        np.testing.assert_allclose(f(x + k, w), block(x + k, w), rtol=2e-5, atol=1e-6)
    assert isinstance(f.compile(x, w), CudaExecutable)


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(graph=graphs(max_nodes=8, dtypes=("float32", "int32", "bool"), library=True), strategy=st.sampled_from(sorted(ms.STRATEGIES)),
       data=st.data())
def test_random_programs(gpu, graph, strategy, data):
    run = compile_graph(graph, strategy, "cuda")
    for _ in range(2):  # again with other numbers in the same buffers
        check_graph(graph, data.draw(arrays_for(graph)), lambda _, inputs: run.outputs(list(inputs)))


def test_a_kernel_with_a_grid_barrier_is_launched_together(gpu):
    f = ms.jit(softmax, strategy="astitch", target="cuda")
    x = array(1, 2100)
    assert "grid.sync()" in f.lower(x)[0].text
    np.testing.assert_allclose(f(x), softmax(x), rtol=1e-5)
    assert gpu.named(*LAUNCHES) == ["cuLaunchCooperativeKernel"]


def test_a_pipeline_is_one_cooperative_launch(gpu):
    """Queues and counters belong to the thread's session: a second call finds them as the first one left them."""
    def mlp(x, w, v):
        return np.tanh(x @ w) @ v

    x, w, v = array(12, 8), array(8, 16, seed=1), array(16, 6, seed=2)
    device = replace(ms.get_device("v100"), name="small", sms=3, queue_entry=256, least_queue_entry=128)
    f = ms.jit(mlp, strategy="kitsune", target="cuda", device=device)
    f.compile(x, w, v)
    assert gpu.named("cuModuleLoadData"), "loaded with the program, not at the first call"
    for k in range(2):
        np.testing.assert_allclose(f(x + k, w, v), mlp(x + k, w, v), rtol=1e-4, atol=1e-5)
    assert gpu.named(*LAUNCHES) == ["cuLaunchCooperativeKernel"] * 2


def test_empty_arrays_and_scalars(gpu):
    f = ms.jit(lambda x: (np.exp(x), x.sum(), x.sum(-1)), target="cuda")
    exp, total, sums = f(np.ones((0, 3), np.float32))
    assert exp.shape == (0, 3) and total == 0 and isinstance(total, np.float32) and sums.shape == (0,)


def test_what_only_numpy_does_waits_for_its_operands(gpu):
    f = ms.jit(lambda x: np.sort(np.exp(x)) * 2, target="cuda")
    x = array(3, 5)
    for _ in range(3):
        np.testing.assert_allclose(f(x), np.sort(np.exp(x)) * 2, rtol=1e-6)
    assert "cuStreamBeginCapture" not in order(gpu)


def test_arguments_that_are_written_to(gpu):
    def scale(x, y):
        x *= 2
        return x + y

    f, x, y = ms.jit(scale, target="cuda"), array(4), array(4, seed=1)
    want = x * 2
    np.testing.assert_allclose(f(x, y), want + y)
    np.testing.assert_array_equal(x, want)
    with pytest.raises(MinisitchError, match="shares memory"):
        f(x, x)


def test_indices_of_numpy_arrays_are_checked(gpu):
    f = ms.jit(lambda x, i: x[i] + 1, target="cuda")
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        f(array(4), np.array([1, 9]))


def test_threads_have_buffers_of_their_own(gpu):
    x, found = array(5, 7), []
    run = ms.jit(chain, target="cuda", strategy="none").compile(x)

    def work():
        run([x])
        session, = run.mine.sessions.values()
        found.append({session.workspace.address, session.stream, *(block.address for block in session.fixed.values())})

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 2 and not found[0] & found[1]


# ---------------------------------------------------------------- bytes
def test_arguments_are_laid_out_as_numba_has_them():
    """For each buffer: two words of 0, elements, item size, address, shape, stride; and a pointer to each word."""
    kernel = DeviceKernel("k", "", 1, 32, ("float32", "int8"), (12, 5))
    arguments = Arguments(kernel)
    arguments.words[4], arguments.words[11] = 0x1000, 0x2000
    want = np.array([0, 0, 12, 4, 0x1000, 12, 4, 0, 0, 5, 1, 0x2000, 5, 1], "<i8")
    assert bytes(arguments.words) == want.tobytes()
    first = ctypes.addressof(arguments.words)
    assert bytes(arguments.pointers) == np.arange(first, first + 8 * 14, 8, dtype="<u8").tobytes()


def test_a_launch_says_the_kernels_shape(gpu):
    f, x = ms.jit(softmax, target="cuda"), array(4, 8)
    f(x)
    kernel = f.compile(x).steps[0].launch
    call = next(call for call in gpu.calls if call[0] == "cuLaunchKernel")
    assert call[2:9] == (kernel.grid, 1, 1, kernel.block, 1, 1, 0) and call[11] == 0
    image, = gpu.programs
    assert image.startswith(f"sm_90 {kernel.registers}\n".encode())  # registers are bounded as the wave was counted


def test_a_call_taken_apart(gpu):
    x = array(5, 7)
    run = ms.jit(chain, strategy="none", target="cuda").compile(x)
    arrays, calls = run.prepare([x])
    gpu.calls.clear()
    for call in calls:
        call()
    assert len(calls) == len(run.steps) and order(gpu) == ["cuLaunchKernel", "cuStreamSynchronize"] * 3 and len(arrays) == 1


def test_a_kernel_sees_a_part_of_an_argument_from_its_offset_on(gpu):
    x = array(6, 4)
    f = ms.jit(lambda x: np.exp(x[2:]) @ x[:4], target="cuda", strategy="none")
    np.testing.assert_allclose(f(x), np.exp(x[2:]) @ x[:4], rtol=1e-5)


# ---------------------------------------------------------------- arrays of the device
def test_device_arrays_are_neither_copied_nor_waited_for(gpu):
    f, x = ms.jit(softmax, target="cuda"), array(4, 8)
    given = Array(gpu, x, stream=5)
    gpu.calls.clear()
    y = f(given)
    assert not gpu.named("cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize")
    assert [call[9] for call in gpu.calls if call[0] == "cuLaunchKernel"] == [5]  # the stream that the array says
    assert type(y).__name__ == "DeviceArray" and y.__cuda_array_interface__["stream"] == 5 and "float32" in repr(y)
    np.testing.assert_allclose(np.asarray(y), softmax(x), rtol=1e-6)


def test_an_array_of_another_stream_is_waited_for_by_the_device(gpu):
    f = ms.jit(lambda x, y: x + y, target="cuda")
    x, y = Array(gpu, array(4), stream=5), Array(gpu, array(4), stream=6)
    values = array(4, seed=2)
    gpu.work(6, lambda: gpu.array(y.address, 4, "float32").__setitem__(slice(None), values))  # still to be done on stream 6
    z = f(x, y)
    assert gpu.named("cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize") == ["cuEventRecord", "cuStreamWaitEvent"]
    gpu.drain(5)
    np.testing.assert_allclose(gpu.array(z.__cuda_array_interface__["data"][0], 4, "float32"), array(4) + values)


def test_numpy_arrays_beside_device_arrays_are_copied_to_them(gpu):
    f, x, w = ms.jit(block, target="cuda"), array(5, 7), array(7, 3, seed=1)
    y = f(Array(gpu, x), w)
    np.testing.assert_allclose(values_of(gpu, y), block(x, w), rtol=2e-5)


def test_a_part_of_an_array_that_wide_loads_cannot_read_is_copied(gpu):
    f, x = ms.jit(softmax, target="cuda"), array(4, 8)
    given = Array(gpu, x, offset=4)
    y = f(given)
    assert gpu.named("cuMemcpyDtoDAsync")
    np.testing.assert_allclose(values_of(gpu, y), softmax(x), rtol=1e-6)


def test_other_orders_and_masks_are_refused(gpu):
    x = Array(gpu, array(4, 8), strides=(4, 16))
    with pytest.raises(DeviceError, match="not in C order"):
        ms.jit(softmax, target="cuda")(x)
    masked = types.SimpleNamespace(__cuda_array_interface__={**Array(gpu, array(3)).__cuda_array_interface__, "mask": x})
    with pytest.raises(MinisitchError, match="masked"):
        look(masked)


def test_a_device_array_that_is_written_to(gpu):
    def scale(x, y):
        x *= 2
        return x + y

    f, x, y = ms.jit(scale, target="cuda"), array(8), array(8, seed=1)
    mine = Array(gpu, x)
    result = f(mine, Array(gpu, y))
    np.testing.assert_allclose(values_of(gpu, mine), x * 2)
    np.testing.assert_allclose(values_of(gpu, result), x * 2 + y)
    with pytest.raises(MinisitchError, match="shares memory"):
        f(mine, mine)
    with pytest.raises(MinisitchError, match="must be a device array"):
        f(x, mine)


def fake_library(monkeypatch, gpu, name):
    """Torch or CuPy, as much of them as is asked for: tensors, empty ones, a current stream."""
    class Tensor(Array):
        is_cuda, requires_grad, device = True, False, "cuda:0"
        flags = types.SimpleNamespace(c_contiguous=True)

        @property
        def data(self):
            return types.SimpleNamespace(ptr=self.address)

        def data_ptr(self):
            return self.address

        def contiguous(self):
            return self

    Tensor.__module__ = f"{name}.core"
    stream = types.SimpleNamespace(cuda_stream=9, ptr=9)
    module = types.SimpleNamespace(
        float32=np.dtype("float32"), empty=lambda shape, dtype, device=None: Tensor(gpu, np.empty(shape, dtype)),
        is_grad_enabled=lambda: True,
        cuda=types.SimpleNamespace(current_stream=lambda: stream, get_current_stream=lambda: stream))
    monkeypatch.setitem(sys.modules, name, module)
    return Tensor


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_results_are_of_the_library_of_the_arguments_on_its_stream(gpu, monkeypatch, library):
    tensor = fake_library(monkeypatch, gpu, library)
    x = array(4, 8)
    gpu.calls.clear()
    y = ms.jit(softmax, target="cuda")(tensor(gpu, x))
    assert type(y) is tensor and [call[9] for call in gpu.calls if call[0] == "cuLaunchKernel"] == [9]
    np.testing.assert_allclose(values_of(gpu, y), softmax(x), rtol=1e-6)


def test_a_tensor_that_wants_gradients_is_refused(gpu, monkeypatch):
    tensor = fake_library(monkeypatch, gpu, "torch")(gpu, array(3))
    tensor.requires_grad = True
    with pytest.raises(MinisitchError, match=r"pass x.detach\(\)"):
        look(tensor)


# ---------------------------------------------------------------- memory
def test_blocks_are_taken_again_by_their_own_stream(gpu):
    cuda_driver.current()
    one = cuda_memory.MemoryBlock(1000, 0, 3)
    address = one.address
    del one
    other = cuda_memory.MemoryBlock(1000, 0, 4)
    again = cuda_memory.MemoryBlock(1024, 0, 3)
    assert again.address == address != other.address


def test_a_full_memory_is_emptied_of_what_nobody_uses_and_then_refused(gpu):
    cuda_driver.current()
    gpu.memory = 4096
    block = cuda_memory.MemoryBlock(4096, 0, 3)
    del block
    assert cuda_memory.MemoryBlock(2048, 0, 3).address and "cuMemFree" in gpu.named("cuMemFree")
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY; the GPU's memory is full"):
        cuda_memory.MemoryBlock(8192, 0, 3)


def test_a_result_is_copied_to_the_host_by_a_thread_that_has_no_context_yet(gpu):
    """Each thread has a context of its own, and a new one none: a worker of a pool that is handed a result."""
    x, found = array(4, 8), []
    y = ms.jit(softmax, target="cuda")(Array(gpu, x))
    thread = threading.Thread(target=lambda: found.append((gpu.context, np.asarray(y))))
    thread.start()
    thread.join()
    (before, values), = found
    assert before == 0
    np.testing.assert_allclose(values, softmax(x), rtol=1e-6)


# ---------------------------------------------------------------- what the fake GPU refuses
UNWRITTEN = """def k(x, y):
    if cuda.threadIdx.x == 0:
        y[0] = y[1] + x[0]"""
TOGETHER = """def k(x, y):
    grid = cuda.cg.this_grid()
    grid.sync()
    y[cuda.blockIdx.x] = x[0]"""


def test_the_fake_gpu_refuses_what_a_gpu_would_get_wrong(gpu):
    """Memory that nobody wrote, and more blocks together than are resident: also where our own check does not look."""
    with pytest.raises(KernelBug, match="read before any write"):
        kernel = DeviceKernel("k", UNWRITTEN, 1, 32, ("float32", "float32"), (1, 2))
        arguments = Arguments(kernel)
        for place in (0, 1):
            arguments.fix(place, MemoryBlock(8, cuda_driver.current(), 0))
        arguments.launch(kernel.load(cuda_driver.current()), 0)
        cuda_driver.ask("cuStreamSynchronize", 0)
    kernel = DeviceKernel("k", TOGETHER, 132 * 64, 32, ("float32", "float32"), (1, 9000), together=True)
    function = kernel.load(cuda_driver.current())
    with pytest.raises(DeviceError, match="COOPERATIVE_LAUNCH_TOO_LARGE; a grid barrier takes more blocks"):
        Arguments(replace(kernel, grid=132 * 64 + 1)).launch(function, 0)


# ---------------------------------------------------------------- products
class FakeCublas:
    """``cublasGemmStridedBatchedEx`` on host memory, by what its arguments say."""

    def __init__(self, gpu):
        self.gpu, self.calls = gpu, []
        self.stream = None

    def cublasCreate_v2(self, handle):
        return 0

    def cublasSetStream_v2(self, handle, stream):
        self.stream = stream.value
        return 0

    def cublasGemmStridedBatchedEx(self, handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, step_a, b, b_type, ldb, step_b,
                                   beta, c, c_type, ldc, step_c, count, compute, algorithm):
        dtype = {0: "float32", 1: "float64", 2: "float16"}[a_type]
        assert a_type == b_type == c_type and alpha._obj.value == 1 and beta._obj.value == 0 and algorithm == -1
        scalar = ctypes.c_double if compute == 70 else ctypes.c_float
        assert isinstance(alpha._obj, scalar) and isinstance(beta._obj, scalar)
        self.calls.append((op_a, op_b, m, n, k, count))
        size = np.dtype(dtype).itemsize

        def columns(address, rows, cols, lead, step, i):  # column-major: a column is contiguous, columns are lead apart
            assert lead >= rows
            flat = self.gpu.array(address + i * step * size, (cols - 1) * lead + rows, dtype)
            return np.ndarray((rows, cols), dtype, flat, 0, (size, lead * size))

        def work():
            for i in range(count):
                left = columns(a.value, *((k, m) if op_a else (m, k)), lda, step_a.value, i)
                right = columns(b.value, *((n, k) if op_b else (k, n)), ldb, step_b.value, i)
                result = columns(c.value, m, n, ldc, step_c.value, i)
                wide = np.float32 if dtype == "float16" else dtype
                result[...] = (left.T if op_a else left).astype(wide) @ (right.T if op_b else right).astype(wide)
        self.gpu.work(self.stream, work)
        return 0


@pytest.fixture
def blas(gpu, monkeypatch):
    made = FakeCublas(gpu)
    monkeypatch.setattr(cublas, "path", lambda: "libcublas.so")
    monkeypatch.setattr(cublas.ctypes, "CDLL", lambda path: made)
    return made


PRODUCTS = [
    (lambda a, b: a @ b, (4, 5), (5, 3), 1), (lambda a, b: a.T @ b, (5, 4), (5, 3), 1), (lambda a, b: a @ b.T, (4, 5), (3, 5), 1),
    (lambda a, b: a.T @ b.T, (5, 4), (3, 5), 1), (lambda a, b: a @ b, (2, 3, 4, 5), (2, 3, 5, 6), 1),
    (lambda a, b: a @ b, (2, 3, 4, 5), (5, 6), 1), (lambda a, b: a @ b, (3, 4, 5), (1, 5, 6), 1), (lambda a, b: a @ b, (1, 5), (5, 1), 1),
    (lambda a, b: a.transpose(0, 2, 1, 3) @ b.transpose(0, 2, 3, 1), (2, 4, 3, 5), (2, 6, 3, 5), 2),
    (lambda a, b: a[1:] @ b[:, 1:], (4, 5), (5, 3), 1), (lambda a, b: a @ b, (4, 1), (1, 3), 1),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("fn", "a_shape", "b_shape", "count"), PRODUCTS)
def test_products_by_cublas(gpu, blas, fn, a_shape, b_shape, count, dtype):
    a, b = (np.random.default_rng(k).integers(-4, 5, shape).astype(dtype) for k, shape in enumerate((a_shape, b_shape)))
    got = ms.jit(fn, target="cuda")(a, b)
    np.testing.assert_array_equal(got, fn(a, b))
    assert len(blas.calls) == count and got.dtype == dtype


@pytest.mark.parametrize(("fn", "a_shape", "b_shape", "count"), PRODUCTS)
def test_products_on_the_host(gpu, fn, a_shape, b_shape, count):
    a, b = (np.random.default_rng(k).integers(-4, 5, shape).astype("float32") for k, shape in enumerate((a_shape, b_shape)))
    np.testing.assert_array_equal(ms.jit(fn, target="cuda")(a, b), fn(a, b))


def test_what_cublas_does_not_know_the_host_does(gpu, blas):
    a, b = np.arange(20).reshape(4, 5), np.arange(15).reshape(5, 3)
    np.testing.assert_array_equal(ms.jit(lambda a, b: a @ b, target="cuda")(a, b), a @ b)
    x = array(4, 10)
    np.testing.assert_allclose(ms.jit(lambda x: x[:, ::2] @ x[0:1, :5].T, target="cuda")(x), x[:, ::2] @ x[0:1, :5].T, rtol=1e-5)
    empty = ms.jit(lambda a, b: a @ b, target="cuda")(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32))
    assert not empty.any() and empty.shape == (2, 3)
    assert not blas.calls


def test_explain_says_who_multiplies(monkeypatch):
    def f(x, w, i):
        return np.sort(np.exp(x) @ w @ w.T), i @ i

    types_ = "f32[4,8]", "f32[8,8]", "i32[4,4]"
    said = str(ms.explain(f, *types_, target="cuda", device="h100"))
    assert "and the call waits for them: cuBLAS is not installed here: pip install nvidia-cublas" in said
    assert ": cuBLAS knows no such dtype" in said and "sort: NumPy on the host" in said
    monkeypatch.setattr(cublas, "path", lambda: "libcublas.so")
    assert "matmul: cuBLAS, 1 call" in str(ms.explain(f, *types_, target="cuda", device="h100"))
    assert "library calls on a GPU" not in str(ms.explain(f, *types_, target="cpu"))


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(("function", "code", "message"), [
    ("cuInit", 100, "the driver sees no GPU"), ("cuModuleLoadData", 222, "the driver is older than the compiler"),
    ("cuMemAlloc", 2, "memory is full"), ("cuLaunchKernel", 700, "target='step' names the line"),
])
def test_the_drivers_refusals_name_the_next_step(gpu, function, code, message):
    gpu.fails[function] = code
    with pytest.raises(DeviceError, match=message):
        ms.jit(softmax, target="cuda")(array(4, 8))


@pytest.mark.parametrize(("major", "bindings", "message"), [(6, "13.0.0", "is an sm_60, and kernels need sm_70"),
                                                            (7, "13.0.0", r"minisitch\[cuda12\]")])
def test_old_gpus_are_refused(gpu, monkeypatch, major, bindings, message):
    gpu.attributes[75] = major
    monkeypatch.setattr(cuda_driver, "version", lambda package: bindings)
    with pytest.raises(DeviceError, match=message):
        ms.jit(softmax, target="cuda")(array(4, 8))


def test_a_grid_that_does_not_fit_is_refused(gpu):
    gpu.attributes[16] = 1
    with pytest.raises(DeviceError, match="has a grid barrier, so its .* blocks must run at once; this GPU holds"):
        ms.jit(softmax, strategy="astitch", target="cuda", device="h100")(array(64, 30000))


def test_a_gpu_that_we_have_no_figures_of_is_described_by_its_driver(gpu):
    found = cuda_driver.this_gpu()
    assert found.name == "Fake GPU" and found.sms == 132 and found.bandwidth == pytest.approx(2560e9) and found.kind == "gpu"
    cuda_driver.this_gpu.cache_clear()
    gpu.name = b"NVIDIA H200\0   "
    assert cuda_driver.this_gpu() is ms.DEVICES["h200"]


def test_without_bindings_or_driver_the_next_step_is_named(monkeypatch):
    cuda_driver.bindings.cache_clear()
    monkeypatch.setattr(cuda_driver.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"minisitch\[cuda\].*target='cpu'"):
        ms.jit(softmax, target="cuda")(array(2, 2))
    assert not cuda_driver.available()
