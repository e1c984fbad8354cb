"""The launch path over NVIDIA's real bindings, and a libcuda below them that is ours. Run with ``-m offline_cuda``.

What the other tests assume of the bindings holds: the same parameters, the same numbers, the same bytes. Kernels are
compiled and linked for real; what runs in their place is their text, in the stepper.
"""

import importlib
import inspect
import re
import shutil

import cuda_help
import fake_cuda
import numpy as np
import pytest
from programs import softmax

import minisitch as ms
from minisitch.errors import DeviceError
from minisitch.runtime.cuda import compile as cuda_compile
from minisitch.runtime.cuda import cublas
from minisitch.runtime.cuda import driver as cuda_driver
from minisitch.runtime.cuda import link as cuda_link
from minisitch.runtime.cuda.offline import ARCHITECTURES, missing
from minisitch.runtime.target import has_driver

WHY = missing() or ("" if shutil.which("cc") else "no C compiler") or ("a real driver is here" if has_driver() else "")
pytestmark = [pytest.mark.offline_cuda, pytest.mark.skipif(bool(WHY), reason=WHY or "present")]


def block(x, w):
    return np.tanh(softmax(x) @ w) @ w.T


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Loaded once a process, and found by whoever asks for libcuda from then on."""
    return fake_cuda.Library(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def gpu(library, monkeypatch):
    library.gpu = fake_cuda.Gpu()
    monkeypatch.setattr(cuda_link, "cubin", library.gpu.watching(cuda_link.cubin))
    monkeypatch.setattr(cublas, "path", lambda: "")
    with cuda_help.forgotten():
        yield library.gpu


@pytest.fixture(scope="module")
def driver():
    return importlib.import_module("cuda.bindings.driver")


@pytest.mark.parametrize("name", fake_cuda.FUNCTIONS)
def test_the_fake_has_the_parameters_of_the_real_function(driver, name):
    real, fake = (list(inspect.signature(getattr(where, name)).parameters) for where in (driver, fake_cuda.Gpu))
    assert fake[1:] == real


def test_the_fake_has_the_numbers_of_the_real_driver(driver):
    for code in fake_cuda.CUresult:
        assert int(getattr(driver.CUresult, code.name)) == code
    for name in ("CUstream_flags", "CUevent_flags", "CUdevice_attribute"):
        for each, value in vars(getattr(fake_cuda.Gpu, name)).items():
            assert int(getattr(getattr(driver, name), each)) == value
    for code in cuda_driver.REMEDIES:
        assert driver.CUresult(code).name.startswith("CUDA_ERROR_")
    assert driver.CUresult(cuda_driver.OUT_OF_MEMORY).name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert driver.CUresult(cuda_driver.INVALID_CONTEXT).name == "CUDA_ERROR_INVALID_CONTEXT"


def test_a_program_with_products_through_the_real_bindings(gpu):
    """The bytes that the bindings hand on are those that the kernels want."""
    f, x, w = ms.jit(block, target="cuda"), array(5, 7), array(7, 3, seed=1)
    for k in range(4):
        np.testing.assert_allclose(f(x * k, w), block(x * k, w), rtol=2e-5)
    assert all(image.startswith(b"\x7fELF") for image in gpu.programs)


def test_device_arrays_and_a_grid_barrier_through_the_real_bindings(gpu):
    f, x = ms.jit(softmax, strategy="astitch", target="cuda"), array(2, 2500)
    f(array(2, 2500))  # a context is there
    y = f(fake_cuda.Array(gpu, x, stream=5))
    np.testing.assert_allclose(y.numpy(), softmax(x), rtol=1e-5)
    assert gpu.named("cuLaunchKernel", "cuLaunchCooperativeKernel") == ["cuLaunchCooperativeKernel"] * 2


def test_refusals_through_the_real_bindings(gpu):
    gpu.memory = 100
    with pytest.raises(DeviceError, match="cuMemAlloc of 512 bytes: CUDA_ERROR_OUT_OF_MEMORY; the GPU's memory is full"):
        ms.jit(softmax, target="cuda")(array(4, 8))


def test_a_gpu_is_described_through_the_real_bindings(gpu):
    cuda_driver.current()
    assert cuda_driver.this_gpu().name == "Fake GPU" and cuda_driver.architecture(0) == "sm_90" and cuda_driver.available()


# ---------------------------------------------------------------- what numba-cuda makes
def test_a_kernel_takes_the_words_that_we_lay_out():
    """Seven words of 8 bytes a buffer, in the order of Numba's array; the kernel reads the fifth."""
    source, = ms.lower(softmax, "f32[8,8]", target="cuda", device="h100")
    ptx = source_ptx(source)
    declared = re.search(r"\.entry \w+\(([^)]*)\)", ptx)[1]
    assert re.findall(r"\.param \.(\w+)", declared) == ["u64"] * 14
    assert set(re.findall(r"ld\.param\.u64\s+%\w+, \[\w+_param_(\d+)\]", ptx)) <= {"4", "11"}
    model = importlib.import_module("numba.core.datamodel.models").ArrayModel
    fields = re.findall(r"\('(\w+)'|\(\"(\w+)\"", inspect.getsource(model))
    assert [a or b for a, b in fields][:7] == ["meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides"]


def source_ptx(source):
    return cuda_compile.ptx(source.text, source.kernel.name, [b.dtype for b in source.kernel.parameters], "sm_90")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_link_for_each_architecture_also_with_a_grid_barrier(architecture):
    source, = ms.lower(softmax, "f32[64,30000]", strategy="astitch", target="cuda", device="h100")
    made = cuda_link.cubin(source.text, source.kernel.name, [b.dtype for b in source.kernel.parameters], architecture,
                           source.kernel.registers)
    assert made.image.startswith(b"\x7fELF") and made.entry.encode() in made.image


def test_machine_code_is_kept_on_disk(monkeypatch):
    text = "def k(x):\n    x[cuda.threadIdx.x] = np.float32(1)  # %0 user.py:1\n"
    first = cuda_link.cubin(text, "k", ["float32"], "sm_90")
    monkeypatch.setattr(cuda_compile, "ptx", lambda *_: pytest.fail("compiled again"))
    assert cuda_link.cubin(text.replace("user.py:1", "user.py:2"), "k", ["float32"], "sm_90") == first


def test_what_the_linker_refuses_is_said():
    with pytest.raises(DeviceError, match=r"nvJitLink refuses a kernel for sm_90: .*foo"):
        cuda_link.link(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f() { foo; }", "sm_90")
