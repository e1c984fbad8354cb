"""A11: a plan of kernels that is cheaper than the compiler's.

Write the function. The handout says what it returns.
Then answer the three questions that `python -m minisitch.course questions A11 --student NAME` prints.
"""

PREDICTIONS = [None, None, None]


def plan(ops, returned, price):
    """The kernels of a program: lists of the operations that share one.

    `ops` is a dict: each operation's number, and a tuple (kind, operands, size). `returned` is a list of numbers.
    `price(kernel)` is the time of a kernel, an int, or -1 if it cannot be built. A kernel is a list of numbers.
    Returns a list of kernels.
    """
    # solution: plan
    width, work = 6, [value for value, (kind, _, _) in ops.items() if kind != "input"]
    prices = {}

    def time(kernel):
        if kernel not in prices:
            # variant: five
            fits = len(kernel) <= 5
            # end variant
            # variant: arrays
            read = {one for value in kernel for one in ops[value][1]} - kernel
            outside = {one for value in work if value not in kernel for one in ops[value][1]}
            fits = len(read) + len(kernel & (outside | set(returned))) <= 4
            # end variant
            prices[kernel] = price(sorted(kernel)) if fits else -1
        return prices[kernel]

    def can_run(kernels):
        place = {value: kernel for kernel in kernels for value in kernel}
        left = {
            kernel: {place[one] for value in kernel for one in ops[value][1] if one in place}
            - {kernel}
            for kernel in kernels
        }
        while ready := [kernel for kernel, waits in left.items() if not waits & left.keys()]:
            for kernel in ready:
                del left[kernel]
        return not left

    start = frozenset(frozenset([value]) for value in work)
    best, least = start, sum(map(time, start))
    plans = {start: least}
    while plans:
        longer = {}
        for kernels, total in plans.items():
            ordered = sorted(kernels, key=sorted)
            for at, one in enumerate(ordered):
                for other in ordered[at + 1 :]:
                    both = one | other
                    joined = kernels - {one, other} | {both}
                    if joined not in longer and time(both) >= 0:
                        longer[joined] = total - time(one) - time(other) + time(both)
        plans = {}
        for kernels in sorted(longer, key=lambda each: (longer[each], sorted(map(sorted, each)))):
            if len(plans) < width and can_run(kernels):
                plans[kernels] = longer[kernels]
                if longer[kernels] < least:
                    best, least = kernels, longer[kernels]
    return [sorted(kernel) for kernel in best]
    # end solution
