# refused by: order
# Reads a byte are divided as whole numbers, so nearly all are 0.


def give_up(wishes, limit):
    left = sum(size for size, _ in wishes.values())
    gone = []
    for name in sorted(
        wishes, key=lambda each: (wishes[each][1] // wishes[each][0], -wishes[each][0], each)
    ):
        if left <= limit:
            break
        gone.append(name)
        left -= wishes[name][0]
    return gone
