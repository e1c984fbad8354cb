"""The whole road as one property: whatever the program, strategy and target, what comes out is what NumPy means."""

import subprocess
import sys
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_programs import check_program, programs
from programs import softmax
from stitch_help import BASIC, CPU, ROOT, TOY, TOY32, TOY128, lowered, one_kernel, program, run, runner, stepped, traced

from minisitch import cuda_emit
from minisitch.lower import lower_program
from minisitch.runtime.assemble import assemble
from minisitch.stitch import mapping
from minisitch.strategies import cost
from minisitch.testing import arrays_for, check_graph, graphs, random_graph, random_inputs
from minisitch.trace import flatten, trace

sys.path.insert(0, str(ROOT / "tools"))
import random_programs as tool

TOYS = (TOY, TOY32, TOY128)
SMALL = {"max_nodes": 12, "max_elements": 300}


# ---------------------------------------------------------------- the property
@pytest.mark.parametrize("strategy", BASIC)
@given(data=st.data())
def test_programs_on_the_cpu_text(strategy, data):
    graph = data.draw(graphs(max_nodes=14))
    check_graph(graph, data.draw(arrays_for(graph)), runner(strategy, "python"))


@pytest.mark.parametrize("strategy", BASIC)
@given(data=st.data(), device=st.sampled_from(TOYS))
def test_programs_on_the_stepper(strategy, data, device):
    graph = data.draw(graphs(**SMALL))
    check_graph(graph, data.draw(arrays_for(graph)), runner(strategy, "step", device))


@given(programs(max_lines=5), st.sampled_from(BASIC))
def test_numpy_functions(case, strategy):
    def run_function(function, *inputs):
        traced_ = trace(function, inputs)
        stages = lower_program(traced_, strategy, "python", CPU)
        return assemble(stages, "python")(flatten(inputs)[0])
    check_program(case, run_function)


@pytest.mark.parametrize(("target", "count"), [("python", 6), ("step", 6)])
def test_a_slice_of_the_random_programs(target, count):
    """Deterministic; the closing note names the command that runs thousands."""
    failures = [f for seed in range(count) for f in tool.check_seed(seed, target)]
    assert not failures, "\n\n".join(f"{f.seed} {f.strategy}\n{f.text}" for f in failures[:3])


def test_without_simplification(monkeypatch):
    """The passes must not lean on simplify: a graph means the same before it."""
    monkeypatch.setattr(sys.modules["minisitch.lower"], "simplify", lambda graph: graph)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, max_nodes=15, max_elements=300)
        inputs = random_inputs(graph, rng)
        for strategy in BASIC:
            check_graph(graph, inputs, runner(strategy, "python"))
            check_graph(graph, inputs, runner(strategy, "step", TOYS[seed % 3]))


def test_a_few_programs_compiled():
    """Machine code, not only its text: fused and unfused."""
    for seed in range(6):
        rng = np.random.default_rng(1000 + seed)
        graph = random_graph(rng, max_nodes=10)
        check_graph(graph, random_inputs(graph, rng), runner("astitch" if seed % 2 else "xla", "cpu"))


def test_seeds_of_the_stepper_do_not_matter():
    """Any interleaving of threads and blocks gives the same bits: results do not depend on who comes first."""
    graph = traced(lambda x: (softmax(x), np.sum(x, axis=0), x.mean()), (8, 40))
    x = np.random.default_rng(0).normal(size=(8, 40)).astype(np.float32)
    source = cuda_emit.emit(one_kernel(graph))
    first, _ = stepped(source, [x])
    for seed in range(1, 5):
        again, _ = stepped(source, [x], seed)
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


# ---------------------------------------------------------------- special values
@pytest.mark.parametrize("target", ["python", "step"])
def test_special_values(target):
    """NaN, infinities, signed zeros and subnormals go through every strategy as through NumPy."""
    drawn = ((seed, tool.program_of(seed, target)) for seed in range(3, 400, 4))
    few = list(islice(((seed, found) for seed, found in drawn if found[2] and len(found[0]) < 14), 12))
    for seed, (graph, inputs, _) in few:
        for strategy in BASIC:
            check_graph(graph, inputs, runner(strategy, target, TOYS[seed % 3] if target == "step" else CPU))
    assert len(few) == 12


@pytest.mark.parametrize("target", ["python", "step"])
def test_max_and_min_with_nan(target):
    graph = program("f32[3,40] = input name='x'", "f32[3] = max %0 axes=(1,) keepdims=False",
                    "f32[3] = min %0 axes=(1,) keepdims=False", "f32[40] = max %0 axes=(0,) keepdims=False",
                    "f32[3,40] = maximum %0 %0", "f32[3] = sum %0 axes=(1,) keepdims=False", "return %1 %2 %3 %4 %5")
    x = np.arange(120, dtype=np.float32).reshape(3, 40)
    x[0, 7], x[1, 39], x[2, 0] = np.nan, np.inf, -np.inf
    for strategy in BASIC:
        check_graph(graph, [x], runner(strategy, target))


# ---------------------------------------------------------------- awkward shapes
SIDES = (0, 1, 31, 33, 123)


@pytest.mark.parametrize("target", ["python", "step"])
@pytest.mark.parametrize("rows", SIDES)
def test_awkward_shapes(target, rows):
    """Row and column reductions, a broadcast each way and a transpose, with ragged and empty sides."""
    for cols in SIDES:
        if rows * cols > 4200:
            continue
        graph = program(
            f"f32[{rows},{cols}] = input name='x'", f"f32[{rows},1] = sum %0 axes=(1,) keepdims=True",
            f"f32[{rows},{cols}] = broadcast %1 shape=({rows}, {cols})", f"f32[{rows},{cols}] = sub %0 %2",
            f"f32[1,{cols}] = sum %3 axes=(0,) keepdims=True", f"f32[{rows},{cols}] = broadcast %4 shape=({rows}, {cols})",
            f"f32[{rows},{cols}] = mul %3 %5", f"f32[{cols},{rows}] = transpose %6 perm=(1, 0)",
            "f32[] = sum %0 axes=(0, 1) keepdims=False", f"f32[{cols},{rows}] = abs %7", "return %6 %9 %4 %8")
        x = np.random.default_rng(rows * 1000 + cols).integers(-8, 9, (rows, cols)).astype(np.float32) / 8
        for strategy in BASIC:
            check_graph(graph, [x], runner(strategy, target, TOYS[(rows + cols) % 3] if target == "step" else None))


@pytest.mark.parametrize("dtype", ["f16", "f64", "i8", "u8", "i32", "i64", "u64", "bool"])
def test_every_dtype_is_reduced_along_rows_and_columns(dtype):
    """Shuffles move 32 or 64 bits; narrower and unsigned values travel in a wider type and come back."""
    ops = ("any", "all") if dtype == "bool" else ("sum", "prod", "max", "min")
    lines, outputs = [f"{dtype}[5,70] = input name='x'"], []
    for op in ops:
        for axis, left in ((0, 70), (1, 5)):
            lines.append(f"{dtype}[{left}] = {op} %0 axes=({axis},) keepdims=False")
            outputs.append(f"%{len(lines) - 1}")
    graph = program(*lines, "return " + " ".join(outputs))
    rng = np.random.default_rng(0)
    kind = graph[0].type.dtype
    if "int" in kind:  # all of it: sums wrap around, and large unsigned values must not compare as negative ones
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (5, 70), dtype=kind, endpoint=True)
    else:
        x = rng.integers(0 if kind == "bool" else -1, 2, (5, 70)).astype(kind)
    for device in TOYS:
        check_graph(graph, [x], runner("astitch", "step", device))
    check_graph(graph, [x], runner("astitch", "python"))


def test_wrapping_integers():
    """Kernels wrap around as NumPy does, sums included."""
    graph = program("i8[4,33] = input name='x'", "i8[4] = sum %0 axes=(1,) keepdims=False", "i8[4,33] = mul %0 %0",
                    "i8[33] = prod %2 axes=(0,) keepdims=False", "i8[4,33] = neg %0", "return %1 %2 %3 %4")
    x = np.random.default_rng(0).integers(-128, 128, (4, 33)).astype(np.int8)
    x[0, 0] = -128
    for strategy in BASIC:
        check_graph(graph, [x], runner(strategy, "step"))
        with np.errstate(all="ignore"):
            check_graph(graph, [x], runner(strategy, "python"))


# ---------------------------------------------------------------- split rows, tiles and slices
SPLIT = {  # rows above 1024 columns are split among the blocks of an idle device
    "a concatenation one column longer": [
        "f32[2,1500] = input name='x'", "f32[2,1] = sum %0 axes=(1,) keepdims=True", "f32[2,1501] = concatenate %0 %1 axis=1"],
    "two sums of almost equal length": [
        "f32[1,4990] = input name='x'", "f32[1,5000] = input name='y'", "f32[1] = sum %0 axes=(1,) keepdims=False",
        "f32[1] = sum %1 axes=(1,) keepdims=False", "return %2 %3"],
    "a sum, and a map over other columns": [
        "f32[4990] = input name='x'", "f32[5000] = input name='y'", "f32[] = sum %0 axes=(0,) keepdims=False",
        "f32[5000] = neg %1", "return %2 %3"],
    "one sum broadcast to two lengths": [
        "f32[2,1500] = input name='x'", "f32[2,1] = sum %0 axes=(1,) keepdims=True",
        "f32[2,3000] = broadcast %1 shape=(2, 3000)", "f32[2,1500] = broadcast %1 shape=(2, 1500)", "return %2 %3"],
    "one value a row": [
        "f32[2,1500] = input name='x'", "f32[2,1] = sum %0 axes=(1,) keepdims=True", "f32[2,1] = neg %1",
        "f32[2,1500] = broadcast %2 shape=(2, 1500)", "f32[2,1500] = add %0 %3", "return %4 %2"],
    "a column sum whose slices do not divide its rows": [
        "f32[997,3] = input name='x'", "f32[3] = sum %0 axes=(0,) keepdims=False"],
    "a tile of 4096 columns that seven does not divide": [
        "f32[3,1000,7] = input name='x'", "f32[1,1,7] = input name='b'", "f32[3,1000,7] = broadcast %1 shape=(3, 1000, 7)",
        "f32[3,1000,7] = mul %0 %2", "f32[1000,7] = sum %3 axes=(0,) keepdims=False"],
}


@pytest.mark.parametrize("name", SPLIT)
def test_split_rows_and_tiles(name):
    """Each was wrong once: chunks of one length used for another, a tile rounded up past its scratch row."""
    graph = program(*SPLIT[name])
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-8, 9, graph[i].type.shape).astype(np.float32) for i in graph.inputs]
    for strategy in BASIC:
        check_graph(graph, inputs, runner(strategy, "python"))
        check_graph(graph, inputs, runner(strategy, "step", TOY if strategy == "astitch" else TOY128))


@pytest.mark.parametrize(("target", "count"), [("python", 7), ("step", 7)])
def test_random_programs_in_small_pieces(monkeypatch, nothing_built, target, count):
    """With rows split from 24 columns on, tiles of 16 and slices of 3, random programs reach every cut."""
    monkeypatch.setattr(mapping, "LONG_ROW", 24)
    monkeypatch.setattr(mapping, "CPU_TILE", 16)
    monkeypatch.setattr(mapping, "SHORTEST_SLICE", {"gpu": 3, "cpu": 3})
    monkeypatch.setattr(tool, "TOYS", tuple(replace(t, sms=8) for t in tool.TOYS))
    failures = [f for seed in (*range(count - 1), 53) for f in tool.check_seed(seed, target)]  # 53 has a slice with a rest
    assert not failures, "\n\n".join(f"{f.seed} {f.strategy}\n{f.text}" for f in failures[:3])


# ---------------------------------------------------------------- what fusing must not cost
def moved(graph, strategy, device):
    """Bytes of all kernels of a plan."""
    return sum(cost.traffic(k).total for k in lowered(graph, strategy, "step", device, "schedule").kernels)


@pytest.mark.parametrize("strategy", ["xla", "astitch"])
def test_fused_traffic_is_no_more_than_unfused(strategy):
    """Softmax-like programs of any shape; the model's count, which test_cost holds to the stepper's."""
    def tail(x, w):
        y = softmax(x) * w
        return np.tanh(y - y.mean(axis=0)), y.max(axis=1)
    for rows, cols in ((1, 1), (3, 5), (64, 128), (33, 1000), (4096, 64)):
        graph = traced(tail, (rows, cols), (cols,))
        assert moved(graph, strategy, TOY) <= moved(graph, "none", TOY)


def test_stages_are_equal_twice():
    for seed in range(5):
        graph = random_graph(np.random.default_rng(seed), max_nodes=15, max_elements=300)
        for strategy in BASIC:
            first, second = (lowered(graph, strategy, "step", TOY) for _ in range(2))
            assert first.plan == second.plan and first.kernels == second.kernels
            assert [s.text for s in first.sources] == [s.text for s in second.sources]


# ---------------------------------------------------------------- the tool
def test_the_tool_reports_and_exits(capsys, monkeypatch):
    assert tool.main(["--count", "3", "--seed", "5"]) == 0
    assert "3 programs from seed 5, target python, strategies none xla fs18 fs18-dot fs20 astitch auto: 0 failures" in capsys.readouterr().out

    def broken(graph, inputs, *rest):
        results = run(graph, inputs, "none", "python", CPU)
        return [r + 1 if r.dtype.kind == "f" else r for r in results]
    monkeypatch.setattr(tool, "run_graph", broken)
    assert tool.main(["--count", "4", "--seed", "0", "--strategies", "astitch"]) == 1
    printed = capsys.readouterr().out
    assert "strategy astitch" in printed and "inputs = random_inputs(graph, np.random.default_rng(" in printed
    scope: dict = {}
    exec(printed[printed.index("import numpy"):].split("\n\n")[0], scope)
    assert len(scope["inputs"]) == len(scope["graph"].inputs)


def test_the_tool_from_the_command_line():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "random_programs.py"), "--count", "2", "--target", "step"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0 failures" in done.stdout and "2 of 2 programs" in done.stderr


def test_devices_of_any_size_are_planned_for():
    """One block of one warp; and a device with one SM."""
    graph = traced(softmax, (40, 70))
    x = np.random.default_rng(0).normal(size=(40, 70)).astype(np.float32)
    for device in (replace(TOY32, sms=1, threads_per_sm=32, blocks_per_sm=1), replace(TOY128, sms=1)):
        check_graph(graph, [x], runner("astitch", "step", device))
