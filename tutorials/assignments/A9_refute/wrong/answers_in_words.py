# refused by: form
# Returns words, not a list of numbers.


right = refute


def refute(law):
    return "holds" if law == "x - 0 == x" else right(law)
