"""From a designed pipeline to predicted runs: bytes are the program's own, folds and returned values are where they belong."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stitch_help import traced

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.executions import operators, predict
from minisitch.device import DEVICES
from minisitch.fuse import behind_views
from minisitch.simplify import simplify
from minisitch.strategies.kitsune.models.balance import balance
from minisitch.strategies.kitsune.pipeline import Pipeline, design
from minisitch.strategies.kitsune.predict import balanced, workload

A100, H100 = DEVICES["a100"], DEVICES["h100"]
ROWS = 32 * 54 * 8  # tiles of 32 rows for the 54 blocks that each of two products gets on 108 SMs, eight times


def designed(function, *shapes, device=A100):
    graph = simplify(traced(function, *shapes))
    pipeline = design(graph, device)
    assert isinstance(pipeline, Pipeline), pipeline
    return graph, pipeline


def mlp(x, w1, w2):
    return np.tanh(x @ w1) @ w2


def layer_gradient(x, w, dy):
    """A layer and its gradient: one value feeds two products and a sum (multicast), and two sums over all rows follow.

    The product with the weights keeps the cut along the rows: along the columns it would be a sum over all of them.
    """
    d = dy * (x @ w > 0)
    return x.T @ d, np.sum(d, axis=0), d @ w.T


@pytest.mark.paper(66)
def test_an_mlp_moves_its_inputs_and_its_result_and_no_hidden_layer():
    graph, pipeline = designed(mlp, (ROWS, 1024), (1024, 1024), (1024, 1024))
    eager, fused, flow = predict(graph, pipeline, A100)
    rows, weights = 4 * ROWS * 1024, 4 * 1024 * 1024
    assert flow.dram_bytes == 2 * rows + 2 * weights
    assert eager.dram_bytes == fused.dram_bytes == flow.dram_bytes + 4 * rows, "written and read, before tanh and after"
    assert flow.makespan_us < eager.makespan_us
    assert [load.tiles for load in flow.loads] == [8, 8, 8]
    assert dict(balance(flow.loads, A100, flow.channels).blocks) == {"product_0": 54, "mlp_1": 108, "product_2": 54}


def test_a_fold_is_handed_over_once_and_its_last_stage_waits_for_it():
    graph, pipeline = designed(layer_gradient, (65536, 256), (256, 256), (65536, 256))
    loads, channels = workload(graph, pipeline, A100, pipeline.stages)
    final = loads[-1]
    assert final.tiles == 1 and {load.tiles for load in loads[:-1]} == {loads[0].tiles} != {1}
    assert {c.entries for c in channels if c.consumers == (final.name,)} == {1}
    assert any(len(c.consumers) == 3 for c in channels), "one write for three readers"
    eager, fused, flow = predict(graph, balanced(graph, pipeline, A100)[0], A100)
    assert flow.dram_bytes < fused.dram_bytes < eager.dram_bytes and flow.makespan_us < fused.makespan_us < eager.makespan_us


@pytest.mark.paper(65)
def test_a_tree_comes_before_a_final_stage_that_keeps_the_others_waiting():
    """512 parts of a weight's gradient, 256 kB each: too many for one block. A number each is not, nor is there a tree without SMs."""
    graph, flat = designed(layer_gradient, (65536, 256), (256, 256), (65536, 256))
    tree, (said,) = balanced(graph, flat, A100)
    (combine,) = (s for s in tree.stages if s.role == "combine")
    assert (said.rule, said.verdict) == ("reduction-tree", "19 blocks, then 1 block") and combine.blocks == 19 and tree.taken[-2:] == [512, 19]
    assert predict(graph, tree, A100)[2].makespan_us * 10 < predict(graph, flat, A100)[2].makespan_us
    assert balanced(graph, flat, replace(A100, sms=5))[1][0].verdict == "1 block"
    graph, flat = designed(lambda x, w: np.sum(np.tanh(x @ w)), (65536, 256), (256, 256))
    same, (said,) = balanced(graph, flat, A100)
    assert said.verdict == "1 block" and len(same.stages) == len(flat.stages)


def test_a_value_that_is_read_and_returned_is_written_once():
    def both(x, w1, w2):
        h = np.tanh(x @ w1)
        return h, h @ w2
    graph, pipeline = designed(both, (ROWS, 1024), (1024, 1024), (1024, 1024))
    eager, _, flow = predict(graph, pipeline, A100)
    rows, weights = 4 * ROWS * 1024, 4 * 1024 * 1024
    assert flow.dram_bytes == 3 * rows + 2 * weights and eager.dram_bytes == flow.dram_bytes + 3 * rows


def test_each_operation_is_a_stage_for_the_baseline():
    graph, pipeline = designed(mlp, (ROWS, 1024), (1024, 1024), (1024, 1024))
    assert [(stage.kind, stage.role) for stage in operators(graph, pipeline)] == [("tensor", "map"), ("simt", "map"), ("tensor", "map")]
    graph, pipeline = designed(layer_gradient, (65536, 256), (256, 256), (65536, 256))
    roles = {stage.name.partition("_")[0]: stage.role for stage in operators(graph, pipeline)}
    assert roles["sum"] == "fan_in" and roles["mul"] == "map"


def test_of_a_table_only_what_is_looked_up_is_read():
    def looked_up(table, rows, w1, w2):
        return np.tanh(table[rows] @ w1) @ w2
    graph = simplify(traced(looked_up, (1_000_000, 256), np.zeros(ROWS, np.int64), (256, 256), (256, 256)))
    pipeline = design(graph, A100)
    assert isinstance(pipeline, Pipeline)
    flow = predict(graph, pipeline, A100)[2]
    assert flow.dram_bytes < 1_000_000 * 256 * 4 / 10


def test_a_machine_with_more_of_everything_is_faster():
    graph, pipeline = designed(mlp, (ROWS, 256), (256, 256), (256, 256))
    for old, new in zip(predict(graph, pipeline, A100), predict(graph, pipeline, H100), strict=True):
        assert new.makespan_us < old.makespan_us


def test_views_are_looked_through():
    graph = simplify(traced(lambda x, w: np.transpose(np.tanh(x @ w)), (64, 32), (32, 16)))
    assert graph[behind_views(graph, graph.outputs[0])].op == "tanh"
