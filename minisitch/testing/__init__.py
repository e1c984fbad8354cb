"""For tests of a compiler: random programs, inputs for them, and a judge that explains itself.

In:  a source of choices (a NumPy generator, or Hypothesis). Out: graphs, arrays, verdicts.

    graph = random_graph(np.random.default_rng(7))
    check_graph(graph, random_inputs(graph, np.random.default_rng(7)), run)

    @given(st.data())                                   # the same programs, with shrinking
    def test_mine(data):
        graph = data.draw(graphs(max_nodes=8))
        check_graph(graph, data.draw(arrays_for(graph)), run)

Only ``graphs`` and ``arrays_for`` need Hypothesis. They import it when they are called.
"""

from collections.abc import Callable, Sequence, Sized
from typing import Any

import numpy as np

from ..errors import needs
from ..graph import Graph
from ..ops import kind_of
from .choices import from_hypothesis, from_numpy
from .grower import DISCONTINUOUS, DTYPES, SIDES, Grower, input_fact
from .judge import Verdict, judge

__all__ = [
    "DTYPES", "SIDES", "Verdict", "arrays_for", "check_graph", "graphs", "judge", "random_graph",
    "random_inputs", "snippet",
]


def random_graph(rng: np.random.Generator, *, max_nodes: int = 16, dtypes: Sequence[str] = DTYPES,
                 library: bool = True, allow_empty: bool = True, max_elements: int = 4096) -> Graph:
    """A random well-typed program of about ``max_nodes`` nodes at most.

    From 12 nodes on, half of the programs also have rows of another shape with their own
    reductions, and a fifth have rows that one table scales under two indices. ``dtypes`` are those
    of inputs and casts (repeat one to draw it more often). Indices are always int64, and conditions
    bool. ``library=False`` leaves out matmul, cumsum, cumprod, sort, scatter and foreign ufuncs.
    ``allow_empty=False`` leaves out axes without elements.
    """
    needs("random_graph(np.random.default_rng(0))", (rng, np.random.Generator))
    return Grower(from_numpy(rng), dtypes, allow_empty, max_elements).grow(max_nodes, library)


def random_inputs(graph: Graph, rng: np.random.Generator, *, special: bool = False) -> list[np.ndarray]:
    """One array per input: eighths within [-4, 4], integers within [-8, 8].

    In a program without discontinuous operations, one float array in four holds arbitrary floats.
    ``special`` puts NaN, infinities, signed zeros and a subnormal among the floats.
    """
    needs("random_inputs(graph, np.random.default_rng(0))", (graph, Graph), (rng, np.random.Generator))
    found = []
    jumps = any(n.op in DISCONTINUOUS or (n.op == "cast" and kind_of(n.type.dtype) != "float")
                for n in graph.nodes)
    for node in (graph[i] for i in graph.inputs):
        shape, dtype = node.type.shape, node.type.dtype
        fact = input_fact(dtype)
        if kind_of(dtype) != "float":
            found.append(rng.integers(int(fact.low), int(fact.high) + 1, shape).astype(dtype))
            continue
        eighths = jumps or rng.random() < 0.75
        array = rng.integers(-32, 33, shape) / 8 if eighths else rng.uniform(-4, 4, shape)
        array = np.asarray(array).astype(dtype)
        if special:
            least = np.finfo(dtype).smallest_subnormal
            odd = np.array([np.nan, np.inf, -np.inf, -0.0, least, 1.0], dtype=dtype)
            array = np.where(rng.random(shape) < 0.1, rng.choice(odd, shape), array)
        found.append(array)
    return found


# ---------------------------------------------------------------- the same for Hypothesis
def graphs(*, max_nodes: int = 16, dtypes: Sequence[str] = DTYPES, library: bool = True,
           allow_empty: bool = True, max_elements: int = 4096) -> Any:
    """A Hypothesis strategy for the programs of ``random_graph``. Shrinks to few, small nodes."""
    from hypothesis import strategies as st

    @st.composite
    def strategy(draw: Any) -> Graph:
        grower = Grower(from_hypothesis(draw), dtypes, allow_empty, max_elements)
        return grower.grow(max_nodes, library)

    return strategy()


def arrays_for(graph: Graph, *, special: bool = False) -> Any:
    """A Hypothesis strategy for inputs of a graph. Shrinks to a small seed."""
    needs("arrays_for(graph)", (graph, Graph))
    from hypothesis import strategies as st

    return st.integers(0, 2**20).map(
        lambda seed: random_inputs(graph, np.random.default_rng(seed), special=special))


# ---------------------------------------------------------------- checks that show the case
def check_graph(graph: Graph, inputs: Sequence[np.ndarray],
                run: Callable[[Graph, Sequence[np.ndarray]], Sequence[np.ndarray]], *,
                seed: int | None = None) -> None:
    """Run ``run(graph, inputs)`` and compare every output by ``testing.judge``.

    ``seed`` is the one that ``random_inputs`` was given. Raises AssertionError with the verdicts,
    the graph, and a snippet that rebuilds the case.
    """
    needs("check_graph(graph, inputs, run)", (graph, Graph), (inputs, Sized), (run, Callable))
    verdicts = judge(graph, inputs, run(graph, inputs))
    if all(v.ok for v in verdicts):
        return
    wrong = "\n".join(f"output {i}: {v.why}" for i, v in enumerate(verdicts) if not v.ok)
    again = snippet(graph, inputs, seed=seed)
    raise AssertionError(f"{wrong}\n\n{graph}\n\nTo see it again:\n\n{again}")


def snippet(graph: Graph, inputs: Sequence[np.ndarray], *, seed: int | None = None) -> str:
    """Python text that rebuilds a case: its graph, and its inputs from the seed or written out."""
    needs("snippet(graph, inputs)", (graph, Graph), (inputs, Sized))
    text = ["import numpy as np", "from minisitch.trace.parser import parse",
            f'graph = parse("""{graph}""")']
    if seed is not None:
        text += ["from minisitch.testing import random_inputs",
                 f"inputs = random_inputs(graph, np.random.default_rng({seed}))"]
    else:
        text.append(array_texts(inputs))
    return "\n".join(text)


def array_texts(arrays: Sequence[np.ndarray]) -> str:
    """``inputs = [...]``: Python text that rebuilds arrays."""
    lines = [f"    np.array({a.tolist()!r}, dtype={a.dtype.name!r}).reshape({a.shape}),"
             .replace("nan", "np.nan").replace("inf", "np.inf") for a in map(np.asarray, arrays)]
    return "\n".join(["inputs = [", *lines, "]"])
