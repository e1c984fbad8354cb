"""What the stepper decides: who may run between two atomics, what never ends, what numbers are, and errors that name a line."""

from textwrap import dedent

import numpy as np
import pytest

from minisitch.errors import KernelBug, MinisitchError
from minisitch.simt import step

SEEDS = range(40)
COUNTER = """
def k(c):
    cuda.atomic.add(c, 0, 1)
"""
COUNTER_APART = """
def k(c):
    v = cuda.atomic.add(c, 0, 0)
    cuda.atomic.exch(c, 0, v + 1)
"""
LOCK = """
def k(c, lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence()
    c[0] = c[0] + 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)
"""
LOCK_SEEN_FREE = LOCK.replace("cuda.atomic.cas(lock, 0, 0, 1) != 0:\n        pass",
                              "cuda.atomic.add(lock, 0, 0) != 0:\n        pass\n    cuda.atomic.exch(lock, 0, 1)")
LOCK_BY_ATOMICS = LOCK_SEEN_FREE.replace("c[0] = c[0] + 1", "v = cuda.atomic.add(c, 0, 0)\n    cuda.atomic.exch(c, 0, v + 1)")
TURNS = """
def k(c, serving, tickets):
    mine = cuda.atomic.add(tickets, 0, 1)
    while cuda.atomic.add(serving, 0, 0) != mine:
        pass
    cuda.threadfence()
    c[0] = c[0] + 1
    cuda.threadfence()
    cuda.atomic.add(serving, 0, 1)
"""
LAST_BLOCK = """
def k(c, ticket, parts):
    parts[cuda.blockIdx.x] = 1
    cuda.threadfence()
    if cuda.atomic.add(ticket, 0, 1) == cuda.gridDim.x - 1:
        cuda.threadfence()
        total = 0
        for i in range(cuda.gridDim.x):
            total += parts[i]
        cuda.atomic.add(c, 0, total)
"""
LAST_BLOCK_READ_APART = LAST_BLOCK.replace("    if cuda.atomic.add(ticket, 0, 1) == cuda.gridDim.x - 1:",
                                           "    cuda.atomic.add(ticket, 0, 1)\n    if cuda.atomic.add(ticket, 0, 0) == cuda.gridDim.x:")
LOCK_OF_A_BLOCK = """
def k(c, lock):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
    cuda.syncthreads()
    c[cuda.threadIdx.x] = c[cuda.threadIdx.x] + 1
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
"""
ALL_MEET = """
def k(c, came, parts):
    parts[cuda.blockIdx.x] = 1
    cuda.threadfence()
    cuda.atomic.add(came, 0, 1)
    while cuda.atomic.add(came, 0, 0) < cuda.gridDim.x:
        pass
    cuda.threadfence()
    cuda.atomic.add(c, 0, parts[(cuda.blockIdx.x + 1) % cuda.gridDim.x])
"""
TAKE_THE_NEXT = """
def k(c, head, parts):
    task = cuda.atomic.add(head, 0, 1)
    while task < 8:
        parts[task] = 1
        cuda.atomic.add(c, 0, 1)
        task = cuda.atomic.add(head, 0, 1)
"""
LARGEST = """
def k(c):
    if cuda.atomic.add(c, 0, 0) < cuda.blockIdx.x:
        cuda.atomic.exch(c, 0, cuda.blockIdx.x)
"""
FLAGS = """
def k(c, mine):
    me = cuda.blockIdx.x
    cuda.atomic.exch(mine, me, 1)
    if cuda.atomic.add(mine, 1 - me, 0) == 0:
        cuda.atomic.add(c, 0, 1)
"""
LAST_BLOCK_SETS_BACK = LAST_BLOCK + "        ticket[0] = 0\n"
RIGHT = {"the last block sets its ticket back": (LAST_BLOCK_SETS_BACK, 4), "counter": (COUNTER, 4), "lock": (LOCK, 4), "turns": (TURNS, 4), "last block": (LAST_BLOCK, 4),
         "all blocks meet": (ALL_MEET, 4), "tasks": (TAKE_THE_NEXT, 8), "largest": (LARGEST.replace("exch", "max"), 3)}
WRONG = {"each block sets the ticket back": (COUNTER.replace("c, 0", "c, 1") + "    c[1] = 0\n    cuda.atomic.add(c, 0, 1)\n", 4),
         "a lock set back without an atomic": (LOCK.replace("cuda.atomic.exch(lock, 0, 0)", "lock[0] = 0"), 4),
         "a fence of the block between blocks": (LOCK.replace("threadfence", "threadfence_block"), 4),
         "counter by add(0) and exch": (COUNTER_APART, 4), "a lock that is seen free": (LOCK_SEEN_FREE, 4),
         "the same, counting by atomics": (LOCK_BY_ATOMICS, 4), "the ticket read apart": (LAST_BLOCK_READ_APART, 4),
         "nobody waits for the last": (ALL_MEET.replace("< cuda.gridDim.x", "< cuda.gridDim.x - 1"), 4),
         "a task taken twice": (TAKE_THE_NEXT.replace(
             "        task = cuda.atomic.add(head, 0, 1)", "        task = cuda.atomic.add(head, 0, 0)\n        cuda.atomic.exch(head, 0, task + 1)"), 8),
         "largest": (LARGEST, 3)}


def names_of(source):
    """The parameters of ``k``."""
    return source.partition("def k(")[2].partition(")")[0].split(", ")


def outcomes(source, grid, block=1, seeds=SEEDS):
    """What ``c[0]`` is under each seed, or the rule that refuses the kernel."""
    found = set()
    names = names_of(source)
    for seed in seeds:
        arrays = {name: np.zeros(8, np.int32) for name in names}
        try:
            step(source, arrays, grid, block, seed, inputs=[n for n in names if n != "parts"])
            found.add(int(arrays["c"][0]))
        except KernelBug as bug:
            found.add(bug.rule)
    return found


@pytest.mark.parametrize("name", RIGHT)
def test_right_under_every_seed(name):
    source, right = RIGHT[name]
    assert outcomes(source, 4) == {right}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_under_some_seed(name):
    source, right = WRONG[name]
    assert outcomes(source, 4) - {right}


def test_a_lock_that_one_thread_takes_for_its_block():
    assert outcomes(LOCK_OF_A_BLOCK, 4, 8, range(20)) == {4}
    without = LOCK_OF_A_BLOCK.replace("        cuda.threadfence()\n        cuda.atomic.exch", "        cuda.atomic.exch")
    assert "race" in outcomes(without, 4, 8, range(5))


@pytest.mark.parametrize(("source", "right"), [(COUNTER, True), (COUNTER_APART, False), (LOCK, True), (LOCK_SEEN_FREE, False)])
def test_threads_of_one_warp_too(source, right):
    found = outcomes(source, 1, 8, range(10))
    assert found == {8} if right else found - {8}


LOCK_IN_SHARED_MEMORY = """
def k(c):
    lock = cuda.shared.array(2, np.int32)
    if cuda.threadIdx.x < 2:
        lock[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence_block()
    lock[1] += 1
    cuda.threadfence_block()
    cuda.atomic.exch(lock, 0, 0)
    cuda.syncthreads()
    cuda.atomic.max(c, 0, lock[1])
"""


def test_fences_of_a_block_order_what_atomics_in_shared_memory_tell():
    assert outcomes(LOCK_IN_SHARED_MEMORY, 2, 8, range(10)) == {8}
    for left_out in ("    cuda.threadfence_block()\n    lock", "    cuda.threadfence_block()\n    cuda"):
        assert left_out in LOCK_IN_SHARED_MEMORY
        assert outcomes(LOCK_IN_SHARED_MEMORY.replace(left_out, "    " + left_out.split()[-1]), 2, 8, range(5)) == {"race"}


HAND_OVER = """
def k(flag, parts, c):
    if cuda.grid(1) == 0:
        parts[0] = 7
        cuda.threadfence_block()
        cuda.atomic.exch(flag, 0, 1)
    if cuda.grid(1) == 1:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        cuda.threadfence_block()
        c[0] = parts[0]
"""


def test_a_fence_of_a_block_hands_over_through_a_global_flag_within_the_block_alone():
    """CUDA's memory model: two fences are in order if the scope of each includes the other's thread."""
    assert outcomes(HAND_OVER, 1, 2) == {7}
    with pytest.raises(KernelBug, match=r"threadfence_block\(\) orders memory for the threads of one block: write cuda.threadfence\(\)"):
        step(HAND_OVER, {name: np.zeros(8, np.int32) for name in ("flag", "parts", "c")}, 2, 1, inputs=["flag"])
    for one, other in (("threadfence_block", "threadfence"), ("threadfence", "threadfence_block")):
        first, second = HAND_OVER.split("if cuda.grid(1) == 1")
        mixed = "if cuda.grid(1) == 1".join([first.replace("threadfence_block", one), second.replace("threadfence_block", other)])
        assert outcomes(mixed, 1, 2) == {7} and outcomes(mixed, 2) == {"race"}
    assert outcomes(HAND_OVER.replace("threadfence_block", "threadfence"), 2) == {7}


@pytest.mark.parametrize(("release", "acquire"), [("add_release(flag, 0, 1)", "load_acquire(flag, 0)"),
                                                  ("cuda.threadfence_block(); cuda.atomic.exch(flag, 0, 1)", "load_acquire(flag, 0)"),
                                                  ("add_release(flag, 0, 1)", "cuda.atomic.add(flag, 0, 0)")])
def test_fences_of_a_block_meet_release_and_acquire(release, acquire):
    source = f"""
def k(flag, parts, c):
    if cuda.grid(1) == 0:
        parts[0] = 7
        {release}
    if cuda.grid(1) == 1:
        while {acquire} == 0:
            pass
        cuda.threadfence_block()
        c[0] = parts[0]
"""
    assert outcomes(source, 1, 2) == {7}
    assert outcomes(source, 2) == ({7} if "add_release" in release and "load_acquire" in acquire else {"race"})


def test_two_that_raise_flags_may_both_see_the_other():
    assert outcomes(FLAGS, 2) == {0, 1}


# ---------------------------------------------------------------- what never ends, and what only takes long


def refused(source, grid=1, block=1, **options):
    with pytest.raises(KernelBug) as caught:
        step(source, {name: np.zeros(8, np.int32) for name in names_of(source)}, grid, block, inputs=names_of(source), **options)
    return caught.value


def test_a_loop_in_registers_is_no_deadlock():
    source = """
def k(y):
    i, v = 0, 1
    while i < 10000:
        v = (v * 7 + 3) % 1001
        i += 1
    y[cuda.grid(1)] = v
"""
    want, y = 1, np.zeros(4, np.int32)
    for _ in range(10_000):
        want = (want * 7 + 3) % 1001
    step(source, [y], 2, 2)
    assert (y == want).all()


@pytest.mark.parametrize(("loop", "threads"), [("for i in range(10000):\n        v = i", 256),
                                               ("while v < 10000:\n        v += 1", 60)])
def test_work_is_not_taken_for_a_loop_without_end(loop, threads):
    """10,000 rounds of each thread, under the limits that a launch has by itself."""
    y = np.zeros(threads, np.int32)
    step(f"def k(y):\n    v = 0\n    {loop}\n    y[cuda.grid(1)] = v", [y], 1, threads)
    assert len({*y.tolist()}) == 1


def test_the_rounds_of_a_block_that_has_ended_do_not_count():
    step("def k(y):\n    for i in range(900):\n        y[cuda.grid(1)] = i", [np.zeros(100, np.int32)], 100, 1, rounds=1000)


def test_a_store_that_changes_nothing_keeps_no_loop_going():
    bug = refused("def k(y):\n    i = 0\n    while i < 8:\n        y[i] = 3\n        i = i % 4")
    assert (bug.rule, bug.line) == ("deadlock", 3)


def test_who_counts_while_waiting_is_waited_for():
    source = """
def k(flag, c):
    if cuda.blockIdx.x == 0:
        i = 0
        while i < 3000:
            i += 1
        cuda.atomic.exch(flag, 0, 1)
    else:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        cuda.atomic.add(c, 0, 1)
"""
    assert outcomes(source, 3, seeds=range(3)) == {2}


@pytest.mark.parametrize(("body", "rule"), [
    ("while True:\n        y[0] = 1", "endless"), ("for i in range(10**12):\n        y[0] = 1", "endless"),
    ("i = 0\n    while True:\n        i += 1", "endless"), ("v = forever(3)", "endless"),
    ("while True:\n        cuda.syncthreads()", "endless"), ("while cuda.atomic.add(y, 0, 0) == 0:\n        pass", "deadlock"),
    ("i = 0\n    while cuda.atomic.add(y, 0, 0) == 0:\n        i = (i + 1) % 100", "deadlock"),
    ("while True:\n        pass", "endless"), ("while y.size > 0:\n        y[0] += 1", "endless"), ("while cuda.atomic.cas(y, 0, 1, 2) != 1:\n        cuda.atomic.exch(y, 1, 0)", "deadlock"),
])
def test_what_never_ends_is_refused_with_its_line(body, rule):
    bug = refused(f"def forever(v):\n    while True:\n        v += 1\ndef k(y):\n    {body}", rounds=20_000)
    line = 2 if "forever" in body else 5 + body.startswith("i = 0")
    assert (bug.rule, bug.line, bug.thread) == (rule, line, "block 0 thread 0")


def test_a_barrier_that_a_spinning_thread_never_reaches_is_a_deadlock():
    bug = refused("def k(y):\n    if cuda.threadIdx.x == 0:\n        while cuda.atomic.add(y, 0, 0) == 0:\n            pass\n"
                  "    cuda.syncthreads()\n    cuda.atomic.exch(y, 0, 1)", block=4)
    assert bug.rule == "deadlock" and "line 5" in str(bug) and "line 3" in str(bug)


# ---------------------------------------------------------------- numbers


def computed(body, x, result, setup=""):
    """The value of ``y[0]`` after ``body``."""
    y = np.zeros(1, result)
    step(f"{setup}\ndef k(x, y):\n    {body}", [np.atleast_1d(x), y], 1, 1)
    return y[0]


@pytest.mark.parametrize(("body", "x", "result", "want"), [
    ("h = 1\n    for i in range(40):\n        h = h * 33 + x[0]\n    y[0] = h % 1000", np.int32(7), np.int64, None),
    ("y[0] = (x[0] + 1) > x[0]", np.int64(2**63 - 1), np.int64, 0),
    ("v = x[0] * 4611686018427387904\n    y[0] = v * 4 // 4", np.int32(1), np.int64, 0),
    ("v = 1\n    v <<= 63\n    y[0] = v < x[0]", np.int32(0), np.int64, 1),
    ("y[0] = 2 ** 63 - 1 - x[0] * 2 < 0", np.int32(-1), np.int64, 1),
    ("v = x[0] * 4611686018427387904 * 2\n    y[0] = (-v == v) + (v // -1 == v)", np.int32(1), np.int64, 2),
    ("y[0] = x[0] + x[0]", np.bool_(True), np.int64, 2),
    ("y[0] = (x[0] > np.float32(0)) + (x[0] < np.float32(9))", np.float32(1), np.int64, 2),
    ("y[0] = math.isnan(x[0]) + math.isnan(x[0])", np.float32("nan"), np.int64, 2),
    ("y[0] = np.bool_(x[0]) * 3 - np.bool_(x[0])", np.int32(5), np.int64, 2),
    ("y[0] = (x[0] - np.uint32(1)) // np.uint64(2**32)", np.uint32(0), np.int64, 2**32 - 1),
    ("y[0] = x[0] - 1", np.uint8(0), np.int64, -1),
    ("y[0] = np.uint8(x[0] + x[0])", np.uint8(200), np.int64, 144),
    ("y[0] = np.int16(x[0] * x[0])", np.int16(300), np.int64, 300 * 300 - 2**16),
])
def test_integers_have_their_width(body, x, result, want):
    if want is None:
        with np.errstate(over="ignore"):
            h = np.int64(1)
            for _ in range(40):
                h = h * np.int64(33) + np.int64(x)
            want = h % 1000
    assert computed(body, x, result) == want


@pytest.mark.parametrize(("body", "x", "want"), [
    ("y[0] = x[0] >> np.int32(3)", np.uint64(2**63), 2**60), ("y[0] = x[0] << np.int64(3)", np.uint64(5), 40),
    ("y[0] = x[0] & 0xffffffffffffffff", np.int64(-1), -1), ("y[0] = x[0] ^ np.uint64(6)", np.int64(5), 3),
    ("v = np.int32(3)\n    y[0] = (v << x[0]) | x[0]", np.int64(4), 52), ("y[0] = x[0] // -2 + x[0] % 3", np.int64(7), -3),
    ("v = x[0]\n    v >>= np.int16(1)\n    v &= np.uint8(7)\n    y[0] = v", np.uint64(2**64 - 1), 7),
])
def test_64_bit_integers_of_two_types_share_their_bits(body, x, want):
    assert computed(body, x, np.int64) == want


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("operator", ["//", "%"])
def test_an_integer_divided_by_zero_is_refused_in_every_width(dtype, operator):
    with pytest.raises(KernelBug, match="exception: an integer is divided by zero") as caught:
        computed(f"y[0] = x[0] {operator} (x[0] - x[0])", dtype(3), np.int64)
    assert (caught.value.line, caught.value.thread) == (3, "block 0 thread 0")


@pytest.mark.parametrize(("value", "want"), [
    ("gamma(x[0])", np.inf), ("gamma(x[0] - 1)", np.nan), ("gamma(x[0] + 500)", np.inf), ("lgamma(x[0])", np.inf),
    ("lgamma(x[0] - 1)", np.inf), ("pow(2, -1)", 0.5), ("pow(10, 30)", 1e30), ("pow(x[0], -1)", np.inf)])
def test_functions_of_math_have_infinities_as_in_c(value, want):
    np.testing.assert_equal(computed(f"y[0] = math.{value}", np.float64(0), np.float64), want)


def test_a_number_that_the_launch_gives_has_numbas_type():
    for given, body, want in ((np.int32(2**31 - 1), "n + 1", 2**31), (np.uint8(200), "n + n", 400), (np.bool_(True), "n + n", 2),
                              (1 / 3, "np.float32(3) * n", np.float32(3) * np.float64(1 / 3)), (2**64 + 5, "n", 5)):
        y = np.zeros(1, np.float64)
        step(f"def k(n, y):\n    y[0] = {body}", [given, y], 1, 1)
        assert y[0] == want


def test_a_float64_kernel_may_hold_bare_literals():
    assert computed("y[0] = x[0] * 0.1 + math.pi", np.float64(3), np.float64) == 3 * .1 + np.pi
    assert computed("y[0] = x[0] * 0.1", np.float32(3), np.float64) == np.float64(np.float32(3)) * .1  # as Numba: in float64
    assert computed("v = x[0] / 3\n    y[0] = np.float32(1) * v", np.int64(1), np.float64) == 1 / 3
    with pytest.raises(KernelBug, match=r"float64-literal: 0\.1 makes Numba compute in float64") as caught:
        computed("y[0] = x[0] * 0.1", np.float32(3), np.float32)
    assert caught.value.line == 3


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("body", [
    "y[0]: np.float32 = x[0]", "v = x[0]; del v", "del x[0]", "v = [cuda.shfl_sync(-1, x[0], k) for k in range(3)]",
    "y[0] = sum(cuda.shfl_sync(-1, x[0], k) for k in range(3))", "f = lambda k: cuda.atomic.add(y, 0, k)",
    "y[0] = " + "(" * 300 + "x[0]" + ")" * 300, "y[0] = " + "x[0] + " * 5000 + "x[0]", "y[0] = " + "-" * 5000 + "x[0]",
    "for y[0] in range(3): pass", "v = yield 5", "raise SystemExit(0)", "cuda.atomic.add()", "load_wide(x, 0)", "v = cuda.shfl_sync()",
    "v = cuda.shfl_sync('a', 1, 0)", "v = cuda.shfl_sync(-1, 1, 'a')", "y[0] = 1 << -1", "y[0] = '\0'", "y[0] = '\ud800'",
    "try: y[99] = x[0]\n    except: pass", "break", "y[0] = x[0] @ x[0]",
], ids=lambda body: body[:20].encode("ascii", "replace").decode())
def test_every_error_is_a_kernel_bug_with_a_line(body):
    arrays = [np.ones(4, np.float32), np.zeros(4, np.float32)]
    with pytest.raises(KernelBug) as caught:
        step(f"def k(x, y):\n    {body}\n", arrays, 1, 1, inputs=["x"])
    assert caught.value.line in (1, 2) and caught.value.rule in ("outside-dialect", "exception", "lane-mask")
    assert f"line {caught.value.line}: " in str(caught.value)


@pytest.mark.parametrize(("text", "line", "said"), [
    ("def k(x, y):\n    v = 1\n    np = 3", 3, "np is a name of the stepper's"),
    ("def k(x, y):\n    for _i in range(3):\n        pass", 2, "_i is a name of the stepper's"),
    ("def k(x, y):\n    w[0] = 1", 2, "w has no value"), ("def k(x, y):\n    y[0] = w[0]", 2, "w has no value"),
    ("def k(x, y):\n\x0c    y[0] = 1\n    y[9] = 1", 3, "outside shape"),
    ("def k(x, y):\n    y[0] = 1  # \u2028 \x0b \x85\r\n    y[9] = 1", 3, "outside shape"),
    ("def f(v):\n    return\ndef k(x, y):\n    y[0] = f(1)", 2, "f returns nothing here: write return v"),
    ("def f(v):\n    if v > 1:\n        return 1\ndef k(x, y):\n    y[0] = f(1)", 1, "ends without a result"),
    ("def k(x, y):\n    y[0] = x.shape[1]", 2, "the index is outside"), ("def k(x, y):\n    a, b = x.shape", 2, "not as many names"),
    ("def k(x, y):\n    y[0] = x.shape[x[0]]", 2, "an index must be an integer"), ("def k(x, y):\n    y[0] = x[0] & 1", 2, "a float has no bits"),
    ("def k(x, y):\n    y[0] = np.uint64(5) + -1", 2, "a negative integer and a np.uint64"),
    ("def k(x, y):\n    y[0] = 1 << 70", 2, "a shift by 70 bits"),
])
def test_a_students_mistake_has_its_own_line_and_no_python_error(text, line, said):
    with pytest.raises(KernelBug) as caught:
        step(text, [np.ones(4, np.float32), np.zeros(4, np.float32)], 1, 1, inputs=["x"])
    message = str(caught.value)
    assert caught.value.line == line and said in message and "Error" not in message
    assert f"line {line}: {text.replace(chr(13), '').split(chr(10))[line - 1].strip()}" in message


def test_module_constants_that_fail_are_named():
    with pytest.raises(KernelBug, match="exception: ZeroDivisionError") as caught:
        step("ONE = 1\nX = ONE // 0\ndef k(y):\n    pass", [np.zeros(1)], 1, 1)
    assert caught.value.line == 2


def test_a_bug_says_rule_line_and_thread():
    source = dedent("""\
        def k(y):
            i = cuda.threadIdx.x
            y[i] = i
            y[0] = i
        """)
    with pytest.raises(KernelBug) as caught:
        step(source, [np.zeros(33, np.int32)], 1, 33)
    bug = caught.value
    assert (bug.rule, bug.line) == ("race", 4) and bug.thread.startswith("block 0 thread ")
    assert str(bug).startswith("race: ") and f"<- {bug.thread}" in str(bug)


@pytest.mark.parametrize(("options", "said"), [
    ({"seed": [1]}, r"seed is \[1\]: write an integer"), ({"seed": None}, "seed is None"), ({"inputs": 3.5}, "inputs .* are not all parameters"),
    ({"outputs": [[1]]}, "outputs .* are not all parameters"), ({"outputs": [np.ones(2)]}, "outputs .* are not all parameters"),
    ({"grid": 10**12}, "at most 1,000,000 here"), ({"grid": (2000, 2000)}, "at most 1,000,000 here")])
def test_options_of_a_launch_that_are_something_else(options, said):
    with pytest.raises(MinisitchError, match=said):
        step(**{"kernel": "def k(x):\n    x[0] = 1\n", "arrays": [np.zeros(1)], "grid": 1, "block": 1} | options)


def test_a_seed_may_be_a_numpy_integer():
    assert step("def k(x):\n    x[0] = 1\n", [np.zeros(1)], 1, 1, np.int64(3)).stores == 1


@pytest.mark.parametrize("arguments, said", [
    ((None, []), "a kernel as text or as a function, and got NoneType"),
    ((print, []), "has no source text to read"),
    (("def k(x):\n    x[0] = 1\n", None), "arguments as a list, or a dict by parameter name, and got NoneType"),
    (("def k(x):\n    x[0] = 1\n", np.zeros(1)), "arguments as a list, or a dict by parameter name, and got ndarray"),
    (("def k(x):\n    x[0] = 1\n", [[1, 2]]), "argument 0 is a list, no NumPy array"),
    (("def k(x):\n    x[0] = 1\n", {"x": None}), "argument 'x' is a NoneType")])
def test_a_launch_of_something_else_says_what_is_expected(arguments, said):
    with pytest.raises(MinisitchError, match=said):
        step(*arguments, 1, 1)
