"""What a test of a compiler needs: random programs, inputs for them, and a judge that explains itself.

In:  a source of choices (a NumPy generator, or Hypothesis). Out: graphs, arrays, NumPy functions.

    graph = random_graph(np.random.default_rng(7))
    check_graph(graph, random_inputs(graph, np.random.default_rng(7)), run)

    @given(st.data())                                   # the same programs, with shrinking
    def test_mine(data):
        graph = data.draw(graphs(max_nodes=8))
        check_graph(graph, data.draw(arrays_for(graph)), run)

Programs are built the way a user would, only from values that exist, so nothing is drawn and
thrown away. Every value carries a *fact*: the interval it lies in and, where every float32 run
must agree to the last bit, the grid 2^-k it lies on. Facts keep programs meaningful: ``exp`` gets
a bounded operand, ``log`` a positive one, and operations that jump (floor, ``<``, casts to
integers, indices, sort) are drawn only on exact values, where a rounding cannot make two honest
runs disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .graph import Builder, Graph, TensorType
from .ops import OPS, kind_of
from .reference import judge

SIDES = (1, 2, 3, 7, 31, 32, 33, 123)
DTYPES = ("float32",) * 6 + ("float64", "float16", "int32", "int64", "uint8", "bool")  # repetition is weight


# ---------------------------------------------------------------- where choices come from
class Choices(Protocol):
    """What a generator may ask: one implementation draws from NumPy, one from Hypothesis."""

    def integer(self, low: int, high: int) -> int: ...  # both ends included

    def pick(self, options: Sequence[Any]) -> Any: ...


class FromNumpy:
    """Choices from a seeded generator: fast, for thousands of programs from a command line."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]


class FromHypothesis:
    """Choices that Hypothesis records and shrinks, towards low integers and first options."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        from hypothesis import strategies as st
        return self.draw(st.integers(low, high))

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]


# ---------------------------------------------------------------- what is known of a value
@dataclass(frozen=True)
class Fact:
    """A value's interval, and k where all its elements are exact multiples of 2^-k."""

    low: float
    high: float
    grid: int | None = None

    @property
    def reach(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


def _input_fact(dtype: str) -> Fact:
    if kind_of(dtype) == "float":
        return Fact(-4.0, 4.0, 3)
    return Fact(0 if dtype == "bool" or dtype.startswith("u") else -8, 1 if dtype == "bool" else 8, 0)


def _room(dtype: str) -> float:
    """The largest magnitude a generated value of this dtype may reach."""
    if kind_of(dtype) == "float":
        return 2e3 if dtype == "float16" else 1e6
    return 1 if dtype == "bool" else min(2.0**20, float(np.iinfo(dtype).max))


# Where a float function is finite and not steep; operands are clamped into it.
_DOMAINS = {
    "exp": (-30, 6), "expm1": (-30, 6), "log": (0.125, 1e6), "log1p": (-0.875, 1e6), "log2": (0.125, 1e6),
    "log10": (0.125, 1e6), "sqrt": (0.125, 1e6), "sin": (-50, 50), "cos": (-50, 50), "tan": (-1.25, 1.25),
    "arcsin": (-0.875, 0.875), "arccos": (-0.875, 0.875), "sinh": (-6, 6), "cosh": (-6, 6),
    "arccosh": (1.25, 1e6), "arctanh": (-0.875, 0.875), "arctan": (-1e6, 1e6), "tanh": (-1e6, 1e6),
    "erf": (-1e6, 1e6), "arcsinh": (-1e6, 1e6),
}
_JUMPS = ("floor", "ceil", "trunc", "rint", "sign", "isnan", "isinf", "isfinite")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_DISCONTINUOUS = {*_JUMPS, *_COMPARE, "mod", "floor_divide", "fmod", "argsort"}
_STEPS = {"map": 7, "pair": 7, "against_reduction": 4, "reduce": 3, "select": 3, "cast": 2, "reshape": 2,
          "transpose": 2, "slice": 2, "concatenate": 1, "update": 1, "gather": 2, "source": 1}
_LIBRARY_STEPS = {"matmul": 1, "cumsum": 1, "sort": 1}


# ---------------------------------------------------------------- random graphs
class Grower:
    """Grows one well-typed graph; each ``step_*`` method adds one idea of one to six nodes."""

    def __init__(self, choices: Choices, dtypes: Sequence[str], allow_empty: bool, max_elements: int) -> None:
        self.choices, self.dtypes = choices, tuple(dtypes)
        self.allow_empty, self.max_elements = allow_empty, max_elements
        self.builder = Builder()
        self.facts: list[Fact] = []

    # ------------------------------------------------ small questions
    def chance(self, percent: int) -> bool:
        return self.choices.integer(0, 99) >= 100 - percent  # shrinks to False

    def type(self, value: int) -> TensorType:
        return self.builder.type(value)

    def is_exact(self, value: int) -> bool:
        return self.facts[value].grid is not None

    def shape(self) -> tuple[int, ...]:
        sides: list[int] = []
        for _ in range(self.choices.pick((2, 1, 2, 3, 2, 3, 1, 4, 0))):
            room = self.max_elements // int(np.prod(sides, dtype=int)) if sides else self.max_elements
            sides.append(self.choices.pick([s for s in SIDES if s <= room]))
        if sides and self.allow_empty and self.chance(4):
            sides[self.choices.integer(0, len(sides) - 1)] = 0
        return tuple(sides)

    def some(self, kinds: Sequence[str] = ("bool", "int", "float"), exact: bool = False) -> int | None:
        """A value of one of these kinds, the newest half the time; None if there is none."""
        fits = [i for i, f in enumerate(self.facts)
                if kind_of(self.type(i).dtype) in kinds and (f.grid is not None or not exact)]
        if not fits:
            return None
        return fits[-1] if self.chance(50) else self.choices.pick(fits)

    # ------------------------------------------------ adding nodes
    def put(self, op: str, args: Sequence[int], low: float, high: float, grid: int | None, **attrs: Any) -> int:
        """Append a node with what is known of it; exactness ends where the mantissa does."""
        value = self.builder.add(op, args, **attrs)
        dtype = self.type(value).dtype
        if kind_of(dtype) == "float":
            if grid is not None and max(abs(low), abs(high)) * 2.0**grid * np.finfo(dtype).eps > 1:
                grid = None
        else:
            grid = 0
            top = 1.0 if dtype == "bool" else float(np.iinfo(dtype).max)
            bottom = 0.0 if dtype == "bool" else float(np.iinfo(dtype).min)
            if low < bottom or high > top:
                low, high = bottom, top  # wraps around
        self.facts.append(Fact(float(low), float(high), grid))
        return value

    def move(self, op: str, args: Sequence[int], **attrs: Any) -> int:
        """Append a node whose elements are all elements of its operands ``args``."""
        facts = [self.facts[a] for a in args]
        grids = [f.grid for f in facts]
        grid = None if None in grids else max(g for g in grids if g is not None)
        return self.put(op, args, min(f.low for f in facts), max(f.high for f in facts), grid, **attrs)

    def input(self, shape: tuple[int, ...], dtype: str) -> int:
        fact = _input_fact(dtype)
        name = "abcdefgh"[len(self.facts) % 8]
        return self.put("input", (), fact.low, fact.high, fact.grid, type=TensorType(shape, dtype), name=name)

    def constant(self, type: TensorType, value: float) -> int:
        plain = bool(value) if type.dtype == "bool" else float(value) if kind_of(type.dtype) == "float" else int(value)
        grid = 10 if float(value * 1024).is_integer() else None
        for shorter in (3, 0):
            grid = shorter if float(value * 2**shorter).is_integer() else grid
        return self.put("constant", (), value, value, grid, type=type, value=plain)

    def stretch(self, value: int, shape: tuple[int, ...]) -> int:
        """Broadcast as NumPy does: pad axes on the left, then repeat sides of 1."""
        old = self.type(value).shape
        padded = (1,) * (len(shape) - len(old)) + old
        if padded != old:
            value = self.move("reshape", (value,), shape=padded)
        return value if padded == shape else self.move("broadcast", (value,), shape=shape)

    def clamp(self, value: int, low: float, high: float) -> int:
        """The value kept within [low, high]: exact, and a favourite idiom of users."""
        fact, type = self.facts[value], self.type(value)
        if kind_of(type.dtype) == "float" and fact.low < low and low == -high and self.chance(30):
            value = self.unary("tanh", value)
            return value if high >= 1 else self.binary("mul", value, self.constant(type, high))
        if fact.low < low:
            value = self.binary("maximum", value, self.constant(type, low))
        if self.facts[value].high > high:
            value = self.binary("minimum", value, self.constant(type, high))
        return value

    def unary(self, name: str, x: int) -> int:
        """One map of one operand, which is moved into the function's domain first."""
        if name in _DOMAINS:
            low, high = _DOMAINS[name]
            x = self.clamp(x, low, min(high, _room(self.type(x).dtype)))
        fact = self.facts[x]
        if OPS[name].result == "bool":
            return self.put(name, (x,), 0, 1, 0)
        samples = np.append(np.linspace(fact.low, fact.high, 65), np.clip(0.0, fact.low, fact.high))
        with np.errstate(all="ignore"):
            found = np.asarray(OPS[name].numpy(samples), dtype=float)
        grid = fact.grid if name in ("neg", "abs") else 0 if name in _JUMPS else None
        pad = 0.0 if grid is not None or name in ("neg", "abs") else 0.01 * float(np.ptp(found)) + 1e-3
        positive = name in ("exp", "cosh", "sqrt", "arccos") and float(found.min()) > 0
        low = float(found.min()) * 0.9 if positive else float(found.min()) - pad
        return self.put(name, (x,), low, float(found.max()) + pad, grid)

    def binary(self, name: str, x: int, y: int) -> int:
        """One map of two operands of one type; the caller keeps results in range."""
        a, b = self.facts[x], self.facts[y]
        grid = None if a.grid is None or b.grid is None else max(a.grid, b.grid)
        if OPS[name].result == "bool":
            return self.put(name, (x, y), 0, 1, 0)
        ends: dict[str, Callable[[float, float], float]] = {
            "add": lambda p, q: p + q, "sub": lambda p, q: p - q, "mul": lambda p, q: p * q,
            "maximum": max, "minimum": min, "fmax": max, "fmin": min}
        if name == "mul" and grid is not None:
            grid = (a.grid or 0) + (b.grid or 0)
        corners = [ends[name](p, q) for p in (a.low, a.high) for q in (b.low, b.high)]
        low = 0.0 if name == "mul" and x == y and a.low <= 0 <= a.high else min(corners)
        return self.put(name, (x, y), low, max(corners), grid)

    # ------------------------------------------------ steps
    def partner(self, x: int) -> tuple[int, int]:
        """``x`` and a second value of its dtype, both stretched to one shape."""
        mine = self.type(x)
        fits = []
        for i in range(len(self.facts)):
            other = self.type(i)
            if other.dtype == mine.dtype:
                try:
                    shape = np.broadcast_shapes(mine.shape, other.shape)
                except ValueError:
                    continue
                if int(np.prod(shape, dtype=int)) <= self.max_elements and len(shape) <= 4:
                    fits.append((i, shape))
        y, shape = self.choices.pick(fits)
        if y == x and not self.chance(40):
            values = {"bool": (0, 1), "int": (2, 1, 3), "float": (0.5, 2, 1, -0.25, 0.1)}[kind_of(mine.dtype)]
            return x, self.constant(mine, self.choices.pick(values))
        return self.stretch(x, shape), self.stretch(y, shape)

    def combine(self, x: int, y: int) -> int:
        """A map of two operands that suits their dtype and stays in range."""
        dtype = self.type(x).dtype
        if dtype == "bool":
            return self.put(self.choices.pick(("and", "or", "xor", "eq", "ne")), (x, y), 0, 1, 0)
        exact = self.is_exact(x) and self.is_exact(y)
        if exact and "bool" in self.dtypes and self.chance(12):
            return self.binary(self.choices.pick(_COMPARE), x, y)
        if self.chance(30):
            return self._heavy_pair(x, y) if kind_of(dtype) == "float" else self._integer_pair(x, y)
        name = self.choices.pick(("add", "sub", "mul", "maximum", "minimum"))
        a, b = self.facts[x].reach, self.facts[y].reach
        if (a * b if name == "mul" else a + b) > _room(dtype) and not dtype.startswith("u"):
            name = "maximum"
        return self.binary(name, x, y)

    def _heavy_pair(self, x: int, y: int) -> int:
        """Divisions, powers and their kin, each with operands it is defined on."""
        type, fact = self.type(x), self.facts[x]
        name = self.choices.pick(("div", "div", "power", "arctan2", "hypot", "mod", "floor_divide", "fmod",
                                  "fmax", "fmin"))
        if name in ("fmax", "fmin"):
            return self.binary(name, x, y)
        if name == "power":
            base = self.clamp(self.unary("abs", x), 0.125, 4)
            return self.put("power", (base, self.constant(type, self.choices.pick((2, 0.5, 3, -1)))), 0.01, 70, None)
        if name in ("mod", "floor_divide", "fmod"):
            if not self.is_exact(x):
                name = "div"
            else:
                y = self.constant(type, self.choices.pick((2, 3, 0.5, -2)))
                reach = 3.0 if name != "floor_divide" else 2 * fact.reach + 1
                return self.put(name, (x, y), -reach, reach, max(fact.grid or 0, 1))
        if name == "hypot":
            x, y = self.clamp(x, -1e3, 1e3), self.clamp(y, -1e3, 1e3)
            return self.put("hypot", (x, y), 0, self.facts[x].reach + self.facts[y].reach + 0.1, None)
        below = self.unary("abs", self.clamp(y, -1e3, 1e3))
        y = self.binary("add", below, self.constant(type, 1))
        if name == "arctan2":
            return self.put("arctan2", (x, y), -1.6, 1.6, None)
        reach = 1.01 * fact.reach
        return self.put("div", (x, y), 0 if fact.low >= 0 else -reach, reach, None)

    def _integer_pair(self, x: int, y: int) -> int:
        type, fact = self.type(x), self.facts[x]
        signed = not type.dtype.startswith("u")
        name = self.choices.pick(("mod", "floor_divide", "and", "or", "xor", "shift_left", "shift_right", "power",
                                  "fmod"))
        if name in ("mod", "floor_divide", "fmod"):
            y = self.constant(type, self.choices.pick((3, 2, 7) + ((-3,) if signed else ())))
            return self.put(name, (x, y), -fact.reach - 7 if signed else 0, fact.reach + 7, 0)
        if name in ("and", "or", "xor"):
            reach = 2.0 ** np.ceil(np.log2(max(self.facts[x].reach, self.facts[y].reach) + 1))
            return self.put(name, (x, y), -reach if signed else 0, reach, 0)
        if name == "power":
            x = self.clamp(self.put("abs", (x,), 0, fact.reach, 0), 0, 5)
            return self.put(name, (x, self.constant(type, 2)), 0, 25, 0)
        if name == "shift_left":
            x = self.clamp(x, 0, 15)
        return self.put(name, (x, self.constant(type, self.choices.integer(0, 3))), min(self.facts[x].low, 0),
                        self.facts[x].high * (8 if name == "shift_left" else 1), 0)

    def step_map(self) -> None:
        x = self.some()
        assert x is not None
        kind = kind_of(self.type(x).dtype)
        if kind == "bool":
            self.put("not", (x,), 0, 1, 0)
        elif kind == "int":
            unsigned = self.type(x).dtype.startswith("u")
            self.unary(self.choices.pick(("abs", "sign") if unsigned else ("neg", "abs", "sign")), x)
        elif self.is_exact(x) and self.chance(15):
            name = self.choices.pick(_JUMPS)
            if OPS[name].result != "bool" or "bool" in self.dtypes:
                self.unary(name, x)
        else:
            self.unary(self.choices.pick(("exp", "tanh", "neg", "abs", *_DOMAINS)), x)

    def step_pair(self) -> None:
        x = self.some()
        assert x is not None
        self.combine(*self.partner(x))

    def fold(self, x: int, axes: tuple[int, ...], keepdims: bool) -> int:
        """A reduction over these axes that stays in range."""
        type, fact = self.type(x), self.facts[x]
        attrs = {"axes": axes, "keepdims": keepdims}
        count = int(np.prod([type.shape[a] for a in axes], dtype=int))
        if type.dtype == "bool":
            return self.put(self.choices.pick(("any", "all")), (x,), 0, 1, 0, **attrs)
        name = self.choices.pick(("sum", "max", "sum", "min", "prod"))
        if name == "prod" and 1 <= count <= 16:
            x = self.clamp(x, 0 if type.dtype.startswith("u") else -1, 1)
            return self.put("prod", (x,), -1, 1, 0 if self.facts[x].grid == 0 else None, **attrs)
        if name in ("max", "min") and count:
            return self.move(name, (x,), **attrs)
        if count * fact.reach > _room(type.dtype) and not type.dtype.startswith("u"):
            if kind_of(type.dtype) == "int":
                return self.move("max", (x,), **attrs)
            bits = int(np.ceil(np.log2(count)))
            x = self.binary("mul", x, self.constant(type, 2.0**-bits))
        fact = self.facts[x]
        return self.put("sum", (x,), min(count * fact.low, 0), max(count * fact.high, 0), fact.grid, **attrs)

    def axes(self, rank: int) -> tuple[int, ...]:
        """Some axes, the last one most often."""
        if rank == 0:
            return ()
        if self.chance(50):
            return tuple(a for a in range(rank) if self.chance(50))
        return (rank - 1,)

    def step_reduce(self) -> None:
        x = self.some()
        assert x is not None
        self.fold(x, self.axes(self.type(x).rank), self.chance(50))

    def step_against_reduction(self) -> None:
        """``x - max(x)``, ``x / sum(x)``: the diamond that stitching is about."""
        x = self.some()
        assert x is not None
        self.combine(x, self.stretch(self.fold(x, self.axes(self.type(x).rank), True), self.type(x).shape))

    def condition(self, shape: tuple[int, ...]) -> int:
        """A bool value of this shape: a comparison of exact values, or a triangle of indices."""
        x = self.some(("int", "float"), exact=True)
        if x is not None and self.type(x).shape == shape:
            other = self.constant(self.type(x), self.choices.pick((0, 1, 2)))
            return self.binary(self.choices.pick(_COMPARE), x, other)
        if not shape:
            return self.constant(TensorType((), "bool"), self.choices.pick((0, 1)))
        rows, columns = self.iota(shape, self.choices.integer(0, len(shape) - 1)), self.iota(shape, len(shape) - 1)
        return self.binary("ge", rows, columns if self.chance(60) else self.constant(self.type(rows), 2))

    def iota(self, shape: tuple[int, ...], axis: int, dtype: str = "int64") -> int:
        return self.put("iota", (), 0, max(shape[axis] - 1, 0), 0, type=TensorType(shape, dtype), axis=axis)

    def step_select(self) -> None:
        x = self.some()
        assert x is not None
        x, y = self.partner(x)
        condition = self.condition(self.type(x).shape)
        facts = (self.facts[x], self.facts[y])
        grid = None if facts[0].grid is None or facts[1].grid is None else max(facts[0].grid, facts[1].grid)
        self.put("select", (condition, x, y), min(f.low for f in facts), max(f.high for f in facts), grid)

    def step_cast(self) -> None:
        x = self.some()
        assert x is not None
        source, target = self.type(x).dtype, self.choices.pick(self.dtypes)
        kind = kind_of(target)
        if kind_of(source) == "float" and kind != "float" and not self.is_exact(x):
            target, kind = "float32", "float"
        if source != "bool" and kind != "bool":
            low = 0.0 if target.startswith("u") else -_room(target)
            x = self.clamp(x, max(low, -_room(source)), min(_room(target), _room(source)))
        fact = self.facts[x]
        low, high = (0.0, 1.0) if kind == "bool" else (fact.low, fact.high)
        self.put("cast", (x,), low, high, fact.grid if kind == "float" else 0, dtype=target)

    def step_source(self) -> None:
        shape = self.type(self.choices.integer(0, len(self.facts) - 1)).shape
        dtype = self.choices.pick([d for d in self.dtypes if d not in ("bool", "float16", "uint8")] or ["float32"])
        if shape and self.chance(60):
            self.iota(shape, self.choices.integer(0, len(shape) - 1), dtype)
        else:
            self.constant(TensorType(shape, dtype), self.choices.pick((1, 2, 0, 3)))

    # ------------------------------------------------ steps that only move
    def step_reshape(self) -> None:
        x = self.some()
        assert x is not None
        shape = list(self.type(x).shape)
        way = self.choices.pick(("merge", "split", "add", "flat"))
        if way == "merge" and len(shape) >= 2:
            axis = self.choices.integer(0, len(shape) - 2)
            shape[axis:axis + 2] = [shape[axis] * shape[axis + 1]]
        elif way == "split" and shape and len(shape) < 4:
            axis = self.choices.integer(0, len(shape) - 1)
            factor = self.choices.pick([f for f in (2, 3, 4, 8, 11, 1) if shape[axis] % f == 0])
            shape[axis:axis + 1] = [factor, shape[axis] // factor]
        elif way == "add" and len(shape) < 4:
            shape.insert(self.choices.integer(0, len(shape)), 1)
        else:
            shape = [self.type(x).size]
        self.move("reshape", (x,), shape=tuple(shape))

    def step_transpose(self) -> None:
        x = self.some()
        assert x is not None
        left = list(range(self.type(x).rank))
        perm = tuple(left.pop(self.choices.integer(0, len(left) - 1)) for _ in range(len(left)))
        self.move("transpose", (x,), perm=perm[::-1])

    def window(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Start, size and step of a slice that stays inside: whole axes, parts, strides, backwards."""
        parts = []
        for n in shape:
            way = self.choices.pick(("whole", "part", "stride", "back")) if n else "whole"
            first, step = (0, 1) if way == "whole" else (n - 1, -1)
            size = n
            if way == "part":
                first, step = self.choices.integer(0, n - 1), 1
                least = 0 if self.allow_empty and self.chance(4) else 1
                size = self.choices.integer(least, n - first)
            elif way == "stride":
                first, step = self.choices.integer(0, min(n - 1, 2)), self.choices.integer(2, 3)
                size = -(-(n - first) // step)
            parts.append((first, size, step))
        return tuple(p[0] for p in parts), tuple(p[1] for p in parts), tuple(p[2] for p in parts)

    def step_slice(self) -> None:
        x = self.some()
        assert x is not None
        start, size, step = self.window(self.type(x).shape)
        self.move("slice", (x,), start=start, size=size, step=step)

    def step_update(self) -> None:
        x = self.some()
        assert x is not None
        start, size, step = self.window(self.type(x).shape)
        ascending = tuple(a if s > 0 else a + (n - 1) * s for a, n, s in zip(start, size, step, strict=True))
        value = self.move("slice", (x,), start=ascending, size=size, step=tuple(map(abs, step)))
        if self.type(x).dtype != "bool":
            value = self.combine(value, self.constant(self.type(value), 2))
        if self.type(value).dtype == self.type(x).dtype:
            self.move("update", (x, value), start=start, step=step)

    def step_concatenate(self) -> None:
        x = self.some()
        assert x is not None
        mine = self.type(x)
        if not mine.rank:
            return
        axis = self.choices.integer(0, mine.rank - 1)
        def across(shape: tuple[int, ...]) -> tuple[int, ...]:
            return shape[:axis] + shape[axis + 1:]

        fits = [i for i in range(len(self.facts)) if self.type(i).dtype == mine.dtype and self.type(i).rank == mine.rank
                and across(self.type(i).shape) == across(mine.shape)]
        parts = [x] + [self.choices.pick(fits) for _ in range(self.choices.integer(1, 2))]
        if sum(self.type(p).size for p in parts) <= self.max_elements:
            self.move("concatenate", parts, axis=axis)

    def step_gather(self) -> None:
        """Rows by integer index; indices are wrapped into range with ``mod``."""
        x = self.some()
        assert x is not None
        shape = self.type(x).shape
        axes = [a for a in range(len(shape)) if 0 < shape[a] <= 127]
        if not axes:
            return
        axis = self.choices.pick(axes)
        index = self.some(("int",))
        if index is None or self.chance(40):
            index = self.iota((self.choices.pick(SIDES[:5]),), 0)
            index = self.binary("mul", index, self.constant(self.type(index), self.choices.pick((1, 2, 5))))
        size = self.type(index).size * self.type(x).size // shape[axis]
        if size > self.max_elements or self.type(index).rank + len(shape) > 5:
            return
        several = [(axis, index)]
        if len(axes) > 1 and self.chance(30):
            several.append((self.choices.pick([a for a in axes if a != axis]), self.put("abs", (index,), 0, 127, 0)))
        wrapped = [self.put("mod", (i, self.constant(self.type(i), shape[a])), 0, shape[a] - 1, 0) for a, i in several]
        fact = self.facts[x]
        self.put("gather", (x, *wrapped), fact.low, fact.high, fact.grid, axes=tuple(a for a, _ in several))

    # ------------------------------------------------ library steps
    def step_matmul(self) -> None:
        x = self.some(("float",))
        if x is None or self.type(x).rank < 2 or self.type(x).dtype == "float16":
            return
        rank, shape = self.type(x).rank, self.type(x).shape
        if min(shape[-2:]) * self.type(x).size > max(shape[-2:]) * self.max_elements:
            return
        x = self.clamp(x, -4, 4)
        y = self.move("transpose", (x,), perm=(*range(rank - 2), rank - 1, rank - 2))
        first, second = (x, y) if shape[-2] <= shape[-1] else (y, x)
        reach = 16.0 * self.type(first).shape[-1]
        grid = self.facts[x].grid
        self.put("matmul", (first, second), -reach, reach, None if grid is None else 2 * grid)

    def step_cumsum(self) -> None:
        x = self.some(("int", "float"))
        if x is None or not self.type(x).rank:
            return
        axis = self.choices.integer(0, self.type(x).rank - 1)
        count, fact = self.type(x).shape[axis], self.facts[x]
        if count * fact.reach <= _room(self.type(x).dtype):
            low, high = min(count * fact.low, fact.low), max(count * fact.high, fact.high)
            self.put("cumsum", (x,), low, high, fact.grid, axis=axis)

    def step_sort(self) -> None:
        x = self.some(("int", "float"), exact=True)
        if x is None or not self.type(x).rank:
            return
        axis = self.choices.integer(0, self.type(x).rank - 1)
        if "int64" in self.dtypes and self.chance(30):
            self.put("argsort", (x,), 0, max(self.type(x).shape[axis] - 1, 0), 0, axis=axis)
        else:
            self.move("sort", (x,), axis=axis)

    # ------------------------------------------------ the whole
    def begin(self) -> None:
        """One to three inputs that fit each other."""
        shape = self.shape()
        self.input(shape, self.choices.pick(self.dtypes))
        for _ in range(self.choices.integer(0, 2)):
            way = self.choices.pick(("same", "row", "column", "other"))
            other = {"same": shape, "row": shape[-1:], "column": (*shape[:-1], 1)[:max(len(shape), 1)]}.get(way)
            self.input(self.shape() if other is None else other, self.choices.pick(self.dtypes))

    def outputs(self) -> tuple[int, ...]:
        """Up to three values that nothing reads, and now and then an odd one: an input, one twice."""
        read = {a for node in self.builder.nodes for a in node.args}
        loose = [n.id for n in self.builder.nodes if n.id not in read and n.kind != "source"]
        found = loose[-self.choices.integer(1, 3):] or [len(self.facts) - 1]
        if self.chance(5):
            found.append(self.choices.integer(0, len(self.facts) - 1))
        return tuple(found)


def _grow(choices: Choices, max_nodes: int, dtypes: Sequence[str], library: bool, allow_empty: bool,
          max_elements: int) -> Graph:
    grower = Grower(choices, dtypes, allow_empty, max_elements)
    grower.begin()
    steps = [name for name, weight in (_STEPS | (_LIBRARY_STEPS if library else {})).items() for _ in range(weight)]
    wanted = max(choices.integer(1, max_nodes), choices.integer(1, max_nodes))
    for _ in range(max_nodes):
        if len(grower.facts) >= wanted:
            break
        getattr(grower, f"step_{choices.pick(steps)}")()
    return grower.builder.finish(grower.outputs())


def random_graph(rng: np.random.Generator, *, max_nodes: int = 16, dtypes: Sequence[str] = DTYPES, library: bool = True,
                 allow_empty: bool = True, max_elements: int = 4096) -> Graph:
    """A random well-typed program of about ``max_nodes`` nodes at most.

    ``dtypes`` are those of inputs and casts (repeat one to draw it more often); indices are
    int64 and conditions bool all the same. ``library=False`` leaves out matmul, cumsum and sort;
    ``allow_empty=False`` axes without elements.
    """
    return _grow(FromNumpy(rng), max_nodes, dtypes, library, allow_empty, max_elements)


def random_inputs(graph: Graph, rng: np.random.Generator, *, special: bool = False) -> list[np.ndarray]:
    """One array per input: eighths within [-4, 4], integers within [-8, 8].

    One float array in four is of any floats instead, where the program has no operation that jumps.
    ``special`` sprinkles NaN, infinities, signed zeros and a subnormal over the floats.
    """
    found = []
    jumps = any(n.op in _DISCONTINUOUS or (n.op == "cast" and kind_of(n.type.dtype) != "float") for n in graph.nodes)
    for node in (graph[i] for i in graph.inputs):
        shape, dtype = node.type.shape, node.type.dtype
        fact = _input_fact(dtype)
        if kind_of(dtype) != "float":
            found.append(rng.integers(int(fact.low), int(fact.high) + 1, shape).astype(dtype))
            continue
        array = rng.integers(-32, 33, shape) / 8 if jumps or rng.random() < 0.75 else rng.uniform(-4, 4, shape)
        array = np.asarray(array).astype(dtype)
        if special:
            odd = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).smallest_subnormal, 1.0], dtype=dtype)
            array = np.where(rng.random(shape) < 0.1, rng.choice(odd, shape), array)
        found.append(array)
    return found


# ---------------------------------------------------------------- the same for Hypothesis
def graphs(*, max_nodes: int = 16, dtypes: Sequence[str] = DTYPES, library: bool = True, allow_empty: bool = True,
           max_elements: int = 4096) -> Any:
    """A Hypothesis strategy for the programs of ``random_graph``; shrinks to few, small nodes."""
    from hypothesis import strategies as st

    @st.composite
    def strategy(draw: Any) -> Graph:
        return _grow(FromHypothesis(draw), max_nodes, dtypes, library, allow_empty, max_elements)

    return strategy()


def arrays_for(graph: Graph, *, special: bool = False) -> Any:
    """A Hypothesis strategy for inputs of a graph; shrinks to a small seed."""
    from hypothesis import strategies as st

    return st.integers(0, 2**20).map(lambda seed: random_inputs(graph, np.random.default_rng(seed), special=special))


# ---------------------------------------------------------------- the judge, with a way back
def check_graph(graph: Graph, inputs: Sequence[np.ndarray],
                run: Callable[[Graph, Sequence[np.ndarray]], Sequence[np.ndarray]], *, seed: int | None = None) -> None:
    """Run ``run(graph, inputs)`` and hold every output to ``reference.judge``.

    Raises AssertionError with the verdicts, the graph, and a snippet that rebuilds the case;
    ``seed`` is the one that ``random_inputs`` was given.
    """
    verdicts = judge(graph, inputs, run(graph, inputs))
    if all(v.ok for v in verdicts):
        return
    wrong = "\n".join(f"output {i}: {v.why}" for i, v in enumerate(verdicts) if not v.ok)
    raise AssertionError(f"{wrong}\n\n{graph}\n\nTo see it again:\n\n{snippet(graph, inputs, seed=seed)}")


def snippet(graph: Graph, inputs: Sequence[np.ndarray], *, seed: int | None = None) -> str:
    """Python text that rebuilds a case: the graph from its program, inputs from the seed or written out."""
    text = ["import numpy as np", "from minisitch.graph import parse", f'graph = parse("""{graph}""")']
    if seed is not None:
        text += ["from minisitch.testing import random_inputs",
                 f"inputs = random_inputs(graph, np.random.default_rng({seed}))"]
    else:
        text += ["inputs = [",
                 *(f"    np.array({a.tolist()!r}, dtype={a.dtype.name!r}).reshape({a.shape}),".replace("nan", "np.nan")
                   .replace("inf", "np.inf") for a in map(np.asarray, inputs)), "]"]
    return "\n".join(text)
