"""Computation reuse: what is computed once a row is computed by one phase.

FusionStitching 2020, section 6.4.

In:  a kernel. Out: the same kernel; a loop reads what an earlier loop of its row has in a register.

``schedule`` writes each loop by itself, so two loops that need the same value of a row both compute
it. A statement outside the column loop runs once a row, in every thread. Its register is still
there in later loops of the row, so a later loop reads it instead of computing it again. Values
inside a loop are not reused: another turn, or another thread, made them. Index arithmetic is left
to the compiler, which sees all of it.

Before:  phase 2: v13 = sqrt v12; for col ...      phase 3: v13_1 = sqrt v12_1; for col ...
After:   phase 3 reads v13
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..kernel import Kernel, ir
from ..kernel.nests import parts, rewritten, with_nest, with_operands
from .registry import kernel_pass


@kernel_pass("share_row_values")
def share_row_values(kernel: Kernel) -> Kernel:
    """Compute what several loops of a row need once."""
    inputs = [b.name for b in kernel.buffers if b.scope == "input"]
    segments = tuple(replace(s, phases=tuple(reuse(s.phases, inputs))) for s in kernel.segments)
    return kernel if segments == kernel.segments else replace(kernel, segments=segments)


def reuse(phases: Sequence[ir.Phase], inputs: Collection[str]) -> list[ir.Phase]:
    """The phases without what an earlier phase has computed once a row.

    ``inputs`` are buffers that no statement writes.
    """
    known: dict[ir.Scalar, str] = {}
    names: dict[str, str] = {}
    # The gathers' indices at present: each loop numbers its own from 0.
    at: dict[str, ir.Clamp] = {}
    def reused(stmt: ir.Stmt) -> ir.Nest:
        """The statement with names of earlier values. Nothing if an earlier one has its value."""
        nonlocal known
        once, stmt = id(stmt) in before, with_operands(stmt, names) if names else stmt
        if not once or isinstance(stmt, ir.Store):
            return (stmt,)
        if isinstance(stmt, ir.Clamp) and at.setdefault(stmt.target, stmt) != stmt:
            at[stmt.target] = stmt
            known = {s: name for s, name in known.items() if stmt.target not in ir.operands(s)}
        if isinstance(stmt, ir.Clamp) or (isinstance(stmt, ir.Load) and stmt.buffer not in inputs):
            return (stmt,)
        assert isinstance(stmt, ir.Compute | ir.Choose | ir.FromIndex | ir.Load)
        first = known.setdefault(replace(stmt, target=""), stmt.target)
        if first == stmt.target:
            return (stmt,)
        names[stmt.target] = first
        return ()

    found = []
    for phase in phases:
        before = {id(s) for s in parts(phase).before}
        found.append(with_nest(phase, rewritten(phase.nest, reused)))
    return found

