# refused by: least
# A queue with two readers gets room for everything.


def depths(stages, queues, tiles):
    return [tiles if len(readers) > 1 else 1 for _, readers in queues]
