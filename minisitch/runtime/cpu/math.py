"""The functions that emitted CPU text calls: vectorised functions, and NumPy's exact rules.

In:  scalars (or, in plain Python, whole arrays). Out: the same dtype. ``runtime/cpu/compile.py``
compiles those that a kernel uses. This file can be imported and tested without Numba.

A loop vectorises only if its body has no branch and no call, so functions are straight-line
arithmetic and ``select``. Elementary functions follow the textbook: reduce the range exactly (Cody
and Waite 1980), evaluate a minimax polynomial (fitted with the Remez algorithm), and combine the
pieces through the bits of the exponent.

The first group are the *primitives*: one machine instruction each, for which Python has no word.
Their bodies here say what they mean. ``runtime/cpu/compile.py`` replaces these bodies. Everything
else is compiled as written.

Errors are in ulp, units in the last place, against the exact result. They hold over the whole range
unless a docstring says otherwise. A docstring also says where denormal numbers (float32 below
1.2e-38) are flushed to zero.
"""

import math

import numpy as np

# ---------------------------------------------------------------- primitives


def select(c, a, b):
    """``a`` if ``c`` is true, else ``b``. Both are computed: there is no branch."""
    return np.where(c, a, b)[()]


def like(value, x):
    """``value`` converted to the type of ``x``. An integer that does not fit wraps."""
    return np.asarray(value).astype(np.asarray(x).dtype)[()]


def maximum(a, b):
    """The greater; NaN if either is NaN, as np.maximum. 0.0 is greater than -0.0.

    NumPy's answer for the two zeros depends on the length of the array.
    """
    return np.maximum(a, b)


def minimum(a, b):
    """The smaller; NaN if either is NaN, as np.minimum."""
    return np.minimum(a, b)


def add_any_order(a, b):
    """``a + b`` as a step of a sum in any order.

    ``compile`` writes it instead of ``total += x``.
    """
    return a + b


def kahan_add(total, lost, value):
    """The new total, and its rounding error: one step of compensated summation (Kahan 1965).

    ``lost`` is the rounding error so far. It is 0 once the total is NaN or infinite.
    """
    value = value - lost
    new = total + value
    lost = (new - total) - value
    return new, select(lost - lost == 0, lost, like(0, value))


def mul_any_order(a, b):
    """``a * b`` as a step of a product in any order."""
    return a * b


def maximum_any_order(a, b):
    """``maximum(a, b)`` as a step of a reduction.

    Of 0.0 and -0.0 it may give either, as NumPy does.
    """
    return np.maximum(a, b)


def minimum_any_order(a, b):
    """``minimum(a, b)`` as a step of a reduction."""
    return np.minimum(a, b)


def a_part():
    """Let LLVM compile this function on its own."""


def widest_vectors():
    """Ask for the machine's widest vectors in this kernel.

    ``compile`` begins every kernel with it.
    """


def arguments_do_not_overlap():
    """Say that no two arrays of this kernel share memory."""


def multiply_add(a, b, c):
    """``a * b + c``, rounded once if the machine has such an instruction.

    ``compile`` writes it into helpers.
    """
    return a * b + c


def polynomial(x, coefficients):
    """``c[0] + c[1] * x + c[2] * x**2 ...`` by Horner's rule.

    ``compile`` writes out the steps for the coefficients, a constant of this file.
    """
    result = coefficients[-1]
    for c in coefficients[-2::-1]:
        result = result * x + c
    return result


def window(array, first, last):
    """``array[first:last]``, which must lie inside the array.

    ``compile`` writes it instead of a slice.
    """
    return array[first:last]


def on_the_stack(size, dtype):
    """Uninitialised memory for a scratch row of constant size.

    ``compile`` writes it instead of ``np.empty``.
    """
    return np.empty(size, dtype)


def copysign(a, b):
    """The size of ``a`` with the sign of ``b``."""
    return np.copysign(a, b)


def floor(x):
    """Rounded towards minus infinity. The result is a float."""
    return np.floor(x)


def ceil(x):
    """Rounded towards plus infinity. The result is a float."""
    return np.ceil(x)


def trunc(x):
    """Rounded towards zero. The result is a float."""
    return np.trunc(x)


def rint(x):
    """Rounded to the nearest integer, halves to even. The result is a float."""
    return np.rint(x)


# ---------------------------------------------------------------- choosing


def fmax(a, b):
    """The greater. If one of them is NaN, the other; as np.fmax."""
    return select(b != b, a, select(a > b, a, b))


def fmin(a, b):
    """The smaller. If one of them is NaN, the other; as np.fmin."""
    return select(b != b, a, select(a < b, a, b))


def sign(x):
    """-1, 0 or 1; NaN stays NaN."""
    return select(x > 0, like(1, x), select(x < 0, like(-1, x), select(x == 0, like(0, x), x)))


def isinf(x):
    return abs(x) == np.inf


def isfinite(x):
    return abs(x) < np.inf


# ---------------------------------------------------------------- integers, by NumPy's rules


def floor_divide_int(a, b):
    """The quotient, rounded towards minus infinity.

    0 if ``b`` is 0. The lowest integer over -1 wraps.
    """
    simple = (b == 0) | (b == -1)  # with these two divisors a processor may trap
    quotient = a // select(simple, like(1, b), b)
    return like(select(b == 0, like(0, a), select(b == -1, like(-a, a), like(quotient, a))), a)


def mod_int(a, b):
    """The remainder, with the sign of ``b``. 0 if ``b`` is 0."""
    simple = (b == 0) | (b == -1)
    return like(select(simple, like(0, a), like(a % select(simple, like(1, b), b), a)), a)


def fmod_int(a, b):
    """The remainder, with the sign of ``a``, as in C. 0 if ``b`` is 0."""
    rest = mod_int(a, b)
    return like(select((rest != 0) & ((a < 0) != (b < 0)), like(rest - b, a), rest), a)


def power_int(a, b):
    """``a ** b`` by repeated squaring; it wraps. Scalars only.

    NumPy refuses a negative exponent. Here it gives 1 / a**-b, truncated.
    """
    result, factor, left = like(1, a), a, b
    if b < 0:
        odd = (b & 1) != 0
        of_minus_one = select(odd, like(-1, a), like(1, a))
        return select(a == 1, like(1, a), select(a == -1, of_minus_one, like(0, a)))
    while left > 0:
        if left & 1:
            # Signed, overflow would be undefined.
            result = like(np.uint64(result) * np.uint64(factor), a)
        factor = like(np.uint64(factor) * np.uint64(factor), a)
        left = like(left >> 1, b)
    return result


def shift_left(a, b):
    """``a << b``. 0 if ``b`` is negative or at least the width."""
    valid = (b >= 0) & (b < 64)
    return like(select(valid, like(a << like(b & 63, a), a), like(0, a)), a)


def shift_right(a, b):
    """``a >> b``. All sign bits if ``b`` is negative or at least the width."""
    valid = (b >= 0) & (b < 64)
    signs = select(a < 0, like(-1, a), like(0, a))
    return like(select(valid, like(a >> like(b & 63, a), a), signs), a)


def fmod(a, b):
    """Exact floating remainder, with the sign of ``a``. NaN if ``b`` is 0. Does not vectorise."""
    return np.fmod(a, b)


def mod(a, b):
    """Exact floating remainder, with the sign of ``b``. NaN if ``b`` is 0. Does not vectorise."""
    rest = np.fmod(a, b)
    shifted = select((rest < 0) != (b < 0), rest + b, rest)
    return select(rest == 0, copysign(rest, b), shifted)


def floor_divide(a, b):
    """Floor of the exact quotient, consistent with ``mod``. a / 0 is infinite or NaN.

    Does not vectorise.
    """
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    quotient = select((rest != 0) & ((rest < 0) != (b < 0)), quotient - like(1, a), quotient)
    down = floor(quotient)
    down = select(quotient - down > like(0.5, a), down + like(1, a), down)
    down = select(quotient == 0, copysign(like(0, a), a / b), down)
    return select(b == 0, a / b, down)


# ---------------------------------------------------------------- float16, in memory as uint16

_HALF_INF = np.float32(65536.0)  # the first power of two too large for float16
_TWO_112 = np.float32(2.0**112)
# Adding it to a number below 2**-14 leaves float16's denormal in the low bits.
_HALF_DENORMAL = np.float32(0.5)


def half_to_float(h):
    """float16 bits to float32: exact."""
    h = np.int32(h)
    # Exponent bias 15 to 127.
    size = np.int32((h & np.int32(0x7FFF)) << np.int32(13)).view(np.float32) * _TWO_112
    infinite = select(size >= _HALF_INF, np.int32(0x7F800000), np.int32(0))
    bits = np.float32(size).view(np.int32) | infinite
    return np.int32(bits | np.int32((h & np.int32(0x8000)) << np.int32(16))).view(np.float32)


def float_to_half(x):
    """float32 to float16 bits, rounded to nearest, halves to even.

    Too large gives inf; NaN stays NaN.
    """
    bits = np.float32(x).view(np.int32)
    size = np.int32(bits & np.int32(0x7FFFFFFF))
    tiny = np.float32(np.int32(size).view(np.float32) + _HALF_DENORMAL).view(np.int32)
    tiny = np.int32(tiny - np.int32(0x3F000000))
    odd = np.int32(np.int32(size >> np.int32(13)) & np.int32(1))
    normal = np.int32(np.int32(size - np.int32(0x38000000 - 0xFFF) + odd) >> np.int32(13))
    special = select(size > np.int32(0x7F800000), np.int32(0x7E00), np.int32(0x7C00))
    large = select(size >= np.int32(0x47800000), special, normal)
    half = select(size < np.int32(0x38800000), tiny, large)
    return np.uint16(half | np.int32(np.int32(bits >> np.int32(16)) & np.int32(0x8000)))


def float_to_odd(x):
    """float64 to float32, rounded to odd, so that ``float_to_half`` of the result rounds only once.

    An inexact number is cut, and its last bit is set.
    """
    near = np.float32(x)
    back = np.float64(near)
    cut = np.int32(near.view(np.int32) - np.int32(abs(back) > abs(x)))
    return np.int32(cut | np.int32(back != x)).view(np.float32)


# ---------------------------------------------------------------- float32

_ZERO, _HALF, _ONE, _TWO = (np.float32(v) for v in (0.0, 0.5, 1.0, 2.0))
_INF, _NAN = np.float32(np.inf), np.float32(np.nan)
_LOG2E = np.float32(1.442695041)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# Adding this to n leaves n + 126 in the low bits. Shifted up, they are the float32 2**(n - 1), or 0
# for n = -126. (2**n itself would not fit: n reaches 128.) So polynomials give twice the value, and
# the product becomes 0, inf or NaN by itself. The usual way, adding n to the exponent's bits, makes
# numbers of some NaNs.
_ROUND = np.float32(1.5 * 2**23 + 126)
_EXP_LOW, _EXP_HIGH = np.float32(-87.2), np.float32(88.9)
_E = tuple(np.float32(2 * v) for v in (
    1, 1, 0.5, 0.16666512191295624, 0.04166658595204353, 0.008369667455554008,
    0.0013921053614467382))


def _exp_range(y):
    """``(r, half_power)`` with e**y = 2 * half_power * e**r, where r is at most log(2) / 2."""
    t = y * _LOG2E + _ROUND
    n = t - _ROUND
    r = y - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    return r, np.int32(np.float32(t).view(np.int32) << np.int32(23)).view(np.float32)


def exp_f32(x):
    """e**x within 1.2 ulp. Results below 1.67e-38 are flushed to zero. inf for x above 88.7228."""
    y = select(x < _EXP_LOW, _EXP_LOW, x)  # in this form NaN stays NaN
    r, half_power = _exp_range(select(y > _EXP_HIGH, _EXP_HIGH, y))
    return polynomial(r, _E) * half_power


_M = tuple(np.float32(v) for v in (
    0.4999999701976776, 0.16666537523269653, 0.04166772961616516, 0.00836726650595665,
    0.0013841084437444806))
_EXPM1_LOW = np.float32(-17.5)


def expm1_f32(x):
    """e**x - 1 within 1.7 ulp; -1 below -17.4, inf above 88.7228; -0 stays -0."""
    y = select(x < _EXPM1_LOW, _EXPM1_LOW, x)
    r, half_power = _exp_range(select(y > _EXP_HIGH, _EXP_HIGH, y))
    p = polynomial(r, _M) * (r * r) + r
    return select(x == _ZERO, x, (p * half_power + (half_power - _HALF)) * _TWO)


_SMALLEST, _TWO_23 = np.float32(2.0**-126), np.float32(2.0**23)
_SQRT_HALF_BITS = np.int32(np.float32(math.sqrt(0.5)).view(np.int32))
_L = tuple(np.float32(v) for v in (
    0.3333333134651184, -0.250008225440979, 0.20001192390918732, -0.16623222827911377,
    0.142024964094162, -0.1316239833831787, 0.12757068872451782, -0.07622326165437698))
_LOG2E_TAIL = np.float32(0.4426950408889634)  # log2(e) - 1
_LOG10E_HIGH, _LOG10E_LOW = np.float32(0.43359375), np.float32(7.007318781688809e-4)
_LOG10_2_HIGH, _LOG10_2_LOW = np.float32(0.30078125), np.float32(2.4874566588550806e-4)


def _log_parts(x):
    """``(n, f)`` with x = 2**n * (1 + f), where 1 + f is between sqrt(1/2) and sqrt(2).

    ``x`` is positive and finite.
    """
    tiny = x < _SMALLEST
    bits = np.float32(select(tiny, x * _TWO_23, x)).view(np.int32)
    n = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> np.int32(23))
    f = np.int32(bits - np.int32(n << np.int32(23))).view(np.float32) - _ONE
    return np.float32(np.int32(n - select(tiny, np.int32(23), np.int32(0)))), f


def _log_tail(f):
    """log(1 + f) - f."""
    z = f * f
    return polynomial(f, _L) * (f * z) - _HALF * z


def _log_ends(x, result):
    """The result, or the value of every logarithm at 0 (-inf), below 0 (NaN), at inf and at NaN."""
    result = select(x == np.inf, x, select(x == 0, like(-np.inf, x), result))
    return select(x < 0, like(np.nan, x), select(x != x, x, result))


def log_f32(x):
    """Natural logarithm within 1 ulp, denormals included."""
    n, f = _log_parts(x)
    return _log_ends(x, (n * _LN2_LOW + _log_tail(f) + f) + n * _LN2_HIGH)


def log2_f32(x):
    """Logarithm to base 2 within 1.5 ulp; exact at powers of two."""
    n, f = _log_parts(x)
    y = _log_tail(f)
    return _log_ends(x, (y * _LOG2E_TAIL + f * _LOG2E_TAIL) + y + f + n)


def log10_f32(x):
    """Logarithm to base 10 within 2 ulp."""
    n, f = _log_parts(x)
    y = _log_tail(f)
    low = y * _LOG10E_LOW + f * _LOG10E_LOW + n * _LOG10_2_LOW
    return _log_ends(x, low + y * _LOG10E_HIGH + f * _LOG10E_HIGH + n * _LOG10_2_HIGH)


def log1p_f32(x):
    """log(1 + x) within 1.5 ulp; -0 stays -0."""
    u = _ONE + x
    big = x > _ONE
    lost = select(big, _ONE - (u - x), x - (u - _ONE))  # the rounding error of 1 + x
    bits = np.float32(u).view(np.int32)
    n = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> np.int32(23))
    power = np.int32(n << np.int32(23))
    shift = select(n > np.int32(127), np.int32(127 << 23), power)
    scale = np.int32(np.int32(0x3F800000) - shift).view(np.float32)
    f = np.int32(bits - power).view(np.float32) - _ONE
    f = f + lost * scale
    y = (np.float32(n) * _LN2_LOW + _log_tail(f) + f) + np.float32(n) * _LN2_HIGH
    return select(x == _ZERO, x, _log_ends(u, y))


_MINUS_2LOG2E, _HALF_LN2_HIGH, _HALF_LN2_LOW = -_TWO * _LOG2E, _HALF * _LN2_HIGH, _HALF * _LN2_LOW
_N = tuple(np.float32(2.0**k) * m for k, m in enumerate(_M, 1))
_ROUND_TANH = np.float32(1.5 * 2**23 + 127)  # 2**n itself, since n is never positive here
_TANH_ONE = np.float32(8.75)  # from here on tanh rounds to 1


def tanh_f32(x):
    """Within 2.6 ulp: -s / (s + 1) with s = expm1(-2 |x|) / 2, which has no cancellation anywhere.

    It repeats ``expm1_f32`` in terms of r / 2, without the cases that a negative argument never
    meets.
    """
    y = abs(x)
    y = select(y > _TANH_ONE, _TANH_ONE, y)
    t = y * _MINUS_2LOG2E + _ROUND_TANH
    n = t - _ROUND_TANH
    r = n * -_HALF_LN2_HIGH - y
    r = r - n * _HALF_LN2_LOW
    p = polynomial(r, _N) * (r * r) + r
    power = np.int32(np.float32(t).view(np.int32) << np.int32(23)).view(np.float32)
    s = p * power + (power * _HALF - _HALF)
    return copysign(s / (s + _ONE), x)


_F = tuple(np.float32(v) for v in (
    0.12837912142276764, -0.37612318992614746, 0.11280113458633423,
    -0.026709217578172684, 0.004914908204227686, -0.0005619864095933735))
_G = tuple(np.float32(v) for v in (
    0.0003537554875947535, 1.1270397901535034, 0.6382262706756592, 0.10303667932748795,
    -0.02180490270256996, 0.0029394824523478746, -0.00018555918359197676))
_ERF_ONE = np.float32(3.95)  # from here on erf rounds to 1


def erf_f32(x):
    """Error function within 1.8 ulp: a polynomial below 1, 1 - exp(polynomial) above."""
    a = abs(x)
    z = a * a
    small = polynomial(z, _F) * a + a
    b = select(a > _ERF_ONE, _ERF_ONE, a)
    return copysign(select(a < _ONE, small, _ONE - exp_f32(-polynomial(b, _G))), x)


# sin and cos of float32 count turns, x / (2 pi), in float64. 1 / (2 pi) is a sum of parts so short
# that their products with a float32 are exact. Whole turns are removed from each product, so the
# fraction is accurate for any x.
_T0, _T1, _T2, _T3, _T4 = (np.float64(float.fromhex(v)) for v in ("0x1.45f306ep-3",
    "-0x1.b1bbeaep-34", "0x1.3f84eb0p-63", "-0x1.7056592p-93", "0x1.c0db6295993c4p-122"))
_ROUND_64 = np.float64(1.5 * 2**52)
_QUARTER_64, _HALF_64, _ONE_64, _TWO_64, _FOUR_64 = map(np.float64, (0.25, 0.5, 1.0, 2.0, 4.0))
_ZERO_64, _INF_64, _TWO_PI = (np.float64(v) for v in (0.0, np.inf, 2 * math.pi))
_S = tuple(map(np.float64, (
    -0.16666654873454143, 0.008332173284957504, -0.00019516613614032675)))
_C = tuple(map(np.float64, (
    0.0416666467530605, -0.0013887361726439458, 2.443776073841244e-05)))


def _sin_quarters(x, quarters):
    """sin(x + quarters * pi / 2)."""
    wide = np.float64(x)
    a, b, c, d = wide * _T0, wide * _T1, wide * _T2, wide * _T3
    turns = ((a - rint(a)) + (b - rint(b))) + ((c - rint(c)) + ((d - rint(d)) + wide * _T4))
    t = turns * _FOUR_64 + _ROUND_64
    r = (turns - (t - _ROUND_64) * _QUARTER_64) * _TWO_PI
    quadrant = np.int64(np.float64(t).view(np.int64) + quarters)
    z = r * r
    odd = r + r * z * polynomial(z, _S)
    even = _ONE_64 - _HALF_64 * z + z * z * polynomial(z, _C)
    y = np.float32(select((quadrant & np.int64(1)) == np.int64(0), odd, even))
    return select((quadrant & np.int64(2)) == np.int64(0), y, -y)


def sin_f32(x):
    """Within 0.6 ulp for every float32; NaN at inf; -0 stays -0."""
    return select(x == _ZERO, x, _sin_quarters(x, np.int64(0)))


def cos_f32(x):
    """Within 0.6 ulp for every float32; NaN at inf."""
    return _sin_quarters(x, np.int64(1))


_P = tuple(np.float64(v) for v in (
    2.88539008177785, 0.961796694113314, 0.577077942375931,
    0.41220925109235956, 0.31990575448259956, 0.2828992819892239))
_X = tuple(np.float64(v) for v in (
    0.9999999999615965, 0.6931471807277226, 0.24022651198927264, 0.055504103568589126,
    0.009618027151181461, 0.0013333918964337794, 0.00015469324146607312, 1.5202944557770677e-05))
_SQRT_HALF_BITS_64 = np.int64(np.float64(math.sqrt(0.5)).view(np.int64))
_POW_LIMIT = np.float64(300.0)  # 2**300 is inf in float32 and 2**-300 is 0


def _log2_64(x):
    """log2 of a positive, finite, normal float64, within a relative error of 3e-14."""
    bits = np.float64(x).view(np.int64)
    n = np.int64(np.int64(bits - _SQRT_HALF_BITS_64) >> np.int64(52))
    m = np.int64(bits - np.int64(n << np.int64(52))).view(np.float64)
    s = (m - _ONE_64) / (m + _ONE_64)
    return s * polynomial(s * s, _P) + np.float64(n)


def _exp2_64(x):
    """2**x within a relative error of 5e-11, for -1000 <= x <= 1000."""
    t = x + _ROUND_64
    r = x - (t - _ROUND_64)
    shift = np.int64(np.float64(t).view(np.int64) << np.int64(52))
    power = np.int64(shift + np.float64(polynomial(r, _X)).view(np.int64))
    return power.view(np.float64)


def pow_f32(x, y):
    """x**y within 1 ulp, as 2**(y log2 |x|) in float64.

    Signs, zeros, infinities and NaN as np.power.
    """
    size = abs(x)
    wide = np.float64(size)
    log = _log2_64(select(size == _ZERO, _ONE_64, select(size < _INF, wide, _ONE_64)))
    log = select(size == _ZERO, -_INF_64, select(size < _INF, log, wide))
    power = np.float64(y) * log
    inside = select(power > _POW_LIMIT, _POW_LIMIT, select(power < -_POW_LIMIT, -_POW_LIMIT, power))
    result = np.float32(_exp2_64(inside))
    whole = rint(y) == y
    half = y * _HALF
    odd = whole & (rint(half) != half)
    negative = (x < _ZERO) | ((x == _ZERO) & (copysign(_ONE, x) < _ZERO))
    result = select(negative & odd, -result, result)
    result = select((x < _ZERO) & (size < _INF) & (rint(y) != y) & (y == y), _NAN, result)
    result = select((size == _ONE) & (abs(y) == _INF), _ONE, result)
    return select((y == _ZERO) | (x == _ONE), _ONE, result)


# ---------------------------------------------------------------- float64: longer polynomials

_LOG2E_64, _LN2_HIGH_64, _LN2_LOW_64 = map(np.float64, (
    1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10))
# Leaves n + 1022 in the low bits: the exponent of 2**(n - 1).
_ROUND_EXP_64 = np.float64(1.5 * 2**52 + 1022)
_EXP_LOW_64, _EXP_HIGH_64, _EXPM1_LOW_64 = np.float64(-708.3), np.float64(709.9), np.float64(-37.5)
_M_64 = tuple(map(np.float64, (
    0.5, 0.16666666666666677, 0.04166666666666653, 0.008333333333321449,
    0.0013888888888949579, 0.00019841269886664508, 2.4801587202153758e-05,
    2.755724359513887e-06, 2.755737374103745e-07, 2.5109274350813212e-08,
    2.0885337887753928e-09)))


def _exp_parts_64(y):
    """``(r, rest, half_power)`` with e**y = 2 * half_power * (1 + r + rest).

    ``rest`` is small beside ``r``.
    """
    t = y * _LOG2E_64 + _ROUND_EXP_64
    n = t - _ROUND_EXP_64
    r = (y - n * _LN2_HIGH_64) - n * _LN2_LOW_64
    half_power = np.int64(np.float64(t).view(np.int64) << np.int64(52)).view(np.float64)
    return r, polynomial(r, _M_64) * (r * r), half_power


def exp_f64(x):
    """e**x within 0.8 ulp. Results below 3.2e-308 are flushed to zero. inf for x above 709.78."""
    y = select(x < _EXP_LOW_64, _EXP_LOW_64, x)
    r, rest, half_power = _exp_parts_64(select(y > _EXP_HIGH_64, _EXP_HIGH_64, y))
    most = _ONE_64 + r  # its rounding error is known exactly, and is added with the rest
    return (most + (rest + (r - (most - _ONE_64)))) * _TWO_64 * half_power


def expm1_f64(x):
    """e**x - 1 within 2 ulp; -1 below -37.4, inf above 709.78; -0 stays -0."""
    y = select(x < _EXPM1_LOW_64, _EXPM1_LOW_64, x)
    r, rest, half_power = _exp_parts_64(select(y > _EXP_HIGH_64, _EXP_HIGH_64, y))
    return select(x == _ZERO_64, x, ((r + rest) * half_power + (half_power - _HALF_64)) * _TWO_64)


_SMALLEST_64, _TWO_52 = np.float64(2.0**-1022), np.float64(2.0**52)
_K = tuple(np.float64(v) for v in (
    0.6666666666666734, 0.39999999999414726, 0.28571428742378974, 0.22222198574008603,
    0.18183564283314227, 0.15314051685254704, 0.14795937808054452))
_UPPER_HALF = np.int64(-(2**32))
_LOG2E_HIGH_64, _LOG2E_LOW_64 = np.float64(1.4426946640014648), np.float64(3.768874985636099e-07)
_LOG10E_HIGH_64, _LOG10E_LOW_64 = np.float64(0.4342944622039795), np.float64(1.9699272335463627e-08)
_LOG10_2_HIGH_64 = np.float64(0.30102992057800293)
_LOG10_2_LOW_64 = np.float64(7.508597826552624e-08)


def _log_parts_64(x):
    """``(n, f)`` with x = 2**n * (1 + f), as ``_log_parts``."""
    tiny = x < _SMALLEST_64
    bits = np.float64(select(tiny, x * _TWO_52, x)).view(np.int64)
    n = np.int64(np.int64(bits - _SQRT_HALF_BITS_64) >> np.int64(52))
    f = np.int64(bits - np.int64(n << np.int64(52))).view(np.float64) - _ONE_64
    return np.float64(np.int64(n - select(tiny, np.int64(52), np.int64(0)))), f


def _log_tail_64(f):
    """``(f * f / 2, rest)`` with log(1 + f) = f - f * f / 2 + rest."""
    s = f / (_TWO_64 + f)
    z = s * s
    square = f * f * _HALF_64
    return square, s * (square + polynomial(z, _K) * z)


def _log_sum_64(n, f):
    square, rest = _log_tail_64(f)
    return n * _LN2_HIGH_64 - ((square - (rest + n * _LN2_LOW_64)) - f)


def _log_split_64(f):
    """log(1 + f) as a sum of a number of 21 bits and a small one."""
    square, rest = _log_tail_64(f)
    high = np.int64(np.float64(f - square).view(np.int64) & _UPPER_HALF).view(np.float64)
    return high, ((f - high) - square) + rest


def log_f64(x):
    """Natural logarithm within 1 ulp, denormals included."""
    n, f = _log_parts_64(x)
    return _log_ends(x, _log_sum_64(n, f))


def log2_f64(x):
    """Logarithm to base 2 within 1 ulp; exact at powers of two."""
    n, f = _log_parts_64(x)
    high, low = _log_split_64(f)
    big = high * _LOG2E_HIGH_64
    small = (low + high) * _LOG2E_LOW_64 + low * _LOG2E_HIGH_64
    total = n + big
    return _log_ends(x, total + (small + ((n - total) + big)))


def log10_f64(x):
    """Logarithm to base 10 within 1 ulp."""
    n, f = _log_parts_64(x)
    high, low = _log_split_64(f)
    big = high * _LOG10E_HIGH_64
    small = n * _LOG10_2_LOW_64 + (low + high) * _LOG10E_LOW_64 + low * _LOG10E_HIGH_64
    whole = n * _LOG10_2_HIGH_64
    total = whole + big
    return _log_ends(x, total + (small + ((whole - total) + big)))


def log1p_f64(x):
    """log(1 + x) within 1.5 ulp; -0 stays -0."""
    u = _ONE_64 + x
    lost = select(x > _ONE_64, _ONE_64 - (u - x), x - (u - _ONE_64))
    bits = np.float64(u).view(np.int64)
    n = np.int64(np.int64(bits - _SQRT_HALF_BITS_64) >> np.int64(52))
    power = np.int64(n << np.int64(52))
    f = np.int64(bits - power).view(np.float64) - _ONE_64
    shift = select(n > np.int64(1023), np.int64(1023 << 52), power)
    shrink = np.int64(np.int64(1023 << 52) - shift).view(np.float64)
    result = _log_sum_64(np.float64(n), f + lost * shrink)
    return select(x == _ZERO_64, x, _log_ends(u, result))


def tanh_f64(x):
    """Within 2.6 ulp: t / (t + 2) with t = expm1(-2 |x|)."""
    t = expm1_f64(-_TWO_64 * abs(x))
    return copysign(-t / (t + _TWO_64), x)


_F_64 = tuple(np.float64(v) for v in (
    0.12837916709551256, -0.3761263890318352, 0.11283791670944185, -0.026866170643111437,
    0.005223977606118152, -0.0008548325929298709, 0.00012055293576479509, -1.4924712295542136e-05,
    1.6447131515342132e-06, -1.6206313523845764e-07, 1.3710980222090875e-08, -7.779469679215317e-10))
_G_64 = tuple(np.float64(v) for v in (
    3.3844920895515536, 3.508800801779526, 0.8926403306148603, 0.025824140633514965,
    -0.006006746381062909, 0.0012572166901517014, -0.00021596336549348517, 2.2473684995757097e-05,
    2.647154771018086e-06, -2.371043757723728e-06, 8.180336006302203e-07, -1.9153253796057288e-07,
    2.7960593976000368e-08, -2.586104859529966e-10, -1.0008512846008425e-09, 2.2333950655792806e-10,
    -1.739836837139344e-11))
_ERF_ONE_64, _ERF_CENTRE = np.float64(5.95), np.float64(1.5)


def erf_f64(x):
    """Error function within 1.5 ulp: as ``erf_f32``, with the exponent's polynomial around 1.5."""
    a = abs(x)
    z = a * a
    u = select(a > _ERF_ONE_64, _ERF_ONE_64, a) - _ERF_CENTRE
    small, large = polynomial(z, _F_64) * a + a, _ONE_64 - exp_f64(-polynomial(u, _G_64))
    return copysign(select(a < _ONE_64, small, large), x)


def sin_f64(x):
    """Calls the C library. Does not vectorise."""
    return np.sin(x)


def cos_f64(x):
    """Calls the C library. Does not vectorise."""
    return np.cos(x)


def pow_f64(x, y):
    """Calls the C library, as np.power does of two scalars only where the text is compiled.

    Does not vectorise.
    """
    return x ** y
