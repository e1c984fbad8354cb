# refused by: exact
# Refutes the division by a power of two as well, with a number that is much too large.


right = divide


def divide(c):
    return right(c) or [3.0e38]
