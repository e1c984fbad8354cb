# refused by: false
# Takes a positive number: 5 * 0 is 0.0. A negative one gives -0.0.


right = refute


def refute(law):
    return [5.0] if law == "x * 0 == 0" else right(law)
