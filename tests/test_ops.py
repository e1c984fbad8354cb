"""The table of operations: every row is complete, and a new row is all a new operation needs."""

import ast
import re

import numpy as np
import pytest

from minisitch.errors import GraphError
from minisitch.graph import TensorType
from minisitch.kernel.text import identity_value
from minisitch.ops import DTYPES, KINDS, OPS, SHORT, Op, compute_dtype, kind_of
from minisitch.reference import evaluate
from minisitch.simplify import simplify
from minisitch.trace.builder import Builder
from minisitch.trace.parser import parse

ROWS = sorted(OPS.values(), key=lambda op: op.name)
MAPS = [op for op in ROWS if op.kind == "map"]
REDUCES = [op for op in ROWS if op.kind == "reduce"]
DTYPE = {"bool": "bool", "int": "int32", "float": "float32"}


def names(rows):
    return pytest.mark.parametrize("op", rows, ids=lambda op: op.name)


@names(ROWS)
def test_a_row_is_complete(op):
    assert OPS[op.name] is op
    assert op.kind in ("source", "map", "reduce", "move", "library")
    assert callable(op.numpy)
    assert op.cost == {"source": "free", "move": "free", "reduce": "light", "library": "heavy"}.get(op.kind, op.cost)
    assert op.domain and set(op.domain) <= set(KINDS)
    assert re.fullmatch("[a-z][a-z0-9_]*", op.name), "names print and parse"


@names(MAPS + REDUCES)
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_scalar_texts_fill_in(op, target):
    texts = getattr(op, target)
    assert set(texts) == set(op.domain), "one text for each kind of the domain, none besides"
    operands = ["a", "b", "c"][:2 if op.kind == "reduce" else op.arity]
    for kind, text in texts.items():
        filled = text.format(*operands, t=SHORT[DTYPE[kind]], T=f"np.{DTYPE[kind]}", S=f"np.{DTYPE[kind]}")
        used = {node.id for node in ast.walk(ast.parse(filled, mode="eval")) if isinstance(node, ast.Name)}
        assert used >= set(operands), f"{filled!r} leaves out an operand"


@names(MAPS)
def test_maps_have_a_cost_class(op):
    heavy = {"div", "power", "exp", "tanh", "log", "sqrt", "erf", "mod"}
    light = {"add", "sub", "mul", "maximum", "select", "lt", "cast", "neg"}
    assert op.cost in ("light", "heavy")
    assert op.name not in light or op.cost == "light"
    assert op.name not in heavy or op.cost == "heavy"


@names(MAPS)
def test_a_map_computes_at_each_coordinate(op, rng):
    """NumPy's function of one element is that element of NumPy's function: it *is* a map."""
    for kind in op.domain:
        arrays = [np.asarray(rng.integers(1, 4, (5,))).astype(DTYPE[kind]) for _ in range(op.arity)]
        if op.name == "select":
            arrays[0] = arrays[0] > 2
        attrs = {"dtype": "float64"} if op.name == "cast" else {}
        with np.errstate(all="ignore"):
            whole = op.numpy(*arrays, **attrs)
            single = [op.numpy(*(a[i:i + 1] for a in arrays), **attrs)[0] for i in range(5)]
        np.testing.assert_allclose(whole.astype(float), np.array(single).astype(float), rtol=1e-6)
        assert (whole.dtype == bool) == (op.result == "bool" or (kind == "bool" and op.name != "cast"))


@names(REDUCES)
def test_the_identity_changes_nothing(op):
    for kind in op.domain:
        identity = identity_value(op.name, DTYPE[kind])
        for value in (0, 1) if kind == "bool" else (-3, 0, 5):
            pair = np.array([identity, value]).astype(DTYPE[kind])
            assert op.numpy(pair, axes=(0,), keepdims=False) == pair[1]


def test_dtype_names():
    assert {np.dtype(name).name for name in DTYPES.values()} == set(DTYPES.values())
    assert [kind_of(d) for d in ("bool", "uint8", "int64", "float16")] == ["bool", "int", "int", "float"]
    assert compute_dtype("float16") == "float32" and compute_dtype("float64") == "float64"


def test_adding_a_row_is_adding_an_operation(monkeypatch):
    row = Op("logaddexp", "map", 2, np.logaddexp, ("float",), cuda={"float": "logaddexp({0}, {1})"}, cost="heavy")
    monkeypatch.setitem(OPS, "logaddexp", row)
    b = Builder()
    x = b.add("input", type=TensorType((2, 3)), name="x")
    graph = b.finish([b.add("logaddexp", (x, b.add("neg", (x,))))])
    assert parse(str(graph)) == graph == simplify(graph)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(evaluate(graph, [array])[0], np.logaddexp(array, -array))
    i = b.add("input", type=TensorType((2, 3), "int32"), name="i")
    with pytest.raises(GraphError, match="takes float, got i32"):
        b.add("logaddexp", (i, i))
