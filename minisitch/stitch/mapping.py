"""Adaptive thread mapping: which block and thread computes which element (AStitch 2022, 4.2).

In:  the (rows, columns) of a dominant operation and a ``Device``. Out: a ``ThreadMap``.

The paper's two irregular shapes show why one rule does not fit all. A *wave* is the blocks that are
resident on the device at once. On a V100 it holds 160 blocks:

    <750000, 32>   one row a block: 750,000 blocks of one warp
                   -> horizontal packing: 32 rows a block -> vertical packing: 147 in turn
    <64, 30000>    one row a block: 96 blocks are idle         -> task splitting: 2 blocks a row
"""

from dataclasses import dataclass

from ..device import Device
from ..fuse import count

WARP = 32
EXCHANGED_AT_ONCE = 32  # reductions whose results the warps of a row exchange at one barrier
LONG_ROW = 1024  # the paper's bound: only longer rows are split
CPU_TILE = 4096  # columns that a core sums up at a time: 16 kB of float32, half an L1 cache
COLUMNS = 8  # columns of one thread: two accesses of 16 bytes in flight
MANY_REGISTERS = 64  # registers of a thread that takes several columns
SHORTEST_SLICE = {"gpu": 64, "cpu": 256}  # reduced rows that are worth a partial result


@dataclass(frozen=True)
class ThreadMap:
    """Blocks x threads over rows x columns.

    A block takes ``rows_per_block`` rows at once (horizontal packing), with ``threads_per_row``
    threads for each. It takes ``steps`` such batches of rows in turn (vertical packing). If
    ``splits`` is more than 1, a row is cut into that many chunks of ``chunk`` columns, and each
    chunk is a task (task splitting). ``rule`` names the rule that chose the mapping, and ``why``
    gives its numbers.
    """

    rows: int
    cols: int
    blocks: int
    threads: int
    rows_per_block: int
    threads_per_row: int
    steps: int
    splits: int
    chunk: int
    rule: str
    why: str

    @property
    def tasks(self) -> int:
        """The number of tasks. A block takes a task in one turn: rows, or a chunk of a row."""
        return -(-self.rows // self.rows_per_block) * self.splits


def power_of_two_at_least(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def map_rows(rows: int, cols: int, device: Device, *, adaptive: bool = True, whole: bool = False,
             threads_per_row: int = 0, threads: int = 0) -> ThreadMap:
    """Map ``rows`` x ``cols`` to blocks and threads, as in AStitch B5.

    The paper gives neither the split factor nor the threads per row. Ours are derived.
    ``adaptive=False`` is XLA's rule, a block a row. ``whole`` forbids splitting a row over blocks.
    ``threads_per_row`` is one of FusionStitching 2020's templates (1: a thread a row, 32: a warp,
    more: a block), and ``threads`` is the size of a block. 0 leaves the choice to this function. A
    CPU has one thread a task. Every shape has a mapping, also an empty one.
    """
    block = min(threads or device.max_block, device.max_block)
    wave, per_row = device.wave(block), 1
    if device.kind == "gpu":
        per_row = min(block, threads_per_row or max(WARP, power_of_two_at_least(cols)))
    if not adaptive:  # as XLA does: 750,000 blocks of 32 threads for <750000, 32>
        return ThreadMap(rows, cols, max(1, rows), per_row, 1, per_row, 1, 1, cols, "row-per-block",
                         f"a block of {count(per_row, 'thread')} for each of {count(rows, 'row')}")
    if rows < wave and cols > LONG_ROW and not whole and not threads_per_row:
        # a chunk keeps a whole block busy
        splits = min(max(1, wave // max(1, rows)), -(-cols // LONG_ROW))
        chunk = -(-cols // splits)
        if device.kind == "gpu":
            chunk = -(-chunk // COLUMNS) * COLUMNS  # chunks begin where 16-byte accesses may
        splits = -(-cols // chunk)
        return ThreadMap(rows, cols, max(1, rows * splits), block, 1, block, 1, splits, chunk, "task-splitting",
                         f"rows alone fill {rows} of {wave} resident blocks; {count(splits, 'chunk')} of {chunk} columns each")
    together = max(1, block // per_row)
    batches = max(1, -(-rows // together))
    steps = -(-batches // wave)
    blocks = -(-batches // steps)
    why = f"{count(blocks, 'range')} of {count(steps, 'row')}; a core takes one range at a time"
    if device.kind == "gpu":
        why = f"{count(per_row, 'thread')} a row, {count(together, 'row')} a block, {steps} in turn: {blocks} of {wave} resident"
    return ThreadMap(rows, cols, blocks, together * per_row, together, per_row, steps, 1, cols, "task-packing", why)


def map_columns(rows: int, serial: int, cols: int, device: Device, whole: bool = False) -> tuple[ThreadMap, int]:
    """Map a column-reduce: threads across kept columns, reduced rows in turn (AStitch B5, derived).

    There are ``rows`` independent problems of ``serial`` x ``cols``. Returns the map over (rows,
    cols) and the number of slices of the serial axis. There are enough slices to fill one wave.
    With more than one, each slice leaves a partial result, and the next segment combines these in a
    fixed order. ``whole`` forbids slices.
    """
    threads = min(device.max_block, 256, max(WARP, power_of_two_at_least(cols)))
    width = threads if device.kind == "gpu" else max(1, min(cols, CPU_TILE))
    wave = device.wave(threads)
    tiles = max(1, -(-cols // width))
    tasks = max(1, rows * tiles)
    slices = 1 if whole else max(1, min(wave // tasks, serial // SHORTEST_SLICE[device.kind]))
    # rounding up may leave the last slice empty
    slices = -(-serial // -(-serial // slices)) if slices > 1 else 1
    blocks = min(tasks * slices, wave)
    steps = -(-tasks * slices // blocks)
    why = (f"{count(tiles, 'tile')} of {count(width, 'column')}, {count(slices, 'slice')} of "
           f"{count(serial, 'reduced row')}: {blocks} of {wave} resident")
    return ThreadMap(rows, cols, blocks, threads, 1, threads, steps, tiles, width, "column-tiles", why), slices
