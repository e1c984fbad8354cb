"""A long kernel in parts: each of its loops becomes a function, and equal loops become one.

In:  the syntax tree of a kernel's function. Out: the function calls its parts. Their definitions.

Ten steps of a stencil are ten loops over other buffers, so two functions are enough for them.
A function without equal loops stays whole unless it is very long: Numba and LLVM take longer for
each statement the longer a function is, but every function costs them 0.1 s.

Before:  for i in range(n): t1[i] = x[i] * 2      After:  part0(n, t1, x)
         for i in range(n): t2[i] = t1[i] * 2             part0(n, t2, t1)
"""

import ast
from collections.abc import Iterable
from copy import deepcopy

from .indices import Renaming

LONG = 100  # statements of the longest function with equal loops that stays whole
VERY_LONG = 400  # statements of the longest function that stays whole


def in_parts(function: ast.FunctionDef, long: int = LONG,
             very_long: int = VERY_LONG) -> list[ast.FunctionDef]:
    """Replace the loops of a function by calls, and return the functions that they call.

    A function of at most ``long`` statements stays whole. Without equal loops, it does up to
    ``very_long``.
    """
    size = sum(isinstance(node, ast.stmt) for node in ast.walk(function))
    if size <= long:
        return []
    # Two names of the same bytes become one: arguments of a part do not overlap.
    same: dict[str, str] = {}
    for statement in function.body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Name(other)):
                same[name] = same.get(other, other)
    outside = {*_names(s for s in function.body if not isinstance(s, ast.For)),
               *(a.arg for a in function.args.args)}
    made: dict[str, ast.FunctionDef] = {}
    calls: dict[int, ast.stmt] = {}
    for k, statement in enumerate(function.body):
        names = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
        stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        if isinstance(statement, ast.For) and not stored & outside:
            loop = Renaming(same).visit(deepcopy(statement))
            used = _names([loop])
            given = [name for name in used if name in outside]
            mine = (n for n in used if n in outside or n in stored)
            renamed = {name: f"a{number}" for number, name in enumerate(mine)}
            loop = Renaming(renamed).visit(loop)
            declared = [ast.arg(renamed[name]) for name in given]
            arguments = ast.arguments([], declared, None, [], [], None, [])
            part = ast.FunctionDef(f"part{len(made)}", arguments, [loop], [])
            part = made.setdefault(ast.unparse(loop), part)
            value = call_of(part.name, *(ast.Name(name, ast.Load()) for name in given))
            calls[k] = ast.copy_location(ast.Expr(value), statement)
    if len(made) == len(calls) and size <= very_long:
        return []
    for k, run in calls.items():
        function.body[k] = run
    return list(made.values())


def _names(statements: Iterable[ast.stmt]) -> list[str]:
    """The names in statements, each once, in order."""
    nodes = (n for s in statements for n in ast.walk(s))
    return list(dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name)))


def call_of(name: str, *arguments: ast.expr) -> ast.Call:
    """The syntax of ``name(arguments)``."""
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
