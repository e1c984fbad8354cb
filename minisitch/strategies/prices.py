"""Build the kernel of a pattern, and price it with the cost model.

In:  a body (``stitch.windows.body_of``), a ``Device`` and a ``Composition``.
Out: a ``Kernel``, microseconds.

A pattern's price is the modelled time of the kernel that would run. Strategies use these prices to
choose between plans. Equal bodies are built once.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from weakref import WeakValueDictionary

from ..device import Device
from ..errors import KernelError, PlanError
from ..fuse import ALL_INGREDIENTS, Composition, FusionPlan, Pattern
from ..graph import Graph
from ..kernel import Kernel
from ..passes.registry import DEFAULTS, default_kernel, kernel_of
from ..stitch.compose import compose
from ..stitch.windows import body_of
from .cost import kernel_us, library_us, working_set


def digest(graph: Graph, composition: Composition = ALL_INGREDIENTS) -> str:
    """Hash of a graph's structure and composition. Equal kernels have equal digests.

    The constants 0.0 and -0.0 differ.
    """
    return hashlib.sha256(f"({graph.structure}, {composition!r})".encode()).hexdigest()


class _Kernels(dict[str, Kernel]):
    """The kernels of one device by digest. (A subclass of ``dict``, to allow weak references.)

    ``bodies`` holds one graph for each structure, with all that was derived from it.
    """

    def __init__(self) -> None:
        self.bodies: dict[str, Graph] = {}
        self.refused: dict[str, PlanError | KernelError] = {}  # bodies that cannot be built
        # A kernel's id and a program's bytes -> its price.
        self.us: dict[tuple[int, int], tuple[float, Kernel]] = {}


# A device's table lives as long as ``shared_kernels`` or a ``Prices`` object uses it.
_tables: WeakValueDictionary[Device, _Kernels] = WeakValueDictionary()


def forget_kernels() -> None:
    """Build no kernel by one that is known already, not even for ``Prices`` objects that live."""
    _tables.clear()


@contextmanager
def shared_kernels(device: Device) -> Iterator[None]:
    """Build equal bodies once for this device while the context is open."""
    table = _tables.setdefault(device, _Kernels())
    yield
    del table


def scheduled(body: Graph, device: Device, composition: Composition, passes: tuple[str, ...]) -> Kernel:
    """The kernel of a body after the passes.

    If a strategy has built it to know its price, it is not built again.
    """
    if passes == DEFAULTS[device.kind]:
        return built(body, device, composition)
    return kernel_of(compose(body, device, composition), passes)


def built(graph: Graph, device: Device, composition: Composition) -> Kernel:
    """The kernel of a body after the default passes.

    Equal bodies are built once within ``shared_kernels``, or while a ``Prices`` object lives.
    Raises PlanError or KernelError if the body cannot be built.
    """
    known, key = _tables.get(device, _Kernels()), digest(graph, composition)
    if key in known.refused:
        raise copy(known.refused[key])
    if key not in known:
        try:
            known[key] = default_kernel(compose(known.bodies.setdefault(graph.structure, graph), device, composition))
        except (PlanError, KernelError) as refused:
            known.refused[key] = copy(refused)  # a traceback would keep this table alive
            raise
    return known[key]


class Prices:
    """Modelled microseconds of patterns of one graph on one device.

    Each different kernel is built once, and all ``Prices`` of a device share their kernels.
    If the graph is a part of a program, ``around`` is the program's working set in bytes.
    """

    def __init__(self, graph: Graph, device: Device, around: int = 0) -> None:
        self.graph, self.device, self.around = graph, device, around or working_set(graph)
        self._shared = _tables.setdefault(device, _Kernels())  # keeps the table of ``built`` alive
        self._by_pattern: dict[Pattern, Kernel] = {}
        self._bodies: dict[tuple[tuple[int, ...], tuple[int, ...], str], Graph] = {}

    def body(self, pattern: Pattern) -> Graph:
        """The pattern as a graph of its own, extracted once for all its compositions."""
        key = pattern.members, pattern.outputs, pattern.kind
        if key not in self._bodies:
            self._bodies[key] = body_of(self.graph, pattern).graph
        return self._bodies[key]

    def kernel(self, pattern: Pattern) -> Kernel:
        """The kernel of a pattern whose outputs are set. Raises as ``built`` does."""
        if pattern not in self._by_pattern:
            self._by_pattern[pattern] = built(self.body(pattern), self.device, pattern.composition)
        return self._by_pattern[pattern]

    def pattern_us(self, pattern: Pattern) -> float:
        """Modelled microseconds of one launch or one library call."""
        if pattern.kind == "library":
            return library_us(self.graph, self.graph[pattern.members[0]], self.device)
        # Equal bodies share a kernel, which is priced once.
        kernel, known = self.kernel(pattern), self._shared.us
        key = id(kernel), self.around
        if key not in known:
            # The kernel is held, so that no other has its id.
            known[key] = kernel_us(kernel, self.around), kernel
        return known[key][0]

    def plan_us(self, plan: FusionPlan) -> float:
        """Modelled microseconds of a plan: the sum over its launches and library calls."""
        return sum(map(self.pattern_us, plan.patterns))
