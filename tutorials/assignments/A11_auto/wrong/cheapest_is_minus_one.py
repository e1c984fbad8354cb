# refused by: legal
# Takes the price -1 for a very cheap kernel.


right = plan


def plan(ops, returned, price):
    work = [value for value in ops if ops[value][0] != "input"]
    pairs = [[one, other] for one in work for other in work if one < other]
    pair = min(pairs, key=price, default=[])
    if not pair or price(pair) >= 0:
        return right(ops, returned, price)
    return [pair] + [[value] for value in work if value not in pair]
