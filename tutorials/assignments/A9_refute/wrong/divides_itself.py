# refused by: division
# Takes c itself: c / c is 1, and c * (1 / c) mostly rounds to 1 too.


right = divide


def divide(c):
    return [c] if right(c) else []
