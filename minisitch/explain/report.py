"""What was decided about one program: as text, as pictures, as a page.

In:  ``Stages``. Out: a ``Report``.
"""

from dataclasses import dataclass
from difflib import unified_diff

from ..errors import MinisitchError
from ..errors.lazy import lazy
from ..errors.printed import Printed
from ..fuse import Decision, FusionPlan, count, pattern_inputs, returned
from ..kernel import Kernel
from ..kernel.text import KernelSource
from ..passes.registry import history
from ..runtime import Stages
from ..runtime.cuda.launch import library_calls
from ..runtime.memory import MemoryPlan
from ..simplify import simplify
from ..stitch.body import Body
from ..stitch.plan import StitchPlan
from ..strategies.astitch import stitched
from . import page as pages
from .compare import Comparison, row_of, widened
from .draw import roofline
from .explore.plans import Sharing, cards


@dataclass(frozen=True)
class Card:
    """One kernel with its text, and how often it is launched."""

    kernel: Kernel
    stitched: StitchPlan
    body: Body
    source: KernelSource
    launches: int

    @lazy
    def plain(self) -> Kernel:
        """The kernel as it was scheduled, before any pass."""
        return self._history[0]

    @lazy
    def changes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each pass that changed the kernel, and the lines that it took out (-) and put in (+)."""
        texts = [str(kernel).splitlines() for kernel in self._history]
        found = []
        for name, before, after in zip(self.kernel.passes, texts[:-1], texts[1:], strict=True):
            lines = [line for line in unified_diff(before, after, lineterm="", n=0)][2:]
            if lines:
                found.append((name, tuple(line for line in lines if not line.startswith("@@"))))
        return tuple(found)

    @lazy
    def _history(self) -> tuple[Kernel, ...]:
        return history(self.kernel)


def most_stored(plan: FusionPlan) -> int:
    """The most bytes of values that wait in memory between two kernels or calls of a plan."""
    graph, kept = plan.graph, returned(plan.graph) | set(plan.graph.inputs)
    last = {v: i for i, p in enumerate(plan.patterns) for v in pattern_inputs(graph, p)}
    stored = most = 0
    for i, pattern in enumerate(plan.patterns):
        stored += sum(graph[v].type.nbytes for v in pattern.outputs)
        most = max(most, stored)
        stored -= sum(graph[v].type.nbytes for v, at in last.items() if at == i and v not in kept)
    return most


@dataclass(frozen=True, repr=False)
class Report(Printed):
    """A compiled program explained: ``str`` as text, ``html`` and ``svg``."""

    name: str
    stages: Stages

    @lazy
    def cards(self) -> tuple[Card, ...]:
        """The different kernels."""
        stages = self.stages
        made = {id(kernel): Card(kernel, s, body, source, sum(kernel is k for k in stages.kernels))
                for kernel, s, body, source in
                zip(stages.kernels, stages.stitches, stages.bodies, stages.sources, strict=True)}
        return tuple(made.values())

    @lazy
    def memory(self) -> MemoryPlan:
        """Where values lie between launches."""
        return MemoryPlan(self.stages)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Every decision of every pass, with node ids of the whole graph."""
        return self.stages.decisions

    @property
    def svg(self) -> str:
        """The overview as a picture: one box for each kernel or library call."""
        return pages.overview(self.name, self.stages)

    @property
    def html(self) -> str:
        """A complete page, to be written to a file."""
        return pages.page(f"{self.name}: {self.stages.plan.strategy}", [self.body])

    def _repr_html_(self) -> str:
        return pages.fragment(self.body)

    @property
    def body(self) -> str:
        """The pictures of all stages, the roofline of a GPU's plan, then the text."""
        stages, below = self.stages, ""
        if stages.device.kind == "gpu" and stages.plan.patterns:
            row = row_of(stages.plan.strategy, stages)
            found = Comparison(self.name, "", stages.device, (row,), 0.0, {}, {row.strategy: stages.graph})
            below = pages.captioned("Below the roof", "Under the slope a program waits for memory, "
                                    "under the flat part for arithmetic. The dot is what the cost "
                                    "model says of this plan.", roofline(found))
        return pages.content(self.name, stages, below, str(self))

    def why(self, a: int, b: int) -> str:
        """Whether two nodes share a kernel, and what decided that.

        If they do not: where the kernel ends between them, and for each rule what it says and what
        would have to be different. Raises MinisitchError for an unknown node.
        """
        graph = self.stages.graph
        for node in (a, b):
            if not isinstance(node, int) or not 0 <= node < len(graph):
                raise MinisitchError(f"node %{node} does not exist; {self.name} has %0 to %{len(graph) - 1}")
        answer = Sharing(self.stages.plan, self.decisions).answer(a, b)
        gap = " and ".join(f"%{node} {graph[node].op}" for node in answer.cut)
        lines = [f"%{a} {graph[a].op} and %{b} {graph[b].op} " + (
            f"share step {answer.together[0]}" if answer.together else "are kept apart")]
        lines += [f"  a kernel ends between {gap}"] * bool(gap)
        lines += [f"  {decision}" for decision in answer.said]
        for rule in answer.rules:
            says, change = cards().get(rule, ("", ""))
            lines += [f"  {rule}: {says}", f"  what would have to be different: {change}"] * bool(says)
        return "\n".join(lines)

    def __str__(self) -> str:
        plan, graph = self.stages.plan, self.stages.graph
        out = [f"{self.name}: strategy {plan.strategy}, scheduled for {self.stages.device.name}",
               "", f"# after simplify: {count(len(graph), 'node')}", str(graph), "", str(plan)]
        if any(d.verdict == "recompute" for d in self.decisions):
            saved = stitched(simplify(self.stages.program.graph))
            out += ["", f"# stored between kernels: at most {most_stored(plan):,} bytes at a time, and "
                    f"{most_stored(saved):,} if nothing was made again"]
        if said := widened(self.stages.program.graph):
            out += ["", f"# {said}"]
        if once := self.stages.program.once:
            out += ["", "# looked at once, while the function was traced: later calls keep these arrays"]
            out += [f"  {each.type} at {each.where}{f', from {each.made}()' if each.made else ''}" for each in once]
        for card in self.cards:
            launched = f", launched {card.launches} times" if card.launches > 1 else ""
            same = card.body.origin == tuple(range(len(graph)))
            own_ids = "the whole program, with its ids" if same else f"a program of its own, with ids of its own\n{card.body}\n"
            out += ["", f"# kernel {card.kernel.name}{launched}: {own_ids}", str(card.stitched)]
            if card.changes:
                out += ["", "# after schedule: the plain kernel", str(card.plain)]
            for name, lines in card.changes:
                out += ["", f"# after {name}", *lines]
            out += ["", str(card.kernel), "", f"# after emit, for {card.source.target}", card.source.text.rstrip()]
        for flow in self.stages.flows:
            out += ["", str(flow)]
        counted = "; launches and library calls are counted from 0" * bool(self.memory.residents)
        out += ["", f"# memory: {count(self.memory.workspace, 'byte')} of workspace{counted}"]
        out += [f"  {f.source.name}: {count(f.own_bytes, 'byte')} of its own, all the time: " +
                ", ".join(f"{name} {nbytes}" for name, nbytes in f.own) for f in self.stages.flows]
        for r in self.memory.residents:
            first, last = r.life.first, r.life.last
            launches = f"launches {first} to {last}" if last > first else f"launch {first}"
            out.append(f"  {r.label}: {count(r.life.nbytes, 'byte')} at {r.offset}, {launches}")
        if self.stages.device.kind == "gpu" and plan.library_calls:
            out += ["", "# library calls on a GPU", *(f"  {each}" for each in library_calls(self.stages))]
        out += ["", f"# decisions: {len(self.decisions)}, with the ids of the whole program", *(f"  {d}" for d in self.decisions)]
        return "\n".join(out)
