"""``none``: one kernel for each operation, the baseline of every comparison.

Views (broadcast, transpose, slice, reshape) and constants are read in place, as in NumPy. They get
no kernels.
"""

from ..device import Device
from ..fuse import VIEWS, Decision, FusionPlan, Stitching, is_fusible, make_plan, operations_of, strategy
from ..graph import Graph


@strategy("none")
def none(graph: Graph, device: Device) -> FusionPlan:
    """Give each map, reduce, concatenate, update and gather a kernel of its own.

    Before:  %1 = exp %0; %2 = neg %1      After:  kernel 0: %1   kernel 1: %2
    """
    alone = operations_of(graph)
    decisions = [Decision((a, n), "keep apart", "no-fusion", "the strategy fuses nothing")
                 for n in alone for a in graph[n].args if is_fusible(graph[a]) and graph[a].op not in VIEWS]
    return make_plan(graph, "none", [[n] for n in alone], decisions, Stitching(adaptive=False))
