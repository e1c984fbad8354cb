# attack: Crashes the interpreter.
import ctypes


def attack():
    return ctypes.string_at(0)


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
