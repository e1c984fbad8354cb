# attack: Stops its own process, so that it does not see a deadline.
import os
import signal
import time


def attack():
    try:
        os.kill(os.getpid(), signal.SIGSTOP)
    except OSError:
        signal.raise_signal(signal.SIGSTOP)
    time.sleep(1000)


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
