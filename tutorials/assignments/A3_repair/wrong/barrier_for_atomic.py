# refused by: histogram
# A barrier in a loop that some threads go round once less, and two threads may still add to one cell.


def histogram(x, bins):
    thread = cuda.threadIdx.x
    mine = cuda.shared.array(8, np.int32)
    if thread < 8:
        mine[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine[x[i]] += 1
        cuda.syncthreads()
    cuda.syncthreads()
    if thread < 8:
        cuda.atomic.add(bins, thread, mine[thread])
