"""Fusion plans: which operations share a kernel, and why others do not.

In:  a ``Graph`` and the choices of a strategy (``strategies/``). Out: a verified ``FusionPlan``.

A *pattern* is one kernel launch or one library call (FusionStitching 2020, section 4: a plan is a
set of patterns). Several patterns may compute the same cheap operation, as in XLA's fusion. But a
value that travels between patterns is written by exactly one of them.

Who decides that operations share a kernel, in this order:

 1. ``regions.planned``  cuts a long program in regions, and asks for the plan of each
 2. the strategy         proposes the operations of each kernel, as ``strategies.astitch`` does. It
                         calls ``make_plan``, which adds constants and views, and finds outputs.
                         ``auto``, the default, lets AStitch plan, then the others each of its
                         kernels. It takes the cheapest plan of each, and merges kernels
 3. ``ask.fuse``         cuts kernels of too many arguments
 4. ``regions.planned``  cuts kernels of too many statements

Before:  %1 = exp %0    After:  kernel k0: %1 %2   (%1 stays in a register)
         %2 = neg %1
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from .device import Device
from .errors import PlanError, needs
from .errors.printed import Printed
from .graph import Graph, Ids, Node, id_list
from .ops import OPS


@dataclass(frozen=True)
class Decision:
    """One choice of a strategy, a stage or a pass, as data that ``explain`` and tests can read."""

    at: Ids  # node ids
    verdict: str  # "fuse", "keep apart", "regional", "global", "keep", "recompute", ...
    rule: str  # stable name: "same-call-depth", "library-call", "argument-limit" ...
    why: str  # one sentence with the numbers used

    def __str__(self) -> str:
        return f"{id_list(self.at)}: {self.verdict} [{self.rule}] {self.why}"


Numbering = Callable[[int], int]  # the new id of a node


@dataclass(frozen=True)
class Composition:
    """How the loops of a kernel are put together. Each strategy chooses a subclass.

    ``stitch.compose`` knows what to do with each. Node ids in a composition are those of the
    pattern's body (``extract``), so equal patterns have equal compositions.
    """

    def shares(self, node: int) -> bool:
        """Whether a block keeps a value in shared memory that it also stores to global memory.

        If not, the block reads such a value back from global memory.
        """
        return False

    def renumber(self, number: Numbering) -> Composition:
        """The same composition for an equal body with other node ids."""
        return self


@dataclass(frozen=True)
class Stitching(Composition):
    """AStitch's ingredients and FusionStitching 2020's choices. Each ingredient can be left out.

    - ``adaptive``: adaptive thread mapping of reduces, with packing and splitting. Without it a
      block takes a row, the papers' baseline.
    - ``merge``: dominant merging.
    - ``keep``: values are kept for later phases. Without it they are recomputed.
    - ``barriers``: values may cross blocks behind a grid barrier.
    - ``kept``: besides reduces and outputs, only these values get loops of their own (are
      *sub-roots*, see ``stitch.subroots``). None leaves the choice to rules.
    - ``threads_per_row``: 1, 32 or more, the thread, warp and block templates.
    - ``threads``: the size of a block.

    0 leaves either of the last two to adaptive mapping. A CPU uses neither.
    """

    adaptive: bool = True
    merge: bool = True
    keep: bool = True
    barriers: bool = True
    kept: Ids | None = None
    threads_per_row: int = 0
    threads: int = 0

    def renumber(self, number: Numbering) -> Stitching:
        return self if self.kept is None else replace(self, kept=tuple(sorted(map(number, self.kept))))

    def __repr__(self) -> str:
        """``adaptive``, ``merge`` and ``keep`` always, other fields if they are not the default.

        The names of kernels depend on this text.
        """
        shown = [f"{name}={value!r}" for name, value in vars(self).items()
                 if name in ("adaptive", "merge", "keep") or value != getattr(Stitching, name)]
        return f"Stitching({', '.join(shown)})"


ALL_INGREDIENTS = Stitching()


@dataclass(frozen=True)
class Pattern:
    """One kernel, one library call, or one pipeline.

    A pipeline is a kernel whose blocks are stages that run at the same time. A library call with
    several members is a whole program that NumPy runs. ``members`` are ascending ids, which is also
    a legal order. ``outputs`` are the members that other patterns or the caller read: they are
    written to memory.
    """

    members: Ids
    outputs: Ids
    kind: str = "kernel"  # "kernel" | "library" | "pipeline"
    composition: Composition = ALL_INGREDIENTS


@dataclass(frozen=True, repr=False)
class FusionPlan(Printed):
    """All patterns of a graph in execution order, with the decisions that made them.

    ``graph`` is the graph that was planned. It may differ from the graph that the strategy got: a
    strategy may first take small products apart.
    """

    graph: Graph
    strategy: str
    patterns: tuple[Pattern, ...]
    decisions: tuple[Decision, ...] = ()

    @property
    def kernels(self) -> tuple[Pattern, ...]:
        return tuple(p for p in self.patterns if p.kind == "kernel")

    @property
    def library_calls(self) -> tuple[Pattern, ...]:
        return tuple(p for p in self.patterns if p.kind == "library")

    @property
    def pipelines(self) -> tuple[Pattern, ...]:
        return tuple(p for p in self.patterns if p.kind == "pipeline")

    def __str__(self) -> str:
        lines = [f"# after fuse ({self.strategy}): {count(len(self.graph), 'node')} -> "
                 f"{count(len(self.kernels), 'kernel')}, {count(len(self.library_calls), 'library call')}"
                 + (f", {count(len(self.pipelines), 'pipeline')}" if self.pipelines else "")]
        for number, pattern in enumerate(self.patterns):
            ops = " ".join(f"%{m}:{self.graph[m].op}" for m in pattern.members)
            lines.append(f"{pattern.kind} {number}: {ops} -> {id_list(pattern.outputs)}")
        return "\n".join(lines)


def count(n: int, word: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{n} {word}" + ("" if n == 1 else "s")


# ---------------------------------------------------------------- what every strategy needs
# Scalar operations that a heavy one counts for on a GPU: the length of its polynomial.
HEAVY_OPERATIONS = 16
# Views. Inside a kernel these moves only change an index.
VIEWS = frozenset({"broadcast", "reshape", "transpose", "slice"})
GENERATED = frozenset({"constant", "iota"})  # read no memory: each reader makes its own
# inputs and outputs of one kernel (BladeDISC's bound; CUDA takes 4 kB of parameters)
MOST_ARGUMENTS = 64


def is_fusible(node: Node) -> bool:
    """Whether a kernel of ours can hold the node: in the papers' words, it is memory-intensive."""
    return node.kind in ("map", "reduce", "move")


def is_heavy(graph: Graph, node: Node) -> bool:
    """Heavy element-wise (AStitch 2.2). Division by a constant is light."""
    if node.op in ("div", "floor_divide", "mod") and graph[node.args[1]].op == "constant":
        return False
    return OPS[node.op].cost == "heavy"


def stretches(graph: Graph, node: Node) -> bool:
    """True when some consumer broadcasts the value, directly or behind reshapes."""
    pending = list(graph.users[node.id])
    for user in pending:
        op = graph[user].op
        if op == "broadcast" and graph[user].type.size > node.type.size:
            return True
        if op == "reshape":
            pending.extend(graph.users[user])
    return False


def _behind(graph: Graph, value: int, views: Container[str]) -> int:
    """The first value up the chain of operands that is not one of these views."""
    while graph[value].op in views:
        value = graph[value].args[0]
    return value


# Three functions look through views. ``read_in_place`` looks through reshapes only: a kernel's
# buffer has the same bytes in the same order. ``view_source`` looks through all that strides can
# express, because a library call takes strides. ``behind_views`` looks through all views: it finds
# the operation that made the data.
def read_in_place(graph: Graph, value: int) -> int:
    """The value whose memory holds ``value`` unchanged: the same, or what it is a reshape of."""
    return _behind(graph, value, ("reshape",))


def returned(graph: Graph) -> set[int]:
    """The values in memory that the caller gets. Some may be inputs of the program."""
    return {read_in_place(graph, output) for output in graph.outputs}


def view_source(graph: Graph, value: int) -> int:
    """The value whose memory a library call can read ``value`` from, by strides alone.

    Transposes, slices and broadcasts of a reshape are strides. A reshape of a transpose is a copy,
    so the walk stops there, and the transposed value must be in memory.
    """
    return read_in_place(graph, _behind(graph, value, VIEWS - {"reshape"}))


def behind_views(graph: Graph, value: int) -> int:
    """The value at the end of a chain of views."""
    return _behind(graph, value, VIEWS)


# ---------------------------------------------------------------- from kernels to a plan
def make_plan(graph: Graph, strategy: str, kernels: Iterable[Sequence[int]],
              decisions: Iterable[Decision] = (),
              composition: Composition = ALL_INGREDIENTS,
              pipelines: Iterable[Sequence[int]] = (),
              read: Iterable[Container[int]] = ()) -> FusionPlan:
    """Turn lists of node ids into an ordered, verified plan.

    ``kernels`` has the fusible nodes of each kernel. A library node becomes a pattern of its own,
    unless one of the ``pipelines`` holds it. Sources need not be listed, nor views that are not
    stored (``operations_of``): every pattern that reads one computes it. But of those in ``read``,
    which has a set for each pipeline, the pipeline reads what another pattern writes. The outputs
    of each kernel are found here. All kernels get the ``composition``. ``decisions`` are kept in
    the plan. Raises PlanError for an id of no fusible node and for kernels that wait for each
    other, MinisitchError for arguments of another kind.
    """
    listed = _checked(graph, strategy, kernels)
    flows = [Pattern(tuple(p), (), "pipeline") for p in pipelines]
    inside = {member for flow in flows for member in flow.members}
    calls = [n.id for n in graph.nodes if n.kind == "library" and n.id not in inside]
    # What each pattern is asked to make. ``_with_views`` adds what it computes, but does not write.
    asked = [Pattern(tuple(k), (), "kernel", composition) for k in listed if k]
    asked += [Pattern((call,), (call,), "library") for call in calls] + flows
    apart = dict(zip(flows, read, strict=False))
    patterns = [_with_views(graph, p, apart.get(p, ())) for p in asked]
    # A needed value in no list gets a kernel of its own: an operation, a returned constant, an
    # input's view. That kernel may need further values.
    while missing := _needed_outside(graph, patterns).difference(*(p.members for p in asked)):
        alone = [Pattern((v,), (), "kernel", composition) for v in sorted(missing)]
        asked += alone
        patterns += [_with_views(graph, p) for p in alone]
    patterns = _with_outputs(graph, patterns, asked)
    ordered = in_order(graph, patterns, f"strategy {strategy}: ")
    return verify_plan(FusionPlan(graph, strategy, ordered, tuple(decisions)))


def _checked(graph: Graph, strategy: str, kernels: Iterable[Sequence[int]]) -> list[Sequence[int]]:
    """The kernels as a list. Raises PlanError if they are not lists of ids of fusible nodes."""
    needs("make_plan(graph, 'mine', [[1, 2], [3]])",
          (graph, Graph), (strategy, str), (kernels, Iterable))
    listed = list(kernels)
    if flat := [k for k in listed if isinstance(k, int)]:
        raise PlanError(f"strategy {strategy}: {flat[0]} is not a kernel; a kernel is a list of ids, as in [[1, 2], [3]]")
    for i in chain.from_iterable(listed):
        if not isinstance(i, int) or not 0 <= i < len(graph) or not is_fusible(graph[i]):
            raise PlanError(f"strategy {strategy}: a kernel has {next((n for n in graph.nodes if repr(n.id) == repr(i)), repr(i))}"
                            f"; it may hold ids (node.id) of nodes for which is_fusible(node) is true, of %0 to %{len(graph) - 1}")
    return listed


def stored_values(graph: Graph) -> set[int]:
    """Values that a kernel must store under every plan: library calls or the caller read them."""
    by_calls = {view_source(graph, a) for n in graph.nodes
                if n.kind == "library" for a in n.args}
    return {v for v in by_calls | returned(graph) if is_fusible(graph[v])}


def operations_of(graph: Graph) -> list[int]:
    """What the lists for ``make_plan`` must hold: fusible nodes, but of the views only stored ones."""
    stored = stored_values(graph)
    return [n.id for n in graph.nodes if is_fusible(n)
            and (n.op not in VIEWS or n.id in stored)]


def _with_views(graph: Graph, pattern: Pattern, apart: Container[int] = ()) -> Pattern:
    """The pattern with the constants, iotas and views that its members read, except ``apart``."""
    if pattern.kind == "library":
        return pattern
    nodes, members, pending = graph.nodes, set(pattern.members), list(pattern.members)
    while pending:
        for arg in nodes[pending.pop()].args:
            if arg not in members and arg not in apart and nodes[arg].op in VIEWS | GENERATED:
                members.add(arg)
                pending.append(arg)
    return replace(pattern, members=tuple(sorted(members)))


def _needed_outside(graph: Graph, patterns: Sequence[Pattern]) -> set[int]:
    """Values that must be in memory: the caller or a pattern that does not hold them reads them."""
    needed = returned(graph).union(*(pattern_inputs(graph, p) for p in patterns))
    return needed.difference(graph.inputs)


def _with_outputs(graph: Graph, patterns: Sequence[Pattern], asked: Sequence[Pattern]) -> list[Pattern]:
    """Give each value that must be in memory to the first pattern that was asked to make it.

    ``asked`` are the ``patterns`` before views were added. A pattern that is left with no output is
    dropped.
    """
    left, found = _needed_outside(graph, patterns), []
    for pattern, before in zip(patterns, asked, strict=True):
        outputs = before.outputs or tuple(sorted(left.intersection(before.members)))
        left.difference_update(before.members)
        if outputs:
            found.append(replace(pattern, outputs=outputs))
    return found


def in_order(graph: Graph, patterns: Sequence[Pattern], strategy: str = "") -> tuple[Pattern, ...]:
    """The patterns in an order in which each comes after those that write what it reads.

    Of several patterns that may come next, the one whose last output has the smallest id comes
    first. Raises PlanError if patterns wait for each other in a circle.
    """
    writer = {o: i for i, p in enumerate(patterns) for o in p.outputs}
    after: list[set[int]] = [set() for _ in patterns]
    for i, pattern in enumerate(patterns):
        for j in {writer.get(v, i) for v in pattern_inputs(graph, pattern)} - {i}:
            after[j].add(i)
    order = topological(after, lambda i: patterns[i].outputs[-1])
    if stuck := sorted(set(range(len(patterns))).difference(order)):
        raise PlanError(f"{strategy}kernels wait in a circle, among those that write "
                        f"{[patterns[i].outputs for i in stuck[:3]]}; join them or cut one")
    return tuple(patterns[i] for i in order)


def topological(after: Sequence[Iterable[int]], rank: Callable[[int], int]) -> list[int]:
    """All positions in an order that has every ``after[i]`` behind i, and small ``rank`` first.

    Positions on a circle, and behind one, are left out.
    """
    waits = Counter(chain.from_iterable(after))
    ready = sorted((rank(i), i) for i in range(len(after)) if not waits[i])  # sorted, so a heap
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready)[1])
        for j in after[order[-1]]:
            waits[j] -= 1
            if not waits[j]:
                heapq.heappush(ready, (rank(j), j))
    return order


def pattern_inputs(graph: Graph, pattern: Pattern) -> Ids:
    """The values in memory that a pattern reads, ascending. A view counts as the value it views."""
    nodes, inside = graph.nodes, set(pattern.members)
    inputs = {member for member in inside if nodes[member].op == "input"}
    outside = {arg for member in inside for arg in nodes[member].args} - inside
    source = view_source if pattern.kind == "library" else read_in_place
    return tuple(sorted(inputs.union(source(graph, arg) for arg in outside)))


def verify_plan(plan: FusionPlan) -> FusionPlan:
    """Check that nothing is lost, doubled or read too early, and return the plan unchanged.

    Raises PlanError naming the value. Every needed value must be written exactly once, by a pattern
    that holds it, before it is read. Library calls must stay between kernels.
    """
    needs("verify_plan(minisitch.lower(f, x, stop_after='fuse'))", (plan, FusionPlan))
    graph, written = plan.graph, set(plan.graph.inputs)
    for pattern in plan.patterns:
        for member in pattern.members if pattern.kind == "kernel" else ():
            if graph[member].kind == "library":
                raise PlanError(f"%{member} {graph[member].op} is a library call; it cannot be inside a kernel")
        for value in pattern_inputs(graph, pattern):
            if value not in written and value not in pattern.members:
                raise PlanError(f"the pattern that writes {pattern.outputs} reads %{value} before it is written; move it back")
        for value in pattern.outputs:
            if value not in pattern.members:
                raise PlanError(f"the pattern of {pattern.members[:3]} writes %{value}, which is not its member")
            if value in written:
                raise PlanError(f"%{value} {graph[value].op} is written by two patterns; let one write it")
            written.add(value)
    if missing := sorted(returned(graph) - written):
        raise PlanError(f"no pattern writes output %{missing[0]} {graph[missing[0]].op}; a pattern must")
    return plan


# ---------------------------------------------------------------- the registry of strategies
Strategy = Callable[[Graph, Device], FusionPlan]
STRATEGIES: dict[str, Strategy] = {}


def strategy(name: str) -> Callable[[Strategy], Strategy]:
    """Register a function from Graph and Device to FusionPlan under a name.

    A strategy from outside the package registers in the same way. Then
    ``minisitch.jit(f, strategy="mine")`` uses it. The package's names cannot be taken: ``auto``
    asks for their plans, and plans kept on disk are trusted by name. Raises PlanError for such a
    name, and MinisitchError for other kinds than a name and a function.
    """
    needs("@strategy('mine')", (name, str))

    def register(function: Strategy) -> Strategy:
        needs("strategy('mine')(function)", (function, Callable))
        known = getattr(STRATEGIES.get(name), "__module__", "")
        if known.startswith(f"{__package__}.") and known != function.__module__:
            raise PlanError(f"{name!r} is a strategy of this package; register yours under another name")
        STRATEGIES[name] = function
        return function
    return register

