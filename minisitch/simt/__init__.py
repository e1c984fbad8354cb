"""The stepper: runs emitted CUDA kernel text anywhere, thread by thread, and judges it.

In:  kernel source text and arrays. Out: the arrays changed as by a launch, and a ``Traffic``; or a
``KernelBug`` that names the rule, the line, the threads and the cell.

A GPU, and the CUDA simulator, compute *something* for a kernel with a missing barrier, often the right
thing. The stepper refuses it under every seed, because it does not look for wrong numbers: it checks
that any two accesses of a cell are ordered (``memory.ordered``), that all who must come to a barrier
come, that what is read was written. Before each atomic operation others may run: a lock that two threads can hold, or a counter
that loses counts, shows so under some seeds. The rules:

    race               two threads touch a cell, one writes, no barrier (or release and acquire) between covers both
    divergent-barrier  threads wait at different barriers, or some have ended
    lane-mask          a lane outside its own mask, or a value from a lane that takes no part
    unwritten-read     of shared, local or output memory that nothing has written
    wrong-owner        bytes with two names, written under one and read under the other
    misaligned         a wide access that does not begin at a multiple of its size
    out-of-bounds      an index outside the array, negative, or no integer
    one-wave           a grid barrier and more blocks than are resident at once
    deadlock           threads go round while loops and nothing changes
    float64-literal    a float literal that would make Numba compute in float64
    outside-dialect    something of CUDA that emitted text has no business with
    exception          a Python error: a name without a value, a division by zero

Reading order: ``values`` (scalars), ``text`` (the rewriting), ``memory`` (the judge), ``traffic`` (the
counts), ``machine`` (who runs). It is a model: no time, no caches, no memory order weaker than the rules.
Who reads a counter before or after another adds to it is a matter of time, and so is what that orders: a mistake in a
queue or a lock may take many seeds to be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .machine import IN_FLIGHT, Machine
from .memory import Memory, Now
from .text import KernelProgram, kernel_bug, read_program
from .traffic import ArrayBytes, LineTraffic, Traffic

__all__ = ["ArrayBytes", "LineTraffic", "Traffic", "step"]


def step(text: str, arrays: Sequence[Any] | Mapping[str, Any], grid: int, block: int, seed: int = 0, *,
         name: str | None = None, wave: int | None = None,
         inputs: Iterable[str | int] | None = None, queues: Iterable[str] = (), rounds: int | None = None) -> Traffic:
    """Launch the kernel in ``text`` on ``grid`` blocks of ``block`` threads; change ``arrays`` in place.

    ``arrays`` are the arguments in order, or by parameter name; scalars pass through. ``inputs`` names
    those that hold data at the start (by parameter name or position); reading a cell of any other array
    before writing it is refused. Left out, it means the arrays that the text never writes to. ``wave`` is
    the number of blocks that are resident at once; ``name`` picks a kernel where the text has several.
    ``queues`` names arrays that stay in L2: their bytes are counted apart. ``rounds``: of all loops of all threads together, that
    the launch may take (left out: a million, and 20,000 for each thread).

    Raises KernelBug where the text misbehaves, ValueError for a launch that cannot be made.
    """
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


def _arguments(program: KernelProgram, values: Mapping[str, Any], inputs: Iterable[str | int] | None, queues: set[str],
               now: Now) -> list[Any]:
    """Arrays wrapped for watching; one array given twice is one memory, so that its accesses meet."""
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
