"""Block composition: Fig. 3 of FusionStitching 2018 exactly, random legal schedules, refusals, and each kind of fold."""

import math
from dataclasses import replace

import numpy as np
import pytest
from stitch_help import CPU, TOY, V100, bodies, lowered, program, softmax, stepped, traced

from minisitch import cost, cpu_emit, cuda_emit
from minisitch.blocks import arrange
from minisitch.errors import KernelError, PlanError
from minisitch.fuse import extract, make_plan
from minisitch.index import linear, pull, value_at
from minisitch.kernel import Compute, Load, verify_kernel
from minisitch.reference import judge
from minisitch.runtime.executable import assemble
from minisitch.runtime.stages import lower_plan
from minisitch.schedule import schedule
from minisitch.simplify import simplify
from minisitch.testing import random_graph, random_inputs
from minisitch.trace import Program
from minisitch.triples import BlockComposition, Cut, Triple, cut_of, operand_cut, space, triple_for


# ---------------------------------------------------------------- helpers
def composed(graph, device, composition):
    return schedule(arrange(graph, device, composition))


def run_on(target, graph, composition, inputs, device):
    """Through the runtime: the graph as one kernel put together so; its outputs."""
    drawn = make_plan(graph, "blocks", [[n.id for n in graph.nodes if n.kind != "source" and n.op != "input"]], ())
    (pattern,) = drawn.patterns
    number = {whole: i for i, whole in enumerate(extract(graph, pattern).origin)}
    there = replace(composition, schedules=tuple((number[v], t) for v, t in composition.schedules),
                    shared=tuple(number[v] for v in composition.shared))
    plan = replace(drawn, patterns=(replace(pattern, composition=there),))
    stages = lower_plan(Program(graph, None, None, (), ()), plan, target, device)
    return assemble(stages, target).outputs(list(inputs))


def check(graph, composition, device=TOY, seed=0):
    """Both texts of a kernel agree with the reference; the GPU's kernel and its traffic."""
    inputs = random_inputs(graph, np.random.default_rng(seed))
    kernel = composed(graph, device, composition)
    source = cuda_emit.emit(kernel)
    results, traffic = stepped(source, inputs, seed)
    verdicts = judge(graph, inputs, results)
    assert all(v.ok for v in verdicts), f"{verdicts}\n{kernel}\n{source.text}"
    text = cpu_emit.emit(composed(graph, CPU, composition)).text
    verdicts = judge(graph, inputs, run_on("python", graph, composition, inputs, CPU))
    assert all(v.ok for v in verdicts), f"{verdicts}\n{text}"
    return kernel, traffic


# ---------------------------------------------------------------- Fig. 3
MAX, EXP, SUM, DIVIDE, DOT = 2, 6, 7, 10, 16  # Reduce.1, Exponential.1, Reduce.2, Divide.1, Dot.1


def figure_3(batch=64, heads=8, rows=17, depth=128):
    """Softmax, then a batched product as a sum of products (papers: 1a)."""
    n = batch * heads * rows
    every = f"{batch},{heads},{rows},{rows},{depth}"
    return program(
        f"f32[{n},{rows}] = input name='arg1'",
        f"f32[{batch},{heads},{rows},{depth}] = input name='arg2'",
        f"f32[{n}] = max %0 axes=(1,) keepdims=False",
        f"f32[{n},1] = reshape %2 shape=({n}, 1)",
        f"f32[{n},{rows}] = broadcast %3 shape=({n}, {rows})",
        f"f32[{n},{rows}] = sub %0 %4",
        f"f32[{n},{rows}] = exp %5",
        f"f32[{n}] = sum %6 axes=(1,) keepdims=False",
        f"f32[{n},1] = reshape %7 shape=({n}, 1)",
        f"f32[{n},{rows}] = broadcast %8 shape=({n}, {rows})",
        f"f32[{n},{rows}] = div %6 %9",
        f"f32[{batch},{heads},{rows},{rows},1] = reshape %10 shape=({batch}, {heads}, {rows}, {rows}, 1)",
        f"f32[{every}] = broadcast %11 shape=({every})",
        f"f32[{batch},{heads},1,{rows},{depth}] = reshape %1 shape=({batch}, {heads}, 1, {rows}, {depth})",
        f"f32[{every}] = broadcast %13 shape=({every})",
        f"f32[{every}] = mul %12 %14",
        f"f32[{batch},{heads},{rows},{depth}] = sum %15 axes=(3,) keepdims=False",
        "return %16")


def figure_3_schedules(blocks=512, threads=256):
    rows = Triple(0, blocks)
    return BlockComposition(((MAX, rows), (EXP, rows), (SUM, rows), (DIVIDE, rows), (DOT, Triple(2, 1))),
                            (MAX, EXP, SUM, DIVIDE), threads)


@pytest.mark.paper(16, 17)
def test_figure_3_kernel(golden):
    """512 blocks; Reduce.2 takes the bytes of Reduce.1 and Divide those of Exponential: 1,224 bytes instead of 2,448."""
    kernel = composed(figure_3(), V100, figure_3_schedules())
    kept = {b.node: b for b in kernel.buffers if b.scope == "shared"}
    assert {node: b.size for node, b in kept.items()} == {MAX: 17, EXP: 289, SUM: 17, DIVIDE: 289}
    assert kernel.owners[kept[SUM].name] == kept[MAX].name and kernel.owners[kept[DIVIDE].name] == kept[EXP].name
    assert kernel.shared_bytes == 1224 and sum(4 * b.size for b in kept.values()) == 2448
    assert kernel.grid == 512 and kernel.grid_barriers == 0 and kernel.block_barriers == 4
    golden("figure_3_kernel", str(kernel))


def test_figure_3_on_a_core(golden):
    """A block is a task of a core, shared memory rows that share bytes alike; the product adds up a row of 128 sums."""
    kernel = composed(figure_3(), CPU, figure_3_schedules())
    assert kernel.shared_bytes == 1224 + 128 * 4
    golden("figure_3_cpu", cpu_emit.emit(kernel).text)


@pytest.mark.paper(13, 17)
def test_figure_3_runs():
    graph = figure_3(2, 2, 9, 6)
    kernel, traffic = check(graph, figure_3_schedules(4, 64))
    assert traffic.block_barriers_each == 4
    assert {name: (t.read, t.written) for name, t in traffic.touched.items()} == {
        "x0": (36 * 9 * 4, 0), "x1": (36 * 6 * 4, 0), "y0": (0, 36 * 6 * 4)}, "arguments are read once, nothing else travels"
    assert (cost.traffic(kernel).read, cost.traffic(kernel).written) == (36 * 15 * 4, 36 * 6 * 4)


def test_figure_3_compiled():
    graph = figure_3()
    inputs = random_inputs(graph, np.random.default_rng(0))
    results = run_on("cpu", graph, figure_3_schedules(), inputs, CPU)
    assert all(v.ok for v in judge(graph, inputs, results))


def exps(graph, composition):
    """How often the exponential is evaluated: executions of its line of text."""
    kernel = composed(graph, TOY, composition)
    return sum(s.rows * p.cols * p.serial for s in kernel.segments for p in s.phases for stmt in p.body
               if isinstance(stmt, Compute) and stmt.op == "exp")


@pytest.mark.paper(13)
def test_exp_is_evaluated_once_an_element_if_it_is_kept():
    graph, kept = figure_3(2, 2, 9, 6), figure_3_schedules(4, 64)
    elements = 36 * 9
    assert exps(graph, kept) == elements
    recomputed = replace(kept, schedules=tuple(s for s in kept.schedules if s[0] not in (EXP, DIVIDE)), shared=(MAX, SUM))
    check(graph, recomputed)
    assert exps(graph, recomputed) == elements + elements * 6, "again in each of the product's columns"
