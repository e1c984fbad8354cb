"""Which lines belong together: NumPy, the graph, the loop program, the kernel's text.

In:  texts of the stages. Out: for each line the graph nodes that it is about.

Emitted text says its node in a comment (``# %4 exp``) and in its names: ``v4``, ``r4`` and ``k4``
hold %4. A loop or a guard without either is about the statements inside it, and a barrier is about
what it waits for: the line before it.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...graph import Graph
from ...stitch.body import Body
from ...trace.recorder import file_name

NODE, NAME = re.compile(r"%(\d+)"), re.compile(r"\b[vrkpa](\d+)(?:_\d+)?\b")
LinkedLine = dict[str, Any]  # its number, its text, and the ids of its nodes


def linked_lines(text: str, body: Body) -> list[LinkedLine]:
    """The lines of a kernel's CUDA text, or of a printed loop program."""
    lines = text.splitlines()
    own = [{int(i) for i in NODE.findall(line) or NAME.findall(line)} for line in lines]
    found: list[LinkedLine] = []
    for k, line in enumerate(lines):
        inside = set().union(*(own[each] for each in _inside(lines, k)))
        nodes = sorted({body.origin[i] for i in own[k] or inside if i < len(body.origin)})
        if not nodes and "sync" in line:
            nodes = found[-1]["nodes"]
        found.append({"number": k + 1, "text": line, "nodes": nodes})
    return found


def graph_lines(graph: Graph) -> list[LinkedLine]:
    """One line a node."""
    return [{"number": node.id, "text": str(node).partition("  # ")[0], "nodes": [node.id]}
            for node in graph.nodes]


def source_lines(function: Callable[..., Any], graph: Graph) -> list[LinkedLine]:
    """The function's lines, and other lines of its file that nodes come from, as of a helper."""
    try:
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "")
        whole = file.read_text(encoding="utf-8").splitlines()
    except (OSError, TypeError):
        return []
    at: dict[int, list[int]] = {}
    for node in graph.nodes:
        name, _, number = node.where.rpartition(":")
        if name == file_name(str(file)) and number.isdigit() and int(number) <= len(whole):
            at.setdefault(int(number), []).append(node.id)
    numbers = sorted({*range(first, first + len(lines)), *at})
    return [{"number": n, "text": whole[n - 1], "nodes": at.get(n, [])} for n in numbers]


def _inside(lines: Sequence[str], k: int) -> range:
    """The lines below a header that are further to the right, if none of them is a header."""
    depth, end = _depth(lines[k]), k + 1
    while end < len(lines) and lines[end].strip() and _depth(lines[end]) > depth:
        end += 1
    inside = range(k + 1, end)
    return inside if len({_depth(lines[each]) for each in inside}) == 1 else range(0)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
