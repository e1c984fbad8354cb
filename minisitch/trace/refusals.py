"""Refusals of values: what asked a traced array for its value, and what to write instead.

In:  the user's frame at the moment of asking. Out: a ``TraceError`` that quotes the user's code and
gives a remedy.

The bytecode tells where in its line the program is, and so which call it makes. The source, if it
is known, tells what a truth value was for: an ``if``, a ``while``, an ``assert``, ``0 < x < 1`` ...

Before:  math.exp(x[0])
After:   TraceError: model.py:3: math.exp() of a traced f64[] array: ... Write np.exp
"""

import ast
import itertools
import linecache
import math
import types
from typing import Any

import numpy as np

from ..errors import TraceError
from .recorder import ACTIVE, is_inside, left_at, refuse, user_frame

NO_VALUE = "it has no values while the program is traced"
OUTSIDE = "Return the array, and do this outside the traced function"
APART = "Compute it outside the traced function and pass the result in as an argument"
ONCE = "the function's Python runs only while it is traced"
LOST = f"{ONCE}, so later calls would change nothing there"
MASKED = "Keep the mask as an array of its own: np.where(mask, other, x), and where=~mask in reductions"
COUNT = "Take a size or a number of rounds from a shape, or pass it as a Python int: it is part of the program then"
GIVEN = "If this argument is an option, pass int(n) or bool(flag): it is part of the program then"
CHOOSE = "Compute both values and choose: np.where(condition, a, b)"
NUMBER = "Compute with the array as with a number, and write x.astype(dtype) for another type"
PRINT = f"{OUTSIDE}; x.shape and x.dtype are known inside"

# What is called -> what to write. Functions of ``math`` that are also NumPy's need no line.
CALLS: dict[Any, str] = {
    float: NUMBER, complex: "Keep real and imaginary parts in two arrays", range: COUNT,
    int: f"Write x.astype(np.int64), which cuts off the fraction, too. {COUNT}",
    round: "Write np.round(x, digits)", any: "Write np.any(x)", all: "Write np.all(x)",
    bool: "Write x != 0; to choose by it, np.where(x != 0, a, b)", print: PRINT, str: PRINT,
    max: "Write np.maximum(a, b), or np.max(x) for the largest element", sorted: "Write np.sort(x)",
    min: "Write np.minimum(a, b), or np.min(x) for the least element",
    math.fsum: "Write np.sum(x)", math.dist: "Write np.sqrt(np.sum((a - b) ** 2))",
    math.isqrt: "Write np.floor(np.sqrt(x)).astype(np.int64)", math.erf: "Write minisitch.erf(x)",
    np.ma.MaskedArray: MASKED, np.matrix: "Write @ for a product of matrices, of the array itself",
    np.ndenumerate: "Write for i in range(x.shape[0]): x[i]",
    np.vectorize: "Call the function itself on whole arrays, f(x), and write np.where in it for if",
    **dict.fromkeys((bytes, bytearray, memoryview, hex, chr), OUTSIDE),
    **dict.fromkeys((np.int32, np.int64, np.uint8, np.bool_),
                    "Write x.astype(dtype)"),
}
# A function or a method of NumPy without an operation here -> what to write.
SORT = "Write np.sort(x, axis=...) and take the elements at the wanted positions"
BETWEEN = ("Find the point to the left: i = np.clip(np.sum(xp <= x[..., None], -1) - 1, 0, "
           "len(xp) - 2). Then write the line from fp[i] to fp[i + 1]")
OUTCOME = "Return np.all(a == b), or of np.isclose(a, b), and ask bool() of it outside the traced function"
REMEDIES: dict[str, str] = {name: remedy for names, remedy in {
    "median partition nanmedian nanpercentile nanquantile": SORT, "interp": BETWEEN,
    "allclose array_equal array_equiv": OUTCOME,
    "searchsorted": "Count: np.sum(x < v[..., None], axis=-1), and <= for side='right'",
    "digitize": "Count: np.sum(bins <= x[..., None], axis=-1)",
    "insert": "Write np.concatenate([x[:i], values, x[i:]])",
    "isin": "Compare with each: np.any(x[..., None] == np.ravel(values), axis=-1)",
    "ma": MASKED, "fft linalg": APART,
    "tobytes tofile tostring dump dumps data ctypes strides base setflags getflags __array_interface__ __array_struct__": OUTSIDE,
    "byteswap save savez savetxt frombuffer": OUTSIDE, "array2string array_repr array_str": PRINT,
    "resize": "Write np.resize(x, shape), or x.reshape(shape)",
    "nditer": "Write for i in range(x.shape[0]): x[i]",
    "choose": "Write np.select([k == 0, k == 1], [a, b])",
    "piecewise": "Write np.select(conditions, [f(x), g(x)]), where functions take the whole array",
    "view": "Write x[:] for the same elements, and x.astype(dtype) for other ones. Bits are not traced",
}.items() for name in names.split()}
# How the array was asked, if nothing above is called -> what was seen, what to write.
PROTOCOLS = {
    "array": ("conversion to an ndarray", "Write NumPy's functions on the array itself; np.stack([x, y]) for np.array([x, y]), "
              "np.concatenate([x, y]) for np.r_[x, y]; np.zeros_like(x) for a buffer that takes traced values; "
              "np.take(values, x, axis=0) for values[x]"),
    "bool": ("the truth value", CHOOSE), "complex": ("complex()", CALLS[complex]), "float": ("float()", NUMBER),
    "format": ("formatting", PRINT), "hash": ("hash()", OUTSIDE), "int": ("int()", CALLS[int]),
    "index": ("use as a Python integer", f"For values[x], write np.take(values, x, axis=0). {COUNT}"),
    "item": ("item()", f"{NUMBER}. Convert the result outside the traced function"), "memory": ("the memory", OUTSIDE),
    "pickle": ("pickling", OUTSIDE), "repr": ("repr()", PRINT),
    "round": ("round()", CALLS[round]), "str": ("str()", PRINT),
    "tolist": ("tolist()", "Compute with the whole array, or with elements x[i]. Convert the result outside the traced function"),
}
TRUTH: dict[type[ast.AST], tuple[str, str]] = {  # what a truth value is for
    ast.Assert: ("assert", "Check it outside the traced function, on what that returns"),
    ast.While: ("while", "Loop a known number of times and choose: "
                         f"x = np.where(going_on, new, x). {COUNT}"),
    ast.If: ("if", CHOOSE), ast.IfExp: ("if ... else", CHOOSE), ast.comprehension: ("if", CHOOSE),
    ast.match_case: ("case", CHOOSE), ast.BoolOp: ("and, or", "Write np.logical_and(a, b) and "
        "np.logical_or(a, b), or & and | between comparisons"),
    ast.UnaryOp: ("not", "Write np.logical_not(x), or ~ of a comparison"),
}


def refuse_value(asked: str, of: Any, remedy: str = "", given: bool = False) -> TraceError:
    """The refusal of a value. ``asked`` is one of ``PROTOCOLS``, or comes with a remedy.

    It names what the user's line does, and what to write instead.
    """
    seen, remedy = (asked, remedy) if remedy else PROTOCOLS[asked]
    frame, recorder = user_frame(), ACTIVE.get()
    asks = recorder and recorder.called
    called = asks if isinstance(asks, type | types.BuiltinFunctionType) else type(asks)
    known, own, name = CALLS.get(called, ""), called.__name__, name_of(asks)
    if not known and called.__module__ == "math":
        known = f"Write np.{own}(x)" if hasattr(np, own) else f"Write it with NumPy's functions, which have no {own}"
    if asked == "array" and not known and isinstance(asks, types.FunctionType) and not is_inside(asks.__code__.co_filename, ""):
        return refuse(f"{name}() makes an ndarray of a traced {of} array", f"it is a library's function, and {NO_VALUE}",
                      "Only its NumPy code on the array itself can be traced. Write it with NumPy, or call it outside")
    if known:
        seen, remedy = f"{name}()", known
    elif asked == "bool" and frame and (found := _condition(frame)):
        seen, remedy = f"{seen}, in `{found[0]}`,", found[1]
    remedy += f". {GIVEN}" if given and not of.shape and np.dtype(of.dtype).kind in "biu" and COUNT not in remedy else ""
    # these ask the result of a comparison, whose type is not that of their arguments
    return refuse(f"{seen} of a traced {'' if called in (max, min, sorted) else f'{of} '}array", NO_VALUE, remedy)


def refuse_other(error: Exception) -> TraceError:
    """The refusal in place of an error from C code that does not know our array."""
    said = str(error).replace("'traced array'", "a traced array")
    return refuse(f"{type(error).__name__}: {said}",
                  f"a traced array is not an ndarray; {NO_VALUE}", OUTSIDE,
                  left_at(error, ours=True) or ("", ""))


def name_of(function: Any) -> str:
    """A function's name as programs write it: ``math.exp``, ``float``, ``np.ndarray``."""
    module = str(getattr(function, "__module__", None) or "").replace("numpy", "np", 1)
    name = getattr(function, "__qualname__", type(function).__name__)
    return name if module in ("builtins", "") else f"{module}.{name}"


def _condition(frame: types.FrameType) -> tuple[str, str] | None:
    """What a truth value is for, and what to write instead. None if the source is unknown."""
    place = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    except SyntaxError:
        return None
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    at = [n for n in parents if isinstance(n, ast.expr | ast.stmt | ast.pattern)
          and (n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) == place]
    if not at:
        return None
    node = at[-1]  # the innermost: breadth first
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return ast.unparse(node), f"Write np.any({ast.unparse(node.comparators[0])} == {ast.unparse(node.left)})"
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
        return ast.unparse(node), "Write " + " & ".join(f"({ast.unparse(ast.Compare(a, [op], [b]))})" for a, op, b in pairs)
    above = parents[node]
    while isinstance(above, ast.pattern):
        above = parents[above]
    if isinstance(above, ast.If) and _ends_a_loop(above, parents):
        return TRUTH[ast.If][0], TRUTH[ast.While][1]
    return next((TRUTH[type(each)] for each in (node, above) if type(each) in TRUTH), None)


def _ends_a_loop(choice: ast.If, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether an ``if`` in a loop only says when the loop ends."""
    above: ast.AST = choice
    while not isinstance(above, ast.For | ast.While | ast.FunctionDef | ast.Module):
        above = parents[above]
    ends = [each for each in choice.body if isinstance(each, ast.Break | ast.Return)]
    return bool(ends) and isinstance(above, ast.For | ast.While)
