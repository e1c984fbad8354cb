"""One trace in progress: makes nodes, finds the user's line, holds captured arrays.

In:  requests for nodes from the handlers of ``trace``. Out: the ``Builder`` that grows the graph.

A node's ``where`` is the innermost stack frame of the user's own code. Its ``via`` is the composite
that made it (``var``, ``argmax``), else the user's function with that line.

A traced function may catch our refusal itself, and then takes a branch that NumPy would not take.
So refusals are remembered, and ``require_honest`` raises one that was caught.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ..errors import LoopWarning, TraceError
from ..graph import Node, TensorType
from ..ops import OPS, SHORT
from .builder import Builder, constant_value, iota_value

SMALL = 1 << 12  # bytes of outside arrays whose contents each call compares
ACTIVE: ContextVar[Recorder | None] = ContextVar("active recorder", default=None)

KEPT = 16  # values remembered while tracing
MOST_KNOWN = 1 << 28  # elements that a trace computes: a second or two
MANY, MOST = 2_000, 200_000  # operations: of one loop, with a warning; of a program, refused
UNROLLED = ("Write it over whole arrays: slices, np.where, sums and products over an axis. "
            "Or jit the body alone, and call that in a loop outside of it")

_TRACER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(_TRACER)), "")
_NUMPY = os.path.join(os.path.dirname(os.path.abspath(np.__file__)), "")
_ENTRY = os.path.join(_TRACER, "__init__.py")
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")


def user_file(path: str) -> str:
    """The name of a user's source file. Empty for files of this package, NumPy and libraries.

    The file of the traced function always counts as the user's, also ``minisitch/explain/demo.py``.
    """
    return file_name(_user_file(path, _program()))


@cache
def _user_file(path: str, program: str) -> str:
    ours = path.startswith((_PACKAGE, _NUMPY, _STDLIB, "<frozen", "<__array", "<minisitch"))
    library = (ours or f"{os.sep}site-packages{os.sep}" in path) and path != program
    return "" if library else path


def file_name(path: str) -> str:
    """``model.py`` for a file, and ``In [3]`` for the third cell of a notebook.

    IPython itself calls a cell by its number, ``("Cell", "In[3]")``: its file is made up.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    names = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(path)
    return names[1].replace("In[", "In [") if names else os.path.basename(path)


def is_inside(path: str, program: str) -> bool:
    """Whether a source file is this package's or NumPy's, and not the traced function's."""
    return path.startswith((_PACKAGE, _NUMPY, "<__array", "<minisitch")) and path != program


def _program() -> str:
    recorder = ACTIVE.get()
    return recorder.program if recorder else ""


def program_file(fn: Callable) -> str:
    """The source file of a function to be traced. Empty if it is ours, NumPy's, or unknown."""
    code = _program_code(fn)
    return "" if code is None or code.co_filename.startswith((_TRACER, _NUMPY)) else code.co_filename


def program_line(fn: Callable) -> tuple[str, str]:
    """The line where a function begins, in the form of ``user_line``.

    For errors that belong to no single line.
    """
    code = _program_code(fn)
    return (f"{file_name(code.co_filename)}:{code.co_firstlineno}",
            code.co_name) if code else ("", "")


def _program_code(fn: Callable) -> CodeType | None:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    return getattr(fn, "__code__", None) or getattr(vars(type(fn)).get("__call__"), "__code__",
                                                    None)


def user_line() -> tuple[str, str]:
    """``("model.py:12", "softmax")``: the user's current line and its function.

    After the program's last line it is its first one: the line around is its caller's.
    """
    recorder = ACTIVE.get()
    if recorder is not None and (recorder.line or recorder.ended):
        return recorder.line or recorder.begins
    frame = user_frame()
    if frame is None:
        return "", ""
    return f"{user_file(frame.f_code.co_filename)}:{frame.f_lineno}", _function_name(frame.f_code)


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code."""
    return next(_user_frames(), None)


def _user_frames(outermost: str = "") -> Iterator[FrameType]:
    """The frames of the user's code, innermost first, up to those of the file ``outermost``."""
    frame: FrameType | None = sys._getframe(1)
    program = _program()
    while frame is not None and frame.f_code.co_filename != outermost:
        if _user_file(frame.f_code.co_filename, program):
            yield frame
        frame = frame.f_back


@cache
def _loops(code: CodeType) -> tuple[tuple[int, int, int], ...]:
    """The loops in a function's own text.

    Each is the offsets of its first and last instruction, and its first line.
    """
    lines = {offset: line for first, last, line in code.co_lines() for offset in range(first, last)
             if line}
    jumps = ((s.argval, s.offset) for s in dis.get_instructions(code) if s.opcode in dis.hasjrel)
    return tuple((to, at, lines.get(to, code.co_firstlineno)) for to, at in jumps if to < at)


def left_at(error: BaseException, ours: bool = False) -> tuple[str, str] | None:
    """The user's line where C code raised an error.

    None if the tracer raised it, unless ``ours``.
    """
    frames = [*walk_tb(error.__traceback__)]
    if not ours and frames[-1][0].f_code.co_filename.startswith(_TRACER):
        return None
    for frame, line in reversed(frames):
        if file := user_file(frame.f_code.co_filename):
            return f"{file}:{line}", _function_name(frame.f_code)
    return None


def raised_by_user(error: BaseException) -> bool:
    """Whether a ``raise`` or an ``assert`` of the user's code made a caught error."""
    entry: Any = error.__traceback__
    while entry.tb_next is not None:
        entry = entry.tb_next
    code = entry.tb_frame.f_code
    raises = dis.opname[code.co_code[entry.tb_lasti]] == "RAISE_VARARGS"
    return raises and bool(user_file(code.co_filename))


def _function_name(code: CodeType) -> str:
    """The function's name, or the enclosing function's for a comprehension. It may be empty."""
    name = code.co_name
    if name in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"):
        name = code.co_qualname.removesuffix(f".<locals>.{name}").rpartition(".")[2]
    return "" if name.startswith("<") else name


def refuse(seen: str, reason: str, remedy: str, at: tuple[str, str] | None = None) -> TraceError:
    """The error for code that cannot be recorded.

    It names the user's line, what was seen, why it cannot be recorded, and what to write instead.
    """
    line, _ = at or user_line()
    error = TraceError(f"{line + ': ' if line else ''}{seen}: {reason}. {remedy}")
    recorder = ACTIVE.get()
    if recorder is not None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_TRACER):
            frame = frame.f_back
        recorder.refused.append((error, frame is not None
                                 and bool(user_file(frame.f_code.co_filename))))
    return error


def _reached_user(error: TraceError, asked_by_user: bool) -> bool:
    """Whether a refusal got into the user's code, even if something caught it there.

    Its traceback has every frame that it passed. C code between us and the user may turn it into
    its own error (``array.fill(x)``), or drop it: then it counts whether the user's code asked us.
    """
    return asked_by_user or any(user_file(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__))


def current() -> Recorder:
    """The recorder of the running trace. Raises TraceError if there is none."""
    recorder = ACTIVE.get()
    if recorder is None:
        raise TraceError(f"{user_line()[0]}: an array of a finished trace is used, or in another thread: it holds no "
                         "values, only a place in a graph. Return it from the traced function "
                         "instead of storing it elsewhere")
    return recorder


class Recorder:
    """Grows the graph of one trace. Nothing else that changes outlives a handler."""

    outside: Any  # an ``Outside``; that module imports traced arrays, so it comes later
    call: Callable[..., Any]  # a call of the program, of ``calls``
    copy_of: Callable[[Any], Any]  # the function as the trace runs it

    def __init__(self, program: str, begins: tuple[str, str], silent: bool = False) -> None:
        self.program = program  # the file of the traced function
        self.begins = begins  # its first line, as ``user_line`` says it
        self.silent = silent  # whether what the program prints was printed already
        self.ended = False
        self.first: list[int] = []  # for each argument the first that is the same array
        self.copies: dict[int, Any] = {}  # by id of a function: itself, and as the trace runs it
        self.called: Any = None  # what the program calls now, if it is not the user's
        self.refused: list[tuple[TraceError, bool]] = []  # each with whether the user's line asked
        self.builder = Builder()
        # real arrays that are inputs: the array, its content then, its node. And the last by its id
        self.captured: list[tuple[np.ndarray, np.ndarray, int]] = []
        self._captured: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}
        # id of a real array that a call has made -> itself and what was called; and the
        # same by its node
        self.produced: dict[int, tuple[np.ndarray, tuple[str, str]]] = {}
        self.shown: set[str] = set()  # texts of traced arrays, which libraries asked for
        self.sources: dict[int, tuple[str, str]] = {}
        self.scalars: dict[Any, int] = {}  # what computes a number -> its node
        # positions of Python numbers whose values the program asked for
        self.fixed: set[int] = set()
        self.asked: set[int] = set()  # ids of arrays from outside whose values the program asked for
        self.identified = False  # whether the program asked which arrays are the same
        self.nonnegative: set[int] = set()  # integer nodes that need no wrap-around as an index
        # a bool: a call where it is true runs the plain function. And the line that asked first.
        self.condition: int | None = None
        self.condition_at = ""
        # arguments whose bytes are in the other order than this machine's
        self.swapped: set[int] = set()
        # a storage, its version, and what a line has made of it by the layout of the memory
        self.layouts: list[tuple[Any, int, Any, str]] = []
        self._composite = ""
        self.line: tuple[str, str] | None = None  # of what is recorded now, if the user's frame does not say
        self.derivatives: dict[int, Any] = {}  # node -> what stands for its rule in ``grad.rules``
        self._reads_input: list[bool | None] = []  # None: an array from outside, but no argument
        # values asked for last, so that a chain is not walked again from each link
        self._known: dict[int, np.ndarray] = {}
        self._elements = 0  # computed for values that the program asked for
        # operations that a loop, or a line, has recorded
        self._recorded_by: Counter[Any] = Counter()
        self._warned, self._operations = silent, 0

    def add(self, op: str, args: Sequence[int] = (), *, type: TensorType | None = None,
            **attrs: Any) -> int:
        """Append a node for the user's current line."""
        self.require_running()
        where, function = user_line()
        node = self.builder.add(op, args, type=type, where=where, via=self._composite or function,
                                **attrs)
        reads = [self._reads_input[a] for a in args]
        self._reads_input.append(True if True in reads else None if None in reads else False)
        if OPS[op].kind != "source":
            self._watch_loops(where)
        return node

    def _watch_loops(self, where: str) -> None:
        """Warn once if a loop or line has recorded MANY operations. Raise TraceError at MOST."""
        self._operations += 1
        if self._operations >= MOST:
            raise refuse(f"{MOST:,} operations", "a Python loop is unrolled while it is traced, "
                         "and compiling it would not end", UNROLLED)
        if not where or self._warned or self.line:
            return
        found: list[tuple[str, Any, FrameType]] = [
            (f"the loop at line {line}", (frame.f_code, first),
             frame) for frame in _user_frames(_ENTRY)
            for first, last, line in _loops(frame.f_code) if first <= frame.f_lasti <= last]
        for what, key, frame in found or [("this line", where, next(_user_frames()))]:
            self._recorded_by[key] += 1
            if self._recorded_by[key] == MANY and not self._warned:
                self._warned, path, line = True, frame.f_code.co_filename, frame.f_lineno
                warnings.warn_explicit(
                    f"{user_file(path)}:{line}: {what} has recorded {MANY:,} operations and goes "
                    "on: a Python loop is unrolled while it is traced, so the first call takes "
                    f"long. {UNROLLED}", LoopWarning, path, line)

    def require_running(self) -> None:
        """Raise TraceError if an array has escaped from its trace."""
        if current() is not self:
            raise refuse("an array of another trace", "it holds no values, only a place in another "
                         "graph", "Return it from the traced function and pass it in as an "
                         "argument")

    def lost(self) -> TraceError | None:
        """A refusal that the program, or a library it calls, has caught.

        NumPy would not have raised it.
        """
        return next((error for error, asked in self.refused if _reached_user(error, asked)), None)

    def require_honest(self) -> None:
        """Raise a refusal that the program has caught. Its graph is then not NumPy's program."""
        if error := self.lost():
            raise TraceError(f"{error}. The program caught this error itself (try/except), but "
                             "NumPy would not have raised it: keep the line out of the traced "
                             "function or out of the try") from error

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Go on from the nodes of a graph."""
        self.builder.nodes += nodes
        self._reads_input += [True] * len(nodes)

    def input(self, type: TensorType, name: str) -> int:
        """A parameter of the program. It belongs to no line."""
        self._reads_input.append(True)
        return self.builder.add("input", type=type, name=name)

    def capture(self, array: np.ndarray) -> int:
        """The input node of a real array. The same array is the same input.

        One that no path leads to may be written to later. So its content is copied now.
        """
        known = self._captured.get(id(array))
        outside = id(array) in self.outside.places
        if known is None or not (outside or np.array_equal(*(np.ravel(each).view(np.uint8) for each in (known[1], array)))):
            check_dtype(array.dtype)
            node = self.input(TensorType(array.shape, array.dtype.name),
                              f"captured{len(self.captured)}")
            self.sources[node] = self.produced.get(id(array), (None, ("", "")))[1]
            self._captured[id(array)] = known = array, array if outside else array.copy(), node
            self.captured.append(known)
            self._reads_input[-1] = None
        return known[2]

    def number(self, value: Any, dtype: str = "float64") -> int:
        """The node of a ``Number`` in this dtype."""
        node: int = value.node
        return node if self.type(node).dtype == dtype else self.add("cast", (node,), dtype=dtype)

    def unlike(self, node: int) -> None:
        """A call where a condition holds anywhere runs the plain function: it may raise, or warn."""
        if rank := self.type(node).rank:
            node = self.add("any", (node,), axes=tuple(range(rank)), keepdims=False)
        self.condition_at = self.condition_at or user_line()[0]
        self.condition = node if self.condition is None else self.add("or", (self.condition, node))

    def by_layout(self, x: Any, made: Any = None) -> Any:
        """Note that what this line makes of ``x`` depends on how it lies in memory.

        ``made``, which is returned, is then a view or a copy: it only matters if one of both is
        written to later. Without it, values depend on the layout.
        """
        storage, result = x._storage, None if made is None else made._storage
        self.layouts.append((storage, storage.version, result, user_line()[0]))
        return made

    def reader(self, node: int) -> int:
        """The first node that reads this one, or the node itself."""
        return next((n.id for n in self.builder.nodes if node in n.args), node)

    def type(self, node: int) -> TensorType:
        return self.builder.type(node)

    def __getitem__(self, node: int) -> Node:
        return self.builder.nodes[node]

    @contextmanager
    def at_line(self, where: str, via: str) -> Iterator[None]:
        """Nodes made inside belong to this line of the user's, and carry ``via``."""
        before = self.line, self._composite
        self.line, self._composite = (where, via), via
        try:
            yield
        finally:
            self.line, self._composite = before

    @contextmanager
    def composite(self, name: str) -> Iterator[None]:
        """Nodes made inside carry ``via=name``. The outermost composite wins."""
        before = self._composite
        self._composite = before or name
        try:
            yield
        finally:
            self._composite = before

    def known(self, node: int, asks: bool = False) -> np.ndarray | None:
        """The value of a node without inputs (``np.zeros``, ``np.arange`` ...), else None.

        With ``asks`` it may also depend on small arrays from outside. If their contents change, the
        next call traces again.
        """
        if self._reads_input[node] or (self._reads_input[node] is None and not asks):
            return None
        needed, waiting = set(), [node]
        while waiting:
            each = waiting.pop()
            if each not in needed:
                needed.add(each)
                waiting.extend(() if each in self._known else self[each].args)
        found = [each for each in self.captured if each[2] in needed]
        if sum(array.nbytes for array, _, _ in found) > SMALL:
            return None
        self.asked |= {id(array) for array, _, _ in found}
        given = {node: content for _, content, node in found}
        values: dict[int, np.ndarray] = {**given, **{each: self._known[each]
                                                     for each in needed & self._known.keys()}}
        for each in sorted(needed - values.keys()):
            values[each] = _value(self[each], values)
            self._elements += self.type(each).size
        if self._elements > MOST_KNOWN:
            raise refuse(f"values of {self._elements:,} elements that no argument changes", "NumPy computes them while the "
                         "program is traced", "Compute them outside and pass them in as arguments")
        self._known = {each: value for each, value in [*values.items()][-KEPT:]
                       if self._reads_input[each] is False}
        value = values[node].view()
        value.flags.writeable = False  # a write would be lost
        return value


def _value(node: Node, values: dict[int, np.ndarray]) -> np.ndarray:
    if node.op in ("constant", "iota"):
        return constant_value(node) if node.op == "constant" else iota_value(node)
    with np.errstate(all="ignore"):
        result = OPS[node.op].numpy(*(values[a] for a in node.args), **node.attributes)
    return np.asarray(result).astype(node.type.dtype, copy=False)


def check_dtype(dtype: np.dtype, seen: str = "an array of", at: tuple[str, str] | None = None,
                how: str = "with astype first") -> None:
    """Raise TraceError for a dtype that graphs do not have.

    These are complex numbers, objects, text, dates and long double.
    """
    if dtype.name not in SHORT or not dtype.isnative:
        instead = "Keep its real and imaginary parts in two real arrays" if dtype.kind == "c" else f"Convert it {how}"
        raise refuse(f"{seen} {dtype}", f"programs hold only {', '.join(SHORT.values())}", instead,
                     at)
