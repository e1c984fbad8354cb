"""The text of a matrix product: stepped thread by thread against NumPy, as a kernel and inside one."""

import numpy as np
import pytest
from cuda_help import product_text
from hypothesis import given, settings
from hypothesis import strategies as st

from minisitch import simt
from minisitch.errors import KernelBug
from minisitch.strategies.kitsune.product import Matrix, Product, Tile

SMALL = Tile(32, 32, 16, 2, 2)
TINY = Tile(4, 6, 5, 2, 3)  # 4 threads: no two of its sizes are the same
SHAPES = [(1, 1, 1), (4, 6, 5), (8, 12, 10), (5, 7, 6), (3, 13, 1), (9, 1, 11), (1, 6, 16)]


def lying(shape, dtype, transposed, name, seed):
    """A flat buffer, the matrix in it as NumPy sees it, and as the text is told."""
    rows, cols = shape
    drawn = np.random.default_rng(seed).integers(-8, 9, (cols, rows) if transposed else shape)
    flat = (drawn > 0 if dtype == "bool" else drawn / 4 if dtype.startswith("float") else drawn).astype(dtype).reshape(-1)
    if transposed:
        return flat, flat.reshape(cols, rows).T, Matrix(name, dtype, 1, rows)
    return flat, flat.reshape(shape), Matrix(name, dtype, cols)


def stepped(made, *buffers, seed=0):
    return simt.step(made.text, buffers, made.grid, made.block, seed, name=made.name, inputs=(0, 1))


def check(rows, cols, inner, dtype="float32", transposed=(False, False), tile=TINY, seed=0):
    a, a_seen, a_lies = lying((rows, inner), dtype, transposed[0], "a", seed)
    b, b_seen, b_lies = lying((inner, cols), dtype, transposed[1], "b", seed + 1)
    c = np.zeros(rows * cols, dtype)
    stepped(product_text(a_lies, b_lies, Matrix("c", dtype, cols), rows, cols, inner, tile=tile), a, b, c, seed=seed)
    held = np.float32 if dtype == "float16" else dtype
    np.testing.assert_array_equal(c.reshape(rows, cols), (a_seen.astype(held) @ b_seen.astype(held)).astype(dtype))


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("rows", "cols", "inner"), SHAPES)
def test_products_of_awkward_shapes(rows, cols, inner, transposed):
    """Quarters of small whole numbers: every order of adding gives the same float."""
    check(rows, cols, inner, transposed=transposed)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int32", "int64", "uint8", "bool"])
def test_dtypes(dtype):
    check(5, 7, 6, dtype)


@settings(max_examples=20)
@given(rows=st.integers(1, 9), cols=st.integers(1, 9), inner=st.integers(1, 9), seed=st.integers(0, 99),
       transposed=st.tuples(st.booleans(), st.booleans()),
       tile=st.builds(Tile, st.sampled_from((2, 4)), st.sampled_from((2, 4)), st.integers(1, 4), st.integers(1, 2), st.integers(1, 2)))
def test_products_of_any_shape_and_tile(rows, cols, inner, seed, transposed, tile):
    check(rows, cols, inner, transposed=transposed, tile=tile, seed=seed)


def test_no_inner_elements_give_zeros():
    check(3, 2, 0)


@pytest.mark.parametrize("tile", [Tile(), SMALL])
def test_tiles_of_256_threads(tile):
    check(tile.rows + 1, 3, 18, tile=tile)
    assert tile.threads == 256


STAGE = Product(4, 6, 10, Matrix("x", "float32", 10, offset="task * 40"), Matrix("w", "float32", 6), TINY, prefix="p_")


def stage_text():
    """Two tasks of a block, each a tile of rows: a pipeline's stage."""
    lines = ["thread = cuda.threadIdx.x", *STAGE.declare(), "for task in range(2):"]
    inside = [*STAGE.sums("0", "0"), *STAGE.stores(Matrix("y", "float32", 6, offset="task * 24"), "0", "0")]
    return "\n    ".join(["def stage(x, w, y):", *lines, *(f"    {line}" for line in inside)]) + "\n"


def test_a_product_inside_a_kernel():
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, shape).astype("float32") for shape in ((8, 10), (10, 6)))
    y = np.zeros((8, 6), "float32")
    simt.step(stage_text(), [x.reshape(-1), w.reshape(-1), y.reshape(-1)], 1, TINY.threads)
    np.testing.assert_array_equal(y, x @ w)


@pytest.mark.parametrize("lost", [0, 1])
def test_each_barrier_is_needed(lost):
    parts = stage_text().split("cuda.syncthreads()")
    text = "cuda.syncthreads()".join(parts[:lost + 1]) + "pass" + "cuda.syncthreads()".join(parts[lost + 1:])
    buffers = [np.ones(n, "float32") for n in (80, 60, 48)]
    with pytest.raises(KernelBug, match="race|unwritten-read"):
        simt.step(text, buffers, 1, TINY.threads)


def test_operands_are_read_once_a_tile():
    made = product_text(Matrix("a", "float32", 32), Matrix("b", "float32", 32), Matrix("c", "float32", 32), 32, 32, 32, tile=SMALL)
    traffic = stepped(made, *(np.ones(1024, "float32") for _ in range(3)))
    assert traffic.loads == 2 * 1024 and traffic.stores == 1024


def test_shared_bytes_are_what_is_declared():
    assert STAGE.shared_bytes == 4 * (4 * 6 + 5 * 7)
    assert "cuda.shared.array(24, np.float32)" in stage_text() and "cuda.shared.array(35, np.float32)" in stage_text()
