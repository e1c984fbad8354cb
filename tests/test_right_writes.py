"""What a program writes outside of itself is refused at its line, and undone."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections import OrderedDict

import numpy as np
import pytest
from right_world import BIG, CONFIG, COUNT, NET, SCALES, SLOTTED, TABLE, TAPS, VIEW, Dense, Net, W, X, fresh_world

import minisitch as ms

HERE = r"test_right_writes.py:(\d+)"


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


def writes_slots(x):
    SLOTTED.n += 1.0
    return x * SLOTTED.n


def writes_far_attributes(x):
    NET.deep.n += 1.0
    return x * NET.deep.n


def writes_class_attributes(x):
    Dense.calls += 1
    return x * Dense.calls


def writes_function_attributes(x):
    writes_function_attributes.calls = getattr(writes_function_attributes, "calls", 0) + 1
    return x


def writes_globals(x):
    global COUNT
    COUNT += 1.0
    return x * COUNT


def adds_to_a_set(x):
    NET.seen.add(4)
    return x


def turns_a_queue(x):
    NET.queue.append(2.0)
    return x * len(NET.queue)


def writes_a_list(x):
    TAPS[0] += 1.0
    return x * TAPS[0]


def writes_a_dict(x):
    CONFIG["nested"]["scale"] *= 2
    return x * CONFIG["nested"]["scale"]


def deletes(x):
    del CONFIG["names"][0]
    return x


WRITERS = [writes_a_slice, writes_an_element, writes_by_out, writes_in_place, writes_by_copyto, writes_by_at, sorts, fills, writes_far_away,
           writes_through_a_view, writes_what_it_was_given, writes_a_class_array, writes_slots, writes_far_attributes,
           writes_class_attributes, writes_function_attributes, writes_globals, adds_to_a_set, turns_a_queue, writes_a_list,
           writes_a_dict, deletes]


def whole_world():
    return repr((SCALES, TAPS, W, BIG.sum(), TABLE, COUNT, vars(NET.deep), NET.seen, NET.queue, NET.n, SLOTTED.n, CONFIG, Dense.taps,
                 Dense.calls, vars(writes_function_attributes)))


@pytest.mark.parametrize("fn", WRITERS, ids=lambda fn: fn.__name__)
def test_a_write_outside_is_refused_at_its_line_and_undone(fn):
    before = whole_world()
    with pytest.raises(ms.TraceError, match=rf"{HERE}: .*(outside|written to)") as caught:
        ms.jit(fn, target="reference")(X)
    first = fn.__code__.co_firstlineno
    line = int(re.search(HERE, str(caught.value))[1])
    assert first < line <= first + 3, "the line that writes"
    assert whole_world() == before
    assert W.flags.writeable and BIG.flags.writeable and Dense.taps.flags.writeable and VIEW.flags.writeable and TABLE.flags.writeable


class Former:
    pass


class Latter:
    pass


ORDERED, KEYED, FAULT, CHANGED = OrderedDict(a=1, b=2), {"a": 1, "b": 2}, ValueError("first"), Former()
LOG = logging.getLogger(__name__)


# name -> a write that leaves every item and attribute as it was, or that is a library's, and what it changes
ODD = {
    "the order of an OrderedDict": (lambda x: (ORDERED.move_to_end("a"), x)[1], lambda: [*ORDERED]),
    "the order of a dict": (lambda x: (KEYED.update(a=KEYED.pop("a")), x)[1], lambda: [*KEYED]),
    "the arguments of an exception": (lambda x: (setattr(FAULT, "args", ("second",)), x)[1], lambda: FAULT.args),
    "the class of an object": (lambda x: (setattr(CHANGED, "__class__", Latter), x)[1], lambda: type(CHANGED)),
    "a name in a library's module": (lambda x: (setattr(json, "hunted", 1), x)[1], lambda: hasattr(json, "hunted")),
    "an object in a library's module": (lambda x: (setattr(json, "hunted", Former()), x)[1], lambda: hasattr(json, "hunted")),
    "a name in a library's class": (lambda x: (setattr(json.JSONEncoder, "hunted", 1), x)[1], lambda: hasattr(json.JSONEncoder, "hunted")),
    "a function of a library's module": (lambda x: (setattr(json, "dumps", None), x)[1], lambda: json.dumps),
}


@pytest.mark.parametrize("name", ODD)
def test_a_write_that_leaves_every_item_is_refused_and_undone_too(name):
    write, told = ODD[name]
    before = told()
    with pytest.raises(ms.TraceError, match=rf"{HERE}: the program puts what it computed into"):
        ms.jit(write, target="reference")(X)
    assert told() == before


def test_a_program_may_log(caplog):
    """A logger keeps for itself which levels are on."""
    def program(x):
        LOG.info("unheard")
        LOG.warning("shape %s", x.shape)
        return x * LOG.level

    jitted = ms.jit(program, target="reference")
    LOG.setLevel(logging.WARNING)
    assert jitted(X).tolist() == jitted(X).tolist() == (X * 30).tolist()
    assert caplog.messages == [f"shape {X.shape}"]
    LOG.setLevel(logging.ERROR)
    assert jitted(X).tolist() == (X * 40).tolist()


def test_a_method_that_counts_is_refused():
    net = Net()
    for f in (ms.jit(net.counting), ms.jit(lambda x: net.counting(x)), functools.partial(ms.jit(Net.counting), net)):
        with pytest.raises(ms.TraceError, match=r"right_world.py:\d+: the program puts what it computed into .*n, outside of it"):
            f(X)
        assert net.n == 0.0


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


def test_what_stands_in_library_code_may_not_write_either():
    class Writer:
        def __init__(self):
            self.table = np.zeros(3)

        def __del__(self):
            pass  # so it is not copied, and its array is NumPy's own

    writer = Writer()
    with pytest.raises(ms.TraceError, match=rf"{HERE}: the program writes to an array from outside"):
        ms.jit(lambda x: np.copyto(writer.table, 3.0) or x, target="reference")(X)
    assert writer.table.tolist() == [0, 0, 0] and writer.table.flags.writeable


# ---------------------------------------------------------------- a view of x into x
@pytest.mark.parametrize(("to", "by"), [("::2", ":5"), ("1:6", "::2"), ("::-2", "4::-1"), ("::2", "None, :5")])
def test_what_numpy_overwrites_while_it_reads_is_refused(to, by):
    """Along a single axis NumPy copies without a buffer. With other steps it reads what it has already overwritten."""
    x = np.arange(9.0)
    space = {"np": np}
    exec(compile(f"def program(x):\n    x[{to}] = x[{by}]\n    return x\ndef safe(x):\n    x[{to}] = x[{by}].copy()\n    return x", "program.py", "exec"), space)
    assert not np.array_equal(space["program"](x.copy()), space["safe"](x.copy()))  # if NumPy mends it, this refusal goes
    with pytest.raises(ms.TraceError, match=r"program.py:2: x\[\.\.\.\] = a view of x .*already overwritten.*y.copy\(\)"):
        ms.jit(space["program"], target="reference")(x.copy())
    assert np.array_equal(ms.jit(space["safe"], target="python")(x.copy()), space["safe"](x.copy()))


@pytest.mark.parametrize("line", ["x[:5] = x[::2]", "x[1:] = x[:-1]", "x[:-1] = x[1:]", "x[::-1] = x", "x[::2] = x[1::2][0]", "x[4::2] = x[:3]",
                                  "x.reshape(3, 3)[0] = x[::4][:3]", "x.reshape(3, 3)[:, 1] = x[3:6]", "x[None, ::2] = x[:5]", "x[::2] += x[:5]"])
def test_other_views_of_x_go_into_x(line):
    space = {"np": np}
    exec(f"def program(x):\n    {line}\n    return x", space)
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
