"""Random NumPy functions, as users write them.

In:  ``Choices``. Out: ``NumPyProgram``: the text, the function it defines, and inputs.

A program grows line by line. Each line is run at once on the real inputs, so shapes are known. A
line whose result would leave the safe range puts it through ``tanh``.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from minisitch.testing import array_texts, judge
from minisitch.testing.choices import Choices, from_hypothesis, from_numpy
from minisitch.trace import flatten, trace

# {x} {y}: values; {a}: an axis of x; {n}: elements of x's last axis. Tried and true idioms.
ELEMENTWISE = (
    "np.tanh({x})", "np.maximum({x}, 0)", "{x} * 0.5 + 1", "np.sqrt({x} * {x} + 1)",
    "1 / (1 + np.exp(-np.abs({x})))", "np.where({x} > 0, {x}, 0.25 * {x})", "np.log1p(np.abs({x}))",
    "np.clip({x}, -1, 1)", "{x} ** 2", "-{x}", "abs({x})",
    "0.5 * {x} * (1 + np.tanh(0.8 * ({x} + 0.04 * {x} ** 3)))", "np.exp(np.minimum({x}, 1))", "np.square({x})",
    "np.sin({x}) * np.cos({x})", "np.float32(0.3) * {x}", "({x} > 0) * {x}", "np.reciprocal(np.abs({x}) + 1)",
)
ROWWISE = (
    "{x} - np.mean({x}, axis={a}, keepdims=True)", "np.exp({x} - np.max({x}, axis={a}, keepdims=True))",
    "{x} / (np.sum(np.abs({x}), axis={a}, keepdims=True) + 1)", "{x}.sum(axis={a})", "np.mean({x}, axis={a})",
    "({x} - {x}.mean({a}, keepdims=True)) / np.sqrt({x}.var({a}, keepdims=True) + 1)", "{x}.max(axis={a})",
    "{x} * np.min({x}, axis={a}, keepdims=True)", "np.where(np.arange({n}) % 2 == 0, {x}, 0)",
    "np.sum({x} * {x})", "np.where(np.tri({m}, {n}, dtype=bool), {x}, -1)",
)
MOVES = (
    "{x}.T", "{x}.reshape(-1)", "{x}[::2]", "{x}[..., ::-1]", "{x}[1:]", "{x}[None]", "{x}[..., None]",
    "np.flip({x}, {a})", "np.concatenate([{x}, -{x}], axis={a})", "np.stack([{x}, {x} + 1])",
    "np.swapaxes({x}, 0, -1)", "np.expand_dims({x}, {a})", "np.broadcast_to({x}, (2,) + {x}.shape)",
    "{x}[np.arange(len({x})) // 2]", "{x}[-1]", "np.roll({x}, 1, axis={a})",
)
PAIRS = ("{x} + {y}", "{x} * {y}", "{x} - {y}", "np.maximum({x}, {y})", "{x} / (np.abs({y}) + 1)", "np.where({x} > 0, {x}, {y})")
LIBRARY = ("np.cumsum({x}, axis={a})", "{x} @ {x}.T", "np.sort({x}, axis={a})", "np.cbrt({x})")
SHAPES = ((3,), (2, 3), (7, 33), (31, 32), (2, 3, 7), (1, 123), (4, 1), (33,))


@dataclass(frozen=True)
class NumPyProgram:
    """A NumPy function as text, with inputs to call it on."""

    source: str
    inputs: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        """Python text that defines the function and its inputs."""
        return f"import numpy as np\n\n{self.source}\n{array_texts(self.inputs)}\n"

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function that the text defines. Tracebacks and ``inspect`` find its lines."""
        filename = f"<program {hash(self.source):x}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(keepends=True), filename)
        scope: dict[str, Any] = {"np": np}
        exec(compile(self.source, filename, "exec"), scope)
        return scope["program"]


def random_program(rng: np.random.Generator, *, max_lines: int = 8, library: bool = True) -> NumPyProgram:
    """A random NumPy function of up to ``max_lines`` lines, with inputs.

    The inputs are float32 eighths within [-4, 4].
    """
    return grow_program(from_numpy(rng), max_lines, library)


def grow_program(choices: Choices, max_lines: int, library: bool) -> NumPyProgram:
    """The generator behind ``random_program`` and ``programs``."""
    rng = np.random.default_rng(choices.integer(0, 2**20))
    shape = choices.pick(SHAPES)
    shapes = [shape, *(choices.pick((shape, shape[-1:], (1,) * len(shape))) for _ in range(choices.integer(0, 2)))]
    inputs = tuple(np.asarray(rng.integers(-32, 33, s) / 8).astype(np.float32) for s in shapes)
    names = ["x", "w", "b"][:len(inputs)]
    values: dict[str, np.ndarray] = dict(zip(names, inputs, strict=True))
    lines = [f"def program({', '.join(names)}):"]
    for number in range(max(choices.integer(1, max_lines), choices.integer(1, max_lines))):
        text, value = _line(choices, values, library)
        values[f"t{number}"] = value
        lines.append(f"    t{number} = {text}")
    made = [name for name in values if name.startswith("t")]
    results = made[-1] if len(made) == 1 or choices.integer(0, 2) else f"{made[-1]}, {choices.pick(made)}"
    return NumPyProgram("\n".join([*lines, f"    return {results}"]) + "\n", inputs)


def _line(choices: Choices, values: dict[str, np.ndarray], library: bool) -> tuple[str, np.ndarray]:
    """The text of one expression that suits the values so far, and its value."""
    names = list(values)
    x = choices.pick(names[::-1])
    shape = values[x].shape
    families: list[tuple[str, ...]] = [ELEMENTWISE, PAIRS]
    families += [ROWWISE, ROWWISE, MOVES] if len(shape) >= 2 else []
    families += [LIBRARY] if library and len(shape) == 2 and max(shape) <= 40 else []
    partners = [n for n in names if _fits(values[n].shape, shape)]
    where = {"x": x, "y": choices.pick(partners), "a": choices.integer(-1, len(shape) - 1) if shape else 0,
             "n": shape[-1] if shape else 1, "m": shape[-2] if len(shape) > 1 else 1}
    text = choices.pick(choices.pick(families)).format(**where)
    value = np.asarray(eval(text, {"np": np}, values))
    if value.size > 4096 or value.ndim > 4 or not value.size:
        text = f"np.tanh({x})"
    elif not np.all(np.abs(value) < 100):
        text = f"np.tanh({text})"
    return text, np.asarray(eval(text, {"np": np}, values))


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether NumPy broadcasts ``shape`` to ``other``."""
    try:
        return np.broadcast_shapes(shape, other) == other
    except ValueError:
        return False


def programs(*, max_lines: int = 8, library: bool = True) -> Any:
    """A Hypothesis strategy for the NumPy functions of ``random_program``."""
    from hypothesis import strategies as st

    @st.composite
    def strategy(draw: Any) -> NumPyProgram:
        return grow_program(from_hypothesis(draw), max_lines, library)

    return strategy()


def check_program(program: NumPyProgram, run: Callable[..., Any]) -> None:
    """Run ``run(function, *inputs)`` and compare with the meaning of the traced function.

    ``run=lambda function, *inputs: function(*inputs)`` checks the tracer itself. Raises
    AssertionError with the verdicts and the program.
    """
    traced = trace(program.function, program.inputs)
    got, _ = flatten(run(program.function, *program.inputs))
    verdicts = judge(traced.graph, [*program.inputs, *traced.outside(flatten((program.inputs, {}))[0])], got)
    wrong = "\n".join(f"output {i}: {v.why}" for i, v in enumerate(verdicts) if not v.ok)
    if wrong:
        raise AssertionError(f"{wrong}\n\n{traced.graph}\n\nTo see it again:\n\n{program}")
