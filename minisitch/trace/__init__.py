"""The NumPy frontend: run a NumPy function twice, on arrays that record instead of computing.

In:  a function and its arguments: nests of arrays, or of ``TensorType`` if only shapes are known.
Out: a ``Program``: the ``Graph``, and how arguments and results are nested.

``array`` holds the traced array, with its storage and views. ``ufuncs``, ``functions`` and
``indexing`` say what NumPy's functions record, and ``creation`` which of them make arrays; it also
traces NumPy's own source. ``rewrite`` puts hooks into the program's
text, and ``hooks`` says what they do. ``outside`` is the contract: what the program may read
besides its arguments. ``recorder`` makes nodes and finds the user's line, and ``builder`` gives
them types. ``tree`` takes nested arguments apart. ``scalars`` are Python numbers. ``refusals`` says
why something cannot be traced, and what to write instead.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import BuiltinFunctionType, EllipsisType, FunctionType, ModuleType, NotImplementedType
from typing import Any

import numpy as np

from ..errors import MinisitchError, TraceError
from ..errors.progress import now
from ..graph import Graph, Node, TensorType
from . import creation, functions, indexing, ufuncs  # noqa: F401  they fill the tables
from .array import OUTSIDE, TracedArray, fresh, lift
from .calls import copy_of, run_call
from .hooks import call
from .indexing import Masked
from .outside import INSTEAD, Outside, Paths, Stale, alike, is_plain, raising, require_array, seen_as_traced
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
from .refusals import LOST, NO_VALUE, refuse_other
from .refusals import OUTSIDE as AWAY
from .rewrite import is_rewritten
from .scalars import Number
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
)
from .ufuncs import erf

__all__ = ["Branch", "Leaf", "Program", "Stale", "Static", "Tree", "Unlike", "erf", "flatten",
           "is_array", "trace", "type_of", "unflatten"]
TWICE = ("the function was traced twice, and gave two different programs: it draws, looks at a clock, takes the next, "
         "or changes what it reads")
WRITE = "Draw or ask outside and pass that in as an argument, or draw from np.random.default_rng(seed), the same at every call"
Recorder.call = run_call  # type: ignore
Recorder.copy_of = lambda self, function: self.copies.setdefault(id(function), (function, copy_of(self, function)))[1]  # type: ignore


class Unlike(MinisitchError):
    """A condition holds under which the plain function raises, warns, or computes in another way."""


@dataclass(frozen=True)
class Once:
    """An array that the program got from what is looked at only once, such as an object of a library."""

    where: str
    type: TensorType
    made: str = ""  # the call that gave it


@dataclass(frozen=True)
class Program:
    """A traced function: what it computes, and how its arguments and results are nested.

    - ``inputs``: the tree of ``(args, kwargs)``. Leaf *i* is the graph's *i*-th input.
    - ``outputs``: the tree of the result. Leaf *i* is the graph's *i*-th output.
    - ``captured``: real arrays from outside (closed-over weights) as they were during the trace,
      in the order of the graph's last inputs. ``paths.read`` reads them again.
    - ``mutated``: (input position, output position) of arguments changed in place. These outputs
      come after the returned ones.
    - ``exact``: whether each element-wise value is NumPy's to the last bit. If not, products may
      be contracted into sums.
    - ``unlike``: the output that is true where the plain function would raise, warn, or compute in
      another way; and the line.
    - ``in_rows``: (input position, line) of arguments that must lie in C order. Elsewhere NumPy
      would make other values at that line, or a copy that it writes to instead of a view.
    - ``fixed``: the positions of Python numbers, among the leaves, whose values the program asked
      for.
    - ``once``: what the program looks at once.
    """

    graph: Graph
    inputs: Tree
    outputs: Tree
    captured: tuple[np.ndarray, ...]
    mutated: tuple[tuple[int, int], ...]
    exact: bool = True
    paths: Paths = field(default=Paths(), compare=False)
    unlike: tuple[int, str] | None = None
    in_rows: tuple[tuple[int, str], ...] = ()
    fixed: frozenset[int] = frozenset()
    once: tuple[Once, ...] = ()

    def outside(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """The arrays from outside as they are now, as in ``captured``.

        Raises Stale if something that the program has read is no longer as it was during the trace.
        """
        now = self.paths.read(leaves)
        for array, place in zip(now, self.paths.inputs, strict=False):
            require_array(array, *place.was)
        return [now[each] if type(each) is int else each for each in self.paths.arrays] if self.paths else self.captured

    @property
    def numbers(self) -> frozenset[int]:
        """The positions of Python numbers among the graph's inputs."""
        return frozenset(part.position for _, part in named_parts(self.inputs)
                         if isinstance(part, Leaf) and part.number)

    def check(self, results: Sequence[np.ndarray]) -> None:
        """Raise Unlike if the plain function would do something else.

        ``results`` are the graph's outputs.
        """
        if self.unlike and results[self.unlike[0]]:
            raise Unlike(unlike_message(self.unlike[1]))

    def __str__(self) -> str:
        return str(self.graph)


def unlike_message(line: str) -> str:
    return (f"{line}: here the plain function raises an error, warns, or computes with other numbers than a kernel has; "
            "call the jitted function, which runs the plain one then")


@door
def trace(fn: Callable, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None,
          numbers: Numbers | None = None) -> Program:
    """Record what ``fn(*args, **kwargs)`` does.

    Ints and bools among the arguments become part of the program. Arrays, NumPy scalars and Python
    floats become its inputs. ``numbers`` can change this for Python numbers. Arguments are taken to
    be in C order and to share no memory: this decides what a reshape of them writes to. ``fn`` runs
    as a copy with hooks (see ``rewrite``), twice; what it prints, it prints once.

    Raises TraceError, with the user's line and a remedy, for what depends on values, even if ``fn``
    catches the error; and if the two runs differ. Raises NumPy's own errors for wrong shapes,
    dtypes and indices.
    """
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise TraceError(f"trace takes the arguments of a function as a tuple, trace(f, (x,)), not {args!r:.60}")
    arguments, numbers = (tuple(args), dict(kwargs or {})), numbers or Numbers()
    takes = Inputs(numbers)
    leaves, _ = flatten(arguments, takes)
    try:
        return _traced_twice(fn, arguments, numbers)
    except MinisitchError:
        raise
    except Exception as error:
        if not takes.places or raised_by_user(error):
            raise
    # a library may not know a number that each call has anew: take the values
    program = _traced_twice(fn, arguments, replace(numbers, fixed=numbers.fixed | {*takes.places}))
    found = [i for i, each in enumerate(leaves) if type(each) in (float, int)]
    return replace(program, fixed=frozenset(found))


def _traced_twice(fn: Callable, arguments: tuple[tuple, dict[str, Any]],
                  numbers: Numbers) -> Program:
    """The program of the second run, if the first gave the same.

    An effect of the first may have changed it.
    """
    first = _trace(fn, arguments, numbers)
    try:
        second = _trace(fn, arguments, numbers, silent=True)
    except MinisitchError:
        raise
    except Exception as error:
        raise refuse(f"{type(error).__name__}: {error}, when it runs again", TWICE, WRITE,
                     left_at(error, ours=True) or program_line(fn)) from error
    if difference := _difference(first, second):
        where, what = difference
        raise refuse(what, TWICE, WRITE, (where, "") if where else program_line(fn))
    return second


def _difference(first: Program, second: Program) -> tuple[str, str] | None:
    """Where two programs differ, and in what."""
    constants = {node: i for i, node in enumerate(first.graph.inputs[len(first.graph.inputs) - len(first.captured):])}
    for a, b in zip(first.graph.nodes, second.graph.nodes, strict=False):
        if (a.op, a.args, a.type, repr(a.attrs)) != (b.op, b.args, b.type, repr(b.attrs)):
            return b.where or a.where, f"{_said(a)} once and {_said(b)} then"
        if a.id in constants:
            i = constants[a.id]
            if type(first.paths.arrays[i]) is not int and first.captured[i].tobytes() != second.captured[i].tobytes():
                reader = next((n for n in first.graph.nodes if a.id in n.args), a)
                once = second.once[sum(type(each) is not int for each in second.paths.arrays[:i])]
                where, made = (once.where, f"{once.made}(), ") if once.made else (reader.where, "")
                return where, f"{made}{a.type} of other values each time"
    if len(first.graph) != len(second.graph):
        longer = max(first, second, key=lambda each: len(each.graph)).graph
        return longer.nodes[min(len(first.graph), len(second.graph))].where, "operations that only one run records"
    if first.outputs != second.outputs or first.graph.outputs != second.graph.outputs:
        return "", "the results are nested in another way, or hold other values, each time"
    return None


def _said(node: Node) -> str:
    return f"{node.type} {node.op}" + (f" {' '.join(node.attrs_shown)}" if node.attrs else "")


def _trace(fn: Callable, arguments: tuple[tuple, dict[str, Any]], numbers: Numbers, silent: bool = False,
           shared: bool = False) -> Program:
    """One run.

    ``shared``: an array that is given twice is one, which matters to programs that write, or ask
    what is the same.
    """
    leaves, inputs = flatten(arguments, Inputs(numbers))
    recorder = Recorder(program_file(fn), program_line(fn), silent)
    outside = recorder.outside = Outside(recorder)
    recorded = recorder.builder.nodes  # without the recorder, which refers to the world outside
    now(lambda: f"tracing operation {len(recorded)}")
    before, arrays = ACTIVE.get(), []  # type: ignore[var-annotated]
    try:
        ACTIVE.set(recorder)
        parts = _named_parts(fn, inputs)
        leaf_names = [re.sub(r"[^\w.]", "_", name) for name, part in parts
                      if isinstance(part, Leaf)]
        arrays = _parameters(leaves, leaf_names, outside, shared)
        for name, part in parts:
            if isinstance(part, Static) and not is_plain(part.value):
                outside.root(part.value, name)
        result, positional, named = _run(fn, inputs, arrays, recorder)
        recorder.ended = True
        _require_same_nest((positional, named), inputs, arrays)
        require_end((), {"": result}, "the result", _is_traced)
        outside.taken(result)
        results, outputs = flatten(result, _is_traced)
        results = [lift(outside.seen(each)) for each in results]
        _require_plain(outputs, results)
        nodes = [each.node for each in results]
        changed = [(i, each._storage.node) for i, each in enumerate(arrays)
                   if isinstance(each, TracedArray) and each._storage.version and (not shared or recorder.first[i] == i)]
        if shared or not (changed or recorder.identified) or recorder.first == [*range(len(arrays))]:
            return _program(fn, recorder, inputs, outputs, nodes, changed, arrays, shared)
    except MinisitchError:
        raise
    except Exception as error:
        # C code, or the program, has replaced our refusal by an error of its own
        if lost := recorder.lost():
            raise lost.with_traceback(error.__traceback__) from None
        # C code of another library, which does not know our array
        if "traced array" in str(error) or "not producing an array" in str(error):
            raise refuse_other(error).with_traceback(error.__traceback__) from None
        # NumPy would have written to an argument before
        error.wrote = any(type(each) is TracedArray and each._storage.version for each in arrays)  # type: ignore[attr-defined]
        raise
    finally:
        ACTIVE.set(before)  # first: an interrupt may come between any two calls
        recorder.refused.clear()  # the errors hold the frames of the program
        recorder.outside.forget()
    return _trace(fn, arguments, numbers, silent, shared=True)


def _program(fn: Callable, recorder: Recorder, inputs: Tree, outputs: Tree, nodes: list[int], changed: list[tuple[int, int]],
             arrays: Sequence[Any], shared: bool) -> Program:
    outside, captured = recorder.outside, recorder.captured
    # which arguments are one array matters to a program that asked, that writes, or that was
    # given one twice
    matters = bool(recorder.identified or changed or shared)
    paths = outside.paths([array for array, _, _ in captured], recorder.asked, matters, fn)
    paths.arrays = [each if type(each) is int else content
                    for each, (_, content, _) in zip(paths.arrays, captured, strict=True)]
    unwalked = [node for each, (_, _, node) in zip(paths.arrays, captured, strict=True)
                if type(each) is not int]
    once = tuple(Once(line or recorder[recorder.reader(node)].where, recorder.type(node), made)
                 for node, (made, line) in ((each, recorder.sources[each]) for each in unwalked))
    condition = [] if recorder.condition is None else [recorder.condition]
    graph = recorder.builder.finish([*nodes, *(n for _, n in changed), *condition])
    mutated = tuple((i, len(nodes) + place) for place, (i, _) in enumerate(changed))
    return Program(graph, inputs, outputs, tuple(content for _, content, _ in captured), mutated, paths=paths,
                   unlike=(len(nodes) + len(changed), recorder.condition_at) if condition else None,
                   in_rows=_in_rows(arrays, recorder), fixed=frozenset(recorder.fixed), once=once)


def _in_rows(arrays: Sequence[Any], recorder: Recorder) -> tuple[tuple[int, str], ...]:
    """The arguments whose layout decides what the program does, each with one such line."""
    places = [(i, each._storage.layout) for i, each in enumerate(arrays)
              if type(each) is TracedArray]
    asked = {}
    for storage, version, made, where in recorder.layouts:
        copied = made is not None and made is not storage
        decides = made is None or storage.version > version or (copied and made.version)
        asked.update({i: where for i, own in places if decides and own & storage.layout})
    return tuple(asked.items())


def _run(fn: Callable, inputs: Tree, arrays: Sequence[TracedArray | Number],
         recorder: Recorder) -> tuple[Any, tuple, dict]:
    """Run the program. Returns its result, and its arguments as it left them."""
    if asked := raising():
        raise refuse(f"a call under np.errstate({asked}), or np.seterr", "kernels divide by zero in silence",
                     "Call it under np.errstate(all='warn'), and check the result, as with np.isfinite(y).all()", recorder.begins)
    outside = recorder.outside
    if inspect.ismethod(fn):
        outside.weak_root(fn.__self__)
    elif not isinstance(fn, FunctionType):
        outside.root(fn)
    positional, named = unflatten(inputs, arrays)
    try:
        result = run_program(call, (fn, *positional), named)
        recorder.require_honest()
    finally:
        left = outside.put_back()
    if left:
        raise refuse(f"{OUTSIDE} {left[0]}, outside of it", LOST, INSTEAD, (left[1] or recorder.begins[0], ""))
    return result, positional, named


def _require_same_nest(arguments: Any, inputs: Tree,
                       arrays: Sequence[TracedArray | Number]) -> None:
    """Raise TraceError if the program has replaced something in a dict or list of its arguments.

    It only has a copy, so the caller would not see the change.
    """
    left, tree = flatten(arguments, _is_traced)
    if tree != inputs or any(a is not b for a, b in zip(left, arrays, strict=True)):
        raise refuse("the program puts something else into a dict or list of its arguments, "
                     "as p['w'] = p['w'] - step does", "the caller's dict or list would not change",
                     "Change the array in place, p['w'][...] = ..., or return it", current().begins)


def _parameters(leaves: Sequence[Any], names: Sequence[str], outside: Outside,
                shared: bool) -> list[TracedArray | Number]:
    """The arguments as traced arrays."""
    current().first, outside.given = [*alike(leaves)], leaves
    made: list[Any] = []
    for i, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
        again = isinstance(leaf, np.ndarray) and current().first[i] != i
        made.append(_parameter(leaf, name, i))
        if again:
            made[i] = made[current().first[i]] if shared else made[i]
        elif isinstance(leaf, np.ndarray):
            outside.traced[id(leaf)], outside.leaves[id(leaf)] = made[i], i
        else:
            current().first[i] = i
    return made


def _parameter(leaf: Any, name: str, position: int) -> TracedArray | Number:
    """An argument as a traced array. A NumPy scalar stays a scalar: it cannot change in place."""
    refuse_other_meanings(leaf)
    if type(leaf) in (float, int):
        return Number(current(), current().input(type_of(leaf), name), type(leaf), leaf,
                      frozenset([position]))
    dtype = leaf.dtype if isinstance(leaf.dtype, np.dtype) else np.dtype(type_of(leaf).dtype)
    check_dtype(dtype if dtype.isnative else dtype.newbyteorder("="),
                f"the argument {name} is an array of", current().begins)
    array = fresh(current().input(type_of(leaf), name), scalar=isinstance(leaf, np.generic))
    if not dtype.isnative:
        array._storage.swapped = True
        current().swapped.add(array.node)
    return array


def _is_traced(value: object) -> bool:
    """Whether a value of the result is an output."""
    if isinstance(value, Masked):
        value.refuse()
    return isinstance(value, TracedArray) or type(value) is Number or seen_as_traced(value)


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


# ---------------------------------------------------------------- what a program may return
SINGLE = (type(None), EllipsisType, NotImplementedType, str, bytes, bool, int, float, complex, np.generic, np.ufunc, np.dtype,
          np.ndarray, slice, type, ModuleType, BuiltinFunctionType, range, Enum)


def _require_plain(tree: Tree, results: Sequence[TracedArray]) -> None:
    """Raise TraceError for a result that the caller could not use.

    It would be a stand-in, used up, or in the wrong byte order. An object that the program makes is
    made once, and callers may change it: it is refused.
    """
    recorder = current()
    for array in results:
        if array._move is not None and ("mode", "flat") in array._move.attrs:
            raise refuse("the program returns x.flat", "it goes through an array's memory",
                         "Return x.ravel()", recorder.begins)
        node = array.node
        while recorder[node].kind == "move" or recorder[node].op == "sort":
            node = recorder[node].args[0]
        if node in recorder.swapped or array._storage.swapped:
            raise refuse("the program returns elements of an argument whose bytes are not in this "
                         "machine's order", "NumPy gives them in that order, and results are in "
                         "the machine's", "Pass x.astype(x.dtype.newbyteorder('=')) instead of x",
                         recorder.begins)
    for _, part in named_parts(tree):
        if isinstance(part, Static):
            _require_value(part.value)


def _require_value(value: Any) -> None:
    recorder = current()
    refuse_other_meanings(value)
    if isinstance(value, str) and any(text in value for text in recorder.shown):
        raise refuse("the program returns a text of a traced array", NO_VALUE, AWAY,
                     recorder.begins)
    if isinstance(value, frozenset):
        for each in value:
            _require_value(each)
        return
    outside = id(value) in recorder.outside.places or (isinstance(value, FunctionType)
                                                       and not is_rewritten(value.__code__))
    if not outside and not isinstance(value, SINGLE):
        raise refuse(f"the program returns a {type(value).__name__} that it has made",
                     "it runs only while it is traced, so every call would return the same object, and arrays in it hold no values",
                     "Return the arrays in a tuple, a list or a dict; make the object outside", recorder.begins)
