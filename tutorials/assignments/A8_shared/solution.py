"""A8: which bytes of shared memory a buffer gets, and which buffers give up their place.

Write the two functions. The handout says what they return.
Then answer the three questions that `python -m minisitch.course questions A8 --student NAME` prints.
"""

from fractions import Fraction

PREDICTIONS = [None, None, None]


def share(buffers, slot):
    """An offset for every buffer, such that no two that are live together overlap.

    `buffers` is a dict: each buffer, and a tuple (bytes, first, last) of its size and the phases of its life.
    Offsets are multiples of `slot`. Returns a pair: a dict from buffer to offset, and the bytes needed in all.
    """
    # solution: share
    offsets = {}
    for name in sorted(buffers, key=lambda each: (-buffers[each][0], buffers[each][1], each)):
        size, first, last = buffers[name]
        blocked = []
        for other, offset in offsets.items():
            nbytes, begins, ends = buffers[other]
            # variant: exclusive
            together = first <= ends and begins <= last
            # end variant
            # variant: handover
            together = first < ends and begins < last
            # end variant
            if together:
                blocked.append((offset, offset + nbytes))
        place = 0
        for low, high in sorted(blocked):
            if place + size <= low:
                break
            place = max(place, -(-high // slot) * slot)
        offsets[name] = place
    return offsets, max((offsets[each] + buffers[each][0] for each in buffers), default=0)
    # end solution


def give_up(wishes, limit):
    """The buffers that go to global memory, so that the others fit into `limit` bytes together.

    `wishes` is a dict: each buffer, and a tuple (bytes, reads). The buffer with the fewest reads a byte goes
    first; of equal ones the larger, then the smaller number. Returns a list in that order.
    """
    # solution: give_up
    left = sum(size for size, _ in wishes.values())
    gone = []
    for name in sorted(
        wishes,
        key=lambda each: (Fraction(wishes[each][1], wishes[each][0]), -wishes[each][0], each),
    ):
        if left <= limit:
            break
        gone.append(name)
        left -= wishes[name][0]
    return gone
    # end solution
