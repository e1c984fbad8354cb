"""Arguments that are on the GPU already: arrays of CuPy, Torch, Numba, and others.

In:  an argument. Out: ``Seen`` with its address, or None for an array of the host.

``__cuda_array_interface__`` gives an address and the stream that fills it, without a copy. Results
are made by the library of the first device array, so they use its allocator and its current stream.
If it has no empty arrays to fill (JAX's cannot be written), results are ``DeviceArray``s. No
library is imported here, because a library whose arrays arrive has been imported already.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import DeviceError, MinisitchError
from .memory import DeviceArray

LEGACY = 0  # the stream that synchronises with all others; the protocols write it as 1


class Seen(NamedTuple):
    """A device array: its address, library, and the stream that fills it (None: it is filled)."""

    address: int
    library: str
    stream: int | None
    owner: Any  # keeps the memory alive: the array, or a copy of it in C order


def look(leaf: Any) -> Seen | None:
    """Where an argument lies on the device, in C order; None if it is on the host.

    Raises MinisitchError for a masked array or a tensor that needs a gradient, DeviceError for an
    array of an unknown library that is not in C order.
    """
    if type(leaf) is np.ndarray or isinstance(leaf, np.generic):
        return None
    library = type(leaf).__module__.partition(".")[0]
    if library == "torch":
        return _look_at_tensor(leaf) if leaf.is_cuda else None
    if library == "cupy" and not leaf.flags.c_contiguous:
        leaf = sys.modules["cupy"].ascontiguousarray(leaf)
    interface = getattr(leaf, "__cuda_array_interface__", None)
    if interface is None:
        return None
    if interface.get("mask") is not None:
        raise MinisitchError("a masked device array cannot be compiled: "
                             "pass its values and its mask as two arguments")
    shape, strides = interface["shape"], interface.get("strides")
    dtype = np.dtype(interface["typestr"])
    lies = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides) if strides else None
    if lies is not None and not lies.flags.c_contiguous:
        raise DeviceError(f"an array of {library} with shape {tuple(shape)} is not in C order: "
                          "pass a contiguous copy of it")
    stream = interface.get("stream")
    normal = None if stream is None else _normal(stream)
    return Seen(int(interface["data"][0] or 0), library, normal, leaf)


def _look_at_tensor(tensor: Any) -> Seen:
    """The same for a Torch tensor, whose own attributes are faster than the protocol."""
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise MinisitchError("a compiled function gives no gradients to Torch: "
                             "pass x.detach(), or call it under torch.no_grad()")
    tensor = tensor.contiguous()
    return Seen(tensor.data_ptr(), "torch", current_stream("torch"), tensor)


def _normal(stream: int) -> int:
    """The number of a stream. The legacy stream has two."""
    return LEGACY if stream in (0, 1) else int(stream)


# ---------------------------------------------------------------- the caller's library
def current_stream(library: str) -> int:
    """The stream that a library uses now, which the caller expects us to use."""
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream().cuda_stream)
    return int(sys.modules["cupy"].cuda.get_current_stream().ptr) if library == "cupy" else LEGACY


def callers_stream(seen: Sequence[Seen | None]) -> int:
    """The current stream of the first device array's library, or the stream that fills it."""
    first = next(s for s in seen if s)
    if first.library in ("torch", "cupy"):
        return current_stream(first.library)
    return first.stream or LEGACY


def maker(seen: Sequence[Seen | None], device: int,
          stream: int) -> Callable[[tuple[int, ...], np.dtype], tuple[Any, int]]:
    """A function that makes an empty result in the first array's library, with its address."""
    library, owner = next((s.library, s.owner) for s in seen if s)

    def make(shape: tuple[int, ...], dtype: np.dtype) -> tuple[Any, int]:
        if library == "torch":
            torch = sys.modules["torch"]
            tensor = torch.empty(shape, dtype=getattr(torch, dtype.name), device=owner.device)
            return tensor, tensor.data_ptr()
        if library == "cupy":
            array = sys.modules["cupy"].empty(shape, dtype)
            return array, int(array.data.ptr)
        if library == "numba":
            array = sys.modules["numba.cuda"].device_array(shape, dtype)
            return array, int(array.__cuda_array_interface__["data"][0] or 0)
        made = DeviceArray(shape, dtype, device, stream)
        return made, made.block.address
    return make
