"""What a beginner's mistakes are answered with: the golden text has each message in full.

``pytest --update-golden`` writes it anew; read it as a student would.
"""

import functools
import time

import numpy as np
import pytest

from minisitch.errors import KernelBug, MinisitchError
from minisitch.simt import step

GUARDED = "    i = cuda.grid(1)\n    if i < x.shape[0]:\n        "
SUM = """\
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    half = 32
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        cuda.syncthreads()  # B
        half //= 2
    if t == 0:
        y[0] = s[0]
"""
MISTAKES = {  # the body of k(x, y); x has 64 float32, y 64
    "a barrier without ()": SUM.replace("cuda.syncthreads()  # B", "cuda.syncthreads"),
    "np.exp": GUARDED + "y[i] = np.exp(x[i])",
    "np.maximum": GUARDED + "y[i] = np.maximum(x[i], y[i])",
    "np.zeros": "    s = np.zeros(64)\n    y[0] = s[0]",
    "len": "    if cuda.grid(1) < len(x):\n        y[cuda.grid(1)] = 1",
    "exp without math": GUARDED + "y[i] = exp(x[i])",
    "print": GUARDED + "print(x[i])",
    "a thread without cuda": "    i = threadIdx.x\n    y[i] = x[i]",
    "small letters": "    i = cuda.threadidx.x\n    y[i] = x[i]",
    "a list": "    mine = [x[0], x[1]]\n    y[0] = mine[0]",
    "a slice": "    y[0:64] = x[0:64]",
    "no index on the right": GUARDED + "y[i] = x + 1",
    "no index on the left": GUARDED + "y = x[i] * x[i]",
    "compares to store": GUARDED + "y[i] == x[i]",
    "returns the result": GUARDED + "return x[i]",
    "a name without a value": GUARDED + "y[i] = x[j]",
    "an accumulator without a value": "    for i in range(3):\n        total += x[i]\n    y[0] = total",
    "an integer accumulator": "    total = 0\n    for i in range(64):\n        total += x[i]\n    y[cuda.threadIdx.x] = total",
    "a float literal": GUARDED + "y[i] = x[i] * 0.5",
    "a shared size from the shape": "    s = cuda.shared.array(x.shape[0], np.float32)\n    y[0] = s[0]",
    "a shared array without a dtype": "    s = cuda.shared.array(64)\n    y[0] = s[0]",
    "dynamic shared memory": "    s = cuda.shared.array(0, np.float32)\n    y[0] = s[0]",
    "too much shared memory": "    s = cuda.shared.array((256, 256), np.float32)\n    s[0, 0] = x[0]",
    "two brackets": "    s = cuda.shared.array((8, 8), np.float32)\n    s[0][0] = x[0]",
    "half of a loop by /": "    for i in range(x.shape[0] / 2):\n        y[i] = x[i]",
    "an index by /": "    y[cuda.threadIdx.x / 1] = x[0]",
    "no guard": "    i = cuda.grid(1)\n    y[i] = x[i + 1]",
    "no barrier in the loop": SUM.replace("cuda.syncthreads()  # B", "pass"),
    "no barrier before the loop": SUM.replace("    cuda.syncthreads()\n    half", "    half"),
    "a barrier under an if": SUM.replace("        cuda.syncthreads()  # B", "            cuda.syncthreads()"),
    "a return before a barrier": SUM.replace("    s[t] = x[t]", "    if t > 40:\n        return\n    s[t] = x[t]"),
    "all threads write one cell": "    y[0] = x[cuda.threadIdx.x]",
    "a sum of all threads in one cell": "    t = cuda.threadIdx.x\n    y[t] = 0\n    y[0] += x[t]",
    "a row that no thread writes": "    i = cuda.threadIdx.x\n    if i < 60:\n        y[i] = x[i]",
    "no end": "    i = 0\n    while i < 64:\n        y[cuda.threadIdx.x] = x[i]",
    "a long loop": "    for i in range(10**9):\n        y[cuda.threadIdx.x] = x[0]",
    "barriers without end": "    while True:\n        cuda.syncthreads()",
    "shuffles under an if": "    v = x[cuda.threadIdx.x]\n    if cuda.laneid < 16:\n        v = cuda.shfl_down_sync(0xffffffff, v, 1)\n    y[cuda.threadIdx.x] = v",
    "a count of barriers": "    n = cuda.syncthreads_count(x[0] > 0)\n    y[0] = n",
    "an unknown atomic": "    cuda.atomic.inc(y, 0, 64)",
}


def message(body):
    with pytest.raises(KernelBug) as caught:
        step(f"def k(x, y):\n{body}\n", [np.ones(64, np.float32), np.zeros(64, np.float32)], 1, 64, inputs=["x"], outputs=["y"])
    return caught.value


def test_each_mistake_is_answered_in_words(golden):
    said = {name: message(body) for name, body in MISTAKES.items()}
    for name, bug in said.items():
        assert bug.line and bug.kernel == "k" and bug.places, name
        for inner in ("SimpleNamespace", "'Memory'", "'Cuda' object", "NoneType", "release and acquire"):
            assert inner not in str(bug), name
    golden("student_messages", "\n\n".join(f"# {name}\n{bug}" for name, bug in said.items()))


@pytest.mark.parametrize("name", ["no end", "a long loop", "barriers without end"])
def test_a_kernel_without_end_is_refused_soon(name):
    began = time.process_time()
    assert message(MISTAKES[name]).rule == "endless"
    assert time.process_time() - began < 5


def test_release_and_acquire_are_named_where_a_kernel_has_queues():
    text = "def k(c, y):\n    y[0] = cuda.blockIdx.x\n    add_release(c, 0, 1)"
    with pytest.raises(KernelBug, match="no barrier, and no release and acquire, orders the two"):
        step(text, [np.zeros(1, np.int32), np.zeros(1, np.int32)], 2, 1, inputs=["c"])


def test_threads_of_two_dimensions_are_named_by_both():
    with pytest.raises(KernelBug, match=r"block \(\d, \d\) thread \(\d, \d\)") as caught:
        step("def k(y):\n    y[cuda.threadIdx.x] = 1", [np.zeros(4, np.int32)], (2, 2), (4, 3))
    assert caught.value.thread.startswith("block (")


def test_the_film_has_each_access_and_meeting():
    import json
    film = []
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    step(f"def k(x, y):\n{SUM}", [x, y], 1, 64, record=film)
    assert {event.what for event in film} == {"read", "write", "syncthreads"}
    assert max(event.barriers for event in film) == 7 and film[-1].value == x.sum()
    assert [tuple(event) for event in json.loads(json.dumps(film))] == [tuple(map(lambda v: list(v) if isinstance(v, tuple) else v, event)) for event in film]


# a line of k(x, y) -> what the message says to write
INSTEAD = {
    "v = cuda.laneid()": "cuda.laneid is a number: write it without ()", "i = cuda.threadIdx": "write cuda.threadIdx.x",
    "i = cuda.grid()": "takes 1 argument, not 0: write cuda.grid(1)", "cuda.barrier()": "write cuda.syncthreads()",
    "cuda.atomic.add(y, 1)": "not 2: write cuda.atomic.add(y, i, value)", "atomicAdd(y, 0, 1)": "write cuda.atomic.add(y, i, value)",
    "cuda.atomic.CAS(y, 0, 0, 1)": "write cuda.atomic.cas(y, i, old, new)", "v = cuda.ffs(3)": "write a loop over the bits",
    "v = cuda.shfl_down_sync(x[0], 1)": "write cuda.shfl_down_sync(0xffffffff, value, lane)", "v = x.sum()": "an array has .shape and .size alone",
    "x.append(1)": "an array has .shape and .size alone", "y[0] = foo": "foo has no value: nothing assigns it", "y[0] = foo(1)": "foo is not in the dialect, in kernel k", "del x": "del is not in the dialect: leave it out", "v = {1: 2}": "a dict or set",
    "if (n := 3) > 2: y[0] = n": ":= is not in the dialect", "v = np.float(3)": "write np.float32(x)", "v = input()": "give it as an argument",
    "y[0] = x[0] && x[1]": "write and", "y[0] = x[0]++": "write i += 1", "float v = 1": "without a type", "y[0] = x[0] ? 1 : 2": "a if c else b",
}


@pytest.mark.parametrize("line", INSTEAD)
def test_a_mistake_is_answered_with_what_to_write(line):
    with pytest.raises(KernelBug) as refused:
        step(f"def k(x, y):\n    {line}\n", [np.ones(4, np.float32), np.zeros(4, np.float32)], 1, 1)
    assert INSTEAD[line] in str(refused.value) and refused.value.line == 2


COPY = "def k(x, y):\n    y[cuda.grid(1)] = x[cuda.grid(1)]\n"
FOUR, NOTHING = np.ones(4, np.float32), np.zeros(4, np.float32)
LAUNCHES = {
    "complex numbers": (([FOUR.astype(complex), NOTHING], 1, 4), {}, "argument 0 is complex128"),
    "text": (([FOUR.astype(str), NOTHING], 1, 4), {}, "argument 0 is str"),
    "a masked array": (([np.ma.array(FOUR), NOTHING], 1, 4), {}, "MaskedArray, which is more than an array: write np.asarray"),
    "an output that is read-only": (([FOUR, np.broadcast_to(FOUR[0], 4)], 1, 4), {}, "read-only; give a copy"),
    "two negative sizes": (([FOUR, NOTHING], 1, (-2, -2)), {}, "a block has 1 to 1,024 threads"),
    "a negative grid": (([FOUR, NOTHING], -1, 4), {}, "a number of blocks is not negative"),
    "rounds as text": (([FOUR, NOTHING], 1, 4), {"rounds": "many"}, "rounds is 'many': write a positive integer"),
    "no rounds": (([FOUR, NOTHING], 1, 4), {"rounds": 0}, "rounds is 0: write a positive integer"),
    "a film that is no list": (([FOUR, NOTHING], 1, 4), {"record": True}, "write events = .., then"),
    "an input by another name": (([FOUR, NOTHING], 1, 4), {"inputs": "data"}, r"inputs \['data'\] are not all parameters"),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_that_cannot_be_made_says_why(name):
    args, named, said = LAUNCHES[name]
    with pytest.raises(MinisitchError, match=said) as refused:
        step(COPY, *args, **named)
    assert not isinstance(refused.value, KernelBug)


def test_one_name_or_position_is_enough():
    for named in ({"inputs": "x"}, {"inputs": 0}, {"outputs": "y"}, {"outputs": None}):
        step(COPY, [FOUR, NOTHING.copy()], 1, 4, **named)


def registered(kernel):
    return kernel


def wrapped(kernel):
    @functools.wraps(kernel)
    def call(*args):
        return kernel(*args)
    return call


@registered
def with_a_decorator(x, y):
    y[cuda.grid(1)] = x[cuda.grid(1)]  # noqa: F821


@wrapped
def with_a_wrapper(x, y):
    y[cuda.grid(1)] = x[cuda.grid(1)]  # noqa: F821


def of_an_array(x, y):
    y[cuda.grid(1)] = x[cuda.grid(1)] * FOUR[0]  # noqa: F821


@pytest.mark.parametrize(("kernel", "said", "line"), [
    (with_a_decorator, "no decorator here but @cuda.jit", "@registered"), (with_a_wrapper, "no decorator here but @cuda.jit", "@wrapped"),
    (of_an_array, "FOUR comes from outside", "y[cuda.grid(1)] = x[cuda.grid(1)] * FOUR[0]  # noqa: F821")])
def test_a_refused_function_has_its_own_line(kernel, said, line):
    with pytest.raises(KernelBug, match=said) as refused:
        step(kernel, [FOUR, NOTHING.copy()], 1, 4)
    assert f": {line}    <- here" in str(refused.value)
