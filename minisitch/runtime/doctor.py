"""``python -m minisitch doctor``: what this machine has, what can run on it, how to get the rest.

In:  the machine. Out: ``Finding``s, and their text.

Each check imports a package only after it has found it, so the doctor works with NumPy alone.
``missing`` is harmless: a laptop has no GPU. ``broken`` means that something is installed and does
not work. The exit status is then 1.
"""

import importlib
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import DeviceError
from ..fuse import count
from . import store
from .cuda import cublas, driver, offline
from .cuda.link import version
from .target import has_driver

CUDA, CUDA12 = "pip install 'minisitch[cuda]'", "pip install 'minisitch[cuda12]'"
TORCH = "pip install 'minisitch[torch]'"
OK, MISSING, BROKEN = "ok", "missing", "broken"
NEEDED = ("numba", "NVIDIA driver", "numba-cuda", "CUDA compiler", "GPU")  # to run kernels on a GPU


@dataclass(frozen=True)
class Finding:
    """One check: its state, what was found, and a command that fixes it, or an empty string."""

    what: str
    state: str  # "ok" | "missing" | "broken"
    said: str
    fix: str = ""


def examine() -> list[Finding]:
    """Check everything, without changing anything."""
    return [_numba(), _cache(), *_gpu(), _cublas(), _torch()]


def report(findings: Sequence[Finding]) -> str:
    """The findings, and where each target of ``jit`` runs."""
    cores = count(os.cpu_count() or 1, "core")
    lines = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {cores}", ""]
    for f in findings:
        lines.append(f"  {f.state:<8} {f.what:<14}  {f.said}")
        lines += [f"  {'':<24}-> {each}" for each in f.fix.splitlines()]
    lacking = {f.what: f"{f.what} is {f.state}" for f in findings if f.state != OK and f.what in NEEDED}
    lines += ["", "what runs where"]
    lines.append(f"  cpu        {'not here: ' + lacking['numba'] if 'numba' in lacking else 'here'}")
    lines.append(f"  cuda       {'not here: ' + '; '.join(lacking.values()) if lacking else 'here'}")
    return "\n".join([*lines, "  step       here: the CUDA text, thread by thread, in Python: to check it",
                      "  python     here: the CPU text, uncompiled",
                      "  reference  here: NumPy, node by node"])


def _numba() -> Finding:
    """Numba refuses to be imported with a NumPy that it does not know."""
    said = f"{version('numba')}, with numpy {version('numpy')} and llvmlite {version('llvmlite')}"
    try:
        importlib.import_module("numba")
    except Exception as problem:  # a clash of versions can raise anything
        if getattr(problem, "name", "") == "numba":
            return Finding("numba", MISSING, "no kernels can be compiled", "pip install numba")
        return Finding("numba", BROKEN, f"{said}: {problem}", "pip install --upgrade --force-reinstall numba numpy")
    return Finding("numba", OK, said)


def _cache() -> Finding:
    """The folder of compiled kernels and plans."""
    folder = store.folder()
    if folder is None:
        return Finding("kernel cache", MISSING, "every process compiles anew",
                       "set MINISITCH_CACHE to a folder of your own")
    return Finding("kernel cache", OK, f"in {folder}")


def _gpu() -> Iterator[Finding]:
    """The driver, the compiler, and whether both fit this GPU."""
    if not has_driver():
        yield Finding("NVIDIA driver", MISSING, "no libcuda", "with an NVIDIA GPU: install its driver, then run nvidia-smi")
    bindings = version("cuda-bindings")
    if not version("numba-cuda"):
        yield Finding("numba-cuda", MISSING, "it compiles CUDA kernels", f"with an NVIDIA GPU: {CUDA}; with a driver "
                      f"older than CUDA 13's: {CUDA12}\nwithout one, to see machine code: {offline.cuda_compile.INSTALL}")
        return
    yield Finding("numba-cuda", OK, f"{version('numba-cuda')}, with cuda-bindings {bindings}")
    try:
        offline.cuda_compile.ptx("def k(x):\n    x[0] = x[1]\n", "k", ["float32"], "sm_80")
    except Exception as problem:  # a clash of packages can raise anything
        fix = CUDA12 if bindings.startswith("12.") else CUDA
        yield Finding("CUDA compiler", BROKEN, f"{type(problem).__name__}: {problem}", fix)
    else:
        yield Finding("CUDA compiler", OK, "compiles a kernel")
    if has_driver():
        yield _device(int(bindings.partition(".")[0] or 0))


def _device(compiler: int) -> Finding:
    """This GPU, for a compiler of this major version. A driver's refusals name the next step."""
    try:
        found = driver.current()
        said = f"{driver.this_gpu(found).name}, {driver.architecture(found)}"
        known = driver.ask("cuDriverGetVersion") // 1000
    except DeviceError as problem:
        return Finding("GPU", BROKEN, str(problem))
    if known < compiler:
        versions = f"the driver knows CUDA {known}, the compiler is of {compiler}"
        return Finding("GPU", BROKEN, f"{said}: {versions}", f"update NVIDIA's driver, or {CUDA12}")
    return Finding("GPU", OK, said)


def _cublas() -> Finding:
    if path := cublas.path():
        return Finding("cuBLAS", OK, path)
    fix = cublas.INSTALL if has_driver() else f"with an NVIDIA GPU: {cublas.INSTALL}"
    return Finding("cuBLAS", MISSING, "NumPy multiplies matrices on the host", fix)


def _torch() -> Finding:
    """Whether ``torch.compile`` has this package as a backend."""
    if not version("torch"):
        return Finding("PyTorch", MISSING, "no torch.compile(model, backend=\"minisitch\")", TORCH)
    try:
        importlib.import_module("minisitch.torch_backend")
    except Exception as problem:  # another version may lack anything
        return Finding("PyTorch", BROKEN, f"{version('torch')}: {type(problem).__name__}: {problem}", TORCH)
    return Finding("PyTorch", OK, f"{version('torch')}: torch.compile(model, backend=\"minisitch\")")
