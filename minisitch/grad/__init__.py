"""Gradients of NumPy functions: ``grad``, ``value_and_grad``, ``vjp``, ``jvp``, ``custom_vjp``.

In:  a function. Out: a jitted function that returns its derivatives, nested as its arguments are.

A derivative is recorded: called in a trace, ``grad(f)`` records ``f`` into the running trace, and
walks backwards over what it has recorded (``rules``). So everything that takes ``f`` takes
``grad(f)``: ``jit``, ``lower``, ``explain``, ``compare``, and another ``grad``. The names and their
meaning are JAX's, also at ties.

Before:  ms.grad(lambda x: np.sum(np.sin(x)))      After:  lambda x: np.cos(x)

A gradient by a Python float is computed in float64. Ints, texts and None among the arguments have
no derivative, and stand in the result as they are.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import needs
from ..graph import Graph
from ..ops import kind_of
from ..runtime import Jitted, Options, find, jit, noted
from ..runtime.executable import ReferenceExecutable
from ..trace import Program, flatten, unflatten
from ..trace.array import TracedArray, cast, constant, fresh, lift
from ..trace.calls import call
from ..trace.outside import Outside, attribute_of
from ..trace.recorder import ACTIVE, Recorder, current, program_line, refuse
from ..trace.scalars import Number
from ..trace.tree import Branch, Leaf, Tree
from .rules import Own, Total, found, pull

__all__ = ["custom_vjp", "grad", "gradient", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Function = Callable[..., Any]
TracedArrays = Sequence[TracedArray]


# ---------------------------------------------------------------- nests of arrays
def _is_leaf(value: Any) -> bool:
    if type(value) is Number:
        return value.kind is float
    return isinstance(value, TracedArray | np.ndarray | np.generic) or type(value) is float


def _floats(value: Any, what: str) -> tuple[list[TracedArray], Tree]:
    """The arrays in a nest. Raises TraceError for one without a derivative, or if there is none."""
    leaves, tree = flatten(value, _is_leaf)
    arrays = [lift(each) for each in leaves]
    wrong = [f"an array of {x.dtype}" for x in arrays if kind_of(x.type.dtype) != "float"]
    if wrong or not arrays:
        seen = wrong[0] if wrong else f"a {type(value).__name__} without floats"
        raise refuse(f"the gradient {what} {seen}", "only floats have derivatives",
                     "Pass x.astype(np.float32), or leave it out of argnums")
    return arrays, _without_numbers(tree)


def _without_numbers(tree: Tree) -> Tree:
    """The nest with arrays in the places of Python numbers."""
    if isinstance(tree, Branch):
        return replace(tree, children=tuple(map(_without_numbers, tree.children)))
    return replace(tree, number="") if isinstance(tree, Leaf) else tree


def _own_nodes(arrays: TracedArrays) -> list[TracedArray]:
    """The same arrays under nodes of their own, in memory of their own."""
    nodes = [x.recorder.add("reshape", [x.node], shape=x.shape) for x in arrays]
    return [fresh(node, (x,), x.is_scalar) for node, x in zip(nodes, arrays, strict=True)]


def _ways(tree: Tree, *way: Any) -> list[tuple[Any, ...]]:
    """The way to each array in a nest: a dict's keys, and numbers."""
    if not isinstance(tree, Branch):
        return [way] if isinstance(tree, Leaf) else []
    keys = tree.keys or range(len(tree.children) - len(tree.attributes))
    return [each for key, child in zip((*keys, *tree.attributes), tree.children, strict=True)
            for each in _ways(child, *way, key)]


def _seeds(given: Any, tree: Tree, results: Sequence[int], what: str) -> dict[int, TracedArray]:
    """The gradients that belong to ``results``, nested as these are in ``tree``.

    A dict's order does not count. One result may stand in several places.
    """
    leaves, nest = flatten(given, _is_leaf)
    arrays = dict(zip(_ways(nest), map(lift, leaves), strict=True))
    types = {way: current().type(node) for way, node in zip(_ways(tree), results, strict=True)}
    if {way: x.shape for way, x in arrays.items()} != {way: t.shape for way, t in types.items()}:
        seen, expected = (", ".join(f"{'.'.join(map(str, way))} {type}".strip() for way, type in each)
                          or "nothing" for each in (((way, x.type) for way, x in arrays.items()),
                                                    types.items()))
        raise refuse(f"{what} {seen}", f"{expected} belongs there",
                     "Nest it as what it belongs to, with arrays of the same shapes")
    seeds: dict[int, Any] = {}
    for node, (way, type) in zip(results, types.items(), strict=True):
        g = cast(arrays[way], type.dtype)
        seeds[node] = seeds[node] + g if node in seeds else g
    return seeds


def _parts(value: Any, count: int, fn: Function, what: str) -> Sequence[Any]:
    """A tuple of ``count`` values, from a function of the user's. Raises TraceError otherwise."""
    if isinstance(value, tuple | list) and len(value) == count:
        return value
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    seen = f"a {type(value).__name__}{size}"
    raise refuse(f"{_name(fn)}, which returns {seen}", f"a tuple of {count} belongs there: {what}",
                 "Return these, and nothing else", program_line(fn))


# ---------------------------------------------------------------- functions that record themselves
class NodeByNode(Jitted):
    """Runs a derivative where a call runs the plain function: NumPy has no derivatives."""

    __slots__ = ()

    def _build(self, program: Program) -> ReferenceExecutable:
        return ReferenceExecutable(replace(program, unlike=None))


class Derived:
    """A function made of another, to be traced: ``record(function, *args)`` is what it does.

    ``nested``: its first argument is the tuple of the function's arguments.
    """

    def __init__(self, fn: Function, record: Function, nested: bool = False) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn
        self.__name__ = self.__qualname__ = f"the gradient of {_name(fn)}"
        self.record, self.nested = record, nested
        self.plain = NodeByNode(self, Options())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if ACTIVE.get() is not None:
            return self.record(noted(self.__wrapped__), *args, **kwargs)
        self.__wrapped__(*(args[0] if self.nested else args), **kwargs)  # it may raise, or warn
        return self.plain(*args, **kwargs)

    def __reduce__(self) -> Any:
        return Derived, (self.__wrapped__, self.record, self.nested)


def _name(fn: Function) -> str:
    fn = getattr(fn, "function", fn)  # of a jitted method
    return getattr(fn, "__name__", type(fn).__name__)


def _options(fn: Function) -> dict[str, Any]:
    """What ``jit`` was told for a function, if it is jitted."""
    options = getattr(fn, "options", None)
    return vars(options) if isinstance(options, Options) else {}


def _derived(fn: Function, record: Function, nested: bool = False) -> Jitted:
    """The derivative, jitted as the function itself is."""
    made: Jitted = jit(Derived(fn, record, nested), **_options(fn))
    return made


# ---------------------------------------------------------------- derivatives
def vjp(fn: Function, *args: Any, has_aux: bool = False) -> Any:
    """``(fn(*args), pull)``. ``pull(gradient of the result)`` gives those of ``args``, in a tuple.

    With ``has_aux``, ``fn`` returns a pair. Only its first part is differentiated, and the second
    is the third result. Outside of a trace, ``pull`` runs ``fn`` again: with ``args`` as they were,
    and what else ``fn`` reads as it is then.

    Raises TraceError, with the line, for an op without a derivative, for a write to an argument,
    and for an argument without floats or with an array of integers.
    """
    needs("vjp(f, x)", (fn, Callable))
    if ACTIVE.get() is None:
        args = stop_gradient(args)  # the caller may write to its own
        value, *aux = _derived(fn, functools.partial(_values, has_aux), nested=True)(args)
        record = functools.partial(_pull_again, has_aux)
        return value, functools.partial(_derived(fn, record, nested=True), args), *aux
    for each in args:
        _floats(each, "by")
    arrays, nest = _floats(args, "by")
    # fn may also read the same arrays from outside: that is no part of the derivative
    own = _own_nodes(arrays)
    given = unflatten(nest, own)
    result = call(fn, *given)
    _refuse_writes(fn, given, own)
    result, aux = (_parts(result, 2, fn, "the result, and what has_aux gives back")
                   if has_aux else (result, None))
    outputs, tree = _floats(result, "of")
    ends = [y.node for y in outputs]  # now: the caller may write to a result

    def back(g: Any) -> tuple[Any, ...]:
        gradients = pull(_seeds(g, tree, ends, "a gradient of"), [x.node for x in own])
        return unflatten(nest, gradients)
    value = unflatten(tree, outputs)
    return (value, back, aux) if has_aux else (value, back)


def _refuse_writes(fn: Function, given: Any, own: TracedArrays) -> None:
    """Raise TraceError if a function has changed what it is differentiated by."""
    written = [x for x in own if x._storage.version]
    if not written and [*map(id, flatten(given, _is_leaf)[0])] == [*map(id, own)]:
        return
    line = (current()[written[0]._storage.node].where, "") if written else program_line(fn)
    raise refuse("a function with a gradient writes to its argument",
                 "the derivative is by the value before",
                 "Copy it first, y = x.copy(), and a dict or list with dict(p) or list(p)", line)


def _values(has_aux: bool, fn: Function, args: tuple[Any, ...]) -> tuple[Any, ...]:
    value, _, *aux = vjp(fn, *args, has_aux=has_aux)
    return value, *aux


def _pull_again(has_aux: bool, fn: Function, args: tuple[Any, ...], g: Any) -> Any:
    return vjp(fn, *args, has_aux=has_aux)[1](g)


def _gradients(argnums: int | Sequence[int], has_aux: bool, with_value: bool, fn: Function,
               *args: Any, **kwargs: Any) -> Any:
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if any(not -len(args) <= each < len(args) for each in chosen):
        raise refuse(f"the gradient of {_name(fn)} by argnums={argnums}",
                     f"the call has {len(args)} arguments by position",
                     "Count from 0, and pass what is differentiated by position")
    if len({each % len(args) for each in chosen}) < len(chosen):
        raise refuse(f"the gradient of {_name(fn)} by argnums={argnums}",
                     "an argument stands there twice", "Name each one once")

    def of_chosen(*given: Any) -> Any:
        all_args = list(args)
        for i, each in zip(chosen, given, strict=True):
            all_args[i] = each
        return call(fn, *all_args, **kwargs)
    functools.update_wrapper(of_chosen, fn, updated=())
    value, back, *aux = vjp(of_chosen, *(args[i] for i in chosen), has_aux=has_aux)
    if not isinstance(value, TracedArray) or value.shape != ():
        seen = value.type if isinstance(value, TracedArray) else f"a {type(value).__name__}"
        raise refuse(f"the gradient of {_name(fn)}, which returns {seen}", "it must return a number",
                     "Sum it, or use ms.vjp, which takes a gradient of each result", program_line(fn))
    gradients = back(constant(1, (), value.dtype))
    gradients = gradients[0] if isinstance(argnums, int) else gradients
    if with_value:
        return (value, *aux) if aux else value, gradients
    return (gradients, *aux) if aux else gradients


def _numbers(argnums: Any) -> list[tuple[Any, Any]]:
    """``argnums`` and its elements, each with its kind, for ``needs``."""
    held = argnums if isinstance(argnums, tuple | list) else ()
    return [(argnums, int | tuple | list), *((each, int) for each in held)]


def value_and_grad(fn: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Jitted:
    """A jitted function that returns ``fn``'s value and its gradients by the arguments ``argnums``.

    ``fn`` returns one float. With ``has_aux`` it returns a pair: its first part is differentiated,
    and the value is the pair. A gradient is nested as its argument. Several ``argnums`` give a
    tuple. Raises as ``vjp`` does when it is called.
    """
    needs("value_and_grad(f, argnums=0)", (fn, Callable), *_numbers(argnums))
    return _derived(fn, functools.partial(_gradients, argnums, has_aux, True))


def grad(fn: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Jitted:
    """A jitted function that returns the gradients of ``fn``; see ``value_and_grad``.

    With ``has_aux`` it returns the pair of these and ``fn``'s second result.
    """
    needs("grad(f, argnums=0)", (fn, Callable), *_numbers(argnums))
    return _derived(fn, functools.partial(_gradients, argnums, has_aux, False))


def jvp(fn: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """``(fn(*primals), its derivative along tangents)``.

    It is the gradient of a gradient, which is linear in what it is given. Nothing reads the first
    walk then, so ``simplify`` drops it. Raises as ``vjp`` does.
    """
    nests = tuple | list
    needs("jvp(f, (x,), (direction,))", (fn, Callable), (primals, nests), (tangents, nests))
    if ACTIVE.get() is None:
        result: tuple[Any, Any] = _derived(fn, jvp, nested=True)(tuple(primals), tuple(tangents))
        return result
    value, back = vjp(fn, *primals)
    outputs, tree = _floats(value, "of")
    # any numbers do: the gradients are linear in them
    numbers = _own_nodes([constant(0, y.shape, y.dtype) for y in outputs])
    gradients, nest = flatten(back(unflatten(tree, numbers)), _is_leaf)
    seeds = _seeds(tuple(tangents), nest, [g.node for g in gradients], "tangents")
    return value, unflatten(tree, pull(seeds, [x.node for x in numbers]))


def stop_gradient(x: Any) -> Any:
    """A copy of ``x``, a nest of arrays, that is a constant to every derivative."""
    leaves, tree = flatten(x, _is_leaf)
    if ACTIVE.get() is None:
        copies = [each.copy() if isinstance(each, np.ndarray) else each for each in leaves]
        return unflatten(tree, copies)
    made = _own_nodes([lift(each) for each in leaves])
    current().derivatives.update({each.node: Own() for each in made})
    return unflatten(_without_numbers(tree), made)


class custom_vjp:
    """A function with a derivative of its own: ``f.defvjp(forward, backward)``, as in JAX.

    ``forward(*args)`` returns ``f``'s result and what ``backward`` needs of it. ``backward(kept,
    gradient of the result)`` returns a gradient for each argument, or None.
    """

    __name__: str

    def __init__(self, fn: Function) -> None:
        functools.update_wrapper(self, fn)
        self.__wrapped__ = fn

    def defvjp(self, forward: Function, backward: Function) -> None:
        """Set the derivative."""
        self.forward, self.backward = forward, backward

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a decorated function as Python pickles a function: by its name."""
        name = getattr(self, "__qualname__", "")
        is_named = find(getattr(self, "__module__", None), name) is self
        return name if is_named else super().__reduce_ex__(protocol)

    def __call__(self, *args: Any) -> Any:
        if ACTIVE.get() is None:
            return self.__wrapped__(*args)
        if not hasattr(self, "backward"):
            raise refuse(f"a call of {self.__name__}", "custom_vjp gives it no derivative",
                         f"Call {self.__name__}.defvjp(forward, backward)")
        # another derivative, set later, is another program
        forward, backward = (current().outside.note(self, attribute_of, name, getattr(self, name))
                             for name in ("forward", "backward"))
        nests = [flatten(each, _is_leaf) for each in args]
        given = [[lift(each) for each in leaves] for leaves, _ in nests]
        ids = [[x.node for x in arrays] for arrays in given]  # now: the caller may write to them

        def arguments(arrays: Sequence[TracedArrays]) -> list[Any]:
            return [unflatten(tree, each) for (_, tree), each in zip(nests, arrays, strict=True)]
        outputs, nest = _floats(call(self.__wrapped__, *arguments(given)), "of")
        own = _own_nodes(outputs)  # one after another: at the first, the gradients of all are known

        def pulled(totals: dict[int, Total]) -> None:
            if totals.keys().isdisjoint(y.node for y in own):  # backward may divide 0 by 0
                return
            pair = call(forward, *arguments([[*map(fresh, each)] for each in ids]))
            _, kept = _parts(pair, 2, forward, "the result, and what backward needs")
            results = [found(totals, y.node) for y in own]
            parts = _parts(call(backward, kept, unflatten(nest, results)), len(ids), backward,
                           "a gradient for each argument, or None")
            for part, (_, tree), nodes in zip(parts, nests, ids, strict=True):
                said = f"{self.__name__}'s backward gives"
                for node, g in ({} if part is None else _seeds(part, tree, nodes, said)).items():
                    totals.setdefault(node, Total(g)).add(g)
        reads = frozenset(node for nodes in ids for node in nodes)
        current().derivatives.update({y.node: Own(reads) for y in own})
        current().derivatives[own[0].node] = Own(reads, pulled)
        return unflatten(nest, own)


def gradient(graph: Graph, output: int = 0, wanted: Sequence[int] | None = None) -> Graph:
    """The graph with further results: the gradients of its result number ``output``.

    ``wanted``: by which nodes, or by all float inputs. Each element of the result counts once, as
    if they were added up. Raises TraceError for an op without a derivative.

    Before:  %1 = exp %0; return %1    After:  %1 = exp %0; %2 = constant 1.0; %3 = mul %2 %1
                                               return %1 %3
    """
    needs("gradient(graph)", (graph, Graph))
    recorder, before = Recorder("", ("", "")), ACTIVE.get()
    try:
        ACTIVE.set(recorder)
        recorder.adopt(graph.nodes)
        recorder.outside = Outside(recorder)
        result = graph[graph.outputs[output]]
        if wanted is None:
            wanted = [i for i in graph.inputs if kind_of(graph[i].type.dtype) == "float"]
        with recorder.at_line(result.where, "gradient"):
            one = constant(1, result.type.shape, result.type.dtype)
            gradients = pull({result.id: one}, wanted)
        return recorder.builder.finish([*graph.outputs, *(each.node for each in gradients)])
    finally:
        ACTIVE.set(before)
