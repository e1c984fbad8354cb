"""What the tests of FusionStitching 2020 share."""

import importlib
import sys

from stitch_help import ROOT, V100, program

from minisitch.simplify import simplify
from minisitch.strategies.fs20.delta import Evaluator
from minisitch.strategies.xla import xla
from minisitch.trace import trace


def mask(*vertices):
    return sum(1 << v for v in vertices)


TWO_CHAINS = program("f32[64,128] = input name='x'", "f32[100] = input name='y'", "f32[64,128] = exp %0", "f32[100] = tanh %1",
                     "f32[100] = neg %3", "return %2 %4")


def model(name):
    """One of the papers' workloads, small."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "models"))
    try:
        function, arguments = importlib.import_module(name).make("small")
    finally:
        sys.path.pop(0)
    return simplify(trace(function, arguments).graph)


def evaluator(graph, device=V100):
    return Evaluator(xla(graph, device), device)
