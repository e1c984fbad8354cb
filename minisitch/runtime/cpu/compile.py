"""Emitted CPU text to machine code, by Numba.

In:  the text of one kernel and the dtypes of its arrays. Out: a ``Compiled``, whose
``function(first, last, *arrays)`` runs without the interpreter lock. Numba is imported when the
first kernel is compiled or loaded, never before.

A kernel is compiled as a C function of addresses, kept on disk, and linked by ``object_code.py``.
``start`` calls it from Python. Numba compiles one ``start`` for each tuple of array dtypes. All
kernels with arrays of these dtypes share it.

    text --key--> memory? --no--> disk? --no--> compile --> disk
                    |yes           |yes (digest holds)
                    v              v
                 Compiled       Compiled

An entry of the cache has two files. ``<key>.py`` is the text, for readers, debuggers and
tracebacks. ``<key>.bin`` is the machine code, some kB, signed (``runtime/store.py``). The key holds
everything that the machine code depends on.

Measured on one core of an EPYC (Zen 4): a softmax kernel takes 0.6 s the first time, including
Numba's start. Later kernels take 0.15 to 0.25 s. From the disk the first kernel takes 0.4 s
(``import numba`` 0.13 s, the start of Numba's compiler 0.2 s), later ones 1 ms.
"""

import ast
import atexit
import contextlib
import dataclasses
import dis
import functools
import hashlib
import inspect
import json
import linecache
import math
import os
import pkgutil
import re
import subprocess
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary, finalize

import numpy as np

from ...errors.forks import forks_wait
from ...errors.progress import now
from ...errors.undisturbed import undisturbed
from ...simt.values import MATH
from .. import store
from . import math as cpu_math
from . import object_code
from .indices import named_once
from .object_code import Code, Image
from .parts import call_of, in_parts
from .workers import thread_count

# IEEE arithmetic, operation by operation, as in NumPy. These flags of LLVM are off:
# contract: sqrt(a * a - b * b) became NaN where a == b. It is on under exact=False, and in the
#     polynomials of the helpers, which ask for it themselves (_Polynomials).
# reassoc: it turns x - y + y into x, even for NaN, and undoes the range reduction of every helper.
#     Only accumulators may be summed in any order (_Idioms).
# afn: 1 / sqrt(0) became NaN. arcp: x / y became inf for denormal y.
KERNEL_FLAGS: dict[str, Any] = dict(error_model="numpy")
HELPER_FLAGS: dict[str, Any] = dict(forceinline=True, error_model="numpy",
                                    no_cpython_wrapper=True, no_cfunc_wrapper=True)
RUN = 0  # position on the board of the thread pool: the address of the function that shares a job
WHOLE = 1 << 40  # the length that arrays have inside a kernel, which does not check its indices
# Bytes of scratch rows that one function keeps on the stack; the rest come from the allocator.
STACK = 1 << 16
# Kernels compiled in one process: for each, LLVM keeps nearly a MB until the process ends.
MOST_HERE = 64
MANY = 4  # kernels that are worth another process, which needs a second to begin

# At exit, wait until a background thread has finished the kernel that it compiles.
atexit.register(forks_wait.__enter__)
# Machine code lives as long as its function.
_memory: WeakValueDictionary[str, Code] = WeakValueDictionary()


@dataclass(frozen=True)
class Request:
    """What to compile: one function's text, its name and its arrays' dtypes.

    ``short``: whether it has short loops. Without ``exact``, a product and a sum may be rounded
    once.
    """

    text: str
    name: str
    dtypes: tuple[str, ...]
    short: bool = False
    exact: bool = True


@dataclass(frozen=True)
class Compiled:
    """A kernel in machine code.

    ``start(address, board, spread, helpers, chunks, first, last, *arrays)`` runs the tasks from
    ``first`` to ``last``. If ``board`` is 0, the calling thread runs them all. Otherwise they are
    cut into ``chunks``, and up to ``helpers`` threads of that board help (``thread_pool.py``).

    It trusts its caller: every array is flat, C-contiguous, of the right dtype and long enough. An
    array that is written shares no memory with another. Raises MemoryError if there is no memory
    for the kernel's scratch rows.
    """

    start: Callable[..., None]
    code: Code | None  # None if Numba is told to compile nothing: the text runs as Python
    origin: str  # "compiled" | "disk" | "memory"
    path: str  # where the text was saved; "<minisitch ...>" without a cache
    request: Request

    def bind(self, *given: int) -> Callable[..., None]:
        """``start`` with its first arguments, from the board on. It keeps the machine code."""
        bound = functools.partial(self.start, self.code.address if self.code else 0, *given)
        bound.code = self.code  # type: ignore[attr-defined]
        return bound

    @property
    def function(self) -> Callable[..., None]:
        """``function(first, last, *arrays)``: these tasks in the caller's thread."""
        return self.bind(0, 0, 0, 0)


# ---------------------------------------------------------------- the front door


def compile_cpu(text: str, name: str, dtypes: tuple[str, ...], *, short: bool = False,
                exact: bool = True) -> Compiled:
    """Compile ``text``, or find it in memory or on disk.

    A float16 array is passed as a view of type uint16. ``short`` is for loops of constant length up
    to 64: LLVM would unroll them before its vectoriser sees them. Without ``exact``, a product and
    a sum may be rounded once.
    """
    return _compile(Request(text, name, tuple(dtypes), short, exact))


def load_text(text: str, name: str) -> Callable[..., None]:
    """The same text as plain Python over ``cpu_math``, for tests. Slow, but needs no Numba."""
    namespace = {"__name__": __name__, "np": np, "math": MATH, **_cpu_math_functions()}
    function = execute(compile(text, f"<minisitch {name}>", "exec"), name, text, namespace)

    @functools.wraps(function)
    def quiet(*args):
        with np.errstate(all="ignore"):
            return function(*args)

    return quiet


def forget_code() -> None:
    """Let no later request have the machine code of one that is known already."""
    _memory.clear()


def compile_many(requests: Iterable[Request]) -> list[Compiled]:
    """Compile several kernels, many of them in two processes.

    Numba compiles under a global lock, so this process compiles one after the other. With
    ``MANY`` or more, another process compiles the last of them at the same time.
    """
    wanted = list(requests)
    distinct = dict.fromkeys(wanted)
    made: dict[Request, Compiled] = {}
    with _shared(distinct) as turn:
        for number, request in enumerate(distinct, 1):
            now(f"compiling kernel {number} of {len(distinct)}")
            turn(request)
            made[request] = _compile(request)
    return [made[request] for request in wanted]


@contextlib.contextmanager
def _shared(requests: Collection[Request]) -> Iterator[Callable[[Request], object]]:
    """The other process compiles the last requests into the cache at the same time.

    It leaves out those that are compiled already. Call the function with each request in order: it
    keeps the request for this process, or waits until the other one has compiled it.
    """
    folder, left = store.folder(), deque[Request]()

    def kept(request: Request) -> bool:
        return folder is not None and (folder / f"{_key(request)}.bin").exists()

    if folder and len(requests) >= MANY and thread_count() > 1:
        left.extend(r for r in requests if not (_memory.get(_key(r)) or kept(r)))
    if folder is None or len(left) < MANY or object_code.is_switched_off():
        yield lambda request: None
        return
    done = {request: threading.Event() for request in left}

    def work() -> None:
        while left:
            with contextlib.suppress(IndexError):  # the last one was taken meanwhile
                request = left.pop()
                try:
                    elsewhere.compile(request, folder)
                finally:
                    done[request].set()
                if not kept(request):  # it fails, or the cache cannot be written
                    break
        elsewhere.rest()

    def turn(request: Request) -> None:
        try:
            left.remove(request)
        except ValueError:  # the other process has it, or it was compiled before
            done[request].wait() if request in done else None

    with contextlib.suppress(RuntimeError):  # the system starts no thread at the interpreter's end
        threading.Thread(target=work, daemon=True).start()
    try:
        yield turn
    finally:
        left.clear()


def compile_c_functions(name: str, compile: Callable[[], Sequence[Any]]) -> list[Code]:
    """C functions of ``thread_pool.py``, kept on disk like kernels. ``compile`` makes them."""
    folder, parts = store.folder(), (name, _surroundings(), object_code.settings())
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    with forks_wait:
        kept = store.read(folder, f"{key}.bin") if folder else None
        if kept is None:
            kept = json.dumps([object_code.image_of(x).pack().hex() for x in compile()]).encode()
            if folder:
                store.write(folder, f"{key}.bin", kept)
        return [Code(Image.unpack(bytes.fromhex(each))) for each in json.loads(kept)]


# ---------------------------------------------------------------- text to functions


def execute(code: types.CodeType, name: str, text: str,
            namespace: dict[str, Any]) -> Callable[..., None]:
    """Run the module's code and return its function. Tracebacks show the text."""
    exec(code, namespace)
    remember_lines(namespace[name], code.co_filename, text)
    return namespace[name]


def remember_lines(function: Callable[..., Any], path: str, text: str) -> None:
    """Let tracebacks show the text of a function as long as the function lives."""
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    finalize(function, linecache.cache.pop, path, None).atexit = False


@functools.cache
def _cpu_math_functions() -> dict[str, Callable[..., Any]]:
    functions = {n: f for n, f in vars(cpu_math).items() if isinstance(f, types.FunctionType)}
    return {n: f for n, f in functions.items() if f.__module__ == cpu_math.__name__}


def wrapping(node: ast.Call) -> ast.Call:
    """Compute the user's 64-bit integers as unsigned ones, which wrap.

    Signed overflow is undefined in Numba: x + 1 > x is always True. Narrower integers are computed
    in 64 bits, which they cannot overflow, and then cut.

    Before:  v2 = np.int64(v0 + v1)
    After:   v2 = np.int64(np.uint64(v0) + np.uint64(v1))
    """
    def unsigned(part: ast.expr) -> ast.expr:
        match part:
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), right):
                return ast.BinOp(unsigned(left), part.op, unsigned(right))
        return ast.Call(ast.Attribute(ast.Name("np", ast.Load()), "uint64", ast.Load()), [part], [])

    match node:
        case ast.Call(ast.Attribute(ast.Name("np"), "int64"),
                      [ast.BinOp(_, ast.Add() | ast.Sub() | ast.Mult(), _) as inner]):
            node.args = [unsigned(inner)]
    return node


class _Idioms(ast.NodeTransformer):
    """Mark what LLVM may do with a kernel's text, so that its loops vectorise.

    A reduction into a local variable may be computed in any order.

    Slices become windows. A slice has branches for a start before the array and an end behind it. A
    branch between two short loops stops LLVM from vectorising both as straight-line code
    (layernorm of 17 columns: windows are 2.5 times as fast).

    Scratch rows are on the stack while there is room. LLVM cannot know that memory of an allocator
    overlaps no argument, so it would compare addresses before each loop. For rows of ten columns
    that takes as long as the loop.

    Before:  x_row = x[row * 4:row * 4 + 4]      After:  x_row = window(x, row * 4, 4)
             total += x_row[col]                         total = add_any_order(total, x_row[col])
             k = np.empty(32, np.float32)                k = on_the_stack(32, np.float32)
    """

    ANY_ORDER: ClassVar = {ast.Add: "add_any_order", ast.Mult: "mul_any_order"}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.stack = STACK
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return wrapping(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        value, target = node.value, node.targets[0]
        own = getattr(target, "id", "")
        match value:
            case ast.Call(ast.Attribute(ast.Name("np"), "empty"),
                          [ast.Constant(int(size)), ast.Attribute(_, dtype)]):
                nbytes = size * np.dtype(getattr(np, dtype)).itemsize + 64
                if nbytes <= self.stack:
                    self.stack -= nbytes
                    node.value = call_of("on_the_stack", *value.args)
            case ast.BinOp(ast.Name(first), op, right) if first == own and type(op) in self.ANY_ORDER:
                node.value = call_of(self.ANY_ORDER[type(op)], value.left, right)
            case ast.Call(ast.Name("maximum" | "minimum" as name), [ast.Name(first), right]) if (
                    first == own):
                node.value = call_of(f"{name}_any_order", value.args[0], right)
            case ast.Subscript(whole, ast.Slice(ast.expr() as start, ast.expr() as stop)):
                length: ast.expr = ast.BinOp(stop, ast.Sub(), start)
                match stop:
                    case ast.BinOp(left, ast.Add(), right) if ast.dump(left) == ast.dump(start):
                        length = right
                node.value = call_of("window", whole, start, length)
        return ast.fix_missing_locations(node)


def _for_the_compiler(text: str, name: str, path: str, dtypes: Sequence[str]) -> types.CodeType:
    """The module's code as a C function of addresses.

    It returns 0, or 1 if there is no memory for scratch rows. Accumulators and windows are marked
    (``_Idioms``). The kernel asks for the machine's widest vectors.

    Before:  def k(first, last, x):              After:  def k(first, last, x):
                 ...                                         arguments_do_not_overlap()
                                                             widest_vectors()
                                                             x = carray(x, WHOLE, float32)
                                                             ...
                                                             return 0
    """
    tree = _Idioms().visit(ast.parse(text, path))
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    arrays = [a.arg for a in function.args.args[2:]]
    begin = ["arguments_do_not_overlap()", "widest_vectors()"]
    begin += [f"{array} = carray({array}, {WHOLE}, {dtype})"
              for array, dtype in zip(arrays, dtypes, strict=True)]
    parts = in_parts(function)
    for whole in (function, *parts):
        named_once(whole)
    for part in parts:
        part.body[:0] = ast.parse("a_part()\nwidest_vectors()\narguments_do_not_overlap()").body
        tree.body.append(part)
    # Only what allocates is inside ``try``: Numba splits a block after each operation there, and
    # takes quadratic time.
    failed = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, ast.parse("return 1").body)
    body = [ast.Try([s], [failed], [], []) if "np.empty(" in ast.unparse(s) else s
            for s in function.body]
    added = [*ast.parse("\n".join(begin)).body, *ast.parse("return 0").body]
    for each in added:
        ast.copy_location(each, function.body[0])
    function.body = [*added[:-1], *body, added[-1]]
    return compile(ast.fix_missing_locations(tree), path, "exec")


def names_in(code: types.CodeType) -> set[str]:
    """The global names that code reads, without attributes (``np.floor`` counts as ``np``)."""
    inner = (names_in(c) for c in code.co_consts if isinstance(c, types.CodeType))
    own = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*inner)


@functools.cache
def _helper(name: str) -> Any:
    """A function of ``cpu_math`` for Numba: an intrinsic, or its text compiled with its helpers."""
    import numba

    from . import primitives

    if hasattr(primitives, name):
        return getattr(primitives, name)
    function = _cpu_math_functions()[name]
    tree = _Polynomials().visit(ast.parse(inspect.getsource(function)))
    space = dict(vars(cpu_math))
    space |= {f"{each}_{k}": c for each, known in vars(cpu_math).items()
              if isinstance(known, tuple) for k, c in enumerate(known)}
    exec(compile(ast.fix_missing_locations(tree), cpu_math.__file__, "exec"), space)
    functions = {**_cpu_math_functions(), name: space[name]}
    return numba.njit(**HELPER_FLAGS)(over_helpers(functions, name, _helper))


class _Polynomials(ast.NodeTransformer):
    """Let a helper round a product and a sum once: twice as fast, and more exact.

    This is written into the text. A flag would let LLVM decide in each kernel anew, and LLVM does
    not contract a product that two sums read.

    Before:  p = polynomial(r, _E)                  r = y - n * _LN2_HIGH
    After:   p = multiply_add(_E_1, r, _E_0)        r = multiply_add(-n, _LN2_HIGH, y)
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("polynomial"), [x, ast.Name(name)]):
                last, *rest = reversed(range(len(getattr(cpu_math, name))))
                result: ast.expr = ast.Name(f"{name}_{last}", ast.Load())
                for k in rest:
                    c = ast.Name(f"{name}_{k}", ast.Load())
                    result = call_of("multiply_add", result, x, c)
                return result
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.BinOp(ast.BinOp(a, ast.Mult(), b), ast.Add() | ast.Sub(), c):
                c = ast.UnaryOp(ast.USub(), c) if isinstance(node.op, ast.Sub) else c
            case ast.BinOp(c, ast.Add() | ast.Sub(), ast.BinOp(a, ast.Mult(), b)):
                a = ast.UnaryOp(ast.USub(), a) if isinstance(node.op, ast.Sub) else a
            case _:
                return node
        return ast.copy_location(call_of("multiply_add", a, b, c), node)


def over_helpers(functions: dict[str, Callable[..., Any]], name: str,
                 helper: Callable[[str], Any]) -> Any:
    """A copy of a helper function that calls the compiled forms of other helpers."""
    function = functions[name]
    used = {n: helper(n) for n in names_in(function.__code__) & functions.keys()}
    space = function.__globals__ | used
    return types.FunctionType(function.__code__, space, name, function.__defaults__)


# ---------------------------------------------------------------- compiling


def _compile(request: Request) -> Compiled:
    key = _key(request)
    folder = store.folder()
    path = str(folder / f"{key}.py") if folder else f"<minisitch {request.name} {key[:12]}>"
    if object_code.is_switched_off():
        plain = load_text(request.text, request.name)
        return Compiled(lambda kernel, board, spread, helpers, chunks, *given: plain(*given),
                        None, "compiled", path, request)

    def make() -> tuple[Callable[..., None], Code, str]:
        with forks_wait:
            start = _start(_array_types(request))  # first: it tells LLVM where Numba's allocator is
            code, origin = _load_or_build(request, key, folder, path)
            _memory[key] = code
        return start, code, origin

    known = _memory.get(key)  # without the lock, so that a compilation does not delay it
    if not known:
        return Compiled(*undisturbed(make), path, request)
    return Compiled(_start(_array_types(request)), known, "memory", path, request)


def _load_or_build(request: Request, key: str, folder: Path | None, path: str) -> tuple[Code, str]:
    """The machine code and where it came from."""
    if known := _memory.get(key):  # another thread was faster
        return known, "memory"
    content, origin = store.read(folder, f"{key}.bin") if folder else None, "disk"
    if content is None and folder:
        elsewhere.try_to(request, folder)
        content, origin = store.read(folder, f"{key}.bin"), "compiled"
    if content is not None:
        return Code(Image.unpack(content)), origin
    if folder:
        # First, so that Numba's errors can quote it.
        store.replace(Path(path), request.text.encode())
    image = object_code.image_of(_build(request, path))
    if folder:
        store.write(folder, f"{key}.bin", image.pack())
    return Code(image), "compiled"


def _array_types(request: Request) -> tuple[str, ...]:
    return tuple("uint16" if d == "float16" else d for d in request.dtypes)


def _build(request: Request, path: str) -> Any:
    """The kernel as a C function ``kernel(first, last, *addresses)`` that says if it failed."""
    import numba

    dtypes = _array_types(request)
    namespace: dict[str, Any] = {"__name__": __name__, "np": np, "math": math,
                                 "carray": numba.carray}
    code = _for_the_compiler(request.text, request.name, path, dtypes)
    used = names_in(code) & _cpu_math_functions().keys()
    namespace |= {d: np.dtype(d).type for d in dtypes} | {n: _helper(n) for n in used}
    function = execute(code, request.name, request.text, namespace)
    fast: dict[str, Any] = dict(KERNEL_FLAGS, fastmath=set() if request.exact else {"contract"})
    for part in [name for name in namespace if name.startswith("part")]:
        compiled = numba.njit(**dict(fast, no_cpython_wrapper=True, no_cfunc_wrapper=True))
        namespace[part] = compiled(namespace[part])
    pointers = [numba.types.CPointer(numba.from_dtype(np.dtype(d))) for d in dtypes]
    signature = numba.int64(numba.int64, numba.int64, *pointers)
    with _short_loops(request.short):
        return numba.cfunc(signature, **fast)(function)


@functools.cache
def _start(dtypes: tuple[str, ...]) -> Callable[..., None]:
    """``Compiled.start`` for kernels of arrays of these dtypes.

    Numba keeps it on disk. Numba loads any file that it finds there, so this is done only in a
    folder that no other user can write to. The entry point is called directly: Numba's dispatcher
    is slower and refuses read-only arrays.
    """
    import numba

    from .atomics import addresses, call, job, load

    words, arrays = [numba.int64] * 7, [numba.from_dtype(np.dtype(d))[::1] for d in dtypes]
    signature = numba.void(*words, *arrays)
    text = _start_text(", ".join(f"array{k}" for k in range(len(dtypes))))
    key = hashlib.sha256(repr((text, _surroundings(), object_code.settings())).encode()).hexdigest()
    folder = store.folder()
    kept = folder and store.is_private(folder)
    path = folder / f"{key}.py" if folder and kept else Path("<minisitch start>")
    if path.is_absolute() and not path.exists():
        store.replace(path, text.encode())
    known: dict[str, Any] = {"__name__": __name__, "addresses": addresses, "call": call,
                             "job": job, "load": load}
    exec(compile(text, path, "exec"), known)
    compiled = functools.partial(numba.njit, signature, nogil=True, error_model="numpy",
                                 no_cfunc_wrapper=True)
    _forget_unsigned(path)
    try:
        made: Any = compiled(cache=path.exists())(known["start"])
    except Exception:  # what is on the disk is damaged
        made = compiled()(known["start"])
    _sign(path)
    return made.overloads[signature.args].entry_point


def _written_by_numba(path: Path) -> tuple[list[Path], bytes]:
    """The files of Numba's own cache for a text, and the digest of their contents."""
    files = sorted(path.parent.glob(f"__pycache__/{path.stem}.*")) if path.is_absolute() else []
    digest = hashlib.sha256(b"".join(f.name.encode() + f.read_bytes() for f in files)).digest()
    return files, digest


def _forget_unsigned(path: Path) -> None:
    """Delete files of Numba's cache that this user did not sign: Numba would unpickle them."""
    files, digest = _written_by_numba(path)
    if files and store.read(path.parent, f"{path.stem}.bin") != digest:
        for file in files:
            file.unlink(missing_ok=True)


def _sign(path: Path) -> None:
    files, digest = _written_by_numba(path)
    if files and store.read(path.parent, f"{path.stem}.bin") != digest:
        store.write(path.parent, f"{path.stem}.bin", digest)


def _start_text(names: str) -> str:
    return f"""
def start(kernel, board, spread, helpers, chunks, first, last, {names}):
    arrays = addresses(({names},))
    if board:
        this = job(spread, first, last, kernel, arrays)
        status = call(load(board, {RUN}), (board, this, helpers, chunks))
    else:
        status = call(kernel, (first, last) + arrays)
    if status:
        raise MemoryError("no memory for the scratch rows of a kernel")
"""


@contextlib.contextmanager
def _short_loops(on: bool) -> Iterator[None]:
    """While one kernel compiles, let LLVM vectorise loops before it unrolls them.

    By default it first unrolls a loop of up to about 64 iterations. Its vectoriser of straight-line
    code then keeps sums in order (layernorm of 32 columns was 3 times as slow). Numba has no
    setting for this.
    """
    from llvmlite import binding as llvm
    from numba.core import codegen

    def late(machine: Any, opt: int = 2, loop_vectorize: bool = False,
             slp_vectorize: bool = False) -> Any:
        options = llvm.create_pipeline_tuning_options(opt)
        options.loop_vectorization, options.slp_vectorization = loop_vectorize, slp_vectorize
        options.loop_unrolling = False
        return llvm.create_pass_builder(machine, options)

    before = codegen.create_pass_builder
    codegen.create_pass_builder = late if on else before
    try:
        yield
    finally:
        codegen.create_pass_builder = before


# ---------------------------------------------------------------- the disk cache


def _key(request: Request) -> str:
    """A digest of what the machine code depends on. Comments, which name lines, are left out."""
    program = re.sub(r"[ \t]*#.*$", "", request.text, flags=re.MULTILINE)
    parts = (program, request.name, request.dtypes, request.short, request.exact,
             *_surroundings(), *object_code.settings())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """What machine code depends on besides the request: our sources, versions, the processor."""
    files = ("compile.py", "math.py", "primitives.py", "object_code.py", "atomics.py",
             "thread_pool.py", "parts.py", "indices.py")
    sources = [hashlib.sha256(pkgutil.get_data(__package__, f) or b"").hexdigest() for f in files]
    return (*sources, *undisturbed(object_code.surroundings))  # they import llvmlite


# ---------------------------------------------------------------- another process


class Elsewhere:
    """Compiles in another process. Each process compiles at most ``MOST_HERE`` kernels.

    LLVM never frees what it compiled. So after ``MOST_HERE`` kernels here, all others are compiled
    there. Each request and each answer is one line of JSON.
    """

    def __init__(self) -> None:
        self.here = self.there = 0  # kernels, by this process and by the present other one
        self.process: subprocess.Popen[str] | None = None
        self.turn = threading.Lock()

    def try_to(self, request: Request, folder: Path) -> None:
        """Compile into the cache, if this process has compiled enough. The caller sees failures."""
        self.here += 1
        if self.here > MOST_HERE:
            self.compile(request, folder)

    def compile(self, request: Request, folder: Path) -> None:
        """Compile into the cache. The caller sees failures: the cache does not have it."""
        with self.turn:
            if self.there >= MOST_HERE:
                self.end()
            self.there += 1
            try:
                self.process = self.process or self._begin()
                assert self.process.stdin and self.process.stdout
                asked = json.dumps([str(folder), *dataclasses.astuple(request)])
                self.process.stdin.write(asked + "\n")
                self.process.stdin.flush()
                if self.process.stdout.readline() == "done\n":
                    return
            except (OSError, ValueError):
                pass
            self.end()

    @staticmethod
    def _begin() -> subprocess.Popen[str]:
        code = (f"import sys; sys.path[:] = {sys.path!r}; "
                "from minisitch.runtime.cpu.compile import _serve; _serve()")
        return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def rest(self) -> None:
        """End the other process, unless this one has compiled enough."""
        with self.turn:
            if self.here < MOST_HERE:
                self.end()

    def end(self) -> None:
        process, self.process, self.there = self.process, None, 0
        if process:
            process.kill()
            process.communicate()

    def forget(self) -> None:
        """In a child of this process: the other process is its parent's."""
        self.process, self.there, self.turn = None, 0, threading.Lock()


elsewhere = Elsewhere()
atexit.register(elsewhere.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=elsewhere.forget)


def _serve() -> None:
    """The other process: reads one request a line from stdin, writes one answer a line."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        os.environ["MINISITCH_CACHE"], text, name, dtypes, *options = json.loads(line)
        _compile(Request(text, name, tuple(dtypes), *options))
        print("done", file=answers, flush=True)
