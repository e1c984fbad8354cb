# refused by: barriers
# A barrier wherever one may stand.


def tree_sum(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(128, np.float32)
    s[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 64
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            s[thread] += s[thread + step]
        cuda.syncthreads()
        step //= 2
        cuda.syncthreads()
    if thread == 0:
        y[cuda.blockIdx.x] = s[0]
