"""A product that the user adds is rounded first, as in NumPy, under every strategy and target; ``exact=False`` gives that back."""

import ast
import pickle

import numpy as np
import pytest
from assembly_help import inspect_assembly

import minisitch as ms
from minisitch import cuda_emit
from minisitch.runtime import compile_graph
from minisitch.runtime.cpu import compile as compiler
from minisitch.runtime.cuda.compile import plain
from minisitch.runtime.steps import requests

STRATEGIES = ("none", "xla", "fs18", "fs20", "astitch", "auto")
THIRDS = np.array([0.1, 0.2, 0.3, 0.7], np.float32)


def squares(a, b):
    return a * a - b * b


def roots(a, b):
    return np.sqrt(a * a - b * b)


def same_product(x, y, p):
    return x * y == p, x * y - p, p - x * y


def hot_softmax(x, s):
    y = x * s
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def dots(x, y):
    return (x * y).sum(-1)


@pytest.mark.parametrize("target", ["cpu", "python"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_differences_of_equal_products_are_zero(strategy, target):
    for function, args in ((roots, (THIRDS, THIRDS)), (same_product, (THIRDS, THIRDS[::-1].copy(), THIRDS * THIRDS[::-1])),
                           (same_product, tuple(a.astype("float64") for a in (THIRDS, THIRDS, THIRDS))[:2]
                            + (THIRDS.astype("float64") ** 2,))):
        found, expected = ms.jit(function, strategy=strategy, target=target)(*args), function(*args)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), (function.__name__, found)


def test_a_softmax_of_large_numbers_has_no_nan():
    x = np.random.default_rng(0).standard_normal((4, 25)).astype(np.float32)
    assert np.allclose(ms.jit(hot_softmax, target="cpu")(x, np.float32(1e14)), hot_softmax(x, np.float32(1e14)), atol=1e-6)


def test_what_a_sum_adds_is_rounded_first():
    """The second product is what the first one rounds to: contracted into the sum, what was rounded off remains."""
    x = np.stack([THIRDS, -(THIRDS * THIRDS)], axis=-1)
    y = np.stack([THIRDS, np.ones_like(THIRDS)], axis=-1)
    assert not ms.jit(dots, target="cpu")(x, y).any()


# ---------------------------------------------------------------- the mutant, which is an option
def test_contraction_is_seen_where_it_is_given_back():
    free = ms.jit(squares, target="cpu", exact=False)
    assert free(THIRDS, THIRDS).any() and not ms.jit(squares, target="cpu")(THIRDS, THIRDS).any()
    assert free(THIRDS, THIRDS).any(), "each has an entry of its own in every cache"


def test_the_option_is_part_of_every_key(tmp_path, monkeypatch):
    source, = ms.lower(squares, THIRDS, THIRDS, target="cpu")
    free, = ms.lower(squares, THIRDS, THIRDS, target="cpu", exact=False)
    keys = {compiler._key(request) for request in (*requests(source), *requests(free))}
    assert source.exact and not free.exact and source.text == free.text and len(keys) == 2


def test_every_door_hands_the_option_on():
    free = ms.jit(squares, exact=False, target="cpu")
    assert not free.lower(THIRDS, THIRDS)[0].exact and not ms.lower(free, THIRDS, THIRDS)[0].exact
    assert ms.lower(free, THIRDS, THIRDS, exact=True)[0].exact
    assert not free.explain(THIRDS, THIRDS).stages.program.exact and ms.explain(squares, THIRDS, THIRDS).stages.program.exact
    assert not pickle.loads(pickle.dumps(free)).lower(THIRDS, THIRDS)[0].exact
    both = [ms.compare(f, THIRDS, THIRDS, strategies=("astitch",), seconds=0.01).rows[0].max_error for f in (free, ms.jit(squares))]
    assert both[1] == 0 < both[0]
    graph = ms.lower(squares, THIRDS, THIRDS, stop_after="simplify")
    assert compile_graph(graph, exact=False).outputs([THIRDS, THIRDS])[0].any()


# ---------------------------------------------------------------- our own polynomials
def assembly(function, *args, **options):
    source, = ms.lower(function, *args, target="cpu", **options)
    request, = requests(source)
    return inspect_assembly(request)


def test_helpers_contract_by_themselves_and_kernels_do_not():
    x = np.ones((4, 1000), np.float32)
    assert "fmadd" in assembly(np.exp, x) or "fmla" in assembly(np.exp, x)
    plain_sum, contracted = assembly(squares, x, x), assembly(squares, x, x, exact=False)
    assert not any(word in plain_sum for word in ("fmadd", "fmsub", "fmls"))
    assert any(word in contracted for word in ("fmadd", "fmsub", "fmls"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_polynomial_has_the_same_bits_beside_others(dtype):
    """Fused, helpers of one value share its products; alone they do not. Rows of 1 and of 37 run scalar, vectorised and as rests."""
    def together(x):
        y = np.abs(x) + dtype_one
        return np.log(y), np.log2(y), np.log1p(y), np.exp(x), np.tanh(x), np.exp(x) * y + np.tanh(x)

    dtype_one = np.dtype(dtype).type(1)
    for shape in ((37, 1), (1, 37)):
        x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        results = [ms.jit(together, strategy=strategy, target="cpu")(x) for strategy in ("none", "astitch")]
        assert all(a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True))


# ---------------------------------------------------------------- on a GPU
def test_products_on_a_gpu_are_joined_with_no_sum():
    kernel, = ms.lower(squares, THIRDS, THIRDS, target="cuda", device="h100", stop_after="schedule")
    text = cuda_emit.emit(kernel).text
    assert ast.unparse(plain(text)).count("rounded_product(") == 2
    assert "rounded_product" not in ast.unparse(plain(text, exact=False))


@pytest.mark.offline_cuda
def test_machine_code_of_a_gpu_contracts_only_where_it_may():
    counts = {exact: ms.lower(squares, "f32[64]", "f32[64]", target="cuda", device="h100", exact=exact).sass("sm_90").count("FFMA")
              for exact in (True, False)}
    assert counts[True] == 0 < counts[False]
