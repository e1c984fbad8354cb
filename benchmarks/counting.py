"""How many operators a traced model has, as its authors would count them: a node belongs to the call of an operator that made it.

In:  a graph traced from a model that computes only through ``benchmarks/models/operators.py``. Out: ``Operator``s, in order.

A node knows its line, and the line belongs to a function: that is the operator. A node belongs to the call that its readers
belong to, if they are of the same function, not on an earlier line of it, and not the same operation of the same line: then
the function was called again on its own result.
What several calls share (``simplify`` computes equal things once) belongs to the first.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from minisitch.fuse import VIEWS
from minisitch.graph import Graph

from .results import ROOT

FILE = "operators.py"


@dataclass(frozen=True)
class Operator:
    """One call of one operator; ``nodes`` are ids, ascending."""

    name: str
    nodes: tuple[int, ...]


@cache
def functions() -> dict[int, str]:
    """For each line of the operators' file the function that it is in."""
    tree = ast.parse((ROOT / "benchmarks" / "models" / FILE).read_text(encoding="utf-8"))
    return {line: node.name for node in tree.body if isinstance(node, ast.FunctionDef)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def operators(graph: Graph) -> list[Operator]:
    """The operators of a graph, by their first node."""
    lines = [int(where.rpartition(":")[2]) if where.startswith(f"{FILE}:") else 0 for where in (n.where for n in graph.nodes)]
    root: dict[int, int] = {}  # node -> the last node of its call
    for node in reversed(graph.nodes):
        if node.kind != "source" and lines[node.id]:
            readers = [u for u in graph.users[node.id] if u in root and functions()[lines[u]] == functions()[lines[node.id]]]
            root[node.id] = min((root[u] for u in readers if (lines[node.id], node.op) != (lines[u], graph[u].op)
                                 and lines[node.id] <= lines[u]), default=node.id)
    calls: dict[int, list[int]] = {}
    for node_id, last in sorted(root.items()):
        calls.setdefault(last, []).append(node_id)
    return sorted((Operator(functions()[lines[last]], tuple(nodes)) for last, nodes in calls.items()), key=lambda o: o.nodes)


def computing(graph: Graph, operator: Operator) -> tuple[int, ...]:
    """The nodes of an operator that compute; all of it, if they are views."""
    return tuple(n for n in operator.nodes if graph[n].op not in VIEWS) or operator.nodes


def fused(graph: Graph, found: Sequence[Operator], groups: Sequence[Sequence[int]]) -> list[Operator]:
    """The operators that share a group (a kernel, a subgraph) with another; of a linear layer the product has to be in it."""
    inside = []
    for group in map(set, groups):
        products = {o: [n for n in o.nodes if graph[n].op == "matmul"] for o in found}
        here = [o for o in found if group.issuperset(products[o] or computing(graph, o))]
        inside += here if len(here) > 1 else []
    return sorted(set(inside), key=lambda o: o.nodes)
