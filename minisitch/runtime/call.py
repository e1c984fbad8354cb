"""Write the call of a program as a Python function that does only what the call needs.

In:  slots, steps, checks and the nest of results. Out: a ``Call``: its ``text``, its ``function``.

After, for a softmax of one row (``print(jitted.compile(x).call.text)``):

    def call(leaves, nested=True):
        (a0,) = leaves
        read_again(leaves)  # what the function uses from outside; raises Stale if it changed
        if type(a0) is not ndarray or a0.dtype is not float32 or a0.flags.num & READY != READY:
            a0 = ready(a0, float32)
        r1 = empty((1, 768), float32)
        a0_flat = a0.ravel()
        r1_flat = r1.ravel()
        softmax_4ae2fc(a0_flat, r1_flat)
        if not nested: return [r1]
        return r1

A loop over slots and steps would do the same, but slower: 11 us instead of 3.5 us for a small call
with 1 us of kernel time. The text can also be read.

Names: ``a0`` is an argument, ``r1`` a result, ``m2`` memory in the workspace, and ``v3`` a view for
a library call. All programs of a thread share its workspace. Views of it are made once, by a
function ``workspace``.
"""

from __future__ import annotations

import hashlib
import math
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from ..graph import TensorType, identifier
from ..reference import Array
from ..trace import Program, Unlike, unlike_message
from ..trace.outside import ERRORS, require_array
from ..trace.recorder import refuse
from ..trace.tree import Branch, Leaf, Tree, refuse_other_meanings
from .cpu.compile import remember_lines
from .memory import ALIGNMENT, Slot, line_start
from .pool import fresh, is_pooled

RESERVED = ("leaves", "nested", "free", "held", "workspace", "call")  # used by every call
READY = 0x101  # bits of an array's flags: in C order, and aligned


def ready(x: Any, dtype: np.dtype) -> Array:
    """The argument as an aligned, C-ordered array of ``dtype``, copied only if necessary.

    Raises TraceError for a masked array or a matrix.
    """
    refuse_other_meanings(x)
    if isinstance(x, TensorType):
        raise refuse(f"the type {x}", "a call needs values", "Pass an array; lower, explain and compare take types")
    return np.asarray(np.require(np.asarray(x), dtype, ["C", "A"]))


def again(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """The same for an array from outside. Raises Stale for one of another shape or dtype."""
    require_array(x, shape, dtype)
    return ready(x, dtype)


@dataclass(frozen=True)
class ArgumentView:
    """A view of flat memory with a shape, strides and a start, the last two in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: np.dtype

    def of(self, flat: Array) -> Array:
        """The view of this memory. Never a copy."""
        return np.ndarray(self.shape, self.dtype, flat, self.offset, self.strides)

    @property
    def is_whole(self) -> bool:
        """Whether the view is in C order from the first byte on. A reshape then replaces it."""
        return not self.offset and self.strides == ArgumentView.whole(self.shape, self.dtype).strides

    def is_matrix(self, slot: Slot) -> bool:
        """Whether the view is the whole matrix of a slot, or its transpose. BLAS takes both."""
        whole, turned = ArgumentView.whole(slot.shape, slot.dtype), ArgumentView.transposed(slot.shape, slot.dtype)
        return len(slot.shape) == 2 and self in (whole, turned)

    @staticmethod
    def transposed(shape: tuple[int, ...], dtype: np.dtype) -> ArgumentView:
        """All of an array in C order, with its axes reversed."""
        whole = ArgumentView.whole(shape, dtype)
        return ArgumentView(shape[::-1], whole.strides[::-1], 0, dtype)

    @staticmethod
    def whole(shape: tuple[int, ...], dtype: np.dtype) -> ArgumentView:
        """All of an array in C order."""
        strides = [dtype.itemsize]
        for n in shape[:0:-1]:
            strides.insert(0, strides[0] * n)
        return ArgumentView(shape, tuple(strides[:len(shape)]), 0, dtype)


class Workspace:
    """Bytes that one call at a time uses between its steps, and each program's views of them."""

    def __init__(self) -> None:
        self.raw, self.made = NOTHING, dict[object, Any]()
        _workspaces[:] = [known for known in _workspaces if known()] + [weakref.ref(self)]

    def of(self, nbytes: int) -> Array:
        """At least ``nbytes`` bytes, aligned to a cache line. Growing drops the old views."""
        if self.raw.nbytes < nbytes:
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
            self.raw, self.made = raw[line_start(raw):], {}
        elif len(self.made) >= MOST_MADE:
            self.made = {}
        return self.raw


class _Idle(threading.local):
    """A thread's free workspaces: usually one, more if calls were nested."""

    def __init__(self) -> None:
        self.free: list[Workspace] = []


NOTHING = np.empty(0, np.uint8)
MOST_MADE = 256  # programs whose views a workspace remembers
idle = _Idle()
_workspaces: list[weakref.ref[Workspace]] = []


def release_workspaces() -> None:
    """Free the bytes of all threads' workspaces. A running call keeps its own until it ends."""
    for known in [*_workspaces]:
        if (workspace := known()) is not None:
            workspace.raw, workspace.made = NOTHING, {}


class CallWriter:
    """Collects the lines of one call. Steps ask it for the names of what they read and write."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = slots
        self.names: dict[str, Any] = dict.fromkeys(RESERVED)
        self.names |= {"np": np, "ndarray": Array, "empty": np.empty, "fresh": fresh, "ready": ready,
                       "again": again, "READY": READY}
        self.once: list[str] = []  # lines that run once a thread
        self.lines: list[str] = []
        self.begun = 0
        self._known: dict[Any, str] = {}

    def line(self, text: str) -> None:
        self.lines.append(text)

    def bind(self, name: str, value: Any) -> str:
        """A name in the text for an outside value. Different values get different names."""
        name = identifier(name)
        while name in self.names and self.names[name] is not value:
            name += "_"
        self.names[name] = value
        return name

    def dtype(self, dtype: np.dtype) -> str:
        return self.bind(f"dtype_{dtype.name}" if dtype.name == "bool" else dtype.name, dtype)

    def shaped(self, slot: int) -> str:
        """The name of an argument or a result in the user's shape."""
        return f"{self.slots[slot].place[0].replace('i', 'a').replace('o', 'r')}{slot}"

    def flat(self, slot: int) -> str:
        """The name of a slot's memory as a flat array."""
        found = self.slots[slot]
        if found.place == "workspace":
            part = f"memory[{found.index}:{found.index + found.nbytes}]"
            value = f"{part}.view({self.dtype(found.dtype)})"
            return self._named(("flat", slot), f"m{slot}", value, self.once)
        if len(found.shape) == 1:
            return self.shaped(slot)
        name = self.shaped(slot)
        return self._named(("flat", slot), f"{name}_flat", f"{name}.ravel()", self.lines)

    def view(self, slot: int, view: ArgumentView) -> str:
        """The name of a view of a slot. A view of the workspace is made once a thread."""
        found = self.slots[slot]
        if found.place != "workspace" and view == ArgumentView.whole(found.shape, found.dtype):
            return self.shaped(slot)
        if found.place != "workspace" and view == ArgumentView.transposed(found.shape, found.dtype):
            return f"{self.shaped(slot)}.T"
        memory = self.flat(slot) if found.place == "workspace" else self.shaped(slot)
        seen = (f"{memory}.reshape({view.shape})" if view.is_whole and math.prod(view.shape) == found.size else
                f"ndarray({view.shape}, {self.dtype(view.dtype)}, {memory}, {view.offset}, {view.strides})")
        lines = self.once if found.place == "workspace" else self.lines
        return self._named((slot, view), f"v{slot}_{len(self._known)}", seen, lines)

    def _named(self, key: Any, name: str, value: str, lines: list[str]) -> str:
        """The name of a value, which the first use adds to ``lines``."""
        if key not in self._known:
            self._known[key] = name
            lines.append(f"{name} = {value}")
        return self._known[key]

    # ------------------------------------------------------------ the parts of a call
    def arguments(self, program: Program, in_c_order: Container[int]) -> None:
        """Unpack the leaves. Copy one only if its order, alignment or dtype is wrong."""
        inputs = [i for i, s in enumerate(self.slots) if s.place == "input"]
        count = len(inputs) - len(program.captured)
        if count:
            self.line(f"{_tuple(map(self.shaped, inputs[:count]))} = leaves")
        places = dict(zip(inputs[count:], program.paths.arrays or program.captured, strict=True))
        read = [i for i, place in places.items() if type(place) is int]
        if program.paths:
            paths, taken = program.paths, f"{_tuple(map(self.shaped, read))} = " if read else ""
            if paths.is_bare:  # the call alone would take longer
                named = {"plain": paths.fn, "code": paths.code, "errors": ERRORS.get, "state": paths.errors}
                plain, code, errors, state = (self.bind(name, value) for name, value in named.items())
                taken = f"if {plain}.__code__ is not {code} or {errors}() is not {state}: "
            self.line(f"{taken}{self.bind('read_again', paths.read)}(leaves)"
                      "  # what the function uses from outside; raises Stale if it changed")
        for i, array in places.items():
            if i not in read:
                self.line(f"{self.shaped(i)} = {self.bind(f'captured{i}', array)}")
        self.begun = len(self.lines)  # a workspace is taken after these lines, which may raise
        for place, i in enumerate(inputs):
            a, dtype = self.shaped(i), self.dtype(self.slots[i].dtype)
            if place in program.numbers:
                memory = self._named(("flat", i), f"s{i}", f"np.empty(1, {dtype})", self.once)
                whole = f"{memory}.reshape(())"
                self.line(f"{memory}[0] = {a}")
                self.line(f"{a} = {self._named(('whole', i), f'{memory}_whole', whole, self.once)}")
                continue
            ordered = f"{a}.flags.num & READY != READY" if i in in_c_order else f"not ({a}.flags.forc and {a}.flags.aligned)"
            shape = f"{a}.shape != {self.slots[i].shape} or " if i in read else ""
            self.line(f"if type({a}) is not ndarray or {a}.dtype is not {dtype} or {shape}{ordered}:")
            self.line(f"    {a} = again({a}, {self.slots[i].shape}, {dtype})" if shape else f"    {a} = ready({a}, {dtype})")

    def results(self) -> list[str]:
        """Allocate the results. Returns their names in order."""
        found = [i for i, s in enumerate(self.slots) if s.place == "output"]
        for i in found:
            slot = self.slots[i]
            make = "fresh" if is_pooled(slot.nbytes) else "empty"
            self.line(f"{self.shaped(i)} = {make}({slot.shape}, {self.dtype(slot.dtype)})")
        return [self.shaped(i) for i in found]

    def nest(self, tree: Tree, results: Sequence[str]) -> str:
        """An expression that nests the results as the user did. Scalars become NumPy scalars."""
        if isinstance(tree, Leaf):
            found = results[tree.position]
            return f"{found}.item()" if tree.number else f"{found}[()]" if tree.scalar else found
        if not isinstance(tree, Branch):
            made = self.bind("static", tree.value)
            return f"{made}.copy()" if isinstance(tree.value, np.ndarray) else made
        children = [self.nest(child, results) for child in tree.children]
        if tree.container is dict:
            keys = (repr(k) if type(k) in (str, int) else self.bind("key", k) for k in tree.keys)
            return "{" + ", ".join(f"{k}: {c}" for k, c in zip(keys, children, strict=True)) + "}"
        if tree.container in (tuple, list):
            return _tuple(children) if tree.container is tuple else f"[{', '.join(children)}]"
        return f"{self.bind(tree.container.__name__, tree.build)}([{', '.join(children)}])"


def _tuple(names: Iterable[str]) -> str:
    listed = tuple(names)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


@dataclass(frozen=True)
class Call:
    """``text`` defines ``function(leaves, nested=True)``.

    The function returns the user's nest of results, or a list of them if ``nested`` is false. The
    results are new arrays.
    """

    text: str
    function: Callable[..., Any]


def write_call(program: Program, slots: Sequence[Slot], steps: Sequence[Any], checks: Sequence[Any],
               workspace: int, refuse_overlap: Callable[..., None]) -> Call:
    """Write the parts in order: arguments, checks, results, steps, writes to arguments, nest."""
    w = CallWriter(slots)
    in_c_order = {s for step in steps for s in step.in_c_order(slots)} | {c.source for c in checks}
    w.arguments(program, in_c_order)
    if program.mutated or program.in_rows:
        w.line(f"{w.bind('refuse_overlap', refuse_overlap)}({w.bind('program', program)}, leaves)")
    for check in checks:
        w.line(f"{w.bind('check', check)}({w.flat(check.source)})")
    results = w.results()
    begun = len(w.lines)
    for step in steps:
        step.write(w)
    if any(step.warns for step in steps):
        w.lines[begun:] = ["with np.errstate(all='ignore'):", *(f"    {line}" for line in w.lines[begun:])]
    if w.once:
        w.line("free.append(held)")
    if program.unlike:
        w.line(f"if {results[program.unlike[0]]}: raise {w.bind('Unlike', Unlike)}({unlike_message(program.unlike[1])!r})")
    listed = f"[{', '.join(results)}]"
    w.line(f"if not nested: return {listed}")
    for source, output in program.mutated:
        w.line(f"np.copyto(leaves[{source}], {results[output]})")
    w.line("return " + w.nest(program.outputs, results))
    text = ""
    if w.once:
        names = _tuple(line.partition(" = ")[0] for line in w.once)
        w.names |= {"idle": idle, "Workspace": Workspace, "me": object()}
        w.lines[w.begun:w.begun] = [
            "free = idle.free", "held = free.pop() if free else Workspace()",
            f"{names} = held.made.get(me) or workspace(held)"]
        text = "\n    ".join(["def workspace(held):", f"memory = held.of({workspace})", *w.once,
                              f"held.made[me] = {names}", f"return {names}"]) + "\n\n\n"
    text += "\n    ".join(["def call(leaves, nested=True):", *w.lines]) + "\n"
    return Call(text, _load(text, w.names))


def _load(text: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function that a call's text defines. Tracebacks show its lines."""
    path = f"<minisitch call {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    exec(compile(text, path, "exec"), names)
    made = {name: names.pop(name) for name in ("workspace", "call") if name in names}
    # Its globals do not contain it, so reference counting frees it.
    function = FunctionType(made.pop("call").__code__, names | made, "call", (True,))
    remember_lines(function, path, text)
    return function
