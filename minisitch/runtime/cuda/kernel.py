"""A kernel on a GPU: compiled and loaded once, then launched by the driver.

In:  a kernel's CUDA text. Out: a ``DeviceKernel``, which ``Arguments`` launches.

Arguments follow Numba's calling convention: seven words for each buffer, of which a call changes
one. Pointers alone would be smaller, but Numba's atomics and our wide loads need arrays.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DeviceError
from ...kernel.text import KernelSource
from ...strategies.kitsune.emit import PipelineSource
from . import link as cuda_link
from .driver import architecture, ask, attribute
from .memory import MemoryBlock

WORDS = 7  # of an array argument: 0, 0, elements, item size, address, shape, stride
ADDRESS = 4  # position of the address among them


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel to launch. With ``together`` all its blocks must be resident at once."""

    name: str
    text: str
    grid: int
    block: int
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]  # elements of each buffer
    registers: int | None = None
    together: bool = False
    exact: bool = True

    @classmethod
    def of(cls, source: KernelSource) -> DeviceKernel:
        """The single launch of a kernel's CUDA text."""
        kernel, buffers = source.kernel, source.kernel.parameters
        return cls(source.launches[0].name, source.text, kernel.grid, kernel.block,
                   tuple(b.dtype for b in buffers), tuple(b.size for b in buffers),
                   kernel.registers, bool(kernel.grid_barriers), source.exact)

    @classmethod
    def of_pipeline(cls, source: PipelineSource) -> DeviceKernel:
        """The single launch of a pipeline, whose blocks are all resident."""
        return cls(source.name, source.text, source.grid, source.block,
                   tuple(a.dtype for a in source.arrays), tuple(a.size for a in source.arrays),
                   source.registers, True, source.exact)

    def load(self, device: int) -> Any:
        """The kernel on a device, compiled and loaded once.

        Raises DeviceError, also if the blocks cannot all be resident and must be.
        """
        return _loaded(self, device)


@functools.cache
def _loaded(kernel: DeviceKernel, device: int) -> Any:
    made = cuda_link.cubin(kernel.text, kernel.name, kernel.dtypes, architecture(device),
                           kernel.registers, kernel.exact)
    function = ask("cuModuleGetFunction", ask("cuModuleLoadData", made.image), made.entry.encode())
    if kernel.together:
        wave = attribute("MULTIPROCESSOR_COUNT", device)
        wave *= ask("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, kernel.block, 0)
        if kernel.grid > wave:
            raise DeviceError(f"{kernel.name} has a grid barrier, so its {kernel.grid} blocks must "
                              f"run at once; this GPU holds {wave}: name the GPU, as "
                              "device='a100', so that the kernel is scheduled for it")
    return function


class Arguments:
    """A kernel's arguments in Numba's calling convention, and a launch with them."""

    def __init__(self, kernel: DeviceKernel) -> None:
        self.kernel = kernel
        count = WORDS * len(kernel.dtypes)
        self.words = (ctypes.c_int64 * count)()
        for place, (dtype, size) in enumerate(zip(kernel.dtypes, kernel.sizes, strict=True)):
            itemsize = np.dtype(dtype).itemsize
            at = place * WORDS
            self.words[at:at + WORDS] = [0, 0, size, itemsize, 0, size, itemsize]
        first = ctypes.addressof(self.words)
        # The driver wants a pointer to each word.
        self.pointers = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.where = ctypes.addressof(self.pointers)
        self.fixed: list[MemoryBlock] = []

    def fix(self, place: int, block: MemoryBlock) -> None:
        """Set one argument for all launches. The block lives as long as the arguments."""
        self.words[place * WORDS + ADDRESS] = block.address
        self.fixed.append(block)

    def launch(self, function: Any, stream: int) -> None:
        """Put the kernel on a stream. The driver copies the arguments before this returns."""
        kernel = self.kernel
        shape = kernel.grid, 1, 1, kernel.block, 1, 1, 0
        if kernel.together:
            ask("cuLaunchCooperativeKernel", function, *shape, stream, self.where)
        else:
            ask("cuLaunchKernel", function, *shape, stream, self.where, 0)
