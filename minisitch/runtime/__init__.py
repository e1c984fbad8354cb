"""Running a program: the front door ``jit``, its cache of compiled programs, and ``lower``.

In:  a NumPy function and its arguments. Out: the same results, from stitched kernels.

    f(x) --key--> seen before? --no--> trace, simplify, fuse, stitch, schedule, emit, compile --> Executable
                     |yes                                                                            |
                     +------------------------> run its steps over one workspace a thread <----------+

``stages.py`` goes down the road, ``plans.py`` keeps plans on disk, ``memory.py`` shares bytes, ``steps.py`` launches and
calls, ``executable.py`` puts them together, ``background.py`` has that done while calls already run unfused. On a GPU
``cuda_launch.py`` runs the steps: ``cuda_driver.py`` asks the driver, ``cuda_kernel.py`` launches, ``cuda_graph.py`` records
and replays, ``cuda_memory.py`` keeps blocks, ``device_arrays.py`` knows other libraries' arrays, ``cublas.py`` multiplies.
``programs.py`` says which compiled programs stay.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..device import Device
from ..errors import MinisitchError
from ..errors.progress import shown, working
from ..fuse import count
from ..graph import Graph, TensorType
from ..lower import STAGES, Stages, lower_program, program_of
from ..passes.split_reductions import online
from ..simplify import simplify
from ..trace import Program, Stale, trace
from ..trace.parser import parse_type
from ..trace.recorder import ACTIVE, program_file, refuse
from ..trace.shim import rebind
from ..trace.tracebacks import door, shorten
from ..trace.tree import Inputs, Numbers, flatten, is_array, type_of
from .assemble import assemble
from .background import Behind, RunCall
from .cuda import offline
from .executable import Executable, ReferenceExecutable
from .memory import Lifetime, plan_memory
from .plans import plan_of
from .programs import Programs
from .target import TARGETS, choose_device, choose_target

__all__ = ["STAGES", "TARGETS", "Executable", "Jitted", "Lifetime", "Stages", "assemble", "choose_device",
           "choose_target", "compile_graph", "jit", "lower", "lower_program", "parse_type", "plan_memory", "read_types"]


MOST_OTHERS = 4  # programs that are kept for a call for which the world outside was another


# ---------------------------------------------------------------- leaving by any door
def read_types(value: Any) -> Any:
    """Shape strings in a nest of arguments become ``TensorType``; what looks like one and is none is refused."""
    if isinstance(value, str) and re.match(r"\s*(\w+\[[\d,\s]*\]\s*$|(bool|[iuf]\d+)\s*[\[(])", value):
        return parse_type(value)
    if isinstance(value, dict):
        return {k: read_types(v) for k, v in value.items()}
    return type(value)(map(read_types, value)) if type(value) in (list, tuple) else value


def settings(fn: Callable[..., Any], strategy: str | None, target: str | None, device: str | Device | None,
             exact: bool | None) -> tuple[Callable[..., Any], str, str, str | Device | None, bool]:
    """The function itself, and what is left open here as ``jit`` was told; its device goes with its target."""
    if not isinstance(fn, Jitted):
        return fn, strategy or "auto", choose_target(target or "auto"), device, exact is not False
    chosen, told = choose_target(target or fn.target), choose_target(fn.target)
    exact = fn.exact if exact is None else exact
    return fn.function, strategy or fn.strategy, chosen, device or (fn.device if chosen == told else None), exact


@door
@shown
def lower(fn: Callable[..., Any], *args: Any, strategy: str | None = None, target: str | None = None,
          device: str | Device | None = None, exact: bool | None = None, stop_after: str = "emit", **kwargs: Any) -> Any:
    """What one stage makes of ``fn(*args)``; arrays may be given as types, ``"f32[128,768]"``.

    ``trace``: a Program; ``simplify``: the Graph that strategies get; ``fuse``: a FusionPlan; ``stitch``, ``schedule``,
    ``emit``: a tuple of StitchPlan, Kernel or KernelSource, one a kernel. Each prints. Raises MinisitchError for an unknown stage.
    The tuple of sources also shows machine code, where the tools are installed: ``lower(fn, x, target="cuda").sass()``.
    """
    if stop_after not in STAGES:
        raise MinisitchError(f"unknown stage {stop_after!r}; take one of {', '.join(STAGES)}")
    fn, strategy, target, device, exact = settings(fn, strategy, target, device, exact)
    program = replace(trace(fn, read_types(args), read_types(kwargs)), exact=exact)
    if stop_after == "trace":
        return program
    if stop_after == "simplify":
        return online(simplify(program.graph), choose_device(target, device))[0]
    stages = lower_program(program, strategy, target, choose_device(target, device), stop_after, plan_of)
    made = {"stitch": stages.stitches, "schedule": stages.kernels}
    return Printed(made[stop_after]) if stop_after in made else stages.plan if stop_after == "fuse" else Sources(stages.sources)


class Printed(tuple[Any, ...]):
    """A tuple that prints as its parts do, one after another; also in a notebook."""

    def __repr__(self) -> str:
        return "\n\n".join(str(each).strip("\n") for each in self)

    __str__ = __repr__


class Sources(Printed):
    """The text of each kernel, and what an assembler makes of it: PTX and SASS of the different ones, one after another.

    On the tuple and not on ``KernelSource``, which the emitters make: printing text knows no assembler.
    """

    def assembled(self, architecture: str = "sm_90") -> tuple[offline.Assembled, ...]:
        """Registers, spills, widths ... of the different kernels. Raises DeviceError that says what to install."""
        return tuple(offline.assemble(source, architecture) for source in {s.text: s for s in self}.values())

    def ptx(self, architecture: str = "sm_90") -> str:
        """The virtual assembly that NVIDIA's driver takes."""
        return "\n".join(made.ptx for made in self.assembled(architecture))

    def sass(self, architecture: str = "sm_90") -> str:
        """The machine's own instructions, each kernel's under a line with its figures."""
        return "\n".join(f"# {made.name}, {made}\n{made.sass}" for made in self.assembled(architecture))


def compile_graph(graph: Graph, strategy: str = "auto", target: str = "cpu", device: str | Device | None = None,
                  exact: bool = True) -> Executable:
    """A graph that was built, parsed or drawn at random, ready to run: ``.outputs(arrays)`` gives a list of arrays."""
    stages = lower_program(program_of(graph, exact), strategy, target, choose_device(target, device), decide=plan_of)
    return assemble(stages, target)


# ---------------------------------------------------------------- the front door
_turns: dict[Any, threading.Lock] = {}  # of first calls under way: whose, and for which key
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.clear)  # the child has not the threads that hold them


class Jitted:
    """A NumPy function that compiles itself for each new combination of shapes, dtypes and static arguments."""

    def __init__(self, fn: Callable[..., Any], strategy: str, target: str, device: str | Device | None,
                 background: bool = False, exact: bool = True) -> None:
        self.__name__ = self.__qualname__ = type(fn).__name__  # of a callable without a name
        functools.update_wrapper(self, fn)
        self.__wrapped__ = fn
        self.strategy, self.target, self.device, self.background, self.exact = strategy, target, device, background, exact
        self._owner: Callable[[], Any] | None = None  # of a method: gives the object
        self._ready = Programs()  # what a call runs, by its signature
        self._varied: set[int] = set()  # the places of ints that were others at another call
        self._numbers = Numbers(varied=self._varied)  # which Python numbers are arguments
        self._ints: dict[Any, dict[int, int]] = {}  # by signatures without ints: those of the first such call, by their places
        self._behind: dict[Any, Behind] = {}  # compiled in the background, or being so

    @property
    def function(self) -> Callable[..., Any]:
        """What is traced: the wrapped function, of a method with its object."""
        return self.__wrapped__ if self._owner is None else types.MethodType(self.__wrapped__, self._owner())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if ACTIVE.get() is not None:  # called by a function that is being traced: part of its program
            return rebind(self.function)(*args, **kwargs)
        try:
            leaves, key = _signature(args, kwargs, self._numbers)
            run = self._ready.get(key)
            if run is None:
                leaves, run = self._compile_once(key, args, kwargs)
            try:
                return run(leaves)
            except Stale:
                return self._again(run, leaves, key, args, kwargs)
        except Exception as error:
            shorten(error, program_file(self))
            raise

    def _again(self, run: RunCall, leaves: Sequence[Any], key: Any, args: tuple, kwargs: dict) -> Any:
        """What the program has read from outside is another now: one that was compiled for that, or a new one."""
        before = self._ready.others.get(key, ())
        others = self._ready.others[key] = [run, *(each for each in before if each is not run)][:MOST_OTHERS]
        for each in others[1:]:
            try:
                result = each(leaves)
            except Stale:
                continue
            self._ready[key] = each
            return result
        self._ready.drop(key, run)
        leaves, run = self._compile_once(key, args, kwargs)
        return run(leaves)

    def _compile_once(self, key: Any, args: tuple, kwargs: dict) -> tuple[Sequence[Any], RunCall]:
        """One thread at a time makes what a key runs. The others wait, and try themselves if it fails or is interrupted."""
        with _turns.setdefault((id(self), key), threading.Lock()):
            found = _signature(args, kwargs, self._numbers)[1]
            if not (run := self._ready.find(found)):
                self._notice_ints(args, kwargs)
                run = self._start(args, kwargs)
            _turns.pop((id(self), key), None)
            return _signature(args, kwargs, self._numbers)[0], run

    def _notice_ints(self, args: tuple, kwargs: dict) -> None:
        """An int that is another than at the first call, and nothing else is: an argument from now on."""
        inputs = Inputs(Numbers(varied=range(sys.maxsize)))
        leaves, key = _signature(args, kwargs, inputs.numbers, inputs)
        numbers = [each for each in leaves if type(each) in (float, int)]
        ints = {place: each for place, each in zip(inputs.places, numbers, strict=True) if type(each) is int}
        first = self._ints.setdefault(key, ints) if ints else {}
        self._varied |= {place for place, each in ints.items() if first.get(place) != each}

    def _traced(self, args: tuple, kwargs: dict) -> tuple[Program, Any]:
        """The program, and its key. A number whose value it asks for is part of it from now on."""
        while True:
            inputs = Inputs(self._numbers)
            leaves, key = _signature(args, kwargs, self._numbers, inputs)
            program = trace(self.function, args, kwargs, self._numbers)
            positions = [i for i, each in enumerate(leaves) if type(each) in (float, int)]
            if not program.fixed:
                return program, key
            self._numbers.fixed |= {place for place, i in zip(inputs.places, positions, strict=True) if i in program.fixed}

    def _start(self, args: tuple, kwargs: dict) -> RunCall:
        """Put into the table what the first call runs."""
        began = time.perf_counter()
        with working(self.__qualname__):
            program, key = self._traced(args, kwargs)
            if found := self._ready.find(key):  # which number it is makes no other program
                return found
            if not self.background:
                self._ready[key] = made = self._build(program, began)
                return made
        unfused = ReferenceExecutable(program)
        behind = Behind(self.__qualname__, self._ready, key, unfused, lambda: self._build(program, began))
        self._behind = {k: b for k, b in self._behind.items() if not b.ready and self._ready.find(k)} | {key: behind}
        behind.start()
        return unfused

    @door
    def compile(self, *args: Any, **kwargs: Any) -> RunCall:
        """Compile for these arguments without running; what is returned takes the list of array leaves."""
        began = time.perf_counter()
        with working(self.__qualname__):
            return self._build(self._traced(args, kwargs)[0], began)

    def _build(self, program: Program, began: float) -> RunCall:
        target, said = choose_target(self.target), _debug_level()
        if target == "reference":
            return ReferenceExecutable(program)
        stages = lower_program(replace(program, exact=self.exact), self.strategy, target, choose_device(target, self.device),
                               decide=plan_of)
        made = assemble(stages, target)
        if said:
            _debug(self, made, time.perf_counter() - began, said)
        return made

    def ready(self, *args: Any, **kwargs: Any) -> bool:
        """Whether calls with these arguments run what was asked for; False where the unfused plan still serves."""
        key = _signature(args, kwargs, self._numbers)[1]
        return self._ready.find(key) is not None and (key not in self._behind or self._behind[key].ready)

    @door
    def wait(self, *args: Any, **kwargs: Any) -> None:
        """Return when calls with these arguments run what was asked for, and compile it if nobody has.

        Raises what stopped it, also where that was in the background.
        """
        key = _signature(args, kwargs, self._numbers)[1]
        if self._ready.find(key) is None:
            self._compile_once(key, args, kwargs)
            key = _signature(args, kwargs, self._numbers)[1]
        if key in self._behind:
            self._behind[key].finished.result()

    def clear(self) -> None:
        """Forget every compiled program, of a method for all objects; the next call compiles, or finds its kernels on the disk."""
        for bound in [*_methods.get(self, {}).values()]:
            bound.clear()
        self._behind = {}
        self._ready.clear()

    @door
    def lower(self, *args: Any, stop_after: str = "emit", **kwargs: Any) -> Any:
        """What one stage makes of this function; see ``lower``."""
        return lower(self.function, *args, strategy=self.strategy, target=self.target, device=self.device, exact=self.exact,
                     stop_after=stop_after, **kwargs)

    @door
    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """The report on this function for these arguments; see ``explain``."""
        report = importlib.import_module("minisitch.explain")  # by name: no stage imports what reads it
        return report.explain(self.function, *args, strategy=self.strategy, target=self.target, device=self.device,
                              exact=self.exact, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<minisitch.jit of {self.__qualname__}, strategy {self.strategy}, target {self.target}>"

    def __reduce__(self) -> Any:
        """By reference to the function, never its source: the other process imports and compiles it."""
        fn, options = self.__wrapped__, (self.strategy, self.target, self.device, self.background, self.exact)
        module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
        found = _find(module, name)
        if found is self:
            return name
        return (_restore, (module, name, *options)) if isinstance(found, Jitted) else (Jitted, (fn, *options))


@dataclass(frozen=True)
class _Method:
    """A jitted method of one object. The object is known to the cache by identity, and forgotten when it dies."""

    function: Jitted
    instance: Any

    @door
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._bound()(*args, **kwargs)

    @door
    def lower(self, *args: Any, **kwargs: Any) -> Any:
        return self._bound().lower(*args, **kwargs)

    @door
    def explain(self, *args: Any, **kwargs: Any) -> Any:
        return self._bound().explain(*args, **kwargs)

    def clear(self) -> None:
        self._bound().clear()

    def ready(self, *args: Any, **kwargs: Any) -> bool:
        return self._bound().ready(*args, **kwargs)

    @door
    def wait(self, *args: Any, **kwargs: Any) -> None:
        self._bound().wait(*args, **kwargs)

    def _bound(self) -> Jitted:
        """The cache of this object; it holds the object weakly, so the two do not keep each other alive."""
        methods, key = _methods.setdefault(self.function, {}), id(self.instance)
        if key not in methods:
            fn = self.function
            bound = Jitted(fn.__wrapped__, fn.strategy, fn.target, fn.device, fn.background, fn.exact)
            try:
                bound._owner = weakref.ref(self.instance, lambda _: methods.pop(key, None))
            except TypeError:
                raise refuse(f"{fn.__name__} is a jitted method of a {type(self.instance).__name__}",
                             "it cannot be referred to weakly",
                             "Add '__weakref__' to its __slots__, or weakref_slot=True to its dataclass") from None
            methods.setdefault(key, bound)
        return methods[key]


_methods: weakref.WeakKeyDictionary[Jitted, dict[int, Jitted]] = weakref.WeakKeyDictionary()


def jit(fn: Callable[..., Any] | None = None, *, strategy: str = "auto", target: str = "auto",
        device: str | Device | None = None, background: bool = False, exact: bool = True) -> Any:
    """Compile a NumPy function at its first call for each combination of shapes, dtypes and static arguments.

    As ``@jit``, ``@jit(strategy="xla")`` or ``jit(fn)``. Arrays and Python floats are arguments; everything else in the arguments
    is part of the program, and so is the value of a float where the function asks for it (``if lr > 0``, ``int(lr)``, ``x ** p``).
    What the function reads from outside (globals, closures, attributes, elements of lists and dicts) is read anew at each call: an
    array of the same shape and dtype is just used; another shape, number, flag or function compiles anew. What it writes outside,
    draws from a generator outside or reads from a clock is refused. Arguments
    are taken to lie in C order, and are copied where they do not. ``target`` is ``auto``, ``cpu``,
    ``cuda``, or, to look inside, ``step`` (the CUDA text, thread by thread), ``python`` (the CPU text uncompiled), ``reference``
    (NumPy, node by node).
    With ``background`` no call waits for kernels: the first ones run unfused, by NumPy, until a thread has compiled
    them (``runtime/background.py``); ``ready(*args)`` says whether it has, and ``wait(*args)`` waits for it.
    Of all functions' compiled programs those used least lately go once they take more than MINISITCH_PROGRAMS bytes (96 MiB
    unless set); ``clear()`` forgets a function's.
    With ``exact``, element-wise values are NumPy's to the last bit under every strategy and target: left free are the order of
    sums, products of matrices and the last digits of ``exp``, ``tanh`` and their kin. ``exact=False`` lets a product and a sum be
    rounded once, and keeps float16 as float32 between operations.
    """
    if fn is None:
        return functools.partial(jit, strategy=strategy, target=target, device=device, background=background, exact=exact)
    if isinstance(fn, staticmethod | classmethod):  # in either order
        return type(fn)(jit(fn.__func__, strategy=strategy, target=target, device=device, background=background, exact=exact))
    if not callable(fn):
        raise MinisitchError(f"jit takes a function, not {fn!r}; its options have names: @minisitch.jit(strategy='astitch')")
    if target != "auto":
        choose_target(target)
    return Jitted(fn.__wrapped__ if isinstance(fn, Jitted) else fn, strategy, target, device, background, exact)


def _signature(args: tuple, kwargs: dict, numbers: Numbers, inputs: Inputs | None = None) -> tuple[Sequence[Any], tuple]:
    """The leaves in ``trace.flatten``'s order, and what a compiled program depends on. On every call's path."""
    key: list[Any] = []
    for arg in args:
        if type(arg) is np.ndarray:
            key += arg.shape, arg.dtype
        elif type(arg) is float and not numbers.fixed and inputs is None:
            key.append(float)
        else:
            break
    else:
        if not kwargs:
            return args, tuple(key)
    leaves: list[Any] = []
    key, inputs = [], inputs or Inputs(numbers)
    for arg in args:
        _add_to_key(arg, leaves, key, inputs)
    if kwargs:
        key.append("keywords")
        _add_to_key(kwargs, leaves, key, inputs)
    return leaves, tuple(key)


def _add_to_key(value: Any, leaves: list[Any], key: list[Any], inputs: Inputs) -> None:
    """What one argument adds: of an array its shape and dtype, of a nest its kind and size, then its parts."""
    kind = type(value)
    if kind is np.ndarray:
        leaves.append(value)
        key += value.shape, value.dtype
    elif kind is float or kind is int:
        if inputs(value):
            leaves.append(value)
            key.append(kind)
        else:
            key += kind, value if value and value == value else repr(value)  # 0.0 is not -0.0, and nan itself
    elif kind is dict:
        key += kind, tuple(value)
        for part in value.values():
            _add_to_key(part, leaves, key, inputs)
    elif kind is tuple or kind is list:
        key += kind, len(value)
        for part in value:
            _add_to_key(part, leaves, key, inputs)
    elif is_array(value) and not isinstance(value, np.generic | TensorType):  # another library's array
        leaves.append(value)
        key += kind, tuple(value.shape), value.dtype
    else:
        found, tree = flatten(value, inputs)
        leaves += found
        key += tree, tuple((type_of(leaf), isinstance(leaf, np.generic)) for leaf in found)


def _find(module: str | None, name: str) -> Any:
    """The object of that name in a loaded module, or None."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _restore(module: str, name: str, strategy: str, target: str, device: str | Device | None, background: bool,
             exact: bool) -> Jitted:
    importlib.import_module(module)
    return jit(_find(module, name), strategy=strategy, target=target, device=device, background=background, exact=exact)


# ---------------------------------------------------------------- MINISITCH_DEBUG
def _debug_level() -> int:
    """How much each compile says. Raises MinisitchError, before anything is compiled."""
    setting = os.environ.get("MINISITCH_DEBUG") or "off"
    if setting not in ("off", *"01234"):
        raise MinisitchError(f"MINISITCH_DEBUG={setting!r}: it is how much each compile says, 1 to 4; 0 or off for nothing")
    return 0 if setting == "off" else int(setting)


def _debug(jitted: Jitted, made: Executable, seconds: float, level: int) -> None:
    """1: a line a compile; 2: decisions; 3: each stage's text; 4: the kernels' source. On stderr."""
    stages = made.stages
    lines = [f"minisitch: {jitted.__qualname__}: {count(len(stages.graph), 'node')} -> {count(len(stages.plan.kernels), 'kernel')} "
             f"({len({k.name for k in stages.kernels})} different), {count(len(stages.plan.library_calls), 'library call')}, "
             f"{count(made.workspace, 'byte')} of workspace; {jitted.strategy} on {made.target}, {seconds:.2f} s"]
    if level >= 2:
        lines += [f"  {decision}" for decision in stages.decisions]
    if level >= 3:
        lines += [f"# after trace\n{stages.program.graph}", f"# after simplify\n{stages.graph}", str(stages.plan),
                  *{k.name: str(k) for k in stages.kernels}.values()]
    if level >= 4:
        lines += {s.kernel.name: s.text for s in stages.sources}.values()
    sys.stderr.write("\n".join(lines) + "\n")
