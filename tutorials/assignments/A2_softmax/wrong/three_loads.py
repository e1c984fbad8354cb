# refused by: loads
# Nothing is kept: every number is loaded three times.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(THREADS, np.float32)
    top = LOWEST
    for col in range(thread, x.shape[1], THREADS):
        top = max(top, x[row, col])
    part[thread] = top
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            part[thread] = max(part[thread], part[thread + step])
        cuda.syncthreads()
        step //= 2
    top = part[0]
    cuda.syncthreads()
    total = ZERO
    for col in range(thread, x.shape[1], THREADS):
        total += math.exp(x[row, col] - top)
    part[thread] = total
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            part[thread] += part[thread + step]
        cuda.syncthreads()
        step //= 2
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = math.exp(x[row, col] - top) / part[0]
