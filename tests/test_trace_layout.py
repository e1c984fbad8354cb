"""Layouts: what shows how an array lies in memory is NumPy's, or the call is refused with the line.

A trace takes arguments to be in C order. An elementwise result lies as its operands do, so a write through a reshape of ``x * 2``
reaches ``x * 2`` if x is in C order, and a copy of it otherwise.
"""

import itertools

import numpy as np
import pytest
from sources import executed

import minisitch as ms

MADE = """x * 2 | x + y | -x | x > 1 | np.where(x > 3, x, 0.) | np.where(x.T > 3, x.T, 0.).T | x.copy() | x.copy("K") | x.copy(order="A")
    x.astype("f4") | np.zeros_like(x) | np.ones_like(x) | np.full_like(x, 2) | np.empty_like(x) * 0 | np.array(x) | np.round(x, 1) | np.clip(x, 1, 3)
    np.sqrt(x) * 2 + 1 | z.sum(0) | z.mean(2) | z.max(1) | z[0] * 2 | np.cumsum(x, 0) | np.sort(x, 0) | x @ y.T @ x | np.dot(x.T, y) | x.T @ y
    np.concatenate([x, y]) | np.stack([x, y])[0] * 1 | np.repeat(x, 2, 0) | np.take(x, [0, 2], 0) | np.roll(x, 1, 0)
    np.flip(x, 0) * 1 | np.abs(x.T) | x.T * 2 | x[:, ::2] * 1 | x[::-1] + 0 | np.tile(x, (2, 1)) | x.reshape(3, 4) * 2 | x.ravel().reshape(3, 4) * 1
    np.einsum("ij->ij", x) | np.einsum("ij,ij->ij", x, y) | np.outer(x[0], y[0]) | x[0] * x[:, :1] | np.pad(x, 1) | x[[0, 2]] | x * 2 * y
    np.var(z, 0) | np.maximum(x, 2) | np.power(x, 2.) | np.nan_to_num(x) | np.argsort(x, 0) | np.logical_and(x, y) | np.positive(x) | x.round()"""
SHOWN = """y = MADE; y.reshape(-1)[1] = 100; return y | y = MADE; y.ravel()[1] = 100; return y | y = MADE; v = y.reshape(-1); y[0, 1] = 100; return v
    y = MADE; return y.ravel("K") | y = MADE; return y.reshape(-1, order="A") | y = MADE; return y.flatten("K")
    y = MADE; w = np.zeros_like(y); w.reshape(-1)[1] = 5; return w | y = MADE; return y.flags.c_contiguous"""
X = np.arange(12.0).reshape(3, 4) + 0.25
LAID = {"C": lambda x: x.copy(), "F": lambda x: np.asfortranarray(x), "cut": lambda x: np.repeat(x, 2, -1)[..., ::2],
        "turned": lambda x: x[::-1].copy()[::-1]}
Z = np.arange(24.0).reshape(3, 4, 2) * 0.5 + X[:, :, None]


def entries(text):
    return [each.strip() for each in text.replace("\n", "|").split("|")]


def program(line):
    text = "def program(x, y, z):\n" + "".join(f"    {part.strip()}\n" for part in line.split(";"))
    space = {"np": np}
    executed(text, space, "program.py")
    return space["program"]


def becomes(fn, arguments):
    """The result of the jitted function: "equal", "refused", or what differs from NumPy's."""
    wanted = fn(*(each.copy("K") for each in arguments))
    try:
        found = ms.jit(fn, target="reference")(*arguments)
    except ms.TraceError as error:
        return "refused" if "program.py:" in str(error) else str(error)
    same = np.shape(found) == np.shape(wanted) and np.array_equal(found, wanted)
    return "equal" if same and np.asarray(found).dtype == np.asarray(wanted).dtype else f"{found} is not {wanted}"


@pytest.mark.parametrize("made", entries(MADE))
def test_what_shows_a_layout_is_numpys_or_refused(made):
    found = {}
    for (name, laid), shown in itertools.product(LAID.items(), entries(SHOWN)):
        fn = program(shown.replace("MADE", made))
        found[name, shown] = becomes(fn, (laid(X), laid(X + 1), laid(Z)))
    assert {key: what for key, what in found.items() if what not in ("equal", "refused")} == {}
    if ".T" not in made and "[[" not in made and "::" not in made and "flip" not in made:  # a layout that is known
        assert {shown: what for (name, shown), what in found.items() if name == "C" and what != "equal"} == {}


def test_a_result_that_no_layout_reaches_takes_any():
    """Copies in C order, and values that no reshape shows, ask nothing of an argument."""
    for line in ("y = x.copy(); y.reshape(-1)[1] = 100; return y", "y = x * 2; y[0, 1] = 100; return y", "return (x * 2).reshape(-1) + 1",
                 "y = np.zeros(x.shape); y.reshape(-1)[1] = x[0, 0]; return y", "y = x.sum(0); y.reshape(2, 2)[0] = 1; return y"):
        assert becomes(program(line), (np.asfortranarray(X), X, Z)) == "equal", line


def test_the_refusal_names_the_argument_and_the_line():
    fn = ms.jit(program("y = x * 2; y.reshape(-1)[0] = 100; return y"), target="reference")
    assert fn(X, X, Z)[0, 0] == 100
    with pytest.raises(ms.TraceError, match=r"program.py:3: how the argument x lies in memory decides"):
        fn(np.asfortranarray(X), X, Z)
