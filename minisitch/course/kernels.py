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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import KernelBug
from ..simt import SHARED_BYTES, ArrayBytes, LaunchError, Traffic, step
from .cage import LIMITS, Cage, NoAnswer

SECONDS = 15.0  # of one launch; by far the most of them are refused for their rounds before
ROUNDS = 200_000  # of all loops of one launch
LONGEST_TEXT = 32_000  # characters of a file with kernels
LIMITS_OF_STEPPER = {name: limit for name, limit in LIMITS.items() if name != "RLIMIT_CPU"} | {
    "RLIMIT_AS": 4 << 30
}
OTHER_RULES = ("parameters", "too long")  # that a launch finds, beside those of ``simt``


class Refusal(NoAnswer):
    """The stepper refuses a kernel. ``rule`` is its rule, for example "race"."""

    def __init__(self, rule: str, text: str, line: int):
        super().__init__("refused", text, line)
        self.rule = rule


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a kernel: arguments by name, blocks, threads of a block, and the order of threads.

    ``inputs``, ``outputs``, ``wave``, ``queues`` and ``shared`` are those of ``simt.step``. ``what`` says
    in words what is in the arrays. A kernel that still reads as ``given`` is not tried.
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

    def __str__(self) -> str:
        shapes = ", ".join(
            f"{name} {each.dtype} {each.shape}" if isinstance(each, np.ndarray) else f"{name} = {each}"
            for name, each in self.arrays.items()
        )
        said = f"; {self.what}" if self.what else ""
        return f"{self.grid} blocks of {self.block} threads, order {self.seed}: {shapes}{said}"


@dataclass(frozen=True)
class KernelRun:
    """What a launch left in memory, what it counted, and the kernel's text without comments."""

    arrays: Mapping[str, np.ndarray]
    traffic: Traffic
    text: str

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
        (launch,) = arguments
        fields = _fields(launch)
        key = f"{name} {fields}"
        if key not in self.found:
            self.found[key] = self._question("launched", self.source, name, self.functions, fields)
        found = self.found[key]
        if "rule" in found:
            raise Refusal(found["rule"], found["text"], found["line"])
        touched, queues = (
            {array: ArrayBytes(*count) for array, count in found[each].items()}
            for each in ("touched", "queues")
        )
        traffic = Traffic(**found["counts"], touched=touched, queues=queues)
        return KernelRun(dict(_arrays(found["arrays"])), traffic, found["text"])

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


def _fields(launch: KernelLaunch) -> dict[str, Any]:
    return {**vars(launch), "arrays": _plain(launch.arrays)}


def _plain(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as numbers in lists, which JSON can hold."""
    return {
        name: (each.dtype.name, each.shape, each.ravel().tolist())
        if isinstance(each, np.ndarray)
        else each
        for name, each in arrays.items()
    }


def _arrays(plain: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, each in plain.items():
        if isinstance(each, tuple):
            dtype, shape, values = each
            each = np.array(values, dtype).reshape(shape)
        yield name, each


# ---------------------------------------------------------------- in the process that steps
def launched(source: str, name: str, functions: Sequence[str], fields: dict[str, Any]) -> Any:
    """Launch a kernel. Returns arrays and counts as plain values, or the rule that it breaks.

    Raises NotImplementedError for the kernel of a starter, and NameError for one that is not there.
    """
    if len(source) > LONGEST_TEXT:
        said = f"the file has {len(source):,} characters; {LONGEST_TEXT:,} are the most"
        return {"rule": "too long", "text": said, "line": 0}
    launch = KernelLaunch(**{**fields, "arrays": dict(_arrays(fields["arrays"]))})
    options = {
        each: getattr(launch, each)
        for each in ("seed", "inputs", "outputs", "queues", "wave", "shared")
    }
    try:
        text = kernel_text(source, name, functions)
        if launch.given and plain_text(text, name) == plain_text(launch.given, name):
            raise NotImplementedError(f"{name} is as it was given")
        traffic = step(
            text, launch.arrays, launch.grid, launch.block, name=name, rounds=ROUNDS, **options
        )
    except KernelBug as bug:
        return {"rule": bug.rule, "text": without_cure(bug), "line": bug.line}
    except LaunchError as problem:
        return {"rule": "parameters", "text": str(problem), "line": 0}
    counts = {each: value for each, value in vars(traffic).items() if isinstance(value, int)}
    return {
        "arrays": _plain(launch.arrays), "counts": counts, "touched": dict(traffic.touched),
        "queues": dict(traffic.queues), "text": plain_text(text, name),
    }


def without_cure(bug: KernelBug) -> str:
    """What a refusal says, and for a race an order in which it happens. What to write is the last hint's to say."""
    said = str(bug).replace(bug.advice, "", 1)
    if bug.rule == "race" and len(bug.places) == 2:
        (line, who), (other, whom) = bug.places
        said += f"\n  one order: {whom} does line {other}, then {who} does line {line}; in another order {who} is first"
    return said


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
