# refused by: by the queue
# The readers read x themselves.


def relay(x, y, queue, counters):
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    for tile in range(block, x.size // TILE, 4):
        y[tile * TILE + thread] = x[tile * TILE + 31 - thread] * TWO
