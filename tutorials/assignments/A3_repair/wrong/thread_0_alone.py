# refused by: tree_sum
# Thread 0 adds up all numbers, so there is nobody to race with.


def tree_sum(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(128, np.float32)
    s[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    if thread == 0:
        for step in range(1, 128):
            s[thread] += s[step]
    if thread == 0:
        y[cuda.blockIdx.x] = s[0]
