"""The NumPy frontend: run a NumPy function once, on arrays that record instead of computing.

In:  a function and its arguments: nests of arrays, or of ``TensorType`` if only shapes are known.
Out: a ``Program``: the ``Graph``, and how arguments and results are nested.

``array`` holds the traced array, with its storage and views. ``ufuncs``, ``reductions``,
``shapes``, ``indexing`` and ``products`` say what NumPy's functions record. ``shim`` is what the
traced function sees as ``np``; it also traces NumPy's own source. ``recorder`` makes nodes and
finds the user's line, and ``builder`` gives them types. ``tree`` takes nested arguments apart.
``outside`` sees what the function reads and writes besides its arguments, and ``reads`` reads it
again at each call. ``refusals`` says why something cannot be traced, and what to write instead.
"""

import functools
import gc
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import MinisitchError, TraceError
from ..errors.progress import now
from ..errors.undisturbed import undisturbed
from ..graph import Graph
from . import indexing, products, reductions, shapes, ufuncs  # noqa: F401  they fill the tables
from .array import TracedArray, fresh, lift
from .masked import Masked
from .numbers import Number
from .outside import INSTEAD, Outside
from .reads import Reader, Stale, raises, write_reader
from .recorder import (
    ACTIVE,
    Recorder,
    check_dtype,
    current,
    left_at,
    program_file,
    program_line,
    raised_by_user,
    refuse,
)
from .refusals import LOST, refuse_other
from .results import require_plain
from .shim import rebind
from .tracebacks import door, run_program
from .tree import (
    Branch,
    Inputs,
    Leaf,
    Numbers,
    Static,
    Tree,
    flatten,
    is_array,
    named_parts,
    refuse_other_meanings,
    require_end,
    type_of,
    unflatten,
    with_statics,
)
from .ufuncs import erf

__all__ = ["Array", "Branch", "Leaf", "Program", "Stale", "Static", "Tree", "erf", "flatten",
           "is_array", "trace", "type_of", "unflatten"]


@dataclass(frozen=True)
class Program:
    """A traced function: what it computes, and how its arguments and results are nested.

    - ``inputs``: the tree of ``(args, kwargs)``. Leaf *i* is the graph's *i*-th input.
    - ``outputs``: the tree of the result. Leaf *i* is the graph's *i*-th output.
    - ``captured``: real arrays from outside (closed-over weights) as they were during the trace,
      in the order of the graph's last inputs. ``outside()`` reads them again.
    - ``mutated``: (input position, output position) of arguments changed in place. These outputs
      come after the returned ones.
    - ``exact``: whether each element-wise value is NumPy's to the last bit. If not, products may
      be contracted into sums.
    - ``guards``: (output position, error, message). A call raises the error, as NumPy does, if
      that output is true.
    - ``in_rows``: (input position, line) of arguments that must lie in C order. Elsewhere NumPy
      would make other values at that line, or a copy that it writes to instead of a view.
    - ``fixed``: the positions of Python numbers, among the leaves, whose values the program asked
      for.
    """

    graph: Graph
    inputs: Tree
    outputs: Tree
    captured: tuple[np.ndarray, ...]
    mutated: tuple[tuple[int, int], ...]
    exact: bool = True
    reader: Reader | None = field(default=None, compare=False)
    guards: tuple[tuple[int, type[Exception], str], ...] = ()
    in_rows: tuple[tuple[int, str], ...] = ()
    fixed: frozenset[int] = frozenset()

    def outside(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The arrays from outside as they are now, with computed numbers, as in ``captured``.

        The numbers are those that the program computes from its arguments. Raises Stale if
        something that the program has read or asked for is no longer as it was during the trace.
        """
        return self.reader.function(leaves) if self.reader else self.captured

    @functools.cached_property
    def numbers(self) -> frozenset[int]:
        """The positions of Python numbers among the graph's inputs."""
        given = [part.position for _, part in named_parts(self.inputs) if isinstance(part, Leaf) and part.number]
        first = len(self.graph.inputs) - len(self.captured)
        return frozenset(given) | {first + i for i in (self.reader.numbers if self.reader else ())}

    def check(self, results: Sequence[np.ndarray]) -> None:
        """Raise the error of the first guard that is true. ``results`` are the graph's outputs."""
        for position, error, message in self.guards:
            if results[position]:
                raise error(message)

    def __str__(self) -> str:
        return str(self.graph)


@door
def trace(fn: Callable, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, numbers: Numbers | None = None) -> Program:
    """Record what ``fn(*args, **kwargs)`` does.

    Ints and bools among the arguments become part of the program. Arrays, NumPy scalars and Python
    floats become its inputs. ``numbers`` can change this for Python numbers. Arguments are taken to
    be in C order and to share no memory: this decides what a reshape of them writes to. ``fn`` runs
    as a copy that sees a stand-in for its module's ``np`` (see ``shim``). The module itself is
    untouched.

    Raises TraceError, with the user's line and a remedy, for what depends on values, even if ``fn``
    catches the error. Raises NumPy's own errors for wrong shapes, dtypes and indices.
    """
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise TraceError(f"trace takes the arguments of a function as a tuple, trace(f, (x,)), not {args!r:.60}")
    arguments, numbers = (tuple(args), dict(kwargs or {})), numbers or Numbers()
    takes = Inputs(numbers)
    leaves, _ = flatten(arguments, takes)
    try:
        return _trace(fn, arguments, numbers)
    except MinisitchError:
        raise
    except Exception as error:
        if not takes.places or raised_by_user(error):
            raise
    # a library may not know a number that each call computes: take the values
    program = _trace(fn, arguments, replace(numbers, fixed=numbers.fixed | {*takes.places}))
    found = [i for i, each in enumerate(leaves) if type(each) in (float, int)]
    return replace(program, fixed=frozenset(found))


def _trace(fn: Callable, arguments: tuple[tuple, dict[str, Any]], numbers: Numbers) -> Program:
    leaves, inputs = flatten(arguments, Inputs(numbers))
    recorder = Recorder(program_file(fn), program_line(fn))
    recorded = recorder.builder.nodes  # without the recorder, which refers to the world outside
    now(lambda: f"tracing operation {len(recorded)}")
    before = ACTIVE.get()
    try:
        ACTIVE.set(recorder)
        parts = _named_parts(fn, inputs)
        roots = [("", fn), *((name, p.value) for name, p in parts if isinstance(p, Static))]
        outside = recorder.outside = Outside(roots)
        names = [re.sub(r"[^\w.]", "_", name) for name, part in parts if isinstance(part, Leaf)]
        arrays = [_parameter(leaf, name, i) for i, (leaf, name) in enumerate(zip(leaves, names, strict=True))]
        result, positional, named = _run(fn, inputs, arrays, recorder)
        recorder.ended = True
        _require_same_nest((positional, named), inputs, arrays, [re.split(r"\W", name)[0] for name, _ in parts])
        require_end((), {"": result}, "the result", _is_traced)
        results, outputs = flatten(result, _is_traced)
        outputs = with_statics(outputs, outside.original)
        results = [lift(each) for each in results]
        require_plain(outputs, results)
        nodes = [each.node for each in results]
        changed = [(i, each._storage.node) for i, each in enumerate(arrays)
                   if isinstance(each, TracedArray) and each._storage.version]
        returned = {id(part.value) for _, part in named_parts(outputs) if isinstance(part, Static)}
        del result
        held = recorder.held()
        captured = tuple(array for array, _ in recorder.captured.values())
        reader = write_reader(roots, captured, recorder)
        if hidden := held - returned - (reader.found if reader else set()):
            raise recorder.refuse_hidden(min(hidden))
    except MinisitchError:
        raise
    except Exception as error:
        # C code, or the program, has replaced our refusal by an error of its own
        if lost := recorder.lost():
            raise lost.with_traceback(error.__traceback__) from None
        # C code of another library, which does not know our array
        if "traced array" in str(error) or "not producing an array" in str(error):
            raise refuse_other(error).with_traceback(error.__traceback__) from None
        raise
    finally:
        ACTIVE.set(before)  # first: an interrupt may come between any two calls
        recorder.refused.clear()  # the errors hold the frames of the program
    outside.forget()
    graph = recorder.builder.finish([*nodes, *(n for _, n in changed), *recorder.guards.values()])
    mutated = tuple((i, len(nodes) + place) for place, (i, _) in enumerate(changed))
    guards = tuple((len(nodes) + len(changed) + place, *error) for place, error in enumerate(recorder.guards))
    return Program(graph, inputs, outputs, captured, mutated, reader=reader, guards=guards,
                   in_rows=_in_rows(arrays, recorder), fixed=frozenset(recorder.fixed))


def _in_rows(arrays: Sequence[Any], recorder: Recorder) -> tuple[tuple[int, str], ...]:
    """The arguments whose layout decides what the program does, each with one such line."""
    places = {id(each._storage): i for i, each in enumerate(arrays) if type(each) is TracedArray}
    asked = {}
    for storage, version, made, where in recorder.layouts:
        copied = made is not None and made is not storage
        decides = made is None or storage.version > version or (copied and made.version)
        if id(storage) in places and decides:
            asked[places[id(storage)]] = where
    return tuple(asked.items())


def _run(fn: Callable, inputs: Tree, arrays: Sequence[TracedArray | Number], recorder: Recorder) -> tuple[Any, tuple, dict]:
    """Run the program while the world outside is locked.

    Returns its result, and its arguments as it left them.
    """
    if asked := raises():
        raise refuse(f"a call under np.errstate({asked}), or np.seterr", "kernels divide by zero in silence",
                     "Call it under np.errstate(all='warn'), and check the result, as with np.isfinite(y).all()", recorder.begins)
    outside, called = recorder.outside, rebind(fn)
    positional, named = unflatten(with_statics(inputs, outside.seen), arrays)
    collects = gc.isenabled()
    gc.disable()  # it closes generators of other programs: their code would seem to be this one's
    try:
        outside.close()
        result = run_program(called, positional, named)
        outside.require_unasked()
        recorder.require_honest()
        outside.watch(False)
        if found := undisturbed(outside.reopen):
            raise refuse(*found)
        recorder.require_unchanged()
    except (ValueError, TypeError) as error:
        if "read-only" in str(error) and (where := left_at(error)):
            raise refuse("the program writes to an array from outside", LOST, INSTEAD, where) from error
        raise
    finally:
        outside.watch(False)
        undisturbed(outside.reopen)
        if collects:
            gc.enable()
    return result, positional, named


def _require_same_nest(arguments: Any, inputs: Tree, arrays: Sequence[TracedArray | Number], names: Sequence[str]) -> None:
    """Raise TraceError if the program has replaced something in a dict or list of its arguments.

    It only has a copy, so the caller would not see the change. ``names`` are the parameters'.
    """
    left, tree = flatten(arguments, _is_traced)
    if with_statics(tree, current().outside.original) != inputs or any(a is not b for a, b in zip(left, arrays, strict=True)):
        raise refuse("the program puts something else into a dict or list of its arguments, "
                     "as p['w'] = p['w'] - step does", "the caller's dict or list would not change",
                     "Change the array in place, p['w'][...] = ..., or return it",
                     current().outside.line_of(names))


def _parameter(leaf: Any, name: str, position: int) -> TracedArray | Number:
    """An argument as a traced array. A NumPy scalar stays a scalar: it cannot change in place."""
    refuse_other_meanings(leaf)
    if type(leaf) in (float, int):
        node = current().input(type_of(leaf), name)
        return Number(current(), f"leaves[{position}]", leaf, frozenset([position]), node if type(leaf) is float else None)
    dtype = leaf.dtype if isinstance(leaf.dtype, np.dtype) else np.dtype(type_of(leaf).dtype)
    check_dtype(dtype.newbyteorder("="), f"the argument {name} is an array of", current().begins)
    array = fresh(current().input(type_of(leaf), name), scalar=isinstance(leaf, np.generic))
    if not dtype.isnative:
        array._storage.swapped = True
        current().swapped.add(array.node)
    return array


def _is_traced(value: object) -> bool:
    """Whether a value of the result is an output. A call returns copies of real arrays in it."""
    if isinstance(value, Masked):
        value.refuse()
    return isinstance(value, TracedArray) or type(value) is Number


def _named_parts(fn: Callable, inputs: Tree) -> list[tuple[str, Leaf | Static]]:
    """The leaves and static values among the arguments, named after the function's parameters."""
    assert isinstance(inputs, Branch)
    positional, named = inputs.children
    assert isinstance(positional, Branch)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    found: list[tuple[str, Leaf | Static]] = []
    for i, child in enumerate(positional.children):
        plain = i < len(parameters) and parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL
        found.extend(named_parts(child, parameters[i].name if plain else f"arg{i}"))
    return [*found, *named_parts(named)]
