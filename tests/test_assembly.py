"""The assembly of the standard kernels: their hot loops are vectors of the machine's whole width.

One instruction that does not vectorise (a call of the C library, a float64 literal, a branch) makes a loop ten times as
slow and changes no result: only the assembly tells.
"""

import platform
import re

import numpy as np
import pytest
from assembly_help import inspect_assembly
from programs import layernorm, softmax
from stitch_help import CPU, lowered, traced
from test_compile import widest_register

from minisitch.runtime.cpu.compile import compile_cpu, load_text
from minisitch.runtime.steps import requests

pytestmark = pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64", "arm64", "aarch64"),
                                reason="knows the assembly of x86-64 and of 64-bit ARM")
ARM = platform.machine().lower() in ("arm64", "aarch64")
LIBRARY = re.compile(r"\b(?:exp|expm1|log|log1p|tanh|erf|pow|sin|cos|fmod|fmax|fmin|sqrt)f?\b(?:@PLT)?\s*[,)\n]?$", re.MULTILINE)
WIDENED = re.compile(r"\bfcvt\s+d\d+, s\d+" if ARM else r"\bv?cvts[sd]2s[sd]\b|\bv?cvtp[sd]2p[sd]\b")
ARITHMETIC = re.compile(r"\bf(?:add|mul|mla|sub|div|max)\b" if ARM else r"\bv?(?:add|sub|mul|div|max|fmadd\d+|fnmadd\d+)[ps]s\b")


def gelu_chain(x, bias, y, scale, shift):
    u = x + bias
    tanh = np.tanh(np.float32(0.7978846) * (u + np.float32(0.044715) * u * u * u))
    return layernorm(np.float32(0.5) * u * (np.float32(1) + tanh) + y, scale, shift)


def adam(p, g, m, v):
    m2 = np.float32(0.9) * m + np.float32(0.1) * g
    v2 = np.float32(0.999) * v + np.float32(0.001) * g * g
    return p - np.float32(1e-3) * m2 / (np.sqrt(v2) + np.float32(1e-8)), m2, v2


def neighbours(x):
    """Each row with those around it, none of which is there for the first and the last: one loop has all of it."""
    return sum((np.pad(x, ((0, k), (0, 0)))[k:] + np.pad(x, ((k, 0), (0, 0)))[:len(x)] for k in range(1, 6)), x)


ROWS = (128, 6144)  # so long that no loop is unrolled whole
STANDARD = {
    "softmax": (softmax, [ROWS], 3),
    "softmax of short rows": (softmax, [(4096, 32)], 2),
    "layernorm": (layernorm, [ROWS, (6144,), (6144,)], 3),
    "layernorm of short rows": (layernorm, [(4096, 32), (32,), (32,)], 2),
    "gelu, residual, layernorm": (gelu_chain, [ROWS, (6144,), ROWS, (6144,), (6144,)], 3),
    "column sum": (lambda x: np.sum(x, axis=0), [ROWS], 1),
    "Adam": (adam, [(100_000,)] * 4, 1),
    "a mask": (lambda x, y: np.where(x > y, x * y, np.float32(0)), [ROWS, ROWS], 1),
    "a bool operand": (lambda keep, x: np.where(keep, x + x, np.float32(0)), [np.zeros(ROWS, bool), ROWS], 1),
}


def assembly_of(function, inputs):
    """The compiled code of every kernel of a program; the wrapper for the interpreter, which no kernel is, left out."""
    found = []
    for source in lowered(traced(function, *inputs), "astitch", "cpu", CPU).sources:
        for request in requests(source):
            text = inspect_assembly(request)
            found.append(text[:text.find("cpython", 200)] if "cpython" in text[200:] else text)
    return found


def loops(text):
    """The straight-line blocks that jump back to their own label: innermost loops."""
    for block in re.split(r"^(?=[.\w$]*L?BB\d+_\d+:)", text, flags=re.MULTILINE):
        label = block.split(":")[0]
        if re.search(rf"^\s+(?:j\w+|b\.\w+|cbn?z|tbn?z)\s.*{re.escape(label)}$", block, re.MULTILINE):
            yield block


@pytest.mark.parametrize("name", STANDARD)
def test_hot_loops_are_vectors_and_call_nothing(name):
    """No call of the C library, and no float64."""
    function, inputs, least = STANDARD[name]
    texts = assembly_of(function, inputs)
    assert not any(LIBRARY.findall(text) or WIDENED.findall(text) for text in texts)
    wide = re.compile(widest_register())
    vectors = [block for text in texts for block in loops(text)
               if any(wide.search(line) and ARITHMETIC.search(line) for line in block.splitlines())]
    assert len(vectors) >= least, f"{len(vectors)} innermost loops of vectors, at least {least} expected"


def test_rows_that_are_there_or_not_as_a_whole_are_chosen_in_vectors():
    """A branch in the loop for each of ten neighbours would leave it scalar."""
    wide = re.compile(widest_register())
    text, = assembly_of(neighbours, [(1024, 768)])
    packed = [line for line in text.splitlines() if wide.search(line) and ARITHMETIC.search(line)]
    assert len(packed) >= 10


def test_scratch_rows_are_on_the_stack_as_far_as_they_have_room():
    """Of a row from the heap LLVM cannot tell that it is no argument's: it compares addresses, and has each loop a second time."""
    text = ("def rows(first, last, x, y):\n    a = np.empty({large}, np.float64)\n    b = np.empty({large}, np.float32)\n"
            "    c = np.empty(7, np.bool_)\n    for row in range(first, last):\n        for i in range(300):\n"
            "            a[i] = 0.0\n        for j in range(3):\n            for i in range(300):\n"
            "                a[i] += x[(row + j) * 300 + i]\n        for i in range(300):\n            b[i] = a[i] * a[i]\n"
            "        for i in range(300):\n            c[i % 7] = b[i] > 4.0\n        for i in range(300):\n"
            "            y[row * 300 + i] = a[i] + b[i] + c[i % 7]\n")
    x, want = np.linspace(-3, 3, 1500), np.empty(900)
    load_text(text.format(large=300), "rows")(0, 3, x, want)
    allocates, inner_loops = {}, {}
    for large in (300, 1 << 16):
        y = np.empty_like(want)
        made = compile_cpu(text.format(large=large), "rows", ("float64", "float64"))
        made.function(0, 3, x, y)
        assert np.allclose(y, want, rtol=1e-6)
        assembly = inspect_assembly(made.request)
        allocates[large], inner_loops[large] = "NRT_MemInfo_alloc" in assembly, len(list(loops(assembly)))
    assert allocates == {300: False, 1 << 16: True}
    assert inner_loops[300] < inner_loops[1 << 16]


def test_the_check_can_fail():
    text, = assembly_of(lambda x: np.arctan(x), [ROWS])
    assert LIBRARY.findall(text) or "atan" in text
    text, = assembly_of(lambda x: x.astype(np.float64) + 1, [ROWS])
    assert WIDENED.findall(text)
