# refused by: order
# The largest goes first; reads are ignored.


def give_up(wishes, limit):
    left = sum(size for size, _ in wishes.values())
    gone = []
    for name in sorted(wishes, key=lambda each: (-wishes[each][0], each)):
        if left <= limit:
            break
        gone.append(name)
        left -= wishes[name][0]
    return gone
