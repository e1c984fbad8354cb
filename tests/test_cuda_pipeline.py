"""Pipelines as CUDA text: stepped block by block against NumPy, each line of the protocol needed, intermediates in L2."""

import re
from dataclasses import replace

import numpy as np
import pytest
from stitch_help import TOY, traced

from minisitch import reference
from minisitch.cuda_pipeline import emit_pipeline, even_tiles
from minisitch.cuda_product import Tile
from minisitch.dataflow import pipeline as designs
from minisitch.dataflow.tiles import FOLD, best_cut
from minisitch.errors import KernelBug, KernelError, PlanError
from minisitch.simplify import simplify
from minisitch.simt import machine, step

DEVICE = replace(TOY, sms=8, max_block=32)
WIDE = replace(DEVICE, sms=16)
TINY = Tile(8, 8, 4, 2, 1)  # 32 threads


def mlp(x, w1, w2):
    h = x @ w1
    return h / (1 + np.exp(-h)) @ w2


def residual(x, w1, w2):
    return x + np.maximum(np.tanh(x @ w1) @ w2, 0)


def hidden(x, w1, b1, w2):
    return np.tanh(x @ w1 + b1) @ w2


def layernorm(x, w, scale):
    h = x @ w
    h = h - h.mean(-1, keepdims=True)
    return h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5) * scale


def gradient(x, w, g):
    """One value for two stages, and two reductions over the tiles, of rows: the weight's gradient and the bias's."""
    h = np.tanh(x @ w)
    h = h - h.mean(-1, keepdims=True)
    return h, x.T @ (h * g), (h * g).sum(0) / 2


def attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


def woven(x, w, v):
    """A reshape that mixes rows and columns of a product's operand; the sum keeps tiles from cutting the hidden dimension."""
    h = np.tanh(x @ w)
    return h / h.sum(-1, keepdims=True) @ v.T.reshape(16, 6)


def normalised(x, w, v):
    """A cut along the rows crosses the mean over them; a cut along the columns would add up the second product."""
    h = x @ w
    return np.maximum(h - h.mean(0), 0) @ v


PROGRAMS = {
    "mlp": (mlp, (12, 8), (8, 16), (16, 6)), "residual": (residual, (12, 8), (8, 16), (16, 8)),
    "hidden": (hidden, (1, 8), (8, 24), (24,), (24, 6)), "layernorm": (layernorm, (12, 8), (8, 20), (20,)),
    "gradient": (gradient, (12, 8), (8, 10), (12, 10)), "attention": (attention, (6, 5, 4), (6, 7, 4), (6, 7, 3)), "woven": (woven, (12, 8), (8, 16), (12, 8)),
}
ROUNDS = {"normalised": (normalised, (6, 4), (4, 8), (8, 3)), "one query": (attention, (1, 4), (12, 4), (12, 3))}
MORE = {"wide": (mlp, (4, 2), (2, 1024), (1024, 2))}


def designed(name, blocks=2, payload=240, held=None):
    """A program's graph and its pipeline, with tiles that fit ``payload`` bytes. ``held``: see ``design``; "all" that reconverges."""
    function, *shapes = (PROGRAMS | ROUNDS | MORE)[name]
    graph = simplify(traced(function, *shapes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(designs, "PAYLOAD", payload)
        patch.setattr(designs, "LEAST_PAYLOAD", 1)
        found = designs.design(graph, DEVICE, best_cut(graph, rounds=True).reconverging if held == "all" else held)
    assert isinstance(found, designs.Pipeline), found
    found = even_tiles(graph, found)
    return graph, replace(found, stages=tuple(replace(s, blocks=1 if s.role == "final" else blocks) for s in found.stages))


def emitted(name, **options):
    graph, pipeline = designed(name, **options)
    return graph, emit_pipeline(graph, pipeline, WIDE, threads=32, tile=TINY)


def launch(graph, source, seed=0, text="", results=None):
    """Step a pipeline and compare; its traffic. ``results``: where to put them, of the same inputs whatever the seed."""
    rng = np.random.default_rng(seed if results is None else 0)
    inputs = [rng.standard_normal(graph[i].type.shape).astype(np.float32) for i in graph.inputs]
    arrays = {a.name: inputs[int(a.name[1:])].ravel() if a.kind == "input" else np.full(a.size, 99, a.dtype) for a in source.arrays}
    traffic = step(text or source.text, arrays, source.grid, source.block, seed, wave=source.grid, queues=source.resident,
                   inputs=[a.name for a in source.arrays if a.kind == "input"])
    for k, want in enumerate(reference.evaluate(graph, inputs)):
        np.testing.assert_allclose(arrays[f"y{k}"].reshape(want.shape), want, rtol=2e-5, atol=2e-5)
    if results is not None:
        results.append([arrays[f"y{k}"].tobytes() for k in range(len(graph.outputs))])
    return traffic


@pytest.mark.paper(58)
@pytest.mark.parametrize("name", PROGRAMS)
def test_pipelines_agree_with_numpy(name):
    graph, source = emitted(name)
    for seed in range(3):
        launch(graph, source, seed)


@pytest.mark.parametrize("blocks", [1, 3])
def test_any_number_of_blocks_a_stage(blocks):
    launch(*emitted("residual", blocks=blocks))


@pytest.mark.parametrize("name", ["residual", "gradient"])
def test_only_inputs_and_outputs_move_to_and_from_memory(name):
    graph, source = emitted(name)
    traffic = launch(graph, source)
    given = sum(graph[i].type.nbytes for i in graph.inputs)
    assert traffic.bytes_read == given and traffic.bytes_written == sum(graph[o].type.nbytes for o in graph.outputs)
    for queue in source.pipeline.queues:  # a tile is written once, however many stages read it
        assert traffic.queues[queue.name].written == queue.tile_bytes * source.pipeline.tiles


@pytest.mark.paper(64)
def test_a_value_for_several_stages_has_one_queue():
    graph, source = emitted("gradient")
    shared, = (q for q in source.pipeline.queues if len(q.consumers) == 2)
    written = f"add_release(counters, {shared.name.upper()}_WRITTEN"
    assert source.text.count(written) == 1 and source.text.count(f"load_acquire(counters, {shared.name.upper()}_WRITTEN") == 2
    assert launch(graph, source).queues[shared.name].written == graph[shared.node].type.nbytes


@pytest.mark.paper(66)
def test_the_hidden_dimension_is_cut_in_tiles_whose_products_are_added_up():
    graph, source = emitted("hidden")
    roles = [(s.kind, s.role) for s in source.pipeline.stages]
    assert ("tensor", "fan_in") in roles and roles[-1] == ("simt", "final")
    wide = max(graph[n].type.nbytes for n in range(len(graph)))
    assert all(q.tile_bytes < wide for q in source.pipeline.queues)
    launch(graph, source)


# ---------------------------------------------------------------- rounds, and trees of reductions
@pytest.mark.parametrize("held", ["all", ()], ids=["held", "again"])
@pytest.mark.parametrize("name", ROUNDS)
def test_what_waits_for_the_last_tile_comes_in_a_later_round(name, held):
    """Softmax cut along its row has three rounds: maximum, sum, division."""
    graph, source = emitted(name, blocks=1, payload=48, held=held)
    again = [n for s in source.pipeline.stages if not s.joins for n in s.nodes]
    assert (len(set(again)) == len(again)) == (held == "all")
    assert (max(q.depth for q in source.pipeline.queues) == source.pipeline.tiles) == (held == "all")
    for seed in range(2):
        launch(graph, source, seed)


def test_a_held_queue_of_one_tile_less_waits_for_ever(monkeypatch):
    """The emitter's text of what ``verify_pipeline`` refuses."""
    monkeypatch.setattr(machine, "PATIENCE", 60)
    graph, pipeline = designed("normalised", blocks=1, payload=48, held="all")
    deep, = (q for q in pipeline.queues if q.depth == pipeline.tiles)
    short = replace(pipeline, queues=tuple(replace(q, depth=q.depth - (q is deep)) for q in pipeline.queues))
    with pytest.raises(PlanError, match=f"make it {deep.depth} deep, keep the two stages together, or let the value go through memory"):
        designs.verify_pipeline(short)
    with pytest.raises(KernelBug, match="deadlock"):
        launch(graph, emit_pipeline(graph, short, WIDE, threads=32, tile=TINY))


def with_tree(name, *blocks):
    """A program's pipeline with stages of so many blocks before its final one."""
    graph, pipeline = designed(name, blocks=1, payload=24)
    *others, final = pipeline.stages
    folds = tuple(n for n in final.nodes if pipeline.axes[n] == FOLD)
    tree = [designs.Stage("combine", folds, "simt", "combine", n) for n in blocks]
    return graph, designs.assemble(pipeline.cut(graph), [*others, *tree, final], pipeline.tile)


@pytest.mark.paper(65)
def test_a_tree_adds_up_the_same_under_every_seed():
    """Two folds, twelve parts of each, for three blocks, for two, for one: the order does not depend on who comes first."""
    graph, pipeline = with_tree("gradient", 3, 2)
    source, results = emit_pipeline(graph, pipeline, WIDE, threads=32, tile=TINY), []
    for seed in range(3):
        launch(graph, source, seed, results=results)
    assert pipeline.taken[-3:] == [12, 3, 2] and results[0] == results[1] == results[2]


def test_each_line_of_a_trees_protocol_is_needed(monkeypatch):
    monkeypatch.setattr(machine, "PATIENCE", 60)
    graph, pipeline = with_tree("hidden", 2)
    source = emit_pipeline(graph, pipeline, WIDE, threads=32, tile=TINY)
    launch(graph, source)
    start = source.text.index("combine_3: simt combine")
    found = [[span for span in spans if span[0] > start] for spans in protocol(source.text)]
    assert [len(spans) for spans in found] == [2, 2, 3]
    for rules, spans in ((("race", "unwritten-read"), found[0] + found[2]), (("deadlock",), found[1])):
        for first, last in spans:
            text = source.text[:first] + ("while False:" if source.text[first] == "w" else "pass") + source.text[last:]
            with pytest.raises(KernelBug) as refusal:
                launch(graph, source, 0, text)
            assert str(refusal.value).split(":")[0] in rules, source.text[first:last]


# ---------------------------------------------------------------- each line of the protocol is needed
def protocol(text):
    """Spans of the text that make the protocol: waits, counts, and barriers before or behind them."""
    waits = [m.span() for m in re.finditer(r"while load_acquire\(.*", text)]
    counts = [m.span() for m in re.finditer(r"add_release\(.*", text)]
    barriers = [m.span(1) for m in re.finditer(r"(cuda\.syncthreads\(\))\n +if thread == 0:\n +add_release", text)]
    barriers += [m.span(1) for m in re.finditer(r"while load_acquire\(.*\n +pass\n +(cuda\.syncthreads\(\))", text)]
    return waits, counts, barriers


@pytest.mark.paper(58)
def test_each_line_of_the_protocol_is_needed(monkeypatch):
    """But for two barriers beside a product, which has barriers of its own: before its first store, after its last load."""
    monkeypatch.setattr(machine, "PATIENCE", 60)
    graph, source = emitted("residual", payload=64)
    waits, counts, barriers = protocol(source.text)
    assert (len(waits), len(counts), len(barriers)) == (4, 4, 6)
    spare = {barriers[2], barriers[3]}
    for rules, spans in ((("race", "unwritten-read"), waits + barriers), (("deadlock",), counts)):
        for first, last in spans:
            line = source.text[first:last]
            text = source.text[:first] + ("while False:" if line.startswith("while") else "pass") + source.text[last:]
            for seed in range(2):
                if (first, last) in spare:
                    launch(graph, source, seed, text)
                else:
                    with pytest.raises(KernelBug) as refusal:
                        launch(graph, source, seed, text)
                    assert str(refusal.value).split(":")[0] in rules, line


def test_a_plain_count_is_refused():
    graph, source = emitted("mlp")
    text = source.text.replace("add_release(counters, ", "cuda.atomic.add(counters, ")
    with pytest.raises(KernelBug, match="race"):
        launch(graph, source, 0, text)
    launch(graph, source, 0, text.replace("cuda.atomic.add", "cuda.threadfence(); cuda.atomic.add"))


# ---------------------------------------------------------------- refusals
def test_refusals():
    graph, pipeline = designed("mlp")
    ragged = replace(pipeline, tile=5)
    with pytest.raises(KernelError, match="all tiles have one size"):
        emit_pipeline(graph, ragged, DEVICE, threads=32, tile=TINY)
    assert even_tiles(graph, ragged).tile == 4
    with pytest.raises(KernelError, match="in blocks of 64"):
        emit_pipeline(graph, pipeline, DEVICE, threads=64, tile=TINY)
    crowd = replace(pipeline, stages=tuple(replace(s, blocks=9) for s in pipeline.stages))
    with pytest.raises(KernelError, match="give the stages fewer blocks"):
        emit_pipeline(graph, crowd, replace(DEVICE, sms=2), threads=32, tile=TINY)
    graph, pipeline = designed("gradient")
    twice = replace(pipeline, stages=tuple(replace(s, blocks=2) for s in pipeline.stages))
    with pytest.raises(KernelError, match="is final and has 2 blocks"):
        emit_pipeline(graph, twice, DEVICE, threads=32, tile=TINY)
    graph, pipeline = with_tree("hidden", 9)
    with pytest.raises(KernelError, match="has 9 blocks for 8 parts; give it fewer"):
        emit_pipeline(graph, pipeline, WIDE, threads=32, tile=TINY)


# ---------------------------------------------------------------- the three-stage MLP of the paper's size
def wide_mlp():
    """Hidden 1024, as the paper's example; little around it and four tiles, since a stepper is no GPU."""
    return emitted("wide", payload=4096)


def test_the_hidden_layer_stays_in_l2():
    graph, source = wide_mlp()
    assert [s.kind for s in source.pipeline.stages] == ["tensor", "simt", "tensor"] and source.pipeline.tiles == 4
    traffic = launch(graph, source)
    assert (traffic.bytes_read, traffic.bytes_written) == (4 * (8 + 2048 + 2048), 4 * 8)


@pytest.mark.slow
def test_a_thousand_interleavings():
    graph, source = wide_mlp()
    for seed in range(1000):
        launch(graph, source, seed)
