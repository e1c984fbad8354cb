"""How a cut of a value becomes a cut of its operands (FusionStitching 2018, section 4.2, Table 1).

In:  a node and the cut of its output. Out: the cut of an operand, under which no block reads what
another block owns; or None.

Before:  %1 = sum %0 axes=(1,), its output [8704] cut by BlockCut(0, 512, "row"): 512 blocks of 17
After:   the operand [8704, 17] is cut by BlockCut(0, 512, "row"): 512 blocks of 17 rows

Two block cuts may mean the same blocks: ``BlockCut(1, 8)`` and ``BlockCut(2, 1)`` of [64, 8, 17,
128] do. Such block cuts have the same ``Cut``, and the rules are stated on cuts. A reshape keeps
every row-major position, so it keeps the cut. Any other operation keeps the cut if it leaves alone
all axes that tell blocks apart.
"""

import functools
import math
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from ...graph import Node
from ...stitch.blocks import WHOLE, BlockCut


# ---------------------------------------------------------------- one cut for equal block cuts
class Cut(NamedTuple):
    """Which block owns the element at row-major position p of a tensor of ``size`` elements.

    ``row``: block p // (size / blocks). ``column``: block p % period // piece * inner + p % inner,
    with piece = inner * period / blocks. Here ``inner`` is the number of indices of the dimensions
    after the split one, and ``period`` is the same with the split one included.
    """

    kind: str
    blocks: int
    inner: int = 1
    period: int = 0


def cut_of(block_cut: BlockCut, shape: Sequence[int]) -> Cut:
    """The cut of a block cut. Equal cuts mean equal blocks, and the other way round."""
    blocks = block_cut.blocks(shape)
    if block_cut.kind == "row":
        return Cut("row", blocks)
    inner = math.prod(shape[block_cut.split_dim + 1:])
    period = inner * shape[block_cut.split_dim]
    # each index of the dimension is a piece, or it is not cut: block p % blocks
    if blocks in (inner, period):
        inner = period = blocks
    return _normal(Cut("column", blocks, inner, period), math.prod(shape))


def _normal(cut: Cut, size: int) -> Cut:
    """The cut as a row cut if its blocks are contiguous in a tensor of this size."""
    contiguous = cut.blocks in (1, size) or (cut.inner == 1 and cut.period == size)
    return Cut("row", cut.blocks) if contiguous else cut


@functools.lru_cache(maxsize=1 << 16)
def block_cut_for(cut: Cut, shape: tuple[int, ...]) -> BlockCut | None:
    """A block cut of this shape with these blocks, or None.

    Of several, the one with the last split dimension.
    """
    size = math.prod(shape)
    cut = _normal(cut, size)
    if not size or not shape:
        return WHOLE if cut.blocks == 1 else None
    for d in reversed(range(len(shape))):
        lead, inner = math.prod(shape[:d]), math.prod(shape[d + 1:])
        if cut.kind == "row" and cut.blocks % lead == 0 and shape[d] % (cut.blocks // lead) == 0:
            return BlockCut(d, cut.blocks // lead, "row")
        whole = cut.blocks == inner or cut.period == inner * shape[d]
        if cut.kind == "column" and cut.inner == inner and whole:
            return BlockCut(d, cut.blocks // inner, "column")
    return None


# ---------------------------------------------------------------- output to operands (Table 1)
def operand_cut(node: Node, position: int, shape: tuple[int, ...], cut: Cut) -> Cut | None:
    """The cut of an operand under which block b holds all that block b of the output reads.

    ``position`` and ``shape`` are the operand's. None if no block cut of the operand has such
    blocks: then a block would read what other blocks own. The rules refine the paper's Table 1.
    Read literally, the table gives wrong blocks where a boundary dimension is cut: that needs
    sword 1.
    """
    if node.kind == "map" or cut.blocks == 1:
        return cut
    out = node.type.shape
    if node.op != "reshape":
        prefix, suffix = aligned(node, position, shape)
        # contiguous blocks as pieces of one dimension
        if cut.kind == "row" and math.prod(out[:prefix]) % cut.blocks:
            size = node.type.size
            cut = Cut("column", cut.blocks, cut.blocks if cut.blocks == size else 1, size)
        if cut.kind == "column" and cut.period > math.prod(out[len(out) - suffix:]):
            return None
    cut = _normal(cut, math.prod(shape))
    return cut if block_cut_for(cut, shape) else None


def aligned(node: Node, position: int, shape: Sequence[int]) -> tuple[int, int]:
    """How many leading and how many trailing axes of output and operand agree, index for index."""
    out, rank = node.type.shape, len(shape)
    if node.op == "gather":
        # a gather may read any leading index; the axes after the last gathered one stay
        if position == 0:
            return 0, rank - 1 - max(node.attr("axes"))
        return rank, rank if rank == len(out) else 0
    if node.kind == "reduce":
        axes = node.attr("axes")
        return (axes[0], rank - 1 - axes[-1]) if axes else (rank, rank)
    same = [_is_kept(node, position, axis, shape) for axis in range(rank)]
    return len([*takewhile(bool, same)]), len([*takewhile(bool, reversed(same))])


def _is_kept(node: Node, position: int, axis: int, shape: Sequence[int]) -> bool:
    """Whether index i of an output axis reads index i of the operand's axis (equal ranks)."""
    if node.op == "transpose":
        return node.attr("perm")[axis] == axis
    if node.op == "concatenate":
        return axis != node.attr("axis")
    if node.op == "update" and position == 0:
        return True
    cuts = node.op in ("slice", "update")
    if cuts and (node.attr("start")[axis] != 0 or node.attr("step")[axis] != 1):
        return False
    return shape[axis] == node.type.shape[axis]
