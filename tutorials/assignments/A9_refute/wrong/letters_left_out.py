# refused by: form
# Gives one number for a law with two letters.


right = refute


def refute(law):
    return [1.0] if law == "-(x - y) == y - x" else right(law)
