"""The dialect of kernel text: the part of Python and Numba CUDA that it may use.

In:  the syntax tree of a text. Out: nothing, or ``Refused`` with a sentence that says what to write
instead.

All of the text is checked before any of it runs. So text is data: it cannot import, reach an
attribute that is not listed here, call a function that is not listed here, or build a long tuple or
a long integer. What is left ends, because ``values.Rounds`` counts the rounds of its loops and the
calls of its functions.

An expression is a *number*, or one of the few things that only an assignment may take: an array
(``second = first``), a tuple (``rows, cols = x.shape``), or the grid.
"""

import ast
import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NoReturn

from . import math as cuda_math
from .values import MATH, NUMPY

Counts = Mapping[str, tuple[int, int]]  # function -> the least and the most arguments it takes

SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
VOTES = ("ballot_sync", "any_sync", "all_sync")
WARP_MEETINGS = (*SHUFFLES, *VOTES, "syncwarp")
ORDERED = ("load_acquire", "add_release")  # by which blocks hand data to each other
ATOMICS = tuple(f"cuda.atomic.{name}" for name in "add sub max min and_ or_ xor exch cas".split())
WIDE = {"load_wide": 2, "store_wide": 0}  # which argument is the array in memory
ARRAY_MAKERS = {"cuda.shared.array": "shared", "cuda.local.array": "local"}  # -> where it lies
GRIDS = ("cuda.grid", "cuda.gridsize")
MODULES = ("cuda", "np", "math")
IMPORTS = ("import math", "import numpy as np", "from numba import cuda")
DTYPES = tuple(f"np.{name}" for name in vars(NUMPY) if name not in ("inf", "nan", "pi"))

# Names that stand for a number.
VALUES = {f"cuda.{what}.{axis}" for what in ("threadIdx", "blockIdx", "blockDim", "gridDim")
          for axis in "xyz"} | {"cuda.laneid", "cuda.warpsize"} | {
    f"{module}.{name}" for module in ("np", "math") for name in ("inf", "nan", "pi")} | {"math.e"}
# Functions of numbers.
PLAIN: Counts = {
    "range": (1, 3), "min": (2, 99), "max": (2, 99),
    **dict.fromkeys(("abs", "int", "bool", "float", *DTYPES), (1, 1)),
    **{f"math.{name}": (getattr(f, "nin", 1 + (name == "pow")),) * 2
       for name, f in vars(MATH).items() if callable(f)},
    **{name: (f.__code__.co_argcount,) * 2 for name, f in cuda_math.DEVICE_FUNCTIONS.items()}}
# Functions that know their thread. A function that the kernel calls may not use them.
OF_A_THREAD: Counts = {
    **dict.fromkeys(("cuda.syncthreads", "cuda.threadfence", "cuda.threadfence_block",
                     "cuda.cg.this_grid"), (0, 0)),
    **dict.fromkeys(GRIDS, (1, 1)), **dict.fromkeys(ARRAY_MAKERS, (0, 3)), "cuda.syncwarp": (0, 1),
    **{f"cuda.{name}": (3, 3) for name in (*SHUFFLES, "fma")},
    **{f"cuda.{name}": (2, 2) for name in VOTES},
    **{name: (3 + name.endswith(".cas"),) * 2 for name in ATOMICS},
    "load_acquire": (2, 2), "add_release": (3, 3), **dict.fromkeys(WIDE, (5, 5))}
# Which arguments are arrays.
ARRAYS_OF = dict.fromkeys((*ATOMICS, *ORDERED), (0,)) | dict.fromkeys(WIDE, (0, 2))
TUPLES = frozenset({"kahan_add"})  # functions that return several numbers

FORMS = {  # how a call with another number of arguments should look
    **dict.fromkeys(ATOMICS, "y, i, value"), "cuda.atomic.cas": "y, i, old, new", "cuda.grid": "1",
    "cuda.gridsize": "1", **{f"cuda.{name}": "0xffffffff, value, lane" for name in SHUFFLES},
    **{f"cuda.{name}": "0xffffffff, condition" for name in VOTES}, "max": "a, b", "min": "a, b"}
# What to write instead of a name: the names, then the advice.
ADVICE = {name: advice for names, advice in (
    ("print", "a kernel prints nothing: store the number in an output array"),
    ("input random.random np.random.rand time.time", "a kernel asks for nothing: give it as an argument"),
    ("cuda.barrier cuda.sync", "write cuda.syncthreads()"),
    ("cuda.syncgrid cuda.grid_sync cuda.cg.sync", "write cuda.cg.this_grid().sync()"),
    ("atomicAdd", "write cuda.atomic.add(y, i, value)"),
    ("atomicCAS cuda.atomic.CAS cuda.atomic.compare_and_swap",
     "write cuda.atomic.cas(y, i, old, new)"),
    ("cuda.popc cuda.clz cuda.brev cuda.ffs", "write a loop over the bits, (b >> k) & 1"),
    ("cuda.activemask cuda.match_any_sync cuda.match_all_sync",
     "write the mask as a number, such as 0xffffffff"),
    ("cuda.selp np.where", "write a if c else b"), ("cuda.nanosleep", "leave it out"),
    ("np.arange", "write range(n)"), ("np.float", "write np.float32(x)"),
    ("len", "write x.shape[0]"),
    ("np.zeros np.empty np.ones np.full np.zeros_like", "write cuda.shared.array(64, np.float32)"),
    ("np.array", "write a tuple at the top of the text, or cuda.local.array(4, np.float32)"),
    ("np.sum sum np.dot np.mean", "write a loop that adds"),
    ("np.max np.min", "write a loop with max(a, b) or min(a, b)"),
    ("enumerate zip", "write for i in range(n)"),
    ("round", "write rint(x)"), ("pow np.power", "write math.pow(x, y)"),
    ("np.abs", "write abs(x)"),
    ("cuda.atomic.inc", "write cuda.atomic.add(x, i, 1)"),
    ("cuda.atomic.dec", "write cuda.atomic.sub(x, i, 1)"),
    ("cuda.syncthreads_count cuda.syncthreads_and cuda.syncthreads_or",
     "write cuda.atomic.add to a cell of shared memory, then cuda.syncthreads()"),
    ("cuda.to_device cuda.device_array cuda.synchronize", "it belongs to the host's code"),
    ("cuda.const.array_like", "give the array as an argument"),
) for name in names.split()}
# Syntax, and what to write instead.
FOREIGN: dict[type[ast.AST], str] = {kind: what for kinds, what in (
    ((ast.List,), "a list; write a tuple, or cuda.local.array(4, np.float32)"),
    ((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "a comprehension; write a loop"),
    ((ast.Lambda, ast.FunctionDef, ast.ClassDef),
     "a function inside another; write them one below the other"),
    ((ast.Import, ast.ImportFrom), "an import; cuda, np and math are there already"),
    ((ast.Try, ast.Raise, ast.Assert), "an exception; write an if"),
    ((ast.Slice,), "a slice; a thread reads one element at a time: write a loop"),
    ((ast.JoinedStr,), "text; a kernel has numbers alone"),
    ((ast.AnnAssign,), "a type annotation; write v = np.float32(0)"),
    ((ast.Is, ast.IsNot), "is; write =="),
    ((ast.Dict, ast.Set), "a dict or set; write cuda.local.array(4, np.float32)"),
    ((ast.NamedExpr,), ":=; write the assignment on a line of its own"),
    ((ast.Delete,), "del; leave it out"), ((ast.Match,), "match; write if and elif"),
    ((ast.Global, ast.Nonlocal), "global; give it as an argument"),
    ((ast.With, ast.AsyncWith), "with; write the lines alone"),
    ((ast.AsyncFunctionDef, ast.Await, ast.Yield, ast.YieldFrom),
     "async or yield; a kernel runs to its end"),
    ((ast.MatMult,), "@; write a loop that adds x[i, k] * y[k, j]"),
) for kind in kinds}


# C in a line -> Python
IN_C = {"&&": "and", r"\|\|": "or", r"\+\+": "i += 1", "--": "i -= 1", r"!(?!=)": "not",
        r"\?": "a if c else b",
        r"^\s*(float|int|double|const|unsigned|__shared__)\s": "the name and = alone, without a type",
        r"^\s*//|/\*": "# before a comment",
        r"\{|\}": "a : and lines that are further in"}


IN_PLAIN_WORDS = {  # part of a Python error -> what it means in a kernel
    "Memory": "an array where a number is expected: write one of its numbers, such as x[i]",
    "interpreted as an integer": "a float where an integer is expected: write a // b instead of a / b",
    "indices must be integers": "an index must be an integer: write // instead of /",
    "index out of range": "the index is outside: x.shape has one number for each axis",
    "values to unpack": "not as many names as numbers: x.shape has one number for each axis",
    "supported": "a float has no bits to work on: write np.int32(x)",
    # how NumPy fails to raise its own error here
    "__import__": "a negative integer and a np.uint64: write np.int64(x), or np.uint64(...) for both",
}


class Refused(Exception):
    """A text leaves the dialect. ``args`` are the node and the sentence."""


def check(tree: ast.Module, kernel: ast.FunctionDef, helpers: Iterable[ast.FunctionDef],
          arrays: Collection[str]) -> None:
    """Refuse all that is outside the dialect.

    ``helpers`` are the functions that the kernel calls, and ``arrays`` the parameters that are
    arrays. Raises Refused.
    """
    constants: dict[str, bool] = {}  # name -> whether it is a tuple
    for node in tree.body:
        if isinstance(node, ast.Assign):
            _check_constant(node, constants)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if ast.unparse(node) not in IMPORTS:
                refuse(node, f"{ast.unparse(node)}: cuda, np and math are there already")
        elif not isinstance(node, ast.FunctionDef) and not _is_text(node):
            refuse(node, "the top of a text has functions, and constants such as SIZE = 64")
    functions, tuples = dict(PLAIN), set(TUPLES)
    named = {helper.name: helper for helper in helpers}
    calls = {name: named.keys() & {dotted(node.func) for node in ast.walk(helper)
                                   if isinstance(node, ast.Call)} for name, helper in named.items()}
    try:
        order = [*TopologicalSorter(calls).static_order()]  # a function after those that it calls
    except CycleError as circle:
        refuse(named[circle.args[1][0]], f"{circle.args[1][0]} calls itself: write a loop")
    for name in order:
        _Checker(name, constants, functions, tuples, named[name]).check(named[name])
        functions[name] = (len(named[name].args.args),) * 2
        if any(isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple)
               for n in ast.walk(named[name])):
            tuples.add(name)
    checker = _Checker(kernel.name, constants, {**functions, **OF_A_THREAD}, tuples, kernel, arrays)
    checker.kernels = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} - functions.keys()
    checker.check(kernel)


def _check_constant(node: ast.Assign, constants: dict[str, bool]) -> None:
    """``NAME = number``, ``NAME = (numbers)`` or ``A, B = numbers``."""
    top = _Checker("a module constant", constants, PLAIN, TUPLES)
    for target in node.targets:
        for name, value in pairs(target, node.value):
            for element in value.elts if isinstance(value, ast.Tuple) else [value]:
                top.number(element)
            if not isinstance(name, ast.Name):
                refuse(node, "a module constant is a name: SIZE = 64")
            top.new_name(node, name.id)
            constants[name.id] = isinstance(value, ast.Tuple)


class _Checker:
    """Checks one function, or, without a function, an expression.

    ``given`` are the parameters of a kernel that are arrays.
    """

    def __init__(self, where: str, constants: Mapping[str, bool], functions: Counts,
                 tuples: Collection[str], function: ast.FunctionDef | None = None,
                 given: Collection[str] = ()):
        self.where, self.constants, self.functions = where, constants, functions
        self.tuples, self.given = tuples, given
        self.is_kernel = "cuda.grid" in functions
        self.kernels: Collection[str] = ()
        self.nodes = nodes = [*ast.walk(function)] if function else []
        self.local = {a.arg for a in nodes if isinstance(a, ast.arg)} | {
            n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.arrays = {*given, *_array_names(nodes)} - constants.keys() if self.is_kernel else set()
        self.grids = {dotted(n.targets[0]) for n in nodes
                      if self.is_kernel and isinstance(n, ast.Assign) and _is_grid(n.value)} - {""}

    # ------------------------------------------------------------ functions and statements
    def check(self, function: ast.FunctionDef) -> None:
        """Refuse what is outside the dialect."""
        self.new_name(function, function.name)
        for node in self.nodes:
            if isinstance(node, ast.arg) or (isinstance(node, ast.Name)
                                             and isinstance(node.ctx, ast.Store)):
                self.new_name(node, node.arg if isinstance(node, ast.arg) else node.id)
        plain = [ast.arg(a.arg) for a in function.args.args]
        given = ast.unparse(function.args) != ", ".join(a.arg for a in plain)
        if given or function.returns or getattr(function, "type_params", None):
            refuse(function, f"write the parameters by name alone: def {function.name}(x, y):")
        for each in function.decorator_list:
            if dotted(each.func if isinstance(each, ast.Call) else each) != "cuda.jit":
                refuse(each, "a function has no decorator here but @cuda.jit")
        self.body(function.body)

    def new_name(self, node: ast.AST, name: str) -> None:
        """A name that the text gives a value."""
        if name in MODULES or (name.startswith("_") and name != "_"):
            refuse(node, f"{name} is a name of the stepper's: choose another one")

    def body(self, statements: Iterable[ast.stmt]) -> None:
        for node in statements:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for each, value in pairs(target, node.value):
                        self.assign(each, value)
            elif isinstance(node, ast.AugAssign):
                self.no_foreign(node, [node.op])
                self.assign(node.target, node.value)
                self.number(node.target)
            elif isinstance(node, ast.If | ast.While):
                self.number(node.test)
                self.body(node.body + node.orelse)
            elif isinstance(node, ast.For):
                self.loop(node)
            elif isinstance(node, ast.Expr):
                self.alone(node.value)
            elif isinstance(node, ast.Return):
                self.result(node)
            elif not isinstance(node, ast.Pass | ast.Break | ast.Continue):
                self.foreign(node)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """``target = value``, where not both are tuples."""
        if isinstance(target, ast.Tuple):
            for each in target.elts:
                self.assign(each, ast.Constant(0))
            return self.several(target, value)
        name = target.id if isinstance(target, ast.Name) else ""
        chosen = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        if isinstance(target, ast.Subscript):
            self.subscript(target)
        elif not name:
            refuse(target, f"{ast.unparse(target)} = ...: assign a variable, or a cell as in y[i]")
        if name and self.is_kernel:
            if isinstance(value, ast.Call) and dotted(value.func) in ARRAY_MAKERS:
                return self.array(value, dotted(value.func))
            if _is_grid(value):
                return None
            if all(isinstance(each, ast.Name) and each.id in self.arrays for each in chosen):
                return self.number(value.test) if isinstance(value, ast.IfExp) else None
        self.number(value)
        if name in self.given:
            refuse(target, f"{name} is an array: to store a number in it, write {name}[i] = ...")

    def several(self, target: ast.expr, value: ast.expr) -> None:
        """The right side of ``a, b = value``."""
        shape = isinstance(value, ast.Attribute) and value.attr == "shape"
        if isinstance(value, ast.Call) and self.is_tuple(value):
            self.call(value)
        elif not (shape and dotted(value.value) in self.local):  # type: ignore[attr-defined]
            self.number(value)
            refuse(target, f"{ast.unparse(value)} is one number, for several names")

    def array(self, node: ast.Call, name: str) -> None:
        """``cuda.shared.array(shape, dtype)``, of a size that the compiler knows."""
        known = ("shape", "dtype", "alignment")
        given = dict(zip(known, node.args, strict=False)) | {str(k.arg): k.value for k in node.keywords}
        if not {"shape", "dtype"} <= given.keys() <= {*known}:
            refuse(node, f"an array has a size and a dtype: write {name}(64, np.float32)")
        shape = given["shape"]
        for size in shape.elts if isinstance(shape, ast.Tuple) else [shape]:
            if _literal(size) == 0:
                refuse(node, "size 0 means dynamic shared memory: not in the dialect; write the size")
            if _literal(size) is None and dotted(size) not in self.constants.keys() - self.local:
                refuse(node, f"{ast.unparse(size)} is not known before the launch: the size of "
                             "an array is a number, or a constant at the top of the text such as "
                             "SIZE = 64")
        if dotted(given["dtype"]) not in DTYPES:
            refuse(node, f"{ast.unparse(given['dtype'])} is no dtype: write np.float32")
        if "alignment" in given and not _literal(given["alignment"]):
            refuse(node, "an alignment is a number of bytes, such as 16")

    def loop(self, node: ast.For) -> None:
        """``for i in range(...)`` or over a tuple."""
        counted = node.iter
        is_range = isinstance(counted, ast.Call) and dotted(counted.func) == "range"
        if is_range:
            self.arguments(counted, "range")  # type: ignore[arg-type]
        elif isinstance(counted, ast.Tuple):
            for element in counted.elts:
                self.number(element)
        elif not isinstance(node.target, ast.Name) or not self.constants.get(dotted(counted)):
            if isinstance(counted, ast.Call):
                self.call(counted)
            refuse(node, f"a loop over {ast.unparse(counted)}: write for i in range(n)")
        if not isinstance(node.target, ast.Name):
            refuse(node, f"for {ast.unparse(node.target)}: a loop has one variable")
        self.body(node.body + node.orelse)

    def alone(self, node: ast.expr) -> None:
        """An expression as a statement: a call, or text."""
        name = dotted(node)
        if isinstance(node, ast.Call):
            self.call(node)
        elif name in self.functions or name.endswith(".sync"):
            refuse(node, f"a call has (): write {name}(). Without them Numba compiles it to nothing")
        elif not _is_text(ast.Expr(node)):
            self.number(node)
            refuse(node, f"{ast.unparse(node)} does nothing: store it, as in y[i] = ...")

    def result(self, node: ast.Return) -> None:
        value = node.value
        if value is not None and self.is_kernel:
            refuse(node, "a kernel returns nothing: store the result, as in y[i] = ...")
        if value is None and not self.is_kernel:
            refuse(node, f"{self.where} returns nothing here: write return v")
        for each in value.elts if isinstance(value, ast.Tuple) else [value]:
            self.number(each or ast.Constant(0))

    # ------------------------------------------------------------ expressions
    def number(self, node: ast.expr) -> None:
        """Refuse an expression that is no number."""
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, int | float):
                refuse(node, f"{node.value!r:.40} is no number: a kernel has numbers alone")
        elif isinstance(node, ast.Name):
            self.name(node)
        elif isinstance(node, ast.Attribute):
            self.attribute(node)
        elif isinstance(node, ast.Call):
            self.call(node)
            if self.is_tuple(node):
                refuse(node, f"{ast.unparse(node)} is several numbers: write a, b = ...")
        elif isinstance(node, ast.Subscript):
            self.subscript(node)
        elif isinstance(node, ast.Tuple):
            refuse(node, f"{ast.unparse(node)} is a tuple where a number is expected: write a, b = ...")
        elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.IfExp | ast.Compare):
            self.no_foreign(node, ast.iter_child_nodes(node))
            among = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
            for child in ast.iter_child_nodes(node):
                for each in child.elts if among and isinstance(child, ast.Tuple) else [child]:
                    if isinstance(each, ast.expr):
                        self.number(each)
        else:
            self.foreign(node)

    def no_foreign(self, node: ast.AST, parts: Iterable[ast.AST]) -> None:
        for part in parts:
            if type(part) in FOREIGN:
                self.foreign(part, node)

    def foreign(self, node: ast.AST, where: ast.AST | None = None) -> NoReturn:
        name = type(node).__name__.lower()
        what, _, instead = FOREIGN.get(type(node), name).partition("; ")
        refuse(where or node, f"{what} is not in the dialect" + f": {instead}" * bool(instead))

    def name(self, node: ast.Name) -> None:
        name = node.id
        if name in self.arrays & self.local:
            refuse(node, f"{name} is an array: one of its numbers is {name}[i]")
        if name in self.local:
            return
        if self.constants.get(name):
            refuse(node, f"{name} is a tuple: one of its numbers is {name}[0]")
        if name in self.constants:
            return
        if name in self.functions:
            refuse(node, f"{name} is a function: write {name}(...)")
        if name in MODULES or advice(name):
            self.unknown(node, name)
        near = "".join(difflib.get_close_matches(name, [*self.local, *self.constants], 1))
        refuse(node, f"{name} has no value: nothing assigns it" + f". Is {near} meant?"
               * bool(near))

    def attribute(self, node: ast.Attribute) -> None:
        name, base = ast.unparse(node), dotted(node.value)
        first = base.partition(".")[0]
        if name in VALUES and (self.is_kernel or first != "cuda"):
            return
        if name in self.functions:
            refuse(node, f"{name} is a function: write {name}({'...' * (self.functions[name][1] > 0)})")
        if first and first not in self.local:
            self.unknown(node, name)
        if node.attr == "shape":
            refuse(node, f"{name} is a tuple: write {name}[0], or rows, cols = {name}")
        if node.attr != "size" or base not in self.local:
            refuse(node, f"{name}: an array has .shape and .size alone")

    def call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        if self.is_sync(node):
            return
        if name in self.local:
            refuse(node, f"{name} is a variable here: give it another name than the function's")
        if name not in self.functions:
            self.unknown(node, name or ast.unparse(node.func))
        if name in ARRAY_MAKERS:
            refuse(node, f"an array gets a name first: s = {name}(64, np.float32)")
        if name == "range":
            refuse(node, "range stands in a for loop alone: for i in range(n)")
        self.arguments(node, name)
        if name in GRIDS and _literal(node.args[0]) not in (1, 2, 3):
            refuse(node, f"{name} takes the number of dimensions: {name}(1), or 2 or 3")
        if name in WIDE and _literal(node.args[4]) not in (2, 4, 8, 16):
            refuse(node, f"{ast.unparse(node.args[4])} elements at once: write 2, 4, 8 or 16")

    def is_sync(self, node: ast.Call) -> bool:
        """Whether it is ``grid.sync()``."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "sync" or node.args:
            return False
        return _is_grid(node.func.value) or dotted(node.func.value) in self.grids

    def arguments(self, node: ast.Call, name: str) -> None:
        low, high = self.functions[name]
        if node.keywords:
            refuse(node, f"{ast.unparse(node)}: arguments are written without names")
        if not low <= len(node.args) <= high:
            takes = "argument" if low == high == 1 else "arguments"
            form = f": write {name}({FORMS[name]})" if name in FORMS else ""
            refuse(node, f"{name} takes {low}{f' to {high}' * (high > low)} {takes}, not {len(node.args)}{form}")
        for place, argument in enumerate(node.args):
            if place not in ARRAYS_OF.get(name, ()):
                axes = place == 1 and name in ATOMICS and isinstance(argument, ast.Tuple)
                for each in argument.elts if axes else [argument]:  # type: ignore[attr-defined]
                    self.number(each)
            elif not isinstance(argument, ast.Name) or argument.id not in self.local:
                refuse(node, f"argument {place + 1} of {name} is an array, by its name alone")

    def is_tuple(self, node: ast.Call) -> bool:
        """Whether a call returns several numbers."""
        name = dotted(node.func)
        return name in self.tuples or (name in GRIDS and [_literal(a) for a in node.args] != [1])

    def subscript(self, node: ast.Subscript) -> None:
        array, text = node.value, ast.unparse(node.value)
        if isinstance(array, ast.Subscript):
            refuse(node, f"{text}[...]: write the index of each axis in one bracket, as in x[i, j]")
        if isinstance(array, ast.Attribute) and array.attr == "shape":
            if dotted(array.value) not in self.local:
                self.attribute(array)
        elif not isinstance(array, ast.Name):
            refuse(node, f"{text}[...]: only an array, a tuple constant and x.shape have elements")
        elif array.id not in self.local | self.constants.keys():
            self.name(array)
        elif array.id not in self.arrays and not self.constants.get(array.id):
            refuse(node, f"{text} is a number in {self.where}: give the function {text}[i]")
        for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            self.number(index)

    def unknown(self, node: ast.AST, name: str) -> NoReturn:
        if (name in OF_A_THREAD or name.startswith("cuda.")) and not self.is_kernel:
            refuse(node, f"{self.where} uses cuda: only the kernel itself may")
        if name in self.kernels:
            refuse(node, f"{name} uses cuda: a function that is called may not")
        if name in VALUES:
            refuse(node, f"{name} is a number: write it without ()")
        if "." in name and name.partition(".")[0] in self.local:
            refuse(node, f"{name}: an array has .shape and .size alone; write a loop over its elements")
        instead = advice(name)
        refuse(node, f"{name} is not in the dialect" + f": {instead}" * bool(instead))


# ---------------------------------------------------------------- small questions
def refuse(node: ast.AST, sentence: str) -> NoReturn:
    """Leave the check of a text."""
    raise Refused(node, sentence)


def dotted(node: ast.AST) -> str:
    """``cuda.shared.array`` for that expression, "" for anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """``a, b = c, d`` as ``a = c`` and ``b = d``."""
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return [(target, value)]
    if len(target.elts) != len(value.elts):
        refuse(target, f"{len(value.elts)} values for {len(target.elts)} names")
    return list(zip(target.elts, value.elts, strict=True))


def advice(name: str) -> str:
    """What to write instead of a name that the dialect lacks."""
    last, known = name.rpartition(".")[2], [*sorted(VALUES), *PLAIN, *OF_A_THREAD]
    if found := ADVICE.get(re.sub("^numpy[.]", "np.", name)):
        return found
    if f"{name}.x" in VALUES:
        return f"write {name}.x"
    same = [x for x in known if x.rpartition(".")[2].lower() == last.lower() and len(last) > 1]
    near = same or difflib.get_close_matches(name, known, 1, 0.8)
    return f"write {near[0]}" if near else ""


def not_python(error: SyntaxError | UnicodeError) -> str:
    """What a text that Python cannot read has in that line, and what Python writes instead."""
    line = re.sub(r"#.*", "", getattr(error, "text", None) or "")
    instead = next((f": write {python}" for c, python in IN_C.items() if re.search(c, line)), "")
    return f"this is not Python: {getattr(error, 'msg', error)}{instead}"


def in_plain_words(error: BaseException) -> str:
    """A Python error out of kernel text, without the names of the stepper's classes."""
    said = str(error)
    if isinstance(error, UnboundLocalError):
        return f"{said.split(chr(39))[1]} has no value yet: assign it on every way to this line"
    if isinstance(error, AttributeError):
        return "only an array has elements, and this is a number with an index"
    if isinstance(error, ZeroDivisionError):
        return "an integer is divided by zero"
    return next((words for part, words in IN_PLAIN_WORDS.items() if part in said), said)


def _is_text(node: ast.AST) -> bool:
    constant = node.value if isinstance(node, ast.Expr) else None
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)


def _is_grid(node: ast.AST) -> bool:
    return (isinstance(node, ast.Call) and dotted(node.func) == "cuda.cg.this_grid"
            and not node.args and not node.keywords)


def _literal(node: ast.AST) -> int | None:
    """The value of an integer literal."""
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _array_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that have an index, are made as arrays, or go where arrays go."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Subscript):
            found.add(dotted(node.value))
        elif isinstance(node, ast.Call):
            places = ARRAYS_OF.get(dotted(node.func), ())
            found.update(dotted(a) for place, a in enumerate(node.args) if place in places)
        elif (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
              and dotted(node.value.func) in ARRAY_MAKERS):
            found.update(map(dotted, node.targets))
    return found - {""}
