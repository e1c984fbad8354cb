"""What tests ask of the nests of kernels, and small changes of them."""

import math
from dataclasses import replace

from minisitch.kernel import Kernel, ir
from minisitch.kernel.nests import rewritten


def phases(kernel):
    return [phase for segment in kernel.segments for phase in segment.phases]


def found(of, kind):
    """The statements of one kind in a kernel, a segment or a phase, in order."""
    nests = [s.nest for s in of.segments] if isinstance(of, Kernel) else [of.nest]
    return [stmt for nest in nests for stmt, _ in ir.walk(nest) if isinstance(stmt, kind)]


def loops(of, kind):
    """Its loops of one kind."""
    return [loop for loop in found(of, ir.Loop) if loop.by == kind]


def turns(kernel, matches):
    """How often the statements that match are executed, for each row of a segment."""
    return sum(math.prod(loop.last for loop in around if loop.by != "rows")
               for phase in phases(kernel) for stmt, around in ir.walk(phase.nest) if matches(stmt))


def changed(kernel, change, s=None, p=None):
    """The kernel with statements replaced, as ``kernel.nests.rewritten``: everywhere, or in one segment or phase."""
    segments = list(kernel.segments)
    for i, segment in enumerate(segments):
        made = [replace(phase, nest=rewritten(phase.nest, change)) if s in (None, i) and p in (None, k) else phase
                for k, phase in enumerate(segment.phases)]
        segments[i] = replace(segment, phases=tuple(made))
    return replace(kernel, segments=tuple(segments))


def without(kernel, drop, s=None, p=None):
    """The kernel without the statements that match."""
    return changed(kernel, lambda stmt: () if drop(stmt) else (stmt,), s, p)
