"""Forward, backward and update as one program: how many kernels each strategy makes of it, products apart."""

import importlib
import sys

import numpy as np
import pytest
from fs18_help import fused
from stitch_help import CPU, ROOT
from training_programs import PROGRAMS, adam, mlp, moved

import minisitch as ms
from minisitch.lower import lower_program
from minisitch.simplify import simplify
from minisitch.strategies.ask import fuse
from minisitch.strategies.fs18.fusion import Limits

sys.path.insert(0, str(ROOT / "benchmarks" / "models"))

STRATEGIES = ("xla", "fs18", "fs20", "astitch", "auto")
KERNELS = {  # at most, under each strategy, on a CPU
    "softmax": (7, 1, 1, 1, 1), "softmax of its maximum": (10, 1, 1, 1, 1), "layernorm": (12, 3, 1, 1, 1),
    "rmsnorm": (8, 2, 1, 1, 1), "gelu": (3, 1, 1, 1, 1), "bias and gelu": (5, 1, 2, 1, 1), "batchnorm": (12, 3, 7, 1, 1),
    "cross-entropy": (9, 4, 4, 1, 1), "attention": (11, 5, 2, 2, 2), "mlp and adam": (28, 8, 6, 6, 6),
    "mlp and lamb": (46, 14, 15, 7, 7), "block": (42, 17, 9, 9, 9), "gpt and adam": (194, 49, 27, 26, 27),
}
LARGE = ("mlp and lamb", "block", "gpt and adam")
ROWS = [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in KERNELS]


def kernels(name, strategies):
    fn, args = PROGRAMS[name]()
    program = ms.trace(fn, args)
    plans = [lower_program(program, strategy, "cpu", CPU, "fuse").at("fuse") for strategy in strategies]
    return tuple(len(plan.kernels) for plan in plans)


@pytest.mark.parametrize("name", ROWS)
def test_kernels_of_a_training_step(name):
    found = kernels(name, STRATEGIES)
    assert all(a <= b for a, b in zip(found, KERNELS[name], strict=True)), f"{found}, at most {KERNELS[name]}"


def test_large_steps_without_the_slow_planners():
    for name in LARGE:
        xla, _, _, astitch, _ = KERNELS[name]
        assert kernels(name, ("xla", "astitch"))[1] <= astitch
        assert astitch <= 0.25 * xla


@pytest.mark.parametrize("name", ["bias and gelu", "layernorm", "mlp and adam"])
def test_no_fusion_of_fs18_is_empty(name):
    """A cluster with roots of its own was lost: 27 kernels where one does."""
    fn, args = PROGRAMS[name]()
    graph = ms.lower(fn, *args, stop_after="simplify")
    assert all(fusion.members for fusion in fused(graph, Limits(CPU)))
    assert all(fusion.members for fusion in fused(graph))


def test_products_are_as_few_as_by_hand():
    """Two of each layer's three products are of the backward pass, and the input gets none."""
    fn, args = mlp(adam)
    graph = ms.lower(fn, *args, stop_after="simplify")
    assert sum(n.kind == "library" for n in graph.nodes) == 8


def test_a_step_updates_as_node_by_node():
    """Adam divides by the root of tiny numbers: parameters agree to a hundredth of the rate."""
    fn, args = mlp(adam)
    found, expected = (ms.jit(fn, strategy="astitch", target=target)(*args) for target in ("cpu", "reference"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    for got, want in zip(found[1], expected[1], strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def add_rows(x, at, values):
    made = np.copy(x)
    np.add.at(made, at, values)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
def test_rows_are_added_to_the_bit_as_numpy_adds_them(dtype):
    rng, jitted = np.random.default_rng(0), ms.jit(add_rows)
    for rows, width in ((40, 5), (0, 5), (3, 0)):
        for least in (0, -7):  # from the end
            x, values = ((rng.integers(0, 40, size) / 4).astype(dtype) for size in ((7, width), (rows, width)))
            at = rng.integers(least, 7, rows)
            np.testing.assert_array_equal(jitted(x, at, values), add_rows(x, at, values))
    with pytest.raises(IndexError, match="out of bounds"):
        jitted(np.zeros((7, 5), dtype), np.array([0, 7]), np.ones((2, 5), dtype))


def test_places_are_added_along_two_axes():
    def picked(x, at):
        return ms.grad(lambda x: np.sum(np.take_along_axis(x, at, axis=1) ** 2))(x)
    x, at = np.random.default_rng(0).normal(size=(5, 7)), np.array([[0, 0, 6]] * 5)
    program = ms.trace(picked, (x, at))
    assert not program.captured  # places along the other axis are an iota
    np.testing.assert_array_equal(ms.jit(picked)(x, at), ms.jit(picked, target="reference")(x, at))


# ---------------------------------------------------------------- beside a backward pass by hand
def by_hand(name, preset):
    """The loss and the gradients of a model, by hand and derived from the loss alone; the arguments."""
    model = importlib.import_module(name)
    batch, weights, *rest = model.make(preset)[1]
    rest = {"bert_train": rest[2:], "transformer_train": [rest[2], *rest[4:]], "dien_train": []}[name]

    def derived(batch, weights, *rest):
        return ms.value_and_grad(lambda w: model.loss_and_gradients(batch, w, *rest)[0])(weights)
    return model.loss_and_gradients, derived, (batch, weights, *rest)


@pytest.mark.parametrize("name", ["bert_train", "transformer_train", "dien_train"])
def test_derived_gradients_are_those_by_hand(name):
    *programs, args = by_hand(name, "small")
    (loss, want), (value, found) = (ms.jit(program, target="reference")(*args) for program in programs)
    assert loss == value and want.keys() == found.keys()
    largest = max(np.abs(g).max() for g in want.values())
    for each, g in want.items():
        np.testing.assert_allclose(found[each], g, atol=1e-6 * largest, err_msg=each)


@pytest.mark.parametrize("name", ["bert_train", "transformer_train", pytest.param("dien_train", marks=pytest.mark.slow)])
def test_a_derived_backward_moves_as_few_bytes_as_one_by_hand(name):
    """Of bert it moved 1.37 times as many when every value was saved."""
    *programs, args = by_hand(name, "full")
    by_hand_, derived = (fuse(simplify(ms.trace(program, args).graph), "astitch", CPU) for program in programs)
    assert moved(derived) <= 1.05 * moved(by_hand_)
    assert len(derived.library_calls) == len(by_hand_.library_calls)
