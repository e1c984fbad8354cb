# refused by: histogram
# The first thread of each block counts for all.


def histogram(x, bins):
    thread = cuda.threadIdx.x
    mine = cuda.shared.array(8, np.int32)
    if thread < 8:
        mine[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.blockIdx.x, x.size if thread == 0 else 0, cuda.gridDim.x):
        mine[x[i]] += 1
    cuda.syncthreads()
    if thread < 8:
        cuda.atomic.add(bins, thread, mine[thread])
