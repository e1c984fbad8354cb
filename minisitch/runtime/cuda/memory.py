"""Device memory in blocks, which are kept and reused by the same stream.

In:  a number of bytes, a device, a stream. Out: a ``MemoryBlock``, which returns to its pool with
its last reference.

Allocating memory waits for the whole device, so freed memory is kept. A kernel may still read a
block without references. The next use on the same stream comes after that kernel. So a block never
changes its stream, and nothing waits.
"""

import math
from typing import Any

import numpy as np

from ...errors import DeviceError
from .driver import OUT_OF_MEMORY, ask, bindings, current, failure

GRAIN = 512  # sizes are multiples of it

_free: dict[tuple[int, int, int], list[int]] = {}  # (device, stream, size) -> addresses


class MemoryBlock:
    """Device memory at ``address``. It returns to the pool with its last reference."""

    __slots__ = ("address", "key")

    def __init__(self, nbytes: int, device: int, stream: int) -> None:
        self.key = device, stream, max(GRAIN, -(-nbytes // GRAIN) * GRAIN)
        try:  # no lock, since a block may be freed anywhere, also in here
            self.address = _free[self.key].pop()
        except (KeyError, IndexError):
            self.address = _allocate(self.key[2])

    def __del__(self) -> None:
        if hasattr(self, "address"):
            _free.setdefault(self.key, []).append(self.address)


def _allocate(nbytes: int) -> int:
    """New memory. If the device is full, the pool is emptied first. Raises DeviceError."""
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
    """Return all unused memory to the driver, which waits for running kernels."""
    here = current()
    for key in [key for key in list(_free) if key[0] == here]:
        for address in _free.pop(key, ()):
            ask("cuMemFree", address)


class DeviceArray:
    """A result on the device, if the caller's library cannot provide one.

    Other libraries take it through ``__cuda_array_interface__``. ``numpy()`` and ``np.asarray``
    copy it to the host.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: int, stream: int) -> None:
        self.shape, self.dtype, self.stream = shape, dtype, stream
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.block = MemoryBlock(self.nbytes, device, stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.block.address, False),
                "strides": None, "stream": self.stream or 1, "version": 3}

    def numpy(self) -> np.ndarray:
        """The values on the host. Waits for the kernels that make them."""
        found = np.empty(self.shape, self.dtype)
        current(self.block.key[0])  # the driver needs a context, and this thread may have none
        ask("cuMemcpyDtoHAsync", found.ctypes.data, self.block.address, self.nbytes, self.stream)
        ask("cuStreamSynchronize", self.stream)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise DeviceError("NumPy sees values of the device only as a copy; "
                              "leave copy=False out")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype.name})"
