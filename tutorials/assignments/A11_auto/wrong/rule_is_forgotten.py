# refused by: legal
# Leaves this term's rule to the price, which does not know it.


right = plan


def plan(ops, returned, price):
    best, total = right(ops, returned, price), None
    everything = sorted(value for kernel in best for value in kernel)
    total = sum(map(price, best))
    return [everything] if price(everything) < total else best
