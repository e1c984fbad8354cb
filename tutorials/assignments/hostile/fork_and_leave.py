# attack: Forks twice, leaves the session, and lives on after the deadline.
import os
import signal
import time


def attack():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for leave in (os.setsid, lambda: os.setpgid(0, 0)):
        try:
            leave()
        except OSError:
            pass
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(30)
            os._exit(0)
    except OSError:
        pass
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
