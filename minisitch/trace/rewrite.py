"""The user's functions with a hook behind each thing that they do: load, call, operator, branch.

In:  a function. Out: the same function from rewritten source: with the same globals, closure and
defaults.

A trace must know what the program reads from outside, and must answer where NumPy would make an
array (``np.zeros``) or run another function of the user's. So the program's own text asks it. Most
of what Python does has a function (``getattr``, ``operator.add``, ``format``), and a call of it is
one like another:

Before:  y = np.zeros(3) + self.w
After:   y = call(add, call(call(getattr, seen(np), "zeros"), 3), call(getattr, seen(self), "w"))

What the program holds in its hand stays real: objects, functions, classes, modules, and their
identity. Only arrays from outside are traced ones (``hooks`` says what each hook does). The hooks
are free variables of the copy. Nothing of the user's is changed.

A function whose source is unknown, as one typed at a prompt, has no copy.
"""

import __future__

import ast
import copy
import dis
import functools
import inspect
import linecache
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

from .recorder import is_inside

HOOKS: dict[str, CellType] = {}  # the name in rewritten text -> its cell
FRAME = {"super", "locals", "globals", "vars", "dir", "eval", "exec", "breakpoint"}  # these ask their caller's frame
AROUND = ("PUSH_NULL", "PRECALL", "KW_NAMES", "EXTENDED", "RESUME", "MAKE_CELL", "COPY_FREE", "NOP")
FUTURE = functools.reduce(operator.or_, (getattr(__future__, name).compiler_flag
                                         for name in __future__.all_feature_names))
OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
             ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitOr: "or_", ast.BitXor: "xor", ast.BitAnd: "and_",
             ast.MatMult: "matmul", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
             ast.Is: "is_", ast.IsNot: "is_not", ast.In: "within", ast.NotIn: "without",
             ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}
CONVERSIONS = {ord("r"): "repr", ord("s"): "str", ord("a"): "ascii"}


def hook(function: Callable) -> Callable:
    """Make a function a hook, under its own name."""
    HOOKS[f"_hook_{function.__name__}"] = CellType(function)
    return function


def _ask(name: str, at: ast.AST, *args: Any, keywords: Sequence[ast.keyword] = ()) -> Any:
    """A call of a hook in the place of ``at``."""
    return ast.copy_location(ast.Call(_hook(name), [*args], [*keywords]), at)


def _do(name: str, at: ast.AST, *args: Any) -> Any:
    """A call of one of Python's own functions."""
    return _ask("call", at, _hook(name), *args)


def _hook(name: str) -> ast.Name:
    return ast.Name(f"_hook_{name}", ast.Load())


def _kept(name: str, how: ast.expr_context | None = None) -> ast.Name:
    """A name that the rewritten text keeps a value in."""
    return ast.Name(f"__hook_{name}__", how or ast.Load())


def _around(part: str, hook: str) -> Callable[[Any, Any], Any]:
    """The visit of a node that puts a hook around one part."""
    def visit(self: ast.NodeTransformer, node: Any) -> Any:
        self.generic_visit(node)
        value = getattr(node, part)
        if not isinstance(getattr(node, "ctx", None), ast.Store):
            setattr(node, part, _ask(hook, value, value))
        return node
    return visit


class HookWriter(ast.NodeTransformer):
    """Puts hooks into statements. ``numpys``: they are from NumPy's own source."""

    def __init__(self, numpys: bool = False) -> None:
        self._numpys = numpys
        self._class = ""
        self._inside = False  # a comprehension

    # ------------------------------------------------------------ loads and calls
    def visit_Name(self, node: ast.Name) -> Any:
        loads = isinstance(node.ctx, ast.Load) and not node.id.startswith("__hook_")
        return _ask("seen", node, node) if loads else node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            return _do("getattr", node, node.value, self._named(node.attr))
        node.value = _ask("written", node.value, node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        node.value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            return _do("getitem", node, node.value, self._index(node.slice))
        node.value, node.slice = _ask("written", node.value, node.value), self.visit(node.slice)
        return node

    def _named(self, name: str) -> ast.Constant:
        private = self._class.strip("_") and name.startswith("__") and not name.endswith("__")
        return ast.Constant(f"_{self._class.lstrip('_')}{name}" if private else name)

    def _index(self, node: Any) -> Any:
        """An index as an expression: a slice becomes a call of ``slice``."""
        if isinstance(node, ast.Tuple):
            node.elts = [self._index(each) for each in node.elts]
            return node
        if isinstance(node, ast.Slice):
            ends = node.lower, node.upper, node.step
            return _ask("slice", node, *(self.visit(each or ast.Constant(None)) for each in ends))
        return self.visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        asks_frame = name in FRAME and not (node.args and name in ("vars", "dir"))
        function = node.func if asks_frame else self.visit(node.func)
        args, keywords = [*map(self.visit, node.args)], [*map(self.visit, node.keywords)]
        if asks_frame:
            return ast.copy_location(ast.Call(function, args, keywords), node)
        return _ask("call", node, function, *args, keywords=keywords)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """``from module import name`` reads an attribute of the module."""
        names = [ast.Constant(each.name) for each in node.names]
        module = ast.Constant("." * node.level + (node.module or ""))
        return [node, ast.copy_location(ast.Expr(_ask("imported", node, _ask("globals", node), module, *names)), node)]

    # ------------------------------------------------------------ what goes over all elements
    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self._rest(node, ifs=[self._condition(each) for each in node.ifs])
        node.iter = _ask("iterated", node.iter, node.iter)
        return node

    visit_For = _around("iter", "iterated")
    visit_Starred = visit_YieldFrom = _around("value", "iterated")
    visit_withitem = _around("context_expr", "entered")

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        made = [ast.Assign([_kept("v", ast.Store())], node.value)] if node.targets[1:] else []
        value = _kept("v") if made else node.value
        made += [ast.Assign([each], _ask("iterated", node.value, value) if isinstance(each, ast.Tuple | ast.List) else value)
                 for each in node.targets]
        return [ast.copy_location(each, node) for each in made]

    def visit_Dict(self, node: ast.Dict) -> Any:
        self.generic_visit(node)
        node.values = [each if key else _ask("taken", each, each)
                       for key, each in zip(node.keys, node.values, strict=True)]
        return node

    def visit_keyword(self, node: ast.keyword) -> Any:
        self.generic_visit(node)
        if node.arg is None:
            node.value = _ask("taken", node.value, node.value)
        return node

    # ------------------------------------------------------------ operators
    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return _do(OPERATORS[type(node.op)], node, self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self._condition(node)
        return _do(OPERATORS[type(node.op)], node, self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> Any:
        """``a < b < c`` evaluates ``b`` once: it gets a name.

        A comprehension does not allow that everywhere.
        """
        self.generic_visit(node)
        if self._inside and node.ops[1:]:
            return node
        left, made = node.left, []
        for op, right in zip(node.ops, node.comparators, strict=True):
            if right is not node.comparators[-1]:
                right = ast.copy_location(ast.NamedExpr(_kept("c", ast.Store()), right), right)
            made.append(_do(OPERATORS[type(op)], node, left, right))
            left = _kept("c")
        return ast.copy_location(ast.BoolOp(ast.And(), made), node) if made[1:] else made[0]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """``a.b += v`` evaluates ``a`` once: it gets a name."""
        target, op, made = node.target, f"i{OPERATORS[type(node.op)].strip('_')}", []
        if isinstance(target, ast.Name):
            old: Any = ast.Name(target.id, ast.Load())
        else:
            made.append(ast.Assign([_kept("h", ast.Store())], self.visit(target.value)))
            target.value = _ask("written", node, _kept("h"))
            if isinstance(target, ast.Attribute):
                old = _do("getattr", target, _kept("h"), self._named(target.attr))
            else:
                made.append(ast.Assign([_kept("k", ast.Store())], self._index(target.slice)))
                target.slice = _kept("k")
                old = _do("getitem", target, _kept("h"), _kept("k"))
        made.append(ast.Assign([target], _do(op, node, old, self.visit(node.value))))
        return [ast.copy_location(each, node) for each in made]

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        self.generic_visit(node)
        if node.conversion in CONVERSIONS:
            node.value = _do(CONVERSIONS[node.conversion], node.value, node.value)
        node.value = _do("format", node.value, node.value, node.format_spec or ast.Constant(""))
        node.conversion, node.format_spec = -1, None
        return node

    # ------------------------------------------------------------ conditions
    def visit_If(self, node: Any) -> Any:
        """A branch whose one side only raises, asserts or warns is not taken while it is traced.

        Neither is one of NumPy's own where there is any such element: a NaN, an empty slice.
        """
        likely = None
        if self._numpys and isinstance(node.test, ast.Call) and ast.unparse(node.test.func).endswith(".any"):
            likely = False
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and _only_complains(node.orelse)):
            likely = True
        if isinstance(node, ast.If) and _only_complains(node.body):
            likely = False
        return self._rest(node, test=self._condition(node.test, likely))

    visit_While = visit_IfExp = visit_Assert = visit_If

    def _condition(self, test: Any, likely: bool | None = None) -> Any:
        """A condition: each part that ``and``, ``or`` and ``not`` join, by itself.

        ``likely``: what it is if only values can tell.
        """
        if isinstance(test, ast.BoolOp):
            test.values = [self._condition(each, likely) for each in test.values]
            return test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._condition(test.operand, None if likely is None else not likely)
            return test
        return _ask("truth", test, self.visit(test), ast.Constant(likely))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Python asks each but the last for its truth, once, and gives one of them."""
        self.generic_visit(node)
        node.values[:-1] = [_ask("judged", each, each) for each in node.values[:-1]]
        return _ask("settled", node, node)

    def visit_match_case(self, node: ast.match_case) -> Any:
        return self._rest(node, pattern=node.pattern, guard=node.guard and self._condition(node.guard))

    def visit_Match(self, node: ast.Match) -> Any:
        """The patterns keep their text. What they may look at is noted before."""
        named = [self.visit(copy.deepcopy(each)) for case in node.cases for each in ast.walk(case.pattern)
                 if isinstance(each, ast.Attribute)]
        part = ast.arguments([], [ast.arg("_hook_part")], None, [], [], None, [ast.Constant(None)])
        names = {name for case in node.cases for each in ast.walk(case.pattern) if isinstance(each, ast.MatchClass)
                 for name in each.kwd_attrs}
        self.generic_visit(node)
        node.subject = _ask("matched", node.subject, node.subject, ast.Lambda(part, ast.Tuple(named, ast.Load())),
                            *map(ast.Constant, sorted(names)))
        return node

    # ------------------------------------------------------------ what keeps its text
    def visit_ListComp(self, node: Any) -> Any:
        before, self._inside = self._inside, True
        self.generic_visit(node)
        self._inside = before
        return node

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_ClassDef(self, node: Any) -> Any:
        before, self._class = self._class, node.name
        self.visit_FunctionDef(node)
        self._class = before
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        decorators = [_ask("partial", each, _hook("call"), self.visit(each)) for each in node.decorator_list]
        return self._rest(node, decorator_list=decorators, returns=getattr(node, "returns", None))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: Any) -> Any:
        return self._rest(node, annotation=node.annotation)

    visit_arg = visit_AnnAssign

    def _rest(self, node: Any, **parts: Any) -> Any:
        """Visit a node, but for these parts: they become these."""
        for name in parts:
            setattr(node, name, None)
        self.generic_visit(node)
        for name, part in parts.items():
            setattr(node, name, part)
        return node


def _only_complains(body: list[Any]) -> bool:
    """Whether a block only raises an error, asserts or warns."""
    def complains(each: Any) -> bool:
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            return ast.unparse(each.value.func).rpartition(".")[2] in ("warn", "warning")
        return isinstance(each, ast.Raise | ast.Assert)
    return bool(body) and all(map(complains, body))


# ---------------------------------------------------------------- from a function to its copy
_known: dict[int, tuple[weakref.ref[CodeType], CodeType | None]] = {}


def is_rewritten(code: CodeType) -> bool:
    """Whether code has hooks."""
    return any(name.startswith("_hook_") for name in (*code.co_freevars, *code.co_cellvars))


def rewritten(fn: FunctionType) -> FunctionType | None:
    """The function with hooks, or None if its source is unknown."""
    if is_rewritten(fn.__code__):
        return fn
    code = _rewritten_code(fn)
    cells = HOOKS | dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    if code is None or not cells.keys() >= {*code.co_freevars}:
        return None
    made = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__,
                        tuple(cells[name] for name in code.co_freevars))
    for name in ("__kwdefaults__", "__qualname__", "__module__", "__doc__", "__annotations__",
                 "__dict__"):
        setattr(made, name, getattr(fn, name))
    return made


def _rewritten_code(fn: FunctionType) -> CodeType | None:
    code = fn.__code__
    known, made = _known.get(id(code), (None, None))
    if known is None or known() is not code:
        made, key, forget = _compiled(fn), id(code), _known.pop  # at the interpreter's end the globals are gone
        _known[key] = weakref.ref(code, lambda _: forget(key, None)), made
    return made


def _compiled(fn: FunctionType) -> CodeType | None:
    code = fn.__code__
    plain, hooked, asserts = _compiled_statement(code.co_filename, *_statement(fn),
                                                 code.co_flags & FUTURE)
    found = [i for i, each in enumerate(plain) if _same(each, code, frozenset())]
    found = found or [i for i, each in enumerate(plain) if _same(each, code, asserts)]
    return hooked[found[0]] if found else None


@functools.lru_cache(64)
def _compiled_statement(file: str, text: str, first: int,
                        flags: int) -> tuple[list[CodeType], list[CodeType], frozenset[int]]:
    """All code in a statement, as it is and with hooks, and the lines of its assertions.

    The methods of a class share it.
    """
    try:
        statements: list[Any] = ast.increment_lineno(ast.parse(text), first - 1).body
    except (SyntaxError, ValueError):
        statements = []
    if not statements:
        return [], [], frozenset()
    asserts = _asserts(statements)
    plain = compile(ast.Module(statements, []), file, "exec", flags, True)
    # what the statement names at a module's level is global to the functions in it
    names = [name for name in plain.co_names if name.isidentifier()]
    outer: Any = [ast.Global(names)] if names else []
    arguments = ast.arguments([], [ast.arg(name) for name in HOOKS], None, [], [], None, [])
    hooked_statements = HookWriter(is_inside(file, "")).visit(ast.Module(statements, [])).body
    function = ast.FunctionDef("hooks", arguments, [*outer, *hooked_statements], [])
    function.type_params = []  # type: ignore[attr-defined]  # from Python 3.12 on
    ast.copy_location(function, statements[0])
    module = ast.fix_missing_locations(ast.Module([function], []))
    hooked = _codes(compile(module, file, "exec", flags, True))
    return [*_codes(plain)], [each for each in hooked if "_hook_part" not in each.co_varnames][1:], asserts


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _same(made: CodeType, code: CodeType, apart: frozenset[int]) -> bool:
    """Whether the source gives this code, but for some lines: test runners rewrite an ``assert``."""
    if (made.co_name, made.co_firstlineno) != (code.co_name, code.co_firstlineno):
        return False
    inner = [[each for each in own.co_consts if isinstance(each, CodeType)] for own in (made, code)]
    return _done(made, apart) == _done(code, apart) and all(_same(a, b, apart) for a, b in zip(*inner, strict=False))


def _done(code: CodeType, apart: frozenset[int]) -> list[tuple[Any, ...]]:
    """What code does, with places.

    Jumps, and how a name is looked up, depend on the text around.
    """
    return [(each.opname.replace("LOAD_METHOD", "LOAD_ATTR"), repr(each.argval), each.positions)
            for each in dis.get_instructions(code)
            if each.positions and each.positions.lineno not in apart and not isinstance(each.argval, CodeType)
            and not each.opname.startswith(AROUND) and "JUMP" not in each.opname and each.opcode not in dis.hasjrel]


def _asserts(statements: list[ast.stmt]) -> frozenset[int]:
    """The lines of assertions."""
    return frozenset(line for statement in statements for each in ast.walk(statement) if isinstance(each, ast.Assert)
                     for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)) | {0}


@functools.lru_cache(64)
def _statements(text: str) -> tuple[tuple[int, int], ...]:
    """The first and the last line of each statement of a file. None if it cannot be read."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    return tuple((min([each.lineno, *(d.lineno for d in getattr(each, "decorator_list", ()))]), each.end_lineno or 0)
                 for each in tree.body)


def _statement(fn: FunctionType) -> tuple[str, int]:
    """The text of a module's statements that hold a function, and its first line.

    Empty if the source is unknown.
    """
    code, first = fn.__code__, fn.__code__.co_firstlineno
    lines = [] if "\0" in code.co_filename else linecache.getlines(code.co_filename, fn.__globals__)
    if not 0 < first <= len(lines):
        return "", 0
    if lines[first - 1].startswith(("def ", "async def ", "@")):  # the rest of the file may be long
        return "".join(inspect.getblock(lines[first - 1:])), first
    found = [(a, b) for a, b in _statements("".join(lines)) if a <= first <= b]
    return ("".join(lines[found[0][0] - 1:found[-1][1]]), found[0][0]) if found else ("", 0)
