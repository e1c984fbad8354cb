# attack: Takes all the memory that it can get.
def attack():
    taken = []
    while True:
        taken.append(bytearray(64 << 20))


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
