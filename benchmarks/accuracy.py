"""How exact minisitch is beside NumPy, over the cases of ``benchmarks/cpu.py``, without timing anything.

    python -m benchmarks.accuracy [--preset full] [--workload softmax | softmax-1x768 [,...]]

In:  cases. Out: a line a case: the worst output's distance from the same program in a wider type, relative to its largest
magnitude; NumPy's own; and the first in units of the second, which is at least one rounding. More than 2 is a failure, and
is what the exit code says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .cpu import choose, in_units_of, leave_out_noise
from .cpu_peer import check, with_minisitch, with_numpy

MOST = 2.0  # times NumPy's own error


def measure(case: str) -> tuple[float, float, float]:
    """The distances of both, and ours in units of NumPy's."""
    rows = {name: check(library(case, "cpu")[1], case) for name, library in (("minisitch", with_minisitch), ("numpy", with_numpy))}
    leave_out_noise(rows)
    ours, numpys = rows.values()
    return (max(ours["distances"], default=0.0), max(numpys["distances"], default=0.0),
            in_units_of(numpys, ours["distances"]))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="full", choices=("small", "full"))
    parser.add_argument("--workload", default="", metavar="NAME,...")
    options = parser.parse_args(words)
    failed = 0
    print(f"{'case':32} {'minisitch':>10} {'NumPy':>10} {'times':>6}")
    for case in choose([w for w in options.workload.split(",") if w], options.preset):
        ours, numpys, times = measure(case)
        failed += times > MOST
        print(f"{case:32} {ours:10.2g} {numpys:10.2g} {times:6.2f}{'  more than twice' if times > MOST else ''}", flush=True)
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
