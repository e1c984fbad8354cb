# attack: Asks the grader's function for ever.
def spans(readers, cost):
    return {}


def grow(root, readers, spans, fits):
    while True:
        fits([root], root)
