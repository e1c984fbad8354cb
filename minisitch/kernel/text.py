"""Emitted text, how to launch it, and what both emitters share: how one statement reads.

In:  statements of the loop program. Out: lines of Python, each naming its graph node and the user's line.

Every literal is written with its dtype (``C0 = np.float32(0.5)`` at the top): Numba would make a
bare ``0.5`` a float64 and the whole loop with it. Integer results are wrapped in their dtype,
since Numba widens ``int32 + int32``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ..graph import Graph, printable
from ..ops import EXACT, OPS, SHORT, compute_dtype, kind_of
from ..stitch.index import Guard, show
from . import ir


@dataclass(frozen=True)
class Launch:
    """One function of the text: what to call, over how many tasks, with which buffers.

    On a CPU there is one for each of ``cpu_emit.calls``, ``name(first, last, *buffers)``, and all tasks of one end
    before the next begins. On a GPU there is one a kernel, ``name[grid, block](*buffers)``.
    """

    name: str
    tasks: int
    work: int
    buffers: tuple[str, ...]
    short: bool = False  # it has loops so short that LLVM would unroll them before it vectorises


@dataclass(frozen=True)
class KernelSource:
    """A kernel as Python source for one target, ready to compile."""

    kernel: ir.Kernel
    target: str  # "cpu" | "cuda"
    text: str
    launches: tuple[Launch, ...]
    exact: bool = True  # whether each value is NumPy's to the last bit; the compilers keep to it

    @property
    def grid(self) -> int:
        return self.kernel.grid

    @property
    def block(self) -> int:
        return self.kernel.block

    def __str__(self) -> str:
        return self.text


@dataclass
class Writer:
    """Lines with indentation; the only state an emitter has."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0
    exact: bool = True  # as ``KernelSource.exact``

    def line(self, text: str, comment: str = "") -> None:
        indented = "    " * self.depth + text
        self.lines.append(f"{indented:<56}  # {printable(comment)}" if comment else indented)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A compound statement: the lines written inside stand under ``head``."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def comment_of(graph: Graph, node_id: int) -> str:
    """``%5 sum  model.py:6 in softmax``."""
    node = graph[node_id]
    origin = node.where + (f" in {node.via}" if node.via else "")
    return f"%{node_id} {node.op}" + (f"  {origin}" if origin else "")


def numpy_name(dtype: str) -> str:
    """How a dtype is written: ``np.float32``, ``np.bool_``."""
    return "np.bool_" if dtype == "bool" else f"np.{dtype}"


# ---------------------------------------------------------------- literals
def literal(dtype: str, value: object) -> str:
    """A typed literal: ``np.float32(0.5)``; float16 constants are rounded, then held in float32."""
    held = compute_dtype(dtype)
    if kind_of(dtype) == "float":
        number = float(np.dtype(dtype).type(value))
        inner = repr(number) if np.isfinite(number) else f"np.{'nan' if number != number else 'inf'}"
        return f"np.{held}({'-' if number == -np.inf else ''}{inner})"
    return str(bool(value)) if dtype == "bool" else f"np.{held}({int(value)})"  # type: ignore[call-overload]


IDENTITY = {"0": ("ZERO", 0), "1": ("ONE", 1), "False": ("FALSE", False), "True": ("TRUE", True)}


def identity_value(op: str, dtype: str) -> object:
    """The neutral element of a reduction in a dtype."""
    word = OPS[op].identity[kind_of(dtype)]
    if word in IDENTITY:
        return IDENTITY[word][1]
    lowest = word == "lowest"
    if kind_of(dtype) == "float":
        return -np.inf if lowest else np.inf
    info = np.iinfo(dtype)
    return int(info.min if lowest else info.max)


def identity_name(op: str, dtype: str) -> str:
    """Its name in emitted text: ``ZERO_f32``, ``LOWEST_f32``."""
    word = OPS[op].identity[kind_of(dtype)]
    name = IDENTITY[word][0] if word in IDENTITY else word.upper()
    return f"{name}_{SHORT[compute_dtype(dtype)]}"


def header(kernel: ir.Kernel) -> list[str]:
    """The module-level constants a kernel uses."""
    found = {name: literal(dtype, value) for name, dtype, value in kernel.constants}
    for nest in (phase.nest for segment in kernel.segments for phase in segment.phases):
        for fold in (s.fold for s, _ in ir.walk(nest) if isinstance(s, ir.Accumulate)):
            held = compute_dtype(fold.dtype)
            found[identity_name(fold.op, fold.dtype)] = literal(held, identity_value(fold.op, held))
        for load in (s for s, _ in ir.walk(nest) if isinstance(s, ir.Load) and s.guard):
            held = compute_dtype(load.dtype)
            found[zero_name(held)] = literal(held, False if held == "bool" else 0)
    return [f"{name} = {text}" for name, text in found.items()]


def zero_name(dtype: str) -> str:
    return f"ZERO_{SHORT[dtype]}"


# ---------------------------------------------------------------- tasks
def task_parts(segment: ir.Segment) -> Iterator[str]:
    """The lines with which both targets begin a task: its chunk of the columns, its slice of the rows."""
    s = segment
    if s.chunks > 1:
        yield f"chunk = task // {s.slices} % {s.chunks}" if s.slices > 1 else f"chunk = task % {s.chunks}"
        yield f"start = chunk * {s.chunk}"
    if s.slices > 1:
        serial = max(p.serial for p in s.phases)
        yield f"slice = task % {s.slices}"
        yield f"ser_first = min(slice * {s.slice_size}, {serial})"
        yield f"ser_last = min(ser_first + {s.slice_size}, {serial})"


# ---------------------------------------------------------------- scalar texts
def scalar(stmt: ir.Compute, column: str, exact: bool = True) -> str:
    """The expression of one operation for a target; ``column`` is ``cpu`` or ``cuda``. With ``exact``, float16 is rounded."""
    op = OPS[stmt.op]
    held, operand = compute_dtype(stmt.dtype), compute_dtype(stmt.operand_dtype)
    if stmt.op == "cast":
        return cast(stmt.args[0], stmt.dtype, stmt.operand_dtype, column)
    texts: Mapping[str, str] = op.cuda if column == "cuda" else op.cpu
    text = texts[kind_of(stmt.operand_dtype)].format(*stmt.args, t=SHORT[operand], T=f"np.{operand}")
    if exact and stmt.dtype == "float16" and stmt.op not in EXACT:
        return rounded_half(text, column)
    wraps = kind_of(stmt.dtype) == "int" and stmt.op not in ("select", "maximum", "minimum")
    return f"np.{held}({text})" if wraps else text


def rounded_half(text: str, column: str) -> str:
    """A float32 rounded to float16, and held in float32 again."""
    return f"half_to_float(float_to_half({text}))" if column == "cpu" else f"np.float32(np.float16({text}))"


def cast(name: str, to: str, of: str, column: str) -> str:
    """A conversion as NumPy makes it; a cast to float16 rounds, though the value stays in float32."""
    if to == "float16":
        if of == "float64":  # by way of float32 it would be rounded twice
            return rounded_half(f"float_to_odd({name})" if column == "cpu" else name, column)
        return rounded_half(name if compute_dtype(of) == "float32" else f"np.float32({name})", column)
    if kind_of(of) == "float" and kind_of(to) == "int":
        return whole_number(name, to, f"np.{compute_dtype(of)}", column)
    texts = OPS["cast"].cuda if column == "cuda" else OPS["cast"].cpu
    if to == "bool" and of == "bool":
        return name
    if of == "bool" and column == "cpu":  # measured: a mask made in a softmax's loops, 7.4 ms converted and 1.7 chosen
        held = f"np.{compute_dtype(to)}"
        return f"select({name}, {held}(1), {held}(0))"
    return texts[kind_of(to)].format(name, T=f"np.{compute_dtype(to)}", S=f"np.{compute_dtype(of)}")


def whole_number(name: str, to: str, of: str, column: str) -> str:
    """A float without its fraction, as NumPy converts it on x86.

    In an unsigned type a number below zero wraps around. Every target converts to signed integers,
    so the upper half of an unsigned type is converted by way of its lower half.
    """
    bits, half = np.iinfo(to).bits, 1 << (np.iinfo(to).bits - 1)
    lower = f"np.int{max(bits, 32)}({name})" if to[0] == "i" and bits >= 32 else f"np.{to}(np.int{max(bits, 32)}({name}))"
    if bits < 32 or to[0] == "i":
        return lower
    is_upper, upper = f"{name} >= {of}({half})", f"np.{to}(np.{to}(np.int{bits}({name} - {of}({half}))) ^ np.{to}({half}))"
    return f"select({is_upper}, {upper}, {lower})" if column == "cpu" else f"({upper} if {is_upper} else {lower})"


def combine(op: str, dtype: str, left: str, right: str, column: str) -> str:
    """One step of a reduction."""
    held = compute_dtype(dtype)
    texts = OPS[op].cuda if column == "cuda" else OPS[op].cpu
    text = texts[kind_of(dtype)].format(left, right)
    narrow = kind_of(dtype) == "int" and op in ("sum", "prod")
    return f"np.{held}({text})" if narrow else text


def guard_text(guard: Guard, totals: Mapping[str, int]) -> str:
    """A condition as an expression without branches."""
    parts = []
    for c in guard:
        low, high = c.index.bounds
        index = show(c.index, totals)
        if low < c.low:
            parts.append(f"({index} >= {c.low})")
        if high >= c.high:
            parts.append(f"({index} < {c.high})")
    return " & ".join(parts) if len(parts) != 1 else parts[0][1:-1]


def statement(stmt: ir.Scalar, column: str, totals: Mapping[str, int], sizes: Mapping[str, tuple[str, int]],
              exact: bool = True) -> str:
    """One statement as one line; ``sizes`` gives each buffer's (or window's) dtype and element count; ``exact``: see ``scalar``."""
    match stmt:
        case ir.Load():
            return f"{stmt.target} = {_load(stmt, column, totals, sizes)}"
        case ir.Compute():
            return f"{stmt.target} = {scalar(stmt, column, exact)}"
        case ir.FromIndex():
            return f"{stmt.target} = {cast(show(stmt.index, totals), stmt.dtype, 'int64', column)}"
        case ir.Clamp():
            return f"{stmt.target} = min(max(np.int64({stmt.source}), 0), {stmt.size - 1})"
        case ir.Choose(guard=()):
            return f"{stmt.target} = {stmt.value}"
        case ir.Choose():
            condition = guard_text(stmt.guard, totals)
            chosen = f"select({condition}, {stmt.value}, {stmt.other})"
            return f"{stmt.target} = {chosen if column == 'cpu' else f'{stmt.value} if {condition} else {stmt.other}'}"
        case ir.Store():
            return f"{stmt.buffer}[{show(stmt.index, totals)}] = {_stored(stmt, column, sizes)}"


def _load(stmt: ir.Load, column: str, totals: Mapping[str, int], sizes: Mapping[str, tuple[str, int]]) -> str:
    index = show(stmt.index, totals)
    dtype, size = sizes[stmt.buffer]
    if stmt.clamp:
        low, high = stmt.index.bounds
        if low < 0:
            index = f"max({index}, 0)"
        if high >= size:
            index = f"min({index}, {size - 1})"
    text = f"{stmt.buffer}[{index}]"
    if dtype == "float16":
        text = f"half_to_float({text})" if column == "cpu" else f"np.float32({text})"
    if not stmt.guard:
        return text
    condition, zero = guard_text(stmt.guard, totals), zero_name(compute_dtype(dtype))
    return f"select({condition}, {text}, {zero})" if stmt.harmless else f"{text} if {condition} else {zero}"


def _stored(stmt: ir.Store, column: str, sizes: Mapping[str, tuple[str, int]]) -> str:
    if sizes[stmt.buffer][0] != "float16":
        return stmt.value
    return f"float_to_half({stmt.value})" if column == "cpu" else f"np.float16({stmt.value})"


# ---------------------------------------------------------------- printing a nest
class Printer:
    """Prints the nest of a segment. Each target adds the statements that it writes in its own way.

    ``column`` is ``cpu`` or ``cuda``: the column of the table of operations.
    """

    column = ""

    def __init__(self, kernel: ir.Kernel, segment: ir.Segment, writer: Writer) -> None:
        self.kernel, self.segment, self.w = kernel, segment, writer
        self.sizes = {b.name: (b.dtype, b.size) for b in kernel.buffers}
        self.sizes |= {w.name: (self.sizes[w.buffer][0], w.length) for w in segment.windows.values()}

    def nest(self, nest: ir.Nest, totals: Mapping[str, int]) -> None:
        """All statements in order; ``totals`` are the extents of the variables around them."""
        totals = {**totals, **ir.extents(nest)}
        for stmt in nest:
            self.statement(stmt, totals)

    def inside(self, head: str, body: ir.Nest, totals: Mapping[str, int]) -> None:
        """A compound statement of Python."""
        with self.w.block(head):
            self.nest(body, totals)
            if not body:
                self.w.line("pass")

    def statement(self, stmt: ir.Stmt, totals: Mapping[str, int]) -> None:
        """One statement with what is inside it."""
        match stmt:
            case ir.Loop():
                self.inside(f"for {stmt.var} in range({stmt.range}):", stmt.body, totals)
            case ir.If():
                self.inside(f"if {stmt.condition}:", stmt.body, totals)
            case ir.Let():
                self.w.line(f"{stmt.name} = {stmt.text}")
            case ir.Start(fold):
                total, lost = self.accumulator(fold, totals)
                self.w.line(f"{f'{total} = {lost}' if lost else total} = {self.held(fold, identity_name(fold.op, fold.dtype))}",
                            self.comment(fold.node))
            case ir.Accumulate(fold):
                self.accumulate(fold, totals)
            case ir.Combine(folds):
                self.combine(folds, totals)
            case ir.Store() if stmt.guard:
                self.inside(f"if {guard_text(stmt.guard, totals)}:", (replace(stmt, guard=()),), totals)
            case _:
                assert isinstance(stmt, ir.Scalar), stmt
                self.w.line(statement(stmt, self.column, totals, self.sizes, self.w.exact), self.comment(stmt.node))

    def comment(self, node: int) -> str:
        """What a line computes, and where the user wrote it."""
        return comment_of(self.kernel.graph, node)

    # ------------------------------------------------------------ reductions
    def accumulator(self, fold: ir.Fold, totals: Mapping[str, int]) -> tuple[str, str]:
        """Where a fold adds up, and where it keeps what rounding took from it."""
        cell = f"[{show(fold.cell, totals)}]" if fold.buffer else ""
        return (fold.buffer or fold.result) + cell, fold.lost and fold.lost + cell

    def held(self, fold: ir.Fold, value: str) -> str:
        """A value in the dtype of the fold's accumulator."""
        return value

    def combined(self, fold: ir.Fold, left: str, right: str) -> str:
        """One step of a fold."""
        return combine(fold.op, fold.dtype, left, right, self.column)

    def accumulate(self, fold: ir.Fold, totals: Mapping[str, int]) -> None:
        """Add one more value to a fold's accumulator."""
        (total, lost), value = self.accumulator(fold, totals), self.held(fold, fold.value)
        text = self.combined(fold, total, value)
        text = f"{total} += {value}" if text == f"{total} + {value}" else f"{total} = {text}"
        self.w.line(f"{total}, {lost} = kahan_add({total}, {lost}, {value})" if lost else text, self.comment(fold.node))

    def combine(self, folds: Sequence[ir.Fold], totals: Mapping[str, int]) -> None:
        """Complete results in registers, in their own dtype.

        A sum of float16 was added up in float32, and is rounded now. Partial results are not.
        """
        for fold in folds:
            if fold.buffer:
                self.w.line(f"{fold.result} = {self.accumulator(fold, totals)[0]}", self.comment(fold.node))
            if self.w.exact and fold.dtype == "float16" and fold.op in ("sum", "prod") and not fold.partial:
                self.w.line(f"{fold.result} = {rounded_half(fold.result, self.column)}")
