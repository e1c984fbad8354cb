# attack: Calls the grader's function with what it cannot take.
def spans(readers, cost):
    return {}


def grow(root, readers, spans, fits):
    for arguments in ((), (1, 2, 3), ({}, []), ([], {}), ("x" * 10**6, None)):
        try:
            fits(*arguments)
        except Exception:
            pass
    return [], []
