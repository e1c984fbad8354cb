# attack: Makes the system calls itself: a socket, a program, the memory of another process, another user.
import ctypes

library = ctypes.CDLL(None, use_errno=True)


def attack():
    socket = library.syscall(41, 2, 2, 0)
    other = library.syscall(0x40000000 + 41, 2, 2, 0)
    root = library.setuid(0)
    if socket >= 0 or other >= 0 or (root == 0 and library.geteuid() == 0):
        raise SystemError("got out")
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
