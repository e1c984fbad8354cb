"""One kernel with its arrays: its film, and what becomes of it when its text is changed.

In:  a kernel of lowered ``Stages``, and the values of its inputs. Out: verdicts, for the page.

A changed text is data, never Python: ``simt.dialect`` refuses all that is not kernel language, and
the stepper's limits end every launch. ``changes`` lists what a student can take out with one click:
each barrier and each guard.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ... import simt
from ...errors import KernelBug, MinisitchError
from ...kernel.text import KernelSource
from ...simt.record import FilmEvent
from ...stitch.windows import WindowBody
from ...testing.judge import judge
from .frames import Reel, drawn, film

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


@dataclass(frozen=True)
class KernelTrial:
    """A kernel that can be stepped again and again. ``values`` are its body's inputs, in order."""

    source: KernelSource
    body: WindowBody
    values: tuple[np.ndarray, ...]

    @property
    def cells(self) -> int:
        """The elements of its arguments."""
        return sum(b.size for b in self.source.kernel.parameters)

    def arrays(self) -> list[dict[str, Any]]:
        """The kernel's arrays as the page draws them: arguments, then shared memory."""
        kernel, inputs = self.source.kernel, iter(self.values)
        found = []
        for b in kernel.buffers:
            given = next(inputs) if b.scope == "input" else None
            if b.scope == "register" or kernel.owners[b.name] != b.name:
                continue
            node = kernel.graph[b.node]
            shape = node.type.shape if node.type.size == b.size else (b.size,)
            words = f"{b.scope}, %{self.body.origin[b.node]} {node.op}, {b.dtype}{list(shape)}"
            space = "shared" if b.scope == "shared" else "global"
            found.append(drawn(b.name, space, shape, words, given))
        return found

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
        refusal. ``right`` is whether an accepted text computes what the graph means, and ``counts``
        is its traffic.
        """
        arrays, reel = self._fresh(), Reel()
        said: dict[str, Any] = {"ok": False, "rule": "launch", "message": "", "places": []}
        try:
            traffic = self._launch(text, arrays, reel, seed)
        except KernelBug as bug:
            message = str(bug).partition("\n")[0]
            return {**said, "rule": bug.rule, "message": message,
                    "places": list(map(list, bug.places)), "film": film(reel, text, bug)}
        except MinisitchError as problem:
            return {**said, "message": str(problem), "film": film(reel, text)}
        found = judge(self.body.graph, self.values, self._results(arrays))
        wrong = "; ".join(each.why for each in found if not each.ok)
        return {**said, "ok": True, "rule": "", "right": not wrong, "message": wrong,
                "counts": str(traffic), "film": film(reel, text)}

    def events(self) -> list[FilmEvent]:
        """The film of the kernel's own text. Raises MinisitchError if the stepper refuses it."""
        self._launch(self.source.text, self._fresh(), reel := Reel(), 0)
        return reel

    def _launch(self, text: str, arrays: dict[str, np.ndarray], reel: Reel, seed: int) -> simt.Traffic:
        inputs, outputs = ([b.name for b in self.source.kernel.parameters if b.scope == scope]
                           for scope in ("input", "output"))
        return simt.step(text, arrays, self.source.kernel.grid, self.source.kernel.block, seed,
                         wave=self.source.kernel.grid, inputs=inputs, outputs=outputs,
                         rounds=ROUNDS + 20 * self.cells, record=reel)

    def _fresh(self) -> dict[str, np.ndarray]:
        """The arguments of a launch: inputs with their values, the others empty."""
        inputs, found = iter(self.values), {}
        for b in self.source.kernel.parameters:
            found[b.name] = np.zeros(b.size, b.dtype)
            if b.scope == "input":
                found[b.name][:] = next(inputs).reshape(-1)[:b.size]
        return found

    def _results(self, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
        graph = self.body.graph
        return [arrays[f"y{k}"].reshape(graph[o].type.shape) for k, o in enumerate(graph.outputs)]


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
    lines, tree = text.splitlines(), ast.parse(text)
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
