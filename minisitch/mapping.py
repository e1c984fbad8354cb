"""Adaptive thread mapping: how rows and columns are dealt out to blocks and threads (AStitch 2022, 4.2).

In:  the (rows, columns) of a dominant operation and a ``Device``. Out: a ``ThreadMap``.

The paper's two irregular shapes show why one rule does not fit all (V100, one wave = 160 blocks):

    <750000, 32>   one row a block wastes 31 of 32 warps    -> horizontal packing: 32 rows a block,
                                                               vertical packing: 147 of these in turn
    <64, 30000>    one row a block leaves 96 blocks idle    -> task splitting: 2 blocks a row
"""

from __future__ import annotations

from dataclasses import dataclass

from .device import Device

WARP = 32
LONG_ROW = 1024  # the paper's bound: only rows above it are worth splitting
CPU_TILE = 4096  # columns a core sums up at a time: 16 kB of float32, half an L1 cache
SHORTEST_SLICE = {"gpu": 64, "cpu": 256}  # reduced rows that are worth a partial result


@dataclass(frozen=True)
class ThreadMap:
    """Blocks x threads over rows x columns.

    A block takes ``rows_per_block`` rows at once (horizontal packing), ``threads_per_row``
    threads each, and ``steps`` such row groups in turn (vertical packing). With ``splits`` > 1
    a row is cut into that many chunks of ``chunk`` columns, one task each (task splitting).
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
        """Row groups, or chunks of rows: what the blocks take in turn."""
        return -(-self.rows // self.rows_per_block) * self.splits


def power_of_two_at_least(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def map_rows(rows: int, cols: int, device: Device, shared: int = 0, *, adaptive: bool = True, whole: bool = False,
             threads_per_row: int = 0, threads: int = 0) -> ThreadMap:
    """Map ``rows`` x ``cols`` as in AStitch B5 (split factor and threads per row derived).

    ``whole``: no row is split over blocks. ``threads_per_row`` (FusionStitching 2020's templates: 1 thread, 32 warp,
    more block) and ``threads`` (a block's) are chosen here unless given; a CPU has one thread a task.
    Raises nothing: any shape, empty ones included, has a mapping.
    """
    block = min(threads or device.max_block, device.max_block)
    wave = device.wave(block, shared)
    if not adaptive:  # as XLA does: 750,000 blocks of 32 threads for <750000, 32>
        per_row = min(block, max(WARP, power_of_two_at_least(cols))) if device.kind == "gpu" else 1
        return ThreadMap(rows, cols, max(1, rows), per_row, 1, per_row, 1, 1, cols, "row-per-block",
                         f"a block of {per_row} threads for each of {rows} rows")
    if rows < wave and cols > LONG_ROW and not whole and not threads_per_row:
        splits = min(max(1, wave // max(1, rows)), -(-cols // LONG_ROW))  # a chunk keeps a whole block busy
        chunk = -(-cols // splits)
        splits = -(-cols // chunk)
        return ThreadMap(rows, cols, max(1, rows * splits), block, 1, block, 1, splits, chunk, "task-splitting",
                         f"{rows} rows fill {rows} of {wave} resident blocks; {splits} chunks of {chunk} columns each")
    per_row = min(block, threads_per_row or max(WARP, power_of_two_at_least(cols))) if device.kind == "gpu" else 1
    together = max(1, block // per_row)
    groups = max(1, -(-rows // together))
    steps = -(-groups // wave)
    blocks = -(-groups // steps)
    why = f"{per_row} threads a row, {together} rows a block, {steps} in turn: {blocks} of {wave} resident" \
        if device.kind == "gpu" else f"{blocks} ranges of {steps} rows, each a core's in turn"
    return ThreadMap(rows, cols, blocks, together * per_row, together, per_row, steps, 1, cols, "task-packing", why)


def map_columns(rows: int, serial: int, cols: int, device: Device, whole: bool = False) -> tuple[ThreadMap, int]:
    """Map a column-reduce: threads across kept columns, reduced rows in turn (AStitch B5, derived).

    ``rows`` independent problems of ``serial`` x ``cols``. Returns the map over (rows, cols) and the
    number of slices the serial axis is cut into so that one wave is filled; more than one slice
    leaves partial results that a following segment combines, in a fixed order. ``whole``: one slice.
    """
    threads = min(device.max_block, 256, max(WARP, power_of_two_at_least(cols)))
    width = threads if device.kind == "gpu" else max(1, min(cols, CPU_TILE))
    wave = device.wave(threads)
    tiles = max(1, -(-cols // width))
    tasks = max(1, rows * tiles)
    slices = 1 if whole else max(1, min(wave // tasks, serial // SHORTEST_SLICE[device.kind]))
    slices = -(-serial // -(-serial // slices)) if slices > 1 else 1  # rounded up, the last may have nothing left
    blocks = min(tasks * slices, wave)
    steps = -(-tasks * slices // blocks)
    why = f"{tiles} tiles of {width} columns, {slices} slices of the {serial} reduced rows: {blocks} of {wave} resident"
    return ThreadMap(rows, cols, blocks, threads, 1, threads, steps, tiles, width, "column-tiles", why), slices
