# attack: Returns a list of 100,000 numbers, which takes the judge minutes to compare with itself.
def spans(readers, cost):
    return {}


def grow(root, readers, spans, fits):
    return [root, *range(100_000)], []
