"""What a program writes: to arrays outside, which is refused at its line, and to views of its arguments."""

from __future__ import annotations

import re

import numpy as np
import pytest
from right_world import BIG, CONFIG, COUNT, NET, SCALES, TABLE, VIEW, Dense, W, X, fresh_world
from sources import executed

import minisitch as ms

HERE = r"test_trace_left.py:(\d+)"


@pytest.fixture(autouse=True)
def world():
    fresh_world(globals())
    yield
    fresh_world(globals())


# ---------------------------------------------------------------- what a program writes outside
def writes_a_slice(x):
    BIG[:] += 1.0
    return x + BIG[0]


def writes_an_element(x):
    TABLE[1, 2] = 5.0
    return x


def writes_by_out(x):
    np.add(W, 1.0, out=W)
    return x * W


def writes_in_place(x):
    global W
    W += 1
    return x * W


def writes_by_copyto(x):
    np.copyto(W, 2.0)
    return x * W


def writes_by_at(x):
    np.add.at(W, [0, 0], 1.0)
    return x * W


def sorts(x):
    W.sort()
    return x * W


def fills(x):
    SCALES[1].fill(7.0)
    return x


def writes_far_away(x):
    NET.deep.w[0] = 3.0
    return x * NET.deep.w


def writes_through_a_view(x):
    VIEW[:] = 1.0
    return x * TABLE[1]


def writes_what_it_was_given(x):
    np.multiply(x, 2, out=W)
    return x


def writes_a_class_array(x):
    Dense.taps[0] = 9.0
    return x * Dense.taps


WRITERS = [writes_a_slice, writes_an_element, writes_by_out, writes_in_place, writes_by_copyto, writes_by_at, sorts, fills, writes_far_away,
           writes_through_a_view, writes_what_it_was_given, writes_a_class_array]


def whole_world():
    return repr((SCALES, W, BIG.sum(), TABLE, vars(NET.deep), Dense.taps))


@pytest.mark.parametrize("fn", WRITERS, ids=lambda fn: fn.__name__)
def test_a_write_to_an_array_outside_is_refused_at_its_line_and_writes_nothing(fn):
    before = whole_world()
    with pytest.raises(ms.TraceError, match=rf"{HERE}: .*(outside|written to)") as caught:
        ms.jit(fn, target="reference")(X)
    first = fn.__code__.co_firstlineno
    line = int(re.search(HERE, str(caught.value))[1])
    assert first < line <= first + 3, "the line that writes"
    assert whole_world() == before
    assert W.flags.writeable and BIG.flags.writeable and Dense.taps.flags.writeable and VIEW.flags.writeable and TABLE.flags.writeable


def counts_in_an_attribute(x):
    NET.n += 1.0
    return x


def counts_in_a_dict(x):
    CONFIG["rate"] += 1.0
    return x


def counts_in_a_global(x):
    global COUNT
    COUNT += 1.0
    return x


@pytest.mark.parametrize("fn", [counts_in_an_attribute, counts_in_a_dict, counts_in_a_global], ids=lambda fn: fn.__name__)
def test_a_program_that_changes_what_it_reads_is_refused(fn):
    with pytest.raises(ms.TraceError, match=rf"{HERE}: .*another at each look.*the function changes it"):
        ms.jit(fn, target="reference")(X)


def test_what_a_program_sets_for_a_while_is_its_own():
    def doubled(x):
        NET.n, before = NET.n * 2, NET.n
        NET.training = False
        y = NET.layers[0](x) * NET.n + (1 if NET.training else 0)
        NET.n, NET.training = before, True
        return y

    f = ms.jit(doubled, target="reference")
    for NET.n in (1.0, 1.0, 3.0):
        assert np.array_equal(f(X), doubled(X))
    assert NET.training and NET.n == 3.0


def test_a_deque_has_its_former_elements_again():
    with pytest.raises(ms.TraceError, match=rf"{HERE}: the program puts what it computed into NET.queue\[1\]"):
        ms.jit(lambda x: NET.queue.append(x * 2) or x)(X)
    assert [*NET.queue] == [1.0]


def test_the_remedy_for_a_write_works():
    def counted(x, big):
        big[:] += 1.0
        return x + big[0]

    def step(x, n):
        n = n + 1.0
        return x * n, n

    f, big, n, g = ms.jit(counted, target="reference"), np.zeros(5000), 0.0, ms.jit(step, target="reference")
    for k in range(1, 4):
        assert f(X, big).tolist() == [1 + k] * 3
        y, n = g(X, n)
        assert y.tolist() == [k] * 3 and n == k and type(n) is float


def test_write_flags_come_back_and_what_was_read_only_stays_so():
    fixed, base = np.ones(3), np.ones((4, 3))
    fixed.flags.writeable = False
    view = base[2]

    def reads_them(x):
        return x * fixed + view + base[0]

    def fails(x):
        raise KeyError(str(view.sum() + base.sum()))

    ms.jit(reads_them, target="reference")(X)
    with pytest.raises(KeyError):
        ms.jit(fails, target="reference")(X)
    assert not fixed.flags.writeable and base.flags.writeable and view.flags.writeable
    view[:] = 5
    assert base[2, 0] == 5


# ---------------------------------------------------------------- a view of x into x
@pytest.mark.parametrize(("to", "by"), [("::2", ":5"), ("1:6", "::2"), ("::-2", "4::-1"), ("::2", "None, :5")])
def test_what_numpy_overwrites_while_it_reads_is_refused(to, by):
    """Along a single axis NumPy copies without a buffer. With other steps it reads what it has already overwritten."""
    x = np.arange(9.0)
    space = {"np": np}
    executed(f"def program(x):\n    x[{to}] = x[{by}]\n    return x\ndef safe(x):\n    x[{to}] = x[{by}].copy()\n    return x", space, "program.py")
    assert not np.array_equal(space["program"](x.copy()), space["safe"](x.copy()))  # if NumPy mends it, this refusal goes
    with pytest.raises(ms.TraceError, match=r"program.py:2: x\[\.\.\.\] = a view of x .*already overwritten.*y.copy\(\)"):
        ms.jit(space["program"], target="reference")(x.copy())
    assert np.array_equal(ms.jit(space["safe"], target="python")(x.copy()), space["safe"](x.copy()))


@pytest.mark.parametrize("line", ["x[:5] = x[::2]", "x[1:] = x[:-1]", "x[:-1] = x[1:]", "x[::-1] = x", "x[::2] = x[1::2][0]", "x[4::2] = x[:3]",
                                  "x.reshape(3, 3)[0] = x[::4][:3]", "x.reshape(3, 3)[:, 1] = x[3:6]", "x[None, ::2] = x[:5]", "x[::2] += x[:5]"])
def test_other_views_of_x_go_into_x(line):
    space = {"np": np}
    executed(f"def program(x):\n    {line}\n    return x", space)
    x = np.arange(9.0)
    assert np.array_equal(ms.jit(space["program"], target="python")(x.copy()), space["program"](x.copy()))


def test_an_imaginary_part_is_read_only():
    """A write into the zeros that NumPy shows there was lost without a word."""
    def program(x):
        x.imag[0] = 1.0
        return x
    for f in (program, ms.jit(program)):
        with pytest.raises(ValueError, match="read-only"):
            f(X.copy())
    same = ms.jit(lambda x: (x.imag, x.imag + x, x[0].imag))(X)
    assert not same[0].any() and np.array_equal(same[1], X) and type(same[2]) is type(X[0].imag)


def adds_to_both(x, y):
    x += 1.0
    y += 1.0
    return x


def adds_a_power(x, y):
    x += 1
    return x + 2 ** y


def fixed(x):
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(("program", "right", "wrong"), [
    (adds_to_both, (np.ones(3), np.ones(3)), lambda: (np.ones(3), fixed(np.ones(3)))),
    (adds_to_both, (np.ones(3), np.ones(3)), lambda: (fixed(np.ones(3)), np.ones(3))),
    (adds_a_power, (np.ones(3, int), np.array([1, 2, 3])), lambda: (np.ones(3, int), np.array([1, -2, 3]))),
])
def test_errors_of_the_arguments_are_numpys_at_their_line_and_leave_what_numpy_leaves(program, right, wrong):
    jitted = ms.jit(program, target="reference")
    jitted(*(each.copy() for each in right))
    ours, theirs = wrong(), wrong()
    with pytest.raises(ValueError) as expected:
        program(*theirs)
    with pytest.raises(ValueError, match=re.escape(str(expected.value))) as found:
        jitted(*ours)
    assert found.traceback[-1].lineno == expected.traceback[-1].lineno
    assert [each.tolist() for each in ours] == [each.tolist() for each in theirs]


def test_a_number_in_an_array_becomes_an_axis_in_place():
    def program(x):
        np.ascontiguousarray(x)[0] = 5.0
        np.asfortranarray(x)[0] += 1.0
        return x * 2

    x = np.array(2.5)
    assert ms.jit(program, target="reference")(x) == 12.0 and x == 6.0
    assert ms.jit(program, target="reference")(x) == 12.0
    with pytest.raises(np.exceptions.AxisError):
        ms.jit(lambda x: np.linalg.norm(x, axis=-1), target="reference")(x)


@pytest.mark.parametrize("mask", [[True, False], [True, False, False, False], np.array([True] * 2 + [False] * 2), np.ones((3, 1), bool)])
def test_a_mask_of_another_length_is_numpys_error(mask):
    def reads(x):
        return x[mask]

    def writes(x):
        x[mask] += 1.0

    for program in (reads, writes):
        x = np.ones((3, 2))
        with pytest.raises(IndexError) as expected:
            program(x.copy())
        with pytest.raises(IndexError, match=re.escape(str(expected.value))):
            ms.jit(program, target="reference")(x)
        assert x.tolist() == np.ones((3, 2)).tolist()
