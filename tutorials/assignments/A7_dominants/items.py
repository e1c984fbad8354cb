"""Items of A7. None of them holds the answer: each says what must be true of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from minisitch.course import item
from minisitch.course.graphs import Operations, readers, smaller_operations
from minisitch.course.items import conforms
from minisitch.explain.picture import thread_map
from minisitch.fuse import count as counted
from minisitch.stitch.mapping import ThreadMap

RETURNS = {"groups": list[tuple[int, list[int]]], "thread_map": dict[str, int]}
MANY = 8  # times what the device runs at once: such a matrix is large
NAMES = ("blocks", "threads", "rows_per_block", "threads_per_row", "steps", "splits", "chunk")


# ---------------------------------------------------------------- cases
@dataclass(frozen=True)
class Body:
    """A graph and its candidates. Inputs that nobody reads are not in it.

    ``preferred`` are the candidates, the most preferred first, where an item is about that.
    """

    ops: Operations
    candidates: tuple[int, ...]
    variant: str
    figure: tuple[tuple[int, frozenset[int]], ...] = ()
    preferred: tuple[int, ...] = ()

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


def fewer(case: Body) -> Iterator[Body]:
    for ops in smaller_operations(case.ops):
        made = body(ops, [value for value in case.candidates if value in ops], case.variant)
        if made.ops:
            yield made


def smaller_shapes(case: Shape) -> list[Shape]:
    found = [replace(case, rows=rows) for rows in (case.rows // 2, case.rows - 1) if rows > 0]
    found += [replace(case, cols=cols) for cols in (case.cols // 2, case.cols - 1) if cols > 0]
    if (case.warp, case.most_threads, case.wave) != (32, 1024, 160):
        found.append(replace(case, warp=32, most_threads=1024, wave=160))
    return found


# ---------------------------------------------------------------- groups


@item(
    "figure 9",
    "The paper's figure has the two groups that the handout shows.",
    examples="figure_9",
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
    "small groups",
    "Small graphs have the right groups.",
    draw="draw_small",
    smaller=fewer,
    hidden=20,
    builds=True,
)
def small_groups(case, ask):
    found = [members for _, members in ask("groups", case.ops, list(case.candidates))]
    if sorted(value for members in found for value in members) != sorted(case.ops):
        return "not every operation is in exactly one group"
    return _apart(case, found) or _mixed(case, found)


def _apart(case: Body, groups: list[list[int]]) -> str | None:
    place = {value: at for at, members in enumerate(groups) for value in members}
    for value, users in readers(case.ops).items():
        for user in users:
            if value not in case.candidates and place.get(value) != place.get(user):
                return f"operation {user} reads {value}, which is no candidate, and they are in different groups"
    return None


def _mixed(case: Body, groups: list[list[int]]) -> str | None:
    near = case.near()
    for members in groups:
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
    "partition",
    "Every operation, inputs too, is in exactly one group.",
    draw="draw_body",
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
    draw="draw_body",
    smaller=fewer,
    weight=2,
    needs=("partition",),
)
def together(case, ask):
    return _apart(case, [members for _, members in ask("groups", case.ops, list(case.candidates))])


@item(
    "cut",
    "Operations are in one group only if they are connected without an edge that leaves a candidate.",
    draw="draw_body",
    smaller=fewer,
    weight=2,
    needs=("partition",),
)
def cut(case, ask):
    return _mixed(case, [members for _, members in ask("groups", case.ops, list(case.candidates))])


@item(
    "dominant",
    "A group's dominant is a candidate, and one of its members.",
    draw="draw_body",
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
    draw="draw_reduces",
    hidden=100,
    weight=2,
    needs=("dominant",),
)
def preference(case, ask):
    for first, members in ask("groups", case.ops, list(case.candidates)):
        inside = [each for each in case.preferred if each in members]
        for other in inside[: inside.index(first)] if first in inside else ():
            if first in case.ops:
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


@item(
    "legal",
    "The device can launch the map.",
    draw="draw_shape",
    smaller=smaller_shapes,
    examples="empty",
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
    draw="draw_shape",
    smaller=smaller_shapes,
    examples="no_rows_or_columns",
    visible=40,
    hidden=100,
    weight=2,
    needs=("legal",),
)
def covers(case, ask):
    found, wrong = _map(case, ask)
    return wrong or _uncovered(case, found)


@item(
    "fills",
    "In a large matrix at least a quarter of the threads that the device can run have work, and all of it is computed.",
    draw="draw_large",
    smaller=smaller_shapes,
    hidden=40,
    builds=True,
)
def fills(case, ask):
    found, wrong = _map(case, ask)
    threads = found["blocks"] * found["rows_per_block"] * min(found["threads_per_row"], case.cols)
    most = case.wave * case.most_threads
    if case.rows * case.cols < MANY * most or case.cols > case.most_threads:
        return None  # in the search for the smallest
    if 4 * threads < most:
        return f"{threads} threads have a column, and the device runs {most} at once"
    if found["blocks"] > case.wave or found["threads"] > case.most_threads:
        return "the device does not run so many blocks, or so many threads of a block, at once"
    return wrong or _uncovered(case, found)


def _uncovered(case: Shape, found: dict[str, int]) -> str | None:
    done, tasks = found["blocks"] * found["steps"], _tasks(case, found)
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
    draw="draw_shape",
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
    draw="draw_shape",
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
    draw="draw_long",
    smaller=smaller_shapes,
    examples="borders",
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
    examples="papers_shapes",
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
