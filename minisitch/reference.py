"""What a graph means: one NumPy call per node, in order. Slow and obvious.

In:  a ``Graph`` and one array per input. Out: one array per output.

Every strategy on every target must agree with ``evaluate``. ``testing.judge`` says how closely.
"""

from collections.abc import Iterator, Sequence, Sized

import numpy as np

from .errors import GraphError, needs
from .graph import Graph, Node
from .ops import OPS, kind_of
from .trace.builder import constant_value, iota_value

Array = np.ndarray


def apply(node: Node, operands: Sequence[Array], *, float64: bool = False) -> Array:
    """The value of one node from the values of its operands. With ``float64`` it is not rounded.

    Operands of sums and products are first copied to C order. NumPy's order of adding follows the
    strides, and a graph's meaning must not depend on how an array lies in memory.
    """
    if node.op == "constant":
        return constant_value(node)
    if node.op == "iota":
        return iota_value(node)
    attrs = node.attributes
    if node.kind in ("reduce", "library") or node.op == "power":
        operands = [np.asarray(x, order="C") for x in operands]
    if float64 and node.op == "cast" and kind_of(attrs["dtype"]) == "float":
        attrs["dtype"] = "float64"
    if node.op == "power":  # a root, if it is 0.5 of a single array without axes
        return np.power(*(np.reshape(x, -1) for x in operands)).reshape(np.shape(operands[0]))
    return np.asarray(OPS[node.op].numpy(*operands, **attrs))


def evaluate(graph: Graph, inputs: Sequence[Array], *, float64: bool = False) -> list[Array]:
    """Run a graph node by node with NumPy.

    With ``float64=True`` every float value is computed in float64. Inputs are widened, casts to a
    narrower float are skipped, and constants are rounded to their own dtype. NumPy's float32 result
    and a kernel's are both compared with this one. Raises GraphError when the inputs do not match
    the graph's parameters.
    """
    needs("evaluate(graph, [x, y])", (graph, Graph), (inputs, Sized))
    with np.errstate(all="ignore"):
        found = {node.id: value for node, _, value in run(graph, inputs, float64) if node.id in graph.outputs}
    return [found[o] for o in graph.outputs]


def run(graph: Graph, inputs: Sequence[Array], float64: bool) -> Iterator[tuple[Node, list[Array], Array]]:
    """Each node with its operands' values and its own. A value is freed after its last reader."""
    if len(inputs) != len(graph.inputs):
        raise GraphError(f"inputs of the graph: {len(graph.inputs)}, arrays given: {len(inputs)}; pass one each")
    given = dict(zip(graph.inputs, inputs, strict=True))
    values: dict[int, Array] = {}
    for node in graph.nodes:
        operands = [values[a] for a in node.args]
        if node.op == "input":
            value = np.asarray(given[node.id])
            if (value.shape, value.dtype.name) != (node.type.shape, node.type.dtype):
                raise GraphError(f"%{node.id} input takes {node.type}, got {value.dtype.name}{list(value.shape)}")
        else:
            value = apply(node, operands, float64=float64)
        wide = float64 and kind_of(node.type.dtype) == "float"
        values[node.id] = value.astype("float64" if wide else node.type.dtype, copy=False)
        yield node, operands, values[node.id]
        for done in last_read(graph, node):
            del values[done]


def last_read(graph: Graph, node: Node) -> list[int]:
    """Operands that no later node reads."""
    return [a for a in dict.fromkeys(node.args) if graph.users[a][-1] == node.id]
