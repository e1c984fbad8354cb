"""``python -m minisitch bench``, which is ``python -m benchmarks``: measure a suite, and print its report."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from minisitch.__main__ import names, strategies

SUITES = ("papers", "irregular", "kitsune", "cpu")


def main(words: Sequence[str] | None = None) -> None:
    """Run a suite. Raises MinisitchError for an unknown name, and for results that are wrong."""
    parser = argparse.ArgumentParser(prog="python -m minisitch bench", description="A suite of workloads under every strategy.")
    parser.add_argument("--suite", choices=SUITES, help="the papers' workloads (the default), their irregular shapes, "
                        "Kitsune's workloads, or common programs on this CPU beside other libraries")
    parser.add_argument("--preset", default="small", choices=("small", "full"), help="full: the papers' shapes, many minutes")
    parser.add_argument("--workload", "--case", action="append", metavar="NAME[,NAME]", help="some of the suite (default: all)")
    parser.add_argument("--strategy", action="append", metavar="NAME[,NAME]", help="some strategies, or FILE.py for what that "
                        "file registers (default: the suite's)")
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda", "python"), help="where to run (default: cpu)")
    parser.add_argument("--seconds", type=seconds, default=20.0, help="how long to measure each workload (default: 20)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the raw results (default: benchmarks/results/ by date)")
    parser.add_argument("--fresh", action="store_true", help="measure what is in the file too, and compile everything anew")
    parser.add_argument("--peers", action="append", metavar="NAME[,NAME]", help="of the suite cpu, which this implies: "
                        "numexpr, jax, torch, inductor, or a Python file whose jit(fn) has kernels for fn.workload")
    parser.add_argument("--peer-python", metavar="PATH", help="the Python that has them (default: this one)")
    options = parser.parse_args(words)
    suite = options.suite or ("cpu" if options.peers else "papers")
    options.workload, options.peers = map(names, (options.workload, options.peers))
    options.registering = [str(Path(name).absolute()) for name in names(options.strategy) if name.endswith(".py")]
    options.strategy = strategies(options.strategy)
    importlib.import_module(f"benchmarks.{suite}").main(options)


def seconds(word: str) -> float:
    """A number of seconds, as an option of a suite has it."""
    try:
        if 0 <= (number := float(word)) < float("inf"):
            return number
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds, 0 or more")


if __name__ == "__main__":
    main()
