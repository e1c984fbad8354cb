"""The graph: its text is its value, and everything a pass may rely on is checked with a message."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from minisitch.errors import GraphError
from minisitch.graph import Graph, Node, TensorType
from minisitch.testing import graphs
from minisitch.trace.builder import Builder, constant_value, infer_type, iota_value, verify
from minisitch.trace.parser import parse

SOFTMAX = """\
%0: f32[4,8] = input name='x'
%1: f32[4,1] = max %0 axes=(1,) keepdims=True  # model.py:12 in softmax
%2: f32[4,8] = broadcast %1 shape=(4, 8)  # model.py:13
%3: f32[4,8] = sub %0 %2  # model.py:13
%4: f32[4,8] = exp %3  # model.py:13
return %4 %1 %4"""


# ---------------------------------------------------------------- the text
def test_prints_as_it_parses():
    graph = parse(SOFTMAX)
    assert str(graph) == SOFTMAX
    assert graph[1].where == "model.py:12" and graph[1].via == "softmax" and graph[2].via == ""
    assert graph.users == ((1, 3), (2,), (3,), (4,), ())
    assert graph.inputs == (0,) and len(graph) == 5 and graph.outputs == (4, 1, 4)


@given(graphs())
def test_round_trip(graph):
    assert parse(str(graph)) == graph
    assert verify(graph) is graph
    for node in graph.nodes:
        assert infer_type(node, [graph[a].type for a in node.args]) == node.type
        assert all(node.id in graph.users[a] for a in node.args)


@pytest.mark.parametrize("dtype, value", [
    ("float32", 0.1), ("float32", -0.0), ("float64", 1e-300), ("float32", math.inf), ("float32", -math.inf),
    ("float64", math.nan), ("int64", -(2**62)), ("uint64", 2**63 + 1), ("bool", True), ("float16", 6e-8)])
def test_constants_round_trip(dtype, value):
    b = Builder()
    graph = b.finish([b.add("constant", type=TensorType((2,), dtype), value=value)])
    again = parse(str(graph))
    assert again == graph and again.structure == graph.structure
    assert constant_value(again[0]).tobytes() == np.full((2,), value).astype(dtype).tobytes()


def test_a_computed_nan_is_still_the_same_constant():
    b = Builder()
    graph = b.finish([b.add("constant", type=TensorType(()), value=math.inf - math.inf)])
    assert parse(str(graph)) == graph


def test_structure_tells_signed_zeros_apart_and_forgets_lines():
    def constant(value, where=""):
        b = Builder()
        return b.finish([b.add("constant", type=TensorType((2,)), value=value, where=where)]).structure
    assert constant(0.0) != constant(-0.0)
    assert constant(1.0, "a.py:1") == constant(1.0, "b.py:2")
    assert hash(constant(1.0)) == hash(constant(1.0))


def test_the_return_line_may_have_a_comment():
    text = "%0: f32[2] = input name='x'\nreturn %0 %0"
    assert parse(text + "  # twice") == parse(text) and parse(text).outputs == (0, 0)


def test_names_may_hold_anything_printable():
    b = Builder()
    for name in ("x", "a b=c", "info nan inf", "it's", 'say "x"', "x  # y", "%1"):
        b.add("input", type=TensorType((1,)), name=name)
    graph = b.finish([0])
    assert parse(str(graph)) == graph


@pytest.mark.parametrize("text, message", [
    ("%0: f32[2] = input name='x'", "no 'return' line"),
    ("%0: f99[2] = input\nreturn %0", "line 1: cannot read"),
    ("%0 = input\nreturn %0", "line 1: cannot read"),
    ("%0: f32[] = constant value=x\nreturn %0", "line 1: cannot read the attributes 'value=x'"),
    ("%0: f32[] = constant value=\nreturn %0", "line 1: cannot read the attributes 'value='"),
    ("%0: f32[] = constant value=[1]\nreturn %0", r"line 1: cannot read the attributes 'value=\[1\]'; expected numbers, strings and tuples"),
    ("%0: f32[2] = input\n%1: f32[] = sum %0 axes=(0) keepdims=False\nreturn %1", r"%1 sum: an attribute is of the wrong kind in axes=0 "),
    ("%0: f32[2] = input\nreturn %a", "line 2: cannot read 'return %a'; expected .* or 'return %1' at the end"),
    ("%0: f32[2] = input\n%1: f32[3] = exp %0\nreturn %1", r"%1 exp has type f32\[3\], but its operands give f32\[2\]"),
    ("%0: f32[2] = input\n%1: f32[2] = frobnicate %0\nreturn %1", "unknown op 'frobnicate'; known: abs, add"),
])
def test_texts_that_do_not_read(text, message):
    with pytest.raises(GraphError, match=message):
        parse(text)


# ---------------------------------------------------------------- verify
X = Node(0, "input", (), TensorType((2, 3)))
EXP = Node(1, "exp", (0,), TensorType((2, 3)))


@pytest.mark.parametrize("nodes, outputs, message", [
    ((X, replace(EXP, id=2)), (0,), "node %2 is at position 1; the id of a node must be its position"),
    ((X, replace(EXP, op="exq")), (0,), "%1: unknown op 'exq'"),
    ((X, replace(EXP, args=(1,))), (0,), r"%1 exp reads nodes \(1,\); it may read only nodes before it"),
    ((X, replace(EXP, args=(-1,))), (0,), r"reads nodes \(-1,\); it may read only"),
    ((X, replace(EXP, where="m.py:3", args=(2,))), (0,), r"%1 exp \(m.py:3\) reads"),
    ((replace(X, type=TensorType((2,), "float8")),), (0,), "dtype 'float8'; known: bool"),
    ((X, replace(EXP, type=TensorType((3, 2)))), (1,), r"has type f32\[3,2\], but its operands give f32\[2,3\]"),
    ((X, replace(EXP, args=(0, 0))), (1,), "takes 1 operands, got 2"),
    ((X,), (1,), r"outputs \(1,\) do not all exist; the graph has %0 to %0"),
    ((X,), (-1,), r"outputs \(-1,\) do not all exist"),
])
def test_verify_refuses(nodes, outputs, message):
    with pytest.raises(GraphError, match=message):
        verify(Graph(nodes, outputs))


# ---------------------------------------------------------------- type inference
TYPES = {"x": TensorType((2, 3)), "row": TensorType((3,)), "h": TensorType((2, 3), "float16"),
         "i": TensorType((2, 3), "int32"), "b": TensorType((2, 3), "bool"), "e": TensorType((0, 3))}
REFUSALS = [
    ("add", "x row", {}, r"one shape, got f32\[2,3\], f32\[3\]; broadcast first"),
    ("add", "x h", {}, r"one dtype, got f32\[2,3\], f16\[2,3\]; cast first"),
    ("add", "b b", {}, r"takes int or float, got bool\[2,3\]"),
    ("exp", "i", {}, r"takes float, got i32\[2,3\]"),
    ("shift_left", "x x", {}, "takes int, got f32"),
    ("select", "x x x", {}, "the condition must be bool"),
    ("cast", "x", {"dtype": "complex64"}, "unknown dtype 'complex64'"),
    ("cast", "x", {}, "attribute 'dtype' is missing"),
    ("sum", "x", {"axes": (2,), "keepdims": False}, r"axes \(2,\) of f32\[2,3\]; write axes in ascending order, from 0 to 1"),
    ("sum", "x", {"axes": (1, 0), "keepdims": False}, "write axes in ascending order"),
    ("sum", "x", {"axes": (1, 1), "keepdims": False}, "write axes in ascending order"),
    ("sum", "b", {"axes": (1,), "keepdims": False}, "takes int or float, got bool"),
    ("any", "x", {"axes": (1,), "keepdims": False}, "takes bool, got f32"),
    ("max", "e", {"axes": (0,), "keepdims": False}, r"axis \[0\] of f32\[0,3\] is empty, and max of nothing has no value"),
    ("sum", "x", {"axes": (1,)}, "attribute 'keepdims' is missing"),
    ("broadcast", "x", {"shape": (4, 3)}, r"cannot be broadcast to \(4, 3\)"),
    ("broadcast", "row", {"shape": (2, 3)}, "both need the same rank"),
    ("reshape", "x", {"shape": (5,)}, r"f32\[2,3\] has 6 elements, but \(5,\) has 5"),
    ("transpose", "x", {"perm": (0, 0)}, r"perm \(0, 0\) must name each axis"),
    ("slice", "x", {"start": (0, 0), "size": (2, 4), "step": (1, 1)}, "axis 1 .*: start 0, size 4 and step 1 reach outside it"),
    ("slice", "x", {"start": (0, 2), "size": (2, 2), "step": (1, -3)}, "reach outside it"),
    ("slice", "x", {"start": (0, 0), "size": (2, 2), "step": (1, 0)}, "reach outside it"),
    ("slice", "x", {"start": (0,), "size": (2, 2), "step": (1, 1)}, "must have 2 entries"),
    ("update", "x h", {"start": (0, 0), "step": (1, 1)}, "cast first"),
    ("update", "x x", {"start": (1, 0), "step": (1, 1)}, "reach outside it"),
    ("concatenate", "x row", {"axis": 0}, "cannot join"),
    ("concatenate", "x x", {"axis": 2}, r"axis 2 does not exist in f32\[2,3\]"),
    ("concatenate", "", {"axis": 0}, "needs at least one operand"),
    ("gather", "x x", {"axes": (0,)}, "indices must be integers"),
    ("gather", "x i", {"axes": (0, 1)}, r"1 indices for axes \(0, 1\)"),
    ("gather", "x i", {"axes": (5,)}, r"axes \(5,\) do not all exist in"),
    ("gather", "e i", {"axes": (0,)}, "cannot gather from an empty axis"),
    ("matmul", "x x", {}, "3 columns do not fit 2 rows"),
    ("matmul", "x row", {}, "need two axes or more"),
    ("matmul", "x h", {}, "one dtype"),
    ("cumsum", "x", {"axis": 2}, r"axis 2 does not exist in f32\[2,3\]"),
    ("scatter", "x x", {"axes": (0,), "mode": "add"}, "cannot scatter"),
]


@pytest.mark.parametrize("op, operands, attrs, message", REFUSALS)
def test_builder_refuses_what_does_not_fit(op, operands, attrs, message):
    b = Builder()
    ids = {name: b.add("input", type=type_, name=name) for name, type_ in TYPES.items()}
    with pytest.raises(GraphError, match=message):
        b.add(op, [ids[name] for name in operands.split()], **attrs)


@pytest.mark.parametrize("op, attrs, message", [
    ("constant", {}, "value=None must be a Python scalar"),
    ("constant", {"value": np.float32(1)}, r"value=np.float32\(1.0\) must be a Python scalar, so that it prints"),
    ("iota", {"axis": 2}, r"axis=2 does not exist in f32\[2,3\]"),
    ("iota", {}, "axis=None does not exist in"),
])
def test_sources_need_their_attributes(op, attrs, message):
    with pytest.raises(GraphError, match=message):
        Builder().add(op, type=TensorType((2, 3)), **attrs)


def test_builder_refuses_unknown_ops():
    with pytest.raises(GraphError, match="unknown op 'relu'; known: abs"):
        Builder().add("relu")


def test_types():
    assert str(TensorType((), "bool")) == "bool[]" and str(TensorType((4, 8))) == "f32[4,8]"
    t = TensorType((4, 0, 3), "float16")
    assert (t.size, t.rank, t.itemsize, t.nbytes) == (0, 3, 2, 0) and TensorType(()).size == 1
    iota = Node(0, "iota", (), TensorType((2, 3), "int32"), (("axis", 1),))
    np.testing.assert_array_equal(iota_value(iota), np.array([[0, 1, 2]] * 2, np.int32))
