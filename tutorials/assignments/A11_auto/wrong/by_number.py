# refused by: numbers
# Joins what has neighbouring numbers, as if numbers said something about the order.

right = plan


def plan(ops, returned, price):
    def careful(kernel):
        near = all(later - one < 9 for one, later in zip(kernel, kernel[1:], strict=False))
        return price(kernel) if near else -1

    return right(ops, returned, careful)
