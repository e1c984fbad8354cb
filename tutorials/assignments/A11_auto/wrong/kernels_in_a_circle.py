# refused by: legal
# Joins any two kernels that save something, and does not look whether two then wait for each other.


def plan(ops, returned, price):
    kernels = [[value] for value in sorted(ops) if ops[value][0] != "input"]
    for size in range(5, 1, -1):
        for one in list(kernels):
            for other in list(kernels):
                both = one + other
                free = one in kernels and other in kernels and one != other and len(both) <= size
                if free and 0 <= price(both) < price(one) + price(other):
                    kernels = [each for each in kernels if each not in (one, other)]
                    kernels.append(both)
    return kernels
