"""``python -m minisitch doctor``: what this machine has, what can run on it, how to get the rest.

In:  the machine. Out: a ``Diagnosis``: findings and targets, as text (``str``) or data (``json``).

Each check imports a package only after it has found it, so the doctor works with NumPy alone.
``missing`` is harmless: a laptop has no GPU. ``broken`` means that something is installed and does
not work. The exit status is then 1.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from . import store
from .cuda import cublas, offline
from .cuda.driver import OLDEST
from .cuda.link import version

CUDA, CUDA12 = "pip install 'minisitch[cuda]'", "pip install 'minisitch[cuda12]'"
OK, MISSING, BROKEN = "ok", "missing", "broken"
NO_DEVICE = 100  # the driver's error code if it finds no GPU
MAJOR, MINOR = 75, 76  # CUDA's attribute numbers of a device's compute capability


@dataclass(frozen=True)
class Finding:
    """One check: its state, what was found, and a command that fixes it, or an empty string."""

    what: str
    state: str  # "ok" | "missing" | "broken"
    said: str
    fix: str = ""


@dataclass(frozen=True)
class Target:
    """Whether kernels for a target run here; ``why`` says how, or why not."""

    name: str
    runs: bool
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """All findings, and the targets that run here."""

    machine: str
    findings: tuple[Finding, ...]
    targets: tuple[Target, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is broken."""
        return all(f.state != BROKEN for f in self.findings)

    @property
    def json(self) -> str:
        return json.dumps({**asdict(self), "healthy": self.healthy}, indent=1)

    def __str__(self) -> str:
        lines = [self.machine, ""]
        for f in self.findings:
            lines.append(f"  {f.state:<8} {f.what:<19}  {f.said}")
            lines += [f"  {'':<29}-> {f.fix}"] * bool(f.fix)
        lines += ["", "what runs where"]
        for t in self.targets:
            lines.append(f"  {t.name:<10} {'here' if t.runs else 'not here'}: {t.why}")
        return "\n".join(lines)


def examine() -> Diagnosis:
    """Check everything, without changing anything."""
    found = driver()
    findings = (_numba(), _cache(), *_driver(found), *_compiler(found), _cublas(found))
    machine = (f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, "
               f"{os.cpu_count()} cores")
    return Diagnosis(machine, findings, tuple(_targets({f.what: f for f in findings})))


# ---------------------------------------------------------------- what every machine needs
def _numba() -> Finding:
    """Numba refuses to be imported with a NumPy that it does not know."""
    said = f"{version('numba')}, with numpy {version('numpy')} and llvmlite {version('llvmlite')}"
    try:
        importlib.import_module("numba")
    except ModuleNotFoundError as problem:
        if problem.name == "numba":
            return Finding("numba", MISSING, "no kernels can be compiled", "pip install numba")
        return Finding("numba", BROKEN, f"{said}: {problem}", "pip install --force-reinstall numba")
    except Exception as problem:  # a clash of versions can raise anything
        return Finding("numba", BROKEN, f"{said}: {problem}", "pip install --upgrade numba numpy")
    return Finding("numba", OK, said)


def _cache() -> Finding:
    """The folder of compiled kernels and plans."""
    folder = store.folder()
    if folder is None:
        return Finding("kernel cache", MISSING, "every process compiles anew",
                       "set MINISITCH_CACHE to a folder of your own")
    return Finding("kernel cache", OK, f"in {folder}")


# ---------------------------------------------------------------- a GPU
@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver library says, without any Python package."""

    code: int  # result of cuInit; 0 is success
    version: int  # 13000 for CUDA 13.0
    gpus: tuple[tuple[str, int, int], ...]  # name, compute capability


def driver() -> Driver | None:
    """Ask libcuda. None if there is no such library."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    number, count = ctypes.c_int(), ctypes.c_int()
    code = library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(number))
    if not code:
        library.cuDeviceGetCount(ctypes.byref(count))
    return Driver(code, number.value, tuple(_gpu(library, i) for i in range(count.value)))


def _gpu(library: Any, ordinal: int) -> tuple[str, int, int]:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), ordinal)
    library.cuDeviceGetName(name, 256, device)
    library.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
    library.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
    return name.value.decode(errors="replace"), major.value, minor.value


def _driver(found: Driver | None) -> Iterator[Finding]:
    """The driver, and the GPUs that it sees."""
    if found is None:
        yield Finding("NVIDIA driver", MISSING, "no libcuda",
                      "with an NVIDIA GPU: install its driver, then run nvidia-smi")
    elif found.code not in (0, NO_DEVICE):
        yield Finding("NVIDIA driver", BROKEN, f"it does not start: cuInit says {found.code}",
                      "nvidia-smi")
    else:
        yield Finding("NVIDIA driver", OK, f"for CUDA up to {_cuda(found.version)}")
        if not found.gpus:
            yield Finding("GPU", MISSING, "the driver sees none",
                          "nvidia-smi; is CUDA_VISIBLE_DEVICES set?")
        for number, gpu in enumerate(found.gpus):
            yield _gpu_finding(f"GPU {number}" if number else "GPU", *gpu)


def _gpu_finding(what: str, name: str, major: int, minor: int) -> Finding:
    said = f"{name}, sm_{major}{minor}"
    if (major, minor) < OLDEST[0]:
        return Finding(what, MISSING, f"{said}: too old, kernels take sm_70 or later")
    if (major, minor) < OLDEST[1] and version("cuda-bindings").startswith("13."):
        return Finding(what, BROKEN, f"{said}: CUDA 13 no longer compiles for it", CUDA12)
    return Finding(what, OK, said)


def _compiler(found: Driver | None) -> Iterator[Finding]:
    """numba-cuda, whether it can compile, and whether it fits the driver."""
    bindings = version("cuda-bindings")
    if not version("numba-cuda"):
        old = found is not None and found.version < 13000
        yield Finding("numba-cuda", MISSING, "it compiles CUDA kernels", CUDA12 if old else CUDA)
        return
    yield Finding("numba-cuda", OK, f"{version('numba-cuda')}, with cuda-bindings {bindings}")
    try:
        offline.cuda_compile.ptx("def k(x):\n    x[0] = x[1]\n", "k", ["float32"], "sm_80")
    except Exception as problem:  # a clash of packages can raise anything
        yield Finding("CUDA compiler", BROKEN, f"{type(problem).__name__}: {problem}",
                      CUDA12 if bindings.startswith("12.") else CUDA)
    else:
        yield Finding("CUDA compiler", OK, "compiles a kernel")
    major = int(bindings.partition(".")[0] or 0)
    if found and 0 < found.version // 1000 < major:
        yield Finding("driver and compiler", BROKEN,
                      f"the driver knows CUDA up to {_cuda(found.version)}, the compiler is of {major}",
                      CUDA12 if found.version >= 12000 else "update NVIDIA's driver")


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _cublas(found: Driver | None) -> Finding:
    if path := cublas.path():
        return Finding("cuBLAS", OK, path)
    fix = f"{cublas.INSTALL}-cu12" if version("cuda-bindings").startswith("12.") else cublas.INSTALL
    return Finding("cuBLAS", MISSING, "a tiled kernel of ours multiplies matrices on a GPU",
                   fix if found else "")


# ---------------------------------------------------------------- what runs where
def _targets(found: dict[str, Finding]) -> Iterator[Target]:
    """Whether each target of ``jit`` runs here, from the findings by name."""
    cpu = found["numba"].state == OK
    yield Target("cpu", cpu, f"on {os.cpu_count()} cores" if cpu else found["numba"].fix)
    lacking = [f for f in found.values() if f.state != OK and f.what not in ("kernel cache", "cuBLAS")]
    lacking = [f for f in lacking if not f.what.startswith("GPU ")]  # the first one is enough
    runs = not lacking and "GPU" in found
    why = "; ".join(f"{f.what} is {f.state}" for f in lacking)
    yield Target("cuda", runs, found["GPU"].said if runs else why)
    yield Target("step", True, "the CUDA text, thread by thread, in Python: to check it")
    yield Target("python", True, "the CPU text, uncompiled")
    yield Target("reference", True, "NumPy, node by node")
