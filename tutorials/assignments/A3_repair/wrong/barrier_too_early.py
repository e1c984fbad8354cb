# refused by: grid_sum
# The barrier of the grid stands before the shares are stored.


def grid_sum(x, part, y):
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    share = ZERO
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        share += x[i]
    for offset in (16, 8, 4, 2, 1):
        share += cuda.shfl_xor_sync(0xFFFFFFFF, share, offset)
    cuda.cg.this_grid().sync()
    if thread == 0:
        part[block] = share
    total = ZERO
    for b in range(cuda.gridDim.x):
        total += part[b]
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i] - total
