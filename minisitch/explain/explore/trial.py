"""One kernel with its arguments: its film, and what becomes of it when its text is changed.

In:  a kernel's text and a launch, of the compiler (``trial_of``) or of a student. Out: verdicts, for
the page.

A changed text is data, never Python: ``simt.dialect`` refuses all that is not kernel language, and
the stepper's limits end every launch. ``changes`` lists what a student can take out with one click:
each barrier and each guard.
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ... import simt
from ...errors import KernelBug, MinisitchError
from ...kernel.text import KernelSource
from ...stitch.windows import WindowBody
from ...testing.judge import judge
from .frames import Reel, drawn, film
from .orders import orders

MOST_CELLS = 20_000  # of a kernel's arguments: more would take longer than a student waits
SEEDS = 4
ROUNDS = 100_000  # of all loops of all threads, besides some for each cell
# No other seed changes these verdicts.
CERTAIN = ("race", "outside-dialect", "float64-literal", "memory-limit", "endless", "launch")


class Change(NamedTuple):
    """What can be taken out of a text: the line, what it is, and the line without it."""

    line: int
    what: str  # "barrier" or "guard"
    text: str

    def made_in(self, text: str) -> str:
        """A text with this change."""
        lines = text.splitlines()
        return "\n".join([*lines[:self.line - 1], self.text, *lines[self.line:]])


@dataclass(frozen=True)
class KernelTrial:
    """A kernel that can be stepped again and again.

    ``start`` holds the arguments at the launch. ``inputs`` and ``outputs`` are those of ``simt.step``,
    and ``options`` holds others. ``wrong`` says what is wrong with the arrays that a
    launch leaves; it is None if nobody knows. ``drawn`` has the kernel's arrays for the page.
    """

    name: str
    text: str
    grid: int
    block: int
    start: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    drawn: tuple[dict[str, Any], ...]
    wrong: Callable[[Mapping[str, Any]], str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """The elements of its arguments."""
        return sum(np.size(each) for each in self.start.values())

    @property
    def rounds(self) -> int:
        """Of all loops of all threads of one launch."""
        return ROUNDS + 20 * self.cells

    def fresh(self) -> dict[str, Any]:
        """The arguments of a new launch."""
        return {name: np.array(each) if isinstance(each, np.ndarray) else each for name, each in self.start.items()}

    def verdict(self, text: str) -> dict[str, Any]:
        """The verdict of ``step`` that teaches most: a race, or else another refusal.

        A missing barrier is a race under one seed, and a read of an unwritten cell under another. A
        text without atomic operations that is accepted under one seed is accepted under all.
        """
        found: list[dict[str, Any]] = []
        for seed in range(SEEDS):
            found.append(self.step(text, seed))
            if found[-1]["rule"] in CERTAIN or (found[-1]["ok"] and "atomic" not in text):
                return found[-1]
        return next((verdict for verdict in found if not verdict["ok"]), found[0])

    def step(self, text: str, seed: int = 0) -> dict[str, Any]:
        """What the stepper says about a text of this kernel under one seed.

        ``ok`` is whether it was accepted. ``rule``, ``message`` and ``places`` are those of a
        refusal, without its advice: what to write is for the student to find. ``orders`` is what a
        race does to the numbers. ``right`` is whether an accepted text leaves the right numbers,
        None if nobody knows, and ``counts`` is its traffic.
        """
        arrays, reel, found = self.fresh(), Reel(), None
        said: dict[str, Any] = {"ok": False, "rule": "launch", "message": "", "places": [], "orders": []}
        try:
            traffic = simt.step(text, arrays, self.grid, self.block, seed, inputs=self.inputs, outputs=self.outputs,
                                rounds=self.rounds, record=reel, **self.options)
            wrong = self.wrong(arrays) if self.wrong else ""
            said |= {"ok": True, "rule": "", "right": not wrong if self.wrong else None, "message": wrong, "counts": str(traffic)}
        except KernelBug as bug:
            found = bug
            message = str(bug).replace(bug.advice, "", 1).partition("\n")[0]
            said |= {"rule": bug.rule, "message": message, "orders": orders(self, text, bug), "places": list(map(list, bug.places))}
        except MinisitchError as problem:
            said["message"] = str(problem)
        return {**said, "film": film(reel, text, {name: np.shape(each) for name, each in self.start.items()}, found)}


def trial_of(source: KernelSource, body: WindowBody, values: Sequence[np.ndarray]) -> KernelTrial:
    """A kernel of the compiler. ``values`` are its body's inputs, in order."""
    kernel, graph = source.kernel, body.graph
    held = dict(zip([b.name for b in kernel.buffers if b.scope == "input"], values, strict=False))
    start = {b.name: held[b.name].reshape(-1)[:b.size] if b.name in held else np.zeros(b.size, b.dtype) for b in kernel.parameters}
    pictures = []
    for b in kernel.buffers:
        if b.scope != "register" and kernel.owners[b.name] == b.name:
            node = graph[b.node]
            shape = node.type.shape if node.type.size == b.size else (b.size,)
            words = f"{b.scope}, %{body.origin[b.node]} {node.op}, {b.dtype}{list(shape)}"
            pictures.append(drawn(b.name, "shared" if b.scope == "shared" else "global", shape, words, held.get(b.name)))

    def wrong(arrays: Mapping[str, Any]) -> str:
        made = [arrays[f"y{k}"].reshape(graph[o].type.shape) for k, o in enumerate(graph.outputs)]
        return "; ".join(each.why for each in judge(graph, values, made) if not each.ok)

    inputs, outputs = (tuple(b.name for b in kernel.parameters if b.scope == scope) for scope in ("input", "output"))
    return KernelTrial(kernel.name, source.text, kernel.grid, kernel.block, start, inputs, outputs, tuple(pictures), wrong,
                       {"wave": kernel.grid})


def given(body: WindowBody, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The inputs of a body, from the values of all nodes of the whole graph.

    A kernel sees each input from its offset on, so the rest of it is moved to the front.
    """
    found = []
    for whole, offset, own in zip(body.inputs, body.offsets, body.graph.inputs, strict=True):
        flat = np.zeros(body.graph[own].type.size, values[whole].dtype)
        rest = values[whole].reshape(-1)[offset:]
        flat[:len(rest)] = rest[:len(flat)]
        found.append(flat.reshape(body.graph[own].type.shape))
    return tuple(found)


def changes(text: str) -> list[Change]:
    """Every barrier and guard of a kernel's text. A line keeps its number when one is taken out.

    Before:  cuda.syncthreads()       After:  pass
    Before:  if lane == 0:            After:  if True:
    Before:  v = x[i] if ok else 0    After:  v = x[i]
    """
    lines = text.splitlines()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # the verdict says so
    found = {change.line: change for node in ast.walk(tree) for change in _changes(node, lines)}
    return [found[line] for line in sorted(found)]


def _changes(node: ast.AST, lines: Sequence[str]) -> Iterator[Change]:
    """What can be done to one node of a text."""
    where: ast.stmt | ast.expr
    if isinstance(node, ast.Expr) and "sync" in ast.unparse(node.value).partition("(")[0]:
        where, what, instead = node, "barrier", "pass"
    elif isinstance(node, ast.If) and not node.orelse:
        where, what, instead = node.test, "guard", "True"
    elif isinstance(node, ast.IfExp):
        where, what, instead = node, "guard", ast.unparse(node.body)
    else:
        return
    if where.lineno == where.end_lineno:
        line, first, end = lines[where.lineno - 1], where.col_offset, where.end_col_offset
        yield Change(where.lineno, what, line[:first] + instead + line[end:])
