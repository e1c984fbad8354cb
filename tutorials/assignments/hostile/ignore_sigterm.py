# attack: Ignores every signal that can be ignored, and computes for ever.
import signal


def attack():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
