# refused by: no race
# Thread 0 waits until the tile is there, and the others do not wait for thread 0.


def relay(x, y, queue, counters):
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
            y[tile * TILE + thread] = queue[entry + 31 - thread]
            cuda.syncthreads()  # all have read
            if thread == 0:
                add_release(counters, READ + entry, 1)
