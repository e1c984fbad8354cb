"""Why two operations do not share a kernel, and what two strategies do with one program.

In:  the ``Stages`` of each strategy. Out: data for the page.

For two nodes that are apart, the *cut* is the first place on the path between them where the kernel
ends. Decisions about the cut come first, then those about one of its ends. ``rules.txt`` has a card
for each rule: what it says, and what would have to be different.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from importlib.resources import files
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from ...fuse import VIEWS, Decision, FusionPlan
from ...graph import Graph
from ...lower import Stages
from ..compare import row_of

MOST_NODES = 40  # whose pairs are all in the page; in larger programs, those that an edge joins
MOST_LINES = 2_000  # of a strategy's text, to compare
FIGURES = ("kernels", "library_calls", "bytes_read", "bytes_written", "block_barriers", "grid_barriers")
JOINED, APART = ("fuse", "pipeline"), ("keep apart",)  # verdicts
EVERYWHERE = ("no-fusion", "region")  # rules about the whole program


def cards() -> dict[str, list[str]]:
    """For each rule what it says, and what would have to be different for the two to be fused."""
    text = (files(__package__) / "rules.txt").read_text(encoding="utf-8")
    parts = [[line for line in part.splitlines() if not line.startswith("#")]
             for part in text.split("\n\n")]
    return {part[0]: part[1:] for part in parts if part}


class PairAnswer(NamedTuple):
    """What is known of two nodes: the patterns that hold both, or else where they are cut.

    ``rules`` are those that kept them apart.
    """

    together: list[int]
    cut: tuple[int, ...]
    said: list[Decision]
    rules: list[str]


class Sharing:
    """Which nodes share kernels in a plan, and which decisions are about two nodes."""

    def __init__(self, plan: FusionPlan, decisions: Sequence[Decision]) -> None:
        self.plan, self.graph, self.decisions = plan, plan.graph, decisions
        self.owners: dict[int, set[int]] = {}
        for number, pattern in enumerate(plan.patterns):
            for member in pattern.members:
                self.owners.setdefault(member, set()).add(number)

    def computes(self, node: int) -> bool:
        """Whether a pattern computes a node. Views and constants are wherever they are needed."""
        return node in self.owners and self.graph[node].op not in (*VIEWS, "constant", "iota")

    def together(self, a: int, b: int) -> set[int]:
        """The patterns that hold both nodes."""
        return self.owners.get(a, set()) & self.owners.get(b, set())

    def cut(self, a: int, b: int) -> tuple[int, ...]:
        """The first two nodes between which a kernel ends, on a shortest path from ``a`` to ``b``.

        Empty if there is no such path.
        """
        way = [node for node in path(self.graph, a, b) if self.computes(node)]
        return next(((u, v) for u, v in pairwise(way) if not self.together(u, v)), ())

    def answer(self, a: int, b: int) -> PairAnswer:
        """Everything about two nodes."""
        a, b = min(a, b), max(a, b)
        together = sorted(self.together(a, b))
        if together:
            return PairAnswer(together, (), self.about(a, b, *JOINED), [])
        cut = self.cut(a, b)
        u, v = cut or (a, b)
        said = self.about(u, v, *APART)
        rules = {decision.rule for decision in said}
        if not rules and "library" in (self.graph[u].kind, self.graph[v].kind):
            rules = {"library-call"}
        return PairAnswer([], cut, said, sorted(rules))

    def about(self, u: int, v: int, *verdicts: str) -> list[Decision]:
        """The decisions of some verdict that are closest to two nodes."""
        found = [(self._nearness(d, u, v), d) for d in self.decisions if d.verdict in verdicts]
        best = max((near for near, _ in found), default=0)
        closest = [d for near, d in found if near == best]
        return closest[:1] if best == 1 else closest if best else []

    def _nearness(self, decision: Decision, u: int, v: int) -> int:
        """How close a decision is to the gap between two nodes, from 0 to 5.

        5 names both. 4 and 3 name one or none, and nodes that share kernels with the others.
        2 names one of them alone, such as a library call. 1 is about all kernels of the program.
        """
        near = [2 if end in decision.at else int(any(self.together(end, n) for n in decision.at))
                for end in (u, v)]
        if all(near):
            return 1 + sum(near)
        if max(near) == 2 and len(decision.at) == 1:
            return 2
        called = any(self.graph[end].kind == "library" for end in (u, v))
        return int(decision.rule in EVERYWHERE and not called)


def path(graph: Graph, a: int, b: int) -> list[int]:
    """The nodes of a shortest path along which ``a`` goes into ``b``, or nothing."""
    before: dict[int, int] = {a: a}
    reached = [a]
    for node in reached:
        for user in graph.users[node]:
            if user not in before:
                before[user] = node
                reached.append(user)
    found = [b] if b in before else []
    while found and found[-1] != a:
        found.append(before[found[-1]])
    return found[::-1]


def why(stages: Mapping[str, Stages], name: str) -> dict[str, Any]:
    """For pairs of nodes: whether ``name`` puts them into one kernel, and what decided that.

    ``pairs`` has an entry for ``"3 7"``. Decisions are numbers in ``decisions``.
    """
    sharings = {each: Sharing(s.plan, s.decisions) for each, s in stages.items()}
    own, numbers = sharings[name], dict[Decision, int]()

    def numbered(decisions: Sequence[Decision]) -> list[int]:
        return [numbers.setdefault(each, len(numbers)) for each in decisions]

    nodes = [node for node in range(len(own.graph)) if own.computes(node)]
    pairs = combinations(nodes, 2) if len(nodes) <= MOST_NODES else (
        (a, n) for n in nodes for a in sorted({*own.graph[n].args}.intersection(nodes)))
    found: dict[str, dict[str, Any]] = {}
    for a, b in pairs:
        answer = own.answer(a, b)
        others = {each: _in_short(sharing, own.graph, a, b, numbered) for each, sharing in sharings.items() if each != name}
        found[f"{a} {b}"] = {**answer._asdict(), "said": numbered(answer.said), "others": others}
    known = cards()
    named = {rule for pair in found.values() for each in (pair, *pair["others"].values()) for rule in each["rules"]}
    return {"nodes": nodes, "pairs": found, "decisions": list(map(str, numbers)),
            "cards": {rule: known[rule] for rule in sorted(named & known.keys())}}


def _in_short(sharing: Sharing, graph: Graph, a: int, b: int,
              numbered: Callable[[Sequence[Decision]], list[int]]) -> dict[str, Any]:
    """Whether a strategy fuses two nodes, with one decision about that and the rules that kept them apart.

    A strategy that rewrites the graph first has no such nodes.
    """
    if sharing.graph != graph:
        return {"fuses": None, "said": [], "rules": []}
    answer = sharing.answer(a, b)
    return {"fuses": bool(answer.together), "said": numbered(answer.said[:1]), "rules": answer.rules}


def sides(stages: Mapping[str, Stages]) -> dict[str, Any]:
    """Each strategy's kernels and figures, and for each two strategies where their texts differ."""
    found = {name: _side(each) for name, each in stages.items()}
    codes = {name: [line.partition("  # ")[0] for line in each["lines"]]
             for name, each in found.items()}
    differences = {f"{a} {b}": SequenceMatcher(None, codes[a], codes[b], False).get_opcodes()
                   for a, b in combinations(found, 2)}
    return {"strategies": found, "differences": differences}


def _side(stages: Stages) -> dict[str, Any]:
    row, sharing = row_of("", stages), Sharing(stages.plan, ())
    texts = dict.fromkeys([*(s.text for s in stages.sources), *(flow.source.text for flow in stages.flows)])
    return {"figures": {name.replace("_", " "): getattr(row, name) for name in FIGURES},
            "lines": [line for text in texts for line in text.splitlines()][:MOST_LINES],
            "graph": [str(node).partition("  # ")[0] for node in stages.graph.nodes],
            "owners": {node: sorted(owners) for node, owners in sorted(sharing.owners.items())},
            "kinds": [pattern.kind for pattern in stages.plan.patterns]}
