"""Programs whose every bit is decided, and inputs that tell roundings apart.

In:  ``Choices``, as ``Grower`` takes them. Out: graphs and inputs for which all strategies and targets must agree bit by bit.

Operations are those that IEEE 754 or two's complement decide, on any operands: the ends of every integer type, infinities, NaN,
subnormals, numbers that cancel. Three things are left open and kept out of sight: which zero a maximum of 0.0 and -0.0 is (NumPy's
own answer depends on the length of the array), the sign of a NaN, and integers made of floats that they cannot hold. Reductions are
those whose order does not matter. With ``heavy``, functions such as ``exp`` are drawn too: NumPy's last digits may be others, but
all strategies have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minisitch.graph import Graph, TensorType
from minisitch.ops import kind_of
from minisitch.reference import evaluate
from minisitch.testing.choices import from_numpy
from minisitch.testing.grower import COMPARE, DOMAINS, Fact, Grower

BIT_DTYPES = ("float32",) * 4 + ("float64", "float64", "float16", "float16", "int64", "int64", "int32", "int8", "int16", "uint8",
                                 "uint32", "uint64", "bool")
_UNARY = ("neg", "abs", "sqrt", "neg", "sign", "floor", "ceil", "trunc", "rint")
_HEAVY = ("exp", "tanh", "exp", "tanh", "log", "erf", *DOMAINS)
_PAIRS = ("add", "sub", "mul", "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "mod", "floor_divide", "fmod",
          "copysign")
_INTEGER_PAIRS = ("add", "sub", "mul", "add", "sub", "mul", "maximum", "minimum", "and", "or", "xor", "shift_left", "shift_right",
                  "mod", "floor_divide", "fmod")
_EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "max", "min"}


class BitGrower(Grower):
    """A ``Grower`` that keeps no value in range: nothing is known of values, and nothing need be."""

    def __init__(self, choices: Any, max_elements: int, heavy: bool) -> None:
        super().__init__(choices, BIT_DTYPES, True, max_elements)
        self.heavy = heavy
        self.shown: dict[int, int] = {}  # a value that may be either zero -> itself plus 0.0, which is one

    def put(self, op: str, args: Sequence[int], low: float, high: float, grid: int | None, **attrs: Any) -> int:
        value = self.builder.add(op, args, **attrs)
        self.facts.append(Fact(-1.0, 1.0, 0))
        if op in _EITHER_ZERO and kind_of(self.type(value).dtype) == "float":
            self.shown[value] = self.plain("add", value, self.constant(self.type(value), 0.0))
        return self.shown.get(value, value)

    def grow(self, max_nodes: int, library: bool) -> Graph:
        """All readers of a value that may be either zero read its sum with 0.0 instead."""
        graph, sums = super().grow(max_nodes, library), {*self.shown.values()}
        nodes = (n if n.id in sums else replace(n, args=tuple(self.shown.get(a, a) for a in n.args)) for n in graph.nodes)
        return Graph(tuple(nodes), tuple(self.shown.get(value, value) for value in graph.outputs))

    def plain(self, op: str, *args: int, **attrs: Any) -> int:
        return self.put(op, args, 0, 0, 0, **attrs)

    def clamp(self, value: int, low: float, high: float) -> int:
        return value

    def unary(self, name: str, x: int) -> int:
        return self.plain(name, x)

    def binary(self, name: str, x: int, y: int) -> int:
        return self.plain(name, x, y)

    def step_map(self, x: int) -> None:
        kind = kind_of(self.type(x).dtype)
        if kind == "bool":
            self.plain("not", x)
        elif kind == "int":
            self.plain(self.choices.pick(("neg", "abs", "sign", "not")), x)
        elif self.chance(10):
            self.plain(self.choices.pick(("isnan", "isinf", "isfinite")), x)
        else:
            self.plain(self.choices.pick(_HEAVY if self.heavy and self.chance(60) else _UNARY), x)

    def combine(self, x: int, y: int) -> int:
        dtype = self.type(x).dtype
        kind = kind_of(dtype)
        if kind == "bool":
            return self.plain(self.choices.pick(("and", "or", "xor", "eq", "ne")), x, y)
        if self.chance(12):
            return self.plain(self.choices.pick(COMPARE), x, y)
        if kind == "float" and self.chance(15):  # products that cancel, or nearly
            return self.plain("sub", self.plain("mul", x, x), self.plain("mul", y, y))
        if kind == "int" and self.chance(8):
            return self.plain("power", x, self.constant(self.type(x), self.choices.pick((2, 3, 5))))
        name = self.choices.pick(_INTEGER_PAIRS if kind == "int" else _PAIRS)
        if name == "copysign":
            y = self.plain("select", self.plain("eq", y, y), y, self.constant(self.type(y), 1))
        return self.plain(name, x, y)

    def fold(self, x: int, axes: tuple[int, ...], keepdims: bool) -> int:
        """A reduction whose order does not matter."""
        type = self.type(x)
        kind, attrs = kind_of(type.dtype), {"axes": axes, "keepdims": keepdims}
        if kind == "bool":
            return self.plain(self.choices.pick(("any", "all")), x, **attrs)
        empty = 0 in type.shape
        if kind == "int":
            return self.plain(self.choices.pick(("sum", "prod") if empty else ("sum", "prod", "max", "min")), x, **attrs)
        if not empty and (type.dtype == "float16" or self.chance(60)):
            return self.plain(self.choices.pick(("max", "min")), x, **attrs)
        ones = self.plain("cast", self.plain("gt", x, self.constant(type, 0.5)), dtype=type.dtype)
        return self.plain("sum", ones, **attrs)

    def condition(self, shape: tuple[int, ...]) -> int:
        x = self.some("int", "float")
        if x is not None and self.type(x).shape == shape:
            return self.plain(self.choices.pick(COMPARE), x, self.constant(self.type(x), self.choices.pick((0, 1, 2))))
        return super().condition(shape)

    def step_cast(self, x: int) -> None:
        source, target = self.type(x).dtype, self.choices.pick(self.dtypes)
        if kind_of(source) == "float" and kind_of(target) == "int":
            least = 0 if target.startswith("u") else -100
            x = self.plain("fmin", self.plain("fmax", x, self.constant(self.type(x), least)), self.constant(self.type(x), 100))
        self.plain("cast", x, dtype=target)

    def step_source(self, x: int) -> None:
        shape, dtype = self.type(self.choices.integer(0, len(self.facts) - 1)).shape, self.choices.pick(self.dtypes[:-1])
        if shape and self.chance(60):
            self.iota(shape, self.choices.integer(0, len(shape) - 1), dtype)
        else:
            self.constant(TensorType(shape, dtype), self.choices.pick((1, 2, 0, 3, 0.1) if dtype.startswith("f") else (1, 2, 0, 3)))


def random_bit_graph(rng: np.random.Generator, *, max_nodes: int = 16, max_elements: int = 256, heavy: bool = False) -> Graph:
    """A random program; all strategies and targets must agree on its every bit, with ``heavy`` all strategies on one target."""
    return BitGrower(from_numpy(rng), max_elements, heavy).grow(max_nodes, library=False)


def random_bit_inputs(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    """One array per input: the ends of its type, zeros, infinities, NaN, subnormals, and few others, so that values repeat.

    Half of the inputs of a type seen before are the same array, so that products of them cancel.
    """
    found: list[np.ndarray] = []
    for t in (graph[i].type for i in graph.inputs):
        same = [x for x in found if (x.shape, x.dtype.name) == (t.shape, t.dtype)]
        again = same and rng.random() < 0.5
        found.append(same[0].copy() if again else rng.choice(_odd_values(t.dtype, rng), t.shape).astype(t.dtype))
    return found


def _odd_values(dtype: str, rng: np.random.Generator) -> np.ndarray:
    if dtype == "bool":
        return np.array([False, True])
    if kind_of(dtype) == "int":
        info = np.iinfo(dtype)
        middle = 1 << info.bits // 2
        ends = np.array([info.max, info.max - 1, info.min, info.min + 1, 0, 1, 2, 3, 7, middle - 1, info.max // 3], dtype)
        return np.concatenate([ends, rng.integers(info.min, info.max, 5, dtype, endpoint=True)])
    f = np.finfo(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, f.max, -f.max, f.smallest_normal, f.smallest_subnormal, 1, 1 + f.eps])
    plain = [0.1, 0.2, 0.3, 0.7, 1 / 3, 2.0, 3.0, -1.5, 1e3, *rng.standard_normal(6), *(10.0 ** rng.uniform(-4, 4, 4))]
    return np.concatenate([rng.permutation(special)[:4], plain, plain]).astype(dtype)


def different_bits(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """What differs in types, shapes or any bit; empty if nothing does. All NaNs are one, all zeros are not."""
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"output {k}: {b.dtype}{list(b.shape)} expected, got {a.dtype}{list(a.shape)}"
        equal = np.asarray(a == b)
        if a.dtype.kind == "f":
            equal = (equal & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
        if not equal.all():
            at = tuple(int(i) for i in np.argwhere(~equal)[0])
            return (f"output {k}: {np.count_nonzero(~equal)} of {equal.size} elements differ; "
                    f"at {at}: got {a[at]!r}, expected {b[at]!r}")
    return ""


def check_bits(graph: Graph, inputs: Sequence[np.ndarray], run: Callable[[str], Sequence[np.ndarray]],
               strategies: Sequence[str]) -> dict[str, str]:
    """How the values of ``run(strategy)`` differ from NumPy's, by strategy.

    A program with functions such as ``exp`` is compared with its values under the first strategy instead.
    """
    heavy = any(node.op in DOMAINS and node.op != "sqrt" for node in graph.nodes)
    expected = run(strategies[0]) if heavy else evaluate(graph, inputs)
    differences = {strategy: different_bits(run(strategy), expected) for strategy in strategies[heavy:]}
    return {strategy: why for strategy, why in differences.items() if why}
