# refused by: racy kernels
# Everything is ordered.


def ordered(before, after):
    return True
