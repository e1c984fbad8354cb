# refused by: grid_sum
# Every block adds up all of x for itself, so that it needs nobody's share.


def grid_sum(x, part, y):
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    share = ZERO
    for i in range(thread, x.size, 32):
        share += x[i]
    for offset in (16, 8, 4, 2, 1):
        share += cuda.shfl_xor_sync(0xFFFFFFFF, share, offset)
    if thread == 0:
        part[block] = share
    total = share
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i] - total
