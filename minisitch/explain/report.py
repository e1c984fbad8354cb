"""What was decided about one program, as text.

In:  ``Stages``, and results of an assembler if there are any. Out: an ``Explanation``.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property

from ..errors import MinisitchError
from ..fuse import Body, Decision, Pattern, count
from ..graph import Graph
from ..kernel.ir import Kernel
from ..kernel.text import KernelSource
from ..passes.registry import history
from ..runtime import Stages
from ..runtime.cuda import offline
from ..runtime.cuda.launch import library_calls
from ..runtime.memory import Resident
from ..stitch.plan import StitchPlan
from .explore.plans import Sharing, cards


def widened(graph: Graph) -> str:
    """The line where float32 becomes float64, and why, or an empty string.

    This doubles the bytes and is often an accident.
    """
    narrow = {n.id for n in graph.nodes if n.type.dtype in ("float16", "float32")}
    first = next((n for n in graph.nodes if n.type.dtype == "float64" and narrow & {*n.args}), None)
    if first is None:
        return ""
    return (f"float64 from {first.where or f'%{first.id}'} on: a narrower float meets a float64 value there. np.zeros, np.linspace "
            "and np.float64(2) make one: write dtype=np.float32, or a Python number.")


@dataclass(frozen=True)
class Card:
    """One kernel and the patterns that launch it.

    ``sources`` are its texts by target, ``cpu`` and ``cuda``. ``machine`` is the CUDA text's
    machine code, if it was asked for.
    """

    kernel: Kernel
    stitched: StitchPlan
    body: Body
    patterns: tuple[Pattern, ...]
    sources: dict[str, KernelSource]
    machine: offline.Assembled | None = None

    @cached_property
    def plain(self) -> Kernel:
        """The kernel as it was scheduled, before any pass."""
        return self._history[0]

    @cached_property
    def changes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each pass that changed the kernel, and the lines that it took out (-) and put in (+)."""
        texts = [str(kernel).splitlines() for kernel in self._history]
        found = []
        for name, before, after in zip(self.kernel.passes, texts[:-1], texts[1:], strict=True):
            lines = [line for line in unified_diff(before, after, lineterm="", n=0)][2:]
            if lines:
                found.append((name, tuple(line for line in lines if not line.startswith("@@"))))
        return tuple(found)

    @cached_property
    def _history(self) -> tuple[Kernel, ...]:
        return history(self.kernel)

    @property
    def figures(self) -> str:
        """Figures of the machine code, and assumptions that it breaks, or an empty string."""
        if self.machine is None:
            return ""
        source = self.sources["cuda"]
        return _figures(source.kernel.registers, self.machine, offline.broken(source, self.machine))


def _figures(registers: int, machine: offline.Assembled, broken: tuple[str, ...]) -> str:
    return "; ".join([f"machine code, at most {registers} registers assumed, {machine}", *broken])


@dataclass(frozen=True)
class Explanation:
    """A compiled program explained: ``str`` as text.

    ``machines`` holds the machine code of each of ``stages.flows``, if it was asked for.
    """

    name: str
    stages: Stages
    cards: tuple[Card, ...]
    residents: tuple[Resident, ...]
    workspace: int
    machines: tuple[offline.Assembled, ...] = ()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Every decision of every pass, with node ids of the whole graph."""
        return self.stages.decisions

    @property
    def widened(self) -> str:
        """The line where float32 becomes float64, or an empty string."""
        return widened(self.stages.program.graph)

    def machine_code(self, number: int) -> str:
        """For a pipeline, what ``Card.figures`` is for a kernel."""
        if not self.machines:
            return ""
        source, machine = self.stages.flows[number].source, self.machines[number]
        return _figures(source.registers, machine, offline.broken_pipeline(source, machine))

    def why(self, a: int, b: int) -> str:
        """Whether two nodes share a kernel, and what decided that.

        If they do not: where the kernel ends between them, and for each rule what it says and what
        would have to be different. Raises MinisitchError for an unknown node.
        """
        graph = self.stages.graph
        for node in (a, b):
            if not 0 <= node < len(graph):
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
        out = [f"{self.name}: strategy {plan.strategy}, scheduled for {self.stages.device.name}", "",
               f"# after simplify: {count(len(graph), 'node')}", str(graph), "", str(plan)]
        out += ["", f"# {self.widened}"] * bool(self.widened)
        for card in self.cards:
            launched = f"  # launched {len(card.patterns)} times" if len(card.patterns) > 1 else ""
            own = next(iter(card.sources.values()))
            same = card.body.origin == tuple(range(len(graph)))
            own_ids = "the whole program, with its ids" if same else f"a program of its own, with ids of its own\n{card.body}\n"
            out += ["", f"# kernel {card.kernel.name}: {own_ids}", str(card.stitched)]
            if card.changes:
                out += ["", "# after schedule: the plain kernel", str(card.plain)]
            for name, lines in card.changes:
                out += ["", f"# after {name}", *lines]
            out += ["", str(card.kernel) + launched,
                    "", f"# after emit, for {own.target}", own.text.rstrip()]
            out += ["", f"# {card.figures}"] * bool(card.figures)
        for number, flow in enumerate(self.stages.flows):
            out += ["", str(flow), *["", f"# {self.machine_code(number)}"] * bool(self.machines)]
        counted = "; launches and library calls are counted from 0" * bool(self.residents)
        out += ["", f"# memory: {count(self.workspace, 'byte')} of workspace{counted}"]
        out += [f"  {flow.source.name}: {count(flow.own_bytes, 'byte')} of its own, all the time: " +
                ", ".join(f"{name} {nbytes}" for name, nbytes in flow.own) for flow in self.stages.flows]
        for r in self.residents:
            first, last = r.life.first, r.life.last
            launches = f"launches {first} to {last}" if last > first else f"launch {first}"
            out.append(f"  {r.label}: {count(r.life.nbytes, 'byte')} at {r.offset}, {launches}")
        if self.stages.device.kind == "gpu" and plan.library_calls:
            out += ["", "# library calls on a GPU", *(f"  {line}" for line in library_calls(self.stages))]
        out += ["", f"# decisions: {len(self.decisions)}, with the ids of the whole program", *(f"  {d}" for d in self.decisions)]
        return "\n".join(out)
