"""The dialect of kernel text: all that the package emits is in it, and nothing that could reach beyond a kernel."""

import numpy as np
import pytest
from golden import FOLDER
from programs import softmax
from queue_kernels import PIPELINES
from simt_kernels import CASES
from stitch_help import TOY, lowered

import minisitch as ms
from minisitch.errors import KernelBug, MinisitchError
from minisitch.simt import step
from minisitch.simt.text import read_program
from minisitch.testing import random_graph

# ---------------------------------------------------------------- what is accepted


@pytest.mark.parametrize("name", [*CASES, *PIPELINES])
def test_every_kernel_written_by_hand_is_in_the_dialect(name):
    case = CASES.get(name) or PIPELINES[name]
    arrays = case.make(np.random.default_rng(0))
    assert set(read_program(case.text, None, frozenset(arrays)).parameters) == set(arrays)


@pytest.mark.parametrize("strategy", sorted(ms.STRATEGIES))
def test_every_emitted_kernel_is_in_the_dialect(strategy):
    texts = [each.text for seed in range(10) for each in lowered(
        random_graph(np.random.default_rng(seed), max_nodes=12, max_elements=300), strategy, "step", TOY).sources]
    assert len(texts) >= 10
    for text in texts:
        read_program(text)


def test_golden_texts_are_in_the_dialect():
    for path in FOLDER.glob("*_cuda.txt"):
        assert read_program(path.read_text(encoding="utf-8")).parameters


# ---------------------------------------------------------------- what is refused, before anything runs

HOSTILE = {
    "calls the system": "__import__('os').system('touch escaped')",
    "clears the counts": "c = cuda\n    c.machine.tally.counts.clear()",
    "clears the counts directly": "cuda.machine.tally.counts.clear()",
    "ends the process": "raise SystemExit",
    "ends the process from a helper": "y[0] = stop(1)",
    "imports": "import os",
    "opens a file": "y[0] = open('escaped', 'w').write('x')",
    "evaluates text": "y[0] = eval('1')",
    "goes up the classes": "y[0] = ().__class__.__base__.__subclasses__()",
    "reads a module's globals": "y[0] = maximum.__globals__['math']",
    "reads an array's program": "y.program.rounds.left = 10**9",
    "writes an array's data": "y.data[0] = 1",
    "a method of an array": "y.store(0, 0, 1)",
    "formats an object": "y[0] = f'{cuda.machine}'",
    "a lambda": "y[0] = (lambda: 1)()",
    "a comprehension": "y[0] = [k for k in range(3)][0]",
    "replaces the counter": "_rounds = max",
    "replaces a module": "np = y",
    "a walrus": "y[0] = (v := 1)",
    "catches everything": "try:\n        y[0] = 1\n    except BaseException:\n        pass",
    "yields": "y[0] = yield 5",
    "a global": "global LIMIT\n    LIMIT = 10**9",
    "a long tuple": "v = OFFSETS * 10**9",
    "a long tuple from a shape": "v = y.shape\n    w = v * 10**9",
    "a sum of a range": "y[0] = max(range(10**12))",
    "a dictionary": "y[0] = {1: 2}[1]",
    "a decorated inner function": "@print\n    def inner():\n        pass",
    "prints": "print(y)",
}
TOP = "OFFSETS = (1, 2)\ndef stop(v):\n    return exit()\ndef k(y):\n    "
HOSTILE_TOPS = {
    "a constant that prints": "X = print(1)\ndef k(y):\n    y[0] = 1",
    "a constant that imports": "X = __import__('os')\ndef k(y):\n    y[0] = 1",
    "a statement at the top": "import os; os.system('touch escaped')\ndef k(y):\n    y[0] = 1",
    "a call at the top": "print(1)\ndef k(y):\n    y[0] = 1",
    "a loop at the top": "while True:\n    pass\ndef k(y):\n    y[0] = 1",
    "a default": "def k(y=print(1)):\n    y[0] = 1",
    "an annotation": "def k(y: print(1)):\n    y[0] = 1",
    "a return annotation": "def k(y) -> print(1):\n    y[0] = 1",
    "a decorator": "@print\ndef k(y):\n    y[0] = 1",
    "a decorator of a helper": "@print\ndef f(v):\n    return v\ndef k(y):\n    y[0] = f(1)",
    "a class": "class A:\n    print(1)\ndef k(y):\n    y[0] = 1",
    "a helper of the stepper's name": "def _number(v):\n    return v\ndef k(y):\n    y[0] = _number(1) * 2",
    "a kernel that calls itself": "def k(y):\n    k(y)",
    "helpers that call each other": "def f(v):\n    return g(v) + g(v)\ndef g(v):\n    return f(v) + f(v)\ndef k(y):\n    y[0] = f(1)",
}


@pytest.mark.parametrize("text", [*(TOP + body for body in HOSTILE.values()), *HOSTILE_TOPS.values()], ids=[*HOSTILE, *HOSTILE_TOPS])
def test_hostile_text_is_refused_before_it_runs(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    y = np.zeros(4, np.float32)
    with pytest.raises(KernelBug) as caught:
        step(text, [y], 1, 1)
    bug = caught.value
    assert bug.rule == "outside-dialect" and bug.line and f"line {bug.line}: " in str(bug)
    assert not y.any() and not list(tmp_path.iterdir()) and capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("text", "rule"), [
    ("X = 9**9**9**9\ndef k(y):\n    y[0] = X", None), ("def k(y):\n    y[0] = 9**9**9**9", None),
    ("X = 1 << 10**12\ndef k(y):\n    y[0] = X", "exception"), ("def k(y):\n    v = 1\n    v <<= 10**12", "exception"),
    ("def f(v):\n    return v * v\ndef k(y):\n    v = 7\n    for i in range(200):\n        v = f(v)\n    y[0] = v", None),
    ("def f(v):\n    for i in range(10**9):\n        v += 1\n    return v\ndef k(y):\n    y[0] = f(1)", "endless"),
    ("def f0(v):\n    return v + 1\n" + "".join(f"def f{n + 1}(v):\n    return f{n}(v) + f{n}(v)\n" for n in range(40))
     + "def k(y):\n    y[0] = f40(1)", "endless"),
    ("def k(y):\n    s = cuda.local.array((1000000, 1000000), np.float64)\n    s[0, 0] = 1", "memory-limit"),
])
def test_text_cannot_take_the_machine(text, rule):
    """Integers wrap on the way, loops and calls are counted, arrays are bounded."""
    try:
        step(text, [np.zeros(1, np.int64)], 1, 1, rounds=50_000)
        assert rule is None
    except KernelBug as bug:
        assert bug.rule == rule, bug


# ---------------------------------------------------------------- functions as kernels

SCALE = np.float32(0.5)
OFFSETS = (16, 8, 4, 2, 1)
TABLE = [1, 2, 3]


def twice(v):
    return v + v


def four_times(v):
    return twice(twice(v))


def scaled(x, y):
    i = cuda.grid(1)  # noqa: F821
    if i < x.shape[0]:
        y[i] = four_times(x[i]) * SCALE


def with_a_list(x, y):
    y[0] = TABLE[0]


def warp_sum(x, y):
    total = x[cuda.threadIdx.x]  # noqa: F821
    for offset in OFFSETS:
        total += cuda.shfl_xor_sync(0xffffffff, total, offset)  # noqa: F821
    y[cuda.threadIdx.x] = total  # noqa: F821


class Decorated:
    """What ``cuda.jit`` makes of a function, as far as ``step`` looks."""

    def __init__(self, function):
        self.py_func = function

    def __call__(self, *arguments):
        raise TypeError("a kernel is launched")


@pytest.mark.parametrize("kernel", [scaled, Decorated(scaled)])
def test_a_function_is_a_kernel_too(kernel):
    x, y = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    assert step(kernel, [x, y], 2, 32).stores == 40
    assert (y == 2 * x).all()


def test_tuples_of_numbers_come_from_outside():
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    step(warp_sum, [x, y], 1, 32)
    assert (y == x.sum()).all()


def test_numbers_of_the_function_around_it():
    limit, half, nothing = 3, np.float64(-0.5), float("nan")

    def kernel(y):
        i = cuda.threadIdx.x  # noqa: F821
        y[i] = half if i < limit else nothing

    y = np.zeros(4)
    step(kernel, [y], 1, 4)
    np.testing.assert_array_equal(y, [-.5, -.5, -.5, np.nan])


def test_what_a_kernel_may_not_take_is_named_with_the_line_of_its_file():
    with pytest.raises(KernelBug, match="TABLE comes from outside the kernel and is a list") as caught:
        step(with_a_list, [np.zeros(1), np.zeros(1)], 1, 1)
    assert caught.value.line == with_a_list.__code__.co_firstlineno + 1


def test_a_refusal_of_a_function_has_the_line_of_its_file():
    with pytest.raises(KernelBug) as caught:
        step(scaled, [np.zeros(40, np.float32), np.zeros(30, np.float32)], 2, 32)
    assert caught.value.rule == "out-of-bounds" and caught.value.line == scaled.__code__.co_firstlineno + 3


@pytest.mark.parametrize(("kernel", "said"), [(lambda x: x, "no function with a name"), (len, "has no source text to read"), (3, "as text or as a function")])
def test_what_is_no_kernel_says_so(kernel, said):
    with pytest.raises(MinisitchError, match=said):
        step(kernel, [np.zeros(1)], 1, 1)


def test_a_traced_softmax_is_in_the_dialect_under_every_strategy():
    for strategy in ms.STRATEGIES:
        for source in ms.lower(softmax, "f32[7,33]", strategy=strategy, target="cuda"):
            read_program(source.text)
