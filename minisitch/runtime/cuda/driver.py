"""Call NVIDIA's driver through its Python bindings (``cuda.bindings.driver``).

In:  the name of a driver function and its arguments. Out: its result, or a DeviceError.

The bindings come with numba-cuda. They have one function for each of the driver's, and stay the
same from CUDA 12.9 to 13. ``cuda.core`` renamed options between 0.5 and 1.0.
"""

import functools
import importlib.util
from typing import Any

from ...device import DEVICES, Device
from ...errors import DeviceError
from ...errors.forks import imported
from .link import INSTALL, version

# Compute capabilities. Kernels need Volta, whose threads can wait for each other. CUDA 13 needs
# Turing.
OLDEST = (7, 0), (7, 5)
ELSEWHERE = "run with target='cpu', or step the CUDA text with target='step'"
DOCTOR = "python -m minisitch doctor says what is missing"
OUT_OF_MEMORY, INVALID_CONTEXT = 2, 201
REMEDIES = {  # the driver's code -> what to do
    2: "the GPU's memory is full: free arrays, call minisitch.runtime.cuda.memory.release(), "
       "or take smaller inputs",
    34: "a stub of the driver was loaded: take the toolkit's stubs folder off LD_LIBRARY_PATH; "
        f"{DOCTOR}",
    100: f"the driver sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or {ELSEWHERE}",
    209: f"the kernel was compiled for another GPU than this one; {DOCTOR}",
    222: "the driver is older than the compiler: update it, or pip install 'minisitch[cuda12]'; "
         f"{DOCTOR}",
    700: "a kernel left its arrays, which is a bug of minisitch: target='step' names the line; "
         "then restart Python",
    701: "a kernel takes more registers or shared memory than this GPU has: name its kind, "
         "as device='a100'",
    720: "a grid barrier takes more blocks than this GPU holds at once: name its kind, "
         "as device='a100'",
    719: "a kernel failed, which is a bug of minisitch: target='step' names the line; "
         "then restart Python",
    803: f"the driver's parts do not fit together: reboot, or install the driver again; {DOCTOR}",
    804: f"the driver is too old for this CUDA on this kind of GPU: update it; {DOCTOR}",
}


@functools.cache
def bindings() -> Any:
    """The bindings' module. Raises DeviceError if it or the driver is missing."""
    if any(importlib.util.find_spec(name) is None for name in ("cuda", "cuda.bindings")):
        raise DeviceError("no CUDA device here: NVIDIA's bindings are not installed "
                          f"({INSTALL}); without a GPU {ELSEWHERE}")
    api = imported("cuda.bindings.driver")
    try:
        code = int(api.cuInit(0)[0])
    except Exception as problem:  # the class differs between versions of the bindings
        raise DeviceError("no CUDA device here: NVIDIA's driver is not installed, or not found; "
                          "install it (nvidia-smi shows whether it works), "
                          f"or {ELSEWHERE}") from problem
    if code:
        why = REMEDIES.get(code, f"the driver does not start, code {code}; {DOCTOR}")
        raise DeviceError(f"no CUDA device here: {why}")
    return api


def ask(function: str, *arguments: Any) -> Any:
    """Call a driver function. Returns its value, a tuple of values, or None. Raises DeviceError."""
    try:
        code, *values = getattr(bindings(), function)(*arguments)
    except RuntimeError as problem:  # the bindings' FunctionNotFoundError
        raise DeviceError(f"the driver has no {function}, so it is too old: update it; "
                          f"{DOCTOR}") from problem
    if int(code):
        raise failure(function, int(code))
    return values[0] if len(values) == 1 else tuple(values) or None


def failure(function: str, code: int) -> DeviceError:
    """The error for a driver's code: its name, and what to do."""
    api = bindings()
    name = api.cuGetErrorName(api.CUresult(code))[1]
    said = name.decode() if isinstance(name, bytes) else f"code {code}"
    return DeviceError(f"{function}: {said}; {REMEDIES.get(code, DOCTOR)}")


def available() -> bool:
    """Whether kernels can be compiled and launched here. ``doctor`` says why not."""
    if importlib.util.find_spec("numba_cuda") is None:
        return False
    try:
        return bool(architecture(current()))
    except DeviceError:
        return False


# ---------------------------------------------------------------- devices
def current(otherwise: int = 0) -> int:
    """The ordinal of this thread's device. If it has none, device ``otherwise`` becomes current."""
    code, device = bindings().cuCtxGetDevice()
    if not int(code):
        return int(device)
    if int(code) != INVALID_CONTEXT:
        raise failure("cuCtxGetDevice", int(code))
    ask("cuCtxSetCurrent", ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", otherwise)))
    return otherwise


def attribute(name: str, ordinal: int) -> int:
    """One figure of a device, by the end of the attribute's name in CUDA."""
    figure = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(ask("cuDeviceGetAttribute", figure, ask("cuDeviceGet", ordinal)))


@functools.cache
def architecture(ordinal: int) -> str:
    """The architecture, such as ``sm_90``. Raises DeviceError if the GPU is too old."""
    found = tuple(attribute(f"COMPUTE_CAPABILITY_{part}", ordinal) for part in ("MAJOR", "MINOR"))
    name = f"sm_{found[0]}{found[1]}"
    if found < OLDEST[0]:
        raise DeviceError(f"this GPU is an {name}, and kernels need sm_70 or later; {ELSEWHERE}")
    if found < OLDEST[1] and int(version("cuda-bindings").partition(".")[0] or 0) >= 13:
        raise DeviceError(f"this GPU is an {name}, which CUDA 13 no longer compiles for: "
                          "pip install 'minisitch[cuda12]' in an environment without CUDA 13's "
                          f"packages; or {ELSEWHERE}")
    return name


@functools.cache
def this_gpu(ordinal: int = 0) -> Device:
    """The GPU of this machine. Costs that were not measured are those of an H100."""
    said = ask("cuDeviceGetName", 256, ask("cuDeviceGet", ordinal))
    name = (said.decode() if isinstance(said, bytes) else str(said)).strip("\0 ")
    known = next((d for key, d in DEVICES.items() if key in name.lower()), None)
    if known:
        return known
    sms, hertz = attribute("MULTIPROCESSOR_COUNT", ordinal), 1e3 * attribute("CLOCK_RATE", ordinal)
    bandwidth = 2e3 * attribute("MEMORY_CLOCK_RATE", ordinal) / 8
    bandwidth *= attribute("GLOBAL_MEMORY_BUS_WIDTH", ordinal)
    threads, blocks, registers, shared = (
        attribute(f"MAX_{what}_PER_MULTIPROCESSOR", ordinal)
        for what in ("THREADS", "BLOCKS", "REGISTERS", "SHARED_MEMORY"))
    like = DEVICES["h100"]
    return Device(name, "gpu", sms, threads, blocks, registers, shared, like.shared_per_block,
                  bandwidth or like.bandwidth, sms * hertz * 2 * 128 or like.flops,
                  like.launch_us, like.grid_barrier_us, like.block_barrier_us,
                  source="the driver's figures; launch and barrier costs as assumed for an H100, not measured")
