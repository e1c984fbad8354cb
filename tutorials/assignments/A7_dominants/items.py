"""Items of A7. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from minisitch.course import Drawing, item, prediction
from minisitch.course.graphs import Operations, draw_operations, readers, smaller_operations
from minisitch.course.items import conforms
from minisitch.explain.picture import thread_map
from minisitch.stitch.mapping import ThreadMap
from minisitch.fuse import count as counted

RETURNS = {"groups": list[tuple[int, list[int]]], "thread_map": dict[str, int]}
NAMES = ("blocks", "threads", "rows_per_block", "threads_per_row", "steps", "splits", "chunk")
MOST_DRAWS = 8  # until a group has two reduces of different ranks


# ---------------------------------------------------------------- cases
@dataclass(frozen=True)
class Body:
    """A graph and its candidates. Inputs that nobody reads are not in it."""

    ops: Operations
    candidates: tuple[int, ...]
    variant: str
    figure: tuple[tuple[int, frozenset[int]], ...] = ()

    def __str__(self) -> str:
        return f"ops = {self.ops}, candidates = {list(self.candidates)}"

    def near(self) -> dict[int, list[int]]:
        """Each operation, and those that it is connected with."""
        found: dict[int, list[int]] = {value: [] for value in self.ops}
        for value, users in readers(self.ops).items():
            if value not in self.candidates:
                found[value] += users
                for user in users:
                    found[user].append(value)
        return found

    def rank(self, value: int) -> tuple[int, int]:
        """What decides between two candidates, before their numbers: the smaller rank is preferred."""
        kind, operands, size = self.ops[value]
        if kind == "reduce":
            return 0, -(self.ops[operands[0]][2] if self.variant == "reads" else size)
        return (1 if kind == "heavy" else 2), 0

    def groups(self) -> list[list[int]]:
        """The groups, found by passing the smallest number along until nothing changes."""
        label, near, moved = {value: value for value in self.ops}, self.near(), True
        while moved:
            least = {
                value: min([label[value], *(label[one] for one in near[value])]) for value in near
            }
            moved, label = least != label, least
        return [
            [each for each in label if label[each] == first]
            for first in sorted(set(label.values()))
        ]


@dataclass(frozen=True)
class Shape:
    """Rows and columns on a device. ``paper`` is what the handout's table says."""

    rows: int
    cols: int
    warp: int
    most_threads: int
    wave: int
    variant: str
    paper: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"rows = {self.rows}, cols = {self.cols}, device = {self.device}"

    def drawn(self, outcome):
        """The map that was returned: who takes which columns of which row."""
        given = outcome.value if conforms(outcome.value, dict[str, int]) else {}
        numbers = {name: max(1, given.get(name, 1)) for name in NAMES}
        return thread_map(ThreadMap(self.rows, self.cols, **numbers, rule="yours", why=outcome.why))

    @property
    def device(self) -> dict[str, int]:
        return {"warp": self.warp, "most_threads": self.most_threads, "wave": self.wave}

    @property
    def is_long(self) -> bool:
        """Whether rows must be split, if more chunks help."""
        return self.rows < self.wave and self.cols > self.most_threads


def body(ops: Operations, candidates, variant: str) -> Body:
    """Without inputs that nobody reads; what else nobody reads is a candidate."""
    used = readers(ops)
    ops = {value: op for value, op in ops.items() if op[0] != "input" or used[value]}
    also = {value for value in ops if not used[value] or ops[value][0] == "reduce"}
    return Body(ops, tuple(value for value in ops if value in also | set(candidates)), variant)


def draw_body(at: Drawing) -> Body:
    ops = draw_operations(at)
    heavy = [v for v, op in ops.items() if op[0] == "heavy" and at.random.random() < 0.5]
    return body(ops, heavy, at.variant)


def draw_reduces(at: Drawing) -> Body:
    """Several reduces and heavy candidates of different sizes, close together: two of them share a group."""
    for _ in range(MOST_DRAWS):
        kinds = ("map", "map", "heavy", "reduce", "reduce")
        ops = draw_operations(replace(at, size=at.size + 4), kinds, near=7, most_inputs=4)
        heavy = [v for v, op in ops.items() if op[0] == "heavy" and at.random.random() < 0.7]
        made = body(ops, heavy, at.variant)
        ranks = [[made.rank(one) for one in ids if one in made.candidates] for ids in made.groups()]
        if any(len({rank for rank in each if rank[0] == 0}) > 1 for each in ranks):
            break
    return made


def fewer(case: Body) -> Iterator[Body]:
    for ops in smaller_operations(case.ops):
        made = body(ops, [value for value in case.candidates if value in ops], case.variant)
        if made.ops:
            yield made


def draw_shape(at: Drawing) -> Shape:
    wave = at.random.choice((4, 30, 160, 264))
    most = at.random.choice((128, 256, 512, 1024))
    near = (wave - 1, wave, wave + 1, 2 * wave + 1)
    rows = at.random.choice((*near, at.random.randint(1, 40), int(2 ** at.random.uniform(0, 18))))
    edges = (1, 3, 17, 31, 32, 33, 48, most - 1, most, most + 1, 3 * most + 5)
    cols = at.random.choice((*edges, int(2 ** at.random.uniform(0, 16))))
    return Shape(rows, cols, at.random.choice((16, 32, 64)), most, wave, at.variant)


def draw_long(at: Drawing) -> Shape:
    """Few long rows."""
    shape = draw_shape(at)
    rows = at.random.randint(1, max(1, shape.wave // 2))
    return replace(
        shape,
        rows=rows,
        cols=shape.most_threads * at.random.randint(2, 40) + at.random.randint(1, 99),
    )


def smaller_shapes(case: Shape) -> list[Shape]:
    found = [replace(case, rows=rows) for rows in (case.rows // 2, case.rows - 1) if rows > 0]
    found += [replace(case, cols=cols) for cols in (case.cols // 2, case.cols - 1) if cols > 0]
    if (case.warp, case.most_threads, case.wave) != (32, 1024, 160):
        found.append(replace(case, warp=32, most_threads=1024, wave=160))
    return found


# ---------------------------------------------------------------- groups
_FIGURE = {
    1: ("input", [], 512),
    2: ("input", [], 8),
    3: ("input", [], 512),
    4: ("map", [2], 512),
    5: ("map", [1, 4], 512),
    6: ("reduce", [5], 8),
    7: ("map", [6, 2], 8),
    8: ("heavy", [7], 8),
    9: ("map", [8], 512),
    10: ("map", [3, 9], 512),
    11: ("reduce", [10], 8),
    12: ("map", [11], 512),
    13: ("map", [9, 12], 512),
}
_FIGURE_GROUPS = (
    (6, frozenset((1, 2, 4, 5, 6, 7, 8))),
    (11, frozenset((3, 9, 10, 11, 12, 13))),
)


@item(
    "figure 9",
    "The paper's figure has the two groups that the handout shows.",
    examples=[lambda variant: Body(_FIGURE, (6, 8, 11, 13), variant, _FIGURE_GROUPS)],
)
def figure(case, ask):
    found = {
        (dominant, frozenset(members))
        for dominant, members in ask("groups", case.ops, list(case.candidates))
    }
    for dominant, members in found - set(case.figure):
        return f"the group {sorted(members)} with the dominant {dominant} is not in the figure"
    return None if len(found) == len(case.figure) else f"it returns {counted(len(found), 'group')}"


@item(
    "partition",
    "Every operation, inputs too, is in exactly one group.",
    draw=draw_body,
    smaller=fewer,
)
def partition(case, ask):
    listed = [
        value for _, members in ask("groups", case.ops, list(case.candidates)) for value in members
    ]
    for value in case.ops:
        if listed.count(value) != 1:
            return f"{case.ops[value][0]} {value} is in {listed.count(value)} groups"
    strange = [value for value in listed if value not in case.ops]
    return f"{strange[0]} is in a group and is no operation" if strange else None


@item(
    "together",
    "An operation that is no candidate is in the group of everything that reads it.",
    draw=draw_body,
    smaller=fewer,
    weight=2,
    needs=("partition",),
)
def together(case, ask):
    found = ask("groups", case.ops, list(case.candidates))
    place = {value: at for at, (_, members) in enumerate(found) for value in members}
    for value, users in readers(case.ops).items():
        for user in users:
            if value not in case.candidates and place.get(value) != place.get(user):
                return f"operation {user} reads {value}, which is no candidate, and they are in different groups"
    return None


@item(
    "cut",
    "Operations are in one group only if they are connected without an edge that leaves a candidate.",
    draw=draw_body,
    smaller=fewer,
    weight=2,
    needs=("partition",),
)
def cut(case, ask):
    near = case.near()
    for _, members in ask("groups", case.ops, list(case.candidates)):
        reached = members[:1]
        for member in reached:
            reached += [
                each
                for each in dict.fromkeys(near.get(member, ()))
                if each in members and each not in reached
            ]
        if left := sorted(set(members) - set(reached)):
            return f"in the group {sorted(members)} every path from {reached[0]} to {left[0]} leaves a candidate"
    return None


@item(
    "dominant",
    "A group's dominant is a candidate, and one of its members.",
    draw=draw_body,
    smaller=fewer,
    needs=("partition",),
)
def dominant(case, ask):
    for first, members in ask("groups", case.ops, list(case.candidates)):
        if first not in members:
            return f"the dominant {first} is not in its group {sorted(members)}"
        if first not in case.candidates:
            return f"the dominant {first} is no candidate"
    return None


@item(
    "preference",
    "Of a group's candidates the dominant is the one that the handout prefers.",
    draw=draw_reduces,
    smaller=fewer,
    hidden=100,
    weight=2,
    needs=("dominant",),
)
def preference(case, ask):
    for first, members in ask("groups", case.ops, list(case.candidates)):
        for other in sorted(set(members) & set(case.candidates)):
            if first in case.ops and (case.rank(other), other) < (case.rank(first), first):
                return (
                    f"the dominant is {first}: {_about(case, first)}; candidate {other} of the same group is "
                    f"preferred: {_about(case, other)}"
                )
    return None


def _about(case: Body, value: int) -> str:
    kind, operands, size = case.ops[value]
    reads = f" that reads {case.ops[operands[0]][2]} elements" if kind == "reduce" else ""
    return f"a {kind}{reads} with a result of {size}"


@item("deep", "A chain of 5,000 maps is no harder than a short one.", examples=[5000])
def deep(case, ask):
    ops = {0: ("input", [], 8)} | {at: ("map", [at - 1], 8) for at in range(1, case)}
    found = ask("groups", ops, [case - 1], seconds=20)
    return None if len(found) == 1 else f"a chain of {case} operations has {len(found)} groups"


# ---------------------------------------------------------------- thread maps
def _map(case: Shape, ask) -> tuple[dict[str, int], str]:
    """A submission's map with a 1 for each number that it lacks, and what is wrong with its form."""
    found = ask("thread_map", case.rows, case.cols, case.device)
    wrong = (
        f"the names are {sorted(found)}, not {sorted(NAMES)}" if set(found) != set(NAMES) else ""
    )
    least = {name: 0 if name == "chunk" and not case.cols else 1 for name in NAMES}
    for name in NAMES:
        if not wrong and found[name] < least[name]:
            wrong = f"{name} is {found[name]}"
    return {name: max(1, found.get(name, 1)) for name in NAMES}, wrong


def _tasks(case: Shape, found: dict[str, int]) -> int:
    return -(-case.rows // found["rows_per_block"]) * found["splits"]


def _v100(rows: int, cols: int, *paper: int):
    return lambda variant: Shape(rows, cols, 32, 1024, 160, variant, paper)


@item(
    "legal",
    "The device can launch the map.",
    draw=draw_shape,
    smaller=smaller_shapes,
    examples=[_v100(0, 32), _v100(100, 0), _v100(0, 0), _v100(0, 5000)],
    visible=40,
    weight=2,
)
def legal(case, ask):
    found, wrong = _map(case, ask)
    threads, per_row = found["threads"], found["threads_per_row"]
    if wrong:
        return f"every number is at least 1: {wrong}" if " is " in wrong else wrong
    if threads > case.most_threads:
        return f"a block has {threads} threads; this device has blocks of up to {case.most_threads}"
    if threads % case.warp:
        return f"a block of {threads} threads is not made of whole warps of {case.warp}"
    if per_row & (per_row - 1):
        return (
            f"{per_row} threads of a row cannot halve themselves down to one: it is no power of two"
        )
    if case.variant == "reads" and per_row % case.warp:
        return f"{per_row} threads of a row are not whole warps of {case.warp}"
    if threads != per_row * found["rows_per_block"]:
        return f"{found['rows_per_block']} rows of {per_row} threads are not {threads} threads"
    if found["splits"] > 1 and found["rows_per_block"] > 1:
        return f"a row is split into {found['splits']} chunks, and a block takes {found['rows_per_block']} rows"
    return None


@item(
    "covers",
    "Every row and every column is computed, and every chunk has columns.",
    draw=draw_shape,
    smaller=smaller_shapes,
    examples=[_v100(0, 32), _v100(100, 0)],
    visible=40,
    hidden=100,
    weight=2,
    needs=("legal",),
)
def covers(case, ask):
    found, wrong = _map(case, ask)
    done, tasks = found["blocks"] * found["steps"], _tasks(case, found)
    if wrong:
        return wrong
    if done < tasks:
        return f"{counted(found['blocks'], 'block')} can take {done} of {tasks} tasks in {counted(found['steps'], 'step')}"
    if found["splits"] * found["chunk"] < case.cols:
        return f"{found['splits']} chunks of {found['chunk']} columns are not {case.cols} columns"
    if found["splits"] > 1 and (found["splits"] - 1) * found["chunk"] >= case.cols:
        return f"the last of {found['splits']} chunks of {found['chunk']} columns has none of {case.cols} columns"
    return None


@item(
    "one wave",
    "All blocks run at once: there are no more than a wave.",
    draw=draw_shape,
    smaller=smaller_shapes,
    needs=("legal",),
)
def one_wave(case, ask):
    found, _ = _map(case, ask)
    if found["blocks"] <= case.wave:
        return None
    return f"{found['blocks']} blocks are launched, and {case.wave} run at once"


@item(
    "busy",
    "Threads, blocks and steps have work, and a wave is more than half full if there is enough of it.",
    draw=draw_shape,
    smaller=smaller_shapes,
    visible=40,
    hidden=100,
    weight=2,
    needs=("covers", "one wave"),
)
def busy(case, ask):
    found, _ = _map(case, ask)
    per_row, together = found["threads_per_row"], found["rows_per_block"]
    blocks, steps, tasks = found["blocks"], found["steps"], _tasks(case, found)
    least = case.warp if case.variant == "reads" else 1
    if found["splits"] == 1 and per_row >= 2 * max(case.cols, least):
        return f"a row of {case.cols} columns has {per_row} threads: half of them would do"
    if per_row < min(case.cols, case.most_threads):
        return f"a row of {case.cols} columns has {per_row} threads; a block may have {case.most_threads}"
    if together < case.rows and 2 * together * per_row <= case.most_threads:
        if found["splits"] == 1:
            return f"a block takes {together} rows of {per_row} threads at once, and has room for twice as many"
        return f"a chunk has {per_row} threads, and a block has room for twice as many"
    if blocks > max(1, tasks):
        return f"{blocks} blocks are launched for {tasks} tasks"
    if (steps - 1) * blocks >= max(1, tasks):
        return f"after {steps - 1} steps of {blocks} blocks all {tasks} tasks are done; there are {steps} steps"
    if steps > 1 and 2 * blocks <= case.wave:
        return f"{blocks} blocks take {steps} steps, and {case.wave} could run at once"
    return None


@item(
    "split",
    "Few long rows are split until a wave is more than half full or chunks are short. Other rows stay whole.",
    draw=draw_long,
    smaller=smaller_shapes,
    examples=[_v100(159, 1024), _v100(160, 30000), _v100(5000, 4096), _v100(10, 1000)],
    needs=("covers",),
)
def split(case, ask):
    found, _ = _map(case, ask)
    splits, chunk = found["splits"], found["chunk"]
    if not case.is_long:
        return (
            f"{case.rows} rows of {case.cols} columns are split into {splits} chunks"
            if splits > 1
            else None
        )
    if splits > 1 and 2 * chunk < case.most_threads:
        return f"a chunk has {chunk} columns, and a block has {case.most_threads} threads: most have nothing to do"
    if 2 * case.rows * splits <= case.wave and chunk > case.most_threads:
        return (
            f"{case.rows} rows with {splits} chunks of {chunk} columns are {case.rows * splits} tasks; "
            f"{case.wave} blocks run at once, and a chunk has more columns than a block has threads"
        )
    return None


@item(
    "the paper's",
    "The paper's two shapes have the maps of the handout's table.",
    examples=[
        _v100(750_000, 32, 160, 1024, 32, 32, 147, 1, 32),
        _v100(64, 30_000, 128, 1024, 1, 1024, 1, 2, 15_000),
    ],
    weight=0.5,
)
def papers(case, ask):
    found, wrong = _map(case, ask)
    differing = [
        name for name, number in zip(NAMES, case.paper, strict=True) if found[name] != number
    ]
    return wrong or (
        f"{differing[0]} is {found[differing[0]]}, and not as in the table" if differing else None
    )


# ---------------------------------------------------------------- predictions
@prediction
def count_groups(at):
    case = draw_body(replace(at, size=8))
    return f"{case}. How many groups are there?", len(case.groups())


@prediction
def which_dominant(at):
    while True:
        case = draw_reduces(replace(at, size=8))
        largest = max(case.groups(), key=lambda members: (len(members), -min(members)))
        inside = [value for value in largest if value in case.candidates]
        if len(inside) > 1:
            break
    first = min(inside, key=lambda value: (case.rank(value), value))
    return f"{case}. What is the dominant of the group {sorted(largest)}?", first


@prediction
def steps_in_turn(at):
    case = draw_shape(at)
    rows, cols = at.random.randint(10_000, 400_000), at.random.choice((20, 50, 100, 200, 400))
    case = replace(case, rows=rows, cols=cols, most_threads=1024)
    per_row = 1 << (cols - 1).bit_length()
    per_row = max(case.warp, per_row) if case.variant == "reads" else per_row
    tasks = -(-rows // (1024 // per_row))
    return f"{case}. How many steps does your map have?", -(-tasks // case.wave)
