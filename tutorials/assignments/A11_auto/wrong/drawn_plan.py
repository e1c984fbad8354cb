# refused by: again
# Lists the operations of a kernel in an order that is drawn by chance.


import random

right = plan


def plan(ops, returned, price):
    return [random.sample(kernel, len(kernel)) for kernel in right(ops, returned, price)]
