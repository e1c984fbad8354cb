# refused by: work, work (hidden)
# Lane after lane adds its part to what it gets from the one before.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(4, np.float32)
    top, total = LOWEST, ZERO
    for col in range(thread, x.shape[1], THREADS):
        top = max(top, x[row, col])
    for lane in range(31):
        before = cuda.shfl_up_sync(0xFFFFFFFF, top, 1)
        if thread % 32 == lane + 1:
            top = max(top, before)
    if thread % 32 == 31:
        part[thread // 32] = top
    cuda.syncthreads()
    top = max(part[0], part[1])
    for col in range(thread, x.shape[1], THREADS):
        total += math.exp(x[row, col] - top)
    for lane in range(31):
        before = cuda.shfl_up_sync(0xFFFFFFFF, total, 1)
        if thread % 32 == lane + 1:
            total += before
    if thread % 32 == 31:
        part[2 + thread // 32] = total
    cuda.syncthreads()
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = math.exp(x[row, col] - top) / (part[2] + part[3])
