"""Reads printed graphs, so that ``parse(str(graph)) == graph``, and types that a user writes.

In:  the text of a graph (``graph.py`` shows one). Out: the verified ``Graph``.
"""

import ast
import math
import re
from typing import Any

from ..errors import GraphError, TraceError
from ..graph import Graph, Node, TensorType
from ..ops import DTYPES
from .builder import verify

_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_NODE_LINE = re.compile(rf"%(\d{{1,9}}): (\w+)\[([\d,]{{,400}})\] = (\w+)((?: %\d{{1,9}})*)((?:{_STRING}|[^'\"])*?)(?:  # (.*))?$")
_RETURN = re.compile(r"return((?: %\d{1,9})*)(?: *#.*)?$")
_SPACE = re.compile(rf"{_STRING}| (?=[a-z_]+=)")  # between attributes; strings are passed over


def parse(text: str) -> Graph:
    """The graph of a printed program: the inverse of ``str(graph)``.

    Raises GraphError with the line that cannot be read.
    """
    if not isinstance(text, str):
        raise GraphError(f"parse takes the text of a graph, not {text!r:.40}: write parse(str(graph))")
    nodes: list[Node] = []
    outputs: tuple[int, ...] | None = None
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        if returned := _RETURN.match(line):
            outputs = tuple(int(word[1:]) for word in returned[1].split())
            continue
        match = _NODE_LINE.match(line)
        if not match or match[2] not in DTYPES:
            raise GraphError(f"line {number}: cannot read {line!r}; expected '%1: f32[4,8] = exp %0', or 'return %1' at the end")
        node_id, dtype, shape, op, args, attrs, origin = match.groups()
        try:
            pairs = _parse_attrs(attrs.strip())
        except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
            raise GraphError(f"line {number}: cannot read the attributes {attrs.strip()!r}; "
                             "expected numbers, strings and tuples, as in axes=(1,) keepdims=True"
                             ) from None
        where, _, via = (origin or "").partition(" in ")
        type = TensorType(tuple(int(n) for n in shape.split(",") if n), DTYPES[dtype])
        nodes.append(Node(int(node_id), op, tuple(int(a[1:]) for a in args.split()), type, pairs, where, via))
    if outputs is None:
        raise GraphError("the program has no 'return' line")
    return verify(Graph(tuple(nodes), outputs))


def _parse_attrs(text: str) -> tuple[tuple[str, Any], ...]:
    call = ast.parse(f"f({_SPACE.sub(lambda m: ', ' if m[0] == ' ' else m[0], text)})", mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args or None in {k.arg for k in call.keywords}:
        raise ValueError(text)
    pairs = tuple((str(k.arg), _literal(k.value)) for k in call.keywords)
    hash(pairs)  # raises TypeError for a list, which no node may hold
    return pairs


def _literal(tree: ast.expr) -> Any:
    # as repr prints them; math.nan is one object, so equal graphs are equal
    if isinstance(tree, ast.Name):
        return {"nan": math.nan, "inf": math.inf}[tree.id]
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub) and isinstance(tree.operand, ast.Name):
        return -_literal(tree.operand)
    return ast.literal_eval(tree)


def parse_type(text: str) -> TensorType:
    """``"f32[128,768]"`` as a ``TensorType``. Raises TraceError with the expected form."""
    match = isinstance(text, str) and re.fullmatch(r"\s*(\w+)\[\s*((?:\d{1,40}\s*,\s*)*(?:\d{1,40}\s*)?)\]\s*", text)
    shape = tuple(int(n) for n in match[2].split(",") if n.strip()) if match else ()
    if not match or match[1] not in DTYPES or math.prod(max(n, 1) for n in shape) > 2**44:
        raise TraceError(f"cannot read the type {text!r:.80}; write for example f32[128,768], with "
                         f"one of {' '.join(DTYPES)}" + ", and with at most 2**44 elements, which no "
                         "machine's memory holds" * bool(match and match[1] in DTYPES))
    return TensorType(shape, DTYPES[match[1]])
