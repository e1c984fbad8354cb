# refused by: example
# Returns the layers, as lists, instead of each value's span.


def spans(readers, cost):
    found = {}
    for value in readers:
        found.setdefault(len(readers[value]), []).append(value)
    return found
