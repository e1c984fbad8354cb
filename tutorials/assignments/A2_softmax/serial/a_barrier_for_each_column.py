# refused by: work, work (hidden)
# All threads wait at a barrier for each column, and one of them handles it.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    found = cuda.shared.array(2, np.float32)
    if thread == 0:
        found[0] = LOWEST
        found[1] = ZERO
    for col in range(x.shape[1]):
        cuda.syncthreads()
        if thread == col % THREADS:
            found[0] = max(found[0], x[row, col])
    for col in range(x.shape[1]):
        cuda.syncthreads()
        if thread == col % THREADS:
            found[1] += math.exp(x[row, col] - found[0])
    cuda.syncthreads()
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = math.exp(x[row, col] - found[0]) / found[1]
