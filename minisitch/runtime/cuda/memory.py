"""Device memory: blocks that are taken again by the stream that gave them back.

In:  a number of bytes, a device, a stream. Out: a ``MemoryBlock``, which goes back to its pool when nobody refers to it.

Taking memory from the driver waits for the whole device, so what was taken is kept. A kernel may still read a block
whose last reference is gone; whoever takes it next on the same stream comes after that kernel, so blocks never change
streams, and nothing is waited for. The latest block given back is the first to be taken: a loop that drops its last
result sees few addresses, and ``cuda_graph`` replays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import DeviceError
from .driver import OUT_OF_MEMORY, ask, bindings, current, failure

GRAIN = 512  # sizes are rounded up to it; the driver aligns a block to 256 bytes at least, a vector load wants 16

_free: dict[tuple[int, int, int], list[int]] = {}  # (device, stream, size) -> addresses, the latest last


class MemoryBlock:
    """Device memory. ``address`` is a number; the block goes back to the pool with its last reference."""

    __slots__ = ("address", "key")

    def __init__(self, nbytes: int, device: int, stream: int) -> None:
        self.key = device, stream, max(GRAIN, -(-nbytes // GRAIN) * GRAIN)
        try:  # no lock: a block may die anywhere, also in here
            self.address = _free[self.key].pop()
        except (KeyError, IndexError):
            self.address = _allocate(self.key[2])

    def __del__(self) -> None:
        if hasattr(self, "address"):
            _free.setdefault(self.key, []).append(self.address)


def _allocate(nbytes: int) -> int:
    """New memory; where there is none left, what the pool keeps for other sizes is given up first."""
    for kept in (True, False):
        code, address = bindings().cuMemAlloc(nbytes)
        if int(code) == OUT_OF_MEMORY and kept and _free:
            release()
        elif int(code):
            raise failure(f"cuMemAlloc of {nbytes:,} bytes", int(code))
        else:
            return int(address)
    raise AssertionError("the second time has returned or raised")


def release() -> None:
    """Give all memory that nobody uses back to the driver, which waits for what runs."""
    here = current()
    for key in [key for key in list(_free) if key[0] == here]:
        for address in _free.pop(key, ()):
            ask("cuMemFree", address)


class DeviceArray:
    """A result on the device, for arguments of a library that we cannot make arrays of.

    Any library takes it by ``__cuda_array_interface__``; ``numpy()`` and ``np.asarray`` copy it to the host.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: int, stream: int) -> None:
        self.shape, self.dtype, self.stream = shape, dtype, stream
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.block = MemoryBlock(self.nbytes, device, stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.block.address, False), "strides": None,
                "stream": self.stream or 1, "version": 3}

    def numpy(self) -> np.ndarray:
        """The values on the host; waits for the kernels that make them."""
        found = np.empty(self.shape, self.dtype)
        current(self.block.key[0])  # a thread that has launched nothing has no context, and the driver refuses it
        ask("cuMemcpyDtoHAsync", found.ctypes.data, self.block.address, self.nbytes, self.stream)
        ask("cuStreamSynchronize", self.stream)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise DeviceError("values on the device are copied to be seen by NumPy; leave copy=False out")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype.name})"
