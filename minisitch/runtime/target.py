"""Where a program runs: the target it is printed for, and the machine it is scheduled for.

In:  the names that a user gives, or none. Out: one of ``TARGETS``, a ``Device``.
"""

from __future__ import annotations

import ctypes
import functools
import sys

from ..device import DEVICES, Device
from ..errors import DeviceError
from .cuda import driver as cuda_driver
from .this_machine import get_device, this_cpu

TARGETS = ("cpu", "cuda", "step", "python", "reference")


def choose_target(target: str) -> str:
    """``"auto"`` is ``cuda`` where there is a device, else ``cpu``. Raises DeviceError for an unknown name."""
    if target == "auto":
        return "cuda" if _has_driver() and cuda_driver.available() else "cpu"
    if target not in TARGETS:
        raise DeviceError(f"unknown target {target!r}; take one of auto, {', '.join(TARGETS)}")
    return target


@functools.cache
def _has_driver() -> bool:
    """Whether a CUDA driver can be loaded; asked before Numba is imported, which takes a while."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def choose_device(target: str, device: str | Device | None = None) -> Device:
    """The machine to schedule for: the one named, else this CPU; for CUDA text this GPU, or an H100 where there is none."""
    if isinstance(device, Device):
        return device
    if device is not None:
        return get_device(device)
    if target == "cuda" and _has_driver() and cuda_driver.available():
        return cuda_driver.this_gpu(cuda_driver.current())
    return DEVICES["h100"] if target in ("cuda", "step") else this_cpu()
