"""Hash what the compiler makes of many programs, to show that a change of its structure changes no kernel.

    python tools/fingerprint.py --out before.json       # then change the structure
    python tools/fingerprint.py --against before.json   # names what differs; exit code 1 if something does
    python tools/fingerprint.py --count 40 --out few.json

A fingerprint has, for each program, strategy and machine, a hash of the emitted kernels and the modelled microseconds. The
programs are seeded random graphs (``tools/random_programs.py``) and the small presets of ``benchmarks/models``, which are
traced: so the frontend's graphs are held as well. Two machines: a V100 (CUDA text) and a CPU (CPU text).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "models"))  # models import their layers by name

from random_programs import program_of as random_program

from minisitch.device import DEVICES
from minisitch.lower import lower_program, program_of
from minisitch.runtime.this_machine import BUILT_IN, cpu_with
from minisitch.strategies.prices import Prices
from minisitch.trace import Program, trace

MODELS = Path(__file__).resolve().parent.parent / "benchmarks" / "models"
STRATEGIES = ("astitch", "fs18", "fs20", "auto")
SMALL_MODELS = tuple(sorted(path.stem for path in MODELS.glob("*.py") if "\ndef make(" in path.read_text(encoding="utf-8")))


def digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def programs(count: int, seed: int) -> Iterator[tuple[str, Program]]:
    """Each program with its name."""
    for number in range(seed, seed + count):
        yield f"random {number}", program_of(random_program(number, "python")[0])
    for name in SMALL_MODELS:
        yield f"model {name}", trace(*importlib.import_module(name).make("small"))


def fingerprints(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """What each program becomes: its graph, then kernels and modelled time under each strategy on each machine."""
    for name, program in programs(count, seed):
        yield f"{name}, graph", digest(str(program.graph))
        for target, device in (("cuda", DEVICES["v100"]), ("cpu", cpu_with(BUILT_IN, cores=2))):
            for strategy in STRATEGIES:
                stages = lower_program(program, strategy, target, device)
                us = Prices(stages.graph, device).plan_us(stages.plan)
                yield f"{name}, {strategy}, {target}", f"{digest(''.join(each.text for each in stages.sources))} {us:.6g} us"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=400, help="how many random programs")
    parser.add_argument("--seed", type=int, default=0, help="number of the first")
    parser.add_argument("--out", type=Path, help="write the fingerprints here")
    parser.add_argument("--against", type=Path, help="compare with these")
    options = parser.parse_args()
    found = {}
    for place, what in fingerprints(options.count, options.seed):
        found[place] = what
        print(f"\r{len(found)} fingerprints", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    before = json.loads(options.against.read_text(encoding="utf-8")) if options.against else found
    differ = [f"{place}: {before.get(place)} before, {found.get(place)} now"
              for place in {**before, **found} if before.get(place) != found.get(place)]
    print("\n".join([*differ, f"{len(found)} fingerprints, {len(differ)} differ"]))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
