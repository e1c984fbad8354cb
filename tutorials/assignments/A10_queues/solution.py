"""A10: how deep queues between stages must be, and a kernel that hands tiles over through one.

Write the function `depths` and the kernel `relay`. The handout says what they do. The kernel is text for the
stepper: Python never calls it.
Then answer the three questions that `python -m minisitch.course questions A10 --student NAME` prints.
"""

import numpy as np

PREDICTIONS = [None, None, None]


def depths(stages, queues, tiles):
    """A depth for each queue, such that the pipeline does not stop, and no depth could be one less.

    `stages` is a list of "tile" and "total", in the order of their data. `queues` is a list of pairs: the
    stage that writes, and the list of stages that read. Returns a list of integers, one for each queue.
    """

    # solution: depths
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
                    # variant: alone
                    needed = fired[stage] + 1
                    # end variant
                    # variant: ahead
                    needed = min(fired[stage] + 2, tiles)
                    # end variant
                    if entries(producer) < (needed if stages[producer] == "tile" else 1):
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
    # end solution


TILE = 32
DEPTH = 2  # entries of the queue
WRITTEN = 0  # where the counters of written tiles begin, one for each entry, 32 apart
READ = 64  # and those of read tiles
TWO = np.float32(2)


# Blocks 0 and 1 write tiles of 2 * x into the queue. Blocks 2 and 3 read them, and write them backwards to y.
def relay(x, y, queue, counters):
    # solution: relay
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    tiles = x.size // TILE
    for k in range(block * TILE + thread, 2 * READ, 4 * TILE):
        counters[k] = 0
    cuda.cg.this_grid().sync()  # every counter is zero
    if block < 2:
        for tile in range(block, tiles, 2):
            entry = tile % DEPTH * TILE
            if thread == 0:
                while load_acquire(counters, READ + entry) < tile // DEPTH:
                    pass
            cuda.syncthreads()  # all may write
            queue[entry + thread] = x[tile * TILE + thread] * TWO
            cuda.syncthreads()  # all have written
            if thread == 0:
                add_release(counters, WRITTEN + entry, 1)
    else:
        for tile in range(block - 2, tiles, 2):
            entry = tile % DEPTH * TILE
            if thread == 0:
                while load_acquire(counters, WRITTEN + entry) <= tile // DEPTH:
                    pass
            cuda.syncthreads()  # all may read
            y[tile * TILE + thread] = queue[entry + 31 - thread]
            cuda.syncthreads()  # all have read
            if thread == 0:
                add_release(counters, READ + entry, 1)
    # end solution
