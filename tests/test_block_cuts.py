"""Schedules of FusionStitching 2018: block cuts cut a tensor, and what reaches the operands is what blocks read (rows 6, 7)."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minisitch.graph import TensorType
from minisitch.reference import apply
from minisitch.stitch.blocks import WHOLE, BlockCut, block_cuts_of, divisors
from minisitch.strategies.fs18 import block_cuts
from minisitch.strategies.fs18.block_cuts import Cut, block_cut_for, cut_of, operand_cut
from minisitch.testing import random_graph
from minisitch.trace.builder import Builder


# ---------------------------------------------------------------- brute force: the definition, index by index
def owners(block_cut, shape):
    """The block that owns each element, from the words of the definition."""
    found = np.zeros(shape, int)
    if not found.size or not shape:
        return found
    d = block_cut.split_dim
    tells_apart = [(a, 1) for a in range(d)] if block_cut.kind == "row" else []
    tells_apart.append((d, shape[d] // block_cut.sword))
    tells_apart += [(a, 1) for a in range(d + 1, len(shape))] if block_cut.kind == "column" else []
    for axis, piece in tells_apart:
        index = np.arange(shape[axis]) // piece
        found = found * (shape[axis] // piece) + index.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return found


def reads(node, position, shapes):
    """For each output element, the operand elements (row-major positions) that it reads."""
    numbers = np.arange(math.prod(shapes[position])).reshape(shapes[position])
    out = node.type.shape
    if node.kind == "map":
        return [{int(p)} for p in numbers.flat]
    if node.kind == "reduce":
        axes = node.attr("axes")
        moved = np.moveaxis(numbers, axes, range(-len(axes), 0)).reshape(math.prod(out), -1) if axes else numbers.reshape(-1, 1)
        return [set(map(int, row)) for row in moved]
    if node.op == "gather" and position:
        rest = math.prod(out[len(shapes[position]):])
        return [{p} for p in range(numbers.size) for _ in range(rest)]
    if node.op == "gather":  # whatever the indices are
        axes, index_rank = node.attr("axes"), len(shapes[1])
        rest = np.moveaxis(numbers, axes, range(len(axes))).reshape(-1, math.prod(out[index_rank:]))
        return [set(map(int, rest[:, k])) for _ in range(math.prod(out[:index_rank])) for k in range(rest.shape[1])]
    marked = [numbers if k == position else np.full(s, -1) for k, s in enumerate(shapes)]
    return [{int(p)} - {-1} for p in np.asarray(apply(node, marked)).flat]


def blocks_hold_what_they_read(node, position, shapes, block_cut, operand):
    """Does block b of the operand hold all that block b of the output reads?"""
    mine, theirs = owners(block_cut, node.type.shape).reshape(-1), owners(operand, shapes[position]).reshape(-1)
    return all(theirs[p] == mine[k] for k, read in enumerate(reads(node, position, shapes)) for p in read)


def node_of(op, *shapes, dtypes=None, **attrs):
    b = Builder()
    dtypes = dtypes or ["float32"] * len(shapes)
    args = [b.add("input", type=TensorType(s, d), name=f"x{i}") for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
    return b.nodes[b.add(op, args, **attrs)]


SHAPES = [(), (1,), (6,), (4, 6), (1, 6), (6, 1), (2, 3, 4), (2, 1, 4), (4, 1, 1), (2, 3, 2, 2), (8, 17), (0, 3)]


# ---------------------------------------------------------------- row 6: a block cut partitions its tensor
@pytest.mark.paper(6)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_block_cut_cuts_its_tensor_into_equal_blocks(shape):
    for block_cut in block_cuts_of(shape):
        blocks, count = np.unique(owners(block_cut, shape), return_counts=True)
        if math.prod(shape):
            assert blocks.tolist() == list(range(block_cut.blocks(shape))) and len(set(count.tolist())) == 1
    assert WHOLE.blocks(shape) == 1 and WHOLE in block_cuts_of(shape)


def test_what_does_not_divide_is_illegal():
    assert not {BlockCut(0, 3), BlockCut(2, 1), BlockCut(-1, 1), BlockCut(0, 0)} & set(block_cuts_of((8, 17))) and block_cuts_of((0, 4)) == [WHOLE]
    assert [divisors(n) for n in (1, 12, 16, 17)] == [[1], [1, 2, 3, 4, 6, 12], [1, 2, 4, 8, 16], [1, 17]]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_is_what_equal_block_cuts_have_in_common(shape):
    """Equal cuts exactly where every element has the same owner, and the way back finds a block cut of the same blocks."""
    by_cut = {}
    for block_cut in block_cuts_of(shape):
        owner = owners(block_cut, shape)
        cut = cut_of(block_cut, shape)
        assert cut.blocks == block_cut.blocks(shape)
        back = block_cut_for(cut, shape)
        assert back in block_cuts_of(shape) and (owners(back, shape) == owner).all()
        assert (by_cut.setdefault(cut, owner) == owner).all()
    if math.prod(shape):
        assert len({o.tobytes() for o in by_cut.values()}) == len(by_cut), "different cuts, different owners"


# ---------------------------------------------------------------- row 7: propagation
CASES = {
    "element-wise": [("add", [(4, 6), (4, 6)], {})],
    "transpose": [("transpose", [(2, 3, 4)], {"perm": p}) for p in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (0, 1, 2))]
                 + [("transpose", [(2, 3, 2, 2)], {"perm": p}) for p in ((0, 2, 1, 3), (0, 1, 3, 2), (3, 1, 2, 0))],
    "reduce": [("sum", [(2, 3, 4)], {"axes": a, "keepdims": k}) for k in (True, False)
               for a in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2), ())],
    "reshape": [("reshape", [s], {"shape": t}) for s, t in pairwise([(4, 6), (2, 2, 6), (24,), (8, 3), (4, 2, 3), (2, 12), (4, 6)])],
    "broadcast": [("broadcast", [s], {"shape": (2, 3, 4)}) for s in ((1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 1, 4), (2, 1, 1), (1, 1, 1))],
    "slice": [("slice", [(4, 6)], {"size": n, "start": a, "step": s}) for n, a, s in (
        ((2, 6), (1, 0), (1, 1)), ((4, 3), (0, 0), (1, 2)), ((4, 6), (3, 0), (-1, 1)), ((4, 6), (0, 0), (1, 1)), ((2, 2), (0, 0), (1, 1)))],
    "concatenate": [("concatenate", [(2, 3, 4)] * 2, {"axis": a}) for a in (0, 1, 2)],
    "update": [("update", [(4, 6), v], {"start": a, "step": s}) for v, a, s in (
        ((2, 6), (1, 0), (1, 1)), ((4, 2), (0, 3), (1, 2)), ((4, 6), (3, 0), (-1, 1)), ((4, 6), (0, 0), (1, 1)))],
}


def gathers():
    for shape, indices, axes in (((4, 6), [(4,)], (0,)), ((4, 6), [(2, 3)], (0,)), ((4, 6), [(6,)], (1,)),
                                 ((4, 6), [(4, 6), (4, 6)], (0, 1)), ((2, 3, 4), [(2,)], (1,))):
        yield node_of("gather", shape, *indices, dtypes=["float32", *["int64"] * len(indices)], axes=axes), [shape, *indices]


def all_cases():
    for kind, cases in CASES.items():
        for op, shapes, attrs in cases:
            yield kind, node_of(op, *shapes, **attrs), shapes
    for node, shapes in gathers():
        yield "gather", node, shapes


def accepted_and_wrong(rule):
    """How many block cuts a rule passes on, and how many of these would read what another block owns."""
    accepted, wrong = {}, []
    for kind, node, shapes in all_cases():
        for position in range(len(shapes)):
            for block_cut in block_cuts_of(node.type.shape):
                cut = rule(node, position, shapes[position], cut_of(block_cut, node.type.shape))
                if cut is None:
                    continue
                accepted[kind] = accepted.get(kind, 0) + 1
                operand = block_cut_for(cut, shapes[position])
                assert operand.blocks(shapes[position]) == block_cut.blocks(node.type.shape), "one block count in a kernel"
                if not blocks_hold_what_they_read(node, position, shapes, block_cut, operand):
                    wrong.append((str(node), position, block_cut, operand))
    return accepted, wrong


@pytest.mark.paper(7)
def test_what_reaches_an_operand_is_what_blocks_read():
    accepted, wrong = accepted_and_wrong(operand_cut)
    assert not wrong, wrong[:3]
    assert set(accepted) == {*CASES, "gather"} and sum(accepted.values()) > 500


def test_what_is_refused_has_no_block_cut():
    """Complete but for moves that could turn rows into columns, or happen to need no more than a block holds."""
    missed = []
    for kind, node, shapes in all_cases():
        for position in range(len(shapes)):
            for block_cut in block_cuts_of(node.type.shape):
                if operand_cut(node, position, shapes[position], cut_of(block_cut, node.type.shape)) is None:
                    missed += [(kind, str(node), block_cut, t) for t in block_cuts_of(shapes[position])
                               if t.blocks(shapes[position]) == block_cut.blocks(node.type.shape)
                               and blocks_hold_what_they_read(node, position, shapes, block_cut, t)]
    assert {kind for kind, *_ in missed} == {"transpose", "slice", "gather", "update"}, missed[:3]


def test_the_literal_reading_of_table_1_is_wrong(monkeypatch):
    """A mutant: row cuts *at* the first reduced or moved dimension pass unchanged, whatever the sword."""
    honest = block_cuts.aligned
    monkeypatch.setattr(block_cuts, "aligned", lambda *given: (honest(*given)[0] + 1, honest(*given)[1]))
    assert accepted_and_wrong(operand_cut)[1]


@pytest.mark.paper(7)
@given(st.integers(0, 2**20))
def test_propagation_on_random_graphs(seed):
    """Random nodes, random block cuts: what is passed on holds what is read."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, max_nodes=10, max_elements=60, library=False)
    for node in graph.nodes:
        if node.kind not in ("map", "reduce", "move"):
            continue
        shapes = [graph[a].type.shape for a in node.args]
        choices = block_cuts_of(node.type.shape)
        block_cut = choices[int(rng.integers(len(choices)))]
        for position, shape in enumerate(shapes):
            cut = operand_cut(node, position, shape, cut_of(block_cut, node.type.shape))
            if cut is not None and math.prod(shape):
                assert blocks_hold_what_they_read(node, position, shapes, block_cut, block_cut_for(cut, shape)), f"{node} {block_cut}"


# ---------------------------------------------------------------- the paper's example
def test_figure_3_crosses_the_bitcast():
    """64x8x17x17 cut at dimension 2 with sword 1 is 8704x17 cut at dimension 0 with sword 512: 512 blocks."""
    bitcast = node_of("reshape", (8704, 17), shape=(64, 8, 17, 17))
    cut = operand_cut(bitcast, 0, (8704, 17), cut_of(BlockCut(2, 1), (64, 8, 17, 17)))
    assert cut == Cut("row", 512) and block_cut_for(cut, (8704, 17)) == BlockCut(0, 512)
    assert block_cut_for(cut, (64, 8, 17, 17)) == BlockCut(2, 1), "of two block cuts with these blocks the paper's"
    broadcast = node_of("broadcast", (8704, 1), shape=(8704, 17))
    assert block_cut_for(operand_cut(broadcast, 0, (8704, 1), cut), (8704, 1)) == BlockCut(0, 512)
    column = node_of("sum", (128, 1024), axes=(0,), keepdims=False)
    assert block_cut_for(operand_cut(column, 0, (128, 1024), Cut("row", 8)), (128, 1024)) == BlockCut(1, 8, "column")
