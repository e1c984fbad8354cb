"""A loop is cut where its guards begin and cease to hold, as where arrays are joined: no element asks which array it is of.

In:  a kernel for a CPU. Out: the same kernel, its innermost loops in a few pieces.

Before:  for col in 0..32:  v1 = a[col] if col < 16;  v2 = b[col - 16] if col >= 16;  y[col] = v1 if col < 16 else v2
After:   for col in 0..16:  y[col] = a[col]           for col in 16..32:  y[col] = b[col - 16]

Not where that would be in more places than a few.
"""

from __future__ import annotations

from dataclasses import replace

from ..kernel.ir import Choose, Kernel, Load, Phase, Store
from .axes import chunks_of
from .registry import kernel_pass

MOST_CUTS = 3  # of an innermost loop; with more it stays whole


@kernel_pass("cut_loops", "cpu")
def cut_loops(kernel: Kernel) -> Kernel:
    """Cut the innermost loop of each phase where guards of it alone change."""
    segments = tuple(replace(s, phases=tuple(_with_cuts(p, chunks_of(s, p).split) for p in s.phases)) for s in kernel.segments)
    changed = any(p.cuts for s in segments for p in s.phases)
    return replace(kernel, segments=segments) if changed else kernel


def _with_cuts(phase: Phase, split: bool) -> Phase:
    """Cut the innermost loop, if it runs over columns and always over as many, where guards of it alone begin and cease to hold:
    unless that is in more places than a few."""
    if not phase.inner or phase.axes[-1] != phase.inner[-1] or phase.block or (split and len(phase.inner) == 1):
        return phase
    name, size = phase.axes[-1]
    spans = [c.span(name, size) for s in phase.body if isinstance(s, (Load, Choose, Store)) for c in s.guard]
    cuts = sorted({edge for span in spans if span for edge in span if 0 < edge < size})
    return replace(phase, cuts=tuple(cuts)) if len(cuts) <= MOST_CUTS else phase
