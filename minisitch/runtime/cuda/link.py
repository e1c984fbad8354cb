"""CUDA text to the machine code of one GPU, without a driver, and kept on disk.

In:  a kernel's text, the dtypes of its buffers, an architecture. Out: a ``Cubin``.

    text --compile.ptx--> PTX --nvJitLink--> cubin

A kernel with a grid barrier is linked with the device runtime. The driver could link too, but one
that is older than the compiler refuses its PTX.
"""

import functools
import hashlib
import importlib.metadata
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeviceError
from ...errors.forks import imported
from .. import store
from . import compile as cuda_compile

INSTALL = "pip install 'minisitch[cuda]'"
PACKAGES = ("numba", "numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink",
            "nvidia-cuda-nvcc-cu12")


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and the kernel's name in it."""

    image: bytes
    entry: str


def cubin(text: str, name: str, dtypes: Sequence[str], architecture: str,
          registers: int | None = None, exact: bool = True) -> Cubin:
    """The machine code of a kernel that takes flat buffers of these dtypes.

    ``registers`` limits the registers of a thread, so that the wave of the schedule fits (AStitch
    B8, "apply"). Raises DeviceError with the next step.
    """
    program = re.sub(r"[ \t]*#.*$", "", text, flags=re.MULTILINE)  # comments name the user's lines
    meaning = program, name, tuple(dtypes), architecture, registers, exact, _surroundings()
    key = hashlib.sha256(repr(meaning).encode()).hexdigest()
    folder = store.folder()
    kept = store.read(folder, f"{key}.bin") if folder else None
    if kept is None:
        code = cuda_compile.ptx(text, name, dtypes, architecture, exact)
        entry = re.search(r"\.entry\s+(\w+)", code)
        assert entry, "a kernel has an entry"
        kept = entry[1].encode() + b"\0" + link(code, architecture, registers)
        if folder:
            store.write(folder, f"{key}.bin", kept)
    name_of_entry, _, image = kept.partition(b"\0")
    return Cubin(image, name_of_entry.decode())


def link(ptx: str, architecture: str, registers: int | None = None) -> bytes:
    """Assemble PTX. Link the device runtime if the kernel calls it, for a grid barrier."""
    try:
        linker = imported("cuda.bindings.nvjitlink")
        linker.version()
    except Exception as problem:  # an ImportError, or another if the library is missing
        raise DeviceError("CUDA kernels are linked by nvJitLink, which is not installed: "
                          f"{INSTALL}") from problem
    options = [f"-arch={architecture}"] + [f"-maxrregcount={registers}"] * bool(registers)
    handle = linker.create(len(options), options)
    try:
        code = ptx.encode() + b"\0"
        linker.add_data(handle, linker.InputType.PTX, code, len(code), "kernel.ptx")
        if "cudaCGSynchronize" in ptx:
            linker.add_file(handle, linker.InputType.LIBRARY, _device_runtime())
        linker.complete(handle)
        image = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, image)
    except linker.nvJitLinkError as problem:
        log = bytearray(linker.get_error_log_size(handle))
        linker.get_error_log(handle, log)
        said = log.decode(errors="replace").strip(chr(0) + " ")
        raise DeviceError(f"nvJitLink refuses a kernel for {architecture}: {said} ({problem}); "
                          "python -m minisitch doctor says which versions clash") from problem
    finally:
        linker.destroy(handle)
    return bytes(image)


@functools.cache
def _device_runtime() -> str:
    """The path of the library that a grid barrier calls."""
    try:
        return str(imported("cuda.pathfinder").find_static_lib("cudadevrt"))
    except Exception as problem:
        raise DeviceError("a kernel with a grid barrier needs CUDA's device runtime, "
                          f"libcudadevrt: {INSTALL}") from problem


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """What machine code depends on besides the text: our sources, and versions of compilers."""
    ours = [(__package__, path.name) for path in sorted(Path(__file__).parent.glob("*.py"))]
    texts = [pkgutil.get_data(*each) or b"" for each in (*ours, ("minisitch.simt", "math.py"))]
    sources = [hashlib.sha256(text).hexdigest() for text in texts]
    return (*sources, *(f"{name} {version(name)}" for name in PACKAGES))


def version(package: str) -> str:
    """The installed version of a package, or an empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
