"""Ring queues between blocks that run side by side: the protocol, its mutants, and pipelines made of it."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from queue_kernels import MUTANTS, PIPELINES, SOFTMAX_TILES, mlp, softmax_arrays, softmax_text

from minisitch.errors import KernelBug
from minisitch.simt import ArrayBytes, step

SEEDS = range(20)


def launch(case, seed, text="", arrays=None):
    """Step a pipeline under one seed, and compare; its traffic."""
    arrays = case.make(np.random.default_rng(seed)) if arrays is None else arrays
    want = case.want({name: array.copy() for name, array in arrays.items()})
    traffic = step(text or case.text, arrays, case.grid, case.block, seed, inputs=case.inputs, queues=case.queues, wave=case.grid)
    for key, value in want.items():
        np.testing.assert_allclose(arrays[key], value, rtol=2e-5, atol=1e-6, err_msg=f"{key}, seed {seed}")
    return traffic


def refusal(case, seed, text, arrays=None):
    with pytest.raises(KernelBug) as caught:
        launch(case, seed, text, arrays)
    return str(caught.value)


@pytest.mark.paper(58)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_agrees_with_numpy_under_every_seed(name):
    for seed in SEEDS:
        launch(PIPELINES[name], seed)


@pytest.mark.paper(58)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.pipeline}: {m.name}")
def test_a_mutant_is_refused(mutant):
    case, refused = PIPELINES[mutant.pipeline], 0
    text = case.text
    for old, new in mutant.changes:
        assert text.count(old) == 1, f"a mutant changes one place: {old}"
        text = text.replace(old, new)
    seeds = SEEDS[:5] if mutant.always else SEEDS
    for seed in seeds:
        try:
            launch(case, seed, text)
        except KernelBug as bug:
            assert str(bug).split(":")[0] in mutant.rules, f"seed {seed}: {bug}"
            refused += 1
    assert refused == len(seeds) if mutant.always else refused


# ---------------------------------------------------------------- depth: row 69b
@pytest.mark.paper(58)
def test_reconverging_paths_need_a_queue_as_deep_as_their_lag():
    """exp's tiles wait for the total of all of them: one entry less than there are tiles, and nobody moves."""
    case = PIPELINES["softmax"]
    for depth in range(1, SOFTMAX_TILES):
        said = refusal(case, depth, softmax_text(depth), softmax_arrays(depth)(np.random.default_rng(0)))
        assert said.startswith("deadlock: ")
    for depth in (SOFTMAX_TILES, SOFTMAX_TILES + 1):
        launch(case, depth, softmax_text(depth), softmax_arrays(depth)(np.random.default_rng(0)))


def test_a_deadlock_names_block_queue_and_tile():
    said = refusal(PIPELINES["softmax"], 0, softmax_text(2), softmax_arrays(2)(np.random.default_rng(0)))
    waits = [line.split("while ")[1] for line in said.splitlines() if "while load_acquire" in line]
    assert waits == [
        "load_acquire(counters, READ_DIVIDE + tile % DEPTH * 32) < tile // DEPTH:    <- while: block 0 thread 0, tile = 2",
        "load_acquire(counters, READ_DIVIDE + tile % DEPTH * 32) < tile // DEPTH:    <- while: block 1 thread 0, tile = 3",
        "load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:    <- while: block 2 thread 0, tile = 2",
        "load_acquire(counters, TOTAL_WRITTEN) < 1:    <- while: block 4 thread 0 and 1 more"]


def test_the_stages_must_be_resident_together():
    case = PIPELINES["handoff"]
    with pytest.raises(KernelBug, match="one-wave"):
        step(case.text, case.make(np.random.default_rng(0)), case.grid, case.block, wave=case.grid - 1)


# ---------------------------------------------------------------- what travels where
@pytest.mark.paper(64)
def test_multicast_writes_a_tile_once_for_all_its_readers():
    traffic = launch(PIPELINES["multicast"], 0)
    queue, elements = traffic.queues["queue"], 7 * 32
    assert queue.written == elements * 4
    assert queue.read == sum(k + 1 for k in range(32)) * 7 * 4 + elements * 4  # stage a's running sums, and stage b


def test_a_queue_is_no_traffic_to_memory():
    case = PIPELINES["handoff"]
    traffic = launch(case, 0)
    assert traffic.touched == {"x": ArrayBytes(9 * 32 * 4, 0), "y": ArrayBytes(0, 9 * 32 * 4)}
    assert traffic.queues["queue"] == ArrayBytes(9 * 32 * 4, 9 * 32 * 4)
    assert traffic.queues["counters"].written == (128 + 2 * 9) * 4 and "queue  " in str(traffic) and "in L2" in str(traffic)
    everything = step(case.text, case.make(np.random.default_rng(0)), case.grid, case.block, inputs=case.inputs)
    assert everything.touched["queue"] == ArrayBytes(0, 64 * 4) and not everything.queues
    with pytest.raises(ValueError, match="queues"):
        step(case.text, case.make(np.random.default_rng(0)), case.grid, case.block, queues=["ring"])


def check_mlp(case, hidden, tiles, seeds):
    """Every interleaving is right, and the hidden layer, twice as it stands around the activation, never reaches memory."""
    for seed in seeds:
        traffic = launch(case, seed)
        assert traffic.bytes_read == 4 * (tiles * 2 + hidden * 2 + hidden * 2) and traffic.bytes_written == 4 * tiles * 2
        assert traffic.queues["h"] == ArrayBytes(4 * tiles * hidden, 4 * tiles * hidden)
        assert traffic.queues["r"].written == 4 * tiles * hidden


def test_interleavings_of_the_mlp():
    check_mlp(mlp(hidden=8, tiles=5), 8, 5, range(60))


@pytest.mark.slow
def test_a_thousand_interleavings_of_the_mlp_with_1024_hidden():
    check_mlp(mlp(hidden=1024, tiles=4), 1024, 4, range(1000))


# ---------------------------------------------------------------- releases and acquires against brute force
THREADS = [(0, 0), (0, 1), (1, 0), (1, 32), (2, 0), (2, 1)]  # (block, thread)


def relay(seed):
    """An access in block 0, one or two hops to another, an access there; steps are left out, or in the wrong thread."""
    draw = Random(seed)

    def someone(block):
        return draw.choice([t for t in THREADS if t[0] == block])

    def hop(here, there):
        giver, taker = someone(here), someone(there)
        parts = [(("block",), 5), (("fence", giver), 6), ((draw.choice(["release", "post"]), giver), 9), (("grid",), 1),
                 ((draw.choice(["acquire", "look"]), taker, draw.choice([0, 0, 1])), 9), (("fence", taker), 6),
                 (("block",), 5), (("fence", someone(there)), 1)]
        return [part for part, often in parts if draw.random() * 10 < often]

    last = draw.randrange(3)
    between = hop(0, last) if draw.random() < 0.6 else hop(0, 1) + hop(1, last)
    first, then = ((draw.choice(["load", "store", "store"]), someone(block), 0) for block in (0, last))
    return given_flags([first, *between, then])


def given_flags(steps):
    """Each release and post has a flag of its own, its step's number; who waits, waits for one that stands before."""
    found = []
    for number, (what, *details) in enumerate(steps):
        raised = [k for k in range(number) if steps[k][0] in ("release", "post")][::-1]
        if what in ("acquire", "look") and not raised:
            continue
        flag = raised[details[1] % len(raised)] if what in ("acquire", "look") else number
        found.append((what, details[0] if details else None, details[1] if what in ("load", "store") else flag))
    return found


def kernel_of(steps):
    acts = {"load": "v = x[{}]", "store": "x[{}] = 1", "release": "add_release(flags, {}, 1)", "post": "cuda.atomic.add(flags, {}, 1)",
            "acquire": "\n        while load_acquire(flags, {}) == 0: pass", "fence": "cuda.threadfence()",
            "look": "\n        while cuda.atomic.add(flags, {}, 0) == 0: pass"}
    lines = ["def k(x, flags):", "    block, thread = cuda.blockIdx.x, cuda.threadIdx.x", "    grid = cuda.cg.this_grid()"]
    for what, who, where in steps:
        if who is None:
            lines.append({"block": "    cuda.syncthreads()", "grid": "    grid.sync()"}[what])
        else:
            lines.append(f"    if block == {who[0]} and thread == {who[1]}: " + acts[what].format(where))
    return "\n".join(lines)


def has_race(steps):
    """From each access, walk forward and note who comes to know of it: by program order, barriers, flags."""
    for n, (what, who, cell) in enumerate(steps):
        if what not in ("load", "store"):
            continue
        known, fenced, pending, flags = {who}, set(), set(), set()
        for what2, who2, where in steps[n + 1:]:
            if what2 in ("load", "store"):
                if where == cell and who2 not in known and "store" in (what, what2):
                    return True
            elif what2 == "grid":
                known = set(THREADS)
            elif what2 == "block":
                known |= {t for t in THREADS if any(t[0] == k[0] for k in known)}
            elif what2 == "fence":
                known |= {who2} & pending
                fenced |= {who2} & known
            elif who2 in {"release": known, "post": fenced}.get(what2, ()):
                flags.add(where)
            elif where in flags:
                {"acquire": known, "look": pending}.get(what2, set()).add(who2)
    return False


@pytest.mark.paper(58)
@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_races_between_blocks_are_those_of_brute_force(seed):
    steps = relay(seed)
    text = kernel_of(steps)
    note(text)
    try:
        step(text, [np.zeros(1, np.int32), np.zeros(16, np.int32)], 3, 33, seed, inputs=["x", "flags"])
        found = False
    except KernelBug as bug:
        assert str(bug).startswith("race: "), bug
        found = True
    assert found == has_race(steps)


@pytest.mark.parametrize(("steps", "races"), [
    ([("store", (0, 0), 0), ("release", (0, 0), 1), ("store", (0, 0), 0), ("acquire", (2, 0), 1), ("store", (2, 0), 0)], True),
    ([("store", (0, 0), 0), ("release", (0, 0), 1), ("acquire", (1, 0), 1), ("release", (1, 0), 3), ("acquire", (2, 0), 3),
      ("store", (2, 0), 0)], False),
    ([("store", (0, 1), 0), ("fence", (0, 1), 1), ("block", None, 2), ("post", (0, 0), 3), ("acquire", (2, 0), 3),
      ("store", (2, 0), 0)], True),
], ids=["after the release", "by way of a third block", "a fence in another thread than the count"])
def test_what_a_release_covers(steps, races):
    assert has_race(steps) == races
    if races:
        with pytest.raises(KernelBug, match="race"):
            step(kernel_of(steps), [np.zeros(1, np.int32), np.zeros(16, np.int32)], 3, 33, inputs=["x", "flags"])
    else:
        step(kernel_of(steps), [np.zeros(1, np.int32), np.zeros(16, np.int32)], 3, 33, inputs=["x", "flags"])


def test_blocks_share_no_shared_memory():
    text = "def k(x):\n    c = cuda.shared.array(1, np.int32)\n    c[0] = 0\n    add_release(c, 0, 1)"
    with pytest.raises(KernelBug, match="outside-dialect: add_release orders blocks"):
        step(text, [np.zeros(1, np.int32)], 1, 1)
