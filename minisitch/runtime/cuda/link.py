"""CUDA text to the machine code of one GPU: what a launch loads, made without a driver and kept on disk.

In:  a kernel's text, the dtypes of its buffers, an architecture. Out: a ``Cubin``.

    text --cuda_compile.ptx--> PTX --nvJitLink, with the device runtime where there is a grid barrier--> cubin

Linked here and not by the driver: what a driver makes of PTX depends on the driver's age, and one older than the compiler
refuses it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeviceError
from .. import store
from . import compile as cuda_compile

INSTALL = "pip install 'minisitch[cuda]'"
PACKAGES = ("numba", "numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvcc-cu12")


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and the name that the kernel has in it."""

    image: bytes
    entry: str


def cubin(text: str, name: str, dtypes: Sequence[str], architecture: str, registers: int | None = None,
          exact: bool = True) -> Cubin:
    """The machine code of a kernel that takes flat buffers of these dtypes. Raises DeviceError with the next step.

    ``registers`` bounds a thread's registers, so that the wave the schedule counted on fits (AStitch B8, "apply").
    """
    program = re.sub(r"[ \t]*#.*$", "", text, flags=re.MULTILINE)  # comments name the user's lines
    key = hashlib.sha256(repr((program, name, tuple(dtypes), architecture, registers, exact, _surroundings())).encode()).hexdigest()
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
    """Assemble PTX, and link the device runtime where it calls it: a grid barrier is such a call."""
    try:
        linker = importlib.import_module("cuda.bindings.nvjitlink")
        linker.version()
    except Exception as problem:  # an ImportError, or whatever says that the library is not there
        raise DeviceError(f"CUDA kernels are linked by nvJitLink, which is not installed: {INSTALL}") from problem
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
        said = bytearray(linker.get_error_log_size(handle))
        linker.get_error_log(handle, said)
        raise DeviceError(f"nvJitLink refuses a kernel for {architecture}: {said.decode(errors='replace').strip(chr(0) + ' ')} "
                          f"({problem}); python -m minisitch doctor says which versions clash") from problem
    finally:
        linker.destroy(handle)
    return bytes(image)


@functools.cache
def _device_runtime() -> str:
    """The library that a grid barrier calls."""
    try:
        return str(importlib.import_module("cuda.pathfinder").find_static_lib("cudadevrt"))
    except Exception as problem:
        raise DeviceError(f"a kernel with a grid barrier takes CUDA's device runtime, libcudadevrt: {INSTALL}") from problem


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """What machine code depends on besides the text: our sources, and the versions of the compilers."""
    ours = [(__package__, path.name) for path in sorted(Path(__file__).parent.glob("*.py"))]
    texts = [pkgutil.get_data(*each) or b"" for each in (*ours, ("minisitch.simt", "math.py"), ("minisitch.simt", "order.py"))]
    sources = [hashlib.sha256(text).hexdigest() for text in texts]
    return (*sources, *(f"{name} {version(name)}" for name in PACKAGES))


def version(package: str) -> str:
    """The installed version of a package; empty where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
