# refused by: histogram
# The block's own counts are still added without an atomic operation.


def histogram(x, bins):
    thread = cuda.threadIdx.x
    mine = cuda.shared.array(8, np.int32)
    if thread < 8:
        mine[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine[x[i]] = mine[x[i]] + 1
    cuda.syncthreads()
    if thread < 8:
        cuda.atomic.add(bins, thread, mine[thread])
