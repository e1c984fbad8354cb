# refused by: good kernels, block barrier
# Only what one thread does is ordered.


def ordered(before, after):
    return before["block"] == after["block"] and before["thread"] == after["thread"]
