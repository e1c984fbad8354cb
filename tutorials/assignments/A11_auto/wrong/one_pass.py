# refused by: beats auto
# The plan of auto itself: each operation joins the kernel of an operand where that saves most.


def plan(ops, returned, price):
    left, work = dict(ops), []
    while left:
        ready = [value for value in left if not any(one in left for one in left[value][1])]
        work += [value for value in ready if ops[value][0] != "input"]
        for value in ready:
            del left[value]
    kernels = []
    for value in work:
        best, home = 0, None
        for kernel in kernels:
            near = set(kernel) & set(ops[value][1])
            last = not any(
                set(kernel) & set(ops[one][1]) for one in work if one not in kernel and one != value
            )
            joined = price([*kernel, value])
            saved = price(kernel) + price([value]) - joined
            if near and last and len(kernel) < 5 and joined >= 0 and saved > best:
                best, home = saved, kernel
        if home is None:
            kernels.append([value])
        else:
            home.append(value)
    return kernels
