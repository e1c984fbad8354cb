"""The stepper: correct kernels pass with the right numbers and counts, broken ones are refused by name."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from simt_kernels import CASES, MUTANTS

from minisitch.errors import KernelBug
from minisitch.simt import ArrayBytes, LaunchError, LineTraffic, step
from minisitch.simt import math as cuda_math
from minisitch.simt.text import DEVICE_FUNCTIONS
from minisitch.simt.values import NUMPY

SEEDS = range(5)


def launch(case, text, seed, **changes):
    """Step ``text`` on the case's arrays; return the arrays, what they should be, and the traffic."""
    arrays = case.make(np.random.default_rng(seed))
    want = case.want({name: array.copy() for name, array in arrays.items()})
    options = {"grid": case.grid, "block": case.block, "inputs": case.inputs, "wave": case.wave, **changes}
    traffic = step(text, arrays, seed=seed, **options)
    return arrays, want, traffic


@pytest.mark.parametrize("name", CASES)
def test_correct_kernel_passes(name):
    case, traffics = CASES[name], []
    for seed in SEEDS:
        arrays, want, traffic = launch(case, case.text, seed)
        for key, value in want.items():
            assert arrays[key].dtype == value.dtype, key
            np.testing.assert_allclose(arrays[key], value, rtol=1e-6, err_msg=f"{key}, seed {seed}")
        traffics.append(traffic)
    if not case.text.count("while cuda"):  # who waits by looking, looks more or less often
        sizes = [(t.loads, t.stores, t.shared_loads, t.shared_stores, t.block_barriers) for t in traffics]
        assert len(set(sizes)) == 1, "the counts of a kernel do not depend on the order of its threads"


@pytest.mark.paper(52)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.case}: {m.name}")
def test_mutant_is_refused(mutant):
    case = CASES[mutant.case]
    assert case.text.count(mutant.old) == 1 or not mutant.old, "a mutant changes one place"
    text = case.text.replace(mutant.old, mutant.new) if mutant.old else case.text
    for seed in SEEDS:
        with pytest.raises(KernelBug) as refusal:
            launch(case, text, seed, **mutant.launch)
        assert str(refusal.value).split(":")[0] in mutant.rules, f"seed {seed}: {refusal.value}"


# ---------------------------------------------------------------- what a refusal says


def refusal(text, arrays, grid=1, block=32, **options):
    with pytest.raises(KernelBug) as caught:
        step(text, arrays, grid, block, **options)
    return str(caught.value)


def test_a_race_names_cell_threads_and_lines():
    text = "def k(y):\n    i = cuda.threadIdx.x\n    y[i] = i\n    y[0] = i"
    said = refusal(text, [np.zeros((33,), np.int32)], block=33)
    assert said.startswith("race: y[0]: ")
    assert "line 4: y[0] = i" in said and "block 0 thread" in said


def test_a_divergent_barrier_names_who_stands_where():
    text = "def k(y):\n    if cuda.threadIdx.x < 30:\n        cuda.syncthreads()"
    assert refusal(text, [np.zeros(1)]).splitlines()[1:] == [
        "  line 1: def k(y):    <- exit: block 0 thread 30 and 1 more",
        "  line 3: cuda.syncthreads()    <- syncthreads: block 0 thread 0 and 29 more"]


def test_a_cell_of_a_matrix_is_shown_by_row_and_column():
    assert "y[1, 2] of global memory is read before any write" in refusal(
        "def k(y):\n    y[1, 2] += 1", [np.zeros((3, 4), np.int64)])


@pytest.mark.parametrize(("body", "rule"), [
    ("x[-1] = ONE", "out-of-bounds"), ("x[4] = ONE", "out-of-bounds"), ("x[1.5] = ONE", "float64-literal"),
    ("x[ONE] = ONE", "out-of-bounds"), ("x[True] = ONE", "out-of-bounds"), ("x[0, 0] = ONE", "out-of-bounds"),
    ("x[0:2] = ONE", "outside-dialect"), ("x[0] = 2.0", "float64-literal"), ("x[0] = math.inf", "float64-literal"),
    ("x[0] = np.float32(ONE * 2.0)", "float64-literal"), ("cuda.syncthreads_count(1)", "outside-dialect"),
    ("x[0] = 1 // 0", "exception"), ("cuda.atomic.nand(x, 0, 1)", "outside-dialect"),
])
def test_small_refusals(body, rule):
    assert refusal(f"ONE = np.float32(1.0)\ndef k(x):\n    {body}", [np.zeros(4, np.float32)], block=1).startswith(rule)


def test_a_helper_may_not_wait():
    text = "def helper(v):\n    cuda.syncthreads()\n    return v\ndef k(x):\n    x[0] = helper(1)"
    assert refusal(text, [np.zeros(1)]).startswith("outside-dialect: helper uses cuda")


def test_inputs_by_name_by_position_and_derived():
    text = "def k(x, y):\n    y[0] = x[0] + y[0]"
    x, y = np.ones(1, np.float32), np.ones(1, np.float32)
    assert refusal(text, [x, y], block=1).startswith("unwritten-read: y[0]")  # derived: the text writes to y
    assert refusal(text, [x, y], block=1, inputs=["y"]).startswith("unwritten-read: x[0]")
    step(text, [x, y], 1, 1, inputs=["x", 1])
    assert y[0] == 2


def test_one_array_given_twice_is_one_memory():
    text = "def k(x, y):\n    i = cuda.threadIdx.x\n    y[i] = x[(i + 1) % 32]"
    x = np.arange(32, dtype=np.float32)
    assert refusal(text, [x, x], inputs=["x"]).startswith("race")
    step(text.replace("(i + 1)", "i"), [x, x], 1, 32, inputs=["x"])


def test_shared_memory_is_fresh_in_every_block():
    text = ("def k(y):\n    s = cuda.shared.array(1, np.int32)\n    if cuda.blockIdx.x == 0: s[0] = 1\n"
            "    y[cuda.blockIdx.x] = s[0]")
    assert refusal(text, [np.zeros(2)], grid=2, block=1).startswith("unwritten-read: s[0] of shared memory")


def test_local_arrays_belong_to_one_thread():
    text = ("def k(x, y):\n    mine = cuda.local.array(4, np.float32)\n    i = cuda.threadIdx.x\n"
            "    for j in range(4):\n        mine[j] = x[i * 4 + j]\n    y[i] = mine[0] + mine[3]")
    x, y = np.arange(128, dtype=np.float32), np.zeros(32, np.float32)
    traffic = step(text, [x, y], 1, 32)
    assert (y == x[::4] + x[3::4]).all() and (traffic.loads, traffic.shared_loads) == (128, 0)
    assert refusal(text.replace("mine[3]", "mine[4]"), [x, y]).startswith("out-of-bounds: mine[4]")
    assert refusal(text.replace("range(4)", "range(3)"), [x, y]).startswith("unwritten-read: mine[3] of local memory")


def test_a_long_while_loop_is_no_deadlock():
    text = ("def k(x, y):\n    i, v = 0, x[0]\n    while i < 5000:\n        v, i = x[0], i + 1\n"
            "    y[cuda.blockIdx.x] = v")
    step(text, [np.ones(1), np.zeros(3)], 3, 1)


def test_a_deadlock_names_who_waits():
    text = "def k(flag):\n    while cuda.atomic.add(flag, 0, 0) == 0:\n        pass"
    said = refusal(text, [np.zeros(1, np.int32)], block=2, inputs=["flag"])
    assert said.startswith("deadlock: ") and said.endswith("line 2: while cuda.atomic.add(flag, 0, 0) == 0:    "
                                                           "<- while: block 0 thread 0 and 1 more")


@pytest.mark.parametrize("arrays", [(np.zeros(8)[::2], np.zeros(4)), (np.zeros(4), np.zeros((4, 4)).T)])
def test_arrays_are_contiguous(arrays):
    with pytest.raises(ValueError, match="not contiguous"):
        step("def k(x, y):\n    pass", arrays, 1, 1)


def test_arguments_that_overlap_are_refused():
    whole = np.zeros(8)
    with pytest.raises(ValueError, match="overlaps"):
        step("def k(x, y):\n    y[0] = x[0]", [whole, whole[4:]], 1, 1)
    step("def k(x, y):\n    y[0] = x[0]", [whole[:4], whole[4:]], 1, 1)
    step("def k(x, y):\n    z = y[0] + x[0]", [whole, whole[4:]], 1, 1)  # nobody writes


# ---------------------------------------------------------------- values are as Numba types them


def compute(body, dtype=np.float32, x=1, result=None):
    """The value of ``y[0]`` after ``body``, with ``x[0]`` of ``dtype``."""
    y = np.zeros(1, result or dtype)
    step(f"TENTH = np.float32(0.1)\ndef k(x, y):\n    {body}", [np.array([x], dtype), y], 1, 1)
    return y[0]


def test_float32_rounds_at_each_operation():
    tenth = np.float32(0.1)
    assert compute("y[0] = x[0] + TENTH + TENTH", result=np.float64) == np.float32(1) + tenth + tenth
    assert compute("y[0] = math.exp(x[0])", result=np.float64) == np.exp(np.float32(1))
    assert compute("y[0] = math.exp(x[0])", x=1000) == np.inf
    assert np.isnan(compute("y[0] = math.log(x[0])", x=-1))
    assert compute("y[0] = math.erf(x[0])", result=np.float64) == np.float32(0.8427007929)


def test_float16_is_widened_by_a_cast():
    assert compute("y[0] = np.float32(x[0]) * TENTH", np.float16, 3, np.float32) == np.float32(3) * np.float32(0.1)


def test_narrow_integers_wrap_in_stores_and_casts_only():
    assert compute("y[0] = x[0] + x[0]", np.int8, 100) == -56
    assert compute("y[0] = x[0] + x[0]", np.int8, 100, np.int32) == 200  # as Numba: int8 + int8 is an int64
    assert compute("y[0] = np.int8(x[0] + x[0])", np.int8, 100, np.int32) == -56
    assert compute("y[0] = x[0] * 1000", np.int8, 100, np.int32) == 100_000
    assert compute("y[0] = x[0] - 1", np.uint8, 0) == 255
    assert compute("y[0] = x[0] * x[0]", np.int64, 2**40) == 0
    assert compute("y[0] = np.int32(x[0])", np.float32, -3.7, np.int32) == -3


def test_atomics_return_the_old_value():
    old, x = np.zeros(5, np.int32), np.array([5, 5, 5, 5, 5], np.int32)
    step("""def k(x, old):
        old[0] = cuda.atomic.add(x, 0, 2)
        old[1] = cuda.atomic.max(x, 1, 7)
        old[2] = cuda.atomic.min(x, 2, 7)
        old[3] = cuda.atomic.cas(x, 3, 5, 9)
        old[4] = cuda.atomic.exch(x, 4, 1)""", [x, old], 1, 1, inputs=["x"])
    assert list(old) == [5] * 5 and list(x) == [7, 7, 5, 9, 1]


def test_stores_to_several_targets():
    x = np.arange(4, dtype=np.float32)
    step("def k(x):\n    x[0], x[1] = x[1], x[0]\n    x[2] = a = x[3]\n    x[3] += a", [x], 1, 1, inputs=["x"])
    assert list(x) == [1, 0, 3, 6]


def test_the_text_may_be_a_whole_module():
    text = '''
import math
from numba import cuda
HALF = np.float32(1.0 / 2.0)
OFFSETS = (1, 2)
@cuda.jit(device=True)
def half(v):
    return v * HALF
@cuda.jit
def first(x):
    """Halves."""
    x[0] = half(x[0])
def second(x):
    x[cuda.threadIdx.x] = OFFSETS[1]
'''
    x = np.array([4], np.float32)
    step(text, {"x": x}, 1, 1, name="first", inputs=["x"])
    assert x[0] == 2
    step(text.replace("[1]", "[0]"), [x], 1, 1)
    assert x[0] == 1
    with pytest.raises(KernelBug, match="outside-dialect: no function in the text; it has none"):
        step("x = 1", {}, 1, 32)
    with pytest.raises(KernelBug, match=r"this is not Python: expected ':'\n  line 2: def k\(y\)    <- here"):
        step("\ndef k(y)\n    y[0] = 1.0", {}, 1, 32)
    with pytest.raises(KernelBug, match="no function third"):
        step(text, [x], 1, 1, name="third")
    with pytest.raises(ValueError, match="takes"):
        step(text, {"y": x}, 1, 1)


# ---------------------------------------------------------------- counts, worked out by hand


def test_counts_of_a_copy():
    text = "def k(x, y):\n    i = cuda.grid(1)\n    if i < 100:\n        y[i] = x[i]"
    traffic = step(text, [np.zeros(100, np.float32), np.zeros(100, np.float64)], 2, 64)
    assert (traffic.loads, traffic.stores, traffic.bytes_loaded, traffic.bytes_stored) == (100, 100, 400, 800)
    assert traffic.sectors_loaded == 13  # 400 bytes: three warps of four sectors, and 4 lanes in one
    assert traffic.sectors_stored == 25
    assert traffic.touched == {"x": ArrayBytes(400, 0), "y": ArrayBytes(0, 800)}
    assert (traffic.bytes_read, traffic.bytes_written) == (400, 800)
    assert traffic.by_line == {4: LineTraffic(loads=100, stores=100)}
    assert (traffic.thread_loads, traffic.thread_stores, traffic.block_barriers) == (1, 1, 0)


@pytest.mark.parametrize(("stride", "sectors"), [(0, 1), (1, 4), (2, 8), (8, 32), (32, 32)])
def test_sectors_of_a_strided_load(stride, sectors):
    text = f"def k(x):\n    v = x[cuda.laneid * {stride}]"
    assert step(text, [np.zeros(32 * 32, np.float32)], 1, 32).sectors_loaded == sectors


@pytest.mark.parametrize(("stride", "conflicts"), [(0, 0), (1, 0), (2, 1), (3, 0), (4, 3), (32, 31), (33, 0)])
def test_bank_conflicts_of_a_strided_store(stride, conflicts):
    text = f"def k(y):\n    s = cuda.shared.array(1056, np.float32)\n    s[cuda.laneid * {stride}] = np.float32(1)"
    text = text.replace("s[cuda.laneid * 0] =", "if cuda.laneid == 0: s[0] =")
    assert step(text, [np.zeros(1)], 1, 32).bank_conflicts == conflicts


def test_the_nth_visit_of_each_lane_is_one_instruction():
    text = "def k(x):\n    for i in range(4):\n        v = x[i * 32 + cuda.laneid]"
    traffic = step(text, [np.zeros(128, np.float32)], 1, 32)
    assert (traffic.loads, traffic.sectors_loaded, traffic.thread_loads) == (128, 16, 4)


def test_bytes_read_count_a_cell_once_between_grid_barriers():
    text = "def k(x):\n    for i in range(8):\n        v = x[i]\n        v = x[i]"
    again = text + "\n    cuda.cg.this_grid().sync()\n    v = x[0]"
    x = np.zeros(8, np.float32)
    assert (step(text, [x], 2, 32).bytes_loaded, step(text, [x], 2, 32).bytes_read) == (2 * 32 * 16 * 4, 32)
    assert step(again, [x], 2, 32).bytes_read == 32 + 4


def test_barriers_and_shuffles():
    case = CASES["block_softmax"]
    _, _, traffic = launch(case, case.text, 0)
    rows, warps = 5, 2
    assert (traffic.block_barriers, traffic.block_barriers_each) == (4 * rows, 4 * 3)  # block 0 has rows 0, 2, 4
    assert (traffic.shuffles, traffic.warp_barriers, traffic.grid_barriers) == (10 * rows * warps, 0, 0)
    assert (traffic.loads, traffic.stores) == (2 * 100 * rows, 100 * rows)
    assert traffic.shared_stores == (100 + 2 * warps) * rows
    assert traffic.shared_loads == (100 + 2 * 2 * 64) * rows
    assert (traffic.bytes_read, traffic.bytes_written) == (4 * 500, 4 * 500)
    case = CASES["warp_tree_sum"]
    assert launch(case, case.text, 0)[2].warp_barriers == 6 * 2
    case = CASES["grid_sum"]
    assert launch(case, case.text, 0)[2].grid_barriers == 1


def test_an_atomic_operation_is_also_a_load_and_a_store_of_its_cell():
    case = CASES["histogram"]
    _, _, traffic = launch(case, case.text, 0)
    assert (traffic.atomics, traffic.loads, traffic.stores) == (300 + 3 * 8, 300 + 3 * 8, 3 * 8)
    assert traffic.touched["bins"] == ArrayBytes(8 * 4, 8 * 4)


SHARES = """
def shares(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(32, np.float32)
    total = np.float32(0)
    FIRST
    s[thread] = total
    cuda.syncthreads()
    if thread == 31:
        for k in range(32):
            total += s[k]
        y[0] = total
"""


def test_work_and_its_critical_path_are_counted():
    """One loop is of all threads and one of a single thread; a barrier stands between them."""
    x, y = np.ones(64, np.float32), np.zeros(1, np.float32)
    even = step(SHARES.replace("FIRST", "for k in range(thread, 64, 32):\n        total += x[k]"), [x, y], 1, 32)
    alone = step(SHARES.replace("FIRST", "if thread == 0:\n        for k in range(64):\n            total += x[k]"), [x, y], 1, 32)
    body = 1 + 2  # a round: `total += ...` and a subscript
    assert even.thread_work - alone.critical_path == (2 + 32) * body - (64 + 32) * body - 1  # the `if` is an operation
    assert alone.thread_work < alone.critical_path and even.thread_work == even.critical_path
    assert alone.work == even.work + 32


def test_in_lockstep_a_race_is_noted_and_the_numbers_are_right():
    text = SHARES.replace("FIRST", "total = x[thread]").replace("    cuda.syncthreads()\n", "")
    x, y = np.ones(32, np.float32), np.zeros(1, np.float32)
    with pytest.raises(KernelBug, match="race|unwritten-read"):
        step(text, [x, y], 1, 32)
    assert step(text, [x, y], 1, 32, lockstep=True).races == 1 and y[0] == 33


# ---------------------------------------------------------------- the race detector against brute force

BLOCKS, LANES = 2, (0, 1, 32)  # the threads that act: two lanes of one warp, one of the next; in two blocks
THREADS = [(block, thread) for block in range(BLOCKS) for thread in LANES]
accesses = st.tuples(st.sampled_from(["load", "store", "atomic"]), st.sampled_from(THREADS), st.integers(0, 1))
waits = st.one_of(
    st.tuples(st.sampled_from(["block", "grid", "shuffle"])),
    st.tuples(st.just("warp"), st.sampled_from([(0,), (1,), (0, 1)])))


def kernel_of(steps):
    """Straight-line text: everyone passes every line, the named thread acts."""
    lines = ["def k(x):", "    block, thread = cuda.blockIdx.x, cuda.threadIdx.x", "    grid = cuda.cg.this_grid()"]
    for what, *details in steps:
        if what in ("load", "store", "atomic"):
            (block, thread), cell = details
            act = {"load": f"v = x[{cell}]", "store": f"x[{cell}] = 1",
                   "atomic": f"cuda.atomic.add(x, {cell}, 1)"}[what]
            lines.append(f"    if block == {block} and thread == {thread}: {act}")
        elif what == "warp":
            mask = sum(1 << lane for lane in details[0])
            lines.append(f"    if thread in {details[0]}: cuda.syncwarp({mask})")
        else:
            lines.append({"block": "    cuda.syncthreads()", "grid": "    grid.sync()",
                          "shuffle": "    if thread < 32: cuda.shfl_sync(0xffffffff, thread, 0)"}[what])
    return "\n".join(lines)


def has_race(steps):
    """Every pair of accesses, and a search for a path of orderings between them: no epochs, no cleverness.

    Events are (step, thread). A thread's events follow each other; the events of those who meet at one
    step are one event.
    """
    def meeting(number, who):
        what, *details = steps[number]
        block, thread = who
        everyone = {"grid": THREADS, "block": [t for t in THREADS if t[0] == block],
                    "warp": [(block, t) for t in (details[0] if what == "warp" else ()) if thread in details[0]]}
        return everyone.get(what, []) if who in everyone.get(what, []) else [who]

    def reaches(start, who, end, target):
        known = {who}  # threads that are ordered after the access, walking forward
        for number in range(start + 1, end):
            for member in THREADS:
                if known & set(meeting(number, member)):
                    known.add(member)
        return target in known

    acts = [(n, details[0], details[1], what) for n, (what, *details) in enumerate(steps) if len(details) == 2]
    for (n, who, cell, what), (m, other, cell2, what2) in product(acts, acts):
        conflict = n < m and cell == cell2 and who != other and {what, what2} not in ({"load"}, {"atomic"})
        if conflict and not reaches(n, who, m, other):
            return True
    return False


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(accesses, waits), max_size=9), st.integers(0, 3))
def test_races_are_those_of_brute_force(steps, seed):
    """Every seed finds a race, unless atomics order who comes first: then one of a few seeds does."""
    text = kernel_of(steps)
    note(text)

    def is_refused(seed):
        try:
            step(text, [np.zeros(2, np.int32)], BLOCKS, 33, seed, inputs=["x"])
        except KernelBug as bug:
            assert str(bug).startswith("race: "), bug
            return True
        return False

    if has_race(steps):
        seeds = 64 if any(what == "atomic" for what, *_ in steps) else 1
        assert any(is_refused(seed + more) for more in range(seeds))
    else:
        assert not is_refused(seed)


# ---------------------------------------------------------------- device functions against NumPy

EDGES = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.49999997, 1.0, -1.0, 3.0, -7.25, 1e-40, 8388609.0, 1e30,
         -1e30, np.inf, -np.inf, np.nan]
FLOAT_TWINS = {"maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin, "isinf": np.isinf,
               "isfinite": np.isfinite, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
               "rint": np.rint, "mod": np.remainder, "floor_divide": np.floor_divide}
INT_TWINS = {"floor_divide_int": np.floor_divide, "mod_int": np.remainder, "fmod_int": np.fmod, "power_int": np.power,
             "shift_left": np.left_shift, "shift_right": np.right_shift, "sign": np.sign}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FLOAT_TWINS)
def test_float_device_function_is_its_numpy_twin(name, dtype):
    twin, function = FLOAT_TWINS[name], getattr(cuda_math, name)
    with np.errstate(all="ignore"):
        for values in product(map(dtype, EDGES), repeat=twin.nin):
            got, want = function(*values), twin(*values)
            assert type(got) is (bool if name.startswith("is") else dtype), values
            np.testing.assert_array_equal(got, want, str(values))
            if name not in ("maximum", "minimum", "fmax", "fmin"):  # NumPy leaves open which zero these give
                assert np.signbit(got) == np.signbit(want) or np.isnan(want), values


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("name", INT_TWINS)
def test_integer_device_function_is_its_numpy_twin(name, dtype):
    twin, info = INT_TWINS[name], np.iinfo(dtype)
    functions = [(dtype, getattr(cuda_math, name)), (getattr(NUMPY, np.dtype(dtype).name), DEVICE_FUNCTIONS[name])]  # NumPy's, the stepper's
    low, high = int(info.min), int(info.max)
    edges = sorted({max(low, v) for v in (low, -9, -2, -1, 0, 1, 2, 3, 7, 8, 63, 64, 100, high)})
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (scalar, function), values in product(functions, product(edges, repeat=twin.nin)):
            if name == "power_int" and not 0 <= values[1] <= 100:
                continue
            got, want = function(*map(scalar, values)), twin(*map(dtype, values))
            assert int(got) == int(want), (values, scalar)


def test_every_text_of_the_table_of_operations_names_something():
    from minisitch.ops import OPS
    for op in OPS.values():
        for text in op.cuda.values():
            name = text.split("(")[0].removeprefix("math.")
            known = {**cuda_math.DEVICE_FUNCTIONS, **vars(NUMPY), "max": 0, "min": 0, "abs": 0}
            if name.isidentifier() and "{" not in name and not text.startswith("math."):
                assert name in known or name == "not", f"{op.name}: {text}"


@pytest.mark.parametrize("seed, barriers", [(0, "line 8, in a loop also after line 8, where"), (2, "line 8, where")])
def test_a_race_in_a_loop_names_its_lines_from_top_to_bottom(seed, barriers):
    text = ("def turn(x, y):\n    s = cuda.shared.array(8, np.float32)\n    t = cuda.threadIdx.x\n    s[t] = x[t]\n    cuda.syncthreads()\n"
            "    for n in range(3):\n        y[t] = s[(t + 1) % 8]\n        s[t] = x[t]\n")
    with pytest.raises(KernelBug, match="between line 7 and " + barriers):
        step(text, [np.ones(8, np.float32), np.zeros(8, np.float32)], 1, 8, seed=seed)


def test_a_launch_that_cannot_be_made_says_why():
    text, x = "def copy(x, y):\n    y[cuda.threadIdx.x] = x[cuda.threadIdx.x]\n", np.zeros(4, np.float32)
    with pytest.raises(ValueError, match=r"copy takes one array for each of \('x', 'y'\), got 1"):
        step(text, [x], 1, 4)
    with pytest.raises(LaunchError, match=r"the block is \(1, 1, 1, 2\): write an integer, or a tuple of up to three"):
        step(text, [x, x.copy()], 1, (1, 1, 1, 2))
    with pytest.raises(LaunchError, match=r"^a grid of 1 and a block of \(64, 32\) threads: a block has 1 to 1,024 threads"):
        step(text, [x, x.copy()], 1, (64, 32))
    with pytest.raises(LaunchError, match=r"outputs \['z'\] are not all parameters"):
        step(text, [x, x.copy()], 1, 4, outputs=["z"])
