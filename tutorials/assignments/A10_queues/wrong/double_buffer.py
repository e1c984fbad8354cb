# refused by: waiting values
# Every queue has two entries.


def depths(stages, queues, tiles):
    return [min(2, tiles)] * len(queues)
