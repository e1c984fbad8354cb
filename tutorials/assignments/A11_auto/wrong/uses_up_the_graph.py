# refused by: again
# Takes operations out of the graph that it was given.


right = plan


def plan(ops, returned, price):
    kernels = right(ops, returned, price)
    for value in returned:
        ops[value] = ("map", ops[value][1][:1], 64)
    ops.pop(kernels[0][0])
    return kernels
