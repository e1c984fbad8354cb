"""CUDA graphs: record the work of a call once, then replay it with one driver call.

In:  a function that issues a call's work on a stream, and the addresses it uses. Out: the work is
on the stream.

    addresses with a recorded graph           -> replay it
    addresses that were used lately           -> record, keep, replay
    other addresses                           -> issue kernel by kernel

A recorded kernel holds its arguments. If a call brings other arrays, there are three ways:

- Copy them into fixed buffers. This moves every input once more, which may take as long as the
  kernels. It is done only for NumPy arrays, which must be copied to the device anyway.
- Change the arguments of the graph. This takes one driver call for each kernel, as issuing does.
- Keep a graph for each set of addresses. This costs nothing if addresses return, and they do,
  because a caching allocator gives a loop the same few blocks again.

The third way is used, for ``KEPT`` sets. A set is recorded when it comes for the second time, after
its first run has compiled and loaded every kernel. If there are too many sets, the oldest graph is
updated. Destroying it could disturb a replay that still runs.

Recording uses a stream of its own, since the legacy stream cannot be recorded. Nothing here waits
for the device.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ...errors import DeviceError
from .driver import ask, bindings

KEPT = 8  # graphs of a program and stream; a loop that replaces its result needs two
WORTHWHILE = 3  # launches from which a replay pays (by argument; not measured)

Addresses = tuple[int, ...]


class Graphs:
    """The recorded graphs of one program on one stream. ``refused`` says why recording failed."""

    def __init__(self, issue: Callable[[Addresses, int], None], stream: int) -> None:
        self.issue, self.stream = issue, stream
        self.kept: OrderedDict[Addresses, Any] = OrderedDict()  # least recently used first
        self.lately: deque[Addresses] = deque(maxlen=KEPT)
        self.refused = ""
        self.recorder: Any = None  # the stream for recordings

    def run(self, addresses: Addresses) -> None:
        """Run the work on these addresses: replay it, record and replay it, or issue it."""
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
        """A graph for these addresses. None if recording fails; ``refused`` then says why."""
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
        """Make the recording executable, or put it into the oldest graph."""
        if len(self.kept) < KEPT:
            return ask("cuGraphInstantiate", recorded, 0)
        oldest = self.kept.popitem(last=False)[1]
        ask("cuGraphExecUpdate", oldest, recorded)
        return oldest
