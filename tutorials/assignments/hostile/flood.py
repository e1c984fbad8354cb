# attack: Sends a million answers to one question.
import os

LINE = b'{"id": 2, "value": {"dict": []}}\n'


def attack():
    for _ in range(1000):
        for descriptor in range(3, 12):
            try:
                os.write(descriptor, LINE * 1000)
            except OSError:
                pass


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
