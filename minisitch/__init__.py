"""minisitch: a reference compiler for GPU operator fusion whose main road can be read in an afternoon.

    import numpy as np, minisitch as ms

    @ms.jit
    def softmax(x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)

    softmax(x)                   # NumPy in, NumPy out
    ms.explain(softmax, x)       # what was decided and why
    ms.compare(softmax, x)       # all strategies: kernels, bytes, barriers, modelled and measured time
    ms.lower(softmax, x, stop_after="schedule")  # leave by any door

Importing this package does not import Numba; the first compile does.
"""

from __future__ import annotations

from . import strategies as _strategies
from .device import DEVICES, Device
from .errors import (
    BackgroundWarning,
    DeviceError,
    GraphError,
    KernelBug,
    KernelError,
    LoopWarning,
    MinisitchError,
    PlanError,
    TraceError,
)
from .explain import Comparison, Report, compare, explain
from .fuse import STRATEGIES, Decision, FusionPlan, Pattern, make_plan, strategy
from .graph import Graph, Node, TensorType
from .parser import parse
from .runtime import jit, lower
from .this_machine import get_device
from .trace import Program, erf, trace

__version__ = "0.1.0"

__all__ = [
    "DEVICES", "STRATEGIES", "BackgroundWarning", "Comparison", "Decision", "Device", "DeviceError", "FusionPlan",
    "Graph", "GraphError", "KernelBug", "KernelError", "LoopWarning", "MinisitchError", "Node", "Pattern", "PlanError", "Program",
    "Report", "TensorType", "TraceError", "__version__", "compare", "erf", "explain", "get_device", "jit", "lower",
    "make_plan", "parse", "strategy", "trace",
]

del _strategies  # imported so that they are registered
