"""Short names for tests of the road from a graph to kernels: devices, lowering, running, counting."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np

import minisitch.strategies  # noqa: F401  registers them
from minisitch import simt
from minisitch.device import DEVICES
from minisitch.fuse import Stitching
from minisitch.lower import lower_program
from minisitch.passes.registry import DEFAULTS, chosen, kernel_of
from minisitch.runtime.assemble import assemble
from minisitch.runtime.this_machine import BUILT_IN, cpu_with, this_cpu
from minisitch.stitch.body import extract
from minisitch.stitch.loops import stitch
from minisitch.strategies.ask import fuse
from minisitch.trace import Program, trace
from minisitch.trace.parser import parse
from minisitch.trace.tree import Static

BASIC = ("none", "xla", "astitch")  # strategies; the others have tests of their own
V100 = DEVICES["v100"]
CPU = replace(this_cpu(), sms=2)  # golden texts must not depend on who runs them
# Calibrated beside other programs: small copies came out slower than large ones (as in benchmarks/results/, 24 November 2026).
DISTURBED = cpu_with({**BUILT_IN, "levels": [[1 << 16, 72e9, 72e9], [1 << 19, 79e9, 79e9], [1 << 20, 78e9, 105e9],
                                             [1 << 21, 74e9, 127e9], [1 << 26, 42e9, 63e9], [1 << 28, 35e9, 43e9]]}, cores=2)
# A GPU small enough to step: every scheme and every mapping is reached by small shapes.
TOY = replace(V100, name="toy", sms=2, max_block=64, threads_per_sm=128, blocks_per_sm=2)
TOY32 = replace(TOY, name="toy32", max_block=32)
TOY128 = replace(TOY, name="toy128", max_block=128, threads_per_sm=256)
ROOT = Path(__file__).parent.parent


def program(*lines):
    """A graph from lines without ids; the last one is returned unless a line says otherwise."""
    if not lines[-1].startswith("return"):
        lines = (*lines, f"return %{len(lines) - 1}")
    return parse("\n".join([*(f"%{i}: {line}" for i, line in enumerate(lines[:-1])), lines[-1]]))


_numbers = count()


def renamed(device):
    """The same device under a name that nobody else has: nothing that other tests planned for it is remembered."""
    return replace(device, name=f"{device.name} {next(_numbers)}")


def traced(function, *inputs):
    """The graph of a NumPy function; inputs may be shapes (float32)."""
    arrays = [np.zeros(i, np.float32) if isinstance(i, tuple) else i for i in inputs]
    return trace(function, arrays).graph


def lowered(graph, strategy="astitch", target="step", device=TOY, stop_after="emit"):
    """All stages of a graph, simplified first as the runtime does it. ``schedule`` is the door behind all default passes."""
    stop_after = DEFAULTS[device.kind][-1] if stop_after == "schedule" else stop_after
    return lower_program(Program(graph, Static(None, ()), Static(None, ()), (), ()), strategy, target, device, stop_after)


def one_kernel(graph, device=TOY, passes="default", **options):
    """The whole graph stitched into one kernel, scheduled and rewritten by passes."""
    return kernel_of(stitch(graph, device, Stitching(**options)), chosen(passes, device))


def run(graph, inputs, strategy="astitch", target="step", device=TOY):
    """The outputs of a graph on a target."""
    return assemble(lowered(graph, strategy, target, device), target).outputs(list(inputs))


def runner(strategy, target, device=None):
    """What ``check_graph`` wants: a function of a graph and its inputs."""
    chosen = device or (TOY if target == "step" else CPU)
    return lambda graph, inputs: run(graph, inputs, strategy, target, chosen)


def bodies(graph, strategy, device=V100):
    """The kernels of a plan as programs of their own."""
    plan = fuse(graph, strategy, device)
    return [extract(plan.graph, p).graph for p in plan.kernels]


def stepped(source, inputs, seed=0):
    """Run one kernel's CUDA text; the outputs and the traffic."""
    kernel = source.kernel
    arrays, results = {}, []
    given = iter(inputs)
    for b in kernel.parameters:
        if b.scope == "input":
            arrays[b.name] = np.ascontiguousarray(next(given)).reshape(-1).copy()
        else:
            arrays[b.name] = np.zeros(b.size, b.dtype)
            if b.scope == "output":
                results.append(arrays[b.name].reshape(kernel.graph[b.node].type.shape))
    traffic = simt.step(source.text, arrays, kernel.grid, kernel.block, seed,
                        inputs=[b.name for b in kernel.parameters if b.scope == "input"],
                        wave=kernel.device.wave(kernel.block, kernel.shared_bytes, kernel.registers))
    return results, traffic


def figure_7(m=64, k=128, n=32):
    """AStitch's Fig. 7 and 9: names of the paper in the comments; shapes derived."""
    return program(
        f"f32[{m},1] = input name='pr2'",
        f"f32[{m},{k}] = input name='pr1'",
        f"f32[{m},{n}] = input name='pr3'",
        f"f32[{m},{k}] = broadcast %0 shape=({m}, {k})",  # 3: B.1
        f"f32[{m},{k}] = add %3 %1",  # 4: A.1
        f"f32[{m},1] = sum %4 axes=(1,) keepdims=True",  # 5: R.1
        f"f32[{m},1] = div %0 %5",  # 6: D.1
        f"f32[{m},1] = constant value=1.5",
        f"f32[{m},1] = power %6 %7",  # 8: Pw.1
        f"f32[{m},{n}] = broadcast %8 shape=({m}, {n})",  # 9: B.2
        f"f32[{m},{n}] = div %2 %9",  # 10: D.2
        f"f32[1,{n}] = sum %10 axes=(0,) keepdims=True",  # 11: R.2
        f"f32[{m},{n}] = broadcast %11 shape=({m}, {n})",  # 12: B.3
        f"f32[{m},{n}] = mul %12 %9",  # 13: M.1
        "return %13")
