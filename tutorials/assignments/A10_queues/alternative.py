"""The depths from above by halving, queues from the last to the first. The relay by fences and atomic operations."""

PREDICTIONS = [None, None, None]


class Pipeline:
    def __init__(self, stages, queues, tiles):
        self.stages, self.queues, self.tiles = stages, queues, tiles

    def passes(self, stage, count):
        """How many entries a stage has published, or given back, after ``count`` firings."""
        return count if self.stages[stage] == "tile" else int(count == self.tiles)

    def works(self, depth):
        fired, moved = [0] * len(self.stages), True
        while moved:
            moved = False
            for stage in range(len(self.stages)):
                while fired[stage] < self.tiles and self.may(stage, fired, depth):
                    fired[stage] += 1
                    moved = True
        return sum(fired) == self.tiles * len(fired)

    def may(self, stage, fired, depth):
        at = fired[stage]
        for (producer, consumers), room in zip(self.queues, depth, strict=True):
            if stage in consumers:
                ready = self.passes(producer, fired[producer])
                # variant: alone
                last = at
                # end variant
                # variant: ahead
                last = min(at + 1, self.tiles - 1)
                # end variant
                if ready <= (last if self.stages[producer] == "tile" else 0):
                    return False
            if producer == stage and self.passes(stage, at + 1) > self.passes(stage, at):
                kept = self.passes(stage, at) - min(self.passes(stage, fired[each]) for each in consumers)
                if kept >= room:
                    return False
        return True


def depths(stages, queues, tiles):
    pipeline = Pipeline(stages, queues, tiles)
    depth = [tiles] * len(queues)
    for place in reversed(range(len(queues))):
        low, high = 1, tiles
        while low < high:
            middle = (low + high) // 2
            depth[place] = middle
            low, high = (low, middle) if pipeline.works(depth) else (middle + 1, high)
        depth[place] = low
    return depth


def relay(x, y, queue, counters):
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    if block == 0:
        for k in range(thread, 128, 32):
            counters[k] = 0
    cuda.cg.this_grid().sync()
    side = block // 2
    for tile in range(block % 2, x.size // 32, 2):
        entry, turn = tile % 2 * 32, tile // 2
        if thread == 0:
            if side == 0:
                while cuda.atomic.add(counters, 64 + entry, 0) < turn:
                    pass
            else:
                while cuda.atomic.add(counters, entry, 0) < turn + 1:
                    pass
            cuda.threadfence()
        cuda.syncthreads()
        if side == 0:
            once = x[tile * 32 + thread]
            queue[entry + thread] = once + once
        else:
            y[tile * 32 + thread] = queue[entry + 31 - thread]
        cuda.syncthreads()
        if thread == 0:
            cuda.threadfence()
            cuda.atomic.add(counters, entry if side == 0 else 64 + entry, 1)
