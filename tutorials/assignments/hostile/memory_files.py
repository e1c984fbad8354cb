# attack: Hides work and memory in files that have no name, and runs one of them.
import ctypes
import os

library = ctypes.CDLL(None, use_errno=True)


def attack():
    opened = []
    try:
        while True:
            opened.append(os.memfd_create("minisitch-attack"))
            os.write(opened[-1], b"#!/bin/sh\ntouch /tmp/minisitch-attack\n" + b"x" * (1 << 20))
    except OSError:
        pass
    try:
        os.execv(f"/proc/self/fd/{opened[0]}", ["x"])
    except OSError:
        pass
    library.syscall(322, opened[0], b"", None, None, 0x1000)
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
