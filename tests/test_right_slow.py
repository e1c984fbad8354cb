"""A shifted row is read through a window, so that its loop vectorises: np.roll of bytes was 10 times as slow as NumPy."""

import re

import numpy as np
import pytest

import minisitch as ms


def life(board):
    """One step of Conway's Game of Life on a torus."""
    count = sum(np.roll(np.roll(board, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
    return ((count == 3) | ((board == 1) & (count == 2))).astype(np.uint8)


PROGRAMS = {
    "roll right": lambda x: np.roll(x, 1, 1),
    "roll left": lambda x: np.roll(x, -3, 1),
    "roll twice": lambda x: np.roll(np.roll(x, 2, 1), -1, 0),
    "life": life,
    "joined": lambda x: np.concatenate([x[:, 5:], x, x[:, :7]], 1),
    "padded": lambda x: np.pad(x, ((0, 0), (1, 2))),
}


def loads_past_windows(text):
    """Loads inside a loop over columns that go to a whole array: a check of each index keeps such a loop from vectorising."""
    return [line for line in text.splitlines() if re.search(r"x0\[[^]:]*\b(col|c\d)\b[^]:]*\]", line)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_shifted_load_is_a_window(name):
    x = (np.random.default_rng(0).random((31, 33)) < 0.4).astype(np.uint8)
    np.testing.assert_array_equal(ms.jit(PROGRAMS[name], target="python")(x), PROGRAMS[name](x))
    source, = ms.lower(PROGRAMS[name], "u8[1000,1000]", target="cpu")
    assert not loads_past_windows(source.text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled(name):
    x = np.random.default_rng(1).integers(0, 2, (32, 123)).astype(np.uint8)
    np.testing.assert_array_equal(ms.jit(PROGRAMS[name], target="cpu")(x), PROGRAMS[name](x))
