# refused by: legal
# Inputs are put into kernels as well.


right = plan


def plan(ops, returned, price):
    return right(ops, returned, price) + [[value] for value in ops if ops[value][0] == "input"]
