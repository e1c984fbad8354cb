"""FusionStitching 2018's schedules: how an operation's output is cut into blocks, and what that asks of its operands.

In:  an output shape, or a node and the blocks of its output. Out: ``Triple``s, and the blocks of an operand (section 4.2 there).

Before:  %1 = sum %0 axes=(1,), its output [8704] cut by Triple(0, 512, "row"): 512 blocks of 17
After:   the operand [8704, 17] is cut by Triple(0, 512, "row"): 512 blocks of 17 rows

Two triples may mean the same blocks: ``Triple(1, 8)`` and ``Triple(2, 1)`` of [64, 8, 17, 128] do. A ``Cut`` is
what they have in common, and rules are stated on cuts: a reshape keeps every row-major position, so it keeps the
cut; any other operation keeps it when the axes that tell blocks apart are axes it leaves alone.
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
class Triple:
    """``(split_dim, sword, kind)``: dimension ``split_dim`` of the output is cut into ``sword`` equal pieces.

    ``row``: a block is a contiguous piece of the row-major tensor: one index of each dimension before
    ``split_dim``, one piece of it, all of those after. ``column``: one piece of ``split_dim``, one index
    of each dimension after it, all of those before. Blocks are numbered row-major over what tells them apart.
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
    """FusionStitching 2018's kernel: each kept operation has a loop of its own, and loops meet in shared memory.

    ``schedules``: (node, triple) of every operation with a loop: roots, reduces, values in ``shared``; all have
    the same number of blocks, and a triple is one of the operation's *output*. Everything else is inlined.
    ``shared``: what a block keeps in shared memory, producers first. ``threads``: of a block, a multiple of 32.
    """

    schedules: tuple[tuple[int, Triple], ...]
    shared: tuple[int, ...] = ()
    threads: int = 256

    def shares(self, node: int) -> bool:
        return node in self.shared

    def renumber(self, number: Callable[[int], int]) -> BlockComposition:
        return replace(self, schedules=tuple((number(node), triple) for node, triple in self.schedules),
                       shared=tuple(map(number, self.shared)))


WHOLE = Triple(0, 1)  # one block: always legal, the fallback


def triples_of(shape: Sequence[int]) -> list[Triple]:
    """Every legal triple of an output: the divisors of each dimension, both kinds. Empty and rank-0 ones have only ``WHOLE``."""
    if not math.prod(shape) or not shape:
        return [WHOLE]
    return [Triple(d, sword, kind) for kind in ("row", "column") for d, n in enumerate(shape) for sword in divisors(n)]


def divisors(n: int) -> list[int]:
    """Of a positive number, ascending."""
    return sorted({d for k in range(1, math.isqrt(n) + 1) if n % k == 0 for d in (k, n // k)})


# ---------------------------------------------------------------- what equal triples have in common
class Cut(NamedTuple):
    """Which block owns the element at row-major position p of a tensor of ``size`` elements.

    ``row``: block p // (size / blocks). ``column``: p % period // piece * inner + p % inner with
    piece = inner * period / blocks: fixed trailing indices (``inner`` of them), one piece of the dimension before.
    """

    kind: str
    blocks: int
    inner: int = 1
    period: int = 0


def cut_of(triple: Triple, shape: Sequence[int]) -> Cut:
    """Equal for two triples of a shape exactly if every block owns the same elements under both."""
    blocks = triple.blocks(shape)
    if triple.kind == "row":
        return Cut("row", blocks)
    inner = math.prod(shape[triple.split_dim + 1:])
    period = inner * shape[triple.split_dim]
    if blocks in (inner, period):  # the dimension is not cut, or each of its indices is a piece: block p % blocks
        inner = period = blocks
    return _normal(Cut("column", blocks, inner, period), math.prod(shape))


def _normal(cut: Cut, size: int) -> Cut:
    """A column cut whose blocks are contiguous in a tensor of this size is a row cut."""
    contiguous = cut.blocks in (1, size) or (cut.inner == 1 and cut.period == size)
    return Cut("row", cut.blocks) if contiguous else cut


@functools.lru_cache(maxsize=1 << 16)
def triple_for(cut: Cut, shape: tuple[int, ...]) -> Triple | None:
    """A triple of this shape with these blocks, or None; of several that with the last split dimension."""
    size = math.prod(shape)
    cut = _normal(cut, size)
    if not size or not shape:
        return WHOLE if cut.blocks == 1 else None
    for d in reversed(range(len(shape))):
        lead, inner = math.prod(shape[:d]), math.prod(shape[d + 1:])
        if cut.kind == "row" and cut.blocks % lead == 0 and shape[d] % (cut.blocks // lead) == 0:
            return Triple(d, cut.blocks // lead, "row")
        if cut.kind == "column" and cut.inner == inner and (cut.blocks == inner or cut.period == inner * shape[d]):
            return Triple(d, cut.blocks // inner, "column")
    return None


# ---------------------------------------------------------------- from an output to its operands (Table 1)
def operand_cut(node: Node, position: int, shape: tuple[int, ...], cut: Cut) -> Cut | None:
    """The cut of the operand at ``position`` (of this shape) whose block b holds all that output block b reads.

    None when no triple of the operand does: a block would read what other blocks own. The paper's Table 1
    is refined where its literal reading gives wrong blocks: cutting the dimension *at* a boundary needs sword 1.
    """
    if node.kind == "map" or cut.blocks == 1:
        return cut
    out = node.type.shape
    if node.op != "reshape":
        prefix, suffix = aligned(node, position, shape)
        if cut.kind == "row" and math.prod(out[:prefix]) % cut.blocks:  # contiguous blocks as pieces of one dimension
            cut = Cut("column", cut.blocks, cut.blocks if cut.blocks == node.type.size else 1, node.type.size)
        if cut.kind == "column" and cut.period > math.prod(out[len(out) - suffix:]):
            return None
    cut = _normal(cut, math.prod(shape))
    return cut if triple_for(cut, shape) else None


def aligned(node: Node, position: int, shape: Sequence[int]) -> tuple[int, int]:
    """How many leading and how many trailing axes an output and an operand have in common, index for index."""
    out, rank = node.type.shape, len(shape)
    if node.op == "gather":
        if position == 0:  # any leading coordinate may be asked for; the axes after the last gathered one stay
            return 0, rank - 1 - max(node.attr("axes"))
        return rank, rank if rank == len(out) else 0
    if node.kind == "reduce":
        axes = node.attr("axes")
        return (axes[0], rank - 1 - axes[-1]) if axes else (rank, rank)
    same = [_is_kept(node, position, axis, shape) for axis in range(rank)]
    return len([*takewhile(bool, same)]), len([*takewhile(bool, reversed(same))])


def _is_kept(node: Node, position: int, axis: int, shape: Sequence[int]) -> bool:
    """Whether index i of an output axis reads index i of the operand's axis (ranks are equal)."""
    if node.op == "transpose":
        return node.attr("perm")[axis] == axis
    if node.op == "concatenate":
        return axis != node.attr("axis")
    if node.op == "update" and position == 0:
        return True
    if node.op in ("slice", "update") and (node.attr("start")[axis] != 0 or node.attr("step")[axis] != 1):
        return False
    return shape[axis] == node.type.shape[axis]
