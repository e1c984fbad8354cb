"""Gradients of random programs against central differences in float64.

    python tools/gradient_programs.py --count 3000 --seed 0

Program number ``seed`` is one of ``minisitch.testing``, with all library operations. Its float results, each element times a
random weight, are added up to one number. Along a random direction, the gradient must be what central differences give at one of
three steps: the largest may cross a kink, and the least loses digits. Prints how many programs were right, refused by name,
without a float result, or not finite. A wrong one is printed whole; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from minisitch import Graph, TensorType, TraceError, gradient
from minisitch.ops import kind_of
from minisitch.reference import evaluate
from minisitch.testing import random_graph, random_inputs
from minisitch.trace.builder import Builder

STEPS = (1e-3, 1e-5, 1e-7)
DTYPES = ("float64",) * 6 + ("int64", "bool")


def is_float(graph: Graph, node: int) -> bool:
    return kind_of(graph[node].type.dtype) == "float"


def with_loss(graph: Graph) -> Graph:
    """The graph with one result: all its float results, times weights that become inputs, added up."""
    builder, parts = Builder(), []
    builder.nodes += graph.nodes
    for output in (each for each in dict.fromkeys(graph.outputs) if is_float(graph, each)):
        shape = graph[output].type.shape
        wide = output if graph[output].type.dtype == "float64" else builder.add("cast", [output], dtype="float64")
        product = builder.add("mul", [wide, builder.add("input", type=TensorType(shape, "float64"), name="weights")])
        parts.append(builder.add("sum", [product], axes=tuple(range(len(shape))), keepdims=False))
    total = parts[0]
    for part in parts[1:]:
        total = builder.add("add", [total, part])
    return builder.finish([total])


def between(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    """Inputs on no grid, where jumps and kinks are. They stay in the range that the program was drawn for."""
    def moved(x: np.ndarray) -> np.ndarray:
        return x * 0.9 + rng.uniform(-0.3, 0.3, x.shape).astype(x.dtype) if x.dtype.kind == "f" else x
    return [moved(x) for x in random_inputs(graph, rng)]


def check_gradient(seed: int) -> tuple[str, str]:
    """``right``, ``wrong``, ``refused: <op>``, ``no float result`` or ``not finite``; and what was seen."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, max_nodes=int(rng.integers(3, 21)), dtypes=DTYPES, max_elements=256)
    if not any(is_float(graph, each) for each in graph.outputs) or not any(is_float(graph, each) for each in graph.inputs):
        return "no float result", ""
    graph = with_loss(graph)
    try:
        derived = gradient(graph)
    except TraceError as error:
        return f"refused: {str(error).partition('the gradient of ')[2].partition(':')[0]}", str(error)
    inputs = between(graph, rng)
    floats = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]
    direction = {i: rng.uniform(-1, 1, inputs[i].shape) for i in floats}
    value, *found = evaluate(derived, inputs, float64=True)
    slope = sum(float(np.sum(g * direction[i])) for i, g in zip(floats, found, strict=True))
    size = sum(float(np.sum(np.abs(g * direction[i]))) for i, g in zip(floats, found, strict=True)) + abs(float(value))

    def at(step: float) -> float:
        moved = [x + step * direction[i] if i in direction else x for i, x in enumerate(inputs)]
        return float(evaluate(graph, moved, float64=True)[0])
    slopes = [(at(step) - at(-step)) / (2 * step) for step in STEPS]
    if not np.isfinite([slope, *slopes]).all():
        return "not finite", ""
    for each, step in zip(slopes, STEPS, strict=True):
        if abs(slope - each) <= 1e-12 + 1e-5 * size + 1e-14 * abs(float(value)) / step:
            return "right", ""
    return "wrong", f"program {seed}: the gradient says {slope!r}, differences say {slopes}\n{graph}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    asked, found = parser.parse_args(arguments), Counter[str]()
    with np.errstate(all="ignore"):
        for seed in range(asked.seed, asked.seed + asked.count):
            verdict, seen = check_gradient(seed)
            found[verdict] += 1
            if verdict == "wrong":
                print(seen, flush=True)
    print(", ".join(f"{count:,} {verdict}" for verdict, count in found.most_common()))
    return int(found["wrong"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
