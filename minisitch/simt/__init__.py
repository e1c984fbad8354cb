"""The stepper: runs emitted CUDA kernel text anywhere, thread by thread, and checks it.

In:  kernel source text and arrays. Out: the arrays changed as by a launch, and a ``Traffic``. Or a
``KernelBug`` that names the rule, the line, the threads and the cell.

For a kernel with a missing barrier a GPU computes *something*, often the right numbers. So does the
CUDA simulator. The stepper does not look for wrong numbers. It checks that any two accesses of a
cell are ordered (``memory.ordered``), that all threads reach a barrier, and that values are written
before they are read. So it refuses such a kernel under every seed. Before each atomic operation
other threads may run. A lock that two threads can hold, or a counter that loses counts, is found
under some seeds. The rules:

    race               two threads touch a cell, one writes, and nothing orders the two accesses
                       (a barrier does, or a release and an acquire)
    divergent-barrier  threads wait at different barriers, or some have ended
    lane-mask          a lane outside its own mask, or a value from a lane that takes no part
    unwritten-read     a read of shared, local or output memory that nothing has written
    wrong-owner        bytes with two names, written under one and read under the other
    misaligned         a wide access that does not begin at a multiple of its size
    out-of-bounds      an index outside the array, negative, or no integer
    one-wave           a grid barrier and more blocks than are resident at once
    deadlock           threads go round while loops and nothing changes
    endless            a loop that nothing in it ends, or more rounds than a launch may take
    memory-limit       more shared or local memory than a device has
    unwritten-output   a cell of an array in ``outputs`` that no thread writes
    float64-literal    a float literal that would make Numba compute in float64
    mixed-dtype        a variable that is an integer first, and then a float
    outside-dialect    a part of CUDA or Python that kernel text may not use (``dialect``)
    exception          a Python error: a variable without a value, a division by zero

Reading order: ``dialect`` (what a text may say), ``values`` (scalars), ``text`` (the rewriting),
``memory`` (the checks), ``traffic`` (the counts), ``record`` (the film), ``machine`` (who runs
when), ``source`` (functions as text). It is a model. It has no time, no caches, and no memory
order weaker than the rules. Whether a thread reads a counter before or after another adds to it
depends on time, and so does all that this orders. A mistake in a queue or a lock may take many
seeds to find.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..errors import MinisitchError
from ..trace.tracebacks import door
from .machine import IN_FLIGHT, Machine
from .memory import WRITING, Memory, Now, Sizes
from .record import FilmEvent, kind_of_memory
from .source import text_of
from .text import KernelProgram, kernel_bug, read_program
from .traffic import ArrayBytes, LineTraffic, Traffic
from .values import given

__all__ = ["ArrayBytes", "FilmEvent", "LaunchError", "LineTraffic", "Traffic", "step"]

SHARED_BYTES = 49_152  # that a block has without asking for more
THREADS = 1024
BLOCKS = 1_000_000


class LaunchError(MinisitchError, ValueError):
    """A launch that cannot be made: other arguments than the kernel has, or too many threads."""


@door
def step(kernel: str | Callable[..., Any], arrays: Sequence[Any] | Mapping[str, Any],
         grid: int | Sequence[int], block: int | Sequence[int], seed: int = 0, *,
         name: str | None = None, wave: int | None = None,
         inputs: Iterable[str | int] | None = None, outputs: Iterable[str | int] = (),
         queues: Iterable[str] = (), rounds: int | None = None, shared: int = SHARED_BYTES,
         threads: int = THREADS, record: list[FilmEvent] | None = None,
         lockstep: bool = False) -> Traffic:
    """Launch a kernel on ``grid`` blocks of ``block`` threads, each a number or up to three.

    ``kernel`` is text, or a function (``source``). If a text has several functions, ``name`` picks
    the kernel, and otherwise it is the last one.

    Changes ``arrays`` in place. They are the arguments in order, or by parameter name. Scalars pass
    through. ``inputs`` names the arrays that hold data at the start, by parameter name or position.
    By default these are the arrays that the text never writes. In all others a cell must be written
    before it is read. In an array that ``outputs`` names every cell must be written.
    ``wave`` is the number of blocks that are resident at once. ``queues`` names arrays that stay in
    L2: their bytes are counted apart. ``record`` is a list that gets a ``FilmEvent`` for each
    access and meeting, also before a refusal. In ``lockstep`` the threads of a block take turns at
    each access, as if a barrier stood there, and no race is refused: it shows what else is wrong.

    The limits: ``rounds`` of the loops of all threads until the next block ends, bytes of
    ``shared`` memory of a block, and ``threads`` of a block. By default there are half a million
    rounds, 20,000 for each of 512 threads, 1,000 for each further thread, and 20 for each cell of
    the arguments.

    Raises KernelBug if the kernel breaks a rule, LaunchError for a launch that cannot be made, and
    MinisitchError for arguments of another kind.
    """
    _refuse_other_kinds(kernel, arrays)
    for what, limit in (("wave", wave), ("rounds", rounds), ("shared", shared),
                        ("threads", threads)):
        if limit is not None and (not isinstance(limit, int | np.integer) or limit < 1):
            raise LaunchError(f"{what} is {limit!r:.60}: write a positive integer")
    if not isinstance(seed, int | np.integer):
        raise LaunchError(f"seed is {seed!r:.60}: write an integer")
    if not isinstance(record, list | None):
        raise LaunchError(f"record is {record!r:.60}: write events = [], then step(..., record=events)")
    if not isinstance(kernel, str):
        kernel, name = text_of(kernel)
    shape, size = _sizes("grid", grid), _sizes("block", block)
    if min(size) < 1 or prod(size) > threads:
        raise LaunchError(f"a grid of {grid} and a block of {block} threads: a block has 1 to {threads:,} threads")
    if min(shape) < 0 or prod(shape) > BLOCKS:
        raise LaunchError(f"the grid is {grid}: a number of blocks is not negative, and at most {BLOCKS:,} here")
    values = dict(arrays if isinstance(arrays, Mapping) else by_name(read_program(kernel, name), arrays))
    program = read_program(kernel, name, frozenset(each for each in values if isinstance(values[each], np.ndarray)), lockstep)
    if values.keys() != set(program.parameters):
        raise LaunchError(f"{program.name} takes {program.parameters}, got {tuple(values)}")
    _refuse_float64(program, values)
    blocks = prod(shape)
    if program.waits_for("grid.sync") and wave is not None and blocks > wave:
        raise program.bug("one-wave", f"a grid barrier with {blocks} blocks, but only {wave} are resident at once",
                          *((site, "here") for site, s in enumerate(program.sites)
                            if s.verb == "grid.sync"))
    now = Now(shape, size, record)
    arguments = _arguments(program, values, inputs, _named(program, "queues", queues), now)
    written = _named(program, "outputs", outputs)
    # Those may wait for each other.
    in_flight = wave or (blocks if program.waits_for("grid.sync", "while") else IN_FLIGHT)
    cells = sum(np.size(value) for value in values.values())
    with np.errstate(all="ignore"):
        all_threads = blocks * prod(size)
        rounds = rounds or 500_000 + 1_000 * all_threads + 19_000 * min(512, all_threads) + 20 * cells
        traffic = Machine(program, arguments, now, int(seed), in_flight, rounds, shared).run()
    for each, value in zip(program.parameters, arguments, strict=True):
        if each in written and isinstance(value, Memory):
            _require_all_written(program, each, value)
    return traffic


def by_name(program: KernelProgram, arrays: Sequence[Any]) -> dict[str, Any]:
    """The arguments, each with its parameter."""
    if len(arrays) != len(program.parameters):
        raise LaunchError(f"{program.name} takes one array for each of {program.parameters}, got {len(arrays)}")
    return dict(zip(program.parameters, arrays, strict=True))


def _sizes(what: str, given: int | Sequence[int]) -> Sizes:
    """A grid or block as three numbers."""
    sizes = list(given) if isinstance(given, Sequence) else [given]
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, int | np.integer)
                                           and not isinstance(n, bool) for n in sizes):
        raise LaunchError(f"the {what} is {given!r:.60}: write an integer, or a tuple of up to three")
    x, y, z = (*map(int, sizes), 1, 1, 1)[:3]
    return x, y, z


def _named(program: KernelProgram, what: str, names: Iterable[str | int] | str | int) -> set[str]:
    """Parameters by name or position."""
    names = [] if names is None else names if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    found = [program.parameters[i] if isinstance(i, int) and 0 <= i < len(program.parameters) else i
             for i in names]
    if not all(isinstance(each, str) and each in program.parameters for each in found):
        raise LaunchError(f"{what} {sorted(map(str, found))} are not all parameters of {program.name}{program.parameters}")
    return set(found)  # type: ignore[arg-type]


def _refuse_float64(program: KernelProgram, values: Mapping[str, Any]) -> None:
    """Refuse bare float literals, unless an argument is in float64."""
    if program.doubles and not any(isinstance(v, np.ndarray) and v.dtype == np.float64
                                   for v in values.values()):
        line, literal = program.doubles[0]
        raise kernel_bug("float64-literal", f"{literal} makes Numba compute in float64; write "
                         "np.float32(...)", program.lines, (line, "here"), kernel=program.name)


def _require_all_written(program: KernelProgram, name: str, array: Memory) -> None:
    missing = [c for c in range(array.size) if c not in array.writes and c not in array.atomics]
    if not missing:
        return
    stores = [(site, f"writes to {name}") for site, s in enumerate(program.sites)
              if s.verb in WRITING and s.array == name]
    others = f" and {len(missing) - 1:,} more cell{'s' * (len(missing) > 2)} of {name} are" if missing[1:] else " is"
    why = ("There are too few threads, or an if leaves it out" if stores
           else f"No line writes to {name}: write {name}[i] = ...")
    raise program.bug("unwritten-output", f"{array.show(missing[0])}{others} written by no thread. "
                      f"{why}", *(stores or [(0, "here")]))


def _refuse_other_kinds(kernel: Any, arrays: Any) -> None:
    """Refuse a kernel that is no text or function, and arguments that are no arrays and numbers."""
    if not isinstance(kernel, str) and not callable(kernel):
        raise MinisitchError(f"step takes a kernel as text or as a function, and got "
                             f"{type(kernel).__name__}: {kernel!r:.60}; the text of a traced one "
                             "is ms.lower(f, x, target='cuda')[0].text")
    if not isinstance(arrays, Mapping | Sequence) or isinstance(arrays, str):
        raise MinisitchError(f"step takes the arguments as a list, or a dict by parameter name, "
                             f"and got {type(arrays).__name__}; write step(text, [x, y], grid, "
                             "block)")
    for place, each in arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays):
        if not isinstance(each, np.ndarray | np.generic | int | float):
            raise MinisitchError(f"argument {place!r} is a {type(each).__name__}, no NumPy array or number: write np.asarray(x)")
        if isinstance(each, np.ndarray) and type(each) not in (np.ndarray, np.memmap):
            raise MinisitchError(f"argument {place!r} is a {type(each).__name__}, which is more than an array: write np.asarray(x)")
        if isinstance(each, np.ndarray | np.generic) and (each.dtype.kind not in "biuf" or each.itemsize > 8):
            raise MinisitchError(f"argument {place!r} is {each.dtype.name}: a kernel has bools, "
                                 "integers and floats; write x.astype(np.float32)")


def _arguments(program: KernelProgram, values: Mapping[str, Any],
               inputs: Iterable[str | int] | None, queues: set[str], now: Now) -> list[Any]:
    """Arrays wrapped to watch their accesses. An array that is given twice is one memory."""
    written = {name for name in program.written if isinstance(values[name], np.ndarray)}
    holding = set(program.parameters) - written if inputs is None else _named(program, "inputs", inputs)
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    memories: dict[int, Memory] = {}
    kind = kind_of_memory(now, program)
    for name, array in arrays.items():
        same = [other for other in arrays if arrays[other] is array]
        if name in written and not array.flags.writeable:
            raise LaunchError(f"{name} of {program.name} is written to, and the array is read-only; give a copy")
        if not array.flags.c_contiguous:
            raise LaunchError(f"{name} of {program.name} is not contiguous; give a copy")
        others = arrays.keys() - same if name in written else written - {*same}
        if any(np.may_share_memory(array, arrays[other]) for other in others):
            raise LaunchError(f"{name} of {program.name} overlaps another argument; give one array twice, or a copy")
        memories.setdefault(id(array), kind(
            name, array, "global", now, program, holds_data=not holding.isdisjoint(same),
            watched=not written.isdisjoint(same), has_owners=len(same) > 1,
            is_queue=not queues.isdisjoint(same)))
    return [memories[id(values[name])] if name in arrays else given(values[name])
            for name in program.parameters]
