# refused by: close
# A reduce shares its kernel with nothing, as in XLA.


right = plan


def plan(ops, returned, price):
    def careful(kernel):
        reduces = any(ops[value][0] == "reduce" for value in kernel)
        return -1 if reduces and len(kernel) > 1 else price(kernel)

    return right(ops, returned, careful)
