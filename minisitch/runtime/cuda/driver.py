"""NVIDIA's driver, through its own Python bindings (``cuda.bindings.driver``, which come with numba-cuda).

In:  a call of the driver. Out: what it gives back; or a DeviceError that says what the code means and what to do.

The bindings and not ``cuda.core``: they are one function for each of the driver's, the same from CUDA 12.9 to 13, where
``cuda.core`` renamed options between 0.5 and 1.0; and what a call does to the device can be read off it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from ...device import DEVICES, Device
from ...errors import DeviceError
from .link import INSTALL, version

OLDEST = (7, 0), (7, 5)  # compute capabilities: Volta, whose threads may wait for each other; Turing, where CUDA 13 begins
ELSEWHERE = "run with target='cpu', or step the CUDA text with target='step'"
DOCTOR = "python -m minisitch doctor says what is missing"
OUT_OF_MEMORY, INVALID_CONTEXT = 2, 201
REMEDIES = {  # the driver's code -> what to do
    2: "the GPU's memory is full: free arrays, call minisitch.runtime.cuda.memory.release(), or take smaller inputs",
    34: f"a stub of the driver was loaded: take the toolkit's stubs folder off LD_LIBRARY_PATH; {DOCTOR}",
    100: f"the driver sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or {ELSEWHERE}",
    209: f"the kernel was compiled for another GPU than this one; {DOCTOR}",
    222: f"the driver is older than the compiler: update it, or pip install 'minisitch[cuda12]'; {DOCTOR}",
    700: "a kernel left its arrays, which is a bug of minisitch: target='step' names the line; then restart Python",
    701: "a kernel takes more registers or shared memory than this GPU has: name its kind, as device='a100'",
    720: "a grid barrier takes more blocks than this GPU holds at once: name its kind, as device='a100'",
    719: "a kernel failed, which is a bug of minisitch: target='step' names the line; then restart Python",
    803: f"the driver's parts do not fit together: reboot, or install the driver again; {DOCTOR}",
    804: f"the driver is too old for this CUDA on this kind of GPU: update it; {DOCTOR}",
}


@functools.cache
def bindings() -> Any:
    """The module of the bindings. Raises DeviceError where it, or the driver, is not there."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        raise DeviceError(f"no CUDA device here: NVIDIA's bindings are not installed ({INSTALL}); without a GPU {ELSEWHERE}")
    api = importlib.import_module("cuda.bindings.driver")
    try:
        code = int(api.cuInit(0)[0])
    except Exception as problem:  # the bindings' own kinds, which differ between versions
        raise DeviceError(f"no CUDA device here: NVIDIA's driver is not installed, or not found; install it (nvidia-smi "
                          f"shows whether it works), or {ELSEWHERE}") from problem
    if code:
        raise DeviceError(f"no CUDA device here: {REMEDIES.get(code, f'the driver does not start, code {code}; {DOCTOR}')}")
    return api


def ask(function: str, *arguments: Any) -> Any:
    """One call of the driver: its value, a tuple of them, or None. Raises DeviceError."""
    try:
        code, *values = getattr(bindings(), function)(*arguments)
    except RuntimeError as problem:  # the bindings' FunctionNotFoundError
        raise DeviceError(f"{function}: the driver does not have it, so it is too old: update it; {DOCTOR}") from problem
    if int(code):
        raise failure(function, int(code))
    return values[0] if len(values) == 1 else tuple(values) or None


def failure(function: str, code: int) -> DeviceError:
    """What a code means, and the next step."""
    api = bindings()
    name = api.cuGetErrorName(api.CUresult(code))[1]
    said = name.decode() if isinstance(name, bytes) else f"code {code}"
    return DeviceError(f"{function}: {said}; {REMEDIES.get(code, DOCTOR)}")


def available() -> bool:
    """Whether kernels can be compiled and launched here; where not, ``doctor`` says why."""
    if importlib.util.find_spec("numba_cuda") is None:
        return False
    try:
        return bool(architecture(current()))
    except DeviceError:
        return False


# ---------------------------------------------------------------- devices
def current(otherwise: int = 0) -> int:
    """The ordinal of this thread's device; makes the first one current where none is, as CuPy, Torch and Numba do, or another."""
    code, device = bindings().cuCtxGetDevice()
    if not int(code):
        return int(device)
    if int(code) != INVALID_CONTEXT:
        raise failure("cuCtxGetDevice", int(code))
    ask("cuCtxSetCurrent", ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", otherwise)))
    return otherwise


def attribute(name: str, ordinal: int) -> int:
    """One of the figures that the driver knows of a device, by the end of its name."""
    return int(ask("cuDeviceGetAttribute", getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"),
                   ask("cuDeviceGet", ordinal)))


@functools.cache
def architecture(ordinal: int) -> str:
    """``sm_90`` for a Hopper. Raises DeviceError for a GPU that is too old, or that the compiler no longer knows."""
    found = attribute("COMPUTE_CAPABILITY_MAJOR", ordinal), attribute("COMPUTE_CAPABILITY_MINOR", ordinal)
    name = f"sm_{found[0]}{found[1]}"
    if found < OLDEST[0]:
        raise DeviceError(f"this GPU is an {name}, and kernels take sm_70 or later; {ELSEWHERE}")
    if found < OLDEST[1] and int(version("cuda-bindings").partition(".")[0] or 0) >= 13:
        raise DeviceError(f"this GPU is an {name}, which CUDA 13 no longer compiles for: pip install 'minisitch[cuda12]' "
                          f"in an environment without CUDA 13's packages; or {ELSEWHERE}")
    return name


@functools.cache
def this_gpu(ordinal: int = 0) -> Device:
    """The GPU of this machine as schedules need it: its own sizes; costs that nobody measured are the H100's."""
    said = ask("cuDeviceGetName", 256, ask("cuDeviceGet", ordinal))
    name = (said.decode() if isinstance(said, bytes) else str(said)).strip("\0 ")
    known = next((d for key, d in DEVICES.items() if key in name.lower()), None)
    if known:
        return known
    sms, hertz = attribute("MULTIPROCESSOR_COUNT", ordinal), 1e3 * attribute("CLOCK_RATE", ordinal)
    bandwidth = 2e3 * attribute("MEMORY_CLOCK_RATE", ordinal) * attribute("GLOBAL_MEMORY_BUS_WIDTH", ordinal) / 8
    like = DEVICES["h100"]
    return Device(name, "gpu", sms, attribute("MAX_THREADS_PER_MULTIPROCESSOR", ordinal),
                  attribute("MAX_BLOCKS_PER_MULTIPROCESSOR", ordinal), attribute("MAX_REGISTERS_PER_MULTIPROCESSOR", ordinal),
                  attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", ordinal), like.shared_per_block, bandwidth or like.bandwidth,
                  sms * hertz * 2 * 128 or like.flops, like.launch_us, like.grid_barrier_us, like.block_barrier_us,
                  source="the driver's figures; launch and barrier costs as assumed for an H100, not measured")
