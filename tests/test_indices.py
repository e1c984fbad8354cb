"""Equal index arithmetic is compiled once. What the statements compute stays the same."""

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from minisitch.runtime.cpu.indices import named_once

BEFORE = """
def k(x, n):
    for i in range(n):
        start = i * 6
        for j in range(start // 2, n):
            a = x[start + j * 4 + 2]
            b = x[start + j * 4 + 3] if j + 1 < n - i else 0
            c = a + b + (a + b)
"""
AFTER = """
def k(x, n):
    for i in range(n):
        start = i * 6
        for j in range(start // 2, n):
            n0 = j * 4
            n1 = start + n0
            a = x[n1 + 2]
            b = x[n1 + 3] if j + 1 < n - i else 0
            c = a + b + (a + b)
"""


def rewritten(text):
    function = ast.parse(text).body[0]
    named_once(function)
    return ast.unparse(ast.fix_missing_locations(function))


def test_arithmetic_of_loop_variables_has_one_name_and_values_keep_theirs():
    assert rewritten(BEFORE) == AFTER.strip()


def test_a_variable_that_is_set_again_has_no_repetitions():
    text = "def k(x):\n    for i in range(3):\n        s = i * 2\n        x(s + 1)\n        s = s + 1\n        x(s + 1)"
    assert rewritten(text) == text


INDEX = st.recursive(st.sampled_from(["i", "j", "s", "t", "1", "3"]),
                     lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "// 2 +", "<"]), inner), max_leaves=4)


@st.composite
def bodies(draw, depth=2):
    """Statements of a kernel's kind: integers are set, loops stand inside loops, and ``said`` notes values."""
    kinds = ["said", "said", "set", "choose", *["for"] * (depth > 0)]
    lines = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4)):
        index, variable = draw(INDEX), draw(st.sampled_from("st"))
        lines += {"said": [f"said({index}, {draw(INDEX)})"], "set": [f"{variable} = {index}"],
                  "choose": [f"{variable} = {index} if {draw(INDEX)} else max(0, min({draw(INDEX)}, 5))"],
                  "for": [f"for {draw(st.sampled_from('ij'))} in range({draw(st.integers(0, 2))}):",
                          *(f"    {line}" for line in draw(bodies(depth - 1)))] if kind == "for" else []}[kind]
    return lines


@given(bodies())
def test_what_the_statements_compute_stays(lines):
    text = "\n".join(["def k(said, i, j, s, t):", *(f"    {line}" for line in lines)])
    seen = []
    for each in (text, rewritten(text)):
        space, found = {}, []
        exec(each, space)
        space["k"](lambda *values, found=found: found.append(values), 1, 2, 3, 4)
        seen.append(found)
    assert seen[0] == seen[1]


def test_no_kernel_has_names_like_these():
    texts = "\n".join(path.read_text() for path in Path(__file__).with_name("golden").glob("*.txt"))
    assert "= x" in texts and "n0 =" not in texts
