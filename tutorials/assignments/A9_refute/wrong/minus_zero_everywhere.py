# refused by: false
# Takes -0.0 to refute x - 0 as well, which leaves it alone.


right = refute


def refute(law):
    return [-0.0] if law == "x - 0 == x" else right(law)
