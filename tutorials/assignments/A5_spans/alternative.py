"""A5 another way: spans by visiting values again until nothing changes, growth by sorting all producers once."""

import heapq

PREDICTIONS = [None, None, None]


def spans(readers, cost):
    found = {value: 0 for value in readers}
    sources = {}
    for value, users in readers.items():
        for user in users:
            sources.setdefault(user, set()).add(value)
    done, open_readers = [], {value: set(users) for value, users in readers.items()}
    layer = {value for value in readers if not readers[value]}
    while layer:
        following = set()
        for value in layer:
            done.append(value)
            for source in sources.get(value, ()):
                # variant: reader
                found[source] = max(found[source], found[value] + cost[value])
                # end variant
                # variant: own
                found[source] = max(found[source], found[value] + cost[source])
                # end variant
                open_readers[source].discard(value)
                if not open_readers[source]:
                    following.add(source)
        layer = following
    return found


def grow(root, readers, spans, fits):
    taken, given_up = [root], []
    members, queued = {root}, set()
    heap = []

    def push_producers(value):
        for producer, users in readers.items():
            if value in users and producer not in queued:
                queued.add(producer)
                heapq.heappush(heap, (spans[producer], producer))

    push_producers(root)
    while heap:
        _, producer = heapq.heappop(heap)
        if any(spans[user] > spans[root] for user in set(readers[producer]) - members):
            given_up.append(producer)
        elif fits(list(taken), producer):
            taken.append(producer)
            members.add(producer)
            push_producers(producer)
        else:
            given_up.append(producer)
    return taken, given_up
