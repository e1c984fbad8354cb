# refused by: order
# Reads a byte are divided as floats, in which two different fractions can be equal.


def give_up(wishes, limit):
    left, gone = dict(wishes), []
    while sum(size for size, _ in left.values()) > limit:
        name = min(left, key=lambda each: (left[each][1] / left[each][0], -left[each][0], each))
        gone.append(name)
        del left[name]
    return gone
