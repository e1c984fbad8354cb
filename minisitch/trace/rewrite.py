"""The user's functions with a hook behind each thing that they do: load, call, operator, branch.

In:  a function. Out: the same function from rewritten source: with the same globals, closure and
defaults.

A trace must know what the program reads from outside, and must answer where NumPy would make an
array (``np.zeros``) or run another function of the user's. So the program's own text asks it:

Before:  y = np.zeros(3) + self.w
After:   y = binary("add", call(attribute(np, "zeros"), 3), seen(attribute(self, "w")))

What the program holds in its hand stays real: objects, functions, classes, modules, and their
identity. Only arrays from outside are traced ones (``hooks`` says what each hook does). The hooks
are free variables of the copy. Nothing of the user's is changed.

A function whose source is unknown, as one typed at a prompt, has no copy.
"""

import __future__

import ast
import dis
import functools
import inspect
import linecache
import operator
import weakref
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

HOOKS: dict[str, CellType] = {}  # the name in rewritten text -> its cell
FRAME = {"super", "locals", "globals", "vars", "dir", "eval", "exec", "breakpoint"}  # these ask their caller's frame
AROUND = ("PUSH_NULL", "PRECALL", "KW_NAMES", "EXTENDED", "RESUME", "MAKE_CELL", "COPY_FREE", "NOP")
FUTURE = functools.reduce(operator.or_, (getattr(__future__, name).compiler_flag
                                         for name in __future__.all_feature_names))


def hook(function: Callable) -> Callable:
    """Make a function a hook, under its own name."""
    HOOKS[f"_hook_{function.__name__}"] = CellType(function)
    return function


def _ask(name: str, at: ast.AST, *args: Any, keywords: list[ast.keyword] | None = None) -> Any:
    """A call of a hook in the place of ``at``. Texts become constants."""
    given = [ast.Constant(each) if isinstance(each, str) else each for each in args]
    return ast.copy_location(ast.Call(ast.Name(f"_hook_{name}", ast.Load()), given, keywords
                                      or []), at)


def _kept(name: str, how: ast.expr_context | None = None) -> ast.Name:
    """A name that the rewritten text keeps a value in."""
    return ast.Name(f"__hook_{name}__", how or ast.Load())


OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
             ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitOr: "or", ast.BitXor: "xor", ast.BitAnd: "and",
             ast.MatMult: "matmul", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
             ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}


class HookWriter(ast.NodeTransformer):
    """Puts hooks into a statement."""

    def __init__(self) -> None:
        self._class = ""
        self._inside = False  # a comprehension

    # ------------------------------------------------------------ loads and calls
    def _raw(self, node: Any) -> Any:
        """An expression whose value the text only reads from: it does not get it into its hand."""
        if isinstance(node, ast.Name):
            return node
        if isinstance(node, ast.Attribute):
            return _ask("attribute", node, self._raw(node.value), self._mangled(node.attr))
        if isinstance(node, ast.Subscript):
            return _ask("item", node, self._raw(node.value), self._index(node.slice))
        return self.visit(node)

    def _mangled(self, name: str) -> str:
        private = self._class.strip("_") and name.startswith("__") and not name.endswith("__")
        return f"_{self._class.lstrip('_')}{name}" if private else name

    def _index(self, node: Any) -> Any:
        """An index as an expression: a slice becomes a call of ``slice``."""
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple([self._index(each) for each in node.elts],
                                               ast.Load()), node)
        if isinstance(node, ast.Slice):
            return _ask("slice", node, *(ast.Constant(None) if each is None else self.visit(each)
                                         for each in (node.lower, node.upper, node.step)))
        return self.visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        return _ask("seen", node, node) if isinstance(node.ctx, ast.Load) and not node.id.startswith("__hook_") else node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.ctx, ast.Load):
            return _ask("seen", node, self._raw(node))
        node.value = _ask("holder", node.value, self._raw(node.value), self._mangled(node.attr))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if isinstance(node.ctx, ast.Load):
            return _ask("seen", node, self._raw(node))
        node.value = _ask("holder", node.value, self._raw(node.value))
        node.slice = self.generic_visit(node.slice) if isinstance(node.slice, ast.Slice | ast.Tuple) else self.visit(node.slice)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        args, keywords = [self.visit(each) for each in node.args], [self.visit(each)
                                                                    for each in node.keywords]
        if isinstance(node.func, ast.Name) and node.func.id in FRAME and not (args and node.func.id in ("vars", "dir")):
            return ast.copy_location(ast.Call(node.func, args, keywords), node)
        return _ask("call", node, self._raw(node.func), *args, keywords=keywords)

    # ------------------------------------------------------------ what goes over all elements
    def visit_Starred(self, node: ast.Starred) -> Any:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = _ask("iterated", node.value, node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        if not any(isinstance(each, ast.Tuple | ast.List) for each in node.targets):
            return node
        made = [ast.Assign([_kept("v", ast.Store())], node.value)] if node.targets[1:] else []
        value = _kept("v") if made else node.value
        made += [ast.Assign([each], _ask("iterated", node.value, value) if isinstance(each, ast.Tuple | ast.List) else value)
                 for each in node.targets]
        return [ast.copy_location(each, node) for each in made]

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Any:
        self.generic_visit(node)
        node.value = _ask("iterated", node.value, node.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> Any:
        self.generic_visit(node)
        node.values = [each if key else _ask("taken", each, each) for key,
                       each in zip(node.keys, node.values, strict=True)]
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        self.generic_visit(node)
        node.value = _ask("formatted", node.value, node.value, ast.Constant(node.conversion),
                          node.format_spec or "")
        node.conversion, node.format_spec = -1, None
        return node

    def visit_keyword(self, node: ast.keyword) -> Any:
        self.generic_visit(node)
        if node.arg is None:
            node.value = _ask("taken", node.value, node.value)
        return node

    # ------------------------------------------------------------ operators
    def visit_BinOp(self, node: ast.BinOp) -> Any:
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            return node
        return _ask("binary", node, OPERATORS[type(node.op)], self.visit(node.left),
                    self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.operand, ast.Constant):
            return node
        if isinstance(node.op, ast.Not):
            node.operand = _ask("truth", node.operand, self.visit(node.operand))
            return node
        return _ask("unary", node, OPERATORS[type(node.op)], self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> Any:
        """``a < b < c`` evaluates ``b`` once: it gets a name, which a comprehension does not allow everywhere."""
        (op, *ops), (right, *more) = node.ops, node.comparators
        if ops and self._inside:
            self.generic_visit(node)
            return node
        name, end = _kept("c", ast.Store()), right
        left: Any = node.left
        if isinstance(op, ast.Is | ast.IsNot):
            constant = isinstance(left, ast.Constant) or isinstance(end, ast.Constant)
            left, end = [self.visit(each) if constant
                         else _ask("identified", each, self._raw(each)) for each in (left, end)]
        else:
            left, end = self.visit(left), self.visit(end)
        end = ast.copy_location(ast.NamedExpr(name, end), right) if ops else end
        if isinstance(op, ast.In | ast.NotIn):
            made = _ask("contains", node, left, end)
            made = ast.copy_location(ast.UnaryOp(ast.Not(), made), node) if isinstance(op, ast.NotIn) else made
        elif type(op) in OPERATORS:
            made = _ask("binary", node, OPERATORS[type(op)], left, end)
        else:
            made = ast.copy_location(ast.Compare(left, [op], [end]), node)
        if not ops:
            return made
        rest = self.visit(ast.copy_location(ast.Compare(_kept("c"), ops, more), node))
        return ast.copy_location(ast.BoolOp(ast.And(), [made, rest]), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """``a.b += v`` evaluates ``a`` once: it gets a name."""
        target, value, op = node.target, self.visit(node.value), OPERATORS[type(node.op)]
        made: list[Any] = []
        old: Any
        if isinstance(target, ast.Name):
            old = ast.Name(target.id, ast.Load())
        else:
            made.append(ast.Assign([_kept("h", ast.Store())], self._raw(target.value)))
            if isinstance(target, ast.Attribute):
                name = self._mangled(target.attr)
                old = _ask("attribute", target, _kept("h"), name)
                target = ast.Attribute(_ask("holder", node, _kept("h"), name), target.attr,
                                       ast.Store())
            else:
                made.append(ast.Assign([_kept("k", ast.Store())], self._index(target.slice)))
                old = _ask("item", target, _kept("h"), _kept("k"))
                target = ast.Subscript(_ask("holder", node, _kept("h")), _kept("k"), ast.Store())
        made.append(ast.Assign([target], _ask("inplace", node, op, old, value)))
        return [ast.copy_location(each, node) for each in made]

    # ------------------------------------------------------------ branches and protocols
    def visit_If(self, node: ast.If) -> Any:
        """A branch whose one side only raises, asserts or warns is not taken while it is traced."""
        hook = "unless" if _only_complains(node.body) else "provided" if _only_complains(node.orelse) else "truth"
        node.test = self._condition(hook, node.test)
        node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        return node

    def _block(self, body: list[Any]) -> list[Any]:
        made = (self.visit(each) for each in body)
        return [each for part in made for each in (part if isinstance(part, list) else [part])]

    def visit_Assert(self, node: ast.Assert) -> Any:
        node.test = self._condition("provided", node.test)
        node.msg = node.msg and self.visit(node.msg)
        return node

    def _condition(self, hook: str, test: Any) -> Any:
        """A condition for ``hook``. What ``and``, ``or`` and ``not`` join may be traced there."""
        if hook != "truth" and isinstance(test, ast.BoolOp):
            parts = [self._condition("condition", each) for each in test.values]
            word = "or" if isinstance(test.op, ast.Or) else "and"
            test = parts.pop()
            for part in reversed(parts):
                rest = ast.IfExp(_ask("settled", part, word, _kept("a")), _kept("a"), test)
                test = _ask("joined", part, word, ast.NamedExpr(_kept("a", ast.Store()), part),
                            rest)
        elif hook != "truth" and isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test = _ask("negated", test, self._condition("condition", test.operand))
        else:
            test = self.visit(test)
        return test if hook == "condition" else _ask(hook, test, test)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        node.values = [*(_ask("judged", each, each) for each in node.values[:-1]), node.values[-1]]
        return node

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        node.test = _ask("truth", node.test, node.test)
        return node

    visit_IfExp = visit_While

    def visit_ListComp(self, node: Any) -> Any:
        before, self._inside = self._inside, True
        self.generic_visit(node)
        self._inside = before
        return node

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self.generic_visit(node)
        node.iter = _ask("iterated", node.iter, node.iter)
        node.ifs = [_ask("truth", each, each) for each in node.ifs]
        return node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        node.iter = _ask("iterated", node.iter, node.iter)
        return node

    def visit_withitem(self, node: ast.withitem) -> Any:
        self.generic_visit(node)
        node.context_expr = _ask("entered", node.context_expr, node.context_expr)
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        """The patterns keep their text. What they may look at is noted before, to their depth."""
        def depth(pattern: ast.AST) -> int:
            return isinstance(pattern, ast.pattern) + max(map(depth, ast.iter_child_nodes(pattern)), default=0)
        inner = [each for case in node.cases for each in ast.walk(case.pattern)]
        names = {name for each in inner if isinstance(each, ast.MatchClass)
                 for name in each.kwd_attrs}
        part = ast.arguments([], [ast.arg("_hook_part")], None, [], [], None, [ast.Constant(None)])
        named = ast.List([ast.Lambda(part, self._raw(each)) for each in inner
                          if isinstance(each, ast.Attribute)], ast.Load())
        deep = ast.Constant(max(depth(each.pattern) for each in node.cases))
        node.subject = _ask("matched", node.subject, self.visit(node.subject), deep, named,
                            *sorted(names))
        for case in node.cases:
            case.guard, case.body = case.guard and _ask("truth", case.guard, self.visit(case.guard)), self._block(case.body)
        return node

    # ------------------------------------------------------------ what keeps its text
    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.decorator_list = [_ask("decorator", each, each) for each in node.decorator_list]
        before, self._class = self._class, node.name
        self.generic_visit(node)
        self._class = before
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.target, node.value = self.visit(node.target), node.value and self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.decorator_list = [_ask("decorator", each, self.visit(each))
                               for each in node.decorator_list]
        self.visit(node.args)
        node.body = self._block(node.body)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> Any:
        return node

    def visit_TypeAlias(self, node: Any) -> Any:
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
    function = ast.FunctionDef("hooks", arguments, [*outer, *HookWriter()._block(statements)], [])
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
