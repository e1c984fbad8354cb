"""Grows well-typed graphs whose values stay meaningful.

In:  ``Choices``. Out: a ``Graph``.

Every value carries a *fact*: the interval it lies in. If every float32 run must agree on it to the
last bit, the fact also has the grid 2^-k it lies on. ``exp`` gets a bounded operand, and ``log`` a
positive one. Discontinuous operations (floor, ``<``, casts to integers, sort) are drawn only on
exact values, on which no rounding can make two correct runs disagree. Each ``step_*`` method adds
one idea of one to six nodes. Nothing that is drawn is thrown away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Graph, Shape, TensorType
from ..ops import OPS, kind_of
from ..trace.builder import Builder
from .choices import Choices

ROOMY = 12  # from this many nodes on, a program may have rows of another shape
SIDES = (1, 2, 3, 7, 31, 32, 33, 123)
# repetition is weight
DTYPES = ("float32",) * 6 + ("float64", "float16", "int32", "int64", "uint8", "bool")


# ---------------------------------------------------------------- facts
@dataclass(frozen=True)
class Fact:
    """A value's interval. ``grid`` is k if all its elements are exact multiples of 2^-k."""

    low: float
    high: float
    grid: int | None = None

    @property
    def reach(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


def input_fact(dtype: str) -> Fact:
    if kind_of(dtype) == "float":
        return Fact(-4.0, 4.0, 3)
    return Fact(0 if dtype == "bool" or dtype.startswith("u") else -8, 1 if dtype == "bool" else 8, 0)


def _room(dtype: str) -> float:
    """The largest magnitude a generated value of this dtype may reach."""
    if kind_of(dtype) == "float":
        return 2e3 if dtype == "float16" else 1e6
    return 1 if dtype == "bool" else min(2.0**20, float(np.iinfo(dtype).max))


# Where a float function is finite and not steep. Operands are clamped into it.
DOMAINS = {
    "exp": (-30, 6), "expm1": (-30, 6), "log": (0.125, 1e6), "log1p": (-0.875, 1e6),
    "log2": (0.125, 1e6), "log10": (0.125, 1e6), "sqrt": (0.125, 1e6), "sin": (-50, 50),
    "cos": (-50, 50), "tan": (-1.25, 1.25), "arcsin": (-0.875, 0.875), "arccos": (-0.875, 0.875),
    "sinh": (-6, 6), "cosh": (-6, 6), "arccosh": (1.25, 1e6), "arctanh": (-0.875, 0.875),
    "arctan": (-1e6, 1e6), "tanh": (-1e6, 1e6), "erf": (-1e6, 1e6), "arcsinh": (-1e6, 1e6),
}
_JUMPS = ("floor", "ceil", "trunc", "rint", "sign", "isnan", "isinf", "isfinite")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
DISCONTINUOUS = {*_JUMPS, *COMPARE, "mod", "floor_divide", "fmod", "argsort"}
_STEPS = {"map": 7, "pair": 7, "against_reduction": 4, "reduce": 3, "select": 3, "cast": 2,
          "reshape": 2, "transpose": 2, "slice": 2, "concatenate": 1, "update": 1, "updates": 3,
          "gather": 1, "source": 1}
_LIBRARY_STEPS = {"matmul": 1, "scan": 1, "sort": 1, "scatter": 1, "ufunc": 1}
WAYS = ("whole", "part", "stride", "back", "head", "one")  # of a window along an axis


# ---------------------------------------------------------------- random graphs
class Grower:
    """Grows one well-typed graph."""

    def __init__(self, choices: Choices, dtypes: Sequence[str], allow_empty: bool,
                 max_elements: int) -> None:
        self.choices, self.pick, self.integer = choices, choices.pick, choices.integer
        self.dtypes, self.allow_empty, self.max_elements = tuple(dtypes), allow_empty, max_elements
        self.builder = Builder()
        self.facts: list[Fact] = []
        self.most = 0  # nodes asked for

    # ------------------------------------------------ questions about values
    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent  # shrinks to False

    def type(self, value: int) -> TensorType:
        return self.builder.type(value)

    def is_exact(self, value: int) -> bool:
        return self.facts[value].grid is not None

    def shape(self) -> Shape:
        sides: list[int] = []
        for _ in range(self.pick((2, 1, 2, 3, 2, 3, 1, 4, 2, 3, 2, 0))):
            room = self.max_elements // int(np.prod(sides, dtype=int))
            sides.append(self.pick([s for s in (*SIDES, *SIDES[3:]) if s <= room]))
        if sides and self.allow_empty and self.chance(4):
            sides[self.integer(0, len(sides) - 1)] = 0
        return tuple(sides)

    def some(self, *kinds: str, exact: bool = False) -> int | None:
        """A value of one of these kinds, half the time the newest. None if there is none."""
        fits = [i for i, f in enumerate(self.facts)
                if kind_of(self.type(i).dtype) in kinds and (f.grid is not None or not exact)]
        return None if not fits else fits[-1] if self.chance(50) else self.pick(fits)

    # ------------------------------------------------ adding nodes
    def put(self, op: str, args: Sequence[int], low: float, high: float, grid: int | None,
            **attrs: Any) -> int:
        """Append a node with its fact. A value is exact only as far as its mantissa reaches."""
        value = self.builder.add(op, args, **attrs)
        dtype = self.type(value).dtype
        if kind_of(dtype) == "float":
            if grid is not None and max(abs(low), abs(high)) * 2.0**grid * float(np.finfo(dtype).eps) > 1:
                grid = None
        else:
            grid = 0
            top = 1.0 if dtype == "bool" else float(np.iinfo(dtype).max)
            bottom = 0.0 if dtype == "bool" else float(np.iinfo(dtype).min)
            if low < bottom or high > top:
                low, high = bottom, top  # wraps around
        self.facts.append(Fact(float(low), float(high), grid))
        return value

    def move(self, op: str, args: Sequence[int], moved: Sequence[int] = (), **attrs: Any) -> int:
        """Append a node whose elements are all those of its operands ``moved``, else ``args``."""
        facts = [self.facts[a] for a in moved or args]
        grids = [f.grid for f in facts]
        grid = None if None in grids else max(g for g in grids if g is not None)
        low, high = min(f.low for f in facts), max(f.high for f in facts)
        return self.put(op, args, low, high, grid, **attrs)

    def input(self, shape: Shape, dtype: str) -> int:
        fact = input_fact(dtype)
        name, type = "abcdefgh"[len(self.facts):][:1], TensorType(shape, dtype)
        name = name or f"i{len(self.facts)}"
        return self.put("input", (), fact.low, fact.high, fact.grid, type=type, name=name)

    def constant(self, type: TensorType, value: float) -> int:
        as_its = {"bool": bool, "float": float}.get(kind_of(type.dtype), int)
        grid = 10 if float(value * 1024).is_integer() else None
        for shorter in (3, 0):
            grid = shorter if float(value * 2**shorter).is_integer() else grid
        return self.put("constant", (), value, value, grid, type=type, value=as_its(value))

    def like(self, x: int, value: float) -> int:
        return self.constant(self.type(x), value)

    def stretch(self, value: int, shape: Shape) -> int:
        """Broadcast as NumPy does: pad axes on the left, then repeat sides of 1."""
        old = self.type(value).shape
        padded = (1,) * (len(shape) - len(old)) + old
        if padded != old:
            value = self.move("reshape", (value,), shape=padded)
        return value if padded == shape else self.move("broadcast", (value,), shape=shape)

    def clamp(self, value: int, low: float, high: float) -> int:
        """The value kept within [low, high]. That is exact, and users write it often."""
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
        """One map of one operand. The operand is first clamped into the function's domain."""
        if name in DOMAINS:
            low, high = DOMAINS[name]
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
        """One map of two operands of one type. The caller keeps results in range."""
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
        for i in self.computed():
            other = self.type(i)
            if other.dtype == mine.dtype:
                try:
                    shape = np.broadcast_shapes(mine.shape, other.shape)
                except ValueError:
                    continue
                if int(np.prod(shape, dtype=int)) <= self.max_elements and len(shape) <= 4:
                    fits.append((i, shape))
        y, shape = self.pick(fits or [(x, mine.shape)])
        if y == x and not self.chance(40):
            values = {"bool": (0, 1), "int": (2, 1, 3), "float": (0.5, 2, 1, -0.25, 0.1)}[kind_of(mine.dtype)]
            return x, self.constant(mine, self.pick(values))
        return self.stretch(x, shape), self.stretch(y, shape)

    def combine(self, x: int, y: int) -> int:
        """A map of two operands that suits their dtype and stays in range."""
        dtype = self.type(x).dtype
        if dtype == "bool":
            return self.put(self.pick(("and", "or", "xor", "eq", "ne")), (x, y), 0, 1, 0)
        exact = self.is_exact(x) and self.is_exact(y)
        if exact and "bool" in self.dtypes and self.chance(12):
            return self.binary(self.pick(COMPARE), x, y)
        if self.chance(30):
            return self._heavy_pair(x, y) if kind_of(dtype) == "float" else self._integer_pair(x, y)
        name = self.pick(("add", "sub", "mul", "maximum", "minimum"))
        a, b = self.facts[x].reach, self.facts[y].reach
        if (a * b if name == "mul" else a + b) > _room(dtype) and not dtype.startswith("u"):
            name = "maximum"
        return self.binary(name, x, y)

    def _heavy_pair(self, x: int, y: int) -> int:
        """A division, a power or the like, with operands for which it is defined."""
        type, fact = self.type(x), self.facts[x]
        name = self.pick(("div", "div", "power", "arctan2", "hypot", "mod", "floor_divide", "fmod",
                          "fmax", "fmin", "copysign"))
        if name in ("fmax", "fmin"):
            return self.binary(name, x, y)
        if name == "power":
            base = self.clamp(self.unary("abs", x), 0.125, 4)
            power = self.constant(type, self.pick((2, 0.5, 3, -1)))
            return self.put("power", (base, power), 0.01, 70, None)
        if name in ("mod", "floor_divide", "fmod"):
            if not self.is_exact(x):
                name = "div"
            else:
                y = self.constant(type, self.pick((2, 3, 0.5, -2)))
                reach = 3.0 if name != "floor_divide" else 2 * fact.reach + 1
                return self.put(name, (x, y), -reach, reach, max(fact.grid or 0, 1))
        if name == "hypot":
            x, y = self.clamp(x, -1e3, 1e3), self.clamp(y, -1e3, 1e3)
            return self.put("hypot", (x, y), 0, self.facts[x].reach + self.facts[y].reach + 0.1, None)
        y = self.binary("add", self.unary("abs", self.clamp(y, -1e3, 1e3)), self.constant(type, 1))
        if name == "copysign":
            y = self.unary("neg", y) if self.chance(50) else y
            return self.put("copysign", (x, y), -fact.reach, fact.reach, fact.grid)
        if name == "arctan2":
            return self.put("arctan2", (x, y), -1.6, 1.6, None)
        reach = 1.01 * fact.reach
        return self.put("div", (x, y), 0 if fact.low >= 0 else -reach, reach, None)

    def _integer_pair(self, x: int, y: int) -> int:
        type, fact = self.type(x), self.facts[x]
        signed = not type.dtype.startswith("u")
        name = self.pick(("mod", "floor_divide", "and", "or", "xor", "shift_left", "shift_right",
                          "power", "fmod"))
        if name in ("mod", "floor_divide", "fmod"):
            y = self.constant(type, self.pick((3, 2, 7) + ((-3,) if signed else ())))
            return self.put(name, (x, y), -fact.reach - 7 if signed else 0, fact.reach + 7, 0)
        if name in ("and", "or", "xor"):
            reach = 2.0 ** np.ceil(np.log2(max(self.facts[x].reach, self.facts[y].reach) + 1))
            return self.put(name, (x, y), -reach if signed else 0, reach, 0)
        if name == "power":
            x = self.clamp(self.put("abs", (x,), 0, fact.reach, 0), 0, 5)
            return self.put(name, (x, self.constant(type, 2)), 0, 25, 0)
        if name == "shift_left":
            x = self.clamp(x, 0, 15)
        by = self.constant(type, self.integer(0, 3))
        return self.put(name, (x, by), min(self.facts[x].low, 0),
                        self.facts[x].high * (8 if name == "shift_left" else 1), 0)

    def step_map(self, x: int) -> None:
        kind = kind_of(self.type(x).dtype)
        if kind == "bool":
            self.put("not", (x,), 0, 1, 0)
        elif kind == "int":
            unsigned = self.type(x).dtype.startswith("u")
            self.unary(self.pick(("abs", "sign") if unsigned else ("neg", "abs", "sign")), x)
        elif self.is_exact(x) and self.facts[x].grid in (0, 3) and self.chance(5):
            if "bool" in self.dtypes:  # a value that cannot be a zero of either sign
                self.unary("signbit", self.binary("sub", x, self.like(x, 0.0625)))
        elif self.is_exact(x) and self.chance(15):
            name = self.pick(_JUMPS)
            if OPS[name].result != "bool" or "bool" in self.dtypes:
                self.unary(name, x)
        else:
            names = "exp", "tanh", "neg", "abs", "exp", "tanh", "sqrt", "log", *DOMAINS
            self.unary(self.pick(names), x)

    def step_pair(self, x: int) -> None:
        self.combine(*self.partner(x))

    def fold(self, x: int, axes: Shape, keepdims: bool) -> int:
        """A reduction over these axes that stays in range."""
        type, fact = self.type(x), self.facts[x]
        attrs: dict[str, Any] = {"axes": axes, "keepdims": keepdims}
        count = int(np.prod([type.shape[a] for a in axes], dtype=int))
        if type.dtype == "bool":
            return self.put(self.pick(("any", "all")), (x,), 0, 1, 0, **attrs)
        name = self.pick(("sum", "max", "sum", "min", "prod"))
        if name == "prod" and 1 <= count <= 16:
            x = self.clamp(x, 0 if type.dtype.startswith("u") else -1, 1)
            return self.put("prod", (x,), -1, 1, 0 if self.facts[x].grid == 0 else None, **attrs)
        if name in ("max", "min") and count:
            return self.move(name, (x,), **attrs)
        if count * fact.reach > _room(type.dtype) and not type.dtype.startswith("u"):
            if kind_of(type.dtype) == "int":
                return self.move("max", (x,), **attrs)
            x = self.binary("mul", x, self.constant(type, 2.0**-int(np.ceil(np.log2(count)))))
        fact = self.facts[x]
        low, high = min(count * fact.low, 0), max(count * fact.high, 0)
        return self.put("sum", (x,), low, high, fact.grid, **attrs)

    def axes(self, rank: int) -> Shape:
        """Some axes, the last one most often."""
        if rank == 0 or self.chance(3):
            return ()
        some = tuple(a for a in range(rank) if self.chance(50)) if self.chance(50) else ()
        return some or (rank - 1,)

    def step_reduce(self, x: int) -> None:
        self.fold(x, self.axes(self.type(x).rank), self.chance(50))

    def step_against_reduction(self, x: int) -> None:
        """``x - max(x)``, ``x / sum(x)``: one value read twice, the reason for stitching."""
        folded = self.fold(x, self.axes(self.type(x).rank), True)
        self.combine(x, self.stretch(folded, self.type(x).shape))

    def condition(self, shape: Shape) -> int:
        """A bool value of this shape: a comparison of exact values, or a triangle of indices."""
        x = self.some("int", "float", exact=True)
        if x is not None and self.type(x).shape == shape:
            other = self.like(x, self.pick((0, 1, 2)))
            return self.binary(self.pick(COMPARE), x, other)
        if not shape:
            return self.constant(TensorType((), "bool"), self.pick((0, 1)))
        rows = self.iota(shape, self.integer(0, len(shape) - 1))
        columns = self.iota(shape, len(shape) - 1)
        return self.binary("ge", rows, columns if self.chance(60) else self.like(rows, 2))

    def iota(self, shape: Shape, axis: int, dtype: str = "int64") -> int:
        type = TensorType(shape, dtype)
        return self.put("iota", (), 0, max(shape[axis] - 1, 0), 0, type=type, axis=axis)

    def step_select(self, x: int) -> None:
        x, y = self.partner(x)
        self.move("select", (self.condition(self.type(x).shape), x, y), moved=(x, y))

    def step_cast(self, x: int) -> None:
        source, target = self.type(x).dtype, self.pick(self.dtypes)
        kind = kind_of(target)
        if kind_of(source) == "float" and kind != "float" and not self.is_exact(x):
            target, kind = "float32", "float"
        if source != "bool" and kind != "bool":
            low = 0.0 if target.startswith("u") else -_room(target)
            x = self.clamp(x, max(low, -_room(source)), min(_room(target), _room(source)))
        fact = self.facts[x]
        low, high = (0.0, 1.0) if kind == "bool" else (fact.low, fact.high)
        self.put("cast", (x,), low, high, fact.grid if kind == "float" else 0, dtype=target)

    def step_source(self, x: int) -> None:
        shape = self.type(self.integer(0, len(self.facts) - 1)).shape
        others = [d for d in self.dtypes if d not in ("bool", "float16", "uint8")]
        dtype = self.pick(others or ["float32"])
        if shape and self.chance(60):
            self.iota(shape, self.integer(0, len(shape) - 1), dtype)
        else:
            self.constant(TensorType(shape, dtype), self.pick((1, 2, 0, 3)))

    # ------------------------------------------------ steps that only move
    def step_reshape(self, x: int) -> None:
        shape = list(self.type(x).shape)
        way = self.pick(("merge", "split", "add", "flat"))
        if way == "merge" and len(shape) >= 2:
            axis = self.integer(0, len(shape) - 2)
            shape[axis:axis + 2] = [shape[axis] * shape[axis + 1]]
        elif way == "split" and shape and len(shape) < 4:
            axis = self.integer(0, len(shape) - 1)
            factor = self.pick([f for f in (2, 3, 4, 8, 11, 1) if shape[axis] % f == 0])
            shape[axis:axis + 1] = [factor, shape[axis] // factor]
        elif way == "add" and len(shape) < 4:
            shape.insert(self.integer(0, len(shape)), 1)
        else:
            shape = [self.type(x).size]
        self.move("reshape", (x,), shape=tuple(shape))

    def step_transpose(self, x: int) -> None:
        left = list(range(self.type(x).rank))
        perm = tuple(left.pop(self.integer(0, len(left) - 1)) for _ in range(len(left)))
        self.move("transpose", (x,), perm=perm[::-1])

    def window(self, shape: Shape, ways: Sequence[str] = WAYS) -> tuple[Shape, Shape, Shape]:
        """Start, size and step of a slice that stays inside.

        For each axis: all of it, a part, a stride, backwards, the first elements, or one element.
        """
        parts = []
        for n in shape:
            way = self.pick(ways) if n else "whole"
            first, step = (n - 1, -1) if way == "back" else (0, 1)
            size = n
            if way == "head":
                size = self.integer(1, n)
            elif way == "one":
                first, size = self.integer(0, n - 1), 1
            elif way == "part":
                first, step = self.integer(0, n - 1), 1
                size = self.integer(0 if self.allow_empty and self.chance(4) else 1, n - first)
            elif way == "stride":
                first, step = self.integer(0, min(n - 1, 2)), self.integer(2, 3)
                size = -(-(n - first) // step)
            parts.append((first, size, step))
        return tuple(p[0] for p in parts), tuple(p[1] for p in parts), tuple(p[2] for p in parts)

    def step_slice(self, x: int) -> None:
        start, size, step = self.window(self.type(x).shape)
        self.move("slice", (x,), start=start, size=size, step=step)

    def step_update(self, x: int) -> None:
        self.updated(x, *self.window(self.type(x).shape))

    def step_updates(self, x: int) -> None:
        """``c[:2, 0] += a; c[:3, 0] += b``: windows that overlap, read after each write."""
        for _ in range(self.integer(2, 6)):
            if len(self.facts) < self.most + 6:
                ways = "head", "one", "head", "part", "stride"
                x = self.updated(x, *self.window(self.type(x).shape, ways))

    def updated(self, x: int, start: Shape, size: Shape, step: Shape) -> int:
        """``x[window] += y``, or another operation."""
        ascending = (a + (n - 1) * min(s, 0) for a, n, s in zip(start, size, step, strict=True))
        value = self.move("slice", (x,), start=tuple(ascending), size=size, step=tuple(map(abs, step)))
        if self.type(x).dtype != "bool":
            _, y = self.partner(value)
            y = y if self.type(y).shape == size else self.like(value, 2)
            value = self.combine(value, y)
        if self.type(value).dtype != self.type(x).dtype:
            return x
        return self.move("update", (x, value), start=start, step=step)

    def step_concatenate(self, x: int) -> None:
        mine = self.type(x)
        if not mine.rank:
            return
        axis = self.integer(0, mine.rank - 1)
        def across(type: TensorType) -> tuple[str, int, Shape]:
            return type.dtype, type.rank, type.shape[:axis] + type.shape[axis + 1:]

        fits = [i for i in range(len(self.facts)) if across(self.type(i)) == across(mine)]
        parts = [x] + [self.pick(fits) for _ in range(self.integer(1, 2))]
        if sum(self.type(p).size for p in parts) <= self.max_elements:
            self.move("concatenate", parts, axis=axis)

    def indices(self, x: int) -> tuple[Shape, list[int]] | None:
        """One or two axes of ``x``, and integer coordinates along them, wrapped with ``mod``."""
        shape = self.type(x).shape
        axes = [a for a in range(len(shape)) if 0 < shape[a] <= 127]
        index = self.some("int")
        if not axes:
            return None
        axis = self.pick(axes)
        if index is None or self.chance(40):
            index = self.iota((self.pick(SIDES[:5]),), 0)
            index = self.binary("mul", index, self.like(index, self.pick((1, 2, 5))))
        size = self.type(index).size * self.type(x).size // shape[axis]
        if size > self.max_elements or self.type(index).rank + len(shape) > 5:
            return None
        several = [(axis, index)]
        if len(axes) > 1 and self.chance(30):
            other = self.pick([a for a in axes if a != axis])
            several.append((other, self.put("abs", (index,), 0, 127, 0)))
        wrapped = [self.put("mod", (i, self.like(i, shape[a])), 0, shape[a] - 1, 0) for a, i in several]
        return tuple(a for a, _ in several), wrapped

    def step_gather(self, x: int) -> None:
        """Rows by integer index."""
        found = self.indices(x)
        if found is not None:
            self.move("gather", (x, *found[1]), moved=(x,), axes=found[0])

    # ------------------------------------------------ library steps
    def step_matmul(self, x: int) -> None:
        """A matrix by its own transpose, in the order that makes the smaller product."""
        type, rank = self.type(x), self.type(x).rank
        if kind_of(type.dtype) != "float" or type.dtype == "float16" or rank < 2:
            return
        if min(type.shape[-2:]) * type.size > max(type.shape[-2:]) * self.max_elements:
            return
        x = self.clamp(x, -4, 4)
        y = self.move("transpose", (x,), perm=(*range(rank - 2), rank - 1, rank - 2))
        first, second = (x, y) if type.shape[-2] <= type.shape[-1] else (y, x)
        reach = 16.0 * self.type(first).shape[-1]
        grid = self.facts[x].grid
        self.put("matmul", (first, second), -reach, reach, None if grid is None else 2 * grid)

    def step_scan(self, x: int) -> None:
        """A running sum or product."""
        type, fact = self.type(x), self.facts[x]
        if type.dtype == "bool" or not type.rank:
            return
        axis = self.integer(0, type.rank - 1)
        count = type.shape[axis]
        if count * fact.reach <= _room(type.dtype) and self.chance(70):
            low, high = min(count * fact.low, fact.low), max(count * fact.high, fact.high)
            self.put("cumsum", (x,), low, high, fact.grid, axis=axis)
        else:
            x = self.clamp(x, 0 if type.dtype.startswith("u") else -1, 1)
            self.put("cumprod", (x,), -1, 1, 0 if self.facts[x].grid == 0 else None, axis=axis)

    def step_sort(self, x: int) -> None:
        if not self.is_exact(x) or not self.type(x).rank or self.type(x).dtype == "bool":
            return
        axis = self.integer(0, self.type(x).rank - 1)
        if "int64" in self.dtypes and self.chance(30):
            self.put("argsort", (x,), 0, max(self.type(x).shape[axis] - 1, 0), 0, axis=axis)
        else:
            self.move("sort", (x,), axis=axis)

    def step_scatter(self, x: int) -> None:
        """Rows read by index, changed, and written or added back.

        Equal indices write equal values.
        """
        found, type, fact = self.indices(x), self.type(x), self.facts[x]
        if found is None or type.dtype == "bool":
            return
        axes, indices = found
        rows = self.move("gather", (x, *indices), moved=(x,), axes=axes)
        count = 1 + self.type(indices[0]).size
        if self.chance(50) and count * fact.reach <= _room(type.dtype) and not type.dtype.startswith("u"):
            low, high = count * min(fact.low, 0), count * max(fact.high, 0)
            self.put("scatter", (x, rows, *indices), low, high, fact.grid, axes=axes, mode="add")
        else:
            rows = self.binary("maximum", rows, self.like(rows, 1))
            self.put("scatter", (x, rows, *indices), fact.low, max(fact.high, 1), fact.grid,
                     axes=axes, mode="set")

    def step_ufunc(self, x: int) -> None:
        """Any other NumPy function, called as it is."""
        if kind_of(self.type(x).dtype) == "float":
            name = self.pick(("cbrt", "deg2rad"))
            most = self.facts[x].reach + 1
            self.put("ufunc", (x,), -most, most, None, name=name, output=0)

    # ------------------------------------------------ the whole
    def begin(self) -> None:
        """One to three inputs that fit each other."""
        shape = self.shape()
        self.input(shape, self.pick(self.dtypes))
        for _ in range(self.integer(0, 2)):
            column = (*shape[:-1], 1)[:max(len(shape), 1)]
            way = self.pick(("same", "row", "column", "other"))
            other = {"same": shape, "row": shape[-1:], "column": column}.get(way)
            dtype = self.pick(self.dtypes) if self.chance(30) else self.type(0).dtype
            self.input(self.shape() if other is None else other, dtype)

    def outputs(self) -> Shape:
        """Up to three values that nothing reads, and now and then an input, or one value twice."""
        read = {a for node in self.builder.nodes for a in node.args}
        loose = [n.id for n in self.builder.nodes if n.id not in read and n.kind != "source"]
        found = loose[-self.integer(1, 3):] or [len(self.facts) - 1]
        if self.chance(5):
            found.append(self.integer(0, len(self.facts) - 1))
        return tuple(found)

    def beside(self, tables: bool) -> int:
        """Rows of another number and length, and their reduction.

        With ``tables`` one table scales them under two indices.
        """
        sides = [n for n in SIDES if n * n <= self.max_elements]
        rows, cols, length = (self.pick(sides) for _ in range(3))
        dtype = self.pick([d for d in self.dtypes if kind_of(d) == "float"] or ["float32"])
        x = y = self.input((rows, cols), dtype)
        if tables:
            table = self.input((length, self.pick((1, cols))), dtype)
            picked = (self.stretch(self.picked(table, rows), (rows, cols)) for _ in range(2))
            x, y = (self.binary("mul", x, by) for by in picked)
        return self.combine(x, self.stretch(self.fold(y, (1,), True), (rows, cols)))

    def picked(self, table: int, rows: int) -> int:
        """``rows`` rows of a table, under an index that is an input."""
        length = self.type(table).shape[0]
        at = self.input((rows,), "int64")
        at = self.put("mod", (at, self.like(at, length)), 0, length - 1, 0)
        return self.move("gather", (table, at), moved=(table,), axes=(0,))

    def computed(self) -> list[int]:
        """All values but constants."""
        return [n.id for n in self.builder.nodes if n.op != "constant"]

    def newest(self) -> int:
        """The last computed value. Using it makes chains more often than separate values."""
        return next((n.id for n in reversed(self.builder.nodes) if n.kind != "source"), 0)

    def grow(self, max_nodes: int, library: bool) -> Graph:
        """Add steps until the graph has the number of nodes that was drawn."""
        self.begin()
        self.most = max_nodes
        weights = _STEPS | (_LIBRARY_STEPS if library else {})
        steps = [name for name, weight in weights.items() for _ in range(weight)]
        wanted = max(self.integer(1, max_nodes), self.integer(1, max_nodes))
        for _ in range(max_nodes):
            if len(self.facts) >= wanted:
                break
            x = self.newest() if self.chance(70) else self.pick(self.computed())
            getattr(self, f"step_{self.pick(steps)}")(x)
        outputs = self.outputs()
        others = [t for t in (False, True, False) if max_nodes >= ROOMY and self.chance(20)]
        return self.builder.finish((*outputs, *map(self.beside, others)))
