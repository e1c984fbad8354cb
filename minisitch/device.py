"""What a machine has, as data: the numbers that schedules and cost models are computed from.

GPU figures are the vendor's datasheets and architecture papers (V100, A100, H100, H200; SXM boards, tensor cores
without sparsity); launch and barrier costs of the V100 are AStitch's measurements, those of the others are assumed. No
vendor prints the bandwidth of an L2 cache: it is Kitsune's "about three times HBM's". The ``cpu`` entry is what
``python -m minisitch calibrate`` measured on this machine and keeps in the user's device file, else what it
measured on a two-core x86-64 server.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import DeviceError

# Scalar operations, loads and stores among them, a heavy one counted as eight: 0.03 ns each, so 30 us of one core, or 60 of a slow
# one. That is where a second one that is awake begins to pay, unless the device file knows better.
SERIAL_BELOW = 1_000_000
SERIAL_BESIDE_LIBRARY = 10 * SERIAL_BELOW  # where the other cores are a matrix product's (``cost.beside_library``)
FILE_VERSION = 4  # of the device file
LINE, SECTOR = 64, 32  # bytes that a CPU's cache, and a GPU's memory, moves at least


@dataclass(frozen=True)
class Level:
    """A cache, or main memory: what moves a working set of up to ``size`` bytes, in bytes per second.

    A nearer one is never slower than a farther one: lower bounds of a kernel's time rely on it (``build.moved_us``).
    """

    size: int
    one_core: float
    all_cores: float


@dataclass(frozen=True)
class Device:
    """One machine. Bytes, bytes per second, microseconds; a CPU's "SM" is a core.

    ``shared_per_block`` bounds one block's static shared memory (a CPU's: what should stay in L2). Raises DeviceError where
    ``max_block`` is no power of two.
    """

    name: str
    kind: str  # "gpu" | "cpu"
    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    bandwidth: float  # bytes per second from main memory
    flops: float  # float32 operations per second; a CPU's: in a matrix product, all cores
    launch_us: float
    grid_barrier_us: float
    block_barrier_us: float
    max_block: int = 1024
    source: str = ""
    levels: tuple[Level, ...] = ()  # a CPU's, nearest first; what none of them holds moves at the last one's rate
    core_ns: tuple[tuple[str, float], ...] = ()  # a CPU's: nanoseconds of one core, by what it does (``LOOP_NS`` and ``HEAVY_NS``)
    serial_below: int = SERIAL_BELOW  # a CPU's: work of a segment that one core does by itself
    l2_size: int = 0  # a GPU's, as the two below: bytes of the cache that all SMs share
    l2_bandwidth: float = 0.0  # bytes per second from it
    tensor_flops: float = 0.0  # operations per second of its tensor cores: float16 operands, float32 sums

    def __post_init__(self) -> None:
        if self.max_block < 1 or self.max_block & (self.max_block - 1):
            raise DeviceError(f"{self.name} with blocks of up to {self.max_block} threads: the warps of a row meet by shuffles, "
                              "which takes a power of two; give it the next smaller one")

    @functools.cached_property
    def nanoseconds(self) -> Mapping[str, float]:
        return dict(self.core_ns)

    def wave(self, block: int, shared: int = 0, registers: int = 32) -> int:
        """Blocks that are resident at once on the whole device (AStitch B8, "assume").

        A grid barrier needs all blocks resident, so no such kernel launches more.
        """
        limits = [self.threads_per_sm // block, self.blocks_per_sm]
        if registers:
            limits.append(self.registers_per_sm // (registers * block))
        if shared:
            limits.append(self.shared_per_sm // shared)
        return max(1, min(limits)) * self.sms

    def relaxed_registers(self, block: int, shared: int, grid: int = 1 << 31, assumed: int = 32) -> int:
        """The most registers a thread may use without losing a resident block of the grid (AStitch B8, "relax").

        Registers are dealt out in eights: what a thread has beyond a multiple of eight costs it eight.
        """
        resident = min(self.wave(block, shared, assumed) // self.sms, -(-grid // self.sms))
        most = self.registers_per_sm // (max(1, resident) * block)
        return min(255, most if most > 255 else most // 8 * 8)


L2_OVER_HBM = 3.0  # Kitsune's background section


def _gpu(name: str, *, sms: int, shared_per_sm: int, bandwidth: float, flops: float, launch_us: float,
         grid_barrier_us: float, l2_size: int, tensor_flops: float, source: str) -> Device:
    """What NVIDIA's data-centre GPUs have in common; Numba's static shared memory stops at 48 kB a block."""
    return Device(name, "gpu", sms, threads_per_sm=2048, blocks_per_sm=32, registers_per_sm=65536, shared_per_sm=shared_per_sm,
                  shared_per_block=49152, bandwidth=bandwidth, flops=flops, launch_us=launch_us,
                  grid_barrier_us=grid_barrier_us, block_barrier_us=0.02, source=source, l2_size=l2_size,
                  l2_bandwidth=L2_OVER_HBM * bandwidth, tensor_flops=tensor_flops)


_L2 = "; L2 bandwidth three times HBM's, as Kitsune has it"
_ASSUMED = "datasheet; launch and barrier costs assumed below the V100's, not measured" + _L2
DEVICES = {d.name: d for d in (
    _gpu("v100", sms=80, shared_per_sm=98304, bandwidth=900e9, flops=15.7e12, launch_us=10.0, grid_barrier_us=2.7,
         l2_size=6 << 20, tensor_flops=125e12,
         source="datasheet; launch and barrier costs as AStitch measured them (table in section 4.4)" + _L2),
    _gpu("a100", sms=108, shared_per_sm=167936, bandwidth=1555e9, flops=19.5e12, launch_us=6.0, grid_barrier_us=2.5,
         l2_size=40 << 20, tensor_flops=312e12, source=_ASSUMED),
    _gpu("h100", sms=132, shared_per_sm=233472, bandwidth=3350e9, flops=67e12, launch_us=5.0, grid_barrier_us=2.5,
         l2_size=50 << 20, tensor_flops=989e12, source=_ASSUMED),
    _gpu("h200", sms=132, shared_per_sm=233472, bandwidth=4800e9, flops=67e12, launch_us=5.0, grid_barrier_us=2.5,
         l2_size=50 << 20, tensor_flops=989e12, source=_ASSUMED),
)}


# ---------------------------------------------------------------- this machine's processor
def _heavy(text: str) -> dict[str, float]:
    """``exp 0.15 0.45`` as two entries: nanoseconds of an element in float32 and float64 (or, for integers, ``int``)."""
    found: dict[str, float] = {}
    for line in text.strip().splitlines():
        name, *each = line.split()
        found |= {f"{name} {kind}": float(ns) for kind, ns in zip(("float32", "float64", "int"), each, strict=False)}
    return found


# What one core does, in nanoseconds. An operation that is not here is light.
LOOP_NS = {
    "light": 0.005,  # a vectorised add, a byte
    "load": 0.002,  # from the nearest cache, a byte
    "store": 0.01,
    "strided": 0.6,  # an element at a distance
    "gathered": 0.9,  # an element wherever its index says
    "half": 0.2,  # between float16 and float32, an element
    "scalar": 0.6,  # what an operation costs more outside vectors
    "loop": 0.75,  # to start an innermost loop
    "row": 1.5,  # to start a phase
    "meet": 1.5,  # to add up the lanes of a reduction
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
    "levels": [[1 << 20, 85e9, 140e9], [1 << 21, 50e9, 80e9], [1 << 25, 29.5e9, 47e9], [1 << 26, 25e9, 40e9],
               [1 << 40, 10e9, 11e9]],
    "flops": 250e9, "launch_us": 0.7, "grid_barrier_us": 5.0, "serial_below": SERIAL_BELOW, "core_ns": LOOP_NS | HEAVY_NS,
    "source": "measured with `python -m minisitch calibrate` on a two-core x86-64 server",
}


def this_cpu() -> Device:
    """The machine we run on: one block a core at a time, scratch rows that should stay in L2.

    Its figures are those of the user's device file, where there is one. Raises DeviceError if that cannot be used.
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
    """A CPU with these figures (``BUILT_IN`` shows which there are), and as many cores as here or ``cores``.

    Where a small copy was measured slower than a larger one, other programs were in its way, so it has the larger one's rate.
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
    """How many cores to use: MINISITCH_THREADS, else those that this process may run on. Raises DeviceError."""
    if setting := os.environ.get("MINISITCH_THREADS"):
        if not setting.isdigit() or int(setting) < 1:
            raise DeviceError(f"MINISITCH_THREADS={setting!r}: it is the number of threads to use, 1 or more")
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.lru_cache(maxsize=16)
def _known(path: Path | None, changed: int, size: int, cores: int) -> Device:
    """Made once while the file's time stamp and size stay as they are: a device is chosen at each compile."""
    return cpu_with(_read(path) if path else BUILT_IN, cores)


def device_file() -> Path | None:
    """Where ``calibrate`` keeps this machine's figures: MINISITCH_DEVICE, else a file in the user's configuration.

    None where MINISITCH_DEVICE is 0 or ``off``: then the built-in figures hold.
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
    """What figures hold for: architecture, processor, cores."""
    model = platform.processor()
    if sys.platform == "linux":
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{platform.machine()}, {model or 'unknown processor'}, {os.cpu_count()} cores"


def _read(path: Path) -> Mapping[str, Any]:
    """The figures of a device file, checked."""
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
    """What keeps a device file from being used; empty if nothing does."""
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
    """A device by name. Raises DeviceError with the known ones."""
    if name == "cpu":
        return this_cpu()
    if name not in DEVICES:
        raise DeviceError(f"unknown device {name!r}; known: cpu, {', '.join(DEVICES)}")
    return DEVICES[name]
