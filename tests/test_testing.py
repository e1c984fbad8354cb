"""The generators keep their promises, and the checks catch what they should and say how to see it again."""

import subprocess
import sys
from dataclasses import replace
from random import Random
from statistics import median

import numpy as np
import pytest
from golden import compare
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from numpy_programs import check_program, programs, random_program
from sources import executed

from minisitch.graph import Graph
from minisitch.ops import EXACT, OPS
from minisitch.reference import apply, evaluate
from minisitch.testing import (
    DTYPES,
    SIDES,
    arrays_for,
    check_graph,
    graphs,
    random_graph,
    random_inputs,
    snippet,
)
from minisitch.testing.judge import ROUNDED_ONCE, error_bounds, judge
from minisitch.trace.builder import verify
from minisitch.trace.parser import parse


def generator(seed):
    return np.random.default_rng(seed)


# ---------------------------------------------------------------- random graphs
def test_a_seed_is_a_program():
    for seed in range(20):
        assert random_graph(generator(seed)) == random_graph(generator(seed))
    assert len({str(random_graph(generator(seed))) for seed in range(50)}) > 45


def test_every_op_every_dtype_every_side_is_drawn():
    ops, dtypes, sides, ranks, outputs, shared = set(), set(), set(), set(), set(), 0
    for seed in range(1500):
        graph = verify(random_graph(generator(seed)))
        ops |= {node.op for node in graph.nodes}
        dtypes |= {node.type.dtype for node in graph.nodes}
        sides |= {n for i in graph.inputs for n in graph[i].type.shape}
        ranks |= {node.type.rank for node in graph.nodes}
        outputs.add(len(graph.outputs))
        shared += any(len(users) > 1 for users in graph.users)
    assert ops == set(OPS)
    assert dtypes == set(DTYPES) and sides >= {0, *SIDES} and ranks >= {0, 1, 2, 3, 4} and outputs >= {1, 2, 3}
    assert shared > 500, "values are used twice in a third of the programs"


@pytest.mark.parametrize("first", [0, 100])
def test_programs_stay_finite_and_decidable(first):
    """Exact operations get exact operands and heavy ones safe operands, so judging them means something."""
    for seed in range(first, first + 100):
        graph = random_graph(generator(seed))
        inputs = random_inputs(graph, generator(seed))
        for value, (exact, bound) in zip(evaluate(graph, inputs), error_bounds(graph, inputs), strict=True):
            assert np.isfinite(value.astype(float)).all() and np.isfinite(exact.astype(float)).all(), seed
            assert not np.isinf(bound).any(), f"seed {seed} leaves elements undecided\n{graph}"
            assert value.dtype.kind == "f" or not bound.any(), f"seed {seed}: an integer depends on rounding\n{graph}"


def test_options_are_kept():
    for seed in range(150):
        graph = random_graph(generator(seed), max_nodes=6, library=False, allow_empty=False, max_elements=600,
                             dtypes=("float64",))
        assert len(graph) <= 6 + 12
        for node in graph.nodes:
            assert node.kind != "library" and 0 < node.type.size <= 600
            assert node.type.dtype in ("float64", "int64", "bool")  # indices and conditions
        assert {graph[i].type.dtype for i in graph.inputs} == {"float64"}


def row_sizes(graph):
    """The rows that are reduced: how many, and how long."""
    shapes = [graph[n.args[0]].type.shape for n in graph.nodes if n.kind == "reduce"]
    return {(shape[-2], shape[-1]) for shape in shapes if len(shape) > 1}


def tables_under_several_indices(graph):
    """Values whose rows are read under two indices of the caller's, inside rows that are reduced."""
    def caller_s(value):
        node = graph[value]
        return node.op == "input" or (node.op == "mod" and graph[node.args[0]].op == "input")
    read = {}
    for n in graph.nodes:
        if n.op == "gather" and all(map(caller_s, n.args[1:])):
            read.setdefault(n.args[0], set()).add(n.args[1:])
    return [table for table, indices in read.items() if len(indices) > 1]


def test_rows_beside_rows_and_tables_under_two_indices_come_up():
    """Shares of 400 programs, and none of those that are asked for few nodes."""
    several, three, tables = 0, 0, 0
    for seed in range(400):
        graph = random_graph(generator(seed))
        several += len(row_sizes(graph)) > 1
        three += len(row_sizes(graph)) > 2
        tables += bool(tables_under_several_indices(graph))
        assert len({graph[i].attr("name") for i in graph.inputs}) == len(graph.inputs)
        assert not tables_under_several_indices(random_graph(generator(seed), max_nodes=11))
    assert several > 90 and three > 20 and tables > 60, "more than a fifth, a twentieth, a seventh"


@given(graphs(max_nodes=5, max_elements=100))
def test_hypothesis_draws_the_same_family(graph):
    assert verify(graph) is graph and len(graph) <= 5 + 12  # the last step may add a dozen: a scatter with its indices
    assert all(graph[i].type.size <= 100 for i in graph.inputs)


def test_hypothesis_shrinks_to_the_smallest_program():
    """Mostly: it is greedy, and of 24 seeds two end at seven or eight nodes, where no single deletion leaves a program. So three are asked."""
    enough = settings(database=None, max_examples=500, phases=(Phase.generate, Phase.shrink))
    found = [find(graphs(), lambda g: any(node.op == "exp" for node in g.nodes), random=Random(seed), settings=enough)
             for seed in range(3)]
    assert median(map(len, found)) <= 3 and all(graph[0].type.size == 1 for graph in found)


# ---------------------------------------------------------------- inputs
def test_inputs_fit_and_are_eighths_within_four():
    graph = parse("%0: f32[31,33] = input name='x'\n%1: u8[7] = input name='i'\n%2: bool[0,3] = input name='b'\n"
                  "%3: f32[31,33] = floor %0\nreturn %3")
    for seed in range(10):
        x, i, b = random_inputs(graph, generator(seed))
        assert (x.dtype, x.shape, i.dtype, b.dtype, b.shape) == (np.float32, (31, 33), np.uint8, bool, (0, 3))
        assert np.all(x * 8 == np.rint(x * 8)) and np.abs(x).max() <= 4 and i.max() <= 8
        special = random_inputs(graph, generator(seed), special=True)[0]
        assert np.isnan(special).any() and np.isinf(special).any()


def test_inputs_are_any_floats_where_nothing_jumps():
    graph = parse("%0: f32[31] = input name='x'\n%1: f32[31] = exp %0\nreturn %1")
    general = [not np.all(x * 8 == np.rint(x * 8)) for s in range(200) for x in random_inputs(graph, generator(s))]
    assert 20 < sum(general) < 90


# ---------------------------------------------------------------- the checks
SOFTMAX = parse("""%0: f32[7,33] = input name='x'
    %1: f32[7,1] = max %0 axes=(1,) keepdims=True
    %2: f32[7,33] = broadcast %1 shape=(7, 33)
    %3: f32[7,33] = sub %0 %2
    %4: f32[7,33] = exp %3
    %5: f32[7,1] = sum %4 axes=(1,) keepdims=True
    %6: f32[7,33] = broadcast %5 shape=(7, 33)
    %7: f32[7,33] = div %4 %6
    return %7 %5""")


def softmax(x, total=lambda e: e.sum(1, keepdims=True, dtype=np.float32), shift=lambda x: x.max(1, keepdims=True)):
    e = np.exp(x - shift(x))
    return [e / total(e), total(e)]


RIGHT = {
    "itself": lambda g, xs: evaluate(g, xs),
    "serial sum": lambda g, xs: softmax(*xs, total=lambda e: np.add.accumulate(e, axis=1)[:, -1:]),
    "reciprocal": lambda g, xs: [a * (np.float32(1) / b) for a, b in [(np.exp(xs[0] - xs[0].max(1, keepdims=True)),
                                                                      softmax(*xs)[1])]] + softmax(*xs)[1:],
}
WRONG = {
    "last column lost": lambda g, xs: softmax(*xs, total=lambda e: e[:, :-1].sum(1, keepdims=True)),
    "first column twice": lambda g, xs: softmax(*xs, total=lambda e: e.sum(1, keepdims=True) + e[:, :1]),
    "neighbour's maximum": lambda g, xs: softmax(*xs, shift=lambda x: np.roll(x.max(1, keepdims=True), 1, 0)),
    "sum over rows": lambda g, xs: softmax(*xs, total=lambda e: np.broadcast_to(e.sum(0)[:7, None], (7, 1)).copy()),
    "one row unwritten": lambda g, xs: [np.where(np.arange(7)[:, None] == 6, np.float32(0), a) for a in softmax(*xs)],
    "fast exponential": lambda g, xs: softmax(np.round(xs[0] * 200) / np.float32(200)),
    "outputs swapped": lambda g, xs: softmax(*xs)[::-1],
    "one output": lambda g, xs: softmax(*xs)[:1],
    "float64": lambda g, xs: [a.astype(float) for a in softmax(*xs)],
    "nan": lambda g, xs: [a * np.float32(np.nan) for a in softmax(*xs)],
}
GENERAL = [np.random.default_rng(3).normal(size=(7, 33)).astype(np.float32)]


@pytest.mark.parametrize("name", RIGHT)
def test_another_rounding_passes(name):
    check_graph(SOFTMAX, GENERAL, RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_mutants_are_caught(name):
    with pytest.raises(AssertionError, match="To see it again"):
        check_graph(SOFTMAX, GENERAL, WRONG[name])


@pytest.mark.parametrize("seed", range(30))
def test_a_snippet_rebuilds_the_case(seed):
    graph = random_graph(generator(seed), max_elements=200)
    inputs = random_inputs(graph, generator(seed), special=True)
    scope = {}
    executed(snippet(graph, inputs), scope)
    assert scope["graph"] == graph
    for a, b in zip(scope["inputs"], inputs, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def test_a_failure_names_seed_program_and_element():
    graph = parse("%0: i32[3] = input name='x'\n%1: i32[3] = neg %0\nreturn %1")
    inputs = random_inputs(graph, generator(5))
    with pytest.raises(AssertionError) as failure:
        check_graph(graph, inputs, lambda g, xs: [xs[0] + 100], seed=5)
    text = str(failure.value)
    assert "output 0: 3 of 3 elements are wrong; at (0,): got " in text
    assert str(graph) in text and "random_inputs(graph, np.random.default_rng(5))" in text


@given(st.data())
def test_what_the_reference_computes_passes(data):
    graph = data.draw(graphs(max_nodes=10))
    check_graph(graph, data.draw(arrays_for(graph, special=True)), evaluate)


# ---------------------------------------------------------------- the judge: neither jumpy nor asleep
def honest(graph, inputs, rng):
    """Another correct executor: serial sums, library functions two ulps off, float16 kept in float32."""
    values, given = [], dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        operands = [values[a] for a in node.args]
        is_float = node.type.dtype.startswith("float")
        wide = "float32" if node.type.dtype == "float16" and node.kind != "library" else node.type.dtype
        if node.op == "input":
            value = given[node.id]
        elif node.op == "sum" and is_float and operands[0].size:
            axes, x = node.attr("axes"), operands[0]
            rows = np.moveaxis(x, axes, range(len(axes))).reshape(-1, node.type.size).astype(wide)
            value = np.add.accumulate(rows, axis=0)[-1].reshape(node.type.shape)
        else:
            value = apply(node, operands)
        if is_float and node.kind == "map" and node.op not in EXACT | ROUNDED_ONCE:
            value = value * (1 + 2 * float(np.finfo(wide).eps) * rng.uniform(-1, 1, value.shape))
        values.append(value if node.op == "input" else value.astype(wide))
    return [values[o].astype(graph[o].type.dtype) for o in graph.outputs]


@pytest.mark.parametrize("first", [200, 300])
def test_honest_runs_pass(first):
    used = 0.0
    for seed in range(first, first + 100):
        graph = random_graph(generator(seed))
        inputs = random_inputs(graph, generator(seed))
        check_graph(graph, inputs, lambda g, xs, seed=seed: honest(g, xs, generator(seed)), seed=seed)
        used = max(used, *(v.used for v in judge(graph, inputs, honest(graph, inputs, generator(seed)))))
    assert used > 0.2, "the bound would be far too wide if nobody came near it"


def test_the_sign_of_a_computed_nan_is_not_judged_and_that_of_a_number_is():
    graph = parse("""%0: f32[2,3] = input name='x'
        %1: f32[2] = sum %0 axes=(1,) keepdims=False
        %2: bool[2] = signbit %1
        %3: f32[2] = constant value=2.0
        %4: f32[2] = copysign %3 %1
        return %2 %4""")
    x = np.array([[np.inf, -np.inf, np.nan], [1, 2, -8]], np.float32)
    sign, two = evaluate(graph, [x])
    flipped = [False, True]  # the row that is NaN
    check_graph(graph, [x], lambda g, xs: [sign ^ flipped[::-1], np.where(flipped[::-1], -two, two)])
    for got in ([sign ^ flipped, two], [sign, np.where(flipped, -two, two)]):
        with pytest.raises(AssertionError, match="1 of 2 elements are wrong"):
            check_graph(graph, [x], lambda g, xs, got=got: got)


SWAPPED = {"add": "sub", "sub": "add", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum",
           "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "sum": "max", "exp": "expm1", "sin": "cos",
           "log2": "log"}


def mutants(graph):
    """The graph with one op taken for its neighbour, or one constant a hundredth off."""
    for node in graph.nodes:
        wrong = None
        if node.op in SWAPPED and (node.op != "sum" or graph[node.args[0]].type.size):
            wrong = replace(node, op=SWAPPED[node.op])
        elif node.op == "constant" and node.type.dtype in ("float32", "float64"):
            wrong = replace(node, attrs=(("value", node.attr("value") * 1.01),))
        if wrong is not None:
            yield Graph((*graph.nodes[:node.id], wrong, *graph.nodes[node.id + 1:]), graph.outputs)


def test_wrong_programs_fail():
    caught, missed = 0, []
    for seed in range(300):
        graph = random_graph(generator(seed), allow_empty=False)
        inputs = random_inputs(graph, generator(seed))
        expected = evaluate(graph, inputs)
        for wrong in mutants(graph):
            got = evaluate(wrong, inputs)
            if not all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True)):
                passed = all(v.ok for v in judge(graph, inputs, got))
                caught += not passed
                missed += [seed] if passed else []
    assert caught > 300
    assert len(missed) <= 0.01 * caught, f"mutants of seeds {missed} pass"


# ---------------------------------------------------------------- NumPy programs
@pytest.mark.parametrize("first", [0, 50, 100])
def test_random_programs_trace_to_what_they_mean(first):
    for seed in range(first, first + 50):
        check_program(random_program(generator(seed)), lambda function, *inputs: function(*inputs))


@given(programs(max_lines=5))
def test_programs_are_text_that_runs(program):
    scope = {}
    executed(str(program), scope)
    again = scope["program"](*scope["inputs"])
    for a, b in zip(again if isinstance(again, tuple) else (again,), _results(program), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(a).all()


def _results(program):
    results = program.function(*program.inputs)
    return results if isinstance(results, tuple) else (results,)


def test_a_wrong_program_is_caught():
    program = random_program(generator(1))
    with pytest.raises(AssertionError, match="def program"):
        check_program(program, lambda function, *inputs: function(*inputs[:1], *(a + 3 for a in inputs[1:])))


def test_golden_texts(tmp_path):
    path = tmp_path / "sub" / "a.txt"
    with pytest.raises(pytest.fail.Exception, match=r"no golden text a\.txt yet"):
        compare(path, "one", update=False)
    compare(path, "one\ntwo\n", update=True)
    compare(path, "one\ntwo", update=False)
    with pytest.raises(pytest.fail.Exception, match=r"-two\n\+three\n\nIf the new text is right"):
        compare(path, "one\nthree", update=False)


def test_hypothesis_is_needed_only_by_the_strategies():
    code = ("import sys; sys.modules['hypothesis'] = None\nimport numpy as np\n"
            "from minisitch.testing import random_graph\nrandom_graph(np.random.default_rng(0))")
    subprocess.run([sys.executable, "-c", code], check=True)
