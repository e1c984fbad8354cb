"""What passes are made of: a loop split, exchanged with the one inside it, or taken in two pieces; statements hoisted.

In:  a loop. Out: statements in its place. Each keeps what the loop computes, or raises KernelError: so a
pass that is made of them is right, and ``kernel.turns`` checks it all the same.
"""

from dataclasses import replace

from ..errors import KernelError
from ..kernel import ir
from ..kernel.show import show_stmt
from ..stitch.index import ZERO, Index, Within, variables_of, whole


def split(loop: ir.Loop, size: int, outer: str, inner: str) -> ir.Loop:
    """A loop as one over groups of ``size`` turns, and in it one over the turns of a group, by the same takers.

    Raises KernelError if the loop does not count from 0 in steps of 1, or has turns that are left out.

    Before:  for col in 0..768, threads: body
    After:   for c0 in 0..12:  for c1 in 0..64, threads:  col = c0 * 64 + c1; body
    """
    if loop.first != ZERO or loop.step != 1 or loop.within or size < 1:
        raise _cannot(loop, f"split into groups of {size}", "it takes turns 0, 1, ... of which none is left out")
    value = whole(outer) * size + whole(inner)
    past = (Within(value, 0, loop.turns),) if loop.turns % size else ()
    group = replace(loop, var=inner, turns=size, within=past, body=(ir.Let(loop.var, value), *loop.body))
    return ir.Loop(outer, ZERO, -(-loop.turns // size), (group,))


def interchange(loop: ir.Loop) -> ir.Loop:
    """A loop and the one inside it, exchanged.

    Raises KernelError if something else stands between them, or if the inner one's turns depend on the outer one.

    Before:  for a in 0..3:  for b in 0..4:  body        After:  for b in 0..4:  for a in 0..3:  body
    """
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, ir.Loop) or loop.var in _variables(inner):
        raise _cannot(loop, "interchanged", "its body is one loop, whose turns do not depend on it")
    return replace(inner, body=(replace(loop, body=inner.body),))


def peel(loop: ir.Loop, turns: int) -> tuple[ir.Loop, ir.Loop]:
    """A loop in two pieces: its first ``turns``, and the others.

    Raises KernelError if there are fewer turns, or if several takers share them.

    Before:  for col in 0..32: body        After:  for col in 0..16: body;  for col in 16..32: body
    """
    if not 0 < turns < loop.turns or loop.by != "one" or loop.first.terms:
        raise _cannot(loop, f"peeled after {turns} turns", "it is one taker's, begins at a number, and has more turns")
    rest = replace(loop, first=loop.first + turns * loop.step, turns=loop.turns - turns)
    return replace(loop, turns=turns), rest


def hoist(loop: ir.Loop) -> ir.Nest:
    """A loop behind those of its computations that do not change from turn to turn.

    Loads stay: a loop of no turns must read nothing.

    Before:  for col in 0..32:  v1 = sqrt v0;  v2 = mul v1 v3       After:  v1 = sqrt v0;  for col in 0..32:  v2 = mul v1 v3
    """
    stays = {s.target for s, _ in ir.walk(loop.body) if isinstance(s, ir.Value)}
    before = list[ir.Stmt]()
    for stmt in loop.body:
        if isinstance(stmt, ir.Compute) and stays.isdisjoint(stmt.args):
            before.append(stmt)
            stays.discard(stmt.target)
    return (*before, replace(loop, body=tuple(s for s in loop.body if s not in before)))


def _variables(loop: ir.Loop) -> frozenset[str]:
    indices: list[Index] = [loop.first, *(c.index for c in loop.within)]
    return variables_of(indices)


def _cannot(loop: ir.Loop, what: str, needs: str) -> KernelError:
    return KernelError(f"a loop cannot be {what} unless {needs}, in: {show_stmt(loop)}")
