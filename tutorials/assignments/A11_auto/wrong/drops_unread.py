# refused by: legal
# Leaves out operations that nobody reads, though the program returns them.


right = plan


def plan(ops, returned, price):
    kernels = right(ops, returned, price)
    kept = [[value for value in kernel if value not in returned] for kernel in kernels]
    return [kernel for kernel in kept if kernel]
