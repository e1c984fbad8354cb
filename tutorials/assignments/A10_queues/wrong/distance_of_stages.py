# refused by: ends
# The depth is the number of stages that a queue passes.


def depths(stages, queues, tiles):
    return [max(1, min(tiles, max(readers) - writer)) for writer, readers in queues]
