"""Fusion never changes a bit: random programs under every strategy and target, bit by bit, at the ends of every type.

``python tools/random_programs.py --bits --count 3000 --jobs 2`` runs many more.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from minisitch.reference import evaluate
from minisitch.runtime import compile_graph, jit
from minisitch.simplify import simplify
from minisitch.trace.parser import parse

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from bit_programs import different_bits, random_bit_graph, random_bit_inputs
from random_programs import check_bits_of_seed


@pytest.mark.parametrize(("target", "strategies", "seeds"), [
    ("python", ("none", "xla", "fs18", "fs20", "astitch"), range(16)), ("step", ("none", "astitch", "fs20"), range(100, 105)),
    ("cpu", ("none", "astitch"), range(200, 205))])
def test_every_strategy_has_numpys_bits(target, strategies, seeds):
    for seed in seeds:
        failures = check_bits_of_seed(seed, target, strategies)
        assert not failures, failures[0].text


@pytest.mark.parametrize("seed", range(300, 400, 10))
def test_simplified_programs_have_numpys_bits(seed):
    """With every rewrite and with none."""
    graph = random_bit_graph(np.random.default_rng(seed), max_nodes=25)
    inputs = random_bit_inputs(graph, np.random.default_rng(seed))
    assert different_bits(evaluate(simplify(graph), inputs), evaluate(graph, inputs)) == ""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_which_zero_a_maximum_is_depends_on_no_strategy(dtype):
    """NumPy's own answer depends on the length of the array; ours is the same scalar, vectorised, and beside anything."""
    def zeros(x, y):
        return np.maximum(x, y) + y, np.minimum(x, y) * x, 1 / np.maximum(x, y), np.copysign(y, np.minimum(x, 0)), np.fmax(x, y) * y

    for shape in ((1,), (37,)) if dtype == "float32" else ((37,),):
        x, y = np.random.default_rng(0).choice(np.array([0.0, -0.0], dtype), (2, *shape))
        apart, fused = (jit(zeros, strategy=strategy, target="cpu")(x, y) for strategy in ("none", "astitch"))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(apart, fused, strict=True))


# ---------------------------------------------------------------- what is compared
def test_programs_and_inputs_reach_what_they_are_for():
    ops, values = set(), []
    for seed in range(150):
        graph = random_bit_graph(np.random.default_rng(seed), heavy=seed % 4 == 3)
        ops |= {node.op for node in graph.nodes}
        values += [x for x in random_bit_inputs(graph, np.random.default_rng(seed)) if x.dtype == np.float32]
    flat = np.concatenate([x.ravel() for x in values])
    tiny = np.finfo(np.float32).smallest_normal
    assert np.isnan(flat).any() and np.isinf(flat).any() and (abs(flat[flat != 0]) < tiny).any() and np.signbit(flat[flat == 0]).any()
    assert ops >= {"mul", "sub", "div", "mod", "floor_divide", "power", "shift_left", "sum", "max", "cast", "gather", "update", "exp"}


def test_a_bit_is_seen():
    one, zero = np.float32([1.0, np.nan]), np.float32([0.0, 2.0])
    assert different_bits([one, zero], [one.copy(), zero.copy()]) == ""
    assert "at (0,)" in different_bits([one], [np.nextafter(one, np.float32(2))])
    assert "at (0,)" in different_bits([-zero * np.float32([1, -1])], [zero]) and "float32" in different_bits([one], [one.astype("f8")])


# ---------------------------------------------------------------- a program of each kind of freedom that a compiler takes
CANCELS = """%0: f32[64] = input name='a'
%1: f32[64] = input name='b'
%2: f32[64] = mul %0 %0
%3: f32[64] = mul %1 %1
%4: f32[64] = sub %2 %3
return %4"""
WRAPS = """%0: i64[64] = input name='a'
%1: i64[64] = constant value=1
%2: i64[64] = add %0 %1
%3: bool[64] = gt %2 %0
return %3"""
NARROW = """%0: f16[64] = input name='a'
%1: f16[64] = mul %0 %0
%2: f16[64] = sub %1 %0
return %2"""
QUOTIENT = """%0: f32[4,16] = input name='a'
%1: f32[4,1] = max %0 axes=(1,) keepdims=True
%2: f32[4,16] = broadcast %1 shape=(4, 16)
%3: f32[4,16] = div %0 %2
return %3"""


def seen(text, target="cpu", **options):
    """Whether a run of the program differs from NumPy in some bit."""
    graph = parse(text)
    for seed in range(8):
        inputs = random_bit_inputs(graph, np.random.default_rng(seed))
        found = compile_graph(graph, "astitch", target, **options).outputs(inputs)
        if different_bits(found, evaluate(graph, inputs)):
            return True
    return False


def test_programs_of_each_kind_have_numpys_bits():
    """``tools/mutants.py`` gives each freedom back: then this test fails."""
    assert not any(map(seen, (CANCELS, WRAPS, NARROW, QUOTIENT)))


def test_contraction_is_seen():
    assert seen(CANCELS, exact=False)
