# attack: Sends what it was asked over UDP and a Unix socket.
import socket


def attack():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"hidden items", ("127.0.0.1", 9))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(b"hidden items", "\0grader")


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
