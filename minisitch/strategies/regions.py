"""Plan long programs in regions: equal regions are planned once, equal kernels compiled once.

In:  a graph, a strategy's name, a device. Out: that strategy's plan. Its kernels have at most
``MOST_STATEMENTS`` statements, and no more arguments than ``ask.fuse`` allows.

Tracing unrolls Python loops, so K rounds become K equal pieces of the graph. A strategy could
stitch all of them in one kernel of thousands of statements, which takes minutes to compile. K
small equal kernels take as long as one. So the graph is cut into consecutive regions if AStitch,
which stitches most, would make a far too large kernel. The strategy plans each different region
once, as a program of its own. Shorter programs are planned whole.

If a loop's windows differ from round to round, so do the regions. A thousand of them would take
many minutes to compile, and hold little work each. On a CPU such a program becomes one library
call, and ``jit`` runs the function as NumPy would.

Before:  %1 = f %0; %2 = f %1; ... %60 = f %59            one kernel of 300 operations
After:   {%1 ... %12} {%13 ... %24} ... {%49 ... %60}     five regions, planned once
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise

from ..device import Device
from ..errors import KernelError, PlanError
from ..fuse import (
    GENERATED,
    VIEWS,
    Decision,
    FusionPlan,
    Pattern,
    behind_views,
    count,
    is_fusible,
    make_plan,
    returned,
    verify_plan,
    view_source,
)
from ..graph import Graph, Node
from ..kernel.nests import statements_of
from ..stitch.body import Body
from ..stitch.dominants import evaluations
from ..stitch.windows import body_of
from .ask import fuse, in_whole, within_arguments
from .astitch import stitched
from .prices import built, digest

MOST_STITCHED = 256  # operations in AStitch's largest kernel of a program that is planned whole
MOST_OPERATIONS = 64  # of a region
MOST_STATEMENTS = 256  # of a kernel (compile time); the papers' largest kernel has 191
# Statements of all different kernels that a CPU compiles, in about a minute of one core.
MOST_COMPILED = 4_000
OF_REGIONS = 2  # ``_statements`` of a region is about this many times what its kernels have
# A kernel takes as long to compile as this many statements more of another one.
STATEMENTS_EACH = 16
# Different regions that ``auto`` plans, in about a second each: one for each ``WEIGHED_PER`` nodes,
# at most ``MOST_WEIGHED``. It also plans parts of their kernels, until ``WEIGHED_NODES`` for each
# region are used up. AStitch plans the others.
MOST_WEIGHED, WEIGHED_PER, WEIGHED_NODES = 4, 1000, 200
REPEATS = 4  # a cut before an operation requires that it repeats through 1/REPEATS of the program


def planned(graph: Graph, name: str, device: Device) -> FusionPlan:
    """Plan as ``ask.fuse`` does, but long programs in regions. Cut kernels that are too large.

    Raises PlanError and KernelError as the strategy does.
    """
    planner = _Regions(name, device, min(MOST_WEIGHED, -(-len(graph) // WEIGHED_PER)))
    long = _is_long(graph, device)
    return planner.bounded(planner.cut(graph, MOST_OPERATIONS) if long else fuse(graph, name, device))


def runs_in_numpy(plan: FusionPlan) -> bool:
    """Whether NumPy runs the whole program, as one call."""
    return any(len(p.members) > 1 for p in plan.library_calls)


def _is_long(graph: Graph, device: Device) -> bool:
    """Whether one of AStitch's kernels would be so large that the program needs regions."""
    if _operations(graph) <= MOST_OPERATIONS:
        return False
    statements: dict[str, int] = {}
    with suppress(PlanError, KernelError):
        for pattern in within_arguments(stitched(graph)).kernels:
            operations = _operations(graph, pattern.members)
            if operations > MOST_STITCHED:
                return True
            body = body_of(graph, pattern).graph
            statements[digest(body)] = _statements(body)
            if 2 * operations > MOST_OPERATIONS and evaluations(body) > 2 * MOST_STATEMENTS:
                return True
    return device.kind == "cpu" and sum(statements.values()) > MOST_COMPILED


def _statements(body: Graph) -> int:
    """An estimate of what a region's kernels take to compile. Library calls cut it into kernels."""
    calls = sum(node.kind == "library" for node in body.nodes)
    return (2 * len(body) if calls else evaluations(body)) + STATEMENTS_EACH * (1 + calls)


class _Regions:
    """Plans regions with one strategy, each different region once."""

    def __init__(self, name: str, device: Device, weighed: int) -> None:
        self.name, self.device, self.weighed = name, device, weighed  # regions that a cut weighs
        self.nodes = WEIGHED_NODES * weighed  # that all cuts together weigh
        self.known: dict[str, FusionPlan] = {}
        self.statements: dict[str, int] = {}  # digest of a kernel -> its statements

    def cut(self, graph: Graph, most: int) -> FusionPlan:
        """The plan in regions of at most ``most`` operations."""
        spans = regions(graph, most)
        loops = [[i for i in span if _computes(graph[i])] for span in spans]
        loops, read = _with_stored(graph, loops)
        drawn = make_plan(graph, self.name, [], pipelines=loops, read=read)
        bodies = {r: body_of(graph, r) for r in drawn.patterns if r.kind == "pipeline"}
        keys = {region: digest(body.graph) for region, body in bodies.items()}
        different = {keys[region]: body.graph for region, body in bodies.items()}
        statements = sum(map(_statements, different.values())) // OF_REGIONS
        if statements > MOST_COMPILED and self.device.kind == "cpu":
            return self._left_to_numpy(graph, len(different), statements)
        copies = Counter(keys.values())
        by_work = sorted(different, key=lambda key: -copies[key] * _operations(different[key]))
        # ``bounded`` cuts most larger ones, and their parts are weighed.
        weighed = [key for key in by_work[:self.weighed] if evaluations(different[key]) <= MOST_STATEMENTS]
        self.nodes -= sum(len(different[key]) for key in weighed if key not in self.known)
        if self.nodes <= 0:
            self.weighed = 0  # from the next cut on
        operations = count(_operations(graph), "operation")
        why = (f"{operations} in {count(len(spans), 'region')} of at most {most}, cut where the "
               f"program repeats; {len(different)} different")
        if self.name == "auto" and len(weighed) < len(different):
            why += f"; auto plans {len(weighed)} of them, and astitch the others, which takes less time"
        decisions = [Decision(graph.outputs, "keep apart", "region", why)]
        patterns: list[Pattern] = []
        for region in drawn.patterns:
            key = keys.get(region)
            patterns += self._planned(bodies[region], key, key in weighed, decisions) if key else [region]
        return verify_plan(FusionPlan(graph, self.name, tuple(patterns), tuple(decisions)))

    def _left_to_numpy(self, graph: Graph, regions: int, statements: int) -> FusionPlan:
        """The whole program as one call of NumPy, and why."""
        line, _ = Counter(node.where for node in graph.nodes if node.where).most_common(1)[0]
        why = (f"{line}: {count(_operations(graph), 'operation')}, most of them from this line, are "
               f"{count(regions, 'different region')} of about {statements} statements; at most "
               f"{MOST_COMPILED} are compiled, so NumPy runs this program as it is. Write the loop "
               "over whole arrays, let its rounds have arrays of one size, or jit its body alone")
        members = tuple(node.id for node in graph.nodes if node.op != "input")
        call = Pattern(members, tuple(sorted(returned(graph).difference(graph.inputs))), "library")
        said = Decision(graph.outputs, "keep apart", "too-many-kernels", why)
        return verify_plan(FusionPlan(graph, self.name, (call,), (said,)))

    def _planned(self, body: Body, key: str, weighed: bool,
                 decisions: list[Decision]) -> list[Pattern]:
        """The kernels of a region. Regions with equal keys are planned once."""
        if key not in self.known:
            name = self.name if weighed or self.name != "auto" else "astitch"
            plan = fuse(body.graph, name, self.device)
            if plan.graph is not body.graph:  # the strategy has rewritten it
                plan = within_arguments(stitched(body.graph))
            self.known[key] = plan
            decisions += body.decisions_in_whole(plan.decisions)
        return [in_whole(pattern, body) for pattern in self.known[key].patterns]

    def bounded(self, plan: FusionPlan) -> FusionPlan:
        """The plan, with each kernel of more than ``MOST_STATEMENTS`` statements cut in pieces."""
        patterns: list[Pattern] = []
        decisions = list(plan.decisions)
        for pattern in plan.patterns:
            operations = _operations(plan.graph, pattern.members)
            body = body_of(plan.graph, pattern) if pattern.kind == "kernel" and operations > 1 else None
            pieces = [pattern]
            if body and (statements := self._too_many(body, pattern)):
                halves = self.bounded(self.cut(body.graph, -(-operations // 2)))
                pieces = [in_whole(piece, body) for piece in halves.patterns]
                why = (f"one kernel of {count(operations, 'operation')} would have {statements} "
                       f"statements; at most {MOST_STATEMENTS}")
                decisions.append(Decision(pattern.outputs, "keep apart", "too-many-statements", why))
            patterns += pieces
        return plan if len(patterns) == len(plan.patterns) else verify_plan(
            replace(plan, patterns=tuple(patterns), decisions=tuple(decisions)))

    def _too_many(self, body: Body, pattern: Pattern) -> int:
        """The kernel's statements if they are too many, else 0. Also 0 if it cannot be built."""
        key = digest(body.graph, pattern.composition)
        if key not in self.statements:
            self.statements[key] = evaluations(body.graph)
            if self.statements[key] <= 2 * MOST_STATEMENTS:
                with suppress(PlanError, KernelError):
                    self.statements[key] = statements_of(built(body.graph, self.device, pattern.composition))
        return self.statements[key] if self.statements[key] > MOST_STATEMENTS else 0


def _computes(node: Node) -> bool:
    """Whether a node computes or moves something: it is no source and no view."""
    return node.kind != "source" and node.op not in VIEWS


def _operations(graph: Graph, members: Iterable[int] | None = None) -> int:
    """How many nodes, or how many of these, compute or move something."""
    chosen = graph.nodes if members is None else [graph.nodes[m] for m in members]
    return sum(map(_computes, chosen))


def _with_stored(graph: Graph, loops: Iterable[list[int]]
                 ) -> tuple[list[list[int]], list[set[int]]]:
    """The regions with the views and constants that they write, and those that they only read.

    Each region may compute a view or a constant again, unless its library calls read it: then it is
    in memory. The first region whose calls read it writes it.
    """
    made, listed, read = set[int](), list[list[int]](), list[set[int]]()
    for loop in filter(None, loops):
        calls = [graph[i] for i in loop if graph[i].kind == "library"]
        sources = {view_source(graph, a) for call in calls for a in call.args}
        stored = {v for v in sources if graph[v].op in VIEWS | GENERATED}
        listed.append([*loop, *sorted(stored - made)])
        read.append(stored & made)
        made |= stored
    return listed, read


# ---------------------------------------------------------------- where a program repeats
def regions(graph: Graph, most: int) -> list[range]:
    """Consecutive ranges of ids, cut where the program repeats.

    Each has at most ``most`` operations. Rounds are spread evenly over the ranges.

    Before:  a b c a b c a b c a b c, most 7      After:  a b c a b c | a b c a b c
    """
    return _Cutter(graph, most).run()


class _Cutter:
    """Cuts one graph into segments, if possible one loop round each, and joins them to regions."""

    def __init__(self, graph: Graph, most: int) -> None:
        self.graph, self.most = graph, most
        self.kinds, self.prints = _fingerprints(graph)
        self.alive = _alive(graph)
        self.before = [0, *accumulate(map(_computes, graph.nodes))]  # node -> operations before it

    def run(self) -> list[range]:
        """Join segments to regions: equal ones evenly, different ones while there is room."""
        found: list[range] = []
        open_to_others = False  # whether the last region may take the next segment
        for run in self._runs(self._segments()):
            each = max(1, self.most // max(1, self._size(run[0])))
            if len(run) == 1 and open_to_others and self._size(range(found[-1].start, run[0].stop)) <= self.most:
                found[-1] = range(found[-1].start, run[0].stop)
                continue
            parts = -(-len(run) // each)
            ends = [round(k * len(run) / parts) for k in range(parts + 1)]
            found += [range(run[first].start, run[last - 1].stop) for first, last in pairwise(ends)]
            open_to_others = len(run) == 1
        return found

    def _size(self, span: range) -> int:
        return self.before[span.stop] - self.before[span.start]

    def _segments(self) -> list[range]:
        """Consecutive ranges of at most ``most`` operations."""
        found: list[range] = []
        pending = [range(len(self.graph))]
        while pending:
            span = pending.pop()
            if self._size(span) <= self.most:
                found.append(span)
            else:
                cuts = [span.start, *self._cuts(span), span.stop]
                pending += reversed([range(first, last) for first, last in pairwise(cuts)])
        return found

    def _cuts(self, span: range) -> list[int]:
        """Where to cut a range: before each operation of the most regular kind, or else in two."""
        places: dict[int, list[int]] = {}
        for i in span:
            if self.before[i + 1] > self.before[i]:
                for print_ in self.prints[i]:
                    places.setdefault(print_, []).append(i)
        best, cuts = (-self._size(span) / REPEATS, 0.0, 0), list[int]()
        for each in places.values():
            gaps = Counter(self.before[b] - self.before[a] for a, b in pairwise([span.start, *each, span.stop]))
            covered = max((gap * t for gap, t in gaps.items() if gap <= self.most), default=0)
            rank = -covered, sum(self.alive[i] for i in each) / len(each), each[0]
            if rank < best:
                best, cuts = rank, each
        if not cuts:
            middle = (self.before[span.start] + self.before[span.stop]) / 2
            inside = [i for i in span if self.before[span.start] < self.before[i] < self.before[i + 1]]
            near = [i for i in inside if abs(self.before[i] - middle) * 4 <= self._size(span)] or inside
            cuts = [min(near, key=lambda i: (self.alive[i], abs(self.before[i] - middle)))]
        # Views directly before an operation stay with it.
        firsts = [bisect_left(self.before, self.before[i]) for i in cuts]
        return [i for i in firsts if i > span.start]

    def _runs(self, segments: Sequence[range]) -> list[list[range]]:
        """Group equal neighbours. Their slices must move on by equal steps."""
        found: list[list[range]] = []
        last: tuple[Hashable, Sequence[int], Sequence[int]] = None, (), ()
        for span in segments:
            key = tuple(self.kinds[i] for i in span if self.before[i + 1] > self.before[i])
            starts = [s for i in span for s in self.graph[i].attributes.get("start", ())]
            moved = [b - a for a, b in zip(last[1], starts, strict=False)]
            if key == last[0] and len(starts) == len(last[1]) and (len(found[-1]) == 1 or moved == last[2]):
                found[-1].append(span)
            else:
                found.append([span])
            last = key, starts, moved
        return found


def _fingerprints(graph: Graph) -> tuple[list[int], list[tuple[int, int]]]:
    """The kind of each node without its slice's start, and two fingerprints of its inputs' kinds.

    One fingerprint ignores where slices start, the other does not. One of them is equal for the
    same line in all rounds of a loop.
    """
    kinds = [hash((n.op, n.type, repr([pair for pair in n.attrs if pair[0] != "start"]))) for n in graph.nodes]
    prints = []
    for found in (kinds, [hash((n.op, n.type, repr(n.attrs))) for n in graph.nodes]):
        for _ in range(2):
            found = [hash((found[n.id], *map(found.__getitem__, n.args))) for n in graph.nodes]
        prints.append(found)
    return kinds, list(zip(*prints, strict=True))


def _alive(graph: Graph) -> list[int]:
    """For each node, how many earlier values are read there or later. A cut there stores them."""
    last = list(range(len(graph)))
    for node in graph.nodes:
        for arg in node.args:
            last[behind_views(graph, arg)] = node.id
    change = [0] * (len(graph) + 2)
    for node in graph.nodes:
        if is_fusible(node) and node.op not in VIEWS:
            change[node.id + 1] += 1
            change[last[node.id] + 1] -= 1
    return list(accumulate(change))[:len(graph)]
