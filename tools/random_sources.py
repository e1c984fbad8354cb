"""Random NumPy sources against NumPy: views, in-place writes, ``out=``, ``where=``, masks, promotion, results of every kind.

    python tools/random_sources.py --count 500 --seed 0
    python tools/random_sources.py --count 100 --target step --strategies astitch fs20
    python tools/random_sources.py --count 1 --seed 17 --show        # prints the program, too

``tools/random_programs.py`` draws graphs, so it never sees what tracing makes of a program. Here a program is Python text, drawn
line by line: each line has been run by NumPy before the next is drawn, so it knows the shapes, the dtypes and which arrays share
memory. Lines that NumPy refuses are dropped. The function returns all that it named, and changes its arguments in place. Results,
their types, and the arguments afterwards must have NumPy's bits: operations are those of ``tools/bit_programs.py``, which IEEE 754
or two's complement decide. A refusal counts for itself: it is right, but it should be rare.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from bit_programs import _odd_values

import minisitch as ms

STRATEGIES = ("none", "xla", "fs18", "fs20", "astitch", "kitsune", "auto")
DTYPES = ("float32", "float64", "float32", "float64", "float16", "int64", "int32", "int64", "int8", "int16", "uint8", "uint32",
          "uint64", "bool")


def _split(calls: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in calls.split(";"))


SIDES = (1, 2, 3, 4, 5, 7, 4, 5, 7, 31, 33, 0)
NUMBERS = ("1", "2", "3", "-1", "0", "7", "2.5", "0.1", "-0.0", "True", "np.float32(1.5)", "np.float64(0.1)", "np.int64(-3)",
           "np.uint8(200)", "np.float16(3)", "np.inf", "np.nan", "np.bool_(True)", "127", "300")
UNDEFINED = "invalid value encountered in (cast|at)"  # integers of floats that they cannot hold
SCALARS = (3, -2, 2.5, 0.1, np.float32(1.5), np.int64(7), True, 0, 300, -0.0, 2**40, np.uint8(200), np.nan, np.float64(0.1), 7)
BINARY = ("+", "-", "*", "+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=", ">")
UFUNCS = ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor",
          "left_shift", "right_shift", "less", "greater_equal", "not_equal", "logical_and", "logical_or", "logical_xor", "copysign",
          "heaviside", "nextafter")
UNARY = _split("""
    -{}; ~{}; abs({}); np.sqrt({}); np.square({}); np.floor({}); np.ceil({}); np.trunc({}); np.rint({}); np.sign({});
    np.isnan({}); np.isinf({}); np.isfinite({}); np.logical_not({}); np.reciprocal({}); np.positive({}); {} ** 2;
    np.signbit({}); np.nan_to_num({}); np.spacing({}); np.modf({})[0]; np.frexp({})[1]; np.round({})""")
VIEWS = _split("""
    {}.T; {}[::-1]; {}[..., ::-1]; {}.reshape(-1); {}.ravel(); {}[None]; {}[..., None]; {}.squeeze(); {}[:]; np.flip({});
    np.swapaxes({}, 0, -1); np.moveaxis({}, 0, -1); np.asarray({}); np.atleast_2d({}); {}[::2]; {}[1:]; {}[:-1];
    {}[..., 1:]; {}[..., ::2]; np.split({}, [1, 3])[1]; np.expand_dims({}, 0); np.rot90({}); {}.reshape({}.shape[::-1]);
    {}.reshape({}.shape, order='F'); {}.real; {}.ravel('F'); {}[...]""")
SHUFFLES = _split("""
    np.concatenate([{}, {}]); np.concatenate([{}, {}], axis=-1); np.stack([{}, {}], axis=-1); np.roll({}, 1);
    np.roll({}, -2, axis=-1); np.tile({}, 2); np.repeat({}, 2, axis=0); np.pad({}, 1); np.pad({}, 1, mode='edge');
    {}.copy(); np.take({}, [0, -1, 0], axis=-1); {}[[0, -1]]; np.where({0} > 1, {0}, 0);
    np.where({0} > {0}[::-1], {0}, -1); np.clip({}, 0, 3) + 0; np.sort({}, axis=-1); np.argsort({}, axis=0, kind='stable');
    np.diff({}, axis=-1); np.tril({}); np.triu({}, 1); np.broadcast_to({0}, (2, *{0}.shape));
    np.select([{0} > 1, {0} < 0], [{0}, {0} + 1], 5); np.argmax({}, axis=-1); np.argmin({}); np.array([{0}, {0}]);
    np.array({}); np.zeros_like({}); np.full_like({}, 3); np.outer({0}, {0}); np.append({}, 1); np.isclose({0}, {0}[::-1]);
    np.vstack([{}, {}]); np.diag({}); np.kron({}, [1, 2]);
    np.take_along_axis({0}, np.argsort({0}, axis=0, kind='stable'), 0); np.resize({}, (3, 4)); np.column_stack([{}, {}]);
    np.heaviside({}, 0.5); np.unstack({})[0]""")
FOLDS = _split("""
    np.max({}{}) + 0; np.min({}{}) + 0; np.any({}{}); np.all({}{}); np.count_nonzero({}{}); np.ptp({}{}) + 0;
    np.argmax({}{}); np.sum({} > 1{}); np.cumsum({} > 0{}); np.mean({} > 0{})""")
WHOLE_FOLDS = _split("""
    np.sum({}{}); np.prod({}{}); np.cumsum({}{}); np.cumprod({}{}); np.add.reduce({}{})""")
DTYPE_NAMES = ("np.float32", "float", "np.float16", "int", "np.int32", "np.int8", "np.uint8", "bool", "np.uint64", "np.int16")


class Writer:
    """Writes one program, and knows the value of each name while it does."""

    def __init__(self, rng: np.random.Generator, room: int) -> None:
        self.rng, self.room = rng, room
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"np": np}
        self.arguments: dict[str, Any] = {}
        shape = self.shape()
        for name in "abc"[:int(rng.integers(1, 4))]:
            dtype = self.pick(DTYPES)
            kept = shape if self.chance(60) else self.shape()
            self.arguments[name] = np.asarray(rng.choice(_odd_values(dtype, rng), kept)).astype(dtype)
        if self.chance(30):
            self.arguments["k"] = self.pick(SCALARS)
        self.given = copy.deepcopy(self.arguments)
        self.space |= copy.deepcopy(self.arguments)

    # ------------------------------------------------ drawing
    def pick(self, some: Sequence[Any]) -> Any:
        return some[int(self.rng.integers(len(some)))]

    def chance(self, percent: int) -> bool:
        return bool(self.rng.integers(100) < percent)

    def shape(self) -> tuple[int, ...]:
        sides: list[int] = []
        for _ in range(self.pick((1, 2, 2, 2, 3, 0))):
            sides.append(self.pick([n for n in SIDES if n * int(np.prod(sides, dtype=int)) <= self.room]))
        return tuple(sides)

    def value(self, text: str) -> Any:
        """What NumPy makes of an expression now; None if it refuses."""
        try:
            with np.errstate(all="ignore"):
                return eval(text, self.space)
        except Exception:
            return None

    def add(self, line: str) -> None:
        """Append a line if NumPy runs it. What it wrote before it failed is undone."""
        before = copy.deepcopy({name: value for name, value in self.space.items() if not name.startswith(("_", "np"))})
        try:
            with np.errstate(all="ignore", invalid="warn"), warnings.catch_warnings():
                warnings.filterwarnings("error", UNDEFINED)
                exec(line, self.space)
            if any(np.size(value) > 2 * self.room for name, value in self.space.items() if not name.startswith(("_", "np"))):
                raise ValueError("too large")
        except Exception:
            self.space = {"np": np, **before}
            return
        self.lines.append(line)

    # ------------------------------------------------ expressions
    @cached_property
    def fresh(self) -> Any:
        return iter(f"v{number}" for number in range(1000))

    def names(self) -> list[str]:
        return [name for name, value in self.space.items() if isinstance(value, np.ndarray | np.generic)]

    def name(self) -> str:
        """A name, half the time one of the newest."""
        names = self.names()
        return self.pick(names[-2:]) if self.chance(40) else self.pick(names)

    def array(self, least: int = 0) -> str:
        """A name of an array with at least so many axes; any name if there is none."""
        fits = [name for name in self.names() if isinstance(self.space[name], np.ndarray) and self.space[name].ndim >= least]
        return self.pick(fits) if fits else self.name()

    def index(self, shape: Sequence[int]) -> str:
        """A basic index: ranges, strides, reversed axes, integers, new axes, an ellipsis."""
        parts = []
        for n in shape[:int(self.rng.integers(1, len(shape) + 1))] if shape else ():
            low, high = sorted(int(each) for each in self.rng.integers(0, n + 1, 2))
            step = self.pick((2, 3, -1, -2))
            one = int(self.rng.integers(max(n, 1)))
            parts.append(self.pick((":", f"{low}:{high}", f"::{step}", f"{low}:", f":{high}", "::-1", f"-{high}:", str(one),
                                    f"{high}:{low}:-1", "-1")))
        if self.chance(12):
            parts.insert(int(self.rng.integers(len(parts) + 1)), "None")
        if self.chance(12):
            parts.insert(int(self.rng.integers(len(parts) + 1)), "...")
        return ", ".join(parts) or "..."

    def place(self) -> str:
        """An array, or a part of one, to be written."""
        name = self.array()
        if self.chance(25):
            name = self.pick(("{}.T", "{}[::-1]", "{}.reshape(-1)", "{}.flat", "{}[1:]", "{}.ravel()")).format(name)
        value = self.value(name)
        return f"{name}[{self.index(np.shape(value) if value is not None else ())}]"

    def operand(self, shape: Sequence[int]) -> str:
        """An expression that can be stretched to this shape."""
        if self.chance(25):
            return self.pick((*NUMBERS, "k")) if "k" in self.space else self.pick(NUMBERS)
        name = self.name()
        size = int(np.prod(shape, dtype=int))
        texts = [name, f"{name}[::-1]", f"{name}[{self.index(np.shape(self.space[name]))}]", f"{name}.T", f"{name}[0]",
                 f"{name}[..., :1]"]
        texts += [f"{name}.reshape(-1)[{part}].reshape({tuple(shape)})" for part in (f":{size}", f"-{size}:")]
        fits = [text for text in texts if self._stretches(text, shape)]
        return self.pick(fits) if fits else self.pick(NUMBERS)

    def _stretches(self, text: str, shape: Sequence[int]) -> bool:
        value = self.value(text)
        try:
            return value is not None and np.broadcast_shapes(np.shape(value), tuple(shape)) == tuple(shape)
        except ValueError:
            return False

    def mask(self, shape: Sequence[int]) -> str:
        return f"({self.operand(shape)} {self.pick(('>', '<=', '==', '!='))} {self.operand(shape)})"

    def shape_of(self, text: str) -> tuple[int, ...]:
        value = self.value(text)
        return () if value is None else np.shape(value)

    # ------------------------------------------------ statements
    def line_view(self) -> str:
        name = self.array(1)
        text = self.pick(VIEWS).replace("{}", name) if self.chance(60) else f"{name}[{self.index(self.shape_of(name))}]"
        return f"{next(self.fresh)} = {text}"

    def line_update(self) -> str:
        place = self.place() if self.chance(70) else self.name()
        return f"{place} {self.pick(BINARY[:14])}= {self.operand(self.shape_of(place))}"

    def line_store(self) -> str:
        place = self.place()
        return f"{place} = {self.operand(self.shape_of(place))}"

    def line_binary(self) -> str:
        name = self.name()
        sides = [name, self.operand(self.shape_of(name))]
        if self.chance(30):
            sides.reverse()
        if self.chance(60):
            return f"{next(self.fresh)} = {sides[0]} {self.pick(BINARY)} {sides[1]}"
        return f"{next(self.fresh)} = np.{self.pick(UFUNCS)}({sides[0]}, {sides[1]})"

    def line_unary(self) -> str:
        return f"{next(self.fresh)} = {self.pick(UNARY).format(self.name())}"

    def line_shuffle(self) -> str:
        text, name = self.pick(SHUFFLES), self.array(1)
        return f"{next(self.fresh)} = {text.format(name, name)}"

    def line_fold(self) -> str:
        name = self.name()
        value = np.asarray(self.space[name])
        axes = ["", ", axis=0", ", axis=-1", ", axis=-1", ", axis=1"]
        text = self.pick(WHOLE_FOLDS if value.dtype.kind in "biu" and self.chance(60) else FOLDS)
        if "cum" not in text:
            axes += [", axis=0, keepdims=True", ", axis=-1, keepdims=True", ", axis=(0, 1)", ", keepdims=True"]
        return f"{next(self.fresh)} = {text.format(name, self.pick(axes))}"

    def line_out(self) -> str:
        place = self.place() if self.chance(60) else self.array()
        shape = self.shape_of(place)
        where = f", where={self.mask(shape)}" if self.chance(30) else ""
        is_float = getattr(self.value(place), "dtype", np.dtype(bool)).kind == "f"
        casting = ", casting='unsafe'" if is_float and self.chance(30) else ""
        if self.chance(20):
            ufunc = self.pick(("negative", "abs", "sqrt", "square", "floor", "invert", "rint"))
            return f"np.{ufunc}({self.operand(shape)}, out={place}{where}{casting})"
        # NumPy 2.4 crashes where a number too large is compared under where=, and puts bools into an out= that overlaps
        bools = ("less", "greater_equal", "not_equal", "logical_and", "logical_or", "logical_xor")
        ufunc = self.pick([name for name in UFUNCS if not (where and name in bools)])
        return f"np.{ufunc}({self.operand(shape)}, {self.operand(shape)}, out={place}{where}{casting})"

    def line_masked(self) -> str:
        place = self.array() if self.chance(60) else self.place()
        shape = self.shape_of(place)
        mask = self.mask(shape)
        if self.chance(20):
            return f"np.copyto({place}, {self.operand(shape)}, where={mask}, casting='unsafe')"
        if not self.shape_of(mask):  # a single bool adds an axis
            return self.line_where()
        return f"{place}[{mask}] {self.pick(('', '', '+', '*', '-'))}= {self.pick(NUMBERS)}"

    def line_at(self) -> str:
        name = self.array(1)
        n = (self.shape_of(name) or (1,))[0]
        index = [int(each) for each in self.rng.integers(-n, max(n, 1), int(self.rng.integers(1, 4)))]
        text = f"{name}[{index}]" if self.chance(60) else f"{name}[..., {index}]"
        if self.chance(25):
            return f"np.{self.pick(('add', 'subtract'))}.at({name}, {index}, {self.pick(NUMBERS)})"
        return f"{text} {self.pick(('', '+', '*', '-'))}= {self.operand(self.shape_of(text))}"

    def line_cast(self) -> str:
        """Also to another kind: floats are first brought into the range of all integer types."""
        name, dtype = self.name(), self.pick(DTYPE_NAMES)
        if self.space[name].dtype.kind == "f" and "float" not in dtype and dtype != "bool":
            name = f"np.fmin(np.fmax({name}, 0), 100)"
        return f"{next(self.fresh)} = {name}.astype({dtype})"

    def line_where(self) -> str:
        shape = self.shape_of(self.name())
        return f"{next(self.fresh)} = np.where({self.mask(shape)}, {self.operand(shape)}, {self.operand(shape)})"

    def line_rows(self) -> str:
        name = self.array(1)
        n = (self.shape_of(name) or (1,))[0]
        change = f"{self.pick(('+', '-', '*', ''))}= {name}[i - 1] {self.pick(('+ 1', '', '* 2'))}"
        return f"for i in range(1, {min(n, 4)}): {name}[i] {change}"

    def line_swap(self) -> str:
        name = self.array(1)
        end = self.pick(("", ".copy()", " + 0"))
        return f"{name}[0], {name}[-1] = {name}[-1]{end}, {name}[0]{end}"

    def line_element(self) -> str:
        name = self.array(1)
        at = ", ".join(str(int(self.rng.integers(max(n, 1)))) for n in self.shape_of(name))
        if self.chance(60):
            return f"{next(self.fresh)} = {name}[{at}]"
        return f"{name}[{at}] {self.pick(('', '+', '*'))}= {self.operand(())}"

    def line_product(self) -> str:
        """Of integers, whose products and sums wrap in any order."""
        names = [name for name in self.names() if self.space[name].dtype.kind in "biu" and self.space[name].ndim]
        if not names:
            return self.line_binary()
        x, y = self.pick(names), self.pick(names)
        if np.result_type(self.space[x], self.space[y]).kind == "f":
            y = x
        text = self.pick(("{} @ {}", "{} @ {}.T", "np.dot({}, {})", "np.einsum('i...,i...->...', {}, {})", "np.inner({}, {})",
                          "np.tensordot({}, {}, 1)", "np.vdot({}, {})"))
        return f"{next(self.fresh)} = {text.format(x, y)}"

    WEIGHTS: ClassVar[dict[str, int]] = {
        "view": 6, "update": 6, "store": 5, "binary": 6, "unary": 3, "shuffle": 5, "fold": 3, "out": 4, "masked": 3, "at": 2,
        "cast": 2, "where": 2, "rows": 1, "swap": 1, "element": 2, "product": 1}

    def write(self, most: int) -> str:
        """The text of the function."""
        kinds = [kind for kind, weight in self.WEIGHTS.items() for _ in range(weight)]
        for _ in range(3 * most):
            if len(self.lines) >= most:
                break
            self.add(getattr(self, f"line_{self.pick(kinds)}")())
        results = [name for name in self.space if name not in ("np", "k", "i") and not name.startswith("_")]
        body = "\n    ".join((*self.lines, f"return {', '.join(results)},"))
        return f"def program({', '.join(self.given)}):\n    {body}\n"


# ---------------------------------------------------------------- comparing
def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """A result, or the error. A conversion of which NumPy warns is a RuntimeWarning: any value will do."""
    with np.errstate(all="ignore", invalid="warn"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", UNDEFINED)
        try:
            return call(), None
        except Exception as error:
            return None, error


def different(got: Any, want: Any) -> str:
    """How two values differ in type, dtype, shape or any bit. All NaNs are one."""
    if type(got) is not type(want):
        return f"{type(got).__name__} for {type(want).__name__}"
    if isinstance(want, tuple | list):
        found = [(k, different(g, w)) for k, (g, w) in enumerate(zip(got, want, strict=True))]
        return next((f"part {k}: {why}" for k, why in found if why), "")
    if not isinstance(want, np.ndarray | np.generic):
        return "" if repr(got) == repr(want) else f"{got!r} for {want!r}"
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    a, b = np.asarray(got), np.asarray(want)
    same = np.asarray(a == b)
    if b.dtype.kind == "f":
        same = (same & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return ""
    at = tuple(int(each) for each in np.argwhere(~same)[0])
    return f"{np.count_nonzero(~same)} of {same.size} elements, at {at}: {a[at]!r} for {b[at]!r}"


def program_of(seed: int, room: int = 128) -> tuple[str, dict[str, Any]]:
    """Program number ``seed``, and its arguments."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = Writer(rng, room)
        text = writer.write(int(rng.integers(2, 14)))
    return text, writer.given


def check(text: str, given: dict[str, Any], target: str, strategy: str, passes: Any = "default") -> str:
    """What is wrong with a program's results: nothing, a refusal (which starts so), or the difference from NumPy's.

    A program that takes a number is called with three others, too: each may be a new program, or a new value of the old one.
    """
    space: dict[str, Any] = {"np": np}
    exec(compile(text, "program.py", "exec"), space)
    jitted = ms.jit(space["program"], target=target, strategy=strategy, passes=passes)
    numbers = [given["k"], *SCALARS[(len(text) % 12):][:3]] if "k" in given else [None]
    for number in numbers:
        arguments = given | {"k": number} if "k" in given else given
        theirs, ours = copy.deepcopy(arguments), copy.deepcopy(arguments)
        want, expected = outcome(lambda: space["program"](*theirs.values()))  # noqa: B023
        if isinstance(expected, RuntimeWarning):
            continue
        got, error = outcome(lambda: jitted(*ours.values()))  # noqa: B023
        if isinstance(error, ms.TraceError):
            return f"refused: {error}"
        if error is not None or expected is not None:
            why = "" if type(error) is type(expected) else f"{error!r} for {expected!r}"
        else:
            why = different(got, want) or different([*ours.values()], [*theirs.values()])
        if why:
            return why + (f" (k = {number!r})" if "k" in given else "")
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the number of failures decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="number of the first")
    parser.add_argument("--target", choices=("python", "cpu", "step", "reference"), help="by the program's number, unless given")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), metavar="NAME", help="which take turns")
    parser.add_argument("--show", action="store_true", help="print every program")
    options = parser.parse_args(arguments)
    seen: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        text, given = program_of(seed)
        target = options.target or ("step" if seed % 3 == 1 else "python")
        strategy, passes = options.strategies[seed % len(options.strategies)], () if seed % 4 == 2 else "default"
        why = check(text, given, target, strategy, passes)
        kind = "refused" if why.startswith("refused") else "wrong" if why else "equal"
        seen[kind] += 1
        if options.show or why:
            print(f"\nprogram {seed}, target {target}, strategy {strategy}, passes {passes!r}: {why or 'equal'}", flush=True)
        if options.show or kind == "wrong":
            print(f"{text}# {given}", flush=True)
    print(f"{options.count} programs from seed {options.seed}: {dict(seen)}")
    return 1 if seen["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
