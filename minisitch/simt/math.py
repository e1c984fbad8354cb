"""Device functions that emitted CUDA text calls and that the ``math`` module lacks.

In:  scalars. Out: scalars of the first operand's type, with NumPy's values.

Each function is plain Python. Numba CUDA compiles it as a device function, and ``simt`` runs it as
it is. For both to work, the functions keep to three rules. No function calls another one: callers
wrap each by itself. A result is made with ``type(x)(...)``, which needs no dtype's name. There are
no float literals, since Numba would compute with them in float64. Signed integers that may overflow
are multiplied as ``np.uint64``, which wraps.

Each docstring names the NumPy function with the same values. Tests compare the two on all special
values. Outside ``simt``, NumPy scalars warn when an integer wraps, with the same results.
"""

import math

import numpy as np

# ---------------------------------------------------------------- choosing, float


def maximum(a, b):
    """np.maximum: the larger. nan if either is nan."""
    return a if a >= b or a != a else b


def minimum(a, b):
    """np.minimum: the smaller. nan if either is nan."""
    return a if a <= b or a != a else b


def fmax(a, b):
    """np.fmax: the larger. nan only if both are nan."""
    return a if a >= b or b != b else b


def fmin(a, b):
    """np.fmin: the smaller. nan only if both are nan."""
    return a if a <= b or b != b else b


def isinf(x):
    """np.isinf."""
    return math.isinf(x)


def isfinite(x):
    """np.isfinite."""
    return not (math.isinf(x) or x != x)


def sign(x):
    """np.sign, of floats and integers: -1, 0 or 1. nan of nan."""
    if x > 0:
        return type(x)(1)
    if x < 0:
        return type(x)(-1)
    return type(x)(x - x)  # a zero without its sign, or nan


# ---------------------------------------------------------------- rounding, float
# math.floor gives an int in Python and a float on the device. type(x) makes them agree. The int
# loses the sign of a zero, and copysign puts it back.


def floor(x):
    """np.floor."""
    if math.isinf(x) or x != x:
        return x
    return type(x)(math.copysign(type(x)(math.floor(x)), x))


def ceil(x):
    """np.ceil."""
    if math.isinf(x) or x != x:
        return x
    return type(x)(math.copysign(type(x)(math.ceil(x)), x))


def trunc(x):
    """np.trunc."""
    if math.isinf(x) or x != x:
        return x
    return type(x)(math.copysign(type(x)(math.floor(abs(x))), x))


def rint(x):
    """np.rint: to the nearest whole number, halves to the even one."""
    if math.isinf(x) or x != x:
        return x
    size = abs(x)
    whole = type(x)(math.floor(size))
    # exact: size - whole is a fraction in size's own digits
    twice = (size - whole) + (size - whole)
    if twice > 1 or (twice == 1 and math.fmod(whole, type(x)(2)) == 1):
        whole = whole + type(x)(1)
    return type(x)(math.copysign(whole, x))


# ---------------------------------------------------------------- division


def mod(a, b):
    """np.remainder of floats: the remainder has the sign of ``b``."""
    if b == 0 or math.isinf(a):
        return (a - a) / (b - b)  # nan, of the right type
    rest = type(a)(math.fmod(a, b))
    if rest == 0:
        return type(a)(math.copysign(rest, b))
    if (rest < 0) != (b < 0):
        rest = rest + b
    return rest


def floor_divide(a, b):
    """np.floor_divide of floats: exact also where ``floor(a / b)`` would be one too large."""
    if b == 0 or math.isinf(a):
        return a / b if b == 0 else (a - a) / (b - b)
    rest = type(a)(math.fmod(a, b))
    quotient = (a - rest) / b
    if rest != 0 and (rest < 0) != (b < 0):
        quotient = quotient - type(a)(1)
    if quotient == 0:
        return type(a)(math.copysign(quotient, a / b))
    if math.isinf(quotient) or quotient != quotient:
        return quotient
    whole = type(a)(math.floor(quotient))
    if quotient - whole + quotient - whole > 1:
        whole = whole + type(a)(1)
    return whole


def floor_divide_int(a, b):
    """np.floor_divide of integers. 0 where ``b`` is 0."""
    if b == 0:
        return type(a)(0)
    if b == -1:
        # the lowest integer over -1 wraps to itself; the device's division need not
        return type(a)(-a)
    return type(a)(a // b)


def mod_int(a, b):
    """np.remainder of integers: the sign of ``b``. 0 where ``b`` is 0."""
    if b == 0 or b == -1:
        return type(a)(0)
    return type(a)(a % b)


def fmod_int(a, b):
    """np.fmod of integers: the sign of ``a``. 0 where ``b`` is 0."""
    if b == 0 or b == -1:
        return type(a)(0)
    rest = a % b
    if rest != 0 and (a < 0) != (b < 0):
        rest = rest - b
    return type(a)(rest)


# ---------------------------------------------------------------- integers


def power_int(a, n):
    """np.power of integers, wrapping. 1 if ``n`` is negative, which NumPy refuses."""
    result, base, left = type(a)(1), a, n
    while left > 0:
        if left & 1:
            # signed overflow would be undefined
            result = type(a)(np.uint64(result) * np.uint64(base))
        base = type(a)(np.uint64(base) * np.uint64(base))
        left = left >> 1
    return result


# A shift by the width of an integer or more is undefined in C. The device shifts in 64 bits, so up
# to 64 the plain shift gives NumPy's value.


def shift_left(a, n):
    """np.left_shift: 0 when all bits leave."""
    if n < 0 or n >= 64:
        return type(a)(0)
    return type(a)(a << n)


def shift_right(a, n):
    """np.right_shift: 0, or -1 of a negative number, when all bits leave."""
    if n < 0 or n >= 64:
        return type(a)(-1) if a < 0 else type(a)(0)
    return type(a)(a >> n)


def kahan_add(total, lost, value):
    """Compensated summation (Kahan 1965): the new total, and what rounding took from it.

    ``lost`` is what rounding took from the old total. It is 0 for a total that is infinite or nan.
    """
    value = value - lost
    new = total + value
    lost = (new - total) - value
    return new, (lost if lost - lost == 0 else type(value)(0))


DEVICE_FUNCTIONS = {function.__name__: function for function in (
    maximum, minimum, fmax, fmin, isinf, isfinite, sign, floor, ceil, trunc, rint, mod, floor_divide,
    floor_divide_int, mod_int, fmod_int, power_int, shift_left, shift_right, kahan_add)}
