# refused by: legal
# An operation with two readers is computed in the kernels of both.


right = plan


def plan(ops, returned, price):
    kernels = right(ops, returned, price)
    for kernel in kernels:
        for member in list(kernel):
            for maker in ops[member][1]:
                if ops[maker][0] == "map" and maker not in kernel and len(kernel) < 5:
                    kernel.append(maker)
    return kernels
