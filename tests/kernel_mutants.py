"""Small changes of a kernel's text, drawn by a seed: the slips of a tired programmer.

In:  a text and a seed. Out: mutants, each with the line and what was changed.
"""

import ast
import random
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """All mutants of a text, each with what was changed: ``line 7: < becomes <=``."""
    originals = list(ast.walk(ast.parse(text)))
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    for number, original in enumerate(originals):
        for change in CHANGES:
            said = change(nodes[number], tree)
            if said:
                before = ast.unparse(original).splitlines()[0]
                yield f"line {original.lineno}: {before}: {said}", ast.unparse(ast.fix_missing_locations(tree))
                tree = ast.parse(text)
                nodes = list(ast.walk(tree))


@lru_cache
def drawn(text: str, count: int, seed: int) -> list[tuple[str, str]]:
    """``count`` of them."""
    made = list(dict(reversed(list(mutants(text)))).items())
    return random.Random(seed).sample(made, min(count, len(made)))


def _bodies(tree):
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            if isinstance(getattr(node, name, None), list):
                yield getattr(node, name)


def _body_of(node, tree):
    return next((body for body in _bodies(tree) if any(each is node for each in body)), [])


def _is_barrier(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "sync" in ast.unparse(node.value.func)


def remove_barrier(node, tree):
    if _is_barrier(node):
        body = _body_of(node, tree)
        body[body.index(node)] = ast.Pass()
        return "removed"


def move_barrier(node, tree):
    if _is_barrier(node):
        body = _body_of(node, tree)
        place = body.index(node)
        if place:
            body[place - 1], body[place] = body[place], body[place - 1]
            return "a statement earlier"


def drop_guard(node, tree):
    if isinstance(node, ast.If) and not node.orelse:
        node.test = ast.Constant(True)
        return "always"


def drop_statement(node, tree):
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        body = _body_of(node, tree)
        body[body.index(node)] = ast.Pass()
        return "removed"


def off_by_one(node, tree):
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 10_000:
        node.value += 1
        return f"{node.value}"


def other_comparison(node, tree):
    swaps = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
    if isinstance(node, ast.Compare) and type(node.ops[0]) in swaps:
        node.ops[0] = swaps[type(node.ops[0])]()
        return ast.unparse(node)


def swap_operands(node, tree):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod):
        node.left, node.right = deepcopy(node.right), deepcopy(node.left)
        return ast.unparse(node)


def other_operator(node, tree):
    swaps = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv}
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in swaps:
        node.op = swaps[type(node.op)]()
        return ast.unparse(node)


CHANGES = (remove_barrier, move_barrier, drop_guard, drop_statement, off_by_one, other_comparison, swap_operands, other_operator)
