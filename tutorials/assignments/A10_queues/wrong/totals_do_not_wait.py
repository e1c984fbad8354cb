# refused by: ends, waiting values
# A stage does not wait for a total that it reads.


def depths(stages, queues, tiles):
    """A depth for each queue, such that the pipeline does not stop, and no depth could be one less.

    `stages` is a list of "tile" and "total", in the order of their data. `queues` is a list of pairs: the
    stage that writes, and the list of stages that read. Returns a list of integers, one for each queue.
    """

    def ends(depth):
        fired = [0] * len(stages)

        def entries(producer):
            return fired[producer] if stages[producer] == "tile" else fired[producer] // tiles

        def given_back(producer, consumer):
            return fired[consumer] if stages[producer] == "tile" else fired[consumer] // tiles

        def can_fire(stage):
            if fired[stage] == tiles:
                return False
            for producer, consumers in queues:
                if stage in consumers:
                    needed = fired[stage] + 1
                    if entries(producer) < (needed if stages[producer] == "tile" else 0):
                        return False
            if stages[stage] == "total" and fired[stage] < tiles - 1:
                return True
            return all(
                entries(stage) - min(given_back(stage, each) for each in consumers) < room
                for (producer, consumers), room in zip(queues, depth, strict=True)
                if producer == stage
            )

        while ready := [stage for stage in range(len(stages)) if can_fire(stage)]:
            fired[ready[-1]] += 1
        return min(fired) == tiles

    found = [tiles if stages[producer] == "tile" else 1 for producer, _ in queues]
    for place in range(len(found)):
        while found[place] > 1 and ends([*found[:place], found[place] - 1, *found[place + 1 :]]):
            found[place] -= 1
    return found
