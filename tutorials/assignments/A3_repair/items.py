"""Items of A3. None of them holds the answer: each says what must be true of the launches of a kernel."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minisitch import KernelBug
from minisitch.course import KernelLaunch, KernelRun, item, prediction
from minisitch.course.assignment import in_variant
from minisitch.course.kernels import plain_text
from minisitch.simt import step

NAMES = ("turns", "tree_sum", "warp_sum", "histogram", "scan", "grid_sum")
RETURNS = dict.fromkeys(NAMES, KernelRun)
GIVEN = Path(__file__).with_name("given.py").read_text(encoding="utf-8")
MOST_LINES = 3


@dataclass(frozen=True)
class Cost:
    """What a repaired kernel may need: barriers of a block, of a warp, of the grid; accesses of one thread."""

    block_barriers: int
    warp_barriers: int
    grid_barriers: int
    loads: int
    shared_loads: int


def integers(at, count, low=-8, high=8):
    return np.array([at.random.randint(low, high) for _ in range(count)], np.float32)


def case(name, at):
    """A launch of one kernel, and the cost that it may have. Sums of small whole numbers are exact in any order."""
    blocks = at.random.randint(1, 4) if at.hidden else at.random.randint(2, 3)
    seed, given = at.random.randrange(1000), in_variant(GIVEN, at.variant)
    block, inputs, cost = 64, ("x",), Cost(3, 0, 0, 1, 2)
    x = integers(at, 64 * blocks)
    rest = {"y": np.zeros_like(x)}
    if name == "tree_sum":
        x, block, cost = integers(at, 128 * blocks), 128, Cost(8, 0, 0, 1, 15)
        rest = {"y": np.zeros(blocks, np.float32)}
    elif name == "warp_sum":
        rest, cost = {"y": np.zeros(2 * blocks, np.float32)}, Cost(0, 6, 0, 1, 11)
    elif name == "histogram":
        x, inputs = integers(at, at.random.randint(90, 150), 0, 7).astype(np.int32), ("x", "bins")
        rest, cost = {"bins": np.zeros(8, np.int32)}, Cost(2, 0, 0, -(-x.size // (64 * blocks)), 1)
    elif name == "scan":
        cost = Cost(7, 0, 0, 1, 13)
    elif name == "grid_sum":
        x, block = integers(at, at.random.randint(200, 260)), 32
        rest = {"part": np.zeros(blocks, np.float32), "y": np.zeros_like(x)}
        cost = Cost(0, 0, 1, 2 * -(-x.size // (32 * blocks)) + blocks, 0)
    outputs = () if name == "histogram" else ("y",)
    arrays = {"x": x, **rest}
    launch = KernelLaunch(
        arrays, blocks, block, seed, inputs, outputs, wave=blocks, what=name, given=given
    )
    return launch, cost


def meaning(name, x):
    """What a kernel computes."""
    width = {"turns": 64, "tree_sum": 128, "warp_sum": 32, "scan": 64}.get(name, x.size)
    rows = x.reshape(-1, width)
    if name == "turns":
        back = rows[:, ::-1]
        return (back + np.roll(back**2, -1, axis=1)).ravel()
    if name in ("tree_sum", "warp_sum"):
        return rows.sum(axis=1)
    if name == "histogram":
        return np.bincount(x, minlength=8)
    return np.cumsum(rows, axis=1).ravel() if name == "scan" else x - x.sum()


def draw_for(name):
    return lambda at: case(name, at)[0]


def kernel_item(name, rule):
    """The item of one kernel: the stepper accepts it, and the result is right."""

    def judge(launch, ask):
        arrays = ask(name, launch).arrays
        found, right = (
            arrays["bins" if name == "histogram" else "y"],
            meaning(name, launch.arrays["x"]),
        )
        if (found == right).all():
            return None
        cell = int(np.argmax(found != right))
        return f"the stepper accepts it, but cell {cell} of the result is wrong: it holds {found[cell]:g}"

    return item(name, rule, draw=draw_for(name), visible=2, hidden=4, rules=("*",))(judge)


turns = kernel_item("turns", "turns has no race, and is right.")
tree_sum = kernel_item("tree_sum", "tree_sum has no race, and is right.")
warp_sum = kernel_item("warp_sum", "warp_sum has no race, and is right.")
histogram = kernel_item("histogram", "histogram has no race, and is right.")
scan = kernel_item("scan", "scan has no race, and is right.")
grid_sum = kernel_item("grid_sum", "grid_sum has no race, and is right.")


def draw_all(at):
    return Six({name: case(name, at) for name in NAMES})


@dataclass(frozen=True)
class Six:
    """A launch of each kernel, and its cost."""

    cases: dict[str, tuple[KernelLaunch, Cost]]

    def __str__(self):
        return "one launch of each kernel"

    def drawn(self, outcome):
        """The launch of the kernel that the sentence is about."""
        return next(launch for name, (launch, _) in self.cases.items() if name in outcome.why.split())


ALL = {"draw": draw_all, "visible": 1, "hidden": 2, "cases_of": "all", "needs": NAMES}


@item("barriers", "No kernel passes more barriers than a good repair needs.", **ALL)
def barriers(six, ask):
    for name, (launch, cost) in six.cases.items():
        traffic = ask(name, launch).traffic
        warps = launch.grid * launch.block // 32
        for what, found, most in (
            ("barriers of the block", traffic.block_barriers_each, cost.block_barriers),
            ("barriers of a warp", -(-traffic.warp_barriers // warps), cost.warp_barriers),
            ("barriers of the grid", traffic.grid_barriers, cost.grid_barriers),
        ):
            if found > most:
                return f"{name} passes {found} {what}; {most} are enough"
    return None


@item("work", "The threads still share the work: none has more loads than it needs.", **ALL)
def work(six, ask):
    for name, (launch, cost) in six.cases.items():
        traffic = ask(name, launch).traffic
        if traffic.thread_loads > cost.loads:
            return f"one thread of {name} loads {traffic.thread_loads} numbers; {cost.loads} are enough"
        if traffic.thread_shared_loads > cost.shared_loads:
            return (
                f"one thread of {name} loads {traffic.thread_shared_loads} numbers from shared memory; "
                f"{cost.shared_loads} are enough"
            )
    return None


@item(
    "edit",
    f"Each kernel is repaired and not written anew: at most {MOST_LINES} lines differ.",
    **ALL,
)
def edit(six, ask):
    for name, (launch, _) in six.cases.items():
        before = plain_text(launch.given, name).splitlines()
        after = ask(name, launch).text.splitlines()
        codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        lines = sum(max(b - a, d - c) for kind, a, b, c, d in codes if kind != "equal")
        if lines > MOST_LINES:
            return f"{lines} lines of {name} differ; {MOST_LINES} are the most"
    return None


# ---------------------------------------------------------------- predictions
@prediction
def verdict(at):
    distance, barrier = at.random.choice((1, 5, 16, 31)), at.random.choice((True, False))
    text = (
        "def kernel(x, y):\n"
        "    thread = cuda.threadIdx.x\n"
        "    s = cuda.shared.array(32, np.float32)\n"
        f"    s[(thread + {distance}) % 32] = x[thread]\n"
        + "    cuda.syncthreads()\n" * barrier
        + f"    y[thread] = s[(thread + {at.random.choice((distance, 0))}) % 32]\n"
    )
    try:
        step(text, [np.zeros(32, np.float32), np.zeros(32, np.float32)], 1, 32)
        answer = True
    except KernelBug:
        answer = False
    return f"32 threads run this. Does the stepper accept it? Answer True or False.\n{text}", answer


@prediction
def cells_of_others(at):
    threads, distance = at.random.choice((64, 96, 128)), at.random.randint(3, 31)
    return (
        f"{threads} threads each write s[thread], and pass cuda.syncwarp(). Then each reads s[(thread + {distance}) % {threads}]. "
        "How many of them read a cell that a thread of another warp wrote?",
        sum(t // 32 != (t + distance) % threads // 32 for t in range(threads)),
    )


@prediction
def barriers_of_a_scan(at):
    threads, blocks = at.random.choice((32, 128, 256, 512)), at.random.randint(2, 9)
    return (
        f"scan runs with {threads} threads a block and steps 1, 2, 4 up to {threads // 2}, on {blocks} blocks. How many times does "
        "a block pass a barrier, counted over all blocks together?",
        blocks * (1 + (threads - 1).bit_length()),
    )
