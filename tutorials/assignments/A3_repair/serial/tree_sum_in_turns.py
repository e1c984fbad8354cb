# refused by: tree_sum, tree_sum (hidden)
# Each thread adds its number in its turn.


def tree_sum(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(1, np.float32)
    if thread == 0:
        s[0] = ZERO
    for turn in range(128):
        cuda.syncthreads()
        if thread == turn:
            s[0] += x[cuda.grid(1)]
    cuda.syncthreads()
    if thread == 0:
        y[cuda.blockIdx.x] = s[0]
