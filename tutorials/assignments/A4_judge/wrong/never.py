# refused by: good kernels, no barrier
# Nothing is ordered.


def ordered(before, after):
    return False
