"""A loop is cut where its guards change, so that no element of joined arrays tests which it is of.

In:  a kernel for a CPU. Out: the same kernel, its innermost loops in a few pieces.

Before:  for col in 0..32:   v1 = a[col] if col < 16;  v2 = b[col - 16] if col >= 16
                             y[col] = v1 if col < 16 else v2
After:   for col in 0..16:   y[col] = a[col]
         for col in 16..32:  y[col] = b[col - 16]

A loop whose guards change in more than ``MOST_CUTS`` places stays whole.
"""

from dataclasses import replace
from itertools import pairwise

from ..kernel import Kernel, ir
from ..kernel.nests import parts, rewritten, with_phases
from ..stitch.index import ZERO, Index, Within, variable
from .registry import kernel_pass

MOST_CUTS = 3  # of an innermost loop; with more it stays whole


@kernel_pass("cut_loops", "cpu")
def cut_loops(kernel: Kernel) -> Kernel:
    """Cut the innermost loop of each phase where guards of it alone change."""
    return with_phases(kernel, lambda _, phase: _cut(phase))


def _cut(phase: ir.Phase) -> ir.Phase:
    """Cut the innermost loop, if it runs over columns and has the same bounds in every task."""
    loops = [i.loops[-1] for i in parts(phase).innermost]
    if len(loops) != 1:
        return phase
    loop = loops[0]
    if loop.within or loop.by != "one" or not loop.var.startswith("c"):
        return phase
    guards = (c for s in parts(phase).body for c in getattr(s, "guard", ()))
    cuts = sorted({edge for c in guards for edge in _span(c, loop) or () if 0 < edge < loop.last})
    if not 0 < len(cuts) <= MOST_CUTS:
        return phase
    pieces = tuple(replace(loop, first=Index(first), turns=last - first, body=within(loop.body, loop, first, last))
                   for first, last in pairwise([0, *cuts, loop.last]))
    return replace(phase, nest=rewritten(phase.nest, lambda s: pieces if s == loop else (s,)))


def _span(condition: Within, loop: ir.Loop) -> tuple[int, int] | None:
    """The first turn of a loop for which a condition holds, and the end of these turns.

    None if the condition's index is not the loop's variable plus a number.
    """
    index = condition.index
    if index.terms != variable(loop.var, loop.last).terms:
        return None
    return condition.low - index.const, condition.high - index.const


def within(body: ir.Nest, loop: ir.Loop, first: int, last: int) -> ir.Nest:
    """The statements of a piece of a loop, without the conditions that are decided there.

    A load whose guard fails there gives 0, a choice gives its other value, and a store is left out.

    Before:  for col in range(32): v1 = a[col] if col < 16; v2 = b[col - 16] if col >= 16;
                 v3 = v1 if col < 16 else v2
    After:   for col in range(0, 16): v1 = a[col]; v2 = 0; v3 = v1
             for col in range(16, 32): v1 = 0; v2 = b[col - 16]; v3 = v2
    """
    found: list[ir.Stmt] = []
    for stmt in body:
        if not isinstance(stmt, ir.Load | ir.Choose | ir.Store):
            found.append(stmt)
            continue
        spans = [(c, _span(c, loop)) for c in stmt.guard]
        left = tuple(c for c, known in spans if not known)
        fails = any(known and (last <= known[0] or known[1] <= first) for _, known in spans)
        if not fails:
            found.append(replace(stmt, guard=left))
        elif isinstance(stmt, ir.Load):
            found.append(ir.FromIndex(stmt.target, ZERO, stmt.dtype, stmt.node))
        elif isinstance(stmt, ir.Choose):
            found.append(replace(stmt, guard=(), value=stmt.other))
    return tuple(found)
