"""Kernel text becomes a generator function: one generator is one thread.

In:  the text of a module in the dialect of Numba CUDA. Out: a ``KernelProgram``.

The rewriting, line by line. The numbers are *sites*: indices into ``KernelProgram.sites``.

    cuda.syncthreads()                        yield (1,)
    acc += cuda.shfl_xor_sync(m, acc, 16)     acc += (yield (2, m, acc, 16))
    y[i] = x[i + 1]                           _0 = x.load(3, i + 1); y.store(4, i, _0)
    cuda.atomic.add(h, b, 1)                  h.atomic(5, b, 'add', 1, turn=(yield (5,)))
    add_release(c, 0, 1)                      c.add_release(5, 0, 1, turn=(yield (5,)))
    s = cuda.shared.array(8, np.float32)      s = cuda.array(6, 's', 'shared', 8, np.float32)
    load_wide(v, 0, x, i, 4)                  x.load_wide(7, i, 4, v, 8, 0)
    store_wide(y, i, v, 0, 4)                 y.store_wide(9, i, 4, v, 10, 0)
    while q[0] == 0: ...                      while q.load(7, 0) == 0: yield (8,); rounds(LINE, 5); ...
    v = a * b + 0.5                           v = number(number(a * b) + float64(0.5))

Where it is ``stepwise``, a thread also yields before each ``load`` and ``store``. ``rounds`` is told how many
operations are in the loop's body, whether or not an ``if`` leaves some out.

A thread runs until it yields. The yielded tuple says where it waits, and with what. Before an
atomic operation, and each time round a ``while`` loop, other threads may run. ``cuda`` becomes the
kernel's first parameter, so every thread has its own.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FunctionType
from typing import Any

from ..errors import KernelBug
from . import math as cuda_math
from .dialect import ARRAY_MAKERS, ORDERED, WARP_MEETINGS, WIDE, Refused, check, dotted, not_python, pairs
from .values import BUILTINS, MATH, NUMPY, OPERATORS, Rounds

FULL_MASK = 0xFFFFFFFF
FLOAT64_NAMES = {f"{module}.{name}" for module in ("math", "np")
                 for name in ("pi", "e", "inf", "nan")} | {"float"}
DEVICE_FUNCTIONS = {name: FunctionType(function.__code__, vars(cuda_math) | {"np": NUMPY}, name)
                    # over the stepper's scalars
                    for name, function in cuda_math.DEVICE_FUNCTIONS.items()}
# places where a thread stops so that others may run, and goes on by itself
PAUSES = ("while", "atomic", *ORDERED)
MAKES_NUMBERS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Call, ast.Subscript,
              ast.AugAssign)
EXIT, START = 0, 1  # the sites of a thread that has ended, and of one that may run


@dataclass(frozen=True)
class Site:
    """One expression of the text that touches memory or waits. ``verb`` is what it does.

    ``array`` is the name of the memory, or "" if that name stands for several arrays in turn.
    """

    line: int
    # "load", "store", "atomic", one of ORDERED, "array", "syncthreads", "grid.sync", "while", or a
    # warp's exchange
    verb: str
    array: str = ""
    names: tuple[str, ...] = ()  # of a "while": the variables in its condition
    columns: int = 1  # elements of one access


@dataclass(frozen=True)
class KernelProgram:
    """A kernel ready to step.

    ``written``: the parameters that the text may write to. ``renames_arrays``: the text has
    ``b = a`` for arrays, so two names for the same bytes. ``doubles``: the float literals without
    a dtype, each with its line. ``uneven``: of a barrier that only some threads of a block pass,
    the line, and the condition of its ``if``.
    """

    name: str
    parameters: tuple[str, ...]
    thread: Callable[..., Generator[tuple, Any, None]]
    sites: tuple[Site, ...]
    lines: tuple[str, ...]
    written: frozenset[str]
    renames_arrays: bool
    doubles: tuple[tuple[int, str], ...]
    uneven: dict[int, str]
    rounds: Rounds
    stepwise: bool

    def waits_for(self, *verbs: str) -> bool:
        """Whether the text waits by one of ``verbs`` anywhere."""
        return any(site.verb in verbs for site in self.sites)

    @property
    def has_queues(self) -> bool:
        """Whether blocks hand data to each other by ordered operations or fences."""
        return self.waits_for(*ORDERED) or any("threadfence" in line for line in self.lines)

    def bug(self, rule: str, what: str, *places: tuple[int, str], advice: str = "") -> KernelBug:
        """A violation of ``rule``. Each place is a site, and the thread there."""
        bug = kernel_bug(rule, f"{what}{advice}, in kernel {self.name}", self.lines,
                         *((self.sites[site].line, who) for site, who in places), kernel=self.name)
        bug.seen, bug.advice = what, advice
        return bug


def kernel_bug(rule: str, what: str, lines: tuple[str, ...], *places: tuple[int, str],
               kernel: str = "") -> KernelBug:
    """A ``KernelBug`` that quotes the line of each place. It was refused at the last place."""
    quotes = (f"\n  line {line}: {lines[line - 1].strip()}    <- {who}" for line, who in places)
    line, who = places[-1] if places else (0, "")
    thread = re.search(r"block (\d+|\([\d, ]+\)) thread (\d+|\([\d, ]+\))", who)
    bug = KernelBug(f"{rule}: {what}" + "".join(quotes), rule, line, thread[0] if thread else "")
    bug.kernel, bug.places = kernel, places
    return bug


def lines_of(text: str) -> tuple[str, ...]:
    """The lines as Python counts them: a form feed ends none."""
    return tuple(re.split(r"\r\n?|\n", text))


@lru_cache(maxsize=64)
def read_program(text: str, name: str | None = None, arrays: frozenset[str] = frozenset(),
                 stepwise: bool = False) -> KernelProgram:
    """Rewrite ``text``. The kernel is its function ``name``, or the last one.

    ``arrays`` are the parameters that are arrays. ``stepwise``: others may also run before each plain
    access. No rule needs that (``memory``), but it shows what a race does to numbers. Raises KernelBug
    if the text is no Python, or leaves the dialect.
    """
    lines = lines_of(text)
    try:
        return _read(text, name, arrays, lines, stepwise)
    except (SyntaxError, UnicodeError) as error:
        line = getattr(error, "lineno", None) or 1
        raise kernel_bug("outside-dialect", not_python(error), (*lines, ""),
                         (line, "here")) from None
    except (RecursionError, MemoryError):
        longest = max(range(len(lines)), key=lambda k: len(lines[k]))
        raise kernel_bug("outside-dialect", "an expression is nested too deep to read", lines,
                         (longest + 1, "the longest line")) from None


def _read(text: str, name: str | None, arrays: frozenset[str], lines: tuple[str, ...],
          stepwise: bool) -> KernelProgram:
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if not functions or (name is not None and name not in functions):
        wanted, there = f"function {name}" if name else "function", ", ".join(sorted(functions)) or "none"
        raise KernelBug(f"outside-dialect: no {wanted} in the text; it has {there}")
    kernel = functions[name] if name else list(functions.values())[-1]
    helpers: list[ast.FunctionDef] = []
    left = [kernel]
    while left:
        names = _names_of(left.pop())
        left += (called := [functions[name] for name in names if name in functions
                            and functions[name] not in (kernel, *helpers)
                            and not _names_of(functions[name])["cuda"]])
        helpers += called
    constants = [node for node in tree.body if isinstance(node, ast.Assign)]
    try:
        check(tree, kernel, helpers, arrays)
    except Refused as refused:
        node, sentence = refused.args
        raise kernel_bug("outside-dialect", f"{sentence}, in kernel {kernel.name}", lines,
                         (getattr(node, "lineno", 1), "here"), kernel=kernel.name) from None
    doubles = tuple(_doubles(constants, [*helpers, kernel]))
    nodes = [*ast.walk(kernel)]
    written, renames_arrays, uneven = _written_names(kernel, nodes), _renames_arrays(nodes), _uneven(nodes)

    tuples = {target.id for node in constants for target in node.targets
              if isinstance(target, ast.Name)}
    rewriter = _Rewriter(tuples, nodes, stepwise)
    rewriter.sites += [Site(kernel.lineno, "exit"), Site(kernel.lineno, "start")]
    rewriter.visit(kernel)
    parameters = tuple(argument.arg for argument in kernel.args.args)
    kernel.args.args.insert(0, ast.arg("cuda"))
    # so that a kernel that never waits is a generator, too
    kernel.body.insert(0, ast.parse("if False: yield").body[0])
    for function in (*helpers, kernel):
        function.decorator_list.clear()

    for helper in helpers:
        helper.body.append(_located(ast.Expr(_call("_nothing")), helper))
    rest = [_Numbers().visit(node) for node in (*constants, *helpers)]
    module = ast.fix_missing_locations(ast.Module([*rest, kernel], type_ignores=[]))
    rounds = Rounds()
    space: dict[str, Any] = {"np": NUMPY, "math": MATH, **BUILTINS, "_rounds": rounds,
                             **DEVICE_FUNCTIONS}
    code = compile(module, f"<{kernel.name}>", "exec")
    try:
        exec(code, space)
    except Exception as error:
        raise kernel_bug("exception", f"{type(error).__name__}: {error}, outside of kernel {kernel.name}", lines,
                         (error.__traceback__.tb_next.tb_lineno, "here"),  # type: ignore[union-attr]
                         kernel=kernel.name) from error
    return KernelProgram(kernel.name, parameters, space[kernel.name], tuple(rewriter.sites), lines,
                         written, renames_arrays, doubles, uneven, rounds, stepwise)


def _uneven(nodes: Sequence[ast.AST]) -> dict[int, str]:
    """Barriers of a block under an ``if`` that depends on the thread: the line, and the innermost condition."""
    known: set[str] = set()  # names that differ from thread to thread

    def differs(node: ast.AST) -> bool:
        words = {dotted(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)}
        return bool(words & (known | {"cuda.threadIdx", "cuda.grid", "cuda.laneid"}))

    assigned = [(name.id, value) for node in nodes if isinstance(node, ast.Assign)
                for target in node.targets
                for each, value in pairs(target, node.value) for name in ast.walk(each)
                if isinstance(name, ast.Name)]
    while more := {name for name, value in assigned if differs(value)} - known:
        known |= more
    found = {}
    for node in nodes:  # from the outermost
        if isinstance(node, ast.If) and differs(node.test):
            for part, condition in ((node.body, "{}"), (node.orelse, "not ({})")):
                for call in (each for statement in part for each in ast.walk(statement)
                             if isinstance(each, ast.Call)):
                    if dotted(call.func) == "cuda.syncthreads":
                        found[call.lineno] = condition.format(ast.unparse(node.test))
    return found


def _names_of(function: ast.FunctionDef) -> Counter[str]:
    """How often the body of ``function`` mentions each name."""
    return _names_in(node for statement in function.body for node in ast.walk(statement))


def _names_in(nodes: Iterable[ast.AST], context: type[ast.expr_context] = ast.expr_context) -> Counter[str]:
    """How often the nodes mention each name, or assign it (``ast.Store``)."""
    return Counter(node.id for node in nodes if isinstance(node, ast.Name)
                   and isinstance(node.ctx, context))


def _written_names(kernel: ast.FunctionDef, nodes: Sequence[ast.AST]) -> frozenset[str]:
    """The parameters that the text may write to.

    These have a use that is no wide load, no ``x[...]`` as a value, and no ``x.shape``.
    """
    names = _names_in(nodes)
    reads = Counter(node.value.id for node in nodes
                    if isinstance(node, ast.Subscript | ast.Attribute)
                    and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name))
    reads += Counter(dotted(array) for node in nodes if isinstance(node, ast.Call)
                     and dotted(node.func) == "load_wide"
                     for array in node.args[WIDE["load_wide"]:][:1])
    return frozenset(a.arg for a in kernel.args.args if names[a.arg] > reads[a.arg])


def _renames_arrays(nodes: Sequence[ast.AST]) -> bool:
    """Whether a subscripted name is ever a plain copy of another name."""
    arrays = {dotted(node.value) for node in nodes if isinstance(node, ast.Subscript)}
    return any(isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
               and dotted(target) in arrays
               for node in nodes for target in getattr(node, "targets", ()))


def _doubles(constants: Iterable[ast.Assign], functions: Iterable[ast.FunctionDef]) -> Iterator[tuple[int, str]]:
    """Float literals outside ``np.<dtype>(...)``, by line. Numba computes with them in float64.

    In a module constant, Python computes the whole argument once. In a function only a bare literal
    counts: ``np.float32(x * 0.5)`` multiplies in float64.
    """
    typed: set[ast.AST] = set()
    for tree, deep in [*((n, True) for n in constants), *((node, False) for node in functions)]:
        nodes = [*ast.walk(tree)]
        for node in nodes:
            if isinstance(node, ast.Call) and dotted(node.func).startswith("np.") and node.args:
                argument = node.args[0]
                inner = argument.operand if isinstance(argument, ast.UnaryOp) else argument
                typed.update(ast.walk(argument) if deep else (argument, inner))
        for node in nodes:
            literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
            if isinstance(node, ast.expr) and (literal or dotted(node) in FLOAT64_NAMES) and node not in typed:
                yield node.lineno, ast.unparse(node)


class _Numbers(ast.NodeTransformer):
    """Computes numbers as Numba types them, and counts the rounds of loops and the calls."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _number(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        wraps = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        return _located(_call("_number", node), node) if wraps else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return _located(_call("bool", node), node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return _located(_call("_float64", node), node) if isinstance(node.value, float) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        read = _located(ast.Name(dotted(node.target), ast.Load()), node)
        return self.visit(_located(ast.Assign([node.target], ast.BinOp(read, node.op, node.value)),
                                   node))

    def count(self, node: Any) -> Any:
        """Count how often the body of a loop or function begins, and the operations in it."""
        work = 1 + sum(isinstance(each, OPERATIONS) for each in _straight(node.body))
        self.generic_visit(node)
        node.body.insert(0, _located(ast.Expr(_call("_rounds", ast.Constant(node.lineno), ast.Constant(work))), node))
        return node

    visit_FunctionDef = visit_For = visit_While = count


def _straight(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a body without those of the loops in it, which count for themselves."""
    left = [*body]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.For | ast.While):
            left += ast.iter_child_nodes(node)


def _call(name: str, *arguments: Any) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _number(node: ast.BinOp) -> ast.expr:
    """The result of an operation, as wide as Numba makes it."""
    if type(node.op) in OPERATORS:
        return _located(_call(f"_{type(node.op).__name__}", node.left, node.right), node)
    return _located(_call("_number", node), node) if isinstance(node.op, MAKES_NUMBERS) else node


class _Rewriter(_Numbers):
    """Rewrites one kernel in place, as the module's docstring shows, and numbers its sites."""

    def __init__(self, constants: set[str], nodes: Sequence[ast.AST], stepwise: bool):
        self.stepwise = stepwise
        # inside a while loop's condition: the site of the loop, where its thread stands
        self.waiting = -1
        self.constants = constants  # these are tuples, so subscripts of them are no loads
        self.assigned = _names_in(nodes, ast.Store)  # how often the kernel assigns each name
        # names that an integer literal is assigned to, and a line that does
        self.integers = {target.id: value.lineno for node in nodes if isinstance(node, ast.Assign)
                         for each in node.targets for target, value in pairs(each, node.value)
                         if isinstance(target, ast.Name) and _is_integer(value)}
        self.sites: list[Site] = []

    def site(self, node: Any, verb: str, array: str = "", columns: int = 1) -> ast.Constant:
        self.sites.append(Site(node.lineno, verb, array if self.assigned[array] <= 1 else "",
                               columns=columns))
        return ast.Constant(len(self.sites) - 1)

    def touch(self, node: Any, array: ast.expr, verb: str, *arguments: ast.expr) -> ast.Call:
        """``array.verb(site, *arguments)``, placed where ``node`` is."""
        call = ast.Call(ast.Attribute(array, verb, ast.Load()),
                        [self.site(node, verb, dotted(array)), *arguments], [])
        if self.stepwise or verb in PAUSES:  # others may run before
            stop = call.args[0] if self.waiting < 0 else ast.Constant(self.waiting)
            call.keywords = [ast.keyword("turn", _located(ast.Yield(ast.Tuple([stop], ast.Load())), node))]
        return _located(call, node)

    def wait(self, node: Any, verb: str, *arguments: ast.expr) -> ast.Yield:
        return _located(ast.Yield(ast.Tuple([self.site(node, verb), *arguments], ast.Load())), node)

    def wide(self, node: ast.Call, verb: str, *arguments: ast.expr) -> ast.Call:
        """Several elements between an array and registers: one access of the array."""
        first, index, second, other, count = arguments
        array, place, held, at = (second, other, first, index) if verb == "load_wide" else (first, index, second, other)
        way, back = ("load", "store") if verb == "load_wide" else ("store", "load")
        far, near = self.site(node, way, dotted(array), count.value), self.site(node, back, dotted(held))  # type: ignore[attr-defined]
        return _located(ast.Call(ast.Attribute(array, verb, ast.Load()), [far, place, count, held, near, at], []), node)

    def is_array(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
                and node.value.id not in self.constants)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return self.touch(node, node.value, "load", node.slice) if self.is_array(node) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        verb, arguments = dotted(node.func).removeprefix("cuda."), node.args
        if verb in WARP_MEETINGS:
            return self.wait(node, verb, *(arguments or [ast.Constant(FULL_MASK)]))
        if verb == "syncthreads":
            return self.wait(node, verb)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "sync" and not arguments:
            return self.wait(node, "grid.sync")
        if verb in ORDERED:
            array, *rest = arguments
            return self.touch(node, array, verb, *rest)
        if verb in WIDE:
            return self.wide(node, verb, *node.args)
        if verb.startswith("atomic."):
            array, *rest = arguments
            operation = ast.Constant(verb.removeprefix("atomic."))
            return self.touch(node, array, "atomic", rest[0], operation, *rest[1:])
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)
        made, target = node.value, node.targets[0]
        if isinstance(made, ast.Call) and isinstance(target, ast.Name) and dotted(made.func) in ARRAY_MAKERS:
            made.args[:0] = [self.site(node, "array"), ast.Constant(target.id),
                             ast.Constant(ARRAY_MAKERS[dotted(made.func)])]
            made.func = _located(ast.Attribute(ast.Name("cuda", ast.Load()), "array", ast.Load()),
                                 node)
        if isinstance(made, ast.Tuple) and isinstance(target, ast.Tuple):
            made.elts = [self.keep_dtype(each, value) for each, value in zip(target.elts, made.elts, strict=True)]
        else:
            node.value = self.keep_dtype(target, made)
        stores: list[ast.stmt] = []
        node.targets = [self.divert(target, stores) for target in node.targets]
        return [node, *stores]

    def keep_dtype(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """``value``, refused when it is a float and the name has been an integer."""
        name = dotted(target)
        if name not in self.integers or _is_integer(value):
            return value
        return _located(_call("_kept", value, ast.Constant(name), ast.Constant(self.integers[name])), value)

    def divert(self, target: ast.expr, stores: list[ast.stmt]) -> ast.expr:
        """A plain name in place of ``x[i]``. The store of that name goes to ``stores``."""
        if isinstance(target, ast.Tuple):
            target.elts = [self.divert(element, stores) for element in target.elts]
        if not isinstance(target, ast.Subscript):
            return target
        name = f"_{len(stores)}"
        value = _located(ast.Name(name, ast.Load()), target)
        stores.append(_located(ast.Expr(self.touch(target, target.value, "store", self.visit(target.slice), value)), target))
        return _located(ast.Name(name, ast.Store()), target)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """``x[i] += v`` evaluates ``i`` once, loads, adds and stores."""
        target = node.target
        if not isinstance(target, ast.Subscript):
            return super().visit_AugAssign(node)
        node.value = self.visit(node.value)
        index = _located(ast.Name("_index", ast.Load()), target)
        old = self.touch(target, target.value, "load", index)
        new = _number(_located(ast.BinOp(old, node.op, node.value), node))
        return [_located(ast.Assign([ast.Name("_index", ast.Store())], self.visit(target.slice)),
                         node),
                _located(ast.Expr(self.touch(target, target.value, "store", index, new)), node)]

    def visit_While(self, node: ast.While) -> ast.While:
        """Other threads may run in each round of a loop, since it may wait for one of them."""
        never_ends = _never_ends(node)
        names = {name.id: None for name in ast.walk(node.test) if isinstance(name, ast.Name)
                 and self.assigned[name.id]}
        again = _located(ast.Expr(self.wait(node, "while")), node)
        around, self.waiting = self.waiting, len(self.sites) - 1
        self.sites[-1] = replace(self.sites[-1], names=tuple(names))
        node.test = self.visit(node.test)
        self.waiting = around
        test, node.test = node.test, ast.Constant(True)
        self.count(node)
        node.test = test
        node.body.insert(0, _located(ast.Expr(_call("_forever", *map(ast.Constant, names))), node)
                         if never_ends else again)
        return node


def _never_ends(loop: ast.While) -> bool:
    """Whether the loop, once entered, goes round for ever.

    Its condition then reads no memory, and nothing in it is assigned.
    """
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    assigned = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return not (any(isinstance(node, ast.Break | ast.Return) for node in inside)
                or any(isinstance(node, ast.Subscript | ast.Call) or dotted(node) in assigned
                       for node in ast.walk(loop.test)))


def _is_integer(node: ast.expr) -> bool:
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(value, ast.Constant) and type(value.value) is int


def _located(node: Any, where: ast.AST) -> Any:
    """``node`` with the line of ``where``, also for new nodes inside it."""
    return ast.fix_missing_locations(ast.copy_location(node, where))
