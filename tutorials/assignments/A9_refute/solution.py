"""A9: which laws of arithmetic a compiler may use on floating-point numbers.

Write the two functions. The handout says what they return.
Then answer the three questions that `python -m minisitch.course questions A9 --student NAME` prints.
"""

import numpy as np

PREDICTIONS = [None, None, None]


def refute(law):
    """Numbers for which a law is false: one for each of its letters, in the order x, y, z.

    `law` is one of the handout's twelve strings. Returns a list of floats, or an empty list if the
    law is true for all numbers.
    """
    # solution: refute
    # variant: float32
    large, twice_rounded = 2.0**24, 6.0
    # end variant
    # variant: float16
    large, twice_rounded = 2.0**11, 15.0
    # end variant
    found = {
        "x + 0 == x": [-0.0],
        "x - 0 == x": [],
        "x - x == 0": [np.inf],
        "x * 2 == x + x": [],
        "-(x - y) == y - x": [1.0, 1.0],
        "log(exp(x)) == x": [100.0],
        "x * 0 == 0": [-1.0],
        "x / 4 == x * 0.25": [],
        "(x + y) + z == x + (y + z)": [large, 1.0, 1.0],
        "1 / sqrt(x) == sqrt(1 / x)": [twice_rounded],
        "x + y == y + x": [],
        "(x if x > y else y) == (y if y > x else x)": [1.0, np.nan],
    }
    return found[law]
    # end solution


def divide(c):
    """A number for which the law x / c == x * (1 / c) is false.

    `c` is a float. Returns a list of one float, or an empty list if the law is true for all numbers.
    """
    # solution: divide
    # variant: float32
    kind = np.float32
    # end variant
    # variant: float16
    kind = np.float16
    # end variant
    divisor = kind(c)
    x = np.arange(1, 2001).astype(kind)
    false = x[x / divisor != x * (kind(1) / divisor)]
    return [float(false[0])] if false.size else []
    # end solution
