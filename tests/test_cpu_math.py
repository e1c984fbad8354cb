"""Each function of ``cpu_math``: its error against a wider type, its ends, and that compiled text agrees.

Every float32 function is held to the bound in its docstring and to twice NumPy's own error, on inputs of every
binade (random bit patterns), where it matters (its domain), near 0 and near 1.
"""

import math
import re

import numpy as np
import pytest

from minisitch.ops import erf
from minisitch.runtime.cpu import math as cpu_math
from minisitch.runtime.cpu.compile import compile_cpu

WIDE = np.longdouble if np.finfo(np.longdouble).eps < 1e-18 else np.float64
UNARY = {  # name: NumPy's meaning, the interval where it is interesting
    "exp": (np.exp, -104, 90), "expm1": (np.expm1, -20, 90), "log": (np.log, 1e-3, 10), "log2": (np.log2, 1e-3, 10),
    "log10": (np.log10, 1e-3, 10), "log1p": (np.log1p, -1, 10), "tanh": (np.tanh, -10, 10), "erf": (None, -5, 5),
    "sin": (np.sin, -1e5, 1e5), "cos": (np.cos, -1e5, 1e5),
}
ENDS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 1.2e-38, 3e38, -3e38, 2.0, 3.0, 0.5, -7.0]
COUNT = 60_000


def exact(name, x):
    """The result in a wider type."""
    if name == "erf":
        return np.vectorize(math.erf, otypes=[np.float64])(x).astype(WIDE)  # the C library's, within 1 ulp of float64
    if name in ("sin", "cos") and x.dtype == np.float32:
        return UNARY[name][0](x.astype(np.float64)).astype(WIDE)
    return UNARY[name][0](x.astype(WIDE))


def random_bits(rng, dtype, count):
    unsigned = {np.float32: np.uint32, np.float64: np.uint64}[dtype]
    return rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True).view(dtype)


def samples(name, dtype):
    rng = np.random.default_rng(7)
    _, low, high = UNARY[name]
    near = 10.0 ** rng.uniform(-30, 0, COUNT)
    return np.concatenate([
        random_bits(rng, dtype, COUNT), rng.uniform(low, high, COUNT), rng.uniform(-1, 1, COUNT),
        near, -near, 1 + rng.uniform(-1, 1, COUNT) * 10.0 ** rng.uniform(-8, 0, COUNT), np.array(ENDS),
    ]).astype(dtype)


def ulps(got, want, flushed=0.0):
    """The largest error in units in the last place; infinite if an inf, a NaN or a zero is in the wrong place."""
    dtype = got.dtype
    rounded = want.astype(dtype)
    special = ~np.isfinite(rounded) | (rounded == 0)
    if not np.array_equal(got[special], rounded[special], equal_nan=True):
        return math.inf
    normal = ~special & (abs(rounded) >= max(flushed, np.finfo(dtype).tiny))
    small = ~special & ~normal
    if small.any() and (abs(got[small] - rounded[small]) > max(flushed, np.finfo(dtype).tiny)).any():
        return math.inf
    spacing = np.spacing(abs(rounded[normal]))
    return float((abs(got[normal].astype(WIDE) - want[normal]) / spacing).max(initial=0))


def stated_bound(function):
    return float(re.search(r"[Ww]ithin ([\d.]+) ulp", function.__doc__)[1])


def loops_of(texts, *arrays, outs):
    """Run ``out[i] = text`` for each text in machine code, a loop each; operands are called x and y."""
    names, results = "xy"[: len(arrays)], [f"out{number}" for number in range(len(outs))]
    source = f"def each(first, last, {', '.join([*names, *results])}):\n"
    for text, result in zip(texts, results, strict=True):
        source += f"    for i in range(first, last):\n        {result}[i] = " + re.sub(r"\b([xy])\b", r"\1[i]", text) + "\n"
    kernel = compile_cpu(source, "each", tuple(str(a.dtype) for a in (*arrays, *outs)))
    kernel.function(0, len(outs[0]), *arrays, *outs)
    return outs


def each(text, *arrays, out):
    return loops_of([text], *arrays, outs=[out])[0]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("MINISITCH_CACHE", "0")


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", [n for n in UNARY])
def test_error_is_as_stated(name, dtype):
    short = "f32" if dtype is np.float32 else "f64"
    function = getattr(cpu_math, f"{name}_{short}")
    if "C library" in function.__doc__:
        return  # nothing of ours to bound
    x = samples(name, dtype)
    want = exact(name, x)
    flushed = {"f32": 1.67e-38, "f64": 3.2e-308}[short] if name == "exp" else 0.0
    bound = stated_bound(function) + (0 if WIDE is np.longdouble and (name != "erf" or dtype is np.float32) else 1)
    plain = function(x)
    assert plain.dtype == dtype
    assert ulps(plain, want, flushed) <= bound
    assert ulps(each(f"{name}_{short}(x)", x, out=np.empty_like(x)), want, flushed) <= bound
    if short == "f32":
        theirs = 0.5 if name == "erf" else ulps(UNARY[name][0](x), want)  # erf: SciPy's, rounded once from float64
        assert ulps(plain, want, flushed) <= max(2 * theirs, 2)


@pytest.mark.parametrize("short", ["f32", "f64"])
def test_sign_of_zero_is_kept(short):
    zeros = np.array([0.0, -0.0], dtype={"f32": "float32", "f64": "float64"}[short])
    names = [f"{name}_{short}" for name in ("expm1", "log1p", "tanh", "erf", "sin")]
    compiled = loops_of([f"{name}(x)" for name in names], zeros, outs=[zeros + 1 for _ in names])
    for name, result in zip(names, compiled, strict=True):
        for found in (getattr(cpu_math, name)(zeros), result):
            assert np.array_equal(np.signbit(found), [False, True]) and not found.any(), name


def test_no_bit_pattern_of_nan_becomes_a_number():
    payloads = np.array([0x7F800001, 0x7FC00001, 0x7FC000FF, 0x7FFFFFFF, 0xFFC00003, 0xFFFFFFFF], np.uint32)
    nans = payloads.view(np.float32)
    compiled = loops_of([f"{name}_f32(x)" for name in UNARY], nans, outs=[np.zeros(6, np.float32) for _ in UNARY])
    for name, got in zip(UNARY, compiled, strict=True):
        assert np.isnan(getattr(cpu_math, f"{name}_f32")(nans)).all(), name
        assert np.isnan(got).all(), name


def test_every_float32_between_two_powers_of_two():
    """exp and tanh over all 8 million floats of one binade, and over a coarse sweep of all binades."""
    x = np.concatenate([np.arange(0x3F800000, 0x3F800000 + 2**23, 5, dtype=np.uint32),
                        np.arange(0, 2**32 - 1, 9973, dtype=np.uint32)]).view(np.float32)
    for name in ("exp", "tanh"):
        bound = stated_bound(getattr(cpu_math, f"{name}_f32"))
        want = UNARY[name][0](x.astype(np.float64)).astype(WIDE)
        assert ulps(each(f"{name}_f32(x)", x, out=np.empty_like(x)), want, 1.67e-38) <= bound


def test_pow_error():
    rng = np.random.default_rng(3)
    x = np.concatenate([random_bits(rng, np.float32, COUNT), rng.uniform(0, 10, COUNT), rng.uniform(0.9, 1.1, COUNT),
                        rng.uniform(-5, 5, COUNT)]).astype(np.float32)
    y = np.concatenate([rng.uniform(-3, 3, COUNT), rng.uniform(-40, 40, COUNT), rng.uniform(-900, 900, COUNT),
                        rng.integers(-30, 30, COUNT)]).astype(np.float32)
    want = np.power(x.astype(WIDE), y.astype(WIDE))
    bound = stated_bound(cpu_math.pow_f32)
    assert ulps(cpu_math.pow_f32(x, y), want) <= bound
    assert ulps(each("pow_f32(x, y)", x, y, out=np.empty_like(x)), want) <= bound


PAIRS = {  # what NumPy says, exactly, on every pair of special values
    "maximum(x, y)": np.maximum, "minimum(x, y)": np.minimum, "fmax(x, y)": np.fmax, "fmin(x, y)": np.fmin,
    "mod(x, y)": np.mod, "fmod(x, y)": np.fmod, "floor_divide(x, y)": np.floor_divide,
    "math.copysign(x, y)": np.copysign, "x / y": np.divide, "x - y + y": lambda x, y: x - y + y,
}
SINGLES = {
    "sign(x)": np.sign, "floor(x)": np.floor, "ceil(x)": np.ceil, "trunc(x)": np.trunc, "rint(x)": np.rint,
    "-x": np.negative, "abs(x)": np.abs, "math.sqrt(x)": np.sqrt, "x - x": lambda x: x - x,
    "T(1) / math.sqrt(x)": lambda x: 1 / np.sqrt(x), "T(0) - x": lambda x: 0 - x, "x + T(0)": lambda x: x + 0,
    "x != x": np.isnan, "isinf(x)": np.isinf, "isfinite(x)": np.isfinite,
    "math.copysign(T(1), x) < T(0)": np.signbit,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("meanings", [PAIRS, SINGLES], ids=["pairs", "singles"])
def test_machine_code_means_what_numpy_means(meanings, dtype):
    """NaN, infinities, denormals and the sign of zero come through the compiler's flags."""
    values = np.array([*ENDS, 2.5, -2.5, 1e-20, 1e20], dtype)
    arrays = (np.repeat(values, len(values)), np.tile(values, len(values))) if meanings is PAIRS else (np.tile(values, 5),)
    wanted = [meaning(*arrays) for meaning in meanings.values()]
    results = loops_of([text.replace("T(", f"np.{dtype}(") for text in meanings], *arrays, outs=[np.empty_like(w) for w in wanted])
    for text, want, got in zip(meanings, wanted, results, strict=True):
        assert np.array_equal(got, want, equal_nan=want.dtype != bool), text
        if want.dtype != bool and "max" not in text and "min" not in text:  # of two zeros, either is the greater
            number = ~np.isnan(want)
            assert np.array_equal(np.signbit(got[number]), np.signbit(want[number])), text


def test_pow_ends_are_numpys():
    values = np.array([*ENDS, 2.5, -2.5, 1e20, -3.0, 16777217.0], np.float32)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    want = np.power(x, y)
    for got in (cpu_math.pow_f32(x, y), each("pow_f32(x, y)", x, y, out=np.empty_like(x))):
        special = ~np.isfinite(want) | (want == 0) | (abs(want) == 1)
        assert np.array_equal(got[special], want[special], equal_nan=True)
        assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
COMPILED = ["int8", "uint16", "int64", "uint64"]  # narrow ones are computed in 64 bits; test_right_wrap compiles each in kernels


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_helpers_follow_numpy(dtype):
    info = np.iinfo(dtype)
    values = np.array(sorted({info.min, info.min + 1, 0, 1, 2, 3, 5, 7, 13, 31, 32, 33, 63, 64, 65, 100,
                              info.max - 1, info.max, max(info.min, -1), max(info.min, -3), max(info.min, -7)}), dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    meanings = {"floor_divide_int(x, y)": np.floor_divide, "mod_int(x, y)": np.mod, "fmod_int(x, y)": np.fmod,
                "shift_left(x, y)": np.left_shift, "shift_right(x, y)": np.right_shift,
                "maximum(x, y)": np.maximum, "minimum(x, y)": np.minimum, "sign(x)": lambda x, y: np.sign(x),
                "select(x > y, x, y)": np.maximum}
    if dtype in COMPILED:
        results = loops_of(meanings, x, y, outs=[np.empty_like(x) for _ in meanings])
        for (text, meaning), got in zip(meanings.items(), results, strict=True):
            assert np.array_equal(got, meaning(x, y)), f"{text} on {dtype}"
    for text, meaning in meanings.items():
        plain = eval(text, {"x": x, "y": y, **vars(cpu_math)})
        assert plain.dtype == x.dtype and np.array_equal(plain, meaning(x, y)), f"plain {text} on {dtype}"
    small = np.abs(y.astype("float64")) < 200
    powers = np.where(small, y, 3).astype(dtype)
    powers = np.where(powers < 0, 2, powers).astype(dtype) if info.min < 0 else powers
    if dtype in COMPILED:
        assert np.array_equal(each("power_int(x, y)", x, powers, out=np.empty_like(x)), np.power(x, powers))


def test_negative_powers_of_integers_truncate():
    x = np.array([0, 1, -1, -1, 2, 7], np.int32)
    y = np.array([-1, -5, -2, -3, -1, -9], np.int32)
    assert each("power_int(x, y)", x, y, out=np.empty_like(x)).tolist() == [0, 1, 1, -1, 0, 0]


def test_half_to_float_every_value():
    bits = np.arange(2**16, dtype=np.uint16)
    want = bits.view(np.float16).astype(np.float32)
    for got in (cpu_math.half_to_float(bits), each("half_to_float(x)", bits, out=np.empty(2**16, np.float32))):
        assert np.array_equal(got, want, equal_nan=True)
        assert np.array_equal(np.signbit(got), np.signbit(want))


def test_float_to_half_rounds_as_numpy():
    rng = np.random.default_rng(5)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (every[:-1] + every[1:]) / 2  # the ties
    x = np.concatenate([every, between, np.nextafter(between, np.float32(np.inf)),
                        np.nextafter(between, np.float32(-np.inf)), random_bits(rng, np.float32, 200_000),
                        rng.normal(size=100_000).astype(np.float32)]).astype(np.float32)
    want = x.astype(np.float16)
    for got in (cpu_math.float_to_half(x), each("float_to_half(x)", x, out=np.empty(len(x), np.uint16))):
        assert np.array_equal(got.view(np.float16), want, equal_nan=True)
        assert np.array_equal(got[want == 0] >> 15, np.signbit(want[want == 0]))


def test_float64_to_half_is_rounded_once():
    """A little above or below a tie float32 has the tie itself, which is then rounded to even: that would be the wrong way half of the time."""
    rng = np.random.default_rng(6)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        ties = (every[:-1] + every[1:]) / 2
    near = [ties * (1 + sign * 2.0 ** -power) for sign in (-1, 1) for power in (30, 40, 52)]
    x = np.concatenate([every, ties, *near, random_bits(rng, np.float64, 200_000), rng.normal(size=100_000), [1e300, -1e300, 1e-300, -1e-320]])
    with np.errstate(over="ignore", under="ignore"):
        want = x.astype(np.float16)
        twice = x.astype(np.float32).astype(np.float16)
        plain = cpu_math.float_to_half(cpu_math.float_to_odd(x))
    assert not np.array_equal(twice, want, equal_nan=True), "or this test could not fail"
    for got in (plain, each("float_to_half(float_to_odd(x))", x, out=np.empty(len(x), np.uint16))):
        assert np.array_equal(got.view(np.float16), want, equal_nan=True)
        assert np.array_equal(got[want == 0] >> 15, np.signbit(want[want == 0]))


def test_scalars_work_without_numba():
    assert cpu_math.exp_f32(np.float32(0)) == 1 and cpu_math.exp_f32(np.float32(0)).dtype == np.float32
    assert cpu_math.sign(np.int8(-5)) == -1 and cpu_math.select(True, 2, 3) == 2
    assert cpu_math.half_to_float(np.uint16(0x3C00)) == 1.0
    assert cpu_math.power_int(np.int32(3), np.int32(4)) == 81
    assert cpu_math.erf_f32(np.float32(0.5)) == pytest.approx(float(erf(0.5)), rel=1e-6)
