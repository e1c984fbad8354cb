"""What a graph means: one NumPy call per node, in order. Slow, obvious, and the judge of the rest.

In:  a ``Graph`` and one array per input. Out: one array per output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import GraphError
from .graph import Graph, Node, constant_value, iota_value
from .ops import OPS


def apply(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The value of one node from the values of its operands."""
    if node.op == "constant":
        return constant_value(node)
    if node.op == "iota":
        return iota_value(node)
    attrs = node.attributes
    if node.op == "ufunc":
        attrs.pop("dtype", None)
    return np.asarray(OPS[node.op].numpy(*operands, **attrs))


def evaluate(graph: Graph, inputs: Sequence[np.ndarray], *, float64: bool = False) -> list[np.ndarray]:
    """Run a graph node by node with NumPy.

    With ``float64=True`` every float value is computed in float64 (inputs widened, casts to a
    narrower float skipped): the arbiter that both NumPy's own float32 and a kernel's are held to.
    Raises GraphError when the inputs do not match the graph's parameters.
    """
    if len(inputs) != len(graph.inputs):
        raise GraphError(f"the graph has {len(graph.inputs)} inputs, got {len(inputs)} arrays")
    given = dict(zip(graph.inputs, inputs, strict=True))
    values: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if node.op == "input":
                value = np.asarray(given[node.id])
                if (value.shape, value.dtype.name) != (node.type.shape, node.type.dtype):
                    raise GraphError(f"%{node.id} input is {node.type}, got {value.dtype.name}{list(value.shape)}")
            else:
                value = apply(node, [values[a] for a in node.args])
            wide = float64 and node.type.dtype.startswith("float")
            values.append(value.astype("float64" if wide else node.type.dtype, copy=False))
    return [values[o] for o in graph.outputs]
