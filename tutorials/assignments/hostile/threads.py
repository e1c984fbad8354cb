# attack: Starts threads that answer in its place.
import os
import threading


def answer():
    for descriptor in range(3, 12):
        try:
            os.write(descriptor, b'{"id": 2, "value": {"dict": []}}\n')
        except OSError:
            pass


def attack():
    for _ in range(20):
        threading.Thread(target=answer, daemon=True).start()
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
