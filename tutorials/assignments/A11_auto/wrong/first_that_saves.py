# refused by: close
# Joins the first two kernels that save something, not the two that save most.


right = plan


def plan(ops, returned, price):
    kernels = [[value] for value in ops if ops[value][0] != "input"]
    joined = True
    while joined:
        joined = False
        for one in kernels:
            for other in kernels:
                both = one + other
                if one == other or len(both) > 5 or price(both) < 0:
                    continue
                rest = [each for each in kernels if each not in (one, other)]
                if price(both) < price(one) + price(other) and runs(ops, [*rest, both]):
                    kernels, joined = [*rest, both], True
                    break
            if joined:
                break
    return kernels


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
