# refused by: close
# A kernel has two operations at most.


right = plan


def plan(ops, returned, price):
    return right(ops, returned, lambda kernel: price(kernel) if len(kernel) < 3 else -1)
