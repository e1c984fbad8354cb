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
    endless            the launch takes more rounds of loops than it may
    float64-literal    a float literal that would make Numba compute in float64
    outside-dialect    a part of CUDA or Python that emitted text does not use
    exception          a Python error: a name without a value, a division by zero

Reading order: ``values`` (scalars), ``text`` (the rewriting), ``memory`` (the checks), ``traffic``
(the counts), ``machine`` (who runs when). It is a model. It has no time, no caches, and no memory
order weaker than the rules. Whether a thread reads a counter before or after another adds to it
depends on time, and so does all that this orders. A mistake in a queue or a lock may take many
seeds to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import MinisitchError
from .machine import IN_FLIGHT, Machine
from .memory import Memory, Now
from .text import KernelProgram, kernel_bug, read_program
from .traffic import ArrayBytes, LineTraffic, Traffic

__all__ = ["ArrayBytes", "LineTraffic", "Traffic", "step"]


def step(text: str, arrays: Sequence[Any] | Mapping[str, Any], grid: int, block: int, seed: int = 0, *,
         name: str | None = None, wave: int | None = None,
         inputs: Iterable[str | int] | None = None, queues: Iterable[str] = (), rounds: int | None = None) -> Traffic:
    """Launch the kernel in ``text`` on ``grid`` blocks of ``block`` threads.

    Changes ``arrays`` in place. They are the arguments in order, or by parameter name. Scalars pass
    through. ``inputs`` names the arrays that hold data at the start, by parameter name or position.
    By default these are the arrays that the text never writes. In all others a cell must be written
    before it is read. ``wave`` is the number of blocks that are resident at once. ``name`` picks a
    kernel if the text has several. ``queues`` names arrays that stay in L2: their bytes are counted
    apart. ``rounds`` bounds the rounds of all loops of all threads together (by default a million,
    and 20,000 for each thread).

    Raises KernelBug if the text breaks a rule, MinisitchError for arguments of another kind, and
    ValueError for a launch that cannot be made.
    """
    _refuse_other_kinds(text, arrays)
    program = read_program(text, name)
    if not isinstance(arrays, Mapping) and len(arrays) != len(program.parameters):
        raise ValueError(f"{program.name} takes {len(program.parameters)} arrays {program.parameters}, got {len(arrays)}")
    values = dict(arrays) if isinstance(arrays, Mapping) else dict(zip(program.parameters, arrays, strict=True))
    if values.keys() != set(program.parameters):
        raise ValueError(f"{program.name} takes {program.parameters}, got {tuple(values)}")
    if not isinstance(grid, int | np.integer) or not isinstance(block, int | np.integer):
        raise ValueError(f"grid {grid} and block {block}: launches have one dimension here, so both are plain integers")
    if not 0 < block <= 1024 or grid < 0:
        raise ValueError(f"{grid} blocks of {block} threads: a block has 1 to 1024 threads")
    if program.doubles and not any(isinstance(v, np.ndarray) and v.dtype == np.float64 for v in values.values()):
        line, literal = program.doubles[0]
        raise kernel_bug("float64-literal", f"{literal} makes Numba compute in float64; write np.float32(...)", program.lines,
                         (line, "here"))
    together = program.waits_for("grid.sync", "while")  # blocks that may wait for each other
    if program.waits_for("grid.sync") and wave is not None and grid > wave:
        raise program.bug("one-wave", f"a grid barrier with {grid} blocks, but only {wave} are resident at once",
                          *((site, "here") for site, s in enumerate(program.sites) if s.verb == "grid.sync"))
    now = Now()
    if not set(queues) <= set(program.parameters):
        raise ValueError(f"queues {sorted(queues)} are not all parameters of {program.name}{program.parameters}")
    arguments = _arguments(program, values, inputs, set(queues), now)
    in_flight = wave or (grid if together else IN_FLIGHT)
    with np.errstate(all="ignore"):
        return Machine(program, arguments, now, grid, block, seed, in_flight,
                       rounds or 1_000_000 + 20_000 * grid * block).run()


def _refuse_other_kinds(text: Any, arrays: Any) -> None:
    """Raise MinisitchError if the text is no string, or the arguments are no arrays and numbers."""
    if not isinstance(text, str):
        raise MinisitchError(f"step takes the text of a kernel as a str, and got {type(text).__name__}: {text!r:.60}; "
                             "the text of a traced one is ms.lower(f, x, target='cuda')[0].text")
    if not isinstance(arrays, Mapping | Sequence) or isinstance(arrays, str):
        raise MinisitchError(f"step takes the arguments as a list, or a dict by parameter name, and got {type(arrays).__name__}; "
                             "write step(text, [x, y], grid, block)")
    for place, each in arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays):
        if not isinstance(each, np.ndarray | np.generic | int | float):
            raise MinisitchError(f"argument {place!r} is a {type(each).__name__}, no NumPy array or number: write np.asarray(x)")


def _arguments(program: KernelProgram, values: Mapping[str, Any], inputs: Iterable[str | int] | None, queues: set[str],
               now: Now) -> list[Any]:
    """Arrays wrapped to watch their accesses. An array that is given twice is one memory."""
    written = {name for name in program.written if isinstance(values[name], np.ndarray)}
    if inputs is None:
        holding = set(program.parameters) - written
    else:
        holding = {program.parameters[i] if isinstance(i, int) else i for i in inputs}
        if not holding <= set(program.parameters):
            raise ValueError(f"inputs {sorted(holding)} are not all parameters of {program.name}{program.parameters}")
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    memories: dict[int, Memory] = {}
    for name, array in arrays.items():
        same = [other for other in arrays if arrays[other] is array]
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} of {program.name} is not contiguous; give a copy")
        others = arrays.keys() - same if name in written else written - {*same}
        if any(np.may_share_memory(array, arrays[other]) for other in others):
            raise ValueError(f"{name} of {program.name} overlaps another argument; give one array twice, or a copy")
        memories.setdefault(id(array), Memory(name, array, "global", now, program,
                                              holds_data=not holding.isdisjoint(same),
                                              watched=not written.isdisjoint(same), has_owners=len(same) > 1,
                                              is_queue=not queues.isdisjoint(same)))
    return [memories.get(id(values[name]), values[name]) for name in program.parameters]
