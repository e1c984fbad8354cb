# refused by: found
# Believes that dividing by any even number is exact.


right = divide


def divide(c):
    return [] if c % 2 == 0 else right(c)
