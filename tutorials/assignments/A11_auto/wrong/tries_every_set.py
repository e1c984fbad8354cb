# refused by: questions
# Asks for the price of every set of operations.


right = plan


def plan(ops, returned, price):
    work = [value for value in ops if ops[value][0] != "input"]
    for choice in range(1, 1 << min(12, len(work))):
        price([value for at, value in enumerate(work) if choice >> at & 1])
    return right(ops, returned, price)
