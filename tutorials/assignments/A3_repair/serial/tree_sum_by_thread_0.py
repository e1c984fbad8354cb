# refused by: tree_sum, tree_sum (hidden)
# Thread 0 adds up what all have put into shared memory.


def tree_sum(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(128, np.float32)
    s[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    if thread == 0:
        total = ZERO
        for k in range(128):
            total += s[k]
        y[cuda.blockIdx.x] = total
