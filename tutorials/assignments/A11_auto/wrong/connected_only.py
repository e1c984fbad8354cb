# refused by: close (hidden)
# Joins only kernels that pass a value: two that read the same array stay apart.


right = plan


def plan(ops, returned, price):
    def careful(kernel):
        edges = sum(one in kernel for value in kernel for one in set(ops[value][1]))
        return price(kernel) if edges >= len(kernel) - 1 else -1

    return right(ops, returned, careful)
