"""Pipelines as CUDA text: stepped block by block against NumPy, each line of the protocol needed, intermediates in L2."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stitch_help import TOY, lowered, traced

from minisitch import reference
from minisitch.device import DEVICES
from minisitch.errors import KernelBug, KernelError
from minisitch.graph import Graph
from minisitch.simplify import simplify
from minisitch.simt import step
from minisitch.stitch.body import extract
from minisitch.strategies.ask import fuse
from minisitch.strategies.kitsune import pipeline as designs
from minisitch.strategies.kitsune.emit import emit_pipeline
from minisitch.strategies.kitsune.product import Tile
from minisitch.strategies.kitsune.tiles import FOLD
from minisitch.testing.judge import judge
from minisitch.trace import trace

DEVICE = replace(TOY, sms=8, max_block=32)
WIDE = replace(DEVICE, sms=16)
ROOMY = replace(DEVICE, sms=20, blocks_per_sm=4)  # as many as any GPU of the table holds of a pipeline's 256 threads
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


def returned(x, w, row, column):
    """A product that others read and the caller gets, twice; operands of products that are a row or a column all along."""
    h = x @ w
    return h, np.tanh(h) @ np.broadcast_to(row, (16, 6)), np.abs(h) @ np.broadcast_to(column, (16, 5)), h.T


PROGRAMS = {
    "mlp": (mlp, (12, 8), (8, 16), (16, 6)), "residual": (residual, (12, 8), (8, 16), (16, 8)),
    "hidden": (hidden, (1, 8), (8, 24), (24,), (24, 6)), "layernorm": (layernorm, (12, 8), (8, 20), (20,)),
    "returned": (returned, (12, 8), (8, 16), (1, 6), (16, 1)), "gradient": (gradient, (12, 8), (8, 10), (12, 10)), "attention": (attention, (6, 5, 4), (6, 7, 4), (6, 7, 3)), "woven": (woven, (12, 8), (8, 16), (12, 8)),
}
MORE = {"wide": (mlp, (3, 2), (2, 1024), (1024, 2))}


def designed(name, blocks=2, payload=240, dtype=np.float32):
    """A program's graph and its pipeline, with tiles that fit ``payload`` bytes."""
    function, *shapes = (PROGRAMS | MORE)[name]
    graph = simplify(traced(function, *(np.zeros(s, dtype) for s in shapes)))
    device = replace(DEVICE, queue_entry=payload, least_queue_entry=1)
    found = designs.design(graph, device)
    assert isinstance(found, designs.Pipeline), found
    return graph, replace(found, stages=tuple(replace(s, blocks=1 if s.role == "final" else blocks) for s in found.stages))


def emitted(name, **options):
    graph, pipeline = designed(name, **options)
    return graph, emit_pipeline(graph, pipeline, WIDE, tile=TINY)


def launch(graph, source, seed=0, text="", inputs=None, results=None):
    """Step a pipeline and compare; its traffic. ``results``: where to put them, of the same inputs whatever the seed."""
    rng = np.random.default_rng(seed if results is None else 0)
    inputs = inputs or [rng.standard_normal(graph[i].type.shape).astype(graph[i].type.dtype) for i in graph.inputs]
    arrays = {a.name: inputs[int(a.name[1:])].flatten() if a.kind == "input" else np.full(a.size, 99, a.dtype) for a in source.arrays}
    traffic = step(text or source.text, arrays, source.grid, source.block, seed, wave=source.grid, queues=source.resident,
                   inputs=[a.name for a in source.arrays if a.kind == "input"])
    found = [arrays[f"y{k}"].reshape(graph[o].type.shape) for k, o in enumerate(graph.outputs)]
    verdicts = judge(graph, inputs, found)
    assert all(v.ok for v in verdicts), [v.why for v in verdicts]
    if results is not None:
        results.append([array.tobytes() for array in found])
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


@pytest.mark.parametrize(("name", "dtype"), [("residual", np.float32), ("gradient", np.float32), ("residual", np.float16)])
def test_only_inputs_and_outputs_move_to_and_from_memory(name, dtype):
    graph, source = emitted(name, dtype=dtype)
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


# ---------------------------------------------------------------- trees of reductions
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
    source, results = emit_pipeline(graph, pipeline, WIDE, tile=TINY), []
    for seed in range(3):
        launch(graph, source, seed, results=results)
    assert pipeline.taken[-3:] == [12, 3, 2] and results[0] == results[1] == results[2]


def test_each_line_of_a_trees_protocol_is_needed():
    graph, pipeline = with_tree("hidden", 2)
    source = emit_pipeline(graph, pipeline, WIDE, tile=TINY)
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


# ---------------------------------------------------------------- the last tile
@pytest.mark.parametrize(("rows", "sizes"), [
    (8192, "128 tiles of 64"), (8191, "110 tiles of 75, the last of 16"), (1026, "65 tiles of 16, the last of 2"), (1024, "64 tiles of 16")])
def test_what_is_designed_is_what_is_written(rows, sizes):
    """A divisor where one is near, else a smaller last tile; never entries of fewer than 16 kB. The plan, its decision and the text agree."""
    a100, shapes = DEVICES["a100"], ((rows, 64), (64, 256), (256, 64))
    stages = lowered(traced(mlp, *(np.broadcast_to(np.float32(0), s) for s in shapes)), "kitsune", device=a100)
    (pattern,), (flow,) = stages.plan.pipelines, stages.flows
    assert flow.source.pipeline == pattern.composition and pattern.composition.sizes == sizes
    decision, = (d for d in stages.plan.decisions if d.rule == "dataflow")
    assert decision.why == f"3 stages over {sizes}: {rows * 256 * 4 * 2} B in queues, not in memory"
    assert all(q.tile_bytes >= a100.least_queue_entry for q in pattern.composition.queues)
    arrays = {a.name: a.size * np.dtype(a.dtype).itemsize for a in flow.source.arrays if a.kind == "queue"}
    assert arrays == {q.name: q.depth * q.tile_bytes for q in pattern.composition.queues}


@pytest.mark.parametrize("name", ["residual", "gradient", "woven"])
def test_a_last_tile_of_fewer_units(name):
    graph, pipeline = designed(name)
    assert pipeline.units == 12
    source = emit_pipeline(graph, replace(pipeline, tile=5), DEVICE, tile=TINY)
    assert source.pipeline.tiles == 3 and "else:  " in source.text and "2 of 5 units are left" in source.text
    traffic = launch(graph, source)
    assert traffic.bytes_read == sum(graph[i].type.nbytes for i in graph.inputs)
    assert traffic.bytes_written == sum(graph[o].type.nbytes for o in graph.outputs)
    for queue in source.pipeline.queues:
        tiled = pipeline.cut(graph).tiled(queue.node)
        assert traffic.queues[queue.name].written == graph[queue.node].type.nbytes * (1 if tiled else 3)


# ---------------------------------------------------------------- whatever is designed can be written, and is right
OPERANDS = (  # of w, a matrix with c rows and k columns, in whatever order its elements lie
    lambda w, c, k: w[:c, :k], lambda w, c, k: w[:k, :c].T, lambda w, c, k: w[:k, :c].reshape(c, k), lambda w, c, k: w[::-1, ::-1][:c, :k],
    lambda w, c, k: np.broadcast_to(w[:1, :k], (c, k)), lambda w, c, k: np.full((c, k), np.float32(0.5)))
STEPS = (
    np.tanh, np.square, lambda h: h - h.max(-1, keepdims=True), lambda h: h + np.tanh(h), lambda h: h @ (h.swapaxes(-1, -2) @ h),
    lambda h: np.concatenate([h, np.tanh(h)], -1))


def heads(h):
    """Attention of two heads to itself, put side by side again."""
    split = h.reshape(h.shape[0], 2, -1).swapaxes(0, 1)
    return (split @ split.swapaxes(1, 2) @ split).swapaxes(0, 1).reshape(h.shape)


def chain(seed):
    """A random function that holds products: operands that lie in any order, heads, skips, sums over all rows, and what others
    read returned as well."""
    def function(x, w):
        rng, h, results = np.random.default_rng(seed), x, []
        for _ in range(rng.integers(2, 7)):
            c, k = h.shape[-1], int(rng.integers(1, 7))
            if rng.random() < 0.5 or c > 6:
                h = h @ OPERANDS[rng.integers(len(OPERANDS))](w, c, k)
            elif rng.random() < 0.3 and h.ndim == 2 and c % 2 == 0:
                h = heads(h)
            else:
                h = STEPS[rng.integers(len(STEPS))](h)
            if rng.random() < 0.4:
                results.append((h, h.sum(0), x.swapaxes(-1, -2) @ h)[rng.integers(3)])
        return h, *results
    return function


@given(st.integers(0, 2**20))
@settings(max_examples=10)
def test_what_kitsune_designs_can_be_written_and_stepped(seed):
    rng = np.random.default_rng(seed)
    shapes = [(7, 4), (12, 3), (3, 5, 4)][rng.integers(3)], (12, 12)
    dtype = (np.float32, np.float32, np.float16)[rng.integers(3)]
    arguments = [rng.integers(-8, 9, shape).astype(dtype) / 8 for shape in shapes]
    program = trace(chain(seed), arguments)
    graph = simplify(program.graph)
    entry, least = map(int, rng.choice([1, 60, 120], 2))
    plan = fuse(graph, "kitsune", replace(ROOMY, queue_entry=entry, least_queue_entry=least))
    values = reference.evaluate(Graph(graph.nodes, tuple(range(len(graph)))), [*arguments, *program.captured])
    for pattern in plan.pipelines:
        body = extract(graph, pattern)
        seen = [values[v] for v in body.inputs]
        source = emit_pipeline(body.graph, pattern.composition, ROOMY, tile=TINY)
        launch(body.graph, source, seed, inputs=seen)


# ---------------------------------------------------------------- each line of the protocol is needed
def protocol(text):
    """Spans of the text that make the protocol: waits, counts, and barriers before or behind them."""
    waits = [m.span() for m in re.finditer(r"while load_acquire\(.*", text)]
    counts = [m.span() for m in re.finditer(r"add_release\(.*", text)]
    barriers = [m.span(1) for m in re.finditer(r"(cuda\.syncthreads\(\))\n +if thread == 0:\n +add_release", text)]
    barriers += [m.span(1) for m in re.finditer(r"while load_acquire\(.*\n +pass\n +(cuda\.syncthreads\(\))", text)]
    return waits, counts, barriers


@pytest.mark.paper(58)
def test_each_line_of_the_protocol_is_needed():
    """But for two barriers beside a product, which has barriers of its own: before its first store, after its last load."""
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


# ---------------------------------------------------------------- what always fits, and refusals
def test_rows_beside_products_leave_room_for_them():
    """A softmax's rows of 48 kB would fill a block's shared memory; the products' tiles are there, too."""
    graph = simplify(traced(attention, *(np.broadcast_to(np.float32(0), s) for s in ((8192, 64), (12000, 64), (12000, 64)))))
    pattern, = fuse(graph, "kitsune", DEVICES["a100"]).pipelines
    assert emit_pipeline(extract(graph, pattern).graph, pattern.composition, DEVICES["a100"]).shared_bytes <= 48 << 10


def test_refusals():
    graph, pipeline = designed("mlp")
    with pytest.raises(KernelError, match="blocks of 96 threads: .*need a power of two"):
        emit_pipeline(graph, pipeline, DEVICE, tile=Tile(48, 32, 16, 4, 4))
    crowd = replace(pipeline, stages=tuple(replace(s, blocks=9) for s in pipeline.stages))
    for refuses, device, message in (
            (crowd, replace(DEVICE, sms=2), r"%3 matmul \(test_cuda_pipeline.py:\d+\) on have 27 blocks of 32 threads, but toy holds 4 at once: give"),
            (pipeline, replace(DEVICE, shared_per_block=64), r"\(test_cuda_pipeline.py:\d+\) on needs \d+ B of shared memory a block, but toy has 64:")):
        with pytest.raises(KernelError, match=message + ".*astitch"):
            emit_pipeline(graph, refuses, device, tile=TINY)
    graph, pipeline = designed("gradient")
    twice = replace(pipeline, stages=tuple(replace(s, blocks=2) for s in pipeline.stages))
    with pytest.raises(KernelError, match=r"stage 4 final_4 of %\d+ matmul \(.*:\d+\) is final and has 2 blocks: give it one"):
        emit_pipeline(graph, twice, DEVICE, tile=TINY)
    graph, pipeline = with_tree("hidden", 9)
    with pytest.raises(KernelError, match="has 9 blocks for 8 parts: give it 8 at most"):
        emit_pipeline(graph, pipeline, WIDE, tile=TINY)


# ---------------------------------------------------------------- the three-stage MLP of the paper's size
ROW = Tile(1, 16, 8, 1, 1)  # 16 threads
BLOCK_OF_SEEDS = 50


@pytest.fixture(scope="module")
def wide_mlp():
    """Hidden 1024, as the paper's example; as little as can be around it, since a stepper is no GPU: a row a tile, and one tile more
    than a queue has entries."""
    graph, pipeline = designed("wide", payload=4096)
    assert [s.kind for s in pipeline.stages] == ["tensor", "simt", "tensor"] and pipeline.tiles == 3
    assert [(q.depth, q.tile_bytes) for q in pipeline.queues] == [(2, 4096)] * 2
    return graph, emit_pipeline(graph, pipeline, DEVICE, tile=ROW)


def check_wide(graph, source, seed):
    traffic = launch(graph, source, seed)
    assert (traffic.bytes_read, traffic.bytes_written) == (4 * (3 * 2 + 2 * 1024 + 1024 * 2), 4 * 3 * 2)
    assert [(a.read, a.written) for name, a in traffic.queues.items() if name != "counters"] == [(3 * 4096, 3 * 4096)] * 2


def test_the_hidden_layer_stays_in_l2(wide_mlp):
    check_wide(*wide_mlp, 0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, BLOCK_OF_SEEDS))
def test_a_thousand_interleavings(wide_mlp, first):
    for seed in range(first, first + BLOCK_OF_SEEDS):
        check_wide(*wide_mlp, seed)
