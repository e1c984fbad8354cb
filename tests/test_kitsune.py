"""Kitsune's pipelines: which axis tiles cut, stages and queues, and how deep a queue must be.

Queues as CUDA text are in test_queues.py, what could be a pipeline in test_select.py, the models in test_dataflow_models.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kitsune_help import A100, CENTRED, after_tiles, at_tile, complete_outputs, layers, part, tiled_outputs

import minisitch as ms
from minisitch.errors import PlanError
from minisitch.ops import OPS
from minisitch.reference import evaluate
from minisitch.strategies.ask import fuse
from minisitch.strategies.kitsune.pipeline import (
    Pipeline,
    PipelineRefusal,
    Queue,
    Stage,
    design,
    least_depths,
    verify_pipeline,
)
from minisitch.strategies.kitsune.tiles import (
    COMBINE,
    FINAL,
    FOLD,
    WHOLE,
    best_cut,
    cut,
)
from minisitch.testing import graphs, random_inputs
from minisitch.testing.judge import judge
from minisitch.trace.builder import verify
from minisitch.trace.parser import parse

MLP = """%0: f32[512,64] = input name='x'
%1: f32[64,1024] = input name='w'
%2: f32[512,1024] = matmul %0 %1
%3: f32[512,1024] = tanh %2
%4: f32[1024,64] = input name='v'
%5: f32[512,64] = matmul %3 %4
%6: f32[512,64] = add %5 %0
return %6"""
ATTENTION = """%0: f32[256,32] = input name='q'
%1: f32[32,256] = input name='k'
%2: f32[256,256] = matmul %0 %1
%3: f32[256,1] = max %2 axes=(1,) keepdims=True
%4: f32[256,256] = broadcast %3 shape=(256, 256)
%5: f32[256,256] = sub %2 %4
%6: f32[256,256] = exp %5
%7: f32[256,1] = sum %6 axes=(1,) keepdims=True
%8: f32[256,256] = broadcast %7 shape=(256, 256)
%9: f32[256,256] = div %6 %8
%10: f32[256,32] = input name='v'
%11: f32[256,32] = matmul %9 %10
return %11"""


# ---------------------------------------------------------------- which axis a tile cuts
def test_a_tile_computes_its_part_of_every_value():
    """Whatever is cut along whatever axis: tiles put side by side, and parts of folds joined, are what the whole program gives."""
    seen = Counter()

    @settings(derandomize=True)  # what is drawn is counted below
    @given(data=st.data(), graph=st.one_of(layers(), layers(), graphs(max_nodes=10)))
    def each(data, graph):
        cuts = [cut(graph, n.id, axis) for n in graph.nodes for axis in range(n.type.rank)]
        cuts = [c for c in cuts if not c.refused and c.units > 1
                and all(c.axes[o] is not None and graph[o].op != "input" for o in graph.outputs)]
        assume(cuts)
        found = data.draw(st.sampled_from(cuts))
        check_cut(found, random_inputs(graph, np.random.default_rng(0)), data.draw(st.integers(1, found.units)))
        seen.update({"cuts", *(f"{'folded' if found.axes[n.id] == FOLD else 'tiled'} {n.op}" for n in graph.nodes)})

    each()
    assert seen["tiled matmul"] > seen["cuts"] // 4 and seen["folded matmul"] and seen["folded sum"], seen


def check_cut(found, inputs, step):
    """Run a cut by the reference, tile by tile, and compare with the whole program."""
    graph, values, tiled = found.graph, dict(zip(found.graph.inputs, inputs, strict=True)), tiled_outputs(found)
    totals: list[np.ndarray] = []
    values |= {n: np.empty(graph[n].type.shape, graph[n].type.dtype) for n in tiled}
    with np.errstate(all="ignore"):
        for first in range(0, found.units, step):
            last = min(first + step, found.units)
            made = evaluate(verify(at_tile(found, last - first)), [part(found, n, values[n], first, last) for n in graph.inputs])
            for n, value in zip(tiled, made, strict=False):
                part(found, n, values[n], first, last)[...] = value
            added = made[len(tiled):]
            joined = [OPS[COMBINE[graph[f].op]].numpy(a, b) for f, a, b in zip(found.folded, totals, added, strict=False)]
            totals = joined if first else added
        values |= dict(zip(found.folded, totals, strict=True))
        after = evaluate(verify(after_tiles(found)), [values[n] for n in (*graph.inputs, *found.folded)])
        values |= dict(zip(complete_outputs(found), after, strict=True))
    answers = [values[o] for o in graph.outputs if found.axes[o] != WHOLE]
    wholes = replace(graph, outputs=tuple(o for o in graph.outputs if found.axes[o] != WHOLE))
    assert all(v.ok for v in judge(wholes, inputs, answers)), f"{found.axes} {found.units} {step}\n{graph}"


@pytest.mark.parametrize(("text", "seed", "axis", "axes", "units"), [
    (MLP, 2, 0, (0, WHOLE, 0, 0, WHOLE, 0, 0), 512),
    (MLP, 2, 1, (WHOLE, 1, 1, 1, 0, FOLD, FINAL), 1024),
    (ATTENTION, 2, 0, (0, WHOLE, 0, 0, 0, 0, 0, 0, 0, 0, WHOLE, 0), 256),
], ids=["rows", "hidden", "attention"])
def test_one_axis_determines_all_others(text, seed, axis, axes, units):
    found = cut(parse(text), seed, axis)
    assert (found.axes, found.units, found.refused) == (axes, units, ())
    check_cut(found, random_inputs(found.graph, np.random.default_rng(0)), 100)


def test_what_no_tile_can_compute_is_refused_with_its_reason():
    assert dict(cut(parse(CENTRED), 2, 0).refused) == {4: "it needs %3, which is complete only after the last tile"}
    scan = parse("%0: f32[8,4] = input name='x'\n%1: f32[8,4] = cumsum %0 axis=0\nreturn %1")
    assert dict(cut(scan, 1, 0).refused) == {1: "a tile along axis 0 needs more than a tile of %0"}
    crossed = parse("%0: f32[8,8] = input name='x'\n%1: f32[8,8] = transpose %0 perm=(1, 0)\n%2: f32[8,8] = add %0 %1\nreturn %2")
    assert "cut along axis" in dict(cut(crossed, 2, 0).refused)[1]


@pytest.mark.paper(66)
def test_a_wide_hidden_dimension_is_cut_where_there_are_no_rows():
    """One row through an MLP: tiles of the hidden dimension, partial products added up; the hidden row is never whole."""
    found = best_cut(parse(MLP.replace("512", "1")))
    assert found is not None and found.axes[2] == 1 and found.folded == (5,)
    tile = at_tile(found, 16)
    assert not any(1024 in n.type.shape for n in tile.nodes), tile
    assert [n.op for n in after_tiles(found).nodes if n.op != "input"] == ["add"]


# ---------------------------------------------------------------- stages and queues
GOLDEN = """512 units in 128 tiles of 4
  stage 0 product_0: tensor map, %2
  stage 1 tanh_1: simt map, %3
  stage 2 product_2: tensor map, %5 %6
  queue %2: 0 -> 1, 2 x 16384 B
  queue %3: 1 -> 2, 2 x 16384 B"""


@pytest.mark.paper(63)
def test_a_queue_for_each_value_that_another_stage_reads():
    found = design(parse(MLP), A100)
    assert str(found) == GOLDEN
    assert [q.node for q in found.queues] == [2, 3], "each crossing value once"


@pytest.mark.paper(68)
def test_light_operations_on_a_product_are_its_epilogue():
    """Adding the residual stays with the product; a heavy tanh is a stage, and so is what reads two products."""
    assert len(design(parse(MLP), A100).stages) == 3
    assert len(design(parse(MLP.replace("tanh", "abs")), A100).stages) == 2
    gated = parse("""%0: f32[512,64] = input name='x'
%1: f32[64,1024] = input name='w'
%2: f32[512,1024] = matmul %0 %1
%3: f32[64,1024] = input name='v'
%4: f32[512,1024] = matmul %0 %3
%5: f32[512,1024] = mul %2 %4
return %5""")
    assert [s.kind for s in design(gated, A100).stages] == ["tensor", "tensor", "simt"]


def test_a_value_that_two_stages_read_has_one_queue():
    """Multicast: tanh feeds two products, and is written once."""
    found = design(parse(MLP.replace("add %5 %0", "add %5 %0\n%7: f32[512,64] = matmul %3 %4\n%8: f32[512,64] = exp %7")
                         .replace("return %6", "return %6 %8")), A100)
    consumers = {q.node: q.consumers for q in found.queues}
    assert len(consumers[3]) == 2 and len(found.queues) == 3


def test_a_reduction_over_the_tiles_is_fanned_in_and_combined():
    found = design(parse(CENTRED.partition("%4")[0] + "return %3"), A100)
    assert [(s.kind, s.role) for s in found.stages] == [("tensor", "map"), ("simt", "fan_in"), ("simt", "final")]
    assert found.queues[-1].tile_bytes == 4, "a part is as large as the result"


def test_heads_are_cut_along_the_queries():
    """Along the heads as much stays in tiles, but a tile is a head's whole scores, and the last product would be a fold."""
    def attention(q, k, v, out):
        scores = np.exp(q @ np.swapaxes(k, -1, -2))
        return np.transpose(scores @ v, (1, 0, 2)).reshape(64, 32) @ out
    shapes = [(4, 64, 8)] * 3 + [(32, 16)]
    graph = ms.lower(attention, *(np.zeros(s, np.float32) for s in shapes), stop_after="simplify")
    found = best_cut(graph)
    assert (found.units, found.folded, found.refused) == (64, (), ())


@pytest.mark.paper(69)
def test_the_gradient_of_a_layer_is_a_pipeline():
    """Backward of relu(x @ w): what comes back feeds two products, and the weights' gradient is a fold over the rows."""
    graph = parse("""%0: f32[512,64] = input name='x'
%1: f32[512,32] = input name='h'
%2: f32[512,32] = input name='dy'
%3: f32[512,32] = constant value=0.0
%4: bool[512,32] = gt %1 %3
%5: f32[512,32] = select %4 %2 %3
%6: f32[64,512] = transpose %0 perm=(1, 0)
%7: f32[64,32] = matmul %6 %5
%8: f32[64,32] = input name='w'
%9: f32[32,64] = transpose %8 perm=(1, 0)
%10: f32[512,64] = matmul %5 %9
return %7 %10""")
    found = design(graph, A100)
    assert [(s.kind, s.role) for s in found.stages] == [("simt", "map"), ("tensor", "fan_in"), ("tensor", "map"), ("simt", "final")]
    assert {q.node: q.consumers for q in found.queues} == {5: (1, 2), 7: (3,)}, "%5 is multicast"
    check_cut(found.cut(graph), random_inputs(graph, np.random.default_rng(0)), 100)


LATE = """%0: f32[1,64] = input name='x'
%1: f32[64,65536] = input name='w'
%2: f32[1,65536] = matmul %0 %1
%3: f32[65536,64] = input name='v'
%4: f32[1,64] = matmul %2 %3
%5: f32[64,64] = input name='u'
%6: f32[1,64] = matmul %4 %5
return %6"""


@pytest.mark.parametrize(("text", "rule"), [
    (CENTRED, "not-tile-by-tile"),
    ("%0: f32[512,64] = input name='x'\n%1: f32[64,32] = input name='w'\n%2: f32[512,32] = matmul %0 %1\nreturn %2", "one-stage"),
    ("%0: f32[1,1] = input name='x'\n%1: f32[1,1] = input name='w'\n%2: f32[1,1] = matmul %0 %1\nreturn %2", "no-tiles"),
    (MLP.replace("512", "2").replace("1024", "2"), "one-tile"),
    (MLP.replace("1024", "0"), "no-tiles"),
    (LATE, "late-product"),
], ids=["reconverging", "one product", "one number", "small", "empty", "a product of sums over the tiles"])
def test_what_is_no_pipeline_says_why(text, rule):
    found = design(parse(text), A100)
    assert isinstance(found, PipelineRefusal) and {d.rule for d in found.decisions} == {rule}


# ---------------------------------------------------------------- depth
def three_stages(depth):
    """A value for the next stage and for the one behind it, which passes tile by tile."""
    stages = tuple(Stage(name, (k,), "simt") for k, name in enumerate("abc"))
    return Pipeline(units=8, tile=1, stages=stages, queues=(Queue(0, 0, (1, 2), 64, depth), Queue(1, 1, (2,), 64)))


def test_a_queue_past_a_stage_has_an_entry_more():
    found = three_stages(3)
    assert least_depths(found.stages, found.queues, 100) == [1, 1]
    assert least_depths(found.stages, found.queues, 100, full_rate=True) == [3, 2]
    with pytest.raises(PlanError, match="has fewer than the 1 entries that its stages need"):
        verify_pipeline(three_stages(0))


@pytest.mark.parametrize(("queue", "message"), [
    (Queue(0, 0, (), 64), "stages are 0 to 2"),
    (Queue(0, 0, (3,), 64), "stages are 0 to 2"),
    (Queue(0, 2, (1,), 64), "goes back"),
])
def test_queues_that_lead_nowhere_are_refused(queue, message):
    whole = three_stages(3)
    with pytest.raises(PlanError, match=message):
        verify_pipeline(replace(whole, queues=(*whole.queues[:1], queue)))


def test_what_a_pipeline_returns_is_not_said_to_stay_out_of_memory():
    """Of two values of 8 MB in queues one is an output."""
    graph = parse("""%0: f32[8192,64] = input
%1: f32[64,256] = input
%2: f32[256,64] = input
%3: f32[8192,256] = matmul %0 %1
%4: f32[8192,256] = tanh %3
%5: f32[8192,64] = matmul %4 %2
%6: f32[256,8192] = transpose %4 perm=(1, 0)
return %5 %6""")
    decision, = (d for d in fuse(graph, "kitsune", A100).decisions if d.rule == "dataflow")
    assert decision.why.endswith(f": {8192 * 256 * 4} B in queues, not in memory")
