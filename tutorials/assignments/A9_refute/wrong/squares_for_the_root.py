# refused by: false
# Takes a square: its root is exact, so both sides agree.


right = refute


def refute(law):
    return [16.0] if law == "1 / sqrt(x) == sqrt(1 / x)" else right(law)
