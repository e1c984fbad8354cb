"""``jit(f, check=True)``: each call also runs the plain function, and compares.

In:  a call of a jitted function. Out: its result, or ``CheckError`` with the first difference.

A jitted function means what NumPy means for its arguments, and for what it reads from outside by a
plain path. Everything else it has looked at once (see ``trace.outside``). Whether that still holds,
this tells at each call, for the price of a plain call and of the judge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CheckError, MinisitchError
from ..trace import Branch, Leaf, Program
from ..trace.outside import is_other_plain, is_plain
from ..trace.tree import flatten, is_array, unflatten
from .judge import judge


@dataclass(frozen=True)
class Plain:
    """The result of a call for which the plain function ran: there is nothing to compare."""

    result: Any


def copied(arguments: Any, written: Any = None, of: dict[int, Any] | None = None) -> tuple[Any, dict[int, Any]]:
    """The arguments with copies of their arrays, and the copies by the ids of the arrays.

    One array given twice stays one. ``written``: the ids of the arrays to copy, all without it.
    ``of``: what they held, by id.
    """
    leaves, tree = flatten(arguments, is_array)
    made: dict[int, Any] = {}
    for each in leaves:
        if isinstance(each, np.ndarray) and id(each) not in made and (written is None or id(each) in written):
            made[id(each)] = (of or {}).get(id(each), each).copy(order="K")
    return unflatten(tree, [made.get(id(each), each) for each in leaves]), made


def outcome(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Exception | None]:
    """What a call returns, or raises."""
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        return None, error


def compare(name: str, program: Program, inputs: Sequence[Any], got: Any, want: Any, left: Sequence[Any], written: Sequence[Any],
            again: Callable[[], Program]) -> None:
    """Raise CheckError unless both results mean what the program means.

    ``left`` and ``written`` are the arguments' leaves after the plain call and after the jitted
    one.
    """
    results = []
    for what, value, leaves in (("NumPy", want, left), (name, got, written)):
        found: list[Any] = []
        if why := _matched(program.outputs, value, found, "the result"):
            raise CheckError(f"{name}: {what} gives another nest than the traced program: {why}. {_changed(program, again)}")
        results.append([np.asarray(each) for each in [*found,
                                                      *(leaves[i] for i, _ in program.mutated)]])
    graph = replace(program.graph, outputs=program.graph.outputs[:len(results[0])])
    arrays = [np.asarray(each) for each in inputs]
    for i, (plain, compiled) in enumerate(zip(*results, strict=True)):
        alone = replace(graph, outputs=(graph.outputs[i],))
        verdict, own = judge(alone, arrays, [plain])[0], judge(alone, arrays, [compiled])[0]
        if verdict.ok and own.ok:
            continue
        what = f"result {i}" if i < len(results[0]) - len(program.mutated) else "an argument that it changes"
        raise CheckError(f"{name}: {what} differs from NumPy's: {_first(compiled, plain)}. {_changed(program, again)}")


def _matched(tree: Any, value: Any, found: list[Any], name: str) -> str:
    """Collect the leaves of a result in the program's order.

    Returns where the nest differs, or nothing.
    """
    if isinstance(tree, Leaf):
        found.append(value)
        kind = type(value).__name__
        return "" if is_array(value) or kind == tree.number else f"{name} is a {kind}"
    if not isinstance(tree, Branch):
        other = is_other_plain(value, tree.value) if is_plain(value) else type(value) is not type(tree.value)
        return f"{name} is {value!r:.60}, and not {tree.value!r:.60}" if other else ""
    if type(value) is not tree.container or not isinstance(value, dict | list | tuple):
        return f"{name} is a {type(value).__name__}, and not a {tree.container.__name__}"
    keys: Sequence[Any] = [*value] if isinstance(value, dict) else range(len(value))
    if (isinstance(value, dict) and tuple(keys) != tree.keys) or len(keys) != len(tree.children) - len(tree.attributes):
        return f"{name} has {len(keys)} elements, {[*keys]!r:.60}"
    return next(filter(None, (_matched(child, value[key], found, f"{name}[{key!r}]")
                              for key, child in zip(keys, tree.children, strict=False))), "")


def _first(got: np.ndarray, want: np.ndarray) -> str:
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"it is {got.dtype}{[*got.shape]}, and NumPy's is {want.dtype}{[*want.shape]}"
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
    place = np.unravel_index(int(np.argmax(np.where(got == want, -1.0,
                                                    np.nan_to_num(apart, nan=np.inf)))), got.shape)
    at = tuple(map(int, place))
    return f"at {at} it is {got[at]!s}, and NumPy has {want[at]!s}"


def _changed(program: Program, again: Callable[[], Program]) -> str:
    """Which of what the program has looked at once is now another."""
    try:
        now = again()
    except MinisitchError as error:
        return f"Traced again, it is refused: {error}"
    if len(now.once) == len(program.once) and str(now.graph) == str(program.graph):
        pairs = zip(program.paths.arrays, now.paths.arrays, strict=True)
        constants = [(a, b) for a, b in pairs if isinstance(a, np.ndarray)]
        lines = [each.where for each, (a, b) in zip(program.once, constants, strict=True)
                 if a.tobytes() != b.tobytes()]
        if not lines:
            return "Nothing that it looked at once has changed: this is a fault of minisitch, please report it"
        return f"Looked at once, and changed since: what it reads at {', '.join(dict.fromkeys(lines))}. Pass it in as an argument"
    before, after = str(program.graph).splitlines(), str(now.graph).splitlines()
    line = next((b for a, b in zip(before, after, strict=False) if a != b), after[-1])
    return f"Looked at once, and changed since: the function now gives another program, from here on: {line.strip()}"
