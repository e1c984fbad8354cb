"""How long strategies plan large graphs: processor seconds, from the simplified graph to the plan.

    python -m benchmarks.planning [strategy ...] [--device v100]

Two programs of some ten thousand nodes: layers of gelu, layernorm and softmax one after the other, and nothing but softmaxes. A
test holds that planning grows with the graph and no faster (``tests/growth.py``); seconds are this script's, since a busy machine
takes more of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minisitch import STRATEGIES, get_device, trace
from minisitch.fuse import fuse
from minisitch.simplify import simplify

from .results import surroundings, table

LAYERS, SOFTMAXES = 300, 1430


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layers(x: Any, scale: Any, shift: Any) -> Any:
    """A GELU, a layernorm, a softmax and an addition, again and again."""
    for _ in range(LAYERS):
        h = x + 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
        h = (h - np.mean(h, -1, keepdims=True)) / np.sqrt(np.var(h, -1, keepdims=True) + 1e-5) * scale + shift
        x = softmax(h) + x
    return x


def softmaxes(x: Any) -> Any:
    """Nothing but softmaxes."""
    for _ in range(SOFTMAXES):
        x = softmax(x)
    return x


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "layers": (layers, [(32, 64), (64,), (64,)]), "softmaxes": (softmaxes, [(64, 128)])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("strategies", nargs="*", default=sorted(STRATEGIES))
    parser.add_argument("--device", default="v100")
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = [("program", "nodes", "strategy", "kernels", "processor seconds")]
    for name, (program, shapes) in PROGRAMS.items():
        graph = simplify(trace(program, [np.zeros(shape, np.float32) for shape in shapes]).graph)
        for strategy in options.strategies:
            began = time.process_time()
            plan = fuse(graph, strategy, get_device(options.device))
            rows.append((name, f"{len(graph):,}", strategy, str(len(plan.kernels)), f"{time.process_time() - began:.1f}"))
    print(surroundings(), table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
