# refused by: type
# Takes 1e40, which float32 does not have: it becomes infinity.


right = refute


def refute(law):
    return [1e40] if law == "log(exp(x)) == x" else right(law)
