"""The machine that this process runs on, with the figures that ``calibrate`` measured.

In:  the operating system and the user's device file. Out: a ``Device``.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..device import BUILT_IN, DEVICES, HEAVY_NS, LOOP_NS, Device, Level
from ..errors import DeviceError
from ..errors.nearest import near

FILE_VERSION = 4  # of the device file


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
    """A CPU with these figures (keys as in ``device.BUILT_IN``) and with ``cores`` cores, or all.

    A smaller cache level cannot be slower than a larger one. If it was measured slower, other
    programs disturbed the measurement, and it gets the larger level's rate.
    """
    cores = cores or usable_cores()
    levels: list[Level] = []
    for size, one, both in sorted(figures["levels"], reverse=True):
        farther = levels[0] if levels else Level(0, 0.0, 0.0)
        one = max(one, farther.one_core)
        levels.insert(0, Level(int(size), one, max(both, farther.all_cores) if cores > 1 else one))
    return Device("cpu", "cpu", cores, threads_per_sm=8, blocks_per_sm=8, registers_per_sm=1 << 30, shared_per_sm=1 << 21,
                  shared_per_block=1 << 19, bandwidth=levels[-1].all_cores, flops=figures["flops"],
                  launch_us=figures["launch_us"], grid_barrier_us=figures["grid_barrier_us"], block_barrier_us=0.0,
                  max_block=1, source=figures["source"], levels=tuple(levels), core_ns=tuple(sorted(figures["core_ns"].items())),
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
        raise DeviceError(f"the device file {path} {wrong}; write it anew with `python -m minisitch calibrate`, delete it, "
                          "or set MINISITCH_DEVICE=0 to use the built-in figures")
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
    if name == "cpu":
        return this_cpu()
    if name not in DEVICES:
        raise DeviceError(f"unknown device {name!r}{near(name, DEVICES)}; known: cpu, {', '.join(DEVICES)}")
    return DEVICES[name]
