"""The table of operations, one row each: everything that other layers need to know about an op.

In:  nothing. Out: ``OPS``, a mapping from name to ``Op``, and the dtype names.

To add an elementwise operation, add one row: its NumPy meaning, its scalar text for each target,
the dtypes it takes, and its cost class. Other files name an op only if a rule is about that very
op. Most of these rules are about sources, products and *moves*, which only re-index. Rules about
elementwise operations and reductions stand in few files:

- ``simplify``: identities, such as ``x * 1``
- ``fuse.is_heavy``: division by a constant is light
- ``kernel.text``: casts, and integers that wrap around
- ``passes.block_totals``: totals of parts
- ``runtime.this_machine.HEAVY_NS``: nanoseconds on a core
- ``testing.judge``: rounding

The cost classes are the papers' (AStitch section 2.2, FusionStitching 2018 section 4): *light*
element-wise (add, sub, mul ...) and *heavy* element-wise (exp, tanh, log, power, div ...).
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors.forks import imported

DTYPES = {  # short name in printed programs -> NumPy name
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64",
}
SHORT = {long: short for short, long in DTYPES.items()}
KINDS = ("bool", "int", "float")  # scalar text may differ between these
Texts = Mapping[str, str]  # a scalar text for each of some kinds


def kind_of(dtype: str) -> str:
    """The class of a dtype name: ``"bool"``, ``"int"`` (signed or not) or ``"float"``."""
    return "bool" if dtype == "bool" else "float" if dtype.startswith("float") else "int"


def compute_dtype(dtype: str) -> str:
    """The dtype of arithmetic. float16 is computed in float32, then rounded."""
    return "float32" if dtype == "float16" else dtype


def itemsize(dtype: str) -> int:
    """Bytes of one element in memory."""
    return np.dtype(dtype).itemsize


@functools.cache
def _float64_erf() -> Callable[[np.ndarray], Any]:
    """SciPy's erf, imported at the first use: importing SciPy takes longer than this package."""
    try:
        return imported("scipy.special").erf
    except ImportError:
        return np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Any) -> np.ndarray:
    """Error function of each element of a real array, in its shape and dtype. NumPy has none.

    float16 and float32 are computed in float64 and rounded once.
    """
    x = np.asarray(x)
    return _float64_erf()(x.astype(np.float64)).astype(x.dtype)


@dataclass(frozen=True)
class Op:
    """One row of the table.

    ``kind`` is one of

    - ``source``: no operands; the type is declared (input, constant, iota);
    - ``map``: one scalar from the scalars at the same coordinate; equal shapes, equal dtypes;
    - ``reduce``: folds away the axes in ``axes``, starting from ``identity``;
    - ``move``: re-indexes its operands, computes nothing;
    - ``library``: a call between kernels (BLAS or NumPy), never inside one.

    ``arity`` is None if any number of operands is allowed. ``domain`` lists the dtype kinds it
    takes. ``cuda`` and ``cpu`` are scalar texts by dtype kind. In them ``{0} {1} {2}`` are the
    operands, ``{t}`` is the operands' short dtype (f32), and ``{T}`` their NumPy dtype
    (np.float32). In a cast ``{S}`` is the operand's NumPy dtype and ``{T}`` the result's. A
    reduce's text combines the accumulator ``{0}`` with one more value ``{1}``.
    """

    name: str
    kind: str
    arity: int | None
    numpy: Any  # its meaning: a ufunc, or a function of arrays
    domain: tuple[str, ...] = KINDS
    result: str = "same"  # "same" | "bool": dtype of a map's result
    cuda: Texts = field(default_factory=dict)
    cpu: Texts = field(default_factory=dict)
    cost: str = "free"  # "free" | "light" | "heavy"
    identity: str = ""  # of a reduction: the name of its neutral element


OPS: dict[str, Op] = {}


def _by_kind(text, domain):
    """A text for each kind of a domain, from one text or from texts by kind."""
    return {kind: text if isinstance(text, str) else text[kind]
            for kind in domain}


def _map(name, domain, meaning, cuda, cpu=None,
         *, arity=1, result="same", cost="light"):
    """Add an elementwise row.

    A ufunc says its arity itself. Without ``cpu`` the CPU text is the CUDA text.
    """
    arity = getattr(meaning, "nin", arity)
    OPS[name] = Op(name, "map", arity, meaning, domain, result,
                   _by_kind(cuda, domain), _by_kind(cpu or cuda, domain), cost)


FLOAT, INT, NUMBER, INTEGRAL = ("float",), ("int",), ("int", "float"), ("bool", "int")


# ---------------------------------------------------------------- sources
def _source_has_no_meaning(*_args, **_attrs):
    raise AssertionError("sources are given their value by the executor, not computed")


for _name in ("input", "constant", "iota"):
    OPS[_name] = Op(_name, "source", 0, _source_has_no_meaning)

# ---------------------------------------------------------------- arithmetic
_map("add", NUMBER, np.add, "{0} + {1}")
_map("sub", NUMBER, np.subtract, "{0} - {1}")
_map("mul", NUMBER, np.multiply, "{0} * {1}")
_map("div", FLOAT, np.true_divide, "{0} / {1}", cost="heavy")
_map("floor_divide", NUMBER, np.floor_divide, cost="heavy",
     cuda={"int": "floor_divide_int({0}, {1})", "float": "floor_divide({0}, {1})"})
_map("mod", NUMBER, np.remainder, cost="heavy",
     cuda={"int": "mod_int({0}, {1})", "float": "mod({0}, {1})"})
_map("fmod", NUMBER, np.fmod, cost="heavy",
     cuda={"int": "fmod_int({0}, {1})", "float": "math.fmod({0}, {1})"},
     cpu={"int": "fmod_int({0}, {1})", "float": "fmod({0}, {1})"})
_map("power", NUMBER, np.power, cost="heavy",
     cuda={"int": "power_int({0}, {1})", "float": "math.pow({0}, {1})"},
     cpu={"int": "power_int({0}, {1})", "float": "pow_{t}({0}, {1})"})
_map("neg", NUMBER, np.negative, "-{0}")
_map("abs", NUMBER, np.absolute, "abs({0})")
_map("sign", NUMBER, np.sign, "sign({0})")
_map("maximum", NUMBER, np.maximum, cpu="maximum({0}, {1})",
     cuda={"int": "max({0}, {1})", "float": "maximum({0}, {1})"})
_map("minimum", NUMBER, np.minimum, cpu="minimum({0}, {1})",
     cuda={"int": "min({0}, {1})", "float": "minimum({0}, {1})"})
_map("fmax", FLOAT, np.fmax, "fmax({0}, {1})")
_map("fmin", FLOAT, np.fmin, "fmin({0}, {1})")
_map("copysign", FLOAT, np.copysign, "math.copysign({0}, {1})")
for _name in "floor ceil trunc rint".split():
    _map(_name, FLOAT, getattr(np, _name), _name + "({0})")

# ---------------------------------------------------------------- transcendentals (heavy, float)
_map("erf", FLOAT, erf, "math.erf({0})", "erf_{t}({0})", cost="heavy")
# On a CPU these are functions of our own (``runtime.cpu.math``).
for _name in "exp expm1 log log1p log2 log10 tanh sin cos".split():
    _map(_name, FLOAT, getattr(np, _name), f"math.{_name}({{0}})",
         _name + "_{t}({0})", cost="heavy")
for _name in "sqrt tan sinh cosh".split():
    _map(_name, FLOAT, getattr(np, _name), f"math.{_name}({{0}})", cost="heavy")
for _name in "sin cos tan sinh cosh tanh".split():
    _map(f"arc{_name}", FLOAT, getattr(np, f"arc{_name}"),
         f"math.a{_name}({{0}})", cost="heavy")
_map("arctan2", FLOAT, np.arctan2, "math.atan2({0}, {1})", cost="heavy")
_map("hypot", FLOAT, np.hypot, "math.hypot({0}, {1})", cost="heavy")

# ---------------------------------------------------------------- comparison, logic, bits, choice
_map("eq", KINDS, np.equal, "{0} == {1}", result="bool")
_map("ne", KINDS, np.not_equal, "{0} != {1}", result="bool")
_map("lt", KINDS, np.less, "{0} < {1}", result="bool")
_map("le", KINDS, np.less_equal, "{0} <= {1}", result="bool")
_map("gt", KINDS, np.greater, "{0} > {1}", result="bool")
_map("ge", KINDS, np.greater_equal, "{0} >= {1}", result="bool")
_map("and", INTEGRAL, np.bitwise_and, "{0} & {1}")
_map("or", INTEGRAL, np.bitwise_or, "{0} | {1}")
_map("xor", INTEGRAL, np.bitwise_xor,
     {"bool": "{0} != {1}", "int": "{0} ^ {1}"})
_map("not", INTEGRAL, np.invert, {"bool": "not {0}", "int": "~{0}"})
_map("shift_left", INT, np.left_shift, "shift_left({0}, {1})")
_map("shift_right", INT, np.right_shift, "shift_right({0}, {1})")
_map("isnan", FLOAT, np.isnan, "{0} != {0}", result="bool")
_map("isinf", FLOAT, np.isinf, "isinf({0})", result="bool")
_map("isfinite", FLOAT, np.isfinite, "isfinite({0})", result="bool")
_map("signbit", FLOAT, np.signbit,
     "math.copysign({T}(1), {0}) < {T}(0)", result="bool")
_map("select", KINDS, np.where, "({1} if {0} else {2})",
     "select({0}, {1}, {2})", arity=3)
# A number as a bool is whether it is not zero, as in NumPy.
_map("cast", KINDS, lambda x, dtype: x.astype(dtype),
     {"bool": "({0} != {S}(0))", "int": "{T}({0})", "float": "{T}({0})"})

# Ops that never round. All others round once, or a few times as library functions do.
EXACT = frozenset("neg abs sign maximum minimum fmax fmin copysign floor ceil trunc rint select".split())

# ---------------------------------------------------------------- reductions
def _reduce(name, step, identity, domain=NUMBER):
    """Add a reduction. The elementwise op ``step`` takes in one more value."""
    op = OPS[step]

    def meaning(x, axes, keepdims):
        return op.numpy.reduce(x, axis=axes, keepdims=keepdims,
                               dtype=x.dtype)
    OPS[name] = Op(name, "reduce", 1, meaning, domain, "same",
                   _by_kind(op.cuda, domain), _by_kind(op.cpu, domain), op.cost, identity)


_reduce("sum", "add", "ZERO")
_reduce("prod", "mul", "ONE")
_reduce("max", "maximum", "LOWEST")
_reduce("min", "minimum", "HIGHEST")
_reduce("any", "or", "FALSE", ("bool",))
_reduce("all", "and", "TRUE", ("bool",))


# ---------------------------------------------------------------- moves: only the index changes
def _move(name, arity, meaning):
    OPS[name] = Op(name, "move", arity, meaning)


def _slice(x, start, size, step):
    def along(a, n, s):
        end = a + n * s
        return slice(a, end if end >= 0 else None, s) if n else slice(0, 0)
    return x[(*map(along, start, size, step), ...)]  # a view, also of an array without axes


def _update(x, value, start, step):
    out = np.array(x)
    _slice(out, start, value.shape, step)[...] = value
    return out


def _gather(x, *indices, axes):
    """``x`` at integer coordinates along ``axes``. The indices' axes come first in the result."""
    moved = np.moveaxis(x, axes, range(len(axes)))
    clipped = (np.clip(i, 0, n - 1)
               for i, n in zip(indices, moved.shape, strict=False))
    return moved[tuple(clipped)]


_move("broadcast", 1, lambda x, shape: np.broadcast_to(x, shape))
_move("reshape", 1, lambda x, shape: np.reshape(x, shape))
_move("transpose", 1, lambda x, perm: np.transpose(x, perm))
_move("slice", 1, _slice)
_move("concatenate", None, lambda *xs, axis: np.concatenate(xs, axis=axis))
_move("update", 2, _update)
_move("gather", None, _gather)


# ---------------------------------------------------------------- library calls
# ufuncs that are modes of a scatter
SCATTERS = "add subtract multiply maximum minimum bitwise_and bitwise_or bitwise_xor".split()


def _library(name, arity, meaning):
    OPS[name] = Op(name, "library", arity, meaning, cost="heavy")


def _scatter(x, value, *indices, axes, mode):
    """``x`` with ``value`` written at integer coordinates (mode "set"), or added, multiplied ..."""
    out = np.array(x)
    moved = np.moveaxis(out, axes, range(len(axes)))
    if mode == "set":
        moved[indices] = value
    else:
        getattr(np, mode).at(moved, indices, value)
    return out


_library("matmul", 2, np.matmul)
_library("cumsum", 1,
         lambda x, axis: np.cumsum(x, axis=axis, dtype=x.dtype))
_library("cumprod", 1,
         lambda x, axis: np.cumprod(x, axis=axis, dtype=x.dtype))
_library("sort", 1, lambda x, axis: np.sort(x, axis=axis))
_library("argsort", 1,
         lambda x, axis: np.argsort(x, axis=axis, kind="stable"))
_library("scatter", None, _scatter)


def ufunc_named(name: str) -> Any:
    """The elementwise ufunc ``exp2`` of NumPy or ``scipy.special.expit`` of SciPy. None for any other name."""
    module, _, own = str(name).rpartition(".")
    if module not in ("", "scipy.special"):
        return None
    found = getattr(imported(module or "numpy"), own, None)
    return found if isinstance(found, np.ufunc) and found.signature is None else None


def _ufunc(*xs, name, output, dtype=None):
    """Any other real-valued ufunc, so that every program traces. ``dtype`` is the result's."""
    result = ufunc_named(name)(*xs)
    return result[output] if isinstance(result, tuple) else result


_library("ufunc", None, _ufunc)
