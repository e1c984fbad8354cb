"""The meaning: each op against an expression written without it, the float64 arbiter, and the judge."""

import math

import numpy as np
import pytest

from minisitch.errors import GraphError
from minisitch.graph import TensorType
from minisitch.ops import OPS
from minisitch.reference import evaluate
from minisitch.testing import random_graph, random_inputs
from minisitch.testing.judge import error_bounds, judge
from minisitch.trace.builder import Builder
from minisitch.trace.parser import parse

FLOATS = [-2.5, -1.0, -0.25, 0.0, 0.125, 0.75, 1.0, 3.5]
INTS = [-7, -2, -1, 0, 1, 2, 5, 7]


def run(op, arrays, **attrs):
    b = Builder()
    args = [b.add("input", type=TensorType(a.shape, a.dtype.name), name=f"x{i}") for i, a in enumerate(arrays)]
    return evaluate(b.finish([b.add(op, args, **attrs)]), arrays)[0]


# ---------------------------------------------------------------- maps, one element at a time, with the math module
def sign(x):
    return (x > 0) - (x < 0)


FLOAT_MEANING = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "floor_divide": lambda x, y: math.floor(x / y), "mod": lambda x, y: x - math.floor(x / y) * y, "fmod": math.fmod,
    "power": math.pow, "neg": lambda x: -x, "abs": abs, "sign": sign, "maximum": max, "minimum": min, "fmax": max,
    "fmin": min, "copysign": math.copysign, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "rint": round,
    "sqrt": math.sqrt, "exp": math.exp, "expm1": math.expm1, "log": math.log, "log1p": math.log1p, "log2": math.log2,
    "log10": math.log10, "tanh": math.tanh, "erf": math.erf, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "arcsin": math.asin, "arccos": math.acos, "arctan": math.atan, "sinh": math.sinh, "cosh": math.cosh,
    "arcsinh": math.asinh, "arccosh": math.acosh, "arctanh": math.atanh, "arctan2": math.atan2, "hypot": math.hypot,
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y, "isnan": math.isnan, "isinf": math.isinf,
    "isfinite": math.isfinite, "signbit": lambda x: math.copysign(1, x) < 0,
}
INT_MEANING = {
    **{name: FLOAT_MEANING[name] for name in ("add", "sub", "mul", "neg", "abs", "sign", "maximum", "minimum",
                                              "eq", "ne", "lt", "le", "gt", "ge")},
    "floor_divide": lambda x, y: x // y, "mod": lambda x, y: x % y, "fmod": lambda x, y: int(math.fmod(x, y)),
    "power": lambda x, y: x ** abs(y), "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
    "not": lambda x: ~x, "shift_left": lambda x, y: x << abs(y), "shift_right": lambda x, y: x >> abs(y),
}
BOOL_MEANING = {**{name: FLOAT_MEANING[name] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
                "and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y,
                "not": lambda x: not x}


def check_map(op, meaning, values, dtype):
    """Where the plain expression has a value, NumPy's array expression has the same one."""
    combinations = [(x,) for x in values] if OPS[op].arity == 1 else [(x, y) for x in values for y in values]
    if op in ("power", "shift_left", "shift_right") and dtype == "int64":
        combinations = [(x, abs(y)) for x, y in combinations]
    defined = []
    for operands in combinations:
        try:
            defined.append((operands, meaning(*operands)))
        except (ValueError, ZeroDivisionError, OverflowError):
            continue
    assert len(defined) >= 2
    got = run(op, [np.array(column, dtype) for column in zip(*(operands for operands, _ in defined), strict=True)])
    expected = np.array([value for _, value in defined])
    assert got.dtype == (bool if OPS[op].result == "bool" else dtype)
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=1e-14)


@pytest.mark.parametrize("op", FLOAT_MEANING)
def test_float_maps(op):
    check_map(op, FLOAT_MEANING[op], FLOATS, "float64")


@pytest.mark.parametrize("op", INT_MEANING)
def test_int_maps(op):
    check_map(op, INT_MEANING[op], INTS, "int64")


@pytest.mark.parametrize("op", BOOL_MEANING)
def test_bool_maps(op):
    check_map(op, BOOL_MEANING[op], [False, True], "bool")


def test_every_map_has_a_plain_meaning():
    tables = {"float": FLOAT_MEANING, "int": INT_MEANING, "bool": BOOL_MEANING}
    for op in OPS.values():
        if op.kind == "map" and op.name not in ("select", "cast"):
            assert {kind for kind, table in tables.items() if op.name in table} == set(op.domain), op.name


def test_select_and_cast():
    x, y, c = np.array([1.5, -0.0]), np.array([2.0, 3.0]), np.array([True, False])
    np.testing.assert_array_equal(run("select", [c, x, y]), [1.5, 3.0])
    assert run("cast", [np.array([-1.9, 2.9, 0.0])], dtype="int32").tolist() == [-1, 2, 0]
    assert run("cast", [np.array([300, -1])], dtype="uint8").tolist() == [44, 255]
    np.testing.assert_array_equal(run("cast", [np.array([-0.0, 0.5, np.nan])], dtype="bool"), [False, True, True])
    assert run("cast", [np.array([2**24 + 1])], dtype="float32")[0] == 2**24


# ---------------------------------------------------------------- reductions and moves, with Python loops
CUBE = np.arange(24, dtype=np.float64).reshape(2, 3, 4) % 7 - 3


@pytest.mark.parametrize("axes", [(), (0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("op, fold", [("sum", sum), ("prod", math.prod), ("max", max), ("min", min)])
def test_reductions(op, fold, axes, keepdims):
    groups = {}
    for at in np.ndindex(*CUBE.shape):
        groups.setdefault(tuple(0 if a in axes else i for a, i in enumerate(at)), []).append(float(CUBE[at]))
    expected = np.zeros([1 if a in axes else n for a, n in enumerate(CUBE.shape)])
    for at, group in groups.items():
        expected[at] = fold(group)
    if not keepdims:
        expected = expected.reshape([n for a, n in enumerate(CUBE.shape) if a not in axes])
    np.testing.assert_array_equal(run(op, [CUBE], axes=axes, keepdims=keepdims), expected)


def test_reductions_of_other_kinds():
    b = np.array([[True, False], [False, False]])
    assert run("any", [b], axes=(1,), keepdims=False).tolist() == [True, False]
    assert run("all", [b], axes=(1,), keepdims=False).tolist() == [False, False]
    assert run("sum", [np.full((3,), 100, "uint8")], axes=(0,), keepdims=False) == 300 % 256  # the node's own dtype
    empty = np.zeros((2, 0))
    assert run("sum", [empty], axes=(1,), keepdims=False).tolist() == [0, 0]
    assert run("prod", [empty], axes=(1,), keepdims=False).tolist() == [1, 1]
    assert np.isnan(run("max", [np.array([1.0, np.nan])], axes=(0,), keepdims=False))


@pytest.mark.parametrize("axes", [(), (0,), (1,)])
def test_a_float_sum_starts_from_positive_zero(axes):
    """Why simplify turns a sum over one element into ``x + 0.0`` and not into ``x``."""
    total = run("sum", [np.full((1, 1), -0.0, np.float32)], axes=axes, keepdims=True)
    assert not np.signbit(total).any()


def test_moves():
    x, i = CUBE, np.array([[1, 0], [1, 1]])
    np.testing.assert_array_equal(run("broadcast", [x[:, :1]], shape=(2, 3, 4)), np.repeat(x[:, :1], 3, axis=1))
    np.testing.assert_array_equal(run("reshape", [x], shape=(4, 6)).ravel(), x.ravel())
    transposed = run("transpose", [x], perm=(2, 0, 1))
    assert all(transposed[c, a, b] == x[a, b, c] for a, b, c in np.ndindex(*x.shape))
    np.testing.assert_array_equal(run("slice", [x], start=(1, 2, 3), size=(1, 3, 2), step=(1, -1, -2)),
                                  x[1:2, ::-1, 3::-2])
    np.testing.assert_array_equal(run("slice", [x], start=(0, 0, 3), size=(2, 0, 1), step=(1, 1, 1)), x[:, 3:, 3:])
    np.testing.assert_array_equal(run("concatenate", [x, x[:, :1]], axis=1), np.hstack([x, x[:, :1]]))
    expected = x.copy()
    expected[1, ::-2, 1] = 9
    np.testing.assert_array_equal(
        run("update", [x, np.full((1, 2, 1), 9.0)], start=(1, 2, 1), step=(1, -2, 1)), expected)
    gathered = run("gather", [x, i], axes=(1,))
    assert gathered.shape == (2, 2, 2, 4) and all(
        np.array_equal(gathered[a, b], x[:, i[a, b]]) for a, b in np.ndindex(2, 2))
    np.testing.assert_array_equal(run("gather", [x, i, i], axes=(0, 2)), x.transpose(0, 2, 1)[i, i])


def test_library_calls():
    x = CUBE
    product = run("matmul", [x, x.transpose(0, 2, 1)])
    assert all(product[b, r, c] == sum(x[b, r] * x[b, c]) for b, r, c in np.ndindex(2, 3, 3))
    assert run("cumsum", [np.array([1.0, 2, 3])], axis=0).tolist() == [1, 3, 6]
    assert run("cumprod", [np.array([1.0, 2, 3])], axis=0).tolist() == [1, 2, 6]
    assert run("sort", [np.array([[3.0, 1, 2]])], axis=1).tolist() == [[1, 2, 3]]
    assert run("argsort", [np.array([3.0, 1, 1])], axis=0).tolist() == [1, 2, 0]
    x, v, i = np.zeros(3), np.array([1.0, 2.0]), np.array([1, 1])
    assert run("scatter", [x, v, i], axes=(0,), mode="add").tolist() == [0, 3, 0]
    assert run("scatter", [x, v, i], axes=(0,), mode="set").tolist() == [0, 2, 0]
    assert run("ufunc", [np.array([8.0])], name="cbrt", output=0, dtype="float64").tolist() == [2.0]
    assert run("ufunc", [np.array([2.5])], name="modf", output=1, dtype="float64").tolist() == [2.0]


# ---------------------------------------------------------------- executing
def test_inputs_must_match():
    graph = parse("%0: f32[2] = input name='x'\n%1: f32[2] = exp %0\nreturn %1")
    for wrong in (np.zeros(3, "f4"), np.zeros(2, "f8"), np.zeros((2, 1), "f4")):
        with pytest.raises(GraphError, match=r"%0 input takes f32\[2\], got"):
            evaluate(graph, [wrong])
    with pytest.raises(GraphError, match="inputs of the graph: 1, arrays given: 0"):
        evaluate(graph, [])


@pytest.mark.parametrize("seed", range(40))
def test_results_have_the_declared_types(seed):
    graph = random_graph(np.random.default_rng(seed))
    inputs = random_inputs(graph, np.random.default_rng(seed))
    for output, value in zip(graph.outputs, evaluate(graph, inputs), strict=True):
        assert (value.shape, value.dtype.name) == (graph[output].type.shape, graph[output].type.dtype)


# ---------------------------------------------------------------- the float64 arbiter
def test_the_arbiter_does_not_round():
    graph = parse("""%0: f32[1] = input name='x'
        %1: f16[1] = cast %0 dtype='float16'
        %2: f32[1] = cast %1 dtype='float32'
        %3: f32[1] = constant value=0.1
        %4: f32[1] = mul %2 %3
        %5: i32[1] = cast %0 dtype='int32'
        %6: f32[1] = cast %5 dtype='float32'
        return %2 %3 %4 %5 %6""")
    x = np.array([1 + 2**-20], np.float32)
    skipped, constant, product, whole, again = evaluate(graph, [x], float64=True)
    assert skipped == x.astype(float) and skipped.dtype == np.float64  # the way through float16 is skipped
    assert constant == float(np.float32(0.1))  # a constant is what its own dtype made of it
    assert product == x.astype(float) * float(np.float32(0.1))
    assert whole.dtype == np.int32 and whole == 1 and again == 1.0  # a cast to an integer is not


# ---------------------------------------------------------------- the judge
def graph_of(*lines):
    return parse("\n".join([*(f"%{i}: {line}" for i, line in enumerate(lines)), f"return %{len(lines) - 1}"]))


SUM = graph_of("f32[4096] = input name='x'", "f32[] = sum %0 axes=(0,) keepdims=False")
CENTRED = graph_of("f32[64] = input name='x'", "f32[1] = sum %0 axes=(0,) keepdims=True",
                   "f32[1] = constant value=0.015625", "f32[1] = mul %1 %2", "f32[64] = broadcast %3 shape=(64,)",
                   "f32[64] = sub %0 %4", "f32[64] = exp %5")


def accepts(graph, inputs, got):
    return judge(graph, inputs, [np.asarray(got)])[0].ok


def test_small_integers_must_be_equal():
    x = np.arange(4096, dtype=np.float32) % 8
    total = np.float32(x.sum())
    assert accepts(SUM, [x], total)
    assert not accepts(SUM, [x], np.nextafter(total, np.float32(0)))
    assert "allowed 0" in judge(SUM, [x], [np.nextafter(total, np.float32(0))])[0].why


@pytest.mark.parametrize("values", ["uniform", "equal"])
def test_a_serial_sum_is_honest_and_a_lost_element_is_not(values, rng):
    x = (rng.random(4096) if values == "uniform" else np.full(4096, 0.1)).astype(np.float32)
    serial = np.add.accumulate(x)[-1]
    assert serial != x.sum(), "the point is that another order rounds differently"
    assert accepts(SUM, [x], serial)
    assert not accepts(SUM, [x], (x[:-1] if values == "equal" else np.delete(x, x.argmax())).sum())


def test_cancellation_is_allowed_for():
    x = (np.linspace(0, 1, 64) + 1000).astype(np.float32)
    other = np.exp(x - np.float32(np.add.accumulate(x)[-1] / np.float32(64)))
    assert accepts(CENTRED, [x], other)
    assert not accepts(CENTRED, [x], np.exp(x - x.mean() + np.float32(0.05)))


def test_shape_dtype_and_count():
    x = np.ones(4096, np.float32)
    assert "expected float32[], got float64[]" in judge(SUM, [x], [np.float64(4096)])[0].why
    assert "expected float32[], got float32[1]" in judge(SUM, [x], [np.ones(1, np.float32)])[0].why
    assert judge(SUM, [x], [])[0].why == "outputs expected: 1, got 0"


def test_infinities_and_nan_stand_where_numpys_do():
    graph = graph_of("f32[3] = input name='x'", "f32[3] = exp %0")
    x = np.array([1000, np.nan, -np.inf], np.float32)
    assert accepts(graph, [x], np.array([np.inf, np.nan, 0], np.float32))
    inf, nan = np.inf, np.nan
    for wrong in ([3e38, nan, 0], [inf, 0, 0], [inf, inf, 0], [-inf, nan, 0], [inf, nan, nan]):
        assert not accepts(graph, [x], np.array(wrong, np.float32)), wrong


def test_float32_may_overflow_where_float64_does_not():
    graph = graph_of("f32[1] = input name='x'", "f32[1] = exp %0", "f32[1] = log %1")
    x = np.array([100], np.float32)  # float64 says 100
    assert accepts(graph, [x], np.array([np.inf], np.float32))
    assert not accepts(graph, [x], np.array([50], np.float32))


def test_float16_is_kept_in_float32_between_stores(rng):
    graph = graph_of("f16[256] = input name='x'", "f16[256] = mul %0 %0", "f16[256] = exp %1", "f16[256] = log %2")
    x = (rng.random(256) * 3).astype(np.float16)
    wide = x.astype(np.float32)
    assert accepts(graph, [x], np.log(np.exp(wide * wide)).astype(np.float16))
    assert not accepts(graph, [x], (np.log(np.exp(wide * wide)) * 1.02 + 0.01).astype(np.float16))


def test_a_branch_that_rounding_may_flip_is_undecided():
    lines = ["f32[2] = input name='x'", "f32[2] = exp %0", "f32[2] = log %1", "f32[2] = floor %2"]
    x = np.array([3, 3.5], np.float32)  # floor(log(exp(3))) may be 2 or 3; floor(3.5) may not
    assert accepts(graph_of(*lines), [x], np.array([2, 3], np.float32))
    assert accepts(graph_of(*lines), [x], np.array([3, 3], np.float32))
    assert not accepts(graph_of(*lines), [x], np.array([1, 3], np.float32))
    assert not accepts(graph_of(*lines), [x], np.array([3, 4], np.float32))
    compared = graph_of(*lines[:3], "bool[2] = eq %0 %2")
    assert accepts(compared, [x], np.array([True, True])) and accepts(compared, [x], np.array([False, False]))
    chosen = graph_of(*lines[:3], "i32[2] = cast %2 dtype='int32'")
    assert accepts(chosen, [x], np.array([2, 3], np.int32)) and not accepts(chosen, [x], np.array([3, 4], np.int32))


def test_an_uncertain_index_is_undecided_and_said_to_be():
    graph = graph_of("f32[2] = input name='x'", "f32[2] = exp %0", "f32[2] = log %1", "i32[2] = cast %2 dtype='int32'",
                     "f32[2] = constant value=1.0", "f32[2] = add %0 %4", "f32[2] = gather %5 %3 axes=(0,)")
    x = np.array([1, 0.5], np.float32)
    assert np.isinf(error_bounds(graph, [x])[0][1]).tolist() == [True, False]
    verdict = judge(graph, [x], [np.array([7, 2], np.float32)])[0]
    assert verdict.ok and verdict.undecided == 0.5


def test_large_integers_are_compared_as_integers():
    graph = graph_of("i64[1] = input name='x'", "i64[1] = neg %0")
    assert not accepts(graph, [np.array([2**60])], np.array([-(2**60) + 1]))


def test_a_verdict_says_how_much_of_the_allowance_was_used():
    x = (np.linspace(-1, 1, 64)).astype(np.float32)
    exact = evaluate(CENTRED, [x])[0]
    slight, much = (judge(CENTRED, [x], [exact * np.float32(1 + e)])[0] for e in (1e-7, 1e-3))
    assert slight.ok and 0 < slight.used <= 1
    assert not much.ok and much.used > 1 and "of 64 elements are wrong; at (" in much.why


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_numpy_itself_keeps_within_the_bound(first):
    """The bound is not a guess: NumPy's float32 stays inside it, and nothing is left undecided."""
    for seed in range(first, first + 50):
        graph = random_graph(np.random.default_rng(seed), dtypes=("float32", "float32", "int32", "bool"))
        inputs = random_inputs(graph, np.random.default_rng(seed))
        for value, (exact, bound) in zip(evaluate(graph, inputs), error_bounds(graph, inputs), strict=True):
            assert not np.isinf(bound).any(), f"seed {seed} leaves elements undecided\n{graph}"
            assert np.all(np.abs(value.astype(float) - exact.astype(float)) <= bound), f"seed {seed}\n{graph}"
