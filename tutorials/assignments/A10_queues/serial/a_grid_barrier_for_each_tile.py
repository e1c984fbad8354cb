# refused by: by the queue, by the queue (hidden)
# Grid barriers in place of counters: all blocks wait while a tile is written, and again while it is read.


def relay(x, y, queue, counters):
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    tiles = x.size // TILE
    for first in range(0, tiles, 2):
        tile = first + block % 2
        entry = tile % DEPTH * TILE
        if block < 2 and tile < tiles:
            queue[entry + thread] = x[tile * TILE + thread] * TWO
        cuda.cg.this_grid().sync()
        if block >= 2 and tile < tiles:
            y[tile * TILE + thread] = queue[entry + 31 - thread]
        cuda.cg.this_grid().sync()
