"""Choose the target that a program is printed for, and the device that it is scheduled for.

In:  names given by the user, or none. Out: one of ``TARGETS``, a ``Device``.
"""

import ctypes
import functools
import sys

from ..device import DEVICES, Device
from ..errors import DeviceError
from ..errors.nearest import near
from .cuda import driver as cuda_driver
from .this_machine import get_device, this_cpu

TARGETS = ("cpu", "cuda", "step", "python", "reference")


def choose_target(target: str) -> str:
    """The target. ``auto`` is ``cuda`` if there is a GPU, else ``cpu``.

    Raises DeviceError for an unknown name.
    """
    if target == "auto":
        return "cuda" if has_driver() and cuda_driver.available() else "cpu"
    if target not in TARGETS:
        raise DeviceError(f"unknown target {target!r}{near(target, TARGETS)}; take one of auto, {', '.join(TARGETS)}")
    return target


@functools.cache
def has_driver() -> bool:
    """Whether a CUDA driver can be loaded. This is fast, and importing Numba is not."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def choose_device(target: str, device: str | Device | None = None) -> Device:
    """The device to schedule for.

    By default it is this CPU, and for CUDA text this GPU, or an H100 if there is none.
    Raises DeviceError for an unknown name, and for a device on which the target does not run. Any
    device goes with the target ``auto``.
    """
    if device is not None:
        found = device if isinstance(device, Device) else get_device(device)
        refuse_other_machine(found, target)
        return found
    target = choose_target(target)
    if target == "cuda" and has_driver() and cuda_driver.available():
        return cuda_driver.this_gpu(cuda_driver.current())
    return DEVICES["h100"] if target in ("cuda", "step") else this_cpu()


def refuse_other_machine(device: Device, target: str) -> None:
    """Raise DeviceError if the target cannot run text for this device, as CUDA text on a CPU."""
    runs = {"cpu": "cpu", "python": "cpu", "cuda": "gpu", "step": "gpu"}.get(target, device.kind)
    if runs != device.kind:
        raise DeviceError(f"kernels scheduled for {device.name}, a {device.kind.upper()}, do not "
                          f"run with target {target!r}; name no device, or take target "
                          f"{('step' if runs == 'cpu' else 'cpu')!r}, or 'reference' for its plans alone")
