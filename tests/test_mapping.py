"""Thread mapping: AStitch's table on a V100, and what every mapping owes: all rows and columns, once, in one wave."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stitch_help import CPU, TOY, V100

from minisitch.device import DEVICES
from minisitch.errors import DeviceError
from minisitch.runtime.this_machine import get_device
from minisitch.stitch.mapping import LONG_ROW, map_columns, map_rows, power_of_two_at_least

DEVICE = st.sampled_from([V100, TOY, DEVICES["h100"], CPU, replace(V100, max_block=256)])
ROWS = st.sampled_from([0, 1, 2, 3, 31, 32, 33, 64, 159, 160, 161, 1000, 4096, 8704]) | st.integers(0, 3000)
COLS = st.sampled_from([0, 1, 2, 17, 31, 32, 33, 123, 1023, 1024, 1025, 12_345, 30_000]) | st.integers(0, 5000)


# ---------------------------------------------------------------- AStitch B5 and B8
@pytest.mark.paper(45, 46, 47)
@pytest.mark.parametrize(("shape", "blocks", "threads", "rows_per_block", "threads_per_row", "steps", "splits"), [
    ((750_000, 32), 160, 1024, 32, 32, 147, 1),
    ((64, 30_000), 128, 1024, 1, 1024, 1, 2),
    ((8704, 17), 136, 1024, 32, 32, 2, 1),
    ((4096, 1024), 158, 1024, 1, 1024, 26, 1),
])
def test_astitch_table(shape, blocks, threads, rows_per_block, threads_per_row, steps, splits):
    m = map_rows(*shape, V100)
    assert (m.blocks, m.threads, m.rows_per_block, m.threads_per_row, m.steps, m.splits) == \
        (blocks, threads, rows_per_block, threads_per_row, steps, splits)
    assert m.chunk == (15_000 if splits == 2 else shape[1])
    assert m.rule == ("task-splitting" if splits > 1 else "task-packing")


@pytest.mark.paper(55)
def test_a_wave_of_a_v100():
    assert V100.wave(1024) == 160
    assert V100.wave(1024, 49_153) == 80, "more than 48 KiB a block: one block an SM"
    assert V100.wave(1024, 49_152) == 160
    assert V100.wave(256) == 640 and V100.wave(32) == 32 * 80, "at most 32 blocks an SM"
    assert V100.wave(1024, registers=64) == 80


@pytest.mark.paper(55)
def test_registers_are_assumed_then_relaxed():
    assert V100.relaxed_registers(1024, 0) == 32
    assert V100.relaxed_registers(1024, 49_153) == 64, "shared memory is the limit, so registers are free"
    assert V100.relaxed_registers(32, 0) == 64
    for block in (32, 128, 256, 1024):
        for shared in (0, 1000, 20_000, 49_152, 60_000, 98_304):
            registers = V100.relaxed_registers(block, shared)
            assert V100.wave(block, shared, registers) == V100.wave(block, shared, 32), "nothing lost by relaxing"
            resident = V100.wave(block, shared, 32) // V100.sms
            assert registers == 255 or (registers + 1) * block * resident > V100.registers_per_sm, "and no more to be had"


def test_devices_are_found_by_name():
    assert get_device("v100") is V100 and get_device("cpu").kind == "cpu"
    with pytest.raises(DeviceError, match="known: cpu, v100"):
        get_device("abacus")
    assert all(d.source for d in DEVICES.values())


# ---------------------------------------------------------------- what every mapping owes
@pytest.mark.paper(46)
@given(ROWS, COLS, DEVICE)
def test_every_row_and_column_is_done_once(rows, cols, device):
    m = map_rows(rows, cols, device)
    done = Counter()
    for block in range(m.blocks):
        mine = range(block, m.tasks, m.blocks)
        assert len(mine) <= max(1, m.steps), "no block takes more turns than the map says"
        for task in mine:
            group, chunk = divmod(task, m.splits)
            for row in range(group * m.rows_per_block, min((group + 1) * m.rows_per_block, rows)):
                done[row, chunk] += 1
    assert set(done.values()) <= {1}
    assert len(done) == rows * m.splits
    assert (m.splits - 1) * m.chunk < max(cols, 1) <= max(1, m.splits * m.chunk), "chunks cover the columns, none empty"


@pytest.mark.paper(46)
@given(ROWS, COLS, DEVICE)
def test_rows_fit_one_wave(rows, cols, device):
    m = map_rows(rows, cols, device)
    assert 1 <= m.blocks <= device.wave(device.max_block)
    assert m.threads == m.rows_per_block * m.threads_per_row <= device.max_block
    if device.kind == "gpu":
        assert m.threads_per_row % 32 == 0 and m.threads_per_row & (m.threads_per_row - 1) == 0, "whole warps, for shuffles"
    if m.splits > 1:
        assert rows < device.wave(device.max_block) and cols > LONG_ROW, "only what leaves blocks idle is split"
        assert m.blocks == max(1, rows * m.splits) and m.steps == 1


def test_splitting_never_exceeds_the_wave():
    """Every row count below the wave; chunks are rounded up, so that their number is never one too many."""
    for device in (V100, TOY, CPU, DEVICES["a100"]):
        for rows in range(1, min(device.wave(device.max_block), 250)):
            for cols in (1025, 1500, 12_345, 30_000):
                m = map_rows(rows, cols, device)
                assert m.blocks <= device.wave(device.max_block) and m.splits * m.chunk >= cols > (m.splits - 1) * m.chunk


@given(st.integers(0, 300), st.sampled_from([0, 1, 5, 63, 64, 127, 128, 1000, 5000]), COLS, DEVICE)
def test_every_column_and_slice_is_done_once(rows, serial, cols, device):
    m, slices = map_columns(rows, serial, cols, device)
    assert 1 <= m.blocks <= device.wave(m.threads) and m.rows_per_block == 1
    assert (m.splits - 1) * m.chunk < max(cols, 1) <= m.splits * m.chunk, "tiles cover the columns, none empty"
    tasks = max(1, rows * m.splits) * slices
    assert -(-tasks // m.blocks) <= m.steps
    shortest = 64 if device.kind == "gpu" else 256
    assert slices == 1 or serial // slices >= shortest, "a slice is worth its partial result"
    assert slices == 1 or tasks <= device.wave(m.threads), "slices only fill what is idle"
    size = -(-serial // slices)
    assert (slices - 1) * size <= max(serial, 0) <= slices * size


def test_column_maps():
    m, slices = map_columns(1, 8192, 256, V100)
    assert (m.threads, m.splits, m.chunk) == (256, 1, 256) and slices == 128, "64 rows a slice"
    m, slices = map_columns(1, 64, 1024, V100)
    assert (m.splits, slices) == (4, 1), "too few rows to cut"
    m, slices = map_columns(1, 8192, 3, CPU)
    assert m.chunk == 3 and slices == CPU.wave(1) == 16, "a CPU's tile is its columns; eight slices a core, for balance"


def test_a_wide_row_of_a_cpu_is_split_into_worthwhile_chunks():
    m = map_rows(1, 1_000_000, CPU)
    assert m.splits == CPU.wave(1) and m.chunk * m.splits >= 1_000_000
    assert map_rows(1, 1500, CPU).splits <= 2
    assert map_rows(1, 1024, CPU).splits == 1


def test_powers_of_two():
    assert [power_of_two_at_least(n) for n in (0, 1, 2, 3, 4, 5, 1023, 1024, 1025)] == [1, 1, 2, 4, 4, 8, 1024, 1024, 2048]


@pytest.mark.parametrize(("rows", "cols", "blocks", "threads"), [(750_000, 32, 750_000, 32), (64, 30_000, 64, 1024)])
def test_without_adaptive_mapping_a_row_is_a_block_as_xla_has_it(rows, cols, blocks, threads):
    """The papers' two irregular shapes (AStitch, section 2.3)."""
    m = map_rows(rows, cols, V100, adaptive=False)
    assert (m.blocks, m.threads, m.splits, m.steps, m.rule) == (blocks, threads, 1, 1, "row-per-block")
