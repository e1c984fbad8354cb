# refused by: hangs together
# The other variant's direction: patterns that end at the vertex.


right = best_patterns


def best_patterns(consumers, gain, k):
    count = len(consumers)
    turned = [
        [count - 1 - one for one in range(count) if count - 1 - vertex in consumers[one]]
        for vertex in range(count)
    ]

    def turn(pattern):
        return sorted(count - 1 - vertex for vertex in pattern)

    found = right(turned, lambda pattern: gain(turn(pattern)), k)
    return [[turn(pattern) for pattern in found[count - 1 - vertex]] for vertex in range(count)]
