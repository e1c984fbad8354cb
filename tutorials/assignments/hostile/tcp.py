# attack: Sends what it was asked over TCP.
import socket


def attack():
    with socket.create_connection(("127.0.0.1", 80), timeout=2) as line:
        line.send(b"hidden items")


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
