"""What outlives a traced program, and what asks it for arrays."""

import functools
import math
import re

import numba
import numpy as np
import pytest

import minisitch as ms


# ---------------------------------------------------------------- what outlives the program, and what asks for arrays
class Model:
    def __init__(self):
        self.weights, self.log = np.ones(3, np.float32), [0.0]

    def assign(self, x):
        self.weights = self.weights - 0.1 * x
        return self.weights.sum()

    def append(self, x):
        self.log.append(x.max())
        return x

    def write(self, x):
        self.weights[...] = 2.0
        return x


KEPT: dict = {"best": 1.0}
COUNT = 0


def keep_in_a_global(x):
    KEPT["best"] = x.mean()
    return x


def count(x):
    global COUNT
    COUNT = COUNT + 1
    return x * COUNT


@ms.jit
def counted(x):
    return count(x) + 1


@pytest.mark.parametrize("name", ["assign", "append"])
def test_state_that_no_later_call_would_change_is_refused_and_left_as_it_was(name):
    """It compiled, was wrong from the second call on, and left a stand-in behind."""
    model = Model()
    weights = model.weights
    for call in (ms.jit(getattr(model, name)), lambda x: ms.jit(getattr(Model, name))(model, x)):
        with pytest.raises(ms.TraceError, match=r"puts what it computed into (self\.|m\.|model\.)?(weights|log\[1\]), outside of it: the function's Python runs only while it is traced"):
            call(np.ones(3, np.float32))
        assert model.weights is weights and model.log == [0.0]


def test_a_list_or_dict_from_outside_keeps_no_traced_array():
    log = [1.0]

    def closure(x):
        log.append(x.sum())
        return x

    for fn, name in ((closure, "log[1]"), (keep_in_a_global, "KEPT['best']")):
        with pytest.raises(ms.TraceError, match=re.escape(f"puts what it computed into {name}, outside of it")):
            ms.jit(fn)(np.ones(3, np.float32))
    assert log == [1.0] and KEPT == {"best": 1.0}


def test_a_name_from_outside_that_is_bound_anew_is_refused_and_as_it_was():
    """A traced array is taken out again. A number that the program changes stays changed, and the two traces differ."""
    total, seen = np.zeros(3, np.float32), []

    def add(x):
        nonlocal total
        total = total + x
        return total

    def note(x):
        seen.append(x)
        return x

    before = total
    for fn, name in ((add, "total"), (lambda x: add(x), "total"), (lambda x: note(x) + 1, "seen[0]")):
        with pytest.raises(ms.TraceError, match=re.escape(f"puts what it computed into {name}, outside of it")):
            ms.jit(fn)(np.ones(3, np.float32))
    assert total is before and seen == []
    for times, fn in enumerate((count, counted, lambda x: counted(x) * 2), 1):
        with pytest.raises(ms.TraceError, match=r"test_trace_state.py:\d+: f32\[3\] constant value=.* once and .* then.*two different programs"):
            ms.jit(fn)(np.ones(3, np.float32))
        assert 2 * times == COUNT


class Layer:
    def __init__(self):
        self.w, self.calls, self.steps = np.ones(3, np.float32), 0, np.zeros(1)


LAYER, NESTED, LOG = Layer(), {"net": {"w": 1.0}}, [0.0]


def far(x, layers):
    LAYER.w = LAYER.w - x
    return x


def deep(x, layers):
    NESTED["net"]["w"] = x
    return x


def inside(x, layers):
    return np.stack([LOG.append(x) or x for _ in range(2)])


def argument(x, layers):
    layers[1].w = x
    return x


def counter(x, layers):
    LAYER.calls += 1
    return x * LAYER.calls


def counting_array(x, layers):
    LAYER.steps[0] += 1
    return x * LAYER.steps


@pytest.mark.parametrize(("fn", "name"), [(far, "LAYER.w"), (deep, "NESTED['net']['w']"), (inside, "LOG[1]"), (argument, "layers.1.w"),
                                          (counting_array, "LAYER.steps")])
def test_what_a_program_leaves_is_found_wherever_it_lies(fn, name):
    """In a global object, two dicts deep, from within a comprehension, in an object of a list; and a counter in an array."""
    layers, x = [Layer(), Layer()], np.ones(3, np.float32)
    was = layers[1].w, LAYER.w
    with pytest.raises(ms.TraceError, match=re.escape(f"puts what it computed into {name}, outside of it")):
        ms.jit(fn)(x, layers)
    assert (layers[1].w, LAYER.w) == was or all(a is b for a, b in zip((layers[1].w, LAYER.w), was, strict=True))
    assert NESTED == {"net": {"w": 1.0}} and LOG == [0.0] and LAYER.steps.tolist() == [0.0]


def test_a_counter_that_the_program_reads_is_found_by_the_second_trace():
    with pytest.raises(ms.TraceError, match=r"test_trace_state.py:\d+: .*two different programs"):
        ms.jit(counter)(np.ones(3, np.float32), None)


def test_what_is_kept_for_later_is_no_business_of_the_tracer():
    """A program may compute a number once, and may write a log: it does while it is traced, twice."""
    class Scaled:
        def __init__(self):
            self.size, self.notes = 4, []

        @functools.cached_property
        def scale(self):
            return 1 / math.sqrt(self.size)

        def __call__(self, x):
            self.notes.append("called")
            return x * self.scale

    model = Scaled()
    f = ms.jit(model)
    assert f(np.ones(2, np.float32)).tolist() == [0.5, 0.5] and model.scale == 0.5
    assert f(np.ones(2, np.float32)).tolist() == [0.5, 0.5] and model.notes == ["called"] * 2


def test_closures_that_call_each_other_are_copied_once():
    def even(x, n):
        return x + np.zeros(x.shape) if n == 0 else odd(x, n - 1)

    def odd(x, n):
        return even(x, n - 1) * 2

    x = np.ones(3)
    assert ms.jit(even)(x, 4).tolist() == even(x, 4).tolist() == [4, 4, 4]


def test_a_foreign_ufunc_of_a_known_name_is_not_numpys():
    @numba.vectorize(["float64(float64)"])
    def sign(x):
        return 1.0 if x >= 0 else -1.0

    assert sign(np.zeros(2)).tolist() == [1, 1]
    with pytest.raises(ms.TraceError, match="the ufunc sign: it is not NumPy's"):
        ms.jit(lambda x: sign(x))(np.zeros(2))


@pytest.mark.parametrize("outside", [np.ma.masked_less(np.arange(3.0), 1), np.matrix([1.0, 2.0, 3.0])])
def test_arrays_of_other_meaning_are_refused_from_outside_too(outside):
    with pytest.raises(ms.TraceError, match="its operators differ from an array's"):
        ms.jit(lambda x: x + outside)(np.ones(3))


def test_a_copy_of_a_real_array_is_one():
    weights = np.ones(3)

    def twice(x):
        own = np.asarray(weights, copy=True)
        own *= 2
        return x * own

    assert ms.jit(twice)(np.ones(3)).tolist() == [2, 2, 2] and weights.tolist() == [1, 1, 1]


def test_copyto_casts_numbers_by_numpys_rule():
    def fill(x, value):
        y = np.zeros(3, np.int32)
        np.copyto(y, value)
        return y + x

    x = np.ones(3, np.int32)
    assert ms.jit(fill)(x, 2).tolist() == [3, 3, 3]
    for call in (fill, ms.jit(fill)):
        with pytest.raises(TypeError):
            call(x, 2.5)


def test_state_is_put_back_also_where_something_else_is_refused():
    model = Model()
    weights = model.weights

    def step(m, x):
        m.weights, m.log[0] = m.weights - x, x.max()
        return x if x.sum() > 0 else -x

    with pytest.raises(ms.TraceError, match="depends on values|bool"):
        ms.jit(step)(model, np.ones(3, np.float32))
    assert model.weights is weights and model.log == [0.0]


def test_an_object_may_hold_what_is_no_part_of_the_program():
    model = Model()
    model.note = {"kept": [1, 2]}
    assert ms.jit(lambda m, x: (x * m.weights).sum())(model, np.ones(3, np.float32)) == 3.0


def test_isinstance_knows_arrays():
    """It was false of a traced array, and the branch for other things was compiled in silence."""
    def doubled(x):
        return x * 2 if isinstance(x, np.ndarray) else np.ones(3, np.float32)

    def annotated(x: np.ndarray | None) -> np.ndarray:
        return x + (1 if isinstance(x, np.ndarray | None) else 100)

    assert ms.jit(doubled)(np.full(3, 5, np.float32)).tolist() == [10.0] * 3
    assert ms.jit(annotated)(np.zeros(2, np.float32)).tolist() == [1.0] * 2
    assert ms.jit(lambda x: 1.0 if isinstance(x, np.ndarray) else x * 2)(np.float32(3)) == 6.0, "a scalar is none"
    assert ms.jit(lambda x: x + issubclass(type(np.zeros(1)), np.ndarray) * 0)(np.zeros(1)).tolist() == [0.0]


def test_a_range_of_a_traced_length_says_what_to_pass():
    with pytest.raises(ms.TraceError, match="np.arange with a traced number: its length depends on values. Pass the number as a Python int"):
        ms.jit(lambda n: np.arange(n))(np.int64(4))
    assert ms.jit(lambda n: np.arange(n) * 2)(4).tolist() == [0, 2, 4, 6]
