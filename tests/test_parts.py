"""A long kernel in parts: equal loops are one function, and the values stay NumPy's bit by bit."""

import ast

import numpy as np
from growth import calls_of

import minisitch as ms
from minisitch.runtime.cpu import compile as compiler
from minisitch.runtime.cpu.parts import in_parts

TEXT = """
def k(first, last, x, y, t):
    u = t
    for i in range(first, last):
        t[i] = x[i] * 2
    for j in range(first, last):
        y[j] = t[j] * 2
    total = 0
    for i in range(last):
        total += y[i]
    for i in range(first, last):
        u[i] = t[i] + 1
"""


def jacobi(a):
    for _ in range(24):
        new = a.copy()
        new[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
        a = new
    return a


def taken_apart(long=0):
    function = ast.parse(TEXT).body[0]
    made = in_parts(function, long)
    return function, made


def test_equal_loops_are_one_function():
    function, made = taken_apart()
    calls = [s.value.func.id for s in function.body if isinstance(s, ast.Expr)]
    assert calls == ["part0", "part0", "part1"] and [m.name for m in made] == ["part0", "part1"]
    assert [a.arg for a in made[0].args.args] == list(dict.fromkeys(a.arg for a in made[0].args.args))


def test_two_names_of_the_same_bytes_are_one_argument():
    """A part may rely on it that its arguments do not overlap."""
    function, _made = taken_apart()
    last = function.body[-1].value
    assert len(last.args) == len({a.id for a in last.args}) == 3 and "u" not in {a.id for a in last.args}


def test_a_loop_whose_result_is_used_outside_stays():
    function, _ = taken_apart()
    assert sum(isinstance(s, ast.For) for s in function.body) == 1


def test_different_loops_stay_together_unless_they_are_very_long():
    text = TEXT.replace("y[j] = t[j] * 2", "y[j] = t[j] * 3")
    function = ast.parse(text).body[0]
    assert in_parts(function, 0) == [] and ast.unparse(function) == ast.unparse(ast.parse(text))
    assert [part.name for part in in_parts(function, 0, 0)] == ["part0", "part1", "part2"]


def test_short_functions_stay_whole():
    assert taken_apart(100)[1] == []


def test_values_are_numpys_bit_by_bit(monkeypatch, tmp_path):
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path))

    def both_ways(a):
        b = a * 2
        for _ in range(5):
            b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
            a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])
        return b

    x = np.random.default_rng(0).random((40, 33)).astype(np.float32)
    texts = [ast.parse(source.text).body for source in ms.lower(both_ways, x, target="cpu")]
    assert any(in_parts(function) for text in texts for function in text if isinstance(function, ast.FunctionDef))
    a, want = x.copy(), x.copy()
    assert np.array_equal(ms.jit(both_ways, target="cpu")(a), both_ways(want)) and np.array_equal(a, want)


def test_memory_from_the_allocator_does_not_make_numba_slow():
    """Its failure is caught where it can happen. In a ``try``, Numba splits a block after each operation, and is quadratic in blocks."""
    def text(name, size):
        loops = [f"    for i in range(9):\n        k[i] = k[i] * x[i] + {j}.0 if x[i] > {j}.0 else y[i] - k[i]\n" for j in range(8)]
        return f"def {name}(first, last, x, y):\n    k = np.empty({size}, np.float64)\n{''.join(loops)}    y[0] = k[0]\n"

    def calls(name, size):
        return calls_of(lambda: compiler._build(compiler.Request(text(name, size), name, ("float64", "float64")), "<text>"))

    calls("warm", 98)
    assert calls("large", 99999) < 3 * calls("small", 99)
