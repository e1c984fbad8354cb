"""CUDA graphs: what a call does on the device, recorded once and replayed by one call of the driver.

In:  a function that issues the work of one call on a stream, and the addresses it works on. Out: the work is under way.

    addresses of a graph that is kept                -> replay it: one call, whatever the number of kernels
    addresses met lately, but not recorded           -> record, keep, replay
    other addresses                                  -> issue kernel by kernel

A recorded kernel holds its arguments. That leaves three ways when a call brings other arrays:

- to copy them into fixed buffers reads and writes every input once more, which for kernels that are bound by memory is up
  to as long as the kernel: only arrays of NumPy, which must be copied anyway, are treated so;
- to change the recorded arguments is a call for every kernel, as many as issuing them;
- to keep a graph for each set of addresses costs nothing where addresses come back. They do: a caching allocator gives a
  loop the same few blocks again and again. This is what is done, for ``KEPT`` sets; a set is recorded when it comes the
  second time, so that arrays that never come back cost no recording. When more sets come back, the oldest graph is
  updated, which does not disturb a replay under way, as destroying it might.

A recording also has to meet what has been compiled and loaded already, which the first, plain time sees to. It is made on
a stream of its own, since the legacy stream cannot be recorded. Nothing here waits for the device.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ...errors import DeviceError
from .driver import ask, bindings

KEPT = 8  # graphs a program and stream; two sets of addresses are what a loop that replaces its result has
WORTHWHILE = 3  # launches: a replay is one call of the driver, so of two it saves one (by argument; no GPU has timed it)

Addresses = tuple[int, ...]


class Graphs:
    """The recorded graphs of one program on one stream. ``refused`` says why there are none, once recording failed."""

    def __init__(self, issue: Callable[[Addresses, int], None], stream: int) -> None:
        self.issue, self.stream = issue, stream
        self.kept: OrderedDict[Addresses, Any] = OrderedDict()  # the oldest first
        self.lately: deque[Addresses] = deque(maxlen=KEPT)
        self.refused = ""
        self.recorder: Any = None  # the stream that recordings are made on

    def run(self, addresses: Addresses) -> None:
        """Do the work on these addresses: replayed, recorded and replayed, or issued."""
        graph = self.kept.get(addresses)
        if graph is None and addresses in self.lately and not self.refused:
            graph = self._record(addresses)
        if graph is None:
            self.lately.append(addresses)
            self.issue(addresses, self.stream)
            return
        self.kept.move_to_end(addresses)
        ask("cuGraphLaunch", graph, self.stream)

    def _record(self, addresses: Addresses) -> Any:
        """A graph for these addresses, or None with the reason in ``refused``."""
        api = bindings()
        try:
            if self.recorder is None:
                self.recorder = ask("cuStreamCreate", int(api.CUstream_flags.CU_STREAM_NON_BLOCKING))
            ask("cuStreamBeginCapture", self.recorder, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            try:
                self.issue(addresses, int(self.recorder))
            finally:
                code, recorded = api.cuStreamEndCapture(self.recorder)
            if int(code):
                raise DeviceError(f"the recording was not valid: code {int(code)}")
            try:
                made = self._instantiate(recorded)
            finally:
                ask("cuGraphDestroy", recorded)
        except DeviceError as problem:
            self.refused = str(problem)
            return None
        self.lately.remove(addresses)
        self.kept[addresses] = made
        return made

    def _instantiate(self, recorded: Any) -> Any:
        """Make it ready to launch, or put it into the oldest one that is."""
        if len(self.kept) < KEPT:
            return ask("cuGraphInstantiate", recorded, 0)
        oldest = self.kept.popitem(last=False)[1]
        ask("cuGraphExecUpdate", oldest, recorded)
        return oldest
