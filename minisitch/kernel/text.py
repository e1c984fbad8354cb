"""Emitted text, how to launch it, and what both emitters share: how one statement reads.

In:  statements of the loop program. Out: lines of Python, each naming its graph node and the user's
line.

Every literal is written with its dtype (``C0 = np.float32(0.5)`` at the top): Numba would make a
bare ``0.5`` a float64 and the whole loop with it. Integer results are wrapped in their dtype,
since Numba widens ``int32 + int32``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import needs
from ..errors.printed import Printed
from ..graph import printable
from ..ops import EXACT, OPS, SHORT, Texts, compute_dtype, kind_of
from ..stitch.index import ZERO, Guard, Index, show, whole
from . import Kernel, ir


@dataclass(frozen=True)
class Launch:
    """One function of the text, and the buffers to call it with.

    On a CPU there is one for each of ``cpu_emit.calls``, ``name(first, last, *buffers)``, and all
    tasks of one end before the next begins. On a GPU there is one a kernel, ``name[grid,
    block](*buffers)``.
    """

    name: str
    tasks: int  # on a GPU: the number of blocks
    buffers: tuple[str, ...]
    work: int = 0  # of all tasks, on a CPU (``nests.work_of``)
    short: bool = False  # it has loops so short that LLVM would unroll them before it vectorises


@dataclass(frozen=True, repr=False)
class KernelSource(Printed):
    """A kernel as Python source for one target, ready to compile."""

    kernel: Kernel
    target: str  # "cpu" | "cuda"
    text: str
    launches: tuple[Launch, ...]
    exact: bool = True  # whether each value is NumPy's to the last bit; the compilers keep to it

    def __str__(self) -> str:
        return self.text


@dataclass
class Writer:
    """The lines of a text, and how deep the next one is indented."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0
    exact: bool = True  # as ``KernelSource.exact``

    def line(self, text: str, comment: str = "") -> None:
        indented = "    " * self.depth + text
        self.lines.append(f"{indented:<56}  # {printable(comment)}" if comment else indented)

    @contextmanager
    def indented(self, head: str) -> Iterator[None]:
        """A compound statement: the lines written inside stand under ``head``."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def numpy_name(dtype: str) -> str:
    """How a dtype is written: ``np.float32``, ``np.bool_``."""
    return "np.bool_" if dtype == "bool" else f"np.{dtype}"


# ---------------------------------------------------------------- literals
def literal(dtype: str, value: object) -> str:
    """A typed literal: ``np.float32(0.5)``; float16 constants are rounded, then held in float32."""
    held = compute_dtype(dtype)
    if kind_of(dtype) == "float":
        number = float(np.dtype(dtype).type(value))
        inner = repr(number) if np.isfinite(number) else f"np.{abs(number)}"
        return f"np.{held}({'-' if number == -np.inf else ''}{inner})"
    return str(bool(value)) if dtype == "bool" else f"np.{held}({int(value)})"  # type: ignore[call-overload]


NEUTRAL = {"ZERO": 0, "ONE": 1, "FALSE": False, "TRUE": True}


def identity_value(op: str, dtype: str) -> object:
    """The neutral element of a reduction in a dtype."""
    name = OPS[op].identity
    if name in NEUTRAL:
        return NEUTRAL[name]
    if kind_of(dtype) == "float":
        return -np.inf if name == "LOWEST" else np.inf
    info = np.iinfo(dtype)
    return info.min if name == "LOWEST" else info.max


def identity_name(op: str, dtype: str) -> str:
    """Its name in emitted text: ``ZERO_f32``, ``LOWEST_f32``."""
    return f"{OPS[op].identity}_{SHORT[compute_dtype(dtype)]}"


def literals(kernel: Kernel) -> dict[str, str]:
    """The module-level constants a kernel uses. Refuses what is no kernel, for both emitters."""
    needs("emit(minisitch.lower(f, x, stop_after='schedule')[0])",
          (kernel, Kernel))
    found = {name: literal(dtype, value)
             for name, dtype, value in kernel.constants}
    for nest in (phase.nest for segment in kernel.segments
                 for phase in segment.phases):
        starts = [(s.fold.op, s.fold.dtype)
                  for s in ir.each(nest, ir.Accumulate)]
        # what a load gives if its guard fails
        starts += [("sum", load.dtype)
                   for load in ir.each(nest, ir.Load) if load.guard]
        for op, dtype in starts:
            held = compute_dtype(dtype)
            found[identity_name(op, dtype)] = literal(held, identity_value(op, held))
    return found


# ---------------------------------------------------------------- templates
def template(op: str, dtype: str, target: str) -> str:
    """How an operation on operands of a dtype is written for a ``target``: ``cpu`` or ``cuda``."""
    texts: Texts = getattr(OPS[op], target)
    return texts[kind_of(dtype)]


def fold_step(op: str, dtype: str, left: str, right: str, target: str) -> str:
    """One step of a reduction."""
    text = template(op, dtype, target).format(left, right)
    narrow = kind_of(dtype) == "int" and op in ("sum", "prod")
    return f"np.{compute_dtype(dtype)}({text})" if narrow else text


# ---------------------------------------------------------------- printing a nest
class Printer:
    """Prints the nest of a segment. Each target adds the statements that it writes in its own way.

    ``target`` is ``cpu`` or ``cuda``: operations have a text for each. ``extents`` are the
    extents of the variables around a statement. ``takers`` has for each ``Loop.by`` that several
    share the number of a taker, and how many there are. ``named``: texts that have a variable.
    """

    target = ""
    takers: Mapping[str, tuple[str, int]] = {}

    def __init__(self, kernel: Kernel, segment: ir.Segment, writer: Writer) -> None:
        self.kernel = kernel
        self.segment = segment
        self.w = writer
        self.extents = segment.extents()
        self.named: dict[str, str] = {}
        self.sizes = {b.name: (b.dtype, b.size) for b in kernel.buffers}
        self.sizes |= {w.name: (self.sizes[w.buffer][0], w.length)
                       for w in segment.windows.values()}

    def name(self, name: str, text: str) -> None:
        """A variable of the task. It stands for its text from here on."""
        self.w.line(f"{name} = {text}")
        self.named[text] = name

    def open_parts(self) -> None:
        """Both targets begin a task like this: with its chunk of columns, its slice of rows."""
        w, s = self.w, self.segment
        if s.chunks > 1:
            of_task = f"task // {s.slices}" if s.slices > 1 else "task"
            w.line(f"chunk = {of_task} % {s.chunks}")
            if s.columns:
                w.line(f"start = chunk * {s.chunk}")
        if s.slices > 1:
            w.line(f"slice = task % {s.slices}")

    def phases(self) -> None:
        """What a task does."""
        for phase in self.segment.phases:
            self.nest(phase.nest, self.segment.extents(phase))

    def nest(self, nest: ir.Nest, extents: dict[str, int] | None = None) -> None:
        """All statements in order."""
        around = self.extents
        self.extents = (extents or around) | ir.extents(nest)
        for stmt in nest:
            self.statement(stmt)
        self.extents = around

    def inside(self, head: str, body: ir.Nest) -> None:
        """A compound statement of Python."""
        with self.w.indented(head):
            self.nest(body)
            if not body:
                self.w.line("pass")

    def statement(self, stmt: ir.Stmt) -> None:
        """One statement with what is inside it."""
        match stmt:
            case ir.Loop():
                self.inside(f"for {stmt.var} in range({self.turns(stmt)}):", stmt.body)
            case ir.If():
                self.inside(f"if {self.condition(stmt.guard)}:", stmt.body)
            case ir.Let():
                self.w.line(f"{stmt.name} = {self.index(stmt.value)}")
            case ir.Start(fold):
                total, lost = self.accumulator(fold)
                start = identity_name(fold.op, fold.dtype)
                self.line(f"{f'{total} = {lost}' if lost else total} = {start}", fold.node)
            case ir.Accumulate(fold):
                self.accumulate(fold)
            case ir.Combine(folds):
                self.combine(folds)
            case ir.Store() if stmt.guard:
                self.inside(f"if {self.guard(stmt.guard)}:",
                            (replace(stmt, guard=()),))
            case ir.Store():
                half = self.sizes[stmt.buffer][0] == "float16"
                value = self.narrowed(stmt.value) if half else stmt.value
                self.line(f"{stmt.buffer}[{self.index(stmt.index)}] = {value}", stmt.node)
            case _:
                assert isinstance(stmt, ir.Scalar), stmt
                self.line(f"{stmt.target} = {self.value(stmt)}", stmt.node)

    # ------------------------------------------------------------ who takes which turns
    def turns(self, loop: ir.Loop) -> str:
        """The arguments of ``range``: a taker's first turn, the end of all turns, how many take turns."""
        own, takers = self.takers.get(loop.by, ("", 1))
        mine = [c for c in loop.within if loop.var in c.index.variables]
        others = tuple(c for c in loop.within if c not in mine)
        factor = max((c.index.times(loop.var) for c in mine), default=1)
        # the ends of the variable's multiples, by what the loops around take from them
        ends = {ZERO: [(loop.first + loop.turns * loop.step) * factor]}
        for c in mine:
            start = whole("start") * c.index.times("start")
            around = c.index + whole(loop.var) * -factor + start * -1
            ends.setdefault(around, []).append(start * -1 + c.high)
        last = self._least([self._end(each) + f" - {self.index(around)}" * bool(around.terms) for around, each in ends.items()])
        last = last if factor == 1 else f"-(-{last} // {factor})"
        last = f"{last} if {self.condition(others)} else 0" if others else last
        firsts = [self.index(loop.first)] * (loop.first != ZERO) + [str(c.low) for c in mine if c.low > 0]
        first = f"max({', '.join(firsts)})" if len(firsts) > 1 else "".join(firsts)
        own = f"{own} * {loop.step}" if own and loop.step > 1 else own
        first = " + ".join(filter(None, [first, own]))
        if takers * loop.step > 1 or own:
            return f"{first or 0}, {last}, {takers * loop.step}"
        return f"{first}, {last}" if first else last

    def condition(self, guard: Guard) -> str:
        """The condition of a branch: each variable is less than the least of its ends."""
        ends: dict[str, list[Index]] = {}
        firsts: list[str] = []
        for c in guard:
            less = Index(0, tuple(term for term in c.index.terms if term[0] < 0))
            name = self.index(c.index + less * -1)
            ends.setdefault(name, []).append(less * -1 + c.high)
            firsts += [f"{name} >= {self._difference(less * -1 + c.low)}"] * (c.low > 0)
        for name, last in ends.items():
            text = f"{name} < {self._end(last)}"
            firsts.append(self.named.get(text, f"{name} == 0" if last == [Index(1)] else text))
        return " and ".join(firsts)

    def _end(self, ends: Sequence[Index]) -> str:
        """The least of some ends, as text. Numbers are compared here."""
        least = min((i.const for i in ends if not i.terms), default=0)
        return self._least([self._difference(i) if i.terms else str(least) for i in ends])

    def _difference(self, index: Index) -> str:
        """The index as text. ``12 - start``, not ``-start + 12``."""
        positive = index.const and all(c > 0 for c, _ in index.terms)
        return self.index(index) if positive or not index.const else f"{index.const} - {self.index((index + -index.const) * -1)}"

    def _least(self, texts: Sequence[str]) -> str:
        different = list(dict.fromkeys(texts))
        text = f"min({', '.join(different)})" if len(different) > 1 else different[0]
        return self.named.get(text, text)

    def line(self, text: str, node_id: int) -> None:
        """A line, what it computes, and where the user wrote that: ``%5 sum  model.py:6 in softmax``."""
        node = self.kernel.graph[node_id]
        origin = node.where + (f" in {node.via}" if node.via else "")
        self.w.line(text, f"%{node_id} {node.op}" + (f"  {origin}" if origin else ""))

    # ------------------------------------------------------------ scalar statements
    def index(self, index: Index) -> str:
        """An index as text."""
        return show(index, self.extents)

    def guard(self, guard: Guard) -> str:
        """A condition as an expression without branches."""
        parts = []
        for c in guard:
            low, high = c.index.bounds
            if low < c.low:
                parts.append(f"({self.index(c.index)} >= {c.low})")
            if high >= c.high:
                parts.append(f"({self.index(c.index)} < {c.high})")
        return " & ".join(parts) if len(parts) != 1 else parts[0][1:-1]

    def chosen(self, condition: str, value: str, other: str) -> str:
        """One of two values."""
        return f"{value} if {condition} else {other}"

    def value(self, stmt: ir.Value) -> str:
        """The expression of a statement that gives a name a value."""
        match stmt:
            case ir.Load():
                return self._loaded(stmt)
            case ir.Compute(op="cast"):
                return self.cast(stmt.args[0], stmt.dtype, stmt.operand_dtype)
            case ir.Compute():
                return self._computed(stmt)
            case ir.FromIndex():
                return self.cast(self.index(stmt.index), stmt.dtype, "int64")
            case ir.Clamp():
                return f"min(max(np.int64({stmt.source}), 0), {stmt.size - 1})"
            case ir.Choose():
                return self.chosen(self.guard(stmt.guard), stmt.value, stmt.other) if stmt.guard else stmt.value

    def _loaded(self, stmt: ir.Load) -> str:
        index = self.index(stmt.index)
        dtype, size = self.sizes[stmt.buffer]
        if stmt.clamp:
            low, high = stmt.index.bounds
            if low < 0:
                index = f"max({index}, 0)"
            if high >= size:
                index = f"min({index}, {size - 1})"
        text = f"{stmt.buffer}[{index}]"
        if dtype == "float16":
            text = self.widened(text)
        if not stmt.guard:
            return text
        condition = self.guard(stmt.guard)
        zero = identity_name("sum", dtype)
        if stmt.buffer in self.segment.windows:  # all of a window can be read
            return self.chosen(condition, text, zero)
        return f"{text} if {condition} else {zero}"

    def _computed(self, stmt: ir.Compute) -> str:
        operand = compute_dtype(stmt.operand_dtype)
        text = template(stmt.op, operand, self.target).format(*stmt.args, t=SHORT[operand], T=f"np.{operand}")
        if self.w.exact and stmt.dtype == "float16" and stmt.op not in EXACT:
            return self.rounded_half(text)
        wraps = kind_of(stmt.dtype) == "int" and stmt.op not in ("select", "maximum", "minimum")
        return f"np.{stmt.dtype}({text})" if wraps else text

    # ------------------------------------------------------------ conversions
    def narrowed(self, text: str) -> str:
        """A float as float16."""
        return f"np.float16({text})"

    def widened(self, text: str) -> str:
        """A float16 as float32."""
        return f"np.float32({text})"

    def rounded_half(self, text: str) -> str:
        """A float32 rounded to float16, and held in float32 again."""
        return self.widened(self.narrowed(text))

    def cast(self, name: str, to: str, of: str) -> str:
        """A conversion as NumPy makes it. A cast to float16 rounds, and stays in float32."""
        is_float = kind_of(of) == "float"
        source = f"np.{compute_dtype(of)}"
        if to == "float16":
            return self.rounded_half(name if is_float else f"np.float32({name})")
        if is_float and kind_of(to) == "int":
            return self.whole_number(name, to, source)
        if to == of == "bool":
            return name
        text = template("cast", to, self.target)
        return text.format(name, T=f"np.{compute_dtype(to)}", S=source)

    def whole_number(self, name: str, to: str, of: str) -> str:
        """A float without its fraction, as NumPy converts it on x86.

        In an unsigned type a number below zero wraps around. Every target converts to signed
        integers, so the upper half of an unsigned type is converted by way of its lower half.
        """
        bits = np.iinfo(to).bits
        half, width = 1 << (bits - 1), max(bits, 32)
        lower = f"np.int{width}({self.fitting(name, of, width)})"
        if bits < 32 or to[0] == "u":
            lower = f"np.{to}({lower})"
        if bits < 32 or to[0] == "i":
            return lower
        upper = f"np.{to}(np.{to}(np.int{bits}({name} - {of}({half}))) ^ np.{to}({half}))"
        return self.chosen(f"{name} >= {of}({half})", upper, lower)

    def fitting(self, name: str, of: str, width: int) -> str:
        """A float, or what it must become before it is a signed integer of ``width`` bits."""
        return name

    # ------------------------------------------------------------ reductions
    def accumulator(self, fold: ir.Fold) -> tuple[str, str]:
        """Where a fold adds up, and where it keeps what rounding took from it."""
        cell = f"[{self.index(fold.cell)}]" if fold.buffer else ""
        return (fold.buffer or fold.result) + cell, fold.lost and fold.lost + cell

    def accumulate(self, fold: ir.Fold) -> None:
        """Add one more value to a fold's accumulator."""
        total, lost = self.accumulator(fold)
        step = fold_step(fold.op, fold.dtype, total,
                         fold.value, self.target)
        text = f"{total} = {step}"
        if lost:
            text = f"{total}, {lost} = kahan_add({total}, {lost}, {fold.value})"
        elif step == f"{total} + {fold.value}":
            text = f"{total} += {fold.value}"
        self.line(text, fold.node)

    def combine(self, folds: Sequence[ir.Fold]) -> None:
        """Complete results in registers, in their own dtype.

        A sum of float16 was added up in float32, and is rounded now. Partial results are not.
        """
        for fold in folds:
            if fold.buffer:
                self.line(f"{fold.result} = {self.accumulator(fold)[0]}", fold.node)
            if self.w.exact and fold.dtype == "float16" and fold.op in ("sum", "prod"):
                self.w.line(f"{fold.result} = {self.rounded_half(fold.result)}")
