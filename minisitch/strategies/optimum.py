"""The best plan of a small graph, found by search. Every strategy can be graded against it.

In:  a simplified ``Graph``, a ``Device``, and known plans. Out: a ``FusionPlan`` named ``optimum``.

The papers compare compilers with each other, never with the best plan. Here a plan is a sequence of
kernels. A kernel reads values that are in memory, recomputes other values that it needs, and writes
values that a later kernel, a library call or the caller reads. This space contains XLA's plans,
which recompute, and AStitch's, which do not.

A later kernel depends on earlier ones only through the set of values in memory. So the best plan is
a shortest path from the empty set to a set with all required values, and A* finds it (Hart,
Nilsson, Raphael 1968). A kernel is built and priced only if lower bounds leave room for a better
plan.

Before:  %1 = max %0; %4 = exp(%0 - %1); %5 = sum %4; %7 = %4 / %5; return %7
After:   {} -> {%7}: one kernel that writes %7, 10.4 us on a V100; no other had to be built
"""

import functools
import heapq
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

from ..device import Device
from ..errors import KernelError, PlanError
from ..fuse import (
    MOST_ARGUMENTS,
    VIEWS,
    Decision,
    FusionPlan,
    Pattern,
    Stitching,
    count,
    in_order,
    is_fusible,
    returned,
    verify_plan,
    view_source,
)
from ..graph import Graph, Node
from .cost import library_us
from .fs20.explore import bits
from .prices import Prices

MOST_VALUES = 11  # operations whose result may be in memory: at most 2048 sets and 3^11 kernels
# Compositions that are tried for every kernel. A known plan adds its own. One that names values is
# tried only for the plan's own kernel.
COMPOSITIONS = (Stitching(), Stitching(adaptive=False), Stitching(merge=False),
                Stitching(keep=False))


def optimum(graph: Graph, device: Device, plans: Sequence[FusionPlan] = ()) -> FusionPlan:
    """The plan of least modelled time (``Prices``) in the space above and among ``plans``.

    Plans with pipelines are left out: a pipeline is no kernel of this space.
    Raises PlanError if the graph has more than ``MOST_VALUES`` operations.
    """
    plans = [plan for plan in plans if not plan.pipelines]
    space = PlanSpace(graph, device, plans)
    known = min(((Prices(p.graph, device).plan_us(p), i) for i, p in enumerate(plans)),
                default=(inf, -1))
    path = search(space, known[0] - sum(library_us(graph, graph[c], device) for c in space.needs))
    if path is None:
        best = plans[known[1]]
        said = [(p, f"as {best.strategy} has it: no plan of the space takes less than its {known[0]:.1f} us") for p in best.kernels]
    else:
        calls = [Pattern((call,), (call,), "library") for call in space.needs]
        best = verify_plan(FusionPlan(graph, "optimum", in_order(graph, [*(p for _, p in path), *calls])))
        said = [(p, f"{us:.1f} us") for us, p in path]
    built = f"{count(len(space.priced), 'kernel')} built to know"
    decisions = tuple(Decision(p.outputs, "fuse", "best-first-search", f"{why}; {built}")
                      for p, why in said)
    return replace(best, strategy="optimum", decisions=decisions)


def moved_us(nbytes: int, device: Device) -> float:
    """Lower bound on the time to move ``nbytes``, in microseconds."""
    cache = next((at for at in device.caches if nbytes <= at.size),
                 device.caches[-1]) if device.caches else None
    return nbytes / (max(cache.one_core, cache.all_cores) if cache else device.bandwidth) * 1e6


def union(sets: Iterable[int]) -> int:
    """All values that are in any of the sets."""
    return functools.reduce(operator.or_, sets, 0)


class PlanSpace:
    """All kernels that a plan of one graph may hold.

    A set of values is an integer: bit ``k`` stands for node ``k``.
    """

    def __init__(self, graph: Graph, device: Device, plans: Sequence[FusionPlan] = ()) -> None:
        self.graph, self.device, self.prices = graph, device, Prices(graph, device)
        self._moved_us = [moved_us(n.type.nbytes, device) for n in graph.nodes]
        self.priced: dict[tuple[int, int], tuple[float, Pattern]] = {}
        self._sweeps: dict[int, tuple[list[int], list[int], int]] = {}
        self.known = [p for plan in plans if plan.graph == graph for p in plan.kernels]
        self.ways = (*COMPOSITIONS, *(p.composition for p in self.known
                                      if isinstance(p.composition, Stitching)
                                      and p.composition.kept is None))
        self.needs: dict[int, int] = {}  # library call -> values that it reads from memory
        for node in graph.nodes:
            if node.kind == "library":
                self.needs[node.id] = self._stored(view_source(graph, a) for a in node.args)
        self.required = self._stored(returned(graph)) | union(self.needs.values())
        live = union(self.sweep(0)[0][value] for value in bits(self.required))
        self.values = [v for v in bits(live) if self.required >> v & 1 or _computes(graph[v])]
        if len(self.values) > MOST_VALUES:
            raise PlanError(f"the exact optimum is searched for up to {MOST_VALUES} operations, "
                            f"but this graph has {len(self.values)}: take a part of the program")

    def _stored(self, values: Iterable[int]) -> int:
        """What kernels must have written before these values can be read from memory."""
        return union(self.needs.get(v, 1 << v) for v in values if self.graph[v].op != "input")

    def sweep(self, done: int) -> tuple[list[int], list[int], int]:
        """Three facts for each value, while the values ``done`` are in memory.

        Returns ``(held, whole, memory)``. ``held[v]`` is what a kernel that makes ``v`` contains or
        reads. ``whole[v]`` is the part of ``held[v]`` of which it needs every element. ``memory``
        is the set of values that are read: inputs, library results, and ``done``.
        """
        if done not in self._sweeps:
            held: list[int] = []
            whole: list[int] = []
            memory = 0
            for node in self.graph.nodes:
                held.append(1 << node.id)
                whole.append(1 << node.id)
                if node.op == "input" or node.kind == "library" or (done >> node.id & 1 and node.op not in VIEWS):
                    memory |= 1 << node.id  # views are never stored: they are read through
                for arg in node.args if is_fusible(node) else ():
                    held[-1] |= 1 << arg if memory >> arg & 1 else held[arg]
                    if node.type.size and (node.kind != "move"
                                           or node.op in ("broadcast", "reshape", "transpose")):
                        whole[-1] |= 1 << arg if memory >> arg & 1 else whole[arg]
            self._sweeps[done] = held, whole, memory
        return self._sweeps[done]

    def kernel(self, made: int, done: int) -> tuple[int, int]:
        """The values inside a kernel that writes ``made``, and the values that it reads."""
        held, _, memory = self.sweep(done)
        inside = union(held[value] for value in bits(made))
        return inside & ~memory, inside & memory

    def is_legal(self, made: int, done: int) -> bool:
        """Whether a kernel can run: its library calls are done, its arguments within the limit."""
        holds, reads = self.kernel(made, done)
        called = all(not self.needs.get(v, 0) & ~done for v in bits(reads))
        few = reads.bit_count() + made.bit_count() <= MOST_ARGUMENTS
        return called and (few or sum(_computes(self.graph[v]) for v in bits(holds)) <= 1)

    def is_read_later(self, made: int, done: int) -> bool:
        """Whether the caller, a library call or a later kernel can read each value of ``made``."""
        held = self.sweep(done | made)[0]
        later = union(held[value] for value in bits(self.required & ~done & ~made))
        return not made & ~self.required & ~later

    def least_us(self, made: int, done: int) -> float:
        """Lower bound on a kernel's microseconds: its launch, its writes and its certain reads."""
        _, whole, memory = self.sweep(done)
        needed = union(whole[value] for value in bits(made))
        return self.device.launch_us + sum(self._moved_us[v] for v in bits(made | needed & memory))

    def rest_us(self, done: int) -> float:
        """Lower bound on the microseconds of all kernels after ``done``.

        The bound is one kernel for all missing values, plus a launch for each library call that
        must stand between kernels.
        """
        missing = self.required & ~done
        if not missing:
            return 0.0
        waits: dict[int, int] = {}  # missing value -> least number of kernels up to it
        for value in bits(missing):
            before = union(self.needs.get(v, 0) for v in bits(self.sweep(0)[0][value]))
            waits[value] = 1 + max((waits[v] for v in bits(before & missing) if v in waits),
                                   default=0)
        return self.least_us(missing, done) + (max(waits.values()) - 1) * self.device.launch_us

    def steps(self, done: int, room: float) -> Iterator[tuple[int, float]]:
        """The sets of values that the next kernel may write, each with its lower bound.

        ``room`` is the number of microseconds that a better plan has left.
        """
        free = [v for v in self.values if not done >> v & 1]
        pending = [(0, 0)]
        while pending:
            made, first = pending.pop()
            for i in range(first, len(free)):
                more = made | 1 << free[i]
                least = self.least_us(more, done)
                if least < room and self.is_legal(more, done) and self.is_read_later(more, done):
                    yield more, least
                    pending.append((more, i + 1))  # a set that failed also fails with more values

    def price(self, made: int, done: int) -> tuple[float, Pattern]:
        """Price and pattern of the kernel that writes ``made``, with its best composition."""
        holds, reads = self.kernel(made, done)
        if (made, reads) not in self.priced:
            pattern = Pattern(tuple(bits(holds)), tuple(bits(made)))
            own = (p.composition for p in self.known if (p.members, p.outputs) == (pattern.members, pattern.outputs))
            ways = [replace(pattern, composition=c) for c in dict.fromkeys((*self.ways, *own))]
            self.priced[made, reads] = min(((self._us(p), p) for p in ways), key=lambda f: f[0])
        return self.priced[made, reads]

    def _us(self, pattern: Pattern) -> float:
        """The modelled time, or infinity if another kernel's composition does not fit this one."""
        try:
            return self.prices.pattern_us(pattern)
        except (PlanError, KernelError):
            if pattern.composition in COMPOSITIONS:
                raise
            return inf


def _computes(node: Node) -> bool:
    return is_fusible(node) and node.op not in VIEWS


def search(space: PlanSpace, bound: float) -> list[tuple[float, Pattern]] | None:
    """The cheapest plan below ``bound`` microseconds: its kernels in order, each with its price.

    None if there is no such plan.
    """
    spent = {0: 0.0}
    came: dict[int, tuple[int, float, Pattern]] = {}
    expanded: set[int] = set()
    # Entries: lower bound on the plan's time, values in memory, values that the next kernel writes.
    pending = [(space.rest_us(0), 0, 0)]
    while pending and pending[0][0] < bound:
        _, done, made = heapq.heappop(pending)
        if made:  # the kernel is built only now, when no entry has a lower bound
            us, pattern = space.price(made, done)
            if spent[done] + us < spent.get(done | made, inf):
                spent[done | made] = spent[done] + us
                came[done | made] = done, us, pattern
                heapq.heappush(pending, (spent[done | made] + space.rest_us(done | made), done | made, 0))
        elif not space.required & ~done:
            path = []
            while done:
                done, us, pattern = came[done]
                path.append((us, pattern))
            return path[::-1]
        elif done not in expanded:
            expanded.add(done)
            for more, least in space.steps(done, bound - spent[done]):
                least += spent[done] + space.rest_us(done | more)
                if least < bound:
                    heapq.heappush(pending, (least, done, more))
    return None
