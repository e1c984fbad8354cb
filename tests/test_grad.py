"""Gradients: each rule against central differences, and what users call against what JAX's names mean."""

import copy
import math
import pickle
import sys
import threading

import numpy as np
import pytest
from stitch_help import ROOT, runner

import minisitch as ms
from minisitch.grad import rules
from minisitch.ops import OPS, kind_of
from minisitch.reference import evaluate
from minisitch.testing import check_graph, random_graph
from minisitch.testing.grower import DOMAINS
from minisitch.trace.builder import Builder

sys.path.insert(0, str(ROOT / "tools"))
import gradient_programs as tool

SOME = np.random.default_rng(3)


def numbers(*shape, low=-2.0, high=2.0):
    return SOME.uniform(low, high, shape)


def graph_of(fn, *args):
    """The graph of a function, and its inputs."""
    program = ms.trace(fn, args)
    return program.graph, [*args, *program.captured]


# ---------------------------------------------------------------- each rule
def of_op(op, *types, **attrs):
    """A graph of one operation on inputs."""
    builder = Builder()
    given = [builder.add("input", type=type_, name=f"x{i}") for i, type_ in enumerate(types)]
    return builder.finish([builder.add(op, given, **attrs)])


def table():
    """A graph and inputs, off the kinks, for each elementwise operation with a float result."""
    f64, found = ms.TensorType((3, 4), "float64"), {}
    for op in (each for each in OPS.values() if each.kind == "map" and "float" in each.domain and each.result == "same"):
        types = [f64] * (op.arity or 1)
        if op.name == "select":
            types[0] = ms.TensorType((3, 4), "bool")
        low, high = DOMAINS.get(op.name, (0.5, 3.0) if op.name == "power" else (-3.0, 3.0))
        inputs = [numbers(3, 4, low=max(low, -4), high=min(high, 4)) for _ in types]
        if op.name == "select":
            inputs[0] = inputs[0] > 0
        found[op.name] = of_op(op.name, *types, **({"dtype": "float64"} if op.name == "cast" else {})), inputs
    return found


X, Y = numbers(3, 4), numbers(3, 4)
ZEROS = np.where(np.arange(12).reshape(3, 4) % 5, X, 0.0)
TWICE, ONCE = np.array([0, 2, 2, 1]), np.array([2, 0, 1])


def written(mode):
    def program(x, y):
        out = np.copy(x)
        if mode == "set":
            out[TWICE] = y
        else:
            getattr(np, mode).at(out, TWICE, y)
        return out
    return program


def windows(x):
    out = np.zeros((5, 4))
    out[1:4] = x
    out[::2, 1:] += x[:, 1:] * 2
    return out[::-1] * 3


PROGRAMS = {  # the operation, or what is special: a function, its arguments
    "sum": (lambda x: np.sum(x, axis=0) * np.sum(x, axis=(0, 1), keepdims=True)[0], [X]),
    "max": (lambda x: np.max(x, axis=1, keepdims=True) * np.max(x), [X]),
    "min": (lambda x: np.min(x, axis=0), [X]),
    "prod": (lambda x: np.prod(x, axis=1) + np.prod(x), [X]),
    "prod at zeros": (lambda x: np.prod(x, axis=0), [ZEROS]),
    "broadcast": (lambda x, y: x + y[0], [X, Y]),
    "reshape": (lambda x: np.reshape(x, (2, 6)) * np.arange(6), [X]),
    "transpose": (lambda x: np.transpose(np.reshape(x, (3, 2, 2)), (2, 0, 1)), [X]),
    "concatenate": (lambda x, y: np.concatenate([x, y, x], axis=1), [X, Y]),
    "slice": (lambda x: x[1:] * x[:-1] + x[2, ::-1], [X]),
    "slices in a loop": (lambda x: sum(x[i] * x[i - 1, ::-1] * i for i in range(3)), [X]),
    "update": (windows, [X]),
    "gather": (lambda x: x[TWICE] * x[:, ONCE[0]][:, None][TWICE], [X]),
    "matmul": (lambda x, y: x.T @ y, [X, Y]),
    "matmul, rows": (lambda x, y: x @ y, [numbers(2, 3, 4), numbers(4, 5)]),
    "matmul, stacks": (lambda x, y: x @ y, [numbers(2, 1, 3, 4), numbers(5, 4, 2)]),
    "cumsum": (lambda x: np.cumsum(x, axis=1) + np.cumsum(x, axis=0), [X]),
    "cumprod": (lambda x: np.cumprod(x, axis=1), [X]),
    "cumprod at zeros": (lambda x: np.cumprod(x, axis=0), [ZEROS]),
    "sort": (lambda x: np.sort(x, axis=0) * np.arange(4), [X]),
    "scatter": (written("set"), [X, numbers(4, 4)]),
    "scatter add": (written("add"), [X, numbers(4, 4)]),
    "scatter subtract": (written("subtract"), [X, numbers(4, 4)]),
    "a power of zero": (lambda x: np.abs(ZEROS) ** x[0] + x ** 3.0 + np.abs(x) ** 2.5, [np.abs(X)]),
    "einsum": (lambda x, y: np.einsum("ij,kj->ik", x, y), [X, Y]),
    "layer norm": (lambda x: (x - np.mean(x, -1, keepdims=True)) / np.std(x, axis=-1, keepdims=True), [X]),
    "softmax": (lambda x: np.exp(x - np.max(x)) / np.sum(np.exp(x - np.max(x)), axis=-1, keepdims=True), [X]),
    "pad, roll, tile": (lambda x: np.roll(np.pad(x, 1), 2, axis=1)[:, :3] + np.tile(x[:, :1], (1, 3))[[0, 1, 2, 0, 1]], [X]),
    "clip": (lambda x: np.clip(x, -0.7, 0.6), [X]),
    "logaddexp": (lambda x, y: np.logaddexp(x, y), [X, Y]),
    "take_along_axis": (lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1), [X]),
    "norm": (lambda x: np.linalg.norm(x, axis=1), [X]),
    "casts": (lambda x: (x.astype(np.float32) * 2).astype(np.float64) + x.astype(np.int64), [np.round(X, 1) + 0.03]),
}


def slope_error(graph, inputs):
    """How far a graph's gradient along a random direction is from central differences, as a share."""
    graph, rng = tool.with_loss(graph), np.random.default_rng(5)
    inputs = [*inputs, rng.uniform(0.5, 2, graph[graph.inputs[-1]].type.shape)]
    floats = [i for i, node in enumerate(graph.inputs) if kind_of(graph[node].type.dtype) == "float"]
    direction = [rng.uniform(-1, 1, np.shape(inputs[i])) for i in floats]
    found = evaluate(ms.gradient(graph), inputs, float64=True)[1:]

    def at(step):
        moved = list(inputs)
        for i, along in zip(floats, direction, strict=True):
            moved[i] = inputs[i] + step * along
        return float(evaluate(graph, moved, float64=True)[0])
    with np.errstate(all="ignore"):
        slope = sum(float(np.sum(g * d)) for g, d in zip(found, direction, strict=True))
        want = (at(1e-6) - at(-1e-6)) / 2e-6
        return abs(slope - want) / max(abs(want), 1e-3)


CASES = {**table(), **{name: graph_of(fn, *args) for name, (fn, args) in PROGRAMS.items()}}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_against_central_differences(name):
    assert slope_error(*CASES[name]) < 1e-5


def test_every_operation_has_a_rule_or_is_refused():
    assert OPS.keys() - rules.RULES.keys() == {"ufunc"}
    assert rules.RULES.keys() <= OPS.keys()
    checked = {n.op for graph, _ in CASES.values() for n in graph.nodes}
    assert rules.RULES.keys() - checked <= {*rules.FLAT} - {"floor", "sign"}


@pytest.mark.parametrize("mode", ["multiply", "maximum", "minimum"])
def test_a_scatter_without_a_rule_is_refused(mode):
    with pytest.raises(ms.TraceError, match=rf"test_grad.py:\d+: the gradient of np.{mode}.at: it has no rule"):
        ms.gradient(graph_of(written(mode), X, numbers(4, 4))[0])


# A wrong rule, and a program that shows it.
MUTANTS = {
    "sub": lambda g, n, y, a, b: (g, g),
    "mul": lambda g, n, y, a, b: (g * a, g * b),
    "div": lambda g, n, y, a, b: (g / b, (g / b) * y),
    "power": lambda g, n, y, a, b: (g * (b * a ** (b - 1)), g * y * np.log10(a)),
    "maximum": lambda g, n, y, a, b: (g * 0.5, g * 0.5),
    "tanh": lambda g, n, y, x: (g * (1 - x * x),),
    "select": lambda g, n, y, c, a, b: (None, np.where(c, 0, g), np.where(c, g, 0)),
    "cumsum": lambda g, n, y, x: (np.cumsum(g, n.attr("axis"), dtype=g.dtype),),
    "broadcast": lambda g, n, y, x: (np.max(g, axis=tuple(i for i, m in enumerate(x.shape) if m != g.shape[i]), keepdims=True),),
    "transpose": lambda g, n, y, x: (rules.permuted(g, n.attr("perm")),),
    "sum": lambda g, n, y, x: (rules._wide(g, n, x) / x.size,),
    "max": lambda g, n, y, x: (rules._wide(g, n, x),),
    "prod at zeros": lambda g, n, y, x: (rules._wide(g * y, n, x) / np.where(x == 0, 1, x),),
    "update": lambda g, n, y, x, v: (g, rules.record("slice", g, start=n.attr("start"), size=v.shape, step=n.attr("step"))),
    "scatter": lambda g, n, y, x, v, *at: (g, rules.record("gather", g, *at, axes=n.attr("axes"))),
    "matmul": lambda g, n, y, a, b: (g @ b.mT, a.mT @ np.flip(g, 0)),
    "sort": lambda g, n, y, x: (g,),
    "gather": lambda g, n, y, x, *at: (rules.record("scatter", np.zeros_like(x), g, *at, axes=n.attr("axes"), mode="set"),),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_caught(name, monkeypatch):
    monkeypatch.setitem(rules.RULES, name.split()[0], MUTANTS[name])
    assert slope_error(*CASES[name]) > 1e-3


def test_windows_that_meet_are_added_up(monkeypatch):
    monkeypatch.setattr(rules.WindowGradient, "meets", lambda self, other: False)
    assert slope_error(*CASES["slice"]) > 1e-3


def test_random_programs():
    """Deterministic; ``tools/gradient_programs.py`` runs thousands."""
    found = [tool.check_gradient(seed) for seed in range(40)]
    assert [seen for verdict, seen in found if verdict == "wrong"] == []
    assert sum(verdict == "right" for verdict, _ in found) > 20
    assert {verdict for verdict, _ in found} <= {"right", "no float result", "not finite", "refused: np.cbrt", "refused: np.deg2rad"}


@pytest.mark.parametrize("strategy", ["none", "xla", "fs18", "fs20", "astitch", "auto"])
def test_strategies_agree_on_gradients(strategy):
    """A backward graph means what the reference says, under every strategy, and to the bit where every order of a sum gives the same."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, max_nodes=8, dtypes=("float32",) * 3 + ("int64",), max_elements=200)
        if not any(tool.is_float(graph, each) for each in graph.outputs):
            continue
        try:
            derived = ms.gradient(tool.with_loss(graph))
        except ms.TraceError:
            continue
        check_graph(derived, tool.between(derived, rng), runner(strategy, "python"))
    x = np.round(numbers(6, 8) * 4).astype(np.float32)

    def exact(x, y):
        return np.sum(np.maximum(x @ y.T, 0) ** 2) + np.sum(np.where(x > y, x * y, x - y)[::2] * np.cumsum(y, axis=0)[::2])
    both = ms.grad(exact, argnums=(0, 1))
    want = ms.jit(both.__wrapped__, target="reference")(x, x[::-1])
    for found, expected in zip(ms.jit(both.__wrapped__, strategy=strategy, target="cpu")(x, x[::-1]), want, strict=True):
        assert np.array_equal(found, expected)


# ---------------------------------------------------------------- ties and edges, as in JAX
def at(fn, *args, **options):
    """A gradient by the reference, which needs no compiler."""
    return ms.jit(ms.grad(fn, **options).__wrapped__, target="reference")(*args)


def test_ties_share_the_gradient():
    one = np.array([1.0, 1.0, 0.0])
    assert at(lambda x: np.max(x), one).tolist() == [0.5, 0.5, 0.0]
    assert at(lambda x: np.sum(np.maximum(x, 1.0)), one).tolist() == [0.5, 0.5, 0.0]
    assert at(lambda x: np.sum(np.minimum(x, x)), one).tolist() == [1.0, 1.0, 1.0]
    assert at(lambda x: np.sum(np.abs(x)), np.zeros(2)).tolist() == [0.0, 0.0]
    assert at(lambda x: np.logaddexp(x, 1.0), 1.0) == 0.5
    assert at(lambda s: np.sum(np.dot(s, one)), 0.0) == 2
    assert at(lambda x: np.sum(np.clip(x, 0, 1)), one).tolist() == [0.5, 0.5, 0.5]


def test_powers_at_zero_are_finite():
    assert at(lambda x: x ** 0.0, 0.0) == 0
    assert at(lambda x, p: np.power(x, p), 0.0, 2.0, argnums=(0, 1)) == (0, 0)
    assert at(lambda x, p: np.power(x, p), np.float64(0), np.float64(0), argnums=(0, 1)) == (0, 0)
    assert at(lambda x: np.hypot(x, 0.0), 0.0) == 0


def test_empty_arrays_have_empty_gradients():
    assert at(lambda x: np.prod(x) + np.sum(np.cumprod(x)) + np.sum(np.sort(x)), np.zeros(0)).shape == (0,)


def test_a_loop_over_rows_costs_one_array():
    """JAX pads each window to the whole array: T arrays of T rows."""
    def loss(x):
        state = np.zeros(4)
        for row in range(30):
            state = np.tanh(state + x[row])
        return np.sum(state)
    graph = ms.lower(ms.grad(loss), np.ones((30, 4)), stop_after="simplify")
    assert not [n for n in graph.nodes if n.op in ("add", "update") and n.type.shape == (30, 4)]


# ---------------------------------------------------------------- what users call
def cube(x):
    return np.sum(x ** 3)


def test_a_gradient_is_jitted_lowered_explained_and_compared():
    x = np.arange(4.0)
    for strategy, target in [("xla", "step"), ("fs20", "python"), ("astitch", "cpu")]:
        assert np.allclose(ms.jit(ms.grad(cube), strategy=strategy, target=target)(x), 3 * x * x)
    assert np.allclose(ms.grad(cube)(x), 3 * x * x)
    assert "gradient of mul" in str(ms.lower(ms.grad(cube), x, stop_after="fuse").graph)
    assert "gradient_of" in str(ms.lower(ms.grad(cube), x, strategy="astitch"))
    assert "test_grad.py" in str(ms.explain(ms.grad(cube), x))
    assert "astitch" in str(ms.compare(ms.grad(cube), x, target="python"))


def test_derivatives_of_derivatives():
    x = np.array([0.3, -0.7])
    assert np.allclose(ms.grad(ms.grad(lambda a: a ** 4))(2.0), 48)
    assert np.allclose(ms.grad(ms.grad(ms.grad(lambda a: np.sin(a))))(0.3), -math.cos(0.3))
    value, along = ms.jvp(ms.grad(cube), (x,), (np.ones(2),))
    assert np.allclose(value, 3 * x * x) and np.allclose(along, 6 * x)
    assert np.allclose(ms.grad(lambda x: ms.jvp(cube, (x,), (x,))[1])(x), 9 * x * x)

    @ms.jit
    def hessian(x):
        return np.stack([ms.grad(lambda x, i=i: ms.grad(lambda x: np.sum(x) ** 3 + cube(x))(x)[i])(x) for i in range(2)])
    assert np.allclose(hessian(x), 6 * np.sum(x) + np.diag(6 * x))


def test_nests_keywords_argnums_and_aux():
    def loss(p, x, *, scale=1.0, name="mean"):
        y = x @ p["w"] + p["b"][0]
        return scale * np.sum(y * y), {"y": y, "name": name}
    p = {"w": numbers(3, 2), "b": (numbers(2), None), "layers": 2}
    x = numbers(4, 3)
    (value, aux), (d, dx) = ms.value_and_grad(loss, argnums=(0, -1), has_aux=True)(p, x, scale=2.0)
    y = x @ p["w"] + p["b"][0]
    assert np.isclose(value, 2 * np.sum(y * y)) and aux["name"] == "mean" and np.allclose(aux["y"], y)
    assert d.keys() == p.keys() and d["layers"] == 2 and d["b"][1] is None
    assert np.allclose(d["w"], 4 * x.T @ y) and np.allclose(d["b"][0], 4 * y.sum(0)) and np.allclose(dx, 4 * y @ p["w"].T)
    found, aux = ms.grad(loss, has_aux=True)(p, x)
    assert np.allclose(found["w"], 2 * x.T @ y) and np.allclose(aux["y"], y)


def test_vjp_and_jvp():
    x, y = numbers(3), numbers(3)

    def pair(x, y):
        return {"a": x * y, "b": np.sum(x)}
    value, pull = ms.vjp(pair, x, y)
    dx, dy = pull({"a": np.ones(3), "b": 2.0})
    assert np.allclose(value["a"], x * y) and np.allclose(dx, y + 2) and np.allclose(dy, x)
    value, along = ms.jvp(pair, (x, y), (y, np.zeros(3)))
    assert np.allclose(along["a"], y * y) and np.isclose(along["b"], y.sum())

    @ms.jit
    def inside(x, y):
        value, pull, aux = ms.vjp(lambda x: (x * y, y), x, has_aux=True)
        return pull(value), pull(aux)
    (once,), (again,) = inside(x, y)
    assert np.allclose(once, x * y * y) and np.allclose(again, y * y)
    with pytest.raises(ms.TraceError, match=r"a gradient of f64\[2\]: a f64\[3\], b f64\[\] belongs there"):
        pull(np.zeros(2))


def test_a_dict_of_gradients_belongs_by_its_keys():
    x, swapped = {"a": numbers(3), "b": numbers(3)}, {"b": np.zeros(3), "a": np.ones(3)}

    def mul(p):
        return {"a": p["a"] * p["b"], "b": p["a"] * 5}
    assert np.allclose(ms.vjp(mul, x)[1](swapped)[0]["a"], x["b"])
    assert np.allclose(ms.jvp(mul, (x,), (swapped,))[1]["a"], x["b"])
    with pytest.raises(ms.TraceError, match=r"a gradient of 0 f64\[3\], 1 f64\[3\]: a f64\[3\], b f64\[3\] belongs there"):
        ms.vjp(mul, x)[1]([np.ones(3), np.ones(3)])
    own = ms.custom_vjp(mul)
    own.defvjp(lambda p: (mul(p), p), lambda p, g: ({"b": g["a"] * p["a"], "a": g["a"] * p["b"] + 5 * g["b"]},))
    assert np.allclose(ms.grad(lambda p: np.sum(own(p)["a"]))(x)["b"], x["a"])


def test_vjp_keeps_its_arguments():
    x = {"w": numbers(3)}
    want = 3 * x["w"] ** 2
    _, pull = ms.vjp(lambda p: np.sum(p["w"] ** 3), x)
    x["w"][:] = 0
    x["w"] = None
    assert np.allclose(pull(1.0)[0]["w"], want)

    def doubles(y):
        y *= 2
        return np.sum(y)
    y = np.ones(3)
    with pytest.raises(ms.TraceError, match="writes to its argument"):
        ms.vjp(doubles, y)
    assert y.tolist() == [1, 1, 1]


class Model:
    def __init__(self):
        self.w = np.array([1.0, 2.0])

    def loss(self, x):
        return np.sum(self.w * x * x)

    @ms.jit(strategy="xla")
    def jitted(self, x):
        return np.sum(self.w * x * x)

    def __call__(self, x):
        return self.loss(x)


def test_functions_methods_objects_and_closures():
    x, model = np.array([3.0, 4.0]), Model()
    for fn in (model.loss, model.jitted, model, ms.jit(model.loss), ms.jit(lambda x: model.loss(x))):
        assert np.allclose(ms.grad(fn)(x), 2 * model.w * x)
        assert np.allclose(ms.jit(lambda x, fn=fn: ms.grad(fn)(x))(x), 2 * model.w * x)
    found = ms.grad(model.loss)
    found(x)
    model.w = np.array([5.0, 5.0])  # read again at each call
    assert np.allclose(found(x), 10 * x)
    assert ms.grad(model.jitted).options.strategy == "xla" and ms.grad(model.jitted).__name__ == "the gradient of jitted"
    assert np.allclose(ms.grad(lambda z: np.sum(z * x * z))(x), 2 * x * x)  # x from outside is a constant


def test_a_function_made_and_jitted_in_a_trace():
    @ms.jit
    def outer(x):
        inner = ms.jit(lambda z: np.sum(np.sin(z)))
        return inner(x), ms.grad(inner)(x)
    x = numbers(3)
    value, found = outer(x)
    assert np.isclose(value, np.sin(x).sum()) and np.allclose(found, np.cos(x))


@ms.custom_vjp
def own_cube(x):
    return cube(x)


def own_forward(x):
    return cube(x), x


def own_backward(x, g):
    return (g * x * x * 30,)


own_cube.defvjp(own_forward, own_backward)


def test_gradients_can_be_pickled_and_copied():
    x = np.arange(3.0)
    for made in (pickle.loads(pickle.dumps(ms.grad(cube))), copy.deepcopy(ms.grad(cube))):
        assert np.allclose(made(x), 3 * x * x)
    unnamed = ms.custom_vjp(cube)
    unnamed.defvjp(own_forward, own_backward)
    assert pickle.loads(pickle.dumps(own_cube)) is own_cube
    for made in (ms.grad(own_cube), ms.grad(unnamed)):
        assert np.allclose(pickle.loads(pickle.dumps(made))(x), 30 * x * x)


def test_a_step_writes_its_parameters_in_place():
    def loss(p, x):
        return np.mean((x @ p["w"] + p["b"]) ** 2)

    @ms.jit
    def step(p, x, rate):
        value, d = ms.value_and_grad(loss)(p, x)
        for name in p:
            p[name] -= rate * d[name]
        return value
    p, x = {"w": np.ones((3, 2)), "b": np.zeros(2)}, numbers(5, 3)
    values = [step(p, x, 0.1) for _ in range(4)]
    assert values == sorted(values, reverse=True) and values[-1] < values[0] * 0.7


def test_two_gradients_are_two_arrays():
    @ms.jit
    def both(x, y):
        a, b = ms.grad(lambda x, y: np.sum(x + y), argnums=(0, 1))(x, y)
        a += 1
        return a, b
    a, b = both(np.zeros(2), np.zeros(2))
    assert a.tolist() == [2, 2] and b.tolist() == [1, 1]


def test_threads_share_a_gradient():
    made, found = ms.grad(cube), []
    threads = [threading.Thread(target=lambda i=i: found.append(np.allclose(made(np.arange(i + 2.0)), 3 * np.arange(i + 2.0) ** 2)))
               for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [True] * 4


def test_stop_gradient():
    x = numbers(4)
    assert np.allclose(ms.grad(lambda x: np.sum(x * ms.stop_gradient(x)))(x), x)
    assert np.allclose(ms.grad(lambda p: np.sum(ms.stop_gradient(p)["a"] * p["a"]))({"a": x})["a"], x)
    same = ms.stop_gradient(x)
    assert same is not x and np.array_equal(same, x)

    def softmax(x, top):
        e = np.exp(x - top(np.max(x, axis=-1, keepdims=True)))
        return e / np.sum(e, axis=-1, keepdims=True)
    plain, stopped = (ms.lower(ms.grad(lambda x, top=top: np.sum(softmax(x, top) ** 2)), numbers(3, 4), stop_after="simplify")
                      for top in (lambda m: m, ms.stop_gradient))
    assert len(stopped) < len(plain)


def test_custom_vjp():
    @ms.custom_vjp
    def clipped(p, x):
        return {"y": p["w"] * x}, x

    def forward(p, x):
        return clipped(p, x), (p["w"], x)

    def backward(kept, g):
        w, x = kept
        return {"w": np.clip(g[0]["y"] * x, -1, 1)}, g[0]["y"] * w + 5 * g[1]
    clipped.defvjp(forward, backward)
    p, x = {"w": np.array([2.0, 3.0])}, np.array([0.5, 4.0])

    def loss(p, x):
        y, same = clipped(p, x)
        return np.sum(y["y"]) + np.sum(same) * 2
    dp, dx = ms.grad(loss, argnums=(0, 1))(p, x)
    assert np.allclose(dp["w"], [0.5, 1.0]) and np.allclose(dx, p["w"] + 10)
    assert np.allclose(clipped(p, x)[0]["y"], p["w"] * x)
    graph = ms.lower(ms.value_and_grad(loss), p, x, stop_after="simplify")
    assert sum(n.op == "mul" and n.where and n.type.shape == (2,) for n in graph.nodes) <= 6


def test_backward_is_not_called_for_nothing():
    own = ms.custom_vjp(lambda x: x * 1)
    own.defvjp(lambda x: (x * 1, x), lambda x, g: (g / x,))

    def loss(x):
        unused = own(x)
        return np.prod(x + 1) + 0 * np.sum(ms.stop_gradient(unused))
    assert at(loss, np.array([0.0, 1.0, 2.0])).tolist() == [6, 3, 2]


def test_another_derivative_is_another_program():
    once = ms.custom_vjp(cube)
    once.defvjp(own_forward, own_backward)
    found, x = ms.grad(once), numbers(3)
    assert np.allclose(found(x), 30 * x * x)
    once.defvjp(own_forward, lambda x, g: (g * x,))
    assert np.allclose(found(x), x)


# ---------------------------------------------------------------- refusals name the line
def refused(fn, *args, **options):
    with pytest.raises(ms.TraceError) as error:
        ms.grad(fn, **options)(*args)
    return str(error.value)


def line_of(fn, more=0):
    return f"test_grad.py:{fn.__code__.co_firstlineno + more}: "


def test_what_has_no_derivative_is_refused_at_its_line():
    x = numbers(3)

    def root(x):
        y = x * 2
        return np.sum(np.cbrt(y))
    assert refused(root, x).startswith(line_of(root, 2) + "the gradient of np.cbrt: it has no rule. ")
    assert np.allclose(ms.grad(lambda x: np.sum(x) * root(ms.stop_gradient(x)))(x), np.sum(np.cbrt(2 * x)))

    def writes(x):
        x[0] = 0
        return np.sum(x)
    assert refused(writes, x).startswith(line_of(writes, 1) + "a function with a gradient writes to its argument")

    def puts(p):
        p["w"] = p["w"] * 2
        return np.sum(p["w"])
    assert refused(puts, {"w": x}).startswith(line_of(puts) + "a function with a gradient writes to its argument")


def test_what_is_no_float_is_refused():
    def total(x):
        return np.sum(x) * 1.0
    assert "the gradient by an array of int64: only floats have derivatives" in refused(total, np.arange(3))
    assert "the gradient by a int without floats" in refused(total, 3)
    assert "the gradient of an array of bool" in refused(lambda x: np.any(x > 0), numbers(3))
    assert "which returns f64[3]: it must return a number" in refused(lambda x: x, numbers(3))
    assert "the call has 1 arguments by position" in refused(total, numbers(3), argnums=1)
    for wrong in [(numbers(3),), (total, (0, 1.0))]:
        with pytest.raises(ms.MinisitchError, match=r"write grad\(f, argnums=0\)"):
            ms.grad(*wrong)
    assert "by argnums=(0, -1): an argument stands there twice" in refused(total, numbers(3), argnums=(0, -1))


@pytest.mark.parametrize("seen, result", [("traced array", lambda x: x[:2]), ("tuple of 3", lambda x: (np.sum(x), x, x))])
def test_what_is_no_pair_is_refused(seen, result):
    def pair(x):
        return result(x)
    said = f"pair, which returns a {seen}: a tuple of 2 belongs there"
    assert refused(pair, numbers(3), has_aux=True).startswith(line_of(pair) + said)
    own = ms.custom_vjp(cube)
    own.defvjp(pair, own_backward)
    assert refused(own, numbers(3)).startswith(line_of(pair) + said)
    own.defvjp(own_forward, lambda kept, g: result(kept))
    assert f"which returns a {seen}: a tuple of 1 belongs there" in refused(own, numbers(3))


def test_what_a_custom_rule_gives_is_checked():
    @ms.custom_vjp
    def twice(x):
        return x * 2
    assert "custom_vjp gives it no derivative" in refused(lambda x: np.sum(twice(x)), numbers(3))
    twice.defvjp(lambda x: (twice(x), None), lambda kept, g: (np.sum(g),))
    assert "twice's backward gives f64[]: f64[3] belongs there" in refused(lambda x: np.sum(twice(x)), numbers(3))


def test_a_call_that_raises_in_numpy_raises():
    def loss(x):
        if np.min(x) < 0:
            raise ValueError("negative")
        return np.sum(np.sqrt(x))
    found = ms.grad(loss)
    assert np.allclose(found(np.ones(2)), 0.5)
    with pytest.raises(ValueError, match="negative"):
        found(-np.ones(2))


def test_a_gradient_is_checked_against_the_reference():
    assert np.allclose(ms.jit(ms.grad(cube).__wrapped__, check=True)(np.arange(3.0)), 3 * np.arange(3.0) ** 2)
