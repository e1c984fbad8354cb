"""What each rule of the CPU target buys: programs timed with one ingredient left out at a time.

    python -m benchmarks.ablation [--program softmax,adam] [--seconds 2] [--out FILE]

In:  the programs below, each once as it is and once without each ingredient. Out: a table of time without over time with; 1.00
is an ingredient that does nothing here. A program takes turns with its ablations, in another order each round, since who comes
after the unstitched one finds the cache full of its arrays; medians count; kernels are compiled anew.

Every ingredient is one place in the package, and is taken out by replacing what stands there (``INGREDIENTS``).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from minisitch import get_device, trace
from minisitch.explain.compare import take_turns
from minisitch.passes.registry import DEFAULTS
from minisitch.runtime import assemble, lower_program, pool, steps
from minisitch.runtime.cpu import compile as compiler
from minisitch.runtime.cpu import thread_pool, workers
from minisitch.trace.tree import flatten

from .results import Bar, geometric_mean, load, surroundings, table, tell

F32 = np.float32


# ---------------------------------------------------------------- the programs
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layernorm(x, gain, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + F32(1e-5)) * gain + bias


def gelu_layernorm(x, residual, gain, bias):
    gelu = F32(0.5) * x * (1 + np.tanh(F32(0.7978846) * (x + F32(0.044715) * x * x * x)))
    return layernorm(gelu + residual, gain, bias)


def adam(weight, grad, mean, square):
    mean = F32(0.9) * mean + F32(0.1) * grad
    square = F32(0.999) * square + F32(0.001) * grad * grad
    return weight - F32(1e-3) * mean / (np.sqrt(square) + F32(1e-8)), mean, square


def chain(x):
    for _ in range(5):
        x = np.tanh(x * F32(0.9)) + np.exp(-x * x) * F32(0.5)
    return x


def variance(x):
    return x.var()


def column_sums(x):
    return (x * x).sum(axis=0)


def standardised(x):
    """Each column less its mean, over its deviation: sums of columns beside loops over short rows."""
    centred = x - x.mean(axis=0)
    return centred / np.sqrt((centred * centred).mean(axis=0) + F32(1e-5))


def layernorm_backward(x, gain, gradient):
    """The gradients of x, gain and bias."""
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + F32(1e-5))
    normed, inner = centred * scale, gradient * gain
    outer = inner - inner.mean(axis=-1, keepdims=True) - normed * (inner * normed).mean(axis=-1, keepdims=True)
    return outer * scale, (gradient * normed).sum(axis=0), gradient.sum(axis=0)


def cross_entropy_gradient(logits, wanted):
    """The loss of each row, and the gradient of the logits."""
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    likely = e / e.sum(axis=1, keepdims=True)
    inner = -wanted / likely
    return (inner - (inner * likely).sum(axis=1, keepdims=True)) * likely, -(wanted * np.log(likely)).sum(axis=1)


def product_and_gelu(x, weight):
    """The threads of the product's library still wait for the next one while the kernel runs."""
    x = x @ weight
    return F32(0.5) * x * (1 + np.tanh(F32(0.7978846) * (x + F32(0.044715) * x * x * x)))


def added_behind_a_product(x, weight, left, middle, right):
    """What is added to a product can be computed before it, beside its operand, or where it is added."""
    return np.exp(-x) @ weight + left * (middle + right)


def unrolled_gradient(x, gradient):
    """A weight's gradient over 24 steps of a recurrent network: a product a step, then one sum over all of them."""
    products = [x[:, i:i + 8] @ gradient[i:i + 8] for i in range(0, 192, 8)]
    return np.tanh(sum(products[1:], products[0]))


def gathered_rows(table, where, weights):
    """Products of rows that lie anywhere in a table; ``where`` is between 0 and 1."""
    return (table[(where * F32(len(table))).astype(np.int64)] * weights).sum(axis=1)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax 1x768": (softmax, ((1, 768),)),
    "softmax 512x768": (softmax, ((512, 768),)),
    "softmax 8192x1024": (softmax, ((8192, 1024),)),
    "softmax 100000x32": (softmax, ((100_000, 32),)),
    "layernorm 512x768": (layernorm, ((512, 768), (768,), (768,))),
    "gelu+layernorm 512x768": (gelu_layernorm, ((512, 768), (512, 768), (768,), (768,))),
    "adam 1000000": (adam, ((1_000_000,),) * 4),
    "adam 10000000": (adam, ((10_000_000,),) * 4),
    "chain 100000": (chain, ((100_000,),)),
    "variance 20000000": (variance, ((20_000_000,),)),
    "column sums 4096x768": (column_sums, ((4096, 768),)),
    "standardised 1000x40": (standardised, ((1000, 40),)),
    "layernorm backward 512x768": (layernorm_backward, ((512, 768), (768,), (512, 768))),
    "cross-entropy backward 4000x10": (cross_entropy_gradient, ((4000, 10),) * 2),
    "gathered rows 16384x64 of 42 MB": (gathered_rows, ((163_840, 64), (16_384,), (16_384, 64))),
    "gathered rows 750000x16 of 3 MB": (gathered_rows, ((50_000, 16), (750_000,), (750_000, 16))),
    "24 products 160x512": (unrolled_gradient, ((160, 192), (192, 512))),
    "product+adds 512x64x2048": (added_behind_a_product, ((512, 64), (64, 2048), *((512, 2048),) * 3)),
    "product+gelu 2048x768x3072": (product_and_gelu, ((2048, 768), (768, 3072))),
}


# ---------------------------------------------------------------- the ingredients
@dataclass(frozen=True)
class Ingredient:
    """What is left out: while compiling, while running, or by another strategy."""

    name: str
    compiling: Callable[[], AbstractContextManager[Any]] = nullcontext
    running: Callable[[], AbstractContextManager[Any]] = nullcontext
    strategy: str = "auto"
    without: str = ""  # a pass


def _without_flag(name: str) -> Callable[[], AbstractContextManager[Any]]:
    def patched() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for flags in (compiler.KERNEL_FLAGS, compiler.HELPER_FLAGS):
            left = {k: v for k, v in flags.items() if k != name}
            stack.enter_context(patch.dict(flags, left, clear=True))
        return stack
    return patched


def _helpers(**replaced: Callable[..., Any]) -> Callable[[], AbstractContextManager[Any]]:
    """Kernels call these plain functions instead of the helpers of the same names."""
    def patched() -> AbstractContextManager[Any]:
        import numba

        usual = compiler._helper
        plain = {name: numba.njit(**compiler.HELPER_FLAGS)(function) for name, function in replaced.items()}
        return patch.object(compiler, "_helper", lambda name: plain.get(name) or usual(name))
    return patched


def _library_math() -> dict[str, Callable[..., Any]]:
    """Transcendental functions one by one from the C library, as ``math`` has them in Numba."""
    import math

    return {"exp_f32": lambda x: np.float32(math.exp(x)), "tanh_f32": lambda x: np.float32(math.tanh(x)),
            "log_f32": lambda x: np.float32(math.log(x)), "erf_f32": lambda x: np.float32(math.erf(x))}


INGREDIENTS = (
    Ingredient("stitching", strategy="none"),
    Ingredient("polynomials for exp and tanh", _helpers(**_library_math())),
    Ingredient("several vectors side by side", lambda: patch.object(compiler._Idioms, "POLYNOMIALS", frozenset())),
    Ingredient("sums in any order", lambda: patch.object(compiler._Idioms, "FREE", {})),
    Ingredient("maximum in vectors", _helpers(maximum=lambda a, b: a if a > b or a != a else b,
                                             maximum_any_order=lambda a, b: a if a > b or a != a else b)),
    Ingredient("division without a check", _without_flag("error_model")),
    Ingredient("arrays that do not overlap", _helpers(arguments_do_not_overlap=lambda: None)),
    Ingredient("short loops vectorised before they are unrolled",
               lambda: patch.object(compiler, "_short_loops", lambda on: nullcontext())),
    Ingredient("`batch_rows`: short rows together", without="batch_rows"),
    Ingredient("scratch rows on the stack", lambda: patch.object(compiler, "STACK", 0)),
    Ingredient("results' memory taken again", running=lambda: patch.object(pool, "SMALLEST", 1 << 62)),  # asked at the first call
    Ingredient("threads that look for work", lambda: patch.object(thread_pool, "can_work", lambda: False)),
    Ingredient("the second core", running=lambda: workers.threads(1)),
)


# ---------------------------------------------------------------- measuring
def compiled(program: Any, ingredient: Ingredient | None) -> Callable[[Sequence[Any]], Any]:
    """The program without an ingredient, compiled from nothing."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(compiler, "_memory", {}))
        stack.enter_context(patch.object(steps, "_built", {}))
        stack.enter_context(patch.dict("os.environ", {"MINISITCH_CACHE": "0", "MINISITCH_PLANS": "0"}))
        if ingredient:
            stack.enter_context(ingredient.compiling())
        strategy, without = (ingredient.strategy, ingredient.without) if ingredient else ("auto", "")
        passes = tuple(name for name in DEFAULTS["cpu"] if name != without)
        return assemble(lower_program(program, strategy, "cpu", get_device("cpu"), passes=passes), "cpu")


def measure(fn: Callable[..., Any], shapes: Sequence[tuple[int, ...]], seconds: float,
            ingredients: Sequence[Ingredient] = INGREDIENTS) -> dict[str, list[float]]:
    """Microseconds a call of each variant, round after round; ``""`` is the program as it is. Raises if results differ."""
    rng = np.random.default_rng(0)
    args = tuple(rng.random(shape, F32) for shape in shapes)
    program, leaves = trace(fn, args, {}), flatten((args, {}))[0]
    variants: dict[str, tuple[Callable[..., Any], Any]] = {"": (compiled(program, None), nullcontext)}
    variants |= {i.name: (compiled(program, i), i.running) for i in ingredients}
    right = flatten(fn(*args))[0]
    samples: dict[str, list[float]] = {name: [] for name in variants}
    repeats: dict[str, int] = {}
    for name, (run, running) in variants.items():
        with running():
            for got, expected in zip(flatten(run(leaves))[0], right, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5, err_msg=f"without {name}")
            repeats[name] = max(3, int(1000 / _call_us(run, leaves, 3)))
    until = time.perf_counter() + seconds
    for order in take_turns(list(variants)):
        if time.perf_counter() >= until and len(samples[""]) >= 5:
            break
        for name in order:
            run, running = variants[name]
            with running():
                samples[name].append(_call_us(run, leaves, repeats[name]))
    return samples


def _call_us(run: Callable[..., Any], leaves: Sequence[Any], repeats: int) -> float:
    run(leaves)  # finds its own results' memory in the cache again, or what is left of it
    began = time.perf_counter()
    for _ in range(repeats):
        run(leaves)
    return (time.perf_counter() - began) / repeats * 1e6


def report(found: dict[str, dict[str, list[float]]]) -> str:
    """Time without each ingredient over time with all, and the microseconds of a call with all."""
    ratios = {p: {i: statistics.median(s) / statistics.median(samples[""]) for i, s in samples.items() if i}
              for p, samples in found.items()}
    rows = [["without", *found, "geometric mean"]]
    rows += [[i.name, *(f"{r[i.name]:.2f}" for r in ratios.values()), f"{geometric_mean(r[i.name] for r in ratios.values()):.2f}"]
             for i in INGREDIENTS]
    rows.append(["(us a call with all)", *(f"{statistics.median(s['']):.1f}" for s in found.values()), ""])
    here = surroundings()
    rounds = min(len(samples[""]) for samples in found.values())
    return (f"Time without over time with; medians of {rounds} or more rounds in turns on a {here['machine']} machine, "
            f"{here['date']}, Numba {here['numba']}, load {load()}.\n\n{table(rows)}\n")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--program", metavar="WORD[,WORD]", help="programs whose names hold one of these (default: all)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to measure each program (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the table here")
    options = parser.parse_args(words)
    chosen = {name: program for name, program in PROGRAMS.items()
              if not options.program or any(word in name for word in options.program.split(","))}
    found = {}
    with Bar(len(chosen)) as bar:
        for number, (name, (fn, shapes)) in enumerate(chosen.items()):
            bar.show(number, name)
            found[name] = measure(fn, shapes, options.seconds)
            bar.finished(name, "")
    tell(report(found), options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
