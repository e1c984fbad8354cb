"""minisitch: a reference compiler for GPU operator fusion. Its road is read in two afternoons.

    import numpy as np, minisitch as ms

    @ms.jit
    def softmax(x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)

    softmax(x)                   # NumPy in, NumPy out
    ms.explain(softmax, x)       # what was decided and why
    ms.compare(softmax, x)       # all strategies: kernels, bytes, barriers, time
    ms.lower(softmax, x, stop_after="schedule")  # the result of any stage

The rooms of the house, in the order in which data goes through them. A room imports only from rooms
above it:

    errors       exceptions, the word that was meant, progress, work that no Ctrl-C or fork tears
    ops          the table of operations, one row each
    graph        the graph: types, nodes, printing
    device       GPUs and CPUs as data
    trace        NumPy functions to graphs, and the types of their nodes
    reference    what a graph means: one NumPy call a node
    simplify     exact rewrites of the graph
    fuse         fusion plans: which operations share a kernel, and the registry of strategies
    stitch       inside one kernel: which operations have loops, and how values travel between them
    kernel       the loop IR, its verifier, and the text of its statements
    schedule     from stitched operations to a kernel
    passes       what makes a kernel fast: one file, one pass
    simt         runs CUDA text thread by thread, without a GPU
    cuda_emit    a kernel as CUDA text
    cpu_emit     a kernel as CPU text
    strategies   the four papers, the baselines, and auto: what to fuse, and what it costs
    lower        the whole road from a traced program to text; it can stop after each stage
    runtime      jit: calls, memory, caches, threads, compilers, drivers
    grad         gradients: one rule an op, and a walk backwards over what a trace has recorded
    testing      random programs, the judge of results, passes that another function may replace
    explain      reports, pictures, comparisons, calibration
    torch_backend  torch.compile(model, backend="minisitch"): PyTorch's graphs, run by our kernels
    course       assignments, and a grader that a submission cannot fool
    __main__     the command line

Importing this package does not import Numba. The first compile does.
"""

from . import strategies as _strategies
from .device import DEVICES, Device
from .errors import (
    CheckError,
    DeviceError,
    GraphError,
    KernelBug,
    KernelError,
    LoopWarning,
    MinisitchError,
    PassError,
    PlanError,
    TraceError,
)
from .explain import Comparison, Report, compare, explain
from .fuse import STRATEGIES, Decision, FusionPlan, Pattern, make_plan, strategy
from .grad import custom_vjp, grad, gradient, jvp, stop_gradient, value_and_grad, vjp
from .graph import Graph, Node, TensorType
from .passes.registry import PASSES, kernel_pass
from .runtime import jit, lower
from .runtime.this_machine import get_device
from .testing.seams import swapped
from .trace import Program, erf, trace
from .trace.parser import parse

__version__ = "0.1.0"

__all__ = [
    "DEVICES", "PASSES", "STRATEGIES", "CheckError", "Comparison", "Decision", "Device", "DeviceError", "FusionPlan",
    "Graph", "GraphError", "KernelBug", "KernelError", "LoopWarning", "MinisitchError", "Node",
    "PassError", "Pattern", "PlanError", "Program", "Report", "TensorType", "TraceError",
    "__version__", "compare", "custom_vjp", "erf", "explain", "get_device", "grad", "gradient", "jit",
    "jvp", "kernel_pass", "lower", "make_plan", "parse", "stop_gradient", "strategy", "swapped",
    "trace", "value_and_grad", "vjp",
]

del _strategies  # imported so that they are registered
