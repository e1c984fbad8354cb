"""Measure this machine and write the tables of README.md and docs/performance.md.

    python tools/measure.py [--runs 3] [--seconds 4]

In:  the programs below. Out: Markdown between the marks ``<!-- measured -->`` and ``<!-- end measured -->``.
The first program is that of ``make demo``, whose table has the same columns.
The strategies and NumPy take turns within a run (``minisitch.compare``), so that a busy machine is unfair to
none. Of several runs the quietest counts: the one in which NumPy, not minisitch, was fastest. A run in which kernels took
longer by themselves than the call they are part of was disturbed between the two, and counts only if all were.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numba
import numpy as np

import minisitch as ms
from minisitch.explain import demo
from minisitch.explain.compare import duration, size

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.models import bert  # noqa: E402

SHOWN = ("none", "xla", "astitch", "auto")  # the baselines, the one that stitches most, the default
MARKED = re.compile(r"(<!-- measured -->\n).*?(<!-- end measured -->)", re.S)


def softmax(x):
    """Rows of positive numbers that add up to 1."""
    return demo.softmax(x)


def layernorm(x, scale, shift):
    """Rows with mean 0 and variance 1, then scaled and shifted."""
    return demo.layernorm(x, scale, shift)


def gelu(x):
    """The Gaussian error linear unit, in its tanh form."""
    return demo.gelu(x)


def programs() -> dict[str, tuple[Callable[..., Any], tuple]]:
    """What is measured: a name, a function, arguments."""
    random = np.random.default_rng(0)

    def array(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    _, text = demo.default_text()
    return {
        "GPT block, 4 x 256 tokens, hidden 256": (demo.gpt, (*demo.make_batch(text), demo.make_weights())),
        "BERT-base layer, 8 x 128 tokens": bert.make("base"),
        "softmax, 8192 x 1024": (softmax, (array(8192, 1024),)),
        "layernorm, 4096 x 1000": (layernorm, (array(4096, 1000), array(1000), array(1000))),
        "GELU, 1024 x 3072": (gelu, (array(1024, 3072),)),
    }


def table(found: ms.Comparison) -> str:
    """The rows that ``make demo`` prints of these strategies, in its columns, and what NumPy takes."""
    shown = replace(found, rows=tuple(found[name] for name in SHOWN))
    return f"{shown.markdown}\nNumPy itself: {duration(found.numpy_us)}.\n"


def summary(found: dict[str, ms.Comparison]) -> str:
    """A line a program: kernels, bytes to and from memory, and what a whole call takes under NumPy and each strategy."""
    counted = ("none", "xla", "auto")
    named = ", ".join(f"`{strategy}`" for strategy in counted)
    lines = [("program", f"kernels: {named}", f"bytes: {named}", "NumPy", *(f"`{strategy}`" for strategy in SHOWN)), ("---",) * 8]
    for name, one in found.items():
        rows = [one[strategy] for strategy in counted]
        lines.append((name, ", ".join(str(row.kernels) for row in rows),
                      ", ".join(size(row.bytes_read + row.bytes_written) for row in rows),
                      duration(one.numpy_us), *(duration(one[strategy].measured_us) for strategy in SHOWN)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill(page: Path, text: str) -> None:
    """Put the text between the page's marks."""
    whole = page.read_text(encoding="utf-8")
    assert MARKED.search(whole), f"{page.name} has no mark"
    page.write_text(MARKED.sub(lambda m: m[1] + text + m[2], whole), encoding="utf-8")


def noise(found: ms.Comparison) -> tuple[bool, float]:
    """What makes one run worse than another: a disturbance that shows, then NumPy's time."""
    return any(found.kernel_us[row.strategy] > row.measured_us for row in found.rows), found.numpy_us


def main(runs: int, seconds: float) -> None:
    """Measure everything and fill both pages."""
    quietest: dict[str, ms.Comparison] = {}
    for number in range(runs):
        for name, (fn, args) in programs().items():
            found = ms.compare(fn, *args, target="cpu", seconds=seconds, strategies=SHOWN)
            if name not in quietest or noise(found) < noise(quietest[name]):
                quietest[name] = found
                print(f"run {number}: {name}", found, sep="\n", end="\n\n", flush=True)
    gpt = next(iter(quietest))
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}"
    machine = (f"Measured {date.today():%d %B %Y} on {quietest[gpt].device.sms} cores of a shared {platform.machine()} "
               f"server, {platform.system()}, {versions}, float32; medians, taking turns. Each program ran "
               f"{runs} times. Of the runs that nothing disturbed, the one in which NumPy was fastest is shown.\n")
    fill(ROOT / "README.md", f"{machine}\n{table(quietest[gpt])}")
    fill(ROOT / "docs" / "performance.md", f"{machine}\n{summary(quietest)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each program (default: 3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a program in a run (default: 4)")
    options = parser.parse_args()
    if options.runs < 1 or not options.seconds > 0:
        parser.error("--runs and --seconds are positive")
    main(options.runs, options.seconds)
