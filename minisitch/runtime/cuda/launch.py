"""Run a program on a GPU: its steps become driver calls, on NumPy or device arrays.

In:  the slots and steps of a program. Out: a ``CudaExecutable``, called with the array leaves.

    NumPy arrays     are copied to buffers, and results are copied back. The call waits for them.
    device arrays    stay where they are, and results are device arrays. The work goes to the
                     caller's stream, and the call does not wait.

A ``Session`` belongs to one thread, program and stream. It holds a workspace and the prepared
arguments of each launch.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from ...errors import MinisitchError
from ...errors.lazy import lazy
from ...lower import Stages
from ...ops import itemsize
from ...passes.vectorize import ACCESS
from ...trace.tree import unflatten
from ..call import ready
from ..executable import Executable, finish, refuse_overlap, require_shapes, view_chain
from ..memory import Slot
from ..pool import fresh, is_pooled
from ..steps import CopyStep, KernelStep, LibraryStep, Step, library_step
from . import cublas
from .device_arrays import Seen, callers_stream, look, maker
from .driver import ask, bindings, current
from .kernel import ADDRESS, WORDS, Arguments, DeviceKernel
from .memory import MemoryBlock

# ---------------------------------------------------------------- steps on a device
Addresses = tuple[int, ...]  # of all slots
Issue = Callable[[Addresses, int], None]  # puts a step's work on a stream


def _issue_kernel(kernel: DeviceKernel, slots: Sequence[int], offsets: Sequence[int], device: int,
                  own: Sequence[MemoryBlock] = ()) -> Issue:
    """A launch of a kernel.

    ``offsets`` are in elements: the kernel sees each buffer from its offset on. ``own`` are further
    buffers, the same at every launch: a pipeline's queues, scratch and counters. The kernel itself
    sets the counters to zero.
    """
    function, arguments = kernel.load(device), Arguments(kernel)
    skipped = [offset * np.dtype(dtype).itemsize
               for offset, dtype in zip(offsets, kernel.dtypes, strict=False)]
    places = [(place * WORDS + ADDRESS, slot, nbytes) for place, (slot, nbytes) in
              enumerate(zip_longest(slots, skipped, fillvalue=0))]
    for place, block in enumerate(own, len(slots)):
        arguments.fix(place, block)

    def issue(addresses: Addresses, stream: int) -> None:
        for word, slot, offset in places:
            arguments.words[word] = addresses[slot] + offset
        arguments.launch(function, stream)
    return issue


def _issue_copy(source: int, out: int, nbytes: int) -> Issue:
    def issue(addresses: Addresses, stream: int) -> None:
        ask("cuMemcpyDtoDAsync", addresses[out], addresses[source], nbytes, stream)
    return issue


def _issue_gemms(calls: Sequence[cublas.Gemm], step: LibraryStep, handle: cublas.Cublas) -> Issue:
    dtype = step.views[0].dtype.name

    def issue(addresses: Addresses, stream: int) -> None:
        seen = [addresses[slot] for slot in step.slots]
        for call in calls:
            handle(call, dtype, seen)
    return issue


def _issue_on_host(step: LibraryStep, slots: Sequence[Slot]) -> Issue:
    """A step that NumPy computes on the host. It waits for the operands and copies the result."""
    *operands, out = step.slots

    def issue(addresses: Addresses, stream: int) -> None:
        arrays = [np.empty(slots[s].size, slots[s].dtype) for s in step.slots]
        for slot, array in zip(operands, arrays, strict=False):
            ask("cuMemcpyDtoHAsync", array.ctypes.data, addresses[slot], array.nbytes, stream)
        ask("cuStreamSynchronize", stream)
        with np.errstate(all="ignore"):
            views = (view.of(a) for view, a in zip(step.views, arrays, strict=True))
            (step.function or np.matmul)(*views)
        ask("cuMemcpyHtoDAsync", addresses[out], arrays[-1].ctypes.data, arrays[-1].nbytes, stream)
        ask("cuStreamSynchronize", stream)  # the array is freed when this returns
    return issue


def library_calls(stages: Stages) -> list[str]:
    """For ``explain``: what computes each library call on this machine's GPU, in lines of text."""
    found: dict[str, list[str]] = {}
    for pattern in stages.plan.library_calls:
        node = stages.graph[pattern.members[0]]
        chains = [view_chain(stages.graph, a) for a in node.args]
        step = library_step(node, chains, (0,) * (len(node.args) + 1))
        found.setdefault(f"{node.op}: {_done_by(step)}", []).append(f"%{node.id}")
    return [f"{' '.join(nodes)} {said}" for said, nodes in found.items()]


def _done_by(step: LibraryStep) -> str:
    host = ("NumPy on the host; operands are copied there, the result back, "
            "and the call waits for them")
    if step.name != "matmul":
        return host
    calls = cublas.gemms(*step.views)
    if calls is None:
        return f"{host}: cuBLAS knows no such dtype or order of elements"
    if not cublas.path():
        return f"{host}: cuBLAS is not installed here: {cublas.INSTALL}"
    return f"cuBLAS, {len(calls)} call{'s' * (len(calls) > 1)}"


# ---------------------------------------------------------------- a program on one stream
class Session:
    """Workspace and prepared arguments of one thread, device and stream."""

    def __init__(self, program: CudaExecutable, device: int, stream: int) -> None:
        self.program, self.device, self.stream = program, device, stream
        self.workspace = MemoryBlock(program.workspace, device, stream)
        self.fixed: dict[int, MemoryBlock] = {}  # buffers of slots that are copied
        self.handle: cublas.Cublas | None = None
        self.issues = [issue for step in program.steps if (issue := self._ready(step))]

    def _ready(self, step: Step) -> Issue | None:
        """Prepare a step. None if it has nothing to do."""
        slots = self.program.slots
        if isinstance(step, KernelStep):
            assert isinstance(step.launch, DeviceKernel)
            own = [MemoryBlock(a.size * itemsize(a.dtype), self.device, self.stream)
                   for a in step.own]
            if not step.launch.grid:
                return None
            return _issue_kernel(step.launch, step.slots, step.offsets, self.device, own)
        if isinstance(step, CopyStep):
            nbytes = slots[step.slots[0]].nbytes
            return _issue_copy(*step.slots, nbytes) if nbytes else None
        assert isinstance(step, LibraryStep)
        if not slots[step.slots[-1]].size:
            return None
        calls = cublas.gemms(*step.views) if step.name == "matmul" and cublas.path() else None
        if calls is None:
            return _issue_on_host(step, slots)
        self.handle = self.handle or cublas.Cublas(self.stream)
        return _issue_gemms(calls, step, self.handle)

    def buffer(self, slot: int) -> int:
        """The address of a slot's own buffer, for arrays that must be copied."""
        if slot not in self.fixed:
            nbytes = self.program.slots[slot].nbytes
            self.fixed[slot] = MemoryBlock(nbytes, self.device, self.stream)
        return self.fixed[slot].address

    def run(self, addresses: Addresses) -> None:
        """Put the work of all steps on the stream, in order."""
        for issue in self.issues:
            issue(addresses, self.stream)

    def send(self, slot: int, array: np.ndarray) -> int:
        """Copy a host array into the slot's buffer. Returns its address."""
        address = self.buffer(slot)
        if array.nbytes:
            ask("cuMemcpyHtoDAsync", address, array.ctypes.data, array.nbytes, self.stream)
        return address

    def wait_for(self, stream: int) -> None:
        """Order this stream after the work that is now on another one. The host does not wait."""
        event = ask("cuEventCreate", int(bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING))
        ask("cuEventRecord", event, stream)
        ask("cuStreamWaitEvent", self.stream, event, 0)
        ask("cuEventDestroy", event)  # the driver keeps it until the event has happened


class _Mine(threading.local):
    """One thread's sessions of a program, and its stream for NumPy arrays."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[int, int], Session] = {}
        self.streams: dict[int, int] = {}


@dataclass(frozen=True, repr=False)
class CudaExecutable(Executable):
    """A program ready to run on a GPU. Results share no memory with anything else."""

    mine: _Mine = field(default_factory=_Mine, init=False, compare=False)  # of the calling thread

    def session(self, device: int, stream: int) -> Session:
        """The thread's session on a stream, made at the first call."""
        found = self.mine.sessions.get((device, stream))
        if found is None:
            found = self.mine.sessions[device, stream] = Session(self, device, stream)
        return found

    def run(self, leaves: Sequence[Any]) -> Any:
        seen = [look(leaf) for leaf in leaves]
        if any(seen):
            return self._on_device(leaves, seen)
        program = self.stages.program
        if program.mutated or program.in_rows:
            refuse_overlap(program, leaves)
        return finish(program, leaves, self.outputs(leaves))

    def outputs(self, leaves: Sequence[Any]) -> list[np.ndarray]:
        """The graph's outputs as NumPy arrays. Waits for them."""
        require_shapes(self.stages.program, leaves)
        session, addresses, kept = self._sent(leaves)
        session.run(addresses)
        results = [(fresh if is_pooled(s.nbytes) else np.empty)(s.shape, s.dtype)
                   for s in self.results]
        for place, result in enumerate(results, len(self.inputs)):
            if result.nbytes:
                ask("cuMemcpyDtoHAsync", result.ctypes.data, addresses[place], result.nbytes,
                    session.stream)
        ask("cuStreamSynchronize", session.stream)
        del kept  # the arrays must live until their copies are done
        return results

    def prepare(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Callable[[], Any]]]:
        """The parts of a call, for timing: a function for each step, which waits for its end."""
        session, addresses, kept = self._sent(leaves)

        def timed(issue: Issue | None) -> None:
            if issue:
                issue(addresses, session.stream)
            ask("cuStreamSynchronize", session.stream)
        ask("cuStreamSynchronize", session.stream)
        return kept, [functools.partial(timed, session._ready(step)) for step in self.steps]

    @lazy
    def inputs(self) -> list[Slot]:
        """The slots of arguments and captured arrays, which come first."""
        return [slot for slot in self.slots if slot.place == "input"]

    @lazy
    def results(self) -> list[Slot]:
        """The slots of results, which come next."""
        return [slot for slot in self.slots if slot.place == "output"]

    def _sent(self, leaves: Sequence[Any]) -> tuple[Session, Addresses, list[np.ndarray]]:
        """Copy NumPy arrays to the device, always to the same buffers."""
        device = current()
        if device not in self.mine.streams:
            apart = int(bindings().CUstream_flags.CU_STREAM_NON_BLOCKING)
            self.mine.streams[device] = int(ask("cuStreamCreate", apart))
        session = self.session(device, self.mine.streams[device])
        given = [*leaves, *self.stages.program.outside(leaves)]
        arrays = [ready(x, slot.dtype) for x, slot in zip(given, self.inputs, strict=True)]
        for check in self.checks:
            check(arrays[check.source].reshape(-1))
        sent = [session.send(i, array) for i, array in enumerate(arrays)]
        return session, self._addresses(session, sent, None), arrays

    def _addresses(self, session: Session, inputs: Sequence[int],
                   outputs: Sequence[int] | None) -> Addresses:
        """The address of every slot. Outputs use the session's buffers unless given."""
        found = {"input": iter(inputs), "output": iter(outputs or ())}
        return tuple(session.workspace.address + slot.index if slot.place == "workspace" else
                     session.buffer(i) if slot.place == "output" and outputs is None else
                     next(found[slot.place]) for i, slot in enumerate(self.slots))

    # ------------------------------------------------------------ arrays of the device
    def _on_device(self, leaves: Sequence[Any], seen: Sequence[Seen | None]) -> Any:
        """Run on the caller's stream. Indices are clamped, since checking them would wait."""
        device, stream, program = current(), callers_stream(seen), self.stages.program
        if program.mutated:
            self._refuse_written(leaves, seen)
        session = self.session(device, stream)
        for other in {s.stream for s in seen if s and s.stream is not None} - {stream}:
            session.wait_for(other)
        kept = []  # host arrays, until their copies are issued
        inputs = []
        given = [*leaves, *program.outside(leaves)]
        for i, (leaf, slot) in enumerate(zip(given, self.inputs, strict=True)):
            there = seen[i] if i < len(seen) else None
            if there is None:
                kept.append(ready(leaf, slot.dtype))
                inputs.append(session.send(i, kept[-1]))
            elif there.address % ACCESS:  # not aligned to the 16 bytes that kernels read at once
                ask("cuMemcpyDtoDAsync", session.buffer(i), there.address, slot.nbytes, stream)
                inputs.append(session.buffer(i))
            else:
                inputs.append(there.address)
        make = maker(seen, device, stream)
        made = [make(slot.shape, slot.dtype) for slot in self.results]
        session.run(self._addresses(session, inputs, [address for _, address in made]))
        for source, output in program.mutated:
            there, slot = seen[source], self.results[output]
            assert there, "refused above"
            ask("cuMemcpyDtoDAsync", there.address, made[output][1], slot.nbytes, stream)
        return unflatten(program.outputs, [array for array, _ in made])

    def _refuse_written(self, leaves: Sequence[Any], seen: Sequence[Seen | None]) -> None:
        """Refuse written arguments that are not device arrays in C order, or share memory.

        Raises MinisitchError.
        """
        ranges = [(s.address, s.address + slot.nbytes) if s else (0, 0)
                  for s, slot in zip(seen, self.inputs, strict=False)]
        for source, _ in self.stages.program.mutated:
            there = seen[source]
            if there is None or there.owner is not leaves[source]:
                raise MinisitchError("an argument that is written to must be a device array in C "
                                     "order if another argument is one: pass a contiguous array of "
                                     "the device, or all arguments from the host")
            begin, end = ranges[source]
            others = (at for i, at in enumerate(ranges) if i != source)
            if any(begin < last and first < end for first, last in others):
                raise MinisitchError("an argument that is written to shares memory with another, "
                                     "which a compiled program cannot follow; pass a copy of one "
                                     "of them")
