"""``python -m minisitch doctor``: what this machine has, what will run on it, and the command that mends each gap.

In:  the machine. Out: a ``Report``, which prints.

A finding is ``missing`` or ``broken``. Missing is no fault: a laptop has no GPU. Broken is one: a part is there and does
not work, and the command's exit status is 1. Each part is imported only after it was found, so the doctor works where
nothing but NumPy is installed.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import offline, store
from .cuda_link import version
from .runtime import cublas
from .runtime.cuda_driver import OLDEST

CUDA, CUDA12 = "pip install 'minisitch[cuda]'", "pip install 'minisitch[cuda12]'"
OK, MISSING, BROKEN = "ok", "missing", "broken"
NO_DEVICE = 100  # the driver's code where it finds no GPU
MAJOR, MINOR = 75, 76  # the driver's numbers for the two parts of a compute capability


@dataclass(frozen=True)
class Finding:
    """One part of the machine: its ``state`` is ok, missing or broken; ``fix`` is the command that mends it, if there is one."""

    what: str
    state: str
    said: str
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """All findings, and for each target of ``jit`` why it does not run here ("" where it runs)."""

    machine: str
    findings: tuple[Finding, ...]
    targets: dict[str, str]

    @property
    def healthy(self) -> bool:
        """No part is broken."""
        return all(f.state != BROKEN for f in self.findings)

    def __str__(self) -> str:
        wide = max(len(f.what) for f in self.findings)
        lines = [self.machine, ""]
        for f in self.findings:
            lines.append(f"  {f.state:<8} {f.what:<{wide}}  {f.said}")
            lines += [f"  {'':<8} {'':<{wide}}  -> {f.fix}"] * bool(f.fix)
        lines += ["", "what runs where"]
        lines += [f"  {name:<10} {f'not here: {why}' if why else 'here'}" for name, why in self.targets.items()]
        return "\n".join(lines)


def examine() -> Report:
    """Look at every part; nothing is changed."""
    found = driver()
    compiler = (_numba(), *_driver(found), *_cuda_compiler(found))
    findings = (*compiler, _cache(), _cublas(found), _assembler())
    lacking = [f for f in compiler if f.state != OK]
    why = "; ".join(f"{f.what} is {f.state}" for f in lacking)
    targets = {"cpu": why if lacking and lacking[0].what == "numba" else "", "cuda": why, "step": "", "python": "", "reference": ""}
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Report(machine, findings, targets)


def _numba() -> Finding:
    """Numba refuses to be imported beside a NumPy that it does not know."""
    said = f"{version('numba')}, with numpy {version('numpy')} and llvmlite {version('llvmlite')}"
    try:
        importlib.import_module("numba")
    except Exception as problem:  # a clash of versions raises errors of many classes
        if isinstance(problem, ModuleNotFoundError) and problem.name == "numba":
            return Finding("numba", MISSING, "it compiles kernels", "pip install numba")
        return Finding("numba", BROKEN, f"{said}: {' '.join(str(problem).split())}", "pip install --upgrade numba numpy")
    return Finding("numba", OK, said)


def _cache() -> Finding:
    folder = store.folder()
    if folder is None:
        return Finding("kernel cache", MISSING, "switched off, or no folder of this user's own: every process compiles again",
                       "export MINISITCH_CACHE=$HOME/.minisitch")
    return Finding("kernel cache", OK, f"in {folder}")


# ---------------------------------------------------------------- a GPU
@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver says, asked without any package."""

    code: int  # of cuInit
    version: int  # 13000 for CUDA 13.0
    gpus: tuple[tuple[str, int, int], ...]  # name, compute capability


def driver() -> Driver | None:
    """Ask libcuda; None where there is none."""
    try:
        library: Any = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    number, count = ctypes.c_int(), ctypes.c_int()
    code = library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(number))
    if not code:
        library.cuDeviceGetCount(ctypes.byref(count))
    return Driver(code, number.value, tuple(_gpu(library, i) for i in range(count.value)))


def _gpu(library: Any, ordinal: int) -> tuple[str, int, int]:
    device, name, major, minor = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), ordinal)
    library.cuDeviceGetName(name, 256, device)
    library.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
    library.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
    return name.value.decode(errors="replace"), major.value, minor.value


def _driver(found: Driver | None) -> Iterator[Finding]:
    """The driver and the GPUs that it sees."""
    if found is None:
        yield Finding("NVIDIA driver", MISSING, "no libcuda; if this machine has an NVIDIA GPU, install NVIDIA's driver")
    elif found.code not in (0, NO_DEVICE):
        yield Finding("NVIDIA driver", BROKEN, f"it does not start: cuInit says {found.code}", "nvidia-smi")
    else:
        yield Finding("NVIDIA driver", OK, f"for CUDA up to {_release(found.version)}")
        if not found.gpus:
            hidden = "CUDA_VISIBLE_DEVICES" in os.environ
            yield Finding("GPU", MISSING, "CUDA_VISIBLE_DEVICES leaves none" if hidden else "the driver sees none",
                          "unset CUDA_VISIBLE_DEVICES" if hidden else "nvidia-smi")
        for number, (name, *capability) in enumerate(found.gpus):
            old = (*capability,) < OLDEST[0]
            yield Finding(f"GPU {number}" if number else "GPU", MISSING if old else OK, f"{name}, sm_{capability[0]}{capability[1]}"
                          + (": too old, kernels take sm_70 or later" if old else ""))


def _extra() -> str:
    """The command that installs what fits the bindings that are here."""
    return CUDA12 if version("cuda-bindings").startswith("12.") else CUDA


def _cuda_compiler(found: Driver | None) -> Iterator[Finding]:
    """numba-cuda, and whether it compiles a kernel for this driver and GPU: versions clash in ways that no list foresees."""
    bindings = version("cuda-bindings")
    if not version("numba-cuda"):
        fits = CUDA if found is None or found.version >= 13000 else CUDA12
        yield Finding("numba-cuda", MISSING, "it compiles CUDA kernels", fits if found else "")
        return
    yield Finding("numba-cuda", OK, f"{version('numba-cuda')}, with cuda-bindings {bindings} and cuda-core {version('cuda-core')}")
    release = int(bindings.partition(".")[0] or 0)
    if found and 0 < found.version // 1000 < release:
        yield Finding("CUDA compiler", BROKEN, f"of CUDA {release}, and the driver knows CUDA up to {_release(found.version)}",
                      CUDA12 if found.version >= 12000 else "update NVIDIA's driver")
        return
    if found and found.gpus and OLDEST[0] <= found.gpus[0][1:] < OLDEST[1] and release == 13:
        yield Finding("CUDA compiler", BROKEN, f"CUDA 13 no longer compiles for {found.gpus[0][0]}", CUDA12)
        return
    try:
        offline.cuda_compile.ptx("def k(x):\n    x[0] = x[1]\n", "k", ["float32"], "sm_80")
    except Exception as problem:  # numba-cuda raises whatever its clash with another package makes of it
        said = f"a kernel of one line is not compiled: {type(problem).__name__}: {' '.join(str(problem).split())}"
        yield Finding("CUDA compiler", BROKEN, said, _extra())
    else:
        yield Finding("CUDA compiler", OK, "compiles a kernel")


def _release(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _cublas(found: Driver | None) -> Finding:
    if path := cublas.path():
        return Finding("cuBLAS", OK, path)
    fix = f"{cublas.INSTALL}-cu12" if _extra() == CUDA12 else cublas.INSTALL
    return Finding("cuBLAS", MISSING, "without it a tiled kernel of ours multiplies matrices on a GPU", fix if found else "")


def _assembler() -> Finding:
    if offline.missing():
        return Finding("assembler", MISSING, "machine code cannot be shown (explain --architecture)", offline.cuda_compile.INSTALL)
    return Finding("assembler", OK, "ptxas and nvdisasm: machine code can be shown without a GPU")
