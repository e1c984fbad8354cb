"""Select subgraphs that could be pipelines, by patterns over the program's order (Kitsune B5).

In:  a ``Graph``. Out: a ``Selection``: subgraphs with at least one product, and decisions.

Each node that computes is one letter of a *line*, in the graph's order. Views and sources are left
out. A pattern is a regular expression over words such as ``product`` and ``chain``. The line is
read once from left to right, and at each place the first matching pattern is taken. Excluded nodes
match only the word ``over``, which steps over them.

A match is then checked in the graph. Parts that are not connected become subgraphs of their own. No
path may leave a subgraph and return. If one does, the match ends earlier.

Before:  %2 = matmul %0 %1; %5 = add %2 %4; %7 = maximum %5 %6; %9 = matmul %7 %8;
         %11 = add %9 %10; line: peepe
After:   mlp: %2 %5 %7 %9 %11
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ...errors.lazy import lazy
from ...fuse import MOST_ARGUMENTS, VIEWS, Decision, behind_views, view_source
from ...graph import Graph, Node

# ---------------------------------------------------------------- the words of patterns
LETTERS = {
    "element-wise": "e",
    "join": "m",  # moves that need a kernel: concatenate, a gather within rows
    "reduction": "r",
    "product": "p",  # one operand is a parameter: a linear layer
    "sibling": "s",  # reads the same value as the last product, which is then multicast
    "attend": "a",  # a product of two computed values
    "excluded": "x",
}
# All repetitions are possessive (``*+``), since nothing that follows begins like a chain.
WORDS = {
    **LETTERS,
    "chain": "[em]*+",
    # Layernorm, softmax: reductions and the element-wise operations around them.
    "normalisation": "(?:[em]*+r)++[em]*+",
    "before": "(?:[em]*+r)++[em]*+|[em]*+",  # anything before a product
    "linear": "[ps][em]*+",
    "siblings": "(?:s[em]*+)*+",
    "over": "x*+",
}


@dataclass(frozen=True)
class OperatorPattern:
    """A pattern. In ``text``, words stand for letters, and blanks are ignored."""

    name: str
    text: str
    why: str

    @lazy
    def regex(self) -> re.Pattern[str]:
        letters = re.sub(r"[a-z-]+", lambda word: f"(?:{WORDS[word[0]]})", self.text)
        return re.compile(letters.replace(" ", ""))


LIBRARY = (
    OperatorPattern("attention", "chain attend normalisation attend chain linear?",
                    "scores, softmax and their product with the values: the scores never travel"),
    OperatorPattern("interaction", "before linear+ over chain attend chain linear+ normalisation?",
                    "two stacks of linear layers with a product of computed values between them"),
    OperatorPattern("mlp", "before product chain siblings (?:over chain product chain siblings)+ "
                    "normalisation?", "linear layers, what is element-wise between them, "
                    "the normalisation of their result"),
    OperatorPattern("multicast", "before product chain (?:sibling chain)+",
                    "one value that several products read"),
    OperatorPattern("normalised",
                    "before (?:product|attend) normalisation (?:product|attend) chain linear?",
                    "a product, the normalisation of its result, and a product of that"),
    OperatorPattern("reduction", "before (?:product|attend) normalisation",
                    "a product and the reduction of its result"),
    OperatorPattern("product", "before (?:product|attend) chain",
                    "a product with the chains before and behind it"),
)


# ---------------------------------------------------------------- what comes out
@dataclass(frozen=True)
class Subgraph:
    """Operations that could run as one pipeline: ids in order, with the views between them.

    It is contiguous: no path leaves it and returns. ``pattern`` is the pattern that found it.
    """

    nodes: tuple[int, ...]
    pattern: str
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Selection:
    """The subgraphs of a graph in its order, and decisions about what was left out."""

    graph: Graph
    subgraphs: tuple[Subgraph, ...]
    decisions: tuple[Decision, ...] = ()


# ---------------------------------------------------------------- letters
def exclusion(graph: Graph, node: Node) -> tuple[str, str] | None:
    """Rule and reason why an operation cannot be a stage, or None."""
    named = f"%{node.id} {node.op}"
    if node.op == "gather" and 0 in node.attr("axes"):
        return "gathers-all-data", (f"{named} takes rows from anywhere in %{node.args[0]}: "
                                    "all of it has to be there first")
    if node.op == "update":
        return "bulk-synchronous", f"{named} copies all of %{node.args[0]} to change a window of it"
    if node.kind == "library" and node.op != "matmul":
        return "bulk-synchronous", f"{named} needs all of its operands for its first element"
    return None


def spell(graph: Graph) -> tuple[tuple[int, ...], str]:
    """The line: the nodes that compute, and a letter for each."""
    line = tuple(n.id for n in graph.nodes if n.kind != "source" and n.op not in VIEWS)
    before: list[int] = []  # operands of the last product
    letters = []
    for node in map(graph.__getitem__, line):
        word = _word(graph, node)
        if word == "product":
            first, second = read = _operands(graph, node)
            # Weights that two layers share are not multicast.
            weights = second in before[1:] and graph[second].kind == "source"
            word = "sibling" if first in before or (second in before and not weights) else word
            before = read
        letters.append(LETTERS[word])
    return line, "".join(letters)


def in_words(letters: str) -> str:
    """``peep`` as ``product, 2 element-wise, product``."""
    names = {letter: word for word, letter in LETTERS.items()}
    runs = [(names[letter], len([*same])) for letter, same in groupby(letters)]
    return ", ".join(word if times == 1 else f"{times} {word}" for word, times in runs)


def _word(graph: Graph, node: Node) -> str:
    if exclusion(graph, node):
        return "excluded"
    if node.op == "matmul":
        computed = all(graph[v].kind != "source" for v in _operands(graph, node))
        return "attend" if computed else "product"
    return {"map": "element-wise", "reduce": "reduction", "move": "join"}[node.kind]


def _operands(graph: Graph, node: Node) -> list[int]:
    """The operands of a product, seen through views."""
    return [behind_views(graph, a) for a in node.args]


# ---------------------------------------------------------------- the pass
def select(graph: Graph, library: Sequence[OperatorPattern] = LIBRARY) -> Selection:
    """Find the subgraphs that could be pipelines, in one pass over the line."""
    line, letters = spell(graph)
    excluded = ((n, exclusion(graph, graph[n])) for n in line)
    decisions = [Decision((n,), "keep apart", *why) for n, why in excluded if why]
    found: list[Subgraph] = []
    start = 0
    while start < len(line):
        taken, refused, start = _Match(graph, line, letters, library, start).settle()
        found += taken
        decisions += refused
    return Selection(graph, tuple(sorted(found, key=lambda s: s.nodes)), tuple(decisions))


@dataclass(frozen=True)
class _Match:
    """A match of the library from ``start`` on, checked in the graph and shortened if necessary."""

    graph: Graph
    line: Sequence[int]
    letters: str
    library: Sequence[OperatorPattern]
    start: int

    def settle(self) -> tuple[list[Subgraph], Iterable[Decision], int]:
        """The subgraphs of the longest legal match, refusals if there is none, the next start."""
        refusals: dict[tuple[str, tuple[int, ...]], Decision] = {}
        limit = len(self.line)
        while found := self.longest(limit):
            pattern, end = found
            parts = self.parts(end)
            problems = (self.problem(nodes, parts, end) for nodes in parts)
            problem, limit = next(filter(None, problems), (None, end))
            if problem:
                refusals.setdefault((problem.rule, problem.at), problem)
                continue
            taken = [self.subgraph(nodes, pattern, refusals.values()) for nodes in parts]
            return taken, () if taken else refusals.values(), end
        return [], refusals.values(), self.start + 1

    def longest(self, limit: int) -> tuple[OperatorPattern, int] | None:
        """The first pattern that matches two or more operations before ``limit``, and its end."""
        for pattern in self.library:
            match = pattern.regex.match(self.letters, self.start, limit)
            if match and match.end() - self.start > 1:
                return pattern, match.end()
        return None

    def subgraph(self, nodes: tuple[int, ...], matched: OperatorPattern,
                 refusals: Iterable[Decision]) -> Subgraph:
        """A subgraph, named after the first pattern that matches it completely."""
        seen = (n for n in nodes if self.graph[n].op not in VIEWS)
        mine = "".join(self.letters[bisect_left(self.line, n)] for n in seen)
        pattern = next((p for p in self.library if p.regex.fullmatch(mine)), matched)
        said = Decision(nodes, "fuse", pattern.name, f"{in_words(mine)}: {pattern.why}")
        return Subgraph(nodes, pattern.name, (said, *refusals))

    def parts(self, end: int) -> list[tuple[int, ...]]:
        """The connected pieces of the match that hold a product, with their views."""
        spelt = zip(self.line[self.start:end], self.letters[self.start:end], strict=True)
        members = [n for n, letter in spelt if letter != "x"]
        pieces = [tuple(self.graph[n] for n in piece) for piece in connected(self.graph, members)]
        return [tuple(n.id for n in p) for p in pieces
                if sum(n.op not in VIEWS for n in p) > 1 and any(n.op == "matmul" for n in p)]

    def problem(self, nodes: Sequence[int], parts: Sequence[Sequence[int]],
                end: int) -> tuple[Decision, int] | None:
        """Why these nodes cannot be a subgraph, and the end before which a match may be tried."""
        if path := leaves_and_returns(self.graph, nodes, parts):
            left, back = (f"%{n} {self.graph[n].op}" for n in path)
            why = (f"a path leaves to {left} and comes back to {back}: "
                   "it could run neither before it nor after it")
            decision = Decision(path, "keep apart", "contiguity", why)
            return decision, bisect_left(self.line, path[1])
        arguments = len(outside(self.graph, nodes)) + len(leaving(self.graph, nodes))
        if arguments > MOST_ARGUMENTS:
            why = (f"{arguments} values go in and out, and {MOST_ARGUMENTS} is the limit: "
                   "it ends earlier")
            return Decision((nodes[0],), "keep apart", "argument-limit", why), end - 1
        return None


def leaves_and_returns(graph: Graph, nodes: Sequence[int],
                       others: Iterable[Sequence[int]] = ()) -> tuple[int, int] | None:
    """Where a path leaves these nodes and where it returns. Each of ``others`` acts as one node."""
    inside, latest = set(nodes), max([nodes[-1], *(other[-1] for other in others)])
    together = {n: other for other in others for n in other}
    left_at = {u: u for n in nodes for u in graph.users[n] if u not in inside}
    pending = list(left_at)
    while pending:
        node = pending.pop()
        for user in (u for n in together.get(node, (node,)) for u in graph.users[n]):
            if user in inside:
                return left_at[node], user
            if user not in left_at and user <= latest:
                left_at[user] = left_at[node]
                pending.append(user)
    return None


# ---------------------------------------------------------------- inputs and outputs of a subgraph
def outside(graph: Graph, nodes: Sequence[int]) -> tuple[int, ...]:
    """The values in memory that a subgraph reads, ascending, without constants."""
    inside = set(nodes)
    found = {view_source(graph, a) for n in nodes for a in graph[n].args if a not in inside}
    found = {v for v in found - inside if graph[v].op not in ("constant", "iota")}
    return tuple(sorted(found))


def leaving(graph: Graph, nodes: Sequence[int]) -> tuple[int, ...]:
    """The values of a subgraph, without views, that others or the caller read, ascending."""
    inside, wanted = set(nodes), {behind_views(graph, o) for o in graph.outputs}
    for node in graph.nodes:
        if node.id not in inside and node.op not in VIEWS:
            wanted.update(behind_views(graph, a) for a in node.args)
    return tuple(n for n in sorted(inside & wanted) if graph[n].op not in VIEWS)


def connected(graph: Graph, members: Sequence[int]) -> list[tuple[int, ...]]:
    """The members in connected groups, each with the views between its members."""
    group: dict[int, set[int]] = {m: {m} for m in members}
    for member in members:
        for arg in graph[member].args:
            views, value = [], arg
            while graph[value].op in VIEWS:
                views.append(value)
                value = graph[value].args[0]
            if value not in group:
                continue
            mine, theirs = group[member], group[value]
            joined = mine | theirs | set(views) if mine is not theirs else mine | set(views)
            for each in joined:
                group[each] = joined
    return sorted({tuple(sorted(g)) for g in group.values()})
