# refused by: questions
# Remembers no price, and asks ten times.


right = plan


def plan(ops, returned, price):
    return right(ops, returned, lambda kernel: max(price(kernel) for _ in range(10)))
