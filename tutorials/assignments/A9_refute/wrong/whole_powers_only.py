# refused by: exact
# Knows powers of two among whole positive numbers, and refutes all others.


right = divide


def divide(c):
    power = c >= 1 and c == int(c) and int(c) & int(c) - 1 == 0
    return [] if power else right(c) or [1.0]
