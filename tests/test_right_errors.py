"""Refusals: each names the user's line, what stands there, and what to write instead; no frame of ours is between the user's."""

from __future__ import annotations

import copy
import importlib.util
import sys
import traceback
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from sources import executed

import minisitch as ms
from minisitch.trace import refusals

X = np.arange(4.0) + 0.5
IMPORTS = "import array, collections, copy, decimal, itertools, json, math, operator, pickle, statistics, struct\nimport numpy as np\n"

# What a user writes -> what is said of it, what is to be written instead.
REFUSED = {
    "int(x.sum())": ("int() of a traced f64[] array", "Write x.astype"),
    "int(x[0])": ("int() of", "Write x.astype(np.int64)"), "bool(x[0])": ("bool() of", "Write x != 0"),
    "complex(x[0])": ("complex() of", "Keep real and imaginary parts"), "round(x[0], 1)": ("round() of", "Write np.round(x, digits)"),
    "x.tolist()": ("tolist() of a traced f64[4]", "Compute with the whole array"),
    "math.exp(x[0])": ("math.exp() of", "Write np.exp(x)"), "math.acos(x[0])": ("math.acos() of", "Write np.acos(x)"),
    "math.floor(x[0])": ("math.floor() of", "Write np.floor(x)"), "math.trunc(x[0])": ("math.trunc() of", "Write np.trunc(x)"),
    "math.fsum(x)": ("math.fsum() of", "Write np.sum(x)"), "math.lgamma(x[0])": ("math.lgamma() of", "NumPy's functions, which have no lgamma"),
    "math.erf(x[0])": ("math.erf() of", "Write minisitch.erf(x)"), "math.gcd(x.astype(int)[0], 2)": ("math.gcd() of", "Write np.gcd(x)"),
    "np.vectorize(math.sin)(x)": ("np.vectorize() of", "Call the function itself on whole arrays"),
    "0 < x < 1": ("the truth value, in `0 < x < 1`, of", "Write (0 < x) & (x < 1)"),
    "x if x.sum() > 0 else -x": ("the truth value, in `if ... else`, of", "np.where(condition, a, b)"),
    "x[0] and x[1]": ("the truth value, in `and, or`, of", "Write np.logical_and(a, b)"),
    "not x": ("the truth value, in `not`, of", "Write np.logical_not(x)"), "1.5 in x": ("`1.5 in x`", "Write np.any(x == 1.5)"),
    "x[0] in [1, 2]": ("`x[0] in [1, 2]`", "Write np.any([1, 2] == x[0])"), "[1 for k in [1] if k > x[0]]": ("in `if`", "np.where"),
    "range(x.argmax())": ("range() of a traced i64[] array", "from a shape, or pass it as a Python int"),
    "[7, 8, 9, 6][x.argmax()]": ("use as a Python integer of", "write np.take(values, x, axis=0)"),
    "x[:x.argmax()]": ("a slice bound of", "Use a fixed window"), "hex(x.argmax())": ("hex() of", "outside the traced function"),
    "max(x[0], x[1])": ("max() of", "Write np.maximum(a, b)"), "min(x)": ("min() of", "np.min(x)"), "sorted(x)": ("sorted() of", "Write np.sort(x)"),
    "max(x[0], 0)": ("max() of a traced array: ", "np.maximum"), "list(sorted(x))": ("sorted() of a traced array: ", "np.sort"),
    "np.linalg.norm(x.reshape(2, 2), 2)": ("np.linalg.svd: LAPACK", "Compute it outside the traced function"),
    "np.fft.fft(x)": ("np.fft.fft: ", "Compute it outside the traced function and pass the result in"),
    "np.random.rand(3)": ("np.random.RandomState.rand(), ", "np.random.default_rng(seed), the same at every call"),
    "np.median(x)": ("(ndarray.partition: a traced array has no such method)", "Write np.sort(x, axis=...)"),
    "any(x > 0)": ("any() of", "Write np.any(x)"), "list(map(float, x))": ("float() of", "Compute with the array"),
    "np.int32(x[0])": ("np.int32() of", "Write x.astype(dtype)"), "print(x)": ("print() of", "x.shape and x.dtype are known inside"),
    "str(x)": ("str() of", "outside the traced function"), "f'{x.sum():.3f}'": ("formatting of", "x.shape and x.dtype are known inside"),
    "f'{x}'": ("formatting of", "outside"), "'%f' % x.sum()": ("float() of", "Compute with"), "hash(x[0])": ("hash() of", "outside"),
    "{x[0]: 1}": ("hash() of", "outside"), "pickle.dumps(x)": ("pickling of", "outside the traced function"), "bytes(x)": ("bytes() of", "outside"),
    "memoryview(x)": ("a bytes-like object is required, not a traced array", "outside"), "x.tobytes()": ("ndarray.tobytes", "outside the traced function"),
    "np.frombuffer(x)": ("np.frombuffer: the graph has no operation for it", "outside"), "struct.pack('d', x[0])": ("float() of", "Compute with"),
    "array.array('d', x)": ("float() of", "Compute with"),
    "decimal.Decimal(x[0])": ("conversion from traced array to Decimal", "outside"), "statistics.mean(x)": ("float64.as_integer_ratio", "whole"),
    "x[0].is_integer()": ("float64.is_integer", "NumPy functions"), "[e for e in np.nditer(x)]": ("np.nditer: ", "x[i]"),
    "np.ma.masked_array(x, x > 0)": ("np.ma.MaskedArray() of", "np.where(mask, other, x)"),
    "collections.Counter(x)": ("hash() of", "outside"), "np.frompyfunc(abs, 1, 1)(x)": ("the ufunc abs", "NumPy functions"),
    "np.ma.masked_where(x > 0, x)": ("masked_where: the graph has no operation for it", "where=~mask in reductions"),
    "[e for _, e in np.ndenumerate(x)]": ("np.ndenumerate() of", "x[i]"), "np.save('x.npy', x)": ("np.save: ", "outside"),
    "operator.index(x.argmax())": ("use as a Python integer", "np.take(values, x, axis=0)"),
}
STATEMENTS = {
    "if x.sum() > 0: x = -x": ("in `if`, of a traced bool[] array", "np.where(condition, a, b)"),
    "for k in range(9):\n        if x.sum() > k: break": ("in `if`, of", "Loop a known number of times"),
    "while x.sum() > 0: x = x - 1": ("in `while`, of", "Loop a known number of times and choose: x = np.where(going_on, new, x)"),

    "if x[0] > 0 and x[1] > 0: x = -x": ("in `and, or`, of", "& and | between comparisons"),
    "for k in range(x.argmax()): x = -x": ("range() of", "a number of rounds from a shape"),
    "match x[0]:\n        case 1.5: x = -x": ("in `case`, of", "np.where"),
}


def module(path: Path, text: str) -> types.ModuleType:
    """A program of the user's, in a file."""
    path.write_text(IMPORTS + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Each line as a function of one file, by the line, with the number of the line."""
    lines = {**{f"x = {line}": said for line, said in REFUSED.items()}, **STATEMENTS}
    text, found = "", {}
    for number, line in enumerate(lines):
        found[line] = f"f{number}", (IMPORTS + text).count("\n") + 2
        text += f"def f{number}(x):\n    {line}\n    return x\n"
    made = module(tmp_path_factory.mktemp("programs") / "model.py", text)
    return {line: (getattr(made, name), at, lines[line]) for line, (name, at) in found.items()}


@pytest.mark.parametrize("line", [*(f"x = {line}" for line in REFUSED), *STATEMENTS])
def test_a_refusal_says_the_line_what_stands_there_and_what_to_write(programs, line):
    function, at, (seen, remedy) = programs[line]
    lines = range(at, at + 1 + line.count("\n"))
    with pytest.raises(ms.TraceError) as caught:
        ms.jit(function, target="reference")(X.copy())
    said = str(caught.value)
    assert any(said.startswith(f"model.py:{n}: ") for n in lines), said
    assert seen in said and remedy in said
    assert len(said) < 330, "and only that"
    assert {Path(each.filename).name for each in traceback.extract_tb(caught.value.__traceback__)} <= {"model.py", Path(__file__).name,
                                                                                                     "statistics.py", "encoder.py", "__init__.py"}


def test_each_remedy_is_another_one():
    """One long text for everything was what users read."""
    remedies = [remedy for _, remedy in refusals.PROTOCOLS.values()]
    assert len({*remedies, *refusals.CALLS.values()}) >= 20


# ---------------------------------------------------------------- tracebacks
def frames_of(call) -> list[str]:
    """The files and names of the frames of what a call raises, from this file's on."""
    try:
        call()
    except Exception as error:
        shown = traceback.TracebackException.from_exception(error)
        assert shown.__cause__ is None and (shown.__context__ is None or shown.__suppress_context__)
        return [f"{Path(each.filename).name}:{each.name}" for each in shown.stack][1:]
    raise AssertionError("nothing was raised")


ENTRANCES = {
    "call": lambda f: ms.jit(f, target="python")(X), "lower": lambda f: ms.lower(f, X), "explain": lambda f: ms.explain(f, X),
    "compare": lambda f: ms.compare(f, X, seconds=0.1), "trace": lambda f: ms.trace(f, (X,)),
    "compile": lambda f: ms.jit(f, target="python").compile(X),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("line", ["x = float(x)", "x = x + np.ones(3)", "x = x.reshape(3, -1)", "x = np.gradient(x, x)", "x = np.cross(x, x, x, x)",
                                  "x = np.concatenate([x, np.ones((2, 2))])", "x = x @ np.ones((3, 3))", "raise ValueError(7)"])
def test_a_traceback_ends_at_the_users_line(tmp_path, entrance, line):
    made = module(tmp_path / "model.py", f"def helper(x):\n    {line}\n    return x\n\n\ndef f(x):\n    return helper(x)\n")
    assert frames_of(lambda: ENTRANCES[entrance](made.f))[2:] == ["model.py:f", "model.py:helper"]


def test_a_users_own_chain_of_errors_stays(tmp_path):
    made = module(tmp_path / "model.py", "def f(x):\n    try:\n        {}['k']\n    except KeyError as e:\n        raise ValueError('no k') from e\n")
    with pytest.raises(ValueError, match="no k") as caught:
        ms.jit(made.f, target="python")(X)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("minisitch.runtime.lower_program", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        ms.jit(lambda x: x + 1, target="python")(X)
    assert any(each.name == "_build" for each in traceback.extract_tb(caught.value.__traceback__))


# ---------------------------------------------------------------- methods, and arguments
def test_class_methods_and_static_methods_in_both_orders():
    class Net:
        scale = 3.0

        @ms.jit(target="python")
        @classmethod
        def outer_class(cls, x):
            return x * cls.scale

        @classmethod
        @ms.jit(target="python")
        def inner_class(cls, x):
            return x * cls.scale

        @ms.jit(target="python", strategy="none")
        @staticmethod
        def outer_static(x):
            return x + 1

        @staticmethod
        @ms.jit(target="python")
        def inner_static(x):
            return x + 1

    class Wide(Net):
        scale = 5.0

    for owner, scale in ((Net, 3.0), (Net(), 3.0), (Wide, 5.0), (Wide(), 5.0)):
        for _ in range(2):
            assert (owner.outer_class(X) == X * scale).all() and (owner.inner_class(X) == X * scale).all()
            assert (owner.outer_static(X) == X + 1).all() and (owner.inner_static(X) == X + 1).all()


def test_what_is_refused_of_a_call_names_the_line_of_the_call():
    @ms.jit(target="python")
    def add(a, b):
        a += b

    class Tight:
        __slots__ = ("w",)

        @ms.jit(target="python")
        def forward(self, x):
            return x

    masked = np.ma.masked_less(X, 1.0)
    buffer = np.arange(5.0)
    for call, said in ((lambda: add(buffer[1:], buffer[:-1]), "a is written to and shares memory with b"),
                       (lambda: Tight().forward(X), "forward is a jitted method of a Tight"), (lambda: add(X, masked), "a MaskedArray"),
                       (lambda: ms.jit(lambda x: x, target="python")(np.ones(3, complex)), "an array of complex128")):
        with pytest.raises(ms.TraceError, match=rf"^test_right_errors.py:\d+: .*{said}") as caught:
            call()
        assert {Path(each.filename).name for each in traceback.extract_tb(caught.value.__traceback__)} == {Path(__file__).name}


# ---------------------------------------------------------------- warnings
WARNS = """
import warnings
STATE = 1.0
def f(x):
    warnings.warn("mind the step", stacklevel=1)
    return x * STATE
"""


@pytest.mark.parametrize("action", ["ignore", "default", "always", "once", "module"])
def test_a_warning_while_tracing_refuses_nothing(tmp_path, action):
    made = module(tmp_path / "model.py", WARNS)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        assert (ms.jit(made.f, target="python")(X) == X).all()
    assert len(seen) == (0 if action == "ignore" else 1)


def test_a_warning_that_is_an_error_is_the_users(tmp_path):
    made = module(tmp_path / "model.py", WARNS)
    f = ms.jit(made.f, target="python")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="mind the step"):
            f(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (f(X) == X).all()


# ---------------------------------------------------------------- what is no refusal
def test_copies_and_known_values_are_none():
    def f(x):
        three = np.zeros(3).sum() + 3
        print([x])  # to look at
        assert repr(three) == "np.float64(3.0)"
        return copy.deepcopy(x) + copy.copy(x) + float(three) + int(three) + hash(three) * 0, f"{three}"
    assert (ms.jit(f, target="python")(X)[0] == X * 2 + 6).all() and sys.version_info


def test_what_is_found_at_the_end_names_the_program_and_not_its_caller():
    def program(x):
        w = np.array(x, order="F")
        q = w.reshape(-1)
        w[0] = 5
        return q
    with pytest.raises(ms.TraceError, match=rf"test_right_errors.py:{program.__code__.co_firstlineno}: a reshape of a transposed"):
        ms.jit(program, target="reference")(np.ones((3, 4)))


@pytest.mark.parametrize(("body", "value", "remedy"), [
    ("np.roll(x, n)", np.int64(3), "or pass it as a Python int: it is part of the program then"),
    ("x[:n]", np.int64(3), "If this argument is an option, pass int(n) or bool(flag): it is part of the program then"),
    ("x if n else -x", np.bool_(True), "np.where(condition, a, b). If this argument is an option, pass int(n) or bool(flag)"),
])
def test_a_numpy_scalar_that_is_an_option_may_be_pythons(body, value, remedy):
    space = {"np": np}
    executed(f"def f(x, n):\n    return {body}\n", space)
    with pytest.raises(ms.TraceError) as refused:
        ms.jit(space["f"], target="python")(np.arange(4.0), value)
    assert remedy in str(refused.value)
    assert np.array_equal(ms.jit(space["f"], target="python")(np.arange(4.0), value.item()), space["f"](np.arange(4.0), value))
