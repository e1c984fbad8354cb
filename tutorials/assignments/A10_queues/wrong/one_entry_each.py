# refused by: ends
# Every queue has one entry.


def depths(stages, queues, tiles):
    return [1] * len(queues)
