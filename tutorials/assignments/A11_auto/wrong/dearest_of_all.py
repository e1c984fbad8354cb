# refused by: saves
# Turns the sign around: of all plans it takes the one with the highest price.

right = plan


def plan(ops, returned, price):
    def turned(kernel):
        found = price(kernel)
        return found if found < 0 else 50_000 * len(kernel) - found

    return right(ops, returned, turned)
