# attack: Closes every file, the answer pipe too.
import os


def attack():
    os.closerange(0, 64)
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
