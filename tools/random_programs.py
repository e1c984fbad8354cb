"""Random programs against the reference: every strategy, on a target of choice.

    python tools/random_programs.py --count 2000 --seed 0 --target python --jobs 2
    python tools/random_programs.py --count 300 --target step      # the CUDA text, thread by thread
    python tools/random_programs.py --count 200 --target cpu       # compiled by Numba
    python tools/random_programs.py --count 200 --passes            # plain kernels: no pass runs
    python tools/random_programs.py --count 200 --passes nest_loops windows   # these alone
    python tools/random_programs.py --count 200 --without windows   # all default passes but this one
    python tools/random_programs.py --count 3000 --bits --jobs 2   # every bit NumPy's; a sixth compiled, a sixth stepped

With ``--bits`` the programs are those of ``tools/bit_programs.py``; every fourth has functions such as ``exp``, of which all
strategies must have the same bits. Without ``--target`` a program's number decides its target.
A program's number is its seed, so a failure is run again with ``--seed NUMBER --count 1``. Every
fourth program gets NaN, infinities and signed zeros among its inputs. Failures are printed with a
snippet that rebuilds them; the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from bit_programs import check_bits, random_bit_graph, random_bit_inputs

import minisitch.strategies  # noqa: F401  registers them
from minisitch.device import DEVICES, Device
from minisitch.graph import Graph
from minisitch.lower import lower_program
from minisitch.ops import kind_of
from minisitch.passes.registry import DEFAULTS, PASSES
from minisitch.runtime.assemble import assemble
from minisitch.runtime.this_machine import this_cpu
from minisitch.strategies.prices import shared_kernels
from minisitch.testing import random_graph, random_inputs
from minisitch.testing.judge import judge
from minisitch.trace import Program, Static

STRATEGIES = ("none", "xla", "fs18", "fs18-dot", "fs20", "astitch", "auto")
# GPUs so small that programs of a few hundred elements reach every mapping and every scheme.
TOYS = tuple(replace(DEVICES["v100"], name=f"toy{block}", sms=2, max_block=block, threads_per_sm=2 * block, blocks_per_sm=2)
             for block in (64, 32, 128))


@dataclass(frozen=True)
class Failure:
    """What went wrong with one program under one strategy."""

    seed: int
    strategy: str
    text: str


def device_for(target: str, seed: int) -> Device:
    """The machine a program is scheduled for: three GPU sizes in turn, or this CPU."""
    return TOYS[seed % len(TOYS)] if target == "step" else this_cpu()


def program_of(seed: int, target: str) -> tuple[Graph, list[np.ndarray], bool]:
    """Program number ``seed`` with its inputs, and whether these hold special values.

    A program that casts floats to integers gets none: what integer NaN becomes is the machine's choice.
    """
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, max_nodes=int(rng.integers(3, 25)), max_elements=600 if target == "step" else 4096)
    undefined = any(n.op == "cast" and kind_of(n.type.dtype) == "int" and kind_of(graph[n.args[0]].type.dtype) == "float"
                    for n in graph.nodes)
    special = seed % 4 == 3 and not undefined
    return graph, random_inputs(graph, np.random.default_rng(seed), special=special), special


def bit_program_of(seed: int, target: str) -> tuple[Graph, list[np.ndarray]]:
    """Program number ``seed`` of those that are compared bit by bit, with its inputs."""
    rng = np.random.default_rng(seed)
    elements = 1024 if target == "cpu" else 256
    graph = random_bit_graph(rng, max_nodes=int(rng.integers(3, 21)), max_elements=elements, heavy=seed % 4 == 3)
    return graph, random_bit_inputs(graph, np.random.default_rng(seed))


def check_bits_of_seed(seed: int, target: str, strategies: Sequence[str] = STRATEGIES,
                       passes: str | Sequence[str] = "default") -> list[Failure]:
    """Compare program number ``seed`` bit by bit under each strategy; what differs."""
    target = target or {0: "cpu", 1: "step"}.get(seed % 6, "python")
    graph, inputs = bit_program_of(seed, target)
    try:
        device = device_for(target, seed)
        found = check_bits(graph, inputs, lambda name: run_graph(graph, inputs, name, target, device, passes), strategies)
    except Exception:
        found = {"one of them": traceback.format_exc()}
    text = (f'\n\nimport numpy as np\nfrom minisitch.trace.parser import parse\n'
            f'from bit_programs import random_bit_inputs  # in tools/\n'
            f'graph = parse("""{graph}""")\ninputs = random_bit_inputs(graph, np.random.default_rng({seed}))')
    return [Failure(seed, f"{strategy}, on {target}", why + text) for strategy, why in found.items()]


def snippet(graph: Graph, seed: int, special: bool) -> str:
    """Python text that rebuilds a case."""
    return (f'import numpy as np\nfrom minisitch.trace.parser import parse\nfrom minisitch.testing import random_inputs\n'
            f'graph = parse("""{graph}""")\n'
            f"inputs = random_inputs(graph, np.random.default_rng({seed}), special={special})")


def run_graph(graph: Graph, inputs: Sequence[np.ndarray], strategy: str, target: str, device: Device,
              passes: str | Sequence[str] = "default") -> list[np.ndarray]:
    """The outputs of a graph, taken down the whole road."""
    no_nest = Static(None, "graph")  # a graph's inputs and outputs are flat
    stages = lower_program(Program(graph, no_nest, no_nest, (), ()), strategy, target, device, passes=passes)
    return assemble(stages, target).outputs(list(inputs))


def check_seed(seed: int, target: str, strategies: Sequence[str] = STRATEGIES,
               passes: str | Sequence[str] = "default") -> list[Failure]:
    """Run program number ``seed`` under each strategy; what failed."""
    graph, inputs, special = program_of(seed, target)
    failures, device = [], device_for(target, seed)
    with shared_kernels(device):  # what one strategy builds, others do not build again
        for strategy in strategies:
            try:
                verdicts = judge(graph, inputs, run_graph(graph, inputs, strategy, target, device, passes))
                why = "\n".join(f"output {i}: {v.why}" for i, v in enumerate(verdicts) if not v.ok)
            except Exception:
                why = traceback.format_exc()
            if why:
                failures.append(Failure(seed, strategy, f"{why}\n\n{snippet(graph, seed, special)}"))
    return failures


def check_all(seeds: range, target: str, strategies: Sequence[str], jobs: int, bits: bool = False,
              passes: str | Sequence[str] = "default") -> Iterator[list[Failure]]:
    """The failures of each program, in order."""
    check = partial(check_bits_of_seed if bits else check_seed, target=target, strategies=strategies, passes=passes)
    if jobs == 1:
        yield from map(check, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(check, seeds, chunksize=4)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the number of failures decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="number of the first")
    parser.add_argument("--target", choices=("python", "cpu", "step"), help="python, unless --bits")
    parser.add_argument("--bits", action="store_true", help="compare every bit with NumPy's")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), metavar="NAME")
    parser.add_argument("--passes", nargs="*", choices=sorted(PASSES), metavar="NAME", help="the passes that run, or none")
    parser.add_argument("--without", choices=sorted(PASSES), metavar="NAME", help="a default pass that does not run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    target = options.target or ("" if options.bits else "python")
    passes = "default" if options.passes is None else tuple(options.passes)
    if options.without:
        passes = tuple(name for name in DEFAULTS["gpu" if target == "step" else "cpu"] if name != options.without)
    started, failures = time.time(), 0
    for done, found in enumerate(check_all(range(options.seed, options.seed + options.count), target, options.strategies,
                                           options.jobs, options.bits, passes), start=1):
        for failure in found:
            failures += 1
            print(f"\nprogram {failure.seed}, strategy {failure.strategy}, target {target or 'as drawn'}:\n{failure.text}\n",
                  flush=True)
        print(f"\r{done} of {options.count} programs, {failures} failures", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{options.count} programs from seed {options.seed}, target {target or 'as drawn'}, "
          f"strategies {' '.join(options.strategies)}: {failures} failures, {time.time() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
