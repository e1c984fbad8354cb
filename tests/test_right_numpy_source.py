"""NumPy's public interface, function by function: equal to NumPy, the same error, or a refusal with the user's line. Nothing else.

One program in nineteen of the table is tried here; ``PYTHONPATH=. python tests/numpy_api.py`` tries all.
"""

import collections
import functools
import re

import numpy as np
import pytest
from numpy_api import POOL, UFUNCS, differs, outcome, program, programs, verdict
from sources import executed

import minisitch as ms

PARTS, EVERY = 4, 19


@functools.cache
def cases(every: int = EVERY) -> list[tuple[str, str]]:
    return list({text: (name, text) for name, text in programs(every)}.values())


@pytest.mark.parametrize("part", range(PARTS))
def test_the_public_interface(part):
    mine = [(name, text) for index, (name, text) in enumerate(cases()) if index % PARTS == part]
    found = {text: verdict(text) for _, text in mine}
    counts = collections.Counter(found.values())
    print({what: counts[what] for what in ("equal", "raises", "refused")})
    assert {text: what for text, what in found.items() if what not in ("equal", "raises", "refused")} == {}
    assert counts["equal"] > len(mine) / 2  # a table that is mostly refused or wrong shows nothing


def test_every_public_function_is_in_the_table():
    """But for what reads files, prints, or sets how NumPy computes and prints."""
    names = {name.partition(".")[2] for name, _ in cases(1)} | set(UFUNCS)
    callables = {name for name in np.__all__ if callable(getattr(np, name)) and not isinstance(getattr(np, name), type)}
    table = " ".join(text for _, text in cases(1))
    missing = {name for name in callables - names if f"np.{name}(" not in table and f"'{name}')(" not in table}
    assert missing <= set("""busday_count busday_offset is_busday datetime_as_string datetime_data fromfile fromregex fromstring genfromtxt
        get_include get_printoptions getbufsize geterr geterrcall load loadtxt nested_iters printoptions save savetxt savez savez_compressed set_printoptions
        setbufsize seterr seterrcall show_config show_runtime test info""".split())


# ---------------------------------------------------------------- on targets
def test_the_same_on_kernels():
    """A part of the table as Python text and on the stepper: what is traced is computed there, too."""
    for target, every in (("python", 20), ("step", 40)):
        texts = [text for name, text in cases()[::every] if verdict(text) == "equal"]
        assert {text: verdict(text, target) for text in texts} == dict.fromkeys(texts, "equal"), target


def test_numpys_integers_are_sizes_or_refused():
    function, names = program("v.reshape(m, -1)")
    result, error = outcome(lambda: ms.jit(function, target="reference")(*(POOL[name] for name in names)))
    assert result is None and "program.py:2" in str(error)


# ---------------------------------------------------------------- bools where NumPy wants integers
V, M = np.arange(3.0), np.arange(6.0).reshape(2, 3)


def as_numpy(line: str, targets=("reference",)) -> str:
    """What becomes of a line with v = V and m = M: nothing to say if it is NumPy's result, or its error."""
    space = {"np": np, "sliding_window_view": np.lib.stride_tricks.sliding_window_view}
    executed(f"def program(v, m):\n    {line.replace(' $ ', chr(10) + '    ')}\n", space, "program.py")
    want, expected = outcome(lambda: space["program"](V.copy(), M.copy()))
    for target in targets:
        got, error = outcome(lambda: ms.jit(space["program"], target=target)(V.copy(), M.copy()))  # noqa: B023
        if type(error) is not type(expected) or (error is None and differs(got, want)):
            return f"{error or differs(got, want)} where NumPy has {expected or want!r}, on {target}"
    return ""


@pytest.mark.parametrize("line", [
    "np.take(v, [True, False])", "np.take(m, [True, False], axis=0)", "np.take(m, np.array([True, False]), 0)", "np.take(v, True)",
    "np.take(v, v > 1)", "np.take(m, m > 1)", "v.take([True])", "np.take(v, [True, True], mode='wrap')", "np.take(v, v > 0, mode='clip')"])
def test_bools_are_positions_to_take_and_not_a_mask(line):
    assert as_numpy(f"return {line}", ("reference", "python", "step")) == ""


def test_bools_are_positions_to_put():
    assert as_numpy("np.put(v, [True, False], 9.0) $ return v", ("reference", "python", "step")) == ""
    assert as_numpy("np.put(m, v > 0, [7.0, 8.0]) $ return m", ("reference", "python", "step")) == ""


@pytest.mark.parametrize("line", [
    "np.zeros(True) + v", "v.reshape(True, -1)", "np.full((True, 2), v[0])", "np.broadcast_to(v, (True, 3))", "np.eye(True) + v",
    "np.array(v, np.float32, copy=False)", "np.array(v, copy=False)", "m.sum(True)", "np.sum(v, axis=False)", "np.cumsum(v, False)", "np.argmax(v, False)", "np.concatenate([v, v], False)", "np.pad(v, True)",
    "np.repeat(v, 2, False)", "np.resize(v, True)", "np.zeros_like(v, shape=True)", "np.identity(True) + v", "np.argsort(m, False)",
    "np.sort(m, False)", "np.mean(v, keepdims=np.True_)", "np.sum(v, keepdims='a')", "np.sum(v, keepdims=None)", "np.sum(v, keepdims=1)",
    "np.sum(m, axis=[0])", "np.max(m, axis=[0, 1])", "np.std(m, axis=[0])", "np.argmax(m, axis=(0,))", "np.sum(m, axis=(0, 0))",
    "np.sum(m, axis=(np.int64(0), 1))", "np.lib.stride_tricks.sliding_window_view(v, True)"])
def test_a_bool_or_a_list_is_no_axis_and_no_side(line):
    assert as_numpy(f"return {line}") == ""


# ---------------------------------------------------------------- NumPy's own sources that trace
@pytest.mark.parametrize("line", [
    "np.delete(v, 1)", "np.delete(v, [0, 2])", "np.delete(m, 0, 1)", "np.delete(m, slice(None, None, -2), 1)", "np.delete(v, [True, False, True])",
    "np.delete(v, 7)", "np.insert(v, 1, 5.0)", "np.insert(v, [1, 1], v[:2])", "np.insert(m, 1, v, axis=0)", "np.insert(m, 2, v[0])", "np.insert(v, 9, 1)", "np.ediff1d(m)",
    "np.ediff1d(v, 1, [2, 3])", "np.diagflat(v)", "np.diagflat(m, 1)", "np.block([[m, m], [m, m]])", "np.block([v, 2])", "np.block([[m, v]])",
    "np.apply_along_axis(np.sum, 0, m)", "np.apply_along_axis(np.cumsum, 1, m)", "np.apply_along_axis(lambda r: np.outer(r, r), -1, m)",
    "np.apply_along_axis(np.sum, 0, v)", "np.apply_along_axis(np.sum, 2, m)", "np.require(m.T, requirements='C')", "np.require(v, 'f4', ['F'])"])
def test_what_numpy_writes_with_its_own_converter_is_traced(line):
    assert as_numpy(f"return {line}", ("reference", "python")) == ""


@pytest.mark.parametrize("line", [
    "np.average(m, weights=m)", "np.average(m, 1, weights=v)", "np.average(m, -1, weights=[1] * len(v), returned=True)",
    "np.average(v, weights=v > 0)", "np.average(m > 0, 1, weights=v.astype('f4'), keepdims=True)", "np.average(v, weights=v - v)",
    "np.average(m, 9, weights=v)", "np.average(m, 0, weights=[1.0])", "np.maximum.reduce([v, -v, v * 2])",
    "np.logical_and.reduce((v > 0, v < 2))", "np.add.reduce([v, [1] * len(v)], axis=1)", "np.bitwise_or.reduce([v > 1, v < 0])",
    "np.multiply.reduce([v[0], 2, v[1]])"])
def test_averages_and_reductions_of_lists(line):
    assert as_numpy(f"return {line}", ("reference", "python")) == ""


# ---------------------------------------------------------------- what is refused says what to write
REMEDIES = {  # what is refused -> what its error says to write
    "np.median(m, axis=1)": "np.sort(m, axis=1)[:, 1]",
    "np.searchsorted(v, m)": "np.sum(v < m[..., None], axis=-1)", "np.searchsorted(v, m, side='right')": "np.sum(v <= m[..., None], axis=-1)",
    "np.digitize(m, v)": "np.sum(v <= m[..., None], axis=-1)",
    "np.interp(m / 3, v, v[::-1])": "(i := np.clip(np.sum(v <= (m / 3)[..., None], -1) - 1, 0, len(v) - 2), "
                                    "v[::-1][i] + (m / 3 - v[i]) * (v[::-1][i + 1] - v[::-1][i]) / (v[i + 1] - v[i]))[1]",
    "np.isin(m.astype(int), [1, 2])": "np.any(m.astype(int)[..., None] == np.ravel([1, 2]), axis=-1)",
    "np.choose(v.astype(int) % 2, [v, -v])": "np.select([v.astype(int) % 2 == 0, v.astype(int) % 2 == 1], [v, -v])",
    "np.piecewise(v, [v > 1], [np.square, 7])": "np.select([v > 1], [np.square(v)], 7.0)",
    "np.r_[v, v]": "np.concatenate([v, v])",
    "np.int32(v[0])": "v[0].astype(np.int32)", "v.view()": "v[:]",
}


@pytest.mark.parametrize("line", REMEDIES)
def test_the_remedy_of_a_refusal_is_named_and_is_right(line):
    refused = as_numpy(f"return {line}")
    assert re.search(r"program.py:2: .*(Write|Count|Compare|Find|Sort)", refused) and "Write it with arithmetic" not in refused
    space = {"np": np, "v": V, "m": M, "sliding_window_view": np.lib.stride_tricks.sliding_window_view}
    assert differs(eval(REMEDIES[line], space), eval(line, space)) == ""
    assert as_numpy(f"return {REMEDIES[line]}", ("reference", "python")) == ""
