"""A wrong word at a door is answered with the nearest right one, and wrong arguments of a function without frames of ours."""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import re
import traceback
import types
from pathlib import Path

import numpy as np
import pytest

import minisitch as ms
from minisitch import cpu_emit, cuda_emit, reference, runtime, simplify, simt, testing
from minisitch.explain import draw, film, picture
from minisitch.fuse import verify_plan
from minisitch.kernel.verify import verify_kernel
from minisitch.lower import lower_program, program_of
from minisitch.passes.registry import PASSES
from minisitch.schedule import schedule

X = np.arange(1.0, 5.0)


def f(x):
    return x * 2


WORDS = {
    "a strategy": (lambda: ms.jit(f, strategy="astich")(X), ms.PlanError, "'astich' (is 'astitch' meant?); known: "),
    "a strategy in capitals": (lambda: ms.lower(f, X, strategy="FS18"), ms.PlanError, "(is 'fs18' meant?)"),
    "a strategy that is a list": (lambda: ms.jit(f, strategy=["xla"])(X), ms.PlanError, "unknown strategy ['xla']"),
    "a strategy to compare": (lambda: ms.compare(f, X, strategies="astich", target="reference"), ms.PlanError, "(is 'astitch' meant?)"),
    "a target": (lambda: ms.jit(f, target="gpu"), ms.DeviceError, "'gpu' (is 'cuda' meant?)"),
    "a target that is NumPy": (lambda: ms.explain(f, X, target="numpy"), ms.DeviceError, "(is 'reference' meant?)"),
    "a device": (lambda: ms.lower(f, X, device="H-100"), ms.DeviceError, "(is 'h100' meant?)"),
    "a pass": (lambda: ms.lower(f, X, passes="vectorise"), ms.MinisitchError, "(is 'vectorize' meant?)"),
    "a pass for a kind of device": (lambda: ms.kernel_pass("mine", "GPU"), ms.MinisitchError, "kind 'GPU' (is 'gpu' meant?); take"),
    "a pass for a target": (lambda: ms.kernel_pass("mine", "cuda"), ms.MinisitchError, "no device is of the kind 'cuda'"),
    "a pass with an empty name": (lambda: ms.kernel_pass(""), ms.MinisitchError, "write @kernel_pass('mine')"),
    "a number of passes": (lambda: ms.jit(f, passes=3)(X), ms.MinisitchError, 'passes is 3: write "default"'),
    "a stage": (lambda: ms.lower(f, X, stop_after="stich"), ms.MinisitchError, "(is 'stitch' meant?)"),
    "exact as text": (lambda: ms.jit(f, exact="no")(X), ms.MinisitchError, "exact is 'no': write exact=True or exact=False"),
    "a result for a function": (lambda: ms.explain(f(X)), ms.MinisitchError, "write explain(f, x), and not explain(f(x))"),
    "a name for a function": (lambda: ms.lower("softmax", X), ms.MinisitchError, "lower takes a function and its arguments, not 'softmax'"),
    "no function to compare": (lambda: ms.compare(None), ms.MinisitchError, "compare takes a function and its arguments"),
    "a number for a graph": (lambda: ms.parse(3), ms.GraphError, "parse takes the text of a graph, not 3"),
    "more bytes than a machine has": (lambda: ms.lower(f, "f32[100000000000000000]"), ms.TraceError, "at most 2**44 elements"),
    "a device that is a list": (lambda: ms.get_device(["v100"]), ms.DeviceError, "unknown device ['v100']"),
    "an argument for a tuple": (lambda: ms.trace(f, None), ms.TraceError, "trace takes the arguments of a function as a tuple"),
    "a pass without a name": (lambda: ms.kernel_pass(f), ms.MinisitchError, "@kernel_pass('mine')"),
    "a plan of no graph": (lambda: ms.make_plan(None, "mine", []), ms.MinisitchError, "make_plan got NoneType, str, list; write make_plan(graph, 'mine', [[1, 2], [3]])"),
    "a plan of no kernels": (lambda: ms.make_plan(ms.Graph((), ()), "mine", None), ms.MinisitchError, "make_plan got Graph, str, NoneType; write make_plan"),
    "a pass of ours": (lambda: ms.kernel_pass("vectorize")(f), ms.MinisitchError, "register yours under another name"),
    "a result to compile": (lambda: ms.jit(np.ones((90, 90))), ms.MinisitchError, "; write jit(f), or @jit(strategy='astitch')"),
    "a GPU where there is none": (lambda: ms.compare(f, X, target="cpu", device="v100"), ms.DeviceError, "'step', or 'reference' for its plans alone"),
    "an option of jit": (lambda: ms.jit(f, exat=False), TypeError, "jit has no option 'exat' (is 'exact' meant?)"),
    "an option of compare": (lambda: ms.compare(f, X, strategy="xla"), TypeError, "no option 'strategy' (is 'strategies' meant?)"),
    "a type for an array": (lambda: ms.jit(f)(ms.TensorType((4,))), ms.TraceError, "a call needs values. Pass an array"),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_wrong_word_is_answered_with_the_nearest(name):
    call, kind, said = WORDS[name]
    before = dict(PASSES)
    with pytest.raises(kind, match=re.escape(said)) as refused:
        call()
    assert type(refused.value) is kind and PASSES == before


REFUSED = {
    "a name": lambda: ms.lower(f, X, device="cpux"), "an option": lambda: ms.jit(f, target="gpu"), "no such option": lambda: ms.jit(f, exat=1),
    "a result": lambda: ms.explain(f(X)), "another option": lambda: ms.compare(f, X, strategy="xla"),
    "a launch": lambda: simt.step("def k(x):\n    x[0] = 1", [X, X], 1, 1), "no Python": lambda: simt.step("def k(x):\n    x[0 = 1", [X], 1, 1),
    "no such cell": lambda: simt.step("def k(x):\n    x[9] = 1", [X], 1, 1), "a race": lambda: simt.step("def k(x):\n    x[0] = 1", [X], 1, 2),
    **{f"an index, {target}": functools.partial(ms.jit(lambda x, i: x[i], target=target), X, np.array([9])) for target in ("python", "reference")},
    "an index to compare": lambda: ms.compare(lambda x, i: x[i], X, np.array([9]), target="python"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_has_no_frames_of_ours(name):
    with pytest.raises((ms.MinisitchError, TypeError, IndexError)) as refused:
        REFUSED[name]()
    frames = traceback.extract_tb(refused.value.__traceback__)
    assert {Path(frame.filename).name for frame in frames} <= {Path(__file__).name, "<k>"}


def test_compare_says_that_autos_plan_assumes_the_default_passes():
    said = "auto's plan assumes the default passes"
    for passes, strategies, expected in (((), ("auto",), True), ((), ("xla",), False), (None, ("auto",), False), ("default", ("auto",), False)):
        assert (said in str(ms.compare(f, X, target="reference", passes=passes, strategies=strategies))) == expected


@pytest.mark.parametrize("door", [ms.jit(f), ms.jit(f).compile, functools.partial(ms.lower, f), functools.partial(ms.explain, f),
                                  functools.partial(ms.compare, f)])
@pytest.mark.parametrize(("args", "named"), [((), {}), ((X, X), {}), ((X,), {"y": X})])
def test_wrong_arguments_are_pythons_own_error_without_frames_between(door, args, named):
    with pytest.raises(TypeError) as expected:
        f(*args, **named)
    with pytest.raises(TypeError, match=re.escape(str(expected.value))) as refused:
        door(*args, **named)
    frames = traceback.extract_tb(refused.value.__traceback__)
    assert {Path(frame.filename).name for frame in frames} == {Path(__file__).name}


def test_types_are_called_as_python_calls_them():
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \*: 'generator' and 'int'"):
        ms.jit(f)(i for i in range(3))
    with pytest.raises(ValueError, match="cannot delete array elements"):
        ms.jit(deleting)(X)


def deleting(x):
    del x[0]
    return x


def test_parameters_may_be_called_self_and_fn():
    def mixed(self, fn):
        return self * 2 + fn

    assert ms.jit(mixed, target="reference")(self=X, fn=X).tolist() == (X * 3).tolist()
    assert ms.jit(mixed).compile(self=X, fn=X) is not None
    assert len(ms.lower(mixed, self=X, fn=X, stop_after="fuse").kernels) == 1


def test_a_jitted_function_may_call_itself():
    """What it keeps for its calls is no value from outside: it changes at each compilation."""
    @ms.jit(target="python")
    def halves(x, rounds=3):
        return x if rounds == 0 else halves(x / 2, rounds - 1)

    assert np.array_equal(halves(X), X / 8) and np.array_equal(halves(X, 1), X / 2) and np.array_equal(halves(X[:2]), X[:2] / 8)


class Odd:
    """A value of no kind that any function takes."""


DOORS = [verify_plan, verify_kernel, schedule, cuda_emit.emit, cpu_emit.emit, lower_program, program_of,
         reference.evaluate, simplify.simplify, simplify.rewrites, runtime.assemble, runtime.compile_graph,
         runtime.plan_memory, testing.judge, testing.check_graph, testing.random_graph, testing.random_inputs,
         testing.snippet, testing.arrays_for, draw.moved, draw.trips, draw.graph, draw.machine, draw.roofline,
         film.film, film.turns, picture.lifetimes, picture.thread_map]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: f"{door.__module__}.{door.__name__}")
@pytest.mark.parametrize("value", [None, Odd(), 3, f, Odd])
def test_another_kind_of_argument_is_refused_with_the_call_as_it_should_be(door, value):
    needed = [p for p in inspect.signature(door).parameters.values() if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    with pytest.raises(ms.MinisitchError, match=rf"^{door.__name__} got {type(value).__name__}.*; write {door.__name__}\(") as caught:
        door(*[value] * len(needed))
    form = str(caught.value).partition("; write ")[2]
    assert isinstance(ast.parse(form).body[0].value, ast.Call)


@pytest.mark.parametrize("value", [None, Odd(), 3, f, X])
def test_a_type_is_read_from_text_alone(value):
    with pytest.raises(ms.TraceError, match="cannot read the type"):
        runtime.parse_type(value)


PAIRS = [("cpu", "v100"), ("python", "h100"), ("step", "cpu"), ("cuda", "cpu"), ("cpu", ms.DEVICES["a100"])]
ROADS = {
    "lower": lambda **named: ms.lower(f, X, **named),
    "lower, one stage": lambda **named: ms.lower(f, X, stop_after="trace", **named),
    "lower of a jitted one": lambda **named: ms.lower(ms.jit(f, **named), X),
    "lower of a jitted one, told now": lambda **named: ms.lower(ms.jit(f), X, **named),
    "explain": lambda **named: ms.explain(f, X, **named), "compare": lambda **named: ms.compare(f, X, **named),
    "compare some": lambda **named: ms.compare(f, X, strategies=("none",), **named),
    "a call": lambda **named: ms.jit(f, **named)(X), "compile": lambda **named: ms.jit(f, **named).compile(X),
    "its explain": lambda **named: ms.jit(f, **named).explain(X), "its lower": lambda **named: ms.jit(f, **named).lower(X),
    "compile_graph": lambda **named: runtime.compile_graph(ms.trace(f, (X,)).graph, **named),
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(("target", "device"), PAIRS)
def test_a_target_and_a_device_that_do_not_go_together_are_refused_at_every_door(road, target, device):
    with pytest.raises(ms.DeviceError, match=f"do not run with target '{target}'; name no device, or take target ") as refused:
        ROADS[road](target=target, device=device)
    other = re.search("take target '(.*?)'", str(refused.value))[1]
    if road != "compare":  # the remedy, followed
        assert ROADS[road](target=other, device=device) is not None


def test_a_device_alone_is_what_is_planned_for():
    """No target is named, so nothing contradicts the device; and what would have to run there is refused."""
    assert ms.lower(f, X, device="v100")[0].kernel.device.name == "v100" == ms.explain(f, X, device="v100").stages.device.name
    assert ms.lower(ms.jit(f, device="v100"), X)[0].target == "cuda"
    assert ms.lower(ms.jit(f, device="v100", target="step"), X, target="cpu")[0].target == "cpu", "its device goes with its target"
    for run in (ms.jit(f, device="v100"), functools.partial(ms.compare, f, device="v100")):
        with pytest.raises(ms.DeviceError, match="do not run with target 'cpu'"):
            run(X)


@pytest.mark.parametrize("wrong", [{"strategy": ""}, {"target": ""}, {"device": ""}, {"exact": 1}, {"passes": 3}, {"strategy": 0}])
def test_a_setting_that_is_empty_is_not_taken_for_one_that_is_left_out(wrong):
    for call in (functools.partial(ms.lower, f, X), functools.partial(ms.explain, f, X), functools.partial(ms.compare, f, X),
                 functools.partial(runtime.compile_graph, ms.trace(f, (X,)).graph), lambda **named: ms.jit(f, **named)(X)):
        if call.__class__ is functools.partial and call.func is ms.compare and "strategy" in wrong:
            continue  # it takes strategies
        with pytest.raises(ms.MinisitchError, match=f"{next(iter(wrong))}|unknown"):
            call(**wrong)


def endless(kind):
    """A nest that holds itself, or one of more levels than Python can follow."""
    if kind == "levels":
        made = X
        for _ in range(5_000):
            made = [made]
        return made
    inner = [X]
    made = {"list": inner, "dict": {"x": X, "more": inner}, "tuple": (inner,), "named": Pair(X, inner)}[kind]
    inner.append(made)
    return made


Pair = collections.namedtuple("Pair", "x more")
NESTED = {
    "a call": lambda g, *args, **named: ms.jit(g)(*args, **named), "lower": ms.lower, "explain": ms.explain, "compare": ms.compare,
    "compile": lambda g, *args, **named: ms.jit(g).compile(*args, **named),
    "a method": lambda g, *args, **named: types.new_class("Model", (), {}, lambda body: body.update(
        call=ms.jit(lambda self, *args, **named: g(*args, **named))))().call(*args, **named),
}


@pytest.mark.parametrize("kind", ["list", "dict", "tuple", "named", "levels"])
@pytest.mark.parametrize("door", NESTED)
def test_an_argument_that_holds_itself_is_refused_by_name(door, kind):
    def g(x, y=1.0, *, z=0):
        return x + 1

    nest = endless(kind)
    said = f", a {type(nest).__name__}: it holds itself, or has too many levels. Take "
    for args, named, which in (((nest,), {}, 1), ((X, nest), {}, 2), ((X,), {"z": nest}, "z"), ((X,), {"y": nest}, "y")):
        with pytest.raises(ms.TraceError, match=rf"^test_right_doors.py:\d+: argument {which}{said}") as refused:
            NESTED[door](g, *args, **named)
        assert {Path(frame.filename).name for frame in traceback.extract_tb(refused.value.__traceback__)} == {Path(__file__).name}
    with pytest.raises(ms.TraceError, match=re.escape("argument ") + ".*it holds itself"):
        ms.trace(g, (X, nest))


@pytest.mark.parametrize("kind", ["list", "dict", "tuple", "named", "levels"])
def test_a_result_that_holds_itself_is_refused(kind):
    for door in (lambda g: ms.jit(g)(X), lambda g: ms.lower(g, X), lambda g: ms.compare(g, X)):
        with pytest.raises(ms.TraceError, match="the result, a [a-zA-Z]+: it holds itself"):
            door(lambda x: endless(kind))


def test_a_function_that_calls_itself_for_ever_is_pythons_own_error():
    def forever(x):
        return forever(x)

    for door in (ms.jit(forever), functools.partial(ms.lower, forever), functools.partial(ms.explain, forever)):
        with pytest.raises(RecursionError):
            door(X)


@pytest.mark.parametrize("door", [ms.lower, ms.explain])
def test_types_in_any_container_are_read(door):
    """Containers keep their class, so a program that uses an attribute of theirs is traced as with arrays."""
    def g(x):
        return x.x * 2 if isinstance(x, Pair) else x[next(reversed(x))] + x.default_factory() if isinstance(x, dict) else x[0] + 1

    for nest in (Pair("f32[4]", 3), collections.defaultdict(float, {"a": "f32[4]"}), [("f32[4]",)][0], ["f32[4]"]):
        assert str(door(g, nest))
    table = ms.compare(g, Pair("f32[4]", 3), target="python", strategies=("none",), seconds=0.01)
    assert table["none"].max_error == 0


@pytest.mark.parametrize("target", ["cpu", "python", "step"])
def test_a_compiled_program_refuses_arrays_of_another_shape(target):
    """A kernel has no bounds of its own: it would read what lies behind a smaller array."""
    x = np.arange(32.0, dtype=np.float32).reshape(4, 8)
    compiled = ms.jit(f, target=target).compile(x)
    made = runtime.compile_graph(ms.trace(f, (x,)).graph, target=target)
    for run in (compiled, compiled.outputs, compiled.prepare, made, made.outputs):
        for wrong in ([x[0, :3]], [x[:2]], [x.T], [x.ravel()], [3], [], [x, x], x, None, {0: x}):
            with pytest.raises(ms.GraphError, match=re.escape("takes a list of arrays [f32[4,8]], not ")):
                run(wrong)
    assert (compiled([x]) == f(x)).all() and (made.outputs((x,))[0] == f(x)).all()


def test_rows_and_nodes_that_do_not_exist_are_named():
    table = ms.compare(f, X, target="python", strategies=("none", "auto"), seconds=0.01)
    for wrong in ("astitch", 0, None, f):
        with pytest.raises(ms.PlanError, match=r"no row .*; there are none, auto, and \.rows has all"):
            table[wrong]
    with pytest.raises(ms.PlanError, match="no row 0"):
        list(table)  # it would end in silence if the refusal were a StopIteration
    for wrong in (None, "1", 2.5, -1, 99, X):
        with pytest.raises(ms.MinisitchError, match="does not exist"):
            ms.explain(f, X).why(wrong, 1)


@pytest.mark.parametrize("wrong", [{"seconds": "1"}, {"seconds": None}, {"seed": "a"}, {"seed": 1.5}, {"strategies": 3}, {"strategies": f}])
def test_wrong_numbers_of_compare_are_refused(wrong):
    with pytest.raises(ms.MinisitchError, match=r"compare got .*; write compare\("):
        ms.compare(f, "f64[4]", target="python", **wrong)


@pytest.mark.parametrize("register", [ms.strategy, ms.kernel_pass])
def test_what_is_registered_is_a_function(register):
    for wrong in (3, None, "f", X):
        with pytest.raises(ms.MinisitchError, match="write .*'mine'"):
            register("mine")(wrong)
