# attack: Never answers.
import time


def attack():
    while True:
        time.sleep(1000)


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
