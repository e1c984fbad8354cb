# attack: Copies the grader's memory with process_vm_readv, and attaches to it with ptrace.
import ctypes
import os

library = ctypes.CDLL(None, use_errno=True)


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def attack():
    parent = os.getppid()
    attached = library.ptrace(16, parent, None, None)
    mine = ctypes.create_string_buffer(4096)
    here, there = Part(ctypes.addressof(mine), 4096), Part(0x400000, 4096)
    copied = library.process_vm_readv(parent, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if attached == 0 or copied > 0:
        raise SystemError("got in")
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
