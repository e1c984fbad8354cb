"""FusionStitching 2018's schedules: how blocks cut an output, and how they must cut its operands.

In:  an output shape, or a node and the cut of its output. Out: ``BlockCut``s, and the cut of an
operand (section 4.2 of the paper).

Before:  %1 = sum %0 axes=(1,), its output [8704] cut by BlockCut(0, 512, "row"): 512 blocks of 17
After:   the operand [8704, 17] is cut by BlockCut(0, 512, "row"): 512 blocks of 17 rows

Two block cuts may mean the same blocks: ``BlockCut(1, 8)`` and ``BlockCut(2, 1)`` of [64, 8, 17, 128] do.
Such block cuts have the same ``Cut``, and the rules are stated on cuts. A reshape keeps every
row-major position, so it keeps the cut. Any other operation keeps the cut if it leaves alone all
axes that tell blocks apart.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from ..fuse import Composition
from ..graph import Node


@dataclass(frozen=True)
class BlockCut:
    """``(split_dim, sword, kind)``: how the blocks of a kernel cut one output.

    Dimension ``split_dim`` is cut into ``sword`` equal pieces. ``row``: a block has one index of
    each dimension before ``split_dim``, one piece of it, and all of the dimensions after it. That
    is a contiguous part of the row-major tensor. ``column``: a block has one piece of
    ``split_dim``, one index of each dimension after it, and all of the dimensions before it. Blocks
    are numbered in row-major order of piece and indices.
    """

    split_dim: int
    sword: int
    kind: str = "row"  # "row" | "column"

    def blocks(self, shape: Sequence[int]) -> int:
        """How many blocks cover an output of this shape (FusionStitching 2018, section 4.2)."""
        outside = shape[:self.split_dim] if self.kind == "row" else shape[self.split_dim + 1:]
        return self.sword * math.prod(outside)


@dataclass(frozen=True)
class BlockComposition(Composition):
    """FusionStitching 2018's kernel: loops in one block, which pass values through shared memory.

    ``schedules``: (node, block cut) of every operation with a loop: the roots, the reduces, and the
    values in ``shared``. A block cut cuts the operation's *output*. All block cuts make the same number
    of blocks. All other operations are inlined. ``shared``: the values kept in shared memory,
    producers first. ``threads``: the size of a block, a multiple of 32.
    """

    schedules: tuple[tuple[int, BlockCut], ...]
    shared: tuple[int, ...] = ()
    threads: int = 256

    def shares(self, node: int) -> bool:
        return node in self.shared

    def renumber(self, number: Callable[[int], int]) -> BlockComposition:
        return replace(self, schedules=tuple((number(node), block_cut) for node, block_cut in self.schedules),
                       shared=tuple(map(number, self.shared)))


WHOLE = BlockCut(0, 1)  # one block: legal for every shape


def block_cuts_of(shape: Sequence[int]) -> list[BlockCut]:
    """Every legal block cut of an output: all divisors of all dimensions, in both kinds.

    An empty or rank-0 output has only ``WHOLE``.
    """
    if not math.prod(shape) or not shape:
        return [WHOLE]
    return [BlockCut(d, sword, kind) for kind in ("row", "column") for d, n in enumerate(shape) for sword in divisors(n)]


def divisors(n: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    return sorted({d for k in range(1, math.isqrt(n) + 1) if n % k == 0 for d in (k, n // k)})


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
        if cut.kind == "column" and cut.inner == inner and (cut.blocks == inner or cut.period == inner * shape[d]):
            return BlockCut(d, cut.blocks // inner, "column")
    return None


# ---------------------------------------------------------------- output to operands (Table 1)
def operand_cut(node: Node, position: int, shape: tuple[int, ...], cut: Cut) -> Cut | None:
    """The cut of an operand under which block b holds all that block b of the output reads.

    ``position`` and ``shape`` are the operand's. None if no block cut of the operand has such blocks:
    then a block would read what other blocks own. The rules refine the paper's Table 1. Read
    literally, the table gives wrong blocks where a boundary dimension is cut: that needs sword 1.
    """
    if node.kind == "map" or cut.blocks == 1:
        return cut
    out = node.type.shape
    if node.op != "reshape":
        prefix, suffix = aligned(node, position, shape)
        # contiguous blocks as pieces of one dimension
        if cut.kind == "row" and math.prod(out[:prefix]) % cut.blocks:
            cut = Cut("column", cut.blocks, cut.blocks if cut.blocks == node.type.size else 1, node.type.size)
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
    if node.op in ("slice", "update") and (node.attr("start")[axis] != 0 or node.attr("step")[axis] != 1):
        return False
    return shape[axis] == node.type.shape[axis]
