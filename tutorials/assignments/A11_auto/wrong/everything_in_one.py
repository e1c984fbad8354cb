# refused by: legal
# One kernel for the whole program, whatever this term's rule says.


def plan(ops, returned, price):
    return [[value for value in ops if ops[value][0] != "input"]]
