"""Equal index arithmetic is computed once, as soon as all of its variables are set.

In:  the syntax tree of a kernel's function. Out: the same, with names for the arithmetic that it
     repeats.

The windows and conditions of a stencil repeat their indices so often that they were nine tenths of
its time to compile: Numba infers the type of each operation. The machine code stays, because
LLVM finds equal operations by itself.

Before:  for i in range(n):                After:  for i in range(n):
             a = x[i * 4 + 2]                          n0 = i * 4
             b = x[i * 4 + 3]                          a = x[n0 + 2]
                                                       b = x[n0 + 3]
"""

import ast
from collections import Counter
from collections.abc import Iterator, Set
from itertools import count
from typing import Any

ARITHMETIC = (ast.BinOp, ast.Compare, ast.UnaryOp, ast.operator, ast.cmpop, ast.unaryop,
              ast.expr_context)


class Renaming(ast.NodeTransformer):
    """Replaces operations and variables by the names that belong to their texts."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        name = None
        if isinstance(node, ast.BinOp | ast.Compare | ast.Name):
            name = self.names.get(ast.unparse(node))
        if name is None:
            return self.generic_visit(node)
        return ast.copy_location(ast.Name(name, getattr(node, "ctx", ast.Load())), node)


def named_once(function: ast.FunctionDef) -> None:
    """Name the index arithmetic that a function repeats ``n0``, ``n1`` and so on."""
    function.body = _block(function.body, frozenset(), (f"n{k}" for k in count()))


def _block(body: list[ast.stmt], known: Set[str], names: Iterator[str]) -> list[ast.stmt]:
    """The statements of a block. ``known``: integer variables that are set before it."""
    found: list[ast.stmt] = []
    fresh = bool(known)  # whether a variable is known whose repetitions have no names
    while body:
        if fresh:
            made, body = _repeated(body, known, names)
            found += [ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), body[0])
                      for name, value in made.items()]
            known, fresh = known | made.keys(), False
        statement, *body = body
        found.append(statement)
        match statement:
            case ast.For(ast.Name(variable)):
                statement.body = _block(statement.body, known | {variable}, names)
            case ast.Assign([ast.Name(variable)], value) if _is_index(
                    value, known | {"min", "max"}, (ast.IfExp, ast.Call)):
                known, fresh = known | {variable}, True
    return found


def _repeated(body: list[ast.stmt], known: Set[str],
              names: Iterator[str]) -> tuple[dict[str, ast.expr], list[ast.stmt]]:
    """What the statements compute repeatedly from variables that none of them sets.

    Also the statements with its names.
    """
    nodes = [node for statement in body for node in ast.walk(statement)]
    known -= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    times = Counter(ast.unparse(n) for n in nodes
                    if isinstance(n, ast.BinOp | ast.Compare) and _is_index(n, known))
    made: dict[str, ast.expr] = {}
    texts: dict[str, str] = {}
    # A part comes before the whole.
    for text in sorted((text for text, n in times.items() if n > 1), key=len):
        name = next(names)
        made[name], texts[text] = Renaming(texts).visit(ast.parse(text, mode="eval").body), name
    return made, [Renaming(texts).visit(statement) for statement in body] if made else body


def _is_index(value: ast.expr, known: Set[str], more: tuple[type, ...] = ()) -> bool:
    """Whether a value is computed from integers and known variables alone."""
    return all(node.id in known if isinstance(node, ast.Name) else
               type(node.value) is int if isinstance(node, ast.Constant) else
               isinstance(node, (*ARITHMETIC, *more)) for node in ast.walk(value))
