"""Run a program: ``jit``, its cache of compiled programs, and ``lower``.

In:  a NumPy function and its arguments. Out: the same results, from stitched kernels.

    f(x) --key--> known? --no--> trace, simplify, fuse, stitch, schedule, emit, compile
                    |yes                                                           |
                    +--------> run its steps in the thread's workspace <-----------+

The files:

    target.py        chooses the target and the device
    this_machine.py  knows this machine's figures; doctor.py prints what it has
    plans.py         keeps plans on disk, in the folder of store.py
    memory.py        plans memory; pool.py reuses that of results
    steps.py         launches kernels and calls libraries
    assemble.py      makes the steps of a program
    call.py          writes a call as one function
    executable.py    runs the steps in a thread's workspace
    programs.py      decides which compiled programs to keep
    cpu/, cuda/      compile and run kernels on each processor
"""

import functools
import importlib
import os
import re
import sys
import threading
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..device import Device
from ..errors import CheckError, LoopWarning, MinisitchError, PlanError, needs
from ..errors.nearest import near
from ..errors.printed import Printed
from ..errors.progress import shown, working
from ..fuse import STRATEGIES
from ..graph import Graph, TensorType
from ..lower import STAGES, Stages, lower_program, program_of, stage_at
from ..passes.registry import chosen, for_target
from ..strategies.regions import runs_in_numpy
from ..trace import Program, Stale, Static, Unlike, trace
from ..trace.hooks import call as traced_call
from ..trace.outside import is_plain
from ..trace.parser import parse_type
from ..trace.recorder import ACTIVE, current, program_file, program_line, refuse
from ..trace.tracebacks import door, shorten
from ..trace.tree import (
    Inputs,
    Numbers,
    flatten,
    is_array,
    named_parts,
    require_end,
    told,
    type_of,
    unflatten,
    with_statics,
)
from .assemble import assemble
from .cuda import offline
from .executable import Executable, NumpyExecutable, ReferenceExecutable
from .memory import Lifetime, plan_memory
from .plans import plan_of
from .programs import Programs, RunCall
from .target import TARGETS, choose_device, choose_target

__all__ = ["STAGES", "TARGETS", "Executable", "Jitted", "Lifetime", "Stages", "assemble",
           "choose_device", "choose_target", "compile_graph", "jit", "lower", "lower_program",
           "parse_type", "plan_memory", "read_types"]


Named = str | Sequence[str]  # passes: "default", or their names
Passes = Named | None  # None: as the target has it
MANY_ANEW = 10
MOST_OTHERS = 4  # programs kept for one signature, if values outside the function change


@dataclass(frozen=True)
class Options:
    """What ``jit`` was told: its parameters."""

    strategy: str = "auto"
    target: str = "auto"
    device: str | Device | None = None
    exact: bool = True
    passes: Passes = None
    check: bool = False


# ---------------------------------------------------------------- lower
def read_types(value: Any) -> Any:
    """Replace shape strings such as ``"f32[128,768]"`` in a nest of arguments by ``TensorType``.

    Raises TraceError for a malformed shape string.
    """
    def read(part: Any) -> Any:
        shape = isinstance(part, str) and re.match(r"\s*(\w+\[[\d,\s]*\]\s*$|(bool|[iuf]\d+)\s*[\[(])", part)
        return parse_type(part) if shape else part
    leaves, tree = flatten(value)
    return unflatten(with_statics(tree, read), leaves)


def settings(fn: Any, strategy: str | None, target: str | None,
             device: str | Device | None, exact: bool | None,
             passes: Passes) -> tuple[Any, str, str, Device, bool, Named]:
    """The plain function (or the graph), and the settings not given here as ``jit`` was told.

    Raises as ``checked`` does.
    """
    jitted = fn._bound() if isinstance(fn, _Method) else fn  # ``fn`` keeps the object of a method
    told = jitted.options if isinstance(jitted, Jitted) else Options()
    given: dict[str, Any] = {"strategy": strategy, "target": target, "device": device,
                             "exact": exact, "passes": passes}
    options = replace(told, **{name: value for name, value in given.items() if value is not None})
    if device is None and choose_target(options.target) != choose_target(told.target):
        options = replace(options, device=None)  # what was told goes with the target that was told
    return jitted.function if isinstance(jitted, Jitted) else jitted, *checked(options)


def checked(options: Options) -> tuple[str, str, Device, bool, Named]:
    """The settings, with the target and the device that they choose.

    Raises MinisitchError for a value that a setting does not take, and for a target and a device
    that do not go together.
    """
    strategy, exact = options.strategy, options.exact
    chosen, machine = choose_target(options.target), choose_device(options.target, options.device)
    passes = for_target(options.passes, chosen)
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise PlanError(f"unknown strategy {strategy!r}{near(strategy, STRATEGIES)}; known: {', '.join(sorted(STRATEGIES))}")
    if not isinstance(passes, Collection):
        raise MinisitchError(f"passes is {passes!r}: write \"default\", or a tuple of names, as in passes=(\"vectorize\",)")
    if not isinstance(exact, bool):
        raise MinisitchError(f"exact is {exact!r}: write exact=True or exact=False")
    return strategy, chosen, machine, exact, passes


@door
@shown
def lower(fn: Callable[..., Any], /, *args: Any, strategy: str | None = None,
          target: str | None = None, device: str | Device | None = None, exact: bool | None = None,
          passes: Passes = None, stop_after: str = "emit", **kwargs: Any) -> Any:
    """The result of one stage for ``fn(*args)``. Arrays may be types such as ``"f32[128,768]"``.

    ``strategy``, ``target``, ``device`` and ``exact`` are those of ``jit``.

    ``stop_after``: ``trace`` gives a Program, ``simplify`` the Graph that strategies get, and
    ``fuse`` a FusionPlan. ``stitch``, ``schedule`` and ``emit`` give a tuple with a StitchPlan, a
    Kernel or a KernelSource for each kernel. Everything prints. The tuple of sources also shows
    machine code if the tools are installed: ``lower(fn, x, target="cuda").sass()``.

    ``schedule`` gives the plain kernel, and the name of a pass gives the kernel after it.
    ``passes`` is ``"default"`` or a tuple of names, as in ``("default", "mine")``. ``()`` leaves the
    kernel plain, as the target ``step`` does by default.

    Raises MinisitchError for an unknown stage or pass, and the errors of the stages.
    """
    fn, strategy, target, machine, exact, passes = settings(fn, strategy, target, device, exact, passes)
    stage_at(stop_after, chosen(passes, machine), machine)  # refuses an unknown name before tracing
    program = replace(trace(fn, read_types(args), read_types(kwargs)), exact=exact)
    made = lower_program(program, strategy, target, machine, stop_after, plan_of,
                         passes).at(stop_after)
    return Sources(made) if stop_after == "emit" else PrintedParts(made) if type(made) is tuple else made


class PrintedParts(Printed, tuple[Any, ...]):
    """A tuple that prints its parts one after another."""

    def __str__(self) -> str:
        return "\n\n".join(str(each).strip("\n") for each in self)


class Sources(PrintedParts):
    """The text of each kernel, and its PTX and SASS from an assembler. Equal kernels appear once.

    These methods are not on ``KernelSource``, because emitters know no assembler. A notebook shows
    the texts as programs.
    """

    def _repr_markdown_(self) -> str:
        return f"```python\n{self}\n```"

    def assembled(self, architecture: str = "sm_90") -> tuple[offline.Assembled, ...]:
        """Registers, spills and instructions of the different kernels.

        Raises DeviceError that says what to install.
        """
        return tuple(offline.assemble(source, architecture)
                     for source in {s.text: s for s in self}.values())

    def ptx(self, architecture: str = "sm_90") -> str:
        """The virtual assembly that NVIDIA's driver takes. Raises as ``assembled`` does."""
        return "\n".join(made.ptx for made in self.assembled(architecture))

    def sass(self, architecture: str = "sm_90") -> str:
        """The machine instructions of each kernel under a line with its figures."""
        return "\n".join(f"# {m.name}, {m}\n{m.sass}" for m in self.assembled(architecture))


def compile_graph(graph: Graph, strategy: str = "auto", target: str = "cpu",
                  device: str | Device | None = None, exact: bool = True,
                  passes: Passes = None) -> Executable:
    """Compile a graph that was built or parsed. ``.outputs(arrays)`` then gives a list of arrays.

    Raises as ``jit`` does for wrong settings.
    """
    needs("compile_graph(graph)", (graph, Graph))
    strategy, target, machine, exact, passes = checked(Options(strategy, target, device, exact, passes))
    stages = lower_program(program_of(graph, exact), strategy, target, machine, decide=plan_of,
                           passes=passes)
    return assemble(stages, target)


# ---------------------------------------------------------------- the front door
# (id of a Jitted, key) -> lock of its first call. Reentrant: a signal's handler may make the same.
_turns: dict[Any, Any] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.clear)  # the child lacks the threads that hold them


class Jitted:
    """A NumPy function that is compiled for each combination of shapes, dtypes and constants."""

    # Not in __dict__, which a program that calls this function reads again at each call.
    __slots__ = ("__dict__", "__weakref__", "_anew", "_ints", "_numbers", "_objects", "_ready",
                 "_varied")

    def __init__(self, fn: Callable[..., Any], options: Options) -> None:
        self.__name__ = self.__qualname__ = type(fn).__name__  # for a callable without a name
        functools.update_wrapper(self, fn)
        self.__wrapped__ = fn
        self.options = options
        self._owner: Callable[[], Any] | None = None  # for a method: returns the object
        self._ready = Programs()  # signature -> program
        self._objects: Counter[Any] = Counter()  # how often objects among the arguments made it compile, by their classes
        self._anew = 0  # how often values outside made it compile
        self._varied: set[int] = set()  # places of ints that changed between calls
        self._numbers = Numbers(varied=self._varied)  # which Python numbers are arguments
        # Signature without ints -> the ints of the first such call, by place.
        self._ints: dict[Any, dict[int, int]] = {}

    @property
    def function(self) -> Callable[..., Any]:
        """The wrapped function, bound to its object if it is a method."""
        return _bound(self.__wrapped__, self._owner)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if ACTIVE.get() is not None:  # the caller is being traced: become a part of its program
            return traced_call(noted(self.function), *args, **kwargs)
        try:
            leaves, key = _signature(args, kwargs, self._numbers)
            run = self._ready.get(key)
            if run is None:
                leaves, run = self._compile_once(key, args, kwargs)
            try:
                return run.run(leaves)
            except Stale as error:  # an error of what follows has no context of ours
                why = str(error)
            return self._again(run, leaves, key, args, kwargs, why)
        except Unlike:  # the plain function raises, warns, or has other numbers
            pass
        except Exception as error:
            if not getattr(error, "wrote", False):
                shorten(error, program_file(self))
                raise
        return self._plainly(args, kwargs)  # what it has written before an error stays written

    def _plainly(self, args: tuple, kwargs: dict) -> Any:
        """A call that no program can make."""
        return self.function(*args, **kwargs)

    def _again(self, run: RunCall, leaves: Sequence[Any], key: Any, args: tuple, kwargs: dict,
               why: str) -> Any:
        """Values outside the function changed: run a program compiled for these, or a new one."""
        before = self._ready.others.get(key, ())
        others = self._ready.others[key] = [run, *(x for x in before if x is not run)][:MOST_OTHERS]
        for each in others[1:]:
            try:
                result = each.run(leaves)
            except Stale:
                continue
            self._ready[key] = each
            return result
        self._ready.drop(key, run)
        self._anew += 1
        if self._anew == MANY_ANEW:
            warnings.warn(f"{program_line(self)[0]}: {self.__name__} is compiled anew for the "
                          f"{MANY_ANEW}th time, as what it reads outside changes{why and f' ({why})'}. "
                          "Pass a number that changes as an argument: another float compiles "
                          "nothing", LoopWarning, stacklevel=3)
        leaves, run = self._compile_once(key, args, kwargs)
        try:
            return run.run(leaves)
        except Stale as error:
            raise refuse(f"what {self.__name__} reads outside is another at each look",
                         f"it changes by itself, or the function "
                         f"changes it ({error})", "Ask outside, and pass the answer in as an argument",
                         (error.line, "") if error.line else program_line(self)) from None

    def _compile_once(self, key: Any, args: tuple, kwargs: dict) -> tuple[Sequence[Any], RunCall]:
        """Compile a key in one thread while others wait. If it fails, the next thread tries."""
        with _turns.setdefault((id(self), key), threading.RLock()):
            found = _signature(args, kwargs, self._numbers)[1]
            if not (run := self._ready.find(found)):
                self._notice_ints(args, kwargs)
                run = self._start(args, kwargs)
            _turns.pop((id(self), key), None)
            return _signature(args, kwargs, self._numbers)[0], run

    def _notice_ints(self, args: tuple, kwargs: dict) -> None:
        """Make an int an argument if only ints changed since the first call of this signature."""
        inputs = Inputs(Numbers(varied=range(sys.maxsize)))
        leaves, key = _signature(args, kwargs, inputs.numbers, inputs)
        numbers = [each for each in leaves if type(each) in (float, int)]
        ints = {place: x for place, x in zip(inputs.places, numbers, strict=True) if type(x) is int}
        first = self._ints.setdefault(key, ints) if ints else {}
        self._varied |= {place for place, each in ints.items() if first.get(place) != each}

    def _traced(self, args: tuple, kwargs: dict) -> tuple[Program, Any]:
        """The program and its key. A number whose value the trace needs becomes a constant."""
        while True:
            inputs = Inputs(self._numbers)
            leaves, key = _signature(args, kwargs, self._numbers, inputs)
            program = trace(self.function, args, kwargs, self._numbers)
            positions = [i for i, each in enumerate(leaves) if type(each) in (float, int)]
            if not program.fixed:
                return program, key
            self._numbers.fixed |= {place for place, i in zip(inputs.places, positions, strict=True)
                                    if i in program.fixed}

    def _program(self, args: tuple, kwargs: dict) -> tuple[Sequence[Any], Program | None]:
        """The leaves of a call and its program. None if the plain function ran."""
        leaves, key = _signature(args, kwargs, self._numbers)
        run: Any = self._ready.find(key)
        return leaves, getattr(getattr(run, "stages", run), "program", None)

    def _start(self, args: tuple, kwargs: dict) -> RunCall:
        """Compile the program of a first call, and remember it."""
        with working(self.__qualname__):
            program, key = self._traced(args, kwargs)
            if found := self._ready.find(key):  # another call differed only in a number
                return found
            self._notice_objects(program)
            self._ready[key] = made = self._build(program)
            return made

    def _notice_objects(self, program: Program) -> None:
        """Warn if only objects among the arguments are others at each call: each makes a program."""
        objects = [part.value for _, part in named_parts(program.inputs) if isinstance(part, Static)
                   and not is_plain(part.value)]
        kinds = (*map(type, objects), *(str(program.graph[i].type) for i in program.graph.inputs)) if objects else ()
        self._objects[kinds] += bool(objects)
        if self._objects[kinds] == MANY_ANEW:
            warnings.warn(f"{program_line(self)[0]}: {self.__name__} is compiled for the {MANY_ANEW}th object of its arguments "
                          f"({', '.join(dict.fromkeys(type(each).__name__ for each in objects))}). Make the object once, outside, "
                          "or pass what changes as arrays and numbers", LoopWarning, stacklevel=5)

    @door
    def compile(self, /, *args: Any, **kwargs: Any) -> RunCall:
        """Compile for these arguments without running. The result takes the array leaves."""
        with working(self.__qualname__):
            return self._build(self._traced(args, kwargs)[0])

    def _build(self, program: Program) -> RunCall:
        _, strategy, target, machine, exact, passes = settings(self, None, None, None, None, None)
        if target == "reference":
            return ReferenceExecutable(program)
        stages = lower_program(replace(program, exact=exact), strategy, target, machine,
                               decide=plan_of, passes=passes)
        if runs_in_numpy(stages.plan):
            warnings.warn(stages.plan.decisions[0].why, LoopWarning, stacklevel=2)
            return NumpyExecutable(stages, functools.partial(_bound, self.__wrapped__, self._owner))
        return assemble(stages, target)

    def clear(self) -> None:
        """Forget every compiled program, for a method those of all objects.

        The next call compiles again, or finds its kernels on disk.
        """
        for bound in [*_methods.get(self, {}).values()]:
            bound.clear()
        self._ready.clear()

    def lower(self, *args: Any, stop_after: str = "emit", **kwargs: Any) -> Any:
        """The result of one stage for these arguments; see ``minisitch.lower``."""
        return lower(self, *args, stop_after=stop_after, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """The report on this function for these arguments; see ``minisitch.explain``."""
        # A later room, so not a top import.
        return importlib.import_module("minisitch.explain").explain(self, *args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<minisitch.jit of {self.__qualname__}, strategy {self.options.strategy}, target {self.options.target}>"

    def __reduce__(self) -> Any:
        """Pickle a reference to the function, not its source. The other process compiles again."""
        fn = self.__wrapped__
        module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
        found = find(module, name)
        if found is self:
            return name
        return (_restore, (module, name, self.options)) if isinstance(found, Jitted) else (type(self), (fn, self.options))


class Checked(Jitted):
    """A jitted function whose calls also run the plain function (``jit(f, check=True)``)."""

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if ACTIVE.get() is not None:
            return traced_call(noted(self.function), *args, **kwargs)
        check = importlib.import_module("minisitch.testing.check")  # a later room
        _, before = check.copied((args, kwargs))
        got, own = check.outcome(super().__call__, args, kwargs)
        if isinstance(own, MinisitchError):
            raise own
        if isinstance(got, check.Plain):
            return got.result
        leaves, program = self._program(args, kwargs)
        # the plain function gets the arrays themselves, but for those that are written to
        written = None if program is None else {id(leaves[i]) for i, _ in program.mutated}
        (plain_args, plain_kwargs), left = check.copied((args, kwargs), written, before)
        want, error = check.outcome(self.function, plain_args, plain_kwargs)
        if own is not None and type(own) is type(error):
            raise own
        if own is not None or error is not None:
            raise CheckError(f"{self.__name__} raises {own!r}, and the plain function {error!r}") from (own or error)
        if program is not None:
            inputs, plain = ([made.get(id(leaf), leaf) for leaf in leaves]
                             for made in (before, left))
            check.compare(self.__name__, program, [*inputs, *program.outside(leaves)], got, want,
                          plain, leaves,
                          lambda: trace(self.function, plain_args, plain_kwargs, self._numbers))
        return got

    def _plainly(self, args: tuple, kwargs: dict) -> Any:
        return importlib.import_module("minisitch.testing.check").Plain(super()._plainly(args, kwargs))


def noted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that an object of ours holds. In a trace, paths to what it reads begin at it."""
    current().outside.root(fn)
    return fn


def _bound(fn: Callable[..., Any], owner: Callable[[], Any] | None) -> Callable[..., Any]:
    return fn if owner is None else types.MethodType(fn, owner())


@dataclass(frozen=True)
class _Method:
    """A jitted method of one object. Its programs are forgotten when the object dies."""

    function: Jitted
    instance: Any
    options = property(lambda self: self.function.options)

    def _bound(self) -> Jitted:
        """The Jitted of this object. It holds the object weakly, so the object can die."""
        methods, key = _methods.setdefault(self.function, {}), id(self.instance)
        if key not in methods:
            fn = self.function
            bound = type(fn)(fn.__wrapped__, fn.options)
            try:
                bound._owner = weakref.ref(self.instance, lambda _: methods.pop(key, None))
            except TypeError:
                raise refuse(f"{fn.__name__} is a jitted method of a {type(self.instance).__name__}",
                             "its class allows no weak references", "Add '__weakref__' to its "
                             "__slots__, or weakref_slot=True to its dataclass") from None
            methods.setdefault(key, bound)
        return methods[key]


def _of_an_object(name: str) -> Callable[..., Any]:
    """A method of ``Jitted`` for a ``_Method``, which keeps its object alive during the call."""
    def method(self: _Method, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._bound(), name)(*args, **kwargs)
    return door(functools.update_wrapper(method, getattr(Jitted, name)))


for _name in ("__call__", "lower", "explain", "clear"):
    setattr(_Method, _name, _of_an_object(_name))
_methods: weakref.WeakKeyDictionary[Jitted, dict[int, Jitted]] = weakref.WeakKeyDictionary()


@door
def jit(fn: Callable[..., Any] | None = None, *, strategy: str = "auto", target: str = "auto",
        device: str | Device | None = None, exact: bool = True, passes: Passes = None,
        check: bool = False) -> Any:
    """Compile a NumPy function at its first call, for each combination of shapes and dtypes.

    Use it as ``@jit``, ``@jit(strategy="xla")`` or ``jit(fn)``.

    Arguments. Arrays and Python floats are arguments of the program. Everything else is a constant,
    and each value compiles its own program. There are two exceptions. A float is a constant if the
    function asks for its value (``if lr > 0``, ``int(lr)``, ``x ** p``). An int becomes an argument
    when it alone changes between calls. Arrays are used in C order, and copied if they are not.

    Values outside. What the function reads by a plain path is read again at each call: a global or
    closure name, then attributes and items of your own objects, lists, dicts and tuples. A new
    array of the same shape and dtype is simply used. Another shape, number, flag or function
    compiles again. Everything else is looked at once, while the function is traced. It is traced
    twice: raises TraceError if that gives two programs, and if the function writes to an array from
    outside.

    ``check``: each call also runs the plain function, and raises CheckError where the results
    differ. MINISITCH_CHECK=1 checks all functions.

    ``strategy``: how operations are fused, one of ``minisitch.STRATEGIES``. ``device``: the machine
    that is planned for, such as ``"v100"``. Without it: this machine, or an H100 for ``step``,
    and for ``cuda`` where there is no GPU.

    ``target``: ``auto``, ``cpu`` or ``cuda``. To look inside: ``step`` (CUDA text, thread by
    thread), ``python`` (CPU text, not compiled) or ``reference`` (NumPy, node by node).

    ``exact``: element-wise values equal NumPy's to the last bit, under every strategy and target.
    Only these may differ: sums, whose order is free, matrix products, and the last digits of
    functions such as ``exp`` and ``tanh``. ``exact=False`` allows one rounding for a product and a
    sum, and keeps float16 values as float32 between operations.

    ``passes``: the passes that make kernels fast. ``"default"`` means those of the target. A tuple
    names passes (keys of ``minisitch.PASSES``), as in ``("vectorize",)`` or ``("default", "mine")``.
    ``()`` leaves kernels plain, as the target ``step`` does by default.

    Compiled programs of all functions share MINISITCH_PROGRAMS bytes (96 MiB unless set). Those
    used least recently are dropped. ``clear()`` drops those of one function.

    Raises MinisitchError if ``fn`` is not callable, DeviceError for an unknown target.
    """
    chosen = tuple(passes) if isinstance(passes, Collection) and not isinstance(passes, str) else passes
    options = Options(strategy, target, device, exact, chosen, check)
    if fn is None:
        return functools.partial(jit, **vars(options))
    if isinstance(fn, staticmethod | classmethod):  # @jit may stand above or below these
        return type(fn)(jit(fn.__func__, **vars(options)))
    if not callable(fn):
        raise MinisitchError(f"jit takes a function, not {fn!r:.60}; write jit(f), or @jit(strategy='astitch')")
    if target != "auto":
        choose_target(target)
    asked = check or os.environ.get("MINISITCH_CHECK", "0") not in ("", "0", "off")
    return (Checked if asked else Jitted)(fn.__wrapped__ if isinstance(fn, Jitted) else fn, options)


def _signature(args: tuple, kwargs: dict, numbers: Numbers,
               inputs: Inputs | None = None) -> tuple[Sequence[Any], tuple]:
    """The leaves in ``trace.flatten``'s order, and the signature. Every call runs this."""
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
    try:
        for arg in args:
            _add_to_key(arg, leaves, key, inputs)
        if kwargs:
            key.append("keywords")
            _add_to_key(kwargs, leaves, key, inputs)
    except RecursionError:
        require_end(args, kwargs)
        raise
    return leaves, tuple(key)


def _add_to_key(value: Any, leaves: list[Any], key: list[Any], inputs: Inputs) -> None:
    """Add an array's shape and dtype, or a container's kind and size, then its parts."""
    kind = type(value)
    if kind is np.ndarray:
        leaves.append(value)
        key += value.shape, value.dtype
    elif kind is float or kind is int:
        if inputs(value):
            leaves.append(value)
            key.append(kind)
        else:
            # repr tells 0.0 from -0.0, and makes nan equal to itself.
            key += kind, value if value and value == value else repr(value)
    elif kind is dict:
        key += kind, tuple(value), told([*value])
        for part in value.values():
            _add_to_key(part, leaves, key, inputs)
    elif kind is tuple or kind is list:
        key += kind, len(value)
        for part in value:
            _add_to_key(part, leaves, key, inputs)
    elif is_array(value) and not isinstance(value, np.generic | TensorType):  # of another library
        leaves.append(value)
        key += kind, tuple(value.shape), value.dtype
    else:
        found, tree = flatten(value, inputs)
        leaves += found
        key += tree, tuple((type_of(leaf), isinstance(leaf, np.generic)) for leaf in found)


def find(module: str | None, name: str) -> Any:
    """The object of this name in a loaded module, or None."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _restore(module: str, name: str, options: Options) -> Jitted:
    importlib.import_module(module)
    return jit(find(module, name), **vars(options))
