"""Grows a graph node by node: the type of each result, and the rules that a graph keeps.

In:  calls of ``Builder.add``. Out: a verified ``Graph``.

Result types are worked out only here (``infer_type``), and ``verify`` holds every graph to them,
also those that ``parser`` reads and that ``simplify`` has rewritten.

Before:  builder.add("sum", (0,), axes=(1,), keepdims=True), where %0 is f32[4,8]
After:   %1: f32[4,1] = sum %0 axes=(1,) keepdims=True
"""

import functools
import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import GraphError
from ..graph import Graph, Node, TensorType
from ..ops import OPS, SCATTERS, SHORT, kind_of, ufunc_named


class Builder:
    """Grows a graph node by node. Ids are given out only here."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, op: str, args: Sequence[int] = (), *, type: TensorType | None = None,
            where: str = "", via: str = "", **attrs: Any) -> int:
        """Append one node and return its id. The type is inferred, except for a source.

        Raises GraphError when the operands do not fit the op, or when the op is unknown.
        """
        # always the same NaN object, so that equal attributes compare as equal
        pairs = tuple(sorted((k, math.nan if isinstance(v, float) and v != v else v) for k, v in attrs.items()))
        node = Node(len(self.nodes), op, tuple(args), type or TensorType(()), pairs, where, via)
        if op not in OPS:
            raise GraphError(f"unknown op {op!r}; known: {', '.join(sorted(OPS))}")
        inferred = infer_type(node, [self.nodes[a].type for a in node.args])
        self.nodes.append(Node(node.id, op, node.args, inferred, pairs, where, via))
        return node.id

    def type(self, node_id: int) -> TensorType:
        return self.nodes[node_id].type

    def finish(self, outputs: Iterable[int]) -> Graph:
        """The verified graph with these outputs."""
        return verify(Graph(tuple(self.nodes), tuple(outputs)))


# ---------------------------------------------------------------- type inference
@functools.cache
def attribute_names(name: str) -> tuple[str, ...]:
    """The names of an op's attributes, from the parameters of its NumPy meaning."""
    op = OPS[name]
    if op.kind in ("source", "map"):
        return {"input": ("name",), "constant": ("value",), "iota": ("axis",), "cast": ("dtype",)}.get(name, ())
    if isinstance(op.numpy, np.ufunc):
        return ()
    taken = [p for p in inspect.signature(op.numpy).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    return tuple(p.name for p in taken if p.kind is p.KEYWORD_ONLY or op.arity is not None)[op.arity or 0:]


def infer_type(node: Node, types: Sequence[TensorType]) -> TensorType:
    """The result type of a node. Result types are worked out only here.

    Raises GraphError naming the node, what was seen, and what the op takes.
    """
    op = OPS[node.op]
    if op.arity is not None and len(types) != op.arity:
        raise GraphError(f"{label(node)} takes {op.arity} operands, got {len(types)}")
    for name, value in node.attrs:
        if name not in (known := attribute_names(op.name)):
            raise GraphError(f"{label(node)} has no attribute {name!r}; it has {', '.join(known) or 'none'}")
        kinds = {*map(type, value)} - {int} if type(value) is tuple else {type(value)} - {bool, int, str}
        if kinds and op.kind != "source":
            raise GraphError(f"{label(node)}: {name}={value!r}, but an attribute is a number, a string or a tuple of integers")
    if op.kind == "source":
        return _source_type(node)
    if not types:
        raise GraphError(f"{label(node)} needs at least one operand")
    try:
        return _RULES[op.kind if op.kind in ("map", "reduce") else node.op](node, list(types))
    except KeyError as missing:
        raise GraphError(f"{label(node)}: attribute {missing} is missing") from None
    except TypeError as wrong:  # axes=(1), a number, where axes=(1,) is meant
        raise GraphError(f"{label(node)}: an attribute is of the wrong kind in {' '.join(node.attrs_shown)}: {wrong}") from None


def label(node: Node) -> str:
    """``%4 sum (softmax.py:12)``, as errors name a node."""
    return f"%{node.id} {node.op}" + (f" ({node.where})" if node.where else "")


def _require(condition: bool, node: Node, message: str, *values: Any) -> None:
    """Raise GraphError unless the condition holds.

    The message is formatted only then, since every node comes here.
    """
    if not condition:
        shown = (", ".join(map(str, v)) if isinstance(v, list) else v for v in values)
        raise GraphError(f"{label(node)}: {message.format(*shown)}")


def _source_type(node: Node) -> TensorType:
    if node.op == "constant":
        value = node.attributes.get("value")
        _require(type(value) in (bool, int, float), node, "value={!r} must be a Python scalar, so that it prints", value)
    if node.op == "iota":
        axis = node.attributes.get("axis")
        _require(axis in range(node.type.rank), node, "axis={} does not exist in {}", axis, node.type)
    return node.type


def _map_type(node: Node, types: list[TensorType]) -> TensorType:
    op = OPS[node.op]
    values = types[1:] if node.op == "select" else types
    if node.op == "select":
        _require(types[0].dtype == "bool", node, "the condition must be bool, got {}", types[0])
    _require(len({t.shape for t in types}) == 1, node, "operands must have one shape, got {}; broadcast first", types)
    _require(len({t.dtype for t in values}) == 1, node, "operands must have one dtype, got {}; cast first", types)
    _require(kind_of(values[0].dtype) in op.domain, node, "takes {}, got {}", " or ".join(op.domain), values[0])
    if node.op == "cast":
        _require(node.attr("dtype") in SHORT, node, "unknown dtype {!r}", node.attr("dtype"))
        return TensorType(types[0].shape, node.attr("dtype"))
    return TensorType(types[0].shape, "bool" if op.result == "bool" else values[0].dtype)


def _reduce_type(node: Node, types: list[TensorType]) -> TensorType:
    x, axes = types[0], node.attr("axes")
    _require(kind_of(x.dtype) in OPS[node.op].domain, node, "takes {}, got {}", " or ".join(OPS[node.op].domain), x)
    _require(all(0 <= a < x.rank for a in axes) and list(axes) == sorted(set(axes)), node,
             "axes {} of {}; write axes in ascending order, from 0 to {}", axes, x, x.rank - 1)
    if node.op in ("max", "min") and x.size == 0:
        empty = [a for a in axes if x.shape[a] == 0]
        _require(not empty, node, "axis {} of {} is empty, and {} of nothing has no value", str(empty), x, node.op)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if node.attr("keepdims") or a not in axes)
    return TensorType(shape, x.dtype)


def _broadcast_type(node: Node, types: list[TensorType]) -> TensorType:
    x, shape = types[0], tuple(node.attr("shape"))
    fits = len(shape) == x.rank and all(a in (1, b) for a, b in zip(x.shape, shape, strict=True))
    _require(fits, node, "{} cannot be broadcast to {}; both need the same rank, "
             "and each size must be equal or 1", x, shape)
    return TensorType(shape, x.dtype)


def _reshape_type(node: Node, types: list[TensorType]) -> TensorType:
    x, shape = types[0], tuple(node.attr("shape"))
    _require(math.prod(shape) == x.size, node, "{} has {} elements, but {} has {}", x, x.size, shape, math.prod(shape))
    return TensorType(shape, x.dtype)


def _transpose_type(node: Node, types: list[TensorType]) -> TensorType:
    x, perm = types[0], node.attr("perm")
    _require(sorted(perm) == list(range(x.rank)), node, "perm {} must name each axis of {} once", perm, x)
    return TensorType(tuple(x.shape[p] for p in perm), x.dtype)


def _check_window(node: Node, x: TensorType, size: Sequence[int]) -> None:
    start, step = node.attr("start"), node.attr("step")
    _require(len(start) == len(size) == len(step) == x.rank, node, "start, size and step must have {} entries", x.rank)
    for axis, (a, n, s) in enumerate(zip(start, size, step, strict=True)):
        inside = n == 0 or (0 <= a < x.shape[axis] and 0 <= a + (n - 1) * s < x.shape[axis] and s != 0)
        _require(n >= 0 and inside, node, "axis {} of {}: start {}, size {} and step {} reach outside it", axis, x, a, n, s)


def _slice_type(node: Node, types: list[TensorType]) -> TensorType:
    size = tuple(node.attr("size"))
    _check_window(node, types[0], size)
    return TensorType(size, types[0].dtype)


def _update_type(node: Node, types: list[TensorType]) -> TensorType:
    x, value = types
    _require(x.dtype == value.dtype, node, "cannot write {} into {}; cast first", value, x)
    _check_window(node, x, value.shape)
    return x


def _concatenate_type(node: Node, types: list[TensorType]) -> TensorType:
    first, axis = types[0], node.attr("axis")
    _require(0 <= axis < first.rank, node, "axis {} does not exist in {}", axis, first)
    for t in types:
        same = t.rank == first.rank and all(a == b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != axis)
        _require(same and t.dtype == first.dtype, node, "cannot join {} along axis {}", types, axis)
    shape = list(first.shape)
    shape[axis] = sum(t.shape[axis] for t in types)
    return TensorType(tuple(shape), first.dtype)


def _gather_type(node: Node, types: list[TensorType]) -> TensorType:
    x, indices, axes = types[0], types[1:], node.attr("axes")
    _require(len(indices) == len(axes) > 0 and len(set(axes)) == len(axes), node, "{} indices for axes {}", len(indices), axes)
    _require(all(0 <= a < x.rank for a in axes), node, "axes {} do not all exist in {}", axes, x)
    _require(all(kind_of(i.dtype) == "int" for i in indices), node, "indices must be integers")
    _require(len({i.shape for i in indices}) == 1, node, "indices must have one shape; broadcast first")
    _require(indices[0].size == 0 or all(x.shape[a] > 0 for a in axes), node, "cannot gather from an empty axis of {}", x)
    rest = tuple(n for a, n in enumerate(x.shape) if a not in axes)
    return TensorType(indices[0].shape + rest, x.dtype)


def _matmul_type(node: Node, types: list[TensorType]) -> TensorType:
    a, b = types
    _require(a.dtype == b.dtype, node, "operands must have one dtype, got {} and {}; cast first", a, b)
    _require(a.rank >= 2 and b.rank >= 2, node, "operands need two axes or more, got {} and {}; reshape first", a, b)
    _require(a.shape[-1] == b.shape[-2], node, "{} @ {}: {} columns do not fit {} rows", a, b, a.shape[-1], b.shape[-2])
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise GraphError(f"{label(node)}: batch axes of {a} and {b} do not broadcast") from None
    return TensorType((*batch, a.shape[-2], b.shape[-1]), a.dtype)


def _along_axis(node: Node, types: list[TensorType]) -> TensorType:
    _require(0 <= node.attr("axis") < types[0].rank, node, "axis {} does not exist in {}", node.attr("axis"), types[0])
    return TensorType(types[0].shape, "int64" if node.op == "argsort" else types[0].dtype)


def _scatter_type(node: Node, types: list[TensorType]) -> TensorType:
    x, value, *indices = types
    rest = tuple(n for a, n in enumerate(x.shape) if a not in node.attr("axes"))
    _require(node.attr("mode") in ("set", *SCATTERS), node, "unknown mode {!r}", node.attr("mode"))
    fits = value.dtype == x.dtype or node.attr("mode") != "set"
    _require(bool(indices) and fits and value.shape == indices[0].shape + rest, node,
             "cannot scatter {} into {} at {}", value, x, indices)
    return x


def _ufunc_type(node: Node, types: list[TensorType]) -> TensorType:
    """The type of a ufunc's result.

    The name comes from outside, and NumPy has many functions. Only an elementwise ufunc that takes
    these operands is allowed.
    """
    name, output = node.attr("name"), node.attr("output")
    ufunc = ufunc_named(name)
    _require(ufunc is not None, node, "{!r} is not an elementwise ufunc of NumPy or scipy.special", name)
    _require(len(types) == ufunc.nin and len({t.shape for t in types}) == 1, node, "np.{} takes {} of one shape", name, ufunc.nin)
    _require(type(output) is int and 0 <= output < ufunc.nout, node, "np.{} has no output {}", name, output)
    # raises TypeError if it takes no such operands
    ufunc.resolve_dtypes((*(np.dtype(t.dtype) for t in types), *[None] * ufunc.nout))
    return TensorType(types[0].shape, node.attr("dtype")) if "dtype" in node.attributes else types[0]


_RULES = {
    "map": _map_type, "reduce": _reduce_type, "broadcast": _broadcast_type,
    "reshape": _reshape_type, "transpose": _transpose_type, "slice": _slice_type,
    "update": _update_type, "concatenate": _concatenate_type, "gather": _gather_type,
    "matmul": _matmul_type, "cumsum": _along_axis, "cumprod": _along_axis, "sort": _along_axis,
    "argsort": _along_axis, "scatter": _scatter_type, "ufunc": _ufunc_type,
}


# ---------------------------------------------------------------- checks
def verify(graph: Graph) -> Graph:
    """Check every rule that later stages rely on, and return the graph unchanged.

    Ids are positions, ops are known, operands come earlier, types are what ``infer_type`` says, and
    outputs exist. Raises GraphError otherwise.
    """
    for position, node in enumerate(graph.nodes):
        if node.id != position:
            raise GraphError(f"node %{node.id} is at position {position}; the id of a node must be its position")
        if node.op not in OPS:
            raise GraphError(f"%{node.id}: unknown op {node.op!r}; known: {', '.join(sorted(OPS))}")
        if any(not 0 <= a < node.id for a in node.args):
            raise GraphError(f"{label(node)} reads nodes {node.args}; it may read only nodes before it")
        if node.type.dtype not in SHORT:
            raise GraphError(f"{label(node)} has unknown dtype {node.type.dtype!r}; known: {', '.join(SHORT)}")
        expected = infer_type(node, [graph.nodes[a].type for a in node.args])
        if expected != node.type:
            raise GraphError(f"{label(node)} has type {node.type}, but its operands give {expected}")
    if any(not 0 <= o < len(graph.nodes) for o in graph.outputs):
        raise GraphError(f"outputs {graph.outputs} do not all exist; the graph has %0 to %{len(graph) - 1}")
    return graph


# ---------------------------------------------------------------- arrays of sources
def constant_value(node: Node) -> np.ndarray:
    """The array of a ``constant`` node: one number, broadcast without a copy."""
    return np.broadcast_to(np.asarray(node.attr("value")).astype(node.type.dtype), node.type.shape)


def iota_value(node: Node) -> np.ndarray:
    """The array of an ``iota`` node: each element's index along ``axis``."""
    axis, shape = node.attr("axis"), node.type.shape
    along = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return np.broadcast_to(along.astype(node.type.dtype), shape)
