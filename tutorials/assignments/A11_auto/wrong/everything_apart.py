# refused by: half
# One kernel for each operation.


def plan(ops, returned, price):
    return [[value] for value in ops if ops[value][0] != "input"]
