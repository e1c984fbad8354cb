"""Kernels of a submission. They are text, which the stepper runs: none of it is run as Python.

    bench = Bench(source, functions=())
    run = bench.ask("softmax", KernelLaunch({"x": x, "y": y}, grid=2, block=64, outputs=("y",)))
    run.arrays["y"], run.traffic.loads

In:  a file of a submission, and launches. Out: what a launch left in memory, and its counts; or a
``Refusal`` with the rule of the stepper that the kernel breaks.

``simt.dialect`` checks a text before any of it runs, so that it can only compute. ``simt`` ends what
takes too many rounds. All the same, it is stepped in a caged process, which has a deadline. One such
process serves all submissions, because it takes long to start.
"""

import ast
import atexit
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import KernelBug
from ..simt import SHARED_BYTES, ArrayBytes, LaunchError, Traffic, step
from .cage import LIMITS, Cage, NoAnswer
from .items import plain, restored

SECONDS = 15.0  # of one launch; by far the most of them are refused for their rounds before
ROUNDS = 200_000  # of all loops of one launch
LONGEST_TEXT = 32_000  # characters of a file with kernels
LIMITS_OF_STEPPER = {name: limit for name, limit in LIMITS.items() if name != "RLIMIT_CPU"} | {
    "RLIMIT_AS": 4 << 30
}
MOST_RACES = 2  # pairs of lines: one missing barrier makes no more, and more is not nearly right
OF_ORDER = ("race", "unwritten-read", "wrong-owner")  # rules that a missing barrier breaks


class Refusal(NoAnswer):
    """The stepper refuses a kernel. ``rule`` is its rule, for example "race"."""

    def __init__(self, rule: str, text: str, line: int):
        super().__init__("refused", text, line)
        self.rule = rule


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a kernel: arguments by name, blocks, threads of a block, and the order of threads.

    ``inputs``, ``outputs``, ``wave``, ``queues`` and ``shared`` are those of ``simt.step``. ``what`` says
    in words what is in the arrays. A kernel that still reads as ``given`` is not tried. ``most`` is what
    each of its counts may be (``too_much``).
    """

    arrays: Mapping[str, np.ndarray | int]
    grid: int
    block: int
    seed: int = 0
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    wave: int | None = None
    shared: int = SHARED_BYTES
    what: str = ""
    given: str = ""
    most: Mapping[str, int] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """What ``simt.step`` takes beside arrays and sizes."""
        return {each: getattr(self, each) for each in ("seed", "inputs", "outputs", "queues", "wave", "shared")}

    def __str__(self) -> str:
        shapes = ", ".join(
            f"{name} {each.dtype} {each.shape}" if isinstance(each, np.ndarray) else f"{name} = {each}"
            for name, each in self.arrays.items()
        )
        said = f"; {self.what}" if self.what else ""
        return f"{self.grid} blocks of {self.block} threads, order {self.seed}: {shapes}{said}"


@dataclass(frozen=True)
class KernelRun:
    """What a launch left in memory, what it counted, and the kernel's text without comments.

    ``share`` is the critical path as a percentage of what it were if all threads did the same. A kernel with a race has
    a ``refusal``, and what is told of it is what a launch in lockstep does.
    """

    arrays: Mapping[str, np.ndarray]
    traffic: Traffic
    text: str
    share: int = 0
    refusal: Refusal | None = None

    def __repr__(self) -> str:
        return "accepted, with these counts:\n" + str(self.traffic)


class Bench:
    """The kernels of one submission. ``functions`` are those of its functions that are no kernels.

    Raises NoAnswer as ``Cage`` does, and Refusal.
    """

    def __init__(self, source: str, functions: Collection[str]) -> None:
        self.source, self.functions = source, list(functions)
        self.alive = True  # another process takes the place of one that has ended
        self.found: dict[str, Any] = {}  # a launch and what came of it: many items ask for the same

    def ask(self, name: str, *arguments: Any, times: int = 1, seconds: float | None = None) -> Any:
        """Launch the kernel ``name`` as a ``KernelLaunch`` says. Returns a ``KernelRun``."""
        (launch,) = map(plain, arguments)
        key = f"{name} {launch}"
        if key not in self.found:
            self.found[key] = self._question("launched", self.source, name, self.functions, launch)
        found = self.found[key]
        refusal = Refusal(found["rule"], found["text"], found["line"]) if "rule" in found else None
        if refusal and "counts" not in found:
            raise refusal
        touched, queues = (
            {array: ArrayBytes(*count) for array, count in found[each].items()}
            for each in ("touched", "queues")
        )
        traffic = Traffic(**found["counts"], touched=touched, queues=queues)
        return KernelRun(restored(found["arrays"], {}), traffic, found["kernel"], found["share"], refusal)

    def value(self, name: str) -> Any:
        """What the file assigns to ``name``, if that is plain."""
        return self._question("literal", self.source, name)

    def _question(self, name: str, *arguments: Any) -> Any:
        running = _processes.get(os.getpid())
        if running is None or not running.alive:
            running = Cage(
                "", "stepper", trusted=True, seconds=SECONDS, module=__name__, limits=LIMITS_OF_STEPPER
            )
            _processes[os.getpid()] = running
        return running.ask(name, *arguments)

    def output(self) -> str:
        return ""  # a kernel cannot print

    def close(self) -> None:
        """Nothing: the process goes on to the next submission."""


_processes: dict[int, Cage] = {}  # a fork of this process must have its own


@atexit.register
def _end() -> None:
    if os.getpid() in _processes:
        _processes.pop(os.getpid()).close()


# ---------------------------------------------------------------- in the process that steps
def launched(source: str, name: str, functions: Sequence[str], data: Any) -> Any:
    """Launch a kernel, as ``data`` says. Returns arrays and counts as plain values, or the rule that it breaks.

    Raises NotImplementedError for the kernel of a starter, and NameError for one that is not there.
    """
    if len(source) > LONGEST_TEXT:
        said = f"the file has {len(source):,} characters; {LONGEST_TEXT:,} are the most"
        return {"rule": "too long", "text": said, "line": 0}
    launch = restored(data, {"KernelLaunch": KernelLaunch})
    try:
        text = kernel_text(source, name, functions)
        if launch.given and plain_text(text, name) == plain_text(launch.given, name):
            raise NotImplementedError(f"{name} is as it was given")
        return _stepped(text, name, launch)
    except KernelBug as bug:
        refused = {"rule": bug.rule, "text": without_cure(bug), "line": bug.line}
        if bug.rule not in OF_ORDER:
            return refused
        launch = restored(data, {"KernelLaunch": KernelLaunch})  # the first has written into its arrays
        try:
            found = _stepped(text, name, launch, lockstep=True)
        except KernelBug:
            return refused
        counts = found["counts"]
        nearly = counts["races"] <= MOST_RACES and counts["block_barriers_each"] + counts["grid_barriers"] > 0
        return {**found, **refused} if nearly else refused
    except LaunchError as problem:
        return {"rule": "parameters", "text": str(problem), "line": 0}


def _stepped(text: str, name: str, launch: KernelLaunch, lockstep: bool = False) -> dict[str, Any]:
    """What a launch leaves and counts, as plain values. Raises KernelBug, LaunchError."""
    traffic = step(
        text, launch.arrays, launch.grid, launch.block, name=name, rounds=ROUNDS, lockstep=lockstep, **launch.options
    )
    counts = {each: value for each, value in vars(traffic).items() if isinstance(value, int)}
    share = 100 * counts["critical_path"] * launch.grid * launch.block // max(1, counts["work"])
    return {
        "arrays": plain(launch.arrays), "counts": counts, "share": share, "touched": dict(traffic.touched),
        "queues": dict(traffic.queues), "kernel": plain_text(text, name),
    }


def without_cure(bug: KernelBug) -> str:
    """What a refusal says, and for a race an order in which it happens. What to write is the last hint's to say."""
    said = str(bug).replace(bug.advice, "", 1)
    if bug.rule == "race" and len(bug.places) == 2:
        (line, who), (other, whom) = bug.places
        said += f"\n  one order: {whom} does line {other}, then {who} does line {line}; in another order {who} is first"
    return said


def measured(
    launch: KernelLaunch, name: str, sources: Sequence[str], functions: Sequence[str], times: float, accesses: float
) -> KernelLaunch:
    """The launch with what its counts may be, compared with the largest of right kernels.

    A submission may have as many barriers, ``times`` as many operations and ``accesses`` times as many accesses.
    Accesses have a factor of their own, since a kernel may keep in memory what another computes again.
    """
    runs = [launched(source, name, functions, plain(replace(launch, given=""))) for source in sources]
    found = [{**each["counts"], "share": each["share"]} for each in runs]
    most = {each: max(counts[each] for counts in found) for each in found[0]}
    factors = dict.fromkeys(("thread_work", "critical_path", "share"), times)
    factors |= dict.fromkeys(("block_barriers_each", "warp_barriers", "grid_barriers"), 1)
    return replace(launch, most={each: int(most[each] * factors.get(each, accesses)) for each in most})


# What a count is called where it is too much.
COUNTS = {
    "thread_work": "one thread executes {} operations", "thread_loads": "one thread loads {} numbers",
    "thread_stores": "one thread stores {} numbers", "loads": "it loads {} numbers",
    "thread_shared_loads": "one thread loads {} numbers from shared memory",
    "thread_shared_stores": "one thread stores {} numbers to shared memory",
    "critical_path": "between barriers, the busiest threads execute {} operations one after the other",
    "share": "between barriers, the busiest threads have {} percent of an even share of the work",
    "block_barriers_each": "a block passes {} barriers", "warp_barriers": "its warps pass {} barriers",
    "grid_barriers": "the grid passes {} barriers",
}
WORK = (
    "thread_loads", "thread_stores", "thread_shared_loads", "thread_shared_stores", "thread_work", "critical_path",
    "share",
)


def too_much(run: KernelRun, launch: KernelLaunch, counts: Sequence[str] = WORK) -> str | None:
    """A sentence about the first of some counts that is larger than the launch allows."""
    for each in counts:
        found, most = run.share if each == "share" else getattr(run.traffic, each), launch.most[each]
        if found > most:
            return f"{COUNTS[each].format(found)}; {most} are the most"
    return None


def kernel_text(source: str, kernel: str, functions: Sequence[str]) -> str:
    """A file without its predictions, and without functions that a later one of that name replaces.

    If the file also has ``functions`` for Python, only what the kernel uses is left. Lines keep their
    numbers. Raises NotImplementedError for a starter's kernel, and NameError.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source  # the stepper says what is wrong with it
    last = {name: node for node in body for name in _defines(node)}
    if not isinstance(last.get(kernel), ast.FunctionDef):
        raise NameError(f"the file defines no function {kernel}")
    raised = [ast.unparse(node) for node in ast.walk(last[kernel]) if isinstance(node, ast.Raise)]
    if any("NotImplementedError" in each for each in raised):
        raise NotImplementedError(kernel)
    used, left = set(), [kernel]
    while left:
        node = last.get(left.pop())
        if node is not None and node not in used:
            used.add(node)
            left += [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    lines = source.splitlines()
    for node in body:
        names = _defines(node)
        dead = names and not any(last[name] is node for name in names)
        if dead or "PREDICTIONS" in names or (functions and node not in used):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            lines[first - 1 : node.end_lineno] = [""] * (node.end_lineno - first + 1)
    return "\n".join(lines)


def plain_text(source: str, kernel: str) -> str:
    """One function of a file, as Python itself would write it. Empty if there is none, or no Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return "".join(ast.unparse(node) for node in body if kernel in _defines(node))


def _defines(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a file gives a value."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [
        each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
    ]


def literal(source: str, name: str) -> Any:
    """What the last assignment to ``name`` at the top of a file says. Raises NameError, ValueError."""
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.Assign) and name in _defines(node):
            return ast.literal_eval(node.value)
    raise NameError(f"the file defines no {name}")
