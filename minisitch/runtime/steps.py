"""What a program does at a call, step by step: launch a kernel, call a library, copy.

In:  emitted kernels and library nodes. Out: ``Step`` values, which ``bind`` turns into calls on given arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .. import compile as compiler
from .. import simt, workers
from ..device import Device
from ..graph import Node
from ..reference import apply
from ..source import KernelSource
from .stages import Stages

Array = np.ndarray


# ---------------------------------------------------------------- steps
class Step(Protocol):
    """One thing to do. ``bind`` is given the arrays of all slots and returns the call to make."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> tuple[int, ...]: ...

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]: ...


@dataclass(frozen=True)
class KernelStep:
    """A kernel: its launches in order; ``slots`` are its buffers: inputs, outputs, scratch.

    ``offsets`` of the inputs: the kernel sees each from that element on.
    """

    name: str
    launch: Callable[..., None]
    slots: tuple[int, ...]
    offsets: tuple[int, ...] = ()

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        buffers = [arrays[s] for s in self.slots]
        for k, offset in enumerate(self.offsets):
            if offset:
                buffers[k] = buffers[k][offset:]
        return functools.partial(self.launch, buffers)


@dataclass(frozen=True)
class LibraryStep:
    """A NumPy call between kernels: operands are strided views of what is in memory, never copies."""

    name: str
    node: Node
    views: tuple[tuple[Node, ...], ...]  # for each operand: the value in memory, then the moves that view it
    slots: tuple[int, ...]  # the operands' memory, then the result's

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        *operands, out = (arrays[s] for s in self.slots)
        viewed = [view(chain, array) for chain, array in zip(self.views, operands, strict=True)]
        result = out.reshape(self.node.type.shape)
        if self.node.op == "matmul":
            return _bind_matmul(viewed[0], viewed[1], result)
        return lambda: np.copyto(result, apply(self.node, viewed), casting="unsafe")


def view(chain: Sequence[Node], array: Array) -> Array:
    """Flat memory seen through moves: the value's own shape, then each move as NumPy does it, all of them views."""
    seen = array.reshape(chain[0].type.shape)
    for move in chain[1:]:
        seen = apply(move, [seen])
    return seen


def _bind_matmul(a: Array, b: Array, out: Array) -> Callable[[], Any]:
    """A product for BLAS: one call where the right side has no batch, float16 by way of float32.

    NumPy calls BLAS once a matrix of the batch, and not at all for strides BLAS does not take.
    """
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:
        a, out = a.reshape(-1, a.shape[-1]), out.reshape(-1, out.shape[-1])
    if a.dtype == np.float16:
        wide = np.float32
        return lambda: np.copyto(out, np.matmul(a.astype(wide), b.astype(wide)), casting="unsafe")
    if a.dtype.kind == "f" and not (_for_blas(a) and _for_blas(b)):
        return lambda: np.matmul(_packed(a), _packed(b), out=out)
    return functools.partial(np.matmul, a, b, out=out)


def _for_blas(x: Array) -> bool:
    """One of the last two axes is contiguous and the other a whole, positive number of elements apart."""
    row, column = x.strides[-2:]
    return any(near == x.itemsize and far % x.itemsize == 0 and far >= near for near, far in
               ((column, row), (row, column)))


def _packed(x: Array) -> Array:
    return x if _for_blas(x) else np.ascontiguousarray(x)


@dataclass(frozen=True)
class CopyStep:
    """A result that is an argument or another result: it is copied, so that nothing returned shares memory."""

    slots: tuple[int, int]
    name: str = "copy"

    def bind(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        source, out = (arrays[s] for s in self.slots)
        return functools.partial(np.copyto, out, source)


# ---------------------------------------------------------------- kernels become functions
_built: dict[tuple[str, Device, str], Callable[..., None]] = {}  # equal bodies, one function, also across programs


def build_kernels(stages: Stages, target: str,
                  progress: Callable[[int, int, str], None] | None = None) -> dict[str, Callable[..., None]]:
    """A launch function for each kernel by the digest of its body; each takes the list of global buffers."""
    wanted = dict(zip(stages.digests, stages.sources, strict=True))
    missing = {d: s for d, s in wanted.items() if (d, stages.device, target) not in _built}
    if target == "cpu" and missing:
        compiler.compile_many([r for s in missing.values() for r in requests(s)], progress=progress)
    for d, source in missing.items():  # no lock, that a fork could leave held: of two threads, the first one's stands
        _built.setdefault((d, stages.device, target), _launcher(source, target))
    return {d: _built[d, stages.device, target] for d in wanted}


def requests(source: KernelSource) -> list[compiler.Request]:
    """What to compile for one kernel's CPU text: one function a launch."""
    dtype = {b.name: b.dtype for b in source.kernel.buffers}
    return [compiler.Request(source.text, launch.name, tuple(dtype[b] for b in launch.buffers),
                             launch.slp) for launch in source.launches]


def _launcher(source: KernelSource, target: str) -> Callable[..., None]:
    """Bind a kernel's launches to a way of executing them."""
    if target == "step":
        return _step_launcher(source)
    if target == "cuda":
        return _cuda_launcher(source)
    position = {b.name: i for i, b in enumerate(source.kernel.parameters)}
    parts = []
    for launch, request in zip(source.launches, requests(source), strict=True):
        picked = tuple(position[b] for b in launch.buffers)
        if target == "python":
            function = functools.partial(_run_plain, compiler.load_text(request.text, request.name))
        else:
            function = functools.partial(workers.run, compiler.compile_cpu(
                request.text, request.name, request.dtypes, slp=request.slp).function)
        parts.append((function, launch.tasks, launch.work, picked))
    halves = any(b.dtype == "float16" for b in source.kernel.parameters)
    if len(parts) == 1 and parts[0][3] == tuple(range(len(position))) and not halves:
        function, tasks, work, _ = parts[0]
        return lambda buffers: function(tasks, buffers, work=work)

    def launch_all(buffers: Sequence[Array]) -> None:
        if halves:  # Numba's CPU target has no float16: kernels take the bits
            buffers = [b.view(np.uint16) if b.dtype == np.float16 else b for b in buffers]
        for function, tasks, work, picked in parts:
            function(tasks, [buffers[i] for i in picked], work=work)
    return launch_all


def _run_plain(function: Callable[..., None], tasks: int, buffers: Sequence[Array], work: int) -> None:
    if tasks:
        function(0, tasks, *buffers)


def _cuda_launcher(source: KernelSource) -> Callable[..., None]:
    """Arrays are copied to the device and back at each launch; an array without elements is given one."""
    kernel = source.kernel
    function = compiler.compile_cuda(source.text, source.launches[0].name, source.kernel.registers)

    def launch(buffers: Sequence[Array]) -> None:
        if kernel.grid:
            function[kernel.grid, kernel.block](*(b if b.size else np.empty(1, b.dtype) for b in buffers))
    return launch


def _step_launcher(source: KernelSource) -> Callable[..., None]:
    kernel = source.kernel

    def launch(buffers: Sequence[Array]) -> None:
        names = [b.name for b in kernel.parameters]
        reads = [b.name for b in kernel.buffers if b.scope == "input"]
        wave = kernel.device.wave(kernel.block, kernel.shared_bytes)
        simt.step(source.text, dict(zip(names, buffers, strict=True)), kernel.grid, kernel.block, inputs=reads, wave=wave)
    return launch
