# refused by: type
# Takes 0.1, which is a float64 and no float32.


right = refute


def refute(law):
    return [0.1, 0.2, 0.3] if law == "(x + y) + z == x + (y + z)" else right(law)
