# refused by: tree_sum
# Only the threads that add come to the barrier.


def tree_sum(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(128, np.float32)
    s[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if thread < step:
            s[thread] += s[thread + step]
            cuda.syncthreads()
        step //= 2
    if thread == 0:
        y[cuda.blockIdx.x] = s[0]
