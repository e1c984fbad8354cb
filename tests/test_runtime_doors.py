"""The runtime: other processes, methods, the doors of the package, and their errors."""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import pickle
import types

import numpy as np
import pytest
from programs import softmax
from runtime_help import array

import minisitch as ms
from minisitch.errors import DeviceError, MinisitchError, PlanError, TraceError
from minisitch.graph import Graph, TensorType
from minisitch.runtime import assemble, choose_device, lower_program
from minisitch.runtime.cuda import driver as cuda_driver
from minisitch.runtime.this_machine import BUILT_IN, cpu_with
from minisitch.trace.tree import type_of


# ---------------------------------------------------------------- other processes, methods
@ms.jit(target="python")
def shadowed(x):
    return np.exp(x) * 2


def plain(x):
    return np.exp(x) * 3


rewrapped = ms.jit(plain, target="python", strategy="none")


class Model:
    def __init__(self, scale):
        self.scale = np.full(3, scale, np.float32)

    @ms.jit(target="python")
    def forward(self, x):
        out = np.zeros(x.shape, np.float32)
        out[:] = x * self.scale
        return out


def test_pickles_by_reference():
    assert pickle.loads(pickle.dumps(shadowed)) is shadowed
    other = ms.jit(shadowed, target="reference")
    copy = pickle.loads(pickle.dumps(other))
    assert copy is not shadowed and copy.options.target == "reference" and copy.__wrapped__ is shadowed.__wrapped__
    again = pickle.loads(pickle.dumps(ms.jit(plain, strategy="none")))
    assert again.__wrapped__ is plain and again.options.strategy == "none"
    assert b"exp" not in pickle.dumps(other)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(ms.jit(lambda x: x))


def test_runs_in_a_spawned_process():
    x = array(4)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        results = [pool.submit(f, x).result() for f in (shadowed, rewrapped)]
    np.testing.assert_allclose(results, [np.exp(x) * 2, np.exp(x) * 3], rtol=1e-6)


def test_methods_are_compiled_for_each_object_and_forgotten_with_it():
    two, three = Model(2), Model(3)
    x = np.ones(3, np.float32)
    assert two.forward(x).tolist() == [2, 2, 2] and three.forward(x).tolist() == [3, 3, 3]
    two.scale[:] = 5
    assert two.forward(x).tolist() == [5, 5, 5]
    assert two.forward.lower(x, stop_after="simplify").outputs
    assert pickle.loads(pickle.dumps(three.forward))(x).tolist() == [3, 3, 3]
    from minisitch.runtime import _methods
    own = id(two)
    assert own in _methods[Model.forward]
    del two
    gc.collect()
    assert own not in _methods[Model.forward]


def test_methods_of_what_cannot_be_referred_to_weakly_say_so_each_time():
    class Tight:
        __slots__ = ("scale",)

        @ms.jit
        def forward(self, x, more=1.0):
            return x * more

    tight = Tight()
    for _ in range(2):
        with pytest.raises(ms.TraceError, match="test_runtime_doors.py.* forward is a jitted method of a Tight.*'__weakref__'"):
            tight.forward(np.ones(2))


def test_an_array_of_a_type_that_numpy_does_not_know_is_refused_in_words():
    with pytest.raises(ms.TraceError, match=r"test_runtime_doors.py:\d+: an array of bfloat16: NumPy does not know it. Convert it"):
        type_of(types.SimpleNamespace(dtype="torch.bfloat16", shape=(3,)))


@pytest.mark.paper(56)
def test_a_jitted_function_looks_like_its_own():
    assert shadowed.__name__ == "shadowed" and "shadowed" in repr(shadowed)


# ---------------------------------------------------------------- doors and errors
def test_lower_leaves_by_any_door():
    graph = ms.lower(softmax, "f32[4,8]", stop_after="simplify")
    assert isinstance(graph, Graph) and graph[0].type == TensorType((4, 8))
    assert str(ms.lower(softmax, "f32[4,8]", stop_after="trace").graph)
    assert len(ms.lower(softmax, "f32[4,8]", stop_after="fuse", strategy="astitch").kernels) == 1
    for stage in ("stitch", "schedule", "emit"):
        (value,) = ms.lower(softmax, "f32[4,8]", stop_after=stage, target="step", device="v100")
        assert "softmax" in str(getattr(value, "text", value)) or stage == "stitch"
    assert shadowed.lower(TensorType((2,)), stop_after="fuse").strategy == "auto"


@pytest.mark.parametrize("call, error, message", [
    (lambda: ms.jit(softmax, target="tpu"), DeviceError, "unknown target 'tpu'; take one of auto, cpu"),
    (lambda: ms.jit(softmax, strategy="magic", target="python")(array(2, 2)), PlanError, "unknown strategy 'magic'"),
    (lambda: ms.lower(softmax, "f32[2,2]", stop_after="paint"), MinisitchError, "unknown stage 'paint'; the stages are"),
    (lambda: ms.lower(softmax, "f31[2,2]", stop_after="trace"), TraceError, r"cannot read the type 'f31\[2,2\]'"),
    (lambda: ms.lower(softmax, "f32[4 8]"), TraceError, r"cannot read the type 'f32\[4 8\]'"),
    (lambda: ms.lower(softmax, "f32[" + 5000 * "9" + "]"), TraceError, "cannot read the type 'f32.{,80}999; write"),
    (lambda: ms.lower(softmax, f"f32[{10**17}]"), TraceError, "at most 2\\*\\*44 elements"),
    (lambda: ms.lower(softmax, f"f32[0,{10**30}]"), TraceError, "at most 2\\*\\*44 elements"),
    (lambda: choose_device("cpu", "abacus"), DeviceError, "unknown device 'abacus'; known: cpu"),
    (lambda: ms.lower(np.negative, "f32[4]", target="cuda", device="cpu"), DeviceError, "scheduled for cpu, a CPU, do not run with target .cuda."),
])
def test_errors_name_the_next_step(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_cuda_without_a_device_says_what_to_do():
    if not cuda_driver.available():
        with pytest.raises(DeviceError, match="target='cpu'"):
            ms.jit(softmax, target="cuda")(array(2, 2))


def test_jit_takes_a_function():
    for wrong in ("astitch", 3):
        with pytest.raises(ms.MinisitchError, match=r"jit takes a function, not .*; write jit\(f\), or @jit\(strategy="):
            ms.jit(wrong)


def test_a_program_of_thousands_of_steps():
    """Layout and memory planning are near-linear: quadratic, this would take longer than all other tests."""
    def chain(x, w):
        for _ in range(2000):
            x = np.tanh(x @ w)
        return x

    program = ms.lower(chain, "f32[4,4]", "f32[4,4]", stop_after="trace")
    run = assemble(lower_program(program, "none", "python", choose_device("cpu")), "python")
    assert len(run.steps) == 4000 and len({id(k) for k in run.stages.kernels}) == 1 and run.workspace == 128


@pytest.mark.parametrize("mistyped", ["f32[64,a]", "f32(4,4)", "f32 [4,x]", "i7[3]"])
def test_a_mistyped_shape_is_named(mistyped):
    with pytest.raises(ms.MinisitchError, match="cannot read the type"):
        ms.lower(lambda x: x + 1, mistyped)
    assert ms.lower(lambda x, mode: x + len(mode), "f32[3]", "first", stop_after="trace").graph.inputs == (0,)


def test_a_jitted_function_is_shown_as_it_was_told_to_run():
    """``lower``, ``explain`` and ``compare`` ask it for what they are not told; its device goes with its target."""
    def f(x):
        return x / x.sum(-1, keepdims=True)

    told, x = ms.jit(f, strategy="none", target="cpu", device=cpu_with(BUILT_IN)), np.ones((4, 8), np.float32)
    for sources in (ms.lower(told, x), told.lower(x)):
        assert [s.target for s in sources] == ["cpu"] * 2
    assert ms.explain(told, x).stages.device.kind == told.explain(x).stages.device.kind == "cpu"
    other, = ms.lower(told, x, target="step", strategy="astitch")
    assert other.target == "cuda" and other.kernel.device.kind == "gpu"
    assert ms.compare(told, x, strategies=["none"], seconds=0.01).target == "cpu"

    class Model:
        weight = np.ones(8, np.float32)
        forward = ms.jit(lambda self, x: x @ self.weight, strategy="none", target="cpu")

    method = Model().forward
    assert str(ms.explain(method, x)) == str(method.explain(x)) and ms.lower(method, x) == method.lower(x)
    assert ms.explain(Model().forward, x).stages.plan.strategy == "none"
    assert ms.compare(method, x, strategies=["none"], seconds=0.01).target == "cpu"
    decisions = ms.lower(told, x, strategy="xla", stop_after="fuse").decisions
    assert str(decisions[0]).startswith("%") and f"[{decisions[0].rule}] {decisions[0].why}" in str(decisions[0])
