"""What the tests of FusionStitching 2018 share."""


from stitch_help import V100, program

from minisitch.strategies.fs18 import slabs
from minisitch.strategies.fs18.fusion import Limits
from minisitch.strategies.fs18.layers import Sweeper
from minisitch.strategies.fs18.reads import OperandReads

LIMITS = Limits(V100)


def fused(graph, limits=LIMITS):
    """The kernels of a graph before they are composed."""
    reads = OperandReads(graph)
    return [kernel for ops in slabs(graph, reads) for kernel in Sweeper(reads, ops, limits).run()]


def figure_3(batch=64, heads=8, length=17, width=128):
    """Softmax over rows, then a small batched product; the paper's names in the comments."""
    rows = batch * heads * length
    return program(
        f"f32[{rows},{length}] = input name='arg1'",  # 0: Arg.1
        f"f32[{batch},{heads},{length},{width}] = input name='arg2'",  # 1: Arg.2
        f"f32[{rows},1] = max %0 axes=(1,) keepdims=True",  # 2: Reduce.1
        f"f32[{rows},{length}] = broadcast %2 shape=({rows}, {length})",  # 3: Broadcast.1
        f"f32[{rows},{length}] = sub %0 %3",  # 4: Subtract.1
        f"f32[{rows},{length}] = exp %4",  # 5: Exponential.1
        f"f32[{rows},1] = sum %5 axes=(1,) keepdims=True",  # 6: Reduce.2
        f"f32[{rows},{length}] = broadcast %6 shape=({rows}, {length})",  # 7: Broadcast.2
        f"f32[{rows},{length}] = div %5 %7",  # 8: Divide.1
        f"f32[{batch},{heads},{length},{length}] = reshape %8 shape=({batch}, {heads}, {length}, {length})",  # 9: Bitcast.1
        f"f32[{batch},{heads},{length},{width}] = matmul %9 %1")  # 10: Dot.1
