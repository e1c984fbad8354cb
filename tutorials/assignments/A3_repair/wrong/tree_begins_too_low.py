# refused by: tree_sum
# Without its first step the tree has no race with another warp, and loses half of the numbers.


def tree_sum(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(128, np.float32)
    s[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if thread < step:
            s[thread] += s[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread == 0:
        y[cuda.blockIdx.x] = s[0]
