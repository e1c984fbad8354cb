# refused by: legal
# The rule of the other variant: a kernel may have four arrays and any number of operations.


right = plan


def plan(ops, returned, price):
    kernels = right(ops, returned, price)
    for one in kernels:
        for other in kernels:
            both = one + other
            read = {each for value in both for each in ops[value][1]} - set(both)
            outside = {each for v in ops if v not in both for each in ops[v][1]}
            arrays = len(read) + len(set(both) & (outside | set(returned)))
            if one != other and arrays <= 4 and price(both) >= 0:
                return [each for each in kernels if each not in (one, other)] + [both]
    return kernels
