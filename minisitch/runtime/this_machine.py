"""The machine that this process runs on, with the figures that ``calibrate`` measured.

In:  the operating system and the user's device file. Out: a ``Device``.

Without a device file a CPU has the built-in figures, those of a two-core x86-64 server.
"""

import functools
import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..device import DEVICES, SERIAL_BELOW, Cache, Device
from ..errors import DeviceError
from ..errors.nearest import near

FILE_VERSION = 4  # of the device file


# ---------------------------------------------------------------- the built-in figures
def _heavy(text: str) -> dict[str, float]:
    """Entries such as ``exp float32`` from lines such as ``exp 0.15 0.45``.

    The numbers are nanoseconds an element, in float32, float64 and integers.
    """
    found: dict[str, float] = {}
    for line in text.strip().splitlines():
        name, *each = line.split()
        found |= {f"{name} {kind}": float(ns) for kind, ns in zip(("float32", "float64", "int"), each, strict=False)}
    return found


# What one core does, in nanoseconds. An operation that is not in HEAVY_NS is light.
LOOP_NS = {
    "light": 0.005,  # a vectorised add, a byte
    "load": 0.002,  # from the nearest cache, a byte
    "store": 0.01,
    "strided": 0.6,  # an element, neighbours apart in memory
    "gathered": 0.9,  # an element at a loaded index
    "half": 0.2,  # an element, between float16 and float32
    "scalar": 0.6,  # an operation outside vectors, in addition
    "loop": 0.75,  # the start of an innermost loop
    "row": 1.5,  # the start of a phase
    "meet": 1.5,  # the lanes of a reduction, added up
}
HEAVY_NS = _heavy("""
    div 0.17 0.57
    sqrt 0.20 0.79
    exp 0.15 0.45
    expm1 0.19 0.57
    log 0.32 0.78
    log1p 0.38 1.0
    log2 0.34 0.91
    log10 0.35 1.05
    tanh 0.31 0.84
    erf 0.40 1.87
    sin 0.95 6.2
    cos 0.94 5.2
    tan 8.2 6.7
    arcsin 8.4 11.4
    arccos 9.0 11.5
    arctan 10.0 5.4
    sinh 11.7 11.5
    cosh 7.1 7.5
    arcsinh 10.1 9.3
    arccosh 7.4 8.0
    arctanh 9.8 8.8
    arctan2 18.1 16.3
    hypot 2.0 3.5
    power 1.34 13.9 0.5
    mod 8.2 8.7 1.6
    fmod 8.8 9.1 1.7
    floor_divide 8.5 9.4 2.0
""")
BUILT_IN: dict[str, Any] = {
    "levels": [[1 << 20, 85e9, 140e9], [1 << 21, 50e9, 80e9], [1 << 25, 29.5e9, 47e9],
               [1 << 26, 25e9, 40e9], [1 << 40, 10e9, 11e9]],
    "flops": 250e9, "launch_us": 0.7, "grid_barrier_us": 5.0, "serial_below": SERIAL_BELOW,
    "core_ns": LOOP_NS | HEAVY_NS,
    "source": "measured with `python -m minisitch calibrate` on a two-core x86-64 server",
}


# ---------------------------------------------------------------- the machine
def this_cpu() -> Device:
    """This CPU, with the figures of the user's device file or the built-in ones.

    Raises DeviceError if the device file cannot be used.
    """
    path = device_file()
    try:
        found = path.stat() if path else None
    except OSError:
        found = None
    if path is None or found is None:
        return _known(None, 0, 0, usable_cores())
    return _known(path, found.st_mtime_ns, found.st_size, usable_cores())


def cpu_with(figures: Mapping[str, Any], cores: int = 0) -> Device:
    """A CPU with these figures (keys as in ``BUILT_IN``) and with ``cores`` cores, or all.

    A smaller cache cannot be slower than a larger one. If it was measured slower, other
    programs disturbed the measurement, and it gets the larger cache's rate.
    """
    cores = cores or usable_cores()
    caches: list[Cache] = []
    for size, one, both in sorted(figures["levels"], reverse=True):
        farther = caches[0] if caches else Cache(0, 0.0, 0.0)
        one = max(one, farther.one_core)
        caches.insert(0, Cache(int(size), one, max(both, farther.all_cores) if cores > 1 else one))
    same = {name: figures[name] for name in ("flops", "launch_us", "grid_barrier_us", "source")}
    return Device("cpu", "cpu", cores, threads_per_sm=8, blocks_per_sm=8, registers_per_sm=1 << 30,
                  shared_per_sm=1 << 21, shared_per_block=1 << 19, bandwidth=caches[-1].all_cores,
                  block_barrier_us=0.0, max_block=1, caches=tuple(caches), **same,
                  core_ns=tuple(sorted(figures["core_ns"].items())),
                  serial_below=int(figures["serial_below"]))


def usable_cores() -> int:
    """The number of cores to use: MINISITCH_THREADS, or all that this process may run on.

    Raises DeviceError if MINISITCH_THREADS is not a positive number.
    """
    if setting := os.environ.get("MINISITCH_THREADS"):
        if not setting.isdigit() or int(setting) < 1:
            raise DeviceError(f"MINISITCH_THREADS={setting!r} is not a number of threads; set it to 1 or more")
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.lru_cache(maxsize=16)
def _known(path: Path | None, changed: int, size: int, cores: int) -> Device:
    """The device of a file, read again only if its time or size changes."""
    return cpu_with(_read(path) if path else BUILT_IN, cores)


def device_file() -> Path | None:
    """The file of this machine's figures: MINISITCH_DEVICE, or one in the user's configuration.

    None if MINISITCH_DEVICE is 0 or ``off``: then the built-in figures are used.
    """
    setting = os.environ.get("MINISITCH_DEVICE")
    if setting in ("0", "off"):
        return None
    if setting:
        return Path(setting).expanduser()
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "minisitch" / "cpu.json"
    except RuntimeError:  # no home
        return None


@functools.cache
def machine() -> str:
    """The machine for which figures are valid: architecture, processor, number of cores."""
    model = platform.processor()
    if sys.platform == "linux":
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{platform.machine()}, {model or 'unknown processor'}, {os.cpu_count()} cores"


def _read(path: Path) -> Mapping[str, Any]:
    """The figures of a device file. Raises DeviceError if they are not valid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        wrong = _wrong(content)
    except (OSError, ValueError) as problem:
        wrong = f"cannot be read: {problem}"
    if wrong:
        raise DeviceError(f"the device file {path} {wrong}; write it anew with `python -m "
                          "minisitch calibrate`, delete it, or set MINISITCH_DEVICE=0 to use "
                          "the built-in figures")
    return content["figures"]


def _wrong(content: Any) -> str:
    """What is wrong with a device file, or an empty string."""
    if not isinstance(content, dict) or content.get("version") != FILE_VERSION:
        seen = content.get("version") if isinstance(content, dict) else type(content).__name__
        return f"has version {seen}, not {FILE_VERSION}"
    if content.get("machine") != machine():
        return f"was measured on {content.get('machine')!r}, and this is {machine()!r}"
    figures = content.get("figures")
    if not isinstance(figures, dict) or figures.keys() != BUILT_IN.keys():
        return f"lacks figures; it should hold {', '.join(BUILT_IN)}"
    levels, core = figures["levels"], figures["core_ns"]
    if not isinstance(levels, list) or not levels or not all(isinstance(at, list) and len(at) == 3 for at in levels):
        return "has no list of [bytes, bytes per second of one core, of all cores] as levels"
    if not isinstance(core, dict) or core.keys() != {**LOOP_NS, **HEAVY_NS}.keys() or not isinstance(figures["source"], str):
        return "does not say what a core does, as core_ns, or where its figures come from, as source"
    numbers = [figures["flops"], figures["launch_us"], figures["grid_barrier_us"], figures["serial_below"], *core.values()]
    numbers += [n for level in levels for n in level]
    bad = [n for n in numbers if isinstance(n, bool) or not isinstance(n, int | float) or not math.isfinite(n) or n <= 0]
    return f"holds {bad[0]!r} where a positive number belongs" if bad else ""


def get_device(name: str) -> Device:
    """A device by name. Raises DeviceError for an unknown one."""
    if isinstance(name, str) and name == "cpu":
        return this_cpu()
    if not isinstance(name, str) or name not in DEVICES:
        raise DeviceError(f"unknown device {name!r}{near(name, DEVICES)}; known: cpu, {', '.join(DEVICES)}")
    return DEVICES[name]
