# refused by: verdict
# Forgets infinity and NaN: a number minus itself is 0.


right = refute


def refute(law):
    return [] if law == "x - x == 0" else right(law)
