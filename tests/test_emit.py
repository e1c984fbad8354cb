"""Emitted text: golden softmax for both targets, the dialect, and every operation over special values."""

import ast
import re
import sys
from dataclasses import replace
from functools import cache
from itertools import accumulate, islice, pairwise, product
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nests import loops, phases
from programs import attention, softmax
from stitch_help import BASIC, CPU, ROOT, TOY, bodies, lowered, one_kernel, program, run, runner, traced

import minisitch as ms
from minisitch import cpu_emit, cuda_emit
from minisitch.cpu_emit import LITTLE, calls, is_short
from minisitch.device import SERIAL_BELOW
from minisitch.fuse import make_plan
from minisitch.graph import Graph, TensorType
from minisitch.kernel.ir import Choose, FromIndex, Load, Loop, Store
from minisitch.kernel.nests import parts, work_of
from minisitch.kernel.text import literal
from minisitch.ops import DTYPES, OPS, SHORT, kind_of
from minisitch.passes.axes import _split
from minisitch.passes.cut_loops import within
from minisitch.simplify import simplify
from minisitch.stitch.body import extract
from minisitch.stitch.index import Digit, Index, Within
from minisitch.testing import check_graph, random_graph
from minisitch.testing.judge import judge
from minisitch.trace.builder import Builder

EMITTERS = {"cuda": (cuda_emit.emit, TOY), "cpu": (cpu_emit.emit, CPU)}
both = pytest.mark.parametrize("target", EMITTERS)


def emitted(graph, target):
    emit, device = EMITTERS[target]
    return emit(one_kernel(graph, device))


@cache
def sources_of(seed):
    """Texts of one random program, both targets."""
    graph = random_graph(np.random.default_rng(seed), max_nodes=20, max_elements=600)
    found = []
    for strategy in BASIC:
        for target, device in (("step", TOY), ("cpu", CPU)):
            found += lowered(graph, strategy, target, device).sources
    # a column a thread, so that rows take several warps
    return found + [cuda_emit.emit(one_kernel(body, TOY, threads=64)) for body in bodies(graph, "astitch", TOY)]


def sources(count=40):
    """Texts of random programs; several tests look at the same ones."""
    for seed in range(count):
        yield from sources_of(seed)


# ---------------------------------------------------------------- one screen
@both
def test_softmax_text(target, golden):
    source = emitted(traced(softmax, (64, 128)), target)
    assert source.target == target and source.text.count("\n") < 55, "one screen"
    golden(f"softmax_{target}", source.text)


@both
def test_each_line_names_its_node_and_the_users_line(target):
    source = emitted(traced(softmax, (64, 128)), target)
    lines = (ROOT / "tests" / "programs.py").read_text().splitlines()
    named = re.findall(r"# %(\d+) (\w+)  programs\.py:(\d+) in softmax", source.text)
    ops = {op for _, op, _ in named}
    assert {"max", "sub", "exp", "sum", "div"} <= ops
    for node, op, line in named:
        assert source.kernel.graph[int(node)].op == op
        assert {"max": "np.max", "sub": "np.exp", "exp": "np.exp", "sum": "np.sum", "div": "return"}[op] in lines[int(line) - 1]
    for line in source.text.splitlines():
        if re.match(r"\s+v\d+\w* = ", line) or re.search(r"^\s+y\d\S* = ", line):
            assert "# %" in line or ":" in line, f"neither a node nor a view: {line}"


def test_text_parses_and_names_its_launches():
    for source in sources(15):
        tree = ast.parse(source.text)
        functions = {n.name: [a.arg for a in n.args.args] for n in tree.body if isinstance(n, ast.FunctionDef)}
        assert set(functions) == {launch.name for launch in source.launches}
        for launch in source.launches:
            lead = ["first", "last"] if source.target == "cpu" else []
            names = functions[launch.name]
            assert [source.kernel.owners.get(name, name) for name in names] == [*lead, *launch.buffers]


# ---------------------------------------------------------------- the dialect
def bare_floats(text):
    """Float literals that no dtype wraps: each would make Numba compute in float64."""
    tree = ast.parse(text)
    wrapped = {id(c) for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
               for a in n.args for c in ast.walk(a) if isinstance(c, ast.Constant)}
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float) and id(n) not in wrapped]


def test_every_float_literal_has_its_dtype():
    assert bare_floats("x = 0.5") == [0.5] and bare_floats("x = np.float32(0.5) * y[3]") == []
    for source in sources():
        assert bare_floats(source.text) == []
        if not any("float64" in (b.dtype, *[s.dtype for s in ()]) for b in source.kernel.buffers):
            assert "np.float64(" not in source.text or any(n.type.dtype == "float64" for n in source.kernel.graph.nodes)


def test_barriers_stand_in_uniform_flow():
    """At the top of the function or in loops that every thread of the block goes round alike; never under an if."""
    barriers = 0
    for source in sources(60):
        if source.target != "cuda":
            continue
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.If):
                inside = ast.unparse(node)
                assert not any(word in inside for word in ("syncthreads", "syncwarp", "grid.sync", "shfl")), inside
            if isinstance(node, ast.For) and ("lane" in ast.unparse(node.iter) or "ser_" in ast.unparse(node.iter)):
                assert not any(w in ast.unparse(node) for w in ("syncthreads", "grid.sync", "shfl")), ast.unparse(node)
        barriers += source.text.count("syncthreads")
    assert barriers > 20


def test_shared_sizes_are_literals():
    for source in sources(30):
        for call in re.findall(r"cuda\.shared\.array\(([^,]+),", source.text):
            assert call.isdigit() and int(call) > 0


def test_literals():
    assert literal("float32", 0.1) == "np.float32(0.10000000149011612)"
    assert literal("float16", 0.1) == "np.float32(0.0999755859375)", "rounded as float16, held in float32"
    assert literal("float64", -np.inf) == "np.float64(-np.inf)" and literal("float32", np.nan) == "np.float32(np.nan)"
    assert literal("int8", -3) == "np.int8(-3)" and literal("bool", 1) == "True"
    assert literal("float32", -0.0) == "np.float32(-0.0)"
    for value in (0.1, 1e-45, 3e38, -0.0, np.inf):
        assert eval(literal("float32", value), {"np": np}).tobytes() == np.float32(value).tobytes()


# ---------------------------------------------------------------- inner loops
def inner_loops(text):
    """The innermost loops of a text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.For) and not any(isinstance(n, ast.For) for b in node.body for n in ast.walk(b)):
            yield node


def divides(node):
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, (ast.FloorDiv, ast.Mod)) for n in ast.walk(node))


HEADS = {
    "split": lambda x: np.tanh(x.reshape(2, 5, 12, 64).transpose(0, 2, 1, 3)),
    "merge": lambda x: np.tanh(x.reshape(2, 12, 5, 64).transpose(0, 2, 1, 3).reshape(2, 5, 768)),
    "there and back": lambda x: np.tanh(x.reshape(2, 5, 12, 64).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3).reshape(2, 5, 768),
}


@pytest.mark.parametrize("name", HEADS)
def test_inner_loops_of_a_cpu_read_views_and_never_divide(name):
    """A division an element stops vectorisation (measured); so does an index that Numba must guard."""
    for source in lowered(traced(HEADS[name], (2, 5, 768)), "astitch", "cpu", CPU).sources:
        loops = list(inner_loops(source.text))
        assert loops
        for loop in loops:
            assert not divides(loop), ast.unparse(loop)
            subscripts = [n for n in ast.walk(loop) if isinstance(n, ast.Subscript)]
            assert subscripts and all(isinstance(n.slice, ast.Name) for n in subscripts), ast.unparse(loop)
            assert any("_row" in ast.unparse(n) for n in subscripts)


def test_rows_of_softmax_are_views():
    text = emitted(traced(softmax, (64, 128)), "cpu").text
    assert all(not divides(loop) for loop in inner_loops(text))
    assert "x0_row[col]" in text and "y0_row[col]" in text


# ---------------------------------------------------------------- loops in blocks
def ran_on_cpu(function, *inputs):
    """The text of a core's kernels, and what they compute."""
    graph = traced(function, *inputs)
    texts = [s.text for s in lowered(graph, "astitch", "cpu", CPU).sources]
    return "\n".join(texts), run(graph, inputs, "astitch", "python", CPU)[0]


@pytest.mark.parametrize(("rows", "cols"), [(130, 528), (70, 515), (3, 512), (1, 520), (130, 100)])
def test_what_lies_across_the_rows_is_read_in_blocks(rows, cols, golden):
    """Blocks of sixteen columns, each for many rows in turn; ragged at both ends. Not where columns share lines, or all is one row."""
    rng = np.random.default_rng(0)
    x, y = rng.random((cols, rows)).astype(np.float32), rng.random((rows, cols)).astype(np.float32)
    text, result = ran_on_cpu(lambda x, y: x.T + y, x, y)
    assert np.array_equal(result, x.T + y)
    assert ("for first_row" in text) == (cols > 500 and rows > 16)
    if (rows, cols) == (70, 515):
        golden("transposed_cpu", text)


@pytest.mark.parametrize(("rows", "sweep"), [(600, 8), (602, 7), (601, 1), (60, 1)])
def test_column_sums_take_several_rows_at_once(rows, sweep):
    """The largest divisor up to eight; slices begin at whole sweeps; few rows, as partial results are, in turn."""
    x = np.arange(rows * 40, dtype=np.float32).reshape(rows, 40) % 7
    text, result = ran_on_cpu(lambda x: x.sum(0), x)
    assert np.array_equal(result, x.sum(0))
    assert (f"for swept in range({sweep}):" in text) == (sweep > 1)


@pytest.mark.parametrize("strategy", ["astitch", "fs18"])
@given(batch=st.integers(1, 9), frames=st.sampled_from([4, 8, 9, 16, 33, 64]), pad=st.integers(0, 3), cols=st.sampled_from([8, 9, 40]))
def test_column_sums_of_a_window_have_the_references_values(strategy, batch, frames, pad, cols):
    """The reduced rows are several of each of several images, whose ends need not be the ends of a sweep."""
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (batch, frames + pad, cols)).astype(np.float32)
    y = rng.integers(-8, 9, (batch, frames, cols)).astype(np.float32)
    graph = traced(lambda x, y: (x[:, pad:] * y).sum((0, 1)), x, y)
    assert np.array_equal(run(graph, (x, y), strategy, "python", CPU)[0], (x[:, pad:] * y).sum((0, 1)))


def test_a_sweep_ends_where_an_image_does():
    """Eight at a time of 64 rows an image, three of nine; one by one of seven, of which no number of rows is a whole sweep."""
    for frames, sweep in ((64, 8), (9, 3), (7, 7), (11, 1)):
        x, y = np.ones((22, frames + 1, 40), np.float32), np.ones((22, frames, 40), np.float32)
        text, result = ran_on_cpu(lambda x, y: (x[:, 1:] * y).sum((0, 1)), x, y)
        assert (f"for swept in range({sweep}):" in text) == (sweep > 1) and (result == 22 * frames).all()


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.data())
def test_a_digit_is_split_among_the_axes_inside_it(sizes, data):
    """Two ways to cut one range, each of whose boundaries divide the next: the digits of one, in terms of the other's axes."""
    edges = list(accumulate(sizes, mul, initial=1))
    total = edges[-1]
    cut = [1, *sorted(data.draw(st.sets(st.sampled_from(edges))) - {1, total}), total]
    axes = [(f"a{k}", low, high // low) for k, (low, high) in enumerate(pairwise(cut))]
    low, high = sorted(data.draw(st.lists(st.sampled_from(edges), min_size=2, max_size=2)))
    digit = Digit("col", low, high // low)
    split = _split(digit, axes, total, False)
    for flat in range(total):
        at = {name: flat // stride % size for name, stride, size in axes}
        assert split.const + sum(c * (at[d.var] // d.stride % d.size) for c, d in split.terms) == flat // low % (high // low)


@pytest.mark.parametrize("size", [16_385, 24_576])
def test_each_block_of_a_long_row_has_a_total_of_its_own(size):
    """One float32 total would swallow what is added late: of tenths, it is wrong in the fourth digit."""
    x = np.full((16, size), 0.1, np.float32)
    text, result = ran_on_cpu(lambda x: x.sum(-1), x)
    assert "_part" in text
    exact = x[0].astype(np.float64).sum()
    assert abs(result - exact).max() / exact < 1e-3  # plain Python adds a block's numbers in turn, which costs most of it
    long = np.full(1 << 22, 0.1, np.float32)
    exact = long.astype(np.float64).sum()
    assert abs(run(traced(np.sum, long), [long], "astitch", "cpu", CPU)[0] - exact) / exact < 1e-5


def test_each_plane_of_a_sum_has_a_total_of_its_own():
    """Batch-norm's statistics: a channel is a plane of each image, and its sum was eight times NumPy's error away."""
    x = np.full((33, 16, 512), 0.1, np.float32)
    text, result = ran_on_cpu(lambda x: x.sum((0, 2)), x)
    assert "_part += " in text and text.count("for c") == 2
    exact = x[:, 0].astype(np.float64).sum()
    assert abs(result - exact).max() / exact < 1e-5, "plain Python adds 512 numbers in turn, then 33 totals"
    assert "_part" not in ran_on_cpu(lambda x: x.sum((0, 2)), x[:31, :, :32])[0], "a sum too short for totals"


# ---------------------------------------------------------------- equal bodies, equal text
@both
def test_structurally_equal_bodies_have_identical_text(target):
    def two(x, y):
        return softmax(x), softmax(y)
    graph = traced(two, (4, 8), (4, 8))
    plan = make_plan(graph, "s", [[2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15]])
    first, second = (emitted(extract(graph, p).graph, target).text for p in plan.kernels)
    assert first == second


def standardised(x):
    """Column statistics that every row reads: two segments and more."""
    return (x - np.mean(x, axis=0)) / np.std(x, axis=0)


@pytest.mark.parametrize(("rows", "count"), [(600, 2), (200_000, 5)])
def test_small_segments_follow_each_other_in_one_function(rows, count, golden):
    """What one core does anyway is one call, but for loops that the compiler must treat otherwise; a large segment is a call of its
    own, since cores share it."""
    source = emitted(traced(standardised, (rows, 40)), "cpu")
    segments = source.kernel.segments
    assert len(segments) > 1 and sum(map(len, calls(source.kernel))) == len(segments)
    assert len(source.launches) == len(calls(source.kernel)) == count
    if count == 2:
        assert source.launches[0].tasks == 1 and source.text.count("range(first") == 1
        golden("standardised_one_call", source.text)


@both
def test_a_task_that_combines_partial_results_has_no_columns_of_its_own(target):
    segments = lowered(traced(np.sum, (115000,)), "astitch", *(("cpu", CPU) if target == "cpu" else ("step", TOY))).sources[0]
    first, second = segments.text.split("chunk = task")[1:]
    assert "start = chunk" in first and "x0" in first and not {"start", "stop", "width"} & set(re.findall(r"\w+", second))


def test_neighbours_of_a_large_segment_are_called_apart():
    """Small, large, small: three calls, the order kept."""
    kernel = one_kernel(traced(softmax, (64, 100)), CPU, ())
    (segment,), ((short,)) = kernel.segments, one_kernel(traced(softmax, (64, 50)), CPU, ()).segments

    def of_work(segment, work):
        return replace(segment, space=replace(segment.space, rows=-(-work * segment.rows // work_of(segment))))

    def lengths(*segments):
        return [len(call) for call in calls(replace(kernel, segments=segments))]
    small, large = of_work(segment, LITTLE), of_work(segment, SERIAL_BELOW)
    assert lengths(small, small, large, small, large, large) == [2, 1, 1, 1, 1]
    other, tiny = of_work(short, LITTLE), of_work(segment, LITTLE // 2)
    assert (is_short(other), is_short(tiny)) == (True, False)
    assert lengths(small, other, other, tiny, other, small) == [1, 4, 1]


def totals(x, y):
    """Three sums of long rows, each of which needs the one before: the third one's partial results take the first one's bytes."""
    a = (x * x).sum()
    b = (y / a).sum()
    return a + (np.exp(y / b) * a).sum()


def test_buffers_that_share_bytes_are_one_argument():
    """Numba is told that arguments do not overlap: it once moved the last reads of one below the first writes of the other."""
    x, y = np.arange(4500, dtype=np.float32) % 7, np.ones(1200, np.float32)
    graph = traced(totals, x, y)
    (source,) = lowered(graph, "astitch", "cpu", CPU).sources
    assert "takes over its bytes" in source.text and len(source.launches) == 1
    assert run(graph, (x, y), "astitch", "cpu", CPU)[0] == pytest.approx(totals(x.astype(float), y.astype(float)), rel=1e-5)


def test_no_function_is_given_the_same_memory_twice():
    def chain(*arrays):
        total = np.float32(1)
        for x in arrays:
            total = (np.exp(x / total) * total).sum()
        return total

    sharing = 0
    for sizes in islice(product((40, 3000, 6000, 20000), repeat=4), 0, None, 3):
        for source in lowered(traced(chain, *((n,) for n in sizes)), "astitch", "cpu", CPU).sources:
            assert all(len(set(launch.buffers)) == len(launch.buffers) for launch in source.launches), source.text
            sharing += bool(re.search(r"    ([pt]\d+) = [pt]\d+ ", source.text))
    assert sharing > 15


def test_emitting_twice_gives_the_same_text():
    for emit, device in EMITTERS.values():
        kernel = one_kernel(traced(softmax, (8, 40)), device)
        assert emit(kernel) == emit(kernel)


def test_attention_text_says_what_reads_what():
    stages = lowered(traced(attention, *[(2, 4, 16, 8)] * 3), "astitch", "step", TOY)
    (source,) = stages.sources
    assert "in softmax" in source.text and "in attention" in source.text


# ---------------------------------------------------------------- every row of the table of operations
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.25, -0.25, 1.5, 2.5, -2.5, 3.0, -3.0, 7.0, 0.1, -0.1, 80.0, -80.0, np.nan, np.inf, -np.inf,
          1e-40, -1e-40, 1e30, -1e30, 0.999, 8388609.0, -8388607.5]
# Not 0.5: NumPy's own power(-inf, 0.5) is inf for arrays and nan for scalars. Not exp(-100): results below the
# smallest normal float32 are flushed to zero, as cpu_math says.
LARGE_UNSIGNED = [0, 1, 2, 3, 5, 7, 31, 100, 2**63, 2**63 + 5, 2**64 - 1]


def special(dtype):
    """Values on which implementations differ."""
    if kind_of(dtype) == "bool":
        return np.array([False, True])
    if kind_of(dtype) == "float":
        info = np.finfo(dtype)
        with np.errstate(over="ignore"):
            return np.array([*FLOATS, info.max, -info.max, info.tiny, info.smallest_subnormal, info.eps], dtype)
    if dtype == "uint64":
        return np.array(LARGE_UNSIGNED, dtype)
    info = np.iinfo(dtype)
    negative = {-1, -2, -3, -7} if info.min < 0 else set()
    return np.array(sorted({0, 1, 2, 3, 5, 7, 8, 31, 100, info.max, info.max - 1, info.min, info.min + 1} | negative), dtype)


def all_maps(dtype):
    """A graph with one output a row of the table, over all pairs of special values; its inputs and the names."""
    b, values = Builder(), special(dtype)
    n = len(values)
    kind = TensorType((n * n,), dtype)
    x, y = b.add("input", type=kind, name="x"), b.add("input", type=kind, name="y")
    c, e = b.add("input", type=TensorType((n * n,), "bool"), name="c"), b.add("input", type=kind, name="exponent")
    names = [name for name, op in OPS.items() if op.kind == "map" and name != "cast" and kind_of(dtype) in op.domain]
    outputs = []
    for name in names:
        integers = name == "power" and kind_of(dtype) == "int"  # NumPy refuses negative exponents
        operands = [c, x, y] if name == "select" else [x, e] if integers else [x, y][:OPS[name].arity]
        outputs.append(b.add(name, operands))
    count = np.arange(n * n)
    return b.finish(outputs), [np.repeat(values, n), np.tile(values, n), count % 3 == 0, (count % 9).astype(dtype)], names


def check_maps(dtype, target, device):
    graph, inputs, names = all_maps(dtype)
    wrong = []
    for k in range(0, len(names), 14):
        part = Graph(graph.nodes, graph.outputs[k:k + 14])
        results = run(part, inputs, "astitch", target, device)
        with np.errstate(all="ignore"):
            wrong += [f"{name}: {v.why}" for name, v in zip(names[k:], judge(part, inputs, results), strict=False) if not v.ok]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_every_operation_in_cuda_text(dtype):
    check_maps(dtype, "step", TOY)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "uint64", "float16", "float32", "float64"])
def test_every_operation_compiled(dtype):
    check_maps(dtype, "cpu", CPU)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint16", "uint32"])
def test_every_operation_as_plain_text(dtype):
    """Of each of these, ``test_right_wrap`` compiles the operations that its width matters to."""
    check_maps(dtype, "python", CPU)


def all_casts(dtype):
    """Every cast from a dtype that is defined: floats that fit, integers of any value."""
    b = Builder()
    values = special(dtype)
    if kind_of(dtype) == "float":
        values = np.array([0.0, -0.0, 1.0, 1.5, 2.5, 3.999, 100.25, 0.1, 1e-5, 65504.0, 65519.0 if dtype != "float16" else 7], dtype)
    fits = {}
    x = b.add("input", type=TensorType(values.shape, dtype), name="x")
    small = b.add("input", type=TensorType(values.shape, dtype), name="small")
    outputs = []
    for to in SHORT:
        narrow = kind_of(dtype) == "float" and kind_of(to) == "int" and np.dtype(to).itemsize < 4
        fits[to] = small if narrow else x
        outputs.append(b.add("cast", [fits[to]], dtype=to))
    return b.finish(outputs), [values, (np.arange(len(values)) % 3).astype(dtype)]


@pytest.mark.parametrize("target", ["step", "python"])
def test_every_cast_in_text(target):
    for dtype in SHORT:
        graph, inputs = all_casts(dtype)
        check_graph(graph, inputs, runner("astitch", target))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64"])
def test_every_cast_compiled(dtype):
    graph, inputs = all_casts(dtype)
    check_graph(graph, inputs, runner("astitch", "cpu"))


def test_a_core_chooses_what_it_makes_of_a_comparison():
    """A mask of a softmax took four times as long as a conversion; a GPU's text converts."""
    graph = program("f32[64] = input", "f32[64] = constant value=0.0", "bool[64] = gt %0 %1", "f32[64] = cast %2 dtype='float32'",
                    "f32[64] = mul %3 %0", "return %4")
    texts = {target: lowered(graph, "astitch", target, device).sources[0].text for target, device in (("cpu", CPU), ("step", TOY))}
    assert "select(v2, np.float32(1), np.float32(0))" in texts["cpu"] and "np.float32(v2)" in texts["step"]


def test_special_floats_become_bool_and_float16_as_in_numpy():
    graph = program("f32[8] = input name='x'", "bool[8] = cast %0 dtype='bool'", "f16[8] = cast %0 dtype='float16'",
                    "f32[8] = cast %2 dtype='float32'", "f64[8] = cast %0 dtype='float64'", "return %1 %2 %3 %4")
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 65520.0, 6e-8, 1e-10, 65519.99], np.float32)
    with np.errstate(over="ignore"):
        for target in ("step", "python", "cpu"):
            check_graph(graph, [x], runner("astitch", target))


def test_float64_to_float16_is_rounded_once():
    """Just above a tie: by way of float32, which has the tie itself, each would end one float16 lower."""
    x = np.array([2049.0, -6146.0, 1 / 4096 + 2**-23]) * (1 + 2.0**-40)
    graph = program(f"f64[{len(x)}] = input name='x'", f"f16[{len(x)}] = cast %0 dtype='float16'", "return %1")
    for target in ("step", "python", "cpu"):
        (got,) = runner("astitch", target)(graph, [x])
        assert np.array_equal(got, x.astype(np.float16)) and not np.array_equal(got, x.astype(np.float32).astype(np.float16))


def test_no_operation_is_missing():
    """A row added to the table is tested here from then on."""
    seen = set()
    for dtype in DTYPES.values():
        seen |= set(all_maps(dtype)[2])
    assert seen | {"cast"} == {name for name, op in OPS.items() if op.kind == "map"}
    assert sys.getrecursionlimit() <= 10_000 and simplify(all_maps("int32")[0]).outputs


def test_one_call_has_loops_that_the_compiler_treats_alike():
    """A short row's loops must not be unrolled first, a column sum's sweep must: in one function, one of them was 10 times as slow."""
    graph = simplify(traced(lambda x: (np.exp(x - x.max(-1, keepdims=True)), np.exp(x - x.max(-1, keepdims=True)).sum(0)), (2000, 10)))
    kernel, = lowered(graph, "astitch", "cpu", CPU).kernels
    large = [[is_short(s) for s in call if work_of(s) >= LITTLE] for call in calls(kernel)]
    assert large == [[True], [False]]
    assert not any(loops(s, "unrolled") for s in kernel.segments if is_short(s)) and loops(kernel, "unrolled")


# ---------------------------------------------------------------- a loop in pieces, where arrays are joined
def joined(x, y):
    return np.tanh(np.concatenate([x, y[:, ::-1], x * y], axis=-1)).sum(-1), np.concatenate([x, y], axis=-1) * np.float32(2)


def test_a_loop_is_cut_where_arrays_are_joined(golden):
    source = emitted(traced(lambda x, y: np.concatenate([x, y], axis=-1) * np.float32(2), (4, 20), (4, 12)), "cpu")
    assert "range(20)" in source.text and "range(20, 32)" in source.text
    assert " if " not in source.text and "select" not in source.text
    assert "for c1 in 0..20:" in str(source.kernel) and "for c1 in 20..32:" in str(source.kernel)
    golden("joined_in_pieces", source.text)
    uncut = emitted(traced(lambda x, y: np.concatenate([x, y], axis=0) * np.float32(2), (4, 20), (3, 20)), "cpu")
    assert [len(parts(p).innermost) for p in phases(uncut.kernel)] == [1], "rows are joined, not columns"


def test_more_pieces_than_a_few_stay_one_loop():
    shapes = [(4, 3)] * 6
    source = emitted(traced(lambda *xs: np.concatenate(xs, axis=-1) * np.float32(2), *shapes), "cpu")
    assert "range(18)" in source.text and [len(parts(p).innermost) for p in phases(source.kernel)] == [1]


@pytest.mark.parametrize("n", [1, 3, 16, 33])
@pytest.mark.parametrize("strategy", ["xla", "astitch", "auto"])
def test_joined_arrays_have_the_references_values(n, strategy):
    x, y = (np.random.default_rng(k).normal(size=(5, n)).astype(np.float32) for k in range(2))
    target = "cpu" if strategy == "astitch" else "python"
    for got, want in zip(ms.jit(joined, target=target, strategy=strategy)(x, y), joined(x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def test_what_holds_in_a_piece_is_decided():
    """Below its first column a condition fails, up to its last it holds; one of another variable is left to the loop."""
    here, there = Within(Index(-4, ((1, Digit("col", 1, 32)),)), 0, 16), Within(Index(0, ((1, Digit("row", 1, 8)),)), 0, 4)
    load = Load("v1", "x", Index(), (here, there), False, "float32", 1)
    choice, store = Choose("v2", (here,), "v1", "v0", "float32", 2), Store("y", Index(), "v2", (here,), 2)
    before, inside, after = (within((load, choice, store), Loop("col", Index(), 32, ()), *piece) for piece in ((0, 4), (4, 20), (20, 32)))
    assert [s.guard for s in inside] == [(there,), (), ()] and inside[1].value == "v1"
    for fails in (before, after):
        assert isinstance(fails[0], FromIndex) and fails[1].value == "v0" and len(fails) == 2
