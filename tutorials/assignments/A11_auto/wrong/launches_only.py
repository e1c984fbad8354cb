# refused by: close
# Counts launches: the fewest kernels are the best plan, whatever they move.


right = plan


def plan(ops, returned, price):
    return right(ops, returned, lambda kernel: -1 if price(kernel) < 0 else 1_000_000 - len(kernel))
