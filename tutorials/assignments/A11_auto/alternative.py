"""A11 another way: a small program is planned exactly, kernel after kernel; a large one by joining, then by moving."""

PREDICTIONS = [None, None, None]
SMALL = 8


def plan(ops, returned, price):
    work = in_order(ops)
    known = {}

    def time(kernel):
        key = tuple(sorted(kernel))
        if key not in known:
            known[key] = price(list(key)) if fits(ops, returned, key) else -1
        return known[key]

    return (
        exact(ops, work, time) if len(work) <= SMALL else moved(ops, joined(ops, work, time), time)
    )


def in_order(ops):
    left, found = dict(ops), []
    while left:
        ready = [value for value in left if not any(one in left for one in left[value][1])]
        found += [value for value in ready if ops[value][0] != "input"]
        for value in ready:
            del left[value]
    return found


def fits(ops, returned, kernel):
    # variant: five
    return len(kernel) <= 5
    # end variant
    # variant: arrays
    arrays = {one for value in kernel for one in ops[value][1] if one not in kernel}
    for value, (_, operands, _) in ops.items():
        if value not in kernel:
            arrays |= set(operands) & set(kernel)
    return len(arrays | set(returned) & set(kernel)) <= 4
    # end variant


def exact(ops, work, time):
    """The cheapest way to every set of operations that may be done first."""
    cheapest = {frozenset(): (0, [])}
    for count in range(len(work)):
        for done in [each for each in cheapest if len(each) == count]:
            total, kernels = cheapest[done]
            for kernel in ready_sets(ops, work, done):
                if time(kernel) >= 0:
                    new = total + time(kernel), [*kernels, sorted(kernel)]
                    then = done | kernel
                    if then not in cheapest or new < cheapest[then]:
                        cheapest[then] = new
    return cheapest[frozenset(work)][1]


def ready_sets(ops, work, done):
    found = [frozenset()]
    for value in work:
        if value not in done:
            makers = {one for one in ops[value][1] if ops[one][0] != "input"}
            found += [each | {value} for each in found if makers <= each | done]
    return found[1:]


def joined(ops, work, time):
    kernels = [[value] for value in work]
    while True:
        choices = []
        for one in kernels:
            for other in kernels:
                both = sorted(one + other)
                if one is not other and time(both) >= 0:
                    saved = time(one) + time(other) - time(both)
                    choices.append((-saved, sorted([one, other])))
        for saved, (one, other) in sorted(choices):
            rest = [each for each in kernels if each not in (one, other)]
            if saved < 0 and can_run(ops, [*rest, one + other]):
                kernels = [*rest, sorted(one + other)]
                break
        else:
            return kernels


def moved(ops, kernels, time):
    """Move one operation to another kernel, or to one of its own, as long as that saves something."""
    for value in [value for kernel in kernels for value in kernel]:
        home = next(kernel for kernel in kernels if value in kernel)
        left = [one for one in home if one != value]
        for other in [*(kernel for kernel in kernels if kernel is not home), []]:
            new = [each for each in (left, sorted([*other, value])) if each]
            rest = [each for each in kernels if each is not home and each is not other]
            before = time(home) + (time(other) if other else 0)
            legal = all(time(each) >= 0 for each in new)
            if legal and sum(map(time, new)) < before and can_run(ops, [*rest, *new]):
                return moved(ops, [*rest, *new], time)
    return kernels


def can_run(ops, kernels):
    done, left = {value for value in ops if ops[value][0] == "input"}, list(kernels)
    while left:
        ready = [
            kernel
            for kernel in left
            if all(one in done or one in kernel for v in kernel for one in ops[v][1])
        ]
        if not ready:
            return False
        for kernel in ready:
            done |= set(kernel)
            left.remove(kernel)
    return True
