"""The steps of a call: launch a kernel or a pipeline, call a library, copy.

In:  emitted kernels and pipelines, library nodes. Out: ``Step`` values. ``write`` adds a step to a
call's text, and ``bind`` makes it a function of its own.
"""

import functools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from .. import simt
from ..device import Device
from ..graph import Graph, Node
from ..kernel import Kernel
from ..kernel.text import KernelSource, Launch
from ..lower import Stages
from ..passes.registry import PASSES, Pass
from ..reference import Array, apply, evaluate
from ..strategies.kitsune.emit import PipelineArray, PipelineSource
from .call import ArgumentView, CallWriter
from .cpu import compile as compiler
from .cpu import thread_pool, workers
from .cuda.driver import current
from .cuda.kernel import DeviceKernel
from .memory import Slot

WORTH_WAKING = 4  # times the work of ``serial_below``, from which a launch wakes sleeping threads


# ---------------------------------------------------------------- steps
class Step:
    """One step of a call.

    ``write`` adds it to the text of a call. ``bind`` takes the flat arrays of all slots, and
    returns the step as a function without arguments, to be timed.
    """

    name: str
    slots: tuple[int, ...]
    warns: ClassVar[bool] = False  # whether NumPy may emit warnings that kernels do not emit

    def in_c_order(self, slots: Sequence[Slot]) -> Iterable[int]:
        """The slots that must be in C order. Only arguments can be in another order."""
        return self.slots

    def write(self, w: CallWriter) -> None:
        raise NotImplementedError

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class KernelStep(Step):
    """A kernel with all its launches, or a pipeline.

    ``slots`` are its buffers: inputs, outputs, and a kernel's scratch. ``offsets`` are counted in
    elements: the kernel sees each input from its offset on. ``own`` are a pipeline's queues,
    scratch and counters, which no other step sees.
    """

    name: str
    launch: Any  # a function of the buffers; on a GPU a DeviceKernel
    slots: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    own: tuple[PipelineArray, ...] = ()

    def write(self, w: CallWriter) -> None:
        buffers = []
        for slot, offset in zip_longest(self.slots, self.offsets, fillvalue=0):
            buffers.append(w.flat(slot) + (f"[{offset}:]" if offset else ""))
        w.line(f"{w.bind(self.name, self.launch)}({', '.join(buffers)})")

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        buffers = [arrays[s][o:] for s, o in zip_longest(self.slots, self.offsets, fillvalue=0)]
        return functools.partial(self.launch, *buffers)


@dataclass(frozen=True)
class LibraryStep(Step):
    """A NumPy call between kernels. Its operands are strided views of memory, never copies.

    It calls ``function(*operands, result)``, or NumPy's matrix product if ``function`` is None.
    """

    name: str
    views: tuple[ArgumentView, ...]  # of the operands, then the result
    slots: tuple[int, ...]  # their memory
    function: Callable[..., Any] | None = None
    warns: ClassVar[bool] = True

    def in_c_order(self, slots: Sequence[Slot]) -> Iterable[int]:
        """All slots, except whole matrices for BLAS, which takes both orders."""
        return [i for i, view in zip(self.slots, self.views, strict=True) if self.function
                or not view.is_matrix(slots[i])]

    def write(self, w: CallWriter) -> None:
        seen = [w.view(slot, view) for slot, view in zip(self.slots, self.views, strict=True)]
        w.line(f"{w.bind(self.name, self.function) if self.function else 'np.matmul'}({', '.join(seen)})")

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        seen = [view.of(arrays[slot]) for slot, view in zip(self.slots, self.views, strict=True)]
        return functools.partial(self.function or np.matmul, *seen)


def pipeline_step(source: PipelineSource, slots: tuple[int, ...], target: str) -> KernelStep:
    """The step that runs a pipeline. On a GPU its kernel is loaded before the first call."""
    launch: Callable[..., None] | DeviceKernel = functools.partial(_step_pipeline, source)
    if target == "cuda":
        launch = DeviceKernel.of_pipeline(source)
        launch.load(current())
    return KernelStep(source.name, launch, slots, own=source.arrays[len(slots):])


def _step_pipeline(source: PipelineSource, *buffers: Array) -> None:
    given = iter(buffers)
    arrays = {a.name: next(given) if a.kind in ("input", "output") else np.zeros(a.size, a.dtype)
              for a in source.arrays}
    simt.step(source.text, arrays, source.grid, source.block, wave=source.grid,
              queues=source.resident, rounds=sys.maxsize,
              inputs=[a.name for a in source.arrays if a.kind == "input"])


def library_step(node: Node, chains: Sequence[Sequence[Node]], slots: tuple[int, ...],
                 target: str = "cpu") -> LibraryStep:
    """The step of one library node.

    ``chains`` holds for each operand a value in memory, then the views (moves) applied to it.
    """
    out = ArgumentView.whole(node.type.shape, np.dtype(node.type.dtype))
    views = [_seen(chain) for chain in chains]
    if node.op == "scatter" and target == "cpu" and _adds_rows(node, [view.dtype for view in views]):
        return LibraryStep(node.op, (*views, out), slots, _row_adder(node))
    if node.op != "matmul":
        return LibraryStep(node.op, (*views, out), slots, functools.partial(_store, node))
    a, b = views
    if len(b.shape) == 2 and len(a.shape) > 2 and a.is_whole:  # one product instead of a batch
        a = ArgumentView.whole((math.prod(a.shape[:-1]), a.shape[-1]), a.dtype)
        out = ArgumentView.whole((a.shape[0], out.shape[-1]), out.dtype)
    function = None
    if a.dtype == np.float16:
        function = _half_product
    elif a.dtype.kind == "f" and not (_for_blas(a) and _for_blas(b)):
        function = functools.partial(_packed_product, not _for_blas(a), not _for_blas(b))
    return LibraryStep(node.op, (a, b, out), slots, function)


ADD_ROWS = """
def add_rows(first, last, rows, values, out):
    for row in range(first, last):
        at = rows[row] * {width}
        for col in range({width}):
            out[at + col] += values[row * {width} + col]
"""


def _adds_rows(node: Node, dtypes: Sequence[np.dtype]) -> bool:
    """Whether a scatter adds rows of one compiled dtype at indices of the first axes."""
    axes = node.attr("axes")
    same = dtypes[0] == dtypes[1] and dtypes[0].kind in "if" and dtypes[0] != np.float16
    return node.attr("mode") == "add" and axes == tuple(range(len(axes))) and same


def _row_adder(node: Node) -> Callable[..., None]:
    """``np.add.at`` as a compiled loop, in the same order. It takes an eighth of the time."""
    sizes = node.type.shape[:len(node.attr("axes"))]
    width, dtype = math.prod(node.type.shape[len(sizes):]), node.type.dtype
    compiled = compiler.compile_cpu(ADD_ROWS.format(width=width), "add_rows",
                                    ("int64", dtype, dtype))

    def add_rows(x: Array, values: Array, *indices_and_out: Array) -> None:
        *indices, out = indices_and_out
        if not all(0 <= i.min(initial=0) and i.max(initial=0) < n
                   for i, n in zip(indices, sizes, strict=True)):
            return _store(node, x, values, *indices, out)  # it counts from the end, or raises
        rows = np.ravel_multi_index(indices, sizes) if out.size else np.zeros(0, np.int64)
        np.copyto(out, x)
        compiled.bind(0, 0, 0, 0, 0, rows.size)(rows.reshape(-1), np.ascontiguousarray(values).reshape(-1), out.reshape(-1))
    return add_rows


def program_step(graph: Graph, slots: tuple[int, ...]) -> LibraryStep:
    """The step of a whole program that NumPy runs. ``slots``: those of its inputs and outputs."""
    types = [graph[value].type for value in (*graph.inputs, *graph.outputs)]
    views = tuple(ArgumentView.whole(type.shape, np.dtype(type.dtype)) for type in types)

    def program(*arrays: Array) -> None:
        for made, out in zip(evaluate(graph, arrays[:len(graph.inputs)]),
                             arrays[len(graph.inputs):], strict=True):
            np.copyto(out, made)
    return LibraryStep("program", views, slots, program)


def _seen(chain: Sequence[Node]) -> ArgumentView:
    """The strides that NumPy gives to a chain of views, found on empty memory."""
    base = np.empty(chain[0].type.shape, chain[0].type.dtype)
    seen = view(chain, base)
    if not seen.size:
        return ArgumentView.whole(seen.shape, seen.dtype)
    return ArgumentView(seen.shape, seen.strides, seen.ctypes.data - base.ctypes.data, seen.dtype)


def view(chain: Sequence[Node], array: Array) -> Array:
    """Flat memory in the first node's shape, seen through the other nodes' views."""
    seen = array.reshape(chain[0].type.shape)
    for move in chain[1:]:
        seen = apply(move, [seen])
    return seen


def _for_blas(x: ArgumentView) -> bool:
    """Whether NumPy calls BLAS for these strides, once a matrix of the batch.

    One of the last two axes must be contiguous, and the other a positive multiple of the item size.
    """
    row, column = x.strides[-2:]
    size = x.dtype.itemsize
    return any(near == size and far % size == 0 and far >= near
               for near, far in ((column, row), (row, column)))


def _packed_product(pack_a: bool, pack_b: bool, a: Array, b: Array, out: Array) -> None:
    np.matmul(np.ascontiguousarray(a) if pack_a else a, np.ascontiguousarray(b) if pack_b else b,
              out)


def _half_product(a: Array, b: Array, out: Array) -> None:
    """Compute the product in float32, because BLAS has no float16."""
    np.copyto(out, np.matmul(a.astype(np.float32), b.astype(np.float32)), casting="unsafe")


def _store(node: Node, *arrays: Array) -> None:
    *operands, out = arrays
    np.copyto(out, apply(node, operands), casting="unsafe")


@dataclass(frozen=True)
class CopyStep(Step):
    """Copies a result that is also an argument or another result. Results never share memory."""

    slots: tuple[int, int]
    name: str = "copy"

    def write(self, w: CallWriter) -> None:
        source, out = map(w.flat, self.slots)
        w.line(f"np.copyto({out}, {source})")

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        source, out = (arrays[s] for s in self.slots)
        return functools.partial(np.copyto, out, source)


# ---------------------------------------------------------------- kernels become functions
# Equal bodies share one function, across programs too, while one of these programs lives.
_built: WeakValueDictionary[tuple[str, Device, str, bool, tuple[Pass, ...]],
                            Any] = WeakValueDictionary()


def forget_launches() -> None:
    """Let no later program have the functions of one that is known already."""
    _built.clear()


def build_kernels(stages: Stages, target: str) -> dict[str, Any]:
    """A launch function for each digest of a body. It takes the kernel's global buffers.

    ``target`` is "cpu", "python", "step" or "cuda".
    """
    wanted = {(d, stages.device, target, s.exact, tuple(PASSES[n] for n in s.kernel.passes)): s
              for d, s in zip(stages.digests, stages.sources, strict=True)}
    found = {key: launch for key in wanted if (launch := _built.get(key)) is not None}
    missing = {key: s for key, s in wanted.items() if key not in found}
    if target == "cpu":  # compiled functions live as long as this list or their users
        _made = compiler.compile_many([r for s in missing.values() for r in requests(s)])
    for key, source in missing.items():  # no lock, since a fork could leave it held
        found[key] = _built.setdefault(key, _launcher(source, target))
    return {key[0]: launch for key, launch in found.items()}


def requests(source: KernelSource) -> list[compiler.Request]:
    """What to compile for one kernel's CPU text: one function for each launch."""
    dtype = {b.name: b.dtype for b in source.kernel.buffers}
    return [compiler.Request(source.text, launch.name, tuple(dtype[b] for b in launch.buffers),
                             launch.short, source.exact) for launch in source.launches]


def _launcher(source: KernelSource, target: str) -> Callable[..., None] | DeviceKernel:
    """The launch function of one kernel on a target."""
    if target == "step":
        return functools.partial(_step_kernel, source)
    if target == "cuda":
        kernel = DeviceKernel.of(source)
        if kernel.grid:
            kernel.load(current())
        return kernel
    position = {b.name: i for i, b in enumerate(source.kernel.parameters)}
    parts = []
    function: Callable[..., None]
    for launch, request in zip(source.launches, requests(source), strict=True):
        if target == "python":
            function = functools.partial(_run_plain, compiler.load_text(request.text, request.name),
                                         launch.tasks)
        else:
            function = to_the_cores(source.kernel, launch, request)
        parts.append((function, [position[b] for b in launch.buffers]))
    halves = any(b.dtype == "float16" for b in source.kernel.parameters)
    if len(parts) == 1 and parts[0][1] == list(range(len(position))) and not halves:
        return parts[0][0]

    def launch_all(*buffers: Array) -> None:
        if halves:  # Numba's CPU target has no float16, so kernels take the bits
            buffers = tuple(b.view(np.uint16) if b.dtype == np.float16 else b for b in buffers)
        for run, picked in parts:
            run(*[buffers[i] for i in picked])
    return launch_all


def to_the_cores(kernel: Kernel, launch: Launch, request: compiler.Request) -> Callable[..., None]:
    """A function that runs one launch, on several cores if that pays.

    One core runs it if the work is small, or if waking the threads is not worth it, or if the
    system lacks what they need (``thread_pool.can_work``). Each core gets at least half of
    ``serial_below``. Sleeping threads are woken from ``WORTH_WAKING`` times ``serial_below`` on.
    """
    compiled = compiler.compile_cpu(request.text, request.name, request.dtypes, short=request.short,
                                    exact=request.exact)
    tasks, work, alone = launch.tasks, launch.work, kernel.device.serial_below
    serial = compiled.bind(0, 0, 0, 0, 0, tasks)
    if work < alone or tasks < 2 or compiled.code is None or not thread_pool.can_work():
        return serial
    most, large = min(tasks, 2 * work // alone), work >= WORTH_WAKING * alone
    start, address, spread = compiled.start, compiled.code.address, thread_pool.spread(len(launch.buffers))

    def run(*buffers: Array) -> None:
        threads = min(workers.thread_count(), most)
        board = thread_pool.board(threads - 1, large) if threads > 1 else 0
        if board:
            start(address, board, spread, threads - 1, min(tasks, threads * workers.CHUNKS_EACH), 0,
                  tasks, *buffers)
        else:
            serial(*buffers)
    return run


def _run_plain(function: Callable[..., None], tasks: int, *buffers: Array) -> None:
    if tasks:
        function(0, tasks, *buffers)


def _step_kernel(source: KernelSource, *buffers: Array) -> None:
    kernel = source.kernel
    names = [b.name for b in kernel.parameters]
    reads, writes = ([b.name for b in kernel.parameters if b.scope == scope]
                     for scope in ("input", "output"))
    wave = kernel.device.wave(kernel.block, kernel.shared_bytes, kernel.registers)
    simt.step(source.text, dict(zip(names, buffers, strict=True)), kernel.grid, kernel.block,
              inputs=reads, outputs=writes, wave=wave, rounds=sys.maxsize)  # emitted loops end
