"""How a kernel is launched: its number of blocks, and the registers that a thread may have.

In:  a ``Kernel``. Out: the same kernel with ``grid`` and ``registers``.

A grid barrier needs all blocks resident at once, and their number depends on the registers of a
thread. AStitch (2022, 4.5) breaks this circle in three steps:

    assume   a thread needs 32 registers, or 64. This gives the number of resident blocks
    relax    with that number of blocks, a thread may have more registers than were assumed
    apply    the kernel is launched with these blocks, and compiled for these registers
"""

from dataclasses import replace

from ..stitch.mapping import MANY_REGISTERS
from . import Kernel

# The registers that a thread is assumed to need. In each of these cases they are MANY_REGISTERS:
#
# - The kernel has at least CROWDED arguments and grid barriers together. A grid barrier is a call,
#   and only half of a thread's registers keep their value over a call. The addresses of the arrays
#   must be kept, and the variables of later segments. With 32 registers, column sums over five
#   arrays and four barriers spilled 132 bytes; with 64 they spilled none.
# - A value is float64: it takes two registers.
# - There is no grid barrier. Then not all blocks have to be resident. A spilled register costs more
#   time than one resident block fewer.
# - Threads take several columns (``vectorize`` has set ``plan.maps``). They hold them in registers,
#   and a block has half as many threads.
REGISTERS, CROWDED = 32, 8


def with_launch(kernel: Kernel) -> Kernel:
    """The kernel with its number of blocks, and the registers that a thread may have.

    All blocks of a kernel with a grid barrier fit in one wave. No thread has fewer registers than
    were assumed.
    """
    device = kernel.device
    block, shared = kernel.block, kernel.shared_bytes
    grid = max((s.thread_map.blocks for s in kernel.segments), default=1)
    registers = 255
    if device.kind == "gpu":
        assumed = _assumed_registers(kernel)
        if kernel.grid_barriers:
            grid = min(grid, device.wave(block, shared, assumed))
        registers = device.relaxed_registers(block, shared, grid, assumed)
    # A block that takes no second task has nothing to wait for after its first.
    alone = [replace(s, task_barrier="none")
             if s.tasks <= grid else s for s in kernel.segments]
    return replace(kernel, segments=tuple(alone),
                   grid=max(1, grid), registers=registers)


def _assumed_registers(kernel: Kernel) -> int:
    barriers = kernel.grid_barriers
    doubles = any(b.dtype == "float64" for b in kernel.buffers)
    crowded = len(kernel.parameters) + barriers >= CROWDED
    many = crowded or doubles or kernel.plan.maps or not barriers
    return MANY_REGISTERS if many else REGISTERS
