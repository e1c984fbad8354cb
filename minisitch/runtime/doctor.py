"""``python -m minisitch doctor``: what this machine has, what will run on it, and one command for each gap.

In:  the machine. Out: a ``Report`` of findings and targets; ``str`` as text, ``json`` as data.

Every look is one function that imports nothing before it knows that it is there, so the doctor works where nothing but NumPy
is installed. ``missing`` is no illness: a laptop has no GPU. ``broken`` is: something is there, and does not work; a
finding that is broken makes the exit status 1.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import store
from .cuda import cublas, offline
from .cuda.driver import OLDEST
from .cuda.link import version

CUDA, CUDA12 = "pip install 'minisitch[cuda]'", "pip install 'minisitch[cuda12]'"
OK, MISSING, BROKEN = "ok", "missing", "broken"
NO_DEVICE = 100  # what the driver says where it finds no GPU
MAJOR_MINOR = 75, 76  # numbers of a device's attributes: its compute capability
LIBRARIES = {"cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "torch": ("torch",), "jax": ("jax",)}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: ``state`` is ok, missing or broken; ``fix`` the command that mends it, if any."""

    what: str
    state: str
    said: str
    fix: str = ""


@dataclass(frozen=True)
class Target:
    """Whether kernels for a target run here; ``why`` if not, and how if so."""

    name: str
    runs: bool
    why: str


@dataclass(frozen=True)
class Report:
    """What the doctor found."""

    machine: str
    findings: tuple[Finding, ...]
    targets: tuple[Target, ...]

    @property
    def healthy(self) -> bool:
        """Nothing that is there fails to work."""
        return all(f.state != BROKEN for f in self.findings)

    @property
    def json(self) -> str:
        return json.dumps({**asdict(self), "healthy": self.healthy}, indent=1)

    def __str__(self) -> str:
        wide = max(len(f.what) for f in self.findings)
        lines = [self.machine, ""]
        for f in self.findings:
            lines.append(f"  {f.state:<8} {f.what:<{wide}}  {f.said}")
            lines += [f"  {'':<8} {'':<{wide}}  -> {f.fix}"] * bool(f.fix)
        lines += ["", "what runs where"]
        lines += [f"  {t.name:<10} {'here' if t.runs else 'not here'}{': ' if t.why else ''}{t.why}" for t in self.targets]
        return "\n".join(lines)


def examine() -> Report:
    """Look at everything; nothing is changed."""
    found = driver()
    findings = [_numba(), _cache(), *_driver(found), *_compiler(found), _cublas(found), _assembler(), *_libraries()]
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Report(machine, tuple(findings), tuple(_targets({f.what: f for f in findings})))


# ---------------------------------------------------------------- what every machine needs
def _numba() -> Finding:
    """It refuses to be imported beside a NumPy that it does not know."""
    said = f"{version('numba')}, with numpy {version('numpy')} and llvmlite {version('llvmlite')}"
    try:
        importlib.import_module("numba")
    except ModuleNotFoundError as problem:
        if problem.name == "numba":
            return Finding("numba", MISSING, "no kernels can be compiled", "pip install numba")
        return Finding("numba", BROKEN, f"{said}: {problem}", "pip install --force-reinstall numba")
    except Exception as problem:  # whatever a clash of versions makes of it
        return Finding("numba", BROKEN, f"{said}: {' '.join(str(problem).split())}", "pip install --upgrade numba numpy")
    return Finding("numba", OK, said)


def _cache() -> Finding:
    """Where compiled kernels and plans are kept."""
    folder = store.folder()
    if folder is None:
        off = os.environ.get("MINISITCH_CACHE") in ("0", "off")
        said = "switched off by MINISITCH_CACHE" if off else "no folder of this user's own: every process compiles anew"
        return Finding("kernel cache", MISSING, said, "" if off else "export MINISITCH_CACHE=$HOME/.minisitch")
    return Finding("kernel cache", OK, f"in {folder}")


# ---------------------------------------------------------------- a GPU
@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver says by itself, asked without any package."""

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
    if code:
        return Driver(code, number.value, ())
    library.cuDeviceGetCount(ctypes.byref(count))
    return Driver(0, number.value, tuple(_gpu(library, i) for i in range(count.value)))


def _gpu(library: Any, ordinal: int) -> tuple[str, int, int]:
    device, name, figures = ctypes.c_int(), ctypes.create_string_buffer(256), []
    library.cuDeviceGet(ctypes.byref(device), ordinal)
    library.cuDeviceGetName(name, 256, device)
    for attribute in MAJOR_MINOR:
        figure = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(figure), attribute, device)
        figures.append(figure.value)
    return name.value.decode(errors="replace"), figures[0], figures[1]


def _driver(found: Driver | None) -> Iterator[Finding]:
    """The driver and the GPUs that it sees."""
    if found is None and _has_card():
        yield Finding("NVIDIA driver", MISSING, "there is an NVIDIA GPU, and no libcuda",
                      "install NVIDIA's driver, then run nvidia-smi")
    elif found is None:
        yield Finding("NVIDIA driver", MISSING, "no libcuda, and no NVIDIA GPU was found")
    elif found.code and found.code != NO_DEVICE:
        yield Finding("NVIDIA driver", BROKEN, f"it does not start: cuInit says {found.code}", "nvidia-smi")
    else:
        yield Finding("NVIDIA driver", OK, f"for CUDA up to {_cuda_name(found.version)}")
        if not found.gpus:
            hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
            if hidden is None:
                yield Finding("GPU", MISSING, "the driver sees none", "nvidia-smi")
            else:
                yield Finding("GPU", MISSING, f"CUDA_VISIBLE_DEVICES={hidden!r} leaves none", "unset CUDA_VISIBLE_DEVICES")
        for number, gpu in enumerate(found.gpus):
            yield _gpu_finding(f"GPU {number}" if number else "GPU", *gpu)


def _gpu_finding(what: str, name: str, major: int, minor: int) -> Finding:
    said = f"{name}, sm_{major}{minor}"
    if (major, minor) < OLDEST[0]:
        return Finding(what, MISSING, f"{said}: too old, kernels take sm_70 or later")
    if (major, minor) < OLDEST[1] and version("cuda-bindings").startswith("13."):
        return Finding(what, BROKEN, f"{said}: CUDA 13 no longer compiles for it", CUDA12)
    return Finding(what, OK, said)


def _has_card() -> bool:
    """Whether the bus has a device of NVIDIA's; where Linux says so."""
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return any(path.read_text().strip() == "0x10de" for path in vendors)


def _compiler(found: Driver | None) -> Iterator[Finding]:
    """numba-cuda with the parts of a toolkit that it needs, and whether they fit the driver and each other."""
    bindings = version("cuda-bindings")
    if not version("numba-cuda"):
        fix = CUDA if found is None or found.version >= 13000 else CUDA12
        yield Finding("numba-cuda", MISSING, "it compiles CUDA kernels", fix if found or _has_card() else "")
        return
    yield Finding("numba-cuda", OK, f"{version('numba-cuda')}, with cuda-bindings {bindings} and cuda-core {version('cuda-core')}")
    toolkit = _toolkit()
    yield toolkit
    if toolkit.state == OK:
        yield _trial()
    major = int(bindings.partition(".")[0] or 0)
    if found and major and 0 < found.version // 1000 < major:
        yield Finding("driver and compiler", BROKEN, f"the driver knows CUDA up to {_cuda_name(found.version)}, the compiler is of "
                      f"CUDA {major}", CUDA12 if major == 13 and found.version >= 12000 else "update NVIDIA's driver")
    nvvm = version("nvidia-nvvm").partition(".")[0]
    if nvvm and major and int(nvvm) != major:
        yield Finding("compiler and bindings", BROKEN, f"nvidia-nvvm {version('nvidia-nvvm')} beside cuda-bindings {bindings}",
                      CUDA12 if major == 12 else CUDA)


def _trial() -> Finding:
    """Compile a kernel, as far as no GPU is needed: versions clash in ways that no list foresees."""
    try:
        offline.cuda_compile.ptx("def k(x):\n    x[0] = x[1]\n", "k", ["float32"], "sm_80")
    except Exception as problem:  # numba-cuda raises whatever its clash with another package makes of it
        said = f"a kernel of one line is not compiled: {type(problem).__name__}: {' '.join(str(problem).split())}"
        return Finding("CUDA compiler", BROKEN, said, CUDA12 if version("cuda-bindings").startswith("12.") else CUDA)
    return Finding("CUDA compiler", OK, "compiles a kernel")


def _cuda_name(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _toolkit() -> Finding:
    """The compiler, the linker and the device runtime, wherever numba-cuda would find them."""
    pathfinder = importlib.import_module("cuda.pathfinder")
    searches = {"nvvm": pathfinder.load_nvidia_dynamic_lib, "nvJitLink": pathfinder.load_nvidia_dynamic_lib,
                "cudadevrt": pathfinder.find_static_lib}
    gone = []
    for name, search in searches.items():
        try:
            search(name)
        except Exception:  # each kind of not being there has a class of its own
            gone.append(name)
    if gone:
        fix = CUDA12 if version("cuda-bindings").startswith("12.") else CUDA
        return Finding("CUDA toolkit", MISSING, f"of what compiles and links kernels, {', '.join(gone)}", fix)
    release = version("nvidia-nvvm") or version("nvidia-cuda-nvcc-cu12") or "of the system"
    return Finding("CUDA toolkit", OK, f"{', '.join(searches)} {release}")


def _cublas(found: Driver | None) -> Finding:
    path = cublas.path()
    if path:
        return Finding("cuBLAS", OK, path)
    fix = f"{cublas.INSTALL}-cu12" if version("cuda-bindings").startswith("12.") else cublas.INSTALL
    return Finding("cuBLAS", MISSING, "without it a tiled kernel of ours multiplies matrices on a GPU", fix if found else "")


def _assembler() -> Finding:
    """What shows machine code on a machine without a GPU."""
    problem = offline.missing()
    return Finding("assembler", MISSING, "machine code cannot be shown (explain --architecture)", offline.cuda_compile.INSTALL) \
        if problem else Finding("assembler", OK, "ptxas and nvdisasm: machine code can be shown without a GPU")


def _libraries() -> Iterator[Finding]:
    """Whose arrays on the device are taken as they are. That none is there is nothing to mend."""
    for name, packages in LIBRARIES.items():
        found = [f"{package} {version(package)}" for package in packages if version(package)]
        if found:
            yield Finding(name, OK, f"{found[0]}: its arrays on a GPU are taken without a copy")


# ---------------------------------------------------------------- what runs where
def _targets(found: dict[str, Finding]) -> Iterator[Target]:
    """Each target of ``jit``, from the findings by name."""
    cpu = found["numba"].state == OK
    yield Target("cpu", cpu, f"on {os.cpu_count()} cores" if cpu else found["numba"].fix)
    needed = ("numba", "NVIDIA driver", "GPU", "numba-cuda", "CUDA toolkit", "CUDA compiler", "driver and compiler",
              "compiler and bindings")
    lacking = [found[name] for name in needed if name in found and found[name].state != OK]
    runs = not lacking and "GPU" in found
    yield Target("cuda", runs, found["GPU"].said if runs else "; ".join(f"{f.what} is {f.state}" for f in lacking))
    yield Target("step", True, "the CUDA text, thread by thread, in Python: to check it, not to be fast")
    yield Target("python", True, "the CPU text, uncompiled")
    yield Target("reference", True, "NumPy, node by node")
