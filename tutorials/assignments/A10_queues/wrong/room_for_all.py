# refused by: least
# Every queue has room for all tiles.


def depths(stages, queues, tiles):
    return [tiles] * len(queues)
