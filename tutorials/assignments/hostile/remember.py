# attack: Remembers the arguments, and answers later questions with earlier ones.
seen = []


def spans(readers, cost):
    seen.append(readers)
    return seen[0]


def grow(root, readers, spans, fits):
    seen.append(root)
    return seen[0], seen[0]
