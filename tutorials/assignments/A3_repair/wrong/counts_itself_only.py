# refused by: histogram
# Where numbers are equal, one of them is counted.


def histogram(x, bins):
    thread = cuda.threadIdx.x
    mine = cuda.shared.array(8, np.int32)
    if thread < 8:
        mine[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.max(mine, x[i], 1)
    cuda.syncthreads()
    if thread < 8:
        cuda.atomic.add(bins, thread, mine[thread])
