# refused by: fits
# Gives up one buffer and looks no further.


def give_up(wishes, limit):
    left = sum(size for size, _ in wishes.values())
    gone = []
    for name in sorted(
        wishes,
        key=lambda each: (Fraction(wishes[each][1], wishes[each][0]), -wishes[each][0], each),
    ):
        if gone or left <= limit:
            break
        gone.append(name)
        left -= wishes[name][0]
    return gone
