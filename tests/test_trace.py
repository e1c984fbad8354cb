"""The frontend's contract: programs, trees, provenance, the traps of NumPy's protocols, and errors that help."""

import contextlib
import functools
import math
import operator
import pickle
import pprint
import re
import sys
import threading
import types
from typing import NamedTuple

import numpy as np
import pytest
from growth import growth
from numpy import zeros
from programs import softmax
from sources import evaluated, executed
from trace_help import check, run

from minisitch.errors import TraceError
from minisitch.explain import demo
from minisitch.graph import TensorType
from minisitch.trace import Leaf, Static, erf, flatten, is_array, trace, unflatten

X = np.arange(12, dtype="f4").reshape(3, 4)
V = np.arange(4, dtype="f4")
WEIGHT = np.full((4, 2), 0.5, "f4")
HERE = np.zeros(3)


# ---------------------------------------------------------------- graphs and where they come from
def test_a_line_of_a_notebook_is_named_by_its_cell(monkeypatch):
    """IPython calls a cell's made-up file by the cell's number. It is none of our dependencies: this is its interface."""
    cells = {"/tmp/ipykernel_1/806731735.py": ("Cell", "In[3]")}
    shell = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=cells.get))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    space = {"np": np}
    executed("def model(x):\n    y = np.tanh(x)\n    return y + 1", space, "/tmp/ipykernel_1/806731735.py")
    graph = trace(space["model"], (np.ones(3, np.float32),)).graph
    assert [node.where for node in graph.nodes if node.op == "tanh"] == ["In [3]:2"]
    executed("def other(x):\n    return x if x[0] > 0 else -x", space, "/tmp/ipykernel_1/1.py")
    with pytest.raises(TraceError, match=r"^1.py:2: "):
        trace(space["other"], (np.ones(3, np.float32),))


def test_a_softmax_prints_as_a_program() -> None:
    line = softmax.__code__.co_firstlineno + 1
    assert str(trace(softmax, (X,)).graph) == f"""\
%0: f32[3,4] = input name='x'
%1: f32[3,1] = max %0 axes=(1,) keepdims=True  # programs.py:{line} in softmax
%2: f32[3,4] = broadcast %1 shape=(3, 4)  # programs.py:{line} in softmax
%3: f32[3,4] = sub %0 %2  # programs.py:{line} in softmax
%4: f32[3,4] = exp %3  # programs.py:{line} in softmax
%5: f32[3,1] = sum %4 axes=(1,) keepdims=True  # programs.py:{line + 1} in softmax
%6: f32[3,4] = broadcast %5 shape=(3, 4)  # programs.py:{line + 1} in softmax
%7: f32[3,4] = div %4 %6  # programs.py:{line + 1} in softmax
return %7"""


def test_scalars_are_splats_and_composites_name_themselves() -> None:
    nodes = trace(lambda x: x * 0.5 + x.var(), (X,)).graph.nodes
    half = next(node for node in nodes if node.op == "constant")
    assert half.type == TensorType((3, 4)) and half.attr("value") == 0.5
    assert {node.via for node in nodes} == {"", "var"}


def test_provenance_skips_lambdas_and_sees_through_comprehensions() -> None:
    def rows(x):
        return [row + 1 for row in x]
    assert {node.via for node in trace(rows, (X,)).graph.nodes[1:]} == {"rows"}
    assert {node.via for node in trace(lambda x: x + 1, (X,)).graph.nodes} == {""}


def test_three_doors_one_node() -> None:
    structures = {trace(fn, (X,)).graph.structure for fn in (
        lambda x: np.sum(x, axis=1), lambda x: x.sum(1), lambda x: np.add.reduce(x, axis=-1), lambda x: x.sum((1,)))}
    assert len(structures) == 1
    assert trace(lambda x: np.amax(x), (X,)).graph.structure == trace(lambda x: np.maximum.reduce(x, axis=None), (X,)).graph.structure


def test_programs_trace_from_shapes_alone() -> None:
    abstract = trace(softmax, (TensorType((3, 4)),))
    assert abstract == trace(softmax, (X,))


def test_inputs_are_named_after_parameters() -> None:
    def fn(x, params, *rest, scale):
        return x
    program = trace(fn, (X, {"w": V, "layers": [V, V]}, V), {"scale": V})
    assert [program.graph[i].attr("name") for i in program.graph.inputs] == [
        "x", "params.w", "params.layers.0", "params.layers.1", "arg2", "scale"]


# ---------------------------------------------------------------- trees
class Pair(NamedTuple):
    left: object
    right: object


def test_trees_take_apart_and_put_together() -> None:
    nest = (X, {"b": [V, 3], "a": Pair(V, None)}, "name", np.float32(2))
    leaves, tree = flatten(nest)
    assert [type(each) for each in leaves] == [np.ndarray, np.ndarray, np.ndarray, np.float32]
    again = unflatten(tree, leaves)
    assert again[1]["a"] == Pair(V, None) or again[1]["a"].left is V
    assert list(again[1]) == ["b", "a"] and again[2:] == nest[2:]
    assert pickle.loads(pickle.dumps(tree)) == tree and hash(tree) == hash(flatten(nest)[1])


def test_static_values_differ_where_python_says_equal() -> None:
    trees = {flatten(value)[1] for value in (1, 1.0, True, 0.0, -0.0, 0, False)}
    assert len(trees) == 5, "a float is an input, whatever its value"
    assert flatten(math.nan)[1] == flatten(math.nan)[1]


def test_python_scalars_are_static_and_numpy_scalars_are_inputs() -> None:
    program = trace(lambda x, n, s, z: (x * n, x * s, x * z), (V, 3, np.float32(2), np.array(4.0)))
    assert len(program.graph.inputs) == 3
    assert flatten((V, 3))[1].children == (Leaf(0), Static(3, (int, "3")))
    assert [program.graph[o].type.dtype for o in program.graph.outputs] == ["float32", "float32", "float64"]


def test_results_may_hold_constants_and_repeat() -> None:
    program = check(lambda x: {"y": x, "again": [x, 2.5, None], "shape": x.shape}, X)
    assert program.graph.outputs == (0, 0)
    assert trace(lambda x: WEIGHT, (X,)).captured[0] is WEIGHT, "an output, of which each call gives a copy"


# ---------------------------------------------------------------- captured and changed arrays
def test_captured_arrays_are_inputs_by_reference() -> None:
    weight = np.ones((4, 2), "f4")
    program = trace(lambda x: x @ weight + x @ weight, (X,))
    assert len(program.captured) == 1 and program.captured[0] is weight
    weight *= 3
    np.testing.assert_array_equal(run(program, (X,)), X @ weight + X @ weight)


def test_arguments_changed_in_place_are_outputs() -> None:
    def fn(x, y):
        x -= x.mean(axis=0)
        y[0] = 7
        return x.sum()
    assert check(fn, X, V).mutated == ((0, 1), (1, 2))


def test_inputs_changed_through_a_view() -> None:
    def fn(x):
        row = x[1]
        row += 1
        x.T[0] = 5
        return row
    assert check(fn, X).mutated == ((0, 1),)


def test_numpy_scalars_rebind_and_arrays_of_shape_one_change() -> None:
    def fn(scalar, array):
        before_scalar, before_array = scalar, array
        scalar += 1
        array += 1
        return before_scalar, before_array, scalar, array
    check(fn, np.float32(3), np.array(3.0))


def test_tracing_grows_with_the_program_and_no_faster() -> None:
    def tracing(times):
        def long(x):
            for _ in range(times):
                x = (x * 2 + 1) - x
            return x
        return lambda: trace(long, (X,))
    assert len(tracing(200)().graph) > 800
    assert growth(tracing, 250, 10) < 1.05, "of 10,000 nodes"


# ---------------------------------------------------------------- what tracing gets wrong unless it takes care, one by one
def test_trap_promotion_float64_scalars_are_strong() -> None:
    program = check(lambda x: (x * np.sqrt(2 / np.pi), x / np.sqrt(64), x / math.sqrt(64)), X)
    assert [program.graph[o].type.dtype for o in program.graph.outputs] == ["float64", "float64", "float32"]


def test_trap_out_into_a_real_array_is_refused() -> None:
    buffer = np.zeros((3, 4), "f4")

    def in_place(x):
        nonlocal buffer
        buffer += x
    for fn in (in_place, lambda x: np.add(x, 1, out=buffer), lambda x: np.sum(x, axis=1, out=buffer[:, 0])):
        with pytest.raises(TraceError, match=r"test_trace.py:\d+: the program puts what it computed into buffer, outside of it.*np.zeros_like"):
            trace(fn, (X,))
    assert not buffer.any()


def test_trap_out_into_a_traced_array() -> None:
    def fn(x):
        buffer = np.zeros_like(x)
        np.add(x, 1, out=buffer)
        np.multiply(buffer, 2, buffer, where=x > 3)
        np.sum(x, axis=0, out=buffer[0])
        return buffer, np.divide(1, x, out=np.zeros_like(x), where=x != 0)
    check(fn, X)


def helper_that_allocates(n):
    return np.zeros(n, np.float32)


def test_trap_allocation_then_fill() -> None:
    def fn(x):
        y = np.zeros((3, 2), dtype=x.dtype)
        y[:, 0] = x[:, 1]
        z = zeros(3)
        z[1:] = x[0, :2]
        w = helper_that_allocates(3)
        w += x[:, 0]
        e, f, o = np.empty_like(x), np.full((2, 2), 7), np.ones(4)
        e[...] = 1
        f[0] = x[0, 0]
        o -= x[0]
        return y, z, w, e, f, o
    check(fn, X)


def test_trap_creation_functions_meet_traced_values() -> None:
    check(lambda x: (np.array([x[0], x[1]]), np.asarray(x) + 1, np.ascontiguousarray(x.T), np.array(x, dtype="f8"),
                     np.array([[x[0, 0], 1.0], [x[1, 1], 2.0]]), np.eye(3, dtype="f4") @ x, np.tri(3, 4) * x, np.identity(3) @ x,
                     np.arange(4) * x, np.arange(1, 9, 2) + x, np.arange(0, 1, 0.25) + x, np.full(2, x[0, 0]), np.array([1, 2])), X)


def test_trap_lists_of_traced_arrays() -> None:
    check(lambda x: (np.sum([x[0], x[1]], axis=0), np.mean([x[0, 0], x[1, 1]]), np.max([x[0], x[1]]), np.stack(list(x)),
                     np.argmax([x[0, 0], x[1, 1]]), sum(x), np.where([True, False, True, True], x, [0, 1, 2, 3])), X)


def test_trap_writes_into_real_arrays_are_refused_by_every_door() -> None:
    here = np.zeros((3, 4), "f4")
    for fn in (lambda x: np.add.at(here, (x > 3).astype(int), 1), lambda x: np.copyto(here, x),
               lambda x: np.put_along_axis(here, x.argmax(1, keepdims=True), 0, 1)):
        with pytest.raises(TraceError, match="np.zeros_like"):
            trace(fn, (X,))


def test_trap_a_copy_made_by_array_does_not_write_through() -> None:
    def fn(x):
        copied, same = np.array(x), np.asarray(x)
        copied += 1
        same *= 2
        return copied, same
    check(fn, X)


def test_the_users_module_is_left_alone() -> None:
    before = dict(globals())
    trace(lambda x: helper_that_allocates(3) + x[:, 0], (X,))
    assert globals().keys() == before.keys() and all(globals()[k] is v for k, v in before.items())
    assert isinstance(helper_that_allocates(2), np.ndarray)


def test_known_values_stay_usable_while_tracing() -> None:
    def fn(x):
        steps = np.arange(3)
        total = x * 0
        for step in steps:
            if step > 0:
                total = total + x[int(step)] * float(step)
        window = np.zeros(2).shape[0]
        return total + np.ones(2).sum().item(), x[:window], x[steps[1]]
    check(fn, X)


def test_trap_an_ndarray_on_the_left() -> None:
    check(lambda x: (WEIGHT.T @ x.T, np.float32(2) * x, V + x, V > x, np.float64(1) - x, [1, 2, 3, 4] * x), X)


def test_trap_functions_that_share_a_name() -> None:
    check(lambda x: (np.amax(x), np.concat([x, x]), np.permute_dims(x, (1, 0)), np.pow(x, 2), np.acos(x / 20), np.mod(x, 3)), X)


def test_trap_a_table_that_is_no_tracer() -> None:
    with pytest.raises(TraceError, match=r"test_trace.py:\d+: use as a Python integer|conversion to an ndarray"):
        trace(lambda i: np.linspace(0, 1, 4)[i], (np.array([0, 1]),))
    check(lambda i: WEIGHT[i], np.array([0, 1]))
    check(lambda table, i: (table[i], np.take(table, i, axis=0)), WEIGHT, np.array([0, -1]))


def test_partials_and_decorated_functions() -> None:
    def twice(fn):
        @functools.wraps(fn)
        def run_twice(*args):
            return fn(fn(*args))
        return run_twice

    @twice
    def step(x):
        y = np.zeros(4, "f4")
        y[1:] = x[:-1]
        return y
    check(step, V)
    check(functools.partial(softmax), X)


def test_erf_works_on_both_kinds() -> None:
    assert erf(0.0) == 0 and isinstance(erf(V), np.ndarray) and erf(np.float32(1)).dtype == np.float32
    assert trace(erf, (V,)).graph.nodes[-1].op == "erf"


# ---------------------------------------------------------------- errors
REFUSED = {
    "if x.max() > 0: x = x + 1": "the truth value, in `if`, of a traced bool.*np.where",
    "while x.sum() < 9: x = x + 1": "the truth value.*np.where",
    "x = max(x[0, 0], x[1, 1])": "np.maximum",
    "x = x[0, 0] and x[1, 1]": "the truth value",
    "x = math.exp(x[0, 0])": r"math.exp\(\) of a traced f32\[\] array.*Write np.exp",
    "x = int(x[0, 0])": r"int\(\) of a traced",
    "x = [0, 1][x.argmax()]": "Python integer",
    "x = range(x.argmax())": r"range\(\) of",
    "x = x if x[0, 0].item() > 0 else -x": r"item\(\)",
    "x = x.tolist()": r"tolist\(\)",
    "x = 1.0 in x": "truth value",
    "x = np.nonzero(x)": "np.nonzero: the shape of its result depends on values.*np.where",
    "x = np.unique(x)": "np.unique: the shape",
    "x = np.where(x > 0)": r"np.where\(condition\) with one argument",
    "x = x[x > 0]": r"x\[mask\] under a traced mask.*depends on values.*where=mask",
    "x = len(x[x > 0])": r"x\[mask\] under a traced mask",
    "x = x[x > 0].cumsum()": r"x\[mask\] under a traced mask.*where=mask",
    "x = x[x[0, 0] > 0]": "a single bool as an index",
    "x = np.median(x)": r"np.median: its source does something that cannot be recorded \(ndarray.partition: [^()]*\)\. Write np.sort",
    "x = np.gradient(x[0], x[0])": "np.gradient: its source does something that cannot be recorded.*Write it with",
    "x = np.r_[x[0], 1]": r"conversion to an ndarray.*np.concatenate\(\[x, y\]\) for np.r_",
    "x[x > 0] = x[0]": "one value for each masked element",
    "x = x[x > 0] + x[x > 1]": r"np.add of x\[mask\]",
    "x = x[: x.argmax()]": "a slice bound.*fixed",
    "x = x * 1j": "complex.*two real arrays",
    "x = np.fft.fft(x)": "np.fft.fft",
    "x = np.linalg.inv(x[:, :3])": "np.linalg.inv: LAPACK computes it.*Compute it outside",
    "x = np.subtract.accumulate(x)": "np.subtract.accumulate.*np.cumsum",
    "x = np.subtract.reduce(x)": "np.subtract.reduce.*Reductions are",
    "x = np.add.reduceat(x, [0, 1])": "np.add.reduceat",
    "x = np.array(x, order='F').strides": "ndarray.strides",
    "x.shape = 12": "x.shape = .*x.reshape",
    "x = np.random.rand(3) + x[0, 0]": "rand.*two different programs.*Draw or ask outside",
    "x = np.repeat(x, x[0].astype(int))": "np.repeat by a traced count",
    "x = np.searchsorted(x[0], x)": "np.searchsorted",
    "x = np.int32(x[0])": r"np.int32\(x\)|astype",
    "HERE[0] = x[0, 0]": "puts what it computed into HERE.*np.zeros", "HERE[:3] = x[0, :3]": "puts what it computed into HERE",
    "HERE[x[0].astype(int)] = 1": "puts what it computed into HERE", "np.linspace(0, 1, 3).astype(complex)[:] = x[0, :3]": "assignment into a real ndarray", "HERE[0] = float(x[0, 0])": "puts what it computed into HERE",
    "x[int(x[0, 0])] = 1": r"int\(\) of", "x[:x.argmax()] = 1": "a slice bound of", "round(x[0, 0])": r"round\(\) of",
    "int(x.max().item())": r"int\(\) of .*astype", "bool(x.max().item())": r"bool\(\) of", "round(x.max().item())": r"round\(\) of", "x.max().item() // 2": r"item\(\) of .*Compute with the array as with a number", "f'{x.max():.2f}'": "formatting of",
    "x = np.vectorize(math.sin)(x)": r"np.vectorize\(\) of .*Call the function itself on whole arrays",
    "x = np.divide(1, x, where=x > 0)": "where= but no traced out=",
    "x = np.add(x, 1, casting='no', signature='ff->f')": "signature",
    "x = x + np.array(['a'])": "programs hold only",
    "x = np.add(x, x.astype(np.longdouble))": "programs hold only",
    "x = x.astype(str)": r"a conversion \(astype or dtype=\) to <U0: programs hold only .*Convert it outside the function",
    "np.histogram(x, 4)": "np.histogram: where its bins lie depends on values.*Choose n bins",
    "np.bincount(x[0].astype(int))": "np.bincount: how many counts it has depends on values.*Choose n bins",
}


@pytest.mark.parametrize("line", REFUSED)
def test_refusals_name_the_line_the_reason_and_the_remedy(line: str) -> None:
    space = {"np": np, "math": math, "HERE": np.zeros(3)}
    executed(f"def model(x):\n    {line}\n    return x", space, "model.py")
    with pytest.raises(TraceError, match=f"^model.py:[23]: .*({REFUSED[line]})") as caught:
        trace(space["model"], (X,))
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("line", REFUSED)
def test_a_refusal_that_the_program_catches_is_raised_all_the_same(line: str) -> None:
    space = {"np": np, "math": math, "HERE": np.zeros(3)}
    indented = line.replace("\n", "\n    ")
    source = f"def model(x):\n    try:\n        {indented}\n    except Exception:\n        pass\n    return x"
    executed(source, space, "model.py")
    with pytest.raises(TraceError, match=f"^model.py:[3-6]: .*({REFUSED[line]})"):
        trace(space["model"], (X,))


def test_a_caught_refusal_says_that_the_program_caught_it() -> None:
    def doubled(x):
        try:
            if x.max() > 0:
                return x * 2
        except Exception:
            pass
        return x

    def total(x):
        try:
            return int(x.sum())
        except TypeError:
            return 0.0

    def suppressed(x):
        with contextlib.suppress(ValueError):  # NumPy's own error, made of our refusal
            np.linspace(0, 1, 3).fill(x[0, 0])
        return x

    def in_a_helper(x):
        return total(x) + 1
    for fn in (doubled, total, suppressed, in_a_helper):
        with pytest.raises(TraceError, match=r"^test_trace.py:\d+: .*\. The program caught this error itself"):
            trace(fn, (X,))


def test_errors_that_numpy_raises_too_may_be_caught() -> None:
    def fallback(x):
        try:
            return x.reshape(5, -1)
        except ValueError:
            return x + 1
    check(fallback, X)


def test_what_the_tracer_or_numpy_catches_is_no_refusal() -> None:
    def inner(x):
        return np.reshape(x, np.asarray([4, 3])) + np.median([1, 2]) + np.cross(x[:, :3], x[:, 1:]).sum()
    check(inner, X)

    def asks(x):
        try:
            operator.index(x[0, 0])  # a float is no index for NumPy either
        except TypeError:
            return x + 1
    check(asks, X)

    space: dict = {"np": np}
    executed("def handler(x):\n    try:\n        return float(x.sum())\n    except TypeError:\n        return 1.0", space, np.__file__)
    check(lambda x: x + space["handler"](x) * 0, X)


NUMPY_ERRORS = {
    "x + x[:, :3]": (ValueError, "shape mismatch|could not be broadcast"), "x @ x": (ValueError, "mismatch"),
    "x.reshape(5, -1)": (ValueError, "cannot reshape array of size 12"), "x.sum(axis=3)": (ValueError, "axis 3 is out of bounds"),
    "np.concatenate([x, x[:, 1:]])": (ValueError, "must match exactly"), "x.squeeze(0)": (ValueError, "size not equal to one"),
    "x[:, 0:0].max()": (ValueError, "zero-size array to reduction operation maximum"), "~x": (TypeError, "not supported"),
    "(x > 0) - (x > 1)": (TypeError, "boolean subtract"), "x.astype(int) ** -1": (ValueError, "negative integer powers"),
    "x.astype('u1') + 300": (OverflowError, "out of bounds"), "len(x.sum())": (TypeError, "has no len"),
    "np.split(x, 5)": (ValueError, "equal division"), "np.add(x.astype(int), 1.5, out=x.astype(int))": (TypeError, "Cannot cast"),
    "hash(x)": (TypeError, "unhashable"), "x.nothing": (AttributeError, "nothing"), "x.sum()[0]": (IndexError, "too many|invalid index"),
    "np.einsum('ij,jk->iz', x, x.T)": (ValueError, "[Oo]utput (subscript|character)"), "np.stack([x, x[0]])": (ValueError, "same shape"),
    "np.einsum('ii', x)": (ValueError, "label 'i'|collapsing index 'i'"), "np.einsum('ij,ij', x, x[1:])": (ValueError, "broadcast|mismatch"),
    "np.sort(x, axis=2)": (ValueError, "axis 2 is out of bounds"), "np.broadcast_to(x, (4, 3))": (ValueError, "could not be broadcast"),
    "x.swapaxes(0, 2)": (ValueError, "out of bounds"), "np.transpose(x, (0, 0))": (ValueError, "repeated axis"),
    "np.pad(x, -1)": (ValueError, "negative|can't contain"),
}


@pytest.mark.parametrize("row", NUMPY_ERRORS)
def test_numpys_own_errors_stay_numpys(row: str) -> None:
    error, message = NUMPY_ERRORS[row]
    fn = evaluated(f"lambda x: {row}", {"np": np})
    with pytest.raises(error):
        fn(X.copy())
    with pytest.raises(error, match=message):
        trace(fn, (X,))


def test_arrays_that_escape_their_trace() -> None:
    kept = types.GenericAlias(list, [])  # an object that shows none of what it holds
    trace(lambda x: kept.__args__[0].append(x + 1) or x, (X,))
    with pytest.raises(TraceError, match=r"test_trace.py:\d+: an array of a finished trace is used.*Return it"):
        kept.__args__[0][0] + 1
    with pytest.raises(TraceError, match="another trace"):
        trace(lambda x: x + kept.__args__[0][0], (X,))
    assert "f32[3,4]" in repr(kept.__args__[0][0])


def test_unsupported_inputs() -> None:
    with pytest.raises(TraceError, match="complex128.*real and imaginary"):
        trace(lambda x: x, (np.zeros(3, complex),))
    with pytest.raises(TraceError, match="object"):
        trace(lambda x: x, (np.array([None]),))
    for strings in (np.array(["a"]), np.str_("a"), np.zeros(2, [("a", "f4")])):
        with pytest.raises(TraceError, match="the argument names is an array of .*programs hold only"):
            trace(lambda x, names: x, (X, strings))
    with pytest.raises(TraceError, match=r"argument weights\.0 is an array of complex64"):
        trace(lambda weights: weights[0], ([X.astype("c8")],))


def test_the_package_is_a_library_but_for_the_file_of_the_program() -> None:
    def refused_by(file: str) -> str:
        lines = "try: trace(fn, (x,))\nexcept Exception as problem: said = str(problem)"
        space: dict = {"trace": trace, "fn": lambda x: x, "x": np.array(["a"])}
        thread = threading.Thread(target=exec, args=(compile(lines, file, "exec"), space))  # no test on its stack
        thread.start()
        thread.join()
        return space["said"]
    begins = r"test_trace.py:\d+: the argument x is an array of <U1"  # where fn begins, whoever calls it
    assert re.match(begins, refused_by(demo.__file__)) and re.match(begins, refused_by("model.py"))
    graph = trace(demo.softmax, (X,)).graph
    assert {node.where.partition(":")[0] for node in graph.nodes} == {"", "demo.py"}
    assert {node.via for node in graph.nodes} == {"", "softmax"}
    partial = trace(functools.partial(demo.softmax), (X,)).graph
    assert partial.structure == graph.structure and {node.via for node in partial.nodes} == {"", "softmax"}


def test_known_values_are_numbers_and_every_array_prints(capsys) -> None:
    def prints(x):
        three = np.zeros(2).sum() + 3
        assert pprint.pformat(x) == "Array(f32[3,4])"
        print([x])
        return x, f"{three:.1f}", round(three), round(three, 1)
    assert trace(prints, (X,)).outputs == flatten((X, "3.0", 3, 3.0), is_array)[1]
    assert capsys.readouterr().out == "[Array(f32[3,4])]\n"
