"""Measure what operations cost on this machine, for the cost model.

In:  nothing. Out: a ``Calibration``, the figures for the device file.

    copies, empty calls, single operations   -> rates of caches, a launch, nanoseconds of ``exp``

A time is the least of several runs, since other programs only ever add time. The nanoseconds of
loops (``LOOP_NS``) are the built-in ones. ``benchmarks/correlation.py`` checks the model on
kernels.
"""

import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..device import SERIAL_BELOW, Device
from ..errors import DeviceError
from ..errors.progress import now
from ..fuse import make_plan
from ..graph import Graph, TensorType
from ..kernel.nests import HEAVY
from ..lower import program_of
from ..ops import OPS, kind_of
from ..runtime import assemble, compile_graph, lower_program, store
from ..runtime.cpu import workers
from ..runtime.steps import requests, to_the_cores
from ..runtime.this_machine import BUILT_IN, FILE_VERSION, HEAVY_NS, cpu_with, machine, usable_cores
from ..stitch.blocks import BlockComposition
from ..strategies.fs18.library import MEASURING, Entry
from ..trace import trace
from ..trace.builder import Builder
from .compare import size

# Bytes that a copy reads and writes. The last are more than any cache holds.
WORKING_SETS = (*(1 << power for power in range(16, 27)), 1 << 29)
PRICES = "fs18.prices"  # the entry in the cache folder that keeps measured prices
MUCH = 1 << 40  # scalar operations, for which threads are always woken
MOST_WORK = (2 + HEAVY) << 22  # scalar operations of the largest kernel tried on two cores


@dataclass(frozen=True)
class Calibration:
    """The measurements. ``str`` prints them, ``write`` makes them the user's device file."""

    figures: Mapping[str, Any]
    raw: Mapping[str, Any]

    @property
    def device(self) -> Device:
        return cpu_with(self.figures)

    def write(self, path: Path) -> None:
        """Write the device file at ``path``, replacing an old one at once. Raises DeviceError."""
        content = {"version": FILE_VERSION, "machine": machine(), "date": datetime.now().isoformat(timespec="seconds"),
                   "figures": dict(self.figures), "raw": dict(self.raw)}
        fresh = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            fresh.replace(path)
        except OSError as problem:
            raise DeviceError(f"cannot write the device file {path}: {problem.strerror}; set "
                              "MINISITCH_DEVICE to a path of your own") from None

    def __str__(self) -> str:
        return "\n".join(_report(self))


# ---------------------------------------------------------------- single operations
class _Call:
    """One compiled kernel with its arguments, to be called on one core or on all."""

    def __init__(self, graph: Graph, arrays: Sequence[np.ndarray]) -> None:
        run = compile_graph(graph, "xla", "cpu", cpu_with(BUILT_IN))
        (source,) = run.stages.sources
        (request,), (launch,) = requests(source), source.launches
        self.arguments = tuple(run.prepare(arrays)[0])
        self.ways = {shared: to_the_cores(source.kernel, replace(launch, work=shared * MUCH), request) for shared in (False, True)}

    def __call__(self, shared: bool = False) -> None:
        self.ways[shared](*self.arguments)

    def us(self, shared: bool = False, after: Callable[[], Any] | None = None) -> float:
        """The least microseconds of a call. ``after`` runs before each, and fills the caches."""
        return _least(lambda: self(shared), 0.02, after)


def _least(call: Callable[[], Any], seconds: float, before: Callable[[], Any] | None = None) -> float:
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 8 or time.perf_counter() < end:
        if before:
            before()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found[1:]) * 1e6


def _copy(elements: int) -> _Call:
    """``y = -x``, rows of at most 1024."""
    x = np.ones((max(1, elements // 1024), min(elements, 1024)), np.float32)
    return _Call(trace(lambda x: -x, (x,)).graph, [x])


def _one_operation(op: str, dtype: str, rows: int = 256, cols: int = 1024) -> _Call:
    """Row sums of ``op(x * r)`` for a row ``x`` and a column ``r``, which fit the nearest cache.

    A second operand is 3, as in ``x % 3``. An empty ``op`` leaves the operation out.
    """
    b, random = Builder(), np.random.default_rng(0)
    low, high = (1, 9) if kind_of(dtype) == "int" else (1.1, 2.0) if op == "arccosh" else (0.2, 0.9)
    arrays = [(random.uniform(low, high, shape)).astype(dtype) for shape in ((1, cols), (rows, 1))]
    for name, array in zip("xr", arrays, strict=True):
        b.add("input", (), type=TensorType(array.shape, dtype), name=name)
    wide = [b.add("broadcast", (i,), shape=(rows, cols)) for i in (0, 1)]
    value = b.add("mul", wide)
    if op:
        three = b.add("constant", (), type=TensorType((rows, cols), dtype), value=3 if kind_of(dtype) == "int" else 3.0)
        value = b.add(op, (value, three)[:OPS[op].arity])
    b.add("sum", (value,), axes=(1,), keepdims=False)
    return _Call(b.finish((b.nodes[-1].id,)), arrays)


@contextmanager
def measured_operations() -> Iterator[dict[str, float]]:
    """A context in which ``fs18`` plans for this CPU by measured prices (its paper, section 4.3).

    A first compile takes seconds, because every operation is compiled and run alone under every
    schedule (the paper's own limitation). Prices are kept in the cache folder when the context
    ends, so that a second compile measures nothing. Gives the microseconds by ``Entry.key``.
    """
    folder = store.folder()
    kept = store.read(folder, PRICES) if folder else None
    prices: dict[str, float] = json.loads(kept) if kept else {}

    def price(entry: Entry) -> float:
        if entry.key not in prices:
            prices[entry.key] = operation_us(entry)
        return prices[entry.key]

    MEASURING.append(price)
    try:
        yield prices
    finally:
        MEASURING.remove(price)
        if folder:
            store.write(folder, PRICES, json.dumps(prices).encode())


def operation_us(entry: Entry) -> float:
    """Microseconds of a kernel with this operation alone, cut as in the entry."""
    b = Builder()
    inputs = [b.add("input", type=t, name=f"x{i}") for i, t in enumerate(entry.operands)]
    graph = b.finish([b.add(entry.op, inputs, **dict[str, Any](entry.attrs))])
    # The kernel's body is the graph itself.
    how = BlockComposition(((graph.outputs[0], entry.block_cut),), (), entry.threads)
    plan = make_plan(graph, "measure", [graph.outputs], (), how)
    run = assemble(lower_program(program_of(graph), "measure", "cpu", entry.device, decide=lambda *_: plan), "cpu")
    _, calls = run.prepare([(np.arange(t.size) % 7 + 1).astype(t.dtype).reshape(t.shape) for t in entry.operands])
    return _least(lambda: [call() for call in calls], 0.002)


def calibrate() -> Calibration:
    """Rates of memory, costs of launches and of heavy operations, and the raw microseconds.

    What needs all cores is measured twice, first and last, since another program may take one of
    them for seconds.
    """
    raw: dict[str, Any] = {}
    done, steps = itertools.count(1), len(HEAVY_NS) + len(WORKING_SETS)

    def tick(name: str) -> None:
        now(f"measuring {name}, {next(done)} of {steps}")

    before = break_even(), product_us()
    empty, other = _copy(16), _copy(1 << 19)
    hot, cold = empty.us(), empty.us(after=other)
    copies: dict[int, tuple[float, float]] = {}
    for nbytes in WORKING_SETS:
        tick(f"copy {size(nbytes)}")
        copy = _copy(nbytes // 8)
        copies[nbytes] = copy.us(), copy.us(shared=True)
    levels, join = rates(copies, hot, usable_cores())
    # No cache holds it: the lines that it stores to are fetched first.
    levels[-1][1:] = [1.5 * rate for rate in levels[-1][1:]]
    raw |= {f"copy {nbytes}": list(us) for nbytes, us in copies.items()}
    core: dict[str, float] = dict(BUILT_IN["core_ns"])
    base: dict[str, float] = {}
    for name in HEAVY_NS:
        tick(name)
        op, kind = name.split()
        dtype = "int64" if kind == "int" else kind
        base[dtype] = base.get(dtype) or _one_operation("", dtype).us()
        raw[name] = us = _one_operation(op, dtype).us()
        core[name] = max(0.01, (us - base[dtype]) * 1e3 / (256 * 1024))
    raw |= {"launch, at once": hot, "launch, after other work": cold,
            "serial below": min((w for w in (before[0], break_even()) if w > 0), default=-1)}
    raw["matmul 1024"] = product = min(before[1], product_us())
    figures = {"levels": levels, "flops": 2e6 * 1024**3 / product, "launch_us": math.sqrt(hot * cold),
               "grid_barrier_us": join, "core_ns": core,
               "serial_below": raw["serial below"] if raw["serial below"] > 0 else 2 * MOST_WORK,
               "source": f"measured with `python -m minisitch calibrate` on {machine()}"}
    return Calibration(figures, raw)


def rates(copies: Mapping[int, tuple[float, float]], launch: float, cores: int) -> tuple[list[list[float]], float]:
    """Bytes a second for each working set, and the microseconds to start a launch on all cores.

    ``copies`` are the microseconds of a copy by one core and by all. Both contain a launch, and the
    second a join, which the model counts separately. Copies of 256 kB to 1 MB stay in each core's
    own cache. So the join is the time beyond each core's share.
    """
    alone = {nbytes: max(one - launch, 0.1) for nbytes, (one, _) in copies.items()}
    own = [both - launch - alone[nbytes] / cores for nbytes, (_, both) in copies.items() if 1 << 18 <= nbytes <= 1 << 20]
    join, levels = max(1.0, statistics.median(own)), []
    for nbytes, (_, both) in copies.items():
        shared = min(alone[nbytes], max(both - launch - join, alone[nbytes] / cores))
        levels.append([nbytes, nbytes / alone[nbytes] * 1e6, nbytes / shared * 1e6])
    return levels, join


def product_us() -> float:
    """The least microseconds of a matrix product of 1024 x 1024."""
    x = np.ones((1024, 1024), np.float32)
    return _least(lambda: np.matmul(x, x), 0.1)


def break_even() -> int:
    """The least work (``nests.work_of``) for which two awake threads beat one; -1 if none."""
    each = 1024 * (2 + HEAVY)  # a row's loads, stores and exponentials
    for rows in (1 << power for power in range(4, (MOST_WORK // each).bit_length())):
        x = np.ones((rows, 1024), np.float32)
        call = _Call(trace(lambda x: np.exp(x), (x,)).graph, [x])
        with workers.threads(2):
            if call.us(shared=True) < 0.95 * call.us():
                return rows * each
    return -1


# ---------------------------------------------------------------- the printed form
def _report(found: Calibration) -> Iterable[str]:
    device, raw = found.device, found.raw
    yield f"{machine()}\n"
    yield "working set      one core     all cores"
    for level in device.caches:
        yield f"{size(level.size):>11}{level.one_core / 1e9:>8.1f} GB/s{level.all_cores / 1e9:>9.1f} GB/s"
    worth = f"worth it from {raw['serial below']:,}" if raw["serial below"] > 0 else f"not worth it up to {MOST_WORK:,}"
    yield (f"\na launch {device.launch_us:.2f} us, handing it to all cores "
           f"{device.grid_barrier_us:.1f} us more, {worth} scalar operations (built in: "
           f"{SERIAL_BELOW:,}); a matrix product {device.flops / 1e9:.0f} GFLOP/s")
    yield "nanoseconds an element of float32: " + ", ".join(
        f"{name.split()[0]} {ns:.2f}" for name, ns in device.core_ns if name.endswith("float32"))
