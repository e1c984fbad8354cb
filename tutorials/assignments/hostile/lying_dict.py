# attack: Returns a dict whose methods lie.
class Lying(dict):
    def __eq__(self, other):
        return True

    def __missing__(self, key):
        return 0

    def get(self, key, default=None):
        return 10**9

    def keys(self):
        return {*range(100)}


def attack():
    return Lying()


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
