"""FusionStitching 2018's schedules: how an operation's output is cut into blocks (section 4.2 there).

In:  an output shape. Out: ``Triple``s, the blocks they make, and what they ask of operands.

Before:  softmax over [8704, 17]      After:  Triple(split_dim=0, sword=512, "row"): 512 blocks of 17 rows
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .fuse import Composition


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
