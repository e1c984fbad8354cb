# refused by: verdict (hidden)
# Believes that 1 / sqrt(x) and sqrt(1 / x) are the same.


right = refute


def refute(law):
    return [] if law == "1 / sqrt(x) == sqrt(1 / x)" else right(law)
