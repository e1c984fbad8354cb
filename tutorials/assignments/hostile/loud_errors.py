# attack: Raises errors of a megabyte, with half letters and with commands for a terminal.
class Loud(Exception):
    def __str__(self):
        return "\ud800\x1b[2J\x1b]0;score: 15\x07\0" * 100_000


def spans(readers, cost):
    raise Loud


def grow(root, readers, spans, fits):
    fits([root], "\ud800" * 100_000)
    return [root], []
