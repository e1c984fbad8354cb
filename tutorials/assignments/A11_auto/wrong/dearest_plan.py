# refused by: close
# Joins the two kernels that save least.


def plan(ops, returned, price):
    kernels = [[value] for value in ops if ops[value][0] != "input"]
    while True:
        choices = []
        for one in kernels:
            for other in kernels:
                both = one + other
                rest = [each for each in kernels if each not in (one, other)]
                if one < other and len(both) <= 5 and price(both) >= 0 and runs(ops, [*rest, both]):
                    saved = price(one) + price(other) - price(both)
                    if saved > 0:
                        choices.append((saved, [*rest, both]))
        if not choices:
            return kernels
        _, kernels = min(choices)


def runs(ops, kernels):
    done, left = {value for value in ops if ops[value][0] == "input"}, list(kernels)
    while left:
        ready = [k for k in left if all(one in done or one in k for v in k for one in ops[v][1])]
        if not ready:
            return False
        for kernel in ready:
            done |= set(kernel)
            left.remove(kernel)
    return True
